//! Ages by accept numbers.

use consign_core::id::SegmentId;
use consign_core::mem::MemStore;

use super::*;
use crate::admin::testing::{ledger, segment_row};

const NOW: UnixMillis = UnixMillis(1_000_000_000);

fn row(seq: u64, accepted_at: u64) -> SegmentRow {
    SegmentRow { id: SegmentId([seq as u8; 32]), accepted_at, ..segment_row(seq) }
}

/// A ledger with segments of these ages in seconds, the oldest first, all owed to beta and each second
/// one to gamma.
fn store(ages: &[u64]) -> MemStore {
    ledger(|batch| {
        for (seq, age) in (10..).step_by(3).zip(ages) {
            batch.put(Table::Segments, &keys::seq(Seq(seq)), &row(seq, NOW.0 - age * 1000));
            batch.put_key(Table::Owed, &keys::peer_seq(SiteNo(1), Seq(seq)));
            if seq % 2 == 0 {
                batch.put_key(Table::Owed, &keys::peer_seq(SiteNo(2), Seq(seq)));
            }
        }
    })
}

#[test]
fn every_delivery_is_in_the_column_of_its_age() {
    // At a bound it is the younger column: `<1m` has what is a minute old to the millisecond.
    let ages = [90_000, 86_401, 86_400, 21_000, 3_000, 301, 300, 61, 60, 1];
    let shape = slice(&store(&ages).snapshot(), None, NOW).unwrap();
    assert_eq!((shape.limits.as_slice(), &shape.next), (&LIMITS[..], &None));
    let beta = &shape.peers[0];
    assert_eq!((beta.peer.as_str(), beta.total), ("beta", 10));
    assert_eq!(beta.counts, [2, 2, 1, 1, 1, 1, 2]);
    assert_eq!(shape.peers[1].total, 5);
}

#[test]
fn slices_add_up_to_the_whole() {
    let ages = [90_000, 7_000, 400, 100, 5];
    let store = store(&ages);
    let whole = slice(&store.snapshot(), None, NOW).unwrap();
    let (mut after, mut counts, mut slices) = (None, [0; LIMITS.len() + 1], 0);
    loop {
        let part = counted(&store.snapshot(), after, NOW, 2).unwrap();
        for peer in &part.peers {
            for (sum, count) in counts.iter_mut().zip(&peer.counts) {
                *sum += count;
            }
        }
        slices += 1;
        match part.next {
            None => break,
            Some(next) => after = parse_after(&next),
        }
    }
    let total: u64 = whole.peers.iter().map(|peer| peer.total).sum();
    assert_eq!((counts.iter().sum::<u64>(), slices), (total, 5));
    for (column, count) in counts.iter().enumerate() {
        let sum: u64 = whole.peers.iter().map(|peer| peer.counts[column]).sum();
        assert_eq!(*count, sum, "column {column}");
    }
}

#[test]
fn an_empty_ledger_has_no_shape() {
    let shape = slice(&MemStore::new().snapshot(), None, NOW).unwrap();
    assert_eq!((shape.peers, shape.next), (Vec::new(), None));
    assert_eq!(parse_after("x-1"), None);
}
