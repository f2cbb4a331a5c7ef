//! =c
//! CheckUDPHeader([I<keywords> VERBOSE, DETAILS, CHECKSUM])
//!
//! =s udp
//! checks UDP headers
//!
//! =d
//! Expects packets with the IP header marked and checked. Checks that they are UDP, that the UDP length fits
//! the packet, and the checksum, if the sender computed one. What passes leaves by output 0; what fails leaves
//! by output 1 if that is connected and is dropped otherwise. A message tells of the first failure.
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

use std::cell::Cell;

use elements::ip::rejects::Rejects;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup};
use packet::wire::IpProtocol;
use packet::{Batch, Packet, checksum};

pub(crate) static CLASS: Class = Class {
    name: "CheckUDPHeader",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets refused so far.",
            &Get(|e: &mut CheckTransportHeader| e.rejects.total().to_string()),
        ),
        Handler::read(
            "drop_details",
            Combine::Join,
            "Packets refused, by reason. Only with DETAILS.",
            &Get(|e: &mut CheckTransportHeader| e.rejects.details_text()),
        ),
    ],
    manual: graph::manual!("check_udp_header.rs"),
    make: |setup| make(setup, IpProtocol::UDP),
    ..Class::DEFAULT
};

const UDP_REASONS: [&str; 3] = ["not UDP", "bad packet length", "bad UDP checksum"];
const TCP_REASONS: [&str; 3] = ["not TCP", "bad packet length", "bad TCP checksum"];

/// Makes a CheckUDPHeader or CheckTCPHeader.
pub(super) fn make(setup: &mut Setup<'_>, protocol: IpProtocol) -> Result<Box<dyn Element>, ConfigError> {
    let name = setup.name();
    let verbose = setup.arguments.keyword_or("VERBOSE", false)?;
    let details = setup.arguments.keyword_or("DETAILS", false)?;
    let checksum = setup.arguments.keyword_or("CHECKSUM", true)?;
    setup.arguments.finish()?;
    let (title, reasons) =
        if protocol == IpProtocol::UDP { ("UDP", &UDP_REASONS) } else { ("TCP", &TCP_REASONS) };
    let rejects = Rejects::new(name, title, reasons, verbose, details);
    Ok(Box::new(CheckTransportHeader { protocol, checksum, rejects }))
}

/// What is wrong; the number of the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Protocol,
    Length,
    Checksum,
}

struct CheckTransportHeader {
    protocol: IpProtocol,
    checksum: bool,
    rejects: Rejects,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn check(packet: &Packet, protocol: IpProtocol, checked: bool) -> Result<(), Flaw> {
    let header = packet.network().and_then(|bytes| bytes.first_chunk::<20>()).ok_or(Flaw::Protocol)?;
    if header[9] != protocol.0 {
        return Err(Flaw::Protocol);
    }
    let segment = packet.transport().ok_or(Flaw::Length)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let payload_len = usize::from(u16::from_be_bytes([header[2], header[3]])).saturating_sub(header_len);
    let (length, check) = if protocol == IpProtocol::UDP {
        let length = usize::from(word(segment, 4).ok_or(Flaw::Length)?);
        // RFC 768: "the minimum value of the length is eight".
        if length < 8 {
            return Err(Flaw::Length);
        }
        (length, word(segment, 6).ok_or(Flaw::Length)?)
    } else {
        // RFC 9293, 3.1: the data offset says where the data begin; 5 words at least, and within the segment.
        let data_offset = usize::from(segment.get(12).ok_or(Flaw::Length)? >> 4) * 4;
        if data_offset < 20 || data_offset > payload_len {
            return Err(Flaw::Length);
        }
        (payload_len, word(segment, 16).ok_or(Flaw::Length)?)
    };
    let segment = segment.get(..length).ok_or(Flaw::Length)?;
    // RFC 768: "An all zero transmitted checksum value means that the transmitter generated no checksum".
    if !checked || protocol == IpProtocol::UDP && check == 0 {
        return Ok(());
    }
    let address = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]].into();
    let pseudo = checksum::pseudo_v4(address(12), address(16), protocol.0, length as u16);
    if checksum::combine(pseudo, checksum::sum(segment)) == 0xffff { Ok(()) } else { Err(Flaw::Checksum) }
}

impl Element for CheckTransportHeader {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let Self { protocol, checksum, rejects } = self;
        let flaw = Cell::new(Flaw::Protocol);
        batch.extract(
            |packet| match check(packet, *protocol, *checksum) {
                Ok(()) => true,
                Err(found) => {
                    flaw.set(found);
                    false
                }
            },
            |packet| rejects.reject(cx, packet, flaw.get() as usize),
        );
    }

    fn has_handler(&self, name: &str) -> bool {
        name != "drop_details" || self.rejects.has_details()
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::ipv4;

    use super::*;

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
}
