//! The asking side of a connection.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Fault;
use super::encode::{self, Framed, LAST_CHUNK, Payload};
use super::framing::{self, Decoder, Length, Piece};
use super::head::{self, HeadBuffer, Headers, Kind};

/// A request on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The method.
    pub method: &'a str,
    /// The target in canonical spelling.
    pub target: &'a str,
    /// The value of `Host`.
    pub host: &'a str,
    /// Other fields, besides those that frame the body.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body.
    pub payload: Payload<'a>,
    /// Ask to be told to go on before the body is sent.
    pub expect_continue: bool,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// The status.
    pub status: u16,
    /// Its fields.
    pub headers: Headers,
    /// How long its body is.
    pub length: Length,
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<'i> {
    /// The server wants the body.
    Continue,
    /// An answer; its body follows, then [`Reply::End`].
    Head(Box<ReplyHead>),
    /// Bytes of the body, never empty.
    Body(&'i [u8]),
    /// The answer is whole.
    End,
}

#[derive(Debug)]
enum State {
    /// No request is out.
    Idle,
    /// A request is out.
    Head,
    /// An answer is arriving.
    Body(Decoder),
    /// The connection cannot be used any more.
    Over,
}

/// What of a request's body is still to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    None,
    Sized(u64),
    Chunked,
}

/// One connection of a client: one request at a time.
#[derive(Debug)]
pub struct Client {
    buffer: HeadBuffer,
    state: State,
    body: Body,
    to_head: bool,
    keep_alive: bool,
}

impl Default for Client {
    fn default() -> Client {
        Client::new()
    }
}

impl Client {
    /// A connection that has just been opened.
    #[must_use]
    pub fn new() -> Client {
        Client {
            buffer: HeadBuffer::new(Kind::Response),
            state: State::Idle,
            body: Body::None,
            to_head: false,
            keep_alive: true,
        }
    }

    /// Whether another request may be sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle) && self.body == Body::None
    }

    /// Appends a request: its head, and its body where it is at hand. After [`Payload::Sized`] and
    /// [`Payload::Chunked`] go on with [`Client::send`] and [`Client::finish`].
    ///
    /// # Panics
    /// When the answer to another request is not whole, or the connection is over.
    pub fn request(&mut self, request: &Outgoing<'_>, out: &mut Vec<u8>) {
        assert!(self.is_idle(), "the connection is busy or over");
        out.extend_from_slice(request.method.as_bytes());
        out.push(b' ');
        out.extend_from_slice(request.target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        encode::field("Host", request.host, out);
        for (name, value) in request.headers {
            encode::field(name, value, out);
        }
        let (framed, body) = match request.payload {
            Payload::Empty => (Framed::Silent, Body::None),
            Payload::Full(body) => (Framed::Sized(body.len() as u64), Body::None),
            Payload::Sized(n) => (Framed::Sized(n), Body::Sized(n)),
            Payload::Chunked => (Framed::Chunked, Body::Chunked),
        };
        encode::framed(framed, out);
        if request.expect_continue {
            encode::field("Expect", "100-continue", out);
        }
        out.extend_from_slice(b"\r\n");
        if let Payload::Full(body) = request.payload {
            out.extend_from_slice(body);
        }
        self.body = body;
        self.to_head = request.method == "HEAD";
        self.state = State::Head;
    }

    /// Appends bytes of the request's body.
    ///
    /// # Panics
    /// When no body is being sent, or these are more bytes than were announced.
    pub fn send(&mut self, data: &[u8], out: &mut Vec<u8>) {
        match &mut self.body {
            Body::Sized(left) => {
                let len = data.len() as u64;
                assert!(len <= *left, "{len} bytes of a body that has {left} left");
                *left -= len;
                out.extend_from_slice(data);
            }
            Body::Chunked => encode::chunk(data, out),
            Body::None => panic!("no body is being sent"),
        }
    }

    /// Ends the request's body.
    ///
    /// # Panics
    /// When no body is being sent, or fewer bytes were sent than were announced.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match self.body {
            Body::Sized(left) => assert!(left == 0, "{left} bytes of the body are missing"),
            Body::Chunked => out.extend_from_slice(LAST_CHUNK),
            Body::None => panic!("no body is being sent"),
        }
        self.body = Body::None;
    }

    /// Takes bytes off the front of `input` and returns what came; `None` when more is needed.
    ///
    /// # Errors
    /// When the server does not speak HTTP as we do; the connection is over.
    pub fn read<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Reply<'i>>, Fault> {
        let result = self.step(input);
        if result.is_err() {
            self.state = State::Over;
        }
        result
    }

    fn step<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Reply<'i>>, Fault> {
        match &mut self.state {
            State::Idle if !input.is_empty() => Err(Fault::Syntax("an answer nobody asked for")),
            State::Idle | State::Over => Ok(None),
            State::Head => {
                if !self.buffer.take(input)? {
                    return Ok(None);
                }
                self.head()
            }
            State::Body(decoder) => match decoder.decode(input)? {
                Piece::Data(data) => Ok(Some(Reply::Body(data))),
                Piece::More => Ok(None),
                Piece::End => {
                    // An answer before the request was whole ends the connection.
                    let again = self.keep_alive && self.body == Body::None;
                    self.state = if again { State::Idle } else { State::Over };
                    Ok(Some(Reply::End))
                }
            },
        }
    }

    fn head<'i>(&mut self) -> Result<Option<Reply<'i>>, Fault> {
        let (version, status, headers) = head::response(self.buffer.finish())?;
        if status == 100 {
            return Ok(Some(Reply::Continue));
        }
        if status < 200 {
            return Err(Fault::Syntax("an interim answer nobody asked for"));
        }
        let length = framing::of_response(version, status, self.to_head, &headers)?;
        self.keep_alive = head::keeps(version, &headers) && length != Length::UntilEof;
        self.state = State::Body(Decoder::new(length));
        Ok(Some(Reply::Head(Box::new(ReplyHead { status, headers, length }))))
    }

    /// The server will send no more.
    ///
    /// # Errors
    /// [`Fault::Cut`] when a request is out and its answer is not whole.
    pub fn eof(&mut self) -> Result<Option<Reply<'static>>, Fault> {
        match core::mem::replace(&mut self.state, State::Over) {
            State::Body(Decoder::UntilEof) => Ok(Some(Reply::End)),
            State::Idle | State::Over => Ok(None),
            State::Head | State::Body(_) => Err(Fault::Cut),
        }
    }
}

#[cfg(test)]
mod tests;
