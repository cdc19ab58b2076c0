//! Directories of small records, one file each, replaced as a whole.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

/// What a record is called while it is not whole.
const UNFINISHED: &str = ".new";

/// Opens a file below a directory; no link is followed.
pub(super) fn open(dir: &OwnedFd, name: &str, flags: OFlags, mode: u32) -> Result<File, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(mode)).map(File::from)
}

/// Writes a record durably; a kill leaves the old or the new one.
pub(super) fn put(dir: &OwnedFd, name: &str, value: &impl Serialize, mode: u32) -> io::Result<()> {
    let beside = format!("{name}{UNFINISHED}");
    let text = serde_json::to_vec(value).map_err(io::Error::other)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut file = open(dir, &beside, flags, mode)?;
    file.write_all(&text)?;
    file.sync_all()?;
    rustix::fs::renameat(dir, &beside, dir, name)?;
    Ok(rustix::fs::fsync(dir)?)
}

/// The text of a record, if there is one.
pub(super) fn get(dir: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut file = match open(dir, name, OFlags::RDONLY, 0) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Removes a file, if there is one.
pub(super) fn unlink(dir: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// The names of all whole records, in order.
pub(super) fn names(dir: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if !name.starts_with('.') && !name.ends_with(UNFINISHED) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}
