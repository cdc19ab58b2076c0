//! Segments that come again: those that are held, and those that are only remembered.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec::Vec;

use super::accept::{Known, No, Pending, full};
use super::types::Action;
use super::{Mode, Node};
use crate::code::Refusal;
use crate::id::{Seq, SiteNo};
use crate::ledger::keys_upkeep::{self, ExpiryKind};
use crate::ledger::read::Found;
use crate::ledger::rows::{DeliveryRow, SegmentRow, State};
use crate::ledger::rows_upkeep::ReceiptRow;
use crate::ledger::{Table, keys};
use crate::limits::ASKERS_MAX;
use crate::plant::Plant;
use crate::segment::Destinations;
use crate::session::{Promise, Submission};
use crate::time::{Now, UnixMillis};
use crate::wire::Offer;

/// What an offer of a held segment asks for.
#[derive(Debug, Default)]
struct Plan {
    /// Sites that have no delivery yet.
    new: Vec<SiteNo>,
    /// Sites whose delivery is not settled.
    open: Vec<SiteNo>,
    /// Sites whose delivery is settled: the asker is told what became of it.
    settled: Vec<SiteNo>,
}

impl Node {
    /// A peer offers a segment that is held already: nothing is stored twice.
    pub(super) fn offered_again(
        &mut self,
        now: Now,
        pending: &Pending,
        offer: &Offer,
        known: Known,
        receipts: &[(SiteNo, ReceiptRow)],
        out: &mut Vec<Action>,
    ) -> Result<(), No> {
        let source = pending.source;
        let plan = self.plan(source, offer, &known)?;
        let Known { seq, mut row, deliveries, .. } = known;
        self.ends_loop(source, offer, seq, &row, &plan)?;
        // The site's own accept coming back does not make it a destination (R1).
        let own = offer.origin == self.config.name;
        let comes_here = offer.to.addresses(&self.config.name) && !row.here && !own;
        let askers = self.askers(source, offer, &row, &plan, &deliveries)?;
        let grows = comes_here || !plan.new.is_empty() || !askers.is_empty();
        if grows && !matches!(self.mode, Mode::Normal) {
            return Err(no_room());
        }
        row.askers.extend(askers);
        if grows {
            row.let_go = None;
        }
        let mut changed = self.extend_destinations(now, seq, &mut row, &plan.new, &offer.to);
        row.here |= comes_here;
        changed |= self.freshen(offer, seq, &mut row) || grows;
        if comes_here {
            self.begin_exports(now, seq, &row);
        }
        if changed {
            self.put_segment(seq, row.clone());
        }
        self.drop_pending(pending, out);
        self.drop_partial(offer.digest, source);
        // Once the ACK has left the asker waits for the receipt: the ACK rests on that row too (R4).
        let mut told = Vec::new();
        for site in plan.settled {
            let receipt = receipts.iter().find(|(s, _)| *s == site).map(|(_, r)| r.clone());
            let settled = deliveries.get(&site).map(|delivery| (&row, delivery));
            told.extend(self.pass_again(seq, site, source, receipt, settled));
        }
        let (conn, transfer, id) = (pending.conn, pending.transfer, row.id);
        let (promise, refusal) = (Promise::Ack { transfer, id }, Some(full(transfer, id)));
        if changed || !told.is_empty() {
            self.promise(conn, promise, refusal, Some(seq));
        } else {
            // No rows of its own: it hangs on the newest batch (G2).
            self.promise_unless(Plant::G2, conn, promise, refusal, Some(seq));
        }
        self.tell_again(source, seq, told);
        Ok(())
    }

    fn plan(&self, source: SiteNo, offer: &Offer, known: &Known) -> Result<Plan, No> {
        let mut plan = Plan::default();
        let Destinations::Named(names) = &offer.to else {
            let all = self.destinations(&offer.to, source, &offer.origin, false)?;
            plan.new = all.into_iter().filter(|s| known.lacks(*s)).collect();
            return Ok(plan);
        };
        for name in names.iter().filter(|name| **name != self.config.name) {
            self.can_tell(name, &known.unreadable)?;
            let delivery = self.sites.get(name).and_then(|s| Some((s, known.deliveries.get(s)?)));
            match delivery.map(|(site, row)| (*site, row.state, row.custody)) {
                Some((site, State::Acked | State::Deadletter, _)) => plan.settled.push(site),
                Some((site, State::Scheduled | State::Inflight | State::Failed, custody)) => {
                    // It is the asker this site relies on.
                    let hop = self.peers.get(&site).map(|p| p.hop());
                    if hop == Some(source) || custody == Some(source.0) {
                        return Err(self.no_way_to(name));
                    }
                    plan.open.push(site);
                }
                None => match self.usable(name, source, &offer.origin) {
                    Some(site) => plan.new.push(site),
                    None => return Err(self.no_way_to(name)),
                },
            }
        }
        Ok(plan)
    }

    /// Nobody is told that a segment is on its way to a site when the row that says so cannot be read. It
    /// may be a reading that was wrong: whoever asks comes again.
    fn can_tell(&self, name: &str, unreadable: &BTreeSet<SiteNo>) -> Result<(), No> {
        if self.sites.get(name).is_none_or(|site| !unreadable.contains(site)) {
            return Ok(());
        }
        let own = &self.config.name;
        let text = alloc::format!(
            "the row of its delivery to {name} cannot be read at {own}: `consign fsck --repair` there"
        );
        Err((Refusal::Busy, 60_000, text))
    }

    /// A segment that comes round to a site which still relies on others for it has gone in a circle:
    /// were it taken, each would wait for the next one's receipt.
    fn ends_loop(
        &self,
        source: SiteNo,
        offer: &Offer,
        seq: Seq,
        row: &SegmentRow,
        plan: &Plan,
    ) -> Result<(), No> {
        let own = offer.origin == self.config.name;
        let same = offer.origin == row.origin && offer.origin_seq <= row.origin_number(seq);
        // Who asked before asks again after a lost answer; whoever it came from does so after as many
        // hops as then, and not after more.
        let asks_first = |s: &SiteNo| !row.askers.contains(&(source.0, s.0));
        let round = own || (same && offer.hops > row.hops);
        if round && plan.open.iter().any(asks_first) {
            // Whoever hears that it has been here gives its own copy up: that rests on this one's commit.
            if !self.book.is_committed(seq, self.gate.committed()) {
                let text = "it has only just come, and is not on disk yet".to_string();
                return Err((Refusal::Busy, 1_000, text));
            }
            let text = "it has been here before, and is still on its way from here".to_string();
            return Err((Refusal::AlreadyRelayed, 0, text));
        }
        Ok(())
    }

    /// Who waits for which receipt from now on, besides those the row says already.
    fn askers(
        &self,
        source: SiteNo,
        offer: &Offer,
        row: &SegmentRow,
        plan: &Plan,
        deliveries: &BTreeMap<SiteNo, DeliveryRow>,
    ) -> Result<Vec<(u32, u32)>, No> {
        let mut askers = Vec::new();
        let named = row.to != Destinations::All;
        if offer.to == Destinations::All {
            // The row is about to be for everybody: who asked by name is written down.
            if named && row.from != 0 && !plan.new.is_empty() {
                askers.extend(deliveries.keys().map(|site| (row.from, site.0)));
            }
        } else if source.0 != row.from || !named {
            askers.extend(plan.new.iter().chain(&plan.open).map(|site| (source.0, site.0)));
        }
        askers.retain(|asker| !row.askers.contains(asker));
        if row.askers.len() + askers.len() > ASKERS_MAX {
            let text = alloc::format!("{ASKERS_MAX} others wait for receipts of it already");
            return Err((Refusal::Busy, 60_000, text));
        }
        Ok(askers)
    }

    /// Its origin has accepted it again since: number, hops and expiry follow (R2). Returns whether
    /// the row changed.
    fn freshen(&mut self, offer: &Offer, seq: Seq, row: &mut SegmentRow) -> bool {
        let newer = offer.origin == row.origin && offer.origin_seq > row.origin_number(seq);
        if !newer || !matches!(self.mode, Mode::Normal) {
            return false;
        }
        (row.origin_seq, row.hops) = (offer.origin_seq, offer.hops);
        self.raise_expiry(seq, row, offer.meta.expires_at);
        true
    }

    /// Whether it is worth delivering longer than before.
    fn raise_expiry(&mut self, seq: Seq, row: &mut SegmentRow, to: Option<u64>) -> bool {
        let Some(old) = row.meta.expires_at.filter(|old| to.is_none_or(|to| to > *old)) else {
            return false;
        };
        let key = |at| keys_upkeep::expiry(UnixMillis(at), ExpiryKind::Segment, &keys::seq(seq));
        self.stage.batch.del(Table::Expiry, &key(old));
        if let Some(at) = to {
            self.stage.batch.put_key(Table::Expiry, &key(at));
        }
        row.meta.expires_at = to;
        true
    }

    /// A local client hands in what is held already: missing destinations are added, and it may be
    /// worth delivering longer. A local accept is never swallowed by memory of the past.
    pub(super) fn submitted_again(
        &mut self,
        now: Now,
        pending: &Pending,
        submission: &Submission,
        known: Known,
        out: &mut Vec<Action>,
    ) -> Result<(), No> {
        let wanted = self.destinations(&submission.to, SiteNo(0), "", true)?;
        for peer in wanted.iter().filter_map(|site| self.peers.get(site)) {
            self.can_tell(&peer.name, &known.unreadable)?;
        }
        let new: Vec<SiteNo> = wanted.iter().copied().filter(|s| known.lacks(*s)).collect();
        let Known { seq, mut row, deliveries, .. } = known;
        let here = submission.to != Destinations::All
            && submission.to.addresses(&self.config.name)
            && !row.here;
        let expiry = self.config.expire_after.map(|d| now.wall.after(d).0);
        let expires_at = submission.meta.expires_at.or(expiry);
        let raises = row.meta.expires_at.is_some_and(|old| expires_at.is_none_or(|to| to > old));
        if (here || raises || !new.is_empty()) && !matches!(self.mode, Mode::Normal) {
            return Err(no_room());
        }
        if submission.to == Destinations::All && row.to != Destinations::All && !new.is_empty() {
            let from = row.from;
            row.askers.extend(deliveries.keys().map(|s| (from, s.0)).filter(|_| from != 0));
        }
        let added = self.extend_destinations(now, seq, &mut row, &new, &submission.to);
        if added {
            // What others remember of it is older from now on (R2).
            (row.origin, row.hops) = (alloc::string::String::new(), 0);
            row.origin_seq = self.stage.next_seq().0;
        }
        row.here |= here;
        let raised = raises && self.raise_expiry(seq, &mut row, expires_at);
        if here {
            self.begin_exports(now, seq, &row);
        }
        // Whoever hands it in again wants it kept.
        let wanted_again = row.let_go.take().is_some();
        let changed = added || here || raised || wanted_again;
        if changed {
            self.put_segment(seq, row.clone());
        }
        let watched = self.put_watched(now, submission);
        self.drop_pending(pending, out);
        let mut accepted = self.accepted(row.id, seq, false, &wanted, &deliveries);
        accepted.raised = raised;
        let promise = Promise::Accepted { ticket: pending.transfer, accepted };
        let refusal = Some(full(pending.transfer, row.id));
        if changed || watched {
            self.promise(pending.conn, promise, refusal, Some(seq));
        } else {
            // No rows of its own: it hangs on the newest batch (G2).
            self.promise_unless(Plant::G2, pending.conn, promise, refusal, Some(seq));
        }
        Ok(())
    }

    /// Adds deliveries to a held segment. Returns whether its row changed.
    pub(super) fn extend_destinations(
        &mut self,
        now: Now,
        seq: Seq,
        row: &mut SegmentRow,
        sites: &[SiteNo],
        to: &Destinations,
    ) -> bool {
        if sites.is_empty() {
            return false;
        }
        row.to = match (&row.to, to) {
            (Destinations::Named(a), Destinations::Named(b)) => {
                let all = a.iter().chain(b).cloned().collect();
                Destinations::named(all).unwrap_or(Destinations::All)
            }
            (Destinations::All, _) | (_, Destinations::All) => Destinations::All,
        };
        row.required = row.required.saturating_add(sites.len() as u32);
        if row.unplaced.take().is_some() {
            self.stage.meta.unplaced = self.stage.meta.unplaced.saturating_sub(1);
        }
        if row.relayed_at.take().is_some() || row.required == sites.len() as u32 {
            self.stage.batch.put_key(Table::Unmet, &keys::unmet(UnixMillis(row.accepted_at), seq));
        }
        self.book.set_segment(self.stage.number(), seq, row.clone());
        for site in sites {
            self.schedule(now, *site, seq, row);
        }
        true
    }

    /// What memory of an evicted segment says to an offer of it: nothing, a refusal, or the number
    /// under which every site that is asked for has a receipt (R2). Who is addressed itself takes it
    /// anew, whatever it remembers: memory is no copy.
    pub(super) fn remembers(&self, offer: &Offer, found: &Found) -> Option<Result<Seq, No>> {
        // What was evicted, or forgotten, since the reading counts.
        let newer = self.book.removed(&offer.id);
        let row = newer.as_ref().unwrap_or(&found.remembered).as_ref()?;
        let own = offer.origin == self.config.name;
        if offer.to.addresses(&self.config.name) && !own {
            return None;
        }
        let origin = if row.origin.is_empty() { &self.config.name } else { &row.origin };
        let number = if row.origin_seq == 0 { row.seq.0 } else { row.origin_seq };
        let anew = *origin != offer.origin || offer.origin_seq > number;
        if anew && !self.config.planted(Plant::R2) {
            return None;
        }
        let settled = |name: &alloc::string::String| {
            found.receipts.iter().any(|(_, receipt)| receipt.site == *name)
        };
        match &offer.to {
            Destinations::Named(names) if names.iter().all(settled) => Some(Ok(row.seq)),
            Destinations::Named(_) | Destinations::All => {
                let text = "it was here, was handed on, and is not kept any more".to_string();
                Some(Err((Refusal::AlreadyRelayed, 0, text)))
            }
        }
    }

    /// Everybody it is for has it, as receipts here say: the asker is told so.
    pub(super) fn settled_before(
        &mut self,
        pending: &Pending,
        offer: &Offer,
        seq: Seq,
        receipts: &[(SiteNo, ReceiptRow)],
        out: &mut Vec<Action>,
    ) {
        self.drop_pending(pending, out);
        let mut told = Vec::new();
        for (site, receipt) in receipts {
            if offer.to.addresses(&receipt.site) {
                told.extend(self.pass_again(
                    seq,
                    *site,
                    pending.source,
                    Some(receipt.clone()),
                    None,
                ));
            }
        }
        let (transfer, id) = (pending.transfer, offer.id);
        let (promise, refusal) = (Promise::Ack { transfer, id }, Some(full(transfer, id)));
        self.promise(pending.conn, promise, refusal, None);
        self.tell_again(pending.source, seq, told);
    }
}

fn no_room() -> No {
    let text = "the disk is full; nothing new is taken until space is back".to_string();
    (Refusal::DiskFull, 10_000, text)
}
