//! What people do to sites: they take peers out of the configuration and put them back, and act on dead
//! letters, segments and peers.

use std::time::Duration;

use consign_core::act::{Act, Action, IdPrefix, Selection};
use consign_core::config::Config;

use super::seen::{Seen, SiteIx};
use super::world::{Event, World};

const SECOND: u64 = 1_000_000;

/// A quota that no run reaches.
const PLENTY: u64 = 100 << 30;

impl World {
    /// Before a start: by now a peer may not be configured any more, or be configured again.
    pub fn edit_config(&mut self, ix: SiteIx) {
        let changes = self.deeds.chance(self.options.keeping.leaves);
        let (one, back) = (self.deeds.next(), self.deeds.chance(500_000));
        let next = self.sites[ix].next.take();
        let healed = next.is_some();
        let mut config = next.unwrap_or_else(|| self.sites[ix].config.clone());
        // Under TLS, who is met is settled for the whole run; once all goes well, nobody leaves any more.
        let calm = self.rates.on().next().is_none();
        if changes && !healed && !calm && self.tls.is_empty() {
            let whole = self.whole(ix);
            let missing = |name: &str| !config.peers.iter().any(|peer| peer.name == name);
            let gone = whole.peers.iter().find(|peer| missing(&peer.name)).cloned();
            match gone {
                Some(peer) if back => config.peers.push(peer),
                _ if config.peers.len() > 1 => {
                    let at = (one % config.peers.len() as u64) as usize;
                    config.peers.remove(at);
                }
                _ => {}
            }
            let known = |via: &str| config.peers.iter().any(|peer| peer.name == via);
            config.routes = whole.routes.into_iter().filter(|route| known(&route.via)).collect();
        }
        if config != self.sites[ix].config {
            self.watch.say(self.now, ix, || {
                let peers: Vec<&str> = config.peers.iter().map(|p| p.name.as_str()).collect();
                format!("is configured anew, with peers {peers:?}")
            });
            self.watch.audit.configured(ix, &config);
            self.sites[ix].config = config;
        }
    }

    /// What the run gives a site, with the quota it has now.
    pub(super) fn whole(&self, ix: SiteIx) -> Config {
        let links = self.options.topology.links(self.sites.len());
        let max_bytes = self.sites[ix].config.max_bytes;
        Config { max_bytes, ..self.options.config(ix, &links) }
    }

    /// Nothing stands in the way of what is owed any more: quotas are raised, every peer is configured
    /// and may be sent to at any time. A site that has to be told is asked to stop, and starts again.
    pub fn open_up(&mut self, ix: SiteIx) {
        let mut config = self.whole(ix);
        if config.max_bytes < PLENTY {
            config.max_bytes = PLENTY;
        }
        for peer in &mut config.peers {
            (peer.inbound_quota, peer.rate_limit) = (None, None);
            peer.window.clear();
        }
        if config == self.sites[ix].config {
            return;
        }
        // What can change while it runs is sometimes told to it as it runs.
        let live = self.sites[ix].config.with_live(&config) == config;
        let runs = self.sites[ix].process.as_ref().is_some_and(|process| !process.stopping);
        if live && runs && self.reload_chance(500_000) {
            return self.reconfigure(ix, config);
        }
        self.sites[ix].next = Some(config);
        self.stop(ix);
    }

    /// Chance decides whether somebody acts at a site; rates are per minute, this is asked `times` a minute.
    pub fn people_act(&mut self, ix: SiteIx, times: u32) {
        if self.deeds.chance(self.options.keeping.acts / times) {
            let act = self.some_act(ix);
            self.operate(ix, act);
        }
    }

    fn some_act(&mut self, ix: SiteIx) -> Act {
        use Action::{Flush, Forget, Hold, HoldPeer, Purge, Release, ReleasePeer, Retry, Unhold};
        let all = [
            Retry,
            Retry,
            Retry,
            Purge,
            Hold,
            Unhold,
            Unhold,
            Release,
            HoldPeer,
            ReleasePeer,
            ReleasePeer,
            Flush,
            Forget,
        ];
        let action = *self.deeds.pick(&all);
        let (one, two, dry) = (self.deeds.next(), self.deeds.next(), self.deeds.chance(100_000));
        let peers = self.whole(ix).peers;
        let peer = peers.get((one % peers.len().max(1) as u64) as usize).map(|p| p.name.clone());
        let mut of = Selection::default();
        if action.is_of_peer() {
            of.peer = peer;
        } else if let (true, Some(job)) =
            (two.is_multiple_of(2), self.recent.get((one % 64) as usize))
        {
            of.ids = vec![IdPrefix::whole(job.id)];
        } else if two.is_multiple_of(3) {
            of.older = Some(Duration::from_secs(one % 120));
        } else {
            of.all = true;
        }
        let force = two.is_multiple_of(5);
        Act {
            action,
            of,
            who: "uid:1000".into(),
            why: String::new(),
            dry_run: dry,
            force,
            pin: None,
        }
    }

    /// Somebody acts, now or as soon as the site runs.
    pub fn operate(&mut self, ix: SiteIx, act: Act) {
        let word = act.action.word();
        if self.sites[ix].process.as_ref().is_none_or(|process| process.stopping) {
            let at = self.now.plus(5 * SECOND);
            self.queue.plan(at, Event::Operate(ix, Box::new(act)));
            return;
        }
        self.watch.see(self.now, ix, &Seen::Operated(word));
        if let Some((process, mut around)) = self.process(ix) {
            process.operate(act, &mut around);
        }
    }

    /// What was held is let loose again.
    pub fn let_loose(&mut self, ix: SiteIx) {
        if self.options.keeping.acts == 0 {
            return;
        }
        let act = |action, of| Act {
            action,
            of,
            who: "uid:1000".into(),
            why: String::new(),
            dry_run: false,
            force: false,
            pin: None,
        };
        let all = Selection { all: true, ..Selection::default() };
        let names = self.whole(ix).peers.into_iter().map(|peer| peer.name);
        let peers = names.map(|name| {
            let of = Selection { peer: Some(name), ..Selection::default() };
            act(Action::ReleasePeer, of)
        });
        // Only when every site has started on its new configuration.
        let at = self.now.plus(300 * SECOND);
        for act in peers.chain([act(Action::Unhold, all)]) {
            self.queue.plan(at, Event::Operate(ix, Box::new(act)));
        }
    }
}
