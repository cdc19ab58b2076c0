//! Making certificates: an authority of our own and the sites it signs.
//!
//! Keys are ECDSA on P-256, which every TLS library takes. A site's certificate names it by one URI,
//! `consign://NAME`, and is good for both ends of a connection. Validity begins an hour early, so that
//! sites whose clocks differ a little can meet at once.

mod request;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consign_core::id::hex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
    date_time_ymd,
};

use crate::exit::{Exit, Failure};
use crate::tls::identity::{SCHEME, date};
pub use request::{Request, request};

/// How long an authority lasts: ten years.
pub const AUTHORITY_LASTS: Duration = Duration::from_secs(3_652 * 86_400);
/// How long a site's certificate lasts: ninety days.
pub const SITE_LASTS: Duration = Duration::from_secs(90 * 86_400);
/// How much earlier than now validity begins.
const EARLY: Duration = Duration::from_secs(3_600);

/// A certificate with its key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// An authority that can sign sites.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    /// The last second of its validity, since the Unix epoch.
    not_after: i64,
}

fn failure(what: &str, e: &rcgen::Error) -> Failure {
    Failure::new(Exit::Failed, "CN0321", format!("{what}: {e}"))
}

/// Seconds since the Unix epoch by the system clock.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Each certificate in a text of PEM, without what stands between them.
pub(crate) fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive("-----END CERTIFICATE-----")
        .filter_map(|part| part.get(part.find("-----BEGIN CERTIFICATE-----")?..))
}

/// Whether the certificate is of this key.
fn is_of(certificate: &str, key: &KeyPair) -> bool {
    let pem = x509_parser::pem::parse_x509_pem(certificate.as_bytes());
    pem.is_ok_and(|(_, pem)| {
        let of = |x: x509_parser::certificate::X509Certificate<'_>| {
            x.public_key().subject_public_key.data.as_ref() == key.der_bytes()
        };
        pem.parse_x509().is_ok_and(of)
    })
}

/// From an hour ago until `lasts` from now.
fn validity(params: &mut CertificateParams, lasts: Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now.saturating_sub(EARLY).as_secs());
    params.not_after = epoch + Duration::from_secs(now.saturating_add(lasts).as_secs());
}

fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

fn new_key() -> Result<KeyPair, Failure> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|e| failure("no key could be made", &e))
}

impl Authority {
    /// Makes an authority with a new key.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn new() -> Result<(Authority, Pair), Failure> {
        Authority::lasting(AUTHORITY_LASTS)
    }

    /// The same, valid for so long.
    ///
    /// # Errors
    /// As [`Authority::new`].
    pub fn lasting(lasts: Duration) -> Result<(Authority, Pair), Failure> {
        let key = new_key()?;
        let mark = crate::tls::sha256(key.der_bytes());
        let mark = hex(mark.get(..4).unwrap_or_default());
        let mut params = CertificateParams::default();
        validity(&mut params, lasts);
        params.distinguished_name = common_name(&format!("consign authority {mark}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params
            .self_signed(&key)
            .map_err(|e| failure("the authority could not be signed", &e))?
            .pem();
        let pair = Pair { certificate: certificate.clone(), key: key.serialize_pem() };
        let not_after = params.not_after.unix_timestamp();
        Ok((Authority { issuer: Issuer::new(params, key), certificate, not_after }, pair))
    }

    /// An authority from its files. Of several certificates the key's own one counts.
    ///
    /// # Errors
    /// When they are not a certificate of an authority and its key.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Authority, Failure> {
        let key = KeyPair::from_pem(key)
            .map_err(|e| failure("the authority's key cannot be used", &e))?;
        let wrong = |why: &str| Failure::new(Exit::Failed, "CN0321", why);
        let first = blocks(certificate).next().unwrap_or(certificate);
        let certificate = blocks(certificate).find(|one| is_of(one, &key)).unwrap_or(first);
        let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes())
            .map_err(|e| wrong(&format!("the authority's certificate cannot be read: {e}")))?;
        let parsed = pem
            .parse_x509()
            .map_err(|e| wrong(&format!("the authority's certificate cannot be read: {e}")))?;
        if !parsed.is_ca() {
            return Err(wrong(
                "the certificate given as the authority's is not one of an authority",
            ));
        }
        if parsed.public_key().subject_public_key.data.as_ref() != key.der_bytes() {
            return Err(wrong("the authority's key does not belong to its certificate"));
        }
        let issuer = Issuer::from_ca_cert_pem(certificate, key)
            .map_err(|e| failure("the authority's certificate cannot be used", &e))?;
        let not_after = parsed.validity().not_after.timestamp();
        Ok(Authority { issuer, certificate: format!("{}\n", certificate.trim_end()), not_after })
    }

    /// Its certificate in PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Whether it signed this certificate, in DER.
    #[must_use]
    pub fn signed(&self, certificate: &[u8]) -> bool {
        let own = x509_parser::pem::parse_x509_pem(self.certificate.as_bytes());
        let Ok((_, own)) = own else { return false };
        let (Ok(own), Ok((_, one))) =
            (own.parse_x509(), x509_parser::parse_x509_certificate(certificate))
        else {
            return false;
        };
        one.verify_signature(Some(own.public_key())).is_ok()
    }

    /// No certificate outlasts what signed it.
    fn at_most(&self, lasts: Duration) -> Result<Duration, Failure> {
        let left = u64::try_from(self.not_after.saturating_sub(now())).unwrap_or(0);
        if left == 0 {
            let message = format!("the authority's certificate ended on {}", date(self.not_after));
            return Err(Failure::new(Exit::Failed, "CN0321", message));
        }
        Ok(lasts.min(Duration::from_secs(left)))
    }

    /// Makes a key for a site and signs its certificate. `hosts` are the names and addresses under which
    /// pickup clients reach it. It lasts no longer than the authority does.
    ///
    /// # Errors
    /// When the system gives no randomness, the name cannot stand in a certificate, or the authority's
    /// own time is over.
    pub fn site(&self, name: &str, hosts: &[String], lasts: Duration) -> Result<Pair, Failure> {
        let key = new_key()?;
        let mut params = site_params(name)?;
        params.subject_alt_names.extend(host_names(name, hosts)?);
        validity(&mut params, self.at_most(lasts)?);
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(|e| failure("the certificate could not be signed", &e))?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Signs what another site asks for: its key, its name and its hosts; everything else is as for
    /// every site, whatever the request says.
    ///
    /// # Errors
    /// When the key is of no use in a certificate, or the authority's own time is over.
    pub fn sign(&self, request: &Request, lasts: Duration) -> Result<String, Failure> {
        let mut params = site_params(&request.name)?;
        params.subject_alt_names.extend(host_names(&request.name, &request.hosts)?);
        validity(&mut params, self.at_most(lasts)?);
        request.signed_by(params, &self.issuer)
    }

    /// Signs a certificate with these parameters, for tests of what is refused.
    #[cfg(test)]
    pub(crate) fn odd(&self, params: &CertificateParams) -> Pair {
        let key = new_key().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// Names that pickup clients know a site by. Peers do not look at them: only the URI names a site.
fn host_names(name: &str, hosts: &[String]) -> Result<Vec<SanType>, Failure> {
    let here = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let own = is_host_name(name).then(|| name.to_ascii_lowercase());
    let mut all: Vec<String> = Vec::new();
    for host in own.into_iter().chain(here).chain(hosts.iter().map(|h| h.to_ascii_lowercase())) {
        if !all.contains(&host) {
            all.push(host);
        }
    }
    let san = |host: String| match host.parse::<IpAddr>() {
        Ok(ip) => Ok(SanType::IpAddress(ip)),
        Err(_) if is_host_name(&host) => {
            let text = host.as_str().try_into();
            text.map(SanType::DnsName).map_err(|e| failure("a host cannot be named", &e))
        }
        Err(_) => {
            let message = format!("{host:?} is neither a host name nor an address");
            Err(Failure::new(Exit::Usage, "CN0002", message))
        }
    };
    all.into_iter().map(san).collect()
}

/// Whether it can stand in a certificate as a DNS name (RFC 1123).
fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// What every site's certificate says; validity is still to be set.
pub(crate) fn site_params(name: &str) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::default();
    let uri = format!("{SCHEME}{name}");
    let uri = uri.try_into().map_err(|e| failure("the name cannot stand in a certificate", &e))?;
    // A common name may have 64 characters; the name that counts is the URI.
    params.distinguished_name = common_name(name.get(..64).unwrap_or(name));
    params.subject_alt_names = vec![SanType::URI(uri)];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
