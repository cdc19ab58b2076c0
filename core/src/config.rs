//! The node's configuration: values that a front end has parsed, judged here by construction.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use crate::inbox::{self, InboxRule};
use crate::limits;
use crate::plant::Plant;
use crate::schedule::Contact;
use crate::segment::is_site_name;

mod live;

/// When a segment counts as relayed (DESIGN 3.5); named destinations are always all required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SuccessCondition {
    /// As soon as one peer has it.
    OnePeer,
    /// When every required peer has it.
    #[default]
    AllPeers,
}

impl SuccessCondition {
    /// The word in the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            SuccessCondition::OnePeer => "one_peer",
            SuccessCondition::AllPeers => "all_peers",
        }
    }
}

/// A known peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PeerConfig {
    /// Its name, as in its certificate.
    pub name: String,
    /// Where it is dialled.
    pub address: String,
    /// SHA-256 fingerprint its certificate must have.
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::maybe"))]
    pub pin: Option<[u8; 32]>,
    /// Fingerprints that will do as well: of the certificate that comes next, so that a change of keys leaves no gap.
    #[cfg_attr(feature = "serde", serde(default))]
    pub more_pins: Vec<[u8; 32]>,
    /// Most bytes of content held that came from it (`inbound_quota`).
    #[cfg_attr(feature = "serde", serde(default))]
    pub inbound_quota: Option<u64>,
    /// Most content bytes sent to it per second (`rate_limit`).
    #[cfg_attr(feature = "serde", serde(default))]
    pub rate_limit: Option<u64>,
    /// When it is sent to (`window`), as the configuration words it; empty is always.
    #[cfg_attr(feature = "serde", serde(default))]
    pub window: Vec<String>,
}

impl PeerConfig {
    /// A peer without a pin and without limits.
    #[must_use]
    pub fn new(name: impl Into<String>, address: impl Into<String>) -> PeerConfig {
        PeerConfig {
            name: name.into(),
            address: address.into(),
            pin: None,
            more_pins: Vec::new(),
            inbound_quota: None,
            rate_limit: None,
            window: Vec::new(),
        }
    }

    /// Every fingerprint that its certificate may have; empty when any will do.
    pub fn pins(&self) -> impl Iterator<Item = &[u8; 32]> {
        self.pin.iter().chain(&self.more_pins)
    }

    /// Whether its certificate may have that fingerprint.
    #[must_use]
    pub fn takes(&self, fingerprint: &[u8]) -> bool {
        self.pin.is_none() || self.pins().any(|pin| pin.as_slice() == fingerprint)
    }
}

/// A site that is reached by way of a known peer (`[[route]]`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Route {
    /// The site.
    pub to: String,
    /// The known peer that hands on to it.
    pub via: String,
}

/// What holds for shards (`[buffer]`). Field names are the configuration's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BufferConfig {
    /// `buffer.max_bytes`: most bytes of shards, reservations included.
    pub max_bytes: u64,
    /// `buffer.max_upload`: largest shard.
    pub max_upload: Option<u64>,
    /// `buffer.ttl`: the lease, from the first time buffered.
    pub ttl: Duration,
    /// `buffer.upload_grace`
    pub upload_grace: Duration,
    /// `buffer.transit_grace`
    pub transit_grace: Duration,
    /// `buffer.slot_ttl`
    pub slot_ttl: Duration,
    /// `buffer.token_ttl`
    pub token_ttl: Duration,
    /// `buffer.notify_window`: most notifications of a node unanswered.
    pub notify_window: u32,
    /// `buffer.max_pickups`: so many `failed` acks, and a shard is given up.
    pub max_pickups: u32,
    /// `buffer.keep_history`: how long finished rows are kept.
    pub keep_history: Duration,
    /// `limits.nonces_per_key`: share of each key.
    pub nonces_per_key: u64,
}

impl Default for BufferConfig {
    fn default() -> BufferConfig {
        BufferConfig {
            max_bytes: 10 << 30,
            max_upload: None,
            ttl: DAY * 3,
            upload_grace: Duration::from_secs(3600),
            transit_grace: Duration::from_secs(30 * 60),
            slot_ttl: Duration::from_secs(3600),
            token_ttl: Duration::from_secs(300),
            notify_window: 32,
            max_pickups: 20,
            keep_history: DAY * 30,
            nonces_per_key: 10_000,
        }
    }
}

/// Everything the node goes by. Field names are the configuration's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Config {
    /// `node.name`
    pub name: String,
    /// `relay.known_peers`
    pub peers: Vec<PeerConfig>,
    /// `[[route]]`
    #[cfg_attr(feature = "serde", serde(default))]
    pub routes: Vec<Route>,
    /// `[[inbox]]`
    #[cfg_attr(feature = "serde", serde(default))]
    pub inbox: Vec<InboxRule>,
    /// `[buffer]`
    #[cfg_attr(feature = "serde", serde(default))]
    pub buffer: BufferConfig,
    /// `relay.success_condition`
    pub success_condition: SuccessCondition,
    /// `relay.evict_on_relay`
    pub evict_on_relay: bool,
    /// `relay.keep_relayed`
    pub keep_relayed: Duration,
    /// `relay.remember_for`
    pub remember_for: Duration,
    /// `relay.remember_max`
    pub remember_max: u64,
    /// `relay.keep_deadletter`
    pub keep_deadletter: Duration,
    /// `relay.keep_receipts`
    pub keep_receipts: Duration,
    /// `relay.max_retries`
    pub max_retries: u32,
    /// `relay.strict_attempts`
    pub strict_attempts: bool,
    /// `relay.backoff_initial`
    pub backoff_initial: Duration,
    /// `relay.backoff_max`
    pub backoff_max: Duration,
    /// `relay.ack_timeout`
    pub ack_timeout: Duration,
    /// `relay.expire_after`
    pub expire_after: Option<Duration>,
    /// `relay.session_max_age`
    pub session_max_age: Duration,
    /// `storage.keep`: at least 10 times `relay.ack_timeout` (R5)
    pub keep: Duration,
    /// `storage.scrub_rate`, bytes per second
    pub scrub_rate: u64,
    /// `limits.audit_max`
    pub audit_max: u64,
    /// `storage.max_bytes`
    pub max_bytes: u64,
    /// `storage.max_segments`
    pub max_segments: Option<u64>,
    /// `storage.max_segment`
    pub max_segment: Option<u64>,
    /// `storage.min_free`
    pub min_free: u64,
    /// `storage.ledger_max`
    pub ledger_max: u64,
    /// `storage.inline_max`, at most [`limits::INLINE_MAX`]
    pub inline_max: u64,
    /// `limits.buffered_bytes`
    pub buffered_bytes: u64,
    /// `limits.session_bytes`
    pub session_bytes: u64,
    /// `limits.peer_sessions`
    pub peer_sessions: u32,
    /// `limits.partial_ttl`
    pub partial_ttl: Duration,
    /// `limits.drain_timeout`
    pub drain_timeout: Duration,
    /// Entries of one (peer, class) window of due deliveries, at least 1: [`limits::WINDOW`]. Tests
    /// take less, so that few deliveries already need paging.
    #[doc(hidden)]
    pub window: usize,
    /// A rule that is dropped on purpose, for tests of the simulator.
    #[doc(hidden)]
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub plant: Option<Plant>,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Default for Config {
    fn default() -> Config {
        Config {
            name: String::new(),
            peers: Vec::new(),
            routes: Vec::new(),
            inbox: Vec::new(),
            buffer: BufferConfig::default(),
            success_condition: SuccessCondition::AllPeers,
            evict_on_relay: false,
            keep_relayed: Duration::ZERO,
            remember_for: DAY * 7,
            remember_max: 1_000_000,
            keep_deadletter: DAY * 30,
            keep_receipts: DAY * 30,
            keep: DAY,
            scrub_rate: 20 << 20,
            audit_max: 1_000_000,
            max_retries: 8,
            strict_attempts: false,
            backoff_initial: Duration::from_secs(1),
            backoff_max: Duration::from_secs(15 * 60),
            ack_timeout: Duration::from_secs(60),
            expire_after: None,
            session_max_age: Duration::from_secs(3600),
            max_bytes: 100 << 30,
            max_segments: None,
            max_segment: None,
            min_free: 1 << 30,
            ledger_max: 64 << 30,
            inline_max: limits::INLINE_MAX as u64,
            buffered_bytes: 32 << 20,
            session_bytes: 4 << 20,
            peer_sessions: 256,
            partial_ttl: Duration::from_secs(7 * 24 * 3600),
            drain_timeout: Duration::from_secs(30),
            window: limits::WINDOW,
            plant: None,
        }
    }
}

/// A value the node cannot go by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigFault {
    /// The configuration key.
    pub key: &'static str,
    /// What is wrong with it, with the numbers.
    pub problem: String,
}

impl Config {
    /// Whether this rule is dropped here. Always `false` without the feature `plant`.
    #[doc(hidden)]
    #[must_use]
    pub const fn planted(&self, plant: Plant) -> bool {
        plant.is_in(self.plant)
    }

    /// Every rule that is broken; empty when the node can go by it.
    #[must_use]
    pub fn faults(&self) -> Vec<ConfigFault> {
        let mut faults = Vec::new();
        let mut rule = |ok: bool, key: &'static str, problem: String| {
            if !ok {
                faults.push(ConfigFault { key, problem });
            }
        };
        let name_rule = "must be 1 to 128 characters of A-Z a-z 0-9 . _ -";
        rule(is_site_name(&self.name), "node.name", alloc::format!("{:?} {name_rule}", self.name));
        for (i, peer) in self.peers.iter().enumerate() {
            let key = "relay.known_peers.name";
            rule(is_site_name(&peer.name), key, alloc::format!("{:?} {name_rule}", peer.name));
            let twice = self.peers.iter().take(i).any(|p| p.name == peer.name);
            rule(!twice, key, alloc::format!("{:?} stands there twice", peer.name));
            let window = Contact::parse(&peer.window).err();
            let problem = window.as_ref().map(ToString::to_string).unwrap_or_default();
            rule(window.is_none(), "relay.known_peers.window", problem);
            let rate = "must be more than 0; \"none\" is no limit";
            rule(peer.rate_limit != Some(0), "relay.known_peers.rate_limit", rate.into());
            rule(
                peer.name != self.name,
                key,
                alloc::format!("{:?} is this node itself", peer.name),
            );
        }
        rule(self.max_retries > 0, "relay.max_retries", "must be at least 1".into());
        rule(
            self.backoff_initial > Duration::ZERO,
            "relay.backoff_initial",
            "must be longer than 0".into(),
        );
        rule(
            self.backoff_initial <= self.backoff_max,
            "relay.backoff_initial",
            alloc::format!(
                "{:?} is larger than relay.backoff_max, {:?}",
                self.backoff_initial,
                self.backoff_max
            ),
        );
        rule(
            self.ack_timeout >= Duration::from_secs(1),
            "relay.ack_timeout",
            "must be at least 1s".into(),
        );
        for (i, route) in self.routes.iter().enumerate() {
            let key = "route.to";
            rule(is_site_name(&route.to), key, alloc::format!("{:?} {name_rule}", route.to));
            let twice = self.routes.iter().take(i).any(|r| r.to == route.to);
            rule(!twice, key, alloc::format!("{:?} has two routes", route.to));
            rule(route.to != self.name, key, alloc::format!("{:?} is this node itself", route.to));
            let direct = self.peers.iter().any(|p| p.name == route.to);
            rule(
                !direct,
                key,
                alloc::format!("{:?} is a known peer, no route leads there", route.to),
            );
            let via = self.peers.iter().any(|p| p.name == route.via);
            let problem = alloc::format!("{:?} is not among relay.known_peers", route.via);
            rule(via, "route.via", problem);
        }
        rule(
            self.keep >= self.ack_timeout.saturating_mul(10),
            "storage.keep",
            alloc::format!(
                "{:?} is less than 10 times relay.ack_timeout, {:?}",
                self.keep,
                self.ack_timeout
            ),
        );
        for (i, inbox) in self.inbox.iter().enumerate() {
            let twice = self.inbox.iter().take(i).any(|r| r.id == inbox.id);
            rule(!twice, "inbox", alloc::format!("rule {} stands there twice", i + 1));
            for (key, pattern) in [("inbox.from", &inbox.from), ("inbox.name", &inbox.name)] {
                let fault = pattern.as_deref().and_then(inbox::pattern_fault);
                rule(fault.is_none(), key, alloc::format!("{pattern:?}: {}", fault.unwrap_or("")));
            }
        }
        rule(
            self.inbox.len() <= inbox::RULES_MAX,
            "inbox",
            alloc::format!("{} rules are more than {}", self.inbox.len(), inbox::RULES_MAX),
        );
        rule(self.remember_max > 0, "relay.remember_max", "must be at least 1".into());
        rule(self.scrub_rate > 0, "storage.scrub_rate", "must be more than 0".into());
        rule(self.audit_max > 0, "limits.audit_max", "must be at least 1".into());
        rule(self.max_bytes > 0, "storage.max_bytes", "must be more than 0".into());
        rule(
            self.inline_max <= limits::INLINE_MAX as u64,
            "storage.inline_max",
            alloc::format!("{} is more than 64KiB", self.inline_max),
        );
        rule(
            self.session_bytes >= limits::CREDIT_START,
            "limits.session_bytes",
            alloc::format!("{} is less than 128KiB", self.session_bytes),
        );
        rule(
            self.buffered_bytes >= self.session_bytes,
            "limits.buffered_bytes",
            alloc::format!(
                "{} is less than limits.session_bytes, {}",
                self.buffered_bytes,
                self.session_bytes
            ),
        );
        rule(self.peer_sessions > 0, "limits.peer_sessions", "must be at least 1".into());
        faults
    }
}

#[cfg(test)]
mod tests;
