//! Signed requests of nodes: what is done rests on what is on disk, what is refused need not.

use consign_core::ledger::rows_pickup::{NodeKey, NodeRow};

use super::play::{A, Draft, Play};
use crate::sim::audit::rows::Row;
use crate::sim::audit::shards::Row as OnShore;
use crate::sim::pickup::sight::Sight;
use crate::sim::seen::Seen;
use crate::sim::time::Micros;

const KEY: [u8; 32] = [7; 32];

fn enrolled(play: &mut Play, revoked_at: Option<u64>) {
    let keys = vec![NodeKey { public: KEY, enrolled_at: 0 }];
    let row = NodeRow { keys, enrolled_at: 0, revoked_at, registered_at: None, tokens_from: None };
    let mut draft = Draft::default();
    draft.put(Row::Pickup(OnShore::Node("node-1".into(), Box::new(row))));
    play.commit(A, draft);
}

fn answered(play: &mut Play, nonce: u8, status: u16, forged: bool) {
    let (node, asked) = ("node-1".into(), Micros(play.ms * 1000));
    let nonce = [nonce; 16];
    let sight = Sight::Signed { node, nonce, forged, status, key: KEY, asked };
    play.see(A, &Seen::Pickup(&sight));
}

/// What is broken when a node whose key may be on disk is given these answers.
fn broken(enrols: bool, answers: &[(u8, u16, bool)]) -> Option<&'static str> {
    let mut play = Play::new();
    if enrols {
        enrolled(&mut play, None);
    }
    for (nonce, status, forged) in answers {
        answered(&mut play, *nonce, *status, *forged);
    }
    play.broken.map(|violation| violation.invariant)
}

#[test]
fn what_is_taken_has_its_key_on_disk() {
    assert_eq!(broken(true, &[(1, 200, false)]), None);
    assert_eq!(broken(false, &[(1, 200, false)]), Some("I13"));
    assert_eq!(broken(false, &[(1, 101, false)]), Some("I13"));
}

#[test]
fn what_is_refused_may_rest_on_what_is_being_committed() {
    assert_eq!(broken(false, &[(1, 409, false)]), None);
    // The power goes before the nonce of it is on disk, and somebody says the same again.
    assert_eq!(broken(true, &[(1, 409, false), (1, 409, false)]), None);
}

#[test]
fn what_was_taken_is_not_known_again() {
    for status in [101, 200, 404, 409] {
        assert_eq!(broken(true, &[(1, 200, false), (1, status, false)]), Some("I13"), "{status}");
    }
}

#[test]
fn a_forged_signature_is_never_known() {
    assert_eq!(broken(true, &[(1, 404, true)]), Some("I13"));
}

#[test]
fn a_key_that_is_revoked_is_good_for_what_was_asked_before() {
    let mut play = Play::new();
    enrolled(&mut play, None);
    let asked = Micros(play.ms * 1000);
    play.wait(1_000);
    let revoked_at = play.wall();
    enrolled(&mut play, Some(revoked_at));
    play.wait(1_000);
    let node: String = "node-1".into();
    let sight = |nonce: u8, asked| Sight::Signed {
        node: node.clone(),
        nonce: [nonce; 16],
        forged: false,
        status: 200,
        key: KEY,
        asked,
    };
    play.see(A, &Seen::Pickup(&sight(1, asked)));
    assert_eq!(play.broken.as_ref().map(ToString::to_string), None);
    let now = Micros(play.ms * 1000);
    play.see(A, &Seen::Pickup(&sight(2, now)));
    assert_eq!(play.broken.map(|violation| violation.invariant), Some("I13"));
}
