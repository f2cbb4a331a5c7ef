//! Where ESP begins in a packet.

use std::net::IpAddr;

use packet::wire::IpProtocol;
use packet::wire::ipv4::{self, Ipv4};
use packet::wire::ipv6::{self, Ipv6};

use crate::association::UDP_BYTES;

/// The port to which ESP in UDP goes (RFC 3948).
pub const NAT_TRAVERSAL_PORT: u16 = 4500;

/// An ESP packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Esp {
    /// Where it begins, from the start of the IP header.
    pub offset: usize,
    /// The security parameters index.
    pub spi: u32,
    /// The outer destination.
    pub destination: IpAddr,
    /// Whether it stands in UDP.
    pub is_in_udp: bool,
}

/// Finds ESP in a packet that begins with a checked IP header: right behind that, or in UDP to port 4500. `None` for other packets,
/// fragments, and IPv6 packets with extension headers.
#[inline]
pub fn find(packet: &[u8]) -> Option<Esp> {
    find_at(packet, Some(NAT_TRAVERSAL_PORT))
}

/// The same for packets of which somebody else says that they are ESP: in UDP to any port, and behind IPv6's extension headers. The IP
/// header need not have been checked.
pub fn find_anywhere(packet: &[u8]) -> Option<Esp> {
    if let Some(found) = find_at(packet, None) {
        return Some(found);
    }
    let header = packet.get(..ipv6::HEADER_LEN).filter(|header| header[0] >> 4 == 6)?;
    let upper = Ipv6::new_unchecked(packet).upper_layer().ok()?;
    let is_whole = upper.fragment.is_none_or(|fragment| fragment.offset == 0 && !fragment.more_fragments);
    if upper.protocol != IpProtocol::ESP || !is_whole {
        return None;
    }
    let spi = u32::from_be_bytes(*packet.get(upper.offset..)?.first_chunk()?);
    let destination = IpAddr::V6(Ipv6::new_unchecked(header).destination());
    (spi != 0).then_some(Esp { offset: upper.offset, spi, destination, is_in_udp: false })
}

#[inline(always)]
fn find_at(packet: &[u8], port: Option<u16>) -> Option<Esp> {
    let first = *packet.first()?;
    let (protocol, offset, destination) = if first >> 4 == 4 {
        let header = Ipv4::new_unchecked(packet.first_chunk::<{ ipv4::MIN_HEADER_LEN }>()?);
        let protocol = header.protocol();
        if (protocol != IpProtocol::ESP && protocol != IpProtocol::UDP) || header.is_fragment() {
            return None;
        }
        (protocol, header.header_len(), IpAddr::V4(header.destination()))
    } else {
        let header = Ipv6::new_unchecked(packet.first_chunk::<{ ipv6::HEADER_LEN }>()?);
        (header.next_header(), ipv6::HEADER_LEN, IpAddr::V6(header.destination()))
    };
    let is_in_udp = protocol == IpProtocol::UDP;
    let offset = if is_in_udp {
        let found = packet.get(offset + 2..)?.first_chunk()?;
        if port.is_some_and(|port| u16::from_be_bytes(*found) != port) {
            return None;
        }
        offset + UDP_BYTES
    } else if protocol == IpProtocol::ESP {
        offset
    } else {
        return None;
    };
    let spi = u32::from_be_bytes(*packet.get(offset..)?.first_chunk()?);
    // RFC 3948, section 2.2: four zero bytes mark what is not ESP but IKE. RFC 4303, section 2.1: 0 is for local use.
    (spi != 0).then_some(Esp { offset, spi, destination, is_in_udp })
}
