//! A run: rows of lagging tables in key order, one for each key, that never change.

use std::cmp::Ordering;

use consign_core::ledger::Table;

/// Stands for the length of a value where there is none: the row was removed.
const GONE: u32 = u32::MAX;
/// Bits of the filter for each row. One bit is set: one look in eight at a key that is not there goes on
/// to search for it.
const BITS: usize = 8;

/// What becomes of a key: its value, or `None` when the row goes.
pub(super) type Change<'a> = Option<&'a [u8]>;

/// Rows in key order.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    rows: Vec<Row>,
    /// A bit for each key, wherever its hash falls; as many bits as a power of two has.
    filter: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    at: usize,
    table: u8,
    key: u16,
    value: u32,
}

impl Run {
    /// The last change of each key, of changes in the order they were made in.
    pub(super) fn of(changes: &[(Table, &[u8], Change<'_>)]) -> Run {
        let mut order: Vec<&(Table, &[u8], Change<'_>)> = changes.iter().collect();
        // Stable: of one key, the last change stays last.
        order.sort_by(|a, b| (a.0.number(), a.1).cmp(&(b.0.number(), b.1)));
        let mut run = Run::with_capacity(order.len(), 0);
        let mut order = order.into_iter().peekable();
        while let Some((table, key, change)) = order.next() {
            let again = order.peek().is_some_and(|next| (next.0, next.1) == (*table, *key));
            if !again {
                run.push(table.number(), key, *change);
            }
        }
        run.sieve();
        run
    }

    /// Both, where the newer one counts.
    pub(super) fn merged(older: &Run, newer: &Run) -> Run {
        let mut run = Run::with_capacity(
            older.rows.len() + newer.rows.len(),
            older.bytes.len() + newer.bytes.len(),
        );
        let (mut a, mut b) = (0, 0);
        loop {
            let (old, new) = (older.rows.get(a), newer.rows.get(b));
            let order = match (old, new) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => older.place(old).cmp(&newer.place(new)),
            };
            let (from, row) = if order == Ordering::Less { (older, old) } else { (newer, new) };
            if let Some(row) = row {
                run.push(row.table, from.key(row), from.change(row));
            }
            a += usize::from(order != Ordering::Greater);
            b += usize::from(order != Ordering::Less);
        }
        run.sieve();
        run
    }

    fn with_capacity(rows: usize, bytes: usize) -> Run {
        Run { bytes: Vec::with_capacity(bytes), rows: Vec::with_capacity(rows), filter: Vec::new() }
    }

    fn push(&mut self, table: u8, key: &[u8], change: Change<'_>) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(change.unwrap_or_default());
        // LMDB takes keys of 511 bytes and values below 4 GiB; longer ones it has refused by now.
        let value = change.map_or(GONE, |value| u32::try_from(value.len()).unwrap_or(GONE - 1));
        self.rows.push(Row { at, table, key: u16::try_from(key.len()).unwrap_or(u16::MAX), value });
    }

    /// Makes the filter.
    fn sieve(&mut self) {
        let words = (self.rows.len() * BITS).next_power_of_two().max(64) / 64;
        let mut filter = vec![0_u64; words];
        for row in &self.rows {
            let bit = bit(self.key(row), words);
            if let Some(word) = filter.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
        }
        self.filter = filter;
    }

    fn key(&self, row: &Row) -> &[u8] {
        self.bytes.get(row.at..row.at + usize::from(row.key)).unwrap_or_default()
    }

    fn place(&self, row: &Row) -> (u8, &[u8]) {
        (row.table, self.key(row))
    }

    fn change(&self, row: &Row) -> Change<'_> {
        let from = row.at + usize::from(row.key);
        (row.value != GONE)
            .then(|| self.bytes.get(from..from + row.value as usize).unwrap_or_default())
    }

    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// What has become of a key; `None` when this run does not say.
    pub(super) fn get(&self, table: Table, key: &[u8]) -> Option<Change<'_>> {
        let bit = bit(key, self.filter.len());
        let word = self.filter.get(bit / 64).copied().unwrap_or(0);
        if word & (1 << (bit % 64)) == 0 {
            return None;
        }
        let place = (table.number(), key);
        let at = self.rows.binary_search_by(|row| self.place(row).cmp(&place)).ok()?;
        self.rows.get(at).map(|row| self.change(row))
    }

    /// The first row of a table whose key is at least `from`.
    pub(super) fn seek(&self, table: Table, from: &[u8]) -> usize {
        self.seek_number(table.number(), from)
    }

    /// The first row that is not before a table, by its number, and a key.
    pub(super) fn seek_number(&self, table: u8, from: &[u8]) -> usize {
        self.rows.partition_point(|row| self.place(row) < (table, from))
    }

    /// A row by its place in the run.
    pub(super) fn row(&self, at: usize) -> Option<(Table, &[u8], Change<'_>)> {
        let row = self.rows.get(at)?;
        Some((Table::from_number(row.table)?, self.key(row), self.change(row)))
    }
}

/// Where a key falls in a filter of so many words, a power of two. Nearly all keys are digests: a few of
/// their bytes spread as well as any hash.
fn bit(key: &[u8], words: usize) -> usize {
    let mut last = [0; 8];
    let tail = key.get(key.len().saturating_sub(8)..).unwrap_or_default();
    if let Some(place) = last.get_mut(..tail.len()) {
        place.copy_from_slice(tail);
    }
    let hash = u64::from_le_bytes(last).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(hash >> 32).unwrap_or(0) % (words * 64).max(1)
}
