//! Content on its way in: reservations, checkpoints, resume, and files that are given up.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::Node;
use super::accept::{No, Pending, What, full};
use super::stage::Intent;
use super::types::{Action, Note};
use super::upkeep::Want;
use crate::code::Refusal;
use crate::id::{BatchNo, BlobDigest, BlobNo, ConnId, SegmentId, SiteNo, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::keys_upkeep;
use crate::ledger::read::{Found, Recovery};
use crate::ledger::rows::{DoomedRow, IncomingRow, SourceRow};
use crate::limits::RESERVE_STEP;
use crate::plant::Plant;
use crate::session::{Broken, Promise, SessionCommand};
use crate::store::StoreFault;
use crate::time::{Instant, Now};
use crate::wire::Offer;

mod shards;
mod takeover;

/// Digest of content that is not known beforehand.
const UNKNOWN: BlobDigest = BlobDigest([0; 32]);

/// Content being received, or a partial that waits for its source.
#[derive(Clone, Debug)]
struct Item {
    row: IncomingRow,
    /// Who is sending it now.
    writer: Option<(ConnId, TransferNo)>,
    /// When it was seen last that enough arrives.
    moved: Instant,
    offer: Option<Box<Offer>>,
    mismatches: u32,
}

impl Item {
    /// Nobody is sending it now.
    fn waiting(row: IncomingRow, mismatches: u32) -> Item {
        Item { row, writer: None, moved: Instant::ZERO, offer: None, mismatches }
    }

    /// Whether a later transfer may go on with it: there is a checkpoint, and it is known of what.
    fn can_resume(&self) -> bool {
        self.row.digest != UNKNOWN && self.row.offset > 0
    }
}

/// Everything that is in `incoming` and `doomed`.
#[derive(Clone, Debug, Default)]
pub(super) struct Incoming {
    items: BTreeMap<BlobNo, Item>,
    by_source: BTreeMap<(BlobDigest, SiteNo), BlobNo>,
    pub(super) doomed: BTreeMap<BlobNo, DoomedRow>,
    /// Files to be unlinked once the batch that doomed them is durable.
    pub(super) unlinks: VecDeque<(BatchNo, BlobNo)>,
    /// Files that could not be removed, and when that is tried again.
    pub(super) stuck: VecDeque<(Instant, BlobNo)>,
}

impl Incoming {
    pub fn contains(&self, blob: BlobNo) -> bool {
        self.items.contains_key(&blob)
    }

    /// Who sends that content, by number.
    pub fn source(&self, blob: BlobNo) -> Option<u32> {
        self.items.get(&blob).map(|item| item.row.source)
    }

    /// Takes what the ledger holds. Writers that are still at it keep their content.
    pub fn load(&mut self, recovery: &Recovery) {
        let mut old = core::mem::take(&mut self.items);
        self.by_source.clear();
        for (blob, row) in &recovery.incoming {
            let mut item = match old.remove(blob) {
                Some(item) => Item { row: row.clone(), ..item },
                None => Item::waiting(row.clone(), 0),
            };
            // Nobody can go on with it: it goes in the next turn. A shard looks after its own.
            if item.writer.is_none() && !item.can_resume() && row.shard.is_none() {
                item.row.expires_at = 0;
            }
            if row.shard.is_none() {
                self.by_source.insert((row.digest, SiteNo(row.source)), *blob);
            }
            self.items.insert(*blob, item);
        }
        self.doomed = recovery.doomed.iter().copied().collect();
        self.unlinks = self.doomed.keys().map(|blob| (BatchNo(0), *blob)).collect();
    }
}

impl Node {
    /// Reserved bytes that are not on the disk yet.
    pub(super) fn unwritten(&self) -> u64 {
        let left = |item: &Item| item.row.reserved.saturating_sub(item.row.offset);
        self.incoming.items.values().map(left).fold(0, u64::saturating_add)
    }

    /// Segments whose content is being received.
    pub(super) fn being_received(&self) -> u64 {
        self.incoming.items.values().filter(|item| item.writer.is_some()).count() as u64
    }

    /// An offer without its body is admitted: its content is reserved, or goes on where it stopped.
    pub(super) fn open_incoming(
        &mut self,
        now: Now,
        pending: &Pending,
        offer: &Offer,
        found: &Found,
        out: &mut Vec<Action>,
    ) -> Result<(), No> {
        let source = pending.source;
        let same = self.incoming.by_source.get(&(offer.digest, source)).copied();
        let active = same
            .and_then(|blob| self.incoming.items.get(&blob))
            .and_then(|item| item.writer)
            .is_some_and(|(conn, _)| self.conns.contains_key(&conn));
        let others = self.other_writers(&offer.digest, source);
        let slow = |blob: &BlobNo| self.incoming.items.get(blob).is_none_or(|i| i.is_slow(now));
        if active || !others.iter().all(slow) {
            let text = "this content is being received already".to_string();
            return Err((Refusal::Busy, 1_000, text));
        }
        let resumes = same.filter(|b| self.incoming.items.get(b).is_some_and(Item::can_resume));
        let blob = match resumes {
            Some(blob) => {
                // Its bytes are reserved already.
                self.admit_bytes(Want::segment(0, source))?;
                blob
            }
            None => {
                // Its file may be there, and a file is created once: a new number.
                if let Some(blob) = same {
                    self.doom_incoming(blob);
                }
                self.admit_bytes(Want::segment(offer.size, source))?;
                let mismatches = found.source.map_or(0, |s| s.mismatches);
                self.reserve(now, offer.digest, source, offer.size, mismatches)
            }
        };
        // Only now that somebody else brings it: whoever was slow keeps what is checkpointed.
        for blob in others {
            self.gives_way(now, blob, out);
        }
        self.begin(pending.conn, pending.transfer, blob, offer.id, Some(Box::new(offer.clone())));
        Ok(())
    }

    /// Reservations of local clients, as far as the batch has room; the rest waits for the next one.
    pub(super) fn reserve_waiting(&mut self, now: Now, out: &mut Vec<Action>) {
        while self.stage.growth_room(4) {
            let Some((conn, ticket, size)) = self.reservations.pop_front() else { return };
            if self.conns.contains_key(&conn) {
                self.reserve_local(now, conn, ticket, size, out);
            }
        }
    }

    /// A local client announces content that is too large to park.
    fn reserve_local(
        &mut self,
        now: Now,
        conn: ConnId,
        ticket: TransferNo,
        size: Option<u64>,
        out: &mut Vec<Action>,
    ) {
        let reserved = size.unwrap_or(RESERVE_STEP);
        let meta = crate::segment::Meta::default();
        let admitted = self
            .admit_begin()
            .and_then(|()| self.admit(now, &meta, size.unwrap_or(0)))
            .and_then(|()| self.admit_bytes(Want::segment(reserved, SiteNo(0))));
        match admitted {
            Ok(()) => {
                let blob = self.reserve(now, UNKNOWN, SiteNo(0), reserved, 0);
                self.begin(conn, ticket, blob, SegmentId([0; 32]), None);
            }
            Err(no) => self.refuse_reservation(conn, ticket, no, out),
        }
    }

    pub(super) fn refuse_reservation(
        &mut self,
        conn: ConnId,
        transfer: TransferNo,
        (refusal, retry_after, text): No,
        out: &mut Vec<Action>,
    ) {
        self.count_refusal(refusal);
        let (code, peer) = (refusal.word(), alloc::string::String::new());
        out.push(Action::Note(Note::Refused { code, peer, text: text.clone() }));
        let id = SegmentId([0; 32]);
        let command =
            SessionCommand::Refuse { transfer, id, refusal, retry_after, text: text.into() };
        out.push(Action::Command(conn, command));
    }

    /// Content of unknown size needs another step.
    pub(super) fn extend_local(
        &mut self,
        conn: ConnId,
        ticket: TransferNo,
        blob: BlobNo,
        out: &mut Vec<Action>,
    ) {
        let limit = self.config.max_segment.unwrap_or(u64::MAX);
        let Some(item) = self.incoming.items.get(&blob) else { return };
        let reserved = item.row.reserved;
        let no = if reserved >= limit {
            Some((Refusal::TooLarge, 0, format!("it is longer than storage.max_segment, {limit}")))
        } else {
            self.admit_bytes(Want { bytes: RESERVE_STEP, segment: false, source: SiteNo(0) }).err()
        };
        if let Some(no) = no {
            return self.refuse_reservation(conn, ticket, no, out);
        }
        let Some(item) = self.incoming.items.get_mut(&blob) else { return };
        item.row.reserved = reserved.saturating_add(RESERVE_STEP);
        self.stage.charge(SiteNo(0), RESERVE_STEP);
        self.stage.batch.put(Table::Incoming, &keys::blob(blob), &item.row);
        self.begin(conn, ticket, blob, SegmentId([0; 32]), None);
    }

    pub(super) fn reserve(
        &mut self,
        now: Now,
        digest: BlobDigest,
        source: SiteNo,
        reserved: u64,
        mismatches: u32,
    ) -> BlobNo {
        let blob = self.stage.next_blob();
        let row = IncomingRow {
            digest,
            source: source.0,
            reserved,
            offset: 0,
            chain: Vec::new(),
            expires_at: now.wall.after(self.config.partial_ttl).0,
            shard: None,
        };
        self.stage.batch.put(Table::Incoming, &keys::blob(blob), &row);
        if source != SiteNo(0) {
            let source_row = SourceRow { blob: Some(blob), mismatches };
            self.stage.batch.put(
                Table::Sources,
                &keys_upkeep::source(&digest, source),
                &source_row,
            );
            self.incoming.by_source.insert((digest, source), blob);
        }
        self.stage.charge(source, reserved);
        let item = Item::waiting(row, mismatches);
        self.incoming.items.insert(blob, item);
        blob
    }

    /// The file is created only after the `incoming` commit (B3): what lets the session begin is a
    /// promise.
    fn begin(
        &mut self,
        conn: ConnId,
        transfer: TransferNo,
        blob: BlobNo,
        id: SegmentId,
        offer: Option<Box<Offer>>,
    ) {
        let Some(item) = self.incoming.items.get_mut(&blob) else { return };
        item.writer = Some((conn, transfer));
        item.moved = self.now.mono;
        item.offer = offer.or(item.offer.take());
        let promise = Promise::Accept {
            transfer,
            blob,
            offset: item.row.offset,
            chain: item.row.chain.clone(),
            reserved: item.row.reserved,
        };
        if let Some(state) = self.conns.get_mut(&conn) {
            state.incoming.insert(blob);
        }
        self.promise_unless(Plant::B3, conn, promise, Some(full(transfer, id)), None);
    }

    /// Content is durable up to `offset`.
    pub(super) fn checkpoint(
        &mut self,
        now: Now,
        conn: ConnId,
        blob: BlobNo,
        offset: u64,
        chain: Vec<u8>,
    ) {
        let expires_at = now.wall.after(self.config.partial_ttl).0;
        let Some(item) = self.incoming.items.get_mut(&blob) else { return };
        if item.writer.map(|(c, _)| c) != Some(conn) || offset <= item.row.offset {
            return;
        }
        item.row.offset = offset;
        item.row.chain = chain;
        item.row.expires_at = expires_at;
        self.stage.batch.put(Table::Incoming, &keys::blob(blob), &item.row);
    }

    /// Content of an offer is whole and durable: it is judged once more and becomes a segment.
    pub(super) fn received(&mut self, conn: ConnId, transfer: TransferNo, blob: BlobNo) {
        let Some(item) = self.incoming.items.get_mut(&blob) else { return };
        let Some(offer) = item.offer.clone().filter(|_| item.writer == Some((conn, transfer)))
        else {
            return;
        };
        // It is whole and waits to be judged: it is not slow any more, and gives way to nobody.
        item.moved = Instant::FAR;
        let source = SiteNo(item.row.source);
        if let Some(state) = self.conns.get_mut(&conn) {
            state.incoming.remove(&blob);
        }
        self.pend(Pending::new(conn, transfer, source, What::Received(offer, blob)));
    }

    /// Content will not be finished on this transfer.
    pub(super) fn broken(
        &mut self,
        now: Now,
        conn: ConnId,
        transfer: TransferNo,
        blob: BlobNo,
        why: Broken,
        out: &mut Vec<Action>,
    ) {
        if let Some(state) = self.conns.get_mut(&conn) {
            state.incoming.remove(&blob);
        }
        let Some(item) = self.incoming.items.get(&blob) else { return };
        if item.writer.map(|(c, _)| c) != Some(conn) {
            return;
        }
        let id = item.offer.as_ref().map_or(SegmentId([0; 32]), |o| o.id);
        let (digest, source) = (item.row.digest, SiteNo(item.row.source));
        let (refusal, retry_after, text) = match why {
            Broken::Cut => return self.incoming_cut(now, blob),
            Broken::Mismatch => {
                self.mismatched(digest, source, blob);
                self.not_from(id, conn);
                (Refusal::Mismatch, 0, "the content does not match its digest".to_string())
            }
            Broken::Store(StoreFault::Full(text)) => {
                self.doom_incoming(blob);
                (Refusal::DiskFull, 10_000, text)
            }
            // A partial that is gone, too short or no file: it was never promised, and what is there is
            // not gone on with.
            Broken::Store(fault @ (StoreFault::Missing(_) | StoreFault::Corrupt(_))) => {
                self.doom_incoming(blob);
                out.push(Action::Note(Note::Warn {
                    code: "partial_lost",
                    text: format!("content file {blob} is begun anew: {fault}"),
                }));
                (Refusal::Busy, 1_000, fault.to_string())
            }
            Broken::Store(fault) => {
                // A failed write or fsync is not retried on a file; nothing of it can be trusted.
                self.halt(format!("content file {blob}: {fault}"), out);
                (Refusal::Busy, 10_000, fault.to_string())
            }
        };
        let command =
            SessionCommand::Refuse { transfer, id, refusal, retry_after, text: text.into() };
        out.push(Action::Command(conn, command));
    }

    fn mismatched(&mut self, digest: BlobDigest, source: SiteNo, blob: BlobNo) {
        let mismatches =
            self.incoming.items.get(&blob).map_or(0, |item| item.mismatches).saturating_add(1);
        self.doom_incoming(blob);
        self.stage.intend(Intent::Mismatch { digest, source });
        self.put_source(digest, source, mismatches);
    }

    pub(super) fn put_source(&mut self, digest: BlobDigest, source: SiteNo, mismatches: u32) {
        let row = SourceRow { blob: None, mismatches };
        self.stage.batch.put(Table::Sources, &keys_upkeep::source(&digest, source), &row);
    }

    /// The writer is gone: what is checkpointed stays for a resume, the rest is given up.
    pub(super) fn incoming_cut(&mut self, now: Now, blob: BlobNo) {
        let expires_at = now.wall.after(self.config.partial_ttl).0;
        let Some(item) = self.incoming.items.get_mut(&blob) else { return };
        item.writer = None;
        if item.can_resume() {
            item.row.expires_at = expires_at;
        } else {
            self.doom_incoming(blob);
        }
    }

    /// A finished file becomes a blob: its reservation turns into its size.
    pub(super) fn close_incoming(&mut self, blob: BlobNo, size: u64) {
        let Some(item) = self.forget_incoming(blob) else { return };
        let source = SiteNo(item.row.source);
        self.stage.uncharge(source, item.row.reserved);
        self.stage.charge(source, size);
    }

    fn forget_incoming(&mut self, blob: BlobNo) -> Option<Item> {
        let item = self.incoming.items.remove(&blob)?;
        let (digest, source) = (item.row.digest, SiteNo(item.row.source));
        self.stage.batch.del(Table::Incoming, &keys::blob(blob));
        if source != SiteNo(0) {
            self.incoming.by_source.remove(&(digest, source));
            if item.mismatches == 0 {
                self.stage.batch.del(Table::Sources, &keys_upkeep::source(&digest, source));
            } else {
                self.put_source(digest, source, item.mismatches);
            }
        }
        if let Some(state) = item.writer.and_then(|(conn, _)| self.conns.get_mut(&conn)) {
            state.incoming.remove(&blob);
        }
        Some(item)
    }

    /// Content is given up: its number goes to `doomed`, still charged; the file goes after the commit.
    pub(super) fn doom_incoming(&mut self, blob: BlobNo) {
        let Some(item) = self.forget_incoming(blob) else { return };
        self.stage.intend(Intent::Doom { blob });
        self.doom(blob, DoomedRow::new(item.row.reserved, item.row.source));
    }
}
