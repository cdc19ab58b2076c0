//! Repair: content goes back to whoever gave it, and again to whoever got it, when they ask for it.

use consign_core::id::ConnId;
use consign_core::ledger::rows::State;
use consign_core::wire::{Offer, Wanted};

use super::Desk;
use super::violation::{Check, demand};
use crate::sim::seen::SiteIx;

impl Desk<'_> {
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
