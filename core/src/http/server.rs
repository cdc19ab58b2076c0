//! The serving side of a connection.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::encode::{self, Framed, LAST_CHUNK, Payload, Response};
use super::framing::{Decoder, Piece};
use super::head::{self, HeadBuffer, Kind, Method, Request, Version};
use super::told::{Tell, Told};
use super::{DRAIN_MAX, DRAIN_TIME, Fault, Limits};
use crate::time::{Instant, Now};

/// What arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// A request. Its body follows, then [`Event::End`]; it may be answered at any time.
    Head(Box<Request>),
    /// Bytes of the body, never empty.
    Body(&'i [u8]),
    /// The body is whole. Nothing more is read before the answer is finished.
    End,
    /// Bytes behind an upgrade, as they are.
    Raw(&'i [u8]),
    /// What arrived, or did not arrive, ends the connection. It has been answered if it could be; a
    /// request that was under way is over.
    Fault(Fault),
}

/// How far the client's side of the exchange is.
#[derive(Debug)]
enum Theirs {
    /// Between requests, or inside a head.
    Head,
    /// Inside a body.
    Body(Decoder),
    /// The request is whole.
    Whole,
    /// The body of an answered request is dropped: so many bytes more at most.
    Drain(Decoder, u64),
    /// Upgraded.
    Raw,
    /// Nothing is read any more.
    Over,
}

/// How far the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ours {
    /// No request.
    Idle,
    /// The application has not answered.
    Awaited,
    /// A body of which so many bytes are missing.
    Sized(u64),
    /// A body in chunks.
    Chunked,
    /// A body that ends with the connection (HTTP/1.0).
    UntilClose,
    /// A body that is not sent because it was only asked for its head.
    Unsent,
    /// Upgraded.
    Raw,
}

/// One connection of a server. See the module's page for the contract.
///
/// Call [`Conn::read`] until it returns `None`, also with no input left; bytes it has not taken by then
/// belong to the next request: keep them ([`super::Held`]) and read on when the answer is finished.
#[derive(Debug)]
pub struct Conn {
    limits: Limits,
    buffer: HeadBuffer,
    theirs: Theirs,
    ours: Ours,
    /// The present exchange: whether the connection outlives it, and what the client may be sent.
    keep_alive: bool,
    version: Version,
    to_head: bool,
    /// The client waits for [`Conn::go_on`].
    expects: bool,
    deadline: Option<Instant>,
    /// Kept after an answer, and nothing of a next request is there.
    idle: bool,
    /// The client will send no more.
    eof: bool,
    /// The application does not take what arrives.
    paused: bool,
    /// Bytes of the body since the rate window began.
    window: u64,
    closing: bool,
    told: Told,
}

impl Conn {
    /// A connection that has just been opened.
    #[must_use]
    pub fn new(limits: Limits, now: Now) -> Conn {
        Conn {
            limits,
            buffer: HeadBuffer::new(Kind::Request),
            theirs: Theirs::Head,
            ours: Ours::Idle,
            keep_alive: true,
            version: Version::Http11,
            to_head: false,
            expects: false,
            deadline: Some(now.mono.after(limits.header_timeout)),
            idle: false,
            eof: false,
            paused: false,
            window: 0,
            closing: false,
            told: Told::default(),
        }
    }

    /// The same, telling of its answers to whoever is at `remote`.
    #[must_use]
    pub fn telling(mut self, tell: Option<Tell>, remote: &str) -> Conn {
        self.told.tell = tell.map(|tell| (tell, remote.into()));
        self
    }

    /// Takes bytes off the front of `input` and returns the next event; `None` when more input is
    /// needed, or an answer. Faults are answered into `out`.
    pub fn read<'i>(
        &mut self,
        now: Now,
        input: &mut &'i [u8],
        out: &mut Vec<u8>,
    ) -> Option<Event<'i>> {
        loop {
            match &mut self.theirs {
                Theirs::Head => return self.read_head(now, input, out),
                Theirs::Body(decoder) => {
                    let piece = decoder.decode(input);
                    return self.read_body(now, piece, out);
                }
                Theirs::Drain(decoder, left) => match decoder.decode(input) {
                    Ok(Piece::Data(data)) if (data.len() as u64) < *left => {
                        *left -= data.len() as u64;
                    }
                    Ok(Piece::More) if !self.eof => return None,
                    Ok(Piece::Data(_) | Piece::More | Piece::End) | Err(_) => self.close(),
                },
                Theirs::Whole => return None,
                Theirs::Raw if input.is_empty() => return None,
                Theirs::Raw => return Some(Event::Raw(core::mem::take(input))),
                Theirs::Over => {
                    *input = &[];
                    return None;
                }
            }
        }
    }

    fn read_head<'i>(
        &mut self,
        now: Now,
        input: &mut &'i [u8],
        out: &mut Vec<u8>,
    ) -> Option<Event<'i>> {
        if input.is_empty() {
            return match (self.eof, self.buffer.is_empty()) {
                (false, _) => None,
                (true, true) => {
                    self.close();
                    None
                }
                (true, false) => Some(self.refuse(now, Fault::Cut, out)),
            };
        }
        if self.idle {
            self.idle = false;
            self.deadline = Some(now.mono.after(self.limits.header_timeout));
        }
        let request = match self.buffer.take(input) {
            Ok(false) => return self.read_head(now, &mut &[][..], out),
            Ok(true) => head::request(self.buffer.finish()),
            Err(fault) => Err(fault),
        };
        let request = match request {
            Ok(request) => request,
            Err(fault) => return Some(self.refuse(now, fault, out)),
        };
        self.theirs = Theirs::Body(Decoder::new(request.length));
        self.ours = Ours::Awaited;
        self.keep_alive = request.keep_alive;
        self.version = request.version;
        self.to_head = request.method == Method::Head;
        self.expects = request.expects_continue;
        self.restart_window(now);
        self.told.asked(now, &request);
        Some(Event::Head(Box::new(request)))
    }

    fn read_body<'i>(
        &mut self,
        now: Now,
        piece: Result<Piece<'i>, Fault>,
        out: &mut Vec<u8>,
    ) -> Option<Event<'i>> {
        match piece {
            Ok(Piece::Data(data)) => {
                if self.expects {
                    self.expects = false;
                    self.restart_window(now);
                }
                self.window = self.window.saturating_add(data.len() as u64);
                Some(Event::Body(data))
            }
            Ok(Piece::More) if self.eof => Some(self.refuse(now, Fault::Cut, out)),
            Ok(Piece::More) => None,
            Ok(Piece::End) => {
                self.theirs = Theirs::Whole;
                self.deadline = None;
                Some(Event::End)
            }
            Err(fault) => Some(self.refuse(now, fault, out)),
        }
    }

    /// The client will send no more. Call [`Conn::read`] afterwards: a message that is not whole is a
    /// fault then, and requests that are whole are still answered.
    pub fn eof(&mut self) {
        self.eof = true;
    }

    /// Whether [`Conn::eof`] was called.
    #[must_use]
    pub fn is_eof(&self) -> bool {
        self.eof
    }

    /// A deadline has passed.
    pub fn timer(&mut self, now: Now, out: &mut Vec<u8>) -> Option<Event<'static>> {
        if self.deadline.is_none_or(|deadline| now.mono < deadline) {
            return None;
        }
        match &self.theirs {
            Theirs::Head if !self.idle => {
                let seconds = self.limits.header_timeout.as_secs();
                Some(self.refuse(now, Fault::HeadTimeout { seconds }, out))
            }
            Theirs::Body(_) => {
                let seconds = self.limits.rate_window.as_secs();
                let asked = self.limits.body_rate.unwrap_or(0).saturating_mul(seconds);
                if self.window < asked {
                    let fault = Fault::TooSlow { bytes: self.window, seconds };
                    return Some(self.refuse(now, fault, out));
                }
                self.restart_window(now);
                None
            }
            Theirs::Head | Theirs::Drain(..) => {
                self.close();
                None
            }
            Theirs::Whole | Theirs::Raw | Theirs::Over => {
                self.deadline = None;
                None
            }
        }
    }

    /// When [`Conn::timer`] is to be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Says whether the application takes what arrives. While it does not, the client is not blamed
    /// for a slow body.
    pub fn reading(&mut self, now: Now, reads: bool) {
        if self.paused == reads {
            self.paused = !reads;
            self.restart_window(now);
        }
    }

    fn restart_window(&mut self, now: Now) {
        if matches!(self.theirs, Theirs::Body(_)) {
            self.window = 0;
            let judged = self.limits.body_rate.is_some() && !self.paused && !self.expects;
            self.deadline = judged.then(|| now.mono.after(self.limits.rate_window));
        }
    }

    /// Lets a client go on that waits before it sends its body; nothing for all others.
    pub fn go_on(&mut self, now: Now, out: &mut Vec<u8>) {
        if self.expects && self.ours == Ours::Awaited {
            self.expects = false;
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.restart_window(now);
        }
    }

    /// Whether a request waits for [`Conn::respond`].
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        self.ours == Ours::Awaited
    }

    /// Whether nothing of a request is there and none is being answered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.theirs, Theirs::Head) && self.buffer.is_empty()
    }

    /// Whether the connection is to be closed once everything written has left.
    #[must_use]
    pub fn closing(&self) -> bool {
        self.closing
    }

    /// Answers the request: appends the head, and the body where it is at hand. An answer before the
    /// request's body is whole ends the connection. After [`Payload::Sized`] and
    /// [`Payload::Chunked`] go on with [`Conn::send`] and [`Conn::finish`].
    ///
    /// # Panics
    /// When no request waits for an answer.
    pub fn respond(&mut self, now: Now, response: &Response<'_>, out: &mut Vec<u8>) {
        assert!(self.awaits_answer(), "no request waits for an answer");
        self.told.answered(now, response.status);
        self.keep_alive &= self.is_whole();
        let until_close = response.payload == Payload::Chunked && self.version == Version::Http10;
        self.keep_alive &= !until_close;
        let silent = matches!(response.status, 204 | 304) || until_close;
        encode::status_line(response.status, Some(now.wall), out);
        for (name, value) in response.headers {
            encode::field(name, value, out);
        }
        let framed = match response.payload {
            _ if silent => Framed::Silent,
            Payload::Empty => Framed::Sized(0),
            Payload::Full(body) => Framed::Sized(body.len() as u64),
            Payload::Sized(n) => Framed::Sized(n),
            Payload::Chunked => Framed::Chunked,
        };
        encode::framed(framed, out);
        match (self.keep_alive, self.version) {
            (false, _) => encode::field("Connection", "close", out),
            (true, Version::Http10) => encode::field("Connection", "keep-alive", out),
            (true, Version::Http11) => {}
        }
        out.extend_from_slice(b"\r\n");
        self.ours = match response.payload {
            Payload::Sized(_) | Payload::Chunked if self.to_head => Ours::Unsent,
            Payload::Sized(n) => Ours::Sized(n),
            Payload::Chunked if until_close => Ours::UntilClose,
            Payload::Chunked => Ours::Chunked,
            Payload::Empty | Payload::Full(_) => Ours::Idle,
        };
        match response.payload {
            Payload::Full(body) if !self.to_head && !silent => out.extend_from_slice(body),
            Payload::Full(_) | Payload::Empty | Payload::Sized(_) | Payload::Chunked => {}
        }
        if self.ours == Ours::Idle {
            self.finished(now);
        }
    }

    /// Appends bytes of the answer's body.
    ///
    /// # Panics
    /// When no body is being sent, or these are more bytes than were announced.
    pub fn send(&mut self, data: &[u8], out: &mut Vec<u8>) {
        match &mut self.ours {
            Ours::Sized(left) => {
                let len = data.len() as u64;
                assert!(len <= *left, "{len} bytes of a body that has {left} left");
                *left -= len;
                out.extend_from_slice(data);
            }
            Ours::Chunked => encode::chunk(data, out),
            Ours::UntilClose => out.extend_from_slice(data),
            Ours::Unsent => {}
            Ours::Idle | Ours::Awaited | Ours::Raw => panic!("no body is being sent"),
        }
    }

    /// Ends the answer's body.
    ///
    /// # Panics
    /// When no body is being sent, or fewer bytes were sent than were announced; that is what
    /// [`Conn::abort`] is for.
    pub fn finish(&mut self, now: Now, out: &mut Vec<u8>) {
        match self.ours {
            Ours::Sized(left) => assert!(left == 0, "{left} bytes of the body are missing"),
            Ours::Chunked => out.extend_from_slice(LAST_CHUNK),
            Ours::UntilClose | Ours::Unsent => {}
            Ours::Idle | Ours::Awaited | Ours::Raw => panic!("no body is being sent"),
        }
        self.finished(now);
    }

    /// Breaks the connection off, so that the client sees that its answer is not whole. (A client of
    /// HTTP/1.0 sees it only where the length was announced.)
    pub fn abort(&mut self) {
        self.close();
    }

    /// Answers with `101 Switching Protocols`; whatever comes next is [`Event::Raw`].
    ///
    /// # Panics
    /// When no whole request waits for an answer.
    pub fn upgrade(&mut self, now: Now, headers: &[(&str, &str)], out: &mut Vec<u8>) {
        assert!(self.awaits_answer() && self.is_whole(), "no whole request waits for an answer");
        self.told.answered(now, 101);
        encode::status_line(101, Some(now.wall), out);
        encode::field("Connection", "Upgrade", out);
        for (name, value) in headers {
            encode::field(name, value, out);
        }
        out.extend_from_slice(b"\r\n");
        self.theirs = Theirs::Raw;
        self.ours = Ours::Raw;
        self.deadline = None;
    }

    fn is_whole(&self) -> bool {
        match &self.theirs {
            Theirs::Body(decoder) => decoder.is_whole(),
            Theirs::Whole => true,
            Theirs::Head | Theirs::Drain(..) | Theirs::Raw | Theirs::Over => false,
        }
    }

    /// The answer is written.
    fn finished(&mut self, now: Now) {
        self.ours = Ours::Idle;
        if self.is_whole() {
            if !self.keep_alive {
                return self.close();
            }
            self.theirs = Theirs::Head;
            self.idle = true;
            self.deadline = self.limits.idle_timeout.map(|idle| now.mono.after(idle));
            return;
        }
        match core::mem::replace(&mut self.theirs, Theirs::Over) {
            // A client that was not told to go on sends no body.
            Theirs::Body(decoder) if !self.expects => {
                self.theirs = Theirs::Drain(decoder, DRAIN_MAX);
                self.deadline = Some(now.mono.after(DRAIN_TIME));
            }
            Theirs::Body(_)
            | Theirs::Head
            | Theirs::Whole
            | Theirs::Drain(..)
            | Theirs::Raw
            | Theirs::Over => self.close(),
        }
    }

    /// Answers a fault, if nothing of another answer is out yet, and closes.
    fn refuse(&mut self, now: Now, fault: Fault, out: &mut Vec<u8>) -> Event<'static> {
        if matches!(self.ours, Ours::Idle | Ours::Awaited) {
            self.told.answered(now, fault.status());
            let body = encode::refusal(fault);
            encode::status_line(fault.status(), Some(now.wall), out);
            encode::field("Content-Type", "application/json", out);
            encode::framed(Framed::Sized(body.len() as u64), out);
            encode::field("Connection", "close", out);
            out.extend_from_slice(b"\r\n");
            if !(self.to_head && self.ours == Ours::Awaited) {
                out.extend_from_slice(body.as_bytes());
            }
        }
        self.close();
        Event::Fault(fault)
    }

    fn close(&mut self) {
        self.theirs = Theirs::Over;
        self.ours = Ours::Idle;
        self.buffer = HeadBuffer::new(Kind::Request);
        self.deadline = None;
        self.closing = true;
    }
}

#[cfg(test)]
mod tests;
