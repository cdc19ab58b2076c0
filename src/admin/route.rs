//! Requests to what they ask for. Nothing is begun before all of it is understood.

use std::time::Duration;

use consign_core::code::Cause;
use consign_core::http::{Method, Query, Request, Target};
use consign_core::id::{Seq, unhex};
use consign_core::segment::{Class, Destinations, Meta, is_site_name};
use consign_core::time::UnixMillis;

use super::ledger::{IdPrefix, Listing, Word};
use super::lists::{self, AuditListing, DeadListing};
use super::refusal::No;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Health,
    Ready,
    Status,
    Stop,
    List(Listing),
    Show(IdPrefix),
    Content(IdPrefix),
    Submit(Box<Submit>),
    Act,
    Dead(DeadListing),
    Groups(DeadListing),
    Peers,
    Audit(AuditListing),
    Metrics,
}

/// A segment without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Submit {
    /// `expires_at` is still missing.
    pub(super) meta: Meta,
    pub(super) to: Destinations,
    /// How long it is worth delivering.
    pub(super) expires: Option<Duration>,
    /// The instance is to be drawn.
    pub(super) random: bool,
}

/// Reads a request.
pub(super) fn route(request: &Request) -> Result<Route, No> {
    let target = Target::of(&request.target);
    let segments: Vec<&str> = target.segments().collect();
    let reads = matches!(request.method, Method::Get | Method::Head);
    let posts = request.method == Method::Post;
    let plain = |route| Query::parse(target.query, &[]).map_err(No::of_fault).map(|_| route);
    match (segments.as_slice(), reads, posts) {
        (["healthz"], true, _) => plain(Route::Health),
        (["readyz"], true, _) => plain(Route::Ready),
        (["v1", "status"], true, _) => plain(Route::Status),
        (["v1", "stop"], _, true) => plain(Route::Stop),
        (["metrics"], true, _) => plain(Route::Metrics),
        (["v1", "acts"], _, true) => plain(Route::Act),
        (["v1", "peers"], true, _) => plain(Route::Peers),
        (["v1", "deadletters"], true, _) => dead(target.query).map(Route::Dead),
        (["v1", "deadletters", "groups"], true, _) => dead(target.query).map(Route::Groups),
        (["v1", "audit"], true, _) => audit(target.query).map(Route::Audit),
        (["v1", "segments"], true, _) => list(target.query).map(Route::List),
        (["v1", "segments"], _, true) => {
            submit(target.query).map(|submit| Route::Submit(Box::new(submit)))
        }
        (["v1", "segments", id], true, _) => prefix(id).and_then(|id| plain(Route::Show(id))),
        (["v1", "segments", id, "content"], true, _) => {
            prefix(id).and_then(|id| plain(Route::Content(id)))
        }
        (["v1", "segments"], false, false) => Err(not_allowed(request, "GET, HEAD, POST")),
        (["v1", "stop" | "acts"], _, false) => Err(not_allowed(request, "POST")),
        (
            ["healthz"]
            | ["readyz"]
            | ["metrics"]
            | ["v1", "status" | "peers" | "deadletters" | "audit"]
            | ["v1", "deadletters", "groups"]
            | ["v1", "segments", _]
            | ["v1", "segments", _, "content"],
            false,
            _,
        ) => Err(not_allowed(request, "GET, HEAD")),
        _ => Err(No::new(404, "not_found", format!("there is nothing under {}", target.path))),
    }
}

fn not_allowed(request: &Request, allow: &'static str) -> No {
    let message = format!("{} is not among {allow} here", request.method);
    No { allow: Some(allow), ..No::new(405, "method_not_allowed", message) }
}

fn prefix(id: &str) -> Result<IdPrefix, No> {
    IdPrefix::parse(id).ok_or_else(|| {
        No::new(400, "invalid_id", format!("{id:?} is not 6 to 64 hex digits of a segment id"))
    })
}

fn bad(what: &str, value: &str) -> No {
    No::new(400, "invalid", format!("{value:?} is not {what}"))
}

fn one<'q>(query: &'q Query, key: &str) -> Result<Option<&'q str>, No> {
    query.one(key).map_err(No::of_fault)
}

fn list(query: &str) -> Result<Listing, No> {
    let query = Query::parse(query, &["limit", "after", "state", "peer"]).map_err(No::of_fault)?;
    let mut listing = Listing::default();
    listing.limit = limit(&query)?;
    if let Some(after) = one(&query, "after")? {
        let seq = after.parse().map_err(|_| bad("an accept number", after))?;
        listing.after = Some(Seq(seq));
    }
    if let Some(state) = one(&query, "state")? {
        let words = "queued, sending, backing off, held, delivered or dead";
        listing.state = Some(Word::parse(state).ok_or_else(|| bad(words, state))?);
    }
    listing.peer = one(&query, "peer")?.map(String::from);
    Ok(listing)
}

fn dead(query: &str) -> Result<DeadListing, No> {
    let known = ["limit", "after", "peer", "reason", "older"];
    let query = Query::parse(query, &known).map_err(No::of_fault)?;
    let mut listing = DeadListing { limit: limit(&query)?, ..DeadListing::default() };
    if let Some(after) = one(&query, "after")? {
        let key = lists::parse_after(after);
        listing.after = Some(key.ok_or_else(|| bad("where a page ended", after))?);
    }
    if let Some(word) = one(&query, "reason")? {
        listing.reason = Some(Cause::from_word(word).ok_or_else(|| bad("a reason", word))?);
    }
    listing.older = one(&query, "older")?.map(seconds).transpose()?;
    listing.peer = one(&query, "peer")?.map(String::from);
    Ok(listing)
}

fn audit(query: &str) -> Result<AuditListing, No> {
    let query = Query::parse(query, &["limit", "after", "since"]).map_err(No::of_fault)?;
    let mut listing = AuditListing { limit: limit(&query)?, ..AuditListing::default() };
    if let Some(after) = one(&query, "after")? {
        listing.after = Some(after.parse().map_err(|_| bad("the number of a record", after))?);
    }
    if let Some(since) = one(&query, "since")? {
        let ms = since.parse().map_err(|_| bad("milliseconds since 1970", since))?;
        listing.since = Some(UnixMillis(ms));
    }
    Ok(listing)
}

fn seconds(text: &str) -> Result<Duration, No> {
    text.parse().map(Duration::from_secs).map_err(|_| bad("a number of seconds", text))
}

fn limit(query: &Query) -> Result<usize, No> {
    let most = Listing::LIMIT_MAX;
    let Some(limit) = one(query, "limit")? else { return Ok(Listing::default().limit) };
    let number = limit.parse().ok().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| bad(&format!("a limit from 1 to {most}"), limit))
}

fn submit(query: &str) -> Result<Submit, No> {
    let known = ["name", "to", "type", "label", "priority", "expires", "instance"];
    let query = Query::parse(query, &known).map_err(No::of_fault)?;
    let mut meta = Meta {
        name: one(&query, "name")?.unwrap_or_default().into(),
        content_type: one(&query, "type")?.unwrap_or_default().into(),
        ..Meta::default()
    };
    for label in query.all("label") {
        let (key, value) = label.split_once('=').ok_or_else(|| bad("a label K=V", label))?;
        meta.labels.push((key.into(), value.into()));
    }
    meta.labels.sort();
    if let Some(word) = one(&query, "priority")? {
        let words = "a priority: urgent, high, normal or bulk";
        meta.class = Class::from_word(word).ok_or_else(|| bad(words, word))?;
    }
    let mut random = false;
    match one(&query, "instance")? {
        None => {}
        Some("random") => random = true,
        Some(digits) => {
            let bytes = unhex::<16>(digits);
            let bytes = bytes.ok_or_else(|| bad("an instance of 32 hex digits", digits))?;
            meta.instance = bytes.to_vec();
        }
    }
    let expires = one(&query, "expires")?
        .map(|s| s.parse().ok().filter(|s| *s > 0).ok_or_else(|| bad("seconds from 1 up", s)))
        .transpose()?
        .map(Duration::from_secs);
    meta.check().map_err(|fault| No::new(400, "invalid", fault.to_string()))?;
    Ok(Submit { meta, to: destinations(&query)?, expires, random })
}

fn destinations(query: &Query) -> Result<Destinations, No> {
    let names: Vec<String> =
        query.all("to").flat_map(|to| to.split(',')).map(|n| n.trim().to_string()).collect();
    if names.is_empty() || names.iter().any(|n| n == "*") {
        return Ok(Destinations::All);
    }
    if let Some(name) = names.iter().find(|n| !is_site_name(n)) {
        return Err(bad("a site name: 1 to 128 characters of A-Z a-z 0-9 . _ -", name));
    }
    let count = names.len();
    Destinations::named(names).ok_or_else(|| bad("at most 256 destinations", &count.to_string()))
}

#[cfg(test)]
mod tests;
