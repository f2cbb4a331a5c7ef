//! =c
//! ICMPPingEncap(SRC, DST [, I<keywords> IDENTIFIER])
//!
//! =s icmp
//! makes packets the data of pings
//!
//! =d
//! Each packet becomes the data of an ICMP echo request from SRC to DST with time to live 255. Sequence number and
//! IP identification count up from 1 and leave 0 out. IDENTIFIER is the ICMP identifier, 0 by default; it is sent
//! in network byte order, as is the sequence number.
//!
//! Drop reasons: no head room for the headers.
//!
//! =a ICMPIPEncap, ICMPPingSource, ICMPPingResponder
//!
//! =c
//! ICMPIPEncap(SRC, DST, TYPE [, CODE, I<keyword> IDENTIFIER])
//!
//! =s icmp
//! puts ICMP and IP headers before packets
//!
//! =d
//! Each packet becomes the data of an ICMP message from SRC to DST, with time to live 255. TYPE and
//! CODE are numbers or names (such as C<echo>, C<timestamp>, or C<unreachable> and C<host>); CODE
//! is 0 by default. In requests and their replies IDENTIFIER (0 by default) and a sequence number
//! follow. The number counts up from 1 and leaves 0 out. In other messages 4 zeros follow. In
//! timestamps 12 more zeros follow. Network and transport header are marked, and the destination
//! annotation is set to DST.
//!
//! Drop reasons: no head room for the headers.
//!
//! =a ICMPPingEncap, ICMPError, IPEncap

use std::net::Ipv4Addr;

use elements::icmp::names;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::wire::IpProtocol;
use packet::wire::icmp::{Icmp, IcmpType};
use packet::wire::ipv4::Ipv4Repr;
use packet::{Batch, Packet};

use crate::ip::prepend_header;

pub(crate) static CLASS: Class = Class {
    name: "ICMPPingEncap",
    handlers: &[
        Handler::read_write(
            "src",
            Combine::First,
            "The SRC argument.",
            &Get(|e: &mut IcmpEncap| e.request.source.to_string()),
            &Put(|e: &mut IcmpEncap, _, value| e.request.set_source(value)),
        ),
        Handler::read_write(
            "dst",
            Combine::First,
            "The DST argument.",
            &Get(|e: &mut IcmpEncap| e.request.destination.to_string()),
            &Put(|e: &mut IcmpEncap, _, value| e.request.set_destination(value)),
        ),
    ],
    manual: graph::manual!("icmp_ping_encap.rs", "ICMPPingEncap"),
    make: |setup| make(setup, false),
    ..Class::DEFAULT
};

pub(crate) static ANY: Class = Class {
    name: "ICMPIPEncap",
    manual: graph::manual!("icmp_ping_encap.rs", "ICMPIPEncap"),
    make: |setup| make(setup, true),
    ..CLASS
};

/// Makes the element; `has_type`: the arguments give the type of messages.
fn make(setup: &mut Setup<'_>, has_type: bool) -> Result<Box<dyn Element>, ConfigError> {
    let source = setup.arguments.required("SRC")?;
    let destination = setup.arguments.required("DST")?;
    let (mut kind, mut code) = ("echo".to_owned(), "0".to_owned());
    if has_type {
        kind = setup.arguments.required("TYPE")?;
        code = setup.arguments.optional("CODE")?.unwrap_or(code);
    }
    let identifier = setup.arguments.keyword_or("IDENTIFIER", 0)?;
    setup.arguments.finish()?;
    let kind =
        names::type_number(&kind).ok_or_else(|| format!("TYPE: expected an ICMP type, got '{kind}'"))?;
    let code = names::code_number(kind, &code)
        .ok_or_else(|| format!("CODE: expected a code of this ICMP type, got '{code}'"))?;
    let request = Request { kind, code, ..Request::echo(source, destination, identifier, 255) };
    Ok(Box::new(IcmpEncap { request, sequence: 1 }))
}

/// What the messages of one element have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) source: Ipv4Addr,
    pub(super) destination: Ipv4Addr,
    pub(super) identifier: u16,
    pub(super) ttl: u8,
    pub(super) kind: u8,
    pub(super) code: u8,
}

impl Request {
    /// Echo requests.
    pub(super) fn echo(source: Ipv4Addr, destination: Ipv4Addr, identifier: u16, ttl: u8) -> Self {
        Self { source, destination, identifier, ttl, kind: names::ECHO, code: 0 }
    }

    /// Makes the data of `packet` the data of a message with this sequence number, if its type has one, which is its IP
    /// identification too. `None` without head room.
    pub(super) fn encapsulate(&self, packet: &mut Packet, sequence: u16) -> Option<()> {
        let header_len = names::header_len(self.kind);
        let message = packet.prepend(header_len)?;
        message[..header_len].fill(0);
        let mut icmp = Icmp::new_unchecked(message);
        icmp.set_icmp_type(IcmpType(self.kind));
        icmp.set_code(self.code);
        if names::has_sequence(self.kind) {
            let ([i0, i1], [s0, s1]) = (self.identifier.to_be_bytes(), sequence.to_be_bytes());
            icmp.set_rest_of_header([i0, i1, s0, s1]);
        }
        icmp.fill_checksum();
        let mut header = Ipv4Repr::new(self.source, self.destination, IpProtocol::ICMP, packet.len());
        header.identification = sequence;
        header.ttl = self.ttl;
        prepend_header(packet, &header)?;
        packet.annotations_mut().set_destination_ip(self.destination.to_bits());
        Some(())
    }

    /// Writes the handler `src`.
    pub(super) fn set_source(&mut self, value: &str) -> Result<(), String> {
        self.source = read_address("src", value)?;
        Ok(())
    }

    /// Writes the handler `dst`.
    pub(super) fn set_destination(&mut self, value: &str) -> Result<(), String> {
        self.destination = read_address("dst", value)?;
        Ok(())
    }
}

/// Reads the address that was written to the handler `name`.
fn read_address(name: &str, value: &str) -> Result<Ipv4Addr, String> {
    Ipv4Addr::from_argument(value.trim())
        .ok_or_else(|| format!("{name}: expected {}, got '{value}'", Ipv4Addr::EXPECTED))
}

struct IcmpEncap {
    request: Request,
    sequence: u16,
}

impl Element for IcmpEncap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            if self.request.encapsulate(packet, self.sequence).is_none() {
                return Verdict::Drop("no head room for the headers");
            }
            self.sequence = self.sequence.checked_add(1).unwrap_or(1);
            Verdict::Keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::ANY;
    use graph::testing::{Bench, configure};

    #[test]
    fn to_the_byte() {
        let text = "ICMPPingEncap(1.0.0.1, 2.0.0.2, IDENTIFIER 0x1234)";
        let mut bench = Bench::element(&crate::registry(), text, 1, 1);
        bench.push("in0", &[b"odd", b""]);
        let packets = bench.taken("out0");
        assert_eq!(packets[0][..12], [0x45, 0, 0, 31, 0, 1, 0, 0, 255, 1, 0xb8, 0xda]);
        assert_eq!(
            packets[0][12..],
            [1, 0, 0, 1, 2, 0, 0, 2, 8, 0, 0x12, 0x66, 0x12, 0x34, 0, 1, b'o', b'd', b'd']
        );
        assert_eq!(packets[1][26..28], [0, 2]);
        bench.write("e.dst", "3.0.0.3").unwrap();
        assert!(bench.write("e.src", "x").is_err());
        assert_eq!((bench.read("e.src"), bench.read("e.dst")), ("1.0.0.1".into(), "3.0.0.3".into()));
    }

    #[test]
    fn the_sequence_leaves_zero_out() {
        let mut bench = Bench::element(&crate::registry(), "ICMPPingEncap(1.0.0.1, 2.0.0.2)", 1, 1);
        let mut last = Vec::new();
        for _ in 0..=65535 / 255 {
            bench.push("in0", &[b"".as_slice(); 255]);
            last = bench.taken("out0");
        }
        let sequence = |packet: &Vec<u8>| u16::from_be_bytes([packet[26], packet[27]]);
        assert_eq!(last.iter().map(sequence).min(), Some(1));
        assert!(
            last.windows(2).any(|pair| sequence(&pair[0]) == 65535 && sequence(&pair[1]) == 1)
                || sequence(&last[0]) == 1
        );
    }

    fn message(arguments: &str) -> Vec<u8> {
        let config = format!(
            "in :: TestInput -> ICMPIPEncap(1.0.0.1, 2.0.0.2, {arguments}) -> CheckIPHeader -> out :: TestOutput"
        );
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.push("in", &[b"data"]);
        let message = bench.taken("out").concat().split_off(20);
        assert!(packet::checksum::is_valid(&message));
        message
    }

    #[test]
    fn headers_by_type() {
        assert_eq!(message("echo, IDENTIFIER 7")[4..], [0, 7, 0, 1, b'd', b'a', b't', b'a']);
        let unreachable = message("unreachable, host");
        assert_eq!((unreachable[0], unreachable[1], &unreachable[4..]), (3, 1, &b"\0\0\0\0data"[..]));
        let timestamp = message("timestamp-reply, 0, IDENTIFIER 1");
        assert_eq!((timestamp[0], timestamp.len(), &timestamp[4..8]), (14, 24, &[0, 1, 0, 1][..]));
        assert_eq!(message("77, 5")[..2], [77, 5]);
    }

    #[test]
    fn handlers_and_mistakes() {
        let mut bench = Bench::element(&crate::registry(), "ICMPIPEncap(1.0.0.1, 2.0.0.2, echo)", 1, 1);
        bench.write("e.dst", "3.0.0.3").unwrap();
        bench.push("in0", &[b""]);
        assert_eq!(bench.taken_packets("out0")[0].annotations().destination_ip(), 0x0300_0003);
        assert_eq!(bench.read("e.src"), "1.0.0.1");
        assert!(configure(&ANY, "1.0.0.1, 2.0.0.2").is_err());
        assert!(configure(&ANY, "1.0.0.1, 2.0.0.2, shout").unwrap_err()[0].starts_with("TYPE: "));
        assert!(configure(&ANY, "1.0.0.1, 2.0.0.2, echo, host").unwrap_err()[0].starts_with("CODE: "));
    }
}
