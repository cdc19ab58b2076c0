//! The node at a glance: from memory and counters, never from a scan.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::peer::Peer;
use super::types::{Action, Answer, PeerStatus, Question, Status};
use super::{Mode, Node};
use crate::config::SuccessCondition;
use crate::id::{ConnId, Seq, TransferNo};
use crate::ledger::rows::State;
use crate::session::SessionCommand;
use crate::time::{Now, UnixMillis};

const STATES: [State; 5] =
    [State::Scheduled, State::Inflight, State::Acked, State::Failed, State::Deadletter];

/// What the configuration allows, for `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Most segments (`storage.max_segments`).
    pub max_segments: Option<u64>,
    /// Largest segment in bytes (`storage.max_segment`).
    pub max_segment: Option<u64>,
    /// Bytes of the disk that stay free (`storage.min_free`).
    pub min_free: u64,
    /// When a segment for everybody counts as relayed (`relay.success_condition`).
    pub success: SuccessCondition,
}

impl Node {
    pub(super) fn question(
        &mut self,
        now: Now,
        conn: ConnId,
        ticket: TransferNo,
        question: &Question,
        out: &mut Vec<Action>,
    ) {
        if self.export_question(conn, ticket, question) {
            return;
        }
        let answer = match question {
            Question::Reload(who) => return self.reload(conn, ticket, who, out),
            Question::Ping(name) => return self.ping(conn, ticket, name, out),
            Question::LogLevel(wanted) => {
                self.log_wanted(now, wanted, out);
                Answer::Status(Box::new(self.status(now)))
            }
            Question::Status => return self.status_asked(now, conn, ticket, out),
            Question::Progress(seq) => Answer::Progress(self.sent(*seq)),
            Question::Stop => {
                self.stop(now, out);
                Answer::Stopping
            }
            // There is no rule.
            Question::InboxRun | Question::InboxRetry(_) => Answer::Exports(0),
            Question::Unwatch(rule, paths) => Answer::Unwatched(self.unwatch(*rule, paths)),
            Question::ConfirmClock => Answer::ClockConfirmed(self.confirm_clock()),
        };
        let answer = Arc::new(answer);
        out.push(Action::Command(conn, SessionCommand::Answer { ticket, answer }));
    }

    fn sent(&self, seq: Seq) -> Vec<(String, u64)> {
        let flights = self.peers.values().filter_map(|p| Some((p, p.flights.get(&seq)?)));
        flights.map(|(peer, flight)| (peer.name.clone(), flight.sent)).collect()
    }

    /// Everything `status` shows.
    #[must_use]
    pub fn status(&self, now: Now) -> Status {
        let shown = self.peers.values().filter(|p| !p.forgotten);
        Status {
            name: self.config.name.clone(),
            boot: self.stage.meta.boot,
            segments: self.stage.meta.segments,
            unplaced: self.stage.meta.unplaced,
            used: self.stage.meta.used,
            limit: self.config.max_bytes,
            allowed: Allowed {
                max_segments: self.config.max_segments,
                max_segment: self.config.max_segment,
                min_free: self.config.min_free,
                success: self.config.success_condition,
            },
            space: self.space,
            full: !matches!(self.mode, Mode::Normal) || self.short.is_some(),
            reconciling: !self.reconcile.is_done(),
            reconciled: (self.summary.checked, self.reconcile.total()),
            stopping: self.stopping,
            clock_held: self.clock_held(),
            log: self.log_asked(now),
            commits: self.stage.commits,
            tallied: self.stage.tallied,
            refusals: self.refusals,
            acts: self.acts.counts,
            quarantined: self.aside.count(),
            scrub: self.scrub.status(),
            given_up: self.exports_given_up(),
            pickup: self.pickup_status(),
            peers: shown.map(|p| self.peer_status(now, p)).collect(),
        }
    }

    fn peer_status(&self, now: Now, peer: &Peer) -> PeerStatus {
        let conn = peer.session.and_then(|c| self.conns.get(&c)).and_then(|c| c.peer.as_ref());
        let hop = self.peers.get(&peer.hop());
        let wait = peer.dial_at.max(peer.claim_at);
        let waits = wait > now.mono;
        let oldest = peer.windows.iter().filter_map(|w| w.first());
        let configured = self.config.peers.iter().find(|p| p.name == peer.name);
        let session = conn.filter(|c| c.ready.is_some()).map(|c| c.epoch);
        let accepted = |seq: Seq| self.book.segment(seq).map(|s| UnixMillis(s.accepted_at));
        PeerStatus {
            name: peer.name.clone(),
            address: peer.address.clone(),
            known: peer.known || peer.via.is_some(),
            held: peer.held,
            needs_rekey: peer.rekey,
            via: peer
                .via
                .and_then(|v| self.peers.get(&v))
                .map(|p| p.name.clone())
                .unwrap_or_default(),
            session,
            counters: STATES.map(|state| self.stage.counter(peer.site, state)),
            held_back: [State::Scheduled, State::Failed]
                .map(|state| self.stage.counter_held(peer.site, state)),
            sending: peer.flights.values().map(|f| f.sent).sum(),
            inbound: self.stage.inbound_durable(peer.site),
            inbound_quota: configured.and_then(|p| p.inbound_quota),
            retry_at: waits.then(|| now.wall.after(wait.since(now.mono))),
            opens_at: hop.and_then(|hop| hop.contact.opens_at(now.wall)),
            next_due: peer.next_due(),
            oldest: oldest
                .filter_map(|(key, _)| accepted(key.seq))
                // Accept numbers and effective time grow together: the first in flight is the oldest.
                .chain(peer.flights.keys().next().and_then(|seq| accepted(*seq)))
                .min(),
            last_error: peer.last_error.clone(),
            erred_at: peer.erred_at.filter(|_| !peer.last_error.is_empty()),
            down_since: peer.down_since.filter(|_| session.is_none()),
            last_acked: peer.last_acked,
            tallied: peer.tallied,
        }
    }
}
