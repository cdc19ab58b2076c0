//! Who may claim now, and how much: sessions, contact windows, rates.

use super::peer::Peer;
use super::{Mode, Node};
use crate::id::{ConnId, SiteNo, TransferNo};
use crate::time::{Instant, Now};

impl Node {
    /// Counts what is under way to peers that have a rate, for the claims of this turn.
    pub(super) fn count_ahead(&mut self) {
        for id in self.peers.values().filter_map(|p| p.session) {
            let session = self.conns.get_mut(&id).and_then(|c| c.peer.as_mut());
            let Some(session) = session.filter(|s| s.ahead.is_bounded()) else { continue };
            session.ahead = session.ahead.emptied();
            for segment in session.transfers.values().filter_map(|(seq, _)| self.book.segment(*seq))
            {
                session.ahead.add(segment.meta.class, segment.size);
            }
        }
    }

    /// Whether there is room for what claims lead to. While space is short, what has left makes the room for what is to
    /// leave: it goes first, and no more is under way than batches can end.
    fn may_claim(&self, now: Now, peer: &Peer) -> bool {
        match self.mode {
            Mode::Normal => true,
            Mode::Rejudge(_) | Mode::Halted => false,
            Mode::Tight(_) => {
                peer.flights.len() < self.stage.width.attempts() && !self.lets_go(now)
            }
        }
    }

    /// The session that may claim for a peer now.
    pub(super) fn claimant(&self, now: Now, site: SiteNo) -> Option<ConnId> {
        let peer = self.peers.get(&site).filter(|peer| self.may_claim(now, peer))?;
        let hop = self.peers.get(&peer.hop())?;
        let conn = hop.session?;
        let session = self.conns.get(&conn)?.peer.as_ref()?;
        let limits = session.ready.as_ref()?;
        let most = hop.trust.min(limits.max_offers as usize);
        let open = !peer.held
            && !hop.held
            && hop.contact.is_open(now.wall)
            && now.mono >= hop.claim_at
            && now.mono < session.retires_at
            && session.transfers.len() < most;
        open.then_some(conn)
    }

    /// Content of an attempt is on its way.
    pub(super) fn progress(&mut self, conn: ConnId, transfer: TransferNo, sent: u64) {
        let Some(session) = self.conns.get(&conn).and_then(|c| c.peer.as_ref()) else { return };
        let Some((seq, sites)) = session.transfers.get(&transfer) else { return };
        for site in sites {
            let flight = self.peers.get_mut(site).and_then(|p| p.flights.get_mut(seq));
            if let Some(flight) = flight {
                flight.sent = sent;
            }
        }
    }

    /// When the next delivery of a live session is due that is not due now.
    pub(super) fn due_deadline(&self) -> Option<Instant> {
        if self.stopping {
            return None;
        }
        let due = self.peers.values().filter(|p| !p.held).filter_map(|p| {
            let hop = self.peers.get(&p.hop()).filter(|hop| hop.session.is_some() && !hop.held)?;
            let opens = hop.contact.opens_at(self.now.wall).unwrap_or_default();
            let due = self.now.instant_of(p.next_due()?.max(opens)).max(hop.claim_at);
            // What is due and not claimed waits for an input: an outcome, a commit, a HELLO.
            (due > self.now.mono).then_some(due)
        });
        due.min()
    }
}
