//! Content has come that was wanted, or that somebody brings again while what is kept of it is doubted: it
//! takes the place of what is damaged or gone, in one commit, in every segment that had it. For a WANT
//! nothing else of these segments changes, and until that commit nothing at all.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::accept::{No, Pending, What, full, inline_charge};
use super::remove::Act;
use super::types::Action;
use super::upkeep::Want;
use super::{Asked, Mode, Node};
use crate::code::Refusal;
use crate::id::{BatchNo, BlobNo, Handle, Seq, SiteNo};
use crate::ledger::keys_upkeep::{self, Owner};
use crate::ledger::read::{Found, Kept, Lookup, ReadRequest};
use crate::ledger::rows::{BlobRow, Body, DoomedRow, IdRow, SegmentRow};
use crate::ledger::{Table, keys};
use crate::session::Promise;
use crate::time::Now;

/// Rows that a repair stages for each segment, and besides.
const ROWS: (usize, usize) = (6, 32);

/// What has become of content that was brought for damaged content.
enum Repair {
    /// It is asked for, and not here yet.
    Comes,
    /// It is in its place, under this number.
    Placed(Seq),
    /// Nothing is damaged any more.
    Whole,
}

impl Node {
    /// Wanted content is offered, or has come: everybody who has lost it is read.
    pub(super) fn repair_later(&mut self, pending: Pending, out: &mut Vec<Action>) {
        let (What::Offer(offer, _) | What::Received(offer, _)) = &pending.what else { return };
        let Some(seq) = self.wished(pending.conn, &offer.id) else {
            let text = "nothing of it is wanted here".to_string();
            return self.not_repaired(&pending, (Refusal::NotAddressed, 0, text), out);
        };
        self.read_lost(pending, seq, out);
    }

    /// Reads everybody who has lost what this brings.
    pub(super) fn read_lost(&mut self, pending: Pending, seq: Seq, out: &mut Vec<Action>) {
        let (id, digest) = (pending.id(), pending.digest());
        let lookup = Lookup { id, digest, source: pending.source };
        self.ask(Asked::Repair(Box::new(pending)), ReadRequest::Repair(seq, lookup), out);
    }

    fn not_repaired(&mut self, pending: &Pending, no: No, out: &mut Vec<Action>) {
        let (refusal, retry_after, text) = no;
        self.drop_pending(pending, out);
        self.refuse(pending, refusal, retry_after, text, out);
    }

    pub(super) fn repair_read(
        &mut self,
        now: Now,
        pending: Pending,
        (kept, found): (Vec<Option<Kept>>, Found),
        as_of: BatchNo,
        out: &mut Vec<Action>,
    ) {
        if !self.conns.contains_key(&pending.conn) {
            return self.drop_pending(&pending, out);
        }
        let rows = ROWS.0 * kept.len() + ROWS.1 + self.rows_of(&pending);
        if !self.stage.growth_room(rows) {
            // It is looked up again once there is room.
            return self.pend(pending);
        }
        let kept = kept.into_iter().flatten().filter_map(|kept| self.corrected(kept, as_of));
        let kept: Vec<Kept> = kept.collect();
        let wanted = self.is_repair(&pending);
        match self.repair(now, &pending, &found, kept, out) {
            Err(no) => self.not_repaired(&pending, no, out),
            Ok(Repair::Comes) => {}
            Ok(Repair::Placed(seq)) if wanted => self.promise_repaired(&pending, seq),
            // Who brings it for more than that is told what rests on the content that is there now.
            Ok(Repair::Placed(_)) => {
                let pending = Pending { placed: true, ..pending };
                self.judge_one(now, pending, found, as_of, out);
            }
            Ok(Repair::Whole) if wanted => {
                self.wants.forget(&pending.id());
                let text = "nothing of it is to be repaired here".to_string();
                self.not_repaired(&pending, (Refusal::NotAddressed, 0, text), out);
            }
            Ok(Repair::Whole) => self.judge_one(now, pending, found, as_of, out),
        }
    }

    fn promise_repaired(&mut self, pending: &Pending, seq: Seq) {
        let (transfer, id) = (pending.transfer, pending.id());
        let refusal = Some(full(transfer, id));
        let promise = Promise::Ack { transfer, id };
        self.promise(pending.conn, promise, refusal, Some(seq));
    }

    fn repair(
        &mut self,
        now: Now,
        pending: &Pending,
        found: &Found,
        kept: Vec<Kept>,
        out: &mut Vec<Action>,
    ) -> Result<Repair, No> {
        let busy = |text: &str| (Refusal::Busy, 1_000, text.to_string());
        if !matches!(self.mode, Mode::Normal) || (self.stopping && !pending.has_begun()) {
            return Err(busy("there is no room for repairs now"));
        }
        let lost: Vec<Kept> = kept.into_iter().filter(|k| is_lost(&k.held.row, pending)).collect();
        let Some(first) = lost.iter().find(|k| k.held.row.id == pending.id()).cloned() else {
            return Ok(Repair::Whole);
        };
        let same = |kept: &Kept| kept.held.row.body == first.held.row.body;
        let mut lost: Vec<Kept> = lost.into_iter().filter(same).collect();
        if first.digest.is_some_and(|blob| Body::Blob(blob) == first.held.row.body) {
            return Err(busy("its digest still leads to the damaged file"));
        }
        if lost.iter().any(|kept| self.is_read(kept.held.seq)) {
            return Err(busy("what is left of it is being read"));
        }
        if let What::Offer(offer, None) = &pending.what {
            self.open_incoming(now, pending, offer, found, out)?;
            return Ok(Repair::Comes);
        }
        let new = match (pending.parked(), pending.blob()) {
            (Some(handle), _) => {
                // A body in the ledger is of one segment alone.
                lost = [first.clone()].into();
                self.mended_inline(handle, &first.held.row)?
            }
            (None, Some(blob)) if self.incoming.contains(blob) => {
                self.adopt(blob, pending.digest(), pending.size(), found)
            }
            (None, _) => return Err(busy("what was to take its place was given up")),
        };
        let reason = if self.is_repair(pending) { "want" } else { "brought_again" };
        self.put_in_place(now, &first, new, &lost, reason);
        Ok(Repair::Placed(first.held.seq))
    }

    /// Whether somebody is reading its content: an attempt, or an export.
    fn is_read(&self, seq: Seq) -> bool {
        self.is_pinned(seq) || self.peers.values().any(|peer| peer.flights.contains_key(&seq))
    }

    fn mended_inline(&mut self, handle: Handle, row: &SegmentRow) -> Result<Body, No> {
        let (bytes, source) = (inline_charge(row.size), SiteNo(row.from));
        self.admit_bytes(Want { bytes, segment: false, source })?;
        // Charged to whom it was charged before.
        Ok(self.inline(handle, row.size, source))
    }

    /// New content takes the place of the old in all of `lost`; the old goes with its last owner.
    fn put_in_place(
        &mut self,
        now: Now,
        first: &Kept,
        new: Body,
        lost: &[Kept],
        reason: &'static str,
    ) {
        let batch = self.stage.number();
        if let Body::Blob(blob) = new {
            // Adopting it has counted one of them.
            self.shared_by(blob, lost.len().saturating_sub(1));
        }
        let old = first.held.row.body;
        for kept in lost {
            let (seq, row) = (kept.held.seq, kept.held.row.clone());
            if let Body::Blob(blob) = old {
                let owner = keys_upkeep::owner(blob, &Owner::Segment(seq));
                self.stage.batch.del(Table::Owners, &owner);
            }
            self.own(new, seq);
            // Its id may lead to somebody who has brought it meanwhile.
            if kept.id.is_none() {
                self.stage.batch.put(Table::Ids, &keys::id(&row.id), &IdRow { seq });
                self.book.set_id(batch, row.id, Some(seq));
            }
            self.wants.mended(&row.id, batch);
            self.scrub.is_well(seq);
            self.audit(now, Act { action: "repaired", reason, ..Act::on(&row) });
            self.put_segment(seq, SegmentRow { body: new, loss: None, ..row });
        }
        match (old, first.blob) {
            (Body::Inline(body), _) => self.drop_inline(body, &first.held.row),
            (Body::Blob(blob), Some(row)) => self.let_go_of(blob, row, lost.len()),
            (Body::Blob(_), None) => {}
        }
    }

    fn shared_by(&mut self, blob: BlobNo, more: usize) {
        let Some(row) = self.book.blob(blob).flatten().filter(|_| more > 0) else { return };
        let row = BlobRow { refs: row.refs.saturating_add(count(more)), ..row };
        self.stage.batch.put(Table::Blobs, &keys::blob(blob), &row);
        self.book.set_blob(self.stage.number(), blob, Some(row));
    }

    /// So many segments do not use the damaged file any more.
    fn let_go_of(&mut self, blob: BlobNo, row: BlobRow, owners: usize) {
        let refs = row.refs.saturating_sub(count(owners));
        let batch = self.stage.number();
        if refs > 0 {
            let row = BlobRow { refs, ..row };
            self.stage.batch.put(Table::Blobs, &keys::blob(blob), &row);
            return self.book.set_blob(batch, blob, Some(row));
        }
        self.stage.batch.del(Table::Blobs, &keys::blob(blob));
        self.book.set_blob(batch, blob, None);
        self.doom(blob, DoomedRow::new(row.size, row.owner.unwrap_or(0)));
    }
}

/// Whether this segment has lost what is brought.
pub(super) fn is_lost(row: &SegmentRow, pending: &Pending) -> bool {
    row.loss.is_some() && (row.digest, row.size) == (pending.digest(), pending.size())
}

pub(super) fn count(owners: usize) -> u32 {
    u32::try_from(owners).unwrap_or(u32::MAX)
}
