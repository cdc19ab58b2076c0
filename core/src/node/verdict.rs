//! What the end of an attempt comes to: whose fault it was, and when to try again (DESIGN 3.1-3.3).

use alloc::string::ToString;
use core::time::Duration;

use super::Node;
use super::stage::Verdict;
use crate::code::{Cause, Refusal};
use crate::id::{ConnId, Seq, SiteNo, TransferNo};
use crate::schedule::jitter_key;
use crate::session::Outcome;
use crate::store::StoreFault;
use crate::time::Now;

impl Node {
    /// The end of an attempt as the session saw it.
    pub(super) fn outcome(
        &mut self,
        now: Now,
        conn: ConnId,
        transfer: TransferNo,
        outcome: Outcome,
    ) {
        let Some(session) = self.conns.get(&conn).and_then(|c| c.peer.as_ref()) else { return };
        let (site, epoch) = (session.site, session.epoch);
        let Some(seq) = session.transfers.get(&transfer).copied() else { return };
        let answered = matches!(outcome, Outcome::Acked | Outcome::Rejected { .. });
        if let Some(peer) = self.peers.get_mut(&site).filter(|_| answered) {
            peer.answered();
        }
        let verdict = self.verdict(now, site, seq, outcome);
        self.settle_later(site, seq, epoch, verdict);
    }

    pub(super) fn verdict(
        &mut self,
        now: Now,
        site: SiteNo,
        seq: Seq,
        outcome: Outcome,
    ) -> Verdict {
        let backoff = self.backoff();
        let name = self.peers.get(&site).map(|p| p.name.clone()).unwrap_or_default();
        let segment = self.book.segment(seq);
        let addressed = segment.is_some_and(|s| s.to.addresses(&name));
        let id = segment.map(|s| s.id);
        let Some(peer) = self.peers.get_mut(&site) else { return Verdict::Dead(Cause::Missing) };
        let row = peer.flights.get(&seq).map(|f| f.row.clone());
        let (attempts, spent, refused, last) =
            row.map_or((0, 0, 0, 0), |r| (r.attempts, r.spent, r.refused, r.last_error));
        let wait = |failures: u32| {
            let key = id.map_or(0, |id| jitter_key(&id, &name, attempts));
            backoff.delay(u64::from(failures).saturating_add(1), key)
        };
        let own_fault = |cause| Verdict::Failed {
            cause,
            spends: true,
            retry_at: now.wall.after(wait(spent)),
            refused: false,
        };
        match outcome {
            Outcome::Acked => Verdict::Acked,
            Outcome::AckTimeout => own_fault(Cause::AckTimeout),
            Outcome::AckMismatch => own_fault(Cause::AckMismatch),
            Outcome::Unreadable(StoreFault::Missing(_)) => Verdict::Dead(Cause::Missing),
            Outcome::Unreadable(fault) => {
                peer.last_error = fault.to_string();
                own_fault(Cause::Unreadable)
            }
            Outcome::Rejected { code, retry_after, text } => {
                let asked = Duration::from_millis(retry_after);
                let soft = |cause| Verdict::Failed {
                    cause,
                    spends: false,
                    retry_at: now.wall.after(wait(refused).max(asked)),
                    refused: true,
                };
                peer.last_error = text;
                match Refusal::from_number(code) {
                    Some(Refusal::Quota) => {
                        peer.refused_full(now, backoff, asked);
                        soft(Cause::Quota)
                    }
                    Some(Refusal::DiskFull) => {
                        peer.refused_full(now, backoff, asked);
                        soft(Cause::DiskFull)
                    }
                    Some(Refusal::Busy) => soft(Cause::Busy),
                    Some(Refusal::TooLarge) => Verdict::Dead(Cause::TooLarge),
                    Some(Refusal::Expired) => Verdict::Dead(Cause::Expired),
                    Some(Refusal::Invalid) => Verdict::Dead(Cause::Invalid),
                    Some(Refusal::NotAddressed) => Verdict::Dead(Cause::NotAddressed),
                    Some(Refusal::Mismatch) if last == Cause::Mismatch.number() => {
                        Verdict::Dead(Cause::Mismatch)
                    }
                    Some(Refusal::Mismatch) => own_fault(Cause::Mismatch),
                    Some(Refusal::AlreadyRelayed) if addressed => Verdict::Settled,
                    Some(Refusal::AlreadyRelayed) => Verdict::Dead(Cause::Loop),
                    Some(Refusal::Unknown | Refusal::UnknownDestination) | None => {
                        own_fault(Cause::Refused)
                    }
                }
            }
        }
    }
}
