//! What pickup sessions tell the node.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::code::codes;
use crate::id::{BlobDigest, BlobNo, Sha256Digest, TransferNo};
use crate::ledger::keys_pickup::ShardKey;
use crate::ledger::rows_pickup::AckStatus;
use crate::session::Content;
use crate::store::StoreFault;

/// A request whose signature holds: who signed, with which key, when and with which nonce. The node
/// judges whether that key is still good, whether it is fresh, and spends the nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Signed {
    /// The node.
    pub node: String,
    /// The public key that verified it.
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::array"))]
    pub key: [u8; 32],
    /// Unix seconds that were signed.
    pub timestamp: u64,
    /// The nonce that was signed.
    pub nonce: [u8; 16],
}

/// How an upload begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum UploadKind {
    /// `POST`: from the beginning. A body of at most `storage.inline_max` bytes was read before the
    /// node is asked, and is parked or finished in [`UploadAsk::whole`].
    Post,
    /// `PATCH`: goes on at this offset.
    Patch {
        /// `Upload-Offset`.
        offset: u64,
    },
}

/// An upload that begins, or, when it is small, all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UploadAsk {
    /// The shard.
    pub shard: ShardKey,
    /// SHA-256 of the client's bearer token; `None` when there is none, which is 401.
    pub client: Option<Sha256Digest>,
    /// How.
    pub kind: UploadKind,
    /// Length of the whole shard, where the request tells it.
    pub size: Option<u64>,
    /// Bytes that this request will bring at most, where it tells it (`Content-Length`).
    pub body: Option<u64>,
    /// SHA-256 of the whole shard, if given.
    pub sha256: Option<Sha256Digest>,
    /// BLAKE3 of the whole shard, if given.
    pub blake3: Option<BlobDigest>,
    /// `Upload-Complete`: whether the shard is whole with this request.
    pub complete: bool,
    /// The content, where it is whole, right and parked already: `(size, sha256, blake3)` are its own.
    pub whole: Option<(Content, u64, Sha256Digest, BlobDigest)>,
}

/// A fetch with a good signature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FetchAsk {
    /// Who.
    pub signed: Signed,
    /// SHA-256 of the token; `None` when what was sent is no token (404, like an unknown one).
    pub token: Option<Sha256Digest>,
    /// `Range: bytes=N-`.
    pub from: Option<u64>,
}

/// How a fetch ended on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FetchEnd {
    /// The kernel took the last byte.
    Whole,
    /// It broke off, or took nothing for too long.
    Broken {
        /// Content bytes that the kernel took.
        moved: u64,
    },
    /// The content could not be read or is not what was stored; the answer was cut.
    Unreadable(StoreFault),
}

/// A `shard_ack`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AckAsk {
    /// The shard; its node is the one that is registered.
    pub shard: ShardKey,
    /// The redemption it is about.
    pub redemption: u64,
    /// What the node says.
    pub status: AckStatus,
    /// Why it failed; at most 256 bytes.
    pub reason: String,
}

/// A token that a session has drawn and not given out: the node gets its hash only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TokenOffer {
    /// Under which the session keeps the token itself; never used twice in a session.
    pub handle: u64,
    /// SHA-256 of the token's 32 bytes.
    pub hash: Sha256Digest,
}

/// Why an upload stops before it is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum BrokenUpload {
    /// The body is over, or the connection is: what arrived is durable up to here.
    Cut {
        /// Durable length.
        offset: u64,
        /// What the session needs to go on hashing there; opaque here.
        #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
        chain: Vec<u8>,
    },
    /// The digest of the whole is not the one that was given, or the length is not.
    Mismatch,
    /// The store could not write it.
    Store(StoreFault),
}

/// What an operator does with nodes, clients and shards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum OperatorAct {
    /// `pickup nodes enrol ID --key K`; a second key is added, the same key again changes nothing, a
    /// third is refused. Enrolling a revoked node makes it good again with this key only.
    EnrolNode {
        /// Node id.
        id: String,
        /// Ed25519 public key, raw.
        #[cfg_attr(feature = "serde", serde(with = "crate::hexed::array"))]
        key: [u8; 32],
    },
    /// `pickup nodes revoke ID [--key K]`: one key, or the node.
    RevokeNode {
        /// Node id.
        id: String,
        /// Only this key.
        #[cfg_attr(feature = "serde", serde(with = "crate::hexed::maybe"))]
        key: Option<[u8; 32]>,
    },
    /// `pickup clients enrol NAME`: a client, or a new token for one.
    EnrolClient {
        /// Name.
        name: String,
        /// SHA-256 of its bearer token.
        token: Sha256Digest,
    },
    /// `pickup clients revoke NAME`.
    RevokeClient {
        /// Name.
        name: String,
    },
    /// `pickup shards retry`: notified anew at once, with its failed pickups forgiven.
    RetryShard {
        /// The shard.
        shard: ShardKey,
    },
    /// `pickup shards abandon`: given up now (RELAY_CLEANUP).
    AbandonShard {
        /// The shard.
        shard: ShardKey,
    },
}

/// An act with who and why, for the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Operator {
    /// What.
    pub act: OperatorAct,
    /// Who: `uid:1000`.
    pub who: String,
    /// The reason given; may be empty.
    pub why: String,
}

/// What a pickup session tells the node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// An upload begins. Answered by [`super::Answer::Granted`], [`super::Answer::Buffered`] or a refusal.
    Upload {
        /// Number of the request in this session.
        ticket: TransferNo,
        /// What.
        ask: Box<UploadAsk>,
    },
    /// More than what is reserved arrives (chunked bodies). Answered by [`super::Answer::Granted`] with more
    /// reserved, or a refusal.
    Extend {
        /// The upload.
        ticket: TransferNo,
        /// Its file.
        blob: BlobNo,
    },
    /// A granted upload is durable up to here and goes on.
    Checkpoint {
        /// The upload.
        ticket: TransferNo,
        /// Its file.
        blob: BlobNo,
        /// Durable length.
        offset: u64,
        /// As in [`BrokenUpload::Cut`].
        #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
        chain: Vec<u8>,
    },
    /// A granted upload is whole: file and name are durable, digests that were given match. Answered by
    /// [`super::Answer::Buffered`] or a refusal.
    Whole {
        /// The upload.
        ticket: TransferNo,
        /// Its file.
        blob: BlobNo,
        /// Length.
        size: u64,
        /// Its SHA-256.
        sha256: Sha256Digest,
        /// Its BLAKE3.
        blake3: BlobDigest,
    },
    /// A granted upload stops before it is whole. Answered by [`super::Answer::Offset`] after a cut and by a
    /// refusal otherwise; the session may be gone by then.
    Broken {
        /// The upload.
        ticket: TransferNo,
        /// Its file.
        blob: BlobNo,
        /// Why.
        why: BrokenUpload,
    },
    /// `HEAD`. Answered by [`super::Answer::Offset`] or a refusal.
    Head {
        /// Number of the request.
        ticket: TransferNo,
        /// The shard.
        shard: ShardKey,
        /// As in [`UploadAsk`].
        client: Option<Sha256Digest>,
    },
    /// `PUT /buffer/slot`. Answered by [`super::Answer::Slot`] or a refusal.
    Slot {
        /// Number of the request.
        ticket: TransferNo,
        /// The shard.
        shard: ShardKey,
        /// As in [`UploadAsk`].
        client: Option<Sha256Digest>,
        /// `Upload-Length`.
        size: u64,
    },
    /// `GET /buffer/fetch`. Answered by [`super::Answer::Serve`] or a refusal.
    Fetch {
        /// Number of the request.
        ticket: TransferNo,
        /// What.
        ask: Box<FetchAsk>,
    },
    /// The kernel took more of a fetch, a quarter of a second ago at most; at most four times a second.
    FetchMoved {
        /// The fetch.
        redemption: u64,
    },
    /// A fetch is over on the wire. Comes once for every [`super::Answer::Serve`] while the connection lives; a
    /// connection that ends without it broke its fetch off.
    FetchEnded {
        /// The fetch.
        redemption: u64,
        /// How.
        end: FetchEnd,
    },
    /// `GET /ws`. Answered by [`super::Answer::Upgraded`] or a refusal.
    Subscribe {
        /// Number of the request.
        ticket: TransferNo,
        /// Who.
        signed: Signed,
    },
    /// `register`, of the node that subscribed. Answered by [`super::Answer::Registered`]. Notifications follow,
    /// each with one of the tokens.
    Register {
        /// Tokens to begin with, as many as there may be notifications unanswered.
        tokens: Vec<TokenOffer>,
    },
    /// More tokens, one for each that was used.
    Tokens(Vec<TokenOffer>),
    /// `shard_ack`. Answered by [`super::Answer::State`] or [`super::Command::AckRefused`], in order.
    Ack(Box<AckAsk>),
    /// An operator's act, on the admin socket. Answered by [`super::Answer::Done`] or a refusal.
    Operator {
        /// Number of the request.
        ticket: TransferNo,
        /// What.
        act: Box<Operator>,
    },
}

codes! {
    /// Why a request is refused, with its HTTP status in [`PickupRefusal::status`].
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub enum PickupRefusal {
        /// Signature or bearer token missing, unknown, revoked, stale, replayed or wrong.
        Unauthorized = 1, "unauthorized";
        /// The node is not enrolled here.
        UnknownNode = 2, "unknown_node";
        /// No such token, or no such upload of this client's.
        NotFound = 3, "not_found";
        /// A token of another node.
        Forbidden = 4, "forbidden";
        /// The shard is there with other bytes, another size, or in a state that does not take it.
        Conflict = 5, "conflict";
        /// Another connection is uploading it.
        Busy = 6, "busy";
        /// `Upload-Offset` is not the durable length.
        WrongOffset = 7, "wrong_offset";
        /// The token was used, or its shard is not RELAY_BUFFERED.
        TokenUsed = 8, "token_used";
        /// The token's time is over.
        TokenExpired = 9, "token_expired";
        /// Larger than `buffer.max_upload`.
        TooLarge = 10, "too_large";
        /// The range begins behind the end.
        Range = 11, "range_not_satisfiable";
        /// What arrived does not match its digest or length.
        DigestMismatch = 12, "digest_mismatch";
        /// Over `buffer.max_bytes` or another quota.
        Quota = 13, "quota";
        /// No space left.
        DiskFull = 14, "disk_full";
        /// The share of nonces of this key is full.
        TooManyNonces = 15, "too_many_nonces";
        /// The site is stopping, or cannot answer just now.
        Unavailable = 16, "unavailable";
        /// An ack that is not about the present redemption (WebSocket `error`).
        StaleAck = 17, "stale_ack";
        /// The content is lost or damaged here.
        Corrupt = 18, "corrupt";
        /// A third key for a node.
        TooManyKeys = 19, "too_many_keys";
        /// A shard in transit is left to its node.
        InTransit = 20, "in_transit";
    }
}

impl PickupRefusal {
    /// Its HTTP status.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            PickupRefusal::DigestMismatch => 400,
            PickupRefusal::Unauthorized => 401,
            PickupRefusal::Forbidden => 403,
            PickupRefusal::UnknownNode | PickupRefusal::NotFound => 404,
            PickupRefusal::Conflict
            | PickupRefusal::Busy
            | PickupRefusal::WrongOffset
            | PickupRefusal::TokenUsed
            | PickupRefusal::StaleAck
            | PickupRefusal::TooManyKeys
            | PickupRefusal::InTransit => 409,
            PickupRefusal::TokenExpired => 410,
            PickupRefusal::TooLarge => 413,
            PickupRefusal::Range => 416,
            PickupRefusal::TooManyNonces => 429,
            PickupRefusal::Corrupt => 500,
            PickupRefusal::Unavailable => 503,
            PickupRefusal::Quota | PickupRefusal::DiskFull => 507,
        }
    }
}
