//! What a list says of a packet, read slowly: rule after rule, octet after octet.

use std::net::IpAddr;

use packet::IpVersion;

use super::super::rule::{Action, Rule};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The place of the rule in the list; behind the last stands the default.
    Decided(usize, Action),
    Flawed,
}

struct Packet {
    addresses: [IpAddr; 2],
    /// `None` behind a bad chain of extension headers.
    protocol: Option<u8>,
    /// Where a fragment begins, and whether more follow.
    fragment: (u16, bool),
    transport: Vec<u8>,
}

fn read(bytes: &[u8]) -> Option<Packet> {
    match bytes.first()? >> 4 {
        4 if bytes.len() >= 20 => {
            let header = usize::from(bytes[0] % 16) * 4;
            let address = |at: usize| IpAddr::from([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let field = u16::from(bytes[6]) * 256 + u16::from(bytes[7]);
            Some(Packet {
                addresses: [address(12), address(16)],
                protocol: Some(bytes[9]),
                fragment: (field % 8192 * 8, field & 8192 != 0),
                transport: bytes.get(header..).unwrap_or_default().to_vec(),
            })
        }
        6 if bytes.len() >= 40 => {
            let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap());
            let addresses = [address(8), address(24)];
            let end = (40 + usize::from(bytes[4]) * 256 + usize::from(bytes[5])).min(bytes.len());
            let (mut next, mut at, mut fragment) = (bytes[6], 40, (0, false));
            for number in 0.. {
                let length = match next {
                    0 if number > 0 => break,
                    0 | 43 | 60 => bytes[..end].get(at + 1).map(|&count| usize::from(count) * 8 + 8),
                    44 => Some(8),
                    51 => bytes[..end]
                        .get(at + 1)
                        .filter(|&&count| count > 0)
                        .map(|&count| usize::from(count) * 4 + 8),
                    _ => {
                        let transport = bytes[at..end].to_vec();
                        return Some(Packet { addresses, protocol: Some(next), fragment, transport });
                    }
                };
                let Some(length) = length.filter(|&length| number < 8 && at + length <= end) else { break };
                let header = &bytes[at..at + length];
                at += length;
                if next == 44 {
                    fragment = (u16::from(header[2]) * 256 + u16::from(header[3] & 0xf8), header[3] % 2 == 1);
                    if fragment.0 > 0 {
                        // Extension headers would say it, which are in the first fragment.
                        let protocol = Some(header[0]).filter(|next| ![0, 43, 44, 51, 60].contains(next));
                        return Some(Packet {
                            addresses,
                            protocol,
                            fragment,
                            transport: bytes[at..end].to_vec(),
                        });
                    }
                }
                next = header[0];
            }
            Some(Packet { addresses, protocol: None, fragment, transport: Vec::new() })
        }
        _ => None,
    }
}

fn is_flawed(packet: &Packet) -> bool {
    let Some(protocol) = packet.protocol else { return true };
    match packet.fragment.0 {
        0 => {
            let needed = match protocol {
                6 => 16,
                17 | 33 | 132 | 136 => 4,
                1 | 58 => 2,
                _ => 0,
            };
            packet.transport.len() < needed
        }
        8 if protocol == 6 => true,
        begin => usize::from(begin) + packet.transport.len() > 65_535,
    }
}

fn matches(rule: &Rule, packet: &Packet, paint: u8) -> bool {
    let [source, destination] = packet.addresses;
    let inside =
        |prefix: Option<ipnet::IpNet>, address: &IpAddr| prefix.is_none_or(|prefix| prefix.contains(address));
    let protocol = packet.protocol;
    let transport = (packet.fragment.0 == 0).then_some(&packet.transport);
    let octet = |at: usize| transport.and_then(|octets| octets.get(at)).copied();
    let port = |at: usize| Some(u16::from(octet(at)?) * 256 + u16::from(octet(at + 1)?));
    let in_range = |range: Option<super::super::rule::PortRange>, port: Option<u16>| {
        range.is_none_or(|range| port.is_some_and(|port| range.first <= port && port <= range.last))
    };
    rule.version.is_none_or(|version| (version == IpVersion::V4) == source.is_ipv4())
        && rule.protocol.is_none_or(|wanted| protocol == Some(wanted))
        && inside(rule.source, &source)
        && inside(rule.destination, &destination)
        && rule.input.is_none_or(|wanted| wanted == paint)
        && in_range(rule.source_ports, port(0))
        && in_range(rule.destination_ports, port(2))
        && rule.icmp_type.is_none_or(|(kind, code)| {
            octet(0) == Some(kind) && octet(1).is_some() && code.is_none_or(|code| octet(1) == Some(code))
        })
        && (!rule.established || octet(13).is_some_and(|flags| flags & 0x14 != 0))
        && (!rule.fragment || packet.fragment.0 > 0)
}

/// What the list says of the bytes from the network header on.
pub(super) fn judge(rules: &[Rule], default: Action, bytes: &[u8], paint: u8) -> Outcome {
    let Some(packet) = read(bytes) else { return Outcome::Flawed };
    let is_ipv4 = packet.addresses[0].is_ipv4();
    let mut ours =
        rules.iter().filter(|rule| rule.version.is_none_or(|version| (version == IpVersion::V4) == is_ipv4));
    let looks = ours.clone().any(|rule| {
        rule.source_ports.or(rule.destination_ports).is_some() || rule.icmp_type.is_some() || rule.established
    });
    if looks && is_flawed(&packet) {
        return Outcome::Flawed;
    }
    if packet.protocol.is_none() && ours.any(|rule| rule.protocol.is_some() || rule.fragment) {
        return Outcome::Flawed;
    }
    match rules.iter().position(|rule| matches(rule, &packet, paint)) {
        Some(place) => Outcome::Decided(place, rules[place].action),
        None => Outcome::Decided(rules.len(), default),
    }
}
