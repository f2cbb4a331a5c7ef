//! Maps of BPF programs that lie in this process's memory too.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use aya::Ebpf;
use aya::maps::{Map, MapData};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A map that is mapped into this process.
pub(crate) struct Mapped {
    first: NonNull<u8>,
    bytes: usize,
    /// Keeps the map.
    _data: MapData,
}

/// What a map holds that programs read and write at the same time.
///
/// # Safety
///
/// It has `repr(C)`, and every field is atomic.
#[allow(unsafe_code, reason = "a promise of its implementors")]
pub(crate) unsafe trait Common {}

// SAFETY: it is memory that nobody else unmaps; what is read and written in it is up to those who hold a reference.
#[allow(unsafe_code, reason = "raw pointers are not Send")]
unsafe impl Send for Mapped {}
// SAFETY: see Send.
#[allow(unsafe_code, reason = "raw pointers are not Sync")]
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the array `name` of an object, whose elements have so many bytes together.
    #[allow(unsafe_code, reason = "memory mapping has no safe interface")]
    pub(crate) fn new(object: &mut Ebpf, name: &str, bytes: usize) -> io::Result<Self> {
        let Some(Map::Array(data)) = object.take_map(name) else {
            return Err(io::Error::other(format!("the program has no array {name}")));
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let first = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, data.fd(), 0) }?;
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { first, bytes, _data: data })
    }

    /// Maps the array `name`, whose one element is a `T`.
    pub(crate) fn of<T: Common>(object: &mut Ebpf, name: &str) -> io::Result<Self> {
        Self::new(object, name, size_of::<T>().next_multiple_of(4096))
    }

    /// Its first byte.
    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// The memory as words, of which other sides write some too.
    #[allow(unsafe_code, reason = "the map is behind a pointer")]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is that long, begins on a page, and all references into it are to atomics.
        unsafe {
            NonNull::slice_from_raw_parts(self.first.cast(), self.bytes / size_of::<AtomicU64>()).as_ref()
        }
    }

    /// What it holds.
    #[allow(unsafe_code, reason = "the map is behind a pointer")]
    pub(crate) fn view<T: Common>(&self) -> &T {
        assert!(self.bytes >= size_of::<T>(), "the map is as long as what it holds");
        // SAFETY: the mapping is at least as long as the type, begins on a page, and all is atomic in it.
        unsafe { self.first.cast().as_ref() }
    }
}

#[allow(unsafe_code, reason = "memory mapping has no safe interface")]
impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, exactly this long, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}
