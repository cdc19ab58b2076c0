//! A client that uploads shards: one after the other, each until it is kept.

use std::collections::VecDeque;

use bytes::Bytes;
use consign_core::http::{Client, Payload, Reply, ReplyHead};
use consign_core::id::{BlobDigest, Sha256Digest};
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::pickup::digest::{CONTENT_DIGEST, REPR_DIGEST, field};
use consign_core::pickup::token::Token;

use super::draw::{LONGEST, Pickup};
use super::line::{Came, Line};
use super::say::{Fields, request, shard_fields};
use super::sight::{Content, Sight};
use super::{News, Shore, bearer, digest, node_id};
use crate::sim::client::content;
use crate::sim::rng::Rng;
use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;

/// Without a byte for so long a connection is given up.
const PATIENCE: u64 = 60_000_000;
/// Bytes that wait to be written at most.
const AHEAD: usize = 64 << 10;

/// A shard to be uploaded.
#[derive(Clone, Debug)]
pub(super) struct Job {
    at: Micros,
    pub(super) shard: ShardKey,
    /// Its content: key and length.
    key: u64,
    len: usize,
    /// Somebody else brings other bytes: one of them may lose.
    pub(super) contested: bool,
    slot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Slot,
    Post,
    Head,
    Patch(u64),
}

pub(super) struct Task {
    pub(super) job: Job,
    pub(super) body: Bytes,
    pub(super) sha256: Sha256Digest,
    pub(super) blake3: BlobDigest,
    pub(super) step: Step,
    pub(super) not_before: Micros,
    /// The request is out.
    asked: bool,
    /// When it went out, and what it showed.
    pub(super) asked_at: Micros,
    pub(super) token: Sha256Digest,
    /// Of the body, what this request brings, and what of that is written.
    part: std::ops::Range<usize>,
    chunked: bool,
    /// It is broken off when so much is written.
    leaves_at: Option<usize>,
    head: Option<ReplyHead>,
    came: Vec<u8>,
    /// What the relay said it has, of this attempt.
    pub(super) tries: u32,
    /// How many answers were 409: what waits for room or for its relay is not in conflict.
    pub(super) conflicts: u32,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Task { job, step, not_before, asked, part, tries, .. } = self;
        write!(
            f,
            "{:?} {step:?} from {not_before}, asked {asked}, {part:?}, try {tries}",
            job.shard
        )
    }
}

/// A client.
#[derive(Debug)]
pub(super) struct Uploader {
    bearer: Token,
    /// Another one, from then on.
    next: Option<(Micros, Token)>,
    jobs: VecDeque<Job>,
    task: Option<Task>,
    line: Option<Line>,
    http: Client,
    input: Vec<u8>,
}

impl Uploader {
    pub fn new(
        site: SiteIx,
        client: u64,
        pickup: &Pickup,
        seed: u64,
        length: Micros,
        rng: &mut Rng,
    ) -> Uploader {
        let mut jobs: Vec<Job> = Vec::new();
        for i in 0..pickup.shards.div_ceil(pickup.clients.max(1)) {
            let at = Micros(rng.between(0, length.0));
            let large = rng.chance(pickup.large);
            let len = match rng.below(8) {
                _ if large => rng.between(65_537, LONGEST),
                0 => 0,
                1..5 => rng.between(1, 300),
                5..7 => rng.between(300, 5_000),
                _ => rng.between(5_000, 65_536),
            };
            let node = node_id(site, rng.below(pickup.nodes.max(1)));
            let file = format!("f{client}-{}", rng.below(pickup.shards));
            let shard = ShardKey::new(file, i, rng.below(3), node).expect("a permitted key");
            let key = seed ^ (client << 48) ^ (i << 24) ^ (site as u64);
            let slot = rng.chance(150_000);
            jobs.push(Job { at, shard, key, len: len as usize, contested: false, slot });
        }
        jobs.sort_by_key(|job| job.at);
        Uploader {
            bearer: bearer(seed, site, client),
            next: None,
            jobs: jobs.into(),
            task: None,
            line: None,
            http: Client::new(),
            input: Vec::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.task.is_none() && self.jobs.is_empty()
    }

    /// It has another token from then on.
    pub fn turn(&mut self, at: Micros, token: Token) {
        self.next = Some((at, token));
    }

    pub fn run(&mut self, shore: &mut Shore<'_>, news: Option<News>) -> Micros {
        if let Some((_, token)) = self.next.take_if(|(at, _)| *at <= shore.at) {
            self.bearer = token;
        }
        self.hear(news);
        self.begin(shore);
        if self.task.is_none() {
            self.hang_up(shore);
            return self.wake(shore);
        }
        self.go_on(shore);
        self.wake(shore)
    }

    fn hear(&mut self, news: Option<News>) {
        let (Some(line), Some(news)) = (&mut self.line, news) else { return };
        let _ = match news {
            News::Connected(attempt, sock) => line.connected(attempt, sock),
            News::Failed(attempt) => line.failed(attempt),
            News::Ready(sock) => line.ready(sock),
        };
    }

    /// Takes up the next job, if it is time.
    fn begin(&mut self, shore: &mut Shore<'_>) {
        if self.task.is_some() || self.jobs.front().is_none_or(|job| job.at > shore.at) {
            return;
        }
        let Some(mut job) = self.jobs.pop_front() else { return };
        let contested = shore.rng.chance(shore.tricks.contested);
        let pick = shore.rng.next() as usize;
        if contested
            && let Some(recent) = shore.common.recent.get(&shore.site).filter(|r| !r.is_empty())
        {
            job.shard = recent[pick % recent.len()].clone();
            (job.contested, job.slot) = (true, false);
            shore.common.contested.insert(job.shard.clone());
        }
        shore.common.remember(shore.site, job.shard.clone());
        let body = content(job.key, job.len);
        let sha256 = digest(&body);
        let blake3 = BlobDigest(*blake3::hash(&body).as_bytes());
        let step = if job.slot { Step::Slot } else { Step::Post };
        let task = Task {
            job,
            body,
            sha256,
            blake3,
            step,
            not_before: shore.at,
            asked: false,
            asked_at: shore.at,
            token: self.bearer.hash(),
            part: 0..0,
            chunked: false,
            leaves_at: None,
            head: None,
            came: Vec::new(),
            tries: 0,
            conflicts: 0,
        };
        shore.see(&Sight::Handing(task.content()));
        self.task = Some(task);
    }

    fn hang_up(&mut self, shore: &mut Shore<'_>) {
        if let Some(mut line) = self.line.take() {
            line.close(shore);
        }
    }

    fn go_on(&mut self, shore: &mut Shore<'_>) {
        let Some(task) = &mut self.task else { return };
        if !task.asked && task.not_before > shore.at {
            return;
        }
        let Some(line) = &mut self.line else {
            self.http = Client::new();
            self.input.clear();
            self.line = Some(Line::dial(shore));
            return;
        };
        if line.is_up() && !task.asked {
            task.ask(self.bearer, &mut self.http, line, shore);
        }
        if task.asked {
            task.pour(&mut self.http, line);
        }
        let came = line.run(shore, &mut self.input);
        if task.asked {
            task.pour(&mut self.http, line);
        }
        let silent = line.heard.plus(PATIENCE) <= shore.at;
        let left = task.leaves_at.is_some_and(|at| task.part.start >= at && line.unsent() == 0);
        let read = self.read();
        let over = came != Came::More || silent || left || read == Read::Fault;
        match read {
            Read::Whole => self.answered(shore, over),
            Read::More | Read::Fault if over => self.broken(shore),
            Read::More | Read::Fault => {}
        }
    }

    /// Reads what has come of the answer.
    fn read(&mut self) -> Read {
        let Some(task) = &mut self.task else { return Read::More };
        let mut input = &self.input[..];
        let read = loop {
            match self.http.read(&mut input) {
                Ok(Some(Reply::Continue)) => {}
                Ok(Some(Reply::Head(head))) => task.head = Some(*head),
                Ok(Some(Reply::Body(data))) => task.came.extend_from_slice(data),
                Ok(Some(Reply::End)) => break Read::Whole,
                Ok(None) => break Read::More,
                Err(_) => break Read::Fault,
            }
        };
        let used = self.input.len() - input.len();
        self.input.drain(..used);
        read
    }

    /// The connection is of no use any more: later, from where that may be.
    fn broken(&mut self, shore: &mut Shore<'_>) {
        self.hang_up(shore);
        let Some(task) = &mut self.task else { return };
        let step = match task.step {
            Step::Slot => Step::Slot,
            Step::Post | Step::Head | Step::Patch(_) if shore.rng.chance(600_000) => Step::Head,
            Step::Post | Step::Head | Step::Patch(_) => Step::Post,
        };
        task.again(step, shore);
    }

    fn answered(&mut self, shore: &mut Shore<'_>, over: bool) {
        let Some(mut task) = self.task.take() else { return };
        let Some(head) = task.head.take() else { return };
        let came = std::mem::take(&mut task.came);
        if over || !self.http.is_idle() || shore.rng.chance(300_000) {
            self.hang_up(shore);
        }
        if !task.judge(&head, &came, shore) {
            self.task = Some(task);
        }
    }

    fn wake(&self, shore: &Shore<'_>) -> Micros {
        let wake = match (&self.task, &self.line) {
            (None, _) => self.jobs.front().map_or(Micros::FAR, |job| job.at),
            (Some(task), Some(line)) if task.asked || !line.is_up() => {
                line.wake().min(line.heard.plus(PATIENCE))
            }
            (Some(task), _) => task.not_before,
        };
        wake.max(shore.at.plus(1))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    More,
    Whole,
    Fault,
}

impl Task {
    pub(super) fn content(&self) -> Content {
        let size = self.body.len() as u64;
        Content { shard: self.job.shard.clone(), sha256: self.sha256, size }
    }

    /// Another request, after a little while.
    pub(super) fn again(&mut self, step: Step, shore: &mut Shore<'_>) {
        self.tries += 1;
        (self.step, self.asked, self.head) = (step, false, None);
        self.came.clear();
        self.leaves_at = None;
        let most = 500 << self.tries.min(4);
        self.not_before = shore.in_millis(100, most);
    }

    /// The next request at once.
    pub(super) fn next(&mut self, step: Step, shore: &Shore<'_>) {
        (self.step, self.asked, self.head) = (step, false, None);
        self.came.clear();
        self.leaves_at = None;
        self.not_before = shore.at;
    }

    fn ask(&mut self, bearer: Token, http: &mut Client, line: &mut Line, shore: &mut Shore<'_>) {
        let mut fields = shard_fields(&self.job.shard, &bearer.text());
        (self.token, self.asked_at) = (bearer.hash(), shore.at);
        let whole = self.body.len();
        let (target, payload) = match self.step {
            Step::Slot => {
                fields.push(("Upload-Length", whole.to_string()));
                (("PUT", "/buffer/slot"), Payload::Empty)
            }
            Step::Head => (("HEAD", "/buffer/upload"), Payload::Empty),
            Step::Post => {
                let parts = whole > 1 && shore.rng.chance(250_000);
                let end =
                    if parts { shore.rng.between(1, whole as u64 - 1) as usize } else { whole };
                (("POST", "/buffer/upload"), self.bring(0..end, &mut fields, shore))
            }
            Step::Patch(offset) => {
                let from = (offset as usize).min(whole);
                let left = whole - from;
                let parts = left > 1 && shore.rng.chance(250_000);
                let bring =
                    if parts { shore.rng.between(1, left as u64 - 1) as usize } else { left };
                fields.push(("Upload-Offset", offset.to_string()));
                (("PATCH", "/buffer/upload"), self.bring(from..from + bring, &mut fields, shore))
            }
        };
        request(http, shore, target, &fields, payload, line.out());
        line.heard = shore.at;
        self.asked = true;
    }

    /// The fields about this part of the body, and how it is sent.
    fn bring(
        &mut self,
        part: std::ops::Range<usize>,
        fields: &mut Fields,
        shore: &mut Shore<'_>,
    ) -> Payload<'static> {
        let whole = self.body.len();
        let complete = part.end == whole;
        if !complete || shore.rng.chance(300_000) {
            fields.push(("Upload-Complete", if complete { "?1" } else { "?0" }.to_string()));
        }
        if shore.rng.chance(300_000) {
            fields.push(("Upload-Length", whole.to_string()));
        }
        let digests = field(&self.sha256, &self.blake3);
        match shore.rng.below(4) {
            0 => {}
            1 if complete && part.start == 0 => fields.push((CONTENT_DIGEST, digests)),
            2 => {
                let data = &self.body[part.clone()];
                let blake3 = BlobDigest(*blake3::hash(data).as_bytes());
                fields.push((CONTENT_DIGEST, field(&digest(data), &blake3)));
            }
            _ => fields.push((REPR_DIGEST, digests)),
        }
        self.chunked = shore.rng.chance(200_000);
        let len = part.len();
        let leaves = shore.rng.chance(shore.tricks.leaves) && len > 0;
        let at = shore.rng.below(len.max(1) as u64) as usize;
        self.leaves_at = leaves.then_some(part.start + at);
        self.part = part;
        if self.chunked { Payload::Chunked } else { Payload::Sized(len as u64) }
    }

    /// Writes on, as long as little waits.
    fn pour(&mut self, http: &mut Client, line: &mut Line) {
        if !matches!(self.step, Step::Post | Step::Patch(_)) || self.head.is_some() {
            return;
        }
        let end = self.leaves_at.unwrap_or(self.part.end).min(self.part.end);
        let all = self.part.end;
        while self.part.start < end && line.unsent() < AHEAD {
            let n = (end - self.part.start).min(16 << 10);
            let piece = self.body.slice(self.part.start..self.part.start + n);
            http.send(&piece, line.out());
            self.part.start += n;
        }
        if self.part.start == all && all != usize::MAX && self.leaves_at.is_none() {
            http.finish(line.out());
            // Once.
            self.part = usize::MAX..usize::MAX;
        }
    }
}
