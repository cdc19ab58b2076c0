//! Credit that this side grants: memory for received content, counted from the moment the peer may
//! send it to the moment it is needed no more.
//!
//! ```text
//!   allowance = window (granted, not yet spent) + held (spent, in memory) + returnable
//! ```
//!
//! After the allowance has shrunk, window and held may exceed it; what is freed then is withheld
//! until they fit again.

use super::fault::PeerFault;
use crate::limits::SEGMENT_MAX;

/// The receiving side's books.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grant {
    allowance: u64,
    window: u64,
    held: u64,
    /// Whether the node was told that more would help, since the last change of the allowance.
    asked: bool,
    /// Whether what can be returned should be, however little: the allowance has just grown.
    grown: bool,
}

impl Grant {
    /// Everything is granted at once, by HELLO.
    pub(super) fn new(allowance: u64) -> Grant {
        Grant { allowance, window: allowance, ..Grant::default() }
    }

    /// The peer has sent content.
    pub(super) fn spend(&mut self, bytes: u64) -> Result<(), PeerFault> {
        let left = self.window;
        self.window = left.checked_sub(bytes).ok_or(PeerFault::Overspent { bytes, left })?;
        self.held = self.held.saturating_add(bytes);
        Ok(())
    }

    /// Content that had been sent is in memory no more.
    ///
    /// # Panics
    /// When more is freed than was spent.
    pub(super) fn free(&mut self, bytes: u64) {
        assert!(bytes <= self.held, "{bytes} bytes freed of {}", self.held);
        self.held = self.held.saturating_sub(bytes);
    }

    /// The node has another allowance for this session.
    pub(super) fn resize(&mut self, allowance: u64) {
        self.grown |= allowance > self.allowance;
        self.asked &= allowance == self.allowance;
        self.allowance = allowance;
    }

    /// What to grant now: nothing until a quarter of the allowance has been freed, or a sixteenth
    /// when less than one full SEGMENT may be sent, or anything at all when nothing else is held
    /// then. So credit costs few frames and yet no sender waits for ever.
    pub(super) fn take_due(&mut self) -> Option<u64> {
        let out = self.window.saturating_add(self.held);
        let returnable = self.allowance.saturating_sub(out);
        let least = match (self.window < SEGMENT_MAX as u64, self.held) {
            (false, _) => self.allowance / 4,
            (true, 0) => 0,
            (true, _) => self.allowance / 16,
        };
        let due = returnable > 0 && (self.grown || returnable >= least);
        self.grown = false;
        if !due {
            return None;
        }
        self.window = self.window.saturating_add(returnable);
        Some(returnable)
    }

    /// Whether the node should hear, now and only once, that the window is nearly used up.
    pub(super) fn take_wants(&mut self) -> bool {
        let wants = !self.asked && self.is_low();
        self.asked |= wants;
        wants
    }

    /// Whether less than a quarter may still be sent, or less than one full SEGMENT: a sender with a
    /// full one waits then.
    pub(super) fn is_low(&self) -> bool {
        self.window < (self.allowance / 4).max(SEGMENT_MAX as u64)
    }
}

#[cfg(test)]
mod tests;
