//! Arithmetic on times saturates and never goes below zero.

use alloc::string::ToString;

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
