//! One fetch of a node: a signed request with a token, and what comes of it.

use consign_core::http::{Client, Payload, Reply, ReplyHead};
use consign_core::id::Sha256Digest;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::pickup::digest::{Given, REPR_DIGEST};
use consign_core::pickup::message::PendingNotify;
use consign_core::pickup::sign::{Claim, sha256};
use consign_core::pickup::token::{TOKEN, Token};

use super::Shore;
use super::line::{Came, Line};
use super::say::{Fields, Signer, number, request, sign};
use super::sight::Content;
use crate::sim::time::Micros;

/// Without a byte for so long a fetch is given up.
const PATIENCE: u64 = 60_000_000;

/// What a node was notified of.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub shard: ShardKey,
    pub size: u64,
    pub sha256: Sha256Digest,
    pub token: Token,
    pub redemption: u64,
    /// When it is followed up.
    pub at: Micros,
}

impl Notice {
    pub fn new(notify: &PendingNotify, node: &str, at: Micros) -> Option<Notice> {
        let (file, version) = (notify.file_id.as_str(), notify.version_number);
        let shard = ShardKey::new(file, version, notify.shard_index, node).ok()?;
        let (size, sha256, token) = (notify.size, notify.digest.sha256, notify.token);
        Some(Notice { shard, size, sha256, token, redemption: notify.redemption, at })
    }

    pub fn content(&self) -> Content {
        Content { shard: self.shard.clone(), sha256: self.sha256, size: self.size }
    }
}

/// Why a fetch is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To get the content.
    Honest,
    /// One of several at once, with one token.
    Race,
    /// With a token of another node.
    Foreign,
    /// With a token that nobody was given.
    Unknown,
    /// With a signature that is not right.
    Forged,
}

impl Kind {
    /// Whether the documents name this refusal for such a fetch: the first time, and when its bytes come
    /// once more (before the nonce of the first is durable the token is judged again).
    pub fn may_be_refused(self, status: u16) -> bool {
        match status {
            401 | 404 | 408 | 409 | 410 | 429 | 500 | 503 => true,
            403 => self == Kind::Foreign,
            _ => false,
        }
    }
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Step {
    More,
    /// It is over without an answer, or in the midst of one.
    Broken,
    /// It is answered; its body is in `data`.
    Answered,
}

/// A fetch.
#[derive(Debug)]
pub(super) struct Fetch {
    pub kind: Kind,
    /// The bytes of an earlier request of this kind once more.
    pub again: bool,
    pub notice: Notice,
    /// `Range: bytes=N-`.
    pub from: Option<u64>,
    pub claim: Option<Claim>,
    pub head: Option<ReplyHead>,
    pub data: Vec<u8>,
    /// What went out, to be sent again.
    pub asked: Vec<u8>,
    line: Line,
    http: Client,
    input: Vec<u8>,
    out: bool,
    /// It breaks off when so much of the body is there.
    leaves_at: Option<usize>,
}

impl Fetch {
    pub fn dial(kind: Kind, notice: Notice, from: Option<u64>, shore: &mut Shore<'_>) -> Fetch {
        let leaves = shore.rng.chance(shore.tricks.leaves / 2);
        let at = shore.rng.below(notice.size.max(1)) as usize;
        Fetch {
            kind,
            again: false,
            notice,
            from,
            claim: None,
            head: None,
            data: Vec::new(),
            asked: Vec::new(),
            line: Line::dial(shore),
            http: Client::new(),
            input: Vec::new(),
            out: false,
            leaves_at: leaves.then_some(at),
        }
    }

    /// The same bytes as an earlier request.
    pub fn replay(earlier: &Fetch, shore: &mut Shore<'_>) -> Fetch {
        let mut again = Fetch::dial(earlier.kind, earlier.notice.clone(), earlier.from, shore);
        again.again = true;
        (again.asked, again.claim) = (earlier.asked.clone(), earlier.claim.clone());
        again
    }

    pub fn line(&mut self) -> &mut Line {
        &mut self.line
    }

    pub fn run(&mut self, signer: &Signer<'_>, shore: &mut Shore<'_>) -> Step {
        if !self.out && self.line.is_up() {
            self.ask(signer, shore);
        }
        let came = self.line.run(shore, &mut self.input);
        let mut input = &self.input[..];
        let step = loop {
            match self.http.read(&mut input) {
                Ok(Some(Reply::Continue)) => {}
                Ok(Some(Reply::Head(head))) => self.head = Some(*head),
                Ok(Some(Reply::Body(data))) => self.data.extend_from_slice(data),
                Ok(Some(Reply::End)) => break Step::Answered,
                Ok(None) => break Step::More,
                Err(_) => break Step::Broken,
            }
        };
        let used = self.input.len() - input.len();
        self.input.drain(..used);
        let leaves = self.leaves_at.is_some_and(|at| self.head.is_some() && self.data.len() >= at);
        let silent = self.line.heard.plus(PATIENCE) <= shore.at;
        match step {
            Step::More if came != Came::More || silent || leaves => Step::Broken,
            step @ (Step::More | Step::Broken | Step::Answered) => step,
        }
    }

    fn ask(&mut self, signer: &Signer<'_>, shore: &mut Shore<'_>) {
        self.out = true;
        self.line.heard = shore.at;
        let mut claim = match self.claim.take() {
            Some(claim) => claim,
            None => sign(shore, signer, "/buffer/fetch"),
        };
        if self.kind == Kind::Forged && !self.again {
            let bit = shore.rng.below(512) as usize;
            claim.signature[bit / 8] ^= 1 << (bit % 8);
        }
        let mut fields: Fields = claim.fields().into();
        fields.push((TOKEN, self.notice.token.text()));
        if let Some(from) = self.from {
            fields.push(("Range", format!("bytes={from}-")));
        }
        let mut bytes = Vec::new();
        let target = ("GET", "/buffer/fetch");
        request(&mut self.http, shore, target, &fields, Payload::Empty, &mut bytes);
        if self.again {
            bytes = std::mem::take(&mut self.asked);
        }
        self.line.out().extend_from_slice(&bytes);
        (self.asked, self.claim) = (bytes, Some(claim));
    }

    /// Whether the head says of the content what the notification said.
    pub fn is_as_notified(&self) -> bool {
        let Some(head) = &self.head else { return false };
        let shard = &self.notice.shard;
        let given = Given::of(&head.headers, REPR_DIGEST);
        head.headers.text("X-Nodus-File-Id") == Some(shard.file_id())
            && number(head, "X-Nodus-Version") == Some(shard.version())
            && number(head, "X-Nodus-Shard-Index") == Some(shard.index())
            && number(head, "X-Nodus-Redemption") == Some(self.notice.redemption)
            && given.is_ok_and(|given| given.sha256 == Some(self.notice.sha256))
    }

    /// Whether these bytes are the content.
    pub fn is_right(&self, whole: &[u8]) -> bool {
        whole.len() as u64 == self.notice.size && sha256(whole) == self.notice.sha256
    }

    pub fn wake(&self) -> Micros {
        self.line.wake().min(self.line.heard.plus(PATIENCE))
    }

    pub fn close(&mut self, shore: &mut Shore<'_>) {
        self.line.close(shore);
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn only_a_token_of_another_node_is_forbidden() {
        let kinds = [Kind::Honest, Kind::Race, Kind::Foreign, Kind::Unknown, Kind::Forged];
        for kind in kinds {
            assert_eq!(kind.may_be_refused(403), kind == Kind::Foreign, "{kind:?}");
            assert!(kind.may_be_refused(409) && !kind.may_be_refused(400), "{kind:?}");
        }
    }
}
