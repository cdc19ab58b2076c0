//! Signatures: keys, freshness, nonces and their share.

use std::time::Duration;

use consign_core::config::BufferConfig;
use consign_core::ledger::Table;
use consign_core::node::Input;
use consign_core::pickup::{OperatorAct, PickupRefusal, Signed};

use crate::relay::{KEY, Relay, shard, with};

/// What a signature comes to: with it, a token that is not known is 404.
fn judge(relay: &mut Relay, signed: Signed) -> PickupRefusal {
    relay.redeem_as(signed, None, None).unwrap_err()
}

#[test]
fn a_key_that_is_not_enrolled_spends_nothing() {
    let mut relay = Relay::new();
    for (node, key) in [("n1", [9; 32]), ("n1", [2; 32]), ("n3", KEY)] {
        let signed = relay.signed(node, key);
        assert_eq!(judge(&mut relay, signed), PickupRefusal::Unauthorized);
    }
    assert_eq!(relay.site.store.rows(Table::Nonces), 0);
    let signed = relay.signed("n1", KEY);
    assert_eq!(judge(&mut relay, signed), PickupRefusal::NotFound);
    assert_eq!(relay.site.store.rows(Table::Nonces), 1, "whatever the answer is");
}

#[test]
fn freshness_is_a_minute_either_way_inclusive_by_the_system_clock() {
    for skew in [0i64, 7_200_000, -7_200_000] {
        let mut relay = Relay::new();
        relay.site.input(Input::Skew { ahead: skew });
        let raw = (relay.site.now.wall.0.strict_add_signed(skew)) / 1000;
        for (at, code) in [
            (raw - 61, PickupRefusal::Unauthorized),
            (raw - 60, PickupRefusal::NotFound),
            (raw, PickupRefusal::NotFound),
            (raw + 60, PickupRefusal::NotFound),
            (raw + 61, PickupRefusal::Unauthorized),
        ] {
            let signed = Signed { timestamp: at, ..relay.signed("n1", KEY) };
            assert_eq!(judge(&mut relay, signed), code, "{skew}: {at} at {raw}");
        }
        relay.audit();
    }
}

#[test]
fn a_nonce_is_remembered_as_long_as_its_signature_is_good() {
    // Signed as far ahead as is allowed: replayed at each edge.
    let mut relay = Relay::new();
    let raw = relay.site.now.wall.0 / 1000;
    let signed = Signed { timestamp: raw + 60, ..relay.signed("n1", KEY) };
    assert_eq!(judge(&mut relay, signed.clone()), PickupRefusal::NotFound);
    for _ in 0..4 {
        assert_eq!(judge(&mut relay, signed.clone()), PickupRefusal::Unauthorized);
        relay.wait(Duration::from_secs(30));
    }
    // 120 s later it is still fresh, and still spent; the restart does not forget it.
    let mut relay = relay.restart();
    relay.site.settle();
    assert_eq!(judge(&mut relay, signed.clone()), PickupRefusal::Unauthorized);
    assert_eq!(relay.site.store.rows(Table::Nonces), 1);
    relay.wait(Duration::from_secs(2));
    assert_eq!(relay.site.store.rows(Table::Nonces), 0);
    assert_eq!(judge(&mut relay, signed), PickupRefusal::Unauthorized, "stale by now");
    relay.audit();
}

#[test]
fn the_share_of_a_key_is_its_own_and_evicts_nothing() {
    let buffer = BufferConfig { nonces_per_key: 3, ..BufferConfig::default() };
    let mut relay = Relay::with(with(buffer));
    relay.act(OperatorAct::EnrolNode { id: "n1".into(), key: [7; 32] }).unwrap();
    let first = relay.signed("n1", KEY);
    assert_eq!(judge(&mut relay, first.clone()), PickupRefusal::NotFound);
    for _ in 0..2 {
        let signed = relay.signed("n1", KEY);
        assert_eq!(judge(&mut relay, signed), PickupRefusal::NotFound);
    }
    let signed = relay.signed("n1", KEY);
    assert_eq!(judge(&mut relay, signed), PickupRefusal::TooManyNonces);
    assert_eq!(judge(&mut relay, first.clone()), PickupRefusal::Unauthorized, "not evicted");
    let other = relay.signed("n1", [7; 32]);
    assert_eq!(judge(&mut relay, other), PickupRefusal::NotFound);
    // It is counted again after a start.
    let mut relay = relay.restart();
    relay.site.settle();
    let signed = relay.signed("n1", KEY);
    assert_eq!(judge(&mut relay, signed), PickupRefusal::TooManyNonces);
    relay.wait(Duration::from_secs(62));
    let signed = relay.signed("n1", KEY);
    assert_eq!(judge(&mut relay, signed), PickupRefusal::NotFound);
    relay.audit();
}

#[test]
fn nonces_go_while_the_clock_is_doubted_and_nothing_else_does() {
    let buffer = BufferConfig { nonces_per_key: 2, ..BufferConfig::default() };
    let mut relay = Relay::with(with(buffer));
    relay.put(&shard("a", 0), b"content");
    for _ in 0..2 {
        let signed = relay.signed("n1", KEY);
        assert_eq!(judge(&mut relay, signed), PickupRefusal::NotFound);
    }
    relay.site.input(Input::Clock { ahead: 10 * 365 * 86_400_000 });
    relay.site.settle();
    for _ in 0..8 {
        relay.wait(Duration::from_secs(10));
    }
    assert_eq!(relay.site.store.rows(Table::Nonces), 0);
    let signed = relay.signed("n1", KEY);
    assert_eq!(judge(&mut relay, signed), PickupRefusal::NotFound);
    relay.audit();
}
