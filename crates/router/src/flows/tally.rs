//! Samples added up by port, direction and flow.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use control::api::{SeenPacket, utoipa};
use serde::Serialize;

use super::key::{Flow, Parsed, protocol_name};
use crate::capture::recorder::Filter;

/// Flows that are distinguished; samples of all others are one. A flow that fills a link is among the first.
const MOST_FLOWS: usize = 1 << 16;

/// A port and a direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Way {
    pub(super) port: String,
    pub(super) direction: String,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(format!("{} {}", self.port, self.direction).trim_end())
    }
}

/// Samples of something.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    samples: u64,
    bytes: u64,
    /// Packets that the samples stand for.
    stand_for: u64,
}

impl Sum {
    fn add(&mut self, packet: &SeenPacket) {
        self.samples += 1;
        self.bytes += u64::from(packet.length);
        self.stand_for += packet.stands_for.max(1);
    }
}

/// All samples.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    ways: BTreeMap<Way, Sum>,
    /// `None`: the flows beyond those that are distinguished.
    flows: HashMap<(Way, Option<Flow>), Sum>,
}

/// What a flow moved, by its samples.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlowSum {
    pub(super) way: Way,
    /// `None`: flows that were not told apart.
    pub(super) flow: Option<Flow>,
    pub(super) samples: u64,
    pub(super) bytes: f64,
    pub(super) packets: f64,
}

/// What a flow moved, for machines.
#[derive(Clone, Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct FlowRow {
    /// The port by which it was seen.
    pub(crate) port: String,
    /// `in` or `out`.
    pub(crate) direction: String,
    /// The flow in words: `UDP 10.0.1.2:47493 > 10.0.2.2:5201`. Empty for all flows beyond those that are distinguished.
    pub(crate) flow: String,
    /// Its part of the bits of its port and direction, 0 to 1.
    pub(crate) share: f64,
    /// Bits a second, with the Ethernet header.
    pub(crate) bits_per_second: f64,
    /// Packets a second.
    pub(crate) packets_per_second: f64,
    /// Packets of it that were sampled.
    pub(crate) samples: u64,
    /// Of IP: the address that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    source: Option<IpAddr>,
    /// The address that it goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    destination: Option<IpAddr>,
    /// The name of its protocol: `UDP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    /// The port of the protocol that it comes from, where it has ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_port: Option<u16>,
    /// The one that it goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_port: Option<u16>,
    /// Of frames without IP: their type.
    #[serde(skip_serializing_if = "Option::is_none")]
    ethertype: Option<u16>,
}

/// What flows moved that are not printed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rest {
    pub(super) flows: usize,
    pub(super) bytes: f64,
    pub(super) packets: f64,
}

impl Tally {
    /// Adds a sample: to its flow if the filter selects it, in any case to its port.
    pub(crate) fn add(&mut self, packet: &SeenPacket, data: &[u8], filter: Option<&Filter>) {
        let way = Way { port: packet.interface.clone(), direction: packet.direction.clone() };
        match self.ways.get_mut(&way) {
            Some(sum) => sum.add(packet),
            None => self.ways.entry(way.clone()).or_default().add(packet),
        }
        if filter.is_some_and(|filter| !filter.selects(packet.is_ethernet, data, packet.length)) {
            return;
        }
        let mut key = (way, Some(Parsed::of(packet.is_ethernet, data).flow));
        if self.flows.len() >= MOST_FLOWS && !self.flows.contains_key(&key) {
            key.1 = None;
        }
        self.flows.entry(key).or_default().add(packet);
    }

    /// The ports and directions by which packets passed.
    pub(super) fn ways(&self) -> impl Iterator<Item = &Way> {
        self.ways.keys()
    }

    pub(crate) fn samples(&self) -> u64 {
        self.ways.values().map(|sum| sum.samples).sum()
    }

    /// How many packets a sample of a way stands for, on average.
    fn weight(&self, way: &Way) -> f64 {
        self.ways.get(way).map_or(1.0, |sum| sum.stand_for as f64 / sum.samples as f64)
    }

    /// All packets of a way.
    pub(super) fn packets(&self, way: &Way) -> f64 {
        self.ways.get(way).map_or(0.0, |sum| sum.stand_for as f64)
    }

    /// All bytes of a way.
    pub(super) fn bytes(&self, way: &Way) -> f64 {
        self.ways.get(way).map_or(0.0, |sum| sum.bytes as f64 * self.weight(way))
    }

    /// Returns the flows with the most bytes, the largest first.
    pub(super) fn top(&self, count: usize) -> Vec<FlowSum> {
        let mut all = self.all();
        all.sort_by(|a, b| {
            let names = |sum: &FlowSum| (sum.way.clone(), sum.flow);
            b.bytes.total_cmp(&a.bytes).then_with(|| names(a).cmp(&names(b)))
        });
        all.truncate(count);
        all
    }

    /// Returns the same for machines, of samples of so many seconds.
    pub(crate) fn rows(&self, count: usize, seconds: f64) -> Vec<FlowRow> {
        let row = |sum: FlowSum| {
            let row = FlowRow {
                flow: sum.flow.map_or_else(String::new, |flow| flow.to_string()),
                share: sum.bytes / self.bytes(&sum.way),
                bits_per_second: sum.bytes * 8.0 / seconds,
                packets_per_second: sum.packets / seconds,
                samples: sum.samples,
                port: sum.way.port,
                direction: sum.way.direction,
                ..FlowRow::default()
            };
            match sum.flow {
                Some(Flow::Ip { source, destination, protocol, ports }) => FlowRow {
                    source: Some(source),
                    destination: Some(destination),
                    protocol: Some(protocol_name(protocol)),
                    source_port: ports.map(|(from, _)| from),
                    destination_port: ports.map(|(_, to)| to),
                    ..row
                },
                Some(Flow::Other { ethertype }) => FlowRow { ethertype: Some(ethertype), ..row },
                None => row,
            }
        };
        self.top(count).into_iter().map(row).collect()
    }

    /// Returns what the others moved, by port and direction.
    pub(super) fn beyond(&self, top: &[FlowSum]) -> BTreeMap<Way, Rest> {
        let mut rest = BTreeMap::<Way, Rest>::new();
        for sum in self.all() {
            if !top.iter().any(|known| (&known.way, known.flow) == (&sum.way, sum.flow)) {
                let rest = rest.entry(sum.way).or_default();
                rest.flows += 1;
                rest.bytes += sum.bytes;
                rest.packets += sum.packets;
            }
        }
        rest
    }

    fn all(&self) -> Vec<FlowSum> {
        let sum = |((way, flow), sum): (&(Way, Option<Flow>), &Sum)| {
            let weight = self.weight(way);
            FlowSum {
                way: way.clone(),
                flow: *flow,
                samples: sum.samples,
                bytes: sum.bytes as f64 * weight,
                packets: sum.samples as f64 * weight,
            }
        };
        self.flows.iter().map(sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample of a UDP packet from this port, which stands for so many.
    fn sample(tally: &mut Tally, port: &str, from: u8, length: u32, stands_for: u64) {
        let packet = SeenPacket {
            interface: port.into(),
            direction: "in".into(),
            length,
            stands_for,
            ..SeenPacket::default()
        };
        let data =
            [0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 1, 2, 10, 0, 2, 2, 0, from, 0, 9, 0, 8, 0, 0];
        tally.add(&packet, &data, None);
    }

    #[test]
    fn flows_are_scaled_to_all_packets_of_their_port_and_sorted_by_bytes() {
        let mut tally = Tally::default();
        sample(&mut tally, "eth1", 1, 100, 12);
        sample(&mut tally, "eth1", 2, 1_000, 8);
        sample(&mut tally, "eth1", 1, 100, 10);
        sample(&mut tally, "eth2", 1, 500, 1);
        let way = |port: &str| Way { port: port.into(), direction: "in".into() };
        assert_eq!((tally.packets(&way("eth1")), tally.bytes(&way("eth1"))), (30.0, 12_000.0));
        let top = tally.top(2);
        let texts: Vec<_> =
            top.iter().map(|flow| (flow.way.to_string(), flow.bytes, flow.packets, flow.samples)).collect();
        assert_eq!(texts, [("eth1 in".into(), 10_000.0, 10.0, 1), ("eth1 in".into(), 2_000.0, 20.0, 2)]);
        let rest = tally.beyond(&top);
        assert_eq!(
            rest.into_iter().collect::<Vec<_>>(),
            [(way("eth2"), Rest { flows: 1, bytes: 500.0, packets: 1.0 })]
        );
        assert_eq!(tally.samples(), 4);
    }
}
