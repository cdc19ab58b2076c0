//! Random batches, failures and reopenings, random writes, syncs and resumptions of files: the disk
//! holds what the store in memory holds.

use consign_core::id::{BlobNo, BodyNo, ConnId};
use consign_core::ledger::{Table, keys};
use consign_core::mem::MemStore;
use consign_core::mem::contract::{Subject, conn, pattern, scan};
use consign_core::node::Input;
use consign_core::store::{Batch, CommitFault, StoreEvent, StoreRequest};
use quickcheck::{Arbitrary, Gen, QuickCheck};

use super::{Lmdb, memory, numbered};
use crate::shared::locked;

/// Tables that random batches touch: one that appends, two that lag, one of bare keys, the bodies.
const TABLES: [Table; 5] =
    [Table::Segments, Table::Ids, Table::Remembered, Table::Due, Table::Bodies];

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
            0..4 => Step::Put(u8::arbitrary(g) % 5, key, u16::arbitrary(g) % 6000),
            4..7 => Step::Del(u8::arbitrary(g) % 5, key),
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
    let dir = memory();
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

/// What is done to one of three files.
#[derive(Clone, Debug)]
enum Act {
    Write(usize),
    Sync,
    /// The connection ends; another goes on from what is durable.
    Resume,
}

impl Arbitrary for Act {
    fn arbitrary(g: &mut Gen) -> Act {
        let len = usize::from(u16::arbitrary(g));
        match u8::arbitrary(g) % 8 {
            0 => Act::Sync,
            1 => Act::Resume,
            2 => Act::Write(len * 20),
            3 => Act::Write(len / 4096 * 4096),
            _ => Act::Write(len),
        }
    }
}

/// A file being written in both stores.
struct Writing {
    blob: BlobNo,
    conn: ConnId,
    len: u64,
    durable: u64,
}

/// Does the same in both stores, which answer alike, but for when written bytes are reported.
fn both(lmdb: &Lmdb, mem: &mut MemStore, conn: ConnId, request: &dyn Fn() -> StoreRequest) {
    lmdb.request(conn, request());
    match mem.request(conn, request()) {
        None | Some(StoreEvent::Written { .. }) => {}
        Some(wanted) => loop {
            match lmdb.next() {
                (_, StoreEvent::Written { .. }) => {}
                got => break assert_eq!(got, (conn, wanted)),
            }
        },
    }
}

fn files_agree(acts: Vec<(u8, Act)>) -> bool {
    let dir = super::temp();
    let lmdb = Lmdb::at(dir.path());
    let mut mem = MemStore::new();
    let mut files =
        [1, 2, 3].map(|n| Writing { blob: BlobNo(n), conn: conn(n as u32), len: 0, durable: 0 });
    for Writing { blob, conn, .. } in &files {
        both(&lmdb, &mut mem, *conn, &|| StoreRequest::Create { blob: *blob, offset: 0 });
    }
    for (which, act) in acts {
        let file = &mut files[usize::from(which % 3)];
        let (blob, from) = (file.blob, file.len);
        match act {
            Act::Write(len) => {
                let data = pattern(from + blob.0, len);
                both(&lmdb, &mut mem, file.conn, &|| StoreRequest::Write {
                    blob,
                    data: data.clone(),
                });
                file.len += len as u64;
            }
            Act::Sync => {
                both(&lmdb, &mut mem, file.conn, &|| StoreRequest::Sync { blob });
                file.durable = file.len;
            }
            Act::Resume if file.durable > 0 => {
                lmdb.conn_ended(file.conn);
                mem.conn_ended(file.conn);
                file.conn.generation += 10;
                let offset = file.durable;
                both(&lmdb, &mut mem, file.conn, &|| StoreRequest::Create { blob, offset });
                file.len = offset;
            }
            Act::Resume => {}
        }
    }
    for Writing { blob, conn, .. } in &files {
        both(&lmdb, &mut mem, *conn, &|| StoreRequest::Finish { blob: *blob });
    }
    mem.files().all(|(blob, file)| {
        std::fs::read(super::blob_path(dir.path(), blob)).is_ok_and(|data| data == file.data)
    })
}

#[test]
fn files_hold_what_they_hold_in_memory() {
    QuickCheck::new().tests(12).quickcheck(files_agree as fn(Vec<(u8, Act)>) -> bool);
}
