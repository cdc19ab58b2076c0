//! Content files: many at a time, hostile ones, and memory.

use std::os::unix::fs::{PermissionsExt, symlink};

use bytes::Bytes;
use consign_core::id::{BlobNo, ConnId};
use consign_core::ledger::rows::{BlobRow, Body};
use consign_core::ledger::{Table, keys};
use consign_core::mem::contract::{Subject, conn, content, pattern};
use consign_core::node::Input;
use consign_core::store::{Errand, StoreEvent, StoreFault, StoreRequest};

use super::{Lmdb, blob_path, numbered, temp};

fn write(store: &Lmdb, conn: ConnId, blob: u64, from: u64, len: usize) {
    let data = pattern(from, len);
    store.request(conn, StoreRequest::Write { blob: BlobNo(blob), data });
}

#[test]
fn more_files_at_a_time_than_there_are_blocks() {
    let dir = temp();
    let store = Lmdb::at(dir.path());
    let blobs = 1..=24u64;
    for blob in blobs.clone() {
        let create = StoreRequest::Create { blob: BlobNo(blob), offset: 0 };
        store.request(conn(blob as u32), create);
    }
    // In turns, so that every block changes hands over and over.
    let (rounds, step) = (40u64, 10_007usize);
    for round in 0..rounds {
        for blob in blobs.clone() {
            write(&store, conn(blob as u32), blob, round * step as u64, step);
        }
    }
    for blob in blobs.clone() {
        store.request(conn(blob as u32), StoreRequest::Finish { blob: BlobNo(blob) });
    }
    let size = rounds * step as u64;
    let mut reported = std::collections::BTreeMap::<BlobNo, u64>::new();
    let mut finished = 0;
    while finished < 24 {
        match store.next() {
            (_, StoreEvent::Written { blob, bytes }) => *reported.entry(blob).or_default() += bytes,
            (_, StoreEvent::Finished { blob, size: got }) => {
                assert_eq!((got, reported.get(&blob)), (size, Some(&size)), "{blob}");
                finished += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    for blob in blobs {
        let whole = content(&store, Body::Blob(BlobNo(blob)), 0, size as usize + 1);
        assert!(whole == Ok(pattern(0, size as usize)), "blob {blob}");
    }
    store.no_more_answers();
}

/// The same bytes at an address that many of a page's bytes behind a boundary.
fn placed(data: &[u8], behind: usize) -> Bytes {
    let mut all = vec![0; data.len() + 2 * 4096];
    let at = all.as_ptr().align_offset(4096) + behind;
    all[at..at + data.len()].copy_from_slice(data);
    Bytes::from(all).slice(at..at + data.len())
}

#[test]
fn pieces_are_written_as_they_are_or_copied_and_the_file_is_the_same() {
    const K: usize = 1024;
    // Lengths, and how far behind a boundary each stands.
    let pieces = [
        (256 * K, 0),
        (256 * K, 0),
        (256 * K, 0),
        (256 * K, 0),
        (256 * K, 0),
        (64 * K, 512),
        (256 * K, 0),
        (1984 * K, 0),
        (256 * K, 0),
        (100, 0),
        (256 * K, 0),
        (2048 * K, 0),
        (4096 * K, 0),
        (4096 - 100, 0),
        (128 * K, 0),
        (64 * K, 1),
        (8 * K, 0),
        (128 * K, 0),
        (7, 0),
    ];
    let dir = temp();
    let store = Lmdb::at(dir.path());
    let (one, two) = (BlobNo(1), BlobNo(2));
    for (number, blob) in [(1, one), (2, two)] {
        store.request(conn(number), StoreRequest::Create { blob, offset: 0 });
    }
    let (mut at, mut synced) = (0, 0);
    for (round, (len, behind)) in pieces.into_iter().enumerate() {
        let data = placed(&pattern(at, len), behind);
        assert_eq!(data.as_ptr() as usize % 4096, behind);
        store.request(conn(1), StoreRequest::Write { blob: one, data: data.clone() });
        // Another file in between, now and then, and a sync.
        if round % 3 == 0 {
            store.request(conn(2), StoreRequest::Write { blob: two, data });
        }
        at += len as u64;
        if round % 4 == 3 {
            store.request(conn(1), StoreRequest::Sync { blob: one });
            synced += 1;
        }
    }
    store.request(conn(1), StoreRequest::Finish { blob: one });
    let (mut reported, mut seen) = (0, 0);
    loop {
        match store.next() {
            (_, StoreEvent::Written { blob, bytes }) if blob == one => reported += bytes,
            (_, StoreEvent::Written { .. }) => {}
            (_, StoreEvent::Synced { .. }) => seen += 1,
            (_, StoreEvent::Finished { size, .. }) => {
                assert_eq!((size, reported, seen), (at, at, synced));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let whole = content(&store, Body::Blob(one), 0, at as usize + 1);
    assert!(whole == Ok(pattern(0, at as usize)));
}

#[test]
fn bytes_are_reported_when_nothing_holds_them_any_more() {
    let dir = temp();
    let store = Lmdb::at(dir.path());
    let blob = BlobNo(1);
    store.request(conn(1), StoreRequest::Create { blob, offset: 0 });
    let mut given = std::collections::VecDeque::new();
    for i in 0..40u64 {
        let len = 256 << 10;
        let data = placed(&pattern(i * len, len as usize), 0);
        given.push_back(data.clone());
        store.request(conn(1), StoreRequest::Write { blob, data });
    }
    let mut reported = 0;
    while let Some(first) = given.front() {
        if reported < first.len() as u64 {
            let StoreEvent::Written { bytes, .. } = store.next().1 else { panic!("not written") };
            reported += bytes;
        } else {
            assert!(first.is_unique(), "{} left", given.len());
            reported -= first.len() as u64;
            given.pop_front();
        }
    }
    assert_eq!(reported, 0);
}

#[test]
fn written_bytes_come_back_without_a_sync() {
    let dir = temp();
    let store = Lmdb::at(dir.path());
    store.request(conn(1), StoreRequest::Create { blob: BlobNo(1), offset: 0 });
    write(&store, conn(1), 1, 0, 1000);
    assert_eq!(store.next(), (conn(1), StoreEvent::Written { blob: BlobNo(1), bytes: 1000 }));
    // The end of a connection closes its files and says nothing.
    write(&store, conn(1), 1, 1000, 0);
    store.conn_ended(conn(1));
    store.no_more_answers();
}

#[test]
fn files_are_for_their_owner_only() {
    let dir = temp();
    let data = dir.path().join("data");
    let store = Lmdb::at(&data);
    store.request(conn(1), StoreRequest::Create { blob: BlobNo(1), offset: 0 });
    store.request(conn(1), StoreRequest::Finish { blob: BlobNo(1) });
    assert!(matches!(store.next().1, StoreEvent::Finished { .. }));
    let mode = |path: &std::path::Path| {
        std::fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o7777
    };
    for name in ["", "ledger", "blobs", "blobs/01", "quarantine"] {
        assert_eq!(mode(&data.join(name)), 0o700, "{name}");
    }
    for name in ["lock", "FORMAT", "ballast", "ledger/data.mdb", "ledger/lock.mdb"] {
        assert_eq!(mode(&data.join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&blob_path(&data, BlobNo(1))), 0o600);
}

#[test]
fn what_is_no_regular_file_is_neither_followed_nor_read() {
    let dir = temp();
    let store = Lmdb::at(dir.path());
    let secret = dir.path().join("secret");
    std::fs::write(&secret, pattern(0, 8192)).expect("it is written");
    let link = BlobNo(1);
    store.plant(link, b"");
    std::fs::remove_file(blob_path(dir.path(), link)).expect("it was there");
    symlink(&secret, blob_path(dir.path(), link)).expect("a link");
    let folder = BlobNo(257);
    std::fs::create_dir(blob_path(dir.path(), folder)).expect("a directory");
    let pipe = BlobNo(513);
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        blob_path(dir.path(), pipe),
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .expect("a pipe");
    for blob in [link, folder, pipe] {
        let read = content(&store, Body::Blob(blob), 0, 10);
        assert!(matches!(read, Err(StoreFault::Missing(_))), "{blob}: {read:?}");
        for offset in [0, 4096] {
            store.request(conn(1), StoreRequest::Create { blob, offset });
            let refused = store.next();
            assert!(matches!(refused.1, StoreEvent::WriteFailed { .. }), "{blob}: {refused:?}");
        }
    }
    assert_eq!(std::fs::read(&secret).expect("it is there"), pattern(0, 8192));

    // All three bear a row, and are set aside all the same; so is what is no number at all.
    let mut batch = numbered(1);
    for blob in [link, folder, pipe] {
        let row = BlobRow {
            digest: consign_core::id::BlobDigest([0; 32]),
            size: 8192,
            refs: 1,
            owner: None,
        };
        batch.put(Table::Blobs, &keys::blob(blob), &row);
    }
    assert_eq!(store.commit(batch), Ok(()));
    for name in ["1.tmp", "01", "+1", "2"] {
        std::fs::write(dir.path().join("blobs/01").join(name), b"").expect("it is written");
    }
    let sweep = || Errand::Sweep { folder: 1, below: BlobNo(1000) };
    assert_eq!(store.errand(sweep()), Input::Swept { folder: 1, quarantined: 7 });
    assert_eq!(store.errand(sweep()), Input::Swept { folder: 1, quarantined: 0 });
    let aside = std::fs::read_dir(dir.path().join("quarantine")).expect("quarantine").count();
    assert_eq!(aside, 7);
    assert!(std::fs::read_link(dir.path().join("quarantine/01-1")).is_ok());
}

#[test]
fn what_is_set_aside_never_replaces_what_is_there() {
    let dir = temp();
    let store = Lmdb::at(dir.path());
    for (at, text) in ["one", "two", "three"].into_iter().enumerate() {
        store.plant(BlobNo(5), text.as_bytes());
        let sweep = Errand::Sweep { folder: 5, below: BlobNo(6) };
        assert_eq!(store.errand(sweep), Input::Swept { folder: 5, quarantined: 1 }, "{at}");
    }
    let text = |name: &str| std::fs::read_to_string(dir.path().join("quarantine").join(name));
    assert_eq!(text("05-5").expect("the first"), "one");
    assert_eq!(text("05-5.1").expect("the second"), "two");
    assert_eq!(text("05-5.2").expect("the third"), "three");
}

#[test]
fn a_directory_in_the_place_of_a_doomed_file_is_set_aside() {
    let dir = temp();
    let store = Lmdb::at(dir.path());
    let inside = blob_path(dir.path(), BlobNo(9)).join("inside");
    std::fs::create_dir_all(&inside).expect("directories");
    let unlinked = store.errand(Errand::Unlink(BlobNo(9)));
    assert_eq!(unlinked, Input::Unlinked { blob: BlobNo(9), result: Ok(()) });
    assert!(dir.path().join("quarantine/09-9/inside").exists());
}

#[test]
fn removals_that_wait_together_are_each_answered() {
    let dir = temp();
    let store = Lmdb::at(dir.path());
    let blobs: Vec<BlobNo> = (1..=600).map(BlobNo).collect();
    for blob in &blobs {
        store.plant(*blob, b"x");
    }
    use consign_core::store::Store;
    for blob in &blobs {
        store.store.errand(Errand::Unlink(*blob));
    }
    store.store.errand(Errand::Probe);
    let mut gone = std::collections::BTreeSet::new();
    for _ in &blobs {
        match store.answer() {
            Input::Unlinked { blob, result: Ok(()) } => assert!(gone.insert(blob)),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(store.answer(), Input::Space(_)));
    assert_eq!(store.files(), []);
}

#[test]
fn what_a_sweep_set_aside_goes_after_a_day_and_what_fsck_set_aside_stays() {
    let dir = temp();
    let store = Lmdb::at(dir.path());
    for blob in [5, 6] {
        store.plant(BlobNo(blob), b"orphan");
        let sweep = Errand::Sweep { folder: blob as u8, below: BlobNo(9) };
        assert_eq!(store.errand(sweep), Input::Swept { folder: blob as u8, quarantined: 1 });
    }
    drop(store);
    let aside = dir.path().join("quarantine");
    std::fs::write(aside.join("fsck-07-7"), b"the only copy").expect("it is written");
    let day = std::time::Duration::from_secs(25 * 3600);
    for name in ["05-5", "fsck-07-7"] {
        let file = std::fs::File::options().write(true).open(aside.join(name)).expect("a file");
        file.set_modified(std::time::SystemTime::now() - day).expect("it is older now");
    }
    let store = Lmdb::at(dir.path());
    // The remover looks before its first errand.
    store.errand(Errand::Sweep { folder: 1, below: BlobNo(9) });
    let there = |name: &str| aside.join(name).exists();
    assert_eq!((there("05-5"), there("06-6"), there("fsck-07-7")), (false, true, true));
}
