//! `consign pickup`: shards for nodes that are away, seen from the relay's operator and from a client.

mod clients;
mod nodes;
pub(crate) mod shards;
#[cfg(test)]
mod tests;
mod upload;

use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Subcommand};

use super::screen::{Screen, standard};
use crate::admin::pickup::acts::{PickupActed, PickupRequest};
use crate::cli::Trouble;
use crate::client::{Api, Source};
use crate::config::Faults;
use crate::exit::{Exit, Failure, Global};

/// Shards for nodes that are away: who may upload, who picks up, and how shards stand.
#[derive(Subcommand, Clone, Debug)]
pub enum PickupCommand {
    /// Hands a shard to a relay, which keeps it until its node fetches it
    Upload(upload::UploadArgs),
    /// Lists nodes that pick shards up, enrols and revokes them
    #[command(subcommand)]
    Nodes(nodes::NodesCommand),
    /// Lists clients that may upload, enrols and revokes them
    #[command(subcommand)]
    Clients(clients::ClientsCommand),
    /// Lists shards, shows one, notifies its node anew, gives it up
    #[command(subcommand)]
    Shards(shards::ShardsCommand),
}

/// Why something is done.
#[derive(Args, Clone, Debug, Default)]
pub struct Why {
    /// Why: goes into the audit
    #[arg(long = "why", value_name = "TEXT", default_value = "", hide_default_value = true)]
    text: String,
}

/// Runs it; all but uploads ask the running site at `socket`.
///
/// # Errors
/// When the daemon, or the relay, cannot be reached or refuses.
pub fn run(
    command: PickupCommand,
    global: &Global,
    socket: impl FnOnce() -> Result<PathBuf, Faults>,
) -> Result<Exit, Trouble> {
    let now = SystemTime::now();
    let asks = |run: &dyn Fn(&mut Api, &mut Screen<'_>) -> Result<Exit, Failure>| {
        let mut api = Api::new(&socket()?);
        Ok(standard(global, |screen| run(&mut api, screen))?)
    };
    match command {
        PickupCommand::Upload(args) => Ok(upload::run(&args, global)?),
        PickupCommand::Nodes(command) => {
            asks(&|api, screen| nodes::run(&command, api, screen, now))
        }
        PickupCommand::Clients(command) => {
            asks(&|api, screen| clients::run(&command, api, screen, now))
        }
        PickupCommand::Shards(command) => {
            asks(&|api, screen| shards::run(&command, api, screen, now))
        }
    }
}

/// Has an act done.
pub(super) fn act(
    api: &mut Api,
    action: &str,
    subject: &str,
    why: &Why,
    more: impl FnOnce(&mut PickupRequest),
) -> Result<PickupActed, Failure> {
    let mut request = PickupRequest {
        action: action.into(),
        subject: subject.into(),
        why: why.text.clone(),
        ..PickupRequest::default()
    };
    more(&mut request);
    let body = serde_json::to_vec(&request)
        .map_err(|e| Failure::new(Exit::Failed, "CN0604", e.to_string()))?;
    let mut bytes = body.as_slice();
    let source = Source::Sized(body.len() as u64, &mut bytes);
    api.submit("/v1/pickup/acts", source, &mut |_| {})
}

/// Says what became of an act: in the site's own words, or `done` where it says nothing.
fn told(acted: &PickupActed, done: &str, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    if screen.is_json() {
        screen.object(acted)?;
    } else {
        screen.line(if acted.text.is_empty() { done } else { &acted.text });
    }
    Ok(Exit::Done)
}

/// Reads the id of a node, or the name of a client.
fn name(text: &str) -> Result<String, String> {
    if consign_core::ledger::keys_pickup::is_node_id(text) {
        Ok(text.into())
    } else {
        Err("it is not 1 to 128 characters of A-Z a-z 0-9 . _ -".into())
    }
}
