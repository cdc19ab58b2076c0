//! Random batches, failures and reopenings: LMDB does what the store in memory does.

use consign_core::id::BodyNo;
use consign_core::ledger::{Table, keys};
use consign_core::mem::MemStore;
use consign_core::mem::contract::{Subject, conn, pattern, scan};
use consign_core::node::Input;
use consign_core::store::{Batch, CommitFault, StoreRequest};
use quickcheck::{Arbitrary, Gen, QuickCheck};

use super::{Lmdb, numbered, temp};
use crate::shared::locked;

/// Tables that random batches touch: one that appends, one random, one of bare keys, the bodies.
const TABLES: [Table; 4] = [Table::Segments, Table::Ids, Table::Due, Table::Bodies];

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u16, u16),
    Del(u8, u16),
    Body(u16, u16),
}

impl Arbitrary for Step {
    fn arbitrary(g: &mut Gen) -> Step {
        let key = u16::arbitrary(g) % 300;
        match u8::arbitrary(g) % 8 {
            0..4 => Step::Put(u8::arbitrary(g) % 4, key, u16::arbitrary(g) % 6000),
            4..7 => Step::Del(u8::arbitrary(g) % 4, key),
            _ => Step::Body(key, u16::arbitrary(g) % 9000),
        }
    }
}

#[derive(Clone, Debug)]
enum Turn {
    Commit(Vec<Step>),
    Fail(Vec<Step>),
    Reopen,
}

impl Arbitrary for Turn {
    fn arbitrary(g: &mut Gen) -> Turn {
        let steps = Vec::arbitrary(g);
        match u8::arbitrary(g) % 12 {
            0 => Turn::Fail(steps),
            1 => Turn::Reopen,
            _ => Turn::Commit(steps),
        }
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Turn>> {
        match self.clone() {
            Turn::Commit(steps) => Box::new(steps.shrink().map(Turn::Commit)),
            Turn::Fail(steps) => Box::new(steps.shrink().map(Turn::Fail)),
            Turn::Reopen => Box::new(std::iter::empty()),
        }
    }
}

fn table(at: u8) -> Table {
    TABLES.into_iter().cycle().nth(usize::from(at)).expect("a cycle has no end")
}

/// The batch of these steps; its bodies are parked in both stores.
fn batch(number: u64, steps: &[Step], lmdb: &Lmdb, mem: &mut MemStore) -> Batch {
    let mut batch = numbered(number);
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Put(t, key, len) => {
                batch.put_raw(table(t), &key.to_be_bytes(), &pattern(number, usize::from(len)));
            }
            Step::Del(t, key) => batch.del(table(t), &key.to_be_bytes()),
            Step::Body(key, len) => {
                let number = number * 1000 + at as u64;
                let handle = consign_core::id::Handle { conn: conn(1), number: number as u32 };
                let data = pattern(number, usize::from(len));
                let park = || StoreRequest::Park { handle, data: data.clone() };
                lmdb.request(conn(1), park());
                mem.request(conn(1), park());
                batch.put_body(BodyNo(u64::from(key)), handle, usize::from(len));
            }
        }
    }
    batch
}

fn same(lmdb: &Lmdb, mem: &MemStore) -> bool {
    let (left, right) = (lmdb.snapshot(), mem.snapshot());
    let rows = |table: Table| scan(&*left, table, &[]) == scan(&right, table, &[]);
    let from = keys::body(BodyNo(150));
    Table::ALL.iter().all(|table| rows(*table))
        && scan(&*left, Table::Bodies, &from) == scan(&right, Table::Bodies, &from)
}

fn agrees(turns: Vec<Turn>) -> bool {
    let dir = temp();
    let mut lmdb = Lmdb::at(dir.path());
    let mut mem = MemStore::new();
    let mut number = 0;
    for turn in turns {
        match turn {
            Turn::Commit(steps) => {
                number += 1;
                let batch = batch(number, &steps, &lmdb, &mut mem);
                let expected = mem.commit(&batch);
                assert!(matches!(expected, Input::Committed { .. }));
                assert_eq!(lmdb.commit(batch), Ok(()));
            }
            Turn::Fail(steps) => {
                number += 1;
                let batch = batch(number, &steps, &lmdb, &mut mem);
                *locked(&lmdb.store.shared.faults.before) = Some(libc::ENOSPC);
                assert!(matches!(lmdb.commit(batch.clone()), Err(CommitFault::Full(_))));
                mem.fail_commit(1, CommitFault::Full("planted".to_owned()));
                mem.commit(&batch);
                assert_eq!(mem.parked(), 0);
            }
            Turn::Reopen => {
                drop(lmdb);
                lmdb = Lmdb::at(dir.path());
            }
        }
        if !same(&lmdb, &mem) {
            return false;
        }
    }
    true
}

#[test]
fn random_batches_leave_what_they_leave_in_memory() {
    let tests = if cfg!(debug_assertions) { 25 } else { 100 };
    QuickCheck::new().tests(tests).quickcheck(agrees as fn(Vec<Turn>) -> bool);
}
