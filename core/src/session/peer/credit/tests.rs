//! The books always balance.

use alloc::vec::Vec;

use quickcheck::quickcheck;

use super::Grant;
use crate::limits::SEGMENT_MAX;
use crate::session::peer::fault::PeerFault;

const KIB: u64 = 1 << 10;

#[test]
fn a_quarter_freed_is_returned_at_once_and_less_is_not() {
    let mut grant = Grant::new(1_024 * KIB);
    grant.spend(512 * KIB).unwrap();
    assert_eq!(grant.take_due(), None);
    grant.free(256 * KIB - 1);
    assert_eq!(grant.take_due(), None);
    grant.free(1);
    assert_eq!(grant.take_due(), Some(256 * KIB));
    assert_eq!(grant.take_due(), None);
}

#[test]
fn a_dry_window_gets_what_little_there_is() {
    let mut grant = Grant::new(256 * KIB);
    grant.spend(193 * KIB).unwrap();
    grant.free(16 * KIB - 1);
    assert_eq!(grant.take_due(), None);
    grant.free(1);
    assert_eq!(grant.take_due(), Some(16 * KIB));
}

#[test]
fn the_smallest_allowance_returns_to_a_full_segment() {
    let mut grant = Grant::new(64 * KIB);
    grant.spend(2 * KIB).unwrap();
    grant.spend(1).unwrap();
    grant.free(2 * KIB);
    assert_eq!(grant.take_due(), None, "a byte is held, and will come back too");
    grant.free(1);
    assert_eq!(grant.take_due(), Some(2 * KIB + 1));
}

#[test]
fn growth_is_granted_at_once_and_shrinking_is_withheld() {
    let mut grant = Grant::new(256 * KIB);
    grant.spend(200 * KIB).unwrap();
    grant.resize(257 * KIB);
    assert_eq!(grant.take_due(), Some(KIB));
    grant.resize(128 * KIB);
    grant.free(100 * KIB);
    assert_eq!(grant.take_due(), None, "window and held are still above the allowance");
    grant.spend(57 * KIB).unwrap();
    grant.free(157 * KIB);
    assert_eq!(grant.take_due(), Some(128 * KIB));
}

#[test]
fn spending_more_than_the_window_is_a_fault() {
    let mut grant = Grant::new(10);
    assert_eq!(grant.spend(11), Err(PeerFault::Overspent { bytes: 11, left: 10 }));
    assert_eq!(grant.spend(10), Ok(()));
    assert_eq!(grant.spend(1), Err(PeerFault::Overspent { bytes: 1, left: 0 }));
}

#[test]
fn more_is_wanted_once_per_allowance() {
    let mut grant = Grant::new(256 * KIB);
    grant.spend(192 * KIB).unwrap();
    assert!(!grant.take_wants());
    grant.spend(1).unwrap();
    assert!(grant.take_wants());
    assert!(!grant.take_wants());
    grant.resize(256 * KIB);
    assert!(!grant.take_wants(), "the same allowance is no change");
    grant.resize(260 * KIB);
    assert!(grant.take_wants());
}

quickcheck! {
    fn grants_never_exceed_the_allowance_and_never_strand_a_sender(
        least: u8,
        steps: Vec<(u8, u32)>
    ) -> bool {
        let least = (64 + u64::from(least)) * KIB;
        let mut grant = Grant::new(least);
        let mut held = 0u64;
        for (what, amount) in steps {
            let amount = u64::from(amount) % (70 * KIB);
            match what % 4 {
                0 | 1 => {
                    if grant.spend(amount).is_ok() {
                        held += amount;
                    }
                }
                2 => {
                    let freed = amount.min(held);
                    grant.free(freed);
                    held -= freed;
                }
                _ => grant.resize(least + amount * 16),
            }
            let before = grant.clone();
            let due = grant.take_due();
            let fits = grant.window + grant.held <= grant.allowance;
            if grant.held != held || (due.is_some() && !fits) || before.held != grant.held {
                return false;
            }
        }
        grant.free(held);
        grant.take_due();
        grant.window >= SEGMENT_MAX as u64
    }
}

#[test]
fn a_window_too_small_for_a_full_segment_is_low() {
    // What a session starts with, less a small body and one SEGMENT: a quarter is left and more,
    // and yet the sender waits.
    let mut grant = Grant::new(128 * KIB);
    grant.spend(5).unwrap();
    grant.free(5);
    assert!(!grant.take_wants());
    grant.spend(64 * KIB).unwrap();
    assert_eq!(grant.take_due(), None);
    assert!(grant.take_wants());
}
