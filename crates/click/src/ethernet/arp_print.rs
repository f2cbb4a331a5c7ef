//! =c
//! ARPPrint([LABEL, I<keywords> TIMESTAMP, ETHER, ACTIVE])
//!
//! =s arp
//! prints ARP packets
//!
//! =d
//! Prints a line for each packet whose network header is marked (see CheckARPHeader), as tcpdump does: "arp who-has
//! 192.0.2.2 tell 192.0.2.1", "arp reply 192.0.2.2 is-at 02-00-00-00-00-0B". LABEL and a colon come first; the time of reception
//! follows unless TIMESTAMP is false, and the Ethernet addresses if ETHER is true. Prints nothing while ACTIVE is false.
//!
//! Different from Click: OUTFILE is not supported.
//!
//! =a CheckARPHeader, IPPrint, Print

use std::fmt::Write;

use elements::ethernet::header;
use graph::{Class, Context, Element, Field, Handler};
use packet::wire::arp::{Arp, HARDWARE_ETHERNET};
use packet::wire::ethernet::{EtherType, HEADER_LEN, MacAddr};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "ARPPrint",
    handlers: &[Handler::field("active", "Whether it prints.", &Field(|e: &mut ArpPrint| &mut e.active))],
    manual: graph::manual!("arp_print.rs"),
    make: |setup| {
        let label = setup.arguments.optional("LABEL")?.unwrap_or_default();
        let timestamp = setup.arguments.keyword_or("TIMESTAMP", true)?;
        let ether = setup.arguments.keyword_or("ETHER", false)?;
        let active = setup.arguments.keyword_or("ACTIVE", true)?;
        setup.arguments.finish()?;
        Ok(Box::new(ArpPrint { label, timestamp, ether, active }))
    },
    ..Class::DEFAULT
};

struct ArpPrint {
    label: String,
    timestamp: bool,
    ether: bool,
    active: bool,
}

impl ArpPrint {
    fn line(&self, packet: &Packet) -> Option<String> {
        let network = packet.network()?;
        let mut line = String::new();
        if !self.label.is_empty() {
            line += &format!("{}: ", self.label);
        }
        if self.timestamp {
            let us = packet.timestamp_ns() / 1000;
            line += &format!("{}.{:06}: ", us / 1_000_000, us % 1_000_000);
        }
        if self.ether
            && packet.network_offset().is_some_and(|offset| offset >= HEADER_LEN as isize)
            && let Some(bytes) = packet.link().unwrap_or(packet.data()).first_chunk()
        {
            let (destination, source, _) = header::parts(bytes);
            line += &format!("{source} > {destination}: ");
        }
        describe(network, &mut line);
        Some(line)
    }
}

fn describe(network: &[u8], line: &mut String) {
    let Ok(arp) = Arp::new_checked(network) else {
        *line += &format!("truncated-arp ({})", network.len());
        return;
    };
    let (hardware, protocol) = (arp.hardware_type(), arp.protocol_type());
    let (sender, sender_ip) = (arp.sender_mac(), arp.sender_ip());
    let (target, target_ip) = (arp.target_mac(), arp.target_ip());
    // Writing into a string does not fail.
    let _ = match (protocol, arp.hardware_len(), arp.protocol_len(), arp.operation().0) {
        (EtherType::IPV4, 6, 4, 1) if target == MacAddr::ZERO => {
            write!(line, "arp who-has {target_ip} tell {sender_ip}")
        }
        (EtherType::IPV4, 6, 4, 1) => write!(line, "arp who-has {target_ip} ({target}) tell {sender_ip}"),
        (EtherType::IPV4, 6, 4, 2) => write!(line, "arp reply {sender_ip} is-at {sender}"),
        (EtherType::IPV4, 6, 4, 3) => write!(line, "rarp who-is {target} tell {sender}"),
        (EtherType::IPV4, 6, 4, 4) => write!(line, "rarp reply {target} at {target_ip}"),
        (EtherType::IPV4, 6, 4, 8) => write!(line, "invarp who-is {target} tell {sender}"),
        (EtherType::IPV4, 6, 4, 9) => write!(line, "invarp reply {target} at {target_ip}"),
        (EtherType::IPV4, 6, 4, operation) => write!(line, "arp-#{operation}"),
        (protocol, hardware_len, protocol_len, operation) => write!(
            line,
            "arp-#{operation} for proto #{} ({protocol_len}) hardware #{hardware} ({hardware_len})",
            protocol.0
        ),
    };
    if protocol == EtherType::IPV4 && hardware != HARDWARE_ETHERNET {
        *line += &format!(" hardware #{hardware}");
    }
}

impl Element for ArpPrint {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if self.active {
            for line in batch.iter().filter_map(|packet| self.line(packet)) {
                cx.message(&line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::arp_frame::tests::{REPLY, REQUEST};
    use graph::testing::Bench;
    use proptest::prelude::*;

    fn printed(arguments: &str, frame: &[u8]) -> Vec<String> {
        let text = format!("ARPPrint({arguments})");
        let mut bench = Bench::element(&crate::registry(), &text, 1, 1);
        let mut packet = bench.packet(frame);
        packet.set_network_header(14);
        packet.set_timestamp_ns(1_500_000_000);
        bench.push_packets("in0", vec![packet]);
        assert_eq!(bench.taken("out0"), [frame]);
        bench.messages()
    }

    #[test]
    fn lines() {
        assert_eq!(printed("x", &REQUEST), ["x: 1.500000: arp who-has 192.0.2.2 tell 192.0.2.1"]);
        assert_eq!(
            printed("TIMESTAMP false, ETHER true", &REPLY),
            ["02-00-00-00-00-0B > 02-00-00-00-00-0A: arp reply 192.0.2.2 is-at 02-00-00-00-00-0B"]
        );
        assert_eq!(printed("TIMESTAMP false", &REPLY[..20]), ["truncated-arp (6)"]);
        let mut odd = REQUEST;
        odd[19] = 6;
        assert_eq!(printed("TIMESTAMP false", &odd), ["arp-#1 for proto #2048 (6) hardware #1 (6)"]);
        assert!(printed("ACTIVE false", &REPLY).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(printed("ETHER true", &bytes).len(), 1);
        }
    }
}
