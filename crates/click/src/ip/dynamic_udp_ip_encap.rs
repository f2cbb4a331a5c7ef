//! =c
//! DynamicUDPIPEncap(SRC, SPORT, DST, DPORT [, CHECKSUM, INTERVAL])
//!
//! =s udp
//! puts UDP and IP headers before packets; the ports count up
//!
//! =d
//! As C<UDPIPEncap>, but after every INTERVAL packets both ports become one more. With an INTERVAL of 0, the default, they
//! stay.
//!
//! Drop reasons: no head room for the headers.
//!
//! =e
//!   DynamicUDPIPEncap(1.0.0.1, 1234, 2.0.0.2, 1234, true, 10)
//!
//! =a UDPIPEncap, IPEncap

use graph::{Class, Combine, Context, Element, Get, Handler, Put, Verdict};
use packet::Batch;

use super::udp_ip_encap::{NO_ROOM, UDPIPEncap};

pub(crate) static CLASS: Class = Class {
    name: "DynamicUDPIPEncap",
    handlers: &[
        Handler::read_write(
            "src",
            Combine::First,
            "The SRC argument.",
            &Get(|e: &mut DynamicUDPIPEncap| e.encap.source.to_string()),
            &Put(|e: &mut DynamicUDPIPEncap, _, value| e.encap.set_source(value)),
        ),
        Handler::read_write(
            "sport",
            Combine::First,
            "The present source port.",
            &Get(|e: &mut DynamicUDPIPEncap| e.encap.source_port.to_string()),
            &Put(|e: &mut DynamicUDPIPEncap, _, value| e.encap.set_source_port(value)),
        ),
        Handler::read_write(
            "dst",
            Combine::First,
            "The DST argument.",
            &Get(|e: &mut DynamicUDPIPEncap| e.encap.destination.to_string()),
            &Put(|e: &mut DynamicUDPIPEncap, _, value| e.encap.set_destination(value)),
        ),
        Handler::read_write(
            "dport",
            Combine::First,
            "The present destination port.",
            &Get(|e: &mut DynamicUDPIPEncap| e.encap.destination_port.to_string()),
            &Put(|e: &mut DynamicUDPIPEncap, _, value| e.encap.set_destination_port(value)),
        ),
    ],
    manual: graph::manual!("dynamic_udp_ip_encap.rs"),
    make: |setup| {
        let encap = UDPIPEncap::from_arguments(&mut setup.arguments)?;
        let interval = setup.arguments.optional("INTERVAL")?.unwrap_or(0);
        setup.arguments.finish()?;
        Ok(Box::new(DynamicUDPIPEncap { encap, interval, count: 0 }))
    },
    ..Class::DEFAULT
};

struct DynamicUDPIPEncap {
    encap: UDPIPEncap,
    interval: u32,
    /// Packets since the ports last changed.
    count: u32,
}

impl Element for DynamicUDPIPEncap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            if self.encap.encapsulate(packet).is_none() {
                return Verdict::Drop(NO_ROOM);
            }
            self.count = self.count.wrapping_add(1);
            if self.interval > 0 && self.count >= self.interval {
                self.encap.next_ports();
                self.count = 0;
            }
            Verdict::Keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn ports_count_up() {
        let text = "DynamicUDPIPEncap(1.0.0.1, 65534, 2.0.0.2, 7, false, 2)";
        let mut bench = Bench::element(&crate::registry(), text, 1, 1);
        bench.push("in0", &[&b"x"[..]; 5]);
        let ports: Vec<_> = bench
            .taken("out0")
            .iter()
            .map(|packet| {
                (u16::from_be_bytes([packet[20], packet[21]]), u16::from_be_bytes([packet[22], packet[23]]))
            })
            .collect();
        assert_eq!(ports, [(65534, 7), (65534, 7), (65535, 8), (65535, 8), (0, 9)]);
        bench.write("e.dport", "70").unwrap();
        assert_eq!(bench.read("e.dport"), "70");
        assert!(configure(&CLASS, "1.0.0.1, 1, 2.0.0.2, 2").is_ok());
        assert!(configure(&CLASS, "1.0.0.1, 1, 2.0.0.2, 2, true, -1").is_err());
    }
}
