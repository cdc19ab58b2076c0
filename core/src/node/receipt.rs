//! Receipts: what became of a segment further on, passed back towards its origin (R4).
//!
//! ```text
//!   here                                       the peer that handed it on to us
//!   delivery settled ─ receipts, pass_back ─► commit ─► RECEIPT ─► its row settled ─► commit ─┐
//!   pass_back key gone ◄──────────────────────────────────────────────── RECEIPT_OK ◄─────────┘
//! ```
//! What has still to be told is in `pass_back`, nowhere else: a new session pages it from the
//! beginning, and what is told twice changes nothing the second time. At most [`RECEIPTS_OPEN`] are
//! told and unanswered at a time; an answer "later" frees its place and leaves the key.

use alloc::vec::Vec;

use super::accept::{Known, Pending, What};
use super::deliver::STEP_ROWS;
pub(super) use super::passing::Passing;
use super::tally::Ending;
use super::types::{Action, Note};
use super::{Asked, Mode, Node};
use crate::code::Cause;
use crate::id::{ConnId, SegmentId, Seq, SiteNo, TransferNo};
use crate::ledger::keys_upkeep::ExpiryKind;
use crate::ledger::read::ReadRequest;
use crate::ledger::rows::{DeliveryRow, Loss, SegmentRow, State};
use crate::ledger::rows_upkeep::ReceiptRow;
use crate::ledger::{Table, keys};
use crate::limits::RECEIPTS_OPEN;
use crate::segment::Destinations;
use crate::session::Promise;
use crate::time::{Now, UnixMillis};
use crate::wire::{Receipt, ReceiptOutcome};

impl Node {
    /// A hop has it for a site behind it: the row waits for that site's receipt, and nothing is
    /// satisfied (R4).
    pub(super) fn handed_on(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        mut row: DeliveryRow,
        segment: &SegmentRow,
        hop: SiteNo,
    ) {
        if segment.loss == Some(Loss::Gone) {
            // The content went while it was under way: no receipt will be known as its own.
            return self.give_up(now, site, seq, row, segment, Cause::Missing);
        }
        self.attempt_ended(site, Ending::HandedOn, Some(&row), None);
        row.custody = Some(hop.0);
        row.refused = 0;
        row.since = now.wall.0;
        self.stage.batch.put(Table::Deliveries, &keys::delivery(seq, site), &row);
        self.stage.batch.put_key(Table::Handed, &keys::peer_seq(site, seq));
        self.book.set_delivery(self.stage.number(), site, seq, Some(row), segment);
        let name = |site| self.peers.get(&site).map(|p| p.name.clone()).unwrap_or_default();
        self.stage.note(Note::HandedOn { id: segment.id, site: name(site), hop: name(hop) });
        if let Some(hop) = self.peers.get_mut(&hop) {
            hop.acked(now);
        }
    }

    /// A delivery is settled: whoever handed the segment on to this site for it is to be told. `cause`
    /// is 0 when it was delivered.
    pub(super) fn pass_back(
        &mut self,
        site: SiteNo,
        seq: Seq,
        segment: &SegmentRow,
        cause: u8,
        when: UnixMillis,
    ) {
        let mut back = waiting(segment, site);
        let Some(first) = (!back.is_empty()).then(|| back.remove(0)) else { return };
        let row = self.receipt(segment, site, (cause, when), first, back);
        self.put_receipt(seq, site, row.clone(), true);
        for peer in row.owed_to() {
            self.owe_receipt(peer, seq, site, &row);
        }
    }

    fn receipt(
        &self,
        segment: &SegmentRow,
        site: SiteNo,
        (cause, when): (u8, UnixMillis),
        back: SiteNo,
        more: Vec<SiteNo>,
    ) -> ReceiptRow {
        ReceiptRow {
            id: segment.id,
            site: self.peers.get(&site).map(|p| p.name.clone()).unwrap_or_default(),
            when: when.0,
            cause,
            back: back.0,
            pending: true,
            name: segment.meta.name.clone(),
            size: segment.size,
            digest: segment.digest,
            expires_at: self.now.wall.after(self.config.keep_receipts).0,
            more: more.into_iter().map(|peer| peer.0).collect(),
        }
    }

    /// A peer asks for a site that is settled here: what it is to be told is staged, again if need be,
    /// and is told by [`Node::tell_again`]. `settled` is the segment and its delivery, if they are still
    /// held.
    pub(super) fn pass_again(
        &mut self,
        seq: Seq,
        site: SiteNo,
        asker: SiteNo,
        known: Option<ReceiptRow>,
        settled: Option<(&SegmentRow, &DeliveryRow)>,
    ) -> Option<(SiteNo, ReceiptRow)> {
        let row = match (self.book.receipt(seq, site).cloned().or(known), settled) {
            (Some(mut row), _) => {
                if row.back == asker.0 {
                    row.pending = true;
                } else if !row.more.contains(&asker.0) {
                    row.more.push(asker.0);
                }
                row
            }
            (None, Some((segment, delivery))) => {
                let outcome = (cause_of(delivery), UnixMillis(delivery.since));
                self.receipt(segment, site, outcome, asker, Vec::new())
            }
            (None, None) => return None,
        };
        self.put_receipt(seq, site, row.clone(), true);
        self.stage.batch.put_key(Table::PassBack, &keys::pass_back(asker, seq, site));
        Some((site, row))
    }

    /// Says what [`Node::pass_again`] has staged, behind the answer to the offer.
    pub(super) fn tell_again(&mut self, asker: SiteNo, seq: Seq, told: Vec<(SiteNo, ReceiptRow)>) {
        for (site, row) in told {
            self.tell(asker, seq, site, &row);
        }
    }

    fn put_receipt(&mut self, seq: Seq, site: SiteNo, row: ReceiptRow, expires: bool) {
        self.stage.batch.put(Table::Receipts, &keys::delivery(seq, site), &row);
        if expires {
            let at = UnixMillis(row.expires_at);
            self.expire_at(at, ExpiryKind::Receipt, &keys::delivery(seq, site));
        }
        for peer in row.owed_to() {
            let conn = self.peers.get(&peer).and_then(|p| p.session);
            let session = conn.and_then(|c| self.conns.get_mut(&c)).and_then(|c| c.peer.as_mut());
            if let Some(session) = session {
                session.passing.row_is(site, &row);
            }
        }
        self.book.set_receipt(self.stage.number(), seq, site, row);
    }

    fn owe_receipt(&mut self, peer: SiteNo, seq: Seq, site: SiteNo, row: &ReceiptRow) {
        self.stage.batch.put_key(Table::PassBack, &keys::pass_back(peer, seq, site));
        self.tell(peer, seq, site, row);
    }

    /// Says a receipt on the session with `peer`, if there is one and it has a place.
    fn tell(&mut self, peer: SiteNo, seq: Seq, site: SiteNo, row: &ReceiptRow) {
        let Some(conn) = self.peers.get(&peer).and_then(|p| p.session) else { return };
        let session = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut());
        let Some(session) = session.filter(|s| s.ready.is_some()) else { return };
        if !session.passing.tell(seq, site, row, RECEIPTS_OPEN) {
            return;
        }
        let outcome = match row.cause {
            0 => ReceiptOutcome::Delivered,
            cause => ReceiptOutcome::Failed(cause),
        };
        let receipt = Receipt { id: row.id, site: row.site.clone(), when: row.when, outcome };
        self.promise(conn, Promise::Receipt(receipt), None, None);
    }

    /// A receipt was never said: its batch failed.
    pub(super) fn receipt_unsaid(&mut self, conn: ConnId, receipt: &Receipt) {
        let Some(site) = self.sites.get(&receipt.site).copied() else { return };
        let session = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut());
        if let Some(session) = session {
            session.passing.answered(receipt.id, site);
        }
    }

    /// The peer keeps a receipt, or says that it cannot take it yet.
    pub(super) fn receipt_answered(
        &mut self,
        conn: ConnId,
        id: SegmentId,
        site: &str,
        later: bool,
    ) {
        let Some(site) = self.sites.get(site).copied() else { return };
        let idle = matches!(self.mode, Mode::Rejudge(_)) || !self.stage.room(STEP_ROWS);
        let session = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut());
        let Some(session) = session else { return };
        let (peer, passing) = (session.site, &mut session.passing);
        let Some((seq, mut row)) = passing.answered(id, site) else { return };
        if later {
            return;
        }
        if idle {
            // Nothing can be staged now: it is told once more.
            return passing.left_out(seq, site);
        }
        self.stage.batch.del(Table::PassBack, &keys::pass_back(peer, seq, site));
        if row.back == peer.0 {
            row.pending = false;
        }
        row.more.retain(|other| *other != peer.0);
        self.put_receipt(seq, site, row, false);
    }

    /// Reads on what peers have still to be told.
    pub(super) fn page_receipts(&mut self, out: &mut Vec<Action>) {
        if matches!(self.mode, Mode::Rejudge(_)) {
            return;
        }
        let mut wanted = Vec::new();
        for (conn, state) in &mut self.conns {
            let Some(session) = state.peer.as_mut().filter(|s| s.ready.is_some()) else { continue };
            if let Some((after, limit)) = session.passing.wants_page(RECEIPTS_OPEN) {
                wanted.push((*conn, session.site, after, limit));
            }
        }
        for (conn, peer, after, limit) in wanted {
            self.ask(Asked::PassBack(conn), ReadRequest::PassBack { peer, after, limit }, out);
        }
    }

    pub(super) fn pass_back_read(
        &mut self,
        conn: ConnId,
        rows: Vec<(Seq, SiteNo, Option<ReceiptRow>)>,
        end: bool,
    ) {
        let Some(session) = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut()) else { return };
        let peer = session.site;
        session.passing.page_read(rows.last().map(|(seq, site, _)| (*seq, *site)), end);
        for (seq, site, row) in rows {
            match self.book.receipt(seq, site).cloned().or(row) {
                Some(row) if row.is_owed_to(peer) => {
                    let session = self.conns.get(&conn).and_then(|c| c.peer.as_ref());
                    if session.is_some_and(|s| !s.passing.is_open(row.id, site)) {
                        self.tell(peer, seq, site, &row);
                    }
                }
                // It was answered since.
                Some(_) => {}
                None if self.stage.room(1) && !matches!(self.mode, Mode::Rejudge(_)) => {
                    self.stage.batch.del(Table::PassBack, &keys::pass_back(peer, seq, site));
                }
                None => {}
            }
        }
    }

    /// A receipt's answer was taken back with its batch: it is judged again on what is durable.
    pub(super) fn receipt_again(&mut self, conn: ConnId, receipt: Receipt) {
        let source = self.conns.get(&conn).and_then(|c| c.peer.as_ref()).map(|p| p.site);
        if let Some(source) = source {
            let what = What::Receipt(receipt);
            self.pend(Pending::new(conn, TransferNo(0), source, what));
        }
    }

    /// A hop says what became of a segment further on. Only the one that has custody is believed.
    pub(super) fn judge_receipt(
        &mut self,
        now: Now,
        conn: ConnId,
        source: SiteNo,
        receipt: Receipt,
        known: Option<Known>,
    ) {
        let site = self.sites.get(&receipt.site).copied();
        let found = site.zip(known).and_then(|(site, known)| {
            let row = known.deliveries.get(&site)?.clone();
            Some((site, row, known))
        });
        let mut later = false;
        if let Some((site, row, Known { seq, row: segment, .. })) = found {
            match row.state {
                State::Inflight if row.custody == Some(source.0) => {
                    self.take_receipt(now, &receipt, site, seq, row, segment);
                }
                // It was handed on to another, who will tell.
                State::Inflight => later = row.custody.is_none(),
                // It will be offered again, and the answer to that offer is heard first.
                State::Scheduled | State::Failed => later = true,
                State::Acked | State::Deadletter => {}
            }
        }
        self.promise(conn, Promise::ReceiptOk { receipt, later }, None, None);
    }

    fn take_receipt(
        &mut self,
        now: Now,
        receipt: &Receipt,
        site: SiteNo,
        seq: Seq,
        row: DeliveryRow,
        segment: SegmentRow,
    ) {
        self.stage.batch.del(Table::Handed, &keys::peer_seq(site, seq));
        let when = UnixMillis(receipt.when);
        match receipt.outcome {
            ReceiptOutcome::Delivered => self.acked(now, site, seq, row, segment, when),
            ReceiptOutcome::Failed(cause) => {
                let cause = Cause::from_number(cause).unwrap_or(Cause::Refused);
                self.bury(now, site, seq, row, &segment, cause, when);
            }
        }
        // The last receipt is what a copy here was kept for.
        self.may_go(now, seq);
    }
}

/// What a settled delivery came to, as a receipt says it.
fn cause_of(delivery: &DeliveryRow) -> u8 {
    match delivery.state {
        State::Deadletter if delivery.last_error == 0 => Cause::Refused.number(),
        State::Deadletter => delivery.last_error,
        State::Scheduled | State::Inflight | State::Acked | State::Failed => 0,
    }
}

/// The peers that handed a segment on to this site for `site`, the one it came from first.
fn waiting(segment: &SegmentRow, site: SiteNo) -> Vec<SiteNo> {
    let named = segment.to != Destinations::All;
    let from = Some(SiteNo(segment.from)).filter(|from| from.0 != 0 && named && *from != site);
    let mut back: Vec<SiteNo> = from.into_iter().collect();
    for (asker, wanted) in &segment.askers {
        let asker = SiteNo(*asker);
        if SiteNo(*wanted) == site && asker != site && !back.contains(&asker) {
            back.push(asker);
        }
    }
    back
}
