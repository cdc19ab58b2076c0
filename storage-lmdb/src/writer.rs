//! The ledger writer: the one thread that owns write transactions, one per batch.
//!
//! What can go wrong with a commit ends in one of three answers: it happened after all (its number is
//! in `meta`), there is no room (nothing of it is there, the store goes on), or the store is broken
//! (nothing is committed any more and the process stops).

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use bytes::Bytes;
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::store::{Batch, CommitFault, Op};
use heed::{MdbError, PutFlags, RwTxn};
use rustix::io::Errno;

use crate::cooled::Cooled;
use crate::ledger::Db;
use crate::shared::Shared;
use crate::{dir, lag, space};

/// Bytes of the longest key that LMDB takes; tables that lag are told later, when it is too late to refuse.
const MOST_KEY: usize = 511;

/// What the writer is given.
pub(crate) enum Job {
    /// A batch to commit.
    Commit(Batch),
    /// Another thread found that the store cannot be trusted: say so behind what is under way.
    Broken,
    /// The end.
    Stop,
}

/// Why a write transaction came to nothing.
enum Failure {
    /// LMDB or the disk said so.
    Ledger(heed::Error),
    /// The batch breaks the contract.
    Batch(String),
}

impl From<heed::Error> for Failure {
    fn from(why: heed::Error) -> Failure {
        Failure::Ledger(why)
    }
}

/// Commits batches until told to stop.
pub(crate) fn run(shared: &Shared, jobs: &Receiver<Job>) {
    let mut cooled = Cooled::new(&shared.dir.path);
    loop {
        match jobs.recv() {
            Ok(Job::Commit(batch)) => {
                let answer = commit(shared, &batch, &mut cooled);
                shared.node(answer);
                cooled.settle(shared);
            }
            Ok(Job::Broken) => shared.say_broken(),
            Ok(Job::Stop) | Err(_) => return,
        }
    }
}

fn commit(shared: &Shared, batch: &Batch, cooled: &mut Cooled) -> Input {
    let bodies = take_bodies(shared, batch);
    if let Some(why) = shared.broken() {
        return failed(shared, batch, CommitFault::Broken(why.to_owned()));
    }
    if batch.free_ballast {
        shared.ballast.free(&shared.dir);
    }
    let written = write(shared, batch, &bodies, cooled);
    drop(bodies);
    if let Err(why) = written {
        if let Some(fault) = judge(shared, batch, &why) {
            shared.ledger.lags.take_back(batch.number);
            cooled.failed();
            return failed(shared, batch, fault);
        }
        let text = "the commit took effect though it failed";
        tracing::warn!(batch = batch.number.0, code = "CN0560", "{text}");
    }
    shared.set_committed(batch.number);
    shared.ballast.restore(&shared.dir);
    Input::Committed { through: batch.number, space: shared.space() }
}

fn failed(shared: &Shared, batch: &Batch, why: CommitFault) -> Input {
    match &why {
        CommitFault::Full(text) => {
            let (batch, rows) = (batch.number.0, batch.rows());
            tracing::warn!(batch, rows, reason = text, code = "CN0561", "no room to commit");
        }
        CommitFault::Broken(text) => {
            shared.set_broken(text);
        }
    }
    Input::CommitFailed { from: batch.number, why, space: shared.space() }
}

/// The bodies a batch names, in its order. They leave the park whether the batch commits or not: one
/// that failed is dropped whole, and a body is growth, which is never tried again.
fn take_bodies(shared: &Shared, batch: &Batch) -> Vec<Option<Bytes>> {
    let handles = batch.ops().filter_map(|op| match op {
        Op::PutBody { handle, .. } => Some(handle),
        Op::Put { .. } | Op::Del { .. } => None,
    });
    handles.map(|handle| shared.unpark(handle)).collect()
}

fn write(
    shared: &Shared,
    batch: &Batch,
    bodies: &[Option<Bytes>],
    cooled: &mut Cooled,
) -> Result<(), Failure> {
    let ledger = &shared.ledger;
    let mut txn = ledger.write_txn()?;
    let mut bodies = bodies.iter();
    let mut late = Vec::new();
    for op in batch.ops() {
        match op {
            Op::Put { table, key, .. } | Op::Del { table, key }
                if lag::lags(table) && !(1..=MOST_KEY).contains(&key.len()) =>
            {
                let why = format!("a key of {} bytes in {table}", key.len());
                return Err(Failure::Batch(why));
            }
            Op::Put { table, key, value } if lag::lags(table) => {
                late.push((table, key, Some(value)));
            }
            Op::Del { table, key } if lag::lags(table) => late.push((table, key, None)),
            Op::Put { table, key, value } => ledger.table(table).put(&mut txn, key, value)?,
            Op::Del { table, key } => {
                ledger.table(table).delete(&mut txn, key)?;
            }
            Op::PutBody { number, handle } => {
                let body = bodies.next().and_then(Option::as_ref);
                let body = body
                    .ok_or_else(|| Failure::Batch(format!("no body is parked under {handle:?}")))?;
                append(ledger.table(Table::Bodies), &mut txn, &keys::body(number), body)?;
                cooled.writes(number, body.len());
            }
        }
    }
    let number = ledger.batch(&txn).map_err(|why| Failure::Batch(why.to_string()))?;
    if number != batch.number.0 {
        let why = format!("batch {} does not bear its number but {number}", batch.number);
        return Err(Failure::Batch(why));
    }
    let mut lag = ledger.lags.last();
    if !late.is_empty() {
        lag = Arc::new(lag.write(ledger, &mut txn, batch.number, &late, batch.free_ballast)?);
    }
    ledger.lags.tell(batch.number, lag);
    #[cfg(test)]
    shared.faults.before_commit()?;
    txn.commit()?;
    #[cfg(test)]
    shared.faults.after_commit()?;
    Ok(())
}

/// Puts a row behind all others. Body numbers only grow, and told so, LMDB fills its pages instead of
/// moving the last row of each to the next: three bodies of 1 KiB to a page, not two. A key that is
/// not the last is put where it belongs.
pub(crate) fn append(
    db: &Db,
    txn: &mut RwTxn<'_>,
    key: &[u8],
    value: &[u8],
) -> Result<(), heed::Error> {
    match db.put_with_flags(txn, PutFlags::APPEND, key, value) {
        Err(heed::Error::Mdb(MdbError::KeyExist)) => db.put(txn, key, value),
        other => other,
    }
}

/// What a failed transaction means; `None` when its batch is committed all the same.
fn judge(shared: &Shared, batch: &Batch, why: &Failure) -> Option<CommitFault> {
    let why = match why {
        Failure::Batch(why) => return Some(CommitFault::Broken(why.clone())),
        Failure::Ledger(why) => why,
    };
    // The reader sees what the next transaction would build on, so this is the truth about the
    // batch, whatever the error was.
    match shared.ledger.snapshot() {
        Ok(snapshot) if consign_core::store::Snapshot::as_of(&snapshot) == batch.number => {
            return None;
        }
        Ok(_) => {}
        Err(lost) => {
            return Some(CommitFault::Broken(format!("{why}, and reading back failed: {lost}")));
        }
    }
    Some(match why {
        heed::Error::Mdb(MdbError::MapFull | MdbError::TxnFull) => {
            CommitFault::Full(why.to_string())
        }
        heed::Error::Io(io) => judge_io(shared, batch, io),
        heed::Error::Mdb(_)
        | heed::Error::Encoding(_)
        | heed::Error::Decoding(_)
        | heed::Error::EnvAlreadyOpened => CommitFault::Broken(why.to_string()),
    })
}

/// LMDB reports a short write as EIO, so a full disk and a broken one look alike until the disk is
/// asked. No sync is tried again on any file: the probe writes one of its own.
fn judge_io(shared: &Shared, batch: &Batch, why: &std::io::Error) -> CommitFault {
    let errno = why.raw_os_error().map(Errno::from_raw_os_error);
    if errno.is_some_and(dir::is_full) {
        return CommitFault::Full(why.to_string());
    }
    let full = (errno == Some(Errno::IO)).then(|| space::is_full(&shared.dir, batch.bytes()));
    match full.flatten() {
        Some(text) => CommitFault::Full(format!("{why}; {text}")),
        None => CommitFault::Broken(format!("commit: {why}")),
    }
}
