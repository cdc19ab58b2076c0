//! Killed processes. A child runs the test binary again, on a directory named in its environment.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use consign_core::id::BatchNo;
use consign_core::ledger::{Table, keys};
use consign_core::mem::contract::{Subject, pattern, scan};

use super::{Lmdb, as_of, memory, numbered};

/// Where a child works; unset in the test run itself.
const DIR: &str = "CONSIGN_TEST_CHILD_DIR";

/// Starts a test of this module in a process of its own.
fn child(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", test, "--nocapture", "--test-threads=1", "--include-ignored"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts")
}

/// Reads lines of a child until `want` is satisfied by one.
fn wait_for<T>(child: &mut Child, want: impl Fn(&str) -> Option<T>) -> T {
    let out = child.stdout.as_mut().expect("it is piped");
    let mut lines = BufReader::new(out).lines();
    loop {
        let line = lines.next().expect("the child says so before it ends").expect("text");
        if let Some(found) = want(&line) {
            return found;
        }
    }
}

/// A key of a table that is written behind: at a random place, the same each time.
fn scattered(batch: u64, n: u64) -> [u8; 32] {
    *blake3::hash(&(batch * 50 + n).to_be_bytes()).as_bytes()
}

/// Commits without end, saying after each commit that it is durable.
#[test]
#[ignore = "runs in a child"]
fn child_commits() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let store = Lmdb::at(Path::new(&dir));
    let from = as_of(&store).0;
    for number in from + 1.. {
        let mut batch = numbered(number);
        for n in 0..50 {
            batch.put_raw(Table::Audit, &keys::audit(number * 50 + n), &pattern(n, 500));
            // Written behind; of those of ten batches before, every other goes again.
            batch.put_raw(Table::Ids, &scattered(number, n), &pattern(n, 20));
            if n % 2 == 0 && number > 10 {
                batch.del(Table::Ids, &scattered(number - 10, n));
            }
        }
        assert_eq!(store.commit(batch), Ok(()));
        println!("committed {number}");
    }
}

/// Holds a write transaction with rows in it, uncommitted, and says so.
#[test]
#[ignore = "runs in a child"]
fn child_puts() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let store = Lmdb::at(Path::new(&dir));
    let ledger = &store.store.shared.ledger;
    let mut txn = ledger.write_txn().expect("a transaction");
    for n in 0..5000 {
        let put = ledger.table(Table::Audit).put(&mut txn, &keys::audit(n), &pattern(n, 2000));
        put.expect("it is put");
    }
    println!("put");
    // Until it is killed.
    let _ = std::io::stdin().read_line(&mut String::new());
    txn.abort();
}

fn kill(mut child: Child) {
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
}

#[test]
fn a_process_killed_between_put_and_commit_leaves_nothing() {
    let dir = memory();
    assert_eq!(Lmdb::at(dir.path()).commit(numbered(1)), Ok(()));
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "tests::crash::child_puts", "--nocapture", "--include-ignored"])
        .env(DIR, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    wait_for(&mut child, |line| line.ends_with("put").then_some(()));
    kill(child);
    let store = Lmdb::at(dir.path());
    assert_eq!(as_of(&store), BatchNo(1));
    assert!(scan(&*store.snapshot(), Table::Audit, &[]).is_empty());
    assert_eq!(store.commit(numbered(2)), Ok(()));
}

#[test]
fn a_process_killed_at_any_time_keeps_what_it_said_it_committed() {
    let dir = memory();
    let mut last = 0;
    for round in 1..=5u64 {
        let mut child = child("tests::crash::child_commits", dir.path());
        let enough = last + round * 7;
        let said = wait_for(&mut child, |line| {
            let number = line.split("committed ").nth(1)?.parse::<u64>().ok()?;
            (number >= enough).then_some(number)
        });
        kill(child);
        let store = Lmdb::at(dir.path());
        let BatchNo(found) = as_of(&store);
        assert!(found >= said, "{found} found, {said} said to be committed");
        let rows = scan(&*store.snapshot(), Table::Audit, &[]);
        assert_eq!(rows.len() as u64, found * 50, "whole batches only");
        let mut ids = std::collections::BTreeSet::new();
        for number in 1..=found {
            let gone = |n: u64| n.is_multiple_of(2) && number + 10 <= found;
            ids.extend((0..50).filter(|n| !gone(*n)).map(|n| scattered(number, n).to_vec()));
        }
        let there = scan(&*store.snapshot(), Table::Ids, &[]);
        assert!(there.iter().map(|(key, _)| key).eq(&ids), "what is written behind is whole too");
        last = found;
    }
}

#[test]
fn a_lock_ends_with_its_process() {
    let dir = memory();
    let mut child = child("tests::crash::child_commits", dir.path());
    wait_for(&mut child, |line| line.contains("committed ").then_some(()));
    match super::refused(dir.path()) {
        crate::OpenError::Locked { pid, .. } => assert_eq!(pid, Some(child.id())),
        other => panic!("{other}"),
    }
    kill(child);
    drop(Lmdb::at(dir.path()));
}
