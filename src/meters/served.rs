//! Requests by what they ask for and what they were answered. Labels come from tables, never from what a
//! client sends.

use std::collections::BTreeMap;

use consign_core::histogram::Histogram;
use consign_core::http::{Answered, Target};

/// A kind of request: its label, the method it comes with, and its path, where `*` is any one part.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its label.
    pub label: &'static str,
    /// The method.
    pub method: &'static str,
    path: &'static str,
}

const fn row(label: &'static str, method: &'static str, path: &'static str) -> Row {
    Row::new(label, method, path)
}

/// Requests of pickup; the label is the route.
pub const HTTP: &[Row] = &[
    row("/buffer/upload", "POST", "/buffer/upload"),
    row("/buffer/upload", "PATCH", "/buffer/upload"),
    row("/buffer/upload", "HEAD", "/buffer/upload"),
    row("/buffer/slot", "PUT", "/buffer/slot"),
    row("/buffer/fetch", "GET", "/buffer/fetch"),
    row("/ws", "GET", "/ws"),
    row("other", "other", ""),
];

impl Row {
    /// A row.
    #[must_use]
    pub const fn new(label: &'static str, method: &'static str, path: &'static str) -> Row {
        Row { label, method, path }
    }

    /// Whether a path is of it: what stands in the place of `*`, or nothing where there is none.
    #[must_use]
    pub fn part<'p>(&self, path: &'p str) -> Option<&'p str> {
        let (mut want, mut have) = (self.path.split('/'), path.split('/'));
        let mut part = "";
        loop {
            match (want.next(), have.next()) {
                (None, None) => return Some(part),
                (Some("*"), Some(had)) => part = had,
                (Some(word), Some(had)) if word == had => {}
                _ => return None,
            }
        }
    }

    fn is_of(&self, method: &str, path: &str) -> bool {
        let same = method == self.method || (method == "HEAD" && self.method == "GET");
        same && self.part(path).is_some()
    }
}

/// Which row of a table a request is of.
#[must_use]
pub fn row_of(table: &[Row], answered: &Answered<'_>) -> usize {
    let (method, path) = (answered.method.name(), Target::of(answered.target).path);
    let at = table.iter().position(|row| row.is_of(method, path));
    at.unwrap_or(table.len().saturating_sub(1))
}

/// What was answered since the start, by row of a table and status.
#[derive(Clone, Debug, Default)]
pub struct Served(BTreeMap<(usize, u16), Histogram>);

impl Served {
    /// Counts an answer to a request of this row.
    pub fn count(&mut self, at: usize, answered: &Answered<'_>) {
        let micros = u64::try_from(answered.took.as_micros()).unwrap_or(u64::MAX);
        self.0.entry((at, answered.status)).or_default().observe(micros);
    }

    /// Everything counted, by row and status, with a zero under `usual` for each row where nothing is.
    #[must_use]
    pub fn rows(&self, table: &[Row], usual: u16) -> BTreeMap<(usize, u16), Histogram> {
        let mut all: BTreeMap<_, _> =
            (0..table.len()).map(|at| ((at, usual), Histogram::default())).collect();
        all.extend(self.0.iter().map(|(key, histogram)| (*key, *histogram)));
        all
    }
}
