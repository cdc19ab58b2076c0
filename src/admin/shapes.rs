//! JSON as it goes over the socket and as `--json` prints it. Sizes are bytes, times RFC 3339 in UTC,
//! durations seconds; within a schema number members are only ever added.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use consign_core::act::Action;
use consign_core::code::Refusal;
use consign_core::http::rfc3339;
use consign_core::id::BlobDigest;
use consign_core::ledger::rows::CounterRow;
use consign_core::node;
use consign_core::time::UnixMillis;

use super::log_level::Logged;
use super::pickup::status::Pickup;
use super::reloads::{Certificate, LastReload};

mod pending;
mod small;

pub use pending::{PendingPeer, PendingPeers};
pub use small::{
    Clock, Inbox, PageEntered, PageLink, Ping, Refused, RefusedItem, Scrub, Stopping, Watch,
};

/// What became of a submission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Accepted {
    /// `consign.accepted/1`
    pub schema: String,
    /// The segment, 64 hex digits.
    pub id: String,
    /// Its accept number.
    pub seq: u64,
    /// Its name.
    pub name: String,
    /// Whether it was not held before.
    pub new: bool,
    /// Destinations added by this submission.
    pub added: Vec<String>,
    /// Destinations that were owed already.
    pub queued: Vec<String>,
    /// Destinations that hold it already.
    pub delivered: Vec<String>,
    /// Destinations for which it lies among the dead letters.
    pub dead: Vec<String>,
    /// Whether it is worth delivering longer than before.
    #[serde(default)]
    pub raised: bool,
    /// Its length.
    pub size: u64,
    /// BLAKE3 of its content, 64 hex digits.
    pub digest: String,
}

impl Accepted {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.accepted/1";

    /// What the node said of a submission of that name, length and content.
    pub(super) fn of(
        accepted: consign_core::session::Accepted,
        name: String,
        size: u64,
        digest: Option<&BlobDigest>,
    ) -> Accepted {
        Accepted {
            schema: Accepted::SCHEMA.into(),
            id: accepted.id.to_string(),
            seq: accepted.seq.0,
            name,
            new: accepted.new,
            added: accepted.added,
            queued: accepted.queued,
            delivered: accepted.delivered,
            dead: accepted.dead,
            raised: accepted.raised,
            size,
            digest: digest.map(ToString::to_string).unwrap_or_default(),
        }
    }
}

/// A segment with its deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Segment {
    /// `consign.segment/1`
    pub schema: String,
    /// Identity, 64 hex digits.
    pub id: String,
    /// Accept number at this site.
    pub seq: u64,
    /// Name.
    pub name: String,
    /// Media type; may be empty.
    #[serde(rename = "type")]
    pub content_type: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Class of priority.
    pub priority: String,
    /// Instance of a `send --again`, 32 hex digits.
    pub instance: Option<String>,
    /// Length.
    pub size: u64,
    /// BLAKE3 of the content, 64 hex digits.
    pub digest: String,
    /// Where to, as the sender asked; `["*"]` is every known peer.
    pub to: Vec<String>,
    /// Whether this site is itself addressed.
    pub here: bool,
    /// The site where it was first accepted; empty when that is here.
    pub origin: String,
    /// Sites it has left so far.
    pub hops: u8,
    /// When it was accepted here.
    pub accepted_at: String,
    /// After this it is not worth delivering any more.
    pub expires_at: Option<String>,
    /// When the success condition was met.
    pub relayed_at: Option<String>,
    /// Held by an operator.
    pub held: bool,
    /// Whether nobody is left to have it: what was owed was purged, forgotten or refused as already relayed.
    #[serde(default)]
    pub unplaced: bool,
    /// Whether its content here is known to be damaged or gone.
    #[serde(default)]
    pub damaged: bool,
    /// Deliveries, by site number.
    pub deliveries: Vec<Delivery>,
}

impl Segment {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.segment/1";
}

/// A delivery of a segment to one site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// The site.
    pub peer: String,
    /// `queued`, `sending`, `backing off`, `held`, `delivered` or `dead`.
    pub state: String,
    /// Claims so far.
    pub attempts: u64,
    /// Failures of the segment's own.
    pub spent: u32,
    /// When it is due, while it waits.
    pub next_attempt_at: Option<String>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// When it entered its present state.
    pub since: String,
    /// When it was last claimed.
    pub claimed_at: Option<String>,
    /// Bytes of the attempt in flight handed to the kernel.
    pub sent: Option<u64>,
    /// The peer it is reached by way of, once that has custody: its receipt is waited for.
    #[serde(default)]
    pub custody: Option<String>,
}

/// A page of segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Segments {
    /// `consign.segments/1`
    pub schema: String,
    /// The segments, by accept number. May be empty although there is a next page.
    pub segments: Vec<Segment>,
    /// `after` of the next page, if there may be one.
    pub next: Option<u64>,
}

impl Segments {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.segments/1";
}

/// A node at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// `consign.status/1`
    pub schema: String,
    /// The node's name.
    pub name: String,
    /// The product's version.
    pub version: String,
    /// `smol` or `std`.
    pub runtime: String,
    /// Since the process started.
    pub up_seconds: u64,
    /// How often it was started.
    pub boot: u64,
    /// Segments held.
    pub segments: u64,
    /// Segments among them that nobody is left to have.
    #[serde(default)]
    pub unplaced: u64,
    /// When a segment for everybody counts as relayed: `one_peer` or `all_peers`.
    #[serde(default)]
    pub success_condition: String,
    /// Content.
    pub storage: Storage,
    /// The ledger.
    pub ledger: Ledger,
    /// Whether start-up reconciliation is still under way.
    pub reconciling: bool,
    /// Segments it has looked at so far, and how many there were at the start.
    #[serde(default)]
    pub reconciled: (u64, u64),
    /// Whether it is stopping.
    pub stopping: bool,
    /// Whether nothing expires because a step of the clock is not confirmed.
    #[serde(default)]
    pub clock_held: bool,
    /// What is logged.
    #[serde(default)]
    pub log: Logged,
    /// Refusals since the start, by code.
    #[serde(default)]
    pub refusals: BTreeMap<String, u64>,
    /// Operators' acts since the start, by action.
    #[serde(default)]
    pub acts: BTreeMap<String, u64>,
    /// Rows in quarantine.
    #[serde(default)]
    pub quarantined: u64,
    /// How far content was compared with its digests.
    #[serde(default)]
    pub scrub: Scrub,
    /// Peers by name.
    pub peers: Vec<Peer>,
    /// Watched directories.
    #[serde(default)]
    pub watch: Vec<Watch>,
    /// Inbox rules.
    #[serde(default)]
    pub inbox: Vec<Inbox>,
    /// The last reading of the configuration.
    #[serde(default)]
    pub reload: LastReload,
    /// Certificates in use.
    #[serde(default)]
    pub certificates: Vec<Certificate>,
    /// What is wrong with certificate and key as they lie there; empty if nothing is.
    #[serde(default)]
    pub certificate_files: String,
    /// Shards for nodes that are away.
    #[serde(default)]
    pub pickup: Pickup,
}

/// Peers by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peers {
    /// `consign.peers/1`
    pub schema: String,
    /// The peers.
    pub peers: Vec<Peer>,
}

impl Peers {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.peers/1";

    /// What the node says.
    #[must_use]
    pub fn of(node: &node::Status) -> Peers {
        Peers { schema: Peers::SCHEMA.into(), peers: node.peers.iter().map(Peer::of).collect() }
    }
}

/// Room for content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Storage {
    /// Bytes charged.
    pub used: u64,
    /// Bytes allowed.
    pub limit: u64,
    /// Bytes free on the disk.
    pub free: u64,
    /// Whether new content is refused for want of space.
    pub full: bool,
    /// Bytes of the disk that stay free.
    #[serde(default)]
    pub min_free: u64,
    /// Most segments, if there is a limit.
    #[serde(default)]
    pub max_segments: Option<u64>,
    /// Largest segment, if there is a limit.
    #[serde(default)]
    pub max_segment: Option<u64>,
}

/// The ledger's own figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// Bytes in live pages.
    pub used: u64,
    /// Bytes allowed.
    pub limit: u64,
    /// Whether the reserve for a full disk is whole.
    pub ballast_whole: bool,
    /// Batches committed since the start.
    pub commits: u64,
    /// Their rows.
    pub rows: u64,
}

/// A peer at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Where it is dialled; empty when it is no longer known.
    pub address: String,
    /// Whether it is among `relay.known_peers`.
    #[serde(default)]
    pub known: bool,
    /// Held by an operator.
    #[serde(default)]
    pub held: bool,
    /// Its configured pin is not the one it is known by: no session before `consign peers rekey`.
    #[serde(default)]
    pub needs_rekey: bool,
    /// The known peer it is reached by way of; empty when it is a known peer itself.
    #[serde(default)]
    pub via: String,
    /// Whether there is a live session.
    pub up: bool,
    /// Epoch of the live session.
    pub epoch: Option<String>,
    /// Waiting for their turn.
    pub queued: Count,
    /// In flight.
    pub sending: Count,
    /// Failed and due again.
    pub backing_off: Count,
    /// Given up.
    pub dead: Count,
    /// Held there.
    pub delivered: Count,
    /// Of what is queued or backing off: what waits because an operator holds its segment.
    #[serde(default)]
    pub held_back: Count,
    /// Bytes sent of attempts in flight.
    pub sent: u64,
    /// What it brought and is held here, with the bytes that are charged for it.
    #[serde(default)]
    pub inbound: Count,
    /// Bytes it may have here, if there is a limit.
    #[serde(default)]
    pub inbound_quota: Option<u64>,
    /// When it will be dialled or offered again, if it is backing off.
    pub retry_at: Option<String>,
    /// When its contact window opens, if it is closed.
    #[serde(default)]
    pub opens_at: Option<String>,
    /// Due time of its oldest waiting delivery in memory.
    pub next_due: Option<String>,
    /// Accept time of the oldest segment it is owed: in `consign.status/1` of those in memory, in `consign.peers/1` as the
    /// ledger has it.
    pub oldest: Option<String>,
    /// Last trouble, for people; may be empty.
    pub last_error: String,
    /// When that was, if it was since the start.
    #[serde(default)]
    pub last_error_at: Option<String>,
    /// Last committed acknowledgement.
    pub last_delivered: Option<String>,
    /// While there is no session: when the last one ended; null also when there was none since the start.
    #[serde(default)]
    pub down_since: Option<String>,
}

/// Deliveries and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Status {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.status/1";

    /// What the node says, with what it does not know.
    #[must_use]
    pub fn of(node: &node::Status, context: &super::AdminContext, up_seconds: u64) -> Status {
        let (certificates, certificate_files) = context.reloads.certificates_now();
        Status {
            schema: Status::SCHEMA.into(),
            name: node.name.clone(),
            version: context.version.clone(),
            runtime: context.runtime.clone(),
            up_seconds,
            boot: node.boot,
            segments: node.segments,
            unplaced: node.unplaced,
            success_condition: node.allowed.success.word().into(),
            storage: Storage {
                used: node.used,
                limit: node.limit,
                free: node.space.free,
                full: node.full,
                min_free: node.allowed.min_free,
                max_segments: node.allowed.max_segments,
                max_segment: node.allowed.max_segment,
            },
            ledger: Ledger {
                used: node.space.ledger,
                limit: context.reloads.ledger_max(),
                ballast_whole: node.space.ballast_whole,
                commits: node.commits.0,
                rows: node.commits.1,
            },
            reconciling: node.reconciling,
            reconciled: node.reconciled,
            stopping: node.stopping,
            clock_held: node.clock_held,
            refusals: counted(Refusal::ALL.iter().map(|r| r.word()), &node.refusals),
            acts: counted(Action::ALL.iter().map(|a| a.word()), &node.acts),
            quarantined: node.quarantined,
            scrub: Scrub {
                last: node.scrub.last.map(rfc3339),
                running: node.scrub.running,
                items: node.scrub.items,
                bytes: node.scrub.bytes,
                corrupt: node.scrub.corrupt,
                damaged: node.scrub.damaged,
            },
            peers: node.peers.iter().map(Peer::of).collect(),
            watch: context.watch.all().into_iter().map(Watch::of).collect(),
            inbox: context.inbox_now(node),
            log: Logged::of(node, context),
            reload: context.reloads.last(),
            certificates,
            certificate_files,
            pickup: Pickup::of(&node.pickup),
        }
    }
}

/// Counts under their words: every word is there from the start.
fn counted<'w>(words: impl Iterator<Item = &'w str>, counts: &[u64]) -> BTreeMap<String, u64> {
    words.map(String::from).zip(counts.iter().copied()).collect()
}

impl Count {
    fn sum(rows: [CounterRow; 2]) -> Count {
        let [a, b] = rows;
        Count { count: a.count.saturating_add(b.count), bytes: a.bytes.saturating_add(b.bytes) }
    }
}

impl Peer {
    fn of(peer: &node::PeerStatus) -> Peer {
        let [queued, sending, delivered, backing_off, dead] =
            peer.counters.map(|c| Count { count: c.count, bytes: c.bytes });
        Peer {
            name: peer.name.clone(),
            address: peer.address.clone(),
            known: peer.known,
            held: peer.held,
            needs_rekey: peer.needs_rekey,
            via: peer.via.clone(),
            up: peer.session.is_some(),
            epoch: peer.session.map(|epoch| epoch.to_string()),
            queued,
            sending,
            backing_off,
            dead,
            delivered,
            held_back: Count::sum(peer.held_back),
            sent: peer.sending,
            inbound: Count { count: peer.inbound.count, bytes: peer.inbound.bytes },
            inbound_quota: peer.inbound_quota,
            retry_at: time(peer.retry_at),
            opens_at: time(peer.opens_at),
            next_due: time(peer.next_due),
            oldest: time(peer.oldest),
            last_error: peer.last_error.clone(),
            last_error_at: time(peer.erred_at),
            last_delivered: time(peer.last_acked),
            down_since: time(peer.down_since),
        }
    }
}

fn time(at: Option<UnixMillis>) -> Option<String> {
    at.map(rfc3339)
}
