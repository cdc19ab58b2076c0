//! Cases about content files.

use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;

use super::{Case, Subject, conn, content, numbered, pattern};
use crate::id::{BlobDigest, BlobNo, ConnId, Seq, TransferNo};
use crate::ledger::read_scrub::ScrubItem;
use crate::ledger::rows::{BlobRow, Body, DoomedRow, IncomingRow};
use crate::ledger::{Table, keys};
use crate::node::Input;
use crate::store::{Errand, StoreEvent, StoreFault, StoreRequest};

pub(super) const CASES: &[Case] = &[
    ("a file is written, finished and read", written),
    ("an empty file is a file", empty),
    ("a sync says how much is durable, and writing goes on", synced),
    ("a file is gone on with after its connection ended", resumed),
    ("a file that is shorter or missing is not gone on with", not_resumed),
    ("a number is used once", exclusive),
    ("an abandoned file takes no more and is not answered", abandoned),
    ("what was never created is refused once", unopened),
    ("a blob that was taken over ignores its old connection", taken_over),
    ("answers to one ticket come in order", in_order),
    ("a file is removed, and again", unlinked),
    ("what was removed before it was made is not made", never_made),
    ("a sweep sets aside what no row names", swept),
    ("a check finds what is missing or has another length", checked),
    ("a scrub finds what is not what was accepted", scrubbed),
    ("what is set aside is gone from its place", aside),
    ("a probe tells of the disk", probed),
];

fn create(store: &dyn Subject, conn: ConnId, blob: u64, offset: u64) {
    store.request(conn, StoreRequest::Create { blob: BlobNo(blob), offset });
}

fn write(store: &dyn Subject, conn: ConnId, blob: u64, data: Bytes) {
    store.request(conn, StoreRequest::Write { blob: BlobNo(blob), data });
}

fn body(blob: u64) -> Body {
    Body::Blob(BlobNo(blob))
}

/// What comes until a sync, a finish or a failure: how many bytes were reported, and that.
fn settled(store: &dyn Subject, of: ConnId) -> (u64, StoreEvent) {
    let mut reported = 0;
    loop {
        let (conn, event) = store.next();
        assert_eq!(conn, of, "{event:?}");
        match event {
            StoreEvent::Written { bytes, .. } => reported += bytes,
            other => return (reported, other),
        }
    }
}

fn sync(store: &dyn Subject, conn: ConnId, blob: u64) -> (u64, StoreEvent) {
    store.request(conn, StoreRequest::Sync { blob: BlobNo(blob) });
    settled(store, conn)
}

fn finish(store: &dyn Subject, conn: ConnId, blob: u64) -> (u64, StoreEvent) {
    store.request(conn, StoreRequest::Finish { blob: BlobNo(blob) });
    settled(store, conn)
}

fn synced_at(blob: u64, offset: u64) -> StoreEvent {
    StoreEvent::Synced { blob: BlobNo(blob), offset }
}

fn finished_at(blob: u64, size: u64) -> StoreEvent {
    StoreEvent::Finished { blob: BlobNo(blob), size }
}

fn failure(event: &StoreEvent) -> Option<&StoreFault> {
    match event {
        StoreEvent::WriteFailed { fault, .. } => Some(fault),
        StoreEvent::Written { .. }
        | StoreEvent::Synced { .. }
        | StoreEvent::Finished { .. }
        | StoreEvent::Content { .. }
        | StoreEvent::Queried { .. } => None,
    }
}

fn written(store: &dyn Subject) {
    // Pieces of odd lengths, so that they end nowhere near a block.
    let pieces = [1, 65_536, 4095, 4097, 1_048_576, 700_001, 13];
    create(store, conn(1), 258, 0);
    let mut size = 0;
    for len in pieces {
        write(store, conn(1), 258, pattern(size, len));
        size += len as u64;
    }
    assert_eq!(finish(store, conn(1), 258), (size, finished_at(258, size)));
    assert_eq!(store.files(), [BlobNo(258)]);
    let whole = usize::try_from(size).expect("it is small");
    assert_eq!(content(store, body(258), 0, whole + 5), Ok(pattern(0, whole)));
    assert_eq!(content(store, body(258), 1_000_000, 300_000), Ok(pattern(1_000_000, 300_000)));
    assert_eq!(content(store, body(258), size - 3, 64), Ok(pattern(size - 3, 3)));
    assert_eq!(content(store, body(258), size, 64), Ok(Bytes::new()));
    assert_eq!(content(store, body(258), u64::MAX, 64), Ok(Bytes::new()));
    assert!(matches!(content(store, body(2), 0, 1), Err(StoreFault::Missing(_))));
}

fn empty(store: &dyn Subject) {
    create(store, conn(1), 1, 0);
    assert_eq!(finish(store, conn(1), 1), (0, finished_at(1, 0)));
    assert_eq!(store.files(), [BlobNo(1)]);
    assert_eq!(content(store, body(1), 0, 10), Ok(Bytes::new()));
}

fn synced(store: &dyn Subject) {
    create(store, conn(1), 3, 0);
    write(store, conn(1), 3, pattern(0, 10_000));
    assert_eq!(sync(store, conn(1), 3), (10_000, synced_at(3, 10_000)));
    assert_eq!(content(store, body(3), 0, 20_000), Ok(pattern(0, 10_000)));
    assert_eq!(sync(store, conn(1), 3), (0, synced_at(3, 10_000)));
    write(store, conn(1), 3, pattern(10_000, 2288));
    assert_eq!(sync(store, conn(1), 3), (2288, synced_at(3, 12_288)));
    write(store, conn(1), 3, pattern(12_288, 1));
    assert_eq!(finish(store, conn(1), 3), (1, finished_at(3, 12_289)));
    assert_eq!(content(store, body(3), 0, 20_000), Ok(pattern(0, 12_289)));
}

fn resumed(store: &dyn Subject) {
    for (blob, durable) in [(4, 8192), (5, 5000)] {
        create(store, conn(1), blob, 0);
        write(store, conn(1), blob, pattern(0, durable));
        let offset = durable as u64;
        assert_eq!(sync(store, conn(1), blob).1, synced_at(blob, offset));
        write(store, conn(1), blob, pattern(77, 3000));
        assert_eq!(sync(store, conn(1), blob).1, synced_at(blob, offset + 3000));
        store.conn_ended(conn(1));
        create(store, conn(2), blob, offset);
        write(store, conn(2), blob, pattern(offset, 4000));
        let size = offset + 4000;
        assert_eq!(finish(store, conn(2), blob), (4000, finished_at(blob, size)));
        assert_eq!(content(store, body(blob), 0, 20_000), Ok(pattern(0, durable + 4000)));
    }
}

fn not_resumed(store: &dyn Subject) {
    create(store, conn(1), 6, 4096);
    let (_, missing) = settled(store, conn(1));
    assert!(matches!(failure(&missing), Some(StoreFault::Missing(_))), "{missing:?}");
    store.plant(BlobNo(7), &pattern(0, 4095));
    create(store, conn(1), 7, 4096);
    let (_, short) = settled(store, conn(1));
    assert!(matches!(failure(&short), Some(StoreFault::Corrupt(_))), "{short:?}");
    assert_eq!(store.files(), [BlobNo(7)]);
}

fn exclusive(store: &dyn Subject) {
    create(store, conn(1), 8, 0);
    write(store, conn(1), 8, pattern(0, 100));
    assert_eq!(finish(store, conn(1), 8).1, finished_at(8, 100));
    create(store, conn(2), 8, 0);
    assert!(failure(&settled(store, conn(2)).1).is_some());
    write(store, conn(2), 8, pattern(9, 100));
    store.request(conn(2), StoreRequest::Finish { blob: BlobNo(8) });
    assert_eq!(content(store, body(8), 0, 200), Ok(pattern(0, 100)));
}

fn abandoned(store: &dyn Subject) {
    create(store, conn(1), 9, 0);
    write(store, conn(1), 9, pattern(0, 5000));
    assert_eq!(sync(store, conn(1), 9), (5000, synced_at(9, 5000)));
    store.request(conn(1), StoreRequest::Abandon { blob: BlobNo(9) });
    // The next answer is the one to the next request.
    assert_eq!(content(store, body(9), 0, 5000), Ok(pattern(0, 5000)));
    let (_, refused) = sync(store, conn(1), 9);
    assert!(matches!(failure(&refused), Some(StoreFault::Missing(_))), "{refused:?}");
}

fn unopened(store: &dyn Subject) {
    write(store, conn(1), 10, pattern(0, 10));
    let (_, refused) = settled(store, conn(1));
    assert!(matches!(failure(&refused), Some(StoreFault::Missing(_))), "{refused:?}");
    write(store, conn(1), 10, pattern(10, 10));
    store.request(conn(1), StoreRequest::Finish { blob: BlobNo(10) });
    // Said once; and it may be created after all.
    create(store, conn(1), 10, 0);
    assert_eq!(finish(store, conn(1), 10), (0, finished_at(10, 0)));
}

fn taken_over(store: &dyn Subject) {
    create(store, conn(1), 11, 0);
    write(store, conn(1), 11, pattern(0, 4096));
    assert_eq!(sync(store, conn(1), 11).1, synced_at(11, 4096));
    create(store, conn(2), 11, 4096);
    write(store, conn(1), 11, pattern(0, 50));
    store.request(conn(1), StoreRequest::Finish { blob: BlobNo(11) });
    store.request(conn(1), StoreRequest::Abandon { blob: BlobNo(11) });
    store.conn_ended(conn(1));
    write(store, conn(2), 11, pattern(4096, 10));
    assert_eq!(finish(store, conn(2), 11), (10, finished_at(11, 4106)));
    assert_eq!(content(store, body(11), 0, 9999), Ok(pattern(0, 4106)));
}

fn in_order(store: &dyn Subject) {
    store.plant(BlobNo(12), &pattern(0, 40_000));
    let ticket = TransferNo(3);
    let offsets: Vec<u64> = (0..40).map(|n| n * 1000).collect();
    for offset in &offsets {
        let read = StoreRequest::Read { ticket, body: body(12), offset: *offset, len: 1000 };
        store.request(conn(1), read);
    }
    for offset in offsets {
        let data = Ok(pattern(offset, 1000));
        assert_eq!(store.next(), (conn(1), StoreEvent::Content { ticket, offset, data }));
    }
}

fn unlinked(store: &dyn Subject) {
    store.plant(BlobNo(13), b"x");
    store.plant(BlobNo(13 + 256), b"y");
    for blob in [BlobNo(13), BlobNo(13), BlobNo(999)] {
        let answer = store.errand(Errand::Unlink(blob));
        assert_eq!(answer, Input::Unlinked { blob, result: Ok(()) });
    }
    assert_eq!(store.files(), [BlobNo(13 + 256)]);
}

fn never_made(store: &dyn Subject) {
    // The second has company in its folder.
    store.plant(BlobNo(0x205), b"x");
    for (n, blob) in [0x104, 0x105].into_iter().enumerate() {
        let answer = store.errand(Errand::Unlink(BlobNo(blob)));
        assert_eq!(answer, Input::Unlinked { blob: BlobNo(blob), result: Ok(()) });
        let conn = conn(n as u32 + 1);
        create(store, conn, blob, 0);
        write(store, conn, blob, pattern(0, 10));
        match settled(store, conn) {
            (0, StoreEvent::WriteFailed { fault: StoreFault::Missing(_), .. }) => {}
            other => panic!("made after its removal: {other:?}"),
        }
    }
    assert_eq!(store.files(), [BlobNo(0x205)]);
    // Only those numbers.
    create(store, conn(3), 0x204, 0);
    assert!(matches!(sync(store, conn(3), 0x204), (0, StoreEvent::Synced { offset: 0, .. })));
}

fn swept(store: &dyn Subject) {
    // All in folder 1, but for the last.
    for blob in [0x01, 0x101, 0x201, 0x301, 0x401, 0x501, 0x02] {
        store.plant(BlobNo(blob), b"content");
    }
    let digest = BlobDigest([7; 32]);
    let mut batch = numbered(1);
    let row = BlobRow { digest, size: 7, refs: 1, owner: None };
    batch.put(Table::Blobs, &keys::blob(BlobNo(0x101)), &row);
    let chain = Vec::new();
    let row = IncomingRow {
        digest,
        source: 1,
        reserved: 7,
        offset: 0,
        chain,
        expires_at: 1,
        shard: None,
    };
    batch.put(Table::Incoming, &keys::blob(BlobNo(0x201)), &row);
    batch.put(Table::Doomed, &keys::blob(BlobNo(0x301)), &DoomedRow::new(7, 0));
    assert_eq!(store.commit(batch), Ok(()));
    let sweep = || Errand::Sweep { folder: 1, below: BlobNo(0x501) };
    assert_eq!(store.errand(sweep()), Input::Swept { folder: 1, quarantined: 2 });
    assert_eq!(store.files(), [0x02, 0x101, 0x201, 0x301, 0x501].map(BlobNo));
    assert_eq!(store.errand(sweep()), Input::Swept { folder: 1, quarantined: 0 });
    assert!(matches!(content(store, body(1), 0, 1), Err(StoreFault::Missing(_))));
}

fn checked(store: &dyn Subject) {
    store.plant(BlobNo(20), b"12345");
    let mut batch = numbered(1);
    batch.put_raw(Table::Bodies, &keys::body(crate::id::BodyNo(1)), b"123");
    assert_eq!(store.commit(batch), Ok(()));
    let wanted = vec![
        (Seq(1), body(20), 5),
        (Seq(2), body(20), 4),
        (Seq(3), body(21), 5),
        (Seq(4), super::inline(1), 3),
        (Seq(5), super::inline(1), 4),
        (Seq(6), super::inline(2), 3),
    ];
    let missing = vec![Seq(2), Seq(3), Seq(5), Seq(6)];
    assert_eq!(store.errand(Errand::Check(wanted)), Input::Checked { seen: 6, missing });
}

fn aside(store: &dyn Subject) {
    store.plant(BlobNo(30), b"12345");
    for _ in 0..2 {
        let done = Input::Unlinked { blob: BlobNo(30), result: Ok(()) };
        assert_eq!(store.errand(Errand::SetAside(BlobNo(30))), done, "again it does no harm");
    }
    let missing = vec![Seq(1)];
    let wanted = vec![(Seq(1), body(30), 5)];
    assert_eq!(store.errand(Errand::Check(wanted)), Input::Checked { seen: 1, missing });
}

fn scrubbed(store: &dyn Subject) {
    store.plant(BlobNo(20), b"12345");
    store.plant(BlobNo(21), b"1234567");
    let mut batch = numbered(1);
    batch.put_raw(Table::Bodies, &keys::body(crate::id::BodyNo(1)), b"123");
    assert_eq!(store.commit(batch), Ok(()));
    let item = |seq: u64, body: Body, right: &[u8]| ScrubItem {
        seq: Seq(seq),
        body,
        size: right.len() as u64,
        digest: BlobDigest(*blake3::hash(right).as_bytes()),
    };
    let items = vec![
        item(1, body(20), b"12345"),
        item(2, body(20), b"12346"),
        item(3, body(21), b"12345"),
        item(4, body(22), b"12345"),
        item(5, super::inline(1), b"123"),
        item(6, super::inline(1), b"124"),
        item(7, super::inline(2), b"123"),
    ];
    let Input::Scrubbed { seen, bad, unread, .. } =
        store.errand(Errand::Scrub { items, rate: 1 << 30 })
    else {
        panic!("not what was asked")
    };
    use crate::store::ScrubFault::{Corrupt, Missing};
    assert_eq!((seen, unread), (7, Vec::new()), "all of it can be read");
    let wrong = [(2, Corrupt), (3, Corrupt), (4, Missing), (6, Corrupt), (7, Missing)];
    assert_eq!(bad, wrong.map(|(seq, fault)| (Seq(seq), fault)));
}

fn probed(store: &dyn Subject) {
    for errand in [Errand::Probe, Errand::Look] {
        let Input::Space(space) = store.errand(errand) else { panic!("not what was asked") };
        assert!(space.free > 0);
        assert!(space.ballast_whole);
    }
}
