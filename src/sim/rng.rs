//! The world's only source of chance: a small seeded generator, split into streams so that a draw in
//! one part does not shift the draws of another.

/// A stream of random numbers (xoshiro256++ seeded by splitmix64; Blackman and Vigna 2019).
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        let mut state = seed;
        Rng(std::array::from_fn(|_| splitmix(&mut state)))
    }

    /// A stream of its own for `part` of the world.
    #[must_use]
    pub fn stream(seed: u64, part: u64) -> Rng {
        let mut state = part;
        Rng::new(seed ^ splitmix(&mut state))
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait)] // It never ends, and lends itself to no adapters.
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let out = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        out
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(n);
        (wide >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low.saturating_add(self.below(high.saturating_sub(low).saturating_add(1)))
    }

    /// True `per_million` times out of a million. It draws at any rate, also at none: a kind of fault
    /// that is left out and would not have occurred changes nothing else.
    pub fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }

    /// One of them.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_parts_have_their_own() {
        let draw = |mut rng: Rng| (0..5).map(|_| rng.next()).collect::<Vec<_>>();
        assert_eq!(draw(Rng::new(7)), draw(Rng::new(7)));
        assert_ne!(draw(Rng::new(7)), draw(Rng::new(8)));
        assert_ne!(draw(Rng::stream(7, 1)), draw(Rng::stream(7, 2)));
    }

    #[test]
    fn draws_stay_in_their_bounds_and_reach_them() {
        let mut rng = Rng::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.between(3, 6)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&6)));
        assert_eq!(rng.below(0), 0);
        assert!(!rng.chance(0));
        assert!(rng.chance(1_000_000));
    }

    #[test]
    fn what_does_not_happen_costs_the_stream_the_same_at_every_rate() {
        let after = |rate| {
            let mut rng = Rng::new(1);
            assert!(!rng.chance(rate));
            rng.next()
        };
        assert_eq!(after(0), after(1));
    }
}
