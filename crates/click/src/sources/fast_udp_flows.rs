//! =c
//! FastUDPFlows(RATE, LIMIT, LENGTH, SRCETH, SRCIP, DSTETH, DSTIP, FLOWS, FLOWSIZE [, CHECKSUM, ACTIVE])
//!
//! =s udp
//! makes UDP packets of many flows, fast
//!
//! =d
//! As FastUDPSource, but with FLOWS flows at a time, whose ports are random. Each packet belongs to one of them by
//! chance; a flow that has had FLOWSIZE packets makes room for a new one.
//!
//! CHECKSUM: boolean. Whether the datagrams have a UDP checksum. True by default.
//!
//! ACTIVE: boolean. Whether it works. True by default.
//!
//! =e
//!   FastUDPFlows(100000, 500000, 60, 0:0:0:0:0:0, 1.0.0.1, 1:1:1:1:1:1, 2.0.0.2, 100, 10)
//!     -> ToDevice(eth0);
//!
//! =a FastUDPSource

use std::net::Ipv4Addr;

use graph::{Class, ConfigError, Element, Setup};
use packet::Packet;
use packet::wire::ethernet::MacAddr;

use super::fast_udp::{Addresses, Beginning, FastSource, Frames, UdpFrame, random_port};

pub(crate) static CLASS: Class = Class {
    name: "FastUDPFlows",
    ports: "0/1",
    processing: Class::PULL,
    handlers: FastSource::<Flows>::HANDLERS,
    manual: graph::manual!("fast_udp_flows.rs"),
    make,
    ..Class::DEFAULT
};

/// Most flows: a frame is kept, so more would not help a test and would fill the memory.
const MOST_FLOWS: usize = 1 << 20;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let beginning = Beginning::read(arguments)?;
    let source_mac: MacAddr = arguments.required("SRCETH")?;
    let source: Ipv4Addr = arguments.required("SRCIP")?;
    let destination_mac: MacAddr = arguments.required("DSTETH")?;
    let destination: Ipv4Addr = arguments.required("DSTIP")?;
    let flows: usize = arguments.required("FLOWS")?;
    let size: u32 = arguments.required("FLOWSIZE")?;
    let checksum = arguments.optional("CHECKSUM")?.unwrap_or(true);
    let active = arguments.optional("ACTIVE")?.unwrap_or(true);
    arguments.finish()?;
    if !(1..=MOST_FLOWS).contains(&flows) {
        return Err(format!("FLOWS: expected 1 to {MOST_FLOWS} flows, got {flows}").into());
    }
    if size == 0 {
        return Err("FLOWSIZE: expected 1 or more packets, got 0".to_owned().into());
    }
    let addresses = Addresses::V4(source, destination);
    let frame = UdpFrame::new(beginning.length, (source_mac, destination_mac), addresses, checksum);
    // A flow that had all its packets begins anew, with ports.
    let flows = vec![Flow { ports: (0, 0), packets: size }; flows];
    let flows = Flows { frame, flows, size };
    Ok(Box::new(FastSource::new(setup, &beginning, flows, active)))
}

#[derive(Clone)]
struct Flow {
    ports: (u16, u16),
    packets: u32,
}

struct Flows {
    frame: UdpFrame,
    flows: Vec<Flow>,
    size: u32,
}

impl Frames for Flows {
    fn len(&self) -> usize {
        self.frame.len()
    }

    fn fill(&mut self, packet: &mut Packet, random: u32) {
        let place = ((u64::from(random) * self.flows.len() as u64) >> 32) as usize;
        let Some(flow) = self.flows.get_mut(place) else { return };
        if flow.packets >= self.size {
            flow.packets = 0;
            let other = random.wrapping_mul(0x9e37_79b9) ^ random.rotate_left(13);
            flow.ports = (random_port(other), random_port(other.wrapping_mul(0x85eb_ca6b)));
        }
        flow.packets += 1;
        self.frame.set_ports(flow.ports.0, flow.ports.1);
        self.frame.fill(packet);
    }

    fn restart(&mut self) {
        self.flows.iter_mut().for_each(|flow| flow.packets = self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};
    use std::collections::HashMap;

    #[test]
    fn as_many_flows_as_long() {
        let config = "FastUDPFlows(0, 1000, 60, 2:0:0:0:0:1, 1.0.0.1, 2:0:0:0:0:2, 2.0.0.2, 4, 10)
            -> CheckIPHeader(OFFSET 14) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let mut flows: HashMap<Vec<u8>, usize> = HashMap::new();
        while bench.pull("out", 100) > 0 {
            bench
                .taken("out")
                .iter()
                .for_each(|frame| *flows.entry(frame[34..38].to_vec()).or_default() += 1);
        }
        assert_eq!(flows.values().sum::<usize>(), 1000);
        assert!((100..=104).contains(&flows.len()), "{}", flows.len());
        assert!(flows.values().filter(|&&packets| packets == 10).count() >= 96);
    }

    #[test]
    fn mistakes() {
        let error = configure(&CLASS, "0, 1, 60, 2:0:0:0:0:1, 1.0.0.1, 2:0:0:0:0:2, 2.0.0.2, 0, 10");
        assert_eq!(error.unwrap_err(), ["FLOWS: expected 1 to 1048576 flows, got 0"]);
    }
}
