//! What this site meets others with, as it is now: its key, its authorities and the rules are replaced together while it
//! runs. Whoever shakes hands takes what is there at that moment; sessions that are open go on.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use consign_core::driver::PickupTls;
use consign_core::tls::TlsSetup;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};

use super::identity::Rules;
use super::strangers::Strangers;
use super::verify::{ToOurAuthorities, Welcome};
use super::{ALPN, failure, now};
use crate::exit::Failure;

/// One set that fits together.
#[derive(Debug)]
pub(super) struct Material {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) clients: Welcome,
    pub(super) servers: ToOurAuthorities,
    pub(super) rules: Arc<Rules>,
}

/// The set that holds now.
#[derive(Clone)]
pub struct Live {
    material: Arc<RwLock<Arc<Material>>>,
    /// Who was turned away, whichever set held.
    strangers: Strangers,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Live").field(&self.get().rules).finish()
    }
}

impl Live {
    pub(super) fn new(mut material: Material) -> Live {
        let strangers = Strangers::default();
        material.clients.strangers = strangers.clone();
        Live { material: Arc::new(RwLock::new(Arc::new(material))), strangers }
    }

    /// Sites that were turned away because nobody knows them here.
    #[must_use]
    pub fn strangers(&self) -> Strangers {
        self.strangers.clone()
    }

    fn get(&self) -> Arc<Material> {
        self.material.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on this one.
    pub(super) fn replace(&self, mut material: Material) {
        material.clients.strangers = self.strangers.clone();
        let rules = material.rules.clone();
        *self.material.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(material);
        self.strangers.judged_by(&rules);
    }

    /// TLS with peers.
    ///
    /// # Errors
    /// When rustls cannot be set up (CN0315).
    pub(super) fn setup(&self, provider: &Arc<CryptoProvider>) -> Result<TlsSetup, Failure> {
        let versions = &[&rustls::version::TLS13];
        let me = Arc::new(self.clone());
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|e| wrong(&e))?
            .with_client_cert_verifier(me.clone())
            .with_cert_resolver(me.clone());
        server.alpn_protocols = vec![ALPN.to_vec()];
        forgetful(&mut server);
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|e| wrong(&e))?
            .dangerous()
            .with_custom_certificate_verifier(me.clone())
            .with_client_cert_resolver(me.clone());
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_early_data = false;
        client.enable_sni = false;
        let identify = move |chain: &[CertificateDer<'_>]| {
            me.get().rules.judge(chain, now()).map_err(|e| format!("{e} [{}]", e.code()))
        };
        let (client, server) = (Arc::new(client), Arc::new(server));
        Ok(TlsSetup { client, server, identify: Arc::new(identify) })
    }

    /// TLS for whoever proves above it who they are.
    ///
    /// # Errors
    /// When rustls cannot be set up (CN0315).
    pub(super) fn for_anybody(&self, provider: &Arc<CryptoProvider>) -> Result<PickupTls, Failure> {
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| wrong(&e))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        forgetful(&mut server);
        Ok(Arc::new(server))
    }
}

fn wrong(e: &Error) -> Failure {
    failure("CN0315", format!("TLS cannot be set up: {e}"))
}

/// No tickets, no early data: every session begins with certificates.
fn forgetful(server: &mut ServerConfig) {
    server.send_tls13_tickets = 0;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.max_early_data_size = 0;
}

impl ResolvesServerCert for Live {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get().key.clone())
    }
}

impl ResolvesClientCert for Live {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.get().key.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Live {
    /// None: a site has one certificate and shows it whatever it is told about authorities.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.get().clients.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ClientCertVerifier::verify_tls12_signature(&self.get().clients, message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ClientCertVerifier::verify_tls13_signature(&self.get().clients, message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.get().clients.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Live {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.get().servers.verify_server_cert(end_entity, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.get().servers.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.get().servers.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.get().servers.supported_verify_schemes()
    }
}
