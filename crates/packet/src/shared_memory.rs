//! Memory that somebody outside this process reads too, such as a program in the kernel.

use std::fmt;
use std::ptr::NonNull;

/// A stretch of memory that is mapped into this process and read from outside it. It is zero at first.
pub struct SharedMemory {
    first: NonNull<u8>,
    bytes: usize,
    /// Unmaps the memory when it is dropped.
    _owner: Box<dyn Send + Sync>,
}

impl SharedMemory {
    /// Takes over a mapping.
    ///
    /// # Safety
    ///
    /// `bytes` bytes from `first` on are mapped for reading and writing as long as `owner` lives. They are zero, begin on
    /// a page, and nobody else in this process has a reference to them. A reader outside bears with any
    /// contents, and writes to none but those that this process reads as atomics.
    #[allow(unsafe_code, reason = "the promise is about memory that the compiler does not know")]
    pub unsafe fn new(first: NonNull<u8>, bytes: usize, owner: Box<dyn Send + Sync>) -> Self {
        Self { first, bytes, _owner: owner }
    }

    /// Returns where it begins.
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// Returns how many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

// SAFETY: it is a stretch of memory and its owner, which is Send and Sync; the pointer is used by unsafe code only.
#[allow(unsafe_code, reason = "raw pointers are not Send")]
unsafe impl Send for SharedMemory {}
// SAFETY: see Send.
#[allow(unsafe_code, reason = "raw pointers are not Sync")]
unsafe impl Sync for SharedMemory {}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
