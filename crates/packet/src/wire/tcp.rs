//! TCP (RFC 9293) headers. A router reads segments; it keeps no connections.

use std::fmt;

use super::{IpProtocol, PseudoHeader, WireError, cut, cut_mut, read_u16, read_u32};
use crate::checksum;

/// Octets of a header without options.
pub const MIN_HEADER_LEN: usize = 20;
/// Octets of the longest header.
pub const MAX_HEADER_LEN: usize = 60;

mod field {
    use crate::wire::Field;
    pub(super) const SOURCE_PORT: Field = 0..2;
    pub(super) const DESTINATION_PORT: Field = 2..4;
    pub(super) const SEQUENCE: Field = 4..8;
    pub(super) const ACKNOWLEDGMENT: Field = 8..12;
    pub(super) const OFFSET_FLAGS: Field = 12..14;
    pub(super) const WINDOW: Field = 14..16;
    pub(super) const CHECKSUM: Field = 16..18;
    pub(super) const URGENT: Field = 18..20;
}

/// The control bits of a segment: the low 12 bits, of which the 3 highest are reserved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u16);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x001);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x002);
    /// Reset the connection.
    pub const RST: Self = Self(0x004);
    /// Push function.
    pub const PSH: Self = Self(0x008);
    /// The acknowledgment field counts.
    pub const ACK: Self = Self(0x010);
    /// The urgent field counts.
    pub const URG: Self = Self(0x020);
    /// Congestion experienced echo (RFC 3168).
    pub const ECE: Self = Self(0x040);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x080);
    /// Accurate ECN (RFC 9768).
    pub const AE: Self = Self(0x100);

    const MASK: u16 = 0x0fff;

    /// Whether all of `flags` are set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl std::ops::BitOr for TcpFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for TcpFlags {
    /// Letters as `tcpdump` and Click's `IPPrint` write them, such as `S` or `PA`; `.` for none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str(".");
        }
        for (bit, letter) in "FSRPAUEWN".chars().enumerate() {
            if self.0 & 1 << bit != 0 {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

view! {
    /// A view of a TCP segment: exactly the payload of its IP packet, without link-layer padding, as TCP has
    /// no length field of its own.
    Tcp
}

impl<T: AsRef<[u8]>> Tcp<T> {
    /// The one length check: the header, options included, is at least 20 octets and lies within the bytes.
    ///
    /// # Errors
    /// [`WireError::TruncatedTcp`], [`WireError::TcpDataOffset`], [`WireError::TcpHeaderBeyondPacket`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        if self.bytes().len() < MIN_HEADER_LEN {
            return Err(WireError::TruncatedTcp);
        }
        if self.header_len() < MIN_HEADER_LEN {
            return Err(WireError::TcpDataOffset);
        }
        if self.header_len() > self.bytes().len() {
            return Err(WireError::TcpHeaderBeyondPacket);
        }
        Ok(())
    }

    /// Source port.
    #[inline]
    pub fn source_port(&self) -> u16 {
        read_u16(self.bytes(), field::SOURCE_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        read_u16(self.bytes(), field::DESTINATION_PORT)
    }

    /// Sequence number of the first octet of data; of the SYN itself where there is one.
    #[inline]
    pub fn sequence(&self) -> u32 {
        read_u32(self.bytes(), field::SEQUENCE)
    }

    /// The next sequence number that the sender expects, where [`TcpFlags::ACK`] is set.
    #[inline]
    pub fn acknowledgment(&self) -> u32 {
        read_u32(self.bytes(), field::ACKNOWLEDGMENT)
    }

    /// Octets of the header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(read_u16(self.bytes(), field::OFFSET_FLAGS) >> 12) * 4
    }

    /// Control bits.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags(read_u16(self.bytes(), field::OFFSET_FLAGS) & TcpFlags::MASK)
    }

    /// Receive window, in octets before scaling.
    #[inline]
    pub fn window(&self) -> u16 {
        read_u16(self.bytes(), field::WINDOW)
    }

    /// Checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        read_u16(self.bytes(), field::CHECKSUM)
    }

    /// Where urgent data ends, counted from the sequence number, where [`TcpFlags::URG`] is set.
    #[inline]
    pub fn urgent(&self) -> u16 {
        read_u16(self.bytes(), field::URGENT)
    }

    /// Whether the checksum is right.
    #[inline]
    pub fn is_checksum_valid(&self, pseudo: &PseudoHeader) -> bool {
        self.sum(pseudo) == 0xffff
    }

    fn sum(&self, pseudo: &PseudoHeader) -> u16 {
        let bytes = self.bytes();
        checksum::combine(pseudo.sum(IpProtocol::TCP, bytes.len()), checksum::sum(bytes))
    }

    /// The octets of the options, padding included.
    #[inline]
    pub fn option_octets(&self) -> &[u8] {
        cut(self.bytes(), MIN_HEADER_LEN, self.header_len())
    }

    /// The data of the segment.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        cut(self.bytes(), self.header_len(), usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tcp<T> {
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

    /// Sets the sequence number.
    #[inline]
    pub fn set_sequence(&mut self, sequence: u32) {
        self.buffer.as_mut()[field::SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
    }

    /// Sets the acknowledgment number.
    #[inline]
    pub fn set_acknowledgment(&mut self, acknowledgment: u32) {
        self.buffer.as_mut()[field::ACKNOWLEDGMENT].copy_from_slice(&acknowledgment.to_be_bytes());
    }

    /// Sets header length (a multiple of 4 up to 60; higher bits are lost) and control bits at once.
    #[inline]
    pub fn set_header_len_and_flags(&mut self, len: usize, flags: TcpFlags) {
        let word = ((len / 4) as u16) << 12 | flags.0 & TcpFlags::MASK;
        self.buffer.as_mut()[field::OFFSET_FLAGS].copy_from_slice(&word.to_be_bytes());
    }

    /// Sets the receive window.
    #[inline]
    pub fn set_window(&mut self, window: u16) {
        self.buffer.as_mut()[field::WINDOW].copy_from_slice(&window.to_be_bytes());
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, check: u16) {
        self.buffer.as_mut()[field::CHECKSUM].copy_from_slice(&check.to_be_bytes());
    }

    /// Sets the urgent pointer.
    #[inline]
    pub fn set_urgent(&mut self, urgent: u16) {
        self.buffer.as_mut()[field::URGENT].copy_from_slice(&urgent.to_be_bytes());
    }

    /// Computes the checksum over the whole segment and sets it.
    #[inline]
    pub fn fill_checksum(&mut self, pseudo: &PseudoHeader) {
        self.set_checksum(0);
        let check = checksum::finish(self.sum(pseudo));
        self.set_checksum(check);
    }

    /// The data of the segment.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let header_len = self.header_len();
        cut_mut(self.buffer.as_mut(), header_len, usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::golden;
    use crate::wire::ipv4::Ipv4;
    use proptest::prelude::*;

    fn segment(hex: &str) -> (Vec<u8>, PseudoHeader) {
        let packet = Ipv4::new_checked(golden::payload(hex)).unwrap();
        let pseudo = PseudoHeader::V4 { source: packet.source(), destination: packet.destination() };
        (packet.payload().to_vec(), pseudo)
    }

    #[test]
    fn golden_syn() {
        let (bytes, pseudo) = segment(golden::TCP_SYN);
        let view = Tcp::new_checked(&bytes).unwrap();
        assert!(view.is_checksum_valid(&pseudo));
        assert_eq!((view.source_port(), view.destination_port()), (44536, 8080));
        assert_eq!((view.sequence(), view.acknowledgment()), (0xf71c_e871, 0));
        assert_eq!((view.flags(), view.window(), view.urgent()), (TcpFlags::SYN, 64240, 0));
        assert_eq!((view.option_octets().len(), view.payload()), (20, &b""[..]));
    }

    #[test]
    fn golden_data() {
        let (bytes, pseudo) = segment(golden::TCP_DATA);
        let view = Tcp::new_checked(&bytes).unwrap();
        assert!(view.is_checksum_valid(&pseudo));
        let flags = view.flags();
        assert_eq!(flags, TcpFlags::PSH | TcpFlags::ACK);
        assert!(flags.contains(TcpFlags::ACK) && !flags.contains(TcpFlags::ACK | TcpFlags::SYN));
        assert_eq!(format!("{:?} {:?}", flags, TcpFlags::default()), "PA .");
        assert_eq!(view.payload(), b"GET");
    }

    #[test]
    fn reasons() {
        let (good, pseudo) = segment(golden::TCP_DATA);
        let error = |bytes: &[u8]| Tcp::new_checked(bytes).map(drop).unwrap_err();
        assert_eq!(error(&good[..19]), WireError::TruncatedTcp);
        assert_eq!(error(&good[..31]), WireError::TcpHeaderBeyondPacket);
        assert!(!Tcp::new_checked(&good[..34]).unwrap().is_checksum_valid(&pseudo));
        let mut bad = good.clone();
        bad[12] = 0x40;
        assert_eq!(error(&bad), WireError::TcpDataOffset);
    }

    proptest! {
        #[test]
        fn what_is_set_is_read(
            (source_port, destination_port, sequence, acknowledgment) in any::<(u16, u16, u32, u32)>(),
            (flags, window, urgent, words) in (0u16..4096, any::<u16>(), any::<u16>(), 5usize..16),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let (_, pseudo) = segment(golden::TCP_SYN);
            let mut view = Tcp::new_unchecked(vec![0xff; words * 4]);
            view.buffer.extend(&payload);
            view.set_source_port(source_port);
            view.set_destination_port(destination_port);
            view.set_sequence(sequence);
            view.set_acknowledgment(acknowledgment);
            view.set_header_len_and_flags(words * 4, TcpFlags(flags));
            view.set_window(window);
            view.set_urgent(urgent);
            view.fill_checksum(&pseudo);
            prop_assert!(view.check_len().is_ok() && view.is_checksum_valid(&pseudo));
            prop_assert_eq!((view.source_port(), view.destination_port()), (source_port, destination_port));
            prop_assert_eq!((view.sequence(), view.acknowledgment()), (sequence, acknowledgment));
            prop_assert_eq!((view.flags(), view.window(), view.urgent()), (TcpFlags(flags), window, urgent));
            prop_assert_eq!(view.option_octets(), vec![0xff; words * 4 - 20]);
            prop_assert_eq!(view.payload(), payload);
        }

        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), words in 0usize..16) {
            let (_, pseudo) = segment(golden::TCP_SYN);
            if let Ok(mut view) = Tcp::new_checked(&mut bytes) {
                view.fill_checksum(&pseudo);
                prop_assert!(view.is_checksum_valid(&pseudo));
                view.set_header_len_and_flags(words * 4, TcpFlags::SYN);
                let _ = (view.option_octets().len(), view.payload().len());
                view.payload_mut().fill(0);
            }
        }
    }
}
