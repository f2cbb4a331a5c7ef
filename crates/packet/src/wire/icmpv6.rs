//! ICMPv6 (RFC 4443) with neighbour discovery (RFC 4861). The options of the latter are in
//! [`nd_option`](super::nd_option).
//!
//! Code that acts on a neighbour discovery message also checks that its hop limit was 255 (RFC 4861, section
//! 7.1): that is in the IPv6 header and proves that no router forwarded it.

use std::net::Ipv6Addr;

use super::nd_option::NdOptionIter;
use super::{IpProtocol, WireError, cut, cut_mut, read, read_u16, read_u32};
use crate::checksum;

/// Octets of an ICMPv6 header: type, code, checksum and the 4 octets whose meaning depends on the type.
pub const HEADER_LEN: usize = 8;
/// The hop limit of every neighbour discovery message.
pub const ND_HOP_LIMIT: u8 = 255;

mod field {
    use crate::wire::Field;
    pub(super) const TYPE: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: Field = 2..4;
    pub(super) const REST: Field = 4..8;
    /// Of neighbour solicitations, neighbour advertisements and redirects.
    pub(super) const TARGET: Field = 8..24;
    /// Of redirects.
    pub(super) const REDIRECT_DESTINATION: Field = 24..40;
    /// Of router advertisements.
    pub(super) const REACHABLE_TIME: Field = 8..12;
    pub(super) const RETRANSMIT_TIMER: Field = 12..16;
}

/// The type of an ICMPv6 message (IANA registry "ICMPv6 type Numbers").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Icmpv6Type(pub u8);

impl Icmpv6Type {
    /// The packet could not be delivered.
    pub const DESTINATION_UNREACHABLE: Self = Self(1);
    /// The packet is larger than the next link's MTU.
    pub const PACKET_TOO_BIG: Self = Self(2);
    /// Hop limit or reassembly time ran out.
    pub const TIME_EXCEEDED: Self = Self(3);
    /// A header field is wrong.
    pub const PARAMETER_PROBLEM: Self = Self(4);
    /// Are you there?
    pub const ECHO_REQUEST: Self = Self(128);
    /// Answer to an echo request.
    pub const ECHO_REPLY: Self = Self(129);
    /// Who listens to which group (RFC 2710)?
    pub const LISTENER_QUERY: Self = Self(130);
    /// Listener report (RFC 2710).
    pub const LISTENER_REPORT: Self = Self(131);
    /// A listener has left (RFC 2710).
    pub const LISTENER_DONE: Self = Self(132);
    /// Routers, announce yourselves.
    pub const ROUTER_SOLICITATION: Self = Self(133);
    /// A router announces itself.
    pub const ROUTER_ADVERTISEMENT: Self = Self(134);
    /// Who has this address?
    pub const NEIGHBOUR_SOLICITATION: Self = Self(135);
    /// I have this address.
    pub const NEIGHBOUR_ADVERTISEMENT: Self = Self(136);
    /// A better first hop.
    pub const REDIRECT: Self = Self(137);
    /// Listener report, version 2 (RFC 3810).
    pub const LISTENER_REPORT_V2: Self = Self(143);

    /// Whether this reports an error and quotes a packet (RFC 4443, section 2.1). No error is sent about an
    /// error, nor about a redirect (section 2.4 (e)).
    #[inline]
    pub const fn is_error(self) -> bool {
        self.0 < 128
    }

    /// Octets of the fixed part of a message of this type.
    const fn fixed_len(self) -> usize {
        match self {
            Self::NEIGHBOUR_SOLICITATION | Self::NEIGHBOUR_ADVERTISEMENT => 24,
            Self::REDIRECT => 40,
            Self::ROUTER_ADVERTISEMENT => 16,
            _ => HEADER_LEN,
        }
    }

    const fn is_neighbour_discovery(self) -> bool {
        self.0 >= Self::ROUTER_SOLICITATION.0 && self.0 <= Self::REDIRECT.0
    }
}

/// Codes of [`Icmpv6Type::DESTINATION_UNREACHABLE`].
pub mod unreachable_code {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Communication administratively prohibited.
    pub const PROHIBITED: u8 = 1;
    /// The destination lies beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The last router does not reach the host.
    pub const ADDRESS: u8 = 3;
    /// Nobody listens on the port.
    pub const PORT: u8 = 4;
    /// The source address failed a policy.
    pub const SOURCE_POLICY: u8 = 5;
    /// The route says reject.
    pub const REJECT_ROUTE: u8 = 6;
}

/// Codes of [`Icmpv6Type::TIME_EXCEEDED`].
pub mod time_exceeded_code {
    /// The hop limit ran out in transit.
    pub const HOP_LIMIT: u8 = 0;
    /// Fragments were missing for too long.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of [`Icmpv6Type::PARAMETER_PROBLEM`].
pub mod parameter_problem_code {
    /// A header field is wrong.
    pub const HEADER_FIELD: u8 = 0;
    /// A next header is not known.
    pub const NEXT_HEADER: u8 = 1;
    /// An option is not known.
    pub const OPTION: u8 = 2;
}

/// The group where the neighbour with `address` listens (RFC 4291, section 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, (b as u16) << 8 | c as u16)
}

view! {
    /// A view of an ICMPv6 message: exactly the upper layer of its IPv6 packet, without link-layer padding,
    /// as ICMPv6 has no length field of its own.
    Icmpv6
}

impl<T: AsRef<[u8]>> Icmpv6<T> {
    /// The one length check: the fixed part of the message's type, 8 octets or, in neighbour discovery, up to
    /// 40.
    ///
    /// # Errors
    /// [`WireError::TruncatedIcmpv6`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        let len = self.bytes().len();
        if len < HEADER_LEN || len < self.icmp_type().fixed_len() {
            return Err(WireError::TruncatedIcmpv6);
        }
        Ok(())
    }

    /// Type.
    #[inline]
    pub fn icmp_type(&self) -> Icmpv6Type {
        Icmpv6Type(self.bytes()[field::TYPE])
    }

    /// Code, whose meaning depends on the type.
    #[inline]
    pub fn code(&self) -> u8 {
        self.bytes()[field::CODE]
    }

    /// Checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        read_u16(self.bytes(), field::CHECKSUM)
    }

    /// The 4 octets behind the checksum.
    #[inline]
    pub fn rest_of_header(&self) -> [u8; 4] {
        read(self.bytes(), field::REST)
    }

    /// Whether the checksum is right. It covers the addresses of the IPv6 header too.
    #[inline]
    pub fn is_checksum_valid(&self, source: Ipv6Addr, destination: Ipv6Addr) -> bool {
        self.sum(source, destination) == 0xffff
    }

    fn sum(&self, source: Ipv6Addr, destination: Ipv6Addr) -> u16 {
        let bytes = self.bytes();
        let pseudo = checksum::pseudo_v6(source, destination, IpProtocol::ICMPV6.0, bytes.len() as u32);
        checksum::combine(pseudo, checksum::sum(bytes))
    }

    /// What follows the fixed part of the message's type: echo data, the packet that an error quotes, or
    /// options.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        cut(self.bytes(), self.icmp_type().fixed_len(), usize::MAX)
    }

    /// The options of a neighbour discovery message, one by one; none for other types.
    #[inline]
    pub fn nd_options(&self) -> NdOptionIter<'_> {
        let octets = if self.icmp_type().is_neighbour_discovery() { self.payload() } else { &[] };
        NdOptionIter::new(octets)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv6<T> {
    /// Sets the type.
    #[inline]
    pub fn set_icmp_type(&mut self, icmp_type: Icmpv6Type) {
        self.buffer.as_mut()[field::TYPE] = icmp_type.0;
    }

    /// Sets the code.
    #[inline]
    pub fn set_code(&mut self, code: u8) {
        self.buffer.as_mut()[field::CODE] = code;
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, check: u16) {
        self.buffer.as_mut()[field::CHECKSUM].copy_from_slice(&check.to_be_bytes());
    }

    /// Sets the 4 octets behind the checksum.
    #[inline]
    pub fn set_rest_of_header(&mut self, rest: [u8; 4]) {
        self.buffer.as_mut()[field::REST].copy_from_slice(&rest);
    }

    /// Computes the checksum over the whole message and the addresses and sets it.
    #[inline]
    pub fn fill_checksum(&mut self, source: Ipv6Addr, destination: Ipv6Addr) {
        self.set_checksum(0);
        let check = checksum::finish(self.sum(source, destination));
        self.set_checksum(check);
    }

    /// What follows the fixed part of the message's type.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let start = self.icmp_type().fixed_len();
        cut_mut(self.buffer.as_mut(), start, usize::MAX)
    }
}

/// What an ICMPv6 message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Icmpv6Message {
    /// The quoted packet could not be delivered.
    DestinationUnreachable {
        /// One of [`unreachable_code`].
        code: u8,
    },
    /// The quoted packet is larger than the next link's MTU. Its code is 0 and ignored.
    PacketTooBig {
        /// The MTU of the next link, in octets.
        mtu: u32,
    },
    /// Hop limit or reassembly time of the quoted packet ran out.
    TimeExceeded {
        /// One of [`time_exceeded_code`].
        code: u8,
    },
    /// A header field of the quoted packet is wrong.
    ParameterProblem {
        /// One of [`parameter_problem_code`].
        code: u8,
        /// Which octet of the packet, from 0.
        pointer: u32,
    },
    /// Are you there? Its code is 0 and ignored.
    EchoRequest {
        /// Tells the senders of one host apart.
        identifier: u16,
        /// Counts the requests of one sender.
        sequence: u16,
    },
    /// Answer to an echo request, with the same numbers and data. Its code is 0 and ignored.
    EchoReply {
        /// That of the request.
        identifier: u16,
        /// That of the request.
        sequence: u16,
    },
    /// Routers, announce yourselves.
    RouterSolicitation,
    /// A router announces itself.
    RouterAdvertisement {
        /// Hop limit that hosts should use; 0 says nothing.
        hop_limit: u8,
        /// Addresses come from DHCPv6.
        managed: bool,
        /// Other configuration comes from DHCPv6.
        other_configuration: bool,
        /// For how long this is a default router, in seconds; 0 means it is none.
        router_lifetime_s: u16,
        /// How long a neighbour counts as reachable, in milliseconds; 0 says nothing.
        reachable_time_ms: u32,
        /// Time between solicitations, in milliseconds; 0 says nothing.
        retransmit_timer_ms: u32,
    },
    /// Who has this address?
    NeighbourSolicitation {
        /// The address; not a multicast address.
        target: Ipv6Addr,
    },
    /// I have this address.
    NeighbourAdvertisement {
        /// The sender is a router.
        router: bool,
        /// This answers a solicitation.
        solicited: bool,
        /// Replace the address that is in the neighbour cache.
        override_cache: bool,
        /// The address; not a multicast address.
        target: Ipv6Addr,
    },
    /// There is a better first hop.
    Redirect {
        /// The better first hop.
        target: Ipv6Addr,
        /// For packets to this address.
        destination: Ipv6Addr,
    },
    /// Any other message.
    Other {
        /// Type; not one of those above.
        icmp_type: Icmpv6Type,
        /// Code.
        code: u8,
        /// The 4 octets behind the checksum.
        rest: [u8; 4],
    },
}

/// The meaning of an ICMPv6 message and what follows its fixed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Icmpv6Repr<'a> {
    /// What it says.
    pub message: Icmpv6Message,
    /// Echo data, the packet that an error quotes, or the options of neighbour discovery ([`NdOptionIter`]
    /// reads them).
    pub data: &'a [u8],
}

const MANAGED: u8 = 0x80;
const OTHER_CONFIGURATION: u8 = 0x40;
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

impl<'a> Icmpv6Repr<'a> {
    /// Octets that [`emit`](Self::emit) writes.
    #[inline]
    pub const fn message_len(&self) -> usize {
        self.icmp_type().fixed_len() + self.data.len()
    }

    /// The type of the message.
    pub const fn icmp_type(&self) -> Icmpv6Type {
        use Icmpv6Message as Message;
        match self.message {
            Message::DestinationUnreachable { .. } => Icmpv6Type::DESTINATION_UNREACHABLE,
            Message::PacketTooBig { .. } => Icmpv6Type::PACKET_TOO_BIG,
            Message::TimeExceeded { .. } => Icmpv6Type::TIME_EXCEEDED,
            Message::ParameterProblem { .. } => Icmpv6Type::PARAMETER_PROBLEM,
            Message::EchoRequest { .. } => Icmpv6Type::ECHO_REQUEST,
            Message::EchoReply { .. } => Icmpv6Type::ECHO_REPLY,
            Message::RouterSolicitation => Icmpv6Type::ROUTER_SOLICITATION,
            Message::RouterAdvertisement { .. } => Icmpv6Type::ROUTER_ADVERTISEMENT,
            Message::NeighbourSolicitation { .. } => Icmpv6Type::NEIGHBOUR_SOLICITATION,
            Message::NeighbourAdvertisement { .. } => Icmpv6Type::NEIGHBOUR_ADVERTISEMENT,
            Message::Redirect { .. } => Icmpv6Type::REDIRECT,
            Message::Other { icmp_type, .. } => icmp_type,
        }
    }

    /// Reads the message, which went from `source` to `destination`, and checks its checksum; for neighbour
    /// discovery also code, target and the length of each option (RFC 4861, sections 6.1, 7.1 and 8.1).
    ///
    /// # Errors
    /// [`WireError::TruncatedIcmpv6`], [`WireError::Icmpv6Checksum`], [`WireError::NdCode`],
    /// [`WireError::NdTarget`], [`WireError::NdOptionLength`], [`WireError::NdOptionBeyondPacket`].
    pub fn parse<T: AsRef<[u8]>>(
        view: &'a Icmpv6<T>,
        source: Ipv6Addr,
        destination: Ipv6Addr,
    ) -> Result<Self, WireError> {
        use Icmpv6Message as Message;
        // A setter may have changed the type, and with it the length of the fixed part.
        view.check_len()?;
        if !view.is_checksum_valid(source, destination) {
            return Err(WireError::Icmpv6Checksum);
        }
        let (bytes, code, rest) = (view.bytes(), view.code(), view.rest_of_header());
        if view.icmp_type().is_neighbour_discovery() {
            // "ICMP Code is 0" and "All included options have a length that is greater than zero."
            if code != 0 {
                return Err(WireError::NdCode);
            }
            for option in view.nd_options() {
                option?;
            }
        }
        let target = || match Ipv6Addr::from(read::<16>(bytes, field::TARGET)) {
            // "Target Address is not a multicast address."
            address if address.is_multicast() => Err(WireError::NdTarget),
            address => Ok(address),
        };
        let identifier = u16::from_be_bytes([rest[0], rest[1]]);
        let low = u16::from_be_bytes([rest[2], rest[3]]);
        let message = match view.icmp_type() {
            Icmpv6Type::DESTINATION_UNREACHABLE => Message::DestinationUnreachable { code },
            Icmpv6Type::PACKET_TOO_BIG => Message::PacketTooBig { mtu: u32::from_be_bytes(rest) },
            Icmpv6Type::TIME_EXCEEDED => Message::TimeExceeded { code },
            Icmpv6Type::PARAMETER_PROBLEM => {
                Message::ParameterProblem { code, pointer: u32::from_be_bytes(rest) }
            }
            Icmpv6Type::ECHO_REQUEST => Message::EchoRequest { identifier, sequence: low },
            Icmpv6Type::ECHO_REPLY => Message::EchoReply { identifier, sequence: low },
            Icmpv6Type::ROUTER_SOLICITATION => Message::RouterSolicitation,
            Icmpv6Type::ROUTER_ADVERTISEMENT => Message::RouterAdvertisement {
                hop_limit: rest[0],
                managed: rest[1] & MANAGED != 0,
                other_configuration: rest[1] & OTHER_CONFIGURATION != 0,
                router_lifetime_s: low,
                reachable_time_ms: read_u32(bytes, field::REACHABLE_TIME),
                retransmit_timer_ms: read_u32(bytes, field::RETRANSMIT_TIMER),
            },
            Icmpv6Type::NEIGHBOUR_SOLICITATION => Message::NeighbourSolicitation { target: target()? },
            Icmpv6Type::NEIGHBOUR_ADVERTISEMENT => Message::NeighbourAdvertisement {
                router: rest[0] & ROUTER != 0,
                solicited: rest[0] & SOLICITED != 0,
                override_cache: rest[0] & OVERRIDE != 0,
                target: target()?,
            },
            Icmpv6Type::REDIRECT => Message::Redirect {
                target: target()?,
                destination: Ipv6Addr::from(read::<16>(bytes, field::REDIRECT_DESTINATION)),
            },
            icmp_type => Message::Other { icmp_type, code, rest },
        };
        Ok(Self { message, data: view.payload() })
    }

    /// Writes the whole message from `source` to `destination`, data and checksum included: the first
    /// [`message_len`](Self::message_len) octets.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] where it does not fit.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        view: &mut Icmpv6<T>,
        source: Ipv6Addr,
        destination: Ipv6Addr,
    ) -> Result<(), WireError> {
        use Icmpv6Message as Message;
        let octets = view.buffer.as_mut().get_mut(..self.message_len()).ok_or(WireError::BufferTooSmall)?;
        let halves = |high: u16, low: u16| (u32::from(high) << 16 | u32::from(low)).to_be_bytes();
        let (code, rest) = match self.message {
            Message::DestinationUnreachable { code } | Message::TimeExceeded { code } => (code, [0; 4]),
            Message::PacketTooBig { mtu } => (0, mtu.to_be_bytes()),
            Message::ParameterProblem { code, pointer } => (code, pointer.to_be_bytes()),
            Message::EchoRequest { identifier, sequence } | Message::EchoReply { identifier, sequence } => {
                (0, halves(identifier, sequence))
            }
            Message::RouterSolicitation => (0, [0; 4]),
            Message::RouterAdvertisement {
                hop_limit,
                managed,
                other_configuration,
                router_lifetime_s,
                reachable_time_ms,
                retransmit_timer_ms,
            } => {
                octets[field::REACHABLE_TIME].copy_from_slice(&reachable_time_ms.to_be_bytes());
                octets[field::RETRANSMIT_TIMER].copy_from_slice(&retransmit_timer_ms.to_be_bytes());
                let flags = flag(managed, MANAGED) | flag(other_configuration, OTHER_CONFIGURATION);
                (0, halves(u16::from_be_bytes([hop_limit, flags]), router_lifetime_s))
            }
            Message::NeighbourSolicitation { target } => {
                octets[field::TARGET].copy_from_slice(&target.octets());
                (0, [0; 4])
            }
            Message::NeighbourAdvertisement { router, solicited, override_cache, target } => {
                octets[field::TARGET].copy_from_slice(&target.octets());
                let flags =
                    flag(router, ROUTER) | flag(solicited, SOLICITED) | flag(override_cache, OVERRIDE);
                (0, [flags, 0, 0, 0])
            }
            Message::Redirect { target, destination } => {
                octets[field::TARGET].copy_from_slice(&target.octets());
                octets[field::REDIRECT_DESTINATION].copy_from_slice(&destination.octets());
                (0, [0; 4])
            }
            Message::Other { code, rest, .. } => (code, rest),
        };
        // The checksum covers these octets and no more.
        let mut view = Icmpv6::new_unchecked(octets);
        view.set_icmp_type(self.icmp_type());
        view.set_code(code);
        view.set_rest_of_header(rest);
        view.payload_mut().copy_from_slice(self.data);
        view.fill_checksum(source, destination);
        Ok(())
    }
}

/// `bit` where `is_set`.
const fn flag(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ethernet::MacAddr;
    use crate::wire::golden;
    use crate::wire::ipv6::Ipv6;
    use crate::wire::nd_option::NdOption;
    use proptest::prelude::*;

    const ALICE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const BOB: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    /// Parses a frame's message, checks that emitting it gives the same bytes, and hands it to `test`.
    fn with_message(hex: &str, test: impl FnOnce(Icmpv6Repr<'_>)) {
        let packet = Ipv6::new_checked(golden::payload(hex)).unwrap();
        let offset = packet.upper_layer().unwrap().offset;
        let view = Icmpv6::new_checked(&packet.bytes()[offset..]).unwrap();
        let repr = Icmpv6Repr::parse(&view, packet.source(), packet.destination()).unwrap();
        let mut copy = Icmpv6::new_unchecked(vec![0xff; repr.message_len()]);
        repr.emit(&mut copy, packet.source(), packet.destination()).unwrap();
        assert_eq!(copy.bytes(), view.bytes());
        test(repr);
    }

    #[test]
    fn golden_echo_and_error() {
        with_message(golden::PING6, |repr| {
            let message = Icmpv6Message::EchoRequest { identifier: 0x1234, sequence: 1 };
            assert_eq!(repr, Icmpv6Repr { message, data: b"brickway" });
            assert!(!repr.icmp_type().is_error());
        });
        with_message(golden::PORT_UNREACHABLE6, |repr| {
            let code = unreachable_code::PORT;
            assert_eq!(repr.message, Icmpv6Message::DestinationUnreachable { code });
            assert_eq!(repr.data, golden::payload(golden::UDP6));
            assert!(repr.icmp_type().is_error());
        });
        with_message(golden::LISTENER_REPORT, |repr| {
            assert_eq!(repr.icmp_type(), Icmpv6Type::LISTENER_REPORT_V2);
        });
    }

    #[test]
    fn golden_neighbour_discovery() {
        let options = |repr: Icmpv6Repr<'_>| -> Vec<_> {
            NdOptionIter::new(repr.data).map(|option| format!("{:?}", option.unwrap())).collect()
        };
        let alice = MacAddr([2, 0, 0, 0, 0, 10]);
        let bob = MacAddr([2, 0, 0, 0, 0, 11]);
        with_message(golden::NEIGHBOUR_SOLICITATION, |repr| {
            assert_eq!(repr.message, Icmpv6Message::NeighbourSolicitation { target: BOB });
            assert_eq!(options(repr), [format!("{:?}", NdOption::SourceLinkLayerAddress(alice))]);
        });
        with_message(golden::NEIGHBOUR_ADVERTISEMENT, |repr| {
            let message = Icmpv6Message::NeighbourAdvertisement {
                router: false,
                solicited: true,
                override_cache: true,
                target: BOB,
            };
            assert_eq!(repr.message, message);
            assert_eq!(options(repr), [format!("{:?}", NdOption::TargetLinkLayerAddress(bob))]);
        });
        with_message(golden::ROUTER_SOLICITATION, |repr| {
            assert_eq!(repr.message, Icmpv6Message::RouterSolicitation);
            assert_eq!(options(repr), [format!("{:?}", NdOption::SourceLinkLayerAddress(alice))]);
        });
        assert_eq!(solicited_node(BOB), "ff02::1:ff00:2".parse::<Ipv6Addr>().unwrap());
    }

    #[test]
    fn reasons() {
        let bytes = golden::payload(golden::NEIGHBOUR_SOLICITATION).split_off(40);
        let group = solicited_node(BOB);
        assert_eq!(Icmpv6::new_checked(&bytes[..7]).unwrap_err(), WireError::TruncatedIcmpv6);
        assert_eq!(Icmpv6::new_checked(&bytes[..23]).unwrap_err(), WireError::TruncatedIcmpv6);
        let view = Icmpv6::new_checked(&bytes).unwrap();
        assert!(Icmpv6Repr::parse(&view, ALICE, group).is_ok());
        assert_eq!(Icmpv6Repr::parse(&view, ALICE, BOB), Err(WireError::Icmpv6Checksum));
        for (at, value, reason) in [
            (1, 1, WireError::NdCode),
            (8, 0xff, WireError::NdTarget),
            (25, 0, WireError::NdOptionLength),
            (25, 2, WireError::NdOptionBeyondPacket),
        ] {
            let mut bad = bytes.clone();
            bad[at] = value;
            let mut view = Icmpv6::new_checked(&mut bad).unwrap();
            view.fill_checksum(ALICE, group);
            assert_eq!(Icmpv6Repr::parse(&view, ALICE, group), Err(reason));
        }
    }

    fn any_message() -> impl Strategy<Value = Icmpv6Message> {
        use Icmpv6Message as Message;
        let unicast = || {
            any::<[u8; 15]>().prop_map(|low| {
                let mut octets = [0x20; 16];
                octets[1..].copy_from_slice(&low);
                Ipv6Addr::from(octets)
            })
        };
        prop_oneof![
            any::<u8>().prop_map(|code| Message::DestinationUnreachable { code }),
            any::<u32>().prop_map(|mtu| Message::PacketTooBig { mtu }),
            any::<u8>().prop_map(|code| Message::TimeExceeded { code }),
            any::<(u8, u32)>().prop_map(|(code, pointer)| Message::ParameterProblem { code, pointer }),
            any::<(u16, u16)>()
                .prop_map(|(identifier, sequence)| Message::EchoRequest { identifier, sequence }),
            any::<(u16, u16)>()
                .prop_map(|(identifier, sequence)| Message::EchoReply { identifier, sequence }),
            Just(Message::RouterSolicitation),
            any::<(u8, bool, bool, u16, u32, u32)>().prop_map(
                |(hop_limit, managed, other_configuration, lifetime, reachable, retransmit)| {
                    Message::RouterAdvertisement {
                        hop_limit,
                        managed,
                        other_configuration,
                        router_lifetime_s: lifetime,
                        reachable_time_ms: reachable,
                        retransmit_timer_ms: retransmit,
                    }
                }
            ),
            unicast().prop_map(|target| Message::NeighbourSolicitation { target }),
            (any::<(bool, bool, bool)>(), unicast()).prop_map(
                |((router, solicited, override_cache), target)| Message::NeighbourAdvertisement {
                    router,
                    solicited,
                    override_cache,
                    target
                }
            ),
            (unicast(), any::<[u8; 16]>()).prop_map(|(target, destination)| Message::Redirect {
                target,
                destination: destination.into()
            }),
            (138u8.., any::<u8>(), any::<[u8; 4]>()).prop_map(|(icmp_type, code, rest)| Message::Other {
                icmp_type: Icmpv6Type(icmp_type),
                code,
                rest
            }),
        ]
    }

    proptest! {
        #[test]
        fn messages_round_trip(
            message in any_message(),
            words in 0u8..5,
            addresses in any::<[[u8; 16]; 2]>(),
        ) {
            let (source, destination) = (addresses[0].into(), addresses[1].into());
            // Well-formed as options too: one of an unknown type.
            let mut data = vec![0x5a; usize::from(words) * 8];
            if let Some(len) = data.get_mut(1) {
                *len = words;
            }
            let repr = Icmpv6Repr { message, data: &data };
            let mut octets = vec![0xff; repr.message_len() + 1];
            repr.emit(&mut Icmpv6::new_unchecked(&mut octets), source, destination).unwrap();
            prop_assert_eq!(octets.pop(), Some(0xff));
            let view = Icmpv6::new_checked(&octets).unwrap();
            prop_assert_eq!(Icmpv6Repr::parse(&view, source, destination), Ok(repr));
            let mut short = Icmpv6::new_unchecked(vec![0; repr.message_len() - 1]);
            prop_assert_eq!(repr.emit(&mut short, source, destination), Err(WireError::BufferTooSmall));
        }

        #[test]
        fn any_bytes(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..80),
            icmp_type in prop_oneof![1u8..5, 128u8..144],
        ) {
            if let Ok(mut view) = Icmpv6::new_checked(&mut bytes) {
                view.set_icmp_type(Icmpv6Type(icmp_type));
                view.fill_checksum(ALICE, BOB);
                let _ = (Icmpv6Repr::parse(&view, ALICE, BOB), view.nd_options().count());
                view.set_code(0);
                view.fill_checksum(ALICE, BOB);
                let _ = Icmpv6Repr::parse(&view, ALICE, BOB);
                view.payload_mut().fill(0);
            }
        }
    }
}
