//! The content of a segment is gone or wrong: what is owed of it becomes dead letters.

use alloc::vec::Vec;

use super::Fix;
use crate::code::Cause;
use crate::id::{Seq, SiteNo};
use crate::ledger::read::{self, held};
use crate::ledger::rows::{
    Body, DeadletterRow, DeliveryRow, DigestRow, IdRow, Loss, SegmentRow, State,
};
use crate::ledger::{Table, keys};
use crate::segment::Class;
use crate::store::{Snapshot, StoreFault};
use crate::time::UnixMillis;

/// The `due` key of a waiting delivery.
pub(super) fn due(site: SiteNo, seq: Seq, row: &DeliveryRow, segment: &SegmentRow) -> keys::DueKey {
    let class: Class = segment.meta.class;
    let at = UnixMillis(row.next_attempt_after);
    keys::DueKey { peer: site, class, at, id8: keys::id8(&segment.id), seq }
}

/// What marks the content of a segment as wrong or gone: as the node does when it finds that out, and
/// with everything that is still owed of it made a dead letter. Nothing when the segment cannot be read
/// or bears that mark already.
///
/// # Errors
/// When the store cannot be read.
pub fn lose(
    snapshot: &dyn Snapshot,
    seq: Seq,
    cause: Cause,
    at: UnixMillis,
) -> Result<Vec<Fix>, StoreFault> {
    let Some(segment) = held(snapshot, seq)? else { return Ok(Vec::new()) };
    let loss = if cause == Cause::Missing { Loss::Gone } else { Loss::Doubted };
    let mut fixes = Vec::new();
    let row = &segment.row;
    if row.loss < Some(loss) {
        mark(snapshot, seq, row, loss, &mut fixes)?;
    }
    for (site, delivery) in &segment.deliveries {
        if matches!(delivery.state, State::Scheduled | State::Failed | State::Inflight) {
            give_up(seq, *site, delivery, row, cause, at, &mut fixes);
        }
    }
    Ok(fixes)
}

fn mark(
    snapshot: &dyn Snapshot,
    seq: Seq,
    row: &SegmentRow,
    loss: Loss,
    fixes: &mut Vec<Fix>,
) -> Result<(), StoreFault> {
    if let Body::Blob(blob) = row.body {
        // Only if it leads to this very content: by now it may lead to somebody else's.
        let digest: Option<DigestRow> = read::lenient(snapshot, Table::Digests, &row.digest.0)?;
        if digest.is_some_and(|d| d.blob == blob) {
            fixes.push(Fix::del(Table::Digests, &row.digest.0));
        }
    }
    if loss == Loss::Gone {
        let id: Option<IdRow> = read::lenient(snapshot, Table::Ids, &keys::id(&row.id))?;
        if id.is_some_and(|id| id.seq == seq) {
            fixes.push(Fix::del(Table::Ids, &keys::id(&row.id)));
        }
    }
    let row = SegmentRow { loss: Some(loss), ..row.clone() };
    fixes.push(Fix::put(Table::Segments, &keys::seq(seq), &row));
    Ok(())
}

fn give_up(
    seq: Seq,
    site: SiteNo,
    delivery: &DeliveryRow,
    segment: &SegmentRow,
    cause: Cause,
    at: UnixMillis,
    fixes: &mut Vec<Fix>,
) {
    let pair = keys::peer_seq(site, seq);
    match delivery.state {
        State::Scheduled | State::Failed => {
            fixes.push(Fix::del(Table::Due, &due(site, seq, delivery, segment).key()));
        }
        State::Inflight => {
            fixes.push(Fix::del(Table::Inflight, &pair));
            fixes.push(Fix::del(Table::Handed, &pair));
        }
        State::Acked | State::Deadletter => {}
    }
    fixes.push(Fix::del(Table::Owed, &pair));
    let (state, since, last_error) = (State::Deadletter, at.0, cause.number());
    let dead = DeliveryRow { state, since, last_error, custody: None, ..delivery.clone() };
    fixes.push(Fix::put(Table::Deliveries, &keys::delivery(seq, site), &dead));
    let row = DeadletterRow { cause: cause.number() };
    fixes.push(Fix::put(Table::Deadletters, &keys::deadletter(at, seq, site), &row));
}
