//! What may go wrong in a network, and how often.

use crate::sim::rng::Rng;

/// Largest offset, as a power of two, at which a connection meets its fate: 16 MiB.
const OFFSET_BITS: u64 = 24;

/// How often what goes wrong, in millionths. All zero is a perfect network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetFaults {
    /// Of connects: refused, as by a host that does not listen (F21).
    pub refused: u32,
    /// Of connects: never answered (F21).
    pub unanswered: u32,
    /// Of connects: no route, told at once (F21).
    pub unroutable: u32,
    /// Of each direction of a connection: both ends are reset once a number of bytes has crossed (F22).
    pub resets: u32,
    /// Of resets seen by an open end: what arrived and was not read is lost too.
    pub reset_drops: u32,
    /// Of each direction of a connection: once a number of bytes has crossed, nothing crosses any more
    /// in either direction, and nobody is told (F23).
    pub silences: u32,
    /// Of each link in a virtual minute: one direction, or both, is down for 1 to 120 s (F24).
    pub cuts: u32,
    /// Of each virtual minute: a random half of the links is clogged one by one, and unclogged in
    /// another order within 70 s (F24).
    pub clogs: u32,
    /// Of each link in a virtual minute: for 1 to 60 s, everything takes 0.1 to 10 s longer (F25).
    pub bursts: u32,
    /// Of flights: a packet is lost and sent again, 200 ms or more later (F25).
    pub losses: u32,
    /// Of each direction of a connection: one byte a second (F27).
    pub drips: u32,
}

impl NetFaults {
    /// A perfect network.
    pub const NONE: NetFaults = NetFaults {
        refused: 0,
        unanswered: 0,
        unroutable: 0,
        resets: 0,
        reset_drops: 0,
        silences: 0,
        cuts: 0,
        clogs: 0,
        bursts: 0,
        losses: 0,
        drips: 0,
    };

    /// The most of everything that [`NetFaults::draw`] draws.
    pub const MOST: NetFaults = NetFaults {
        refused: 50_000,
        unanswered: 50_000,
        unroutable: 50_000,
        resets: 20_000,
        reset_drops: 500_000,
        silences: 10_000,
        cuts: 30_000,
        clogs: 30_000,
        bursts: 300_000,
        losses: 20_000,
        drips: 20_000,
    };

    /// Every rate anew, between zero and [`NetFaults::MOST`]; each kind is left out one time in four,
    /// because a fault that is always there hides what would happen without it.
    pub fn draw(rng: &mut Rng) -> NetFaults {
        let most = NetFaults::MOST;
        let mut rate = |most: u32| {
            let drawn = rng.below(u64::from(most) + 1) as u32;
            if rng.chance(250_000) { 0 } else { drawn }
        };
        NetFaults {
            refused: rate(most.refused),
            unanswered: rate(most.unanswered),
            unroutable: rate(most.unroutable),
            resets: rate(most.resets),
            reset_drops: rate(most.reset_drops),
            silences: rate(most.silences),
            cuts: rate(most.cuts),
            clogs: rate(most.clogs),
            bursts: rate(most.bursts),
            losses: rate(most.losses),
            drips: rate(most.drips),
        }
    }

    /// Whether links change by themselves as time passes.
    pub(super) fn is_windy(&self) -> bool {
        self.cuts > 0 || self.clogs > 0 || self.bursts > 0
    }

    /// What one direction of a new connection is to meet, and after how many bytes.
    pub(super) fn fate(&self, rng: &mut Rng) -> Option<(Fate, u64)> {
        let fate = if rng.chance(self.resets) {
            Fate::Reset
        } else if rng.chance(self.silences) {
            Fate::Silence
        } else {
            return None;
        };
        // Evenly over magnitudes, so that greetings are cut as often as bulk.
        let magnitude = rng.between(0, OFFSET_BITS);
        Some((fate, rng.between(1, 1 << magnitude)))
    }
}

/// What happens to a connection at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Both ends are reset.
    Reset,
    /// Nothing crosses any more.
    Silence,
}
