//! What is handed on by way of others: custody of a hop, and the receipts that end it (R4).
//!
//! A hop's ACK satisfies nothing. Only the site itself can make a delivery Acked, and its word comes back
//! as a RECEIPT, which every site on the way has on disk before it says so or confirms it.

use consign_core::code::Cause;
use consign_core::id::{SegmentId, SiteNo};
use consign_core::ledger::rows::{DeliveryRow, State};
use consign_core::wire::{Receipt, ReceiptOutcome};

use super::Desk;
use super::edges::Step;
use super::rules;
use super::site::Answer;
use super::violation::{Check, demand};
use crate::sim::seen::SiteIx;

/// The cause of a failure that a receipt tells of; 0 is delivered.
fn cause_of(receipt: &Receipt) -> u8 {
    match receipt.outcome {
        ReceiptOutcome::Delivered => 0,
        ReceiptOutcome::Failed(cause) => cause,
    }
}

impl Desk<'_> {
    /// It stays Inflight: a hop has custody from now on, and nothing else changes.
    pub(super) fn handed_on(&self, step: &Step<'_>, old: &DeliveryRow, new: &DeliveryRow) -> Check {
        let name = self.site.peer(step.no);
        let via = self.ways(&name);
        let custody = new.custody;
        let right = old.custody.is_none()
            && custody.is_some_and(|hop| hop != step.no.0 && via.contains(&SiteNo(hop)));
        let kept = DeliveryRow { custody, since: new.since, refused: 0, ..old.clone() } == *new;
        self.must(right && kept, "I4", step, || {
            format!("it stays Inflight and changes: {old:?} to {new:?}, by way of {via:?}")
        })?;
        if !self.world.taps {
            return Ok(());
        }
        let answer = self.claim(step)?.answer.map(|(answer, _)| answer);
        self.must(answer == Some(Answer::Ack), "I3", step, || {
            format!("a hop is said to have it, and there came {answer:?}")
        })
    }

    /// The end of what a hop had custody of: only a receipt of that hop says so, and if it says that it
    /// was delivered, the site itself has had it. Another hop, or content that is gone, ends it as well.
    pub(super) fn told(&self, step: &Step<'_>, hop: u32, new: &DeliveryRow) -> Check {
        let name = self.site.peer(step.no);
        if new.state == State::Failed {
            // Its site has another hop now: it is sent anew, at nobody's cost.
            let via = self.ways(&name);
            let restart = new.custody.is_none() && new.last_error == Cause::Restart.number();
            let elsewhere = via.iter().any(|via| via.0 != hop);
            return self.must(restart && elsewhere, "I4", step, || {
                format!("a hop has it, and it becomes {new:?}, by way of {via:?}")
            });
        }
        if new.last_error == Cause::Missing.number() && self.gone(step).is_ok() {
            // No receipt could be told from one of whoever brings the content anew.
            return Ok(());
        }
        let cause = if new.state == State::Acked { 0 } else { new.last_error };
        let ends = matches!(new.state, State::Acked | State::Deadletter);
        self.must(ends, "I4", step, || format!("a hop has it, and it becomes {:?}", new.state))?;
        if new.state == State::Acked {
            self.site_has(step, &name)?;
        }
        let from = self.ix_of(consign_core::id::SiteNo(hop));
        let heard = from.is_none_or(|from| {
            let cause = if Cause::from_number(cause).is_none() { 0 } else { cause };
            let said = |cause| (step.segment.id, name.clone(), from, cause);
            let any = |(id, to, by, c): &(SegmentId, String, SiteIx, u8)| {
                (*id, to, *by) == (step.segment.id, &name, from) && *c != 0
            };
            self.site.heard.contains(&said(cause))
                || (new.state == State::Deadletter && self.site.heard.iter().any(any))
        });
        self.must(heard || !self.world.taps, "I3", step, || {
            format!("it is {:?} of {cause}, and the hop has said no such thing", new.state)
        })
    }

    /// Hops that lead to a site.
    fn ways(&self, name: &str) -> Vec<SiteNo> {
        let rules = self.site.rules().filter_map(|config| rules::hop(config, name));
        rules.filter_map(|via| self.site.disk.number_of(via)).collect()
    }

    /// The destination has had it: nobody else can say so for it (R4).
    pub(super) fn site_has(&self, step: &Step<'_>, name: &str) -> Check {
        let Some(ix) = self.ix_of(step.no) else {
            return self.must(false, "I3", step, || format!("it is Acked, and {name} is nowhere"));
        };
        // What began there and came back is known by the ACK alone.
        let had = self.world.held.contains(&(step.segment.id, ix)) || !self.world.taps;
        self.must(had, "I3", step, || format!("it is Acked, and {name} never had it"))
    }

    /// RECEIPT leaves: what it says is on disk.
    pub(super) fn receipt_sent(&mut self, peer: SiteIx, receipt: &Receipt) -> Check {
        let (id, site, cause) = (receipt.id, &receipt.site, cause_of(receipt));
        let disk = &self.site.disk;
        let mut kept = disk.receipts.values().filter(|row| row.id == id && row.site == *site);
        let said = kept.any(|row| (row.cause == 0) == (cause == 0));
        // It may have been removed, or replaced, since it was let go.
        let was = self.site.said.contains(&(id, site.clone(), cause == 0));
        demand(said || was, "I1", Some(id), || {
            let to = self.name_of(peer);
            format!("{to} is told of {site} ({cause}), and no receipt here says so")
        })
    }

    /// RECEIPT_OK leaves: what it confirms is on disk, so that the other side may forget it.
    pub(super) fn receipt_confirmed(&mut self, peer: SiteIx, id: SegmentId, site: &str) -> Check {
        let no = self.site.disk.number_of(site);
        let from = self.site.disk.number_of(&self.name_of(peer));
        let seq = self.site.newest.get(&id).copied();
        let row = seq.zip(no).and_then(|key| self.site.disk.deliveries.get(&key));
        let waits = row.is_some_and(|row| {
            row.state == State::Inflight
                && row.custody.is_some()
                && row.custody == from.map(|no| no.0)
        });
        // Since then it may have been tried again.
        let settled = self.site.confirmed.contains(&(id, site.to_string()));
        demand(!waits || settled, "I1", Some(id), || {
            format!("a receipt for {site} is confirmed, and on disk it is still waited for")
        })
    }
}
