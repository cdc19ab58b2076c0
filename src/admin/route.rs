//! Requests to what they ask for. Nothing is begun before all of it is understood.

pub(super) mod pickup;
mod table;

use std::time::Duration;

use consign_core::code::Cause;
use consign_core::http::{Query, Request};
use consign_core::id::{Seq, SiteNo, unhex};
use consign_core::ledger::keys_upkeep::{RuleId, parse_export};
use consign_core::node::{LogWanted, PathHash};
use consign_core::pickup::token::Token;
use consign_core::segment::{Class, Destinations, Meta, is_site_name};
use consign_core::session::WatchedFile;
use consign_core::time::UnixMillis;

use self::pickup::PickupRoute;
use super::assurance::{self, Selection};
use super::exports::{ExportListing, WatchListing};
use super::ledger::{IdPrefix, Listing, Word};
use super::lists::{self, AuditListing, DeadListing};
use super::refusal::No;
use super::shape;
use crate::events::Wanted;
use crate::page::links::FIELD;

/// How long a peer may take to answer unless something else is said.
const PING_WAIT: Duration = Duration::from_secs(5);
/// How long a question may wait for an event, or a peer: less than clients wait for any answer.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(50);

pub(crate) use table::rpc;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Health,
    Ready,
    Status,
    Stop,
    ConfirmClock,
    Reload,
    Log,
    SetLog(LogWanted),
    /// Whether a peer answers within a time.
    Ping(String, Duration),
    List(Listing),
    Show(IdPrefix),
    Content(IdPrefix),
    Submit(Box<Submit>),
    /// Many small ones with the same attributes.
    Batch(Box<Submit>),
    Act,
    Dead(DeadListing),
    Groups(DeadListing),
    Peers,
    Pending,
    Config,
    Audit(AuditListing),
    Metrics,
    Exports(ExportListing),
    ExportRun,
    ExportRetry(IdPrefix),
    Watched(WatchListing),
    Unwatch(RuleId, Vec<PathHash>),
    Pickup(PickupRoute),
    Assured(IdPrefix),
    Assurances(Selection),
    Shape(Option<(SiteNo, Seq)>),
    Events(Wanted, Duration),
    Page,
    Link,
    Enter(Token),
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
    /// The watched file that it is.
    pub(super) watched: Option<Box<WatchedFile>>,
}

/// Reads a request.
pub(super) fn route(request: &Request) -> Result<Route, No> {
    table::find(request)
}

/// A page shows the code of the link that it was opened by.
fn enter(request: &Request) -> Result<Route, No> {
    let code = request.headers.text(FIELD).and_then(Token::parse);
    code.map(Route::Enter).ok_or_else(No::of_code)
}

impl Route {
    /// The id of the one segment that it is about.
    pub(super) fn id_mut(&mut self) -> Option<&mut IdPrefix> {
        match self {
            Route::Show(id) | Route::Content(id) | Route::ExportRetry(id) | Route::Assured(id) => {
                Some(id)
            }
            _ => None,
        }
    }
}

fn prefix(id: &str) -> Result<IdPrefix, No> {
    IdPrefix::parse(id).ok_or_else(|| {
        No::new(400, "invalid_id", format!("{id:?} is not 6 to 64 hex digits of a segment id"))
    })
}

pub(super) fn bad(what: &str, value: &str) -> No {
    No::new(400, "invalid", format!("{value:?} is not {what}"))
}

pub(super) fn one<'q>(query: &'q Query, key: &str) -> Result<Option<&'q str>, No> {
    query.one(key).map_err(No::of_fault)
}

fn list(query: &str) -> Result<Listing, No> {
    let query = Query::parse(query, &["limit", "after", "state", "peer"]).map_err(No::of_fault)?;
    let mut listing = Listing { limit: limit(&query)?, ..Listing::default() };
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

fn assurances(query: &str) -> Result<Selection, No> {
    let query = Query::parse(query, &["limit", "after", "peer", "unmet"]).map_err(No::of_fault)?;
    let after = one(&query, "after")?
        .map(|text| assurance::parse_after(text).ok_or_else(|| bad("where a page ended", text)))
        .transpose()?;
    Ok(Selection {
        limit: limit(&query)?,
        after,
        peer: one(&query, "peer")?.map(String::from),
        unmet: one(&query, "unmet")?.is_some(),
    })
}

fn shape_after(query: &str) -> Result<Option<(SiteNo, Seq)>, No> {
    let query = Query::parse(query, &["after"]).map_err(No::of_fault)?;
    one(&query, "after")?
        .map(|text| shape::parse_after(text).ok_or_else(|| bad("where a page ended", text)))
        .transpose()
}

fn events(query: &str) -> Result<Route, No> {
    let query = Query::parse(query, &["since", "limit", "wait"]).map_err(No::of_fault)?;
    let since = one(&query, "since")?
        .map(|text| text.parse().map_err(|_| bad("the id of an event", text)))
        .transpose()?;
    let wait = one(&query, "wait")?.map(seconds).transpose()?.unwrap_or_default();
    if wait > WAIT_MAX {
        return Err(bad("at most 50 seconds", &wait.as_secs().to_string()));
    }
    Ok(Route::Events(Wanted { since, limit: limit(&query)? }, wait))
}

fn ping(name: &str, query: &str) -> Result<Route, No> {
    let query = Query::parse(query, &["wait"]).map_err(No::of_fault)?;
    let wait = one(&query, "wait")?.map(seconds).transpose()?.unwrap_or(PING_WAIT);
    if wait > WAIT_MAX {
        return Err(bad("at most 50 seconds", &wait.as_secs().to_string()));
    }
    Ok(Route::Ping(name.into(), wait))
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
    let known = [
        "name", "to", "type", "label", "priority", "expires", "instance", "watch", "path", "inode",
        "size", "modified",
    ];
    let query = Query::parse(query, &known).map_err(No::of_fault)?;
    let submit = attributes(&query)?;
    submit.meta.check().map_err(|fault| No::new(400, "invalid", fault.to_string()))?;
    Ok(Submit { watched: watched_file(&query)?, ..submit })
}

/// What a query says of a segment, not judged as a whole yet.
fn attributes(query: &Query) -> Result<Submit, No> {
    let mut meta = Meta {
        name: one(query, "name")?.unwrap_or_default().into(),
        content_type: one(query, "type")?.unwrap_or_default().into(),
        ..Meta::default()
    };
    for label in query.all("label") {
        let (key, value) = label.split_once('=').ok_or_else(|| bad("a label K=V", label))?;
        meta.labels.push((key.into(), value.into()));
    }
    meta.labels.sort();
    if let Some(word) = one(query, "priority")? {
        let words = "a priority: urgent, high, normal or bulk";
        meta.class = Class::from_word(word).ok_or_else(|| bad(words, word))?;
    }
    let mut random = false;
    match one(query, "instance")? {
        None => {}
        Some("random") => random = true,
        Some(digits) => {
            let bytes = unhex::<16>(digits);
            let bytes = bytes.ok_or_else(|| bad("an instance of 32 hex digits", digits))?;
            meta.instance = bytes.to_vec();
        }
    }
    let expires = one(query, "expires")?
        .map(|s| s.parse().ok().filter(|s| *s > 0).ok_or_else(|| bad("seconds from 1 up", s)))
        .transpose()?
        .map(Duration::from_secs);
    Ok(Submit { meta, to: destinations(query)?, expires, random, watched: None })
}

/// What all items of a batch share. Names are in the batch.
fn batch(query: &str) -> Result<Submit, No> {
    let known = ["to", "type", "label", "priority", "expires", "instance"];
    let query = Query::parse(query, &known).map_err(No::of_fault)?;
    let shared = attributes(&query)?;
    match one(&query, "instance")? {
        None | Some("random") => Ok(shared),
        Some(other) => Err(bad("random: items of a batch name instances of their own", other)),
    }
}

fn rule(text: &str) -> Result<RuleId, No> {
    let rule = unhex::<8>(text).map(|bytes| RuleId(u64::from_be_bytes(bytes)));
    rule.ok_or_else(|| bad("a rule of 16 hex digits", text))
}

/// A parameter that must be there.
pub(super) fn must<'q>(query: &'q Query, key: &str) -> Result<&'q str, No> {
    one(query, key)?.ok_or_else(|| No::new(400, "invalid", format!("{key} is missing")))
}

fn number<T: std::str::FromStr>(query: &Query, key: &str) -> Result<T, No> {
    let text = must(query, key)?;
    text.parse().map_err(|_| bad(&format!("a number for {key}"), text))
}

fn watched_file(query: &Query) -> Result<Option<Box<WatchedFile>>, No> {
    let Some(of) = one(query, "watch")? else { return Ok(None) };
    let digits = must(query, "path")?;
    let pair = |pair: &[u8]| unhex::<1>(std::str::from_utf8(pair).ok()?).map(|[byte]| byte);
    let path: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
    Ok(Some(Box::new(WatchedFile {
        rule: rule(of)?,
        path: path.ok_or_else(|| bad("a path in hex digits", digits))?,
        inode: number(query, "inode")?,
        size: number(query, "size")?,
        modified: number(query, "modified")?,
    })))
}

fn exports(query: &str) -> Result<ExportListing, No> {
    let query = Query::parse(query, &["all", "from"]).map_err(No::of_fault)?;
    let from = one(&query, "from")?
        .map(|key| {
            let parsed = unhex::<16>(key).and_then(|key| parse_export(&key));
            parsed.ok_or_else(|| bad("the beginning of a page", key))
        })
        .transpose()?;
    Ok(ExportListing { from, all: one(&query, "all")?.is_some() })
}

fn watched(query: &str) -> Result<WatchListing, No> {
    let query = Query::parse(query, &["rule", "from"]).map_err(No::of_fault)?;
    let from = one(&query, "from")?
        .map(|key| unhex::<32>(key).ok_or_else(|| bad("the beginning of a page", key)))
        .transpose()?;
    Ok(WatchListing { rule: rule(must(&query, "rule")?)?, from: from.unwrap_or_default() })
}

fn unwatch(query: &str) -> Result<Route, No> {
    let query = Query::parse(query, &["rule", "path"]).map_err(No::of_fault)?;
    let hash = |digits| {
        let hash = unhex::<32>(digits).map(PathHash);
        hash.ok_or_else(|| bad("a hash of 64 hex digits", digits))
    };
    let paths: Result<Vec<PathHash>, No> = query.all("path").map(hash).collect();
    Ok(Route::Unwatch(rule(must(&query, "rule")?)?, paths?))
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
