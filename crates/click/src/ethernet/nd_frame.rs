//! Neighbour solicitations and advertisements (RFC 4861) with their IPv6 and Ethernet headers: all checked
//! together, and made together.

use std::net::Ipv6Addr;

use packet::wire::ethernet::{EtherType, Ethernet, EthernetRepr, MacAddr};
use packet::wire::icmpv6::{Icmpv6, Icmpv6Message, Icmpv6Repr, ND_HOP_LIMIT};
use packet::wire::ipv6::{self, Ipv6, Ipv6Repr};
use packet::wire::nd_option::{NdOption, NdOptionIter};
use packet::wire::{IpProtocol, WireError};

/// Octets of a solicitation or advertisement: 24, and 8 of the option that says a link-layer address.
const MESSAGE_LEN: usize = 32;

/// Octets of a frame that carries it.
pub const FRAME_LEN: usize = EthernetRepr::LEN + Ipv6Repr::LEN + MESSAGE_LEN;

/// Why a frame is not such a message, though its headers announce one.
pub const NOT_ND: &str = "not a neighbour discovery message";

/// A message and the addresses it travels with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdFrame {
    /// Source and destination of the Ethernet header.
    pub link: (MacAddr, MacAddr),
    /// Source of the IPv6 header.
    pub source: Ipv6Addr,
    /// Destination of the IPv6 header.
    pub destination: Ipv6Addr,
    /// What it says.
    pub message: Icmpv6Message,
    /// The option that belongs to it: of a solicitation the link-layer address of its source, of an
    /// advertisement that of its target.
    pub mac: Option<MacAddr>,
}

impl NdFrame {
    /// Reads a frame and checks what RFC 4861, 7.1.1 and 7.1.2, say of both kinds of message; the error is
    /// the reason to drop it.
    ///
    /// # Errors
    ///
    /// The frame is not such a message, or a malformed one.
    pub fn parse(frame: &[u8]) -> Result<Self, &'static str> {
        let ethernet = Ethernet::new_checked(frame).map_err(WireError::reason)?;
        if ethernet.ethertype() != EtherType::IPV6 {
            return Err(NOT_ND);
        }
        let ipv6 = Ipv6::new_checked(ethernet.payload()).map_err(WireError::reason)?;
        ipv6::check_header(ipv6.bytes()).map_err(WireError::reason)?;
        // Fragments are not neighbour discovery either (RFC 6980, 5), and nobody sends it with other extension
        // headers.
        if ipv6.next_header() != IpProtocol::ICMPV6 {
            return Err(NOT_ND);
        }
        // "The IP Hop Limit field has a value of 255, i.e., the packet could not possibly have been forwarded
        // by a router."
        if ipv6.hop_limit() != ND_HOP_LIMIT {
            return Err("neighbour discovery hop limit is not 255");
        }
        let (source, destination) = (ipv6.source(), ipv6.destination());
        let icmpv6 = Icmpv6::new_checked(ipv6.payload()).map_err(WireError::reason)?;
        let repr = Icmpv6Repr::parse(&icmpv6, source, destination).map_err(WireError::reason)?;
        let mac = NdOptionIter::new(repr.data).find_map(|option| match (repr.message, option) {
            (Icmpv6Message::NeighbourSolicitation { .. }, Ok(NdOption::SourceLinkLayerAddress(mac)))
            | (Icmpv6Message::NeighbourAdvertisement { .. }, Ok(NdOption::TargetLinkLayerAddress(mac))) => {
                Some(mac)
            }
            _ => None,
        });
        let link = (ethernet.source(), ethernet.destination());
        Ok(Self { link, source, destination, message: repr.message, mac })
    }

    /// The frame, and its length: shorter without the option.
    pub fn build(&self) -> ([u8; FRAME_LEN], usize) {
        let mut frame = [0; FRAME_LEN];
        let mut options = [0; 8];
        let mut options_len = 0;
        if let Some(mac) = self.mac {
            let option = match self.message {
                Icmpv6Message::NeighbourSolicitation { .. } => NdOption::SourceLinkLayerAddress(mac),
                _ => NdOption::TargetLinkLayerAddress(mac),
            };
            options_len = option.emit(&mut options).unwrap_or(0);
        }
        let repr = Icmpv6Repr { message: self.message, data: &options[..options_len] };
        let header = Ipv6Repr {
            source: self.source,
            destination: self.destination,
            next_header: IpProtocol::ICMPV6,
            hop_limit: ND_HOP_LIMIT,
            traffic_class: 0,
            flow_label: 0,
            payload_len: repr.message_len(),
        };
        let (link_source, link_destination) = self.link;
        let link =
            EthernetRepr { destination: link_destination, source: link_source, ethertype: EtherType::IPV6 };
        let mut ethernet = Ethernet::new_unchecked(&mut frame[..]);
        let mut written = link.emit(&mut ethernet);
        let mut ipv6 = Ipv6::new_unchecked(ethernet.payload_mut());
        written = written.and(header.emit(&mut ipv6));
        let mut icmpv6 = Icmpv6::new_unchecked(ipv6.payload_mut());
        written = written.and(repr.emit(&mut icmpv6, self.source, self.destination));
        debug_assert_eq!(written, Ok(()), "the frame has room for all");
        (frame, EthernetRepr::LEN + Ipv6Repr::LEN + header.payload_len)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use packet::wire::icmpv6::solicited_node;
    use proptest::prelude::*;

    pub(in crate::ethernet) const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 10]);
    pub(in crate::ethernet) const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 11]);
    pub(in crate::ethernet) const OUR_IP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    pub(in crate::ethernet) const PEER_IP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    /// A solicitation of `2001:db8::2` by `2001:db8::1`, spelled out from the figures of RFC 8200 and RFC
    /// 4861.
    pub(in crate::ethernet) const SOLICITATION: [u8; FRAME_LEN] = [
        0x33, 0x33, 0xff, 0, 0, 2, 2, 0, 0, 0, 0, 10, 0x86, 0xdd, // Ethernet
        0x60, 0, 0, 0, 0, 32, 58, 255, // IPv6
        0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source
        0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 2, // destination
        135, 0, 0x1c, 0x1e, 0, 0, 0, 0, // solicitation
        0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // target
        1, 1, 2, 0, 0, 0, 0, 10, // source link-layer address
    ];

    /// The answer to [`SOLICITATION`] of a router.
    pub(in crate::ethernet) const ADVERTISEMENT: [u8; FRAME_LEN] = [
        2, 0, 0, 0, 0, 10, 2, 0, 0, 0, 0, 11, 0x86, 0xdd, // Ethernet
        0x60, 0, 0, 0, 0, 32, 58, 255, // IPv6
        0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // source
        0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // destination
        136, 0, 0x0a, 0x68, 0xe0, 0, 0, 0, // advertisement: router, solicited, override
        0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // target
        2, 1, 2, 0, 0, 0, 0, 11, // target link-layer address
    ];

    pub(in crate::ethernet) fn solicitation(source: Ipv6Addr, target: Ipv6Addr) -> NdFrame {
        let destination = solicited_node(target);
        NdFrame {
            link: (OUR_MAC, MacAddr::for_ipv6_multicast(destination)),
            source,
            destination,
            message: Icmpv6Message::NeighbourSolicitation { target },
            mac: (!source.is_unspecified()).then_some(OUR_MAC),
        }
    }

    pub(in crate::ethernet) fn advertisement(target: Ipv6Addr, mac: Option<MacAddr>) -> NdFrame {
        let flags = (true, true, true);
        NdFrame {
            link: (PEER_MAC, OUR_MAC),
            source: target,
            destination: OUR_IP,
            message: Icmpv6Message::NeighbourAdvertisement {
                router: flags.0,
                solicited: flags.1,
                override_cache: flags.2,
                target,
            },
            mac,
        }
    }

    pub(in crate::ethernet) fn bytes(frame: &NdFrame) -> Vec<u8> {
        let (bytes, len) = frame.build();
        bytes[..len].to_vec()
    }

    #[test]
    fn golden_bytes() {
        let asked = solicitation(OUR_IP, PEER_IP);
        assert_eq!(bytes(&asked), SOLICITATION);
        assert_eq!(NdFrame::parse(&SOLICITATION), Ok(asked));
        let told = advertisement(PEER_IP, Some(PEER_MAC));
        assert_eq!(bytes(&told), ADVERTISEMENT);
        assert_eq!(NdFrame::parse(&ADVERTISEMENT), Ok(told));
    }

    #[test]
    fn reasons() {
        let with = |at: usize, value: u8| {
            let mut frame = SOLICITATION;
            frame[at] = value;
            NdFrame::parse(&frame).unwrap_err()
        };
        assert_eq!(with(13, 0), NOT_ND);
        assert_eq!(with(14, 0x45), "bad IPv6 version");
        assert_eq!(with(19, 33), "IPv6 payload length beyond the packet");
        assert_eq!(with(20, 44), NOT_ND);
        assert_eq!(with(21, 254), "neighbour discovery hop limit is not 255");
        assert_eq!(with(40, 1), "bad ICMPv6 checksum");
        assert_eq!(NdFrame::parse(&SOLICITATION[..13]), Err("truncated Ethernet header"));
        assert_eq!(NdFrame::parse(&SOLICITATION[..50]), Err("truncated IPv6 header"));
    }

    proptest! {
        #[test]
        fn any_bytes(frame in proptest::collection::vec(any::<u8>(), 0..120), plausible: bool) {
            let mut frame = frame;
            let len = frame.len().min(22);
            if plausible {
                frame[..len].copy_from_slice(&SOLICITATION[..len]);
            }
            let _ = NdFrame::parse(&frame);
        }
    }
}
