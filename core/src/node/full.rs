//! When a commit finds no space: growth is refused, relief is judged again on the freshly read ledger
//! and goes through alone on the freed ballast, and growth waits until the ballast is whole (G3-G6).
//!
//! ```text
//!            commit full                 rows read anew, relief staged
//!  Normal ────────────────► Rejudge ─────────────────────────────────► Tight
//!     ▲                        ▲                                         │ │
//!     │                        └──────────── commit full ────────────────┘ │
//!     └──────────────── ballast whole and storage.min_free free ───────────┘
//!
//!  any ── more than TRIES full commits, a commit or a read that failed otherwise ──► Halted
//! ```
//! Deletions need room too, so relief begins with batches of one thing, which grow while they get through
//! (`node/width.rs`). What does not fit waits for the next batch. More than [`TRIES`] full commits in a row stop the
//! process: it could only lose what it was told. A node that has halted does and says nothing any more, whatever comes
//! before its process is gone: what it knows rests on batches that never became durable.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::bounds::Bounds;
use super::stage::Intent;
use super::types::{Action, Note};
use super::{Asked, Node};
use crate::gate::Gate;
use crate::id::{BatchNo, Epoch, Seq, SiteNo};
use crate::ledger::read::{ReadRequest, Recovery};
use crate::ledger::rows::{DeliveryRow, SegmentRow, State};
use crate::plant::Plant;
use crate::schedule::Backoff;
use crate::session::Promise;
use crate::store::{CommitFault, Errand, Space};
use crate::time::{Instant, Now};

/// Rows that the end of an attempt changes at most, with those that it lets go.
const SETTLE_ROWS: usize = 10;
/// Ends of attempts that are read and staged at a time when a batch had no room for them.
const REST: usize = 16;
/// Full commits in a row before the process stops (exit 70).
const TRIES: u32 = 10;
/// Wait before relief is tried again, and between looks at the disk.
pub(super) const RETRY: Backoff =
    Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(5) };

/// Whether there is room for new content.
#[derive(Clone, Debug)]
pub(super) enum Mode {
    Normal,
    Rejudge(Box<Rejudge>),
    Tight(Tight),
    /// The process is to end.
    Halted,
}

/// Relief that is being judged again.
#[derive(Clone, Debug)]
pub(super) struct Rejudge {
    tries: u32,
    pub not_before: Instant,
    pub asked: bool,
    recovery: Option<Recovery>,
    pairs: Vec<(Seq, SiteNo)>,
    rows: Option<Vec<Option<(SegmentRow, DeliveryRow)>>>,
    intents: Vec<Intent>,
}

/// The attempt whose end this is.
fn attempt(intent: &Intent) -> Option<(Seq, SiteNo)> {
    if let Intent::Settle { peer, seq, .. } = intent { Some((*seq, *peer)) } else { None }
}

impl Rejudge {
    fn of(tries: u32, intents: Vec<Intent>) -> Rejudge {
        Rejudge {
            tries,
            not_before: Instant::ZERO,
            asked: false,
            recovery: None,
            pairs: Vec::new(),
            rows: None,
            intents,
        }
    }
}

/// Relief goes through, growth is refused.
#[derive(Clone, Debug)]
pub(super) struct Tight {
    pub tries: u32,
    pub probe_at: Instant,
    pub probes: u64,
    /// Nobody was told yet: it has been so since the start.
    pub untold: bool,
    /// Relief that did not fit into the first batch, and waits for a later one.
    pub rest: VecDeque<Intent>,
    /// What is being read for the next of it.
    pub reading: Vec<Intent>,
    /// Attempts that were in flight when the ledger was read.
    epochs: BTreeMap<(SiteNo, Seq), Epoch>,
}

impl Tight {
    pub fn new(tries: u32, probe_at: Instant) -> Tight {
        let (rest, reading) = (VecDeque::new(), Vec::new());
        Tight { tries, probe_at, probes: 0, untold: false, rest, reading, epochs: BTreeMap::new() }
    }
}

impl Node {
    pub(super) fn commit_failed(
        &mut self,
        now: Now,
        from: BatchNo,
        why: CommitFault,
        space: Space,
        out: &mut Vec<Action>,
    ) {
        self.saw(space, out);
        let why = match why {
            CommitFault::Full(why) => why,
            CommitFault::Broken(why) => return self.halt(why, out),
        };
        let tries = match &self.mode {
            Mode::Tight(_) | Mode::Rejudge(_) if self.config.planted(Plant::G6) => 0,
            Mode::Normal => {
                out.push(Action::Note(Note::Full { why: why.clone() }));
                0
            }
            Mode::Tight(tight) => tight.tries + 1,
            Mode::Rejudge(rejudge) => rejudge.tries + 1,
            Mode::Halted => return,
        };
        if tries >= TRIES {
            let text = format!("{tries} commits in a row found no space even for deletions: {why}");
            return self.halt(text, out);
        }
        self.stage.width.short();
        self.take_back(from, out);
        if self.config.planted(Plant::StagedReliefLost) {
            self.stage.forget_intents();
        }
        let wreck = self.stage.wreck();
        for handle in wreck.handles {
            out.push(Action::Errand(Errand::Unpark(handle)));
        }
        let not_before = match tries {
            0 => now.mono,
            n => now.mono.after(RETRY.delay(n.into(), 0)),
        };
        let mut intents = wreck.intents;
        if let Mode::Tight(tight) = &mut self.mode {
            intents.append(&mut tight.reading);
            intents.extend(tight.rest.drain(..));
        }
        self.mode = Mode::Rejudge(Box::new(Rejudge { not_before, ..Rejudge::of(tries, intents) }));
        self.rejudge(now, out);
    }

    /// The process is to end: from now on nothing is committed and nothing is said.
    pub(super) fn halt(&mut self, why: String, out: &mut Vec<Action>) {
        self.gate = Gate::new(self.gate.committed());
        self.mode = Mode::Halted;
        out.push(Action::Halt(why));
    }

    /// Takes back everything in memory that rests on batches from `from` on.
    fn take_back(&mut self, from: BatchNo, out: &mut Vec<Action>) {
        for waiting in self.gate.failed_from(from) {
            match waiting.promise {
                Promise::Start { epoch, .. } => self.unstarted.push((waiting.conn, epoch)),
                // It is judged again on what is durable.
                Promise::ReceiptOk { receipt, .. } => self.receipt_again(waiting.conn, receipt),
                Promise::Want { transfer, .. } => self.wants.unsaid(waiting.conn, transfer),
                Promise::Receipt(receipt) => self.receipt_unsaid(waiting.conn, &receipt),
                Promise::Pickup(answer) => self.pickup_taken_back(waiting.conn, *answer),
                Promise::Send(_)
                | Promise::Ack { .. }
                | Promise::Accept { .. }
                | Promise::Accepted { .. }
                | Promise::Done { .. } => {}
            }
            if let Some(refusal) = waiting.refusal {
                out.push(Action::Command(waiting.conn, refusal));
            }
        }
        // Open reads are void (W2); what they were asked for is asked again.
        let blind = self.config.planted(Plant::W2);
        for (read, asked) in core::mem::take(&mut self.reads) {
            match asked {
                Asked::Lookup(batch) => self.pending.extend(batch),
                Asked::Due(..) if blind => {
                    self.reads.insert(read, asked);
                }
                Asked::Due(..) | Asked::Pairs | Asked::Recovery | Asked::PassBack(_) => {}
                Asked::Segments | Asked::Missing => self.reconcile.again(),
                // What the act does about it is decided below.
                Asked::Act => {}
                // All of it begins anew, below.
                Asked::Expiry | Asked::Oldest(_) => {}
                Asked::Exports | Asked::ExportAct | Asked::Strays => {}
                Asked::Scrub | Asked::Sharers | Asked::Doubted | Asked::Handed(_) => {}
                Asked::Aside(places) => self.aside.again(places),
                Asked::Wants(seqs) => self.wants.again(seqs),
                Asked::Wanted(conn, transfer, what) => {
                    self.not_given(conn, transfer, what, crate::code::Refusal::Busy, out);
                }
                Asked::Repair(pending) => self.pending.push_back(*pending),
                Asked::Pickup(reading) => self.pickup_unread(reading),
            }
        }
        self.act_failed(out);
        self.upkeep.again();
        self.scrub.again();
        self.handed.start_over();
        self.wants.in_vain();
        self.bounds = Bounds::default();
        let found = core::mem::take(&mut self.found);
        self.pending.extend(found.into_iter().map(|(pending, ..)| pending));
        self.lookups_open = 0;
        self.take_back_exports(from);
        self.pickup_void();
        if !blind {
            self.book.clear();
        }
        for session in self.conns.values_mut().filter_map(|c| c.peer.as_mut()) {
            session.passing.start_over();
        }
        self.reconcile.adopted_in_vain();
        for peer in self.peers.values_mut() {
            for window in &mut peer.windows {
                if blind { window.forget_entries() } else { window.clear() }
            }
            // A claim that is not durable was never sent; its row is Scheduled or Failed again.
            let void: Vec<Seq> =
                peer.flights.iter().filter(|(_, f)| f.batch >= from).map(|(s, _)| *s).collect();
            for seq in void {
                let Some(flight) = peer.flights.remove(&seq) else { continue };
                if let Some(p) = self.conns.get_mut(&flight.conn).and_then(|c| c.peer.as_mut()) {
                    p.transfers.remove(&flight.transfer);
                }
            }
        }
    }

    /// Asks for fresh rows once it is time.
    pub(super) fn rejudge(&mut self, now: Now, out: &mut Vec<Action>) {
        if matches!(self.mode, Mode::Tight(_)) {
            return self.settle_rest(now, out);
        }
        let Mode::Rejudge(rejudge) = &mut self.mode else { return };
        if rejudge.asked || now.mono < rejudge.not_before {
            return;
        }
        rejudge.asked = true;
        let mut pairs: BTreeSet<(Seq, SiteNo)> = BTreeSet::new();
        for intent in &rejudge.intents {
            if let Intent::Settle { peer, seq, .. } = intent {
                pairs.insert((*seq, *peer));
            }
        }
        for peer in self.peers.values() {
            pairs.extend(peer.flights.keys().map(|seq| (*seq, peer.site)));
        }
        let pairs: Vec<(Seq, SiteNo)> = pairs.into_iter().collect();
        rejudge.pairs = pairs.clone();
        self.ask(Asked::Recovery, ReadRequest::Recovery, out);
        self.ask(Asked::Pairs, ReadRequest::Pairs(pairs), out);
    }

    pub(super) fn rejudge_recovery(&mut self, now: Now, recovery: Recovery) {
        if let Mode::Rejudge(rejudge) = &mut self.mode {
            rejudge.recovery = Some(recovery);
        }
        self.judge_again(now);
    }

    pub(super) fn rejudge_pairs(
        &mut self,
        now: Now,
        rows: Vec<Option<(SegmentRow, DeliveryRow)>>,
        as_of: BatchNo,
    ) {
        match &mut self.mode {
            Mode::Rejudge(rejudge) => {
                rejudge.rows = Some(rows);
                self.judge_again(now);
            }
            Mode::Tight(tight) => {
                let reading = core::mem::take(&mut tight.reading);
                for (intent, found) in reading.into_iter().zip(rows) {
                    let Intent::Settle { peer, seq, .. } = intent else { continue };
                    // What an operator has said of it meanwhile counts.
                    let newer = self.book.delivery(peer, seq, as_of).map(|row| row.cloned());
                    let found = found.and_then(|(segment, row)| {
                        newer.unwrap_or(Some(row)).map(|row| (segment, row))
                    });
                    self.relieve(now, intent, found);
                }
            }
            Mode::Normal | Mode::Halted => {}
        }
    }

    /// Once counters and rows are there: relief that still fits is staged alone.
    fn judge_again(&mut self, now: Now) {
        let Mode::Rejudge(rejudge) = &mut self.mode else { return };
        let (Some(recovery), Some(_)) = (&rejudge.recovery, &rejudge.rows) else { return };
        let recovery = recovery.clone();
        let (tries, pairs) = (rejudge.tries, core::mem::take(&mut rejudge.pairs));
        let rows = rejudge.rows.take().unwrap_or_default();
        let intents = core::mem::take(&mut rejudge.intents);
        // Relief has its turn first: a ballast that is whole because nothing was let through on it yet
        // does not mean that there is room.
        let probe_at = now.mono.after(RETRY.delay(1, 0));
        let mut tight = Tight::new(tries, probe_at);
        tight.epochs = recovery.inflight.iter().map(|f| ((f.peer, f.seq), f.epoch.epoch)).collect();
        self.mode = Mode::Tight(tight);
        // What came up while the rows were read was staged on void counters: it is judged again too.
        let wreck = self.stage.wreck();
        let intents = intents.into_iter().chain(wreck.intents);
        if self.config.planted(Plant::G3) {
            self.stage.load_numbers(&recovery);
        } else {
            self.stage.load(&recovery);
        }
        self.incoming.load(&recovery);
        self.know_peers_again(&recovery);
        self.pickup.know_clients(&recovery);
        self.stage_identity(&recovery);
        let mut rows: BTreeMap<(Seq, SiteNo), (SegmentRow, DeliveryRow)> =
            pairs.into_iter().zip(rows).filter_map(|(k, r)| Some((k, r?))).collect();
        self.hold_flights(&rows);
        let mut rest = VecDeque::new();
        for intent in intents {
            if !self.stage.room(SETTLE_ROWS) {
                rest.push_back(intent);
                continue;
            }
            let found = attempt(&intent).and_then(|pair| rows.remove(&pair));
            self.relieve(now, intent, found);
        }
        if let Mode::Tight(tight) = &mut self.mode {
            tight.rest = rest;
        }
        self.start_waiting();
    }

    /// Relief that a batch had no room for is read anew and staged, as soon as there is room in one.
    fn settle_rest(&mut self, now: Now, out: &mut Vec<Action>) {
        let Mode::Tight(tight) = &mut self.mode else { return };
        let idle = tight.reading.is_empty() && !tight.rest.is_empty();
        let most = self.stage.width.things(SETTLE_ROWS).min(REST);
        if !idle || !self.stage.room(most * SETTLE_ROWS) {
            return;
        }
        let most = tight.rest.len().min(most);
        let slice: Vec<Intent> = tight.rest.drain(..most).collect();
        let (reading, others): (Vec<Intent>, Vec<Intent>) =
            slice.into_iter().partition(|intent| attempt(intent).is_some());
        let pairs: Vec<(Seq, SiteNo)> = reading.iter().filter_map(attempt).collect();
        tight.reading = reading;
        for intent in others {
            self.relieve(now, intent, None);
        }
        if !pairs.is_empty() {
            self.ask(Asked::Pairs, ReadRequest::Pairs(pairs), out);
        }
    }

    /// Relief is staged, if it still stands: `found` is what the ledger has of an attempt that ended.
    fn relieve(&mut self, now: Now, intent: Intent, found: Option<(SegmentRow, DeliveryRow)>) {
        match intent {
            Intent::Settle { peer, seq, epoch, verdict } => {
                let Mode::Tight(tight) = &mut self.mode else { return };
                let in_flight = tight.epochs.get(&(peer, seq)) == Some(&epoch);
                let Some((segment, row)) = found.filter(|_| in_flight) else { return };
                // What ended after it in that session was claimed in a commit that failed.
                tight.epochs.remove(&(peer, seq));
                // Two peers may have answered for one segment: the second sees the first's count.
                let segment = self.book.segment(seq).cloned().unwrap_or(segment);
                if row.state == State::Inflight {
                    self.stage.intend(Intent::Settle { peer, seq, epoch, verdict });
                    self.apply_verdict(now, peer, seq, row, segment, verdict);
                }
            }
            Intent::Doom { blob } => self.doom_incoming(blob),
            Intent::Gone { blob } => {
                self.stage.intend(Intent::Gone { blob });
                self.drop_doomed(blob);
            }
            Intent::Pickup(job) => self.pickup_again(*job),
            Intent::Record(act) => self.record(now, *act),
            Intent::Mismatch { digest, source } => {
                self.stage.intend(Intent::Mismatch { digest, source });
                self.put_source(digest, source, 1);
            }
        }
    }

    /// Attempts that go on keep their segment in memory.
    fn hold_flights(&mut self, rows: &BTreeMap<(Seq, SiteNo), (SegmentRow, DeliveryRow)>) {
        for peer in self.peers.values_mut() {
            let site = peer.site;
            let mut lost = Vec::new();
            for (seq, flight) in &mut peer.flights {
                match rows.get(&(*seq, site)) {
                    Some((segment, row)) => {
                        flight.row = row.clone();
                        self.book.hold(*seq, || Arc::new(segment.clone()));
                    }
                    None => lost.push(*seq),
                }
            }
            for seq in lost {
                peer.flights.remove(&seq);
            }
        }
    }

    /// A batch is through: what it took the place of is room for others.
    pub(super) fn relieved(&mut self) {
        if let Mode::Tight(tight) = &mut self.mode {
            tight.tries = 0;
        }
    }
}
