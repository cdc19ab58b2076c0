//! The orderly end: nothing more is taken, what is in flight is settled, sessions are closed.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::Node;
use super::accept::Pending;
use super::types::Action;
use crate::code::{Goodbye, Refusal};
use crate::id::ConnId;
use crate::session::SessionCommand;
use crate::time::Now;

impl Node {
    pub(super) fn stop(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        self.drain_by = now.mono.after(self.config.drain_timeout);
        // What was on its way in and is whole by now is not sent a second time.
        let pending = core::mem::take(&mut self.pending);
        let (begun, rest) = pending.into_iter().partition(Pending::has_begun);
        self.pending = rest;
        self.turn_down(out);
        self.pending = begun;
        self.pickup_stop(out);
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// What waits to be taken in is refused: this site is stopping.
    pub(super) fn turn_down(&mut self, out: &mut Vec<Action>) {
        self.turn_down_acts(out);
        let no = || (Refusal::Busy, 1_000, "this site is stopping".to_string());
        for pending in core::mem::take(&mut self.pending) {
            self.drop_pending(&pending, out);
            let (refusal, retry_after, text) = no();
            self.refuse(&pending, refusal, retry_after, text, out);
        }
        for (conn, ticket, _) in core::mem::take(&mut self.reservations) {
            self.refuse_reservation(conn, ticket, no(), out);
        }
    }

    /// After a stop: once nothing is in flight and nothing staged, or time is up, sessions are closed.
    pub(super) fn drain(&mut self, now: Now, out: &mut Vec<Action>) {
        if !self.stopping {
            return;
        }
        let staged = !self.stage.batch.is_empty() || self.stage.committing();
        let sending = self.peers.values().any(|p| !p.flights.is_empty());
        let flying = sending || self.being_received() > 0;
        let waiting = !self.found.is_empty() || !self.pending.is_empty();
        let exporting = self.exports.is_busy();
        let idle = self.settlements.is_empty() && self.acts.is_idle() && !exporting;
        let idle = idle && self.pickup.is_idle();
        let quiet = !staged && !flying && !waiting && idle;
        if quiet || now.mono >= self.drain_by {
            self.drained = true;
            let conns: Vec<ConnId> = self.conns.keys().copied().collect();
            for conn in conns {
                let why = Goodbye::Stopping;
                let text = "this site is stopping".to_string();
                out.push(Action::Command(conn, SessionCommand::Close { why, text }));
            }
            out.push(Action::Drained);
        }
    }
}
