//! Requests to a relay and their answers: HTTP/1.1 by core's codec, one connection, one request at a time.

use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use consign_core::http::{Client, Headers, Outgoing, Payload, Reply};
use consign_core::pickup::message::Refused;
use consign_core::pickup::sign::{Claim, Signable, no_body};
use rustls::ClientConfig;

use super::random;
use super::url::Relay;
use super::wire::{Moved, Wire};
use crate::exit::{Exit, Failure};
use crate::tls;

/// Bytes taken of a source at a time.
const PIECE: usize = 256 << 10;
/// Bytes of an answer that is kept whole.
const ANSWER_MAX: usize = 1 << 20;
/// How long nothing may move in either direction.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the relay may take to say that it wants the body, before it gets it all the same.
const CONTINUE: Duration = Duration::from_secs(5);
/// How long after the relay stopped reading its answer is waited for.
const LAST_WORD: Duration = Duration::from_secs(3);

/// Where a relay is and how it is known to be the one.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its address.
    pub relay: Relay,
    tls: Option<Arc<ClientConfig>>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its fields.
    pub headers: Headers,
    /// Its body, unless that went to a sink.
    pub body: Vec<u8>,
}

impl Answer {
    /// The code and the sentence of a refusal.
    #[must_use]
    pub fn refused(&self) -> Refused {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| Refused {
            code: match self.status {
                401 => "unauthorized".into(),
                status => format!("status_{status}"),
            },
            message: String::from_utf8_lossy(&self.body)
                .chars()
                .filter(|c| !c.is_control())
                .take(200)
                .collect(),
        })
    }

    /// A field that is a plain number.
    #[must_use]
    pub fn number(&self, field: &str) -> Option<u64> {
        consign_core::pickup::sign::decimal(self.headers.text(field)?)
    }
}

/// Why an exchange did not come to its end.
#[derive(Debug)]
pub enum Trouble {
    /// Nothing of an answer came; perhaps nothing of the request arrived either.
    Before(io::Error),
    /// The answer was cut.
    Inside(io::Error),
    /// The source of the body failed.
    Source(io::Error),
    /// Whoever takes the answer's body failed, or wants no more.
    Sink(io::Error),
    /// The relay is not understood.
    Strange(String),
}

impl Trouble {
    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Trouble::Before(e) | Trouble::Inside(e) | Trouble::Source(e) | Trouble::Sink(e) => {
                e.to_string()
            }
            Trouble::Strange(why) => format!("the relay is not understood: {why}"),
        }
    }
}

/// The body of a request.
pub enum Body<'a> {
    /// None.
    None,
    /// So many bytes.
    Sized(u64, &'a mut dyn Read),
    /// All there are.
    Stream(&'a mut dyn Read),
}

/// Called with each piece of the body of an answer with status 200 or 206.
pub type Sink<'a> = &'a mut dyn FnMut(&Headers, &[u8]) -> io::Result<()>;

impl Target {
    /// A relay; with `https` its certificate must lead to an authority in `ca` and bear the URL's host.
    ///
    /// # Errors
    /// When the authorities cannot be used.
    pub fn new(relay: Relay, ca: Option<&Path>) -> Result<Target, Failure> {
        if !relay.tls {
            return Ok(Target { relay, tls: None });
        }
        let Some(ca) = ca else {
            let text = format!("{relay} needs the authority that signed it");
            return Err(Failure::new(Exit::Usage, "CN0806", text).help("--ca FILE"));
        };
        let wrong = |why: rustls::Error| {
            let text = format!("{} cannot be used for TLS: {why}", ca.display());
            Failure::new(Exit::Config, "CN0315", text)
        };
        let config = tls::anonymous(tls::certificates(ca)?).map_err(wrong)?;
        Ok(Target { relay, tls: Some(Arc::new(config)) })
    }

    /// Connects.
    ///
    /// # Errors
    /// Those of the system, and of TLS.
    pub(super) fn wire(&self) -> io::Result<Wire> {
        Wire::connect(&self.relay, self.tls.as_ref())
    }

    /// Connects.
    ///
    /// # Errors
    /// Those of the system, and of TLS.
    pub fn open(&self) -> io::Result<Http> {
        Ok(Http { wire: self.wire()?, client: Client::new() })
    }

    /// What a failed connection means.
    #[must_use]
    pub fn unreachable(&self, why: &io::Error) -> Failure {
        if why.kind() == ErrorKind::InvalidData {
            let text = format!("{} is not known to be the one: {why}", self.relay);
            // What came instead of TLS was text.
            if why.to_string().contains("InvalidContentType") {
                return Failure::new(Exit::Failed, "CN0802", text).help(
                    "that port does not speak TLS: try http:// (pickup on a loopback address is without)",
                );
            }
            return Failure::new(Exit::Failed, "CN0802", text)
                .help("its certificate must lead to the authority given and bear the URL's host");
        }
        let text = format!("{} cannot be reached: {why}", self.relay);
        Failure::new(Exit::Unreachable, "CN0801", text)
    }
}

/// Who signs requests.
#[derive(Clone)]
pub struct Signer {
    /// The node.
    pub node: String,
    /// Its private key.
    pub secret: [u8; 32],
}

impl Signer {
    /// The fields that sign a request without a body.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn fields(
        &self,
        method: &str,
        relay: &Relay,
        target: &str,
    ) -> Result<[(&'static str, String); 4], Failure> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (timestamp, nonce) = (since.as_secs(), random()?);
        let authority = relay.authority.as_str();
        let body = no_body();
        let signable = Signable { method, authority, target, timestamp, nonce, body };
        let signature = signable.sign(&self.secret);
        Ok(Claim { node: self.node.clone(), timestamp, nonce, signature }.fields())
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("node", &self.node).finish_non_exhaustive()
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method.
    pub method: &'a str,
    /// Target.
    pub target: &'a str,
    /// The Host field.
    pub host: &'a str,
    /// Other fields.
    pub headers: &'a [(&'a str, &'a str)],
}

/// A connection for one request after another.
#[derive(Debug)]
pub struct Http {
    wire: Wire,
    client: Client,
}

/// What of a request's body is still to leave.
struct Outbound<'s> {
    source: Option<&'s mut dyn Read>,
    left: Option<u64>,
    /// The relay has to say that it wants the body, until then.
    waits: Option<Instant>,
    piece: Vec<u8>,
    /// The relay reads no more; its last word is waited for until then.
    deaf: Option<(Instant, io::Error)>,
}

impl Http {
    /// Whether another request may be sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.client.is_idle() && self.wire.ended().is_none()
    }

    /// Sends a request and takes its answer. `sent` is told of bytes of the body that left.
    ///
    /// # Errors
    /// When the answer is not whole.
    pub fn exchange(
        &mut self,
        request: &Request<'_>,
        body: Body<'_>,
        sent: &mut dyn FnMut(u64),
        sink: Option<Sink<'_>>,
    ) -> Result<Answer, Trouble> {
        let (payload, source, left) = match body {
            Body::None => (Payload::Empty, None, None),
            Body::Sized(0, _) => (Payload::Full(b""), None, None),
            Body::Sized(size, source) => (Payload::Sized(size), Some(source), Some(size)),
            Body::Stream(source) => (Payload::Chunked, Some(source), None),
        };
        // What is small is sent at once; what is large only when there is room for it.
        let expect_continue = source.is_some() && left.is_none_or(|size| size > PIECE as u64);
        let Request { method, target, host, headers } = *request;
        let outgoing = Outgoing { method, target, host, headers, payload, expect_continue };
        self.client.request(&outgoing, self.wire.queue());
        let waits = expect_continue.then(|| Instant::now() + CONTINUE);
        let out = Outbound { source, left, waits, piece: Vec::new(), deaf: None };
        self.carry(out, sent, sink)
    }

    fn carry(
        &mut self,
        mut out: Outbound<'_>,
        sent: &mut dyn FnMut(u64),
        mut sink: Option<Sink<'_>>,
    ) -> Result<Answer, Trouble> {
        let mut answer: Option<Answer> = None;
        loop {
            self.fill(&mut out, sent)?;
            let mut until = Instant::now() + PATIENCE;
            until = out.waits.map_or(until, |at| at.min(until));
            until = out.deaf.as_ref().map_or(until, |(at, _)| (*at).min(until));
            let broke =
                |begun: bool, e| if begun { Trouble::Inside(e) } else { Trouble::Before(e) };
            match self.wire.pump(until, None) {
                Ok(moved) if moved == Moved::default() && Instant::now() >= until => {
                    match (out.deaf.take(), out.waits.take()) {
                        (Some((_, why)), _) => return Err(broke(answer.is_some(), why)),
                        (None, Some(_)) => {}
                        (None, None) => {
                            let text = format!("nothing has moved for {} s", PATIENCE.as_secs());
                            let e = io::Error::new(ErrorKind::TimedOut, text);
                            return Err(broke(answer.is_some(), e));
                        }
                    }
                }
                Ok(_) => {}
                // The relay takes no more; what it has to say about that may still be on its way.
                Err(e) if out.deaf.is_none() && answer.is_none() && out.source.is_some() => {
                    self.wire.drop_queue();
                    out.source = None;
                    out.deaf = Some((Instant::now() + LAST_WORD, e));
                }
                Err(e) => return Err(broke(answer.is_some(), e)),
            }
            if self.replies(&mut out, &mut answer, &mut sink)? {
                return answer.ok_or_else(|| Trouble::Strange("an answer without a head".into()));
            }
            if let Some(cleanly) = self.wire.ended() {
                let whole = self.client.eof().is_ok_and(|reply| reply == Some(Reply::End));
                return match answer {
                    Some(answer) if whole && cleanly => Ok(answer),
                    other => {
                        let e = io::Error::new(
                            ErrorKind::UnexpectedEof,
                            "the connection ended before the answer did",
                        );
                        Err(broke(other.is_some(), e))
                    }
                };
            }
        }
    }

    /// Takes the next piece of the source when the last one has left.
    fn fill(&mut self, out: &mut Outbound<'_>, sent: &mut dyn FnMut(u64)) -> Result<(), Trouble> {
        if out.waits.is_some_and(|at| Instant::now() < at) || !self.wire.is_flushed() {
            return Ok(());
        }
        let Some(source) = out.source.as_mut() else { return Ok(()) };
        out.waits = None;
        out.piece.resize(PIECE, 0);
        let most = out.left.map_or(PIECE, |left| left.min(PIECE as u64) as usize);
        let got = loop {
            match source.read(&mut out.piece[..most]) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Trouble::Source(e)),
                Ok(got) => break got,
            }
        };
        match &mut out.left {
            Some(left) if got == 0 => {
                let text = format!("it became {left} bytes shorter while it was read");
                return Err(Trouble::Source(io::Error::other(text)));
            }
            Some(left) => *left -= got as u64,
            None => {}
        }
        self.client.send(&out.piece[..got], self.wire.queue());
        sent(got as u64);
        if got == 0 || out.left == Some(0) {
            self.client.finish(self.wire.queue());
            out.source = None;
        }
        Ok(())
    }

    /// Takes what came; says whether the answer is whole.
    fn replies(
        &mut self,
        out: &mut Outbound<'_>,
        answer: &mut Option<Answer>,
        sink: &mut Option<Sink<'_>>,
    ) -> Result<bool, Trouble> {
        let bytes = std::mem::take(&mut self.wire.input);
        let mut input = bytes.as_slice();
        let whole = loop {
            let reply = self.client.read(&mut input);
            let reply = reply.map_err(|fault| Trouble::Strange(fault.to_string()))?;
            match (reply, answer.as_mut()) {
                (None, _) => break false,
                (Some(Reply::Continue), _) => out.waits = None,
                (Some(Reply::Head(head)), _) => {
                    // Whatever is still to be sent is not wanted any more, unless all of it is out.
                    if out.source.take().is_some() {
                        self.wire.drop_queue();
                    }
                    let (status, headers) = (head.status, head.headers);
                    *answer = Some(Answer { status, headers, body: Vec::new() });
                }
                (Some(Reply::Body(data)), Some(answer)) => match sink {
                    Some(sink) if matches!(answer.status, 200 | 206) => {
                        sink(&answer.headers, data).map_err(Trouble::Sink)?;
                    }
                    _ if answer.body.len() + data.len() > ANSWER_MAX => {
                        return Err(Trouble::Strange("an answer of more than 1 MiB".into()));
                    }
                    _ => answer.body.extend_from_slice(data),
                },
                (Some(Reply::Body(_)), None) => break false,
                (Some(Reply::End), _) => break true,
            }
        };
        let rest = input.len();
        self.wire.input = bytes;
        let used = self.wire.input.len() - rest;
        self.wire.input.drain(..used);
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_to_a_port_that_speaks_http_is_told_from_a_wrong_certificate() {
        let relay = Relay::parse("http://127.0.0.1:7410").expect("a URL");
        let target = Target::new(relay, None).expect("it needs no authority");
        let of =
            |why: rustls::Error| target.unreachable(&io::Error::new(ErrorKind::InvalidData, why));
        let plain = of(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        assert_eq!((plain.exit, plain.code), (Exit::Failed, "CN0802"));
        assert!(plain.help.contains("try http://"), "{plain}");
        let other = of(rustls::Error::NoCertificatesPresented);
        assert!(other.help.starts_with("its certificate must lead"), "{other}");
    }
}
