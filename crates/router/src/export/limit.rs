//! So many a second at most.

use std::time::{Duration, Instant};

/// Counts what passes in each second.
#[derive(Debug)]
pub(super) struct Limit {
    most: usize,
    second: Instant,
    passed: usize,
}

impl Limit {
    pub(super) fn new(most: usize) -> Self {
        Self { most, second: Instant::now(), passed: 0 }
    }

    /// Returns whether one more passes.
    pub(super) fn passes(&mut self) -> bool {
        if self.second.elapsed() >= Duration::from_secs(1) {
            (self.second, self.passed) = (Instant::now(), 0);
        }
        let passes = self.passed < self.most;
        self.passed += usize::from(passes);
        passes
    }
}
