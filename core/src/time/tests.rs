//! Arithmetic on times saturates and never goes below zero.

use alloc::string::ToString;
use alloc::vec::Vec;

use quickcheck::quickcheck;

use super::*;

const LONG: Duration = Duration::new(u64::MAX, 999_999_999);

#[test]
fn the_ends_of_time_hold() {
    assert_eq!(Instant::FAR.after(Duration::from_nanos(1)), Instant::FAR);
    assert_eq!(Instant::ZERO.after(LONG), Instant::FAR);
    assert_eq!(Instant::ZERO.since(Instant::FAR), Duration::ZERO);
    assert_eq!(UnixMillis(u64::MAX).after(Duration::from_millis(1)), UnixMillis(u64::MAX));
    assert_eq!(UnixMillis(0).after(LONG), UnixMillis(u64::MAX));
    assert_eq!(UnixMillis(0).since(UnixMillis(u64::MAX)), Duration::ZERO);
}

#[test]
fn less_than_a_millisecond_is_not_stored() {
    assert_eq!(UnixMillis(5).after(Duration::from_micros(999)), UnixMillis(5));
    assert_eq!(UnixMillis(5).after(Duration::from_micros(1000)), UnixMillis(6));
    assert_eq!(UnixMillis(5).to_string(), "5 ms");
}

#[test]
fn what_is_past_is_due_at_once() {
    let now = Now { mono: Instant(7), wall: UnixMillis(1000) };
    assert_eq!(now.instant_of(UnixMillis(999)), Instant(7));
    assert_eq!(now.instant_of(UnixMillis(1000)), Instant(7));
    assert_eq!(now.instant_of(UnixMillis(1001)), Instant(1_000_007));
    assert_eq!(now.instant_of(UnixMillis(u64::MAX)), Instant::FAR);
}

quickcheck! {
    fn later_is_never_earlier(at: u64, nanos: u64) -> bool {
        let d = Duration::from_nanos(nanos);
        Instant(at).after(d) >= Instant(at)
            && Instant(at).after(d).since(Instant(at)) <= d
            && UnixMillis(at).after(d) >= UnixMillis(at)
            && UnixMillis(at).after(d).since(UnixMillis(at)) <= d
    }

    fn since_undoes_after(at: u32, ms: u32) -> bool {
        let d = Duration::from_millis(u64::from(ms));
        UnixMillis(u64::from(at)).after(d).since(UnixMillis(u64::from(at))) == d
            && Instant(u64::from(at)).after(d).since(Instant(u64::from(at))) == d
    }

    fn a_later_time_is_a_later_instant(mono: u64, wall: u64, a: u64, b: u64) -> bool {
        let now = Now { mono: Instant(mono), wall: UnixMillis(wall) };
        let (first, second) = (UnixMillis(a.min(b)), UnixMillis(a.max(b)));
        now.mono <= now.instant_of(first) && now.instant_of(first) <= now.instant_of(second)
    }
}

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

#[test]
fn a_step_ahead_is_told_once_and_so_is_what_is_left_of_it() {
    const HOUR: u64 = 3_600_000;
    let at = |ms: u64| Instant(ms * NANOS_PER_MILLI);
    let start = UnixMillis(1_000 * HOUR);
    let mut clock = EffectiveClock::start(at(0), start, UnixMillis(0));
    clock.now(at(1_000), UnixMillis(start.0 + 1_000));
    assert_eq!(clock.step(), None);
    // Less than an hour is no step.
    clock.now(at(2_000), UnixMillis(start.0 + 2_000 + HOUR / 2));
    assert_eq!(clock.step(), None);
    let now = clock.now(at(3_000), UnixMillis(start.0 + 10 * HOUR));
    assert_eq!(clock.step().map(|step| step.as_secs() / 3600), Some(9));
    assert!(now.wall.0 < start.0 + HOUR, "effective time does not step");
    clock.now(at(4_000), UnixMillis(start.0 + 10 * HOUR + 1_000));
    assert_eq!(clock.step(), None, "it is told once");
    // The step is taken back.
    clock.now(at(5_000), UnixMillis(start.0 + 5_000));
    assert_eq!(clock.step(), Some(Duration::ZERO));
    clock.now(at(6_000), UnixMillis(start.0 + 6_000));
    assert_eq!(clock.step(), None);
}
