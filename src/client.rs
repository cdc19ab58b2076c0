//! A blocking client of the local interface: HTTP/1.1 by core's codec over the admin socket.
//!
//! Socket and source are pumped together, so an answer that comes before the whole request is out, a
//! refusal for instance, is seen at once and is what the caller gets, not a broken pipe.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_core::http::{Client, Headers, Outgoing, Payload, Reply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;

use crate::admin::shapes::Refused;
use crate::exit::{Exit, Failure};

/// Bytes read from a source or the socket at a time.
const PIECE: usize = 256 << 10;
/// Bytes of an answer that is kept whole.
const ANSWER_MAX: usize = 64 << 20;
/// How long the daemon may say nothing to a question.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may neither take content nor answer: a disk may stall for a while.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(600);

/// An answer of the daemon.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its fields.
    pub headers: Headers,
    /// Its body, unless that went to a sink.
    pub body: Vec<u8>,
}

/// The content of a request.
pub enum Source<'a> {
    /// There is none.
    None,
    /// So many bytes of a file. A source that ends early, or fails, breaks the request off.
    Sized(u64, &'a mut dyn Read),
    /// A stream.
    Stream(&'a mut dyn Read),
}

/// Where an answer's body goes: called with each piece when its status is 200.
pub type Sink<'a> = &'a mut dyn FnMut(&Headers, &[u8]) -> Result<(), Failure>;

/// A connection to the daemon, made when it is needed and kept while it can be.
#[derive(Debug)]
pub struct Api {
    socket: PathBuf,
    link: Option<Link>,
}

#[derive(Debug)]
struct Link {
    stream: UnixStream,
    client: Client,
    /// Bytes that arrived and were not read.
    input: Vec<u8>,
}

impl Api {
    /// Nothing is connected yet.
    #[must_use]
    pub fn new(socket: &Path) -> Api {
        Api { socket: socket.into(), link: None }
    }

    /// Over a stream that is connected.
    ///
    /// # Errors
    /// When the stream cannot be set up.
    pub fn over(stream: UnixStream) -> Result<Api, Failure> {
        let link = Some(Link::new(stream).map_err(|e| broke(&e.to_string()))?);
        Ok(Api { socket: PathBuf::new(), link })
    }

    /// Asks a question and reads the JSON of its answer.
    ///
    /// # Errors
    /// When the daemon cannot be reached, refuses, or is not understood.
    pub fn json<T: DeserializeOwned>(&mut self, method: &str, target: &str) -> Result<T, Failure> {
        let answer = self.ask(method, target, Source::None, &mut |_| {}, None)?;
        parse(&answer)
    }

    /// Hands in content. `sent` is told how many bytes of it have left.
    ///
    /// # Errors
    /// As [`Api::json`], and when the source fails.
    pub fn submit<T: DeserializeOwned>(
        &mut self,
        target: &str,
        source: Source<'_>,
        sent: &mut dyn FnMut(u64),
    ) -> Result<T, Failure> {
        parse(&self.ask("POST", target, source, sent, None)?)
    }

    /// Hands in bytes and reads the answer as it is.
    ///
    /// # Errors
    /// As [`Api::json`].
    pub fn post(&mut self, target: &str, mut body: &[u8]) -> Result<Vec<u8>, Failure> {
        let source = Source::Sized(body.len() as u64, &mut body);
        let answer = self.ask("POST", target, source, &mut |_| {}, None)?;
        if answer.status == 200 { Ok(answer.body) } else { Err(refused(&answer)) }
    }

    /// Fetches content piece by piece.
    ///
    /// # Errors
    /// As [`Api::json`]; what the sink returns; and when the answer ends before its end.
    pub fn fetch(&mut self, target: &str, sink: Sink<'_>) -> Result<Answer, Failure> {
        let answer = self.ask("GET", target, Source::None, &mut |_| {}, Some(sink))?;
        if answer.status == 200 { Ok(answer) } else { Err(refused(&answer)) }
    }

    fn ask(
        &mut self,
        method: &str,
        target: &str,
        mut source: Source<'_>,
        sent: &mut dyn FnMut(u64),
        mut sink: Option<Sink<'_>>,
    ) -> Result<Answer, Failure> {
        let kept = self.link.is_some();
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.connect()?,
        };
        let first = link.exchange(method, target, &mut source, sent, &mut sink);
        let answer = match first {
            // The daemon may have been restarted since the last question.
            Err(Broken::Before(_)) if kept && matches!(source, Source::None) => {
                link = self.connect()?;
                link.exchange(method, target, &mut source, sent, &mut sink)
            }
            other => other,
        };
        match answer {
            Ok(answer) => {
                self.link = link.client.is_idle().then_some(link);
                Ok(answer)
            }
            Err(Broken::Before(why) | Broken::Inside(why)) => Err(why),
        }
    }

    fn connect(&self) -> Result<Link, Failure> {
        let stream = UnixStream::connect(&self.socket).map_err(|e| {
            let path = self.socket.display();
            match e.kind() {
                ErrorKind::PermissionDenied => Failure::new(
                    Exit::NotPermitted,
                    "CN0602",
                    format!("the admin socket {path} may not be opened: {e}"),
                )
                .help("run it as the daemon's user, or as root"),
                _ => Failure::new(
                    Exit::Unreachable,
                    "CN0601",
                    format!("no daemon answers at {path}: {e}"),
                )
                .help("start it with: consign serve"),
            }
        })?;
        Link::new(stream).map_err(|e| broke(&e.to_string()))
    }
}

/// An exchange that did not come to its end.
enum Broken {
    /// Before anything of an answer came.
    Before(Failure),
    /// For good.
    Inside(Failure),
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Broken {
        Broken::Inside(failure)
    }
}

/// What of the request has still to leave.
struct Outbound<'s> {
    bytes: Vec<u8>,
    at: usize,
    /// Where more comes from, and how much of it is announced.
    source: Option<&'s mut dyn Read>,
    left: Option<u64>,
    /// The daemon has to say that it wants the body.
    waits: bool,
    piece: Vec<u8>,
}

impl Link {
    fn new(stream: UnixStream) -> std::io::Result<Link> {
        stream.set_nonblocking(true)?;
        Ok(Link { stream, client: Client::new(), input: Vec::new() })
    }

    fn exchange(
        &mut self,
        method: &str,
        target: &str,
        source: &mut Source<'_>,
        sent: &mut dyn FnMut(u64),
        sink: &mut Option<Sink<'_>>,
    ) -> Result<Answer, Broken> {
        let (payload, source, left) = match source {
            Source::None => (Payload::Empty, None, None),
            Source::Sized(0, _) => (Payload::Full(b""), None, None),
            Source::Sized(size, source) => {
                (Payload::Sized(*size), Some(&mut **source as &mut dyn Read), Some(*size))
            }
            Source::Stream(source) => {
                (Payload::Chunked, Some(&mut **source as &mut dyn Read), None)
            }
        };
        // What is small is sent at once; what is large only when there is room for it.
        let waits = left.is_some_and(|size| size > PIECE as u64);
        let patience = if source.is_some() { UPLOAD_PATIENCE } else { PATIENCE };
        let (host, headers) = ("localhost", &[][..]);
        let request = Outgoing { method, target, host, headers, payload, expect_continue: waits };
        let mut out = Outbound { bytes: Vec::new(), at: 0, source, left, waits, piece: Vec::new() };
        self.client.request(&request, &mut out.bytes);
        let mut answer = None;
        loop {
            self.fill(&mut out, sent)?;
            let writes = out.at < out.bytes.len();
            let reads = self.wait(writes, patience).map_err(|why| part(answer.is_some(), why))?;
            if writes {
                self.write(&mut out);
            }
            if !reads {
                continue;
            }
            let ended = self.read().map_err(|e| part(answer.is_some(), broke(&e)))?;
            if self.replies(&mut out, &mut answer, sink)? {
                return answer.ok_or_else(|| part(false, broke("an answer without a head")));
            }
            if ended {
                self.client.eof().map_err(|_| part(answer.is_some(), cut()))?;
                return answer.ok_or_else(|| part(false, cut()));
            }
        }
    }

    /// Takes the next piece of the source when the last one has left.
    fn fill(&mut self, out: &mut Outbound<'_>, sent: &mut dyn FnMut(u64)) -> Result<(), Failure> {
        if out.at < out.bytes.len() || out.waits {
            return Ok(());
        }
        let Some(source) = out.source.as_mut() else { return Ok(()) };
        out.bytes.clear();
        out.at = 0;
        out.piece.resize(PIECE, 0);
        let most = out.left.map_or(PIECE, |left| left.min(PIECE as u64) as usize);
        let piece = &mut out.piece[..most];
        let got = loop {
            match source.read(piece) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Failure::new(Exit::Failed, "CN0620", e.to_string())),
                Ok(got) => break got,
            }
        };
        match &mut out.left {
            Some(left) if got == 0 => {
                let text = format!("it became {left} bytes shorter while it was read");
                return Err(Failure::new(Exit::Failed, "CN0622", text));
            }
            Some(left) => *left -= got as u64,
            None => {}
        }
        self.client.send(&piece[..got], &mut out.bytes);
        sent(got as u64);
        if got == 0 || out.left == Some(0) {
            self.client.finish(&mut out.bytes);
            out.source = None;
        }
        Ok(())
    }

    /// Waits until the socket is ready; says whether it can be read.
    fn wait(&self, writes: bool, patience: Duration) -> Result<bool, Failure> {
        let flags = if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let time = Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: 0 };
        loop {
            let mut fds = [PollFd::new(&self.stream, flags)];
            match poll(&mut fds, Some(&time)) {
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(broke(&e.to_string())),
                Ok(0) => {
                    let text = format!("the daemon has not answered for {} s", patience.as_secs());
                    return Err(Failure::new(Exit::Unreachable, "CN0605", text));
                }
                Ok(_) => return Ok(fds[0].revents() != PollFlags::OUT),
            }
        }
    }

    fn write(&mut self, out: &mut Outbound<'_>) {
        match self.stream.write(out.bytes.get(out.at..).unwrap_or_default()) {
            Ok(n) => out.at += n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // The daemon takes no more; what it has to say about that is still to be read.
            Err(_) => {
                out.bytes.clear();
                out.at = 0;
                out.source = None;
            }
        }
    }

    /// Reads what is there; says whether that was the end.
    fn read(&mut self) -> Result<bool, String> {
        let start = self.input.len();
        self.input.resize(start + PIECE, 0);
        let result = self.stream.read(&mut self.input[start..]);
        self.input.truncate(start + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(got) => Ok(got == 0),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(false)
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// Takes what came; says whether the answer is whole.
    fn replies(
        &mut self,
        out: &mut Outbound<'_>,
        answer: &mut Option<Answer>,
        sink: &mut Option<Sink<'_>>,
    ) -> Result<bool, Broken> {
        let bytes = std::mem::take(&mut self.input);
        let mut input = bytes.as_slice();
        let strange = |why: String| {
            Failure::new(Exit::Failed, "CN0604", format!("the daemon is not understood: {why}"))
        };
        let whole = loop {
            let reply = self.client.read(&mut input).map_err(|fault| strange(fault.to_string()))?;
            match (reply, answer.as_mut()) {
                (None, _) => break false,
                (Some(Reply::Continue), _) => out.waits = false,
                (Some(Reply::Head(head)), _) => {
                    // Whatever is still to be sent is not wanted any more, unless all of it is out.
                    out.source = None;
                    out.bytes.clear();
                    out.at = 0;
                    let (status, headers) = (head.status, head.headers);
                    *answer = Some(Answer { status, headers, body: Vec::new() });
                }
                (Some(Reply::Body(data)), Some(answer)) => match sink {
                    Some(sink) if answer.status == 200 => sink(&answer.headers, data)?,
                    _ if answer.body.len() + data.len() > ANSWER_MAX => {
                        return Err(strange("an answer of more than 64 MiB".into()).into());
                    }
                    _ => answer.body.extend_from_slice(data),
                },
                (Some(Reply::Body(_)), None) => break false,
                (Some(Reply::End), _) => break true,
            }
        };
        self.input = input.to_vec();
        Ok(whole)
    }
}

fn part(begun: bool, why: Failure) -> Broken {
    if begun { Broken::Inside(why) } else { Broken::Before(why) }
}

fn broke(why: &str) -> Failure {
    let text = format!("the connection to the daemon broke: {why}");
    Failure::new(Exit::Unreachable, "CN0603", text)
}

fn cut() -> Failure {
    broke("it ended before the answer did").help("what was not confirmed may be sent again safely")
}

fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T, Failure> {
    // 422 is an answer of the same shape that says what is wrong.
    if !(200..300).contains(&answer.status) && answer.status != 422 {
        return Err(refused(answer));
    }
    serde_json::from_slice(&answer.body).map_err(|e| {
        let text = format!("the daemon's answer is not understood: {e}");
        Failure::new(Exit::Failed, "CN0604", text).help("are both of the same version?")
    })
}

/// What a refusal means for whoever asked.
fn refused(answer: &Answer) -> Failure {
    let refused: Refused = serde_json::from_slice(&answer.body).unwrap_or_else(|_| Refused {
        code: format!("status {}", answer.status),
        message: String::from_utf8_lossy(&answer.body).chars().take(200).collect(),
    });
    let after = answer.headers.text("retry-after");
    meaning(refused, answer.status, after)
}

/// What a refusal with this status means; `after` is how many seconds it asks to wait.
pub(crate) fn meaning(refused: Refused, status: u16, after: Option<&str>) -> Failure {
    let Refused { code, message } = refused;
    match (code.as_str(), status) {
        ("unknown" | "unknown_node", _) => Failure::new(Exit::NoMatch, "CN0612", message),
        ("ambiguous" | "invalid_id", _) => Failure::new(Exit::Usage, "CN0613", message),
        ("unknown_destination", _) => Failure::new(Exit::Failed, "CN0614", message)
            .help("known peers are listed by: consign status"),
        (_, 403) => Failure::new(Exit::NotPermitted, "CN0602", message)
            .help("run it as the daemon's user, or as root"),
        ("quota", _) => {
            Failure::new(Exit::TryLater, "CN0610", format!("{message} ({code})")).help(
                "`consign quota` says what is used; room comes when deliveries are made and what they kept may go, with \
                 consign release ID and deadletter purge, or with a higher limit",
            )
        }
        ("disk_full", _) => {
            Failure::new(Exit::TryLater, "CN0610", format!("{message} ({code})")).help(
                "make room on the disk, or let content go (consign storage, consign release ID); it goes on by \
                 itself then",
            )
        }
        (_, 503 | 507) => {
            let after = after.unwrap_or("a few");
            Failure::new(Exit::TryLater, "CN0610", format!("{message} ({code})"))
                .help(format!("try again in {after} s"))
        }
        _ => Failure::new(Exit::Failed, "CN0611", format!("{message} ({code})")),
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
