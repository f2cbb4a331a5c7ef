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

/// Where ESP begins in IPv4 packets without options.
pub const PLAIN_OFFSET: usize = ipv4::MIN_HEADER_LEN;

/// Returns the SPI and the destination of the most common ESP packets: whole ones, right behind an IPv4 header without options. `None` for
/// all others. [`find`] finds these too; this takes a fraction of the time.
#[inline(always)]
pub fn find_plain(packet: &[u8]) -> Option<(u32, u32)> {
    let data = packet.first_chunk::<{ PLAIN_OFFSET + 4 }>()?;
    let header = Ipv4::new_unchecked(data.first_chunk::<PLAIN_OFFSET>()?);
    let is_plain = data[0] == 0x45 && header.protocol() == IpProtocol::ESP && !header.is_fragment();
    let spi = u32::from_be_bytes(*data.last_chunk()?);
    (is_plain && spi != 0).then(|| (spi, header.destination().to_bits()))
}

/// Whether [`find`] may find something. It takes a glance, and says no for most packets without ESP.
#[inline(always)]
pub fn may_be_esp(packet: &[u8]) -> bool {
    let Some(header) = packet.first_chunk::<{ ipv4::MIN_HEADER_LEN }>() else { return false };
    let is_ipv4 = header[0] >> 4 == 4;
    let protocol = IpProtocol(if is_ipv4 { header[9] } else { header[6] });
    if protocol != IpProtocol::UDP {
        return protocol == IpProtocol::ESP;
    }
    let offset = if is_ipv4 { usize::from(header[0] & 15) * 4 } else { ipv6::HEADER_LEN };
    packet.get(offset + 2..offset + 4).is_some_and(|port| port == NAT_TRAVERSAL_PORT.to_be_bytes())
}

/// A packet whose content cannot be known: headers are cut off, malformed or too many, or it is a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is behind the packet's IP headers cannot be found")]
pub struct Hidden;

/// Finds ESP in packets of which somebody else says that they may be ESP: in UDP to any port, and behind IPv6's extension headers. The IP
/// header need not have been checked. `None` is for what is surely not ESP, such as IKE.
///
/// # Errors
///
/// ESP may be hidden in the packet.
pub fn find_anywhere(packet: &[u8]) -> Result<Option<Esp>, Hidden> {
    if let Some(found) = find_at(packet, None) {
        return Ok(Some(found));
    }
    let (protocol, offset, destination) = match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let header = packet.first_chunk::<{ ipv4::MIN_HEADER_LEN }>().ok_or(Hidden)?;
            let header = Ipv4::new_unchecked(header);
            if header.is_fragment() {
                return Err(Hidden);
            }
            (header.protocol(), header.header_len(), IpAddr::V4(header.destination()))
        }
        Some(6) => {
            let header = Ipv6::new_unchecked(packet.get(..ipv6::HEADER_LEN).ok_or(Hidden)?);
            let upper = Ipv6::new_unchecked(packet).upper_layer().map_err(|_| Hidden)?;
            let is_whole =
                upper.fragment.is_none_or(|fragment| fragment.offset == 0 && !fragment.more_fragments);
            if !is_whole {
                return Err(Hidden);
            }
            (upper.protocol, upper.offset, IpAddr::V6(header.destination()))
        }
        _ => return Err(Hidden),
    };
    let is_in_udp = protocol == IpProtocol::UDP;
    if !is_in_udp && protocol != IpProtocol::ESP {
        return Ok(None);
    }
    let offset = if is_in_udp { offset + UDP_BYTES } else { offset };
    match packet.get(offset..).and_then(<[u8]>::first_chunk) {
        // RFC 3948, sections 2.2 and 2.3: IKE, and what keeps a translation alive.
        None | Some([0, 0, 0, 0]) if is_in_udp => Ok(None),
        None | Some([0, 0, 0, 0]) => Err(Hidden),
        Some(spi) => Ok(Some(Esp { offset, spi: u32::from_be_bytes(*spi), destination, is_in_udp })),
    }
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
