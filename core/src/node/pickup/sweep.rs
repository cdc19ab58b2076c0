//! Deadlines of shards: slots, uploads without progress, silence, leases.
//!
//! They hang on keys of `shard_deadlines`, so what is over while nobody is there is over at the next
//! start, by effective time. NODE_VERIFIED stands before everything else (P3).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::jobs::{Job, Reading};
use super::overlay::{Stop, View};
use super::task::Task;
use crate::id::{BatchNo, ConnId};
use crate::ledger::Table;
use crate::ledger::keys_pickup::{ShardKey, parse_shard_deadline};
use crate::ledger::read::ReadRequest;
use crate::ledger::read_scrub::RawRow;
use crate::ledger::rows_pickup::{ShardRow, ShardState};
use crate::node::types::Action;
use crate::node::{Asked, Node};
use crate::pickup::state::ShardEvent;
use crate::plant::Plant;
use crate::time::{Now, UnixMillis};

/// Deadlines of one page.
const PAGE: usize = 256;
/// Batches whose first deadline is told apart; older ones are lumped together.
const BATCHES: usize = 16;
/// Pause between looks while a step of the clock is doubted.
const DOUBTED: Duration = Duration::from_secs(60);

/// One way through what is over.
#[derive(Clone, Debug, Default)]
struct Pass {
    until: Vec<u8>,
    from: Vec<u8>,
    /// What is staged after this batch is not in it; the reading of its first page.
    since: Option<BatchNo>,
    reading: bool,
    /// Shards that are being judged.
    judging: usize,
    /// Everything is read; what is behind it, if anything.
    read: bool,
    next: Option<UnixMillis>,
    /// Something was left because the clock is doubted.
    left: bool,
}

/// When which deadline is looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    pass: Option<Pass>,
    next: Option<UnixMillis>,
    /// The first deadline that was staged with each batch since.
    staged: BTreeMap<BatchNo, UnixMillis>,
}

impl Sweep {
    /// At the start everything is looked at once.
    pub fn at_start() -> Sweep {
        Sweep { next: Some(UnixMillis(0)), ..Sweep::default() }
    }

    /// Open reads are void: everything is looked at again.
    pub fn again(&mut self) {
        self.pass = None;
        self.next = Some(UnixMillis(0));
    }

    /// A deadline is staged.
    pub fn staged(&mut self, batch: BatchNo, at: UnixMillis) {
        let first = self.staged.entry(batch).or_insert(at);
        *first = at.min(*first);
        if self.staged.len() > BATCHES
            && let Some((_, oldest)) = self.staged.pop_first()
            && let Some(mut next) = self.staged.first_entry()
        {
            // Too early costs a look, too late would cost a deadline.
            next.insert(oldest.min(*next.get()));
        }
    }

    /// A shard is judged.
    pub fn judged(&mut self) {
        if let Some(pass) = &mut self.pass {
            pass.judging = pass.judging.saturating_sub(1);
        }
    }

    fn is_due(&self, now: UnixMillis, committed: BatchNo) -> bool {
        let staged = self.staged.iter().filter(|(batch, _)| **batch <= committed);
        self.next.into_iter().chain(staged.map(|(_, at)| *at)).any(|at| at <= now)
    }

    pub fn deadline(&self, now: UnixMillis) -> Option<UnixMillis> {
        // What is due already and not committed waits for its commit.
        let ahead = self.staged.values().copied().filter(|at| *at > now);
        ahead.chain(self.next).filter(|_| self.pass.is_none()).min()
    }
}

impl Node {
    pub(super) fn sweep_shards(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stopping {
            return;
        }
        if self.clock_held()
            && !self.pickup.nonces.held_reading
            && now.mono >= self.pickup.nonces.held_at
        {
            self.old_nonces(now, None, out);
        }
        let committed = self.gate.committed();
        if self.pickup.sweep.pass.is_none() && self.pickup.sweep.is_due(now.wall, committed) {
            // Everything up to now, this millisecond included.
            let until = now.wall.0.saturating_add(1).to_be_bytes().to_vec();
            self.pickup.sweep.pass = Some(Pass { until, ..Pass::default() });
        }
        let Some(pass) = &mut self.pickup.sweep.pass else { return };
        if pass.reading || pass.judging > 0 {
            return;
        }
        if pass.read {
            let (since, next, left) = (pass.since.unwrap_or_default(), pass.next, pass.left);
            let sweep = &mut self.pickup.sweep;
            sweep.pass = None;
            sweep.staged.retain(|batch, _| *batch > since);
            let again = left.then(|| now.wall.after(DOUBTED));
            sweep.next = next.into_iter().chain(again).min();
            self.more = true;
            return;
        }
        pass.reading = true;
        let (from, until) = (pass.from.clone(), pass.until.clone());
        let request = ReadRequest::Rows { table: Table::ShardDeadlines, from, until, limit: PAGE };
        self.ask(Asked::Pickup(Reading::Deadlines), request, out);
    }

    pub(super) fn deadlines_read(
        &mut self,
        as_of: BatchNo,
        rows: Vec<(RawRow, RawRow)>,
        next: Option<RawRow>,
    ) {
        let Some(pass) = &mut self.pickup.sweep.pass else { return };
        pass.reading = false;
        pass.since.get_or_insert(as_of);
        match next {
            Some(next) if next.0 < pass.until => pass.from = next.0,
            next => {
                pass.read = true;
                let at = next.and_then(|key| key.0.first_chunk::<8>().copied());
                pass.next = at.map(|at| UnixMillis(u64::from_be_bytes(at)));
            }
        }
        let due: Vec<(UnixMillis, ShardKey)> =
            rows.into_iter().filter_map(|(key, _)| parse_shard_deadline(&key.0)).collect();
        pass.judging = due.len();
        self.more = true;
        for (at, shard) in due {
            self.pickup_job(ConnId::default(), Task::Deadline { at, shard });
        }
    }

    pub(super) fn judge_deadline(
        &mut self,
        now: Now,
        job: &Job,
        at: UnixMillis,
        shard: &ShardKey,
        view: &View,
        out: &mut Vec<Action>,
    ) -> Result<(), Stop> {
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
        self.pickup.sweep.judged();
        let Some(row) = row.filter(|row| row.deadline == at.0) else {
            // It leads to nothing, or to another time.
            self.end_deadline(shard, at.0);
            return Ok(());
        };
        if at > now.wall {
            return Ok(());
        }
        // What is held in memory of its progress was not worth a row before.
        let moved = match row.state {
            ShardState::Uploading => self.written_at(shard),
            ShardState::NodeReceiving => self.moved_at(row.redemption),
            ShardState::Created
            | ShardState::RelayBuffered
            | ShardState::NodeVerified
            | ShardState::NodeStored
            | ShardState::RelayCleanup => None,
        };
        let progress_at = row.progress_at.max(moved.map_or(0, |at| at.0));
        let fresh = ShardRow { progress_at, ..row.clone() };
        if self.deadline_of(&fresh) > now.wall.0 {
            self.put_shard(now, shard, Some(&row), fresh);
            return Ok(());
        }
        let gives_up = match row.state {
            ShardState::Created => ShardEvent::SlotOver,
            ShardState::Uploading => ShardEvent::Stalled,
            ShardState::RelayBuffered => ShardEvent::LeaseOver,
            ShardState::NodeVerified if self.config.planted(Plant::P3) => {
                self.give_back(now, shard, &row, row.clone(), ShardEvent::Silent);
                return Ok(());
            }
            ShardState::NodeReceiving => {
                self.intend(job);
                self.reset_fetches(shard, out);
                self.give_back(now, shard, &row, row.clone(), ShardEvent::Silent);
                return Ok(());
            }
            ShardState::NodeVerified => {
                self.intend(job);
                self.finish(now, shard, &row, row.clone());
                return Ok(());
            }
            ShardState::NodeStored | ShardState::RelayCleanup => {
                self.put_shard(now, shard, Some(&row), row.clone());
                return Ok(());
            }
        };
        if self.clock_held() {
            if let Some(pass) = &mut self.pickup.sweep.pass {
                pass.left = true;
            }
            return Ok(());
        }
        self.intend(job);
        self.end_writer(shard, out);
        self.clean_up(now, shard, &row, row.clone(), gives_up);
        Ok(())
    }
}
