//! Numbers that look drawn, the same for the same seed (SplitMix64; Steele, Lea and Flood, 2014).

#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// Numbers that differ little become numbers that have nothing in common.
pub(crate) fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Random {
    /// One of many series that a seed stands for.
    pub(crate) fn new(seed: u64, series: u64) -> Random {
        Random(mixed(seed).wrapping_add(mixed(series ^ 0x9e37_79b9_7f4a_7c15)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
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
