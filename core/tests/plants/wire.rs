//! Sessions: what may be sent, what counts as an answer, and what is told about content.

use std::time::Duration;

use consign_core::config::Config;
use consign_core::gate::Promised;
use consign_core::id::{BlobNo, BodyNo, ConnId, Epoch, Seq, TransferNo};
use consign_core::ledger::Table;
use consign_core::ledger::rows::Body;
use consign_core::limits::CREDIT_START;
use consign_core::plant::Plant;
use consign_core::session::peer::PeerSession;
use consign_core::session::{
    ConnInfo, Identity, Outcome, Promise, Sending, Session, SessionCommand, SessionConfig,
    SessionEvent, SessionInput, SessionOut,
};
use consign_core::store::{StoreEvent, StoreRequest};
use consign_core::time::{Instant, Now, UnixMillis};
use consign_core::wire::{Frame, Hello, VERSION, encode, encode_offer, encode_segment};

use crate::site::{START, Site, to_alpha};
use crate::story::{End, promise};
use crate::world::{World, config, session_config};

/// Many small bodies cross on one session, more than a window holds.
pub fn small_bodies(plant: Option<Plant>) -> End {
    let site = |name, peer| Config {
        plant,
        session_bytes: CREDIT_START,
        buffered_bytes: 1 << 20,
        ..config(name, &[peer])
    };
    let mut world = World::new(vec![site("alpha", "beta"), site("beta", "alpha")]);
    world.start("alpha");
    world.start("beta");
    for i in 0..40 {
        world.send("alpha", &format!("n{i}"), &[i; 20_000], &["beta"]).unwrap();
    }
    world.wait(Duration::from_secs(1));
    let owed = world.sites[0].store.rows(Table::Owed);
    promise(owed == 0, || format!("{owed} segments wait for credit that never comes back"))
}

const EVERY: u64 = 4_096;

/// A session with a peer that has said HELLO, and the same from this side.
struct Ready {
    session: PeerSession,
    now: Now,
}

impl Ready {
    fn new(plant: Option<Plant>, epoch: Epoch) -> Ready {
        let identity = Identity { name: "beta".into(), fingerprint: [0; 32], not_after: u64::MAX };
        let conn = ConnId { slot: 0, generation: 1 };
        let info = ConnInfo { conn, remote: "beta".into(), uid: None, identity: Some(identity) };
        let config: SessionConfig = session_config(&Config { plant, ..config("alpha", &["beta"]) });
        let session = PeerSession::with_checkpoints(&info, config, EVERY);
        let now = Now { mono: Instant(1), wall: UnixMillis(START) };
        let mut ready = Ready { session, now };
        ready.step(SessionInput::Open);
        ready.keep(Promise::Start { epoch, allowance: CREDIT_START });
        let hello = Hello {
            version: VERSION,
            name: "beta".into(),
            epoch: Epoch { boot: 1, session: 1 },
            max_segment: None,
            credit: CREDIT_START,
            max_offers: 16,
            features: Vec::new(),
        };
        let mut bytes = Vec::new();
        encode(&Frame::Hello(hello), &mut bytes);
        let out = ready.step(SessionInput::Bytes(&bytes));
        assert!(matches!(&out.events[..], [SessionEvent::Ready(_)]), "{:?}", out.events);
        ready
    }

    fn step(&mut self, input: SessionInput<'_>) -> SessionOut {
        let mut out = SessionOut::default();
        self.session.step(self.now, input, &mut out);
        out
    }

    fn keep(&mut self, promise: Promise) -> SessionOut {
        let command = SessionCommand::Promised(Promised::for_tests(promise));
        self.step(SessionInput::Command(command))
    }
}

/// A segment is offered under the number that another one had on the session before, and the ACK of
/// that one comes late.
pub fn late_ack(plant: Option<Plant>) -> End {
    let (before, after) = (Epoch { boot: 3, session: 1 }, Epoch { boot: 3, session: 2 });
    let mut ready = Ready::new(plant, after);
    let body = b"content";
    let offer = Site::make_offer("one", body, 1, to_alpha());
    let (transfer, id) = (offer.transfer, offer.id);
    let body_row = Body::Inline(BodyNo(1));
    ready.keep(Promise::Send(Box::new(Sending { seq: Seq(1), offer, body: body_row })));
    let data = Ok(body.to_vec().into());
    ready.step(SessionInput::Store(StoreEvent::Content { ticket: transfer, offset: 0, data }));
    let out = ready.step(SessionInput::Room(1 << 20));
    assert!(!out.bytes.is_empty(), "it is offered");
    let mut bytes = Vec::new();
    encode(&Frame::Ack { transfer, id, epoch: before }, &mut bytes);
    let out = ready.step(SessionInput::Bytes(&bytes));
    let acked = out
        .events
        .iter()
        .any(|e| matches!(e, SessionEvent::Outcome { outcome: Outcome::Acked, .. }));
    promise(!acked, || "an ACK of another session counts for this one".into())
}

/// Content arrives faster than the disk makes it durable.
pub fn early_checkpoint(plant: Option<Plant>) -> End {
    let mut ready = Ready::new(plant, Epoch { boot: 3, session: 1 });
    let body = vec![7; 100_000];
    let offer = Site::make_offer("big", &body, 1, to_alpha());
    let mut bytes = Vec::new();
    encode_offer(&offer, None, &mut bytes);
    ready.step(SessionInput::Bytes(&bytes));
    let (transfer, blob) = (TransferNo(1), BlobNo(1));
    let reserved = offer.size;
    let chain = Vec::new();
    ready.keep(Promise::Accept { transfer, blob, offset: 0, chain, reserved });
    let mut bytes = Vec::new();
    encode_segment(transfer, 0, &body[..10_000], &mut bytes);
    let out = ready.step(SessionInput::Bytes(&bytes));
    let syncs = out.requests.iter().filter(|r| matches!(r, StoreRequest::Sync { .. })).count();
    assert_eq!(syncs, 2);
    let told = |out: &SessionOut| {
        out.events.iter().filter(|e| matches!(e, SessionEvent::Checkpoint { .. })).count()
    };
    let early = told(&out);
    promise(early == 0, || format!("{early} checkpoints are told before they are durable"))?;
    let out = ready.step(SessionInput::Store(StoreEvent::Synced { blob, offset: EVERY }));
    promise(told(&out) == 1, || "a checkpoint that is durable is not told".into())
}
