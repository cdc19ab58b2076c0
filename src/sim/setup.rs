//! From a run's options to the sites' configuration, disks and certificates.

use std::time::Duration;

use consign_core::config::Config;
use consign_core::tls::TlsSetup;

use crate::exit::Failure;
use crate::pki::Authority;
use crate::tls::Credentials;

use super::seen::SiteIx;
use super::store::StoreConfig;
use super::swarm::{Kind, Options};
use super::world::NAMES;

/// Certificates outlive every step of a simulated clock.
const LASTS: Duration = Duration::from_secs(60 * 365 * 86_400);

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
    pub fn tls_setups(&self) -> Result<Vec<TlsSetup>, Failure> {
        if !self.tls {
            return Ok(Vec::new());
        }
        let links = self.topology.links(self.sites);
        let (authority, root) = Authority::new()?;
        let setup = |ix| {
            let config = self.config(ix, &links);
            let pair = authority.site(&config.name, &[], LASTS)?;
            let ca = &root.certificate;
            let credentials = Credentials::from_pem(ca, &pair.certificate, &pair.key)?;
            Ok(credentials.setup(&config)?.setup)
        };
        (0..self.sites).map(setup).collect()
    }
}
