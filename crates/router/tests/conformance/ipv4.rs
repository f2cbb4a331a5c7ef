//! IPv4: the cases.

use packet::checksum;

use crate::wire::{HOST_A, frame};
use crate::{Case, Expect};

const A: [u8; 4] = [10, 0, 1, 2];
/// A host behind b.
const FAR: [u8; 4] = [10, 2, 0, 1];
const UDP: u8 = 17;
const ICMP: u8 = 1;

/// A packet, of which a case changes what it is about.
#[derive(Clone)]
struct Packet {
    source: [u8; 4],
    destination: [u8; 4],
    time_to_live: u8,
    options: Vec<u8>,
    flags: u16,
    protocol: u8,
    payload: Vec<u8>,
}

impl Packet {
    fn new() -> Self {
        let payload = [&[0x30, 0x39, 0, 9, 0, 40, 0, 0][..], &[7; 32]].concat();
        let (source, destination) = (A, FAR);
        Self { source, destination, time_to_live: 64, options: Vec::new(), flags: 0, protocol: UDP, payload }
    }

    fn from(self, source: [u8; 4]) -> Self {
        Self { source, ..self }
    }

    fn to(self, destination: [u8; 4]) -> Self {
        Self { destination, ..self }
    }

    fn ttl(self, time_to_live: u8) -> Self {
        Self { time_to_live, ..self }
    }

    fn options(self, options: &[u8]) -> Self {
        Self { options: options.to_vec(), ..self }
    }

    fn flags(self, flags: u16) -> Self {
        Self { flags, ..self }
    }

    fn long(self) -> Self {
        Self { payload: [&self.payload[..8], &[7; 1_452]].concat(), ..self }
    }

    fn icmp(self, kind: u8) -> Self {
        // An error quotes a packet.
        let quoted = Packet::new().bytes(0);
        let mut payload = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
        let check = checksum::compute(&payload);
        payload[2..4].copy_from_slice(&check.to_be_bytes());
        Self { protocol: ICMP, payload, ..self }
    }

    fn bytes(&self, number: u16) -> Vec<u8> {
        let header = 20 + self.options.len();
        let mut bytes = vec![0x40 | (header / 4) as u8, 0];
        bytes.extend(((header + self.payload.len()) as u16).to_be_bytes());
        bytes.extend(number.to_be_bytes());
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend([self.time_to_live, self.protocol, 0, 0]);
        bytes.extend(self.source);
        bytes.extend(self.destination);
        bytes.extend(&self.options);
        let check = checksum::ipv4_header_compute(&bytes);
        bytes[10..12].copy_from_slice(&check.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

pub(crate) fn header_len(packet: &[u8]) -> usize {
    usize::from(packet[0] & 0xf) * 4
}

/// The packet that an ICMP error of the router quotes.
pub(crate) fn quoted(packet: &[u8]) -> Option<&[u8]> {
    let message = packet.get(header_len(packet)..)?;
    let is_error = packet[9] == ICMP && matches!(message.first()?, 3 | 4 | 5 | 11 | 12);
    // Those that a case sends come from host a.
    if is_error && packet[12..16] != A { message.get(8..) } else { None }
}

/// What leaves of a packet that is forwarded, with these bytes changed.
pub(crate) fn forwarded(sent: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let length = usize::from(u16::from_be_bytes([sent[2], sent[3]]));
    let mut packet = sent[..length].to_vec();
    packet[8] -= 1;
    for &(at, value) in changes {
        packet[at] = value;
    }
    let header = header_len(&packet);
    let check = checksum::ipv4_header_compute(&packet[..header]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet
}

/// A plain packet that is forwarded.
pub(crate) fn plain(number: u16) -> Vec<u8> {
    frame([8, 0], &Packet::new().bytes(number))
}

pub(crate) fn forwarded_case(number: u16) -> Case {
    let (frame, expect) = (plain(number), Expect::Forwarded(Vec::new()));
    Case { name: "plain", clause: "RFC 1812, 5.2.1", frame, expect }
}

/// A packet from a host that is not on the link by which it comes.
pub(crate) fn from_another_link(number: u16) -> Case {
    let frame = frame([8, 0], &Packet::new().from([10, 0, 2, 99]).bytes(number));
    Case { name: "from another link", clause: "RFC 3704, 2.2", frame, expect: Expect::Nothing }
}

/// All cases; the first has this number.
pub(crate) fn cases(first: usize) -> Vec<Case> {
    use Expect::{Error, Forwarded, Fragments, Nothing};
    const DF: u16 = 0x4000;
    const SECOND_FRAGMENT: u16 = 0x0010;
    const FIRST_FRAGMENT: u16 = 0x2000;
    const EXPIRED: Expect = Error(11, &[0], None);
    const NO_ROUTE: [u8; 4] = [203, 0, 113, 1];
    let mut cases = vec![forwarded_case(first as u16)];
    let mut number = first as u16;
    let new = Packet::new;
    let same = || Forwarded(Vec::new());
    let to_us = |second: u8| [10, second, 0, 1];
    let route = [131, 11, 4, 10, 2, 0, 9, 10, 2, 0, 8, 0];
    let strict = [137, 11, 4, 10, 2, 0, 9, 10, 2, 0, 8, 0];
    let [a, b, c, d] = [10, 0, 2, 1];
    let recorded = vec![(22, 8), (23, a), (24, b), (25, c), (26, d)];
    let stamped = vec![(22, 13), (24, a), (25, b), (26, c), (27, d)];
    for (name, clause, packet, expect) in [
        ("TTL 2", "RFC 1812, 5.3.1", new().ttl(2), same()),
        ("TTL 1", "RFC 1812, 5.3.1", new().ttl(1), EXPIRED),
        ("TTL 0", "RFC 1812, 5.3.1", new().ttl(0), EXPIRED),
        ("TTL 1, a question by ICMP", "RFC 1812, 5.3.1", new().icmp(8).ttl(1), EXPIRED),
        ("record route", "RFC 1812, 4.2.2.2", new().options(&[7, 7, 4, 0, 0, 0, 0, 0]), Forwarded(recorded)),
        ("record route that is full", "RFC 791, 3.1", new().options(&[7, 7, 8, 9, 9, 9, 9, 0]), same()),
        (
            "timestamp",
            "RFC 1812, 4.2.2.3",
            new().options(&[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            Forwarded(stamped),
        ),
        ("loose source route", "RFC 7126, 4.3", new().options(&route), Nothing),
        ("strict source route", "RFC 7126, 4.4", new().options(&strict), Nothing),
        ("router alert", "RFC 2113, 2.1", new().options(&[148, 4, 0, 0]), same()),
        ("unknown option", "RFC 1812, 4.2.2.1", new().options(&[0x9e, 4, 1, 2]), same()),
        (
            "malformed option",
            "RFC 1812, 4.3.3.5",
            new().options(&[7, 7, 3, 0, 0, 0, 0, 0]),
            Error(12, &[0], Some([22, 0, 0, 0])),
        ),
        ("options and TTL 1", "RFC 1812, 5.3.1", new().options(&[148, 4, 0, 0]).ttl(1), EXPIRED),
        ("no route", "RFC 1812, 5.2.7.1", new().to(NO_ROUTE), Error(3, &[0], None)),
        ("blackhole", "RFC 1812, 5.2.7.1", new().to(to_us(3)), Nothing),
        ("unreachable", "RFC 1812, 5.2.7.1", new().to(to_us(4)), Error(3, &[1], None)),
        ("prohibit", "RFC 1812, 5.2.7.1", new().to(to_us(5)), Error(3, &[13], None)),
        ("too long", "RFC 1812, 4.2.2.7", new().long(), Fragments(2)),
        ("too long, DF", "RFC 1191, 4", new().long().flags(DF), Error(3, &[4], Some([0, 0, 5, 0x78]))),
        (
            "too long, with record route",
            "RFC 791, 3.1",
            new().long().options(&[7, 7, 8, 9, 9, 9, 9, 0]),
            Fragments(2),
        ),
        ("to a subnet's broadcast address", "RFC 1812, 5.3.5.2", new().to([10, 0, 2, 255]), Nothing),
        ("to a broadcast address, TTL 1", "RFC 1122, 3.2.2", new().to([10, 0, 2, 255]).ttl(1), Nothing),
        ("limited broadcast", "RFC 1812, 5.3.5.1", new().to([255; 4]), Nothing),
        ("to a group", "RFC 1122, 3.2.2", new().to([239, 1, 1, 1]), Nothing),
        ("to loopback", "RFC 1812, 5.3.7", new().to([127, 0, 0, 1]), Nothing),
        ("from loopback", "RFC 1812, 5.3.7", new().from([127, 0, 0, 1]), Nothing),
        ("from this network", "RFC 1812, 5.3.7", new().from([0, 1, 2, 3]), Nothing),
        ("from nobody", "RFC 1812, 5.3.7", new().from([0; 4]), Nothing),
        ("from a group", "RFC 1812, 5.3.7", new().from([224, 0, 0, 5]), Nothing),
        ("from class E", "RFC 1812, 5.3.7", new().from([240, 0, 0, 1]), Nothing),
        ("from limited broadcast", "RFC 1812, 5.3.7", new().from([255; 4]), Nothing),
        ("from a subnet's broadcast address", "RFC 1812, 5.3.7", new().from([10, 0, 1, 255]), Nothing),
        ("from a broadcast address, TTL 1", "RFC 1122, 3.2.2", new().from([10, 0, 1, 255]).ttl(1), Nothing),
        ("from the router", "RFC 1812, 5.3.7", new().from([10, 0, 1, 1]), Nothing),
        ("from another address of the router", "RFC 1812, 5.3.7", new().from([10, 0, 2, 1]), Nothing),
        ("from the router, no route", "RFC 1122, 3.2.2", new().from([10, 0, 2, 1]).to(NO_ROUTE), Nothing),
        ("later fragment, TTL 1", "RFC 1122, 3.2.2", new().flags(SECOND_FRAGMENT).ttl(1), Nothing),
        ("later fragment, no route", "RFC 1122, 3.2.2", new().flags(SECOND_FRAGMENT).to(NO_ROUTE), Nothing),
        ("later fragment", "RFC 1812, 5.2.1", new().flags(SECOND_FRAGMENT), same()),
        ("first fragment, TTL 1", "RFC 1812, 5.3.1", new().flags(FIRST_FRAGMENT).ttl(1), EXPIRED),
        ("ICMP error, TTL 1", "RFC 1122, 3.2.2", new().icmp(3).ttl(1), Nothing),
        ("ICMP error, no route", "RFC 1122, 3.2.2", new().icmp(11).to(NO_ROUTE), Nothing),
        ("ICMP redirect, TTL 1", "RFC 1122, 3.2.2", new().icmp(5).ttl(1), Nothing),
        ("ICMP error", "RFC 1812, 5.2.1", new().icmp(3), same()),
        (
            "a neighbour that does not answer",
            "RFC 1812, 5.2.7.1",
            new().to([10, 0, 2, 77]),
            Error(3, &[1], None),
        ),
    ] {
        number += 1;
        cases.push(Case { name, clause, frame: frame([8, 0], &packet.bytes(number)), expect });
    }
    for (name, clause, at, value) in [
        ("bad checksum", "RFC 1812, 5.2.2 (2)", 14 + 10, 0xee),
        ("version 5", "RFC 1812, 5.2.2 (3)", 14, 0x55),
        ("header of 16 bytes", "RFC 1812, 5.2.2 (4)", 14, 0x44),
        ("total length below the header's", "RFC 1812, 5.2.2 (5)", 14 + 3, 19),
        ("total length beyond the frame", "RFC 1812, 5.2.2 (1)", 14 + 2, 1),
    ] {
        number += 1;
        let mut frame = frame([8, 0], &new().bytes(number));
        frame[at] = value;
        if value != 0xee {
            frame[24..26].fill(0);
            let check = checksum::ipv4_header_compute(&frame[14..34]);
            frame[24..26].copy_from_slice(&check.to_be_bytes());
        }
        cases.push(Case { name, clause, frame, expect: Nothing });
    }
    number += 1;
    let trailed = [plain(number), vec![0xaa; 13]].concat();
    cases.push(Case { name: "a trailer", clause: "RFC 1812, 5.2.2", frame: trailed, expect: same() });
    for (name, destination) in [
        ("link-level broadcast", [0xff; 6]),
        ("link-level group", [1, 0, 0x5e, 1, 1, 1]),
        ("to another", HOST_A),
    ] {
        for ttl in [64, 1] {
            number += 1;
            let mut frame = frame([8, 0], &new().ttl(ttl).bytes(number));
            frame[..6].copy_from_slice(&destination);
            cases.push(Case { name, clause: "RFC 1812, 5.3.4", frame, expect: Nothing });
        }
    }
    cases
}
