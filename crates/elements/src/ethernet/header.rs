//! Ethernet headers as the elements of this folder put them before packets.

use packet::Packet;
use packet::wire::ethernet::{HEADER_LEN, MacAddr};

/// Why a packet without head room is dropped.
pub const NO_ROOM: &str = "no room for an Ethernet header";
/// Why a packet that is too short for its Ethernet header is dropped.
pub const TRUNCATED: &str = "truncated Ethernet header";

/// The 14 bytes of a header.
pub fn bytes(destination: MacAddr, source: MacAddr, ethertype: u16) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..6].copy_from_slice(&destination.0);
    header[6..12].copy_from_slice(&source.0);
    header[12..].copy_from_slice(&ethertype.to_be_bytes());
    header
}

/// Destination, source and type of a header.
pub fn parts(header: &[u8; HEADER_LEN]) -> (MacAddr, MacAddr, u16) {
    let [a, b, c, d, e, f, rest @ ..] = *header;
    let [g, h, i, j, k, l, high, low] = rest;
    (MacAddr([a, b, c, d, e, f]), MacAddr([g, h, i, j, k, l]), u16::from_be_bytes([high, low]))
}

/// Puts `header` before the packet, as its link header; false, and no change, without room.
#[inline(always)]
pub fn prepend(packet: &mut Packet, header: &[u8; HEADER_LEN]) -> bool {
    packet.prepend_link_header(header)
}
