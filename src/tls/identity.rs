//! Who a certificate says its holder is, and whether that site is welcome.
//!
//! The one name that counts is a URI `consign://NAME` in the certificate's alternative names; common
//! names and DNS names are not looked at. A peer is one of the configuration's, its pin must fit if it
//! has one, and both this site's certificate and the peer's must be valid now. The chain has been
//! verified by TLS before; usage is judged here because TLS takes a certificate that states none.

use std::collections::BTreeMap;
use std::net::IpAddr;

use consign_core::config::{Config, PeerConfig};
use consign_core::id::hex;
use consign_core::segment::is_site_name;
use consign_core::session::Identity;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::config::value::worded;

/// Begins the URI that names a site.
pub const SCHEME: &str = "consign://";

/// Why the holder of a certificate is turned away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unwelcome {
    /// It sent no certificate, or one that cannot be read.
    #[error("the certificate cannot be read: {0}")]
    Unreadable(String),
    /// No URI names a site.
    #[error("the certificate names no site: it has no {SCHEME}NAME among its alternative names{0}")]
    Nameless(String),
    /// More than one URI.
    #[error("the certificate has {0} URIs among its alternative names; it may have one")]
    Several(usize),
    /// The URI does not name a site.
    #[error("the certificate's URI {0:?} is not {SCHEME} and the name of a site")]
    Misnamed(String),
    /// The certificate is not for this use.
    #[error("the certificate of {name} is not for {missing} authentication")]
    Usage {
        /// The site it names.
        name: String,
        /// What is missing: `client` or `server`.
        missing: &'static str,
    },
    /// Nobody here knows that site.
    #[error("{0} is not among relay.known_peers")]
    Unknown(String),
    /// Somebody else bears this site's own name.
    #[error("{0} is this site's own name, borne by somebody else")]
    Ourselves(String),
    /// Another certificate than those that were pinned.
    #[error("the certificate of {name} has the fingerprint sha256:{found}, pinned is {pinned}")]
    Pin {
        /// The site it names.
        name: String,
        /// Fingerprint of what was sent.
        found: String,
        /// What the configuration says.
        pinned: String,
    },
    /// Outside its validity.
    #[error("the certificate of {name} {}", outside(*.not_before, *.not_after, *.now))]
    Invalid {
        /// The site it names.
        name: String,
        /// First second of its validity, since the Unix epoch.
        not_before: i64,
        /// Last second of its validity.
        not_after: i64,
        /// The system clock.
        now: i64,
    },
    /// This site's own certificate is outside its validity.
    #[error("this site's own certificate {}", outside(*.not_before, *.not_after, *.now))]
    OwnInvalid {
        /// First second of its validity, since the Unix epoch.
        not_before: i64,
        /// Last second of its validity.
        not_after: i64,
        /// The system clock.
        now: i64,
    },
}

impl Unwelcome {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Unwelcome::Unreadable(_) => "CN0301",
            Unwelcome::Nameless(_) | Unwelcome::Misnamed(_) => "CN0302",
            Unwelcome::Several(_) => "CN0303",
            Unwelcome::Usage { .. } => "CN0304",
            Unwelcome::Unknown(_) => "CN0305",
            Unwelcome::Ourselves(_) => "CN0306",
            Unwelcome::Pin { .. } => "CN0307",
            Unwelcome::Invalid { .. } => "CN0308",
            Unwelcome::OwnInvalid { .. } => "CN0309",
        }
    }
}

/// The fingerprint that a site showed (`sha256:` and hex), in the words of [`Unwelcome::Pin`]: the last error of a peer
/// is a text.
#[must_use]
pub fn shown_pin(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(" has the fingerprint ")?;
    let (shown, _) = rest.split_once(", pinned is ")?;
    shown.starts_with("sha256:").then_some(shown)
}

/// "expired on …" or "is not valid before …".
fn outside(not_before: i64, not_after: i64, now: i64) -> String {
    if now < not_before {
        format!("is not valid before {}; the clock here says {}", date(not_before), date(now))
    } else {
        format!("expired on {}; the clock here says {}", date(not_after), date(now))
    }
}

/// A second since the Unix epoch as a date and time in UTC.
#[must_use]
pub fn date(seconds: i64) -> String {
    let since = std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let at = std::time::UNIX_EPOCH.checked_add(since).unwrap_or(std::time::UNIX_EPOCH);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// What can be read from a certificate of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// First second of its validity, since the Unix epoch.
    pub not_before: i64,
    /// Last second of its validity.
    pub not_after: i64,
    /// Host names and addresses that it names besides, for pickup clients.
    pub hosts: Vec<String>,
}

impl Site {
    /// Reads a certificate by the rules of this module, except those that need to know peers or time.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn read(der: &[u8]) -> Result<Site, Unwelcome> {
        let unreadable = |e: &dyn std::fmt::Display| Unwelcome::Unreadable(e.to_string());
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|e| unreadable(&e))?;
        if !rest.is_empty() {
            return Err(unreadable(&"there is something behind it"));
        }
        let name = site_name(&certificate)?;
        let usage = certificate.extended_key_usage().map_err(|e| unreadable(&e))?;
        let missing = match usage {
            Some(usage) if usage.value.client_auth && usage.value.server_auth => None,
            Some(usage) if usage.value.client_auth => Some("server"),
            Some(_) | None => Some("client"),
        };
        if let Some(missing) = missing {
            return Err(Unwelcome::Usage { name, missing });
        }
        let validity = certificate.validity();
        let not_before = validity.not_before.timestamp();
        let not_after = validity.not_after.timestamp();
        Ok(Site { name, not_before, not_after, hosts: host_names(&certificate) })
    }

    /// Whether `now` is within its validity.
    #[must_use]
    pub fn valid_at(&self, now: i64) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }
}

/// The last second of a certificate's validity, since the Unix epoch.
#[must_use]
pub fn not_after(der: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

fn site_name(certificate: &X509Certificate<'_>) -> Result<String, Unwelcome> {
    let alternative =
        certificate.subject_alternative_name().map_err(|e| Unwelcome::Unreadable(e.to_string()))?;
    let names = alternative.map(|san| san.value.general_names.as_slice()).unwrap_or_default();
    let uris: Vec<&str> = names
        .iter()
        .filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None })
        .collect();
    match uris.as_slice() {
        [] => {
            let common = certificate.subject().iter_common_name().next();
            let common = common.and_then(|cn| cn.as_str().ok()).map_or_else(String::new, |cn| {
                format!(" (its common name, {:?}, does not count)", clip(cn))
            });
            Err(Unwelcome::Nameless(common))
        }
        [uri] => match uri.strip_prefix(SCHEME) {
            Some(name) if is_site_name(name) => Ok(name.to_owned()),
            _ => Err(Unwelcome::Misnamed(clip(uri))),
        },
        several => Err(Unwelcome::Several(several.len())),
    }
}

/// DNS names and IP addresses among the alternative names.
fn host_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names = alternative.map(|san| san.value.general_names.as_slice()).unwrap_or_default();
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(ip) => match ip {
            [a, b, c, d] => Some(IpAddr::from([*a, *b, *c, *d]).to_string()),
            _ => <[u8; 16]>::try_from(*ip).ok().map(|ip| format!("[{}]", IpAddr::from(ip))),
        },
        _ => None,
    };
    names.iter().filter_map(host).collect()
}

/// At most 80 characters of what somebody else wrote.
fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Computes SHA-256.
pub type Sha256 = fn(&[u8]) -> [u8; 32];

/// Whom this site meets.
#[derive(Clone, Debug)]
pub struct Rules {
    own: Site,
    peers: BTreeMap<String, Vec<[u8; 32]>>,
    sha256: Sha256,
}

impl Rules {
    /// The rules of a configuration; `own` is this site's certificate.
    #[must_use]
    pub fn new(own: Site, config: &Config, sha256: Sha256) -> Rules {
        let pins = |p: &PeerConfig| p.pins().copied().collect();
        let peers = config.peers.iter().map(|p| (p.name.clone(), pins(p))).collect();
        Rules { own, peers, sha256 }
    }

    /// Whether a site of that name is let in with a certificate of that fingerprint.
    pub(super) fn know(&self, name: &str, fingerprint: &[u8; 32]) -> bool {
        self.peers.get(name).is_some_and(|pins| pins.is_empty() || pins.contains(fingerprint))
    }

    /// SHA-256 of a certificate.
    pub(super) fn fingerprint(&self, certificate: &CertificateDer<'_>) -> [u8; 32] {
        (self.sha256)(certificate)
    }

    /// Judges the chain that the other side sent, at `now` seconds since the Unix epoch.
    ///
    /// # Errors
    /// Why it is not welcome.
    pub fn judge(&self, chain: &[CertificateDer<'_>], now: i64) -> Result<Identity, Unwelcome> {
        let Some(leaf) = chain.first() else {
            return Err(Unwelcome::Unreadable("none was sent".into()));
        };
        let site = Site::read(leaf)?;
        if site.name == self.own.name {
            return Err(Unwelcome::Ourselves(site.name));
        }
        let Some(pins) = self.peers.get(&site.name) else {
            return Err(Unwelcome::Unknown(site.name));
        };
        let fingerprint = (self.sha256)(leaf);
        if !pins.is_empty() && !pins.contains(&fingerprint) {
            let pinned: Vec<String> = pins.iter().map(worded).collect();
            let (found, pinned) = (hex(&fingerprint), pinned.join(" or "));
            return Err(Unwelcome::Pin { name: site.name, found, pinned });
        }
        if !site.valid_at(now) {
            let Site { name, not_before, not_after, .. } = site;
            return Err(Unwelcome::Invalid { name, not_before, not_after, now });
        }
        if !self.own.valid_at(now) {
            let Site { not_before, not_after, .. } = self.own;
            return Err(Unwelcome::OwnInvalid { not_before, not_after, now });
        }
        let not_after = u64::try_from(site.not_after).unwrap_or(0).saturating_mul(1_000);
        Ok(Identity { name: site.name, fingerprint, not_after })
    }
}
