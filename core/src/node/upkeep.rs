//! What becomes due by itself: segments that expire or may go, receipts, remembered ids, dead letters
//! and audit records that are kept long enough.
//!
//! All of it hangs on rows that are durable: on keys of `expiry`, or on the age of the rows themselves.
//! A slice that a failed commit takes back is read and judged again, so nothing is remembered in
//! memory but when to look next. It goes on while space is short: it is what makes room.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::evict::{Removal, removal_rows};
use super::remove::Act;
use super::types::Action;
use super::{Asked, Mode, Node};
use crate::code::Cause;
use crate::id::{BatchNo, ReadNo, SegmentId, Seq, SiteNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::keys_upkeep::{self, ExpiryKind, parse_expiry};
use crate::ledger::read::{Expiring, Kept, ReadRequest, Subject};
use crate::ledger::rows::{DeliveryRow, SegmentRow, State};
use crate::ledger::rows_upkeep::{ReceiptRow, RememberedRow};
use crate::retention::{Case, Fate, Policy, Why, fate, is_through, may_evict};
use crate::time::{Instant, Now, UnixMillis};

/// Rows of one slice.
pub(super) const SLICE: usize = 256;
/// Rows staged in one turn before live traffic has its turn again.
pub(super) const TURN_ROWS: usize = 1_024;
/// Pause before a segment is judged again that a promise rests on.
const PINNED: Duration = Duration::from_secs(1);
/// How much longer a receipt is kept that has still to be passed back.
const PENDING: Duration = Duration::from_secs(24 * 3600);
/// Batches whose first deadline is told apart; older ones are lumped together.
const BATCHES: usize = 16;
/// Most bytes that are let go beyond what was asked for.
const SPARE: u64 = 1 << 30;
/// Pause between looks for what may go ahead of its time, when the last one found too little.
const AHEAD_EVERY: Duration = Duration::from_secs(30);

/// What was read, as far as it has not been judged.
#[derive(Clone, Debug)]
struct Page {
    read: ReadNo,
    as_of: BatchNo,
    rows: VecDeque<Expiring>,
    /// Where the next page begins.
    more: Option<Vec<u8>>,
    next: Option<UnixMillis>,
}

/// One way through `expiry`, page by page.
#[derive(Clone, Debug)]
struct Pass {
    until: UnixMillis,
    /// What may go ahead of its time is looked at too, and nothing else.
    ahead: bool,
    /// What is staged after this batch is not in it; the reading of its first page.
    since: Option<BatchNo>,
    after: Option<Vec<u8>>,
    asked: bool,
    page: Option<Page>,
}

/// Room that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Want {
    /// Bytes.
    pub bytes: u64,
    /// Whether it brings a segment.
    pub segment: bool,
    /// The peer it comes from; 0 is a local client.
    pub source: SiteNo,
}

impl Want {
    /// Room for a new segment.
    pub fn segment(bytes: u64, source: SiteNo) -> Want {
        Want { bytes, segment: true, source }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Upkeep {
    pass: Option<Pass>,
    /// When the first row is due that the last pass saw behind its end.
    next: Option<UnixMillis>,
    /// The first deadline that was staged with each batch since.
    staged: BTreeMap<BatchNo, UnixMillis>,
    /// Segments to be judged, found by other scans; staged as soon as there is room.
    later: VecDeque<(UnixMillis, Seq)>,
    want: Option<Want>,
    /// No look ahead before this.
    ahead_at: Instant,
}

impl Upkeep {
    /// At the start everything is looked at once.
    pub fn new() -> Upkeep {
        Upkeep { next: Some(UnixMillis(0)), ..Upkeep::default() }
    }

    /// Open reads are void: everything is looked at again.
    pub fn again(&mut self) {
        self.pass = None;
        self.next = Some(UnixMillis(0));
    }

    /// Whether scans may hand over more segments.
    pub fn has_room(&self) -> bool {
        self.later.is_empty()
    }

    fn due(&self, now: UnixMillis, committed: BatchNo) -> bool {
        let staged = self.staged.iter().filter(|(batch, _)| **batch <= committed);
        self.next.into_iter().chain(staged.map(|(_, at)| *at)).any(|at| at <= now)
    }

    fn deadline(&self, now: UnixMillis) -> Option<UnixMillis> {
        // What is due already and not committed waits for its commit.
        let ahead = self.staged.values().copied().filter(|at| *at > now);
        ahead.chain(self.next).filter(|_| self.pass.is_none()).min()
    }

    /// The deadlines that a pass has seen, or will not need, are forgotten.
    fn passed(&mut self, since: BatchNo, next: Option<UnixMillis>) {
        self.staged.retain(|batch, _| *batch > since);
        self.next = next;
    }
}

impl Node {
    /// Writes a key of `expiry`, and sees to it that it is looked at in time.
    pub(super) fn expire_at(&mut self, at: UnixMillis, kind: ExpiryKind, key: &[u8]) {
        self.stage.batch.put_key(Table::Expiry, &keys_upkeep::expiry(at, kind, key));
        let staged = &mut self.upkeep.staged;
        let first = staged.entry(self.stage.number()).or_insert(at);
        *first = at.min(*first);
        if staged.len() > BATCHES
            && let Some((_, oldest)) = staged.pop_first()
            && let Some(mut next) = staged.first_entry()
        {
            // Too early costs a look, too late would cost a deadline.
            next.insert(oldest.min(*next.get()));
        }
    }

    /// Something happened to a delivery: its segment is judged when that can matter.
    pub(super) fn may_go(&mut self, now: Now, seq: Seq) {
        let Some(row) = self.book.segment(seq) else { return };
        if let Some(at) = goes_at(row, &Policy::of(&self.config), now.wall) {
            self.reconsider(at, seq);
        }
    }

    /// As [`Node::may_go`], for a segment that a scan came by: under a policy that is new, what was
    /// relayed long ago goes too.
    pub(super) fn came_by(&mut self, now: Now, seq: Seq, row: &SegmentRow) {
        let policy = Policy::of(&self.config);
        if row.relayed_at.is_some()
            && let Some(at) = goes_at(row, &policy, now.wall)
        {
            self.upkeep.later.push_back((at, seq));
        }
    }

    /// Somebody was refused for want of room: what may go ahead of its time goes.
    pub(super) fn wants_room(&mut self, want: Want) {
        self.upkeep.want = Some(want);
    }

    /// A slice of upkeep, behind live traffic.
    pub(super) fn upkeep(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.is_busy_otherwise() {
            return;
        }
        // Scans wait for this; it removes nothing yet.
        while self.stage.room(2) {
            let Some((at, seq)) = self.upkeep.later.pop_front() else { break };
            self.reconsider(at, seq);
        }
        if self.clock_held() {
            return self.leave_off();
        }
        self.begin_pass(now);
        self.ask_page(out);
        self.judge_page(now, out);
        self.bound_tables(now, out);
        self.judge_dead(now);
    }

    /// Whether upkeep waits while anything is judged anew, and for the end.
    fn is_busy_otherwise(&self) -> bool {
        matches!(self.mode, Mode::Rejudge(_)) || self.stopping || self.reconcile.is_settling()
    }

    /// Nothing that removes is done on a clock that nobody trusts: what was read is not kept for as long
    /// as that lasts.
    fn leave_off(&mut self) {
        let Some(pass) = self.upkeep.pass.take() else { return };
        if let Some(page) = pass.page {
            self.book.closed(page.read);
        }
        self.upkeep.next = Some(UnixMillis(0));
    }

    pub(super) fn upkeep_deadline(&self) -> Option<Instant> {
        if self.clock_held() {
            return self.clock_deadline();
        }
        if self.is_busy_otherwise() {
            return None;
        }
        let due = [self.upkeep.deadline(self.now.wall), self.bounds_deadline()];
        let due = due.into_iter().flatten().map(|at| self.now.instant_of(at));
        let ahead = self.upkeep.want.filter(|_| self.upkeep.pass.is_none());
        due.chain(ahead.map(|_| self.upkeep.ahead_at)).min()
    }

    fn begin_pass(&mut self, now: Now) {
        if self.upkeep.pass.is_some() {
            return;
        }
        let due = self.upkeep.due(now.wall, self.gate.committed());
        let ahead = self.upkeep.want.is_some() && now.mono >= self.upkeep.ahead_at;
        if !due && !ahead {
            return;
        }
        if !due {
            self.upkeep.ahead_at = now.mono.after(AHEAD_EVERY);
        }
        self.upkeep.pass = Some(Pass {
            until: if due { now.wall } else { UnixMillis(u64::MAX) },
            ahead: !due,
            since: None,
            after: None,
            asked: false,
            page: None,
        });
    }

    fn ask_page(&mut self, out: &mut Vec<Action>) {
        let Some(pass) = self.upkeep.pass.as_mut().filter(|p| !p.asked && p.page.is_none()) else {
            return;
        };
        pass.asked = true;
        let request = ReadRequest::Expiry {
            after: pass.after.take(),
            until: pass.until,
            only: pass.ahead.then_some(ExpiryKind::Keep),
            limit: SLICE,
        };
        self.ask(Asked::Expiry, request, out);
    }

    pub(super) fn expiry_read(
        &mut self,
        read: ReadNo,
        as_of: BatchNo,
        rows: Vec<Expiring>,
        more: Option<Vec<u8>>,
        next: Option<UnixMillis>,
    ) {
        let Some(pass) = &mut self.upkeep.pass else { return self.book.closed(read) };
        pass.asked = false;
        pass.since.get_or_insert(as_of);
        pass.page = Some(Page { read, as_of, rows: rows.into(), more, next });
    }

    /// Judges what was read, as far as the batch has room.
    fn judge_page(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(mut pass) = self.upkeep.pass.take() else { return };
        let Some(mut page) = pass.page.take() else {
            self.upkeep.pass = Some(pass);
            return;
        };
        let before = self.stage.batch.rows();
        while let Some(row) = page.rows.front() {
            if pass.ahead && self.has_room_again() {
                page.rows.clear();
                page.more = None;
                break;
            }
            let fits = self.stage.room(rows_of(row)) || self.stage.batch.is_empty();
            let fits = fits && self.pickup_has_room();
            let turn = self.stage.batch.rows() - before < TURN_ROWS;
            if !fits || !turn {
                self.more |= fits;
                pass.page = Some(page);
                self.upkeep.pass = Some(pass);
                return;
            }
            if let Some(row) = page.rows.pop_front() {
                self.judge_expiring(now, row, page.as_of, pass.ahead);
            }
        }
        self.book.closed(page.read);
        self.more = true;
        if page.more.is_some() {
            pass.after = page.more;
            self.upkeep.pass = Some(pass);
            self.ask_page(out);
        } else if pass.ahead {
            // Whoever is refused again asks again.
            self.upkeep.want = None;
        } else {
            self.upkeep.passed(pass.since.unwrap_or_default(), page.next);
        }
    }

    /// Whether what was refused for want of room would be taken now, or soon: files that are doomed
    /// are as good as gone.
    fn has_room_again(&mut self) -> bool {
        let Some(want) = self.upkeep.want else { return true };
        // A little more than was asked for, or the next one is refused again.
        let spare = (self.config.max_bytes / 16).min(SPARE);
        self.fits(Want { bytes: want.bytes.saturating_add(spare), ..want })
    }

    fn judge_expiring(&mut self, now: Now, row: Expiring, as_of: BatchNo, ahead: bool) {
        let Expiring { key, what } = row;
        let kind = parse_expiry(&key).map(|(_, kind, _)| kind);
        match what {
            Subject::Segment(seq, kept) => {
                let kept = kept.and_then(|kept| self.corrected(*kept, as_of));
                self.judge_kept(now, &key, kind, seq, kept, ahead);
            }
            Subject::Receipt(seq, site, row) => {
                // Somebody may have asked again since it was read.
                let row = self.book.receipt(seq, site).cloned().map(Box::new).or(row);
                self.judge_kept_receipt(now, &key, (seq, site), row)
            }
            Subject::Remembered(id, row) => {
                let row = self.book.removed(&id).unwrap_or(row);
                self.judge_remembered(now, &key, id, row);
            }
            // Those who wrote it look after it.
            Subject::Other => {
                self.pickup_expires(&key);
            }
        }
    }

    fn judge_kept(
        &mut self,
        now: Now,
        key: &[u8],
        kind: Option<ExpiryKind>,
        seq: Seq,
        kept: Option<Kept>,
        ahead: bool,
    ) {
        let Some(kept) = kept else { return self.stage.batch.del(Table::Expiry, key) };
        let (kept, fate) = self.fate_of(now, kept, ahead);
        let (how, reason) = match fate {
            Fate::Evict => (Removal::Evicted, "relayed"),
            Fate::Release => (Removal::Released, "delivered"),
            Fate::Expire => (Removal::Expired, "expired"),
            Fate::Keep(_) | Fate::NotBefore(_) | Fate::GiveUp if ahead => return,
            Fate::Keep(_) | Fate::NotBefore(_) | Fate::GiveUp => {
                self.stage.batch.del(Table::Expiry, key);
                let over = kept.held.row.meta.expires();
                if let Some(at) =
                    over.filter(|at| kind == Some(ExpiryKind::Segment) && *at > now.wall)
                {
                    self.expire_at(at, ExpiryKind::Segment, &keys::seq(seq));
                }
                if let Fate::NotBefore(at) = fate {
                    self.reconsider(at, seq);
                } else if fate == Fate::Keep(Why::Pinned) {
                    self.reconsider(now.wall.after(PINNED), seq);
                }
                return;
            }
        };
        self.stage.batch.del(Table::Expiry, key);
        let reason = if ahead { "space" } else { reason };
        self.remove_segment(now, &kept, how, Act { reason, ..Act::default() });
    }

    /// What becomes of a segment; what has expired and still waits is given up on the way.
    fn fate_of(&mut self, now: Now, mut kept: Kept, short: bool) -> (Kept, Fate) {
        let policy = Policy::of(&self.config);
        loop {
            let deliveries: Vec<DeliveryRow> =
                kept.held.deliveries.iter().map(|(_, row)| row.clone()).collect();
            let case = Case {
                row: &kept.held.row,
                deliveries: &deliveries,
                exports: self.exported(&kept),
                pinned: self.is_pinned(kept.held.seq),
                wanted: false,
                short,
                now: now.wall,
            };
            let fate = fate(&case, &policy);
            if fate != Fate::GiveUp {
                return (kept, fate);
            }
            self.give_up_waiting(now, &mut kept);
        }
    }

    fn give_up_waiting(&mut self, now: Now, kept: &mut Kept) {
        let (seq, segment) = (kept.held.seq, kept.held.row.clone());
        for (site, row) in &mut kept.held.deliveries {
            if matches!(row.state, State::Scheduled | State::Failed) {
                self.prune(now, *site, seq, row.clone(), &segment, Cause::Expired);
                row.state = State::Deadletter;
                row.since = now.wall.0;
            }
        }
    }

    fn judge_kept_receipt(
        &mut self,
        now: Now,
        key: &[u8],
        (seq, site): (Seq, SiteNo),
        row: Option<Box<ReceiptRow>>,
    ) {
        self.stage.batch.del(Table::Expiry, key);
        let Some(row) = row else { return };
        let receipt = keys::delivery(seq, site);
        let at = UnixMillis(row.expires_at);
        if at > now.wall {
            self.expire_at(at, ExpiryKind::Receipt, &receipt);
        } else if row.owed_to().next().is_some() {
            // It has still to be passed back.
            self.expire_at(now.wall.after(PENDING), ExpiryKind::Receipt, &receipt);
        } else {
            self.stage.batch.del(Table::Receipts, &receipt);
        }
    }

    fn judge_remembered(
        &mut self,
        now: Now,
        key: &[u8],
        id: SegmentId,
        row: Option<RememberedRow>,
    ) {
        self.stage.batch.del(Table::Expiry, key);
        let Some(row) = row else { return };
        let evicted_at = UnixMillis(row.evicted_at);
        let over = evicted_at.after(self.config.remember_for);
        if over > now.wall {
            self.expire_at(over, ExpiryKind::Remembered, &keys::id(&id));
        } else {
            self.forget_remembered(evicted_at, id);
        }
    }
}

/// When a segment is to be judged, if anything can come of it by itself.
fn goes_at(row: &SegmentRow, policy: &Policy, now: UnixMillis) -> Option<UnixMillis> {
    if row.meta.expires().is_some_and(|at| at <= now) {
        return Some(now);
    }
    if may_evict(row, policy) {
        let relayed = UnixMillis(row.relayed_at.unwrap_or(now.0));
        return Some(relayed.after(policy.keep_relayed).max(now));
    }
    is_through(row).then(|| UnixMillis(row.relayed_at.unwrap_or(now.0)).after(policy.keep))
}

/// Rows that judging it stages at most.
fn rows_of(row: &Expiring) -> usize {
    match &row.what {
        Subject::Segment(_, Some(kept)) => {
            removal_rows(kept.held.deliveries.len()) + 2 * kept.exports.len()
        }
        Subject::Segment(_, None)
        | Subject::Receipt(..)
        | Subject::Remembered(..)
        | Subject::Other => 6,
    }
}
