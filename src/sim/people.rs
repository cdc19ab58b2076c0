//! What people do to sites: they take peers out of the configuration and put them back.

use consign_core::config::Config;

use super::seen::SiteIx;
use super::world::World;

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
        // Under TLS, who is met is settled for the whole run.
        if changes && !healed && self.tls.is_empty() {
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
    fn whole(&self, ix: SiteIx) -> Config {
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
        if config != self.sites[ix].config {
            self.sites[ix].next = Some(config);
            self.stop(ix);
        }
    }
}
