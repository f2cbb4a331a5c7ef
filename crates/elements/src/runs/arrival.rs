//! The run before a lookup: compare the first bytes, set type and paint, strip the link header, check the IP
//! header.
//!
//! All offsets are counted from the start of the data as it arrives; what was stripped by an earlier step is
//! added. No step changes what a later one tests, so the order among them does not matter.
//!
//! A packet is changed once it has passed all tests, so an odd one is as it was.

use std::sync::Arc;

use graph::runs::{Crossing, Sieve};
use packet::wire::ethernet::HEADER_LEN as IN_FRAME;
use packet::wire::ipv4::{self, MIN_HEADER_LEN as IP_HEADER};
use packet::wire::ipv6;
use packet::{Annotations, Family, Packet, PacketType, PlainFrames, PlainHeader, PlainIpv6Header, Vectors};

use super::{BadSources, Step, crossing};

/// Bytes of the packet that are compared: an Ethernet header and two more.
const COMPARED: usize = 16;

/// Version and length of an IPv4 header without options, and which of these bits count.
const PLAIN: (u8, u8) = (0xff, ipv4::WITHOUT_OPTIONS);

/// The same for IPv6, where there is only the version.
const PLAIN_6: (u8, u8) = (0xf0, 0x60);

/// Merged steps.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// Shortest packet.
    least: usize,
    /// The first bytes as a little-endian number: which bits count, and what they are.
    mask: u128,
    value: u128,
    set_type: Option<PacketType>,
    set_annotation: Option<(usize, u8)>,
    strip: usize,
    ip: Option<Ip>,
}

/// The check of the IP header.
#[derive(Clone, Debug)]
struct Ip {
    offset: usize,
    check: Check,
}

#[derive(Clone, Debug)]
enum Check {
    V4 { checksum: bool, sources: Arc<BadSources<u32>> },
    V6 { sources: Arc<BadSources<u128>> },
}

impl Default for Arrival {
    fn default() -> Self {
        let (set_type, set_annotation, ip) = (None, None, None);
        Self { least: COMPARED, mask: 0, value: 0, set_type, set_annotation, strip: 0, ip }
    }
}

impl Arrival {
    /// Takes steps in; false if they do not fit.
    pub(super) fn add(&mut self, steps: &[Step]) -> bool {
        steps.iter().all(|step| self.add_step(step))
    }

    fn add_step(&mut self, step: &Step) -> bool {
        match *step {
            // What the check cuts off could be tested no more.
            Step::AtLeast(_) | Step::Match { .. } if self.ip.is_some() => return false,
            Step::AtLeast(bytes) => self.least = self.least.max(self.strip + bytes),
            Step::Match { offset, mask, value } => return self.add_match(self.strip + offset, mask, value),
            Step::SetType(packet_type) => self.set_type = Some(packet_type),
            Step::SetAnnotation { place, value } => {
                // The check sets the destination; who comes first would matter.
                let is_destination = place < Annotations::DESTINATION + 16;
                if is_destination || self.set_annotation.is_some_and(|(known, _)| known != place) {
                    return false;
                }
                self.set_annotation = Some((place, value));
            }
            Step::Strip(bytes) => {
                self.strip += bytes;
                self.least = self.least.max(self.strip);
                return self.ip.as_ref().is_none_or(|ip| self.strip <= ip.offset);
            }
            Step::CheckIp(ref of) => {
                let check = Check::V4 { checksum: of.checksum, sources: of.sources.clone() };
                return self.add_ip(of.offset, check);
            }
            Step::CheckIp6(ref check) => {
                return self.add_ip(check.offset, Check::V6 { sources: check.sources.clone() });
            }
            _ => return false,
        }
        true
    }

    fn add_match(&mut self, offset: usize, mask: u32, value: u32) -> bool {
        if offset + 4 > COMPARED {
            return false;
        }
        let place = |bits: u32| u128::from(bits.swap_bytes()) << (8 * offset);
        let (mask, value) = (place(mask), place(value));
        // Two elements that want different bits have no packet in common.
        if (self.value ^ value) & self.mask & mask != 0 {
            return false;
        }
        self.mask |= mask;
        self.value |= value;
        true
    }

    fn add_ip(&mut self, offset: usize, check: Check) -> bool {
        if self.ip.is_some() {
            return false;
        }
        let offset = self.strip + offset;
        let (length, (mask, value)) = match check {
            Check::V4 { .. } => (IP_HEADER, PLAIN),
            Check::V6 { .. } => (ipv6::HEADER_LEN, PLAIN_6),
        };
        self.least = self.least.max(offset + length);
        self.ip = Some(Ip { offset, check });
        // Where the first byte of the header is compared anyway, it is compared with the others.
        let word = (COMPARED - 4).min(offset);
        let shift = 24_u32.checked_sub(8 * (offset - word) as u32);
        shift.is_none_or(|shift| self.add_match(word, u32::from(mask) << shift, u32::from(value) << shift))
    }

    /// Does all of it to each ordinary packet.
    #[inline]
    pub(super) fn sift(&self, sieve: &mut Sieve<'_>) {
        match &self.ip {
            Some(ip) => match &ip.check {
                Check::V4 { checksum: true, sources } => match self.usual::<{ IN_FRAME + IP_HEADER }>(ip) {
                    Some(usual) => sieve.each(|packet| {
                        usual.is_expected::<{ IN_FRAME + IP_HEADER }>(packet)
                            && handle_ip(sources, true, IN_FRAME, IN_FRAME, packet)
                            && usual.mark(packet)
                    }),
                    None => {
                        self.sift_ip(sieve, |packet| handle_ip(sources, true, self.strip, ip.offset, packet))
                    }
                },
                Check::V4 { checksum, sources } => {
                    self.sift_ip(sieve, |packet| handle_ip(sources, *checksum, self.strip, ip.offset, packet))
                }
                Check::V6 { sources } => match self.usual::<{ IN_FRAME + ipv6::HEADER_LEN }>(ip) {
                    Some(usual) => sieve.each(|packet| {
                        usual.is_expected::<{ IN_FRAME + ipv6::HEADER_LEN }>(packet)
                            && handle_ipv6(sources, IN_FRAME, IN_FRAME, packet)
                            && usual.mark(packet)
                    }),
                    None => self.sift_ip(sieve, |packet| handle_ipv6(sources, self.strip, ip.offset, packet)),
                },
            },
            None => self.sift_ip(sieve, |packet| packet.strip(self.strip)),
        }
    }

    /// The rest of the way over the lookup `element`, if this is what an input of a router usually does.
    pub(super) fn crossing(&self, element: usize) -> Option<Box<dyn Crossing>> {
        let ip = self.ip.as_ref()?;
        match &ip.check {
            Check::V4 { checksum: true, sources } => {
                let usual = self.usual::<{ IN_FRAME + IP_HEADER }>(ip)?;
                Some(Box::new(crossing::Crossing::<crossing::Ipv4>::new(usual, sources.clone(), element)))
            }
            Check::V4 { .. } => None,
            Check::V6 { sources } => {
                let usual = self.usual::<{ IN_FRAME + ipv6::HEADER_LEN }>(ip)?;
                Some(Box::new(crossing::Crossing::<crossing::Ipv6>::new(usual, sources.clone(), element)))
            }
        }
    }

    /// What an input of a router usually does, if this is that: an IP header that ends `FRAME` bytes into an Ethernet frame, of
    /// which the Ethernet header is taken off, and both marks set.
    fn usual<const FRAME: usize>(&self, ip: &Ip) -> Option<Usual> {
        let is_frame = ip.offset == IN_FRAME && self.strip == IN_FRAME && self.least == FRAME;
        let (place, paint) = self.set_annotation?;
        let type_bits = match self.set_type {
            None => 0xff,
            Some(PacketType::Host) => 0,
            Some(_) => return None,
        };
        (is_frame && place == Annotations::PAINT).then_some(Usual {
            mask: self.mask,
            value: self.value,
            type_bits,
            paint,
        })
    }

    #[inline(always)]
    fn sift_ip(&self, sieve: &mut Sieve<'_>, handle: impl Fn(&mut Packet) -> bool) {
        sieve.each(|packet| {
            if !self.compare_any(packet.data()) || !handle(packet) {
                return false;
            }
            if let Some(packet_type) = self.set_type {
                packet.set_packet_type(packet_type);
            }
            if let Some((place, value)) = self.set_annotation {
                packet.annotations_mut().bytes_mut()[place] = value;
            }
            true
        });
    }

    #[inline(always)]
    fn compare_any(&self, data: &[u8]) -> bool {
        data.len() >= self.least
            && data.first_chunk().is_some_and(|first| is_alike(first, self.mask, self.value))
    }
}

/// What an input of a router usually does, in few enough words that they stay in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usual {
    mask: u128,
    value: u128,
    /// The bits of the packet type that stay, when it is set to that of packets to us.
    type_bits: u8,
    pub(super) paint: u8,
}

impl Usual {
    /// Whether the first bytes of a packet of at least `FRAME` bytes are those that are expected.
    #[inline(always)]
    fn is_expected<const FRAME: usize>(&self, packet: &Packet) -> bool {
        packet.data().first_chunk::<FRAME>().is_some_and(|frame| self.is_alike(frame))
    }

    /// What [`PlainFrames`] looks for in these packets; `None` where this processor looks at packets one by one.
    pub(super) fn plain_frames<A: Family>(&self, sources: &BadSources<A>) -> Option<PlainFrames> {
        let first_bytes = (self.mask, self.value);
        PlainFrames::new(first_bytes, self.type_bits, sources.suspect_octets(), Vectors::best())
    }

    /// The same of a frame.
    #[inline(always)]
    pub(super) fn is_alike(&self, frame: &[u8]) -> bool {
        frame.first_chunk().is_some_and(|first| is_alike(first, self.mask, self.value))
    }

    /// Whether, once it has the marks, a packet is to us, and no element has wanted its source to be set.
    #[inline(always)]
    pub(super) fn is_to_us(&self, packet: &Packet) -> bool {
        packet.packet_type() as u8 & self.type_bits | u8::from(packet.annotations().fix_source()) == 0
    }

    /// Sets the marks; true.
    #[inline(always)]
    fn mark(&self, packet: &mut Packet) -> bool {
        if self.type_bits == 0 {
            packet.set_packet_type(PacketType::Host);
        }
        packet.annotations_mut().set_paint(self.paint);
        true
    }
}

#[inline(always)]
fn is_alike(first: &[u8; COMPARED], mask: u128, value: u128) -> bool {
    (u128::from_le_bytes(*first) ^ value) & mask == 0
}

/// Checks the IPv4 header at `offset`, strips so many bytes and marks it; false, and no change, if it is odd.
#[inline(always)]
pub(crate) fn handle_ip(
    sources: &BadSources<u32>,
    checksum: bool,
    strip: usize,
    offset: usize,
    packet: &mut Packet,
) -> bool {
    let Some(header) = PlainHeader::at(packet.data(), offset) else { return false };
    let total = header.total_length();
    let ordinary = header.is_plain()
        && (!checksum || header.checksum_is_right())
        && !sources.has(header.source())
        && total >= IP_HEADER
        && packet.cut_to_network(strip, offset, IP_HEADER, offset + total);
    if ordinary {
        packet.annotations_mut().set_destination_ip(header.destination());
    }
    ordinary
}

/// The same with an IPv6 header.
#[inline(always)]
pub(crate) fn handle_ipv6(
    sources: &BadSources<u128>,
    strip: usize,
    offset: usize,
    packet: &mut Packet,
) -> bool {
    let Some(header) = PlainIpv6Header::at(packet.data(), offset) else { return false };
    let end = offset + header.total_length();
    let ordinary = header.is_ipv6()
        && header.has_plain_addresses()
        && !header.next_header().is_ipv6_extension()
        && !sources.has(header.source())
        && packet.cut_to_network(strip, offset, ipv6::HEADER_LEN, end);
    if ordinary {
        packet.annotations_mut().set_destination_ip6(header.destination());
    }
    ordinary
}
