//! A data directory opened to be checked or repaired, while no node runs on it.
//!
//! Checking changes nothing, so a copy on a read-only file system will do; it holds the directory's lock
//! together with others who read, so that no node starts meanwhile. Repairing holds it alone. Both take
//! what a node refuses: rows that everything rests on and that cannot be read.

mod files;

use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use consign_core::id::BatchNo;
use consign_core::ledger::rows::{MetaName, MetaRow};
use consign_core::ledger::{FORMAT, Table, codec};
use consign_core::store::{Batch, Op, Snapshot, StoreFault};
use heed::types::Bytes;
use heed::{CommitOrAbort, CompactionOption, Env, EnvFlags, RoTxn, WithoutTls};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{OpenError, failed, open_ledger, read_marker, read_pid, unreadable};
use super::{
    OpenOptions, data_file, has_ledger, judge_shape, lock, refuse_file_system, write_marker,
};
pub use files::{Aside, HowFiles, WatchFiles};

use crate::dir::{self, DataDir, name};
use crate::lag::{self, Lag, Places};
use crate::ledger::{Db, Ledger, whole};

/// A data directory that no node runs on.
pub struct Offline {
    pub(crate) path: PathBuf,
    pub(crate) root: OwnedFd,
    env: Option<Env<WithoutTls>>,
    tables: Vec<Option<Db>>,
    /// What tables that lag have still to be told. Nothing when the directory may be changed: then it is in
    /// its place.
    lag: Lag,
    /// Whether the marker file is there.
    marked: bool,
    may_write: bool,
    map: u64,
    _lock: Option<OwnedFd>,
}

impl std::fmt::Debug for Offline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offline").field("path", &self.path).finish_non_exhaustive()
    }
}

/// How long the ledger's file was and is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

impl Offline {
    /// Opens a directory to read it. Nothing in it is changed, and no node starts on it meanwhile.
    ///
    /// # Errors
    /// As [`crate::LmdbStore::open`], but rows that cannot be read are no reason.
    pub fn to_read(options: &OpenOptions) -> Result<Offline, OpenError> {
        let path = options.dir.as_path();
        let root = open_root(path)?;
        let lock = shared_lock(&root, path)?;
        let marked = known_format(&root, path)?;
        let file = present(&root, path, marked)?;
        judge_shape(&file)?;
        let flags = EnvFlags::READ_ONLY | EnvFlags::NO_LOCK;
        let env = Ledger::open_env_with(&path.join(name::LEDGER), options.map_bytes, flags)
            .map_err(|why| unreadable(&file, &why))?;
        let (tables, journal) = tables_there(&env).map_err(|why| unreadable(&file, &why))?;
        let lag = match journal {
            Some(journal) => read_lag(&env, &journal, &file)?,
            None => Lag::default(),
        };
        Ok(Offline {
            path: path.to_owned(),
            root,
            env: Some(env),
            tables,
            lag,
            marked,
            may_write: false,
            map: options.map_bytes,
            _lock: lock,
        })
    }

    /// Opens a directory to change it, alone.
    ///
    /// # Errors
    /// As [`crate::LmdbStore::open`], but rows that cannot be read are no reason, and neither is a
    /// marker that is missing.
    pub fn to_repair(options: &OpenOptions) -> Result<Offline, OpenError> {
        let path = options.dir.as_path();
        if !options.force_fs {
            refuse_file_system(path)?;
        }
        let root = open_root(path)?;
        let lock = lock(&root, path)?;
        let marked = known_format(&root, path)?;
        let file = present(&root, path, marked)?;
        let ledger = open_ledger(path, &file, options)?;
        settle(&ledger, &file)?;
        let (env, tables, _) = ledger.into_parts();
        Ok(Offline {
            path: path.to_owned(),
            root,
            env: Some(env),
            tables: tables.map(Some).to_vec(),
            lag: Lag::default(),
            marked,
            may_write: true,
            map: options.map_bytes,
            _lock: Some(lock),
        })
    }

    /// Whether the marker file is there.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.marked
    }

    /// Writes the marker file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn mark(&mut self) -> Result<(), StoreFault> {
        write_marker(&self.root).map_err(|why| StoreFault::Io(format!("FORMAT: {why}")))?;
        self.marked = true;
        Ok(())
    }

    fn env(&self) -> Result<&Env<WithoutTls>, StoreFault> {
        self.env.as_ref().ok_or_else(|| StoreFault::Io("the ledger is closed".to_owned()))
    }

    /// A view of the ledger.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn snapshot(&self) -> Result<OfflineSnapshot<'_>, StoreFault> {
        let txn = self.env()?.read_txn().map_err(|why| fault(&why))?;
        Ok(OfflineSnapshot { tables: &self.tables, lag: &self.lag, txn })
    }

    /// Commits a batch whole or not at all. Batches without parked bodies only.
    ///
    /// # Errors
    /// When it was not committed, or the directory was opened to be read.
    pub fn commit(&self, batch: &Batch) -> Result<(), StoreFault> {
        if !self.may_write {
            return Err(StoreFault::Io("the directory was opened to be read".to_owned()));
        }
        let full = |why: heed::Error| fault(&why);
        let mut txn = self.env()?.write_txn().map_err(full)?;
        for op in batch.ops() {
            match op {
                Op::Put { table, key, value } => {
                    let Some(db) = self.table(table) else { continue };
                    db.put(&mut txn, key, value).map_err(full)?;
                }
                Op::Del { table, key } => {
                    let Some(db) = self.table(table) else { continue };
                    db.delete(&mut txn, key).map_err(full)?;
                }
                Op::PutBody { number, .. } => {
                    return Err(StoreFault::Io(format!("body {number} is parked nowhere")));
                }
            }
        }
        txn.commit().map_err(full)
    }

    fn table(&self, table: Table) -> Option<&Db> {
        self.tables.get(usize::from(table.number()).checked_sub(1)?)?.as_ref()
    }

    /// Writes the ledger's live pages to a new file and puts that in the place of the old one, in an
    /// order that a crash cannot spoil: written and synced beside it, renamed over it, the name synced.
    ///
    /// # Errors
    /// When that cannot be done; the old file is in its place then, unless the last sync failed.
    pub fn compact(&mut self) -> Result<Compacted, StoreFault> {
        let place = self.path.join(name::LEDGER);
        let (old, new) = (place.join("data.mdb"), self.compacted_beside());
        let io = |what: &str, why: std::io::Error| StoreFault::Io(format!("{what}: {why}"));
        let len = |path: &Path| std::fs::metadata(path).map(|m| m.len());
        let before = len(&old).map_err(|why| io("the ledger", why))?;
        let copy = self.env()?.copy_to_path(&new, CompactionOption::Enabled);
        let file = copy.map_err(|why| fault(&why))?;
        file.sync_all().map_err(|why| io("the new ledger", why))?;
        let after = len(&new).map_err(|why| io("the new ledger", why))?;
        // Nothing of the old file may be mapped when another takes its name.
        self.tables.clear();
        if let Some(env) = self.env.take() {
            env.prepare_for_closing().wait();
        }
        std::fs::rename(&new, &old).map_err(|why| io("the new ledger", why))?;
        let dir = std::fs::File::open(&place).map_err(|why| io("the ledger", why))?;
        dir.sync_all().map_err(|why| io("the ledger", why))?;
        let options = OpenOptions { map_bytes: self.map, ..OpenOptions::new(&self.path) };
        let ledger = open_ledger(&self.path, &old, &options)
            .map_err(|why| StoreFault::Corrupt(why.to_string()))?;
        let (env, tables, _) = ledger.into_parts();
        self.env = Some(env);
        self.tables = tables.map(Some).to_vec();
        Ok(Compacted { before, after })
    }

    /// The file that [`Offline::compact`] writes before it takes the ledger's place.
    #[must_use]
    pub fn compacted_beside(&self) -> PathBuf {
        self.path.join(name::LEDGER).join(COMPACT)
    }

    /// The folders of content, made where they are missing, for moving files.
    pub(crate) fn folders(&self) -> Result<DataDir, Errno> {
        let root = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
        DataDir::open(&self.path, root)
    }
}

/// Name of a ledger's file while it is compacted.
const COMPACT: &str = "data.mdb.new";

/// A consistent view of a ledger that no node runs on. A table that is not there is empty.
pub struct OfflineSnapshot<'o> {
    tables: &'o [Option<Db>],
    lag: &'o Lag,
    txn: RoTxn<'o, WithoutTls>,
}

impl OfflineSnapshot<'_> {
    fn table(&self, table: Table) -> Option<&Db> {
        self.tables.get(usize::from(table.number()).checked_sub(1)?)?.as_ref()
    }
}

impl Snapshot for OfflineSnapshot<'_> {
    /// The number in `meta`; 0 when it cannot be read.
    fn as_of(&self) -> BatchNo {
        let key = MetaName::Batch.key();
        let value = self.get(Table::Meta, key).ok().flatten();
        let row = value.and_then(|v| codec::decode::<MetaRow>(Table::Meta, key, v).ok());
        BatchNo(row.map_or(0, |row| row.value))
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreFault> {
        if let Some(change) = self.lag.get(table, key) {
            return Ok(change);
        }
        let Some(db) = self.table(table).filter(|_| !key.is_empty()) else { return Ok(None) };
        db.get(&self.txn, key).map_err(|why| fault(&why))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreFault> {
        let Some(db) = self.table(table) else { return Ok(()) };
        let start = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (start, Bound::Unbounded);
        let rows = db.range(&self.txn, &range).map_err(|why| fault(&why))?;
        self.lag.scan(table, from, rows.map(|row| row.map_err(|why| fault(&why))), visit)
    }
}

/// What tables that lag have still to be told. A row that is damaged tells nothing: what it told of is found
/// to be missing, or led astray by.
fn read_lag(env: &Env<WithoutTls>, journal: &Db, file: &Path) -> Result<Lag, OpenError> {
    let txn = env.read_txn().map_err(|why| unreadable(file, &why))?;
    let mut broken = |key: &[u8]| {
        let row = lag::shown(key);
        tracing::warn!(row, code = "CN0568", "a damaged row of lag is left out");
        Ok(())
    };
    Lag::load(journal, &txn, &fault, &mut broken).map_err(|why| OpenError::LedgerUnreadable {
        ledger: file.to_owned(),
        why: why.to_string(),
    })
}

/// Puts what tables that lag have still to be told into them.
fn settle(ledger: &Ledger, file: &Path) -> Result<(), OpenError> {
    let lag = read_lag(ledger.env(), &ledger.journal(), file)?;
    let settled = || {
        let mut txn = ledger.write_txn()?;
        lag.settle(ledger, &mut txn)?;
        txn.commit()
    };
    settled().map_err(|why| unreadable(file, &why))
}

fn fault(why: &heed::Error) -> StoreFault {
    match why {
        heed::Error::Mdb(heed::MdbError::MapFull | heed::MdbError::TxnFull) => {
            StoreFault::Full(why.to_string())
        }
        heed::Error::Mdb(_) => StoreFault::Corrupt(format!("ledger: {why}")),
        heed::Error::Io(_)
        | heed::Error::Encoding(_)
        | heed::Error::Decoding(_)
        | heed::Error::EnvAlreadyOpened => StoreFault::Io(format!("ledger: {why}")),
    }
}

fn open_root(path: &Path) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|why| failed("cannot open", path, why))
}

/// The lock, with others who read; none where there is no lock file, in a copy.
fn shared_lock(root: &OwnedFd, path: &Path) -> Result<Option<OwnedFd>, OpenError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(root, name::LOCK, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(why) => return Err(failed("cannot open", &path.join(name::LOCK), why)),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => {
            Err(OpenError::Locked { dir: path.to_owned(), pid: read_pid(&file) })
        }
        Err(why) => Err(failed("cannot lock", &path.join(name::LOCK), why)),
    }
}

/// Whether the marker is there; what is in it must be of this build.
fn known_format(root: &OwnedFd, path: &Path) -> Result<bool, OpenError> {
    match read_marker(root, path)? {
        Some(found) if found != u64::from(FORMAT) => {
            Err(OpenError::Newer { dir: path.to_owned(), found, reads: FORMAT })
        }
        marked => Ok(marked.is_some()),
    }
}

/// The ledger's file, which must be there and hold something.
fn present(root: &OwnedFd, path: &Path, marked: bool) -> Result<PathBuf, OpenError> {
    let ledger = dir::ledger_file(path);
    let io = |why| failed("cannot look into", path, why);
    match data_file(root).map_err(io)? {
        Some(0) => Err(OpenError::LedgerEmpty { ledger }),
        Some(_) => Ok(ledger),
        None if marked
            || DataDir::has_content(root).map_err(io)?
            || has_ledger(root).map_err(io)? =>
        {
            Err(OpenError::LedgerMissing { ledger })
        }
        None => Err(OpenError::NoSite { dir: path.to_owned() }),
    }
}

/// The tables that are there, and the one named `lag`.
fn tables_there(env: &Env<WithoutTls>) -> Result<(Vec<Option<Db>>, Option<Db>), heed::Error> {
    let txn = env.read_txn()?;
    let opened = env.open_databases_and_commit(txn, |opener, txn| {
        let mut all = Vec::new();
        for table in Table::ALL {
            all.push(opener.open_database::<Bytes, Bytes>(txn, Some(table.word()))?);
        }
        let journal = opener.open_database::<Bytes, Bytes>(txn, Some(lag::NAME))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((whole(all), journal)))
    })?;
    Ok(opened.commit().map(|(all, journal)| (Vec::from(all), journal)).unwrap_or_default())
}
