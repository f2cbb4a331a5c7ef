//! The two address families, so that everything else in the crate is written once for both.
//!
//! Addresses are unsigned integers in host order: `u32` for IPv4 (10.0.0.1 is `0x0a00_0001`), `u128` for IPv6. A
//! prefix is an [`Ipv4Net`] or [`Ipv6Net`] where people see it, and a network and a length where code computes.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{BitAnd, BitOr, BitXor, Not};
use std::str::FromStr;

/// An IPv4 address (`u32`) or an IPv6 address (`u128`), in host order.
pub trait Address:
    Copy
    + Ord
    + Hash
    + Debug
    + Default
    + Send
    + Sync
    + 'static
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + sealed::Sealed
{
    /// Bits of an address: 32 or 128.
    const BITS: u8;
    /// The family as people call it: `IPv4` or `IPv6`.
    const FAMILY: &'static str;
    /// The lowest address, all bits clear.
    const MIN: Self;
    /// The highest address, all bits set.
    const MAX: Self;
    /// A prefix of this family.
    type Net: Copy + Ord + Hash + Debug + Display + Send + Sync + FromStr + Into<IpNet>;

    /// The network mask of a prefix length, 0 to [`Address::BITS`].
    fn mask(length: u8) -> Self;

    /// How many bits are clear before the first that is set.
    fn leading_zeros(self) -> u8;

    /// The next address; the lowest follows the highest.
    fn next(self) -> Self;

    /// The address before; the highest precedes the lowest.
    fn previous(self) -> Self;

    /// The address (host bits included, if there are any) and the length of a prefix.
    fn parts(net: Self::Net) -> (Self, u8);

    /// The prefix of `length` bits, at most [`Address::BITS`], that begins at `network`.
    fn net(network: Self, length: u8) -> Self::Net;

    /// The address as two words, the higher first.
    fn words(self) -> [u64; 2];

    /// The address as the standard library has it, for people to read.
    fn to_ip(self) -> IpAddr;

    /// The address, if it is of this family.
    fn from_ip(address: IpAddr) -> Option<Self>;
}

mod sealed {
    /// What the RIB orders routes by, and that nobody else may add a family.
    pub trait Sealed: Sized {
        /// Orders prefixes by network, then by length. For IPv4 one number; comparing those is the hot part of a
        /// search in a B-tree.
        type Key: Copy + Ord + std::fmt::Debug + Send + Sync;
        fn key(self, length: u8) -> Self::Key;
        fn of_key(key: Self::Key) -> (Self, u8);
    }

    impl Sealed for u32 {
        type Key = u64;

        #[inline]
        fn key(self, length: u8) -> u64 {
            u64::from(self) << 6 | u64::from(length)
        }

        #[inline]
        fn of_key(key: u64) -> (u32, u8) {
            ((key >> 6) as u32, (key & 63) as u8)
        }
    }

    impl Sealed for u128 {
        type Key = (u128, u8);

        #[inline]
        fn key(self, length: u8) -> (u128, u8) {
            (self, length)
        }

        #[inline]
        fn of_key(key: (u128, u8)) -> (u128, u8) {
            key
        }
    }
}

macro_rules! address {
    ($address:ty, $family:literal, $net:ty, $ip:ty, $variant:path) => {
        impl Address for $address {
            const BITS: u8 = <$address>::BITS as u8;
            const FAMILY: &'static str = $family;
            const MIN: Self = <$address>::MIN;
            const MAX: Self = <$address>::MAX;
            type Net = $net;

            #[inline]
            fn mask(length: u8) -> Self {
                if length == 0 { 0 } else { Self::MAX << (<Self as Address>::BITS - length) }
            }

            #[inline]
            fn leading_zeros(self) -> u8 {
                <$address>::leading_zeros(self) as u8
            }

            #[inline]
            fn next(self) -> Self {
                self.wrapping_add(1)
            }

            #[inline]
            fn previous(self) -> Self {
                self.wrapping_sub(1)
            }

            #[inline]
            fn parts(net: Self::Net) -> (Self, u8) {
                (<$address>::from(net.addr()), net.prefix_len())
            }

            #[inline]
            fn net(network: Self, length: u8) -> Self::Net {
                <$net>::new(<$ip>::from(network), length).expect("the length is at most that of an address")
            }

            fn words(self) -> [u64; 2] {
                let wide = u128::from(self);
                [(wide >> 64) as u64, wide as u64]
            }

            fn to_ip(self) -> IpAddr {
                IpAddr::from(<$ip>::from(self))
            }

            #[inline]
            fn from_ip(address: IpAddr) -> Option<Self> {
                if let $variant(address) = address { Some(address.into()) } else { None }
            }
        }
    };
}

address!(u32, "IPv4", Ipv4Net, Ipv4Addr, IpAddr::V4);
address!(u128, "IPv6", Ipv6Net, Ipv6Addr, IpAddr::V6);

/// The first and the last address of a prefix; host bits do not matter.
#[inline]
pub(crate) fn bounds<A: Address>(net: A::Net) -> (A, A) {
    let (address, length) = A::parts(net);
    let mask = A::mask(length);
    (address & mask, address | !mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_the_shortest_and_the_longest_prefix() {
        assert_eq!(bounds::<u32>("0.0.0.0/0".parse().unwrap()), (0, u32::MAX));
        assert_eq!(bounds::<u32>("255.255.255.255/32".parse().unwrap()), (u32::MAX, u32::MAX));
        assert_eq!(bounds::<u32>("10.0.0.2/31".parse().unwrap()), (0x0a00_0002, 0x0a00_0003));
        assert_eq!(bounds::<u128>("::/0".parse().unwrap()), (0, u128::MAX));
        assert_eq!(bounds::<u128>("::2/127".parse().unwrap()), (2, 3));
        assert_eq!(bounds::<u128>("::2/128".parse().unwrap()), (2, 2));
    }

    #[test]
    fn a_prefix_is_its_parts() {
        let net = "2001:db8::/32".parse().unwrap();
        let (network, length) = u128::parts(net);
        assert_eq!((network >> 96, length), (0x2001_0db8, 32));
        assert_eq!(u128::net(network, length), net);
        assert_eq!(u32::net(0x0a00_0000, 8), "10.0.0.0/8".parse().unwrap());
    }
}
