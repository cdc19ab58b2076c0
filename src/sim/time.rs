//! True time of a simulated world. Sites never see it: they see their own clocks.

use std::fmt;
use std::time::Duration;

/// Microseconds since the world began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// When the world begins.
    pub const ZERO: Micros = Micros(0);
    /// Later than every moment that is reached.
    pub const FAR: Micros = Micros(u64::MAX);

    /// This moment plus `d`, saturating at [`Micros::FAR`].
    #[must_use]
    pub fn after(self, d: Duration) -> Micros {
        self.plus(u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
    }

    /// This moment plus so many microseconds, saturating.
    #[must_use]
    pub fn plus(self, micros: u64) -> Micros {
        Micros(self.0.saturating_add(micros))
    }

    /// How long after `earlier` this is; zero when it is not after.
    #[must_use]
    pub fn since(self, earlier: Micros) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}
