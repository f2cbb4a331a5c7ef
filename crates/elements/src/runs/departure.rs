//! The run behind a lookup: nothing odd in the annotations, no options, not too long, and one off the time to
//! live or the hop limit.
//!
//! Only the last changes anything, and nothing here tests what it changes but itself. Where the element that finishes the run
//! finds a packet odd, that change is taken back.

use std::any::Any;

use graph::runs::Sieve;
use packet::wire::ipv4::{self, MIN_HEADER_LEN};
use packet::wire::ipv6::{self, field::HOP_LIMIT};
use packet::{Annotations, IpVersion, Packet, PacketType, PlainIpv6Header, checksum};

use super::Step;

/// Merged steps of a departure, for the element that finishes it ([`Element::finish`](graph::Element::finish)).
#[derive(Clone, Debug, Default)]
pub struct Departure {
    work: Work,
    /// The last element does the rest itself.
    pub(super) finishes: bool,
}

/// What no byte is.
const NO_BYTE: u16 = 256;

#[derive(Clone, Debug)]
struct Work {
    /// Bit `n` is set if packets of type number `n` are refused.
    refused_types: u32,
    /// An annotation byte, and what must not stand there.
    annotation: (usize, u16),
    source_stays: bool,
    /// The headers that the steps are about, once one is that cares.
    version: Option<IpVersion>,
    /// Which bits of an IPv4 header's first byte count, and what they are.
    first_mask: u8,
    first_value: u8,
    /// Whether IPv6 addresses must be such that the packet may leave its link.
    may_leave_link: bool,
    /// Smallest time to live or hop limit.
    least_hops: u8,
    decrements: bool,
    most_bytes: usize,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            refused_types: 0,
            annotation: (0, NO_BYTE),
            source_stays: false,
            version: None,
            first_mask: 0,
            first_value: 0,
            may_leave_link: false,
            least_hops: 0,
            decrements: false,
            most_bytes: usize::MAX,
        }
    }
}

impl Departure {
    /// Takes steps in; false if they do not fit.
    pub(super) fn add(&mut self, steps: &[Step]) -> bool {
        steps.iter().all(|step| {
            let fits = !self.finishes;
            self.finishes |= *step == Step::Finish;
            fits && (self.finishes || self.work.add(step))
        })
    }

    /// The longest packet that leaves here, of those that nothing else is odd about: with a plain header of this version, of
    /// this type and paint, whose source stays, and that may leave its link. `None` where more is tested, or where they do
    /// not lose one off the time to live or hop limit.
    pub(super) fn most_bytes(&self, version: IpVersion, packet_type: PacketType, paint: u8) -> Option<usize> {
        let work = &self.work;
        let is_plain = work.version == Some(version)
            && work.is_usual()
            && work.refused_types >> packet_type as u32 & 1 == 0
            && u16::from(paint) != work.annotation.1
            && (version == IpVersion::V6 || ipv4::WITHOUT_OPTIONS & work.first_mask == work.first_value);
        (is_plain && self.finishes).then_some(work.most_bytes)
    }

    /// Does all of it, and `more` besides, to each ordinary packet, for the element that finishes the run: `work` is what it
    /// was given. Where `more` returns false it must not have changed the packet.
    #[inline(always)]
    pub fn finish(work: &mut dyn Any, sieve: &mut Sieve<'_>, more: impl FnMut(&mut Packet) -> bool) {
        match work.downcast_ref::<Self>() {
            Some(departure) => departure.sift_and(sieve, more),
            None => sieve.refuse(),
        }
    }

    /// Does all of it, and `more` besides, to each ordinary packet.
    #[inline(always)]
    pub(super) fn sift_and(&self, sieve: &mut Sieve<'_>, mut more: impl FnMut(&mut Packet) -> bool) {
        let work = &self.work;
        // One loop for each, so that none pays for another.
        match work.version {
            Some(IpVersion::V4) if work.is_usual() => {
                let work = UsualIpv4 {
                    refused_paint: work.annotation.1,
                    most_bytes: work.most_bytes,
                    first_mask: work.first_mask,
                    first_value: work.first_value,
                };
                sieve.each(|packet| {
                    let mut before = [0; 4];
                    if !work.handle(&self.work, packet, &mut before) {
                        return false;
                    }
                    let is_ordinary = more(packet);
                    if !is_ordinary {
                        self.work.take_back(packet, before);
                    }
                    is_ordinary
                })
            }
            Some(IpVersion::V6) => sieve.each(|packet| {
                if !work.handle_ipv6(packet) {
                    return false;
                }
                let is_ordinary = more(packet);
                if !is_ordinary {
                    work.take_back_ipv6(packet);
                }
                is_ordinary
            }),
            _ => sieve.each(|packet| {
                let mut before = [0; 4];
                if !work.handle(packet, &mut before) {
                    return false;
                }
                let is_ordinary = more(packet);
                if !is_ordinary {
                    work.take_back(packet, before);
                }
                is_ordinary
            }),
        }
    }
}

impl Work {
    fn add(&mut self, step: &Step) -> bool {
        match *step {
            Step::NotBroadcast => {
                self.refused_types |= 1 << PacketType::Broadcast as u32 | 1 << PacketType::Multicast as u32;
            }
            Step::AnnotationIsNot { place, value } => {
                if self.annotation.1 != NO_BYTE {
                    return false;
                }
                self.annotation = (place, u16::from(value));
            }
            Step::SourceStays => self.source_stays = true,
            Step::NoOptions => {
                (self.first_mask, self.first_value) = (0x0f, 5);
                return self.is_about(IpVersion::V4);
            }
            Step::MayLeaveLink => {
                self.may_leave_link = true;
                return self.is_about(IpVersion::V6);
            }
            Step::DecrementTtl => return self.add_decrement(IpVersion::V4),
            Step::DecrementHopLimit => return self.add_decrement(IpVersion::V6),
            Step::AtMost(bytes) => self.most_bytes = self.most_bytes.min(bytes),
            _ => return false,
        }
        true
    }

    fn add_decrement(&mut self, version: IpVersion) -> bool {
        let is_first = !self.decrements;
        (self.decrements, self.least_hops) = (true, 2);
        is_first && self.is_about(version)
    }

    /// Whether all steps so far can be about headers of this version.
    fn is_about(&mut self, version: IpVersion) -> bool {
        *self.version.get_or_insert(version) == version
    }

    /// Whether this is what routers do: one off the time to live, and no annotation is looked at but the paint.
    fn is_usual(&self) -> bool {
        self.decrements && (self.annotation.0 == Annotations::PAINT || self.annotation.1 == NO_BYTE)
    }

    /// Whether what does not depend on the header is ordinary.
    #[inline(always)]
    fn is_ordinary(&self, packet: &Packet) -> bool {
        let annotations = packet.annotations();
        let (place, value) = self.annotation;
        (self.refused_types >> packet.packet_type() as u32 & 1 == 0)
            & (u16::from(annotations.bytes()[place]) != value)
            & !(self.source_stays & annotations.fix_source())
            & (packet.len() <= self.most_bytes)
    }

    /// Does all of it to one packet; false, and no change, if that is odd. What its header had is left in
    /// `before`.
    #[inline(always)]
    fn handle(&self, packet: &mut Packet, before: &mut [u8; 4]) -> bool {
        if !packet.begins_with_network_header() {
            return false;
        }
        let ordinary = self.is_ordinary(packet);
        let Some(header) = packet.data_mut().first_chunk_mut::<MIN_HEADER_LEN>() else { return false };
        let is_other = header[ipv4::field::VERSION_IHL] & self.first_mask != self.first_value;
        if !ordinary | is_other | (header[ipv4::field::TTL] < self.least_hops) {
            return false;
        }
        if self.decrements
            && let Some(header) = header.first_chunk_mut()
        {
            *before = checksum::decrement_ttl(header);
        }
        true
    }

    /// Puts back what was in the header.
    #[cold]
    fn take_back(&self, packet: &mut Packet, before: [u8; 4]) {
        if self.decrements
            && let Some(header) = packet.data_mut().first_chunk_mut::<{ ipv4::field::CHECKSUM.end }>()
            && let Some(place) = header.last_chunk_mut()
        {
            *place = before;
        }
    }

    /// [`handle`](Self::handle) for IPv6.
    #[inline(always)]
    fn handle_ipv6(&self, packet: &mut Packet) -> bool {
        if !packet.begins_with_network_header() {
            return false;
        }
        let ordinary = self.is_ordinary(packet);
        let Some(header) = packet.data_mut().first_chunk_mut::<{ ipv6::HEADER_LEN }>() else { return false };
        let stays = self.may_leave_link && !PlainIpv6Header::new(header).may_leave_link();
        if !ordinary | stays | (header[HOP_LIMIT] < self.least_hops) {
            return false;
        }
        header[HOP_LIMIT] -= u8::from(self.decrements);
        true
    }

    /// [`take_back`](Self::take_back) for IPv6.
    #[cold]
    fn take_back_ipv6(&self, packet: &mut Packet) {
        if let Some(hop_limit) = packet.data_mut().get_mut(HOP_LIMIT) {
            *hop_limit += u8::from(self.decrements);
        }
    }
}

/// [`Work`] of a router for IPv4, in few enough words that they stay in registers.
struct UsualIpv4 {
    refused_paint: u16,
    most_bytes: usize,
    first_mask: u8,
    first_value: u8,
}

impl UsualIpv4 {
    /// [`Work::handle`].
    #[inline(always)]
    fn handle(&self, work: &Work, packet: &mut Packet, before: &mut [u8; 4]) -> bool {
        let annotations = packet.annotations();
        // A packet to us whose source stays, as nearly all: nothing else to look at.
        let is_plain = packet.packet_type() == PacketType::Host && !annotations.fix_source();
        if !packet.begins_with_network_header()
            || !(is_plain || work.is_ordinary(packet))
            || u16::from(annotations.paint()) == self.refused_paint
            || packet.len() > self.most_bytes
        {
            return false;
        }
        let Some(header) = packet.data_mut().first_chunk_mut::<MIN_HEADER_LEN>() else { return false };
        if header[ipv4::field::VERSION_IHL] & self.first_mask != self.first_value
            || header[ipv4::field::TTL] < 2
        {
            return false;
        }
        let Some(header) = header.first_chunk_mut() else { return false };
        *before = checksum::decrement_ttl(header);
        true
    }
}
