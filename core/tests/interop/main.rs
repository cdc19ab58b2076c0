//! A WebSocket client that others wrote against our session, over two queues of bytes in memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;

use consign_core::code::Goodbye;
use consign_core::gate::Promised;
use consign_core::id::{BatchNo, ConnId};
use consign_core::ledger::rows_pickup::{NodeKey, NodeRow};
use consign_core::ledger::{Table, codec, keys_pickup};
use consign_core::pickup::sign::{Claim, Signable, no_body, public_key};
use consign_core::pickup::{Answer, Event, PickupContext, PickupSession};
use consign_core::session::{
    ConnInfo, Promise, Session, SessionCommand, SessionEvent, SessionInput, SessionOut,
};
use consign_core::store::{Snapshot, StoreEvent, StoreFault, StoreRequest};
use consign_core::time::{Instant, Now, UnixMillis};
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::HandshakeError;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message, WebSocket};

const SECRET: [u8; 32] = [5; 32];

/// The ledger: one node.
struct Rows(Vec<u8>);

impl Snapshot for Rows {
    fn as_of(&self) -> BatchNo {
        BatchNo(1)
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreFault> {
        Ok((table == Table::Nodes && key == b"n").then_some(self.0.as_slice()))
    }

    fn scan(
        &self,
        _: Table,
        _: &[u8],
        _: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreFault> {
        Ok(())
    }
}

fn rows() -> Rows {
    let keys = vec![NodeKey { public: public_key(&SECRET), enrolled_at: 1 }];
    let row =
        NodeRow { keys, enrolled_at: 1, revoked_at: None, registered_at: None, tokens_from: None };
    let mut value = Vec::new();
    codec::encode(Table::Nodes, &keys_pickup::node("n"), &row, &mut value);
    Rows(value)
}

/// The session and what waits for the client; a node that says yes.
struct Relay {
    session: PickupSession,
    out: VecDeque<u8>,
    acks: usize,
    closed: bool,
    /// Bytes come in pieces of this many.
    piece: usize,
}

impl Relay {
    fn step(&mut self, input: SessionInput<'_>) {
        if self.closed {
            return;
        }
        let mut out = SessionOut::default();
        let now = Now { mono: Instant::ZERO, wall: UnixMillis(1_796_064_245_000) };
        self.session.step(now, input, &mut out);
        self.out.extend(out.bytes);
        self.closed |= out.close;
        for request in out.requests {
            let StoreRequest::Query { ticket, query } = request else { panic!("{request:?}") };
            let answer = query(&rows());
            self.step(SessionInput::Store(StoreEvent::Queried { ticket, answer }));
        }
        for event in out.events {
            let SessionEvent::Pickup(event) = event else { panic!("{event:?}") };
            let answer = match *event {
                Event::Subscribe { ticket, .. } => Answer::Upgraded { ticket },
                Event::Register { .. } => Answer::Registered { session: 1, owed: 0 },
                Event::Ack(ack) => {
                    self.acks += 1;
                    let state = consign_core::ledger::rows_pickup::ShardState::NodeStored;
                    Answer::State { shard: ack.shard, redemption: ack.redemption, state }
                }
                other => panic!("{other:?}"),
            };
            let promised = Promised::for_tests(Promise::Pickup(Box::new(answer)));
            self.step(SessionInput::Command(SessionCommand::Promised(promised)));
        }
    }
}

/// The client's socket.
#[derive(Clone)]
struct Wire(Rc<RefCell<Relay>>);

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut relay = self.0.borrow_mut();
        let len = into.len().min(relay.out.len()).min(relay.piece);
        if len == 0 && !relay.closed {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for byte in &mut into[..len] {
            *byte = relay.out.pop_front().expect("so many are there");
        }
        Ok(len)
    }
}

impl Write for Wire {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let mut relay = self.0.borrow_mut();
        let len = from.len().min(relay.piece);
        relay.step(SessionInput::Bytes(&from[..len]));
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client that is connected.
fn connect(piece: usize) -> (WebSocket<Wire>, Wire) {
    let context = PickupContext::new(vec!["relay.example".into()], 1_000, 1 << 40);
    let conn = ConnId { slot: 1, generation: 1 };
    let info = ConnInfo { conn, remote: "r".into(), uid: None, identity: None };
    let mut next = 0;
    let random = Box::new(move |bytes: &mut [u8]| {
        next += 1;
        bytes.fill(next);
    });
    let session = PickupSession::new(Arc::new(context), info, random);
    let relay = Relay { session, out: VecDeque::new(), acks: 0, closed: false, piece };
    let wire = Wire(Rc::new(RefCell::new(relay)));
    wire.0.borrow_mut().step(SessionInput::Open);

    let (timestamp, nonce) = (1_796_064_245, [7; 16]);
    let (authority, target, body) = ("relay.example", "/ws", no_body());
    let text = Signable { method: "GET", authority, target, timestamp, nonce, body };
    let claim = Claim { node: "n".into(), timestamp, nonce, signature: text.sign(&SECRET) };
    let mut request = "ws://relay.example/ws".into_client_request().expect("a request");
    for (name, value) in claim.fields() {
        request.headers_mut().insert(name, value.parse().expect("a value"));
    }
    let mut shaking = tungstenite::client::client(request, wire.clone());
    loop {
        match shaking {
            Ok((socket, response)) => {
                assert_eq!(response.status(), 101);
                return (socket, wire);
            }
            Err(HandshakeError::Interrupted(middle)) => shaking = middle.handshake(),
            Err(HandshakeError::Failure(why)) => panic!("{why}"),
        }
    }
}

fn text(socket: &mut WebSocket<Wire>) -> String {
    match socket.read() {
        Ok(Message::Text(text)) => text.as_str().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// The code the relay closes with.
fn closed(socket: &mut WebSocket<Wire>) -> u16 {
    loop {
        match socket.read() {
            Ok(Message::Close(frame)) => return frame.expect("a code").code.into(),
            Ok(_) => {}
            Err(why) => panic!("{why}"),
        }
    }
}

#[test]
fn a_session_as_another_client_sees_it() {
    for piece in [16, 1_000, 1_000_000] {
        let (mut socket, wire) = connect(piece);
        let register = r#"{"type":"register","node_id":"n"}"#;
        socket.send(Message::text(register)).expect("sent");
        let registered = r#"{"type":"registered","node_id":"n","session":1,"owed":0}"#;
        assert_eq!(text(&mut socket), registered);
        for n in 0..50 {
            let padding = "x".repeat(n * 1_000);
            let ack = format!(
                r#"{{"type":"shard_ack","file_id":"f","version_number":1,"shard_index":2,"redemption":{n},"status":"verified","more":"{padding}"}}"#
            );
            socket.send(Message::text(ack)).expect("sent");
            let said = text(&mut socket);
            assert!(said.contains("NODE_STORED") && said.contains(&format!(":{n},")), "{said}");
        }
        socket.send(Message::Ping(vec![7; 125].into())).expect("sent");
        assert_eq!(socket.read().expect("a pong"), Message::Pong(vec![7; 125].into()));
        assert_eq!(wire.0.borrow().acks, 50);
        socket.close(None).expect("closed");
        assert!(matches!(socket.read(), Ok(Message::Close(_))));
        assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
    }
}

#[test]
fn closes_are_understood() {
    let (mut socket, _) = connect(10);
    socket.send(Message::binary(vec![1, 2, 3])).expect("sent");
    assert_eq!(closed(&mut socket), u16::from(CloseCode::Unsupported));
    let (mut socket, _) = connect(10_000);
    // The relay closes at the header: what is written behind it may fail.
    let _ = socket.send(Message::text("x".repeat(65_537)));
    assert_eq!(closed(&mut socket), u16::from(CloseCode::Size));
    let (mut socket, wire) = connect(10);
    let (why, text) = (Goodbye::Stopping, "this site is stopping".into());
    wire.0.borrow_mut().step(SessionInput::Command(SessionCommand::Close { why, text }));
    assert_eq!(closed(&mut socket), u16::from(CloseCode::Away));
}
