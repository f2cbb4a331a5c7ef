//! What FIBLookup and CheckReversePath have to know of an address family beside its tables.

use fib::FibFamily;
use graph::FromArgument;
use packet::Packet;
use packet::wire::{IpProtocol, ipv4, ipv6};

/// A family of which packets are forwarded: what Linux has to see, and sources that are special.
pub(super) trait ForwardFamily: FibFamily<Ip: FromArgument> {
    /// Whether Linux has to see the packet whatever its destination.
    fn is_odd(packet: &Packet) -> bool;

    /// Whether packets from there are never forwarded, but may be for this host.
    fn is_of_the_link(self) -> bool;

    /// Whether it is a group.
    fn is_group(self) -> bool;
}

impl ForwardFamily for u32 {
    /// Whether it has options.
    #[inline(always)]
    fn is_odd(packet: &Packet) -> bool {
        packet.data().first() != Some(&ipv4::WITHOUT_OPTIONS)
    }

    /// 0.0.0.0
    fn is_of_the_link(self) -> bool {
        self == 0
    }

    /// 224.0.0.0/4
    fn is_group(self) -> bool {
        self >> 28 == 0xe
    }
}

impl ForwardFamily for u128 {
    /// Whether it has options that every router on the way has to look at (RFC 8200, 4.3), or comes from `::` or a link-local address,
    /// from where nothing is forwarded (RFC 4291, 2.5.2 and 2.5.6).
    #[inline(always)]
    fn is_odd(packet: &Packet) -> bool {
        const SOURCE: usize = ipv6::field::SOURCE.start;
        let Some(start) = packet.data().first_chunk::<{ ipv6::field::SOURCE.end }>() else { return true };
        (start[ipv6::field::NEXT_HEADER] == IpProtocol::HOP_BY_HOP.0)
            | (start[ipv6::field::SOURCE] == [0; 16])
            | (start[SOURCE] == 0xfe) & (start[SOURCE + 1] & 0xc0 == 0x80)
    }

    /// ::, fe80::/10
    fn is_of_the_link(self) -> bool {
        self == 0 || self >> 118 == 0x3fa
    }

    /// ff00::/8
    fn is_group(self) -> bool {
        self >> 120 == 0xff
    }
}
