//! IPv4 (RFC 791); the checks that a router makes are those of RFC 1812, section 5.2.2. Its options are in
//! [`ipv4_option`](super::ipv4_option).

use std::net::Ipv4Addr;

use super::{IpProtocol, OptionOctets, WireError, cut, cut_mut, read, read_u16};
use crate::checksum;

/// Octets of a header without options.
pub const MIN_HEADER_LEN: usize = 20;
/// The first octet of a header without options: version 4, five words.
pub const WITHOUT_OPTIONS: u8 = 0x45;
/// Octets of the longest header.
pub const MAX_HEADER_LEN: usize = 60;

/// Where the fields stand in the header, for code that reads its words without a view.
pub mod field {
    use crate::wire::Field;
    /// Version and header length, 4 bits each.
    pub const VERSION_IHL: usize = 0;
    /// Type of service.
    pub const TOS: usize = 1;
    /// Total length.
    pub const TOTAL_LEN: Field = 2..4;
    /// Identification.
    pub const IDENTIFICATION: Field = 4..6;
    /// Flags, 3 bits, and fragment offset.
    pub const FLAGS_OFFSET: Field = 6..8;
    /// Time to live.
    pub const TTL: usize = 8;
    /// Protocol.
    pub const PROTOCOL: usize = 9;
    /// Header checksum.
    pub const CHECKSUM: Field = 10..12;
    /// Source address.
    pub const SOURCE: Field = 12..16;
    /// Destination address.
    pub const DESTINATION: Field = 16..20;
}

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// Checks the header at the start of `packet` as RFC 1812, section 5.2.2, says, and returns its octets. The checksum is
/// looked at only if `checksum` is set. [`PlainHeader::is_good`](crate::PlainHeader::is_good) is the quick answer for
/// most packets.
///
/// # Errors
/// In this order: [`WireError::TruncatedIpv4`], [`WireError::Ipv4Version`], [`WireError::Ipv4HeaderLength`],
/// [`WireError::Ipv4TotalLength`], [`WireError::Ipv4TotalBeyondPacket`], [`WireError::Ipv4Checksum`].
pub fn check_header(packet: &[u8], checksum: bool) -> Result<usize, WireError> {
    // "(1) The packet length reported by the Link Layer must be large enough to hold the minimum length legal IP
    // datagram (20 bytes)."
    if packet.len() < MIN_HEADER_LEN {
        return Err(WireError::TruncatedIpv4);
    }
    let view = Ipv4::new_unchecked(packet);
    // "(3) The IP version number must be 4."
    if view.version() != 4 {
        return Err(WireError::Ipv4Version);
    }
    // "(4) The IP header length field must be large enough to hold the minimum length legal IP datagram (20 bytes =
    // 5 words)."
    if view.header_len() < MIN_HEADER_LEN {
        return Err(WireError::Ipv4HeaderLength);
    }
    // "(5) The IP total length field must be large enough to hold the IP datagram header, whose length is specified
    // in the IP header length field."
    if view.total_len() < view.header_len() {
        return Err(WireError::Ipv4TotalLength);
    }
    // "the packet length reported by the Link Layer is not less than the IP Total Length"
    if view.total_len() > packet.len() {
        return Err(WireError::Ipv4TotalBeyondPacket);
    }
    // "(2) The IP checksum must be correct."
    if checksum && !view.is_checksum_valid() {
        return Err(WireError::Ipv4Checksum);
    }
    Ok(view.header_len())
}

view! {
    /// A view of an IPv4 packet. What lies behind its total length (Ethernet padding) is not part of the
    /// payload.
    Ipv4
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// The one length check: the header, options included, is at least 20 octets and lies within the bytes.
    ///
    /// The payload may be cut off, as it is in the packet that an ICMP error quotes;
    /// [`check_header`] asks for all of it.
    ///
    /// # Errors
    /// [`WireError::TruncatedIpv4`], [`WireError::Ipv4HeaderLength`], [`WireError::Ipv4HeaderBeyondPacket`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        if self.bytes().len() < MIN_HEADER_LEN {
            return Err(WireError::TruncatedIpv4);
        }
        if self.header_len() < MIN_HEADER_LEN {
            return Err(WireError::Ipv4HeaderLength);
        }
        if self.header_len() > self.bytes().len() {
            return Err(WireError::Ipv4HeaderBeyondPacket);
        }
        Ok(())
    }

    /// Version; 4 in an IPv4 packet.
    #[inline]
    pub fn version(&self) -> u8 {
        self.bytes()[field::VERSION_IHL] >> 4
    }

    /// Octets of the header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes()[field::VERSION_IHL] & 0x0f) * 4
    }

    /// The whole type of service octet: DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.bytes()[field::TOS]
    }

    /// Differentiated services code point, 0 to 63 (RFC 2474).
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.tos() >> 2
    }

    /// Explicit congestion notification, 0 to 3 (RFC 3168).
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.tos() & 3
    }

    /// Octets of header and payload.
    #[inline]
    pub fn total_len(&self) -> usize {
        usize::from(read_u16(self.bytes(), field::TOTAL_LEN))
    }

    /// Identification, which the fragments of a packet share.
    #[inline]
    pub fn identification(&self) -> u16 {
        read_u16(self.bytes(), field::IDENTIFICATION)
    }

    /// Whether routers must not fragment the packet.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        read_u16(self.bytes(), field::FLAGS_OFFSET) & DONT_FRAGMENT != 0
    }

    /// Whether a later fragment exists.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        read_u16(self.bytes(), field::FLAGS_OFFSET) & MORE_FRAGMENTS != 0
    }

    /// Where the payload starts in that of the whole packet, in octets: a multiple of 8.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (read_u16(self.bytes(), field::FLAGS_OFFSET) & OFFSET_MASK) << 3
    }

    /// Whether this is a fragment and not a whole packet.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        read_u16(self.bytes(), field::FLAGS_OFFSET) & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Time to live, in hops.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.bytes()[field::TTL]
    }

    /// Protocol of the payload.
    #[inline]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.bytes()[field::PROTOCOL])
    }

    /// Header checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        read_u16(self.bytes(), field::CHECKSUM)
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from(read(self.bytes(), field::SOURCE))
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from(read(self.bytes(), field::DESTINATION))
    }

    /// Whether the checksum is right.
    #[inline]
    pub fn is_checksum_valid(&self) -> bool {
        checksum::ipv4_header_valid(self.header())
    }

    /// The header, options included.
    #[inline]
    pub fn header(&self) -> &[u8] {
        cut(self.bytes(), 0, self.header_len())
    }

    /// The octets of the options, padding included.
    #[inline]
    pub fn option_octets(&self) -> &[u8] {
        cut(self.bytes(), MIN_HEADER_LEN, self.header_len())
    }

    /// What the packet carries, as far as it is there.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        cut(self.bytes(), self.header_len(), self.total_len())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Sets version 4 and the header length, which must be a multiple of 4 up to 60; higher bits are lost.
    #[inline]
    pub fn set_header_len(&mut self, len: usize) {
        self.buffer.as_mut()[field::VERSION_IHL] = 0x40 | (len / 4) as u8 & 0x0f;
    }

    /// Sets the whole type of service octet.
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        self.buffer.as_mut()[field::TOS] = tos;
    }

    /// Sets the octets of header and payload.
    #[inline]
    pub fn set_total_len(&mut self, len: u16) {
        self.buffer.as_mut()[field::TOTAL_LEN].copy_from_slice(&len.to_be_bytes());
    }

    /// Sets the identification.
    #[inline]
    pub fn set_identification(&mut self, identification: u16) {
        self.buffer.as_mut()[field::IDENTIFICATION].copy_from_slice(&identification.to_be_bytes());
    }

    /// Sets flags and fragment offset at once. The offset is in octets; what is below 8 is lost.
    #[inline]
    pub fn set_fragment(&mut self, dont_fragment: bool, more_fragments: bool, offset: u16) {
        let flags = u16::from(dont_fragment) << 14 | u16::from(more_fragments) << 13;
        self.buffer.as_mut()[field::FLAGS_OFFSET].copy_from_slice(&(flags | offset >> 3).to_be_bytes());
    }

    /// Sets the time to live.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.buffer.as_mut()[field::TTL] = ttl;
    }

    /// Sets the protocol of the payload.
    #[inline]
    pub fn set_protocol(&mut self, protocol: IpProtocol) {
        self.buffer.as_mut()[field::PROTOCOL] = protocol.0;
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, check: u16) {
        self.buffer.as_mut()[field::CHECKSUM].copy_from_slice(&check.to_be_bytes());
    }

    /// Sets the source address.
    #[inline]
    pub fn set_source(&mut self, address: Ipv4Addr) {
        self.buffer.as_mut()[field::SOURCE].copy_from_slice(&address.octets());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_destination(&mut self, address: Ipv4Addr) {
        self.buffer.as_mut()[field::DESTINATION].copy_from_slice(&address.octets());
    }

    /// Computes the checksum over header and options anew and sets it.
    #[inline]
    pub fn fill_checksum(&mut self) {
        let check = checksum::ipv4_header_compute(self.header());
        self.set_checksum(check);
    }

    /// Takes one hop off the time to live and updates the checksum (RFC 1624). At zero nothing changes; a
    /// router forwards only what had at least 2 (RFC 1812, section 5.3.1).
    #[inline]
    pub fn decrement_ttl(&mut self) {
        let ttl = self.ttl();
        if ttl > 0 {
            // TTL is the high half of the word it shares with the protocol.
            let low = u16::from(self.protocol().0);
            let (old, new) = (u16::from(ttl) << 8 | low, u16::from(ttl - 1) << 8 | low);
            self.set_ttl(ttl - 1);
            self.set_checksum(checksum::update_u16(self.checksum(), old, new));
        }
    }

    /// The octets of the options, padding included.
    #[inline]
    pub fn option_octets_mut(&mut self) -> &mut [u8] {
        let header_len = self.header_len();
        cut_mut(self.buffer.as_mut(), MIN_HEADER_LEN, header_len)
    }

    /// What the packet carries, as far as it is there.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.header_len(), self.total_len());
        cut_mut(self.buffer.as_mut(), start, end)
    }
}

/// The meaning of an IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipv4Repr {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Explicit congestion notification, 0 to 3.
    pub ecn: u8,
    /// Identification, which the fragments of a packet share.
    pub identification: u16,
    /// Whether routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Whether a later fragment exists.
    pub more_fragments: bool,
    /// Where the payload starts in that of the whole packet, in octets: a multiple of 8.
    pub fragment_offset: u16,
    /// Options, padding included. They are not looked into; [`ipv4_option`](super::ipv4_option) does.
    pub options: OptionOctets,
    /// Octets of the payload.
    pub payload_len: usize,
}

impl Ipv4Repr {
    /// A packet without options that may be fragmented, of TTL 64.
    pub const fn new(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: IpProtocol,
        payload_len: usize,
    ) -> Self {
        Self {
            source,
            destination,
            protocol,
            ttl: 64,
            dscp: 0,
            ecn: 0,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            options: OptionOctets::EMPTY,
            payload_len,
        }
    }

    /// Octets of the header that [`emit`](Self::emit) writes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        MIN_HEADER_LEN + self.options.len()
    }

    /// Reads and checks the header.
    ///
    /// # Errors
    /// Those of [`check_header`].
    pub fn parse<T: AsRef<[u8]>>(packet: &Ipv4<T>) -> Result<Self, WireError> {
        check_header(packet.bytes(), true)?;
        Ok(Self {
            source: packet.source(),
            destination: packet.destination(),
            protocol: packet.protocol(),
            ttl: packet.ttl(),
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            identification: packet.identification(),
            dont_fragment: packet.dont_fragment(),
            more_fragments: packet.more_fragments(),
            fragment_offset: packet.fragment_offset(),
            options: OptionOctets::new(packet.option_octets())?,
            payload_len: packet.total_len() - packet.header_len(),
        })
    }

    /// Writes the header with its checksum. The payload is left as it is and need not be there yet.
    ///
    /// # Errors
    /// [`WireError::PacketTooLong`] where header and payload exceed 65,535 octets,
    /// [`WireError::BufferTooSmall`] where the header does not fit.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Ipv4<T>) -> Result<(), WireError> {
        let header_len = self.header_len();
        let total_len = u16::try_from(header_len.saturating_add(self.payload_len))
            .map_err(|_| WireError::PacketTooLong)?;
        if packet.bytes().len() < header_len {
            return Err(WireError::BufferTooSmall);
        }
        packet.set_header_len(header_len);
        packet.set_tos(self.dscp << 2 | self.ecn & 3);
        packet.set_total_len(total_len);
        packet.set_identification(self.identification);
        packet.set_fragment(self.dont_fragment, self.more_fragments, self.fragment_offset);
        packet.set_ttl(self.ttl);
        packet.set_protocol(self.protocol);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
        packet.option_octets_mut().copy_from_slice(self.options.as_slice());
        packet.fill_checksum();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::golden;
    use proptest::prelude::*;

    const ALICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const BOB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

    #[test]
    fn golden_packets() {
        let bytes = golden::payload(golden::UDP);
        let packet = Ipv4::new_checked(&bytes).unwrap();
        let repr = Ipv4Repr::parse(&packet).unwrap();
        let options = [7, 11, 8, 192, 0, 2, 1, 0, 0, 0, 0, 1];
        let expected = Ipv4Repr {
            identification: 0x648d,
            dont_fragment: true,
            options: OptionOctets::new(&options).unwrap(),
            ..Ipv4Repr::new(ALICE, BOB, IpProtocol::UDP, 13)
        };
        assert_eq!(repr, expected);
        assert!(packet.payload().ends_with(b"hello"));
        assert!(!packet.is_fragment());

        let mut copy = Ipv4::new_unchecked(vec![0xff; repr.header_len()]);
        repr.emit(&mut copy).unwrap();
        assert_eq!(copy.bytes(), packet.header());
    }

    #[test]
    fn reasons() {
        let good = golden::payload(golden::PING);
        let check = |bytes: &[u8]| Ipv4::new_checked(bytes).and_then(|_| check_header(bytes, true));
        assert_eq!(check(&good), Ok(20));
        assert_eq!(check(&good[..19]), Err(WireError::TruncatedIpv4));
        assert_eq!(check(&good[..35]), Err(WireError::Ipv4TotalBeyondPacket));
        for (at, value, reason) in [
            (0, 0x44, WireError::Ipv4HeaderLength),
            (0, 0x4f, WireError::Ipv4HeaderBeyondPacket),
            (0, 0x65, WireError::Ipv4Version),
            (3, 19, WireError::Ipv4TotalLength),
            (8, 63, WireError::Ipv4Checksum),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(check(&bad), Err(reason));
        }
    }

    #[test]
    fn padding_is_no_payload_and_a_quote_may_be_cut() {
        let mut bytes = golden::payload(golden::PING);
        bytes.extend([0; 10]);
        assert_eq!(Ipv4::new_checked(&bytes).unwrap().payload().len(), 16);
        assert_eq!(Ipv4::new_checked(&bytes[..28]).unwrap().payload().len(), 8);
    }

    #[test]
    fn setters_keep_their_neighbours() {
        let mut packet = Ipv4::new_checked(golden::payload(golden::PING)).unwrap();
        packet.set_tos(0xbb);
        assert_eq!((packet.tos(), packet.dscp(), packet.ecn()), (0xbb, 46, 3));
        packet.set_fragment(false, true, 1480);
        assert_eq!(
            (packet.dont_fragment(), packet.more_fragments(), packet.fragment_offset()),
            (false, true, 1480)
        );
        packet.fill_checksum();
        assert_eq!(check_header(packet.bytes(), true), Ok(20));
    }

    #[test]
    fn too_long_or_too_small() {
        let repr = Ipv4Repr::new(ALICE, BOB, IpProtocol::UDP, 65_516);
        assert_eq!(repr.emit(&mut Ipv4::new_unchecked([0; 20])), Err(WireError::PacketTooLong));
        let repr = Ipv4Repr { payload_len: 65_515, ..repr };
        assert_eq!(repr.emit(&mut Ipv4::new_unchecked([0; 19])), Err(WireError::BufferTooSmall));
        assert_eq!(repr.emit(&mut Ipv4::new_unchecked([0; 20])), Ok(()));
    }

    proptest! {
        #[test]
        fn packets_round_trip(
            addresses in any::<[[u8; 4]; 2]>(),
            (protocol, ttl, dscp, ecn) in (any::<u8>(), any::<u8>(), 0u8..64, 0u8..4),
            (identification, dont_fragment, more_fragments) in any::<(u16, bool, bool)>(),
            fragment_offset in 0u16..8192,
            options in proptest::collection::vec(any::<u8>(), 0..=40),
            payload_len in 0usize..100,
        ) {
            let repr = Ipv4Repr {
                source: addresses[0].into(),
                destination: addresses[1].into(),
                protocol: IpProtocol(protocol),
                ttl, dscp, ecn, identification, dont_fragment, more_fragments,
                fragment_offset: fragment_offset * 8,
                options: OptionOctets::new(&options).unwrap(),
                payload_len,
            };
            let mut bytes = vec![0xff; repr.header_len() + payload_len];
            repr.emit(&mut Ipv4::new_unchecked(&mut bytes)).unwrap();
            let mut packet = Ipv4::new_checked(&mut bytes).unwrap();
            prop_assert_eq!(Ipv4Repr::parse(&packet), Ok(repr));
            prop_assert_eq!(packet.is_fragment(), more_fragments || fragment_offset > 0);

            packet.decrement_ttl();
            prop_assert_eq!(packet.ttl(), ttl.saturating_sub(1));
            prop_assert_eq!(packet.checksum(), checksum::ipv4_header_compute(packet.header()));
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..100), version_ihl in 0x44u8..0x50) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = version_ihl;
            }
            if let Ok(mut packet) = Ipv4::new_checked(&mut bytes) {
                let _ = Ipv4Repr::parse(&packet);
                packet.set_header_len(60);
                packet.set_total_len(u16::MAX);
                let _ = (packet.payload().len(), packet.header().len());
                packet.set_total_len(0);
                packet.payload_mut().fill(0);
                packet.option_octets_mut().fill(0);
                packet.fill_checksum();
            }
        }
    }
}
