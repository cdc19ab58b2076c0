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

/// Effective wall time (DESIGN 2.5): starts no earlier than the ledger's high water, goes on with the
/// monotonic clock, is slewed towards the system clock, and never goes back.
///
/// A driver keeps one and asks it with fresh readings of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct EffectiveClock {
    mono: Instant,
    /// Nanoseconds since the Unix epoch, enough until the year 2554.
    nanos: u64,
}

impl EffectiveClock {
    /// Of the time that passes, this part is used to come closer to the system clock: an hour's
    /// difference is gone after ten.
    pub const SLEW: u64 = 10;

    /// A clock that starts at the later of the `system` clock and the `high` water in the ledger.
    #[must_use]
    pub fn start(mono: Instant, system: UnixMillis, high: UnixMillis) -> EffectiveClock {
        EffectiveClock { mono, nanos: system.max(high).0.saturating_mul(NANOS_PER_MILLI) }
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
        Now { mono: self.mono, wall: UnixMillis(self.nanos / NANOS_PER_MILLI) }
    }
}

const NANOS_PER_MILLI: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SECOND: u64 = 1_000_000_000;

    fn seconds(n: u64) -> Instant {
        Instant(n * SECOND)
    }

    fn wall(n: u64) -> UnixMillis {
        UnixMillis(n * 1_000)
    }

    #[test]
    fn starts_at_the_later_of_system_and_high_water() {
        let mut clock = EffectiveClock::start(seconds(0), wall(100), wall(500));
        assert_eq!(clock.now(seconds(0), wall(100)).wall, wall(500));
        let mut clock = EffectiveClock::start(seconds(0), wall(500), wall(100));
        assert_eq!(clock.now(seconds(0), wall(500)).wall, wall(500));
    }

    #[test]
    fn follows_a_steady_system_clock_exactly() {
        let mut clock = EffectiveClock::start(seconds(0), wall(1_000), wall(0));
        for n in 1..10_000 {
            let system = UnixMillis(1_000_000 + n * 7);
            assert_eq!(clock.now(Instant(n * 7_000_000), system).wall, system);
        }
    }

    #[test]
    fn a_step_of_the_system_clock_is_caught_up_with_in_ten_times_its_length() {
        for (step, due) in [(3_600i64, 36_000u64), (-3_600, 36_000)] {
            let mut clock = EffectiveClock::start(seconds(0), wall(100_000), wall(0));
            let system = |n: u64| wall((100_000 + n).strict_add_signed(step));
            for n in 1..due - 20 {
                let now = clock.now(seconds(n), system(n)).wall;
                assert_ne!(now.0.abs_diff(system(n).0) / 1_000, 0, "{n} s after {step} s");
            }
            let now = clock.now(seconds(due + 1), system(due + 1)).wall;
            assert!(now.0.abs_diff(system(due + 1).0) <= 1, "{now}");
        }
    }

    #[test]
    fn never_goes_back_and_never_runs_away() {
        fn check(steps: Vec<(u32, u64)>) -> bool {
            let mut clock = EffectiveClock::start(seconds(0), wall(1_000_000), wall(0));
            let (mut mono, mut last) = (0u64, clock.now(seconds(0), wall(1_000_000)).wall);
            for (passed, system) in steps {
                mono += u64::from(passed);
                let now = clock.now(Instant(mono), UnixMillis(system)).wall;
                let ran = now.0 - last.0;
                let most = u64::from(passed) / NANOS_PER_MILLI;
                if now < last || ran > most + most / EffectiveClock::SLEW + 2 {
                    return false;
                }
                last = now;
            }
            true
        }
        quickcheck::quickcheck(check as fn(Vec<(u32, u64)>) -> bool);
    }
}
