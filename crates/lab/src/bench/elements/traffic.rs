//! The frames that elements are measured with: 64 bytes, as many flows as the bench says, each kind what its elements are for.

use packet::checksum;
use packet::random::SplitMix64;
use packet::wire::ethernet::MacAddr;

/// Kinds of frames; all but the last few are Ethernet frames for [`OURS`] from [`THEIRS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    Udp,
    Tcp,
    /// Echo requests.
    Ping,
    /// Requests for 10.0.0.1.
    Arp,
    Udp6,
    /// Neighbour solicitations for fe80::1.
    Solicitation,
    /// UDP in VLAN 5.
    Vlan,
    /// UDP over IPv4 in GRE.
    Gre,
    /// First and last fragments of UDP datagrams, in turns.
    Fragments,
}

pub(super) const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(super) const THEIRS: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

const SIZE: usize = 64;

/// Frames of `flows` different flows. Hosts 10.x.x.x send to hosts 10.x.x.x, with ports above 1023 at both ends.
pub(super) fn frames(traffic: Traffic, flows: usize) -> Vec<Vec<u8>> {
    let mut random = SplitMix64::new(7);
    (0..flows).map(|number| frame(traffic, number, &mut random)).collect()
}

fn frame(traffic: Traffic, number: usize, random: &mut SplitMix64) -> Vec<u8> {
    let bits = random.next_u64();
    let source = 10 << 24 | (bits as u32 & 0x00ff_ffff);
    let destination = 10 << 24 | ((bits >> 24) as u32 & 0x00ff_ffff);
    let ports = [1024 + (bits >> 48) as u16 % 60_000, 1024 + random.next_u64() as u16 % 60_000];
    let ends = (source, destination);
    match traffic {
        Traffic::Udp => ethernet(&[8, 0], &ipv4(17, ends, 0, &udp(ports, SIZE - 14 - 20))),
        Traffic::Tcp => {
            let mut segment = tcp(ports);
            let mut sum = pseudo_sum(ends, 6, segment.len());
            sum = checksum::combine(sum, checksum::sum(&segment));
            segment[16..18].copy_from_slice(&(!sum).to_be_bytes());
            ethernet(&[8, 0], &ipv4(6, ends, 0, &segment))
        }
        Traffic::Ping => {
            let mut message = vec![8, 0, 0, 0];
            message.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
            message.resize(SIZE - 14 - 20, 0);
            let sum = !checksum::sum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            ethernet(&[8, 0], &ipv4(1, ends, 0, &message))
        }
        Traffic::Arp => {
            let mut request = vec![0, 1, 8, 0, 6, 4, 0, 1];
            request.extend(THEIRS.0);
            request.extend(source.to_be_bytes());
            request.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
            ethernet(&[8, 6], &request)
        }
        Traffic::Udp6 => ethernet(&[0x86, 0xdd], &ipv6(17, ends, &udp(ports, SIZE - 14 - 40 + 8))),
        Traffic::Solicitation => {
            let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
            message.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
            message.extend(THEIRS.0);
            ethernet(&[0x86, 0xdd], &ipv6(58, ends, &message))
        }
        Traffic::Vlan => {
            let mut tagged = vec![0, 5, 8, 0];
            tagged.extend(ipv4(17, ends, 0, &udp(ports, SIZE - 18 - 20)));
            ethernet(&[0x81, 0], &tagged)
        }
        Traffic::Gre => {
            let mut payload = vec![0, 0, 8, 0];
            payload.extend(ipv4(17, ends, 0, &udp(ports, 8)));
            ethernet(&[8, 0], &ipv4(47, ends, 0, &payload))
        }
        Traffic::Fragments => {
            // More follow; or from byte 24 on.
            let fragment = if number.is_multiple_of(2) { 0x2000 } else { 3 };
            ethernet(
                &[8, 0],
                &ipv4(17, (10 << 24 | (number / 2) as u32, 10 << 24 | 1), fragment, &udp(ports, 24)),
            )
        }
    }
}

fn ethernet(ether_type: &[u8; 2], payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&OURS.0[..], &THEIRS.0, ether_type, payload].concat();
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

fn ipv4(protocol: u8, (source, destination): (u32, u32), fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend((20 + payload.len() as u16).to_be_bytes());
    // Fragments of one datagram have the same identification, that of their source.
    bytes.extend((source as u16).to_be_bytes());
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    let sum = checksum::ipv4_header_compute(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn ipv6(next_header: u8, (source, destination): (u32, u32), payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next_header, if next_header == 58 { 255 } else { 64 }]);
    for address in [source, destination] {
        bytes.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(address.to_be_bytes());
    }
    let mut message = payload.to_vec();
    if next_header == 58 {
        let sum = checksum::sum(&bytes[8..]);
        let sum = checksum::combine(sum, checksum::combine(payload.len() as u16, 58));
        let sum = !checksum::combine(sum, checksum::sum(payload));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend(message);
    bytes
}

/// No checksum, as RFC 768 allows.
fn udp(ports: [u16; 2], length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    bytes.extend((length as u16).to_be_bytes());
    bytes.resize(length, 0);
    bytes
}

fn tcp(ports: [u16; 2]) -> Vec<u8> {
    let mut bytes: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    // SYN, so that a translation may begin with it.
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.resize(SIZE - 14 - 20, 0);
    bytes
}

fn pseudo_sum((source, destination): (u32, u32), protocol: u8, length: usize) -> u16 {
    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    bytes.extend([0, protocol]);
    bytes.extend((length as u16).to_be_bytes());
    checksum::sum(&bytes)
}
