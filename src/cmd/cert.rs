//! `consign cert …`: this site's certificate and the authorities it believes, looked at and made anew.
//!
//! Keys are made where they stay. `renew` is for a site at hand of its authority; `request`, `sign` and
//! `install` are for two machines: only a request and a certificate travel between them.

mod files;
mod install;
mod renew;
mod request;
mod running;
mod show;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::init;
use super::screen::standard;
use crate::cli::{self, Trouble};
use crate::config::Settings;
use crate::config::value::worded;
use crate::exit::{Exit, Failure, Global};
use crate::pki::Authority;
use crate::tls::{self, Credentials};
pub use show::Certificates;

/// What can be done with certificates.
#[derive(Subcommand, Clone, Debug)]
pub enum CertCommand {
    /// Shows this site's certificate and the authorities it believes
    Show,
    /// Makes a new key and certificate for this site, where the key of its authority is at hand
    Renew(RenewArgs),
    /// Makes a new key and a request for its certificate, to be signed where the authority is
    Request(RequestArgs),
    /// Signs another site's request with the authority of this one
    Sign(SignArgs),
    /// Takes a certificate that was signed for this site, with its key
    Install(InstallArgs),
}

/// Which authority signs, and for how long.
#[derive(Args, Clone, Debug)]
pub struct Signing {
    /// Days that the certificate lasts; never longer than the authority does
    #[arg(long, value_name = "N", default_value_t = 90,
        value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
    /// The authority: the directory of the site that has it, or its ca.pem [default: tls.ca]
    #[arg(long, value_name = "DIR|FILE")]
    pub ca: Option<PathBuf>,
    /// Its key [default: ca.key beside it]
    #[arg(long, value_name = "FILE")]
    pub ca_key: Option<PathBuf>,
}

impl Default for Signing {
    fn default() -> Signing {
        Signing { days: 90, ca: None, ca_key: None }
    }
}

/// Arguments of `cert renew`.
#[derive(Args, Clone, Debug, Default)]
pub struct RenewArgs {
    /// By whom and for how long.
    #[command(flatten)]
    pub signing: Signing,
}

/// Arguments of `cert request`.
#[derive(Args, Clone, Debug, Default)]
pub struct RequestArgs {
    /// Where the request goes [default: NAME.csr beside the configuration]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// A host name or address under which pickup clients reach this site, beside those of its present
    /// certificate; may be given more than once
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub host: Vec<String>,
}

/// Arguments of `cert sign`.
#[derive(Args, Clone, Debug, Default)]
pub struct SignArgs {
    /// The request that `consign cert request` wrote
    #[arg(value_name = "REQUEST")]
    pub request: PathBuf,
    /// Where the certificate goes [default: REQUEST with .pem for its ending]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// By whom and for how long.
    #[command(flatten)]
    pub signing: Signing,
}

/// Arguments of `cert install`.
#[derive(Args, Clone, Debug, Default)]
pub struct InstallArgs {
    /// The certificate that `consign cert sign` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Believes the authority of this fingerprint from now on, if FILE has it: the one that
    /// `consign cert sign` showed
    #[arg(long, value_name = "sha256:HEX")]
    pub trust: Option<String>,
}

/// What became of a command that makes something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertDone {
    /// `consign.cert_done/1`
    pub schema: String,
    /// `renew`, `request`, `sign` or `install`.
    pub action: String,
    /// The site whose certificate it is or will be.
    pub name: String,
    /// Host names and addresses in it, for pickup clients.
    pub hosts: Vec<String>,
    /// Files that were written.
    pub files: Vec<String>,
    /// `sha256:` and the digest of the public key (SubjectPublicKeyInfo).
    pub key: String,
    /// The same of the certificate, as peers pin it; null for a request.
    pub fingerprint: Option<String>,
    /// The same of the authority that signed; null where it does not matter.
    pub authority: Option<String>,
    /// The last second of the certificate's validity; null for a request.
    pub expires: Option<String>,
    /// `taken`: the running site shows it to whoever connects from now on; `not_running`: it is taken
    /// at the next start; `waiting`: the running site has not taken it yet; null where nothing changes.
    pub running: Option<String>,
}

impl CertDone {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.cert_done/1";
}

/// Runs it.
///
/// # Errors
/// What is wrong with the configuration, or why a certificate cannot be read, made or taken.
pub fn run(
    command: &CertCommand,
    global: &Global,
    socket: Option<PathBuf>,
) -> Result<Exit, Trouble> {
    let settings = cli::settings(global, &[])?;
    let socket = socket.unwrap_or_else(|| settings.admin.clone());
    Ok(standard(global, |screen| match command {
        CertCommand::Show => show::show(&settings, screen),
        CertCommand::Renew(args) => {
            let done = renew::renew(args, &settings)?;
            running::tell(done, &socket, screen)
        }
        CertCommand::Request(args) => request::request(args, &settings, screen),
        CertCommand::Sign(args) => request::sign(args, &settings, screen),
        CertCommand::Install(args) => {
            let done = install::install(args, &settings)?;
            running::tell(done, &socket, screen)
        }
    })?)
}

/// The fingerprint of a public key, given its certificate in DER.
fn key_of(certificate: &[u8]) -> String {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    parsed.map_or_else(|_| String::new(), |(_, c)| worded(&tls::sha256(c.public_key().raw)))
}

/// The first certificate of a text in PEM, in DER.
fn der_of(pem: &str) -> Result<Vec<u8>, Failure> {
    x509_parser::pem::parse_x509_pem(pem.as_bytes()).map(|(_, pem)| pem.contents).map_err(|e| {
        let message = format!("the certificate cannot be read: {e}");
        Failure::new(Exit::Failed, "CN0312", message)
    })
}

/// A name as `pki` takes it: addresses of version 6 without their brackets.
fn bare(hosts: &[String]) -> Vec<String> {
    hosts.iter().map(|host| host.trim_matches(['[', ']']).to_owned()).collect()
}

/// This site's certificate as it lies there, in DER.
fn own(settings: &Settings) -> Result<Vec<u8>, Failure> {
    let all = tls::certificates(&settings.tls.cert)?;
    Ok(all.first().map(|first| first.to_vec()).unwrap_or_default())
}

/// The authority that signs for this site: the one that signed its own certificate, or whatever it signs
/// would be believed by nobody who believes this site.
fn authority(signing: &Signing, settings: &Settings) -> Result<Authority, Failure> {
    let elsewhere = "`consign cert request` makes a request to be signed where that authority is; \
                     --ca DIR or --ca-key FILE say where its key is on this machine";
    let beside = |ca: &Path| ca.with_file_name("ca.key");
    let (ca, key) = match (&signing.ca, &signing.ca_key) {
        (Some(ca), key) => (ca.clone(), key.clone()),
        (None, Some(key)) => (settings.tls.ca.clone(), Some(key.clone())),
        (None, None) => {
            let key = beside(&settings.tls.ca);
            if key.symlink_metadata().is_err() {
                let message =
                    format!("the key of this site's authority is not here: no {}", key.display());
                return Err(Failure::new(Exit::Failed, "CN0326", message).help(elsewhere));
            }
            (settings.tls.ca.clone(), Some(key))
        }
    };
    let authority = init::read_authority(&ca, key.as_deref())?;
    if authority.signed(&own(settings)?) {
        return Ok(authority);
    }
    let message = format!(
        "the authority at hand, {}, is not the one that signed this site's certificate",
        worded(&tls::sha256(&der_of(authority.certificate())?))
    );
    Err(Failure::new(Exit::Failed, "CN0326", message).help(elsewhere))
}

fn lasts(signing: &Signing) -> Duration {
    Duration::from_secs(u64::from(signing.days) * 86_400)
}

/// Judges texts in PEM as a start of this site would judge its files.
fn judged(ca: &str, cert: &str, key: &str, settings: &Settings) -> Result<tls::Judged, Failure> {
    Credentials::from_pem(ca, cert, key)?.judge(&settings.node)
}

/// Reads a file that somebody else may have written: at most so much of it as a certificate can need.
fn read(path: &Path) -> Result<String, Failure> {
    use std::io::Read as _;
    const MOST: u64 = 256 << 10;
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|f| f.take(MOST).read_to_string(&mut text));
    read.map_err(|e| {
        let message = format!("{} cannot be read: {e}", path.display());
        Failure::new(Exit::Failed, "CN0311", message)
    })?;
    Ok(text)
}
