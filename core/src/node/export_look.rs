//! Finding the exports that are due: read from the ledger in order of time, as many of each rule as there
//! is room for in memory.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::export::{Active, Exports, PER_RULE, Phase, due_key};
use super::types::Action;
use super::{Asked, Node};
use crate::id::{BatchNo, Seq};
use crate::inbox::{ExportJob, ExportTask};
use crate::ledger::Table;
use crate::ledger::keys_upkeep::{self, RuleId};
use crate::ledger::read::{Answer as Rows, ReadRequest};
use crate::ledger::read_export::{DueExport, DueExports};
use crate::ledger::rows_upkeep::{ExportRow, ExportState};
use crate::time::{Instant, Now, UnixMillis};

/// Keys looked at in one slice.
const LOOK: usize = 4096;

impl Node {
    pub(super) fn look_for_exports(&mut self, now: Now, out: &mut Vec<Action>) {
        let exports = &mut self.exports;
        if exports.scanning || !self.reconcile.is_settled() {
            return;
        }
        let free = |e: &Exports, rule: RuleId| e.busy_of(rule) < PER_RULE;
        let due = |key: &[u8]| key < now.wall.0.saturating_add(1).to_be_bytes().as_slice();
        let wanted: Vec<RuleId> = exports
            .look
            .iter()
            .filter(|(rule, key)| due(key) && free(exports, **rule))
            .map(|(rule, _)| *rule)
            .collect();
        let first = wanted.iter().filter_map(|rule| exports.look.remove(rule)).min();
        let Some(from) = first else { return };
        // A read asked now sees every batch that is committed now.
        let committed = self.gate.committed();
        exports.active.retain(|_, a| !matches!(a.phase, Phase::Over(batch) if batch <= committed));
        exports.scanning = true;
        let until = now.wall;
        let wanted = DueExports { from, until, rules: wanted, each: PER_RULE, limit: LOOK };
        self.ask(Asked::Exports, ReadRequest::DueExports(wanted), out);
    }

    /// Something about exports was read.
    pub(super) fn exports_read(
        &mut self,
        now: Now,
        asked: Asked,
        body: Rows,
        as_of: BatchNo,
        out: &mut Vec<Action>,
    ) {
        match (asked, body) {
            (Asked::Exports, Rows::DueExports { rows, next }) => {
                self.exports_found(now, rows, next, out);
            }
            (Asked::ExportAct, Rows::SegmentsHere { rows, last, end }) => {
                self.here_found(now, rows, last, end);
            }
            (Asked::ExportAct, Rows::Exports(rows)) => self.retry_found(now, rows, as_of),
            (Asked::Strays, Rows::Rows { rows, next }) => self.stray_page(&rows, next, out),
            (Asked::Strays, Rows::Kept(kept)) => self.strays_found(now, kept),
            (asked, body) => unreachable!("{asked:?} was answered by {body:?}"),
        }
    }

    /// Due exports were found: as many as there is room for are begun.
    pub(super) fn exports_found(
        &mut self,
        now: Now,
        rows: Vec<DueExport>,
        next: Vec<(RuleId, Option<Vec<u8>>)>,
        out: &mut Vec<Action>,
    ) {
        self.exports.scanning = false;
        for (rule, key) in next {
            if let Some(key) = key {
                self.exports.lower(rule, key);
            }
        }
        for found in rows {
            let (rule, seq) = (found.rule, found.seq);
            if self.exports.active.contains_key(&(rule, seq)) {
                continue;
            }
            let room = self.exports.busy_of(rule) < PER_RULE && self.stage.room(4);
            if !room || self.stopping {
                self.exports.lower(rule, due_key(found.at.0, rule, seq).to_vec());
            } else {
                self.export_found(now, found, out);
            }
        }
    }

    fn export_found(&mut self, now: Now, found: DueExport, out: &mut Vec<Action>) {
        let DueExport { at, rule, seq, row, segment } = found;
        let key = due_key(at.0, rule, seq);
        let Some(segment) = segment else {
            // The segment is gone, however that came: nothing is left to do but to clean up.
            self.stage.batch.del(Table::Expiry, &key);
            self.stage.batch.del(Table::Exports, &keys_upkeep::export(rule, seq));
            out.push(Action::Export(clear(rule, seq)));
            return;
        };
        let over = |row: &ExportRow| matches!(row.state, ExportState::Done | ExportState::Failed);
        match row {
            Some(row) if over(&row) || row.next_attempt_after != at.0 => {
                self.stage.batch.del(Table::Expiry, &key);
            }
            Some(row) => {
                let phase = Phase::Rests(BatchNo(0));
                self.exports.active.insert((rule, seq), Active { row, segment, phase });
                self.give_out(now, rule, seq, out);
            }
            // Its row cannot be read: it is begun anew rather than lost.
            None => {
                self.stage.batch.del(Table::Expiry, &key);
                self.begin_export(now, rule, seq);
            }
        }
    }

    /// When an export becomes due that is not due now.
    pub(super) fn exports_deadline(&self) -> Option<Instant> {
        if self.stopping || self.exports.scanning {
            return None;
        }
        let free = self.exports.look.iter().filter(|(r, _)| self.exports.busy_of(**r) < PER_RULE);
        let first = free.filter_map(|(_, key)| key.first_chunk::<8>()).min()?;
        let at = UnixMillis(u64::from_be_bytes(*first));
        (at > self.now.wall).then(|| self.now.instant_of(at))
    }
}

/// Nothing of a segment that is gone is to be left beside the files.
pub(super) fn clear(rule: RuleId, seq: Seq) -> Box<ExportJob> {
    use crate::id::{BlobDigest, BodyNo, SegmentId};
    Box::new(ExportJob {
        job: 0,
        rule,
        seq,
        id: SegmentId([0; 32]),
        digest: BlobDigest([0; 32]),
        size: 0,
        body: crate::ledger::rows::Body::Inline(BodyNo(0)),
        meta: crate::segment::Meta::default(),
        origin: String::new(),
        task: ExportTask::Clear,
    })
}
