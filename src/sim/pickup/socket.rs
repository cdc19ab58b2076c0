//! The WebSocket of a node, from its dial to its end.

use consign_core::pickup::message::{FromNode, FromRelay, Register, ShardAck};
use consign_core::pickup::sign::Claim;
use consign_core::pickup::ws::{self, Message, Reader, Side, accept_key};

use super::line::{Came, Line};
use super::say::{Signer, sign};
use super::{Shore, fill};
use crate::sim::time::Micros;

/// Without a byte for so long the connection is given up: the relay pings every 20 s.
const PATIENCE: u64 = 70_000_000;

const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[derive(Debug)]
enum Phase {
    Dialling,
    /// The request is out.
    Asked {
        key: String,
    },
    /// Upgraded and `register` sent.
    Open(Reader),
}

/// What has come.
#[derive(Debug)]
pub(super) enum Heard {
    /// A message.
    Said(FromRelay),
    /// The upgrade was refused, with this status.
    Refused(u16),
    /// The upgrade was answered with what is none.
    Odd(String),
}

/// A WebSocket of a node.
#[derive(Debug)]
pub(super) struct Socket {
    line: Line,
    phase: Phase,
    input: Vec<u8>,
    /// Number of the session, once registered.
    pub session: Option<u64>,
    /// With what the upgrade was signed.
    pub claim: Option<Claim>,
    /// What went out to be upgraded, to be sent again.
    pub asked: Vec<u8>,
}

impl Socket {
    pub fn dial(shore: &mut Shore<'_>) -> Socket {
        let line = Line::dial(shore);
        let (input, asked) = (Vec::new(), Vec::new());
        Socket { line, phase: Phase::Dialling, input, session: None, claim: None, asked }
    }

    pub fn line(&mut self) -> &mut Line {
        &mut self.line
    }

    /// Writes and reads; false when the connection is over.
    pub fn run(
        &mut self,
        signer: &Signer<'_>,
        shore: &mut Shore<'_>,
        heard: &mut Vec<Heard>,
    ) -> bool {
        if matches!(self.phase, Phase::Dialling) && self.line.is_up() {
            self.ask(signer, shore);
        }
        let came = self.line.run(shore, &mut self.input);
        let fine = self.read(signer, shore, heard);
        // A pong, and what is said next, leave at once.
        let came =
            if fine && came == Came::More { self.line.run(shore, &mut self.input) } else { came };
        fine && came == Came::More && self.line.heard.plus(PATIENCE) > shore.at
    }

    fn ask(&mut self, signer: &Signer<'_>, shore: &mut Shore<'_>) {
        // 16 bytes in base64: the last four bits of the last letter are none.
        let letters: String = (0..21).map(|_| char::from(*shore.rng.pick(LETTERS))).collect();
        let key = format!("{letters}A==");
        let claim = sign(shore, signer, "/ws");
        let mut text = format!("GET /ws HTTP/1.1\r\nHost: {}\r\n", shore.authority());
        for (name, value) in claim.fields() {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("Connection: Upgrade\r\nUpgrade: websocket\r\n");
        text.push_str(&format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"));
        self.line.out().extend_from_slice(text.as_bytes());
        (self.asked, self.claim) = (text.into_bytes(), Some(claim));
        self.phase = Phase::Asked { key };
    }

    fn read(&mut self, signer: &Signer<'_>, shore: &mut Shore<'_>, heard: &mut Vec<Heard>) -> bool {
        if let Phase::Asked { key } = &self.phase {
            let Some(end) = self.input.windows(4).position(|w| w == b"\r\n\r\n") else {
                return true;
            };
            let head = String::from_utf8_lossy(&self.input[..end]).into_owned();
            let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
            if status != 101 {
                heard.push(Heard::Refused(status));
                return false;
            }
            if !head.contains(&accept_key(key)) {
                heard.push(Heard::Odd(format!("an upgrade without its key: {head:?}")));
                return false;
            }
            self.input.drain(..end + 4);
            self.phase = Phase::Open(Reader::new(Side::Client));
            let node_id = signer.node.to_string();
            self.say(&FromNode::Register(Register { node_id }), shore);
        }
        let Phase::Open(reader) = &mut self.phase else { return true };
        let mut input = &self.input[..];
        let mut fine = true;
        let mut pongs = Vec::new();
        while fine {
            match reader.read(&mut input) {
                Ok(Some(Message::Text(text))) => match FromRelay::parse(&text) {
                    Ok(said) => heard.push(Heard::Said(said)),
                    Err(fault) => heard.push(Heard::Odd(format!("{fault}: {text}"))),
                },
                Ok(Some(Message::Ping(payload))) => pongs.push(payload),
                Ok(Some(Message::Pong(_))) => {}
                Ok(Some(Message::Close(..))) => fine = false,
                Ok(None) => break,
                Err(fault) => {
                    heard.push(Heard::Odd(format!("{fault}")));
                    fine = false;
                }
            }
        }
        let used = self.input.len() - input.len();
        self.input.drain(..used);
        for payload in pongs {
            let mask = mask(shore);
            ws::pong(&payload, Some(mask), self.line.out());
        }
        fine
    }

    /// Says an ack, if it is registered.
    pub fn ack(&mut self, ack: &ShardAck, shore: &mut Shore<'_>) -> bool {
        let fine = self.session.is_some() && self.line.is_up();
        if fine {
            self.say(&FromNode::ShardAck(ack.clone()), shore);
        }
        fine
    }

    fn say(&mut self, message: &FromNode, shore: &mut Shore<'_>) {
        let mask = mask(shore);
        ws::text(&message.text(), Some(mask), self.line.out());
    }

    pub fn wake(&self) -> Micros {
        self.line.wake().min(self.line.heard.plus(PATIENCE))
    }

    pub fn close(&mut self, shore: &mut Shore<'_>) {
        self.line.close(shore);
    }
}

fn mask(shore: &mut Shore<'_>) -> [u8; 4] {
    let mut mask = [0; 4];
    fill(shore.rng, &mut mask);
    mask
}
