//! =c
//! CheckARPHeader([OFFSET, I<keywords> VERBOSE, DETAILS])
//!
//! =s arp
//! checks ARP packets
//!
//! =d
//! Takes packets with an ARP header OFFSET bytes into the data (0 by default). Checks that the
//! header and its four addresses are there, that Ethernet addresses have six bytes, IPv4 addresses
//! four and IPv6 addresses sixteen. Marks good packets' ARP header as the network header. Bad
//! packets leave by output 1 if that is in use. Otherwise they are dropped as "tiny packet", "too
//! small for addresses", "bad hardware type/length" or "bad protocol type/length".
//!
//! With VERBOSE true every bad packet is reported, otherwise the first one. With DETAILS true there
//! is a C<drop_details> handler.
//!
//! =a ARPPrint, CheckIPHeader

use graph::{Arguments, Class, ConfigError};
use packet::Packet;
use packet::wire::arp::{Arp, HARDWARE_ETHERNET};
use packet::wire::ethernet::EtherType;

use crate::ip::header_check::{Check, HeaderCheck, Reports};

pub(crate) static CLASS: Class = Class {
    name: "CheckARPHeader",
    handlers: &[HeaderCheck::<ArpCheck>::DETAILS],
    manual: graph::manual!("check_arp_header.rs"),
    ..HeaderCheck::<ArpCheck>::CLASS
};

/// What stands before the addresses (RFC 826, "Packet format").
const FIXED_LEN: usize = 8;

struct ArpCheck {
    offset: usize,
}

impl Check for ArpCheck {
    const TITLE: &'static str = "ARP";
    const REASONS: &'static [&'static str] =
        &["tiny packet", "too small for addresses", "bad hardware type/length", "bad protocol type/length"];

    fn read(arguments: &mut Arguments) -> Result<(Self, Reports), ConfigError> {
        let offset = arguments.optional("OFFSET")?.unwrap_or(0);
        Ok((Self { offset }, Reports::read(arguments)?))
    }

    fn check(&mut self, packet: &mut Packet) -> Result<(), usize> {
        let bytes = packet.data().get(self.offset..).unwrap_or(&[]);
        let arp = Arp::new_unchecked(bytes.first_chunk::<FIXED_LEN>().ok_or(0usize)?);
        let addresses = usize::from(arp.hardware_len()) + usize::from(arp.protocol_len());
        let length = FIXED_LEN + 2 * addresses;
        if bytes.len() < length {
            return Err(1);
        }
        if arp.hardware_type() == HARDWARE_ETHERNET && arp.hardware_len() != 6 {
            return Err(2);
        }
        match (arp.protocol_type(), arp.protocol_len()) {
            (EtherType::IPV4, 4) | (EtherType::IPV6, 16) => {}
            (EtherType::IPV4 | EtherType::IPV6, _) => return Err(3),
            _ => {}
        }
        packet.set_network_and_transport_header(self.offset, length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::arp_frame::tests::REQUEST;
    use super::*;
    use graph::testing::Bench;
    use proptest::prelude::*;

    #[test]
    fn good_and_bad() {
        let mut bench = Bench::element(&crate::registry(), "CheckARPHeader(14, DETAILS true)", 1, 1);
        let changed = |at: usize, to: u8| {
            let mut frame = REQUEST;
            frame[at] = to;
            frame
        };
        bench.push("in0", &[&REQUEST, &REQUEST[..21], &REQUEST[..41], &changed(18, 5), &changed(19, 3)]);
        let packets = bench.taken_packets("out0");
        assert_eq!((packets.len(), packets[0].network_offset()), (1, Some(14)));
        for &reason in ArpCheck::REASONS {
            assert_eq!(bench.drops("e", reason), 1, "{reason}");
        }
        assert_eq!(bench.messages(), ["e: ARP header check failed: tiny packet"]);
        assert!(bench.read("e.drop_details").starts_with("1\ttiny packet\n1\ttoo small"));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..50), offset in 0usize..60) {
            let text = format!("CheckARPHeader({offset})");
            let mut bench = Bench::element(&crate::registry(), &text, 1, 2);
            bench.push("in0", &[&bytes]);
            prop_assert_eq!(bench.taken("out0").len() + bench.taken("out1").len(), 1);
        }
    }
}
