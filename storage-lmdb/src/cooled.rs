//! What the page cache keeps of bodies that were written: the newest, and no more.
//!
//! A body is written once and read a few times, as a rule soon after it was written: by the peer it goes to, by the
//! rule that gives it out. Left alone, the page cache keeps all of them until memory runs short, at the cost of what
//! is read over and over, the ledger's own rows above all; and each body takes fresh pages, which in a virtual machine
//! costs more than the copy into them. So the writer lets go of all but the last [`KEPT`] bytes, and their pages
//! are taken again at once. Nothing but speed depends on it: what is read later comes from the disk.

use std::collections::VecDeque;
use std::fs;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;

use consign_core::id::BodyNo;
use consign_core::ledger::{Table, keys};
use consign_core::store::{Snapshot, StoreFault};
use rustix::fs::{Advice, Mode, OFlags};

use crate::dir;
use crate::ledger::LmdbSnapshot;
use crate::shared::Shared;

/// Bytes of bodies that stay in the page cache.
const KEPT: u64 = 32 << 20;
/// Bytes of neighbours that are let go together, at most about.
const PIECE: u64 = 2 << 20;
/// Bodies below are left alone: they share pages with others, or are too little for a system call.
const FROM: usize = 16 << 10;
/// Bytes of a page of memory, and of LMDB's.
const PAGE: usize = 4096;

/// The writer's bodies in the page cache.
pub(crate) struct Cooled {
    /// The ledger's file; `None` where it cannot be had, and then nothing is let go.
    file: Option<OwnedFd>,
    /// Where the ledger's file begins in memory.
    map: Option<usize>,
    /// Bodies of the commit that is under way.
    fresh: Vec<BodyNo>,
    recent: Recent,
}

impl Cooled {
    pub(crate) fn new(data: &Path) -> Cooled {
        let path = dir::ledger_file(data);
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        Cooled { file, map: None, fresh: Vec::new(), recent: Recent::default() }
    }

    /// A body of `len` bytes is about to be committed.
    pub(crate) fn writes(&mut self, number: BodyNo, len: usize) {
        if len >= FROM && self.file.is_some() {
            self.fresh.push(number);
        }
    }

    /// The commit came to nothing.
    pub(crate) fn failed(&mut self) {
        self.fresh.clear();
    }

    /// It is durable: lets go of what is not new any more.
    pub(crate) fn settle(&mut self, shared: &Shared) {
        let fresh = std::mem::take(&mut self.fresh);
        if fresh.is_empty() {
            return;
        }
        if let Ok(snapshot) = shared.ledger.snapshot() {
            for number in fresh {
                if let Ok(Some(place)) = self.place(&snapshot, number) {
                    self.recent.push(place);
                }
            }
        }
        while let Some(old) = self.recent.pop_over(KEPT) {
            self.let_go(&old);
        }
    }

    /// Where in the ledger's file the pages of a body are.
    fn place(
        &mut self,
        snapshot: &LmdbSnapshot<'_>,
        number: BodyNo,
    ) -> Result<Option<Range<u64>>, StoreFault> {
        let row = snapshot.get(Table::Bodies, &keys::body(number))?;
        let Some(row) = row.filter(|row| row.len() >= FROM) else { return Ok(None) };
        // Of the row nothing is read: touching its pages would have them mapped.
        let at = row.as_ptr() as usize;
        if self.map.is_none() {
            let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
            self.map = begin_of_map(&maps, at);
        }
        let Some(from) = self.map.and_then(|map| at.checked_sub(map)) else {
            // Linux does not tell: that is not asked again for every body.
            self.file = None;
            return Ok(None);
        };
        // A large row begins on a page of its own, behind that page's header.
        let (from, to) = (from / PAGE * PAGE, (from + row.len()).next_multiple_of(PAGE));
        Ok(Some(from as u64..to as u64))
    }

    /// Takes pages out of this process, if they were read in it, and then out of the page cache. Neither can fail in a
    /// way that matters: what stays is memory that the system takes when it needs it.
    fn let_go(&self, place: &Range<u64>) {
        let (Some(file), Some(map)) = (&self.file, self.map) else { return };
        let len = place.end - place.start;
        unmap(map + place.start as usize, len as usize);
        if let Some(len) = NonZero::new(len) {
            let _ = rustix::fs::fadvise(file, place.start, Some(len), Advice::DontNeed);
        }
    }
}

/// Has pages of the ledger's map read anew when they are touched next.
fn unmap(at: usize, len: usize) {
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the map is one of a file, shared and never written through: whoever touches these pages, at any time,
    // finds in them what is in the file, before and after.
    let _ = unsafe { rustix::mm::madvise(at, len, rustix::mm::Advice::LinuxDontNeed) };
}

/// Where the file that is mapped at `address` begins in memory, by what Linux tells of this process.
fn begin_of_map(maps: &str, address: usize) -> Option<usize> {
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let from = usize::from_str_radix(from, 16).ok()?;
        let to = usize::from_str_radix(to, 16).ok()?;
        let offset = usize::from_str_radix(words.nth(1)?, 16).ok()?;
        (from..to).contains(&address).then(|| from.checked_sub(offset))?
    })
}

/// Places in the order in which they were written.
#[derive(Debug, Default)]
struct Recent {
    places: VecDeque<Range<u64>>,
    bytes: u64,
}

impl Recent {
    fn push(&mut self, place: Range<u64>) {
        self.bytes += place.end - place.start;
        match self.places.back_mut() {
            // Bodies of one commit follow each other, as a rule.
            Some(last) if last.end == place.start && last.end - last.start < PIECE => {
                last.end = place.end;
            }
            _ => self.places.push_back(place),
        }
    }

    /// The oldest, while there is more than `kept`.
    fn pop_over(&mut self, kept: u64) -> Option<Range<u64>> {
        if self.bytes <= kept {
            return None;
        }
        let oldest = self.places.pop_front()?;
        self.bytes -= oldest.end - oldest.start;
        Some(oldest)
    }
}

#[cfg(test)]
mod tests;
