//! Segments: held back, let loose, let go.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::Doing;
use super::pick::{Unit, word};
use crate::act::{Action, Why};
use crate::code::Cause;
use crate::id::{Seq, SiteNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::read::Held;
use crate::ledger::rows::{DeliveryRow, SegmentRow, State};
use crate::node::Node;
use crate::node::deliver::due_key;
use crate::time::Now;

/// A segment and its deliveries as they are now.
type Current = (SegmentRow, BTreeMap<SiteNo, DeliveryRow>);

impl Node {
    pub(super) fn act_on_segments(&mut self, now: Now, doing: &mut Doing, units: Vec<Unit>) {
        for unit in units {
            let Unit::Segment(held) = unit else { continue };
            let seq = held.seq;
            let Some((segment, deliveries)) = self.may_change(doing, *held) else { continue };
            doing.report.add("", segment.size);
            if doing.act.action == Action::Release {
                self.let_go(now, seq, segment, deliveries);
            } else {
                let hold = doing.act.action == Action::Hold;
                self.hold_segment(seq, segment, deliveries, hold);
            }
        }
    }

    /// The segment as it is now, if the act changes it; otherwise why not is in the report.
    pub(super) fn may_change(&self, doing: &mut Doing, held: Held) -> Option<Current> {
        // Once it is removed, a row that was read before must not bring it back.
        if self.book.is_gone(held.seq) {
            return None;
        }
        // Once it is removed, a row that was read before must not bring it back.
        if self.book.is_gone(held.seq) {
            return None;
        }
        let (segment, deliveries) = self.current(&held);
        let named = !doing.act.of.ids.is_empty();
        let already = match doing.act.action {
            Action::Hold if segment.held => Some("held already"),
            Action::Unhold if !segment.held => Some("not held"),
            Action::Release if segment.let_go.is_some() => Some("released already"),
            Action::Hold
            | Action::Unhold
            | Action::Release
            | Action::Retry
            | Action::Purge
            | Action::HoldPeer
            | Action::ReleasePeer
            | Action::Flush
            | Action::Forget
            | Action::Rekey => None,
        };
        let left = match already {
            Some(text) => Some((Why::Already, text.to_string())),
            None if doing.act.action == Action::Release => {
                self.still_needed(doing.act.force, &deliveries)
            }
            None => None,
        };
        match left {
            None => Some((segment, deliveries)),
            Some((why, text)) => {
                // Whoever says "all" does not ask about those that are so already.
                if named || why != Why::Already {
                    doing.leave(&segment.id, "", why, text);
                }
                None
            }
        }
    }

    /// Why content is still needed here, if it is.
    fn still_needed(
        &self,
        force: bool,
        deliveries: &BTreeMap<SiteNo, DeliveryRow>,
    ) -> Option<(Why, alloc::string::String)> {
        for (site, row) in deliveries {
            let peer = self.name_of(*site);
            match row.state {
                State::Acked => {}
                State::Inflight => {
                    return Some((Why::InFlight, format!("it is being sent to {peer}")));
                }
                State::Scheduled | State::Failed | State::Deadletter if force => {}
                State::Scheduled | State::Failed | State::Deadletter => {
                    let word = word(row, self.now.wall);
                    return Some((Why::StillOwed, format!("{peer} does not have it ({word})")));
                }
            }
        }
        None
    }

    /// Waiting deliveries leave `due` and come back under their old key; what is under way is finished.
    fn hold_segment(
        &mut self,
        seq: Seq,
        mut segment: SegmentRow,
        deliveries: BTreeMap<SiteNo, DeliveryRow>,
        held: bool,
    ) {
        segment.held = held;
        self.put_segment(seq, segment.clone());
        for (site, mut row) in deliveries {
            let waits = matches!(row.state, State::Scheduled | State::Failed);
            if !waits || (row.held == Some(true)) == held {
                continue;
            }
            let key = due_key(site, seq, &row, &segment);
            let before = row.counted_held();
            row.held = held.then_some(true);
            self.stage.count_held(site, before, Some(&row), segment.size);
            self.stage.batch.put(Table::Deliveries, &keys::delivery(seq, site), &row);
            if held {
                self.stage.batch.del(Table::Due, &key.key());
                let window = self.peers.get_mut(&site).map(|p| p.window(key.class));
                if window.and_then(|w| w.remove(&key)).is_some() {
                    self.book.release(seq);
                }
            }
            self.becomes_due(site, seq, row, &segment);
        }
    }

    /// The content is not needed here any more. What is still owed to others is given up with it.
    fn let_go(
        &mut self,
        now: Now,
        seq: Seq,
        mut segment: SegmentRow,
        deliveries: BTreeMap<SiteNo, DeliveryRow>,
    ) {
        for (site, row) in deliveries {
            if row.state == State::Acked {
                continue;
            }
            if row.state != State::Deadletter {
                self.pass_back(site, seq, &segment, Cause::NotAddressed.number(), now.wall);
            }
            self.drop_delivery(site, seq, &row, &mut segment);
        }
        if segment.required == 0 && segment.relayed_at.is_none() {
            self.judge_rest(now, seq, &mut segment);
        }
        segment.let_go = Some(now.wall.0);
        self.put_segment(seq, segment);
        self.reconsider(now.wall, seq);
    }
}
