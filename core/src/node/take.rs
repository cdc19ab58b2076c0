//! Staging the rows of a segment that is new here.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Node;
use super::accept::{No, Pending, full, inline_charge};
use super::tally::{Source, Tally};
use super::types::Note;
use super::upkeep::Want;
use crate::code::Refusal;
use crate::id::{BlobDigest, BlobNo, Handle, SegmentId, Seq, SiteNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::keys_upkeep::{self, ExpiryKind, Owner};
use crate::ledger::read::Found;
use crate::ledger::rows::{BlobRow, Body, DeliveryRow, DigestRow, IdRow, SegmentRow, State};
use crate::plant::Plant;
use crate::segment::Destinations;
use crate::session::{Accepted, Content, Promise, Submission};
use crate::time::Now;
use crate::wire::Offer;

impl Node {
    /// A parked body becomes a row of `bodies` in the staged batch.
    pub(super) fn inline(&mut self, handle: Handle, size: u64, source: SiteNo) -> Body {
        let number = self.stage.next_body();
        self.stage.put_body(number, handle, size);
        self.stage.charge(source, inline_charge(size));
        Body::Inline(number)
    }

    pub(super) fn take_offer(
        &mut self,
        now: Now,
        offer: &Offer,
        source: SiteNo,
        body: Body,
    ) -> Result<Seq, No> {
        let sites = self.destinations(&offer.to, source, &offer.origin, false)?;
        let own = offer.origin == self.config.name;
        let row = SegmentRow {
            id: offer.id,
            digest: offer.digest,
            size: offer.size,
            body,
            meta: offer.meta.clone(),
            to: offer.to.clone(),
            here: offer.to.addresses(&self.config.name),
            origin: if own { String::new() } else { offer.origin.clone() },
            origin_seq: offer.origin_seq,
            hops: offer.hops,
            accepted_at: now.wall.0,
            required: sites.len() as u32,
            acked: 0,
            relayed_at: None,
            held: false,
            from: source.0,
            loss: None,
            let_go: None,
            askers: Vec::new(),
            unplaced: None,
        };
        self.stage.tally(Tally::Accepted(Source::Peer, offer.size));
        Ok(self.take(now, row, &sites))
    }

    pub(super) fn take_submission(
        &mut self,
        now: Now,
        pending: &Pending,
        submission: &Submission,
        found: &Found,
    ) -> Result<(), No> {
        if let Err(fault) = submission.meta.check() {
            return Err((Refusal::Invalid, 0, fault.to_string()));
        }
        self.admit(now, &submission.meta, submission.size)?;
        let sites = self.destinations(&submission.to, SiteNo(0), "", true)?;
        let body = match submission.content {
            Content::Parked(handle) => {
                self.admit_begin()?;
                self.admit_bytes(Want::segment(inline_charge(submission.size), SiteNo(0)))?;
                self.inline(handle, submission.size, SiteNo(0))
            }
            Content::Blob(blob) if !self.incoming.contains(blob) => {
                let text = format!("content file {blob} is no longer reserved");
                return Err((Refusal::Invalid, 0, text));
            }
            Content::Blob(_) if self.admit_growth().is_err() => {
                let text = "the disk is full; nothing new is taken until space is back";
                return Err((Refusal::DiskFull, 10_000, text.to_string()));
            }
            Content::Blob(blob) => self.adopt(blob, submission.digest, submission.size, found),
        };
        let mut meta = submission.meta.clone();
        meta.accepted_at = now.wall.0;
        if meta.expires_at.is_none() {
            meta.expires_at = self.config.expire_after.map(|d| now.wall.after(d).0);
        }
        let row = SegmentRow {
            id: submission.id,
            digest: submission.digest,
            size: submission.size,
            body,
            meta,
            to: submission.to.clone(),
            here: submission.to.addresses(&self.config.name)
                && !matches!(submission.to, Destinations::All),
            origin: String::new(),
            origin_seq: 0,
            hops: 0,
            accepted_at: now.wall.0,
            required: sites.len() as u32,
            acked: 0,
            relayed_at: None,
            held: false,
            from: 0,
            loss: None,
            let_go: None,
            askers: Vec::new(),
            unplaced: None,
        };
        let watched = submission.watched.is_some();
        let from = if watched { Source::Watch } else { Source::Local };
        self.stage.tally(Tally::Accepted(from, submission.size));
        let seq = self.take(now, row, &sites);
        self.own(body, seq);
        self.put_watched(now, submission);
        let accepted = self.accepted(submission.id, seq, true, &sites, &BTreeMap::new());
        let (transfer, id) = (pending.transfer, submission.id);
        let promise = Promise::Accepted { ticket: transfer, accepted };
        let refusal = Some(full(transfer, id));
        self.promise_unless(Plant::AckBeforeCommit, pending.conn, promise, refusal, Some(seq));
        Ok(())
    }

    /// Stages the rows of a new segment and its deliveries.
    pub(super) fn take(&mut self, now: Now, row: SegmentRow, sites: &[SiteNo]) -> Seq {
        let seq = self.stage.next_seq();
        let batch = self.stage.number();
        self.stage.segment_in(SiteNo(row.from));
        self.stage.batch.put(Table::Segments, &keys::seq(seq), &row);
        self.stage.batch.put(Table::Ids, &keys::id(&row.id), &IdRow { seq });
        // What is for every peer and owed to none yet waits for peers to come.
        if row.required > 0 || (row.from == 0 && row.to == Destinations::All) {
            self.stage.batch.put_key(Table::Unmet, &keys::unmet(now.wall, seq));
        }
        if let Some(at) = row.meta.expires() {
            self.expire_at(at, ExpiryKind::Segment, &keys::seq(seq));
        }
        self.book.set_id(batch, row.id, Some(seq));
        let from = self.peers.get(&SiteNo(row.from)).map(|p| p.label.clone()).unwrap_or_default();
        self.stage.note(Note::Accepted { id: row.id, seq, size: row.size, from });
        let row = Arc::new(row);
        self.book.set_segment(batch, seq, row.clone());
        self.begin_exports(now, seq, &row);
        for site in sites {
            self.schedule(now, *site, seq, &row);
        }
        seq
    }

    /// A delivery begins: Scheduled, due at once.
    pub(super) fn schedule(&mut self, now: Now, site: SiteNo, seq: Seq, segment: &SegmentRow) {
        let row = DeliveryRow {
            state: State::Scheduled,
            attempts: 0,
            spent: 0,
            next_attempt_after: now.wall.0,
            last_error: 0,
            since: now.wall.0,
            custody: None,
            held: segment.held.then_some(true),
            claimed_at: None,
            refused: 0,
        };
        self.stage.batch.put(Table::Deliveries, &keys::delivery(seq, site), &row);
        self.stage.batch.put_key(Table::Owed, &keys::peer_seq(site, seq));
        self.stage.count(site, None, Some(State::Scheduled), segment.size);
        self.stage.count_held(site, None, Some(&row), segment.size);
        self.note_delivery(site, segment, None, Some(&row), None);
        self.becomes_due(site, seq, row, segment);
        if let Some(hop) = self.peers.get(&site).map(|peer| peer.hop()) {
            self.hurry(now, hop);
        }
    }

    /// Content of a finished file: shared with a blob of the same digest, or a blob of its own.
    pub(super) fn adopt(
        &mut self,
        blob: BlobNo,
        digest: BlobDigest,
        size: u64,
        found: &Found,
    ) -> Body {
        let batch = self.stage.number();
        let same = self.blob_of(&digest, found.blob).filter(|(_, row)| row.size == size);
        if let Some((other, mut row)) = same {
            if !self.config.planted(Plant::B2) {
                row.refs = row.refs.saturating_add(1);
            }
            self.stage.batch.put(Table::Blobs, &keys::blob(other), &row);
            self.book.set_blob(batch, other, Some(row));
            self.doom_incoming(blob);
            return Body::Blob(other);
        }
        let owner = self.incoming.source(blob).filter(|source| *source != 0);
        let row = BlobRow { digest, size, refs: 1, owner };
        self.stage.batch.put(Table::Blobs, &keys::blob(blob), &row);
        self.stage.batch.put(Table::Digests, &digest.0, &DigestRow { blob });
        self.book.set_blob(batch, blob, Some(row));
        self.book.set_digest(batch, digest, Some(blob));
        self.close_incoming(blob, size);
        Body::Blob(blob)
    }

    /// The content file that a digest leads to, staged changes included; `found` is what was read.
    fn blob_of(
        &self,
        digest: &BlobDigest,
        found: Option<(BlobNo, BlobRow)>,
    ) -> Option<(BlobNo, BlobRow)> {
        let blob = self.book.digest(digest).unwrap_or(found.map(|(blob, _)| blob))?;
        let read = found.filter(|(number, _)| *number == blob).map(|(_, row)| row);
        Some((blob, self.book.blob(blob).unwrap_or(read)?))
    }

    /// A segment owns its blob.
    pub(super) fn own(&mut self, body: Body, seq: Seq) {
        if let Body::Blob(blob) = body {
            let owner = keys_upkeep::owner(blob, &Owner::Segment(seq));
            self.stage.batch.put_key(Table::Owners, &owner);
        }
    }

    pub(super) fn accepted(
        &self,
        id: SegmentId,
        seq: Seq,
        new: bool,
        wanted: &[SiteNo],
        before: &BTreeMap<SiteNo, DeliveryRow>,
    ) -> Accepted {
        let mut accepted = Accepted {
            id,
            seq,
            new,
            added: Vec::new(),
            queued: Vec::new(),
            delivered: Vec::new(),
            dead: Vec::new(),
            raised: false,
        };
        for site in wanted {
            let Some(name) = self.peers.get(site).map(|p| p.name.clone()) else { continue };
            match before.get(site).map(|d| d.state) {
                None => accepted.added.push(name),
                Some(State::Scheduled | State::Inflight | State::Failed) => {
                    accepted.queued.push(name)
                }
                Some(State::Acked) => accepted.delivered.push(name),
                Some(State::Deadletter) => accepted.dead.push(name),
            }
        }
        accepted
    }
}
