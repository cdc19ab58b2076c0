//! How much room the disk has, the ballast that is kept for relief, and the probe that tells a full
//! disk from a broken one.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use consign_core::limits::BATCH_BYTES;
use rustix::fs::{AtFlags, FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::dir::{self, DataDir, FILE_MODE, Thing, name};
use crate::shared::locked;

/// Least room that is left beside a whole ballast: what two batches need.
const ROOM: u64 = 2 * BATCH_BYTES as u64;
/// Step in which files are filled.
const STEP: usize = 1 << 20;

/// The ballast file.
#[derive(Debug)]
pub(crate) struct Ballast {
    /// Its size when whole, in bytes; 0 is no ballast.
    size: u64,
    whole: AtomicBool,
    /// Held by whoever changes the file.
    changing: Mutex<()>,
}

impl Ballast {
    /// Looks at what is there, and makes it whole if there is room.
    pub(crate) fn open(dir: &DataDir, size: u64) -> Ballast {
        let there = dir::thing(&dir.root, name::BALLAST);
        let whole = matches!(there, Ok(Some(Thing::File(len))) if len == size);
        let ballast = Ballast { size, whole: AtomicBool::new(whole), changing: Mutex::new(()) };
        ballast.restore(dir);
        ballast
    }

    /// Whether it is whole.
    pub(crate) fn whole(&self) -> bool {
        self.whole.load(Ordering::Acquire) || self.size == 0
    }

    /// Gives its space back to the disk, if it has any.
    pub(crate) fn free(&self, dir: &DataDir) {
        let _changing = locked(&self.changing);
        self.whole.store(false, Ordering::Release);
        let unlinked = rustix::fs::unlinkat(&dir.root, name::BALLAST, AtFlags::empty());
        match unlinked.and_then(|()| rustix::fs::fsync(&dir.root)) {
            // Relief goes on for many batches; the first has freed it.
            Err(Errno::NOENT) => {}
            Ok(()) => tracing::warn!(bytes = self.size, code = "CN0564", "ballast freed"),
            Err(why) => tracing::error!(%why, code = "CN0564", "the ballast cannot be freed"),
        }
    }

    /// Makes it whole again if the disk has room for it and for what comes next. Does nothing while
    /// another thread is at it: no commit waits for that.
    pub(crate) fn restore(&self, dir: &DataDir) {
        let need = self.size.saturating_add(room(self.size));
        if self.whole() || free(dir).is_none_or(|free| free < need) {
            return;
        }
        let Ok(_changing) = self.changing.try_lock() else { return };
        match fill(dir, name::BALLAST, self.size) {
            Ok(()) => {
                self.whole.store(true, Ordering::Release);
                tracing::info!(bytes = self.size, "ballast whole");
            }
            Err(why) => {
                tracing::warn!(%why, code = "CN0564", "the ballast cannot be made whole");
                let _ = remove(dir, name::BALLAST);
            }
        }
    }
}

/// Room to leave beside a ballast of that size; a small ballast means a small disk.
fn room(ballast: u64) -> u64 {
    ROOM.min(ballast).max(STEP as u64)
}

/// Bytes that are free for this user; `None` when the disk does not say.
pub(crate) fn free(dir: &DataDir) -> Option<u64> {
    let stat = rustix::fs::fstatvfs(&dir.root).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Whether the disk is full, as far as a batch of `bytes` is concerned: a write and sync of twice as
/// much beside the ledger fails for want of space, or the disk says it has less.
pub(crate) fn is_full(dir: &DataDir, bytes: usize) -> Option<String> {
    let need = (bytes as u64).saturating_mul(2).max(STEP as u64);
    let probe = write_probe(dir, need);
    let removed = remove(dir, name::PROBE);
    match probe.and(removed) {
        Err(why) if dir::is_full(why) => return Some(format!("a probe of {need} bytes: {why}")),
        Err(why) => tracing::warn!(%why, need, code = "CN0565", "the probe failed"),
        Ok(()) => {}
    }
    match free(dir) {
        Some(free) if free < need => Some(format!("{free} bytes free, {need} needed")),
        Some(_) | None => None,
    }
}

fn write_probe(dir: &DataDir, need: u64) -> Result<(), Errno> {
    remove(dir, name::PROBE)?;
    let file = create(dir, name::PROBE)?;
    write_noise(&file, need)?;
    rustix::fs::fdatasync(&file)
}

fn fill(dir: &DataDir, name: &str, size: u64) -> Result<(), Errno> {
    remove(dir, name)?;
    let file = create(dir, name)?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => write_noise(&file, size)?,
        Err(why) => return Err(why),
    }
    rustix::fs::fsync(&file)?;
    rustix::fs::fsync(&dir.root)
}

/// Writes bytes that no file system compresses away or shares.
fn write_noise(file: &OwnedFd, size: u64) -> Result<(), Errno> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0u8; STEP];
    let mut offset = 0;
    while offset < size {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let len = usize::try_from(size - offset).unwrap_or(STEP).min(STEP);
        dir::write_all(file, block.get(..len).unwrap_or_default(), offset)?;
        offset += len as u64;
    }
    Ok(())
}

fn create(dir: &DataDir, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&dir.root, name, flags, FILE_MODE)
}

fn remove(dir: &DataDir, name: &str) -> Result<(), Errno> {
    match rustix::fs::unlinkat(&dir.root, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(why) => Err(why),
    }
}
