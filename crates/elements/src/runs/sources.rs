//! Source addresses that a header check refuses.
//!
//! Nearly every packet comes from another address, and one or two bytes of its source tell that. Only where they do
//! not are the addresses searched, so a host whose address ends as the router's does costs its packets some
//! nanoseconds and does not end a run.

use packet::Family;

/// A set of source addresses: single ones, and all that begin with some octet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSources<A> {
    /// Of each octet whether all addresses that begin with it are in the set, and whether one of the set ends in it.
    octets: Box<[[bool; 256]; 2]>,
    /// Single addresses, in ascending order.
    addresses: Box<[A]>,
}

/// Places in `octets`.
const FIRST: usize = 0;
const LAST: usize = 1;

impl<A: Family> BadSources<A> {
    /// The set of `addresses` and of all that begin with one of `first_octets`.
    pub fn new(addresses: impl IntoIterator<Item = A>, first_octets: impl IntoIterator<Item = u8>) -> Self {
        let mut octets = Box::new([[false; 256]; 2]);
        let mut addresses: Vec<A> = addresses.into_iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        for address in &addresses {
            octets[LAST][usize::from(address.ends().1)] = true;
        }
        for octet in first_octets {
            octets[FIRST][usize::from(octet)] = true;
        }
        Self { octets, addresses: addresses.into() }
    }

    /// Of each octet whether addresses that begin with it, or that end in it, need a closer look.
    pub(super) fn suspect_octets(&self) -> &[[bool; 256]; 2] {
        &self.octets
    }

    /// Returns whether the set has this address.
    #[inline(always)]
    pub fn has(&self, address: A) -> bool {
        let (first, last) = address.ends();
        let is_suspect = self.octets[FIRST][usize::from(first)] | self.octets[LAST][usize::from(last)];
        is_suspect && self.has_suspect(address)
    }

    #[cold]
    #[inline(never)]
    fn has_suspect(&self, address: A) -> bool {
        self.octets[FIRST][usize::from(address.ends().0)] || self.addresses.binary_search(&address).is_ok()
    }
}

impl<A: Family> Default for BadSources<A> {
    /// The empty set.
    fn default() -> Self {
        Self::new([], [])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_addresses_and_whole_octets_are_in_the_set_and_nothing_else() {
        let set = BadSources::new([0x0a00_0001_u32, 0x0a00_01ff], [0, 127]);
        for address in [0x0a00_0001, 0x0a00_01ff, 0, 0x7f00_0001, 0x7fff_ffff] {
            assert!(set.has(address), "{address:#x}");
        }
        for address in [0x0b00_0001, 0x0a00_0002, 0x0a00_00ff, 0x0100_0000, 0x8000_007f] {
            assert!(!set.has(address), "{address:#x}");
        }
        let set = BadSources::new([7_u128 << 64 | 1], []);
        assert!(set.has(7 << 64 | 1) && !set.has(1) && !BadSources::default().has(1_u128));
    }
}
