//! IPv6 packets, right and wrong ones.

use std::net::Ipv6Addr;

use packet::checksum;
#[cfg(feature = "proptest")]
use proptest::prelude::*;

/// A host.
pub const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 7);
/// Another host.
pub const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 8);

/// An IPv6 packet: hop limit 64.
pub fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(payload);
    packet
}

/// An ICMPv6 message with its checksum: type, code 0, and what is behind the checksum.
pub fn icmpv6(source: Ipv6Addr, destination: Ipv6Addr, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(rest);
    let pseudo = checksum::pseudo_v6(source, destination, 58, message.len() as u32);
    let check = checksum::finish(checksum::combine(pseudo, checksum::sum(&message)));
    message[2..4].copy_from_slice(&check.to_be_bytes());
    message
}

/// Bytes that are an IPv6 packet, or nearly one, or nothing of the kind.
#[cfg(feature = "proptest")]
pub fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..4], 0..200);
    let next_header =
        prop_oneof![Just(58u8), Just(0), Just(43), Just(44), Just(51), Just(60), Just(17), any::<u8>()];
    let address = || {
        prop_oneof![
            4 => any::<u16>().prop_map(|low| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, low)),
            1 => any::<u16>().prop_map(|low| Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, low)),
            1 => any::<u16>().prop_map(|low| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, low)),
            1 => (0u128..3).prop_map(Ipv6Addr::from_bits),
        ]
    };
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2);
    let packet = (address(), address(), next_header, bytes(), changes);
    let packet = packet.prop_map(|(source, destination, next_header, payload, changes)| {
        let mut packet = ipv6(source, destination, next_header, &payload);
        for (at, value) in changes {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        packet
    });
    prop_oneof![1 => bytes(), 6 => packet]
}
