//! Time as the core sees it: two clocks, both handed in.
//!
//! The core never reads a clock. [`Now`] carries the monotonic clock, which in-memory timers use, and
//! *effective* wall time (DESIGN 2.5), which ledger rows use. They never mix.

use core::fmt;
use core::time::Duration;

/// A point on the driver's monotonic clock: nanoseconds since the driver started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The instant the driver started.
    pub const ZERO: Instant = Instant(0);
    /// Later than every instant that will ever be reached (584 years).
    pub const FAR: Instant = Instant(u64::MAX);

    /// This instant plus `d`, saturating at [`Instant::FAR`].
    #[must_use]
    pub fn after(self, d: Duration) -> Instant {
        let nanos = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }

    /// How long after `earlier` this is; zero when it is not after.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds since the Unix epoch, the only time that is written to the ledger or to the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// This time plus `d`, saturating.
    #[must_use]
    pub fn after(self, d: Duration) -> UnixMillis {
        let ms = u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        UnixMillis(self.0.saturating_add(ms))
    }

    /// How long after `earlier` this is; zero when it is not after.
    #[must_use]
    pub fn since(self, earlier: UnixMillis) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock: timers and timeouts in memory.
    pub mono: Instant,
    /// Effective wall time: due times, expiry and everything that is stored.
    pub wall: UnixMillis,
}

impl Now {
    /// The monotonic instant at which effective time will reach `at`, as far as can be told now.
    /// The only conversion between the two clocks.
    #[must_use]
    pub fn instant_of(&self, at: UnixMillis) -> Instant {
        self.mono.after(at.since(self.wall))
    }
}

#[cfg(test)]
mod tests;
