//! `send -n`: what would be sent, and to whom; nothing is read and nothing is handed in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SendArgs;
use super::walk::{Found, Item, Walk};
use super::words;
use crate::admin::shapes::Peer;
use crate::cmd::screen::Screen;
use crate::exit::{Exit, Failure};
use crate::human;

/// A thing that would be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WouldSend {
    /// `consign.would_send/1`
    pub schema: String,
    /// Its name as a segment.
    pub name: String,
    /// The file; null is standard input.
    pub file: Option<String>,
    /// Its length in bytes, where that is known before it is read.
    pub size: Option<u64>,
    /// Where to; `*` is every known peer.
    pub to: Vec<String>,
}

impl WouldSend {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.would_send/1";

    fn of(item: Item, to: &[String]) -> WouldSend {
        let there = item.path.as_deref().and_then(|path| std::fs::metadata(path).ok());
        let to = if to.is_empty() { vec!["*".into()] } else { to.to_vec() };
        WouldSend {
            schema: WouldSend::SCHEMA.into(),
            name: item.name,
            file: item.path.map(|path| path.display().to_string()),
            size: there.filter(std::fs::Metadata::is_file).map(|there| there.len()),
            to,
        }
    }
}

/// Says it.
///
/// # Errors
/// When there is nothing, or a destination is not known.
pub(super) fn run(
    args: &SendArgs,
    peers: &[Peer],
    screen: &mut Screen<'_>,
) -> Result<Exit, Failure> {
    let known = |name: &String| name == "*" || peers.iter().any(|p| p.known && p.name == *name);
    if let Some(unknown) = args.to.iter().find(|name| !known(name)) {
        let message = format!("{unknown} is not a known peer (unknown_destination)");
        let help = words::meant(&args.to, peers);
        return Err(Failure::new(Exit::Failed, "CN0614", message).help(help));
    }
    let (mut things, mut bytes, mut failed) = (0, 0_u64, 0);
    for found in Walk::new(&args.paths, args.name.clone()) {
        match found {
            Found::Skipped(why) => screen.note(&why),
            Found::Failed(failure) => {
                failed += 1;
                screen.failure(&failure);
            }
            Found::Item(item) => {
                let would = WouldSend::of(item, &args.to);
                things += 1;
                bytes = bytes.saturating_add(would.size.unwrap_or(0));
                if screen.is_json() {
                    screen.object(&would)?;
                } else {
                    let size = would.size.map_or_else(|| "of unknown size".into(), human::bytes);
                    screen.line(&format!("{}  {size}", would.name));
                }
            }
        }
    }
    if things + failed == 0 {
        return Err(Failure::new(Exit::NoMatch, "CN0623", "there is nothing to send"));
    }
    let whom = if args.to.is_empty() { "every known peer".into() } else { args.to.join(", ") };
    let (count, bytes) = (human::count(things, "segment"), human::bytes(bytes));
    screen.note(&format!("Would send {count} ({bytes}) to {whom}. Nothing was sent."));
    Ok(match (things, failed) {
        (_, 0) => Exit::Done,
        (0, _) => Exit::Failed,
        _ => Exit::Partly,
    })
}
