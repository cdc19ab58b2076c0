//! Dead letters: queued again, or struck from what their segments require.

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::Doing;
use super::pick::{Lean, Unit};
use crate::act::{Action, Why};
use crate::code::Cause;
use crate::delivery::{Event, next};
use crate::id::SiteNo;
use crate::ledger::Table;
use crate::ledger::keys::{self, DueKey};
use crate::ledger::read_acts::Row;
use crate::ledger::rows::{DeliveryRow, State};
use crate::node::Node;
use crate::node::tally::{Operation, Tally};
use crate::node::types::Note;
use crate::segment::Class;
use crate::time::{Now, UnixMillis};

impl Node {
    /// Deadletter → Scheduled with a fresh allowance. Windows that get new rows forget what they know and
    /// read again behind this batch: placing thousands of rows would cost more.
    pub(super) fn retry(&mut self, now: Now, doing: &mut Doing, units: Vec<Unit>) {
        let mut windows = BTreeSet::new();
        for unit in units {
            let Unit::Lean(lean) = unit else { continue };
            let Some(lean) = self.may_retry(now, doing, lean) else { continue };
            let peer = self.name_of(lean.site);
            doing.report.add(&peer, lean.size);
            windows.insert((lean.site, lean.class));
            self.queue_again(now, lean);
        }
        for (site, class) in windows {
            self.close_window(site, class);
        }
    }

    fn close_window(&mut self, site: SiteNo, class: Class) {
        let batch = self.stage.number();
        let Some(peer) = self.peers.get_mut(&site) else { return };
        for seq in peer.window(class).close_until(batch) {
            self.book.release(seq);
        }
    }

    /// The delivery as it is now, if it may be queued again; otherwise why not is in the report.
    pub(super) fn may_retry(&self, now: Now, doing: &mut Doing, mut lean: Lean) -> Option<Lean> {
        match self.newest(lean.site, lean.seq) {
            Some(None) => return None,
            Some(Some(newer)) => lean.row = newer.clone(),
            None => {}
        }
        if let Some(segment) = self.book.segment(lean.seq) {
            lean = Lean::new(lean.seq, lean.site, lean.row, segment);
        }
        if !is_meant(doing, lean.site, &lean.row) {
            return None;
        }
        let (why, text) = match lean.expires {
            _ if lean.lost => (Why::ContentGone, "the content is gone from this site"),
            Some(at) if at <= now.wall => (Why::Expired, "the segment has expired"),
            Some(_) | None => return Some(lean),
        };
        let peer = self.name_of(lean.site);
        doing.leave(&lean.id, &peer, why, text.to_string());
        None
    }

    fn queue_again(&mut self, now: Now, lean: Lean) {
        let Lean { seq, site, mut row, id, size, class, held, .. } = lean;
        let Ok(Some(state)) = next(row.state, Event::Retry) else { return };
        let batch = self.stage.number();
        let dead = keys::deadletter(UnixMillis(row.since), seq, site);
        self.stage.batch.del(Table::Deadletters, &dead);
        row.state = state;
        row.since = now.wall.0;
        row.next_attempt_after = now.wall.0;
        // A fresh allowance: nothing of what went before counts, except that it was tried.
        (row.spent, row.refused, row.last_error) = (0, 0, 0);
        row.custody = None;
        row.held = held.then_some(true);
        self.stage.batch.put(Table::Deliveries, &keys::delivery(seq, site), &row);
        self.stage.batch.put_key(Table::Owed, &keys::peer_seq(site, seq));
        if !held {
            let at = now.wall;
            let key = DueKey { peer: site, class, at, id8: keys::id8(&id), seq };
            self.stage.batch.put_key(Table::Due, &key.key());
        }
        self.stage.count(site, Some(State::Deadletter), Some(state), size);
        self.stage.count_held(site, None, Some(&row), size);
        self.stage.tally(Tally::Deadletter(Operation::Retry));
        self.stage.note(Note::Delivery {
            id,
            peer: self.name_of(site).into(),
            from: Some(State::Deadletter),
            to: Some(state),
            cause: None,
            attempts: row.attempts,
            bytes: size,
            took: None,
        });
        self.book.set_delivery_alone(batch, site, seq, Some(row));
    }

    /// Deliveries leave their segments' required sets: purged, or owed to a peer that is forgotten.
    /// Whether what is left is enough is judged again; an emptied set never is.
    pub(super) fn strike(&mut self, now: Now, doing: &mut Doing, units: Vec<Unit>) {
        for unit in units {
            let Unit::Row(row) = unit else { continue };
            let Some(delivery) = self.may_strike(doing, &row) else { continue };
            let peer = self.name_of(row.site);
            let Row { seq, site, segment, .. } = *row;
            let mut segment = self.book.segment(seq).cloned().unwrap_or(segment);
            doing.report.add(&peer, segment.size);
            if delivery.state != State::Deadletter {
                // Whoever handed it on to this site waits for word of it.
                self.pass_back(site, seq, &segment, Cause::NotAddressed.number(), now.wall);
            } else {
                self.stage.tally(Tally::Deadletter(Operation::Purge));
            }
            self.drop_delivery(site, seq, &delivery, &mut segment);
            self.judge_rest(now, seq, &mut segment);
            self.put_segment(seq, segment);
            self.reconsider(now.wall, seq);
        }
    }

    /// The delivery as it is now, if it may be struck; otherwise why not is in the report.
    pub(super) fn may_strike(&self, doing: &mut Doing, row: &Row) -> Option<DeliveryRow> {
        let delivery = match self.newest(row.site, row.seq) {
            Some(newer) => newer?.clone(),
            None => row.delivery.clone(),
        };
        if doing.act.action == Action::Purge {
            return is_meant(doing, row.site, &delivery).then_some(delivery);
        }
        let flies = self.peers.get(&row.site).is_some_and(|p| p.flights.contains_key(&row.seq));
        if flies {
            let (peer, text) = (self.name_of(row.site), "an attempt is under way".to_string());
            doing.leave(&row.segment.id, &peer, Why::InFlight, text);
        }
        (!flies && delivery.state != State::Acked).then_some(delivery)
    }
}

/// Whether a delivery is (still) a dead letter of the selection.
fn is_meant(doing: &Doing, site: SiteNo, row: &DeliveryRow) -> bool {
    let at = UnixMillis(row.since);
    row.state == State::Deadletter && doing.only.has(at, site, row.last_error)
}
