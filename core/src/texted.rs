//! Values that stand as text in what is written down and in JSON.

use core::fmt;

use serde::de::{Error, Unexpected, Visitor};

/// Reads a text that stands for a value.
pub(crate) struct Text<T> {
    /// Its value, if it is one.
    pub(crate) read: fn(&str) -> Option<T>,
    /// What it should be, for people.
    pub(crate) expected: &'static str,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}
