//! The node: one per process; it decides everything and touches nothing.
//!
//! Data flows one way: bytes → Session → **Node** → effects → driver. The node takes [`Input`]s one by
//! one, keeps what is decided in a staged batch (`stage`), and lets nothing leave that rests on a
//! batch before it is durable ([`crate::gate`]). Work that is best done in bulk waits for
//! [`Input::Turn`]: settling attempts, judging what came in, claiming, paging, dialling, reconciling.
//!
//! | file | holds |
//! |---|---|
//! | `conns` | who may connect, session epochs, dialling |
//! | `accept`, `admit`, `take`, `again`, `incoming` | lookups, admission, new rows, what is held already, reservations |
//! | `deliver`, `verdict`, `scanned`, `window`, `peer` | claims, outcomes, due windows |
//! | `acts` | what operators ask for |
//! | `route`, `receipt`, `handed` | sites behind others: where to, what becomes of it there, custody without an end |
//! | `pace` | who may claim now |
//! | `stage`, `book`, `promise` | staged rows and counters; the overlay over the store's answers |
//! | `remove`, `evict` | what leaves the ledger, and the record of it |
//! | `upkeep`, `bounds` | what becomes due by itself: expiry, retention, bounded tables |
//! | `full`, `room`, `width`, `intent` | a full disk: relief that is judged again, what is known of the room, how much a batch holds |
//! | `export`, `export_look`, `export_acts`, `export_stray` | inbox rules |
//! | `clock`, `note` | a clock that has stepped; the node's story, as it is logged and watched |
//! | `recover`, `reconcile`, `reconfigure` | start-up; another configuration while it runs |
//! | `pickup` | shards for nodes that are not there yet (DESIGN 4) |
//! | `scrub`, `want`, `repair`, `aside` | content compared with its digests; its repair; rows that cannot be read |
//! | `status`, `ping`, `stop`, `tally`, `log_level` | questions; the orderly end; what metrics count; how much is logged |

mod accept;
mod acts;
mod admit;
mod again;
mod aside;
mod book;
mod bounds;
mod clock;
mod conns;
mod deliver;
mod doom;
mod doubt;
mod evict;
mod export;
mod export_acts;
mod export_look;
mod export_stray;
mod full;
mod handed;
mod incoming;
mod intent;
mod log_level;
mod note;
mod pace;
mod passing;
mod peer;
mod pickup;
mod ping;
mod promise;
mod receipt;
mod reconcile;
mod reconfigure;
mod recover;
mod remove;
mod repair;
mod room;
mod route;
mod scanned;
mod scrub;
mod stage;
mod status;
mod stop;
mod take;
mod tally;
mod types;
mod upkeep;
mod verdict;
mod want;
mod width;
mod window;

#[cfg(test)]
mod tests;

pub(crate) use accept::inline_charge;
pub use log_level::{LogAsked, LogLevel, LogWanted};
pub use recover::RecoverError;
pub use status::Allowed;
pub use tally::{Ending, Operation, PeerTallied, Source, Tallied};
pub use types::{
    Action, Addressed, Answer, Input, Note, PathHash, PeerStatus, PickupStatus, Pinged, Question,
    Reading, ReconcileSummary, ScrubStatus, Shared, Status,
};

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use crate::code::Refusal;
use crate::config::Config;
use crate::gate::Gate;
use crate::id::{BatchNo, ConnId, Epoch, ReadNo, Seq, SiteNo, TransferNo};
use crate::ledger::read::{Answer as Rows, Bounded, Found, ReadRequest};
use crate::plant::Plant;
use crate::schedule::Backoff;
use crate::segment::Class;
use crate::session::SessionEvent;
use crate::store::{Batch, ReadResult, Space};
use crate::time::{Instant, Now, UnixMillis};
use crate::wire::Wanted;

use accept::{Pending, What};
use aside::{Aside, Place};
use book::Book;
use bounds::Bounds;
use clock::ClockHold;
use conns::Conn;
use deliver::Settlement;
use export::Exports;
use full::Mode;
use handed::Handed;
use incoming::Incoming;
use peer::Peer;
use pickup::Pickup;
use reconcile::Reconcile;
use scanned::Page;
use scrub::Scrub;
use stage::{Stage, Verdict};
use upkeep::Upkeep;
use want::Wants;

/// What a read was asked for.
#[derive(Clone, Debug)]
enum Asked {
    Lookup(Vec<Pending>),
    Due(SiteNo, Class),
    Pairs,
    Recovery,
    Segments,
    Missing,
    Act,
    Handed(SiteNo),
    Exports,
    ExportAct,
    Strays,
    PassBack(ConnId),
    Expiry,
    Oldest(Bounded),
    Scrub,
    Sharers,
    Doubted,
    Aside(Vec<Place>),
    Wants(Vec<Seq>),
    Wanted(ConnId, TransferNo, Wanted),
    Repair(Box<Pending>),
    Pickup(pickup::Reading),
}

/// The node. See the module's documentation. A copy goes its own way from then on: that is how every
/// continuation of one moment can be tried.
#[derive(Clone, Debug)]
pub struct Node {
    config: Config,
    stage: Stage,
    gate: Gate,
    book: Book,
    mode: Mode,
    space: Space,
    short: Option<room::Short>,
    seen: room::Seen,
    sites: BTreeMap<String, SiteNo>,
    peers: BTreeMap<SiteNo, Peer>,
    conns: BTreeMap<ConnId, Conn>,
    /// Sessions so far in this run.
    sessions: u64,
    /// Sessions that wait for start-up to come far enough.
    unstarted: Vec<(ConnId, Epoch)>,
    pending: VecDeque<Pending>,
    found: VecDeque<(Pending, Found, BatchNo, Option<ReadNo>)>,
    lookups_open: usize,
    settlements: VecDeque<Settlement>,
    /// Local clients that ask for room, in order.
    reservations: VecDeque<(ConnId, TransferNo, Option<u64>)>,
    incoming: Incoming,
    reads: BTreeMap<ReadNo, Asked>,
    last_read: ReadNo,
    acts: acts::Acts,
    /// Refusals since the start, by their number.
    refusals: [u64; Refusal::ALL.len()],
    exports: Exports,
    reconcile: Reconcile,
    reloads: reconfigure::Reloads,
    log_level: Option<log_level::Asked>,
    pings: ping::Pings,
    scrub: Scrub,
    pickup: Pickup,
    aside: Aside,
    handed: Handed,
    wants: Wants,
    summary: ReconcileSummary,
    upkeep: Upkeep,
    bounds: Bounds,
    clock: ClockHold,
    stopping: bool,
    drain_by: Instant,
    drained: bool,
    /// There is work left that needs no input.
    more: bool,
    now: Now,
}

impl Node {
    /// Takes one input; appends what may leave at once to `out`. Never blocks, never fails, does a
    /// bounded amount of work.
    pub fn step(&mut self, now: Now, input: Input, out: &mut Vec<Action>) {
        if matches!(self.mode, Mode::Halted) {
            return;
        }
        self.now = now;
        match input {
            Input::Connected { conn, identity, dialled } => {
                self.connected(now, conn, &identity, dialled, out);
            }
            Input::Opened { conn } => {
                let local = Conn { peer: None, allowance: 0, incoming: BTreeSet::new() };
                self.conns.insert(conn, local);
            }
            Input::DialFailed { site, why, reached } => {
                self.dial_failed(now, site, why, reached);
            }
            Input::Session(conn, event) => {
                // A dead generation is not in the table any more.
                if self.conns.contains_key(&conn) {
                    self.session_event(now, conn, event, out);
                }
            }
            Input::Closed { conn, why } => self.closed(now, conn, &why, out),
            Input::Committed { through, space } => self.committed(through, space, out),
            Input::CommitFailed { from, why, space } => {
                self.commit_failed(now, from, why, space, out);
            }
            Input::Read(read, result) => self.read(now, read, result, out),
            Input::Unlinked { blob, result } => self.unlinked(blob, result, out),
            Input::Checked { missing, .. } => self.checked(missing, out),
            Input::Swept { folder, quarantined } => self.swept(folder, quarantined),
            Input::Scrubbed { seen, bytes, bad, unread } => {
                self.scrubbed(now, seen, bytes, (bad, unread));
            }
            Input::Space(space) => self.space_is(space, out),
            Input::Export { job, step } => self.export_step(job, step),
            Input::Clock { ahead } => {
                self.clock_is_ahead(now, core::time::Duration::from_millis(ahead), out);
            }
            Input::Skew { ahead } => self.pickup.skew = ahead,
            Input::Reconfigure { reload, config, renew, reading } => {
                self.reconfigure(now, config, renew, out);
                self.reread(now, reload, reading, out);
            }
            Input::Timer => {}
            Input::Turn => self.turn(now, out),
            Input::Stop => self.stop(now, out),
        }
        self.release(out);
    }

    fn session_event(
        &mut self,
        now: Now,
        conn: ConnId,
        event: SessionEvent,
        out: &mut Vec<Action>,
    ) {
        let source =
            self.conns.get(&conn).and_then(|c| c.peer.as_ref()).map_or(SiteNo(0), |p| p.site);
        match event {
            SessionEvent::Ready(limits) => self.ready(conn, limits, out),
            SessionEvent::Offered { offer, body } => {
                let transfer = offer.transfer;
                self.pend(Pending::new(conn, transfer, source, What::Offer(offer, body)));
            }
            SessionEvent::Checkpoint { blob, offset, chain, .. } => {
                self.checkpoint(now, conn, blob, offset, chain);
            }
            SessionEvent::Arrived { transfer, blob } => self.arrived(now, conn, transfer, blob),
            SessionEvent::Received { transfer, blob } => self.received(conn, transfer, blob),
            SessionEvent::Broken { transfer, blob, why } => {
                self.broken(now, conn, transfer, blob, why, out);
            }
            SessionEvent::Outcome { transfer, outcome } => {
                self.outcome(now, conn, transfer, outcome)
            }
            SessionEvent::Progress { transfer, sent } => self.progress(conn, transfer, sent),
            SessionEvent::Wants => self.wants_allowance(conn, out),
            SessionEvent::Pong(micros) => self.pong(conn, micros, out),
            SessionEvent::Submit { ticket, submission } => {
                let what = What::Submit(submission);
                self.pend(Pending::new(conn, ticket, source, what));
            }
            SessionEvent::Reserve { ticket, size } => {
                self.reservations.push_back((conn, ticket, size));
            }
            SessionEvent::Extend { ticket, blob } => self.extend_local(conn, ticket, blob, out),
            SessionEvent::Act { ticket, act } => self.act_came(conn, ticket, *act, out),
            SessionEvent::Ask { ticket, question } => {
                self.question(now, conn, ticket, &question, out)
            }
            SessionEvent::Receipt(receipt) => {
                let what = What::Receipt(receipt);
                self.pend(Pending::new(conn, TransferNo(0), source, what));
            }
            SessionEvent::Corrupt(seq) => self.read_badly(seq),
            SessionEvent::ReceiptOk { id, site, later } => {
                self.receipt_answered(conn, id, &site, later);
            }
            SessionEvent::Want { transfer, what } => self.wanted(conn, transfer, what, out),
            SessionEvent::Fault(text) => self.faulted(conn, text, out),
            SessionEvent::Pickup(event) => self.pickup_event(now, conn, *event, out),
        }
    }

    fn committed(&mut self, through: BatchNo, space: Space, out: &mut Vec<Action>) {
        let (notes, tallies) = self.stage.committed(self.now, through);
        self.count(tallies);
        for note in notes {
            out.push(Action::Note(note));
        }
        for (conn, command) in self.gate.committed_through(through) {
            let (conn, command) = self.heir(conn, command);
            out.push(Action::Command(conn, command));
        }
        self.book.committed(through);
        self.wants.committed(through);
        self.act_committed(through);
        self.relieved();
        self.space_is(space, out);
    }

    fn read(&mut self, now: Now, read: ReadNo, result: ReadResult, out: &mut Vec<Action>) {
        let Some(asked) = self.reads.remove(&read) else { return };
        let answer = match result {
            Ok(answer) => answer,
            Err(fault) => {
                return self.halt(alloc::format!("reading the ledger: {fault}"), out);
            }
        };
        let as_of = answer.as_of;
        let mut open = false;
        match (asked, answer.body) {
            (Asked::Lookup(batch), Rows::Lookup(found)) => {
                open = true;
                self.found(read, as_of, batch, found);
            }
            (Asked::Due(site, class), Rows::Due { rows, bad, end }) => {
                let page = Page { as_of, rows, bad, end };
                self.scanned(read, site, class, page);
            }
            (Asked::Pairs, Rows::Pairs(rows)) => self.rejudge_pairs(now, rows, as_of),
            (Asked::Recovery, Rows::Recovery(recovery)) => self.rejudge_recovery(now, *recovery),
            (Asked::Segments, Rows::Segments { rows, end }) => {
                open = self.segments_read(now, read, (rows, end), out);
            }
            (Asked::Scrub, Rows::Scrub { items, doubted, through, end }) => {
                self.scrub_read(now, (items, doubted), (through, end), out);
            }
            (Asked::Sharers, Rows::Kept(kept)) => self.sharers_read(now, kept, as_of),
            (Asked::Doubted, Rows::Held(held)) => self.doubted_read(now, held, out),
            (Asked::Wants(_), Rows::Held(held)) => self.wants_read(held),
            (Asked::Wanted(conn, transfer, what), Rows::Held(held)) => {
                self.wanted_read((conn, transfer, what), held, as_of, out);
            }
            (Asked::Repair(pending), Rows::Repair(kept, found)) => {
                self.repair_read(now, *pending, (kept, *found), as_of, out);
            }
            (Asked::Aside(places), Rows::Raw(rows)) => self.aside_read(now, places, rows),
            (Asked::Missing, Rows::Held(held)) => self.missing_read(now, held, as_of),
            (Asked::Expiry, Rows::Expiry { rows, more, next }) => {
                open = true;
                self.expiry_read(read, as_of, rows, more, next);
            }
            (Asked::Oldest(table), Rows::Oldest(found)) => {
                open = self.oldest_read(read, as_of, table, found);
            }
            (Asked::Act, Rows::Picked(picked)) => open = self.act_read(now, read, picked),
            (Asked::Handed(site), Rows::Picked(picked)) => {
                self.handed_read(now, site, picked, as_of);
            }
            (asked @ (Asked::Exports | Asked::ExportAct | Asked::Strays), body) => {
                self.exports_read(now, asked, body, as_of, out);
            }
            (Asked::PassBack(conn), Rows::PassBack { rows, end }) => {
                self.pass_back_read(conn, rows, end);
            }
            (Asked::Pickup(reading), body) => {
                open = self.pickup_read(now, read, as_of, reading, body, out);
            }
            (asked, body) => unreachable!("{asked:?} was answered by {body:?}"),
        }
        if !open {
            self.book.closed(read);
        }
    }

    /// Everything that is best done in bulk, relief first.
    fn turn(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.drained {
            return self.turn_down(out);
        }
        self.more = false;
        self.tell_clock(out);
        self.log_turn(now, out);
        self.rejudge(now, out);
        self.inflight_to_failed(now);
        self.start_waiting();
        self.act(now, out);
        self.settle(now);
        self.unlink(out);
        self.expire_partials(now);
        self.pickup_turn(now, out);
        self.reserve_waiting(now, out);
        self.judge(now, out);
        self.claim(now);
        self.scan(out);
        self.upkeep(now, out);
        self.look_up(out);
        self.export(now, out);
        self.page_receipts(out);
        self.adopt_orphans(now);
        self.relay_met(now);
        self.close_slice();
        self.retire(now, out);
        self.dial(now, out);
        self.probe(now, out);
        self.reconcile_slice(out);
        self.scrub_slice(now, out);
        self.read_aside(out);
        self.look_at_handed(out);
        self.ask_wants(now, out);
        self.drain(now, out);
        self.pickup_forgets();
    }

    /// The staged batch, when none is under way and there is anything in it.
    pub fn take_batch(&mut self) -> Option<Batch> {
        if matches!(self.mode, Mode::Rejudge(_) | Mode::Halted) || self.drained {
            return None;
        }
        let mut batch = self.stage.take(self.now)?;
        batch.free_ballast = matches!(self.mode, Mode::Tight(_));
        Some(batch)
    }

    /// When to come again, if no input arrives before; [`Instant::ZERO`] is at once.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.drained || matches!(self.mode, Mode::Halted) {
            return None;
        }
        if self.more {
            return Some(Instant::ZERO);
        }
        let partials = self.partials_deadline().map(|at| self.now.instant_of(UnixMillis(at)));
        let stop = self.stopping.then_some(self.drain_by);
        let stuck = self.stuck_deadline();
        let due = [self.conns_deadline(), self.full_deadline(), self.due_deadline()];
        let due = due.into_iter().chain([self.upkeep_deadline(), self.exports_deadline()]);
        let due = due.chain([partials, stop, stuck, self.scrub_deadline(), self.wants_deadline()]);
        let due = due.chain([self.pickup_deadline(), self.log_deadline()]);
        due.flatten().min()
    }

    fn ask(&mut self, asked: Asked, request: ReadRequest, out: &mut Vec<Action>) -> ReadNo {
        self.last_read = ReadNo(self.last_read.0 + 1);
        // The log of changes begins with what is staged and not committed (W3).
        let late = matches!(asked, Asked::Due(..)) && self.config.planted(Plant::W3);
        let from = if late { Some(self.newest_staged()) } else { None };
        self.reads.insert(self.last_read, asked);
        self.book.opened(self.last_read, from);
        out.push(Action::Read(self.last_read, request));
        self.last_read
    }

    /// Something was refused with this code.
    fn count_refusal(&mut self, refusal: Refusal) {
        refusal.count_in(&mut self.refusals);
    }

    fn backoff(&self) -> Backoff {
        Backoff { initial: self.config.backoff_initial, max: self.config.backoff_max }
    }

    /// Whether sessions may start: nothing of the last run is in flight any more.
    fn may_start(&self) -> bool {
        !self.reconcile.is_settling() && !matches!(self.mode, Mode::Rejudge(_))
    }

    /// How much it holds in memory beyond fixed tables, for bounds in tests: overlay entries, window
    /// entries, promises.
    #[must_use]
    pub fn footprint(&self) -> (usize, usize, usize) {
        let windows = self.peers.values().flat_map(|p| &p.windows).map(|w| w.len()).sum();
        (self.book.len() + self.pickup_footprint(), windows, self.gate.len())
    }
}
