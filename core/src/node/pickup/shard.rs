//! The one place where a shard's row is written, with everything that follows from it: its keys in
//! `by_node` and `shard_deadlines`, counters, charges, and the end of its content and of its history.

use alloc::string::String;

use super::No;
use crate::amount::amount;
use crate::code::Refusal;
use crate::id::{BlobDigest, BlobNo, Sha256Digest, SiteNo};
use crate::ledger::keys_pickup::{self, ShardKey};
use crate::ledger::keys_upkeep::{self, ExpiryKind, Owner};
use crate::ledger::rows::{BlobRow, Body, DoomedRow};
use crate::ledger::rows_pickup::{ShardRow, ShardState};
use crate::ledger::{Table, keys};
use crate::node::Node;
use crate::node::accept::inline_charge;
use crate::node::tally::Tally;
use crate::node::upkeep::Want;
use crate::pickup::state::{ShardEvent, is_final, next, owns_bytes};
use crate::pickup::{PickupRefusal, ShardView};
use crate::plant::Plant;
use crate::time::{Now, UnixMillis};

/// The deadline of what is to be finished before everything else (P3).
const FIRST: u64 = 1;

/// What a shard's content is: length and digests.
pub(super) type Found = (u64, Sha256Digest, BlobDigest);

/// The state after an event that the caller knows to be legal.
pub(super) fn follow(from: Option<ShardState>, event: ShardEvent) -> ShardState {
    match next(from, event) {
        Ok(state) => state,
        Err(illegal) => unreachable!("{illegal}"),
    }
}

/// A shard of which nothing is there yet.
pub(super) fn blank(now: Now, generation: u64, client: &str, state: ShardState) -> ShardRow {
    ShardRow {
        generation,
        state,
        buffer: None,
        incoming: None,
        size: None,
        sha256: None,
        blake3: None,
        client: client.into(),
        since: now.wall.0,
        deadline: 0,
        slot_expires_at: None,
        buffered_at: None,
        expires_at: None,
        progress_at: now.wall.0,
        entries: 0,
        redemption: 0,
        token: None,
        failed_acks: 0,
        waits: 0,
        notify_after: 0,
        acked_redemption: 0,
        acked_status: None,
        reason: String::new(),
        reserved: 0,
        loss: None,
    }
}

/// A shard as its upload's answer shows it.
pub(super) fn view_of(row: &ShardRow) -> ShardView {
    let stored = row.state == ShardState::NodeStored;
    ShardView {
        state: row.state,
        buffer: row.buffer,
        size: row.size.unwrap_or(0),
        sha256: row.sha256.unwrap_or(Sha256Digest([0; 32])),
        blake3: row.blake3.unwrap_or(BlobDigest([0; 32])),
        expires_at: row.expires_at.filter(|_| !stored).map(UnixMillis),
    }
}

/// Bytes that are counted for it, apart from partial content.
fn bytes(row: &ShardRow) -> u64 {
    if owns_bytes(row.state) { row.size.unwrap_or(0) } else { row.reserved }
}

impl Node {
    /// Writes a shard's row in place of `before`.
    ///
    /// # Panics
    /// When the relay would own bytes without a place for them, or the other way round.
    pub(super) fn put_shard(
        &mut self,
        now: Now,
        shard: &ShardKey,
        before: Option<&ShardRow>,
        mut row: ShardRow,
    ) {
        assert_eq!(owns_bytes(row.state), row.buffer.is_some(), "{:?}", row.state);
        row.deadline = self.deadline_of(&row);
        self.tally_shard(now, before, &row);
        if before.is_some_and(|b| b.state == ShardState::NodeReceiving) {
            self.scrub.shards.moved_on(shard, row.state);
        }
        let old = before.map_or(0, |b| b.deadline);
        if old != row.deadline {
            self.end_deadline(shard, old);
            if row.deadline != 0 {
                let at = UnixMillis(row.deadline);
                self.stage
                    .batch
                    .put_key(Table::ShardDeadlines, &keys_pickup::shard_deadline(at, shard));
                let number = self.stage.number();
                self.pickup.sweep.staged(number, at);
            }
        }
        let owed = |row: &ShardRow| row.state == ShardState::RelayBuffered;
        match (before.is_some_and(owed), owed(&row)) {
            (false, true) => {
                self.stage.batch.put_key(Table::ByNode, &keys_pickup::by_node(shard));
            }
            (true, false) => self.stage.batch.del(Table::ByNode, &keys_pickup::by_node(shard)),
            (false, false) | (true, true) => {}
        }
        if let Some(before) = before {
            self.uncount(before);
        }
        self.stage.charge(SiteNo(0), row.reserved);
        let held = bytes(&row);
        self.stage.shards(row.state, |c| {
            c.count += 1;
            c.bytes = c.bytes.saturating_add(held);
        });
        if is_final(row.state) && !before.is_some_and(|b| is_final(b.state)) {
            let at = now.wall.after(self.config.buffer.keep_history);
            self.expire_at(at, ExpiryKind::Shard, &shard.key());
        }
        self.put_row(Table::Shards, &shard.key(), &row);
    }

    /// What metrics count of it once it is durable.
    fn tally_shard(&mut self, now: Now, before: Option<&ShardRow>, row: &ShardRow) {
        if before.is_some_and(|before| before.state == row.state) {
            return;
        }
        self.stage.tally(Tally::Shard(row.state));
        let stored = row.state == ShardState::NodeStored;
        if let Some(at) = row.buffered_at.filter(|_| stored) {
            self.stage.tally(Tally::PickedUp(now.wall.0.saturating_sub(at)));
        }
    }

    /// Nothing of it is left.
    pub(super) fn remove_shard(&mut self, shard: &ShardKey, before: &ShardRow) {
        self.end_deadline(shard, before.deadline);
        if before.state == ShardState::RelayBuffered {
            self.stage.batch.del(Table::ByNode, &keys_pickup::by_node(shard));
        }
        self.uncount(before);
        self.del_row(Table::Shards, &shard.key());
    }

    fn uncount(&mut self, row: &ShardRow) {
        self.stage.uncharge(SiteNo(0), row.reserved);
        let held = bytes(row);
        self.stage.shards(row.state, |c| {
            c.count = c.count.saturating_sub(1);
            c.bytes = c.bytes.saturating_sub(held);
        });
    }

    /// A key of `shard_deadlines` goes.
    pub(super) fn end_deadline(&mut self, shard: &ShardKey, at: u64) {
        if at != 0 {
            let key = keys_pickup::shard_deadline(UnixMillis(at), shard);
            self.stage.batch.del(Table::ShardDeadlines, &key);
        }
    }

    /// When something is to be done about it; 0 is never.
    pub(super) fn deadline_of(&self, row: &ShardRow) -> u64 {
        let buffer = &self.config.buffer;
        let progress = UnixMillis(row.progress_at);
        match row.state {
            ShardState::Created => row.slot_expires_at.unwrap_or(row.since).max(FIRST),
            ShardState::Uploading => progress.after(buffer.upload_grace).0,
            ShardState::RelayBuffered => row.expires_at.unwrap_or(row.since).max(FIRST),
            ShardState::NodeReceiving => progress.after(buffer.transit_grace).0,
            ShardState::NodeVerified if self.config.planted(Plant::P3) => {
                progress.after(buffer.transit_grace).0
            }
            ShardState::NodeVerified => FIRST,
            ShardState::NodeStored | ShardState::RelayCleanup => 0,
        }
    }

    /// A shard whose content is whole: RELAY_BUFFERED, for the first time.
    pub(super) fn buffered(
        &self,
        now: Now,
        row: ShardRow,
        body: Body,
        (size, sha256, blake3): Found,
    ) -> ShardRow {
        ShardRow {
            state: follow(Some(row.state), ShardEvent::Whole),
            buffer: Some(body),
            incoming: None,
            size: Some(size),
            sha256: Some(sha256),
            blake3: Some(blake3),
            since: now.wall.0,
            buffered_at: Some(now.wall.0),
            expires_at: Some(now.wall.after(self.config.buffer.ttl).0),
            progress_at: now.wall.0,
            entries: row.entries.saturating_add(1),
            ..row
        }
    }

    /// A finished file becomes the content of a shard. It is never shared: no digest leads to it.
    pub(super) fn own_file(
        &mut self,
        shard: &ShardKey,
        blob: BlobNo,
        size: u64,
        blake3: BlobDigest,
    ) {
        self.close_shard(blob, size);
        let row = BlobRow { digest: blake3, size, refs: 1, owner: None };
        self.stage.batch.put(Table::Blobs, &keys::blob(blob), &row);
        let owner = keys_upkeep::owner(blob, &Owner::Shard(shard.clone()));
        self.stage.batch.put_key(Table::Owners, &owner);
    }

    /// The relay lets go of the bytes; what is not as it was uploaded is set aside.
    pub(super) fn let_go_bytes(&mut self, shard: &ShardKey, row: &ShardRow, aside: bool) {
        let size = row.size.unwrap_or(0);
        match row.buffer {
            None => {}
            Some(Body::Inline(body)) => {
                self.stage.batch.del(Table::Bodies, &keys::body(body));
                self.stage.uncharge(SiteNo(0), inline_charge(size));
            }
            Some(Body::Blob(blob)) => {
                let owner = keys_upkeep::owner(blob, &Owner::Shard(shard.clone()));
                self.stage.batch.del(Table::Owners, &owner);
                self.stage.batch.del(Table::Blobs, &keys::blob(blob));
                let aside = aside.then_some(true);
                self.doom(blob, DoomedRow { aside, ..DoomedRow::new(size, 0) });
            }
        }
    }

    /// It is given up: RELAY_CLEANUP, and whatever there is of it goes.
    pub(super) fn clean_up(
        &mut self,
        now: Now,
        shard: &ShardKey,
        before: &ShardRow,
        row: ShardRow,
        event: ShardEvent,
    ) {
        self.let_go_bytes(shard, before, event == ShardEvent::Spoiled);
        if let Some(blob) = before.incoming {
            self.doom_shard(blob);
        }
        let after = ShardRow {
            state: follow(Some(row.state), event),
            buffer: None,
            incoming: None,
            since: now.wall.0,
            reserved: 0,
            ..row
        };
        self.put_shard(now, shard, Some(before), after);
        self.answered(shard);
    }

    /// Back to where the node is to be notified of it.
    pub(super) fn give_back(
        &mut self,
        now: Now,
        shard: &ShardKey,
        before: &ShardRow,
        row: ShardRow,
        event: ShardEvent,
    ) {
        let after = ShardRow {
            state: follow(Some(row.state), event),
            since: now.wall.0,
            progress_at: now.wall.0,
            entries: row.entries.saturating_add(1),
            ..row
        };
        self.put_shard(now, shard, Some(before), after);
        self.owed(shard);
    }

    /// The wait after another pickup that failed: doubled each time, without jitter, since the page that
    /// another implementation is built from names it.
    pub(super) fn wait_after(&self, now: Now, waits: u32) -> u64 {
        let doublings = waits.saturating_sub(1).min(31);
        let wait = self.config.backoff_initial.saturating_mul(1 << doublings);
        now.wall.after(wait.min(self.config.backoff_max)).0
    }

    /// Whether a shard of so many bytes may be taken, of which `already` are reserved for it.
    pub(super) fn admit_shard(&mut self, size: u64, already: u64) -> Result<(), No> {
        self.admit_charged(size, size, already)
    }

    /// The same for content in the ledger, which is charged for whole pages.
    pub(super) fn admit_inline(&mut self, size: u64, already: u64) -> Result<(), No> {
        self.admit_charged(size, inline_charge(size), already)
    }

    fn admit_charged(&mut self, size: u64, charge: u64, already: u64) -> Result<(), No> {
        let buffer = &self.config.buffer;
        if let Some(limit) = buffer.max_upload.filter(|limit| size > *limit) {
            let text = alloc::format!(
                "{} are more than buffer.max_upload, {}",
                amount(size),
                amount(limit)
            );
            return Err(No::new(PickupRefusal::TooLarge, text));
        }
        let limit = buffer.max_bytes;
        let used = self.stage.shard_bytes().saturating_sub(already);
        if used.saturating_add(size) > limit {
            let (size, used, limit) = (amount(size), amount(used), amount(limit));
            let text =
                alloc::format!("{size} on top of {used} are more than buffer.max_bytes, {limit}");
            return Err(No::new(PickupRefusal::Quota, text).after(super::LATER));
        }
        self.admit_beside(charge.saturating_sub(already))
    }

    /// Whether there is room for so many bytes more, whoever they are for.
    pub(super) fn admit_beside(&mut self, bytes: u64) -> Result<(), No> {
        let want = Want { bytes, segment: false, source: SiteNo(0) };
        self.admit_bytes(want).map_err(|(refusal, _, text)| {
            let refusal = match refusal {
                Refusal::Quota => PickupRefusal::Quota,
                Refusal::DiskFull => PickupRefusal::DiskFull,
                Refusal::Busy
                | Refusal::TooLarge
                | Refusal::Expired
                | Refusal::Invalid
                | Refusal::NotAddressed
                | Refusal::Mismatch
                | Refusal::AlreadyRelayed
                | Refusal::Unknown
                | Refusal::UnknownDestination => PickupRefusal::Unavailable,
            };
            No::new(refusal, text).after(super::LATER)
        })
    }
}
