//! Configurations that change while sites run: peers come and go, move and get other keys, limits rise and fall.
//!
//! What is drawn is what a real reload would take: only keys that can change while a node runs, and no combination
//! that the node refuses. Chance is of a stream of its own.

use std::time::Duration;

use consign_core::act::{Act, Action, Selection};
use consign_core::config::{Config, PeerConfig, SuccessCondition};
use consign_core::node::Input;

use super::rng::Rng;
use super::seen::SiteIx;
use super::time::Micros;
use super::world::{Event, World};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 24 * 3600;

/// How others find and know a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Face {
    /// How often it has moved to another address.
    pub moves: u8,
    /// How often its key was changed.
    pub keys: u8,
}

impl Face {
    /// Where it is dialled.
    #[must_use]
    pub fn address(self, name: &str) -> String {
        if self.moves == 0 { name.to_string() } else { format!("{name}:{}", self.moves) }
    }

    /// What its certificate is known by.
    #[must_use]
    pub fn fingerprint(self, ix: SiteIx) -> [u8; 32] {
        let mut fingerprint = [0; 32];
        (fingerprint[0], fingerprint[1]) = (ix as u8 + 1, self.keys);
        fingerprint
    }
}

fn seconds(rng: &mut Rng, of: &[u64]) -> Duration {
    Duration::from_secs(*rng.pick(of))
}

/// Other limits, times and conditions: one of them.
fn change(config: &mut Config, rng: &mut Rng) {
    match rng.below(16) {
        0 => config.max_bytes = *rng.pick(&[100 << 30, 64 << 20, 16 << 20, 4 << 20]),
        1 => config.max_segments = *rng.pick(&[None, Some(500), Some(100), Some(20)]),
        2 => {
            config.success_condition = match config.success_condition {
                SuccessCondition::OnePeer => SuccessCondition::AllPeers,
                SuccessCondition::AllPeers => SuccessCondition::OnePeer,
            }
        }
        3 => config.evict_on_relay ^= true,
        4 => config.keep_relayed = seconds(rng, &[0, 0, 20, 200]),
        5 => config.keep = config.ack_timeout * 10 * *rng.pick(&[1, 2, 20]),
        6 => config.max_retries = *rng.pick(&[8, 1, 3, 20]),
        7 => config.strict_attempts ^= true,
        8 => config.backoff_initial = Duration::from_millis(rng.between(100, 2_000)),
        9 => config.backoff_max = seconds(rng, &[10, 60, 900]),
        10 => {
            config.ack_timeout = seconds(rng, &[2, 10, 60]);
            config.keep = config.keep.max(config.ack_timeout * 10);
        }
        11 => {
            config.remember_for = seconds(rng, &[7 * DAY, 120, 20]);
            config.remember_max = *rng.pick(&[1_000_000, 50, 5]);
        }
        12 => {
            config.keep_deadletter = seconds(rng, &[30 * DAY, 200, 1_000]);
            config.keep_receipts = seconds(rng, &[30 * DAY, 60, 600]);
            config.audit_max = *rng.pick(&[1_000_000, 100, 10]);
        }
        13 => {
            config.buffer.upload_grace = seconds(rng, &[3_600, 120, 20]);
            config.buffer.transit_grace = seconds(rng, &[1_800, 60, 5]);
        }
        // A file may say no less than a minute.
        14 => config.partial_ttl = seconds(rng, &[7 * DAY, 3_600, 300, 60]),
        _ => {
            config.buffer.max_bytes = *rng.pick(&[10 << 30, 8 << 20, 2 << 20]);
            config.buffer.ttl = seconds(rng, &[3 * DAY, 600, 120]);
            config.buffer.token_ttl = seconds(rng, &[300, 30, 5]);
            config.buffer.keep_history = seconds(rng, &[30 * DAY, 300, 60]);
        }
    }
}

/// Other bounds of a peer: one of them.
fn change_peer(peer: &mut PeerConfig, rng: &mut Rng) {
    match rng.below(3) {
        0 => peer.inbound_quota = *rng.pick(&[None, Some(4 << 20), Some(1 << 20), Some(64 << 10)]),
        1 => peer.rate_limit = *rng.pick(&[None, Some(1 << 20), Some(32 << 10)]),
        _ => {
            // The first minutes of every hour, or of every other one.
            let minutes = rng.between(10, 59);
            let hours = (0..24).map(|hour| format!("{hour:02}:00-{hour:02}:{minutes:02}"));
            peer.window = if rng.chance(500_000) { Vec::new() } else { hours.collect() };
        }
    }
}

impl World {
    /// Chance decides whether a site reads its configuration again; asked `times` a minute.
    pub fn reload_weather(&mut self, ix: SiteIx, times: u32) {
        if self.reloading.chance(self.options.keeping.reloads / times) {
            let at = self.now.plus(self.reloading.below(5 * SECOND));
            self.queue.plan(at, Event::Reload(ix));
        }
    }

    /// Chance of a world in which configurations change; never in any other.
    pub fn reload_chance(&mut self, per_million: u32) -> bool {
        self.options.keeping.reloads > 0 && self.reloading.chance(per_million)
    }

    /// A site reads its configuration again, in which a few things are other than before.
    pub fn reload(&mut self, ix: SiteIx) {
        let site = &self.sites[ix];
        let runs = site.process.as_ref().is_some_and(|process| !process.stopping);
        if !runs || site.frozen_until > self.now {
            return;
        }
        let before = site.config.clone();
        let mut config = before.clone();
        for _ in 0..self.reloading.between(1, 3) {
            // Under TLS, who is met and how is settled for the whole run.
            match self.reloading.below(6) {
                0 if self.tls.is_empty() => self.come_or_go(ix, &mut config),
                1 if self.tls.is_empty() => self.change_face(ix, &mut config),
                2 => {
                    let at = self.reloading.below(config.peers.len().max(1) as u64) as usize;
                    if let Some(peer) = config.peers.get_mut(at) {
                        change_peer(peer, &mut self.reloading);
                    }
                }
                _ => change(&mut config, &mut self.reloading),
            }
        }
        // What the node would refuse, a reload refuses as well.
        if config.faults().is_empty() && config != before {
            self.reconfigure(ix, config);
        }
    }

    /// A running site is told what it goes by from now on.
    pub fn reconfigure(&mut self, ix: SiteIx, config: Config) {
        let config = Some(Box::new(self.sites[ix].config.with_live(&config)));
        let renew = self.reload_chance(50_000);
        let input = Input::Reconfigure { reload: 0, config, renew, reading: None };
        self.input(ix, input);
    }

    /// A peer leaves the configuration, or comes back.
    fn come_or_go(&mut self, ix: SiteIx, config: &mut Config) {
        let whole = self.whole(ix);
        let missing = |name: &str| !config.peers.iter().any(|peer| peer.name == name);
        let gone = whole.peers.iter().find(|peer| missing(&peer.name)).cloned();
        let back = self.reloading.chance(500_000);
        if let Some(peer) = gone.filter(|_| back) {
            let name = peer.name.clone();
            let address = self.face_of(&name).address(&name);
            return config.peers.push(PeerConfig { address, ..peer });
        }
        // A route keeps its peer.
        let free = |name: &str| !config.routes.iter().any(|route| route.via == name);
        let may = config.peers.iter().filter(|peer| free(&peer.name)).map(|peer| peer.name.clone());
        let may: Vec<String> = may.collect();
        if config.peers.len() > 1 && !may.is_empty() {
            let name = self.reloading.pick(&may).clone();
            config.peers.retain(|peer| peer.name != name);
        }
    }

    /// A peer has moved, or has another key: in time, too late, or only by what the configuration says of it.
    fn change_face(&mut self, ix: SiteIx, config: &mut Config) {
        let Some(at) = (!config.peers.is_empty())
            .then(|| self.reloading.below(config.peers.len() as u64) as usize)
        else {
            return;
        };
        let Some(peer) = config.peers.get_mut(at) else { return };
        let Some(other) = self.sites.iter().position(|site| site.config.name == peer.name) else {
            return;
        };
        let face = &mut self.sites[other].face;
        if self.reloading.chance(400_000) {
            face.moves = face.moves.wrapping_add(u8::from(self.reloading.chance(500_000)));
            peer.address = face.address(&peer.name);
            return;
        }
        let old = face.fingerprint(other);
        face.keys = face.keys.wrapping_add(u8::from(self.reloading.chance(500_000)));
        let new = face.fingerprint(other);
        (peer.pin, peer.more_pins) = match self.reloading.below(4) {
            0 => (None, Vec::new()),
            1 => (Some(old), vec![new]),
            2 => (Some(old), Vec::new()),
            _ => (Some(new), Vec::new()),
        };
        // Whoever changes a pin by hand says so, sooner or later.
        if self.reloading.chance(500_000) {
            let of = Selection { peer: Some(peer.name.clone()), ..Selection::default() };
            let act = Act {
                action: Action::Rekey,
                of,
                who: "uid:1000".into(),
                why: String::new(),
                dry_run: false,
                force: false,
                pin: None,
            };
            let wait = self.reloading.between(1, 60) * SECOND;
            let at: Micros = self.now.plus(wait);
            self.queue.plan(at, Event::Operate(ix, Box::new(act)));
        }
    }

    fn face_of(&self, name: &str) -> Face {
        let site = self.sites.iter().find(|site| site.config.name == name);
        site.map(|site| site.face).unwrap_or_default()
    }

    /// Whether a site does not take the certificate of another: the handshake ends there.
    pub(super) fn is_refused(&self, ix: SiteIx, name: &str) -> bool {
        let Some(other) = self.index(name).filter(|_| self.tls.is_empty()) else { return false };
        let shown = self.sites[other].face.fingerprint(other);
        let peer = self.sites[ix].config.peers.iter().find(|peer| peer.name == name);
        peer.is_some_and(|peer| !peer.takes(&shown))
    }

    /// Every site is where everybody looks for it again.
    pub(super) fn come_home(&mut self) {
        for site in &mut self.sites {
            site.face.moves = 0;
        }
    }
}
