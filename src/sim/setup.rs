//! From a run's options to the sites' configuration, disks and certificates.

use std::sync::Arc;
use std::time::Duration;

use consign_core::config::Config;
use consign_core::driver::PickupTls;
use consign_core::tls::TlsSetup;
use rustls::ClientConfig;

use crate::exit::{Exit, Failure};
use crate::pki::Authority;
use crate::tls::{self, Credentials};

use super::seen::SiteIx;
use super::store::StoreConfig;
use super::swarm::{Kind, Options};
use super::world::NAMES;

/// Certificates outlive every step of a simulated clock.
const LASTS: Duration = Duration::from_secs(60 * 365 * 86_400);

/// Real TLS; nothing where it is not asked for.
#[derive(Default)]
pub struct Tls {
    /// Between sites, by site.
    pub peers: Vec<TlsSetup>,
    /// For whoever comes to the quay.
    pub quay: Option<QuayTls>,
}

/// Real TLS on the quay: sites prove who they are, clients and nodes do not (PICKUP.md).
#[derive(Debug)]
pub struct QuayTls {
    /// How each site meets them.
    pub sites: Vec<PickupTls>,
    /// How they meet a site.
    pub shore: Arc<ClientConfig>,
}

impl Options {
    /// What site `ix` goes by, given who knows whom.
    #[must_use]
    pub fn config(&self, ix: SiteIx, links: &[(SiteIx, SiteIx)]) -> Config {
        let name = |ix: SiteIx| NAMES.get(ix).copied().unwrap_or("nobody").to_string();
        let neighbours = links.iter().filter_map(|(a, b)| match (*a == ix, *b == ix) {
            (true, false) => Some(*b),
            (false, true) => Some(*a),
            (true, true) | (false, false) => None,
        });
        let (k, keeping) = (&self.knobs, &self.keeping);
        let peer = |ix| keeping.peer(&name(ix));
        // The last site refuses what is longer: poison for whoever sends it.
        let picky = self.rates.of(Kind::Poison) > 0 && ix + 1 == self.sites;
        Config {
            name: name(ix),
            peers: neighbours.map(peer).collect(),
            routes: keeping.routes(ix, self.sites, links),
            success_condition: k.success,
            evict_on_relay: keeping.evict,
            keep_relayed: keeping.keep_relayed,
            keep: keeping.keep(k.ack_timeout),
            remember_for: keeping.remember_for,
            remember_max: keeping.remember_max,
            keep_deadletter: keeping.keep_deadletter,
            keep_receipts: keeping.keep_receipts,
            audit_max: keeping.audit_max,
            max_retries: k.max_retries,
            strict_attempts: k.strict_attempts,
            backoff_initial: k.backoff_initial,
            backoff_max: k.backoff_max,
            ack_timeout: k.ack_timeout,
            max_bytes: k.max_bytes,
            min_free: 0,
            inline_max: k.inline_max,
            session_bytes: k.session_bytes,
            max_segment: picky.then_some(20_000),
            window: k.window,
            buffer: keeping.pickup.buffer(),
            plant: self.plant,
            ..Config::default()
        }
    }

    /// The disk of every site.
    #[must_use]
    pub fn store(&self) -> StoreConfig {
        StoreConfig { plant: self.plant, ..StoreConfig::default() }
    }

    /// Certificates for every site, when TLS is real.
    ///
    /// # Errors
    /// When a certificate cannot be made.
    pub fn tls_setups(&self) -> Result<Tls, Failure> {
        if !self.tls {
            return Ok(Tls::default());
        }
        let links = self.topology.links(self.sites);
        let (authority, root) = Authority::new()?;
        let (mut peers, mut sites, mut roots) = (Vec::new(), Vec::new(), Vec::new());
        for ix in 0..self.sites {
            let config = self.config(ix, &links);
            let pair = authority.site(&config.name, std::slice::from_ref(&config.name), LASTS)?;
            let ca = &root.certificate;
            let credentials = Credentials::from_pem(ca, &pair.certificate, &pair.key)?;
            roots = credentials.roots.clone();
            let loaded = credentials.setup(&config)?;
            peers.push(loaded.setup);
            sites.push(loaded.pickup);
        }
        let wrong = |why: rustls::Error| {
            let text = format!("the authority cannot be used for TLS: {why}");
            Failure::new(Exit::Config, "CN0315", text)
        };
        let shore = Arc::new(tls::anonymous(roots).map_err(wrong)?);
        Ok(Tls { peers, quay: Some(QuayTls { sites, shore }) })
    }
}
