//! What differs between IPv4 and IPv6 in access control.

use fib::Address;
use ipnet::IpNet;
use packet::Packet;

use super::facts::{self, Judged};
use super::rule::IpVersion;

/// `u32` (IPv4) or `u128` (IPv6), addresses in host order.
pub(super) trait Family: Address {
    const VERSION: IpVersion;

    /// A prefix, if it is of this family.
    fn prefix(prefix: IpNet) -> Option<Self::Net>;

    /// What rules look at; `None` when the header is not all there.
    fn facts(packet: &Packet) -> Option<Judged<Self>>;
}

impl Family for u32 {
    const VERSION: IpVersion = IpVersion::V4;

    fn prefix(prefix: IpNet) -> Option<Self::Net> {
        if let IpNet::V4(prefix) = prefix { Some(prefix) } else { None }
    }

    #[inline(always)]
    fn facts(packet: &Packet) -> Option<Judged<u32>> {
        facts::of_ipv4(packet)
    }
}

impl Family for u128 {
    const VERSION: IpVersion = IpVersion::V6;

    fn prefix(prefix: IpNet) -> Option<Self::Net> {
        if let IpNet::V6(prefix) = prefix { Some(prefix) } else { None }
    }

    #[inline(always)]
    fn facts(packet: &Packet) -> Option<Judged<u128>> {
        facts::of_ipv6(packet)
    }
}
