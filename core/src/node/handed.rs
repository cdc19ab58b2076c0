//! Custody that leads nowhere any more. A delivery that a hop has waits for a receipt; two things take that
//! away, and neither comes with the session of the hop:
//!
//! - the configuration names another hop for its site: at the start it is due again, on the new way;
//! - the content here is gone: whoever hands the segment in again brings it anew, so a receipt could not be
//!   told from one of theirs, and the delivery is a dead letter.
//!
//! Both are read off `handed`, in pages behind live traffic. A site none of whose deliveries is with a hop
//! is not read at all, and what a failed commit takes back is found again, since its key is still there.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::deliver::STEP_ROWS;
use super::remove::Act;
use super::stage::Verdict;
use super::types::Action;
use super::{Asked, Mode, Node};
use crate::code::Cause;
use crate::id::{BatchNo, Seq, SiteNo};
use crate::ledger::read::ReadRequest;
use crate::ledger::read_acts::{Cursor, Pick, Picked, Row};
use crate::ledger::rows::{Loss, State};
use crate::ledger::{Table, keys};
use crate::time::Now;

/// Deliveries read at a time.
const PAGE: usize = 32;

/// Where the look at `handed` stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Handed {
    /// Sites to be looked at, the first from `after` on.
    sites: VecDeque<SiteNo>,
    after: Option<Seq>,
    reading: bool,
    /// Rows that a page needed which found no room: read before there is, it would find none again.
    needs: usize,
    /// All sites are to be looked at, once those are done.
    again: bool,
}

impl Handed {
    /// The look that a start begins with.
    pub fn at_start() -> Handed {
        Handed { again: true, ..Handed::default() }
    }

    /// Content was found wrong; if it is `gone`, that may leave custody without an end.
    pub fn look_again(&mut self, gone: bool) {
        self.again |= gone;
    }

    /// A commit failed, and the read under way is void: all is looked at once more.
    pub fn start_over(&mut self) {
        *self = Handed::at_start();
    }
}

impl Node {
    /// Asks for the next page.
    pub(super) fn look_at_handed(&mut self, out: &mut Vec<Action>) {
        let idle = !self.handed.reading && matches!(self.mode, Mode::Normal);
        let room = self.stage.room(self.handed.needs);
        if !idle || !room || self.stopping || self.reconcile.is_settling() {
            return;
        }
        if self.handed.sites.is_empty() && core::mem::take(&mut self.handed.again) {
            self.handed.sites = self.peers.keys().copied().collect();
        }
        while let Some(site) = self.handed.sites.front().copied() {
            if self.has_handed_on(site) {
                self.handed.reading = true;
                let pick = Pick::Handed { peer: site, after: self.handed.after, limit: PAGE };
                self.ask(Asked::Handed(site), ReadRequest::Picked(pick), out);
                return;
            }
            self.handed_site_done();
        }
    }

    /// Whether a hop has anything for it: what is Inflight and is no attempt of this run.
    fn has_handed_on(&self, site: SiteNo) -> bool {
        let flights = self.peers.get(&site).map_or(0, |peer| peer.flights.len() as u64);
        self.stage.staged(site, State::Inflight) > flights
    }

    fn handed_site_done(&mut self) {
        self.handed.sites.pop_front();
        self.handed.after = None;
    }

    /// A page has come.
    pub(super) fn handed_read(&mut self, now: Now, site: SiteNo, picked: Picked, as_of: BatchNo) {
        self.handed.reading = false;
        self.more = true;
        let Picked::Rows { rows, next } = picked else { return };
        self.handed.needs = rows.len() * STEP_ROWS + 1;
        if !self.stage.room(self.handed.needs) {
            return;
        }
        self.handed.needs = 0;
        let (mut count, mut bytes) = (0, 0_u64);
        for row in rows {
            let size = row.segment.size;
            if self.judge_custody(now, row, as_of) {
                (count, bytes) = (count + 1, bytes.saturating_add(size));
            }
        }
        if count > 0 {
            let subject = self.name_of(site);
            let act = Act { action: "reroute", subject, count, bytes, ..Act::default() };
            self.audit(now, Act { reason: "another_hop", ..act });
        }
        match next {
            Some(Cursor::Seq(seq)) => self.handed.after = Some(seq),
            Some(Cursor::Dead(_)) | None => self.handed_site_done(),
        }
    }

    /// Whether the delivery is due again, on another way.
    fn judge_custody(&mut self, now: Now, row: Row, as_of: BatchNo) -> bool {
        let Row { seq, site, segment, delivery } = row;
        let row = match self.book.delivery(site, seq, as_of) {
            Some(newer) => newer.cloned(),
            None => Some(delivery),
        };
        let Some(mut row) = row.filter(|r| r.state == State::Inflight && !self.book.is_gone(seq))
        else {
            return false;
        };
        let segment = self.book.segment(seq).cloned().unwrap_or(segment);
        let Some(custody) = row.custody else { return false };
        let Some(peer) = self.peers.get(&site) else { return false };
        // What is for a site that nobody configures waits for `peers forget`, as everything for it does.
        let elsewhere = (peer.known || peer.via.is_some()) && peer.hop().0 != custody;
        if segment.loss != Some(Loss::Gone) && !elsewhere {
            return false;
        }
        self.stage.batch.del(Table::Handed, &keys::peer_seq(site, seq));
        row.custody = None;
        if segment.loss == Some(Loss::Gone) {
            self.give_up(now, site, seq, row, &segment, Cause::Missing);
            self.may_go(now, seq);
            return false;
        }
        let verdict = Verdict::Failed {
            cause: Cause::Restart,
            spends: false,
            retry_at: now.wall,
            refused: false,
        };
        self.apply_verdict(now, site, seq, row, segment, verdict);
        true
    }
}
