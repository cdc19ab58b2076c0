//! `send -n`: what would be sent, and to whom; nothing is read and nothing is handed in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SendArgs;
use super::walk::{Found, Item, Walk};
use super::words;
use crate::admin::shapes::Status;
use crate::cmd::screen::Screen;
use crate::exit::{Exit, Failure};
use crate::human::{self, Align};

/// How a size is called that nobody knows before the end.
const UNKNOWN: &str = "of unknown size";
/// Lines that are laid out together; more are laid out anew.
const ROWS: usize = 1_000;

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
    status: &Status,
    screen: &mut Screen<'_>,
) -> Result<Exit, Failure> {
    let peers = &status.peers;
    let known = |name: &String| name == "*" || peers.iter().any(|p| p.known && p.name == *name);
    if let Some(unknown) = args.to.iter().find(|name| !known(name)) {
        let message = format!("{unknown} is not a known peer (unknown_destination)");
        let help = words::unknown(&args.to, status);
        return Err(Failure::new(Exit::Failed, "CN0614", message).help(help));
    }
    let (mut things, mut bytes, mut failed) = (0, 0_u64, 0);
    let (mut unknown, mut rows) = (0, Vec::new());
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
                unknown += u64::from(would.size.is_none());
                if screen.is_json() {
                    screen.object(&would)?;
                } else {
                    let size = would.size.map_or_else(|| UNKNOWN.into(), human::bytes);
                    rows.push(vec![would.name, size]);
                    if rows.len() == ROWS {
                        lines(&mut rows, screen);
                    }
                }
            }
        }
    }
    lines(&mut rows, screen);
    if things + failed == 0 {
        return Err(Failure::new(Exit::NoMatch, "CN0623", "there is nothing to send"));
    }
    let whom = if args.to.is_empty() { "every known peer".into() } else { args.to.join(", ") };
    let (count, bytes) = (human::count(things, "segment"), sum(bytes, unknown, things));
    screen.note(&format!("Would send {count} ({bytes}) to {whom}. Nothing was sent."));
    Ok(match (things, failed) {
        (_, 0) => Exit::Done,
        (0, _) => Exit::Failed,
        _ => Exit::Partly,
    })
}

/// Says what was gathered, in columns.
fn lines(rows: &mut Vec<Vec<String>>, screen: &mut Screen<'_>) {
    let table = human::table(&[("", Align::Left), ("", Align::Right)], rows);
    // The head has no titles: its line is empty.
    for line in table.lines().skip(1) {
        screen.line(line);
    }
    rows.clear();
}

/// The sum of the sizes that are known, and of how many it is not.
fn sum(bytes: u64, unknown: u64, things: u64) -> String {
    match unknown {
        0 => human::bytes(bytes),
        unknown if unknown == things => UNKNOWN.into(),
        unknown => format!("{} and {unknown} {UNKNOWN}", human::bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::screen::said;

    #[test]
    fn what_has_no_size_yet_is_not_called_empty() {
        assert_eq!(sum(2048, 0, 1), "2.0 KiB");
        assert_eq!(sum(0, 2, 2), "of unknown size");
        assert_eq!(sum(2048, 1, 2), "2.0 KiB and 1 of unknown size");
    }

    #[test]
    fn sizes_stand_below_each_other() {
        let row = |name: &str, size: &str| vec![name.to_owned(), size.to_owned()];
        let mut rows = vec![row("a", "1.0 KiB"), row("longer.bin", "88 B")];
        let ((), said) = said(false, |screen| lines(&mut rows, screen));
        assert_eq!(said.lines, ["a           1.0 KiB", "longer.bin     88 B"]);
        assert!(rows.is_empty());
    }
}
