//! How fast content leaves, where that is bounded: whole pieces, with a wait before each that keeps the rate.

use std::io::{self, Read};
use std::time::{Duration, Instant};

/// The slowest rate, in bytes per second: a site gives up on bodies that are slower than `limits.min_body_rate`.
pub(super) const SLOWEST: u64 = 16 << 10;
/// Pieces in a second, so that a slow rate is not bursts with silence between.
const PIECES: u64 = 10;

/// A rate and what was used of it.
pub(super) struct Pace {
    /// Bytes per second.
    rate: u64,
    began: Instant,
    /// Since `began`: until then everything is used.
    booked: Duration,
}

impl Pace {
    /// So many bytes per second, from now on.
    pub(super) fn new(rate: u64) -> Pace {
        Pace { rate: rate.max(1), began: Instant::now(), booked: Duration::ZERO }
    }

    /// Books bytes that were read at `now`, since the beginning; how long to wait before they may leave.
    fn book(&mut self, now: Duration, bytes: u64) -> Duration {
        let start = self.booked.max(now);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.booked = start.saturating_add(takes);
        self.booked.saturating_sub(now)
    }
}

/// Most bytes that leave at once.
fn piece(rate: u64) -> usize {
    usize::try_from(rate / PIECES).unwrap_or(usize::MAX).max(1)
}

/// A source that gives no more than its pace allows.
pub(super) struct Paced<'a> {
    pub(super) from: &'a mut dyn Read,
    pub(super) pace: Option<&'a mut Pace>,
}

impl Read for Paced<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(pace) = &mut self.pace else { return self.from.read(into) };
        let len = into.len().min(piece(pace.rate));
        let got = self.from.read(into.get_mut(..len).unwrap_or_default())?;
        let now = pace.began.elapsed();
        std::thread::sleep(pace.book(now, got as u64));
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bytes_wait_for_those_before_them_and_silence_is_not_saved_up() {
        let mut pace = Pace::new(1000);
        assert_eq!(pace.book(Duration::ZERO, 500), SECOND / 2);
        assert_eq!(pace.book(SECOND / 4, 500), SECOND * 3 / 4);
        assert_eq!(pace.book(SECOND * 60, 100), SECOND / 10, "a minute's silence is no burst");
        let mut fast = Pace::new(u64::MAX);
        assert_eq!(fast.book(SECOND, u64::MAX - 1), Duration::from_nanos(999_999_999));
    }

    #[test]
    fn what_is_read_is_what_there_is() {
        let content: Vec<u8> = (0..=255).cycle().take(3000).collect();
        let mut pace = Pace::new(10_000_000);
        let mut source = content.as_slice();
        let mut paced = Paced { from: &mut source, pace: Some(&mut pace) };
        let mut all = Vec::new();
        paced.read_to_end(&mut all).expect("read");
        assert_eq!(all, content);
        assert!(pace.booked >= Duration::from_micros(300), "{:?}", pace.booked);
        assert_eq!([1, 1000, u64::MAX].map(piece), [1, 100, (u64::MAX / 10) as usize]);
    }
}
