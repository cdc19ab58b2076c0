//! A node on a store in memory, stepped by hand under a recorder, with a peer that takes everything.

use std::collections::VecDeque;
use std::time::Duration;

use consign_core::config::{Config, PeerConfig};
use consign_core::id::{ConnId, Handle, TransferNo};
use consign_core::ledger::read::{Answer, ReadRequest};
use consign_core::mem::MemStore;
use consign_core::node::{Action, Input, Node};
use consign_core::plant::Plant;
use consign_core::pump::{Outbox, Pump};
use consign_core::segment::{Destinations, Meta, segment_id};
use consign_core::session::{
    Content, Identity, Outcome, PeerLimits, Promise, SessionCommand, SessionEvent, Submission,
};
use consign_core::store::StoreRequest;
use consign_core::time::{Instant, Now, UnixMillis};

use crate::record::Recording;

const LOCAL: ConnId = ConnId { slot: 1, generation: 1 };
const PEER: ConnId = ConnId { slot: 2, generation: 2 };

/// A site with one peer, `beta`.
pub(super) struct Site {
    number: u32,
    recording: Recording,
    store: MemStore,
    now: Now,
    pump: Option<Pump>,
    inbox: VecDeque<Input>,
    submitted: u32,
    /// A bug on purpose.
    pub(super) plant: Option<Plant>,
    pub(super) acked: u32,
}

fn config(name: &str) -> Config {
    let beta = PeerConfig::new("beta", "beta.example:7400");
    Config { name: name.into(), peers: vec![beta], min_free: 0, ..Config::default() }
}

impl Site {
    pub(super) fn new(recording: &Recording, number: u32) -> Site {
        let mut store = MemStore::new();
        store.set_capacity(1 << 40);
        let now = Now { mono: Instant(1), wall: UnixMillis(1_796_064_245_000) };
        let (inbox, pump, plant) = (VecDeque::new(), None, None);
        let recording = recording.clone();
        Site { number, recording, store, now, pump, inbox, submitted: 0, plant, acked: 0 }
    }

    /// A life begins.
    pub(super) fn start(&mut self) {
        let Ok(Answer::Recovery(recovery)) =
            self.store.read(&ReadRequest::Recovery).map(|r| r.body)
        else {
            panic!("an empty store is read")
        };
        let name = format!("site-{}", self.number);
        let config = Config { plant: self.plant, ..config(&name) };
        let recorder = self.recording.start(self.number, &config, &recovery, self.now);
        let node = Node::recover(config, *recovery, self.now).expect("a good configuration");
        let mut pump = Pump::new(node);
        pump.set_tap(Some(Box::new(recorder)));
        self.pump = Some(pump);
        self.inbox.push_back(Input::Opened { conn: LOCAL });
        let identity = Identity { name: "beta".into(), fingerprint: [7; 32], not_after: u64::MAX };
        self.inbox.push_back(Input::Connected { conn: PEER, identity, dialled: true });
        self.settle();
    }

    /// The process dies.
    pub(super) fn kill(&mut self) {
        self.pump = None;
        self.inbox.clear();
        self.store.crash();
    }

    /// A local client hands in a segment, and it is delivered.
    pub(super) fn send(&mut self, content: &[u8]) {
        self.submitted += 1;
        let handle = Handle { conn: LOCAL, number: self.submitted };
        let data = bytes::Bytes::copy_from_slice(content);
        self.store.request(LOCAL, StoreRequest::Park { handle, data });
        let name = format!("segment-{}", self.submitted);
        let meta = Meta { name, ..Meta::default() };
        let digest = consign_core::id::BlobDigest(*blake3::hash(content).as_bytes());
        let submission = Submission {
            id: segment_id(&meta, &digest),
            meta,
            to: Destinations::named(vec!["beta".into()]).expect("a name"),
            digest,
            size: content.len() as u64,
            content: Content::Parked(handle),
            watched: None,
        };
        let ticket = TransferNo(self.submitted);
        let event = SessionEvent::Submit { ticket, submission: Box::new(submission) };
        self.inbox.push_back(Input::Session(LOCAL, event));
        self.settle();
    }

    /// Everything happens that can happen, a millisecond a turn.
    fn settle(&mut self) {
        for _ in 0..2_000 {
            let mut hands = Outbox::default();
            let pump = self.pump.as_mut().expect("it lives");
            pump.turn(self.now, &mut self.inbox.drain(..), &mut hands);
            let step = Duration::from_millis(1);
            self.now = Now { mono: self.now.mono.after(step), wall: self.now.wall.after(step) };
            let quiet = hands.actions.is_empty() && hands.batch.is_none();
            if let Some(batch) = hands.batch {
                self.inbox.push_back(self.store.commit(&batch));
            }
            for action in hands.actions {
                self.act(action);
            }
            if quiet && self.inbox.is_empty() {
                return;
            }
        }
        panic!("it never settles");
    }

    fn act(&mut self, action: Action) {
        let event = match action {
            Action::Command(conn, SessionCommand::Promised(promised)) => {
                match promised.into_inner() {
                    Promise::Start { .. } => SessionEvent::Ready(PeerLimits {
                        name: "beta".into(),
                        max_segment: None,
                        max_offers: 64,
                    }),
                    Promise::Send(sending) if conn == PEER => {
                        self.acked += 1;
                        let transfer = sending.offer.transfer;
                        SessionEvent::Outcome { transfer, outcome: Outcome::Acked }
                    }
                    _ => return,
                }
            }
            Action::Read(number, request) => {
                let read = self.store.read(&request);
                return self.inbox.push_back(Input::Read(number, read));
            }
            Action::Errand(errand) => return self.inbox.extend(self.store.errand(errand)),
            Action::Halt(why) => panic!("halted: {why}"),
            Action::Command(..)
            | Action::Dial { .. }
            | Action::Reload(_)
            | Action::Export(_)
            | Action::Note(_)
            | Action::Drained => return,
        };
        self.inbox.push_back(Input::Session(PEER, event));
    }
}
