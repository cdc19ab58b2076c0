//! Rows of what outlives a segment or keeps the ledger in order: memory of evicted ids, receipts,
//! audit, quarantine, exports, watched folders. Tables `handed`, `expiry`, `unmet` and `owners` are
//! indexes: all they say is in their keys.

use alloc::string::String;
use alloc::vec::Vec;

use minicbor::{Decode, Encode};

use crate::id::{BlobDigest, SegmentId, Seq, SiteNo};
use crate::inbox::FileMark;

/// A row of `remembered`: a segment that was delivered and evicted here (R2).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RememberedRow {
    /// When it was evicted (ms).
    #[n(0)]
    pub evicted_at: u64,
    /// Where it was first accepted; empty when that is here.
    #[n(1)]
    pub origin: String,
    /// Its accept number there: only an equal or older one is `already_relayed`.
    #[n(2)]
    pub origin_seq: u64,
    /// Its accept number here: the key of its receipts.
    #[n(3)]
    pub seq: Seq,
}

/// A row of `receipts`: what became of one delivery, kept after the segment has gone, and what is
/// still to be passed back towards the origin.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReceiptRow {
    /// The segment.
    #[n(0)]
    pub id: SegmentId,
    /// The destination, by name.
    #[n(1)]
    pub site: String,
    /// When it was settled there, by that site's clock (ms).
    #[n(2)]
    pub when: u64,
    /// [`crate::code::Cause`] number when it was given up; 0 when it was delivered.
    #[n(3)]
    pub cause: u8,
    /// The next site towards the origin, by number; 0 when the origin is here.
    #[n(4)]
    pub back: u32,
    /// Whether that site still has to say RECEIPT_OK.
    #[n(5)]
    pub pending: bool,
    /// Name of the segment.
    #[n(6)]
    pub name: String,
    /// Length of its content in bytes.
    #[n(7)]
    pub size: u64,
    /// Digest of its content.
    #[n(8)]
    pub digest: BlobDigest,
    /// When it is removed (ms); its `expiry` key bears it.
    #[n(9)]
    pub expires_at: u64,
    /// Further peers that still have to say RECEIPT_OK, by number.
    #[cbor(n(10), default, skip_if = "Vec::is_empty")]
    #[cfg_attr(feature = "serde", serde(default))]
    pub more: Vec<u32>,
}

impl ReceiptRow {
    /// Whether this peer has still to be told.
    #[must_use]
    pub fn is_owed_to(&self, peer: SiteNo) -> bool {
        (self.pending && self.back == peer.0) || self.more.contains(&peer.0)
    }

    /// Every peer that has still to be told.
    pub fn owed_to(&self) -> impl Iterator<Item = SiteNo> {
        let back = self.pending.then_some(self.back);
        let more = self.more.iter().copied().filter(move |peer| Some(*peer) != back);
        back.into_iter().chain(more).map(SiteNo)
    }
}

/// A row of `audit`: an operator's act, a removal, or a refusal of somebody unknown.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct AuditRow {
    /// When (ms).
    #[n(0)]
    pub at: u64,
    /// Who: `uid:1000`, a peer's, node's or client's name, or empty for the node itself.
    #[n(1)]
    pub who: String,
    /// What was done: a stable word such as `retry`, `purge`, `evict`, `refused`.
    #[n(2)]
    pub action: String,
    /// To what: an id, a name or a selection.
    #[n(3)]
    pub subject: String,
    /// The reason given, or a stable code.
    #[n(4)]
    pub reason: String,
    /// How many rows it touched.
    #[n(5)]
    pub count: u64,
    /// Their bytes.
    #[n(6)]
    pub bytes: u64,
}

/// A row of `quarantine`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct QuarantineRow {
    /// When it was set aside (ms).
    #[n(0)]
    pub at: u64,
    /// Why, for people.
    #[n(1)]
    pub why: String,
    /// The value of a row as it was found; empty for a file.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub value: Vec<u8>,
    /// Bytes charged for it.
    #[n(3)]
    pub size: u64,
    /// When it is removed (ms); its `expiry` key bears it.
    #[n(4)]
    pub expires_at: u64,
}

/// How far an export is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
#[repr(u8)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ExportState {
    /// The final name is decided; the file may or may not be there.
    #[n(0)]
    Intent = 0,
    /// The file and its name are durable; the command has still to run.
    #[n(1)]
    Placed = 1,
    /// Nothing is left to do; final.
    #[n(2)]
    Done = 2,
    /// Given up until an operator says otherwise.
    #[n(3)]
    Failed = 3,
}

/// A row of `exports`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ExportRow {
    /// How far it is.
    #[n(0)]
    pub state: ExportState,
    /// The file's final name below the rule's directory; empty until the content is durable aside.
    #[n(1)]
    pub name: String,
    /// When it entered its present state (ms).
    #[n(2)]
    pub since: u64,
    /// Runs of the command so far.
    #[n(3)]
    pub runs: u32,
    /// Not before this time (ms); its `expiry` key bears it until it is done.
    #[n(4)]
    pub next_attempt_after: u64,
    /// Exit status of the last run; `None` when it was killed or never ran.
    #[n(5)]
    pub exit: Option<i32>,
    /// The end of what the last run printed.
    #[cbor(n(6), with = "minicbor::bytes")]
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
    pub output: Vec<u8>,
    /// Last trouble, for people.
    #[n(7)]
    pub error: String,
    /// What was written aside for it, once it has a name.
    #[n(8)]
    pub mark: Option<FileMark>,
    /// Failures in a row since it last came further; decides how long it waits.
    #[cbor(n(9), default)]
    pub tries: u32,
}

/// A row of `watched`: a file that was seen in a watched directory, so that it is taken once.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WatchedRow {
    /// Its path below the directory, in bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
    pub path: Vec<u8>,
    /// Inode number.
    #[n(1)]
    pub inode: u64,
    /// Length in bytes.
    #[n(2)]
    pub size: u64,
    /// Time of its last change in nanoseconds since the Unix epoch.
    #[n(3)]
    pub modified: i64,
    /// When it was seen first in this form (ms).
    #[n(4)]
    pub seen_at: u64,
    /// The segment it was accepted as, once it was.
    #[n(5)]
    pub accepted: Option<SegmentId>,
    /// Why it is not taken, for people; empty when there is no trouble.
    #[n(6)]
    pub error: String,
}
