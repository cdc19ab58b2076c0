//! The rows of the store in memory, and views of them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::ops::Bound;

use bytes::Bytes;

use crate::id::BatchNo;
use crate::ledger::rows::{MetaName, MetaRow};
use crate::ledger::{Table, codec};
use crate::store::{Snapshot, StoreFault};

/// Longest key that needs no memory of its own: all but those of a few tables.
const SHORT: usize = 38;

/// The key of a row, in the order of its bytes.
#[derive(Clone, Debug)]
pub(super) enum RowKey {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl RowKey {
    fn new(key: &[u8]) -> RowKey {
        let mut short = [0; SHORT];
        match (short.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(bytes), Ok(len)) => {
                bytes.copy_from_slice(key);
                RowKey::Short(len, short)
            }
            _ => RowKey::Long(key.into()),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            RowKey::Short(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            RowKey::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for RowKey {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl PartialEq for RowKey {
    fn eq(&self, other: &RowKey) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for RowKey {}

impl PartialOrd for RowKey {
    fn partial_cmp(&self, other: &RowKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RowKey {
    fn cmp(&self, other: &RowKey) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}

type Rows = BTreeMap<RowKey, Bytes>;

/// The ledger of a [`super::MemStore`]; a clone is a view that later commits do not change. The tables
/// are in the order of their numbers, which begin at 1 and have no gaps.
#[derive(Clone, Debug)]
pub struct MemSnapshot([Arc<Rows>; Table::ALL.len()]);

impl MemSnapshot {
    pub(super) fn new() -> MemSnapshot {
        MemSnapshot(core::array::from_fn(|_| Arc::default()))
    }

    fn of(&self, table: Table) -> Option<&Rows> {
        let at = usize::from(table.number()).checked_sub(1)?;
        self.0.get(at).map(AsRef::as_ref)
    }

    fn slot(&mut self, table: Table) -> Option<&mut Arc<Rows>> {
        let at = usize::from(table.number()).checked_sub(1)?;
        self.0.get_mut(at)
    }

    /// Writes a row; a table that a snapshot still has is copied first. Returns the row before.
    pub(super) fn put(&mut self, table: Table, key: &[u8], value: Bytes) -> Option<Bytes> {
        Arc::make_mut(self.slot(table)?).insert(RowKey::new(key), value)
    }

    /// Removes a row and returns it. A table that does not change is not copied.
    pub(super) fn del(&mut self, table: Table, key: &[u8]) -> Option<Bytes> {
        let rows = self.slot(table)?;
        if let Some(rows) = Arc::get_mut(rows) {
            return rows.remove(key);
        }
        if rows.contains_key(key) { Arc::make_mut(rows).remove(key) } else { None }
    }

    /// How many rows a table has.
    pub(super) fn count(&self, table: Table) -> usize {
        self.of(table).map_or(0, BTreeMap::len)
    }

    /// The key of the `nth` row of a table, from 0.
    pub(super) fn nth_key(&self, table: Table, nth: usize) -> Option<&[u8]> {
        self.of(table)?.keys().nth(nth).map(RowKey::bytes)
    }

    pub(super) fn value(&self, table: Table, key: &[u8]) -> Option<&Bytes> {
        self.of(table)?.get(key)
    }

    /// Every row of every table.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&[u8], &Bytes)> {
        self.0.iter().flat_map(|rows| rows.iter()).map(|(key, value)| (key.bytes(), value))
    }
}

impl Snapshot for MemSnapshot {
    fn as_of(&self) -> BatchNo {
        let key = MetaName::Batch.key();
        let value = self.value(Table::Meta, key);
        let row = value.and_then(|v| codec::decode::<MetaRow>(Table::Meta, key, v).ok());
        BatchNo(row.map_or(0, |row| row.value))
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreFault> {
        Ok(self.value(table, key).map(AsRef::as_ref))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreFault> {
        let Some(rows) = self.of(table) else { return Ok(()) };
        let range = (Bound::Included(from), Bound::Unbounded);
        for (key, value) in rows.range::<[u8], _>(range) {
            if !visit(key.bytes(), value) {
                break;
            }
        }
        Ok(())
    }
}
