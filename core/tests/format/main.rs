//! Ledger format 1: every row, key and number in it, held against snapshots and damaged on purpose.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test -p consign-core --test format` writes the snapshots anew. A changed
//! line is a changed format: it needs a new row version or a migration, never just an update.

mod codes;
mod damage;
mod evolve;
mod examples;
mod keys;
mod make;
mod round;
mod rows;
mod snapshot;
