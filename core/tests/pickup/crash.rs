//! The process dies at every step of an upload, a fetch and an ack; what was told stays true.

use consign_core::ledger::Table;
use consign_core::ledger::rows_pickup::{AckStatus, ShardState};
use consign_core::pickup::{AckAsk, Answer, Event, FetchAsk, PickupRefusal};

use crate::relay::{KEY, Relay, Said, shard};

/// Goes so many half steps further: a turn, then its commit.
fn go(relay: &mut Relay, steps: u32) {
    for step in 0..steps {
        if step % 2 == 0 {
            relay.site.turn();
        } else {
            relay.site.commit();
        }
    }
}

/// As long as there is something to do.
const STEPS: u32 = 16;

#[test]
fn an_upload_is_there_if_it_was_told_so() {
    for steps in 0..STEPS {
        let mut relay = Relay::new();
        let key = shard("a", 0);
        let conn = relay.site.client();
        let ticket = relay.ticket();
        let ask = Box::new(relay.small(conn, &key, b"content"));
        relay.tell(conn, Event::Upload { ticket, ask });
        go(&mut relay, steps);
        let told = !relay.said(conn).is_empty();
        let mut relay = relay.restart();
        relay.site.settle();
        let there = relay.state(&key) == Some(ShardState::RelayBuffered);
        assert!(there || !told, "after {steps}");
        relay.audit();
        let conn = relay.site.client();
        let ask = relay.small(conn, &key, b"content");
        assert_eq!(relay.upload_on(conn, ask).unwrap().0, !there);
        relay.audit();
    }
}

#[test]
fn an_upload_to_a_file_leaves_no_file_without_a_row() {
    for steps in 0..2 * STEPS {
        let mut relay = Relay::new();
        let key = shard("a", 0);
        let ask = relay.ask_of(&key, Some(100_000));
        let conn = relay.site.client();
        let ticket = relay.ticket();
        relay.tell(conn, Event::Upload { ticket, ask: Box::new(ask.clone()) });
        go(&mut relay, steps.min(STEPS));
        let mut whole = false;
        for said in relay.said(conn) {
            let Said::Answer(Answer::Granted { blob, .. }) = said else { panic!("{said:?}") };
            let writer = crate::relay::Writer { conn, ticket, blob, offset: 0, reserved: 0 };
            let create = consign_core::store::StoreRequest::Create { blob, offset: 0 };
            relay.site.store.request(conn, create);
            relay.write(&writer, &[1; 100_000]);
            let finish = consign_core::store::StoreRequest::Finish { blob };
            relay.site.store.request(conn, finish);
            let (sha256, blake3) = crate::relay::digests(&[1; 100_000]);
            relay.tell(conn, Event::Whole { ticket, blob, size: 100_000, sha256, blake3 });
            go(&mut relay, steps.saturating_sub(STEPS));
            let answers = relay.said(conn);
            whole = answers.iter().any(|s| matches!(s, Said::Answer(Answer::Buffered { .. })));
        }
        let mut relay = relay.restart();
        relay.site.settle();
        relay.audit();
        let state = relay.state(&key);
        assert!(!whole || state == Some(ShardState::RelayBuffered), "after {steps}: {state:?}");
        if state != Some(ShardState::RelayBuffered) {
            let writer = relay.begin(ask).unwrap();
            relay.write(&writer, &[1; 100_000]);
            relay.whole(&writer, &[1; 100_000]).unwrap();
            relay.site.settle();
        }
        assert_eq!((relay.used(), relay.site.store.files().count()), (100_000, 1));
        relay.audit();
    }
}

#[test]
fn a_token_is_good_once_wherever_the_crash_falls() {
    for steps in 0..STEPS {
        let mut relay = Relay::new();
        let key = shard("a", 0);
        relay.put(&key, b"content");
        let ws = relay.node("n1", KEY);
        let notify = relay.notified(ws).pop().unwrap();
        let hash = relay.hash(ws, &notify);
        let conn = relay.site.client();
        let (ticket, signed) = (relay.ticket(), relay.signed("n1", KEY));
        let ask = Box::new(FetchAsk { signed: signed.clone(), token: Some(hash), from: None });
        relay.tell(conn, Event::Fetch { ticket, ask });
        go(&mut relay, steps);
        let served = !relay.said(conn).is_empty();
        let mut relay = relay.restart();
        relay.site.settle();
        let receiving = relay.state(&key) == Some(ShardState::NodeReceiving);
        assert!(receiving || !served, "after {steps}");
        relay.audit();
        let again = relay.redeem(hash);
        match receiving {
            true => assert_eq!(again.unwrap_err(), PickupRefusal::TokenUsed),
            false => assert_eq!(again.unwrap().1.redemption, notify.redemption),
        }
        // The very same request is never taken twice once its nonce is durable.
        if receiving {
            let replay = relay.redeem_as(signed, Some(hash), None);
            assert_eq!(replay.unwrap_err(), PickupRefusal::Unauthorized);
        }
        // Numbers go on where they were.
        relay.put(&shard("b", 0), b"content");
        let ws = relay.node("n1", KEY);
        let next = relay.notified(ws).pop().unwrap();
        assert!(next.redemption > notify.redemption);
        relay.audit();
    }
}

#[test]
fn an_ack_that_was_answered_is_durable_and_one_that_was_not_can_be_repeated() {
    for status in [AckStatus::Verified, AckStatus::Failed] {
        for steps in 0..STEPS {
            let mut relay = Relay::new();
            let key = shard("a", 0);
            relay.put_file(&key, &[1; 100_000]);
            let ws = relay.node("n1", KEY);
            let (_, serve) = relay.pick_up(ws);
            let (shard, redemption) = (key.clone(), serve.redemption);
            let ack = AckAsk { shard, redemption, status, reason: String::new() };
            relay.tell(ws, Event::Ack(Box::new(ack)));
            go(&mut relay, steps);
            let answered = !relay.said(ws).is_empty();
            let mut relay = relay.restart();
            relay.site.settle();
            relay.audit();
            let after = match status {
                AckStatus::Verified => ShardState::NodeStored,
                AckStatus::Failed => ShardState::RelayBuffered,
            };
            assert!(!answered || relay.state(&key) == Some(after), "after {steps}");
            let ws = relay.subscribe("n1", KEY);
            let again = relay.ack(ws, &key, serve.redemption, status);
            assert_eq!(again, Ok(after), "after {steps}");
            relay.site.settle();
            let kept = u64::from(status == AckStatus::Failed) * 100_000;
            assert_eq!(relay.used(), kept);
            assert_eq!(relay.site.store.rows(Table::Doomed), 0);
            relay.audit();
        }
    }
}

#[test]
fn a_node_starts_over_and_over_and_changes_nothing_more() {
    let mut relay = Relay::new();
    relay.put(&shard("a", 0), b"content");
    relay.slot(&shard("s", 0), "cam", 100).unwrap();
    let ask = relay.ask_of(&shard("p", 0), Some(100_000));
    let writer = relay.begin(ask).unwrap();
    relay.cut(&writer, 30_000).unwrap();
    for steps in 0..6 {
        go(&mut relay, steps);
        relay = relay.restart();
    }
    relay.site.settle();
    assert_eq!(relay.head(&shard("p", 0), "cam"), Ok((30_000, false, ShardState::Uploading)));
    assert_eq!(relay.status().shards.map(|row| row.count), [1, 1, 1, 0, 0, 0, 0]);
    relay.audit();
}
