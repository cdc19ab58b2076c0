//! Whatever arrives in whatever order: a session never panics, is the same function each time, and
//! is silent once it is over.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen, quickcheck};

use super::PeerSession;
use crate::code::{Goodbye, Refusal};
use crate::gate::Promised;
use crate::id::{BlobDigest, BlobNo, BodyNo, ConnId, Epoch, Seq, TransferNo};
use crate::ledger::rows::Body;
use crate::segment::{Destinations, Meta, segment_id};
use crate::session::{
    ConnInfo, Identity, Promise, Sending, Session, SessionCommand, SessionConfig, SessionInput,
    SessionOut,
};
use crate::store::{StoreEvent, StoreFault, StoreRequest};
use crate::time::{Instant, Now};
use crate::wire::tests::Owned;
use crate::wire::{Frame, Hello, Offer, VERSION, WITHDRAWN, decode, encode};

const EVERY: u64 = 4_096;

fn session() -> PeerSession {
    let identity = Identity { name: "peer".to_owned(), fingerprint: [0; 32], not_after: 0 };
    let info = ConnInfo {
        conn: ConnId { slot: 3, generation: 4 },
        remote: String::new(),
        uid: None,
        identity: Some(identity),
    };
    let config = SessionConfig {
        name: "here".to_owned(),
        ack_timeout: Duration::from_secs(60),
        max_segment: None,
        max_offers: 6,
        hello_timeout: Duration::from_secs(10),
        ping_after: Duration::from_secs(20),
        dead_after: Duration::from_secs(60),
        plant: None,
    };
    PeerSession::with_checkpoints(&info, config, EVERY)
}

fn content(size: u64) -> Vec<u8> {
    vec![7; usize::try_from(size).unwrap()]
}

fn offer(transfer: u32) -> Offer {
    let size = [0, 1, 5_000, 9_000, 70_000][transfer as usize % 5];
    let digest = BlobDigest(*blake3::hash(&content(size)).as_bytes());
    let meta = Meta { name: format!("f{transfer}"), ..Meta::default() };
    Offer {
        transfer: TransferNo(transfer),
        id: segment_id(&meta, &digest),
        digest,
        size,
        to: Destinations::All,
        origin: "peer".to_owned(),
        origin_seq: 1,
        hops: 1,
        meta,
    }
}

/// One input.
#[derive(Clone, Debug)]
enum Op {
    Wire(Vec<u8>),
    Promise(Promise),
    Command(SessionCommand),
    Store(StoreEvent),
    Room(usize),
    Wait(u64),
    Eof,
}

fn small(g: &mut Gen) -> u32 {
    1 + u32::arbitrary(g) % 9
}

/// A frame that fits what may be under way, more often than not.
fn frame(g: &mut Gen) -> Vec<u8> {
    let transfer = small(g);
    let of = offer(transfer);
    let epoch = Epoch { boot: u64::arbitrary(g) % 2, session: 0 };
    let offset = *g.choose(&[0, 0, 0, of.size, 4_096, 1]).unwrap();
    let id = of.id;
    let number = TransferNo(transfer);
    let all = content(of.size);
    let len = usize::arbitrary(g) % 6_000;
    let piece = all.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
    let piece = piece.get(..len.min(piece.len())).unwrap_or_default();
    let mut bytes = Vec::new();
    let frame = match u8::arbitrary(g) % 12 {
        0..=2 => {
            let body = (of.size <= 9_000 && bool::arbitrary(g)).then_some(all.as_slice());
            Frame::Offer(of, body)
        }
        3 | 4 if !piece.is_empty() => Frame::Segment { transfer: number, offset, data: piece },
        5 => Frame::Ack { transfer: number, id, epoch },
        6 => Frame::Accept { transfer: number, id, offset },
        7 => {
            let code = *g.choose(&[WITHDRAWN, 1, 200]).unwrap();
            let text = String::new();
            Frame::Reject { transfer: number, id, code, retry_after: 0, text }
        }
        8 => Frame::Credit { transfer: TransferNo(0), bytes: 100_000 },
        9 => Frame::Ping(b"x"),
        10 if u8::arbitrary(g) < 40 => return Owned::arbitrary(g).bytes(),
        _ => Frame::Pong(b"x"),
    };
    encode(&frame, &mut bytes);
    if u8::arbitrary(g).is_multiple_of(40) {
        bytes.truncate(bytes.len() / 2);
    }
    bytes
}

fn stored(g: &mut Gen) -> StoreEvent {
    let blob = BlobNo(u64::from(small(g)));
    let fault = StoreFault::Full("full".to_owned());
    match u8::arbitrary(g) % 6 {
        0 | 1 => StoreEvent::Written { blob, bytes: u64::arbitrary(g) % 10_000 },
        2 => StoreEvent::Synced { blob, offset: 4_096 * (u64::arbitrary(g) % 3) },
        3 => StoreEvent::Finished { blob, size: offer(small(g)).size },
        4 => StoreEvent::WriteFailed { blob, fault },
        _ => {
            let ticket = TransferNo(small(g));
            let data = Bytes::from(content(offer(ticket.0).size));
            let data = if bool::arbitrary(g) { Ok(data) } else { Err(fault) };
            StoreEvent::Content { ticket, offset: 0, data }
        }
    }
}

impl Arbitrary for Op {
    fn arbitrary(g: &mut Gen) -> Op {
        let transfer = TransferNo(small(g));
        let id = offer(transfer.0).id;
        match u8::arbitrary(g) % 24 {
            0..=8 => Op::Wire(frame(g)),
            9 | 10 => Op::Promise(Promise::Ack { transfer, id }),
            11 | 12 => {
                let blob = BlobNo(u64::from(transfer.0));
                let offset = *g.choose(&[0, 0, 4_096]).unwrap();
                Op::Promise(Promise::Accept { transfer, blob, offset, chain: vec![], reserved: 0 })
            }
            13 => {
                let (refusal, text) = (Refusal::Busy, String::new().into());
                Op::Command(SessionCommand::Refuse { transfer, id, refusal, retry_after: 0, text })
            }
            14 => Op::Command(SessionCommand::Allowance(u64::arbitrary(g) % 500_000)),
            15..=17 => Op::Store(stored(g)),
            18 | 19 => Op::Room(usize::arbitrary(g) % 200_000),
            20 => Op::Wait(u64::arbitrary(g) % 30_000),
            21 | 22 => {
                let offer = offer(small(g));
                let number = u64::from(offer.transfer.0);
                let inline = bool::arbitrary(g) && offer.size <= 65_536;
                let body = if inline { Body::Inline(BodyNo(1)) } else { Body::Blob(BlobNo(1)) };
                Op::Promise(Promise::Send(Box::new(Sending { seq: Seq(number), offer, body })))
            }
            _ => match u8::arbitrary(g) {
                0..=3 => Op::Eof,
                4..=7 => {
                    let text = String::new();
                    Op::Command(SessionCommand::Close { why: Goodbye::Age, text })
                }
                _ => Op::Room(usize::MAX),
            },
        }
    }
}

/// Runs the inputs; everything that came of each, as text.
fn run(ops: &[Op], ready: bool) -> Vec<String> {
    outs(ops, ready, usize::MAX).iter().map(|out| format!("{out:?}")).collect()
}

/// Runs the inputs, what arrives in pieces of so many bytes; everything that came of each.
fn outs(ops: &[Op], ready: bool, piece: usize) -> Vec<SessionOut> {
    let mut session = session();
    let mut seen = Vec::new();
    let mut now = Now { mono: Instant(1), ..Now::default() };
    let mut last = TransferNo(0);
    let mut over = false;
    let mut step = |session: &mut PeerSession, now: Now, input: SessionInput<'_>| {
        let mut out = SessionOut::default();
        session.step(now, input, &mut out);
        assert!(!over || out.is_empty(), "{out:?} after the end");
        over |= out.close;
        seen.push(out);
    };
    step(&mut session, now, SessionInput::Open);
    if ready {
        let promise = Promise::Start { epoch: Epoch::default(), allowance: 100_000 };
        step(&mut session, now, promised(promise));
        let hello = Hello {
            version: VERSION,
            name: "peer".to_owned(),
            epoch: Epoch::default(),
            max_segment: None,
            credit: 100_000,
            max_offers: 4,
            features: vec![],
        };
        let mut bytes = Vec::new();
        encode(&Frame::Hello(hello), &mut bytes);
        step(&mut session, now, SessionInput::Bytes(&bytes));
    }
    for op in ops {
        let deadline = session.next_deadline();
        match op.clone() {
            Op::Wire(bytes) => {
                for bytes in bytes.chunks(piece) {
                    step(&mut session, now, SessionInput::Bytes(bytes));
                }
            }
            Op::Promise(Promise::Send(sending)) if sending.offer.transfer <= last => {}
            Op::Promise(promise) => {
                if let Promise::Send(sending) = &promise {
                    last = sending.offer.transfer;
                }
                step(&mut session, now, promised(promise));
            }
            Op::Command(command) => step(&mut session, now, SessionInput::Command(command)),
            Op::Store(event) => step(&mut session, now, SessionInput::Store(event)),
            Op::Room(room) => {
                step(&mut session, now, SessionInput::Room(room));
                step(&mut session, now, SessionInput::Handed(u64::MAX));
            }
            Op::Wait(ms) => {
                now.mono = now.mono.after(Duration::from_millis(ms));
                if deadline.is_some_and(|at| at <= now.mono) {
                    step(&mut session, now, SessionInput::Timer);
                    // A timer that has fired does not fire again at once.
                    assert!(session.next_deadline().is_none_or(|at| at > now.mono));
                }
            }
            Op::Eof => step(&mut session, now, SessionInput::Eof),
        }
    }
    seen
}

fn promised(promise: Promise) -> SessionInput<'static> {
    SessionInput::Command(SessionCommand::Promised(Promised::for_tests(promise)))
}

#[derive(Debug, PartialEq, Eq)]
struct Sum {
    events: String,
    requests: Vec<(String, Vec<u8>)>,
    frames: Vec<String>,
}

/// What came of all inputs together: what the node hears, what the store is given, what the peer is told. When
/// credit is returned and in how many pieces content is handed on depends on how it came.
fn sum(outs: &[SessionOut]) -> Sum {
    let events: Vec<_> = outs.iter().flat_map(|out| &out.events).collect();
    let mut requests: Vec<(String, Vec<u8>)> = Vec::new();
    for request in outs.iter().flat_map(|out| &out.requests) {
        let (what, data) = match request {
            StoreRequest::Write { blob, data } => (format!("write {blob}"), data.to_vec()),
            other => (format!("{other:?}"), Vec::new()),
        };
        match requests.last_mut() {
            Some((last, all)) if *last == what && !data.is_empty() => all.extend(data),
            Some(_) | None => requests.push((what, data)),
        }
    }
    let said: Vec<&[u8]> = outs.iter().flat_map(SessionOut::pieces).collect();
    let bytes = said.concat();
    let (mut frames, mut rest) = (Vec::new(), bytes.as_slice());
    while let Some((used, frame)) = decode(rest).expect("it says nothing else") {
        if !matches!(frame, Frame::Credit { .. }) {
            frames.push(format!("{frame:?}"));
        }
        rest = &rest[used..];
    }
    Sum { events: format!("{events:?}"), requests, frames }
}

quickcheck! {
    fn in_whatever_pieces_it_arrives_it_is_taken_alike(ops: Vec<Op>, more: Vec<Op>, piece: u16) -> bool {
        let ops = [ops, more].concat();
        let whole = sum(&outs(&ops, true, usize::MAX));
        [usize::from(piece).max(1), 1 + usize::from(piece) % 30]
            .iter()
            .all(|piece| sum(&outs(&ops, true, *piece)) == whole)
    }

    fn whatever_arrives_it_holds_and_is_the_same_each_time(ops: Vec<Op>, more: Vec<Op>) -> bool {
        let ops = [ops, more].concat();
        run(&ops, true) == run(&ops, true)
    }

    fn before_hello_it_holds_too(ops: Vec<Op>) -> bool {
        run(&ops, false) == run(&ops, false)
    }
}

#[test]
fn an_idle_session_keeps_no_partial_frame() {
    let mut session = session();
    let mut out = SessionOut::default();
    let now = Now::default();
    session.step(now, SessionInput::Open, &mut out);
    let mut bytes = Vec::new();
    encode(&Frame::Goodbye { code: 1, text: "x".repeat(500) }, &mut bytes);
    let (head, tail) = bytes.split_at(300);
    session.step(now, SessionInput::Bytes(head), &mut out);
    assert_eq!(session.partial.capacity(), bytes.len());
    session.step(now, SessionInput::Bytes(tail), &mut out);
    assert_eq!(session.partial.capacity(), 0);
}

#[test]
fn a_hostile_length_sets_nothing_aside() {
    let mut session = session();
    let mut out = SessionOut::default();
    session.step(Now::default(), SessionInput::Open, &mut out);
    for byte in [0, 1, 0xff, 0xff] {
        session.step(Now::default(), SessionInput::Bytes(&[byte]), &mut out);
        assert!(session.partial.capacity() <= 8, "{}", session.partial.capacity());
    }
    // 131,071 bytes are a length, but not of a HELLO.
    session.step(Now::default(), SessionInput::Bytes(&[1]), &mut out);
    assert!(out.close && session.partial.capacity() == 0);
}
