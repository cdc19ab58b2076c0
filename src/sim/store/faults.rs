//! How often a disk misbehaves, and how long it takes.

use consign_core::id::BlobNo;
use consign_core::store::StoreFault;

use super::SimStore;
use crate::sim::time::Micros;

/// How long a call takes, in microseconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// At least so long.
    pub low: u64,
    /// At most so long.
    pub high: u64,
}

impl Latency {
    /// From `low` to `high` microseconds.
    #[must_use]
    pub const fn new(low: u64, high: u64) -> Latency {
        Latency { low, high }
    }
}

/// How a disk behaves from now on; the world may change it at any time. Rates are per million of the
/// calls that can meet the fault; all of them are 0 by default, which is a perfect disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFaults {
    /// A commit.
    pub commit: Latency,
    /// A read of the ledger.
    pub read: Latency,
    /// A read of a content file.
    pub content: Latency,
    /// A write to a content file.
    pub write: Latency,
    /// Creating a file; syncing a file or a folder.
    pub sync: Latency,
    /// Removing a file, looking for files, probing.
    pub unlink: Latency,
    /// A call takes 1 to 60 s more; every second time all calls that begin meanwhile wait too (F12).
    pub stall: u32,
    /// A commit fails with an error that is no want of space; the ledger is broken from then on. At
    /// the next start the batch is there or not (F5).
    pub commit_eio: u32,
    /// A commit reports an error after it took effect (F6).
    pub commit_after: u32,
    /// A commit finds no space: the disk's, the ledger's map's or the transaction's (F7, F14).
    pub commit_full: u32,
    /// A read of the ledger fails; the node halts on that (F8).
    pub ledger_eio: u32,
    /// A read of content fails (F8).
    pub content_eio: u32,
    /// A session's read finds no free reader (F14).
    pub crowded: u32,
    /// Creating, writing, syncing or removing a file fails without effect; after a sync that failed
    /// the unsynced pages are there or not (F5, F8, F13).
    pub file_eio: u32,
    /// Creating, syncing, closing or removing a file reports an error after it took effect (F6).
    pub file_after: u32,
    /// Creating, writing or syncing a file finds no space (F7).
    pub file_full: u32,
    /// Before a call that needs space somebody else fills the disk to its last 64 KiB, for 1 to 60 s
    /// (F7).
    pub fill: u32,
    /// A read of content comes back with a flipped bit (F9).
    pub flip_read: u32,
    /// At a read of content, a bit of some file flips for good (F9).
    pub flip_file: u32,
    /// At a read of the ledger, a bit of some row flips for good (F9). Which tables it may meet is
    /// in [`super::StoreConfig::rot`].
    pub flip_row: u32,
    /// A read of content returns bytes from elsewhere (F10).
    pub misdirected_read: u32,
    /// A page that is synced lands in another file (F10).
    pub misdirected_write: u32,
    /// A page that is synced never lands (F10).
    pub lost_write: u32,
    /// At a start, an older copy of the ledger stands in its place (F18).
    pub restart_rollback: u32,
    /// At a start, a content file is gone or has become something else than a file (F17).
    pub restart_lost: u32,
    /// At a start, two content files have changed places (F17).
    pub restart_swapped: u32,
}

impl Default for StoreFaults {
    /// A perfect disk: a good SSD.
    fn default() -> StoreFaults {
        StoreFaults {
            commit: Latency::new(200, 2_000),
            read: Latency::new(5, 100),
            content: Latency::new(20, 500),
            write: Latency::new(2, 50),
            sync: Latency::new(100, 2_000),
            unlink: Latency::new(20, 500),
            stall: 0,
            commit_eio: 0,
            commit_after: 0,
            commit_full: 0,
            ledger_eio: 0,
            content_eio: 0,
            crowded: 0,
            file_eio: 0,
            file_after: 0,
            file_full: 0,
            fill: 0,
            flip_read: 0,
            flip_file: 0,
            flip_row: 0,
            misdirected_read: 0,
            misdirected_write: 0,
            lost_write: 0,
            restart_rollback: 0,
            restart_lost: 0,
            restart_swapped: 0,
        }
    }
}

/// When a call takes effect and when it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) effect: Micros,
    pub(super) end: Micros,
}

/// What becomes of a call on a file.
#[derive(Debug)]
pub(super) enum Hit {
    /// It works.
    None,
    /// It fails and did nothing.
    Before(StoreFault),
    /// It fails and was done all the same.
    After(StoreFault),
}

/// Which faults a call on a file can meet, by the names of their rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Needs space, has an effect that may outlast an error.
    Grow,
    /// Needs space; after an error nothing is sure.
    Write,
    /// Needs no space.
    Remove,
}

const SECOND: u64 = 1_000_000;

impl SimStore {
    /// A call that begins at `at`: it takes effect at a random moment before it is answered.
    pub(super) fn call(&mut self, at: Micros, range: Latency) -> Call {
        let begin = at.max(self.stalled_until);
        let mut long = self.rng.between(range.low, range.high);
        if self.rng.chance(self.faults.stall) {
            let stall = self.rng.between(SECOND, 60 * SECOND);
            long += stall;
            if self.rng.chance(500_000) {
                self.stalled_until = begin.plus(stall);
            }
        }
        let before = self.rng.between(0, long);
        Call { effect: begin.plus(before), end: begin.plus(long) }
    }

    /// Whether and how a call on a file fails.
    pub(super) fn hit(&mut self, kind: Kind, what: &str, blob: BlobNo) -> Hit {
        let why = |fault: &str| format!("{what} blob {blob}: {fault}");
        if kind != Kind::Remove && self.rng.chance(self.faults.file_full) {
            return Hit::Before(StoreFault::Full(why("no space")));
        }
        if self.rng.chance(self.faults.file_eio) {
            return Hit::Before(StoreFault::Io(why("input/output error")));
        }
        if kind != Kind::Write && self.rng.chance(self.faults.file_after) {
            return Hit::After(StoreFault::Io(why("input/output error after the effect")));
        }
        Hit::None
    }

    /// Says what the disk holds, after letting others fill it or give it back.
    pub(super) fn settle_space(&mut self, at: Micros) {
        if self.faults.fill == 0 || self.filled_until <= at {
            self.filled = 0;
        }
        let held = self.outside.saturating_add(self.disk.bytes());
        self.mem.set_outside(held.saturating_add(self.filled));
        if self.filled == 0 && self.rng.chance(self.faults.fill) {
            let left = self.rng.below(64 << 10);
            self.filled = self.mem.space().free.saturating_sub(left);
            self.filled_until = at.plus(self.rng.between(SECOND, 60 * SECOND));
            self.mem.set_outside(held.saturating_add(self.filled));
        }
    }
}
