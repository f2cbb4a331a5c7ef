//! =c
//! IPEncap(PROTO, SRC, DST [, I<keywords> TTL, TOS, DSCP, DF])
//!
//! =s ip
//! puts an IP header before packets
//!
//! =d
//! Each packet becomes the payload of an IP packet from SRC to DST with protocol PROTO: a number or one of
//! icmp, igmp, ipip, tcp, udp, gre, esp, sctp. DST may be `DST_ANNO` for the destination annotation. Identifications
//! count up from 0. Network and transport header are marked, and the destination annotation is set to DST.
//!
//! =item TTL
//! time to live, 250 by default.
//!
//! =item TOS
//! type of service octet, 0 by default.
//!
//! =item DSCP
//! code point; the upper 6 bits of TOS.
//!
//! =item DF
//! whether the don't-fragment bit is set; false by default.
//!
//! =back
//!
//! Drop reasons: no head room for the header.
//!
//! =e
//!   ... -> IPEncap(ipip, 18.26.4.24, 140.247.60.147) -> ...
//!
//! =a UDPIPEncap, StripIPHeader

use std::net::Ipv4Addr;

use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::Batch;
use packet::wire::IpProtocol;
use packet::wire::ipv4::Ipv4Repr;

use super::udp_ip_encap::{Destination, prepend_header};

pub(crate) static CLASS: Class = Class {
    name: "IPEncap",
    handlers: &[
        Handler::read_write(
            "src",
            Combine::First,
            "The SRC argument.",
            &Get(|e: &mut IPEncap| e.header.source.to_string()),
            &Put(|e: &mut IPEncap, _, value| e.set_source(value)),
        ),
        Handler::read_write(
            "dst",
            Combine::First,
            "The DST argument.",
            &Get(|e: &mut IPEncap| e.destination.to_string()),
            &Put(|e: &mut IPEncap, _, value| e.set_destination(value)),
        ),
    ],
    manual: graph::manual!("ip_encap.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let Protocol(protocol) = arguments.required("PROTO")?;
    let source = arguments.required::<Ipv4Addr>("SRC")?;
    let destination = arguments.required("DST")?;
    let mut header = Ipv4Repr::new(source, Ipv4Addr::UNSPECIFIED, protocol, 0);
    header.ttl = arguments.keyword_or("TTL", 250)?;
    let tos = arguments.keyword_or("TOS", 0u8)?;
    header.dscp = arguments.keyword_or("DSCP", tos >> 2)?;
    header.ecn = tos & 3;
    header.dont_fragment = arguments.keyword_or("DF", false)?;
    arguments.finish()?;
    if header.dscp > 63 {
        return Err(format!("DSCP: expected code point from 0 to 63, got {}", header.dscp).into());
    }
    Ok(Box::new(IPEncap { header, destination }))
}

/// A protocol by its number or name.
pub(crate) struct Protocol(pub(crate) IpProtocol);

impl FromArgument for Protocol {
    const EXPECTED: &'static str =
        "IP protocol: a number up to 255, icmp, igmp, ipip, tcp, udp, gre, esp or sctp";
    fn from_argument(text: &str) -> Option<Self> {
        Some(Self(match text {
            "icmp" => IpProtocol::ICMP,
            "igmp" => IpProtocol::IGMP,
            "ipip" => IpProtocol::IPIP,
            "tcp" => IpProtocol::TCP,
            "udp" => IpProtocol::UDP,
            "gre" => IpProtocol::GRE,
            "esp" => IpProtocol::ESP,
            "sctp" => IpProtocol::SCTP,
            number => IpProtocol(u8::from_argument(number)?),
        }))
    }
}

struct IPEncap {
    header: Ipv4Repr,
    destination: Destination,
}

impl IPEncap {
    /// Writes the handler `src`.
    fn set_source(&mut self, value: &str) -> Result<(), String> {
        self.header.source = Ipv4Addr::from_value(value).map_err(|error| format!("src: {error}"))?;
        Ok(())
    }

    /// Writes the handler `dst`.
    fn set_destination(&mut self, value: &str) -> Result<(), String> {
        self.destination = Destination::from_value(value).map_err(|error| format!("dst: {error}"))?;
        Ok(())
    }
}

impl Element for IPEncap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            self.header.destination = self.destination.of(packet);
            self.header.payload_len = packet.len();
            if prepend_header(packet, &self.header).is_none() {
                return Verdict::Drop("no head room for the header");
            }
            self.header.identification = self.header.identification.wrapping_add(1);
            Verdict::Keep
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use packet::checksum;

    use super::*;

    #[test]
    fn to_the_byte() {
        let text = "IPEncap(ipip, 1.0.0.1, 2.0.0.2, TTL 9, DSCP 46, DF true)";
        let mut bench = Bench::element(&crate::registry(), text, 1, 1);
        bench.push("in0", &[b"abc", b"abc"]);
        let packets = bench.taken_packets("out0");
        let mut expected = [0x45, 184, 0, 23, 0, 1, 0x40, 0, 9, 4, 0, 0, 1, 0, 0, 1, 2, 0, 0, 2];
        let check = checksum::ipv4_header_compute(&expected);
        expected[10..12].copy_from_slice(&check.to_be_bytes());
        assert_eq!(packets[1].data(), [&expected[..], b"abc"].concat());
        assert_eq!(packets[1].annotations().destination_ip(), 0x0200_0002);
        assert_eq!(packets[1].transport(), Some(&b"abc"[..]));
    }

    #[test]
    fn handlers_and_mistakes() {
        let mut bench = Bench::element(&crate::registry(), "IPEncap(4, 1.0.0.1, DST_ANNO)", 1, 1);
        bench.write("e.dst", "3.0.0.3").unwrap();
        assert_eq!(bench.read("e.dst"), "3.0.0.3");
        assert!(bench.write("e.src", "DST_ANNO").is_err());
        assert!(configure(&CLASS, "ospf6, 1.0.0.1, 2.0.0.2").is_err());
        assert!(configure(&CLASS, "4, 1.0.0.1, 2.0.0.2, DSCP 64").is_err());
    }
}
