//! The range tree: IPv6 by comparing sixteen ends of ranges at a time.
//!
//! Flattened, routes cut the address space into ranges with one next hop each. To look up is to find the range, and
//! what that costs depends on how many ranges there are, not on how long their prefixes are.
//!
//! ```text
//!   16 bits     8 bits         32 bits                      32 bits       32 bits   8 bits
//!  +---------+---------+------------------------------+---------------+----------+--------+
//!  |  top    | middle  |  key of the first stage      |  second stage |  third   | fourth |
//!  +---------+---------+------------------------------+---------------+----------+--------+
//!
//!  top: 65,536 words ---> middle: 256 words ---> node: 16 ends of ranges, ascending   one cache line
//!                                                      16 words                        the next line
//! ```
//!
//! A word is a next hop, and the answer; or it says where to go on. In a node one goes on at the word whose number is
//! the number of ends below the key: one vector comparison and a population count. That is a B-tree; a node's
//! children are nodes of the same stage. A range that does not end with the 32 bits of its stage (at /56, /88 or /120) has a
//! word that leads to the next stage, where the next 32 bits are the key. Routes longer than /56 are few, and one
//! stage has them all for most.
//!
//! Words that are next hops stand at every level: the /24s without longer prefixes are answered in `middle`, the
//! /16s without any in `top`.
//!
//! # Speed
//!
//! Of the 166,385 real routes the most crowded /24 has 10,183 ranges: four levels of nodes. Half of all routes are in
//! /24s with fewer than 100: two levels. Addresses go down in groups of eight, without a branch that depends on a
//! single one; a group takes as many levels as its deepest address. A group of one address is looked up once.
//!
//! What was tried and was slower, in TSC cycles a lookup for random addresses inside the real routes and for 1,000 hot
//! ones (Zen 5; this: 21 and 17): the whole burst at once with a list of those that go on, 20 and 20; groups without
//! prefetching the next nodes, 24 and 15; a trie of /32, /40 and /48 with bitmaps instead of the nodes, 28 and 19, with
//! three times the memory for a million routes.
//!
//! # Changes
//!
//! The smallest subtree that contains the changed prefix is compiled anew from the RIB. Nodes are filled to twelve
//! of sixteen, so that it mostly is one node; when it no longer fits its height, or shrank to a single range, the
//! subtree around it is compiled instead.
//!
//! # Memory
//!
//! | what | bytes |
//! | --- | --- |
//! | top | 262,144 |
//! | a /16 with longer prefixes | 1,024 |
//! | a node, for 12 to 16 ranges | 128 |
//! | 166,385 real routes | 2.5 MB |

mod compile;

pub use compile::RangeTreeCompiler;

use crate::compare::Key;
use crate::memory::{HugeArray, Word, prefetch, prefetch_second_line};
use crate::region::Region;
use crate::{BURST, NextHopIndex, Rib, Table, TableError};
use ipnet::Ipv6Net;
use packet::Vectors;
use std::hint::select_unpredictable;
use std::sync::Arc;

const NAME: &str = "range_tree";
/// Addresses of a burst that go down the tree together: as many as there are registers for.
const GROUP: usize = 8;
/// Ranges of a node.
const FANOUT: usize = 16;
/// Room for this many nodes and /16s. Address space, not memory, until it is used.
const NODES: usize = 1 << 23;
const MIDDLES: usize = 1 << 16;
const MIDDLE: usize = 256;

/// Set in a word that is not a next hop.
const GO_ON: u32 = 1 << 31;
/// Set in a word that goes on with the next 32 bits of the address.
const NEXT_STAGE: u32 = 1 << 30;
const NUMBER: u32 = NEXT_STAGE - 1;

/// Sixteen ranges. What is not used at the end has the highest end, which no key is above.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Node {
    /// The last key of each range; the last one in use is the highest there is.
    ends: [u32; FANOUT],
    words: [u32; FANOUT],
}

impl Word for Node {}

/// The range tree. See the top of its file for the layout.
pub struct RangeTree {
    top: HugeArray<u32>,
    middles: HugeArray<u32>,
    nodes: HugeArray<Node>,
    /// Blocks of `middles` and nodes that lookups may read.
    middles_used: usize,
    nodes_used: usize,
    vectors: Vectors,
}

/// The next hop that a word is, if it is one. Answers are written whenever there is a word, to be overwritten while it goes
/// on: converting all words at the end would wait until their narrow stores have left the core.
#[inline(always)]
fn answer(word: u32) -> NextHopIndex {
    NextHopIndex::from_entry(word as u16 & NextHopIndex::MAX.get())
}

/// The key of an address in a stage, 0 to 3. The last has eight bits, which stand at the top.
#[inline(always)]
fn key(address: u128, stage: u32) -> u32 {
    ((address << (24 + 32 * stage)) >> 96) as u32
}

impl RangeTree {
    #[inline(always)]
    #[allow(unsafe_code, reason = "a bounds check less in the lookup loop")]
    fn top(&self, address: u128) -> u32 {
        // SAFETY: the first 16 bits of an address are below 65,536, the length of `top`.
        unsafe { *self.top.get_unchecked((address >> 112) as usize) }
    }

    /// The word in `middle` for an address whose word in `top` is `word`; any word if that was an answer.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a bounds check less in the lookup loop")]
    fn middle(&self, word: u32, address: u128) -> u32 {
        let block = select_unpredictable(word & GO_ON != 0, word & NUMBER, 0);
        let byte = (address >> 104) as usize & (MIDDLE - 1);
        debug_assert!((block as usize) < MIDDLES);
        // SAFETY: the compiler gives words of `top` numbers of blocks for which it has made room in `middles`, which has
        // one at least.
        unsafe { *self.middles.get_unchecked(block as usize * MIDDLE + byte) }
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "a bounds check less in the lookup loop")]
    fn node(&self, word: u32) -> &Node {
        let number = (word & NUMBER) as usize;
        debug_assert!(number < self.nodes_used);
        // SAFETY: the compiler gives words numbers of nodes that it has allocated, and for which `nodes` has room.
        unsafe { self.nodes.get_unchecked(number) }
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "a bounds check less in the lookup loop")]
    fn word_of(node: &Node, place: usize) -> u32 {
        debug_assert!(place < FANOUT);
        // SAFETY: callers give a number below FANOUT, the length of `words`.
        unsafe { *node.words.get_unchecked(place) }
    }

    #[inline(always)]
    fn lookup_here(&self, address: u128, count: impl Fn(&[u32; FANOUT], u32) -> usize) -> NextHopIndex {
        let mut word = self.top(address);
        if word & GO_ON != 0 {
            word = self.middle(word, address);
        }
        let mut stage = 0;
        let mut wanted = key(address, 0);
        while word & GO_ON != 0 {
            if word & NEXT_STAGE != 0 {
                stage += 1;
                wanted = key(address, stage);
            }
            let node = self.node(word);
            word = Self::word_of(node, count(&node.ends, wanted).min(FANOUT - 1));
        }
        answer(word)
    }

    /// Looks up at most [`BURST`] addresses.
    #[inline(always)]
    fn burst_here(
        &self,
        addresses: &[u128],
        next_hops: &mut [NextHopIndex],
        count: impl Fn(&[u32; FANOUT], u32) -> usize,
    ) {
        let mut groups = addresses.chunks_exact(GROUP);
        let mut answers = next_hops.chunks_exact_mut(GROUP);
        while let (Some(addresses), Some(next_hops)) = (groups.next(), answers.next()) {
            // As of one large flow.
            if addresses[0] == addresses[1] && addresses.iter().all(|&address| address == addresses[0]) {
                next_hops.fill(self.lookup_here(addresses[0], &count));
            } else if let (Ok(addresses), Ok(next_hops)) = (addresses.try_into(), next_hops.try_into()) {
                self.group_here(addresses, next_hops, &count);
            }
        }
        let rest = groups.remainder();
        if let Some(&first) = rest.first() {
            let mut addresses = [first; GROUP];
            let mut next_hops = [NextHopIndex::NONE; GROUP];
            addresses[..rest.len()].copy_from_slice(rest);
            self.group_here(&addresses, &mut next_hops, &count);
            answers.into_remainder().copy_from_slice(&next_hops[..rest.len()]);
        }
    }

    /// Looks up a group. Chains of `zip` instead of these loops stay calls in it.
    #[inline(always)]
    fn group_here(
        &self,
        addresses: &[u128; GROUP],
        next_hops: &mut [NextHopIndex; GROUP],
        count: &impl Fn(&[u32; FANOUT], u32) -> usize,
    ) {
        let mut words = [0u32; GROUP];
        let mut keys = [0u32; GROUP];
        let mut seen = 0;
        for i in 0..GROUP {
            let top = self.top(addresses[i]);
            let middle = self.middle(top, addresses[i]);
            words[i] = select_unpredictable(top & GO_ON != 0, middle, top);
            keys[i] = key(addresses[i], 0);
            seen |= words[i];
            self.prefetch_node(words[i]);
        }
        let mut stages = [0u8; GROUP];
        // No branch depends on a single address: who has an answer looks at node 0, whatever is there, and keeps it.
        while seen & GO_ON != 0 {
            if seen & NEXT_STAGE != 0 {
                for i in 0..GROUP {
                    if words[i] & NEXT_STAGE != 0 {
                        stages[i] += 1;
                        keys[i] = key(addresses[i], u32::from(stages[i]));
                    }
                }
            }
            seen = 0;
            for i in 0..GROUP {
                let node = self.node(select_unpredictable(words[i] & GO_ON != 0, words[i], 0));
                let next = Self::word_of(node, count(&node.ends, keys[i]).min(FANOUT - 1));
                words[i] = select_unpredictable(words[i] & GO_ON != 0, next, words[i]);
                seen |= words[i];
                self.prefetch_node(words[i]);
            }
        }
        for i in 0..GROUP {
            next_hops[i] = answer(words[i]);
        }
    }

    /// Fetches the node that a word leads to, or some node.
    #[inline(always)]
    fn prefetch_node(&self, word: u32) {
        let number = select_unpredictable(word & GO_ON != 0, word & NUMBER, 0) as usize;
        prefetch(&self.nodes, number);
        prefetch_second_line(&self.nodes, number);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx2,popcnt,bmi2")]
    #[allow(unsafe_code, reason = "calling a function that needs processor features")]
    fn burst_avx512(&self, addresses: &[u128], next_hops: &mut [NextHopIndex]) {
        // SAFETY: this function is called where the processor has them.
        self.burst_here(addresses, next_hops, |ends, key| unsafe { u32::below_avx512(ends, key) });
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt,bmi2")]
    fn burst_avx2(&self, addresses: &[u128], next_hops: &mut [NextHopIndex]) {
        self.burst_here(addresses, next_hops, u32::below);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx2,popcnt,bmi2")]
    #[allow(unsafe_code, reason = "calling a function that needs processor features")]
    fn lookup_avx512(&self, address: u128) -> NextHopIndex {
        // SAFETY: this function is called where the processor has them.
        self.lookup_here(address, |ends, key| unsafe { u32::below_avx512(ends, key) })
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt,bmi2")]
    fn lookup_avx2(&self, address: u128) -> NextHopIndex {
        self.lookup_here(address, u32::below)
    }
}

impl Table<u128> for RangeTree {
    const NAME: &'static str = NAME;
    const IS_SHARED: bool = true;
    type Compiler = RangeTreeCompiler;

    fn new() -> Result<RangeTree, TableError> {
        Ok(RangeTree {
            top: HugeArray::zeroed(NAME, MIDDLES)?,
            middles: HugeArray::zeroed(NAME, MIDDLES * MIDDLE)?,
            nodes: HugeArray::zeroed(NAME, NODES)?,
            middles_used: 0,
            nodes_used: 0,
            vectors: Vectors::best(),
        })
    }

    #[inline]
    #[allow(unsafe_code, reason = "calling functions that need processor features")]
    fn lookup(&self, address: u128) -> NextHopIndex {
        match self.vectors {
            // SAFETY: `Vectors::best` gives this only where the processor has these features.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => unsafe { self.lookup_avx512(address) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { self.lookup_avx2(address) },
            Vectors::None => self.lookup_here(address, u32::below),
        }
    }

    #[inline]
    #[allow(unsafe_code, reason = "calling functions that need processor features")]
    fn lookup_batch(&self, addresses: &[u128], next_hops: &mut [NextHopIndex]) {
        assert_eq!(addresses.len(), next_hops.len(), "one place for each answer");
        for (addresses, next_hops) in addresses.chunks(BURST).zip(next_hops.chunks_mut(BURST)) {
            match self.vectors {
                // SAFETY: `Vectors::best` gives this only where the processor has these features.
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx512 => unsafe { self.burst_avx512(addresses, next_hops) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx2 => unsafe { self.burst_avx2(addresses, next_hops) },
                Vectors::None => self.burst_here(addresses, next_hops, u32::below),
            }
        }
    }

    fn update(
        &mut self,
        compiler: &mut RangeTreeCompiler,
        rib: &Rib<u128>,
        prefix: Ipv6Net,
    ) -> Result<(), TableError> {
        compile::update(self, compiler, rib, prefix)
    }

    fn surely_fits(rib: &Rib<u128>) -> bool {
        compile::surely_fits(rib)
    }

    fn rebuild(&mut self, compiler: &mut RangeTreeCompiler, rib: &Rib<u128>) -> Result<(), TableError> {
        compile::rebuild(self, compiler, rib)
    }

    fn catch_up(&mut self, compiler: &mut RangeTreeCompiler, ahead: &RangeTree) {
        compile::catch_up(self, compiler, ahead);
    }

    fn relocate(&mut self, region: Option<&Arc<Region>>) -> Result<(), TableError> {
        self.top.relocate(region, MIDDLES)?;
        self.middles.relocate(region, self.middles_used * MIDDLE)?;
        self.nodes.relocate(region, self.nodes_used)
    }

    /// Top, middles, nodes.
    fn places_in(&self, region: &Arc<Region>) -> Option<[u32; 3]> {
        Some([self.top.offset_in(region)?, self.middles.offset_in(region)?, self.nodes.offset_in(region)?])
    }

    fn for_each_range(&self, visit: &mut dyn FnMut(u128, NextHopIndex)) {
        compile::for_each_range(self, visit);
    }

    fn expected_bytes(routes: usize) -> usize {
        // Two ranges for each route, eight of them in a node.
        (MIDDLES + MIDDLES * MIDDLE / 64) * size_of::<u32>() + routes / 4 * size_of::<Node>()
    }

    fn memory_bytes(&self) -> usize {
        (MIDDLES + self.middles_used * MIDDLE) * size_of::<u32>() + self.nodes_used * size_of::<Node>()
    }
}
