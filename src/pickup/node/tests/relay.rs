//! A small relay for nodes: WebSocket, tokens and fetches over real sockets.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use consign_core::http::{Conn, Event, Limits, Payload, Request, Response};
use consign_core::ledger::rows_pickup::{AckStatus, ShardState};
use consign_core::pickup::message::{
    Digests, ErrorOf, FromNode, FromRelay, PendingNotify, Registered, ShardAck, ShardStateOf,
};
use consign_core::pickup::sign::{Claim, Signable, no_body};
use consign_core::pickup::token::{TOKEN, Token};
use consign_core::pickup::ws::{self, Message, Reader, Side};
use consign_core::time::{Now, UnixMillis};

use crate::pickup::source::Hashes;

/// A shard of the relay's, by its index.
#[derive(Clone, Debug)]
pub(in super::super) struct Shard {
    pub(in super::super) content: Vec<u8>,
    /// What is announced.
    pub(in super::super) digest: Digests,
    pub(in super::super) state: ShardState,
    pub(in super::super) redemption: u64,
    /// In which session it was notified since it is buffered.
    notified: u64,
    /// Fetches are cut after so many bytes, one after the other.
    pub(in super::super) cuts: VecDeque<usize>,
    /// Why it failed.
    pub(in super::super) reasons: Vec<String>,
}

impl Shard {
    pub(in super::super) fn new(content: Vec<u8>) -> Shard {
        let digest = digests(&content);
        Shard {
            content,
            digest,
            state: ShardState::RelayBuffered,
            redemption: 0,
            notified: 0,
            cuts: VecDeque::new(),
            reasons: Vec::new(),
        }
    }
}

pub(in super::super) fn digests(content: &[u8]) -> Digests {
    let mut hashes = Hashes::default();
    hashes.update(content);
    let (sha256, blake3) = hashes.finish();
    Digests { sha256, blake3 }
}

#[derive(Default)]
pub(in super::super) struct State {
    pub(in super::super) public: [u8; 32],
    pub(in super::super) shards: BTreeMap<u64, Shard>,
    pub(in super::super) sessions: u64,
    /// Sessions with these numbers end right after their registration, with this code.
    pub(in super::super) ends: BTreeMap<u64, u16>,
    /// Ranges asked for, by shard.
    pub(in super::super) ranges: Vec<(u64, Option<String>)>,
    /// Answers to acks that are not given.
    pub(in super::super) swallows: u32,
    pub(in super::super) fetching: usize,
    pub(in super::super) most_fetching: usize,
}

#[derive(Clone)]
pub(in super::super) struct Relay {
    pub(in super::super) address: SocketAddr,
    pub(in super::super) shared: Arc<(Mutex<State>, Condvar)>,
}

impl Relay {
    pub(in super::super) fn new(state: State) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let relay = Relay { address, shared: Arc::new((Mutex::new(state), Condvar::new())) };
        let serving = relay.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let relay = serving.clone();
                thread::spawn(move || relay.serve(stream));
            }
        });
        relay
    }

    pub(in super::super) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().expect("no thread has panicked")
    }

    /// Waits until it is so.
    pub(in super::super) fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let time = Duration::from_secs(20);
        let waited = self.shared.1.wait_timeout_while(self.state(), time, |state| !is_so(state));
        let (state, waited) = waited.expect("no thread has panicked");
        assert!(!waited.timed_out(), "never: {what}; {:?}", state.shards);
    }

    fn serve(&self, mut stream: TcpStream) {
        let now = Now::default();
        let mut conn = Conn::new(Limits::default(), now);
        let mut buffer = [0; 16 << 10];
        while !conn.closing() {
            let Ok(got) = stream.read(&mut buffer) else { return };
            if got == 0 {
                return;
            }
            let (mut input, mut out, mut asked) = (&buffer[..got], Vec::new(), None);
            while let Some(event) = conn.read(now, &mut input, &mut out) {
                match event {
                    Event::Head(request) => asked = Some(request),
                    Event::End => {
                        let request = asked.take().expect("a head");
                        assert!(self.is_signed(&request), "{request:?}");
                        if request.target == "/ws" {
                            let key = request.headers.text("sec-websocket-key").expect("a key");
                            let accept = ws::accept_key(key);
                            let fields = [("Sec-WebSocket-Accept", accept.as_str())];
                            conn.upgrade(now, &fields, &mut out);
                            stream.write_all(&out).expect("written");
                            let _ = self.socket(stream);
                            return;
                        }
                        if !self.fetch(&request, &mut conn, &mut stream) {
                            return;
                        }
                    }
                    Event::Body(_) | Event::Raw(_) | Event::Fault(_) => panic!("{event:?}"),
                }
            }
        }
    }

    fn is_signed(&self, request: &Request) -> bool {
        let Some(claim) = Claim::of(&request.headers) else { return false };
        let signable = Signable {
            method: request.method.name(),
            authority: request.headers.text("host").unwrap_or_default(),
            target: &request.target,
            timestamp: claim.timestamp,
            nonce: claim.nonce,
            body: no_body(),
        };
        claim.node == "edge-7" && signable.is_signed(&self.state().public, &claim.signature)
    }

    /// Serves a fetch; whether the connection may be used again.
    fn fetch(&self, request: &Request, conn: &mut Conn, stream: &mut TcpStream) -> bool {
        let now = Now::default();
        let token = request.headers.text(TOKEN).and_then(Token::parse).expect("a token");
        let range = request.headers.text("range").map(str::to_owned);
        let mut state = self.state();
        let found = state.shards.iter().find(|(index, shard)| {
            token_of(**index, shard.redemption) == token && shard.state == ShardState::RelayBuffered
        });
        let Some(index) = found.map(|(index, _)| *index) else {
            drop(state);
            let mut out = Vec::new();
            let payload = Payload::Full(b"{\"code\":\"not_found\",\"message\":\"no\"}");
            conn.respond(now, &Response { status: 404, headers: &[], payload }, &mut out);
            return stream.write_all(&out).is_ok();
        };
        state.ranges.push((index, range.clone()));
        state.fetching += 1;
        state.most_fetching = state.most_fetching.max(state.fetching);
        let shard = state.shards.get_mut(&index).expect("it was found");
        shard.state = ShardState::NodeReceiving;
        let (content, cut) = (shard.content.clone(), shard.cuts.pop_front());
        drop(state);
        let from = range.as_deref().and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-'));
        let from: usize = from.map_or(0, |from| from.parse().expect("a number"));
        let (size, rest) = (content.len(), &content[from..]);
        let field = match rest.is_empty() {
            true => format!("bytes */{size}"),
            false => format!("bytes {from}-{}/{size}", size - 1),
        };
        let headers: &[(&str, &str)] =
            if range.is_some() { &[("Content-Range", &field)] } else { &[] };
        let status = if range.is_some() { 206 } else { 200 };
        let payload = Payload::Sized(rest.len() as u64);
        let mut out = Vec::new();
        conn.respond(now, &Response { status, headers, payload }, &mut out);
        let part = &rest[..cut.unwrap_or(rest.len()).min(rest.len())];
        conn.send(part, &mut out);
        let whole = cut.is_none();
        if whole {
            conn.finish(now, &mut out);
        }
        let wrote = stream.write_all(&out).is_ok();
        let mut state = self.state();
        state.fetching -= 1;
        if !(whole && wrote) {
            again(&mut state, index);
        }
        drop(state);
        self.shared.1.notify_all();
        whole && wrote
    }

    fn socket(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_millis(5)))?;
        let mut reader = Reader::new(Side::Server);
        let (mut held, mut buffer, mut session) = (Vec::new(), [0; 4096], 0);
        loop {
            let mut out = Vec::new();
            if session > 0 {
                self.notify(session, &mut out);
            }
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(got) => held.extend_from_slice(&buffer[..got]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => return Err(e),
            }
            let mut input = held.as_slice();
            while let Some(message) = reader.read(&mut input).expect("good frames") {
                match message {
                    Message::Text(text) => {
                        let said = FromNode::parse(&text).expect("a message");
                        self.said(said, &mut session, &mut out);
                    }
                    Message::Ping(payload) => ws::pong(&payload, None, &mut out),
                    Message::Pong(_) => {}
                    Message::Close(..) => return Ok(()),
                }
            }
            held = input.to_vec();
            if let Some(code) = self.state().ends.remove(&session) {
                ws::close(code, "", None, &mut out);
                stream.write_all(&out)?;
                return Ok(());
            }
            stream.write_all(&out)?;
        }
    }

    fn said(&self, said: FromNode, session: &mut u64, out: &mut Vec<u8>) {
        let mut state = self.state();
        let answer = match said {
            FromNode::Register(register) => {
                state.sessions += 1;
                *session = state.sessions;
                let owed = state.shards.len() as u64;
                FromRelay::Registered(Registered {
                    node_id: register.node_id,
                    session: *session,
                    owed,
                })
            }
            FromNode::ShardAck(ack) => {
                if state.swallows > 0 {
                    state.swallows -= 1;
                    self.shared.1.notify_all();
                    return;
                }
                acked(&mut state, ack)
            }
        };
        drop(state);
        self.shared.1.notify_all();
        ws::text(&answer.text(), None, out);
    }

    fn notify(&self, session: u64, out: &mut Vec<u8>) {
        let mut state = self.state();
        for (index, shard) in &mut state.shards {
            if shard.state != ShardState::RelayBuffered || shard.notified == session {
                continue;
            }
            shard.notified = session;
            shard.redemption += 1;
            let notify = PendingNotify {
                file_id: "a/b".into(),
                version_number: 3,
                shard_index: *index,
                buffer_id: "blob-1".into(),
                size: shard.content.len() as u64,
                digest: shard.digest,
                token: token_of(*index, shard.redemption),
                token_expires_at: UnixMillis(1_796_360_400_000),
                redemption: shard.redemption,
            };
            ws::text(&FromRelay::PendingNotify(notify).text(), None, out);
        }
    }
}

fn token_of(index: u64, redemption: u64) -> Token {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&index.to_be_bytes());
    bytes[8..16].copy_from_slice(&redemption.to_be_bytes());
    Token::new(bytes)
}

/// The shard waits for its node again.
fn again(state: &mut State, index: u64) {
    let shard = state.shards.get_mut(&index).expect("a shard");
    shard.state = ShardState::RelayBuffered;
    shard.notified = 0;
}

fn acked(state: &mut State, ack: ShardAck) -> FromRelay {
    let ShardAck { file_id, version_number, shard_index, redemption, status, reason } = ack;
    let shard = state.shards.get_mut(&shard_index).expect("a shard");
    let mine = shard.redemption == redemption;
    let repeated = mine && shard.state == ShardState::NodeStored;
    if !(repeated || mine && shard.state == ShardState::NodeReceiving) {
        return FromRelay::Error(ErrorOf {
            file_id: Some(file_id),
            version_number: Some(version_number),
            shard_index: Some(shard_index),
            redemption: Some(redemption),
            ..ErrorOf::new("stale_ack", "of another redemption")
        });
    }
    match status {
        AckStatus::Verified => shard.state = ShardState::NodeStored,
        AckStatus::Failed => {
            shard.reasons.push(reason.unwrap_or_default());
            shard.digest = digests(&shard.content);
            again(state, shard_index);
        }
    }
    let state = state.shards[&shard_index].state;
    FromRelay::ShardState(ShardStateOf { file_id, version_number, shard_index, redemption, state })
}
