//! Content that two sources offer at once: one sends, the others wait, and a slow one gives way
//! (DESIGN 3.4). What is left of a transfer waits for its source, and not for ever.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use super::Item;
use crate::code::Refusal;
use crate::id::{BlobDigest, BlobNo, ConnId, SegmentId, SiteNo, TransferNo};
use crate::limits::{ARRIVED_EVERY, SLOW_SECONDS};
use crate::node::Node;
use crate::node::types::Action;
use crate::session::SessionCommand;
use crate::time::Now;

impl Item {
    /// Whether too little of it has arrived for too long (DESIGN 3.4).
    pub(super) fn is_slow(&self, now: Now) -> bool {
        now.mono.since(self.moved) >= Duration::from_secs(SLOW_SECONDS)
    }
}

impl Node {
    /// Content with this digest that others are sending now.
    pub(super) fn other_writers(&self, digest: &BlobDigest, source: SiteNo) -> Vec<BlobNo> {
        let is_other = |item: &Item| {
            item.row.digest == *digest && item.row.source != source.0 && item.writer.is_some()
        };
        let items = self.incoming.items.iter();
        items.filter(|(_, item)| is_other(item)).map(|(blob, _)| *blob).collect()
    }

    /// A slow source gives way to another: its transfer ends, `busy`, which costs it no attempt.
    pub(super) fn gives_way(&mut self, now: Now, blob: BlobNo, out: &mut Vec<Action>) {
        let Some(item) = self.incoming.items.get(&blob) else { return };
        let Some((conn, transfer)) = item.writer else { return };
        let id = item.offer.as_ref().map_or(SegmentId([0; 32]), |offer| offer.id);
        if let Some(state) = self.conns.get_mut(&conn) {
            state.incoming.remove(&blob);
        }
        let text = format!(
            "another source took over: less than {} KiB arrived in {SLOW_SECONDS} s",
            ARRIVED_EVERY >> 10
        );
        let (refusal, retry_after) = (Refusal::Busy, 10_000);
        let command =
            SessionCommand::Refuse { transfer, id, refusal, retry_after, text: text.into() };
        out.push(Action::Command(conn, command));
        self.incoming_cut(now, blob);
    }

    /// Enough arrives of what a source is sending.
    pub(in crate::node) fn arrived(
        &mut self,
        now: Now,
        conn: ConnId,
        transfer: TransferNo,
        blob: BlobNo,
    ) {
        let item = self.incoming.items.get_mut(&blob);
        if let Some(item) = item.filter(|i| i.writer == Some((conn, transfer))) {
            item.moved = now.mono;
        }
    }

    /// The content is held by now: what this source had begun of it is given up.
    pub(in crate::node) fn drop_partial(&mut self, digest: BlobDigest, source: SiteNo) {
        let blob = self.incoming.by_source.get(&(digest, source)).copied();
        let waits =
            |blob: &BlobNo| self.incoming.items.get(blob).is_some_and(|item| item.writer.is_none());
        if let Some(blob) = blob.filter(waits) {
            self.doom_incoming(blob);
        }
    }

    /// Partials that nobody came back for.
    pub(in crate::node) fn expire_partials(&mut self, now: Now) {
        // What nobody can go on with, marked by time 0, goes whatever the clock says.
        let held = self.clock_held();
        let over = |item: &Item| {
            let at = item.row.expires_at;
            item.row.shard.is_none()
                && item.writer.is_none()
                && at <= now.wall.0
                && (at == 0 || !held)
        };
        let blobs: Vec<BlobNo> =
            self.incoming.items.iter().filter(|(_, i)| over(i)).map(|(b, _)| *b).collect();
        for blob in blobs {
            if self.stage.room(4) {
                self.doom_incoming(blob);
            }
        }
    }

    pub(in crate::node) fn partials_deadline(&self) -> Option<u64> {
        let waits = |i: &&Item| i.row.shard.is_none() && i.writer.is_none();
        let waiting = self.incoming.items.values().filter(waits);
        // What is over already goes in the next turn anyway.
        waiting.map(|i| i.row.expires_at).filter(|at| *at > self.now.wall.0).min()
    }
}
