//! What each side checks during the handshake: the chain, to our own authorities, and then whom the
//! certificate names.
//!
//! Sites are known by the name in their certificate, not by the host they are dialled at, so a host name
//! proves nothing here. Judging the name within the handshake sends the other side an alert, so that its
//! operator sees that it was refused and not just that the connection ended.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, RootCertStore, SignatureScheme,
};

use super::identity::{Rules, Unwelcome};
use super::strangers::Strangers;

/// Why a handshake was ended, as it goes through rustls.
#[derive(Debug, thiserror::Error)]
#[error("{why} [{}]", .why.code())]
struct Refused {
    why: Unwelcome,
}

fn judge(rules: &Rules, leaf: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    judged(rules, leaf, now).map_err(refused)
}

fn judged(rules: &Rules, leaf: &CertificateDer<'_>, now: UnixTime) -> Result<(), Unwelcome> {
    rules.judge(std::slice::from_ref(leaf), seconds(now)).map(|_| ())
}

fn refused(why: Unwelcome) -> Error {
    CertificateError::Other(OtherError(Arc::new(Refused { why }))).into()
}

fn seconds(now: UnixTime) -> i64 {
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// The listening side: rustls verifies the chain, the rules say whether that site is welcome.
#[derive(Debug)]
pub struct Welcome {
    chains: Arc<dyn ClientCertVerifier>,
    rules: Arc<Rules>,
    /// Who was turned away.
    pub(super) strangers: Strangers,
}

impl Welcome {
    /// Chains verified by `chains`, names judged by `rules`.
    #[must_use]
    pub fn new(chains: Arc<dyn ClientCertVerifier>, rules: Arc<Rules>) -> Welcome {
        Welcome { chains, rules, strangers: Strangers::default() }
    }
}

impl ClientCertVerifier for Welcome {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chains.verify_client_cert(end_entity, intermediates, now)?;
        judged(&self.rules, end_entity, now).map_err(|why| {
            let fingerprint = self.rules.fingerprint(end_entity);
            self.strangers.knocked(&why, fingerprint, seconds(now));
            refused(why)
        })?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// The dialling side: verifies chains to our authorities, and judges names by the rules.
#[derive(Debug)]
pub struct ToOurAuthorities {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    rules: Arc<Rules>,
}

impl ToOurAuthorities {
    /// A verifier that believes these authorities.
    #[must_use]
    pub fn new(
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
        rules: Arc<Rules>,
    ) -> ToOurAuthorities {
        ToOurAuthorities { roots, provider, rules }
    }

    /// Verifies a chain: signatures, validity at `now`, and use as a server.
    ///
    /// # Errors
    /// What rustls says.
    pub fn chain(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let leaf = ParsedCertificate::try_from(leaf)?;
        verify_server_cert_signed_by_trust_anchor(
            &leaf,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )
    }
}

impl ServerCertVerifier for ToOurAuthorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.chain(end_entity, intermediates, now)?;
        judge(&self.rules, end_entity, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a chain was refused for its time alone: everything else about it is good.
#[must_use]
pub fn is_about_time(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        )
    )
}
