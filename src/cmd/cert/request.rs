//! `cert request` at the site that wants a certificate, `cert sign` at the one that has the authority.

use std::path::{Path, PathBuf};

use super::files::{self, Reader};
use super::{CertDone, RequestArgs, SignArgs, authority, bare, der_of, key_of, lasts, own, worded};
use crate::cmd::init::shown;
use crate::cmd::screen::Screen;
use crate::config::Settings;
use crate::exit::{Exit, Failure};
use crate::pki::{self, Request};
use crate::tls::identity::{Site, date};
use crate::tls::sha256;

/// Where the key of a request waits for its certificate.
pub(super) fn next_key(settings: &Settings) -> PathBuf {
    files::with_ending(&settings.tls.key, "next")
}

/// Where a request goes unless another place is named.
pub(super) fn usual_place(settings: &Settings) -> PathBuf {
    settings.file.with_file_name(format!("{}.csr", settings.node.name))
}

pub(super) fn request(
    args: &RequestArgs,
    settings: &Settings,
    screen: &mut Screen<'_>,
) -> Result<Exit, Failure> {
    let (key, csr) = (next_key(settings), args.output.clone());
    let csr = csr.unwrap_or_else(|| usual_place(settings));
    let _alone = files::alone(&settings.tls.key)?;
    for path in [&key, &csr] {
        if path.symlink_metadata().is_ok() {
            let help = "a request was made before and waits for `consign cert install`; to begin \
                        anew remove its key and its .csr";
            return Err(files::there(path).help(help));
        }
    }
    let present = own(settings).ok().and_then(|own| Site::read(&own).ok());
    let mut hosts = present.map(|site| bare(&site.hosts)).unwrap_or_default();
    hosts.extend(args.host.iter().cloned());
    let pair = pki::request(&settings.node.name, &hosts)?;
    let made = Request::read(&pair.certificate)?;
    files::make(&key, &pair.key, Reader::Owner, Some(&settings.tls.key))?;
    if let Err(e) = files::make(&csr, &pair.certificate, Reader::Everybody, None) {
        // A key without its request is of no use to anybody.
        let _ = std::fs::remove_file(&key);
        return Err(e);
    }
    let done = CertDone {
        schema: CertDone::SCHEMA.into(),
        action: "request".into(),
        name: made.name,
        hosts: made.hosts,
        files: [&key, &csr].map(|path| path.display().to_string()).into(),
        key: worded(&made.key),
        ..CertDone::default()
    };
    if screen.is_json() {
        screen.object(&done)?;
        return Ok(Exit::Done);
    }
    let (key, csr) = (shown(&key), shown(&csr));
    screen.line(&format!(
        "Made {csr}\n  {key}  its key, which stays here\n  key {}\n\n\
         Next, copy {csr} to the site that has the authority, and there, with DIR for that site:\n  consign -c DIR cert sign {}",
        done.key,
        name_of(&csr)
    ));
    Ok(Exit::Done)
}

/// The last part of a path.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(super) fn sign(
    args: &SignArgs,
    settings: &Settings,
    screen: &mut Screen<'_>,
) -> Result<Exit, Failure> {
    let asked = Request::read(&super::read(&args.request)?)?;
    if asked.name == settings.node.name {
        let message = format!(
            "the request cannot be signed: {} is this site's own name, and no other may bear it",
            asked.name
        );
        let help = "`consign cert renew` makes a new certificate for this site";
        return Err(Failure::new(Exit::Failed, "CN0325", message).help(help));
    }
    let output = args.output.clone().unwrap_or_else(|| args.request.with_extension("pem"));
    let authority = authority(&args.signing, settings)?;
    let certificate = authority.sign(&asked, lasts(&args.signing))?;
    let text = format!("{certificate}{}", authority.certificate());
    files::make(&output, &text, Reader::Everybody, None)
        .map_err(|e| if e.code == "CN0322" { e.help("--output FILE names another") } else { e })?;
    let der = der_of(&certificate)?;
    let site = Site::read(&der).map_err(|e| Failure::new(Exit::Failed, e.code(), e.to_string()))?;
    let done = CertDone {
        schema: CertDone::SCHEMA.into(),
        action: "sign".into(),
        name: site.name,
        hosts: site.hosts,
        files: vec![output.display().to_string()],
        key: key_of(&der),
        fingerprint: Some(worded(&sha256(&der))),
        authority: Some(worded(&sha256(&der_of(authority.certificate())?))),
        expires: Some(date(site.not_after)),
        running: None,
    };
    if screen.is_json() {
        screen.object(&done)?;
    } else {
        tell_signed(&done, &output, screen);
    }
    if !settings.node.peers.iter().any(|peer| peer.name == done.name) {
        screen.note(&format!("{} is not among relay.known_peers here", done.name));
    }
    Ok(Exit::Done)
}

fn tell_signed(done: &CertDone, output: &Path, screen: &mut Screen<'_>) {
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    let (output, authority) = (shown(output), said(&done.authority));
    screen.line(&format!(
        "Signed {}, valid until {}, in {output}\n  key          {}  as `cert request` showed it there\n  \
         certificate  {}  for peers that pin it\n  authority    {authority}\n  also names   {}\n\n\
         Next, copy {output} to {}, and there, with DIR for its site:\n  consign -c DIR cert install {} --trust {authority}",
        done.name,
        said(&done.expires),
        done.key,
        said(&done.fingerprint),
        done.hosts.join(", "),
        done.name,
        name_of(&output),
    ));
}
