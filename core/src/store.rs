//! The contract between the node and whatever keeps its data: batches of row operations, snapshots,
//! and what sessions and the node ask of the content store.
//!
//! Stores are dumb: they keep bytes under keys, in order, and commit a [`Batch`] whole or not at all.
//! `storage-lmdb` and [`crate::mem`] pass the same contract suite.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use crate::id::{BatchNo, BlobNo, BodyNo, ConnId, Handle, ReadNo, Seq, TransferNo};
use crate::ledger::read::{ReadAnswer, ReadRequest};
use crate::ledger::read_scrub::ScrubItem;
use crate::ledger::rows::Body;
use crate::ledger::{Table, codec};
use crate::node::Input;

/// One operation of a batch, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Write a row.
    Put {
        /// The table.
        table: Table,
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Remove a row; no error when there is none.
    Del {
        /// The table.
        table: Table,
        /// Its key.
        key: &'a [u8],
    },
    /// Write the body parked under `handle` as row `number` of `bodies`, raw, and free the handle.
    PutBody {
        /// The row.
        number: BodyNo,
        /// The parked bytes.
        handle: Handle,
    },
}

#[derive(Clone, Copy, Debug)]
enum Span {
    Put { table: Table, key: usize, value: usize, end: usize },
    Del { table: Table, key: usize, end: usize },
    Body { number: BodyNo, handle: Handle },
}

/// Operations that become durable together, in order, in one arena.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Its number; the batch itself writes it to `meta`.
    pub number: BatchNo,
    /// Free the ballast first: this batch holds nothing but relief and must get through a full disk.
    pub free_ballast: bool,
    /// An operator's act is in it: it may have up to [`crate::limits::ACT_BATCH_ROWS`] rows.
    pub acts: bool,
    spans: Vec<Span>,
    arena: Vec<u8>,
    parked: usize,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new(number: BatchNo) -> Batch {
        Batch { number, ..Batch::default() }
    }

    /// Adds a row.
    pub fn put<R: minicbor::Encode<()>>(&mut self, table: Table, key: &[u8], row: &R) {
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        let value = self.arena.len();
        codec::encode(table, key, row, &mut self.arena);
        let end = self.arena.len();
        self.spans.push(Span::Put { table, key: start, value, end });
    }

    /// Adds a row of an index table: a key without a value.
    pub fn put_key(&mut self, table: Table, key: &[u8]) {
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        let end = self.arena.len();
        self.spans.push(Span::Put { table, key: start, value: end, end });
    }

    /// Adds a row whose value is given in bytes (contract tests, tools).
    pub fn put_raw(&mut self, table: Table, key: &[u8], value: &[u8]) {
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        let middle = self.arena.len();
        self.arena.extend_from_slice(value);
        let end = self.arena.len();
        self.spans.push(Span::Put { table, key: start, value: middle, end });
    }

    /// Removes a row.
    pub fn del(&mut self, table: Table, key: &[u8]) {
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        let end = self.arena.len();
        self.spans.push(Span::Del { table, key: start, end });
    }

    /// Writes a parked body of `len` bytes.
    pub fn put_body(&mut self, number: BodyNo, handle: Handle, len: usize) {
        self.parked = self.parked.saturating_add(len);
        self.spans.push(Span::Body { number, handle });
    }

    /// The operations in order.
    pub fn ops(&self) -> impl Iterator<Item = Op<'_>> {
        let cut = |from: usize, to: usize| self.arena.get(from..to).unwrap_or_default();
        self.spans.iter().map(move |span| match *span {
            Span::Put { table, key, value, end } => {
                Op::Put { table, key: cut(key, value), value: cut(value, end) }
            }
            Span::Del { table, key, end } => Op::Del { table, key: cut(key, end) },
            Span::Body { number, handle } => Op::PutBody { number, handle },
        })
    }

    /// How many operations there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.spans.len()
    }

    /// Keys, values and parked bodies, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.len().saturating_add(self.parked)
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

/// What the disk looked like after a commit or a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Space {
    /// Bytes free for this user on the file system of the data directory.
    pub free: u64,
    /// Bytes in live pages of the ledger.
    pub ledger: u64,
    /// Whether the ballast file is whole.
    pub ballast_whole: bool,
}

/// Numbers of files that were removed before they were made.
///
/// Sessions ask for a file in their own time: one that has lost its connection may do so after the node
/// has given the content up and the store has found nothing to remove. Numbers are never reused, so
/// such a file must not come to be. Every store keeps one of these, and asks and tells it in the same
/// step as it makes or removes the file.
#[derive(Clone, Debug, Default)]
pub struct NeverMade(BTreeSet<BlobNo>);

impl NeverMade {
    /// Most numbers that are kept; the oldest go first, when whoever could ask is long gone.
    pub const MOST: usize = 65_536;

    /// There was nothing to remove under this number.
    pub fn nothing_there(&mut self, blob: BlobNo) {
        self.0.insert(blob);
        if self.0.len() > NeverMade::MOST {
            self.0.pop_first();
        }
    }

    /// Whether the file of this number may be made.
    ///
    /// # Errors
    /// When it was given up before.
    pub fn may_make(&mut self, blob: BlobNo) -> Result<(), StoreFault> {
        match self.0.remove(&blob) {
            true => {
                Err(StoreFault::Missing(format!("blob {blob} was given up before it was made")))
            }
            false => Ok(()),
        }
    }
}

/// Why a commit did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum CommitFault {
    /// The disk or the ledger is full; nothing of the batch is there.
    #[error("no space left: {0}")]
    Full(String),
    /// Anything else: the store cannot be trusted and the process stops (exit 70).
    #[error("the ledger failed: {0}")]
    Broken(String),
}

/// Why a read or a file operation did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StoreFault {
    /// No space left.
    #[error("no space left: {0}")]
    Full(String),
    /// The file or row is not there.
    #[error("missing: {0}")]
    Missing(String),
    /// What is there is not what was written.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// Too many readers; try again.
    #[error("too many readers")]
    Crowded,
    /// Any other error of the system.
    #[error("{0}")]
    Io(String),
}

/// A consistent view of the committed ledger.
pub trait Snapshot {
    /// The last batch this view contains.
    fn as_of(&self) -> BatchNo;
    /// The value under `key`.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreFault>;
    /// Calls `visit` with every row whose key is at least `from`, in key order, until it says stop
    /// (`false`) or the table ends.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreFault>;
}

/// A question that a local session puts to the ledger; runs on a reader of the store.
pub type Query = Box<dyn FnOnce(&dyn Snapshot) -> Result<Vec<u8>, StoreFault> + Send>;

/// What a session asks of the store. Answers come back as [`StoreEvent`] to the same connection, in
/// the order of the requests for one blob.
pub enum StoreRequest {
    /// Keep these bytes until a batch or [`Errand::Unpark`] names the handle.
    Park {
        /// The handle.
        handle: Handle,
        /// The body.
        data: Bytes,
    },
    /// Create the file of a blob (offset 0), or open it and cut it to `offset` to go on from there.
    Create {
        /// The blob.
        blob: BlobNo,
        /// Where writing goes on: any length that was durable once.
        offset: u64,
    },
    /// Append bytes. Answered by [`StoreEvent::Written`] once they need no memory any more.
    Write {
        /// The blob.
        blob: BlobNo,
        /// The bytes.
        data: Bytes,
    },
    /// Make everything written so far durable. Answered by [`StoreEvent::Synced`].
    Sync {
        /// The blob.
        blob: BlobNo,
    },
    /// Make the file and its name durable and close it. Answered by [`StoreEvent::Finished`].
    Finish {
        /// The blob.
        blob: BlobNo,
    },
    /// Close the file as it is; the node decides what becomes of it. Not answered.
    Abandon {
        /// The blob.
        blob: BlobNo,
    },
    /// Read content. Answered by [`StoreEvent::Content`].
    Read {
        /// Echoed in the answer.
        ticket: TransferNo,
        /// Where the content is.
        body: Body,
        /// First byte wanted.
        offset: u64,
        /// How many bytes; fewer come back only at the end of the content.
        len: usize,
    },
    /// Ask the ledger. Answered by [`StoreEvent::Queried`].
    Query {
        /// Echoed in the answer.
        ticket: TransferNo,
        /// The question.
        query: Query,
    },
}

impl fmt::Debug for StoreRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreRequest::Park { handle, data } => write!(f, "Park({handle:?}, {} B)", data.len()),
            StoreRequest::Create { blob, offset } => write!(f, "Create({blob}, {offset})"),
            StoreRequest::Write { blob, data } => write!(f, "Write({blob}, {} B)", data.len()),
            StoreRequest::Sync { blob } => write!(f, "Sync({blob})"),
            StoreRequest::Finish { blob } => write!(f, "Finish({blob})"),
            StoreRequest::Abandon { blob } => write!(f, "Abandon({blob})"),
            StoreRequest::Read { ticket, body, offset, len } => {
                write!(f, "Read({ticket}, {body:?}, {offset}+{len})")
            }
            StoreRequest::Query { ticket, .. } => write!(f, "Query({ticket})"),
        }
    }
}

/// An answer of the store to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// So many bytes of the blob left memory.
    Written {
        /// The blob.
        blob: BlobNo,
        /// Bytes written since the last such event.
        bytes: u64,
    },
    /// Everything written before the request is durable; `offset` is the length.
    Synced {
        /// The blob.
        blob: BlobNo,
        /// Durable length.
        offset: u64,
    },
    /// The file and its name are durable and the file is closed.
    Finished {
        /// The blob.
        blob: BlobNo,
        /// Its length.
        size: u64,
    },
    /// The blob could not be written; it is closed and takes no more requests.
    WriteFailed {
        /// The blob.
        blob: BlobNo,
        /// Why.
        fault: StoreFault,
    },
    /// Content that was asked for.
    Content {
        /// From the request.
        ticket: TransferNo,
        /// From the request.
        offset: u64,
        /// The bytes, or why there are none.
        data: Result<Bytes, StoreFault>,
    },
    /// Answer to a query.
    Queried {
        /// From the request.
        ticket: TransferNo,
        /// What the query returned.
        answer: Result<Vec<u8>, StoreFault>,
    },
}

/// Work the node gives to the store outside batches. Answered by an [`Input`] where that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Free a parked body that no batch took.
    Unpark(Handle),
    /// Remove the file of a doomed blob and make that durable. Answered by [`Input::Unlinked`].
    Unlink(BlobNo),
    /// Move the file of a doomed blob to the quarantine, durably, as what no row names is. Answered by
    /// [`Input::Unlinked`]: it is gone from its place.
    SetAside(BlobNo),
    /// See whether content is there with its length. Answered by [`Input::Checked`].
    Check(Vec<(Seq, Body, u64)>),
    /// Set aside the files of one of the 256 content folders that no row of one snapshot names and
    /// whose number is below `below`. Answered by [`Input::Swept`].
    Sweep {
        /// The folder.
        folder: u8,
        /// Start-up value of the blob counter.
        below: BlobNo,
    },
    /// Look at the disk, make the ballast whole if there is room. Answered by [`Input::Space`].
    Probe,
    /// Say how the disk stands, at once and whatever else is being done. Answered by [`Input::Space`].
    Look,
    /// Read this content and compare it with its digest, beside everything else and without pushing
    /// out what others read. Answered by [`Input::Scrubbed`].
    Scrub {
        /// The content, in order.
        items: Vec<ScrubItem>,
        /// At most so many bytes a second.
        rate: u64,
    },
}

/// What is wrong with content that was compared with its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ScrubFault {
    /// It is not what was accepted.
    Corrupt,
    /// It is not there.
    Missing,
}

/// Where a store sends what it has done. Called from the store's threads; must not block.
pub trait Sink: Send + Sync {
    /// An input for the node.
    fn node(&self, input: Input);
    /// An answer for a connection; dropped when it has ended.
    fn conn(&self, conn: ConnId, event: StoreEvent);
    /// Several answers for one connection, in order: it is woken once for all of them, where that can be done.
    fn conn_all(&self, conn: ConnId, events: Vec<StoreEvent>) {
        for event in events {
            self.conn(conn, event);
        }
    }
}

/// A store as the runtimes see it. No call blocks on the disk.
pub trait Store: Send + Sync {
    /// Starts the store's threads; everything is answered to `sink` from now on.
    fn start(&self, sink: Arc<dyn Sink>);
    /// Commits a batch, then answers [`Input::Committed`] or [`Input::CommitFailed`]. The pump has
    /// at most one batch under way.
    fn commit(&self, batch: Batch);
    /// Reads, then answers [`Input::Read`].
    fn read(&self, number: ReadNo, request: ReadRequest);
    /// What a session wants.
    fn request(&self, conn: ConnId, request: StoreRequest);
    /// What the node wants.
    fn errand(&self, errand: Errand);
    /// The connection has ended: closes what it had open for writing (its [`Input`]s go on).
    fn conn_ended(&self, conn: ConnId);
    /// Finishes what was handed in, closes everything and joins the threads.
    fn stop(&self);
}

/// The answer of a read as the node gets it.
pub type ReadResult = Result<ReadAnswer, StoreFault>;

#[cfg(test)]
mod tests;
