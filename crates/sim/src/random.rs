//! Pseudo-random numbers of a simulation, the same for the same seed.

use packet::random::SplitMix64;
pub(crate) use packet::random::mixed;

#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    /// One of many series that a seed stands for.
    pub(crate) fn new(seed: u64, series: u64) -> Random {
        Random(SplitMix64::new(mixed(seed).wrapping_add(mixed(series ^ 0x9e37_79b9_7f4a_7c15))))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        (((self.next() >> 32) * u64::from(limit)) >> 32) as u32
    }

    /// A number above 0 and up to 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A number between two, all orders of magnitude alike.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.fraction())
    }

    /// How long to wait for what comes at random, once in `mean` on average.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.fraction().ln()
    }
}
