//! The tables as readers outside the process see them: a program in the kernel, by maps that are mapped here.
//!
//! Everything lies in one [`Region`], and places in it are byte offsets. The compiled tables are the workers' own. Next
//! hops have a form of their own there, which does not depend on how Rust lays out an enum: one line of 32 bytes each.
//!
//! ```text
//!  page 0: header                   descriptor, one for each of the two states
//!  +-----------------------+        +-------------------------------------------------------------+
//!  | active descriptor     | -----> | entries, how many | buckets, how many | lines, how many     |
//!  | slots of visits, first|        | VRFs, policy rules                                          |
//!  | slots of visits, count|        | VRF 0: chunks, hops, blocks of IPv4, top, middles, nodes    |
//!  +-----------------------+        |        of IPv6, 0, 0                                        |
//!  | a slot for each CPU,  |        | VRF 1: ...                                                  |
//!  | 128 bytes each        |        +-------------------------------------------------------------+
//!  +-----------------------+
//! ```
//!
//! A place of 0 means that the table is not in the region, for want of room there; its packets are others' to forward. If
//! one array of the next hops is not there, or the rules are not, none is. Without rules the main table is asked alone.
//! Header and slots are 64-bit words, a descriptor has 32-bit words. The counterpart is `crates/ports/bpf/tables.h`, and
//! `ports` tests the two against each other.

use super::{Fib, State, Tables};
use crate::memory::{HugeArray, Word};
use crate::next_hops::{Change, Entry};
use crate::publish::Elsewhere;
use crate::region::{Region, Words};
use crate::{Adjacency, NextHop, Policy, Resolver, TableError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Words of the header: the descriptor of the active state, where the slots begin, how many they are.
const ACTIVE: usize = 0;
const SLOTS: usize = 1;
const SLOT_COUNT: usize = 2;
/// Words between two slots, so that no two CPUs write the same pair of cache lines.
const SLOT_WORDS: usize = 16;
/// Words of a descriptor before those of the VRFs, and for each VRF.
const FIXED: usize = 8;
const OF_VRF: usize = 8;
/// VRFs that a descriptor has room for.
const VRFS: usize = 127;

/// What readers outside the process need of a next hop.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Line {
    /// 1 if it is a neighbour to which the packet goes; 0 if it is another's to decide.
    forwards: u8,
    /// How many bytes of `rewrite` there are.
    length: u8,
    /// The port by which the packet leaves.
    port: u16,
    /// The link header.
    rewrite: [u8; Line::LONGEST],
}

impl Word for Line {}

impl Line {
    /// The longest link header that a line has room for: Ethernet with three tags.
    const LONGEST: usize = 26;

    /// The line of a next hop; one whose link header is too long is not forwarded to.
    fn of(next_hop: &NextHop<Adjacency>) -> Self {
        let mut line = Self::default();
        if let NextHop::Forward(adjacency) = next_hop
            && let Some(place) = line.rewrite.get_mut(..adjacency.rewrite().len())
        {
            place.copy_from_slice(adjacency.rewrite());
            line.length = adjacency.rewrite().len() as u8;
            (line.forwards, line.port) = (1, adjacency.port());
        }
        line
    }
}

/// The header, and the readers that it belongs to.
struct Header {
    words: Words,
    slots: Words,
    /// Where the descriptors of the two states are, by the lowest bit of the generation.
    descriptors: [AtomicU64; 2],
    /// Whether all tables of the two states lie in the region.
    are_whole: [AtomicBool; 2],
}

impl Elsewhere for Header {
    fn flip(&self, generation: u64) {
        let descriptor = self.descriptors[(generation & 1) as usize].load(Ordering::Relaxed);
        self.words.word(ACTIVE).store(descriptor, Ordering::Release);
    }

    fn slots(&self) -> usize {
        self.words.word(SLOT_COUNT).load(Ordering::Relaxed) as usize
    }

    fn visit(&self, slot: usize) -> u64 {
        self.slots.word(slot * SLOT_WORDS).load(Ordering::Acquire)
    }
}

/// What a FIB has in common with readers outside the process.
pub(super) struct Shared<P> {
    region: Arc<Region>,
    header: Arc<Header>,
    line: fn(&NextHop<P>) -> Line,
}

/// The part of a state that only readers outside the process read.
pub(super) struct SharedState {
    descriptor: HugeArray<u32>,
    entries: HugeArray<u64>,
    buckets: HugeArray<u16>,
    lines: HugeArray<Line>,
    rules: HugeArray<u64>,
    /// Which resolver the arrays are equal to.
    version: Option<(u64, u64)>,
    /// Which policy rules are there.
    rules_version: Option<u64>,
    /// Whether all tables lie in the region.
    pub(super) is_whole: bool,
}

/// Policy rules for readers outside the process.
#[derive(Default)]
pub(super) struct SharedRules {
    words: Vec<u64>,
    version: u64,
}

/// The most places of each array: those that numbers reach.
const ENTRIES: usize = 1 << 15;
const LINES: usize = ENTRIES + 1;
const BUCKETS: usize = 1 << 30;
const NAME: &str = "shared next hops";

impl SharedState {
    /// An empty one in a region; `None` if that has no room.
    fn new(region: &Arc<Region>) -> Option<Self> {
        Some(Self {
            descriptor: HugeArray::in_region(NAME, region, FIXED + VRFS * OF_VRF, FIXED + VRFS * OF_VRF)?,
            entries: HugeArray::in_region(NAME, region, 512, ENTRIES)?,
            buckets: HugeArray::in_region(NAME, region, 2048, BUCKETS)?,
            lines: HugeArray::in_region(NAME, region, 128, LINES)?,
            rules: HugeArray::in_region(NAME, region, 512, rules::MOST_WORDS)?,
            version: None,
            rules_version: None,
            is_whole: false,
        })
    }

    /// Brings it in line with the rest of its state, which nobody reads yet.
    fn follow<P: Copy>(
        &mut self,
        shared: &Shared<P>,
        vrfs: &[Option<Tables>],
        resolver: &Resolver<P>,
        rules: &SharedRules,
    ) {
        self.follow_next_hops(shared.line, resolver);
        self.follow_rules(rules);
        let region = &shared.region;
        let (entries, buckets, hops) = resolver.arrays();
        let next_hops = [
            (self.entries.offset_in(region), entries.len()),
            (self.buckets.offset_in(region), buckets.len()),
            (self.lines.offset_in(region), hops.len()),
        ];
        let rules = if rules.words.is_empty() { Some(0) } else { self.rules.offset_in(region) };
        let has_next_hops = next_hops.iter().all(|(place, _)| place.is_some()) && rules.is_some();
        self.is_whole = has_next_hops && vrfs.len() <= VRFS;
        let (fixed, of_vrfs) = self.descriptor.split_at_mut(FIXED);
        for (words, (place, count)) in fixed.chunks_exact_mut(2).zip(next_hops) {
            // All of them or none: a program looks at the number of entries only.
            let place = place.filter(|_| has_next_hops);
            words.copy_from_slice(&place.map_or([0, 0], |place| [place, count as u32]));
        }
        fixed[6] = vrfs.len().min(VRFS) as u32;
        fixed[7] = rules.unwrap_or_default();
        for (tables, words) in vrfs.iter().zip(of_vrfs.chunks_exact_mut(OF_VRF)) {
            words.fill(0);
            let Some(tables) = tables else { continue };
            let (ipv4, ipv6) = (tables.ipv4.places_in(region), tables.ipv6.places_in(region));
            self.is_whole &= ipv4.is_some() && ipv6.is_some();
            words[..3].copy_from_slice(&ipv4.unwrap_or_default());
            words[3..6].copy_from_slice(&ipv6.unwrap_or_default());
        }
    }

    fn follow_rules(&mut self, rules: &SharedRules) {
        if self.rules_version != Some(rules.version) {
            self.rules.reserve(rules.words.len());
            self.rules[..rules.words.len()].copy_from_slice(&rules.words);
            self.rules_version = Some(rules.version);
        }
    }

    fn follow_next_hops<P: Copy>(&mut self, line: fn(&NextHop<P>) -> Line, resolver: &Resolver<P>) {
        let (entries, buckets, hops) = resolver.arrays();
        self.entries.reserve(entries.len());
        self.buckets.reserve(buckets.len());
        self.lines.reserve(hops.len());
        let word = |entry: &Entry| u64::from(entry.mask) << 32 | u64::from(entry.base);
        match self.version.and_then(|version| resolver.changes_since(version)) {
            Some(changes) => changes.for_each(|change| match change {
                Change::Entry(number) => {
                    self.entries[usize::from(number)] = word(&entries[usize::from(number)]);
                }
                Change::Hop(slot) => self.lines[usize::from(slot)] = line(&hops[usize::from(slot)]),
                Change::Buckets(block) => {
                    self.buckets[block.range()].copy_from_slice(&buckets[block.range()]);
                }
            }),
            None => {
                self.entries.iter_mut().zip(entries).for_each(|(place, entry)| *place = word(entry));
                self.lines.iter_mut().zip(hops).for_each(|(place, next_hop)| *place = line(next_hop));
                self.buckets[..buckets.len()].copy_from_slice(buckets);
            }
        }
        self.version = Some(resolver.version());
    }
}

impl<P> Shared<P> {
    /// The memory that the readers see.
    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

impl Tables {
    /// Moves them into a region, or out of all.
    pub(super) fn relocate(&mut self, region: Option<&Arc<Region>>) -> Result<(), TableError> {
        self.ipv4.relocate(region)?;
        self.ipv6.relocate(region)
    }
}

impl<P: Copy> State<P> {
    /// Moves the tables to where their readers are to find them.
    fn relocate(&mut self, shared: Option<&Shared<P>>) -> Result<(), TableError> {
        let region = shared.map(|shared| &shared.region);
        self.vrfs.iter_mut().flatten().try_for_each(|tables| {
            packet::pulse::beat();
            tables.relocate(region)
        })?;
        self.shared = region.and_then(SharedState::new);
        Ok(())
    }

    /// Brings what readers outside the process see in line, and says where it is.
    pub(super) fn follow_shared(&mut self, shared: &Shared<P>, rules: &SharedRules, generation: u64) {
        let State { vrfs, resolver, shared: own } = self;
        let place = own.as_mut().and_then(|own| {
            own.follow(shared, vrfs, resolver, rules);
            own.descriptor.offset_in(&shared.region)
        });
        shared.header.descriptors[(generation & 1) as usize]
            .store(place.unwrap_or_default().into(), Ordering::Relaxed);
        let is_whole = self.shared.as_ref().is_some_and(|own| own.is_whole);
        shared.header.are_whole[(generation & 1) as usize].store(is_whole, Ordering::Relaxed);
    }
}

impl Fib<Adjacency> {
    /// Lets readers outside the process read the tables, in `region`, or none. They follow the protocol of
    /// [`publish`](crate::publish) with `slots` slots. It publishes; if there are such readers already, they go on with
    /// what they have until `exchange` has exchanged them for those of the new region and returns, and none of them can
    /// enter any more ([`Writer::exchange_elsewhere`](crate::publish::Writer::exchange_elsewhere)).
    ///
    /// Tables of a kind that is not [shared](crate::Kinds::not_shared) are not there for them.
    ///
    /// # Errors
    ///
    /// [`TableError::Memory`] if the system has no memory, or the region no room for the least. Then nothing has changed.
    pub fn share(
        &mut self,
        region: Option<(&Arc<Region>, usize)>,
        exchange: impl FnOnce(),
    ) -> Result<(), TableError> {
        let refused = || {
            let source = std::io::ErrorKind::OutOfMemory.into();
            TableError::Memory { table: NAME, bytes: 0, source }
        };
        let shared = match region {
            None => None,
            Some((region, slots)) => {
                // The header is at 0, because it is taken first.
                let words = region.take_words(3).filter(|words| words.offset() == 0).ok_or_else(refused)?;
                let visits = region.take_words(slots * SLOT_WORDS).ok_or_else(refused)?;
                words.word(SLOTS).store(visits.offset() as u64, Ordering::Relaxed);
                words.word(SLOT_COUNT).store(slots as u64, Ordering::Relaxed);
                let header = Arc::new(Header {
                    words,
                    slots: visits,
                    descriptors: Default::default(),
                    are_whole: Default::default(),
                });
                Some(Shared { region: Arc::clone(region), header, line: Line::of })
            }
        };
        self.publish();
        let next = self.writer.generation() + 1;
        let (passive, _) = self.writer.both();
        passive.relocate(shared.as_ref())?;
        if let Some(shared) = &shared {
            passive.follow_shared(shared, &self.shared_rules, next);
        }
        let elsewhere = shared.as_ref().map(|shared| Arc::clone(&shared.header) as Arc<dyn Elsewhere>);
        self.writer.exchange_elsewhere(elsewhere, exchange);
        let (passive, _) = self.writer.both();
        passive.relocate(shared.as_ref())?;
        if let Some(shared) = &shared {
            passive.follow_shared(shared, &self.shared_rules, next + 1);
        }
        self.shared = shared;
        Ok(())
    }

    /// Says by which policy rules readers outside the process look up, from the next [`Fib::publish`] on. VRFs that they name
    /// are those of that state.
    pub fn set_shared_policy(&mut self, policy: &Policy) {
        self.shared_rules.words = rules::words_of(policy);
        self.shared_rules.version += 1;
        self.has_unpublished |= self.shared.is_some();
    }

    /// Returns whether readers outside the process see all tables, in both states; `false` also if there are none. What they do not see
    /// is for want of room in the region: share a larger one.
    pub fn is_shared_whole(&self) -> bool {
        let are_whole = |shared: &Shared<_>| {
            shared.header.are_whole.each_ref().map(|whole| whole.load(Ordering::Relaxed))
        };
        self.shared.as_ref().is_some_and(|shared| are_whole(shared) == [true; 2])
    }
}

mod rules;
pub use rules::MOST_RULES as MOST_SHARED_RULES;
#[cfg(test)]
mod tests;
