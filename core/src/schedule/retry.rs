//! Backoff as a pure function: exponential, saturating, with deterministic jitter (DESIGN 3.3).

use core::time::Duration;

use crate::id::SegmentId;

/// Bounds of a backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait; never less than this.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Backoff {
    /// The wait after the `failures`-th failure in a row (0 counts as 1): `initial` doubled for each
    /// failure after the first, plus up to half of that as jitter, at most `max`. Never decreases with
    /// `failures` for one `key`-function, never overflows.
    #[must_use]
    pub fn delay(&self, failures: u64, key: u64) -> Duration {
        let initial = millis(self.initial).max(1);
        let max = millis(self.max).max(initial);
        let doublings = failures.saturating_sub(1).min(63);
        let base = initial.saturating_mul(1u64 << doublings).min(max);
        // Half the base at most, so that the next step's base is never below this step's delay.
        let jitter = (base / 2).min(scale(base / 2, key));
        Duration::from_millis(base.saturating_add(jitter).min(max))
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// `range * key / 2^64`, without overflow.
fn scale(range: u64, key: u64) -> u64 {
    ((u128::from(range) * u128::from(key)) >> 64) as u64
}

/// Jitter of one attempt: a hash of segment, peer and attempt. No chance is involved.
#[must_use]
pub fn jitter_key(segment: &SegmentId, peer: &str, attempt: u64) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"consign backoff 1\n");
    hasher.update(&segment.0);
    hasher.update(&attempt.to_be_bytes());
    hasher.update(peer.as_bytes());
    let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
