//! Nodes that come and go: registration, replacement, acks.

use std::time::Duration;

use consign_core::config::BufferConfig;
use consign_core::ledger::Table;
use consign_core::ledger::rows_pickup::{AckStatus, ShardState};
use consign_core::node::Input;
use consign_core::pickup::{Answer, Command, Event, OperatorAct, PickupRefusal};

use crate::relay::{KEY, Relay, Said, shard, with};

#[test]
fn registering_is_answered_with_what_is_owed_and_replaces_the_older_session() {
    let mut relay = Relay::new();
    for i in 0..3 {
        relay.put(&shard("a", i), b"content");
    }
    let old = relay.subscribe("n1", KEY);
    relay.register(old);
    relay.site.settle();
    let said = relay.said(old);
    assert_eq!(said[0], Said::Answer(Answer::Registered { session: 1, owed: 3 }));
    assert_eq!(said.len(), 4);
    assert!(relay.node_row("n1").unwrap().registered_at.is_some());
    // Another upgrade alone changes nothing; its registration does.
    let new = relay.subscribe("n1", KEY);
    relay.site.settle();
    assert_eq!(relay.said(old), []);
    relay.register(new);
    assert_eq!(relay.notified(new).len(), 3, "exactly the owed set");
    let closed = relay.said(old);
    assert!(matches!(&closed[..], [Said::Command(Command::CloseWs { code: 4001, .. })]));
    // The end of the older changes nothing.
    relay.close(old);
    relay.site.settle();
    relay.put(&shard("b", 0), b"content");
    assert_eq!(relay.notified(new).len(), 1);
    assert_eq!((relay.status().sessions, relay.status().unanswered), (1, 4));
    relay.audit();
}

#[test]
fn a_verified_ack_moves_custody_in_one_commit() {
    for file in [false, true] {
        let mut relay = Relay::new();
        let key = shard("a", 0);
        let body = vec![3; 100_000];
        if file {
            relay.put_file(&key, &body)
        } else {
            relay.put(&key, &body[..1000])
        };
        let ws = relay.node("n1", KEY);
        let (_, serve) = relay.pick_up(ws);
        let state = relay.ack(ws, &key, serve.redemption, AckStatus::Verified);
        assert_eq!(state, Ok(ShardState::NodeStored));
        relay.site.settle();
        let row = relay.row(&key).unwrap();
        assert!(row.buffer.is_none() && row.deadline == 0);
        let rows = |table| relay.site.store.rows(table);
        assert_eq!((rows(Table::Blobs), rows(Table::Bodies), rows(Table::Owners)), (0, 0, 0));
        assert_eq!((relay.used(), relay.site.store.files().count()), (0, 0));
        assert_eq!(relay.status().acks, (1, 0));
        relay.audit();
        // Said again it is answered again, and changes nothing; the opposite is stale.
        let commits = relay.site.store.commits();
        let again = relay.ack(ws, &key, serve.redemption, AckStatus::Verified);
        assert_eq!((again, relay.site.store.commits()), (Ok(ShardState::NodeStored), commits));
        let other = relay.ack(ws, &key, serve.redemption, AckStatus::Failed);
        assert_eq!(other, Err(PickupRefusal::StaleAck));
        let other = relay.ack(ws, &key, serve.redemption + 1, AckStatus::Verified);
        assert_eq!(other, Err(PickupRefusal::StaleAck));
        // Also behind a restart.
        let mut relay = relay.restart();
        let ws = relay.node("n1", KEY);
        relay.site.settle();
        let again = relay.ack(ws, &key, serve.redemption, AckStatus::Verified);
        assert_eq!(again, Ok(ShardState::NodeStored));
    }
}

#[test]
fn failed_acks_wait_twice_as_long_each_time_and_end_at_max_pickups() {
    let buffer = BufferConfig { max_pickups: 4, ..BufferConfig::default() };
    let mut relay = Relay::with(with(buffer));
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    for n in 1..=4u32 {
        let (_, serve) = relay.pick_up(ws);
        let state = relay.ack(ws, &key, serve.redemption, AckStatus::Failed);
        if n == 4 {
            assert_eq!(state, Ok(ShardState::RelayCleanup));
            break;
        }
        assert_eq!(state, Ok(ShardState::RelayBuffered));
        relay.wait(Duration::from_millis((1000 << (n - 1)) - 1));
        assert_eq!(relay.notified(ws), [], "after {n}");
        relay.wait(Duration::from_millis(1));
    }
    let row = relay.row(&key).unwrap();
    assert_eq!((row.failed_acks, row.reason.as_str()), (4, "why"));
    assert_eq!((relay.used(), relay.status().acks), (0, (0, 4)));
    relay.audit();
}

#[test]
fn a_new_session_does_not_wait_and_acks_count_on_any_session_of_the_node() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let old = relay.node("n1", KEY);
    let (_, serve) = relay.pick_up(old);
    relay.ack(old, &key, serve.redemption, AckStatus::Failed).unwrap();
    relay.wait(Duration::from_millis(10));
    assert_eq!(relay.notified(old), []);
    let new = relay.node("n1", KEY);
    let (_, serve) = relay.pick_up(new);
    relay.said(old);
    // On the session that was replaced, and not on another node's.
    let other = relay.node("n2", [2; 32]);
    relay.site.settle();
    let stale = relay.ack(other, &key, serve.redemption, AckStatus::Verified);
    assert_eq!(stale, Err(PickupRefusal::StaleAck));
    let state = relay.ack(old, &key, serve.redemption, AckStatus::Verified);
    assert_eq!(state, Ok(ShardState::NodeStored));
    relay.audit();
}

#[test]
fn an_ack_counts_in_no_state_but_its_own() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let ws = relay.node("n1", KEY);
    relay.site.settle();
    relay.said(ws);
    assert_eq!(relay.ack(ws, &key, 1, AckStatus::Verified), Err(PickupRefusal::StaleAck));
    relay.put(&key, b"content");
    let notify = relay.notified(ws).pop().unwrap();
    for redemption in [0, notify.redemption] {
        let early = relay.ack(ws, &key, redemption, AckStatus::Verified);
        assert_eq!(early, Err(PickupRefusal::StaleAck), "it is not redeemed");
    }
    assert_eq!(relay.state(&key), Some(ShardState::RelayBuffered));
}

#[test]
fn revocation_ends_sessions_and_leaves_shards_to_their_leases() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    relay.act(OperatorAct::EnrolNode { id: "n1".into(), key: [7; 32] }).unwrap();
    let first = relay.node("n1", KEY);
    let notify = relay.notified(first).pop().unwrap();
    let second = relay.subscribe("n1", [7; 32]);
    // One key: whoever signed with the other stays.
    relay.act(OperatorAct::RevokeNode { id: "n1".into(), key: Some([7; 32]) }).unwrap();
    let said = relay.said(second);
    assert!(matches!(&said[..], [Said::Command(Command::CloseWs { code: 1008, .. })]));
    assert_eq!(relay.said(first), []);
    relay.act(OperatorAct::RevokeNode { id: "n1".into(), key: None }).unwrap();
    let said = relay.said(first);
    assert!(matches!(&said[..], [Said::Command(Command::CloseWs { code: 1008, .. })]));
    let hash = relay.hash(first, &notify);
    assert_eq!(relay.redeem(hash).unwrap_err(), PickupRefusal::Unauthorized);
    assert_eq!(relay.state(&key), Some(ShardState::RelayBuffered));
    // Enrolled again with another key, it gets what is still there.
    relay.act(OperatorAct::EnrolNode { id: "n1".into(), key: [8; 32] }).unwrap();
    let ws = relay.node("n1", [8; 32]);
    assert_eq!(relay.notified(ws).len(), 1);
    relay.audit();
}

#[test]
fn a_stop_closes_sessions_and_waits_for_what_is_on_the_wire() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let (conn, serve) = relay.pick_up(ws);
    relay.site.input(Input::Stop);
    relay.site.settle();
    let said = relay.said(ws);
    assert!(matches!(&said[..], [Said::Command(Command::CloseWs { code: 1001, .. })]));
    assert!(!relay.site.drained);
    let late = relay.site.client();
    let ask = relay.small(late, &shard("b", 0), b"late");
    assert_eq!(relay.upload_on(late, ask), Err(PickupRefusal::Unavailable));
    assert_eq!(relay.site.store.parked(), 0);
    relay.fetched(conn, serve.redemption, consign_core::pickup::FetchEnd::Whole);
    assert!(relay.site.drained);
    assert_eq!(relay.state(&key), Some(ShardState::NodeReceiving));
}

#[test]
fn whoever_registers_without_an_upgrade_is_sent_away() {
    let mut relay = Relay::new();
    let conn = relay.site.client();
    relay.tell(conn, Event::Register { tokens: Vec::new() });
    relay.site.settle();
    let said = relay.said(conn);
    assert!(matches!(&said[..], [Said::Command(Command::CloseWs { code: 1008, .. })]));
}
