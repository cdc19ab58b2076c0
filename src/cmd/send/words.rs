//! The words of `send`: queued, already queued, already delivered, delivered, dead.

use std::time::{Duration, SystemTime};

use crate::admin::shapes::{Accepted, Peer, Segment, Status};
use crate::cmd::ls::short;
use crate::human;

/// The line for a submission. `waits` says that the command goes on to wait for it.
pub(super) fn accepted(accepted: &Accepted, waits: bool, peers: &[Peer]) -> String {
    let (word, names, rest) = if accepted.new || !accepted.added.is_empty() {
        ("Queued", &accepted.added, "for")
    } else if !accepted.queued.is_empty() {
        ("Already queued", &accepted.queued, "for")
    } else if !accepted.dead.is_empty() {
        ("Dead", &accepted.dead, "for")
    } else {
        ("Already delivered", &accepted.delivered, "to")
    };
    let who = match (names.as_slice(), peers) {
        ([], []) => "nobody yet".into(),
        ([], _) => "this site only".into(),
        (names, _) => names.join(", "),
    };
    let (id, size) = (short(&accepted.id), human::bytes(accepted.size));
    let mut line = format!("{word:<9} {id}  {}  {size}  {rest} {who}", accepted.name);
    let mut notes = Vec::new();
    match (word, waits) {
        ("Queued" | "Already queued", true) => {
            notes.push("safe on disk; Ctrl-C stops only the waiting".to_string());
        }
        ("Queued" | "Already queued", false) => notes.push("safe on disk".into()),
        ("Dead", _) => {
            let first = names.first().map_or("", String::as_str);
            notes.push(format!(
                "given up for {first}; `consign show {id}` says why, --again sends it anew"
            ));
        }
        _ => {}
    }
    if word != "Already queued" && !accepted.queued.is_empty() {
        notes.push(format!("already queued for {}", accepted.queued.join(", ")));
    }
    if word != "Already delivered" && !accepted.delivered.is_empty() {
        notes.push(format!("already delivered to {}", accepted.delivered.join(", ")));
    }
    if word != "Dead" && !accepted.dead.is_empty() {
        notes.push(format!("given up for {}", accepted.dead.join(", ")));
    }
    if accepted.raised {
        notes.push("worth delivering longer than before".into());
    }
    if names.is_empty() && peers.is_empty() && word == "Queued" {
        notes.push("this site knows no peer yet; it goes to those it will know".into());
    }
    if word == "Queued" || word == "Already queued" {
        notes.extend(held(names, peers));
        notes.extend(down(names, peers));
    }
    if !notes.is_empty() {
        line.push_str(&format!("  ({})", notes.join("; ")));
    }
    line
}

/// `gamma is held; on with: consign peers release gamma`, also where it is held further on the way there.
fn held(names: &[String], peers: &[Peer]) -> Vec<String> {
    let find = |name: &str| peers.iter().find(|peer| peer.name == name);
    let of = |name: &String| {
        let peer = find(name)?;
        [Some(peer), find(&peer.via)].into_iter().flatten().find(|peer| peer.held)
    };
    let said = |peer: &Peer| format!("{0} is held; on with: consign peers release {0}", peer.name);
    names.iter().filter_map(of).map(said).collect()
}

/// `beta is down; next try in 4 s` for those that cannot be reached now.
fn down(names: &[String], peers: &[Peer]) -> Vec<String> {
    let now = SystemTime::now();
    // Who is reached by way of another has no link of its own.
    let down = |peer: &&Peer| !peer.up && peer.via.is_empty();
    let of = |name: &String| peers.iter().filter(down).find(|peer| peer.name == *name);
    names
        .iter()
        .filter_map(of)
        .map(|peer| match &peer.retry_at {
            Some(at) => format!("{} is down; next try {}", peer.name, human::until(at, now)),
            None => format!("{} is down", peer.name),
        })
        .collect()
}

/// What helps somebody who named a peer that the site does not know: it may be in a part of the file that waits.
pub(super) fn unknown(to: &[String], status: &Status) -> String {
    let meant = meant(to, &status.peers);
    if status.reload.restart.iter().any(|key| key == "route") {
        return format!(
            "[[route]] was changed, which holds after a restart: `consign stop`, then `consign serve`; {meant}"
        );
    }
    meant
}

/// Which peers there are, for somebody who named one that there is not.
pub(super) fn meant(to: &[String], peers: &[Peer]) -> String {
    let known: Vec<&Peer> = peers.iter().filter(|peer| peer.known).collect();
    let unknown = || to.iter().filter(|name| !known.iter().any(|peer| peer.name == **name));
    if let Some(gone) = unknown().find(|name| peers.iter().any(|peer| peer.name == **name)) {
        return format!(
            "{gone} was taken out of relay.known_peers; add it there again to send to it"
        );
    }
    let near = unknown()
        .flat_map(|name| known.iter().map(move |p| (strsim::damerau_levenshtein(name, &p.name), p)))
        .filter(|(distance, peer)| *distance <= peer.name.chars().count().div_ceil(3))
        .min_by_key(|(distance, _)| *distance);
    match (near, known.as_slice()) {
        (Some((_, peer)), _) => format!("a peer with a similar name exists: {}", peer.name),
        (None, []) => {
            "this site has no peers; add them under relay.known_peers, or a [[route]]".into()
        }
        (None, known) => {
            let names: Vec<&str> = known.iter().take(20).map(|p| p.name.as_str()).collect();
            format!("known peers and routes: {}", names.join(", "))
        }
    }
}

/// The line for a segment that has arrived. What was here before counts from when it was handed in again.
pub(super) fn delivered(segment: &Segment, peers: &[String], handed: Option<SystemTime>) -> String {
    let id = short(&segment.id);
    let from = handed.or_else(|| human::moment(&segment.accepted_at));
    let took = |since: &str| human::moment(since)?.duration_since(from?).ok();
    let last = segment
        .deliveries
        .iter()
        .filter(|d| peers.contains(&d.peer))
        .filter_map(|d| took(&d.since))
        .max()
        .unwrap_or(Duration::ZERO);
    let (who, time) = (peers.join(", "), human::duration(last));
    format!("Delivered {id}  to {who} in {time}  (receipt: consign show {id})")
}

/// The line for a segment that was given up for somebody.
pub(super) fn dead(segment: &Segment, peer: &str) -> String {
    let id = short(&segment.id);
    let delivery = segment.deliveries.iter().find(|d| d.peer == peer);
    let why = delivery.and_then(|d| d.last_error.as_deref()).unwrap_or("no reason is recorded");
    let attempts = human::count(delivery.map_or(0, |d| d.attempts), "attempt");
    format!("Dead      {id}  for {peer} after {attempts}: {why}  (consign show {id})")
}

/// The line for a segment that has not arrived when the wait is over.
pub(super) fn still_queued(segment: &Segment, peers: &[String]) -> String {
    let id = short(&segment.id);
    let states: Vec<String> = segment
        .deliveries
        .iter()
        .filter(|d| peers.contains(&d.peer))
        .map(|d| match &d.last_error {
            Some(error) => format!("{}: {}, {error}", d.peer, d.state),
            None => format!("{}: {}", d.peer, d.state),
        })
        .collect();
    let states = if states.is_empty() { "no peer is known yet".into() } else { states.join("; ") };
    format!("Queued    {id}  still, when the wait ran out  ({states})")
}

#[cfg(test)]
mod tests;
