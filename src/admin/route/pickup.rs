//! Requests about nodes, clients and shards.

use consign_core::http::Query;
use consign_core::ledger::keys_pickup::{ShardKey, is_node_id};
use consign_core::ledger::rows_pickup::ShardState;

use super::{No, bad, limit, must, one};
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

pub(super) fn names(query: &str) -> Result<NameListing, No> {
    let query = Query::parse(query, &["limit", "after"]).map_err(No::of_fault)?;
    let after = one(&query, "after")?.map(String::from);
    Ok(NameListing { limit: limit(&query)?, after })
}

pub(super) fn shards(query: &str) -> Result<ShardListing, No> {
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

pub(super) fn shard(query: &str) -> Result<ShardKey, No> {
    let query = Query::parse(query, &["key"]).map_err(No::of_fault)?;
    parse_shard(must(&query, "key")?).map_err(|why| No::new(400, "invalid", why))
}
