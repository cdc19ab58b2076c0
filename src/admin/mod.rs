//! The local interface of a node: HTTP/1.1 over the admin socket, and health on loopback.
//!
//! | request | answer |
//! |---|---|
//! | `POST /v1/segments?name=…` with the content | `201` (new) or `200` (known) once it is safe on disk: [`shapes::Accepted`] |
//! | `GET /v1/segments?limit=&after=&state=&peer=` | [`shapes::Segments`], a page in accept order |
//! | `GET /v1/segments/{id}` | [`shapes::Segment`]; any unique prefix of 6 digits will do |
//! | `GET /v1/segments/{id}/content` | the bytes; cut short if they turn out not to match their digest |
//! | `GET /v1/status` | [`shapes::Status`] |
//! | `POST /v1/acts` with [`acts::ActRequest`] | [`acts::Acted`], once it is safe on disk |
//! | `GET /v1/deadletters?limit=&after=&peer=&reason=&older=` | [`lists::Deadletters`], oldest first |
//! | `GET /v1/deadletters/groups?after=&peer=&reason=&older=` | [`lists::DeadletterGroups`] |
//! | `GET /v1/peers` | [`shapes::Peers`] |
//! | `GET /v1/audit?limit=&after=&since=` | [`lists::Audit`], oldest first |
//! | `GET /v1/assurance/{id}` | [`assurance::Assurance`], from receipts where it was evicted |
//! | `GET /v1/assurance?limit=&after=&peer=&unmet=` | [`assurance::Assurances`], a page |
//! | `GET /v1/shape?after=` | [`shape::Shape`], a slice |
//! | `GET /v1/events?since=&limit=&wait=` | [`crate::events::EventPage`]; waits for an event where there is none yet |
//! | `GET /metrics` | text for Prometheus |
//! | `POST /v1/segments/batch?to=&type=&label=&priority=&expires=&instance=` with lines and contents | a line for each item: [`shapes::Accepted`] or [`shapes::RefusedItem`], once all are safe on disk or refused |
//! | `GET /v1/exports?all=&from=` | [`exports::Exports`], a page: what inbox rules have still to do, or everything |
//! | `POST /v1/exports/run` | [`exports::Done`]: what is here already is given out too |
//! | `POST /v1/segments/{id}/exports/retry` | [`exports::Done`]: exports of it that failed or wait |
//! | `GET /v1/watched?rule=&from=` | [`exports::WatchedFiles`], a page |
//! | `POST /v1/unwatch?rule=&path=` | [`exports::Done`]: files that are gone are forgotten (BLAKE3 of their paths) |
//! | `POST /v1/clock/confirm` | [`shapes::Clock`]: what a step of the clock has held goes on |
//! | `POST /v1/pickup/acts` with [`pickup::acts::PickupRequest`] | [`pickup::acts::PickupActed`], once it is safe on disk |
//! | `GET /v1/pickup/nodes?limit=&after=` | [`pickup::lists::Nodes`], a page |
//! | `GET /v1/pickup/clients?limit=&after=` | [`pickup::lists::Clients`], a page |
//! | `GET /v1/pickup/shards?limit=&after=&state=&node=` | [`pickup::lists::Shards`], a page |
//! | `GET /v1/pickup/shard?key=FILE_ID/VERSION/SHARD@NODE` | [`pickup::lists::ShardShown`] |
//! | `GET /v1/peers/pending` | [`shapes::PendingPeers`] |
//! | `POST /v1/peers/{name}/ping` | [`shapes::Ping`], once the peer has answered or `wait` seconds are over |
//! | `GET /v1/config` | what the site goes by now, as `config show` has it |
//! | `POST /v1/reload` | [`reloads::Reloaded`], with `422` when the configuration was refused and nothing has changed |
//! | `GET /v1/log-level` | [`log_level::LogShown`] |
//! | `POST /v1/log-level?level=&for=` | the same, once another level is logged |
//! | `POST /v1/page` | [`shapes::PageLink`]: a link to the page that may retry dead letters |
//! | `GET /` | the page ([`crate::page`]) |
//! | `POST /v1/page/session` with a link's code in `X-Consign-Token` | [`shapes::PageEntered`], once per link |
//! | `POST /v1/stop` | `202`: the node drains and stops |
//! | `GET /healthz`, `GET /readyz` | one word |
//!
//! Parameters of a submission: `name` (required), `to` (repeated, or a list with commas; none is `*`), `type`,
//! `label=K=V` (repeated), `priority`, `expires` (seconds), `instance` (`random`, or 32 hex digits); and of a
//! watched file all of `watch` (the rule), `path` (bytes in hex), `inode`, `size`, `modified` (ns).
//!
//! Every refusal is `{"code","message"}`; waiting helps where there is a `Retry-After`. The admin socket
//! is for the daemon's own user and root. Over TCP, for the names of this machine, there are the page with what it
//! shows (status, peers and groups of dead letters), health and metrics; a page that was opened by a link may retry. docs/ADMIN.md has an example of each.

pub mod acts;
pub mod assurance;
pub(crate) mod batch;
mod download;
pub mod exports;
pub mod ledger;
pub mod lists;
pub mod log_level;
mod metrics;
mod oldest;
pub mod pickup;
mod refusal;
pub mod reloads;
mod route;
mod session;
pub mod shape;
pub mod shapes;
#[cfg(test)]
pub(crate) mod testing;
mod upload;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use consign_core::driver::MakeSession;
use consign_core::http::Limits;
use consign_core::ledger::keys_upkeep::RuleId;

use crate::events::Events;
use crate::inbox::InboxStates;
use crate::meters::Meters;
use crate::page::links::Links;
use crate::watch::WatchStates;

use crate::tls::strangers::Strangers;
pub(crate) use download::digest_field;
use reloads::Reloads;
pub(crate) use route::{WAIT_MAX, rpc};
use session::AdminSession;

/// What the local interface must know of the process.
#[derive(Clone, Debug)]
pub struct AdminContext {
    /// The product's version.
    pub version: String,
    /// The runtime's name.
    pub runtime: String,
    /// Who may use the admin socket besides root: the daemon's own user id.
    pub uid: u32,
    /// `storage.inline_max`: content up to this size is parked, larger content becomes a file.
    pub inline_max: u64,
    /// What became of readings of the configuration, and what is shown of certificates.
    pub reloads: Reloads,
    /// How long heads may take, and how slow bodies may be, over TCP (`limits.header_timeout`,
    /// `limits.min_body_rate`). On the admin socket bodies may be as slow as a pipe.
    pub limits: Limits,
    /// What inbox rules pick and where their files go.
    pub inbox: BTreeMap<RuleId, (String, String)>,
    /// How watched directories are doing.
    pub watch: WatchStates,
    /// How inbox rules are doing.
    pub exporting: InboxStates,
    /// What has happened lately.
    pub events: Events,
    /// What the process counts.
    pub meters: Meters,
    /// Names besides `localhost`, `127.0.0.1` and `[::1]` under which the page may be asked for.
    pub web_names: Vec<String>,
    /// Where the page is, if anywhere.
    pub web: Option<SocketAddr>,
    /// Links to pages that may act, and such pages.
    pub links: Links,
    /// Sites that knocked and are not known.
    pub strangers: Strangers,
}

impl AdminContext {
    /// How inbox rules are doing, in the order of the configuration.
    fn inbox_now(&self, node: &consign_core::node::Status) -> Vec<shapes::Inbox> {
        let of = |state: crate::inbox::InboxState| {
            let failed = node.given_up.get(&state.id).copied().unwrap_or_default();
            shapes::Inbox::of(state, failed)
        };
        self.exporting.all().into_iter().map(of).collect()
    }
}

/// Makes the sessions of local connections. A connection with a user id is the admin socket's, one
/// without is TCP's.
#[must_use]
pub fn make(context: AdminContext) -> MakeSession {
    let context = Arc::new(context);
    Arc::new(move |info| Box::new(AdminSession::new(Arc::clone(&context), info.clone())))
}
