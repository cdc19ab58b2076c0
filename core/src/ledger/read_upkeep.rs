//! Reads of what keeps the ledger in order: what is due in `expiry`, the oldest rows of tables that are
//! bounded, and everything that is needed to remove a segment.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Table;
use super::keys;
use super::keys_upkeep::{self, ExpiryKind, RuleId, parse_expiry};
use super::read::{self, Answer, Held, lenient};
use super::read_export::exports_everywhere;
use super::rows::{BlobRow, Body, DigestRow, IdRow};
use super::rows_upkeep::{ExportRow, ReceiptRow, RememberedRow};
use crate::id::{BlobNo, SegmentId, Seq, SiteNo};
use crate::store::{Snapshot, StoreFault};
use crate::time::UnixMillis;

/// A row of `expiry` with what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Expiring {
    /// Its key, as it stands in the table.
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
    pub key: Vec<u8>,
    /// What it is about.
    pub what: Subject,
}

/// What a row of `expiry` is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Subject {
    /// A segment that may go; `None` when there is none, or its row cannot be read.
    Segment(Seq, Option<Box<Kept>>),
    /// A receipt.
    Receipt(Seq, SiteNo, Option<Box<ReceiptRow>>),
    /// A remembered id.
    Remembered(SegmentId, Option<RememberedRow>),
    /// Something that others look after.
    Other,
}

/// A segment with everything that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Kept {
    /// Its rows.
    pub held: Held,
    /// Where its id leads.
    pub id: Option<Seq>,
    /// The row of its content file, if it has one.
    pub blob: Option<BlobRow>,
    /// Where the digest of its content leads.
    pub digest: Option<BlobNo>,
    /// Sites that have a receipt of it already.
    pub receipts: Vec<SiteNo>,
    /// What is remembered of its id from before.
    pub remembered: Option<RememberedRow>,
    /// Its exports, of whatever rule.
    #[cfg_attr(feature = "serde", serde(default))]
    pub exports: Vec<(RuleId, ExportRow)>,
}

/// Rows of a bounded table, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Oldest {
    /// Of `audit`: their numbers.
    Audit(Vec<u64>),
    /// Of `remembered_age`.
    Remembered(Vec<(UnixMillis, SegmentId)>),
    /// Of `deadletters`, with their segments.
    Deadletters(Vec<(UnixMillis, Seq, SiteNo, Option<Box<Held>>)>),
}

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounded {
    /// `audit`
    Audit,
    /// `remembered_age`
    Remembered,
    /// `deadletters`
    Deadletters,
}

/// Rows of `expiry` looked at in one read, whatever their kind.
const LOOKED_AT: usize = 4_096;

/// See [`super::read::ReadRequest::Expiry`].
pub(super) fn expiry(
    snapshot: &dyn Snapshot,
    after: Option<&[u8]>,
    until: UnixMillis,
    only: Option<ExpiryKind>,
    limit: usize,
) -> Result<Answer, StoreFault> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let (mut next, mut last, mut full, mut seen) = (None, Vec::new(), false, 0);
    snapshot.scan(Table::Expiry, after.unwrap_or_default(), &mut |key, _| {
        if Some(key) == after {
            return true;
        }
        let parsed = parse_expiry(key);
        if let Some((at, ..)) = parsed.filter(|(at, ..)| *at > until) {
            next = Some(at);
            return false;
        }
        if keys.len() == limit || seen == LOOKED_AT {
            full = true;
            return false;
        }
        seen += 1;
        last = key.to_vec();
        if parsed.is_some_and(|(_, kind, _)| only.is_none_or(|only| kind == only)) {
            keys.push(key.to_vec());
        }
        true
    })?;
    let mut rows = Vec::with_capacity(keys.len());
    for key in keys {
        let what = subject(snapshot, &key)?;
        rows.push(Expiring { key, what });
    }
    Ok(Answer::Expiry { rows, more: full.then_some(last), next })
}

fn subject(snapshot: &dyn Snapshot, key: &[u8]) -> Result<Subject, StoreFault> {
    let Some((_, kind, rest)) = parse_expiry(key) else { return Ok(Subject::Other) };
    Ok(match kind {
        ExpiryKind::Segment | ExpiryKind::Keep => match keys::parse_u64(rest) {
            Some(seq) => Subject::Segment(Seq(seq), kept(snapshot, Seq(seq))?.map(Box::new)),
            None => Subject::Other,
        },
        ExpiryKind::Receipt => match keys::parse_delivery(rest) {
            Some((seq, site)) => {
                Subject::Receipt(seq, site, lenient(snapshot, Table::Receipts, rest)?.map(Box::new))
            }
            None => Subject::Other,
        },
        ExpiryKind::Remembered => match <[u8; 32]>::try_from(rest) {
            Ok(id) => {
                Subject::Remembered(SegmentId(id), lenient(snapshot, Table::Remembered, rest)?)
            }
            Err(_) => Subject::Other,
        },
        ExpiryKind::Incoming
        | ExpiryKind::PassBack
        | ExpiryKind::Export
        | ExpiryKind::Token
        | ExpiryKind::Nonce
        | ExpiryKind::Shard
        | ExpiryKind::Quarantine => Subject::Other,
    })
}

/// A segment with everything that goes with it; `None` when its row is missing or corrupt.
///
/// # Errors
/// When the store cannot be read.
pub fn kept(snapshot: &dyn Snapshot, seq: Seq) -> Result<Option<Kept>, StoreFault> {
    let Some(held) = read::held(snapshot, seq)? else { return Ok(None) };
    let id_key = keys::id(&held.row.id);
    let id: Option<IdRow> = lenient(snapshot, Table::Ids, &id_key)?;
    let remembered = lenient(snapshot, Table::Remembered, &id_key)?;
    let (mut blob, mut digest) = (None, None);
    if let Body::Blob(number) = held.row.body {
        blob = lenient(snapshot, Table::Blobs, &keys::blob(number))?;
        let leads: Option<DigestRow> = lenient(snapshot, Table::Digests, &held.row.digest.0)?;
        digest = leads.map(|row| row.blob);
    }
    let mut receipts = Vec::new();
    read::scan_prefix(snapshot, Table::Receipts, &keys::seq(seq), &mut |key, _| {
        receipts.extend(keys::parse_delivery(key).map(|(_, site)| site));
        true
    })?;
    let exports = exports_everywhere(snapshot, seq)?;
    let id = id.map(|row| row.seq);
    Ok(Some(Kept { held, id, blob, digest, receipts, remembered, exports }))
}

/// See [`super::read::ReadRequest::Oldest`].
pub(super) fn oldest(
    snapshot: &dyn Snapshot,
    table: Bounded,
    limit: usize,
) -> Result<Answer, StoreFault> {
    let found = match table {
        Bounded::Audit => Oldest::Audit(first(snapshot, Table::Audit, limit, keys::parse_u64)?),
        Bounded::Remembered => Oldest::Remembered(first(
            snapshot,
            Table::RememberedAge,
            limit,
            keys_upkeep::parse_remembered_age,
        )?),
        Bounded::Deadletters => {
            let keys = first(snapshot, Table::Deadletters, limit, keys::parse_deadletter)?;
            let mut rows = Vec::with_capacity(keys.len());
            for keys::DeadKey { at, seq, site } in keys {
                rows.push((at, seq, site, read::held(snapshot, seq)?.map(Box::new)));
            }
            Oldest::Deadletters(rows)
        }
    };
    Ok(Answer::Oldest(found))
}

fn first<K>(
    snapshot: &dyn Snapshot,
    table: Table,
    limit: usize,
    parse: impl Fn(&[u8]) -> Option<K>,
) -> Result<Vec<K>, StoreFault> {
    let mut found = Vec::new();
    snapshot.scan(table, &[], &mut |key, _| {
        found.extend(parse(key));
        found.len() < limit
    })?;
    Ok(found)
}
