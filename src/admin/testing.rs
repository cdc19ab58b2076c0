//! A site in memory for tests: a real node and a store in memory behind one local connection.

use std::collections::VecDeque;

use consign_core::config::{Config, PeerConfig};
use consign_core::driver::MakeSession;
use consign_core::http::{Client, Limits, Outgoing, Payload, Reply};
use consign_core::id::{BatchNo, BlobDigest, BodyNo, ConnId, SegmentId, SiteNo};
use consign_core::ledger::read::{Answer, ReadRequest};
use consign_core::ledger::rows::{Body, MetaName, MetaRow, PeerRow, SegmentRow};
use consign_core::ledger::{Table, keys};
use consign_core::mem::MemStore;
use consign_core::node::{Action, Input, Node};
use consign_core::pump::{Host, Pump};
use consign_core::segment::{Destinations, Meta};
use consign_core::session::{ConnInfo, Session, SessionCommand, SessionInput, SessionOut};
use consign_core::store::{Batch, StoreEvent};
use consign_core::time::{Instant, Now, UnixMillis};

use super::{AdminContext, make};

/// The user of the daemon in these tests.
pub(crate) const UID: u32 = 1000;
const CONN: ConnId = ConnId { slot: 3, generation: 7 };

/// What the node wants done.
#[derive(Default)]
struct Wants {
    actions: Vec<Action>,
    batches: Vec<Batch>,
}

impl Host for Wants {
    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }
    fn commit(&mut self, batch: Batch) {
        self.batches.push(batch);
    }
}

enum ForSession {
    Command(SessionCommand),
    Store(StoreEvent),
}

/// The site.
pub(crate) struct Site {
    pub(crate) pump: Pump,
    pub(crate) store: MemStore,
    pub(crate) session: Box<dyn Session>,
    /// Whether the client takes what is said.
    pub(crate) reads: bool,
    said: u64,
    handed: u64,
    pub(crate) now: Now,
    /// What the session has written.
    pub(crate) out: Vec<u8>,
    pub(crate) closed: bool,
    /// Every event of the session, and every request to the store.
    pub(crate) log: Vec<String>,
    /// Commits wait until this is false again.
    pub(crate) hold_commits: bool,
    /// Answers of the store to writes wait until this is false again.
    pub(crate) hold_writes: bool,
    /// Bulk bytes that the socket takes whenever everything else is done.
    pub(crate) room: usize,
    batches: VecDeque<Batch>,
    writes: Vec<StoreEvent>,
    for_node: VecDeque<Input>,
    for_session: VecDeque<ForSession>,
}

/// An answer as a client reads it.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
    /// It is whole.
    pub(crate) whole: bool,
}

impl Got {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a body of JSON")
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().expect("a code").into()
    }
}

pub(crate) fn context() -> AdminContext {
    AdminContext {
        version: "0.1.0".into(),
        runtime: "smol".into(),
        uid: UID,
        inline_max: 65_536,
        reloads: Default::default(),
        limits: Limits::default(),
        inbox: Default::default(),
        watch: Default::default(),
        exporting: Default::default(),
        events: Default::default(),
        meters: Default::default(),
        web_names: vec!["relay.example".into()],
        web: Some(([127, 0, 0, 1], 7411).into()),
        links: Default::default(),
        strangers: Default::default(),
    }
}

pub(crate) fn config() -> Config {
    let peer = |name: &str| PeerConfig::new(name, format!("{name}.example:7400"));
    Config {
        name: "alpha".into(),
        peers: vec![peer("beta"), peer("gamma")],
        min_free: 0,
        ..Config::default()
    }
}

/// A ledger that knows beta as 1 and gamma as 2, and whatever else is filled in.
pub(crate) fn ledger(fill: impl FnOnce(&mut Batch)) -> MemStore {
    filled(|batch| {
        for (site, name) in [(1, "beta"), (2, "gamma")] {
            let (pin, held) = (Vec::new(), false);
            let row = PeerRow { name: name.into(), pin, held, last_acked: None, forgotten: None };
            batch.put(Table::Peers, &keys::site(SiteNo(site)), &row);
        }
        fill(batch);
    })
}

/// A ledger of one batch.
pub(crate) fn filled(fill: impl FnOnce(&mut Batch)) -> MemStore {
    let mut batch = Batch::new(BatchNo(1));
    fill(&mut batch);
    batch.put(Table::Meta, MetaName::Batch.key(), &MetaRow { value: 1 });
    let mut store = MemStore::new();
    store.set_capacity(1 << 40);
    let done = store.commit(&batch);
    assert!(matches!(done, Input::Committed { .. }), "{done:?}");
    store
}

/// A segment of an inline body, for every peer.
pub(crate) fn segment_row(seq: u64) -> SegmentRow {
    SegmentRow {
        id: SegmentId([seq as u8; 32]),
        digest: BlobDigest([7; 32]),
        size: 10,
        body: Body::Inline(BodyNo(seq)),
        meta: Meta { name: format!("n{seq}"), ..Meta::default() },
        to: Destinations::All,
        here: false,
        origin: String::new(),
        origin_seq: seq,
        hops: 0,
        accepted_at: 0,
        required: 1,
        acked: 0,
        relayed_at: None,
        held: false,
        from: 0,
        loss: None,
        let_go: None,
        askers: Vec::new(),
        unplaced: None,
    }
}

impl Site {
    pub(crate) fn new() -> Site {
        Site::with(config(), &make(context()), Some(UID))
    }

    pub(crate) fn with(config: Config, make: &MakeSession, uid: Option<u32>) -> Site {
        Site::on(MemStore::new(), config, make, uid)
    }

    /// A site that starts on what a store holds.
    pub(crate) fn on(
        mut store: MemStore,
        config: Config,
        make: &MakeSession,
        uid: Option<u32>,
    ) -> Site {
        store.set_capacity(1 << 40);
        let now = Now { mono: Instant::ZERO, wall: UnixMillis(1_796_064_245_000) };
        let Ok(Answer::Recovery(recovery)) = store.read(&ReadRequest::Recovery).map(|r| r.body)
        else {
            panic!("the store is read")
        };
        let node = Node::recover(config, *recovery, now).expect("a good configuration");
        let info = ConnInfo { conn: CONN, remote: "test".into(), uid, identity: None };
        let mut site = Site {
            pump: Pump::new(node),
            store,
            session: make(&info),
            reads: true,
            said: 0,
            handed: 0,
            now,
            out: Vec::new(),
            closed: false,
            log: Vec::new(),
            hold_commits: false,
            hold_writes: false,
            room: 64 << 10,
            batches: VecDeque::new(),
            writes: Vec::new(),
            for_node: VecDeque::from([Input::Opened { conn: CONN }]),
            for_session: VecDeque::new(),
        };
        site.step(SessionInput::Open);
        site.settle();
        site
    }

    fn step(&mut self, input: SessionInput<'_>) {
        let mut out = SessionOut::default();
        self.session.step(self.now, input, &mut out);
        for request in out.requests {
            self.log.push(format!("{request:?}"));
            if let Some(event) = self.store.request(CONN, request) {
                match event {
                    StoreEvent::Written { .. } if self.hold_writes => self.writes.push(event),
                    event => self.for_session.push_back(ForSession::Store(event)),
                }
            }
        }
        for event in out.events {
            self.log.push(format!("{event:?}").split(['{', '(']).next().unwrap().trim().into());
            self.for_node.push_back(Input::Session(CONN, event));
        }
        self.said += out.bytes.len() as u64;
        self.out.extend_from_slice(&out.bytes);
        self.closed |= out.close;
    }

    /// Lets everything happen that can happen.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.hold_writes {
                self.for_session.extend(self.writes.drain(..).map(ForSession::Store));
            }
            if let Some(input) = self.for_session.pop_front() {
                match input {
                    ForSession::Command(command) => self.step(SessionInput::Command(command)),
                    ForSession::Store(event) => self.step(SessionInput::Store(event)),
                }
                continue;
            }
            if self.turn() {
                continue;
            }
            if self.reads && self.handed < self.said {
                self.handed = self.said;
                self.step(SessionInput::Handed(self.said));
                continue;
            }
            let before = self.out.len();
            self.step(SessionInput::Room(self.room));
            if self.out.len() == before && self.for_session.is_empty() {
                return;
            }
        }
        panic!("it never settles");
    }

    /// One turn of the node; whether anything came of it.
    fn turn(&mut self) -> bool {
        if !self.hold_commits
            && let Some(batch) = self.batches.pop_front()
        {
            self.for_node.push_back(self.store.commit(&batch));
        }
        let inputs = std::mem::take(&mut self.for_node);
        let mut wants = Wants::default();
        let _ = self.pump.turn(self.now, &mut inputs.into_iter(), &mut wants);
        let quiet = wants.actions.is_empty() && wants.batches.is_empty();
        self.batches.extend(wants.batches);
        for action in wants.actions {
            match action {
                Action::Command(_, command) => {
                    self.for_session.push_back(ForSession::Command(command));
                }
                Action::Read(number, request) => {
                    self.for_node.push_back(Input::Read(number, self.store.read(&request)));
                }
                Action::Errand(errand) => self.for_node.extend(self.store.errand(errand)),
                Action::Dial { .. }
                | Action::Reload(_)
                | Action::Export(_)
                | Action::Note(_)
                | Action::Drained => {}
                Action::Halt(why) => panic!("halted: {why}"),
            }
        }
        !quiet || !self.for_node.is_empty() || (!self.hold_commits && !self.batches.is_empty())
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.step(SessionInput::Bytes(bytes));
        self.settle();
    }

    /// Asks the node to stop.
    pub(crate) fn stop(&mut self) {
        self.for_node.push_back(Input::Stop);
        self.settle();
    }

    pub(crate) fn eof(&mut self) {
        self.step(SessionInput::Eof);
        self.settle();
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        let time = std::time::Duration::from_secs(seconds);
        self.now = Now { mono: self.now.mono.after(time), wall: self.now.wall.after(time) };
        self.step(SessionInput::Timer);
        self.settle();
    }

    /// Sends a request whole and reads its answer.
    pub(crate) fn ask(&mut self, method: &str, target: &str, body: &[u8]) -> Got {
        let payload = if body.is_empty() { Payload::Empty } else { Payload::Full(body) };
        let mut bytes = Vec::new();
        let request = Outgoing {
            method,
            target,
            host: "localhost",
            headers: &[],
            payload,
            expect_continue: false,
        };
        Client::new().request(&request, &mut bytes);
        self.feed(&bytes);
        self.got(method)
    }

    /// Reads what the session has written as one answer.
    pub(crate) fn got(&mut self, method: &str) -> Got {
        let bytes = std::mem::take(&mut self.out);
        let mut client = Client::new();
        let request = Outgoing {
            method,
            target: "/",
            host: "h",
            headers: &[],
            payload: Payload::Empty,
            expect_continue: false,
        };
        client.request(&request, &mut Vec::new());
        let mut got = Got { status: 0, headers: String::new(), body: Vec::new(), whole: false };
        let mut input = bytes.as_slice();
        while let Some(reply) = client.read(&mut input).expect("an answer") {
            match reply {
                Reply::Continue => {}
                Reply::Head(head) => {
                    got.status = head.status;
                    got.headers = format!("{:?}", head.headers);
                }
                Reply::Body(data) => got.body.extend_from_slice(data),
                Reply::End => {
                    got.whole = true;
                    break;
                }
            }
        }
        assert!(input.is_empty(), "more than one answer: {:?}", input.escape_ascii().to_string());
        got
    }
}
