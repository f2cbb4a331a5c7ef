//! The extension headers of an IPv6 packet (RFC 8200, section 4; RFC 4302), and the options in two of them.

use super::ipv6::HEADER_LEN;
use super::{IpProtocol, WireError, cut, read_u16, read_u32};

/// How many extension headers [`Ipv6ExtensionIter`] walks. RFC 8200, section 4.1, knows seven places; more is
/// an attempt to keep us busy.
pub const MAX_EXTENSIONS: usize = 8;

/// An extension header and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Extension<'a> {
    /// Where it starts in the packet, in octets: 40 for the first.
    pub offset: usize,
    /// All its octets.
    pub octets: &'a [u8],
    /// What follows it.
    pub next_header: IpProtocol,
    /// What it says.
    pub body: Ipv6ExtensionBody<'a>,
}

/// What an extension header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipv6ExtensionBody<'a> {
    /// Options for every hop; [`Ipv6OptionIter`] reads them.
    HopByHop {
        /// The octets of the options.
        options: &'a [u8],
    },
    /// Addresses to visit.
    Routing {
        /// Routing type (RFC 8200, section 4.4).
        routing_type: u8,
        /// How many addresses are still to be visited.
        segments_left: u8,
        /// The octets behind these, whose form depends on the type.
        data: &'a [u8],
    },
    /// This packet is a fragment.
    Fragment(Ipv6Fragment),
    /// Options for the destination; [`Ipv6OptionIter`] reads them.
    DestinationOptions {
        /// The octets of the options.
        options: &'a [u8],
    },
    /// IPsec authentication (RFC 4302).
    Authentication {
        /// Security parameters index.
        spi: u32,
        /// Sequence number.
        sequence: u32,
        /// Integrity check value.
        icv: &'a [u8],
    },
}

/// The meaning of a fragment header (RFC 8200, section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipv6Fragment {
    /// Where the fragment starts in the fragmentable part, in octets: a multiple of 8.
    pub offset: u16,
    /// Whether a later fragment exists.
    pub more_fragments: bool,
    /// Identification, which the fragments of a packet share.
    pub identification: u32,
}

/// Where the extension headers end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpperLayer {
    /// The protocol there. ESP and "no next header" count as upper layers.
    pub protocol: IpProtocol,
    /// Where it starts in the packet, in octets.
    pub offset: usize,
    /// The fragment header, if there was one. Where its offset is not zero, `offset` points to the middle of
    /// the fragmented data and `protocol` is what *its* first header was.
    pub fragment: Option<Ipv6Fragment>,
}

/// The extension headers of a packet, one by one, up to the upper layer.
///
/// It ends early behind the header of a fragment that is not the first: what follows is not a header. A
/// malformed header gives an error and ends it: [`WireError::Ipv6ExtensionBeyondPacket`],
/// [`WireError::Ipv6HopByHopNotFirst`], [`WireError::Ipv6AuthenticationLength`],
/// [`WireError::TooManyIpv6Extensions`].
#[derive(Debug, Clone)]
pub struct Ipv6ExtensionIter<'a> {
    payload: &'a [u8],
    /// Where the next header starts in `payload`.
    at: usize,
    next_header: IpProtocol,
    seen: usize,
    fragment: Option<Ipv6Fragment>,
    done: bool,
}

impl<'a> Ipv6ExtensionIter<'a> {
    /// Walks the payload of a packet whose header says that `next_header` comes first.
    #[inline]
    pub const fn new(next_header: IpProtocol, payload: &'a [u8]) -> Self {
        Self { payload, at: 0, next_header, seen: 0, fragment: None, done: false }
    }

    /// Walks what is left and tells where the upper layer starts.
    ///
    /// # Errors
    /// The first error of the walk.
    #[inline]
    pub fn upper_layer(mut self) -> Result<UpperLayer, WireError> {
        for extension in self.by_ref() {
            extension?;
        }
        Ok(UpperLayer { protocol: self.next_header, offset: HEADER_LEN + self.at, fragment: self.fragment })
    }

    fn parse(&self) -> Result<Ipv6Extension<'a>, WireError> {
        if self.seen == MAX_EXTENSIONS {
            return Err(WireError::TooManyIpv6Extensions);
        }
        // "The Hop-by-Hop Options header [...] is restricted to appear immediately after an IPv6 header only"
        // (RFC 8200, section 4.1).
        if self.next_header == IpProtocol::HOP_BY_HOP && self.seen > 0 {
            return Err(WireError::Ipv6HopByHopNotFirst);
        }
        let rest = cut(self.payload, self.at, usize::MAX);
        let [next_header, len_octet, ..] = *rest else {
            return Err(WireError::Ipv6ExtensionBeyondPacket);
        };
        let len = match self.next_header {
            IpProtocol::FRAGMENT => 8,
            // In words of 4 octets, minus 2 (RFC 4302, section 2.2); the fixed part is 12.
            IpProtocol::AH if len_octet < 1 => return Err(WireError::Ipv6AuthenticationLength),
            IpProtocol::AH => (usize::from(len_octet) + 2) * 4,
            // In words of 8 octets, not counting the first.
            _ => (usize::from(len_octet) + 1) * 8,
        };
        let octets = rest.get(..len).ok_or(WireError::Ipv6ExtensionBeyondPacket)?;
        let body = match self.next_header {
            IpProtocol::HOP_BY_HOP => Ipv6ExtensionBody::HopByHop { options: &octets[2..] },
            IpProtocol::ROUTING => Ipv6ExtensionBody::Routing {
                routing_type: octets[2],
                segments_left: octets[3],
                data: &octets[4..],
            },
            IpProtocol::FRAGMENT => {
                let offset_flags = read_u16(octets, 2..4);
                Ipv6ExtensionBody::Fragment(Ipv6Fragment {
                    offset: offset_flags & !7,
                    more_fragments: offset_flags & 1 != 0,
                    identification: read_u32(octets, 4..8),
                })
            }
            IpProtocol::AH => Ipv6ExtensionBody::Authentication {
                spi: read_u32(octets, 4..8),
                sequence: read_u32(octets, 8..12),
                icv: &octets[12..],
            },
            _ => Ipv6ExtensionBody::DestinationOptions { options: &octets[2..] },
        };
        Ok(Ipv6Extension { offset: HEADER_LEN + self.at, octets, next_header: IpProtocol(next_header), body })
    }
}

impl<'a> Iterator for Ipv6ExtensionIter<'a> {
    type Item = Result<Ipv6Extension<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done || !self.next_header.is_ipv6_extension() {
            return None;
        }
        let item = self.parse();
        match item {
            Ok(extension) => {
                self.at += extension.octets.len();
                self.next_header = extension.next_header;
                self.seen += 1;
                if let Ipv6ExtensionBody::Fragment(fragment) = extension.body {
                    self.fragment = Some(fragment);
                    self.done = fragment.offset > 0;
                }
            }
            Err(_) => self.done = true,
        }
        Some(item)
    }
}

/// Option types (IANA registry "Destination Options and Hop-by-Hop Options").
pub mod option_kind {
    /// One octet of padding, without a length.
    pub const PAD1: u8 = 0;
    /// Padding of two octets or more.
    pub const PADN: u8 = 1;
    /// Router alert (RFC 2711).
    pub const ROUTER_ALERT: u8 = 5;
}

/// What to do with a packet whose option is not known (RFC 8200, section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnknownOptionAction {
    /// Skip the option.
    Skip,
    /// Discard the packet.
    Discard,
    /// Discard and send an ICMPv6 parameter problem, code 2.
    DiscardAndReport,
    /// The same unless the destination is a multicast address.
    DiscardAndReportUnlessMulticast,
}

/// An option of a hop-by-hop or destination options header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Option<'a> {
    /// Where the option starts within the options, in octets.
    pub offset: usize,
    /// The option's type.
    pub kind: u8,
    /// The octets behind type and length.
    pub data: &'a [u8],
}

impl Ipv6Option<'_> {
    /// What a node does that does not know this option: the two high bits of the type.
    #[inline]
    pub const fn unknown_action(&self) -> UnknownOptionAction {
        match self.kind >> 6 {
            0 => UnknownOptionAction::Skip,
            1 => UnknownOptionAction::Discard,
            2 => UnknownOptionAction::DiscardAndReport,
            _ => UnknownOptionAction::DiscardAndReportUnlessMulticast,
        }
    }
}

/// The options of a hop-by-hop or destination options header, one by one, padding included.
///
/// An option that does not fit gives [`WireError::Ipv6OptionBeyondHeader`] and ends it.
#[derive(Debug, Clone)]
pub struct Ipv6OptionIter<'a> {
    octets: &'a [u8],
    offset: usize,
}

impl<'a> Ipv6OptionIter<'a> {
    /// Walks the octets behind the header's next header and length octets.
    #[inline]
    pub const fn new(octets: &'a [u8]) -> Self {
        Self { octets, offset: 0 }
    }
}

impl<'a> Iterator for Ipv6OptionIter<'a> {
    type Item = Result<Ipv6Option<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        let rest = self.octets.get(offset..)?;
        let (kind, data, len) = match *rest {
            [] => return None,
            [option_kind::PAD1, ..] => (option_kind::PAD1, Some(&rest[..0]), 1),
            [kind, len, ..] => (kind, rest.get(2..2 + usize::from(len)), 2 + usize::from(len)),
            [kind] => (kind, None, 1),
        };
        let Some(data) = data else {
            self.offset = self.octets.len();
            return Some(Err(WireError::Ipv6OptionBeyondHeader));
        };
        self.offset += len;
        Some(Ok(Ipv6Option { offset, kind, data }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::golden;
    use crate::wire::ipv6::Ipv6;
    use proptest::prelude::*;

    #[test]
    fn golden_options() {
        let bytes = golden::payload(golden::LISTENER_REPORT);
        let packet = Ipv6::new_checked(&bytes).unwrap();
        let extension = packet.extensions().next().unwrap().unwrap();
        let Ipv6ExtensionBody::HopByHop { options } = extension.body else { panic!("{extension:?}") };
        let options: Vec<_> = Ipv6OptionIter::new(options).map(Result::unwrap).collect();
        assert_eq!(
            options,
            [
                Ipv6Option { offset: 0, kind: option_kind::ROUTER_ALERT, data: &[0, 0] },
                Ipv6Option { offset: 4, kind: option_kind::PADN, data: &[] },
            ]
        );
        assert_eq!(options[0].unknown_action(), UnknownOptionAction::Skip);
        let upper = UpperLayer { protocol: IpProtocol::ICMPV6, offset: 48, fragment: None };
        assert_eq!(packet.upper_layer(), Ok(upper));

        let bytes = golden::payload(golden::UDP6_OPTIONS);
        let packet = Ipv6::new_checked(&bytes).unwrap();
        let upper = UpperLayer { protocol: IpProtocol::UDP, offset: 48, fragment: None };
        assert_eq!(packet.upper_layer(), Ok(upper));
    }

    #[test]
    fn every_extension() {
        let mut payload = vec![43, 0, 1, 4, 0, 0, 0, 0];
        payload.extend([51, 0, 4, 1, 0, 0, 0, 0]);
        payload.extend([44, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 7]);
        payload.extend([60, 0, 0, 1, 0, 0, 0, 5]);
        payload.extend([6, 0, 0x42, 4, 1, 2, 3, 4]);
        let extensions = Ipv6ExtensionIter::new(IpProtocol::HOP_BY_HOP, &payload);
        let bodies: Vec<_> = extensions.clone().map(|extension| extension.unwrap().body).collect();
        let fragment = Ipv6Fragment { offset: 0, more_fragments: true, identification: 5 };
        assert_eq!(
            bodies,
            [
                Ipv6ExtensionBody::HopByHop { options: &[1, 4, 0, 0, 0, 0] },
                Ipv6ExtensionBody::Routing { routing_type: 4, segments_left: 1, data: &[0; 4] },
                Ipv6ExtensionBody::Authentication { spi: 9, sequence: 7, icv: &[] },
                Ipv6ExtensionBody::Fragment(fragment),
                Ipv6ExtensionBody::DestinationOptions { options: &[0x42, 4, 1, 2, 3, 4] },
            ]
        );
        let upper = UpperLayer { protocol: IpProtocol::TCP, offset: 84, fragment: Some(fragment) };
        assert_eq!(extensions.upper_layer(), Ok(upper));
    }

    #[test]
    fn later_fragments_hold_no_headers() {
        // The octets behind look like more headers, but are data.
        let payload = [60, 0, 0, 8, 0, 0, 0, 5, 60, 255, 0, 0];
        let upper = Ipv6ExtensionIter::new(IpProtocol::FRAGMENT, &payload).upper_layer().unwrap();
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::DESTINATION_OPTIONS, 48));
        assert_eq!(upper.fragment.unwrap().offset, 8);
    }

    #[test]
    fn malformed_extensions_have_reasons() {
        let walk = |first, payload: &[u8]| Ipv6ExtensionIter::new(first, payload).upper_layer().unwrap_err();
        let options = IpProtocol::DESTINATION_OPTIONS;
        assert_eq!(walk(options, &[]), WireError::Ipv6ExtensionBeyondPacket);
        assert_eq!(walk(options, &[6, 1, 0, 0, 0, 0, 0, 0]), WireError::Ipv6ExtensionBeyondPacket);
        assert_eq!(walk(options, &[0, 0, 1, 4, 0, 0, 0, 0, 6, 0]), WireError::Ipv6HopByHopNotFirst);
        assert_eq!(walk(IpProtocol::AH, &[6, 0, 0, 0, 0, 0, 0, 0]), WireError::Ipv6AuthenticationLength);
        let chain: Vec<u8> = [60, 0, 1, 4, 0, 0, 0, 0].repeat(100);
        assert_eq!(walk(options, &chain), WireError::TooManyIpv6Extensions);
        assert_eq!(Ipv6ExtensionIter::new(options, &chain).count(), MAX_EXTENSIONS + 1);

        let mut options = Ipv6OptionIter::new(&[0, 1, 3, 0, 0]);
        assert!(options.next().unwrap().is_ok());
        assert_eq!(options.next(), Some(Err(WireError::Ipv6OptionBeyondHeader)));
        assert_eq!(options.next(), None);
    }

    proptest! {
        #[test]
        fn any_extensions(
            first in prop_oneof![Just(0u8), Just(43), Just(44), Just(51), Just(60)],
            octets in proptest::collection::vec(
                prop_oneof![0u8..3, Just(43u8), Just(44), Just(51), Just(60), any::<u8>()], 0..200),
        ) {
            let extensions = Ipv6ExtensionIter::new(IpProtocol(first), &octets);
            prop_assert!(extensions.clone().count() <= MAX_EXTENSIONS + 1);
            for extension in extensions.clone().flatten() {
                prop_assert_eq!(extension.octets, &octets[extension.offset - 40..][..extension.octets.len()]);
            }
            if let Ok(upper) = extensions.upper_layer() {
                prop_assert!(upper.offset <= 40 + octets.len());
            }
            prop_assert!(Ipv6OptionIter::new(&octets).count() <= octets.len());
        }
    }
}
