//! The run behind a lookup: nothing odd in the annotations, no options, not too long, and one off the time to live.
//!
//! Only the last changes anything, and nothing here tests what it changes but itself. As with arrivals, packets are
//! changed as soon as they have passed, and when an odd one comes it is taken back.

use packet::{MAX_BATCH, Packet, PacketType, checksum};

use super::Step;

/// Bytes of an IPv4 header without options.
const IP_HEADER: usize = 20;

/// Merged steps of a departure, for the element that finishes it ([`Element::finish`](crate::Element::finish)).
#[derive(Clone, Debug)]
pub struct Departure {
    work: Work,
    /// The last element does the rest itself.
    pub(super) finishes: bool,
    /// Of each packet of a batch what [`checksum::decrement_ttl`] changed, in case it must be taken back.
    before: Box<[[u8; 4]; MAX_BATCH]>,
}

#[derive(Clone, Debug)]
struct Work {
    /// Bit `n` is set if packets of type number `n` are refused.
    refused_types: u32,
    /// An annotation byte, and what must not stand there; no byte is 256.
    annotation: (usize, u16),
    source_stays: bool,
    /// Which bits of a header's first byte count, and what they are.
    first_mask: u8,
    first_value: u8,
    /// Smallest time to live.
    least_ttl: u8,
    decrements: bool,
    most_bytes: usize,
}

impl Default for Departure {
    fn default() -> Self {
        let work = Work {
            refused_types: 0,
            annotation: (0, 256),
            source_stays: false,
            first_mask: 0,
            first_value: 0,
            least_ttl: 0,
            decrements: false,
            most_bytes: usize::MAX,
        };
        Self { work, finishes: false, before: Box::new([[0; 4]; MAX_BATCH]) }
    }
}

impl Departure {
    /// Takes steps in; false if they do not fit.
    pub(super) fn add(&mut self, steps: &[Step]) -> bool {
        steps.iter().all(|&step| {
            let fits = !self.finishes;
            self.finishes |= step == Step::Finish;
            fits && (self.finishes || self.work.add(step))
        })
    }

    /// Does all of it to all packets, or nothing.
    #[inline]
    pub(super) fn apply(&mut self, packets: &mut [Packet]) -> bool {
        self.apply_and(packets, |_| true, |_| ())
    }

    /// Does all of it to all packets, or nothing, and to each of them `more` besides. Where `more` says no it must not have
    /// changed anything, and `take_back` undoes what it did to the packets before. It need only undo what keeps them
    /// from being handled again.
    #[inline(always)]
    pub fn apply_and(
        &mut self,
        packets: &mut [Packet],
        mut more: impl FnMut(&mut Packet) -> bool,
        take_back: impl FnMut(&mut Packet),
    ) -> bool {
        let Self { work, before, .. } = self;
        let mut done = 0;
        for (packet, before) in packets.iter_mut().zip(before.iter_mut()) {
            if !work.handle(packet, before) {
                break;
            }
            if !more(packet) {
                work.take_back(std::slice::from_mut(packet), std::slice::from_ref(before));
                break;
            }
            done += 1;
        }
        if done == packets.len() {
            return true;
        }
        packets[..done].iter_mut().for_each(take_back);
        work.take_back(&mut packets[..done], &before[..done]);
        false
    }
}

impl Work {
    fn add(&mut self, step: Step) -> bool {
        match step {
            Step::NotBroadcast => {
                self.refused_types |= 1 << PacketType::Broadcast as u32 | 1 << PacketType::Multicast as u32;
            }
            Step::AnnotationIsNot { place, value } => {
                if self.annotation.1 < 256 {
                    return false;
                }
                self.annotation = (place, u16::from(value));
            }
            Step::SourceStays => self.source_stays = true,
            Step::NoOptions => (self.first_mask, self.first_value) = (0x0f, 5),
            Step::DecrementTtl => {
                if self.decrements {
                    return false;
                }
                (self.decrements, self.least_ttl) = (true, 2);
            }
            Step::AtMost(bytes) => self.most_bytes = self.most_bytes.min(bytes),
            _ => return false,
        }
        true
    }

    /// Does all of it to one packet; false, and no change, if that is odd. What its header had is left in `before`.
    #[inline(always)]
    fn handle(&self, packet: &mut Packet, before: &mut [u8; 4]) -> bool {
        if packet.network_offset() != Some(0) {
            return false;
        }
        let annotations = packet.annotations();
        let (place, value) = self.annotation;
        let ordinary = (self.refused_types >> packet.packet_type() as u32 & 1 == 0)
            & (u16::from(annotations.bytes()[place]) != value)
            & !(self.source_stays & annotations.fix_source())
            & (packet.len() <= self.most_bytes);
        let Some(header) = packet.data_mut().first_chunk_mut::<IP_HEADER>() else { return false };
        if !ordinary | (header[0] & self.first_mask != self.first_value) | (header[8] < self.least_ttl) {
            return false;
        }
        if self.decrements
            && let Some(header) = header.first_chunk_mut()
        {
            *before = checksum::decrement_ttl(header);
        }
        true
    }

    /// Puts back what was in the headers of these packets.
    #[cold]
    fn take_back(&self, packets: &mut [Packet], before: &[[u8; 4]]) {
        for (packet, before) in packets.iter_mut().zip(before) {
            if self.decrements
                && let Some(header) = packet.data_mut().first_chunk_mut::<12>()
                && let Some(place) = header.last_chunk_mut()
            {
                *place = *before;
            }
        }
    }
}
