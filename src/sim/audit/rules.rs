//! What a site goes by, and what it went by when something was decided that is seen only now.
//!
//! A configuration that is read again holds from one turn on. Of a batch it is known by its number whether it was
//! filled before that, after it, or both: the one that was filled then may have been decided under either, and so may
//! what takes its place when its commit fails. What leaves by a session was decided after what it answers had come.

use std::time::Duration;

use consign_core::config::{Config, Route, SuccessCondition};
use consign_core::segment::Destinations;

use super::site::Site;
use crate::sim::time::Micros;

/// A configuration that this process went by before.
#[derive(Debug)]
struct Former {
    config: Config,
    /// When another one took its place.
    until: Micros,
    /// The first batch that it may have decided about, and the one that was filled when it ended.
    batches: (u64, u64),
    /// Nothing that it has decided is still to become durable.
    done: bool,
}

/// Configurations of a site beside the present one.
#[derive(Debug, Default)]
pub(super) struct Past {
    former: Vec<Former>,
    /// The first batch that the present one may have decided about.
    from: u64,
    /// The batch that is judged now.
    batch: Option<u64>,
    /// Whether any was replaced while the process ran.
    pub reloaded: bool,
    /// Whether one peer was ever enough.
    one_peer: bool,
    /// The longest that any configuration of this site let wait: `limits.partial_ttl`, and between two notifications.
    pub partial_ttl: Duration,
    pub notified: Duration,
}

impl Past {
    /// Takes note of a configuration that holds from now on.
    fn meets(&mut self, config: &Config) {
        self.one_peer |= config.success_condition == SuccessCondition::OnePeer;
        self.partial_ttl = self.partial_ttl.max(config.partial_ttl);
        let notified = config.backoff_max * 2 + config.buffer.token_ttl * 2;
        self.notified = self.notified.max(notified);
    }
}

impl Site {
    /// It goes by this from its next start on.
    pub fn starts_with(&mut self, config: Config) {
        (self.past.former, self.past.from) = (Vec::new(), 0);
        self.past.meets(&config);
        self.config = config;
    }

    /// A process starts, by what it went by last: nothing that was decided before is still to become durable,
    /// and batches are counted from the last one that is.
    pub fn starts(&mut self) {
        self.past.former.iter_mut().for_each(|former| former.done = true);
        self.past.from = 0;
    }

    /// It goes by this from now on; `handed` is the last batch that was filled before.
    pub fn goes_on_with(&mut self, at: Micros, config: Config, handed: u64) {
        self.past.meets(&config);
        let old = std::mem::replace(&mut self.config, config);
        let batches = (self.past.from, handed + 1);
        self.past.former.push(Former { config: old, until: at, batches, done: false });
        (self.past.from, self.past.reloaded) = (handed + 1, true);
    }

    /// A batch is judged from now on.
    pub fn judges(&mut self, batch: u64) {
        self.past.batch = Some(batch);
    }

    /// … and is judged.
    pub fn has_judged(&mut self) {
        let Some(batch) = self.past.batch.take() else { return };
        for former in &mut self.past.former {
            former.done |= batch >= former.batches.1;
        }
    }

    /// Configurations under which what becomes durable now may have been decided.
    pub fn rules(&self) -> impl Iterator<Item = &Config> {
        let batch = self.past.batch.unwrap_or(u64::MAX);
        let former = self.past.former.iter();
        let former = former.filter(move |former| !former.done && former.batches.0 <= batch);
        let present = (self.past.from <= batch).then_some(&self.config);
        former.map(|former| &former.config).chain(present)
    }

    /// Configurations that held at any time since then, the latest first.
    pub fn rules_since(&self, since: Micros) -> impl Iterator<Item = &Config> {
        let former = self.past.former.iter().rev().filter(move |former| former.until >= since);
        std::iter::once(&self.config).chain(former.map(|former| &former.config))
    }

    /// The least of what may have held.
    pub fn least(&self, of: impl Fn(&Config) -> u64) -> u64 {
        self.rules().map(of).min().unwrap_or(u64::MAX)
    }

    /// The most of it.
    pub fn most(&self, of: impl Fn(&Config) -> u64) -> u64 {
        self.rules().map(of).max().unwrap_or(0)
    }

    /// Whether one peer was enough at any time: what was relayed then stays so.
    pub const fn has_needed_one_peer(&self) -> bool {
        self.past.one_peer
    }
}

/// The peer by way of which a name is reached: itself, or its route's.
pub(super) fn hop<'n>(config: &'n Config, name: &'n str) -> Option<&'n str> {
    if config.peers.iter().any(|peer| peer.name == name) {
        return Some(name);
    }
    let route: &Route = config.routes.iter().find(|route| route.to == name)?;
    Some(&route.via)
}

/// Names that a segment must go to from a site: peers, or by name also those behind one, but neither to
/// nor by way of the one it came from or the one where it began.
pub(super) fn wanted<'n>(
    config: &'n Config,
    to: &Destinations,
    from: &str,
    origin: &str,
) -> Vec<&'n str> {
    let peers = config.peers.iter().map(|peer| peer.name.as_str());
    let routed = config.routes.iter().map(|route| route.to.as_str());
    let routed = routed.filter(|_| *to != Destinations::All);
    let names = peers.chain(routed).filter(|name| to.addresses(name));
    let open = |name: &&str| {
        let hop = hop(config, name);
        ![from, origin].iter().any(|not| *not == *name || Some(*not) == hop)
    };
    names.filter(open).collect()
}
