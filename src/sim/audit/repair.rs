//! Repair: content is put in place of what was lost, or is found to be whole after all; and it goes back to
//! whoever gave it, and again to whoever got it, when they ask for it.

use consign_core::id::{ConnId, Seq};
use consign_core::ledger::rows::State;
use consign_core::wire::{Offer, Wanted};

use super::Desk;
use super::removal::Removals;
use super::violation::{Check, demand};
use crate::sim::seen::SiteIx;

impl Desk<'_> {
    /// What takes the place of lost content is that content, and a record says so.
    pub(super) fn mended(&mut self, seq: Seq, gone: &Removals) -> Check {
        self.site.doubted_rightly.remove(&seq);
        let Some(row) = self.site.disk.segments.get(&seq) else { return Ok(()) };
        self.keeps(row)?;
        let recorded = gone.record(&row.id.to_string(), &["repaired"]).is_some();
        demand(recorded, "I2", Some(row.id), || {
            format!("number {seq} has other content now, and no record says so")
        })
    }

    /// What is doubted no more is whole, and a record says so. It may have come to harm since it was looked at,
    /// but not before it was doubted.
    pub(super) fn cleared(&mut self, seq: Seq, gone: &Removals) -> Check {
        let Some(row) = self.site.disk.segments.get(&seq) else { return Ok(()) };
        let id = row.id;
        self.keeps(row)?;
        let recorded = gone.record(&id.to_string(), &["cleared"]).is_some();
        demand(recorded, "I2", Some(id), || {
            format!("number {seq} is doubted no more, and no record says so")
        })?;
        let destroyed = self.site.doubted_rightly.contains(&seq);
        demand(!destroyed, "I11", Some(id), || {
            format!("number {seq} is doubted no more, and its content was destroyed before")
        })?;
        self.site.links.is_whole(&id);
        Ok(())
    }

    /// OFFER to itself: for a WANT of this session, of what is whole here, to who had it before.
    pub(super) fn repair_sent(&mut self, peer: SiteIx, conn: ConnId, offer: &Offer) -> Check {
        let name = self.name_of(peer);
        let id = Some(offer.id);
        let wants = &self.site.links.get(conn).wants;
        let wanted = wants.contains(&Wanted::Segment(offer.id))
            || wants.contains(&Wanted::Blob(offer.digest));
        demand(wanted, "I7", id, || {
            format!("it is offered to {name} for a repair, and {name} has not asked for it")
        })?;
        let disk = &self.site.disk;
        // It may be gone or lost since that was decided.
        let Some(seq) = disk.ids.get(&offer.id).copied() else { return Ok(()) };
        let Some(row) = disk.segments.get(&seq) else { return Ok(()) };
        let no = disk.number_of(&name);
        let gave = no.is_some_and(|no| row.from == no.0);
        let got = disk.of_segment(seq).any(|(to, delivery)| match delivery.custody {
            Some(hop) => no.is_some_and(|no| no.0 == hop),
            None => Some(to) == no && delivery.state == State::Acked,
        });
        let excused = no.is_some_and(|no| self.site.excuses(seq, no)) || self.site.is_harmed(seq);
        demand(gave || got || excused, "I11", id, || {
            format!("it is offered to {name} for a repair, which never had it")
        })?;
        self.same_segment(seq, &name, offer)
    }
}
