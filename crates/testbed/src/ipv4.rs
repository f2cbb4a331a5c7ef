//! IPv4 packets, right and wrong ones.

use packet::checksum;
#[cfg(feature = "proptest")]
use proptest::prelude::*;

/// An IP packet without options: TTL 64, identification 0x1234.
pub fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    with_options(source, destination, protocol, &[], payload)
}

/// An IP packet with options, which must be a multiple of 4 bytes long.
pub fn with_options(
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let header_len = 20 + options.len();
    let total = (header_len + payload.len()) as u16;
    let mut packet = vec![0x40 | (header_len / 4) as u8, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0x12, 0x34, 0, 0, 64, protocol, 0, 0]);
    packet.extend(source);
    packet.extend(destination);
    packet.extend(options);
    packet.extend(payload);
    refresh(&mut packet);
    packet
}

/// Sets the checksum of the IP header at the start, if there is one.
pub fn refresh(packet: &mut [u8]) {
    let header_len = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    if header_len >= 20 && packet.len() >= header_len {
        let check = checksum::ipv4_header_compute(&packet[..header_len]);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
    }
}

/// Bytes that are an IP packet, or nearly one, or nothing of the kind.
#[cfg(feature = "proptest")]
pub fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let protocol = prop_oneof![Just(1u8), Just(6), Just(17), any::<u8>()];
    let options = proptest::collection::vec(any::<u8>(), 0..40);
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let packet = (any::<[u8; 4]>(), any::<[u8; 4]>(), protocol, options, bytes(), changes, any::<bool>());
    let packet = packet.prop_map(|(source, destination, protocol, mut options, payload, changes, whole)| {
        options.truncate(options.len() / 4 * 4);
        let mut packet = with_options(source, destination, protocol, &options, &payload);
        for (at, value) in changes {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        if whole {
            refresh(&mut packet);
        }
        packet
    });
    prop_oneof![1 => bytes(), 4 => packet]
}
