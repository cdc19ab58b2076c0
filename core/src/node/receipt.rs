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

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::accept::{Known, Pending, What};
use super::deliver::STEP_ROWS;
use super::types::{Action, Note};
use super::{Asked, Mode, Node};
use crate::code::Cause;
use crate::id::{ConnId, SegmentId, Seq, SiteNo, TransferNo};
use crate::ledger::keys_upkeep::{self, ExpiryKind};
use crate::ledger::read::ReadRequest;
use crate::ledger::rows::{DeliveryRow, SegmentRow, State};
use crate::ledger::rows_upkeep::ReceiptRow;
use crate::ledger::{Table, keys};
use crate::limits::RECEIPTS_OPEN;
use crate::segment::Destinations;
use crate::session::Promise;
use crate::time::{Now, UnixMillis};
use crate::wire::{Receipt, ReceiptOutcome};

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
    fn left_out(&mut self, seq: Seq, site: SiteNo) {
        self.more = true;
        if self.reading {
            self.rewind = true;
        } else if self.after >= Some((seq, site)) {
            self.after = None;
        }
    }

    fn page_read(&mut self, last: Option<(Seq, SiteNo)>, end: bool) {
        self.reading = false;
        if core::mem::take(&mut self.rewind) {
            self.after = None;
        } else {
            self.after = last.or(self.after);
            self.more = !end;
        }
    }
}

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

    /// A peer asks for a site that is settled here: it is told, again if need be. `settled` is the
    /// segment and its delivery, if they are still held.
    pub(super) fn pass_again(
        &mut self,
        seq: Seq,
        site: SiteNo,
        asker: SiteNo,
        known: Option<ReceiptRow>,
        settled: Option<(&SegmentRow, &DeliveryRow)>,
    ) {
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
            (None, None) => return,
        };
        self.put_receipt(seq, site, row.clone(), true);
        self.owe_receipt(asker, seq, site, &row);
    }

    fn put_receipt(&mut self, seq: Seq, site: SiteNo, row: ReceiptRow, expires: bool) {
        self.stage.batch.put(Table::Receipts, &keys::delivery(seq, site), &row);
        if expires {
            let key = keys::delivery(seq, site);
            let at = UnixMillis(row.expires_at);
            let key = keys_upkeep::expiry(at, ExpiryKind::Receipt, &key);
            self.stage.batch.put_key(Table::Expiry, &key);
        }
        for peer in row.owed_to() {
            let conn = self.peers.get(&peer).and_then(|p| p.session);
            let session = conn.and_then(|c| self.conns.get_mut(&c)).and_then(|c| c.peer.as_mut());
            let open = session.and_then(|s| s.passing.open.get_mut(&(row.id, site)));
            if let Some(open) = open {
                open.row = row.clone();
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
        let (passing, key) = (&mut session.passing, (row.id, site));
        if passing.open.len() >= RECEIPTS_OPEN && !passing.open.contains_key(&key) {
            return passing.left_out(seq, site);
        }
        let fresh = || Open { seq, told: 0, row: row.clone() };
        let open = passing.open.entry(key).or_insert_with(fresh);
        open.told = open.told.saturating_add(1);
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
        let Some(passing) = session.map(|s| &mut s.passing) else { return };
        let key = (receipt.id, site);
        if let Some(open) = passing.open.get_mut(&key) {
            open.told = open.told.saturating_sub(1);
            if open.told == 0 {
                passing.open.remove(&key);
            }
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
        let Some(open) = passing.open.get_mut(&(id, site)) else { return };
        open.told = open.told.saturating_sub(1);
        if open.told > 0 {
            return;
        }
        let Some(Open { seq, mut row, .. }) = passing.open.remove(&(id, site)) else { return };
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
            let passing = &mut session.passing;
            let open = passing.open.len();
            if passing.more && !passing.reading && open <= RECEIPTS_OPEN / 2 {
                passing.reading = true;
                wanted.push((*conn, session.site, passing.after, RECEIPTS_OPEN - open));
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
                    if session.is_some_and(|s| !s.passing.open.contains_key(&(row.id, site))) {
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
            self.pend(Pending { conn, transfer: TransferNo(0), source, what });
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
