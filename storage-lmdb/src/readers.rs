//! Readers: answer the node's reads, and what sessions read and ask.
//!
//! The node's reads have a thread of their own, so that no session's long question holds them up. The
//! others share a queue of jobs: whoever is free takes the first job whose connection and ticket are
//! not being served, so answers of one ticket come in order and one slow ticket holds nobody else up.
//! Pieces of one file are read two at a time, and answered in order all the same: one disk does more at once. Whoever
//! comes while both readers do that waits until one of them has its piece.
//! Bodies that are rows of the ledger are taken many at a time: one view, one answer to each connection.
//! A read transaction lives for one such round; its results are copied out.

mod direct;
mod queue;

use std::cell::OnceCell;
use std::num::NonZero;
use std::sync::mpsc::Receiver;

use bytes::Bytes;
use consign_core::id::{BlobNo, BodyNo, ReadNo, TransferNo};
use consign_core::ledger::read::{self, ReadRequest};
use consign_core::ledger::rows::Body;
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::store::{Snapshot, StoreEvent, StoreFault};
use rustix::fs::Advice;
use rustix::io::Errno;

use crate::grown;
use crate::ledger::LmdbSnapshot;
use crate::shared::Shared;

pub(crate) use direct::Pages;
use queue::Round;
pub(crate) use queue::{Ask, Owner, Queue};

/// Content of so many bytes is read past the page cache.
const DIRECT_FROM: u64 = 64 << 20;

/// What the node's reader is given.
pub(crate) enum NodeRead {
    /// A read.
    Read(ReadNo, ReadRequest),
    /// The end.
    Stop,
}

/// Answers the node's reads until told to stop.
pub(crate) fn run_node(shared: &Shared, jobs: &Receiver<NodeRead>) {
    while let Ok(NodeRead::Read(number, request)) = jobs.recv() {
        let snapshot = shared.ledger.snapshot();
        let answer = snapshot.and_then(|snapshot| read::read(&snapshot, &request));
        shared.node(Input::Read(number, answer));
        shared.fail_if_damaged();
    }
}

/// Serves sessions until the queue is closed and empty.
pub(crate) fn run(shared: &Shared, queue: &Queue) {
    while let Some((jobs, round)) = queue.take() {
        serve(shared, jobs, &round);
        drop(round);
        shared.fail_if_damaged();
    }
}

fn serve(shared: &Shared, jobs: Vec<(Owner, Ask)>, round: &Round<'_>) {
    let snapshot = OnceCell::new();
    let mut jobs = jobs.into_iter().peekable();
    while let Some(((conn, ticket), ask)) = jobs.next() {
        let mut events = vec![answer(shared, &snapshot, ticket, ask)];
        while let Some(((_, ticket), ask)) = jobs.next_if(|((next, _), _)| *next == conn) {
            events.push(answer(shared, &snapshot, ticket, ask));
        }
        round.await_turn();
        shared.conn_all(conn, events);
    }
}

/// A view of the ledger, taken by the first who needs it.
type View<'a> = OnceCell<Result<LmdbSnapshot<'a>, StoreFault>>;

fn answer<'a>(shared: &'a Shared, snapshot: &View<'a>, ticket: TransferNo, ask: Ask) -> StoreEvent {
    let view = || snapshot.get_or_init(|| shared.ledger.snapshot()).as_ref().map_err(Clone::clone);
    match ask {
        Ask::Read { body: Body::Inline(number), offset, len } => {
            let data = view().and_then(|view| row(view, number, offset, len));
            StoreEvent::Content { ticket, offset, data }
        }
        Ask::Read { body, offset, len } => {
            StoreEvent::Content { ticket, offset, data: content(shared, body, offset, len) }
        }
        Ask::Query(query) => {
            StoreEvent::Queried { ticket, answer: view().and_then(|view| query(view)) }
        }
    }
}

pub(crate) fn content(
    shared: &Shared,
    body: Body,
    offset: u64,
    len: usize,
) -> Result<Bytes, StoreFault> {
    match body {
        Body::Inline(number) => row(&shared.ledger.snapshot()?, number, offset, len),
        Body::Blob(blob) => {
            from_file(shared, blob, offset, len).map_err(|why| file_fault(blob, why))
        }
    }
}

fn row(
    snapshot: &LmdbSnapshot<'_>,
    number: BodyNo,
    offset: u64,
    len: usize,
) -> Result<Bytes, StoreFault> {
    let row = snapshot.get(Table::Bodies, &keys::body(number))?;
    let row = row.ok_or_else(|| StoreFault::Missing(format!("body {number}")))?;
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(row.len());
    let to = from.saturating_add(len).min(row.len());
    Ok(Bytes::copy_from_slice(row.get(from..to).unwrap_or_default()))
}

/// Reads content that is kept in a file. What is large goes past the page cache: it is read once for each peer, and
/// would push out what is read over and over, the ledger above all.
fn from_file(shared: &Shared, blob: BlobNo, offset: u64, len: usize) -> Result<Bytes, Errno> {
    let (file, size) = shared.dir.open_blob(blob)?;
    let rest = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let len = len.min(rest);
    if size >= DIRECT_FROM && grown::set_direct(&file, true).is_ok() {
        match shared.pages.read(&file, offset, len) {
            // Aligned to more than we do, or refused after all.
            Err(Errno::INVAL) => grown::set_direct(&file, false)?,
            other => return other,
        }
    }
    let mut data = Vec::with_capacity(len);
    while data.len() < len {
        let at = offset.saturating_add(data.len() as u64);
        match rustix::io::pread(&file, rustix::buffer::spare_capacity(&mut data), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    data.truncate(len);
    // Whoever reads goes on reading: have the next piece on its way meanwhile.
    let next = offset.saturating_add(len as u64);
    if let Some(more) = NonZero::new(size.saturating_sub(next).min(len as u64)) {
        let _ = rustix::fs::fadvise(&file, next, Some(more), Advice::WillNeed);
    }
    Ok(Bytes::from(data))
}

/// A fault of a content file as sessions see it.
pub(crate) fn file_fault(blob: BlobNo, why: Errno) -> StoreFault {
    match why {
        Errno::NOENT => StoreFault::Missing(format!("blob {blob}")),
        why if crate::dir::is_full(why) => StoreFault::Full(format!("blob {blob}: {why}")),
        why => StoreFault::Io(format!("blob {blob}: {why}")),
    }
}
