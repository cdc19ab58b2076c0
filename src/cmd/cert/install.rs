//! `cert install`: a certificate that was signed elsewhere takes its place together with its key.
//!
//! Cut off half-way it can be run again: the key of the request goes last.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::files::{self, New, Reader};
use super::request::{next_key, usual_place};
use super::{CertDone, InstallArgs, der_of, judged, key_of, worded};
use crate::cmd::init;
use crate::config::Settings;
use crate::exit::{Exit, Failure};
use crate::pki::{Request, blocks};
use crate::tls::identity::date;
use crate::tls::{Judged, sha256};

/// What a file holds.
struct Given {
    /// This site's certificate and what it was signed with, without the authority, in PEM.
    chain: String,
    /// This site's certificate in DER.
    leaf: Vec<u8>,
    /// Authorities by their fingerprints, in PEM.
    authorities: Vec<(String, String)>,
}

impl Given {
    fn read(args: &InstallArgs) -> Result<Given, Failure> {
        let text = super::read(&args.file)?;
        let mut given = Given { chain: String::new(), leaf: Vec::new(), authorities: Vec::new() };
        for block in blocks(&text) {
            let der = der_of(block)?;
            if given.leaf.is_empty() {
                given.leaf = der;
            } else if is_root(&der) {
                given.authorities.push((worded(&sha256(&der)), block.to_owned()));
                continue;
            }
            given.chain.push_str(block);
            given.chain.push('\n');
        }
        if given.leaf.is_empty() {
            let message = format!("{} holds no certificate in PEM", args.file.display());
            return Err(Failure::new(Exit::Failed, "CN0312", message));
        }
        Ok(given)
    }
}

/// Whether it says itself that nobody else has signed it.
fn is_root(der: &[u8]) -> bool {
    x509_parser::parse_x509_certificate(der)
        .is_ok_and(|(_, c)| c.issuer().as_raw() == c.subject().as_raw())
}

pub(super) fn install(args: &InstallArgs, settings: &Settings) -> Result<CertDone, Failure> {
    let files = &settings.tls;
    let _alone = files::alone(&files.key)?;
    let given = Given::read(args)?;
    // A site that joins another has no authority yet, and believes its card's.
    let joins = files.ca.symlink_metadata().is_err();
    let promised = if joins { init::promised(&settings.file)? } else { None };
    let believed = if promised.is_some() { String::new() } else { super::read(&files.ca)? };
    let trust = args.trust.clone().or(promised);
    let roots = with_trusted(args, trust.as_deref(), &given, &believed)?;
    let (key, next, fresh) = fitting(&given, roots.as_ref().unwrap_or(&believed), settings)?;
    still_good(&fresh)?;
    let mut new = Vec::new();
    // Whoever believes one more authority still believes the old pair.
    if let Some(roots) = &roots {
        new.push(New { path: &files.ca, text: roots, reader: Reader::Everybody });
    }
    if next.is_some() {
        new.push(New { path: &files.key, text: &key, reader: Reader::Owner });
    }
    new.push(New { path: &files.cert, text: &given.chain, reader: Reader::Everybody });
    files::replace(&new)?;
    if let Some(next) = next {
        let _ = std::fs::remove_file(next);
        forget_request(&given, settings);
    }
    // Its authority is believed now, by this run or by one that was cut off.
    let _ = std::fs::remove_file(settings.file.with_file_name(init::CARD));
    Ok(CertDone {
        schema: CertDone::SCHEMA.into(),
        action: "install".into(),
        name: fresh.own.name,
        hosts: fresh.own.hosts,
        files: new.iter().map(|file| file.path.display().to_string()).collect(),
        key: key_of(&given.leaf),
        fingerprint: Some(worded(&fresh.shown.own.0)),
        authority: None,
        expires: Some(date(fresh.own.not_after)),
        running: None,
    })
}

/// The text of `tls.ca` with the authority that is to be believed besides, if it is not there yet.
fn with_trusted(
    args: &InstallArgs,
    trust: Option<&str>,
    given: &Given,
    believed: &str,
) -> Result<Option<String>, Failure> {
    let Some(trust) = trust.map(str::to_ascii_lowercase) else { return Ok(None) };
    let is_there = |print: &str| {
        blocks(believed).any(|one| der_of(one).is_ok_and(|der| worded(&sha256(&der)) == print))
    };
    let Some((_, block)) = given.authorities.iter().find(|(print, _)| *print == trust) else {
        let prints: Vec<&str> = given.authorities.iter().map(|(print, _)| print.as_str()).collect();
        let has = if prints.is_empty() { "none".into() } else { prints.join(", ") };
        let message = format!("{} has no authority {trust}; it has {has}", args.file.display());
        let help = "take it anew from the site that signed, by a way that nobody else can write to";
        return Err(Failure::new(Exit::Failed, "CN0327", message).help(help));
    };
    let more = || format!("{}\n{block}\n", believed.trim_end()).trim_start().to_owned();
    Ok((!is_there(&trust)).then(more))
}

/// The key that the certificate is of, where it waits if it is a request's, and what they are together.
fn fitting(
    given: &Given,
    roots: &str,
    settings: &Settings,
) -> Result<(String, Option<PathBuf>, Judged), Failure> {
    let next = next_key(settings);
    let places = [(next.clone(), Some(next)), (settings.tls.key.clone(), None)];
    for (path, next) in places {
        let Ok(key) = super::read(&path) else { continue };
        match judged(roots, &given.chain, &key, settings) {
            Ok(fresh) => return Ok((key, next, fresh)),
            Err(e) if e.code == "CN0314" || e.code == "CN0312" => {}
            Err(e) => return Err(unbelieved(e, given, settings)),
        }
    }
    let message = "the certificate is of neither key of this site: not of its present one, not of a \
                   request's";
    let help = "a request is answered by its own certificate only: `consign cert request`, then \
                `cert sign` where the authority is";
    Err(Failure::new(Exit::Failed, "CN0314", message).help(help))
}

/// An authority that came along is not believed for that; how it can be is said.
fn unbelieved(failure: Failure, given: &Given, settings: &Settings) -> Failure {
    let (Some((print, _)), "CN0315") = (given.authorities.first(), failure.code) else {
        return Failure { exit: Exit::Failed, ..failure };
    };
    let message = format!(
        "{} has no authority that signed the certificate; {print} came along with it",
        settings.tls.ca.display()
    );
    let help = format!("if `consign cert sign` showed the same there: --trust {print}");
    Failure::new(Exit::Failed, "CN0327", message).help(help)
}

fn still_good(fresh: &Judged) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now <= fresh.own.not_after {
        return Ok(());
    }
    let until = date(fresh.own.not_after);
    let message = format!("the certificate ended on {until}; the clock here says {}", date(now));
    Err(Failure::new(Exit::Failed, "CN0309", message))
}

/// A request that is answered leaves its usual place free for the next.
fn forget_request(given: &Given, settings: &Settings) {
    let csr = usual_place(settings);
    let asked = super::read(&csr).and_then(|text| Request::read(&text));
    if asked.is_ok_and(|asked| asked.is_of(&given.leaf)) {
        let _ = std::fs::remove_file(csr);
    }
}
