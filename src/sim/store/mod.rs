//! The simulated store: asynchronous, on a simulated disk that keeps exactly what was synced and
//! damages exactly what a real disk may damage.
//!
//! ```text
//!  commit ───────▶ writer ─────────── one batch at a time ──────────────▶ rows (MemStore)
//!  read ─────────▶ node's reader ──── in order ─────────────────────────▶ rows
//!  Read, Query ──▶ 2 readers ──────── in order for one (conn, ticket) ──▶ rows, files
//!  Create … ─────▶ 2 blob writers ─── in order for one parity ──────────▶ files (Disk)
//!  errand ───────▶ remover ────────── in order ─────────────────────────▶ rows, files
//! ```
//!
//! These are the threads of `storage-lmdb` and the orders it keeps; no other order is kept here. Each call
//! takes effect at a random moment between its begin and its answer, or at several: a sync of a file
//! that has no durable name yet is first the bytes, then the name. What ends the process comes between
//! any two of them.
//!
//! | what | before its moment | after it |
//! |---|---|---|
//! | commit | a power cut loses it, a kill loses it or not | whole and durable |
//! | write, truncate | as if not asked for | each page kept, lost or torn by a power cut |
//! | sync of a file | as above | bytes and length durable |
//! | sync of a folder | names made or removed are kept or lost | names durable |
//!
//! Faults and their rates are [`StoreFaults`]. Some of the catalogue have no place here, because they
//! happen within `storage-lmdb`'s own work and end in an answer that is simulated: short writes and
//! interrupted calls (F11) are looped over there, readers of dead processes (F15) are cleared at opening, a
//! ledger file that is cut short or a lock that is held (F16, F19) is refused before there is a store,
//! and pages of LMDB's tree that are torn or misdirected make it refuse as a whole or stay unreachable
//! behind its two meta pages; rows are damaged one by one instead (F9). A symbolic link or a folder in
//! the place of a file (F17) is for every caller a file that is missing.

mod damage;
mod disk;
mod faults;
mod files;
mod ledger;
mod readers;
mod remover;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use consign_core::id::{BatchNo, BlobDigest, BlobNo, BodyNo, ConnId, ReadNo};
use consign_core::ledger::Table;
use consign_core::ledger::read::{self, ReadRequest, Recovery};
use consign_core::mem::{MemSnapshot, MemStore};
use consign_core::node::Input;
use consign_core::plant::Plant;
use consign_core::store::{Batch, Errand, NeverMade, Space, StoreEvent, StoreFault, StoreRequest};

use crate::sim::rng::Rng;
use crate::sim::seen::Damage;
use crate::sim::time::Micros;

use disk::Disk;
pub use faults::{Latency, StoreFaults};

/// A disk and what may happen to it.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Bytes of the disk.
    pub capacity: u64,
    /// Bytes kept aside for relief when it is full.
    pub ballast: u64,
    /// Most bytes of rows; a commit beyond finds no space (F14).
    pub ledger_max: u64,
    /// Tables whose rows may rot. A rotten row of a table that start-up reads whole is not among them
    /// by default: such a ledger is refused, and the site would never run again.
    pub rot: Vec<Table>,
    /// A rule that is dropped on purpose: the store keeps G7 and B1.
    pub plant: Option<Plant>,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        StoreConfig {
            capacity: 1 << 40,
            ballast: 1 << 20,
            ledger_max: 1 << 40,
            rot: vec![Table::Bodies, Table::Segments, Table::Deliveries],
            plant: None,
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// To the node.
    Node(Input),
    /// To a connection; to be dropped when it has ended.
    Conn(ConnId, StoreEvent),
}

/// What only somebody who looks at the disk can know.
#[derive(Clone, Debug)]
pub enum Fact {
    /// A batch is durable from now on.
    Durable {
        /// The batch.
        batch: Batch,
        /// The bodies it wrote.
        bodies: Vec<(BodyNo, Bytes)>,
    },
    /// A content file is finished: whole, and durable with its name.
    FileWhole {
        /// Its number.
        blob: BlobNo,
        /// Its length.
        size: u64,
        /// Digest of what is in it.
        digest: BlobDigest,
    },
    /// A content file is durably out of its place: removed or set aside.
    FileGone(BlobNo),
    /// Something durable was destroyed, or was never what was said to be durable.
    Damaged(Damage),
}

/// A thread of the store: what waits for it, and what it does next, when.
#[derive(Debug)]
struct Lane<Job, Step> {
    waiting: VecDeque<Job>,
    doing: Option<(Micros, Step)>,
}

impl<Job, Step> Default for Lane<Job, Step> {
    fn default() -> Self {
        Lane { waiting: VecDeque::new(), doing: None }
    }
}

impl<Job, Step> Lane<Job, Step> {
    fn at(&self) -> Option<Micros> {
        self.doing.as_ref().map(|(at, _)| *at)
    }

    fn idle(&self) -> bool {
        self.doing.is_none() && self.waiting.is_empty()
    }
}

/// Which lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LaneNo {
    Writer,
    NodeReader,
    Reader(usize),
    Blobs(usize),
    Remover,
}

/// The store.
#[derive(Debug)]
pub struct SimStore {
    /// How the disk behaves from now on.
    pub faults: StoreFaults,
    rng: Rng,
    config: StoreConfig,
    mem: MemStore,
    disk: Disk,
    /// What others keep on the disk for good.
    outside: u64,
    /// What others keep there for a while.
    filled: u64,
    filled_until: Micros,
    stalled_until: Micros,
    /// Why nothing is committed any more, if so.
    broken: Option<String>,
    /// A batch whose commit failed; at the next start it is there or not.
    limbo: Option<(Batch, ledger::Bodies)>,
    /// The ledger as it was at the last start, for [`StoreFaults::restart_rollback`].
    copy: Option<MemSnapshot>,
    writer: Lane<Batch, ledger::Step>,
    node_reader: Lane<(ReadNo, ReadRequest), readers::NodeStep>,
    asks: VecDeque<readers::Asked>,
    readers: [Option<(Micros, readers::Step)>; 2],
    blobs: [Lane<files::Job, files::Step>; 2],
    open: BTreeMap<BlobNo, files::Open>,
    never: NeverMade,
    remover: Lane<remover::Job, remover::Step>,
    ready: VecDeque<Done>,
    facts: Vec<Fact>,
    clock: Micros,
}

impl SimStore {
    /// An empty store.
    #[must_use]
    pub fn new(rng: Rng, config: StoreConfig) -> SimStore {
        let mut mem = MemStore::new();
        mem.set_capacity(config.capacity);
        mem.set_ballast(config.ballast, true);
        SimStore {
            faults: StoreFaults::default(),
            rng,
            config,
            mem,
            disk: Disk::default(),
            outside: 0,
            filled: 0,
            filled_until: Micros::ZERO,
            stalled_until: Micros::ZERO,
            broken: None,
            limbo: None,
            copy: None,
            writer: Lane::default(),
            node_reader: Lane::default(),
            asks: VecDeque::new(),
            readers: [None, None],
            blobs: [Lane::default(), Lane::default()],
            open: BTreeMap::new(),
            never: NeverMade::default(),
            remover: Lane::default(),
            ready: VecDeque::new(),
            facts: Vec::new(),
            clock: Micros::ZERO,
        }
    }

    /// Commits a batch.
    pub fn commit(&mut self, now: Micros, batch: Batch) {
        self.clock = now;
        self.writer.waiting.push_back(batch);
        if self.writer.doing.is_none() {
            self.writer_next(now);
        }
    }

    /// Reads for the node.
    pub fn read(&mut self, now: Micros, number: ReadNo, request: ReadRequest) {
        self.clock = now;
        self.node_reader.waiting.push_back((number, request));
        if self.node_reader.doing.is_none() {
            self.node_reader_next(now);
        }
    }

    /// What a session asks.
    pub fn request(&mut self, now: Micros, conn: ConnId, request: StoreRequest) {
        self.clock = now;
        let (blob, job) = match request {
            StoreRequest::Park { .. } => {
                self.mem.request(conn, request);
                return;
            }
            StoreRequest::Read { ticket, body, offset, len } => {
                return self.ask(now, (conn, ticket), readers::Ask::Read { body, offset, len });
            }
            StoreRequest::Query { ticket, query } => {
                return self.ask(now, (conn, ticket), readers::Ask::Query(query));
            }
            StoreRequest::Create { blob, offset } => (blob, files::Work::Create(offset)),
            StoreRequest::Write { blob, data } => (blob, files::Work::Write(data)),
            StoreRequest::Sync { blob } => (blob, files::Work::Sync),
            StoreRequest::Finish { blob } => (blob, files::Work::Finish),
            StoreRequest::Abandon { blob } => (blob, files::Work::Abandon),
        };
        self.blob_job(now, files::lane_of(blob), files::Job::Of(conn, blob, job));
    }

    /// What the node asks.
    pub fn errand(&mut self, now: Micros, errand: Errand) {
        self.clock = now;
        let job = match errand {
            Errand::Unpark(handle) => {
                self.mem.take_parked(handle);
                return;
            }
            Errand::Unlink(blob) => remover::Job::Unlink(blob),
            Errand::SetAside(blob) => remover::Job::SetAside(blob),
            Errand::Check(wanted) => remover::Job::Check(wanted),
            Errand::Sweep { folder, below } => remover::Job::Sweep(folder, below),
            Errand::Probe => remover::Job::Probe,
            Errand::Look => {
                self.settle_space(now);
                self.ready.push_back(Done::Node(Input::Space(self.mem.space())));
                return;
            }
            Errand::Scrub { items, rate } => remover::Job::Scrub(items, rate),
        };
        self.remover.waiting.push_back(job);
        if self.remover.doing.is_none() {
            self.remover_next(now);
        }
    }

    /// The connection has ended: what it asked of readers and did not get yet is dropped, what it has
    /// open for writing is closed.
    pub fn conn_ended(&mut self, now: Micros, conn: ConnId) {
        self.clock = now;
        self.asks.retain(|asked| asked.owner.0 != conn);
        for lane in 0..self.blobs.len() {
            self.blob_job(now, lane, files::Job::ConnEnded(conn));
        }
    }

    /// When the next thing happens.
    #[must_use]
    pub fn next(&self) -> Option<Micros> {
        if self.ready.is_empty() { self.soonest().map(|(at, _)| at) } else { Some(self.clock) }
    }

    /// The next answer, when there is one by `now`. To be called until there is none.
    pub fn take(&mut self, now: Micros) -> Option<Done> {
        loop {
            if let Some(done) = self.ready.pop_front() {
                return Some(done);
            }
            let (at, lane) = self.soonest().filter(|(at, _)| *at <= now)?;
            self.clock = at;
            match lane {
                LaneNo::Writer => self.writer_step(at),
                LaneNo::NodeReader => self.node_reader_step(at),
                LaneNo::Reader(reader) => self.reader_step(at, reader),
                LaneNo::Blobs(lane) => self.blob_step(at, lane),
                LaneNo::Remover => self.remover_step(at),
            }
        }
    }

    /// The lane whose turn is next; of two at the same moment, the first of [`LaneNo`].
    fn soonest(&self) -> Option<(Micros, LaneNo)> {
        let [reader_a, reader_b] = &self.readers;
        let [blobs_a, blobs_b] = &self.blobs;
        let at = |reader: &Option<(Micros, readers::Step)>| reader.as_ref().map(|(at, _)| *at);
        let lanes = [
            (self.writer.at(), LaneNo::Writer),
            (self.node_reader.at(), LaneNo::NodeReader),
            (at(reader_a), LaneNo::Reader(0)),
            (at(reader_b), LaneNo::Reader(1)),
            (blobs_a.at(), LaneNo::Blobs(0)),
            (blobs_b.at(), LaneNo::Blobs(1)),
            (self.remover.at(), LaneNo::Remover),
        ];
        lanes.into_iter().filter_map(|(at, lane)| Some((at?, lane))).min()
    }

    /// What happened on the disk since this was last called, in order. To be called after every
    /// [`SimStore::take`], [`SimStore::kill`], [`SimStore::power_cut`] and [`SimStore::recover`].
    pub fn facts(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.facts)
    }

    /// Whether nothing is in flight.
    #[must_use]
    pub fn idle(&self) -> bool {
        let readers = self.asks.is_empty() && self.readers.iter().all(Option::is_none);
        let files = self.blobs.iter().all(Lane::idle) && self.remover.idle();
        self.ready.is_empty() && self.writer.idle() && self.node_reader.idle() && readers && files
    }

    /// The committed rows. To be dropped before the next commit, which would have to copy them.
    #[must_use]
    pub fn snapshot(&self) -> MemSnapshot {
        self.mem.snapshot()
    }

    /// The content files that are in place: number, length, and whether it is whole and durable. In
    /// the order of folders.
    pub fn files(&self) -> impl Iterator<Item = (BlobNo, u64, bool)> {
        self.disk.files()
    }

    /// What is in a content file, as whoever opens it now sees it.
    #[must_use]
    pub fn content(&self, blob: BlobNo) -> Option<&[u8]> {
        self.disk.data(blob)
    }

    /// Numbers of the files that were set aside.
    pub fn quarantined(&self) -> impl Iterator<Item = BlobNo> {
        self.disk.set_aside()
    }

    /// The disk as it is.
    #[must_use]
    pub fn space(&self) -> Space {
        self.mem.space()
    }

    /// Others take what is free but for `left` bytes, and `taken` bytes of what will be freed; what
    /// they keep already, they keep.
    pub fn fill(&mut self, left: u64, taken: u64) {
        let more = self.space().free.saturating_sub(left).saturating_add(taken);
        self.set_outside(self.outside.saturating_add(more));
    }

    /// Sets what others keep on the disk, in bytes.
    pub fn set_outside(&mut self, bytes: u64) {
        self.outside = bytes;
        self.settle_space(self.clock);
    }

    /// Puts a durable content file there that no row names.
    pub fn plant_file(&mut self, blob: BlobNo, data: &[u8]) {
        self.disk.plant(blob, data);
    }
}

/// Ends and beginnings of the process.
impl SimStore {
    /// The process is killed, the system lives on: calls that are under way take effect or not, what
    /// was handed to the system is not lost.
    pub fn kill(&mut self) {
        if let Some((batch, bodies)) = self.interrupted_commit()
            && self.rng.chance(500_000)
        {
            self.apply(batch, bodies);
        }
        self.die();
    }

    /// The power goes: also what was not synced is kept, lost or torn, page by page and name by name.
    pub fn power_cut(&mut self) {
        self.die();
        let lost = self.disk.cut(&mut self.rng);
        self.facts.extend(lost.into_iter().map(Fact::FileGone));
    }

    fn die(&mut self) {
        if let Some((batch, bodies)) = self.limbo.take()
            && self.rng.chance(500_000)
        {
            self.apply(batch, bodies);
        }
        self.interrupted_files();
        self.interrupted_removals();
        self.disk.die(&mut self.rng);
        // Parked bodies are in the memory of the process.
        self.mem.crash();
        self.writer = Lane::default();
        self.node_reader = Lane::default();
        self.asks.clear();
        self.readers = [None, None];
        self.blobs = [Lane::default(), Lane::default()];
        self.open.clear();
        self.remover = Lane::default();
        self.never = NeverMade::default();
        self.ready.clear();
        self.broken = None;
    }

    /// A process opens what is there, and reads what its node keeps in memory.
    ///
    /// # Errors
    /// When a row cannot be read that everything rests on.
    pub fn recover(&mut self) -> Result<Recovery, StoreFault> {
        self.damage_at_start();
        if self.faults.restart_rollback > 0 {
            self.copy = Some(self.mem.snapshot());
        }
        self.settle_space(self.clock);
        // Opening makes the ballast whole if there is room.
        self.mem.errand(Errand::Probe);
        let recovery = read::recovery(self.mem.ledger())?;
        Ok(Recovery { space: Some(self.mem.space()), ..recovery })
    }

    /// The last batch of the ledger.
    #[must_use]
    pub fn committed(&self) -> BatchNo {
        consign_core::store::Snapshot::as_of(self.mem.ledger())
    }
}
