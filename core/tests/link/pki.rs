//! A certificate authority for tests, and TLS set-ups made with it.
// Several test crates include this file; none uses all of it.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use consign_core::session::Identity;
use consign_core::tls::TlsSetup;
use consign_core::wire::ALPN;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

type Names = Arc<Mutex<BTreeMap<Vec<u8>, String>>>;

/// A certificate authority that remembers whom it has certified.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
    names: Names,
}

/// A site's certificate and key.
pub struct Site {
    pub chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

impl Site {
    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.clone()).unwrap()
    }
}

fn key_pair() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

impl Ca {
    pub fn new() -> Ca {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = key_pair();
        let root = params.self_signed(&key).unwrap().der().clone();
        Ca { issuer: Issuer::new(params, key), root, names: Names::default() }
    }

    pub fn site(&self, name: &str) -> Site {
        let mut params = CertificateParams::new(vec![name.to_string()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = key_pair();
        let cert = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        self.names.lock().unwrap().insert(cert.to_vec(), name.to_string());
        Site { chain: vec![cert], key: key.serialize_der() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        roots
    }

    /// A set-up for `site` that trusts this authority and whomever it has certified.
    pub fn setup(&self, site: &Site) -> TlsSetup {
        let names = self.names.clone();
        TlsSetup {
            client: Arc::new(self.client(Some(site), &[ALPN])),
            server: Arc::new(self.server(site, &[ALPN])),
            identify: Arc::new(move |chain| match names.lock().unwrap().get(&*chain[0]) {
                Some(name) => {
                    Ok(Identity { name: name.clone(), fingerprint: [7; 32], not_after: u64::MAX })
                }
                None => Err("the certificate names nobody known".to_string()),
            }),
        }
    }

    pub fn client(&self, site: Option<&Site>, alpn: &[&[u8]]) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(self.roots());
        let mut config = match site {
            Some(site) => builder.with_client_auth_cert(site.chain.clone(), site.key()).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        config
    }

    pub fn server(&self, site: &Site, alpn: &[&[u8]]) -> ServerConfig {
        let provider = Arc::new(default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()), provider.clone())
                .build()
                .unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(site.chain.clone(), site.key())
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        config
    }
}

/// Set-ups of two sites, `alpha` and `beta`, that trust each other.
pub fn two_sites() -> (TlsSetup, TlsSetup) {
    let ca = Ca::new();
    (ca.setup(&ca.site("alpha")), ca.setup(&ca.site("beta")))
}
