//! What operators do, and that it is recorded.

use std::time::Duration;

use consign_core::id::Sha256Digest;
use consign_core::ledger::Table;
use consign_core::ledger::rows_pickup::{AckStatus, ShardState};
use consign_core::ledger::rows_upkeep::AuditRow;
use consign_core::ledger::{codec, keys};
use consign_core::pickup::{Command, OperatorAct, PickupRefusal};
use consign_core::store::Snapshot;

use crate::relay::{KEY, Relay, Said, shard, token_of};

fn audit(relay: &Relay) -> Vec<AuditRow> {
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        assert!(keys::parse_u64(key).is_some());
        rows.push(codec::decode(Table::Audit, key, value).unwrap());
        true
    };
    relay.site.store.ledger().scan(Table::Audit, &[], &mut visit).unwrap();
    rows
}

#[test]
fn nodes_have_two_keys_and_come_back_with_one() {
    let mut relay = Relay::new();
    let enrol = |key: u8| OperatorAct::EnrolNode { id: "n1".into(), key: [key; 32] };
    assert_eq!(relay.act(enrol(1)), Ok(false), "the same key");
    assert_eq!(relay.act(enrol(7)), Ok(true));
    assert_eq!(relay.act(enrol(8)), Err(PickupRefusal::TooManyKeys));
    let revoke = |key| OperatorAct::RevokeNode { id: "n1".into(), key };
    assert_eq!(relay.act(revoke(Some([8; 32]))), Err(PickupRefusal::NotFound));
    assert_eq!(relay.act(revoke(Some([1; 32]))), Ok(true));
    assert_eq!(relay.act(enrol(8)), Ok(true));
    assert_eq!(relay.act(revoke(None)), Ok(true));
    assert_eq!(relay.act(revoke(None)), Ok(false));
    assert_eq!(relay.act(enrol(9)), Ok(true));
    let row = relay.node_row("n1").unwrap();
    assert_eq!((row.keys.len(), row.revoked_at), (1, None));
    // The last key is the node.
    assert_eq!(relay.act(revoke(Some([9; 32]))), Ok(true));
    assert!(relay.node_row("n1").unwrap().revoked_at.is_some());
    let unknown = OperatorAct::RevokeNode { id: "n9".into(), key: None };
    assert_eq!(relay.act(unknown), Err(PickupRefusal::UnknownNode));
    let bad = OperatorAct::EnrolNode { id: "../n".into(), key: KEY };
    assert_eq!(relay.act(bad), Err(PickupRefusal::Conflict));
    let last = audit(&relay).pop().unwrap();
    assert_eq!((last.who.as_str(), last.action.as_str()), ("uid:1000", "pickup_revoke_node"));
    assert_eq!((last.subject.as_str(), last.reason.as_str()), ("n1", "test"));
    relay.audit();
}

#[test]
fn clients_have_one_token_of_their_own_and_keep_it_across_starts() {
    let mut relay = Relay::new();
    let enrol = |name: &str, token| OperatorAct::EnrolClient { name: name.into(), token };
    assert_eq!(relay.act(enrol("bob", token_of("cam"))), Err(PickupRefusal::Conflict));
    assert_eq!(relay.act(enrol("cam", Sha256Digest([4; 32]))), Ok(true));
    let mut relay = relay.restart();
    relay.site.settle();
    let ask = relay.ask_of(&shard("a", 0), Some(100_000));
    assert_eq!(relay.begin(ask.clone()).unwrap_err(), PickupRefusal::Unauthorized);
    let mut good = ask;
    good.client = Some(Sha256Digest([4; 32]));
    relay.begin(good.clone()).unwrap();
    assert_eq!(relay.act(OperatorAct::RevokeClient { name: "cam".into() }), Ok(true));
    assert_eq!(relay.act(OperatorAct::RevokeClient { name: "cam".into() }), Ok(false));
    let none = OperatorAct::RevokeClient { name: "nobody".into() };
    assert_eq!(relay.act(none), Err(PickupRefusal::NotFound));
    good.shard = shard("b", 0);
    assert_eq!(relay.begin(good).unwrap_err(), PickupRefusal::Unauthorized);
    assert_eq!(relay.status().clients, 1);
    relay.audit();
}

#[test]
fn a_retry_forgives_and_notifies_at_once() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let retry = || OperatorAct::RetryShard { shard: shard("a", 0) };
    assert_eq!(relay.act(retry()), Err(PickupRefusal::NotFound));
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let (_, serve) = relay.pick_up(ws);
    assert_eq!(relay.act(retry()), Err(PickupRefusal::InTransit));
    relay.ack(ws, &key, serve.redemption, AckStatus::Failed).unwrap();
    assert_eq!(relay.notified(ws), []);
    assert_eq!(relay.act(retry()), Ok(true));
    let notify = relay.notified(ws).pop().expect("at once");
    assert_eq!(relay.row(&key).unwrap().failed_acks, 0);
    // Once more while it is notified: the token that is out is replaced.
    let old = relay.hash(ws, &notify);
    assert_eq!(relay.act(retry()), Ok(true));
    let (_, serve) = relay.pick_up(ws);
    assert_eq!(relay.redeem(old).unwrap_err(), PickupRefusal::NotFound);
    relay.wait(Duration::from_secs(600));
    assert_eq!(relay.redeem(old).unwrap_err(), PickupRefusal::NotFound, "not 410 later");
    relay.ack(ws, &key, serve.redemption, AckStatus::Verified).unwrap();
    assert_eq!(relay.act(retry()), Err(PickupRefusal::Conflict));
    relay.audit();
}

#[test]
fn what_is_abandoned_is_gone_in_every_state_that_waits_for_nobody() {
    let mut relay = Relay::new();
    let abandon = |i| OperatorAct::AbandonShard { shard: shard("a", i) };
    relay.slot(&shard("a", 0), "cam", 500).unwrap();
    let ask = relay.ask_of(&shard("a", 1), Some(100_000));
    let writer = relay.begin(ask).unwrap();
    relay.write(&writer, &[1; 5000]);
    relay.put_file(&shard("a", 2), &[2; 100_000]);
    for i in 0..3 {
        assert_eq!(relay.act(abandon(i)), Ok(true));
        assert_eq!(relay.act(abandon(i)), Ok(false));
        assert_eq!(relay.state(&shard("a", i)), Some(ShardState::RelayCleanup));
    }
    let said = relay.said(writer.conn);
    let conflict = PickupRefusal::Conflict;
    assert!(
        matches!(&said[..], [Said::Command(Command::Refuse { refusal, .. })] if *refusal == conflict)
    );
    assert_eq!(relay.whole(&writer, &[1; 100_000]), Err(PickupRefusal::Conflict));
    relay.site.settle();
    assert_eq!((relay.used(), relay.site.store.files().count()), (0, 0));
    assert_eq!(relay.act(abandon(9)), Err(PickupRefusal::NotFound));
    assert_eq!(audit(&relay).iter().filter(|row| row.action == "pickup_abandon").count(), 3);
    relay.audit();
}
