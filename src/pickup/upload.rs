//! A shard on its way to a relay, over as many connections as that takes.
//!
//! ```text
//! HEAD ──404 or nothing of it──▶ POST ──201, 200──▶ done
//!   └───part of it is there────▶ PATCH ──201───────▶ done       a break: pause, then HEAD again
//! ```

use std::io;
use std::time::Duration;

use consign_core::id::BlobDigest;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows_pickup::ShardState;
use consign_core::pickup::digest::{self, REPR_DIGEST};
use consign_core::pickup::message::Uploaded;
use consign_core::pickup::token::Token;

use super::http::{Answer, Body, Http, Request, Target, Trouble};
use super::source::Source;
use super::{pause, random};
use crate::exit::{Exit, Failure};

/// Where uploads go.
const PATH: &str = "/buffer/upload";
/// First pause after a break.
const PAUSE: Duration = Duration::from_millis(500);

/// What is uploaded, and how patiently.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The relay.
    pub target: Target,
    /// The shard and its node.
    pub shard: ShardKey,
    /// The client's bearer token.
    pub token: Token,
    /// Tries in a row that get nothing any further, before it is given up.
    pub tries: u32,
    /// First pause between two tries.
    pub pause: Duration,
}

/// What is told while it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many bytes are on their way or there.
    At(u64),
    /// It broke off for this reason, and is tried again after so long.
    Again(String, Duration),
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Whether the relay had it before.
    pub known: bool,
    /// The relay's answer.
    pub uploaded: Uploaded,
    /// Connections it took beyond the first.
    pub again: u32,
}

/// How a try ended.
enum Try {
    Done(Done),
    /// To be tried again: why, and how long the relay asks to wait.
    Again(String, Option<Duration>),
}

/// How far the relay has it.
enum There {
    Nothing,
    Part(u64),
}

impl Upload {
    /// An upload with the usual patience.
    #[must_use]
    pub fn new(target: Target, shard: ShardKey, token: Token) -> Upload {
        Upload { target, shard, token, tries: 8, pause: PAUSE }
    }

    /// Carries it out.
    ///
    /// # Errors
    /// When the relay refuses, cannot be reached any more, or the source fails.
    pub fn run(
        &self,
        source: &mut dyn Source,
        told: &mut dyn FnMut(Step),
    ) -> Result<Done, Failure> {
        let (mut again, mut vain, mut best) = (0, 0, 0);
        loop {
            let mut there = 0;
            let result = self.attempt(source, &mut there, &mut |offset| told(Step::At(offset)))?;
            let (why, wait) = match result {
                Try::Done(done) => return Ok(Done { again, ..done }),
                Try::Again(why, wait) => (why, wait),
            };
            again += 1;
            // What counts is what the relay has: bytes that left may be lost.
            vain = if there > best { 1 } else { vain + 1 };
            best = best.max(there);
            if vain >= self.tries {
                let text = format!("{} tries in a row got no further: {why}", self.tries);
                let help = "the same command goes on where the relay has it";
                return Err(Failure::new(Exit::Unreachable, "CN0803", text).help(help));
            }
            let [chance] = random()?;
            let pause = pause(self.pause, vain, chance).max(wait.unwrap_or_default());
            told(Step::Again(why, pause));
            std::thread::sleep(pause);
        }
    }

    /// One connection: asks how far it is, and brings the rest.
    fn attempt(
        &self,
        source: &mut dyn Source,
        has: &mut u64,
        at: &mut dyn FnMut(u64),
    ) -> Result<Try, Failure> {
        let mut http = match self.target.open() {
            Ok(http) => http,
            // A certificate that is wrong now is wrong in a second.
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Err(self.target.unreachable(&e));
            }
            Err(e) => return Ok(Try::Again(self.target.unreachable(&e).message, None)),
        };
        let there = match self.head(&mut http)? {
            Ok(there) => there,
            Err(again) => return Ok(again),
        };
        if !http.is_idle() {
            match self.target.open() {
                Ok(fresh) => http = fresh,
                Err(e) => return Ok(Try::Again(e.to_string(), None)),
            }
        }
        let offset = match there {
            There::Nothing => None,
            There::Part(offset) => Some(offset),
        };
        *has = offset.unwrap_or(0);
        if !source.rewind(offset.unwrap_or(0)).map_err(|e| unreadable(&e))? {
            let text = format!(
                "the relay has {} bytes, and what follows them was read before and is gone",
                offset.unwrap_or(0)
            );
            return Err(Failure::new(Exit::Failed, "CN0813", text)
                .help("give it from the beginning, best as a file"));
        }
        self.send(&mut http, source, offset, at)
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        vec![
            ("Authorization", format!("Bearer {}", self.token.text())),
            ("X-Nodus-File-Id", self.shard.file_id().into()),
            ("X-Nodus-Version", self.shard.version().to_string()),
            ("X-Nodus-Shard-Index", self.shard.index().to_string()),
            ("X-Nodus-Node-Id", self.shard.node().into()),
        ]
    }

    /// Asks how far it is.
    fn head(&self, http: &mut Http) -> Result<Result<There, Try>, Failure> {
        let answer = self.ask(http, "HEAD", &self.fields(), Body::None, &mut |_| {})?;
        let answer = match answer {
            Ok(answer) => answer,
            Err(again) => return Ok(Err(again)),
        };
        let state = answer.headers.text("x-nodus-state").and_then(ShardState::from_word);
        match (answer.status, state) {
            (204, Some(ShardState::Uploading)) => match answer.number("upload-offset") {
                Some(offset) => Ok(Ok(There::Part(offset))),
                None => Err(strange("it says nothing of how far the upload is")),
            },
            // Whatever else it is, the relay judges a POST of it before the body.
            (204 | 404, _) => Ok(Ok(There::Nothing)),
            _ => self.refused(&answer).map(Err),
        }
    }

    /// Brings everything behind `offset`, or all of it.
    fn send(
        &self,
        http: &mut Http,
        source: &mut dyn Source,
        offset: Option<u64>,
        at: &mut dyn FnMut(u64),
    ) -> Result<Try, Failure> {
        let mut fields = self.fields();
        let whole = source.whole();
        if let Some((_, blake3)) = &whole {
            fields.push((REPR_DIGEST, digest::blake3_field(blake3)));
        }
        let start = offset.unwrap_or(0);
        let method = match offset {
            None => "POST",
            Some(offset) => {
                fields.push(("Upload-Offset", offset.to_string()));
                fields.push(("Upload-Complete", "?1".into()));
                "PATCH"
            }
        };
        let mut sent = start;
        let mut count = |bytes| {
            sent += bytes;
            at(sent);
        };
        let answer = {
            let mut from = Reader(source);
            let body = match whole {
                Some((size, _)) => Body::Sized(size.saturating_sub(start), &mut from),
                None => Body::Stream(&mut from),
            };
            self.ask(http, method, &fields, body, &mut count)?
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(again) => return Ok(again),
        };
        match answer.status {
            200 | 201 => self.done(&answer, source),
            // Another connection of ours may not be known to be dead yet, or more arrived than was said.
            409 if matches!(answer.refused().code.as_str(), "busy" | "wrong_offset") => {
                Ok(Try::Again(answer.refused().message, None))
            }
            // What lay there was of something else; it is gone now.
            400 if offset.is_some() && answer.refused().code == "digest_mismatch" => {
                Ok(Try::Again("what the relay had of it was of other content".into(), None))
            }
            _ => self.refused(&answer),
        }
    }

    fn done(&self, answer: &Answer, source: &dyn Source) -> Result<Try, Failure> {
        let uploaded: Uploaded =
            serde_json::from_slice(&answer.body).map_err(|e| strange(&e.to_string()))?;
        let mine = source.whole().or_else(|| source.read_whole());
        if let Some((size, blake3)) = mine {
            check(&uploaded, size, &blake3)?;
        }
        Ok(Try::Done(Done { known: answer.status == 200, uploaded, again: 0 }))
    }

    /// Sends a request; what may pass is to be tried again.
    fn ask(
        &self,
        http: &mut Http,
        method: &str,
        fields: &[(&'static str, String)],
        body: Body<'_>,
        sent: &mut dyn FnMut(u64),
    ) -> Result<Result<Answer, Try>, Failure> {
        let headers: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let host = &self.target.relay.authority;
        let request = Request { method, target: PATH, host, headers: &headers };
        match http.exchange(&request, body, sent, None) {
            Ok(answer) => Ok(Ok(answer)),
            Err(Trouble::Source(e)) => Err(unreadable(&e)),
            Err(Trouble::Strange(why)) => Err(strange(&why)),
            Err(trouble @ (Trouble::Before(_) | Trouble::Inside(_) | Trouble::Sink(_))) => {
                Ok(Err(Try::Again(trouble.text(), None)))
            }
        }
    }

    /// What a refusal means.
    fn refused(&self, answer: &Answer) -> Result<Try, Failure> {
        let (refused, status) = (answer.refused(), answer.status);
        let message = if refused.message.is_empty() { status.to_string() } else { refused.message };
        let text = format!("{message} ({})", refused.code);
        let after = answer.number("retry-after");
        let failure = match status {
            408 | 429 | 503 => {
                return Ok(Try::Again(text, after.map(|s| Duration::from_secs(s.min(60)))));
            }
            401 | 403 => Failure::new(Exit::NotPermitted, "CN0804", text)
                .help("`consign pickup clients enrol NAME` at the relay gives a token"),
            404 => Failure::new(Exit::NoMatch, "CN0807", text)
                .help("`consign pickup nodes enrol ID` at the relay makes a node known"),
            409 | 410 => Failure::new(Exit::Failed, "CN0808", text)
                .help("other content of the same shard needs another version number"),
            400 if refused.code == "digest_mismatch" => Failure::new(Exit::Failed, "CN0812", text),
            413 => Failure::new(Exit::Failed, "CN0809", text),
            507 => {
                let when = after.map_or_else(|| "later".into(), |s| format!("in {s} s"));
                Failure::new(Exit::TryLater, "CN0810", text).help(format!("try again {when}"))
            }
            _ => Failure::new(Exit::Failed, "CN0811", text),
        };
        Err(failure)
    }
}

/// A source as a plain reader.
struct Reader<'a>(&'a mut dyn Source);

impl io::Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

/// What the relay says that it has must be what was sent.
fn check(uploaded: &Uploaded, size: u64, blake3: &BlobDigest) -> Result<(), Failure> {
    if uploaded.size == size && uploaded.digest.blake3 == *blake3 {
        return Ok(());
    }
    let text = format!(
        "the relay has {} bytes with BLAKE3 {}, and {size} bytes with {blake3} were sent",
        uploaded.size, uploaded.digest.blake3
    );
    Err(Failure::new(Exit::Failed, "CN0812", text))
}

fn unreadable(e: &io::Error) -> Failure {
    Failure::new(Exit::Failed, "CN0620", format!("the content cannot be read: {e}"))
}

fn strange(why: &str) -> Failure {
    let text = format!("the relay is not understood: {why}");
    Failure::new(Exit::Failed, "CN0805", text)
}

#[cfg(test)]
mod tests;
