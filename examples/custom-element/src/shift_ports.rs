//! =c
//! ShiftPorts(BY)
//!
//! =s udp
//! adds a number to the destination ports of UDP packets
//!
//! =d
//! Expects IPv4 packets with the network header marked, without options and without UDP checksum. Adds BY to the destination port
//! of those of UDP; a port that would be beyond 65535 is dropped. Other packets go on as they are.
//!
//! Drop reasons: port out of range.
//!
//! =e
//!   ... -> MarkIPHeader(14) -> ShiftPorts(1000) -> ...

use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup, Verdict};
use packet::Batch;

/// The class: its name in configurations, its ports, its handlers, its manual (above), how one is made.
pub static CLASS: Class = Class {
    name: "ShiftPorts",
    handlers: &[Handler::read(
        "count",
        Combine::Sum,
        "Packets whose port was shifted.",
        &Get(|e: &mut ShiftPorts| e.count.to_string()),
    )],
    manual: graph::manual!("shift_ports.rs"),
    make,
    ..Class::DEFAULT
};

/// Reads the arguments; called once for each worker.
fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let by = setup.arguments.required("BY")?;
    setup.arguments.finish()?;
    Ok(Box::new(ShiftPorts { by, count: 0 }))
}

struct ShiftPorts {
    by: u16,
    count: u64,
}

/// Where UDP's destination port is, behind an IPv4 header without options.
const PROTOCOL: usize = 9;
const PORT: std::ops::Range<usize> = 22..24;
const UDP: u8 = 17;

impl Element for ShiftPorts {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            let Some(header) = packet.network_mut().filter(|header| header.len() >= PORT.end) else {
                return Verdict::Keep;
            };
            if header[PROTOCOL] != UDP {
                return Verdict::Keep;
            }
            let port = u16::from_be_bytes([header[PORT.start], header[PORT.start + 1]]);
            match port.checked_add(self.by) {
                Some(port) => {
                    header[PORT].copy_from_slice(&port.to_be_bytes());
                    self.count += 1;
                    Verdict::Keep
                }
                None => Verdict::Drop("port out of range"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn packet(protocol: u8, port: u16) -> Vec<u8> {
        let mut packet = vec![0; 28];
        (packet[0], packet[PROTOCOL]) = (0x45, protocol);
        packet[PORT].copy_from_slice(&port.to_be_bytes());
        packet
    }

    #[test]
    fn ports_are_shifted_and_those_out_of_range_dropped() {
        let mut registry = elements::registry();
        registry.add(&[&CLASS]);
        let config = "in :: TestInput -> MarkIPHeader(0) -> e :: ShiftPorts(1000) -> out :: TestOutput;";
        let mut bench = Bench::new(&registry, config);
        bench.push("in", &[&packet(17, 53), &packet(6, 53), &packet(17, 65_000)]);
        assert_eq!(bench.taken("out"), [packet(17, 1053), packet(6, 53)]);
        assert_eq!((bench.read("e.count"), bench.drops("e", "port out of range")), ("1".into(), 1));
    }

    #[test]
    fn a_mistake_says_what_would_be_right() {
        let mistakes = configure(&CLASS, "x").unwrap_err();
        assert!(mistakes[0].contains("BY"), "{mistakes:?}");
    }
}
