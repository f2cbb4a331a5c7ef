//! Addresses to classes: which of some intervals an address is in.
//!
//! The prefixes of a list, flattened, cut the address space into intervals, twice as many as prefixes and one
//! at the most. A binary search finds the one around an address, without a branch that depends on it, and for
//! sixteen addresses side by side, so that their loads overlap. It looks at IPv4 addresses and at the upper
//! halves of IPv6 addresses; where prefixes are longer than 64, a second search, one for each upper half that
//! has such prefixes, looks at the lower half. A thousand prefixes are 11 steps in 8 KB for IPv4 and 16 KB
//! for IPv6, which stay in the first-level cache. The tables of crate `fib` take two to four steps, but in
//! 4 MB for each of the two fields: they are made for a million prefixes.

use std::hint::select_unpredictable;

use super::family::Family;
use super::parse::MAX_RULES;

/// Addresses that are looked up side by side. With eight, for which there would be registers, the processor
/// waits for loads more than it works.
const GROUP: usize = 16;

/// In the place of a class: the rest of the number is that of the search in the lower half.
const BY_LOWER: u16 = 1 << 15;

const _: () = assert!(MAX_RULES < BY_LOWER as usize);

/// The address space, cut into intervals.
pub(super) struct Intervals<A: Family> {
    upper: Sorted<A::Upper>,
    lower: Box<[Sorted<u64>]>,
}

impl<A: Family> Intervals<A> {
    /// Of prefixes, in ascending order of their networks, those around others before them, each once and with
    /// its class. What is in none of them is in class 0.
    pub(super) fn of_prefixes(prefixes: &[(A, u8, u16)]) -> Self {
        let mut cuts = Cuts(vec![(A::MIN, 0)]);
        // Prefixes around the place that is reached, each with its last address.
        let mut around: Vec<(A, u16)> = Vec::new();
        let class_of = |around: &Vec<(A, u16)>| around.last().map_or(0, |&(_, class)| class);
        for &(network, length, class) in prefixes {
            while let Some((last, _)) = around.pop_if(|(last, _)| *last < network) {
                cuts.cut(last.next(), class_of(&around));
            }
            cuts.cut(network, class);
            around.push((network | !A::mask(length), class));
        }
        while let Some((last, _)) = around.pop() {
            if last != A::MAX {
                cuts.cut(last.next(), class_of(&around));
            }
        }
        Self::of_cuts(&cuts)
    }

    /// Sorts cuts into those between upper halves and those inside one.
    fn of_cuts(cuts: &Cuts<A>) -> Self {
        let mut upper = Cuts(Vec::new());
        let mut lower = Vec::new();
        // The class of the address before.
        let mut before = 0;
        for inside in cuts.0.chunk_by(|left, right| left.0.upper() == right.0.upper()) {
            let Some(&(start, last)) = inside.last() else { continue };
            if start.lower() == 0 {
                upper.cut(start.upper(), last);
            } else {
                let mut found = Cuts(vec![(0, before)]);
                inside.iter().for_each(|&(start, class)| found.cut(start.lower(), class));
                upper.cut(start.upper(), BY_LOWER | lower.len() as u16);
                lower.push(Sorted::new(found, u64::MAX));
                if let Some(next) = A::upper_after(start.upper()) {
                    upper.cut(next, last);
                }
            }
            before = last;
        }
        Self { upper: Sorted::new(upper, A::MAX.upper()), lower: lower.into() }
    }

    /// Writes the class of each address to the same place of `classes`.
    pub(super) fn lookup_batch(&self, addresses: &[A], classes: &mut [u16]) {
        self.upper.lookup_batch(addresses, A::upper, classes);
        if self.lower.is_empty() {
            return;
        }
        for (address, class) in addresses.iter().zip(classes) {
            if *class & BY_LOWER != 0 {
                *class = self.lower[usize::from(*class - BY_LOWER)].lookup(address.lower());
            }
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.upper.memory_bytes() + self.lower.iter().map(Sorted::memory_bytes).sum::<usize>()
    }
}

/// Where intervals begin, ascending, and their classes.
struct Cuts<K>(Vec<(K, u16)>);

impl<K: PartialEq> Cuts<K> {
    /// From `start` on, which is not below any start before, keys are of `class`.
    fn cut(&mut self, start: K, class: u16) {
        self.0.pop_if(|(last, _)| *last == start);
        self.0.push((start, class));
    }
}

/// Intervals as they are searched.
struct Sorted<K> {
    /// The first key of each, ascending from the lowest on; filled up with the highest key to a power of two.
    starts: Box<[K]>,
    classes: Box<[u16]>,
}

impl<K: Copy + Ord> Sorted<K> {
    fn new(cuts: Cuts<K>, highest: K) -> Self {
        let (mut starts, mut classes): (Vec<K>, Vec<u16>) = cuts.0.into_iter().unzip();
        let last = classes.last().copied().unwrap_or_default();
        let room = starts.len().next_power_of_two();
        starts.resize(room, highest);
        classes.resize(room, last);
        Self { starts: starts.into(), classes: classes.into() }
    }

    /// Writes the class of each address, of which `key` is to be searched, to the same place of `classes`.
    #[inline]
    fn lookup_batch<A: Copy>(&self, addresses: &[A], key: impl Fn(A) -> K, classes: &mut [u16]) {
        let (groups, rest) = addresses.as_chunks::<GROUP>();
        let (of_groups, of_rest) = classes.as_chunks_mut::<GROUP>();
        for (addresses, classes) in groups.iter().zip(of_groups) {
            *classes = self.search(&addresses.map(&key));
        }
        for (&address, class) in rest.iter().zip(of_rest) {
            *class = self.lookup(key(address));
        }
    }

    fn lookup(&self, key: K) -> u16 {
        let [class] = self.search(&[key]);
        class
    }

    #[inline(always)]
    fn search<const N: usize>(&self, keys: &[K; N]) -> [u16; N] {
        let mut places = [0; N];
        // Nothing changes by the mask, but the compiler sees that places are inside.
        let mask = self.starts.len() - 1;
        let mut half = self.starts.len() / 2;
        while half > 0 {
            for (place, key) in places.iter_mut().zip(keys) {
                let middle = (*place | half) & mask;
                *place = select_unpredictable(self.starts[middle] <= *key, middle, *place);
            }
            half /= 2;
        }
        places.map(|place| self.classes[place])
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_prefixes_at_both_ends_of_the_space() {
        let prefixes: &[(u32, u8, u16)] = &[
            (0, 1, 1),
            (0, 8, 2),
            (0, 32, 3),
            (0x0a00_0000, 8, 4),
            (0x0a00_0000, 24, 5),
            (0x0b00_0000, 8, 6),
            (0xff00_0000, 8, 7),
            (u32::MAX, 32, 8),
        ];
        let intervals = Intervals::of_prefixes(prefixes);
        for (address, class) in [
            (0, 3),
            (1, 2),
            (0x0100_0000, 1),
            (0x0a00_00ff, 5),
            (0x0a00_0100, 4),
            (0x0b00_0000, 6),
            (0x0c00_0000, 1),
            (0x8000_0000, 0),
            (0xff00_0000, 7),
            (u32::MAX - 1, 7),
            (u32::MAX, 8),
        ] {
            let mut classes = [99; 11];
            intervals.lookup_batch(&[address; 11], &mut classes);
            assert_eq!(classes, [class; 11], "{address:#x}");
        }
    }

    #[test]
    fn prefixes_longer_than_half_an_address() {
        let upper = |half: u128| half << 64;
        let prefixes: &[(u128, u8, u16)] = &[
            (0, 128, 1),
            (upper(6), 63, 2),
            (upper(7) | 5, 128, 3),
            (upper(8), 64, 4),
            (upper(8), 127, 5),
            (upper(9) | 1 << 63, 65, 6),
            (upper(0xffff_ffff_ffff_ffff), 64, 7),
            (u128::MAX, 128, 8),
        ];
        let intervals = Intervals::of_prefixes(prefixes);
        for (address, class) in [
            (0, 1),
            (1, 0),
            (upper(6), 2),
            (upper(7), 2),
            (upper(7) | 4, 2),
            (upper(7) | 5, 3),
            (upper(7) | 6, 2),
            (upper(8) | 1, 5),
            (upper(8) | 2, 4),
            (upper(9) | 1, 0),
            (upper(9) | u128::MAX >> 64, 6),
            (upper(10), 0),
            (u128::MAX - 1, 7),
            (u128::MAX, 8),
        ] {
            let mut classes = [99; 9];
            intervals.lookup_batch(&[address; 9], &mut classes);
            assert_eq!(classes, [class; 9], "{address:#x}");
        }
        let mut classes = [99; 2];
        Intervals::<u128>::of_prefixes(&[]).lookup_batch(&[0, u128::MAX], &mut classes);
        assert_eq!(classes, [0, 0]);
    }
}
