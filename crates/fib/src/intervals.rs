//! Which of some intervals a key is in, for a few thousand intervals and a batch of keys.
//!
//! The last key of each interval stands in a B-tree without pointers: its leaves are the ends in ascending order, a
//! cache line each, and above every seventeen lines (nine for keys of 64 bits, 33 for keys of 16) stands one with the highest ends of
//! all of them but the last. To go down is to count the ends below the key, one vector comparison. Where the last of
//! a line is not in use, it is filled with the highest key, which nothing is above.
//!
//! Two thousand intervals are three lines deep in 13 KB, classes included, for keys of 32 bits, and four deep in 22 KB
//! for 64: all of it stays in the first-level cache, where a table by the first 16 bits would not. A binary search
//! compares eleven times instead. Access lists search by it (element `ACL`).

use crate::compare::Key;
use packet::Vectors;

/// Keys that go down side by side, so that their loads overlap.
const GROUP: usize = 8;

/// A line of ends, where a line of the cache is.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Aligned<L>(L);

/// Intervals that lie side by side from the lowest key to the highest, each with a class.
///
/// ```
/// let intervals = fib::Intervals::new(&[(0u32, 7), (100, 8), (200, 7)]);
/// let mut classes = [0; 4];
/// intervals.lookup_batch(&[0u32, 99, 100, 4_000_000_000], |key| *key, &mut classes);
/// assert_eq!(classes, [7, 7, 8, 7]);
/// ```
pub struct Intervals<K: Key> {
    /// The leaves at the end, what is above them before them.
    lines: Box<[Aligned<K::Line>]>,
    /// Where each level begins in `lines`, from the root to the leaves.
    levels: Box<[usize]>,
    classes: Box<[u16]>,
    vectors: Vectors,
}

impl<K: Key> Intervals<K> {
    /// Intervals by the first key of each, in ascending order, and their classes. The first key of all counts as the
    /// lowest there is; no intervals are one of class 0.
    pub fn new(starts: &[(K, u16)]) -> Self {
        debug_assert!(starts.windows(2).all(|pair| pair[0].0 < pair[1].0), "intervals ascend");
        let mut classes: Vec<u16> = starts.iter().map(|&(_, class)| class).collect();
        if classes.is_empty() {
            classes.push(0);
        }
        let mut ends: Vec<K> = starts.iter().skip(1).map(|&(start, _)| start.before()).collect();
        ends.push(K::HIGHEST);
        let mut levels = vec![lines_of::<K>(ends.chunks(K::LINE))];
        // The highest end of each line, and then of what is below each line.
        let mut highest: Vec<K> = ends.chunks(K::LINE).filter_map(|line| line.last().copied()).collect();
        while highest.len() > 1 {
            let groups = highest.chunks(K::LINE + 1);
            levels.push(lines_of::<K>(groups.clone().map(|group| &group[..group.len().min(K::LINE)])));
            highest = groups.filter_map(|group| group.last().copied()).collect();
        }
        levels.reverse();
        let mut first = 0;
        let starts = levels.iter().map(|lines| {
            first += lines.len();
            first - lines.len()
        });
        Self {
            levels: starts.collect(),
            lines: levels.concat().into(),
            classes: classes.into(),
            vectors: Vectors::best(),
        }
    }

    /// Writes the class of each item, of which `key` is to be looked up, to the same place of `classes`.
    #[inline]
    #[allow(unsafe_code, reason = "calling functions that need processor features")]
    pub fn lookup_batch<A>(&self, items: &[A], key: impl Fn(&A) -> K, classes: &mut [u16]) {
        assert_eq!(items.len(), classes.len(), "one place for each answer");
        match self.vectors {
            // SAFETY: `Vectors::best` gives this only where the processor has these features.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => unsafe { self.batch_avx512(items, key, classes) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { self.batch_avx2(items, key, classes) },
            Vectors::None => self.batch_here(items, key, classes, K::below),
        }
    }

    /// The class of a key.
    #[inline]
    pub fn lookup(&self, key: K) -> u16 {
        let mut class = [0];
        self.search(&[key], &mut class, K::below);
        class[0]
    }

    #[inline(always)]
    fn batch_here<A>(
        &self,
        items: &[A],
        key: impl Fn(&A) -> K,
        classes: &mut [u16],
        below: impl Fn(&K::Line, K) -> usize,
    ) {
        let (groups, rest) = items.as_chunks::<GROUP>();
        let (of_groups, of_rest) = classes.as_chunks_mut::<GROUP>();
        for (items, classes) in groups.iter().zip(of_groups) {
            self.search(&items.each_ref().map(&key), classes, &below);
        }
        for (item, class) in rest.iter().zip(of_rest) {
            self.search(&[key(item)], std::array::from_mut(class), &below);
        }
    }

    #[inline(always)]
    fn search<const N: usize>(
        &self,
        keys: &[K; N],
        classes: &mut [u16; N],
        below: impl Fn(&K::Line, K) -> usize,
    ) {
        let Some((&leaves, levels)) = self.levels.split_last() else { return };
        // Numbers of lines in their level.
        let mut places = [0; N];
        for first in levels {
            for (place, key) in places.iter_mut().zip(keys) {
                *place = *place * (K::LINE + 1) + below(&self.lines[first + *place].0, *key);
            }
        }
        for ((place, key), class) in places.iter().zip(keys).zip(classes) {
            *class = self.classes[place * K::LINE + below(&self.lines[leaves + place].0, *key)];
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx2,popcnt,bmi2")]
    #[allow(unsafe_code, reason = "calling a function that needs processor features")]
    fn batch_avx512<A>(&self, items: &[A], key: impl Fn(&A) -> K, classes: &mut [u16]) {
        // SAFETY: this function is called where the processor has them.
        self.batch_here(items, key, classes, |line, key| unsafe { K::below_avx512(line, key) });
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt,bmi2")]
    fn batch_avx2<A>(&self, items: &[A], key: impl Fn(&A) -> K, classes: &mut [u16]) {
        self.batch_here(items, key, classes, K::below);
    }

    /// The last key of each interval, ascending, and its class.
    pub fn iter(&self) -> impl Iterator<Item = (K, u16)> {
        let leaves = self.levels.last().map_or(&self.lines[..], |&leaves| &self.lines[leaves..]);
        leaves.iter().flat_map(|line| line.0.as_ref().iter().copied()).zip(self.classes.iter().copied())
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of_val(&*self.levels) + size_of_val(&*self.classes)
    }
}

/// Lines of these ends, the rest of each filled with the highest key.
fn lines_of<'a, K: Key + 'a>(ends: impl Iterator<Item = &'a [K]>) -> Vec<Aligned<K::Line>> {
    let line = |ends: &[K]| {
        let mut line = K::highest_line();
        line.as_mut()[..ends.len()].copy_from_slice(ends);
        Aligned(line)
    };
    ends.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Compares with a scan, on every width of vectors, at and around every start, in batches of all lengths.
    fn check<K: Key + std::fmt::Debug>(mut starts: Vec<(K, u16)>, mut keys: Vec<K>) {
        starts.sort_unstable();
        starts.dedup_by_key(|&mut (start, _)| start);
        keys.extend(starts.iter().map(|&(start, _)| start));
        keys.extend(starts.iter().skip(1).map(|&(start, _)| start.before()));
        keys.push(K::HIGHEST);
        let expected: Vec<u16> = keys
            .iter()
            .map(|key| {
                let at = starts.iter().rposition(|(start, _)| start <= key).unwrap_or(0);
                starts.get(at).map_or(0, |&(_, class)| class)
            })
            .collect();
        for vectors in Vectors::all_here() {
            let intervals = Intervals { vectors, ..Intervals::new(&starts) };
            let mut classes = vec![u16::MAX; keys.len()];
            intervals.lookup_batch(&keys, |key| *key, &mut classes);
            assert_eq!(classes, expected, "{vectors:?}");
            let lasts = starts.iter().skip(1).map(|(start, _)| start.before()).chain([K::HIGHEST]);
            let classes = starts.iter().map(|&(_, class)| class).chain(starts.is_empty().then_some(0));
            assert!(intervals.iter().eq(lasts.zip(classes)), "{vectors:?}");
            for (key, expected) in keys.iter().zip(&expected) {
                assert_eq!(intervals.lookup(*key), *expected, "{key:?}");
            }
        }
    }

    /// Where a line, and where a level, is just full.
    #[test]
    fn every_number_of_intervals_up_to_three_levels() {
        for count in
            (0..40).chain(70..90).chain(140..148).chain(270..292).chain([728, 729, 730, 4912, 4913, 4914])
        {
            check::<u16>(
                (0..count).map(|number| (number as u16 * 3, number as u16)).collect(),
                vec![u16::MAX - 1],
            );
            check::<u32>((0..count).map(|number| (number * 3, number as u16)).collect(), vec![u32::MAX - 1]);
            check::<u64>(
                (0..u64::from(count)).map(|number| (number << 33, number as u16)).collect(),
                vec![1, 1 << 63],
            );
        }
    }

    #[test]
    fn the_highest_key_may_be_an_interval() {
        check(vec![(0, 1), (u32::MAX - 1, 2), (u32::MAX, 3)], vec![7]);
        check(vec![(0, 1), (u64::MAX, 3)], vec![7]);
    }

    proptest! {
        #[test]
        fn intervals_are_what_a_scan_finds(
            starts in prop::collection::vec((any::<u32>(), any::<u16>()), 0..700),
            keys in prop::collection::vec(any::<u32>(), 0..80),
        ) {
            check(starts.iter().map(|&(start, class)| (u64::from(start) << 32 | 5, class)).collect(),
                keys.iter().map(|&key| u64::from(key) << 32 | 4).collect());
            check(starts, keys);
        }
    }
}
