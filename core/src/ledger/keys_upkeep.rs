//! Key layouts of what keeps the ledger in order: expiry, owners of content, quarantine, exports,
//! watched folders, sources of partial content.

use super::Table;
use super::keys::{Key, take};
use super::keys_pickup::{KEY_MAX, LongKey, SHARD_KEY_MAX, ShardKey};
use crate::code::codes;
use crate::id::{BlobDigest, BlobNo, SegmentId, Seq, SiteNo};
use crate::time::UnixMillis;

// Quarantine of a row of `expiry` for a shard is the longest key there is.
const _: () = assert!(2 + 8 + 1 + SHARD_KEY_MAX <= KEY_MAX);

codes! {
    /// What becomes due in `expiry`; the rest of the key says which one.
    pub enum ExpiryKind {
        /// A segment expires; key: seq.
        Segment = 1, "segment";
        /// A segment may be evicted (`relay.keep_relayed`) or released (`storage.keep`); key: seq.
        Keep = 2, "keep";
        /// An evicted id is forgotten (`relay.remember_for`); key: segment id.
        Remembered = 3, "remembered";
        /// Partial content is given up (`limits.partial_ttl`); key: blob number.
        Incoming = 4, "incoming";
        /// A receipt kept after eviction goes (`relay.keep_receipts`); key: (seq, site).
        Receipt = 5, "receipt";
        /// A receipt is to be passed back towards the origin (again); key: (seq, site).
        PassBack = 6, "pass_back";
        /// An export is to be tried (again); key: (rule, seq).
        Export = 7, "export";
        /// A token row goes, 24 h after its token ran out; key: SHA-256 of the token.
        Token = 8, "token";
        /// A nonce row goes; key: (node, nonce).
        Nonce = 9, "nonce";
        /// A finished shard's row goes (`buffer.keep_history`); key: shard key.
        Shard = 10, "shard";
        /// Something in quarantine goes; key: its key there.
        Quarantine = 11, "quarantine";
    }
}

/// `expiry`: (ms, kind, key of that kind).
#[must_use]
pub fn expiry(at: UnixMillis, kind: ExpiryKind, key: &[u8]) -> LongKey {
    LongKey::new().and(&at.0.to_be_bytes()).and(&[kind.number()]).and(key)
}

/// Reads an `expiry` key; `None` when it is not one.
#[must_use]
pub fn parse_expiry(bytes: &[u8]) -> Option<(UnixMillis, ExpiryKind, &[u8])> {
    let mut rest = bytes;
    let at = UnixMillis(u64::from_be_bytes(take(&mut rest)?));
    let kind = ExpiryKind::from_number(u8::from_be_bytes(take(&mut rest)?))?;
    Some((at, kind, rest))
}

/// `remembered_age`: (ms, segment id).
#[must_use]
pub fn remembered_age(at: UnixMillis, id: &SegmentId) -> Key {
    Key::EMPTY.and(&at.0.to_be_bytes()).and(&id.0)
}

/// Reads a `remembered_age` key; `None` when it is not one.
#[must_use]
pub fn parse_remembered_age(bytes: &[u8]) -> Option<(UnixMillis, SegmentId)> {
    let mut rest = bytes;
    let at = UnixMillis(u64::from_be_bytes(take(&mut rest)?));
    let id = SegmentId(take(&mut rest)?);
    rest.is_empty().then_some((at, id))
}

/// Who uses a content file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A segment.
    Segment(Seq),
    /// A shard.
    Shard(ShardKey),
}

/// `owners`: (blob, 0, seq) or (blob, 1, shard key).
#[must_use]
pub fn owner(blob: BlobNo, owner: &Owner) -> LongKey {
    let key = owner_prefix(blob);
    match owner {
        Owner::Segment(seq) => key.and(&[0]).and(&seq.0.to_be_bytes()),
        Owner::Shard(shard) => shard.behind(key.and(&[1])),
    }
}

/// The common beginning of all `owners` keys of one blob.
#[must_use]
pub fn owner_prefix(blob: BlobNo) -> LongKey {
    LongKey::new().and(&blob.0.to_be_bytes())
}

/// Reads an `owners` key; `None` when it is not one.
#[must_use]
pub fn parse_owner(bytes: &[u8]) -> Option<(BlobNo, Owner)> {
    let mut rest = bytes;
    let blob = BlobNo(u64::from_be_bytes(take(&mut rest)?));
    let owner = match take(&mut rest)? {
        [0] => {
            let seq = Seq(u64::from_be_bytes(take(&mut rest)?));
            if !rest.is_empty() {
                return None;
            }
            Owner::Segment(seq)
        }
        [1] => Owner::Shard(ShardKey::parse(rest)?),
        _ => return None,
    };
    Some((blob, owner))
}

/// What can be set aside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quarantined<'a> {
    /// A row that cannot be read; its bytes are kept in the quarantine row.
    Row {
        /// Where it stood.
        table: Table,
        /// Under which key.
        key: &'a [u8],
    },
    /// A content file without a row.
    File(BlobNo),
}

/// `quarantine`: (0, table, key) or (1, blob).
///
/// # Panics
/// When the key of the row is longer than 509 bytes; no layout of the ledger comes near.
#[must_use]
pub fn quarantine(what: &Quarantined<'_>) -> LongKey {
    match what {
        Quarantined::Row { table, key } => LongKey::new().and(&[0, table.number()]).and(key),
        Quarantined::File(blob) => LongKey::new().and(&[1]).and(&blob.0.to_be_bytes()),
    }
}

/// Reads a `quarantine` key; `None` when it is not one.
#[must_use]
pub fn parse_quarantine(bytes: &[u8]) -> Option<Quarantined<'_>> {
    let mut rest = bytes;
    match take(&mut rest)? {
        [0] => {
            let table = Table::from_number(u8::from_be_bytes(take(&mut rest)?))?;
            Some(Quarantined::Row { table, key: rest })
        }
        [1] => super::keys::parse_u64(rest).map(|n| Quarantined::File(BlobNo(n))),
        _ => None,
    }
}

/// `sources`: (digest, source); source 0 is a local client.
#[must_use]
pub fn source(digest: &BlobDigest, source: SiteNo) -> Key {
    Key::EMPTY.and(&digest.0).and(&source.0.to_be_bytes())
}

/// Which inbox or watch rule a row belongs to: the first 8 bytes of a BLAKE3 hash over what makes the
/// rule that rule, so that a rule may move within the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RuleId(pub u64);

/// `exports`: (rule, seq).
#[must_use]
pub fn export(rule: RuleId, seq: Seq) -> Key {
    Key::EMPTY.and(&rule.0.to_be_bytes()).and(&seq.0.to_be_bytes())
}

/// Reads an `exports` key; `None` when it is not one.
#[must_use]
pub fn parse_export(bytes: &[u8]) -> Option<(RuleId, Seq)> {
    let mut rest = bytes;
    let rule = RuleId(u64::from_be_bytes(take(&mut rest)?));
    let seq = Seq(u64::from_be_bytes(take(&mut rest)?));
    rest.is_empty().then_some((rule, seq))
}

/// Reads a `watched` key; `None` when it is not one.
#[must_use]
pub fn parse_watched(bytes: &[u8]) -> Option<(RuleId, [u8; 32])> {
    let mut rest = bytes;
    let rule = RuleId(u64::from_be_bytes(take(&mut rest)?));
    Some((rule, <[u8; 32]>::try_from(rest).ok()?))
}

/// `watched`: (rule, BLAKE3 of the path).
#[must_use]
pub fn watched(rule: RuleId, path: &[u8; 32]) -> Key {
    Key::EMPTY.and(&rule.0.to_be_bytes()).and(path)
}
