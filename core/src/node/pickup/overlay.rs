//! Rows of pickup that changed so recently that an open read may not have seen it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use minicbor::{Decode, Encode};

use super::No;
use crate::id::BatchNo;
use crate::ledger::read_scrub::RawRow;
use crate::ledger::{Table, codec};
use crate::node::Node;

/// A row by its place.
pub(super) type Place = (Table, Vec<u8>);

/// The newest value of every row that changed lately; `None` is removed.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    rows: BTreeMap<Place, (BatchNo, Option<Vec<u8>>)>,
    log: VecDeque<(BatchNo, Place)>,
}

impl Overlay {
    fn set(&mut self, batch: BatchNo, place: Place, value: Option<Vec<u8>>) {
        self.log.push_back((batch, place.clone()));
        self.rows.insert(place, (batch, value));
    }

    /// Forgets what every open read has seen.
    pub fn prune(&mut self, floor: BatchNo) {
        while self.log.front().is_some_and(|(batch, _)| *batch <= floor) {
            let Some((batch, place)) = self.log.pop_front() else { return };
            if self.rows.get(&place).is_some_and(|(newest, _)| *newest == batch) {
                self.rows.remove(&place);
            }
        }
    }

    /// Everything staged is void, and open reads with it (W2).
    pub fn clear(&mut self) {
        *self = Overlay::default();
    }

    /// Whether a row changed after a reading.
    pub fn is_newer(&self, table: Table, key: &[u8], as_of: BatchNo) -> bool {
        let row = self.rows.get(&(table, key.to_vec()));
        row.is_some_and(|(batch, _)| *batch > as_of)
    }

    /// How many rows there are, for bounds in tests.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
}

/// What was read for a job.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub as_of: BatchNo,
    pub rows: Vec<(Place, Option<RawRow>)>,
}

/// Why a job is not done.
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// It needs a row that was not read.
    Row(Place),
    /// A row cannot be read.
    Unreadable(Place),
    /// It is refused.
    No(No),
}

impl From<No> for Stop {
    fn from(no: No) -> Stop {
        Stop::No(no)
    }
}

impl Node {
    /// A row as it stands with everything staged.
    pub(super) fn row_of<R>(&self, view: &View, table: Table, key: &[u8]) -> Result<Option<R>, Stop>
    where
        R: for<'b> Decode<'b, ()>,
    {
        let place = (table, key.to_vec());
        let newer = self.pickup.overlay.rows.get(&place).filter(|(batch, _)| *batch > view.as_of);
        let value = match newer {
            Some((_, value)) => value.as_deref(),
            None => match view.rows.iter().find(|(at, _)| *at == place) {
                Some((_, value)) => value.as_ref().map(|row| row.0.as_slice()),
                None => return Err(Stop::Row(place)),
            },
        };
        let row = value.map(|value| codec::decode(table, key, value)).transpose();
        row.map_err(|_| Stop::Unreadable(place))
    }

    /// Writes a row of the staged batch.
    pub(super) fn put_row<R: Encode<()>>(&mut self, table: Table, key: &[u8], row: &R) {
        let mut value = Vec::new();
        codec::encode(table, key, row, &mut value);
        self.stage.batch.put_raw(table, key, &value);
        self.pickup.overlay.set(self.stage.number(), (table, key.to_vec()), Some(value));
    }

    /// Removes one.
    pub(super) fn del_row(&mut self, table: Table, key: &[u8]) {
        self.stage.batch.del(table, key);
        self.pickup.overlay.set(self.stage.number(), (table, key.to_vec()), None);
    }
}
