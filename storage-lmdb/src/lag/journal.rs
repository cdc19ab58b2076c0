//! The table `lag`: what each batch has changed in tables that lag, under the number of the batch, until it
//! is where it belongs. Rows of it go from the oldest on: what is left of it, told again in order, ends as
//! it ended.
//!
//! A value is a version byte, then for each change the number of its table (1 byte), the length of its key
//! (2 bytes, big-endian), the length of its value (4 bytes, big-endian; all ones when the row goes), the key
//! and the value; at the end a CRC-32 over key and everything before.

use consign_core::id::BatchNo;
use consign_core::ledger::Table;

use super::run::Change;

/// The name of the table in LMDB.
pub(crate) const NAME: &str = "lag";
/// Version byte of format 1.
const VERSION: u8 = 1;
/// Stands for the length of a value where the row goes.
const GONE: u32 = u32::MAX;

/// The key of a batch.
pub(super) fn key(batch: BatchNo) -> [u8; 8] {
    batch.0.to_be_bytes()
}

/// The value of a batch: its changes, in their order.
pub(super) fn encode(key: &[u8], changes: &[(Table, &[u8], Change<'_>)]) -> Vec<u8> {
    let mut out = vec![VERSION];
    for (table, key, change) in changes {
        let len = change.map_or(GONE, |value| u32::try_from(value.len()).unwrap_or(GONE - 1));
        out.push(table.number());
        out.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(change.unwrap_or_default());
    }
    let sum = checksum(key, &out);
    out.extend_from_slice(&sum.to_be_bytes());
    out
}

/// The changes in the value of a batch; `None` when it is not what was written.
pub(super) fn decode<'v>(
    key: &[u8],
    value: &'v [u8],
) -> Option<Vec<(Table, &'v [u8], Change<'v>)>> {
    let (body, sum) = value.split_last_chunk::<4>()?;
    if key.len() != 8 || checksum(key, body) != u32::from_be_bytes(*sum) {
        return None;
    }
    let mut rest = body.strip_prefix(&[VERSION])?;
    let mut changes = Vec::new();
    while !rest.is_empty() {
        let (table, after) = rest.split_first()?;
        let (len, after) = after.split_first_chunk::<2>()?;
        let (value, after) = after.split_first_chunk::<4>()?;
        let (key, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        let (change, after) = match u32::from_be_bytes(*value) {
            GONE => (None, after),
            len => {
                let (value, after) = after.split_at_checked(usize::try_from(len).ok()?)?;
                (Some(value), after)
            }
        };
        changes.push((Table::from_number(*table)?, key, change));
        rest = after;
    }
    Some(changes)
}

fn checksum(key: &[u8], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(key);
    crc.update(body);
    crc.finalize()
}
