//! A stretch of memory that others read as well, such as a program in the kernel, and the book of its free pages.
//!
//! Arrays of tables lie in it as they lie on huge pages otherwise, so that there is one set of tables for all readers.
//! Its pages are there from the beginning, so an array takes what it needs and moves when it grows.

use packet::SharedMemory;
use packet::sync::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Room is given out in units of this many bytes.
const PAGE: usize = 4096;

/// Memory that readers outside the process see too.
#[derive(Debug)]
pub struct Region {
    pub(crate) memory: SharedMemory,
    /// Free stretches: offset and bytes, ascending, no two side by side.
    free: Mutex<Vec<(usize, usize)>>,
}

impl Region {
    /// Takes over memory, all of it free.
    pub fn new(memory: SharedMemory) -> Arc<Self> {
        let free = Mutex::new(vec![(0, memory.bytes() / PAGE * PAGE)]);
        Arc::new(Self { memory, free })
    }

    /// Returns the size, in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Returns how much is free, in bytes.
    pub fn free_bytes(&self) -> usize {
        lock(&self.free).iter().map(|(_, bytes)| bytes).sum()
    }

    /// Takes at least so many bytes; returns where they begin and how many they are.
    pub(crate) fn take(&self, bytes: usize) -> Option<(usize, usize)> {
        let bytes = bytes.next_multiple_of(PAGE);
        let mut free = lock(&self.free);
        let at = free.iter().position(|&(_, room)| room >= bytes)?;
        let (offset, room) = free[at];
        if room == bytes {
            free.remove(at);
        } else {
            free[at] = (offset + bytes, room - bytes);
        }
        Some((offset, bytes))
    }

    /// Gives back what [`Region::take`] gave.
    pub(crate) fn give_back(&self, offset: usize, bytes: usize) {
        let mut free = lock(&self.free);
        let at = free.partition_point(|&(other, _)| other < offset);
        free.insert(at, (offset, bytes));
        for left in [at, at.wrapping_sub(1)] {
            if let (Some(&(first, room)), Some(&(second, more))) =
                (free.get(left), free.get(left.wrapping_add(1)))
                && first + room == second
            {
                free[left] = (first, room + more);
                free.remove(left + 1);
            }
        }
    }

    /// Takes zeroed words that both sides write.
    pub(crate) fn take_words(self: &Arc<Self>, count: usize) -> Option<Words> {
        let (offset, bytes) = self.take(count * size_of::<u64>())?;
        let words = Words { region: Arc::clone(self), offset, bytes };
        (0..count).for_each(|number| words.word(number).store(0, Ordering::Relaxed));
        Some(words)
    }
}

/// Words of a [`Region`] that both sides may write.
#[derive(Debug)]
pub(crate) struct Words {
    region: Arc<Region>,
    offset: usize,
    bytes: usize,
}

impl Words {
    /// Where they begin in the region, in bytes.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// The word of this number.
    #[allow(unsafe_code, reason = "the words are behind a pointer into the region")]
    pub(crate) fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < self.bytes / size_of::<u64>(), "word {number} of {} bytes", self.bytes);
        let first = self.region.memory.first();
        // SAFETY: the word lies inside the stretch, which begins on a page; nobody in this process reaches it otherwise.
        unsafe { AtomicU64::from_ptr(first.add(self.offset + number * size_of::<u64>()).cast().as_ptr()) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.region.give_back(self.offset, self.bytes);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::memory::HugeArray;
    use proptest::prelude::*;
    use std::ptr::NonNull;

    /// A region that nobody else reads.
    #[allow(unsafe_code, reason = "the memory is behind a pointer")]
    pub(crate) fn region(pages: usize) -> Arc<Region> {
        let mut memory = HugeArray::<u8>::zeroed("test", pages * PAGE).unwrap();
        let first = NonNull::from(&mut memory[..]).cast();
        // SAFETY: zeroed memory of pages that nobody else knows of, and that is there as long as the array.
        Region::new(unsafe { SharedMemory::new(first, pages * PAGE, Box::new(memory)) })
    }

    proptest! {
        #[test]
        fn pages_are_given_out_once_and_come_back(steps in prop::collection::vec((1usize..5, any::<prop::sample::Index>(), any::<bool>()), 1..80)) {
            let region = region(32);
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (pages, which, takes) in steps {
                if takes || held.is_empty() {
                    let Some((offset, bytes)) = region.take(pages * PAGE - 1) else { continue };
                    prop_assert_eq!(bytes, pages * PAGE);
                    prop_assert!(held.iter().all(|&(other, size)| offset + bytes <= other || other + size <= offset));
                    held.push((offset, bytes));
                } else {
                    let (offset, bytes) = held.swap_remove(which.index(held.len()));
                    region.give_back(offset, bytes);
                }
                let in_use: usize = held.iter().map(|(_, bytes)| bytes).sum();
                prop_assert_eq!(region.free_bytes() + in_use, 32 * PAGE);
            }
            held.drain(..).for_each(|(offset, bytes)| region.give_back(offset, bytes));
            prop_assert_eq!(region.take(32 * PAGE), Some((0, 32 * PAGE)));
        }
    }
}
