//! What the two sites of the hand-made world do: the rows and frames of each step.

use consign_core::code::{Cause, Refusal};
use consign_core::id::{BlobNo, BodyNo, Seq, SiteNo, TransferNo};
use consign_core::ledger::rows::{
    BlobRow, Body, DeliveryRow, IncomingRow, SegmentRow, SourceRow, State,
};
use consign_core::segment::Destinations;
use consign_core::session::Accepted;
use consign_core::wire::{Frame, Offer};

use super::play::{A, B, Draft, Line, NAMES, PEER, Play, START, bytes, digest, id_of, meta};
use crate::sim::audit::disk::due_key;
use crate::sim::audit::rows::{Inline, Name, Row};
use crate::sim::seen::{Seen, SiteIx};

impl Play {
    /// A local client hands in a segment.
    pub fn submit(&mut self, name: &str) {
        let (meta, to) = (meta(name), Destinations::All);
        let (id, digest, size) = (id_of(name), digest(), bytes().len() as u64);
        self.see(A, &Seen::Submitted { id, digest, size, meta: &meta, to: &to });
    }

    /// The rows of a segment that a site takes: kept in the ledger, owed to the other if it began here.
    pub fn take(&mut self, ix: SiteIx, name: &str) -> Draft {
        let (own, now) = (ix == A, self.wall());
        let inline = Inline::of(&bytes());
        let books = &mut self.books[ix];
        let (seq, body) = (Seq(books.next[0]), BodyNo(books.next[2]));
        (books.next[0], books.next[2]) = (books.next[0] + 1, books.next[2] + 1);
        (books.used, books.segments) = (books.used + inline.charge(), books.segments + 1);
        if !own {
            books.comes_in(1, inline.charge());
        }
        let row = SegmentRow {
            id: id_of(name),
            digest: inline.digest,
            size: inline.size,
            body: Body::Inline(body),
            meta: meta(name),
            to: Destinations::All,
            here: !own,
            origin: if own { String::new() } else { NAMES[A].into() },
            origin_seq: if own { 0 } else { 1 },
            hops: u8::from(!own),
            accepted_at: now,
            required: u32::from(own),
            acked: 0,
            relayed_at: None,
            held: false,
            from: if own { 0 } else { PEER.0 },
            loss: None,
            let_go: None,
            askers: Vec::new(),
            unplaced: None,
        };
        books.rows.insert(seq, row.clone());
        let mut draft = Draft(vec![Line::Body(body, bytes())]);
        draft.put(Row::Segment(seq, Box::new(row.clone()))).put(Row::Id(row.id, seq));
        if own {
            let row = DeliveryRow {
                state: State::Scheduled,
                attempts: 0,
                spent: 0,
                next_attempt_after: now,
                last_error: 0,
                since: now,
                custody: None,
                held: None,
                claimed_at: None,
                refused: 0,
            };
            draft.put(Row::Unmet(now, seq)).put(Row::Owed(PEER, seq));
            self.count(ix, None, Some(State::Scheduled), inline.size);
            self.due(seq, row, &mut draft);
        }
        draft
    }

    fn due(&mut self, seq: Seq, row: DeliveryRow, draft: &mut Draft) {
        let key = due_key(PEER, seq, row.next_attempt_after, &self.books[A].rows[&seq]);
        draft.put(Row::Delivery(seq, PEER, row.clone())).put(Row::Due(key));
        self.books[A].deliveries.insert(seq, row);
    }

    /// The rows of a claim, in the present session.
    pub fn claim(&mut self, seq: Seq) -> Draft {
        let (epoch, now) = (self.epoch(A), self.wall());
        let mut row = self.books[A].deliveries[&seq].clone();
        let segment = self.books[A].rows[&seq].clone();
        let key = due_key(PEER, seq, row.next_attempt_after, &segment);
        self.count(A, Some(row.state), Some(State::Inflight), segment.size);
        (row.state, row.since, row.claimed_at) = (State::Inflight, now, Some(now));
        row.attempts += 1;
        self.books[A].deliveries.insert(seq, row.clone());
        let mut draft = Draft::default();
        draft.del(Name::Due(key)).put(Row::Delivery(seq, PEER, row));
        draft.put(Row::Inflight(PEER, seq, epoch));
        draft
    }

    /// The rows of an attempt that failed.
    pub fn fail(&mut self, seq: Seq, cause: Cause, wait: u64) -> Draft {
        let now = self.wall();
        let mut row = self.books[A].deliveries[&seq].clone();
        let size = self.books[A].rows[&seq].size;
        self.count(A, Some(row.state), Some(State::Failed), size);
        (row.state, row.since, row.last_error) = (State::Failed, now, cause.number());
        row.next_attempt_after = now + wait;
        let mut draft = Draft::default();
        draft.del(Name::Inflight(PEER, seq));
        self.due(seq, row, &mut draft);
        draft
    }

    /// The rows of a delivery that is given up.
    pub fn give_up(&mut self, seq: Seq, cause: Cause) -> Draft {
        let now = self.wall();
        let mut row = self.books[A].deliveries[&seq].clone();
        let segment = self.books[A].rows[&seq].clone();
        self.count(A, Some(row.state), Some(State::Deadletter), segment.size);
        let mut draft = Draft::default();
        if row.state == State::Inflight {
            draft.del(Name::Inflight(PEER, seq));
        } else {
            draft.del(Name::Due(due_key(PEER, seq, row.next_attempt_after, &segment)));
        }
        (row.state, row.since, row.last_error) = (State::Deadletter, now, cause.number());
        self.books[A].deliveries.insert(seq, row.clone());
        draft.put(Row::Delivery(seq, PEER, row)).del(Name::Owed(PEER, seq));
        draft.put(Row::Deadletter(now, seq, PEER, cause.number()));
        draft
    }

    /// The rows of an ACK.
    pub fn acked(&mut self, seq: Seq) -> Draft {
        let now = self.wall();
        let mut row = self.books[A].deliveries[&seq].clone();
        let mut segment = self.books[A].rows[&seq].clone();
        self.count(A, Some(row.state), Some(State::Acked), segment.size);
        (row.state, row.since, row.refused) = (State::Acked, now, 0);
        (segment.acked, segment.relayed_at) = (1, Some(now));
        let accepted = segment.accepted_at;
        self.books[A].deliveries.insert(seq, row.clone());
        self.books[A].rows.insert(seq, segment.clone());
        let mut draft = Draft::default();
        draft.del(Name::Inflight(PEER, seq)).put(Row::Delivery(seq, PEER, row));
        draft.del(Name::Owed(PEER, seq)).put(Row::Segment(seq, Box::new(segment)));
        draft.del(Name::Unmet(accepted, seq));
        draft
    }

    /// A client is told that its segment is safe.
    pub fn queued(&mut self, seq: Seq, name: &str) {
        let accepted = Accepted {
            id: id_of(name),
            seq,
            new: true,
            added: vec![NAMES[B].into()],
            queued: Vec::new(),
            delivered: Vec::new(),
            dead: Vec::new(),
            raised: false,
        };
        self.see(A, &Seen::Queued(&accepted));
    }

    pub fn offer(&self, seq: Seq, transfer: u32) -> Offer {
        let row = &self.books[A].rows[&seq];
        Offer {
            transfer: TransferNo(transfer),
            id: row.id,
            digest: row.digest,
            size: row.size,
            to: Destinations::All,
            origin: NAMES[A].into(),
            origin_seq: seq.0,
            hops: 1,
            meta: row.meta.clone(),
        }
    }

    pub fn send_offer(&mut self, seq: Seq, transfer: u32) {
        let offer = self.offer(seq, transfer);
        self.frame(A, &Frame::Offer(offer, None));
    }

    pub fn ack(&self, seq: Seq, transfer: u32) -> Frame<'static> {
        let id = self.books[A].rows[&seq].id;
        Frame::Ack { transfer: TransferNo(transfer), id, epoch: self.epoch(A) }
    }

    pub fn reject(&mut self, seq: Seq, transfer: u32, refusal: Refusal, retry_after: u64) {
        let id = self.books[A].rows[&seq].id;
        let (transfer, code) = (TransferNo(transfer), refusal.number());
        let reject = Frame::Reject { transfer, id, code, retry_after, text: String::new() };
        self.frame(B, &reject);
    }

    /// Handed in, durable, told.
    pub fn accepted(&mut self, name: &str) -> Seq {
        let seq = Seq(self.books[A].next[0]);
        self.submit(name);
        let draft = self.take(A, name);
        self.commit(A, draft);
        self.queued(seq, name);
        seq
    }

    /// … and in flight.
    pub fn offered(&mut self, name: &str) -> Seq {
        let seq = self.accepted(name);
        let draft = self.claim(seq);
        self.commit(A, draft);
        self.send_offer(seq, seq.0 as u32);
        seq
    }

    /// … and held by the other site, which has said so.
    pub fn answered(&mut self, name: &str) -> Seq {
        let seq = self.offered(name);
        let draft = self.take(B, name);
        self.commit(B, draft);
        let ack = self.ack(seq, seq.0 as u32);
        self.frame(B, &ack);
        seq
    }

    /// … and known to be.
    pub fn delivered(&mut self, name: &str) -> Seq {
        let seq = self.answered(name);
        let draft = self.acked(seq);
        self.commit(A, draft);
        seq
    }

    /// The rows of content that comes as a file, from a peer or a local client.
    pub fn reserve(&mut self, ix: SiteIx, source: SiteNo, offset: u64) -> (BlobNo, Draft) {
        let books = &mut self.books[ix];
        let blob = BlobNo(books.next[1]);
        books.next[1] += 1;
        books.used += 100;
        if source == PEER {
            books.comes_in(0, 100);
        }
        let ttl = u64::try_from(super::play::config(ix).partial_ttl.as_millis()).expect("a week");
        let expires_at = START + self.ms + ttl;
        let row = IncomingRow {
            digest: digest(),
            source: source.0,
            reserved: 100,
            offset,
            chain: Vec::new(),
            expires_at,
            shard: None,
        };
        let mut draft = Draft::default();
        draft.put(Row::Incoming(blob, row));
        if source != SiteNo(0) {
            let row = SourceRow { blob: Some(blob), mismatches: 0 };
            draft.put(Row::Source(digest(), source, row));
        }
        (blob, draft)
    }

    /// The rows of a segment at A whose content is a file.
    pub fn adopt(&mut self, blob: BlobNo, name: &str) -> Draft {
        let mut draft = self.take(A, name);
        let inline = Inline::of(&bytes());
        self.books[A].used -= inline.charge() + 100;
        self.books[A].used += inline.size;
        self.books[A].next[2] -= 1;
        draft = draft.without(|line| matches!(line, Line::Body(..)));
        draft = draft.segment(|row| row.body = Body::Blob(blob));
        let seq = Seq(self.books[A].next[0] - 1);
        if let Some(row) = self.books[A].rows.get_mut(&seq) {
            row.body = Body::Blob(blob);
        }
        let row = BlobRow { digest: digest(), size: inline.size, refs: 1, owner: None };
        draft.put(Row::Blob(blob, row)).put(Row::Digest(digest(), blob));
        draft.put(Row::Owner(blob, seq)).del(Name::Incoming(blob));
        draft
    }

    /// A file at A with the content of all stories.
    pub fn file(&mut self, blob: BlobNo) {
        let size = bytes().len() as u64;
        self.see(A, &Seen::FileWhole { blob, size, digest: digest() });
    }
}
