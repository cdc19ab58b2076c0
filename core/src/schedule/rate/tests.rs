//! A pace is kept over every stretch of time, and used when there is work.

use alloc::vec::Vec;

use quickcheck::quickcheck;

use super::Pace;
use crate::time::Instant;

const SECOND: u64 = 1_000_000_000;

/// What was sent when, by somebody who sends pieces as soon as they may go, over several sessions.
fn sent(rate: u64, steps: &[(u32, u16, bool)]) -> Vec<(Instant, u64)> {
    let mut now = Instant(5);
    let mut pace = Pace::new(rate, now);
    let mut sent = Vec::new();
    for (pause, piece, anew) in steps {
        now = Instant(now.0 + u64::from(*pause));
        if *anew {
            pace = Pace::new(rate, now);
        }
        pace.advance(now);
        let bytes = (u64::from(*piece) + 1024).min(65_536);
        while pace.allows(bytes) {
            pace.spend(bytes);
            sent.push((now, bytes));
        }
    }
    sent
}

quickcheck! {
    /// Over any interval, at most the rate and one burst; new sessions bring nothing along.
    fn the_rate_is_never_exceeded(rate: u32, steps: Vec<(u32, u16, bool)>) -> bool {
        let rate = u64::from(rate) / 8192 + 1;
        let sent = sent(rate, &steps);
        (0..sent.len()).all(|first| {
            let mut total = 0u64;
            sent[first..].iter().all(|(at, bytes)| {
                total += bytes;
                let time = u128::from(at.0 - sent[first].0.0);
                let allowed = u128::from(rate) * time / u128::from(SECOND);
                u128::from(total) <= allowed + u128::from(rate.max(65_536)) + 1
            })
        })
    }

    /// Who always has work gets the rate, to a piece.
    fn the_rate_is_used(rate: u32, seconds: u8) -> bool {
        let rate = u64::from(rate) / 16 + 65_536;
        let end = Instant(u64::from(seconds) * SECOND);
        let mut pace = Pace::new(rate, Instant::ZERO);
        let mut total = 0;
        loop {
            while pace.allows(65_536) {
                pace.spend(65_536);
                total += 65_536;
            }
            let next = pace.opens_at(65_536).unwrap();
            if next > end {
                break;
            }
            pace.advance(next);
            assert!(pace.allows(65_536), "{pace:?} after its own deadline");
        }
        let allowed = rate * u64::from(seconds);
        total <= allowed && total + 65_536 >= allowed
    }
}

#[test]
fn a_new_pace_has_nothing_saved_and_saves_one_second_at_most() {
    let mut pace = Pace::new(100_000, Instant::ZERO);
    assert!(!pace.allows(1));
    assert_eq!(pace.opens_at(10), Some(Instant(100_000)));
    pace.advance(Instant(3600 * SECOND));
    let mut sent = 0;
    while pace.allows(10) {
        pace.spend(10);
        sent += 10;
    }
    assert_eq!(sent, 100_000);
}

#[test]
fn what_is_larger_than_a_burst_goes_when_a_burst_is_saved() {
    let mut pace = Pace::new(1000, Instant::ZERO);
    let at = pace.opens_at(1 << 40).unwrap();
    pace.advance(at);
    assert!(pace.allows(1 << 40) && at <= Instant(66 * SECOND), "{at:?}");
    pace.spend(1 << 40);
    assert!(!pace.allows(1));
}

#[test]
fn a_clock_that_stands_still_or_goes_back_gives_nothing() {
    let mut pace = Pace::new(1000, Instant(SECOND));
    pace.advance(Instant(2 * SECOND));
    pace.spend(400);
    let before = pace;
    pace.advance(Instant(SECOND));
    pace.advance(Instant(2 * SECOND));
    assert_eq!(pace, before);
    assert_eq!(pace.opens_at(700), Some(Instant(2 * SECOND + SECOND / 10)));
}

#[test]
fn extreme_rates_neither_overflow_nor_stop() {
    for rate in [0, 1, u64::MAX] {
        let mut pace = Pace::new(rate, Instant::ZERO);
        pace.advance(Instant::FAR);
        assert!(pace.allows(u64::MAX), "{rate}");
        pace.spend(u64::MAX);
        pace.spend(u64::MAX);
        assert!(pace.opens_at(1).is_some(), "{rate}");
    }
}
