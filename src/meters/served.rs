//! Requests by what they ask for and what they were answered. Labels come from tables, never from what a
//! client sends.

use std::collections::BTreeMap;

use consign_core::histogram::Histogram;
use consign_core::http::{Answered, Target};

/// A kind of request: its label, the method it comes with, and its path, where `*` is any one part.
pub struct Row {
    /// Its label.
    pub label: &'static str,
    /// The method.
    pub method: &'static str,
    path: &'static str,
}

const fn row(label: &'static str, method: &'static str, path: &'static str) -> Row {
    Row { label, method, path }
}

/// Requests of the local interface; the label is the method of the RPC. The last takes whatever is none of
/// them.
pub const RPC: &[Row] = &[
    row("health", "GET", "/healthz"),
    row("ready", "GET", "/readyz"),
    row("metrics", "GET", "/metrics"),
    row("status", "GET", "/v1/status"),
    row("peers", "GET", "/v1/peers"),
    row("accept", "POST", "/v1/segments"),
    row("batch", "POST", "/v1/segments/batch"),
    row("index", "GET", "/v1/segments"),
    row("show", "GET", "/v1/segments/*"),
    row("content", "GET", "/v1/segments/*/content"),
    row("export_retry", "POST", "/v1/segments/*/exports/retry"),
    row("deadletters", "GET", "/v1/deadletters"),
    row("deadletter_groups", "GET", "/v1/deadletters/groups"),
    row("assurances", "GET", "/v1/assurance"),
    row("assurance", "GET", "/v1/assurance/*"),
    row("shape", "GET", "/v1/shape"),
    row("events", "GET", "/v1/events"),
    row("audit", "GET", "/v1/audit"),
    row("act", "POST", "/v1/acts"),
    row("exports", "GET", "/v1/exports"),
    row("export_run", "POST", "/v1/exports/run"),
    row("watched", "GET", "/v1/watched"),
    row("unwatch", "POST", "/v1/unwatch"),
    row("clock_confirm", "POST", "/v1/clock/confirm"),
    row("pickup_nodes", "GET", "/v1/pickup/nodes"),
    row("pickup_clients", "GET", "/v1/pickup/clients"),
    row("pickup_shards", "GET", "/v1/pickup/shards"),
    row("pickup_shard", "GET", "/v1/pickup/shard"),
    row("pickup_act", "POST", "/v1/pickup/acts"),
    row("page", "GET", "/"),
    row("page_link", "POST", "/v1/page"),
    row("page_session", "POST", "/v1/page/session"),
    row("reload", "POST", "/v1/reload"),
    row("config", "GET", "/v1/config"),
    row("peers_pending", "GET", "/v1/peers/pending"),
    row("peer_ping", "POST", "/v1/peers/*/ping"),
    row("stop", "POST", "/v1/stop"),
    row("other", "other", ""),
];

/// Requests of pickup; the label is the route.
pub const HTTP: &[Row] = &[
    row("/buffer/upload", "POST", "/buffer/upload"),
    row("/buffer/upload", "PATCH", "/buffer/upload"),
    row("/buffer/upload", "HEAD", "/buffer/upload"),
    row("/buffer/slot", "PUT", "/buffer/slot"),
    row("/buffer/fetch", "GET", "/buffer/fetch"),
    row("/ws", "GET", "/ws"),
    row("other", "other", ""),
];

impl Row {
    fn is_of(&self, method: &str, path: &str) -> bool {
        let (mut want, mut have) = (self.path.split('/'), path.split('/'));
        let same = loop {
            match (want.next(), have.next()) {
                (None, None) => break true,
                (Some(part), Some(had)) if part == had || (part == "*" && !had.is_empty()) => {}
                _ => break false,
            }
        };
        same && (method == self.method || (method == "HEAD" && self.method == "GET"))
    }
}

/// Which row of a table a request is of.
#[must_use]
pub fn row_of(table: &[Row], answered: &Answered) -> usize {
    let (method, path) = (answered.method.name(), Target::of(&answered.target).path);
    let at = table.iter().position(|row| row.is_of(method, path));
    at.unwrap_or(table.len().saturating_sub(1))
}

/// What was answered since the start, by row of a table and status.
#[derive(Clone, Debug, Default)]
pub struct Served(BTreeMap<(usize, u16), Histogram>);

impl Served {
    /// Counts an answer to a request of this row.
    pub fn count(&mut self, at: usize, answered: &Answered) {
        let micros = u64::try_from(answered.took.as_micros()).unwrap_or(u64::MAX);
        self.0.entry((at, answered.status)).or_default().observe(micros);
    }

    /// Everything counted, by row and status, with a zero under `usual` for each row where nothing is.
    #[must_use]
    pub fn rows(&self, table: &[Row], usual: u16) -> BTreeMap<(usize, u16), Histogram> {
        let mut all: BTreeMap<_, _> =
            (0..table.len()).map(|at| ((at, usual), Histogram::default())).collect();
        all.extend(self.0.iter().map(|(key, histogram)| (*key, *histogram)));
        all
    }
}
