//! Memory for frames: one anonymous mapping, zeroed, on huge pages where the kernel gives them.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A 2 MiB boundary: what a huge page of x86-64 needs.
const HUGE_PAGE: usize = 2 << 20;

/// An owned mapping; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Region {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

#[allow(unsafe_code, reason = "a mapping is raw memory")]
// SAFETY: a `Region` is the only owner of its mapping; it hands out the address and nothing else.
unsafe impl Send for Region {}
#[allow(unsafe_code, reason = "a mapping is raw memory")]
// SAFETY: shared access to a `Region` reads only its address and size.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` of zeroed memory that start at a huge-page boundary.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE);
        let mapping_bytes = bytes + HUGE_PAGE;
        #[allow(unsafe_code, reason = "mmap")]
        // SAFETY: an anonymous private mapping at an address the kernel chooses aliases nothing.
        let mapping = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapping_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).expect("mmap never returns the null page");
        let padding = mapping.as_ptr().align_offset(HUGE_PAGE);
        #[allow(unsafe_code, reason = "pointer arithmetic and madvise in our own mapping")]
        // SAFETY: padding < HUGE_PAGE, and the mapping is HUGE_PAGE longer than `bytes`.
        let start = unsafe { mapping.add(padding) };
        #[allow(unsafe_code, reason = "madvise")]
        // SAFETY: the range lies within the mapping made above. Refused advice (no huge pages in this
        // kernel) costs speed only, so the result is not looked at.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok(Self { mapping, mapping_bytes, start, bytes })
    }

    /// First byte; aligned to 2 MiB.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Usable bytes from [`Region::start`].
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "munmap")]
        // SAFETY: exactly the mapping that `new` made, and nobody else owns it.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}
