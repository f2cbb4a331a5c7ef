//! ICMP for IPv4 (RFC 792, RFC 1191, RFC 1812).

use std::net::Ipv4Addr;

use super::{WireError, cut, cut_mut, read, read_u16};
use crate::checksum;

/// Octets of an ICMP header: type, code, checksum and the 4 octets whose meaning depends on the type.
pub const HEADER_LEN: usize = 8;

mod field {
    use crate::wire::Field;
    pub(super) const TYPE: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: Field = 2..4;
    pub(super) const REST: Field = 4..8;
    pub(super) const IDENTIFIER: Field = 4..6;
    pub(super) const SEQUENCE: Field = 6..8;
}

/// The type of an ICMP message (IANA registry "ICMP Type Numbers").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IcmpType(pub u8);

impl IcmpType {
    /// Answer to an echo request.
    pub const ECHO_REPLY: Self = Self(0);
    /// The packet could not be delivered.
    pub const DESTINATION_UNREACHABLE: Self = Self(3);
    /// Send slower; deprecated (RFC 6633).
    pub const SOURCE_QUENCH: Self = Self(4);
    /// A better first hop.
    pub const REDIRECT: Self = Self(5);
    /// Are you there?
    pub const ECHO_REQUEST: Self = Self(8);
    /// A router announces itself (RFC 1256).
    pub const ROUTER_ADVERTISEMENT: Self = Self(9);
    /// Routers, announce yourselves (RFC 1256).
    pub const ROUTER_SOLICITATION: Self = Self(10);
    /// TTL or reassembly time ran out.
    pub const TIME_EXCEEDED: Self = Self(11);
    /// A header field is wrong.
    pub const PARAMETER_PROBLEM: Self = Self(12);
    /// What time is it?
    pub const TIMESTAMP_REQUEST: Self = Self(13);
    /// Answer to a timestamp request.
    pub const TIMESTAMP_REPLY: Self = Self(14);
    /// What is my network? Deprecated (RFC 6918).
    pub const INFORMATION_REQUEST: Self = Self(15);
    /// Answer to an information request; deprecated (RFC 6918).
    pub const INFORMATION_REPLY: Self = Self(16);
    /// What is my mask? Deprecated (RFC 6918).
    pub const MASK_REQUEST: Self = Self(17);
    /// Answer to a mask request; deprecated (RFC 6918).
    pub const MASK_REPLY: Self = Self(18);

    /// Whether this reports an error and quotes a packet. "An ICMP error message MUST NOT be sent as the
    /// result of receiving an ICMP error message" (RFC 1812, section 4.3.2.7).
    #[inline]
    pub const fn is_error(self) -> bool {
        matches!(
            self,
            Self::DESTINATION_UNREACHABLE
                | Self::SOURCE_QUENCH
                | Self::REDIRECT
                | Self::TIME_EXCEEDED
                | Self::PARAMETER_PROBLEM
        )
    }
}

/// Codes of [`IcmpType::DESTINATION_UNREACHABLE`] (RFC 792, RFC 1122, RFC 1812).
pub mod unreachable_code {
    /// No route to the network.
    pub const NET: u8 = 0;
    /// The last router does not reach the host.
    pub const HOST: u8 = 1;
    /// The host does not know the protocol.
    pub const PROTOCOL: u8 = 2;
    /// Nobody listens on the port.
    pub const PORT: u8 = 3;
    /// Too big to forward, and must not be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// The source route cannot be followed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Destination network unknown.
    pub const NET_UNKNOWN: u8 = 6;
    /// Destination host unknown.
    pub const HOST_UNKNOWN: u8 = 7;
    /// Source host isolated; obsolete.
    pub const SOURCE_ISOLATED: u8 = 8;
    /// Communication with the network administratively prohibited.
    pub const NET_PROHIBITED: u8 = 9;
    /// Communication with the host administratively prohibited.
    pub const HOST_PROHIBITED: u8 = 10;
    /// Network unreachable for this type of service.
    pub const NET_TOS: u8 = 11;
    /// Host unreachable for this type of service.
    pub const HOST_TOS: u8 = 12;
    /// Communication administratively prohibited by a filter.
    pub const PROHIBITED: u8 = 13;
    /// Host precedence violation.
    pub const HOST_PRECEDENCE: u8 = 14;
    /// Precedence cutoff in effect.
    pub const PRECEDENCE_CUTOFF: u8 = 15;
}

/// Codes of [`IcmpType::REDIRECT`].
pub mod redirect_code {
    /// For the network.
    pub const NET: u8 = 0;
    /// For the host.
    pub const HOST: u8 = 1;
    /// For type of service and network.
    pub const NET_TOS: u8 = 2;
    /// For type of service and host.
    pub const HOST_TOS: u8 = 3;
}

/// Codes of [`IcmpType::TIME_EXCEEDED`].
pub mod time_exceeded_code {
    /// The time to live ran out in transit.
    pub const TTL: u8 = 0;
    /// Fragments were missing for too long.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of [`IcmpType::PARAMETER_PROBLEM`].
pub mod parameter_problem_code {
    /// The pointer tells the octet.
    pub const POINTER: u8 = 0;
    /// A required option is missing (RFC 1108).
    pub const MISSING_OPTION: u8 = 1;
    /// Bad length.
    pub const BAD_LENGTH: u8 = 2;
}

view! {
    /// A view of an ICMP message: exactly the payload of its IP packet, without link-layer padding, as ICMP
    /// has no length field of its own.
    Icmp
}

impl<T: AsRef<[u8]>> Icmp<T> {
    /// The one length check: 8 octets.
    ///
    /// # Errors
    /// [`WireError::TruncatedIcmp`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        if self.bytes().len() < HEADER_LEN { Err(WireError::TruncatedIcmp) } else { Ok(()) }
    }

    /// Type.
    #[inline]
    pub fn icmp_type(&self) -> IcmpType {
        IcmpType(self.bytes()[field::TYPE])
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

    /// Identifier of an echo or timestamp message.
    #[inline]
    pub fn identifier(&self) -> u16 {
        read_u16(self.bytes(), field::IDENTIFIER)
    }

    /// Sequence number of an echo or timestamp message.
    #[inline]
    pub fn sequence(&self) -> u16 {
        read_u16(self.bytes(), field::SEQUENCE)
    }

    /// Whether the checksum is right.
    #[inline]
    pub fn is_checksum_valid(&self) -> bool {
        checksum::is_valid(self.bytes())
    }

    /// What follows the 8 octets: echo data, or the packet that an error quotes.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        cut(self.bytes(), HEADER_LEN, usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmp<T> {
    /// Sets the type.
    #[inline]
    pub fn set_icmp_type(&mut self, icmp_type: IcmpType) {
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

    /// Computes the checksum over the whole message and sets it.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let check = checksum::compute(self.bytes());
        self.set_checksum(check);
    }

    /// What follows the 8 octets.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        cut_mut(self.buffer.as_mut(), HEADER_LEN, usize::MAX)
    }
}

/// What an ICMP message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IcmpMessage {
    /// Are you there?
    EchoRequest {
        /// Tells the senders of one host apart.
        identifier: u16,
        /// Counts the requests of one sender.
        sequence: u16,
    },
    /// Answer to an echo request, with the same numbers and data.
    EchoReply {
        /// That of the request.
        identifier: u16,
        /// That of the request.
        sequence: u16,
    },
    /// The quoted packet could not be delivered.
    DestinationUnreachable {
        /// One of [`unreachable_code`].
        code: u8,
        /// The MTU of the next hop in octets, with code 4 (RFC 1191); otherwise 0.
        next_hop_mtu: u16,
    },
    /// There is a better first hop for the quoted packet.
    Redirect {
        /// One of [`redirect_code`].
        code: u8,
        /// The better router.
        gateway: Ipv4Addr,
    },
    /// TTL or reassembly time of the quoted packet ran out.
    TimeExceeded {
        /// One of [`time_exceeded_code`].
        code: u8,
    },
    /// A header field of the quoted packet is wrong.
    ParameterProblem {
        /// One of [`parameter_problem_code`].
        code: u8,
        /// Which octet of its header, from 0, with code 0.
        pointer: u8,
    },
    /// Any other message, and echo messages whose code is not 0.
    Other {
        /// Type; not one of those above, except for such echo messages.
        icmp_type: IcmpType,
        /// Code.
        code: u8,
        /// The 4 octets behind the checksum.
        rest: [u8; 4],
    },
}

/// The meaning of an ICMP message and what follows its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IcmpRepr<'a> {
    /// What it says.
    pub message: IcmpMessage,
    /// Echo data, or the packet that an error quotes.
    pub data: &'a [u8],
}

impl<'a> IcmpRepr<'a> {
    /// Octets that [`emit`](Self::emit) writes.
    #[inline]
    pub const fn message_len(&self) -> usize {
        HEADER_LEN + self.data.len()
    }

    /// Reads the message and checks its checksum. Unused fields are not looked at (RFC 792: "This field is
    /// ignored by the receiver").
    ///
    /// # Errors
    /// [`WireError::IcmpChecksum`].
    pub fn parse<T: AsRef<[u8]>>(view: &'a Icmp<T>) -> Result<Self, WireError> {
        if !view.is_checksum_valid() {
            return Err(WireError::IcmpChecksum);
        }
        let (code, rest) = (view.code(), view.rest_of_header());
        let (identifier, sequence) = (view.identifier(), view.sequence());
        let message = match view.icmp_type() {
            IcmpType::ECHO_REQUEST if code == 0 => IcmpMessage::EchoRequest { identifier, sequence },
            IcmpType::ECHO_REPLY if code == 0 => IcmpMessage::EchoReply { identifier, sequence },
            IcmpType::DESTINATION_UNREACHABLE => {
                let next_hop_mtu = if code == unreachable_code::FRAGMENTATION_NEEDED { sequence } else { 0 };
                IcmpMessage::DestinationUnreachable { code, next_hop_mtu }
            }
            IcmpType::REDIRECT => IcmpMessage::Redirect { code, gateway: Ipv4Addr::from(rest) },
            IcmpType::TIME_EXCEEDED => IcmpMessage::TimeExceeded { code },
            IcmpType::PARAMETER_PROBLEM => IcmpMessage::ParameterProblem { code, pointer: rest[0] },
            icmp_type => IcmpMessage::Other { icmp_type, code, rest },
        };
        Ok(Self { message, data: view.payload() })
    }

    /// Writes the whole message, data and checksum included: the first [`message_len`](Self::message_len)
    /// octets.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] where it does not fit.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, view: &mut Icmp<T>) -> Result<(), WireError> {
        let octets = view.buffer.as_mut().get_mut(..self.message_len()).ok_or(WireError::BufferTooSmall)?;
        // The checksum covers these and no more.
        let mut view = Icmp::new_unchecked(octets);
        let halves = |high: u16, low: u16| {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            [a, b, c, d]
        };
        let (icmp_type, code, rest) = match self.message {
            IcmpMessage::EchoRequest { identifier, sequence } => {
                (IcmpType::ECHO_REQUEST, 0, halves(identifier, sequence))
            }
            IcmpMessage::EchoReply { identifier, sequence } => {
                (IcmpType::ECHO_REPLY, 0, halves(identifier, sequence))
            }
            IcmpMessage::DestinationUnreachable { code, next_hop_mtu } => {
                (IcmpType::DESTINATION_UNREACHABLE, code, halves(0, next_hop_mtu))
            }
            IcmpMessage::Redirect { code, gateway } => (IcmpType::REDIRECT, code, gateway.octets()),
            IcmpMessage::TimeExceeded { code } => (IcmpType::TIME_EXCEEDED, code, [0; 4]),
            IcmpMessage::ParameterProblem { code, pointer } => {
                (IcmpType::PARAMETER_PROBLEM, code, [pointer, 0, 0, 0])
            }
            IcmpMessage::Other { icmp_type, code, rest } => (icmp_type, code, rest),
        };
        view.set_icmp_type(icmp_type);
        view.set_code(code);
        view.set_rest_of_header(rest);
        view.payload_mut().copy_from_slice(self.data);
        view.fill_checksum();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::golden;
    use crate::wire::ipv4::Ipv4;
    use proptest::prelude::*;

    fn message(hex: &str) -> Vec<u8> {
        Ipv4::new_checked(golden::payload(hex)).unwrap().payload().to_vec()
    }

    #[test]
    fn golden_echo() {
        let bytes = message(golden::PING);
        let view = Icmp::new_checked(&bytes).unwrap();
        let repr = IcmpRepr::parse(&view).unwrap();
        let request = IcmpMessage::EchoRequest { identifier: 0x1234, sequence: 1 };
        assert_eq!(repr, IcmpRepr { message: request, data: b"brickway" });
        assert!(!view.icmp_type().is_error());

        // What follows the message in the buffer stays as it is.
        let mut copy = vec![0xee; bytes.len() + 3];
        repr.emit(&mut Icmp::new_unchecked(&mut copy)).unwrap();
        assert_eq!(copy[..bytes.len()], bytes);
        assert_eq!(copy[bytes.len()..], [0xee; 3]);
    }

    #[test]
    fn golden_error_quotes_a_whole_packet() {
        let bytes = message(golden::PORT_UNREACHABLE);
        let view = Icmp::new_checked(&bytes).unwrap();
        let repr = IcmpRepr::parse(&view).unwrap();
        let expected = IcmpMessage::DestinationUnreachable { code: unreachable_code::PORT, next_hop_mtu: 0 };
        assert_eq!(repr.message, expected);
        assert!(view.icmp_type().is_error());
        // The quoting host had already recorded its route in the options, so only the payload is as it was
        // sent.
        let (quote, sent) = (Ipv4::new_checked(repr.data).unwrap(), golden::payload(golden::UDP));
        assert_eq!(quote.payload(), Ipv4::new_checked(&sent).unwrap().payload());
    }

    #[test]
    fn the_mtu_of_too_big() {
        let too_big = IcmpMessage::DestinationUnreachable {
            code: unreachable_code::FRAGMENTATION_NEEDED,
            next_hop_mtu: 1400,
        };
        let mut view = Icmp::new_unchecked([0xff; 8]);
        IcmpRepr { message: too_big, data: &[] }.emit(&mut view).unwrap();
        // Type 3, code 4, 2 unused octets, MTU (RFC 1191, section 4).
        assert_eq!(view.bytes()[..2], [3, 4]);
        assert_eq!(view.bytes()[4..], [0, 0, 0x05, 0x78]);
    }

    #[test]
    fn reasons() {
        let mut bytes = message(golden::PING);
        assert_eq!(Icmp::new_checked(&bytes[..7]).unwrap_err(), WireError::TruncatedIcmp);
        bytes[9] ^= 4;
        assert_eq!(IcmpRepr::parse(&Icmp::new_checked(&bytes).unwrap()), Err(WireError::IcmpChecksum));
    }

    fn any_message() -> impl Strategy<Value = IcmpMessage> {
        use IcmpMessage as Message;
        prop_oneof![
            any::<(u16, u16)>()
                .prop_map(|(identifier, sequence)| Message::EchoRequest { identifier, sequence }),
            any::<(u16, u16)>()
                .prop_map(|(identifier, sequence)| Message::EchoReply { identifier, sequence }),
            any::<(u8, u16)>().prop_map(|(code, mtu)| Message::DestinationUnreachable {
                code,
                next_hop_mtu: if code == unreachable_code::FRAGMENTATION_NEEDED { mtu } else { 0 },
            }),
            any::<u16>().prop_map(|next_hop_mtu| Message::DestinationUnreachable {
                code: unreachable_code::FRAGMENTATION_NEEDED,
                next_hop_mtu,
            }),
            any::<(u8, [u8; 4])>()
                .prop_map(|(code, gateway)| Message::Redirect { code, gateway: gateway.into() }),
            any::<u8>().prop_map(|code| Message::TimeExceeded { code }),
            any::<(u8, u8)>().prop_map(|(code, pointer)| Message::ParameterProblem { code, pointer }),
            (13u8.., any::<u8>(), any::<[u8; 4]>()).prop_map(|(icmp_type, code, rest)| Message::Other {
                icmp_type: IcmpType(icmp_type),
                code,
                rest
            }),
            (1u8.., any::<[u8; 4]>()).prop_map(|(code, rest)| Message::Other {
                icmp_type: IcmpType::ECHO_REQUEST,
                code,
                rest
            }),
        ]
    }

    proptest! {
        #[test]
        fn messages_round_trip(message in any_message(), data in proptest::collection::vec(any::<u8>(), 0..100)) {
            let repr = IcmpRepr { message, data: &data };
            let mut view = Icmp::new_unchecked(vec![0xff; repr.message_len()]);
            repr.emit(&mut view).unwrap();
            view.check_len().unwrap();
            prop_assert_eq!(IcmpRepr::parse(&view), Ok(repr));
            let mut short = Icmp::new_unchecked(vec![0; repr.message_len() - 1]);
            prop_assert_eq!(repr.emit(&mut short), Err(WireError::BufferTooSmall));
        }

        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..60), icmp_type in 0u8..20) {
            if let Ok(mut view) = Icmp::new_checked(&mut bytes) {
                view.set_icmp_type(IcmpType(icmp_type));
                let _ = IcmpRepr::parse(&view);
                view.fill_checksum();
                prop_assert!(IcmpRepr::parse(&view).is_ok());
                view.payload_mut().fill(0);
            }
        }
    }
}
