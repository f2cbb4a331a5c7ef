//! A batch: up to 256 packets that travel through the graph together.
//!
//! It is a length and an array of handles, in one place: moving a batch moves one pointer, and the packets stay
//! where they are. (With the length beside the pointer, a move was a load of 16 bytes just after a store of 8, for
//! which a CPU waits until the store has reached its cache: some 15 cycles.) Elements work on it in place and
//! take out the few packets that go another way ([`Batch::extract`]).

use std::fmt;
use std::mem::MaybeUninit;

use crate::frame::Packet;

/// Most packets in a batch.
pub const MAX_BATCH: usize = 256;

/// Packets that travel together, in order of arrival.
pub struct Batch(Box<Content>);

struct Content {
    length: usize,
    packets: [MaybeUninit<Packet>; MAX_BATCH],
}

#[allow(unsafe_code, reason = "the first `length` slots are initialised packets: the invariant of this file")]
impl Batch {
    /// An empty batch. Allocates; the fast path recycles batches instead of making them.
    pub fn new() -> Self {
        Self(Box::new(Content { length: 0, packets: [const { MaybeUninit::uninit() }; MAX_BATCH] }))
    }

    /// Number of packets.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether there is no packet.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// How many packets still fit.
    #[inline(always)]
    pub fn room(&self) -> usize {
        MAX_BATCH - self.0.length
    }

    /// Adds a packet at the end. The batch must have [`room`](Batch::room); panics otherwise.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet) {
        assert!(self.0.length < MAX_BATCH, "no room in the batch: the caller looks before it pushes");
        self.0.packets[self.0.length].write(packet);
        self.0.length += 1;
    }

    /// The free slots behind the packets, for a driver to write packets to; [`Batch::add_written`] makes them part of the
    /// batch.
    #[inline(always)]
    pub fn free_slots(&mut self) -> &mut [MaybeUninit<Packet>] {
        &mut self.0.packets[self.0.length..]
    }

    /// Makes the first `count` free slots part of the batch.
    ///
    /// # Safety
    /// They have been written, each with a packet, and the batch has room for so many.
    #[inline(always)]
    pub unsafe fn add_written(&mut self, count: usize) {
        debug_assert!(count <= self.room());
        self.0.length += count;
    }

    /// Takes the last packet.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Packet> {
        if self.0.length == 0 {
            return None;
        }
        self.0.length -= 1;
        // SAFETY: the slot was below `length`, so initialised, and is now above it, so given away once.
        Some(unsafe { self.0.packets[self.0.length].assume_init_read() })
    }

    /// The packets.
    #[inline(always)]
    pub fn packets(&self) -> &[Packet] {
        // SAFETY: the first `length` (at most MAX_BATCH) slots are initialised.
        unsafe { std::slice::from_raw_parts(self.0.packets.as_ptr().cast(), self.0.length) }
    }

    /// The packets, to change.
    #[inline(always)]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        // SAFETY: as in `packets`, with exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.0.packets.as_mut_ptr().cast(), self.0.length) }
    }

    /// The packets, one after the other.
    pub fn iter(&self) -> std::slice::Iter<'_, Packet> {
        self.packets().iter()
    }

    /// The packets, one after the other, to change.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Packet> {
        self.packets_mut().iter_mut()
    }

    /// Takes all packets out, first to last. What the iterator does not give out is dropped with it.
    #[inline(always)]
    pub fn drain(&mut self) -> Drain<'_> {
        let length = std::mem::take(&mut self.0.length);
        Drain { packets: &mut self.0.packets[..length], next: 0 }
    }

    /// Moves up to `count` packets from the front of `self` to the end of `other`, as far as there is room;
    /// returns how many.
    pub fn move_front(&mut self, other: &mut Self, count: usize) -> usize {
        let count = count.min(self.0.length).min(other.room());
        if count == self.0.length && other.is_empty() {
            std::mem::swap(self, other);
            return count;
        }
        // SAFETY: `count` initialised slots at the front of `self` go to `count` free slots of `other`;
        // then the rest of `self` moves down over them, so that no packet is in two places.
        unsafe {
            let from = self.0.packets.as_mut_ptr();
            let to = other.0.packets.as_mut_ptr().add(other.0.length);
            std::ptr::copy_nonoverlapping(from, to, count);
            std::ptr::copy(from.add(count), from, self.0.length - count);
        }
        self.0.length -= count;
        other.0.length += count;
        count
    }

    /// Moves each packet to the end of a lane. `outputs` has the number of the lane for each packet. Calls `begun` with each lane
    /// that gets a packet, in the order of their first packets.
    ///
    /// # Panics
    ///
    /// There are more than 64 lanes, a number is not a lane, or a lane has less than this batch's room.
    #[inline]
    pub fn scatter(&mut self, outputs: &[u16], lanes: &mut [Self], mut begun: impl FnMut(usize)) {
        assert!(
            outputs.len() == self.0.length && lanes.len() <= 64,
            "an output for each packet, and a bit for each lane"
        );
        let mut seen = 0_u64;
        let packets = std::mem::take(&mut self.0.length);
        let mut start = 0;
        while start < packets {
            let count = (packets - start).min(64);
            let outputs = &outputs[start..start + count];
            // Lane by lane: each goes over the bits of its packets and nothing else, so that nothing waits for a length that
            // was just stored.
            let mut left = u64::MAX >> (64 - count);
            while left != 0 {
                let number = outputs[left.trailing_zeros() as usize];
                let lane = &mut *lanes[usize::from(number)].0;
                let mut own = equals(outputs, number);
                left &= !own;
                assert!(lane.length + own.count_ones() as usize <= MAX_BATCH, "no room in the lane");
                if seen & 1 << (number & 63) == 0 {
                    seen |= 1 << (number & 63);
                    begun(usize::from(number));
                }
                let mut length = lane.length;
                while own != 0 {
                    let from = start + own.trailing_zeros() as usize;
                    own &= own - 1;
                    // SAFETY: the slot was below this batch's length, which is 0 now, and each bit is taken once; the lane has
                    // room for as many as there are bits.
                    unsafe {
                        let packet = self.0.packets.get_unchecked(from).assume_init_read();
                        lane.packets.get_unchecked_mut(length).write(packet);
                    }
                    length += 1;
                }
                lane.length = length;
            }
            start += count;
        }
    }

    /// Looks at each packet in turn; where `keep` says no the packet is taken out and given to `removed`.
    /// The others close up and keep their order. While all are kept nothing moves.
    ///
    /// When `keep` or `removed` panics, the packets of the batch are leaked, never freed twice.
    #[inline(always)]
    pub fn extract(&mut self, keep: impl FnMut(&mut Packet) -> bool, removed: impl FnMut(Packet)) {
        self.extract_unless_first(false, keep, removed);
    }

    /// As [`extract`](Batch::extract). But with `stops`, where `keep` says no to the first packet, it ends there: all packets
    /// stay, and it returns false.
    #[inline(always)]
    pub fn extract_unless_first(
        &mut self,
        stops: bool,
        mut keep: impl FnMut(&mut Packet) -> bool,
        mut removed: impl FnMut(Packet),
    ) -> bool {
        let length = std::mem::take(&mut self.0.length);
        let slots = &mut self.0.packets[..length];
        let (mut index, mut kept) = (0, 0);
        loop {
            // Packets in a row that are kept: the common case is one such row and nothing else.
            let start = index;
            while index < length {
                // SAFETY: slots at and above `index` are initialised and not yet looked at.
                let packet = unsafe { slots[index].assume_init_mut() };
                if !keep(packet) {
                    break;
                }
                index += 1;
            }
            if kept != start {
                // SAFETY: the row is within the slots and lies behind `kept`; the slots from there up to the row were moved out of.
                unsafe {
                    let slots = slots.as_mut_ptr();
                    std::ptr::copy(slots.add(start), slots.add(kept), index - start);
                }
            }
            kept += index - start;
            if index == length {
                break;
            }
            if index == 0 && stops {
                // Nothing was moved yet.
                self.0.length = length;
                return false;
            }
            // SAFETY: the slot is initialised, and nothing reads it again.
            removed(unsafe { slots[index].assume_init_read() });
            index += 1;
        }
        self.0.length = kept;
        true
    }
}

/// Which of at most 64 numbers equal `number`, a bit each.
#[inline(always)]
#[allow(unsafe_code, reason = "vectors that each x86-64 has")]
fn equals(numbers: &[u16], number: u16) -> u64 {
    debug_assert!(numbers.len() <= 64);
    let mut equal = 0;
    let (sixteens, rest) = numbers.as_chunks::<16>();
    #[cfg(target_arch = "x86_64")]
    for (place, sixteen) in sixteens.iter().enumerate() {
        use std::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
        };
        // SAFETY: sixteen numbers are two times 16 bytes; each x86-64 has SSE2.
        let bits = unsafe {
            let (number, first) = (_mm_set1_epi16(number as i16), sixteen.as_ptr().cast());
            let low = _mm_cmpeq_epi16(_mm_loadu_si128(first), number);
            let high = _mm_cmpeq_epi16(_mm_loadu_si128(first.add(1)), number);
            _mm_movemask_epi8(_mm_packs_epi16(low, high))
        };
        equal |= (bits as u64) << (16 * place);
    }
    #[cfg(not(target_arch = "x86_64"))]
    for (place, sixteen) in sixteens.iter().enumerate() {
        for (bit, other) in sixteen.iter().enumerate() {
            equal |= u64::from(*other == number) << (16 * place + bit);
        }
    }
    for (bit, other) in rest.iter().enumerate() {
        equal |= u64::from(*other == number) << (16 * sixteens.len() + bit);
    }
    equal
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        drop(self.drain());
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// All packets of a batch on their way out; see [`Batch::drain`].
#[derive(Debug)]
pub struct Drain<'a> {
    packets: &'a mut [MaybeUninit<Packet>],
    next: usize,
}

impl Iterator for Drain<'_> {
    type Item = Packet;

    #[inline(always)]
    fn next(&mut self) -> Option<Packet> {
        let slot = self.packets.get(self.next)?;
        self.next += 1;
        #[allow(unsafe_code, reason = "slots of a drain are initialised and read once")]
        // SAFETY: all slots of the drain are initialised, and `next` passes each once.
        Some(unsafe { slot.assume_init_read() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = self.packets.len() - self.next;
        (rest, Some(rest))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    #[inline]
    fn drop(&mut self) {
        for packet in self.by_ref() {
            drop(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Pool, PoolOptions};
    use proptest::prelude::*;

    fn numbered(pool: &mut Pool, count: usize) -> Batch {
        let mut batch = Batch::new();
        pool.allocate_batch(&mut batch, count);
        for (number, packet) in batch.iter_mut().enumerate() {
            packet.set_data(&[number as u8]);
        }
        batch
    }

    fn numbers(batch: &Batch) -> Vec<u8> {
        batch.iter().map(|packet| packet.data()[0]).collect()
    }

    #[test]
    fn a_full_batch_has_no_room() {
        let mut pool = Pool::new(PoolOptions { frames: 300, data_bytes: 64 }).unwrap();
        let mut batch = Batch::new();
        assert_eq!(pool.allocate_batch(&mut batch, 300), MAX_BATCH);
        assert_eq!(batch.room(), 0);
        drop(batch);
        assert!(pool.refill());
        assert_eq!(pool.stats().free, 300);
    }

    proptest! {
        #[test]
        fn extract_keeps_order_and_loses_nothing(keep in prop::collection::vec(any::<bool>(), 0..256)) {
            let mut pool = Pool::new(PoolOptions { frames: 256, data_bytes: 64 }).unwrap();
            let mut batch = numbered(&mut pool, keep.len());
            let mut removed = Vec::new();
            let mut index = 0;
            batch.extract(
                |_| { index += 1; keep[index - 1] },
                |packet| removed.push(packet.data()[0]),
            );
            let expected = |wanted: bool| -> Vec<u8> {
                (0..keep.len()).filter(|&i| keep[i] == wanted).map(|i| i as u8).collect()
            };
            prop_assert_eq!(numbers(&batch), expected(true));
            prop_assert_eq!(removed, expected(false));
        }

        #[test]
        fn a_refused_first_packet_keeps_all(keep in prop::collection::vec(any::<bool>(), 1..256)) {
            let mut pool = Pool::new(PoolOptions { frames: 256, data_bytes: 64 }).unwrap();
            let mut batch = numbered(&mut pool, keep.len());
            let (mut index, mut removed) = (0, 0);
            let goes_on = batch.extract_unless_first(
                true,
                |_| { index += 1; keep[index - 1] },
                |_| removed += 1,
            );
            prop_assert_eq!(goes_on, keep[0]);
            let kept = keep.iter().filter(|kept| **kept).count();
            prop_assert_eq!(batch.len(), if goes_on { kept } else { keep.len() });
            prop_assert_eq!(removed, keep.len() - batch.len());
        }

        #[test]
        fn scattered_packets_keep_their_order(outputs in prop::collection::vec(0u16..16, 0..=256)) {
            let mut pool = Pool::new(PoolOptions { frames: 256, data_bytes: 64 }).unwrap();
            let mut batch = numbered(&mut pool, outputs.len());
            let mut lanes: Vec<Batch> = (0..16).map(|_| Batch::new()).collect();
            let mut begun = Vec::new();
            batch.scatter(&outputs, &mut lanes, |lane| begun.push(lane));
            prop_assert!(batch.is_empty());
            for (lane, packets) in lanes.iter().enumerate() {
                let of_lane = (0..outputs.len()).filter(|&packet| usize::from(outputs[packet]) == lane);
                prop_assert_eq!(numbers(packets), of_lane.map(|packet| packet as u8).collect::<Vec<_>>());
            }
            let mut expected: Vec<usize> = Vec::new();
            for output in outputs.iter().map(|&output| usize::from(output)) {
                if !expected.contains(&output) {
                    expected.push(output);
                }
            }
            prop_assert_eq!(begun, expected);
        }

        #[test]
        fn move_front_keeps_order(first in 0usize..256, second in 0usize..256, count in 0usize..300) {
            let mut pool = Pool::new(PoolOptions { frames: 512, data_bytes: 64 }).unwrap();
            let (mut from, mut to) = (numbered(&mut pool, first), numbered(&mut pool, second));
            let moved = from.move_front(&mut to, count);
            prop_assert_eq!(moved, count.min(first).min(256 - second));
            prop_assert_eq!(numbers(&from), (moved..first).map(|i| i as u8).collect::<Vec<_>>());
            let expected = (0..second).chain(0..moved).map(|i| i as u8).collect::<Vec<_>>();
            prop_assert_eq!(numbers(&to), expected);
        }
    }

    #[test]
    fn a_drain_dropped_early_frees_the_rest() {
        let mut pool = Pool::new(PoolOptions { frames: 8, data_bytes: 64 }).unwrap();
        let mut batch = numbered(&mut pool, 8);
        assert_eq!(batch.drain().next().map(|packet| packet.data()[0]), Some(0));
        assert!(batch.is_empty());
        pool.refill();
        assert_eq!(pool.stats().free, 8);
    }
}
