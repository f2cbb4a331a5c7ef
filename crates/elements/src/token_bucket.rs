//! A token bucket: tokens come in at a rate and collect up to a capacity; a sender takes some.
//!
//! Worker copies of one element share one bucket, so a rate holds for the router and not per worker. It is
//! kept in two running totals: tokens *generated*, a function of the time alone, and tokens *used*, one
//! atomic number. What is between them is in the bucket. A batch costs one multiplication, one division and
//! one compare-and-swap; nothing waits.
//!
//! Time is divided exactly (128-bit products), so no rate between 1 a second and 100 Gbit/s in bytes drifts.
//! `used` may run ahead of `generated`: that is a debt, paid off before anything is available again.

use std::sync::atomic::{AtomicU64, Ordering};

const NS_PER_SECOND: u128 = 1_000_000_000;

/// A rate above this, 68 thousand million a second, sets no limit: 64 bits hold its tokens for eight years.
const MOST_RATE: u64 = 1 << 36;

/// Tokens, refilled by time.
#[derive(Debug, Default)]
pub struct TokenBucket {
    rate: AtomicU64,
    capacity: AtomicU64,
    /// Tokens that were there at `start_ns`.
    base: AtomicU64,
    /// When generation began; 0 before the first use.
    start_ns: AtomicU64,
    used: AtomicU64,
}

impl TokenBucket {
    /// `rate` tokens a second (0: no limit), at most `capacity` at a time (0: never any), `initial` at first.
    pub fn new(rate: u64, capacity: u64, initial: u64) -> Self {
        Self {
            rate: rate.into(),
            capacity: capacity.into(),
            base: initial.min(capacity).into(),
            ..Self::default()
        }
    }

    /// Tokens a second, as it was set; 0 sets no limit.
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Tokens a second; `None` without a limit.
    #[inline]
    fn limit(&self) -> Option<u64> {
        let rate = self.rate();
        (1..=MOST_RATE).contains(&rate).then_some(rate)
    }

    /// Changes rate and capacity; the tokens that are there stay, as far as they fit.
    pub fn set(&self, now_ns: u64, rate: u64, capacity: u64) {
        let there = self.limit().map_or(0, |_| self.available(now_ns));
        self.restart(now_ns, there.min(capacity));
        self.rate.store(rate, Ordering::Relaxed);
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    /// Starts anew with `tokens`.
    pub fn restart(&self, now_ns: u64, tokens: u64) {
        self.base.store(tokens, Ordering::Relaxed);
        self.start_ns.store(now_ns, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
    }

    /// Tokens that are in the bucket.
    pub fn available(&self, now_ns: u64) -> u64 {
        let Some(rate) = self.limit() else { return u64::MAX };
        let generated = self.generated(now_ns, rate);
        let overflowing = generated.saturating_sub(self.capacity.load(Ordering::Relaxed));
        let used = self.used.fetch_max(overflowing, Ordering::Relaxed).max(overflowing);
        generated.saturating_sub(used)
    }

    /// Takes up to `most` tokens; returns how many.
    pub fn take_up_to(&self, now_ns: u64, most: u64) -> u64 {
        let Some(rate) = self.limit() else { return most };
        if self.available(now_ns) == 0 {
            return 0;
        }
        let generated = self.generated(now_ns, rate);
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let taken = generated.saturating_sub(used).min(most);
            match self.used.compare_exchange_weak(
                used,
                used.saturating_add(taken),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return taken,
                Err(current) => used = current,
            }
        }
    }

    /// Takes `tokens` whether they are there or not; what is missing is owed.
    pub fn take_anyway(&self, tokens: u64) {
        if self.limit().is_some() {
            self.used.fetch_add(tokens, Ordering::Relaxed);
        }
    }

    /// Brings back tokens that were taken and not needed.
    pub fn give_back(&self, tokens: u64) {
        if self.limit().is_some() {
            self.used.fetch_sub(tokens, Ordering::Relaxed);
        }
    }

    /// Nanoseconds until `tokens` (at most the capacity) are there, if nobody takes any.
    pub fn ns_until(&self, now_ns: u64, tokens: u64) -> u64 {
        let Some(rate) = self.limit() else { return 0 };
        if self.available(now_ns) >= tokens {
            return 0;
        }
        let wanted = self.used.load(Ordering::Relaxed).saturating_add(tokens);
        let to_generate = u128::from(wanted.saturating_sub(self.base.load(Ordering::Relaxed)));
        let after = (to_generate * NS_PER_SECOND).div_ceil(u128::from(rate));
        let at = u128::from(self.start(now_ns)) + after;
        u64::try_from(at.saturating_sub(u128::from(now_ns))).unwrap_or(u64::MAX)
    }

    fn start(&self, now_ns: u64) -> u64 {
        match self.start_ns.load(Ordering::Relaxed) {
            0 => match self.start_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => now_ns,
                Err(other) => other,
            },
            start => start,
        }
    }

    fn generated(&self, now_ns: u64, rate: u64) -> u64 {
        let elapsed = u128::from(now_ns.saturating_sub(self.start(now_ns)));
        let tokens = elapsed * u128::from(rate) / NS_PER_SECOND;
        self.base.load(Ordering::Relaxed).saturating_add(u64::try_from(tokens).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_come_with_time_and_collect_up_to_the_capacity() {
        let bucket = TokenBucket::new(10, 3, 1);
        assert_eq!(bucket.take_up_to(1_000, 5), 1);
        assert_eq!(bucket.take_up_to(1_000, 5), 0);
        assert_eq!(bucket.ns_until(1_000, 1), 100_000_000);
        assert_eq!(bucket.take_up_to(100_000_999, 5), 0);
        assert_eq!(bucket.take_up_to(100_001_000, 5), 1);
        assert_eq!(bucket.available(10_000_000_000), 3);
        assert_eq!(bucket.take_up_to(10_000_000_000, 5), 3);
    }

    #[test]
    fn a_debt_is_paid_first_and_what_comes_back_is_there() {
        let bucket = TokenBucket::new(1_000, 100, 100);
        bucket.take_anyway(150);
        assert_eq!(bucket.available(1), 0);
        assert_eq!(bucket.ns_until(1, 10), 60_000_000);
        bucket.give_back(60);
        assert_eq!(bucket.available(1), 10);
    }

    #[test]
    fn no_rate_is_no_limit_and_no_capacity_is_none() {
        for rate in [0, MOST_RATE + 1] {
            let bucket = TokenBucket::new(rate, 5, 0);
            assert_eq!((bucket.take_up_to(1, 7), bucket.ns_until(1, 9), bucket.rate()), (7, 0, rate));
        }
        let idle = TokenBucket::new(5, 0, 5);
        assert_eq!(idle.take_up_to(1, 7), 0);
        assert_eq!(idle.take_up_to(1 << 40, 7), 0);
    }

    #[test]
    fn a_new_rate_keeps_the_tokens() {
        let bucket = TokenBucket::new(10, 10, 8);
        bucket.set(5, 1_000, 5);
        assert_eq!((bucket.rate(), bucket.available(5)), (1_000, 5));
        assert_eq!(bucket.take_up_to(5, 5), 5);
        assert_eq!(bucket.available(2_000_005), 2);
    }

    proptest! {
        #[test]
        fn the_wait_is_not_a_nanosecond_too_long(rate in 1u64..3_000_000_000, used in 0u64..100, wanted in 1u64..50) {
            let bucket = TokenBucket::new(rate, 50, 50);
            bucket.take_anyway(used);
            let wait = bucket.ns_until(1, wanted);
            prop_assert!(bucket.available(1 + wait) >= wanted);
            prop_assert!(wait == 0 || used + wanted > 50);
            let again = TokenBucket::new(rate, 50, 50);
            again.take_anyway(used);
            prop_assert!(again.available(1) >= wanted || again.available(wait) < wanted);
        }

        // Against a bucket that is refilled step by step in exact fractions of a token.
        #[test]
        fn as_a_bucket_refilled_step_by_step(
            rate in 1u64..2_000_000,
            capacity in 1u64..5_000,
            steps in prop::collection::vec((0u64..20_000_000, 0u64..2_000), 1..40),
        ) {
            let bucket = TokenBucket::new(rate, capacity, 0);
            let mut now = 1u64;
            prop_assert_eq!(bucket.available(now), 0);
            // In billionths of a token. A bucket that is full drops whole tokens and keeps its fraction.
            let mut credit = 0u128;
            for (elapsed, wanted) in steps {
                now += elapsed;
                credit += u128::from(elapsed) * u128::from(rate);
                let whole = (credit / NS_PER_SECOND).min(u128::from(capacity));
                let fraction = credit % NS_PER_SECOND;
                let expected = whole.min(u128::from(wanted)) as u64;
                prop_assert_eq!(bucket.take_up_to(now, wanted), expected);
                credit = (whole - u128::from(expected)) * NS_PER_SECOND + fraction;
            }
        }
    }
}
