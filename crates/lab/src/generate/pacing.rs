//! When the next packet may leave: a token bucket, kept as the time at which its next token is there (the form of
//! ITU-T I.371's generic cell rate algorithm).
//!
//! The bucket holds one burst, so that a device under test never sees more than that at once. A sender that was kept
//! from sending for longer either never catches up (the report has the rate that was really offered), or goes twice
//! as fast until it has: the average is right then, but the rate is not constant, as RFC 2544 wants it to be.

use super::values::Rate;

#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    ns_per_packet: f64,
    ns_per_byte: f64,
    depth_ns: f64,
    due_ns: f64,
    /// Whether lost time is made good.
    catches_up: bool,
    /// Lost time to be made good.
    arrears_ns: f64,
}

/// Share of its interval by which a packet comes earlier while there are arrears: twice the packets a second.
const HASTE: f64 = 0.5;

impl Pacer {
    /// A bucket of `burst` packets of at most `largest` bytes (FCS counted) that starts to fill at `now_ns`.
    pub(crate) fn new(rate: Rate, burst: usize, largest: u16, now_ns: u64) -> Self {
        let (ns_per_packet, ns_per_byte) = match rate {
            Rate::Max => (0.0, 0.0),
            Rate::Packets(a_second) => (1e9 / a_second, 0.0),
            Rate::Bits(a_second) => (0.0, 8e9 / a_second),
        };
        let largest_ns = ns_per_packet + ns_per_byte * f64::from(largest);
        let depth_ns = largest_ns * burst.saturating_sub(1) as f64;
        let due_ns = now_ns as f64;
        Self { ns_per_packet, ns_per_byte, depth_ns, due_ns, catches_up: false, arrears_ns: 0.0 }
    }

    /// The same, but time that was lost is made good.
    pub(crate) fn catching_up(self) -> Self {
        Self { catches_up: true, ..self }
    }

    /// Lets the next packet wait until a time of its own, whatever the rate.
    #[inline]
    pub(crate) fn wait_until(&mut self, due_ns: u64) {
        self.due_ns = due_ns as f64;
    }

    /// Lets time pass: call it once before a round of [`is_due`](Self::is_due) and [`spend`](Self::spend).
    #[inline]
    pub(crate) fn advance(&mut self, now_ns: u64) {
        let earliest_ns = now_ns as f64 - self.depth_ns;
        if self.due_ns < earliest_ns {
            if self.catches_up {
                self.arrears_ns += earliest_ns - self.due_ns;
            }
            self.due_ns = earliest_ns;
        }
    }

    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns <= now_ns as f64
    }

    #[inline]
    fn interval_ns(&self, bytes: u16) -> f64 {
        self.ns_per_packet + self.ns_per_byte * f64::from(bytes)
    }

    /// A packet of `bytes`, FCS counted, leaves.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: u16) {
        let interval_ns = self.interval_ns(bytes);
        let made_good_ns = self.arrears_ns.min(interval_ns * HASTE);
        self.arrears_ns -= made_good_ns;
        self.due_ns += interval_ns - made_good_ns;
    }

    /// It did not leave after all.
    #[inline]
    pub(crate) fn refund(&mut self, bytes: u16) {
        self.due_ns -= self.interval_ns(bytes);
    }

    /// Nanoseconds until the next packet is due.
    pub(crate) fn due_in_ns(&self, now_ns: u64) -> u64 {
        (self.due_ns - now_ns as f64).max(0.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent_at(pacer: &mut Pacer, now_ns: u64, bytes: u16) -> usize {
        pacer.advance(now_ns);
        let mut count = 0;
        while count < 1_000 && pacer.is_due(now_ns) {
            pacer.spend(bytes);
            count += 1;
        }
        count
    }

    #[test]
    fn the_rate_is_kept() {
        let mut pacer = Pacer::new(Rate::Packets(1e6), 32, 64, 0);
        let sent: usize = (0..1_000).map(|step| sent_at(&mut pacer, step * 10_000, 64)).sum();
        assert_eq!(sent, 9_991);
    }

    #[test]
    fn bits_count_the_sizes() {
        // 125 bytes a microsecond: 1 Gbit/s.
        let mut pacer = Pacer::new(Rate::Bits(1e9), 1, 1_250, 0);
        assert_eq!(sent_at(&mut pacer, 0, 1_250), 1);
        assert_eq!(pacer.due_in_ns(4_000), 6_000);
        assert_eq!(sent_at(&mut pacer, 9_999, 1_250), 0);
        assert_eq!(sent_at(&mut pacer, 10_000, 1_250), 1);
        pacer.refund(1_250);
        assert!(pacer.is_due(10_000));
    }

    #[test]
    fn after_a_pause_there_is_one_burst_and_no_more() {
        let mut pacer = Pacer::new(Rate::Packets(1e6), 32, 64, 0);
        assert_eq!(sent_at(&mut pacer, 1_000_000_000, 64), 32);
        assert_eq!(sent_at(&mut pacer, 1_000_000_000, 64), 0);
    }

    #[test]
    fn lost_time_is_made_good_twice_as_fast() {
        let mut pacer = Pacer::new(Rate::Packets(1e6), 32, 64, 0).catching_up();
        // A pause of 10 ms loses 10,000 packets; a burst comes at once, the rest in 10 ms.
        assert_eq!(sent_at(&mut pacer, 10_000_000, 64), 63);
        let mut sent = |from: u64, to: u64| -> usize {
            (from..to).map(|step| sent_at(&mut pacer, step * 10_000, 64)).sum()
        };
        let hasty: usize = sent(1_001, 1_501);
        assert!((9_990..=10_010).contains(&hasty), "{hasty}");
        let total = 63 + hasty + sent(1_501, 10_001);
        assert!((99_970..=100_010).contains(&total), "{total}");
    }

    #[test]
    fn max_is_always_due() {
        let mut pacer = Pacer::new(Rate::Max, 32, 64, 5);
        assert_eq!(sent_at(&mut pacer, 5, 64), 1_000);
    }
}
