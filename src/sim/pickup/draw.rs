//! What a seed draws of pickup, from a stream of its own: what else a seed draws stays as it is.

use std::fmt;
use std::time::Duration;

use consign_core::config::BufferConfig;

use crate::sim::rng::Rng;
use crate::sim::seen::SiteIx;

/// Longest content that is uploaded.
pub const LONGEST: u64 = 700 << 10;

/// Which sites take shards, how many come, for how long they are kept, and what clients and nodes do
/// that they should not. Shares are per million.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pickup {
    /// Sites that take shards, a bit for each; 0 is none.
    pub sites: u64,
    /// Nodes of each of them.
    pub nodes: u64,
    /// Clients of each of them.
    pub clients: u64,
    /// Shards that the clients of a site bring in all.
    pub shards: u64,
    /// Shards of more than one piece.
    pub large: u32,
    /// `buffer.max_bytes`
    pub max_bytes: u64,
    /// `buffer.ttl`
    pub ttl: Duration,
    /// `buffer.upload_grace`
    pub upload_grace: Duration,
    /// `buffer.transit_grace`
    pub transit_grace: Duration,
    /// `buffer.slot_ttl`
    pub slot_ttl: Duration,
    /// `buffer.token_ttl`
    pub token_ttl: Duration,
    /// `buffer.keep_history`
    pub keep_history: Duration,
    /// `buffer.notify_window`
    pub window: u32,
    /// `buffer.max_pickups`
    pub max_pickups: u32,
    /// Nodes that crash, per minute and node.
    pub crashes: u32,
    /// Keys that are changed, and nodes and clients that are revoked and enrolled anew, per minute and site.
    pub turns: u32,
    /// What clients and nodes do that they should not.
    pub tricks: Tricks,
}

/// How often clients and nodes do what they should not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tricks {
    /// Shards that a node says it could not use, though it could.
    pub failed: u32,
    /// Notifications that a node does not follow up.
    pub ignored: u32,
    /// Acks that come late, twice, or under an old number.
    pub acks: u32,
    /// Fetches that are begun many times at once, with one token (F41).
    pub races: u32,
    /// Requests that are sent again as they were, forged, or with another's token (F41).
    pub forged: u32,
    /// Sessions beside which the same node opens another (F40).
    pub twice: u32,
    /// Shards for which other bytes come as well, by another client.
    pub contested: u32,
    /// Requests that a client breaks off.
    pub leaves: u32,
}

const DAY: u64 = 24 * 3600;

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

impl Pickup {
    /// No site takes shards.
    #[must_use]
    pub const fn none() -> Pickup {
        Pickup {
            sites: 0,
            nodes: 0,
            clients: 0,
            shards: 0,
            large: 0,
            max_bytes: 10 << 30,
            ttl: seconds(3 * DAY),
            upload_grace: seconds(3600),
            transit_grace: seconds(1800),
            slot_ttl: seconds(3600),
            token_ttl: seconds(300),
            keep_history: seconds(30 * DAY),
            window: 32,
            max_pickups: 20,
            crashes: 0,
            turns: 0,
            tricks: Tricks {
                failed: 0,
                ignored: 0,
                acks: 0,
                races: 0,
                forged: 0,
                twice: 0,
                contested: 0,
                leaves: 0,
            },
        }
    }

    /// What a seed has.
    #[must_use]
    pub fn draw(seed: u64) -> Pickup {
        let rng = &mut Rng::stream(seed, 7);
        let on = rng.chance(333_333);
        let pick = |rng: &mut Rng, of: &[u64]| seconds(*rng.pick(of));
        let share = |rng: &mut Rng, on: u32, most: u64| {
            let (on, share) = (rng.chance(on), rng.between(most / 20, most) as u32);
            if on { share } else { 0 }
        };
        let drawn = Pickup {
            sites: *rng.pick(&[1, 1, 2, 3, 6]),
            nodes: rng.between(1, 3),
            clients: rng.between(1, 3),
            shards: rng.between(20, 120),
            large: share(rng, 500_000, 300_000),
            max_bytes: *rng.pick(&[10 << 30, 10 << 30, 8 << 20, 2 << 20]),
            ttl: pick(rng, &[3 * DAY, 3 * DAY, 120, 600]),
            upload_grace: pick(rng, &[3600, 3600, 20, 120]),
            transit_grace: pick(rng, &[1800, 1800, 5, 60]),
            slot_ttl: pick(rng, &[3600, 3600, 10, 100]),
            token_ttl: pick(rng, &[300, 300, 5, 30]),
            keep_history: pick(rng, &[30 * DAY, 30 * DAY, 60, 300]),
            window: *rng.pick(&[32, 32, 4, 1]),
            max_pickups: *rng.pick(&[20, 20, 3, 1]),
            crashes: share(rng, 500_000, 400_000),
            // From a stream of its own: what else a seed draws stays as it is.
            turns: share(&mut Rng::stream(seed, 12), 500_000, 2_000_000),
            tricks: Tricks {
                failed: share(rng, 500_000, 150_000),
                ignored: share(rng, 500_000, 150_000),
                acks: share(rng, 500_000, 300_000),
                races: share(rng, 500_000, 200_000),
                forged: share(rng, 500_000, 200_000),
                twice: share(rng, 500_000, 300_000),
                contested: share(rng, 500_000, 100_000),
                leaves: share(rng, 500_000, 150_000),
            },
        };
        if on { drawn } else { Pickup::none() }
    }

    /// Whether a site takes shards.
    #[must_use]
    pub fn is_at(&self, ix: SiteIx) -> bool {
        ix < 64 && self.sites & 1 << ix != 0
    }

    /// The same with the times and bounds that are usual.
    pub fn keep_long(&mut self) {
        let usual = Pickup::none();
        *self = Pickup {
            sites: self.sites,
            nodes: self.nodes,
            clients: self.clients,
            shards: self.shards,
            large: self.large,
            crashes: self.crashes,
            turns: self.turns,
            tricks: self.tricks,
            ..usual
        };
    }

    /// `[buffer]`
    #[must_use]
    pub fn buffer(&self) -> BufferConfig {
        BufferConfig {
            max_bytes: self.max_bytes,
            ttl: self.ttl,
            upload_grace: self.upload_grace,
            transit_grace: self.transit_grace,
            slot_ttl: self.slot_ttl,
            token_ttl: self.token_ttl,
            keep_history: self.keep_history,
            notify_window: self.window,
            max_pickups: self.max_pickups,
            ..BufferConfig::default()
        }
    }
}

impl fmt::Display for Pickup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sites == 0 {
            return f.write_str("pickup=none");
        }
        let Pickup { sites, nodes, clients, shards, large, max_bytes, ttl, .. } = self;
        let Pickup { upload_grace, transit_grace, slot_ttl, token_ttl, keep_history, .. } = self;
        let (window, pickups, crashes, t) =
            (self.window, self.max_pickups, self.crashes, &self.tricks);
        write!(f, "pickup={sites:b} nodes={nodes} clients={clients} shards={shards}")?;
        write!(f, " shards_large={large}ppm buffer={max_bytes} ttl={ttl:?}")?;
        write!(f, " graces={upload_grace:?}/{transit_grace:?} slot={slot_ttl:?}")?;
        write!(f, " token={token_ttl:?} history={keep_history:?} notify={window}")?;
        write!(f, " pickups={pickups} node_crashes={crashes}ppm failed={}ppm", t.failed)?;
        write!(f, " ignored={}ppm acks={}ppm races={}ppm", t.ignored, t.acks, t.races)?;
        write!(f, " forged={}ppm twice={}ppm", t.forged, t.twice)?;
        write!(f, " contested={}ppm leave={}ppm", t.contested, t.leaves)?;
        write!(f, " revokes={}ppm", self.turns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_all_seeds_has_it_and_a_seed_always_draws_the_same() {
        assert_eq!(Pickup::draw(1), Pickup::draw(1));
        let on = (0..300).filter(|seed| Pickup::draw(*seed).sites != 0).count();
        assert!((70..130).contains(&on), "{on}");
    }
}
