//! The addresses of next hops, IPv4 or IPv6: what differs for the tables that resolve them.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

use graph::FromArgument;
use packet::Annotations;

/// `u32` (IPv4) or `u128` (IPv6), in host order.
pub(super) trait Address: Copy + Debug + Ord + Hash + Send + Sync + 'static {
    /// The address as people write it.
    type Ip: Display + FromArgument + From<Self> + Into<Self>;
    /// The unspecified address.
    const NOBODY: Self;

    /// Where the packet goes next.
    fn of(annotations: &Annotations) -> Self;

    /// A hash whose upper bits differ even between addresses of one subnet.
    fn hash(self) -> u32;
}

impl Address for u32 {
    type Ip = Ipv4Addr;
    const NOBODY: Self = 0;

    #[inline(always)]
    fn of(annotations: &Annotations) -> Self {
        annotations.destination_ip()
    }

    /// Multiplicative hashing (Knuth, The Art of Computer Programming 6.4).
    #[inline(always)]
    fn hash(self) -> u32 {
        self.wrapping_mul(0x9e37_79b1)
    }
}

impl Address for u128 {
    type Ip = Ipv6Addr;
    const NOBODY: Self = 0;

    #[inline(always)]
    fn of(annotations: &Annotations) -> Self {
        annotations.destination_ip6()
    }

    /// The same, with the halves made one first; the product of the upper one keeps it from cancelling the
    /// lower one out.
    #[inline(always)]
    fn hash(self) -> u32 {
        let (high, low) = ((self >> 64) as u64, self as u64);
        let both = high.wrapping_mul(0xd1b5_4a32_d192_ed03) ^ low;
        (both.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }
}
