//! `consign pickup nodes`: who picks shards up.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use consign_core::http::encode_component;

use super::{Why, act, name, told};
use crate::admin::pickup::acts::public_key;
use crate::admin::pickup::lists::{Node, Nodes};
use crate::client::Api;
use crate::cmd::complete;
use crate::cmd::screen::Screen;
use crate::exit::{Exit, Failure};
use crate::human::{self, Align};

/// Lists nodes that pick shards up, enrols and revokes them
#[derive(Subcommand, Clone, Debug)]
pub enum NodesCommand {
    /// Lists them
    Ls,
    /// Lets a node pick shards up; a second key of it may stand beside the first, so that they rotate
    Enrol(EnrolArgs),
    /// Takes a key, or the node, back: its sessions end, its shards stay until their leases end
    Revoke(RevokeArgs),
}

/// A node with a key.
#[derive(Args, Clone, Debug, Default)]
pub struct EnrolArgs {
    /// Its id
    #[arg(value_name = "ID", value_parser = name, add = complete::nodes())]
    id: String,
    /// Its Ed25519 public key: 32 bytes in base64, as `consign node init` prints it
    #[arg(long, value_name = "BASE64", value_parser = key)]
    key: String,
    #[command(flatten)]
    why: Why,
}

/// A node, or one key of it.
#[derive(Args, Clone, Debug, Default)]
pub struct RevokeArgs {
    /// Its id
    #[arg(value_name = "ID", value_parser = name, add = complete::nodes())]
    id: String,
    /// Only this key
    #[arg(long, value_name = "BASE64", value_parser = key)]
    key: Option<String>,
    #[command(flatten)]
    why: Why,
}

fn key(text: &str) -> Result<String, String> {
    public_key(text).map(|_| text.to_owned())
}

pub(super) fn run(
    command: &NodesCommand,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    match command {
        NodesCommand::Ls => list(api, screen, now),
        NodesCommand::Enrol(args) => {
            let acted = act(api, "enrol_node", &args.id, &args.why, |request| {
                request.key = Some(args.key.clone());
            })?;
            let done = match acted.changed {
                true => format!("{} is enrolled", args.id),
                false => format!("{} is enrolled with this key already", args.id),
            };
            told(&acted, &done, screen)
        }
        NodesCommand::Revoke(args) => {
            let acted = act(api, "revoke_node", &args.id, &args.why, |request| {
                request.key = args.key.clone();
            })?;
            let done = match (acted.changed, &args.key) {
                (true, None) => format!("{} is revoked; its sessions end", args.id),
                (true, Some(_)) => format!("this key of {} is revoked", args.id),
                (false, _) => format!("{} was revoked before", args.id),
            };
            told(&acted, &done, screen)
        }
    }
}

fn list(api: &mut Api, screen: &mut Screen<'_>, now: SystemTime) -> Result<Exit, Failure> {
    let (mut after, mut rows): (Option<String>, _) = (None, Vec::new());
    loop {
        let page: Nodes = api.json("GET", &target("nodes", after.as_deref()))?;
        for node in &page.nodes {
            if screen.is_json() {
                screen.object(node)?;
            } else {
                rows.extend(rows_of(node, now));
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if !screen.is_json() {
        match rows.is_empty() {
            true => screen.note("no nodes are enrolled"),
            false => screen.line(human::table(&HEAD, &rows).trim_end()),
        }
    }
    Ok(Exit::Done)
}

/// The next page of nodes or clients.
pub(super) fn target(of: &str, after: Option<&str>) -> String {
    let mut target = format!("/v1/pickup/{of}?limit=500");
    if let Some(after) = after {
        target.push_str("&after=");
        encode_component(after, &mut target);
    }
    target
}

const HEAD: [(&str, Align); 5] = [
    ("NODE", Align::Left),
    ("STATE", Align::Left),
    ("KEY", Align::Left),
    ("ENROLLED", Align::Left),
    ("LAST REGISTERED", Align::Left),
];

/// One row for each key, and one for a node without any.
fn rows_of(node: &Node, now: SystemTime) -> Vec<Vec<String>> {
    let state = if node.revoked_at.is_some() { "revoked" } else { "enrolled" };
    let registered = match &node.registered_at {
        Some(at) => human::ago(at, now),
        None => "never".into(),
    };
    let row = |key: &str, at: &str| {
        let row = [&node.id, state, key, &human::ago(at, now), registered.as_str()];
        row.map(String::from).to_vec()
    };
    match node.keys.is_empty() {
        true => vec![row("", &node.enrolled_at)],
        false => node.keys.iter().map(|key| row(&key.key, &key.enrolled_at)).collect(),
    }
}
