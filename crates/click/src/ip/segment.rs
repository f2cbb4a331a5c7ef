//! What the marked IP header of a packet carries, for those that compute the checksum over it.

use packet::Packet;
use packet::wire::PseudoHeader;

/// Why there is none.
pub(super) const NO_HEADER: &str = "no IP header";
/// Why it cannot be had in whole.
pub(super) const BAD_LENGTH: &str = "bad packet length";

/// The bytes behind an IP header, as many as its total length says, and what their checksum covers besides them.
pub(super) struct Segment<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) pseudo: PseudoHeader,
}

impl<'a> Segment<'a> {
    pub(super) fn of(packet: &'a mut Packet) -> Result<Self, &'static str> {
        let network = packet.network_mut().ok_or(NO_HEADER)?;
        let header = *network.first_chunk::<20>().ok_or(NO_HEADER)?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header_len < 20 {
            return Err(NO_HEADER);
        }
        let bytes = network.get_mut(header_len..total).ok_or(BAD_LENGTH)?;
        let address = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]].into();
        let pseudo = PseudoHeader::V4 { source: address(12), destination: address(16) };
        Ok(Self { bytes, pseudo })
    }
}
