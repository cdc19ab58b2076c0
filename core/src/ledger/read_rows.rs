//! Rows of a part of a table as they are: for whoever keeps an overlay of its own over them.

use alloc::vec::Vec;

use super::Table;
use super::read::Answer;
use super::read_scrub::RawRow;
use crate::store::{Snapshot, StoreFault};

/// See [`super::read::ReadRequest::Rows`].
pub(super) fn rows(
    snapshot: &dyn Snapshot,
    table: Table,
    from: &[u8],
    until: &[u8],
    limit: usize,
) -> Result<Answer, StoreFault> {
    let (mut rows, mut next) = (Vec::new(), None);
    snapshot.scan(table, from, &mut |key, value| {
        if rows.len() == limit || key >= until {
            next = Some(RawRow(key.to_vec()));
            return false;
        }
        rows.push((RawRow(key.to_vec()), RawRow(value.to_vec())));
        true
    })?;
    Ok(Answer::Rows { rows, next })
}

/// See [`super::read::ReadRequest::Count`].
pub(super) fn count(
    snapshot: &dyn Snapshot,
    table: Table,
    from: &[u8],
    until: &[u8],
) -> Result<Answer, StoreFault> {
    let mut count = 0;
    snapshot.scan(table, from, &mut |key, _| {
        let inside = key < until;
        count += u64::from(inside);
        inside
    })?;
    Ok(Answer::Count(count))
}
