//! The only clock: readings of the system's clocks, made into the core's [`Now`].

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consign_core::time::{EffectiveClock, Instant, Now, UnixMillis};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks. The monotonic one goes on while the machine is suspended, so that what is due after a
/// suspend is due at once.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Duration,
    effective: Mutex<EffectiveClock>,
}

impl Clock {
    /// A clock that starts now; effective time starts no earlier than `high`.
    pub(crate) fn start(high: UnixMillis) -> Clock {
        let effective = EffectiveClock::start(Instant::ZERO, system(), high);
        Clock { began: boot_time(), effective: Mutex::new(effective) }
    }

    /// The time.
    pub(crate) fn now(&self) -> Now {
        let mut effective = self.effective.lock().unwrap_or_else(PoisonError::into_inner);
        effective.now(self.mono(), system())
    }

    /// How far the system clock was found ahead of effective time, when that has to be told.
    pub(crate) fn step(&self) -> Option<Duration> {
        self.effective.lock().unwrap_or_else(PoisonError::into_inner).step()
    }

    /// How far the system clock is ahead of effective time, when that has to be told.
    pub(crate) fn skew(&self) -> Option<i64> {
        self.effective.lock().unwrap_or_else(PoisonError::into_inner).skew()
    }

    /// How long it is until `at`; zero when it has passed.
    pub(crate) fn until(&self, at: Instant) -> Duration {
        at.since(self.mono())
    }

    fn mono(&self) -> Instant {
        Instant::ZERO.after(boot_time().saturating_sub(self.began))
    }
}

fn boot_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

fn system() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_zero_and_at_the_high_water() {
        let high = UnixMillis(system().0 + 3_600_000);
        let clock = Clock::start(high);
        let (first, second) = (clock.now(), clock.now());
        assert!(first.wall >= high && first.mono < Instant(60_000_000_000));
        assert!(second.mono >= first.mono && second.wall >= first.wall);
        assert_eq!(clock.until(first.mono), Duration::ZERO);
        assert!(clock.until(second.mono.after(Duration::from_secs(100))) > Duration::from_secs(9));
    }
}
