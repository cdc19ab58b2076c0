//! The tables of pickup in the durable image of a site.

use std::collections::{BTreeMap, BTreeSet};

use consign_core::id::{BlobNo, BodyNo, Sha256Digest};
use consign_core::ledger::keys::take;
use consign_core::ledger::keys_pickup::{
    ShardKey, parse_by_node, parse_nonce, parse_shard_deadline,
};
use consign_core::ledger::rows::Body;
use consign_core::ledger::rows_pickup::{
    ClientRow, NodeRow, NonceRow, ShardRow, ShardState, TokenRow,
};
use consign_core::ledger::{Table, codec};

use super::disk::{maps, sets};
use super::rows;
use super::site::Site;

/// A nonce with the node whose it is.
pub(super) type Nonce = (String, [u8; 16]);

/// Which row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    Shard(ShardKey),
    ByNode(ShardKey),
    Deadline(u64, ShardKey),
    Token(Sha256Digest),
    Nonce(Nonce),
    Node(String),
    Client(String),
    Owner(BlobNo, ShardKey),
}

/// A row with its key.
#[derive(Clone, Debug)]
pub(super) enum Row {
    Shard(ShardKey, Box<ShardRow>),
    ByNode(ShardKey),
    Deadline(u64, ShardKey),
    Token(Sha256Digest, Box<TokenRow>),
    Nonce(Nonce, NonceRow),
    Node(String, Box<NodeRow>),
    Client(String, ClientRow),
    Owner(BlobNo, ShardKey),
}

/// Which row a key means.
pub(super) fn name(table: Table, key: &[u8]) -> Option<Name> {
    let text = || std::str::from_utf8(key).ok().map(str::to_string);
    match table {
        Table::Shards => ShardKey::parse(key).map(Name::Shard),
        Table::ByNode => parse_by_node(key).map(Name::ByNode),
        Table::ShardDeadlines => {
            parse_shard_deadline(key).map(|(at, shard)| Name::Deadline(at.0, shard))
        }
        Table::Tokens => {
            let mut rest = key;
            let hash = take(&mut rest).filter(|_| rest.is_empty())?;
            Some(Name::Token(Sha256Digest(hash)))
        }
        Table::Nonces => parse_nonce(key).map(|(node, nonce)| Name::Nonce((node.into(), nonce))),
        Table::Nodes => text().map(Name::Node),
        Table::Clients => text().map(Name::Client),
        _ => None,
    }
}

/// Reads a row.
///
/// # Errors
/// What is wrong with it, for people.
pub(super) fn row(name: Name, table: Table, key: &[u8], value: &[u8]) -> Result<Row, String> {
    macro_rules! value {
        ($row:ty) => {
            codec::decode::<$row>(table, key, value).map_err(|fault| fault.to_string())?
        };
    }
    Ok(match name {
        Name::Shard(shard) => Row::Shard(shard, Box::new(value!(ShardRow))),
        Name::ByNode(shard) => Row::ByNode(shard),
        Name::Deadline(at, shard) => Row::Deadline(at, shard),
        Name::Token(hash) => Row::Token(hash, Box::new(value!(TokenRow))),
        Name::Nonce(nonce) => Row::Nonce(nonce, value!(NonceRow)),
        Name::Node(id) => Row::Node(id, Box::new(value!(NodeRow))),
        Name::Client(name) => Row::Client(name, value!(ClientRow)),
        Name::Owner(blob, shard) => Row::Owner(blob, shard),
    })
}

/// The tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub shards: BTreeMap<ShardKey, ShardRow>,
    pub by_node: BTreeSet<ShardKey>,
    pub deadlines: BTreeSet<(u64, ShardKey)>,
    pub tokens: BTreeMap<Sha256Digest, TokenRow>,
    pub nonces: BTreeMap<Nonce, NonceRow>,
    pub nodes: BTreeMap<String, NodeRow>,
    pub clients: BTreeMap<String, ClientRow>,
    pub owners: BTreeSet<(BlobNo, ShardKey)>,
}

impl Tables {
    pub fn set(&mut self, row: Row) -> bool {
        match row {
            Row::Shard(shard, row) => self.shards.insert(shard, *row).is_some(),
            Row::ByNode(shard) => !self.by_node.insert(shard),
            Row::Deadline(at, shard) => !self.deadlines.insert((at, shard)),
            Row::Token(hash, row) => self.tokens.insert(hash, *row).is_some(),
            Row::Nonce(nonce, row) => self.nonces.insert(nonce, row).is_some(),
            Row::Node(id, row) => self.nodes.insert(id, *row).is_some(),
            Row::Client(name, row) => self.clients.insert(name, row).is_some(),
            Row::Owner(blob, shard) => !self.owners.insert((blob, shard)),
        }
    }

    pub fn unset(&mut self, name: &Name) -> bool {
        match name {
            Name::Shard(shard) => self.shards.remove(shard).is_some(),
            Name::ByNode(shard) => self.by_node.remove(shard),
            Name::Deadline(at, shard) => self.deadlines.remove(&(*at, shard.clone())),
            Name::Token(hash) => self.tokens.remove(hash).is_some(),
            Name::Nonce(nonce) => self.nonces.remove(nonce).is_some(),
            Name::Node(id) => self.nodes.remove(id).is_some(),
            Name::Client(name) => self.clients.remove(name).is_some(),
            Name::Owner(blob, shard) => self.owners.remove(&(*blob, shard.clone())),
        }
    }

    pub fn owners_of(&self, blob: BlobNo) -> usize {
        self.owners.iter().filter(|(of, _)| *of == blob).count()
    }

    /// Bytes reserved for slots.
    pub fn reserved(&self) -> u64 {
        self.shards.values().map(|row| row.reserved).sum()
    }

    /// Whether a body is the content of a shard.
    pub fn uses(&self, body: BodyNo) -> bool {
        self.shards.values().any(|row| row.buffer == Some(Body::Inline(body)))
    }

    /// Shards in a state, and the bytes that are held or reserved for them apart from partial content.
    pub fn counted(&self, state: ShardState) -> (u64, u64) {
        let of = self.shards.values().filter(|row| row.state == state);
        of.fold((0, 0), |(count, bytes), row| (count + 1, bytes + held(row)))
    }

    pub fn differs(&self, real: &Tables, harmed: &BTreeSet<rows::Name>) -> Option<String> {
        let (a, b) = (self, real);
        let of = |table: &'static str| (table, harmed);
        let name = rows::Name::Pickup;
        maps(of("shards"), &a.shards, &b.shards, |k| name(Name::Shard(k.clone())))
            .or_else(|| {
                sets(of("by_node"), &a.by_node, &b.by_node, |k| name(Name::ByNode(k.clone())))
            })
            .or_else(|| {
                let key = |k: &(u64, ShardKey)| name(Name::Deadline(k.0, k.1.clone()));
                sets(of("shard_deadlines"), &a.deadlines, &b.deadlines, key)
            })
            .or_else(|| maps(of("tokens"), &a.tokens, &b.tokens, |k| name(Name::Token(*k))))
            .or_else(|| maps(of("nonces"), &a.nonces, &b.nonces, |k| name(Name::Nonce(k.clone()))))
            .or_else(|| maps(of("nodes"), &a.nodes, &b.nodes, |k| name(Name::Node(k.clone()))))
            .or_else(|| {
                maps(of("clients"), &a.clients, &b.clients, |k| name(Name::Client(k.clone())))
            })
            .or_else(|| {
                let key = |k: &(BlobNo, ShardKey)| name(Name::Owner(k.0, k.1.clone()));
                sets(of("owners"), &a.owners, &b.owners, key)
            })
    }
}

impl Site {
    /// Whether rows were destroyed on which shards rest.
    pub fn has_lost_shards(&self) -> bool {
        self.rolled_back || self.pickup_harmed
    }

    /// Whether the content of a shard was destroyed.
    pub fn lost_content(&self, row: &ShardRow) -> bool {
        let file = |blob: &BlobNo| self.harm.files.contains(blob);
        let of = match row.buffer {
            Some(Body::Blob(blob)) => Some(blob),
            Some(Body::Inline(_)) | None => row.incoming,
        };
        of.as_ref().is_some_and(file)
    }
}

/// Whether the relay owns the bytes of a shard in that state.
pub(super) fn owns(state: ShardState) -> bool {
    matches!(
        state,
        ShardState::RelayBuffered | ShardState::NodeReceiving | ShardState::NodeVerified
    )
}

/// Whether nothing leads out of it.
pub(super) fn ended(state: ShardState) -> bool {
    matches!(state, ShardState::NodeStored | ShardState::RelayCleanup)
}

fn held(row: &ShardRow) -> u64 {
    if owns(row.state) { row.size.unwrap_or(0) } else { row.reserved }
}
