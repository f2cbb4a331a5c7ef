//! =c
//! UDPIP6Encap(SRC, SPORT, DST, DPORT)
//!
//! =s udp
//! puts UDP and IPv6 headers before packets
//!
//! =d
//! Each packet becomes the payload of a UDP packet over IPv6 from address SRC and port SPORT to address DST and port DPORT;
//! DST may be `DST_ANNO` for the destination annotation. The checksum, which IPv6 asks for, is computed; the hop limit is 255.
//! Network and transport header are marked, and the destination annotation is set to DST.
//!
//! Drop reasons: no head room for the headers.
//!
//! =e
//!   UDPIP6Encap(2001:db8::1, 1234, 2001:db8::2, 1234)
//!
//! =a UDPIPEncap, SetIP6Address

use std::fmt;
use std::net::Ipv6Addr;

use graph::services::UdpPort;
use graph::{Class, Combine, Context, Element, Field, FromArgument, Get, Handler, Put, Verdict};
use packet::wire::ipv6::{Ipv6, Ipv6Repr};
use packet::wire::udp::{HEADER_LEN, Udp};
use packet::wire::{IpProtocol, PseudoHeader};
use packet::{Batch, Packet};

use crate::ip::NO_ROOM;

pub(crate) static CLASS: Class = Class {
    name: "UDPIP6Encap",
    handlers: &[
        Handler::field("src", "The SRC argument.", &Field(|e: &mut UdpIp6Encap| &mut e.source)),
        Handler::read_write(
            "sport",
            Combine::First,
            "The SPORT argument.",
            &Get(|e: &mut UdpIp6Encap| e.source_port.to_string()),
            &Put(|e: &mut UdpIp6Encap, _, value| {
                e.source_port = UdpPort::from_value(value)?.0;
                Ok(())
            }),
        ),
        Handler::field("dst", "The DST argument.", &Field(|e: &mut UdpIp6Encap| &mut e.destination)),
        Handler::read_write(
            "dport",
            Combine::First,
            "The DPORT argument.",
            &Get(|e: &mut UdpIp6Encap| e.destination_port.to_string()),
            &Put(|e: &mut UdpIp6Encap, _, value| {
                e.destination_port = UdpPort::from_value(value)?.0;
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("udp_ip6_encap.rs"),
    make: |setup| {
        let arguments = &mut setup.arguments;
        let encap = UdpIp6Encap {
            source: arguments.required("SRC")?,
            source_port: arguments.required::<UdpPort>("SPORT")?.0,
            destination: arguments.required("DST")?,
            destination_port: arguments.required::<UdpPort>("DPORT")?.0,
        };
        arguments.finish()?;
        Ok(Box::new(encap))
    },
    ..Class::DEFAULT
};

/// Where packets go; `None` is to the address in the destination annotation.
#[derive(Clone, Copy)]
struct Destination(Option<Ipv6Addr>);

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("DST_ANNO"),
        }
    }
}

impl FromArgument for Destination {
    const EXPECTED: &'static str = "IPv6 address or DST_ANNO";
    fn from_argument(text: &str) -> Option<Self> {
        match text {
            "DST_ANNO" => Some(Self(None)),
            address => Ipv6Addr::from_argument(address).map(|address| Self(Some(address))),
        }
    }
}

struct UdpIp6Encap {
    source: Ipv6Addr,
    source_port: u16,
    destination: Destination,
    destination_port: u16,
}

impl UdpIp6Encap {
    fn encapsulate(&self, packet: &mut Packet) -> Option<()> {
        let destination = match self.destination.0 {
            Some(address) => {
                packet.annotations_mut().set_destination_ip6(address.to_bits());
                address
            }
            None => Ipv6Addr::from_bits(packet.annotations().destination_ip6()),
        };
        let datagram = packet.prepend(HEADER_LEN)?;
        let payload_len = datagram.len();
        let length = u16::try_from(payload_len).ok()?;
        let mut udp = Udp::new_unchecked(datagram);
        udp.set_source_port(self.source_port);
        udp.set_destination_port(self.destination_port);
        udp.set_length(length);
        udp.fill_checksum(&PseudoHeader::V6 { source: self.source, destination });
        let header = Ipv6Repr {
            source: self.source,
            destination,
            next_header: IpProtocol::UDP,
            hop_limit: 255,
            traffic_class: 0,
            flow_label: 0,
            payload_len,
        };
        let bytes = packet.prepend(Ipv6Repr::LEN)?;
        header.emit(&mut Ipv6::new_unchecked(bytes)).ok()?;
        packet.set_network_and_transport_header(0, Ipv6Repr::LEN);
        Some(())
    }
}

impl Element for UdpIp6Encap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match self.encapsulate(packet) {
            Some(()) => Verdict::Keep,
            None => Verdict::Drop(NO_ROOM),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};
    use packet::wire::udp::UdpRepr;

    #[test]
    fn the_headers_are_right() {
        let config = "in :: TestInput -> e :: UDPIP6Encap(2001:db8::1, 1234, 2001:db8::2, 53)
            -> CheckIP6Header -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"data", b"odd", b""]);
        let packets = bench.taken_packets("out");
        assert_eq!(packets.len(), 3);
        for packet in &packets {
            let header = Ipv6::new_checked(packet.data()).unwrap();
            assert_eq!((header.hop_limit(), header.next_header()), (255, IpProtocol::UDP));
            let pseudo = PseudoHeader::V6 { source: header.source(), destination: header.destination() };
            let udp = UdpRepr::parse(&Udp::new_checked(header.payload()).unwrap(), &pseudo).unwrap();
            assert_eq!((udp.source_port, udp.destination_port), (1234, 53));
            assert_eq!(packet.annotations().destination_ip6(), header.destination().to_bits());
        }
        assert_eq!(packets[0].transport().map(|bytes| &bytes[8..]), Some(&b"data"[..]));
    }

    #[test]
    fn the_annotation_and_handlers() {
        let config = "in :: TestInput -> SetIP6Address(::9) -> e :: UDPIP6Encap(::1, 1, DST_ANNO, 2) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"x"]);
        assert_eq!(bench.taken("out")[0][39], 9);
        assert_eq!(bench.read("e.dst"), "DST_ANNO");
        bench.write("e.dst", "::8").unwrap();
        bench.write("e.sport", "77").unwrap();
        bench.push("in", &[b"x"]);
        assert_eq!(bench.taken("out")[0][39..42], [8, 0, 77]);
        assert!(bench.write("e.dport", "65536").is_err());
        let mut full = bench.packet(b"x");
        full.prepend(full.headroom() - 47).unwrap();
        bench.push_packets("in", vec![full]);
        assert_eq!(bench.drops("e", NO_ROOM), 1);
        assert!(configure(&CLASS, "::1, 1, elsewhere, 2").is_err());
        assert!(configure(&CLASS, "::1, 1, ::2").is_err());
    }
}
