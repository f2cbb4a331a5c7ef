//! What differs between IPv4 and IPv6 in access control.

use fib::{Address, IntervalKey};
use ipnet::IpNet;
use packet::Packet;

use super::facts::{self, Judged};
use super::rule::IpVersion;

/// `u32` (IPv4) or `u128` (IPv6), addresses in host order.
pub(super) trait Family: Address {
    const VERSION: IpVersion;

    /// What is searched first: an IPv4 address, the upper half of an IPv6 address.
    type Upper: IntervalKey;

    fn upper(self) -> Self::Upper;

    /// The rest of the address.
    fn lower(self) -> u64;

    /// The next upper part, if there is one.
    fn upper_after(upper: Self::Upper) -> Option<Self::Upper>;

    /// A prefix, if it is of this family.
    fn prefix(prefix: IpNet) -> Option<Self::Net>;

    /// What rules look at; `None` when the header is not all there.
    fn facts(packet: &Packet) -> Option<Judged<Self>>;
}

impl Family for u32 {
    const VERSION: IpVersion = IpVersion::V4;

    type Upper = u32;

    #[inline(always)]
    fn upper(self) -> u32 {
        self
    }

    #[inline(always)]
    fn lower(self) -> u64 {
        0
    }

    fn upper_after(upper: u32) -> Option<u32> {
        upper.checked_add(1)
    }

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

    type Upper = u64;

    #[inline(always)]
    fn upper(self) -> u64 {
        (self >> 64) as u64
    }

    #[inline(always)]
    fn lower(self) -> u64 {
        self as u64
    }

    fn upper_after(upper: u64) -> Option<u64> {
        upper.checked_add(1)
    }

    fn prefix(prefix: IpNet) -> Option<Self::Net> {
        if let IpNet::V6(prefix) = prefix { Some(prefix) } else { None }
    }

    #[inline(always)]
    fn facts(packet: &Packet) -> Option<Judged<u128>> {
        facts::of_ipv6(packet)
    }
}
