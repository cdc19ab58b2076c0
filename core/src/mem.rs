//! A store in memory: synchronous, deterministic, with the faults a test wants. It keeps what
//! `storage-lmdb` keeps, byte for byte, and passes the same contract suite.
//!
//! Each call is answered at once by its return value; whoever drives it decides when the answer
//! reaches the node or the session. [`MemStore::crash`] is a power cut between two calls.

mod blobs;
#[cfg(any(test, feature = "contract"))]
#[doc(hidden)]
// The suite fails by panicking, whatever else it is answered.
#[allow(clippy::wildcard_enum_match_arm, clippy::indexing_slicing, clippy::unwrap_used)]
pub mod contract;
mod tables;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;

pub use blobs::BlobFile;
use blobs::Blobs;
pub use tables::MemSnapshot;

use crate::id::{BlobNo, ConnId, Handle};
use crate::ledger::read::{self, ReadRequest};
use crate::ledger::read_scrub::ScrubItem;
use crate::ledger::rows::{Body, MetaName, MetaRow};
use crate::ledger::{Table, codec, keys};
use crate::node::Input;
use crate::store::{
    Batch, CommitFault, Errand, Op, ReadResult, ScrubFault, Space, StoreEvent, StoreFault,
    StoreRequest,
};

/// Longest key a store takes, in bytes.
pub const KEY_MAX: usize = 511;
/// What a row costs beside its key and value, in bytes of the simulated disk.
const ROW_COST: u64 = 16;
/// Least room that must be left beside a whole ballast, in bytes.
const ROOM: u64 = 1 << 20;

/// A disk of a fixed size, shared with others who may fill it.
#[derive(Clone, Copy, Debug)]
struct Disk {
    capacity: u64,
    outside: u64,
    ballast: u64,
    ballast_whole: bool,
}

/// The store.
#[derive(Clone, Debug)]
pub struct MemStore {
    tables: MemSnapshot,
    ledger: u64,
    parked: BTreeMap<Handle, Bytes>,
    blobs: Blobs,
    disk: Disk,
    commits: u64,
    commit_faults: BTreeMap<u64, CommitFault>,
}

impl Default for MemStore {
    fn default() -> MemStore {
        MemStore::new()
    }
}

impl MemStore {
    /// An empty store on a disk without end, with 64 MiB of ballast.
    #[must_use]
    pub fn new() -> MemStore {
        let disk = Disk { capacity: 1 << 60, outside: 0, ballast: 64 << 20, ballast_whole: true };
        MemStore {
            tables: MemSnapshot::new(),
            ledger: 0,
            parked: BTreeMap::new(),
            blobs: Blobs::default(),
            disk,
            commits: 0,
            commit_faults: BTreeMap::new(),
        }
    }

    /// Commits a batch whole or not at all: [`Input::Committed`] or [`Input::CommitFailed`]. The
    /// bodies it names are taken out of the park either way.
    pub fn commit(&mut self, batch: &Batch) -> Input {
        self.commits = self.commits.saturating_add(1);
        if batch.free_ballast {
            self.disk.ballast_whole = false;
        }
        let fault = self.commit_faults.remove(&self.commits);
        let judged = fault.map_or_else(|| self.judge(batch), Err);
        if judged.is_ok() {
            self.apply(batch);
            self.restore_ballast();
        }
        for op in batch.ops() {
            if let Op::PutBody { handle, .. } = op {
                self.parked.remove(&handle);
            }
        }
        let space = self.space();
        match judged {
            Ok(()) => Input::Committed { through: batch.number, space },
            Err(why) => Input::CommitFailed { from: batch.number, why, space },
        }
    }

    /// What must hold before anything of a batch is written.
    fn judge(&self, batch: &Batch) -> Result<(), CommitFault> {
        let broken = |why: String| Err(CommitFault::Broken(why));
        let mut handles = BTreeSet::new();
        let mut numbered = false;
        for op in batch.ops() {
            match op {
                Op::Put { key, .. } | Op::Del { key, .. }
                    if key.is_empty() || key.len() > KEY_MAX =>
                {
                    return broken(format!("a key of {} bytes is not 1 to 511 long", key.len()));
                }
                Op::Put { table: Table::Meta, key, value } if key == MetaName::Batch.key() => {
                    let row: Result<MetaRow, _> = codec::decode(Table::Meta, key, value);
                    numbered = row.is_ok_and(|row| row.value == batch.number.0);
                }
                Op::PutBody { handle, .. } => {
                    if !self.parked.contains_key(&handle) || !handles.insert(handle) {
                        return broken(format!("no body is parked under {handle:?}"));
                    }
                }
                Op::Put { .. } | Op::Del { .. } => {}
            }
        }
        if !numbered {
            return broken(format!("batch {} does not bear its number", batch.number));
        }
        let need = batch.bytes() as u64 + ROW_COST * batch.rows() as u64;
        let free = self.space().free;
        if need > free {
            return Err(CommitFault::Full(format!("{need} bytes needed, {free} free")));
        }
        Ok(())
    }

    fn apply(&mut self, batch: &Batch) {
        for op in batch.ops() {
            match op {
                Op::Put { table, key, value } => {
                    self.put(table, key, Bytes::copy_from_slice(value));
                }
                Op::Del { table, key } => self.del(table, key),
                Op::PutBody { number, handle } => {
                    let body = self.parked.remove(&handle).unwrap_or_default();
                    self.put(Table::Bodies, &keys::body(number), body);
                }
            }
        }
    }

    fn put(&mut self, table: Table, key: &[u8], value: Bytes) {
        self.ledger += cost(key, value.len());
        if let Some(old) = self.tables.put(table, key, value) {
            self.ledger -= cost(key, old.len());
        }
    }

    fn del(&mut self, table: Table, key: &[u8]) {
        if let Some(old) = self.tables.del(table, key) {
            self.ledger -= cost(key, old.len());
        }
    }

    /// A view of the ledger as it is now; later commits do not change it.
    #[must_use]
    pub fn snapshot(&self) -> MemSnapshot {
        self.tables.clone()
    }

    /// The ledger as it is now, without a copy: for reads that end before the next commit.
    #[must_use]
    pub fn ledger(&self) -> &MemSnapshot {
        &self.tables
    }

    /// Answers a read of the node.
    ///
    /// # Errors
    /// As [`read::read`].
    pub fn read(&self, request: &ReadRequest) -> ReadResult {
        read::read(&self.tables, request)
    }

    /// Does what a session asks; at most one answer.
    pub fn request(&mut self, conn: ConnId, request: StoreRequest) -> Option<StoreEvent> {
        match request {
            StoreRequest::Park { handle, data } => {
                self.parked.insert(handle, data);
                None
            }
            StoreRequest::Create { blob, offset } => self.blobs.create(conn, blob, offset),
            StoreRequest::Write { blob, data } => {
                let free = self.space().free;
                self.blobs.write(conn, blob, &data, free)
            }
            StoreRequest::Sync { blob } => self.blobs.sync(conn, blob),
            StoreRequest::Finish { blob } => self.blobs.finish(conn, blob),
            StoreRequest::Abandon { blob } => {
                self.blobs.abandon(conn, blob);
                None
            }
            StoreRequest::Read { ticket, body, offset, len } => {
                let data = self.content(body, offset, len);
                Some(StoreEvent::Content { ticket, offset, data })
            }
            StoreRequest::Query { ticket, query } => {
                Some(StoreEvent::Queried { ticket, answer: query(&self.tables) })
            }
        }
    }

    fn content(&self, body: Body, offset: u64, len: usize) -> Result<Bytes, StoreFault> {
        match body {
            Body::Inline(number) => {
                let row = self.tables.value(Table::Bodies, &keys::body(number));
                let row = row.ok_or_else(|| StoreFault::Missing(format!("body {number}")))?;
                Ok(row.slice(window(row.len(), offset, len)))
            }
            Body::Blob(number) => {
                let data = self.blobs.data(number)?;
                let cut = data.get(window(data.len(), offset, len)).unwrap_or_default();
                Ok(Bytes::copy_from_slice(cut))
            }
        }
    }

    /// Does what the node asks; at most one answer.
    pub fn errand(&mut self, errand: Errand) -> Option<Input> {
        match errand {
            Errand::Unpark(handle) => {
                self.parked.remove(&handle);
                None
            }
            Errand::Unlink(blob) => {
                self.blobs.unlink(blob);
                Some(Input::Unlinked { blob, result: Ok(()) })
            }
            Errand::SetAside(blob) => {
                self.blobs.set_aside(blob);
                Some(Input::Unlinked { blob, result: Ok(()) })
            }
            Errand::Check(wanted) => {
                let seen = wanted.len();
                let there = |body: Body, size: u64| self.len(body).is_some_and(|len| len == size);
                let missing = wanted
                    .into_iter()
                    .filter(|(_, body, size)| !there(*body, *size))
                    .map(|(seq, ..)| seq)
                    .collect();
                Some(Input::Checked { seen, missing })
            }
            Errand::Sweep { folder, below } => {
                let tables = &self.tables;
                let known = |blob: BlobNo| {
                    [Table::Blobs, Table::Incoming, Table::Doomed]
                        .into_iter()
                        .any(|table| tables.value(table, &keys::blob(blob)).is_some())
                };
                let quarantined = self.blobs.sweep(folder, below, known);
                Some(Input::Swept { folder, quarantined })
            }
            Errand::Probe => {
                self.restore_ballast();
                Some(Input::Space(self.space()))
            }
            Errand::Look => Some(Input::Space(self.space())),
            Errand::Scrub { items, .. } => {
                let looked = items.iter().map(|item| (item, self.scrub(item)));
                let mut bad = Vec::new();
                let mut bytes = 0;
                for (item, result) in looked {
                    match result {
                        Ok(len) => bytes += len,
                        Err(fault) => bad.push((item.seq, fault)),
                    }
                }
                let (seen, unread) = (items.len() as u64, Vec::new());
                Some(Input::Scrubbed { seen, bytes, bad, unread })
            }
        }
    }

    /// Compares content with its digest; how many bytes were read.
    fn scrub(&self, item: &ScrubItem) -> Result<u64, ScrubFault> {
        let data = self.content(item.body, 0, usize::MAX).map_err(|_| ScrubFault::Missing)?;
        let right = *blake3::hash(&data).as_bytes() == item.digest.0;
        if right { Ok(data.len() as u64) } else { Err(ScrubFault::Corrupt) }
    }

    fn len(&self, body: Body) -> Option<u64> {
        match body {
            Body::Inline(number) => {
                let row = self.tables.value(Table::Bodies, &keys::body(number));
                row.map(|row| row.len() as u64)
            }
            Body::Blob(number) => self.blobs.data(number).ok().map(|data| data.len() as u64),
        }
    }

    /// The connection has ended: closes what it had open for writing.
    pub fn conn_ended(&mut self, conn: ConnId) {
        self.blobs.conn_ended(conn);
    }

    /// The disk as it is.
    #[must_use]
    pub fn space(&self) -> Space {
        let ballast = if self.disk.ballast_whole { self.disk.ballast } else { 0 };
        let used = [self.disk.outside, self.ledger, self.blobs.bytes(), ballast];
        let free = used.into_iter().fold(self.disk.capacity, u64::saturating_sub);
        Space { free, ledger: self.ledger, ballast_whole: self.disk.ballast_whole }
    }

    fn restore_ballast(&mut self) {
        let need = self.disk.ballast.saturating_add(ROOM);
        if !self.disk.ballast_whole && self.space().free >= need {
            self.disk.ballast_whole = true;
        }
    }
}

/// What tests and the simulator do to a store.
impl MemStore {
    /// Fails the `nth` commit from now (1 is the next) with `fault`; nothing of it is there.
    pub fn fail_commit(&mut self, nth: u64, fault: CommitFault) {
        self.commit_faults.insert(self.commits.saturating_add(nth), fault);
    }

    /// Fails the `nth` file request from now (1 is the next: create, write, sync or finish).
    pub fn fail_file(&mut self, nth: u64, fault: StoreFault) {
        self.blobs.fail(nth, fault);
    }

    /// Size of the disk, in bytes.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.disk.capacity = bytes;
    }

    /// What others keep on the disk, in bytes.
    pub fn set_outside(&mut self, bytes: u64) {
        self.disk.outside = bytes;
    }

    /// Size of the ballast, in bytes, and whether it is whole.
    pub fn set_ballast(&mut self, bytes: u64, whole: bool) {
        self.disk.ballast = bytes;
        self.disk.ballast_whole = whole;
    }

    /// A power cut: what was not durable is gone. Parked bodies and open files are forgotten, files
    /// lose the bytes after their last sync and their name when that was never made durable.
    pub fn crash(&mut self) {
        self.parked.clear();
        self.blobs.crash();
    }

    /// The process dies and the operating system lives on: parked bodies and open files are
    /// forgotten, what was written stays.
    pub fn kill(&mut self) {
        self.parked.clear();
        self.blobs.close_all();
    }

    /// What a crash would forget, for comparing states: parked bodies and open files.
    pub fn volatile(&self) -> impl core::fmt::Debug + '_ {
        (&self.parked, self.blobs.opened_now())
    }

    /// Flips the lowest bit of byte `at` of a row; whether there is such a byte.
    pub fn flip(&mut self, table: Table, key: &[u8], at: usize) -> bool {
        let Some(row) = self.tables.value(table, key) else { return false };
        let mut bytes = row.to_vec();
        let Some(byte) = bytes.get_mut(at) else { return false };
        *byte ^= 1;
        self.tables.put(table, key, Bytes::from(bytes));
        true
    }

    /// Takes a content file away, as somebody with a shell could; whether it was there.
    pub fn lose_file(&mut self, blob: BlobNo) -> bool {
        self.blobs.unlink(blob)
    }

    /// Puts a content file there that no row names.
    pub fn plant_file(&mut self, blob: BlobNo, data: &[u8]) {
        self.blobs.plant(blob, data);
    }

    /// The content files by number.
    pub fn files(&self) -> impl Iterator<Item = (BlobNo, &BlobFile)> {
        self.blobs.files()
    }

    /// Numbers of the files that sweeps set aside.
    #[must_use]
    pub fn quarantined(&self) -> &[BlobNo] {
        self.blobs.quarantined()
    }

    /// How many bodies are parked.
    #[must_use]
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// How many rows a table has.
    #[must_use]
    pub fn rows(&self, table: Table) -> usize {
        self.tables.count(table)
    }

    /// The key of the `nth` row of a table, from 0.
    #[must_use]
    pub fn nth_key(&self, table: Table, nth: usize) -> Option<&[u8]> {
        self.tables.nth_key(table, nth)
    }

    /// Takes a parked body out, as the writer of a ledger does when it begins a batch.
    pub fn take_parked(&mut self, handle: Handle) -> Option<Bytes> {
        self.parked.remove(&handle)
    }

    /// Puts an older copy of the ledger in the place of this one; content files stay as they are.
    pub fn put_back(&mut self, copy: MemSnapshot) {
        self.tables = copy;
        self.ledger = self.tables.rows().map(|(key, value)| cost(key, value.len())).sum();
    }

    /// How many commits were tried.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits
    }
}

fn cost(key: &[u8], value: usize) -> u64 {
    ROW_COST + key.len() as u64 + value as u64
}

/// The part of `0..have` that begins at `offset` and is at most `len` long.
fn window(have: usize, offset: u64, len: usize) -> core::ops::Range<usize> {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(have);
    from..from.saturating_add(len).min(have)
}

fn missing(blob: BlobNo) -> StoreFault {
    StoreFault::Missing(format!("blob {blob}"))
}
