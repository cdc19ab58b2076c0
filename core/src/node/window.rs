//! A bounded window of due deliveries of one (peer, class), paged from the ledger in order.
//!
//! Everything up to `through` is in the window; what lies behind it is in the ledger only. A new row
//! at or before `through` enters at once; overflow drops the tail and lowers `through`; the answer of
//! a scan that does not start at the present `through` is discarded (W1).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::id::{BatchNo, ReadNo, Seq};
use crate::ledger::keys::DueKey;
use crate::ledger::rows::DeliveryRow;

/// How far a window knows the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Through {
    /// Not at all.
    #[default]
    Nothing,
    /// Every row up to and including this key.
    Key(DueKey),
    /// Every row.
    End,
}

impl Through {
    /// The key behind which a scan goes on; `None` is the beginning.
    pub fn key(self) -> Option<DueKey> {
        match self {
            Through::Nothing | Through::End => None,
            Through::Key(key) => Some(key),
        }
    }

    fn covers(self, key: &DueKey) -> bool {
        match self {
            Through::Nothing => false,
            Through::Key(through) => *key <= through,
            Through::End => true,
        }
    }
}

/// What the answer of a scan is to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanEnd {
    /// It starts where the window ends.
    Fits,
    /// The window's end has moved since it was asked (W1).
    Moved,
    /// The window did not ask for it, or not any more (W2).
    Foreign,
}

#[derive(Clone, Debug)]
pub(super) struct Window {
    limit: usize,
    entries: BTreeMap<DueKey, DeliveryRow>,
    through: Through,
    scan: Option<(ReadNo, Through)>,
    /// It asks for nothing before this batch is durable.
    closed_until: BatchNo,
}

impl Window {
    pub fn new(limit: usize) -> Window {
        let (entries, through) = (BTreeMap::new(), Through::Nothing);
        Window { limit, entries, through, scan: None, closed_until: BatchNo(0) }
    }

    /// The first entry.
    pub fn first(&self) -> Option<(&DueKey, &DeliveryRow)> {
        self.entries.first_key_value()
    }

    pub fn pop(&mut self) -> Option<(DueKey, DeliveryRow)> {
        self.entries.pop_first()
    }

    pub fn get(&self, key: &DueKey) -> Option<&DeliveryRow> {
        self.entries.get(key)
    }

    pub fn remove(&mut self, key: &DueKey) -> Option<DeliveryRow> {
        self.entries.remove(key)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn through(&self) -> Through {
        self.through
    }

    /// A row became due under `key`. Returns whether it is in the window now, and the segment that was
    /// dropped from the tail for it, if one was.
    pub fn insert(&mut self, key: DueKey, row: DeliveryRow) -> (bool, Option<Seq>) {
        if !self.through.covers(&key) {
            return (false, None);
        }
        self.entries.insert(key, row);
        let dropped = self.shrink();
        (dropped != Some(key), dropped.filter(|d| *d != key).map(|d| d.seq))
    }

    /// Drops the tail if there is one entry too many.
    fn shrink(&mut self) -> Option<DueKey> {
        if self.entries.len() <= self.limit {
            return None;
        }
        let (dropped, _) = self.entries.pop_last()?;
        self.through =
            self.entries.last_key_value().map_or(Through::Nothing, |(k, _)| Through::Key(*k));
        Some(dropped)
    }

    /// How many rows to ask for, behind which key, if the window runs low and none are asked for yet.
    pub fn wants_scan(&self, committed: BatchNo) -> Option<(Through, usize)> {
        let low = self.entries.len() <= self.limit / 4 && self.closed_until <= committed;
        (low && self.scan.is_none() && self.through != Through::End)
            .then_some((self.through, self.limit - self.entries.len()))
    }

    /// Forgets everything, and stays empty until `batch` is durable: so many rows become due in it that
    /// reading them is cheaper than placing them. Says whose segments its entries held.
    pub fn close_until(&mut self, batch: BatchNo) -> Vec<Seq> {
        let held = self.entries.keys().map(|key| key.seq).collect();
        self.clear();
        self.closed_until = batch;
        held
    }

    pub fn scan_opened(&mut self, read: ReadNo) {
        self.scan = Some((read, self.through));
    }

    /// The answer of `read` has come; only one that fits may be used.
    pub fn scan_closed(&mut self, read: ReadNo) -> ScanEnd {
        match self.scan.take_if(|(open, _)| *open == read) {
            Some((_, start)) if start == self.through => ScanEnd::Fits,
            Some(_) => ScanEnd::Moved,
            None => ScanEnd::Foreign,
        }
    }

    /// Moves `through` forward to what a scan has covered; entries come by [`Window::insert`].
    pub fn extend(&mut self, through: Through) {
        self.through = through;
    }

    /// Forgets its entries and how far it knew the ledger, but not that it has asked.
    pub fn forget_entries(&mut self) {
        self.through = Through::Nothing;
        self.entries.clear();
    }

    /// Its entries in order.
    pub fn entries(&self) -> impl Iterator<Item = (&DueKey, &DeliveryRow)> {
        self.entries.iter()
    }

    /// Forgets everything, open scans included (W2).
    pub fn clear(&mut self) {
        self.forget_entries();
        self.scan = None;
        self.closed_until = BatchNo(0);
    }
}
