//! Memory for frames: one anonymous mapping, zeroed, on huge pages where there are some.
//!
//! Pools that are made together ([`crate::Pool::group`]) lie in one mapping, so that a driver that registers memory
//! with the kernel (AF_XDP) registers it once, and any worker may send any frame.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A 2 MiB boundary: what a huge page of x86-64 needs.
const HUGE_PAGE: usize = 2 << 20;

/// A handle to the memory that frames lie in; the memory stays mapped as long as there is one.
#[derive(Clone, Debug)]
pub struct Memory {
    region: Arc<Region>,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        Ok(Self { region: Arc::new(Region::new(bytes)?) })
    }

    /// First byte; aligned to 2 MiB.
    pub fn start(&self) -> NonNull<u8> {
        self.region.start
    }

    /// Usable bytes from [`Memory::start`], a multiple of 2 MiB.
    pub fn bytes(&self) -> usize {
        self.region.bytes
    }

    /// Whether the memory lies on reserved huge pages (hugetlbfs), so that each 2 MiB are in one piece for devices
    /// too. Otherwise the kernel was asked for transparent huge pages, which it gives when it has some.
    pub fn is_huge(&self) -> bool {
        self.region.huge
    }
}

/// An owned mapping; unmapped when dropped.
#[derive(Debug)]
struct Region {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
    huge: bool,
}

#[allow(unsafe_code, reason = "a mapping is raw memory")]
// SAFETY: a `Region` is the only owner of its mapping; it hands out the address and nothing else.
unsafe impl Send for Region {}
#[allow(unsafe_code, reason = "a mapping is raw memory")]
// SAFETY: shared access to a `Region` reads only its address and size.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` of zeroed memory that start at a huge-page boundary.
    fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE);
        // Without enough reserved pages this fails at once: the kernel takes the reservation with the mapping.
        if let Ok(mapping) = map(bytes, MapFlags::HUGETLB | MapFlags::HUGE_2MB) {
            return Ok(Self { mapping, mapping_bytes: bytes, start: mapping, bytes, huge: true });
        }
        let mapping_bytes = bytes + HUGE_PAGE;
        let mapping = map(mapping_bytes, MapFlags::empty())?;
        let padding = mapping.as_ptr().align_offset(HUGE_PAGE);
        #[allow(unsafe_code, reason = "pointer arithmetic and madvise in our own mapping")]
        // SAFETY: padding < HUGE_PAGE, and the mapping is HUGE_PAGE longer than `bytes`.
        let start = unsafe { mapping.add(padding) };
        #[allow(unsafe_code, reason = "madvise")]
        // SAFETY: the range lies within the mapping made above. Refused advice (no huge pages in this
        // kernel) costs speed only, so the result is not looked at.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok(Self { mapping, mapping_bytes, start, bytes, huge: false })
    }
}

/// A private anonymous mapping at an address that the kernel chooses.
fn map(bytes: usize, more: MapFlags) -> io::Result<NonNull<u8>> {
    #[allow(unsafe_code, reason = "mmap")]
    // SAFETY: an anonymous private mapping at an address the kernel chooses aliases nothing.
    let mapping = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | more,
        )
    }?;
    Ok(NonNull::new(mapping.cast::<u8>()).expect("mmap never returns the null page"))
}

impl Drop for Region {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "munmap")]
        // SAFETY: exactly the mapping that `new` made, and nobody else owns it.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}

/// Asks the kernel for huge pages under an array that has not been written to yet: a lookup somewhere in 64 MB of small
/// pages costs a walk over page tables before it costs the load. The kernel may decline, and what the array holds stays.
pub fn prefer_huge_pages<T>(array: &mut [T]) {
    const PAGE: usize = 4096;
    let range = array.as_mut_ptr_range();
    let start = range.start.addr().next_multiple_of(PAGE);
    let bytes = (range.end.addr() / PAGE * PAGE).saturating_sub(start);
    if bytes < HUGE_PAGE {
        return;
    }
    let start = range.start.with_addr(start);
    #[allow(unsafe_code, reason = "madvise")]
    // SAFETY: the pages lie inside `array`, and this advice changes no contents. A kernel without huge pages refuses;
    // that is not a reason to stop.
    let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxHugepage) };
}
