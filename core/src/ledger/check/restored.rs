//! A ledger that is an older copy: what it would give next may have been given since.

use alloc::vec::Vec;

use super::Fix;
use crate::id::BlobNo;
use crate::ledger::Table;
use crate::ledger::read;
use crate::ledger::rows::{MetaName, MetaRow};
use crate::store::{Snapshot, StoreFault};

/// How far counters jump: more than is given between two copies.
const JUMP: u64 = 1 << 32;
/// As [`JUMP`], for sites, whose numbers have 32 bits.
const SITE_JUMP: u64 = 1 << 16;

/// Lets every counter jump, that of content files beyond `highest`, the highest file there is (B4). A
/// counter that cannot be read is left to the rules about it.
///
/// # Errors
/// When the store cannot be read.
pub fn restored(snapshot: &dyn Snapshot, highest: Option<BlobNo>) -> Result<Vec<Fix>, StoreFault> {
    let mut fixes = Vec::new();
    let counters = [
        MetaName::Boot,
        MetaName::NextSeq,
        MetaName::NextBlob,
        MetaName::NextBody,
        MetaName::NextSite,
        MetaName::NextRedemption,
        MetaName::NextAudit,
    ];
    for name in counters {
        let row: Option<MetaRow> = read::lenient(snapshot, Table::Meta, name.key())?;
        let now = row.map_or(0, |row| row.value);
        let from = match (name, highest) {
            (MetaName::NextBlob, Some(file)) => now.max(file.0.saturating_add(1)),
            _ => now,
        };
        let jump = if name == MetaName::NextSite { SITE_JUMP } else { JUMP };
        let value = from.saturating_add(jump);
        fixes.push(Fix::put(Table::Meta, name.key(), &MetaRow { value }));
    }
    Ok(fixes)
}
