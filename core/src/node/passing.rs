//! Which receipts a peer was told, and how far the ledger was paged for it.

use alloc::collections::BTreeMap;

use crate::id::{SegmentId, Seq, SiteNo};
use crate::ledger::rows_upkeep::ReceiptRow;

/// A receipt that a peer was told and has not answered.
#[derive(Clone, Debug)]
struct Open {
    seq: Seq,
    /// How often it was told: only the last answer speaks of what it says now.
    told: u32,
    /// Its row with everything staged.
    row: ReceiptRow,
}

/// Receipts on their way to one peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Passing {
    open: BTreeMap<(SegmentId, SiteNo), Open>,
    /// How far the ledger was paged.
    after: Option<(Seq, SiteNo)>,
    /// Whether there may be more behind that.
    more: bool,
    reading: bool,
    /// Whether something was left out in front of where the page under way will end.
    rewind: bool,
}

impl Passing {
    /// Everything is read again from the beginning; what is open stays open.
    pub fn start_over(&mut self) {
        (self.after, self.more, self.reading, self.rewind) = (None, true, false, false);
    }

    /// This one is not told now: a later page has it.
    pub fn left_out(&mut self, seq: Seq, site: SiteNo) {
        self.more = true;
        if self.reading {
            self.rewind = true;
        } else if self.after >= Some((seq, site)) {
            self.after = None;
        }
    }

    pub fn page_read(&mut self, last: Option<(Seq, SiteNo)>, end: bool) {
        self.reading = false;
        if core::mem::take(&mut self.rewind) {
            self.after = None;
        } else {
            self.after = last.or(self.after);
            self.more = !end;
        }
    }

    /// Where to read on, and how many, once there is room and there may be more.
    pub fn wants_page(&mut self, most: usize) -> Option<(Option<(Seq, SiteNo)>, usize)> {
        if !self.more || self.reading || self.open.len() > most / 2 {
            return None;
        }
        self.reading = true;
        Some((self.after, most - self.open.len()))
    }

    /// Whether a receipt may be told now; if so, it is.
    pub fn tell(&mut self, seq: Seq, site: SiteNo, row: &ReceiptRow, most: usize) -> bool {
        let key = (row.id, site);
        if self.open.len() >= most && !self.open.contains_key(&key) {
            self.left_out(seq, site);
            return false;
        }
        let open = self.open.entry(key).or_insert_with(|| Open { seq, told: 0, row: row.clone() });
        open.told = open.told.saturating_add(1);
        true
    }

    pub fn is_open(&self, id: SegmentId, site: SiteNo) -> bool {
        self.open.contains_key(&(id, site))
    }

    /// A receipt's row as it stands now.
    pub fn row_is(&mut self, site: SiteNo, row: &ReceiptRow) {
        if let Some(open) = self.open.get_mut(&(row.id, site)) {
            open.row = row.clone();
        }
    }

    /// An answer has come; the receipt, if it speaks of what was said last.
    pub fn answered(&mut self, id: SegmentId, site: SiteNo) -> Option<(Seq, ReceiptRow)> {
        let open = self.open.get_mut(&(id, site))?;
        open.told = open.told.saturating_sub(1);
        if open.told > 0 {
            return None;
        }
        self.open.remove(&(id, site)).map(|open| (open.seq, open.row))
    }
}

#[cfg(test)]
mod tests;
