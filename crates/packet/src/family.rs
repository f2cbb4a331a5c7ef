//! The two address families, IPv4 and IPv6, so that what is the same for both is written once.
//!
//! [`Family`] is for code that is compiled once for each family: its types are the addresses themselves, `u32` for IPv4
//! (10.0.0.1 is `0x0a00_0001`) and `u128` for IPv6, unsigned integers in host order. A prefix is an [`Ipv4Net`] or
//! [`Ipv6Net`] where people see it, and a network and a length where code computes. [`IpVersion`] is the family as a value.

use std::fmt::{self, Debug, Display};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{BitAnd, BitOr, BitXor, Not};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::Annotations;
use crate::multipath::PathHash;
use crate::wire::ethernet::EtherType;
use crate::wire::{ipv4, ipv6};

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum IpVersion {
    /// IPv4.
    #[cfg_attr(feature = "serde", serde(rename = "ipv4"))]
    V4,
    /// IPv6.
    #[cfg_attr(feature = "serde", serde(rename = "ipv6"))]
    V6,
}

impl IpVersion {
    /// Both, IPv4 first.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns what the version field of a header says: 4 or 6.
    pub const fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// Returns the EtherType of its packets.
    pub const fn ethertype(self) -> EtherType {
        match self {
            Self::V4 => EtherType::IPV4,
            Self::V6 => EtherType::IPV6,
        }
    }

    /// Returns the version of an address.
    pub const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// `IPv4` or `IPv6`.
impl Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// An IPv4 address (`u32`) or an IPv6 address (`u128`), in host order.
pub trait Family:
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
    /// The family as a value.
    const VERSION: IpVersion;
    /// Bits of an address: 32 or 128.
    const BITS: u8;
    /// The lowest address, all bits clear: the unspecified address.
    const MIN: Self;
    /// The highest address, all bits set.
    const MAX: Self;
    /// An address as people write it.
    type Ip: Copy + Ord + Hash + Debug + Display + FromStr + From<Self> + Into<Self> + Into<IpAddr>;
    /// A prefix of this family.
    type Net: Copy + Ord + Hash + Debug + Display + Send + Sync + FromStr + Into<IpNet>;
    /// Orders prefixes by network, then by length. For IPv4 one number; comparing those is the hot part of a
    /// search in a B-tree.
    type Key: Copy + Ord + Debug + Send + Sync;

    /// The network mask of a prefix length, 0 to [`Family::BITS`].
    fn mask(length: u8) -> Self;

    /// How many bits are clear before the first that is set.
    fn leading_zeros(self) -> u8;

    /// The next address; the lowest follows the highest.
    fn next(self) -> Self;

    /// The address before; the highest precedes the lowest.
    fn previous(self) -> Self;

    /// The address (host bits included, if there are any) and the length of a prefix.
    fn parts(net: Self::Net) -> (Self, u8);

    /// The prefix of `length` bits, at most [`Family::BITS`], that begins at `network`.
    fn net(network: Self, length: u8) -> Self::Net;

    /// The prefix, if it is of this family.
    fn from_net(net: IpNet) -> Option<Self::Net>;

    /// The key of the prefix of `length` bits that begins at this address.
    fn key(self, length: u8) -> Self::Key;

    /// Network and length of a [key](Family::key).
    fn of_key(key: Self::Key) -> (Self, u8);

    /// The address as a number of 128 bits.
    fn to_u128(self) -> u128;

    /// The address in the low bits of a number.
    fn from_u128(number: u128) -> Self;

    /// The address as the standard library has it, for people to read.
    fn to_ip(self) -> IpAddr;

    /// The address, if it is of this family.
    fn from_ip(address: IpAddr) -> Option<Self>;

    /// The first and the last octet of the address.
    fn ends(self) -> (u8, u8);

    /// The first and the last address of a prefix; host bits do not matter.
    #[inline]
    fn bounds(net: Self::Net) -> (Self, Self) {
        let (address, length) = Self::parts(net);
        let mask = Self::mask(length);
        (address & mask, address | !mask)
    }

    /// The source address of the packet that begins with its network header here; 0 if there is none.
    fn source(packet: &[u8]) -> Self;

    /// The annotation that says where a packet goes next.
    fn destination(annotations: &Annotations) -> Self;

    /// Sets where a packet goes next.
    fn set_destination(annotations: &mut Annotations, address: Self);

    /// The hash of the packet that begins with its network header here, by which next hops are chosen; `None` if the choice is
    /// Linux's.
    fn path_hash(hash: &PathHash, packet: &[u8]) -> Option<u32>;
}

mod sealed {
    /// Nobody else may add a family.
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

/// The address in a field of a packet; 0 if the packet ends before.
macro_rules! address_at {
    ($address:ty, $packet:expr, $field:expr) => {{
        let bytes = $packet.get($field).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| <$address>::from_be_bytes(*bytes))
    }};
}

/// What is spelled the same way for both.
macro_rules! addresses {
    ($address:ty, $ip:ty, $net:ty, $version:ident) => {
        const VERSION: IpVersion = IpVersion::$version;
        const BITS: u8 = <$address>::BITS as u8;
        const MIN: Self = <$address>::MIN;
        const MAX: Self = <$address>::MAX;
        type Ip = $ip;
        type Net = $net;

        #[inline]
        fn mask(length: u8) -> Self {
            if length == 0 { 0 } else { Self::MAX << (<Self as Family>::BITS - length) }
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

        #[inline]
        fn from_net(net: IpNet) -> Option<Self::Net> {
            if let IpNet::$version(net) = net { Some(net) } else { None }
        }

        #[inline(always)]
        fn to_u128(self) -> u128 {
            self.into()
        }

        #[inline(always)]
        fn ends(self) -> (u8, u8) {
            ((self >> (<$address>::BITS - 8)) as u8, self as u8)
        }

        #[inline(always)]
        fn from_u128(number: u128) -> Self {
            number as $address
        }

        fn to_ip(self) -> IpAddr {
            IpAddr::from(<$ip>::from(self))
        }

        #[inline]
        fn from_ip(address: IpAddr) -> Option<Self> {
            if let IpAddr::$version(address) = address { Some(address.into()) } else { None }
        }
    };
}

impl Family for u32 {
    addresses!(u32, Ipv4Addr, Ipv4Net, V4);

    type Key = u64;

    #[inline]
    fn key(self, length: u8) -> u64 {
        u64::from(self) << 6 | u64::from(length)
    }

    #[inline]
    fn of_key(key: u64) -> (u32, u8) {
        ((key >> 6) as u32, (key & 63) as u8)
    }

    #[inline(always)]
    fn source(packet: &[u8]) -> u32 {
        address_at!(u32, packet, ipv4::field::SOURCE)
    }

    #[inline(always)]
    fn destination(annotations: &Annotations) -> u32 {
        annotations.destination_ip()
    }

    #[inline(always)]
    fn set_destination(annotations: &mut Annotations, address: u32) {
        annotations.set_destination_ip(address);
    }

    #[inline(always)]
    fn path_hash(hash: &PathHash, packet: &[u8]) -> Option<u32> {
        hash.of_ipv4(packet)
    }
}

impl Family for u128 {
    addresses!(u128, Ipv6Addr, Ipv6Net, V6);

    type Key = (u128, u8);

    #[inline]
    fn key(self, length: u8) -> (u128, u8) {
        (self, length)
    }

    #[inline]
    fn of_key(key: (u128, u8)) -> (u128, u8) {
        key
    }

    #[inline(always)]
    fn source(packet: &[u8]) -> u128 {
        address_at!(u128, packet, ipv6::field::SOURCE)
    }

    #[inline(always)]
    fn destination(annotations: &Annotations) -> u128 {
        annotations.destination_ip6()
    }

    #[inline(always)]
    fn set_destination(annotations: &mut Annotations, address: u128) {
        annotations.set_destination_ip6(address);
    }

    #[inline(always)]
    fn path_hash(hash: &PathHash, packet: &[u8]) -> Option<u32> {
        hash.of_ipv6(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_the_shortest_and_the_longest_prefix() {
        assert_eq!(u32::bounds("0.0.0.0/0".parse().unwrap()), (0, u32::MAX));
        assert_eq!(u32::bounds("255.255.255.255/32".parse().unwrap()), (u32::MAX, u32::MAX));
        assert_eq!(u32::bounds("10.0.0.2/31".parse().unwrap()), (0x0a00_0002, 0x0a00_0003));
        assert_eq!(u128::bounds("::/0".parse().unwrap()), (0, u128::MAX));
        assert_eq!(u128::bounds("::2/127".parse().unwrap()), (2, 3));
        assert_eq!(u128::bounds("::2/128".parse().unwrap()), (2, 2));
    }

    #[test]
    fn a_prefix_is_its_parts() {
        let net = "2001:db8::/32".parse().unwrap();
        let (network, length) = u128::parts(net);
        assert_eq!((network >> 96, length), (0x2001_0db8, 32));
        assert_eq!(u128::net(network, length), net);
        assert_eq!(u32::net(0x0a00_0000, 8), "10.0.0.0/8".parse().unwrap());
    }

    #[test]
    fn an_address_is_the_low_bits_of_a_number_and_of_one_family() {
        assert_eq!((u32::from_u128(1 << 32 | 7), u128::from_u128(1 << 32 | 7)), (7, 1 << 32 | 7));
        let (ipv4, ipv6) = ("10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap());
        assert!(u32::from_net(ipv4).is_some() && u32::from_net(ipv6).is_none());
        assert!(u128::from_net(ipv6).is_some() && u128::from_net(ipv4).is_none());
        assert_eq!(IpVersion::of(7u32.to_ip()), IpVersion::V4);
        assert_eq!(IpVersion::of(7u128.to_ip()).to_string(), "IPv6");
    }

    #[test]
    fn a_source_that_is_not_there_is_zero() {
        let packet: Vec<u8> = (0..40).collect();
        assert_eq!(u32::source(&packet), 0x0c0d_0e0f);
        assert_eq!(u32::source(&packet[..15]), 0);
        assert_eq!(u128::source(&packet), 0x0809_0a0b_0c0d_0e0f_1011_1213_1415_1617);
        assert_eq!(u128::source(&packet[..23]), 0);
    }
}
