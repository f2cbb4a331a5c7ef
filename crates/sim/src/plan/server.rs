//! Servers as a planner sees them: ports for the world, slots for the cards that join them, what they cost.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::{Bus, Machine};

/// Bits a second, written as people do: `10G`, `2.5G`, `800M`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(pub f64);

const UNITS: [(char, f64); 4] = [('T', 1e12), ('G', 1e9), ('M', 1e6), ('k', 1e3)];

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        // As a cluster's file has them.
        let text = text.strip_suffix("bps").unwrap_or(text);
        let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
        let (digits, factor) = unit.map_or((text, 1.0), |(_, factor)| (&text[..text.len() - 1], *factor));
        match digits.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(Rate(number * factor)),
            _ => Err(format!("'{text}' is not a rate; expected bits a second as in 10G, 2.5G or 800M")),
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Rate, String> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> String {
        rate.to_string()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, factor)| self.0 >= *factor);
        let (number, letter) = unit.map_or((self.0, ""), |(letter, factor)| {
            (
                self.0 / factor,
                match letter {
                    'T' => "T",
                    'G' => "G",
                    'M' => "M",
                    _ => "k",
                },
            )
        });
        // Three digits are enough to plan with.
        let digits = if number >= 100.0 {
            0
        } else if number >= 10.0 {
            1
        } else {
            2
        };
        let text = format!("{number:.digits$}");
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        write!(f, "{text}{letter}")
    }
}

/// A kind of network card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// How many ports it has.
    pub ports: u32,
    /// Of each, in both directions at once.
    pub rate: Rate,
    /// What it costs, in the currency of all prices.
    #[serde(default)]
    pub price: f64,
    /// What it takes, in watts.
    #[serde(default)]
    pub watts: f64,
}

/// A kind of server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// What people call it.
    pub name: String,
    /// Ports of the router that one such server has.
    pub ports: u32,
    /// Slots for cards.
    pub slots: u32,
    /// What it can take in, work on and send; not given: whatever its ports ask for.
    pub capacity: Option<Rate>,
    /// Without cards.
    #[serde(default)]
    pub price: f64,
    /// Without cards.
    #[serde(default)]
    pub watts: f64,
    /// What it is made of, for the model of what it can forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// What a slot may hold.
    #[serde(rename = "card")]
    pub cards: Vec<Card>,
}

impl Server {
    /// Those that are known by name: the three of RouteBricks (SOSP 2009, section 3.3; 2,000 dollars with its cards, says the paper), the one
    /// that it measured (section 4.1) and the one that it projects to (four times the cores, twice the rest), three of "Can software routers scale?" (PRESTO 2008),
    /// and two of today, whose prices and machines are round examples to be replaced by one's own.
    pub fn known() -> Vec<Server> {
        let old = |name: &str, ports, slots, machine| Server {
            name: name.to_owned(),
            ports,
            slots,
            capacity: None,
            price: 2000.0,
            watts: 0.0,
            machine,
            cards: vec![card(2, 10e9, 0.0, 0.0), card(8, 1e9, 0.0, 0.0)],
        };
        // A slot of PCIe 5.0 with 16 lanes carries 504 Gb/s in each direction (32 GT/s a lane, 128b/130b), so either card.
        let new = |name: &str, ports, slots, sockets| Server {
            name: name.to_owned(),
            ports,
            slots,
            capacity: None,
            price: 10_000.0,
            watts: 600.0,
            machine: Some(modern(sockets)),
            cards: vec![card(2, 100e9, 1000.0, 25.0), card(2, 200e9, 1800.0, 30.0)],
        };
        vec![
            old("current", 1, 5, None),
            old("more-nics", 1, 20, None),
            old("faster", 2, 20, None),
            old("nehalem", 1, 2, Some(nehalem(8, 1))),
            old("nehalem-next", 1, 4, Some(nehalem(32, 2))),
            old("shared-bus-2008", 1, 2, Some(shared_bus())),
            old("mesh-2008", 1, 4, Some(mesh_of_sockets())),
            old("clovertown-1.6", 1, 2, Some(clovertown())),
            new("modern", 1, 5, 1),
            new("modern-dual", 2, 10, 2),
        ]
    }
}

fn bus(name: &str, count: u32, nominal: f64, empirical: Option<f64>, crossings: f64, bytes: f64) -> Bus {
    Bus {
        name: name.to_owned(),
        count,
        nominal: Rate(nominal * 1e9),
        empirical: empirical.map(|rate| Rate(rate * 1e9)),
        crossings,
        bytes,
        packets: None,
    }
}

/// RouteBricks' table 2, whose empirical rates are of all buses of a kind together: two sockets' links for I/O reach 117 Gb/s, two slots
/// 50.8. And the 12.3 Gb/s that it got through a card of two ports (section 4.1). Bytes besides those of packets are not published.
/// Crossings are ours.
fn nehalem(cores: u32, times: u32) -> Machine {
    let buses = vec![
        bus("memory", times, 410.0, Some(262.0), 4.0, 0.0),
        bus("inter-socket", times, 200.0, Some(144.34), 1.0, 0.0),
        bus("I/O", 2 * times, 200.0, Some(117.0 / 2.0), 2.0, 0.0),
        bus("PCIe", times, 64.0, Some(50.8), 2.0, 0.0),
        bus("card", 2 * times, 20.0, Some(12.3), 1.0, 0.0),
    ];
    Machine { cores, clock: Rate(2.8e9), buses }
}

/// The server with one bus of "Can software routers scale?" (PRESTO 2008, section 2.1): a packet crosses the memory four times, the front-side
/// bus and PCIe twice.
fn shared_bus() -> Machine {
    let buses = vec![
        bus("memory", 1, 100.0, None, 4.0, 0.0),
        bus("front-side bus", 1, 85.0, None, 2.0, 0.0),
        bus("PCIe", 1, 64.0, None, 2.0, 0.0),
    ];
    Machine { cores: 8, clock: Rate(3e9), buses }
}

/// The same paper's server of four sockets, each with memory and PCIe of its own and a link to each other.
fn mesh_of_sockets() -> Machine {
    let buses = vec![
        bus("memory", 4, 100.0, None, 4.0, 0.0),
        bus("inter-socket", 6, 85.0, None, 4.0, 0.0),
        bus("PCIe", 4, 64.0, None, 2.0, 0.0),
    ];
    Machine { cores: 32, clock: Rate(3e9), buses }
}

/// The server that the same paper measured (section 2.2): two front-side buses of 1.066 GHz and 64 bits, 16 ports of 1 Gb/s. Beside a packet
/// six transactions of 64 bytes cross a front-side bus and PCIe, and twelve the memory.
fn clovertown() -> Machine {
    let buses = vec![
        bus("memory", 1, 100.0, None, 4.0, 12.0 * 64.0),
        bus("front-side bus", 2, 68.2, None, 2.0, 6.0 * 64.0),
        bus("PCIe", 1, 64.0, None, 2.0, 6.0 * 64.0),
        bus("wire", 16, 1.0, None, 1.0, 20.0),
    ];
    Machine { cores: 8, clock: Rate(1.6e9), buses }
}

/// A socket of 32 cores, eight channels of DDR5-4800 (38.4 GB/s each, of which copies reach four fifths), five slots of PCIe 5.0; a packet has
/// descriptors of 16 bytes for receiving and sending, which are written and read, and 20 bytes of preamble and gap on the wire.
fn modern(sockets: u32) -> Machine {
    let buses = vec![
        bus("memory", sockets, 2458.0, Some(1966.0), 4.0, 64.0),
        bus("PCIe", 5 * sockets, 504.0, Some(430.0), 1.0, 48.0),
        bus("wire", 10 * sockets, 200.0, None, 1.0, 20.0),
    ];
    Machine { cores: 32 * sockets, clock: Rate(2.5e9), buses }
}

fn card(ports: u32, bits_per_second: f64, price: f64, watts: f64) -> Card {
    Card { ports, rate: Rate(bits_per_second), price, watts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buses_of_a_kind_reach_together_what_routebricks_measured() {
        // Table 2; the next server has two times as much of each (section 5.3).
        let published = [
            ("memory", 410e9, 262e9),
            ("inter-socket", 200e9, 144.34e9),
            ("I/O", 400e9, 117e9),
            ("PCIe", 64e9, 50.8e9),
        ];
        for (name, times) in [("nehalem", 1.0), ("nehalem-next", 2.0)] {
            let server = Server::known().into_iter().find(|server| server.name == name).unwrap();
            let buses = server.machine.unwrap().buses;
            for (bus, (kind, nominal, empirical)) in buses.iter().zip(published) {
                let all = |rate: Rate| f64::from(bus.count) * rate.0;
                let reached = bus.empirical.map(all);
                assert_eq!((bus.name.as_str(), all(bus.nominal)), (kind, times * nominal), "{name}");
                assert_eq!(reached, Some(times * empirical), "{name}, {kind}");
            }
        }
    }

    #[test]
    fn rates_are_read_and_written_as_people_do() {
        for (text, bits) in [("10G", 10e9), ("2.5G", 2.5e9), ("800M", 800e6), ("1.2T", 1.2e12), ("5", 5.0)] {
            assert_eq!(text.parse(), Ok(Rate(bits)));
            assert_eq!(Rate(bits).to_string(), text);
        }
        assert_eq!(Rate(625e6).to_string(), "625M");
        assert_eq!(Rate(6.6666e9).to_string(), "6.67G");
        for text in ["", "G", "10 Gbps", "-1G", "inf"] {
            assert!(text.parse::<Rate>().unwrap_err().contains("10G, 2.5G or 800M"), "{text}");
        }
    }
}
