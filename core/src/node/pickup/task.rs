//! What can be asked of pickup, or becomes due, and the rows that it rests on.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::overlay::Place;
use crate::id::{BlobDigest, BlobNo, Sha256Digest, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys_pickup::{self, ShardKey};
use crate::ledger::keys_upkeep::ExpiryKind;
use crate::ledger::rows::{Body, Loss};
use crate::node::Node;
use crate::pickup::{
    AckAsk, BrokenUpload, FetchAsk, Operator, OperatorAct, Signed, TokenOffer, UploadAsk,
};
use crate::time::UnixMillis;

/// Something to be judged, without its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Upload {
        ticket: TransferNo,
        ask: Box<UploadAsk>,
    },
    Extend {
        ticket: TransferNo,
        blob: BlobNo,
    },
    Checkpoint {
        blob: BlobNo,
        offset: u64,
        chain: Vec<u8>,
    },
    Whole {
        ticket: TransferNo,
        blob: BlobNo,
        size: u64,
        sha256: Sha256Digest,
        blake3: BlobDigest,
    },
    Broken {
        ticket: TransferNo,
        blob: BlobNo,
        why: BrokenUpload,
    },
    /// The writer is gone without a word.
    Quit {
        blob: BlobNo,
    },
    /// Content is given up after a failed commit.
    Discard {
        shard: ShardKey,
        blob: BlobNo,
    },
    Head {
        ticket: TransferNo,
        shard: ShardKey,
        client: Option<Sha256Digest>,
    },
    Slot {
        ticket: TransferNo,
        shard: ShardKey,
        client: Option<Sha256Digest>,
        size: u64,
    },
    Fetch {
        ticket: TransferNo,
        ask: Box<FetchAsk>,
    },
    /// Bytes of a fetch have moved, long after that was written last.
    Moved {
        shard: ShardKey,
        redemption: u64,
        at: UnixMillis,
    },
    /// A fetch broke off.
    FetchBroken {
        shard: ShardKey,
        redemption: u64,
        moved: bool,
        /// What is wrong with the content here.
        why: Option<String>,
    },
    Subscribe {
        ticket: TransferNo,
        signed: Signed,
    },
    /// A nonce of a request that was refused, after a failed commit.
    Spend {
        signed: Signed,
    },
    Register {
        node: String,
        tokens: Vec<TokenOffer>,
        owed: u64,
    },
    Ack(Box<AckAsk>),
    Operator {
        ticket: TransferNo,
        act: Box<Operator>,
    },
    /// A shard that a node may be notified of.
    Notify {
        shard: ShardKey,
        session: u64,
    },
    Deadline {
        at: UnixMillis,
        shard: ShardKey,
    },
    /// Content was compared with its digest, and is wrong.
    Spoiled {
        shard: ShardKey,
        body: Body,
        loss: Loss,
    },
    /// A row of `expiry`, with its key there and its key in its own table.
    Expire {
        kind: ExpiryKind,
        expiry: Vec<u8>,
        key: Vec<u8>,
    },
}

impl Node {
    /// The rows that it rests on, as far as that is known beforehand.
    pub(super) fn keys_of(&self, task: &Task) -> Vec<Place> {
        let shard = |shard: &ShardKey| (Table::Shards, shard.key().to_vec());
        let node = |id: &str| (Table::Nodes, keys_pickup::node(id).to_vec());
        let signed = |s: &Signed| {
            [node(&s.node), (Table::Nonces, keys_pickup::nonce(&s.node, &s.nonce).to_vec())]
        };
        match task {
            Task::Upload { ask, .. } => [node(ask.shard.node()), shard(&ask.shard)].into(),
            Task::Slot { shard: key, .. } => [node(key.node()), shard(key)].into(),
            Task::Extend { blob, .. }
            | Task::Checkpoint { blob, .. }
            | Task::Whole { blob, .. }
            | Task::Broken { blob, .. } => {
                self.pickup.uploads.get(blob).map(|u| shard(&u.shard)).into_iter().collect()
            }
            Task::Quit { .. } => Vec::new(),
            Task::Discard { shard: key, .. }
            | Task::Head { shard: key, .. }
            | Task::Moved { shard: key, .. }
            | Task::FetchBroken { shard: key, .. }
            | Task::Notify { shard: key, .. }
            | Task::Spoiled { shard: key, .. }
            | Task::Deadline { shard: key, .. } => [shard(key)].into(),
            Task::Fetch { ask, .. } => {
                let token = ask.token.map(|hash| (Table::Tokens, hash.0.to_vec()));
                signed(&ask.signed).into_iter().chain(token).collect()
            }
            Task::Subscribe { signed: s, .. } | Task::Spend { signed: s } => signed(s).into(),
            Task::Register { node: id, .. } => [node(id)].into(),
            Task::Ack(ask) => [shard(&ask.shard)].into(),
            Task::Operator { act, .. } => match &act.act {
                OperatorAct::EnrolNode { id, .. } | OperatorAct::RevokeNode { id, .. } => {
                    [node(id)].into()
                }
                OperatorAct::EnrolClient { .. } | OperatorAct::RevokeClient { .. } => Vec::new(),
                OperatorAct::RetryShard { shard: key }
                | OperatorAct::AbandonShard { shard: key } => [shard(key)].into(),
            },
            Task::Expire { kind, key, .. } => {
                let table = super::expire::table_of(*kind);
                table.map(|table| (table, key.clone())).into_iter().collect()
            }
        }
    }
}

/// Whether it makes the ledger or the store grow.
pub(super) fn is_growth(task: &Task) -> bool {
    match task {
        Task::Upload { .. } | Task::Extend { .. } | Task::Whole { .. } | Task::Slot { .. } => true,
        Task::Operator { act, .. } => match act.act {
            OperatorAct::EnrolNode { .. } | OperatorAct::EnrolClient { .. } => true,
            OperatorAct::RevokeNode { .. }
            | OperatorAct::RevokeClient { .. }
            | OperatorAct::RetryShard { .. }
            | OperatorAct::AbandonShard { .. } => false,
        },
        Task::Checkpoint { .. }
        | Task::Broken { .. }
        | Task::Quit { .. }
        | Task::Discard { .. }
        | Task::Head { .. }
        | Task::Fetch { .. }
        | Task::Moved { .. }
        | Task::FetchBroken { .. }
        | Task::Subscribe { .. }
        | Task::Spend { .. }
        | Task::Register { .. }
        | Task::Ack(_)
        | Task::Notify { .. }
        | Task::Deadline { .. }
        | Task::Spoiled { .. }
        | Task::Expire { .. } => false,
    }
}

/// Whether a nonce is spent or removed by it.
pub(super) fn touches_nonces(task: &Task) -> bool {
    matches!(
        task,
        Task::Fetch { .. }
            | Task::Subscribe { .. }
            | Task::Spend { .. }
            | Task::Expire { kind: ExpiryKind::Nonce, .. }
    )
}

/// Whether it is for nothing once whoever asked is gone, and not begun when this site is stopping.
pub(super) fn needs_its_connection(task: &Task) -> bool {
    match task {
        Task::Upload { .. }
        | Task::Head { .. }
        | Task::Slot { .. }
        | Task::Fetch { .. }
        | Task::Subscribe { .. }
        | Task::Register { .. }
        | Task::Operator { .. } => true,
        Task::Extend { .. }
        | Task::Checkpoint { .. }
        | Task::Whole { .. }
        | Task::Broken { .. }
        | Task::Quit { .. }
        | Task::Discard { .. }
        | Task::Moved { .. }
        | Task::FetchBroken { .. }
        | Task::Spend { .. }
        | Task::Ack(_)
        | Task::Notify { .. }
        | Task::Deadline { .. }
        | Task::Spoiled { .. }
        | Task::Expire { .. } => false,
    }
}
