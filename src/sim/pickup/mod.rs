//! Pickup in a world: clients that upload shards to sites, and nodes that come for them.
//!
//! ```text
//!   Uploader ─┐  Line: real bytes, split and late,      Wire: Conn::pickup + PickupSession
//!   Uploader ─┼───────────── Net of the quay ──────────────▶ Process ── Node
//!   Keeper ───┘  reset, half-open, slow             what is seen: Sight ─▶ Audit
//! ```
//!
//! The quay has a network of its own, with the same faults, in which sites are the first hosts and every
//! client and node is another. Clients and nodes retry for ever; they know what they were told and what
//! they have, and nothing of what a site has. Operators enrol them when a site starts.

pub mod draw;
mod enrol;
mod fetch;
mod judge;
mod line;
mod node;
mod say;
mod seal;
pub mod sight;
mod socket;
mod turns;
mod upload;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use consign_core::id::Sha256Digest;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::pickup::token::Token;
use consign_core::time::UnixMillis;

use rustls::ClientConfig;

use super::audit::Violation;
use super::net::{Net, NetEvent, Sock};
use super::rng::Rng;
use super::seen::{Seen, SiteIx};
use super::setup::QuayTls;
use super::swarm::{Kind, Options};
use super::time::Micros;
use super::watch::Watch;
use super::world::{NAMES, World};
use draw::{Pickup, Tricks};
use node::Keeper;
use sight::Sight;
use upload::Uploader;

/// Shards of which other clients may bring other bytes.
const RECENT: usize = 32;
/// Operators look after those who are not known at most so often.
const ENROL_AGAIN: u64 = 10_000_000;
/// Tokens that are known to more than their node.
const LEAKED: usize = 32;

/// What somebody on the quay works with.
pub(super) struct Shore<'a> {
    /// True time.
    pub at: Micros,
    /// Who: a host of the quay's network.
    pub host: usize,
    /// The site it has to do with.
    pub site: SiteIx,
    /// That site's system clock: everybody keeps to it.
    pub system: UnixMillis,
    /// What is on the quay for everybody.
    pub common: &'a mut Common,
    /// The network.
    pub net: &'a mut Net,
    /// Who watches.
    pub watch: &'a mut Watch,
    /// Chance.
    pub rng: &'a mut Rng,
    /// What goes wrong on purpose.
    pub tricks: Tricks,
    /// How a site is met under real TLS.
    pub tls: Option<&'a Arc<ClientConfig>>,
}

impl Shore<'_> {
    /// The name under which the site is asked.
    pub fn authority(&self) -> &'static str {
        NAMES.get(self.site).copied().unwrap_or("nobody")
    }

    /// Shows what happened.
    pub fn see(&mut self, sight: &Sight) {
        self.watch.see(self.at, self.site, &Seen::Pickup(sight));
    }

    /// After a wait of between so many milliseconds.
    pub fn in_millis(&mut self, low: u64, high: u64) -> Micros {
        self.at.plus(1_000 * self.rng.between(low, high))
    }

    /// Somebody is not known at the site: an operator looks after it.
    pub fn not_known(&mut self) {
        self.common.unknown.insert(self.site);
    }
}

/// What is on the quay for everybody.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// Sites at which somebody who should be enrolled is not known.
    pub unknown: BTreeSet<SiteIx>,
    /// When everybody was enrolled there once more.
    pub enrolled: BTreeMap<SiteIx, Micros>,
    /// Shards of late, by site.
    pub recent: BTreeMap<SiteIx, VecDeque<ShardKey>>,
    /// Shards of which more than one client brings bytes.
    pub contested: BTreeSet<ShardKey>,
    /// Whether what a site reads of a partial upload may be other bytes than it wrote.
    pub reads_lie: bool,
    /// Signatures that were made: for which key, and when.
    pub claims: BTreeMap<[u8; 16], ([u8; 32], Micros)>,
    /// Tokens that others have heard of: by site, with the node they are for.
    pub leaked: VecDeque<(SiteIx, String, Token)>,
}

impl Common {
    fn remember(&mut self, site: SiteIx, shard: ShardKey) {
        let recent = self.recent.entry(site).or_default();
        recent.push_back(shard);
        if recent.len() > RECENT {
            recent.pop_front();
        }
    }

    fn leak(&mut self, site: SiteIx, node: &str, token: Token) {
        self.leaked.push_back((site, node.to_string(), token));
        if self.leaked.len() > LEAKED {
            self.leaked.pop_front();
        }
    }
}

#[derive(Debug)]
enum Who {
    Uploader(Box<Uploader>),
    Keeper(Box<Keeper>),
}

#[derive(Debug)]
struct Actor {
    site: SiteIx,
    who: Who,
    wake: Micros,
}

/// Everybody who has to do with pickup.
#[derive(Debug)]
pub struct Quay {
    /// Between them and the sites.
    pub net: Net,
    /// What a run has of it.
    pub options: Pickup,
    actors: Vec<Actor>,
    common: Common,
    rng: Rng,
    tricks: Tricks,
    sites: usize,
    turned: turns::Turned,
    /// Real TLS, where it is asked for.
    tls: Option<QuayTls>,
}

impl Quay {
    /// The quay of a run.
    #[must_use]
    pub fn new(options: &Options, tls: Option<QuayTls>) -> Quay {
        let (pickup, seed) = (options.keeping.pickup.clone(), options.seed);
        let mut rng = Rng::stream(seed, 8);
        let length = Micros::ZERO.after(options.length);
        let mut actors = Vec::new();
        for site in (0..options.sites).filter(|ix| pickup.is_at(*ix)) {
            for number in 0..pickup.clients {
                let uploader = Uploader::new(site, number, &pickup, seed, length, &mut rng);
                let who = Who::Uploader(Box::new(uploader));
                actors.push(Actor { site, who, wake: Micros::ZERO });
            }
            for number in 0..pickup.nodes {
                let who = Who::Keeper(Box::new(Keeper::new(site, number, seed)));
                actors.push(Actor { site, who, wake: Micros::ZERO });
            }
        }
        let hosts = options.sites + actors.len();
        let liars = [Kind::FlipRead, Kind::Rot, Kind::Misdirected];
        let reads_lie = liars.iter().any(|kind| options.rates.of(*kind) > 0);
        Quay {
            net: Net::new(Rng::stream(seed, 9), hosts),
            tricks: pickup.tricks,
            options: pickup,
            actors,
            common: Common { reads_lie, ..Common::default() },
            rng,
            sites: options.sites,
            turned: turns::Turned::new(seed),
            tls,
        }
    }

    /// Whether anybody is there.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.actors.is_empty()
    }

    /// When something happens next.
    #[must_use]
    pub fn next(&self) -> Micros {
        if !self.is_on() {
            return Micros::FAR;
        }
        let wakes = self.actors.iter().map(|actor| actor.wake);
        wakes.chain(self.net.next()).min().unwrap_or(Micros::FAR)
    }

    /// Nobody does on purpose any more what they should not.
    pub fn behave(&mut self, now: Micros) {
        self.net.heal(now);
        self.tricks = Tricks::default();
        self.options.crashes = 0;
        self.options.turns = 0;
        for actor in &mut self.actors {
            actor.wake = now;
            if let Who::Keeper(keeper) = &mut actor.who {
                keeper.behave();
            }
        }
    }

    /// Whether everybody has come to the end of what they want.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.actors.iter().all(|actor| match &actor.who {
            Who::Uploader(uploader) => uploader.is_done(),
            Who::Keeper(keeper) => keeper.is_idle(),
        })
    }

    /// What the first who is not at its end waits for, for people.
    #[must_use]
    pub fn unfinished(&self) -> Option<String> {
        self.actors.iter().find_map(|actor| match &actor.who {
            Who::Uploader(uploader) => (!uploader.is_done()).then(|| format!("{uploader:?}")),
            Who::Keeper(keeper) => (!keeper.is_idle()).then(|| format!("{keeper:?}")),
        })
    }

    /// Something for an actor; `None` is its clock.
    fn run(
        &mut self,
        now: Micros,
        ix: usize,
        system: UnixMillis,
        what: Option<News>,
        watch: &mut Watch,
    ) {
        let Quay { net, actors, common, rng, tricks, sites, tls, .. } = self;
        let Some(actor) = actors.get_mut(ix) else { return };
        let mut shore = Shore {
            at: now,
            host: *sites + ix,
            site: actor.site,
            system,
            common,
            net,
            watch,
            rng,
            tricks: *tricks,
            tls: tls.as_ref().map(|tls| &tls.shore),
        };
        actor.wake = match &mut actor.who {
            Who::Uploader(uploader) => uploader.run(&mut shore, what),
            Who::Keeper(keeper) => keeper.run(&mut shore, what),
        };
    }

    /// Chance decides whether nodes crash; this is asked `times` a minute.
    fn weather(&mut self, now: Micros, times: u32) {
        let Quay { net, actors, options, rng, sites, .. } = self;
        for (ix, actor) in actors.iter_mut().enumerate() {
            let Who::Keeper(keeper) = &mut actor.who else { continue };
            if rng.chance(options.crashes / times) {
                let power = rng.chance(500_000);
                net.host_down(now, *sites + ix, power);
                // A host whose process listens has power: it has none of its own.
                net.listen(*sites + ix, true);
                let down = now.plus(rng.between(1, 60) * 1_000_000);
                keeper.crash(down);
                actor.wake = down;
            }
        }
    }
}

/// Something from the network.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    /// A dial has succeeded.
    Connected(u64, Sock),
    /// A dial has failed.
    Failed(u64),
    /// A socket is to be looked at.
    Ready(Sock),
}

impl World {
    /// What happens on the quay now.
    pub(super) fn run_quay(&mut self) {
        while let Some(event) = self.quay.net.take(self.now) {
            self.quay_event(event);
        }
        for ix in 0..self.quay.actors.len() {
            if self.quay.actors[ix].wake <= self.now {
                self.run_actor(ix, None);
            }
        }
        for ix in std::mem::take(&mut self.quay.common.unknown) {
            let last = self.quay.common.enrolled.get(&ix).copied().unwrap_or(Micros::ZERO);
            if self.now >= last.plus(ENROL_AGAIN) {
                self.quay.common.enrolled.insert(ix, self.now);
                self.enrol(ix, true);
            }
        }
    }

    fn run_actor(&mut self, ix: usize, news: Option<News>) {
        let Some(actor) = self.quay.actors.get(ix) else { return };
        let system = self.sites[actor.site].clocks.system(self.now);
        self.quay.run(self.now, ix, system, news, &mut self.watch);
    }

    fn quay_event(&mut self, event: NetEvent) {
        let sites = self.sites.len();
        let host = event.site();
        match event {
            NetEvent::Connected { attempt, sock, .. } => {
                self.run_actor(host - sites, Some(News::Connected(attempt, sock)));
            }
            NetEvent::DialFailed { attempt, .. } => {
                self.run_actor(host - sites, Some(News::Failed(attempt)));
            }
            NetEvent::Ready { sock, .. } if host >= sites => {
                self.run_actor(host - sites, Some(News::Ready(sock)));
            }
            NetEvent::Ready { sock, .. } => {
                if let Some((process, mut around)) = self.process(host) {
                    let soon = around.soon();
                    process.quay_ready(sock, soon);
                }
            }
            NetEvent::Accepted { from, sock, .. } => {
                let stopping = self.sites[host].process.as_ref().is_none_or(|p| p.stopping);
                if stopping || !self.quay.options.is_at(host) {
                    return self.quay.net.close(self.now, sock);
                }
                let tls = self.quay.tls.as_ref().and_then(|tls| tls.sites.get(host)).cloned();
                if let Some((process, mut around)) = self.process(host) {
                    process.land(sock, from, tls.as_ref(), &mut around);
                }
            }
        }
    }

    /// Demands that every client and node has come to its end, unless what they rely on was destroyed.
    pub(super) fn quay_rests(&mut self) {
        let Some(left) = self.quay.unfinished() else { return };
        if self.watch.audit.has_lost_shards() {
            return;
        }
        let violation = Violation {
            invariant: "I28",
            site: String::new(),
            segment: None,
            name: String::new(),
            text: format!("somebody on the quay is not at the end: {left}"),
            story: Vec::new(),
        };
        self.watch.check(self.now, Err(violation));
    }

    /// Chance decides what happens on the quay; this is asked `times` a minute.
    pub(super) fn quay_weather(&mut self, times: u32) {
        if self.quay.is_on() {
            self.quay.weather(self.now, times);
            self.quay_turns(times);
        }
    }
}

/// The bearer token of a client.
pub(super) fn bearer(seed: u64, site: SiteIx, number: u64) -> Token {
    Token::new(secret(seed, 1, site, number))
}

/// The private key of a node.
pub(super) fn key(seed: u64, site: SiteIx, number: u64) -> [u8; 32] {
    secret(seed, 2, site, number)
}

fn secret(seed: u64, what: u64, site: SiteIx, number: u64) -> [u8; 32] {
    let mut rng = Rng::stream(seed, (what << 32) + ((site as u64) << 16) + number + (1 << 40));
    let mut bytes = [0; 32];
    fill(&mut rng, &mut bytes);
    bytes
}

/// Random bytes.
pub(in crate::sim) fn fill(rng: &mut Rng, bytes: &mut [u8]) {
    for piece in bytes.chunks_mut(8) {
        let word = rng.next().to_le_bytes();
        piece.copy_from_slice(&word[..piece.len()]);
    }
}

/// The name of a client.
pub(super) fn client_name(number: u64) -> String {
    format!("client-{number}")
}

/// The id of a node.
pub(super) fn node_id(site: SiteIx, number: u64) -> String {
    format!("node-{site}-{number}")
}

/// SHA-256 of content.
pub(super) fn digest(bytes: &[u8]) -> Sha256Digest {
    consign_core::pickup::sign::sha256(bytes)
}
