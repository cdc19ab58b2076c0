//! The WebSocket of a node: upgrade, messages, signs of life.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use consign_core::pickup::message::{FromNode, FromRelay, MessageFault, Refused};
use consign_core::pickup::ws::{self, Message, Reader, Side};

use crate::exit::{Exit, Failure};
use crate::pickup::http::{Signer, Target};
use crate::pickup::random;
use crate::pickup::wire::Wire;

/// Where nodes subscribe.
const PATH: &str = "/ws";
/// How long the upgrade may take.
const UPGRADE: Duration = Duration::from_secs(20);
/// Longest head of the answer.
const HEAD_MAX: usize = 16 << 10;
/// After so long without a byte the relay is asked whether it lives.
const QUIET: Duration = Duration::from_secs(20);
/// After so long without a byte it does not.
const DEAD: Duration = Duration::from_secs(50);

/// A connection.
#[derive(Debug)]
pub(super) struct Ws {
    wire: Wire,
    reader: Reader,
    heard: Instant,
    asked: bool,
}

/// What came.
#[derive(Debug)]
pub(super) enum Came {
    /// A message.
    Message(Box<FromRelay>),
    /// One that is not understood.
    Strange(MessageFault),
    /// Nothing more for now.
    Nothing,
}

fn lost(why: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Unreachable, "CN0825", format!("the relay's connection is lost: {why}"))
}

impl Ws {
    /// Connects and upgrades.
    pub(super) fn open(target: &Target, signer: &Signer) -> Result<Ws, Failure> {
        let mut wire = target.wire().map_err(|e| target.unreachable(&e))?;
        let key = STANDARD.encode(random::<16>()?);
        let mut head = format!(
            "GET {PATH} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n",
            target.relay.authority
        );
        for (name, value) in signer.fields("GET", &target.relay, PATH)? {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        wire.queue().extend_from_slice(head.as_bytes());
        let until = Instant::now() + UPGRADE;
        let end = loop {
            let end = wire.input.windows(4).position(|w| w == b"\r\n\r\n");
            if let Some(at) = end {
                break at + 4;
            }
            if wire.input.len() > HEAD_MAX {
                return Err(lost("the head of its answer is too long"));
            }
            step(&mut wire, until)?;
        };
        let head: Vec<u8> = wire.input.drain(..end).collect();
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut reply = httparse::Response::new(&mut fields);
        let parsed = reply.parse(&head);
        parsed.map_err(|e| lost(format!("its answer is no HTTP: {e}")))?;
        let field = |name: &str| {
            let field = reply.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
            field.and_then(|field| std::str::from_utf8(field.value).ok()).map(str::trim)
        };
        let status = reply.code.unwrap_or_default();
        if status != 101 {
            let len = field("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
            return Err(refused(&mut wire, status, len, until));
        }
        if field("sec-websocket-accept") != Some(ws::accept_key(&key).as_str()) {
            return Err(lost("its answer belongs to another request"));
        }
        let reader = Reader::new(Side::Client);
        Ok(Ws { wire, reader, heard: Instant::now(), asked: false })
    }

    /// Says something.
    pub(super) fn say(&mut self, message: &FromNode) -> Result<(), Failure> {
        let mask = random()?;
        ws::text(&message.text(), Some(mask), self.wire.queue());
        Ok(())
    }

    /// Says that this side closes, as far as that leaves at once.
    pub(super) fn close(mut self, code: u16) {
        if let Ok(mask) = random() {
            ws::close(code, "", Some(mask), self.wire.queue());
            let until = Instant::now() + Duration::from_secs(1);
            while !self.wire.is_flushed() && Instant::now() < until {
                if self.wire.pump(until, None).is_err() {
                    return;
                }
            }
        }
    }

    /// The next thing that has arrived.
    pub(super) fn next(&mut self) -> Result<Came, Failure> {
        loop {
            let bytes = std::mem::take(&mut self.wire.input);
            let mut input = bytes.as_slice();
            let message = self.reader.read(&mut input);
            let used = bytes.len() - input.len();
            self.wire.input = bytes;
            self.wire.input.drain(..used);
            match message.map_err(lost)? {
                None if self.wire.ended().is_some() => return Err(lost("it has ended")),
                None => return Ok(Came::Nothing),
                Some(Message::Text(text)) => {
                    return Ok(match FromRelay::parse(&text) {
                        Ok(message) => Came::Message(Box::new(message)),
                        Err(fault) => Came::Strange(fault),
                    });
                }
                Some(Message::Ping(payload)) => {
                    ws::pong(&payload, Some(random()?), self.wire.queue());
                }
                Some(Message::Pong(_)) => {}
                Some(Message::Close(code, reason)) => return Err(closed(code, &reason)),
            }
        }
    }

    /// Moves bytes, and waits for that, or for the bell, or for the next sign of life that is due.
    pub(super) fn pump(&mut self, until: Instant, bell: BorrowedFd<'_>) -> Result<(), Failure> {
        let now = Instant::now();
        let quiet = now.duration_since(self.heard);
        if quiet >= DEAD {
            return Err(lost(format!("not a byte has come for {} s", DEAD.as_secs())));
        }
        if quiet >= QUIET && !self.asked {
            self.asked = true;
            ws::ping(b"", Some(random()?), self.wire.queue());
        }
        let due = self.heard + if self.asked { DEAD } else { QUIET };
        let moved = self.wire.pump(until.min(due), Some(bell)).map_err(lost)?;
        if moved.read {
            self.heard = Instant::now();
            self.asked = false;
        }
        Ok(())
    }
}

fn step(wire: &mut Wire, until: Instant) -> Result<(), Failure> {
    if Instant::now() >= until {
        return Err(lost("it does not answer"));
    }
    if wire.ended().is_some() {
        let e = io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before it answered");
        return Err(lost(e));
    }
    wire.pump(until, None).map_err(lost)?;
    Ok(())
}

/// Why the relay does not upgrade.
fn refused(wire: &mut Wire, status: u16, len: usize, until: Instant) -> Failure {
    let until = until.min(Instant::now() + Duration::from_secs(2));
    while wire.input.len() < len.min(HEAD_MAX) && step(wire, until).is_ok() {}
    let body = wire.input.get(..len.min(wire.input.len())).unwrap_or_default();
    let refused: Refused = serde_json::from_slice(body).unwrap_or_else(|_| Refused {
        code: format!("status_{status}"),
        message: "the relay refuses".into(),
    });
    let text = format!("{} ({})", refused.message, refused.code);
    match status {
        401 | 403 => Failure::new(Exit::NotPermitted, "CN0826", text)
            .help("is this node's key enrolled at the relay, and are both clocks right?"),
        _ => lost(text),
    }
}

/// What a close means.
fn closed(code: Option<u16>, reason: &str) -> Failure {
    let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
    match code {
        Some(ws::REPLACED) => {
            let text = "another process has registered as this node";
            Failure::new(Exit::Failed, "CN0829", text).help("one node has one key and one process")
        }
        Some(ws::POLICY) => {
            let text = format!("the relay has closed the session: {reason}");
            Failure::new(Exit::NotPermitted, "CN0826", text)
        }
        Some(code) => lost(format!("the relay has closed it ({code}) {reason}").trim_end()),
        None => lost("the relay has closed it"),
    }
}
