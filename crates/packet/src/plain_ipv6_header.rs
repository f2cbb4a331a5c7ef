//! The 40 bytes of an IPv6 header, in registers: what the fast path looks at, as shifts and comparisons.

use crate::wire::IpProtocol;
use crate::wire::ipv6::HEADER_LEN;

/// An IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainIpv6Header {
    /// Bytes 0 to 7 as a little-endian number: all but the addresses.
    first: u64,
    source: u128,
    destination: u128,
}

impl PlainIpv6Header {
    /// The header at `offset`; `None` if it does not lie within `bytes`.
    #[inline(always)]
    pub fn at(bytes: &[u8], offset: usize) -> Option<Self> {
        bytes.get(offset..).and_then(|bytes| bytes.first_chunk()).map(Self::new)
    }

    /// The header in these bytes.
    #[inline(always)]
    pub fn new(bytes: &[u8; HEADER_LEN]) -> Self {
        let address = |at: usize| {
            let address: Option<&[u8; 16]> = bytes.get(at..).and_then(|rest| rest.first_chunk());
            address.map_or(0, |address| u128::from_be_bytes(*address))
        };
        let first = bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        Self { first, source: address(8), destination: address(24) }
    }

    /// Whether the version says that it is IPv6. Then [`check_header`](crate::wire::ipv6::check_header) finds nothing wrong
    /// with the header in a packet of at least [its total length](Self::total_length).
    #[inline(always)]
    pub fn is_ipv6(self) -> bool {
        self.first & 0xf0 == 0x60
    }

    /// Header and payload in bytes.
    #[inline(always)]
    pub fn total_length(self) -> usize {
        HEADER_LEN + usize::from(((self.first >> 32) as u16).swap_bytes())
    }

    /// What follows the header: the first extension header or the upper layer.
    #[inline(always)]
    pub fn next_header(self) -> IpProtocol {
        IpProtocol((self.first >> 48) as u8)
    }

    /// The hop limit.
    #[inline(always)]
    pub fn hop_limit(self) -> u8 {
        (self.first >> 56) as u8
    }

    /// The source address, in host order.
    #[inline(always)]
    pub fn source(self) -> u128 {
        self.source
    }

    /// The destination address, in host order.
    #[inline(always)]
    pub fn destination(self) -> u128 {
        self.destination
    }

    /// Whether neither address begins with 16 zero bits (`::`, `::1`, mapped IPv4 addresses) nor is a
    /// group's. Nearly all packets that routers forward are so, and most addresses that need a closer look
    /// are not.
    #[inline(always)]
    pub fn has_plain_addresses(self) -> bool {
        // One comparison each: what begins with ff wraps to 0 to ff, and zero comes to 100.
        let is_plain = |address: u128| ((address >> 112) as u16).wrapping_add(0x100) > 0x100;
        is_plain(self.source) & is_plain(self.destination)
    }

    /// Whether a router may forward it to another link (RFC 4291): "Routers must not forward any packets with
    /// Link-Local source or destination addresses to other links" (2.5.6), nor with the unspecified source
    /// (2.5.2). Groups are another matter than routes, so their packets may not either.
    #[inline(always)]
    pub fn may_leave_link(self) -> bool {
        const LINK_LOCAL: u16 = 0xfe80;
        let head = |address: u128| (address >> 112) as u16;
        let is_link_local = |address: u128| head(address) & 0xffc0 == LINK_LOCAL;
        (self.source != 0)
            & !is_link_local(self.source)
            & !is_link_local(self.destination)
            & (head(self.destination) < 0xff00)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv6Addr;

    use crate::wire::ipv6::{self, Ipv6};

    proptest! {
        #[test]
        fn fields(header in any::<[u8; 40]>(), heads in any::<[u8; 2]>(), skip in 0usize..4) {
            let mut header = header;
            // Heads that reach the addresses that are not plain.
            for (at, head) in [(8, heads[0]), (24, heads[1])] {
                match head % 8 {
                    0 => header[at..at + 2].fill(0),
                    1 => header[at] = 0xff,
                    2 => header[at] = 0,
                    3 => header[at] = 0xfe,
                    4 => header[at..at + 2].copy_from_slice(&[0xfe, 0xbf]),
                    5 => header[at..at + 16].fill(0),
                    _ => {}
                }
            }
            let mut bytes = vec![0; skip];
            bytes.extend(header);
            let plain = PlainIpv6Header::at(&bytes, skip).expect("it is all there");
            prop_assert_eq!(PlainIpv6Header::at(&bytes, skip + 1), None);
            let view = Ipv6::new_unchecked(&header[..]);
            prop_assert_eq!(plain.is_ipv6(), view.version() == 6);
            prop_assert_eq!(plain.total_length(), 40 + view.payload_len());
            prop_assert_eq!(plain.next_header(), view.next_header());
            prop_assert_eq!(plain.hop_limit(), header[7]);
            prop_assert_eq!(Ipv6Addr::from_bits(plain.source()), view.source());
            prop_assert_eq!(Ipv6Addr::from_bits(plain.destination()), view.destination());
            let mut packet = header.to_vec();
            packet.resize(40 + usize::from(heads[0]), 0);
            let fits = plain.is_ipv6() && plain.total_length() <= packet.len();
            prop_assert_eq!(fits, ipv6::check_header(&packet).is_ok());
            let is_plain = |address: Ipv6Addr| address.segments()[0] != 0 && !address.is_multicast();
            let are_plain = is_plain(view.source()) && is_plain(view.destination());
            prop_assert_eq!(plain.has_plain_addresses(), are_plain);
            let may_leave = |address: Ipv6Addr| !address.is_unicast_link_local();
            prop_assert_eq!(
                plain.may_leave_link(),
                may_leave(view.source()) && !view.source().is_unspecified()
                    && may_leave(view.destination()) && !view.destination().is_multicast()
            );
        }
    }
}
