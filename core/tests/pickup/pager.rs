//! Which shards a node is notified of: in order, so many at a time, none missed, in bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consign_core::config::BufferConfig;
use consign_core::id::{BatchNo, BodyNo};
use consign_core::ledger::keys_pickup::{self, ShardKey};
use consign_core::ledger::rows::{Body, CounterRow, MetaRow};
use consign_core::ledger::rows_pickup::{AckStatus, ShardRow, ShardState};
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::pickup::Event;
use consign_core::segment::Class;
use consign_core::store::Batch;

use crate::relay::{KEY, Relay, shard, with};
use crate::site::config;

fn small_window(notify_window: u32) -> BufferConfig {
    BufferConfig { notify_window, ..BufferConfig::default() }
}

#[test]
fn so_many_at_a_time_in_key_order_and_on_as_they_are_answered() {
    let mut relay = Relay::with(with(small_window(4)));
    for i in (0..10).rev() {
        relay.put(&shard("f", i), b"content");
    }
    let ws = relay.node("n1", KEY);
    let mut seen: Vec<u64> = Vec::new();
    let mut open = relay.notified(ws);
    assert_eq!(open.len(), 4);
    while !open.is_empty() {
        assert!(open.len() <= 4);
        let notify = open.remove(0);
        seen.push(notify.shard.index());
        let hash = relay.hash(ws, &notify);
        let (_, serve) = relay.redeem(hash).unwrap();
        assert_eq!(relay.notified(ws), [], "redeemed is not answered");
        relay.ack(ws, &notify.shard, serve.redemption, AckStatus::Verified).unwrap();
        open.extend(relay.notified(ws));
    }
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    relay.audit();
}

#[test]
fn a_node_that_ignores_a_window_full_hears_of_the_rest() {
    let mut relay = Relay::with(with(small_window(4)));
    for i in 0..10 {
        relay.put(&shard("f", i), b"content");
    }
    let ws = relay.node("n1", KEY);
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let round: Vec<u64> = relay.notified(ws).iter().map(|n| n.shard.index()).collect();
        rounds.push(round);
        relay.wait(Duration::from_secs(300));
    }
    assert_eq!(rounds[0], [0, 1, 2, 3]);
    assert_eq!(rounds[1], [4, 5, 6, 7], "P5");
    let third: BTreeSet<u64> = rounds[2].iter().copied().collect();
    assert_eq!(third, [8, 9, 0, 1].into(), "it wraps");
    assert!(rounds.iter().all(|round| round.len() == 4));
}

#[test]
fn what_is_staged_before_a_registration_and_durable_after_it_is_told() {
    // The upload is decided, and its batch on its way, when the node registers; the commit comes late.
    for late in 0..12 {
        let mut relay = Relay::new();
        let ws = relay.subscribe("n1", KEY);
        let conn = relay.site.client();
        let key = shard("a", 0);
        let ask = Box::new(relay.small(conn, &key, b"content"));
        let ticket = relay.ticket();
        relay.tell(conn, Event::Upload { ticket, ask });
        for _ in 0..late {
            relay.site.turn();
        }
        relay.register(ws);
        for _ in 0..12 {
            relay.site.turn();
        }
        relay.site.settle();
        let told: Vec<u64> = relay.notified(ws).iter().map(|n| n.shard.index()).collect();
        assert_eq!(told, [0], "after {late} turns");
        relay.audit();
    }
}

#[test]
fn nothing_falls_between_the_upgrade_and_the_first_page() {
    // A shard becomes RELAY_BUFFERED after every number of turns around the registration.
    for late in 0..24 {
        let mut relay = Relay::new();
        relay.put(&shard("m", 0), b"content");
        let ws = relay.subscribe("n1", KEY);
        let conn = relay.site.client();
        let keys = [shard("a", 0), shard("z", 0)];
        let asks: Vec<_> = keys.iter().map(|key| relay.small(conn, key, b"content")).collect();
        relay.register(ws);
        for _ in 0..late {
            relay.site.turn();
            if late % 2 == 0 {
                relay.site.commit();
            }
        }
        for ask in asks {
            let ticket = relay.ticket();
            let ask = Box::new(ask);
            relay.tell(conn, consign_core::pickup::Event::Upload { ticket, ask });
        }
        let mut told: Vec<String> =
            relay.notified(ws).iter().map(|n| n.shard.file_id().to_string()).collect();
        told.sort();
        assert_eq!(told, ["a", "m", "z"], "after {late} turns");
        relay.audit();
    }
}

#[test]
fn one_more_key_order_than_strings_and_numbers() {
    let mut relay = Relay::new();
    let key = |file: &str, version, index| ShardKey::new(file, version, index, "n1").unwrap();
    let keys =
        [key("a", 2, 0), key("a", 10, 0), key("a", 10, 9), key("a", 10, 10), key("a!", 1, 0)];
    for key in keys.iter().rev() {
        relay.put(key, b"content");
    }
    let ws = relay.node("n1", KEY);
    let told: Vec<_> = relay.notified(ws).into_iter().map(|n| n.shard).collect();
    assert_eq!(told, keys);
}

#[test]
fn many_that_wait_for_their_time_cost_no_more_than_a_few() {
    let mut relay = Relay::with(with(small_window(1024)));
    for i in 0..600 {
        relay.put(&shard("f", i), b"content");
    }
    let ws = relay.node("n1", KEY);
    let open = relay.notified(ws);
    assert_eq!(open.len(), 600);
    for notify in &open {
        let hash = relay.hash(ws, notify);
        let (_, serve) = relay.redeem(hash).unwrap();
        relay.ack(ws, &notify.shard, serve.redemption, AckStatus::Failed).unwrap();
    }
    assert_eq!(relay.notified(ws), []);
    relay.wait(Duration::from_secs(1));
    let mut again = relay.notified(ws);
    relay.wait(Duration::from_millis(1));
    again.extend(relay.notified(ws));
    assert_eq!(again.len(), 600);
    relay.audit();
}

#[test]
fn a_row_is_forgotten_when_the_last_read_that_may_not_know_it_ends() {
    let mut relay = Relay::with(config(&["beta"]));
    relay.site.queue("one", &["beta"]);
    let held = |relay: &Relay| relay.site.pump.node().footprint().0;
    relay.put(&shard("a", 0), b"content");
    let before = held(&relay);
    relay.site.hold_lookups = true;
    let client = relay.site.client();
    relay.site.submit(client, 1, "one", &["beta"], Class::Normal);
    relay.put(&shard("a", 1), b"content");
    assert!(held(&relay) > before, "the look-up is still open");
    relay.site.let_go();
    // There is nothing new in what it finds, so that no commit follows it.
    relay.site.turn();
    assert_eq!((relay.site.has_batch(), held(&relay)), (false, before));
}

#[test]
fn what_was_notified_and_answered_is_not_remembered() {
    let mut relay = Relay::new();
    let ws = relay.node("n1", KEY);
    for i in 0..50 {
        relay.put(&shard("f", i), b"content");
        let notify = relay.notified(ws).remove(0);
        let hash = relay.hash(ws, &notify);
        let (_, serve) = relay.redeem(hash).unwrap();
        relay.ack(ws, &notify.shard, serve.redemption, AckStatus::Verified).unwrap();
        relay.wait(Duration::from_secs(1));
    }
    let (held, ..) = relay.site.pump.node().footprint();
    assert_eq!(held, 0, "tokens of five minutes, all of them used");
    relay.put(&shard("f", 50), b"content");
    assert_eq!(relay.notified(ws).len(), 1);
    relay.wait(Duration::from_secs(301));
    assert_eq!(relay.notified(ws).len(), 1, "its token ran out");
    relay.audit();
}

/// A hundred thousand shards for one node, written into the ledger as they would be.
fn flood(relay: &mut Relay, count: u64) {
    let at = relay.site.now.wall.0;
    let number = 1_000_000;
    let mut batch = Batch::new(BatchNo(number));
    let template = relay.row(&shard("m", 0)).unwrap();
    for i in 0..count {
        let key = shard("flood", i);
        let body = Body::Inline(BodyNo(1_000 + i));
        let row = ShardRow { buffer: Some(body), ..template.clone() };
        batch.put(Table::Shards, &key.key(), &row);
        batch.put_key(Table::ByNode, &keys_pickup::by_node(&key));
        let deadline = consign_core::time::UnixMillis(row.deadline);
        batch.put_key(Table::ShardDeadlines, &keys_pickup::shard_deadline(deadline, &key));
        batch.put_raw(Table::Bodies, &keys::body(BodyNo(1_000 + i)), b"content");
    }
    batch.put(Table::Meta, b"batch", &MetaRow { value: number });
    batch.put(Table::Meta, b"next_body", &MetaRow { value: 2_000_000 });
    let bytes = count * 7;
    let counter = CounterRow { count: count + 1, bytes: bytes + 7 };
    let state = 16 + ShardState::RelayBuffered.number();
    batch.put(Table::Counters, &keys::counter(consign_core::id::SiteNo(0), state), &counter);
    let used = relay.used() + count * 31;
    batch.put(Table::Meta, b"used_bytes", &MetaRow { value: used });
    let _ = at;
    assert!(matches!(relay.site.store.commit(&batch), Input::Committed { .. }));
}

#[test]
fn a_hundred_thousand_are_handed_out_in_bounded_memory() {
    let mut relay = Relay::new();
    relay.put(&shard("m", 0), b"content");
    flood(&mut relay, 100_000);
    let mut relay = relay.restart();
    relay.site.settle();
    relay.audit();
    let ws = relay.node("n1", KEY);
    let mut most = 0;
    let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
    for _ in 0..30 {
        let open = relay.notified(ws);
        for notify in open {
            *seen.entry(notify.shard.index()).or_default() += 1;
            let hash = relay.hash(ws, &notify);
            let (_, serve) = relay.redeem(hash).unwrap();
            relay.ack(ws, &notify.shard, serve.redemption, AckStatus::Verified).unwrap();
            most = most.max(relay.site.pump.node().footprint().0);
        }
    }
    assert!(seen.len() > 500 && seen.values().all(|times| *times == 1), "{}", seen.len());
    assert!(most < 2_000, "{most}");
}
