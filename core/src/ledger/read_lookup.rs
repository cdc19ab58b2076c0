//! What is known of a segment that is offered or handed in, and of its content.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::read::{Found, Lookup, held, lenient};
use super::rows::{DigestRow, IdRow, SourceRow};
use super::rows_upkeep::RememberedRow;
use super::{Table, keys, read_receipts};
use crate::store::{Snapshot, StoreFault};

pub(super) fn lookup(snapshot: &dyn Snapshot, lookup: &Lookup) -> Result<Found, StoreFault> {
    let id: Option<IdRow> = lenient(snapshot, Table::Ids, &keys::id(&lookup.id))?;
    let held = match id {
        Some(IdRow { seq }) => held(snapshot, seq)?,
        None => None,
    };
    let rowless = id.map(|row| row.seq).filter(|_| held.is_none());
    let digest: Option<DigestRow> = lenient(snapshot, Table::Digests, &lookup.digest.0)?;
    let blob = match digest {
        Some(DigestRow { blob }) => {
            lenient(snapshot, Table::Blobs, &keys::blob(blob))?.map(|r| (blob, r))
        }
        None => None,
    };
    let source_key = super::keys_upkeep::source(&lookup.digest, lookup.source);
    let source: Option<SourceRow> = lenient(snapshot, Table::Sources, &source_key)?;
    let incoming = match source.and_then(|s| s.blob) {
        Some(blob) => lenient(snapshot, Table::Incoming, &keys::blob(blob))?,
        None => None,
    };
    let remembered: Option<RememberedRow> = match held {
        Some(_) => None,
        None => lenient(snapshot, Table::Remembered, &keys::id(&lookup.id))?,
    };
    let seq = held.as_ref().map(|h| h.seq).or(remembered.as_ref().map(|r| r.seq));
    let receipts = match seq {
        Some(seq) => read_receipts::of_segment(snapshot, seq)?,
        None => Vec::new(),
    };
    Ok(Found { held: held.map(Box::new), rowless, blob, source, incoming, remembered, receipts })
}
