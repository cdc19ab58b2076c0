//! Where a segment goes from here: known peers, and sites by way of them (`[[route]]`).
//!
//! A routed site has a number, windows and rows of its own; its attempts go out on the session of its
//! hop. One OFFER may serve several sites of one hop, as long as none of them was tried before: from
//! the second attempt on each asks for itself, so that the refusal for one is not the others'.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Node;
use super::accept::No;
use super::peer::Peer;
use crate::code::Refusal;
use crate::id::{Seq, SiteNo};
use crate::ledger::keys::DueKey;
use crate::ledger::rows::{DeliveryRow, SegmentRow};
use crate::limits::DESTINATIONS_MAX;
use crate::segment::Destinations;

/// Rows that the claim of one more site stages.
const CLAIM_ROWS: usize = 8;

impl Node {
    /// The site of that name, if segments from `from` that began at `origin` can go there from here:
    /// never back to where they came from or began, nor by way of it.
    pub(super) fn usable(&self, name: &str, from: SiteNo, origin: &str) -> Option<SiteNo> {
        let peer = self.sites.get(name).and_then(|site| self.peers.get(site))?;
        let hop = self.peers.get(&peer.hop())?;
        let open = hop.known && ![peer.site, hop.site].contains(&from);
        (open && ![&peer.name, &hop.name].contains(&&String::from(origin))).then_some(peer.site)
    }

    /// The sites a segment is to go to from here. `*` is every known peer; named ones may be routed.
    ///
    /// # Errors
    /// When a local client names a site that is neither known nor routed.
    pub(super) fn destinations(
        &self,
        to: &Destinations,
        from: SiteNo,
        origin: &str,
        local: bool,
    ) -> Result<Vec<SiteNo>, No> {
        let names = match to {
            Destinations::All => {
                let known = |p: &&Peer| p.known && p.site != from && p.name != origin;
                return Ok(self.peers.values().filter(known).map(|p| p.site).collect());
            }
            Destinations::Named(names) => names,
        };
        let mut sites = Vec::new();
        for name in names {
            match self.usable(name, from, origin) {
                Some(site) => sites.push(site),
                None if local && *name != self.config.name => {
                    let text =
                        format!("{name} is not among relay.known_peers and has no [[route]]");
                    return Err((Refusal::UnknownDestination, 0, text));
                }
                None => {}
            }
        }
        Ok(sites)
    }

    pub(super) fn no_way_to(&self, name: &str) -> No {
        let text = format!("{} is neither {name} nor on the way there", self.config.name);
        (Refusal::NotAddressed, 0, text)
    }

    /// What a hop is asked to serve: everybody it knows, or these sites.
    pub(super) fn asked(&self, sites: &[SiteNo], segment: &SegmentRow) -> Destinations {
        let peers = || sites.iter().filter_map(|site| self.peers.get(site));
        // `*` is for known peers; who is reached by way of another was named.
        if segment.to == Destinations::All && peers().all(|p| p.via.is_none()) {
            return Destinations::All;
        }
        Destinations::named(peers().map(|p| p.name.clone()).collect()).unwrap_or(Destinations::All)
    }

    /// Whose accept an offer to these sites tells, and under which number.
    ///
    /// Nobody is owed what began there: a delivery to the origin of the copy stems from another accept
    /// of the same content, which met the copy here. Told of its own accept, the origin would not know
    /// that it is to keep it (R1), so this site stands for the other one.
    pub(super) fn accept_behind(
        &self,
        sites: &[SiteNo],
        seq: Seq,
        segment: &SegmentRow,
    ) -> (String, u64) {
        let began_there = |site| self.peers.get(site).is_some_and(|p| p.name == segment.origin);
        if sites.iter().any(began_there) {
            return (self.config.name.clone(), seq.0);
        }
        let here = segment.origin.is_empty();
        let origin = if here { &self.config.name } else { &segment.origin };
        (origin.clone(), segment.origin_number(seq))
    }

    /// Deliveries of the same segment behind the same hop that are claimed along with `first`: never
    /// tried before, and due under the same key but for the site.
    pub(super) fn siblings(
        &mut self,
        first: &DueKey,
        row: &DeliveryRow,
        segment: &SegmentRow,
    ) -> Vec<(DueKey, DeliveryRow)> {
        let fresh = |row: &DeliveryRow| row.attempts == 0 && row.last_error == 0;
        let Some(peer) = self.peers.get(&first.peer).filter(|_| fresh(row)) else {
            return Vec::new();
        };
        if peer.via.is_none() && segment.to == Destinations::All {
            return Vec::new();
        }
        let hop = peer.hop();
        let direct_too = segment.to != Destinations::All;
        let behind = |p: &&Peer| {
            let asked = p.via == Some(hop) || (p.site == hop && direct_too);
            asked && p.site != first.peer && !p.held
        };
        let sites: Vec<SiteNo> = self.peers.values().filter(behind).map(|p| p.site).collect();
        let mut found: Vec<(DueKey, DeliveryRow)> = Vec::new();
        for site in sites {
            let full = found.len() + 1 >= DESTINATIONS_MAX;
            if full || !self.stage.room(CLAIM_ROWS * (found.len() + 2)) {
                break;
            }
            let key = DueKey { peer: site, ..*first };
            let Some(peer) = self.peers.get_mut(&site) else { continue };
            let window = peer.window(key.class);
            let Some(row) = window.get(&key).filter(|row| fresh(row)).cloned() else { continue };
            window.remove(&key);
            found.push((key, row));
        }
        found
    }
}
