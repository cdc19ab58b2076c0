//! Reads of receipts: of one segment, and those that a peer has still to be told.

use alloc::vec::Vec;

use super::read::{Answer, decode, lenient, scan_prefix};
use super::rows_upkeep::ReceiptRow;
use super::{Table, keys};
use crate::id::{Seq, SiteNo};
use crate::store::{Snapshot, StoreFault};

/// Every receipt of a segment, by site; what cannot be read is left out.
pub(super) fn of_segment(
    snapshot: &dyn Snapshot,
    seq: Seq,
) -> Result<Vec<(SiteNo, ReceiptRow)>, StoreFault> {
    let mut receipts = Vec::new();
    scan_prefix(snapshot, Table::Receipts, &keys::seq(seq), &mut |key, value| {
        if let (Some((_, site)), Ok(row)) =
            (keys::parse_delivery(key), decode(Table::Receipts, key, value))
        {
            receipts.push((site, row));
        }
        true
    })?;
    Ok(receipts)
}

/// A page of what a peer has still to be told.
pub(super) fn pass_back(
    snapshot: &dyn Snapshot,
    peer: SiteNo,
    after: Option<(Seq, SiteNo)>,
    limit: usize,
) -> Result<Answer, StoreFault> {
    let prefix = keys::site(peer);
    let from = after.map_or(prefix, |(seq, site)| keys::pass_back(peer, seq, site));
    let mut found: Vec<(Seq, SiteNo)> = Vec::new();
    let mut end = true;
    snapshot.scan(Table::PassBack, &from, &mut |key, _| {
        if !key.starts_with(&prefix) {
            return false;
        }
        let Some((_, seq, site)) = keys::parse_pass_back(key) else { return true };
        if Some((seq, site)) == after {
            return true;
        }
        if found.len() == limit {
            end = false;
            return false;
        }
        found.push((seq, site));
        true
    })?;
    let mut rows = Vec::with_capacity(found.len());
    for (seq, site) in found {
        let row = lenient(snapshot, Table::Receipts, &keys::delivery(seq, site))?;
        rows.push((seq, site, row));
    }
    Ok(Answer::PassBack { rows, end })
}
