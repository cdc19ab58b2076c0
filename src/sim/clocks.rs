//! A site's clocks: they start where its battery left them, drift, are set by people, and stand still
//! while the machine sleeps. The effective clock over them is the runtimes' own.

use std::time::Duration;

use consign_core::time::{EffectiveClock, Instant, Now, UnixMillis};

use super::time::Micros;

/// When worlds begin, on a clock that is right.
pub const EPOCH: u64 = 1_800_000_000_000;

/// The clocks of a machine.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// Difference of the system clock from the right time, in milliseconds.
    offset: i64,
    /// Microseconds the monotonic clock has stood still.
    slept: u64,
    /// When the process began.
    started: Micros,
    effective: EffectiveClock,
}

impl Clocks {
    /// Clocks that are `offset` milliseconds off the right time.
    #[must_use]
    pub fn new(offset: i64) -> Clocks {
        let effective = EffectiveClock::start(Instant::ZERO, UnixMillis(0), UnixMillis(0));
        Clocks { offset, slept: 0, started: Micros::ZERO, effective }
    }

    /// The system clock.
    #[must_use]
    pub fn system(&self, at: Micros) -> UnixMillis {
        let right = EPOCH.saturating_add(at.0 / 1000);
        UnixMillis(right.saturating_add_signed(self.offset))
    }

    fn mono(&self, at: Micros) -> Instant {
        let awake = at.since(self.started).saturating_sub(Duration::from_micros(self.slept));
        Instant::ZERO.after(awake)
    }

    /// A process starts; its ledger has seen `high`.
    pub fn start(&mut self, at: Micros, high: UnixMillis) -> Now {
        self.started = at;
        self.slept = 0;
        self.effective = EffectiveClock::start(Instant::ZERO, self.system(at), high);
        self.now(at)
    }

    /// Both clocks as the process sees them.
    pub fn now(&mut self, at: Micros) -> Now {
        let (mono, system) = (self.mono(at), self.system(at));
        self.effective.now(mono, system)
    }

    /// How far the system clock is ahead of effective time, when that has to be told.
    pub fn skew(&mut self) -> Option<i64> {
        self.effective.skew()
    }

    /// When the monotonic clock will show `at`, if it does not stand still before.
    #[must_use]
    pub fn when(&self, at: Instant) -> Micros {
        if at == Instant::FAR {
            return Micros::FAR;
        }
        self.started.plus(self.slept).plus(at.0.div_ceil(1000))
    }

    /// The system clock is set by so many milliseconds.
    pub fn step(&mut self, millis: i64) {
        self.offset = self.offset.saturating_add(millis);
    }

    /// The system clock is set to the year 1970, as by an empty battery.
    pub fn reset(&mut self, at: Micros) {
        let right = EPOCH.saturating_add(at.0 / 1000);
        self.offset = -i64::try_from(right).unwrap_or(i64::MAX);
    }

    /// The monotonic clock stood still for so many microseconds.
    pub fn sleep(&mut self, micros: u64) {
        self.slept = self.slept.saturating_add(micros);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn time_goes_on_and_sleep_is_left_out_of_the_monotonic_clock() {
        let mut clocks = Clocks::new(500);
        let begin = clocks.start(Micros(10 * S), UnixMillis(0));
        assert_eq!(begin.wall, UnixMillis(EPOCH + 10_500));
        assert_eq!(begin.mono, Instant::ZERO);
        clocks.sleep(5 * S);
        assert_eq!(clocks.now(Micros(17 * S)).mono, Instant(2_000_000_000));
        assert_eq!(clocks.when(Instant(3_000_000_000)), Micros(18 * S));
    }

    #[test]
    fn a_clock_set_back_is_not_believed_beyond_the_high_water() {
        let mut clocks = Clocks::new(0);
        clocks.reset(Micros::ZERO);
        assert_eq!(clocks.system(Micros(S)), UnixMillis(1000));
        let now = clocks.start(Micros(S), UnixMillis(EPOCH));
        assert_eq!(now.wall, UnixMillis(EPOCH));
    }
}
