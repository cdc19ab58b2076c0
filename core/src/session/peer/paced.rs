//! What a session's content waits for when its peer has a `rate_limit`.

use crate::schedule::Pace;
use crate::time::Instant;

/// A pace, or none, and when it lets the next piece go.
#[derive(Clone, Debug, Default)]
pub(super) struct Paced {
    pace: Option<Pace>,
    /// Set while a piece waits for nothing but the pace.
    until: Option<Instant>,
}

impl Paced {
    /// At most `rate` bytes per second from now on. Returns how long a piece may be.
    pub(super) fn set(&mut self, now: Instant, rate: u64) -> usize {
        let pace = Pace::new(rate, now);
        self.pace = Some(pace);
        pace.piece()
    }

    /// There may be something to send.
    pub(super) fn begin(&mut self, now: Instant) {
        self.until = None;
        if let Some(pace) = &mut self.pace {
            pace.advance(now);
        }
    }

    /// Spends `bytes`, if they may go now.
    pub(super) fn pay(&mut self, bytes: u64) -> bool {
        let Some(pace) = &mut self.pace else { return true };
        let may = pace.allows(bytes);
        if may {
            pace.spend(bytes);
        }
        may
    }

    /// `bytes` are ready and may not go yet.
    pub(super) fn wait(&mut self, bytes: u64) {
        self.until = self.pace.and_then(|pace| pace.opens_at(bytes));
    }

    /// When what waits may go, if that is still to come.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Once the time has come, it is the peer or the link that things wait for.
    pub(super) fn settle(&mut self, now: Instant) {
        self.until = self.until.filter(|at| *at > now);
    }
}
