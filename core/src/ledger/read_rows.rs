//! Rows of a part of a table as they are: for whoever keeps an overlay of its own over them.

use alloc::vec::Vec;

use super::Table;
use super::read::{Answer, ReadRequest};
use super::read_scrub::RawRow;
use crate::store::{Snapshot, StoreFault};

/// See [`ReadRequest::Rows`] and [`ReadRequest::Count`].
pub(super) fn part(snapshot: &dyn Snapshot, request: &ReadRequest) -> Result<Answer, StoreFault> {
    if let ReadRequest::Count { table, from, until } = request {
        return count(snapshot, *table, from, until);
    }
    let ReadRequest::Rows { table, from, until, limit } = request else {
        return Ok(Answer::Count(0));
    };
    rows(snapshot, *table, from, until, *limit)
}

fn rows(
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

fn count(
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
