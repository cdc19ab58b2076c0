//! Shards for nodes that are away.

use consign_core::ledger::rows_pickup::ShardState;
use consign_core::node::{PickupStatus, Tallied};
use consign_core::pickup::PickupRefusal;

use super::page::{Kind::Counter, Kind::Gauge, Kind::Histogram, LONG, Page};

/// Everything about pickup.
pub(super) fn pickup(page: &mut Page, pickup: &PickupStatus, tallied: &Tallied) {
    let states = || ShardState::ALL.iter().zip(pickup.shards);
    let counts = states().map(|(state, row)| (state.word(), row.count));
    page.labelled("consign_shards", Gauge, "Shards by state.", "state", counts);
    let bytes = states().map(|(state, row)| (state.word(), row.bytes));
    let help = "Bytes held or reserved for them.";
    page.labelled("consign_shard_bytes", Gauge, help, "state", bytes);
    gauges(page, pickup);
    page.labelled(
        "consign_shard_transitions_total",
        Counter,
        "Shards that a commit left in another state than before, since the start.",
        "to",
        ShardState::ALL.iter().map(|state| state.word()).zip(tallied.shards),
    );
    let [reused, expired, unknown] = pickup.bad_tokens;
    let (cut, refused) = pickup.lost_uploads;
    page.labelled(
        "consign_uploads_total",
        Counter,
        "Uploads since the start: stored, ended before they were whole, refused.",
        "outcome",
        [("stored", pickup.stored), ("cut", cut), ("refused", refused)],
    );
    page.labelled(
        "consign_notifications_total",
        Counter,
        "Notifications answered since the start, or left until their token ran out.",
        "outcome",
        [("redeemed", pickup.redeemed), ("unused", pickup.unused)],
    );
    page.one(
        "consign_fetch_tokens_issued_total",
        Counter,
        "Notifications since the start, each with its token.",
        pickup.notified,
    );
    page.labelled(
        "consign_fetch_tokens_redeemed_total",
        Counter,
        "Tokens that signed requests showed since the start.",
        "outcome",
        [("ok", pickup.redeemed), ("reused", reused), ("expired", expired), ("unknown", unknown)],
    );
    let help = "Fetches that broke off since the start.";
    page.one("consign_fetches_broken_total", Counter, help, pickup.broken);
    page.labelled(
        "consign_shard_acks_total",
        Counter,
        "Acks of nodes since the start.",
        "status",
        [("verified", pickup.acks.0), ("failed", pickup.acks.1)],
    );
    page.labelled(
        "consign_pickup_refusals_total",
        Counter,
        "Requests of pickup refused since the start.",
        "code",
        PickupRefusal::ALL.iter().map(|refusal| refusal.word()).zip(pickup.refusals),
    );
    page.labelled(
        "consign_shards_spoiled_total",
        Counter,
        "Shards given up because their content was found corrupt or missing here.",
        "reason",
        ["corrupt", "missing"].into_iter().zip(tallied.spoiled),
    );
    let name = "consign_pickup_wait_seconds";
    page.family(name, Histogram, "From a shard's being buffered to its node's having it.");
    page.histogram(name, &[], &tallied.pickup_wait, LONG);
}

fn gauges(page: &mut Page, pickup: &PickupStatus) {
    let gauges = [
        ("consign_upload_buffer_used_bytes", "Bytes held or reserved for shards.", pickup.used),
        ("consign_upload_buffer_limit_bytes", "What buffer.max_bytes allows.", pickup.limit),
        ("consign_notify_subscribers", "Nodes that are registered now.", pickup.sessions),
        ("consign_pickup_clients", "Clients that may upload.", pickup.clients),
        ("consign_uploads_active", "Uploads under way.", pickup.uploads),
        ("consign_fetches_active", "Fetches under way.", pickup.fetches),
        ("consign_notifications_unanswered", "Notifications without an answer.", pickup.unanswered),
    ];
    for (name, help, value) in gauges {
        page.one(name, Gauge, help, value);
    }
}
