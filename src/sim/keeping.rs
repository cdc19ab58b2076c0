//! How long sites keep what, by way of whom they send, and what people do there: drawn from a stream of
//! its own, so that what else a seed draws stays as it is.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use consign_core::config::{PeerConfig, Route};

use super::net::Topology;
use super::pickup::draw::{Pickup, Tricks};
use super::rng::Rng;
use super::seen::SiteIx;
use super::world::NAMES;

/// A site that exists nowhere: what is for it goes round in circles, or nowhere.
pub const GHOST: &str = "ghost";

/// Sites that a site knows how to reach by way of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routes {
    /// None: who is no neighbour is not sent to.
    None,
    /// Every site that is no neighbour, by way of the neighbour towards it.
    Towards,
    /// The same, and a name that exists nowhere, by way of the next site.
    Loop,
}

impl Routes {
    const fn word(self) -> &'static str {
        match self {
            Routes::None => "none",
            Routes::Towards => "towards",
            Routes::Loop => "loop",
        }
    }
}

/// What differs from seed to seed of retention, routes and people. Shares are per million.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// `relay.evict_on_relay`
    pub evict: bool,
    /// `relay.keep_relayed`
    pub keep_relayed: Duration,
    /// `storage.keep` in multiples of the least that is allowed, 10 × `relay.ack_timeout`; 0 is a day.
    pub keep: u32,
    /// `relay.remember_for`
    pub remember_for: Duration,
    /// `relay.remember_max`
    pub remember_max: u64,
    /// `relay.keep_deadletter`
    pub keep_deadletter: Duration,
    /// `relay.keep_receipts`
    pub keep_receipts: Duration,
    /// `limits.audit_max`
    pub audit_max: u64,
    /// `inbound_quota` of every peer.
    pub inbound_quota: Option<u64>,
    /// `rate_limit` of every peer.
    pub rate_limit: Option<u64>,
    /// Of every ten minutes, so many are in the `window` of every peer; 0 is always.
    pub window: u64,
    /// `[[route]]`
    pub routes: Routes,
    /// Segments that expire within minutes, besides the few that do in any run.
    pub expires: u32,
    /// Jobs of which the content is handed in again under another instance.
    pub again: u32,
    /// Jobs that are handed in again as they are, seconds to minutes later.
    pub later: u32,
    /// Starts at which a peer is not configured any more, or is again.
    pub leaves: u32,
    /// Acts of an operator, per minute and site.
    pub acts: u32,
    /// Reloads of the configuration, per minute and site.
    pub reloads: u32,
    /// Shards, clients and nodes.
    pub pickup: Pickup,
}

/// A part of it that a run can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Eviction, and copies in transit that go before a day is over.
    Evict,
    /// Memory of evicted ids that is short.
    Memory,
    /// Dead letters, receipts and records that are kept for a short time only.
    Records,
    /// Quotas of peers.
    Quota,
    /// Rate limits and hours of contact.
    Pace,
    /// Routes.
    Routes,
    /// Segments that expire, beyond the few that do in any run.
    Expiry,
    /// Jobs that come again.
    Again,
    /// Peers that leave the configuration.
    Leave,
    /// Acts of operators.
    Acts,
    /// Configurations that change while sites run.
    Reloads,
    /// Pickup: shards, their clients and nodes.
    Pickup,
    /// Shards that are kept for a short time, and other small bounds of pickup.
    Graces,
    /// What clients and nodes do that they should not, and nodes that crash.
    Tricks,
    /// Keys of nodes that are changed, nodes and clients that are revoked.
    Revokes,
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 15] = [
        Part::Evict,
        Part::Memory,
        Part::Records,
        Part::Quota,
        Part::Pace,
        Part::Routes,
        Part::Expiry,
        Part::Again,
        Part::Leave,
        Part::Acts,
        Part::Reloads,
        Part::Pickup,
        Part::Graces,
        Part::Tricks,
        Part::Revokes,
    ];

    /// Its word on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Part::Evict => "evict",
            Part::Memory => "memory",
            Part::Records => "records",
            Part::Quota => "quota",
            Part::Pace => "pace",
            Part::Routes => "routes",
            Part::Expiry => "expiry",
            Part::Again => "again",
            Part::Leave => "leave",
            Part::Acts => "acts",
            Part::Reloads => "reloads",
            Part::Pickup => "pickup",
            Part::Graces => "graces",
            Part::Tricks => "tricks",
            Part::Revokes => "revokes",
        }
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Keeping {
    /// The product's defaults, and nobody who does anything.
    #[must_use]
    pub const fn usual() -> Keeping {
        Keeping {
            evict: false,
            keep_relayed: Duration::ZERO,
            keep: 0,
            remember_for: Duration::from_secs(7 * 24 * 3600),
            remember_max: 1_000_000,
            keep_deadletter: Duration::from_secs(30 * 24 * 3600),
            keep_receipts: Duration::from_secs(30 * 24 * 3600),
            audit_max: 1_000_000,
            inbound_quota: None,
            rate_limit: None,
            window: 0,
            routes: Routes::None,
            expires: 0,
            again: 0,
            later: 0,
            leaves: 0,
            acts: 0,
            reloads: 0,
            pickup: Pickup::none(),
        }
    }

    /// What a seed has.
    #[must_use]
    pub fn draw(seed: u64) -> Keeping {
        let rng = &mut Rng::stream(seed, 5);
        let seconds = |rng: &mut Rng, of: &[u64]| Duration::from_secs(*rng.pick(of));
        let share = |rng: &mut Rng, on: u32, most: u64| {
            let (on, share) = (rng.chance(on), rng.between(most / 20, most) as u32);
            if on { share } else { 0 }
        };
        let usual = Keeping::usual();
        Keeping {
            evict: rng.chance(500_000),
            keep_relayed: seconds(rng, &[0, 0, 0, 20, 200]),
            keep: *rng.pick(&[0, 0, 1, 1, 2]),
            remember_for: seconds(rng, &[7 * 24 * 3600, 7 * 24 * 3600, 120, 20]),
            remember_max: *rng.pick(&[usual.remember_max, usual.remember_max, 50, 5]),
            keep_deadletter: seconds(rng, &[30 * 24 * 3600, 30 * 24 * 3600, 200, 1_000]),
            keep_receipts: seconds(rng, &[30 * 24 * 3600, 30 * 24 * 3600, 60, 600]),
            audit_max: *rng.pick(&[usual.audit_max, usual.audit_max, 100, 10]),
            inbound_quota: *rng.pick(&[None, None, None, Some(4 << 20), Some(1 << 20)]),
            rate_limit: *rng.pick(&[None, None, None, Some(256 << 10), Some(32 << 10)]),
            window: *rng.pick(&[0, 0, 0, 0, 9, 5]),
            routes: *rng.pick(&[Routes::None, Routes::Towards, Routes::Towards, Routes::Loop]),
            expires: share(rng, 333_333, 400_000),
            again: share(rng, 500_000, 100_000),
            later: share(rng, 500_000, 300_000),
            leaves: share(rng, 333_333, 300_000),
            acts: share(rng, 500_000, 2_000_000),
            // From a stream of its own: what else a seed draws stays as it is.
            reloads: share(&mut Rng::stream(seed, 10), 333_333, 3_000_000),
            pickup: Pickup::draw(seed),
        }
    }

    /// The same without a part.
    pub fn drop(&mut self, part: Part) {
        let usual = Keeping::usual();
        match part {
            Part::Evict => {
                (self.evict, self.keep_relayed) = (usual.evict, usual.keep_relayed);
                self.keep = usual.keep;
            }
            Part::Memory => {
                (self.remember_for, self.remember_max) = (usual.remember_for, usual.remember_max);
            }
            Part::Records => {
                self.keep_deadletter = usual.keep_deadletter;
                (self.keep_receipts, self.audit_max) = (usual.keep_receipts, usual.audit_max);
            }
            Part::Quota => self.inbound_quota = usual.inbound_quota,
            Part::Pace => (self.rate_limit, self.window) = (usual.rate_limit, usual.window),
            Part::Routes => self.routes = usual.routes,
            Part::Expiry => self.expires = usual.expires,
            Part::Again => (self.again, self.later) = (usual.again, usual.later),
            Part::Leave => self.leaves = usual.leaves,
            Part::Acts => self.acts = usual.acts,
            Part::Reloads => self.reloads = usual.reloads,
            Part::Pickup => self.pickup = usual.pickup,
            Part::Graces => self.pickup.keep_long(),
            Part::Tricks => {
                (self.pickup.tricks, self.pickup.crashes) = (Tricks::default(), 0);
            }
            Part::Revokes => self.pickup.turns = 0,
        }
    }

    /// Whether it has a part that goes beyond what is usual.
    #[must_use]
    pub fn has(&self, part: Part) -> bool {
        let mut without = self.clone();
        without.drop(part);
        without != *self
    }

    /// `storage.keep`, given `relay.ack_timeout`.
    #[must_use]
    pub fn keep(&self, ack_timeout: Duration) -> Duration {
        if self.keep == 0 { DAY } else { ack_timeout * 10 * self.keep }
    }

    /// A neighbour as a peer.
    #[must_use]
    pub fn peer(&self, name: &str) -> PeerConfig {
        let (inbound_quota, rate_limit) = (self.inbound_quota, self.rate_limit);
        PeerConfig {
            inbound_quota,
            rate_limit,
            window: self.hours(),
            ..PeerConfig::new(name, name)
        }
    }

    /// The first minutes of every ten, as the configuration words them.
    fn hours(&self) -> Vec<String> {
        if self.window == 0 {
            return Vec::new();
        }
        let tens = (0..144).map(|ten| 10 * ten);
        let word = |at: u64| format!("{:02}:{:02}", at / 60, at % 60);
        tens.map(|at| format!("{}-{}", word(at), word(at + self.window))).collect()
    }

    /// The routes of site `ix` among `sites` sites with these links.
    #[must_use]
    pub fn routes(&self, ix: SiteIx, sites: usize, links: &[(SiteIx, SiteIx)]) -> Vec<Route> {
        let name = |ix: SiteIx| NAMES.get(ix).copied().unwrap_or("nobody").to_string();
        if self.routes == Routes::None {
            return Vec::new();
        }
        let towards = |to: SiteIx| Some((to, hop(ix, to, sites, links)?));
        let others = (0..sites).filter(|to| *to != ix);
        let far = others.filter_map(towards).filter(|(to, via)| to != via);
        let mut routes: Vec<Route> =
            far.map(|(to, via)| Route { to: name(to), via: name(via) }).collect();
        if self.routes == Routes::Loop && sites > 1 {
            let next = (1..sites).map(|step| (ix + step) % sites);
            let via = next.into_iter().find(|other| is_linked(ix, *other, links));
            routes.extend(via.map(|via| Route { to: GHOST.to_string(), via: name(via) }));
        }
        routes
    }
}

fn is_linked(a: SiteIx, b: SiteIx, links: &[(SiteIx, SiteIx)]) -> bool {
    links.contains(&(a.min(b), a.max(b)))
}

/// The neighbour of `from` on a shortest way to `to`; `None` for itself and where no way leads.
fn hop(from: SiteIx, to: SiteIx, sites: usize, links: &[(SiteIx, SiteIx)]) -> Option<SiteIx> {
    // Backwards from the end: the first neighbour that is reached is the next on a shortest way.
    let (mut seen, mut queue) = (vec![to], VecDeque::from([to]));
    while let Some(at) = queue.pop_front() {
        if at != from && is_linked(at, from, links) {
            return Some(at);
        }
        for other in (0..sites).filter(|other| is_linked(at, *other, links)) {
            if other != from && !seen.contains(&other) {
                seen.push(other);
                queue.push_back(other);
            }
        }
    }
    None
}

impl fmt::Display for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let k = self;
        let limit = |of: Option<u64>| of.map_or("none".to_string(), |n| n.to_string());
        write!(f, "evict={} keep_relayed={:?} keep={}", k.evict, k.keep_relayed, k.keep)?;
        write!(f, " remember={:?}/{}", k.remember_for, k.remember_max)?;
        write!(f, " keep_deadletter={:?} keep_receipts={:?}", k.keep_deadletter, k.keep_receipts)?;
        write!(f, " audit_max={} inbound={}", k.audit_max, limit(k.inbound_quota))?;
        write!(
            f,
            " rate={} open={}/10min",
            limit(k.rate_limit),
            if k.window == 0 { 10 } else { k.window }
        )?;
        write!(f, " routes={} expires={}ppm again={}ppm", k.routes.word(), k.expires, k.again)?;
        write!(f, " later={}ppm leaves={}ppm acts={}ppm", k.later, k.leaves, k.acts)?;
        write!(f, " reloads={}ppm", k.reloads)?;
        write!(f, " {}", k.pickup)
    }
}

/// Whether a network has sites that only others can reach.
#[must_use]
pub fn has_far_sites(topology: Topology, sites: usize) -> bool {
    topology.links(sites).len() < sites * (sites - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_draws_the_same_and_others_differ() {
        assert_eq!(Keeping::draw(1), Keeping::draw(1));
        for is in [
            |k: &Keeping| k.evict,
            |k: &Keeping| k.keep > 0,
            |k: &Keeping| k.routes == Routes::Loop,
            |k: &Keeping| k.leaves > 0,
            |k: &Keeping| k.acts > 0,
            |k: &Keeping| k.reloads > 0,
            |k: &Keeping| k.inbound_quota.is_some(),
            |k: &Keeping| k.window > 0,
        ] {
            assert!((0..50).any(|seed| is(&Keeping::draw(seed))));
            assert!((0..50).any(|seed| !is(&Keeping::draw(seed))));
        }
    }

    #[test]
    fn without_any_part_it_is_as_usual() {
        let mut keeping = Keeping::draw(3);
        for part in Part::ALL {
            keeping.drop(part);
            assert!(!keeping.has(part));
            assert!((0..50).any(|seed| Keeping::draw(seed).has(part)), "{part:?} never");
        }
        assert_eq!(keeping, Keeping::usual());
    }

    #[test]
    fn routes_lead_along_shortest_ways() {
        let keeping = Keeping { routes: Routes::Towards, ..Keeping::usual() };
        let routes = |topology: Topology, ix, sites: usize| -> Vec<String> {
            let routes = keeping.routes(ix, sites, &topology.links(sites));
            routes.into_iter().map(|r| format!("{} via {}", r.to, r.via)).collect()
        };
        assert_eq!(routes(Topology::Line, 0, 4), ["gamma via beta", "delta via beta"]);
        assert_eq!(routes(Topology::Line, 2, 4), ["alpha via beta"]);
        assert_eq!(routes(Topology::Star, 1, 3), ["gamma via alpha"]);
        assert_eq!(routes(Topology::Ring, 0, 4), ["gamma via beta"]);
        assert!(routes(Topology::Mesh, 0, 4).is_empty());
        assert!(has_far_sites(Topology::Line, 3) && !has_far_sites(Topology::Mesh, 3));
    }

    #[test]
    fn a_loop_goes_round_and_no_site_ends_it() {
        let keeping = Keeping { routes: Routes::Loop, ..Keeping::usual() };
        for topology in Topology::ALL {
            let links = topology.links(4);
            for (ix, name) in NAMES.iter().enumerate().take(4) {
                let routes = keeping.routes(ix, 4, &links);
                let ghost = routes.iter().find(|route| route.to == GHOST).expect("a way on");
                assert_ne!(ghost.via, *name);
            }
        }
    }

    #[test]
    fn windows_are_the_first_minutes_of_every_ten() {
        let hours = Keeping { window: 5, ..Keeping::usual() }.hours();
        assert_eq!(
            (hours.len(), hours[0].as_str(), hours[143].as_str()),
            (144, "00:00-00:05", "23:50-23:55")
        );
        assert!(Keeping::usual().hours().is_empty());
    }
}
