//! Cases about rows, batches, snapshots and parked bodies.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;

use super::{Case, Subject, conn, content, inline, numbered, pattern, scan};
use crate::id::{BatchNo, BlobNo, BodyNo, Handle, SegmentId, Seq, SiteNo, TransferNo};
use crate::ledger::keys::{self, DueKey, Key};
use crate::ledger::read::{Answer, ReadRequest};
use crate::ledger::rows::{MetaName, MetaRow};
use crate::ledger::{Table, read};
use crate::segment::Class;
use crate::store::{Batch, CommitFault, Snapshot, StoreEvent, StoreFault, StoreRequest};
use crate::time::UnixMillis;

pub(super) const CASES: &[Case] = &[
    ("a fresh store is empty", fresh),
    ("a batch is there whole, with its number", whole),
    ("later operations of a batch win", order),
    ("tables do not share keys", apart),
    ("rows come in the order of their keys, from any start", sorted),
    ("a scan stops where it is told to", stops),
    ("values of any size and keys up to 511 bytes", sizes),
    ("a snapshot does not change", isolated),
    ("parked bodies are joined to their rows", joined),
    ("a body is joined once", once),
    ("a body that was freed is gone", unparked),
    ("a batch that does not bear its number leaves nothing", nameless),
    ("a key that is too long leaves nothing", oversized),
    ("counters are read back", recovered),
    ("a question is answered from one snapshot", asked),
];

fn commit(store: &dyn Subject, batch: Batch) {
    let number = batch.number;
    assert_eq!(store.commit(batch), Ok(()), "batch {number}");
}

fn value(store: &dyn Subject, table: Table, key: &[u8]) -> Option<Vec<u8>> {
    store.snapshot().get(table, key).expect("the store can be read").map(<[u8]>::to_vec)
}

fn fresh(store: &dyn Subject) {
    let snapshot = store.snapshot();
    assert_eq!(snapshot.as_of(), BatchNo(0));
    for table in Table::ALL {
        assert!(scan(&*snapshot, *table, &[]).is_empty(), "{table}");
    }
    assert_eq!(store.files(), []);
}

fn whole(store: &dyn Subject) {
    let mut batch = numbered(1);
    batch.put_raw(Table::Segments, &[1], b"one");
    batch.put_key(Table::Due, &[2]);
    batch.put_raw(Table::Ids, &[3], b"three");
    commit(store, batch);
    assert_eq!(store.snapshot().as_of(), BatchNo(1));
    assert_eq!(value(store, Table::Segments, &[1]), Some(b"one".to_vec()));
    assert_eq!(value(store, Table::Due, &[2]), Some(Vec::new()));
    assert_eq!(value(store, Table::Ids, &[3]), Some(b"three".to_vec()));
    assert_eq!(value(store, Table::Ids, &[4]), None);

    let mut batch = numbered(2);
    batch.del(Table::Segments, &[1]);
    batch.del(Table::Segments, &[9]);
    commit(store, batch);
    assert_eq!(value(store, Table::Segments, &[1]), None);
    assert_eq!(value(store, Table::Ids, &[3]), Some(b"three".to_vec()));
    assert_eq!(store.snapshot().as_of(), BatchNo(2));
}

fn order(store: &dyn Subject) {
    let mut batch = numbered(1);
    batch.put_raw(Table::Segments, &[1], b"first");
    batch.put_raw(Table::Segments, &[1], b"second, longer");
    batch.put_raw(Table::Segments, &[2], b"gone");
    batch.del(Table::Segments, &[2]);
    batch.del(Table::Segments, &[3]);
    batch.put_raw(Table::Segments, &[3], b"there");
    batch.put_raw(Table::Segments, &[4], b"a");
    batch.del(Table::Segments, &[4]);
    batch.put_raw(Table::Segments, &[4], b"b");
    commit(store, batch);
    let rows = scan(&*store.snapshot(), Table::Segments, &[]);
    let wanted: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (vec![1], b"second, longer".to_vec()),
        (vec![3], b"there".to_vec()),
        (vec![4], b"b".to_vec()),
    ];
    assert_eq!(rows, wanted);
}

fn apart(store: &dyn Subject) {
    let mut batch = numbered(1);
    for table in Table::ALL.iter().filter(|table| **table != Table::Meta) {
        batch.put_raw(*table, &[5, 5], table.word().as_bytes());
    }
    commit(store, batch);
    let mut batch = numbered(2);
    batch.del(Table::Due, &[5, 5]);
    commit(store, batch);
    for table in Table::ALL.iter().filter(|table| **table != Table::Meta) {
        let wanted = (*table != Table::Due).then(|| table.word().as_bytes().to_vec());
        assert_eq!(value(store, *table, &[5, 5]), wanted, "{table}");
    }
}

/// Keys of every layout, fields at the edges of their ranges, in no order.
fn layouts() -> Vec<(Table, Vec<Key>)> {
    let wide = [0, 1, 255, 256, u64::from(u32::MAX), 1 << 40, u64::MAX];
    let sites = [0, 1, 256, u32::MAX].map(SiteNo);
    let pairs = || wide.iter().flat_map(|n| sites.iter().map(|s| (*n, *s))).rev();
    let ids = || (0..=255u8).step_by(51).map(|n| SegmentId([n.wrapping_mul(77); 32]));
    let due = |(n, peer): (u64, SiteNo)| {
        Class::ALL.into_iter().rev().flat_map(move |class| {
            wide.into_iter().map(move |at| {
                DueKey { peer, class, at: UnixMillis(at), id8: !at, seq: Seq(n) }.key()
            })
        })
    };
    let at = UnixMillis;
    vec![
        (Table::Segments, wide.iter().rev().map(|n| keys::seq(Seq(*n))).collect()),
        (Table::Ids, ids().map(|id| keys::id(&id)).collect()),
        (Table::Bodies, wide.iter().rev().map(|n| keys::body(BodyNo(*n))).collect()),
        (Table::Blobs, wide.iter().rev().map(|n| keys::blob(BlobNo(*n))).collect()),
        (Table::Deliveries, pairs().map(|(n, s)| keys::delivery(Seq(n), s)).collect()),
        (Table::Due, pairs().flat_map(due).collect()),
        (Table::Owed, pairs().map(|(n, s)| keys::peer_seq(s, Seq(n))).collect()),
        (Table::Deadletters, pairs().map(|(n, s)| keys::deadletter(at(!n), Seq(n), s)).collect()),
        (Table::Unmet, wide.iter().map(|n| keys::unmet(at(!*n), Seq(*n))).collect()),
        (Table::Counters, pairs().map(|(n, s)| keys::counter(s, (n % 5) as u8)).collect()),
        (Table::Peers, sites.iter().rev().map(|s| keys::site(*s)).collect()),
        (Table::Audit, wide.iter().rev().map(|n| keys::audit(*n)).collect()),
    ]
}

fn sorted(store: &dyn Subject) {
    let layouts = layouts();
    let mut batch = numbered(1);
    for (table, keys) in &layouts {
        for key in keys {
            batch.put_raw(*table, key, &[table.number()]);
        }
    }
    commit(store, batch);
    let snapshot = store.snapshot();
    for (table, keys) in &layouts {
        let mut wanted: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        wanted.sort();
        wanted.dedup();
        for (at, from) in wanted.iter().enumerate() {
            let found: Vec<Vec<u8>> =
                scan(&*snapshot, *table, from).into_iter().map(|(key, _)| key).collect();
            assert_eq!(found.as_slice(), wanted.get(at..).unwrap_or_default(), "{table}");
            let mut behind = from.clone();
            behind.push(0);
            assert_eq!(scan(&*snapshot, *table, &behind).len(), wanted.len() - at - 1, "{table}");
        }
        assert_eq!(scan(&*snapshot, *table, &[]).len(), wanted.len(), "{table}");
        assert!(scan(&*snapshot, *table, &[255; 60]).is_empty(), "{table}");
    }
}

fn stops(store: &dyn Subject) {
    let mut batch = numbered(1);
    for n in 0..10 {
        batch.put_key(Table::Owed, &[1, n]);
        batch.put_key(Table::Owed, &[2, n]);
    }
    commit(store, batch);
    let snapshot = store.snapshot();
    let mut seen = 0;
    let scanned = snapshot.scan(Table::Owed, &[1, 3], &mut |_, _| {
        seen += 1;
        seen < 4
    });
    assert_eq!((scanned, seen), (Ok(()), 4));
    let mut of_prefix = 0;
    let scanned = read::scan_prefix(&*snapshot, Table::Owed, &[1], &mut |_, _| {
        of_prefix += 1;
        true
    });
    assert_eq!((scanned, of_prefix), (Ok(()), 10));
}

fn sizes(store: &dyn Subject) {
    let lengths = [0, 1, 15, 1000, 1024, 2000, 4080, 4081, 65_536, 300_000];
    let mut batch = numbered(1);
    for (at, len) in lengths.iter().enumerate() {
        batch.put_raw(Table::Audit, &[at as u8], &pattern(at as u64, *len));
    }
    batch.put_raw(Table::Audit, &[9; 511], b"long");
    commit(store, batch);
    for (at, len) in lengths.iter().enumerate() {
        let wanted = pattern(at as u64, *len).to_vec();
        assert_eq!(value(store, Table::Audit, &[at as u8]), Some(wanted), "{len} bytes");
    }
    assert_eq!(value(store, Table::Audit, &[9; 511]), Some(b"long".to_vec()));
    assert_eq!(value(store, Table::Audit, &[9; 510]), None);
}

fn isolated(store: &dyn Subject) {
    let mut batch = numbered(1);
    batch.put_raw(Table::Segments, &[1], b"old");
    batch.put_raw(Table::Segments, &[2], b"to go");
    commit(store, batch);
    let before = store.snapshot();
    let mut batch = numbered(2);
    batch.put_raw(Table::Segments, &[1], b"new");
    batch.del(Table::Segments, &[2]);
    batch.put_raw(Table::Segments, &[3], b"more");
    commit(store, batch);
    let after = store.snapshot();
    assert_eq!((before.as_of(), after.as_of()), (BatchNo(1), BatchNo(2)));
    assert_eq!(before.get(Table::Segments, &[1]), Ok(Some(&b"old"[..])));
    assert_eq!(after.get(Table::Segments, &[1]), Ok(Some(&b"new"[..])));
    assert_eq!(scan(&*before, Table::Segments, &[]).len(), 2);
    assert_eq!(before.get(Table::Segments, &[3]), Ok(None));
    assert_eq!(scan(&*after, Table::Segments, &[2]), [(vec![3], b"more".to_vec())]);
}

fn park(store: &dyn Subject, number: u32, data: Bytes) -> Handle {
    let handle = Handle { conn: conn(1), number };
    store.request(conn(1), StoreRequest::Park { handle, data });
    handle
}

fn joined(store: &dyn Subject) {
    let (first, second) = (park(store, 1, pattern(0, 65_536)), park(store, 2, Bytes::new()));
    // The end of a connection says nothing about what it parked: a batch may name it already.
    store.conn_ended(conn(1));
    let mut batch = numbered(1);
    batch.put_body(BodyNo(11), first, 65_536);
    batch.put_body(BodyNo(12), second, 0);
    commit(store, batch);
    let key = keys::body(BodyNo(11));
    assert_eq!(value(store, Table::Bodies, &key), Some(pattern(0, 65_536).to_vec()));
    assert_eq!(content(store, inline(11), 0, 100_000), Ok(pattern(0, 65_536)));
    assert_eq!(content(store, inline(11), 60_000, 100), Ok(pattern(60_000, 100)));
    assert_eq!(content(store, inline(11), 65_500, 100), Ok(pattern(65_500, 36)));
    assert_eq!(content(store, inline(11), 65_536, 100), Ok(Bytes::new()));
    assert_eq!(content(store, inline(11), u64::MAX, usize::MAX), Ok(Bytes::new()));
    assert_eq!(content(store, inline(12), 0, 100), Ok(Bytes::new()));
    assert!(matches!(content(store, inline(13), 0, 1), Err(StoreFault::Missing(_))));
}

fn broken(result: &Result<(), CommitFault>) -> bool {
    matches!(result, Err(CommitFault::Broken(_)))
}

fn once(store: &dyn Subject) {
    let handle = park(store, 1, pattern(0, 10));
    let mut batch = numbered(1);
    batch.put_body(BodyNo(1), handle, 10);
    commit(store, batch);
    let mut batch = numbered(2);
    batch.put_raw(Table::Segments, &[1], b"x");
    batch.put_body(BodyNo(2), handle, 10);
    assert!(broken(&store.commit(batch)));
    assert_eq!(value(store, Table::Segments, &[1]), None);
    assert_eq!(store.snapshot().as_of(), BatchNo(1));
}

fn unparked(store: &dyn Subject) {
    let handle = park(store, 1, pattern(0, 10));
    store.unpark(handle);
    store.unpark(handle);
    let mut batch = numbered(1);
    batch.put_body(BodyNo(2), handle, 10);
    assert!(broken(&store.commit(batch)));
    assert_eq!(value(store, Table::Bodies, &keys::body(BodyNo(2))), None);
}

fn nameless(store: &dyn Subject) {
    commit(store, numbered(1));
    let mut batch = Batch::new(BatchNo(2));
    batch.put_raw(Table::Segments, &[1], b"x");
    assert!(broken(&store.commit(batch)));
    assert_eq!(value(store, Table::Segments, &[1]), None);
    assert_eq!(store.snapshot().as_of(), BatchNo(1));
}

fn oversized(store: &dyn Subject) {
    commit(store, numbered(1));
    let mut batch = numbered(2);
    batch.put_raw(Table::Segments, &[1], b"x");
    batch.put_raw(Table::Segments, &[7; 512], b"y");
    assert!(broken(&store.commit(batch)));
    assert_eq!(value(store, Table::Segments, &[1]), None);
    assert_eq!(store.snapshot().as_of(), BatchNo(1));
}

fn recovered(store: &dyn Subject) {
    for number in 1..=5 {
        let mut batch = numbered(number);
        let row = MetaRow { value: number * 100 };
        batch.put(Table::Meta, MetaName::NextSeq.key(), &row);
        commit(store, batch);
        assert_eq!(store.snapshot().as_of(), BatchNo(number));
    }
    let answer = store.read(ReadRequest::Recovery).expect("the rows can be read");
    assert_eq!(answer.as_of, BatchNo(5));
    let Answer::Recovery(recovery) = answer.body else { panic!("not what was asked for") };
    let of = |name| recovery.meta.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
    assert_eq!(of(MetaName::NextSeq), Some(500));
    assert_eq!(of(MetaName::Batch), Some(5));
    assert_eq!(of(MetaName::NextBlob), Some(0));
}

fn asked(store: &dyn Subject) {
    commit(store, numbered(3));
    let ticket = TransferNo(1);
    let query = Box::new(|snapshot: &dyn Snapshot| Ok(snapshot.as_of().to_string().into_bytes()));
    store.request(conn(4), StoreRequest::Query { ticket, query });
    let answer = Ok(b"3".to_vec());
    assert_eq!(store.next(), (conn(4), StoreEvent::Queried { ticket, answer }));
    let fault = StoreFault::Missing("nothing".to_string());
    let given = fault.clone();
    let query = Box::new(move |_: &dyn Snapshot| Err(given));
    store.request(conn(4), StoreRequest::Query { ticket, query });
    let answer = Err(fault);
    assert_eq!(store.next(), (conn(4), StoreEvent::Queried { ticket, answer }));
}
