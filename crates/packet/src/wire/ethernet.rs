//! Ethernet II frames (IEEE 802.3), their addresses, and 802.1Q tags.
//!
//! The frame check sequence is not part of a frame here: the device adds and checks it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::{WireError, cut, read, read_u16};

/// Octets of an Ethernet header without tags.
pub const HEADER_LEN: usize = 14;
/// Octets of an 802.1Q tag.
pub const TAG_LEN: usize = 4;
/// Octets of the two addresses, where a tag or the type of the payload stands.
pub const ADDRESSES_LEN: usize = 12;
/// How many tags [`payload_type`] walks: a service tag and a customer tag (IEEE 802.1ad).
pub const MAX_TAGS: usize = 2;

mod field {
    use crate::wire::Field;
    pub(super) const DESTINATION: Field = 0..6;
    pub(super) const SOURCE: Field = 6..12;
    pub(super) const ETHERTYPE: Field = 12..14;
}

mod tag_field {
    use crate::wire::Field;
    pub(super) const TPID: Field = 0..2;
    pub(super) const TCI: Field = 2..4;
}

/// An Ethernet address.
///
/// Shown as Click shows it, `00-11-22-AA-BB-CC`; read with `-` or `:` between one or two hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All ones: every station.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// All zeros: no station.
    pub const ZERO: Self = Self([0; 6]);

    /// Whether this is `FF-FF-FF-FF-FF-FF`.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// Whether the group bit is set; broadcast counts.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 0x01 != 0
    }

    /// Whether the address is locally administered, not given by a vendor.
    #[inline]
    pub const fn is_local(self) -> bool {
        self.0[0] & 0x02 != 0
    }

    /// The group address for an IPv4 multicast address (RFC 1112, section 6.4).
    pub const fn for_ipv4_multicast(group: Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address for an IPv6 multicast address (RFC 2464, section 7).
    pub const fn for_ipv6_multicast(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}-{b:02X}-{c:02X}-{d:02X}-{e:02X}-{g:02X}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not an Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseMacAddrError;

impl fmt::Display for ParseMacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not an Ethernet address: expected six groups of one or two hex digits between '-' or ':', \
             such as 00-11-22-AA-BB-CC",
        )
    }
}

impl std::error::Error for ParseMacAddrError {}

impl FromStr for MacAddr {
    type Err = ParseMacAddrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let separator = if text.contains(':') { ':' } else { '-' };
        let mut groups = text.split(separator);
        let mut octets = [0; 6];
        for octet in &mut octets {
            let group = groups.next().ok_or(ParseMacAddrError)?;
            // from_str_radix would take a sign.
            if !matches!(group.len(), 1 | 2) || !group.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(ParseMacAddrError);
            }
            *octet = u8::from_str_radix(group, 16).map_err(|_| ParseMacAddrError)?;
        }
        if groups.next().is_some() { Err(ParseMacAddrError) } else { Ok(Self(octets)) }
    }
}

/// What an Ethernet frame carries (IANA registry "IEEE 802 Numbers").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// 802.1Q customer tag.
    pub const VLAN: Self = Self(0x8100);
    /// 802.1ad service tag.
    pub const QINQ: Self = Self(0x88a8);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// MPLS unicast (RFC 3032).
    pub const MPLS: Self = Self(0x8847);

    /// Whether this is not a type but the payload length of an IEEE 802.3 frame.
    #[inline]
    pub const fn is_length(self) -> bool {
        self.0 <= 1500
    }

    /// Whether a tag follows: [`VLAN`](Self::VLAN) or [`QINQ`](Self::QINQ).
    #[inline]
    pub const fn is_tag(self) -> bool {
        matches!(self, Self::VLAN | Self::QINQ)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtherType({:#06x})", self.0)
    }
}

view! {
    /// A view of an Ethernet frame.
    Ethernet
}

impl<T: AsRef<[u8]>> Ethernet<T> {
    /// The one length check: 14 octets.
    ///
    /// # Errors
    /// [`WireError::TruncatedEthernet`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        if self.bytes().len() < HEADER_LEN { Err(WireError::TruncatedEthernet) } else { Ok(()) }
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> MacAddr {
        MacAddr(read(self.bytes(), field::DESTINATION))
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> MacAddr {
        MacAddr(read(self.bytes(), field::SOURCE))
    }

    /// The type field right behind the addresses; for a tagged frame that of the first tag.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(read_u16(self.bytes(), field::ETHERTYPE))
    }

    /// What follows the untagged header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        cut(self.bytes(), HEADER_LEN, usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ethernet<T> {
    /// Sets the destination address.
    #[inline]
    pub fn set_destination(&mut self, address: MacAddr) {
        self.buffer.as_mut()[field::DESTINATION].copy_from_slice(&address.0);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_source(&mut self, address: MacAddr) {
        self.buffer.as_mut()[field::SOURCE].copy_from_slice(&address.0);
    }

    /// Sets the type field.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: EtherType) {
        self.buffer.as_mut()[field::ETHERTYPE].copy_from_slice(&ethertype.0.to_be_bytes());
    }

    /// What follows the untagged header.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        super::cut_mut(self.buffer.as_mut(), HEADER_LEN, usize::MAX)
    }
}

/// The meaning of an Ethernet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EthernetRepr {
    /// Destination address.
    pub destination: MacAddr,
    /// Source address.
    pub source: MacAddr,
    /// The type field.
    pub ethertype: EtherType,
}

impl EthernetRepr {
    /// Octets that [`emit`](Self::emit) writes.
    pub const LEN: usize = HEADER_LEN;

    /// Reads the header.
    ///
    /// # Errors
    /// None today: any 14 octets are an Ethernet header.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(frame: &Ethernet<T>) -> Result<Self, WireError> {
        Ok(Self { destination: frame.destination(), source: frame.source(), ethertype: frame.ethertype() })
    }

    /// Writes the header.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] below 14 octets.
    #[inline]
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, frame: &mut Ethernet<T>) -> Result<(), WireError> {
        frame.check_len().map_err(|_| WireError::BufferTooSmall)?;
        frame.set_destination(self.destination);
        frame.set_source(self.source);
        frame.set_ethertype(self.ethertype);
        Ok(())
    }
}

view! {
    /// A view of an 802.1Q tag: its type (TPID) and control information (TCI). It starts where an untagged
    /// frame has its type field, 12 octets into the frame; the type of what follows stands behind it.
    VlanTag
}

impl<T: AsRef<[u8]>> VlanTag<T> {
    /// The one length check: 4 octets.
    ///
    /// # Errors
    /// [`WireError::TruncatedVlanTag`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        if self.bytes().len() < TAG_LEN { Err(WireError::TruncatedVlanTag) } else { Ok(()) }
    }

    /// Tag protocol identifier: [`EtherType::VLAN`] or [`EtherType::QINQ`].
    #[inline]
    pub fn tpid(&self) -> EtherType {
        EtherType(read_u16(self.bytes(), tag_field::TPID))
    }

    /// The whole tag control information.
    #[inline]
    pub fn tci(&self) -> u16 {
        read_u16(self.bytes(), tag_field::TCI)
    }

    /// VLAN identifier, 0 to 4095; 0 means priority only.
    #[inline]
    pub fn vid(&self) -> u16 {
        self.tci() & 0x0fff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> VlanTag<T> {
    /// Sets the tag protocol identifier.
    #[inline]
    pub fn set_tpid(&mut self, tpid: EtherType) {
        self.buffer.as_mut()[tag_field::TPID].copy_from_slice(&tpid.0.to_be_bytes());
    }

    /// Sets the whole tag control information.
    #[inline]
    pub fn set_tci(&mut self, tci: u16) {
        self.buffer.as_mut()[tag_field::TCI].copy_from_slice(&tci.to_be_bytes());
    }
}

/// What a frame carries behind its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PayloadType {
    /// Type of the payload; never a tag.
    pub ethertype: EtherType,
    /// Where the payload starts in the frame: 14, 18 or 22.
    pub offset: usize,
}

/// Finds type and place of the payload of a frame, behind at most [`MAX_TAGS`] tags.
///
/// # Errors
/// [`WireError::TruncatedEthernet`], [`WireError::TruncatedVlanTag`], [`WireError::TooManyVlanTags`].
#[inline]
pub fn payload_type(frame: &[u8]) -> Result<PayloadType, WireError> {
    let mut ethertype = Ethernet::new_checked(frame)?.ethertype();
    let mut offset = HEADER_LEN;
    for _ in 0..MAX_TAGS {
        if !ethertype.is_tag() {
            break;
        }
        // Behind the type comes the rest of the tag, then the next type.
        let next = frame.get(offset + 2..offset + TAG_LEN).ok_or(WireError::TruncatedVlanTag)?;
        ethertype = EtherType(read_u16(next, 0..2));
        offset += TAG_LEN;
    }
    if ethertype.is_tag() { Err(WireError::TooManyVlanTags) } else { Ok(PayloadType { ethertype, offset }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::golden;
    use proptest::prelude::*;

    #[test]
    fn golden_frame() {
        let bytes = golden::frame(golden::ARP_REQUEST);
        let frame = Ethernet::new_checked(&bytes).unwrap();
        let repr = EthernetRepr::parse(&frame).unwrap();
        assert_eq!(
            repr,
            EthernetRepr {
                destination: MacAddr::BROADCAST,
                source: MacAddr([2, 0, 0, 0, 0, 10]),
                ethertype: EtherType::ARP,
            }
        );
        assert_eq!(frame.payload(), &bytes[14..]);
        assert_eq!(payload_type(&bytes), Ok(PayloadType { ethertype: EtherType::ARP, offset: 14 }));
    }

    #[test]
    fn tags() {
        let mut bytes = golden::frame(golden::PING);
        // Priority 5, drop eligible, VLAN 100.
        bytes.splice(12..12, [0x81, 0x00, 0xb0, 0x64]);
        assert_eq!(payload_type(&bytes), Ok(PayloadType { ethertype: EtherType::IPV4, offset: 18 }));
        let tag = VlanTag::new_checked(&bytes[12..]).unwrap();
        assert_eq!((tag.tpid(), tag.tci(), tag.vid()), (EtherType::VLAN, 0xb064, 100));
        bytes.splice(12..12, [0x88, 0xa8, 0x00, 0x01]);
        assert_eq!(payload_type(&bytes), Ok(PayloadType { ethertype: EtherType::IPV4, offset: 22 }));
        assert_eq!(payload_type(&bytes[..21]), Err(WireError::TruncatedVlanTag));
        bytes.splice(12..12, [0x88, 0xa8, 0x00, 0x01]);
        assert_eq!(payload_type(&bytes), Err(WireError::TooManyVlanTags));
        assert_eq!(payload_type(&bytes[..13]), Err(WireError::TruncatedEthernet));
    }

    #[test]
    fn addresses_as_click_writes_them() {
        let address = MacAddr([0, 0x11, 0x22, 0xaa, 0xbb, 0xcc]);
        assert_eq!(address.to_string(), "00-11-22-AA-BB-CC");
        for text in ["00-11-22-AA-BB-CC", "00:11:22:aa:bb:cc", "0:11:22:aa:BB:cc"] {
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
        let long = "00-11-22-AA-BB-CC-";
        for text in
            ["", "00-11-22-AA-BB", long, "00-11:22-AA-BB-CC", "+1-2-3-4-5-6", "001-2-3-4-5-6", "1--2-3-4-5"]
        {
            assert_eq!(text.parse::<MacAddr>(), Err(ParseMacAddrError), "{text}");
        }
    }

    #[test]
    fn kinds_of_addresses() {
        assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_multicast());
        assert!(!MacAddr::ZERO.is_multicast() && !MacAddr::ZERO.is_local());
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_local());
        let group = MacAddr::for_ipv4_multicast(Ipv4Addr::new(224, 129, 2, 3));
        assert_eq!(group, MacAddr([1, 0, 0x5e, 1, 2, 3]));
        let group = MacAddr::for_ipv6_multicast("ff02::1:ff00:2".parse().unwrap());
        assert_eq!(group.to_string(), "33-33-FF-00-00-02");
        assert!(EtherType(1500).is_length() && !EtherType::IPV4.is_length());
    }

    proptest! {
        #[test]
        fn address_text_round_trips(octets in any::<[u8; 6]>()) {
            prop_assert_eq!(MacAddr(octets).to_string().parse(), Ok(MacAddr(octets)));
        }

        #[test]
        fn headers_round_trip(destination in any::<[u8; 6]>(), source in any::<[u8; 6]>(), ethertype in any::<u16>()) {
            let repr = EthernetRepr {
                destination: MacAddr(destination), source: MacAddr(source), ethertype: EtherType(ethertype),
            };
            let mut frame = Ethernet::new_checked([0u8; 14]).unwrap();
            repr.emit(&mut frame).unwrap();
            prop_assert_eq!(EthernetRepr::parse(&frame), Ok(repr));
            prop_assert_eq!(repr.emit(&mut Ethernet::new_unchecked([0; 13])), Err(WireError::BufferTooSmall));
        }

        #[test]
        fn tags_round_trip(tpid in any::<u16>(), tci in any::<u16>()) {
            let mut tag = VlanTag::new_checked([0u8; 4]).unwrap();
            tag.set_tpid(EtherType(tpid));
            tag.set_tci(tci);
            prop_assert_eq!((tag.tpid(), tag.tci()), (EtherType(tpid), tci));
        }

        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), text in ".{0,20}") {
            let _ = payload_type(&bytes);
            let _ = text.parse::<MacAddr>();
            if let Ok(mut frame) = Ethernet::new_checked(&mut bytes) {
                let _ = (frame.payload().len(), EthernetRepr::parse(&frame));
                frame.payload_mut().fill(0);
            }
            if let Ok(tag) = VlanTag::new_checked(&bytes) {
                let _ = tag.vid();
            }
        }
    }
}
