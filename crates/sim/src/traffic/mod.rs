//! What a node's port brings: one packet after the other, each when its last bit has come.

mod heavy;

use self::heavy::Heavy;
use crate::matrix::Rows;
use crate::order::Order;
use crate::random::{Random, mixed};
use crate::{Flows, Scenario, Sizes};

/// A packet as it has come in by the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at_ps: u64,
    /// Its flow's place in [`Order`].
    pub(crate) flow: u32,
    /// Its number there, from 1, once it has one.
    pub(crate) sequence: u32,
    /// Of the flow.
    pub(crate) hash: u32,
    pub(crate) output: u16,
    pub(crate) bytes: u16,
    /// No packet of the flow follows.
    pub(crate) is_last: bool,
}

/// The wire before a port: what comes at the same time waits for its turn.
#[derive(Clone, Debug)]
struct Wire {
    free_ps: u64,
    ps_per_byte: f64,
}

impl Wire {
    fn new(bytes_per_second: u64) -> Wire {
        Wire { free_ps: 0, ps_per_byte: 1e12 / bytes_per_second as f64 }
    }

    /// When a packet that is sent at this time has come.
    fn carry(&mut self, sent_ps: u64, bytes: u16) -> u64 {
        self.free_ps = self.free_ps.max(sent_ps) + (f64::from(bytes) * self.ps_per_byte) as u64;
        self.free_ps
    }
}

/// A row of the matrix, to draw outputs from.
#[derive(Clone, Debug)]
struct Outputs {
    outputs: Vec<u16>,
    /// Sums of the shares up to each; none if all are alike.
    sums: Vec<f64>,
}

impl Outputs {
    fn new(row: &[(u16, f64)]) -> Outputs {
        let outputs = row.iter().map(|&(output, _)| output).collect();
        let sum = |sum: &mut f64, &(_, share): &(u16, f64)| {
            *sum += share;
            Some(*sum)
        };
        let is_even = row.windows(2).all(|two| two[0].1 == two[1].1);
        Outputs { outputs, sums: if is_even { Vec::new() } else { row.iter().scan(0.0, sum).collect() } }
    }

    fn one(output: u16) -> Outputs {
        Outputs::new(&[(output, 1.0)])
    }

    /// An output, and its place in the row.
    fn draw(&self, random: &mut Random) -> (u16, u32) {
        let place = match self.sums.last() {
            None => random.below(self.outputs.len() as u32) as usize,
            Some(all) => {
                let drawn = random.fraction() * all;
                self.sums.partition_point(|&sum| sum < drawn).min(self.outputs.len() - 1)
            }
        };
        (self.outputs[place], place as u32)
    }
}

/// Packets of endless flows at random times.
#[derive(Clone, Debug)]
pub(crate) struct Poisson {
    random: Random,
    outputs: Outputs,
    /// Lengths, and sums of their weights up to each.
    sizes: Vec<(u16, f64)>,
    gap_ps: f64,
    /// When the next would come if the wire were free.
    sent_ps: f64,
    wire: Wire,
    first_flow: u32,
    per_pair: u32,
    seed: u64,
}

impl Poisson {
    fn next(&mut self) -> Arrival {
        let random = &mut self.random;
        self.sent_ps += random.exponential(self.gap_ps);
        let (output, place) = self.outputs.draw(random);
        let bytes = match self.sizes[..] {
            [(bytes, _)] => bytes,
            ref sizes => {
                let drawn = random.fraction() * sizes[sizes.len() - 1].1;
                sizes[sizes.partition_point(|&(_, sum)| sum < drawn).min(sizes.len() - 1)].0
            }
        };
        let flow = self.first_flow + place * self.per_pair + random.below(self.per_pair);
        let hash = (mixed(self.seed ^ u64::from(flow)) >> 32) as u32;
        let at_ps = self.wire.carry(self.sent_ps as u64, bytes);
        Arrival { at_ps, flow, sequence: 0, hash, output, bytes, is_last: false }
    }
}

/// What a node's port brings.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Nothing.
    Silent,
    Poisson(Box<Poisson>),
    Heavy(Box<Heavy>),
}

impl Source {
    /// Those of all inputs.
    pub(crate) fn all(scenario: &Scenario, rows: &Rows, order: &mut Order) -> Vec<Source> {
        let rate_of_a_flow = match scenario.flows {
            Flows::HeavyTailed => Heavy::rate_of_a_flow(scenario.seed),
            Flows::Poisson { .. } => 1.0,
        };
        let source = |(input, row): (usize, &Vec<(u16, f64)>)| {
            let rate = rows.row_sum(input) * scenario.load * scenario.ports_rate as f64;
            if rate == 0.0 {
                return Source::Silent;
            }
            let random = Random::new(scenario.seed, input as u64);
            let (outputs, wire) = (Outputs::new(row), Wire::new(scenario.ports_rate));
            match &scenario.flows {
                Flows::HeavyTailed => {
                    let flows = ((rate / rate_of_a_flow) as usize).max(1);
                    Source::Heavy(Box::new(Heavy::new(random, flows, outputs, wire, order)))
                }
                Flows::Poisson { per_pair, sizes } => Source::Poisson(Box::new(Poisson {
                    random,
                    first_flow: order.begin_all(outputs.outputs.len() * *per_pair as usize),
                    outputs,
                    gap_ps: sizes.mean() * 1e12 / rate,
                    sizes: sums(sizes),
                    sent_ps: 0.0,
                    wire,
                    per_pair: *per_pair,
                    seed: mixed(scenario.seed),
                })),
            }
        };
        rows.rows.iter().enumerate().map(source).collect()
    }

    /// The next packet; `None`: none will come.
    pub(crate) fn next(&mut self, order: &mut Order) -> Option<Arrival> {
        match self {
            Source::Silent => None,
            Source::Poisson(poisson) => Some(poisson.next()),
            Source::Heavy(heavy) => Some(heavy.next(order)),
        }
    }
}

/// Lengths with the sums of their weights.
fn sums(sizes: &Sizes) -> Vec<(u16, f64)> {
    let mut sum = 0.0;
    let add = |(bytes, weight): (u16, f64)| {
        sum += weight;
        (bytes, sum)
    };
    sizes.weights().into_iter().map(add).collect()
}

/// The mean length of the packets of a scenario.
pub(crate) fn mean_bytes(flows: &Flows) -> f64 {
    match flows {
        Flows::HeavyTailed => heavy::MEAN_BYTES,
        Flows::Poisson { sizes, .. } => sizes.mean(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_and_sizes_come_as_often_as_they_should() {
        let scenario = Scenario {
            matrix: "0 0.125 0.375\n 0 0 0\n 0 0 0".parse().unwrap(),
            flows: Flows::Poisson { per_pair: 4, sizes: Sizes::Imix },
            ..Scenario::new("mesh(3)".parse().unwrap(), 1_250_000_000)
        };
        let rows = scenario.checked().unwrap();
        let mut order = Order::default();
        let mut sources = Source::all(&scenario, &rows, &mut order);
        assert_eq!(sources[1].next(&mut order), None);
        let packets: Vec<Arrival> = (0..100_000).map_while(|_| sources[0].next(&mut order)).collect();
        let share =
            |is: &dyn Fn(&Arrival) -> bool| packets.iter().filter(|&packet| is(packet)).count() as f64 / 1e5;
        assert!((share(&|packet| packet.output == 1) - 0.25).abs() < 0.01);
        assert!((share(&|packet| packet.output == 2) - 0.75).abs() < 0.01);
        assert!((share(&|packet| packet.bytes == 64) - 7.0 / 12.0).abs() < 0.01);
        assert!((share(&|packet| packet.bytes == 1518) - 1.0 / 12.0).abs() < 0.01);
        for flow in 0..8 {
            let expected = if flow < 4 { 0.25 / 4.0 } else { 0.75 / 4.0 };
            assert!((share(&|packet| packet.flow == flow) - expected).abs() < 0.01, "{flow}");
        }
        let bytes: u64 = packets.iter().map(|packet| u64::from(packet.bytes)).sum();
        let rate = bytes as f64 * 1e12 / packets[packets.len() - 1].at_ps as f64;
        assert!((rate / 625e6 - 1.0).abs() < 0.02, "{rate}");
        assert!(packets.windows(2).all(|two| two[1].at_ps >= two[0].at_ps + u64::from(two[1].bytes) * 800));
    }
}
