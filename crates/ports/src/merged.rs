//! Frames in which several packets of TCP or UDP are merged, as Linux has them, taken and sent whole by packet sockets.
//!
//! A slot of a receive ring holds the start of such a frame; the kernel keeps it whole, to be read from the socket
//! (PACKET_COPY_THRESH). To send, a socket of its own writes each with one call, by the interface's queueing discipline: the way
//! past that does not cut frames that the interface cannot send (`__dev_direct_xmit`). The virtio header before a frame says how
//! it is merged (`linux/virtio_net.h`).

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use packet::division::{Headers, Transport};
use packet::{Merged, Packet};
use rustix::io::Errno;

use crate::Event;
use crate::af_packet::ETHERNET_BYTES;

/// Bytes of a VLAN tag.
pub(crate) const TAG_BYTES: usize = 4;

/// Of more pieces than these a frame is divided at once: a host that sends many small ones has no others wait for frames.
pub(crate) const MOST_WHOLE: u64 = 128;

/// The longest merged frame: an IPv4 packet, and a link header with two tags.
pub(crate) const MOST_BYTES: usize = 65_535 + ETHERNET_BYTES + 3 * TAG_BYTES;

/// Bytes of a virtio network header (struct virtio_net_hdr).
pub(crate) const VIRTIO_BYTES: usize = 10;

/// The checksum of the transport header is to be computed, from a place on.
const NEEDS_CHECKSUM: u8 = 1;
/// Of `gso_type`: the segments are TCP's over IPv4 or IPv6, or UDP's; with ECN.
const TCP_OVER_IPV4: u8 = 1;
const TCP_OVER_IPV6: u8 = 4;
const UDP: u8 = 5;
const WITH_ECN: u8 = 0x80;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_VLAN: u16 = 0x8100;
const TYPE_SERVICE_VLAN: u16 = 0x88a8;

/// CWR among TCP's flags, which the kernel wants to know of (RFC 3168).
const CWR: u8 = 0x80;
const TCP_FLAGS_AT: usize = 13;

/// Most packets that are merged in one: those with 48 bytes each, Linux's smallest segments (`tcp_min_snd_mss`). Who says more has
/// another one do much work with one frame.
const MOST_PIECES: usize = 1_365;

/// What the header before a frame says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Virtio(pub(crate) [u8; VIRTIO_BYTES]);

impl Virtio {
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        Some(Self(*bytes.first_chunk()?))
    }

    pub(crate) fn number(self, at: usize) -> u16 {
        u16::from_ne_bytes([self.0[at], self.0[at + 1]])
    }

    /// Whether several packets are merged.
    pub(crate) fn is_merged(self) -> bool {
        self.0[1] != 0
    }

    /// Computes the checksum of a frame that is one packet, if it is still to be.
    pub(crate) fn complete(self, frame: &mut [u8]) {
        if self.0[0] & NEEDS_CHECKSUM != 0 {
            crate::unfinished::complete(frame, self.number(6).into(), self.number(8).into());
        }
    }

    /// Looks at the headers of a frame that is merged in the way that this says, and that was given a tag of so many bytes since. Returns them,
    /// and the bytes of a piece.
    pub(crate) fn headers(self, frame: &[u8], tag_bytes: usize) -> Result<(Headers, u16), Event> {
        let protocol = match self.0[1] & !WITH_ECN {
            TCP_OVER_IPV4 | TCP_OVER_IPV6 => Transport::Tcp,
            UDP => Transport::Udp,
            _ => return Err(Event::Offload),
        };
        let network = network_of(frame).ok_or(Event::Offload)?;
        let transport = if self.0[0] & NEEDS_CHECKSUM != 0 {
            usize::from(self.number(6)) + tag_bytes
        } else {
            // A card has checked it. Behind extension headers its place is not known.
            let first = frame.get(network).copied().unwrap_or_default();
            network + if first >> 4 == 4 { usize::from(first & 0xf) * 4 } else { 40 }
        };
        let headers = Headers::of(frame, network, transport, protocol).map_err(|_| Event::Offload)?;
        let piece_bytes = self.number(4);
        let pieces = (frame.len() - headers.payload()).div_ceil(usize::from(piece_bytes.max(1)));
        if piece_bytes == 0 || pieces > MOST_PIECES {
            Err(Event::Offload)
        } else {
            Ok((headers, piece_bytes))
        }
    }

    /// Marks a frame as merged in the way that this says; the same.
    pub(crate) fn mark(self, packet: &mut Packet, tag_bytes: usize) -> Result<(), Event> {
        let (headers, piece_bytes) = self.headers(packet.data(), tag_bytes)?;
        let from_chunk = |position: usize| (position + packet.data_offset()) as u16;
        let [network, transport, payload] =
            [headers.network(), headers.transport(), headers.payload()].map(from_chunk);
        packet.set_merged(Merged { piece_bytes, network, transport, payload });
        Ok(())
    }
}

/// Where the IP header of an Ethernet frame is, behind two tags at most.
fn network_of(frame: &[u8]) -> Option<usize> {
    let type_at = |at: usize| Some(u16::from_be_bytes(*frame.get(at - 2..)?.first_chunk()?));
    let mut at = ETHERNET_BYTES;
    while at < ETHERNET_BYTES + 2 * TAG_BYTES && matches!(type_at(at)?, TYPE_VLAN | TYPE_SERVICE_VLAN) {
        at += TAG_BYTES;
    }
    matches!(type_at(at)?, TYPE_IPV4 | TYPE_IPV6).then_some(at)
}

/// Reads the frame that the kernel has kept whole, of so many bytes, which `data` holds.
pub(crate) fn read(socket: &OwnedFd, length: usize, data: &mut [u8]) -> Result<Virtio, Event> {
    let mut header = [0; VIRTIO_BYTES];
    match take(socket, &mut header, data) {
        Ok(read) if read == VIRTIO_BYTES + length => Ok(Virtio(header)),
        Ok(_) => {
            // The queue and the ring have got out of step. Without what is in it they get into step again.
            while take(socket, &mut header, &mut []).is_ok() {}
            Err(Event::TooLong)
        }
        Err(_) => Err(Event::TooLong),
    }
}

/// Takes the frame that the kernel has kept whole out of its queue, unread.
pub(crate) fn discard(socket: &OwnedFd) {
    // There may be none.
    let _ = take(socket, &mut [0; VIRTIO_BYTES], &mut []);
}

/// Takes a frame out of the queue beside the ring. What does not fit is cut off.
fn take(socket: &OwnedFd, header: &mut [u8; VIRTIO_BYTES], data: &mut [u8]) -> Result<usize, Errno> {
    let mut read = || rustix::io::readv(socket, &mut [IoSliceMut::new(header), IoSliceMut::new(data)]);
    // A link that went down leaves an error, which the first call takes instead of a frame.
    read().or_else(|error| if error == Errno::AGAIN { Err(error) } else { read() })
}

/// Sends a merged frame whole. Returns `None` while the socket is full: the caller tries again.
pub(crate) fn send(socket: &OwnedFd, packet: &mut Packet) -> Option<Result<(), Event>> {
    let Some((header, merged)) =
        packet.merged().and_then(|merged| Some((header_of(packet, merged)?, merged)))
    else {
        return Some(Err(Event::Offload));
    };
    debug_assert!(merged.piece_bytes > 0);
    match rustix::io::writev(socket, &[IoSlice::new(&header), IoSlice::new(packet.data())]) {
        Ok(_) => Some(Ok(())),
        Err(Errno::AGAIN | Errno::INTR) => None,
        Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => Some(Err(Event::LinkDown)),
        // NOBUFS: the queueing discipline has dropped it.
        Err(_) => Some(Err(Event::Refused)),
    }
}

/// The header before a merged frame, whose transport checksum is made the sum of the pseudo-header, as the kernel wants it.
fn header_of(packet: &mut Packet, merged: Merged) -> Option<[u8; VIRTIO_BYTES]> {
    let headers = Headers::of_merged(packet, merged).ok()?;
    // The kernel looks for it behind two tags at most, and at nothing else that may stand before it.
    network_of(packet.data()).filter(|&network| network == headers.network())?;
    let (transport, protocol) = (headers.transport(), headers.protocol());
    let frame = packet.data_mut();
    let sum = headers.pseudo_sum(frame, frame.len() - transport);
    let at = transport + protocol.checksum_at();
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let has_cwr = protocol == Transport::Tcp && frame[transport + TCP_FLAGS_AT] & CWR != 0;
    let kind = match protocol {
        Transport::Udp => UDP,
        Transport::Tcp if headers.is_ipv4() => TCP_OVER_IPV4,
        Transport::Tcp => TCP_OVER_IPV6,
    };
    let mut header = [0; VIRTIO_BYTES];
    header[..2].copy_from_slice(&[NEEDS_CHECKSUM, kind | if has_cwr { WITH_ECN } else { 0 }]);
    let numbers = [headers.payload(), merged.piece_bytes.into(), transport, protocol.checksum_at()];
    for (place, number) in header[2..].chunks_exact_mut(2).zip(numbers) {
        place.copy_from_slice(&(number as u16).to_ne_bytes());
    }
    Some(header)
}
