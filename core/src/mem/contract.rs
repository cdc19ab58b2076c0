//! What every store must do, as cases that run against any of them. Each case gets a fresh store.

mod files;
mod rows;

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::id::{BatchNo, BlobNo, BodyNo, ConnId, Handle, TransferNo};
use crate::ledger::Table;
use crate::ledger::read::ReadRequest;
use crate::ledger::rows::{Body, MetaName, MetaRow};
use crate::node::Input;
use crate::store::{
    Batch, CommitFault, Errand, ReadResult, Snapshot, StoreEvent, StoreFault, StoreRequest,
};

/// A store under test. Every call waits for its answer.
pub trait Subject {
    /// Commits a batch.
    ///
    /// # Errors
    /// What the store answers.
    fn commit(&self, batch: Batch) -> Result<(), CommitFault>;
    /// A view of the committed ledger.
    fn snapshot(&self) -> Box<dyn Snapshot + '_>;
    /// Reads as the node does.
    ///
    /// # Errors
    /// What the store answers.
    fn read(&self, request: ReadRequest) -> ReadResult;
    /// Hands in a request; answers come from [`Subject::next`].
    fn request(&self, conn: ConnId, request: StoreRequest);
    /// The next answer to a connection.
    fn next(&self) -> (ConnId, StoreEvent);
    /// Hands in an errand that is answered, and its answer.
    fn errand(&self, errand: Errand) -> Input;
    /// Frees a parked body.
    fn unpark(&self, handle: Handle);
    /// Ends a connection.
    fn conn_ended(&self, conn: ConnId);
    /// Puts a content file there that the store did not write.
    fn plant(&self, blob: BlobNo, data: &[u8]);
    /// The content files that are in place, in order.
    fn files(&self) -> Vec<BlobNo>;
}

/// A case: what it shows, and how.
pub type Case = (&'static str, fn(&dyn Subject));

/// All cases.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut all = rows::CASES.to_vec();
    all.extend_from_slice(files::CASES);
    all
}

/// A batch that bears its number.
#[must_use]
pub fn numbered(number: u64) -> Batch {
    let mut batch = Batch::new(BatchNo(number));
    batch.put(Table::Meta, MetaName::Batch.key(), &MetaRow { value: number });
    batch
}

/// A connection.
#[must_use]
pub fn conn(generation: u32) -> ConnId {
    ConnId { slot: 0, generation }
}

/// All rows of a table from `from` on.
#[must_use]
pub fn scan(snapshot: &dyn Snapshot, table: Table, from: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let scanned = snapshot.scan(table, from, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        true
    });
    assert_eq!(scanned, Ok(()));
    rows
}

/// Bytes that tell where they belong.
#[must_use]
pub fn pattern(from: u64, len: usize) -> Bytes {
    let byte = |at: u64| (at ^ at >> 8 ^ at >> 16).to_le_bytes()[0];
    (from..).take(len).map(byte).collect::<Vec<u8>>().into()
}

/// Reads content.
///
/// # Errors
/// What the store answers.
pub fn content(
    store: &dyn Subject,
    body: Body,
    offset: u64,
    len: usize,
) -> Result<Bytes, StoreFault> {
    let ticket = TransferNo(7);
    store.request(conn(90), StoreRequest::Read { ticket, body, offset, len });
    match store.next() {
        (of, StoreEvent::Content { ticket: got, offset: at, data }) => {
            assert_eq!((of, got, at), (conn(90), ticket, offset));
            data
        }
        other => panic!("content expected, not {other:?}"),
    }
}

/// Content of an inline body.
#[must_use]
pub fn inline(number: u64) -> Body {
    Body::Inline(BodyNo(number))
}
