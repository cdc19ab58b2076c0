//! Rows to bytes and back: version byte, minicbor, CRC-32 (IEEE) over table number, key and value.

use alloc::vec::Vec;

use minicbor::{Decode, Encode};

use super::Table;

/// Version byte of every row of format 1.
const ROW_VERSION: u8 = 1;

/// Why a row cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowFault {
    /// Shorter than version byte and checksum.
    #[error("a row of {len} bytes in {table} is too short")]
    Short {
        /// The table.
        table: Table,
        /// Its length.
        len: usize,
    },
    /// Written by a newer format.
    #[error("a row in {table} has version {version}, this build reads 1")]
    Version {
        /// The table.
        table: Table,
        /// Its version.
        version: u8,
    },
    /// The checksum is wrong.
    #[error("a row in {table} does not match its checksum")]
    Checksum {
        /// The table.
        table: Table,
    },
    /// The checksum is right but the row makes no sense.
    #[error("a row in {table} cannot be decoded")]
    Decode {
        /// The table.
        table: Table,
    },
}

/// Appends the value of a row to `out`.
pub fn encode<R: Encode<()>>(table: Table, key: &[u8], row: &R, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(ROW_VERSION);
    let sink: &mut Vec<u8> = out;
    if minicbor::encode(row, sink).is_err() {
        unreachable!("writing to a Vec cannot fail");
    }
    let sum = checksum(table, key, out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_be_bytes());
}

/// Reads the value of a row.
///
/// # Errors
/// See [`RowFault`].
pub fn decode<'b, R: Decode<'b, ()>>(
    table: Table,
    key: &[u8],
    value: &'b [u8],
) -> Result<R, RowFault> {
    let short = RowFault::Short { table, len: value.len() };
    let (body, sum) = value.split_last_chunk::<4>().ok_or(short)?;
    let (version, cbor) = body.split_first().ok_or(short)?;
    if checksum(table, key, body) != u32::from_be_bytes(*sum) {
        return Err(RowFault::Checksum { table });
    }
    if *version != ROW_VERSION {
        return Err(RowFault::Version { table, version: *version });
    }
    minicbor::decode(cbor).map_err(|_| RowFault::Decode { table })
}

fn checksum(table: Table, key: &[u8], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[table.number()]);
    crc.update(key);
    crc.update(body);
    crc.finalize()
}
