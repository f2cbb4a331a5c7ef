//! Which places of a store are free: sizes of 1 to [`LARGEST`] units, given out and taken back.
//!
//! Free places are kept by size; one of the right size is taken first, then a larger one is cut, then the store
//! grows. Neighbouring free places are not joined: a table whose free room gets large compiles itself anew, which
//! takes some ten milliseconds and leaves none.

/// The most units that are given out at once.
pub(crate) const LARGEST: usize = 319;
const WORDS: usize = (LARGEST + 1) / 64;

/// The book of free room of one store.
#[derive(Debug)]
pub(crate) struct Room {
    /// Units below this have been given out at some time.
    used: usize,
    /// Of those, how many are free.
    free: usize,
    /// Places by size.
    places: Vec<Vec<u32>>,
    /// One bit for each size of which there are free places.
    sizes: [u64; WORDS],
}

impl Default for Room {
    fn default() -> Self {
        Room { used: 0, free: 0, places: vec![Vec::new(); LARGEST + 1], sizes: [0; WORDS] }
    }
}

impl Room {
    /// Everything is free, but for the first `reserved` units.
    pub(crate) fn reset(&mut self, reserved: usize) {
        self.used = reserved;
        self.free = 0;
        self.sizes = [0; WORDS];
        self.places.iter_mut().for_each(Vec::clear);
    }

    /// Units given out at some time: nothing beyond them is in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Whether so much is free that compiling anew is worth its time: a third, and more than half a million units
    /// (below that, a table that shrank would compile itself again and again).
    pub(crate) fn is_wasteful(&self) -> bool {
        self.free > self.used / 3 + (1 << 19)
    }

    /// The place of `units` that are now in use, or `None` if the store of `limit` units has no room.
    pub(crate) fn allocate(&mut self, units: usize, limit: usize) -> Option<usize> {
        if let Some(size) = self.smallest_from(units) {
            let places = &mut self.places[size];
            let place = places.pop().expect("the bit of a size is set while there are places") as usize;
            if places.is_empty() {
                self.sizes[size / 64] &= !(1 << (size % 64));
            }
            self.free -= size;
            self.give_back(place + units, size - units);
            return Some(place);
        }
        if self.used + units > limit {
            return None;
        }
        self.used += units;
        Some(self.used - units)
    }

    /// The smallest size of at least `units` of which there are free places.
    fn smallest_from(&self, units: usize) -> Option<usize> {
        let first = units / 64;
        let mut mask = u64::MAX << (units % 64);
        for word in first..WORDS {
            let sizes = self.sizes[word] & mask;
            if sizes != 0 {
                return Some(word * 64 + sizes.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// `units` at `place` are free again; 0 units are nothing.
    pub(crate) fn give_back(&mut self, place: usize, units: usize) {
        if units > 0 {
            self.places[units].push(place as u32);
            self.sizes[units / 64] |= 1 << (units % 64);
            self.free += units;
        }
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_right_size_is_taken_before_a_larger_one_is_cut() {
        let mut room = Room::default();
        room.reset(10);
        assert_eq!(room.allocate(100, 1000), Some(10));
        assert_eq!(room.allocate(4, 1000), Some(110));
        room.give_back(10, 100);
        room.give_back(110, 4);
        assert_eq!(room.allocate(4, 1000), Some(110));
        assert_eq!(room.allocate(64, 1000), Some(10));
        assert_eq!(room.allocate(36, 1000), Some(74));
        assert_eq!((room.free(), room.used()), (0, 114));
        assert_eq!(room.allocate(LARGEST, 1000), Some(114));
        assert_eq!(room.allocate(LARGEST, 114 + LARGEST), None);
    }

    proptest! {
        #[test]
        fn nothing_is_given_out_twice(steps in prop::collection::vec((1usize..=LARGEST, any::<prop::sample::Index>(), any::<bool>()), 1..200)) {
            let mut room = Room::default();
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (units, which, take) in steps {
                if take || held.is_empty() {
                    let place = room.allocate(units, 1 << 20).unwrap();
                    prop_assert!(held.iter().all(|&(other, size)| place + units <= other || other + size <= place));
                    held.push((place, units));
                } else {
                    let (place, units) = held.swap_remove(which.index(held.len()));
                    room.give_back(place, units);
                }
                let in_use: usize = held.iter().map(|held| held.1).sum();
                prop_assert_eq!(in_use + room.free(), room.used());
            }
        }
    }
}
