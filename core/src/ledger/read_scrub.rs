//! Reads of the scrub: content to be looked at, who owns it, and rows as they are.

use alloc::vec::Vec;

use super::keys_upkeep::{Owner, owner_prefix, parse_owner};
use super::read::{Answer, Kept, Lookup, held, lenient, scan_prefix};
use super::read_lookup::lookup;
use super::read_upkeep::kept;
use super::rows::{Body, DigestRow, IdRow, Loss, SegmentRow};
use super::{Table, codec, keys};
use crate::id::{BlobDigest, BlobNo, Seq};
use crate::store::{Snapshot, StoreFault};
use crate::wire::Wanted;

/// Most segments of one piece of content that are told of at a time.
const OWNERS: usize = 512;

/// Most segments whose content is replaced in one commit.
const MENDED: usize = 256;

/// Segments with a content that are looked at for whoever wants it.
const WANTED: usize = 16;

/// A piece of content to be read and compared with its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ScrubItem {
    /// A segment that has it: of several, the one with the lowest number. Of a shard's content a number
    /// from 2^63 up that the node knows it by: none is given twice.
    pub seq: Seq,
    /// Where it is.
    pub body: Body,
    /// Its length in bytes.
    pub size: u64,
    /// What it must hash to.
    pub digest: BlobDigest,
}

/// What a page of the scrub may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPage {
    /// At most so many segments are looked through.
    pub segments: usize,
    /// No more is taken once it has so many bytes.
    pub bytes: u64,
}

/// Content of the segments behind `after`, each piece once.
pub(super) fn scrub(
    snapshot: &dyn Snapshot,
    after: Option<Seq>,
    page: ScrubPage,
) -> Result<Answer, StoreFault> {
    let from = after.map_or(Seq(0), |seq| Seq(seq.0.saturating_add(1)));
    let (mut items, mut bytes, mut looked) = (Vec::new(), 0u64, 0);
    let (mut through, mut end, mut doubted) = (after, true, Vec::new());
    let mut fault = None;
    snapshot.scan(Table::Segments, &keys::seq(from), &mut |key, value| {
        if looked == page.segments || bytes >= page.bytes {
            end = false;
            return false;
        }
        looked += 1;
        let Some(seq) = keys::parse_u64(key).map(Seq) else { return true };
        through = Some(seq);
        let row: Result<SegmentRow, _> = codec::decode(Table::Segments, key, value);
        // What cannot be read, or is known to be wrong, is not looked at.
        let Ok(row) = row else { return true };
        if let Some(loss) = row.loss {
            doubted.extend((loss == Loss::Doubted).then_some(seq));
            return true;
        }
        match is_first(snapshot, seq, row.body) {
            Ok(true) => {
                bytes = bytes.saturating_add(row.size);
                let SegmentRow { body, size, digest, .. } = row;
                items.push(ScrubItem { seq, body, size, digest });
            }
            Ok(false) => {}
            Err(why) => fault = Some(why),
        }
        fault.is_none()
    })?;
    fault.map_or(Ok(Answer::Scrub { items, doubted, through, end }), Err)
}

/// Whether no owner of this content has a lower number.
fn is_first(snapshot: &dyn Snapshot, seq: Seq, body: Body) -> Result<bool, StoreFault> {
    match body {
        Body::Inline(_) => Ok(true),
        Body::Blob(blob) => Ok(owners(snapshot, blob, 1)?.first().is_none_or(|s| *s >= seq)),
    }
}

fn owners(snapshot: &dyn Snapshot, blob: BlobNo, most: usize) -> Result<Vec<Seq>, StoreFault> {
    let mut all = Vec::new();
    scan_prefix(snapshot, Table::Owners, &owner_prefix(blob), &mut |key, _| {
        if let Some((_, Owner::Segment(seq))) = parse_owner(key) {
            all.push(seq);
        }
        all.len() < most
    })?;
    Ok(all)
}

/// These segments, and all others that have their content.
pub(super) fn sharers(snapshot: &dyn Snapshot, seqs: &[Seq]) -> Result<Answer, StoreFault> {
    let mut all: Vec<Option<Kept>> = Vec::new();
    for seq in seqs {
        let row: Option<SegmentRow> = lenient(snapshot, Table::Segments, &keys::seq(*seq))?;
        let mut with = match row.map(|row| row.body) {
            Some(Body::Blob(blob)) => owners(snapshot, blob, OWNERS)?,
            Some(Body::Inline(_)) | None => Vec::new(),
        };
        if !with.contains(seq) {
            with.push(*seq);
        }
        for seq in with {
            all.push(kept(snapshot, seq)?);
        }
    }
    Ok(Answer::Kept(all))
}

/// Segments that have what somebody wants.
pub(super) fn wanted(snapshot: &dyn Snapshot, what: &Wanted) -> Result<Answer, StoreFault> {
    let seqs = match what {
        Wanted::Segment(id) => {
            let row: Option<IdRow> = lenient(snapshot, Table::Ids, &keys::id(id))?;
            row.map(|row| row.seq).into_iter().collect()
        }
        Wanted::Blob(digest) => {
            let row: Option<DigestRow> = lenient(snapshot, Table::Digests, &digest.0)?;
            match row {
                Some(row) => owners(snapshot, row.blob, WANTED)?,
                None => Vec::new(),
            }
        }
    };
    let held: Result<Vec<_>, StoreFault> = seqs.into_iter().map(|s| held(snapshot, s)).collect();
    Ok(Answer::Held(held?))
}

/// A segment that has lost its content with all that share it, and what is known of what comes instead.
pub(super) fn repair(
    snapshot: &dyn Snapshot,
    seq: Seq,
    found: &Lookup,
) -> Result<Answer, StoreFault> {
    let row: Option<SegmentRow> = lenient(snapshot, Table::Segments, &keys::seq(seq))?;
    let mut all = match row.map(|row| row.body) {
        Some(Body::Blob(blob)) => owners(snapshot, blob, MENDED)?,
        Some(Body::Inline(_)) | None => Vec::new(),
    };
    all.retain(|other| *other != seq);
    all.truncate(MENDED - 1);
    all.insert(0, seq);
    let kept: Result<Vec<_>, StoreFault> = all.into_iter().map(|s| kept(snapshot, s)).collect();
    let found = lookup(snapshot, found)?;
    Ok(Answer::Repair(kept?, alloc::boxed::Box::new(found)))
}

/// Values as they are, in the order asked.
pub(super) fn raw(
    snapshot: &dyn Snapshot,
    rows: &[(Table, Vec<u8>)],
) -> Result<Answer, StoreFault> {
    let mut all = Vec::with_capacity(rows.len());
    for (table, key) in rows {
        all.push(snapshot.get(*table, key)?.map(RawRow::of));
    }
    Ok(Answer::Raw(all))
}

/// The value of a row as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RawRow(#[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))] pub Vec<u8>);

impl RawRow {
    fn of(value: &[u8]) -> RawRow {
        RawRow(value.to_vec())
    }
}
