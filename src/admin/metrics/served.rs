//! Requests of the local interface and of pickup.

use std::collections::BTreeMap;

use consign_core::histogram::Histogram as Durations;

use super::page::{FEW, Kind::Counter, Kind::Histogram, Page};
use crate::admin::AdminContext;
use crate::admin::rpc;
use crate::meters::HTTP;

/// What was answered.
pub(super) fn served(page: &mut Page, context: &AdminContext) {
    let (table, (served, http)) = (rpc(), context.meters.served());
    let name = "consign_rpc_requests_total";
    page.family(name, Counter, "Requests of the local interface answered since the start.");
    let mut methods: BTreeMap<usize, Durations> = BTreeMap::new();
    for ((at, status), durations) in served.rows(table, 200) {
        let labels = [("method", table[at].label), ("code", &*status.to_string())];
        page.sample(name, &labels, durations.count());
        methods.entry(at).or_default().merge(&durations);
    }
    let name = "consign_rpc_request_duration_seconds";
    page.family(name, Histogram, "From a request's head to the beginning of its answer.");
    for (at, durations) in methods {
        page.histogram(name, &[("method", table[at].label)], &durations, FEW);
    }
    let name = "consign_http_request_duration_seconds";
    page.family(name, Histogram, "The same of requests of pickup.");
    for ((at, status), durations) in http.rows(HTTP, 200) {
        let row = &HTTP[at];
        let code = status.to_string();
        let labels = [("route", row.label), ("method", row.method), ("code", &*code)];
        page.histogram(name, &labels, &durations, FEW);
    }
}
