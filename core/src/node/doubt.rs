//! Content that is doubted: it could not be read when it was to be sent, or a peer has said twice in a row
//! that it is not what was offered. Neither proves anything, and a peer may be wrong or lie: deliveries go
//! on, but nobody is promised anything on the strength of it. This site looks at it itself, out of turn
//! (`scrub.rs`): what is bad goes as anything does that the scrub finds, what is whole is doubted no more.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::remove::Act;
use super::repair::count;
use super::types::Action;
use super::{Asked, Node};
use crate::id::{BlobNo, Seq};
use crate::ledger::read::{Held, Kept, ReadRequest};
use crate::ledger::read_scrub::ScrubItem;
use crate::ledger::rows::{Body, DigestRow, Loss, SegmentRow};
use crate::ledger::{Table, keys};
use crate::time::Now;

/// Segments that wait to be looked at; any more are found by the next pass.
const DOUBTED: usize = 1_024;
/// So many of them at a time.
const PAGE: usize = 64;

/// Segments that are doubted.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    /// To be looked at before everything else.
    waiting: BTreeSet<Seq>,
    /// Those that are being looked at.
    page: BTreeSet<Seq>,
    /// Of both: those that were read here and found wrong, and are not marked yet.
    told: BTreeSet<Seq>,
}

impl Doubts {
    pub fn add(&mut self, seq: Seq) {
        if self.waiting.len() < DOUBTED {
            self.waiting.insert(seq);
        }
    }

    /// Somebody has read it here, and found it wrong.
    fn tell(&mut self, seq: Seq) {
        self.add(seq);
        if self.waiting.contains(&seq) {
            self.told.insert(seq);
        }
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whatever was asked is void, and is asked again.
    pub fn again(&mut self) {
        self.waiting.append(&mut self.page);
    }

    /// Those that were being looked at are done with.
    pub fn page_done(&mut self) {
        for seq in core::mem::take(&mut self.page) {
            self.told.remove(&seq);
        }
    }
}

impl Node {
    /// The content of a segment is gone for good: an offer of it must not be answered "held", and
    /// whoever hands it in again brings it anew.
    pub(super) fn lost(&mut self, seq: Seq, segment: &SegmentRow) {
        self.mark(seq, segment, Loss::Gone);
    }

    /// Something speaks against the content of a segment: it is looked at soon.
    pub(super) fn doubt(&mut self, seq: Seq, segment: &SegmentRow) {
        let row = self.book.segment(seq).unwrap_or(segment);
        if row.loss == Some(Loss::Gone) {
            return;
        }
        let body = row.body;
        self.scrub.suspect(seq, body);
        self.mark(seq, segment, Loss::Doubted);
    }

    /// A local client, or an inbox rule, was to be given the content of a segment, and it was not what was
    /// accepted: it is looked at soon.
    pub(super) fn read_badly(&mut self, seq: Seq) {
        self.scrub.doubts.tell(seq);
        self.more = true;
    }

    /// What is kept of this content is gone or wrong: nobody is promised anything on the strength of
    /// it any more, and the next one who hands it in gets a file of its own. What is taken away is
    /// taken once: later it leads to somebody else's content.
    fn mark(&mut self, seq: Seq, segment: &SegmentRow, loss: Loss) {
        let mut row = self.book.segment(seq).cloned().unwrap_or_else(|| segment.clone());
        if row.loss >= Some(loss) {
            return;
        }
        if row.loss.is_none() && matches!(row.body, Body::Blob(_)) {
            self.stage.batch.del(Table::Digests, &row.digest.0);
            self.book.set_digest(self.stage.number(), row.digest, None);
        }
        if loss == Loss::Gone {
            self.stage.batch.del(Table::Ids, &keys::id(&row.id));
            self.book.set_id(self.stage.number(), row.id, None);
        }
        self.scrub.is_damaged(seq);
        row.loss = Some(loss);
        self.handed.look_again(loss == Loss::Gone);
        self.stage.batch.put(Table::Segments, &keys::seq(seq), &row);
        self.book.set_segment(self.stage.number(), seq, row);
    }

    /// Asks where the content of those is that wait.
    pub(super) fn ask_doubted(&mut self, out: &mut Vec<Action>) {
        let doubts = &mut self.scrub.doubts;
        while doubts.page.len() < PAGE
            && let Some(seq) = doubts.waiting.pop_first()
        {
            doubts.page.insert(seq);
        }
        let seqs = doubts.page.iter().copied().collect();
        self.ask(Asked::Doubted, ReadRequest::Held(seqs), out);
    }

    /// Each piece of content that is doubted still is looked at once.
    pub(super) fn doubted_read(
        &mut self,
        now: Now,
        held: Vec<Option<Held>>,
        out: &mut Vec<Action>,
    ) {
        let mut items: Vec<ScrubItem> = Vec::new();
        for Held { seq, row, .. } in held.into_iter().flatten() {
            let told = self.scrub.doubts.told.contains(&seq);
            // Without room for that its content is looked at all the same.
            if told && !self.book.is_gone(seq) && self.stage.room(3) {
                self.mark(seq, &row, Loss::Doubted);
            }
            let row = self.book.segment(seq).unwrap_or(&row);
            let known = items.iter().any(|item| item.body == row.body);
            let doubted = row.loss == Some(Loss::Doubted) || (told && row.loss.is_none());
            if doubted && !known && !self.book.is_gone(seq) {
                let SegmentRow { body, size, digest, .. } = *row;
                items.push(ScrubItem { seq, body, size, digest });
            }
        }
        self.segments_to_scrub(now, items, out);
    }

    /// This content is whole: none of those who have it is doubted any more, in one commit.
    pub(super) fn cleared(&mut self, now: Now, body: Body, same: &[&Kept]) {
        let doubted = same.iter().filter(|kept| kept.held.row.loss == Some(Loss::Doubted));
        for kept in doubted {
            let (seq, row) = (kept.held.seq, &kept.held.row);
            self.wants.mended(&row.id, self.stage.number());
            self.scrub.is_well(seq);
            self.audit(now, Act { action: "cleared", reason: "whole", ..Act::on(row) });
            self.put_segment(seq, SegmentRow { loss: None, ..row.clone() });
        }
        if let Body::Blob(blob) = body {
            self.leads_again(blob, same);
        }
    }

    /// The digest of a file leads to it again, unless another has come meanwhile, or somebody may be left
    /// who has lost the file: it would lead there still when that is all who is left.
    fn leads_again(&mut self, blob: BlobNo, same: &[&Kept]) {
        let Some(Kept { digest: None, blob: Some(row), .. }) = same.first() else { return };
        let lost = same.iter().any(|kept| kept.held.row.loss == Some(Loss::Gone));
        if lost || row.refs != count(same.len()) {
            return;
        }
        self.stage.batch.put(Table::Digests, &row.digest.0, &DigestRow { blob });
        self.book.set_digest(self.stage.number(), row.digest, Some(blob));
    }
}
