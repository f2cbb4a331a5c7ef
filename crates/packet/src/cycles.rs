//! The time stamp counter: what cost is measured in, and the cheapest clock there is.
//!
//! Cycles here are TSC ticks: a constant rate on every CPU of the last decade, whatever frequency the
//! core runs at. All figures of Brickway are in these.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The counter now, in TSC ticks. On CPUs without one: nanoseconds of the monotonic clock.
#[inline(always)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        #[allow(unsafe_code, reason = "the intrinsic for RDTSC is an unsafe function")]
        // SAFETY: RDTSC exists on every x86-64 CPU and only reads a counter.
        unsafe {
            core::arch::x86_64::_rdtsc()
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// Ticks per second of [`now`], measured once against the monotonic clock (takes 20 ms the first time).
pub fn per_second() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (time, ticks) = (Instant::now(), now());
        std::thread::sleep(Duration::from_millis(20));
        (now() - ticks) as f64 / time.elapsed().as_secs_f64()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_runs_forward_at_a_plausible_rate() {
        let first = now();
        assert!(per_second() > 1e8 && per_second() < 1e11);
        assert!(now() > first);
    }
}
