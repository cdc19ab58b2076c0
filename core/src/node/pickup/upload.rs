//! Uploads that begin: who may, onto what, how much.

use alloc::string::String;
use alloc::vec::Vec;

use super::No;
use super::overlay::{Stop, View};
use super::shard::{blank, follow};
use super::writing::Upload;
use crate::id::{BlobDigest, ConnId, Sha256Digest, SiteNo, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys_pickup::{self, ShardKey};
use crate::ledger::rows::Body;
use crate::ledger::rows_pickup::{NodeRow, ShardRow, ShardState};
use crate::limits::RESERVE_STEP;
use crate::node::Node;
use crate::node::accept::inline_charge;
use crate::node::types::Action;
use crate::pickup::state::ShardEvent;
use crate::pickup::{PickupRefusal, UploadAsk, UploadKind};
use crate::plant::Plant;
use crate::session::Content;
use crate::time::Now;

/// Digest of content that is only compared with what is there.
const UNKNOWN: BlobDigest = BlobDigest([0; 32]);

/// Who asks, for what.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub conn: ConnId,
    pub ticket: TransferNo,
    /// The client's name.
    pub client: &'a str,
}

impl Node {
    /// The client with that bearer token.
    pub(super) fn client_of(&self, token: Option<Sha256Digest>) -> Result<String, No> {
        let name = token.and_then(|token| self.pickup.by_token.get(&token));
        name.cloned().ok_or_else(|| {
            No::new(PickupRefusal::Unauthorized, "the bearer token is missing or not known here")
        })
    }

    /// The node is enrolled, or nothing is taken for it.
    pub(super) fn is_enrolled(&self, shard: &ShardKey, view: &View) -> Result<(), Stop> {
        let key = keys_pickup::node(shard.node());
        let row: Option<NodeRow> = self.row_of(view, Table::Nodes, &key)?;
        if row.is_some_and(|row| row.revoked_at.is_none()) {
            return Ok(());
        }
        let text = alloc::format!("node {} is not enrolled here", shard.node());
        Err(No::new(PickupRefusal::UnknownNode, text).into())
    }

    pub(super) fn judge_upload(
        &mut self,
        now: Now,
        conn: ConnId,
        ticket: TransferNo,
        ask: &UploadAsk,
        view: &View,
        out: &mut Vec<Action>,
    ) -> Result<(), Stop> {
        let client = self.client_of(ask.client)?;
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &ask.shard.key())?;
        let asker = Asker { conn, ticket, client: &client };
        if let UploadKind::Patch { offset } = ask.kind {
            return self.judge_patch(now, asker, ask, offset, row);
        }
        self.is_enrolled(&ask.shard, view)?;
        match row.as_ref().map(|row| row.state) {
            None => self.begin_upload(now, asker, ask, None, 0),
            Some(ShardState::RelayCleanup) => {
                let generation = row.as_ref().map_or(0, |row| row.generation.saturating_add(1));
                self.begin_upload(now, asker, ask, row, generation)
            }
            Some(ShardState::Created | ShardState::Uploading) => {
                if let Some(row) = &row {
                    self.may_begin(asker, ask, row)?;
                }
                let generation = row.as_ref().map_or(0, |row| row.generation);
                self.begin_upload(now, asker, ask, row, generation)
            }
            Some(
                ShardState::RelayBuffered
                | ShardState::NodeReceiving
                | ShardState::NodeVerified
                | ShardState::NodeStored,
            ) => self.upload_again(now, asker, ask, row, out),
        }
    }

    /// Whether this client may begin on what is there: its slot, or its own upload without a writer.
    fn may_begin(&self, asker: Asker<'_>, ask: &UploadAsk, row: &ShardRow) -> Result<(), No> {
        if self.pickup.writers.contains_key(&ask.shard) {
            let offset = row.incoming.and_then(|blob| self.partial(blob)).map_or(0, |p| p.offset);
            let text = "another connection is uploading this shard";
            return Err(No::new(PickupRefusal::Busy, text).number(offset).after(super::SOON));
        }
        if row.client != asker.client {
            let text = "another client has begun this shard";
            return Err(No::new(PickupRefusal::Conflict, text));
        }
        let told = ask.whole.as_ref().map(|whole| whole.1).or(announced(ask));
        let slot = row.size.filter(|_| row.slot_expires_at.is_some());
        if let (Some(slot), Some(size)) = (slot, told)
            && slot != size
        {
            let text = alloc::format!("the slot is for {slot} bytes, the upload has {size}");
            return Err(No::new(PickupRefusal::Conflict, text));
        }
        Ok(())
    }

    fn begin_upload(
        &mut self,
        now: Now,
        asker: Asker<'_>,
        ask: &UploadAsk,
        before: Option<ShardRow>,
        generation: u64,
    ) -> Result<(), Stop> {
        let fresh = |state| blank(now, generation, asker.client, state);
        // What is final begins anew; a slot or a partial goes on as what it was.
        let earlier = before.as_ref().filter(|row| row.state != ShardState::RelayCleanup);
        let from = earlier.map(|row| row.state);
        let state = match from {
            Some(ShardState::Uploading) => ShardState::Uploading,
            other => follow(other, ShardEvent::Begun),
        };
        let slot = earlier.filter(|row| row.slot_expires_at.is_some());
        let reserved = earlier.map_or(0, |row| row.reserved);
        let row = ShardRow {
            slot_expires_at: slot.and_then(|row| row.slot_expires_at),
            size: slot.and_then(|row| row.size),
            redemption: self.first_number(before.as_ref(), generation),
            ..fresh(state)
        };
        let partial = earlier.and_then(|row| row.incoming);
        if let Some((content, size, sha256, blake3)) = &ask.whole {
            let found = (*size, *sha256, *blake3);
            if !is_as_given(ask, found) {
                let text = "the content does not match the digest that was given with it";
                return Err(No::new(PickupRefusal::DigestMismatch, text).into());
            }
            self.admit_inline(*size, reserved)?;
            if let Some(blob) = partial {
                self.doom_shard(blob);
            }
            return self.store_whole(now, asker, ask, before, row, (*content, found));
        }
        let size = announced(ask).or(row.size);
        let limit = self.config.buffer.max_upload.unwrap_or(u64::MAX);
        let wanted = size.unwrap_or(RESERVE_STEP.min(limit));
        self.admit_shard(wanted, reserved)?;
        if let Some(blob) = partial {
            // A file is created once, and its end may still be on its way to the disk: a new number.
            self.doom_shard(blob);
        }
        let blob = self.reserve_shard(wanted);
        let row =
            ShardRow { incoming: Some(blob), size, sha256: ask.sha256, blake3: ask.blake3, ..row };
        self.put_shard(now, &ask.shard, before.as_ref(), row.clone());
        self.grant(now, upload(asker, ask, false), &row, blob);
        Ok(())
    }

    /// What its redemptions are counted from: nothing, for their numbers come from the ledger's one
    /// counter (P1).
    fn first_number(&self, before: Option<&ShardRow>, generation: u64) -> u64 {
        let before = before.filter(|_| self.config.planted(Plant::P1) && generation > 0);
        before.map_or(0, |row| row.redemption.saturating_sub(1))
    }

    /// A small body that is there as a whole: one commit from nothing to RELAY_BUFFERED.
    fn store_whole(
        &mut self,
        now: Now,
        asker: Asker<'_>,
        ask: &UploadAsk,
        before: Option<ShardRow>,
        row: ShardRow,
        (content, found): (Content, super::shard::Found),
    ) -> Result<(), Stop> {
        let Content::Parked(handle) = content else {
            let text = "a file is uploaded after it was granted";
            return Err(No::new(PickupRefusal::Conflict, text).into());
        };
        let size = found.0;
        let number = self.stage.next_body();
        self.stage.put_body(number, handle, size);
        self.stage.charge(SiteNo(0), inline_charge(size));
        let after = self.buffered(now, row, Body::Inline(number), found);
        let to = (asker.conn, asker.ticket);
        self.is_stored(now, to, &ask.shard, before.as_ref(), after);
        Ok(())
    }

    /// It is there already: the same bytes again are fine, others are not.
    fn upload_again(
        &mut self,
        now: Now,
        asker: Asker<'_>,
        ask: &UploadAsk,
        row: Option<ShardRow>,
        out: &mut Vec<Action>,
    ) -> Result<(), Stop> {
        let Some(row) = row else { return Ok(()) };
        if let Some((content, size, sha256, blake3)) = &ask.whole {
            let found = (*size, *sha256, *blake3);
            if !is_as_given(ask, found) {
                let text = "the content does not match the digest that was given with it";
                return Err(No::new(PickupRefusal::DigestMismatch, text).into());
            }
            self.compared(asker.conn, asker.ticket, Some(row), found)?;
            if let Content::Parked(handle) = content {
                out.push(Action::Errand(crate::store::Errand::Unpark(*handle)));
            }
            return Ok(());
        }
        let too_long = ask.body.zip(row.size).is_some_and(|(body, size)| body > size);
        let other_size = too_long || announced(ask).is_some_and(|size| row.size != Some(size));
        let other = |given: bool, same: bool| given && !same;
        if other_size
            || other(ask.sha256.is_some(), ask.sha256 == row.sha256)
            || other(ask.blake3.is_some(), ask.blake3 == row.blake3)
        {
            let text = "the shard is there with other bytes";
            return Err(No::new(PickupRefusal::Conflict, text).into());
        }
        if ask.sha256.is_some() || ask.blake3.is_some() {
            self.is_there(asker.conn, asker.ticket, &row);
            return Ok(());
        }
        // Only its bytes can tell. They are kept as long as that takes, for nobody, beside those that are there.
        let size = row.size.unwrap_or(0);
        self.admit_growth().map_err(|_| No::full())?;
        self.admit_beside(size)?;
        let blob = self.reserve(now, UNKNOWN, SiteNo(0), size, 0);
        self.grant(now, upload(asker, ask, true), &row, blob);
        Ok(())
    }
}

/// Length of the whole shard, where the request tells it.
pub(super) fn announced(ask: &UploadAsk) -> Option<u64> {
    ask.size.or(ask.body.filter(|_| ask.complete && ask.kind == UploadKind::Post))
}

/// Whether content is what the request says that it is.
fn is_as_given(ask: &UploadAsk, (size, sha256, blake3): super::shard::Found) -> bool {
    let right = ask.sha256.is_none_or(|given| given == sha256);
    right && ask.blake3.is_none_or(|given| given == blake3) && ask.size.is_none_or(|s| s == size)
}

pub(super) fn upload(asker: Asker<'_>, ask: &UploadAsk, compares: bool) -> Upload {
    Upload {
        conn: asker.conn,
        ticket: asker.ticket,
        shard: ask.shard.clone(),
        compares,
        moved: crate::time::UnixMillis(0),
    }
}
