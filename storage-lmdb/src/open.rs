//! Opening a data directory: lock first, then look, then refuse or go on.
//!
//! Nothing is created, deleted or truncated before the lock is held. A directory that holds content or
//! a marker but no ledger that can be read is never given a new one.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use consign_core::ledger::FORMAT;
use consign_core::ledger::read::{self, Recovery};
use consign_core::store::StoreFault;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::dir::{self, DataDir, FILE_MODE, Thing, name};
use crate::ledger::Ledger;
use crate::shape;
use crate::space::Ballast;

mod offline;

pub use offline::{Aside, Compacted, HowFiles, Offline, OfflineSnapshot, WatchFiles};

/// How a store is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The data directory; made with its parents when it is missing.
    pub dir: PathBuf,
    /// Bytes kept aside for relief when the disk is full; 0 is none.
    pub ballast_bytes: u64,
    /// Take file systems that are refused otherwise: NFS, 9p, FUSE and others over a network, where
    /// LMDB's locks and maps cannot be relied on, and those in memory, which forget everything.
    pub force_fs: bool,
    /// Bytes of address space for the ledger, halved until it fits; the ledger cannot grow past it.
    pub map_bytes: u64,
}

impl OpenOptions {
    /// The defaults: 64 MiB of ballast, a map of 1 TiB, no doubtful file system.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> OpenOptions {
        OpenOptions {
            dir: dir.into(),
            ballast_bytes: 64 << 20,
            force_fs: false,
            map_bytes: 1 << 40,
        }
    }
}

/// Why a data directory is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it.
    #[error("{dir} is in use by {}", holder(*pid))]
    Locked {
        /// The data directory.
        dir: PathBuf,
        /// The process that has it, if it said so.
        pid: Option<u32>,
    },
    /// On a file system that does not keep what it promises.
    #[error(
        "{dir} is on {kind}, which cannot keep a ledger safely; use a local disk, or force it if \
         losing everything is acceptable"
    )]
    FileSystem {
        /// The data directory.
        dir: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// Written by a newer release.
    #[error("{dir} has ledger format {found}, this build reads {reads}: install a newer release")]
    Newer {
        /// The data directory.
        dir: PathBuf,
        /// What the marker says.
        found: u64,
        /// The newest this build reads.
        reads: u16,
    },
    /// The marker file cannot be understood.
    #[error("{0} is not a format marker; if it was damaged, restore it from a copy")]
    Marker(PathBuf),
    /// There is a ledger with rows, but no marker.
    #[error(
        "{dir} has a ledger but no FORMAT file, so its format is unknown; `consign fsck --repair` \
         makes it anew if the ledger is of this format"
    )]
    MarkerMissing {
        /// The data directory.
        dir: PathBuf,
    },
    /// There is a marker or content, but no ledger.
    #[error(
        "{ledger} is missing beside existing content; put a copy of the ledger back and run \
         `consign fsck --restored`, or move the directory away to begin anew"
    )]
    LedgerMissing {
        /// Where it should be.
        ledger: PathBuf,
    },
    /// There is neither marker nor ledger nor content: nothing to look at or to repair.
    #[error("{dir} holds no site: neither a FORMAT file, nor a ledger, nor content")]
    NoSite {
        /// The directory.
        dir: PathBuf,
    },
    /// The ledger has no rows beside existing content, or no bytes at all.
    #[error(
        "{ledger} is empty beside existing content; put a copy of the ledger back and run \
         `consign fsck --restored`, or move the directory away to begin anew"
    )]
    LedgerEmpty {
        /// The file.
        ledger: PathBuf,
    },
    /// The ledger is shorter than what it says it holds.
    #[error(
        "{ledger} is cut short: {have} bytes, but page {page} of {size} bytes is in use; put \
         a copy of the ledger back and run `consign fsck --restored`, or move the directory away to \
         begin anew"
    )]
    LedgerTruncated {
        /// The file.
        ledger: PathBuf,
        /// Its length in bytes.
        have: u64,
        /// A page in use beyond that.
        page: u64,
        /// Bytes of a page.
        size: u64,
    },
    /// The ledger cannot be read.
    #[error(
        "{ledger} cannot be read: {why}; put a copy of the ledger back and run `consign fsck \
         --restored`, or move the directory away to begin anew"
    )]
    LedgerUnreadable {
        /// The file.
        ledger: PathBuf,
        /// What LMDB said.
        why: String,
    },
    /// A row that everything rests on cannot be read.
    #[error(
        "{ledger} has a row that cannot be gone without: {why}; `consign fsck --repair` mends it"
    )]
    RowsUnreadable {
        /// The file.
        ledger: PathBuf,
        /// What the row codec said.
        why: String,
    },
    /// An error of the system.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// A directory that was opened.
pub(crate) struct Opened {
    pub(crate) dir: DataDir,
    pub(crate) lock: OwnedFd,
    pub(crate) ledger: Ledger,
    pub(crate) ballast: Ballast,
    pub(crate) recovery: Recovery,
}

pub(crate) fn open(options: &OpenOptions) -> Result<Opened, OpenError> {
    let path = options.dir.as_path();
    let io = |what: &'static str| move |why: Errno| failed(what, path, why);
    if !options.force_fs {
        refuse_file_system(path)?;
    }
    let root = dir::make_all(path).map_err(io("cannot open"))?;
    let lock = lock(&root, path)?;

    let marked = read_marker(&root, path)?;
    if let Some(found) = marked.filter(|found| *found != u64::from(FORMAT)) {
        return Err(OpenError::Newer { dir: path.to_owned(), found, reads: FORMAT });
    }
    let file = dir::ledger_file(path);
    let content = || DataDir::has_content(&root).map_err(io("cannot look through"));
    match data_file(&root).map_err(io("cannot look into"))? {
        Some(0) => return Err(OpenError::LedgerEmpty { ledger: file }),
        Some(_) => {}
        None if marked.is_some()
            || content()?
            || has_ledger(&root).map_err(io("cannot look into"))? =>
        {
            return Err(OpenError::LedgerMissing { ledger: file });
        }
        None => make_ledger(&root, path, options)?,
    }
    let ledger = open_ledger(path, &file, options)?;
    if ledger.is_blank().map_err(|why| unreadable(&file, &why))? {
        if content()? {
            return Err(OpenError::LedgerEmpty { ledger: file });
        }
    } else if marked.is_none() {
        return Err(OpenError::MarkerMissing { dir: path.to_owned() });
    }
    if marked.is_none() {
        write_marker(&root).map_err(io("cannot mark"))?;
    }
    ledger.clear_stale_readers();
    let recovery = recover(&ledger, &file)?;
    let dir = DataDir::open(path, root).map_err(io("cannot open the folders of"))?;
    let ballast = Ballast::open(&dir, options.ballast_bytes);
    Ok(Opened { dir, lock, ledger, ballast, recovery })
}

fn open_ledger(path: &Path, file: &Path, options: &OpenOptions) -> Result<Ledger, OpenError> {
    judge_shape(file)?;
    let open = || Ledger::open(Ledger::open_env(&path.join(name::LEDGER), options.map_bytes)?);
    open().map_err(|why| unreadable(file, &why))
}

fn judge_shape(file: &Path) -> Result<(), OpenError> {
    let ledger = file.to_owned();
    match shape::check(file) {
        Ok(()) => Ok(()),
        Err(shape::Fault::Short { have, page, size }) => {
            Err(OpenError::LedgerTruncated { ledger, have, page, size })
        }
        Err(shape::Fault::Unreadable(why)) => Err(OpenError::LedgerUnreadable { ledger, why }),
    }
}

fn recover(ledger: &Ledger, file: &Path) -> Result<Recovery, OpenError> {
    let snapshot = ledger.load_lag().and_then(|()| ledger.snapshot());
    snapshot.and_then(|snapshot| read::recovery(&snapshot)).map_err(|why| {
        let (ledger, text) = (file.to_owned(), why.to_string());
        match why {
            StoreFault::Corrupt(_) => OpenError::RowsUnreadable { ledger, why: text },
            _ => OpenError::LedgerUnreadable { ledger, why: text },
        }
    })
}

/// Locks the directory and writes this process's id into the lock file.
fn lock(root: &OwnedFd, path: &Path) -> Result<OwnedFd, OpenError> {
    let io = |what: &'static str| move |why: Errno| failed(what, &path.join(name::LOCK), why);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, name::LOCK, flags, FILE_MODE).map_err(io("cannot open"))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(OpenError::Locked { dir: path.to_owned(), pid: read_pid(&file) });
        }
        Err(why) => return Err(io("cannot lock")(why)),
    }
    rustix::fs::ftruncate(&file, 0).map_err(io("cannot write"))?;
    let pid = format!("{}\n", std::process::id());
    // Only a help for people; a full disk must not keep a node from starting.
    if let Err(why) = dir::write_all(&file, pid.as_bytes(), 0) {
        tracing::warn!(%why, code = "CN0554", "the process id cannot be written to the lock file");
    }
    Ok(file)
}

fn read_pid(file: &OwnedFd) -> Option<u32> {
    read_text(file)?.trim().parse().ok()
}

/// The first bytes of a small file.
fn read_text(file: impl AsFd) -> Option<String> {
    let mut text = [0u8; 64];
    let len = rustix::io::pread(file, &mut text, 0).ok()?;
    String::from_utf8(text.get(..len)?.to_vec()).ok()
}

/// The format in the marker, if there is one.
fn read_marker(root: &OwnedFd, path: &Path) -> Result<Option<u64>, OpenError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let marker = path.join(name::FORMAT);
    match rustix::fs::openat(root, name::FORMAT, flags, Mode::empty()) {
        Ok(file) => {
            let text = read_text(file);
            let format = text.as_deref().and_then(|text| text.strip_prefix(MARKER));
            let format = format.and_then(|rest| rest.trim_end().parse().ok());
            format.map(Some).ok_or(OpenError::Marker(marker))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP) => Err(OpenError::Marker(marker)),
        Err(why) => Err(failed("cannot read", &marker, why)),
    }
}

/// What stands before the number in the marker.
const MARKER: &str = "consign ledger format ";

fn write_marker(root: &OwnedFd) -> Result<(), Errno> {
    let new = "FORMAT.new";
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, new, flags, FILE_MODE)?;
    dir::write_all(&file, format!("{MARKER}{FORMAT}\n").as_bytes(), 0)?;
    rustix::fs::fsync(&file)?;
    rustix::fs::renameat(root, new, root, name::FORMAT)?;
    rustix::fs::fsync(root)
}

fn has_ledger(root: &OwnedFd) -> Result<bool, Errno> {
    Ok(dir::thing(root, name::LEDGER)?.is_some())
}

/// Length of the ledger's file; `None` when it is missing.
fn data_file(root: &OwnedFd) -> Result<Option<u64>, Errno> {
    match dir::thing(root, "ledger/data.mdb")? {
        Some(Thing::File(len)) => Ok(Some(len)),
        Some(Thing::Other) => Err(Errno::INVAL),
        None => Ok(None),
    }
}

/// Makes a ledger beside its place and moves it there whole, so that a crash leaves none or one with
/// all its tables.
fn make_ledger(root: &OwnedFd, path: &Path, options: &OpenOptions) -> Result<(), OpenError> {
    let place = path.join(name::LEDGER_NEW);
    let io = |what: &'static str| {
        let place = place.clone();
        move |why: Errno| failed(what, &place, why)
    };
    let left = |why: std::io::Error| OpenError::Io {
        what: "cannot remove",
        path: place.clone(),
        source: why,
    };
    if dir::thing(root, name::LEDGER_NEW).map_err(io("cannot look at"))?.is_some() {
        std::fs::remove_dir_all(&place).map_err(left)?;
    }
    dir::make_dir(root, name::LEDGER_NEW).map_err(io("cannot make"))?;
    let env =
        Ledger::open_env(&place, options.map_bytes).map_err(|why| unreadable(&place, &why))?;
    let closing = env.clone().prepare_for_closing();
    drop(Ledger::open(env).map_err(|why| unreadable(&place, &why))?);
    closing.wait();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(root, name::LEDGER_NEW, flags, Mode::empty())
        .map_err(io("cannot open"))?;
    // LMDB leaves its lock file behind; it is made anew for the place it moves to.
    match rustix::fs::unlinkat(&made, "lock.mdb", AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(why) => return Err(io("cannot clean")(why)),
    }
    rustix::fs::fsync(&made).map_err(io("cannot sync"))?;
    rustix::fs::renameat(root, name::LEDGER_NEW, root, name::LEDGER).map_err(io("cannot move"))?;
    rustix::fs::fsync(root).map_err(io("cannot sync"))
}

/// Refuses file systems by their kind, looking at the nearest directory that exists.
fn refuse_file_system(path: &Path) -> Result<(), OpenError> {
    let mut there = path;
    loop {
        let here = if there == Path::new("") { Path::new(".") } else { there };
        match rustix::fs::statfs(here) {
            Ok(stat) => {
                let kind = doubtful(stat.f_type as u32);
                return kind.map_or(Ok(()), |kind| {
                    Err(OpenError::FileSystem { dir: path.to_owned(), kind })
                });
            }
            Err(Errno::NOENT) => match there.parent() {
                Some(parent) => there = parent,
                None => return Err(failed("cannot look at", path, Errno::NOENT)),
            },
            Err(why) => return Err(failed("cannot look at", path, why)),
        }
    }
}

/// The kind of a file system that is refused, by its magic number.
fn doubtful(magic: u32) -> Option<&'static str> {
    match magic {
        0x0000_6969 => Some("NFS"),
        0x0102_1997 => Some("9p"),
        0x6573_5546 => Some("FUSE"),
        0xff53_4d42 | 0xfe53_4d42 | 0x0000_517b => Some("SMB"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x0102_1994 => Some("tmpfs, which is memory"),
        0x8584_58f6 => Some("ramfs, which is memory"),
        _ => None,
    }
}

fn unreadable(file: &Path, why: &heed::Error) -> OpenError {
    OpenError::LedgerUnreadable { ledger: file.to_owned(), why: why.to_string() }
}

fn failed(what: &'static str, path: &Path, why: Errno) -> OpenError {
    OpenError::Io { what, path: path.to_owned(), source: why.into() }
}
