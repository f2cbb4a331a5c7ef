//! From the worker that sees packets to the thread that sends them to the client: rings of records.
//!
//! All records are made beforehand. The worker takes an empty one out of one ring, fills it and puts it into the other; the reader
//! puts it back. Without an empty one the packet goes on and is counted as lost, so a slow client costs memory only once and no
//! worker waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use control::api::{FilterInstruction, PacketFilter};
use graph::context::{Observer, Place};
use packet::Packet;
use packet::filter_program::{FilterProgram, Instruction};
use packet::frame::ANNOTATION_BYTES;
use rtrb::{Consumer, Producer, RingBuffer};

use super::places::Places;
use super::sampler::Sampler;

/// Bytes of all records of one ring, about.
const RING_BYTES: usize = 4 << 20;
/// Bytes of a record beside the packet's.
const RECORD_BYTES: usize = 160;

/// A packet as it was seen.
pub(crate) struct Record {
    pub(crate) place: Place,
    /// Which of the followed packets it is.
    pub(crate) number: usize,
    /// At how many places it was seen before.
    pub(crate) step: u32,
    pub(crate) time_ns: u64,
    pub(crate) is_ethernet: bool,
    pub(crate) length: u32,
    /// How many packets it stands for, itself among them.
    pub(crate) stands_for: u64,
    /// Where it begins in its frame.
    pub(crate) offset: u32,
    pub(crate) annotations: [u8; ANNOTATION_BYTES],
    /// Its first bytes; never longer than at first, so that nothing is allocated.
    pub(crate) data: Vec<u8>,
}

/// Packets of one place.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) captured: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// The packets of each place; those that were dropped stand behind the connections.
pub(crate) type Counts = Arc<[Count]>;

/// Makes the counts of a capture.
pub(crate) fn counts(places: &Places) -> Counts {
    (0..=places.spots.len()).map(|_| Count::default()).collect()
}

/// The worker's end of the rings.
pub(crate) struct Recorder {
    empty: Consumer<Box<Record>>,
    full: Producer<Box<Record>>,
    spare: Option<Box<Record>>,
    counts: Counts,
}

/// The reader's end.
pub(crate) struct Records {
    empty: Producer<Box<Record>>,
    full: Consumer<Box<Record>>,
}

impl Records {
    /// Makes rings for packets of which so many bytes are kept.
    pub(crate) fn new(bytes: usize, counts: &Counts) -> (Recorder, Self) {
        let count = (RING_BYTES / (bytes + RECORD_BYTES)).clamp(64, 4_096);
        let (mut empty, taken) = RingBuffer::new(count);
        let (filled, full) = RingBuffer::new(count);
        for _ in 0..count {
            // Written once, so that the worker meets no page that is not there yet.
            let mut data = vec![0; bytes];
            data.clear();
            let place = Place::Edge(0);
            let annotations = [0; ANNOTATION_BYTES];
            let (step, time_ns, is_ethernet, length, stands_for, offset) = (0, 0, false, 0, 1, 0);
            let record = Record {
                place,
                number: 0,
                step,
                time_ns,
                is_ethernet,
                length,
                stands_for,
                offset,
                annotations,
                data,
            };
            // There are as many places as records.
            let _ = empty.push(Box::new(record));
        }
        let recorder = Recorder { empty: taken, full: filled, spare: None, counts: counts.clone() };
        (recorder, Self { empty, full })
    }

    /// Takes the next record; it goes back by [`Records::give_back`].
    pub(crate) fn take(&mut self) -> Option<Box<Record>> {
        self.full.pop().ok()
    }

    /// Returns a record to the worker.
    pub(crate) fn give_back(&mut self, record: Box<Record>) {
        // There are as many places as records.
        let _ = self.empty.push(record);
    }

    /// Returns whether nothing will come any more.
    pub(crate) fn is_over(&self) -> bool {
        self.full.is_abandoned() && self.full.is_empty()
    }
}

impl Recorder {
    /// Records a packet, and returns whether that was done. With `untag` the tag of its VLAN is left out. `keep` judges what was recorded.
    fn record(
        &mut self,
        seen: &Seen<'_>,
        (number, step): (usize, u32),
        untag: bool,
        keep: impl FnOnce(&Record) -> bool,
    ) -> bool {
        let index = match seen.place {
            Place::Edge(edge) => edge.min(self.counts.len() - 1),
            Place::Drop { .. } => self.counts.len() - 1,
        };
        let Some(mut record) = self.spare.take().or_else(|| self.empty.pop().ok()) else {
            self.counts[index].lost.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let data = seen.data;
        let room = record.data.capacity();
        let tag = if untag && data.get(12..14) == Some(&[0x81, 0]) { 4 } else { 0 };
        record.data.clear();
        if tag == 0 {
            record.data.extend_from_slice(&data[..data.len().min(room)]);
        } else {
            record.data.extend_from_slice(&data[..12]);
            record.data.extend(data.iter().skip(16).take(room.saturating_sub(12)));
        }
        (record.place, record.number, record.step, record.time_ns) = (seen.place, number, step, seen.time_ns);
        (record.is_ethernet, record.stands_for) = (seen.is_ethernet, seen.stands_for);
        record.length = (data.len() - tag.min(data.len())) as u32;
        (record.offset, record.annotations) =
            (seen.packet.data_offset() as u32, *seen.packet.annotations().bytes());
        if !keep(&record) {
            self.spare = Some(record);
            return false;
        }
        self.counts[index].captured.fetch_add(1, Ordering::Relaxed);
        if let Err(rtrb::PushError::Full(record)) = self.full.push(record) {
            self.spare = Some(record);
        }
        true
    }
}

/// The time, in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// A packet at a place.
struct Seen<'a> {
    place: Place,
    time_ns: u64,
    is_ethernet: bool,
    stands_for: u64,
    packet: &'a Packet,
    /// What is recorded of it.
    data: &'a [u8],
}

impl<'a> Seen<'a> {
    fn new(places: &Places, place: Place, now_ns: u64, packet: &'a Packet) -> Self {
        let is_known = match place {
            Place::Edge(edge) => places.spots.get(edge).is_some_and(|spot| spot.is_ethernet),
            Place::Drop { .. } => false,
        };
        let is_ethernet = is_known || begins_with_ethernet(packet);
        Self { place, time_ns: now_ns, is_ethernet, stands_for: 1, packet, data: packet.data() }
    }

    /// The same with the Ethernet header that lies before the packet: its own, or already that of its next hop.
    fn with_link_header(self) -> Self {
        match link_frame(self.packet).filter(|_| !self.is_ethernet) {
            Some(data) => Self { is_ethernet: true, data, ..self },
            None => self,
        }
    }
}

/// A packet with the Ethernet header that lies right before it, with up to two tags.
fn link_frame(packet: &Packet) -> Option<&[u8]> {
    let header = usize::try_from(-packet.link_offset()?).ok().filter(|header| (14..=22).contains(header))?;
    let frame = packet.link()?;
    // After decapsulation the header before is that of another packet.
    matches!(frame.get(header - 2..header)?, [0x08, 0x00] | [0x86, 0xdd]).then_some(frame)
}

/// Whether a packet begins with an Ethernet header. Elements note where headers are, most of them; else the first bytes tell.
fn begins_with_ethernet(packet: &Packet) -> bool {
    if packet.link_offset() == Some(0) {
        return true;
    }
    link_frame(packet).is_none() && !packet.begins_with_network_header() && !begins_with_ip(packet.data())
}

/// Whether these bytes begin with the header of an IP packet that they can hold.
fn begins_with_ip(data: &[u8]) -> bool {
    let Some(&[first, _, high, low, length6_high, length6_low]) = data.first_chunk::<6>() else {
        return false;
    };
    let number = |high, low| usize::from(u16::from_be_bytes([high, low]));
    match first >> 4 {
        4 => first & 0xf >= 5 && (20..=data.len()).contains(&number(high, low)),
        6 => data.len() >= 40 + number(length6_high, length6_low),
        _ => false,
    }
}

/// A filter for both kinds of packets.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    ethernet: FilterProgram,
    ip: FilterProgram,
}

impl Filter {
    /// Checks a filter that a client sent.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn new(filter: &PacketFilter) -> Result<Self, String> {
        let program = |list: &[FilterInstruction]| {
            let list: Vec<Instruction> = (list.iter())
                .map(|&(code, jump_true, jump_false, k)| Instruction { code, jump_true, jump_false, k })
                .collect();
            FilterProgram::new(&list)
        };
        Ok(Self { ethernet: program(&filter.ethernet)?, ip: program(&filter.ip)? })
    }

    /// Returns whether it selects a packet of this length that begins with these bytes.
    pub(crate) fn selects(&self, is_ethernet: bool, data: &[u8], length: u32) -> bool {
        if is_ethernet { self.ethernet.selects(data, length) } else { self.ip.selects(data, length) }
    }
}

/// Captures packets.
pub(crate) struct Camera {
    pub(crate) places: Arc<Places>,
    /// Draws those on connections; without it all are captured.
    pub(crate) sampler: Option<Sampler>,
    pub(crate) filter: Option<Filter>,
    pub(crate) recorder: Recorder,
}

impl Camera {
    /// Records a packet if the filter selects it. Returns whether it was recorded.
    /// Records a packet, without so many bytes at its end, if it is selected.
    fn look(&mut self, place: Place, now_ns: u64, packet: &Packet, left_out: usize, stands_for: u64) -> bool {
        let untag = match place {
            Place::Edge(edge) => self.places.spots.get(edge).is_some_and(|spot| spot.has_tag),
            Place::Drop { .. } => false,
        };
        let mut seen =
            Seen { stands_for, ..Seen::new(&self.places, place, now_ns, packet).with_link_header() };
        seen.data = &seen.data[..seen.data.len() - left_out];
        let selects = |data: &[u8], length: u32| {
            self.filter.as_ref().is_none_or(|filter| filter.selects(seen.is_ethernet, data, length))
        };
        // Of a frame without its tag the filter sees what is kept of it.
        if untag {
            self.recorder.record(&seen, (0, 0), true, |record| selects(&record.data, record.length))
        } else {
            selects(seen.data, seen.data.len() as u32) && self.recorder.record(&seen, (0, 0), false, |_| true)
        }
    }
}

impl Observer for Camera {
    fn see(&mut self, place: Place, now_ns: u64, packets: &[Packet]) {
        let Place::Edge(edge) = place else {
            return packets.iter().for_each(|packet| _ = self.look(place, now_ns, packet, 0, 1));
        };
        if self.sampler.is_none() {
            // Not the time of the turn, which may be before a packet came that Linux had first.
            let now_ns = self::now_ns();
            return packets.iter().for_each(|packet| _ = self.look(place, now_ns, packet, 0, 1));
        }
        // Merged packets count as what they are on a link.
        let mut rest =
            packets.iter().flat_map(|packet| (0..packet.pieces()).map(move |piece| (packet, piece)));
        let mut left = packets.iter().map(Packet::pieces).sum::<u64>() as usize;
        while let Some((index, due)) = self.sampler.as_mut().and_then(|sampler| sampler.pick(edge, left)) {
            let Some((packet, piece)) = rest.nth(index) else { break };
            left -= index + 1;
            // Of a merged packet, what one of those is that it is on a link. The last one may be shorter.
            let is_last = piece + 1 == packet.pieces();
            let behind = packet.len() - packet.piece_len();
            let left_out = if is_last { packet.len() - packet.last_piece_len() } else { behind };
            let is_recorded = self.look(place, now_ns, packet, left_out, due);
            if let Some(sampler) = self.sampler.as_mut().filter(|_| is_recorded) {
                sampler.taken(edge, due);
            }
        }
    }
}

/// A packet that is followed: its frame, 0 before there is one and when its way has ended; the element that it came to.
#[derive(Debug, Default)]
struct Followed {
    frame: AtomicUsize,
    at: AtomicUsize,
    /// At how many places it was seen.
    steps: AtomicU32,
}

/// The packets that are followed. A frame goes from one copy of the graph to the other by a ring, which orders what both do here.
#[derive(Debug)]
pub(crate) struct Table {
    packets: Box<[Followed]>,
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Table {
    /// A table for so many packets.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let packets = (0..count).map(|_| Followed::default()).collect();
        Arc::new(Self { packets, begun: AtomicUsize::new(0), ended: AtomicUsize::new(0) })
    }

    /// Returns whether all packets have begun their ways, and how many have ended.
    pub(crate) fn state(&self) -> (bool, usize) {
        (self.begun.load(Ordering::Relaxed) >= self.packets.len(), self.ended.load(Ordering::Relaxed))
    }

    /// Returns the number of the packet in this frame that is in this element. One that is believed elsewhere has ended there, in an
    /// element that freed it, and its frame has another packet now.
    fn find(&self, frame: usize, element: usize) -> Option<usize> {
        let begun = self.begun.load(Ordering::Relaxed).min(self.packets.len());
        let number =
            (0..begun).find(|&number| self.packets[number].frame.load(Ordering::Relaxed) == frame)?;
        if self.packets[number].at.load(Ordering::Relaxed) == element {
            return Some(number);
        }
        self.end(number);
        None
    }

    /// Begins to follow a packet; `None` when there are enough.
    fn begin(&self, frame: usize) -> Option<usize> {
        if self.begun.load(Ordering::Relaxed) >= self.packets.len() {
            return None;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        self.packets.get(number)?.frame.store(frame, Ordering::Relaxed);
        Some(number)
    }

    fn end(&self, number: usize) {
        self.packets[number].frame.store(0, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a trace has to know of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The elements at both ends.
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Whether packets that begin their way here are followed.
    pub(crate) begins: bool,
    /// Whether packets end in the element that they come to.
    pub(crate) ends: bool,
}

/// Follows packets.
pub(crate) struct Tracer {
    pub(crate) places: Arc<Places>,
    pub(crate) steps: Arc<[Step]>,
    pub(crate) filter: Option<Filter>,
    pub(crate) table: Arc<Table>,
    pub(crate) recorder: Recorder,
}

impl Observer for Tracer {
    fn see(&mut self, place: Place, now_ns: u64, packets: &[Packet]) {
        for packet in packets {
            let frame = packet.chunk().as_ptr() as usize;
            let seen = Seen::new(&self.places, place, now_ns, packet);
            let (number, ends) = match place {
                Place::Drop { element, .. } => (self.table.find(frame, element), true),
                Place::Edge(edge) => {
                    let Some(step) = self.steps.get(edge) else { continue };
                    let mut number = self.table.find(frame, step.from);
                    let selects = |filter: &Filter| {
                        filter.selects(seen.is_ethernet, packet.data(), packet.len() as u32)
                    };
                    if number.is_none() && step.begins && self.filter.as_ref().is_none_or(selects) {
                        number = self.table.begin(frame);
                    }
                    if let Some(number) = number {
                        self.table.packets[number].at.store(step.to, Ordering::Relaxed);
                    }
                    (number, step.ends)
                }
            };
            if let Some(number) = number {
                let step = self.table.packets[number].steps.fetch_add(1, Ordering::Relaxed);
                self.recorder.record(&seen, (number, step), false, |_| true);
                if ends {
                    self.table.end(number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::places::{Needs, Spot};
    use graph::context::Edge;
    use packet::{Pool, PoolOptions};

    fn places(has_tag: bool) -> Arc<Places> {
        let edge = Edge { from: (0, 0), to: (1, 0) };
        let spot = Spot { interface: "eth1".into(), direction: "in", edge, is_ethernet: true, has_tag };
        Arc::new(Places { spots: vec![spot], drops: false, needs: Needs::Nothing })
    }

    fn packets(count: usize, bytes: &[u8]) -> (Pool, Vec<Packet>) {
        let mut pool = Pool::new(PoolOptions { frames: count, ..PoolOptions::default() }).unwrap();
        let packet = |_| {
            let mut packet = pool.allocate().unwrap();
            assert!(packet.set_data(bytes));
            packet
        };
        let packets = (0..count).map(packet).collect();
        (pool, packets)
    }

    #[test]
    fn records_are_bounded_and_what_finds_none_is_counted_as_lost() {
        let places = places(false);
        let counts = counts(&places);
        // As few records as there are at least.
        let (recorder, mut records) = Records::new(RING_BYTES, &counts);
        let mut camera = Camera { places, sampler: None, filter: None, recorder };
        let (_pool, packets) = packets(100, &[7; 60]);
        camera.see(Place::Edge(0), 5, &packets);
        assert_eq!(counts[0].captured.load(Ordering::Relaxed), 64);
        assert_eq!(counts[0].lost.load(Ordering::Relaxed), 36);
        let record = records.take().unwrap();
        assert_eq!((record.length, record.data.len()), (60, 60));
        assert!(now_ns().abs_diff(record.time_ns) < 3_600_000_000_000, "a time of the last hour");
        records.give_back(record);
        camera.see(Place::Edge(0), 6, &packets[..2]);
        assert_eq!(counts[0].captured.load(Ordering::Relaxed), 65);
        assert!(!records.is_over());
        drop(camera);
        assert_eq!(std::iter::from_fn(|| records.take()).count(), 64);
        assert!(records.is_over());
    }

    #[test]
    fn each_packet_that_is_merged_in_one_may_be_drawn() {
        let places = places(false);
        let counts = counts(&places);
        let (recorder, mut records) = Records::new(RING_BYTES, &counts);
        let sampler = Some(Sampler::new(1, 1));
        let mut camera = Camera { places, sampler, filter: None, recorder };
        let (_pool, mut packets) = packets(3, &[7; 542]);
        let first = packets[1].data_offset() as u16;
        let merged = packet::Merged {
            piece_bytes: 200,
            network: first + 14,
            transport: first + 34,
            payload: first + 42,
        };
        packets[1].set_merged(merged);
        camera.see(Place::Edge(0), 5, &packets);
        let taken = std::iter::from_fn(|| records.take());
        let lengths: Vec<_> = taken.map(|record| (record.length, record.stands_for)).collect();
        assert_eq!(lengths, [(542, 1), (242, 1), (242, 1), (142, 1), (542, 1)]);
    }

    #[test]
    fn a_packet_whose_ethernet_header_was_stripped_is_recorded_with_it() {
        let mut inside = Places::clone(&places(false));
        inside.spots[0].is_ethernet = false;
        let places = Arc::new(inside);
        let counts = counts(&places);
        let (recorder, mut records) = Records::new(RING_BYTES, &counts);
        let mut camera = Camera { places, sampler: None, filter: None, recorder };
        // Broken: its length is beyond its end, so its first bytes do not tell what it is.
        let mut frame = [0_u8; 34];
        frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, 1, 0xf4]);
        let (_pool, mut packets) = packets(2, &frame);
        for packet in &mut packets {
            packet.set_link_header(0);
            assert!(packet.strip(14));
        }
        // What lies before the second one is not the header of this packet.
        assert!(packets[1].strip(1));
        camera.see(Place::Edge(0), 5, &packets);
        let record = records.take().unwrap();
        assert_eq!((record.is_ethernet, record.length, &record.data[..]), (true, 34, &frame[..]));
        assert_eq!(records.take().unwrap().length, 19);
    }

    #[test]
    fn a_packet_is_cut_to_the_bytes_that_were_asked_for_and_loses_the_tag_of_its_own_vlan() {
        let places = places(true);
        let counts = counts(&places);
        let (recorder, mut records) = Records::new(20, &counts);
        let mut camera = Camera { places, sampler: None, filter: None, recorder };
        let mut frame = [0_u8; 64];
        (0..64).for_each(|at| frame[at] = at as u8);
        frame[12..16].copy_from_slice(&[0x81, 0, 0, 100]);
        let (_pool, packets) = packets(1, &frame);
        camera.see(Place::Edge(0), 5, &packets);
        let record = records.take().unwrap();
        assert_eq!(record.length, 60);
        assert_eq!(record.data, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23]);
    }

    #[test]
    fn packets_are_followed_from_element_to_element_and_frames_that_were_freed_are_not() {
        let table = Table::new(2);
        assert_eq!(table.begin(0x100), Some(0));
        table.packets[0].at.store(7, Ordering::Relaxed);
        assert_eq!(table.find(0x100, 7), Some(0));
        assert_eq!(table.find(0x200, 7), None);
        // The same frame comes out of an element that it had not come to.
        assert_eq!(table.find(0x100, 8), None);
        assert_eq!(table.state(), (false, 1));
        assert_eq!((table.begin(0x100), table.begin(0x300)), (Some(1), None));
        assert_eq!(table.state(), (true, 1));
    }

    #[test]
    fn what_begins_with_an_ip_header_is_told_from_ethernet() {
        let ipv4 = [&[0x45, 0, 0, 28][..], &[0; 24]].concat();
        let ipv6 = [&[0x60, 0, 0, 0, 0, 8][..], &[0; 42]].concat();
        assert!(begins_with_ip(&ipv4) && begins_with_ip(&ipv6));
        assert!(!begins_with_ip(&ipv4[..20]) && !begins_with_ip(&ipv6[..47]) && !begins_with_ip(&[]));
        let (_pool, packets) =
            packets(1, &[&[0x46, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 8, 0][..], &ipv4].concat());
        assert!(begins_with_ethernet(&packets[0]));
    }
}
