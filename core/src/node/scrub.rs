//! The scrub: all content is read and compared with its digest, over and over, at a bounded rate behind
//! live traffic. What is wrong is marked alone: its neighbours are not touched, and nobody is promised or
//! sent anything on the strength of it any more. A pass goes through segments and then through shards
//! (`pickup/spoiled.rs`); what is doubted is looked at out of turn (`doubt.rs`).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::doubt::Doubts;
use super::pickup::ShardScrub;
use super::types::{Action, Note, ScrubStatus};
use super::{Asked, Mode, Node};
use crate::code::Cause;
use crate::id::{BatchNo, Seq};
use crate::ledger::Table;
use crate::ledger::read::{Kept, ReadRequest, Recovery};
use crate::ledger::read_scrub::{ScrubItem, ScrubPage};
use crate::ledger::rows::{Body, Loss, MetaName, MetaRow, State};
use crate::store::{Errand, ScrubFault};
use crate::time::{Instant, Now, UnixMillis};

/// From the end of one pass to the beginning of the next.
const EVERY: Duration = Duration::from_secs(24 * 3600);
/// Bytes after which the position is written down; each piece of content counts as so many more.
const KEEP_BYTES: u64 = 256 << 20;
const KEEP_EACH: u64 = 64 << 10;
/// What is handed to the store at a time.
const PAGE: ScrubPage = ScrubPage { segments: 256, bytes: 8 << 20 };
/// Rows that marking one segment may stage, deliveries apart.
const MARK_ROWS: usize = 8;
/// The position that is written down when the segments are done and the shards are not.
const SEGMENTS_DONE: u64 = u64::MAX;

/// What the store looks at, or is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// A page of segments.
    Segments,
    /// Segments that are doubted, out of turn.
    Doubted,
    /// A page of shards.
    Shards,
    /// Shards that are doubted, out of turn.
    Suspects,
}

/// What it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The next page is to be read, once it is time.
    Idle,
    /// A page is being read, or looked at by the store.
    Busy,
    /// What was found is to be read with its owners.
    Found,
    /// … is being read.
    Judging,
}

/// Damaged segments that are counted one by one.
const DAMAGED_MOST: usize = 65_536;

/// Where the scrub stands.
#[derive(Clone, Debug)]
pub(super) struct Scrub {
    phase: Phase,
    doing: Doing,
    /// Whether the pass has come to shards.
    in_shards: bool,
    pub(super) shards: ShardScrub,
    pub(super) doubts: Doubts,
    /// Errands that are not answered, and how many of them are void: the first ones.
    open: (u32, u32),
    /// The last segment that was looked at in this pass.
    after: Option<Seq>,
    /// The end of the page that is being looked at, and whether that is the end of the pass.
    page: (Option<Seq>, bool),
    /// When the next pass begins.
    due: UnixMillis,
    /// The position that was written down, and bytes since then.
    kept: Option<Seq>,
    unkept: u64,
    /// Content of segments that the store looks at: whose, and where it is.
    looked: BTreeMap<Seq, Body>,
    /// What it has found of that: the same, and what is wrong. Of content that is doubted also that nothing is.
    found: Vec<(Seq, Body, Option<ScrubFault>)>,
    /// Rows that marking them takes, once a batch had no room for that.
    needs: usize,
    /// Whether something was marked, or is doubted no more, since the position was written down.
    marked: bool,
    /// Segments whose content is known to be wrong or gone, up to [`DAMAGED_MOST`].
    damaged: BTreeSet<Seq>,
    status: ScrubStatus,
}

impl Scrub {
    pub fn new(recovery: &Recovery) -> Scrub {
        let done = recovery.meta_value(MetaName::ScrubDone);
        let at = recovery.meta_value(MetaName::ScrubNext);
        let due = if at > 0 || done == 0 { UnixMillis(0) } else { UnixMillis(done).after(EVERY) };
        let last = (done > 0).then_some(UnixMillis(done));
        let in_shards = at == SEGMENTS_DONE;
        Scrub {
            phase: Phase::Idle,
            doing: Doing::Segments,
            in_shards,
            shards: ShardScrub::from(recovery.scrub_shard.clone()),
            doubts: Doubts::default(),
            open: (0, 0),
            after: (at > 0 && !in_shards).then_some(Seq(at)),
            kept: (at > 0).then_some(Seq(at)),
            page: (None, false),
            due,
            unkept: 0,
            looked: BTreeMap::new(),
            found: Vec::new(),
            needs: 0,
            marked: false,
            damaged: BTreeSet::new(),
            status: ScrubStatus { last, ..ScrubStatus::default() },
        }
    }

    /// What was staged and what was asked is void: it goes on from the position that was written down.
    pub fn again(&mut self) {
        self.looked.clear();
        self.found.clear();
        self.doubts.again();
        self.phase = Phase::Idle;
        self.open.1 = self.open.0;
        self.shards.again(self.doing == Doing::Suspects);
        if core::mem::take(&mut self.marked) {
            // What was marked last may be lost with it: it is to be found again.
            self.due = UnixMillis(0);
        }
        self.in_shards = self.kept == Some(Seq(SEGMENTS_DONE));
        self.after = self.kept.filter(|_| !self.in_shards);
    }

    pub fn status(&self) -> ScrubStatus {
        let running = self.after.is_some() || self.in_shards;
        ScrubStatus { running, damaged: self.damaged.len() as u64, ..self.status }
    }

    /// The content of a segment is known to be wrong or gone.
    pub fn is_damaged(&mut self, seq: Seq) {
        if self.damaged.len() < DAMAGED_MOST {
            self.damaged.insert(seq);
        }
    }

    /// Something speaks against it, for the first time or once more: what is known of that content so far,
    /// or is just being found out, is from before.
    pub fn suspect(&mut self, seq: Seq, body: Body) {
        self.looked.retain(|_, looked| *looked != body);
        self.found.retain(|(_, found, _)| *found != body);
        self.doubts.add(seq);
    }

    /// It is there again, or nobody has it here any more.
    pub fn is_well(&mut self, seq: Seq) {
        self.damaged.remove(&seq);
    }
}

impl Node {
    fn may_scrub(&self) -> bool {
        let roomy = matches!(self.mode, Mode::Normal) && self.short.is_none();
        roomy && !self.stopping && self.reconcile.is_done()
    }

    /// The next step of the scrub, if none is under way.
    pub(super) fn scrub_slice(&mut self, now: Now, out: &mut Vec<Action>) {
        if !self.may_scrub() {
            return;
        }
        match self.scrub.phase {
            Phase::Idle if self.scrub.doubts.is_waiting() => {
                (self.scrub.phase, self.scrub.doing) = (Phase::Busy, Doing::Doubted);
                self.ask_doubted(out);
            }
            Phase::Idle if self.scrub.shards.is_suspicious() => {
                (self.scrub.phase, self.scrub.doing) = (Phase::Busy, Doing::Suspects);
                self.ask_suspects(out);
            }
            Phase::Idle if self.scrub.due > now.wall => {}
            Phase::Idle if self.scrub.in_shards => {
                (self.scrub.phase, self.scrub.doing) = (Phase::Busy, Doing::Shards);
                self.ask_shards(out);
            }
            Phase::Idle => {
                (self.scrub.phase, self.scrub.doing) = (Phase::Busy, Doing::Segments);
                let request = ReadRequest::Scrub { after: self.scrub.after, page: PAGE };
                self.ask(Asked::Scrub, request, out);
            }
            // A commit that makes room is an input: nobody has to look again until then.
            Phase::Found if !self.stage.room(self.scrub.needs) => {}
            Phase::Found => {
                self.scrub.phase = Phase::Judging;
                let seqs = self.scrub.found.iter().map(|(seq, ..)| *seq).collect();
                self.ask(Asked::Sharers, ReadRequest::Sharers(seqs), out);
            }
            Phase::Busy | Phase::Judging => {}
        }
    }

    pub(super) fn scrub_deadline(&self) -> Option<Instant> {
        let waits = self.may_scrub() && self.scrub.phase == Phase::Idle;
        let at = self.now.instant_of(self.scrub.due);
        (waits && self.scrub.due > self.now.wall).then_some(at)
    }

    pub(super) fn scrub_read(
        &mut self,
        now: Now,
        (items, doubted): (Vec<ScrubItem>, Vec<Seq>),
        (through, end): (Option<Seq>, bool),
        out: &mut Vec<Action>,
    ) {
        self.scrub.page = (through, end);
        for seq in doubted {
            self.scrub.doubts.add(seq);
        }
        self.segments_to_scrub(now, items, out);
    }

    pub(super) fn segments_to_scrub(
        &mut self,
        now: Now,
        items: Vec<ScrubItem>,
        out: &mut Vec<Action>,
    ) {
        self.scrub.looked = items.iter().map(|item| (item.seq, item.body)).collect();
        self.hand_to_scrub(now, items, out);
    }

    /// The store is to look at these.
    pub(super) fn hand_to_scrub(&mut self, now: Now, items: Vec<ScrubItem>, out: &mut Vec<Action>) {
        if items.is_empty() {
            return self.page_done(now);
        }
        self.scrub.open.0 += 1;
        let rate = self.config.scrub_rate;
        out.push(Action::Errand(Errand::Scrub { items, rate }));
    }

    /// The store has looked at a page.
    pub(super) fn scrubbed(
        &mut self,
        now: Now,
        seen: u64,
        bytes: u64,
        (bad, unread): (Vec<(Seq, ScrubFault)>, Vec<Seq>),
    ) {
        let scrub = &mut self.scrub;
        scrub.open.0 = scrub.open.0.saturating_sub(1);
        if scrub.open.1 > 0 {
            // Of before a commit that failed: what it looked at is looked at again.
            scrub.open.1 -= 1;
            return;
        }
        if scrub.phase != Phase::Busy {
            return;
        }
        scrub.status.items = scrub.status.items.saturating_add(seen);
        scrub.status.bytes = scrub.status.bytes.saturating_add(bytes);
        let pieces = seen.saturating_mul(KEEP_EACH);
        scrub.unkept = scrub.unkept.saturating_add(bytes).saturating_add(pieces);
        let doubted = scrub.doing == Doing::Doubted;
        if !doubted && scrub.doing != Doing::Segments {
            self.shards_scrubbed(bad);
            return self.page_done(now);
        }
        let looked = core::mem::take(&mut scrub.looked).into_iter();
        // What could not be read is judged by a later pass.
        let judged = looked.filter(|(seq, _)| !unread.contains(seq)).map(|(seq, body)| {
            let fault = bad.iter().find(|(wrong, _)| *wrong == seq).map(|(_, fault)| *fault);
            (seq, body, fault)
        });
        scrub.found = judged.filter(|(.., fault)| doubted || fault.is_some()).collect();
        if scrub.found.is_empty() {
            return self.page_done(now);
        }
        scrub.phase = Phase::Found;
        self.more = true;
    }

    /// What was found, with everybody who has that content.
    pub(super) fn sharers_read(&mut self, now: Now, kept: Vec<Option<Kept>>, as_of: BatchNo) {
        let kept = kept.into_iter().flatten().filter_map(|kept| self.corrected(kept, as_of));
        let kept: Vec<Kept> = kept.collect();
        let rows = kept.iter().map(|k| MARK_ROWS + 4 * k.held.deliveries.len());
        // One piece of content is marked in one commit; what does not fit waits for the next.
        self.scrub.needs = rows.sum::<usize>().min(MOST_ROWS);
        if !self.stage.room(self.scrub.needs) {
            self.scrub.phase = Phase::Found;
            return;
        }
        self.scrub.needs = 0;
        for (_, body, fault) in core::mem::take(&mut self.scrub.found) {
            // Whoever has other content by now is not meant.
            let same: Vec<&Kept> = kept.iter().filter(|k| k.held.row.body == body).collect();
            self.scrub.marked = true;
            match fault {
                Some(fault) => same.into_iter().for_each(|kept| self.mark_bad(now, kept, fault)),
                None => self.cleared(now, body, &same),
            }
        }
        self.page_done(now);
    }

    fn mark_bad(&mut self, now: Now, Kept { held, .. }: &Kept, fault: ScrubFault) {
        let segment = &held.row;
        if segment.loss == Some(Loss::Gone) {
            return;
        }
        let cause = match fault {
            ScrubFault::Corrupt => Cause::Corrupt,
            ScrubFault::Missing => Cause::Missing,
        };
        self.scrub.status.corrupt = self.scrub.status.corrupt.saturating_add(1);
        let what = alloc::format!("content of segment {}: {}", segment.id.short(), cause.word());
        self.stage.note(Note::Quarantined { what });
        self.lost(held.seq, segment);
        self.want(held.seq);
        for (site, row) in &held.deliveries {
            // One in flight waits for its outcome: the far side sees that it is wrong.
            if matches!(row.state, State::Scheduled | State::Failed) {
                self.prune(now, *site, held.seq, row.clone(), segment, cause);
            }
        }
    }

    /// A page is done: on to the next, or to the end of the pass.
    fn page_done(&mut self, now: Now) {
        self.scrub.phase = Phase::Idle;
        let end = match self.scrub.doing {
            // The pass is where it was.
            Doing::Suspects | Doing::Doubted => {
                self.scrub.doubts.page_done();
                self.more = true;
                return;
            }
            Doing::Shards => self.scrub.shards.advance(),
            Doing::Segments => {
                let (through, end) = self.scrub.page;
                self.scrub.after = if end { None } else { through };
                if end && self.has_shards() {
                    return self.on_to_shards();
                }
                end
            }
        };
        self.more |= !end;
        if end {
            self.scrub.in_shards = false;
            self.scrub.due = now.wall.after(EVERY);
            self.scrub.status.last = Some(now.wall);
            self.keep_position(MetaName::ScrubDone, now.wall.0);
        }
        if !end && self.scrub.unkept < KEEP_BYTES {
            return;
        }
        self.scrub.unkept = 0;
        self.keep_shard();
        if !self.scrub.in_shards {
            self.scrub.kept = self.scrub.after;
            self.keep_position(MetaName::ScrubNext, self.scrub.after.map_or(0, |seq| seq.0));
        }
    }

    fn keep_shard(&mut self) {
        if let Some(row) = self.scrub.shards.keep() {
            self.stage.batch.put(Table::Meta, MetaName::ScrubShard.key(), &row);
        }
    }

    /// Segments are done.
    fn on_to_shards(&mut self) {
        self.scrub.in_shards = true;
        self.scrub.shards.begin();
        self.keep_shard();
        self.scrub.unkept = 0;
        self.scrub.kept = Some(Seq(SEGMENTS_DONE));
        self.keep_position(MetaName::ScrubNext, SEGMENTS_DONE);
        self.more = true;
    }

    /// Written down at a coarse grain: a restart looks at a little of it again.
    fn keep_position(&mut self, name: MetaName, value: u64) {
        self.stage.batch.put(Table::Meta, name.key(), &MetaRow { value });
    }
}

/// What a batch always has room for when it is empty.
const MOST_ROWS: usize = 2048;
