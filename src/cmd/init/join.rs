//! `init --join`: a site whose certificate is yet to come from another's authority. Its key stays where
//! it was made; its card says which authority is believed when the certificate comes.

use std::fmt::Write as _;
use std::path::Path;

use super::card::Card;
use super::files::{self, Made};
use super::{InitArgs, Plan, Report, machine_name, reached_at, shown};
use crate::config::value::worded;
use crate::config::{self, FILE_NAME, Layers};
use crate::exit::{Exit, Failure};
use crate::pki::{self, Authority, Request};

/// File beside the configuration that keeps the card until the certificate is there.
pub(crate) const CARD: &str = "join.card";

/// What was made for a site that joins another.
pub(super) struct Joined {
    /// Name of the file of the request.
    csr: String,
    /// Fingerprint of its key.
    key: String,
    card: Card,
}

impl Plan {
    /// What others have to know to join; none for a site on whichever port is free.
    pub(super) fn card(&self, args: &InitArgs, authority: &Authority) -> Option<Card> {
        let der = x509_parser::pem::parse_x509_pem(authority.certificate().as_bytes()).ok()?.1;
        let address = match self.listen {
            Some(listen) if args.host.is_empty() && !listen.ip().is_unspecified() => {
                reached_at(&[listen])?
            }
            listen => {
                let port = listen.map_or(super::PORT, |listen| listen.port());
                let host = args.host.first().cloned().unwrap_or_else(machine_name);
                (port != 0 && !host.is_empty()).then(|| super::reached_as(&host, port))?
            }
        };
        let authority = worded(&crate::tls::sha256(&der.contents));
        Some(Card { name: self.name.clone(), address, authority })
    }

    /// Makes key, request and configuration.
    pub(super) fn join(&self, args: &InitArgs, card: &Card) -> Result<Report, Failure> {
        let pair = pki::request(&self.name, &args.host)?;
        let key = worded(&Request::read(&pair.certificate)?.key);
        let csr = format!("{}.csr", self.name);
        let mut made = Made::begin(&self.dir, false, false)?;
        made.secret("node.key.next", &pair.key)?;
        made.public(&csr, &pair.certificate)?;
        made.public(CARD, &format!("{card}\n"))?;
        made.public(FILE_NAME, &self.configuration())?;
        config::load(&self.dir.join(FILE_NAME), &Layers::default()).map_err(|f| f.failure())?;
        made.keep();
        let joined = Some(Joined { csr, key, card: card.clone() });
        Ok(Report { until: 0, own_authority: false, introduced: None, card: None, joined })
    }
}

impl Joined {
    /// The request, as a path.
    pub(super) fn request(&self, plan: &Plan) -> String {
        plan.dir.join(&self.csr).display().to_string()
    }

    /// What was made, and what comes next.
    pub(super) fn text(&self, plan: &Plan) -> String {
        let (dir, name, other) = (shown(&plan.dir), &plan.name, &self.card.name);
        let mut out = format!(
            "Created {dir}/\n  node.key.next       its key, which stays here\n  {:<18}  the request for its \
             certificate, key {}\n  {CARD}           believes {}\n  {FILE_NAME}        knows {other} at {}\n  \
             {}/               what it keeps\n",
            self.csr,
            self.key,
            self.card.authority,
            self.card.address,
            files::DATA
        );
        let me = plan.to_tell();
        let _ = write!(out, "\nTo make it known to {other}, add to the configuration there:\n");
        for line in me.lines().lines() {
            let _ = writeln!(out, "  {line}");
        }
        out.push_str(super::report::where_it_is(&me));
        let _ = write!(
            out,
            "\nNext, copy {dir}/{csr} to {other}'s machine, and there, with DIR for its site:\n  consign -c DIR cert sign {csr}\nThen copy \
             {name}.pem back, and here:\n  consign -c {dir} cert install {name}.pem\n  consign serve -c {dir}\n",
            csr = self.csr
        );
        out
    }
}

/// The authority that a site which joins another is to believe, while it has none: its card's.
///
/// # Errors
/// When there is a card that cannot be read or used.
pub(crate) fn promised(config: &Path) -> Result<Option<String>, Failure> {
    let path = config.with_file_name(CARD);
    match std::fs::read_to_string(&path) {
        Ok(text) => text.parse::<Card>().map(|card| Some(card.authority)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => {
            let message = format!("{} cannot be read: {e}", path.display());
            Err(Failure::new(Exit::Failed, "CN0311", message))
        }
    }
}
