//! Nodes get other keys while they are at work, and nodes and clients are revoked and come back.

use std::collections::BTreeMap;

use consign_core::pickup::OperatorAct;
use consign_core::pickup::sign::public_key;
use consign_core::pickup::token::Token;

use super::{Quay, Who, bearer, client_name, key, node_id};
use crate::sim::rng::Rng;
use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;
use crate::sim::world::{Event, World};

const SECOND: u64 = 1_000_000;
/// Numbers of clients and nodes are below it.
const EACH: u64 = 256;
/// Between two changes of one node's key: by then the old one is gone.
const BETWEEN: u64 = 60 * SECOND;

/// What has become of whom.
#[derive(Debug)]
pub(super) struct Turned {
    rng: Rng,
    /// How often a node has another key, and since when.
    keys: BTreeMap<(SiteIx, u64), (u64, Micros)>,
    /// How often a client has another token.
    bearers: BTreeMap<(SiteIx, u64), u64>,
}

impl Turned {
    pub fn new(seed: u64) -> Turned {
        Turned { rng: Rng::stream(seed, 13), keys: BTreeMap::new(), bearers: BTreeMap::new() }
    }
}

impl Quay {
    /// The private key that a node has, or is about to have.
    pub(super) fn key_of(&self, seed: u64, site: SiteIx, number: u64) -> [u8; 32] {
        let turns = self.turned.keys.get(&(site, number)).map_or(0, |(turns, _)| *turns);
        key(seed, site, number + EACH * (turns % EACH))
    }

    /// The token of a client.
    pub(super) fn bearer_of(&self, seed: u64, site: SiteIx, number: u64) -> Token {
        let turns = self.turned.bearers.get(&(site, number)).copied().unwrap_or(0);
        bearer(seed, site, number + EACH * (turns % EACH))
    }

    /// Whoever stands for a client or a node of a site: clients come first.
    fn actor_of(&mut self, site: SiteIx, nth: u64) -> Option<&mut Who> {
        let mine = self.actors.iter_mut().filter(|actor| actor.site == site);
        mine.map(|actor| &mut actor.who).nth(nth as usize)
    }
}

impl World {
    /// Chance decides whether keys change; this is asked `times` a minute.
    pub(super) fn quay_turns(&mut self, times: u32) {
        for ix in
            (0..self.sites.len()).filter(|ix| self.quay.options.is_at(*ix)).collect::<Vec<_>>()
        {
            let chance = self.quay.options.turns / times;
            if self.quay.turned.rng.chance(chance) {
                match self.quay.turned.rng.below(4) {
                    0 | 1 => self.change_key(ix),
                    2 => self.revoke_node(ix),
                    _ => self.revoke_client(ix),
                }
            }
        }
    }

    fn after(&mut self, from: Micros, low: u64, high: u64) -> Micros {
        from.plus(SECOND * self.quay.turned.rng.between(low, high))
    }

    fn plan_pickup(&mut self, at: Micros, ix: SiteIx, word: &'static str, act: OperatorAct) {
        self.queue.plan(at, Event::Pickup(ix, word, Box::new(act)));
    }

    /// Two keys are good for a while; the node goes over to the new one, and the old one is revoked.
    fn change_key(&mut self, ix: SiteIx) {
        let (seed, now) = (self.options.seed, self.now);
        let number = self.quay.turned.rng.below(self.quay.options.nodes.max(1));
        let (turns, since) =
            self.quay.turned.keys.get(&(ix, number)).copied().unwrap_or((0, Micros::ZERO));
        if turns > 0 && now < since.plus(BETWEEN) {
            return;
        }
        let (id, old) = (node_id(ix, number), public_key(&self.quay.key_of(seed, ix, number)));
        self.quay.turned.keys.insert((ix, number), (turns + 1, now));
        let secret = self.quay.key_of(seed, ix, number);
        let new = public_key(&secret);
        let enrol = OperatorAct::EnrolNode { id: id.clone(), key: new };
        self.plan_pickup(now, ix, "pickup_enrol_node", enrol);
        let at = self.after(now, 1, 10);
        let clients = self.quay.options.clients;
        if let Some(Who::Keeper(keeper)) = self.quay.actor_of(ix, clients + number) {
            keeper.turn(at, secret);
        }
        // Sometimes before the node has noticed.
        let at = self.after(now, 1, 20);
        let revoke = OperatorAct::RevokeNode { id, key: Some(old) };
        self.plan_pickup(at, ix, "pickup_revoke_node", revoke);
    }

    fn revoke_node(&mut self, ix: SiteIx) {
        let (seed, now) = (self.options.seed, self.now);
        let number = self.quay.turned.rng.below(self.quay.options.nodes.max(1));
        let (id, key) = (node_id(ix, number), public_key(&self.quay.key_of(seed, ix, number)));
        let revoke = OperatorAct::RevokeNode { id: id.clone(), key: None };
        self.plan_pickup(now, ix, "pickup_revoke_node", revoke);
        let at = self.after(now, 1, 30);
        self.plan_pickup(at, ix, "pickup_enrol_node", OperatorAct::EnrolNode { id, key });
    }

    fn revoke_client(&mut self, ix: SiteIx) {
        let (seed, now) = (self.options.seed, self.now);
        let number = self.quay.turned.rng.below(self.quay.options.clients.max(1));
        let name = client_name(number);
        let revoke = OperatorAct::RevokeClient { name: name.clone() };
        self.plan_pickup(now, ix, "pickup_revoke_client", revoke);
        let at = self.after(now, 1, 30);
        if self.quay.turned.rng.chance(500_000) {
            *self.quay.turned.bearers.entry((ix, number)).or_default() += 1;
            let token = self.quay.bearer_of(seed, ix, number);
            if let Some(Who::Uploader(uploader)) = self.quay.actor_of(ix, number) {
                uploader.turn(at, token);
            }
        }
        let token = self.quay.bearer_of(seed, ix, number).hash();
        self.plan_pickup(at, ix, "pickup_enrol_client", OperatorAct::EnrolClient { name, token });
    }
}
