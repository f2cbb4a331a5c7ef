//! Times, counted by their logarithm: 64 steps for each doubling, so that a percentile is at most 1 % off.

#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    most: u64,
}

/// Steps of a doubling, as a power of two. Below two times as many, each number has a step of its own.
const STEPS: u32 = 6;

fn step(value: u64) -> usize {
    let shift = (value | 1).ilog2().saturating_sub(STEPS);
    ((u64::from(shift) << STEPS) + (value >> shift)) as usize
}

/// The middle of a step.
fn value(step: usize) -> f64 {
    let step = step as u64;
    let shift = (step >> STEPS).saturating_sub(1);
    let lowest = (step - (shift << STEPS)) << shift;
    lowest as f64 + ((1_u64 << shift) - 1) as f64 / 2.0
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; step(u64::MAX) + 1], count: 0, most: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, value: u64) {
        self.counts[step(value)] += 1;
        self.count += 1;
        self.most = self.most.max(value);
    }

    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// The value that this share of all does not exceed; 0 if there are none.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        found.map_or(0.0, |step| value(step).min(self.most as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn percentiles_are_within_a_hundredth_of_the_sorted_list() {
        let mut random = Random::new(3, 3);
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.5), 0.0);
        let mut list: Vec<u64> = (0..10_000).map(|_| random.between(1.0, 1e12) as u64).collect();
        list.extend([0, 1, 127, 128, u64::from(u32::MAX)]);
        list.iter().for_each(|&value| histogram.add(value));
        list.sort_unstable();
        for share in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = list[((list.len() as f64 * share).ceil() as usize).max(1) - 1] as f64;
            let found = histogram.percentile(share);
            assert!((found - exact).abs() <= exact * 0.01, "{share}: {found}, not {exact}");
        }
        assert_eq!(histogram.most(), list[list.len() - 1]);
        histogram.add(u64::MAX);
        assert_eq!(histogram.most(), u64::MAX);
    }

    #[test]
    fn every_number_has_the_step_whose_middle_is_near() {
        for exponent in 0..64 {
            for near in [0, 1, 2] {
                let number = (1_u64 << exponent).saturating_sub(1).saturating_add(near);
                let middle = value(step(number));
                assert!((middle - number as f64).abs() <= number as f64 / 100.0, "{number}: {middle}");
            }
        }
    }
}
