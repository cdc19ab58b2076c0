//! `consign peers`: who they are, and what an operator can do about them.

pub(crate) mod export;
pub(crate) mod import;
mod pending;
mod ping;

use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Subcommand};

use super::acts;
use super::complete;
use super::screen::{Screen, standard};
use crate::admin::acts::{ActRequest, Acted};
use crate::admin::shapes::{Count, Peer, Peers};
use crate::cli::Trouble;
use crate::client::Api;
use crate::config::Faults;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};
use crate::tls::identity::shown_pin;

/// Lists peers, holds them, ends their backoff, forgets them, gives them a new pin.
#[derive(Subcommand, Clone, Debug)]
pub enum PeersCommand {
    /// Lists them
    Ls(LsArgs),
    /// Says whether a peer answers over its session, and how fast; exit 1 when it does not
    Ping(ping::PingArgs),
    /// Sends nothing to a peer until `release`; also after a restart
    Hold(PeerArgs),
    /// Sends to a held peer again
    Release(PeerArgs),
    /// Ends a peer's backoff: it is dialled now
    Flush(PeerArgs),
    /// Gives up everything that is owed to a peer which is no longer configured
    Forget(ForgetArgs),
    /// Accepts that a peer has another pin than the one it is known by
    Rekey(RekeyArgs),
    /// Prints peers of the configuration for another site: its sections, or cards
    Export(export::ExportArgs),
    /// Adds peers to the configuration: from cards, or from another site's sections; all of them or none
    Import(import::ImportArgs),
}

/// Which peers are listed.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct LsArgs {
    /// Sites instead that knocked since the start and are not known, who knocked last first: signed by an authority of
    /// `tls.ca`, and not among the peers or with another pin
    #[arg(long)]
    pending: bool,
}

/// A peer.
#[derive(Args, Clone, Debug, Default)]
pub struct PeerArgs {
    /// Its name
    #[arg(value_name = "PEER", add = complete::peers())]
    pub peer: String,
    /// Says what would be done, and changes nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Why: goes into the audit
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub why: String,
}

/// A peer to forget.
#[derive(Args, Clone, Debug, Default)]
pub struct ForgetArgs {
    #[command(flatten)]
    peer: PeerArgs,
    /// Without asking
    #[arg(short, long)]
    yes: bool,
}

/// A peer with a new pin.
#[derive(Args, Clone, Debug, Default)]
pub struct RekeyArgs {
    #[command(flatten)]
    peer: PeerArgs,
    /// Its SHA-256 fingerprint [default: the one in the configuration]
    #[arg(long, value_name = "FINGERPRINT")]
    pin: Option<String>,
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses, or a `forget` is not confirmed.
pub fn run(
    command: PeersCommand,
    global: &Global,
    socket: impl FnOnce() -> Result<PathBuf, Faults>,
) -> Result<Exit, Trouble> {
    standard(global, |screen| match &command {
        PeersCommand::Export(args) => export::run(args, global, screen),
        PeersCommand::Import(args) => import::run(args, global, screen),
        _ => Ok(asked(command, &mut Api::new(&socket()?), screen)?),
    })
}

/// What the running site knows and does.
fn asked(command: PeersCommand, api: &mut Api, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    match command {
        PeersCommand::Export(_) | PeersCommand::Import(_) => {
            unreachable!("they ask no running site")
        }
        PeersCommand::Ping(args) => ping::run(&args, api, screen),
        PeersCommand::Ls(LsArgs { pending: true }) => pending::list(api, screen, SystemTime::now()),
        PeersCommand::Ls(_) => list(api, screen, SystemTime::now()),
        PeersCommand::Hold(args) => change(&request("hold_peer", &args), api, screen),
        PeersCommand::Release(args) => change(&request("release_peer", &args), api, screen),
        PeersCommand::Flush(args) => change(&request("flush", &args), api, screen),
        PeersCommand::Forget(args) => {
            let request = request("forget", &args.peer);
            if !args.yes && !request.dry_run {
                acts::confirm(api, &request, "forget", screen)?;
            }
            change(&request, api, screen)
        }
        PeersCommand::Rekey(args) => {
            let request = ActRequest { pin: args.pin, ..request("rekey", &args.peer) };
            change(&request, api, screen)
        }
    }
}

fn request(action: &str, args: &PeerArgs) -> ActRequest {
    ActRequest {
        action: action.into(),
        peer: Some(args.peer.clone()),
        why: args.why.clone(),
        dry_run: args.dry_run,
        ..ActRequest::default()
    }
}

fn change(request: &ActRequest, api: &mut Api, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let acted = acts::act(api, request, screen)?;
    if request.action == "forget" && acted.count > 0 {
        return acts::told(&acted, screen);
    }
    if screen.is_json() {
        screen.object(&acted)?;
    } else {
        let peer = request.peer.as_deref().unwrap_or_default();
        screen.line(&sentence(&acted, peer));
        if acted.action == "rekey" && acted.count == 0 {
            // The pin of the ledger is that of the configuration: if the peer shows another, the latter is wrong.
            let peers: Peers = api.json("GET", "/v1/peers")?;
            let shown = peers.peers.iter().find(|p| p.name == *peer);
            if let Some(help) = shown.and_then(|shown| repin(peer, &shown.last_error)) {
                screen.note(&help);
            }
        }
    }
    Ok(if acted.left_count > 0 { Exit::Failed } else { Exit::Done })
}

fn sentence(acted: &Acted, peer: &str) -> String {
    let changes = acted.count > 0;
    if acted.dry_run && changes {
        return format!("Would {} {peer}. Nothing changed.", acted.action.replace("_peer", ""));
    }
    match (acted.action.as_str(), changes) {
        ("hold_peer", true) => {
            format!("{peer} is held: nothing is sent to it until it is released")
        }
        ("hold_peer", false) => format!("{peer} is held already"),
        ("release_peer", true) => format!("{peer} is sent to again"),
        ("release_peer", false) => format!("{peer} is not held"),
        ("flush", _) => format!("{peer} is dialled now"),
        ("rekey", true) => format!("{peer} is known by its new pin"),
        ("rekey", false) => format!("{peer} has that pin already"),
        ("forget", _) => format!("{peer} is forgotten; nothing was owed to it"),
        (action, _) => format!("{action} {peer}"),
    }
}

/// What to do about a peer that shows another certificate than the pinned one; `None` when its last error is
/// something else.
pub(super) fn repin(peer: &str, last_error: &str) -> Option<String> {
    let shown = shown_pin(last_error)?;
    Some(format!(
        "it showed {shown}: if that is its certificate (`consign cert show` at {peer}), correct `fingerprint` of \
         [[relay.known_peers]] {peer} to it, then: consign reload"
    ))
}

fn list(api: &mut Api, screen: &mut Screen<'_>, now: SystemTime) -> Result<Exit, Failure> {
    let peers: Peers = api.json("GET", "/v1/peers")?;
    if screen.is_json() {
        screen.object(&peers)?;
    } else if peers.peers.is_empty() {
        screen.note("no peers");
    } else {
        let rows: Vec<_> = peers.peers.iter().map(|peer| row(peer, now)).collect();
        screen.line(human::table(&HEAD, &rows).trim_end());
    }
    Ok(Exit::Done)
}

const HEAD: [(&str, Align); 8] = [
    ("PEER", Align::Left),
    ("ADDRESS", Align::Left),
    ("STATE", Align::Left),
    ("OWED", Align::Left),
    ("DEAD", Align::Right),
    ("DELIVERED", Align::Right),
    ("LAST DELIVERY", Align::Left),
    ("LAST ERROR", Align::Left),
];

fn row(peer: &Peer, now: SystemTime) -> Vec<String> {
    let link = if peer.up { "up" } else { "down" };
    let state = match peer {
        Peer { known: false, via, .. } if via.is_empty() => "not configured".into(),
        Peer { known: false, via, held, .. } => {
            let held = if *held { ", held" } else { "" };
            format!("via {via}{held}")
        }
        Peer { needs_rekey: true, .. } => "needs rekey".into(),
        Peer { held: true, .. } => format!("{link}, held"),
        _ => link.into(),
    };
    let owed = [peer.queued, peer.backing_off, peer.sending];
    let owed = Count {
        count: owed.iter().map(|c| c.count).sum(),
        bytes: owed.iter().map(|c| c.bytes).sum(),
    };
    vec![
        peer.name.clone(),
        peer.address.clone(),
        state,
        match owed.count {
            0 => "0".into(),
            n => format!("{n} ({})", human::bytes(owed.bytes)),
        },
        peer.dead.count.to_string(),
        peer.delivered.count.to_string(),
        peer.last_delivered.as_ref().map(|at| human::ago(at, now)).unwrap_or_default(),
        last_error(peer, now),
    ]
}

/// The last trouble with a peer. While it is connected, what is going on now may be well: how old that is tells.
pub(super) fn last_error(peer: &Peer, now: SystemTime) -> String {
    let at = peer.last_error_at.as_ref().filter(|_| peer.up && !peer.last_error.is_empty());
    match at {
        Some(at) => format!("{} ({})", peer.last_error, human::ago(at, now)),
        None => peer.last_error.clone(),
    }
}

#[cfg(test)]
mod tests;
