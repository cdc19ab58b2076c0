//! A hand-made world of two sites: every row and frame of a story is written here, so that any of them can
//! be left out or be wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use consign_core::config::{Config, PeerConfig};
use consign_core::id::{
    BatchNo, BlobDigest, BlobNo, BodyNo, ConnId, Epoch, Handle, SegmentId, Seq, SiteNo,
};
use consign_core::ledger::rows::{
    CounterRow, DeliveryRow, INBOUND, MetaName, MetaRow, SegmentRow, State,
};
use consign_core::ledger::{Table, keys};
use consign_core::mem::MemStore;
use consign_core::node::Note;
use consign_core::segment::{Meta, segment_id};
use consign_core::store::{Batch, StoreRequest};
use consign_core::time::{Instant, Now, UnixMillis};
use consign_core::wire::{Frame, Hello};

use super::encode::{place, put};
use crate::sim::audit::rows::{Name, Row};
use crate::sim::audit::{Audit, Violation};
use crate::sim::seen::{Death, Seen, SiteIx};
use crate::sim::time::Micros;

pub const A: SiteIx = 0;
pub const B: SiteIx = 1;
/// The number of the other site, at both.
pub const PEER: SiteNo = SiteNo(1);
pub const START: u64 = 1_800_000_000_000;
pub const NAMES: [&str; 2] = ["alpha", "beta"];

/// An operation in the making.
#[derive(Clone, Debug)]
pub enum Line {
    Put(Row),
    Del(Name),
    Body(BodyNo, Vec<u8>),
}

/// A batch in the making.
#[derive(Clone, Debug, Default)]
pub struct Draft(pub Vec<Line>);

impl Draft {
    pub fn put(&mut self, row: Row) -> &mut Draft {
        self.0.push(Line::Put(row));
        self
    }

    pub fn del(&mut self, name: Name) -> &mut Draft {
        self.0.push(Line::Del(name));
        self
    }

    /// Changes the delivery that it writes.
    pub fn delivery(mut self, change: impl Fn(&mut DeliveryRow)) -> Draft {
        for line in &mut self.0 {
            if let Line::Put(Row::Delivery(_, _, row)) = line {
                change(row);
            }
        }
        self
    }

    /// Changes the segment that it writes.
    pub fn segment(mut self, change: impl Fn(&mut SegmentRow)) -> Draft {
        for line in &mut self.0 {
            if let Line::Put(Row::Segment(_, row)) = line {
                change(row);
            }
        }
        self
    }

    /// Leaves lines out.
    pub fn without(mut self, unwanted: impl Fn(&Line) -> bool) -> Draft {
        self.0.retain(|line| !unwanted(line));
        self
    }
}

/// What a site's node would know.
#[derive(Debug, Default)]
pub struct Books {
    pub batch: u64,
    pub boot: u64,
    pub session: u64,
    pub next: [u64; 3],
    pub used: u64,
    pub segments: u64,
    pub counters: BTreeMap<(SiteNo, u8), CounterRow>,
    pub rows: BTreeMap<Seq, SegmentRow>,
    pub deliveries: BTreeMap<Seq, DeliveryRow>,
}

impl Books {
    /// What the peer has brought: segments, and bytes that are charged for it.
    pub fn comes_in(&mut self, segments: u64, bytes: u64) {
        let row = self.counters.entry((PEER, INBOUND)).or_default();
        (row.count, row.bytes) = (row.count + segments, row.bytes + bytes);
    }
}

/// The world and what the auditor has said about it.
pub struct Play {
    pub audit: Audit,
    pub ms: u64,
    pub books: [Books; 2],
    pub stores: [MemStore; 2],
    pub conn: ConnId,
    pub broken: Option<Violation>,
}

pub fn config(ix: SiteIx) -> Config {
    let peer = PeerConfig::new(NAMES[1 - ix], "x");
    Config {
        name: NAMES[ix].into(),
        peers: vec![peer],
        max_retries: 3,
        max_bytes: 1 << 20,
        backoff_max: Duration::from_secs(60),
        ..Config::default()
    }
}

/// The segment of all stories: its bytes and everything about it.
pub fn bytes() -> Vec<u8> {
    b"nothing is lost".to_vec()
}

pub fn digest() -> BlobDigest {
    BlobDigest(*blake3::hash(&bytes()).as_bytes())
}

pub fn meta(name: &str) -> Meta {
    Meta { name: name.into(), accepted_at: START, ..Meta::default() }
}

pub fn id_of(name: &str) -> SegmentId {
    segment_id(&meta(name), &digest())
}

pub fn id() -> SegmentId {
    id_of("report.pdf")
}

impl Play {
    /// Both sites run and have said HELLO to each other.
    pub fn new() -> Play {
        let mut play = Play::cold();
        play.hello();
        play
    }

    /// Both sites run.
    pub fn cold() -> Play {
        let mut play = Play {
            audit: Audit::new(),
            ms: 0,
            books: Default::default(),
            stores: [MemStore::new(), MemStore::new()],
            conn: ConnId { slot: 0, generation: 1 },
            broken: None,
        };
        for ix in [A, B] {
            play.books[ix].next = [1, 1, 1];
            play.see(ix, &Seen::Born { config: &config(ix) });
            play.start(ix);
            let mut draft = Draft::default();
            draft.put(Row::Peer(PEER, NAMES[1 - ix].into()));
            play.commit(ix, draft);
            play.see(ix, &Seen::Note(&Note::Reconciled(Default::default())));
        }
        play
    }

    pub fn wall(&self) -> u64 {
        START + self.ms
    }

    pub fn see(&mut self, ix: SiteIx, seen: &Seen<'_>) {
        if self.broken.is_none() {
            self.broken = self.audit.see(Micros(self.ms * 1000), ix, seen).err();
        }
    }

    /// A turn that takes an input.
    pub fn turn(&mut self, ix: SiteIx) {
        let now = Now { mono: Instant(self.ms * 1_000_000), wall: UnixMillis(self.wall()) };
        self.see(ix, &Seen::Turned { now, inputs: 2, footprint: (0, 0, 0) });
    }

    /// Time passes, and both sites notice.
    pub fn wait(&mut self, ms: u64) {
        self.ms += ms;
        self.turn(A);
        self.turn(B);
    }

    pub fn start(&mut self, ix: SiteIx) {
        self.books[ix].boot += 1;
        self.books[ix].session = 0;
        self.see(ix, &Seen::Started { boot: self.books[ix].boot });
        self.turn(ix);
    }

    pub fn kill(&mut self, ix: SiteIx) {
        self.see(ix, &Seen::Died(Death::Killed));
    }

    /// A site starts again, and its first batch is on disk.
    pub fn restart(&mut self, ix: SiteIx) {
        self.kill(ix);
        self.start(ix);
        self.commit(ix, Draft::default());
    }

    pub fn epoch(&self, ix: SiteIx) -> Epoch {
        Epoch { boot: self.books[ix].boot, session: self.books[ix].session }
    }

    /// A new connection on which both say HELLO.
    pub fn hello(&mut self) {
        self.conn.generation += 1;
        for ix in [A, B] {
            self.books[ix].session += 1;
            self.say_hello(ix, self.epoch(ix));
            let peer = NAMES[1 - ix].to_string();
            let up = Note::SessionUp { peer, epoch: self.epoch(ix), dialled: ix == A };
            self.see(ix, &Seen::Note(&up));
        }
    }

    pub fn say_hello(&mut self, ix: SiteIx, epoch: Epoch) {
        let hello = Hello {
            version: 1,
            name: NAMES[ix].into(),
            epoch,
            max_segment: None,
            credit: 0,
            max_offers: 8,
            features: Vec::new(),
        };
        self.frame(ix, &Frame::Hello(hello));
    }

    /// A frame that a site sends and the other gets.
    pub fn frame(&mut self, from: SiteIx, frame: &Frame<'_>) {
        let (conn, to) = (self.conn, 1 - from);
        self.see(from, &Seen::FrameSent { peer: to, conn, frame });
        self.arrives(to, frame);
    }

    pub fn arrives(&mut self, at: SiteIx, frame: &Frame<'_>) {
        let conn = self.conn;
        self.see(at, &Seen::FrameArrived { peer: 1 - at, conn, frame });
    }

    pub fn lose_session(&mut self, ix: SiteIx) {
        let peer = NAMES[1 - ix].to_string();
        self.see(ix, &Seen::Note(&Note::SessionDown { peer, why: "reset".into() }));
    }

    /// Finishes a draft with its counters, shows it, and writes it to the store.
    pub fn commit(&mut self, ix: SiteIx, draft: Draft) {
        let high = self.wall();
        let books = &mut self.books[ix];
        books.batch += 1;
        let mut batch = Batch::new(BatchNo(books.batch));
        let mut bodies: Vec<(BodyNo, Bytes)> = Vec::new();
        let mut numbers = BTreeMap::from([
            (MetaName::Batch, books.batch),
            (MetaName::Boot, books.boot),
            (MetaName::NextSeq, books.next[0]),
            (MetaName::NextBlob, books.next[1]),
            (MetaName::NextBody, books.next[2]),
            (MetaName::TimeHigh, high),
            (MetaName::UsedBytes, books.used),
            (MetaName::Segments, books.segments),
        ]);
        for (key, row) in &books.counters {
            batch.put(Table::Counters, &keys::counter(key.0, key.1), row);
        }
        for line in draft.0 {
            match line {
                Line::Put(Row::Meta(name, value)) => drop(numbers.insert(name, value)),
                Line::Put(row) => put(&mut batch, row),
                Line::Del(name) => {
                    let (table, key) = place(&name);
                    batch.del(table, &key);
                }
                Line::Body(number, bytes) => {
                    let handle = Handle { conn: self.conn, number: number.0 as u32 };
                    batch.put_body(number, handle, bytes.len());
                    let data = Bytes::from(bytes);
                    let park = StoreRequest::Park { handle, data: data.clone() };
                    self.stores[ix].request(self.conn, park);
                    bodies.push((number, data));
                }
            }
        }
        for (name, value) in numbers {
            batch.put(Table::Meta, name.key(), &MetaRow { value });
        }
        self.stores[ix].commit(&batch);
        self.see(ix, &Seen::Durable { batch: &batch, bodies: &bodies });
    }

    pub fn count(&mut self, ix: SiteIx, from: Option<State>, to: Option<State>, size: u64) {
        let counters = &mut self.books[ix].counters;
        if let Some(state) = from {
            let row = counters.entry((PEER, state as u8)).or_default();
            (row.count, row.bytes) = (row.count - 1, row.bytes - size);
        }
        if let Some(state) = to {
            let row = counters.entry((PEER, state as u8)).or_default();
            (row.count, row.bytes) = (row.count + 1, row.bytes + size);
        }
    }

    pub fn deep(&mut self, ix: SiteIx, files: &[(BlobNo, u64, bool)]) {
        if self.broken.is_none() {
            let rows = self.stores[ix].snapshot();
            self.broken = self.audit.deep(Micros(self.ms * 1000), ix, &rows, files).err();
        }
    }

    pub fn at_rest(&mut self, ix: SiteIx) {
        if self.broken.is_none() {
            let rows = self.stores[ix].snapshot();
            self.broken = self.audit.at_rest(Micros(self.ms * 1000), ix, &rows, &[]).err();
        }
    }
}
