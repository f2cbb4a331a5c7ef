//! Divides a packet in which several are merged into those that it is on a link, as Linux's `tcp_gso_segment` and
//! `__udp_gso_segment` do.
//!
//! Each piece has the headers of the merged packet with what differs: lengths, the IPv4 identification (one more each), the
//! sequence number of TCP, its flags (FIN and PSH are the last one's, CWR the first one's: RFC 3168, 6.1.2), checksums.

use crate::checksum::{combine, finish, finish_udp, sum};
use crate::frame::{Merged, Packet};
use crate::pool::Pool;

/// FIN and PSH of TCP's flags (RFC 9293, 3.1).
const LAST_ONES: u8 = 0x09;
/// CWR (RFC 3168).
const FIRST_ONES: u8 = 0x80;
const FLAGS_AT: usize = 13;
const SEQUENCE_AT: usize = 4;

/// Why a packet cannot be divided: its headers are not what [`Merged`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMerged;

/// The protocol of a merged packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Segments of TCP.
    Tcp,
    /// Datagrams of UDP.
    Udp,
}

impl Transport {
    /// Its number in IP headers.
    const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// Where the checksum is in its header.
    pub const fn checksum_at(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }
}

/// The number of what follows an IPv6 header and its extension headers, which end where `headers` does (RFC 8200, 4). None if they do not,
/// or if one of them is another than of options or routing.
fn last_next_header(headers: &[u8]) -> Option<u8> {
    const OF_EIGHTS: [u8; 3] = [0, 43, 60];
    let (mut next, mut at) = (*headers.get(6)?, 40);
    while at < headers.len() {
        let [following, eights] = *headers.get(at..)?.first_chunk()?;
        if !OF_EIGHTS.contains(&next) {
            return None;
        }
        (next, at) = (following, at + 8 + usize::from(eights) * 8);
    }
    (at == headers.len()).then_some(next)
}

/// The headers of a merged packet, looked at.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    /// Positions from the start of the data.
    network: usize,
    transport: usize,
    payload: usize,
    is_ipv4: bool,
    protocol: Transport,
}

impl Headers {
    /// Looks at the headers of a frame that begins where positions count from.
    ///
    /// # Errors
    ///
    /// They are none of a packet of TCP or UDP that reaches to the end of the frame.
    pub fn of(
        frame: &[u8],
        network: usize,
        transport: usize,
        protocol: Transport,
    ) -> Result<Self, BadMerged> {
        let header = frame.get(network..transport).ok_or(BadMerged)?;
        let behind = frame.get(transport..).ok_or(BadMerged)?;
        let is_ipv4 = match header.first().ok_or(BadMerged)? >> 4 {
            4 if header.len() >= 20 && header.len() == usize::from(header[0] & 0xf) * 4 => true,
            6 if header.len() >= 40 => false,
            _ => return Err(BadMerged),
        };
        let number = if is_ipv4 { header[9] } else { last_next_header(header).ok_or(BadMerged)? };
        if number != protocol.number() {
            // Something else lies between: a tunnel's inner packets are merged.
            return Err(BadMerged);
        }
        let length = match is_ipv4 {
            true => usize::from(u16::from_be_bytes([header[2], header[3]])),
            false => 40 + usize::from(u16::from_be_bytes([header[4], header[5]])),
        };
        let header_bytes = match protocol {
            Transport::Tcp => usize::from(behind.get(12).ok_or(BadMerged)? >> 4) * 4,
            Transport::Udp => 8,
        };
        let least = if protocol == Transport::Tcp { 20 } else { 8 };
        let payload = transport + header_bytes;
        let is_fragment = is_ipv4 && u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        let is_right = header_bytes >= least && network + length == frame.len() && payload < frame.len();
        if !is_right || is_fragment {
            return Err(BadMerged);
        }
        Ok(Self { network, transport, payload, is_ipv4, protocol })
    }

    /// The same of a merged packet, from the start of its data, which begins with the IP header or before.
    ///
    /// # Errors
    ///
    /// As [`Headers::of`].
    pub fn of_merged(packet: &Packet, merged: Merged) -> Result<Self, BadMerged> {
        let from_data =
            |position: u16| usize::from(position).checked_sub(packet.data_offset()).ok_or(BadMerged);
        let (network, transport) = (from_data(merged.network)?, from_data(merged.transport)?);
        // TCP's header is longer than UDP's.
        let is_udp = merged.payload.saturating_sub(merged.transport) == 8;
        let protocol = if is_udp { Transport::Udp } else { Transport::Tcp };
        let headers = Self::of(packet.data(), network, transport, protocol)?;
        if headers.payload + packet.data_offset() == usize::from(merged.payload) {
            Ok(headers)
        } else {
            Err(BadMerged)
        }
    }

    /// Where what is divided begins.
    pub fn payload(&self) -> usize {
        self.payload
    }

    /// Where the IP header is.
    pub fn network(&self) -> usize {
        self.network
    }

    /// Where the transport header is.
    pub fn transport(&self) -> usize {
        self.transport
    }

    /// The protocol.
    pub fn protocol(&self) -> Transport {
        self.protocol
    }

    /// Whether the packet is of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.is_ipv4
    }

    /// The sum of the pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1) for so many bytes from the transport header on.
    pub fn pseudo_sum(&self, frame: &[u8], bytes: usize) -> u16 {
        let header = &frame[self.network..];
        let addresses = if self.is_ipv4 { sum(&header[12..20]) } else { sum(&header[8..40]) };
        let protocol = self.protocol.number().into();
        let length = combine((bytes >> 16) as u16, bytes as u16);
        combine(combine(addresses, protocol), length)
    }
}

/// Divides a merged packet: calls `take` with each piece, in their order, as long as the pool has frames for them. Returns how many
/// pieces there were none for.
///
/// # Errors
///
/// The packet's headers are not what it says, or too long for a frame of the pool.
pub fn divide(pool: &mut Pool, packet: &Packet, mut take: impl FnMut(Packet)) -> Result<u64, BadMerged> {
    let merged = packet.merged().ok_or(BadMerged)?;
    let headers = Headers::of_merged(packet, merged)?;
    let (data, piece_bytes) = (packet.data(), usize::from(merged.piece_bytes));
    let (front, divided) = data.split_at(headers.payload);
    let pieces = divided.len().div_ceil(piece_bytes);
    if headers.payload + piece_bytes > pool.data_bytes() {
        return Err(BadMerged);
    }
    for (number, payload) in divided.chunks(piece_bytes).enumerate() {
        let Some(mut piece) = pool.allocate() else { return Ok((pieces - number) as u64) };
        if !piece.head_of(packet, front.len(), payload.len()) {
            pool.free_packet(piece);
            return Err(BadMerged);
        }
        let copy = piece.data_mut();
        copy[headers.payload..].copy_from_slice(payload);
        finish_piece(copy, &headers, number, number * piece_bytes, number + 1 == pieces);
        take(piece);
    }
    Ok(0)
}

/// Divides a merged frame that is in no packet, as [`divide`] does.
///
/// # Errors
///
/// The headers are too long for a frame of the pool.
pub fn divide_frame(
    pool: &mut Pool,
    frame: &[u8],
    headers: &Headers,
    piece_bytes: usize,
    mut take: impl FnMut(Packet),
) -> Result<u64, BadMerged> {
    let (front, divided) = frame.split_at_checked(headers.payload).ok_or(BadMerged)?;
    let pieces = divided.len().div_ceil(piece_bytes.max(1));
    for (number, payload) in divided.chunks(piece_bytes.max(1)).enumerate() {
        let Some(mut piece) = pool.allocate() else { return Ok((pieces - number) as u64) };
        let Some(copy) = piece.reset(front.len() + payload.len()) else {
            pool.free_packet(piece);
            return Err(BadMerged);
        };
        copy[..front.len()].copy_from_slice(front);
        copy[front.len()..].copy_from_slice(payload);
        finish_piece(copy, headers, number, number * piece_bytes, number + 1 == pieces);
        take(piece);
    }
    Ok(0)
}

/// Writes what is a piece's own into its headers. It is number `number`, and begins so many bytes into what is divided.
fn finish_piece(frame: &mut [u8], headers: &Headers, number: usize, offset: usize, is_last: bool) {
    let length = (frame.len() - headers.network) as u16;
    let transport_bytes = frame.len() - headers.transport;
    if headers.is_ipv4 {
        let header = &mut frame[headers.network..headers.transport];
        header[2..4].copy_from_slice(&length.to_be_bytes());
        let identification = u16::from_be_bytes([header[4], header[5]]).wrapping_add(number as u16);
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[10..12].fill(0);
        let check = finish(sum(header));
        header[10..12].copy_from_slice(&check.to_be_bytes());
    } else {
        frame[headers.network + 4..headers.network + 6].copy_from_slice(&(length - 40).to_be_bytes());
    }
    let transport = &mut frame[headers.transport..];
    match headers.protocol {
        Transport::Tcp => {
            let place = SEQUENCE_AT..SEQUENCE_AT + 4;
            let sequence = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            transport[place].copy_from_slice(&sequence.wrapping_add(offset as u32).to_be_bytes());
            if !is_last {
                transport[FLAGS_AT] &= !LAST_ONES;
            }
            if number > 0 {
                transport[FLAGS_AT] &= !FIRST_ONES;
            }
        }
        Transport::Udp => transport[4..6].copy_from_slice(&(transport_bytes as u16).to_be_bytes()),
    }
    let at = headers.transport + headers.protocol.checksum_at();
    frame[at..at + 2].fill(0);
    let total = combine(headers.pseudo_sum(frame, transport_bytes), sum(&frame[headers.transport..]));
    let check = if headers.protocol == Transport::Udp { finish_udp(total) } else { finish(total) };
    frame[at..at + 2].copy_from_slice(&check.to_be_bytes());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// An IPv6 frame without a link header, with these headers between and so many bytes behind.
    fn ipv6(next: u8, between: &[u8], behind: usize) -> Vec<u8> {
        let length = (between.len() + behind) as u16;
        let mut frame = vec![0x60, 0, 0, 0];
        frame.extend(length.to_be_bytes());
        frame.extend([next, 64]);
        frame.extend([1; 32]);
        frame.extend(between);
        frame.extend(vec![0x50; behind]);
        frame
    }

    #[test]
    fn what_lies_between_the_headers_is_known_or_the_packet_is_not_taken() {
        let is = |next: u8, between: &[u8], protocol, right: bool| {
            let frame = ipv6(next, between, 100);
            let found = Headers::of(&frame, 0, 40 + between.len(), protocol);
            assert_eq!(found.is_ok(), right, "{next} {between:?} {protocol:?}");
        };
        is(6, &[], Transport::Tcp, true);
        is(17, &[], Transport::Udp, true);
        is(17, &[], Transport::Tcp, false);
        // Options, and routing behind them.
        is(60, &[6, 0, 1, 4, 0, 0, 0, 0], Transport::Tcp, true);
        is(0, &[43, 0, 1, 4, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0], Transport::Tcp, true);
        // One that reaches further, a fragment, ESP, and a tunnel's inner header of IPv6.
        is(60, &[6, 1, 1, 4, 0, 0, 0, 0], Transport::Tcp, false);
        is(44, &[6, 0, 0, 0, 0, 0, 0, 1], Transport::Tcp, false);
        is(50, &[6, 0, 0, 0, 0, 0, 0, 1], Transport::Tcp, false);
        is(41, &ipv6(6, &[], 0), Transport::Tcp, false);
    }

    #[test]
    fn tunnels_and_fragments_of_ipv4_are_not_taken() {
        let mut frame = vec![0x45, 0, 0, 120, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        frame.extend(vec![0x50; 100]);
        let is_right = |frame: &[u8]| Headers::of(frame, 0, 20, Transport::Tcp).is_ok();
        assert!(is_right(&frame));
        for (place, value) in [(9, 4), (9, 47), (6, 0x20), (7, 1), (0, 0x46), (3, 119), (32, 0x40)] {
            let mut wrong = frame.clone();
            wrong[place] = value;
            assert!(!is_right(&wrong), "{place} {value}");
        }
        assert!(!is_right(&frame[..19]) && !is_right(&frame[..40]) && !is_right(&[]));
    }

    proptest::proptest! {
        /// A frame of any bytes is divided whole, or refused.
        #[test]
        fn any_frame_is_divided_whole_or_refused(
            mut frame in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
            is_ipv4: bool,
            is_tcp: bool,
            options in 0_usize..4,
            piece_bytes in 1_usize..200,
            is_left: bool,
        ) {
            // Most are nearly right.
            let transport = if is_ipv4 { 20 } else { 40 };
            let protocol = if is_tcp { Transport::Tcp } else { Transport::Udp };
            if !is_left && frame.len() > 110 {
                let length = frame.len() as u16;
                if is_ipv4 {
                    (frame[0], frame[9]) = (0x45, protocol.number());
                    frame[2..4].copy_from_slice(&length.to_be_bytes());
                    frame[6..8].fill(0);
                } else {
                    (frame[0], frame[6]) = (0x60, protocol.number());
                    frame[4..6].copy_from_slice(&(length - 40).to_be_bytes());
                }
                frame[transport + 12] = ((5 + options) << 4) as u8;
            }
            let Ok(headers) = Headers::of(&frame, 0, transport, protocol) else { return Ok(()) };
            let mut pool = Pool::new(crate::PoolOptions { frames: 512, data_bytes: 256 }).unwrap();
            let (front, divided) = frame.split_at(headers.payload());
            let mut pieces = Vec::new();
            let fits = front.len() + piece_bytes.min(divided.len()) <= pool.data_bytes();
            let outcome = divide_frame(&mut pool, &frame, &headers, piece_bytes, |piece| pieces.push(piece));
            proptest::prop_assert_eq!(outcome.is_ok(), fits);
            if !fits {
                return Ok(());
            }
            proptest::prop_assert_eq!(outcome, Ok(0));
            let behind = |piece: &Packet| piece.data()[front.len()..].to_vec();
            proptest::prop_assert_eq!(pieces.iter().flat_map(behind).collect::<Vec<u8>>(), divided);
            for piece in &pieces {
                let data = piece.data();
                let total = combine(headers.pseudo_sum(data, data.len() - transport), sum(&data[transport..]));
                proptest::prop_assert_eq!(total, 0xffff);
                proptest::prop_assert!(!is_ipv4 || sum(&data[..20]) == 0xffff);
            }
        }
    }
}
