//! Sessions against a scripted node and store.

mod fetch;
mod requests;
mod resume;
mod socket;
mod upload;
mod wire;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use core::time::Duration;

use bytes::Bytes;

use super::*;
use crate::gate::Promised;
use crate::id::{BlobDigest, BlobNo, ConnId};
use crate::ledger::rows::Body;
use crate::ledger::rows_pickup::{NodeKey, NodeRow, ShardState};
use crate::ledger::{Table, codec, keys_pickup};
use crate::pickup::{Answer, Command, PickupRefusal, Serve, ShardView, sign};
use crate::session::{Promise, SessionCommand};
use crate::store::{Snapshot, StoreEvent, StoreRequest};
use crate::time::UnixMillis;

/// The private key of node `n`.
const SECRET: [u8; 32] = [5; 32];
/// A client's token.
const BEARER: &str = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

/// One row of `nodes`, and nothing else.
struct Rows {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Rows {
    fn new() -> Rows {
        let keys = [[9; 32], sign::public_key(&SECRET)];
        let keys = keys.map(|public| NodeKey { public, enrolled_at: 1 }).to_vec();
        let row = NodeRow {
            keys,
            enrolled_at: 1,
            revoked_at: None,
            registered_at: None,
            tokens_from: None,
        };
        let key = keys_pickup::node("n").as_slice().to_vec();
        let mut value = Vec::new();
        codec::encode(Table::Nodes, &key, &row, &mut value);
        Rows { key, value }
    }
}

impl Snapshot for Rows {
    fn as_of(&self) -> crate::id::BatchNo {
        crate::id::BatchNo(1)
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreFault> {
        Ok((table == Table::Nodes && key == self.key).then_some(self.value.as_slice()))
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

/// A file of the scripted store.
#[derive(Clone, Debug, Default)]
struct File {
    data: Vec<u8>,
    open: bool,
}

/// A session with a store that answers and a node that only listens.
struct Bench {
    session: PickupSession,
    now: Now,
    /// What it has said.
    out: Vec<u8>,
    events: VecDeque<Event>,
    requests: Vec<String>,
    files: BTreeMap<u64, File>,
    parked: Vec<Vec<u8>>,
    /// Answers of the store wait here while it is held.
    answers: VecDeque<StoreEvent>,
    hold_store: bool,
    fail_writes: Option<StoreFault>,
    closed: bool,
    cut: bool,
    said: u64,
    /// Bytes the kernel may take; `None` takes everything.
    window: Option<u64>,
    handed: u64,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(context())
    }

    fn with(context: PickupContext) -> Bench {
        let info = ConnInfo {
            conn: ConnId { slot: 3, generation: 7 },
            remote: "r".into(),
            uid: None,
            identity: None,
        };
        let mut next = 0u8;
        let random = Box::new(move |bytes: &mut [u8]| {
            next += 1;
            bytes.fill(next);
        });
        let now = Now { mono: Instant::ZERO, wall: UnixMillis(1_796_064_245_000) };
        let mut bench = Bench {
            session: PickupSession::new(Arc::new(context), info, random),
            now,
            out: Vec::new(),
            events: VecDeque::new(),
            requests: Vec::new(),
            files: BTreeMap::new(),
            parked: Vec::new(),
            answers: VecDeque::new(),
            hold_store: false,
            fail_writes: None,
            closed: false,
            cut: false,
            said: 0,
            window: None,
            handed: 0,
        };
        bench.step(SessionInput::Open);
        bench
    }

    fn step(&mut self, input: SessionInput<'_>) {
        if self.closed {
            return;
        }
        let mut out = SessionOut::default();
        self.session.step(self.now, input, &mut out);
        self.said += out.bytes.len() as u64;
        self.out.extend_from_slice(&out.bytes);
        for request in out.requests {
            self.request(request);
        }
        for event in out.events {
            let SessionEvent::Pickup(event) = event else { panic!("{event:?}") };
            self.events.push_back(*event);
        }
        self.closed |= out.close;
        self.cut |= out.cut;
    }

    fn request(&mut self, request: StoreRequest) {
        let text = format!("{request:?}");
        self.requests.push(text);
        let event = match request {
            StoreRequest::Park { data, .. } => return self.parked.push(data.to_vec()),
            StoreRequest::Create { blob, offset } => {
                let file = self.files.entry(blob.0).or_default();
                assert!(!file.open && file.data.len() as u64 >= offset, "{blob} {offset}");
                file.data.truncate(offset as usize);
                file.open = true;
                return;
            }
            StoreRequest::Write { blob, data } => {
                let file = self.files.get_mut(&blob.0).unwrap();
                assert!(file.open);
                file.data.extend_from_slice(&data);
                match self.fail_writes.take() {
                    Some(fault) => {
                        file.open = false;
                        StoreEvent::WriteFailed { blob, fault }
                    }
                    None => StoreEvent::Written { blob, bytes: data.len() as u64 },
                }
            }
            StoreRequest::Sync { blob } => {
                StoreEvent::Synced { blob, offset: self.files[&blob.0].data.len() as u64 }
            }
            StoreRequest::Finish { blob } => {
                let file = self.files.get_mut(&blob.0).unwrap();
                file.open = false;
                StoreEvent::Finished { blob, size: file.data.len() as u64 }
            }
            StoreRequest::Abandon { blob } => {
                self.files.get_mut(&blob.0).unwrap().open = false;
                return;
            }
            StoreRequest::Read { ticket, body, offset, len } => {
                let Body::Blob(blob) = body else { panic!("{body:?}") };
                let data = match self.files.get(&blob.0) {
                    Some(file) => {
                        let from = (offset as usize).min(file.data.len());
                        let to = (from + len).min(file.data.len());
                        Ok(Bytes::copy_from_slice(&file.data[from..to]))
                    }
                    None => Err(StoreFault::Missing("gone".into())),
                };
                StoreEvent::Content { ticket, offset, data }
            }
            StoreRequest::Query { ticket, query } => {
                StoreEvent::Queried { ticket, answer: query(&Rows::new()) }
            }
        };
        self.answers.push_back(event);
    }

    /// Lets store and kernel do what is to be done.
    fn settle(&mut self) {
        loop {
            if !self.hold_store
                && let Some(event) = self.answers.pop_front()
            {
                self.step(SessionInput::Store(event));
                continue;
            }
            let taken = self.window.map_or(self.said, |window| self.said.min(window));
            if taken > self.handed {
                self.handed = taken;
                self.step(SessionInput::Handed(taken));
                continue;
            }
            let before = self.said;
            let queued = self.said.saturating_sub(self.handed);
            if queued < 128 << 10 {
                self.step(SessionInput::Room((256 << 10) - queued as usize));
            }
            if self.said == before && (self.answers.is_empty() || self.hold_store) {
                return;
            }
        }
    }

    fn feed(&mut self, bytes: impl AsRef<[u8]>) {
        self.step(SessionInput::Bytes(bytes.as_ref()));
        self.settle();
    }

    fn eof(&mut self) {
        self.step(SessionInput::Eof);
        self.settle();
    }

    /// Time passes, a second at a time, with timers when they are due.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now.mono = self.now.mono.after(Duration::from_secs(1));
            self.now.wall = self.now.wall.after(Duration::from_secs(1));
            if self.session.next_deadline().is_some_and(|at| at <= self.now.mono) {
                self.step(SessionInput::Timer);
                self.settle();
            }
        }
    }

    fn answer(&mut self, answer: Answer) {
        let promised = Promised::for_tests(Promise::Pickup(Box::new(answer)));
        self.step(SessionInput::Command(SessionCommand::Promised(promised)));
        self.settle();
    }

    fn command(&mut self, command: Command) {
        self.step(SessionInput::Command(SessionCommand::Pickup(Box::new(command))));
        self.settle();
    }

    fn refuse(&mut self, ticket: u32, refusal: PickupRefusal, number: Option<u64>) {
        let (ticket, text) = (TransferNo(ticket), "because".into());
        self.command(Command::Refuse { ticket, refusal, retry_after: 7, number, text });
    }

    fn grant(&mut self, ticket: u32, blob: u64, offset: u64, chain: &[u8], reserved: u64) {
        self.answer(Answer::Granted {
            ticket: TransferNo(ticket),
            blob: BlobNo(blob),
            offset,
            chain: chain.to_vec(),
            reserved,
            size: None,
            sha256: None,
            blake3: None,
        });
    }

    /// The next event; there must be one.
    fn event(&mut self) -> Event {
        self.events.pop_front().expect("an event")
    }

    /// What was said since the last call, as text.
    fn text(&mut self) -> String {
        String::from_utf8_lossy(&core::mem::take(&mut self.out)).into_owned()
    }

    /// The status of the one answer that was said, and all of it.
    fn status(&mut self) -> (u16, String) {
        let text = self.text();
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
        (text[9..12].parse().unwrap(), text)
    }
}

fn context() -> PickupContext {
    PickupContext::new(vec!["relay.example".into()], 1_000, 1 << 40)
}

/// The fields every upload has.
fn fields() -> String {
    format!(
        "Host: relay.example\r\nAuthorization: Bearer {BEARER}\r\nX-Nodus-File-Id: f/1\r\n\
         X-Nodus-Version: 2\r\nX-Nodus-Shard-Index: 3\r\nX-Nodus-Node-Id: n\r\n"
    )
}

/// A signed request without a body.
fn signed(target: &str, more: &str) -> String {
    signed_by(&SECRET, target, more)
}

fn signed_by(secret: &[u8; 32], target: &str, more: &str) -> String {
    let (timestamp, nonce) = (1_796_064_245, [7; 16]);
    let text = sign::Signable {
        method: "GET",
        authority: "relay.example",
        target,
        timestamp,
        nonce,
        body: sign::no_body(),
    };
    let signature = text.sign(secret);
    let claim = sign::Claim { node: "n".into(), timestamp, nonce, signature };
    let fields: String =
        claim.fields().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("GET {target} HTTP/1.1\r\nHost: relay.example\r\n{fields}{more}\r\n")
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

fn digests(data: &[u8]) -> (Sha256Digest, BlobDigest) {
    (sign::sha256(data), BlobDigest(*blake3::hash(data).as_bytes()))
}

fn shard() -> crate::ledger::keys_pickup::ShardKey {
    crate::ledger::keys_pickup::ShardKey::new("f/1", 2, 3, "n").unwrap()
}

fn view(data: &[u8]) -> Box<ShardView> {
    let (sha256, blake3) = digests(data);
    Box::new(ShardView {
        state: ShardState::RelayBuffered,
        buffer: Some(Body::Blob(BlobNo(17))),
        size: data.len() as u64,
        sha256,
        blake3,
        expires_at: Some(UnixMillis(1_796_064_245_123)),
    })
}

/// Whether the session has given its memory back.
fn is_small(bench: &Bench) -> bool {
    bench.session.held.is_empty() && bench.session.to_string_len() < 64 << 10
}

impl PickupSession {
    fn to_string_len(&self) -> usize {
        format!("{self:?}").to_string().len()
    }
}
