//! Opening: who is let in, and what is refused.

use std::fs;
use std::path::Path;

use consign_core::id::{BatchNo, BlobNo};
use consign_core::ledger::rows::{MetaName, MetaRow};
use consign_core::ledger::{Table, keys};
use consign_core::mem::contract::{Subject, pattern};

use super::{Lmdb, as_of, blob_path, numbered, options, refused, temp};
use crate::{LmdbStore, Offline, OpenError, OpenOptions, shape};

/// A directory with a ledger of a few hundred pages and a content file.
fn filled(dir: &Path) {
    let store = Lmdb::at(dir);
    let mut batch = numbered(1);
    batch.put(Table::Meta, MetaName::NextBlob.key(), &MetaRow { value: 8 });
    for n in 0..500u64 {
        batch.put_raw(Table::Audit, &keys::audit(n), &pattern(n, 1000));
    }
    assert_eq!(store.commit(batch), Ok(()));
    store.plant(BlobNo(7), b"content");
}

/// Every path below a directory with its bytes; the lock file's pid aside.
fn listing(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(dir).expect("below").display().to_string();
            if path.is_dir() {
                found.push((name, Vec::new()));
                todo.push(path);
            } else if name != "lock" && name != "ledger/lock.mdb" {
                found.push((name, fs::read(&path).expect("a file")));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn what_was_committed_is_there_when_it_is_opened_again() {
    let dir = temp();
    filled(dir.path());
    let (store, recovery) = Lmdb::open(&options(dir.path()));
    assert_eq!(as_of(&store), BatchNo(1));
    assert!(recovery.meta.contains(&(MetaName::NextBlob, 8)));
    assert!(recovery.meta.contains(&(MetaName::Batch, 1)));
}

#[test]
fn parents_are_made() {
    let dir = temp();
    let deep = dir.path().join("a/b/c");
    drop(Lmdb::at(&deep));
    assert!(deep.join("FORMAT").exists());
}

#[test]
fn a_second_instance_is_refused_and_changes_nothing() {
    let dir = temp();
    filled(dir.path());
    let store = Lmdb::at(dir.path());
    let before = listing(dir.path());
    let why = refused(dir.path());
    match &why {
        OpenError::Locked { pid, .. } => assert_eq!(*pid, Some(std::process::id())),
        other => panic!("{other}"),
    }
    assert!(why.to_string().contains(&format!("process {}", std::process::id())), "{why}");
    // By any name of the directory.
    let link = temp();
    let other = link.path().join("other");
    std::os::unix::fs::symlink(dir.path(), &other).expect("a link");
    assert!(matches!(refused(&other), OpenError::Locked { .. }));
    assert_eq!(listing(dir.path()), before);
    drop(store);
    drop(Lmdb::at(dir.path()));
}

#[test]
fn a_ledger_that_is_missing_beside_content_is_not_made_anew() {
    let dir = temp();
    filled(dir.path());
    fs::remove_file(dir.path().join("ledger/data.mdb")).expect("it was there");
    let before = listing(dir.path());
    let why = refused(dir.path());
    assert!(matches!(why, OpenError::LedgerMissing { .. }), "{why}");
    assert!(why.to_string().contains("consign fsck --restored"), "{why}");
    fs::remove_dir_all(dir.path().join("ledger")).expect("it was there");
    assert!(matches!(refused(dir.path()), OpenError::LedgerMissing { .. }));
    // Also without the marker, as long as there is content.
    fs::remove_file(dir.path().join("FORMAT")).expect("it was there");
    assert!(matches!(refused(dir.path()), OpenError::LedgerMissing { .. }));
    fs::remove_file(blob_path(dir.path(), BlobNo(7))).expect("it was there");
    let left = listing(dir.path());
    assert!(before.len() > left.len());
    drop(Lmdb::at(dir.path()));
}

#[test]
fn a_directory_without_any_of_it_is_not_said_to_have_content() {
    let dir = temp();
    let at = || OpenOptions::new(dir.path());
    let all = [Offline::to_read(&at()), Offline::to_repair(&at())];
    for refused in all {
        let why = refused.expect_err("there is nothing to open");
        assert!(matches!(why, OpenError::NoSite { .. }), "{why}");
        assert!(!why.to_string().contains("beside"), "{why}");
    }
    // Content alone is something to put a ledger beside.
    filled(dir.path());
    fs::remove_dir_all(dir.path().join("ledger")).expect("it was there");
    fs::remove_file(dir.path().join("FORMAT")).expect("it was there");
    let why = Offline::to_read(&at()).expect_err("there is no ledger");
    assert!(matches!(why, OpenError::LedgerMissing { .. }), "{why}");
}

#[test]
fn an_empty_ledger_is_refused() {
    let dir = temp();
    filled(dir.path());
    let file = dir.path().join("ledger/data.mdb");
    fs::write(&file, b"").expect("it is emptied");
    assert!(matches!(refused(dir.path()), OpenError::LedgerEmpty { .. }));
    assert_eq!(fs::metadata(&file).expect("it is there").len(), 0);
    // A ledger without a row beside content is no better.
    let fresh = temp();
    drop(Lmdb::at(fresh.path()));
    fs::copy(fresh.path().join("ledger/data.mdb"), &file).expect("it is copied");
    assert!(matches!(refused(dir.path()), OpenError::LedgerEmpty { .. }));
}

#[test]
fn a_ledger_that_was_cut_short_is_refused_wherever_it_was_cut() {
    let dir = temp();
    filled(dir.path());
    let file = dir.path().join("ledger/data.mdb");
    let whole = fs::read(&file).expect("the ledger");
    assert_eq!(shape::check(&file), Ok(()));
    let pages = whole.len() / 4096;
    assert!(pages > 100);
    for keep in [pages - 1, pages - 2, pages / 2, 3, 2] {
        fs::write(&file, &whole[..keep * 4096]).expect("it is cut");
        let why = refused(dir.path());
        assert!(matches!(why, OpenError::LedgerTruncated { .. }), "{keep} pages: {why}");
    }
    for keep in [1, 4095, 4096] {
        fs::write(&file, &whole[..keep]).expect("it is cut");
        let why = refused(dir.path());
        assert!(matches!(why, OpenError::LedgerUnreadable { .. }), "{keep} bytes: {why}");
    }
    fs::write(&file, &whole).expect("it is whole");
    assert_eq!(as_of(&Lmdb::at(dir.path())), BatchNo(1));
}

#[test]
fn a_file_that_ends_before_free_pages_is_taken() {
    let dir = temp();
    let file = dir.path().join("ledger/data.mdb");
    {
        let store = Lmdb::at(dir.path());
        // A list of free pages of some size, in records of several transactions.
        for number in 1..=40 {
            let mut batch = numbered(number);
            for n in 0..50 {
                let key = keys::audit(number % 7 * 100 + n);
                batch.put_raw(Table::Audit, &key, &pattern(number, 1500));
                batch.del(Table::Audit, &keys::audit((number + 2) % 7 * 100 + n));
            }
            assert_eq!(store.commit(batch), Ok(()));
        }
        // Pages at the end that one transaction takes and gives back are never written.
        let mut batch = numbered(41);
        batch.put_raw(Table::Bodies, &keys::audit(1), &pattern(0, 3 << 20));
        batch.del(Table::Bodies, &keys::audit(1));
        assert_eq!(store.commit(batch), Ok(()));
    }
    let len = fs::metadata(&file).expect("it is there").len();
    let env = crate::ledger::Ledger::open_env(&dir.path().join("ledger"), 1 << 30);
    let env = env.expect("it opens");
    let need = (env.info().last_page_number as u64 + 1) * 4096;
    env.prepare_for_closing().wait();
    assert!(len < need, "{len} bytes of {need}: nothing is tested");
    assert_eq!(shape::check(&file), Ok(()));
    assert_eq!(as_of(&Lmdb::at(dir.path())), BatchNo(41));
}

#[test]
fn garbage_is_refused() {
    let dir = temp();
    filled(dir.path());
    let file = dir.path().join("ledger/data.mdb");
    for byte in [0u8, 0xff, b'x'] {
        fs::write(&file, vec![byte; 1 << 20]).expect("it is written");
        let why = refused(dir.path());
        assert!(matches!(why, OpenError::LedgerUnreadable { .. }), "{byte}: {why}");
    }
}

#[test]
fn a_newer_or_unknown_format_is_refused() {
    let dir = temp();
    filled(dir.path());
    let marker = dir.path().join("FORMAT");
    fs::write(&marker, "consign ledger format 2\n").expect("it is written");
    let before = listing(dir.path());
    let why = refused(dir.path());
    assert!(matches!(why, OpenError::Newer { found: 2, reads: 1, .. }), "{why}");
    for text in ["", "consign", "consign ledger format one\n", "something else"] {
        fs::write(&marker, text).expect("it is written");
        assert!(matches!(refused(dir.path()), OpenError::Marker(_)), "{text}");
    }
    fs::remove_file(&marker).expect("it was there");
    assert!(matches!(refused(dir.path()), OpenError::MarkerMissing { .. }));
    fs::write(&marker, "consign ledger format 2\n").expect("it is written");
    assert_eq!(listing(dir.path()), before);
}

#[test]
fn making_a_directory_can_be_broken_off_anywhere() {
    let whole = temp();
    drop(Lmdb::at(whole.path()));
    // After the lock; with a ledger half made; with a whole one that is not marked yet.
    let dir = temp();
    fs::write(dir.path().join("lock"), "").expect("it is written");
    drop(Lmdb::at(dir.path()));
    let dir = temp();
    fs::create_dir(dir.path().join("ledger.new")).expect("a directory");
    fs::write(dir.path().join("ledger.new/data.mdb"), [0; 5000]).expect("it is written");
    drop(Lmdb::at(dir.path()));
    assert!(!dir.path().join("ledger.new").exists());
    fs::remove_file(dir.path().join("FORMAT")).expect("it was there");
    drop(Lmdb::at(dir.path()));
    assert_eq!(
        fs::read(dir.path().join("FORMAT")).expect("it is there"),
        b"consign ledger format 1\n"
    );
}

#[test]
fn a_file_system_in_memory_is_refused_unless_forced() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no /dev/shm");
        return;
    };
    let deep = dir.path().join("not/there/yet");
    let why = LmdbStore::open(&OpenOptions::new(&deep)).expect_err("it is refused");
    assert!(matches!(why, OpenError::FileSystem { .. }), "{why}");
    assert!(!dir.path().join("not").exists());
    drop(Lmdb::at(&deep));
}

#[test]
fn the_map_is_halved_until_it_fits() {
    let dir = temp();
    let mut huge = options(dir.path());
    huge.map_bytes = 1 << 62;
    let (store, _) = Lmdb::open(&huge);
    assert_eq!(store.commit(numbered(1)), Ok(()));
}

#[test]
fn the_ballast_is_made_whole_at_the_start() {
    let dir = temp();
    drop(Lmdb::at(dir.path()));
    let ballast = dir.path().join("ballast");
    assert_eq!(fs::metadata(&ballast).expect("it is there").len(), 1 << 20);
    fs::write(&ballast, b"short").expect("it is cut");
    let store = Lmdb::at(dir.path());
    assert_eq!(fs::metadata(&ballast).expect("it is there").len(), 1 << 20);
    let mut relief = numbered(1);
    relief.free_ballast = true;
    let (committed, space) = store.try_commit(relief);
    assert_eq!(committed, Ok(()));
    // There is room, so it is back at once.
    assert!(space.ballast_whole);
    assert_eq!(fs::metadata(&ballast).expect("it is there").len(), 1 << 20);
}
