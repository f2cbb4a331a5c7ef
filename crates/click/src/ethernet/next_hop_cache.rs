//! One copy's own table of next hops: address to complete Ethernet header.
//!
//! Open addressing with linear probing, at most half full, so that nearly every look-up ends at the first
//! slot: one multiplication, one load of half a cache line, one comparison that is predicted. A packet's
//! header is then copied from the slot. The slot's time says until when the header may be used unasked; after
//! that the table that all copies share has to be asked ([`super::neighbour_table`]).

use packet::flow::FlowKey;
use packet::wire::ethernet::HEADER_LEN;

use super::address::Address;

/// Slots of an empty cache.
const FIRST_SLOTS: usize = 64;

/// A next hop. Half a cache line with an IPv4 address, a whole one with an IPv6 address, and aligned so that
/// it never lies in two.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct NextHop<A> {
    /// The header may be used while time is before this; 0 in a free or forgotten slot.
    pub(super) ask_at_ns: u64,
    /// The address; nobody's in a free slot.
    address: A,
    /// The whole Ethernet header.
    pub(super) header: [u8; HEADER_LEN],
}

const _: () = assert!(size_of::<NextHop<u32>>() == 32 && size_of::<NextHop<u128>>() == 64);

impl<A: Address> NextHop<A> {
    const FREE: Self = Self { ask_at_ns: 0, address: A::NOBODY, header: [0; HEADER_LEN] };
}

/// The table.
#[derive(Debug)]
pub(super) struct NextHopCache<A> {
    slots: Box<[NextHop<A>]>,
    shift: u32,
    used: usize,
    key: FlowKey,
}

impl<A: Address> NextHopCache<A> {
    /// An empty one; neighbours find their slots by a hash with this key.
    pub(super) fn new(key: FlowKey) -> Self {
        Self::with_slots(FIRST_SLOTS, key)
    }

    fn with_slots(count: usize, key: FlowKey) -> Self {
        debug_assert!(count.is_power_of_two() && count > 1);
        let shift = 32 - count.trailing_zeros();
        Self { slots: vec![NextHop::FREE; count].into(), shift, used: 0, key }
    }

    /// Where a search for `address` begins.
    #[inline(always)]
    fn first_slot(&self, address: A) -> usize {
        (address.hash(self.key) >> self.shift) as usize
    }

    /// The slot of `address`. Nobody's address finds nothing, or a free slot, whose time is always over.
    #[inline(always)]
    pub(super) fn find(&self, address: A) -> Option<&NextHop<A>> {
        let mut index = self.first_slot(address);
        // Ends at the latest at a free slot: at most half of them are used.
        loop {
            let slot = &self.slots[index & (self.slots.len() - 1)];
            if slot.address == address {
                return Some(slot);
            }
            if slot.address == A::NOBODY {
                return None;
            }
            index += 1;
        }
    }

    /// Says that `header` leads to `address`, until `ask_at_ns`.
    pub(super) fn set(&mut self, address: A, header: [u8; HEADER_LEN], ask_at_ns: u64) {
        if address == A::NOBODY {
            return;
        }
        if (self.used + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let mut index = self.first_slot(address);
        loop {
            let mask = self.slots.len() - 1;
            let slot = &mut self.slots[index & mask];
            if slot.address == A::NOBODY {
                self.used += 1;
                slot.address = address;
            }
            if slot.address == address {
                slot.header = header;
                slot.ask_at_ns = ask_at_ns;
                return;
            }
            index += 1;
        }
    }

    /// Forgets `address`. Its slot stays taken until the table grows, so that searches go on past it.
    pub(super) fn forget(&mut self, address: A) {
        let mut index = self.first_slot(address);
        loop {
            let mask = self.slots.len() - 1;
            let slot = &mut self.slots[index & mask];
            if slot.address == A::NOBODY {
                return;
            }
            if slot.address == address {
                slot.ask_at_ns = 0;
                return;
            }
            index += 1;
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.slots.fill(NextHop::FREE);
        self.used = 0;
    }

    /// Makes room, and takes what was forgotten out for good.
    fn grow(&mut self) {
        let live = self.slots.iter().filter(|slot| slot.ask_at_ns != 0).count();
        let count = ((live + 1) * 4).next_power_of_two().max(FIRST_SLOTS);
        let mut larger = Self::with_slots(count, self.key);
        for slot in self.slots.iter().filter(|slot| slot.ask_at_ns != 0) {
            larger.set(slot.address, slot.header, slot.ask_at_ns);
        }
        *self = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn address_zero_is_never_usable() {
        let mut cache = NextHopCache::<u32>::new(FlowKey::from_seed(0));
        assert!(cache.find(0).is_none_or(|slot| slot.ask_at_ns == 0));
        cache.set(0, [1; HEADER_LEN], u64::MAX);
        assert!(cache.find(0).is_none_or(|slot| slot.ask_at_ns == 0));
    }

    #[derive(Clone, Debug)]
    enum Act {
        Set(u32, u8),
        Forget(u32),
        Clear,
    }

    fn act() -> impl Strategy<Value = Act> {
        // Few addresses, so that they meet again, in the neighbourhood of each other and far apart.
        let address = prop_oneof![1u32..300, (1u32..300).prop_map(|a| a << 20), any::<u32>()];
        prop_oneof![
            20 => (address.clone(), any::<u8>()).prop_map(|(a, tag)| Act::Set(a, tag)),
            10 => address.prop_map(Act::Forget),
            1 => Just(Act::Clear),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(acts in proptest::collection::vec(act(), 0..600), bits in 0u32..97) {
            agrees(&acts, |address| address);
            // IPv6 addresses that differ in any 32 bits.
            agrees(&acts, |address| u128::from(address) << bits);
        }
    }

    fn agrees<A: Address>(acts: &[Act], to_address: impl Fn(u32) -> A) {
        let mut cache = NextHopCache::new(FlowKey::from_seed(0));
        let mut map = HashMap::new();
        for act in acts.iter().cloned() {
            match act {
                Act::Set(address, tag) => {
                    cache.set(to_address(address), [tag; HEADER_LEN], 1 + u64::from(tag));
                    map.insert(address, tag);
                }
                Act::Forget(address) => {
                    cache.forget(to_address(address));
                    map.remove(&address);
                }
                Act::Clear => {
                    cache.clear();
                    map.clear();
                }
            }
            assert!(cache.used * 2 <= cache.slots.len());
        }
        map.remove(&0);
        for address in (0..300).chain((0..300).map(|a| a << 20)).chain(map.keys().copied()) {
            let found =
                cache.find(to_address(address)).filter(|slot| slot.ask_at_ns != 0).map(|slot| slot.header[0]);
            assert_eq!(found, map.get(&address).copied());
        }
    }
}
