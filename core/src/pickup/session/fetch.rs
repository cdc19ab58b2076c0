//! Content on its way to the node that redeemed its token.
//!
//! Content is read in pieces ahead of the socket, a bounded way. Of a whole answer the last piece is
//! held back until the digest of all is known to be right: what is damaged is never received whole.
//! The fetch is over when the kernel has the last byte.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;

use bytes::Bytes;

use super::event;
use super::refusal::No;
use crate::hash::Hasher;
use crate::http::{Conn, Payload, Response};
use crate::id::TransferNo;
use crate::pickup::{Event, FetchEnd, PickupRefusal, Serve, digest};
use crate::session::SessionOut;
use crate::store::{StoreFault, StoreRequest};
use crate::time::{Instant, Now};

/// Bytes asked of the store at a time.
const PIECE: u64 = 256 << 10;
/// Bytes that may wait for the socket before another piece is asked for.
const AHEAD: usize = 256 << 10;
/// Shortest time between two words of progress, and the longest that one is kept back: graces may be as short as a
/// second.
const MOVED_EVERY: Duration = Duration::from_millis(250);

/// What became of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It goes on.
    More,
    /// It is over, one way or the other, and that has been told.
    Over,
    /// As that, before anything was sent: answer this.
    Refuse(No),
}

/// One fetch.
#[derive(Debug)]
pub(super) struct Fetch {
    ticket: TransferNo,
    serve: Serve,
    /// The first byte that is sent.
    from: u64,
    partial: bool,
    /// Of a whole answer.
    hasher: Option<Hasher>,
    /// Bytes that were asked for, that came, and that were appended, counted from `from`.
    asked: u64,
    came: u64,
    sent: u64,
    waiting: VecDeque<Bytes>,
    /// Where in everything the session says the content begins; `None` before the head is out.
    begins: Option<u64>,
    /// Of the content, bytes that the kernel has; when that changed last; when it was told last.
    moved: u64,
    moved_at: Instant,
    told_at: Instant,
    stall: Duration,
}

impl Fetch {
    pub(super) fn new(
        now: Now,
        ticket: TransferNo,
        serve: Serve,
        from: Option<u64>,
        stall: Duration,
    ) -> Fetch {
        // Hashing needs no checkpoints here, so the distance is the usual one.
        let hasher = from.is_none().then(Hasher::new);
        Fetch {
            ticket,
            from: from.unwrap_or(0).min(serve.size),
            serve,
            partial: from.is_some(),
            hasher,
            asked: 0,
            came: 0,
            sent: 0,
            waiting: VecDeque::new(),
            begins: None,
            moved: 0,
            moved_at: now.mono,
            told_at: now.mono,
            stall,
        }
    }

    pub(super) fn ticket(&self) -> TransferNo {
        self.ticket
    }

    pub(super) fn redemption(&self) -> u64 {
        self.serve.redemption
    }

    /// When it is broken off if nothing is taken before, or has something to say.
    pub(super) fn deadline(&self) -> Instant {
        let stalled = self.moved_at.after(self.stall);
        self.moved_due().map_or(stalled, |due| due.min(stalled))
    }

    /// When progress is to be told that was not yet.
    fn moved_due(&self) -> Option<Instant> {
        (self.moved_at > self.told_at).then(|| self.told_at.after(MOVED_EVERY))
    }

    fn tell_moved(&mut self, now: Now, out: &mut SessionOut) {
        if self.moved_due().is_some_and(|due| due <= now.mono) {
            self.told_at = now.mono;
            let redemption = self.serve.redemption;
            out.events.push(event(Event::FetchMoved { redemption }));
        }
    }

    fn len(&self) -> u64 {
        self.serve.size.saturating_sub(self.from)
    }

    /// Asks for the first piece, or answers at once where there is nothing to be read. `said` is how
    /// much the session has said before this answer.
    pub(super) fn begin(
        &mut self,
        now: Now,
        conn: &mut Conn,
        said: impl FnOnce(&SessionOut) -> u64,
        out: &mut SessionOut,
    ) {
        if self.len() == 0 {
            self.respond(now, conn, out);
            self.begins = Some(said(out));
        } else {
            self.ask(out);
        }
    }

    fn ask(&mut self, out: &mut SessionOut) {
        let waiting: usize = self.waiting.iter().map(Bytes::len).sum();
        let left = self.len().saturating_sub(self.asked);
        if self.asked > self.came || left == 0 || waiting > AHEAD {
            return;
        }
        let len = left.min(PIECE);
        out.requests.push(StoreRequest::Read {
            ticket: self.ticket,
            body: self.serve.body,
            offset: self.from.saturating_add(self.asked),
            len: usize::try_from(len).unwrap_or(usize::MAX),
        });
        self.asked = self.asked.saturating_add(len);
    }

    /// A piece has come.
    pub(super) fn content(
        &mut self,
        now: Now,
        data: Result<Bytes, StoreFault>,
        conn: &mut Conn,
        said: impl FnOnce(&SessionOut) -> u64,
        out: &mut SessionOut,
    ) -> Step {
        let data = match data {
            Ok(data) => data,
            Err(fault) => return self.unreadable(fault, conn, out),
        };
        self.came = self.came.saturating_add(data.len() as u64);
        if self.came != self.asked {
            let why = format!("it is shorter than its {} bytes", self.serve.size);
            return self.unreadable(StoreFault::Corrupt(why), conn, out);
        }
        let last = self.came == self.len();
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&data);
            if last && hasher.finalize() != self.serve.blake3 {
                let why = String::from("it does not match its digest");
                return self.unreadable(StoreFault::Corrupt(why), conn, out);
            }
        }
        if self.begins.is_none() {
            self.respond(now, conn, out);
            self.begins = Some(said(out));
        }
        self.waiting.push_back(data);
        self.ask(out);
        Step::More
    }

    /// Sends what there is room for now.
    pub(super) fn pump(&mut self, mut room: usize, conn: &mut Conn, out: &mut SessionOut) {
        while room > 0
            && let Some(piece) = self.waiting.front_mut()
        {
            let part = piece.split_to(piece.len().min(room));
            room = room.saturating_sub(part.len());
            self.sent = self.sent.saturating_add(part.len() as u64);
            conn.send(&part, &mut out.bytes);
            if piece.is_empty() {
                self.waiting.pop_front();
            }
        }
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        self.ask(out);
    }

    /// The kernel has so many bytes of everything the session has said.
    pub(super) fn handed(
        &mut self,
        now: Now,
        bytes: u64,
        conn: &mut Conn,
        out: &mut SessionOut,
    ) -> Step {
        let Some(begins) = self.begins.filter(|begins| bytes >= *begins) else {
            return Step::More;
        };
        let moved = bytes.saturating_sub(begins).min(self.sent);
        if moved > self.moved {
            self.moved = moved;
            self.moved_at = now.mono;
        }
        if self.moved == self.len() {
            conn.finish(now, &mut out.bytes);
            self.tell(FetchEnd::Whole, out);
            return Step::Over;
        }
        self.tell_moved(now, out);
        Step::More
    }

    /// A deadline may have passed.
    pub(super) fn timer(&mut self, now: Now, conn: &mut Conn, out: &mut SessionOut) -> Step {
        self.tell_moved(now, out);
        if now.mono < self.moved_at.after(self.stall) {
            return Step::More;
        }
        self.break_off(conn, out);
        Step::Over
    }

    /// It has no right, or no time, to go on.
    pub(super) fn break_off(&mut self, conn: &mut Conn, out: &mut SessionOut) {
        conn.abort();
        // All of it may have been said, and wait for the socket: the node must not get it whole.
        out.cut = true;
        self.tell(FetchEnd::Broken { moved: self.moved }, out);
    }

    fn unreadable(&mut self, fault: StoreFault, conn: &mut Conn, out: &mut SessionOut) -> Step {
        let no = match &fault {
            StoreFault::Missing(_) | StoreFault::Corrupt(_) => {
                No::of(PickupRefusal::Corrupt, "the content is lost or damaged here")
            }
            StoreFault::Full(_) | StoreFault::Crowded | StoreFault::Io(_) => {
                let text = "the content cannot be read just now";
                No::of(PickupRefusal::Unavailable, text).and("Retry-After", "1")
            }
        };
        self.tell(FetchEnd::Unreadable(fault), out);
        if self.begins.is_some() {
            conn.abort();
            return Step::Over;
        }
        Step::Refuse(no)
    }

    fn tell(&self, end: FetchEnd, out: &mut SessionOut) {
        let redemption = self.serve.redemption;
        out.events.push(event(Event::FetchEnded { redemption, end }));
    }

    fn respond(&self, now: Now, conn: &mut Conn, out: &mut SessionOut) {
        let Serve { shard, redemption, size, sha256, blake3, .. } = &self.serve;
        let digests = digest::field(sha256, blake3);
        let (version, index) = (shard.version().to_string(), shard.index().to_string());
        let redemption = redemption.to_string();
        let range = match size.checked_sub(1) {
            Some(last) if self.from <= last => format!("bytes {}-{last}/{size}", self.from),
            _ => format!("bytes */{size}"),
        };
        let about = if self.partial {
            ("Content-Range", range.as_str())
        } else {
            (digest::CONTENT_DIGEST, digests.as_str())
        };
        let headers = [
            ("Content-Type", "application/octet-stream"),
            ("Cache-Control", "no-store"),
            ("Accept-Ranges", "bytes"),
            ("X-Nodus-File-Id", shard.file_id()),
            ("X-Nodus-Version", &version),
            ("X-Nodus-Shard-Index", &index),
            ("X-Nodus-Redemption", &redemption),
            (digest::REPR_DIGEST, &digests),
            about,
        ];
        let status = if self.partial { 206 } else { 200 };
        let payload = Payload::Sized(self.len());
        conn.respond(now, &Response { status, headers: &headers, payload }, &mut out.bytes);
    }
}
