//! Tokens and fetches: who may redeem what, once, in which order it is refused, how a fetch ends.

use std::time::Duration;

use consign_core::id::Sha256Digest;
use consign_core::ledger::rows_pickup::{AckStatus, ShardState, TokenState};
use consign_core::node::Note;
use consign_core::pickup::{
    Answer, Command, Event, FetchAsk, FetchEnd, OperatorAct, PickupRefusal,
};
use consign_core::store::StoreFault;

use crate::relay::{KEY, Relay, Said, shard};

#[test]
fn a_token_is_used_and_the_state_changed_before_the_first_byte() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let notify = relay.notified(ws).pop().unwrap();
    assert_eq!((&notify.shard, notify.size), (&key, 7));
    let hash = relay.hash(ws, &notify);
    let conn = relay.site.client();
    let (ticket, signed) = (relay.ticket(), relay.signed("n1", KEY));
    let ask = Box::new(FetchAsk { signed, token: Some(hash), from: None });
    relay.tell(conn, Event::Fetch { ticket, ask });
    while !relay.site.has_batch() {
        relay.site.turn();
    }
    assert_eq!(relay.said(conn), []);
    relay.site.commit();
    relay.site.settle();
    let said = relay.said(conn);
    let [Said::Answer(Answer::Serve { serve, .. })] = &said[..] else { panic!("{said:?}") };
    assert_eq!((serve.redemption, serve.size), (notify.redemption, 7));
    assert_eq!(relay.state(&key), Some(ShardState::NodeReceiving));
    assert_eq!(relay.token(hash).unwrap().state, TokenState::Redeemed);
    relay.audit();
}

#[test]
fn of_sixteen_that_race_one_gets_bytes_and_a_crash_changes_nothing() {
    let mut relay = Relay::new();
    relay.put(&shard("a", 0), b"content");
    let ws = relay.node("n1", KEY);
    let notify = relay.notified(ws).pop().unwrap();
    let hash = relay.hash(ws, &notify);
    let conns: Vec<_> = (0..16).map(|_| relay.site.client()).collect();
    for conn in &conns {
        let (ticket, signed) = (relay.ticket(), relay.signed("n1", KEY));
        let ask = Box::new(FetchAsk { signed, token: Some(hash), from: None });
        relay.tell(*conn, Event::Fetch { ticket, ask });
    }
    relay.site.settle();
    let mut served = 0;
    for conn in conns {
        match &relay.said(conn)[..] {
            [Said::Answer(Answer::Serve { .. })] => served += 1,
            [Said::Command(Command::Refuse { refusal: PickupRefusal::TokenUsed, .. })] => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(served, 1);
    let mut relay = relay.restart();
    relay.site.settle();
    assert_eq!(relay.redeem(hash).unwrap_err(), PickupRefusal::TokenUsed);
    relay.audit();
}

#[test]
fn refusals_come_in_their_order_and_change_nothing() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let notify = relay.notified(ws).pop().unwrap();
    let hash = relay.hash(ws, &notify);
    let before = relay.row(&key);
    // 401 before everything, 404 for what is unknown, 403 for another node's.
    let signed = relay.signed("n1", [9; 32]);
    assert_eq!(relay.redeem_as(signed, Some(hash), None).unwrap_err(), PickupRefusal::Unauthorized);
    let unknown = Sha256Digest([5; 32]);
    assert_eq!(relay.redeem(unknown).unwrap_err(), PickupRefusal::NotFound);
    let signed = relay.signed("n2", [2; 32]);
    assert_eq!(relay.redeem_as(signed, Some(hash), None).unwrap_err(), PickupRefusal::Forbidden);
    // A range behind the end leaves the token good; one at the end is fine.
    let signed = relay.signed("n1", KEY);
    assert_eq!(relay.redeem_as(signed, Some(hash), Some(8)).unwrap_err(), PickupRefusal::Range);
    assert_eq!(relay.row(&key), before);
    let signed = relay.signed("n1", KEY);
    let (conn, serve) = relay.redeem_as(signed, Some(hash), Some(7)).unwrap();
    // Used, whatever became of the shard, and of another node first of all.
    assert_eq!(relay.redeem(hash).unwrap_err(), PickupRefusal::TokenUsed);
    let signed = relay.signed("n2", [2; 32]);
    assert_eq!(relay.redeem_as(signed, Some(hash), None).unwrap_err(), PickupRefusal::Forbidden);
    relay.fetched(conn, serve.redemption, FetchEnd::Whole);
    relay.ack(ws, &key, serve.redemption, AckStatus::Verified).unwrap();
    relay.wait(Duration::from_secs(3600));
    assert_eq!(relay.redeem(hash).unwrap_err(), PickupRefusal::TokenUsed);
    relay.wait(Duration::from_secs(24 * 3600));
    assert_eq!(relay.redeem(hash).unwrap_err(), PickupRefusal::NotFound, "its row is gone");
    assert_eq!(relay.token(hash), None);
    relay.audit();
}

#[test]
fn an_unused_token_is_over_in_its_time_and_says_so_when_another_was_given() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let first = relay.notified(ws).pop().unwrap();
    let old = relay.hash(ws, &first);
    relay.wait(Duration::from_millis(299_999));
    assert_eq!(relay.notified(ws), []);
    relay.wait(Duration::from_millis(1));
    let second = relay.notified(ws).pop().expect("notified again");
    assert!(second.redemption > first.redemption);
    assert_eq!(relay.redeem(old).unwrap_err(), PickupRefusal::TokenExpired);
    let hash = relay.hash(ws, &second);
    relay.redeem(hash).unwrap();
    assert_eq!(relay.redeem(old).unwrap_err(), PickupRefusal::TokenExpired);
    assert_eq!(relay.status().unused, 1);
    relay.audit();
}

#[test]
fn a_newer_session_replaces_the_tokens_and_the_end_of_one_voids_none() {
    let mut relay = Relay::new();
    let (a, b) = (shard("a", 0), shard("a", 1));
    relay.put(&a, b"content");
    let ws = relay.node("n1", KEY);
    let notify = relay.notified(ws).pop().unwrap();
    let hash = relay.hash(ws, &notify);
    relay.close(ws);
    relay.site.settle();
    let (conn, _) = relay.redeem(hash).expect("the session's end voids no token");
    relay.close(conn);
    relay.put(&b, b"content");
    let ws = relay.node("n1", KEY);
    let notify = relay.notified(ws);
    assert_eq!(notify.len(), 2);
    let old: Vec<_> = notify.iter().map(|n| relay.hash(ws, n)).collect();
    // The newer one takes tokens when it registers, before it has notified of anything.
    relay.site.config.buffer.notify_window = 0;
    relay.node("n1", KEY);
    relay.site.settle();
    for hash in &old {
        assert_eq!(relay.redeem(*hash).unwrap_err(), PickupRefusal::NotFound);
    }
    // One that was over by then stays so.
    relay.audit();
}

#[test]
fn a_fetch_that_breaks_off_is_notified_again_at_once_unless_nothing_moved() {
    for (moved, wait) in [(1, 0), (0, 1_000)] {
        let mut relay = Relay::new();
        let key = shard("a", 0);
        relay.put(&key, b"content");
        let ws = relay.node("n1", KEY);
        let (conn, serve) = relay.pick_up(ws);
        relay.fetched(conn, serve.redemption, FetchEnd::Broken { moved });
        assert_eq!(relay.state(&key), Some(ShardState::RelayBuffered));
        let row = relay.row(&key).unwrap();
        assert_eq!((row.failed_acks, row.entries), (0, 2), "P2");
        if wait > 0 {
            assert_eq!(relay.notified(ws), []);
            relay.wait(Duration::from_millis(wait - 1));
            assert_eq!(relay.notified(ws), []);
            relay.wait(Duration::from_millis(1));
        }
        let (_, again) = relay.pick_up(ws);
        assert!(again.redemption > serve.redemption);
        relay.audit();
    }
}

#[test]
fn a_connection_that_ends_breaks_its_own_fetch_off_and_no_other() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let (old, first) = relay.pick_up(ws);
    relay.tell(old, Event::FetchMoved { redemption: first.redemption });
    relay.fetched(old, first.redemption, FetchEnd::Broken { moved: 3 });
    let (_, second) = relay.pick_up(ws);
    // P4: the old connection's end, and whatever it says, is not about the new fetch.
    relay.fetched(old, first.redemption, FetchEnd::Broken { moved: 3 });
    relay.close(old);
    relay.site.settle();
    assert_eq!(relay.state(&key), Some(ShardState::NodeReceiving));
    // Whole, and then the connection ends: that is no break.
    let conn = relay.site.client();
    relay.close(conn);
    relay.site.settle();
    relay.ack(ws, &key, second.redemption, AckStatus::Verified).unwrap();
    relay.put(&shard("b", 0), b"content");
    let (conn, serve) = relay.pick_up(ws);
    relay.fetched(conn, serve.redemption, FetchEnd::Whole);
    relay.close(conn);
    relay.site.settle();
    assert_eq!(relay.state(&shard("b", 0)), Some(ShardState::NodeReceiving));
    // Without a word it broke off.
    relay.put(&shard("c", 0), b"content");
    let (conn, _) = relay.pick_up(ws);
    relay.close(conn);
    relay.site.settle();
    assert_eq!(relay.state(&shard("c", 0)), Some(ShardState::RelayBuffered));
    assert_eq!(relay.status().broken, 2);
    relay.audit();
}

#[test]
fn silence_takes_the_shard_back_and_resets_the_connection() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let (conn, serve) = relay.pick_up(ws);
    // What the socket takes counts; what the WebSocket says does not.
    let mut written = std::collections::BTreeSet::new();
    for _ in 0..20 {
        relay.wait(Duration::from_secs(120));
        relay.tell(conn, Event::FetchMoved { redemption: serve.redemption });
        relay.site.settle();
        written.insert(relay.row(&key).unwrap().progress_at);
    }
    assert_eq!(relay.state(&key), Some(ShardState::NodeReceiving));
    assert!((6..=9).contains(&written.len()), "{}", written.len());
    relay.wait(Duration::from_secs(1799));
    assert_eq!(relay.state(&key), Some(ShardState::NodeReceiving));
    relay.wait(Duration::from_secs(1));
    assert_eq!(relay.state(&key), Some(ShardState::RelayBuffered));
    let reset = Command::ResetFetch { redemption: serve.redemption };
    assert_eq!(relay.said(conn), [Said::Command(reset)]);
    let late = relay.ack(ws, &key, serve.redemption, AckStatus::Verified);
    assert_eq!(late, Err(PickupRefusal::StaleAck), "P1");
    let (_, again) = relay.pick_up(ws);
    relay.close(conn);
    relay.site.settle();
    assert_eq!(relay.state(&key), Some(ShardState::NodeReceiving));
    relay.ack(ws, &key, again.redemption, AckStatus::Verified).unwrap();
    relay.audit();
}

#[test]
fn content_that_cannot_be_read_is_told_and_never_given_up() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let (conn, serve) = relay.pick_up(ws);
    let end = FetchEnd::Unreadable(StoreFault::Corrupt("another digest".into()));
    relay.fetched(conn, serve.redemption, end);
    assert_eq!(relay.state(&key), Some(ShardState::RelayBuffered));
    let told = |note: &Note| matches!(note, Note::Warn { code: "shard_unreadable", .. });
    assert!(relay.site.notes.iter().any(told));
    let reason = relay.row(&key).unwrap().reason;
    assert_eq!(reason, "not readable at the relay: corrupt: another digest");
    relay.audit();
}

#[test]
fn a_token_of_another_generation_is_no_token() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"one");
    let ws = relay.node("n1", KEY);
    let notify = relay.notified(ws).pop().unwrap();
    let hash = relay.hash(ws, &notify);
    relay.act(OperatorAct::AbandonShard { shard: key.clone() }).unwrap();
    assert_eq!(relay.redeem(hash).unwrap_err(), PickupRefusal::TokenUsed);
    relay.put(&key, b"two");
    assert_eq!(relay.redeem(hash).unwrap_err(), PickupRefusal::NotFound);
    let (_, serve) = relay.pick_up(ws);
    let late = relay.ack(ws, &key, notify.redemption, AckStatus::Verified);
    assert_eq!(late, Err(PickupRefusal::StaleAck));
    relay.ack(ws, &key, serve.redemption, AckStatus::Verified).unwrap();
    relay.audit();
}
