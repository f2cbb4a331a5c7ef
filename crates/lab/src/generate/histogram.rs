//! A log-linear histogram of times: constant memory, constant cost, and percentiles that are at most 1/128 too high.
//!
//! Values below 256 have a bucket each. Above, each power of two is cut into 128 buckets of equal width, so that a
//! bucket is never wider than 1/128 of the values in it. The whole range of 64 bits takes 7,424 buckets, 58 KiB.

const SUBBUCKET_BITS: u32 = 7;
const SUBBUCKETS: usize = 1 << SUBBUCKET_BITS;
const BUCKETS: usize = (64 - SUBBUCKET_BITS as usize + 1) * SUBBUCKETS;

/// Counts of values by size, with exact extremes and mean.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    sum: u128,
    smallest: u64,
    largest: u64,
}

/// The bucket of a value.
#[inline(always)]
fn bucket(value: u64) -> usize {
    let magnitude = 63 - (value | 1).leading_zeros();
    let shift = magnitude.saturating_sub(SUBBUCKET_BITS);
    shift as usize * SUBBUCKETS + (value >> shift) as usize
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let shift = (bucket / SUBBUCKETS).saturating_sub(1);
    let subbucket = (bucket - shift * SUBBUCKETS) as u64;
    subbucket << shift | ((1 << shift) - 1)
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS].into(), total: 0, sum: 0, smallest: u64::MAX, largest: 0 }
    }

    #[inline]
    pub(crate) fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.sum += u128::from(value);
        self.smallest = self.smallest.min(value);
        self.largest = self.largest.max(value);
    }

    /// The smallest value; `None` when there is no value, as with the others.
    pub(crate) fn min(&self) -> Option<u64> {
        (self.total > 0).then_some(self.smallest)
    }

    pub(crate) fn max(&self) -> Option<u64> {
        (self.total > 0).then_some(self.largest)
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        (self.total > 0).then(|| self.sum as f64 / self.total as f64)
    }

    /// The value that `per_mille` thousandths of all values do not exceed (nearest rank), at most 1/128 too high.
    pub(crate) fn quantile(&self, per_mille: u64) -> Option<u64> {
        let rank = (u128::from(self.total) * u128::from(per_mille)).div_ceil(1_000).max(1);
        let mut passed = 0u128;
        let found = self.counts.iter().position(|count| {
            passed += u128::from(*count);
            passed >= rank
        })?;
        Some(upper_end(found).min(self.largest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_one_has_no_values() {
        let empty = Histogram::new();
        assert_eq!((empty.min(), empty.max(), empty.mean(), empty.quantile(500)), (None, None, None, None));
    }

    #[test]
    fn extremes() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        histogram.record(0);
        assert_eq!((histogram.min(), histogram.max()), (Some(0), Some(u64::MAX)));
        assert_eq!((histogram.quantile(500), histogram.quantile(501)), (Some(0), Some(u64::MAX)));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    /// Numbers of all magnitudes, not only large ones.
    fn any_magnitude() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(value, shift)| value >> shift)
    }

    proptest! {
        #[test]
        fn buckets_hold_their_values(value in any_magnitude()) {
            let end = upper_end(bucket(value));
            prop_assert!(end >= value && end - value <= value / 128, "{value} {end}");
            prop_assert_eq!(bucket(end), bucket(value));
            if end < u64::MAX {
                prop_assert_eq!(bucket(end + 1), bucket(value) + 1);
            }
        }

        #[test]
        fn quantiles_equal_the_sorted_list(mut values in prop::collection::vec(any_magnitude(), 1..300)) {
            let mut histogram = Histogram::new();
            for value in &values {
                histogram.record(*value);
            }
            values.sort_unstable();
            for per_mille in [0, 1, 500, 900, 990, 999, 1_000] {
                let rank = (values.len() * per_mille).div_ceil(1_000).max(1);
                let exact = values[rank - 1];
                let found = histogram.quantile(per_mille as u64).unwrap();
                prop_assert!(found >= exact && found - exact <= exact / 128, "{per_mille}: {exact} {found}");
            }
            prop_assert_eq!(histogram.min(), values.first().copied());
            prop_assert_eq!(histogram.max(), values.last().copied());
            let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
            prop_assert_eq!(histogram.mean(), Some(sum as f64 / values.len() as f64));
        }
    }
}
