//! The LMDB environment: how it is opened, its tables, and snapshots of them.
//!
//! Flags stay empty, so every commit is synced; read transactions are not tied to threads; the map is
//! opened very large and never resized, because a resize under a live reader ends in SIGBUS.

use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use consign_core::id::BatchNo;
use consign_core::ledger::rows::{MetaName, MetaRow};
use consign_core::ledger::{Table, codec};
use consign_core::store::{Snapshot, StoreFault};
use heed::types::Bytes;
use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, MdbError, RoTxn, RwTxn, WithoutTls,
};

use crate::lag::{self, Lag, Lags, Places};

/// How many tables there are.
const TABLES: usize = Table::ALL.len();
/// Most named databases; room for formats to come.
const MAX_DBS: u32 = 64;
/// Most read transactions at a time.
const MAX_READERS: u32 = 512;
/// How often a view is tried to be had between two batches: each time, two more must have been committed.
const SNAPSHOT_TRIES: usize = 1_000;
/// Smallest map that is tried.
const MAP_MIN: u64 = 1 << 20;

const _: () = {
    let mut at = 0;
    while at < TABLES {
        assert!(Table::ALL[at].number() as usize == at + 1, "tables are numbered from 1, no gaps");
        at += 1;
    }
};

pub(crate) type Db = Database<'static, Bytes, Bytes>;

/// The open ledger.
#[derive(Clone)]
pub(crate) struct Ledger {
    env: Env<WithoutTls>,
    tables: [Db; TABLES],
    /// What was told of tables that lag and is not in them.
    journal: Db,
    pub(crate) lags: Arc<Lags>,
    /// What a read found to be damaged, if one did.
    damage: Arc<OnceLock<String>>,
}

impl Ledger {
    /// Opens the environment only: no page but the two meta pages has been touched.
    pub(crate) fn open_env(path: &Path, map: u64) -> Result<Env<WithoutTls>, heed::Error> {
        Ledger::open_env_with(path, map, EnvFlags::empty())
    }

    /// As [`Ledger::open_env`]; without LMDB's lock only by whoever reads and keeps writers away.
    pub(crate) fn open_env_with(
        path: &Path,
        map: u64,
        flags: EnvFlags,
    ) -> Result<Env<WithoutTls>, heed::Error> {
        let mut size = map.max(MAP_MIN);
        loop {
            let mut options = EnvOpenOptions::new().read_txn_without_tls();
            options.map_size(usize::try_from(size).unwrap_or(usize::MAX));
            options.max_dbs(MAX_DBS).max_readers(MAX_READERS);
            // SAFETY: the directory is locked against other processes, the path is on a local file
            // system, and no code of ours writes or truncates the file. LMDB's own lock is left out
            // only together with writing.
            match unsafe { options.flags(flags).open(path) } {
                // EINVAL is how valgrind says so.
                Err(heed::Error::Io(why))
                    if matches!(why.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL))
                        && size / 2 >= MAP_MIN =>
                {
                    tracing::debug!(size, "the map does not fit, trying half");
                    size /= 2;
                }
                other => return other,
            }
        }
    }

    /// Opens the tables of an environment, making those that are missing.
    pub(crate) fn open(env: Env<WithoutTls>) -> Result<Ledger, heed::Error> {
        let (tables, journal) = match open_tables(&env)? {
            Some(all) => all,
            None => create_tables(&env)?,
        };
        Ok(Ledger { env, tables, journal, lags: Arc::default(), damage: Arc::default() })
    }

    /// Reads what tables that lag have still to be told: before the first [`Ledger::snapshot`].
    ///
    /// # Errors
    /// When it cannot be read, or is not what was written.
    pub(crate) fn load_lag(&self) -> Result<(), StoreFault> {
        let txn = self.env.read_txn().map_err(|why| self.fault(&why))?;
        let mut broken = |key: &[u8]| {
            Err(StoreFault::Corrupt(format!("row {} of lag is damaged", lag::shown(key))))
        };
        let lag = Lag::load(&self.journal, &txn, &|why| self.fault(why), &mut broken)?;
        self.lags.tell(BatchNo(self.batch(&txn)?), Arc::new(lag));
        Ok(())
    }

    /// What it is made of, for whoever uses it alone: its tables, and the one named `lag`.
    pub(crate) fn into_parts(self) -> (Env<WithoutTls>, [Db; TABLES], Db) {
        (self.env, self.tables, self.journal)
    }

    /// A table.
    pub(crate) fn table(&self, table: Table) -> &Db {
        let at = usize::from(table.number()) - 1;
        self.tables.get(at).expect("tables are numbered from 1, no gaps")
    }

    pub(crate) fn env(&self) -> &Env<WithoutTls> {
        &self.env
    }

    pub(crate) fn write_txn(&self) -> Result<RwTxn<'_>, heed::Error> {
        self.env.write_txn()
    }

    /// A consistent view. When all reader slots are taken, those of dead processes are freed first.
    pub(crate) fn snapshot(&self) -> Result<LmdbSnapshot<'_>, StoreFault> {
        let mut as_of = BatchNo(0);
        for _ in 0..SNAPSHOT_TRIES {
            let txn = self.read_txn()?;
            as_of = BatchNo(self.batch(&txn)?);
            // Not there any more only when two batches were committed in between: then again.
            if let Some(lag) = self.lags.as_of(as_of) {
                return Ok(LmdbSnapshot { ledger: self, txn, as_of, lag });
            }
        }
        Err(StoreFault::Io(format!("ledger: batch {as_of} is none of this process")))
    }

    fn read_txn(&self) -> Result<RoTxn<'_, WithoutTls>, StoreFault> {
        let txn = match self.env.read_txn() {
            Err(heed::Error::Mdb(MdbError::ReadersFull)) => {
                self.clear_stale_readers();
                self.env.read_txn()
            }
            other => other,
        };
        txn.map_err(|why| self.fault(&why))
    }

    /// The batch number in `meta`; 0 before the first batch.
    pub(crate) fn batch(&self, txn: &RoTxn<'_>) -> Result<u64, StoreFault> {
        let key = MetaName::Batch.key();
        let value = self.table(Table::Meta).get(txn, key).map_err(|why| self.fault(&why))?;
        value.map_or(Ok(0), |value| {
            let row: Result<MetaRow, _> = codec::decode(Table::Meta, key, value);
            row.map(|row| row.value).map_err(|why| StoreFault::Corrupt(why.to_string()))
        })
    }

    /// An LMDB error on a read. When it means that the ledger itself is damaged, no answer of it can
    /// be trusted; [`Ledger::damage`] says so from then on.
    fn fault(&self, why: &heed::Error) -> StoreFault {
        match why {
            heed::Error::Mdb(MdbError::ReadersFull) => StoreFault::Crowded,
            heed::Error::Mdb(
                MdbError::Corrupted | MdbError::PageNotFound | MdbError::Panic | MdbError::Invalid,
            ) => {
                let text = format!("ledger: {why}");
                let _ = self.damage.set(text.clone());
                StoreFault::Io(text)
            }
            heed::Error::Mdb(_)
            | heed::Error::Io(_)
            | heed::Error::Encoding(_)
            | heed::Error::Decoding(_)
            | heed::Error::EnvAlreadyOpened => StoreFault::Io(format!("ledger: {why}")),
        }
    }

    /// What a read found to be damaged, if one did.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// Bytes in live pages; 0 when that cannot be read.
    pub(crate) fn live_bytes(&self) -> u64 {
        let Ok(txn) = self.env.read_txn() else { return 0 };
        let all = self.tables.iter().chain([&self.journal]);
        let sizes = all.map(|db| db.stat(&txn).map_or(0, |s| s.non_free_page_size()));
        sizes.fold(0, |sum, size| sum.saturating_add(size as u64))
    }

    /// Rows of each table and the bytes of its live pages. Rows that a table has still to be told of are
    /// not among them.
    pub(crate) fn table_sizes(&self) -> Result<Vec<(Table, u64, u64)>, StoreFault> {
        let txn = self.env.read_txn().map_err(|why| self.fault(&why))?;
        let sizes = Table::ALL.iter().zip(&self.tables).map(|(table, db)| {
            let stat = db.stat(&txn).map_err(|why| self.fault(&why))?;
            Ok((*table, stat.entries as u64, stat.non_free_page_size() as u64))
        });
        sizes.collect()
    }

    /// Frees reader slots that dead processes left: their pages could not be reused.
    pub(crate) fn clear_stale_readers(&self) {
        match self.env.clear_stale_readers() {
            Ok(0) => {}
            Ok(freed) => {
                tracing::warn!(freed, code = "CN0555", "reader slots of dead processes freed")
            }
            Err(why) => tracing::warn!(%why, code = "CN0555", "stale readers cannot be checked"),
        }
    }

    /// Whether no table has a row.
    pub(crate) fn is_blank(&self) -> Result<bool, heed::Error> {
        let txn = self.env.read_txn()?;
        for db in &self.tables {
            if !db.is_empty(&txn)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Places for Ledger {
    fn journal(&self) -> Db {
        self.journal
    }

    fn table(&self, table: Table) -> Option<Db> {
        Some(*Ledger::table(self, table))
    }
}

/// The tables, and the one named `lag`.
type Opened = ([Db; TABLES], Db);

fn open_tables(env: &Env<WithoutTls>) -> Result<Option<Opened>, heed::Error> {
    let txn = env.read_txn()?;
    let opened = env.open_databases_and_commit(txn, |opener, txn| {
        let mut all = Vec::with_capacity(TABLES);
        for table in Table::ALL {
            match opener.open_database::<Bytes, Bytes>(txn, Some(table.word()))? {
                Some(db) => all.push(db),
                None => return Ok::<_, heed::Error>(CommitOrAbort::Abort(())),
            }
        }
        match opener.open_database::<Bytes, Bytes>(txn, Some(lag::NAME))? {
            Some(journal) => Ok(CommitOrAbort::Commit((whole(all), journal))),
            None => Ok(CommitOrAbort::Abort(())),
        }
    })?;
    Ok(opened.commit())
}

fn create_tables(env: &Env<WithoutTls>) -> Result<Opened, heed::Error> {
    let txn = env.write_txn()?;
    let made = env.create_databases_and_commit(txn, |opener, txn| {
        let mut all = Vec::with_capacity(TABLES);
        for table in Table::ALL {
            all.push(opener.create_database::<Bytes, Bytes>(txn, Some(table.word()))?);
        }
        let journal = opener.create_database::<Bytes, Bytes>(txn, Some(lag::NAME))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((whole(all), journal)))
    })?;
    Ok(made.commit().expect("the closure above never aborts"))
}

/// One for each table.
pub(crate) fn whole<T>(all: Vec<T>) -> [T; TABLES] {
    match all.try_into() {
        Ok(all) => all,
        Err(_) => unreachable!("one database was pushed for each table"),
    }
}

/// A consistent view of the committed ledger. Short-lived: while one is held, the pages it sees
/// cannot be reused and the file grows.
pub struct LmdbSnapshot<'e> {
    ledger: &'e Ledger,
    txn: RoTxn<'e, WithoutTls>,
    as_of: BatchNo,
    lag: Arc<Lag>,
}

impl Snapshot for LmdbSnapshot<'_> {
    fn as_of(&self) -> BatchNo {
        self.as_of
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreFault> {
        if key.is_empty() {
            return Ok(None);
        }
        if lag::lags(table)
            && let Some(change) = self.lag.get(table, key)
        {
            return Ok(change);
        }
        self.ledger.table(table).get(&self.txn, key).map_err(|why| self.ledger.fault(&why))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreFault> {
        // LMDB refuses an empty key, even to seek to.
        let start = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (start, Bound::Unbounded);
        let rows = self
            .ledger
            .table(table)
            .range(&self.txn, &range)
            .map_err(|why| self.ledger.fault(&why))?;
        let rows = rows.map(|row| row.map_err(|why| self.ledger.fault(&why)));
        if lag::lags(table) {
            return self.lag.scan(table, from, rows, visit);
        }
        for row in rows {
            let (key, value) = row?;
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}
