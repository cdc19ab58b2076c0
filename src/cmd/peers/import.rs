//! `consign peers import`: makes the peers of a card, or of another configuration, known to this site.
//!
//! All of them or none: what clashes with what is known already is for a person to decide.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::export::{SECTION, authorities};
use crate::cli::{self, Trouble};
use crate::cmd::init::Card;
use crate::cmd::screen::Screen;
use crate::config::template::Peer;
use crate::config::{self, Settings};
use crate::exit::{Exit, Failure, Global};

/// Most bytes that are read: more peers than a site can have sessions with.
const LARGEST: u64 = 1 << 20;

/// Peers to make known.
#[derive(Args, Clone, Debug)]
pub struct ImportArgs {
    /// File with cards, one a line, or with [[relay.known_peers]] sections, as `peers export` prints them; - is standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Says what would be done, and changes nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// What became of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// `consign.peers_imported/1`
    pub schema: String,
    /// The configuration.
    pub file: String,
    /// Whether nothing was changed, however it went.
    pub dry_run: bool,
    /// Names of peers that are in it from now on.
    pub added: Vec<String>,
    /// Names of peers that were in it just like that.
    pub known: Vec<String>,
    /// Names that were left out: this site itself.
    pub left_out: Vec<String>,
}

impl Imported {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.peers_imported/1";
}

/// A peer of the input.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given {
    pub(super) name: String,
    pub(super) address: String,
    /// The section that makes it known.
    lines: String,
    /// Everything that the section says; a card says no more than name and address.
    says: Option<toml::Table>,
}

/// Reads, compares and adds.
pub(super) fn run(
    args: &ImportArgs,
    global: &Global,
    screen: &mut Screen<'_>,
) -> Result<Exit, Trouble> {
    let named = cli::file(global)?;
    // A link to the file stays one.
    let file = named.canonicalize().unwrap_or_else(|_| named.clone());
    let (text, layers) = (config::read(&file)?, cli::layers(&[]));
    let settings = config::parse(&file, &text, &layers)?;
    let given = read(&input(&args.file)?, || authorities(&settings))?;
    let has = sections(&text).unwrap_or_default();
    let (mut report, new) = compare(&settings, &has, &given)?;
    report.file = named.display().to_string();
    report.dry_run = args.dry_run;
    if !new.is_empty() {
        let lines: Vec<&str> = new.iter().map(|given| given.lines.as_str()).collect();
        let whole = format!("{}\n\n{}", text.trim_end(), lines.join("\n"));
        let not = |why: String| {
            let message = format!("{} was not changed: {why}", report.file);
            Failure::new(Exit::Failed, "CN0584", message)
        };
        config::parse(&file, &whole, &layers).map_err(|faults| not(faults.failure().message))?;
        if !args.dry_run {
            config::replace(&file, &whole).map_err(|e| not(e.to_string()))?;
        }
    }
    tell(&report, &new, screen)?;
    Ok(Exit::Done)
}

fn tell(report: &Imported, new: &[&Given], screen: &mut Screen<'_>) -> Result<(), Failure> {
    if screen.is_json() {
        return screen.object(report);
    }
    let verb = if report.dry_run { "Would add" } else { "Added" };
    for Given { name, address, .. } in new {
        screen.line(&format!("{verb} {name} at {address}"));
    }
    for name in &report.known {
        screen.line(&format!("{name} is known just like that"));
    }
    for name in &report.left_out {
        screen.line(&format!("{name} is this site itself"));
    }
    match (new.is_empty(), report.dry_run) {
        (true, _) => screen.note("there is nothing to add"),
        (false, true) => screen.note("Nothing changed."),
        (false, false) => screen.note("The site that runs learns of it by: consign reload"),
    }
    Ok(())
}

fn input(file: &Path) -> Result<String, Failure> {
    let no = |why: String| Failure::new(Exit::Failed, "CN0581", why);
    let name =
        if file == Path::new("-") { "standard input".into() } else { file.display().to_string() };
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes).map(|_| ())
    } else {
        crate::plain::read(file).map(|read| bytes = read)
    };
    read.map_err(|e| no(format!("{name} cannot be read: {e}")))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > LARGEST) {
        return Err(no(format!("{name} has more than {LARGEST} bytes: it is no list of peers")));
    }
    String::from_utf8(bytes).map_err(|_| no(format!("{name} is no text")))
}

/// Takes cards or sections apart; `believed` tells whom this site believes, and is asked for cards only.
pub(super) fn read(
    text: &str,
    believed: impl Fn() -> Result<Vec<String>, Failure>,
) -> Result<Vec<Given>, Failure> {
    let lines = || text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let given = match lines().next() {
        Some(first) if first.starts_with("consign:") => {
            let cards: Vec<Card> = lines().map(str::parse).collect::<Result<_, _>>()?;
            let believed = believed()?;
            cards.into_iter().map(|card| of_card(card, &believed)).collect::<Result<_, _>>()?
        }
        _ => sections(text)?,
    };
    if given.is_empty() {
        return Err(unreadable("there is no peer in it".into()));
    }
    Ok(given)
}

fn of_card(card: Card, believed: &[String]) -> Result<Given, Failure> {
    let Card { name, address, authority } = card;
    if !believed.contains(&authority) {
        let message =
            format!("the card of {name} names the authority {authority}, which is not in tls.ca");
        let help = "put that authority's certificate into tls.ca first, or have this site signed by it: \
                    consign cert request";
        return Err(Failure::new(Exit::Failed, "CN0582", message).help(help));
    }
    let lines = Peer { name: name.clone(), address: address.clone() }.lines();
    Ok(Given { name, address, lines, says: None })
}

fn unreadable(why: String) -> Failure {
    let help = format!(
        "cards, one a line, or [[{SECTION}]] sections, as `consign peers export` prints them"
    );
    Failure::new(Exit::Failed, "CN0581", format!("this cannot be taken as peers: {why}")).help(help)
}

/// The sections of peers in a text that has nothing else, or in a whole configuration.
fn sections(text: &str) -> Result<Vec<Given>, Failure> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map(|span| text[..span.start].lines().count().max(1));
        let at = line.map_or(String::new(), |line| format!(" in line {line}"));
        unreadable(format!("{}{at}", e.message()))
    })?;
    let peers = table.get("relay").and_then(|relay| relay.get("known_peers"));
    let peers = peers.and_then(toml::Value::as_array).cloned().unwrap_or_default();
    peers.into_iter().map(of_section).collect()
}

fn of_section(value: toml::Value) -> Result<Given, Failure> {
    let toml::Value::Table(says) = value else {
        return Err(unreadable(format!("{SECTION} is not made of sections")));
    };
    let word = |key: &str| {
        let text = says.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        text.ok_or_else(|| unreadable(format!("a section without `{key}`")))
    };
    let (name, address) = (word("name")?, word("address")?);
    let mut lines = format!("[[{SECTION}]]\n");
    // In the order people expect: the name first.
    let (first, rest): (Vec<_>, Vec<_>) =
        says.iter().partition(|(key, _)| ["name", "address"].contains(&key.as_str()));
    for (key, value) in first.into_iter().rev().chain(rest) {
        lines.push_str(&format!("{key} = {value}\n"));
    }
    Ok(Given { name, address, lines, says: Some(says) })
}

/// What is new; everything that clashes is named in one failure.
pub(super) fn compare<'g>(
    settings: &Settings,
    has: &[Given],
    given: &'g [Given],
) -> Result<(Imported, Vec<&'g Given>), Failure> {
    let mut report = Imported { schema: Imported::SCHEMA.into(), ..Imported::default() };
    let (mut new, mut clashes): (Vec<&Given>, Vec<String>) = (Vec::new(), Vec::new());
    for peer in given {
        let Given { name, address, says, .. } = peer;
        if *name == settings.node.name {
            report.left_out.push(name.clone());
            continue;
        }
        let known = has.iter().chain(new.iter().copied()).find(|known| known.name == *name);
        let other =
            || has.iter().chain(new.iter().copied()).find(|known| known.address == *address);
        match known {
            Some(known) if known.address != *address => {
                let at = &known.address;
                clashes.push(format!("{name} is known at {at}, and comes with {address}"));
            }
            Some(known) if says.is_some() && *says != known.says => {
                clashes
                    .push(format!("{name} is known with other keys: {}", differing(known, peer)));
            }
            Some(_) => report.known.push(name.clone()),
            None => match other() {
                Some(other) => clashes.push(format!("{name} has the address of {}", other.name)),
                None => new.push(peer),
            },
        }
    }
    if clashes.is_empty() {
        report.added = new.iter().map(|given| given.name.clone()).collect();
        return Ok((report, new));
    }
    let message = format!("nothing was changed: {}", clashes.join("; "));
    let help = format!(
        "change or remove these in [[{SECTION}]] first, or leave them out: consign peers export NAME…"
    );
    Err(Failure::new(Exit::Failed, "CN0580", message).help(help))
}

/// Keys that two sections of one peer disagree about.
fn differing(known: &Given, given: &Given) -> String {
    let none = toml::Table::new();
    let (a, b) = (known.says.as_ref().unwrap_or(&none), given.says.as_ref().unwrap_or(&none));
    let mut keys: Vec<&str> = a.keys().chain(b.keys()).map(String::as_str).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| a.get(*key) != b.get(*key));
    keys.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::init::{self as make, InitArgs};
    use crate::cmd::peers::export::{self, ExportArgs};
    use crate::cmd::screen::{Said, said};
    use crate::config::Layers;

    const BETA: &str = "[[relay.known_peers]]\nname = \"beta\"\naddress = \"beta.example:7400\"\n\
                        rate_limit = \"20MiB\"\nwindow = [\"Mon-Fri 22:00-06:00\"]\n";
    const GAMMA: &str =
        "[[relay.known_peers]]\nname = \"gamma\"\naddress = \"gamma.example:7400\"\n";

    struct Place {
        root: tempfile::TempDir,
        global: Global,
    }

    impl Place {
        /// A site alpha that knows beta.
        fn new() -> Place {
            let root = tempfile::tempdir().unwrap();
            let dir = root.path().join("alpha");
            let listen = Some("127.0.0.1:7400".parse().unwrap());
            make::make(&InitArgs { dir: Some(dir.clone()), listen, ..InitArgs::default() })
                .unwrap();
            let config = dir.join("consign.toml");
            let text = std::fs::read_to_string(&config).unwrap();
            std::fs::write(&config, format!("{text}\n{BETA}")).unwrap();
            Place { root, global: Global { config: Some(config), ..Global::default() } }
        }

        fn text(&self) -> String {
            std::fs::read_to_string(self.global.config.as_ref().unwrap()).unwrap()
        }

        fn import(&self, text: &str, dry_run: bool) -> (Result<Exit, Failure>, Said) {
            let file = self.root.path().join("peers");
            std::fs::write(&file, text).unwrap();
            let args = ImportArgs { file, dry_run };
            let (ended, heard) = said(false, |screen| run(&args, &self.global, screen));
            (ended.map_err(failure), heard)
        }

        fn export(&self, names: &[&str], cards: bool) -> Result<Vec<String>, Failure> {
            let names = names.iter().map(ToString::to_string).collect();
            let args = ExportArgs::of(names, cards);
            let (ended, heard) = said(false, |s| export::run(&args, &self.global, s));
            ended.map_err(failure)?;
            Ok(heard.lines)
        }
    }

    fn failure(trouble: Trouble) -> Failure {
        match trouble {
            Trouble::Failure(failure) => failure,
            Trouble::Faults(faults) => faults.failure(),
        }
    }

    #[test]
    fn what_one_site_exports_another_takes_as_it_is() {
        let (from, to) = (Place::new(), Place::new());
        assert_eq!(from.export(&[], false).unwrap(), [BETA.trim_end()]);
        let (ended, heard) = from.import(GAMMA, false);
        assert_eq!(ended, Ok(Exit::Done), "{heard:?}");
        assert_eq!(heard.lines, ["Added gamma at gamma.example:7400"]);
        assert!(heard.notes[0].contains("consign reload"), "{heard:?}");
        let both = from.export(&[], false).unwrap().join("\n");
        // Only looking changes nothing; what is known already is no clash.
        let before = to.text();
        let (ended, heard) = to.import(&both, true);
        assert_eq!(ended, Ok(Exit::Done));
        assert_eq!(
            heard.lines,
            ["Would add gamma at gamma.example:7400", "beta is known just like that"]
        );
        assert_eq!(to.text(), before);
        assert_eq!(to.import(&both, false).0, Ok(Exit::Done));
        assert_eq!(to.text(), format!("{}\n\n{GAMMA}", before.trim_end()));
        let file = to.global.config.clone().unwrap();
        let settings = config::load(&file, &Layers::default()).unwrap();
        assert_eq!(settings.node.peers.len(), 2);
        let (_, heard) = to.import(&both, false);
        assert_eq!(heard.notes, ["there is nothing to add"]);
    }

    #[test]
    fn cards_are_taken_from_those_who_are_signed_by_an_authority_that_is_believed() {
        let place = Place::new();
        let cards = place.export(&["beta", "alpha"], true).unwrap();
        assert!(cards[0].starts_with("consign:beta@beta.example:7400#sha256:"), "{cards:?}");
        assert!(cards[1].starts_with("consign:alpha@127.0.0.1:7400#sha256:"), "{cards:?}");
        let gamma = cards[0].replace("beta", "gamma");
        let (ended, heard) = place.import(&format!("# mine\n{gamma}\n\n{}\n", cards[1]), false);
        assert_eq!(ended, Ok(Exit::Done));
        assert_eq!(heard.lines, ["Added gamma at gamma.example:7400", "alpha is this site itself"]);
        assert!(place.text().ends_with(GAMMA), "{}", place.text());
        let stranger = Place::new();
        let refused = stranger.import(&gamma, false).0.unwrap_err();
        assert_eq!(refused.code, "CN0582");
        assert!(refused.message.contains("which is not in tls.ca"), "{refused}");
        assert_eq!(place.export(&["delta"], false).unwrap_err().code, "CN0583");
    }

    #[test]
    fn a_clash_takes_nothing_and_names_all_of_them() {
        let place = Place::new();
        let before = place.text();
        let elsewhere = BETA.replace("beta.example", "b2.example");
        let twin = GAMMA.replace("gamma.example", "beta.example");
        let refused = place.import(&format!("{elsewhere}\n{twin}\n"), false).0.unwrap_err();
        assert_eq!((refused.code, refused.exit), ("CN0580", Exit::Failed));
        let expected = "nothing was changed: beta is known at beta.example:7400, and comes with \
                        b2.example:7400; gamma has the address of beta";
        assert_eq!(refused.message, expected);
        let slower =
            BETA.replace("20MiB", "10MiB").replace("window", "inbound_quota = \"1GiB\"\nwindow");
        let refused = place.import(&slower, false).0.unwrap_err();
        assert!(refused.message.ends_with("other keys: inbound_quota, rate_limit"), "{refused}");
        // The same peer twice in one input clashes with itself.
        let twice = format!("{GAMMA}{}", GAMMA.replace("gamma.example", "g2.example"));
        assert_eq!(place.import(&twice, false).0.unwrap_err().code, "CN0580");
        assert_eq!(place.text(), before);
    }

    #[test]
    fn what_is_no_list_of_peers_is_refused_and_changes_nothing() {
        let place = Place::new();
        let before = place.text();
        let cases = [
            ("", "CN0581", "there is no peer in it"),
            ("[node]\nname = \"x\"\n", "CN0581", "there is no peer in it"),
            ("[[relay.known_peers]\n", "CN0581", "in line 1"),
            ("[[relay.known_peers]]\nname = \"x\"\n", "CN0581", "without `address`"),
            ("consign:x@y\n", "CN0002", "a part is missing"),
            (&GAMMA.replace(":7400", ""), "CN0584", "was not changed: `relay.known_peers.address`"),
            (&format!("{GAMMA}rate = \"1MiB\"\n"), "CN0584", "unknown key `rate`"),
        ];
        for (text, code, words) in cases {
            let refused = place.import(text, false).0.unwrap_err();
            assert_eq!(refused.code, code, "{text}: {refused}");
            assert!(refused.message.contains(words), "{refused}");
        }
        assert_eq!(place.text(), before);
    }
}
