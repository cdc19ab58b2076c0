//! Heads: found byte by byte under limits, then read once.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::framing::{self, Length};
use super::{FIELDS_MAX, Fault, HEAD_MAX, METHOD_MAX, TARGET_MAX, target};

/// A method. Names are case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
    /// Any other token.
    Other(String),
}

impl Method {
    fn of(name: &str) -> Method {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            other => Method::Other(other.into()),
        }
    }

    /// The name on the wire.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Other(name) => name,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The version a message is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub method: Method,
    /// With what: a path with or without a query, in canonical spelling ([`super::Target`]).
    pub target: String,
    /// The version.
    pub version: Version,
    /// Its fields.
    pub headers: Headers,
    /// How long its body is.
    pub length: Length,
    /// Whether the client waits for [`super::Conn::go_on`] before it sends the body.
    pub expects_continue: bool,
    /// Whether the client would like to use the connection again.
    pub keep_alive: bool,
}

/// Fields of a head in their order: the raw head and where in it they stand.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    raw: Vec<u8>,
    spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    name: (usize, usize),
    value: (usize, usize),
}

impl Headers {
    /// Names as they were written, and values without the blanks around them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.spans.iter().map(|s| {
            let name = core::str::from_utf8(self.cut(s.name)).unwrap_or_default();
            (name, self.cut(s.value))
        })
    }

    /// The values of every field of that name, in order.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }

    /// The value of the only field of that name; `None` when there is none or more than one.
    #[must_use]
    pub fn one(&self, name: &str) -> Option<&[u8]> {
        let mut all = self.all(name);
        let first = all.next()?;
        all.next().is_none().then_some(first)
    }

    /// [`Headers::one`] as text; `None` also when it is not printable ASCII.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let value = self.one(name)?;
        let printable = value.iter().all(|b| matches!(b, b' '..=b'~'));
        if printable { core::str::from_utf8(value).ok() } else { None }
    }

    /// Whether a comma-separated list field of that name contains this token, in any case.
    #[must_use]
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .flat_map(|v| v.split(|b| *b == b','))
            .any(|t| t.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Whether every field of that name is written `Name: value` with at most one blank in front and
    /// none behind: the fields that decide where a body ends may not be written any other way.
    pub(super) fn is_plain(&self, name: &str) -> bool {
        let named = |s: &&Span| self.cut(s.name).eq_ignore_ascii_case(name.as_bytes());
        self.spans.iter().filter(named).all(|s| {
            let before = self.cut((s.name.1, s.value.0));
            (before == b":" || before == b": ") && self.raw.get(s.value.1) == Some(&b'\r')
        })
    }

    fn cut(&self, (from, to): (usize, usize)) -> &[u8] {
        self.raw.get(from..to).unwrap_or_default()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(n, v)| (n, alloc::format!("{}", v.escape_ascii()))))
            .finish()
    }
}

/// What kind of head is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request line and fields; one empty line in front is skipped.
    Request,
    /// A status line and fields.
    Response,
    /// Fields alone.
    Trailer,
}

/// What a byte leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The head goes on.
    More,
    /// What came so far is the empty line in front.
    Skip,
    /// The head is whole.
    Whole,
}

/// A head that is arriving. Every byte is looked at once, whatever the pieces it comes in.
#[derive(Debug)]
pub(super) struct HeadBuffer {
    kind: Kind,
    raw: Vec<u8>,
    /// Lines that are whole; a trailer begins at 1.
    lines: usize,
    /// Where the present line begins.
    line: usize,
    after_cr: bool,
    /// An empty line in front of a request was skipped.
    skipped: bool,
}

impl HeadBuffer {
    pub(super) fn new(kind: Kind) -> HeadBuffer {
        let lines = usize::from(kind == Kind::Trailer);
        HeadBuffer { kind, raw: Vec::new(), lines, line: 0, after_cr: false, skipped: false }
    }

    /// Whether nothing of it has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.raw.is_empty() && !self.skipped && !self.after_cr
    }

    /// Takes bytes up to the end of the head, or all of them. Says whether the head is whole.
    pub(super) fn take(&mut self, input: &mut &[u8]) -> Result<bool, Fault> {
        loop {
            let start = self.raw.len();
            let mut used = 0;
            let mut step = Step::More;
            for &byte in *input {
                step = self.byte(start + used, byte)?;
                used += 1;
                if step != Step::More {
                    break;
                }
            }
            let (head, rest) = input.split_at(used);
            *input = rest;
            if step == Step::Skip {
                // Forgotten, so that offsets count from the request line.
                self.raw.clear();
                self.line = 0;
                continue;
            }
            self.raw.extend_from_slice(head);
            return Ok(step == Step::Whole);
        }
    }

    /// Judges the byte at offset `at`.
    fn byte(&mut self, at: usize, byte: u8) -> Result<Step, Fault> {
        if at >= HEAD_MAX {
            return Err(Fault::HeadTooLarge);
        }
        match (self.after_cr, byte) {
            (true, b'\n') => {
                self.after_cr = false;
                return self.line_end(at);
            }
            (true, _) => return Err(Fault::Syntax("a carriage return stands alone")),
            (false, b'\n') => return Err(Fault::Syntax("a line feed stands alone")),
            (false, b'\r') => self.after_cr = true,
            (false, b'\t' | b' ') if at == self.line => {
                return Err(Fault::Syntax("a line begins with a blank"));
            }
            (false, b'\t') if self.lines > 0 => {}
            (false, 0..=31 | 127) => return Err(Fault::Syntax("a control character")),
            (false, _) => {}
        }
        let longest = METHOD_MAX + TARGET_MAX + " HTTP/1.1 ".len() + 1;
        if self.lines == 0 && self.kind == Kind::Request && at - self.line > longest {
            return Err(Fault::TargetTooLong);
        }
        Ok(Step::More)
    }

    fn line_end(&mut self, at: usize) -> Result<Step, Fault> {
        let empty = at == self.line + 1;
        self.line = at + 1;
        if !empty {
            self.lines += 1;
            let most = FIELDS_MAX + 1;
            return if self.lines > most { Err(Fault::TooManyFields) } else { Ok(Step::More) };
        }
        if self.lines > 0 {
            return Ok(Step::Whole);
        }
        if self.kind != Kind::Request || self.skipped {
            return Err(Fault::Syntax("an empty line in front"));
        }
        self.skipped = true;
        Ok(Step::Skip)
    }

    /// The raw head; the buffer is as new afterwards.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let raw = core::mem::take(&mut self.raw);
        *self = HeadBuffer::new(self.kind);
        raw
    }
}

/// Reads a whole request head.
pub(super) fn request(raw: Vec<u8>) -> Result<Request, Fault> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    whole(parsed.parse(&raw), raw.len())?;
    let method = Method::of(parsed.method.unwrap_or_default());
    if method.name().len() > METHOD_MAX {
        return Err(Fault::Syntax("the method is longer than 32 bytes"));
    }
    let target = parsed.path.unwrap_or_default();
    if target.len() > TARGET_MAX {
        return Err(Fault::TargetTooLong);
    }
    target::check(target)?;
    let target = String::from(target);
    let version = version(parsed.version);
    let spans = spans(&raw, parsed.headers);
    let headers = Headers { raw, spans };
    host(version, &headers)?;
    let length = framing::of_request(version, &headers)?;
    let expects_continue = expectation(version, &headers)?;
    let keep_alive = keeps(version, &headers);
    Ok(Request { method, target, version, headers, length, expects_continue, keep_alive })
}

/// Reads a whole response head: version, status, reason is dropped.
pub(super) fn response(raw: Vec<u8>) -> Result<(Version, u16, Headers), Fault> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut fields);
    whole(parsed.parse(&raw), raw.len())?;
    let status = parsed.code.unwrap_or_default();
    if !(100..=599).contains(&status) {
        return Err(Fault::Syntax("the status is not between 100 and 599"));
    }
    let version = version(parsed.version);
    let spans = spans(&raw, parsed.headers);
    Ok((version, status, Headers { raw, spans }))
}

/// Judges a whole trailer section; its fields are not kept.
pub(super) fn trailer(raw: &[u8]) -> Result<(), Fault> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    match httparse::parse_headers(raw, &mut fields) {
        Ok(httparse::Status::Complete((used, _))) if used == raw.len() => Ok(()),
        Ok(_) => Err(Fault::Syntax("the trailer does not end where it should")),
        Err(why) => Err(fault(why)),
    }
}

/// Whether the sender of this head would use the connection again.
pub(super) fn keeps(version: Version, headers: &Headers) -> bool {
    match version {
        Version::Http11 => !headers.has_token("connection", "close"),
        Version::Http10 => {
            headers.has_token("connection", "keep-alive")
                && !headers.has_token("connection", "close")
        }
    }
}

fn whole(result: httparse::Result<usize>, len: usize) -> Result<(), Fault> {
    match result {
        Ok(httparse::Status::Complete(used)) if used == len => Ok(()),
        Ok(_) => Err(Fault::Syntax("the head does not end where it should")),
        Err(why) => Err(fault(why)),
    }
}

fn fault(why: httparse::Error) -> Fault {
    match why {
        httparse::Error::HeaderName => Fault::Syntax("a field name"),
        httparse::Error::HeaderValue => Fault::Syntax("a field value"),
        httparse::Error::NewLine => Fault::Syntax("an end of line"),
        httparse::Error::Status => Fault::Syntax("the status line"),
        httparse::Error::Token => Fault::Syntax("the request line"),
        httparse::Error::TooManyHeaders => Fault::TooManyFields,
        httparse::Error::Version => Fault::Version,
    }
}

fn version(minor: Option<u8>) -> Version {
    if minor == Some(0) { Version::Http10 } else { Version::Http11 }
}

fn spans(raw: &[u8], fields: &[httparse::Header<'_>]) -> Vec<Span> {
    // The parser hands out slices of `raw`; their addresses tell where they stand.
    let base = raw.as_ptr() as usize;
    let span = |part: &[u8]| {
        let from = (part.as_ptr() as usize).wrapping_sub(base).min(raw.len());
        (from, from.saturating_add(part.len()))
    };
    fields
        .iter()
        .map(|f| {
            let name = span(f.name.as_bytes());
            // An empty value may point anywhere; it stands behind the colon.
            let behind = (name.1 + 1, name.1 + 1);
            Span { name, value: if f.value.is_empty() { behind } else { span(f.value) } }
        })
        .collect()
}

fn host(version: Version, headers: &Headers) -> Result<(), Fault> {
    let mut hosts = headers.all("host");
    let Some(host) = hosts.next() else {
        return match version {
            Version::Http10 => Ok(()),
            Version::Http11 => Err(Fault::Host("missing")),
        };
    };
    if hosts.next().is_some() {
        return Err(Fault::Host("there twice"));
    }
    let ok = |b: &u8| b.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+,;=".contains(b);
    if host.is_empty() || !host.iter().all(ok) {
        return Err(Fault::Host("malformed"));
    }
    Ok(())
}

fn expectation(version: Version, headers: &Headers) -> Result<bool, Fault> {
    let mut all = headers.all("expect");
    let Some(value) = all.next() else { return Ok(false) };
    if !value.eq_ignore_ascii_case(b"100-continue") || all.next().is_some() {
        return Err(Fault::Expectation);
    }
    Ok(version == Version::Http11)
}
