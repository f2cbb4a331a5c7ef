//! The rank table: IPv4 in two loads and a population count, small enough for a cache.
//!
//! The address space is cut into 2^19 chunks of 32 networks of /24. Of a chunk only those networks matter at which
//! the next hop changes; a bitmap says which, and their next hops stand side by side:
//!
//! ```text
//!   19 bits      5 bits     8 bits              chunks: 2^19 entries of 64 bits
//!  +------------+----------+--------+          +------------------------------+-------------+
//!  |  chunk     | network  | host   |    --->  | bitmap: a new next hop begins | base        |
//!  +------------+----------+--------+          | right behind this network     | in `hops`   |
//!                                              +------------------------------+-------------+
//!  answer = hops[base + number of bits set in bitmap at or above `network`]
//! ```
//!
//! Counting the bits up to a place is called rank (Jacobson 1989); that bitmaps of where something new begins shrink a
//! routing table into the cache is from Degermark, Brodnik, Carlsson and Pink, "Small forwarding tables for fast
//! routing lookups", SIGCOMM 1997. Bits are counted upwards from the network and next hops stand in reverse, because
//! that needs a shift by the network number and nothing else (x86 shifts take the low five bits of the count for
//! free).
//!
//! Two things make a lookup free of branches:
//!
//! * A chunk with a single next hop has an empty bitmap, and its base is the number of the next hop itself: `hops`
//!   begins with each number at its own place. Nobody asks whether there is a list.
//! * A network that contains longer prefixes has, in the place of its next hop, bit 15 and its number among such
//!   networks of its chunk. It is the only thing to test, for a whole burst at once.
//!
//! Such a network has a *block*: eight entries of the very same form, one cache line, each for 32 addresses. The blocks of a
//! chunk stand side by side; where is written, as a 32-bit number, in the two places before the chunk's next hops.
//!
//! # Speed
//!
//! A load of the chunk entry, one of the next hop. The loads of a burst overlap because nothing between them is
//! predicted. A vector version with AVX-512 gathers was measured and was slower by half (8.1 against 5.6 cycles a
//! lookup for random addresses, Zen 5): gathers there are microcode. What is chosen at run time is the population
//! count instruction, which plain x86-64 lacks.
//!
//! # Memory
//!
//! | what | bytes |
//! | --- | --- |
//! | chunks | 4,194,304 |
//! | each number at its own place | 65,536 |
//! | a change of next hop between networks | 2 |
//! | a network with longer prefixes | 64, and 2 for each change of next hop in it and each of its eight parts |
//! | 564,579 real routes | 5.3 MB |
//! | 1,000,000 routes | 6.8 MB |

mod compile;

pub use compile::RankCompiler;

use crate::memory::{HugeArray, prefetch};
use crate::region::Region;
use crate::{BURST, NextHopIndex, Rib, Table, TableError};
use ipnet::Ipv4Net;
use packet::Vectors;
use std::sync::Arc;

const NAME: &str = "rank";
const CHUNK_BITS: u8 = 19;
const CHUNKS: usize = 1 << CHUNK_BITS;
/// Networks of /24 in a chunk; also addresses for which one entry of a block is responsible.
pub(crate) const NETWORKS: usize = 32;
/// Entries of a block.
const BLOCK: usize = 8;
/// At the start of `hops` each next hop has its own number.
const NUMBERS: usize = NextHopIndex::MAX.index() + 1;
/// Set in a place of `hops` that is not a next hop but the number of a block.
pub(crate) const IS_BLOCK: u16 = 0x8000;
/// Room for this many 16-bit places. Address space, not memory, until it is used.
const HOPS: usize = 1 << 27;
/// Room for this many blocks.
const BLOCKS: usize = 1 << 20;

/// The rank table. See the top of its file for the layout.
pub struct Rank {
    chunks: HugeArray<u64>,
    hops: HugeArray<u16>,
    blocks: HugeArray<u64>,
    /// Places of `hops` and blocks that lookups may read.
    hops_used: usize,
    blocks_used: usize,
    /// Whether the processor counts bits.
    has_popcnt: bool,
}

/// The place in `hops` for part number `part` (its low five bits) of what `entry` describes.
#[inline(always)]
fn place(entry: u64, part: u32) -> usize {
    // The bitmap is the low half. Of a shift count x86 takes the low five bits; `wrapping_shr` says just that.
    let behind = (entry as u32).wrapping_shr(part).count_ones();
    (entry >> 32) as usize + behind as usize
}

impl Rank {
    #[inline(always)]
    #[allow(unsafe_code, reason = "a bounds check less in the lookup loop")]
    fn chunk(&self, address: u32) -> u64 {
        // SAFETY: an address has 32 bits, so its first 19 are below 2^19, the length of `chunks`.
        unsafe { *self.chunks.get_unchecked((address >> (32 - CHUNK_BITS)) as usize) }
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "a bounds check less in the lookup loop")]
    fn hop(&self, place: usize) -> u16 {
        debug_assert!(place < self.hops_used);
        // SAFETY: places are made by the compiler from places that it has allocated in `hops` (base plus the number
        // of bits, which is one less than the places allocated for an entry), and `hops` never shrinks.
        unsafe { *self.hops.get_unchecked(place) }
    }

    /// The next hop of an address in the block `number` of its chunk.
    #[inline(never)]
    fn lookup_in_block(&self, address: u32, number: u16) -> NextHopIndex {
        let base = (self.chunk(address) >> 32) as usize;
        let first_block = usize::from(self.hops[base - 2]) | usize::from(self.hops[base - 1]) << 16;
        let block = first_block + usize::from(number & !IS_BLOCK);
        let entry = self.blocks[block * BLOCK + (address >> 5) as usize % BLOCK];
        NextHopIndex::from_entry(self.hops[place(entry, address)])
    }

    #[inline(always)]
    fn lookup_here(&self, address: u32) -> NextHopIndex {
        let found = self.hop(place(self.chunk(address), address >> 8));
        if found & IS_BLOCK != 0 {
            self.lookup_in_block(address, found)
        } else {
            NextHopIndex::from_entry(found)
        }
    }

    /// The next hop of a chunk that has only one.
    pub(crate) fn only_next_hop(&self, chunk: usize) -> Option<u16> {
        let entry = self.chunks[chunk];
        (entry as u32 == 0).then_some((entry >> 32) as u16)
    }

    /// The answer for each network of a chunk; [`IS_BLOCK`] is set for one that contains longer prefixes.
    pub(crate) fn networks(&self, chunk: usize) -> [u16; NETWORKS] {
        let entry = self.chunks[chunk];
        std::array::from_fn(|network| self.hop(place(entry, network as u32)))
    }

    /// Looks up at most [`BURST`] addresses.
    #[inline(always)]
    fn burst_here(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        let mut places = [0u32; BURST];
        for (&address, at) in addresses.iter().zip(&mut places) {
            let found = place(self.chunk(address), address >> 8);
            prefetch(&self.hops, found);
            *at = found as u32;
        }
        let mut seen = 0;
        for (&place, next_hop) in places.iter().zip(&mut *next_hops) {
            let found = self.hop(place as usize);
            seen |= found;
            *next_hop = NextHopIndex::from_entry(found & !IS_BLOCK);
        }
        if seen & IS_BLOCK != 0 {
            for ((&address, &place), next_hop) in addresses.iter().zip(&places).zip(next_hops) {
                let found = self.hop(place as usize);
                if found & IS_BLOCK != 0 {
                    *next_hop = self.lookup_in_block(address, found);
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
    fn burst_with_popcnt(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        self.burst_here(addresses, next_hops);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
    fn lookup_with_popcnt(&self, address: u32) -> NextHopIndex {
        self.lookup_here(address)
    }

    /// Looks up at most [`BURST`] addresses.
    #[inline(always)]
    #[allow(unsafe_code, reason = "calling a function that needs processor features")]
    pub(crate) fn lookup_burst(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        #[cfg(target_arch = "x86_64")]
        if self.has_popcnt {
            // SAFETY: `has_popcnt` is set only where the processor has these features.
            return unsafe { self.burst_with_popcnt(addresses, next_hops) };
        }
        self.burst_here(addresses, next_hops);
    }

    /// The same table for a processor without the instructions that lookups would like.
    #[cfg(test)]
    pub(crate) fn without_popcnt(mut self) -> Rank {
        self.has_popcnt = false;
        self
    }
}

impl Rank {
    /// Calls `visit` for each /24 with one next hop, and for each address of the others, in ascending order.
    pub(crate) fn for_each_part(&self, mut visit: impl FnMut(u32, NextHopIndex)) {
        for chunk in 0..CHUNKS {
            let first = (chunk as u32) << (32 - CHUNK_BITS);
            for (start, answer) in (first..=u32::MAX).step_by(256).zip(self.networks(chunk)) {
                if answer & IS_BLOCK == 0 {
                    visit(start, NextHopIndex::from_entry(answer));
                } else {
                    (start..=start | 0xff)
                        .for_each(|address| visit(address, self.lookup_in_block(address, answer)));
                }
            }
        }
    }
}

impl Table<u32> for Rank {
    const NAME: &'static str = NAME;
    const IS_SHARED: bool = true;
    type Compiler = RankCompiler;

    fn new() -> Result<Rank, TableError> {
        let mut rank = Rank {
            chunks: HugeArray::zeroed(NAME, CHUNKS)?,
            hops: HugeArray::zeroed(NAME, HOPS)?,
            blocks: HugeArray::zeroed(NAME, BLOCKS * BLOCK)?,
            hops_used: NUMBERS,
            blocks_used: 0,
            has_popcnt: Vectors::best() != Vectors::None,
        };
        for (number, hop) in rank.hops[..NUMBERS].iter_mut().enumerate() {
            *hop = number as u16;
        }
        Ok(rank)
    }

    #[inline]
    #[allow(unsafe_code, reason = "calling a function that needs processor features")]
    fn lookup(&self, address: u32) -> NextHopIndex {
        #[cfg(target_arch = "x86_64")]
        if self.has_popcnt {
            // SAFETY: `has_popcnt` is set only where the processor has these features.
            return unsafe { self.lookup_with_popcnt(address) };
        }
        self.lookup_here(address)
    }

    #[inline]
    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        assert_eq!(addresses.len(), next_hops.len(), "one place for each answer");
        for (addresses, next_hops) in addresses.chunks(BURST).zip(next_hops.chunks_mut(BURST)) {
            self.lookup_burst(addresses, next_hops);
        }
    }

    fn update(
        &mut self,
        compiler: &mut RankCompiler,
        rib: &Rib<u32>,
        prefix: Ipv4Net,
    ) -> Result<(), TableError> {
        compile::update(self, compiler, rib, prefix)
    }

    fn update_all(
        &mut self,
        compiler: &mut RankCompiler,
        rib: &Rib<u32>,
        prefixes: &[Ipv4Net],
    ) -> Result<(), TableError> {
        compile::update_all(self, compiler, rib, prefixes)
    }

    fn surely_fits(rib: &Rib<u32>) -> bool {
        // A route begins at most two ranges, a chunk has at most three places besides, and a block, which is for a network
        // with longer prefixes, ten.
        rib.longer_than(24) <= BLOCKS && NUMBERS + 3 * CHUNKS + 10 * BLOCKS + 2 * rib.len() <= HOPS
    }

    fn rebuild(&mut self, compiler: &mut RankCompiler, rib: &Rib<u32>) -> Result<(), TableError> {
        compile::rebuild(self, compiler, rib)
    }

    fn catch_up(&mut self, compiler: &mut RankCompiler, ahead: &Rank) {
        compile::catch_up(self, compiler, ahead);
    }

    fn relocate(&mut self, region: Option<&Arc<Region>>) -> Result<(), TableError> {
        self.chunks.relocate(region, CHUNKS)?;
        self.hops.relocate(region, self.hops_used)?;
        self.blocks.relocate(region, self.blocks_used * BLOCK)
    }

    /// Chunks, next hops, blocks.
    fn places_in(&self, region: &Arc<Region>) -> Option<[u32; 3]> {
        Some([self.chunks.offset_in(region)?, self.hops.offset_in(region)?, self.blocks.offset_in(region)?])
    }

    fn for_each_range(&self, visit: &mut dyn FnMut(u32, NextHopIndex)) {
        let mut last = None;
        self.for_each_part(|start, next_hop| {
            if last.replace(next_hop) != Some(next_hop) {
                visit(start, next_hop);
            }
        });
    }

    fn expected_bytes(routes: usize) -> usize {
        // Two changes of next hop for each route.
        CHUNKS * size_of::<u64>()
            + (NUMBERS + 2 * routes) * size_of::<u16>()
            + routes / 8 * BLOCK * size_of::<u64>()
    }

    fn memory_bytes(&self) -> usize {
        CHUNKS * size_of::<u64>()
            + self.hops_used * size_of::<u16>()
            + self.blocks_used * BLOCK * size_of::<u64>()
    }
}
