//! What `fsck` finds of shards, and that it is mended.

use consign_core::id::BatchNo;
use consign_core::ledger::Table;
use consign_core::ledger::check::{self, Finding, Mender, Rule, Watch};
use consign_core::ledger::codec;
use consign_core::ledger::rows::{Body, Loss, MetaRow};
use consign_core::ledger::rows_pickup::{ShardRow, ShardState};
use consign_core::mem::MemStore;
use consign_core::node::Input;
use consign_core::store::{Batch, Snapshot};

use crate::relay::{KEY, Relay, shard};
use crate::site::findings;

/// A shard in every state that lasts.
fn rich() -> Relay {
    let mut relay = Relay::new();
    relay.slot(&shard("slot", 0), "cam", 500).unwrap();
    let ask = relay.ask_of(&shard("part", 0), Some(100_000));
    let writer = relay.begin(ask).unwrap();
    relay.cut(&writer, 30_000).unwrap();
    relay.put_file(&shard("sent", 0), &[1; 70_000]);
    let ws = relay.node("n1", KEY);
    relay.pick_up(ws);
    relay.put_file(&shard("file", 0), &[2; 80_000]);
    relay.put(&shard("small", 0), b"content");
    relay.notified(ws);
    relay.audit();
    relay
}

struct Fixer {
    mender: Mender,
    batches: Vec<Batch>,
    rules: Vec<Rule>,
}

impl Watch for Fixer {
    fn found(&mut self, finding: Finding) {
        self.rules.push(finding.rule);
        self.batches.extend(self.mender.add(&finding));
    }
    fn read(&mut self, _: Table, _: u64) {}
}

/// Mends until nothing is found; what was found first.
fn mend(relay: &mut Relay) -> Vec<Rule> {
    let mut first = Vec::new();
    for round in 0..6 {
        let store = &mut relay.site.store;
        let mender = Mender::after(store.snapshot().as_of());
        let mut fixer = Fixer { mender, batches: Vec::new(), rules: Vec::new() };
        let at = relay.site.now.wall;
        check::check(&store.snapshot(), at, &[], &mut fixer).unwrap();
        fixer.batches.extend(fixer.mender.take());
        if round == 0 {
            first = fixer.rules.clone();
        }
        for batch in &fixer.batches {
            assert!(matches!(store.commit(batch), Input::Committed { .. }));
        }
    }
    assert_eq!(findings(&relay.site.store), []);
    first
}

fn change(store: &mut MemStore, ops: impl FnOnce(&mut Batch)) {
    let number = store.snapshot().as_of().0 + 1;
    let mut batch = Batch::new(BatchNo(number));
    ops(&mut batch);
    batch.put(Table::Meta, b"batch", &MetaRow { value: number });
    assert!(matches!(store.commit(&batch), Input::Committed { .. }));
}

#[test]
fn every_row_that_is_missing_is_found_and_mended() {
    use Table::{Blobs, Bodies, ByNode, Counters, Incoming, Owners, ShardDeadlines, Shards};
    for table in [Blobs, Bodies, ByNode, Counters, Incoming, Owners, ShardDeadlines, Shards] {
        let rows = rich().site.store.rows(table);
        assert!(rows > 0, "{table}");
        for nth in 0..rows {
            let mut relay = rich();
            let key = relay.site.store.nth_key(table, nth).unwrap().to_vec();
            change(&mut relay.site.store, |batch| batch.del(table, &key));
            let rules = mend(&mut relay);
            let counted = table == Counters && rules.is_empty();
            assert!(!rules.is_empty() || counted, "{table} {nth}");
            // A start on what is left goes well.
            let mut relay = relay.restart();
            relay.site.settle();
            assert_eq!((relay.site.halted.clone(), findings(&relay.site.store)), (None, vec![]));
        }
    }
}

#[test]
fn a_row_unlike_its_state_is_given_up_or_set_right() {
    for state in ShardState::ALL {
        for file in ["slot", "part", "sent", "file", "small"] {
            let mut relay = rich();
            let key = shard(file, 0);
            let row = relay.row(&key).unwrap();
            if row.state == *state {
                continue;
            }
            let wrong = ShardRow { state: *state, ..row };
            change(&mut relay.site.store, |batch| batch.put(Table::Shards, &key.key(), &wrong));
            assert!(!mend(&mut relay).is_empty(), "{file} as {state}");
        }
    }
}

#[test]
fn a_shard_whose_content_is_wrong_is_given_up_and_its_content_belongs_to_nobody() {
    for (file, loss) in [("file", Loss::Doubted), ("small", Loss::Gone), ("sent", Loss::Gone)] {
        let mut relay = rich();
        let key = shard(file, 0);
        let body = relay.row(&key).unwrap().buffer.unwrap();
        let at = relay.site.now.wall;
        let snapshot = relay.site.store.snapshot();
        let elsewhere = Body::Blob(consign_core::id::BlobNo(77));
        let other = check::lose_shard(&snapshot, &key, elsewhere, loss, at).unwrap();
        assert!(other.is_empty(), "it has other content by now");
        let fixes = check::lose_shard(&snapshot, &key, body, loss, at).unwrap();
        drop(snapshot);
        change(&mut relay.site.store, |batch| fixes.iter().for_each(|fix| fix.stage(batch)));
        assert!(mend(&mut relay).contains(&Rule::Unowned), "{file}");
        let row = relay.row(&key).unwrap();
        let found = (row.state, row.loss, row.buffer, row.reason.as_str());
        assert_eq!(found, (ShardState::RelayCleanup, Some(loss), None, loss.cause().word()));
        let mut relay = relay.restart();
        relay.site.settle();
        relay.put(&key, b"brought anew");
        assert_eq!(relay.row(&key).unwrap().generation, 1);
    }
}

#[test]
fn index_rows_that_lead_astray_are_found() {
    let mut relay = rich();
    let key = shard("nobody", 0);
    let by_node = consign_core::ledger::keys_pickup::by_node(&key);
    let at = consign_core::time::UnixMillis(77);
    let deadline = consign_core::ledger::keys_pickup::shard_deadline(at, &key);
    change(&mut relay.site.store, |batch| {
        batch.put_key(Table::ByNode, &by_node);
        batch.put_key(Table::ShardDeadlines, &deadline);
    });
    assert_eq!(mend(&mut relay), [Rule::IndexAstray; 2]);
    // One that the sweep comes by is removed by it.
    change(&mut relay.site.store, |batch| batch.put_key(Table::ShardDeadlines, &deadline));
    let mut relay = relay.restart();
    relay.site.settle();
    relay.audit();
    let value = relay.site.store.ledger().get(Table::Shards, &key.key()).unwrap();
    assert!(value.is_none_or(|v| codec::decode::<ShardRow>(Table::Shards, &key.key(), v).is_err()));
}
