//! Addresses to classes: which of some intervals an address is in.
//!
//! The prefixes of a list, flattened, cut the address space into intervals, twice as many as prefixes and one
//! at the most. A binary search finds the one around an address, without a branch that depends on it, and for
//! eight addresses side by side, so that their loads overlap. A thousand prefixes are 11 steps in 8 KB for
//! IPv4 and 32 KB for IPv6, which stay in the first-level cache. The tables of crate `fib` take two to four
//! steps, but in 4 MB for each of the two fields: they are made for a million prefixes.

use std::hint::select_unpredictable;

use fib::Address;

/// Addresses that are looked up side by side: as many as there are registers for.
const GROUP: usize = 8;

/// The address space, cut into intervals.
pub(super) struct Intervals<A> {
    /// The first address of each, ascending from the lowest on; filled up with the highest address to a power
    /// of two.
    starts: Box<[A]>,
    classes: Box<[u16]>,
}

impl<A: Address> Intervals<A> {
    /// Of prefixes, in ascending order of their networks, those around others before them, each once and with
    /// its class. What is in none of them is in class 0.
    pub(super) fn of_prefixes(prefixes: &[(A, u8, u16)]) -> Self {
        let mut cuts = Cuts { starts: vec![A::MIN], classes: vec![0] };
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
        let Cuts { mut starts, mut classes } = cuts;
        let last = classes.last().copied().unwrap_or_default();
        let room = starts.len().next_power_of_two();
        starts.resize(room, A::MAX);
        classes.resize(room, last);
        Self { starts: starts.into(), classes: classes.into() }
    }

    /// Writes the class of each address to the same place of `classes`.
    #[inline]
    pub(super) fn lookup_batch(&self, addresses: &[A], classes: &mut [u16]) {
        let (groups, rest) = addresses.as_chunks::<GROUP>();
        let (of_groups, of_rest) = classes.as_chunks_mut::<GROUP>();
        for (addresses, classes) in groups.iter().zip(of_groups) {
            *classes = self.lookup(addresses);
        }
        for (&address, class) in rest.iter().zip(of_rest) {
            let [found] = self.lookup(&[address]);
            *class = found;
        }
    }

    #[inline(always)]
    fn lookup<const N: usize>(&self, addresses: &[A; N]) -> [u16; N] {
        let mut places = [0; N];
        let mut half = self.starts.len() / 2;
        while half > 0 {
            for (place, address) in places.iter_mut().zip(addresses) {
                let middle = *place + half;
                *place = select_unpredictable(self.starts[middle] <= *address, middle, *place);
            }
            half /= 2;
        }
        let mut classes = [0; N];
        for (class, place) in classes.iter_mut().zip(places) {
            *class = self.classes[place];
        }
        classes
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.classes)
    }
}

/// Where intervals begin, and their classes.
struct Cuts<A> {
    starts: Vec<A>,
    classes: Vec<u16>,
}

impl<A: Address> Cuts<A> {
    /// From `start` on, which is not below any start before, addresses are of `class`.
    fn cut(&mut self, start: A, class: u16) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.classes.pop();
        }
        self.starts.push(start);
        self.classes.push(class);
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
        assert_eq!(Intervals::of_prefixes(&[(7_u128, 128, 1)]).lookup(&[6, 7, 8]), [0, 1, 0]);
        assert_eq!(Intervals::<u128>::of_prefixes(&[]).lookup(&[0, u128::MAX]), [0, 0]);
    }
}
