//! Rows to bytes and back: version byte, minicbor, CRC-32 (IEEE) over table number, key and value.

use alloc::vec::Vec;
use core::convert::Infallible;

use minicbor::encode::Write;
use minicbor::{Decode, Encode, Encoder};

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

/// Bytes of a row that are gathered before they are appended: nearly every row is shorter.
const GATHERED: usize = 256;

/// Gathers what minicbor writes a byte or a few at a time, so that a row is appended at once and not in
/// twenty calls.
struct Gather<'a> {
    bytes: [u8; GATHERED],
    len: usize,
    out: &'a mut Vec<u8>,
}

impl Gather<'_> {
    fn flush(&mut self) {
        self.out.extend_from_slice(self.bytes.get(..self.len).unwrap_or_default());
        self.len = 0;
    }
}

impl Write for Gather<'_> {
    type Error = Infallible;

    #[inline(always)]
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        } else {
            self.flush();
            self.out.extend_from_slice(bytes);
        }
        Ok(())
    }
}

/// Appends the value of a row to `out`.
pub fn encode<R: Encode<()>>(table: Table, key: &[u8], row: &R, out: &mut Vec<u8>) {
    let start = out.len();
    let mut gather = Gather { bytes: [0; GATHERED], len: 0, out };
    let Ok(()) = gather.write_all(&[ROW_VERSION]);
    // By value: behind a reference each of these small writes would be a call.
    let mut encoder = Encoder::new(gather);
    if row.encode(&mut encoder, &mut ()).is_err() {
        unreachable!("writing to memory cannot fail");
    }
    encoder.into_writer().flush();
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
