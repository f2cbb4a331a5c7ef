//! DXR: a direct table over the first bits, then a search among address ranges (Zec, Rizzo, Mikuc, "DXR: towards a
//! billion routing lookups per second in software", ACM CCR 2012).
//!
//! The address space is cut into 2^K chunks. Within a chunk only the addresses matter at which the next hop changes;
//! there are few of them, and those of one chunk stand side by side:
//!
//! ```text
//!  chunks[first K bits of the address], 32 bits each
//!  +--------------------------+-------+
//!  | next hop                 |   0   |   one next hop in the whole chunk: the answer
//!  | place of the fragment    | 2..64 |   short fragment of that many ranges
//!  | place of the fragment    |  255  |   long fragment
//!  +--------------------------+-------+
//!           24 bits            8 bits
//!
//!  short: where ranges start, as number of the /24 in the chunk (1 byte each), padded to an even count,
//!         then their next hops (2 bytes each). For chunks in which nothing is longer than a /24.
//!  long:  number of ranges, where they start in the chunk, their next hops; 2 bytes each.
//! ```
//!
//! A fragment is read from the store at twice its place (places count units of two bytes). The range of an address is
//! the last one that starts at or before it; the first always starts at 0.
//!
//! # Why it is fast
//!
//! The tables of a million routes fit the second- and third-level caches with room for packets. A short fragment
//! of up to 16 ranges is searched without a branch: one 16-byte comparison gives a bit mask, and its lowest set bit
//! the place. There is no branch either between "chunk with one next hop" and "fragment": the search is done
//! anyway, at a harmless place of the store, and its result not used; a mispredicted branch would cost more.
//! Batches fetch the chunk entries of all addresses, then the fragments of all, then search.
//!
//! # Changes
//!
//! A changed prefix longer than K bits rebuilds one fragment from the RIB. A shorter one walks its gaps: chunks that
//! lie in a gap as a whole get an entry, those at its ends are rebuilt. Fragments given back are reused by size; when
//! over half of the store is waste, the table compiles itself anew in place.
//!
//! # Memory
//!
//! | what | bytes |
//! | --- | --- |
//! | chunk entries | 4 x 2^K: 1 MB (K = 18), 2 MB (19), 4 MB (20) |
//! | a range in a short fragment | 3 |
//! | a range in a long fragment | 4, and 2 a fragment |
//! | all fragments at most | 32 MB |

use crate::memory::{HugeArray, prefetch};
use crate::route::{bounds, mask};
use crate::{BURST, NextHopIndex, Rib4, Table4, TableError};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;

const NAME: &str = "DXR";
/// Units that a place of 24 bits can name.
const STORE_UNITS: usize = 1 << 24;
/// The search loads 64 bytes from where a fragment starts, and a lookup reads at most 64 next hops behind that: the
/// store has this many units more than are ever given out.
const SLACK_UNITS: usize = 128;
/// In the low byte of a chunk entry: the fragment is a long one.
const LONG: u32 = 255;

/// DXR with 2^18 chunks: the smallest.
pub type Dxr18 = Dxr<18>;
/// DXR with 2^19 chunks.
pub type Dxr19 = Dxr<19>;
/// DXR with 2^20 chunks: no short fragment has more than 16 ranges.
pub type Dxr20 = Dxr<20>;

/// The DXR table with 2^`CHUNK_BITS` chunks, 18 to 20. See the top of its file for the layout.
pub struct Dxr<const CHUNK_BITS: u32> {
    chunks: HugeArray<u32>,
    store: HugeArray<u16>,
    /// Units of the store below this have been given out.
    units_used: usize,
    /// Of those, how many were given back.
    units_free: usize,
    /// The places given back, by size in units.
    free: BTreeMap<usize, Vec<u32>>,
    /// Working memory of `flatten`.
    ranges: Vec<(u32, NextHopIndex)>,
}

impl<const CHUNK_BITS: u32> Dxr<CHUNK_BITS> {
    const CHUNKS: usize = 1 << CHUNK_BITS;
    /// Bits of an address behind the chunk number.
    const REST_BITS: u32 = 32 - CHUNK_BITS;
    const REST_MASK: u32 = (1 << Self::REST_BITS) - 1;
    /// The /24s in a chunk, and so the most ranges of a short fragment: 64, 32 or 16.
    const NET24S: usize = 1 << (Self::REST_BITS - 8);
    /// 6 bits for the /24 in a chunk and 16 for the address in it: what the two fragment formats can hold.
    const IN_RANGE: () = assert!(CHUNK_BITS >= 18 && CHUNK_BITS <= 20, "DXR has 2^18 to 2^20 chunks");

    /// An empty table.
    ///
    /// # Errors
    ///
    /// [`TableError::Memory`] if the system refuses 40 MB of address space.
    pub fn new() -> Result<Self, TableError> {
        const { Self::IN_RANGE };
        Ok(Dxr {
            chunks: HugeArray::zeroed(NAME, Self::CHUNKS)?,
            store: HugeArray::zeroed(NAME, STORE_UNITS + SLACK_UNITS)?,
            units_used: 0,
            units_free: 0,
            free: BTreeMap::new(),
            ranges: Vec::new(),
        })
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "a bounds check less in the lookup loop")]
    fn chunk_entry(&self, address: u32) -> u32 {
        // SAFETY: the first CHUNK_BITS bits of an address are below 2^CHUNK_BITS, the length of `chunks`.
        unsafe { *self.chunks.get_unchecked((address >> Self::REST_BITS) as usize) }
    }

    /// The answer for `address`, whose chunk entry is `entry`.
    #[inline(always)]
    fn resolve(&self, address: u32, entry: u32) -> NextHopIndex {
        let place = (entry >> 8) as usize;
        let kind = entry & 0xff;
        if kind == LONG {
            return self.search_long(place, (address & Self::REST_MASK) as u16);
        }
        let net24 = (address & Self::REST_MASK) >> 8;
        let found = self.search_short(place, kind as usize, net24 as u8);
        let next_hop = std::hint::select_unpredictable(kind == 0, place as u16, found);
        NextHopIndex::from_entry(next_hop)
    }

    /// The next hop in a short fragment. `count` 0 is allowed: the answer is then any word of the store.
    #[inline(always)]
    #[allow(unsafe_code, reason = "bounds checks less in the lookup loop, and SSE2")]
    fn search_short(&self, place: usize, count: usize, net24: u8) -> u16 {
        // SAFETY: a place has 24 bits and the store 2^24 + SLACK_UNITS units; what is read lies less than 64 bytes
        // (starts) or 33 + 64 units (next hops) behind it, which is within the slack. Places beyond `units_used`
        // read as zero.
        unsafe {
            let fragment = self.store.as_ptr().add(place);
            let after = starts_after(fragment.cast(), count, net24, Self::NET24S);
            let next_hops = fragment.add(count.div_ceil(2));
            // The first range starts at 0, so at least one starts at or before; `count` 0 gives 0 - 1.
            *next_hops.add(after.saturating_sub(1))
        }
    }

    /// The next hop in a long fragment.
    fn search_long(&self, place: usize, rest: u16) -> NextHopIndex {
        let count = self.store[place] as usize;
        let starts = &self.store[place + 1..place + 1 + count];
        let (mut first, mut length) = (0, count);
        while length > 1 {
            let half = length / 2;
            first += if starts[first + half] <= rest { half } else { 0 };
            length -= half;
        }
        NextHopIndex::from_entry(self.store[place + 1 + count + first])
    }

    /// Looks up at most [`BURST`] addresses.
    #[inline(always)]
    fn lookup_burst(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        let mut entries = [0u32; BURST];
        for (&address, entry) in addresses.iter().zip(&mut entries) {
            *entry = self.chunk_entry(address);
        }
        for &entry in &entries[..addresses.len()] {
            prefetch(&self.store, (entry >> 8) as usize);
        }
        for ((&address, &entry), next_hop) in addresses.iter().zip(&entries).zip(next_hops) {
            *next_hop = self.resolve(address, entry);
        }
    }

    /// Units that the fragment of a chunk entry occupies.
    fn units_of(&self, entry: u32) -> usize {
        match entry & 0xff {
            0 => 0,
            LONG => 1 + 2 * self.store[(entry >> 8) as usize] as usize,
            count => (count as usize).div_ceil(2) + count as usize,
        }
    }

    /// Room for `units`, from what was given back or from the end.
    fn allocate(&mut self, units: usize) -> Option<usize> {
        let fitting = self.free.range_mut(units..).find(|(_, places)| !places.is_empty());
        if let Some((&size, places)) = fitting {
            let place = places.pop().expect("the search was for a list that is not empty") as usize;
            if places.is_empty() {
                self.free.remove(&size);
            }
            if size > units {
                self.free.entry(size - units).or_default().push((place + units) as u32);
            }
            self.units_free -= units;
            return Some(place);
        }
        if self.units_used + units > STORE_UNITS {
            return None;
        }
        self.units_used += units;
        Some(self.units_used - units)
    }

    fn give_back(&mut self, entry: u32) {
        let units = self.units_of(entry);
        if units > 0 {
            self.free.entry(units).or_default().push(entry >> 8);
            self.units_free += units;
        }
    }

    /// Gives a chunk a single next hop.
    fn set_whole(&mut self, chunk: usize, next_hop: NextHopIndex) {
        self.give_back(self.chunks[chunk]);
        self.chunks[chunk] = u32::from(next_hop.get()) << 8;
    }

    /// Gives a chunk its ranges, or returns false for want of room. A range that began in an earlier chunk counts
    /// from the start of this one.
    fn set_ranges(&mut self, chunk: usize, ranges: &[(u32, NextHopIndex)]) -> bool {
        if let [(_, next_hop)] = ranges {
            self.set_whole(chunk, *next_hop);
            return true;
        }
        let count = ranges.len();
        let network = (chunk as u32) << Self::REST_BITS;
        let start_of = |range: &(u32, NextHopIndex)| range.0.max(network) - network;
        let short = ranges[1..].iter().all(|range| range.0.is_multiple_of(256));
        let units = if short { count.div_ceil(2) + count } else { 1 + 2 * count };
        let Some(place) = self.allocate(units) else { return false };
        let fragment = &mut self.store[place..place + units];
        let next_hops = if short {
            let (starts, next_hops) = fragment.split_at_mut(count.div_ceil(2));
            for (unit, pair) in starts.iter_mut().zip(ranges.chunks(2)) {
                let start = |i: usize| pair.get(i).map_or(0, |range| (start_of(range) >> 8) as u8);
                *unit = u16::from_ne_bytes([start(0), start(1)]);
            }
            next_hops
        } else {
            fragment[0] = count as u16;
            let (starts, next_hops) = fragment[1..].split_at_mut(count);
            for (unit, range) in starts.iter_mut().zip(ranges) {
                *unit = start_of(range) as u16;
            }
            next_hops
        };
        for (unit, range) in next_hops.iter_mut().zip(ranges) {
            *unit = range.1.get();
        }
        self.give_back(self.chunks[chunk]);
        self.chunks[chunk] = (place as u32) << 8 | if short { count as u32 } else { LONG };
        true
    }

    /// Compiles one chunk; `background` is its next hop where nothing inside it claims the addresses.
    fn rebuild_chunk(&mut self, rib: &Rib4, chunk: usize, background: NextHopIndex) -> bool {
        let mut ranges = std::mem::take(&mut self.ranges);
        let network = (chunk as u32) << Self::REST_BITS;
        rib.flatten(network, CHUNK_BITS as u8, background, &mut ranges);
        let fits = self.set_ranges(chunk, &ranges);
        self.ranges = ranges;
        fits
    }

    /// Repaints the chunks that a prefix of at most `CHUNK_BITS` bits covers.
    fn update_short(&mut self, rib: &Rib4, prefix: Ipv4Net) -> bool {
        let next_hop = rib.next_hop_at(prefix);
        let mut rebuilt = None;
        let mut fits = true;
        rib.for_each_gap(prefix, |first, last| {
            let (first_chunk, last_chunk) = (first >> Self::REST_BITS, last >> Self::REST_BITS);
            for chunk in first_chunk..=last_chunk {
                let network = chunk << Self::REST_BITS;
                if first <= network && last >= network | Self::REST_MASK {
                    self.set_whole(chunk as usize, next_hop);
                } else if rebuilt != Some(chunk) {
                    // A chunk that a gap enters is not claimed as a whole by a longer route than `prefix`, so its
                    // background is the next hop of `prefix`.
                    fits &= self.rebuild_chunk(rib, chunk as usize, next_hop);
                    rebuilt = Some(chunk);
                }
            }
        });
        fits
    }
}

/// How many of the `count` ascending bytes at `starts` are at most `wanted`; 0 for a count of 0. `most` is a constant,
/// 16, 32 or 64, that no count exceeds: with 16 there is no branch.
///
/// # Safety
///
/// 64 bytes can be read at `starts`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code, reason = "SSE2 intrinsics on a pointer")]
unsafe fn starts_after(starts: *const u8, count: usize, wanted: u8, most: usize) -> usize {
    use std::arch::x86_64::{__m128i, _mm_cmpgt_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    // Starts have 6 bits in short fragments, so comparing them as signed bytes is right; what stands behind the
    // fragment compares anyhow and does not count.
    let larger_in = |block: usize| {
        // SAFETY: block is 0 to 3, and the caller lets us read 64 bytes. SSE2 is part of x86-64.
        let mask = unsafe {
            let bytes = _mm_loadu_si128(starts.add(16 * block).cast::<__m128i>());
            _mm_movemask_epi8(_mm_cmpgt_epi8(bytes, _mm_set1_epi8(wanted as i8)))
        };
        mask as u32
    };
    if most <= 16 || count <= 16 {
        // The bit at `count` stops the search, so there is always one to find.
        return (larger_in(0) | 1 << count).trailing_zeros() as usize;
    }
    let mut larger = u64::from(larger_in(0) | larger_in(1) << 16);
    if count > 32 {
        larger |= u64::from(larger_in(2) | larger_in(3) << 16) << 32;
    }
    (larger.trailing_zeros() as usize).min(count)
}

/// As above, for other processors.
///
/// # Safety
///
/// `count` bytes can be read at `starts`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
#[allow(unsafe_code, reason = "the same signature as on x86-64")]
unsafe fn starts_after(starts: *const u8, count: usize, wanted: u8, _most: usize) -> usize {
    // SAFETY: the caller's promise.
    let starts = unsafe { std::slice::from_raw_parts(starts, count) };
    starts.partition_point(|&start| start <= wanted)
}

impl<const CHUNK_BITS: u32> Table4 for Dxr<CHUNK_BITS> {
    #[inline]
    fn lookup(&self, address: u32) -> NextHopIndex {
        self.resolve(address, self.chunk_entry(address))
    }

    #[inline]
    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        assert_eq!(addresses.len(), next_hops.len(), "one place for each answer");
        for (addresses, next_hops) in addresses.chunks(BURST).zip(next_hops.chunks_mut(BURST)) {
            self.lookup_burst(addresses, next_hops);
        }
    }

    fn update(&mut self, rib: &Rib4, prefix: Ipv4Net) -> Result<(), TableError> {
        let fits = if u32::from(prefix.prefix_len()) <= CHUNK_BITS {
            self.update_short(rib, prefix)
        } else {
            let network = bounds(prefix).0 & mask(CHUNK_BITS as u8);
            let chunk = Ipv4Net::new(network.into(), CHUNK_BITS as u8).expect("a chunk is a prefix");
            let background = rib.next_hop_at(chunk);
            self.rebuild_chunk(rib, (network >> Self::REST_BITS) as usize, background)
        };
        // Half a megabyte of waste is nothing; below that a table that shrank would compile itself again and again.
        let wasteful = self.units_free > self.units_used / 2 + (1 << 18);
        if fits && !wasteful { Ok(()) } else { self.rebuild(rib) }
    }

    fn rebuild(&mut self, rib: &Rib4) -> Result<(), TableError> {
        self.chunks.fill(0);
        self.free.clear();
        self.units_used = 0;
        self.units_free = 0;
        let mut ranges = Vec::with_capacity(rib.len());
        rib.flatten(0, 0, NextHopIndex::NONE, &mut ranges);
        // `first` is the range in which a chunk begins.
        let mut first = 0;
        for chunk in 0..Self::CHUNKS {
            let last_address = (chunk as u32) << Self::REST_BITS | Self::REST_MASK;
            let mut end = first + 1;
            while end < ranges.len() && ranges[end].0 <= last_address {
                end += 1;
            }
            if !self.set_ranges(chunk, &ranges[first..end]) {
                let network = ((chunk as u32) << Self::REST_BITS).into();
                let prefix = Ipv4Net::new(network, CHUNK_BITS as u8).expect("a chunk is a prefix");
                let limit = "its 32 MB of ranges are used up, which is about 10,000,000 changes of next hop";
                return Err(TableError::Full { table: NAME, prefix, limit });
            }
            let next_starts_chunk = end < ranges.len() && ranges[end].0 == last_address.wrapping_add(1);
            first = if next_starts_chunk { end } else { end - 1 };
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        let free_places: usize = self.free.values().map(Vec::capacity).sum();
        Self::CHUNKS * 4 + self.units_used * 2 + free_places * 4 + self.ranges.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fib4;

    fn hop(number: u16) -> NextHopIndex {
        NextHopIndex::new(number).unwrap()
    }

    /// Every other /24 of the chunk 10.0.0.0/18, and the chunk beside it.
    #[test]
    fn short_fragments_of_every_size_are_searched_right() {
        for count in 1..=32u32 {
            let mut fib = Fib4::new(Dxr18::new().unwrap());
            for i in 0..count {
                let prefix = Ipv4Net::new((0x0a00_0000 | i << 9).into(), 24).unwrap();
                fib.insert(prefix, hop(i as u16 + 1)).unwrap();
            }
            for net24 in 0..=64u32 {
                let expected = if net24 % 2 == 0 && net24 < 2 * count { net24 as u16 / 2 + 1 } else { 0 };
                assert_eq!(fib.table().lookup(0x0a00_00ff | net24 << 8), hop(expected), "{net24} of {count}");
            }
        }
    }

    #[test]
    fn a_chunk_full_of_host_routes_is_a_long_fragment() {
        let mut rib = Rib4::new();
        for i in 0..1 << 14 {
            rib.insert(Ipv4Net::new((0x0a00_0000u32 + i).into(), 32).unwrap(), hop(i as u16 + 1)).unwrap();
        }
        let fib = Fib4::build(rib, Dxr18::new().unwrap()).unwrap();
        for i in 0..1 << 14 {
            assert_eq!(fib.table().lookup(0x0a00_0000 + i), hop(i as u16 + 1));
        }
        assert_eq!(fib.table().lookup(0x0a00_0000 - 1), NextHopIndex::NONE);
        assert_eq!(fib.table().lookup(0x0a00_4000), NextHopIndex::NONE);
    }

    #[test]
    fn routes_that_fill_chunks_need_no_fragment() {
        let mut rib = Rib4::new();
        for i in 0..64u32 {
            rib.insert(Ipv4Net::new((i << 14).into(), 18).unwrap(), hop(i as u16 + 1)).unwrap();
        }
        let fib = Fib4::build(rib, Dxr18::new().unwrap()).unwrap();
        assert_eq!(fib.table().units_used, 0);
        assert_eq!(fib.table().lookup(63 << 14), hop(64));
        assert_eq!(fib.table().lookup(64 << 14), NextHopIndex::NONE);
    }

    #[test]
    fn what_is_given_back_is_used_again() {
        let mut fib = Fib4::new(Dxr20::new().unwrap());
        let prefix = |i: u32| Ipv4Net::new((i << 8).into(), 24).unwrap();
        for i in (0..40_000).step_by(2) {
            fib.insert(prefix(i), hop(1)).unwrap();
        }
        let used = fib.table().units_used;
        for round in 2..12 {
            for i in (0..40_000).step_by(2) {
                fib.replace(prefix(i), hop(round)).unwrap();
            }
        }
        assert!(fib.table().units_used <= used * 2, "{} after {used}", fib.table().units_used);
        let live: usize = fib.table().chunks.iter().map(|&entry| fib.table().units_of(entry)).sum();
        assert_eq!(live + fib.table().units_free, fib.table().units_used);
        for i in (0..40_000).step_by(2) {
            fib.remove(prefix(i)).unwrap();
        }
        assert_eq!(fib.table().units_free, fib.table().units_used);
    }
}
