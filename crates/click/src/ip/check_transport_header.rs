//! =c
//! CheckUDPHeader([I<keywords> VERBOSE, DETAILS, CHECKSUM])
//!
//! =s udp
//! checks UDP headers
//!
//! =d
//! Expects packets with the IP header marked and checked. Checks that they are UDP, that the UDP length fits the
//! packet, and the checksum, if the sender computed one. Good packets leave by output 0. Bad packets leave by output
//! 1 if that is connected, and are dropped otherwise. A message reports the first failure.
//!
//! =item VERBOSE
//! whether every failure gives a message; false by default.
//!
//! =item DETAILS
//! whether there is a C<drop_details> handler; false by default.
//!
//! =item CHECKSUM
//! whether the checksum is checked; true by default.
//!
//! =back
//!
//! Drop reasons: not UDP, bad packet length, bad UDP checksum.
//!
//! =a CheckIPHeader, CheckTCPHeader, CheckICMPHeader
//!
//! =c
//! CheckTCPHeader([I<keywords> VERBOSE, DETAILS, CHECKSUM])
//!
//! =s tcp
//! checks TCP headers
//!
//! =d
//! Expects packets with the IP header marked and checked. Checks that they are TCP, that the TCP header fits the
//! packet, and the checksum. Good packets leave by output 0. Bad packets leave by output 1 if that is connected, and
//! are dropped otherwise. A message reports the first failure.
//!
//! =item VERBOSE
//! whether every failure gives a message; false by default.
//!
//! =item DETAILS
//! whether there is a C<drop_details> handler; false by default.
//!
//! =item CHECKSUM
//! whether the checksum is checked; true by default.
//!
//! =back
//!
//! Drop reasons: not TCP, bad packet length, bad TCP checksum.
//!
//! =a CheckIPHeader, CheckUDPHeader, CheckICMPHeader
//!
//! =c
//! CheckICMPHeader([I<keywords> VERBOSE, DETAILS])
//!
//! =s icmp
//! checks ICMP headers
//!
//! =d
//! Expects packets with the IP header marked and checked. Checks that they are ICMP, that their length is right for
//! their type, and the checksum. Good packets leave by output 0. Bad packets leave by output 1 if that is connected,
//! and are dropped otherwise. A message reports the first failure.
//!
//! =item VERBOSE
//! whether every failure gives a message; false by default.
//!
//! =item DETAILS
//! whether there is a C<drop_details> handler; false by default.
//!
//! =back
//!
//! Drop reasons: not ICMP, bad packet length, bad ICMP checksum.
//!
//! =a CheckIPHeader, CheckTCPHeader, CheckUDPHeader, ICMPPingResponder, ICMPError

use graph::{Arguments, Class, ConfigError};
use packet::Packet;
use packet::wire::icmp::{Icmp, IcmpType};
use packet::wire::ipv4::Ipv4;
use packet::wire::tcp::Tcp;
use packet::wire::udp::Udp;
use packet::wire::{IpProtocol, PseudoHeader};

use super::header_check::{Check, HeaderCheck, Reports};

pub(crate) static UDP: Class = Class {
    name: "CheckUDPHeader",
    manual: graph::manual!("check_transport_header.rs", "CheckUDPHeader"),
    ..HeaderCheck::<Transport<{ IpProtocol::UDP.0 }>>::CLASS
};

pub(crate) static TCP: Class = Class {
    name: "CheckTCPHeader",
    manual: graph::manual!("check_transport_header.rs", "CheckTCPHeader"),
    ..HeaderCheck::<Transport<{ IpProtocol::TCP.0 }>>::CLASS
};

pub(crate) static ICMP: Class = Class {
    name: "CheckICMPHeader",
    manual: graph::manual!("check_transport_header.rs", "CheckICMPHeader"),
    ..HeaderCheck::<Transport<{ IpProtocol::ICMP.0 }>>::CLASS
};

/// Checks headers of a protocol.
struct Transport<const PROTOCOL: u8> {
    /// Whether the checksum counts. ICMP's does always.
    checksum: bool,
}

/// What is wrong; the number of the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Protocol,
    Length,
    Checksum,
}

impl<const PROTOCOL: u8> Transport<PROTOCOL> {
    fn check(&self, packet: &Packet) -> Result<(), Flaw> {
        let header = packet.network().and_then(|bytes| bytes.first_chunk::<20>()).ok_or(Flaw::Protocol)?;
        let header = Ipv4::new_unchecked(header);
        if header.protocol() != IpProtocol(PROTOCOL) {
            return Err(Flaw::Protocol);
        }
        let segment = packet.transport().ok_or(Flaw::Length)?;
        let pseudo = PseudoHeader::V4 { source: header.source(), destination: header.destination() };
        let is_right = match IpProtocol(PROTOCOL) {
            IpProtocol::UDP => {
                let length = Udp::new_checked(segment).map_err(|_| Flaw::Length)?.length();
                // RFC 768: "the minimum value of the length is eight".
                let whole = segment.get(..length).and_then(|bytes| Udp::new_checked(bytes).ok());
                let udp = whole.ok_or(Flaw::Length)?;
                // RFC 768: "An all zero transmitted checksum value means that the transmitter generated no checksum".
                !self.checksum || udp.checksum() == 0 || udp.is_checksum_valid(&pseudo)
            }
            IpProtocol::TCP => {
                // RFC 9293, 3.1: the data offset says where the data begin; 5 words at least, and within the segment.
                let length = header.total_len().saturating_sub(header.header_len());
                let whole = segment.get(..length).and_then(|bytes| Tcp::new_checked(bytes).ok());
                let tcp = whole.ok_or(Flaw::Length)?;
                !self.checksum || tcp.is_checksum_valid(&pseudo)
            }
            _ => {
                let icmp = Icmp::new_checked(segment).map_err(|_| Flaw::Length)?;
                let length_is_right = match icmp.icmp_type() {
                    // RFC 792: an error quotes "the internet header plus the first 64 bits of the original datagram's data".
                    kind if kind.is_error() => segment.len() >= 8 + 28,
                    // Three timestamps.
                    IcmpType::TIMESTAMP_REQUEST | IcmpType::TIMESTAMP_REPLY => segment.len() == 8 + 12,
                    // Nothing more.
                    IcmpType::INFORMATION_REQUEST | IcmpType::INFORMATION_REPLY => segment.len() == 8,
                    _ => true,
                };
                if !length_is_right {
                    return Err(Flaw::Length);
                }
                icmp.is_checksum_valid()
            }
        };
        if is_right { Ok(()) } else { Err(Flaw::Checksum) }
    }
}

impl<const PROTOCOL: u8> Check for Transport<PROTOCOL> {
    const TITLE: &'static str = match IpProtocol(PROTOCOL) {
        IpProtocol::UDP => "UDP",
        IpProtocol::TCP => "TCP",
        _ => "ICMP",
    };

    const REASONS: &'static [&'static str] = match IpProtocol(PROTOCOL) {
        IpProtocol::UDP => &["not UDP", "bad packet length", "bad UDP checksum"],
        IpProtocol::TCP => &["not TCP", "bad packet length", "bad TCP checksum"],
        _ => &["not ICMP", "bad packet length", "bad ICMP checksum"],
    };

    fn read(arguments: &mut Arguments) -> Result<(Self, Reports), ConfigError> {
        let reports = Reports::read(arguments)?;
        let has_choice = IpProtocol(PROTOCOL) != IpProtocol::ICMP;
        let checksum = if has_choice { arguments.keyword_or("CHECKSUM", true)? } else { true };
        Ok((Self { checksum }, reports))
    }

    fn check(&mut self, packet: &mut Packet) -> Result<(), usize> {
        Self::check(self, packet).map_err(|flaw| flaw as usize)
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::ipv4;

    use packet::checksum;

    fn bench(text: &str) -> Bench {
        let config = format!(
            "in :: TestInput -> MarkIPHeader -> e :: {text} -> out :: TestOutput; e[1] -> bad :: TestOutput;"
        );
        Bench::new(&crate::registry(), &config)
    }

    fn udp(payload: &[u8]) -> Vec<u8> {
        let mut bench = Bench::element(&crate::registry(), "UDPIPEncap(1.0.0.1, 7, 2.0.0.2, 8)", 1, 1);
        bench.push("in0", &[payload]);
        bench.taken("out0").remove(0)
    }

    fn tcp(payload: &[u8]) -> Vec<u8> {
        let mut segment = vec![0, 7, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0];
        segment.extend(payload);
        let pseudo = checksum::pseudo_v4([1, 0, 0, 1].into(), [2, 0, 0, 2].into(), 6, segment.len() as u16);
        let check = checksum::finish(checksum::combine(pseudo, checksum::sum(&segment)));
        segment[16..18].copy_from_slice(&check.to_be_bytes());
        ipv4([1, 0, 0, 1], [2, 0, 0, 2], 6, &segment)
    }

    fn changed(packet: &[u8], at: usize, value: u8) -> Vec<u8> {
        let mut packet = packet.to_vec();
        packet[at] = value;
        packet
    }

    #[test]
    fn udp_packets() {
        let good = udp(b"payload");
        let mut unchecked = good.clone();
        unchecked[26..28].fill(0);
        let mut bench = bench("CheckUDPHeader(DETAILS true, VERBOSE true)");
        bench.push("in", &[&good, &unchecked]);
        assert_eq!(bench.taken("out"), [good.clone(), unchecked]);
        let bad = [
            tcp(b""),
            changed(&good, 25, 7),
            changed(&good, 25, 16),
            good[..24].to_vec(),
            changed(&good, 30, 0xee),
        ];
        bench.push("in", &bad.each_ref().map(Vec::as_slice));
        assert_eq!(bench.taken("bad"), bad);
        assert_eq!(bench.read("e.drop_details"), "1\tnot UDP\n3\tbad packet length\n1\tbad UDP checksum\n");
        assert_eq!(bench.messages().len(), 5);
    }

    #[test]
    fn tcp_packets() {
        let good = tcp(b"payload");
        let mut bench = bench("CheckTCPHeader(DETAILS true)");
        bench.push("in", &[&good, &tcp(b"")]);
        assert_eq!(bench.taken("out").len(), 2);
        let bad = [
            udp(b""),
            changed(&good, 32, 0x40),
            changed(&good, 32, 0x70),
            good[..32].to_vec(),
            good[..40].to_vec(),
            changed(&good, 33, 3),
        ];
        bench.push("in", &bad.each_ref().map(Vec::as_slice));
        assert_eq!(bench.taken("bad"), bad);
        assert_eq!(bench.read("e.drop_details"), "1\tnot TCP\n4\tbad packet length\n1\tbad TCP checksum\n");
        let mut lenient = self::bench("CheckTCPHeader(CHECKSUM false)");
        lenient.push("in", &[&bad[5]]);
        assert_eq!(lenient.taken("out").len(), 1);
    }

    fn message(kind: u8, length: usize) -> Vec<u8> {
        let mut message = vec![0; length];
        if let Some(first) = message.first_mut() {
            *first = kind;
        }
        if length >= 4 {
            let check = checksum::compute(&message);
            message[2..4].copy_from_slice(&check.to_be_bytes());
        }
        ipv4([1, 0, 0, 1], [2, 0, 0, 2], 1, &message)
    }

    #[test]
    fn lengths_by_type() {
        let config =
            "in :: TestInput -> MarkIPHeader -> e :: CheckICMPHeader(DETAILS true) -> out :: TestOutput;
            e[1] -> bad :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        let good = [(8, 8), (0, 100), (3, 36), (12, 80), (13, 20), (16, 8), (99, 8)];
        for (kind, length) in good {
            bench.push("in", &[&message(kind, length)]);
            assert_eq!(bench.taken("out").len(), 1, "type {kind}, {length} bytes");
        }
        let bad = [(8, 7), (8, 0), (3, 35), (11, 8), (14, 19), (14, 21), (15, 9)];
        for (kind, length) in bad {
            bench.push("in", &[&message(kind, length)]);
            assert_eq!(bench.taken("bad").len(), 1, "type {kind}, {length} bytes");
        }
        let mut spoilt = message(8, 20);
        spoilt[30] = 1;
        bench.push("in", &[&spoilt, &ipv4([1, 0, 0, 1], [2, 0, 0, 2], 17, &[0; 8])]);
        assert_eq!(bench.read("e.drop_details"), "1\tnot ICMP\n7\tbad packet length\n1\tbad ICMP checksum\n");
    }
}
