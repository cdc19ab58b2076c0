//! Mutual TLS between sites: what is loaded at the start, and the two rustls configurations.
//!
//! TLS 1.3 only, ALPN `consign/1`, certificates on both sides, no early data and no resumption, so
//! every session begins with both certificates judged anew.

pub mod identity;
mod live;
pub mod strangers;
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
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};

use crate::config::TlsFiles;
use crate::exit::{Exit, Failure};
use identity::{Rules, Site};
pub use live::Live;
use live::Material;
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
    /// What may be replaced while the site runs.
    pub live: Live,
    /// What can be shown of it.
    pub shown: Shown,
}

/// What was read and judged good.
pub struct Judged {
    material: Material,
    /// This site's own certificate.
    pub own: Site,
    /// As in [`Loaded`].
    pub warning: Option<String>,
    /// What can be shown of it.
    pub shown: Shown,
}

impl Judged {
    /// Takes the place of what is there: handshakes from now on go by it.
    pub fn replace(self, live: &Live) {
        live.replace(self.material);
    }
}

/// Certificates by their fingerprints, and when they end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// SHA-256 of this site's certificate, and the last second of its validity since the Unix epoch.
    pub own: ([u8; 32], i64),
    /// SHA-256 of each authority.
    pub authorities: Vec<[u8; 32]>,
    /// The last second of the authority that ends first.
    pub until: Option<i64>,
}

impl Shown {
    /// Whether an authority of `before` is not believed any more.
    #[must_use]
    pub fn believes_less_than(&self, before: &Shown) -> bool {
        before.authorities.iter().any(|one| !self.authorities.contains(one))
    }
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

/// What pickup clients and nodes go by: relays that one of these authorities has signed, TLS 1.3, and no
/// certificate of their own.
///
/// # Errors
/// When an authority's certificate cannot be used.
pub fn anonymous(authorities: Vec<CertificateDer<'static>>) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        roots.add(certificate)?;
    }
    Ok(ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth())
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
        let key = private_key(&files.key)?;
        let roots = certificates(&files.ca)?;
        Ok(Credentials { roots, chain: certificates(&files.cert)?, key })
    }

    /// Everything that is wrong with the files, each by itself; if nothing is, with what they are together.
    #[must_use]
    pub fn faults(files: &TlsFiles, config: &Config) -> Vec<Failure> {
        let [ca, cert] = [&files.ca, &files.cert].map(|path| certificates(path).map(drop));
        let key = private_key(&files.key).map(drop);
        let found: Vec<Failure> = [ca, cert, key].into_iter().filter_map(Result::err).collect();
        if !found.is_empty() {
            return found;
        }
        let together = Credentials::read(files).and_then(|read| read.setup(config));
        together.err().into_iter().collect()
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
        let Judged { material, own, warning, shown } = self.judge(config)?;
        let (live, provider) = (Live::new(material), Arc::new(provider()));
        let (setup, pickup) = (live.setup(&provider)?, live.for_anybody(&provider)?);
        Ok(Loaded { setup, pickup, own, warning, live, shown })
    }

    /// Judges what was read, to be put in place of what is there.
    ///
    /// # Errors
    /// As [`Credentials::setup`].
    pub fn judge(self, config: &Config) -> Result<Judged, Failure> {
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
        let key = CertifiedKey::new(self.chain.clone(), signing);
        key.keys_match().map_err(|_| {
            failure("CN0314", "the private key does not belong to the certificate".into())
        })?;
        let roots = Arc::new(root_store(&self.roots)?);
        let rules = Arc::new(Rules::new(own.clone(), config, sha256));
        let servers = ToOurAuthorities::new(roots.clone(), provider.clone(), rules.clone());
        let warning = own_chain(&servers, &self.chain, &own)?;
        let chains = WebPkiClientVerifier::builder_with_provider(roots, provider)
            .build()
            .map_err(|e| failure("CN0315", format!("the authorities cannot be used: {e}")))?;
        let clients = Welcome::new(chains, rules.clone());
        let authorities: Vec<[u8; 32]> = self.roots.iter().map(|root| sha256(root)).collect();
        let until = self.roots.iter().filter_map(|root| identity::not_after(root)).min();
        let shown = Shown { own: (sha256(&leaf), own.not_after), authorities, until };
        let material = Material { key: Arc::new(key), clients, servers, rules };
        Ok(Judged { material, own, warning, shown })
    }
}

/// What a warning begins with that is about now, not about a certificate that ends soon.
pub(crate) const NO_PEER: &str = "no peer will take";

/// Verifies this site's own chain as a peer would; time alone is only worth a warning.
fn own_chain(
    to_ours: &ToOurAuthorities,
    chain: &[CertificateDer<'static>],
    own: &Site,
) -> Result<Option<String>, Failure> {
    let Some((leaf, intermediates)) = chain.split_first() else { return Ok(None) };
    match to_ours.chain(leaf, intermediates, UnixTime::now()) {
        Ok(()) => {
            let left = own.not_after.saturating_sub(now());
            let days = left.saturating_add(43_200) / 86_400;
            let until = identity::date(own.not_after);
            Ok((left < 14 * 86_400).then(|| {
                format!("this site's certificate is valid until {until} only, {days} days")
            }))
        }
        Err(e) if is_about_time(&e) => Ok(Some(format!(
            "{NO_PEER} this site's certificate now, valid from {} to {}: {e}",
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
    crate::plain::read(path)
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

/// A key that only those can read who may.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Failure> {
    refuse_exposed(path)?;
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|e| {
        failure("CN0312", format!("{} holds no private key in PEM: {e}", path.display()))
    })
}

fn refuse_exposed(key: &Path) -> Result<(), Failure> {
    let meta = std::fs::metadata(key).map_err(|e| {
        let failure = failure("CN0311", format!("{} cannot be read: {e}", key.display()));
        let mut next = key.as_os_str().to_owned();
        next.push(".next");
        // A site that joins another, or the first one of a request, has it until its certificate has come.
        match e.kind() == std::io::ErrorKind::NotFound && Path::new(&next).is_file() {
            true => failure.help("this site waits for its certificate: consign cert install FILE"),
            false => failure,
        }
    })?;
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
