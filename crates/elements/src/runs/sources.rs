//! Source addresses that a header check refuses.
//!
//! Nearly every packet comes from another address, and one or two bytes of its source tell that. Only where they do
//! not are the addresses searched, so a host whose address ends as the router's does costs its packets some
//! nanoseconds and does not end a run.

use packet::Family;

/// A set of source addresses: single ones, and all that begin with some octet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSources<A> {
    /// Of each octet whether an address of the set ends in it ([`LAST`]), and whether all that begin with it are in the set
    /// ([`FIRST`]).
    octets: Box<[u8; 256]>,
    /// Single addresses, in ascending order.
    addresses: Box<[A]>,
}

const LAST: u8 = 1;
const FIRST: u8 = 2;

impl<A: Family> BadSources<A> {
    /// The set of `addresses` and of all that begin with one of `first_octets`.
    pub fn new(addresses: impl IntoIterator<Item = A>, first_octets: impl IntoIterator<Item = u8>) -> Self {
        let mut octets = Box::new([0; 256]);
        let mut addresses: Vec<A> = addresses.into_iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        for address in &addresses {
            octets[usize::from(address.ends().1)] |= LAST;
        }
        for octet in first_octets {
            octets[usize::from(octet)] |= FIRST;
        }
        Self { octets, addresses: addresses.into() }
    }

    /// Returns whether the set has this address.
    #[inline(always)]
    pub fn has(&self, address: A) -> bool {
        let (first, last) = address.ends();
        let suspect = self.octets[usize::from(first)] & FIRST | self.octets[usize::from(last)] & LAST;
        suspect != 0 && self.has_suspect(suspect, address)
    }

    #[cold]
    #[inline(never)]
    fn has_suspect(&self, suspect: u8, address: A) -> bool {
        suspect & FIRST != 0 || self.addresses.binary_search(&address).is_ok()
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
