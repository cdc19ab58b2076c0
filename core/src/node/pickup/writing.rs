//! Uploads under way: reserved further, checkpointed, whole, broken off.

use alloc::vec::Vec;

use super::jobs::Job;
use super::overlay::{Stop, View};
use super::shard::{Found, view_of};
use super::task::Task;
use super::{No, PERSIST, SOON};
use crate::id::{BlobNo, ConnId, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys_pickup::ShardKey;
use crate::ledger::rows::Body;
use crate::ledger::rows_pickup::{ShardRow, ShardState};
use crate::limits::RESERVE_STEP;
use crate::node::Node;
use crate::node::types::{Action, Note};
use crate::pickup::{Answer, BrokenUpload, PickupRefusal};
use crate::store::StoreFault;
use crate::time::{Now, UnixMillis};

/// An upload that writes to a file now.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    pub conn: ConnId,
    pub ticket: TransferNo,
    pub shard: ShardKey,
    /// Its content is there already: what arrives is only compared with it.
    pub compares: bool,
    /// When it made durable progress last.
    pub moved: UnixMillis,
}

impl Node {
    /// A session may write now, once everything staged is durable (B3).
    pub(super) fn grant(&mut self, now: Now, upload: Upload, row: &ShardRow, blob: BlobNo) {
        let Some(partial) = self.partial(blob) else { return };
        let (offset, reserved) = (partial.offset, partial.reserved);
        let chain = partial.chain.clone();
        let (conn, ticket) = (upload.conn, upload.ticket);
        let known = !upload.compares;
        let answer = Answer::Granted {
            ticket,
            blob,
            offset,
            chain,
            reserved,
            // Also what is only compared is no longer than that.
            size: row.size,
            sha256: row.sha256.filter(|_| known),
            blake3: row.blake3.filter(|_| known),
        };
        if known {
            self.pickup.writers.insert(upload.shard.clone(), blob);
        }
        self.pickup.uploads.insert(blob, Upload { moved: now.wall, ..upload });
        self.pickup_promise(conn, answer, Some(No::full().command(ticket)));
    }

    /// Nobody writes to that file any more.
    pub(super) fn upload_over(&mut self, blob: BlobNo) -> Option<Upload> {
        let upload = self.pickup.uploads.remove(&blob)?;
        if self.pickup.writers.get(&upload.shard) == Some(&blob) {
            self.pickup.writers.remove(&upload.shard);
        }
        Some(upload)
    }

    /// Whoever writes to a shard that is given up is told so.
    pub(super) fn end_writer(&mut self, shard: &ShardKey, out: &mut Vec<Action>) {
        let blob = self.pickup.writers.get(shard).copied();
        if let Some(upload) = blob.and_then(|blob| self.upload_over(blob)) {
            let no = No::new(PickupRefusal::Conflict, "the upload was given up here");
            self.pickup_refuse(upload.conn, upload.ticket, no, out);
        }
    }

    /// When the live writer of a shard made progress last.
    pub(super) fn written_at(&self, shard: &ShardKey) -> Option<UnixMillis> {
        let blob = self.pickup.writers.get(shard)?;
        self.pickup.uploads.get(blob).map(|upload| upload.moved)
    }

    /// The row of a shard that is being uploaded to that file.
    fn uploading(
        &self,
        shard: &ShardKey,
        blob: BlobNo,
        view: &View,
    ) -> Result<Option<ShardRow>, Stop> {
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
        Ok(row.filter(|row| row.state == ShardState::Uploading && row.incoming == Some(blob)))
    }

    pub(super) fn judge_extend(
        &mut self,
        conn: ConnId,
        blob: BlobNo,
        view: &View,
    ) -> Result<(), Stop> {
        let Some(upload) = self.pickup.uploads.get(&blob).filter(|u| u.conn == conn).cloned()
        else {
            return Ok(());
        };
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &upload.shard.key())?;
        let (Some(row), Some(partial)) = (row, self.partial(blob)) else { return Ok(()) };
        let held = partial.reserved;
        if let Some(size) = row.size.filter(|size| held >= *size) {
            let text = alloc::format!("it is longer than the {size} bytes that were announced");
            return Err(No::new(PickupRefusal::DigestMismatch, text).into());
        }
        let limit = self.config.buffer.max_upload.unwrap_or(u64::MAX);
        if held >= limit {
            let text = alloc::format!("it is longer than buffer.max_upload, {limit}");
            return Err(No::new(PickupRefusal::TooLarge, text).into());
        }
        let reserved = held.saturating_add(RESERVE_STEP).min(limit);
        self.admit_shard(reserved, held)?;
        self.extend_shard(blob, reserved);
        self.grant(self.now, upload, &row, blob);
        Ok(())
    }

    pub(super) fn judge_checkpoint(
        &mut self,
        now: Now,
        conn: ConnId,
        blob: BlobNo,
        offset: u64,
        chain: &[u8],
        view: &View,
    ) -> Result<(), Stop> {
        let Some(upload) = self.pickup.uploads.get(&blob).filter(|u| u.conn == conn) else {
            return Ok(());
        };
        let (shard, compares) = (upload.shard.clone(), upload.compares);
        if compares {
            return Ok(());
        }
        let Some(row) = self.uploading(&shard, blob, view)? else { return Ok(()) };
        if self.partial(blob).is_none_or(|partial| offset <= partial.offset) {
            return Ok(());
        }
        self.checkpoint_shard(blob, offset, chain.to_vec());
        if let Some(upload) = self.pickup.uploads.get_mut(&blob) {
            upload.moved = now.wall;
        }
        if now.wall.since(UnixMillis(row.progress_at)) >= PERSIST {
            self.progressed(now, &shard, row);
        }
        Ok(())
    }

    fn progressed(&mut self, now: Now, shard: &ShardKey, row: ShardRow) {
        let after = ShardRow { progress_at: now.wall.0, ..row.clone() };
        self.put_shard(now, shard, Some(&row), after);
    }

    /// The body is whole and durable: it becomes the shard's content in one commit.
    pub(super) fn judge_whole(
        &mut self,
        now: Now,
        job: &Job,
        ticket: TransferNo,
        blob: BlobNo,
        found: Found,
        view: &View,
    ) -> Result<(), Stop> {
        let conn = job.conn;
        let lost = || No::new(PickupRefusal::Conflict, "the upload was given up here");
        let upload = self.pickup.uploads.get(&blob).filter(|u| u.conn == conn).cloned();
        let Some(upload) = upload else { return Err(lost().into()) };
        let shard = upload.shard.clone();
        if upload.compares {
            let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
            self.upload_over(blob);
            self.doom_incoming(blob);
            return self.compared(conn, ticket, row, found);
        }
        let Some(row) = self.uploading(&shard, blob, view)? else {
            self.upload_over(blob);
            return Err(lost().into());
        };
        if let Err(no) = self.is_right(&row, found) {
            self.upload_over(blob);
            self.intend(&Job { task: Task::Discard { shard: shard.clone(), blob }, ..job.clone() });
            self.discard(now, &shard, &row);
            return Err(no.into());
        }
        self.upload_over(blob);
        // Its room is reserved, but its rows are growth like any other (G5). What is checkpointed stays,
        // so that it is not sent a second time.
        if self.admit_growth().is_err() {
            return Err(No::full().into());
        }
        let (size, _, blake3) = found;
        self.own_file(&shard, blob, size, blake3);
        let after = self.buffered(now, row.clone(), Body::Blob(blob), found);
        self.is_stored(now, (conn, ticket), &shard, Some(&row), after);
        Ok(())
    }

    /// A shard is RELAY_BUFFERED for the first time.
    pub(super) fn is_stored(
        &mut self,
        now: Now,
        (conn, ticket): (ConnId, TransferNo),
        shard: &ShardKey,
        before: Option<&ShardRow>,
        row: ShardRow,
    ) {
        let view = alloc::boxed::Box::new(view_of(&row));
        self.put_shard(now, shard, before, row);
        self.owed(shard);
        self.pickup.told.stored += 1;
        let answer = Answer::Buffered { ticket, new: true, view };
        self.pickup_promise(conn, answer, Some(No::full().command(ticket)));
    }

    /// Whether what arrived is what was announced.
    fn is_right(&self, row: &ShardRow, (size, sha256, blake3): Found) -> Result<(), No> {
        if let Some(slot) = row.size.filter(|s| *s != size) {
            let text = alloc::format!("{size} bytes arrived, {slot} were announced");
            let code = match row.slot_expires_at {
                Some(_) => PickupRefusal::Conflict,
                None => PickupRefusal::DigestMismatch,
            };
            return Err(No::new(code, text));
        }
        if row.sha256.is_some_and(|d| d != sha256) || row.blake3.is_some_and(|d| d != blake3) {
            let text = "the content does not match the digest that was given with it";
            return Err(No::new(PickupRefusal::DigestMismatch, text));
        }
        if let Some(limit) = self.config.buffer.max_upload.filter(|limit| size > *limit) {
            let text = alloc::format!("{size} bytes are more than buffer.max_upload, {limit}");
            return Err(No::new(PickupRefusal::TooLarge, text));
        }
        Ok(())
    }

    /// Partial content is discarded: the row returns to what it was before, a slot or nothing.
    pub(super) fn discard(&mut self, now: Now, shard: &ShardKey, row: &ShardRow) {
        if let Some(blob) = row.incoming {
            self.doom_shard(blob);
        }
        if row.slot_expires_at.is_none() {
            return self.remove_shard(shard, row);
        }
        let slot = ShardRow {
            state: ShardState::Created,
            incoming: None,
            sha256: None,
            blake3: None,
            since: now.wall.0,
            reserved: row.size.unwrap_or(0),
            ..row.clone()
        };
        self.put_shard(now, shard, Some(row), slot);
    }

    /// As meant before a commit that failed.
    pub(super) fn judge_discard(
        &mut self,
        now: Now,
        job: &Job,
        shard: &ShardKey,
        blob: BlobNo,
        view: &View,
    ) -> Result<(), Stop> {
        let Some(row) = self.uploading(shard, blob, view)? else { return Ok(()) };
        self.intend(job);
        self.discard(now, shard, &row);
        Ok(())
    }

    /// The same shard was sent again: the same bytes, or others.
    pub(super) fn compared(
        &mut self,
        conn: ConnId,
        ticket: TransferNo,
        row: Option<ShardRow>,
        (size, sha256, blake3): Found,
    ) -> Result<(), Stop> {
        let same = |row: &ShardRow| {
            let digests = row.sha256 == Some(sha256) && row.blake3 == Some(blake3);
            let there = !matches!(row.state, ShardState::Uploading | ShardState::RelayCleanup);
            there && digests && row.size == Some(size)
        };
        match row.filter(same) {
            Some(row) => {
                self.is_there(conn, ticket, &row);
                Ok(())
            }
            None => {
                let text = "the shard is there with other bytes";
                Err(No::new(PickupRefusal::Conflict, text).into())
            }
        }
    }

    /// The content was there before.
    pub(super) fn is_there(&mut self, conn: ConnId, ticket: TransferNo, row: &ShardRow) {
        let view = alloc::boxed::Box::new(view_of(row));
        let answer = Answer::Buffered { ticket, new: false, view };
        self.pickup_promise(conn, answer, Some(No::full().command(ticket)));
    }

    pub(super) fn judge_broken(
        &mut self,
        now: Now,
        job: &Job,
        (ticket, blob, why): (TransferNo, BlobNo, &BrokenUpload),
        view: &View,
        out: &mut Vec<Action>,
    ) -> Result<(), Stop> {
        let upload = self.pickup.uploads.get(&blob).filter(|u| u.conn == job.conn).cloned();
        let Some(upload) = upload else { return Ok(()) };
        let shard = upload.shard.clone();
        if upload.compares {
            self.upload_over(blob);
            self.doom_incoming(blob);
            let text = "the shard is there; what was sent again broke off";
            return Err(No::new(PickupRefusal::Conflict, text).into());
        }
        let row = self.uploading(&shard, blob, view)?;
        self.upload_over(blob);
        self.pickup.told.lost_uploads.0 += 1;
        let Some(row) = row else { return Ok(()) };
        let no = match why {
            BrokenUpload::Cut { offset, chain } => {
                let further = self.partial(blob).is_some_and(|p| *offset > p.offset);
                if further {
                    self.checkpoint_shard(blob, *offset, chain.clone());
                    self.progressed(now, &shard, row);
                }
                self.offset_told(job.conn, ticket, blob);
                return Ok(());
            }
            BrokenUpload::Mismatch => {
                let text = "what arrived does not match its digest or length";
                No::new(PickupRefusal::DigestMismatch, text)
            }
            BrokenUpload::Store(StoreFault::Full(text)) => {
                No::new(PickupRefusal::DiskFull, text.clone()).after(super::LATER)
            }
            BrokenUpload::Store(fault @ (StoreFault::Missing(_) | StoreFault::Corrupt(_))) => {
                let text = alloc::format!("content file {blob} is begun anew: {fault}");
                out.push(Action::Note(Note::Warn { code: "partial_lost", text: text.clone() }));
                No::new(PickupRefusal::Unavailable, text).after(SOON)
            }
            BrokenUpload::Store(fault) => {
                // A failed write or fsync is not retried on a file; nothing of it can be trusted.
                self.halt(alloc::format!("content file {blob}: {fault}"), out);
                return Ok(());
            }
        };
        self.intend(&Job { task: Task::Discard { shard: shard.clone(), blob }, ..job.clone() });
        self.discard(now, &shard, &row);
        Err(no.into())
    }

    /// How far it is, once that is durable.
    fn offset_told(&mut self, conn: ConnId, ticket: TransferNo, blob: BlobNo) {
        let offset = self.partial(blob).map_or(0, |partial| partial.offset);
        let state = ShardState::Uploading;
        let answer = Answer::Offset { ticket, offset, complete: false, state, loss: None };
        if self.conns.contains_key(&conn) {
            self.pickup_promise(conn, answer, Some(No::full().command(ticket)));
        }
    }

    /// The writer is gone without a word: what is checkpointed waits for its client.
    pub(super) fn writer_quit(&mut self, conn: ConnId, blob: BlobNo) {
        if self.pickup.uploads.get(&blob).is_none_or(|upload| upload.conn != conn) {
            return;
        }
        self.pickup.told.lost_uploads.0 += 1;
        if self.upload_over(blob).is_some_and(|upload| upload.compares) {
            self.doom_incoming(blob);
        }
    }
}
