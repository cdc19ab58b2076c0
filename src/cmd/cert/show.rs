//! `cert show`: this site's certificate and the authorities it believes.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::worded;
use crate::cmd::screen::Screen;
use crate::config::Settings;
use crate::exit::{Exit, Failure};
use crate::human::{self, Align};
use crate::tls::identity::{Site, date};
use crate::tls::{self, Credentials, sha256};

/// Certificates as they lie there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificates {
    /// `consign.certificates/1`
    pub schema: String,
    /// `node.name` of the configuration.
    pub node: String,
    /// This site's own, then the authorities of `tls.ca`.
    pub certificates: Vec<Certificate>,
    /// Why a start would refuse certificate and key, with its code, or what is wrong and may be right
    /// later, such as their time; empty if nothing is.
    pub problem: String,
    /// The key of a request that waits for its certificate; null if there is none.
    pub requested: Option<String>,
}

/// A certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// `own`, or `authority`.
    pub certificate: String,
    /// The site it names; of authorities their subject.
    pub name: String,
    /// Host names and addresses in it, for pickup clients.
    pub hosts: Vec<String>,
    /// The subject of what signed it.
    pub issuer: String,
    /// The first second of its validity.
    pub begins: String,
    /// The last second of its validity.
    pub expires: String,
    /// The same instant, in seconds since the Unix epoch.
    pub expires_seconds: i64,
    /// Whole days until then; below 0 when it is over.
    pub days_left: i64,
    /// Seconds until then: what people read is rounded to the nearest day.
    #[serde(skip)]
    pub seconds_left: i64,
    /// `sha256:` and the digest of it, as peers pin it.
    pub fingerprint: String,
    /// Where it lies.
    pub file: String,
}

impl Certificates {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.certificates/1";

    /// As they are at `now`, seconds since the Unix epoch.
    pub(super) fn read(settings: &Settings, now: i64) -> Result<Certificates, Failure> {
        let files = &settings.tls;
        let mut certificates = Vec::new();
        let next = super::request::next_key(settings);
        let waits = next.symlink_metadata().is_ok();
        // A site that joins another has neither yet.
        let read = |path: &Path| {
            if waits && path.symlink_metadata().is_err() {
                return Ok(Vec::new());
            }
            tls::certificates(path)
        };
        let chain = read(&files.cert)?;
        if let Some(own) = chain.first() {
            certificates.push(Certificate::read("own", own, &files.cert, now)?);
        }
        for root in read(&files.ca)? {
            certificates.push(Certificate::read("authority", &root, &files.ca, now)?);
        }
        let judged = Credentials::read(files).and_then(|c| c.judge(&settings.node));
        let problem = match judged {
            Ok(judged) => judged.warning.map(|text| format!("CN0309: {text}")).unwrap_or_default(),
            Err(failure) => format!("{}: {}", failure.code, failure.message),
        };
        let requested = waits.then(|| next.display().to_string());
        let (schema, node) = (Certificates::SCHEMA.into(), settings.node.name.clone());
        Ok(Certificates { schema, node, certificates, problem, requested })
    }
}

impl Certificate {
    fn read(kind: &str, der: &[u8], file: &Path, now: i64) -> Result<Certificate, Failure> {
        let (_, parsed) = x509_parser::parse_x509_certificate(der).map_err(|e| {
            let message = format!("{} holds what is no certificate: {e}", file.display());
            Failure::new(Exit::Failed, "CN0301", message)
        })?;
        let site = Site::read(der).ok().filter(|_| kind == "own");
        let (name, hosts) =
            site.map_or_else(|| (parsed.subject().to_string(), Vec::new()), |s| (s.name, s.hosts));
        let validity = parsed.validity();
        let end = validity.not_after.timestamp();
        Ok(Certificate {
            certificate: kind.into(),
            name,
            hosts,
            issuer: parsed.issuer().to_string(),
            begins: date(validity.not_before.timestamp()),
            expires: date(end),
            expires_seconds: end,
            days_left: end.saturating_sub(now).div_euclid(86_400),
            seconds_left: end.saturating_sub(now),
            fingerprint: worded(&sha256(der)),
            file: file.display().to_string(),
        })
    }

    fn row(&self) -> Vec<String> {
        let left = match self.seconds_left {
            ..0 => "over".into(),
            left => days(left.unsigned_abs()),
        };
        let until = self.expires.split('T').next().unwrap_or_default().to_owned();
        vec![
            self.certificate.clone(),
            self.name.clone(),
            until,
            left,
            self.fingerprint.clone(),
            self.file.clone(),
        ]
    }
}

/// Seconds as days, rounded to the nearest.
fn days(seconds: u64) -> String {
    human::count((seconds + 43_200) / 86_400, "day")
}

const HEAD: [(&str, Align); 6] = [
    ("WHICH", Align::Left),
    ("NAME", Align::Left),
    ("UNTIL", Align::Left),
    ("LEFT", Align::Right),
    ("FINGERPRINT", Align::Left),
    ("FILE", Align::Left),
];

pub(super) fn show(settings: &Settings, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let all = Certificates::read(settings, i64::try_from(now.as_secs()).unwrap_or(i64::MAX))?;
    say(&all, screen)?;
    Ok(Exit::Done)
}

pub(super) fn say(all: &Certificates, screen: &mut Screen<'_>) -> Result<(), Failure> {
    if screen.is_json() {
        return screen.object(all);
    }
    let rows: Vec<Vec<String>> = all.certificates.iter().map(Certificate::row).collect();
    screen.line(human::table(&HEAD, &rows).trim_end());
    for own in all.certificates.iter().filter(|c| c.certificate == "own") {
        screen.line(&format!("signed by {}; also names {}", own.issuer, own.hosts.join(", ")));
    }
    if !all.problem.is_empty() {
        screen.problem(&format!("warning: {}", all.problem));
    }
    if let Some(key) = &all.requested {
        screen.note(&format!("{key} waits for its certificate: `consign cert install FILE`"));
    }
    Ok(())
}
