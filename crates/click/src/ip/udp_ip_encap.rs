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

use std::net::Ipv4Addr;

use graph::arguments::Arguments;
use graph::services::UdpPort;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::wire::IpProtocol;
use packet::wire::ipv4::{Ipv4, Ipv4Repr};
use packet::{Batch, Packet, checksum};

pub(crate) static CLASS: Class = Class {
    name: "UDPIPEncap",
    handlers: &[
        Handler::read_write(
            "src",
            Combine::First,
            "The SRC argument.",
            &Get(|e: &mut UDPIPEncap| e.source.to_string()),
            &Put(|e: &mut UDPIPEncap, _, value| e.set_source(value)),
        ),
        Handler::read_write(
            "sport",
            Combine::First,
            "The SPORT argument.",
            &Get(|e: &mut UDPIPEncap| e.source_port.to_string()),
            &Put(|e: &mut UDPIPEncap, _, value| e.set_source_port(value)),
        ),
        Handler::read_write(
            "dst",
            Combine::First,
            "The DST argument.",
            &Get(|e: &mut UDPIPEncap| e.destination.to_string()),
            &Put(|e: &mut UDPIPEncap, _, value| e.set_destination(value)),
        ),
        Handler::read_write(
            "dport",
            Combine::First,
            "The DPORT argument.",
            &Get(|e: &mut UDPIPEncap| e.destination_port.to_string()),
            &Put(|e: &mut UDPIPEncap, _, value| e.set_destination_port(value)),
        ),
    ],
    manual: graph::manual!("udp_ip_encap.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let encap = UDPIPEncap::from_arguments(&mut setup.arguments)?;
    setup.arguments.finish()?;
    Ok(Box::new(encap))
}

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

pub(super) struct UDPIPEncap {
    pub(super) source: Ipv4Addr,
    pub(super) source_port: u16,
    pub(super) destination: Destination,
    pub(super) destination_port: u16,
    checksum: bool,
    identification: u16,
}

const UDP_HEADER_LEN: usize = 8;

/// Why a packet is dropped.
pub(crate) const NO_ROOM: &str = "no head room for the headers";

impl UDPIPEncap {
    pub(super) fn from_arguments(arguments: &mut Arguments) -> Result<Self, ConfigError> {
        Ok(Self {
            source: arguments.required("SRC")?,
            source_port: arguments.required::<UdpPort>("SPORT")?.0,
            destination: arguments.required("DST")?,
            destination_port: arguments.required::<UdpPort>("DPORT")?.0,
            checksum: arguments.optional("CHECKSUM")?.unwrap_or(true),
            identification: 0,
        })
    }

    /// Counts both ports up.
    pub(super) fn next_ports(&mut self) {
        self.source_port = self.source_port.wrapping_add(1);
        self.destination_port = self.destination_port.wrapping_add(1);
    }

    /// Puts both headers before the data; `None` without room.
    pub(super) fn encapsulate(&mut self, packet: &mut Packet) -> Option<()> {
        let destination = self.destination.of(packet);
        let datagram = packet.prepend(UDP_HEADER_LEN)?;
        let length = u16::try_from(datagram.len()).ok()?;
        datagram[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        datagram[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        datagram[4..6].copy_from_slice(&length.to_be_bytes());
        datagram[6..8].fill(0);
        if self.checksum {
            let pseudo = checksum::pseudo_v4(self.source, destination, IpProtocol::UDP.0, length);
            let check = checksum::finish_udp(checksum::combine(pseudo, checksum::sum(datagram)));
            datagram[6..8].copy_from_slice(&check.to_be_bytes());
        }
        let mut repr = Ipv4Repr::new(self.source, destination, IpProtocol::UDP, usize::from(length));
        repr.ttl = 250;
        repr.identification = self.identification;
        self.identification = self.identification.wrapping_add(1);
        prepend_header(packet, &repr)
    }

    /// Writes the handler `src`.
    pub(super) fn set_source(&mut self, value: &str) -> Result<(), String> {
        self.source = read("src", value)?;
        Ok(())
    }

    /// Writes the handler `sport`.
    pub(super) fn set_source_port(&mut self, value: &str) -> Result<(), String> {
        self.source_port = read::<UdpPort>("sport", value)?.0;
        Ok(())
    }

    /// Writes the handler `dst`.
    pub(super) fn set_destination(&mut self, value: &str) -> Result<(), String> {
        self.destination = read("dst", value)?;
        Ok(())
    }

    /// Writes the handler `dport`.
    pub(super) fn set_destination_port(&mut self, value: &str) -> Result<(), String> {
        self.destination_port = read::<UdpPort>("dport", value)?.0;
        Ok(())
    }
}

/// Reads what was written to the handler `name`.
fn read<T: FromArgument>(name: &str, text: &str) -> Result<T, String> {
    T::from_argument(text.trim()).ok_or_else(|| format!("{name}: expected {}, got '{text}'", T::EXPECTED))
}

impl Element for UDPIPEncap {
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
}
