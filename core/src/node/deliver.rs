//! Deliveries: claims in fair turns, and what becomes of each attempt.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::peer::Flight;
use super::remove::Act;
use super::stage::{Intent, Verdict};
use super::types::Note;
use super::{Mode, Node};
use crate::code::Cause;
use crate::config::SuccessCondition;
use crate::delivery::{Event, next};
use crate::id::{ConnId, Epoch, Seq, SiteNo, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys::{self, DueKey};
use crate::ledger::rows::{DeadletterRow, DeliveryRow, InflightRow, Loss, SegmentRow, State};
use crate::limits::{ASKERS_MAX, CLAIMS_PER_TURN};
use crate::plant::Plant;
use crate::segment::Destinations;
use crate::session::{Promise, Sending};
use crate::time::{Now, UnixMillis};
use crate::wire::Offer;

/// Claims of one peer before the next has its turn.
const QUANTUM: usize = 16;
/// Rows that one claim or settlement stages at most.
pub(super) const STEP_ROWS: usize = 12 + ASKERS_MAX;

/// An attempt whose end is known but not yet staged.
#[derive(Clone, Debug)]
pub(super) struct Settlement {
    pub peer: SiteNo,
    pub seq: Seq,
    pub epoch: Epoch,
    pub verdict: Verdict,
}

impl Node {
    /// Claims due deliveries: peers in turn, classes 8 : 4 : 2 : 1 within a peer.
    pub(super) fn claim(&mut self, now: Now) {
        if self.stopping || matches!(self.mode, Mode::Rejudge(_)) {
            return;
        }
        // Claims are relief: they go on while space is short (G4).
        if matches!(self.mode, Mode::Tight(_)) && self.config.planted(Plant::G4) {
            return;
        }
        let mut budget = CLAIMS_PER_TURN;
        let sites: Vec<SiteNo> = self.peers.keys().copied().collect();
        self.count_ahead();
        loop {
            let mut progress = false;
            for site in &sites {
                for _ in 0..QUANTUM.min(budget) {
                    if !self.claim_one(now, *site) {
                        break;
                    }
                    progress = true;
                    budget -= 1;
                }
            }
            if !progress || budget == 0 {
                self.more |= budget == 0;
                return;
            }
        }
    }

    fn claim_one(&mut self, now: Now, site: SiteNo) -> bool {
        if !self.stage.room(STEP_ROWS) {
            return false;
        }
        let Some(conn) = self.claimant(now, site) else { return false };
        let by_arrival = self.config.planted(Plant::OrderByArrival);
        let session = self.conns.get(&conn).and_then(|c| c.peer.as_ref());
        let Some(ahead) = session.map(|s| s.ahead) else { return false };
        let Some(peer) = self.peers.get_mut(&site) else { return false };
        let size_of = |seq| self.book.segment(seq).map_or(0, |s| s.size);
        let next = match by_arrival {
            true => peer.pop_oldest(now.wall),
            false => peer.pop_due(now.wall, |class, seq| ahead.has_room(class, size_of(seq))),
        };
        let Some((class, key, row)) = next else { return false };
        let Some(segment) = self.book.shared(key.seq) else { return false };
        peer.shares.charge(class, segment.size);
        if segment.loss == Some(Loss::Gone) {
            // What is known to be wrong is not sent.
            self.stage.batch.del(Table::Due, &key.key());
            self.give_up(now, site, key.seq, row, &segment, Cause::Corrupt);
            self.book.release(key.seq);
            return true;
        }
        if self.is_over(now, &segment) {
            self.stage.batch.del(Table::Due, &key.key());
            self.give_up(now, site, key.seq, row, &segment, Cause::Expired);
            self.book.release(key.seq);
            return true;
        }
        let mut claims = self.siblings(&key, &row, &segment);
        claims.insert(0, (key, row));
        self.claimed(now, conn, claims, &segment);
        true
    }

    fn claimed(
        &mut self,
        now: Now,
        conn: ConnId,
        claims: Vec<(DueKey, DeliveryRow)>,
        segment: &SegmentRow,
    ) {
        let Some(seq) = claims.first().map(|(key, _)| key.seq) else { return };
        let sites: Vec<SiteNo> = claims.iter().map(|(key, _)| key.peer).collect();
        let Some(session) = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut()) else { return };
        let epoch = session.epoch;
        let transfer = TransferNo(session.next_transfer);
        session.next_transfer = session.next_transfer.saturating_add(1);
        session.transfers.insert(transfer, (seq, sites.clone()));
        session.ahead.add(segment.meta.class, segment.size);
        let offer = self.offer(&sites, seq, transfer, segment);
        let number = offer.origin_seq;
        let batch = self.stage.number();
        for (key, row) in claims {
            let row = self.claim_row(now, &key, row, epoch, segment);
            let flight = Flight { row, conn, transfer, epoch, batch, sent: 0, number };
            if let Some(peer) = self.peers.get_mut(&key.peer) {
                peer.flights.insert(seq, flight);
            }
        }
        let sending = Box::new(Sending { seq, offer, body: segment.body });
        self.promise(conn, Promise::Send(sending), None, Some(seq));
    }

    /// Stages the claim of one delivery.
    fn claim_row(
        &mut self,
        now: Now,
        key: &DueKey,
        mut row: DeliveryRow,
        epoch: Epoch,
        segment: &SegmentRow,
    ) -> DeliveryRow {
        let (site, seq) = (key.peer, key.seq);
        let before = row.state;
        if row.state == State::Failed {
            // Failed → Scheduled is journalled in the commit of the claim (DESIGN 3.2).
            self.move_to(&mut row, Event::Due, now);
            self.note_delivery(site, segment, Some(State::Failed), Some(&row), None);
        }
        let scheduled = row.state;
        self.move_to(&mut row, Event::Claim, now);
        row.attempts = row.attempts.saturating_add(1);
        row.claimed_at = Some(now.wall.0);
        row.custody = None;
        let batch = self.stage.number();
        self.stage.batch.del(Table::Due, &key.key());
        self.stage.batch.put(Table::Deliveries, &keys::delivery(seq, site), &row);
        self.stage.batch.put(Table::Inflight, &keys::peer_seq(site, seq), &InflightRow { epoch });
        self.stage.count(site, Some(before), Some(row.state), segment.size);
        self.book.set_delivery(batch, site, seq, Some(row.clone()), segment);
        self.note_delivery(site, segment, Some(scheduled), Some(&row), None);
        row
    }

    pub(super) fn offer(
        &self,
        sites: &[SiteNo],
        seq: Seq,
        transfer: TransferNo,
        segment: &SegmentRow,
    ) -> Offer {
        let to = self.asked(sites, segment);
        let (origin, origin_seq) = self.accept_behind(sites, seq, segment);
        Offer {
            transfer,
            id: segment.id,
            digest: segment.digest,
            size: segment.size,
            to,
            origin,
            origin_seq,
            hops: segment.hops.saturating_add(1),
            meta: segment.meta.clone(),
        }
    }

    pub(super) fn settle_later(&mut self, peer: SiteNo, seq: Seq, epoch: Epoch, verdict: Verdict) {
        self.settlements.push_back(Settlement { peer, seq, epoch, verdict });
    }

    /// Stages what is known of ended attempts, as far as the batch has room.
    pub(super) fn settle(&mut self, now: Now) {
        if matches!(self.mode, Mode::Rejudge(_)) {
            return;
        }
        while self.stage.room(STEP_ROWS) {
            let Some(settlement) = self.settlements.pop_front() else { return };
            self.settle_one(now, settlement);
        }
    }

    fn settle_one(&mut self, now: Now, settlement: Settlement) {
        let Settlement { peer: site, seq, epoch, verdict } = settlement;
        let Some(peer) = self.peers.get_mut(&site) else { return };
        // Compare and swap: an outcome of another epoch changes nothing (I8).
        let any_epoch = self.config.planted(Plant::StaleEpoch);
        if peer.flights.get(&seq).is_none_or(|f| f.epoch != epoch && !any_epoch) {
            return;
        }
        let Some(flight) = peer.flights.remove(&seq) else { return };
        if let Some(session) = self.conns.get_mut(&flight.conn).and_then(|c| c.peer.as_mut()) {
            session.transfers.remove(&flight.transfer);
        }
        let Some(segment) = self.book.segment(seq).cloned() else { return };
        self.stage.intend(Intent::Settle { peer: site, seq, epoch, verdict });
        self.apply_verdict(now, site, seq, flight.row, segment, verdict);
        self.book.release(seq);
    }

    /// Stages the rows of a verdict over an Inflight delivery, and what follows from it.
    pub(super) fn apply_verdict(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        row: DeliveryRow,
        segment: SegmentRow,
        verdict: Verdict,
    ) {
        self.stage_verdict(now, site, seq, row, segment, verdict);
        self.may_go(now, seq);
    }

    fn stage_verdict(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        mut row: DeliveryRow,
        segment: SegmentRow,
        verdict: Verdict,
    ) {
        self.stage.batch.del(Table::Inflight, &keys::peer_seq(site, seq));
        match verdict {
            Verdict::Acked => self.acked(now, site, seq, row, segment, now.wall),
            Verdict::HandedOn(hop) => self.handed_on(now, site, seq, row, &segment, hop),
            Verdict::Dead(cause) => self.give_up(now, site, seq, row, &segment, cause),
            Verdict::Settled => self.settled_elsewhere(now, site, seq, row, segment),
            Verdict::Failed { cause, spends, retry_at, refused } => {
                if spends || self.config.strict_attempts {
                    if self.config.planted(Plant::SharedCounter) {
                        row.spent = row.spent.max(self.spent_anywhere(seq));
                    }
                    row.spent = row.spent.saturating_add(1);
                }
                row.refused = if refused { row.refused.saturating_add(1) } else { 0 };
                if cause == Cause::Unreadable {
                    self.doubt(seq, &segment);
                }
                if self.is_over(now, &segment) {
                    // It waited for this outcome only (DESIGN 3.2).
                    return self.give_up(now, site, seq, row, &segment, Cause::Expired);
                }
                if row.spent >= self.config.max_retries {
                    return self.give_up(now, site, seq, row, &segment, cause);
                }
                let before = row.state;
                self.move_to(&mut row, Event::Fail, now);
                row.last_error = cause.number();
                row.next_attempt_after = retry_at.0;
                // Its segment was held while the attempt was under way: it waits from now on.
                row.held = segment.held.then_some(true);
                self.stage.batch.put(Table::Deliveries, &keys::delivery(seq, site), &row);
                self.stage.count(site, Some(before), Some(row.state), segment.size);
                self.stage.count_held(site, None, Some(&row), segment.size);
                self.note_delivery(site, &segment, Some(before), Some(&row), Some(cause));
                self.becomes_due(site, seq, row, &segment);
            }
        }
    }

    /// The most that any peer has spent on a segment, as far as memory knows (planted).
    fn spent_anywhere(&self, seq: Seq) -> u32 {
        let flying = self.peers.values().filter_map(|p| Some(p.flights.get(&seq)?.row.spent));
        let windows = self.peers.values().flat_map(|p| &p.windows);
        let waiting = windows.flat_map(|w| w.entries()).filter(|(key, _)| key.seq == seq);
        flying.chain(waiting.map(|(_, row)| row.spent)).max().unwrap_or(0)
    }

    /// `when` is when it arrived there, by the clock of whoever says so.
    pub(super) fn acked(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        mut row: DeliveryRow,
        mut segment: SegmentRow,
        when: UnixMillis,
    ) {
        let (before, held) = (row.state, row.counted_held());
        self.move_to(&mut row, Event::Ack, now);
        row.refused = 0;
        self.stage.batch.put(Table::Deliveries, &keys::delivery(seq, site), &row);
        self.stage.batch.del(Table::Owed, &keys::peer_seq(site, seq));
        self.stage.count(site, Some(before), Some(row.state), segment.size);
        self.stage.count_held(site, held, Some(&row), segment.size);
        self.note_delivery(site, &segment, Some(before), Some(&row), None);
        let batch = self.stage.number();
        self.book.set_delivery(batch, site, seq, Some(row), &segment);
        if let Some(peer) = self.peers.get_mut(&site) {
            peer.acked(now);
        }
        segment.acked = segment.acked.saturating_add(1);
        self.judge_success(now, seq, &mut segment);
        self.pass_back(site, seq, &segment, 0, when);
        self.stage.batch.put(Table::Segments, &keys::seq(seq), &segment);
        self.book.set_segment(batch, seq, segment);
    }

    /// A delivery is given up until an operator says otherwise.
    pub(super) fn give_up(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        row: DeliveryRow,
        segment: &SegmentRow,
        cause: Cause,
    ) {
        // One mismatch alone, be it the last attempt, may have come about on the way (DESIGN 3.4). Two in a
        // row are the word of one peer: what is owed to the others goes on until this site has looked.
        let again = cause == Cause::Mismatch && row.last_error == cause.number();
        if cause == Cause::Missing {
            self.lost(seq, segment);
        } else if again {
            self.doubt(seq, segment);
        }
        self.bury(now, site, seq, row, segment, cause, now.wall);
    }

    /// [`Node::give_up`] for what says nothing about the content here: a receipt, from `when`.
    #[expect(clippy::too_many_arguments, reason = "a delivery, its segment and why")]
    pub(super) fn bury(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        mut row: DeliveryRow,
        segment: &SegmentRow,
        cause: Cause,
        when: UnixMillis,
    ) {
        let (before, held) = (row.state, row.counted_held());
        self.move_to(&mut row, Event::GiveUp, now);
        row.last_error = cause.number();
        self.stage.batch.put(Table::Deliveries, &keys::delivery(seq, site), &row);
        self.stage.batch.del(Table::Owed, &keys::peer_seq(site, seq));
        let dead = DeadletterRow { cause: cause.number() };
        self.stage.batch.put(Table::Deadletters, &keys::deadletter(now.wall, seq, site), &dead);
        self.stage.count(site, Some(before), Some(row.state), segment.size);
        self.stage.count_held(site, held, Some(&row), segment.size);
        self.note_delivery(site, segment, Some(before), Some(&row), Some(cause));
        self.book.set_delivery(self.stage.number(), site, seq, Some(row), segment);
        self.pass_back(site, seq, segment, cause.number(), when);
    }

    /// The destination had it before and let it go again: it leaves the required set, audited.
    fn settled_elsewhere(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        row: DeliveryRow,
        mut segment: SegmentRow,
    ) {
        self.drop_delivery(site, seq, &row, &mut segment);
        self.audit(now, Act { action: "settled", reason: "already_relayed", ..Act::on(&segment) });
        self.judge_rest(now, seq, &mut segment);
        self.put_segment(seq, segment);
    }

    /// Sets the relayed marker in the commit of the ACK that decides it (DESIGN 3.5). An empty
    /// required set never satisfies it.
    pub(super) fn judge_success(&mut self, now: Now, seq: Seq, segment: &mut SegmentRow) {
        if let Some(condition) = self.condition_met(segment)
            && segment.relayed_at.is_none()
        {
            segment.relayed_at = Some(now.wall.0);
            let unmet = keys::unmet(UnixMillis(segment.accepted_at), seq);
            self.stage.batch.del(Table::Unmet, &unmet);
            self.stage.note(Note::Relayed {
                id: segment.id,
                condition: condition.word(),
                acks: segment.acked,
            });
        }
    }

    /// The condition that a segment has met, as its row stands.
    pub(super) fn condition_met(&self, segment: &SegmentRow) -> Option<SuccessCondition> {
        use SuccessCondition::{AllPeers, OnePeer};
        let condition = match (&segment.to, self.config.success_condition) {
            (Destinations::All, OnePeer) => OnePeer,
            (Destinations::All, AllPeers) | (Destinations::Named(_), OnePeer | AllPeers) => {
                AllPeers
            }
        };
        let met = match condition {
            OnePeer => segment.acked > 0,
            AllPeers => segment.required > 0 && segment.acked >= segment.required,
        };
        met.then_some(condition)
    }

    /// A delivery waits under its `due` key, in memory too if the window reaches that far. One that is
    /// held waits without a key.
    pub(super) fn becomes_due(
        &mut self,
        site: SiteNo,
        seq: Seq,
        row: DeliveryRow,
        segment: &SegmentRow,
    ) {
        if row.held == Some(true) {
            return self.book.set_delivery(self.stage.number(), site, seq, Some(row), segment);
        }
        let key = due_key(site, seq, &row, segment);
        self.stage.batch.put_key(Table::Due, &key.key());
        self.book.set_delivery(self.stage.number(), site, seq, Some(row.clone()), segment);
        self.enter_window(key, row, || Arc::new(segment.clone()));
    }

    pub(super) fn enter_window(
        &mut self,
        key: DueKey,
        row: DeliveryRow,
        segment: impl FnOnce() -> Arc<SegmentRow>,
    ) {
        let Some(peer) = self.peers.get_mut(&key.peer) else { return };
        let (inside, dropped) = peer.window(key.class).insert(key, row);
        if inside {
            self.book.hold(key.seq, segment);
        }
        if let Some(seq) = dropped {
            self.book.release(seq);
        }
    }

    /// Takes an edge of the state table.
    fn move_to(&mut self, row: &mut DeliveryRow, event: Event, now: Now) {
        match next(row.state, event) {
            Ok(Some(state)) => {
                row.state = state;
                row.since = now.wall.0;
            }
            // Callers hold rows of the state their edge starts from: a window holds Scheduled and
            // Failed, a flight holds Inflight.
            Ok(None) | Err(_) => unreachable!("{:?} has no edge {event:?} here", row.state),
        }
    }
}

/// The `due` key of a waiting delivery.
pub(super) fn due_key(site: SiteNo, seq: Seq, row: &DeliveryRow, segment: &SegmentRow) -> DueKey {
    DueKey {
        peer: site,
        class: segment.meta.class,
        at: UnixMillis(row.next_attempt_after),
        id8: keys::id8(&segment.id),
        seq,
    }
}
