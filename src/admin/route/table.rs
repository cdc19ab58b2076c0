//! The requests of the local interface, each once: what routing goes by is what metrics are labelled by.

use std::sync::LazyLock;

use consign_core::http::{Method, Query, Request, Target};

use super::pickup::{self, PickupRoute};
use super::{
    No, Route, assurances, audit, dead, enter, events, exports, list, ping, prefix, shape_after,
    submit, unwatch, watched,
};
use crate::admin::log_level;
use crate::meters::Row;

/// A request whose path is known.
struct Asked<'r> {
    request: &'r Request,
    /// What stands in the place of the path's `*`, if it has one.
    part: &'r str,
    query: &'r str,
}

/// Reads what a request asks for.
type Read = fn(&Asked<'_>) -> Result<Route, No>;

/// A kind of request.
struct Entry(Row, Read);

const fn get(label: &'static str, path: &'static str, read: Read) -> Entry {
    Entry(Row::new(label, "GET", path), read)
}

const fn post(label: &'static str, path: &'static str, read: Read) -> Entry {
    Entry(Row::new(label, "POST", path), read)
}

/// Without parameters.
fn plain(asked: &Asked<'_>, route: Route) -> Result<Route, No> {
    Query::parse(asked.query, &[]).map_err(No::of_fault).map(|_| route)
}

/// All of them. The label is the method of the RPC. The order matters where a `*` would take a word.
const ALL: &[Entry] = &[
    get("health", "/healthz", |a| plain(a, Route::Health)),
    get("ready", "/readyz", |a| plain(a, Route::Ready)),
    get("metrics", "/metrics", |a| plain(a, Route::Metrics)),
    get("status", "/v1/status", |a| plain(a, Route::Status)),
    get("peers", "/v1/peers", |a| plain(a, Route::Peers)),
    get("peers_pending", "/v1/peers/pending", |a| plain(a, Route::Pending)),
    post("peer_ping", "/v1/peers/*/ping", |a| ping(a.part, a.query)),
    post("accept", "/v1/segments", |a| submit(a.query).map(|s| Route::Submit(Box::new(s)))),
    get("index", "/v1/segments", |a| list(a.query).map(Route::List)),
    get("show", "/v1/segments/*", |a| plain(a, Route::Show(prefix(a.part)?))),
    get("content", "/v1/segments/*/content", |a| plain(a, Route::Content(prefix(a.part)?))),
    post("export_retry", "/v1/segments/*/exports/retry", |a| {
        plain(a, Route::ExportRetry(prefix(a.part)?))
    }),
    get("deadletters", "/v1/deadletters", |a| dead(a.query).map(Route::Dead)),
    get("deadletter_groups", "/v1/deadletters/groups", |a| dead(a.query).map(Route::Groups)),
    get("assurances", "/v1/assurance", |a| assurances(a.query).map(Route::Assurances)),
    get("assurance", "/v1/assurance/*", |a| plain(a, Route::Assured(prefix(a.part)?))),
    get("shape", "/v1/shape", |a| shape_after(a.query).map(Route::Shape)),
    get("events", "/v1/events", |a| events(a.query)),
    get("audit", "/v1/audit", |a| audit(a.query).map(Route::Audit)),
    post("act", "/v1/acts", |a| plain(a, Route::Act)),
    get("exports", "/v1/exports", |a| exports(a.query).map(Route::Exports)),
    post("export_run", "/v1/exports/run", |a| plain(a, Route::ExportRun)),
    get("watched", "/v1/watched", |a| watched(a.query).map(Route::Watched)),
    post("unwatch", "/v1/unwatch", |a| unwatch(a.query)),
    post("clock_confirm", "/v1/clock/confirm", |a| plain(a, Route::ConfirmClock)),
    get("log_level", "/v1/log-level", |a| plain(a, Route::Log)),
    post("log_level_set", "/v1/log-level", |a| log_level::wanted(a.query).map(Route::SetLog)),
    get("pickup_nodes", "/v1/pickup/nodes", |a| {
        pickup::names(a.query).map(|names| Route::Pickup(PickupRoute::Nodes(names)))
    }),
    get("pickup_clients", "/v1/pickup/clients", |a| {
        pickup::names(a.query).map(|names| Route::Pickup(PickupRoute::Clients(names)))
    }),
    get("pickup_shards", "/v1/pickup/shards", |a| {
        pickup::shards(a.query).map(|shards| Route::Pickup(PickupRoute::Shards(shards)))
    }),
    get("pickup_shard", "/v1/pickup/shard", |a| {
        pickup::shard(a.query).map(|shard| Route::Pickup(PickupRoute::Shard(shard)))
    }),
    post("pickup_act", "/v1/pickup/acts", |a| plain(a, Route::Pickup(PickupRoute::Act))),
    get("page", "/", |a| plain(a, Route::Page)),
    post("page_link", "/v1/page", |a| plain(a, Route::Link)),
    post("page_session", "/v1/page/session", |a| plain(a, enter(a.request)?)),
    post("reload", "/v1/reload", |a| plain(a, Route::Reload)),
    post("stop", "/v1/stop", |a| plain(a, Route::Stop)),
];

/// Their labels, and behind them the one of whatever is none of them.
pub(crate) fn rpc() -> &'static [Row] {
    static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
        let other = Row::new("other", "other", "");
        ALL.iter().map(|Entry(row, _)| *row).chain([other]).collect()
    });
    &ROWS
}

/// What a request asks for, by its row.
pub(super) fn find(request: &Request) -> Result<Route, No> {
    let Target { path, query } = Target::of(&request.target);
    let method = match &request.method {
        Method::Head => "GET",
        method => method.name(),
    };
    let (mut reads, mut posts) = (false, false);
    for Entry(row, read) in ALL {
        let Some(part) = row.part(path) else { continue };
        if row.method == method {
            return read(&Asked { request, part, query });
        }
        reads |= row.method == "GET";
        posts |= row.method == "POST";
    }
    Err(match (reads, posts) {
        (false, false) => No::new(404, "not_found", format!("there is nothing under {path}")),
        (true, false) => not_allowed(request, "GET, HEAD"),
        (false, true) => not_allowed(request, "POST"),
        (true, true) => not_allowed(request, "GET, HEAD, POST"),
    })
}

fn not_allowed(request: &Request, allow: &'static str) -> No {
    let message = format!("{} is not among {allow} here", request.method);
    No { allow: Some(allow), ..No::new(405, "method_not_allowed", message) }
}
