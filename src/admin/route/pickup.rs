//! Requests about nodes, clients and shards.

use consign_core::http::{Method, Query, Request, Target};
use consign_core::ledger::keys_pickup::{ShardKey, is_node_id};
use consign_core::ledger::rows_pickup::ShardState;

use super::{No, bad, limit, must, not_allowed, one};
use crate::admin::pickup::lists::{NameListing, ShardListing, parse_after};
use crate::admin::pickup::parse_shard;

/// What a request about pickup asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::admin) enum PickupRoute {
    Act,
    Nodes(NameListing),
    Clients(NameListing),
    Shards(ShardListing),
    Shard(ShardKey),
}

/// Reads a request; `rest` is its path behind `/v1/pickup`.
pub(super) fn route(request: &Request, rest: &[&str], query: &str) -> Result<PickupRoute, No> {
    let reads = matches!(request.method, Method::Get | Method::Head);
    match (rest, reads, request.method == Method::Post) {
        (["acts"], _, true) => {
            Query::parse(query, &[]).map_err(No::of_fault).map(|_| PickupRoute::Act)
        }
        (["nodes"], true, _) => names(query).map(PickupRoute::Nodes),
        (["clients"], true, _) => names(query).map(PickupRoute::Clients),
        (["shards"], true, _) => shards(query).map(PickupRoute::Shards),
        (["shard"], true, _) => shard(query).map(PickupRoute::Shard),
        (["acts"], _, false) => Err(not_allowed(request, "POST")),
        (["nodes" | "clients" | "shards" | "shard"], false, _) => {
            Err(not_allowed(request, "GET, HEAD"))
        }
        _ => {
            let path = Target::of(&request.target).path;
            Err(No::new(404, "not_found", format!("there is nothing under {path}")))
        }
    }
}

fn names(query: &str) -> Result<NameListing, No> {
    let query = Query::parse(query, &["limit", "after"]).map_err(No::of_fault)?;
    let after = one(&query, "after")?.map(String::from);
    Ok(NameListing { limit: limit(&query)?, after })
}

fn shards(query: &str) -> Result<ShardListing, No> {
    let known = ["limit", "after", "state", "node"];
    let query = Query::parse(query, &known).map_err(No::of_fault)?;
    let mut listing = ShardListing { limit: limit(&query)?, ..ShardListing::default() };
    if let Some(after) = one(&query, "after")? {
        let shard = parse_after(after).ok_or_else(|| bad("where a page ended", after))?;
        listing.after = Some(shard);
    }
    if let Some(word) = one(&query, "state")? {
        listing.state =
            Some(ShardState::from_word(word).ok_or_else(|| bad("a state of shards", word))?);
    }
    if let Some(node) = one(&query, "node")? {
        if !is_node_id(node) {
            return Err(bad("the id of a node: 1 to 128 characters of A-Z a-z 0-9 . _ -", node));
        }
        listing.node = Some(node.into());
    }
    Ok(listing)
}

fn shard(query: &str) -> Result<ShardKey, No> {
    let query = Query::parse(query, &["key"]).map_err(No::of_fault)?;
    parse_shard(must(&query, "key")?).map_err(|why| No::new(400, "invalid", why))
}
