//! What nodes say of what they have fetched.

use super::No;
use super::fetch::is_of;
use super::jobs::Job;
use super::overlay::{Stop, View};
use super::shard::follow;
use crate::id::ConnId;
use crate::ledger::Table;
use crate::ledger::keys_pickup::ShardKey;
use crate::ledger::rows_pickup::{AckStatus, ShardRow, ShardState};
use crate::node::Node;
use crate::pickup::state::ShardEvent;
use crate::pickup::{AckAsk, Answer, PickupRefusal};
use crate::plant::Plant;
use crate::time::Now;

/// Longest reason that is kept.
pub(super) const REASON_MAX: usize = 256;

impl Node {
    /// `shard_ack`: counts for the redemption it names and no other.
    pub(super) fn judge_ack(
        &mut self,
        now: Now,
        job: &Job,
        ask: &AckAsk,
        view: &View,
    ) -> Result<(), Stop> {
        let shard = &ask.shard;
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
        let subscriber = self.pickup.subscribers.get(&job.conn);
        // A session that is gone has said it all the same.
        let speaks = subscriber.is_none_or(|s| s.node == shard.node());
        let Some(row) = row.filter(|_| speaks) else { return Err(stale(ask)) };
        if is_of(&row, ask.redemption) {
            self.intend(job);
            let state = match ask.status {
                AckStatus::Verified => self.verified(now, shard, &row, ask),
                AckStatus::Failed => self.failed(now, shard, &row, ask),
            };
            self.ack_answered(job.conn, ask, state);
            return Ok(());
        }
        let repeated =
            row.acked_redemption == ask.redemption && row.acked_status == Some(ask.status);
        if repeated && ask.redemption != 0 {
            self.ack_answered(job.conn, ask, row.state);
            return Ok(());
        }
        Err(stale(ask))
    }

    fn ack_answered(&mut self, conn: ConnId, ask: &AckAsk, state: ShardState) {
        if self.conns.contains_key(&conn) {
            let (shard, redemption) = (ask.shard.clone(), ask.redemption);
            self.pickup_promise(conn, Answer::State { shard, redemption, state }, None);
        }
    }

    /// Custody moves: NODE_VERIFIED, and on to NODE_STORED in the same commit (P3).
    fn verified(&mut self, now: Now, shard: &ShardKey, row: &ShardRow, ask: &AckAsk) -> ShardState {
        self.pickup.told.acks.0 += 1;
        let state = follow(Some(row.state), ShardEvent::Verified);
        let after = ShardRow { state, ..acked(row, ask) };
        if self.config.planted(Plant::P3) {
            self.put_shard(now, shard, Some(row), ShardRow { progress_at: now.wall.0, ..after });
            self.fetch_forgotten(row.redemption);
            return state;
        }
        self.finish(now, shard, row, after);
        ShardState::NodeStored
    }

    /// NODE_VERIFIED is finished forward: the relay lets go of its copy.
    pub(super) fn finish(&mut self, now: Now, shard: &ShardKey, before: &ShardRow, row: ShardRow) {
        self.let_go_bytes(shard, before, false);
        let after = ShardRow {
            state: follow(Some(row.state), ShardEvent::Finished),
            buffer: None,
            since: now.wall.0,
            ..row
        };
        self.put_shard(now, shard, Some(before), after);
        self.fetch_forgotten(before.redemption);
        self.answered(shard);
    }

    /// Only these count towards `buffer.max_pickups` (P2).
    fn failed(&mut self, now: Now, shard: &ShardKey, row: &ShardRow, ask: &AckAsk) -> ShardState {
        self.pickup.told.acks.1 += 1;
        let failed_acks = row.failed_acks.saturating_add(1);
        let waits = row.waits.saturating_add(1);
        let notify_after = self.wait_after(now, waits);
        let reason = cut(&ask.reason, REASON_MAX).into();
        let after = ShardRow { failed_acks, waits, notify_after, reason, ..acked(row, ask) };
        self.fetch_forgotten(row.redemption);
        if failed_acks >= self.config.buffer.max_pickups {
            let state = follow(Some(row.state), ShardEvent::Returned);
            self.clean_up(now, shard, row, ShardRow { state, ..after }, ShardEvent::GivenUp);
            return ShardState::RelayCleanup;
        }
        self.give_back(now, shard, row, after, ShardEvent::Returned);
        ShardState::RelayBuffered
    }
}

fn acked(row: &ShardRow, ask: &AckAsk) -> ShardRow {
    ShardRow { acked_redemption: ask.redemption, acked_status: Some(ask.status), ..row.clone() }
}

fn stale(ask: &AckAsk) -> Stop {
    let text = alloc::format!("redemption {} is not what is waited for", ask.redemption);
    No::new(PickupRefusal::StaleAck, text).into()
}

/// The longest beginning of a text that is not longer than so many bytes.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
