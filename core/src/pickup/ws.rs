//! WebSocket framing (RFC 6455) without I/O, for both sides. No extension is ever negotiated.
//!
//! What arrives is judged before anything is allocated for it: a header says how long its payload is,
//! and a message that would be longer than [`MESSAGE_MAX`] is refused at its header. Between messages
//! a [`Reader`] holds no memory.
//!
//! ```text
//!  byte 0: FIN RSV1-3 opcode(4)   byte 1: MASK length(7)   0, 2 or 8 bytes of length   0 or 4 of mask
//! ```

use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// Longest message in bytes, all its fragments together.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Most fragments of a message.
pub const FRAGMENTS_MAX: u32 = 16;
/// Longest payload of a control frame (RFC 6455, 5.5).
pub const CONTROL_MAX: usize = 125;

/// The peer goes away, or the site stops.
pub const GOING_AWAY: u16 = 1001;
/// Nothing is wrong.
pub const NORMAL: u16 = 1000;
/// Against a rule of the site.
pub const POLICY: u16 = 1008;
/// A newer session of the node took its place.
pub const REPLACED: u16 = 4001;

/// The answer to `Sec-WebSocket-Key` (RFC 6455, 4.2.2).
#[must_use]
pub fn accept_key(key: &str) -> String {
    let mut sha = Sha1::new();
    sha.update(key.as_bytes());
    sha.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(sha.finalize())
}

/// Whether this can be a `Sec-WebSocket-Key`: 16 bytes of base64.
#[must_use]
pub fn is_key(key: &str) -> bool {
    STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

/// Which side reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It accepted the connection: what it reads is masked.
    Server,
    /// It opened the connection: what it reads is not masked.
    Client,
}

/// What arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A message of text.
    Text(String),
    /// To be answered by a pong with the same payload.
    Ping(Vec<u8>),
    /// An answer to a ping, or a sign of life.
    Pong(Vec<u8>),
    /// The other side closes; a code is there unless it said none.
    Close(Option<u16>, String),
}

/// What ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WsFault {
    /// Framing.
    #[error("{0}")]
    Protocol(&'static str),
    /// Binary messages have no meaning here.
    #[error("binary messages are not taken")]
    Binary,
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    Utf8,
    /// Longer than [`MESSAGE_MAX`] or in more than [`FRAGMENTS_MAX`] pieces.
    #[error("a message of more than {MESSAGE_MAX} bytes or {FRAGMENTS_MAX} fragments")]
    TooBig,
}

impl WsFault {
    /// The close code that says so (RFC 6455, 7.4.1).
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            WsFault::Protocol(_) => 1002,
            WsFault::Binary => 1003,
            WsFault::Utf8 => 1007,
            WsFault::TooBig => 1009,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opcode {
    Continuation,
    Text,
    Close,
    Ping,
    Pong,
}

/// A frame whose payload is arriving.
#[derive(Clone, Copy, Debug)]
struct Frame {
    opcode: Opcode,
    fin: bool,
    mask: [u8; 4],
    /// Payload bytes that came, and that are missing.
    came: usize,
    left: usize,
}

/// The reading half of a connection.
#[derive(Debug)]
pub struct Reader {
    side: Side,
    header: [u8; 14],
    header_len: usize,
    frame: Option<Frame>,
    /// Payload of the control frame that is arriving.
    control: Vec<u8>,
    /// The message that is arriving, and in how many fragments so far; 0 when there is none.
    message: Vec<u8>,
    fragments: u32,
}

impl Reader {
    /// A reader behind the handshake.
    #[must_use]
    pub fn new(side: Side) -> Reader {
        Reader {
            side,
            header: [0; 14],
            header_len: 0,
            frame: None,
            control: Vec::new(),
            message: Vec::new(),
            fragments: 0,
        }
    }

    /// Whether nothing of a frame or message is there.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.header_len == 0 && self.frame.is_none() && self.fragments == 0
    }

    /// Takes bytes off the front of `input` and returns the next message; `None` when more input is
    /// needed. After a fault nothing more may be read.
    ///
    /// # Errors
    /// What is wrong, with its close code.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Message>, WsFault> {
        loop {
            if self.frame.is_none() && !self.take_header(input)? {
                return Ok(None);
            }
            let Some(frame) = self.take_payload(input) else { return Ok(None) };
            if let Some(message) = self.finish(frame)? {
                return Ok(Some(message));
            }
        }
    }

    /// Takes header bytes; says whether the header is whole, and with it `frame` set.
    fn take_header(&mut self, input: &mut &[u8]) -> Result<bool, WsFault> {
        loop {
            match self.judge()? {
                Header::Whole(frame) => {
                    self.header_len = 0;
                    self.frame = Some(frame);
                    if frame.opcode.is_control() {
                        self.control.reserve_exact(frame.left);
                    } else {
                        self.fragments = self.fragments.saturating_add(1);
                    }
                    return Ok(true);
                }
                Header::More => {}
            }
            let Some((byte, rest)) = input.split_first() else { return Ok(false) };
            *input = rest;
            if let Some(place) = self.header.get_mut(self.header_len) {
                *place = *byte;
            }
            self.header_len = self.header_len.saturating_add(1);
        }
    }

    /// Judges what there is of a header.
    fn judge(&self) -> Result<Header, WsFault> {
        let [first, second, bytes @ ..] = self.header;
        if self.header_len < 2 {
            return Ok(Header::More);
        }
        let (opcode, fin) = (self.opcode(first)?, first & 0x80 != 0);
        let masked = second & 0x80 != 0;
        if masked != (self.side == Side::Server) {
            return Err(WsFault::Protocol(match self.side {
                Side::Server => "a frame is not masked",
                Side::Client => "a frame is masked",
            }));
        }
        let short = second & 0x7f;
        if opcode.is_control() && (!fin || short > 125) {
            return Err(WsFault::Protocol("a control frame is fragmented or too long"));
        }
        let extended = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if self.header_len < 2 + extended {
            return Ok(Header::More);
        }
        let left = match (short, bytes) {
            (126, [a, b, ..]) => u64::from(u16::from_be_bytes([a, b])),
            (127, [a, b, c, d, e, f, g, h, ..]) => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            (short, _) => u64::from(short),
        };
        if (extended == 2 && left < 126) || (extended == 8 && left < 65_536) {
            return Err(WsFault::Protocol("a length is not written in the shortest way"));
        }
        let left = usize::try_from(left).map_err(|_| WsFault::TooBig)?;
        let over = left > MESSAGE_MAX.saturating_sub(self.message.len());
        if !opcode.is_control() && (over || self.fragments >= FRAGMENTS_MAX) {
            return Err(WsFault::TooBig);
        }
        let wanted = 2 + extended + if masked { 4 } else { 0 };
        if self.header_len < wanted {
            return Ok(Header::More);
        }
        let mut mask = [0; 4];
        if masked {
            for (to, from) in mask.iter_mut().zip(bytes.iter().skip(extended)) {
                *to = *from;
            }
        }
        Ok(Header::Whole(Frame { opcode, fin, mask, came: 0, left }))
    }

    fn opcode(&self, first: u8) -> Result<Opcode, WsFault> {
        if first & 0x70 != 0 {
            return Err(WsFault::Protocol("a reserved bit is set"));
        }
        match (first & 0x0f, self.fragments) {
            (0, 0) => Err(WsFault::Protocol("a continuation of nothing")),
            (0, _) => Ok(Opcode::Continuation),
            (1 | 2, 1..) => Err(WsFault::Protocol("a message begins inside another")),
            (1, 0) => Ok(Opcode::Text),
            (2, 0) => Err(WsFault::Binary),
            (8, _) => Ok(Opcode::Close),
            (9, _) => Ok(Opcode::Ping),
            (10, _) => Ok(Opcode::Pong),
            (_, _) => Err(WsFault::Protocol("a reserved opcode")),
        }
    }

    /// Takes payload bytes and unmasks them; returns the frame once it is whole.
    fn take_payload(&mut self, input: &mut &[u8]) -> Option<Frame> {
        let frame = self.frame.as_mut()?;
        let (piece, rest) = input.split_at(frame.left.min(input.len()));
        *input = rest;
        let into = match frame.opcode {
            Opcode::Continuation | Opcode::Text => &mut self.message,
            Opcode::Close | Opcode::Ping | Opcode::Pong => &mut self.control,
        };
        let keys = frame.mask.iter().cycle().skip(frame.came % 4);
        into.extend(piece.iter().zip(keys).map(|(byte, key)| byte ^ key));
        frame.came = frame.came.saturating_add(piece.len());
        frame.left = frame.left.saturating_sub(piece.len());
        if frame.left > 0 { None } else { self.frame.take() }
    }

    fn finish(&mut self, frame: Frame) -> Result<Option<Message>, WsFault> {
        match frame.opcode {
            Opcode::Continuation | Opcode::Text if !frame.fin => Ok(None),
            Opcode::Continuation | Opcode::Text => {
                self.fragments = 0;
                let bytes = core::mem::take(&mut self.message);
                String::from_utf8(bytes).map(|t| Some(Message::Text(t))).map_err(|_| WsFault::Utf8)
            }
            Opcode::Ping => Ok(Some(Message::Ping(core::mem::take(&mut self.control)))),
            Opcode::Pong => Ok(Some(Message::Pong(core::mem::take(&mut self.control)))),
            Opcode::Close => closed(&core::mem::take(&mut self.control)).map(Some),
        }
    }
}

enum Header {
    More,
    Whole(Frame),
}

impl Opcode {
    fn is_control(self) -> bool {
        match self {
            Opcode::Continuation | Opcode::Text => false,
            Opcode::Close | Opcode::Ping | Opcode::Pong => true,
        }
    }
}

/// Reads the payload of a close frame.
fn closed(payload: &[u8]) -> Result<Message, WsFault> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return match payload {
            [] => Ok(Message::Close(None, String::new())),
            _ => Err(WsFault::Protocol("a close frame with half a code")),
        };
    };
    let code = u16::from_be_bytes(*code);
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(WsFault::Protocol("a close code that may not be sent"));
    }
    let reason = core::str::from_utf8(reason).map_err(|_| WsFault::Utf8)?;
    Ok(Message::Close(Some(code), reason.into()))
}

/// Appends a message of text. A client masks with four random bytes, a server does not.
pub fn text(text: &str, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    frame(0x81, text.as_bytes(), mask, out);
}

/// Appends a ping; at most [`CONTROL_MAX`] bytes of payload are sent.
pub fn ping(payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    frame(0x89, control(payload), mask, out);
}

/// Appends a pong; at most [`CONTROL_MAX`] bytes of payload are sent.
pub fn pong(payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    frame(0x8a, control(payload), mask, out);
}

/// Appends a close frame; the reason is cut to what fits.
pub fn close(code: u16, reason: &str, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let mut end = reason.len().min(CONTROL_MAX - 2);
    while !reason.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend_from_slice(reason.as_bytes().get(..end).unwrap_or_default());
    frame(0x88, &payload, mask, out);
}

fn control(payload: &[u8]) -> &[u8] {
    payload.get(..CONTROL_MAX).unwrap_or(payload)
}

fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    out.push(first);
    let bit = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        len @ 0..126 => out.push(bit | len as u8),
        len @ 126..65_536 => {
            out.push(bit | 126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            out.push(bit | 127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    match mask {
        None => out.extend_from_slice(payload),
        Some(mask) => {
            out.extend_from_slice(&mask);
            out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        }
    }
}

#[cfg(test)]
mod tests;
