//! What a bad disk does to durable bytes. Each thing done is told as [`Fact::Damaged`].

use bytes::Bytes;
use consign_core::id::{BatchNo, BlobNo};
use consign_core::store::{Snapshot, StoreFault};

use super::disk::PAGE;
use super::{Fact, SimStore};
use crate::sim::seen::Damage;

impl SimStore {
    fn damaged(&mut self, what: Damage) {
        self.facts.push(Fact::Damaged(what));
    }

    fn any_file(&mut self) -> Option<BlobNo> {
        let nth = self.rng.below(self.disk.count() as u64) as usize;
        self.disk.nth(nth)
    }

    /// Flips a bit of some file.
    pub(super) fn rot_file(&mut self) {
        if self.rng.chance(self.faults.flip_file) {
            self.rot_some_file();
        }
    }

    /// The same without asking how likely that is.
    pub fn rot_some_file(&mut self) {
        let Some(blob) = self.any_file() else { return };
        let (at, bit) = (self.rng.next(), self.rng.below(8));
        let Some(file) = self.disk.file_mut(blob).filter(|file| !file.data.is_empty()) else {
            return;
        };
        let at = at as usize % file.data.len();
        file.data[at] ^= 1 << bit;
        self.damaged(Damage::File(blob));
    }

    /// Flips a bit of the value of some row.
    pub(super) fn rot_row(&mut self) {
        if !self.rng.chance(self.faults.flip_row) || self.config.rot.is_empty() {
            return;
        }
        let table = *self.rng.pick(&self.config.rot);
        let nth = self.rng.below(self.mem.rows(table) as u64) as usize;
        let Some(key) = self.mem.nth_key(table, nth).map(<[u8]>::to_vec) else { return };
        let len = self.mem.ledger().get(table, &key).ok().flatten().map_or(0, <[u8]>::len);
        let at = self.rng.below(len as u64) as usize;
        if self.mem.flip(table, &key, at) {
            self.damaged(Damage::Row(table, key));
        }
    }

    /// A page that is about to be synced does not land, or lands in another file.
    pub(super) fn damage_pages(&mut self, blob: BlobNo) {
        let lost = self.rng.chance(self.faults.lost_write);
        let astray = self.rng.chance(self.faults.misdirected_write);
        if !lost && !astray {
            return;
        }
        let at = self.rng.next();
        let Some(file) = self.disk.file_mut(blob) else { return };
        let dirty = file.same.min(file.data.len())..file.data.len();
        if dirty.is_empty() {
            return;
        }
        // Only what is not yet durable is on its way, page by page.
        let at = dirty.start + at as usize % dirty.len();
        let page = (at / PAGE * PAGE).max(dirty.start)..((at / PAGE + 1) * PAGE).min(dirty.end);
        let meant = file.data[page.clone()].to_vec();
        file.data[page].fill(0);
        self.damaged(Damage::File(blob));
        if astray {
            self.land_elsewhere(&meant);
        }
    }

    fn land_elsewhere(&mut self, page: &[u8]) {
        let Some(victim) = self.any_file() else { return };
        let at = self.rng.next();
        let Some(file) = self.disk.file_mut(victim) else { return };
        let pages = file.data.len().div_ceil(PAGE);
        if pages == 0 {
            return;
        }
        let from = at as usize % pages * PAGE;
        let to = (from + page.len()).min(file.data.len());
        file.data[from..to].copy_from_slice(&page[..to - from]);
        self.damaged(Damage::File(victim));
    }

    /// Reads where it was not asked to: as many bytes of another file, or of another place.
    pub(super) fn read_elsewhere(
        &mut self,
        blob: BlobNo,
        offset: u64,
        len: usize,
    ) -> Result<Bytes, StoreFault> {
        let right = self.disk.read(blob, offset, len)?;
        let other = self.any_file().unwrap_or(blob);
        let pages = self.disk.data(other).map_or(0, <[u8]>::len).div_ceil(PAGE) as u64;
        let from = self.rng.below(pages) * PAGE as u64;
        let mut wrong = self.disk.read(other, from, right.len())?.to_vec();
        wrong.resize(right.len(), 0);
        Ok(wrong.into())
    }

    /// What a start finds that the last process did not leave.
    pub(super) fn damage_at_start(&mut self) {
        if self.rng.chance(self.faults.restart_rollback)
            && let Some(copy) = self.copy.take().filter(|copy| copy.as_of() < self.committed())
            && copy.as_of() > BatchNo(0)
        {
            self.mem.put_back(copy);
            self.damaged(Damage::Rollback);
        }
        self.copy = None;
        if self.rng.chance(self.faults.restart_lost)
            && let Some(blob) = self.any_file()
        {
            self.disk.unlink(blob);
            self.damaged(Damage::File(blob));
            self.sync_folder(super::disk::folder_of(blob));
        }
        if self.rng.chance(self.faults.restart_swapped)
            && let (Some(one), Some(other)) = (self.any_file(), self.any_file())
            && one != other
        {
            self.disk.swap(one, other);
            self.damaged(Damage::File(one));
            self.damaged(Damage::File(other));
        }
    }
}
