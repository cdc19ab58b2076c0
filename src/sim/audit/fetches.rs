//! Fetches on the wire: only the end of its own fetch takes a shard back, or silence, or what its node says (P4).

use std::collections::{BTreeMap, BTreeSet};

use consign_core::id::ConnId;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows_pickup::{ShardRow, ShardState};

use super::Desk;
use super::pickup::{millis, show};
use super::violation::{Check, demand};

/// How a fetch stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    On(ConnId),
    /// The socket has taken all of it.
    Whole,
    Broken,
}

/// Fetches of the running process, by redemption.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    wires: BTreeMap<u64, Wire>,
    /// Tokens that were used in this boot.
    used: BTreeSet<u64>,
    gone: BTreeSet<ConnId>,
}

impl Fetches {
    /// A token is used.
    pub fn used(&mut self, redemption: u64) {
        self.used.insert(redemption);
    }

    /// A session is given the content to send.
    pub fn begins(&mut self, conn: ConnId, redemption: u64) {
        let wire = if self.gone.contains(&conn) { Wire::Broken } else { Wire::On(conn) };
        self.wires.insert(redemption, wire);
    }

    /// A connection says that a fetch is over, and whether whole; or is gone itself.
    pub fn over(&mut self, conn: ConnId, end: Option<(u64, bool)>) {
        match end {
            Some((redemption, whole)) => {
                let wire = if whole { Wire::Whole } else { Wire::Broken };
                self.wires.insert(redemption, wire);
            }
            None => {
                self.gone.insert(conn);
                let mine = self.wires.values_mut().filter(|wire| **wire == Wire::On(conn));
                mine.for_each(|wire| *wire = Wire::Broken);
            }
        }
    }

    /// Whether a fetch of this boot may have broken off: one whose answer never left has no wire.
    fn is_broken(&self, redemption: u64) -> bool {
        match self.wires.get(&redemption) {
            Some(wire) => *wire == Wire::Broken,
            None => self.used.contains(&redemption),
        }
    }
}

impl Desk<'_> {
    /// A shard that was in transit is owed again.
    pub(super) fn taken_back(&self, shard: &ShardKey, old: &ShardRow, new: &ShardRow) -> Check {
        // Its fetch was whole: only long silence takes it back, and an ack (P4).
        let receiving = old.state == ShardState::NodeReceiving;
        let whole = receiving && self.world.quay.has_acked(self.ix, old.redemption, true);
        let grace = self.site.least(|config| millis(config.buffer.transit_grace));
        let silent = old.progress_at.saturating_add(grace) <= new.since;
        let counted = new.failed_acks > old.failed_acks;
        demand(!whole || silent || counted, "I5", None, || {
            format!("{} is taken back from {}, which has it whole", show(shard), old.redemption)
        })?;
        let broken = self.site.pickup.fetches.is_broken(old.redemption);
        demand(!receiving || silent || counted || broken, "I5", None, || {
            let fetch = self.site.pickup.fetches.wires.get(&old.redemption);
            format!("{} is taken back, and its fetch {} is {fetch:?}", show(shard), old.redemption)
        })?;
        let said = self.world.quay.has_acked(self.ix, old.redemption, false);
        demand(!counted || said, "I5", None, || {
            let redemption = old.redemption;
            format!("{} counts a failed ack of {redemption}, and there was none", show(shard))
        })
    }
}
