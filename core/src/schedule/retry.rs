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
    /// failure after the first, plus up to half of that as jitter. Once that could come to more than
    /// three quarters of `max`, it is drawn from the last quarter below `max`, so that many who wait
    /// for the same thing do not come back at the same time for ever.
    ///
    /// Never less than `initial`, never more than `max`, never overflows; for any two keys, no shorter
    /// after one more failure until that last quarter is reached, and never below it again.
    #[must_use]
    pub fn delay(&self, failures: u64, key: u64) -> Duration {
        let initial = millis(self.initial).max(1);
        let max = millis(self.max).max(initial);
        let doublings = failures.saturating_sub(1).min(63);
        let base = initial.saturating_mul(1u64 << doublings);
        let (least, most) = if base > max / 2 {
            ((max - max / 4).max(initial), max)
        } else {
            // Half the base at most, so that the next step's base is never below this step's delay.
            (base, base + base / 2)
        };
        Duration::from_millis(least + scale(most - least, key))
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
