//! The rows of the store in memory, and views of them.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use bytes::Bytes;

use crate::id::BatchNo;
use crate::ledger::rows::{MetaName, MetaRow};
use crate::ledger::{Table, codec};
use crate::store::{Snapshot, StoreFault};

pub(super) type Rows = BTreeMap<Vec<u8>, Bytes>;

/// The tables in the order of their numbers, which begin at 1 and have no gaps.
#[derive(Clone, Debug)]
pub(super) struct Tables([Arc<Rows>; Table::ALL.len()]);

impl Tables {
    pub(super) fn new() -> Tables {
        Tables(core::array::from_fn(|_| Arc::default()))
    }

    pub(super) fn of(&self, table: Table) -> Option<&Rows> {
        let at = usize::from(table.number()).checked_sub(1)?;
        self.0.get(at).map(AsRef::as_ref)
    }

    /// To be changed: copied first if a snapshot still has it.
    pub(super) fn change(&mut self, table: Table) -> Option<&mut Rows> {
        let at = usize::from(table.number()).checked_sub(1)?;
        self.0.get_mut(at).map(Arc::make_mut)
    }

    pub(super) fn value(&self, table: Table, key: &[u8]) -> Option<&Bytes> {
        self.of(table)?.get(key)
    }

    pub(super) fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) {
        let Some(rows) = self.of(table) else { return };
        let range = (Bound::Included(from), Bound::Unbounded);
        for (key, value) in rows.range::<[u8], _>(range) {
            if !visit(key, value) {
                break;
            }
        }
    }

    /// Every row of every table.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&[u8], &Bytes)> {
        self.0.iter().flat_map(|rows| rows.iter()).map(|(key, value)| (key.as_slice(), value))
    }

    /// The number the last batch wrote.
    pub(super) fn as_of(&self) -> BatchNo {
        let key = MetaName::Batch.key();
        let value = self.value(Table::Meta, key);
        let row = value.and_then(|v| codec::decode::<MetaRow>(Table::Meta, key, v).ok());
        BatchNo(row.map_or(0, |row| row.value))
    }
}

/// A view of a [`MemStore`]'s ledger.
#[derive(Clone, Debug)]
pub struct MemSnapshot {
    tables: Tables,
}

impl MemSnapshot {
    pub(super) fn new(tables: Tables) -> MemSnapshot {
        MemSnapshot { tables }
    }

    pub(super) fn into_tables(self) -> Tables {
        self.tables
    }
}

impl Snapshot for MemSnapshot {
    fn as_of(&self) -> BatchNo {
        self.tables.as_of()
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreFault> {
        Ok(self.tables.value(table, key).map(AsRef::as_ref))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreFault> {
        self.tables.scan(table, from, visit);
        Ok(())
    }
}
