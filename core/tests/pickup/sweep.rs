//! What becomes due by itself, up or down.

use std::time::Duration;

use consign_core::config::BufferConfig;
use consign_core::id::{BatchNo, SiteNo};
use consign_core::ledger::Table;
use consign_core::ledger::keys;
use consign_core::ledger::keys_pickup;
use consign_core::ledger::rows::{CounterRow, MetaRow};
use consign_core::ledger::rows_pickup::{AckStatus, ShardRow, ShardState};
use consign_core::node::Input;
use consign_core::pickup::OperatorAct;
use consign_core::store::Batch;
use consign_core::time::UnixMillis;

use crate::relay::{KEY, Relay, shard, with};

/// Time passes while the relay is up, or while it is down.
fn pass(mut relay: Relay, up: bool, time: Duration) -> Relay {
    if up {
        relay.wait(time);
        return relay;
    }
    relay.site.now.wall = relay.site.now.wall.after(time);
    let mut relay = relay.restart();
    relay.site.settle();
    relay
}

#[test]
fn every_deadline_ends_the_same_whether_it_is_up_or_down() {
    for up in [true, false] {
        let mut relay = Relay::new();
        relay.slot(&shard("slot", 0), "cam", 500).unwrap();
        let ask = relay.ask_of(&shard("part", 0), Some(100_000));
        let writer = relay.begin(ask).unwrap();
        relay.cut(&writer, 30_000).unwrap();
        relay.put(&shard("sent", 0), b"content");
        let ws = relay.node("n1", KEY);
        let (conn, serve) = relay.pick_up(ws);
        relay.fetched(conn, serve.redemption, consign_core::pickup::FetchEnd::Whole);
        relay.close(ws);
        relay.put_file(&shard("wait", 0), &[3; 100_000]);
        let state = |relay: &Relay, file: &str| relay.state(&shard(file, 0)).unwrap();
        let mut relay = pass(relay, up, Duration::from_secs(1799));
        assert_eq!(state(&relay, "sent"), ShardState::NodeReceiving);
        relay = pass(relay, up, Duration::from_secs(1));
        assert_eq!(state(&relay, "sent"), ShardState::RelayBuffered);
        relay = pass(relay, up, Duration::from_secs(1799));
        assert_eq!(state(&relay, "slot"), ShardState::Created);
        assert_eq!(state(&relay, "part"), ShardState::Uploading);
        relay = pass(relay, up, Duration::from_secs(1));
        assert_eq!(state(&relay, "slot"), ShardState::RelayCleanup);
        assert_eq!(state(&relay, "part"), ShardState::RelayCleanup);
        relay = pass(relay, up, Duration::from_secs(71 * 3600 - 1));
        assert_eq!(state(&relay, "wait"), ShardState::RelayBuffered);
        relay = pass(relay, up, Duration::from_secs(1));
        assert_eq!(state(&relay, "wait"), ShardState::RelayCleanup);
        assert_eq!(
            state(&relay, "sent"),
            ShardState::RelayCleanup,
            "the first time buffered counts"
        );
        assert_eq!((relay.used(), relay.site.store.files().count()), (0, 0));
        relay.audit();
        // History goes as well.
        relay = pass(relay, up, Duration::from_secs(30 * 24 * 3600 - 71 * 3600));
        assert_eq!(relay.site.store.rows(Table::Shards), 2);
        relay = pass(relay, up, Duration::from_secs(71 * 3600));
        let rows = |table| relay.site.store.rows(table);
        assert_eq!((rows(Table::Shards), rows(Table::Tokens), rows(Table::Nonces)), (0, 0, 0));
        assert_eq!((rows(Table::Expiry), rows(Table::ShardDeadlines)), (0, 0));
        relay.audit();
    }
}

#[test]
fn a_second_is_a_good_duration() {
    let second = Duration::from_secs(1);
    let buffer = BufferConfig {
        ttl: second * 5,
        upload_grace: second,
        transit_grace: second,
        slot_ttl: second,
        token_ttl: second,
        ..BufferConfig::default()
    };
    let mut relay = Relay::with(with(buffer));
    relay.slot(&shard("slot", 0), "cam", 500).unwrap();
    let ask = relay.ask_of(&shard("part", 0), Some(100_000));
    relay.begin(ask).unwrap();
    relay.put(&shard("sent", 0), b"content");
    let ws = relay.node("n1", KEY);
    let (conn, serve) = relay.pick_up(ws);
    for _ in 0..3 {
        relay.wait(Duration::from_millis(900));
        let redemption = serve.redemption;
        relay.tell(conn, consign_core::pickup::Event::FetchMoved { redemption });
        relay.site.settle();
    }
    assert_eq!(relay.state(&shard("sent", 0)), Some(ShardState::NodeReceiving));
    assert_eq!(relay.state(&shard("slot", 0)), Some(ShardState::RelayCleanup));
    assert_eq!(relay.state(&shard("part", 0)), Some(ShardState::RelayCleanup));
    relay.wait(second);
    assert_eq!(relay.state(&shard("sent", 0)), Some(ShardState::RelayBuffered));
    relay.wait(second * 2);
    assert_eq!(relay.state(&shard("sent", 0)), Some(ShardState::RelayCleanup));
    relay.audit();
}

#[test]
fn nothing_is_given_up_on_a_clock_that_is_doubted() {
    let mut relay = Relay::new();
    relay.slot(&shard("slot", 0), "cam", 500).unwrap();
    relay.put(&shard("wait", 0), b"content");
    relay.put(&shard("sent", 0), b"content");
    let ws = relay.node("n1", KEY);
    let notify = relay.notified(ws);
    let hash = relay.hash(ws, &notify[0]);
    let (_, serve) = relay.redeem(hash).unwrap();
    assert_eq!(serve.shard, shard("sent", 0));
    relay.site.input(Input::Clock { ahead: 10 * 365 * 86_400_000 });
    relay.site.settle();
    for _ in 0..5 {
        relay.wait(Duration::from_secs(3600));
    }
    assert_eq!(relay.state(&shard("slot", 0)), Some(ShardState::Created));
    assert_eq!(
        relay.state(&shard("sent", 0)),
        Some(ShardState::RelayBuffered),
        "that loses nothing"
    );
    relay.site.input(Input::Clock { ahead: 0 });
    relay.wait(Duration::from_secs(60));
    assert_eq!(relay.state(&shard("slot", 0)), Some(ShardState::RelayCleanup));
    relay.audit();
}

#[test]
fn what_is_verified_is_finished_before_everything_else() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put_file(&key, &[3; 100_000]);
    let ws = relay.node("n1", KEY);
    let (_, _serve) = relay.pick_up(ws);
    // As another version of this would leave it, which takes two commits.
    let row = relay.row(&key).unwrap();
    let verified = ShardRow { state: ShardState::NodeVerified, deadline: 1, ..row.clone() };
    let mut batch = Batch::new(BatchNo(500_000));
    let deadline = |at| keys_pickup::shard_deadline(UnixMillis(at), &key);
    batch.del(Table::ShardDeadlines, &deadline(row.deadline));
    batch.put_key(Table::ShardDeadlines, &deadline(1));
    batch.put(Table::Shards, &key.key(), &verified);
    for (state, count, bytes) in [(19, 0, 0), (20, 1, 100_000)] {
        let counter = CounterRow { count, bytes };
        batch.put(Table::Counters, &keys::counter(SiteNo(0), state), &counter);
    }
    batch.put(Table::Meta, b"batch", &MetaRow { value: 500_000 });
    assert!(matches!(relay.site.store.commit(&batch), Input::Committed { .. }));
    let mut relay = relay.restart();
    relay.audit();
    relay.site.settle();
    assert_eq!(relay.state(&key), Some(ShardState::NodeStored), "P3");
    assert_eq!((relay.used(), relay.site.store.files().count()), (0, 0));
    relay.audit();
}

#[test]
fn a_sweep_that_has_picked_a_shard_leaves_what_took_its_place_alone() {
    // The same key is sent again at every turn around its lease's end.
    for turns in 0..12 {
        let mut relay = Relay::new();
        let key = shard("a", 0);
        relay.put_file(&key, &[3; 100_000]);
        relay.site.now.wall = relay.site.now.wall.after(Duration::from_secs(72 * 3600));
        relay.site.input(Input::Timer);
        for _ in 0..turns {
            relay.site.turn();
            relay.site.commit();
        }
        let conn = relay.site.client();
        let ask = relay.small(conn, &key, b"anew");
        let outcome = relay.upload_on(conn, ask);
        relay.site.settle();
        let row = relay.row(&key).unwrap();
        match outcome {
            Ok((true, _)) => {
                assert_eq!((row.state, row.generation), (ShardState::RelayBuffered, 1));
                let ws = relay.node("n1", KEY);
                let (_, serve) = relay.pick_up(ws);
                relay.ack(ws, &key, serve.redemption, AckStatus::Verified).unwrap();
            }
            other => assert_eq!(row.state, ShardState::RelayCleanup, "{other:?}"),
        }
        relay.site.settle();
        relay.audit();
    }
}

#[test]
fn many_deadlines_are_met_in_slices() {
    let mut relay = Relay::new();
    for i in 0..1_000 {
        relay.slot(&shard("s", i), "cam", 1).unwrap();
    }
    relay.act(OperatorAct::AbandonShard { shard: shard("s", 7) }).unwrap();
    relay.wait(Duration::from_secs(3600));
    assert_eq!(relay.status().shards[6].count, 1_000);
    assert_eq!((relay.used(), relay.site.store.rows(Table::ShardDeadlines)), (0, 0));
    relay.audit();
}

#[test]
fn what_becomes_due_while_it_stops_waits_for_the_next_start() {
    let ttl = Duration::from_secs(5);
    let mut relay = Relay::with(with(BufferConfig { ttl, ..BufferConfig::default() }));
    relay.put(&shard("a", 0), b"content");
    let ask = relay.ask_of(&shard("b", 0), Some(100_000));
    // The drain waits for this.
    relay.begin(ask).unwrap();
    relay.site.input(Input::Stop);
    relay.site.now.wall = relay.site.now.wall.after(ttl * 2);
    relay.site.settle();
    let next = relay.site.pump.node().next_deadline();
    assert!(next.is_none_or(|at| at > relay.site.now.mono), "it goes round for nothing: {next:?}");
    assert_eq!(relay.state(&shard("a", 0)), Some(ShardState::RelayBuffered));
}

#[test]
fn a_job_that_waits_for_an_open_read_does_not_turn_the_loop() {
    let mut relay = Relay::new();
    let (one, two) = (relay.site.client(), relay.site.client());
    let head = |relay: &mut Relay| {
        let (ticket, client) = (relay.ticket(), Some(crate::relay::token_of("cam")));
        consign_core::pickup::Event::Head { ticket, shard: shard("a", 0), client }
    };
    let event = head(&mut relay);
    relay.tell(one, event);
    relay.site.turn();
    let event = head(&mut relay);
    relay.tell(two, event);
    relay.site.turn();
    let next = relay.site.turn();
    assert!(next.is_none_or(|at| at > relay.site.now.mono), "{next:?}");
}
