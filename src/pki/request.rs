//! Requests for certificates (PKCS #10): a site makes its key where the key stays, and asks for the rest.

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair, PublicKey, SanType,
};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::{Pair, failure, host_names, new_key, site_params};
use crate::exit::{Exit, Failure};
use crate::tls::identity::SCHEME;
use consign_core::segment::is_site_name;

/// A request whose signature is its key's and that names one site.
#[derive(Clone, Debug)]
pub struct Request {
    /// The site it names.
    pub name: String,
    /// Host names and addresses for pickup clients.
    pub hosts: Vec<String>,
    /// SHA-256 of its public key (SubjectPublicKeyInfo in DER).
    pub key: [u8; 32],
    spki: Vec<u8>,
    public: PublicKey,
}

fn unusable(why: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "CN0325", format!("the request cannot be signed: {why}"))
}

/// Makes a key for a site, and a request for its certificate; the request stands where a pair has its
/// certificate.
///
/// # Errors
/// When the system gives no randomness, or a name cannot stand in a certificate.
pub fn request(name: &str, hosts: &[String]) -> Result<Pair, Failure> {
    let key = new_key()?;
    let mut params = site_params(name)?;
    params.subject_alt_names.extend(host_names(name, hosts)?);
    // Only whoever signs can say this.
    params.use_authority_key_identifier_extension = false;
    let made = params.serialize_request(&key).and_then(|request| request.pem());
    let certificate = made.map_err(|e| failure("the request could not be made", &e))?;
    Ok(Pair { certificate, key: key.serialize_pem() })
}

impl Request {
    /// Reads and judges a request in PEM.
    ///
    /// # Errors
    /// Why it cannot be signed.
    pub fn read(text: &str) -> Result<Request, Failure> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(text.as_bytes())
            .map_err(|_| unusable("it is not a request in PEM"))?;
        if !matches!(pem.label.as_str(), "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST") {
            return Err(unusable(format!("it is a {}", pem.label)));
        }
        let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).map_err(unusable)?;
        let spki = parsed.certification_request_info.subject_pki.raw.to_vec();
        let der = pem.contents.as_slice().into();
        let asked = CertificateSigningRequestParams::from_der(&der).map_err(unusable)?;
        let (mut uris, mut hosts) = (Vec::new(), Vec::new());
        for name in &asked.params.subject_alt_names {
            match name {
                SanType::URI(uri) => uris.push(uri.as_str()),
                SanType::DnsName(host) => hosts.push(host.as_str().to_ascii_lowercase()),
                SanType::IpAddress(ip) => hosts.push(ip.to_string()),
                _ => return Err(unusable("it names something that is neither a site nor a host")),
            }
        }
        let [uri] = uris.as_slice() else {
            return Err(unusable(format!("it has {} URIs {SCHEME}NAME; it needs one", uris.len())));
        };
        let name = uri.strip_prefix(SCHEME).filter(|name| is_site_name(name));
        let name = name.ok_or_else(|| {
            let clipped: String = uri.chars().take(80).collect();
            unusable(format!("{clipped:?} is not {SCHEME} and the name of a site"))
        })?;
        host_names(name, &hosts).map_err(|e| unusable(e.message))?;
        let key = crate::tls::sha256(&spki);
        Ok(Request { name: name.to_owned(), hosts, key, spki, public: asked.public_key })
    }

    /// Whether it is of the key of this certificate, in DER.
    #[must_use]
    pub fn is_of(&self, certificate: &[u8]) -> bool {
        x509_parser::parse_x509_certificate(certificate)
            .is_ok_and(|(_, parsed)| parsed.public_key().raw == self.spki.as_slice())
    }

    /// A certificate for its key, in PEM.
    pub(super) fn signed_by(
        &self,
        params: CertificateParams,
        issuer: &Issuer<'_, KeyPair>,
    ) -> Result<String, Failure> {
        let request = CertificateSigningRequestParams { params, public_key: self.public.clone() };
        let certificate = request
            .signed_by(issuer)
            .map_err(|e| failure("the certificate could not be signed", &e))?;
        // The kind of key is inferred from the request's signature, which may be of another.
        if !self.is_of(certificate.der()) {
            return Err(unusable("its key is of a kind that certificates here cannot carry"));
        }
        Ok(certificate.pem())
    }
}
