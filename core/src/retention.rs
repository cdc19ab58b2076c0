//! How long a segment is kept here: one pure function over its row, its deliveries and the policy
//! (DESIGN 3.5; R1, R3, R5, G1, I9).
//!
//! The node asks it whenever something happened that may let a copy go, and again before it removes
//! one; nothing else decides about that, but for an operator's release.

use core::time::Duration;

use crate::config::Config;
use crate::ledger::rows::{DeliveryRow, SegmentRow, State};
use crate::plant::Plant;
use crate::time::UnixMillis;

/// What the inbox rules of this site have done with a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exports {
    /// No rule takes it.
    #[default]
    NoRules,
    /// A rule that takes it is not done with it.
    Pending,
    /// Every rule that takes it is done, the last at this time (ms).
    Done(UnixMillis),
}

/// What is kept for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `relay.evict_on_relay`
    pub evict_on_relay: bool,
    /// `relay.keep_relayed`
    pub keep_relayed: Duration,
    /// `storage.keep`
    pub keep: Duration,
    /// A rule that is dropped on purpose.
    #[doc(hidden)]
    pub plant: Option<Plant>,
}

impl Policy {
    /// The policy of a configuration.
    #[must_use]
    pub const fn of(config: &Config) -> Policy {
        Policy {
            evict_on_relay: config.evict_on_relay,
            keep_relayed: config.keep_relayed,
            keep: config.keep,
            plant: config.plant,
        }
    }
}

/// A segment whose future is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Its row.
    pub row: &'a SegmentRow,
    /// Its deliveries: one for each site that is still required.
    pub deliveries: &'a [DeliveryRow],
    /// What the inbox rules have done with it.
    pub exports: Exports,
    /// Whether a promise that has not left yet rests on it (G1).
    pub pinned: bool,
    /// Whether a shard's pickup needs its content.
    pub wanted: bool,
    /// Whether room is needed: what may go later goes now.
    pub short: bool,
    /// Effective time.
    pub now: UnixMillis,
}

/// Why a copy stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A promise to somebody rests on it and has not left.
    Pinned,
    /// An operator holds it.
    Held,
    /// A shard's pickup needs it.
    Wanted,
    /// An attempt is under way, or a hop has custody.
    Inflight,
    /// A delivery is owed.
    Owed,
    /// A delivery was given up; an operator may try it again.
    Dead,
    /// Nobody is left who was to get it.
    Unplaced,
    /// It was accepted here, and nothing says that copies go once they are relayed.
    Own,
    /// It is for this site, and no inbox rule has it yet.
    Unused,
}

/// What becomes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays until something happens.
    Keep(Why),
    /// It stays until then, if nothing happens before.
    NotBefore(UnixMillis),
    /// It has expired: what waits to be delivered is given up first.
    GiveUp,
    /// It goes, and its id is remembered.
    Evict,
    /// It goes, and nothing is remembered.
    Release,
    /// It goes because its time is over.
    Expire,
}

/// What becomes of a copy now.
#[must_use]
pub fn fate(case: &Case<'_>, policy: &Policy) -> Fate {
    let Case { row, pinned, wanted, .. } = *case;
    if pinned {
        return Fate::Keep(Why::Pinned);
    }
    if row.held {
        return Fate::Keep(Why::Held);
    }
    // A hop that has custody keeps its row Inflight.
    let inflight = case.any(State::Inflight);
    let evict_at = evict_at(case, policy);
    if let Some(at) = evict_at.filter(|_| !inflight && !wanted)
        && case.is_time(at)
    {
        return Fate::Evict;
    }
    let over = row.meta.expires().is_some_and(|at| at <= case.now);
    let waiting = case.any(State::Scheduled) || case.any(State::Failed);
    if over && waiting {
        return Fate::GiveUp;
    }
    if wanted {
        return Fate::Keep(Why::Wanted);
    }
    if inflight {
        return Fate::Keep(Why::Inflight);
    }
    if over {
        return if case.any(State::Deadletter) { Fate::Keep(Why::Dead) } else { Fate::Expire };
    }
    if let Some(at) = evict_at {
        return Fate::NotBefore(at);
    }
    if waiting {
        return Fate::Keep(Why::Owed);
    }
    if case.any(State::Deadletter) {
        return Fate::Keep(Why::Dead);
    }
    // An operator said so, and nothing is owed any more.
    if row.let_go.is_some() {
        return Fate::Release;
    }
    if row.here {
        return match case.exports {
            Exports::Done(at) => case.release(at.max(case.last()).after(policy.keep)),
            Exports::NoRules | Exports::Pending => Fate::Keep(Why::Unused),
        };
    }
    if row.from == 0 {
        return Fate::Keep(Why::Own);
    }
    // In transit: every site it was owed to has it, and there was one (R3).
    if row.required == 0 || case.deliveries.is_empty() || row.acked < row.required {
        return Fate::Keep(Why::Unplaced);
    }
    case.release(case.last().after(policy.keep))
}

/// When a copy is evicted, if it is to be.
fn evict_at(case: &Case<'_>, policy: &Policy) -> Option<UnixMillis> {
    let relayed = case.row.relayed_at.filter(|_| may_evict(case.row, policy))?;
    (case.exports != Exports::Pending).then(|| UnixMillis(relayed).after(policy.keep_relayed))
}

/// Whether a copy may be evicted once its time has come: relayed, and not for this site itself (R1).
#[must_use]
pub const fn may_evict(row: &SegmentRow, policy: &Policy) -> bool {
    policy.evict_on_relay
        && (!row.here || Plant::R1.is_in(policy.plant))
        && row.acked > 0
        && row.relayed_at.is_some()
}

/// Whether a copy is only on its way through this site and everybody has it: it is released by itself.
#[must_use]
pub const fn is_through(row: &SegmentRow) -> bool {
    !row.here && row.from != 0 && row.required > 0 && row.acked >= row.required
}

impl Case<'_> {
    fn any(&self, state: State) -> bool {
        self.deliveries.iter().any(|row| row.state == state)
    }

    /// When the last delivery was settled, or else when it came.
    fn last(&self) -> UnixMillis {
        let settled = self.deliveries.iter().map(|row| row.since).max();
        UnixMillis(settled.unwrap_or(0).max(self.row.accepted_at))
    }

    /// Whether that time has come, or room is needed.
    fn is_time(&self, at: UnixMillis) -> bool {
        self.short || at <= self.now
    }

    fn release(&self, at: UnixMillis) -> Fate {
        if self.is_time(at) { Fate::Release } else { Fate::NotBefore(at) }
    }
}

#[cfg(test)]
mod tests;
