//! Content on its way out: read in pieces, hashed, and never whole unless the digest matches.

use std::collections::VecDeque;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use consign_core::http::{Conn, Payload, Response};
use consign_core::id::{Seq, TransferNo};
use consign_core::ledger::rows::Body;
use consign_core::session::{SessionEvent, SessionOut};
use consign_core::store::{StoreFault, StoreRequest};
use consign_core::time::Now;

use super::ledger::Located;
use super::refusal::No;

/// Bytes asked of the store at a time.
const PIECE: u64 = 256 << 10;
/// Bytes that may wait for the socket before another piece is asked for.
const AHEAD: usize = 256 << 10;

/// What became of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It goes on.
    More,
    /// The answer is whole, or broken off.
    Done,
    /// Nothing is sent yet, and nothing will be: answer this.
    Refuse(No),
}

/// One answer with content.
#[derive(Debug)]
pub(super) struct Download {
    ticket: TransferNo,
    located: Located,
    body: Body,
    hasher: blake3::Hasher,
    /// Bytes that were asked for and that came.
    asked: u64,
    came: u64,
    waiting: VecDeque<Bytes>,
    begun: bool,
}

impl Download {
    pub(super) fn new(ticket: TransferNo, located: Located, body: Body) -> Download {
        Download {
            ticket,
            located,
            body,
            hasher: blake3::Hasher::new(),
            asked: 0,
            came: 0,
            waiting: VecDeque::new(),
            begun: false,
        }
    }

    pub(super) fn ticket(&self) -> TransferNo {
        self.ticket
    }

    /// Whether its head is out.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Asks for the first piece, or answers at once where there is nothing to be read.
    pub(super) fn begin(
        &mut self,
        now: Now,
        head_only: bool,
        conn: &mut Conn,
        out: &mut SessionOut,
    ) -> Step {
        if head_only || self.located.size == 0 {
            self.respond(now, conn, out);
            conn.finish(now, &mut out.bytes);
            return Step::Done;
        }
        self.ask(out);
        Step::More
    }

    fn ask(&mut self, out: &mut SessionOut) {
        let waiting: usize = self.waiting.iter().map(Bytes::len).sum();
        let left = self.located.size - self.asked;
        if self.asked > self.came || left == 0 || waiting > AHEAD {
            return;
        }
        let len = left.min(PIECE);
        out.requests.push(StoreRequest::Read {
            ticket: self.ticket,
            body: self.body,
            offset: self.asked,
            len: len as usize,
        });
        self.asked += len;
    }

    /// The node hears that what is kept is not what was accepted.
    fn tell(&self, out: &mut SessionOut) {
        out.events.push(SessionEvent::Corrupt(Seq(self.located.seq)));
    }

    /// A piece has come.
    pub(super) fn content(
        &mut self,
        now: Now,
        data: Result<Bytes, StoreFault>,
        conn: &mut Conn,
        out: &mut SessionOut,
    ) -> Step {
        let data = match data {
            Ok(data) => data,
            Err(fault) => {
                if matches!(fault, StoreFault::Missing(_) | StoreFault::Corrupt(_)) {
                    self.tell(out);
                }
                return self.fail(No::of_store(&fault), conn);
            }
        };
        self.came += data.len() as u64;
        self.hasher.update(&data);
        if self.came != self.asked {
            self.tell(out);
            let why = format!("the content is shorter than its {} bytes", self.located.size);
            return self.fail(No::new(500, "corrupt", why), conn);
        }
        // The last piece is held back until all of it is known to be good.
        let last = self.came == self.located.size;
        if last && self.hasher.finalize().as_bytes() != &self.located.digest {
            self.tell(out);
            let why = "the content does not match its digest";
            return self.fail(No::new(500, "corrupt", why), conn);
        }
        if !self.begun {
            self.respond(now, conn, out);
        }
        self.waiting.push_back(data);
        self.ask(out);
        Step::More
    }

    /// Sends what there is room for now.
    pub(super) fn pump(
        &mut self,
        now: Now,
        mut room: usize,
        conn: &mut Conn,
        out: &mut SessionOut,
    ) -> Step {
        while room > 0
            && let Some(piece) = self.waiting.front_mut()
        {
            let part = piece.split_to(piece.len().min(room));
            room -= part.len();
            conn.send(&part, &mut out.bytes);
            if piece.is_empty() {
                self.waiting.pop_front();
            }
        }
        if self.waiting.is_empty() && self.came == self.located.size {
            conn.finish(now, &mut out.bytes);
            return Step::Done;
        }
        self.ask(out);
        Step::More
    }

    fn fail(&mut self, no: No, conn: &mut Conn) -> Step {
        if !self.begun {
            return Step::Refuse(no);
        }
        conn.abort();
        Step::Done
    }

    fn respond(&mut self, now: Now, conn: &mut Conn, out: &mut SessionOut) {
        self.begun = true;
        let digest = digest_field(&self.located.digest);
        let content_type = match self.located.content_type.as_str() {
            "" => "application/octet-stream",
            content_type => content_type,
        };
        let headers = [
            ("Content-Type", content_type),
            ("Repr-Digest", digest.as_str()),
            ("Consign-Segment", self.located.id.as_str()),
        ];
        let payload = Payload::Sized(self.located.size);
        conn.respond(now, &Response { status: 200, headers: &headers, payload }, &mut out.bytes);
    }
}

/// `blake3=:BASE64:`, as RFC 9530 writes digests.
pub(crate) fn digest_field(digest: &[u8; 32]) -> String {
    format!("blake3=:{}:", STANDARD.encode(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_written_in_base64() {
        let empty = *blake3::hash(b"").as_bytes();
        assert_eq!(digest_field(&empty), "blake3=:rxNJufX5oaagQE3qNtzJSZvLJcmtwRK3zJqTyuQfMmI=:");
    }
}
