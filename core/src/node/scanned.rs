//! Answers to scans of due deliveries, with everything newer than them applied on top (W1-W3).

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::deliver::due_key;
use super::types::Action;
use super::window::{ScanEnd, Through};
use super::{Asked, Mode, Node};
use crate::id::{BatchNo, ReadNo, Seq, SiteNo};
use crate::ledger::Table;
use crate::ledger::keys::{self, DueKey};
use crate::ledger::read::{DueRow, ReadRequest};
use crate::ledger::rows::State;
use crate::plant::Plant;
use crate::segment::Class;

/// One page of due rows.
pub(super) struct Page {
    pub as_of: BatchNo,
    pub rows: Vec<DueRow>,
    /// Keys whose rows cannot be read.
    pub bad: Vec<DueKey>,
    /// Whether nothing lies behind it.
    pub end: bool,
}

impl Node {
    /// Asks for more due rows where a window runs low.
    pub(super) fn scan(&mut self, out: &mut Vec<Action>) {
        if matches!(self.mode, Mode::Rejudge(_)) {
            return;
        }
        let committed = self.gate.committed();
        let mut wanted = Vec::new();
        for peer in self.peers.values() {
            for class in Class::ALL {
                let window = peer.windows.get(class as usize);
                if let Some((through, limit)) = window.and_then(|w| w.wants_scan(committed)) {
                    wanted.push((peer.site, class, through, limit));
                }
            }
        }
        for (site, class, through, limit) in wanted {
            let request = ReadRequest::Due { peer: site, class, after: through.key(), limit };
            let read = self.ask(Asked::Due(site, class), request, out);
            if let Some(peer) = self.peers.get_mut(&site) {
                peer.window(class).scan_opened(read);
            }
        }
    }

    pub(super) fn scanned(&mut self, read: ReadNo, site: SiteNo, class: Class, page: Page) {
        let Page { as_of, rows, bad, end } = page;
        let Some(peer) = self.peers.get_mut(&site) else { return };
        let window = peer.window(class);
        match window.scan_closed(read) {
            ScanEnd::Fits => {}
            ScanEnd::Moved if self.config.planted(Plant::W1) => {}
            ScanEnd::Moved | ScanEnd::Foreign => return,
        }
        let as_of = match self.config.planted(Plant::W3) {
            true => as_of.max(self.book.kept_for(read)),
            false => as_of,
        };
        let start = window.through();
        let last = rows.iter().map(|r| r.key).chain(bad.iter().copied()).max();
        let through = match (end, last) {
            (true, _) => Through::End,
            (false, Some(key)) => Through::Key(key),
            (false, None) => start,
        };
        window.extend(through);
        self.add_changes(site, class, as_of, start, through);
        for row in rows {
            // A newer state of this delivery has been dealt with above.
            if self.book.delivery(site, row.key.seq, as_of).is_some() {
                continue;
            }
            self.enter_window(row.key, row.delivery, || Arc::new(row.segment));
        }
        for key in bad {
            self.set_aside(key);
        }
    }

    /// Rows that became due after the reading, between where the scan began and how far it came.
    pub(super) fn add_changes(
        &mut self,
        site: SiteNo,
        class: Class,
        as_of: BatchNo,
        start: Through,
        through: Through,
    ) {
        let mut due = Vec::new();
        for (seq, row) in self.book.changes(site, as_of) {
            let Some(row) = row.filter(|r| matches!(r.state, State::Scheduled | State::Failed))
            else {
                continue;
            };
            let Some(segment) = self.book.shared(seq).filter(|s| s.meta.class == class) else {
                continue;
            };
            let key = due_key(site, seq, row, &segment);
            let behind_start = start.key().is_none_or(|s| key > s);
            let within = match through {
                Through::Nothing => false,
                Through::Key(last) => key <= last,
                Through::End => true,
            };
            if behind_start && within && row.held != Some(true) {
                due.push((key, row.clone(), segment));
            }
        }
        for (key, row, segment) in due {
            self.enter_window(key, row, || segment);
        }
    }

    /// A due key whose rows cannot be read: that one item is set aside, all others go on.
    pub(super) fn set_aside(&mut self, key: DueKey) {
        self.stage.batch.del(Table::Due, &key.key());
        self.delivery_unreadable(key.peer, key.seq);
    }

    /// The rows of a delivery, or those of its segment, cannot be read.
    pub(super) fn delivery_unreadable(&mut self, site: SiteNo, seq: Seq) {
        let what = format!("delivery of segment number {seq} to site number {site}");
        let delivery = (Table::Deliveries, keys::delivery(seq, site).to_vec());
        self.unreadable([delivery, (Table::Segments, keys::seq(seq).to_vec())], what);
    }
}
