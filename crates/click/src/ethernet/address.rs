//! The addresses of next hops, IPv4 or IPv6: what differs for the tables that resolve them.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

use graph::FromArgument;
use packet::Annotations;
use packet::flow::FlowKey;

/// `u32` (IPv4) or `u128` (IPv6), in host order.
pub(super) trait Address: Copy + Debug + Ord + Hash + Send + Sync + 'static {
    /// The address as people write it.
    type Ip: Display + FromArgument + From<Self> + Into<Self>;
    /// The unspecified address.
    const NOBODY: Self;

    /// Where the packet goes next.
    fn of(annotations: &Annotations) -> Self;

    /// A hash whose upper bits differ even between addresses of one subnet. Who does not know the key
    /// cannot make neighbours up that all have the same.
    fn hash(self, key: FlowKey) -> u32;
}

impl Address for u32 {
    type Ip = Ipv4Addr;
    const NOBODY: Self = 0;

    #[inline(always)]
    fn of(annotations: &Annotations) -> Self {
        annotations.destination_ip()
    }

    #[inline(always)]
    fn hash(self, key: FlowKey) -> u32 {
        key.product(self.into(), 0) as u32
    }
}

impl Address for u128 {
    type Ip = Ipv6Addr;
    const NOBODY: Self = 0;

    #[inline(always)]
    fn of(annotations: &Annotations) -> Self {
        annotations.destination_ip6()
    }

    #[inline(always)]
    fn hash(self, key: FlowKey) -> u32 {
        key.product((self >> 64) as u64, self as u64) as u32
    }
}
