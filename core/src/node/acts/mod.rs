//! Acts of an operator: one at a time, each judged on committed plus staged rows, each audited.
//!
//! ```text
//!  queue ─► begin ─► read a page ─┐ until there is enough for a commit, or nothing is left
//!             ▲         ▲         │
//!             │         └─────────┤
//!             │                   ▼
//!             └── Done ◄── stage one commit ──► wait until it is durable ──► read on
//! ```
//!
//! What a commit changes is gathered first, so that up to [`ACT_ROWS`] deliveries are one commit. Reads
//! stay open in the overlay until their rows are staged, so the newest state of each row is known then.
//! The report of the last commit is a promise that hangs on it. When a commit fails, the act ends with a
//! refusal that tells how much earlier commits have done.

mod dead;
mod peers;
mod pick;
mod segments;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::types::{Action, Answer, Note};
use super::{Asked, Mode, Node};
use crate::act::{self, Act, Report};
use crate::code::Refusal;
use crate::id::{BatchNo, ConnId, ReadNo, SegmentId, TransferNo};
use crate::ledger::read::ReadRequest;
use crate::ledger::read_acts::{Dead, Picked};
use crate::limits::{ACT_BYTES, ACT_ROWS, ACTS_MAX};
use crate::session::{Promise, SessionCommand};
use crate::time::{Now, UnixMillis};

use pick::{Source, Unit};

/// Longest reason an operator may give.
const WHY_MAX: usize = 1_024;
/// Most ids in one selection.
const IDS_MAX: usize = 20_000;
/// Rows that an act on a peer stages at most.
const PEER_ROWS: usize = 8;

/// Acts that wait, and the one under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Acts {
    queue: VecDeque<(ConnId, TransferNo, Act)>,
    doing: Option<Box<Doing>>,
    /// Acts that came to their end since the start, by their number.
    pub counts: [u64; act::Action::ALL.len()],
}

impl Acts {
    /// Whether nothing waits and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.doing.is_none()
    }
}

/// The act under way.
#[derive(Clone, Debug)]
pub(super) struct Doing {
    conn: ConnId,
    ticket: TransferNo,
    act: Act,
    /// Which dead letters: those of the moment it began.
    only: Dead,
    report: Report,
    source: Source,
    /// The page that is asked for.
    reading: Option<ReadNo>,
    /// Reads whose rows are gathered: the overlay keeps what changed since.
    open: Vec<ReadNo>,
    units: VecDeque<Unit>,
    /// Bytes that the gathered units will write.
    weight: usize,
    /// The commit it waits for.
    staged: Option<BatchNo>,
}

/// Whether an act goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    On,
    Over,
}

impl Node {
    /// An operator's act has come.
    pub(super) fn act_came(
        &mut self,
        conn: ConnId,
        ticket: TransferNo,
        act: Act,
        out: &mut Vec<Action>,
    ) {
        let fault = fault(&act);
        let no = if self.stopping {
            Some((Refusal::Busy, "this site is stopping".to_string()))
        } else if self.acts.queue.len() >= ACTS_MAX {
            Some((Refusal::Busy, format!("{ACTS_MAX} acts wait already")))
        } else {
            fault.map(|text| (Refusal::Invalid, text))
        };
        match no {
            Some((refusal, text)) => self.refuse_act(conn, ticket, refusal, text, out),
            None => self.acts.queue.push_back((conn, ticket, act)),
        }
    }

    /// Goes on with the act under way, or begins the next.
    pub(super) fn act(&mut self, now: Now, out: &mut Vec<Action>) {
        if matches!(self.mode, Mode::Rejudge(_)) {
            return;
        }
        if self.acts.doing.is_none() {
            self.begin_act(now, out);
        }
        let Some(mut doing) = self.acts.doing.take() else { return };
        match self.go_on(now, &mut doing, out) {
            Goes::On => self.acts.doing = Some(doing),
            Goes::Over => self.more |= !self.acts.queue.is_empty(),
        }
    }

    fn begin_act(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some((conn, ticket, act)) = self.acts.queue.pop_front() else { return };
        let tight = !matches!(self.mode, Mode::Normal);
        if act.action.is_growth() && tight && !act.dry_run {
            let text = "the disk is full: nothing is queued again before there is room".to_string();
            return self.refuse_act(conn, ticket, Refusal::DiskFull, text, out);
        }
        let site = match &act.of.peer {
            None => None,
            Some(name) => match self.sites.get(name) {
                Some(site) => Some(*site),
                None => {
                    let text = format!("no peer is called {name:?}");
                    return self.refuse_act(conn, ticket, Refusal::Unknown, text, out);
                }
            },
        };
        if act.action.is_of_peer() {
            if !self.stage.has_room(PEER_ROWS) {
                // A commit that makes room is an input: nobody has to look again until then.
                self.acts.queue.push_front((conn, ticket, act));
                return;
            }
            let Some(site) = site else { return };
            if let Err((refusal, text)) = self.may_act_on(site, &act) {
                return self.refuse_act(conn, ticket, refusal, text, out);
            }
            if act.action != act::Action::Forget {
                return self.act_on_peer(now, conn, ticket, &act, site, out);
            }
        }
        let age = act.of.older.unwrap_or_default();
        let until = UnixMillis(
            now.wall.0.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        );
        self.acts.doing = Some(Box::new(Doing {
            conn,
            ticket,
            only: Dead { until, peer: site, cause: act.of.reason },
            report: Report::new(&act),
            source: Source::first(&act),
            act,
            reading: None,
            open: Vec::new(),
            units: VecDeque::new(),
            weight: 0,
            staged: None,
        }));
    }

    fn go_on(&mut self, now: Now, doing: &mut Doing, out: &mut Vec<Action>) -> Goes {
        if doing.reading.is_some() || doing.staged.is_some() {
            return Goes::On;
        }
        let enough = doing.units.len() >= ACT_ROWS || doing.weight >= ACT_BYTES;
        if let Some(pick) = doing.next_pick().filter(|_| !enough) {
            doing.reading = Some(self.ask(Asked::Act, ReadRequest::Picked(pick), out));
            return Goes::On;
        }
        let (units, weight) = doing.next_commit();
        if units == 0 {
            return self.end_act(now, doing, None, out);
        }
        if !self.stage.has_room_for_act(weight) {
            // It gets a batch to itself: the one that is staged goes first.
            self.stage.reserved = true;
            self.more = true;
            return Goes::On;
        }
        self.stage.reserved = false;
        let changed = self.stage_units(now, doing, units);
        if doing.units.is_empty() {
            self.close_reads(doing);
        }
        let last = doing.units.is_empty() && doing.next_pick().is_none();
        match (changed, last) {
            (0, true) => self.end_act(now, doing, None, out),
            (0, false) => {
                self.more = true;
                Goes::On
            }
            (_, true) => {
                doing.report.commits += 1;
                self.end_act(now, doing, Some(self.stage.number()), out)
            }
            (_, false) => {
                doing.report.commits += 1;
                doing.staged = Some(self.stage.number());
                Goes::On
            }
        }
    }

    /// Stages the first `units` of what is gathered; says how many of them changed anything.
    fn stage_units(&mut self, now: Now, doing: &mut Doing, units: usize) -> u64 {
        self.stage.batch.acts = true;
        let before = doing.report.total();
        let units: Vec<Unit> = doing.units.drain(..units).collect();
        doing.weight = doing.units.iter().map(Unit::weight).sum();
        match doing.act.action {
            act::Action::Retry => self.retry(now, doing, units),
            act::Action::Purge | act::Action::Forget => self.strike(now, doing, units),
            act::Action::Hold | act::Action::Unhold | act::Action::Release => {
                self.act_on_segments(now, doing, units);
            }
            act::Action::HoldPeer
            | act::Action::ReleasePeer
            | act::Action::Flush
            | act::Action::Rekey => {}
        }
        let after = doing.report.total();
        let (count, bytes) = (after.0 - before.0, after.1.saturating_sub(before.1));
        if count > 0 {
            self.audit_act(now, &doing.act, count, bytes);
        }
        count
    }

    /// Who did what to how much, and why.
    fn audit_act(&mut self, now: Now, act: &Act, count: u64, bytes: u64) {
        let record = super::remove::Act {
            who: act.who.clone(),
            action: act.action.word(),
            subject: act.of.words(),
            reason: "",
            text: act.why.clone(),
            count,
            bytes,
        };
        self.audit(now, record);
    }

    /// The report leaves: as a promise where it rests on a batch that is not durable.
    fn end_act(
        &mut self,
        now: Now,
        doing: &mut Doing,
        rests_on: Option<BatchNo>,
        out: &mut Vec<Action>,
    ) -> Goes {
        self.close_reads(doing);
        self.stage.reserved = false;
        let mut rests = rests_on.is_some();
        if matches!(doing.act.action, act::Action::Forget) && !doing.act.dry_run {
            rests |= self.forgotten(now, doing);
        }
        let report = Box::new(doing.report.clone());
        self.report(doing.conn, doing.ticket, report, rests, out);
        Goes::Over
    }

    fn report(
        &mut self,
        conn: ConnId,
        ticket: TransferNo,
        report: Box<Report>,
        rests: bool,
        out: &mut Vec<Action>,
    ) {
        self.count_act(report.action);
        if !rests {
            let answer = Arc::new(Answer::Acted(report));
            return out.push(Action::Command(conn, SessionCommand::Answer { ticket, answer }));
        }
        let text = undone(&report, report.commits.saturating_sub(1));
        let refusal = refusal(ticket, Refusal::DiskFull, text);
        self.promise(conn, Promise::Done { ticket, report }, Some(refusal), None);
    }

    fn count_act(&mut self, action: act::Action) {
        action.count_in(&mut self.acts.counts);
    }

    fn close_reads(&mut self, doing: &mut Doing) {
        for read in doing.open.drain(..) {
            self.book.closed(read);
        }
    }

    /// A page has come. Says whether the overlay is to be kept for it.
    pub(super) fn act_read(&mut self, now: Now, read: ReadNo, picked: Picked) -> bool {
        let Some(mut doing) = self.acts.doing.take_if(|d| d.reading == Some(read)) else {
            return false;
        };
        doing.reading = None;
        self.take_page(now, &mut doing, picked);
        let keep = !doing.act.dry_run;
        if keep {
            doing.open.push(read);
        }
        self.acts.doing = Some(doing);
        self.more = true;
        keep
    }

    /// Batches up to this one are durable.
    pub(super) fn act_committed(&mut self, through: BatchNo) {
        if let Some(doing) = self.acts.doing.as_mut()
            && doing.staged.take_if(|batch| *batch <= through).is_some()
        {
            self.more = true;
        }
    }

    /// A commit failed: open reads are void, and so is what the act has gathered from them. It begins
    /// again if nothing of it was staged; otherwise it ends.
    pub(super) fn act_failed(&mut self, out: &mut Vec<Action>) {
        self.stage.reserved = false;
        let Some(mut doing) = self.acts.doing.take() else { return };
        let lost = u64::from(doing.staged.is_some());
        if doing.report.commits == 0 {
            doing.report = Report::new(&doing.act);
            doing.source = Source::first(&doing.act);
            (doing.reading, doing.weight) = (None, 0);
            doing.open.clear();
            doing.units.clear();
            self.acts.doing = Some(doing);
            return;
        }
        let text = undone(&doing.report, doing.report.commits.saturating_sub(lost));
        self.refuse_act(doing.conn, doing.ticket, Refusal::DiskFull, text, out);
    }

    /// A local client has gone: what it asked for and is not begun will not be done.
    pub(super) fn forget_acts(&mut self, conn: ConnId) {
        self.acts.queue.retain(|(c, ..)| *c != conn);
        let begun = |d: &mut Box<Doing>| d.conn == conn && d.report.commits == 0;
        if let Some(mut doing) = self.acts.doing.take_if(begun) {
            self.close_reads(&mut doing);
            self.stage.reserved = false;
        }
    }

    /// This site is stopping: what has not begun is turned down.
    pub(super) fn turn_down_acts(&mut self, out: &mut Vec<Action>) {
        let waiting = core::mem::take(&mut self.acts.queue);
        for (conn, ticket, _) in waiting {
            let text = "this site is stopping".to_string();
            self.refuse_act(conn, ticket, Refusal::Busy, text, out);
        }
    }

    fn refuse_act(
        &mut self,
        conn: ConnId,
        ticket: TransferNo,
        why: Refusal,
        text: String,
        out: &mut Vec<Action>,
    ) {
        self.count_refusal(why);
        let (code, peer) = (why.word(), String::new());
        out.push(Action::Note(Note::Refused { code, peer, text: text.clone() }));
        out.push(Action::Command(conn, refusal(ticket, why, text)));
    }
}

fn refusal(ticket: TransferNo, refusal: Refusal, text: String) -> SessionCommand {
    let (transfer, id, retry_after) = (ticket, SegmentId([0; 32]), 0);
    SessionCommand::Refuse { transfer, id, refusal, retry_after, text: text.into() }
}

/// How much of an act is not done after its last commit failed.
fn undone(report: &Report, commits: u64) -> String {
    match commits {
        0 => format!("no space left on the disk: nothing is done of this {}", report.action),
        n => format!(
            "no space left on the disk: {n} earlier commits of this {} are done, the rest is not",
            report.action
        ),
    }
}

/// What is wrong with an act as it stands.
fn fault(act: &Act) -> Option<String> {
    let of_peer = act.action.is_of_peer();
    if of_peer && act.of.peer.is_none() {
        return Some(format!("{} needs the name of a peer", act.action));
    }
    if act.of.is_empty() {
        return Some(format!("{} needs ids, a filter, or all", act.action));
    }
    if act.of.ids.len() > IDS_MAX {
        return Some(format!("{} ids are more than {IDS_MAX}", act.of.ids.len()));
    }
    if act.why.len() > WHY_MAX {
        return Some(format!("a reason of {} bytes is longer than {WHY_MAX}", act.why.len()));
    }
    None
}
