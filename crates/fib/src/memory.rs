//! Zeroed arrays on huge pages.
//!
//! A random lookup in 32 MB of 4 KB pages costs a page walk before it costs the load: the second-level TLB of a
//! current x86 core covers 8 to 16 MB. On 2 MB pages the same table needs 16 entries. The kernel is asked
//! (`MADV_HUGEPAGE`, Linux 2.6.38) and may decline; then the array is as correct and slower.
//!
//! The pages come straight from `mmap` and are touched by nobody before their first use, so an array can be as large
//! as its table may ever grow: what is not used costs address space and nothing else, and nothing ever moves.

use crate::TableError;
use crate::region::Region;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// The least bytes of an array in a region: lookups may read a place or two that nothing has written.
const LEAST_BYTES: usize = 4096;

/// The size of a huge page on x86-64, and on arm64 with 4 KB base pages.
const HUGE_PAGE: usize = 2 << 20;

/// Types of which all bit patterns, zero among them, are values, and that need no drop.
pub(crate) trait Word: Copy + Send + Sync + 'static {}
impl Word for u8 {}
impl Word for u16 {}
impl Word for u32 {}
impl Word for u64 {}

/// An array of zeroed words that starts on a page: on huge pages of this process, or in a [`Region`] that others read.
///
/// On huge pages its length is the most it may ever have. In a region, where memory that is not used costs, it grows
/// when [`HugeArray::reserve`] asks for more.
pub(crate) struct HugeArray<T: Word> {
    place: Place,
    first: NonNull<T>,
    length: usize,
    /// The most words that it may have.
    most: usize,
    /// The user, for errors.
    table: &'static str,
}

/// What an array lies in.
enum Place {
    Mapping { start: NonNull<c_void>, bytes: usize },
    Region { region: Arc<Region>, offset: usize, bytes: usize },
}

impl<T: Word> HugeArray<T> {
    /// `length` zeroes on huge pages. `table` names the user in the error.
    #[allow(unsafe_code, reason = "memory mapping has no safe interface")]
    pub(crate) fn zeroed(table: &'static str, length: usize) -> Result<HugeArray<T>, TableError> {
        let bytes = (length * size_of::<T>()).next_multiple_of(HUGE_PAGE);
        // mmap aligns to 4 KB only: one huge page more leaves room to align by hand.
        let mapping_bytes = bytes + HUGE_PAGE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private mapping at an address of the kernel's choice touches no existing memory.
        let mapping = unsafe {
            mmap_anonymous(std::ptr::null_mut(), mapping_bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let refused = |source| TableError::Memory { table, bytes: mapping_bytes, source };
        let mapping = mapping.map_err(|errno| refused(errno.into()))?;
        let start = NonNull::new(mapping).ok_or_else(|| refused(std::io::ErrorKind::OutOfMemory.into()))?;
        let skip = start.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: skip < HUGE_PAGE, so the result and the `bytes` after it lie inside the mapping.
        let first = unsafe { start.byte_add(skip) };
        // SAFETY: the range is inside our own mapping, and this advice does not change its contents. A kernel
        // without huge pages refuses; that is not a reason to stop.
        let _ = unsafe { madvise(first.as_ptr(), bytes, Advice::LinuxHugepage) };
        let place = Place::Mapping { start, bytes: mapping_bytes };
        Ok(HugeArray { place, first: first.cast(), length, most: length, table })
    }

    /// `length` zeroes in a region, of `most` later; `None` if it has no room.
    #[allow(unsafe_code, reason = "the array is a pointer into the region")]
    pub(crate) fn in_region(
        table: &'static str,
        region: &Arc<Region>,
        length: usize,
        most: usize,
    ) -> Option<HugeArray<T>> {
        let (offset, bytes) = region.take(length * size_of::<T>())?;
        // SAFETY: the region has these bytes, and gave them to nobody else.
        let first = unsafe { region.memory.first().add(offset) };
        // SAFETY: as above.
        unsafe { first.write_bytes(0, bytes) };
        let place = Place::Region { region: Arc::clone(region), offset, bytes };
        // A region begins on a page, and so does what it gives.
        Some(HugeArray { place, first: first.cast(), length: bytes / size_of::<T>(), most, table })
    }

    /// Makes room for `words` words, at most those that it may ever have. An array in a region moves within it, or to huge
    /// pages if that is full.
    ///
    /// # Panics
    ///
    /// If the system refuses the address space for huge pages.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, words: usize) {
        if words > self.length {
            self.grow(words);
        }
    }

    #[cold]
    fn grow(&mut self, words: usize) {
        let grown = match &self.place {
            Place::Region { region, .. } => {
                Self::in_region(self.table, region, words.next_power_of_two(), self.most)
            }
            Place::Mapping { .. } => None,
        };
        self.replace(grown, self.length).expect("the system has address space for a table");
    }

    /// Moves it into a region, or out of all, with its first `used` words. Where a region has no room, on huge pages.
    pub(crate) fn relocate(&mut self, region: Option<&Arc<Region>>, used: usize) -> Result<(), TableError> {
        let words = used.max(LEAST_BYTES / size_of::<T>()).next_power_of_two().min(self.most);
        let moved = region.and_then(|region| Self::in_region(self.table, region, words, self.most));
        self.replace(moved, used)
    }

    fn replace(&mut self, new: Option<Self>, used: usize) -> Result<(), TableError> {
        let mut new = match new {
            Some(new) => new,
            None => Self::zeroed(self.table, self.most)?,
        };
        new[..used].copy_from_slice(&self[..used]);
        *self = new;
        Ok(())
    }

    /// Where it begins in `region`, in bytes; `None` if it lies elsewhere.
    pub(crate) fn offset_in(&self, region: &Arc<Region>) -> Option<u32> {
        match &self.place {
            Place::Region { region: own, offset, .. } if Arc::ptr_eq(own, region) => {
                u32::try_from(*offset).ok()
            }
            _ => None,
        }
    }
}

#[allow(unsafe_code, reason = "memory mapping has no safe interface")]
impl<T: Word> Drop for HugeArray<T> {
    fn drop(&mut self) {
        match &self.place {
            // SAFETY: the mapping is ours, exactly this long, and no reference into it outlives `self`.
            Place::Mapping { start, bytes } => drop(unsafe { munmap(start.as_ptr(), *bytes) }),
            Place::Region { region, offset, bytes } => region.give_back(*offset, *bytes),
        }
    }
}

#[allow(unsafe_code, reason = "the array is a pointer into a mapping")]
impl<T: Word> Deref for HugeArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `first` is aligned, `length` words from it are mapped, initialised (zero or written) and live as
        // long as `self`; `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.length) }
    }
}

#[allow(unsafe_code, reason = "the array is a pointer into a mapping")]
impl<T: Word> DerefMut for HugeArray<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.length) }
    }
}

// SAFETY: a HugeArray owns its words as a Vec would; it is reached only through `&self` and `&mut self`.
#[allow(unsafe_code, reason = "raw pointers are not Send")]
unsafe impl<T: Word> Send for HugeArray<T> {}
// SAFETY: see Send.
#[allow(unsafe_code, reason = "raw pointers are not Sync")]
unsafe impl<T: Word> Sync for HugeArray<T> {}

/// Asks the processor to fetch the cache line of `array[index]`. Any index is allowed: a prefetch does not fault.
#[inline(always)]
pub(crate) fn prefetch<T>(array: &[T], index: usize) {
    packet::prefetch_address(array.as_ptr().wrapping_add(index).cast());
}

/// The same for the line behind the one in which `array[index]` begins.
#[inline(always)]
pub(crate) fn prefetch_second_line<T>(array: &[T], index: usize) {
    packet::prefetch_address(array.as_ptr().wrapping_add(index).cast::<u8>().wrapping_add(64));
}

/// Bytes that this process can still have: the kernel's estimate of what can be used without swapping
/// (`MemAvailable`, Linux 3.14), or what is left of the limits of its control groups (version 2) if that is less.
/// `None` where nobody says.
pub(crate) fn available_memory() -> Option<usize> {
    let mut least = None;
    let mut limit = |bytes: usize| least = Some(least.map_or(bytes, |least: usize| least.min(bytes)));
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    if let Some(kilobytes) = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")) {
        let digits = kilobytes.trim().trim_end_matches(" kB");
        digits.parse::<usize>().into_iter().for_each(|kilobytes| limit(kilobytes * 1024));
    }
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::/")) {
        let mut folder = std::path::Path::new("/sys/fs/cgroup").join(path);
        // A group can have no more than those it is in.
        while folder.starts_with("/sys/fs/cgroup") {
            let number =
                |name: &str| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<usize>().ok();
            if let (Some(most), Some(used)) = (number("memory.max"), number("memory.current")) {
                // What is in use includes file contents that the kernel drops when somebody needs the memory.
                let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
                let files =
                    |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
                let droppable = files("inactive_file ").unwrap_or(0) + files("active_file ").unwrap_or(0);
                limit(most.saturating_sub(used.saturating_sub(droppable)));
            }
            if !folder.pop() {
                break;
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_zeroed_aligned_and_writable_at_both_ends() {
        let mut array = HugeArray::<u16>::zeroed("test", 3 << 20).unwrap();
        assert_eq!(array.as_ptr().align_offset(HUGE_PAGE), 0);
        assert_eq!(array.len(), 3 << 20);
        assert!(array.iter().all(|&word| word == 0));
        let last = array.len() - 1;
        array[0] = 1;
        array[last] = 2;
        assert_eq!((array[0], array[last]), (1, 2));
    }

    #[test]
    fn a_refusal_names_the_table_and_the_size() {
        let error = HugeArray::<u16>::zeroed("dir-24-8", 1 << 60).err().unwrap();
        assert!(error.to_string().starts_with("dir-24-8 needs 2305843009215791104 bytes"), "{error}");
    }
}
