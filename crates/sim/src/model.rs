//! What a server can forward, and what stops it: its processors, or one of the buses that packets cross.
//!
//! A [`Machine`] says how many cycles and how many bytes of each bus there are in a second; an application how many cycles it takes for a
//! packet and for each of its bytes, as the benches measure them. Each of them alone allows so many packets a second, and the least is the prediction. A bus has two
//! rates: the one on its label (*nominal*), and the one that a benchmark reaches (*empirical*), which is the one to believe.
//!
//! That is the model of RouteBricks (SOSP 2009, section 4), whose server `nehalem` is. Its packets cross the memory four times: the card writes
//! them, a core reads and writes them, a card reads them.

use serde::{Deserialize, Serialize};

use crate::plan::Rate;

/// Something that packets cross.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// What people call it.
    pub name: String,
    /// How many of them share the packets evenly.
    #[serde(default = "one")]
    pub count: u32,
    /// Bits a second that its label says, of each.
    pub nominal: Rate,
    /// Bits a second that can be measured, of each; not given: as nominal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empirical: Option<Rate>,
    /// How often the bytes of a packet cross it.
    pub crossings: f64,
    /// Bytes that cross it for each packet besides, such as descriptors.
    #[serde(default)]
    pub bytes: f64,
    /// The most packets a second of each, whatever their size; not given: as many as its rate allows. Cards have such a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<f64>,
}

fn one() -> u32 {
    1
}

/// What a server is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Processors that forward.
    pub cores: u32,
    /// Cycles a second of each, in the unit in which applications are measured.
    pub clock: Rate,
    /// What packets cross.
    #[serde(default, rename = "bus")]
    pub buses: Vec<Bus>,
}

/// What is done with packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// What people call it.
    pub name: String,
    /// Cycles for a packet, whatever its size.
    pub cycles: f64,
    /// Cycles for each of its bytes besides.
    pub cycles_per_byte: f64,
}

impl Application {
    /// Returns the cycles of a packet of so many bytes.
    pub fn cycles_of(&self, size: f64) -> f64 {
        self.cycles + self.cycles_per_byte * size
    }
}

/// What one part of a server allows.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Which part.
    pub part: String,
    /// Cycles of the processors, or bytes of the bus, for one packet.
    pub needs: f64,
    /// Packets a second by its label.
    pub nominal: f64,
    /// Packets a second by what was measured.
    pub empirical: f64,
}

/// What a server can forward.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Bytes of a packet.
    pub size: u32,
    /// What each part allows: the processors first, then the buses.
    pub limits: Vec<Limit>,
}

/// The name of the processors as a part.
pub const PROCESSORS: &str = "CPU";

impl Machine {
    /// Why it makes no sense.
    ///
    /// # Errors
    /// The sentence for the user.
    pub fn check(&self) -> Result<(), String> {
        if self.cores == 0 || self.clock.0 <= 0.0 {
            return Err("a machine has at least 1 core, and a clock such as 2.8G".to_owned());
        }
        for Bus { name, count, nominal, empirical, crossings, bytes, packets } in &self.buses {
            let is_amount = |number: f64| number.is_finite() && number >= 0.0;
            let is_rate = |number: f64| number > 0.0;
            let rates = [Some(nominal.0), empirical.map(|rate| rate.0), *packets];
            if *count == 0 || !rates.into_iter().flatten().all(is_rate) {
                return Err(format!("bus '{name}': count, rates and packets are more than 0"));
            }
            if !is_amount(*crossings) || !is_amount(*bytes) || crossings + bytes == 0.0 {
                return Err(format!(
                    "bus '{name}': a packet's bytes cross it 0 or more times, or others do; else leave it out"
                ));
            }
        }
        Ok(())
    }

    /// What it can forward of packets of so many bytes.
    pub fn predict(&self, application: &Application, size: u32) -> Prediction {
        let needs = application.cycles_of(f64::from(size));
        let cpu = f64::from(self.cores) * self.clock.0 / needs;
        let mut limits = vec![Limit { part: PROCESSORS.to_owned(), needs, nominal: cpu, empirical: cpu }];
        limits.extend(self.buses.iter().map(|bus| {
            let needs = bus.crossings * f64::from(size) + bus.bytes;
            let most = f64::from(bus.count) * bus.packets.unwrap_or(f64::INFINITY);
            let allows = |rate: Rate| (f64::from(bus.count) * rate.0 / 8.0 / needs).min(most);
            Limit {
                part: bus.name.clone(),
                needs,
                nominal: allows(bus.nominal),
                empirical: allows(bus.empirical.unwrap_or(bus.nominal)),
            }
        }));
        Prediction { size, limits }
    }
}

impl Prediction {
    /// What stops it, and the packets a second then, by what was measured.
    pub fn bottleneck(&self) -> &Limit {
        self.least(|limit| limit.empirical)
    }

    /// The same, by labels.
    pub fn nominal_bottleneck(&self) -> &Limit {
        self.least(|limit| limit.nominal)
    }

    fn least(&self, of: impl Fn(&Limit) -> f64) -> &Limit {
        // There are always the processors.
        self.limits[1..]
            .iter()
            .fold(&self.limits[0], |least, limit| if of(limit) < of(least) { limit } else { least })
    }

    /// Bits a second of so many packets.
    pub fn bits(&self, packets_per_second: f64) -> f64 {
        packets_per_second * f64::from(self.size) * 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let memory = Bus {
            name: "memory".to_owned(),
            count: 2,
            nominal: Rate(100e9),
            empirical: Some(Rate(50e9)),
            crossings: 4.0,
            bytes: 144.0,
            packets: None,
        };
        Machine { cores: 4, clock: Rate(2e9), buses: vec![memory] }
    }

    #[test]
    fn the_least_of_all_limits_counts() {
        let application = Application { name: "routing".to_owned(), cycles: 400.0, cycles_per_byte: 0.0 };
        let small = machine().predict(&application, 64);
        // 20 million packets of 64 bytes take 400 of 12.5 billion bytes.
        assert_eq!((small.bottleneck().part.as_str(), small.bottleneck().empirical), (PROCESSORS, 20e6));
        assert_eq!(small.bits(20e6), 10.24e9);
        assert_eq!(
            small.limits[1],
            Limit { part: "memory".to_owned(), needs: 400.0, nominal: 62.5e6, empirical: 31.25e6 }
        );
        let large = machine().predict(&application, 1024);
        assert_eq!(large.bottleneck().part, "memory");
        assert_eq!(large.bottleneck().empirical, 12.5e9 / 4240.0);
        assert_eq!(large.nominal_bottleneck().nominal, 25e9 / 4240.0);
    }

    #[test]
    fn bytes_take_cycles_and_a_card_takes_so_many_packets() {
        let application = Application { name: "cipher".to_owned(), cycles: 400.0, cycles_per_byte: 2.0 };
        // 4 cores of 2 GHz, 400 + 2 x 64 cycles.
        assert_eq!(machine().predict(&application, 64).bottleneck().empirical, 8e9 / 528.0);
        let mut machine = machine();
        machine.buses[0].packets = Some(3e6);
        let small = machine.predict(&application, 64);
        assert_eq!((small.bottleneck().part.as_str(), small.bottleneck().empirical), ("memory", 6e6));
        // Large packets are limited by their bytes.
        assert_eq!(machine.predict(&application, 9000).bottleneck().empirical, 12.5e9 / 36_144.0);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        assert_eq!(machine().check(), Ok(()));
        let broken = |break_it: fn(&mut Machine)| {
            let mut machine = machine();
            break_it(&mut machine);
            machine.check().unwrap_err()
        };
        assert!(broken(|machine| machine.cores = 0).contains("at least 1 core"));
        assert!(broken(|machine| machine.clock = Rate(0.0)).contains("2.8G"));
        assert!(broken(|machine| machine.buses[0].count = 0).contains("'memory': count"));
        assert!(broken(|machine| machine.buses[0].packets = Some(0.0)).contains("packets are more"));
        assert!(broken(|machine| machine.buses[0].crossings = f64::NAN).contains("'memory': a packet"));
    }
}
