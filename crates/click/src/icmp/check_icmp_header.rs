//! =c
//! CheckICMPHeader([I<keywords> VERBOSE, DETAILS])
//!
//! =s icmp
//! checks ICMP headers
//!
//! =d
//! Expects packets with the IP header marked and checked. Checks that they are ICMP, that their length is right
//! for their type, and the checksum. What passes leaves by output 0; what fails leaves by output 1 if that is
//! connected and is dropped otherwise. A message tells of the first failure.
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

use std::cell::Cell;

use elements::icmp::names;
use elements::ip::Rejects;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup};
use packet::wire::IpProtocol;
use packet::{Batch, Packet, checksum};

pub(crate) static CLASS: Class = Class {
    name: "CheckICMPHeader",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets refused so far.",
            &Get(|e: &mut CheckICMPHeader| e.rejects.total().to_string()),
        ),
        Handler::read(
            "drop_details",
            Combine::Join,
            "Packets refused, by reason. Only with DETAILS.",
            &Get(|e: &mut CheckICMPHeader| e.rejects.details_text()),
        ),
    ],
    manual: graph::manual!("check_icmp_header.rs"),
    make,
    ..Class::DEFAULT
};

const REASONS: [&str; 3] = ["not ICMP", "bad packet length", "bad ICMP checksum"];

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let name = setup.name();
    let verbose = setup.arguments.keyword_or("VERBOSE", false)?;
    let details = setup.arguments.keyword_or("DETAILS", false)?;
    setup.arguments.finish()?;
    Ok(Box::new(CheckICMPHeader { rejects: Rejects::new(name, "ICMP", &REASONS, verbose, details) }))
}

/// What is wrong; the number of the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Protocol,
    Length,
    Checksum,
}

struct CheckICMPHeader {
    rejects: Rejects,
}

fn check(packet: &Packet) -> Result<(), Flaw> {
    let header = packet.network().and_then(|bytes| bytes.first_chunk::<20>()).ok_or(Flaw::Protocol)?;
    if header[9] != IpProtocol::ICMP.0 {
        return Err(Flaw::Protocol);
    }
    let message = packet.transport().ok_or(Flaw::Length)?;
    let length_is_right = match message.first() {
        // RFC 792: an error quotes "the internet header plus the first 64 bits of the original datagram's data".
        Some(&kind) if names::is_error(kind) => message.len() >= 8 + 28,
        // Timestamp and its reply: three timestamps. Information request and its reply: nothing more.
        Some(13 | 14) => message.len() == 8 + 12,
        Some(15 | 16) => message.len() == 8,
        _ => message.len() >= 8,
    };
    if !length_is_right {
        return Err(Flaw::Length);
    }
    if checksum::is_valid(message) { Ok(()) } else { Err(Flaw::Checksum) }
}

impl Element for CheckICMPHeader {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let flaw = Cell::new(Flaw::Protocol);
        batch.extract(
            |packet| match check(packet) {
                Ok(()) => true,
                Err(found) => {
                    flaw.set(found);
                    false
                }
            },
            |packet| self.rejects.reject(cx, packet, flaw.get() as usize),
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
