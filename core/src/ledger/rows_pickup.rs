//! Rows of the pickup half (DESIGN 4). Tables `by_node` and `shard_deadlines` are indexes: all they
//! say is in their keys.

use alloc::string::String;
use alloc::vec::Vec;

use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Write};
use minicbor::{Decode, Encode};

use super::rows::{Body, Loss};
use crate::code::codes;
use crate::id::{BlobDigest, BlobNo, Sha256Digest};

codes! {
    /// State of a shard (DESIGN 4.1).
    pub enum ShardState {
        /// A slot is reserved ahead of the upload.
        Created = 0, "CREATED";
        /// Content is arriving.
        Uploading = 1, "UPLOADING";
        /// The relay holds the content durably.
        RelayBuffered = 2, "RELAY_BUFFERED";
        /// The node redeemed a token and fetches.
        NodeReceiving = 3, "NODE_RECEIVING";
        /// The node has it and says that it is right.
        NodeVerified = 4, "NODE_VERIFIED";
        /// Custody has moved to the node; final.
        NodeStored = 5, "NODE_STORED";
        /// Given up; final.
        RelayCleanup = 6, "RELAY_CLEANUP";
    }
}

codes! {
    /// What a node says of a fetched shard.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub enum AckStatus {
        /// Whole and right.
        Verified = 1, "verified";
        /// Not usable; to be notified again.
        Failed = 2, "failed";
    }
}

codes! {
    /// What became of a fetch token.
    pub enum TokenState {
        /// Good until its time is over.
        Live = 0, "live";
        /// Used; what became of the shard does not matter any more.
        Redeemed = 1, "redeemed";
        /// A newer one took its place before its time was over.
        Replaced = 2, "replaced";
    }
}

macro_rules! by_number {
    ($name:ident) => {
        impl<C> Encode<C> for $name {
            fn encode<W: Write>(
                &self,
                e: &mut Encoder<W>,
                _: &mut C,
            ) -> Result<(), minicbor::encode::Error<W::Error>> {
                e.u8(self.number())?;
                Ok(())
            }
        }
        impl<'b, C> Decode<'b, C> for $name {
            fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<$name, Error> {
                let at = d.position();
                let number = d.u8()?;
                $name::from_number(number)
                    .ok_or_else(|| Error::unknown_variant(i64::from(number)).at(at))
            }
        }
    };
}
by_number!(ShardState);
by_number!(AckStatus);
by_number!(TokenState);

/// A row of `shards`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ShardRow {
    /// How often this key was begun anew: an upload onto RELAY_CLEANUP opens the next generation.
    #[n(0)]
    pub generation: u64,
    /// Its state.
    #[n(1)]
    pub state: ShardState,
    /// Where the content is, exactly while the relay owns the bytes; shown as `buffer_id`.
    #[n(2)]
    pub buffer: Option<Body>,
    /// The partial content while it is uploaded to a file.
    #[n(3)]
    pub incoming: Option<BlobNo>,
    /// Length in bytes: declared for a slot, else as it is.
    #[n(4)]
    pub size: Option<u64>,
    /// SHA-256 of the content, once known.
    #[n(5)]
    pub sha256: Option<Sha256Digest>,
    /// BLAKE3 of the content, once known.
    #[n(6)]
    pub blake3: Option<BlobDigest>,
    /// The client that began it.
    #[n(7)]
    pub client: String,
    /// When it entered its present state (ms).
    #[n(8)]
    pub since: u64,
    /// Time in its `shard_deadlines` key (ms); 0 when it has none.
    #[n(9)]
    pub deadline: u64,
    /// When a slot runs out (ms), if it began as one.
    #[n(10)]
    pub slot_expires_at: Option<u64>,
    /// When it was buffered for the first time (ms): the lease runs from here.
    #[n(11)]
    pub buffered_at: Option<u64>,
    /// When the lease is over (ms).
    #[n(12)]
    pub expires_at: Option<u64>,
    /// Last durable progress of upload or fetch (ms): the graces run from here.
    #[n(13)]
    pub progress_at: u64,
    /// Entries into RELAY_BUFFERED so far: each is notified once per session.
    #[n(14)]
    pub entries: u64,
    /// Redemption number of the newest token, or of the fetch under way; 0 before the first.
    #[n(15)]
    pub redemption: u64,
    /// SHA-256 of the newest token, while its row is there.
    #[n(16)]
    pub token: Option<Sha256Digest>,
    /// `failed` acks so far; only these count towards `buffer.max_pickups` (P2).
    #[n(17)]
    pub failed_acks: u32,
    /// Pickups in a row that failed or moved no byte: the exponent of the wait.
    #[n(18)]
    pub waits: u32,
    /// Not notified in a session that was there before this time (ms).
    #[n(19)]
    pub notify_after: u64,
    /// Redemption of the last ack that was answered; 0 when there is none.
    #[n(20)]
    pub acked_redemption: u64,
    /// What that ack said.
    #[n(21)]
    pub acked_status: Option<AckStatus>,
    /// The reason that the last `failed` ack gave.
    #[n(22)]
    pub reason: String,
    /// Bytes reserved for it apart from an `incoming` row: a slot's declared size.
    #[n(23)]
    pub reserved: u64,
    /// What was found wrong with its content here, for which it was given up.
    #[n(24)]
    pub loss: Option<Loss>,
}

/// A row of `tokens`: kept until 24 h after the token's time.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TokenRow {
    /// Key of its shard in `shards`; bound to that node.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub shard: Vec<u8>,
    /// Generation of the shard.
    #[n(1)]
    pub generation: u64,
    /// Its redemption number; never reused (P1).
    #[n(2)]
    pub redemption: u64,
    /// When its time is over (ms).
    #[n(3)]
    pub expires_at: u64,
    /// What became of it.
    #[n(4)]
    pub state: TokenState,
    /// When that happened (ms).
    #[n(5)]
    pub since: u64,
}

/// A row of `nonces`: kept while a signature with it could still be fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct NonceRow {
    /// Until when, by the raw wall clock (ms).
    #[n(0)]
    pub until: u64,
    /// The first 8 bytes of the public key whose share it counts against.
    #[n(1)]
    pub key: u64,
}

/// A public key of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct NodeKey {
    /// Ed25519 public key, raw.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub public: [u8; 32],
    /// When it was enrolled (ms).
    #[n(1)]
    pub enrolled_at: u64,
}

/// A row of `nodes`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct NodeRow {
    /// One or two keys, so that they can be rotated.
    #[n(0)]
    pub keys: Vec<NodeKey>,
    /// When it was enrolled first (ms).
    #[n(1)]
    pub enrolled_at: u64,
    /// When it was revoked (ms); its shards stay until their leases end.
    #[n(2)]
    pub revoked_at: Option<u64>,
    /// When it registered last (ms).
    #[n(3)]
    pub registered_at: Option<u64>,
    /// The next redemption number at that time: older tokens that were not redeemed, and not over
    /// then, were replaced by it.
    #[n(4)]
    pub tokens_from: Option<u64>,
}

/// A row of `clients`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClientRow {
    /// SHA-256 of its bearer token.
    #[n(0)]
    pub token: Sha256Digest,
    /// When it was enrolled (ms).
    #[n(1)]
    pub enrolled_at: u64,
    /// When it was revoked (ms).
    #[n(2)]
    pub revoked_at: Option<u64>,
}
