//! Readers: answer the node's reads, and what sessions read and ask.
//!
//! The node's reads have a thread of their own, so that no session's long question holds them up. The
//! others share a queue of jobs: whoever is free takes the first job whose connection and ticket are
//! not being served, so answers of one ticket come in order and one slow ticket holds nobody else up.
//! Bodies that are rows of the ledger are taken many at a time: one view, one answer to each connection.
//! A read transaction lives for one such round; its results are copied out.

use std::cell::OnceCell;
use std::collections::{BTreeSet, VecDeque};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::sync::{Condvar, Mutex, PoisonError};

use bytes::Bytes;
use consign_core::id::{BlobNo, BodyNo, ConnId, ReadNo, TransferNo};
use consign_core::ledger::read::{self, ReadRequest};
use consign_core::ledger::rows::Body;
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::store::{Query, Snapshot, StoreEvent, StoreFault};
use rustix::fs::Advice;
use rustix::io::Errno;

use crate::block::ALIGN;
use crate::grown;
use crate::ledger::LmdbSnapshot;
use crate::shared::{Shared, locked};
use crate::store::READERS;

/// Bodies that one round reads at most …
const ROUND: usize = 64;
/// … and their bytes, but for the last.
const ROUND_BYTES: usize = 256 << 10;
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

impl Ask {
    /// How much is read of one row of the ledger; `None` is something else.
    fn row_bytes(&self) -> Option<usize> {
        match self {
            Ask::Read { body: Body::Inline(_), len, .. } => Some(*len),
            Ask::Read { body: Body::Blob(_), .. } | Ask::Query(_) => None,
        }
    }
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
    serving: BTreeSet<Owner>,
    /// Threads that wait and have not been woken; a few too many after they woke by themselves.
    waiting: usize,
    stopping: bool,
}

impl State {
    /// Takes the first job that may be served, and those behind it that are read from the ledger with it.
    fn take(&mut self, round: &mut Vec<(Owner, Ask)>) {
        let first = self.jobs.iter().position(|(owner, _)| !self.serving.contains(owner));
        let Some((at, job)) = first.and_then(|at| Some((at, self.jobs.remove(at)?))) else {
            return;
        };
        self.serving.insert(job.0);
        let mut bytes = job.1.row_bytes();
        round.push(job);
        // The other readers have something to do, too.
        let most = (self.jobs.len() / READERS).min(ROUND);
        while let Some(sum) = bytes.filter(|sum| *sum <= ROUND_BYTES && round.len() < most) {
            let Some((owner, ask)) = self.jobs.get(at) else { return };
            let Some(more) = ask.row_bytes().filter(|_| !self.serving.contains(owner)) else {
                return;
            };
            bytes = Some(sum.saturating_add(more));
            self.serving.insert(*owner);
            round.extend(self.jobs.remove(at));
        }
    }
}

impl Queue {
    /// Adds a job; gives it back when the queue is closed.
    pub(crate) fn push(&self, owner: Owner, ask: Ask) -> Result<(), Ask> {
        let mut state = locked(&self.state);
        if state.stopping {
            return Err(ask);
        }
        state.jobs.push_back((owner, ask));
        self.wake_one(&mut state);
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

    /// Waits for something to do; whether there will be more.
    fn take(&self, round: &mut Vec<(Owner, Ask)>) -> bool {
        let mut state = locked(&self.state);
        loop {
            state.take(round);
            if !round.is_empty() {
                return true;
            }
            if state.stopping && state.jobs.is_empty() {
                return false;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, owners: &[Owner]) {
        let mut state = locked(&self.state);
        for owner in owners {
            state.serving.remove(owner);
        }
        if state.stopping {
            self.changed.notify_all();
        } else if !state.jobs.is_empty() {
            // Somebody may wait for just these owners.
            self.wake_one(&mut state);
        }
    }

    /// Wakes somebody who waits: where nobody does, that would be a system call for nothing.
    fn wake_one(&self, state: &mut State) {
        if state.waiting > 0 {
            state.waiting -= 1;
            self.changed.notify_one();
        }
    }
}

/// Serves sessions until the queue is closed and empty.
pub(crate) fn run(shared: &Shared, queue: &Queue) {
    let mut round = Vec::new();
    let mut owners = Vec::new();
    while queue.take(&mut round) {
        owners.extend(round.iter().map(|(owner, _)| *owner));
        serve(shared, &mut round);
        queue.done(&owners);
        owners.clear();
        shared.fail_if_damaged();
    }
}

fn serve(shared: &Shared, round: &mut Vec<(Owner, Ask)>) {
    let snapshot = OnceCell::new();
    let mut round = round.drain(..).peekable();
    while let Some(((conn, ticket), ask)) = round.next() {
        let mut events = vec![answer(shared, &snapshot, ticket, ask)];
        while let Some(((_, ticket), ask)) = round.next_if(|((next, _), _)| *next == conn) {
            events.push(answer(shared, &snapshot, ticket, ask));
        }
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
        match read_direct(&file, offset, len) {
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

/// Reads whole pages into memory at an address of a page, and shows the part that was asked for.
fn read_direct(file: &OwnedFd, offset: u64, len: usize) -> Result<Bytes, Errno> {
    let ahead = (offset % ALIGN as u64) as usize;
    let (from, whole) = (offset - ahead as u64, (ahead + len).next_multiple_of(ALIGN));
    let mut data = vec![0u8; whole + ALIGN];
    let start = data.as_ptr().align_offset(ALIGN);
    let mut done = 0;
    // A piece that ends within a page ends the file.
    while done < ahead + len && done.is_multiple_of(ALIGN) {
        let Some(rest) = data.get_mut(start + done..start + whole) else {
            return Err(Errno::INVAL);
        };
        match rustix::io::pread(file, rest, from.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    let end = start + done.min(ahead + len);
    Ok(Bytes::from(data).slice((start + ahead).min(end)..end))
}

/// A fault of a content file as sessions see it.
pub(crate) fn file_fault(blob: BlobNo, why: Errno) -> StoreFault {
    match why {
        Errno::NOENT => StoreFault::Missing(format!("blob {blob}")),
        why if crate::dir::is_full(why) => StoreFault::Full(format!("blob {blob}: {why}")),
        why => StoreFault::Io(format!("blob {blob}: {why}")),
    }
}

#[cfg(test)]
mod tests;
