//! What leaves the ledger before its time, and the record of who did it and why.

use alloc::boxed::Box;
use alloc::string::{String, ToString};

use super::Node;
use super::deliver::due_key;
use super::stage::Intent;
use crate::code::Cause;
use crate::id::{Seq, SiteNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::keys_upkeep::ExpiryKind;
use crate::ledger::rows::{DeliveryRow, SegmentRow, State};
use crate::ledger::rows_upkeep::AuditRow;
use crate::time::{Now, UnixMillis};

/// What is written into `audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Act {
    /// `uid:1000`, a peer's name, or empty for the node itself.
    pub who: String,
    /// A stable word.
    pub action: &'static str,
    /// An id, a name or a selection.
    pub subject: String,
    /// A stable code, or the reason an operator gave.
    pub reason: &'static str,
    /// What an operator gave as the reason; wins over `reason` when there is one.
    pub text: String,
    /// Rows it touched.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Act {
    /// An act of the node itself on one segment.
    pub fn on(segment: &SegmentRow) -> Act {
        Act { subject: segment.id.to_string(), count: 1, bytes: segment.size, ..Act::default() }
    }
}

impl Node {
    /// Records an act in the staged batch.
    pub(super) fn audit(&mut self, now: Now, act: Act) {
        let number = self.stage.next_audit();
        let row = AuditRow {
            at: now.wall.0,
            who: act.who,
            action: act.action.to_string(),
            subject: act.subject,
            reason: if act.text.is_empty() { act.reason.to_string() } else { act.text },
            count: act.count,
            bytes: act.bytes,
        };
        self.stage.batch.put(Table::Audit, &keys::audit(number), &row);
    }

    /// Records what has happened and cannot be taken back: the record outlives a commit that finds no space.
    pub(super) fn record(&mut self, now: Now, act: Act) {
        self.stage.intend(Intent::Record(Box::new(act.clone())));
        self.audit(now, act);
    }

    /// A delivery leaves the required set of its segment: its row and every index entry go. The
    /// caller writes the segment's row ([`Node::put_segment`]) and judges success where that applies.
    pub(super) fn drop_delivery(
        &mut self,
        site: SiteNo,
        seq: Seq,
        row: &DeliveryRow,
        segment: &mut SegmentRow,
    ) {
        let batch = self.stage.number();
        self.stage.batch.del(Table::Deliveries, &keys::delivery(seq, site));
        match row.state {
            State::Scheduled | State::Failed => {
                let key = due_key(site, seq, row, segment);
                self.stage.batch.del(Table::Due, &key.key());
                self.stage.batch.del(Table::Owed, &keys::peer_seq(site, seq));
                let window = self.peers.get_mut(&site).map(|p| p.window(key.class));
                if window.and_then(|w| w.remove(&key)).is_some() {
                    self.book.release(seq);
                }
            }
            State::Inflight => {
                self.stage.batch.del(Table::Inflight, &keys::peer_seq(site, seq));
                self.stage.batch.del(Table::Handed, &keys::peer_seq(site, seq));
                self.stage.batch.del(Table::Owed, &keys::peer_seq(site, seq));
            }
            State::Deadletter => {
                let key = keys::deadletter(UnixMillis(row.since), seq, site);
                self.stage.batch.del(Table::Deadletters, &key);
            }
            State::Acked => segment.acked = segment.acked.saturating_sub(1),
        }
        if !matches!(row.state, State::Acked | State::Deadletter) {
            // Whoever handed it on must not wait for ever for a receipt that nobody will write.
            self.pass_back(site, seq, segment, Cause::NotAddressed.number(), self.now.wall);
        }
        segment.required = segment.required.saturating_sub(1);
        self.stage.count(site, Some(row.state), None, segment.size);
        self.stage.count_held(site, row.counted_held(), None, segment.size);
        self.note_delivery(site, segment, Some(row.state), None, None);
        self.book.set_delivery(batch, site, seq, None, segment);
    }

    /// Somebody has left the required set: the rest may be enough.
    pub(super) fn judge_rest(&mut self, now: Now, seq: Seq, segment: &mut SegmentRow) {
        if segment.required > 0 {
            self.judge_success(now, seq, segment);
        } else if segment.unplaced.is_none() {
            // Nobody is left to have it: it is kept and shown until somebody decides.
            segment.unplaced = Some(true);
            self.stage.meta.unplaced += 1;
        }
    }

    /// Writes a segment's row as it stands now.
    pub(super) fn put_segment(&mut self, seq: Seq, segment: SegmentRow) {
        self.stage.batch.put(Table::Segments, &keys::seq(seq), &segment);
        self.book.set_segment(self.stage.number(), seq, segment);
    }

    /// Something changed that may let a segment go: it is judged then, on fresh rows.
    pub(super) fn reconsider(&mut self, at: UnixMillis, seq: Seq) {
        self.expire_at(at, ExpiryKind::Keep, &keys::seq(seq));
    }
}
