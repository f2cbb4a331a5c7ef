//! The table of flows: found by either way's key, dropped by age, bounded.
//!
//! **Finding.** An index of 8-byte slots (open addressing, linear probing, at most half full) holds, for each key of a
//! flow, 32 bits of its hash and the flow's place; a flow is one cache line in a slab. So a packet costs two misses at
//! most, and a batch can ask for both beforehand ([`Table::prefetch_index`], [`Table::prefetch_flow`]). Deletion moves
//! later slots up, so there are no tombstones and lookups do not slow down with time. The hash is keyed at random: who
//! sends packets cannot choose them to collide.
//!
//! **Ages.** Flows with the same timeout and the same guarantee are a class, and each class is a list in the order of
//! last use. So the first of a list is the next of its class to expire and the first whose guarantee lapses; nothing is
//! ever searched. A flow that is used is moved to the end only if it was not moved within the last 64 ms or a sixteenth
//! of its guarantee: the two neighbours that a move touches are misses too. Ages are known that exactly and no better.
//!
//! **Bounds.** Memory is reserved at first, so packets allocate nothing (but for shifts, which few connections have), and
//! the kernel gives what is touched. When the table is full the flow that would expire next among those without guarantee
//! makes room, if the new flow would outlive it. Otherwise the new one is refused, so a flood of flows with
//! short timeouts pushes out others like them, and no connection that was established.

use packet::flow::FlowKey;

use super::flow::{Flow, FlowAndShifts, Key, NONE};
use super::hosts::Hosts;
use super::sequence::Shifts;

/// Most flows a table can be made for: an index of 512 MiB, a slab of 1 GiB.
pub(super) const MOST_FLOWS: usize = 1 << 24;

/// Coarsest age of flows.
const COARSE_NS: u64 = 64_000_000;

/// Expired flows that are dropped at a time.
const EXPIRED_AT_A_TIME: usize = 64;

/// Flows with these times.
#[derive(Clone, Copy, Debug)]
struct Class {
    guarantee_ns: u64,
    timeout_ns: u64,
    /// A flow is not moved again within this time.
    step_ns: u64,
    /// Least and most recently used.
    first: u32,
    last: u32,
}

/// A flow and which of its ways a key was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) flow: u32,
    pub(super) reply: bool,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    index: Vec<u64>,
    mask: usize,
    flows: Vec<Flow>,
    /// First free place of the slab among those used before.
    free: u32,
    length: usize,
    capacity: usize,
    classes: Vec<Class>,
    /// No flow expires before.
    expiry_ns: u64,
    /// Flows of each owner.
    counts: Vec<u32>,
    shifts: Vec<Shifts>,
    free_shifts: Vec<u32>,
    hosts: Hosts,
    key: FlowKey,
}

/// A place of the slab without a flow.
const NO_CLASS: u8 = u8::MAX;

impl Table {
    /// A table for so many flows, which finds them by a hash with this key.
    pub(super) fn new(capacity: usize, key: FlowKey) -> Result<Self, String> {
        let mut table = Self {
            index: Vec::new(),
            mask: 0,
            flows: Vec::new(),
            free: NONE,
            length: 0,
            capacity: 0,
            classes: Vec::new(),
            expiry_ns: u64::MAX,
            counts: Vec::new(),
            shifts: Vec::new(),
            free_shifts: Vec::new(),
            hosts: Hosts::new(key),
            key,
        };
        table.set_capacity(capacity)?;
        Ok(table)
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes the table one for so many flows; those that are too many go, the next to expire first.
    pub(super) fn set_capacity(&mut self, capacity: usize) -> Result<(), String> {
        if capacity > MOST_FLOWS {
            return Err(format!("expected at most {MOST_FLOWS} mappings, got {capacity}"));
        }
        self.capacity = capacity;
        while self.length > capacity {
            let first = self.oldest(u64::MAX);
            let Some((flow, _)) = first else { break };
            self.remove(flow);
        }
        let more = capacity.saturating_sub(self.flows.len());
        self.flows.try_reserve_exact(more).map_err(|_| format!("no memory for {capacity} mappings"))?;
        packet::prefer_huge_pages(self.flows.spare_capacity_mut());
        self.hosts.reserve(capacity);
        let slots = (capacity.max(8) * 4).next_power_of_two();
        if slots <= self.index.len() {
            return Ok(());
        }
        self.index = vec![0; slots];
        packet::prefer_huge_pages(&mut self.index);
        self.mask = slots - 1;
        for flow in 0..self.flows.len() as u32 {
            if self.flows[flow as usize].class != NO_CLASS {
                self.index_flow(flow);
            }
        }
        Ok(())
    }

    /// The class of flows that are kept for `guarantee_ns` and `timeout_ns` after their last packet.
    pub(super) fn class(&mut self, guarantee_ns: u64, timeout_ns: u64) -> Result<u8, String> {
        let timeout_ns = timeout_ns.max(guarantee_ns);
        let known = |class: &Class| (class.guarantee_ns, class.timeout_ns) == (guarantee_ns, timeout_ns);
        let number = self.classes.iter().position(known).unwrap_or_else(|| {
            let shorter = if guarantee_ns == 0 { timeout_ns } else { guarantee_ns };
            let step_ns = (shorter / 16).min(COARSE_NS);
            self.classes.push(Class { guarantee_ns, timeout_ns, step_ns, first: NONE, last: NONE });
            self.classes.len() - 1
        });
        let number = u8::try_from(number).ok().filter(|number| *number != NO_CLASS);
        number.ok_or_else(|| "too many different timeouts".to_owned())
    }

    /// A number under which flows are counted.
    pub(super) fn owner(&mut self) -> Result<u16, String> {
        self.counts.push(0);
        u16::try_from(self.counts.len() - 1).map_err(|_| "too many inputs".to_owned())
    }

    /// Flows of an owner.
    pub(super) fn count(&self, owner: u16) -> u32 {
        self.counts.get(usize::from(owner)).copied().unwrap_or(0)
    }

    /// Flows that packets of a host began.
    pub(super) fn of_host(&self, host: u32) -> u32 {
        self.hosts.count(host)
    }

    // ---- the index --------------------------------------------------------------------------------------

    #[inline(always)]
    pub(super) fn hash(&self, key: &Key) -> u32 {
        let Key { tuple, map } = key;
        let addresses = u64::from(tuple.source) << 32 | u64::from(tuple.destination);
        let ports = u64::from(tuple.source_port) << 16 | u64::from(tuple.destination_port);
        let rest = u64::from(*map) << 32 | ports;
        self.key.product(self.key.product(addresses, rest), 0xe703_7ed1_a0b4_28db) as u32
    }

    /// Asks for the slot where a search for `hash` begins.
    #[inline(always)]
    pub(super) fn prefetch_index(&self, hash: u32) {
        if let Some(slot) = self.index.get(hash as usize & self.mask) {
            packet::prefetch(slot);
        }
    }

    /// Asks for the flow that a search for `hash` will look at first.
    #[inline(always)]
    pub(super) fn prefetch_flow(&self, hash: u32) {
        let slot = self.index.get(hash as usize & self.mask).copied().unwrap_or(0);
        if (slot >> 32) as u32 == hash
            && let Some(flow) = self.flows.get(entry(slot).flow as usize)
        {
            packet::prefetch(flow);
        }
    }

    pub(super) fn find(&self, key: &Key) -> Option<Place> {
        self.find_hashed(self.hash(key), key)
    }

    #[inline(always)]
    pub(super) fn find_hashed(&self, hash: u32, key: &Key) -> Option<Place> {
        let mut at = hash as usize & self.mask;
        loop {
            let slot = *self.index.get(at)?;
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == hash {
                let place = entry(slot);
                if self.flows.get(place.flow as usize)?.key(place.reply) == *key {
                    return Some(place);
                }
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Whether a flow has this key; also where another one's hash is the same by chance, as that of one key
    /// in 4 billion is. Looks at the index only.
    pub(super) fn seems_taken(&self, key: &Key) -> bool {
        let hash = self.hash(key);
        let mut at = hash as usize & self.mask;
        while let Some(&slot) = self.index.get(at).filter(|slot| **slot != 0) {
            if (slot >> 32) as u32 == hash {
                return true;
            }
            at = (at + 1) & self.mask;
        }
        false
    }

    fn index_key(&mut self, place: Place) {
        let hash = self.hash(&self.flows[place.flow as usize].key(place.reply));
        let mut at = hash as usize & self.mask;
        while self.index[at] != 0 {
            at = (at + 1) & self.mask;
        }
        self.index[at] = u64::from(hash) << 32 | u64::from((place.flow << 1 | u32::from(place.reply)) + 1);
    }

    /// Puts both keys of a flow into the index. A flow that answers itself is found as its own reply.
    fn index_flow(&mut self, flow: u32) {
        let known = &self.flows[flow as usize];
        let same = known.key(false) == known.key(true);
        for reply in [false, true] {
            if reply || !same {
                self.index_key(Place { flow, reply });
            }
        }
    }

    fn unindex_key(&mut self, place: Place) {
        let hash = self.hash(&self.flows[place.flow as usize].key(place.reply));
        let wanted = u64::from(hash) << 32 | u64::from((place.flow << 1 | u32::from(place.reply)) + 1);
        let mut gap = hash as usize & self.mask;
        while self.index[gap] != wanted {
            if self.index[gap] == 0 {
                return;
            }
            gap = (gap + 1) & self.mask;
        }
        // What comes behind moves up unless it would stand before its home.
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.index[at];
            if slot == 0 {
                break;
            }
            let home = (slot >> 32) as usize & self.mask;
            if (at.wrapping_sub(home) & self.mask) >= (at.wrapping_sub(gap) & self.mask) {
                self.index[gap] = slot;
                gap = at;
            }
        }
        self.index[gap] = 0;
    }

    // ---- flows ------------------------------------------------------------------------------------------

    pub(super) fn get(&self, flow: u32) -> Option<&Flow> {
        self.flows.get(flow as usize).filter(|flow| flow.class != NO_CLASS)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, flow: u32) -> Option<FlowAndShifts<'_>> {
        let flow = self.flows.get_mut(flow as usize)?;
        let shifts = if flow.shifts == NONE { None } else { self.shifts.get_mut(flow.shifts as usize) };
        Some((flow, shifts))
    }

    /// Shifts of a flow's sequence numbers, made when there are none yet.
    pub(super) fn shifts(&mut self, flow: u32) -> Option<&mut Shifts> {
        let flow = self.flows.get_mut(flow as usize)?;
        if flow.shifts == NONE {
            flow.shifts = self.free_shifts.pop().unwrap_or_else(|| {
                self.shifts.push(Shifts::default());
                self.shifts.len() as u32 - 1
            });
        }
        self.shifts.get_mut(flow.shifts as usize)
    }

    /// Shifts of a flow's sequence numbers, if there are some.
    pub(super) fn known_shifts(&self, flow: &Flow) -> Option<&Shifts> {
        self.shifts.get(flow.shifts as usize)
    }

    /// All flows, in the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(|flow| flow.class != NO_CLASS)
    }

    /// Takes in a flow of `class`. A flow with the key of its replies goes. `None`: there is no room, since
    /// all flows are guaranteed, or expire later than this one would.
    pub(super) fn insert(&mut self, flow: Flow, class: u8, now_ns: u64) -> Option<u32> {
        for key in [flow.key(false), flow.key(true)] {
            if let Some(old) = self.find(&key) {
                self.remove(old.flow);
            }
        }
        if self.length >= self.capacity {
            self.make_room(class, now_ns)?;
        }
        let number = self.free;
        let number = match self.flows.get_mut(number as usize) {
            Some(place) => {
                self.free = place.next;
                *place = flow;
                number
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        self.length += 1;
        self.hosts.add(flow.original.source);
        if let Some(count) = self.counts.get_mut(usize::from(flow.owner)) {
            *count += 1;
        }
        self.index_flow(number);
        self.append(number, class, now_ns);
        Some(number)
    }

    fn make_room(&mut self, class: u8, now_ns: u64) -> Option<()> {
        let class = *self.classes.get(usize::from(class))?;
        let (victim, expiry_ns) = self.oldest(now_ns)?;
        if now_ns.saturating_add(class.timeout_ns) < expiry_ns {
            return None;
        }
        self.remove(victim);
        Some(())
    }

    /// The next flow to expire among those without guarantee at that time, and when it does.
    fn oldest(&self, now_ns: u64) -> Option<(u32, u64)> {
        let first = |class: &Class| {
            let used_ns = self.flows.get(class.first as usize)?.used_ns;
            let lapsed = used_ns.saturating_add(class.guarantee_ns) <= now_ns;
            lapsed.then(|| (class.first, used_ns.saturating_add(class.timeout_ns)))
        };
        self.classes.iter().filter_map(first).min_by_key(|(_, expiry_ns)| *expiry_ns)
    }

    /// Says that a flow was used, and is of `class` now.
    #[inline(always)]
    pub(super) fn touch(&mut self, number: u32, class: u8, now_ns: u64) {
        let Some(flow) = self.flows.get(number as usize) else { return };
        let step_ns = self.classes.get(usize::from(class)).map_or(0, |class| class.step_ns);
        if flow.class != class || now_ns.saturating_sub(flow.used_ns) >= step_ns.max(1) {
            self.unlink(number);
            self.append(number, class, now_ns);
        }
    }

    fn unlink(&mut self, number: u32) {
        let Flow { previous, next, class, .. } = self.flows[number as usize];
        match self.flows.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.classes[usize::from(class)].first = next,
        }
        match self.flows.get_mut(next as usize) {
            Some(behind) => behind.previous = previous,
            None => self.classes[usize::from(class)].last = previous,
        }
    }

    fn append(&mut self, number: u32, class: u8, now_ns: u64) {
        let list = &mut self.classes[usize::from(class)];
        let previous = std::mem::replace(&mut list.last, number);
        if previous == NONE {
            list.first = number;
        }
        self.expiry_ns = self.expiry_ns.min(now_ns.saturating_add(list.timeout_ns));
        if let Some(before) = self.flows.get_mut(previous as usize) {
            before.next = number;
        }
        let flow = &mut self.flows[number as usize];
        (flow.previous, flow.next, flow.class, flow.used_ns) = (previous, NONE, class, now_ns);
    }

    /// Removes a flow.
    pub(super) fn remove(&mut self, number: u32) {
        if self.get(number).is_none() {
            return;
        }
        for reply in [false, true] {
            self.unindex_key(Place { flow: number, reply });
        }
        self.unlink(number);
        let flow = &mut self.flows[number as usize];
        flow.class = NO_CLASS;
        flow.next = std::mem::replace(&mut self.free, number);
        if flow.shifts != NONE {
            self.shifts[flow.shifts as usize] = Shifts::default();
            self.free_shifts.push(std::mem::replace(&mut flow.shifts, NONE));
        }
        if let Some(count) = self.counts.get_mut(usize::from(flow.owner)) {
            *count -= 1;
        }
        self.length -= 1;
        let host = flow.original.source;
        self.hosts.remove(host);
    }

    /// Removes the flows that `which` selects. Looks at all: for handlers.
    pub(super) fn remove_if(&mut self, which: impl Fn(&Flow) -> bool) {
        for number in 0..self.flows.len() as u32 {
            if self.get(number).is_some_and(&which) {
                self.remove(number);
            }
        }
    }

    /// When a flow expires that is not used before.
    pub(super) fn expiry_ns(&self, flow: &Flow) -> u64 {
        let timeout_ns = self.classes.get(usize::from(flow.class)).map_or(0, |class| class.timeout_ns);
        flow.used_ns.saturating_add(timeout_ns)
    }

    /// Drops some of the flows that have expired; returns whether there may be more.
    #[inline(always)]
    pub(super) fn expire(&mut self, now_ns: u64) -> bool {
        now_ns >= self.expiry_ns && self.expire_some(now_ns)
    }

    #[cold]
    fn expire_some(&mut self, now_ns: u64) -> bool {
        let mut left = EXPIRED_AT_A_TIME;
        let mut next_ns = u64::MAX;
        for class in 0..self.classes.len() {
            let Class { timeout_ns, .. } = self.classes[class];
            while let Some(flow) = self.flows.get(self.classes[class].first as usize) {
                let expiry_ns = flow.used_ns.saturating_add(timeout_ns);
                if expiry_ns > now_ns || left == 0 {
                    next_ns = next_ns.min(expiry_ns);
                    break;
                }
                left -= 1;
                self.remove(self.classes[class].first);
            }
        }
        self.expiry_ns = next_ns;
        next_ns <= now_ns && self.length > 0
    }
}

fn entry(slot: u64) -> Place {
    let number = (slot as u32).wrapping_sub(1);
    Place { flow: number >> 1, reply: number & 1 != 0 }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
