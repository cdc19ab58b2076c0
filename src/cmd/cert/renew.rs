//! `cert renew`: a new key and certificate for this site by the authority at hand.

use super::files::{self, New, Reader};
use super::{CertDone, RenewArgs, authority, bare, der_of, judged, key_of, lasts, own, worded};
use crate::config::Settings;
use crate::exit::Failure;
use crate::tls::identity::{Site, date};
use crate::tls::sha256;

pub(super) fn renew(args: &RenewArgs, settings: &Settings) -> Result<CertDone, Failure> {
    let files = &settings.tls;
    let _alone = files::alone(&files.key)?;
    let authority = authority(&args.signing, settings)?;
    // Names for pickup clients go over; a certificate that names no site has none that count.
    let hosts = Site::read(&own(settings)?).map(|site| bare(&site.hosts)).unwrap_or_default();
    let pair = authority.site(&settings.node.name, &hosts, lasts(&args.signing))?;
    // As it will be judged by the running site, before anything is changed.
    let roots = super::read(&files.ca)?;
    let fresh = judged(&roots, &pair.certificate, &pair.key, settings)?;
    files::replace(&[
        New { path: &files.key, text: &pair.key, reader: Reader::Owner },
        New { path: &files.cert, text: &pair.certificate, reader: Reader::Everybody },
    ])?;
    Ok(CertDone {
        schema: CertDone::SCHEMA.into(),
        action: "renew".into(),
        name: fresh.own.name,
        hosts: fresh.own.hosts,
        files: [&files.key, &files.cert].map(|path| path.display().to_string()).into(),
        key: key_of(&der_of(&pair.certificate)?),
        fingerprint: Some(worded(&fresh.shown.own.0)),
        authority: Some(worded(&sha256(&der_of(authority.certificate())?))),
        expires: Some(date(fresh.own.not_after)),
        running: None,
    })
}
