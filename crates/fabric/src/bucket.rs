//! A token bucket: how many bytes may go now, so that in the long run no more than a rate goes.

/// One byte in the bucket's unit, 2^-20 bytes: a rate of 1,000 bytes a second is still one unit a nanosecond.
const BYTE: i64 = 1 << 20;

/// Fills at a rate, holds at most a depth. It may be overdrawn: what went anyway counts against what comes later.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Units; negative when overdrawn, by one depth at most.
    level: i64,
    filled_ns: u64,
    units_per_ns: i64,
    depth: i64,
}

impl Bucket {
    /// A full bucket that fills with `bytes_per_second` and holds `depth_bytes`.
    pub fn new(bytes_per_second: u64, depth_bytes: u64, now_ns: u64) -> Bucket {
        let units = u128::from(bytes_per_second) * BYTE as u128 / 1_000_000_000;
        let depth = i64::try_from(depth_bytes).unwrap_or(i64::MAX).clamp(1, i64::MAX >> 22) * BYTE;
        Bucket {
            level: depth,
            filled_ns: now_ns,
            units_per_ns: i64::try_from(units).unwrap_or(i64::MAX).clamp(0, depth),
            depth,
        }
    }

    /// Adds what has come since it was last filled, and takes `bytes` that went in that time. Once a batch: not inlined, so that the
    /// loop over packets stays short.
    #[inline(never)]
    pub fn fill(&mut self, now_ns: u64, bytes: u64) {
        let passed = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = now_ns.max(self.filled_ns);
        let gained = i64::try_from(passed).unwrap_or(i64::MAX).saturating_mul(self.units_per_ns);
        let gone = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_mul(BYTE);
        self.level = self.level.saturating_add(gained).saturating_sub(gone).clamp(-self.depth, self.depth);
    }

    /// Whether there is room at all now. Fills it first, if it was not filled at this time.
    #[inline(always)]
    pub fn has_room_at(&mut self, now_ns: u64) -> bool {
        if self.filled_ns != now_ns {
            self.fill(now_ns, 0);
        }
        self.has_room()
    }

    /// Whether there was room at all when it was last filled.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.level > 0
    }

    /// Takes `bytes`, whether they are there or not.
    #[inline]
    pub fn take(&mut self, bytes: u32) {
        self.level = (self.level - i64::from(bytes) * BYTE).max(-self.depth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_the_rate_and_the_depth_once() {
        let mut bucket = Bucket::new(1_000_000_000, 10_000, 0);
        let mut passed = 0;
        for now_ns in (0..1_000_000).step_by(10) {
            bucket.fill(now_ns, 0);
            if bucket.has_room() {
                bucket.take(100);
                passed += 100;
            }
        }
        // A byte a nanosecond for a millisecond, and 10,000 to begin with.
        assert!((1_009_800..=1_010_200).contains(&passed), "{passed}");
    }

    #[test]
    fn what_went_while_it_filled_counts_against_that() {
        let mut bucket = Bucket::new(1_000_000_000, 10_000, 0);
        // At its rate for a second.
        bucket.fill(1_000_000_000, 1_000_000_000);
        assert!(bucket.has_room());
        bucket.fill(2_000_000_000, 1_100_000_000);
        assert!(!bucket.has_room());
        bucket.fill(2_000_010_001, 0);
        assert!(bucket.has_room());
    }

    #[test]
    fn the_ends_hold() {
        let has_room = |bucket: &mut Bucket, now_ns| {
            bucket.fill(now_ns, 0);
            bucket.has_room()
        };
        let mut none = Bucket::new(0, 0, 5);
        assert!(none.has_room(), "a byte is always in a new one");
        none.take(u32::MAX);
        assert!(!has_room(&mut none, u64::MAX));
        let mut endless = Bucket::new(u64::MAX, u64::MAX, 0);
        endless.take(u32::MAX);
        assert!(endless.has_room());
        assert!(has_room(&mut endless, u64::MAX));
        // A clock that goes back fills nothing.
        let mut back = Bucket::new(1_000_000_000, 100, 1_000);
        back.take(150);
        assert!(!has_room(&mut back, 0));
        assert!(has_room(&mut back, 1_051));
    }
}
