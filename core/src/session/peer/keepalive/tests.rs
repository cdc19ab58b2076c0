//! Silence over time.

use core::time::Duration;

use super::{Keepalive, Silence};
use crate::session::peer::fault::PeerFault;
use crate::time::Instant;

fn at(seconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_secs(seconds))
}

fn keepalive() -> Keepalive {
    let mut alive = Keepalive::new(Duration::from_secs(20), Duration::from_secs(60));
    alive.hear(at(100));
    alive
}

#[test]
fn a_silent_peer_is_asked_once_and_given_up_at_last() {
    let mut alive = keepalive();
    assert_eq!(alive.next_deadline(), at(120));
    assert_eq!(alive.check(at(119)), Silence::Bearable);
    assert_eq!(alive.check(at(120)), Silence::Ask(1u64.to_be_bytes()));
    assert!(!alive.is_live());
    assert_eq!(alive.check(at(121)), Silence::Bearable);
    assert_eq!(alive.next_deadline(), at(160));
    assert_eq!(alive.check(at(160)), Silence::Dead);
}

#[test]
fn a_sign_of_life_begins_anew() {
    let mut alive = keepalive();
    assert_eq!(alive.check(at(120)), Silence::Ask(1u64.to_be_bytes()));
    alive.hear(at(130));
    assert!(alive.is_live());
    assert_eq!(alive.next_deadline(), at(150));
    assert_eq!(alive.check(at(150)), Silence::Ask(2u64.to_be_bytes()));
}

#[test]
fn a_late_timer_gives_up_without_asking() {
    assert_eq!(keepalive().check(at(500)), Silence::Dead);
}

#[test]
fn a_flood_of_pings_is_a_fault_and_a_steady_trickle_is_not() {
    let mut alive = keepalive();
    for _ in 0..64 {
        assert_eq!(alive.asked(at(100)), Ok(()));
    }
    assert_eq!(alive.asked(at(100)), Err(PeerFault::Pings { limit: 64 }));
    for second in 101..200 {
        for _ in 0..10 {
            assert_eq!(alive.asked(at(second)), Ok(()), "second {second}");
        }
    }
}
