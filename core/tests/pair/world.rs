//! Sites, the wires between them and a clock that stands still until told to move.

// Two test binaries share it, and each uses its part.
#![allow(dead_code)]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use consign_core::config::{Config, PeerConfig};
use consign_core::id::{BlobDigest, ConnId, Handle, SegmentId, TransferNo};
use consign_core::ledger::read::{self, Answer, ReadRequest};
use consign_core::ledger::rows::{Body, IdRow, SegmentRow};
use consign_core::ledger::{Table, keys};
use consign_core::mem::MemStore;
use consign_core::node::{Action, Input, Node, Note};
use consign_core::pump::{Outbox, Pump};
use consign_core::segment::{Destinations, Meta, segment_id};
use consign_core::session::peer::PeerSession;
use consign_core::session::{
    ConnInfo, Content, Identity, Promise, Session, SessionCommand, SessionConfig, SessionEvent,
    SessionInput, SessionOut, Submission,
};
use consign_core::store::{StoreEvent, StoreRequest};
use consign_core::time::{Instant, Now, UnixMillis};

/// One end of a wire.
type End = (usize, ConnId);

pub struct Site {
    pub config: Config,
    pub store: MemStore,
    /// `None` while the process is down.
    pump: Option<Pump>,
    sessions: BTreeMap<ConnId, PeerSession>,
    inbox: VecDeque<Input>,
    next_conn: u32,
    pub notes: Vec<Note>,
}

/// Everything there is.
pub struct World {
    pub sites: Vec<Site>,
    pub now: Now,
    wires: BTreeMap<End, End>,
    /// Answers of stores on their way to sessions, in order.
    answers: VecDeque<(End, StoreEvent)>,
    /// Bytes under way to an end.
    air: BTreeMap<End, VecDeque<u8>>,
    /// Most bytes handed over at once.
    pub mouthful: usize,
    /// Bytes that may still cross before every wire breaks.
    pub cut_after: Option<usize>,
    /// Every delivery transition: site, segment name, peer, from, to, cause, attempt.
    pub trace: Vec<String>,
    names: BTreeMap<SegmentId, String>,
}

pub fn session_config(config: &Config) -> SessionConfig {
    SessionConfig {
        name: config.name.clone(),
        ack_timeout: config.ack_timeout,
        max_segment: config.max_segment,
        max_offers: 1024,
        hello_timeout: Duration::from_secs(10),
        ping_after: Duration::from_secs(20),
        dead_after: Duration::from_secs(60),
        plant: config.plant,
    }
}

pub fn config(name: &str, peers: &[&str]) -> Config {
    let peer = |p: &&str| PeerConfig::new(p.to_string(), format!("{p}:7400"));
    Config {
        name: name.into(),
        peers: peers.iter().map(peer).collect(),
        min_free: 0,
        ..Config::default()
    }
}

impl World {
    pub fn new(configs: Vec<Config>) -> World {
        let sites = configs.into_iter().map(|config| Site {
            config,
            store: MemStore::new(),
            pump: None,
            sessions: BTreeMap::new(),
            inbox: VecDeque::new(),
            next_conn: 0,
            notes: Vec::new(),
        });
        World {
            sites: sites.collect(),
            now: Now { mono: Instant(1), wall: UnixMillis(1_800_000_000_000) },
            wires: BTreeMap::new(),
            answers: VecDeque::new(),
            air: BTreeMap::new(),
            mouthful: usize::MAX,
            cut_after: None,
            trace: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    pub fn index(&self, name: &str) -> usize {
        self.sites.iter().position(|s| s.config.name == name).unwrap()
    }

    pub fn start(&mut self, name: &str) {
        let now = self.now;
        let i = self.index(name);
        let site = &mut self.sites[i];
        let Answer::Recovery(recovery) = site.store.read(&ReadRequest::Recovery).unwrap().body
        else {
            panic!("not a recovery");
        };
        let node = Node::recover(site.config.clone(), *recovery, now).unwrap();
        site.pump = Some(Pump::new(node));
        self.run();
    }

    /// The process dies: what is not durable is gone, wires break.
    pub fn kill(&mut self, name: &str) {
        let i = self.index(name);
        self.sites[i].pump = None;
        self.sites[i].inbox.clear();
        self.sites[i].store.crash();
        let ends: Vec<End> = self.wires.keys().copied().filter(|e| e.0 == i).collect();
        for end in ends {
            self.break_wire(end);
        }
        self.sites[i].sessions.clear();
    }

    fn break_wire(&mut self, end: End) {
        let Some(other) = self.wires.remove(&end) else { return };
        self.wires.remove(&other);
        for (i, conn) in [end, other] {
            self.air.remove(&(i, conn));
            let site = &mut self.sites[i];
            if let Some(mut session) = site.sessions.remove(&conn) {
                let mut out = SessionOut::default();
                session.step(self.now, SessionInput::Eof, &mut out);
                for request in out.requests {
                    site.store.request(conn, request);
                }
                site.inbox.extend(out.events.into_iter().map(|e| Input::Session(conn, e)));
                site.store.conn_ended(conn);
                if site.pump.is_some() {
                    site.inbox.push_back(Input::Closed { conn, why: "reset".into() });
                }
            }
        }
    }

    fn dial(&mut self, from: usize, to: &str) {
        let j = self.index(to);
        let from_name = self.sites[from].config.name.clone();
        if self.sites[j].pump.is_none() {
            let site = self.site_number(from, to);
            let why = "connection refused".to_string();
            self.sites[from].inbox.push_back(Input::DialFailed { site, why, reached: false });
            return;
        }
        let (a, b) = (self.attach(from, to, true), self.attach(j, &from_name, false));
        self.wires.insert(a, b);
        self.wires.insert(b, a);
        for (i, conn) in [a, b] {
            self.feed(i, conn, SessionInput::Open);
        }
    }

    fn site_number(&self, i: usize, name: &str) -> consign_core::id::SiteNo {
        let position = self.sites[i].config.peers.iter().position(|p| p.name == name).unwrap();
        consign_core::id::SiteNo(position as u32 + 1)
    }

    fn attach(&mut self, i: usize, peer: &str, dialled: bool) -> End {
        let site = &mut self.sites[i];
        site.next_conn += 1;
        let conn = ConnId { slot: 0, generation: site.next_conn };
        let not_after = self.now.wall.0 + 86_400_000;
        let identity = Identity { name: peer.to_string(), fingerprint: [0; 32], not_after };
        let info =
            ConnInfo { conn, remote: peer.into(), uid: None, identity: Some(identity.clone()) };
        site.sessions.insert(conn, PeerSession::new(&info, session_config(&site.config)));
        site.inbox.push_back(Input::Connected { conn, identity, dialled });
        (i, conn)
    }

    /// One input of a session, and everything that follows from it but time.
    fn feed(&mut self, i: usize, conn: ConnId, input: SessionInput<'_>) {
        let mut out = SessionOut::default();
        let site = &mut self.sites[i];
        let Some(session) = site.sessions.get_mut(&conn) else { return };
        session.step(self.now, input, &mut out);
        session.step(self.now, SessionInput::Room(256 << 10), &mut out);
        session.step(self.now, SessionInput::Handed(u64::MAX), &mut out);
        self.carry(i, conn, out);
    }

    fn carry(&mut self, i: usize, conn: ConnId, out: SessionOut) {
        let bytes = out.pieces().collect::<Vec<_>>().concat();
        let site = &mut self.sites[i];
        let answers = out.requests.into_iter().filter_map(|r| site.store.request(conn, r));
        self.answers.extend(answers.map(|answer| ((i, conn), answer)));
        site.inbox.extend(out.events.into_iter().map(|e| Input::Session(conn, e)));
        if let Some(other) = self.wires.get(&(i, conn)) {
            self.air.entry(*other).or_default().extend(bytes);
        }
        if out.close {
            self.break_wire((i, conn));
        }
    }

    /// Everything that can happen without time passing, in a fixed order.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            let mut busy = false;
            while let Some(((i, conn), answer)) = self.answers.pop_front() {
                self.feed(i, conn, SessionInput::Store(answer));
                busy = true;
            }
            for i in 0..self.sites.len() {
                busy |= self.turn(i);
            }
            busy |= self.fly();
            if !busy {
                return;
            }
        }
        panic!("the world does not come to rest");
    }

    fn turn(&mut self, i: usize) -> bool {
        let site = &mut self.sites[i];
        let Some(pump) = &mut site.pump else { return false };
        let mut outbox = Outbox::default();
        let mut inputs = std::mem::take(&mut site.inbox);
        let busy = !inputs.is_empty();
        let deadline = pump.turn(self.now, &mut inputs.drain(..), &mut outbox);
        let busy =
            busy || !outbox.actions.is_empty() || deadline.is_some_and(|d| d <= self.now.mono);
        if let Some(batch) = outbox.batch {
            let answer = site.store.commit(&batch);
            site.inbox.push_back(answer);
        }
        for action in outbox.actions {
            self.act(i, action);
        }
        busy || !self.sites[i].inbox.is_empty()
    }

    fn act(&mut self, i: usize, action: Action) {
        match action {
            Action::Command(conn, command) => self.feed(i, conn, SessionInput::Command(command)),
            Action::Read(number, request) => {
                let result = self.sites[i].store.read(&request);
                self.sites[i].inbox.push_back(Input::Read(number, result));
            }
            Action::Errand(errand) => {
                let site = &mut self.sites[i];
                site.inbox.extend(site.store.errand(errand));
            }
            Action::Dial { name, .. } => self.dial(i, &name),
            Action::Note(note) => self.write_down(i, note),
            Action::Reload(_) => {}
            Action::Export(job) => panic!("no site here has a rule: {job:?}"),
            Action::Drained => {}
            Action::Halt(why) => panic!("{} halted: {why}", self.sites[i].config.name),
        }
    }

    fn write_down(&mut self, i: usize, note: Note) {
        if let Note::Delivery { id, peer, from, to, cause, attempts, .. } = &note {
            let name = self.names.get(id).cloned().unwrap_or_default();
            let word = |s: &Option<consign_core::ledger::rows::State>| {
                s.map_or("none".to_string(), |s| format!("{s:?}"))
            };
            let cause = cause.map_or(String::new(), |c| format!(" ({c})"));
            let site = &self.sites[i].config.name;
            let line =
                format!("{site} {name} {peer}: {} -> {} #{attempts}{cause}", word(from), word(to));
            self.trace.push(line);
        }
        self.sites[i].notes.push(note);
    }

    /// Bytes arrive, a mouthful at each end.
    fn fly(&mut self) -> bool {
        let ends: Vec<End> = self.air.keys().copied().collect();
        let mut busy = false;
        for end in ends {
            let Some(bytes) = self.air.get_mut(&end).filter(|b| !b.is_empty()) else { continue };
            let mut n = bytes.len().min(self.mouthful);
            if let Some(left) = &mut self.cut_after {
                n = n.min(*left);
                *left -= n;
            }
            let chunk: Vec<u8> = bytes.drain(..n).collect();
            self.feed(end.0, end.1, SessionInput::Bytes(&chunk));
            if let Some((i, conn)) = self.wires.get(&end).copied() {
                self.feed(i, conn, SessionInput::Room(0));
            }
            busy = true;
            if self.cut_after == Some(0) {
                self.cut_after = None;
                for end in self.wires.keys().copied().collect::<Vec<_>>() {
                    self.break_wire(end);
                }
                return true;
            }
        }
        busy
    }

    /// Time passes in steps of 100 ms.
    pub fn wait(&mut self, d: Duration) {
        let until = self.now.mono.after(d);
        while self.now.mono < until {
            let step = Duration::from_millis(100);
            self.now = Now { mono: self.now.mono.after(step), wall: self.now.wall.after(step) };
            for i in 0..self.sites.len() {
                self.sites[i].inbox.push_back(Input::Timer);
                let conns: Vec<ConnId> = self.sites[i].sessions.keys().copied().collect();
                for conn in conns {
                    let due = self.sites[i].sessions[&conn].next_deadline();
                    if due.is_some_and(|at| at <= self.now.mono) {
                        self.feed(i, conn, SessionInput::Timer);
                    }
                }
            }
            self.run();
        }
    }

    /// A local client hands in a segment; returns its id once it is queued, or the refusal's code.
    pub fn send(
        &mut self,
        from: &str,
        name: &str,
        body: &[u8],
        to: &[&str],
    ) -> Result<SegmentId, String> {
        let i = self.index(from);
        let digest = BlobDigest(*blake3::hash(body).as_bytes());
        let meta = Meta { name: name.to_string(), ..Meta::default() };
        let id = segment_id(&meta, &digest);
        self.names.insert(id, name.to_string());
        let site = &mut self.sites[i];
        site.next_conn += 1;
        let conn = ConnId { slot: 1, generation: site.next_conn };
        let ticket = TransferNo(1);
        site.inbox.push_back(Input::Opened { conn });
        let content = if body.len() <= consign_core::limits::INLINE_MAX {
            let handle = Handle { conn, number: 1 };
            site.store.request(conn, StoreRequest::Park { handle, data: body.to_vec().into() });
            Content::Parked(handle)
        } else {
            let size = Some(body.len() as u64);
            let event = SessionEvent::Reserve { ticket, size };
            let Promise::Accept { blob, .. } = self.local(i, conn, event)? else { panic!() };
            let store = &mut self.sites[i].store;
            store.request(conn, StoreRequest::Create { blob, offset: 0 });
            store.request(conn, StoreRequest::Write { blob, data: body.to_vec().into() });
            store.request(conn, StoreRequest::Finish { blob });
            Content::Blob(blob)
        };
        let to = Destinations::named(to.iter().map(|n| n.to_string()).collect()).unwrap();
        let size = body.len() as u64;
        let submission =
            Box::new(Submission { meta, to, id, digest, size, content, watched: None });
        self.local(i, conn, SessionEvent::Submit { ticket, submission })?;
        self.sites[i].inbox.push_back(Input::Closed { conn, why: String::new() });
        self.run();
        Ok(id)
    }

    /// Puts one local event to a node and waits for what it is told.
    fn local(&mut self, i: usize, conn: ConnId, event: SessionEvent) -> Result<Promise, String> {
        self.sites[i].inbox.push_back(Input::Session(conn, event));
        for _ in 0..100 {
            let site = &mut self.sites[i];
            let mut outbox = Outbox::default();
            let mut inputs = std::mem::take(&mut site.inbox);
            site.pump.as_mut().unwrap().turn(self.now, &mut inputs.drain(..), &mut outbox);
            if let Some(batch) = outbox.batch {
                let answer = site.store.commit(&batch);
                site.inbox.push_back(answer);
            }
            let mut told = None;
            for action in outbox.actions {
                match action {
                    Action::Command(c, SessionCommand::Promised(p)) if c == conn => {
                        told = Some(Ok(p.into_inner()));
                    }
                    Action::Command(c, SessionCommand::Refuse { refusal, .. }) if c == conn => {
                        told = Some(Err(refusal.word().to_string()));
                    }
                    other => self.act(i, other),
                }
            }
            if let Some(told) = told {
                return told;
            }
        }
        panic!("no answer to a local client");
    }

    /// Content of a segment at a site, as it is durable there.
    pub fn content(&self, at: &str, id: SegmentId) -> Option<Vec<u8>> {
        let site = &self.sites[self.index(at)];
        let snapshot = site.store.snapshot();
        let seq: IdRow = read::row(&snapshot, Table::Ids, &keys::id(&id)).unwrap()?;
        let row: SegmentRow =
            read::row(&snapshot, Table::Segments, &keys::seq(seq.seq)).unwrap()?;
        match row.body {
            Body::Inline(body) => {
                let snapshot: &dyn consign_core::store::Snapshot = &snapshot;
                snapshot.get(Table::Bodies, &keys::body(body)).unwrap().map(<[u8]>::to_vec)
            }
            Body::Blob(blob) => {
                site.store.files().find(|(n, _)| *n == blob).map(|(_, file)| file.data.clone())
            }
        }
    }

    /// The trace so far, without site names that differ between runs; clears it.
    pub fn take_trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trace)
    }
}
