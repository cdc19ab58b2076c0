//! Exports (DESIGN 3.7): what is for this site and fits an inbox rule is given to the exporter, task by
//! task, each resting on the commit before it.
//!
//! The rows say everything: an export that is not over has a key in `expiry`. In memory is a bounded
//! number of them per rule, so that a rule whose command hangs or whose disk is full holds up nobody
//! else; the others are found by reading on. What a failed commit takes back is read again.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::export_look::clear;
use super::types::{Action, Note};
use super::{Mode, Node};
use crate::id::{BatchNo, Seq};
use crate::inbox::{ExportJob, ExportStep, ExportTask, InboxRule};
use crate::ledger::Table;
use crate::ledger::keys_pickup::LongKey;
use crate::ledger::keys_upkeep::{self, ExpiryKind, RuleId};
use crate::ledger::read::Kept;
use crate::ledger::rows::SegmentRow;
use crate::ledger::rows_upkeep::{ExportRow, ExportState};
use crate::retention::Exports as Exported;
use crate::schedule::jitter_key;
use crate::time::{Now, UnixMillis};

/// Exports of one rule in memory.
pub(super) const PER_RULE: usize = 16;
/// Runs of a command before an operator has to say that it is to go on.
const RUNS_MAX: u32 = 8;
/// Most bytes of an error that are kept.
const ERROR_MAX: usize = 512;
/// Most bytes of output that are kept: the last ones.
const OUTPUT_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The next task rests on this batch.
    Rests(BatchNo),
    /// The exporter has it under this number.
    Busy(u64),
    /// Nothing is to be done now, and the batch that says so; kept until no read can be older.
    Over(BatchNo),
}

#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) row: ExportRow,
    pub(super) segment: SegmentRow,
    pub(super) phase: Phase,
}

/// Exports in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Exports {
    pub(super) active: BTreeMap<(RuleId, Seq), Active>,
    /// Per rule the first key of `expiry` that may lead to another one; none is known where there is
    /// none.
    pub(super) look: BTreeMap<RuleId, Vec<u8>>,
    /// The same of batches that are not durable yet.
    staged: BTreeMap<(BatchNo, RuleId), Vec<u8>>,
    pub(super) scanning: bool,
    jobs: BTreeMap<u64, (RuleId, Seq)>,
    last_job: u64,
    steps: VecDeque<(u64, ExportStep)>,
    pub acts: super::export_acts::Acts,
    pub(super) strays: super::export_stray::Strays,
    /// What may lie aside for segments that have left the ledger.
    clears: Vec<(RuleId, Seq)>,
    /// Those that wait for an operator.
    pub(super) failed: BTreeSet<(RuleId, Seq)>,
}

impl Exports {
    /// Everything is to be looked for.
    pub fn begin(rules: &[InboxRule]) -> Exports {
        let look = rules.iter().map(|rule| (rule.id, Vec::new())).collect();
        Exports { look, strays: super::export_stray::Strays::begin(), ..Exports::default() }
    }

    pub(super) fn busy_of(&self, rule: RuleId) -> usize {
        let mine = self.active.range((rule, Seq(0))..=(rule, Seq(u64::MAX)));
        mine.filter(|(_, a)| !matches!(a.phase, Phase::Over(_))).count()
    }

    pub(super) fn lower(&mut self, rule: RuleId, key: Vec<u8>) {
        let look = self.look.entry(rule).or_insert_with(|| key.clone());
        if key < *look {
            *look = key;
        }
    }

    fn is_staged_in(&mut self, batch: BatchNo, rule: RuleId, key: &[u8]) {
        let first = self.staged.entry((batch, rule)).or_insert_with(|| key.to_vec());
        if key < first.as_slice() {
            *first = key.to_vec();
        }
    }

    /// Whether a rule has a segment in hand.
    pub fn holds(&self, seq: Seq, rules: &[InboxRule]) -> bool {
        let active = rules.iter().filter_map(|rule| self.active.get(&(rule.id, seq)));
        active.into_iter().any(|active| !matches!(active.phase, Phase::Over(_)))
    }

    /// Whether the exporter has anything.
    pub fn is_busy(&self) -> bool {
        self.active.values().any(|a| matches!(a.phase, Phase::Busy(_)))
    }

    /// Whether what a reading `as_of` says of it is old, or about to be.
    pub fn is_newer(&self, rule: RuleId, seq: Seq, as_of: BatchNo) -> bool {
        self.active.get(&(rule, seq)).is_some_and(|active| match active.phase {
            Phase::Over(batch) => batch > as_of,
            Phase::Rests(_) | Phase::Busy(_) => true,
        })
    }

    /// An operator has it tried again with this batch.
    pub fn tried_again(&mut self, rule: RuleId, seq: Seq, batch: BatchNo) {
        if let Some(active) = self.active.get_mut(&(rule, seq)) {
            active.phase = Phase::Over(batch);
        }
    }
}

pub(super) fn due_key(at: u64, rule: RuleId, seq: Seq) -> LongKey {
    keys_upkeep::expiry(UnixMillis(at), ExpiryKind::Export, &keys_upkeep::export(rule, seq))
}

/// The beginning of a text, cut between characters.
fn short(mut text: String) -> String {
    let mut at = text.len().min(ERROR_MAX);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    text.truncate(at);
    text
}

impl Node {
    /// The rules there are.
    pub(super) fn rules(&self) -> Vec<RuleId> {
        self.config.inbox.iter().map(|rule| rule.id).collect()
    }

    /// Rows that taking a segment may bring for exports.
    pub(super) fn export_rows(&self) -> usize {
        2 * self.config.inbox.len()
    }

    /// Where a segment was first accepted, by name.
    pub(super) fn origin_of<'a>(&'a self, segment: &'a SegmentRow) -> &'a str {
        if segment.origin.is_empty() { &self.config.name } else { &segment.origin }
    }

    /// Rules that take a segment.
    pub(super) fn rules_for(&self, segment: &SegmentRow) -> Vec<RuleId> {
        if !segment.here {
            return Vec::new();
        }
        let origin = self.origin_of(segment);
        let fits = self.config.inbox.iter().filter(|r| r.matches(origin, &segment.meta));
        fits.map(|rule| rule.id).collect()
    }

    /// A segment is for this site from now on: each rule that takes it begins, in the same batch.
    pub(super) fn begin_exports(&mut self, now: Now, seq: Seq, segment: &SegmentRow) {
        for rule in self.rules_for(segment) {
            self.begin_export(now, rule, seq);
        }
    }

    pub(super) fn begin_export(&mut self, now: Now, rule: RuleId, seq: Seq) {
        let row = ExportRow {
            state: ExportState::Intent,
            name: String::new(),
            since: now.wall.0,
            runs: 0,
            next_attempt_after: now.wall.0,
            exit: None,
            output: Vec::new(),
            error: String::new(),
            mark: None,
            tries: 0,
        };
        self.put_due(rule, seq, &row);
    }

    /// Writes an export that is to go on at its `next_attempt_after`.
    pub(super) fn put_due(&mut self, rule: RuleId, seq: Seq, row: &ExportRow) {
        let key = due_key(row.next_attempt_after, rule, seq);
        self.stage.batch.put(Table::Exports, &keys_upkeep::export(rule, seq), row);
        self.stage.batch.put_key(Table::Expiry, &key);
        let batch = self.stage.number();
        self.exports.is_staged_in(batch, rule, &key);
    }

    /// A segment leaves the ledger: what its exports left there goes with it. A key that has moved since
    /// `rows` were read is cleaned up when it comes up.
    pub(super) fn drop_exports(&mut self, seq: Seq, rows: &[(RuleId, ExportRow)]) {
        for (rule, row) in rows {
            self.exports.failed.remove(&(*rule, seq));
            self.stage.batch.del(Table::Exports, &keys_upkeep::export(*rule, seq));
            if row.state == ExportState::Intent && self.rule(*rule).is_some() {
                self.exports.clears.push((*rule, seq));
            }
            if matches!(row.state, ExportState::Intent | ExportState::Placed) {
                self.stage.batch.del(Table::Expiry, &due_key(row.next_attempt_after, *rule, seq));
            }
        }
    }

    /// What the rules there are have done with a segment, what is staged included.
    pub(super) fn exported(&self, kept: &Kept) -> Exported {
        let seq = kept.held.seq;
        let mut done = None;
        for (rule, row) in &kept.exports {
            if self.rule(*rule).is_none() {
                // What it owes may be another's yet.
                if row.state != ExportState::Done && !self.exports.strays.is_done() {
                    return Exported::Pending;
                }
                continue;
            }
            let newest = self.exports.active.get(&(*rule, seq)).map_or(row, |active| &active.row);
            if newest.state != ExportState::Done {
                return Exported::Pending;
            }
            done = done.max(Some(newest.since));
        }
        done.map_or(Exported::NoRules, |at| Exported::Done(UnixMillis(at)))
    }

    /// The exporter's word waits until it can be written down.
    pub(super) fn export_step(&mut self, job: u64, step: ExportStep) {
        self.exports.steps.push_back((job, step));
    }

    /// What rests on batches from `from` on is void: it is read again.
    pub(super) fn take_back_exports(&mut self, from: BatchNo) {
        self.exports.active.retain(|_, active| match active.phase {
            Phase::Rests(batch) | Phase::Over(batch) => batch < from,
            Phase::Busy(_) => true,
        });
        self.exports.staged.clear();
        self.exports.scanning = false;
        self.exports.failed.clear();
        self.exports.strays = super::export_stray::Strays::begin();
        for rule in self.rules() {
            self.exports.look.insert(rule, Vec::new());
        }
        self.take_back_acts();
    }

    /// One turn's worth: words written down, tasks given out, more looked for.
    pub(super) fn export(&mut self, now: Now, out: &mut Vec<Action>) {
        if matches!(self.mode, Mode::Rejudge(_)) {
            return;
        }
        if !self.stopping {
            self.look_for_strays(out);
        }
        if self.config.inbox.is_empty() {
            return;
        }
        // Should the batch that removes it fail, the export finds it gone and begins anew.
        for (rule, seq) in core::mem::take(&mut self.exports.clears) {
            out.push(Action::Export(clear(rule, seq)));
        }
        let committed = self.gate.committed();
        while let Some(((batch, rule), _)) = self.exports.staged.first_key_value()
            && *batch <= committed
        {
            let rule = *rule;
            let Some((_, key)) = self.exports.staged.pop_first() else { break };
            self.exports.lower(rule, key);
        }
        while self.stage.room(6) {
            let Some((job, step)) = self.exports.steps.pop_front() else { break };
            self.take_step(now, job, step);
        }
        self.export_acts(out);
        if self.stopping {
            return;
        }
        let rested = |a: &Active| matches!(a.phase, Phase::Rests(batch) if batch <= committed);
        let ready: Vec<(RuleId, Seq)> =
            self.exports.active.iter().filter(|(_, a)| rested(a)).map(|(k, _)| *k).collect();
        for (rule, seq) in ready {
            self.give_out(now, rule, seq, out);
        }
        self.look_for_exports(now, out);
    }

    fn rule(&self, id: RuleId) -> Option<&InboxRule> {
        self.config.inbox.iter().find(|rule| rule.id == id)
    }

    /// The next task of an export whose row is durable.
    pub(super) fn give_out(&mut self, now: Now, rule: RuleId, seq: Seq, out: &mut Vec<Action>) {
        let command = self.rule(rule).is_some_and(|rule| rule.command);
        let Some(active) = self.exports.active.get(&(rule, seq)) else { return };
        let row = &active.row;
        let task = match (row.state, row.mark) {
            (ExportState::Intent, Some(mark)) if !row.name.is_empty() => {
                ExportTask::Place { name: row.name.clone(), mark }
            }
            (ExportState::Intent, _) => ExportTask::Write,
            (ExportState::Placed, _) if command => {
                ExportTask::Run { name: row.name.clone(), run: row.runs.saturating_add(1) }
            }
            // The rule had a command once.
            (ExportState::Placed | ExportState::Done | ExportState::Failed, _) => {
                if self.stage.room(4) {
                    self.export_done(now, rule, seq);
                }
                return;
            }
        };
        self.exports.last_job += 1;
        let number = self.exports.last_job;
        self.exports.jobs.insert(number, (rule, seq));
        let Some(active) = self.exports.active.get_mut(&(rule, seq)) else { return };
        active.phase = Phase::Busy(number);
        let segment = active.segment.clone();
        out.push(Action::Export(self.job(number, rule, seq, &segment, task)));
    }

    fn job(
        &self,
        job: u64,
        rule: RuleId,
        seq: Seq,
        segment: &SegmentRow,
        task: ExportTask,
    ) -> Box<ExportJob> {
        Box::new(ExportJob {
            job,
            rule,
            seq,
            id: segment.id,
            digest: segment.digest,
            size: segment.size,
            body: segment.body,
            meta: segment.meta.clone(),
            origin: self.origin_of(segment).to_string(),
            task,
        })
    }

    fn take_step(&mut self, now: Now, job: u64, step: ExportStep) {
        let Some((rule, seq)) = self.exports.jobs.remove(&job) else { return };
        let Some(active) = self.exports.active.get_mut(&(rule, seq)) else { return };
        if active.phase != Phase::Busy(job) {
            return;
        }
        let row = &mut active.row;
        match step {
            ExportStep::Named { name, mark } => {
                (row.name, row.mark, row.tries) = (name, Some(mark), 0);
                self.export_goes_on(rule, seq);
            }
            ExportStep::Placed => {
                (row.state, row.since, row.tries) = (ExportState::Placed, now.wall.0, 0);
                row.error.clear();
                if self.rule(rule).is_some_and(|rule| rule.command) {
                    self.export_goes_on(rule, seq);
                } else {
                    self.export_done(now, rule, seq);
                }
            }
            ExportStep::Ran { exit, mut output, error } => {
                output.drain(..output.len().saturating_sub(OUTPUT_MAX));
                row.runs = row.runs.saturating_add(1);
                (row.exit, row.output) = (exit, output);
                let over = row.runs >= RUNS_MAX;
                match exit {
                    Some(0) => self.export_done(now, rule, seq),
                    _ if over => self.export_failed(now, rule, seq, error),
                    _ => self.export_later(now, rule, seq, error),
                }
            }
            ExportStep::Lost(why) => {
                row.name.clear();
                row.mark = None;
                self.export_later(now, rule, seq, why);
            }
            ExportStep::Later(why) => self.export_later(now, rule, seq, why),
            ExportStep::Never(why) => self.export_failed(now, rule, seq, why),
            ExportStep::Corrupt(why) => {
                self.read_badly(seq);
                self.export_later(now, rule, seq, why);
            }
        }
    }

    /// Its row is written; the next task follows once that is durable.
    fn export_goes_on(&mut self, rule: RuleId, seq: Seq) {
        let batch = self.stage.number();
        let Some(active) = self.exports.active.get_mut(&(rule, seq)) else { return };
        active.phase = Phase::Rests(batch);
        self.stage.batch.put(Table::Exports, &keys_upkeep::export(rule, seq), &active.row);
    }

    fn export_done(&mut self, now: Now, rule: RuleId, seq: Seq) {
        self.export_over(now, rule, seq, ExportState::Done, String::new());
        self.reconsider(now.wall, seq);
    }

    fn export_failed(&mut self, now: Now, rule: RuleId, seq: Seq, why: String) {
        self.export_over(now, rule, seq, ExportState::Failed, why);
    }

    /// Nothing more is done by itself: its key goes.
    fn export_over(
        &mut self,
        now: Now,
        rule: RuleId,
        seq: Seq,
        state: ExportState,
        problem: String,
    ) {
        let batch = self.stage.number();
        let Some(active) = self.exports.active.get_mut(&(rule, seq)) else { return };
        active.phase = Phase::Over(batch);
        let row = &mut active.row;
        self.stage.batch.del(Table::Expiry, &due_key(row.next_attempt_after, rule, seq));
        (row.state, row.since, row.error) = (state, now.wall.0, short(problem));
        self.stage.batch.put(Table::Exports, &keys_upkeep::export(rule, seq), row);
        let given_up = state == ExportState::Failed;
        let (id, name, problem) = (active.segment.id, row.name.clone(), row.error.clone());
        self.stage.note(Note::Exported { id, name, problem, given_up });
        if given_up {
            self.exports.gave_up(rule, seq);
        }
    }

    /// It is tried again after a while.
    fn export_later(&mut self, now: Now, rule: RuleId, seq: Seq, why: String) {
        let backoff = self.backoff();
        let batch = self.stage.number();
        let Some(active) = self.exports.active.get_mut(&(rule, seq)) else { return };
        active.phase = Phase::Over(batch);
        let (row, id) = (&mut active.row, active.segment.id);
        self.stage.batch.del(Table::Expiry, &due_key(row.next_attempt_after, rule, seq));
        row.tries = row.tries.saturating_add(1);
        row.error = short(why);
        let key = jitter_key(&id, "inbox", row.tries.into()) ^ rule.0;
        row.next_attempt_after = now.wall.after(backoff.delay(row.tries.into(), key)).0;
        let row = row.clone();
        self.put_due(rule, seq, &row);
        // Once is enough to be told of it; `inbox ls` shows the rest.
        if row.tries == 1 {
            let (name, problem) = (row.name, row.error);
            self.stage.note(Note::Exported { id, name, problem, given_up: false });
        }
    }
}
