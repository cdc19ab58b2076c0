//! What is said in JSON: messages of the WebSocket (DESIGN 4.2) and the bodies of answers, as both
//! sides write and read them.
//!
//! Reading is strict about types (a number in quotes is no number) and ignores fields it does not
//! know, so that a newer side can say more.

mod shape;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

pub use shape::{Refused, Slot, Uploaded};

use crate::id::{BlobDigest, Sha256Digest};
use crate::ledger::keys_pickup::{NUMBER_END, ShardKey};
use crate::ledger::rows::Body;
use crate::ledger::rows_pickup::{AckStatus, ShardState};
use crate::pickup::token::Token;
use crate::time::UnixMillis;

/// Deepest nesting of a message.
pub const DEPTH_MAX: usize = 32;
/// Longest `reason` of an ack in bytes.
pub const REASON_MAX: usize = 256;

/// Both digests of a shard: `{"sha-256": HEX, "blake3": HEX}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    /// SHA-256.
    #[serde(rename = "sha-256", with = "shape::sha256")]
    pub sha256: Sha256Digest,
    /// BLAKE3.
    #[serde(with = "shape::blake3")]
    pub blake3: BlobDigest,
}

/// `register`, from the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// Who registers; the one who has signed the upgrade.
    pub node_id: String,
}

/// `registered`, from the relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Who.
    pub node_id: String,
    /// Number of the session, for people.
    #[serde(with = "shape::number")]
    pub session: u64,
    /// Shards that are owed to it.
    #[serde(with = "shape::number")]
    pub owed: u64,
}

/// `pending_notify`, from the relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingNotify {
    /// The file.
    pub file_id: String,
    /// Its version.
    #[serde(with = "shape::number")]
    pub version_number: u64,
    /// Which part of it.
    #[serde(with = "shape::number")]
    pub shard_index: u64,
    /// Where the relay keeps it; opaque.
    pub buffer_id: String,
    /// Length in bytes.
    pub size: u64,
    /// Its digests.
    pub digest: Digests,
    /// What fetches it once.
    #[serde(with = "shape::token")]
    pub token: Token,
    /// When the token's time is over.
    #[serde(with = "shape::time")]
    pub token_expires_at: UnixMillis,
    /// To be echoed in the ack.
    #[serde(with = "shape::number")]
    pub redemption: u64,
}

/// `shard_ack`, from the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardAck {
    /// The file.
    pub file_id: String,
    /// Its version.
    #[serde(with = "shape::number")]
    pub version_number: u64,
    /// Which part of it.
    #[serde(with = "shape::number")]
    pub shard_index: u64,
    /// Of the fetch it is about.
    #[serde(with = "shape::number")]
    pub redemption: u64,
    /// Whole and right, or not.
    #[serde(with = "shape::status")]
    pub status: AckStatus,
    /// Why not; at most [`REASON_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `shard_state`, from the relay: the answer to an ack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardStateOf {
    /// The file.
    pub file_id: String,
    /// Its version.
    #[serde(with = "shape::number")]
    pub version_number: u64,
    /// Which part of it.
    #[serde(with = "shape::number")]
    pub shard_index: u64,
    /// From the ack.
    #[serde(with = "shape::number")]
    pub redemption: u64,
    /// State now.
    #[serde(with = "shape::state")]
    pub state: ShardState,
}

/// `error`, from the relay. The fields behind the message are there when it is about an ack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorOf {
    /// Stable code.
    pub code: String,
    /// For people.
    pub message: String,
    /// The file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_id: Option<String>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_number: Option<u64>,
    /// Which part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_index: Option<u64>,
    /// From the ack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redemption: Option<u64>,
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromNode {
    /// `register`.
    Register(Register),
    /// `shard_ack`.
    ShardAck(ShardAck),
}

/// What the relay says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromRelay {
    /// `registered`.
    Registered(Registered),
    /// `pending_notify`.
    PendingNotify(PendingNotify),
    /// `shard_state`.
    ShardState(ShardStateOf),
    /// `error`.
    Error(ErrorOf),
}

/// Why a text is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageFault {
    /// Not JSON, or not the fields of its type; says where.
    #[error("{0}")]
    Shape(String),
    /// A type that is not known.
    #[error("no message is of type {0:?}")]
    UnknownType(String),
}

impl MessageFault {
    /// The stable code in the `error` that answers it.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            MessageFault::Shape(_) => "bad_message",
            MessageFault::UnknownType(_) => "unknown_type",
        }
    }
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Serialize)]
struct Typed<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(flatten)]
    fields: &'a T,
}

fn kind(text: &str) -> Result<String, MessageFault> {
    if is_deep(text) {
        let why = alloc::format!("nested deeper than {DEPTH_MAX}");
        return Err(MessageFault::Shape(why));
    }
    Ok(shaped::<Kind>(text)?.kind)
}

fn shaped<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, MessageFault> {
    serde_json::from_str(text).map_err(|why| MessageFault::Shape(why.to_string()))
}

/// Whether brackets outside strings nest deeper than [`DEPTH_MAX`], whatever else the text is.
fn is_deep(text: &str) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth = depth.saturating_add(1),
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return true;
        }
    }
    false
}

fn text_of<T: Serialize>(shape: &T) -> String {
    // Strings, numbers and maps with text keys: there is nothing in them that could not be written.
    serde_json::to_string(shape).unwrap_or_default()
}

fn unknown(kind: String) -> MessageFault {
    let short: String = kind.chars().take(64).collect();
    MessageFault::UnknownType(short)
}

impl FromNode {
    /// Reads a message of a node.
    ///
    /// # Errors
    /// When it is none, or of an unknown type.
    pub fn parse(text: &str) -> Result<FromNode, MessageFault> {
        match kind(text)?.as_str() {
            "register" => Ok(FromNode::Register(shaped(text)?)),
            "shard_ack" => {
                let ack: ShardAck = shaped(text)?;
                if ack.reason.as_ref().is_some_and(|reason| reason.len() > REASON_MAX) {
                    let why = "a reason longer than 256 bytes";
                    return Err(MessageFault::Shape(why.into()));
                }
                Ok(FromNode::ShardAck(ack))
            }
            other => Err(unknown(other.into())),
        }
    }

    /// As it is sent.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            FromNode::Register(fields) => text_of(&Typed { kind: "register", fields }),
            FromNode::ShardAck(fields) => text_of(&Typed { kind: "shard_ack", fields }),
        }
    }
}

impl FromRelay {
    /// Reads a message of the relay.
    ///
    /// # Errors
    /// When it is none, or of an unknown type.
    pub fn parse(text: &str) -> Result<FromRelay, MessageFault> {
        match kind(text)?.as_str() {
            "registered" => Ok(FromRelay::Registered(shaped(text)?)),
            "pending_notify" => Ok(FromRelay::PendingNotify(shaped(text)?)),
            "shard_state" => Ok(FromRelay::ShardState(shaped(text)?)),
            "error" => Ok(FromRelay::Error(shaped(text)?)),
            other => Err(unknown(other.into())),
        }
    }

    /// As it is sent.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            FromRelay::Registered(fields) => text_of(&Typed { kind: "registered", fields }),
            FromRelay::PendingNotify(fields) => text_of(&Typed { kind: "pending_notify", fields }),
            FromRelay::ShardState(fields) => text_of(&Typed { kind: "shard_state", fields }),
            FromRelay::Error(fields) => text_of(&Typed { kind: "error", fields }),
        }
    }
}

impl ErrorOf {
    /// An error about nothing in particular.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> ErrorOf {
        ErrorOf { code: code.into(), message: message.into(), ..ErrorOf::default() }
    }

    /// It is about an ack of this shard and redemption.
    #[must_use]
    pub fn about(self, shard: &ShardKey, redemption: u64) -> ErrorOf {
        ErrorOf {
            file_id: Some(shard.file_id().into()),
            version_number: Some(shard.version()),
            shard_index: Some(shard.index()),
            redemption: Some(redemption),
            ..self
        }
    }
}

/// How a place of content is shown: an opaque string.
#[must_use]
pub fn buffer_id(body: Body) -> String {
    match body {
        Body::Inline(number) => alloc::format!("inline-{number}"),
        Body::Blob(number) => alloc::format!("blob-{number}"),
    }
}

/// A body of JSON with a line feed behind it.
#[must_use]
pub fn body_of<T: Serialize>(shape: &T) -> Vec<u8> {
    let mut text = text_of(shape);
    text.push('\n');
    text.into_bytes()
}

const _: () = assert!(NUMBER_END == 1 << 53);

#[cfg(test)]
mod tests;
