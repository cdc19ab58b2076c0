//! One fetch, on a thread of its own: what is missing of a shard, onto the shelf.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use consign_core::http::Headers;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::pickup::message::PendingNotify;
use consign_core::pickup::token::TOKEN;

use super::Stop;
use super::give::Owing;
use super::keeper::Filling;
use super::shelf::{Partial, Record, Shelf, Step};
use crate::exit::{Exit, Failure};
use crate::pickup::http::{Answer, Body, Http, Request, Signer, Target, Trouble};

/// Where shards are fetched.
const PATH: &str = "/buffer/fetch";
/// How often a relay that asks for patience is asked again with the same token.
const TRIES: u32 = 3;

/// What is to be fetched.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) target: Target,
    pub(super) signer: Signer,
    pub(super) shelf: Arc<Shelf>,
    pub(super) stop: Stop,
    pub(super) owing: Owing,
    pub(super) shard: ShardKey,
    pub(super) notify: PendingNotify,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is kept for good, or was before.
    Verified(Box<Record>, bool),
    /// It cannot be kept. The connection stays open until the ack is answered, so that the relay does
    /// not see a fetch break off first.
    Failed(Failure, Option<Box<Http>>),
    /// Nothing to be acked: the relay notifies again where that makes sense.
    Dropped(Option<Failure>),
}

/// The whole end of a fetch.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) shard: ShardKey,
    pub(super) redemption: u64,
    pub(super) outcome: Outcome,
    /// A connection that may be used again.
    pub(super) http: Option<Http>,
}

impl Job {
    /// Carries it out, on a connection that is there or on a new one.
    pub(super) fn run(self, http: Option<Http>) -> Fetched {
        let (outcome, http) = self.fetch(http);
        let (shard, redemption) = (self.shard, self.notify.redemption);
        Fetched { shard, redemption, outcome, http: http.filter(Http::is_idle) }
    }

    fn fetch(&self, http: Option<Http>) -> (Outcome, Option<Http>) {
        let (size, digest) = (self.notify.size, &self.notify.digest);
        let has = self.shelf.has(&self.shard, size, digest);
        if has.unwrap_or(false) {
            let (answer, http) = self.ask(http, Some(size), &mut |_, _| Ok(()));
            return match answer {
                Ok(answer) if matches!(answer.status, 200 | 206) => (self.held(), http),
                Ok(answer) => (self.refused(&answer), http),
                Err(trouble) => (self.broke(&trouble), None),
            };
        }
        let partial = self.shelf.partial(&self.shard, size, digest);
        let mut filling = match partial.and_then(Filling::begin) {
            Ok(filling) => filling,
            Err(e) => return (self.cannot_begin(&e), http),
        };
        let from = filling.size();
        let mut begun = false;
        let mut sink = |headers: &Headers, data: &[u8]| {
            if !begun {
                begun = true;
                begins_at(headers, from)?;
            }
            if self.stop.0.stops.load(std::sync::atomic::Ordering::SeqCst) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the node is stopping"));
            }
            if filling.size() + data.len() as u64 > size {
                return Err(io::Error::other("more came than was announced"));
            }
            filling.write(data)
        };
        let (answer, http) = self.ask(http, (from > 0).then_some(from), &mut sink);
        let (mut partial, kept) = filling.end();
        // That it could not be written is the cause of whatever else went wrong.
        let answer = kept.map_or_else(|e| Err(Trouble::Sink(e)), |()| answer);
        match answer {
            Ok(answer) if matches!(answer.status, 200 | 206) => (self.came(&mut partial), http),
            Ok(answer) => (self.refused(&answer), http),
            Err(Trouble::Sink(e)) if e.kind() == io::ErrorKind::Interrupted => {
                let _ = partial.sync();
                (Outcome::Dropped(None), None)
            }
            Err(Trouble::Sink(e)) => (Outcome::Failed(self.unkept(&e), http.map(Box::new)), None),
            Err(trouble) => {
                // What came is gone on with; it is looked at whole before anything rests on it.
                let _ = partial.sync();
                (self.broke(&trouble), None)
            }
        }
    }

    /// Nothing can be written at all: the relay must hear of it, which takes a redemption.
    fn cannot_begin(&self, e: &io::Error) -> Outcome {
        let mut sink = |_: &Headers, _: &[u8]| Err(io::Error::other("it cannot be written"));
        match self.ask(None, None, &mut sink) {
            (Ok(answer), _) if !matches!(answer.status, 200 | 206) => self.refused(&answer),
            (_, http) => Outcome::Failed(self.unkept(e), http.map(Box::new)),
        }
    }

    /// Asks for the content from an offset on; whoever asks the relay for patience gets some.
    fn ask(
        &self,
        http: Option<Http>,
        from: Option<u64>,
        sink: &mut dyn FnMut(&Headers, &[u8]) -> io::Result<()>,
    ) -> (Result<Answer, Trouble>, Option<Http>) {
        let mut kept = http;
        let mut tries = 0;
        loop {
            let was_kept = kept.is_some();
            let mut http = match kept.take().map_or_else(|| self.target.open(), Ok) {
                Ok(http) => http,
                Err(e) => return (Err(Trouble::Before(e)), None),
            };
            let answer = self.ask_once(&mut http, from, sink);
            match &answer {
                // The relay may have closed a connection that was idle.
                Err(Trouble::Before(_)) if was_kept => {}
                Ok(answer) if matches!(answer.status, 429 | 503) && tries < TRIES => {
                    tries += 1;
                    let seconds = answer.number("retry-after").unwrap_or(1).clamp(1, 10);
                    std::thread::sleep(Duration::from_secs(seconds));
                    kept = http.is_idle().then_some(http);
                }
                _ => return (answer, Some(http)),
            }
        }
    }

    fn ask_once(
        &self,
        http: &mut Http,
        from: Option<u64>,
        sink: &mut dyn FnMut(&Headers, &[u8]) -> io::Result<()>,
    ) -> Result<Answer, Trouble> {
        let relay = &self.target.relay;
        let signed = self.signer.fields("GET", relay, PATH);
        let signed = signed.map_err(|failure| Trouble::Sink(io::Error::other(failure.message)))?;
        let (token, range) = (self.notify.token.text(), from.map(|n| format!("bytes={n}-")));
        let mut headers: Vec<(&str, &str)> =
            signed.iter().map(|(name, value)| (*name, value.as_str())).collect();
        headers.push((TOKEN, &token));
        headers.extend(range.as_deref().map(|range| ("Range", range)));
        let host = &relay.authority;
        let request = Request { method: "GET", target: PATH, host, headers: &headers };
        http.exchange(&request, Body::None, &mut |_| {}, Some(sink))
    }

    /// Everything has come: it is right and kept, or it is not.
    fn came(&self, partial: &mut Partial) -> Outcome {
        let (size, digest) = (self.notify.size, &self.notify.digest);
        if !partial.is(size, digest) {
            let _ = self.shelf.discard(partial);
            let text = format!(
                "{}: {} bytes came that do not have its digest of {size} bytes",
                self.name(),
                partial.size()
            );
            return Outcome::Failed(Failure::new(Exit::Failed, "CN0827", text), None);
        }
        let record = Record::of(&self.notify, &self.signer.node);
        let mut done = |_: Step| Ok(());
        // What rules owe is written down first: a kill behind the next line must not lose it.
        let owed = self.owing.owe(&self.shard, &record);
        match owed.and_then(|()| self.shelf.keep(&self.shard, partial, &record, &mut done)) {
            Ok(()) => {
                self.owing.begin(&self.shard, &record);
                Outcome::Verified(Box::new(record), false)
            }
            Err(e) => Outcome::Failed(self.unkept(&e), None),
        }
    }

    /// It was here before; the record is of this redemption now.
    fn held(&self) -> Outcome {
        let record = Record::of(&self.notify, &self.signer.node);
        match self.shelf.write_record(&self.shard, &record) {
            Ok(()) => {
                // What is owed for it may wait since its record could not be written.
                self.owing.begin(&self.shard, &record);
                Outcome::Verified(Box::new(record), true)
            }
            Err(e) => Outcome::Failed(self.unkept(&e), None),
        }
    }

    fn name(&self) -> String {
        format!("{}/{}/{}", self.shard.file_id(), self.shard.version(), self.shard.index())
    }

    fn unkept(&self, e: &io::Error) -> Failure {
        let text = format!("{} cannot be kept: {e}", self.name());
        Failure::new(Exit::Failed, "CN0828", text)
    }

    fn broke(&self, trouble: &Trouble) -> Outcome {
        let text = format!("the fetch of {} broke off: {}", self.name(), trouble.text());
        Outcome::Dropped(Some(Failure::new(Exit::Unreachable, "CN0803", text)))
    }

    /// The token is not good any more, or this node is not: nothing has changed, the relay knows better.
    fn refused(&self, answer: &Answer) -> Outcome {
        let refused = answer.refused();
        let text = format!("{}: {} ({})", self.name(), refused.message, refused.code);
        match answer.status {
            404 | 409 | 410 => Outcome::Dropped(None),
            401 | 403 => Outcome::Dropped(Some(Failure::new(Exit::NotPermitted, "CN0826", text))),
            _ => Outcome::Dropped(Some(Failure::new(Exit::Failed, "CN0811", text))),
        }
    }
}

/// Whether the answer begins where it was asked to.
fn begins_at(headers: &Headers, from: u64) -> io::Result<()> {
    let range = headers.text("content-range");
    let start = match range {
        None => Some(0),
        Some(range) => range
            .strip_prefix("bytes ")
            .and_then(|range| range.split(['-', '/']).next())
            .and_then(|start| start.parse().ok()),
    };
    if start == Some(from) {
        return Ok(());
    }
    let text = format!("bytes from {from} on were asked for, and {range:?} came");
    Err(io::Error::other(text))
}
