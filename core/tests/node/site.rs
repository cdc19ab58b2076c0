//! One site without sockets: a pump, a store in memory, and peers played by the test.

// Two test binaries share it, and each uses its part.
#![allow(dead_code)]

#[path = "offers.rs"]
mod offers;

use std::collections::VecDeque;
use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::config::{Config, PeerConfig};
use consign_core::id::{BlobDigest, ConnId, Handle, SegmentId, Seq, SiteNo, TransferNo};
use consign_core::ledger::check::{self, Finding, Watch};
use consign_core::ledger::read::{self, ReadRequest, Recovery};
use consign_core::ledger::rows::{DeliveryRow, SegmentRow};
use consign_core::ledger::{Table, codec, keys};
use consign_core::limits::{ACT_BATCH_ROWS, BATCH_BYTES, BATCH_ROWS};
use consign_core::mem::MemStore;
use consign_core::node::{Action, Input, Node, Note};
use consign_core::pump::{Outbox, Pump};
use consign_core::segment::{Class, Destinations, Meta, segment_id};
use consign_core::session::{
    Content, Identity, Outcome, PeerLimits, Promise, Sending, SessionCommand, SessionEvent,
    Submission,
};
use consign_core::store::{Batch, Errand, Snapshot, StoreFault, StoreRequest};
use consign_core::time::{Instant, Now, UnixMillis};
use consign_core::wire::Offer;

pub use offers::{accepted, offer_blob, offer_inline, to_alpha, write};

/// What the pump hands out.
pub struct Site {
    pub pump: Pump,
    pub store: MemStore,
    pub now: Now,
    pub config: Config,
    inbox: VecDeque<Input>,
    outbox: Outbox,
    /// What sessions were told.
    pub told: VecDeque<(ConnId, SessionCommand)>,
    pub notes: Vec<Note>,
    pub dials: Vec<String>,
    /// Reloads that clients asked for.
    pub reloads: Vec<u64>,
    /// Tasks for the exporter that were not answered yet.
    pub exports: VecDeque<consign_core::inbox::ExportJob>,
    /// Pages of a table that were read, and how many rows each had.
    pub pages: Vec<(Table, usize)>,
    pub halted: Option<String>,
    pub drained: bool,
    /// How often it had the disk looked at.
    pub looks: u64,
    /// Whether answers to scans of due deliveries are held back.
    pub hold_due: bool,
    /// Answers to the look-ups of identities are held back.
    pub hold_lookups: bool,
    /// Whether looks at the oldest rows of a table wait until the test lets them go.
    pub hold_oldest: bool,
    /// Whether the start's looks at content wait until the test lets them go.
    pub hold_checks: bool,
    /// What the scrub finds is told only when the test lets it go.
    pub hold_scrubs: bool,
    /// The content folder whose sweep is left to the test.
    pub hold_sweep: Option<u8>,
    /// Removals of files that fail.
    pub fail_unlinks: u32,
    pub held: Vec<Input>,
    looks_held: Vec<Action>,
    next_conn: u32,
}

pub const START: u64 = 1_800_000_000_000;

pub fn config(peers: &[&str]) -> Config {
    let peer = |name: &&str| PeerConfig::new(*name, format!("{name}.example:7400"));
    Config {
        name: "alpha".into(),
        peers: peers.iter().map(peer).collect(),
        min_free: 0,
        ..Config::default()
    }
}

impl Site {
    pub fn new(peers: &[&str]) -> Site {
        Site::with(config(peers))
    }

    pub fn with(config: Config) -> Site {
        Site::on(MemStore::new(), config, Now { mono: Instant(1), wall: UnixMillis(START) })
    }

    /// A site that starts on what a store holds.
    pub fn on(store: MemStore, config: Config, now: Now) -> Site {
        let recovery = recovery(&store);
        let node = Node::recover(config.clone(), recovery, now).unwrap();
        Site {
            pump: Pump::new(node),
            store,
            now,
            config,
            inbox: VecDeque::new(),
            outbox: Outbox::default(),
            told: VecDeque::new(),
            notes: Vec::new(),
            dials: Vec::new(),
            reloads: Vec::new(),
            exports: VecDeque::new(),
            pages: Vec::new(),
            halted: None,
            drained: false,
            looks: 0,
            hold_due: false,
            hold_lookups: false,
            hold_checks: false,
            hold_scrubs: false,
            hold_oldest: false,
            hold_sweep: None,
            fail_unlinks: 0,
            held: Vec::new(),
            looks_held: Vec::new(),
            next_conn: 1,
        }
    }

    /// The process dies now and starts again on what is durable.
    pub fn restart(mut self) -> Site {
        self.store.crash();
        let mut next = Site::on(self.store, self.config, self.now);
        next.next_conn = self.next_conn;
        next
    }

    pub fn input(&mut self, input: Input) {
        self.inbox.push_back(input);
    }

    /// One turn of the pump; its actions go to where they belong, the batch waits.
    pub fn turn(&mut self) -> Option<Instant> {
        let mut inputs = std::mem::take(&mut self.inbox);
        let deadline = self.pump.turn(self.now, &mut inputs.drain(..), &mut self.outbox);
        while let Some(action) = self.outbox.actions.pop_front() {
            self.act(action);
        }
        deadline
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Command(conn, command) => self.told.push_back((conn, command)),
            Action::Read(_, ReadRequest::Oldest(..)) if self.hold_oldest => {
                self.looks_held.push(action);
            }
            Action::Read(number, request) => {
                let hold = match request {
                    ReadRequest::Due { .. } => self.hold_due,
                    ReadRequest::Lookup(_) => self.hold_lookups,
                    _ => false,
                };
                let answer = self.store.read(&request);
                if let (ReadRequest::Rows { table, .. }, Ok(answer)) = (&request, &answer)
                    && let read::Answer::Rows { rows, .. } = &answer.body
                {
                    self.pages.push((*table, rows.len()));
                }
                let answer = Input::Read(number, answer);
                if hold {
                    self.held.push(answer);
                } else {
                    self.inbox.push_back(answer);
                }
            }
            Action::Errand(Errand::Sweep { folder, .. }) if self.hold_sweep == Some(folder) => {}
            Action::Errand(Errand::Unlink(blob)) if self.fail_unlinks > 0 => {
                self.fail_unlinks -= 1;
                let result = Err(StoreFault::Io("input/output error".into()));
                self.inbox.push_back(Input::Unlinked { blob, result });
            }
            Action::Errand(Errand::Check(_)) if self.hold_checks => {
                self.looks_held.push(action);
            }
            Action::Errand(errand @ Errand::Scrub { .. }) if self.hold_scrubs => {
                self.held.extend(self.store.errand(errand));
            }
            Action::Errand(errand) => {
                self.looks += u64::from(matches!(errand, Errand::Probe | Errand::Look));
                self.inbox.extend(self.store.errand(errand));
            }
            Action::Dial { name, .. } => self.dials.push(name),
            Action::Reload(number) => self.reloads.push(number),
            Action::Export(job) => self.exports.push_back(*job),
            Action::Note(note) => self.notes.push(note),
            Action::Drained => self.drained = true,
            Action::Halt(why) => self.halted = Some(why),
        }
    }

    /// Whether a batch has been handed over and not been committed yet.
    pub fn has_batch(&self) -> bool {
        self.outbox.batch.is_some()
    }

    /// Inputs that wait for the next turn.
    pub fn has_inputs(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// The store commits, or fails to commit, what was handed over.
    pub fn commit(&mut self) {
        if let Some(batch) = self.outbox.batch.take() {
            let most = if batch.acts { ACT_BATCH_ROWS } else { BATCH_ROWS };
            assert!(batch.rows() <= most, "{} rows", batch.rows());
            assert!(batch.bytes() <= BATCH_BYTES, "{} bytes", batch.bytes());
            let answer = self.store.commit(&batch);
            self.inbox.push_back(answer);
        }
    }

    /// As [`Site::commit`], by a store that answers as the test says.
    pub fn commit_by(&mut self, store: impl FnOnce(&mut MemStore, &Batch) -> Input) {
        let batch = self.outbox.batch.take().expect("a batch is handed over");
        let answer = store(&mut self.store, &batch);
        self.inbox.push_back(answer);
    }

    /// Answers that were held back arrive, and looks that were are made.
    pub fn let_go(&mut self) {
        (self.hold_due, self.hold_lookups, self.hold_checks) = (false, false, false);
        self.inbox.extend(self.held.drain(..));
        (self.hold_oldest, self.hold_scrubs) = (false, false);
        for look in std::mem::take(&mut self.looks_held) {
            self.act(look);
        }
    }

    /// Turns and commits until nothing happens any more without time passing.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let deadline = self.turn();
            self.commit();
            let at_once = deadline.is_some_and(|at| at <= self.now.mono);
            if self.inbox.is_empty() && !at_once {
                return;
            }
        }
        panic!("the node does not come to rest");
    }

    /// Time passes.
    pub fn wait(&mut self, d: Duration) {
        self.now = Now { mono: self.now.mono.after(d), wall: self.now.wall.after(d) };
        self.input(Input::Timer);
        self.settle();
    }

    pub fn conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId { slot: self.next_conn % 7, generation: self.next_conn }
    }

    /// A peer connects; whether it was this side that dialled.
    pub fn connect(&mut self, name: &str, dialled: bool) -> ConnId {
        let conn = self.conn();
        let identity = Identity {
            name: name.to_string(),
            fingerprint: [7; 32],
            not_after: self.now.wall.0 + 86_400_000,
        };
        self.input(Input::Connected { conn, identity, dialled });
        conn
    }

    pub fn hello(&mut self, conn: ConnId, name: &str) {
        self.hello_with(conn, name, 64);
    }

    pub fn hello_with(&mut self, conn: ConnId, name: &str, max_offers: u32) {
        let limits = PeerLimits { name: name.to_string(), max_segment: None, max_offers };
        self.input(Input::Session(conn, SessionEvent::Ready(limits)));
    }

    /// A peer's session from the handshake to its HELLO.
    pub fn session(&mut self, name: &str) -> ConnId {
        let conn = self.connect(name, true);
        self.settle();
        let started =
            self.promises().iter().any(|(c, p)| *c == conn && matches!(p, Promise::Start { .. }));
        assert!(started, "no start for {name}");
        self.hello(conn, name);
        conn
    }

    /// A local client is there.
    pub fn client(&mut self) -> ConnId {
        let conn = self.conn();
        self.input(Input::Opened { conn });
        conn
    }

    pub fn submit(
        &mut self,
        client: ConnId,
        ticket: u32,
        name: &str,
        to: &[&str],
        class: Class,
    ) -> SegmentId {
        let body = format!("content of {name}").into_bytes();
        self.submit_body(client, ticket, name, to, class, body)
    }

    pub fn submit_body(
        &mut self,
        client: ConnId,
        ticket: u32,
        name: &str,
        to: &[&str],
        class: Class,
        body: Vec<u8>,
    ) -> SegmentId {
        let digest = BlobDigest(*blake3::hash(&body).as_bytes());
        let meta = Meta { name: name.to_string(), class, ..Meta::default() };
        let id = segment_id(&meta, &digest);
        let handle = Handle { conn: client, number: ticket };
        let size = body.len() as u64;
        self.store.request(client, StoreRequest::Park { handle, data: body.into() });
        let to = match to {
            ["*"] => Destinations::All,
            names => Destinations::named(names.iter().map(|n| n.to_string()).collect()).unwrap(),
        };
        let content = Content::Parked(handle);
        let submission =
            Box::new(Submission { meta, to, id, digest, size, content, watched: None });
        self.input(Input::Session(
            client,
            SessionEvent::Submit { ticket: TransferNo(ticket), submission },
        ));
        id
    }

    /// Submits and waits until it is queued.
    pub fn queue(&mut self, name: &str, to: &[&str]) -> SegmentId {
        let client = self.client();
        let id = self.submit(client, 1, name, to, Class::Normal);
        self.settle();
        let told = self.take_told(client);
        let queued = matches!(&told[..], [SessionCommand::Promised(_)]);
        assert!(queued, "{name}: {told:?}");
        self.input(Input::Closed { conn: client, why: String::new() });
        id
    }

    /// Submits a file of `size` bytes and waits until it is queued.
    pub fn queue_file(&mut self, name: &str, to: &str, class: Class, size: usize) -> SegmentId {
        let client = self.client();
        let ticket = TransferNo(1);
        let reserve = SessionEvent::Reserve { ticket, size: Some(size as u64) };
        self.input(Input::Session(client, reserve));
        self.settle();
        let (blob, _, _) = accepted(self);
        let body = name.as_bytes().iter().copied().cycle().take(size).collect::<Vec<u8>>();
        write(self, client, blob, 0, &body);
        self.store.request(client, StoreRequest::Finish { blob });
        let digest = BlobDigest(*blake3::hash(&body).as_bytes());
        let meta = Meta { name: name.to_string(), class, ..Meta::default() };
        let id = segment_id(&meta, &digest);
        let to = Destinations::named(vec![to.to_string()]).unwrap();
        let (size, content) = (size as u64, Content::Blob(blob));
        let submission =
            Box::new(Submission { meta, to, id, digest, size, content, watched: None });
        self.input(Input::Session(client, SessionEvent::Submit { ticket, submission }));
        self.settle();
        self.input(Input::Closed { conn: client, why: String::new() });
        id
    }

    /// An offer as a peer would make it.
    pub fn make_offer(name: &str, body: &[u8], transfer: u32, to: Destinations) -> Offer {
        let digest = BlobDigest(*blake3::hash(body).as_bytes());
        let meta = Meta { name: name.to_string(), ..Meta::default() };
        Offer {
            transfer: TransferNo(transfer),
            id: segment_id(&meta, &digest),
            digest,
            size: body.len() as u64,
            to,
            origin: "beta".into(),
            origin_seq: 1,
            hops: 1,
            meta,
        }
    }

    /// What one connection was told since the last look.
    pub fn take_told(&mut self, conn: ConnId) -> Vec<SessionCommand> {
        let (mine, others): (Vec<_>, Vec<_>) = self.told.drain(..).partition(|(c, _)| *c == conn);
        self.told = others.into();
        mine.into_iter().map(|(_, command)| command).collect()
    }

    /// Promises kept since the last look, in order.
    pub fn promises(&mut self) -> Vec<(ConnId, Promise)> {
        let mut promises = Vec::new();
        self.told.retain(|(conn, command)| match command {
            SessionCommand::Promised(promised) => {
                promises.push((*conn, promised.clone().into_inner()));
                false
            }
            _ => true,
        });
        promises
    }

    /// Attempts handed to sessions since the last look.
    pub fn sendings(&mut self) -> Vec<(ConnId, Sending)> {
        let sends = self.promises().into_iter().filter_map(|(conn, promise)| match promise {
            Promise::Send(sending) => Some((conn, *sending)),
            _ => None,
        });
        sends.collect()
    }

    pub fn outcome(&mut self, conn: ConnId, transfer: TransferNo, outcome: Outcome) {
        self.input(Input::Session(conn, SessionEvent::Outcome { transfer, outcome }));
    }

    pub fn rejected(refusal: Refusal) -> Outcome {
        Outcome::Rejected { code: refusal.number(), retry_after: 0, text: refusal.word().into() }
    }

    /// The oldest segment with this identity. By its row: an id is forgotten once content is lost.
    pub fn found(&self, id: SegmentId) -> Option<(Seq, SegmentRow)> {
        let mut found = None;
        let mut visit = |key: &[u8], value: &[u8]| {
            let row: SegmentRow = codec::decode(Table::Segments, key, value).unwrap();
            if row.id == id {
                found = Some((Seq(keys::parse_u64(key).unwrap()), row));
            }
            found.is_none()
        };
        self.store.snapshot().scan(Table::Segments, &[], &mut visit).unwrap();
        found
    }

    /// The row of a delivery as it is durable.
    pub fn delivery(&self, id: SegmentId, peer: &str) -> Option<DeliveryRow> {
        let (seq, _) = self.found(id)?;
        let key = keys::delivery(seq, self.site(peer));
        read::row(&self.store.snapshot(), Table::Deliveries, &key).unwrap()
    }

    pub fn segment(&self, id: SegmentId) -> Option<SegmentRow> {
        self.found(id).map(|(_, row)| row)
    }

    pub fn site(&self, peer: &str) -> SiteNo {
        let all = recovery(&self.store);
        all.peers.iter().find(|(_, row)| row.name == peer).unwrap().0
    }
}

/// What `fsck` finds in the ledger.
pub fn findings(store: &MemStore) -> Vec<Finding> {
    struct All(Vec<Finding>);
    impl Watch for All {
        fn found(&mut self, finding: Finding) {
            self.0.push(finding);
        }
        fn read(&mut self, _: Table, _: u64) {}
    }
    let mut all = All(Vec::new());
    check::check(&store.snapshot(), UnixMillis(START), &[], &mut all).unwrap();
    all.0
}

pub fn recovery(store: &MemStore) -> Recovery {
    match store.read(&ReadRequest::Recovery).unwrap().body {
        consign_core::ledger::read::Answer::Recovery(recovery) => *recovery,
        other => panic!("{other:?}"),
    }
}
