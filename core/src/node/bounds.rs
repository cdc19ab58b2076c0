//! Tables that are bounded: audit records and remembered ids by number, dead letters by age.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::remove::Act;
use super::types::Action;
use super::upkeep::{SLICE, TURN_ROWS};
use super::{Asked, Node};
use crate::id::{BatchNo, ReadNo, SegmentId, Seq, SiteNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::read::{Bounded, Held, Oldest, ReadRequest};
use crate::ledger::rows::State;
use crate::time::{Now, UnixMillis};

/// When bounded tables are looked at, and what was read of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// Tables that are being read, and how many rows of each.
    asked: Vec<(Bounded, usize)>,
    /// Until this batch is durable, a reading of the oldest rows shows what has been dropped already.
    staged: BatchNo,
    /// When dead letters are looked at.
    dead_at: UnixMillis,
    dead: Option<DeadPage>,
}

/// Dead letters that were read, as far as they have not been judged.
#[derive(Clone, Debug)]
struct DeadPage {
    read: ReadNo,
    as_of: BatchNo,
    rows: VecDeque<DeadRow>,
    /// Whether there may be more behind it.
    full: bool,
}

/// Rows that are staged for a row that goes.
const ROWS_EACH: usize = 4;
/// A batch with room for fewer of them is waited for.
const FEW: usize = 16;

type DeadRow = (UnixMillis, Seq, SiteNo, Option<Box<Held>>);

impl Bounds {
    fn is_asked(&self, table: Bounded) -> bool {
        self.asked.iter().any(|(asked, _)| *asked == table)
    }
}

impl Node {
    /// Tables that are bounded by number or age.
    pub(super) fn bound_tables(&mut self, now: Now, out: &mut Vec<Action>) {
        let dead = self.bounds.dead.is_none() && now.wall >= self.bounds.dead_at;
        for (table, rows) in [
            (Bounded::Audit, self.too_many(Bounded::Audit)),
            (Bounded::Remembered, self.too_many(Bounded::Remembered)),
            (Bounded::Deadletters, if dead { SLICE } else { 0 }),
        ] {
            let stale = table != Bounded::Deadletters && self.bounds.staged > self.gate.committed();
            let rows = self.slice(rows);
            if rows > 0 && !stale && !self.bounds.is_asked(table) {
                self.bounds.asked.push((table, rows));
                self.ask(Asked::Oldest(table), ReadRequest::Oldest(table, rows), out);
            }
        }
    }

    /// When the next dead letter may be old enough, if that is known. Without room for what that stages a
    /// commit is waited for.
    pub(super) fn bounds_deadline(&self) -> Option<UnixMillis> {
        let bounds = &self.bounds;
        let waits = bounds.dead.is_none() && !bounds.is_asked(Bounded::Deadletters);
        (waits && self.slice(SLICE) > 0).then_some(bounds.dead_at)
    }

    /// How many of these rows the staged batch has room for; none at all when it is almost full.
    fn slice(&self, rows: usize) -> usize {
        let fit = self.stage.left() / ROWS_EACH;
        // Where batches are small because space is short, few are better than none.
        let few = FEW.min(self.stage.width.things(ROWS_EACH));
        if fit < rows.min(few) { 0 } else { rows.min(fit) }
    }

    /// How many rows more than it may have a table has now, as far as one slice goes.
    fn too_many(&self, table: Bounded) -> usize {
        let (meta, config) = (&self.stage.meta, &self.config);
        let over = match table {
            Bounded::Audit => meta.audit_rows.saturating_sub(config.audit_max),
            Bounded::Remembered => meta.remembered.saturating_sub(config.remember_max),
            Bounded::Deadletters => 0,
        };
        usize::try_from(over).unwrap_or(SLICE).min(SLICE)
    }

    /// Returns whether the read is still needed.
    pub(super) fn oldest_read(
        &mut self,
        read: ReadNo,
        as_of: BatchNo,
        table: Bounded,
        found: Oldest,
    ) -> bool {
        let asked = self.bounds.asked.iter().position(|(asked, _)| *asked == table);
        let asked = asked.map_or(SLICE, |at| self.bounds.asked.swap_remove(at).1);
        match found {
            Oldest::Audit(numbers) => self.drop_audit(&numbers),
            Oldest::Remembered(oldest) => self.forget_oldest(oldest),
            Oldest::Deadletters(rows) => {
                let full = rows.len() >= asked;
                self.bounds.dead = Some(DeadPage { read, as_of, rows: rows.into(), full });
                return true;
            }
        }
        self.bounds.staged = self.newest_staged();
        self.more = true;
        false
    }

    fn drop_audit(&mut self, numbers: &[u64]) {
        let (numbers, _) = numbers.split_at(numbers.len().min(self.too_many(Bounded::Audit)));
        if !self.stage.room(numbers.len()) {
            return;
        }
        for number in numbers {
            self.stage.batch.del(Table::Audit, &keys::audit(*number));
        }
        let rows = &mut self.stage.meta.audit_rows;
        *rows = rows.saturating_sub(numbers.len() as u64);
    }

    fn forget_oldest(&mut self, oldest: Vec<(UnixMillis, SegmentId)>) {
        if !self.stage.room(ROWS_EACH * oldest.len()) {
            return;
        }
        for (at, id) in oldest {
            // Others may have grown too old since it was asked: only what is too many now goes.
            if self.too_many(Bounded::Remembered) == 0 {
                return;
            }
            match self.book.removed(&id) {
                // Evicted again, or forgotten, since the reading: that row is not the oldest any more.
                Some(row) if row.as_ref().is_none_or(|row| row.evicted_at != at.0) => {}
                _ => self.forget_remembered(at, id),
            }
        }
    }

    /// Dead letters that were kept long enough are purged.
    pub(super) fn judge_dead(&mut self, now: Now) {
        let Some(mut page) = self.bounds.dead.take() else { return };
        let before = self.stage.batch.rows();
        let keep = self.config.keep_deadletter;
        while let Some((at, ..)) = page.rows.front() {
            let over = at.after(keep);
            if over > now.wall {
                self.bounds.dead_at = over;
                return self.book.closed(page.read);
            }
            let turn = self.stage.batch.rows() - before < TURN_ROWS;
            if !turn || !self.stage.room(16) {
                self.more |= !turn;
                self.bounds.dead = Some(page);
                return;
            }
            if let Some((at, seq, site, held)) = page.rows.pop_front() {
                self.purge_old(now, page.as_of, (at, seq, site), held);
            }
        }
        // Whatever is given up from now on lasts as long again.
        self.bounds.dead_at = if page.full { UnixMillis(0) } else { now.wall.after(keep) };
        self.more |= page.full;
        self.book.closed(page.read);
    }

    fn purge_old(
        &mut self,
        now: Now,
        as_of: BatchNo,
        (at, seq, site): (UnixMillis, Seq, SiteNo),
        held: Option<Box<Held>>,
    ) {
        let staged = self.book.delivery(site, seq, as_of).map(|row| row.cloned());
        let read = held.as_ref().and_then(|h| {
            h.deliveries.iter().find(|(no, _)| *no == site).map(|(_, row)| row.clone())
        });
        let row = staged.unwrap_or(read).filter(|row| {
            row.state == State::Deadletter && row.since == at.0 && !self.book.is_gone(seq)
        });
        let (Some(row), Some(held)) = (row, held) else {
            // Nothing stands behind it any more.
            return self.stage.batch.del(Table::Deadletters, &keys::deadletter(at, seq, site));
        };
        let mut segment = self.book.segment(seq).cloned().unwrap_or(held.row);
        self.drop_delivery(site, seq, &row, &mut segment);
        let name = self.peers.get(&site).map_or_else(|| site.to_string(), |p| p.name.clone());
        let subject = alloc::format!("{} to {name}", segment.id);
        let act = Act { action: "purge", reason: "keep_deadletter", ..Act::on(&segment) };
        self.audit(now, Act { subject, ..act });
        if segment.required > 0 {
            self.judge_success(now, seq, &mut segment);
        } else if segment.unplaced.is_none() {
            segment.unplaced = Some(true);
            self.stage.meta.unplaced += 1;
        }
        self.put_segment(seq, segment);
        self.may_go(now, seq);
    }
}
