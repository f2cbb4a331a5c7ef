//! IPv6: the cases.

use std::net::Ipv6Addr;

use packet::checksum;

use crate::wire::frame;
use crate::{Case, Expect};

const A: &str = "2001:db8:1::2";
/// A host behind b.
const FAR: &str = "2001:db8:9::1";
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;

pub(crate) fn address(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

/// A packet, of which a case changes what it is about.
struct Packet {
    source: [u8; 16],
    destination: [u8; 16],
    hop_limit: u8,
    next_header: u8,
    payload: Vec<u8>,
}

impl Packet {
    fn new() -> Self {
        let payload = [&[0x30, 0x39, 0, 9, 0, 40, 1, 1][..], &[7; 32]].concat();
        let (source, destination) = (address(A), address(FAR));
        Self { source, destination, hop_limit: 64, next_header: UDP, payload }
    }

    fn from(self, source: &str) -> Self {
        Self { source: address(source), ..self }
    }

    fn to(self, destination: &str) -> Self {
        Self { destination: address(destination), ..self }
    }

    fn hops(self, hop_limit: u8) -> Self {
        Self { hop_limit, ..self }
    }

    /// With a header before what there is.
    fn behind(self, next_header: u8, rest: &[u8]) -> Self {
        let payload = [&[self.next_header][..], rest, &self.payload].concat();
        Self { next_header, payload, ..self }
    }

    /// With six octets of hop-by-hop options.
    fn options(self, options: [u8; 6]) -> Self {
        self.behind(HOP_BY_HOP, &[&[0][..], &options].concat())
    }

    fn long(self) -> Self {
        Self { payload: [&self.payload[..8], &[7; 1_432]].concat(), ..self }
    }

    fn icmp(self, kind: u8) -> Self {
        // An error quotes a packet; a redirect names a target and a destination.
        let mut payload = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &Packet::new().bytes(0)].concat();
        let pseudo =
            checksum::pseudo_v6(self.source.into(), self.destination.into(), ICMPV6, payload.len() as u32);
        let check = checksum::finish(checksum::combine(pseudo, checksum::sum(&payload)));
        payload[2..4].copy_from_slice(&check.to_be_bytes());
        Self { next_header: ICMPV6, payload, ..self }
    }

    fn bytes(&self, number: u16) -> Vec<u8> {
        let mut bytes = vec![0x60, 0];
        bytes.extend(number.to_be_bytes());
        bytes.extend((self.payload.len() as u16).to_be_bytes());
        bytes.extend([self.next_header, self.hop_limit]);
        bytes.extend(self.source);
        bytes.extend(self.destination);
        bytes.extend(&self.payload);
        bytes
    }
}

/// The packet that an ICMPv6 error of the router quotes.
pub(crate) fn quoted(packet: &[u8]) -> Option<&[u8]> {
    let message = packet.get(40..)?;
    let is_error = packet[6] == ICMPV6 && *message.first()? < 128;
    if is_error && packet[8..24] != address(A) { message.get(8..) } else { None }
}

/// What leaves of a packet that is forwarded.
pub(crate) fn forwarded(sent: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let length = 40 + usize::from(u16::from_be_bytes([sent[4], sent[5]]));
    let mut packet = sent[..length].to_vec();
    packet[7] -= 1;
    for &(at, value) in changes {
        packet[at] = value;
    }
    packet
}

/// All cases; the first has this number.
pub(crate) fn cases(first: usize) -> Vec<Case> {
    use Expect::{Error, Forwarded, Nothing};
    const EXPIRED: Expect = Error(3, &[0], None);
    const NO_ROUTE: &str = "2001:db8:ffff::1";
    let new = Packet::new;
    let same = || Forwarded(Vec::new());
    let bad_option = || Error(4, &[2], Some([0, 0, 0, 42]));
    let mut cases = Vec::new();
    let mut number = first as u16;
    for (name, clause, packet, expect) in [
        ("plain", "RFC 8200, 3", new(), same()),
        ("hop limit 2", "RFC 8200, 3", new().hops(2), same()),
        ("hop limit 1", "RFC 4443, 3.3", new().hops(1), EXPIRED),
        ("hop limit 0", "RFC 4443, 3.3", new().hops(0), EXPIRED),
        ("a question by ICMPv6, hop limit 1", "RFC 4443, 3.3", new().icmp(128).hops(1), EXPIRED),
        ("padding", "RFC 8200, 4.3", new().options([1, 4, 0, 0, 0, 0]), same()),
        ("router alert", "RFC 2711, 2.1", new().options([5, 2, 0, 0, 1, 0]), same()),
        ("unknown option, skip", "RFC 8200, 4.2", new().options([0x1e, 4, 0, 0, 0, 0]), same()),
        ("unknown option, discard", "RFC 8200, 4.2", new().options([0x5e, 4, 0, 0, 0, 0]), Nothing),
        ("unknown option, report", "RFC 8200, 4.2", new().options([0x9e, 4, 0, 0, 0, 0]), bad_option()),
        (
            "unknown option, report to one",
            "RFC 8200, 4.2",
            new().options([0xde, 4, 0, 0, 0, 0]),
            bad_option(),
        ),
        ("options that do not fit", "RFC 8200, 4.2", new().options([0x1e, 5, 0, 0, 0, 0]), Nothing),
        ("options, hop limit 1", "RFC 4443, 3.3", new().options([1, 4, 0, 0, 0, 0]).hops(1), EXPIRED),
        ("no route", "RFC 4443, 3.1", new().to(NO_ROUTE), Error(1, &[0], None)),
        ("blackhole", "RFC 4443, 3.1", new().to("2001:db8:3::1"), Nothing),
        // Linux says that there is no route.
        ("unreachable", "RFC 4443, 3.1", new().to("2001:db8:4::1"), Error(1, &[0, 3], None)),
        ("prohibit", "RFC 4443, 3.1", new().to("2001:db8:5::1"), Error(1, &[1], None)),
        ("too big", "RFC 4443, 3.2", new().long(), Error(2, &[0], Some([0, 0, 5, 0x78]))),
        ("from loopback", "RFC 4291, 2.5.3", new().from("::1"), Nothing),
        ("from nobody", "RFC 4291, 2.5.2", new().from("::"), Nothing),
        ("from a group", "RFC 4291, 2.7", new().from("ff02::1"), Nothing),
        ("from a mapped address", "RFC 4291, 2.5.5.2", new().from("::ffff:10.0.1.2"), Nothing),
        ("from the router", "RFC 4291, 2.6", new().from("2001:db8:1::1"), same()),
        ("from another address of the router", "RFC 4291, 2.6", new().from("2001:db8:2::1"), same()),
        (
            "from the router, no route",
            "RFC 4443, 2.4 (e.6)",
            new().from("2001:db8:2::1").to(NO_ROUTE),
            Nothing,
        ),
        ("from the link", "RFC 4291, 2.5.6", new().from("fe80::77"), Nothing),
        ("to the link", "RFC 4291, 2.5.6", new().to("fe80::77"), Nothing),
        ("to loopback", "RFC 4291, 2.5.3", new().to("::1"), Nothing),
        ("to a group", "RFC 4443, 2.4 (e.3)", new().to("ff0e::1").hops(1), Nothing),
        ("ICMPv6 error, hop limit 1", "RFC 4443, 2.4 (e.1)", new().icmp(1).hops(1), Nothing),
        ("ICMPv6 error, no route", "RFC 4443, 2.4 (e.1)", new().icmp(3).to(NO_ROUTE), Nothing),
        ("ICMPv6 redirect, hop limit 1", "RFC 4443, 2.4 (e.2)", new().icmp(137).hops(1), Nothing),
        ("ICMPv6 redirect, no route", "RFC 4443, 2.4 (e.2)", new().icmp(137).to(NO_ROUTE), Nothing),
        ("ICMPv6 error", "RFC 8200, 3", new().icmp(1), same()),
        (
            "first fragment, hop limit 1",
            "RFC 4443, 3.3",
            new().behind(FRAGMENT, &[0, 0, 1, 0, 0, 0, 7]).hops(1),
            EXPIRED,
        ),
        ("later fragment", "RFC 8200, 4.5", new().behind(FRAGMENT, &[0, 0, 8, 0, 0, 0, 7]), same()),
        (
            "a neighbour that does not answer",
            "RFC 4443, 3.1",
            new().to("2001:db8:2::77"),
            Error(1, &[3], None),
        ),
    ] {
        cases.push(Case { name, clause, frame: frame([0x86, 0xdd], &packet.bytes(number)), expect });
        number += 1;
    }
    let mut short = frame([0x86, 0xdd], &new().bytes(number));
    short[14 + 4] = 1;
    cases.push(Case {
        name: "payload beyond the frame",
        clause: "RFC 8200, 3",
        frame: short,
        expect: Nothing,
    });
    let trailed = [frame([0x86, 0xdd], &new().bytes(number + 1)), vec![0xaa; 13]].concat();
    cases.push(Case { name: "a trailer", clause: "RFC 8200, 3", frame: trailed, expect: same() });
    for hop_limit in [64, 1] {
        let number = first as u16 + cases.len() as u16;
        let mut frame = frame([0x86, 0xdd], &new().hops(hop_limit).bytes(number));
        frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
        let (name, clause) = ("link-level group", "RFC 4443, 2.4 (e.4)");
        cases.push(Case { name, clause, frame, expect: Nothing });
    }
    cases
}
