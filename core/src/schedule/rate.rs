//! A pace for content: so many bytes per second, in whole numbers.

use core::time::Duration;

use crate::limits::INLINE_MAX;
use crate::time::Instant;

const NANOS: u128 = 1_000_000_000;

/// A bucket of tokens, one per byte. It starts empty: whoever connects anew brings no burst along, so
/// over any time, however many sessions it spans, no more is sent than the rate allows for that time
/// and one burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second, at least 1.
    rate: u64,
    /// Tokens times 10⁹, so that no rounding adds up.
    level: u128,
    at: Instant,
}

impl Pace {
    /// A pace of `rate` bytes per second (0 counts as 1) from `now` on, nothing saved.
    #[must_use]
    pub fn new(rate: u64, now: Instant) -> Pace {
        Pace { rate: rate.max(1), level: 0, at: now }
    }

    /// Bytes that may be sent at once after a pause: one second's worth, or the largest body that
    /// cannot be cut.
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.rate.max(INLINE_MAX as u64)
    }

    /// How long a piece should be at most, so that others have their turn four times a second, if the
    /// rate allows that at all.
    #[must_use]
    pub fn piece(&self) -> usize {
        usize::try_from(self.rate / 4).unwrap_or(usize::MAX).max(4096)
    }

    /// Time passes. A `now` earlier than one seen before counts as that one.
    pub fn advance(&mut self, now: Instant) {
        let passed = now.0.saturating_sub(self.at.0);
        self.at = self.at.max(now);
        let gained = u128::from(passed) * u128::from(self.rate);
        self.level = self.level.saturating_add(gained).min(u128::from(self.burst()) * NANOS);
    }

    /// Whether `bytes` may go now. More than a burst may go once a burst is saved, and never twice.
    #[must_use]
    pub fn allows(&self, bytes: u64) -> bool {
        self.level >= self.price(bytes)
    }

    /// `bytes` were sent.
    pub fn spend(&mut self, bytes: u64) {
        self.level = self.level.saturating_sub(self.price(bytes));
    }

    /// When `bytes` may go, if not now.
    #[must_use]
    pub fn opens_at(&self, bytes: u64) -> Option<Instant> {
        let short = self.price(bytes).checked_sub(self.level).filter(|short| *short > 0)?;
        let nanos = short.div_ceil(u128::from(self.rate));
        Some(self.at.after(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))))
    }

    fn price(&self, bytes: u64) -> u128 {
        u128::from(bytes.min(self.burst())) * NANOS
    }
}

#[cfg(test)]
mod tests;
