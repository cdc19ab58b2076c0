//! Files below a directory that others may write to: no link is ever followed there, so nobody can lead
//! this process elsewhere.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use consign_core::inbox::FileMark;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// How directories are opened.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The directory itself, which may be reached by links; made when only its last part is missing.
///
/// # Errors
/// Those of the system.
pub(crate) fn open(dir: &Path) -> Result<OwnedFd, Errno> {
    let open = || rustix::fs::open(dir, DIRECTORY, Mode::empty());
    match open() {
        Err(Errno::NOENT) => match rustix::fs::mkdir(dir, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => open(),
            Err(why) => Err(why),
        },
        other => other,
    }
}

/// The same without making anything; `None` where nothing is.
///
/// # Errors
/// Those of the system.
pub(crate) fn found(dir: &Path) -> Result<Option<OwnedFd>, Errno> {
    match rustix::fs::open(dir, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        other => other.map(Some),
    }
}

/// A directory within another one.
///
/// # Errors
/// Those of the system; `LOOP` or `NOTDIR` when it is a link.
pub(crate) fn enter(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// Goes down `parts`, making what is missing if asked; `None` when something is missing.
///
/// # Errors
/// Those of the system; `LOOP` or `NOTDIR` when a part is no directory.
pub(crate) fn walk<P: AsRef<[u8]>>(
    base: &OwnedFd,
    parts: &[P],
    make: bool,
) -> Result<Option<OwnedFd>, Errno> {
    let mut at = rustix::io::fcntl_dupfd_cloexec(base, 0)?;
    for part in parts {
        let part = part.as_ref();
        let next = match enter(&at, part) {
            Err(Errno::NOENT) if !make => return Ok(None),
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => rustix::fs::fsync(&at)?,
                    Err(why) => return Err(why),
                }
                enter(&at, part)?
            }
            other => other?,
        };
        at = next;
    }
    Ok(Some(at))
}

/// Opens a file below a directory, by its path from there. No part of it is followed if it is a link by now,
/// and nothing is waited for that it may have become.
///
/// # Errors
/// Those of the system; `LOOP` or `NOTDIR` when a part is a link or no directory, `INVAL` when the path does
/// not lead down.
pub(crate) fn file(base: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    let parts = path.components().map(|part| match part {
        Component::Normal(name) => Ok(name.as_bytes()),
        _ => Err(Errno::INVAL),
    });
    let parts = parts.collect::<Result<Vec<&[u8]>, Errno>>()?;
    let (name, dirs) = parts.split_last().ok_or(Errno::INVAL)?;
    let base = rustix::fs::open(base, DIRECTORY, Mode::empty())?;
    let dir = walk(&base, dirs, false)?.ok_or(Errno::NOENT)?;
    file_in(&dir, name)
}

/// Opens a file within a directory: no link is followed, and a pipe put there meanwhile holds nobody up.
///
/// # Errors
/// Those of the system; `LOOP` when it is a link.
pub(crate) fn file_in(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum There {
    /// A regular file, by what it is known again, and its length.
    File(FileMark, u64),
    /// A directory.
    Directory,
    /// Something else: a link, a pipe, a device.
    Other,
}

/// What stands under a name, not followed; `None` is nothing.
///
/// # Errors
/// Those of the system.
pub(crate) fn look(dir: &OwnedFd, name: &[u8]) -> Result<Option<There>, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(there(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(why) => Err(why),
    }
}

/// What an open file is.
///
/// # Errors
/// Those of the system.
pub(crate) fn of(file: &OwnedFd) -> Result<There, Errno> {
    rustix::fs::fstat(file).map(|stat| there(&stat))
}

fn there(stat: &Stat) -> There {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or_default();
            let modified = stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanos);
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            There::File(FileMark { inode: stat.st_ino, modified }, size)
        }
        FileType::Directory => There::Directory,
        _ => There::Other,
    }
}
