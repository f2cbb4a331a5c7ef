//! Addresses to classes: which of some intervals an address is in.
//!
//! The prefixes of a list, flattened, cut the address space into intervals, twice as many as prefixes and one
//! at the most. [`fib::Intervals`] finds the one around an address, for all addresses of a batch side by side.
//! It looks at IPv4 addresses and at the upper halves of IPv6 addresses; where prefixes are longer than 64,
//! others, one for each upper half that has such prefixes, look at the lower half. A thousand prefixes are
//! three comparisons in 9 KB for IPv4 and four in 18 KB for IPv6, which stay in the first-level cache. The
//! tables of crate `fib` take two to four steps, too, but in 4 MB for each of the two fields: they are made
//! for a million prefixes.

use packet::MAX_BATCH;

use super::family::AclFamily;
use super::parse::MAX_RULES;

/// In the place of a class: the rest of the number is that of the search in the lower half.
const BY_LOWER: u16 = 1 << 15;

const _: () = assert!(MAX_RULES < BY_LOWER as usize);

/// The address space, cut into intervals.
pub(super) struct Intervals<A: AclFamily> {
    pub(super) upper: fib::Intervals<A::Upper>,
    /// Those that classes of `upper` with the highest bit set name.
    pub(super) lower: Box<[fib::Intervals<u64>]>,
}

impl<A: AclFamily> Intervals<A> {
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
                lower.push(fib::Intervals::new(&found.0));
                if let Some(next) = A::upper_after(start.upper()) {
                    upper.cut(next, last);
                }
            }
            before = last;
        }
        Self { upper: fib::Intervals::new(&upper.0), lower: lower.into() }
    }

    /// Writes the class of each address to the same place of `classes`.
    pub(super) fn lookup_batch(&self, addresses: &[A], classes: &mut [u16]) {
        self.upper.lookup_batch(addresses, |address| address.upper(), classes);
        if self.lower.is_empty() {
            return;
        }
        // Nobody could predict which these are, so they are listed without a branch.
        let mut places = [0u8; MAX_BATCH];
        let mut count = 0;
        for (place, class) in classes.iter().enumerate() {
            places[count % MAX_BATCH] = place as u8;
            count += usize::from(class & BY_LOWER != 0);
        }
        for place in places.iter().take(count).map(|&place| usize::from(place)) {
            let lower = &self.lower[usize::from(classes[place] - BY_LOWER)];
            classes[place] = lower.lookup(addresses[place].lower());
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.upper.memory_bytes() + self.lower.iter().map(fib::Intervals::memory_bytes).sum::<usize>()
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
