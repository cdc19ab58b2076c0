//! The disk alone: which bytes and names a power cut may leave.

use std::collections::BTreeSet;

use consign_core::id::BlobNo;
use consign_core::mem::contract::pattern;

use super::super::disk::{Disk, PAGE, SECTOR, folder_of};
use crate::sim::rng::Rng;

const BLOB: BlobNo = BlobNo(0x105);
const FOLDER: u8 = 5;

/// What is under the number after a cut, over many cuts of the same disk.
fn left(prepare: impl Fn(&mut Disk)) -> BTreeSet<Option<Vec<u8>>> {
    (0..2000)
        .map(|seed| {
            let (mut disk, mut rng) = (Disk::default(), Rng::new(seed));
            prepare(&mut disk);
            disk.die(&mut rng);
            disk.cut(&mut rng);
            let held = disk.files().map(|(blob, len, _)| (blob, len));
            let data = disk.data(BLOB).map(<[u8]>::to_vec);
            let wanted = data.iter().map(|data| (BLOB, data.len() as u64));
            assert!(held.eq(wanted), "the lists agree");
            assert_eq!(disk.bytes(), data.as_ref().map_or(0, |data| data.len() as u64));
            data
        })
        .collect()
}

/// Whether each sector of what is left is what was written or zeros.
fn written_or_zero(left: &[u8], written: &[u8]) -> bool {
    left.len() <= written.len()
        && left.chunks(SECTOR).zip(written.chunks(SECTOR)).all(|(left, written)| {
            left == &written[..left.len()] || left.iter().all(|byte| *byte == 0)
        })
}

#[test]
fn a_file_and_its_folder_that_were_synced_are_there_byte_for_byte() {
    let data = pattern(1, 3 * PAGE + 100);
    let seen = left(|disk| {
        let file = disk.create(BLOB).expect("it is new");
        disk.append(file, &data);
        disk.sync(file);
        disk.sync_folder(FOLDER);
    });
    assert_eq!(seen, BTreeSet::from([Some(data.to_vec())]));
}

#[test]
fn a_file_without_its_folder_is_there_whole_or_not_at_all() {
    let data = pattern(1, 2 * PAGE);
    let seen = left(|disk| {
        let file = disk.create(BLOB).expect("it is new");
        disk.append(file, &data);
        disk.sync(file);
        disk.sync_folder(FOLDER + 1);
    });
    assert_eq!(seen, BTreeSet::from([None, Some(data.to_vec())]));
}

#[test]
fn unsynced_pages_are_kept_lost_or_torn_and_the_length_is_anything_between() {
    let data = pattern(1, 3 * PAGE + 700);
    let synced = PAGE + 100;
    let seen = left(|disk| {
        let file = disk.create(BLOB).expect("it is new");
        disk.append(file, &data[..synced]);
        disk.sync(file);
        disk.sync_folder(FOLDER);
        disk.append(file, &data[synced..]);
    });
    let mut kinds = BTreeSet::new();
    for left in seen {
        let left = left.expect("the name is durable");
        assert_eq!(left[..synced], data[..synced], "what was synced is there");
        // Sectors are counted from the file's beginning; the first is partly synced.
        let first = (synced / SECTOR + 1) * SECTOR;
        let rest = left.get(first..).unwrap_or_default();
        assert!(written_or_zero(rest, &data[first..]));
        let of_page = |page: usize| left.get(page * PAGE..(page + 1) * PAGE);
        if left.len() == synced {
            kinds.insert("nothing");
        }
        if left == data {
            kinds.insert("everything");
        }
        if left.len() == data.len() && left[first..].iter().all(|byte| *byte == 0) {
            kinds.insert("the length alone");
        }
        if of_page(2)
            .is_some_and(|page| page != &data[2 * PAGE..3 * PAGE] && page.iter().any(|b| *b != 0))
        {
            kinds.insert("torn");
        }
        if left.len() == data.len()
            && of_page(2).is_some_and(|page| page.iter().all(|byte| *byte == 0))
            && left[3 * PAGE..] == data[3 * PAGE..]
        {
            kinds.insert("out of order");
        }
    }
    let all = ["everything", "nothing", "out of order", "the length alone", "torn"];
    assert_eq!(kinds, BTreeSet::from(all));
}

#[test]
fn a_file_that_was_cut_to_go_on_keeps_what_stands_before_and_may_have_old_bytes_behind() {
    let (old, new) = (pattern(1, 3 * PAGE), pattern(9000, 2 * PAGE));
    let seen = left(|disk| {
        let file = disk.create(BLOB).expect("it is new");
        disk.append(file, &old);
        disk.sync(file);
        disk.sync_folder(FOLDER);
        disk.close(file);
        let file = disk.reopen(BLOB, PAGE as u64).expect("it is long enough");
        disk.append(file, &new);
    });
    let (mut with_old, mut with_new) = (0, 0);
    for left in seen {
        let left = left.expect("the name is durable");
        assert_eq!(left[..PAGE], old[..PAGE]);
        assert!(left.len() <= old.len());
        for (at, sector) in left.chunks(SECTOR).enumerate().skip(PAGE / SECTOR) {
            let (from, to) = (at * SECTOR, at * SECTOR + sector.len());
            let is_old = sector == &old[from..to];
            let is_new = sector == &new[from - PAGE..to - PAGE];
            // The process had handed in less than it wrote: a sector may end between the two.
            let mixed = (from..to).all(|b| left[b] == old[b] || left[b] == new[b - PAGE]);
            assert!(mixed, "sector {at}");
            with_old += usize::from(is_old);
            with_new += usize::from(is_new);
        }
    }
    assert!(with_old > 0 && with_new > 0);
}

#[test]
fn a_removal_is_durable_with_its_folder_and_else_undone_or_not() {
    let data = pattern(1, 10);
    let removed = |synced: bool| {
        left(|disk| {
            disk.plant(BLOB, &data);
            assert!(disk.unlink(BLOB));
            assert_eq!(disk.data(BLOB), None);
            if synced {
                assert_eq!(disk.sync_folder(FOLDER), [BLOB]);
            }
        })
    };
    assert_eq!(removed(true), BTreeSet::from([None]));
    assert_eq!(removed(false), BTreeSet::from([None, Some(data.to_vec())]));
}

#[test]
fn what_was_set_aside_is_in_one_of_two_places() {
    for seed in 0..50 {
        let (mut disk, mut rng) = (Disk::default(), Rng::new(seed));
        disk.plant(BLOB, b"orphan");
        assert!(disk.quarantine(BLOB));
        let lost = disk.cut(&mut rng);
        let aside: Vec<BlobNo> = disk.set_aside().collect();
        let in_place = disk.data(BLOB) == Some(b"orphan");
        assert_eq!((aside.is_empty(), lost.is_empty()), (in_place, in_place));
        assert_eq!(disk.bytes(), 6);
    }
}

#[test]
fn a_file_that_was_removed_while_open_takes_writes_and_is_freed_with_its_end() {
    let mut disk = Disk::default();
    let file = disk.create(BLOB).expect("it is new");
    disk.append(file, b"some");
    assert!(disk.unlink(BLOB));
    disk.append(file, b" more");
    assert_eq!((disk.len(file), disk.bytes()), (9, 9));
    disk.sync(file);
    assert_eq!(disk.finish(BLOB, file), None, "it has no name");
    disk.close(file);
    assert_eq!(disk.bytes(), 9, "until the removal is durable");
    disk.sync_folder(folder_of(BLOB));
    assert_eq!(disk.bytes(), 0);
}

#[test]
fn a_file_is_finished_only_if_bytes_and_name_are_durable() {
    let mut disk = Disk::default();
    let file = disk.create(BLOB).expect("it is new");
    disk.append(file, b"bytes");
    disk.sync_folder(FOLDER);
    assert_eq!(disk.finish(BLOB, file), None);
    disk.sync(file);
    assert!(disk.finish(BLOB, file).is_some());
    assert_eq!(disk.files().collect::<Vec<_>>(), [(BLOB, 5, true)]);
}
