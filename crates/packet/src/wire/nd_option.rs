//! The options of neighbour discovery (RFC 4861, section 4.6).

use std::net::Ipv6Addr;

use super::ethernet::MacAddr;
use super::{WireError, read, read_u32};

/// Option types (IANA registry "IPv6 Neighbor Discovery Option Formats").
pub mod kind {
    /// Link-layer address of the sender.
    pub const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
    /// Link-layer address of the target.
    pub const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
    /// A prefix of the link.
    pub const PREFIX_INFORMATION: u8 = 3;
    /// The packet that a redirect is about.
    pub const REDIRECTED_HEADER: u8 = 4;
    /// MTU of the link.
    pub const MTU: u8 = 5;
}

/// A prefix of the link (RFC 4861, section 4.6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrefixInformation {
    /// The prefix; bits behind its length do not count.
    pub prefix: Ipv6Addr,
    /// Bits of the prefix, 0 to 128. The iterator keeps larger ones as they are; a host ignores such an
    /// option.
    pub prefix_len: u8,
    /// Addresses in it are on the link.
    pub on_link: bool,
    /// Hosts may form addresses in it.
    pub autonomous: bool,
    /// For how long it is on the link, in seconds; all ones means forever.
    pub valid_lifetime_s: u32,
    /// For how long addresses in it are preferred, in seconds; all ones means forever.
    pub preferred_lifetime_s: u32,
}

const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

/// An option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NdOption<'a> {
    /// Link-layer address of the sender.
    SourceLinkLayerAddress(MacAddr),
    /// Link-layer address of the target.
    TargetLinkLayerAddress(MacAddr),
    /// A prefix of the link.
    PrefixInformation(PrefixInformation),
    /// The packet that a redirect is about, padded or cut to a multiple of 8 octets.
    RedirectedHeader(&'a [u8]),
    /// MTU of the link, in octets.
    Mtu(u32),
    /// An option that this library does not look into.
    Unknown {
        /// The option's type.
        kind: u8,
        /// The octets behind type and length: 6, 14, 22, ...
        data: &'a [u8],
    },
}

impl NdOption<'_> {
    /// Octets that [`emit`](Self::emit) writes: a multiple of 8.
    pub const fn octet_len(&self) -> usize {
        let len = match self {
            Self::SourceLinkLayerAddress(_) | Self::TargetLinkLayerAddress(_) | Self::Mtu(_) => 8,
            Self::PrefixInformation(_) => 32,
            Self::RedirectedHeader(packet) => 8 + packet.len(),
            Self::Unknown { data, .. } => 2 + data.len(),
        };
        len.next_multiple_of(8)
    }

    /// Writes the option to the start of `buffer`, padded with zeros, and gives the octets it took.
    ///
    /// # Errors
    /// [`WireError::NdOptionLength`] where it exceeds 2040 octets, [`WireError::BufferTooSmall`] where it
    /// does not fit.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let len = self.octet_len();
        let words = u8::try_from(len / 8).map_err(|_| WireError::NdOptionLength)?;
        let octets = buffer.get_mut(..len).ok_or(WireError::BufferTooSmall)?;
        octets.fill(0);
        octets[1] = words;
        octets[0] = match *self {
            Self::SourceLinkLayerAddress(address) => {
                octets[2..8].copy_from_slice(&address.0);
                kind::SOURCE_LINK_LAYER_ADDRESS
            }
            Self::TargetLinkLayerAddress(address) => {
                octets[2..8].copy_from_slice(&address.0);
                kind::TARGET_LINK_LAYER_ADDRESS
            }
            Self::PrefixInformation(information) => {
                octets[2] = information.prefix_len;
                octets[3] |= if information.on_link { ON_LINK } else { 0 };
                octets[3] |= if information.autonomous { AUTONOMOUS } else { 0 };
                octets[4..8].copy_from_slice(&information.valid_lifetime_s.to_be_bytes());
                octets[8..12].copy_from_slice(&information.preferred_lifetime_s.to_be_bytes());
                octets[16..32].copy_from_slice(&information.prefix.octets());
                kind::PREFIX_INFORMATION
            }
            Self::RedirectedHeader(packet) => {
                octets[8..8 + packet.len()].copy_from_slice(packet);
                kind::REDIRECTED_HEADER
            }
            Self::Mtu(mtu) => {
                octets[4..8].copy_from_slice(&mtu.to_be_bytes());
                kind::MTU
            }
            Self::Unknown { kind, data } => {
                octets[2..2 + data.len()].copy_from_slice(data);
                kind
            }
        };
        Ok(len)
    }
}

/// The options of a neighbour discovery message, one by one.
///
/// [`WireError::NdOptionLength`] (zero, or not that of the option's type) or
/// [`WireError::NdOptionBeyondPacket`] ends it.
#[derive(Debug, Clone)]
pub struct NdOptionIter<'a> {
    rest: &'a [u8],
}

impl<'a> NdOptionIter<'a> {
    /// Walks the octets behind the fixed part of a message.
    #[inline]
    pub const fn new(octets: &'a [u8]) -> Self {
        Self { rest: octets }
    }

    fn parse(octets: &'a [u8]) -> Result<NdOption<'a>, WireError> {
        let option = match (octets[0], octets.len()) {
            (kind::SOURCE_LINK_LAYER_ADDRESS, 8) => {
                NdOption::SourceLinkLayerAddress(MacAddr(read(octets, 2..8)))
            }
            (kind::TARGET_LINK_LAYER_ADDRESS, 8) => {
                NdOption::TargetLinkLayerAddress(MacAddr(read(octets, 2..8)))
            }
            (kind::PREFIX_INFORMATION, 32) => NdOption::PrefixInformation(PrefixInformation {
                prefix: Ipv6Addr::from(read::<16>(octets, 16..32)),
                prefix_len: octets[2],
                on_link: octets[3] & ON_LINK != 0,
                autonomous: octets[3] & AUTONOMOUS != 0,
                valid_lifetime_s: read_u32(octets, 4..8),
                preferred_lifetime_s: read_u32(octets, 8..12),
            }),
            (kind::REDIRECTED_HEADER, _) => NdOption::RedirectedHeader(&octets[8..]),
            (kind::MTU, 8) => NdOption::Mtu(read_u32(octets, 4..8)),
            (
                kind::SOURCE_LINK_LAYER_ADDRESS
                | kind::TARGET_LINK_LAYER_ADDRESS
                | kind::PREFIX_INFORMATION
                | kind::MTU,
                _,
            ) => return Err(WireError::NdOptionLength),
            (kind, _) => NdOption::Unknown { kind, data: &octets[2..] },
        };
        Ok(option)
    }
}

impl<'a> Iterator for NdOptionIter<'a> {
    type Item = Result<NdOption<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest);
        let (octets, behind) = match *rest {
            [] => return None,
            [_] => return Some(Err(WireError::NdOptionBeyondPacket)),
            // "Nodes MUST silently discard an ND packet that contains an option with length zero."
            [_, 0, ..] => return Some(Err(WireError::NdOptionLength)),
            [_, words, ..] => match rest.split_at_checked(usize::from(words) * 8) {
                Some(parts) => parts,
                None => return Some(Err(WireError::NdOptionBeyondPacket)),
            },
        };
        let option = Self::parse(octets);
        if option.is_ok() {
            self.rest = behind;
        }
        Some(option)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn malformed_options_have_reasons() {
        for (octets, reason) in [
            (&[1][..], WireError::NdOptionBeyondPacket),
            (&[1, 0, 0, 0, 0, 0, 0, 0], WireError::NdOptionLength),
            (&[1, 1, 0, 0, 0, 0, 0], WireError::NdOptionBeyondPacket),
            (&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], WireError::NdOptionLength),
            (&[3, 1, 0, 0, 0, 0, 0, 0], WireError::NdOptionLength),
        ] {
            let mut options = NdOptionIter::new(octets);
            assert_eq!(options.next(), Some(Err(reason)), "{octets:?}");
            assert_eq!(options.next(), None);
        }
    }

    #[test]
    fn mtu_as_on_the_wire() {
        let mut octets = [0xff; 9];
        assert_eq!(NdOption::Mtu(1500).emit(&mut octets), Ok(8));
        assert_eq!(octets, [5, 1, 0, 0, 0, 0, 0x05, 0xdc, 0xff]);
        assert_eq!(NdOption::Mtu(1500).emit(&mut octets[..7]), Err(WireError::BufferTooSmall));
        let long = NdOption::Unknown { kind: 99, data: &[0; 2039] };
        assert_eq!(long.emit(&mut [0; 3000]), Err(WireError::NdOptionLength));
    }

    proptest! {
        #[test]
        fn options_round_trip(
            mac in any::<[u8; 6]>(),
            (prefix, prefix_len, on_link, autonomous) in any::<([u8; 16], u8, bool, bool)>(),
            (valid_lifetime_s, preferred_lifetime_s, mtu) in any::<(u32, u32, u32)>(),
            words in 0usize..5,
            kind in 6u8..,
        ) {
            let data = [0x5a; 40];
            let prefix = PrefixInformation {
                prefix: prefix.into(), prefix_len, on_link, autonomous, valid_lifetime_s, preferred_lifetime_s,
            };
            let options = [
                NdOption::SourceLinkLayerAddress(MacAddr(mac)),
                NdOption::TargetLinkLayerAddress(MacAddr(mac)),
                NdOption::PrefixInformation(prefix),
                NdOption::RedirectedHeader(&data[..words * 8]),
                NdOption::Mtu(mtu),
                NdOption::Unknown { kind, data: &data[..words * 8 + 6] },
            ];
            let mut octets = [0xff; 256];
            let mut len = 0;
            for option in options {
                len += option.emit(&mut octets[len..]).unwrap();
            }
            let parsed: Result<Vec<_>, _> = NdOptionIter::new(&octets[..len]).collect();
            prop_assert_eq!(parsed, Ok(options.to_vec()));
        }

        #[test]
        fn any_options(octets in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..6], 0..200)) {
            prop_assert!(NdOptionIter::new(&octets).count() <= octets.len() / 8 + 1);
        }
    }
}
