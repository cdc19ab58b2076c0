//! Content on its way in: gathered when it is small, written to a reserved file when it is not, hashed
//! as it comes, and submitted only when it is whole.
//!
//! ```text
//!            small                               ┌────────────┐ committed
//!   Gather ──────────────── Park, Submit ───────►│ Submitting │───────────► 201
//!     │ too large                                └────────────┘
//!     ▼                                                 ▲ Submit
//!   Checking ─► Reserving ─► Writing ─► Finishing ──────┘
//!   are the destinations     │    ▲ Create, Write …     Finish
//!   known?                   └────┘ Extend before the reservation is passed
//! ```

use bytes::BytesMut;

use consign_core::code::Refusal;
use consign_core::http::Conn;
use consign_core::id::{BlobDigest, BlobNo, Handle, SegmentId, TransferNo};
use consign_core::limits::INLINE_MAX;
use consign_core::node::{Question, Status};
use consign_core::segment::{Destinations, Meta, segment_id};
use consign_core::session::{
    Accepted, Broken, Content, SessionEvent, SessionOut, Submission, WatchedFile,
};
use consign_core::store::{StoreFault, StoreRequest};
use consign_core::time::Now;

use super::refusal::No;
use super::shapes;

/// Bytes handed to the store at a time.
const PIECE: usize = 1 << 20;
/// Bytes that may wait for the disk before the socket is left alone.
const UNWRITTEN_MAX: u64 = 4 << 20;
/// A reservation of unknown size is extended when it has less than this left.
const EXTEND_AHEAD: u64 = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Gather,
    Checking,
    Reserving,
    Writing { blob: BlobNo, reserved: u64, extending: bool },
    Finishing { blob: BlobNo },
    Submitting,
}

/// One submission.
#[derive(Debug)]
pub(super) struct Upload {
    ticket: TransferNo,
    handle: Handle,
    meta: Meta,
    to: Destinations,
    watched: Option<Box<WatchedFile>>,
    declared: Option<u64>,
    inline_max: u64,
    stage: Stage,
    hasher: blake3::Hasher,
    /// Bytes that came, that were handed to the store, and of those the ones still in memory.
    size: u64,
    handed: u64,
    unwritten: u64,
    /// Bytes that came and were not handed on.
    buffer: BytesMut,
    /// The body is whole.
    ended: bool,
    id: Option<(SegmentId, BlobDigest)>,
}

impl Upload {
    /// `handle` is for the body if it is parked.
    pub(super) fn new(
        ticket: TransferNo,
        handle: Handle,
        (meta, to): (Meta, Destinations),
        declared: Option<u64>,
        inline_max: u64,
    ) -> Upload {
        Upload {
            ticket,
            handle,
            meta,
            to,
            watched: None,
            declared,
            inline_max: inline_max.min(INLINE_MAX as u64),
            stage: Stage::Gather,
            hasher: blake3::Hasher::new(),
            size: 0,
            handed: 0,
            unwritten: 0,
            buffer: BytesMut::new(),
            ended: false,
            id: None,
        }
    }

    /// It is this file of a watched directory.
    pub(super) fn of_watched(mut self, file: Option<Box<WatchedFile>>) -> Upload {
        self.watched = file;
        self
    }

    pub(super) fn ticket(&self) -> TransferNo {
        self.ticket
    }

    /// The request is there. Content that is known to be large is not read before there is room.
    pub(super) fn begin(&mut self, now: Now, conn: &mut Conn, out: &mut SessionOut) {
        if self.declared.is_some_and(|size| size > self.inline_max) {
            self.check(out);
        } else {
            conn.go_on(now, &mut out.bytes);
        }
    }

    /// Nothing is reserved, and nothing large read, for a destination that does not exist.
    fn check(&mut self, out: &mut SessionOut) {
        match self.to {
            Destinations::All => self.reserve(out),
            Destinations::Named(_) => {
                self.stage = Stage::Checking;
                let question = Question::Status;
                out.events.push(SessionEvent::Ask { ticket: self.ticket, question });
            }
        }
    }

    fn reserve(&mut self, out: &mut SessionOut) {
        self.stage = Stage::Reserving;
        out.events.push(SessionEvent::Reserve { ticket: self.ticket, size: self.declared });
    }

    /// The node has said which sites there are. The node judges again when the segment is submitted.
    pub(super) fn status(&mut self, status: &Status, out: &mut SessionOut) -> Result<(), No> {
        if self.stage != Stage::Checking {
            return Ok(());
        }
        if let Destinations::Named(names) = &self.to {
            let known = |n: &&String| {
                status.name == **n || status.peers.iter().any(|peer| peer.name == **n)
            };
            if let Some(name) = names.iter().find(|name| !known(name)) {
                let text = format!("no site is called {name:?}");
                return Err(No::of_refusal(Refusal::UnknownDestination, 0, text));
            }
        }
        self.reserve(out);
        Ok(())
    }

    /// Bytes of the content.
    pub(super) fn body(&mut self, data: &[u8], out: &mut SessionOut) {
        self.hasher.update(data);
        self.size += data.len() as u64;
        self.buffer.extend_from_slice(data);
        match self.stage {
            Stage::Gather if self.size > self.inline_max => self.check(out),
            Stage::Gather | Stage::Checking | Stage::Reserving => {}
            Stage::Writing { .. } => self.push(out),
            Stage::Finishing { .. } | Stage::Submitting => {
                unreachable!("the content is whole in these stages")
            }
        }
    }

    /// The content is whole.
    pub(super) fn end(&mut self, out: &mut SessionOut) {
        self.ended = true;
        match self.stage {
            Stage::Gather => {
                let (handle, data) = (self.handle, self.buffer.split().freeze());
                out.requests.push(StoreRequest::Park { handle, data });
                self.submit(Content::Parked(handle), out);
            }
            Stage::Writing { .. } => self.push(out),
            Stage::Checking | Stage::Reserving => {}
            Stage::Finishing { .. } | Stage::Submitting => {
                unreachable!("the content ends once")
            }
        }
    }

    /// The node has reserved so many bytes in all.
    pub(super) fn granted(
        &mut self,
        now: Now,
        (granted, granted_bytes): (BlobNo, u64),
        conn: &mut Conn,
        out: &mut SessionOut,
    ) {
        match self.stage {
            Stage::Reserving => {
                self.stage =
                    Stage::Writing { blob: granted, reserved: granted_bytes, extending: false };
                out.requests.push(StoreRequest::Create { blob: granted, offset: 0 });
                conn.go_on(now, &mut out.bytes);
                self.push(out);
            }
            Stage::Writing { blob, reserved, .. } if blob == granted => {
                let reserved = reserved.max(granted_bytes);
                self.stage = Stage::Writing { blob, reserved, extending: false };
                self.push(out);
            }
            Stage::Writing { .. }
            | Stage::Gather
            | Stage::Checking
            | Stage::Finishing { .. }
            | Stage::Submitting => {}
        }
    }

    /// Hands on what is there, within the reservation.
    fn push(&mut self, out: &mut SessionOut) {
        let Stage::Writing { blob, reserved, mut extending } = self.stage else { return };
        while self.buffer.len() >= PIECE || (self.ended && !self.buffer.is_empty()) {
            let room = usize::try_from(reserved - self.handed).unwrap_or(usize::MAX);
            let data = self.buffer.split_to(self.buffer.len().min(PIECE).min(room)).freeze();
            if data.is_empty() {
                break;
            }
            self.handed += data.len() as u64;
            self.unwritten += data.len() as u64;
            out.requests.push(StoreRequest::Write { blob, data });
        }
        if self.ended && self.buffer.is_empty() {
            self.stage = Stage::Finishing { blob };
            out.requests.push(StoreRequest::Finish { blob });
            return;
        }
        // Asked ahead, so that a slow commit does not stop the content; never past the end.
        let needed = match (self.declared, self.ended) {
            (Some(size), _) => size,
            (None, true) => self.size,
            (None, false) => self.size.saturating_add(EXTEND_AHEAD),
        };
        if !extending && needed > reserved {
            extending = true;
            out.events.push(SessionEvent::Extend { ticket: self.ticket, blob });
        }
        self.stage = Stage::Writing { blob, reserved, extending };
    }

    /// The store has written so many bytes.
    pub(super) fn written(&mut self, bytes: u64) {
        self.unwritten = self.unwritten.saturating_sub(bytes);
    }

    /// The file is whole and durable.
    pub(super) fn finished(
        &mut self,
        blob: BlobNo,
        size: u64,
        out: &mut SessionOut,
    ) -> Result<(), No> {
        if self.stage != (Stage::Finishing { blob }) {
            return Ok(());
        }
        if size != self.size {
            let ticket = self.ticket;
            out.events.push(SessionEvent::Broken { transfer: ticket, blob, why: Broken::Mismatch });
            let text = format!("{size} of {} bytes arrived in the store", self.size);
            return Err(No::new(500, "store_failed", text));
        }
        self.submit(Content::Blob(blob), out);
        Ok(())
    }

    fn submit(&mut self, content: Content, out: &mut SessionOut) {
        let digest = BlobDigest(*self.hasher.finalize().as_bytes());
        let id = segment_id(&self.meta, &digest);
        self.id = Some((id, digest));
        self.stage = Stage::Submitting;
        let submission = Submission {
            meta: self.meta.clone(),
            to: self.to.clone(),
            id,
            digest,
            size: self.size,
            content,
            watched: self.watched.clone(),
        };
        let submission = Box::new(submission);
        out.events.push(SessionEvent::Submit { ticket: self.ticket, submission });
    }

    /// The store could not write it; the file is closed.
    pub(super) fn write_failed(
        &mut self,
        blob: BlobNo,
        fault: StoreFault,
        out: &mut SessionOut,
    ) -> No {
        let no = No::of_store(&fault);
        let why = Broken::Store(fault);
        out.events.push(SessionEvent::Broken { transfer: self.ticket, blob, why });
        self.stage = Stage::Submitting;
        no
    }

    /// Whether this is the file it writes to.
    pub(super) fn writes(&self, number: BlobNo) -> bool {
        match self.stage {
            Stage::Writing { blob, .. } | Stage::Finishing { blob } => blob == number,
            Stage::Gather | Stage::Checking | Stage::Reserving | Stage::Submitting => false,
        }
    }

    /// It will not be finished: the connection ended, or the node said no.
    pub(super) fn give_up(&mut self, out: &mut SessionOut) {
        match self.stage {
            Stage::Writing { blob, .. } | Stage::Finishing { blob } => {
                out.requests.push(StoreRequest::Abandon { blob });
                let why = Broken::Cut;
                out.events.push(SessionEvent::Broken { transfer: self.ticket, blob, why });
            }
            Stage::Gather | Stage::Checking | Stage::Reserving | Stage::Submitting => {}
        }
        self.stage = Stage::Submitting;
    }

    /// Whether it waits for nothing but the commit.
    pub(super) fn is_submitted(&self) -> bool {
        self.stage == Stage::Submitting
    }

    /// Whether more content can be placed.
    pub(super) fn wants_read(&self) -> bool {
        match self.stage {
            Stage::Gather => true,
            Stage::Checking | Stage::Reserving => self.ended,
            Stage::Writing { .. } => {
                self.unwritten.saturating_add(self.buffer.len() as u64) < UNWRITTEN_MAX
            }
            Stage::Finishing { .. } | Stage::Submitting => true,
        }
    }

    /// The answer once it is committed.
    pub(super) fn accepted(&self, accepted: Accepted) -> shapes::Accepted {
        let digest = self.id.as_ref().map(|(_, digest)| digest);
        shapes::Accepted::of(accepted, self.meta.name.clone(), self.size, digest)
    }
}
