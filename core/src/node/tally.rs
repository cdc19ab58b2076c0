//! What is counted for metrics since the start. A step of a segment, a delivery or a shard counts when the
//! batch that makes it true is durable, and is forgotten with a batch that fails; durations are differences
//! of the times the node is given.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::Node;
use super::types::Note;
use crate::code::{Cause, codes};
use crate::histogram::Histogram;
use crate::id::SiteNo;
use crate::ledger::rows::{CounterRow, DeliveryRow, Loss, SegmentRow, State};
use crate::ledger::rows_pickup::ShardState;
use crate::time::UnixMillis;

codes! {
    /// Where a segment came from.
    pub enum Source {
        /// A local client.
        Local = 0, "local";
        /// A peer.
        Peer = 1, "peer";
        /// A watched directory.
        Watch = 2, "watch";
    }
}

codes! {
    /// What an attempt came to.
    pub enum Ending {
        /// The peer holds it durably.
        Delivered = 0, "delivered";
        /// A hop has custody; the site's receipt is waited for.
        HandedOn = 1, "handed_on";
        /// It failed and will be tried again.
        Failed = 2, "failed";
        /// It failed and is a dead letter.
        Dead = 3, "dead";
        /// The peer needs it no more.
        Settled = 4, "settled";
    }
}

codes! {
    /// What became of dead letters by an operator's word.
    pub enum Operation {
        /// Queued again.
        Retry = 0, "retry";
        /// Struck, by a purge or because their peer is forgotten.
        Purge = 1, "purge";
    }
}

/// Counts of a site since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallied {
    /// Segments accepted and their bytes, in the order of [`Source::ALL`].
    pub accepted: [CounterRow; Source::ALL.len()],
    /// From handing a batch to the store to hearing that it is durable.
    pub commits: Histogram,
    /// From a claim to what the attempt came to.
    pub attempts: Histogram,
    /// From accepting a segment here to the committed acknowledgement or receipt.
    pub latency: Histogram,
    /// Dead letters that operators dealt with, in the order of [`Operation::ALL`].
    pub deadletters: [u64; Operation::ALL.len()],
    /// Commits after which a shard was in another state, in the order of [`ShardState::ALL`].
    pub shards: [u64; ShardState::ALL.len()],
    /// Shards given up because their content was found wrong here, and because it was gone.
    pub spoiled: [u64; 2],
    /// From a shard's first RELAY_BUFFERED to its NODE_STORED.
    pub pickup_wait: Histogram,
}

/// Counts of a peer since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTallied {
    /// Attempts that ended, in the order of [`Ending::ALL`].
    pub attempts: [u64; Ending::ALL.len()],
    /// Failures, in the order of [`Cause::ALL`].
    pub failures: [u64; Cause::ALL.len()],
}

/// Something that counts once its batch is durable. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tally {
    Accepted(Source, u64),
    Ended(SiteNo, Ending),
    Took(u64),
    Failed(SiteNo, Cause),
    Delivered(u64),
    Deadletter(Operation),
    Shard(ShardState),
    Spoiled(Loss),
    PickedUp(u64),
}

impl Node {
    /// A batch is durable: what was staged with it counts.
    pub(super) fn count(&mut self, tallies: Vec<Tally>) {
        for tally in tallies {
            self.count_one(tally);
        }
    }

    fn count_one(&mut self, tally: Tally) {
        let all = &mut self.stage.tallied;
        match tally {
            Tally::Accepted(source, bytes) => {
                if let Some(row) = all.accepted.get_mut(source as usize) {
                    row.count += 1;
                    row.bytes = row.bytes.saturating_add(bytes);
                }
            }
            Tally::Ended(site, ending) => {
                if let Some(peer) = self.peers.get_mut(&site) {
                    ending.count_in(&mut peer.tallied.attempts);
                }
            }
            Tally::Failed(site, cause) => {
                if let Some(peer) = self.peers.get_mut(&site) {
                    cause.count_in(&mut peer.tallied.failures);
                }
            }
            Tally::Took(ms) => all.attempts.observe_ms(ms),
            Tally::Delivered(ms) => all.latency.observe_ms(ms),
            Tally::Deadletter(operation) => operation.count_in(&mut all.deadletters),
            Tally::Shard(state) => state.count_in(&mut all.shards),
            Tally::Spoiled(loss) => {
                if let Some(count) = all.spoiled.get_mut(loss as usize) {
                    *count += 1;
                }
            }
            Tally::PickedUp(ms) => all.pickup_wait.observe_ms(ms),
        }
    }

    /// A delivery changes its state: it is told and counted once that is durable. `row` is as it is
    /// afterwards, `None` when it is removed.
    pub(super) fn note_delivery(
        &mut self,
        site: SiteNo,
        segment: &SegmentRow,
        from: Option<State>,
        row: Option<&DeliveryRow>,
        cause: Option<Cause>,
    ) {
        let label = self.peers.get(&site).map(|p| p.label.clone());
        let peer = label.unwrap_or_else(|| site.to_string().into());
        self.tally_delivery(site, segment, from, row, cause);
        self.stage.note(Note::Delivery {
            id: segment.id,
            peer,
            from,
            to: row.map(|r| r.state),
            cause,
            attempts: row.map_or(0, |r| r.attempts),
            bytes: segment.size,
            took: self.took(row, cause).filter(|_| ends_attempt(from, row)),
        });
    }

    fn tally_delivery(
        &mut self,
        site: SiteNo,
        segment: &SegmentRow,
        from: Option<State>,
        row: Option<&DeliveryRow>,
        cause: Option<Cause>,
    ) {
        if let Some(cause) = cause {
            self.stage.tally(Tally::Failed(site, cause));
        }
        let to = row.map(|row| row.state);
        if to == Some(State::Acked) {
            let since = UnixMillis(segment.accepted_at);
            self.stage.tally(Tally::Delivered(self.now.wall.0.saturating_sub(since.0)));
        }
        if !ends_attempt(from, row) {
            return;
        }
        let ending = match to {
            Some(State::Acked) => Ending::Delivered,
            Some(State::Deadletter) => Ending::Dead,
            Some(State::Scheduled | State::Inflight | State::Failed) => Ending::Failed,
            None => Ending::Settled,
        };
        self.attempt_ended(site, ending, row, cause);
    }

    /// An attempt is over.
    pub(super) fn attempt_ended(
        &mut self,
        site: SiteNo,
        ending: Ending,
        row: Option<&DeliveryRow>,
        cause: Option<Cause>,
    ) {
        self.stage.tally(Tally::Ended(site, ending));
        if let Some(took) = self.took(row, cause) {
            self.stage.tally(Tally::Took(took));
        }
    }

    /// How long the last attempt took, if it is over now. Of one that a start found in flight nobody knows.
    fn took(&self, row: Option<&DeliveryRow>, cause: Option<Cause>) -> Option<u64> {
        let claimed = row.and_then(|row| row.claimed_at).filter(|_| cause != Some(Cause::Restart));
        claimed.map(|at| self.now.wall.0.saturating_sub(at))
    }
}

/// Whether a step ends an attempt. What a receipt settles was one that ended when the hop took it.
fn ends_attempt(from: Option<State>, row: Option<&DeliveryRow>) -> bool {
    from == Some(State::Inflight) && row.is_none_or(|row| row.custody.is_none())
}
