//! The sink: what came back of a trial.

use super::histogram::Histogram;
use super::sequence::{Arrival, Sequences};
use super::signature::{Mark, Signature, TIMESTAMP_MASK, Verdict, judge};
use super::source::Source;
use super::values::FCS_BYTES;

/// Counts of packets. `received` is `distinct` and `duplicates`; the others are beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Packets of this trial with right checksums.
    pub(crate) received: u64,
    /// Their bytes, FCS counted.
    pub(crate) bytes: u64,
    /// Those that came for the first time.
    pub(crate) distinct: u64,
    pub(crate) duplicates: u64,
    /// Packets of this trial with a wrong checksum.
    pub(crate) corrupted: u64,
    /// Distinct packets that came after a later one of their flow (RFC 4737).
    pub(crate) reordered: u64,
    /// Runs of such packets (RouteBricks).
    pub(crate) reordered_sequences: u64,
    /// Reordered packets that came so late that they may be duplicates.
    pub(crate) behind_window: u64,
    /// Frames that are not of this trial.
    pub(crate) foreign: u64,
    pub(crate) icmp_errors: u64,
    /// When the last packet of this trial came.
    pub(crate) last_ns: u64,
}

impl Counts {
    /// Packets of `sent` that did not come, neither whole nor corrupted.
    pub(crate) fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.distinct + self.corrupted)
    }

    /// Share of `sent`, in percent, that was lost, doubled or corrupted.
    pub(crate) fn faults_percent(&self, sent: u64) -> f64 {
        (self.lost(sent) + self.duplicates + self.corrupted) as f64 / sent.max(1) as f64 * 100.0
    }
}

#[derive(Debug)]
pub(crate) struct Sink {
    mark: Mark,
    sequences: Sequences,
    pub(crate) latency: Histogram,
    pub(crate) counts: Counts,
}

impl Sink {
    pub(crate) fn new(mark: Mark, flows: usize) -> Self {
        let sequences = Sequences::new(flows);
        Self { mark, sequences, latency: Histogram::new(), counts: Counts::default() }
    }

    /// Takes a frame that came at `now_ns`, when the first `sent` packets of `source` were sent. Returns whether it
    /// is ARP or neighbour discovery: that is for others to answer.
    #[inline]
    pub(crate) fn accept(&mut self, frame: &[u8], now_ns: u64, source: &impl Source, sent: u64) -> bool {
        match judge(frame, self.mark) {
            Verdict::Ours(signature) => match self.arrival(&signature, source, sent) {
                Some(arrival) => self.count(arrival, &signature, frame.len(), now_ns),
                None => self.counts.foreign += 1,
            },
            Verdict::Corrupted => {
                self.counts.corrupted += 1;
                self.counts.last_ns = now_ns;
            }
            Verdict::Neighbour => return true,
            Verdict::IcmpError => self.counts.icmp_errors += 1,
            Verdict::Foreign => self.counts.foreign += 1,
        }
        false
    }

    /// `None` for a packet that was not sent.
    #[inline]
    fn arrival(&mut self, signature: &Signature, source: &impl Source, sent: u64) -> Option<Arrival> {
        if signature.flow as usize >= source.flows() {
            return None;
        }
        // The whole number is the largest that was sent and has these low 32 bits.
        let newest = source.sent_of_flow(signature.flow, sent).checked_sub(1)?;
        let age = (newest as u32).wrapping_sub(signature.sequence);
        let sequence = newest.checked_sub(u64::from(age))?;
        self.sequences.judge(signature.flow as usize, sequence)
    }

    #[inline]
    fn count(&mut self, arrival: Arrival, signature: &Signature, bytes: usize, now_ns: u64) {
        let counts = &mut self.counts;
        counts.received += 1;
        counts.bytes += (bytes + FCS_BYTES) as u64;
        counts.last_ns = now_ns;
        match arrival {
            Arrival::InOrder => {}
            Arrival::Late { starts_run } => {
                counts.reordered += 1;
                counts.reordered_sequences += u64::from(starts_run);
            }
            Arrival::BehindWindow { starts_run } => {
                counts.reordered += 1;
                counts.behind_window += 1;
                counts.reordered_sequences += u64::from(starts_run);
            }
            Arrival::Duplicate => {
                counts.duplicates += 1;
                return;
            }
        }
        counts.distinct += 1;
        self.latency.record(now_ns.wrapping_sub(signature.sent_ns) & TIMESTAMP_MASK);
    }
}

#[cfg(test)]
mod tests {
    use super::super::traffic::{Kind, Traffic, TrafficOptions};
    use super::*;
    use packet::{Pool, PoolOptions};

    const GENERATOR: u16 = 77;

    fn frames(traffic: &Traffic, numbers: &[u64]) -> Vec<Vec<u8>> {
        let mut pool = Pool::new(PoolOptions { frames: 1, ..PoolOptions::default() }).unwrap();
        let mut packet = pool.allocate().unwrap();
        let mut written = |number: &u64| {
            assert!(traffic.write(*number, number * 1_000, &mut packet));
            packet.data().to_vec()
        };
        numbers.iter().map(&mut written).collect()
    }

    #[test]
    fn every_kind_has_its_count() {
        let traffic = Traffic::new(&TrafficOptions::for_tests(Kind::UDP, 2), GENERATOR);
        let mut sink = Sink::new(Mark::of(GENERATOR), 2);
        // Flow 0 has the even numbers: 4 and 2 are late in it, 0 comes twice; 1, 5 and 7 are lost.
        for frame in frames(&traffic, &[0, 6, 2, 3, 4, 0, 8]) {
            assert!(!sink.accept(&frame, 10_000, &traffic, 9));
        }
        let mut bad = frames(&traffic, &[5]).remove(0);
        bad[50] ^= 0x10;
        sink.accept(&bad, 10_000, &traffic, 9);
        sink.accept(b"something else", 10_000, &traffic, 9);
        let counts = sink.counts;
        assert_eq!((counts.received, counts.distinct, counts.duplicates), (7, 6, 1));
        assert_eq!((counts.reordered, counts.reordered_sequences), (2, 1));
        assert_eq!((counts.corrupted, counts.foreign, counts.lost(9)), (1, 1, 2));
        assert_eq!(counts.bytes, 7 * 64);
        assert_eq!((sink.latency.min(), sink.latency.max()), (Some(2_000), Some(10_000)));
        assert!((counts.faults_percent(9) - 400.0 / 9.0).abs() < 1e-9);
    }

    #[test]
    fn what_was_not_sent_is_foreign() {
        let options = TrafficOptions::for_tests(Kind::UDP, 2);
        let (traffic, more) = (Traffic::new(&options, GENERATOR), TrafficOptions { flows: 3, ..options });
        let mut sink = Sink::new(Mark::of(GENERATOR), 2);
        for frame in frames(&traffic, &[4, 5]) {
            sink.accept(&frame, 0, &traffic, 4);
        }
        // A third flow.
        let frame = frames(&Traffic::new(&more, GENERATOR), &[2]).remove(0);
        sink.accept(&frame, 0, &traffic, 4);
        assert_eq!(sink.counts, Counts { foreign: 3, ..Counts::default() });
    }

    #[test]
    fn sequence_numbers_go_on_beyond_32_bits() {
        let traffic = Traffic::new(&TrafficOptions::for_tests(Kind::UDP, 1), GENERATOR);
        let mut sink = Sink::new(Mark::of(GENERATOR), 1);
        let edge = 1u64 << 32;
        for frame in frames(&traffic, &[edge - 2, edge - 1, edge, edge + 1, edge - 1]) {
            sink.accept(&frame, 0, &traffic, edge + 2);
        }
        assert_eq!((sink.counts.distinct, sink.counts.duplicates, sink.counts.reordered), (4, 1, 0));
    }

    #[test]
    fn latency_survives_the_wrap_of_the_time_stamp() {
        let traffic = Traffic::new(&TrafficOptions::for_tests(Kind::UDP, 1), GENERATOR);
        let mut sink = Sink::new(Mark::of(GENERATOR), 1);
        let mut pool = Pool::new(PoolOptions { frames: 1, ..PoolOptions::default() }).unwrap();
        let mut packet = pool.allocate().unwrap();
        assert!(traffic.write(0, (1 << 48) - 5, &mut packet));
        sink.accept(packet.data(), (1 << 48) + 3, &traffic, 1);
        assert_eq!(sink.latency.max(), Some(8));
    }
}
