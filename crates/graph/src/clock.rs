//! Time for elements: nanoseconds since 1970, read once per turn of a worker.
//!
//! Real time is the wall clock at start plus the time stamp counter since, so it never jumps and costs no
//! system call; the counter's rate is measured once and the difference to the system's monotonic clock is
//! corrected every second. Simulated time stands still until it is moved, for tests whose time is exact.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use packet::cycles;

/// Where simulated time starts: one thousand million seconds, as in Click's `--simtime`.
pub const SIMULATED_START_NS: u64 = 1_000_000_000 * 1_000_000_000;

/// How often real time is set right against the monotonic clock.
const CORRECTION_NS: u64 = 1_000_000_000;

/// A worker's clock.
#[derive(Debug)]
pub struct Clock {
    now_ns: u64,
    real: Option<Real>,
}

#[derive(Debug)]
struct Real {
    start: Instant,
    start_ns: u64,
    mark_cycles: u64,
    mark_ns: u64,
    /// Nanoseconds a cycle, times 2^32.
    ns_per_cycle: u64,
}

impl Clock {
    /// The wall clock.
    pub fn real() -> Self {
        Self::real_at(cycles::per_second)
    }

    /// As [`Clock::real`]; `per_second` measures the rate of the counter, which may take a while.
    fn real_at(per_second: impl FnOnce() -> f64) -> Self {
        // First: what is set by a clock that is late already comes too early.
        let ns_per_cycle = (1e9 / per_second() * 2_f64.powi(32)) as u64;
        let start_ns =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64);
        let real = Real {
            start: Instant::now(),
            start_ns,
            mark_cycles: cycles::now(),
            mark_ns: start_ns,
            ns_per_cycle,
        };
        Self { now_ns: start_ns, real: Some(real) }
    }

    /// A clock that stands at [`SIMULATED_START_NS`] until [`Clock::set`].
    pub fn simulated() -> Self {
        Self::simulated_from(SIMULATED_START_NS)
    }

    /// As [`Clock::simulated`], from another time on.
    pub fn simulated_from(now_ns: u64) -> Self {
        Self { now_ns, real: None }
    }

    /// The time of the last [`Clock::update`].
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Whether time moves only when it is set.
    pub fn is_simulated(&self) -> bool {
        self.real.is_none()
    }

    /// Moves simulated time forward to `now_ns`; real time does not obey, and neither goes back.
    pub fn set(&mut self, now_ns: u64) {
        if self.real.is_none() {
            self.now_ns = self.now_ns.max(now_ns);
        }
    }

    /// Reads the real time again.
    #[inline]
    pub fn update(&mut self) {
        if let Some(real) = &mut self.real {
            let elapsed = cycles::now().wrapping_sub(real.mark_cycles);
            let elapsed = ((u128::from(elapsed) * u128::from(real.ns_per_cycle)) >> 32) as u64;
            let mut now_ns = real.mark_ns.wrapping_add(elapsed);
            if elapsed > CORRECTION_NS {
                now_ns = real.start_ns + real.start.elapsed().as_nanos() as u64;
                real.mark_cycles = cycles::now();
                real.mark_ns = now_ns;
            }
            self.now_ns = self.now_ns.max(now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_moves_by_itself_and_never_back() {
        let mut clock = Clock::real();
        let first = clock.now_ns();
        clock.set(first + 5_000_000_000);
        assert_eq!(clock.now_ns(), first);
        for _ in 0..1000 {
            let before = clock.now_ns();
            clock.update();
            assert!(clock.now_ns() >= before);
        }
        assert!(clock.now_ns() > first);
    }

    #[test]
    fn the_clock_starts_when_its_rate_has_been_measured() {
        let mut measured_ns = 0;
        let clock = Clock::real_at(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            measured_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
            1e9
        });
        assert!(clock.now_ns() >= measured_ns, "{} ns behind", measured_ns - clock.now_ns());
    }

    #[test]
    fn simulated_time_moves_when_told() {
        let mut clock = Clock::simulated();
        clock.update();
        assert_eq!(clock.now_ns(), SIMULATED_START_NS);
        clock.set(SIMULATED_START_NS + 7);
        clock.set(SIMULATED_START_NS + 3);
        assert_eq!(clock.now_ns(), SIMULATED_START_NS + 7);
    }
}
