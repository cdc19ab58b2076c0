//! Content of shards that is not what was uploaded: found, set aside alone, never given out whole again,
//! and brought anew.

use std::time::Duration;

use consign_core::id::{BatchNo, BlobNo};
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows::{Body, Loss, MetaName, MetaRow, PlaceRow};
use consign_core::ledger::rows_pickup::{AckStatus, ShardState};
use consign_core::ledger::rows_upkeep::AuditRow;
use consign_core::ledger::{Table, codec, keys};
use consign_core::node::Note;
use consign_core::pickup::{Answer, Event, FetchEnd, PickupRefusal};
use consign_core::store::{Batch, CommitFault, Snapshot, StoreFault};

use crate::relay::{KEY, Relay, shard, token_of};

const DAY: Duration = Duration::from_secs(25 * 3600);

fn blob_of(relay: &Relay, key: &ShardKey) -> BlobNo {
    match relay.row(key).unwrap().buffer {
        Some(Body::Blob(blob)) => blob,
        other => panic!("in a file: {other:?}"),
    }
}

/// Another byte somewhere in the content.
fn rot(relay: &mut Relay, key: &ShardKey) {
    match relay.row(key).unwrap().buffer.unwrap() {
        Body::Inline(body) => {
            assert!(relay.site.store.flip(Table::Bodies, &keys::body(body), 2));
        }
        Body::Blob(blob) => {
            let size = relay.row(key).unwrap().size.unwrap();
            relay.site.store.plant_file(blob, &vec![9; size as usize]);
        }
    }
}

/// What `HEAD` tells its client: the state, and what was found wrong.
fn head(relay: &mut Relay, key: &ShardKey) -> (ShardState, Option<Loss>) {
    let (conn, ticket) = (relay.site.client(), relay.ticket());
    let client = Some(token_of("cam"));
    match relay.call(conn, Event::Head { ticket, shard: key.clone(), client }) {
        Ok(Answer::Offset { state, loss, .. }) => (state, loss),
        other => panic!("{other:?}"),
    }
}

fn warnings(relay: &Relay) -> usize {
    let told = |note: &&Note| matches!(note, Note::Warn { code: "shard_spoiled", .. });
    relay.site.notes.iter().filter(told).count()
}

/// Acts of that name in `audit`: subject and reason.
fn audited(relay: &Relay, action: &str) -> Vec<(String, String)> {
    let mut acts = Vec::new();
    for nth in 0..relay.site.store.rows(Table::Audit) {
        let key = relay.site.store.nth_key(Table::Audit, nth).unwrap().to_vec();
        let value = relay.site.store.ledger().get(Table::Audit, &key).unwrap().unwrap();
        let row: AuditRow = codec::decode(Table::Audit, &key, value).unwrap();
        if row.action == action {
            acts.push((row.subject, row.reason));
        }
    }
    acts
}

fn spoiled(relay: &Relay) -> [u64; 2] {
    relay.site.pump.node().status(relay.site.now).tallied.spoiled
}

#[test]
fn a_flipped_bit_costs_its_shard_and_nobody_else() {
    let mut relay = Relay::new();
    let keys = [shard("a", 0), shard("b", 0), shard("c", 0), shard("d", 0)];
    relay.put_file(&keys[0], &[1; 80_000]);
    relay.put_file(&keys[1], &[2; 80_000]);
    relay.put(&keys[2], b"content");
    relay.put(&keys[3], b"another");
    relay.wait(DAY);
    assert_eq!(spoiled(&relay), [0, 0]);
    let items = relay.site.pump.node().status(relay.site.now).scrub.items;
    assert!(items >= 4, "{items}");
    let blob = blob_of(&relay, &keys[1]);
    rot(&mut relay, &keys[1]);
    rot(&mut relay, &keys[2]);
    relay.wait(DAY);
    for (key, bad) in keys.iter().zip([false, true, true, false]) {
        let row = relay.row(key).unwrap();
        let want = match bad {
            true => (ShardState::RelayCleanup, Some(Loss::Doubted), None, "corrupt"),
            false => (ShardState::RelayBuffered, None, row.buffer, ""),
        };
        assert_eq!((row.state, row.loss, row.buffer, row.reason.as_str()), want, "{key:?}");
    }
    assert_eq!(head(&mut relay, &keys[1]), (ShardState::RelayCleanup, Some(Loss::Doubted)));
    assert_eq!(head(&mut relay, &keys[0]), (ShardState::RelayBuffered, None));
    assert_eq!((spoiled(&relay), warnings(&relay)), ([2, 0], 2));
    let act = |file: &str| (format!("{file} version 1 shard 0 for n1"), "corrupt".to_string());
    assert_eq!(audited(&relay, "pickup_spoiled"), [act("b"), act("c")]);
    // Its file is in the quarantine, and nothing is charged for it.
    assert_eq!(relay.site.store.quarantined(), [blob]);
    assert_eq!(relay.site.store.rows(Table::Doomed), 0);
    relay.audit();
    // Its node hears of the others alone.
    let ws = relay.node("n1", KEY);
    let told: Vec<ShardKey> = relay.notified(ws).into_iter().map(|n| n.shard).collect();
    assert_eq!(told, [keys[0].clone(), keys[3].clone()]);
    // Once is enough.
    relay.wait(DAY);
    assert_eq!(spoiled(&relay), [2, 0]);
}

#[test]
fn an_upload_brings_it_anew_and_the_next_generation_is_picked_up() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put_file(&key, &[1; 80_000]);
    relay.wait(DAY);
    rot(&mut relay, &key);
    relay.wait(DAY);
    assert_eq!(relay.state(&key), Some(ShardState::RelayCleanup));
    relay.put_file(&key, &[1; 80_000]);
    let row = relay.row(&key).unwrap();
    assert_eq!((row.generation, row.state, row.loss), (1, ShardState::RelayBuffered, None));
    let ws = relay.node("n1", KEY);
    let (_, serve) = relay.pick_up(ws);
    relay.ack(ws, &key, serve.redemption, AckStatus::Verified).unwrap();
    assert_eq!(head(&mut relay, &key), (ShardState::NodeStored, None));
    relay.audit();
}

#[test]
fn a_file_that_is_gone_is_missing() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put_file(&key, &[1; 80_000]);
    let blob = blob_of(&relay, &key);
    assert!(relay.site.store.lose_file(blob));
    relay.wait(DAY);
    let row = relay.row(&key).unwrap();
    let found = (row.state, row.loss, row.reason.as_str());
    assert_eq!(found, (ShardState::RelayCleanup, Some(Loss::Gone), "missing"));
    assert_eq!(spoiled(&relay), [0, 1]);
    assert_eq!(relay.site.store.quarantined(), []);
    relay.audit();
}

/// A fetch whose content is not what it should be.
fn unreadable(relay: &mut Relay, ws: consign_core::id::ConnId) {
    let (conn, serve) = relay.pick_up(ws);
    let end = FetchEnd::Unreadable(StoreFault::Corrupt("another digest".into()));
    relay.fetched(conn, serve.redemption, end);
    relay.site.settle();
}

#[test]
fn a_fetch_that_finds_it_wrong_has_it_looked_at_at_once() {
    let mut relay = Relay::new();
    let (key, other) = (shard("a", 0), shard("b", 0));
    relay.put_file(&key, &[1; 80_000]);
    let ws = relay.node("n1", KEY);
    rot(&mut relay, &key);
    let before = relay.site.now;
    unreadable(&mut relay, ws);
    assert_eq!(relay.site.now, before, "no time has passed");
    assert_eq!(head(&mut relay, &key), (ShardState::RelayCleanup, Some(Loss::Doubted)));
    assert_eq!((relay.notified(ws).len(), warnings(&relay)), (0, 1));
    // A reading that was wrong where the disk is right costs nothing but time.
    relay.put_file(&other, &[2; 80_000]);
    unreadable(&mut relay, ws);
    assert_eq!(head(&mut relay, &other), (ShardState::RelayBuffered, None));
    relay.wait(Duration::from_secs(3600));
    let (_, serve) = relay.pick_up(ws);
    relay.ack(ws, &other, serve.redemption, AckStatus::Verified).unwrap();
    relay.audit();
}

#[test]
fn in_transit_the_node_has_the_last_word() {
    let mut relay = Relay::new();
    let (kept, lost) = (shard("a", 0), shard("b", 0));
    relay.put_file(&kept, &[1; 80_000]);
    let ws = relay.node("n1", KEY);
    let (_, one) = relay.pick_up(ws);
    relay.put_file(&lost, &[2; 80_000]);
    let (conn, _) = relay.pick_up(ws);
    rot(&mut relay, &kept);
    rot(&mut relay, &lost);
    // A pass comes by while both are fetched.
    let moves = |relay: &mut Relay, redemption| {
        relay.tell(conn, Event::FetchMoved { redemption });
        relay.site.settle();
    };
    let two = relay.row(&lost).unwrap().redemption;
    let fetcher = one.redemption;
    for _ in 0..75 {
        relay.wait(Duration::from_secs(20 * 60));
        moves(&mut relay, two);
        relay.site.settle();
        if relay.site.pump.node().status(relay.site.now).scrub.last == Some(relay.site.now.wall) {
            break;
        }
    }
    // The first was silent meanwhile: what was doubted is judged when it comes back.
    assert_eq!(relay.state(&lost), Some(ShardState::NodeReceiving));
    assert_eq!(relay.state(&kept), Some(ShardState::RelayCleanup));
    let late = relay.ack(ws, &kept, fetcher, AckStatus::Verified);
    assert_eq!(late, Err(PickupRefusal::StaleAck));
    // The second has it whole all the same.
    assert_eq!(relay.ack(ws, &lost, two, AckStatus::Verified), Ok(ShardState::NodeStored));
    assert_eq!(spoiled(&relay), [1, 0]);
    relay.audit();
}

#[test]
fn what_was_given_up_in_a_commit_that_failed_is_given_up_after_it() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put_file(&key, &[1; 80_000]);
    relay.wait(DAY);
    rot(&mut relay, &key);
    relay.site.store.fail_commit(1, CommitFault::Full("no space left".into()));
    relay.wait(DAY);
    relay.wait(Duration::from_secs(60));
    assert_eq!(head(&mut relay, &key), (ShardState::RelayCleanup, Some(Loss::Doubted)));
    assert_eq!((spoiled(&relay), warnings(&relay)), ([1, 0], 1));
    relay.audit();
}

#[test]
fn a_start_sets_aside_what_was_doomed_before_it() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put_file(&key, &[1; 80_000]);
    let blob = blob_of(&relay, &key);
    relay.wait(DAY);
    rot(&mut relay, &key);
    // A row that says so survives the power, and the file goes aside after the next start.
    relay.wait(DAY - Duration::from_secs(3600));
    let mut relay = relay.restart();
    relay.site.settle();
    relay.wait(DAY);
    assert_eq!(relay.state(&key), Some(ShardState::RelayCleanup));
    assert_eq!(relay.site.store.quarantined(), [blob]);
    assert_eq!(relay.site.store.rows(Table::Doomed), 0);
    relay.audit();
}

/// Where the scrub is among shards, as it is written down.
fn place(relay: &Relay) -> Option<PlaceRow> {
    let ledger = relay.site.store.ledger();
    let value = ledger.get(Table::Meta, MetaName::ScrubShard.key()).unwrap()?;
    Some(codec::decode(Table::Meta, MetaName::ScrubShard.key(), value).unwrap())
}

#[test]
fn a_start_in_the_middle_of_shards_goes_on_where_the_last_run_was() {
    let mut relay = Relay::new();
    for i in 0..200 {
        relay.put(&shard("many", i), format!("content {i}").as_bytes());
    }
    relay.wait(DAY);
    assert_eq!(place(&relay), None, "a short pass is not worth a row");
    let number =
        relay.site.store.ledger().get(Table::Meta, MetaName::Batch.key()).unwrap().unwrap();
    let number: MetaRow = codec::decode(Table::Meta, MetaName::Batch.key(), number).unwrap();
    // As if the power had gone behind the 150th.
    let mut batch = Batch::new(BatchNo(number.value + 1));
    let meta = |name, value| (name, MetaRow { value });
    for (name, row) in
        [meta(MetaName::Batch, number.value + 1), meta(MetaName::ScrubNext, u64::MAX)]
    {
        batch.put(Table::Meta, MetaName::key(name), &row);
    }
    let key = shard("many", 149).key().to_vec();
    batch.put(Table::Meta, MetaName::ScrubShard.key(), &PlaceRow { value: 1, key });
    relay.site.store.commit(&batch);
    let mut relay = relay.restart();
    relay.site.settle();
    let scrub = relay.site.pump.node().status(relay.site.now).scrub;
    assert_eq!((scrub.items, scrub.last), (50, Some(relay.site.now.wall)));
    assert_eq!(place(&relay).map(|place| place.key), Some(Vec::new()), "the pass has ended");
    relay.wait(DAY);
    assert_eq!(relay.site.pump.node().status(relay.site.now).scrub.items, 250);
    relay.audit();
}

#[test]
fn the_place_among_many_shards_is_written_down_on_the_way() {
    let mut relay = Relay::new();
    // So many count for as much as 256 MiB.
    for i in 0..4_200 {
        relay.put(&shard("many", i), b"x");
    }
    relay.wait(DAY);
    relay.wait(DAY);
    assert_eq!(place(&relay), Some(PlaceRow::default()), "written, and taken back at the end");
    relay.audit();
}

#[test]
fn many_shards_are_looked_at_page_by_page() {
    let mut relay = Relay::new();
    for i in 0..200 {
        relay.put(&shard("many", i), format!("content {i}").as_bytes());
    }
    relay.wait(DAY);
    let before = relay.site.pump.node().status(relay.site.now).scrub.items;
    rot(&mut relay, &shard("many", 3));
    rot(&mut relay, &shard("many", 199));
    relay.wait(DAY);
    let status = relay.site.pump.node().status(relay.site.now).scrub;
    assert_eq!(status.items - before, 200);
    assert_eq!((status.running, spoiled(&relay)), (false, [2, 0]));
    assert_eq!(relay.state(&shard("many", 3)), Some(ShardState::RelayCleanup));
    assert_eq!(relay.state(&shard("many", 199)), Some(ShardState::RelayCleanup));
    relay.audit();
}
