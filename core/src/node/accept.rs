//! Taking segments in: offers of peers, submissions of local clients, content that has arrived.
//!
//! Each waits for a lookup (what is known of this segment and its content), is judged on the answer
//! with everything staged on top, and is staged or refused. What is told to the other side is a promise
//! on that batch.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::deliver::STEP_ROWS;
use super::repair::is_lost;
use super::types::{Action, Note};
use super::upkeep::Want;
use super::{Asked, Mode, Node};
use crate::code::Refusal;
use crate::id::{
    BatchNo, BlobDigest, BlobNo, ConnId, Handle, ReadNo, SegmentId, Seq, SiteNo, TransferNo,
};
use crate::ledger::read::{Found, Lookup, ReadRequest};
use crate::ledger::rows::{DeliveryRow, SegmentRow};
use crate::limits::LOOKUP_MAX;
use crate::plant::Plant;
use crate::segment::Destinations;
use crate::session::{Content, Promise, SessionCommand, Submission};
use crate::store::Errand;
use crate::time::Now;
use crate::wire::{Offer, Receipt};

/// Lookups under way at a time.
const LOOKUPS_OPEN: usize = 2;

/// Something that waits to be judged.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub conn: ConnId,
    pub transfer: TransferNo,
    /// The peer it comes from; 0 for a local client.
    pub source: SiteNo,
    pub what: What,
    /// Its content is in its place already: what is left to judge is whom it is for.
    pub placed: bool,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// A peer offers it; the body may be parked.
    Offer(Box<Offer>, Option<Handle>),
    /// Content of an accepted offer is whole.
    Received(Box<Offer>, BlobNo),
    /// A local client hands it in.
    Submit(Box<Submission>),
    /// A hop says what became of it further on.
    Receipt(Receipt),
}

impl Pending {
    pub fn new(conn: ConnId, transfer: TransferNo, source: SiteNo, what: What) -> Pending {
        Pending { conn, transfer, source, what, placed: false }
    }

    pub fn id(&self) -> SegmentId {
        match &self.what {
            What::Offer(offer, _) | What::Received(offer, _) => offer.id,
            What::Submit(submission) => submission.id,
            What::Receipt(receipt) => receipt.id,
        }
    }

    pub fn digest(&self) -> BlobDigest {
        match &self.what {
            What::Offer(offer, _) | What::Received(offer, _) => offer.digest,
            What::Submit(submission) => submission.digest,
            // It brings no content, and nothing has this digest.
            What::Receipt(_) => BlobDigest([0; 32]),
        }
    }

    pub fn size(&self) -> u64 {
        match &self.what {
            What::Offer(offer, _) | What::Received(offer, _) => offer.size,
            What::Submit(submission) => submission.size,
            What::Receipt(_) => 0,
        }
    }

    /// Whether its content was written to a file here before this: a transfer that had begun, and is
    /// finished even when this site is stopping.
    pub fn has_begun(&self) -> bool {
        self.blob().is_some()
    }

    /// A body that is parked for it.
    pub fn parked(&self) -> Option<Handle> {
        match &self.what {
            _ if self.placed => None,
            What::Offer(_, body) => *body,
            What::Received(..) | What::Receipt(_) => None,
            What::Submit(submission) => match submission.content {
                Content::Parked(handle) => Some(handle),
                Content::Blob(_) => None,
            },
        }
    }

    /// A finished file that belongs to it.
    pub fn blob(&self) -> Option<BlobNo> {
        match &self.what {
            _ if self.placed => None,
            What::Offer(..) | What::Receipt(_) => None,
            What::Received(_, blob) => Some(*blob),
            What::Submit(submission) => match submission.content {
                Content::Parked(_) => None,
                Content::Blob(blob) => Some(blob),
            },
        }
    }
}

/// A segment as it stands with everything staged.
pub(super) struct Known {
    pub seq: Seq,
    pub row: SegmentRow,
    pub deliveries: BTreeMap<SiteNo, DeliveryRow>,
    /// Sites whose delivery cannot be read: where it stands is not known, and it is not begun anew.
    pub unreadable: BTreeSet<SiteNo>,
}

impl Known {
    /// Whether nothing is owed to a site yet, nor ever was.
    pub fn lacks(&self, site: SiteNo) -> bool {
        !self.deliveries.contains_key(&site) && !self.unreadable.contains(&site)
    }
}

/// A refusal in the making: code, how long to wait (ms), text.
pub(super) type No = (Refusal, u64, String);

impl Node {
    pub(super) fn pend(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// Asks the ledger about what waits, in bulk.
    pub(super) fn look_up(&mut self, out: &mut Vec<Action>) {
        if matches!(self.mode, Mode::Rejudge(_)) {
            return;
        }
        while !self.pending.is_empty() && self.lookups_open < LOOKUPS_OPEN {
            let count = self.pending.len().min(LOOKUP_MAX);
            let batch: Vec<Pending> = self.pending.drain(..count).collect();
            let lookups = batch
                .iter()
                .map(|p| Lookup { id: p.id(), digest: p.digest(), source: p.source })
                .collect();
            self.lookups_open += 1;
            self.ask(Asked::Lookup(batch), ReadRequest::Lookup(lookups), out);
        }
    }

    /// A lookup is answered: its segments are judged as far as the batch has room.
    pub(super) fn found(
        &mut self,
        read: ReadNo,
        as_of: BatchNo,
        batch: Vec<Pending>,
        found: Vec<Found>,
    ) {
        let last = batch.len().saturating_sub(1);
        for (i, (pending, found)) in batch.into_iter().zip(found).enumerate() {
            self.found.push_back((pending, found, as_of, (i == last).then_some(read)));
        }
    }

    pub(super) fn judge(&mut self, now: Now, out: &mut Vec<Action>) {
        while let Some((pending, ..)) = self.found.front() {
            if !self.stage.growth_room(self.rows_of(pending)) {
                return;
            }
            let Some((pending, found, as_of, done)) = self.found.pop_front() else { return };
            if self.conns.contains_key(&pending.conn) {
                self.judge_one(now, pending, found, as_of, out);
            } else {
                self.drop_pending(&pending, out);
            }
            if let Some(read) = done {
                self.lookups_open = self.lookups_open.saturating_sub(1);
                self.book.closed(read);
            }
        }
    }

    /// How many rows it can bring at most.
    pub(super) fn rows_of(&self, pending: &Pending) -> usize {
        STEP_ROWS + 4 * self.reach(pending) + self.export_rows()
    }

    /// How many deliveries it can bring at most.
    fn reach(&self, pending: &Pending) -> usize {
        let to = match &pending.what {
            What::Offer(offer, _) | What::Received(offer, _) => &offer.to,
            What::Submit(submission) => &submission.to,
            What::Receipt(_) => return 0,
        };
        match to {
            Destinations::All => self.peers.len(),
            Destinations::Named(names) => names.len().min(self.peers.len()),
        }
    }

    /// Its connection is gone, or it is refused: what it had parked or written is let go.
    pub(super) fn drop_pending(&mut self, pending: &Pending, out: &mut Vec<Action>) {
        if let Some(handle) = pending.parked() {
            out.push(Action::Errand(Errand::Unpark(handle)));
        }
        if let Some(blob) = pending.blob() {
            self.doom_incoming(blob);
        }
    }

    /// Drops what a dead connection had waiting. What is being looked up is dropped when judged.
    pub(super) fn forget_pending(&mut self, conn: ConnId, out: &mut Vec<Action>) {
        let (gone, kept) =
            core::mem::take(&mut self.pending).into_iter().partition(|p| p.conn == conn);
        self.pending = kept;
        let gone: VecDeque<Pending> = gone;
        for pending in &gone {
            self.drop_pending(pending, out);
        }
    }

    pub(super) fn judge_one(
        &mut self,
        now: Now,
        pending: Pending,
        found: Found,
        as_of: BatchNo,
        out: &mut Vec<Action>,
    ) {
        if self.is_repair(&pending) {
            return self.repair_later(pending, out);
        }
        let known = self.known(&pending.id(), &found, as_of);
        if let Some(seq) = known.as_ref().and_then(|known| replaces(&pending, known)) {
            return self.read_lost(pending, seq, out);
        }
        let verdict = match (&pending.what, known) {
            (What::Receipt(receipt), known) => {
                let (conn, source, receipt) = (pending.conn, pending.source, receipt.clone());
                return self.judge_receipt(now, conn, source, receipt, known);
            }
            (_, None) if self.rewrites_row(&pending.id(), &found) => {
                let text = "its row could not be read, and is written again";
                Err((Refusal::Busy, 1_000, text.to_string()))
            }
            (What::Submit(submission), Some(known)) => {
                self.submitted_again(now, &pending, submission, known, out)
            }
            (What::Offer(offer, _) | What::Received(offer, _), Some(known)) => {
                self.offered_again(now, &pending, offer, known, &found.receipts, out)
            }
            (What::Offer(offer, _), None) => match self.remembers(offer, &found) {
                Some(no_or_seq) => no_or_seq
                    .map(|seq| self.settled_before(&pending, offer, seq, &found.receipts, out)),
                None => self.take_new(now, &pending, &found, out),
            },
            (What::Received(..) | What::Submit(_), None) => {
                self.take_new(now, &pending, &found, out)
            }
        };
        if let Err((refusal, retry_after, text)) = verdict {
            match pending.what {
                // What is durable of it stays, so that it is not sent a second time.
                What::Received(_, blob) if refusal == Refusal::DiskFull => {
                    self.incoming_cut(now, blob);
                }
                What::Offer(..) | What::Received(..) | What::Submit(_) | What::Receipt(_) => {
                    self.drop_pending(&pending, out);
                }
            }
            self.refuse(&pending, refusal, retry_after, text, out);
        }
    }

    /// The row that an identity leads to could not be read, and is in memory still, for an attempt: it is
    /// written again. Were the segment taken anew, its next outcome would write the row too, and keep the
    /// segment twice.
    fn rewrites_row(&mut self, id: &SegmentId, found: &Found) -> bool {
        let Some(seq) = found.rowless.filter(|seq| !self.book.is_gone(*seq)) else { return false };
        let Some(row) = self.book.segment(seq).filter(|row| row.id == *id).cloned() else {
            return false;
        };
        self.put_segment(seq, row);
        true
    }

    pub(super) fn refuse(
        &mut self,
        pending: &Pending,
        refusal: Refusal,
        retry_after: u64,
        text: String,
        out: &mut Vec<Action>,
    ) {
        if matches!(pending.what, What::Receipt(_)) {
            // It is not answered, so it is said again in the next session.
            return;
        }
        let peer = self.peers.get(&pending.source).map(|p| p.name.clone()).unwrap_or_default();
        self.count_refusal(refusal);
        out.push(Action::Note(Note::Refused { code: refusal.word(), peer, text: text.clone() }));
        let (transfer, id) = (pending.transfer, pending.id());
        let command =
            SessionCommand::Refuse { transfer, id, refusal, retry_after, text: text.into() };
        out.push(Action::Command(pending.conn, command));
    }

    /// What is known of a segment, staged changes included.
    fn known(&self, id: &SegmentId, found: &Found, as_of: BatchNo) -> Option<Known> {
        // What was removed since the reading is not held any more.
        let held = found.held.as_ref().filter(|h| !self.book.is_gone(h.seq));
        let seq = self.book.id(id).unwrap_or(held.map(|h| h.seq))?;
        let row = self.book.segment(seq).or(held.map(|h| &h.row))?.clone();
        let mut deliveries: BTreeMap<SiteNo, DeliveryRow> =
            held.map(|h| h.deliveries.iter().cloned().collect()).unwrap_or_default();
        let mut unreadable: BTreeSet<SiteNo> =
            held.map(|h| h.unreadable.iter().copied().collect()).unwrap_or_default();
        for site in self.peers.keys() {
            let Some(newer) = self.book.delivery(*site, seq, as_of) else { continue };
            unreadable.remove(site);
            match newer {
                Some(newer) => deliveries.insert(*site, newer.clone()),
                None => deliveries.remove(site),
            };
        }
        Some(Known { seq, row, deliveries, unreadable })
    }

    /// A segment that is not held here.
    fn take_new(
        &mut self,
        now: Now,
        pending: &Pending,
        found: &Found,
        out: &mut Vec<Action>,
    ) -> Result<(), No> {
        match &pending.what {
            What::Offer(offer, body) => {
                self.admit_begin()?;
                self.admit_offer(now, offer, pending.source)?;
                match body {
                    Some(handle) => {
                        self.admit_bytes(Want::segment(inline_charge(offer.size), pending.source))?;
                        let body = self.inline(*handle, offer.size, pending.source);
                        let seq = self.take_offer(now, offer, pending.source, body)?;
                        self.promise_ack(pending, seq);
                        Ok(())
                    }
                    None => self.open_incoming(now, pending, offer, found, out),
                }
            }
            What::Received(offer, blob) => {
                if !self.incoming.contains(*blob) {
                    let text = format!("content file {blob} was given up");
                    return Err((Refusal::Busy, 1_000, text));
                }
                self.admit_offer(now, offer, pending.source)?;
                // Its room is reserved, but its rows are growth like any other (G5).
                self.admit_growth()?;
                let body = self.adopt(*blob, offer.digest, offer.size, found);
                let seq = self.take_offer(now, offer, pending.source, body)?;
                self.own(body, seq);
                self.promise_ack(pending, seq);
                Ok(())
            }
            What::Submit(submission) => self.take_submission(now, pending, submission, found),
            What::Receipt(_) => Ok(()),
        }
    }

    fn promise_ack(&mut self, pending: &Pending, seq: Seq) {
        let (transfer, id) = (pending.transfer, pending.id());
        let promise = Promise::Ack { transfer, id };
        let refusal = Some(full(transfer, id));
        self.promise_unless(Plant::AckBeforeCommit, pending.conn, promise, refusal, Some(seq));
    }
}

/// The number of a segment whose content is doubted here, if this brings it: nothing is promised on the
/// strength of what may be gone, and what comes takes its place first.
fn replaces(pending: &Pending, known: &Known) -> Option<Seq> {
    let brings = !matches!(pending.what, What::Receipt(_));
    (brings && is_lost(&known.row, pending)).then_some(known.seq)
}

/// What goes out instead of a promise when its batch finds no space.
pub(super) fn full(transfer: TransferNo, id: SegmentId) -> SessionCommand {
    SessionCommand::Refuse {
        transfer,
        id,
        refusal: Refusal::DiskFull,
        retry_after: 10_000,
        text: "the disk is full; nothing new is taken until space is back".into(),
    }
}

/// What an inline body is charged: small ones share pages, larger ones take whole ones (FACTS 2).
pub(crate) fn inline_charge(size: u64) -> u64 {
    const PAGE: u64 = 4096;
    let value = size.saturating_add(24);
    if value <= PAGE / 2 - 32 { value } else { value.div_ceil(PAGE).saturating_mul(PAGE) }
}
