//! The table `lag`: what each batch has changed in tables that lag, under the number of the batch, until it
//! is where it belongs. Rows of it go from the oldest on: what is left of it, told again in order, ends as
//! it ended.
//!
//! A value is a version byte; how far what is frozen was put where it belongs with that batch ([`Mark`]: the number of the
//! last batch that is told of in it (8 bytes, big-endian; 0 when nothing is frozen), table number, length of the key (2
//! bytes) and key of the first row that is not in its place yet); then for each change the number of its table (1 byte), the length of its key
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

/// The batch of a key; 0 when it is none.
pub(super) fn batch(key: &[u8]) -> BatchNo {
    BatchNo(key.try_into().map_or(0, u64::from_be_bytes))
}

/// How far what is frozen is where it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark<'a> {
    /// The last batch that is told of in it; 0 when nothing is frozen.
    pub through: u64,
    /// Number of the table of the first row that is not in its place yet.
    pub table: u8,
    /// Its key.
    pub key: &'a [u8],
}

/// The value of a batch: how far it has come with what is frozen, and its changes, in their order.
pub(super) fn encode(
    key: &[u8],
    mark: Mark<'_>,
    changes: &[(Table, &[u8], Change<'_>)],
) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&mark.through.to_be_bytes());
    out.push(mark.table);
    out.extend_from_slice(&u16::try_from(mark.key.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(mark.key);
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

/// What a value of a batch says.
pub(super) type Told<'v> = (Mark<'v>, Vec<(Table, &'v [u8], Change<'v>)>);

/// Reads the value of a batch; `None` when it is not what was written.
pub(super) fn decode<'v>(key: &[u8], value: &'v [u8]) -> Option<Told<'v>> {
    let (body, sum) = value.split_last_chunk::<4>()?;
    if key.len() != 8 || checksum(key, body) != u32::from_be_bytes(*sum) {
        return None;
    }
    let rest = body.strip_prefix(&[VERSION])?;
    let (through, rest) = rest.split_first_chunk::<8>()?;
    let (table, rest) = rest.split_first()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let (key, mut rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    let mark = Mark { through: u64::from_be_bytes(*through), table: *table, key };
    let mut changes = Vec::new();
    while !rest.is_empty() {
        let (change, after) = decode_change(rest)?;
        changes.push(change);
        rest = after;
    }
    Some((mark, changes))
}

type One<'v> = (Table, &'v [u8], Change<'v>);

fn decode_change(bytes: &[u8]) -> Option<(One<'_>, &[u8])> {
    let (table, rest) = bytes.split_first()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let (value, rest) = rest.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    let (change, rest) = match u32::from_be_bytes(*value) {
        GONE => (None, rest),
        len => {
            let (value, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            (Some(value), rest)
        }
    };
    Some(((Table::from_number(*table)?, key, change), rest))
}

fn checksum(key: &[u8], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(key);
    crc.update(body);
    crc.finalize()
}
