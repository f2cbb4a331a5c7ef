//! Ethernet headers as the elements of this folder put them before packets.

use packet::Packet;
use packet::wire::ethernet::{EtherType, Ethernet, HEADER_LEN, MacAddr};

/// Why a packet without head room is dropped.
pub const NO_ROOM: &str = "no room for an Ethernet header";
/// Why a packet that is too short for its Ethernet header is dropped.
pub const TRUNCATED: &str = "truncated Ethernet header";

/// The 14 bytes of a header.
pub fn bytes(destination: MacAddr, source: MacAddr, ethertype: u16) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    let mut view = Ethernet::new_unchecked(&mut header);
    view.set_destination(destination);
    view.set_source(source);
    view.set_ethertype(EtherType(ethertype));
    header
}

/// Destination, source and type of a header.
pub fn parts(header: &[u8; HEADER_LEN]) -> (MacAddr, MacAddr, u16) {
    let view = Ethernet::new_unchecked(header);
    (view.destination(), view.source(), view.ethertype().0)
}

/// Puts `header` before the packet, as its link header; false, and no change, without room.
#[inline(always)]
pub fn prepend(packet: &mut Packet, header: &[u8; HEADER_LEN]) -> bool {
    packet.prepend_link_header(header)
}
