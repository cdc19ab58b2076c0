//! Rows that cannot be read are set aside one by one: their bytes go to `quarantine`, where an operator and
//! `fsck` find them. The row itself stays where it is: what other rows say of it is mended offline.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::mem;

use super::types::{Action, Note};
use super::{Asked, Mode, Node};
use crate::ledger::Table;
use crate::ledger::check::{decodes, quarantine};
use crate::ledger::read::{ReadRequest, Recovery};
use crate::ledger::read_scrub::RawRow;
use crate::time::Now;

/// Most rows that wait at a time: any more are found again.
const MOST: usize = 1024;
/// Rows read at a time.
const AT_ONCE: usize = 32;

/// A row by its place.
pub(super) type Place = (Table, Vec<u8>);

/// Rows that are to be set aside.
#[derive(Clone, Debug, Default)]
pub(super) struct Aside {
    waiting: BTreeSet<Place>,
    reading: bool,
    /// Rows in quarantine.
    count: u64,
}

impl Aside {
    pub fn load(&mut self, recovery: &Recovery) {
        self.count = recovery.quarantined;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The read under way is void.
    pub fn again(&mut self, places: Vec<Place>) {
        self.reading = false;
        self.waiting.extend(places);
    }
}

impl Node {
    /// One of these rows cannot be read: whoever found that out does not know which. `what` is told.
    pub(super) fn unreadable(&mut self, places: [Place; 2], what: String) {
        self.stage.note(Note::Quarantined { what });
        self.puts_aside(places);
    }

    pub(super) fn puts_aside(&mut self, places: impl IntoIterator<Item = Place>) {
        for place in places {
            if self.aside.waiting.len() < MOST {
                self.aside.waiting.insert(place);
            }
        }
    }

    /// Asks for their bytes.
    pub(super) fn read_aside(&mut self, out: &mut Vec<Action>) {
        let idle = !self.aside.reading && matches!(self.mode, Mode::Normal) && !self.stopping;
        if !idle || self.aside.waiting.is_empty() {
            return;
        }
        let mut places: Vec<Place> = mem::take(&mut self.aside.waiting).into_iter().collect();
        let rest = places.split_off(places.len().min(AT_ONCE));
        self.aside.waiting.extend(rest);
        self.aside.reading = true;
        let request = ReadRequest::Raw(places.clone());
        self.ask(Asked::Aside(places), request, out);
    }

    pub(super) fn aside_read(&mut self, now: Now, places: Vec<Place>, rows: Vec<Option<RawRow>>) {
        self.aside.reading = false;
        if !self.stage.room(2 * AT_ONCE) {
            self.more = true;
            return self.aside.again(places);
        }
        for ((table, key), row) in places.into_iter().zip(rows) {
            let Some(RawRow(value)) = row else { continue };
            let Err((_, why)) = decodes(table, &key, &value) else { continue };
            // What mends offline removes the row as well; here it stays.
            let put = quarantine(table, &key, &value, now.wall.0, &why.to_string());
            if let Some(fix) = put.first() {
                fix.stage(&mut self.stage.batch);
                self.aside.count += 1;
            }
        }
    }
}
