//! Time as the core sees it: two clocks, both handed in.
//!
//! The core never reads a clock. [`Now`] carries the monotonic clock, which in-memory timers use, and
//! *effective* wall time (DESIGN 2.5), which ledger rows use. They never mix.

use core::fmt;
use core::time::Duration;

/// A point on the driver's monotonic clock: nanoseconds since the driver started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// Effective wall time (DESIGN 2.5): starts no earlier than the ledger's high water, goes on with the
/// monotonic clock, is slewed towards the system clock, and never goes back.
///
/// A driver keeps one and asks it with fresh readings of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct EffectiveClock {
    mono: Instant,
    /// Nanoseconds since the Unix epoch, enough until the year 2554.
    nanos: u64,
    /// How far the system clock is ahead (ms), and how far it was when that was last told.
    ahead: u64,
    told: u64,
    /// The same with its sign.
    skew: i64,
    told_skew: i64,
}

impl EffectiveClock {
    /// Of the time that passes, this part is used to come closer to the system clock: an hour's
    /// difference is gone after ten.
    pub const SLEW: u64 = 10;

    /// A difference of that much is a step of the system clock, which somebody has to look at.
    pub const STEP: Duration = Duration::from_secs(3600);

    /// A difference of so many milliseconds is told to who judges signatures.
    pub const SKEW: u64 = 100;

    /// A clock that starts at the later of the `system` clock and the `high` water in the ledger.
    #[must_use]
    pub fn start(mono: Instant, system: UnixMillis, high: UnixMillis) -> EffectiveClock {
        let nanos = system.max(high).0.saturating_mul(NANOS_PER_MILLI);
        EffectiveClock { mono, nanos, ahead: 0, told: 0, skew: 0, told_skew: 0 }
    }

    /// How far the system clock was ahead of effective time at the last reading, when that differs by
    /// [`EffectiveClock::STEP`] or more from what this said before: for [`crate::node::Input::Clock`].
    pub fn step(&mut self) -> Option<Duration> {
        let step = EffectiveClock::STEP.as_millis();
        let (ahead, told) = (u128::from(self.ahead), u128::from(self.told));
        if ahead.abs_diff(told) < step && (told < step || ahead >= step) {
            return None;
        }
        self.told = self.ahead;
        Some(Duration::from_millis(self.ahead))
    }

    /// How far the system clock was ahead of effective time at the last reading, in milliseconds, when
    /// that differs from what this said before by [`EffectiveClock::SKEW`] or more: for
    /// [`crate::node::Input::Skew`].
    pub fn skew(&mut self) -> Option<i64> {
        if self.skew.abs_diff(self.told_skew) < EffectiveClock::SKEW {
            return None;
        }
        self.told_skew = self.skew;
        Some(self.skew)
    }

    /// Both clocks at the moment when the monotonic clock shows `mono` and the system clock `system`. A
    /// `mono` earlier than one seen before counts as that one.
    pub fn now(&mut self, mono: Instant, system: UnixMillis) -> Now {
        let passed = mono.0.saturating_sub(self.mono.0);
        self.mono = self.mono.max(mono);
        let straight = self.nanos.saturating_add(passed);
        let system = system.0.saturating_mul(NANOS_PER_MILLI);
        let most = passed / EffectiveClock::SLEW;
        let behind = system.saturating_sub(straight).min(most);
        // A millisecond is the system clock's grain here: less than that is no difference.
        let ahead = straight.saturating_sub(system.saturating_add(NANOS_PER_MILLI)).min(most);
        self.nanos = straight.saturating_add(behind).saturating_sub(ahead);
        self.ahead = system.saturating_sub(self.nanos) / NANOS_PER_MILLI;
        let signed = |nanos: u64| i64::try_from(nanos / NANOS_PER_MILLI).unwrap_or(i64::MAX);
        self.skew = signed(system).saturating_sub(signed(self.nanos));
        Now { mono: self.mono, wall: UnixMillis(self.nanos / NANOS_PER_MILLI) }
    }
}

const NANOS_PER_MILLI: u64 = 1_000_000;

#[cfg(test)]
mod tests;
