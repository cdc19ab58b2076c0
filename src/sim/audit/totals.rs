//! How much was seen.

/// How much was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Segments that local clients handed in.
    pub submitted: u64,
    /// Times a local client was told that its segment is safe.
    pub queued: u64,
    /// Times a local client was told no.
    pub refused: u64,
    /// Pairs of a segment and a destination that holds it.
    pub delivered: u64,
    /// Deliveries that became Acked.
    pub acks: u64,
    /// Deliveries that were given up.
    pub dead: u64,
    /// OFFER frames that left.
    pub offers: u64,
    /// Batches that became durable.
    pub batches: u64,
    /// Their rows.
    pub rows: u64,
    /// Processes that were started, but for the first of each site.
    pub restarts: u64,
    /// Processes that were killed or lost their power.
    pub crashes: u64,
    /// Processes that stopped by themselves because their store failed.
    pub halts: u64,
    /// Processes that drained and stopped.
    pub stops: u64,
    /// Configurations that were taken while a site ran.
    pub reloads: u64,
    /// Things that the simulator destroyed.
    pub damaged: u64,
    /// Rounds of all loops.
    pub turns: u64,
    /// Times a client was told that its shard is kept.
    pub kept: u64,
    /// Shards that became NODE_STORED.
    pub stored: u64,
}

impl Totals {
    /// Adds what was seen in another world.
    pub fn add(&mut self, more: &Totals) {
        let Totals { submitted, queued, refused, delivered, acks, dead, offers, .. } = more;
        let Totals { batches, rows, restarts, crashes, halts, stops, damaged, turns, .. } = more;
        let Totals { kept, stored, reloads, .. } = more;
        for (sum, more) in [
            (&mut self.submitted, submitted),
            (&mut self.queued, queued),
            (&mut self.refused, refused),
            (&mut self.delivered, delivered),
            (&mut self.acks, acks),
            (&mut self.dead, dead),
            (&mut self.offers, offers),
            (&mut self.batches, batches),
            (&mut self.rows, rows),
            (&mut self.restarts, restarts),
            (&mut self.crashes, crashes),
            (&mut self.halts, halts),
            (&mut self.stops, stops),
            (&mut self.reloads, reloads),
            (&mut self.damaged, damaged),
            (&mut self.turns, turns),
            (&mut self.kept, kept),
            (&mut self.stored, stored),
        ] {
            *sum += more;
        }
    }
}
