//! IPv6 (RFC 8200). Its extension headers are in [`ipv6_extension`](super::ipv6_extension).
//!
//! Jumbograms (RFC 2675) are not read: a payload length of zero is an empty payload.

use std::net::Ipv6Addr;

use super::ipv6_extension::{Ipv6ExtensionIter, UpperLayer};
use super::{IpProtocol, WireError, cut, cut_mut, read, read_u16, read_u32};

/// Octets of an IPv6 header without extension headers.
pub const HEADER_LEN: usize = 40;

/// Where the fields stand in the header, for code that reads its words without a view.
pub mod field {
    use crate::wire::Field;
    /// Version, traffic class and flow label.
    pub const VERSION_CLASS_LABEL: Field = 0..4;
    /// Payload length.
    pub const PAYLOAD_LEN: Field = 4..6;
    /// Next header.
    pub const NEXT_HEADER: usize = 6;
    /// Hop limit.
    pub const HOP_LIMIT: usize = 7;
    /// Source address.
    pub const SOURCE: Field = 8..24;
    /// Destination address.
    pub const DESTINATION: Field = 24..40;
}

const LABEL_MASK: u32 = 0x000f_ffff;

/// Checks the header at the start of `packet`: its version and payload length. IPv6 has no header checksum.
///
/// # Errors
/// In this order: [`WireError::TruncatedIpv6`], [`WireError::Ipv6Version`], [`WireError::Ipv6PayloadBeyondPacket`].
pub fn check_header(packet: &[u8]) -> Result<(), WireError> {
    let view = Ipv6::new_checked(packet)?;
    if view.version() != 6 {
        return Err(WireError::Ipv6Version);
    }
    if HEADER_LEN + view.payload_len() > packet.len() {
        return Err(WireError::Ipv6PayloadBeyondPacket);
    }
    Ok(())
}

view! {
    /// A view of an IPv6 packet. What lies behind its payload length (Ethernet padding) is not part of the
    /// payload.
    Ipv6
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// The one length check: 40 octets. The payload may be cut off, as in the packet that an ICMPv6 error
    /// quotes.
    ///
    /// # Errors
    /// [`WireError::TruncatedIpv6`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        if self.bytes().len() < HEADER_LEN { Err(WireError::TruncatedIpv6) } else { Ok(()) }
    }

    #[inline]
    fn version_class_label(&self) -> u32 {
        read_u32(self.bytes(), field::VERSION_CLASS_LABEL)
    }

    /// Version; 6 in an IPv6 packet.
    #[inline]
    pub fn version(&self) -> u8 {
        (self.version_class_label() >> 28) as u8
    }

    /// Traffic class: DSCP in the high 6 bits, ECN in the low 2.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_label() >> 20) as u8
    }

    /// Flow label, 20 bits (RFC 6437).
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.version_class_label() & LABEL_MASK
    }

    /// Octets behind the 40 of the header, extension headers included.
    #[inline]
    pub fn payload_len(&self) -> usize {
        usize::from(read_u16(self.bytes(), field::PAYLOAD_LEN))
    }

    /// The first extension header or the upper layer's protocol.
    #[inline]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.bytes()[field::NEXT_HEADER])
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.bytes()[field::HOP_LIMIT]
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from(read::<16>(self.bytes(), field::SOURCE))
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from(read::<16>(self.bytes(), field::DESTINATION))
    }

    /// Extension headers and upper layer, as far as they are there.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        cut(self.bytes(), HEADER_LEN, HEADER_LEN + self.payload_len())
    }

    /// The extension headers one by one.
    #[inline]
    pub fn extensions(&self) -> Ipv6ExtensionIter<'_> {
        Ipv6ExtensionIter::new(self.next_header(), self.payload())
    }

    /// Walks all extension headers to the upper layer.
    ///
    /// # Errors
    /// Those of [`Ipv6ExtensionIter`].
    #[inline]
    pub fn upper_layer(&self) -> Result<UpperLayer, WireError> {
        self.extensions().upper_layer()
    }

    /// Where the upper layer starts, in octets from the start of the packet. Where the extension headers are
    /// malformed or too many, that is the packet's end: a router forwards it all the same (RFC 8200, section
    /// 4), and the upper layer of such a packet cannot be read.
    #[inline]
    pub fn upper_layer_offset(&self) -> usize {
        self.upper_layer().map_or(self.bytes().len(), |upper| upper.offset)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Sets version 6, traffic class and flow label (its low 20 bits) at once.
    #[inline]
    pub fn set_version_class_label(&mut self, traffic_class: u8, flow_label: u32) {
        let word = 6 << 28 | u32::from(traffic_class) << 20 | flow_label & LABEL_MASK;
        self.buffer.as_mut()[field::VERSION_CLASS_LABEL].copy_from_slice(&word.to_be_bytes());
    }

    /// Sets the octets behind the header.
    #[inline]
    pub fn set_payload_len(&mut self, len: u16) {
        self.buffer.as_mut()[field::PAYLOAD_LEN].copy_from_slice(&len.to_be_bytes());
    }

    /// Sets the next header.
    #[inline]
    pub fn set_next_header(&mut self, protocol: IpProtocol) {
        self.buffer.as_mut()[field::NEXT_HEADER] = protocol.0;
    }

    /// Sets the hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        self.buffer.as_mut()[field::HOP_LIMIT] = hop_limit;
    }

    /// Sets the source address.
    #[inline]
    pub fn set_source(&mut self, address: Ipv6Addr) {
        self.buffer.as_mut()[field::SOURCE].copy_from_slice(&address.octets());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_destination(&mut self, address: Ipv6Addr) {
        self.buffer.as_mut()[field::DESTINATION].copy_from_slice(&address.octets());
    }

    /// Extension headers and upper layer, as far as they are there.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = HEADER_LEN + self.payload_len();
        cut_mut(self.buffer.as_mut(), HEADER_LEN, end)
    }
}

/// The meaning of an IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipv6Repr {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// The first extension header or the upper layer's protocol.
    pub next_header: IpProtocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class: DSCP in the high 6 bits, ECN in the low 2.
    pub traffic_class: u8,
    /// Flow label; the low 20 bits count.
    pub flow_label: u32,
    /// Octets behind the header, extension headers included.
    pub payload_len: usize,
}

impl Ipv6Repr {
    /// Octets that [`emit`](Self::emit) writes.
    pub const LEN: usize = HEADER_LEN;

    /// Reads and checks the header.
    ///
    /// # Errors
    /// Those of [`check_header`].
    pub fn parse<T: AsRef<[u8]>>(packet: &Ipv6<T>) -> Result<Self, WireError> {
        check_header(packet.bytes())?;
        Ok(Self {
            source: packet.source(),
            destination: packet.destination(),
            next_header: packet.next_header(),
            hop_limit: packet.hop_limit(),
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            payload_len: packet.payload_len(),
        })
    }

    /// Writes the header. The payload is left as it is and need not be there yet.
    ///
    /// # Errors
    /// [`WireError::PacketTooLong`] where the payload exceeds 65,535 octets, [`WireError::BufferTooSmall`]
    /// below 40.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Ipv6<T>) -> Result<(), WireError> {
        let payload_len = u16::try_from(self.payload_len).map_err(|_| WireError::PacketTooLong)?;
        packet.check_len().map_err(|_| WireError::BufferTooSmall)?;
        packet.set_version_class_label(self.traffic_class, self.flow_label);
        packet.set_payload_len(payload_len);
        packet.set_next_header(self.next_header);
        packet.set_hop_limit(self.hop_limit);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::golden;
    use proptest::prelude::*;

    #[test]
    fn golden_packet() {
        let bytes = golden::payload(golden::PING6);
        let packet = Ipv6::new_checked(&bytes).unwrap();
        let repr = Ipv6Repr::parse(&packet).unwrap();
        let expected = Ipv6Repr {
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
            next_header: IpProtocol::ICMPV6,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0x8c5b2,
            payload_len: 16,
        };
        assert_eq!(repr, expected);
        let upper = UpperLayer { protocol: IpProtocol::ICMPV6, offset: 40, fragment: None };
        assert_eq!(packet.upper_layer(), Ok(upper));
        let mut copy = Ipv6::new_unchecked([0xff; 40]);
        repr.emit(&mut copy).unwrap();
        assert_eq!(copy.bytes(), &bytes[..40]);
    }

    #[test]
    fn reasons() {
        let good = golden::payload(golden::PING6);
        assert_eq!(Ipv6::new_checked(&good[..39]).unwrap_err(), WireError::TruncatedIpv6);
        let cut = Ipv6::new_checked(&good[..50]).unwrap();
        assert_eq!(Ipv6Repr::parse(&cut), Err(WireError::Ipv6PayloadBeyondPacket));
        assert_eq!(cut.payload().len(), 10);
        let mut bad = good.clone();
        bad[0] = 0x45;
        assert_eq!(Ipv6Repr::parse(&Ipv6::new_checked(&bad).unwrap()), Err(WireError::Ipv6Version));
    }

    proptest! {
        #[test]
        fn packets_round_trip(
            addresses in any::<[[u8; 16]; 2]>(),
            (next_header, hop_limit, traffic_class) in any::<(u8, u8, u8)>(),
            flow_label in 0u32..1 << 20,
            payload_len in 0usize..100,
        ) {
            let repr = Ipv6Repr {
                source: addresses[0].into(),
                destination: addresses[1].into(),
                next_header: IpProtocol(next_header),
                hop_limit, traffic_class, flow_label, payload_len,
            };
            let mut packet = Ipv6::new_checked(vec![0xff; 40 + payload_len]).unwrap();
            repr.emit(&mut packet).unwrap();
            prop_assert_eq!(Ipv6Repr::parse(&packet), Ok(repr));
            prop_assert_eq!(repr.emit(&mut Ipv6::new_unchecked([0; 39])), Err(WireError::BufferTooSmall));
            let repr = Ipv6Repr { payload_len: 65_536, ..repr };
            prop_assert_eq!(repr.emit(&mut packet), Err(WireError::PacketTooLong));
        }

        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), payload_len in 0u16..200) {
            if let Ok(mut packet) = Ipv6::new_checked(&mut bytes) {
                let _ = Ipv6Repr::parse(&packet);
                packet.set_payload_len(payload_len);
                let _ = packet.upper_layer();
                packet.payload_mut().fill(0);
            }
        }
    }
}
