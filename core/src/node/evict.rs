//! Removing a segment: everything that is its own goes in one commit, and a record of it stays.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::Node;
use super::accept::inline_charge;
use super::remove::Act;
use super::types::Note;
use crate::id::{BlobNo, BodyNo, SegmentId, Seq, SiteNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::keys_upkeep::{self, ExpiryKind, Owner};
use crate::ledger::read::Kept;
use crate::ledger::rows::{BlobRow, Body, DeliveryRow, DoomedRow, Loss, SegmentRow, State};
use crate::ledger::rows_upkeep::{ReceiptRow, RememberedRow};
use crate::plant::Plant;
use crate::time::{Now, UnixMillis};

/// Why a segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Relayed, and copies go once they are relayed: its id is remembered (R2).
    Evicted,
    /// On its way through, or used here, and kept long enough since.
    Released,
    /// Its time is over.
    Expired,
}

impl Removal {
    /// The stable word in the audit record and the log.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Removal::Evicted => "evict",
            Removal::Released => "release",
            Removal::Expired => "expire",
        }
    }
}

/// Rows that removing a segment with so many deliveries stages at most.
pub(super) const fn removal_rows(deliveries: usize) -> usize {
    16 + 12 * deliveries
}

impl Node {
    /// What was read of a segment, with everything staged since on top; `None` when it is gone.
    pub(super) fn corrected(&self, mut kept: Kept, as_of: crate::id::BatchNo) -> Option<Kept> {
        let seq = kept.held.seq;
        if self.book.is_gone(seq) {
            return None;
        }
        if let Some(row) = self.book.segment(seq) {
            kept.held.row = row.clone();
        }
        for site in self.peers.keys() {
            let Some(newer) = self.book.delivery(*site, seq, as_of) else { continue };
            kept.held.deliveries.retain(|(at, _)| at != site);
            kept.held.deliveries.extend(newer.map(|row| (*site, row.clone())));
        }
        kept.held.deliveries.sort_by_key(|(site, _)| *site);
        let row = &kept.held.row;
        kept.id = self.book.id(&row.id).unwrap_or(kept.id);
        kept.digest = self.book.digest(&row.digest).unwrap_or(kept.digest);
        kept.remembered = self.book.removed(&row.id).unwrap_or(kept.remembered);
        if let Body::Blob(blob) = row.body {
            kept.blob = self.book.blob(blob).unwrap_or(kept.blob);
        }
        Some(kept)
    }

    /// Removes a segment: `kept` is as [`Node::corrected`] gave it, and nothing of it is Inflight.
    ///
    /// One commit takes the rows away, dooms the content file when nobody else uses it, keeps a receipt
    /// of every delivery and a record of the act. The caller has judged that it may go.
    pub(super) fn remove_segment(&mut self, now: Now, kept: &Kept, how: Removal, who: Act) {
        let (seq, mut segment) = (kept.held.seq, kept.held.row.clone());
        for (site, row) in &kept.held.deliveries {
            self.settle_delivery(now, *site, seq, row, &mut segment, &kept.receipts);
        }
        let segment = &kept.held.row;
        self.drop_body(segment, seq, kept);
        self.stage.batch.del(Table::Segments, &keys::seq(seq));
        if kept.id == Some(seq) && segment.loss != Some(Loss::Gone) {
            self.stage.batch.del(Table::Ids, &keys::id(&segment.id));
            self.book.set_id(self.stage.number(), segment.id, None);
        }
        if segment.relayed_at.is_none() {
            let unmet = keys::unmet(UnixMillis(segment.accepted_at), seq);
            self.stage.batch.del(Table::Unmet, &unmet);
        }
        if let Some(at) = segment.meta.expires() {
            let key = keys_upkeep::expiry(at, ExpiryKind::Segment, &keys::seq(seq));
            self.stage.batch.del(Table::Expiry, &key);
        }
        self.drop_exports(seq, &kept.exports);
        self.stage.segment_out(SiteNo(segment.from));
        self.scrub.is_well(seq);
        if segment.unplaced == Some(true) {
            self.stage.meta.unplaced = self.stage.meta.unplaced.saturating_sub(1);
        }
        let remembered = match how {
            Removal::Evicted => Some(self.remember(now, seq, segment, kept.remembered.as_ref())),
            Removal::Released | Removal::Expired => kept.remembered.clone(),
        };
        let batch = self.stage.number();
        self.book.set_gone(batch, seq, segment.id, remembered);
        self.stage.note(Note::Removed {
            id: segment.id,
            name: segment.meta.name.clone(),
            size: segment.size,
            how: how.word(),
        });
        self.audit(now, Act { action: how.word(), ..subject(who, segment) });
    }

    /// A delivery of a segment that goes: what was delivered leaves a receipt, what was not is recorded.
    fn settle_delivery(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        row: &DeliveryRow,
        segment: &mut SegmentRow,
        receipts: &[SiteNo],
    ) {
        match row.state {
            // One that is there says more: it may still have to be passed back.
            State::Acked if receipts.contains(&site) || self.book.receipt(seq, site).is_some() => {}
            State::Acked => self.keep_receipt(now, site, seq, row, segment),
            State::Scheduled | State::Inflight | State::Failed | State::Deadletter => {
                let name =
                    self.peers.get(&site).map_or_else(|| site.to_string(), |p| p.name.clone());
                let subject = alloc::format!("{} to {name}", segment.id);
                let act = Act { action: "drop", reason: "removed", subject, ..Act::on(segment) };
                self.audit(now, act);
            }
        }
        self.drop_delivery(site, seq, row, segment);
    }

    fn keep_receipt(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        row: &DeliveryRow,
        segment: &SegmentRow,
    ) {
        let expires_at = now.wall.after(self.config.keep_receipts);
        let receipt = ReceiptRow {
            id: segment.id,
            site: self.peers.get(&site).map(|p| p.name.clone()).unwrap_or_default(),
            when: row.since,
            cause: 0,
            back: segment.from,
            pending: false,
            name: segment.meta.name.clone(),
            size: segment.size,
            digest: segment.digest,
            expires_at: expires_at.0,
            more: Vec::new(),
        };
        let key = keys::delivery(seq, site);
        self.stage.batch.put(Table::Receipts, &key, &receipt);
        self.book.set_receipt(self.stage.number(), seq, site, receipt);
        self.expire_at(expires_at, ExpiryKind::Receipt, &key);
    }

    /// Its content goes, if it was the last that used it.
    fn drop_body(&mut self, segment: &SegmentRow, seq: Seq, kept: &Kept) {
        match segment.body {
            Body::Inline(body) => self.drop_inline(body, segment),
            Body::Blob(blob) => {
                let owner = keys_upkeep::owner(blob, &Owner::Segment(seq));
                self.stage.batch.del(Table::Owners, &owner);
                if let Some(row) = kept.blob {
                    self.drop_reference(blob, row, kept.digest);
                }
            }
        }
    }

    pub(super) fn drop_inline(&mut self, body: BodyNo, segment: &SegmentRow) {
        self.stage.batch.del(Table::Bodies, &keys::body(body));
        self.stage.uncharge(SiteNo(segment.from), inline_charge(segment.size));
    }

    /// One segment less uses a content file. The last one dooms it: it stays charged until it is gone.
    fn drop_reference(&mut self, blob: BlobNo, row: BlobRow, leads: Option<BlobNo>) {
        let batch = self.stage.number();
        if row.refs > 1 {
            let row = BlobRow { refs: row.refs - 1, ..row };
            self.stage.batch.put(Table::Blobs, &keys::blob(blob), &row);
            self.book.set_blob(batch, blob, Some(row));
            return;
        }
        self.stage.batch.del(Table::Blobs, &keys::blob(blob));
        self.book.set_blob(batch, blob, None);
        if leads == Some(blob) {
            self.stage.batch.del(Table::Digests, &row.digest.0);
            self.book.set_digest(batch, row.digest, None);
        }
        self.doom(blob, DoomedRow::new(row.size, row.owner.unwrap_or(0)));
    }

    /// The id of an evicted segment is remembered, so that nobody brings it here again (R2).
    fn remember(
        &mut self,
        now: Now,
        seq: Seq,
        segment: &SegmentRow,
        before: Option<&RememberedRow>,
    ) -> RememberedRow {
        match before {
            Some(old) => self.forget_age(UnixMillis(old.evicted_at), &segment.id),
            None => self.stage.meta.remembered += 1,
        }
        let row = RememberedRow {
            evicted_at: now.wall.0,
            origin: segment.origin.clone(),
            origin_seq: segment.origin_number(seq),
            seq,
        };
        let key = keys::id(&segment.id);
        self.stage.batch.put(Table::Remembered, &key, &row);
        let age = keys_upkeep::remembered_age(now.wall, &segment.id);
        self.stage.batch.put_key(Table::RememberedAge, &age);
        self.expire_at(now.wall.after(self.config.remember_for), ExpiryKind::Remembered, &key);
        row
    }

    fn forget_age(&mut self, at: UnixMillis, id: &SegmentId) {
        self.stage.batch.del(Table::RememberedAge, &keys_upkeep::remembered_age(at, id));
    }

    /// An evicted id is forgotten.
    pub(super) fn forget_remembered(&mut self, at: UnixMillis, id: SegmentId) {
        self.stage.batch.del(Table::Remembered, &keys::id(&id));
        self.forget_age(at, &id);
        self.stage.meta.remembered = self.stage.meta.remembered.saturating_sub(1);
        self.book.set_removed(self.stage.number(), id, None);
    }

    /// A promise that has not left rests on this segment (G1), or its content is being given out.
    pub(super) fn is_pinned(&self, seq: Seq) -> bool {
        let promised = self.gate.pins(seq) && !self.config.planted(Plant::G1);
        promised || self.exports.holds(seq, &self.config.inbox)
    }
}

/// `act` on that segment.
fn subject(act: Act, segment: &SegmentRow) -> Act {
    Act { who: act.who, reason: act.reason, text: act.text, ..Act::on(segment) }
}
