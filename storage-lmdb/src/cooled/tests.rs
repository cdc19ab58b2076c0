//! Places in maps and in the file, and that nothing but speed depends on what is let go.

use std::os::unix::fs::FileExt;

use consign_core::id::{BatchNo, ConnId, Handle};
use consign_core::ledger::rows::{MetaName, MetaRow};
use consign_core::store::{Batch, Store, StoreRequest};
use tempfile::TempDir;

use super::*;
use crate::tests::Lmdb;

const MAPS: &str = "\
55d0a0000000-55d0a0100000 r-xp 00001000 fe:00 1234                       /usr/bin/consign
7f0000000000-7f0000400000 r--s 00000000 fe:00 42                         /srv/a place/ledger/data.mdb
7f0000400000-7f0000800000 r--s 00400000 fe:00 42                         /srv/a place/ledger/data.mdb
7f0000800000-7f0000801000 rw-p 00000000 00:00 0
nonsense
";

#[test]
fn a_map_begins_where_its_file_does() {
    for (address, begin) in [
        (0x7f00_0000_0000, Some(0x7f00_0000_0000)),
        (0x7f00_0040_0000, Some(0x7f00_0000_0000)),
        (0x7f00_007f_ffff, Some(0x7f00_0000_0000)),
        (0x55d0_a000_0010, Some(0x55d0_9fff_f000)),
        (0x7f00_0080_1000, None),
        (0, None),
    ] {
        assert_eq!(begin_of_map(MAPS, address), begin, "{address:x}");
    }
    assert_eq!(begin_of_map("", 0x7f00_0000_0000), None);
}

#[test]
fn the_newest_are_kept_and_the_others_go_in_order() {
    fn check(bodies: Vec<(u8, bool)>, kept: u16) -> bool {
        let (mut recent, kept) = (Recent::default(), u64::from(kept) * PIECE / 16);
        let (mut at, mut written, mut gone) = (0, Vec::new(), Vec::new());
        for (pages, apart) in bodies {
            at += u64::from(apart);
            let place = at..at + (u64::from(pages) + 1) * (PIECE / 8);
            at = place.end;
            written.push(place.clone());
            recent.push(place);
            gone.extend(std::iter::from_fn(|| recent.pop_over(kept)));
        }
        let bytes = |places: &[Range<u64>]| places.iter().map(|p| p.end - p.start).sum::<u64>();
        let held: Vec<Range<u64>> = recent.places.iter().cloned().collect();
        // One after the other, they cover what was written, and what is held is the end of it.
        let all = [gone, held.clone()].concat();
        let ordered = all.windows(2).all(|two| matches!(two, [a, b] if a.end <= b.start));
        recent.bytes == bytes(&held)
            && recent.bytes <= kept
            && bytes(&all) == bytes(&written)
            && ordered
    }
    quickcheck::quickcheck(check as fn(Vec<(u8, bool)>, u16) -> bool);
}

const CONN: ConnId = ConnId { slot: 1, generation: 1 };

/// Commits one body for each length; their numbers.
fn commit_bodies(lmdb: &Lmdb, lengths: &[usize]) -> Vec<BodyNo> {
    let mut batch = Batch::new(BatchNo(1));
    let numbers: Vec<BodyNo> = (1..).map(BodyNo).take(lengths.len()).collect();
    for (number, len) in numbers.iter().zip(lengths) {
        let handle = Handle { conn: CONN, number: number.0 as u32 };
        let data = bytes::Bytes::from(body(*number, *len));
        lmdb.store.request(CONN, StoreRequest::Park { handle, data });
        batch.put_body(*number, handle, *len);
    }
    let key = MetaName::Batch.key();
    batch.put(Table::Meta, key, &MetaRow { value: 1 });
    lmdb.try_commit(batch).0.expect("it is committed");
    numbers
}

fn body(number: BodyNo, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u64 * 7 + number.0 * 31) as u8).collect()
}

#[test]
fn the_place_of_a_body_is_where_the_file_has_it() {
    let dir = TempDir::new().expect("a directory");
    let lmdb = Lmdb::at(dir.path());
    let lengths = [64 << 10, FROM, FROM - 1, 100, 40_000];
    let numbers = commit_bodies(&lmdb, &lengths);
    let shared = &lmdb.store.shared;
    let file = fs::File::open(dir::ledger_file(dir.path())).expect("the ledger");
    let mut cooled = Cooled::new(dir.path());
    let snapshot = shared.ledger.snapshot().expect("a view");
    for (number, len) in numbers.into_iter().zip(lengths) {
        let place = cooled.place(&snapshot, number).expect("the ledger can be read");
        let Some(place) = place else {
            assert!(len < FROM, "{len} bytes have no place");
            continue;
        };
        let mut pages = vec![0; (place.end - place.start) as usize];
        file.read_exact_at(&mut pages, place.start).expect("the pages are there");
        let body = body(number, len);
        let at = pages.windows(len).position(|window| window == body.as_slice());
        assert!(at.is_some_and(|at| at < 64), "{len} bytes stand at {at:?} of {place:?}");
    }
}

#[test]
fn what_was_let_go_is_read_as_before() {
    let dir = TempDir::new().expect("a directory");
    let lmdb = Lmdb::at(dir.path());
    let lengths = [64 << 10; 20];
    let numbers = commit_bodies(&lmdb, &lengths);
    let shared = &lmdb.store.shared;
    let mut cooled = Cooled::new(dir.path());
    let snapshot = shared.ledger.snapshot().expect("a view");
    // Read before, while and after: a view holds on to memory that is taken from under it.
    let rows: Vec<&[u8]> = numbers
        .iter()
        .map(|number| snapshot.get(Table::Bodies, &keys::body(*number)).expect("a read"))
        .map(|row| row.expect("a row"))
        .collect();
    for (number, row) in numbers.iter().zip(&rows) {
        assert_eq!(*row, body(*number, 64 << 10));
        let place = cooled.place(&snapshot, *number).expect("a read").expect("a place");
        cooled.let_go(&place);
        assert_eq!(*row, body(*number, 64 << 10));
    }
}

#[test]
fn without_the_file_nothing_is_let_go() {
    let dir = TempDir::new().expect("a directory");
    let mut cooled = Cooled::new(dir.path());
    cooled.writes(BodyNo(1), 64 << 10);
    assert!(cooled.fresh.is_empty());
}
