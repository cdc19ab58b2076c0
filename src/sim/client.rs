//! A local client: hands in one segment as the admin session does, parked or in a reserved file.
//!
//! ```text
//!   parked:            Submit ─────────────────────────────▶ told
//!   in a file: Reserve ─▶ (Accept) Create, Write… Finish ─▶ (Finished) Submit ─▶ told
//! ```

use bytes::Bytes;
use consign_core::id::{BlobDigest, BlobNo, ConnId, Handle, SegmentId, TransferNo};
use consign_core::segment::{Destinations, Meta, segment_id};
use consign_core::session::{
    Accepted, Broken, Content, Promise, SessionCommand, SessionEvent, Submission,
};
use consign_core::store::{StoreEvent, StoreRequest};

use super::rng::Rng;

/// Content is written in pieces of this size.
const PIECE: usize = 64 << 10;
const TICKET: TransferNo = TransferNo(1);

/// What a client wants to hand in.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name, labels, class, expiry.
    pub meta: Meta,
    /// Where to.
    pub to: Destinations,
    /// Content.
    pub body: Bytes,
    /// Digest of the content.
    pub digest: BlobDigest,
    /// Identity.
    pub id: SegmentId,
}

impl Job {
    /// A job for this content.
    #[must_use]
    pub fn new(meta: Meta, to: Destinations, body: Bytes) -> Job {
        let digest = BlobDigest(*blake3::hash(&body).as_bytes());
        let id = segment_id(&meta, &digest);
        Job { meta, to, body, digest, id }
    }

    /// The same content under the same name, once more.
    #[must_use]
    pub fn again(&self, instance: [u8; 16]) -> Job {
        let meta = Meta { instance: instance.to_vec(), ..self.meta.clone() };
        Job { id: segment_id(&meta, &self.digest), meta, ..self.clone() }
    }
}

/// Content that `key` stands for: the same key and length give the same bytes.
#[must_use]
pub fn content(key: u64, len: usize) -> Bytes {
    let mut rng = Rng::stream(key, 77);
    let mut data = Vec::with_capacity(len + 8);
    while data.len() < len {
        data.extend_from_slice(&rng.next().to_le_bytes());
    }
    data.truncate(len);
    data.into()
}

/// What the client wants done.
#[derive(Debug, Default)]
pub struct Wishes {
    /// Of the store, before the events.
    pub requests: Vec<StoreRequest>,
    /// Of the node.
    pub events: Vec<SessionEvent>,
    /// What it was told; it closes its connection then.
    pub told: Option<Told>,
}

/// How a submission ended for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is safe.
    Queued(Accepted),
    /// It is refused, with this stable code; whether trying again later can help.
    Refused(&'static str, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    Reserving,
    Writing { blob: BlobNo },
    Submitted,
}

/// One connection of a client.
#[derive(Debug)]
pub struct Client {
    conn: ConnId,
    job: Job,
    declared: bool,
    inline_max: usize,
    stage: Stage,
}

impl Client {
    /// A client that hands in `job`; it says the length beforehand if `declared`.
    #[must_use]
    pub fn new(conn: ConnId, job: Job, inline_max: u64, declared: bool) -> Client {
        let inline_max = usize::try_from(inline_max).unwrap_or(usize::MAX);
        Client { conn, job, declared, inline_max, stage: Stage::Begin }
    }

    /// What it hands in.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The connection is open.
    pub fn open(&mut self, out: &mut Wishes) {
        let len = self.job.body.len();
        if len <= self.inline_max {
            let handle = Handle { conn: self.conn, number: 1 };
            out.requests.push(StoreRequest::Park { handle, data: self.job.body.clone() });
            return self.submit(Content::Parked(handle), out);
        }
        self.stage = Stage::Reserving;
        let size = self.declared.then_some(len as u64);
        out.events.push(SessionEvent::Reserve { ticket: TICKET, size });
    }

    fn submit(&mut self, content: Content, out: &mut Wishes) {
        self.stage = Stage::Submitted;
        let Job { meta, to, digest, id, body } = self.job.clone();
        let size = body.len() as u64;
        let submission =
            Box::new(Submission { meta, to, id, digest, size, content, watched: None });
        out.events.push(SessionEvent::Submit { ticket: TICKET, submission });
    }

    /// The node's word.
    pub fn command(&mut self, command: SessionCommand, out: &mut Wishes) {
        match command {
            SessionCommand::Promised(promised) => match promised.into_inner() {
                Promise::Accept { blob, .. } if self.stage == Stage::Reserving => {
                    self.write(blob, out);
                }
                Promise::Accepted { accepted, .. } => out.told = Some(Told::Queued(accepted)),
                Promise::Accept { .. }
                | Promise::Start { .. }
                | Promise::Send(_)
                | Promise::Ack { .. }
                | Promise::Receipt(_)
                | Promise::ReceiptOk { .. }
                | Promise::Want { .. }
                | Promise::Done { .. }
                | Promise::Pickup(_) => {}
            },
            SessionCommand::Refuse { refusal, .. } => {
                self.leave(out);
                out.told = Some(Told::Refused(refusal.word(), refusal.is_retry()));
            }
            SessionCommand::Close { .. } => {
                self.leave(out);
                out.told = Some(Told::Refused("stopping", true));
            }
            SessionCommand::Allowance(_)
            | SessionCommand::Pace(_)
            | SessionCommand::Ping
            | SessionCommand::Answer { .. }
            | SessionCommand::Pickup(_) => {}
        }
    }

    fn write(&mut self, blob: BlobNo, out: &mut Wishes) {
        self.stage = Stage::Writing { blob };
        out.requests.push(StoreRequest::Create { blob, offset: 0 });
        let mut rest = self.job.body.clone();
        while !rest.is_empty() {
            let data = rest.split_to(rest.len().min(PIECE));
            out.requests.push(StoreRequest::Write { blob, data });
        }
        out.requests.push(StoreRequest::Finish { blob });
    }

    /// The store's answer.
    pub fn store_event(&mut self, event: StoreEvent, out: &mut Wishes) {
        let Stage::Writing { blob: mine } = self.stage else { return };
        match event {
            StoreEvent::Finished { blob, .. } if blob == mine => {
                self.submit(Content::Blob(blob), out);
            }
            StoreEvent::WriteFailed { blob, fault } if blob == mine => {
                self.stage = Stage::Submitted;
                let why = Broken::Store(fault);
                out.events.push(SessionEvent::Broken { transfer: TICKET, blob, why });
                out.told = Some(Told::Refused("disk", true));
            }
            StoreEvent::Finished { .. }
            | StoreEvent::WriteFailed { .. }
            | StoreEvent::Written { .. }
            | StoreEvent::Synced { .. }
            | StoreEvent::Content { .. }
            | StoreEvent::Queried { .. } => {}
        }
    }

    /// The client goes away: what it had open is given up.
    pub fn leave(&mut self, out: &mut Wishes) {
        if let Stage::Writing { blob } = self.stage {
            out.requests.push(StoreRequest::Abandon { blob });
            let why = Broken::Cut;
            out.events.push(SessionEvent::Broken { transfer: TICKET, blob, why });
        }
        self.stage = Stage::Submitted;
    }
}
