//! What the node tells pickup sessions.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::{AckAsk, PickupRefusal};
use crate::id::{BlobDigest, BlobNo, Sha256Digest, TransferNo};
use crate::ledger::keys_pickup::ShardKey;
use crate::ledger::rows::{Body, Loss};
use crate::ledger::rows_pickup::ShardState;
use crate::time::UnixMillis;

/// A shard as the upload's answer shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardView {
    /// State.
    pub state: ShardState,
    /// Where the content is, while the relay owns it; shown as `buffer_id`.
    pub buffer: Option<Body>,
    /// Length.
    pub size: u64,
    /// SHA-256.
    pub sha256: Sha256Digest,
    /// BLAKE3.
    pub blake3: BlobDigest,
    /// When the lease is over; `None` once stored.
    pub expires_at: Option<UnixMillis>,
}

/// Content to be served to the node that redeemed its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serve {
    /// The shard.
    pub shard: ShardKey,
    /// Number of this redemption.
    pub redemption: u64,
    /// Where the content is.
    pub body: Body,
    /// Length of the whole.
    pub size: u64,
    /// SHA-256 of the whole.
    pub sha256: Sha256Digest,
    /// BLAKE3 of the whole.
    pub blake3: BlobDigest,
}

/// A `pending_notify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    /// The shard.
    pub shard: ShardKey,
    /// Where the content is; shown as `buffer_id`.
    pub buffer: Body,
    /// Length.
    pub size: u64,
    /// SHA-256.
    pub sha256: Sha256Digest,
    /// BLAKE3.
    pub blake3: BlobDigest,
    /// Which of the session's tokens.
    pub handle: u64,
    /// When its time is over.
    pub token_expires_at: UnixMillis,
    /// Its redemption number.
    pub redemption: u64,
}

/// What an operator's act came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether anything was changed.
    pub changed: bool,
    /// For people: what it is now.
    pub text: String,
}

/// What only the commit gate releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The `incoming` row is committed: create or reopen the file and take the body.
    Granted {
        /// The request.
        ticket: TransferNo,
        /// The file.
        blob: BlobNo,
        /// Where to begin.
        offset: u64,
        /// As in [`super::BrokenUpload::Cut`]; empty at offset 0.
        chain: Vec<u8>,
        /// Bytes reserved in all.
        reserved: u64,
        /// Length of the whole shard, where it is known by now.
        size: Option<u64>,
        /// Digests of the whole that were given with an earlier request.
        sha256: Option<Sha256Digest>,
        /// The same.
        blake3: Option<BlobDigest>,
    },
    /// The content is committed.
    Buffered {
        /// The request.
        ticket: TransferNo,
        /// Whether this request brought it (201); else it was there (200).
        new: bool,
        /// The shard.
        view: Box<ShardView>,
    },
    /// How far an upload is; committed.
    Offset {
        /// The request.
        ticket: TransferNo,
        /// Durable length.
        offset: u64,
        /// Whether it is whole.
        complete: bool,
        /// State.
        state: ShardState,
        /// What was found wrong with the content here, if it was given up for that.
        loss: Option<Loss>,
    },
    /// A slot is committed.
    Slot {
        /// The request.
        ticket: TransferNo,
        /// Whether it is new (201).
        new: bool,
        /// When it runs out.
        expires_at: UnixMillis,
    },
    /// The token is consumed and the state changed in one commit: the first byte may leave.
    Serve {
        /// The request.
        ticket: TransferNo,
        /// What.
        serve: Box<Serve>,
    },
    /// The nonce is spent: upgrade.
    Upgraded {
        /// The request.
        ticket: TransferNo,
    },
    /// The registration is committed.
    Registered {
        /// Number of this session, for people.
        session: u64,
        /// Shards that are owed to the node.
        owed: u64,
    },
    /// The token's row is committed.
    Notify(Box<Notify>),
    /// The ack is committed, or was before.
    State {
        /// The shard.
        shard: ShardKey,
        /// The redemption that was acked.
        redemption: u64,
        /// State now.
        state: ShardState,
    },
    /// An operator's act is committed.
    Done {
        /// The request.
        ticket: TransferNo,
        /// What it came to.
        report: Report,
    },
}

/// What the node tells a pickup session without a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// No.
    Refuse {
        /// The request.
        ticket: TransferNo,
        /// Why.
        refusal: PickupRefusal,
        /// Seconds to wait where waiting helps; 0 says nothing.
        retry_after: u64,
        /// `Upload-Offset` of a 409, `*/SIZE` of a 416.
        number: Option<u64>,
        /// For people, with numbers.
        text: String,
    },
    /// An ack that changes nothing (`error`).
    AckRefused {
        /// The ack as it came.
        ack: Box<AckAsk>,
        /// Why.
        refusal: PickupRefusal,
        /// For people.
        text: String,
    },
    /// A fetch has no right to go on: a sweep or a later redemption. Reset the connection.
    ResetFetch {
        /// The fetch.
        redemption: u64,
    },
    /// End the WebSocket: 4001 replaced, 1008 revoked, 1001 stopping.
    CloseWs {
        /// Close code.
        code: u16,
        /// For people.
        text: String,
    },
}
