//! Wire formats: views of protocol headers in bytes, and what they mean.
//!
//! One file a protocol (the options of IPv4 and neighbour discovery and the extension headers of IPv6
//! have their own), two types each:
//!
//! - A **view** such as [`Ipv4<T>`](ipv4::Ipv4) wraps bytes `T: AsRef<[u8]>` and reads fields where they
//!   stand; with `T: AsMut<[u8]>` it writes them too. A view owns no meaning: it reads a wrong version or
//!   checksum as well as a right one.
//! - A **repr** such as [`Ipv4Repr`](ipv4::Ipv4Repr) is the parsed meaning. `parse` checks what the RFC asks
//!   for and names what was wrong; `emit` writes the header back, checksums included. `parse` of what `emit`
//!   wrote gives the same repr.
//!
//! # The contract of every view
//!
//! 1. `new_checked` makes **one** length check, `check_len`. After it **no accessor panics**, whatever the
//!    bytes say.
//! 2. Fields at a fixed place are read where they stand. Parts whose place the packet itself decides
//!    (options, payload) are cut to the bytes that are there, so they stay safe even after a setter made a
//!    length field wrong.
//! 3. `new_unchecked` skips the check. On bytes that `check_len` would refuse, accessors and setters of fixed
//!    fields may panic: use it for a buffer that is known to be long enough.
//! 4. `parse` starts from a view, and trusts that it was checked; `emit` checks the room itself and gives
//!    [`WireError::BufferTooSmall`], so neither panics on a view made by `new_checked`.
//! 5. Iterators over options and extension headers consume at least one byte an item, give at most one error
//!    and nothing after it; so they end on any bytes.
//!
//! Multi-byte fields are in host order. Setters do not touch checksums; `fill_checksum` does.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::checksum;

/// Where a field stands in its header.
pub type Field = Range<usize>;

/// Defines a view type: the wrapper and its constructors. The file adds `check_len` and the accessors.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<T> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// Wraps `buffer` without a check; see the contract in [`wire`](crate::wire).
            #[inline]
            pub const fn new_unchecked(buffer: T) -> Self {
                Self { buffer }
            }

            /// Wraps `buffer` after one length check, [`check_len`](Self::check_len).
            ///
            /// # Errors
            /// Those of `check_len`: the header does not fit into the bytes.
            #[inline]
            pub fn new_checked(buffer: T) -> Result<Self, $crate::wire::WireError> {
                let view = Self { buffer };
                view.check_len()?;
                Ok(view)
            }

            /// Gives the wrapped buffer back.
            #[inline]
            pub fn into_inner(self) -> T {
                self.buffer
            }

            /// All bytes of the view: header and what follows it.
            #[inline]
            pub fn bytes(&self) -> &[u8] {
                self.buffer.as_ref()
            }
        }
    };
}

pub mod arp;
pub mod ethernet;
pub mod icmp;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv4_option;
pub mod ipv6;
pub mod ipv6_extension;
pub mod nd_option;
pub mod tcp;
pub mod udp;

/// Defines [`WireError`] from one table, so that the list, the reasons and the order cannot drift apart.
macro_rules! wire_errors {
    ($($name:ident => $reason:literal,)*) => {
        /// Why bytes are not the header that they should be. Each variant is a drop reason with its own
        /// counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum WireError {
            $(#[doc = concat!("`", $reason, "`.")] $name,)*
        }

        impl WireError {
            /// Every error, in the order of its number (`error as usize`), for tables of counters.
            pub const ALL: &'static [WireError] = &[$(WireError::$name,)*];

            /// The reason in words, as shown beside a drop counter.
            pub const fn reason(self) -> &'static str {
                match self { $(WireError::$name => $reason,)* }
            }
        }
    };
}

wire_errors! {
    BufferTooSmall => "buffer too small for the header to write",
    PacketTooLong => "packet longer than its length field can say",
    OptionsTooLong => "options longer than 40 octets",
    TruncatedEthernet => "truncated Ethernet header",
    TruncatedVlanTag => "truncated 802.1Q tag",
    TooManyVlanTags => "more than two 802.1Q tags",
    TruncatedArp => "truncated ARP packet",
    ArpHardwareType => "ARP hardware type is not Ethernet",
    ArpProtocolType => "ARP protocol type is not IPv4",
    ArpAddressLength => "ARP address lengths are not 6 and 4",
    TruncatedIpv4 => "truncated IPv4 header",
    Ipv4Version => "bad IPv4 version",
    Ipv4HeaderLength => "IPv4 header length below 20",
    Ipv4HeaderBeyondPacket => "IPv4 header length beyond the packet",
    Ipv4TotalLength => "IPv4 total length below the header length",
    Ipv4TotalBeyondPacket => "IPv4 total length beyond the packet",
    Ipv4Checksum => "bad IPv4 header checksum",
    TruncatedIpv6 => "truncated IPv6 header",
    Ipv6Version => "bad IPv6 version",
    Ipv6PayloadBeyondPacket => "IPv6 payload length beyond the packet",
    Ipv6ExtensionBeyondPacket => "IPv6 extension header beyond the packet",
    Ipv6HopByHopNotFirst => "IPv6 hop-by-hop options not first",
    TooManyIpv6Extensions => "too many IPv6 extension headers",
    Ipv6AuthenticationLength => "IPv6 authentication header length below 12",
    Ipv6OptionBeyondHeader => "IPv6 option beyond its header",
    TruncatedIcmp => "truncated ICMP header",
    IcmpChecksum => "bad ICMP checksum",
    TruncatedIcmpv6 => "truncated ICMPv6 header",
    Icmpv6Checksum => "bad ICMPv6 checksum",
    NdCode => "neighbour discovery code is not 0",
    NdTarget => "neighbour discovery target is a multicast address",
    NdOptionLength => "bad neighbour discovery option length",
    NdOptionBeyondPacket => "neighbour discovery option beyond the packet",
    TruncatedUdp => "truncated UDP header",
    UdpLength => "UDP length below 8",
    UdpBeyondPacket => "UDP length beyond the packet",
    UdpChecksum => "bad UDP checksum",
    UdpNoChecksum => "UDP over IPv6 without checksum",
    TruncatedTcp => "truncated TCP header",
    TcpDataOffset => "TCP data offset below 20",
    TcpHeaderBeyondPacket => "TCP data offset beyond the packet",
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for WireError {}

/// An IP protocol number: the protocol field of IPv4 and the next header field of IPv6 (IANA registry
/// "Protocol Numbers").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200, section 4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: Self = Self(1);
    /// IGMP (RFC 3376).
    pub const IGMP: Self = Self(2);
    /// IPv4 in IP (RFC 2003).
    pub const IPIP: Self = Self(4);
    /// TCP (RFC 9293).
    pub const TCP: Self = Self(6);
    /// UDP (RFC 768).
    pub const UDP: Self = Self(17);
    /// IPv6 in IP (RFC 4213).
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header (RFC 8200, section 4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header (RFC 8200, section 4.5).
    pub const FRAGMENT: Self = Self(44);
    /// GRE (RFC 2784).
    pub const GRE: Self = Self(47);
    /// IPsec encapsulating security payload (RFC 4303).
    pub const ESP: Self = Self(50);
    /// IPsec authentication header (RFC 4302).
    pub const AH: Self = Self(51);
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// IPv6 no next header (RFC 8200, section 4.7).
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 destination options (RFC 8200, section 4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// OSPF (RFC 2328).
    pub const OSPF: Self = Self(89);
    /// MPLS in IP (RFC 4023).
    pub const MPLS: Self = Self(137);
    /// SCTP (RFC 9260).
    pub const SCTP: Self = Self(132);

    /// Whether it is an IPv6 extension header that says what follows it: all that RFC 8200, section 4, and
    /// RFC 4302 define. ESP is none of them, as what follows it is encrypted.
    #[inline(always)]
    pub const fn is_ipv6_extension(self) -> bool {
        matches!(
            self,
            Self::HOP_BY_HOP | Self::ROUTING | Self::FRAGMENT | Self::DESTINATION_OPTIONS | Self::AH
        )
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::HOP_BY_HOP => "hop-by-hop",
            Self::ICMP => "icmp",
            Self::IGMP => "igmp",
            Self::IPIP => "ipip",
            Self::TCP => "tcp",
            Self::UDP => "udp",
            Self::IPV6 => "ipv6",
            Self::ROUTING => "ipv6-route",
            Self::FRAGMENT => "ipv6-frag",
            Self::GRE => "gre",
            Self::ESP => "esp",
            Self::AH => "ah",
            Self::ICMPV6 => "icmp6",
            Self::NO_NEXT_HEADER => "ipv6-nonxt",
            Self::DESTINATION_OPTIONS => "ipv6-opts",
            Self::OSPF => "ospf",
            Self::MPLS => "mpls-in-ip",
            Self::SCTP => "sctp",
            Self(number) => return write!(f, "{number}"),
        };
        f.write_str(name)
    }
}

/// The addresses that UDP and TCP checksums cover besides their own bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PseudoHeader {
    /// Over IPv4 (RFC 768, RFC 9293).
    V4 {
        /// Source address of the IPv4 header.
        source: Ipv4Addr,
        /// Destination address; the last one where a source route is present.
        destination: Ipv4Addr,
    },
    /// Over IPv6 (RFC 8200, section 8.1).
    V6 {
        /// Source address of the IPv6 header.
        source: Ipv6Addr,
        /// Destination address; the last one where a routing header is present.
        destination: Ipv6Addr,
    },
}

impl PseudoHeader {
    /// The pseudo-header of two addresses; `None` if they are of different families.
    pub const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }

    /// The [sum](checksum) over the pseudo-header for `length` bytes of `protocol`.
    #[inline]
    pub fn sum(&self, protocol: IpProtocol, length: usize) -> u16 {
        match *self {
            // An IPv4 payload is at most 65,515 bytes; a longer slice has no right checksum.
            Self::V4 { source, destination } => {
                checksum::pseudo_v4(source, destination, protocol.0, length as u16)
            }
            Self::V6 { source, destination } => {
                checksum::pseudo_v6(source, destination, protocol.0, length as u32)
            }
        }
    }
}

/// The options of an IPv4 or TCP header by value: up to 40 octets, a multiple of 4.
///
/// Both headers count their length in 4-octet words with 4 bits, of which 20 octets are fixed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OptionOctets {
    octets: [u8; Self::MAX_LEN],
    len: u8,
}

impl OptionOctets {
    /// The most octets that fit.
    pub const MAX_LEN: usize = 40;
    /// No options.
    pub const EMPTY: Self = Self { octets: [0; Self::MAX_LEN], len: 0 };

    /// Copies `options`, padded to a multiple of 4 with zeros: End of Option List in both protocols.
    ///
    /// # Errors
    /// [`WireError::OptionsTooLong`] for more than 40 octets.
    pub fn new(options: &[u8]) -> Result<Self, WireError> {
        let mut octets = [0; Self::MAX_LEN];
        octets.get_mut(..options.len()).ok_or(WireError::OptionsTooLong)?.copy_from_slice(options);
        Ok(Self { octets, len: options.len().next_multiple_of(4) as u8 })
    }

    /// The octets, padding included.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    /// How many octets, padding included: 0, 4, ... 40.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for OptionOctets {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for OptionOctets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OptionOctets").field(&self.as_slice()).finish()
    }
}

/// Reads the `N` bytes of a field. The caller knows that they are there and that the field is `N` long.
#[inline]
fn read<const N: usize>(bytes: &[u8], field: Field) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[field]);
    value
}

/// Reads a 16-bit field.
#[inline]
fn read_u16(bytes: &[u8], field: Field) -> u16 {
    u16::from_be_bytes(read(bytes, field))
}

/// Reads a 32-bit field.
#[inline]
fn read_u32(bytes: &[u8], field: Field) -> u32 {
    u32::from_be_bytes(read(bytes, field))
}

/// Cuts `range` to the bytes that are there: never panics, empty where nothing is left.
#[inline]
fn cut(bytes: &[u8], start: usize, end: usize) -> &[u8] {
    let end = end.min(bytes.len());
    bytes.get(start..end).unwrap_or(&[])
}

/// [`cut`] for writing.
#[inline]
fn cut_mut(bytes: &mut [u8], start: usize, end: usize) -> &mut [u8] {
    let end = end.min(bytes.len());
    bytes.get_mut(start..end).unwrap_or(&mut [])
}

/// Frames that Linux 6 sent between two hosts over a veth pair, for the tests of all protocols.
#[cfg(test)]
mod golden {
    pub(super) const ARP_REQUEST: &str =
        "ffffffffffff02000000000a0806000108000604000102000000000ac0000201000000000000c0000202";
    pub(super) const ARP_REPLY: &str =
        "02000000000a02000000000b0806000108000604000202000000000bc000020202000000000ac0000201";
    pub(super) const PING: &str = "02000000000b02000000000a0800450000244ada400040016bfbc0000201c0000202\
         08004d0412340001627269636b776179";
    pub(super) const UDP: &str = "02000000000b02000000000a08004800002d648d400040113e61c0000201c0000202\
         070b08c000020100000000011234829a000da32f68656c6c6f";
    /// The destination's answer to [`UDP`], with its own recorded route.
    pub(super) const PORT_UNREACHABLE: &str = "02000000000a02000000000b080048c00055a635000040013520c0000202c0000201\
         070b0cc0000201c00002020003037a5d000000004800002d648d400040113e61c0000201c0000202\
         070b0cc0000201c0000202011234829a000da32f68656c6c6f";
    pub(super) const TCP_SYN: &str = "02000000000b02000000000a08004500003c7fd14000400636e7c0000201c0000202\
         adf81f90f71ce87100000000a002faf0466b0000020405b40402080a2fb0a5d5000000000103030a";
    pub(super) const TCP_DATA: &str = "02000000000b02000000000a0800450000377fd34000400636eac0000201c0000202\
         adf81f90f71ce872d51eefcc8018003f506300000101080a2fb0a5d552086d34474554";
    pub(super) const NEIGHBOUR_SOLICITATION: &str = "3333ff00000202000000000a86dd6000000000203aff20010db8000000000000000000000001\
         ff0200000000000000000001ff00000287001c1e0000000020010db8000000000000000000000002010102000000000a";
    pub(super) const NEIGHBOUR_ADVERTISEMENT: &str = "02000000000a02000000000b86dd6000000000203aff20010db8000000000000000000000002\
         20010db800000000000000000000000188008a686000000020010db8000000000000000000000002020102000000000b";
    pub(super) const ROUTER_SOLICITATION: &str = "33330000000202000000000a86dd6000000000103afffe80000000000000000000fffe00000a\
         ff02000000000000000000000000000285007b1a00000000010102000000000a";
    pub(super) const PING6: &str = "02000000000b02000000000a86dd6008c5b200103a40\
         20010db800000000000000000000000120010db8000000000000000000000002\
         8000794412340001627269636b776179";
    pub(super) const UDP6: &str = "02000000000b02000000000a86dd6004fa87000d1140\
         20010db800000000000000000000000120010db80000000000000000000000021235829a000dcbbd68656c6c6f";
    /// [`UDP6`] behind destination options.
    pub(super) const UDP6_OPTIONS: &str = "02000000000b02000000000a86dd6004fa8700153c40\
         20010db800000000000000000000000120010db8000000000000000000000002\
         11000104000000001235829a000dcbbd68656c6c6f";
    pub(super) const PORT_UNREACHABLE6: &str = "02000000000a02000000000b86dd600a8c49003d3a40\
         20010db800000000000000000000000220010db80000000000000000000000010104375400000000\
         6004fa87000d114020010db800000000000000000000000120010db8000000000000000000000002\
         1235829a000dcbbd68656c6c6f";
    /// A multicast listener report: hop-by-hop options with a router alert.
    pub(super) const LISTENER_REPORT: &str = "33330000001602000000000b86dd6000000000380001fe80000000000000000000fffe00000b\
         ff0200000000000000000000000000163a000502000001008f006fd70000000204000000\
         ff0200000000000000000001ff00000204000000ff0200000000000000000001ff00000b";

    /// The bytes of a whole frame.
    pub(super) fn frame(hex: &str) -> Vec<u8> {
        assert_eq!(hex.len() % 2, 0);
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// The bytes behind the Ethernet header.
    pub(super) fn payload(hex: &str) -> Vec<u8> {
        frame(hex).split_off(14)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_distinct_and_numbered() {
        for (number, error) in WireError::ALL.iter().enumerate() {
            assert_eq!(*error as usize, number);
            assert_eq!(error.to_string(), error.reason());
            assert!(WireError::ALL[..number].iter().all(|other| other.reason() != error.reason()));
        }
        assert_eq!(WireError::TruncatedIpv4.reason(), "truncated IPv4 header");
    }

    #[test]
    fn option_octets_are_padded_and_bounded() {
        let options = OptionOctets::new(&[1, 2, 3, 4, 5]).unwrap();
        assert_eq!(options.as_slice(), [1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(OptionOctets::new(&[7; 40]).unwrap().len(), 40);
        assert_eq!(OptionOctets::new(&[7; 41]), Err(WireError::OptionsTooLong));
        assert!(OptionOctets::default().is_empty());
    }

    #[test]
    fn protocols_have_names_or_numbers() {
        assert_eq!(IpProtocol::UDP.to_string(), "udp");
        assert_eq!(IpProtocol(253).to_string(), "253");
    }

    #[test]
    fn pseudo_headers_need_one_family() {
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert!(PseudoHeader::new(v4, v4).is_some());
        assert!(PseudoHeader::new(v6, v6).is_some());
        assert!(PseudoHeader::new(v4, v6).is_none());
    }
}
