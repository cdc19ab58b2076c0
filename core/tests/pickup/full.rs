//! A full disk: growth is refused, relief is not lost.

use std::time::Duration;

use consign_core::ledger::Table;
use consign_core::ledger::rows_pickup::{AckStatus, ShardState};
use consign_core::pickup::{
    Answer, BrokenUpload, Command, Event, FetchAsk, FetchEnd, OperatorAct, PickupRefusal,
};
use consign_core::store::CommitFault;

use crate::relay::{KEY, MIB, Relay, Said, shard};

fn fails(relay: &mut Relay) {
    relay.site.store.fail_commit(1, CommitFault::Full("no space left".into()));
}

/// Space is there again as far as the node has looked.
fn room_again(relay: &mut Relay) {
    for _ in 0..20 {
        relay.wait(Duration::from_secs(1));
    }
    assert!(!relay.site.pump.node().status(relay.site.now).full);
}

#[test]
fn growth_is_refused_and_leaves_nothing() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let conn = relay.site.client();
    fails(&mut relay);
    let ask = relay.small(conn, &key, b"content");
    assert_eq!(relay.upload_on(conn, ask), Err(PickupRefusal::DiskFull));
    room_again(&mut relay);
    fails(&mut relay);
    let ask = relay.ask_of(&key, Some(MIB));
    assert_eq!(relay.begin(ask).unwrap_err(), PickupRefusal::DiskFull);
    room_again(&mut relay);
    fails(&mut relay);
    assert_eq!(relay.slot(&key, "cam", 100), Err(PickupRefusal::DiskFull));
    room_again(&mut relay);
    for act in [
        OperatorAct::EnrolNode { id: "n7".into(), key: [7; 32] },
        OperatorAct::EnrolClient { name: "bob".into(), token: crate::relay::token_of("bob") },
    ] {
        fails(&mut relay);
        assert_eq!(relay.act(act), Err(PickupRefusal::DiskFull));
        room_again(&mut relay);
    }
    let mut bob = relay.ask_of(&key, Some(MIB));
    bob.client = Some(crate::relay::token_of("bob"));
    assert_eq!(relay.begin(bob).unwrap_err(), PickupRefusal::Unauthorized);
    assert_eq!((relay.used(), relay.site.store.rows(Table::Shards)), (0, 0));
    assert_eq!((relay.site.store.parked(), relay.site.store.files().count()), (0, 0));
    // Nothing stands in the way of the next.
    relay.put_file(&key, &[1; 100_000]);
    relay.audit();
}

#[test]
fn an_upload_whose_last_commit_fails_goes_on_where_it_was() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let ask = relay.ask_of(&key, Some(100_000));
    let writer = relay.begin(ask.clone()).unwrap();
    relay.write(&writer, &[1; 100_000]);
    fails(&mut relay);
    assert_eq!(relay.whole(&writer, &[1; 100_000]), Err(PickupRefusal::DiskFull));
    room_again(&mut relay);
    assert_eq!(relay.head(&key, "cam"), Ok((0, false, ShardState::Uploading)));
    relay.audit();
    let writer = relay.begin(ask).unwrap();
    relay.write(&writer, &[1; 100_000]);
    assert!(relay.whole(&writer, &[1; 100_000]).unwrap().0);
    relay.site.settle();
    assert_eq!(relay.used(), 100_000);
    relay.audit();
}

#[test]
fn a_redemption_whose_commit_fails_is_judged_again_and_served() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let notify = relay.notified(ws).pop().unwrap();
    let hash = relay.hash(ws, &notify);
    fails(&mut relay);
    let (conn, serve) = relay.redeem(hash).unwrap();
    assert_eq!(relay.redeem(hash).unwrap_err(), PickupRefusal::TokenUsed);
    assert_eq!(relay.state(&key), Some(ShardState::NodeReceiving));
    // An ack, and a fetch that breaks off.
    fails(&mut relay);
    relay.fetched(conn, serve.redemption, FetchEnd::Broken { moved: 4 });
    assert_eq!(relay.state(&key), Some(ShardState::RelayBuffered));
    let (_, serve) = relay.pick_up(ws);
    for status in [AckStatus::Failed, AckStatus::Verified] {
        fails(&mut relay);
        let redemption = match status {
            AckStatus::Failed => serve.redemption,
            AckStatus::Verified => {
                relay.wait(Duration::from_secs(1));
                relay.pick_up(ws).1.redemption
            }
        };
        relay.ack(ws, &key, redemption, status).unwrap();
    }
    assert_eq!(relay.state(&key), Some(ShardState::NodeStored));
    assert_eq!(relay.row(&key).unwrap().failed_acks, 1);
    room_again(&mut relay);
    assert_eq!(relay.used(), 0);
    relay.audit();
}

#[test]
fn a_refusal_whose_nonce_finds_no_space_spends_it_all_the_same() {
    let mut relay = Relay::new();
    fails(&mut relay);
    let signed = relay.signed("n1", KEY);
    assert_eq!(relay.redeem_as(signed.clone(), None, None).unwrap_err(), PickupRefusal::NotFound);
    room_again(&mut relay);
    assert_eq!(relay.site.store.rows(Table::Nonces), 1);
    assert_eq!(relay.redeem_as(signed, None, None).unwrap_err(), PickupRefusal::Unauthorized);
    relay.audit();
}

#[test]
fn sessions_and_notifications_come_through() {
    let mut relay = Relay::new();
    relay.put(&shard("a", 0), b"content");
    fails(&mut relay);
    let ws = relay.subscribe("n1", KEY);
    fails(&mut relay);
    relay.register(ws);
    relay.site.settle();
    let said = relay.said(ws);
    let registered = |s: &Said| matches!(s, Said::Answer(Answer::Registered { .. }));
    let notified = |s: &Said| matches!(s, Said::Answer(Answer::Notify(_)));
    assert!(said.iter().filter(|s| registered(s)).count() == 1, "{said:?}");
    assert!(said.iter().filter(|s| notified(s)).count() == 1, "{said:?}");
    let Some(Said::Answer(Answer::Notify(notify))) = said.into_iter().find(notified) else {
        panic!()
    };
    assert!(relay.token(relay.hash(ws, &notify)).is_some());
    relay.put(&shard("b", 0), b"content");
    fails(&mut relay);
    // The mint of the second alone fails, and is made again with the token it had.
    let again = relay.notified(ws);
    assert_eq!(again.len(), 1);
    assert_eq!(relay.token(relay.hash(ws, &again[0])).unwrap().redemption, again[0].redemption);
    relay.audit();
}

#[test]
fn a_discard_a_revocation_and_a_sweep_are_not_lost() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let ask = relay.ask_of(&key, Some(100_000));
    let writer = relay.begin(ask).unwrap();
    let (ticket, blob) = (writer.ticket, writer.blob);
    fails(&mut relay);
    let why = BrokenUpload::Mismatch;
    let told = relay.call(writer.conn, Event::Broken { ticket, blob, why });
    assert_eq!(told, Err(PickupRefusal::DigestMismatch));
    assert_eq!(relay.state(&key), None);
    fails(&mut relay);
    relay.act(OperatorAct::RevokeNode { id: "n2".into(), key: None }).unwrap();
    assert!(relay.node_row("n2").unwrap().revoked_at.is_some());
    fails(&mut relay);
    relay.act(OperatorAct::RevokeClient { name: "eve".into() }).unwrap();
    room_again(&mut relay);
    relay.slot(&shard("s", 0), "cam", 100).unwrap();
    fails(&mut relay);
    relay.wait(Duration::from_secs(3600));
    assert_eq!(relay.state(&shard("s", 0)), Some(ShardState::RelayCleanup));
    room_again(&mut relay);
    assert_eq!(relay.used(), 0);
    relay.audit();
}

#[test]
fn while_space_is_short_fetches_and_acks_go_on() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put_file(&key, &[1; 100_000]);
    let ws = relay.node("n1", KEY);
    let notify = relay.notified(ws).pop().unwrap();
    let hash = relay.hash(ws, &notify);
    relay.site.store.set_ballast(64 * MIB, true);
    relay.site.store.set_capacity(1 << 30);
    let taken = relay.site.store.space().ledger + 100_000 + 64 * MIB;
    relay.site.store.set_outside((1 << 30) - taken);
    let conn = relay.site.client();
    let ask = relay.small(conn, &shard("b", 0), b"content");
    assert_eq!(relay.upload_on(conn, ask), Err(PickupRefusal::DiskFull));
    let fetch = relay.site.client();
    let (ticket, signed) = (relay.ticket(), relay.signed("n1", KEY));
    let ask = Box::new(FetchAsk { signed, token: Some(hash), from: None });
    relay.tell(fetch, Event::Fetch { ticket, ask });
    for _ in 0..5 {
        relay.wait(Duration::from_secs(1));
    }
    let said = relay.said(fetch);
    let [Said::Answer(Answer::Serve { serve, .. })] = &said[..] else {
        let refused = matches!(said[..], [Said::Command(Command::Refuse { .. })]);
        panic!("{refused} {said:?}")
    };
    let redemption = serve.redemption;
    relay.ack(ws, &key, redemption, AckStatus::Verified).unwrap();
    relay.site.store.set_outside(0);
    relay.site.store.set_capacity(1 << 40);
    room_again(&mut relay);
    assert_eq!(relay.state(&key), Some(ShardState::NodeStored));
    assert_eq!(relay.used(), 0);
    relay.audit();
}
