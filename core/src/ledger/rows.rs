//! Rows of the relay half. Rows of the pickup half are in `rows_pickup`.

use alloc::string::String;
use alloc::vec::Vec;

use minicbor::{Decode, Encode};

use crate::code::Cause;
use crate::id::{BlobDigest, BlobNo, BodyNo, Epoch, SegmentId, Seq};
use crate::segment::{Destinations, Meta};

/// Where content lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Body {
    /// In table `bodies`.
    #[n(0)]
    Inline(#[n(0)] BodyNo),
    /// In a file.
    #[n(1)]
    Blob(#[n(0)] BlobNo),
}

/// A row of `segments`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SegmentRow {
    /// Its identity.
    #[n(0)]
    pub id: SegmentId,
    /// Digest of its content.
    #[n(1)]
    pub digest: BlobDigest,
    /// Length of its content in bytes.
    #[n(2)]
    pub size: u64,
    /// Where the content is.
    #[n(3)]
    pub body: Body,
    /// Name, type, labels, class, times.
    #[n(4)]
    pub meta: Meta,
    /// Where it is to go, as the sender asked.
    #[n(5)]
    pub to: Destinations,
    /// Whether this site itself is addressed.
    #[n(6)]
    pub here: bool,
    /// Where it was first accepted; empty when that is here.
    #[n(7)]
    pub origin: String,
    /// Its accept number there.
    #[n(8)]
    pub origin_seq: u64,
    /// How many sites it has left so far.
    #[n(9)]
    pub hops: u8,
    /// When it was accepted here (effective time, ms).
    #[n(10)]
    pub accepted_at: u64,
    /// Deliveries it requires from here.
    #[n(11)]
    pub required: u32,
    /// How many of them are Acked.
    #[n(12)]
    pub acked: u32,
    /// When the success condition was met (ms).
    #[n(13)]
    pub relayed_at: Option<u64>,
    /// Held by an operator.
    #[n(14)]
    pub held: bool,
    /// The peer it came from, by number; 0 when it was accepted here.
    #[n(15)]
    pub from: u32,
    /// What is known to be wrong with its content; `None` is nothing.
    #[n(16)]
    pub loss: Option<Loss>,
    /// Peers that handed it on to this site besides `from`, each with the site it asked for, by number:
    /// they wait for a receipt.
    #[cbor(n(17), default, skip_if = "Vec::is_empty")]
    #[cfg_attr(feature = "serde", serde(default))]
    pub askers: Vec<(u32, u32)>,
    /// Whether every site it was to go to has left its required set (by `already_relayed`, or because an
    /// operator purged or forgot what was owed): it is kept, shown, and never released by itself.
    #[n(18)]
    #[cfg_attr(feature = "serde", serde(default))]
    pub unplaced: Option<bool>,
    /// When an operator said that the content is not needed here any more (ms).
    #[n(19)]
    #[cfg_attr(feature = "serde", serde(default))]
    pub let_go: Option<u64>,
}

impl SegmentRow {
    /// Its accept number at its origin, as offers bear it; `seq` is its number here.
    #[must_use]
    pub fn origin_number(&self, seq: Seq) -> u64 {
        // A segment that was accepted here a second time has a newer number than its key (R2).
        if self.origin.is_empty() && self.origin_seq == 0 { seq.0 } else { self.origin_seq }
    }
}

/// What is wrong with the content of a segment. Each step is taken once, because what it takes away
/// may belong to another segment by the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Loss {
    /// It could not be read: its digest does not lead to it any more.
    #[n(0)]
    Doubted,
    /// It is gone: nor does the segment's id.
    #[n(1)]
    Gone,
}

impl Loss {
    /// Why what rests on it is given up.
    #[must_use]
    pub const fn cause(self) -> Cause {
        match self {
            Loss::Doubted => Cause::Corrupt,
            Loss::Gone => Cause::Missing,
        }
    }
}

/// State of a delivery (DESIGN 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
#[repr(u8)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum State {
    /// Waiting for its turn.
    #[n(0)]
    Scheduled = 0,
    /// Claimed by a live session.
    #[n(1)]
    Inflight = 1,
    /// Durably held at the other side; final.
    #[n(2)]
    Acked = 2,
    /// An attempt failed; due again at `next_attempt_after`.
    #[n(3)]
    Failed = 3,
    /// Given up until an operator says otherwise.
    #[n(4)]
    Deadletter = 4,
}

/// A row of `deliveries`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeliveryRow {
    /// Its state.
    #[n(0)]
    pub state: State,
    /// Claims so far; never reset.
    #[n(1)]
    pub attempts: u64,
    /// Failures of the segment's own since the last fresh allowance.
    #[n(2)]
    pub spent: u32,
    /// Not before this time (effective, ms); its `due` key bears it while Scheduled or Failed.
    #[n(3)]
    pub next_attempt_after: u64,
    /// [`crate::code::Cause`] number of the last failure; 0 is none.
    #[n(4)]
    pub last_error: u8,
    /// When it entered its present state (ms).
    #[n(5)]
    pub since: u64,
    /// The hop that has custody, by number, for a routed site.
    #[n(6)]
    pub custody: Option<u32>,
    /// Held by an operator: not in `due`.
    #[n(7)]
    pub held: Option<bool>,
    /// When it was last claimed (ms).
    #[n(8)]
    pub claimed_at: Option<u64>,
    /// Refusals that spend nothing (`quota`, `disk_full`, `busy`) in a row.
    #[n(9)]
    pub refused: u32,
}

impl DeliveryRow {
    /// Where `counters` has it besides its state, if an operator holds its segment while it waits.
    #[must_use]
    pub fn counted_held(&self) -> Option<u8> {
        let waits = matches!(self.state, State::Scheduled | State::Failed);
        (waits && self.held == Some(true)).then_some(HELD + self.state as u8)
    }

    /// Everything under which `counters` has it.
    pub fn counted_as(&self) -> impl Iterator<Item = u8> + use<> {
        [Some(self.state as u8), self.counted_held()].into_iter().flatten()
    }
}

/// A row of `inflight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct InflightRow {
    /// Epoch of the session that claimed it.
    #[n(0)]
    pub epoch: Epoch,
}

/// A row of `ids`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct IdRow {
    /// The accept number.
    #[n(0)]
    pub seq: Seq,
}

/// A row of `blobs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BlobRow {
    /// Digest of the content.
    #[n(0)]
    pub digest: BlobDigest,
    /// Length in bytes.
    #[n(1)]
    pub size: u64,
    /// Rows that use it.
    #[n(2)]
    pub refs: u32,
    /// The peer it came from, by number, which is charged for it; `None` when it was handed in here.
    #[n(3)]
    pub owner: Option<u32>,
}

/// A row of `digests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DigestRow {
    /// The blob with that content.
    #[n(0)]
    pub blob: BlobNo,
}

/// A row of `doomed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DoomedRow {
    /// Bytes still charged for it.
    #[n(0)]
    pub size: u64,
    /// Who is charged: site number, 0 for this site.
    #[n(1)]
    pub owner: u32,
    /// Its file goes to the quarantine instead of away: it is not what was accepted.
    #[n(2)]
    pub aside: Option<bool>,
}

impl DoomedRow {
    /// Content that is not needed any more.
    #[must_use]
    pub const fn new(size: u64, owner: u32) -> DoomedRow {
        DoomedRow { size, owner, aside: None }
    }
}

/// A row of `incoming`: content being received, and how far it is durable.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IncomingRow {
    /// Digest that was promised; all zero when it is not known beforehand.
    #[n(0)]
    pub digest: BlobDigest,
    /// Who sends it: site number, 0 for a local client.
    #[n(1)]
    pub source: u32,
    /// Bytes reserved in all: the declared size, or a multiple of the reservation step.
    #[n(2)]
    pub reserved: u64,
    /// Durable length; a multiple of the checkpoint distance.
    #[n(3)]
    pub offset: u64,
    /// BLAKE3 chaining values of what is durable ([`crate::hash::Checkpoint`]).
    #[cbor(n(4), with = "minicbor::bytes")]
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
    pub chain: Vec<u8>,
    /// When it is given up (ms).
    #[n(5)]
    pub expires_at: u64,
    /// Whether it is a shard's: that row leads to it, and the shard's deadline is its own.
    #[n(6)]
    #[cfg_attr(feature = "serde", serde(default))]
    pub shard: Option<bool>,
}

/// A row of `sources`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SourceRow {
    /// The partial content, if there is one.
    #[n(0)]
    pub blob: Option<BlobNo>,
    /// How often this source sent content that did not match.
    #[n(1)]
    pub mismatches: u32,
}

/// A row of `counters`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CounterRow {
    /// Deliveries.
    #[n(0)]
    pub count: u64,
    /// Their bytes.
    #[n(1)]
    pub bytes: u64,
}

/// In the key of `counters`, in place of a state: content that is held, reserved or doomed and came
/// from that site, in segments and bytes charged (`inbound_quota`).
pub const INBOUND: u8 = 5;

/// In the key of `counters`, added to the number of Scheduled or Failed: deliveries among those in that state that wait because an operator holds
/// their segment.
pub const HELD: u8 = 8;

/// Whether a counter with that number in its key counts what an operator holds.
#[must_use]
pub fn counts_held(state: u8) -> bool {
    [State::Scheduled, State::Failed].iter().any(|waits| state == HELD + *waits as u8)
}

/// In the key of `counters`, added to a shard's state, at site 0: shards in that state, and the bytes that
/// are held or reserved for them.
pub const SHARDS: u8 = 16;

/// A row of `deadletters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DeadletterRow {
    /// [`crate::code::Cause`] number.
    #[n(0)]
    pub cause: u8,
}

/// A row of `peers`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PeerRow {
    /// Name.
    #[n(0)]
    pub name: String,
    /// SHA-256 fingerprint it is pinned to; empty when it is not.
    #[cbor(n(1), with = "minicbor::bytes")]
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
    pub pin: Vec<u8>,
    /// Held by an operator.
    #[n(2)]
    pub held: bool,
    /// Last committed ACK from it (ms).
    #[n(3)]
    pub last_acked: Option<u64>,
    /// An operator gave up what was owed to it, and it was not configured then.
    #[n(4)]
    #[cfg_attr(feature = "serde", serde(default))]
    pub forgotten: Option<bool>,
}

/// Names in `meta` and what they count; each value is one u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MetaName {
    /// The ledger format.
    Format,
    /// How often the process was started.
    Boot,
    /// The last batch that was committed.
    Batch,
    /// The next accept number.
    NextSeq,
    /// The next blob number.
    NextBlob,
    /// The next body number.
    NextBody,
    /// The next site number.
    NextSite,
    /// The next redemption number.
    NextRedemption,
    /// The next audit number.
    NextAudit,
    /// High water of effective time (ms).
    TimeHigh,
    /// Bytes charged: content, reservations, doomed files.
    UsedBytes,
    /// Segments held.
    Segments,
    /// Segments among them that are unplaced.
    Unplaced,
    /// Ids remembered (`remembered`).
    Remembered,
    /// Rows of `audit`.
    AuditRows,
    /// The last segment whose content was looked at in the pass under way; 0 between passes.
    ScrubNext,
    /// When the last pass over all content ended (ms).
    ScrubDone,
    /// Where the pass under way is among shards ([`PlaceRow`]).
    ScrubShard,
    /// 1 since what an operator holds is counted ([`HELD`]); 0 in a ledger that was last written before.
    HeldCounted,
}

impl MetaName {
    /// Every name.
    pub const ALL: [MetaName; 19] = [
        MetaName::Format,
        MetaName::Boot,
        MetaName::Batch,
        MetaName::NextSeq,
        MetaName::NextBlob,
        MetaName::NextBody,
        MetaName::NextSite,
        MetaName::NextRedemption,
        MetaName::NextAudit,
        MetaName::TimeHigh,
        MetaName::UsedBytes,
        MetaName::Segments,
        MetaName::Unplaced,
        MetaName::Remembered,
        MetaName::AuditRows,
        MetaName::ScrubNext,
        MetaName::ScrubDone,
        MetaName::ScrubShard,
        MetaName::HeldCounted,
    ];

    /// The key in `meta`.
    #[must_use]
    pub const fn key(self) -> &'static [u8] {
        match self {
            MetaName::Format => b"format",
            MetaName::Boot => b"boot",
            MetaName::Batch => b"batch",
            MetaName::NextSeq => b"next_seq",
            MetaName::NextBlob => b"next_blob",
            MetaName::NextBody => b"next_body",
            MetaName::NextSite => b"next_site",
            MetaName::NextRedemption => b"next_redemption",
            MetaName::NextAudit => b"next_audit",
            MetaName::TimeHigh => b"time_high",
            MetaName::UsedBytes => b"used_bytes",
            MetaName::Segments => b"segments",
            MetaName::Unplaced => b"unplaced",
            MetaName::Remembered => b"remembered",
            MetaName::AuditRows => b"audit_rows",
            MetaName::ScrubNext => b"scrub_next",
            MetaName::ScrubDone => b"scrub_done",
            MetaName::ScrubShard => b"scrub_shard",
            MetaName::HeldCounted => b"held_counted",
        }
    }
}

/// A row of `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct MetaRow {
    /// The counter.
    #[n(0)]
    pub value: u64,
}

/// The row of [`MetaName::ScrubShard`]: a row of `meta` that names a key too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PlaceRow {
    /// How many places were written down in this pass.
    #[n(0)]
    pub value: u64,
    /// The last shard key that was looked at; empty before the first and after the last.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub key: Vec<u8>,
}
