//! Nodes, clients and shards as they stand in the ledger. Pure functions over a snapshot.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use consign_core::http::rfc3339;
use consign_core::ledger::keys_pickup::{self as keys, ShardKey};
use consign_core::ledger::read::lenient;
use consign_core::ledger::rows_pickup::{ClientRow, NodeRow, ShardRow, ShardState};
use consign_core::ledger::{Table, codec};
use consign_core::pickup::message::buffer_id;
use consign_core::store::{Snapshot, StoreFault};
use consign_core::time::UnixMillis;

use super::{parse_shard, shard_text};

/// Rows looked at for one answer.
const LOOKED_MAX: usize = 8_192;

/// Which nodes, or which clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::admin) struct NameListing {
    pub(in crate::admin) limit: usize,
    pub(in crate::admin) after: Option<String>,
}

/// Which shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::admin) struct ShardListing {
    pub(in crate::admin) limit: usize,
    pub(in crate::admin) after: Option<ShardKey>,
    pub(in crate::admin) state: Option<ShardState>,
    pub(in crate::admin) node: Option<String>,
}

/// A page of nodes, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nodes {
    /// `consign.nodes/1`
    pub schema: String,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// `after` of the next page, if there may be one.
    pub next: Option<String>,
}

/// A node that picks shards up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// `consign.node/1`
    pub schema: String,
    /// Its id.
    pub id: String,
    /// Its public keys, one or two.
    pub keys: Vec<Key>,
    /// When it was enrolled first.
    pub enrolled_at: String,
    /// When it was revoked.
    pub revoked_at: Option<String>,
    /// When it registered last.
    pub registered_at: Option<String>,
}

/// A public key of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Key {
    /// 32 bytes in base64.
    pub key: String,
    /// When it was enrolled.
    pub enrolled_at: String,
}

/// A page of clients, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clients {
    /// `consign.clients/1`
    pub schema: String,
    /// The clients.
    pub clients: Vec<Client>,
    /// `after` of the next page, if there may be one.
    pub next: Option<String>,
}

/// A client that may upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Client {
    /// `consign.client/1`
    pub schema: String,
    /// Its name.
    pub name: String,
    /// When it was enrolled, or got its present token.
    pub enrolled_at: String,
    /// When it was revoked.
    pub revoked_at: Option<String>,
}

/// A page of shards, in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shards {
    /// `consign.shards/1`
    pub schema: String,
    /// The shards.
    pub shards: Vec<Shard>,
    /// `after` of the next page, if there may be one: a shard as `FILE_ID/VERSION/SHARD@NODE`.
    pub next: Option<String>,
}

/// A shard in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shard {
    /// The file it is a part of.
    pub file_id: String,
    /// Version of that file.
    pub version_number: u64,
    /// Which part it is.
    pub shard_index: u64,
    /// The node it is for.
    pub node_id: String,
    /// How often it was begun anew.
    pub generation: u64,
    /// Its state.
    pub state: String,
    /// Set exactly while the relay has the content.
    pub buffer_id: Option<String>,
    /// Length in bytes, once known.
    pub size: Option<u64>,
    /// Number of the newest token, or of the fetch under way; 0 before the first.
    pub redemption: u64,
    /// Pickups that failed.
    pub failed_acks: u32,
    /// When the relay gives it up.
    pub expires_at: Option<String>,
}

/// A shard with all that is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShardShown {
    /// `consign.shard/1`
    pub schema: String,
    /// As in a list.
    #[serde(flatten)]
    pub shard: Shard,
    /// The client that began it.
    pub client: String,
    /// Digests of the content, once known.
    pub digest: Digests,
    /// When it entered its present state.
    pub since: String,
    /// When it was buffered first.
    pub buffered_at: Option<String>,
    /// When upload or fetch last moved.
    pub progress_at: Option<String>,
    /// How often it came to wait for its node.
    pub entries: u64,
    /// Not notified again in the present session before this.
    pub notify_after: Option<String>,
    /// When the site acts on it by itself: a lease, a grace, or the end of its history.
    pub deadline: Option<String>,
    /// What the last `failed` ack gave as its reason, or what is wrong with the content here.
    pub reason: String,
}

/// Digests of a shard, in hex.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Digests {
    /// SHA-256.
    #[serde(rename = "sha-256")]
    pub sha256: Option<String>,
    /// BLAKE3.
    pub blake3: Option<String>,
}

fn time(ms: u64) -> String {
    rfc3339(UnixMillis(ms))
}

/// A time that is kept as 0 where there is none.
fn some_time(ms: u64) -> Option<String> {
    (ms > 0).then(|| time(ms))
}

impl Shard {
    fn of(key: &ShardKey, row: &ShardRow) -> Shard {
        Shard {
            file_id: key.file_id().into(),
            version_number: key.version(),
            shard_index: key.index(),
            node_id: key.node().into(),
            generation: row.generation,
            state: row.state.word().into(),
            buffer_id: row.buffer.map(buffer_id),
            size: row.size,
            redemption: row.redemption,
            failed_acks: row.failed_acks,
            expires_at: row.expires_at.filter(|_| row.buffer.is_some()).map(time),
        }
    }
}

/// Takes a row by its name, key and value; whether it belongs to the page.
type Add<'a> = &'a mut dyn FnMut(&str, &[u8], &[u8]) -> bool;

/// Visits rows behind `after` whose names are their keys, until a page is full; says where it ended.
fn by_name(
    snapshot: &dyn Snapshot,
    table: Table,
    listing: &NameListing,
    add: Add<'_>,
) -> Result<Option<String>, StoreFault> {
    let after = listing.after.as_deref().unwrap_or_default();
    let (mut taken, mut looked, mut last, mut next) = (0, 0, None, None);
    snapshot.scan(table, after.as_bytes(), &mut |key, value| {
        // Nothing is named by the empty string, so that it stands for the beginning.
        if key == after.as_bytes() {
            return true;
        }
        if taken >= listing.limit || looked >= LOOKED_MAX {
            next = last.take();
            return false;
        }
        looked += 1;
        if let Ok(name) = std::str::from_utf8(key) {
            taken += usize::from(add(name, key, value));
            last = Some(name.to_owned());
        }
        true
    })?;
    Ok(next)
}

/// A page of nodes.
///
/// # Errors
/// When the store cannot be read.
pub(in crate::admin) fn nodes(
    snapshot: &dyn Snapshot,
    listing: &NameListing,
) -> Result<Nodes, StoreFault> {
    let mut page = Nodes { schema: "consign.nodes/1".into(), ..Nodes::default() };
    page.next = by_name(snapshot, Table::Nodes, listing, &mut |id, key, value| {
        let Ok(row) = codec::decode::<NodeRow>(Table::Nodes, key, value) else { return false };
        let keys = row.keys.iter().map(|key| Key {
            key: STANDARD.encode(key.public),
            enrolled_at: time(key.enrolled_at),
        });
        page.nodes.push(Node {
            schema: "consign.node/1".into(),
            id: id.into(),
            keys: keys.collect(),
            enrolled_at: time(row.enrolled_at),
            revoked_at: row.revoked_at.map(time),
            registered_at: row.registered_at.map(time),
        });
        true
    })?;
    Ok(page)
}

/// A page of clients.
///
/// # Errors
/// When the store cannot be read.
pub(in crate::admin) fn clients(
    snapshot: &dyn Snapshot,
    listing: &NameListing,
) -> Result<Clients, StoreFault> {
    let mut page = Clients { schema: "consign.clients/1".into(), ..Clients::default() };
    page.next = by_name(snapshot, Table::Clients, listing, &mut |name, key, value| {
        let Ok(row) = codec::decode::<ClientRow>(Table::Clients, key, value) else { return false };
        page.clients.push(Client {
            schema: "consign.client/1".into(),
            name: name.into(),
            enrolled_at: time(row.enrolled_at),
            revoked_at: row.revoked_at.map(time),
        });
        true
    })?;
    Ok(page)
}

/// A page of shards: of one node by its own index, otherwise all of them.
///
/// # Errors
/// When the store cannot be read.
pub(in crate::admin) fn shards(
    snapshot: &dyn Snapshot,
    listing: &ShardListing,
) -> Result<Shards, StoreFault> {
    let mut page = Shards { schema: "consign.shards/1".into(), ..Shards::default() };
    let after = listing.after.as_ref();
    let (table, prefix) = match &listing.node {
        Some(node) => (Table::ByNode, keys::by_node_prefix(node)),
        None => (Table::Shards, keys::LongKey::new()),
    };
    let behind = after.map(|shard| match &listing.node {
        Some(_) => keys::by_node(shard),
        None => shard.key(),
    });
    let from = behind.as_ref().filter(|key| key.starts_with(&prefix)).unwrap_or(&prefix);
    let (mut looked, mut last, mut fault) = (0, None, None);
    snapshot.scan(table, from, &mut |key, value| {
        if !key.starts_with(&prefix) {
            return false;
        }
        if Some(key) == behind.as_deref() {
            return true;
        }
        if page.shards.len() >= listing.limit || looked >= LOOKED_MAX {
            page.next = last.take();
            return false;
        }
        looked += 1;
        let (shard, row) = match &listing.node {
            None => (ShardKey::parse(key), codec::decode::<ShardRow>(table, key, value).ok()),
            Some(_) => {
                let shard = keys::parse_by_node(key);
                let row = shard
                    .as_ref()
                    .map(|shard| lenient::<ShardRow>(snapshot, Table::Shards, &shard.key()));
                match row.transpose() {
                    Ok(row) => (shard, row.flatten()),
                    Err(why) => {
                        fault = Some(why);
                        return false;
                    }
                }
            }
        };
        let Some(shard) = shard else { return true };
        last = Some(shard_text(&shard));
        // A row that cannot be read is the business of `fsck`; the others are shown.
        if let Some(row) = row
            && listing.state.is_none_or(|state| state == row.state)
        {
            page.shards.push(Shard::of(&shard, &row));
        }
        true
    })?;
    fault.map_or(Ok(page), Err)
}

/// A shard; `None` when there is none.
///
/// # Errors
/// When the store, or the row, cannot be read.
pub(in crate::admin) fn shard(
    snapshot: &dyn Snapshot,
    key: &ShardKey,
) -> Result<Option<ShardShown>, StoreFault> {
    let bytes = key.key();
    let Some(value) = snapshot.get(Table::Shards, &bytes)? else { return Ok(None) };
    let row = codec::decode::<ShardRow>(Table::Shards, &bytes, value)
        .map_err(|why| StoreFault::Corrupt(why.to_string()))?;
    Ok(Some(ShardShown {
        schema: "consign.shard/1".into(),
        shard: Shard::of(key, &row),
        client: row.client,
        digest: Digests {
            sha256: row.sha256.map(|digest| digest.to_string()),
            blake3: row.blake3.map(|digest| digest.to_string()),
        },
        since: time(row.since),
        buffered_at: row.buffered_at.map(time),
        progress_at: some_time(row.progress_at),
        entries: row.entries,
        notify_after: some_time(row.notify_after),
        deadline: some_time(row.deadline),
        reason: row.reason,
    }))
}

/// `after` of a page of shards.
pub(in crate::admin) fn parse_after(text: &str) -> Option<ShardKey> {
    parse_shard(text).ok()
}
