//! `consign node`: a node that picks shards up from a relay.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use consign_core::ledger::keys_pickup::is_node_id;
use serde::Serialize;

use super::screen::{Screen, standard};
use crate::cli::Trouble;
use crate::daemon::signals;
use crate::exit::{Exit, Failure, Global};
use crate::human;
use crate::pickup::node::config::{self, NodeConfig};
use crate::pickup::node::give::Given;
use crate::pickup::node::{Kept, Node, Stop, Tell};
use crate::pickup::url::Relay;

/// Picks shards up from a relay.
#[derive(Subcommand, Clone, Debug)]
pub enum NodeCommand {
    /// Makes a node: its key, its configuration, and the line for the relay's operator
    Init(InitArgs),
    /// Registers, fetches, verifies and keeps shards, until SIGTERM or Ctrl-C
    Run(RunArgs),
}

/// A node to be made.
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    /// Its directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Its id
    #[arg(long, value_name = "ID", value_parser = id)]
    id: String,
    /// Its relay
    #[arg(long, value_name = "URL", value_parser = Relay::parse)]
    relay: Relay,
    /// The authority that signed the relay's certificate; needed for https
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// A node to be run.
#[derive(Args, Clone, Debug, Default)]
pub struct RunArgs {
    /// Its directory [default: the file given with -c]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

fn id(text: &str) -> Result<String, String> {
    let wrong = "it is not 1 to 128 characters of A-Z a-z 0-9 . _ -";
    if is_node_id(text) { Ok(text.into()) } else { Err(wrong.into()) }
}

/// Runs it.
///
/// # Errors
/// When a node cannot be made or started.
pub fn run(command: NodeCommand, global: &Global) -> Result<Exit, Trouble> {
    match command {
        NodeCommand::Init(args) => Ok(standard(global, |screen| init(&args, screen))?),
        NodeCommand::Run(args) => {
            let Some(path) = args.dir.or_else(|| global.config.clone()) else {
                let text = "a node's directory is needed, or its file with -c";
                return Err(Failure::new(Exit::Usage, "CN0002", text).into());
            };
            let config = NodeConfig::read(&path)?;
            let node = Node::open(&config)?;
            let unheard = |e: std::io::Error| {
                Failure::new(Exit::Failed, "CN0514", format!("signals cannot be caught: {e}"))
            };
            let (stop, bell) = Stop::new().map_err(unheard)?;
            signals::on_stop(move || stop.stop()).map_err(unheard)?;
            standard(global, |screen| {
                screen.note(&format!("{} picks up from {}", config.id, config.relay));
                node.run(&bell, &mut |said| tell(said, screen))
            })?;
            Ok(Exit::Done)
        }
    }
}

/// A node that was made, with `--json`.
#[derive(Serialize)]
struct Made<'a> {
    schema: &'static str,
    id: &'a str,
    key: &'a str,
    dir: &'a str,
    enrol: String,
}

fn init(args: &InitArgs, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    if args.relay.tls && args.ca.is_none() {
        let text = format!("{} needs the authority that signed it", args.relay);
        return Err(Failure::new(Exit::Usage, "CN0806", text).help("--ca FILE"));
    }
    let key = config::init(&args.dir, &args.id, &args.relay, args.ca.as_deref())?;
    let enrol = format!("consign pickup nodes enrol {} --key {key}", args.id);
    let dir = super::init::shown(&args.dir);
    if screen.is_json() {
        let dir = args.dir.to_string_lossy();
        let schema = "consign.node_made/1";
        screen.object(&Made { schema, id: &args.id, key: &key, dir: &dir, enrol })?;
    } else {
        screen.note(&format!("Made {dir}: node {} for {}", args.id, args.relay));
        screen.note("At the relay, its operator enrols the key:");
        screen.line(&enrol);
        screen.note(&format!("Then: consign node run {dir}"));
    }
    Ok(Exit::Done)
}

/// A stored shard, with `--json`.
#[derive(Serialize)]
struct Stored<'a> {
    schema: &'static str,
    file_id: &'a str,
    version_number: u64,
    shard_index: u64,
    size: u64,
    #[serde(rename = "sha-256")]
    sha256: &'a str,
    /// Below the node's directory.
    path: &'a str,
    known: bool,
}

fn tell(said: Tell, screen: &mut Screen<'_>) {
    match said {
        Tell::Registered(session, owed) => {
            let owed = human::count(owed, "shard");
            screen.note(&format!("Registered  session {session}, {owed} owed"));
        }
        Tell::Lost(failure, pause) => {
            screen.failure(&failure);
            screen.note(&format!("Again in {}", human::duration(pause)));
        }
        Tell::Stored(kept) => stored(&kept, screen),
        Tell::Failed(failure) => screen.failure(&failure),
        Tell::Given(given) => gave(&given, screen),
    }
}

/// A shard that a rule gave out, with `--json`.
#[derive(Serialize)]
struct GaveOut<'a> {
    schema: &'static str,
    file_id: &'a str,
    version_number: u64,
    shard_index: u64,
    path: &'a str,
}

fn gave(given: &Given, screen: &mut Screen<'_>) {
    if screen.is_json() {
        let object = GaveOut {
            schema: "consign.given/1",
            file_id: &given.file_id,
            version_number: given.version_number,
            shard_index: given.shard_index,
            path: &given.path,
        };
        if let Err(failure) = screen.object(&object) {
            screen.failure(&failure);
        }
        return;
    }
    screen.line(&format!("Gave out  {}", given.path));
}

fn stored(kept: &Kept, screen: &mut Screen<'_>) {
    if screen.is_json() {
        let object = Stored {
            schema: "consign.stored/1",
            file_id: &kept.file_id,
            version_number: kept.version_number,
            shard_index: kept.shard_index,
            size: kept.size,
            sha256: &kept.sha256,
            path: &kept.path,
            known: kept.known,
        };
        if let Err(failure) = screen.object(&object) {
            screen.failure(&failure);
        }
        return;
    }
    let known = if kept.known { "  (it was here)" } else { "" };
    screen.line(&format!("Stored    {}  {}{known}", kept.path, human::bytes(kept.size)));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cmd::screen::said;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(subcommand)]
        command: NodeCommand,
    }

    #[test]
    fn init_prints_the_line_for_the_operator() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("n");
        let words =
            ["node", "init", at.to_str().unwrap(), "--id", "edge-7", "--relay", "http://r:7410"];
        let NodeCommand::Init(args) = Line::try_parse_from(words).unwrap().command else {
            panic!()
        };
        let (exit, said) = said(false, |screen| init(&args, screen));
        assert_eq!(exit, Ok(Exit::Done));
        let [line] = said.lines.as_slice() else { panic!("{said:?}") };
        let key = line.strip_prefix("consign pickup nodes enrol edge-7 --key ").unwrap();
        assert!(crate::admin::pickup::acts::public_key(key).is_ok());
        let again = crate::cmd::screen::said(true, |screen| init(&args, screen)).0;
        assert_eq!(again.unwrap_err().code, "CN0822");
        let bad = InitArgs { relay: Relay::parse("https://r").unwrap(), ..args };
        let refused = crate::cmd::screen::said(true, |screen| init(&bad, screen)).0;
        assert_eq!(refused.unwrap_err().code, "CN0806");
        for line in ["node init d --id a/b --relay http://r", "node init d --id n", "node"] {
            assert!(Line::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn what_is_stored_is_said_in_one_line() {
        let kept = Kept {
            path: "a%2Fb/3/1".into(),
            file_id: "a/b".into(),
            version_number: 3,
            shard_index: 1,
            size: 2048,
            sha256: "ab".into(),
            known: true,
        };
        let ((), people) = said(false, |s| tell(Tell::Stored(Box::new(kept.clone())), s));
        assert_eq!(people.lines, ["Stored    a%2Fb/3/1  2.0 KiB  (it was here)"]);
        let ((), json) = said(true, |s| tell(Tell::Stored(Box::new(kept)), s));
        let object: serde_json::Value = serde_json::from_str(&json.lines[0]).unwrap();
        assert_eq!((&object["file_id"], &object["known"]), (&"a/b".into(), &true.into()));
    }
}
