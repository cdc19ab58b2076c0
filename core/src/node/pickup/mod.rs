//! Pickup in the node: what is decided about shards, tokens, nonces, nodes and clients (DESIGN 4).
//!
//! Whatever is asked becomes a job. A job names the rows it rests on, waits until they are read, and is
//! judged on them with everything staged on top; if they lead to a row that was not named, it is read
//! again with that one. Jobs are judged in the order in which they came, except those that read twice.
//!
//! ```text
//!  event, deadline, pager ──▶ waiting ──▶ one read ──▶ found ──▶ judged ──▶ rows, promise | refusal
//!                                ▲                                 │ another row, or a full commit
//!                                └─────────────────────────────────┘
//! ```
//! Growth (uploads, slots, enrolment) that fails for want of space is refused. Relief is kept as its job and
//! judged again on what is durable (G3, G4).
//!
//! | file | holds |
//! |---|---|
//! | `task`, `jobs`, `overlay` | what there is to judge; the way of a job; rows read, with what is staged on top |
//! | `shard` | the one place where a shard's row, its indexes and counters are written |
//! | `upload`, `resume`, `writing` | uploads: begun, gone on with, ended; slots and HEAD |
//! | `signed`, `fetch`, `ack` | nonces; tokens redeemed and fetches; what nodes say of them |
//! | `session`, `pager` | nodes that are there, and what they are notified of |
//! | `sweep`, `expire` | what becomes due by itself |
//! | `spoiled` | content compared with its digests: the scrub's part here |
//! | `operator` | enrolment, revocation, retry, abandon |

mod ack;
mod expire;
mod fetch;
mod jobs;
mod operator;
mod overlay;
mod pager;
mod resume;
mod session;
mod shard;
mod signed;
mod spoiled;
mod sweep;
mod task;
mod upload;
mod writing;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::Node;
use super::types::{Action, PickupStatus};
use crate::id::{BlobNo, ConnId, ReadNo, Sha256Digest};
use crate::ledger::keys_pickup::ShardKey;
use crate::ledger::read::Recovery;
use crate::ledger::rows::CounterRow;
use crate::ledger::rows_pickup::{ClientRow, ShardState};
use crate::pickup::{self, Answer, Command, PickupRefusal};
use crate::session::{Promise, SessionCommand};
use crate::time::{Instant, Now, UnixMillis};

pub(super) use jobs::{Job, Reading};
pub(super) use spoiled::ShardScrub;

use fetch::Fetch;
use overlay::{Overlay, View};
use session::{NodeSession, Subscriber};
use signed::Nonces;
use sweep::Sweep;
use task::Task;
use writing::Upload;

/// Progress that feeds the graces is written at most so often.
const PERSIST: Duration = Duration::from_secs(300);
/// Seconds that a client is asked to wait when something stands in its way that passes.
const SOON: u64 = 1;
/// … when space has to be made.
const LATER: u64 = 30;

/// Everything of pickup that is in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Pickup {
    overlay: Overlay,
    waiting: VecDeque<Job>,
    /// Relief of a failed commit, to be judged again before everything else.
    again: VecDeque<Job>,
    reading: bool,
    found: VecDeque<(Job, View, Option<ReadNo>)>,
    clients: BTreeMap<String, ClientRow>,
    by_token: BTreeMap<Sha256Digest, String>,
    uploads: BTreeMap<BlobNo, Upload>,
    /// The one live writer of a shard.
    writers: BTreeMap<ShardKey, BlobNo>,
    fetches: BTreeMap<u64, Fetch>,
    /// The one fetch of a shard.
    fetched: BTreeMap<ShardKey, u64>,
    /// Fetches that are not over on the wire, by their connection.
    serving: BTreeSet<(ConnId, u64)>,
    /// Connections that are upgraded, or will be.
    subscribers: BTreeMap<ConnId, Subscriber>,
    /// Nodes that are registered, by id.
    nodes: BTreeMap<String, NodeSession>,
    sessions: u64,
    /// Nodes whose pager has something to do.
    busy: BTreeSet<String>,
    /// When sessions are to be looked at; each stands there once at most.
    wakes: BTreeSet<(UnixMillis, String)>,
    nonces: Nonces,
    sweep: Sweep,
    /// How far the system clock is ahead of effective time (ms).
    pub(super) skew: i64,
    told: PickupStatus,
}

impl Pickup {
    /// As the ledger has it.
    pub fn at_start(recovery: &Recovery) -> Pickup {
        let mut pickup = Pickup { sweep: Sweep::at_start(), ..Pickup::default() };
        pickup.know_clients(recovery);
        pickup
    }

    /// Clients as they are durable.
    pub fn know_clients(&mut self, recovery: &Recovery) {
        self.clients = recovery.clients.iter().cloned().collect();
        self.know_tokens();
    }

    fn know_tokens(&mut self) {
        let good = self.clients.iter().filter(|(_, row)| row.revoked_at.is_none());
        self.by_token = good.map(|(name, row)| (row.token, name.clone())).collect();
    }

    /// Whether nothing is under way that a stop waits for.
    pub fn is_idle(&self) -> bool {
        let judged = self.waiting.is_empty() && self.again.is_empty() && self.found.is_empty();
        judged && self.uploads.is_empty() && self.serving.is_empty()
    }
}

/// A refusal in the making.
#[derive(Clone, Debug, PartialEq, Eq)]
struct No {
    refusal: PickupRefusal,
    retry_after: u64,
    number: Option<u64>,
    text: String,
}

impl No {
    fn new(refusal: PickupRefusal, text: impl Into<String>) -> No {
        No { refusal, retry_after: 0, number: None, text: text.into() }
    }

    fn after(self, retry_after: u64) -> No {
        No { retry_after, ..self }
    }

    fn number(self, number: u64) -> No {
        No { number: Some(number), ..self }
    }

    /// What is said when a commit finds no space.
    fn full() -> No {
        let text = "the disk is full; nothing new is taken until space is back";
        No::new(PickupRefusal::DiskFull, text).after(LATER)
    }

    fn stopping() -> No {
        No::new(PickupRefusal::Unavailable, "this site is stopping").after(SOON)
    }

    fn command(self, ticket: crate::id::TransferNo) -> SessionCommand {
        let No { refusal, retry_after, number, text } = self;
        let refuse = Command::Refuse { ticket, refusal, retry_after, number, text };
        SessionCommand::Pickup(Box::new(refuse))
    }
}

impl Node {
    /// An event of a pickup session, or of an operator about pickup.
    pub(super) fn pickup_event(
        &mut self,
        now: Now,
        conn: ConnId,
        event: pickup::Event,
        out: &mut Vec<Action>,
    ) {
        use pickup::Event as E;
        let task = match event {
            E::Upload { ticket, ask } => Task::Upload { ticket, ask },
            E::Extend { ticket, blob } => Task::Extend { ticket, blob },
            E::Checkpoint { blob, offset, chain, .. } => Task::Checkpoint { blob, offset, chain },
            E::Whole { ticket, blob, size, sha256, blake3 } => {
                Task::Whole { ticket, blob, size, sha256, blake3 }
            }
            E::Broken { ticket, blob, why } => Task::Broken { ticket, blob, why },
            E::Head { ticket, shard, client } => Task::Head { ticket, shard, client },
            E::Slot { ticket, shard, client, size } => Task::Slot { ticket, shard, client, size },
            E::Fetch { ticket, ask } => Task::Fetch { ticket, ask },
            E::FetchMoved { redemption } => return self.fetch_moved(now, conn, redemption),
            E::FetchEnded { redemption, end } => {
                return self.fetch_ended(now, conn, redemption, end, out);
            }
            E::Subscribe { ticket, signed } => Task::Subscribe { ticket, signed },
            E::Register { tokens } => return self.register_came(conn, tokens, out),
            E::Tokens(tokens) => return self.tokens_came(conn, tokens),
            E::Ack(ask) => Task::Ack(ask),
            E::Operator { ticket, act } => Task::Operator { ticket, act },
        };
        self.pickup_job(conn, task);
    }

    /// A promise of pickup rests on a batch that failed. Relief comes back as its job.
    pub(super) fn pickup_taken_back(&mut self, conn: ConnId, answer: Answer) {
        match answer {
            // Its row is not there, or its writer is not let in.
            Answer::Granted { blob, .. } => {
                self.upload_over(blob);
            }
            Answer::Serve { serve, .. } => {
                self.fetch_forgotten(serve.redemption);
            }
            Answer::Notify(notify) => self.not_notified(conn, &notify),
            Answer::Buffered { .. }
            | Answer::Offset { .. }
            | Answer::Slot { .. }
            | Answer::Upgraded { .. }
            | Answer::Registered { .. }
            | Answer::State { .. }
            | Answer::Done { .. } => {}
        }
    }

    /// A commit failed: whatever was read or staged is void.
    pub(super) fn pickup_void(&mut self) {
        let found = core::mem::take(&mut self.pickup.found);
        for (job, ..) in found.into_iter().rev() {
            self.pickup.waiting.push_front(job);
        }
        self.pickup.overlay.clear();
        self.pickup.sweep.again();
        self.pickup.nonces.start_over();
    }

    /// What is durable and known to every open read is not kept any longer. Reads end all through a turn,
    /// most of them none of pickup's, and no commit may follow for a long time.
    pub(super) fn pickup_forgets(&mut self) {
        let floor = self.book.floor();
        self.pickup.overlay.prune(floor);
    }

    /// A connection is gone.
    pub(super) fn pickup_gone(&mut self, conn: ConnId) {
        let uploads = self.pickup.uploads.iter().filter(|(_, u)| u.conn == conn);
        let uploads: Vec<BlobNo> = uploads.map(|(blob, _)| *blob).collect();
        for blob in uploads {
            self.pickup_job(conn, Task::Quit { blob });
        }
        self.fetches_cut(conn);
        self.node_gone(conn);
    }

    /// Everything of pickup that is best done in bulk.
    pub(super) fn pickup_turn(&mut self, now: Now, out: &mut Vec<Action>) {
        if matches!(self.mode, super::Mode::Rejudge(_)) {
            return;
        }
        self.judge_jobs(now, out);
        self.count_nonces(out);
        self.sweep_shards(now, out);
        self.page_nodes(now, out);
        self.read_jobs(out);
    }

    pub(super) fn pickup_deadline(&self) -> Option<Instant> {
        // What becomes due while it stops is looked at after the next start.
        if matches!(self.mode, super::Mode::Rejudge(_)) || self.stopping {
            return None;
        }
        let wake = self.pickup.wakes.first().map(|(at, _)| *at);
        let due = [wake, self.pickup.sweep.deadline(self.now.wall)];
        let due = due.into_iter().flatten().map(|at| self.now.instant_of(at));
        due.chain(self.held_deadline()).min()
    }

    /// This site is stopping.
    pub(super) fn pickup_stop(&mut self, out: &mut Vec<Action>) {
        let all: Vec<ConnId> = self.pickup.subscribers.keys().copied().collect();
        for conn in all {
            self.close_ws(conn, 1001, "this site is stopping", out);
        }
    }

    /// At a glance, from counters and memory.
    pub(super) fn pickup_status(&self) -> PickupStatus {
        let mut shards = [CounterRow::default(); ShardState::ALL.len()];
        for (row, state) in shards.iter_mut().zip(ShardState::ALL) {
            *row = self.stage.shards_durable(*state);
        }
        PickupStatus {
            shards,
            used: shards.iter().map(|row| row.bytes).fold(0, u64::saturating_add),
            limit: self.config.buffer.max_bytes,
            clients: self.pickup.by_token.len() as u64,
            sessions: self.pickup.nodes.len() as u64,
            uploads: self.pickup.uploads.len() as u64,
            fetches: self.pickup.serving.len() as u64,
            unanswered: self.pickup.nodes.values().map(NodeSession::unanswered).sum(),
            ..self.pickup.told.clone()
        }
    }

    /// A pickup answer leaves once everything staged so far is durable; `instead` is said when it does
    /// not become so.
    fn pickup_promise(&mut self, conn: ConnId, answer: Answer, instead: Option<SessionCommand>) {
        self.promise(conn, Promise::Pickup(Box::new(answer)), instead, None);
    }

    /// Rows of pickup in the overlay, jobs that wait, what is kept of fetches and uploads, and what becomes
    /// due beyond one time for each session.
    pub(super) fn pickup_footprint(&self) -> usize {
        let pickup = &self.pickup;
        let jobs = pickup.waiting.len() + pickup.again.len() + pickup.found.len();
        let wakes = pickup.wakes.len().saturating_sub(pickup.nodes.len());
        pickup.overlay.len() + jobs + pickup.fetches.len() + pickup.uploads.len() + wakes
    }

    /// The system clock, in milliseconds.
    fn raw_now(&self, now: Now) -> u64 {
        now.wall.0.saturating_add_signed(self.pickup.skew)
    }
}
