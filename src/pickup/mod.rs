//! The other side of pickup: what clients and nodes do over HTTP and WebSocket.
//!
//! Blocking, with time limits everywhere; framing, signatures and messages are core's own. [`upload`]
//! is a client that hands a shard in, [`node`] a node that picks shards up for ever.

pub mod http;
pub mod node;
pub mod source;
pub mod upload;
pub mod url;
mod wire;

#[cfg(test)]
pub(crate) mod testing;

use std::time::Duration;

use crate::exit::{Exit, Failure};

/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How long to wait before try number `attempt` (from 0): doubles from `first`, at most a minute, and
/// between half and all of that by chance, so that many who lost one relay do not come back at once.
#[must_use]
pub fn pause(first: Duration, attempt: u32, chance: u8) -> Duration {
    let doubled = 2u32.checked_pow(attempt).and_then(|factor| first.checked_mul(factor));
    let most = doubled.map_or(PAUSE_MAX, |pause| pause.min(PAUSE_MAX));
    most / 2 + most / 2 * u32::from(chance) / 255
}

/// Fills an array by chance.
///
/// # Errors
/// When the system gives no randomness.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|why| {
        Failure::new(Exit::Failed, "CN0625", format!("the system gives no randomness: {why}"))
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_never_vanish() {
        let first = Duration::from_millis(500);
        assert_eq!(pause(first, 0, 255), first);
        assert_eq!(pause(first, 0, 0), first / 2);
        assert_eq!(pause(first, 3, 255), Duration::from_secs(4));
        for attempt in [6, 7, 31, 32, 64, u32::MAX] {
            for chance in [0, 1, 128, 255] {
                let pause = pause(first, attempt, chance);
                assert!(pause >= first / 2 && pause <= PAUSE_MAX, "{attempt} {chance} {pause:?}");
            }
        }
        assert_eq!(pause(first, u32::MAX, 255), PAUSE_MAX);
    }
}
