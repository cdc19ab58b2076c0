//! Mutual TLS between sites: what is loaded at the start, and the two rustls configurations.
//!
//! TLS 1.3 only, ALPN `consign/1`, certificates on both sides, no early data and no resumption, so
//! every session begins with both certificates judged anew.

pub mod identity;
pub mod verify;

#[cfg(test)]
mod tests;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use consign_core::config::Config;
use consign_core::driver::PickupTls;
use consign_core::tls::TlsSetup;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::config::TlsFiles;
use crate::exit::{Exit, Failure};
use identity::{Rules, Site};
use verify::{ToOurAuthorities, Welcome, is_about_time};

/// The protocol that both sides must name.
pub const ALPN: &[u8] = b"consign/1";

/// What the files hold.
pub struct Credentials {
    /// Certificates of the authorities.
    pub roots: Vec<CertificateDer<'static>>,
    /// This site's certificate, then what it was signed with.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
}

/// Everything that peers need to be met, judged.
pub struct Loaded {
    /// For the runtime.
    pub setup: TlsSetup,
    /// How pickup clients and nodes are met.
    pub pickup: PickupTls,
    /// This site's own certificate.
    pub own: Site,
    /// What is wrong with it now and may be right later, such as its time; the site starts all the
    /// same, takes segments, and meets peers once it is right.
    pub warning: Option<String>,
}

/// Cryptography as this product uses it: aws-lc, the fastest suite first.
#[must_use]
pub fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![
        aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
        aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
        aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider
}

/// SHA-256 of some bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = suite.tls13().expect("a suite of TLS 1.3");
    let hash = suite.common.hash_provider.hash(bytes);
    hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Seconds since the Unix epoch by the system clock.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn failure(code: &'static str, message: String) -> Failure {
    Failure::new(Exit::Config, code, message)
}

impl Credentials {
    /// Reads the files; refuses a key that others can read.
    ///
    /// # Errors
    /// The file that cannot be used, and why (exit 78).
    pub fn read(files: &TlsFiles) -> Result<Credentials, Failure> {
        refuse_exposed(&files.key)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(|e| {
            let message = format!("{} holds no private key in PEM: {e}", files.key.display());
            failure("CN0312", message)
        })?;
        let roots = certificates(&files.ca)?;
        Ok(Credentials { roots, chain: certificates(&files.cert)?, key })
    }

    /// The same from texts in PEM, for sites that have no files.
    ///
    /// # Errors
    /// The part that cannot be used, and why (exit 78).
    pub fn from_pem(ca: &str, cert: &str, key: &str) -> Result<Credentials, Failure> {
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|e| failure("CN0312", format!("no private key in PEM: {e}")))?;
        let chain = |text: &str| {
            let found: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(text.as_bytes()).collect();
            found.map_err(|e| failure("CN0311", format!("no certificate in PEM: {e}")))
        };
        Ok(Credentials { roots: chain(ca)?, chain: chain(cert)?, key })
    }

    /// Judges what was read and makes the rustls configurations.
    ///
    /// # Errors
    /// What can never work: a key of another certificate, a name that is not this site's, a chain that
    /// does not lead to the authorities (exit 78).
    pub fn setup(self, config: &Config) -> Result<Loaded, Failure> {
        let provider = Arc::new(provider());
        let leaf = self.chain.first().cloned().unwrap_or_else(|| CertificateDer::from(Vec::new()));
        let own = Site::read(&leaf)
            .map_err(|e| failure(e.code(), format!("this site's own certificate: {e}")))?;
        if own.name != config.name {
            let message =
                format!("the certificate is for {}, but node.name is {}", own.name, config.name);
            return Err(failure("CN0313", message));
        }
        let signing = provider
            .key_provider
            .load_private_key(self.key.clone_key())
            .map_err(|e| failure("CN0312", format!("the private key cannot be used: {e}")))?;
        CertifiedKey::new(self.chain.clone(), signing).keys_match().map_err(|_| {
            failure("CN0314", "the private key does not belong to the certificate".into())
        })?;
        let roots = Arc::new(root_store(&self.roots)?);
        let rules = Arc::new(Rules::new(own.clone(), config, sha256));
        let to_ours = ToOurAuthorities::new(roots.clone(), provider.clone(), rules.clone());
        let warning = own_chain(&to_ours, &self.chain, &own)?;
        let pickup = self.for_anybody(provider.clone())?;
        let (client, server) = self.configs(provider, roots, to_ours, &rules)?;
        let identify = move |chain: &[CertificateDer<'_>]| {
            rules.judge(chain, now()).map_err(|e| format!("{e} [{}]", e.code()))
        };
        let setup = TlsSetup { client, server, identify: Arc::new(identify) };
        Ok(Loaded { setup, pickup, own, warning })
    }

    /// TLS for whoever proves above it who they are.
    fn for_anybody(&self, provider: Arc<CryptoProvider>) -> Result<PickupTls, Failure> {
        let wrong = |e: rustls::Error| failure("CN0315", format!("TLS cannot be set up: {e}"));
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(wrong)?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.max_early_data_size = 0;
        Ok(Arc::new(server))
    }

    fn configs(
        self,
        provider: Arc<CryptoProvider>,
        roots: Arc<RootCertStore>,
        to_ours: ToOurAuthorities,
        rules: &Arc<Rules>,
    ) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), Failure> {
        let wrong = |e: rustls::Error| failure("CN0315", format!("TLS cannot be set up: {e}"));
        let versions = &[&rustls::version::TLS13];
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|e| failure("CN0315", format!("the authorities cannot be used: {e}")))?;
        let clients = Arc::new(Welcome::new(clients, rules.clone()));
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(wrong)?
            .with_client_cert_verifier(clients)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(wrong)?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.max_early_data_size = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(wrong)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(to_ours))
            .with_client_auth_cert(self.chain, self.key)
            .map_err(wrong)?;
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_early_data = false;
        client.enable_sni = false;
        Ok((Arc::new(client), Arc::new(server)))
    }
}

/// Verifies this site's own chain as a peer would; time alone is only worth a warning.
fn own_chain(
    to_ours: &ToOurAuthorities,
    chain: &[CertificateDer<'static>],
    own: &Site,
) -> Result<Option<String>, Failure> {
    let Some((leaf, intermediates)) = chain.split_first() else { return Ok(None) };
    match to_ours.chain(leaf, intermediates, UnixTime::now()) {
        Ok(()) => {
            let days = own.not_after.saturating_sub(now()) / 86_400;
            let until = identity::date(own.not_after);
            Ok((days < 14).then(|| {
                format!("this site's certificate is valid until {until} only, {days} days")
            }))
        }
        Err(e) if is_about_time(&e) => Ok(Some(format!(
            "no peer will take this site's certificate now, valid from {} to {}: {e}",
            identity::date(own.not_before),
            identity::date(own.not_after),
        ))),
        Err(e) => {
            let message = format!("this site's certificate does not lead to tls.ca: {e}");
            Err(failure("CN0315", message).help("it must be signed by an authority in that file"))
        }
    }
}

fn root_store(certificates: &[CertificateDer<'static>]) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots
            .add(certificate.clone())
            .map_err(|e| failure("CN0315", format!("tls.ca holds no usable authority: {e}")))?;
    }
    Ok(roots)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|e| failure("CN0311", format!("{} cannot be read: {e}", path.display())))
}

/// Certificates of a PEM file; at least one.
///
/// # Errors
/// When there is none, or one cannot be read.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let bytes = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match all {
        Ok(all) if all.is_empty() => {
            Err(failure("CN0312", format!("{} holds no certificate in PEM", path.display())))
        }
        Ok(all) => Ok(all),
        Err(e) => {
            let message = format!("{} holds no certificates in PEM: {e}", path.display());
            Err(failure("CN0312", message))
        }
    }
}

fn refuse_exposed(key: &Path) -> Result<(), Failure> {
    let meta = std::fs::metadata(key)
        .map_err(|e| failure("CN0311", format!("{} cannot be read: {e}", key.display())))?;
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o007 != 0 {
        let message = format!(
            "the private key {} has mode {mode:04o}: everybody on this machine can use it",
            key.display()
        );
        let help = format!("chmod 600 {}", key.display());
        return Err(failure("CN0211", message).help(help));
    }
    Ok(())
}
