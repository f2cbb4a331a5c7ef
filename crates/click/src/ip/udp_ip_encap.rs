//! =c
//! UDPIPEncap(SRC, SPORT, DST, DPORT [, CHECKSUM])
//!
//! =s udp
//! puts UDP and IP headers before packets
//!
//! =d
//! Each packet becomes the payload of a UDP packet from address SRC and port SPORT to address DST and port DPORT;
//! DST may be `DST_ANNO` for the destination annotation. The UDP checksum is computed unless CHECKSUM is false.
//! Identifications count up from 0, the time to live is 250. Network and transport header are marked, and the
//! destination annotation is set to DST.
//!
//! Drop reasons: no head room for the headers.
//!
//! =a IPEncap, DynamicUDPIPEncap, UDPIP6Encap
//!
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

use std::net::Ipv4Addr;

use graph::services::UdpPort;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::wire::ipv4::{Ipv4, Ipv4Repr};
use packet::wire::udp::{self, Udp};
use packet::wire::{IpProtocol, PseudoHeader};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "UDPIPEncap",
    manual: graph::manual!("udp_ip_encap.rs", "UDPIPEncap"),
    ..UdpIpEncap::<false>::CLASS
};

pub(crate) static DYNAMIC: Class = Class {
    name: "DynamicUDPIPEncap",
    manual: graph::manual!("udp_ip_encap.rs", "DynamicUDPIPEncap"),
    ..UdpIpEncap::<true>::CLASS
};

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To this address.
    Address(Ipv4Addr),
    /// To that in the destination annotation.
    Annotation,
}

impl Destination {
    /// The address, for `packet`; the annotation is set to it.
    pub(super) fn of(self, packet: &mut Packet) -> Ipv4Addr {
        match self {
            Self::Address(address) => {
                packet.annotations_mut().set_destination_ip(address.to_bits());
                address
            }
            Self::Annotation => Ipv4Addr::from_bits(packet.annotations().destination_ip()),
        }
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Annotation => f.write_str("DST_ANNO"),
        }
    }
}

impl FromArgument for Destination {
    const EXPECTED: &'static str = "IP address or DST_ANNO";
    fn from_argument(text: &str) -> Option<Self> {
        match text {
            "DST_ANNO" => Some(Self::Annotation),
            address => Ipv4Addr::from_argument(address).map(Self::Address),
        }
    }
}

/// Puts an IPv4 header without options before the data and marks it; the payload is what is there now.
pub(crate) fn prepend_header(packet: &mut Packet, repr: &Ipv4Repr) -> Option<()> {
    let header_len = repr.header_len();
    let bytes = packet.prepend(header_len)?;
    repr.emit(&mut Ipv4::new_unchecked(bytes)).ok()?;
    packet.set_network_and_transport_header(0, header_len);
    Some(())
}

/// The element of both classes; the ports of a dynamic one count up.
struct UdpIpEncap<const IS_DYNAMIC: bool> {
    source: Ipv4Addr,
    source_port: u16,
    destination: Destination,
    destination_port: u16,
    checksum: bool,
    identification: u16,
    /// After how many packets the ports change; 0 for never.
    interval: u32,
    /// Packets since the ports last changed.
    count: u32,
}

/// Why a packet is dropped.
pub(crate) const NO_ROOM: &str = "no head room for the headers";

impl<const IS_DYNAMIC: bool> UdpIpEncap<IS_DYNAMIC> {
    const CLASS: Class = Class {
        handlers: &[
            Handler::read_write(
                "src",
                Combine::First,
                "The SRC argument.",
                &Get(|e: &mut Self| e.source.to_string()),
                &Put(|e: &mut Self, _, value| {
                    e.source = read("src", value)?;
                    Ok(())
                }),
            ),
            Handler::read_write(
                "sport",
                Combine::First,
                if IS_DYNAMIC { "The present source port." } else { "The SPORT argument." },
                &Get(|e: &mut Self| e.source_port.to_string()),
                &Put(|e: &mut Self, _, value| {
                    e.source_port = read::<UdpPort>("sport", value)?.0;
                    Ok(())
                }),
            ),
            Handler::read_write(
                "dst",
                Combine::First,
                "The DST argument.",
                &Get(|e: &mut Self| e.destination.to_string()),
                &Put(|e: &mut Self, _, value| {
                    e.destination = read("dst", value)?;
                    Ok(())
                }),
            ),
            Handler::read_write(
                "dport",
                Combine::First,
                if IS_DYNAMIC { "The present destination port." } else { "The DPORT argument." },
                &Get(|e: &mut Self| e.destination_port.to_string()),
                &Put(|e: &mut Self, _, value| {
                    e.destination_port = read::<UdpPort>("dport", value)?.0;
                    Ok(())
                }),
            ),
        ],
        make: Self::make,
        ..Class::DEFAULT
    };

    fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
        let arguments = &mut setup.arguments;
        let encap = Self {
            source: arguments.required("SRC")?,
            source_port: arguments.required::<UdpPort>("SPORT")?.0,
            destination: arguments.required("DST")?,
            destination_port: arguments.required::<UdpPort>("DPORT")?.0,
            checksum: arguments.optional("CHECKSUM")?.unwrap_or(true),
            identification: 0,
            interval: if IS_DYNAMIC { arguments.optional("INTERVAL")?.unwrap_or(0) } else { 0 },
            count: 0,
        };
        arguments.finish()?;
        Ok(Box::new(encap))
    }

    /// Puts both headers before the data; `None` without room.
    fn encapsulate(&mut self, packet: &mut Packet) -> Option<()> {
        let destination = self.destination.of(packet);
        let datagram = packet.prepend(udp::HEADER_LEN)?;
        let length = u16::try_from(datagram.len()).ok()?;
        let mut udp = Udp::new_unchecked(datagram);
        udp.set_source_port(self.source_port);
        udp.set_destination_port(self.destination_port);
        udp.set_length(length);
        udp.set_checksum(0);
        if self.checksum {
            udp.fill_checksum(&PseudoHeader::V4 { source: self.source, destination });
        }
        let mut repr = Ipv4Repr::new(self.source, destination, IpProtocol::UDP, usize::from(length));
        repr.ttl = 250;
        repr.identification = self.identification;
        self.identification = self.identification.wrapping_add(1);
        prepend_header(packet, &repr)?;
        if IS_DYNAMIC {
            self.count = self.count.wrapping_add(1);
            if self.interval > 0 && self.count >= self.interval {
                self.source_port = self.source_port.wrapping_add(1);
                self.destination_port = self.destination_port.wrapping_add(1);
                self.count = 0;
            }
        }
        Some(())
    }
}

/// Reads what was written to the handler `name`.
fn read<T: FromArgument>(name: &str, text: &str) -> Result<T, String> {
    T::from_argument(text.trim()).ok_or_else(|| format!("{name}: expected {}, got '{text}'", T::EXPECTED))
}

impl<const IS_DYNAMIC: bool> Element for UdpIpEncap<IS_DYNAMIC> {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match self.encapsulate(packet) {
            Some(()) => Verdict::Keep,
            None => Verdict::Drop(NO_ROOM),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    use super::*;

    #[test]
    fn to_the_byte() {
        let mut bench = Bench::element(&crate::registry(), "UDPIPEncap(1.0.0.1, 1234, 2.0.0.2, 4321)", 1, 1);
        bench.push("in0", &[b"abc", b""]);
        let packets = bench.taken_packets("out0");
        let first: [u8; 31] = [
            0x45, 0, 0, 31, 0, 0, 0, 0, 250, 17, 0xbd, 0xcb, 1, 0, 0, 1, 2, 0, 0, 2, //
            0x04, 0xd2, 0x10, 0xe1, 0, 11, 0x22, 0xc0, b'a', b'b', b'c',
        ];
        assert_eq!(packets[0].data(), first);
        assert_eq!(packets[0].annotations().destination_ip(), 0x0200_0002);
        assert_eq!(packets[0].transport().map(<[u8]>::len), Some(11));
        assert_eq!(packets[1].data()[4..6], [0, 1], "identifications count up");
    }

    #[test]
    fn destination_annotation_and_no_checksum() {
        let config =
            "in :: TestInput -> SetIPAddress(9.9.9.9) -> e :: UDPIPEncap(1.0.0.1, 1, DST_ANNO, 2, false)
                -> out :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"abc"]);
        let packet = &bench.taken("out")[0];
        assert_eq!(packet[16..20], [9, 9, 9, 9]);
        assert_eq!(packet[26..28], [0, 0]);
        assert_eq!(bench.read("e.dst"), "DST_ANNO");
        bench.write("e.dst", "8.8.8.8").unwrap();
        bench.write("e.sport", "77").unwrap();
        assert!(bench.write("e.dport", "65536").is_err());
        bench.push("in", &[b"abc"]);
        let packet = &bench.taken("out")[0];
        assert_eq!(packet[16..22], [8, 8, 8, 8, 0, 77]);
    }

    #[test]
    fn head_room_ends() {
        // A fresh packet has 128 bytes of head room: enough for four times 28.
        let text = ["UDPIPEncap(1.0.0.1, 1, 2.0.0.2, 2)"; 4].join(" -> ");
        let config = format!(
            "in :: TestInput -> {text} -> e :: UDPIPEncap(1.0.0.1, 1, 2.0.0.2, 2) -> out :: TestOutput;"
        );
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.push("in", &[b"abc"]);
        assert_eq!(bench.drops("e", "no head room for the headers"), 1);
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "1.0.0.1, 1, 2.0.0.2").is_err());
        assert!(configure(&CLASS, "1.0.0.1, 1, elsewhere, 2").is_err());
        assert!(configure(&CLASS, "1.0.0.1, 1, 2.0.0.2, 2, CHECKSUM false").is_ok());
    }

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
        assert!(configure(&DYNAMIC, "1.0.0.1, 1, 2.0.0.2, 2").is_ok());
        assert!(configure(&DYNAMIC, "1.0.0.1, 1, 2.0.0.2, 2, true, -1").is_err());
    }
}
