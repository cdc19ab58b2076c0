//! A file that grows at its end, past the page cache where that is allowed.
//!
//! Where direct writes are refused the same blocks go through the page cache, with write-back kept going
//! so that the final sync has little left to do.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::block::{ALIGN, BLOCK, Block};
use crate::dir;

/// How many bytes are handed to write-back at a time where direct writes are refused.
const WRITE_BACK: u64 = 8 << 20;

/// The file, as far as it is written.
#[derive(Debug)]
pub(crate) struct Grown {
    file: OwnedFd,
    /// Where the next block goes; a multiple of the alignment.
    at: u64,
    direct: bool,
    /// Up to where write-back was begun.
    begun: u64,
}

impl Grown {
    /// A file that is open for writing and grows from `at` on.
    pub(crate) fn new(file: OwnedFd, at: u64) -> Grown {
        let direct = set_direct(&file, true).is_ok();
        Grown { file, at, direct, begun: at }
    }

    /// How far it is written.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Whether what is written has to be aligned.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Writes at the end of what is on disk.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), Errno> {
        self.write_ahead(data)?;
        self.at = self.at.saturating_add(data.len() as u64);
        if !self.direct && self.at.saturating_sub(self.begun) >= WRITE_BACK {
            self.write_back();
        }
        Ok(())
    }

    /// Writes pieces at the end of what is on disk, aligned as all that is written there, from where they are.
    pub(crate) fn write_pieces(&mut self, pieces: &[Bytes]) -> Result<(), Errno> {
        match dir::write_pieces(&self.file, pieces, self.at) {
            Err(Errno::INVAL) if self.direct => {
                set_direct(&self.file, false)?;
                self.direct = false;
                dir::write_pieces(&self.file, pieces, self.at)?;
            }
            other => other?,
        }
        let len: usize = pieces.iter().map(Bytes::len).sum();
        self.at = self.at.saturating_add(len as u64);
        Ok(())
    }

    /// Writes there what will be written again.
    pub(crate) fn write_ahead(&mut self, data: &[u8]) -> Result<(), Errno> {
        if data.is_empty() {
            return Ok(());
        }
        match dir::write_all(&self.file, data, self.at) {
            // Aligned to more than we do, or refused after all: go on through the page cache.
            Err(Errno::INVAL) if self.direct => {
                set_direct(&self.file, false)?;
                self.direct = false;
                dir::write_all(&self.file, data, self.at)
            }
            other => other,
        }
    }

    /// Writes there, through the page cache, what ends nowhere in particular and will be written again: the file
    /// is never longer than what was put into it.
    fn write_end(&mut self, data: &[u8]) -> Result<(), Errno> {
        if self.direct {
            set_direct(&self.file, false)?;
        }
        let written = dir::write_all(&self.file, data, self.at);
        self.direct = self.direct && set_direct(&self.file, true).is_ok();
        written
    }

    /// Cuts it so many bytes behind what is written.
    pub(crate) fn cut(&self, behind: u64) -> Result<(), Errno> {
        rustix::fs::ftruncate(&self.file, self.at.saturating_add(behind))
    }

    /// Makes durable what is written.
    pub(crate) fn sync(&mut self) -> Result<(), Errno> {
        rustix::fs::fdatasync(&self.file)?;
        self.begun = self.at;
        Ok(())
    }

    /// Waits for the piece that was begun last and begins the next, so that little is dirty at a time.
    fn write_back(&mut self) {
        let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let before = self.begun.saturating_sub(WRITE_BACK);
        // Errors are left to fdatasync, which reports them all.
        sync_range(&self.file, before, self.begun - before, wait);
        sync_range(&self.file, self.begun, self.at - self.begun, libc::SYNC_FILE_RANGE_WRITE);
        self.begun = self.at;
    }

    /// The file alone.
    pub(crate) fn into_file(self) -> OwnedFd {
        self.file
    }
}

/// A large file outside a store that grows at its end, a block of 1 MiB at a time and past the page cache where
/// that is allowed: pages that nobody reads again cost more than the writing.
#[derive(Debug)]
pub struct LargeFile {
    disk: Grown,
    block: Block,
}

impl LargeFile {
    /// Goes on behind the first `len` bytes of a file that is open for reading and writing, and has no others.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(file: OwnedFd, len: u64) -> io::Result<LargeFile> {
        let at = len - len % ALIGN as u64;
        let mut tail = vec![0; (len - at) as usize];
        read_exact(&file, &mut tail, at)?;
        let mut block = Block::new();
        block.append(&tail);
        Ok(LargeFile { disk: Grown::new(file, at), block })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// Those of the system; what the file holds then is not known.
    pub fn append(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let taken = self.block.append(data);
            data = data.get(taken..).unwrap_or_default();
            if self.block.fill() == BLOCK {
                self.disk.write(self.block.front(BLOCK))?;
                self.block.consume(BLOCK);
            }
        }
        Ok(())
    }

    /// Makes everything durable, but the name.
    ///
    /// # Errors
    /// Those of the system.
    pub fn sync(&mut self) -> io::Result<()> {
        let whole = self.block.whole();
        self.disk.write(self.block.front(whole))?;
        self.block.consume(whole);
        if self.block.fill() > 0 {
            self.disk.write_end(self.block.front(self.block.fill()))?;
        }
        Ok(self.disk.sync()?)
    }
}

/// Fills `bytes` with what stands in a file from `at` on.
pub(crate) fn read_exact(file: &OwnedFd, bytes: &mut [u8], at: u64) -> Result<(), Errno> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, at.saturating_add(done as u64)) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Has reads and writes of a file go past the page cache, or not.
pub(crate) fn set_direct(file: &OwnedFd, direct: bool) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    let flags = if direct { flags | OFlags::DIRECT } else { flags.difference(OFlags::DIRECT) };
    rustix::fs::fcntl_setfl(file, flags)
}

fn sync_range(file: &OwnedFd, offset: u64, len: u64, flags: libc::c_uint) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    // SAFETY: the descriptor is open for the whole call, which touches no memory of ours.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false).open(path).unwrap().into()
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn a_large_file_is_what_was_appended_and_no_longer_at_any_sync() {
        is_what_was_appended(&tempfile::tempdir().unwrap());
    }

    #[test]
    fn a_large_file_may_go_through_the_page_cache() {
        // Where it is a file system in memory, direct writes may be refused.
        match tempfile::tempdir_in("/dev/shm") {
            Ok(dir) => is_what_was_appended(&dir),
            Err(_) => println!("skipped: no /dev/shm"),
        }
    }

    fn is_what_was_appended(dir: &tempfile::TempDir) {
        let path = dir.path().join("f");
        let content = bytes(3 * BLOCK + 5_000);
        for parts in [vec![content.len()], vec![1, 4_095, 4_096, 100_000], vec![BLOCK, BLOCK + 1]] {
            let _ = std::fs::remove_file(&path);
            let mut at = 0;
            for part in parts.iter().chain([&usize::MAX]) {
                let to = part.saturating_add(at).min(content.len());
                let mut file = LargeFile::new(open(&path), at as u64).unwrap();
                for piece in content[at..to].chunks(70_001) {
                    file.append(piece).unwrap();
                }
                file.sync().unwrap();
                assert!(std::fs::read(&path).unwrap() == content[..to], "{parts:?} up to {to}");
                file.sync().unwrap();
                assert_eq!(std::fs::metadata(&path).unwrap().len(), to as u64);
                at = to;
            }
        }
    }

    #[test]
    fn a_file_that_is_shorter_than_it_must_be_is_not_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "abc").unwrap();
        assert!(LargeFile::new(open(&path), 4).is_err());
    }
}
