//! The fast path: from the number that a compiled table yields, and the flow's hash, to the next hop. Three arrays and
//! three loads, the same for single next hops and for groups, so there is nothing to mispredict.
//!
//! ```text
//!  number     entries                 buckets               hops
//!             base   mask             slot                  what happens
//!    0     |     0 |   0 | ------> 0 |    0 | ----------> 0 | no route          |
//!    1     |     2 |   0 | ---+    1 |    1 | ----------> 1 | unreachable       |
//!    2     |     3 |   0 | -+ +--> 2 |    2 | -+--+-----> 2 | via A             |  slot = number + 1
//!    3     |     4 |   3 | -|--+   3 |    3 | -|--|-+---> 3 | via B             |
//!           (a group of     +----->           |  | |     4 | (a group's: idle) |
//!            1 and 2)          +-> 4 |    2 | -+  | |
//!                                  5 |    3 | ----|-+
//!                                  6 |    2 | ----+ |
//!                                  7 |    3 | ------+
//! ```
//!
//! A single next hop is a group of one bucket. One that is down, or a group of which no member is up, has the base and
//! mask of its backup, or those of bucket 1: its *entry* is changed, and no route.
//!
//! # Which bucket
//!
//! `base + (mixed(flow hash) & mask)`. The hash is mixed here, by one multiplication, because the hash at hand is often
//! the one by which the card spread flows over queues: within one worker its low bits are all alike. All that is asked
//! of it is that its 32 bits differ between flows. Routers in a row must not use the same hash (all flows
//! that arrive here may have been chosen by it): a `PathHash` has a key of its own in each process.
//!
//! # Copies
//!
//! Workers read one copy while the control thread brings another in line. Every resolver knows its version and the last
//! changes that led there, so [`Resolver::catch_up`] copies the places that changed since, and everything only if the
//! other is further ahead than its log reaches. Any copy can catch up with any other of the same
//! [`NextHops`](crate::NextHops).
//!
//! # Memory
//!
//! | what | bytes |
//! | --- | --- |
//! | a number in use (up to the largest) | 8 + one next hop, 64 for an adjacency |
//! | a single next hop's bucket | 2 |
//! | a group | 2 a bucket, see `group.rs`: 512 for 8 equal members |
//! | the log | at most 96 KB |
//!
//! Hence 2.5 MB for 32,767 adjacencies, and half a megabyte for 1,000 groups of 8.

use super::next_hop::NextHop;
use crate::NextHopIndex;
use std::collections::VecDeque;
use std::ops::Range;

/// How many changes a resolver remembers.
const LOG: usize = 8192;

/// The buckets of a number, as the fast path wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) base: u32,
    pub(crate) mask: u32,
}

impl Entry {
    pub(super) const NO_ROUTE: Entry = Entry { base: 0, mask: 0 };
    pub(super) const UNREACHABLE: Entry = Entry { base: 1, mask: 0 };

    /// The binary logarithm of the number of buckets.
    pub(super) fn order(self) -> usize {
        self.mask.trailing_ones() as usize
    }

    /// The places of its buckets.
    pub(crate) fn range(self) -> Range<usize> {
        self.base as usize..self.base as usize + self.mask as usize + 1
    }
}

/// A slot of `hops`, kept in a bucket.
pub(crate) type Slot = u16;
const NO_ROUTE: Slot = 0;
const UNREACHABLE: Slot = 1;

/// Where the next hop of a number stands. Slot 1 has no number.
pub(super) fn slot_of(index: NextHopIndex) -> Slot {
    if index.is_some() { index.get() + 1 } else { NO_ROUTE }
}

/// A place that changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Entry(u16),
    Hop(Slot),
    Buckets(Entry),
}

/// What workers read: see the essay. It can only be changed by its [`NextHops`](crate::NextHops), and by
/// [`Resolver::catch_up`].
#[derive(Clone, Debug)]
pub struct Resolver<P> {
    entries: Vec<Entry>,
    buckets: Vec<Slot>,
    hops: Vec<NextHop<P>>,
    /// Which `NextHops` this came from; versions of different ones cannot be compared.
    lineage: u64,
    /// Changes made since the beginning, of which the log has the last ones.
    version: u64,
    log: VecDeque<Change>,
}

impl<P: Copy> Resolver<P> {
    /// The resolver that knows number 0 only. `lineage` must be new.
    pub(super) fn new(lineage: u64) -> Resolver<P> {
        Resolver {
            entries: vec![Entry::NO_ROUTE],
            buckets: vec![NO_ROUTE, UNREACHABLE],
            hops: vec![NextHop::NoRoute, NextHop::Unreachable],
            lineage,
            version: 0,
            log: VecDeque::new(),
        }
    }

    /// What happens to a packet of this flow whose lookup yielded `index`. A number that nothing has is not a route.
    ///
    /// `flow_hash` must be the same for all packets of a flow, and need not be well mixed.
    #[inline]
    pub fn resolve(&self, index: NextHopIndex, flow_hash: u32) -> &NextHop<P> {
        self.hops.get(usize::from(self.slot(index, flow_hash))).unwrap_or(&NextHop::NoRoute)
    }

    /// The same; asks for the hash only where several next hops share the traffic. If there is none, the choice is Linux's.
    #[inline(always)]
    pub fn resolve_with(&self, index: NextHopIndex, flow_hash: impl FnOnce() -> Option<u32>) -> &NextHop<P> {
        let entry = self.entries.get(index.index()).copied().unwrap_or(Entry::NO_ROUTE);
        let mut chosen = 0;
        if entry.mask != 0 {
            let Some(hash) = flow_hash() else { return &NextHop::Punt };
            chosen = mixed(hash) & entry.mask;
        }
        let slot = self.buckets.get((entry.base + chosen) as usize).copied().unwrap_or(NO_ROUTE);
        self.hops.get(usize::from(slot)).unwrap_or(&NextHop::NoRoute)
    }

    /// What may happen to packets whose lookup yielded `index`, whatever their flow: one for each bucket, so that members of
    /// a group come as often as they have buckets.
    pub fn hops(&self, index: NextHopIndex) -> impl Iterator<Item = &NextHop<P>> {
        let entry = self.entries.get(index.index()).copied().unwrap_or(Entry::NO_ROUTE);
        let slots = self.buckets.get(entry.range()).unwrap_or_default();
        slots.iter().map(|&slot| self.hops.get(usize::from(slot)).unwrap_or(&NextHop::NoRoute))
    }

    /// What happens to packets of all flows, where that is the same for all.
    #[inline]
    pub fn resolve_single(&self, index: NextHopIndex) -> Option<&NextHop<P>> {
        let entry = self.entries.get(index.index()).copied().unwrap_or(Entry::NO_ROUTE);
        (entry.mask == 0).then(|| self.resolve(index, 0))
    }

    /// The number of the single next hop that [`Resolver::resolve`] takes: the member of a group, or the backup.
    /// [`NextHopIndex::NONE`] for no route; `None` for what is down and has no backup.
    pub fn chosen(&self, index: NextHopIndex, flow_hash: u32) -> Option<NextHopIndex> {
        match self.slot(index, flow_hash) {
            NO_ROUTE => Some(NextHopIndex::NONE),
            slot => NextHopIndex::new(slot - 1).filter(|index| index.is_some()),
        }
    }

    /// The lookups answer numbers out of range too, because a fast path does not panic; the branches are never taken.
    #[inline]
    fn slot(&self, index: NextHopIndex, flow_hash: u32) -> Slot {
        let entry = self.entries.get(index.index()).copied().unwrap_or(Entry::NO_ROUTE);
        let bucket = entry.base + (mixed(flow_hash) & entry.mask);
        self.buckets.get(bucket as usize).copied().unwrap_or(NO_ROUTE)
    }

    /// Makes this copy equal to `ahead`, at the cost of what changed since they were last equal.
    ///
    /// `ahead` should be at least as new: an older one, or one of another `NextHops`, is copied whole.
    pub fn catch_up(&mut self, ahead: &Resolver<P>) {
        let Some(changes) = ahead.changes_since(self.version()) else {
            self.entries.clone_from(&ahead.entries);
            self.buckets.clone_from(&ahead.buckets);
            self.hops.clone_from(&ahead.hops);
            self.log.clone_from(&ahead.log);
            (self.lineage, self.version) = (ahead.lineage, ahead.version);
            return;
        };
        // Arrays only ever grow.
        self.entries.resize(ahead.entries.len(), Entry::NO_ROUTE);
        self.buckets.resize(ahead.buckets.len(), NO_ROUTE);
        self.hops.resize(ahead.hops.len(), NextHop::NoRoute);
        for change in changes {
            match change {
                Change::Entry(number) => {
                    self.entries[usize::from(number)] = ahead.entries[usize::from(number)];
                }
                Change::Hop(slot) => self.hops[usize::from(slot)] = ahead.hops[usize::from(slot)],
                Change::Buckets(block) => {
                    self.buckets[block.range()].copy_from_slice(&ahead.buckets[block.range()]);
                }
            }
            self.record(change);
        }
    }

    /// Entries, buckets, and the next hops in their slots.
    pub(crate) fn arrays(&self) -> (&[Entry], &[Slot], &[NextHop<P>]) {
        (&self.entries, &self.buckets, &self.hops)
    }

    /// Lineage and version, which only this resolver and its copies have, and which change whenever a number comes to mean
    /// something else.
    pub fn version(&self) -> (u64, u64) {
        (self.lineage, self.version)
    }

    /// The places that changed since a version; `None` if the log does not reach so far back.
    pub(crate) fn changes_since(
        &self,
        (lineage, version): (u64, u64),
    ) -> Option<impl Iterator<Item = Change>> {
        let behind = self.version.wrapping_sub(version);
        let first = self.log.len().checked_sub(usize::try_from(behind).ok()?)?;
        (lineage == self.lineage).then(|| self.log.range(first..).copied())
    }

    /// The bytes of all arrays.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.buckets.capacity() * size_of::<Slot>()
            + self.hops.capacity() * size_of::<NextHop<P>>()
            + self.log.capacity() * size_of::<Change>()
    }

    fn record(&mut self, change: Change) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(change);
        self.version += 1;
    }

    pub(super) fn hop(&self, index: NextHopIndex) -> NextHop<P> {
        self.hops[usize::from(slot_of(index))]
    }

    pub(super) fn set_hop(&mut self, index: NextHopIndex, hop: NextHop<P>) {
        let slot = slot_of(index);
        if self.hops.len() <= usize::from(slot) {
            self.hops.resize(usize::from(slot) + 1, NextHop::NoRoute);
        }
        self.hops[usize::from(slot)] = hop;
        self.record(Change::Hop(slot));
    }

    /// Points a number to buckets; nothing is recorded where nothing changes.
    pub(super) fn set_entry(&mut self, index: NextHopIndex, entry: Entry) {
        if self.entries.len() <= index.index() {
            self.entries.resize(index.index() + 1, Entry::NO_ROUTE);
        }
        if self.entries[index.index()] != entry {
            self.entries[index.index()] = entry;
            self.record(Change::Entry(index.get()));
        }
    }

    /// A new block of `count` buckets at the end.
    pub(super) fn new_buckets(&mut self, count: u32) -> Entry {
        let base = u32::try_from(self.buckets.len()).expect("32,767 groups of the largest size fit 32 bits");
        self.buckets.resize(self.buckets.len() + count as usize, NO_ROUTE);
        Entry { base, mask: count - 1 }
    }

    /// The buckets of a block; for tests.
    #[cfg(test)]
    pub(super) fn buckets(&self, block: Entry) -> &[Slot] {
        &self.buckets[block.range()]
    }

    /// The buckets of a block, to be changed.
    pub(super) fn buckets_mut(&mut self, block: Entry) -> &mut [Slot] {
        self.record(Change::Buckets(block));
        &mut self.buckets[block.range()]
    }

    /// Fills `to` with `from`, again and again: the bucket of each flow in a larger block has the slot it had.
    pub(super) fn repeat_buckets(&mut self, from: Entry, to: Entry) {
        for start in to.range().step_by(from.range().len()) {
            self.buckets.copy_within(from.range(), start);
        }
        self.record(Change::Buckets(to));
    }

    /// Whether two copies would answer alike; for tests.
    #[cfg(test)]
    pub(super) fn same_arrays(&self, other: &Resolver<P>) -> bool
    where
        P: PartialEq,
    {
        self.entries == other.entries && self.buckets == other.buckets && self.hops == other.hops
    }
}

/// Spreads the entropy of all 32 bits over the low ones: bits 32 and up of a product depend on all bits of the factor
/// (Fibonacci hashing; Knuth, The Art of Computer Programming 3, 6.4).
#[inline]
pub(super) fn mixed(flow_hash: u32) -> u32 {
    (u64::from(flow_hash).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_one_queue_of_a_card_reach_all_buckets_evenly() {
        // The card used the low 4 bits for its 16 queues, or the high ones.
        for (shift, queue) in [(4, 0), (4, 5), (0, 0x7000_0000)] {
            let mut counts = [0u32; 64];
            (0..64_000u32).for_each(|flow| counts[(mixed(flow << shift | queue) & 63) as usize] += 1);
            assert!(counts.iter().all(|count| (900..1100).contains(count)), "{shift} {queue}: {counts:?}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_no_route() {
        let resolver = Resolver::<u8>::new(1);
        assert_eq!(resolver.resolve(NextHopIndex::MAX, 9), &NextHop::NoRoute);
        assert_eq!(resolver.chosen(NextHopIndex::MAX, 9), Some(NextHopIndex::NONE));
        assert!(resolver.hops(NextHopIndex::MAX).eq([&NextHop::NoRoute]));
    }

    #[test]
    fn a_copy_further_behind_than_the_log_reaches_is_copied_whole() {
        let one = NextHopIndex::new(1).unwrap();
        let mut ahead = Resolver::new(1);
        let (mut near, mut far) = (ahead.clone(), ahead.clone());
        for value in 0..=LOG as u32 {
            ahead.set_hop(one, NextHop::Forward(value));
            if value == 0 {
                near.catch_up(&ahead);
            }
        }
        assert_eq!((ahead.log.len(), ahead.version), (LOG, LOG as u64 + 1));
        // A place that the log does not know of shows which way was taken.
        ahead.hops[1] = NextHop::Local;
        near.catch_up(&ahead);
        far.catch_up(&ahead);
        assert_eq!((near.hop(one), far.hop(one)), (ahead.hop(one), ahead.hop(one)));
        assert_eq!((near.hops[1], far.hops[1]), (NextHop::Unreachable, NextHop::Local));
        assert_eq!((near.version, far.version), (ahead.version, ahead.version));
    }

    #[test]
    fn copies_of_other_next_hops_are_copied_whole() {
        let one = NextHopIndex::new(1).unwrap();
        let (mut copy, mut other) = (Resolver::new(1), Resolver::new(2));
        copy.set_hop(one, NextHop::Forward(1));
        other.set_hop(one, NextHop::Forward(2));
        copy.catch_up(&other);
        assert!(copy.same_arrays(&other));
    }
}
