//! `consign peers export`: the peers of the configuration, as sections of another one or as cards.

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cli::{self, Trouble};
use crate::cmd::complete;
use crate::cmd::init::{self, Card};
use crate::cmd::screen::Screen;
use crate::config::effective::{self, Shown};
use crate::config::keys::{self, Fallback};
use crate::config::value::worded;
use crate::config::{self, Settings};
use crate::exit::{Exit, Failure, Global};
use crate::tls;

/// Section of peers.
pub(super) const SECTION: &str = "relay.known_peers";

/// Peers to write down for another site.
#[derive(Args, Clone, Debug, Default)]
pub struct ExportArgs {
    /// Their names; this site's own gives its card [default: every peer of the configuration]
    #[arg(value_name = "NAME", add = complete::destinations())]
    names: Vec<String>,
    /// One line each instead of a section: name, address and authority, without pins, quotas, rates and windows
    #[arg(long)]
    cards: bool,
}

#[cfg(test)]
impl ExportArgs {
    pub(super) fn of(names: Vec<String>, cards: bool) -> ExportArgs {
        ExportArgs { names, cards }
    }
}

/// A peer as it is handed to another site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnownPeer {
    /// `consign.known_peer/1`
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Where it is dialled.
    pub address: String,
    /// The section of a configuration that makes it known; empty for this site itself.
    pub toml: String,
    /// Its card: name, address and authority; null when this site believes several authorities.
    pub card: Option<String>,
}

impl KnownPeer {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.known_peer/1";
}

/// Prints them; exit 4 when there is none.
pub(super) fn run(
    args: &ExportArgs,
    global: &Global,
    screen: &mut Screen<'_>,
) -> Result<Exit, Trouble> {
    let (file, layers) = (cli::file(global)?, cli::layers(&[]));
    let (settings, shown) = effective::settled(&file, &config::read(&file)?, &layers)?;
    let authority = authority(&settings);
    let peers = chosen(args, &settings, &shown)?;
    if peers.is_empty() {
        screen.note("no peers");
        return Ok(Exit::NoMatch);
    }
    let own = &settings.node.name;
    let mut parts = Vec::new();
    for (name, address, toml) in peers {
        let card = authority.clone().map(|authority| {
            let (name, address) = (name.clone(), address.clone());
            Card { name, address, authority }.to_string()
        });
        if screen.is_json() {
            let card = card.ok();
            let schema = KnownPeer::SCHEMA.into();
            screen.object(&KnownPeer { schema, name, address, toml, card })?;
        } else if args.cards || name == *own {
            screen.line(&card?);
        } else {
            parts.push(toml);
        }
    }
    if !parts.is_empty() {
        screen.line(parts.join("\n").trim_end());
    }
    Ok(Exit::Done)
}

/// Name, address and section of each that was asked for, in the order of the file or the question.
fn chosen(
    args: &ExportArgs,
    settings: &Settings,
    shown: &[Shown],
) -> Result<Vec<(String, String, String)>, Failure> {
    let peers = || shown.iter().filter(|s| s.section == SECTION).zip(&settings.node.peers);
    let one = |(shown, peer): (&Shown, &consign_core::config::PeerConfig)| {
        (peer.name.clone(), peer.address.clone(), section(shown))
    };
    if args.names.is_empty() {
        return Ok(peers().map(one).collect());
    }
    let find = |name: &String| {
        if *name == settings.node.name {
            return Ok((name.clone(), init::reached_by_others(&settings.listen)?, String::new()));
        }
        peers().find(|(_, peer)| peer.name == *name).map(one).ok_or_else(|| {
            let message = format!("{name} is not among {SECTION}");
            Failure::new(Exit::NoMatch, "CN0583", message).help("all of them: consign peers export")
        })
    };
    args.names.iter().map(find).collect()
}

/// A peer as it stands in a configuration, without what is the default anyway.
fn section(shown: &Shown) -> String {
    let mut text = format!("[[{SECTION}]]\n");
    for key in &shown.keys {
        let Some(value) = &key.value else { continue };
        let default = keys::find(SECTION, key.name).map(|key| key.default);
        if !matches!(default, Some(Fallback::Is(default)) if default == value) {
            text.push_str(&format!("{} = {value}\n", key.name));
        }
    }
    text
}

/// The authority that signs sites here: a card names one.
fn authority(settings: &Settings) -> Result<String, Failure> {
    let known = authorities(settings)?;
    if let [one] = known.as_slice() {
        return Ok(one.clone());
    }
    let message = format!("tls.ca has {} authorities, and a card names one", known.len());
    let help = "sections say everything else: consign peers export";
    Err(Failure::new(Exit::Failed, "CN0582", message).help(help))
}

/// Fingerprints of the authorities that are believed here.
pub(super) fn authorities(settings: &Settings) -> Result<Vec<String>, Failure> {
    let found = tls::certificates(&settings.tls.ca)?;
    let mut prints: Vec<String> = found.iter().map(|der| worded(&tls::sha256(der))).collect();
    prints.sort();
    prints.dedup();
    Ok(prints)
}
