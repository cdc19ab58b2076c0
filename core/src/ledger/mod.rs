//! The ledger's tables, keys and rows: the whole of format 1 (DESIGN 2.3, docs/LEDGER.md).
//!
//! Core owns every row format; the stores keep bytes and know nothing of them. A value is a version
//! byte, a minicbor map with numbered fields, and a CRC-32 over table, key and all before it, so that a
//! flipped bit or a misplaced row is noticed ([`codec`]). Index tables have empty values.

pub mod check;
pub mod codec;
pub mod keys;
pub mod keys_pickup;
pub mod keys_upkeep;
pub mod read;
pub mod read_acts;
pub mod read_export;
mod read_lookup;
mod read_receipts;
mod read_recovery;
mod read_rows;
pub mod read_scrub;
mod read_upkeep;
pub mod rows;
pub mod rows_pickup;
pub mod rows_upkeep;
mod tables;

pub use tables::Table;

/// The ledger format this build reads and writes.
pub const FORMAT: u16 = 1;
