//! A disk that is really full: small file systems, mounted in a namespace that ends with its process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use consign_core::id::{BatchNo, BlobNo, BodyNo};
use consign_core::ledger::rows::Body;
use consign_core::ledger::{Table, keys};
use consign_core::mem::contract::{Subject, conn, content, pattern};
use consign_core::node::Input;
use consign_core::store::{CommitFault, Errand, Space, StoreEvent, StoreFault, StoreRequest};

use super::{Lmdb, as_of, numbered, temp};

/// Where the child works; unset in the test run itself.
const DIR: &str = "CONSIGN_TEST_FULL_DIR";
/// What the child prints when it has seen everything.
const DONE: &str = "full disk: all seen";
/// What the shell prints when there is no such disk to be had.
const CANNOT: &str = "cannot mount";

/// Runs the child on a disk that `mount` makes on `$DIR`, in namespaces of these kinds.
fn on_disk(namespaces: &[&str], mount: &str) -> Output {
    let dir = temp();
    let exe = std::env::current_exe().expect("this binary");
    let script = format!(
        "{mount} || {{ echo '{CANNOT}'; exit 0; }}; exec \"$EXE\" --exact \
         tests::full::child_fills --include-ignored --nocapture --test-threads=1"
    );
    Command::new("unshare")
        .args(namespaces)
        .args(["sh", "-c", &script])
        .env(DIR, dir.path())
        .env("DIR", dir.path())
        .env("EXE", exe)
        .env("IMAGE", dir.path().with_extension("image"))
        .output()
        .expect("unshare is there")
}

fn judge(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if text.contains(CANNOT) || errors.starts_with("unshare:") {
        println!("skipped: {}", errors.trim());
        return;
    }
    assert!(output.status.success() && text.contains(DONE), "{text}\n{errors}");
    println!("{text}");
}

#[test]
fn a_full_file_system_in_memory() {
    judge(&on_disk(
        &["--mount", "--map-root-user"],
        "mount -t tmpfs -o size=16m,mode=700 none \"$DIR\"",
    ));
}

#[test]
fn a_full_file_system_on_a_device() {
    let image = "trap 'rm -f \"$IMAGE\"' EXIT; truncate -s 24M \"$IMAGE\" && \
                 mkfs.ext4 -q -m 0 \"$IMAGE\" && mount -o loop \"$IMAGE\" \"$DIR\" && \
                 rm -f \"$IMAGE\"";
    // Takes a real root: no other may mount a device.
    judge(&on_disk(&["--mount"], image));
}

#[test]
#[ignore = "runs in a child"]
fn child_fills() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let data = dir.join("data");
    std::fs::write(dir.join("outside"), vec![7u8; 4 << 20]).expect("there is room");
    let store = Lmdb::at(&data);
    let number = fill_the_ledger(&store);
    let number = relieve(&store, number);
    fill_a_file(&store);
    store.no_more_answers();
    start_on_a_full_disk(&dir, &data, number);
    println!("{DONE}");
}

fn growth(number: u64) -> consign_core::store::Batch {
    let mut batch = numbered(number);
    for n in 0..4 {
        let key = keys::body(BodyNo(number * 4 + n));
        batch.put_raw(Table::Bodies, &key, &pattern(number, 60_000));
    }
    batch
}

/// Commits until the disk is full; the number of the batch that failed.
fn fill_the_ledger(store: &Lmdb) -> u64 {
    for number in 1..1000 {
        let (committed, space) = store.try_commit(growth(number));
        match committed {
            Ok(()) => assert!(space.ballast_whole),
            Err(CommitFault::Full(why)) => {
                println!("full at batch {number}: {why}; {space:?}");
                assert!(number > 10, "the disk is not that small");
                assert_eq!(as_of(store), BatchNo(number - 1));
                // It stays full, and nothing is lost.
                let (again, space) = store.try_commit(growth(number + 1));
                assert!(matches!(again, Err(CommitFault::Full(_))), "{again:?}");
                assert!(space.ballast_whole, "the ballast is for relief");
                return number + 1;
            }
            Err(why) => panic!("{why}"),
        }
    }
    panic!("the disk is never full");
}

/// Relief gets through by the ballast, and makes room in the ledger; the number after it.
fn relieve(store: &Lmdb, failed: u64) -> u64 {
    let number = failed + 1;
    let mut relief = numbered(number);
    relief.free_ballast = true;
    for body in 4..4 * number {
        relief.del(Table::Bodies, &keys::body(BodyNo(body)));
    }
    let (committed, space) = store.try_commit(relief);
    assert_eq!(committed, Ok(()), "{space:?}");
    assert!(!space.ballast_whole, "{space:?}");
    // Deletions free pages of the ledger, not of the disk, so there is no room for the ballast.
    assert!(!probe(store).ballast_whole);
    for at in 1..=10 {
        assert_eq!(store.commit(growth(number + at)), Ok(()), "free pages are used again");
    }
    number + 11
}

fn probe(store: &Lmdb) -> Space {
    match store.errand(Errand::Probe) {
        Input::Space(space) => space,
        other => panic!("{other:?}"),
    }
}

/// A file that no longer fits fails alone, and its space comes back when it is removed.
fn fill_a_file(store: &Lmdb) {
    let blob = BlobNo(1);
    store.request(conn(1), StoreRequest::Create { blob, offset: 0 });
    for at in 0..400u64 {
        let data = pattern(at * 65_536, 65_536);
        store.request(conn(1), StoreRequest::Write { blob, data });
    }
    let failed = loop {
        match store.next().1 {
            StoreEvent::Written { .. } => {}
            other => break other,
        }
    };
    match failed {
        StoreEvent::WriteFailed { fault: StoreFault::Full(why), .. } => println!("file: {why}"),
        other => panic!("{other:?}"),
    }
    store.request(conn(1), StoreRequest::Abandon { blob });
    // The ledger goes on with what it has.
    assert!(content(store, Body::Blob(blob), 0, 10).is_ok());
    let unlinked = store.errand(Errand::Unlink(blob));
    assert_eq!(unlinked, Input::Unlinked { blob, result: Ok(()) });
}

/// A disk that is full from outside keeps nobody from starting; when there is room the ballast is
/// made whole.
fn start_on_a_full_disk(dir: &Path, data: &Path, number: u64) {
    let _ = std::fs::remove_file(data.join("ballast"));
    let filler = dir.join("filler");
    let filled = std::fs::write(&filler, vec![7u8; 64 << 20]);
    assert!(filled.is_err(), "the disk is full now");
    let store = Lmdb::at(data);
    assert_eq!(as_of(&store), BatchNo(number - 1));
    let space = probe(&store);
    assert!(!space.ballast_whole && space.free < 1 << 20, "{space:?}");
    std::fs::remove_file(&filler).expect("it was there");
    std::fs::remove_file(dir.join("outside")).expect("it was there");
    let space = probe(&store);
    assert!(space.ballast_whole && space.free >= 1 << 20, "{space:?}");
    assert_eq!(store.commit(growth(number)), Ok(()));
}
