//! Signs of life: when to ask for one, when to give up, and how often to give one.

use core::time::Duration;

use super::fault::PeerFault;
use crate::time::Instant;

/// PINGs that are answered at once; after that one each [`PING_EVERY`].
const PINGS_MAX: u32 = 64;
/// How fast the right to another PING comes back.
const PING_EVERY: Duration = Duration::from_millis(100);

/// What to do about a peer's silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// Nothing.
    Bearable,
    /// Send a PING with this payload.
    Ask([u8; 8]),
    /// Give up.
    Dead,
}

/// The clock of a peer's signs of life.
#[derive(Clone, Debug)]
pub(super) struct Keepalive {
    ping_after: Duration,
    dead_after: Duration,
    heard: Instant,
    /// A PING is out since the peer was last heard.
    asked: bool,
    pings_sent: u64,
    pings: u32,
    refilled: Instant,
}

impl Keepalive {
    pub(super) fn new(ping_after: Duration, dead_after: Duration) -> Keepalive {
        Keepalive {
            ping_after,
            dead_after,
            heard: Instant::ZERO,
            asked: false,
            pings_sent: 0,
            pings: PINGS_MAX,
            refilled: Instant::ZERO,
        }
    }

    /// Bytes have arrived.
    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
        self.asked = false;
    }

    /// Whether the peer gives signs of life: no PING of ours is unanswered.
    pub(super) fn is_live(&self) -> bool {
        !self.asked
    }

    pub(super) fn next_deadline(&self) -> Instant {
        let dead = self.heard.after(self.dead_after);
        if self.asked { dead } else { dead.min(self.heard.after(self.ping_after)) }
    }

    pub(super) fn check(&mut self, now: Instant) -> Silence {
        if now >= self.heard.after(self.dead_after) {
            return Silence::Dead;
        }
        if self.asked || now < self.heard.after(self.ping_after) {
            return Silence::Bearable;
        }
        self.asked = true;
        self.pings_sent = self.pings_sent.wrapping_add(1);
        Silence::Ask(self.pings_sent.to_be_bytes())
    }

    /// The peer asks for a sign of life.
    pub(super) fn asked(&mut self, now: Instant) -> Result<(), PeerFault> {
        let earned = now.since(self.refilled).as_nanos() / PING_EVERY.as_nanos();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.pings = self.pings.saturating_add(earned).min(PINGS_MAX);
            self.refilled = now;
        }
        self.pings = self.pings.checked_sub(1).ok_or(PeerFault::Pings { limit: PINGS_MAX })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
