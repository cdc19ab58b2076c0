//! What an operator asks of exports: to give out what is here already, to try again; and what a watched
//! directory needs forgotten. One act at a time, answered once what it did is durable.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::types::{Action, Answer, PathHash, Question};
use super::{Asked, Mode, Node};
use crate::id::{BatchNo, ConnId, Seq, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys_upkeep::{self, ExpiryKind, RuleId};
use crate::ledger::read::ReadRequest;
use crate::ledger::read_export::HereSegment;
use crate::ledger::rows_upkeep::{ExportRow, ExportState, WatchedRow};
use crate::session::{SessionCommand, Submission};
use crate::time::{Now, UnixMillis};

/// Segments looked at in one slice.
const SLICE: usize = 256;
/// Acts that may wait; more are answered as if nothing was found.
const ACTS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Run,
    Retry(Seq),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next slice is to be read, behind this one.
    Read(Option<Seq>),
    /// It is being read.
    Waits(Option<Seq>),
    /// Everything is staged, and durable with this batch.
    Rests(BatchNo),
}

#[derive(Clone, Debug)]
struct Act {
    conn: ConnId,
    ticket: TransferNo,
    what: What,
    phase: Phase,
    /// Exports begun so far.
    begun: u64,
}

/// Acts that wait, the present one first.
#[derive(Clone, Debug, Default)]
pub(super) struct Acts(VecDeque<Act>);

impl Node {
    /// A question about exports. Returns whether it is answered later.
    pub(super) fn export_question(
        &mut self,
        conn: ConnId,
        ticket: TransferNo,
        question: &Question,
    ) -> bool {
        let what = match question {
            Question::InboxRun => What::Run,
            Question::InboxRetry(seq) => What::Retry(*seq),
            Question::Status
            | Question::Progress(_)
            | Question::Stop
            | Question::Unwatch(..)
            | Question::ConfirmClock
            | Question::Ping(_)
            | Question::Reload(_)
            | Question::LogLevel(_) => return false,
        };
        if self.config.inbox.is_empty() || self.exports.acts.0.len() >= ACTS_MAX {
            return false;
        }
        let act = Act { conn, ticket, what, phase: Phase::Read(None), begun: 0 };
        self.exports.acts.0.push_back(act);
        true
    }

    /// What was staged or asked is void: the act begins anew.
    pub(super) fn take_back_acts(&mut self) {
        for act in &mut self.exports.acts.0 {
            act.phase = Phase::Read(None);
            act.begun = 0;
        }
    }

    pub(super) fn export_acts(&mut self, out: &mut Vec<Action>) {
        let rules = self.rules();
        let committed = self.gate.committed();
        // What another rule owed comes first: it is not begun twice.
        let ready = matches!(self.mode, Mode::Normal) && self.exports.strays.is_done();
        let Some(act) = self.exports.acts.0.front_mut() else { return };
        match (act.phase, act.what) {
            (Phase::Rests(batch), _) if batch <= committed => {
                let (conn, ticket, begun) = (act.conn, act.ticket, act.begun);
                let answer = Arc::new(Answer::Exports(begun));
                out.push(Action::Command(conn, SessionCommand::Answer { ticket, answer }));
                self.exports.acts.0.pop_front();
                self.more |= !self.exports.acts.0.is_empty();
            }
            (Phase::Read(after), what) if ready => {
                act.phase = Phase::Waits(after);
                let request = match what {
                    What::Run => ReadRequest::SegmentsHere { after, limit: SLICE, rules },
                    What::Retry(seq) => ReadRequest::Exports(seq, rules),
                };
                self.ask(Asked::ExportAct, request, out);
            }
            (Phase::Read(_) | Phase::Waits(_) | Phase::Rests(_), _) => {}
        }
    }

    /// A slice of what is here: rules that do not know a segment yet begin with it.
    pub(super) fn here_found(
        &mut self,
        now: Now,
        rows: Vec<HereSegment>,
        last: Option<Seq>,
        end: bool,
    ) {
        let mut begun = 0;
        let mut reached = None;
        let mut whole = matches!(self.mode, Mode::Normal);
        for here in rows {
            if !whole || !self.stage.growth_room(self.export_rows()) {
                whole = false;
                break;
            }
            for rule in self.rules_for(&here.segment) {
                if !here.known.contains(&rule) {
                    self.begin_export(now, rule, here.seq);
                    begun += 1;
                }
            }
            reached = Some(here.seq);
        }
        let batch = self.newest_staged();
        let Some(act) = self.exports.acts.0.front_mut() else { return };
        let Phase::Waits(after) = act.phase else { return };
        act.begun += begun;
        act.phase = match (whole, end) {
            (false, _) => Phase::Read(reached.or(after)),
            (true, false) => Phase::Read(last),
            (true, true) => Phase::Rests(batch),
        };
        self.more |= whole;
    }

    /// The exports of a segment that is to be tried again.
    pub(super) fn retry_found(&mut self, now: Now, rows: Vec<(RuleId, ExportRow)>, as_of: BatchNo) {
        let Some(act) = self.exports.acts.0.front() else { return };
        let (What::Retry(seq), Phase::Waits(_)) = (act.what, act.phase) else { return };
        let mut begun = 0;
        for (rule, mut row) in rows {
            let waits = row.state == ExportState::Failed || row.tries > 0;
            if !waits || self.exports.is_newer(rule, seq, as_of) || !self.stage.room(4) {
                continue;
            }
            if row.state != ExportState::Failed {
                let at = UnixMillis(row.next_attempt_after);
                let key = keys_upkeep::export(rule, seq);
                let key = keys_upkeep::expiry(at, ExpiryKind::Export, &key);
                self.stage.batch.del(Table::Expiry, &key);
            } else if row.runs > 0 {
                // Only a file that is in its place is given to a command.
                row.state = ExportState::Placed;
            } else {
                row.state = ExportState::Intent;
            }
            self.exports.failed.remove(&(rule, seq));
            (row.runs, row.tries, row.since) = (0, 0, now.wall.0);
            row.next_attempt_after = now.wall.0;
            self.put_due(rule, seq, &row);
            self.exports.tried_again(rule, seq, self.stage.number());
            begun += 1;
        }
        let batch = self.newest_staged();
        let Some(act) = self.exports.acts.0.front_mut() else { return };
        act.begun = begun;
        act.phase = Phase::Rests(batch);
        self.more = true;
    }

    /// The file of a watched directory that a submission is: remembered in the batch that accepts it,
    /// so that it is taken once. Returns whether it is one.
    pub(super) fn put_watched(&mut self, now: Now, submission: &Submission) -> bool {
        let Some(file) = &submission.watched else { return false };
        let hash = *blake3::hash(&file.path).as_bytes();
        let row = WatchedRow {
            path: file.path.clone(),
            inode: file.inode,
            size: file.size,
            modified: file.modified,
            seen_at: now.wall.0,
            accepted: Some(submission.id),
            error: alloc::string::String::new(),
        };
        self.stage.batch.put(Table::Watched, &keys_upkeep::watched(file.rule, &hash), &row);
        true
    }

    /// Files that are not there any more need not be remembered. Returns how many are forgotten; a row
    /// that a failed commit brings back is found and forgotten at the watcher's next start.
    pub(super) fn unwatch(&mut self, rule: RuleId, paths: &[PathHash]) -> u64 {
        if matches!(self.mode, Mode::Rejudge(_)) || !self.stage.room(paths.len()) {
            return 0;
        }
        for path in paths {
            self.stage.batch.del(Table::Watched, &keys_upkeep::watched(rule, &path.0));
        }
        paths.len() as u64
    }
}
