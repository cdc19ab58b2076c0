//! What the node asks about exports: due ones, those of a segment, and what there is to export.

use alloc::vec::Vec;

use super::Table;
use super::keys;
use super::keys_upkeep::{self, ExpiryKind, RuleId};
use super::read::{Answer, lenient};
use super::rows::SegmentRow;
use super::rows_upkeep::ExportRow;
use crate::id::Seq;
use crate::store::{Snapshot, StoreFault};
use crate::time::UnixMillis;

/// Which due exports are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueExports {
    /// From this key of `expiry` on.
    pub from: Vec<u8>,
    /// Due by then.
    pub until: UnixMillis,
    /// Of these rules.
    pub rules: Vec<RuleId>,
    /// At most so many of each.
    pub each: usize,
    /// Keys looked at in all.
    pub limit: usize,
}

/// An export that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DueExport {
    /// When it became due, as its key says.
    pub at: UnixMillis,
    /// Its rule.
    pub rule: RuleId,
    /// Its segment.
    pub seq: Seq,
    /// Its row; `None` when it is missing or cannot be read.
    pub row: Option<ExportRow>,
    /// The segment's row; `None` when it is gone or cannot be read.
    pub segment: Option<SegmentRow>,
}

/// A segment that is for this site, and which rules have a row for it already.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HereSegment {
    /// Its accept number.
    pub seq: Seq,
    /// Its row.
    pub segment: SegmentRow,
    /// Rules that know it.
    pub known: Vec<RuleId>,
}

/// Due exports in order of time.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn due_exports(
    snapshot: &dyn Snapshot,
    wanted: &DueExports,
) -> Result<Answer, StoreFault> {
    let mut keys_found: Vec<(UnixMillis, RuleId, Seq)> = Vec::new();
    // Where each rule is to be looked for next.
    let mut next: Vec<(RuleId, Option<Vec<u8>>)> =
        wanted.rules.iter().map(|r| (*r, None)).collect();
    let mut open = next.len();
    let mut looked = 0;
    snapshot.scan(Table::Expiry, &wanted.from, &mut |key, _| {
        if looked == wanted.limit {
            for (_, next) in next.iter_mut().filter(|(_, next)| next.is_none()) {
                *next = Some(key.to_vec());
            }
            return false;
        }
        looked += 1;
        let Some((at, ExpiryKind::Export, rest)) = keys_upkeep::parse_expiry(key) else {
            return true;
        };
        let Some((rule, seq)) = keys_upkeep::parse_export(rest) else { return true };
        let Some((_, next)) = next.iter_mut().find(|(r, next)| *r == rule && next.is_none()) else {
            return true;
        };
        if at > wanted.until {
            *next = Some(key.to_vec());
            open -= 1;
        } else {
            keys_found.push((at, rule, seq));
            let mine = keys_found.iter().filter(|(_, r, _)| *r == rule).count();
            if mine >= wanted.each {
                let mut behind = key.to_vec();
                behind.push(0);
                *next = Some(behind);
                open -= 1;
            }
        }
        open > 0
    })?;
    let mut rows = Vec::with_capacity(keys_found.len());
    for (at, rule, seq) in keys_found {
        let row = lenient(snapshot, Table::Exports, &keys_upkeep::export(rule, seq))?;
        let segment = lenient(snapshot, Table::Segments, &keys::seq(seq))?;
        rows.push(DueExport { at, rule, seq, row, segment });
    }
    Ok(Answer::DueExports { rows, next })
}

/// The exports of a segment, of these rules.
///
/// # Errors
/// When the store cannot be read.
pub fn exports_of(
    snapshot: &dyn Snapshot,
    seq: Seq,
    rules: &[RuleId],
) -> Result<Vec<(RuleId, ExportRow)>, StoreFault> {
    let mut found = Vec::new();
    for rule in rules {
        let row = lenient(snapshot, Table::Exports, &keys_upkeep::export(*rule, seq))?;
        found.extend(row.map(|row| (*rule, row)));
    }
    Ok(found)
}

/// Segments for this site behind `after`, in order, after looking at `limit` segments.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn segments_here(
    snapshot: &dyn Snapshot,
    after: Option<Seq>,
    limit: usize,
    rules: &[RuleId],
) -> Result<Answer, StoreFault> {
    let from = after.map_or(Seq(0), |seq| Seq(seq.0.saturating_add(1)));
    let mut here: Vec<(Seq, SegmentRow)> = Vec::new();
    let (mut looked, mut last, mut end) = (0, after, true);
    snapshot.scan(Table::Segments, &keys::seq(from), &mut |key, value| {
        if looked == limit {
            end = false;
            return false;
        }
        looked += 1;
        let row = super::codec::decode::<SegmentRow>(Table::Segments, key, value);
        if let Some(seq) = keys::parse_u64(key).map(Seq) {
            last = Some(seq);
            here.extend(row.ok().filter(|row| row.here).map(|row| (seq, row)));
        }
        true
    })?;
    let mut rows = Vec::with_capacity(here.len());
    for (seq, segment) in here {
        let known = exports_of(snapshot, seq, rules)?.into_iter().map(|(rule, _)| rule).collect();
        rows.push(HereSegment { seq, segment, known });
    }
    Ok(Answer::SegmentsHere { rows, last, end })
}

/// The exports of a segment by every rule that has ever exported anything: rules are few, so each is
/// looked up, and the next one is found by going past it.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn exports_everywhere(
    snapshot: &dyn Snapshot,
    seq: Seq,
) -> Result<Vec<(RuleId, ExportRow)>, StoreFault> {
    let mut found = Vec::new();
    let mut from = Some(RuleId(0));
    while let Some(rule) = from {
        let mut next = None;
        let first = keys_upkeep::export(rule, Seq(0));
        snapshot.scan(Table::Exports, &first, &mut |key, _| {
            next = keys_upkeep::parse_export(key).map(|(rule, _)| rule);
            false
        })?;
        let Some(rule) = next else { break };
        found.extend(exports_of(snapshot, seq, &[rule])?);
        from = rule.0.checked_add(1).map(RuleId);
    }
    Ok(found)
}
