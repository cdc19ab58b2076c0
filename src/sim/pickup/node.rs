//! A node: registers, fetches what it is notified of, keeps it durably, and says so; for ever.

use std::collections::BTreeMap;

use consign_core::id::Sha256Digest;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows_pickup::AckStatus;
use consign_core::pickup::message::{FromRelay, PendingNotify, ShardAck};
use consign_core::pickup::sign::{Claim, public_key};
use consign_core::pickup::token::Token;

use super::fetch::{Fetch, Kind, Notice, Step};
use super::say::Signer;
use super::sight::Sight;
use super::socket::{Heard, Socket};
use super::{News, Shore, fill, key, node_id};
use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;

/// Fetches at a time, beside those of tricks.
const AT_ONCE: usize = 4;
/// An ack without an answer is said again after so long.
const AGAIN: u64 = 20_000_000;
/// Acks that are remembered, to be said again.
const SAID: usize = 16;

/// An ack that has no answer.
#[derive(Clone, Debug)]
struct Due {
    at: Micros,
    ack: ShardAck,
}

/// A node.
#[derive(Debug)]
pub(super) struct Keeper {
    id: String,
    secret: [u8; 32],
    public: [u8; 32],
    /// Another key, from then on.
    next: Option<(Micros, [u8; 32])>,
    /// It does not run before this.
    down: Micros,
    sockets: Vec<Socket>,
    redial: Micros,
    notices: BTreeMap<ShardKey, Notice>,
    fetches: Vec<Fetch>,
    acks: BTreeMap<u64, Due>,
    said: Vec<ShardAck>,
    /// What it has: durable.
    stored: BTreeMap<ShardKey, Sha256Digest>,
    /// Beginnings of content: durable.
    parts: BTreeMap<ShardKey, (Sha256Digest, Vec<u8>)>,
}

impl Keeper {
    pub fn new(site: SiteIx, number: u64, seed: u64) -> Keeper {
        Keeper {
            id: node_id(site, number),
            secret: key(seed, site, number),
            public: public_key(&key(seed, site, number)),
            next: None,
            down: Micros::ZERO,
            sockets: Vec::new(),
            redial: Micros::ZERO,
            notices: BTreeMap::new(),
            fetches: Vec::new(),
            acks: BTreeMap::new(),
            said: Vec::new(),
            stored: BTreeMap::new(),
            parts: BTreeMap::new(),
        }
    }

    pub fn is_idle(&self) -> bool {
        let nothing = self.notices.is_empty() && self.fetches.is_empty() && self.acks.is_empty();
        nothing && self.sockets.iter().any(|socket| socket.session.is_some())
    }

    /// It loses all that is not durable; its connections are gone already.
    pub fn crash(&mut self, until: Micros) {
        self.sockets.clear();
        self.fetches.clear();
        self.notices.clear();
        self.acks.clear();
        self.said.clear();
        (self.down, self.redial) = (until, until);
    }

    /// It signs with another key from then on.
    pub fn turn(&mut self, at: Micros, secret: [u8; 32]) {
        self.next = Some((at, secret));
    }

    pub fn run(&mut self, shore: &mut Shore<'_>, news: Option<News>) -> Micros {
        if shore.at < self.down {
            return self.down;
        }
        if let Some((_, secret)) = self.next.take_if(|(at, _)| *at <= shore.at) {
            (self.secret, self.public) = (secret, public_key(&secret));
        }
        self.hear(news);
        self.run_sockets(shore);
        self.run_fetches(shore);
        self.begin_fetches(shore);
        self.say_acks(shore);
        self.wake(shore)
    }

    fn hear(&mut self, news: Option<News>) {
        let Some(news) = news else { return };
        let sockets = self.sockets.iter_mut().map(Socket::line);
        let lines = sockets.chain(self.fetches.iter_mut().map(Fetch::line));
        for line in lines {
            let mine = match news {
                News::Connected(attempt, sock) => line.connected(attempt, sock),
                News::Failed(attempt) => line.failed(attempt),
                News::Ready(sock) => line.ready(sock),
            };
            if mine {
                return;
            }
        }
    }

    fn run_sockets(&mut self, shore: &mut Shore<'_>) {
        if self.sockets.is_empty() && self.redial <= shore.at {
            self.sockets.push(Socket::dial(shore));
        }
        let mut i = 0;
        while i < self.sockets.len() {
            let mut heard = Vec::new();
            let (node, secret, public) = (&*self.id, &self.secret, self.public);
            let signer = Signer { node, secret, public };
            let fine = self.sockets[i].run(&signer, shore, &mut heard);
            for heard in heard {
                self.heard(i, heard, shore);
            }
            if fine {
                i += 1;
                continue;
            }
            let mut gone = self.sockets.remove(i);
            gone.close(shore);
            if let Some(session) = gone.session {
                shore.see(&Sight::Gone { node: self.id.clone(), session });
            }
            self.redial = shore.in_millis(50, 3_000);
        }
    }

    fn heard(&mut self, i: usize, heard: Heard, shore: &mut Shore<'_>) {
        match heard {
            Heard::Said(FromRelay::Registered(registered)) => {
                let session = registered.session;
                self.upgraded(i, 101, shore);
                self.sockets[i].session = Some(session);
                let node = self.id.clone();
                shore.see(&Sight::Registered { node, session });
                // Another session of the same node takes its place (F40).
                if self.sockets.len() == 1 && shore.rng.chance(shore.tricks.twice) {
                    self.sockets.push(Socket::dial(shore));
                }
            }
            Heard::Said(FromRelay::PendingNotify(notify)) => self.notified(i, &notify, shore),
            Heard::Said(FromRelay::ShardState(state)) => {
                let shard = ShardKey::new(
                    state.file_id,
                    state.version_number,
                    state.shard_index,
                    self.id.clone(),
                );
                let Ok(shard) = shard else { return };
                self.acks.remove(&state.redemption);
                let (redemption, state) = (state.redemption, state.state);
                shore.see(&Sight::State { shard, redemption, state });
            }
            Heard::Said(FromRelay::Error(error)) => match error.redemption {
                Some(redemption) if error.code == "stale_ack" || error.code == "unavailable" => {
                    self.acks.remove(&redemption);
                }
                Some(_) | None => {
                    let node = &self.id;
                    shore.see(&Sight::Odd(format!("{node} is told {error:?}")));
                }
            },
            Heard::Refused(status) => {
                self.upgraded(i, status, shore);
                match status {
                    401 => shore.not_known(),
                    408 | 429 | 503 | 500 => {}
                    _ => {
                        let node = &self.id;
                        shore.see(&Sight::Odd(format!("{node} is upgraded with {status}")));
                    }
                }
            }
            Heard::Odd(text) => shore.see(&Sight::Odd(text)),
        }
    }

    /// The signature of an upgrade was judged.
    fn upgraded(&mut self, i: usize, status: u16, shore: &mut Shore<'_>) {
        if let Some(claim) = self.sockets[i].claim.take() {
            self.signed(&claim, false, status, shore);
        }
    }

    fn signed(&self, claim: &Claim, forged: bool, status: u16, shore: &mut Shore<'_>) {
        if !matches!(status, 401 | 408 | 429 | 500..) {
            let (node, nonce) = (self.id.clone(), claim.nonce);
            let made = shore.common.claims.get(&nonce).copied();
            let (key, asked) = made.unwrap_or((self.public, shore.at));
            shore.see(&Sight::Signed { node, nonce, forged, status, key, asked });
        }
    }

    fn notified(&mut self, i: usize, notify: &PendingNotify, shore: &mut Shore<'_>) {
        let Some(session) = self.sockets[i].session else {
            return shore.see(&Sight::Odd(format!("{} is notified before it registers", self.id)));
        };
        let at = if shore.rng.chance(900_000) { shore.at } else { shore.in_millis(1, 20_000) };
        let Some(notice) = Notice::new(notify, &self.id, at) else {
            return shore.see(&Sight::Odd(format!("no shard is like that: {notify:?}")));
        };
        let (content, token) = (notice.content(), notice.token.hash());
        let redemption = notice.redemption;
        shore.see(&Sight::Notified { content, session, token, redemption });
        if shore.rng.chance(100_000) {
            shore.common.leak(shore.site, &self.id, notice.token);
        }
        if !shore.rng.chance(shore.tricks.ignored) {
            self.notices.insert(notice.shard.clone(), notice);
        }
    }

    /// Follows up what it was notified of, and does what it should not.
    fn begin_fetches(&mut self, shore: &mut Shore<'_>) {
        while self.fetches.len() < AT_ONCE {
            let due = self.notices.iter().find(|(_, notice)| notice.at <= shore.at);
            let Some(shard) = due.map(|(shard, _)| shard.clone()) else { return };
            let Some(notice) = self.notices.remove(&shard) else { return };
            self.trick(&notice, shore);
            let from = self.has(&notice);
            let race = shore.rng.chance(shore.tricks.races);
            let more = if race { shore.rng.between(1, 15) } else { 0 };
            for _ in 0..more {
                self.fetches.push(Fetch::dial(Kind::Race, notice.clone(), None, shore));
            }
            self.fetches.push(Fetch::dial(Kind::Honest, notice, from, shore));
        }
    }

    /// How much of the content it has already, if any.
    fn has(&self, notice: &Notice) -> Option<u64> {
        if self.stored.get(&notice.shard) == Some(&notice.sha256) {
            return Some(notice.size);
        }
        let (sha256, part) = self.parts.get(&notice.shard)?;
        let fits = *sha256 == notice.sha256 && part.len() as u64 <= notice.size;
        (fits && !part.is_empty()).then_some(part.len() as u64)
    }

    fn trick(&mut self, notice: &Notice, shore: &mut Shore<'_>) {
        if !shore.rng.chance(shore.tricks.forged) {
            return;
        }
        let site = shore.site;
        let (kind, token) = match shore.rng.below(3) {
            0 => (Kind::Forged, notice.token),
            1 => {
                let mut bytes = [0; 32];
                fill(shore.rng, &mut bytes);
                (Kind::Unknown, Token::new(bytes))
            }
            _ => {
                let mine =
                    |(at, node, _): &&(SiteIx, String, Token)| *at == site && *node != self.id;
                let Some((.., token)) = shore.common.leaked.iter().find(mine) else { return };
                (Kind::Foreign, *token)
            }
        };
        let notice = Notice { token, ..notice.clone() };
        self.fetches.push(Fetch::dial(kind, notice, None, shore));
    }

    fn run_fetches(&mut self, shore: &mut Shore<'_>) {
        let mut i = 0;
        while i < self.fetches.len() {
            let (node, secret, public) = (&*self.id, &self.secret, self.public);
            let signer = Signer { node, secret, public };
            let step = self.fetches[i].run(&signer, shore);
            if matches!(step, Step::More) {
                i += 1;
                continue;
            }
            let mut fetch = self.fetches.remove(i);
            fetch.close(shore);
            self.over(fetch, matches!(step, Step::Answered), shore);
        }
    }

    /// A fetch is over.
    fn over(&mut self, fetch: Fetch, whole: bool, shore: &mut Shore<'_>) {
        let Some(head) = &fetch.head else { return };
        let status = head.status;
        if let Some(claim) = &fetch.claim {
            self.signed(claim, fetch.kind == Kind::Forged, status, shore);
        }
        if !fetch.again && shore.rng.chance(shore.tricks.forged) {
            let again = Fetch::replay(&fetch, shore);
            self.fetches.push(again);
        }
        match (status, fetch.kind) {
            (200 | 206, _) => self.served(fetch, whole, shore),
            // The session may be of the key before, and the new one was enrolled in a batch that is lost.
            (401, Kind::Honest) if !fetch.again => shore.not_known(),
            (status, kind) if kind.may_be_refused(status) => {}
            (_, kind) => {
                let text = String::from_utf8_lossy(&fetch.data);
                shore.see(&Sight::Odd(format!("a fetch ({kind:?}) is answered {status} {text}")));
            }
        }
    }

    fn served(&mut self, fetch: Fetch, whole: bool, shore: &mut Shore<'_>) {
        let notice = &fetch.notice;
        let (node, token) = (self.id.clone(), notice.token.hash());
        let (shard, redemption) = (notice.shard.clone(), notice.redemption);
        shore.see(&Sight::Served { node, token, shard, redemption });
        if !fetch.is_as_notified() {
            let head = &fetch.head;
            return shore.see(&Sight::Odd(format!("{:?} is answered with {head:?}", notice.shard)));
        }
        let from = fetch.from.unwrap_or(0) as usize;
        let mut data = match self.parts.get(&notice.shard) {
            _ if from == 0 => Vec::new(),
            Some((sha256, part)) if *sha256 == notice.sha256 && part.len() >= from => {
                part[..from].to_vec()
            }
            Some(_) | None => Vec::new(),
        };
        let has = self.stored.get(&notice.shard) == Some(&notice.sha256);
        if has && from as u64 == notice.size && whole && fetch.data.is_empty() {
            return self.ack(&fetch, AckStatus::Verified, shore);
        }
        if data.len() != from {
            return;
        }
        data.extend_from_slice(&fetch.data);
        if !whole {
            self.parts.insert(notice.shard.clone(), (notice.sha256, data));
            return;
        }
        if fetch.is_right(&data) {
            if shore.rng.chance(shore.tricks.failed) {
                return self.ack(&fetch, AckStatus::Failed, shore);
            }
            self.parts.remove(&notice.shard);
            self.stored.insert(notice.shard.clone(), notice.sha256);
            shore.see(&Sight::Stored(notice.content()));
            return self.ack(&fetch, AckStatus::Verified, shore);
        }
        if fetch.from.is_none() {
            shore.see(&Sight::Wrong(notice.content()));
        }
        self.parts.remove(&notice.shard);
        self.ack(&fetch, AckStatus::Failed, shore);
    }

    fn ack(&mut self, fetch: &Fetch, status: AckStatus, shore: &mut Shore<'_>) {
        let notice = &fetch.notice;
        let (shard, redemption) = (&notice.shard, notice.redemption);
        let reason = (status == AckStatus::Failed).then(|| "not usable".to_string());
        let ack = ShardAck {
            file_id: shard.file_id().to_string(),
            version_number: shard.version(),
            shard_index: shard.index(),
            redemption,
            status,
            reason,
        };
        let late = shore.rng.chance(shore.tricks.acks);
        let at = if late { shore.in_millis(100, 60_000) } else { shore.at };
        self.acks.insert(redemption, Due { at, ack });
        // An old one once more: whatever it is about, it changes nothing.
        if shore.rng.chance(shore.tricks.acks) && !self.said.is_empty() {
            let old = self.said[shore.rng.next() as usize % self.said.len()].clone();
            self.acks.entry(old.redemption).or_insert(Due { at: shore.at, ack: old });
        }
    }

    fn say_acks(&mut self, shore: &mut Shore<'_>) {
        let Some(i) = self.sockets.iter().rposition(|socket| socket.session.is_some()) else {
            return;
        };
        let now = shore.at;
        for due in self.acks.values_mut().filter(|due| due.at <= now) {
            if !self.sockets[i].ack(&due.ack, shore) {
                continue;
            }
            let ShardAck { redemption, status, .. } = due.ack;
            due.at = shore.at.plus(AGAIN);
            let ack = &due.ack;
            let shard = ShardKey::new(
                ack.file_id.clone(),
                ack.version_number,
                ack.shard_index,
                self.id.clone(),
            );
            if let Ok(shard) = shard {
                let verified = status == AckStatus::Verified;
                shore.see(&Sight::Acked { shard, redemption, verified });
            }
            if self.said.len() == SAID {
                self.said.remove(0);
            }
            self.said.push(due.ack.clone());
        }
    }

    fn wake(&self, shore: &Shore<'_>) -> Micros {
        let registered = self.sockets.iter().any(|socket| socket.session.is_some());
        let redial = if self.sockets.is_empty() { self.redial } else { Micros::FAR };
        let sockets = self.sockets.iter().map(Socket::wake);
        let fetches = self.fetches.iter().map(Fetch::wake);
        let room = self.fetches.len() < AT_ONCE;
        let notices = self.notices.values().map(|notice| notice.at).filter(|_| room);
        let acks = self.acks.values().map(|due| due.at).filter(|_| registered);
        let all = sockets.chain(fetches).chain(notices).chain(acks);
        all.chain([redial]).min().unwrap_or(Micros::FAR).max(shore.at.plus(1))
    }
}
