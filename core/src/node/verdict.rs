//! What the end of an attempt comes to: whose fault it was, and when to try again (DESIGN 3.1-3.3).

use alloc::string::ToString;
use core::time::Duration;

use super::Node;
use super::stage::Verdict;
use crate::code::{Cause, Refusal};
use crate::id::{ConnId, Seq, SiteNo, TransferNo};
use crate::plant::Plant;
use crate::schedule::jitter_key;
use crate::session::Outcome;
use crate::store::StoreFault;
use crate::time::Now;

impl Node {
    /// The end of an attempt as the session saw it. One offer may have been for several sites.
    pub(super) fn outcome(
        &mut self,
        now: Now,
        conn: ConnId,
        transfer: TransferNo,
        outcome: Outcome,
    ) {
        let Some(session) = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut()) else { return };
        let (hop, epoch) = (session.site, session.epoch);
        // It is answered: the peer may be offered another.
        let Some((seq, sites)) = session.transfers.remove(&transfer) else {
            // Not an attempt: what was wanted, or what somebody else wanted.
            return self.want_answered(conn, transfer, &outcome);
        };
        self.heard_of(now, hop, &outcome);
        let shared = sites.len() > 1;
        for site in sites {
            let mut verdict = self.verdict(now, hop, site, seq, &outcome);
            // Which of them it was for, nobody knows: each asks for itself.
            if shared && matches!(outcome, Outcome::Rejected { .. }) {
                if let Verdict::Dead(cause) = verdict {
                    verdict = alone(now, cause);
                } else if verdict == Verdict::Settled {
                    verdict = alone(now, Cause::Loop);
                }
            }
            self.settle_later(site, seq, epoch, verdict);
        }
    }

    /// What the end of an attempt says about the peer itself.
    fn heard_of(&mut self, now: Now, hop: SiteNo, outcome: &Outcome) {
        let backoff = self.backoff();
        let Some(peer) = self.peers.get_mut(&hop) else { return };
        if matches!(outcome, Outcome::Acked | Outcome::Rejected { .. }) {
            peer.answered();
        }
        match outcome {
            Outcome::Unreadable(StoreFault::Missing(_))
            | Outcome::Acked
            | Outcome::AckTimeout
            | Outcome::AckMismatch => {}
            Outcome::Unreadable(fault) => peer.errs(now, fault.to_string()),
            Outcome::Rejected { code, retry_after, text } => {
                peer.errs(now, text.clone());
                let refusal = Refusal::from_number(*code);
                if matches!(refusal, Some(Refusal::Quota | Refusal::DiskFull)) {
                    peer.refused_full(now, backoff, Duration::from_millis(*retry_after));
                }
            }
        }
    }

    /// What it comes to for one site behind `hop`.
    fn verdict(&self, now: Now, hop: SiteNo, site: SiteNo, seq: Seq, outcome: &Outcome) -> Verdict {
        let backoff = self.backoff();
        let Some(peer) = self.peers.get(&site) else { return Verdict::Dead(Cause::Missing) };
        let segment = self.book.segment(seq);
        let addressed = site == hop && segment.is_some_and(|s| s.to.addresses(&peer.name));
        let id = segment.map(|s| s.id);
        let flight = peer.flights.get(&seq);
        // It was accepted anew since it was offered: what the peer remembers is of before (R2).
        let older = flight.zip(segment).is_some_and(|(f, s)| f.number < s.origin_number(seq));
        let (attempts, spent, refused, last) = flight.map_or((0, 0, 0, 0), |f| {
            (f.row.attempts, f.row.spent, f.row.refused, f.row.last_error)
        });
        let wait = |failures: u32| {
            let key = id.map_or(0, |id| jitter_key(&id, &peer.name, attempts));
            backoff.delay(u64::from(failures).saturating_add(1), key)
        };
        let own_fault = |cause| Verdict::Failed {
            cause,
            spends: true,
            retry_at: now.wall.after(wait(spent)),
            refused: false,
        };
        match outcome {
            Outcome::Acked if site == hop || self.config.planted(Plant::R4) => Verdict::Acked,
            Outcome::Acked => Verdict::HandedOn(hop),
            Outcome::AckTimeout => own_fault(Cause::AckTimeout),
            Outcome::AckMismatch => own_fault(Cause::AckMismatch),
            Outcome::Unreadable(StoreFault::Missing(_)) => Verdict::Dead(Cause::Missing),
            Outcome::Unreadable(_) => own_fault(Cause::Unreadable),
            Outcome::Rejected { code, retry_after, .. } => {
                let asked = Duration::from_millis(*retry_after);
                let soft = |cause| Verdict::Failed {
                    cause,
                    spends: false,
                    retry_at: now.wall.after(wait(refused).max(asked)),
                    refused: true,
                };
                match Refusal::from_number(*code) {
                    Some(Refusal::Quota) => soft(Cause::Quota),
                    Some(Refusal::DiskFull) => soft(Cause::DiskFull),
                    Some(Refusal::Busy) => soft(Cause::Busy),
                    Some(Refusal::TooLarge) => Verdict::Dead(Cause::TooLarge),
                    Some(Refusal::Expired) => Verdict::Dead(Cause::Expired),
                    Some(Refusal::Invalid) => Verdict::Dead(Cause::Invalid),
                    Some(Refusal::NotAddressed) => Verdict::Dead(Cause::NotAddressed),
                    Some(Refusal::Mismatch) if last == Cause::Mismatch.number() => {
                        Verdict::Dead(Cause::Mismatch)
                    }
                    Some(Refusal::Mismatch) => own_fault(Cause::Mismatch),
                    Some(Refusal::AlreadyRelayed) if older => alone(now, Cause::Loop),
                    Some(Refusal::AlreadyRelayed)
                        if addressed || self.config.planted(Plant::R3) =>
                    {
                        Verdict::Settled
                    }
                    Some(Refusal::AlreadyRelayed) => Verdict::Dead(Cause::Loop),
                    Some(Refusal::Unknown | Refusal::UnknownDestination) | None => {
                        own_fault(Cause::Refused)
                    }
                }
            }
        }
    }
}

/// It is offered once more, at once, and at nobody's cost.
fn alone(now: Now, cause: Cause) -> Verdict {
    Verdict::Failed { cause, spends: false, retry_at: now.wall, refused: false }
}
