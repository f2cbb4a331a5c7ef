//! An estimate of a rate: an exponentially weighted moving average of what was counted per millisecond.
//!
//! Click's figures exactly: each millisecond weighs 1/16, and the average has ten bits of fraction. So the
//! estimate follows a change within some 16 ms.

/// Nanoseconds in which counts are gathered before they enter the average.
const EPOCH_NS: u64 = 1_000_000;
/// The average keeps 15/16 of itself with each new value.
const STABILITY_SHIFT: u32 = 4;
/// Bits of fraction of the average.
pub(crate) const SCALE: u32 = 10;
/// Epochs a second.
pub(crate) const EPOCHS_PER_SECOND: u64 = 1_000;
/// After this many epochs without a count the average is taken to be zero.
const FORGOTTEN_AFTER: u64 = 100;

/// A moving average of a rate.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateEwma {
    average: i64,
    current: u64,
    epoch: u64,
}

impl RateEwma {
    /// Counts `count` at `now_ns`; 0 just lets the average grow old.
    #[inline]
    pub(crate) fn update(&mut self, now_ns: u64, count: u64) {
        let epoch = now_ns / EPOCH_NS;
        if epoch != self.epoch {
            self.close_epochs(epoch);
        }
        self.current += count;
    }

    /// Returns the average as it is at `now_ns`.
    pub(crate) fn at(&mut self, now_ns: u64) -> &Self {
        self.update(now_ns, 0);
        self
    }

    fn close_epochs(&mut self, epoch: u64) {
        self.average_in(self.current);
        let empty = epoch.saturating_sub(self.epoch + 1);
        if empty >= FORGOTTEN_AFTER {
            self.average = 0;
        } else {
            for _ in 0..empty {
                self.average_in(0);
            }
        }
        self.current = 0;
        self.epoch = epoch;
    }

    fn average_in(&mut self, count: u64) {
        const ROUNDING: i64 = 1 << (STABILITY_SHIFT - 1);
        let scaled = ((count << SCALE) as i64).saturating_add(ROUNDING);
        self.average += (scaled - self.average) >> STABILITY_SHIFT;
    }

    /// The average per epoch, with [`SCALE`] bits of fraction.
    pub(crate) fn scaled_average(&self) -> u64 {
        self.average.max(0) as u64
    }

    /// The rate per second.
    pub(crate) fn per_second(&self) -> f64 {
        (self.scaled_average() * EPOCHS_PER_SECOND) as f64 / f64::from(1 << SCALE)
    }

    /// The rate per second as handlers print it: up to three digits behind the point.
    pub(crate) fn text(&self) -> String {
        decimal(self.per_second())
    }
}

/// `value` with up to three digits behind the point.
pub(crate) fn decimal(value: f64) -> String {
    ((value * 1000.0).round() / 1000.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_found_and_forgotten() {
        let mut rate = RateEwma::default();
        for millisecond in 1..=500u64 {
            rate.update(millisecond * EPOCH_NS, 3);
            rate.update(millisecond * EPOCH_NS + 999_999, 2);
        }
        // The average stops short of its goal by less than one step of its fraction.
        assert!((rate.per_second() - 5_000.0).abs() < 20.0, "{rate:?}");
        let before = rate.per_second();
        rate.update(511 * EPOCH_NS, 0);
        assert!(rate.per_second() < before * 0.6 && rate.per_second() > 0.0);
        rate.update(800 * EPOCH_NS, 0);
        assert_eq!(rate.text(), "0");
    }

    #[test]
    fn one_value_weighs_a_sixteenth() {
        let mut rate = RateEwma::default();
        rate.update(EPOCH_NS, 16);
        rate.update(2 * EPOCH_NS, 0);
        assert_eq!(rate.scaled_average(), 1 << SCALE);
        assert_eq!(rate.text(), "1000");
    }
}
