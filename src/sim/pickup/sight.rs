//! What clients and nodes do and are told, for those who watch.

use consign_core::id::Sha256Digest;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows_pickup::ShardState;

use crate::sim::time::Micros;

/// A shard with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Which.
    pub shard: ShardKey,
    /// SHA-256 of the content.
    pub sha256: Sha256Digest,
    /// Its length.
    pub size: u64,
}

/// One thing that a client or a node of a site has done or was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// A client is about to upload this.
    Handing(Content),
    /// A client was told that it is kept: 201 if new, else 200.
    Kept {
        /// What.
        content: Content,
        /// 201.
        new: bool,
        /// In which state.
        state: ShardState,
        /// Whether a `buffer_id` was told.
        buffered: bool,
        /// SHA-256 of the token that the client has shown.
        token: Sha256Digest,
        /// When it has asked.
        asked: Micros,
    },
    /// A client was told how far its upload is.
    Offset {
        /// Of what.
        content: Content,
        /// Durable length.
        offset: u64,
        /// Whether that is all.
        complete: bool,
        /// In which state.
        state: ShardState,
    },
    /// A node is registered.
    Registered {
        /// Who.
        node: String,
        /// Its session's number.
        session: u64,
    },
    /// A registered node's session is over, as far as the node knows.
    Gone {
        /// Who.
        node: String,
        /// Its session's number.
        session: u64,
    },
    /// A node was notified.
    Notified {
        /// Of what.
        content: Content,
        /// In which session.
        session: u64,
        /// Hash of the token.
        token: Sha256Digest,
        /// Its redemption number.
        redemption: u64,
    },
    /// A signed request was answered otherwise than by 401, 408, 429 or 5xx: its signature was accepted.
    Signed {
        /// Who signed it.
        node: String,
        /// With which nonce.
        nonce: [u8; 16],
        /// Whether the signature was broken on purpose, or the node is another.
        forged: bool,
        /// The answer.
        status: u16,
        /// The public key that it was signed for.
        key: [u8; 32],
        /// When.
        asked: Micros,
    },
    /// A fetch was answered with content.
    Served {
        /// Who signed it.
        node: String,
        /// Hash of the token.
        token: Sha256Digest,
        /// What the answer says it is.
        shard: ShardKey,
        /// Its redemption.
        redemption: u64,
    },
    /// A node has content whole, and it is right; it is durable there.
    Stored(Content),
    /// A node has been given content whole that is not right.
    Wrong(Content),
    /// A node says what became of it.
    Acked {
        /// Of what.
        shard: ShardKey,
        /// Which redemption.
        redemption: u64,
        /// Whether it says that it has it.
        verified: bool,
    },
    /// A node was told what became of that.
    State {
        /// Of what.
        shard: ShardKey,
        /// Which redemption.
        redemption: u64,
        /// State now.
        state: ShardState,
    },
    /// An answer that no request like that may get.
    Odd(String),
}
