//! Content on its way in.
//!
//! ```text
//!          small and whole                                         ┌────────┐ Buffered   201, 200
//!  Gather ───────────────── Park, Upload{whole} ──────────────────▶│ Judged │───────────▶
//!    │ too large                                                   └────────┘ refused
//!    ▼ Upload                                                       ▲      ▲
//!  Asked ──▶ Rehashing ──▶ Writing ── whole, Finish ──▶ Finishing ──┘ Whole│
//!   Granted   what follows  │ │ ▲ Create, Write, Sync …                    │
//!             a checkpoint  │ └─┘ Checkpoint, Extend                       │ Broken{Mismatch, Store}
//!                           ├───── digest or length wrong, store failed ───┘
//!                           ▼ body or connection ends, no right to go on
//!                        Cutting ──▶ Cut ──▶ 204 with the durable offset
//!                         Sync        Broken{Cut}
//! ```
//!
//! What arrived is never given up by the end of a connection: it is synced first, and the exact offset
//! is told with the last checkpoint before it. Going on there reads what follows the checkpoint again.

mod steps;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::{Bytes, BytesMut};

use super::digester::{Digester, seal, unseal};
use super::event;
use super::refusal::No;
use super::route::UploadHead;
use crate::http::Conn;
use crate::id::{BlobDigest, BlobNo, Handle, Sha256Digest, TransferNo};
use crate::limits::INLINE_MAX;
use crate::pickup::digest::Given;
use crate::pickup::{BrokenUpload, Event, PickupRefusal, UploadAsk, UploadKind};
use crate::session::{Content, SessionOut};
use crate::store::{StoreFault, StoreRequest};
use crate::time::Now;

/// Bytes handed to the store at a time.
const PIECE: usize = 1 << 20;
/// Bytes that may wait for the disk before the socket is left alone.
const UNWRITTEN_MAX: u64 = 4 << 20;
/// A reservation for a body of unknown length is extended when it has less than this left.
const EXTEND_AHEAD: u64 = 8 << 20;
/// Bytes read again at a time.
const REREAD: u64 = 1 << 20;

#[derive(Debug)]
enum Stage {
    /// It may be small enough to be kept inline.
    Gather,
    /// The node judges it; nothing is granted.
    Asked,
    /// Granted; what stands behind the checkpoint is hashed again.
    Rehashing(Grant),
    /// Content goes to the file.
    Writing(Grant),
    /// It stops; what arrived is made durable.
    Cutting(Grant),
    /// The file is made durable.
    Finishing(BlobNo),
    /// The node has all it needs for an answer.
    Judged,
}

/// What the node has granted.
#[derive(Debug)]
struct Grant {
    blob: BlobNo,
    /// Where it began.
    offset: u64,
    /// The last checkpoint that is durable; sealed until there is one of this request.
    chain: Vec<u8>,
    /// SHA-256 of all of it where it stopped behind a checkpoint: before this request, which it must still
    /// have, and at the end of this one.
    seal: Option<Sha256Digest>,
    reserved: u64,
    extending: bool,
    /// The file is open for writing.
    open: bool,
    /// Syncs that are not answered.
    syncing: u32,
}

/// Word of the node that an upload may go on.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) blob: BlobNo,
    pub(super) offset: u64,
    pub(super) chain: Vec<u8>,
    pub(super) reserved: u64,
    pub(super) size: Option<u64>,
    pub(super) digests: Given,
}

/// One upload.
#[derive(Debug)]
pub(super) struct Upload {
    ticket: TransferNo,
    head: UploadHead,
    handle: Handle,
    inline_max: u64,
    max_upload: u64,
    every: u64,
    stage: Stage,
    /// Of the whole shard; and of this request's body, where its digest was given.
    digester: Digester,
    part: Option<Digester>,
    /// Bytes of this body; those that came behind the last checkpoint are not in one yet.
    came: u64,
    unwritten: u64,
    /// Bytes that came and were not handed on.
    buffer: BytesMut,
    /// Checkpoints that become true when the store has synced, by their offsets.
    syncs: VecDeque<(u64, Vec<u8>)>,
    /// The body is whole.
    ended: bool,
    /// The client has its answer already, or cannot have one.
    answered: bool,
}

impl Upload {
    pub(super) fn new(
        ticket: TransferNo,
        handle: Handle,
        head: UploadHead,
        (inline_max, max_upload): (u64, u64),
        every: u64,
    ) -> Upload {
        Upload {
            ticket,
            part: (!head.part.is_empty()).then(|| Digester::new(every)),
            head,
            handle,
            inline_max: inline_max.min(INLINE_MAX as u64),
            max_upload,
            every,
            stage: Stage::Gather,
            digester: Digester::new(every),
            came: 0,
            unwritten: 0,
            buffer: BytesMut::new(),
            syncs: VecDeque::new(),
            ended: false,
            answered: false,
        }
    }

    pub(super) fn ticket(&self) -> TransferNo {
        self.ticket
    }

    /// The request is there. A body that cannot be kept inline is not read before there is room.
    pub(super) fn begin(&mut self, now: Now, conn: &mut Conn, out: &mut SessionOut) {
        let expected = self.head.body.or(self.head.size).unwrap_or(0);
        let gathers = self.head.kind == UploadKind::Post && self.head.complete;
        if gathers && expected <= self.inline_max {
            conn.go_on(now, &mut out.bytes);
        } else {
            self.ask(None, out);
        }
    }

    fn ask(
        &mut self,
        whole: Option<(Content, u64, Sha256Digest, BlobDigest)>,
        out: &mut SessionOut,
    ) {
        self.stage = if whole.is_some() { Stage::Judged } else { Stage::Asked };
        let head = &self.head;
        let ask = UploadAsk {
            shard: head.shard.clone(),
            client: Some(head.client),
            kind: head.kind,
            size: whole.map(|(_, size, _, _)| size).or(head.size),
            body: head.body,
            sha256: head.whole.sha256,
            blake3: head.whole.blake3,
            complete: head.complete,
            whole,
        };
        out.events.push(event(Event::Upload { ticket: self.ticket, ask: ask.into() }));
    }

    /// Bytes of the body.
    pub(super) fn body(&mut self, data: &[u8], out: &mut SessionOut) -> Result<(), No> {
        self.came = self.came.saturating_add(data.len() as u64);
        if let Some(part) = &mut self.part {
            part.update(data);
        }
        match &self.stage {
            Stage::Gather => {
                self.buffer.extend_from_slice(data);
                if self.came > self.inline_max {
                    self.ask(None, out);
                }
                Ok(())
            }
            Stage::Asked | Stage::Rehashing(_) => {
                self.buffer.extend_from_slice(data);
                Ok(())
            }
            Stage::Writing(_) => self.take(data, out),
            // What still arrives behind the answer is dropped.
            Stage::Cutting(_) | Stage::Finishing(_) | Stage::Judged => Ok(()),
        }
    }

    /// The body is whole.
    pub(super) fn end(&mut self, out: &mut SessionOut) -> Result<(), No> {
        self.ended = true;
        match self.stage {
            Stage::Gather => {
                self.digester.update(&self.buffer);
                let (sha256, blake3) = self.digester.finish();
                if !self.head.whole.fits(&sha256, &blake3) || !self.fits_size() {
                    self.stage = Stage::Judged;
                    return Err(mismatch());
                }
                let (handle, data) = (self.handle, self.buffer.split().freeze());
                let size = data.len() as u64;
                out.requests.push(StoreRequest::Park { handle, data });
                self.ask(Some((Content::Parked(handle), size, sha256, blake3)), out);
            }
            Stage::Writing(_) => {
                self.judge(out);
                self.advance(out);
            }
            Stage::Asked
            | Stage::Rehashing(_)
            | Stage::Cutting(_)
            | Stage::Finishing(_)
            | Stage::Judged => {}
        }
        Ok(())
    }

    /// The node lets it go on, or has extended what is reserved.
    pub(super) fn granted(
        &mut self,
        now: Now,
        granted: Granted,
        conn: &mut Conn,
        out: &mut SessionOut,
    ) -> Result<(), No> {
        match &mut self.stage {
            Stage::Asked => {}
            Stage::Writing(grant) if grant.blob == granted.blob => {
                grant.reserved = grant.reserved.max(granted.reserved);
                grant.extending = false;
                self.advance(out);
                return Ok(());
            }
            Stage::Writing(_)
            | Stage::Gather
            | Stage::Rehashing(_)
            | Stage::Cutting(_)
            | Stage::Finishing(_)
            | Stage::Judged => return Ok(()),
        }
        let Granted { blob, offset, chain, reserved, size, digests } = granted;
        let (seal, bare) = match unseal(&chain) {
            Some((seal, bare)) => (Some(seal), bare),
            None => (None, &chain[..]),
        };
        let resumed = Digester::resume(bare, self.every).filter(|d| d.offset() <= offset);
        let whole = self.head.whole.and(&digests);
        let (Some(digester), Some(whole)) = (resumed, whole) else {
            // What was begun does not fit what goes on: it cannot become right any more.
            self.stage = Stage::Judged;
            out.events.push(self.broken(blob, BrokenUpload::Mismatch));
            return Ok(());
        };
        (self.digester, self.head.whole) = (digester, whole);
        let (extending, open, syncing) = (false, false, 0);
        let grant = Grant { blob, offset, chain, seal, reserved, extending, open, syncing };
        let fits = self.fits_grant(size, offset);
        self.head.size = self.head.size.or(size);
        self.stage = Stage::Rehashing(grant);
        if !fits {
            self.cut(out);
            return Err(No::header("the length of the body does not fit the shard's"));
        }
        self.reread(now, conn, out)
    }

    /// Whether the lengths that were given then and now can both be right.
    fn fits_grant(&self, granted: Option<u64>, offset: u64) -> bool {
        let sizes = match (granted, self.head.size) {
            (Some(granted), Some(given)) => granted == given,
            (_, _) => true,
        };
        let size = granted.or(self.head.size);
        let end = self.head.body.map(|body| offset.saturating_add(body));
        let ends = match (size, end) {
            (Some(size), Some(end)) if self.head.complete => end == size,
            (Some(size), Some(end)) => end <= size,
            (_, _) => true,
        };
        sizes && ends
    }

    fn fits_size(&self) -> bool {
        self.head.size.is_none_or(|size| size == self.digester.offset())
    }

    /// Hashes what stands behind the checkpoint, a piece at a time; then the body may come.
    fn reread(&mut self, now: Now, conn: &mut Conn, out: &mut SessionOut) -> Result<(), No> {
        let Stage::Rehashing(grant) = &self.stage else { return Ok(()) };
        let (blob, at) = (grant.blob, self.digester.offset());
        let left = grant.offset.saturating_sub(at);
        if left > 0 {
            let len = usize::try_from(left.min(REREAD)).unwrap_or(usize::MAX);
            let (ticket, body) = (self.ticket, crate::ledger::rows::Body::Blob(blob));
            out.requests.push(StoreRequest::Read { ticket, body, offset: at, len });
            return Ok(());
        }
        if grant.seal.is_some_and(|seal| seal != self.digester.sha256()) {
            // The digests of what arrives from now on would make it look right.
            let text = alloc::format!("its first {at} bytes are not what was written");
            self.stage = Stage::Judged;
            let why = BrokenUpload::Store(StoreFault::Corrupt(text));
            out.events.push(self.broken(blob, why));
            return Ok(());
        }
        if let Stage::Rehashing(grant) = core::mem::replace(&mut self.stage, Stage::Judged) {
            self.stage = Stage::Writing(grant);
        }
        conn.go_on(now, &mut out.bytes);
        let waited = self.buffer.split();
        self.take(&waited, out)?;
        if self.ended {
            self.judge(out);
            self.advance(out);
        }
        Ok(())
    }

    /// Content was read again.
    pub(super) fn reread_came(
        &mut self,
        now: Now,
        data: Result<Bytes, StoreFault>,
        conn: &mut Conn,
        out: &mut SessionOut,
    ) -> Result<(), No> {
        let Stage::Rehashing(grant) = &self.stage else { return Ok(()) };
        let blob = grant.blob;
        let left = grant.offset.saturating_sub(self.digester.offset());
        let fault = match data {
            Ok(data) if !data.is_empty() && data.len() as u64 <= left => {
                self.digester.update(&data);
                return self.reread(now, conn, out);
            }
            Ok(_) => StoreFault::Corrupt("it is shorter than what was durable".into()),
            Err(fault @ (StoreFault::Missing(_) | StoreFault::Corrupt(_))) => fault,
            // It is still there, and may be read another time.
            Err(StoreFault::Full(_) | StoreFault::Crowded | StoreFault::Io(_)) => {
                self.cut(out);
                let text = "what is there already cannot be read just now";
                return Err(No::of(PickupRefusal::Unavailable, text).and("Retry-After", "1"));
            }
        };
        self.stage = Stage::Judged;
        out.events.push(self.broken(blob, BrokenUpload::Store(fault)));
        Ok(())
    }

    /// The node says no. What is on its way is stopped; says whether the client is still to be told.
    pub(super) fn refused(&mut self, out: &mut SessionOut) -> bool {
        let tell = !self.answered;
        match self.stage {
            Stage::Writing(_) | Stage::Rehashing(_) => self.cut(out),
            Stage::Cutting(_) => {}
            Stage::Gather | Stage::Asked | Stage::Finishing(_) | Stage::Judged => {
                self.stage = Stage::Judged;
            }
        }
        self.answered = true;
        tell
    }

    /// The client has its answer.
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }

    /// The connection, or the right to it, ends before the body does.
    pub(super) fn give_up(&mut self, out: &mut SessionOut) {
        self.answered = true;
        match self.stage {
            Stage::Writing(_) | Stage::Rehashing(_) => self.cut(out),
            Stage::Gather | Stage::Asked => self.stage = Stage::Judged,
            Stage::Cutting(_) | Stage::Finishing(_) | Stage::Judged => {}
        }
    }

    /// Whether nothing is to be done any more.
    pub(super) fn is_over(&self) -> bool {
        self.answered && !matches!(self.stage, Stage::Cutting(_))
    }

    /// Whether nothing is left but to make what arrived durable, which the connection has to outlive.
    pub(super) fn is_winding_up(&self) -> bool {
        self.answered && matches!(self.stage, Stage::Cutting(_))
    }

    /// Whether the node has all it needs, and nothing but its word is missing.
    pub(super) fn is_judged(&self) -> bool {
        matches!(self.stage, Stage::Judged | Stage::Finishing(_) | Stage::Cutting(_))
    }

    /// Whether more content can be placed.
    pub(super) fn wants_read(&self) -> bool {
        match self.stage {
            Stage::Gather => true,
            Stage::Asked | Stage::Rehashing(_) => self.ended,
            Stage::Writing(_) => {
                self.unwritten.saturating_add(self.buffer.len() as u64) < UNWRITTEN_MAX
            }
            Stage::Cutting(_) | Stage::Finishing(_) | Stage::Judged => true,
        }
    }
}

fn mismatch() -> No {
    let text = "what arrived does not match its digest or its length";
    No::of(PickupRefusal::DigestMismatch, text)
}
