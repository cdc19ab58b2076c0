//! What is owed to each peer, what became of it, and how the peer is.

use consign_core::code::Cause;
use consign_core::ledger::rows::CounterRow;
use consign_core::node::{Ending, PeerStatus, Status};

use super::page::{Kind, Kind::Counter, Kind::Gauge, Page};
use crate::admin::AdminContext;

/// What waits for a peer, in the order of [`queue`].
const STATES: [&str; 5] = ["queued", "sending", "backoff", "held", "deadletter"];

/// Everything about peers.
pub(super) fn peers(page: &mut Page, status: &Status, context: &AdminContext) {
    let peers = &status.peers;
    type Value = fn(&PeerStatus) -> u64;
    let gauges: [(&str, &str, Value); 9] = [
        ("consign_peer_up", "Whether there is a live session.", |p| p.session.is_some().into()),
        ("consign_peer_known", "Whether it is configured, or a route leads there.", |p| {
            p.known.into()
        }),
        ("consign_peer_held", "Whether an operator holds it.", |p| p.held.into()),
        ("consign_peer_needs_rekey", "Whether it has another pin than it is known by.", |p| {
            p.needs_rekey.into()
        }),
        (
            "consign_peer_oldest_pending_timestamp_seconds",
            "When the oldest segment was accepted that it is owed and that is no dead letter; 0 when nothing is owed.",
            |p| p.oldest.map_or(0, |at| at.0 / 1000),
        ),
        (
            "consign_peer_last_delivery_timestamp_seconds",
            "Last committed acknowledgement; 0 before the first.",
            |p| p.last_acked.map_or(0, |at| at.0 / 1000),
        ),
        ("consign_peer_delivered_segments", "Segments held here that it has acknowledged.", |p| {
            p.counters[2].count
        }),
        (
            "consign_peer_quota_used_bytes",
            "Bytes here that are charged for what it brought.",
            |p| p.inbound.bytes,
        ),
        ("consign_peer_quota_limit_bytes", "Its inbound_quota; 0 when there is none.", |p| {
            p.inbound_quota.unwrap_or(0)
        }),
    ];
    for (name, help, value) in gauges {
        of_each(page, peers, (name, Gauge, help), value);
    }
    let help =
        "When it said anything last, be it the answer to a PING; 0 before the first in this run.";
    of_each(page, peers, ("consign_peer_heartbeat_timestamp_seconds", Gauge, help), |p| {
        context.meters.heard_at(&p.name).map_or(0, |at| at.0 / 1000)
    });
    let families = [
        ("consign_peer_queue_segments", "Deliveries to it that are not done, by state."),
        ("consign_peer_queue_bytes", "Their bytes."),
    ];
    for (at, (name, help)) in families.into_iter().enumerate() {
        page.family(name, Gauge, help);
        for peer in peers {
            for (state, count) in STATES.iter().zip(queue(peer)) {
                let value = if at == 0 { count.count } else { count.bytes };
                page.sample(name, &[("peer", &peer.name), ("state", state)], value);
            }
        }
    }
    let help = "Bytes of protocol 1 sent to it since the start, before TLS.";
    of_each(page, peers, ("consign_peer_sent_bytes_total", Counter, help), |p| {
        context.meters.traffic(&p.name).0
    });
    let help = "Bytes of protocol 1 received from it since the start, before TLS.";
    of_each(page, peers, ("consign_peer_received_bytes_total", Counter, help), |p| {
        context.meters.traffic(&p.name).1
    });
    attempts(page, peers);
}

fn of_each(
    page: &mut Page,
    peers: &[PeerStatus],
    (name, kind, help): (&str, Kind, &str),
    value: impl Fn(&PeerStatus) -> u64,
) {
    page.family(name, kind, help);
    for peer in peers {
        page.sample(name, &[("peer", &peer.name)], value(peer));
    }
}

/// What is not done, in the order of [`STATES`]. Whatever waits for a peer that an operator holds is held, and so is what
/// waits in segments that one holds.
fn queue(peer: &PeerStatus) -> [CounterRow; 5] {
    let [queued, sending, _, backoff, dead] = peer.counters;
    let [of_queued, of_backoff] = if peer.held { [queued, backoff] } else { peer.held_back };
    let less = |a: CounterRow, b: CounterRow| CounterRow {
        count: a.count.saturating_sub(b.count),
        bytes: a.bytes.saturating_sub(b.bytes),
    };
    let held = CounterRow {
        count: of_queued.count.saturating_add(of_backoff.count),
        bytes: of_queued.bytes.saturating_add(of_backoff.bytes),
    };
    [less(queued, of_queued), sending, less(backoff, of_backoff), held, dead]
}

fn attempts(page: &mut Page, peers: &[PeerStatus]) {
    let name = "consign_delivery_attempts_total";
    page.family(name, Counter, "Attempts that ended since the start, by what they came to.");
    for peer in peers {
        for (ending, count) in Ending::ALL.iter().zip(peer.tallied.attempts) {
            page.sample(name, &[("peer", &peer.name), ("outcome", ending.word())], count);
        }
    }
    let name = "consign_delivery_failures_total";
    page.family(name, Counter, "Deliveries that failed or were given up since the start.");
    for peer in peers {
        for (cause, count) in Cause::ALL.iter().zip(peer.tallied.failures) {
            page.sample(name, &[("peer", &peer.name), ("reason", cause.word())], count);
        }
    }
}
