//! The data directory: its layout, its files opened without following links, and the fsyncs that make
//! names durable.
//!
//! Everything is reached through descriptors opened once, so a directory that is moved or replaced
//! while the process runs cannot send a write elsewhere.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use consign_core::id::BlobNo;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

/// Mode of every directory made here.
const DIR_MODE: Mode = Mode::RWXU;
/// Mode of every file made here.
pub(crate) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// How directories are opened.
const AS_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Names in the data directory.
pub(crate) mod name {
    /// The lock file; holds the process id of whoever has it.
    pub(crate) const LOCK: &str = "lock";
    /// The marker: which format this directory has.
    pub(crate) const FORMAT: &str = "FORMAT";
    /// The LMDB environment.
    pub(crate) const LEDGER: &str = "ledger";
    /// The LMDB environment while it is being made.
    pub(crate) const LEDGER_NEW: &str = "ledger.new";
    /// Content files.
    pub(crate) const BLOBS: &str = "blobs";
    /// What sweeps set aside.
    pub(crate) const QUARANTINE: &str = "quarantine";
    /// Space kept for relief when the disk is full.
    pub(crate) const BALLAST: &str = "ballast";
    /// Written and removed to see whether the disk is full.
    pub(crate) const PROBE: &str = "probe";
}

/// The data directory, open.
#[derive(Debug)]
pub(crate) struct DataDir {
    pub(crate) path: PathBuf,
    pub(crate) root: OwnedFd,
    blobs: OwnedFd,
    quarantine: OwnedFd,
    /// Whether it is there: not in every copy that is looked at.
    has_quarantine: bool,
}

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    /// A regular file of that length.
    File(u64),
    /// Anything else.
    Other,
}

impl DataDir {
    /// Opens the parts of a directory that is locked already, making what is missing. The content
    /// folders are made when they are first wanted.
    pub(crate) fn open(path: &Path, root: OwnedFd) -> Result<DataDir, Errno> {
        let blobs = sub_dir(&root, name::BLOBS)?;
        let quarantine = sub_dir(&root, name::QUARANTINE)?;
        // Always: a process that was killed may have made names that nobody has made durable.
        for dir in [&blobs, &quarantine, &root] {
            rustix::fs::fsync(dir)?;
        }
        match rustix::fs::openat(&root, "..", AS_DIR, Mode::empty()) {
            Ok(parent) => rustix::fs::fsync(&parent)?,
            // Somebody else's directory, made durable by whoever made ours in it.
            Err(Errno::ACCESS | Errno::PERM) => {}
            Err(why) => return Err(why),
        }
        Ok(DataDir { path: path.to_owned(), root, blobs, quarantine, has_quarantine: true })
    }

    /// Opens the parts of a directory to look at them: nothing is made, and nothing can be set aside.
    /// `None` when there is no content.
    pub(crate) fn view(path: &Path, root: OwnedFd) -> Result<Option<DataDir>, Errno> {
        let open = |name| rustix::fs::openat(&root, name, AS_DIR, Mode::empty());
        let blobs = match open(name::BLOBS) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let quarantine = match open(name::QUARANTINE) {
            Err(Errno::NOENT) => None,
            other => Some(other?),
        };
        // Where there is none, another folder stands in, and nobody looks there.
        let empty = rustix::io::fcntl_dupfd_cloexec(&blobs, 0)?;
        let has_quarantine = quarantine.is_some();
        let quarantine = quarantine.unwrap_or(empty);
        Ok(Some(DataDir { path: path.to_owned(), root, blobs, quarantine, has_quarantine }))
    }

    /// Names of what was set aside.
    pub(crate) fn aside(&self) -> Result<Vec<OsString>, Errno> {
        if self.has_quarantine { entries(&self.quarantine) } else { Ok(Vec::new()) }
    }

    /// Whether any content folder holds anything.
    pub(crate) fn has_content(root: &OwnedFd) -> Result<bool, Errno> {
        let blobs = match rustix::fs::openat(root, name::BLOBS, AS_DIR, Mode::empty()) {
            Ok(blobs) => blobs,
            Err(Errno::NOENT) => return Ok(false),
            Err(why) => return Err(why),
        };
        for folder in 0..=u8::MAX {
            match rustix::fs::openat(&blobs, folder_name(folder), AS_DIR, Mode::empty()) {
                Ok(dir) if !entries(&dir)?.is_empty() => return Ok(true),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(false)
    }

    /// Opens one of the 256 content folders; [`Errno::NOENT`] when it was never wanted.
    pub(crate) fn folder(&self, folder: u8) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(&self.blobs, folder_name(folder), AS_DIR, Mode::empty())
    }

    /// Opens one of the 256 content folders, made durably if it was never wanted. For one thread at
    /// a time and folder: another would find it before it is durable.
    pub(crate) fn make_folder(&self, folder: u8) -> Result<OwnedFd, Errno> {
        match self.folder(folder) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let name = folder_name(folder);
        rustix::fs::mkdirat(&self.blobs, &name, DIR_MODE)?;
        if let Err(why) = rustix::fs::fsync(&self.blobs) {
            // Take it away, so that nobody takes it for durable and the next to want it makes it.
            let _ = rustix::fs::unlinkat(&self.blobs, &name, AtFlags::REMOVEDIR);
            return Err(why);
        }
        self.folder(folder)
    }

    /// Opens a content file for reading. What is not a regular file is [`Errno::NOENT`].
    pub(crate) fn open_blob(&self, blob: BlobNo) -> Result<(OwnedFd, u64), Errno> {
        // O_NONBLOCK: a FIFO somebody put there must not hold the thread.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let folder = self.folder(folder_of(blob))?;
        let file = match rustix::fs::openat(&folder, blob.to_string(), flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NXIO) => return Err(Errno::NOENT),
            other => other?,
        };
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::NOENT);
        }
        Ok((file, u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// What stands at a blob's place; `None` when nothing does.
    pub(crate) fn blob_thing(&self, blob: BlobNo) -> Result<Option<Thing>, Errno> {
        match self.folder(folder_of(blob)) {
            Ok(folder) => thing(&folder, blob.to_string()),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Moves an entry of a content folder into quarantine, under a name that is free. `false` when
    /// it is gone. The caller makes it durable by [`DataDir::sync_quarantine`]. Its time of change tells
    /// since when it is there.
    pub(crate) fn set_aside(
        &self,
        folder: &OwnedFd,
        number: u8,
        entry: &OsString,
        whose: Whose,
    ) -> Result<bool, Errno> {
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        match rustix::fs::utimensat(folder, entry, &times, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            Err(why) => return Err(why),
        }
        for copy in 0..u32::MAX {
            let mut to = OsString::from(match whose {
                Whose::Sweep => "",
                Whose::Operator => KEPT,
            });
            to.push(folder_name(number));
            to.push("-");
            to.push(entry);
            if copy > 0 {
                to.push(format!(".{copy}"));
            }
            let moved = rustix::fs::renameat_with(
                folder,
                entry,
                &self.quarantine,
                &to,
                RenameFlags::NOREPLACE,
            );
            match moved {
                Ok(()) => return Ok(true),
                Err(Errno::NOENT) => return Ok(false),
                Err(Errno::EXIST) => {}
                Err(why) => return Err(why),
            }
        }
        Err(Errno::EXIST)
    }

    /// Removes what sweeps set aside longer ago than `age`, by `now`; how much. What an operator's `fsck`
    /// set aside stays, and so does a directory with anything in it: neither comes by itself.
    pub(crate) fn forget_aside(&self, now: SystemTime, age: Duration) -> Result<u64, Errno> {
        let mut gone = 0;
        for entry in entries(&self.quarantine)? {
            if entry.as_encoded_bytes().starts_with(KEPT.as_bytes()) {
                continue;
            }
            let stat = match rustix::fs::statat(&self.quarantine, &entry, AtFlags::SYMLINK_NOFOLLOW)
            {
                Err(Errno::NOENT) => continue,
                other => other?,
            };
            let since = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
            let old = now.duration_since(UNIX_EPOCH + since).is_ok_and(|passed| passed > age);
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let how = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            if old && rustix::fs::unlinkat(&self.quarantine, &entry, how).is_ok() {
                gone += 1;
            }
        }
        Ok(gone)
    }

    /// Makes what was set aside durable: the quarantine first, so that a crash leaves no entry in
    /// neither place.
    pub(crate) fn sync_quarantine(&self, folder: &OwnedFd) -> Result<(), Errno> {
        rustix::fs::fsync(&self.quarantine)?;
        rustix::fs::fsync(folder)
    }
}

/// Who sets something aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The running store: it goes after a while.
    Sweep,
    /// An operator, by `fsck`: it may be the only copy, and stays.
    Operator,
}

/// How names begin of what an operator set aside.
const KEPT: &str = "fsck-";

/// The ledger's file of a data directory.
pub(crate) fn ledger_file(data: &Path) -> PathBuf {
    data.join(name::LEDGER).join("data.mdb")
}

/// The folder of a blob: the low byte of its number.
pub(crate) fn folder_of(blob: BlobNo) -> u8 {
    let [.., low] = blob.0.to_be_bytes();
    low
}

/// The name of a content folder: two hex digits.
pub(crate) fn folder_name(folder: u8) -> String {
    format!("{folder:02x}")
}

/// The number that an entry of a content folder bears, if it is one of that folder.
pub(crate) fn number_in(folder: u8, entry: &OsStr) -> Option<BlobNo> {
    let text = entry.to_str()?;
    let blob = text.parse().map(BlobNo).ok()?;
    (folder_of(blob) == folder && blob.to_string() == text).then_some(blob)
}

/// What stands under `name`, links not followed.
pub(crate) fn thing(dir: &OwnedFd, name: impl AsRef<OsStr>) -> Result<Option<Thing>, Errno> {
    match rustix::fs::statat(dir, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            Ok(Some(Thing::File(u64::try_from(stat.st_size).unwrap_or(0))))
        }
        Ok(_) => Ok(Some(Thing::Other)),
        Err(Errno::NOENT) => Ok(None),
        Err(why) => Err(why),
    }
}

/// The entries of a directory, without `.` and `..`.
pub(crate) fn entries(dir: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            found.push(OsString::from_vec(name.to_vec()));
        }
    }
    Ok(found)
}

/// Makes a directory with all parents that are missing, each made durable in the one above it, and
/// opens it.
pub(crate) fn make_all(path: &Path) -> Result<OwnedFd, Errno> {
    let follow = AS_DIR.difference(OFlags::NOFOLLOW);
    match rustix::fs::openat(CWD, path, follow, Mode::empty()) {
        Ok(dir) => return Ok(dir),
        Err(Errno::NOENT) => {}
        Err(why) => return Err(why),
    }
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let parent = make_all(parent)?;
    let last = path.file_name().ok_or(Errno::INVAL)?;
    match rustix::fs::mkdirat(&parent, last, DIR_MODE) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(why) => return Err(why),
    }
    rustix::fs::fsync(&parent)?;
    rustix::fs::openat(&parent, last, AS_DIR, Mode::empty())
}

/// Makes a directory if it is missing.
pub(crate) fn make_dir(parent: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::mkdirat(parent, name, DIR_MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(why) => Err(why),
    }
}

fn sub_dir(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    make_dir(parent, name)?;
    rustix::fs::openat(parent, name, AS_DIR, Mode::empty())
}

/// Writes all of `data` at `offset`, however short the single writes are.
pub(crate) fn write_all(file: &OwnedFd, mut data: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !data.is_empty() {
        match rustix::io::pwrite(file, data, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                data = data.get(n..).unwrap_or_default();
                offset = offset.saturating_add(n as u64);
            }
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Writes all pieces, one behind the other.
pub(crate) fn write_pieces(file: &OwnedFd, pieces: &[Bytes], mut offset: u64) -> Result<(), Errno> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = slices.as_mut_slice();
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match rustix::io::pwritev(file, rest, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                IoSlice::advance_slices(&mut rest, n);
                offset = offset.saturating_add(n as u64);
            }
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Whether an error means that there is no room.
pub(crate) fn is_full(why: Errno) -> bool {
    matches!(why, Errno::NOSPC | Errno::DQUOT)
}
