//! Tables whose keys fall at random places are written behind: what batches change in them is kept in
//! memory, and in one row of the table `lag` for each batch, until so much has come together that many
//! changes fall on each page (DESIGN 2.3; a row at a random place costs a page of its own, FACTS 7).
//!
//! What has come together is *young* until it is [`FROZEN_ROWS`] or [`FROZEN_BYTES`]; then it is frozen and
//! drained: each batch that brings changes puts twice as many of the frozen ones where they belong, in the
//! order of their keys. With the last of them go the rows in `lag` that told of them. A change is on disk
//! with its batch, once in `lag` and later in its table, so a crash at any time loses nothing: what `lag`
//! still holds is read again at the start, with how far what was frozen had come, so that a site that is
//! started again and again gets on with it all the same.
//!
//! A view of the ledger sees the young first, then what is frozen, then the tables. Runs never change, so
//! each batch has its own [`Lag`], and a view takes the one of the batch that it shows.

mod journal;
mod run;

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use consign_core::id::BatchNo;
use consign_core::ledger::Table;
use consign_core::store::StoreFault;
use heed::{RoTxn, RwTxn};

pub(crate) use journal::NAME;
use run::{Change, Run};

use crate::ledger::Db;
use crate::shared::locked;

/// Rows that are young before they are frozen.
const FROZEN_ROWS: usize = if cfg!(test) { 40 } else { 1 << 16 };
/// Bytes of keys and values that are young before they are frozen.
const FROZEN_BYTES: usize = 8 << 20;
/// Of what is frozen, so many are put in their place for each change that comes.
const DRAINED: usize = 2;
/// States that are kept for views that are being opened: the one of the last batch, of the one that is being
/// committed, and one more.
const KEPT: usize = 3;

/// Whether a table is written behind: its keys are digests, and each segment that passes has a row in it.
pub(crate) fn lags(table: Table) -> bool {
    matches!(table, Table::Ids | Table::Remembered)
}

/// A change of a table that lags, in the order of the batch.
pub(crate) type Late<'a> = (Table, &'a [u8], Change<'a>);

/// Where changes are put: the table `lag`, and those that lag.
pub(crate) trait Places {
    /// The table `lag`.
    fn journal(&self) -> Db;
    /// A table that lags; `None` when it is not there.
    fn table(&self, table: Table) -> Option<Db>;
}

/// What tables that lag will be told, as of one batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lag {
    /// Oldest first; each is more than half as large again as the next, or larger.
    young: Vec<Arc<Run>>,
    /// Oldest first: the first is drained. There is more than one only after a start that found much.
    frozen: VecDeque<Frozen>,
}

#[derive(Clone, Debug)]
struct Frozen {
    run: Arc<Run>,
    /// The first row that is not in its place yet.
    next: usize,
    /// The last batch that is told of in it.
    through: BatchNo,
}

impl Lag {
    /// What is in `lag`.
    ///
    /// # Errors
    /// When it cannot be read, or `broken` does not go on from a row that is not what was written.
    pub(crate) fn load(
        journal: &Db,
        txn: &RoTxn<'_>,
        fault: &dyn Fn(&heed::Error) -> StoreFault,
        broken: &mut dyn FnMut(&[u8]) -> Result<(), StoreFault>,
    ) -> Result<Lag, StoreFault> {
        let mut lag = Lag::default();
        let mut mark = (0, 0, Vec::new());
        let last = journal.last(txn).map_err(|why| fault(&why))?;
        if let Some((said, _)) = last.and_then(|(key, value)| journal::decode(key, value)) {
            mark = (said.through, said.table, said.key.to_vec());
        }
        for row in journal.iter(txn).map_err(|why| fault(&why))? {
            let (key, value) = row.map_err(|why| fault(&why))?;
            let Some((_, changes)) = journal::decode(key, value) else {
                broken(key)?;
                continue;
            };
            let batch = journal::batch(key);
            // What was frozen when the last batch was committed ends there; it goes on where it was.
            if mark.0 != 0 && batch.0 > mark.0 {
                lag.freeze(BatchNo(mark.0), 1);
                if let Some(frozen) = lag.frozen.back_mut() {
                    frozen.next = frozen.run.seek_number(mark.1, &mark.2);
                }
                mark.0 = 0;
            }
            lag.add(Run::of(&changes));
            if mark.0 == 0 {
                lag.freeze(batch, FROZEN_ROWS);
            }
        }
        if mark.0 != 0 {
            lag.freeze(BatchNo(mark.0), 1);
            if let Some(frozen) = lag.frozen.back_mut() {
                frozen.next = frozen.run.seek_number(mark.1, &mark.2);
            }
        }
        Ok(lag)
    }

    /// Adds the newest run. Runs of about a size become one, so that there are few to look through.
    fn add(&mut self, run: Run) {
        let mut run = Arc::new(run);
        while let Some(last) = self.young.pop_if(|last| last.len() < 2 * run.len()) {
            run = Arc::new(Run::merged(&last, &run));
        }
        self.young.push(run);
    }

    /// Writes what a batch changes into `lag`, and puts some of what is frozen where it belongs; what there
    /// is once that is committed.
    ///
    /// # Errors
    /// Those of LMDB; the transaction is of no use then.
    pub(crate) fn write(
        &self,
        places: &dyn Places,
        txn: &mut RwTxn<'_>,
        batch: BatchNo,
        late: &[Late<'_>],
        relief: bool,
    ) -> Result<Lag, heed::Error> {
        let mut lag = self.clone();
        lag.add(Run::of(late));
        // What is drained is there twice until the last of it is: on a full disk that waits, for as long as what
        // is young is no more than is frozen otherwise.
        if !relief || lag.young_rows() >= FROZEN_ROWS {
            lag.drain(places, txn, DRAINED * late.len())?;
        }
        if lag.frozen.is_empty() {
            lag.freeze(batch, FROZEN_ROWS);
        }
        let key = journal::key(batch);
        let value = journal::encode(&key, lag.mark(), late);
        crate::writer::append(&places.journal(), txn, &key, &value)?;
        Ok(lag)
    }

    /// How far what is frozen is where it belongs.
    fn mark(&self) -> journal::Mark<'_> {
        let Some(frozen) = self.frozen.front() else { return journal::Mark::default() };
        let (table, key) = match frozen.run.row(frozen.next) {
            Some((table, key, _)) => (table.number(), key),
            None => (u8::MAX, &[][..]),
        };
        journal::Mark { through: frozen.through.0, table, key }
    }

    /// Puts everything where it belongs, and empties `lag`.
    ///
    /// # Errors
    /// Those of LMDB; the transaction is of no use then.
    pub(crate) fn settle(
        mut self,
        places: &dyn Places,
        txn: &mut RwTxn<'_>,
    ) -> Result<(), heed::Error> {
        self.freeze(BatchNo(u64::MAX), 1);
        while !self.frozen.is_empty() {
            self.drain(places, txn, usize::MAX)?;
        }
        places.journal().clear(txn)
    }

    fn young_rows(&self) -> usize {
        self.young.iter().map(|run| run.len()).sum()
    }

    /// What is young is frozen when it is so many rows, or many bytes.
    fn freeze(&mut self, through: BatchNo, enough: usize) {
        let rows = self.young_rows();
        let bytes: usize = self.young.iter().map(|run| run.bytes()).sum();
        if rows >= enough || bytes >= FROZEN_BYTES {
            let run = self.young.drain(..).reduce(|a, b| Arc::new(Run::merged(&a, &b)));
            self.frozen.extend(run.map(|run| Frozen { run, next: 0, through }));
        }
    }

    /// Puts so many rows of what was frozen first where they belong.
    fn drain(
        &mut self,
        places: &dyn Places,
        txn: &mut RwTxn<'_>,
        most: usize,
    ) -> Result<(), heed::Error> {
        let Some(mut frozen) = self.frozen.pop_front() else { return Ok(()) };
        let end = frozen.next.saturating_add(most).min(frozen.run.len());
        for at in frozen.next..end {
            let Some((table, key, change)) = frozen.run.row(at) else { continue };
            // What has changed again since is told by that: most ids of a relay come and go in between.
            if self.runs().any(|run| run.get(table, key).is_some()) {
                continue;
            }
            let Some(db) = places.table(table) else { continue };
            match change {
                Some(value) => db.put(txn, key, value)?,
                None => drop(db.delete(txn, key)?),
            }
        }
        frozen.next = end;
        if end < frozen.run.len() {
            self.frozen.push_front(frozen);
            return Ok(());
        }
        let through = journal::key(frozen.through);
        let told: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Included(&through));
        places.journal().delete_range(txn, &told).map(drop)
    }

    /// Runs, newest first.
    fn runs(&self) -> impl Iterator<Item = &Run> {
        let frozen = self.frozen.iter().rev().map(|frozen| &*frozen.run);
        self.young.iter().rev().map(|run| &**run).chain(frozen)
    }

    /// What has become of a key; `None` when its table says.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<Change<'_>> {
        self.runs().find_map(|run| run.get(table, key))
    }

    /// Visits the rows of a table from a key on, in key order, as they will be: `rows` are those of the
    /// table itself.
    ///
    /// # Errors
    /// Those of `rows`.
    pub(crate) fn scan<'t, E>(
        &self,
        table: Table,
        from: &[u8],
        rows: impl Iterator<Item = Result<(&'t [u8], &'t [u8]), E>>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), E> {
        let mut changes = Changes::from(self, table, from);
        for row in rows {
            let (key, value) = row?;
            while let Some((changed, change)) = changes.next_before(key) {
                if change.is_some_and(|value| !visit(changed, value)) {
                    return Ok(());
                }
            }
            let go_on = match changes.take(key) {
                Some(change) => change.is_none_or(|value| visit(key, value)),
                None => visit(key, value),
            };
            if !go_on {
                return Ok(());
            }
        }
        while let Some((changed, change)) = changes.next() {
            if change.is_some_and(|value| !visit(changed, value)) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The changes of one table in key order, the newest of each key.
struct Changes<'l> {
    table: Table,
    /// Newest first, with the place of the next row of each.
    runs: Vec<(&'l Run, usize)>,
}

impl<'l> Changes<'l> {
    fn from(lag: &'l Lag, table: Table, from: &[u8]) -> Changes<'l> {
        Changes { table, runs: lag.runs().map(|run| (run, run.seek(table, from))).collect() }
    }

    fn peek(&self) -> Option<(&'l [u8], Change<'l>)> {
        let rows = self.runs.iter().filter_map(|(run, at)| run.row(*at));
        let rows = rows.filter(|(table, ..)| *table == self.table);
        // Of equal keys the first counts, which is the newest.
        rows.map(|(_, key, change)| (key, change)).min_by(|a, b| a.0.cmp(b.0))
    }

    fn next(&mut self) -> Option<(&'l [u8], Change<'l>)> {
        let found = self.peek()?;
        for (run, at) in &mut self.runs {
            if run.row(*at).is_some_and(|(table, key, _)| (table, key) == (self.table, found.0)) {
                *at += 1;
            }
        }
        Some(found)
    }

    fn next_before(&mut self, key: &[u8]) -> Option<(&'l [u8], Change<'l>)> {
        self.peek().filter(|(next, _)| *next < key)?;
        self.next()
    }

    fn take(&mut self, key: &[u8]) -> Option<Change<'l>> {
        self.peek().filter(|(next, _)| *next == key)?;
        self.next().map(|(_, change)| change)
    }
}

/// Writes into `lag` alone, as if nothing had been frozen.
#[cfg(test)]
pub(crate) fn tell_only(
    places: &dyn Places,
    txn: &mut RwTxn<'_>,
    batch: BatchNo,
    late: &[Late<'_>],
) -> Result<(), heed::Error> {
    let key = journal::key(batch);
    let value = journal::encode(&key, journal::Mark::default(), late);
    places.journal().put(txn, &key, &value)
}

/// The key of a row of `lag`, for people.
pub(crate) fn shown(key: &[u8]) -> String {
    <[u8; 8]>::try_from(key)
        .map_or_else(|_| format!("{key:02x?}"), |key| u64::from_be_bytes(key).to_string())
}

/// What there is as of the last batches.
#[derive(Debug, Default)]
pub(crate) struct Lags(Mutex<VecDeque<(BatchNo, Arc<Lag>)>>);

impl Lags {
    /// What there is as of a batch; `None` when later ones have taken its place.
    pub(crate) fn as_of(&self, batch: BatchNo) -> Option<Arc<Lag>> {
        let known = locked(&self.0);
        known.iter().rev().find(|(number, _)| *number == batch).map(|(_, lag)| Arc::clone(lag))
    }

    /// What there is as of the last batch that was told of.
    pub(crate) fn last(&self) -> Arc<Lag> {
        locked(&self.0).back().map(|(_, lag)| Arc::clone(lag)).unwrap_or_default()
    }

    /// What there is as of a batch, before it is committed: whoever sees the batch finds it here.
    pub(crate) fn tell(&self, batch: BatchNo, lag: Arc<Lag>) {
        let mut known = locked(&self.0);
        known.push_back((batch, lag));
        while known.len() > KEPT {
            known.pop_front();
        }
    }

    /// A batch was not committed.
    pub(crate) fn take_back(&self, batch: BatchNo) {
        locked(&self.0).retain(|(number, _)| *number != batch);
    }
}
