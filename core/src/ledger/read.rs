//! Every read the node asks, as a pure function over a snapshot: what runs on a store's reader.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use minicbor::Decode;

use super::keys::{self, DueKey};
use super::keys_upkeep::{ExpiryKind, RuleId};
use super::read_acts::{Pick, Picked};
use super::read_export::{
    DueExport, DueExports, HereSegment, due_exports, exports_of, segments_here,
};
use super::read_recovery::segments;
pub use super::read_recovery::{Recovery, recovery};
use super::read_scrub::{self, RawRow, ScrubItem, ScrubPage};
pub use super::read_upkeep::{Bounded, Expiring, Kept, Oldest, Subject};
use super::rows::{BlobRow, DeliveryRow, IncomingRow, InflightRow, SegmentRow, SourceRow};
use super::rows_upkeep::{ReceiptRow, RememberedRow};
use super::{Table, codec, read_receipts, read_rows};
use crate::id::{BatchNo, BlobDigest, BlobNo, SegmentId, Seq, SiteNo};
use crate::segment::Class;
use crate::store::{ReadResult, Snapshot, StoreFault};
use crate::time::UnixMillis;
use crate::wire::Wanted;

/// A read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadRequest {
    /// What is known of these segments and their content.
    Lookup(Vec<Lookup>),
    /// Due deliveries of one (peer, class) behind `after`, in order.
    Due {
        /// The peer.
        peer: SiteNo,
        /// The class.
        class: Class,
        /// Not this key and none before it; `None` is from the beginning.
        after: Option<DueKey>,
        /// At most so many.
        limit: usize,
    },
    /// Rows of these deliveries and their segments.
    Pairs(Vec<(Seq, SiteNo)>),
    /// Segments behind `after`, in order.
    Segments {
        /// Not this one and none before it.
        after: Option<Seq>,
        /// At most so many.
        limit: usize,
    },
    /// Segments with their deliveries.
    Held(Vec<Seq>),
    /// Receipts that a peer has still to be told, in order.
    PassBack {
        /// The peer.
        peer: SiteNo,
        /// Not this one and none before it; `None` is from the beginning.
        after: Option<(Seq, SiteNo)>,
        /// At most so many.
        limit: usize,
    },
    /// Everything the node keeps in memory, read anew.
    Recovery,
    /// Rows of `expiry` up to a time, in order.
    Expiry {
        /// Not this key and none before it; `None` is from the beginning.
        after: Option<Vec<u8>>,
        /// Up to this time.
        until: UnixMillis,
        /// Of this kind; `None` is of every kind.
        only: Option<ExpiryKind>,
        /// At most so many.
        limit: usize,
    },
    /// The first rows of a bounded table.
    Oldest(Bounded, usize),
    /// Segments with everything that goes with them.
    Kept(Vec<Seq>),
    /// What an operator's act is about.
    Picked(Pick),
    /// Exports that are due.
    DueExports(DueExports),
    /// The exports of a segment, of these rules.
    Exports(Seq, Vec<RuleId>),
    /// Segments for this site behind `after`, in order, with the rules that know them.
    SegmentsHere {
        /// Not this one and none before it.
        after: Option<Seq>,
        /// Segments looked at.
        limit: usize,
        /// The rules there are.
        rules: Vec<RuleId>,
    },
    /// Content to be compared with its digest: that of the segments behind `after`.
    Scrub {
        /// Not this segment and none before it.
        after: Option<Seq>,
        /// At most so much.
        page: ScrubPage,
    },
    /// These segments and all that share their content, with everything that goes with them.
    Sharers(Vec<Seq>),
    /// Segments that have what somebody wants, with their deliveries.
    Wanted(Wanted),
    /// A segment that has lost its content and others that share it; and what is known of the content
    /// that comes instead.
    Repair(Seq, Lookup),
    /// The values of these rows as they are.
    Raw(Vec<(Table, Vec<u8>)>),
    /// Rows of a part of a table as they are, in order.
    Rows {
        /// The table.
        table: Table,
        /// From this key on.
        from: Vec<u8>,
        /// Not this key and none behind it.
        until: Vec<u8>,
        /// At most so many.
        limit: usize,
    },
    /// How many rows such a part has.
    Count {
        /// The table.
        table: Table,
        /// From this key on.
        from: Vec<u8>,
        /// Not this key and none behind it.
        until: Vec<u8>,
    },
}

/// One segment to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The segment.
    pub id: SegmentId,
    /// Its content.
    pub digest: BlobDigest,
    /// Who offers it: 0 for a local client.
    pub source: SiteNo,
}

/// What a lookup found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Found {
    /// The segment, if it is held.
    pub held: Option<Box<Held>>,
    /// The number that its identity leads to, where there is no row that can be read.
    #[cfg_attr(feature = "serde", serde(default))]
    pub rowless: Option<Seq>,
    /// A blob with that content.
    pub blob: Option<(BlobNo, BlobRow)>,
    /// What this source sent of that content before.
    pub source: Option<SourceRow>,
    /// The partial content of that source.
    pub incoming: Option<IncomingRow>,
    /// What is remembered of it, if it was evicted and is not held.
    #[cfg_attr(feature = "serde", serde(default))]
    pub remembered: Option<RememberedRow>,
    /// Receipts for it, by site: of the segment that is held, or of the one that is remembered.
    #[cfg_attr(feature = "serde", serde(default))]
    pub receipts: Vec<(SiteNo, ReceiptRow)>,
}

/// A segment with its deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Held {
    /// Its accept number.
    pub seq: Seq,
    /// Its row.
    pub row: SegmentRow,
    /// Its deliveries, by site.
    pub deliveries: Vec<(SiteNo, DeliveryRow)>,
    /// Sites whose delivery is there and cannot be read.
    #[cfg_attr(feature = "serde", serde(default))]
    pub unreadable: Vec<SiteNo>,
}

/// A due delivery with all the node needs to claim it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DueRow {
    /// Its key.
    pub key: DueKey,
    /// Its segment.
    pub segment: SegmentRow,
    /// Its row.
    pub delivery: DeliveryRow,
}

/// A delivery found in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct InflightFound {
    /// The peer.
    pub peer: SiteNo,
    /// The segment.
    pub seq: Seq,
    /// The epoch that claimed it.
    pub epoch: InflightRow,
    /// Its rows; `None` when they cannot be read.
    pub rows: Option<(SegmentRow, DeliveryRow)>,
}

/// A read's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReadAnswer {
    /// The last batch the answer rests on.
    pub as_of: BatchNo,
    /// The answer.
    pub body: Answer,
}

/// The body of an answer; each belongs to the request of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Answer {
    /// In the order asked.
    Lookup(Vec<Found>),
    /// Due rows in order.
    Due {
        /// The rows.
        rows: Vec<DueRow>,
        /// Keys whose rows are missing or cannot be read.
        bad: Vec<DueKey>,
        /// Whether there is nothing behind the last row.
        end: bool,
    },
    /// In the order asked; `None` where a row is missing or cannot be read.
    Pairs(Vec<Option<(SegmentRow, DeliveryRow)>>),
    /// Segments in order; `None` for a row that cannot be read.
    Segments {
        /// The rows.
        rows: Vec<(Seq, Option<SegmentRow>)>,
        /// Whether there is nothing behind the last row.
        end: bool,
    },
    /// In the order asked; `None` where there is no such segment.
    Held(Vec<Option<Held>>),
    /// Receipts in order.
    PassBack {
        /// The rows; `None` where one is missing or cannot be read.
        rows: Vec<(Seq, SiteNo, Option<ReceiptRow>)>,
        /// Whether there is nothing behind the last row.
        end: bool,
    },
    /// Everything.
    Recovery(alloc::boxed::Box<Recovery>),
    /// Rows of `expiry`.
    Expiry {
        /// The rows.
        rows: Vec<Expiring>,
        /// The last key that was looked at, when there is more behind it.
        more: Option<Vec<u8>>,
        /// When the first row behind the asked time is due, once everything before it was looked at.
        next: Option<UnixMillis>,
    },
    /// The first rows of a bounded table.
    Oldest(Oldest),
    /// In the order asked; `None` where there is no such segment.
    Kept(Vec<Option<Kept>>),
    /// The segment asked for first; `None` where a row is missing or cannot be read.
    Repair(Vec<Option<Kept>>, alloc::boxed::Box<Found>),
    /// In order.
    Picked(Picked),
    /// In order of time.
    DueExports {
        /// The exports.
        rows: Vec<DueExport>,
        /// Per rule the key from which more may be found; `None` when there is nothing.
        next: Vec<(RuleId, Option<Vec<u8>>)>,
    },
    /// Of one segment.
    Exports(Vec<(RuleId, super::rows_upkeep::ExportRow)>),
    /// In order.
    SegmentsHere {
        /// Those that are for this site.
        rows: Vec<HereSegment>,
        /// The last one that was looked at.
        last: Option<Seq>,
        /// Whether there is nothing behind it.
        end: bool,
    },
    /// Content in the order of the segments that have it.
    Scrub {
        /// The content.
        items: Vec<ScrubItem>,
        /// Segments among them whose content is doubted.
        #[cfg_attr(feature = "serde", serde(default))]
        doubted: Vec<Seq>,
        /// The last segment that was looked at.
        through: Option<Seq>,
        /// Whether there is nothing behind it.
        end: bool,
    },
    /// In the order asked; `None` where there is no row.
    Raw(Vec<Option<RawRow>>),
    /// Rows in order.
    Rows {
        /// Keys and values.
        rows: Vec<(RawRow, RawRow)>,
        /// The first key behind them, whether it was asked for or not; `None` at the table's end.
        next: Option<RawRow>,
    },
    /// So many rows.
    Count(u64),
}

/// Answers a request from a snapshot.
///
/// # Errors
/// When the store cannot be read, or a row that everything rests on is corrupt. Single bad rows of
/// segments and deliveries are told apart in the answer instead.
pub fn read(snapshot: &dyn Snapshot, request: &ReadRequest) -> ReadResult {
    let body = match request {
        ReadRequest::Lookup(lookups) => {
            let found: Result<Vec<Found>, StoreFault> =
                lookups.iter().map(|l| super::read_lookup::lookup(snapshot, l)).collect();
            Answer::Lookup(found?)
        }
        ReadRequest::Due { peer, class, after, limit } => {
            due(snapshot, *peer, *class, *after, *limit)?
        }
        ReadRequest::Pairs(pairs) => {
            let rows: Result<Vec<_>, StoreFault> =
                pairs.iter().map(|(seq, site)| pair(snapshot, *seq, *site)).collect();
            Answer::Pairs(rows?)
        }
        ReadRequest::Segments { after, limit } => segments(snapshot, *after, *limit)?,
        ReadRequest::Held(seqs) => {
            let held: Result<Vec<_>, StoreFault> =
                seqs.iter().map(|seq| held(snapshot, *seq)).collect();
            Answer::Held(held?)
        }
        ReadRequest::Expiry { after, until, only, limit } => {
            super::read_upkeep::expiry(snapshot, after.as_deref(), *until, *only, *limit)?
        }
        ReadRequest::Oldest(table, limit) => super::read_upkeep::oldest(snapshot, *table, *limit)?,
        ReadRequest::Kept(seqs) => {
            let kept: Result<Vec<_>, StoreFault> =
                seqs.iter().map(|seq| super::read_upkeep::kept(snapshot, *seq)).collect();
            Answer::Kept(kept?)
        }
        ReadRequest::PassBack { peer, after, limit } => {
            read_receipts::pass_back(snapshot, *peer, *after, *limit)?
        }
        ReadRequest::Recovery => Answer::Recovery(alloc::boxed::Box::new(recovery(snapshot)?)),
        ReadRequest::Picked(pick) => Answer::Picked(super::read_acts::picked(snapshot, pick)?),
        ReadRequest::DueExports(wanted) => due_exports(snapshot, wanted)?,
        ReadRequest::Exports(seq, rules) => Answer::Exports(exports_of(snapshot, *seq, rules)?),
        ReadRequest::SegmentsHere { after, limit, rules } => {
            segments_here(snapshot, *after, *limit, rules)?
        }
        ReadRequest::Scrub { after, page } => read_scrub::scrub(snapshot, *after, *page)?,
        ReadRequest::Sharers(seqs) => read_scrub::sharers(snapshot, seqs)?,
        ReadRequest::Wanted(what) => read_scrub::wanted(snapshot, what)?,
        ReadRequest::Repair(seq, found) => read_scrub::repair(snapshot, *seq, found)?,
        ReadRequest::Raw(rows) => read_scrub::raw(snapshot, rows)?,
        ReadRequest::Rows { .. } | ReadRequest::Count { .. } => read_rows::part(snapshot, request)?,
    };
    Ok(ReadAnswer { as_of: snapshot.as_of(), body })
}

/// Reads one row.
///
/// # Errors
/// When the store cannot be read, or [`StoreFault::Corrupt`] when the row cannot be decoded.
pub fn row<R>(snapshot: &dyn Snapshot, table: Table, key: &[u8]) -> Result<Option<R>, StoreFault>
where
    R: for<'b> Decode<'b, ()>,
{
    snapshot.get(table, key)?.map(|value| decode(table, key, value)).transpose()
}

pub(super) fn decode<R>(table: Table, key: &[u8], value: &[u8]) -> Result<R, StoreFault>
where
    R: for<'b> Decode<'b, ()>,
{
    codec::decode(table, key, value).map_err(|fault| StoreFault::Corrupt(fault.to_string()))
}

/// `None` for a row that is missing or corrupt: the caller sets that one item aside.
///
/// # Errors
/// When the store cannot be read.
pub fn lenient<R>(
    snapshot: &dyn Snapshot,
    table: Table,
    key: &[u8],
) -> Result<Option<R>, StoreFault>
where
    R: for<'b> Decode<'b, ()>,
{
    match row(snapshot, table, key) {
        Err(StoreFault::Corrupt(_)) => Ok(None),
        other => other,
    }
}

/// A segment with all its deliveries; `None` when its row is missing or corrupt.
///
/// # Errors
/// When the store cannot be read.
pub fn held(snapshot: &dyn Snapshot, seq: Seq) -> Result<Option<Held>, StoreFault> {
    let Some(row) = lenient(snapshot, Table::Segments, &keys::seq(seq))? else { return Ok(None) };
    let (mut deliveries, mut unreadable) = (Vec::new(), Vec::new());
    scan_prefix(snapshot, Table::Deliveries, &keys::seq(seq), &mut |key, value| {
        let Some((_, site)) = keys::parse_delivery(key) else { return true };
        match decode(Table::Deliveries, key, value) {
            Ok(row) => deliveries.push((site, row)),
            Err(_) => unreadable.push(site),
        }
        true
    })?;
    Ok(Some(Held { seq, row, deliveries, unreadable }))
}

/// Scans the rows whose key begins with `prefix`.
///
/// # Errors
/// When the store cannot be read.
pub fn scan_prefix(
    snapshot: &dyn Snapshot,
    table: Table,
    prefix: &[u8],
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), StoreFault> {
    snapshot.scan(table, prefix, &mut |key, value| key.starts_with(prefix) && visit(key, value))
}

fn due(
    snapshot: &dyn Snapshot,
    peer: SiteNo,
    class: Class,
    after: Option<DueKey>,
    limit: usize,
) -> Result<Answer, StoreFault> {
    let prefix = keys::due_prefix(peer, class);
    let from = after.map_or(prefix, |key| key.key());
    let mut found: Vec<DueKey> = Vec::new();
    let mut end = true;
    snapshot.scan(Table::Due, &from, &mut |key, _| {
        if !key.starts_with(&prefix) {
            return false;
        }
        if found.len() == limit {
            end = false;
            return false;
        }
        if let Some(parsed) = DueKey::parse(key).filter(|k| Some(*k) != after) {
            found.push(parsed);
        }
        true
    })?;
    let mut rows = Vec::with_capacity(found.len());
    let mut bad = Vec::new();
    for key in found {
        match pair(snapshot, key.seq, key.peer)? {
            Some((segment, delivery)) => rows.push(DueRow { key, segment, delivery }),
            None => bad.push(key),
        }
    }
    Ok(Answer::Due { rows, bad, end })
}

pub(super) fn pair(
    snapshot: &dyn Snapshot,
    seq: Seq,
    site: SiteNo,
) -> Result<Option<(SegmentRow, DeliveryRow)>, StoreFault> {
    let segment = lenient(snapshot, Table::Segments, &keys::seq(seq))?;
    let delivery = lenient(snapshot, Table::Deliveries, &keys::delivery(seq, site))?;
    Ok(segment.zip(delivery))
}
