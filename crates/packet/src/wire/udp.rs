//! UDP (RFC 768).

use super::{IpProtocol, PseudoHeader, WireError, cut, cut_mut, read_u16};
use crate::checksum;

/// Octets of a UDP header.
pub const HEADER_LEN: usize = 8;

mod field {
    use crate::wire::Field;
    pub(super) const SOURCE_PORT: Field = 0..2;
    pub(super) const DESTINATION_PORT: Field = 2..4;
    pub(super) const LENGTH: Field = 4..6;
    pub(super) const CHECKSUM: Field = 6..8;
}

view! {
    /// A view of a UDP datagram. What lies behind its length is not part of it.
    Udp
}

impl<T: AsRef<[u8]>> Udp<T> {
    /// The one length check: 8 octets.
    ///
    /// # Errors
    /// [`WireError::TruncatedUdp`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        if self.bytes().len() < HEADER_LEN { Err(WireError::TruncatedUdp) } else { Ok(()) }
    }

    /// Source port; 0 where no answer is wanted.
    #[inline]
    pub fn source_port(&self) -> u16 {
        read_u16(self.bytes(), field::SOURCE_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        read_u16(self.bytes(), field::DESTINATION_PORT)
    }

    /// Octets of header and payload.
    #[inline]
    pub fn length(&self) -> usize {
        usize::from(read_u16(self.bytes(), field::LENGTH))
    }

    /// Checksum; 0 means that the sender computed none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        read_u16(self.bytes(), field::CHECKSUM)
    }

    /// Whether the checksum is right. `false` where there is none.
    #[inline]
    pub fn is_checksum_valid(&self, pseudo: &PseudoHeader) -> bool {
        self.checksum() != 0 && self.sum(pseudo) == 0xffff
    }

    fn sum(&self, pseudo: &PseudoHeader) -> u16 {
        let datagram = cut(self.bytes(), 0, self.length());
        checksum::combine(pseudo.sum(IpProtocol::UDP, self.length()), checksum::sum(datagram))
    }

    /// What the datagram carries, as far as it is there.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        cut(self.bytes(), HEADER_LEN, self.length())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Udp<T> {
    /// Sets the source port.
    #[inline]
    pub fn set_source_port(&mut self, port: u16) {
        self.buffer.as_mut()[field::SOURCE_PORT].copy_from_slice(&port.to_be_bytes());
    }

    /// Sets the destination port.
    #[inline]
    pub fn set_destination_port(&mut self, port: u16) {
        self.buffer.as_mut()[field::DESTINATION_PORT].copy_from_slice(&port.to_be_bytes());
    }

    /// Sets the octets of header and payload.
    #[inline]
    pub fn set_length(&mut self, length: u16) {
        self.buffer.as_mut()[field::LENGTH].copy_from_slice(&length.to_be_bytes());
    }

    /// Sets the checksum; 0 means none.
    #[inline]
    pub fn set_checksum(&mut self, check: u16) {
        self.buffer.as_mut()[field::CHECKSUM].copy_from_slice(&check.to_be_bytes());
    }

    /// Computes the checksum over header and payload and sets it; a computed zero becomes `0xffff`.
    #[inline]
    pub fn fill_checksum(&mut self, pseudo: &PseudoHeader) {
        self.set_checksum(0);
        let check = checksum::finish_udp(self.sum(pseudo));
        self.set_checksum(check);
    }

    /// What the datagram carries, as far as it is there.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = self.length();
        cut_mut(self.buffer.as_mut(), HEADER_LEN, end)
    }
}

/// The meaning of a UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpRepr {
    /// Source port; 0 where no answer is wanted.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Octets of the payload.
    pub payload_len: usize,
}

impl UdpRepr {
    /// Octets of the header that [`emit`](Self::emit) writes.
    pub const HEADER_LEN: usize = HEADER_LEN;

    /// Reads and checks the header. A datagram over IPv4 may come without checksum (RFC 768); over IPv6 it
    /// may not (RFC 8200, section 8.1).
    ///
    /// # Errors
    /// [`WireError::UdpLength`], [`WireError::UdpBeyondPacket`], [`WireError::UdpNoChecksum`],
    /// [`WireError::UdpChecksum`].
    pub fn parse<T: AsRef<[u8]>>(datagram: &Udp<T>, pseudo: &PseudoHeader) -> Result<Self, WireError> {
        let payload_len = datagram.length().checked_sub(HEADER_LEN).ok_or(WireError::UdpLength)?;
        if datagram.length() > datagram.bytes().len() {
            return Err(WireError::UdpBeyondPacket);
        }
        if datagram.checksum() == 0 {
            if matches!(pseudo, PseudoHeader::V6 { .. }) {
                return Err(WireError::UdpNoChecksum);
            }
        } else if !datagram.is_checksum_valid(pseudo) {
            return Err(WireError::UdpChecksum);
        }
        Ok(Self {
            source_port: datagram.source_port(),
            destination_port: datagram.destination_port(),
            payload_len,
        })
    }

    /// Writes the header, its checksum last: the payload must already stand behind it. Over IPv4,
    /// [`set_checksum(0)`](Udp::set_checksum) afterwards takes the checksum off again.
    ///
    /// # Errors
    /// [`WireError::PacketTooLong`] where header and payload exceed 65,535 octets,
    /// [`WireError::BufferTooSmall`] where they do not fit.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        datagram: &mut Udp<T>,
        pseudo: &PseudoHeader,
    ) -> Result<(), WireError> {
        let length = u16::try_from(self.payload_len.saturating_add(HEADER_LEN))
            .map_err(|_| WireError::PacketTooLong)?;
        if datagram.bytes().len() < usize::from(length) {
            return Err(WireError::BufferTooSmall);
        }
        datagram.set_source_port(self.source_port);
        datagram.set_destination_port(self.destination_port);
        datagram.set_length(length);
        datagram.fill_checksum(pseudo);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::golden;
    use crate::wire::ipv4::Ipv4;
    use crate::wire::ipv6::Ipv6;
    use proptest::prelude::*;

    fn golden_v4() -> (Vec<u8>, PseudoHeader) {
        let packet = Ipv4::new_checked(golden::payload(golden::UDP)).unwrap();
        let pseudo = PseudoHeader::V4 { source: packet.source(), destination: packet.destination() };
        (packet.payload().to_vec(), pseudo)
    }

    fn golden_v6() -> (Vec<u8>, PseudoHeader) {
        let packet = Ipv6::new_checked(golden::payload(golden::UDP6)).unwrap();
        let pseudo = PseudoHeader::V6 { source: packet.source(), destination: packet.destination() };
        (packet.payload().to_vec(), pseudo)
    }

    #[test]
    fn golden_datagrams() {
        for ((bytes, pseudo), source_port) in [(golden_v4(), 0x1234), (golden_v6(), 0x1235)] {
            let datagram = Udp::new_checked(&bytes).unwrap();
            let repr = UdpRepr::parse(&datagram, &pseudo).unwrap();
            assert_eq!(repr, UdpRepr { source_port, destination_port: 33434, payload_len: 5 });
            assert_eq!(datagram.payload(), b"hello");

            let mut copy = bytes.clone();
            copy[..HEADER_LEN].fill(0xff);
            repr.emit(&mut Udp::new_unchecked(&mut copy), &pseudo).unwrap();
            assert_eq!(copy, bytes);
        }
    }

    #[test]
    fn reasons() {
        let (good, pseudo) = golden_v4();
        let parse = |bytes: &[u8]| UdpRepr::parse(&Udp::new_checked(bytes)?, &pseudo);
        assert_eq!(parse(&good[..7]), Err(WireError::TruncatedUdp));
        assert_eq!(parse(&good[..12]), Err(WireError::UdpBeyondPacket));
        let mut bad = good.clone();
        bad[5] = 7;
        assert_eq!(parse(&bad), Err(WireError::UdpLength));
        let mut bad = good.clone();
        bad[8] ^= 1;
        assert_eq!(parse(&bad), Err(WireError::UdpChecksum));
    }

    #[test]
    fn no_checksum_is_for_ipv4_only() {
        let (mut bytes, v4) = golden_v4();
        let (_, v6) = golden_v6();
        let mut datagram = Udp::new_checked(&mut bytes).unwrap();
        datagram.set_checksum(0);
        assert!(UdpRepr::parse(&datagram, &v4).is_ok());
        assert!(!datagram.is_checksum_valid(&v4));
        assert_eq!(UdpRepr::parse(&datagram, &v6), Err(WireError::UdpNoChecksum));
    }

    #[test]
    fn a_computed_zero_is_sent_as_ones() {
        let (_, pseudo) = golden_v4();
        let mut datagram = Udp::new_unchecked([0; 10]);
        let repr = UdpRepr { source_port: 1, destination_port: 2, payload_len: 2 };
        repr.emit(&mut datagram, &pseudo).unwrap();
        // With its own check as data, the datagram adds up to zero.
        let check = datagram.checksum();
        datagram.payload_mut().copy_from_slice(&check.to_be_bytes());
        datagram.fill_checksum(&pseudo);
        assert_eq!(datagram.checksum(), 0xffff);
        assert_eq!(UdpRepr::parse(&datagram, &pseudo), Ok(repr));
    }

    #[test]
    fn too_long_or_too_small() {
        let (_, pseudo) = golden_v4();
        let repr = UdpRepr { source_port: 1, destination_port: 2, payload_len: 65_528 };
        assert_eq!(repr.emit(&mut Udp::new_unchecked([0; 8]), &pseudo), Err(WireError::PacketTooLong));
        let repr = UdpRepr { payload_len: 1, ..repr };
        assert_eq!(repr.emit(&mut Udp::new_unchecked([0; 8]), &pseudo), Err(WireError::BufferTooSmall));
    }

    proptest! {
        #[test]
        fn datagrams_round_trip(
            (source_port, destination_port, v6) in any::<(u16, u16, bool)>(),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            padding in 0usize..4,
        ) {
            let pseudo = if v6 { golden_v6().1 } else { golden_v4().1 };
            let repr = UdpRepr { source_port, destination_port, payload_len: payload.len() };
            let mut bytes = vec![0xff; HEADER_LEN];
            bytes.extend(&payload);
            bytes.resize(bytes.len() + padding, 0xee);
            repr.emit(&mut Udp::new_checked(&mut bytes).unwrap(), &pseudo).unwrap();
            let datagram = Udp::new_checked(&bytes).unwrap();
            prop_assert_eq!(UdpRepr::parse(&datagram, &pseudo), Ok(repr));
            prop_assert_eq!(datagram.payload(), payload);
        }

        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), length in 0u16..40) {
            let (_, pseudo) = golden_v6();
            if let Ok(mut datagram) = Udp::new_checked(&mut bytes) {
                let _ = (UdpRepr::parse(&datagram, &pseudo), datagram.payload().len());
                datagram.set_length(length);
                let _ = UdpRepr::parse(&datagram, &pseudo);
                datagram.payload_mut().fill(0);
                datagram.fill_checksum(&pseudo);
            }
        }
    }
}
