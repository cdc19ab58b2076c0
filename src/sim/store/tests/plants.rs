//! The rules that the store keeps, and what breaks when they are dropped.

use std::collections::BTreeSet;

use consign_core::id::BlobDigest;
use consign_core::ledger::rows::{BlobRow, IncomingRow};
use consign_core::plant::Plant;

use super::super::{Latency, StoreFaults};
use super::*;

fn planted(seed: u64, plant: Option<Plant>, faults: StoreFaults) -> Driven {
    let store = Driven::on(seed, StoreConfig { plant, ..StoreConfig::default() });
    store.store.borrow_mut().faults = faults;
    store
}

#[test]
fn without_reading_back_a_batch_is_called_refused_that_is_there() {
    let faults = StoreFaults { commit_after: 1_000_000, ..StoreFaults::default() };
    for plant in [None, Some(Plant::B1)] {
        let store = planted(1, plant, faults.clone());
        assert_eq!(store.commit(batch(1)), Ok(()));
    }
    let store = planted(1, Some(Plant::G7), faults);
    assert!(matches!(store.commit(batch(1)), Err(CommitFault::Full(_))));
    assert_eq!(store.snapshot().as_of(), BatchNo(1));
}

/// Whether the sweep leaves a file alone whose partial becomes a blob meanwhile, over many seeds.
fn swept(plant: Option<Plant>) -> BTreeSet<u64> {
    let key = keys::blob(BlobNo(3));
    let digest = BlobDigest([7; 32]);
    let sweep = |seed| {
        let (commit, unlink) = (Latency::new(0, 1000), Latency::new(0, 1000));
        let store = planted(seed, plant, StoreFaults { commit, unlink, ..StoreFaults::default() });
        store.plant(BlobNo(3), b"content");
        let mut partial = contract::numbered(1);
        let (chain, expires_at) = (Vec::new(), 1);
        let row = IncomingRow {
            digest,
            source: 1,
            reserved: 7,
            offset: 0,
            chain,
            expires_at,
            shard: None,
        };
        partial.put(Table::Incoming, &key, &row);
        assert_eq!(store.commit(partial), Ok(()));

        store.give(Errand::Sweep { folder: 3, below: BlobNo(9) });
        let mut blob = contract::numbered(2);
        blob.del(Table::Incoming, &key);
        blob.put(Table::Blobs, &key, &BlobRow { digest, size: 7, refs: 1, owner: None });
        store.begin(blob);
        store.rest();
        let mut node = store.node.borrow_mut();
        let swept = node.drain(..).find_map(|input| match input {
            Input::Swept { quarantined, .. } => Some(quarantined),
            _ => None,
        });
        swept.expect("the sweep is answered")
    };
    (0..300).map(sweep).collect()
}

#[test]
fn a_sweep_that_reads_table_after_table_sets_a_live_file_aside() {
    assert_eq!(swept(None), BTreeSet::from([0]));
    assert_eq!(swept(Some(Plant::G7)), BTreeSet::from([0]));
    assert_eq!(swept(Some(Plant::B1)), BTreeSet::from([0, 1]));
}
