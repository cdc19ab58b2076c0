//! Readers: answer the node's reads, and what sessions read and ask.
//!
//! The node's reads have a thread of their own, so that no session's long question holds them up. The
//! others share a queue of jobs: whoever is free takes the first job whose connection and ticket are
//! not being served, so answers of one ticket come in order and one slow ticket holds nobody else up.
//! A read transaction lives for one request; its results are copied out.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::mpsc::Receiver;
use std::sync::{Condvar, Mutex, PoisonError};

use bytes::Bytes;
use consign_core::id::{BlobNo, ConnId, ReadNo, TransferNo};
use consign_core::ledger::read::{self, ReadRequest};
use consign_core::ledger::rows::Body;
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::store::{Query, Snapshot, StoreEvent, StoreFault};
use rustix::fs::Advice;
use rustix::io::Errno;

use crate::shared::{Shared, locked};

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

/// What a session asks of a reader.
pub(crate) enum Ask {
    /// Content.
    Read {
        /// Where it is.
        body: Body,
        /// First byte.
        offset: u64,
        /// How many.
        len: usize,
    },
    /// A question to the ledger.
    Query(Query),
}

/// Whose job it is; jobs of one owner are served one after the other.
pub(crate) type Owner = (ConnId, TransferNo);

/// Jobs of sessions.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<(Owner, Ask)>,
    serving: Vec<Owner>,
    stopping: bool,
}

impl Queue {
    /// Adds a job; gives it back when the queue is closed.
    pub(crate) fn push(&self, owner: Owner, ask: Ask) -> Result<(), Ask> {
        let mut state = locked(&self.state);
        if state.stopping {
            return Err(ask);
        }
        state.jobs.push_back((owner, ask));
        self.changed.notify_one();
        Ok(())
    }

    /// Drops what a connection has asked and not got yet.
    pub(crate) fn forget(&self, conn: ConnId) {
        locked(&self.state).jobs.retain(|((owner, _), _)| *owner != conn);
    }

    /// Takes no more jobs; those that are there are served.
    pub(crate) fn stop(&self) {
        locked(&self.state).stopping = true;
        self.changed.notify_all();
    }

    fn take(&self) -> Option<(Owner, Ask)> {
        let mut state = locked(&self.state);
        loop {
            let free = state.jobs.iter().position(|(owner, _)| !state.serving.contains(owner));
            if let Some(job) = free.and_then(|at| state.jobs.remove(at)) {
                state.serving.push(job.0);
                return Some(job);
            }
            if state.stopping && state.jobs.is_empty() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, owner: Owner) {
        let mut state = locked(&self.state);
        state.serving.retain(|other| *other != owner);
        // Somebody may wait for just this owner, or for the end.
        self.changed.notify_all();
    }
}

/// Serves sessions until the queue is closed and empty.
pub(crate) fn run(shared: &Shared, queue: &Queue) {
    while let Some((owner, ask)) = queue.take() {
        let (conn, ticket) = owner;
        let event = match ask {
            Ask::Read { body, offset, len } => {
                StoreEvent::Content { ticket, offset, data: content(shared, body, offset, len) }
            }
            Ask::Query(query) => {
                let snapshot = shared.ledger.snapshot();
                let answer = snapshot.and_then(|snapshot| query(&snapshot));
                StoreEvent::Queried { ticket, answer }
            }
        };
        shared.conn(conn, event);
        queue.done(owner);
        shared.fail_if_damaged();
    }
}

pub(crate) fn content(
    shared: &Shared,
    body: Body,
    offset: u64,
    len: usize,
) -> Result<Bytes, StoreFault> {
    match body {
        Body::Inline(number) => {
            let snapshot = shared.ledger.snapshot()?;
            let row = snapshot.get(Table::Bodies, &keys::body(number))?;
            let row = row.ok_or_else(|| StoreFault::Missing(format!("body {number}")))?;
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(row.len());
            let to = from.saturating_add(len).min(row.len());
            Ok(Bytes::copy_from_slice(row.get(from..to).unwrap_or_default()))
        }
        Body::Blob(blob) => {
            from_file(shared, blob, offset, len).map_err(|why| file_fault(blob, why))
        }
    }
}

fn from_file(shared: &Shared, blob: BlobNo, offset: u64, len: usize) -> Result<Bytes, Errno> {
    let (file, size) = shared.dir.open_blob(blob)?;
    let rest = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let len = len.min(rest);
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
