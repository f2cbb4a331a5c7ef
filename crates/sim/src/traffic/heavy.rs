//! Traffic as a link of the Internet carries it: thousands of flows at once, most of them short and much of the traffic in
//! long ones, each sending bursts with gaps of a round trip.
//!
//! | what | how it is drawn | why |
//! | --- | --- | --- |
//! | packets of a flow | Pareto, shape 1.2, 4 at least, a million at most | sizes of transfers are heavy-tailed (Crovella and Bestavros, 1997) |
//! | size of its packets | half of the flows 1,514 bytes, the others 66 | data and acknowledgements; some 790 on average |
//! | packets of a burst | 4, doubled with each round trip up to 8 to 44 | slow start, and windows of up to 64 KB |
//! | time between packets of a burst | that of 1,514 bytes at 100 Mb/s to 10 Gb/s | the slowest link before this one |
//! | time between bursts | round trips of 5 to 200 ms | some are longer than the balancer's delta |
//! | output | by the row of the matrix, for each flow | |
//!
//! All flows come by one port: what comes at the same time waits for its turn on the wire.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Arrival, Outputs, Wire};
use crate::order::Order;
use crate::random::Random;

#[derive(Clone, Debug)]
struct Flow {
    place: u32,
    hash: u32,
    sent: u32,
    packets: u32,
    spacing_ns: u32,
    round_trip_ns: u32,
    /// When the burst began.
    began_ns: u64,
    bytes: u16,
    output: u16,
    /// Packets that the burst still has, of the next burst, and of the largest.
    left: u8,
    window: u8,
    most: u8,
}

/// Packets of a fixed number of flows at a time, without end.
#[derive(Clone, Debug)]
pub(crate) struct Heavy {
    random: Random,
    outputs: Outputs,
    flows: Vec<Flow>,
    /// When each flow sends next.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    wire: Wire,
}

const WINDOW: u8 = 4;
const DATA_BYTES: u16 = 1514;
const ACKNOWLEDGEMENT_BYTES: u16 = 66;

/// The mean length of packets, for how busy events are.
pub(super) const MEAN_BYTES: f64 = 790.0;

impl Flow {
    /// When the packet behind the one at `now_ns` is sent.
    fn after(&mut self, now_ns: u64) -> u64 {
        let spacing_ns = u64::from(self.spacing_ns);
        self.left -= 1;
        if self.left > 0 {
            return now_ns + spacing_ns;
        }
        self.window = (2 * self.window).min(self.most);
        self.left = self.window;
        self.began_ns = (self.began_ns + u64::from(self.round_trip_ns)).max(now_ns + spacing_ns);
        self.began_ns
    }
}

impl Heavy {
    /// So many flows at any time.
    pub(super) fn new(
        random: Random,
        flows: usize,
        outputs: Outputs,
        wire: Wire,
        order: &mut Order,
    ) -> Heavy {
        let next = BinaryHeap::with_capacity(flows);
        let mut heavy = Heavy { random, outputs, flows: Vec::with_capacity(flows), next, wire };
        for number in 0..flows as u32 {
            let flow = heavy.begin(0, order);
            heavy.next.push(Reverse((flow.began_ns, number)));
            heavy.flows.push(flow);
        }
        heavy
    }

    /// A flow that begins within a round trip.
    fn begin(&mut self, now_ns: u64, order: &mut Order) -> Flow {
        let random = &mut self.random;
        let packets = (4.0 * random.fraction().powf(-1.0 / 1.2)).min(1e6) as u32;
        let bits_per_second = random.between(100e6, 10e9);
        let round_trip_ns = random.between(5e6, 200e6) as u32;
        Flow {
            place: order.begin(),
            hash: random.next() as u32,
            sent: 0,
            packets,
            spacing_ns: (f64::from(DATA_BYTES) * 8e9 / bits_per_second) as u32,
            round_trip_ns,
            began_ns: now_ns + u64::from(random.below(round_trip_ns)),
            bytes: if random.below(2) == 0 { DATA_BYTES } else { ACKNOWLEDGEMENT_BYTES },
            output: self.outputs.draw(random).0,
            left: WINDOW,
            window: WINDOW,
            most: 8 + random.below(37) as u8,
        }
    }

    /// Bytes a second that a flow brings on average, by a trial of a thousand.
    pub(super) fn rate_of_a_flow(seed: u64) -> f64 {
        const TRIAL: usize = 1000;
        let (begin_ps, end_ps) = (300_000_000_000, 1_300_000_000_000);
        // A port that nobody waits for.
        let wire = Wire::new(u64::MAX);
        let mut order = Order::default();
        let mut trial = Heavy::new(Random::new(seed, 0), TRIAL, Outputs::one(0), wire, &mut order);
        let bytes: u64 = std::iter::from_fn(|| Some(trial.next(&mut order)))
            .skip_while(|packet| packet.at_ps < begin_ps)
            .take_while(|packet| packet.at_ps < end_ps)
            .map(|packet| u64::from(packet.bytes))
            .sum();
        bytes as f64 * 1e12 / (end_ps - begin_ps) as f64 / TRIAL as f64
    }

    /// The next packet.
    pub(super) fn next(&mut self, order: &mut Order) -> Arrival {
        let Some(Reverse((sent_ns, number))) = self.next.pop() else {
            unreachable!("a flow that ends makes room for another one")
        };
        let flow = &mut self.flows[number as usize];
        let &mut Flow { place, hash, bytes, output, .. } = flow;
        flow.sent += 1;
        let is_last = flow.sent == flow.packets;
        let after_ns = if is_last {
            let other = self.begin(sent_ns, order);
            let began_ns = other.began_ns;
            self.flows[number as usize] = other;
            began_ns
        } else {
            flow.after(sent_ns)
        };
        self.next.push(Reverse((after_ns, number)));
        let at_ps = self.wire.carry(sent_ns * 1000, bytes);
        Arrival { at_ps, flow: place, sequence: 0, hash, output, bytes, is_last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_250_000_000;

    fn heavy(seed: u64, flows: usize, order: &mut Order) -> Heavy {
        Heavy::new(Random::new(seed, 1), flows, Outputs::one(0), Wire::new(RATE), order)
    }

    #[test]
    fn packets_come_no_faster_than_the_wire_and_much_of_them_in_few_flows() {
        let mut order = Order::default();
        let mut heavy = heavy(1, 2000, &mut order);
        let mut sizes = vec![0_u64; 1 << 20];
        let mut before = 0;
        for _ in 0..200_000 {
            let packet = heavy.next(&mut order);
            assert!(packet.at_ps >= before + u64::from(packet.bytes) * 800, "{packet:?}");
            before = packet.at_ps;
            // Nothing is said to have gone in or come out here, so every flow has a place of its own.
            sizes[packet.flow as usize] += 1;
        }
        // Heavy-tailed: a tenth of the flows has more than two fifths of the packets, cut off as they are.
        sizes.retain(|&size| size > 0);
        sizes.sort_unstable_by_key(|&size| Reverse(size));
        let of_largest: u64 = sizes[..sizes.len() / 10].iter().sum();
        assert!(of_largest > 80_000, "{of_largest} of {} flows", sizes.len());
    }

    #[test]
    fn so_many_flows_bring_the_rate() {
        let (rate, mut order) = (500_000_000.0, Order::default());
        let mut heavy = heavy(2, (rate / Heavy::rate_of_a_flow(1)) as usize, &mut order);
        let (mut bytes, mut at_ps) = (0_u64, 0);
        while at_ps < 1_000_000_000_000 {
            let packet = heavy.next(&mut order);
            at_ps = packet.at_ps;
            bytes += if at_ps > 300_000_000_000 { u64::from(packet.bytes) } else { 0 };
        }
        assert!((bytes as f64 / 0.7 / rate - 1.0).abs() < 0.15, "{bytes}");
    }
}
