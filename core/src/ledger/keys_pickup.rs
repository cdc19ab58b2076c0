//! Key layouts of the pickup half. Strings stand before numbers, closed by a zero byte that no
//! permitted string has in it, so that byte order is: string bytewise, then the numbers.

use alloc::string::String;
use alloc::vec::Vec;

use super::keys::take;
use crate::id::Sha256Digest;
use crate::time::UnixMillis;

/// Longest key a store has to take, in bytes.
pub const KEY_MAX: usize = 511;
/// Longest file id in bytes.
pub const FILE_ID_MAX: usize = 256;
/// Longest node id or client name in bytes.
pub const NODE_ID_MAX: usize = 128;
/// Version numbers, shard indexes and redemption numbers are below this (2^53), so that every JSON
/// reader has them whole.
pub const NUMBER_END: u64 = 1 << 53;

/// Longest encoded [`ShardKey`]: file id, zero, version, index, node id.
pub(super) const SHARD_KEY_MAX: usize = FILE_ID_MAX + 1 + 8 + 8 + NODE_ID_MAX;
const _: () = assert!(SHARD_KEY_MAX + 8 + 1 < KEY_MAX);

/// A key that may be as long as [`KEY_MAX`]; on the heap, for tables that are not in the relay's path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LongKey(Vec<u8>);

impl LongKey {
    /// The empty key.
    #[must_use]
    pub fn new() -> LongKey {
        LongKey::default()
    }

    /// This key with `part` behind it.
    ///
    /// # Panics
    /// When the key would be longer than [`KEY_MAX`]; every layout of the ledger is shorter.
    #[must_use]
    pub fn and(mut self, part: &[u8]) -> LongKey {
        self.0.extend_from_slice(part);
        assert!(self.0.len() <= KEY_MAX, "a key of {} bytes is longer than 511", self.0.len());
        self
    }

    /// The bytes of the key.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl core::ops::Deref for LongKey {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A part of a shard's identity that is not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShardKeyFault {
    /// The file id.
    #[error("a file id of {len} bytes is not 1 to 256 bytes of visible ASCII")]
    FileId {
        /// Its length in bytes.
        len: usize,
    },
    /// The version number.
    #[error("version number {0} is not below 2^53")]
    Version(u64),
    /// The shard index.
    #[error("shard index {0} is not below 2^53")]
    Index(u64),
    /// The node id.
    #[error("a node id of {len} bytes is not 1 to 128 bytes of A-Z a-z 0-9 . _ -")]
    Node {
        /// Its length in bytes.
        len: usize,
    },
}

/// Identity of a shard: the key of `shards`. Ordered as its bytes are: file id bytewise, then version
/// and index as numbers, then node id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ShardKey {
    file_id: String,
    version: u64,
    index: u64,
    node: String,
}

impl ShardKey {
    /// A shard's identity.
    ///
    /// # Errors
    /// The first part that is not permitted.
    pub fn new(
        file_id: impl Into<String>,
        version: u64,
        index: u64,
        node: impl Into<String>,
    ) -> Result<ShardKey, ShardKeyFault> {
        let key = ShardKey { file_id: file_id.into(), version, index, node: node.into() };
        if !is_file_id(&key.file_id) {
            return Err(ShardKeyFault::FileId { len: key.file_id.len() });
        }
        if version >= NUMBER_END {
            return Err(ShardKeyFault::Version(version));
        }
        if index >= NUMBER_END {
            return Err(ShardKeyFault::Index(index));
        }
        if !is_node_id(&key.node) {
            return Err(ShardKeyFault::Node { len: key.node.len() });
        }
        Ok(key)
    }

    /// The file it is a part of.
    #[must_use]
    pub fn file_id(&self) -> &str {
        &self.file_id
    }

    /// Version of that file.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Which part it is.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The node it is for.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The key in bytes, as in `shards` and at the end of other keys.
    #[must_use]
    pub fn key(&self) -> LongKey {
        self.behind(LongKey::new())
    }

    /// Reads a key; `None` when it is not one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<ShardKey> {
        let (file_id, mut rest) = text(bytes)?;
        let version = u64::from_be_bytes(take(&mut rest)?);
        let index = u64::from_be_bytes(take(&mut rest)?);
        let node = core::str::from_utf8(rest).ok()?;
        ShardKey::new(file_id, version, index, node).ok()
    }

    /// This key behind another.
    pub(super) fn behind(&self, key: LongKey) -> LongKey {
        key.and(self.file_id.as_bytes())
            .and(&[0])
            .and(&self.version.to_be_bytes())
            .and(&self.index.to_be_bytes())
            .and(self.node.as_bytes())
    }
}

/// `by_node`: (node id, file id, version, index), so that one node's shards stand together in the
/// order in which they are notified.
#[must_use]
pub fn by_node(shard: &ShardKey) -> LongKey {
    by_node_prefix(&shard.node)
        .and(shard.file_id.as_bytes())
        .and(&[0])
        .and(&shard.version.to_be_bytes())
        .and(&shard.index.to_be_bytes())
}

/// The common beginning of all `by_node` keys of one node.
#[must_use]
pub fn by_node_prefix(node: &str) -> LongKey {
    LongKey::new().and(node.as_bytes()).and(&[0])
}

/// Reads a `by_node` key; `None` when it is not one.
#[must_use]
pub fn parse_by_node(bytes: &[u8]) -> Option<ShardKey> {
    let (node, rest) = text(bytes)?;
    let (file_id, mut rest) = text(rest)?;
    let version = u64::from_be_bytes(take(&mut rest)?);
    let index = u64::from_be_bytes(take(&mut rest)?);
    if !rest.is_empty() {
        return None;
    }
    ShardKey::new(file_id, version, index, node).ok()
}

/// `shard_deadlines`: (ms, shard key).
#[must_use]
pub fn shard_deadline(at: UnixMillis, shard: &ShardKey) -> LongKey {
    shard.behind(LongKey::new().and(&at.0.to_be_bytes()))
}

/// Reads a `shard_deadlines` key; `None` when it is not one.
#[must_use]
pub fn parse_shard_deadline(bytes: &[u8]) -> Option<(UnixMillis, ShardKey)> {
    let mut rest = bytes;
    let at = UnixMillis(u64::from_be_bytes(take(&mut rest)?));
    Some((at, ShardKey::parse(rest)?))
}

/// `tokens`: SHA-256 of the token.
#[must_use]
pub fn token(hash: &Sha256Digest) -> super::keys::Key {
    super::keys::Key::EMPTY.and(&hash.0)
}

/// `nonces`: (node id, nonce).
#[must_use]
pub fn nonce(node: &str, nonce: &[u8; 16]) -> LongKey {
    by_node_prefix(node).and(nonce)
}

/// Reads a `nonces` key; `None` when it is not one.
#[must_use]
pub fn parse_nonce(bytes: &[u8]) -> Option<(&str, [u8; 16])> {
    let (node, mut rest) = text(bytes)?;
    let nonce = take(&mut rest)?;
    (rest.is_empty() && is_node_id(node)).then_some((node, nonce))
}

/// `nodes`: node id. `clients`: client name.
#[must_use]
pub fn node(id: &str) -> LongKey {
    LongKey::new().and(id.as_bytes())
}

/// Whether `id` can be a file id: 1 to 256 bytes of visible ASCII.
#[must_use]
pub fn is_file_id(id: &str) -> bool {
    (1..=FILE_ID_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

/// Whether `id` can be a node id or a client's name: 1 to 128 bytes of `[A-Za-z0-9._-]`.
#[must_use]
pub fn is_node_id(id: &str) -> bool {
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=NODE_ID_MAX).contains(&id.len()) && id.bytes().all(ok)
}

/// The string up to the next zero byte, and what stands behind that.
fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|b| *b == 0)?;
    let (head, tail) = bytes.split_at_checked(end)?;
    Some((core::str::from_utf8(head).ok()?, tail.get(1..)?))
}
