//! Frames that are sent to both worlds: of both families, of all kinds that a router treats in a way of its own, in the tags and
//! tunnels of the seed's kind of interface. Checksums are finished, as a card delivers them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::checksum;
use packet::random::SplitMix64;
use testbed::{ipv4, ipv6};

use crate::kinds::{Kind, Wrapping};
use crate::world::LINKS;

/// The port that the filter of a scenario denies.
pub(crate) const DENIED: u16 = 5353;

const UDP: u8 = 17;
const TCP: u8 = 6;

/// UDP's port for VXLAN (RFC 7348, 4).
pub(crate) const VXLAN_PORT: [u8; 2] = 4789u16.to_be_bytes();
const UDP_BYTES: usize = 8;
const VXLAN_BYTES: usize = 8;
const GRE_BYTES: usize = 4;

/// A frame, and the link of the router that it is sent to, from 0.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) link: usize,
    pub(crate) frame: Vec<u8>,
    /// Whether the filter denies it.
    pub(crate) is_denied: bool,
}

fn of<T: Copy>(random: &mut SplitMix64, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

/// Draws a probe. Its number stands in the identification or the flow label.
pub(crate) fn probe(random: &mut SplitMix64, kind: &Kind) -> Probe {
    // What does not come by a port is not the filter's.
    let link = if random.one_in(8) { LINKS - 1 } else { random.below(LINKS as u64 - 1) as usize };
    let wrapping = kind.wrappings.get(random.below(2 * kind.wrappings.len().max(1) as u64) as usize);
    let is_tunnel = wrapping.is_some_and(|wrapping| !matches!(wrapping, Wrapping::Tags(_)));
    let link = if wrapping.is_some() && (is_tunnel || !random.one_in(4)) { 0 } else { link };
    let may_be_denied = !is_tunnel && link < LINKS - 1;
    let number = link as u8 + 1;
    let mac = [2, 0, 0, 0, number, 1];
    let others = [
        [2, 0, 0, 0, number, 0x77],
        [0, 0, 0x5e, 0, 1, 7],
        [0, 0, 0x5e, 0, 1, 7],
        [0xff; 6],
        [2, 0, 0, 0, 9, 9],
    ];
    let to = match random.below(8) {
        0 | 1 => of(random, &others),
        2 | 3 if !kind.stations.is_empty() => of(random, kind.stations),
        _ => mac,
    };
    let from = [2, 0, 0, 0, number, 2];
    let is_ipv6 = random.one_in(2);
    // Packets that come by a tunnel are from its other end.
    let network = if is_tunnel { 5 } else { number };
    let (packet, is_denied) = if is_ipv6 {
        ipv6_packet(random, network, may_be_denied)
    } else {
        ipv4_packet(random, network, may_be_denied)
    };
    let ether_type: &[u8] = if is_ipv6 { &[0x86, 0xdd] } else { &[8, 0] };
    let inside = [&[2, 0, 0, 0, 5, 1][..], &[2, 0, 0, 0, 5, 2], ether_type, &packet].concat();
    let (near, far) = ([10, 0, 1, 1], [10, 0, 1, 2]);
    let frame = |tags: &[u8], kind: &[u8], packet: &[u8]| [&to[..], &from, tags, kind, packet].concat();
    let frame = match wrapping {
        None => {
            let tags = [&[][..], &[], &[], &[], &[], &[], &[0x81, 0, 0xe0, 0], &[0x81, 0, 0, 5]];
            frame(of(random, &tags), ether_type, &packet)
        }
        Some(Wrapping::Tags(tags)) => frame(&tags.concat(), ether_type, &packet),
        Some(Wrapping::Ip) => {
            let protocol = if is_ipv6 { 41 } else { 4 };
            frame(&[], &[8, 0], &ipv4::ipv4(far, near, protocol, &packet))
        }
        Some(Wrapping::Gre) => {
            frame(&[], &[8, 0], &ipv4::ipv4(far, near, 47, &[&[0, 0], ether_type, &packet].concat()))
        }
        Some(Wrapping::GreEthernet) => {
            frame(&[], &[8, 0], &ipv4::ipv4(far, near, 47, &[&[0, 0, 0x65, 0x58][..], &inside].concat()))
        }
        Some(Wrapping::Vxlan) => {
            let length = (UDP_BYTES + VXLAN_BYTES + inside.len()) as u16;
            let header =
                [&[0xc0, 0][..], &VXLAN_PORT, &length.to_be_bytes(), &[0, 0], &[8, 0, 0, 0, 0, 0, 7, 0]];
            frame(&[], &[8, 0], &ipv4::ipv4(far, near, UDP, &[&header.concat()[..], &inside].concat()))
        }
        Some(Wrapping::Ip6) => {
            let end = |host| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host);
            let protocol = if is_ipv6 { 41 } else { 4 };
            frame(&[], &[0x86, 0xdd], &ipv6::ipv6(end(2), end(1), protocol, &packet))
        }
    };
    Probe { link, frame, is_denied }
}

/// A payload of a transport protocol, its checksum, and whether the filter denies it.
fn transport(
    random: &mut SplitMix64,
    source: IpAddr,
    destination: IpAddr,
    may_be_denied: bool,
) -> (u8, Vec<u8>, bool) {
    let protocol = of(random, &[UDP, UDP, UDP, TCP, 253, 132]);
    let header = if source.is_ipv4() { 20 } else { 40 };
    let whole = of(random, &[60, 60, 60, 100, 1000, 1280, 1281, 1300, 1301, 1400, 1401, 1500]);
    let mut payload = vec![0x55; (whole - header) as usize];
    if ![UDP, TCP].contains(&protocol) {
        return (protocol, payload, false);
    }
    let to_port = of(random, &[443, 5000, 5005, 68, 53, if may_be_denied { DENIED } else { 443 }]);
    payload[..2].copy_from_slice(&of(random, &[40_000u16, 5000, 67]).to_be_bytes());
    payload[2..4].copy_from_slice(&to_port.to_be_bytes());
    let length = payload.len() as u16;
    let at = if protocol == UDP {
        payload[4..6].copy_from_slice(&length.to_be_bytes());
        6
    } else {
        payload[4..16].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 4, 0]);
        16
    };
    payload[at..at + 2].fill(0);
    let pseudo = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            checksum::pseudo_v4(source, destination, protocol, length)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            checksum::pseudo_v6(source, destination, protocol, u32::from(length))
        }
        _ => unreachable!("both are of one family"),
    };
    let check = checksum::finish(checksum::combine(pseudo, checksum::sum(&payload)));
    payload[at..at + 2].copy_from_slice(&check.to_be_bytes());
    (protocol, payload, protocol == UDP && to_port == DENIED)
}

fn ipv4_packet(random: &mut SplitMix64, port: u8, may_be_denied: bool) -> (Vec<u8>, bool) {
    let source: [u8; 4] = if random.one_in(3) {
        of(
            random,
            &[
                [10, 9, 1, 5],
                [192, 168, 9, 9],
                [10, 0, 2, 7],
                [10, 0, port, 1],
                [10, 0, 3, 1],
                [127, 0, 0, 1],
            ],
        )
    } else {
        [10, 0, port, 2]
    };
    let destination: [u8; 4] = of(
        random,
        &[
            [10, 9, 0, 1],
            [10, 9, 1, 1],
            [10, 9, 1, 200],
            [10, 9, 2, 7],
            [198, 51, 100, 1],
            [203, 0, 113, 5],
            [203, 0, 113, 77],
            [192, 0, 2, 1],
            [10, 0, 1, 2],
            [10, 0, 2, 2],
            [10, 0, 3, 2],
            [10, 0, 2, 9],
            [10, 0, 2, 255],
            [10, 0, 2, 1],
            [10, 0, 1, 254],
            [10, 0, 4, 2],
            [10, 0, 5, 2],
            [10, 0, 5, 1],
        ],
    );
    let (protocol, payload, is_denied) = transport(random, source.into(), destination.into(), may_be_denied);
    let options: &[u8] =
        if random.one_in(16) { of(random, &[&[1u8, 1, 1, 1][..], &[0x94, 4, 0, 0]]) } else { &[] };
    let mut packet = ipv4::with_options(source, destination, protocol, options, &payload);
    packet[1] = of(random, &[0, 0, 0, 0x10, 0x08]);
    packet[8] = of(random, &[64, 64, 64, 64, 2, 1, 255]);
    let flags = of(random, &[0x4000u16, 0x4000, 0, 0, 0x2000, 0x0010]);
    packet[6..8].copy_from_slice(&flags.to_be_bytes());
    ipv4::refresh(&mut packet);
    // Which ports a later fragment has nobody knows.
    (packet, is_denied && flags & 0x1fff == 0)
}

fn ipv6_packet(random: &mut SplitMix64, port: u8, may_be_denied: bool) -> (Vec<u8>, bool) {
    let link = |number: u16, host: u16| Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, host);
    let port = u16::from(port);
    let source = if random.one_in(2) {
        let near = link(port, 1);
        of(random, &[link(0xb, 5), link(0xb, 5), link(0xb, 5), link(9, 5), link(2, 7), near])
    } else {
        link(port, 2)
    };
    let nested = |host| Ipv6Addr::new(0x2001, 0xdb8, 9, 1, 0, 0, 0, host);
    let destination = of(
        random,
        &[
            link(9, 1),
            nested(1),
            nested(7),
            link(0xa, 1),
            link(0xa, 7),
            link(0xc, 1),
            link(1, 2),
            link(2, 2),
            link(3, 2),
            link(2, 9),
            link(2, 1),
            link(4, 2),
            link(5, 2),
            link(5, 1),
        ],
    );
    let (protocol, payload, is_denied) = transport(random, source.into(), destination.into(), may_be_denied);
    let (next, payload) = match random.below(16) {
        0 => (0, [&[protocol, 0, 1, 4, 0, 0, 0, 0][..], &payload].concat()),
        1 => (60, [&[protocol, 0, 1, 4, 0, 0, 0, 0][..], &payload].concat()),
        _ => (protocol, payload),
    };
    let mut packet = ipv6::ipv6(source, destination, next, &payload);
    packet[1] = of(random, &[0, 0, 0, 0x10]) << 4;
    packet[0] |= of(random, &[0, 0, 0, 1]);
    packet[7] = of(random, &[64, 64, 64, 64, 2, 1, 255]);
    (packet, is_denied)
}

/// The same probe with a number, in each of its IP headers.
pub(crate) fn numbered(probe: &Probe, number: u16) -> Vec<u8> {
    let mut frame = probe.frame.clone();
    for at in ip_headers(&frame) {
        let packet = &mut frame[at..];
        if packet[0] >> 4 == 4 {
            packet[4..6].copy_from_slice(&number.to_be_bytes());
            ipv4::refresh(packet);
        } else {
            packet[2..4].copy_from_slice(&number.to_be_bytes());
        }
    }
    frame
}

/// Where the IP headers of a frame are, the outermost first: behind tags, and in tunnels' packets.
pub(crate) fn ip_headers(frame: &[u8]) -> Vec<usize> {
    let mut headers = Vec::new();
    // Where the type of what follows stands.
    let mut at = 12;
    while let Some(&[first, second]) = frame.get(at..at + 2) {
        at += match (first, second) {
            (0x81, 0) | (0x88, 0xa8) => 4,
            (8, 0) | (0x86, 0xdd) => match inside(frame, at + 2, &mut headers) {
                Some(inner) => inner - at,
                None => break,
            },
            _ => break,
        };
    }
    headers
}

/// Adds the IP headers from a place on. Returns where the type of an Ethernet frame inside stands, if there is one.
fn inside(frame: &[u8], mut at: usize, headers: &mut Vec<usize>) -> Option<usize> {
    loop {
        let packet = frame.get(at..).filter(|packet| packet.len() >= 20)?;
        let (protocol, length, is_whole) = match packet[0] >> 4 {
            4 => (packet[9], usize::from(packet[0] & 15) * 4, packet[6] & 0x1f == 0 && packet[7] == 0),
            6 => (packet[6], 40, true),
            _ => return None,
        };
        headers.push(at);
        if !is_whole {
            return None;
        }
        let payload = packet.get(length..)?;
        at += length;
        match protocol {
            4 | 41 => {}
            47 => match payload.get(2..4)? {
                [0x65, 0x58] => return Some(at + GRE_BYTES + 12),
                _ => at += GRE_BYTES,
            },
            UDP if payload.get(2..4)? == VXLAN_PORT => return Some(at + UDP_BYTES + VXLAN_BYTES + 12),
            _ => return None,
        }
    }
}

/// Where the innermost IP header of a frame is.
pub(crate) fn ip_at(frame: &[u8]) -> usize {
    ip_headers(frame).last().copied().expect("a frame with an IP packet")
}

/// Takes out of the packet of a tunnel what its maker chose: the identification or the flow label, and UDP's port.
pub(crate) fn without_choices(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
        if packet[9] == UDP {
            packet[20..22].fill(0);
        }
    } else {
        packet[1..4].fill(0);
    }
}

/// The addresses of a packet, as text.
pub(crate) fn described(frame: &[u8]) -> String {
    let at = ip_at(frame);
    let packet = &frame[at..];
    let outside = if at == 14 { String::new() } else { format!(" behind {}", hexadecimal(&frame[12..at])) };
    let to = hexadecimal(&frame[..6]);
    match packet[0] >> 4 {
        4 => {
            let address =
                |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
            let (tos, ttl, protocol, length) =
                (packet[1], packet[8], packet[9], u16::from_be_bytes([packet[2], packet[3]]));
            let header = usize::from(packet[0] & 15) * 4;
            format!(
                "{to}{outside} {} > {} tos {tos:#x} ttl {ttl} protocol {protocol} length {length} flags {:02x}{:02x} options {:02x?} behind {:02x?}",
                address(12),
                address(16),
                packet[6],
                packet[7],
                &packet[20..header],
                &packet[header..packet.len().min(header + 8)],
            )
        }
        _ => {
            let address = |at: usize| {
                let bytes: [u8; 16] = packet[at..at + 16].try_into().expect("a header");
                Ipv6Addr::from(bytes)
            };
            format!(
                "{to}{outside} {} > {} class {:02x}{:02x} hops {} next {} length {} behind {:02x?}",
                address(8),
                address(24),
                packet[0],
                packet[1],
                packet[7],
                packet[6],
                u16::from_be_bytes([packet[4], packet[5]]),
                &packet[40..packet.len().min(48)],
            )
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}
