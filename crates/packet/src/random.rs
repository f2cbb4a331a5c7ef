//! Pseudo-random numbers that depend on their seed only, the same on every machine: for spreading, sampling, tests and benches.
//! Not for secrets.

/// The distance of the states of a stream: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a number of which every bit depends on every bit of `number`.
#[inline]
pub const fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A stream of numbers (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// A number below `bound`, which is not 0. The bias is at most `bound` / 2^64.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns whether something happens that does so once in `count` times; `count` is not 0.
    pub const fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// A number from 0 on and below 1.
    pub const fn fraction(&mut self) -> f64 {
        // 53 bits give every double of this spacing.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of `choices`; `None` where there is none.
    pub fn choice<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        choices.get(self.below(choices.len() as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_reference() {
        // The first outputs for seed 1234567 of the authors' reference implementation.
        let mut random = SplitMix64::new(1_234_567);
        let stream: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(stream, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = SplitMix64::new(1);
        for bound in [1, 2, 3, 1 << 40, u64::MAX] {
            assert!((0..1000).all(|_| random.below(bound) < bound));
        }
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.fraction())));
        assert_eq!((random.choice::<u8>(&[]), random.choice(&[7])), (None, Some(&7)));
    }
}
