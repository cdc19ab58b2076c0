//! What a delivery waits for, from its segment and the status of the site: pure functions.

use super::{Explanation, Reason, Waiting};
use crate::admin::lists;
use crate::admin::shapes::{Delivery, Peer, Segment, Status};
use crate::codes;
use crate::human;

/// How a segment stands.
pub(super) fn explanation(segment: &Segment, status: &Status) -> Explanation {
    let deliveries: Vec<Waiting> =
        segment.deliveries.iter().map(|delivery| waiting(segment, delivery, status)).collect();
    let open = deliveries.iter().filter(|d| d.state != "delivered").count();
    Explanation {
        schema: Explanation::SCHEMA.into(),
        id: segment.id.clone(),
        name: segment.name.clone(),
        done: open == 0 && !segment.unplaced,
        summary: summary(segment, &deliveries, open),
        deliveries,
    }
}

fn summary(segment: &Segment, deliveries: &[Waiting], open: usize) -> String {
    let dead = deliveries.iter().filter(|d| d.state == "dead").count();
    let all = deliveries.len();
    match (all, open, dead) {
        _ if segment.unplaced => {
            let id = super::super::ls::short(&segment.id);
            format!(
                "{}; it is kept until somebody decides: `consign release {id}` lets it go, `consign send` \
                 gives it to another site",
                super::super::show::UNPLACED
            )
        }
        (0, ..) if segment.here => "it waits for nothing: this site is where it was to go".into(),
        (0, ..) => "it is owed to nobody: no peer was known when it was accepted".into(),
        (_, 0, _) => format!("it waits for nothing: delivered to {}", sites(all)),
        (_, _, 0) => format!("{open} of {} still to be made", deliveries_of(all)),
        (_, _, dead) if dead == open => {
            format!("{dead} of {} given up; nothing happens by itself", deliveries_of(all))
        }
        (_, _, dead) => {
            format!("{open} of {} still to be made, {dead} of them given up", deliveries_of(all))
        }
    }
}

fn sites(count: usize) -> String {
    if count == 1 { "the one site it was for".into() } else { format!("all {count} sites") }
}

fn deliveries_of(count: usize) -> String {
    if count == 1 { "1 delivery".into() } else { format!("{count} deliveries") }
}

fn waiting(segment: &Segment, delivery: &Delivery, status: &Status) -> Waiting {
    let cause = delivery.last_error.as_deref().and_then(codes::cause);
    Waiting {
        peer: delivery.peer.clone(),
        state: delivery.state.clone(),
        attempts: delivery.attempts,
        spent: delivery.spent,
        next_attempt_at: delivery.next_attempt_at.clone(),
        last_error: delivery.last_error.clone(),
        last_error_means: cause.map(|entry| entry.means),
        last_error_text: in_full(delivery, status),
        waits_for: reasons(segment, delivery, status),
    }
}

/// What the peer said when the delivery came to where it is: the site keeps the words of its last trouble alone, and those
/// may be about another segment.
fn in_full(delivery: &Delivery, status: &Status) -> Option<String> {
    let peer = status.peers.iter().find(|peer| peer.name == delivery.peer)?;
    let same = peer.last_error_at.as_ref()? == &delivery.since && delivery.last_error.is_some();
    Some(peer.last_error.clone()).filter(|text| same && !text.is_empty())
}

fn reason(what: &str, text: impl Into<String>, help: impl Into<String>) -> Reason {
    Reason { what: what.into(), text: text.into(), until: None, help: help.into() }
}

fn until(time: &Option<String>, reason: Reason) -> Reason {
    Reason { until: time.clone(), ..reason }
}

fn reasons(segment: &Segment, delivery: &Delivery, status: &Status) -> Vec<Reason> {
    match delivery.state.as_str() {
        "delivered" => Vec::new(),
        "dead" => vec![dead(delivery)],
        "sending" => vec![sending(segment, delivery)],
        _ => held_back(segment, delivery, status),
    }
}

fn dead(delivery: &Delivery) -> Reason {
    let cause = delivery.last_error.as_deref().unwrap_or_default();
    let hint = lists::hint_of(cause, &delivery.peer);
    reason("operator", "an operator's decision: it is a dead letter", hint)
}

fn sending(segment: &Segment, delivery: &Delivery) -> Reason {
    if let Some(hop) = &delivery.custody {
        let text = format!("the receipt of {}: {hop} has it and hands it on", delivery.peer);
        let help = format!("`consign explain {}` at {hop}", super::super::ls::short(&segment.id));
        return reason("receipt", text, help);
    }
    let sent = delivery.sent.unwrap_or(0);
    let percent = sent.saturating_mul(100).checked_div(segment.size).unwrap_or(100).min(100);
    let text = match percent {
        100 => format!("the acknowledgement of {}: all of it is sent", delivery.peer),
        percent => format!("the transfer under way: {percent} % is sent"),
    };
    reason("transfer", text, "")
}

/// Everything that keeps a waiting delivery, those first that only an operator ends.
fn held_back(segment: &Segment, delivery: &Delivery, status: &Status) -> Vec<Reason> {
    let peer = status.peers.iter().find(|peer| peer.name == delivery.peer);
    let hop = peer
        .filter(|p| !p.via.is_empty())
        .map_or(peer, |routed| status.peers.iter().find(|peer| peer.name == routed.via));
    let mut found = Vec::new();
    if segment.held || delivery.state == "held" {
        let help = format!("`consign unhold {}`", super::super::ls::short(&segment.id));
        found.push(reason("held", "an operator: the segment is held", help));
    }
    if peer.is_none_or(|peer| !peer.known) {
        let name = &delivery.peer;
        let text = format!("{name} to be known again: it is in no configuration and on no route");
        let help = format!("add {name} to relay.known_peers, or `consign peers forget {name}`");
        found.push(reason("peer_unknown", text, help));
        return found;
    }
    // The same site is not looked at twice when it is its own hop.
    let routed = peer.filter(|peer| hop.is_some_and(|hop| hop.name != peer.name));
    found.extend(routed.and_then(peer_held));
    found.extend(hop.into_iter().flat_map(of_link));
    if status.stopping {
        found.push(reason(
            "stopping",
            "this site is stopping: it goes on after the next start",
            "",
        ));
    }
    if delivery.state == "backing off" {
        let failures = human::count(u64::from(delivery.spent), "failure");
        let text = match delivery.last_error.as_deref() {
            Some(cause @ ("quota" | "disk_full" | "busy")) => {
                format!("its pause to end: {} has no room now ({cause})", delivery.peer)
            }
            _ => format!("its pause after {failures} to end"),
        };
        let help = match delivery.last_error.as_deref() {
            Some("quota" | "disk_full") => format!("make room at {}", delivery.peer),
            _ => String::new(),
        };
        found.push(until(&delivery.next_attempt_at, reason("backoff", text, help)));
    }
    if found.is_empty() {
        found.push(turn(segment, delivery, peer));
    }
    found
}

fn peer_held(peer: &Peer) -> Option<Reason> {
    let name = &peer.name;
    let help = format!("`consign peers release {name}`");
    peer.held.then(|| reason("peer_held", format!("an operator: {name} is held"), help))
}

/// What keeps everything from a peer that is spoken to directly.
fn of_link(peer: &Peer) -> Vec<Reason> {
    let name = &peer.name;
    let mut found = Vec::new();
    found.extend(peer_held(peer));
    if peer.needs_rekey {
        let text = format!("{name} to be known by its new pin: the configured one is another");
        let help = format!("`consign peers rekey {name}`, if the new pin is the right one");
        found.push(reason("needs_rekey", text, help));
    }
    if peer.opens_at.is_some() {
        let text = format!("the window of {name} to open");
        found.push(until(&peer.opens_at, reason("window", text, "")));
    }
    if !peer.up {
        let why = match peer.last_error.as_str() {
            "" => String::new(),
            error => format!(": {error}"),
        };
        let text = format!("{name} to be reached, it is down{why}");
        let help = super::super::peers::repin(name, &peer.last_error)
            .unwrap_or_else(|| format!("`consign peers flush {name}` tries at once"));
        found.push(until(&peer.retry_at, reason("peer_down", text, help)));
    } else if peer.retry_at.is_some() {
        let text = format!("{name} to have room again: it asked for a pause");
        found.push(until(&peer.retry_at, reason("peer_pause", text, "")));
    }
    found
}

fn turn(segment: &Segment, delivery: &Delivery, peer: Option<&Peer>) -> Reason {
    let name = &delivery.peer;
    let others = peer.map_or(0, |p| p.queued.count.saturating_sub(1));
    let text = match others {
        0 => format!("its turn: nothing else is queued for {name}"),
        others => format!(
            "its turn in class {}: {} others are queued for {name}",
            segment.priority,
            human::thousands(others)
        ),
    };
    reason("turn", text, "")
}
