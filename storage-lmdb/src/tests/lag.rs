//! Tables that are written behind: nobody sees that they are.

use std::collections::BTreeMap;

use consign_core::id::BatchNo;
use consign_core::ledger::Table;
use consign_core::mem::contract::{Subject, pattern, scan};
use consign_core::store::{Batch, CommitFault, Snapshot};
use quickcheck::quickcheck;

use super::{Lmdb, memory, numbered, options, refused};
use crate::dir::name;
use crate::lag::Places;
use crate::ledger::{Db, Ledger};
use crate::shared::locked;
use crate::{Offline, OpenError};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(n: u64) -> [u8; 32] {
    *blake3::hash(&n.to_be_bytes()).as_bytes()
}

/// A batch that puts these ids and takes those away.
fn ids(number: u64, put: std::ops::Range<u64>, del: std::ops::Range<u64>) -> Batch {
    let mut batch = numbered(number);
    for n in put {
        batch.put_raw(Table::Ids, &key(n), &pattern(n, 12));
    }
    for n in del {
        batch.del(Table::Ids, &key(n));
    }
    batch
}

fn expected(there: impl Iterator<Item = u64>) -> Rows {
    there.map(|n| (key(n).to_vec(), pattern(n, 12).to_vec())).collect()
}

fn seen(snapshot: &dyn Snapshot) -> Rows {
    scan(snapshot, Table::Ids, &[]).into_iter().collect()
}

fn opened(dir: &std::path::Path) -> (heed::Env<heed::WithoutTls>, Ledger) {
    let env = Ledger::open_env(&dir.join(name::LEDGER), 1 << 30).expect("it opens");
    let ledger = Ledger::open(env.clone()).expect("it has its tables");
    (env, ledger)
}

/// Rows of the table `ids` itself, and of `lag`, in a directory that nobody has open.
fn on_disk(dir: &std::path::Path) -> (usize, usize) {
    let (env, ledger) = opened(dir);
    let txn = env.read_txn().expect("a transaction");
    let len = |db: &Db| db.len(&txn).expect("counted") as usize;
    let found = (len(ledger.table(Table::Ids)), len(&ledger.journal()));
    drop((txn, ledger));
    env.prepare_for_closing().wait();
    found
}

#[test]
fn rows_wait_until_there_are_many_and_then_go_where_they_belong() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    for number in 1..=3 {
        assert_eq!(store.commit(ids(number, number * 10..number * 10 + 10, 0..0)), Ok(()));
    }
    drop(store);
    assert_eq!(on_disk(dir.path()), (0, 3), "30 wait in the rows of 3 batches");
    let store = Lmdb::at(dir.path());
    assert_eq!(seen(&*store.snapshot()), expected(10..40));
    // The fourth makes 40, which are frozen; then each brings 10 and puts 20 in their place.
    for number in 4..=6 {
        assert_eq!(store.commit(ids(number, number * 10..number * 10 + 10, 0..0)), Ok(()));
    }
    assert_eq!(seen(&*store.snapshot()), expected(10..70));
    drop(store);
    assert_eq!(on_disk(dir.path()), (40, 2));
}

/// A row that was put in its place is there twice until all that was frozen with it is: that needs room.
#[test]
fn on_a_full_disk_what_is_frozen_waits_while_what_is_young_is_no_more_than_that() {
    let dir = memory();
    let commit = |store: &Lmdb, number: u64, relief: bool| {
        let mut batch = ids(number, number * 10..number * 10 + 10, 0..0);
        batch.free_ballast = relief;
        assert_eq!(store.commit(batch), Ok(()));
    };
    let store = Lmdb::at(dir.path());
    (1..=4).for_each(|number| commit(&store, number, false));
    (5..=7).for_each(|number| commit(&store, number, true));
    drop(store);
    assert_eq!(on_disk(dir.path()), (0, 7), "40 are frozen, 30 wait behind them");
    let store = Lmdb::at(dir.path());
    commit(&store, 8, true);
    drop(store);
    assert_eq!(on_disk(dir.path()), (20, 8), "memory is bounded all the same");
    let store = Lmdb::at(dir.path());
    commit(&store, 9, false);
    assert_eq!(seen(&*store.snapshot()), expected(10..100));
    drop(store);
    assert_eq!(on_disk(dir.path()), (40, 5));
}

#[test]
fn what_comes_and_goes_in_between_is_never_put_in_its_place() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    for number in 1..=40 {
        let gone = (number - 1) * 10..(number - 1) * 10 + 10;
        assert_eq!(store.commit(ids(number, number * 10..number * 10 + 10, gone)), Ok(()));
    }
    assert_eq!(seen(&*store.snapshot()), expected(400..410));
    drop(store);
    let (there, batches) = on_disk(dir.path());
    assert!(there <= 40 && batches <= 9, "{there} ids, {batches} batches");
}

#[test]
fn a_view_stays_what_it_was() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    let mut number = 0;
    let mut commit = |put: std::ops::Range<u64>, del: std::ops::Range<u64>| {
        number += 1;
        assert_eq!(store.commit(ids(number, put, del)), Ok(()));
    };
    for n in (10..200).step_by(10) {
        commit(n - 10..n, 0..0);
        let view = store.snapshot();
        assert_eq!(seen(&*view), expected(0..n));
        // Enough to have what it shows frozen and put in its place, and then taken away.
        for step in 0..9 {
            let gone = if step < 5 { 0..0 } else { 0..n };
            commit(1_000 + step * 20..1_020 + step * 20, gone);
        }
        assert_eq!(seen(&*view), expected(0..n));
        assert_eq!(view.get(Table::Ids, &key(n - 1)), Ok(Some(&pattern(n - 1, 12)[..])));
        drop(view);
        assert_eq!(seen(&*store.snapshot()), expected(1_000..1_180));
        commit(0..n, 1_000..1_180);
    }
}

#[test]
fn a_batch_that_fails_is_not_seen_and_one_that_took_effect_is() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    assert_eq!(store.commit(ids(1, 0..10, 0..0)), Ok(()));
    *locked(&store.store.shared.faults.before) = Some(libc::ENOSPC);
    assert!(matches!(store.commit(ids(2, 10..90, 0..5)), Err(CommitFault::Full(_))));
    assert_eq!(seen(&*store.snapshot()), expected(0..10));
    *locked(&store.store.shared.faults.after) = Some(libc::EIO);
    assert_eq!(store.commit(ids(2, 10..90, 0..5)), Ok(()));
    assert_eq!(seen(&*store.snapshot()), expected(5..90));
    assert_eq!(store.store.snapshot().map(|view| view.as_of()), Ok(BatchNo(2)));
}

#[test]
fn a_key_that_no_table_takes_breaks_the_batch_at_once() {
    for len in [0, 512] {
        let store = Lmdb::at(memory().path());
        let mut batch = numbered(1);
        batch.put_raw(Table::Ids, &vec![7; len], b"value");
        assert!(matches!(store.commit(batch), Err(CommitFault::Broken(_))), "{len}");
    }
}

#[test]
fn whoever_checks_sees_what_waits_and_whoever_repairs_has_it_in_its_place() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    for number in 1..=6 {
        let put = ids(number, number * 10..number * 10 + 10, 10..11);
        assert_eq!(store.commit(put), Ok(()));
    }
    drop(store);
    let there = expected(11..70);
    let before = on_disk(dir.path());
    assert!(before.1 > 0);
    let checked = Offline::to_read(&options(dir.path())).expect("it opens");
    let view = checked.snapshot().expect("a view");
    assert_eq!(seen(&view), there);
    assert_eq!(view.get(Table::Ids, &key(10)), Ok(None));
    assert_eq!(view.get(Table::Ids, &key(69)), Ok(Some(&pattern(69, 12)[..])));
    drop(view);
    drop(checked);
    assert_eq!(on_disk(dir.path()), before, "checking changes nothing");
    let mended = Offline::to_repair(&options(dir.path())).expect("it opens");
    assert_eq!(seen(&mended.snapshot().expect("a view")), there);
    drop(mended);
    assert_eq!(on_disk(dir.path()), (59, 0));
    assert_eq!(seen(&*Lmdb::at(dir.path()).snapshot()), there);
}

/// Flips a bit of a row of `lag`.
fn damage(dir: &std::path::Path, batch: u64) {
    let (env, ledger) = opened(dir);
    let mut txn = env.write_txn().expect("a transaction");
    let lag = ledger.journal();
    let key = batch.to_be_bytes();
    let mut value = lag.get(&txn, &key).expect("read").expect("there").to_vec();
    value[9] ^= 1;
    lag.put(&mut txn, &key, &value).expect("put");
    txn.commit().expect("committed");
    drop(ledger);
    env.prepare_for_closing().wait();
}

#[test]
fn a_damaged_row_is_told_of_and_repair_goes_on_without_it() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    for number in 1..=3 {
        assert_eq!(store.commit(ids(number, number * 10..number * 10 + 10, 0..0)), Ok(()));
    }
    drop(store);
    damage(dir.path(), 2);
    match refused(dir.path()) {
        OpenError::RowsUnreadable { why, .. } => assert!(why.contains("row 2 of lag"), "{why}"),
        other => panic!("{other}"),
    }
    let rest = expected((10..20).chain(30..40));
    let checked = Offline::to_read(&options(dir.path())).expect("it opens");
    assert_eq!(seen(&checked.snapshot().expect("a view")), rest);
    drop(checked);
    drop(Offline::to_repair(&options(dir.path())).expect("it opens"));
    assert_eq!(seen(&*Lmdb::at(dir.path()).snapshot()), rest);
}

quickcheck! {
    /// Scans that begin anywhere and end anywhere see what they would if nothing lagged.
    fn a_scan_may_begin_and_end_anywhere(batches: Vec<Vec<(u8, bool)>>, from: u8, most: u8) -> bool {
        let dir = memory();
        let store = Lmdb::at(dir.path());
        let mut rows = Rows::new();
        for (number, changes) in (1..).zip(batches) {
            let mut batch = numbered(number);
            for (n, put) in changes {
                if put {
                    batch.put_raw(Table::Ids, &[n, 0], &pattern(number, 9));
                    rows.insert(vec![n, 0], pattern(number, 9).to_vec());
                } else {
                    batch.del(Table::Ids, &[n, 0]);
                    rows.remove(&[n, 0][..]);
                }
            }
            assert_eq!(store.commit(batch), Ok(()));
        }
        let mut found = Vec::new();
        let view = store.snapshot();
        view.scan(Table::Ids, &[from], &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            found.len() < usize::from(most)
        })
        .expect("it is read");
        let wanted = rows.into_iter().filter(|(key, _)| key[0] >= from);
        wanted.take(usize::from(most).max(1)).eq(found)
    }
}

/// A site that is started again and again gets on with what waits, however little each life brings.
#[test]
fn what_waits_stays_bounded_over_many_short_lives() {
    let dir = memory();
    let mut number = 0;
    let mut most = (0, 0);
    for life in 0..60_u64 {
        let store = Lmdb::at(dir.path());
        for step in 0..1 + life % 3 {
            number += 1;
            let from = number * 10;
            assert_eq!(store.commit(ids(number, from..from + 10, 0..0)), Ok(()), "{life}.{step}");
        }
        assert_eq!(seen(&*store.snapshot()), expected(10..number * 10 + 10));
        drop(store);
        let (there, batches) = on_disk(dir.path());
        most = (most.0.max(batches), most.1.max(number as usize * 10 - there));
    }
    // 40 that are frozen, 20 more until they are all in place, and what was not put in place twice.
    assert!(most.0 <= 8 && most.1 <= 80, "{most:?}");
}

/// A ledger that has much more in `lag` than is frozen at a time, as one that was restored may have: it is
/// worked off from the oldest on, and never held up by what comes.
#[test]
fn much_that_waits_is_worked_off_in_the_order_it_came() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    drop(store);
    let (env, ledger) = opened(dir.path());
    let mut txn = env.write_txn().expect("a transaction");
    for number in 1..=30 {
        let late: Vec<([u8; 32], Vec<u8>)> =
            (number * 10..number * 10 + 10).map(|n| (key(n), pattern(n, 12).to_vec())).collect();
        let late: Vec<crate::lag::Late<'_>> =
            late.iter().map(|(key, value)| (Table::Ids, &key[..], Some(&value[..]))).collect();
        crate::lag::tell_only(&ledger, &mut txn, BatchNo(number), &late).expect("it is put");
    }
    let mut value = Vec::new();
    let name = consign_core::ledger::rows::MetaName::Batch.key();
    let row = consign_core::ledger::rows::MetaRow { value: 30 };
    consign_core::ledger::codec::encode(Table::Meta, name, &row, &mut value);
    ledger.table(Table::Meta).put(&mut txn, name, &value).expect("it is put");
    txn.commit().expect("committed");
    drop(ledger);
    env.prepare_for_closing().wait();
    let mut left = Vec::new();
    for number in 31..=50 {
        // Opened anew each time.
        let store = Lmdb::at(dir.path());
        assert_eq!(store.commit(ids(number, number * 10..number * 10 + 10, 0..0)), Ok(()));
        assert_eq!(seen(&*store.snapshot()), expected(10..number * 10 + 10));
        drop(store);
        left.push(on_disk(dir.path()).1);
    }
    assert!(left[0] >= 27 && left[19] <= 31 - 10, "{left:?}");
}
