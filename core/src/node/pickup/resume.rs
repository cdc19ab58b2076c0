//! Uploads that go on, how far they are, and slots that are reserved ahead.

use super::No;
use super::overlay::{Stop, View};
use super::shard::{blank, follow};
use super::upload::{Asker, upload};
use crate::id::{ConnId, Sha256Digest, SiteNo, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys_pickup::ShardKey;
use crate::ledger::rows_pickup::{ShardRow, ShardState};
use crate::limits::RESERVE_STEP;
use crate::node::Node;
use crate::node::upkeep::Want;
use crate::pickup::state::ShardEvent;
use crate::pickup::{Answer, PickupRefusal, UploadAsk};
use crate::time::{Now, UnixMillis};

impl Node {
    /// How far an upload is: durable length, and whether it is whole.
    fn how_far(&self, row: &ShardRow) -> (u64, bool) {
        match row.state {
            ShardState::Created | ShardState::RelayCleanup => (0, false),
            ShardState::Uploading => {
                let partial = row.incoming.and_then(|blob| self.partial(blob));
                (partial.map_or(0, |partial| partial.offset), false)
            }
            ShardState::RelayBuffered
            | ShardState::NodeReceiving
            | ShardState::NodeVerified
            | ShardState::NodeStored => (row.size.unwrap_or(0), true),
        }
    }

    pub(super) fn judge_head(
        &mut self,
        conn: ConnId,
        ticket: TransferNo,
        shard: &ShardKey,
        client: Option<Sha256Digest>,
        view: &View,
    ) -> Result<(), Stop> {
        let client = self.client_of(client)?;
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
        let row = row.filter(|row| row.client == client).ok_or_else(nothing)?;
        let (offset, complete) = self.how_far(&row);
        let answer = Answer::Offset { ticket, offset, complete, state: row.state, loss: row.loss };
        self.pickup_promise(conn, answer, Some(No::full().command(ticket)));
        Ok(())
    }

    /// `PATCH`: goes on at the durable offset, and nowhere else.
    pub(super) fn judge_patch(
        &mut self,
        now: Now,
        asker: Asker<'_>,
        ask: &UploadAsk,
        offset: u64,
        row: Option<ShardRow>,
    ) -> Result<(), Stop> {
        let row = row.filter(|row| row.client == asker.client).ok_or_else(nothing)?;
        let (durable, complete) = self.how_far(&row);
        if self.pickup.writers.contains_key(&ask.shard) {
            let text = "another connection is uploading this shard";
            let no = No::new(PickupRefusal::Busy, text).number(durable);
            return Err(no.after(super::SOON).into());
        }
        if offset != durable {
            let text = alloc::format!("{durable} bytes are durable, not {offset}");
            return Err(No::new(PickupRefusal::WrongOffset, text).number(durable).into());
        }
        let Some(blob) = row.incoming.filter(|_| row.state == ShardState::Uploading) else {
            if complete && ask.body == Some(0) {
                // Its 201 was lost: nothing is left to send.
                self.is_there(asker.conn, asker.ticket, &row);
                return Ok(());
            }
            let text = alloc::format!("a shard in state {} is not gone on with", row.state);
            return Err(No::new(PickupRefusal::Conflict, text).number(durable).into());
        };
        let end = ask.body.filter(|_| ask.complete).map(|body| offset.saturating_add(body));
        let size = ask.size.or(end);
        let differs = |known: bool, same: bool| known && !same;
        if differs(size.is_some() && row.size.is_some(), size == row.size)
            || differs(ask.sha256.is_some() && row.sha256.is_some(), ask.sha256 == row.sha256)
            || differs(ask.blake3.is_some() && row.blake3.is_some(), ask.blake3 == row.blake3)
        {
            let text = "the upload was begun with another length or digest";
            return Err(No::new(PickupRefusal::Conflict, text).number(durable).into());
        }
        let held = self.partial(blob).map_or(0, |partial| partial.reserved);
        let after = ShardRow {
            size: size.or(row.size),
            sha256: ask.sha256.or(row.sha256),
            blake3: ask.blake3.or(row.blake3),
            ..row.clone()
        };
        let limit = self.config.buffer.max_upload.unwrap_or(u64::MAX);
        let step = offset.saturating_add(RESERVE_STEP).min(limit);
        let wanted = after.size.unwrap_or(if held > offset { held } else { step }).max(held);
        self.admit_shard(wanted, held)?;
        let blob = match durable {
            // A file is created once, and the one of a writer that vanished may be there: a new number,
            // charged beside the old one until that is gone.
            0 => {
                let both = Want { bytes: wanted, segment: false, source: SiteNo(0) };
                if self.admit_bytes(both).is_err() {
                    self.discard(now, &ask.shard, &row);
                    let text = "the room of what was begun before is not free yet; begin anew";
                    let no = No::new(PickupRefusal::Unavailable, text);
                    return Err(no.after(super::SOON).into());
                }
                self.doom_shard(blob);
                self.reserve_shard(wanted)
            }
            _ => {
                if wanted > held {
                    self.extend_shard(blob, wanted);
                }
                blob
            }
        };
        let after = ShardRow { incoming: Some(blob), ..after };
        if after != row {
            self.put_shard(now, &ask.shard, Some(&row), after.clone());
        }
        self.grant(now, upload(asker, ask, false), &after, blob);
        Ok(())
    }

    /// `PUT /buffer/slot`.
    pub(super) fn judge_slot(
        &mut self,
        now: Now,
        conn: ConnId,
        ticket: TransferNo,
        (shard, client, size): (&ShardKey, Option<Sha256Digest>, u64),
        view: &View,
    ) -> Result<(), Stop> {
        let client = self.client_of(client)?;
        self.is_enrolled(shard, view)?;
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
        if let Some(row) = row {
            let same = row.state == ShardState::Created && row.client == client;
            if !same || row.size != Some(size) {
                let text = alloc::format!("the shard is there, {}", row.state);
                return Err(No::new(PickupRefusal::Conflict, text).into());
            }
            let expires_at = UnixMillis(row.slot_expires_at.unwrap_or(0));
            let answer = Answer::Slot { ticket, new: false, expires_at };
            self.pickup_promise(conn, answer, Some(No::full().command(ticket)));
            return Ok(());
        }
        self.admit_shard(size, 0)?;
        let expires_at = now.wall.after(self.config.buffer.slot_ttl);
        let row = ShardRow {
            size: Some(size),
            slot_expires_at: Some(expires_at.0),
            reserved: size,
            ..blank(now, 0, &client, follow(None, ShardEvent::Reserved))
        };
        self.put_shard(now, shard, None, row);
        let answer = Answer::Slot { ticket, new: true, expires_at };
        self.pickup_promise(conn, answer, Some(No::full().command(ticket)));
        Ok(())
    }
}

fn nothing() -> No {
    No::new(PickupRefusal::NotFound, "there is no such upload of this client's")
}
