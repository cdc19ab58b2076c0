//! Properties of backoff and shares.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use quickcheck::quickcheck;

use super::{Backoff, Shares, jitter_key};
use crate::id::SegmentId;
use crate::segment::Class;

quickcheck! {
    fn a_delay_stays_within_its_bounds(initial: u64, max: u64, failures: u64, key: u64) -> bool {
        let initial = Duration::from_millis(initial.clamp(1, u64::MAX / 2));
        let max = Duration::from_millis(max).max(initial);
        let delay = Backoff { initial, max }.delay(failures, key);
        initial <= delay && delay <= max && !delay.is_zero()
    }

    /// Until the last quarter is reached, whatever the keys; from then on it stays in that quarter.
    fn a_delay_never_shrinks_with_more_failures(initial: u32, max: u32, failures: u8, keys: (u64, u64)) -> bool {
        let initial = Duration::from_millis(u64::from(initial) + 1);
        let max = initial.max(Duration::from_millis(max.into()));
        let backoff = Backoff { initial, max };
        let failures = u64::from(failures) + 1;
        let (before, after) = (backoff.delay(failures, keys.0), backoff.delay(failures + 1, keys.1));
        let quarter = max - Duration::from_millis(max.as_millis() as u64 / 4);
        after >= before.min(quarter)
    }

    fn jitter_depends_on_nothing_but_its_key(id: u8, attempt: u64) -> bool {
        let id = SegmentId([id; 32]);
        jitter_key(&id, "beta", attempt) == jitter_key(&id, "beta", attempt)
            && jitter_key(&id, "beta", attempt) != jitter_key(&id, "gamma", attempt)
    }
}

#[test]
fn extreme_attempts_neither_overflow_nor_vanish() {
    for max in [Duration::from_millis(1), Duration::from_secs(900), Duration::MAX] {
        let backoff = Backoff { initial: Duration::from_millis(1), max };
        for failures in [0, 1, 2, 31, 32, 33, 63, 64, 65, 1 << 32, u64::MAX] {
            let delay = backoff.delay(failures, u64::MAX);
            assert!(!delay.is_zero() && delay <= max, "{failures} {delay:?}");
        }
    }
}

#[test]
fn delays_differ_at_the_cap_too() {
    let max = Duration::from_secs(900);
    let backoff = Backoff { initial: Duration::from_secs(1), max };
    for failures in [11, 12, 1 << 20, u64::MAX] {
        let id = SegmentId([3; 32]);
        let delay = |peer: &str| backoff.delay(failures, jitter_key(&id, peer, failures));
        let mut delays: Vec<Duration> = (0..100).map(|n| delay(&format!("site-{n}"))).collect();
        assert!(delays.iter().all(|d| (max * 3 / 4..=max).contains(d)), "{delays:?}");
        delays.sort_unstable();
        delays.dedup();
        assert!(delays.len() > 90, "{} of 100 differ", delays.len());
        let spread = delays[delays.len() - 1] - delays[0];
        assert!(spread > max / 5, "they are spread over {spread:?}");
    }
}

#[test]
fn classes_share_eight_four_two_one_and_none_starves() {
    let mut shares = Shares::default();
    let mut count = [0u32; 4];
    let mut since = [0u32; 4];
    for _ in 0..1500 {
        let class = shares.pick(|_| true).unwrap();
        shares.charge(class, 4096);
        count[class as usize] += 1;
        for (i, s) in since.iter_mut().enumerate() {
            *s = if i == class as usize { 0 } else { *s + 1 };
            assert!(*s < 16, "class {i} waited {s} turns");
        }
    }
    assert_eq!(count, [800, 400, 200, 100]);
}

#[test]
fn a_class_that_was_idle_brings_no_savings() {
    let mut shares = Shares::default();
    for _ in 0..1000 {
        shares.charge(Class::Bulk, 4096);
    }
    let mut urgent = 0;
    for _ in 0..90 {
        let class = shares.pick(|c| matches!(c, Class::Urgent | Class::Bulk)).unwrap();
        shares.charge(class, 4096);
        urgent += u32::from(class == Class::Urgent);
    }
    assert!((80..=81).contains(&urgent), "{urgent} of 90 turns");
}

#[test]
fn a_huge_segment_counts_as_sixteen_mebibytes() {
    let mut shares = Shares::default();
    shares.charge(Class::Normal, 20 << 30);
    let mut small = 0;
    while shares.pick(|c| matches!(c, Class::Normal | Class::Bulk)) == Some(Class::Bulk) {
        shares.charge(Class::Bulk, 1 << 20);
        small += 1;
    }
    assert_eq!(small, 8);
}
