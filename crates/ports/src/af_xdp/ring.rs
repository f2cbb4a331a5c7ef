//! The four rings that an AF_XDP socket shares with the kernel: fill and transmit (we produce), receive and completion
//! (we consume).
//!
//! **Who may touch an entry.** Both indices of a ring count up for ever and wrap; entry `n` lies at `n & mask`. The
//! entries from consumer to producer belong to the consumer, the others to the producer. Each side writes its own index
//! with release and reads the other's with acquire ordering, so entries are seen as they were left. An index of the
//! kernel is not trusted: a difference larger than the ring counts as nothing there, and an entry is reached through
//! the mask, so it lies in the mapping whatever the index.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

/// A ring of a socket, with a copy of each index so that the shared ones are touched once a batch.
#[derive(Debug)]
struct Ring<T> {
    memory: NonNull<u8>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `slots` entries (a power of two) that lies at `page` of the socket's file.
    fn map(socket: &OwnedFd, page: u64, offsets: &XdpRingOffset, slots: u32) -> io::Result<Self> {
        assert!(slots.is_power_of_two(), "the kernel takes powers of two");
        let flags = offsets.flags.ok_or(io::ErrorKind::Unsupported)?;
        let bytes = offsets.desc as usize + slots as usize * size_of::<T>();
        let words = [offsets.producer, offsets.consumer, flags];
        let inside = |offset: u64, length: usize| offset as usize + length <= bytes;
        assert!(
            words.iter().all(|&offset| inside(offset, 4) && offset % 4 == 0)
                && offsets.desc.is_multiple_of(8),
            "the kernel's offsets lie in the ring, aligned"
        );
        #[allow(unsafe_code, reason = "mapping the ring")]
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let memory = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket,
                page,
            )
        }?;
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        #[allow(unsafe_code, reason = "pointers into the mapping")]
        // SAFETY: all offsets lie in the mapping (asserted above).
        let (at, entries) =
            unsafe { (words.map(|offset| memory.add(offset as usize)), memory.add(offsets.desc as usize)) };
        let [producer, consumer, flags] = at.map(NonNull::cast);
        Ok(Self { memory, bytes, producer, consumer, flags, entries: entries.cast(), mask: slots - 1 })
    }

    #[inline(always)]
    fn word(word: &NonNull<AtomicU32>) -> &AtomicU32 {
        #[allow(unsafe_code, reason = "a word shared with the kernel")]
        // SAFETY: in the mapping and aligned (asserted in `map`), which lives as long as the ring that is borrowed;
        // only ever used atomically.
        unsafe {
            word.as_ref()
        }
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> NonNull<T> {
        #[allow(unsafe_code, reason = "pointer to an entry")]
        // SAFETY: the mapping holds `mask + 1` entries.
        unsafe {
            self.entries.add((index & self.mask) as usize)
        }
    }

    #[inline(always)]
    fn read(&self, index: u32) -> T {
        #[allow(unsafe_code, reason = "an entry")]
        // SAFETY: inside the mapping, aligned, initialised by the kernel (zeroed), plain numbers. Should the kernel
        // write at the same time (it does not; see the module's essay), the value is wrong, and callers check it.
        unsafe {
            self.entry(index).as_ptr().read_volatile()
        }
    }

    #[inline(always)]
    fn needs_wakeup(&self) -> bool {
        Self::word(&self.flags).load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

#[allow(unsafe_code, reason = "the ring owns its mapping")]
// SAFETY: the mapping belongs to this value alone, and memory may be used from any thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "unmapping the ring")]
        // SAFETY: exactly the mapping of `map`; nothing borrowed from it outlives the ring.
        let result = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.bytes) };
        debug_assert!(result.is_ok(), "the mapping was there");
    }
}

/// A ring that we write and the kernel reads.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Entries before `written` are written, those before `submitted` the kernel may see, those before `consumed` it
    /// has read when we looked last.
    written: u32,
    submitted: u32,
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(socket: &OwnedFd, page: u64, offsets: &XdpRingOffset, slots: u32) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(socket, page, offsets, slots)?, written: 0, submitted: 0, consumed: 0 })
    }

    /// Entries that can be written now.
    #[inline]
    pub(super) fn room(&mut self) -> usize {
        self.look();
        (self.ring.mask + 1).saturating_sub(self.written.wrapping_sub(self.consumed)) as usize
    }

    /// Entries submitted that the kernel has not read.
    #[inline]
    pub(super) fn unread(&mut self) -> usize {
        self.look();
        self.submitted.wrapping_sub(self.consumed) as usize
    }

    #[inline]
    fn look(&mut self) {
        let consumed = Ring::<T>::word(&self.ring.consumer).load(Ordering::Acquire);
        // Between what it had read and what we gave; otherwise it is nonsense.
        if self.submitted.wrapping_sub(consumed) <= self.submitted.wrapping_sub(self.consumed) {
            self.consumed = consumed;
        }
    }

    /// Writes the next entry; there must be room.
    #[inline(always)]
    pub(super) fn write(&mut self, entry: T) {
        debug_assert!(self.written.wrapping_sub(self.consumed) <= self.ring.mask, "there is room");
        #[allow(unsafe_code, reason = "an entry")]
        // SAFETY: inside the mapping, aligned; the kernel reads it only after `submit`.
        unsafe {
            self.ring.entry(self.written).as_ptr().write(entry);
        }
        self.written = self.written.wrapping_add(1);
    }

    /// Lets the kernel see what was written.
    #[inline]
    pub(super) fn submit(&mut self) {
        Ring::<T>::word(&self.ring.producer).store(self.written, Ordering::Release);
        self.submitted = self.written;
    }

    /// Whether the kernel wants a system call to go on reading.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    /// The entry that the kernel read last.
    pub(super) fn last_read(&mut self) -> T {
        self.look();
        self.ring.read(self.consumed.wrapping_sub(1))
    }

    /// The entries submitted that the kernel has not read.
    pub(super) fn unread_entries(&mut self) -> impl Iterator<Item = T> + '_ {
        self.look();
        (0..self.submitted.wrapping_sub(self.consumed))
            .map(|offset| self.ring.read(self.consumed.wrapping_add(offset)))
    }
}

/// A ring that the kernel writes and we read.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Entries before `read` are read.
    read: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(socket: &OwnedFd, page: u64, offsets: &XdpRingOffset, slots: u32) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(socket, page, offsets, slots)?, read: 0 })
    }

    /// Entries to read.
    #[inline]
    pub(super) fn available(&self) -> usize {
        let produced = Ring::<T>::word(&self.ring.producer).load(Ordering::Acquire);
        let available = produced.wrapping_sub(self.read);
        if available > self.ring.mask + 1 { 0 } else { available as usize }
    }

    /// The entry `offset` behind the next one; it must be one of those available.
    #[inline(always)]
    pub(super) fn peek(&self, offset: usize) -> T {
        self.ring.read(self.read.wrapping_add(offset as u32))
    }

    /// Gives `count` entries back.
    #[inline]
    pub(super) fn release(&mut self, count: usize) {
        self.read = self.read.wrapping_add(count as u32);
        Ring::<T>::word(&self.ring.consumer).store(self.read, Ordering::Release);
    }
}
