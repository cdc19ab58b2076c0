//! Durations, counted by how long they are: what histograms on the page of metrics are made from. Whole
//! numbers in arrays, so that counting costs nothing where decisions are made.

/// Upper bounds of the buckets in microseconds, inclusive. One more bucket has what is longer.
pub const BOUNDS: [u64; 20] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
    21_600_000_000,
    86_400_000_000,
];

/// Durations since the start, by bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BOUNDS.len() + 1],
    sum: u64,
}

impl Histogram {
    /// Counts a duration, in microseconds.
    pub fn observe(&mut self, micros: u64) {
        let at = BOUNDS.partition_point(|bound| *bound < micros);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(micros);
    }

    /// The same, in milliseconds.
    pub fn observe_ms(&mut self, millis: u64) {
        self.observe(millis.saturating_mul(1_000));
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together, in microseconds.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Each bound, in microseconds, with how many were not longer.
    pub fn within(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut within = 0;
        BOUNDS.iter().zip(&self.counts).map(move |(bound, count)| {
            within += count;
            (*bound, within)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_counts_add_up() {
        assert!(BOUNDS.windows(2).all(|pair| pair[0] < pair[1]));
        let mut histogram = Histogram::default();
        for micros in [0, 1_000, 1_001] {
            histogram.observe(micros);
        }
        histogram.observe_ms(86_400_000);
        histogram.observe_ms(86_400_001);
        let within: alloc::vec::Vec<u64> = histogram.within().map(|(_, count)| count).collect();
        assert_eq!(within[..3], [2, 3, 3]);
        assert_eq!(within[18..], [3, 4], "what is longer than all is in the count alone");
        assert_eq!(histogram.count(), 5);
        assert_eq!(histogram.sum(), 2_001 + 172_800_001_000);
        let mut both = histogram;
        both.merge(&histogram);
        assert_eq!((both.count(), both.sum()), (10, 2 * histogram.sum()));
        histogram.observe_ms(u64::MAX);
        assert_eq!((histogram.count(), histogram.sum()), (6, u64::MAX));
    }
}
