//! Start-up reconciliation (DESIGN 3.6): what was in flight is settled before anybody connects; the
//! rest runs in slices behind live traffic. Idempotent, and it converges when it is cut off itself.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::stage::{Intent, Verdict};
use super::types::{Action, Note};
use super::{Asked, Mode, Node};
use crate::code::Cause;
use crate::id::{BlobNo, ReadNo, Seq, SiteNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::read::{Held, InflightFound, ReadRequest};
use crate::ledger::rows::{Body, Loss, SegmentRow, State};
use crate::limits::SLICE_ROWS;
use crate::plant::Plant;
use crate::segment::Destinations;
use crate::store::Errand;
use crate::time::Now;

/// What start-up reconciliation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReconcileSummary {
    /// Inflight rows made Failed or Deadletter.
    pub inflight: u64,
    /// Doomed files removed.
    pub doomed: u64,
    /// Segments looked at.
    pub checked: u64,
    /// Segments whose content is missing.
    pub missing: u64,
    /// Files without a row that were set aside.
    pub orphans: u64,
}

/// Where start-up reconciliation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next slice of segments is to be read.
    Read,
    /// A slice is being read, looked for, or settled.
    Waiting,
    /// The next content folder is to be swept; 256 is past the last.
    Sweep(u16),
    /// A folder is being swept.
    Sweeping(u16),
    /// All done.
    Done,
}

#[derive(Clone, Debug)]
pub(super) struct Reconcile {
    /// Rows of the last run that are still Inflight.
    startup: VecDeque<Box<InflightFound>>,
    /// Blob counter at start-up: a file from there on is never an orphan.
    below: BlobNo,
    /// Segments held at start-up.
    total: u64,
    phase: Phase,
    after: Option<Seq>,
    slice_end: Option<Seq>,
    last_slice: bool,
    /// Where the content of the slice's segments was when that was read, in their order.
    looked: Vec<(Seq, Body)>,
    /// The read that the rows below are of: it stays open, so that what is staged since counts.
    read: Option<ReadNo>,
    /// Segments for every peer that were accepted when none was known.
    orphans: VecDeque<(Seq, SegmentRow)>,
    /// Segments that count as relayed by the condition that holds now, and did not by the one before.
    met: VecDeque<(Seq, SegmentRow)>,
    /// Whether any of those of either kind was dealt with in this run.
    adopted: bool,
    /// Whether everything is looked through once more behind the pass under way.
    once_more: bool,
    /// Whether it was said that start-up is over.
    told: bool,
}

impl Reconcile {
    pub fn new(inflight: Vec<InflightFound>, below: BlobNo, total: u64) -> Reconcile {
        Reconcile {
            startup: inflight.into_iter().map(Box::new).collect(),
            below,
            total,
            phase: Phase::Read,
            after: None,
            slice_end: None,
            last_slice: false,
            looked: Vec::new(),
            read: None,
            orphans: VecDeque::new(),
            met: VecDeque::new(),
            adopted: false,
            once_more: false,
            told: false,
        }
    }

    /// A batch failed that may have had deliveries of orphans in it, or relayed markers, and open reads are
    /// void: all are looked for again.
    pub fn adopted_in_vain(&mut self) {
        if core::mem::take(&mut self.adopted) || self.read.is_some() {
            self.leave_waiting();
        }
    }

    /// Rows that wait are let go, and looked for again behind the pass under way.
    fn leave_waiting(&mut self) {
        self.orphans.clear();
        self.met.clear();
        self.read = None;
        self.once_more = true;
    }

    /// Whether rows of a slice wait for room in a batch.
    fn waits(&self) -> bool {
        !self.orphans.is_empty() || !self.met.is_empty()
    }

    /// The first peers are known, and segments that were accepted for every peer wait for them; or another
    /// condition or policy holds, by which some are relayed or may go.
    pub fn look_again(&mut self) {
        self.once_more = true;
    }

    /// The slice under way is void: it is read again.
    pub fn again(&mut self) {
        self.phase = Phase::Read;
    }

    /// Whether it was there that the store looked for the content of this segment.
    fn was_looked_for(&self, seq: Seq, body: Body) -> bool {
        let at = self.looked.binary_search_by_key(&seq, |(of, _)| *of);
        at.ok().and_then(|at| self.looked.get(at)).is_some_and(|(_, at)| *at == body)
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Whether nothing of the last run is in flight any more.
    pub fn is_settled(&self) -> bool {
        !self.is_settling()
    }

    /// Whether rows of the last run are still Inflight.
    pub fn is_settling(&self) -> bool {
        !self.startup.is_empty()
    }
}

impl Node {
    /// `InflightToFailed`: nobody knows what became of these attempts, so they are tried again;
    /// attempts are kept and nothing is spent.
    pub(super) fn inflight_to_failed(&mut self, now: Now) {
        if matches!(self.mode, Mode::Rejudge(_)) {
            return;
        }
        while self.stage.room(10) {
            let Some(found) = self.reconcile.startup.pop_front() else { return };
            let InflightFound { peer, seq, epoch, rows } = *found;
            let unreadable = rows.is_none();
            let Some((segment, mut row)) = rows.filter(|(_, row)| row.state == State::Inflight)
            else {
                self.stage.batch.del(Table::Inflight, &keys::peer_seq(peer, seq));
                if unreadable {
                    self.delivery_unreadable(peer, seq);
                }
                continue;
            };
            let verdict = Verdict::Failed {
                cause: Cause::Restart,
                spends: false,
                retry_at: now.wall,
                refused: false,
            };
            if self.config.planted(Plant::AttemptsReset) {
                (row.attempts, row.spent) = (0, 0);
            }
            self.summary.inflight += 1;
            self.stage.intend(Intent::Settle { peer, seq, epoch: epoch.epoch, verdict });
            // Two peers may have had the same segment in flight: the newest row counts.
            let segment = self.book.segment(seq).cloned().unwrap_or(segment);
            self.apply_verdict(now, peer, seq, row, segment, verdict);
        }
    }

    /// One slice of the work behind live traffic, if none is under way.
    pub(super) fn reconcile_slice(&mut self, out: &mut Vec<Action>) {
        let idle = self.reconcile.startup.is_empty()
            && !self.reconcile.waits()
            && matches!(self.mode, Mode::Normal)
            && self.upkeep.has_room();
        if !idle || self.stopping {
            return;
        }
        if self.reconcile.is_done() && core::mem::take(&mut self.reconcile.once_more) {
            self.summary = ReconcileSummary::default();
            (self.reconcile.after, self.reconcile.phase) = (None, Phase::Read);
        }
        match self.reconcile.phase {
            Phase::Read => {
                self.reconcile.phase = Phase::Waiting;
                let after = self.reconcile.after;
                let request = ReadRequest::Segments { after, limit: SLICE_ROWS };
                self.ask(Asked::Segments, request, out);
            }
            Phase::Sweep(folder) => match u8::try_from(folder) {
                Ok(number) => {
                    self.reconcile.phase = Phase::Sweeping(folder);
                    let below = self.reconcile.below;
                    out.push(Action::Errand(Errand::Sweep { folder: number, below }));
                }
                Err(_) => {
                    self.reconcile.phase = Phase::Done;
                    // Start-up ends once; who looks again later has nothing to tell.
                    if !core::mem::replace(&mut self.reconcile.told, true) {
                        out.push(Action::Note(Note::Reconciled(self.summary)));
                    }
                }
            },
            Phase::Waiting | Phase::Sweeping(_) | Phase::Done => {}
        }
    }

    /// Returns whether the read is still needed.
    pub(super) fn segments_read(
        &mut self,
        now: Now,
        read: ReadNo,
        (rows, end): (Vec<(Seq, Option<SegmentRow>)>, bool),
        out: &mut Vec<Action>,
    ) -> bool {
        self.reconcile.slice_end = rows.last().map(|(seq, _)| *seq).or(self.reconcile.after);
        self.reconcile.last_slice = end;
        self.summary.checked += rows.len() as u64;
        let mut wanted = Vec::with_capacity(rows.len());
        for (seq, row) in rows {
            if let Some(row) = row.as_ref().filter(|row| is_orphan(row)) {
                self.reconcile.orphans.push_back((seq, row.clone()));
            }
            if let Some(row) = row.as_ref().filter(|row| self.counts_by_now(row)) {
                self.reconcile.met.push_back((seq, row.clone()));
            }
            match row {
                // Found missing before, and dealt with; somebody may have it by now.
                Some(row) if row.loss == Some(Loss::Gone) => {
                    self.scrub.is_damaged(seq);
                    self.want(seq);
                }
                Some(row) => {
                    if row.loss.is_some() {
                        self.scrub.is_damaged(seq);
                        self.scrub.suspect(seq, row.body);
                        self.want(seq);
                    }
                    self.came_by(now, seq, &row);
                    wanted.push((seq, row.body, row.size));
                }
                None => {
                    let what = alloc::format!("segment number {seq}");
                    out.push(Action::Note(Note::Quarantined { what }));
                    self.puts_aside([(Table::Segments, keys::seq(seq).to_vec())]);
                }
            }
        }
        self.reconcile.read = self.reconcile.waits().then_some(read);
        if wanted.is_empty() {
            self.slice_done();
        } else {
            self.reconcile.looked = wanted.iter().map(|(seq, body, _)| (*seq, *body)).collect();
            out.push(Action::Errand(Errand::Check(wanted)));
        }
        self.reconcile.read.is_some()
    }

    pub(super) fn checked(&mut self, missing: Vec<Seq>, out: &mut Vec<Action>) {
        if self.reconcile.phase != Phase::Waiting {
            return;
        }
        if missing.is_empty() {
            return self.slice_done();
        }
        self.ask(Asked::Missing, ReadRequest::Held(missing), out);
    }

    /// `PruneMissing`: content is gone, so what is still owed of it goes to the dead letters.
    pub(super) fn missing_read(
        &mut self,
        now: Now,
        held: Vec<Option<Held>>,
        as_of: crate::id::BatchNo,
    ) {
        for held in held.into_iter().flatten() {
            // What went its way since it was looked at is not missing.
            if self.book.is_gone(held.seq) {
                continue;
            }
            let segment = self.book.segment(held.seq).cloned().unwrap_or(held.row);
            // What was mended since is somewhere else, and the old content is gone for that reason.
            if !self.reconcile.was_looked_for(held.seq, segment.body) {
                continue;
            }
            self.summary.missing += 1;
            self.lost(held.seq, &segment);
            self.want(held.seq);
            for (site, row) in held.deliveries {
                let row = match self.book.delivery(site, held.seq, as_of) {
                    Some(newer) => newer.cloned(),
                    None => Some(row),
                };
                let Some(row) = row else { continue };
                match row.state {
                    State::Scheduled | State::Failed => {
                        self.prune(now, site, held.seq, row, &segment, Cause::Missing);
                    }
                    // Its receipt could not be told from one of whoever hands it in again.
                    State::Inflight if row.custody.is_some() => {
                        self.stage.batch.del(Table::Handed, &keys::peer_seq(site, held.seq));
                        self.give_up(now, site, held.seq, row, &segment, Cause::Missing);
                    }
                    State::Inflight | State::Acked | State::Deadletter => {}
                }
            }
        }
        self.slice_done();
    }

    /// A delivery that waits is given up.
    pub(super) fn prune(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        row: crate::ledger::rows::DeliveryRow,
        segment: &SegmentRow,
        cause: Cause,
    ) {
        let key = super::deliver::due_key(site, seq, &row, segment);
        self.stage.batch.del(Table::Due, &key.key());
        self.give_up(now, site, seq, row, segment, cause);
        let window = self.peers.get_mut(&site).and_then(|p| p.window(key.class).remove(&key));
        if window.is_some() {
            self.book.release(seq);
        }
    }

    fn slice_done(&mut self) {
        self.reconcile.after = self.reconcile.slice_end;
        let last = self.reconcile.last_slice;
        self.reconcile.phase = if last { Phase::Sweep(0) } else { Phase::Read };
    }

    /// Segments for every peer that were accepted when none was known go to those that are known by
    /// now, as far as the batch has room.
    pub(super) fn adopt_orphans(&mut self, now: Now) {
        let sites: Vec<SiteNo> = self.peers.values().filter(|p| p.known).map(|p| p.site).collect();
        if sites.is_empty() {
            return self.reconcile.orphans.clear();
        }
        while matches!(self.mode, Mode::Normal) && self.stage.growth_room(8 + 3 * sites.len()) {
            let Some((seq, row)) = self.reconcile.orphans.pop_front() else { return };
            let mut row = self.book.segment(seq).cloned().unwrap_or(row);
            if is_orphan(&row) && !self.book.is_gone(seq) {
                self.extend_destinations(now, seq, &mut row, &sites, &Destinations::All);
                self.put_segment(seq, row);
                self.reconcile.adopted = true;
            }
        }
    }

    /// Whether it has met the success condition without having been told: the ACKs came while another held.
    fn counts_by_now(&self, row: &SegmentRow) -> bool {
        row.relayed_at.is_none() && self.condition_met(row).is_some()
    }

    /// Segments that have met the condition that holds now are relayed, and may go where that was all they
    /// waited for.
    pub(super) fn relay_met(&mut self, now: Now) {
        while matches!(self.mode, Mode::Normal) && self.stage.room(4) {
            let Some((seq, row)) = self.reconcile.met.pop_front() else { break };
            let mut row = self.book.segment(seq).cloned().unwrap_or(row);
            if self.counts_by_now(&row) && !self.book.is_gone(seq) {
                self.judge_success(now, seq, &mut row);
                self.put_segment(seq, row);
                self.may_go(now, seq);
                self.reconcile.adopted = true;
            }
        }
    }

    /// The rows of a slice are done with, or are looked for again once there is room: as long as they wait,
    /// everything that is staged is kept for them.
    pub(super) fn close_slice(&mut self) {
        let waits = self.reconcile.waits();
        if waits && matches!(self.mode, Mode::Normal) {
            return;
        }
        let Some(read) = self.reconcile.read.take() else { return };
        self.book.closed(read);
        if waits {
            self.reconcile.leave_waiting();
        }
    }

    pub(super) fn swept(&mut self, folder: u8, quarantined: u64) {
        self.summary.orphans += quarantined;
        if self.reconcile.phase == Phase::Sweeping(folder.into()) {
            self.reconcile.phase = Phase::Sweep(u16::from(folder) + 1);
        }
    }
}

/// Whether it was accepted for every peer when none was known.
fn is_orphan(row: &SegmentRow) -> bool {
    let nobodys = row.required == 0 && row.relayed_at.is_none() && row.unplaced.is_none();
    nobodys && row.from == 0 && row.to == Destinations::All && row.loss.is_none()
}
