//! A pool of frames: one per worker, no locks, and every frame comes home.
//!
//! The worker that owns a [`Pool`] allocates from and frees to a plain array of free chunks, newest first,
//! so that a small set of frames stays in the cache however large the pool is. Frames that other threads
//! free are pushed to the pool's return stack (see `return_stack`), which the owner empties when the array
//! runs dry.
//!
//! **Spacing.** Chunks are an odd number of cache lines apart (33 by default, 2,112 bytes). With a power of
//! two, all metadata lines would fall into two of the 64 sets of an L1 cache and a batch of 32 would evict
//! itself.
//!
//! **Life.** Packets may outlive their pool (in a queue, on another thread). The memory is then kept until
//! the last of them came back: `balance` counts returns from outside; when the pool closes it subtracts the
//! number of returns that must happen in all, and whoever brings the balance to zero frees the memory. Each
//! return touches the stack first and the balance last, so the last one knows that nobody else is inside.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::batch::Batch;
use crate::frame::{DATA_OFFSET, Metadata, Packet};
use crate::memory::Region;
use crate::return_stack::ReturnStack;

/// Most memory of a pool: 16 TiB, what a process of x86-64 can map with room to spare.
const MOST_BYTES: usize = 16 << 40;

/// How large a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Number of frames; at least 1.
    pub frames: usize,
    /// Largest packet, in bytes, that a frame must hold beside its usual head room; 64 to 32,000.
    pub data_bytes: usize,
}

impl Default for PoolOptions {
    /// 16,384 frames for packets of up to 1,856 bytes: 33 MiB.
    fn default() -> Self {
        Self { frames: 16_384, data_bytes: 1_856 }
    }
}

/// What a pool did so far; all counts since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Frames in all.
    pub frames: usize,
    /// Frames free now, those on their way home not counted.
    pub free: usize,
    /// Frames that were asked for and not there.
    pub exhausted: u64,
    /// Frames that other threads brought back.
    pub returned: u64,
}

/// The part of a pool that packets point to; lives until the pool and all its packets are gone.
pub(crate) struct Shared {
    returned: ReturnStack<Metadata>,
    balance: AtomicI64,
    region: Region,
}

/// A worker's pool of frames.
pub struct Pool {
    shared: NonNull<Shared>,
    free: Vec<NonNull<Metadata>>,
    chunk_bytes: u16,
    frames: usize,
    drained: u64,
    exhausted: u64,
}

#[allow(unsafe_code, reason = "a pool owns raw chunks")]
// SAFETY: the free chunks belong to the pool alone, and `Shared` is made for use from many threads.
unsafe impl Send for Pool {}

impl Pool {
    /// Maps the memory for a pool. Fails when the options are out of range or the memory is not to be had.
    pub fn new(options: PoolOptions) -> io::Result<Self> {
        let PoolOptions { frames, data_bytes } = options;
        if frames == 0 || !(64..=32_000).contains(&data_bytes) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a pool of {frames} frames of {data_bytes} bytes cannot be: it takes 1 frame or more, of 64 to 32000 bytes"
                ),
            ));
        }
        let lines = (DATA_OFFSET + data_bytes).div_ceil(64) | 1;
        let chunk_bytes = lines * 64;
        let bytes =
            frames.checked_mul(chunk_bytes).filter(|&bytes| bytes <= MOST_BYTES).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{frames} frames of {chunk_bytes} bytes are more than an address space holds"),
                )
            })?;
        let region = Region::new(bytes)?;
        let start = region.start();
        assert!(region.bytes() >= bytes, "the region holds all chunks");
        let free = (0..frames)
            .rev()
            .map(|index| {
                #[allow(unsafe_code, reason = "cutting the region into chunks")]
                // SAFETY: the region is at least frames * chunk_bytes long (asserted above).
                unsafe {
                    start.add(index * chunk_bytes).cast::<Metadata>()
                }
            })
            .collect();
        let shared = Box::new(Shared { returned: ReturnStack::new(), balance: AtomicI64::new(0), region });
        Ok(Self {
            shared: NonNull::from(Box::leak(shared)),
            free,
            chunk_bytes: chunk_bytes as u16,
            frames,
            drained: 0,
            exhausted: 0,
        })
    }

    #[allow(unsafe_code, reason = "the pool's own shared part")]
    fn shared(&self) -> &Shared {
        // SAFETY: `Shared` lives at least as long as the pool.
        unsafe { self.shared.as_ref() }
    }

    /// A fresh packet without data; `None` when all frames are in use.
    #[inline]
    pub fn allocate(&mut self) -> Option<Packet> {
        if self.free.is_empty() && !self.refill() {
            self.exhausted += 1;
            return None;
        }
        let chunk = self.free.pop()?;
        Some(self.initialise(chunk))
    }

    /// Adds up to `count` fresh packets without data to `batch` (fewer when it fills up or the pool is
    /// empty); returns how many.
    #[inline]
    pub fn allocate_batch(&mut self, batch: &mut Batch, count: usize) -> usize {
        let wanted = count.min(batch.room());
        if self.free.len() < wanted {
            self.refill();
        }
        let count = wanted.min(self.free.len());
        self.exhausted += (wanted - count) as u64;
        let first = self.free.len() - count;
        for index in (first..self.free.len()).rev() {
            let packet = self.initialise(self.free[index]);
            batch.push(packet);
        }
        self.free.truncate(first);
        count
    }

    /// Frees all packets of `batch`, wherever they came from.
    #[inline]
    pub fn free(&mut self, batch: &mut Batch) {
        let shared = self.shared;
        for packet in batch.drain() {
            if packet.owner() == shared {
                // Never grows: the vector was made with room for every frame.
                self.free.push(packet.into_chunk());
            } else {
                drop(packet);
            }
        }
    }

    /// Frees one packet, wherever it came from.
    #[inline]
    pub fn free_packet(&mut self, packet: Packet) {
        if packet.owner() == self.shared {
            self.free.push(packet.into_chunk());
        }
    }

    /// A copy of `packet` with data, header positions and annotations; `None` when the pool is empty or
    /// its frames are too small.
    pub fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        let mut copy = self.allocate()?;
        if copy.copy_from(packet) {
            Some(copy)
        } else {
            self.free_packet(copy);
            None
        }
    }

    /// Most data bytes that a fresh packet can hold behind its head room.
    pub fn data_bytes(&self) -> usize {
        usize::from(self.chunk_bytes) - DATA_OFFSET
    }

    /// Counts so far.
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            frames: self.frames,
            free: self.free.len(),
            exhausted: self.exhausted,
            returned: self.drained,
        }
    }

    /// Brings home what other threads returned; true when there is a free frame now.
    #[cold]
    pub fn refill(&mut self) -> bool {
        #[allow(unsafe_code, reason = "the pool's own shared part")]
        // SAFETY: `Shared` lives at least as long as the pool; borrowed apart from `self.free`.
        let shared = unsafe { self.shared.as_ref() };
        self.drained += shared.returned.drain(|chunk| self.free.push(chunk)) as u64;
        !self.free.is_empty()
    }

    #[inline(always)]
    fn initialise(&self, chunk: NonNull<Metadata>) -> Packet {
        #[allow(unsafe_code, reason = "a free chunk becomes a packet")]
        // SAFETY: the chunk came off the free list: ours alone, `chunk_bytes` long, 64-byte aligned.
        unsafe {
            Packet::initialise(chunk, self.chunk_bytes, self.shared)
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.refill();
        let outstanding = (self.frames - self.free.len()) as i64;
        let returns_in_all = self.drained as i64 + outstanding;
        let before = self.shared().balance.fetch_sub(returns_in_all, Ordering::AcqRel);
        if before == returns_in_all {
            Shared::destroy(self.shared);
        }
    }
}

impl Shared {
    /// Returns a chunk to the pool it came from; any thread.
    pub(crate) fn give_back(chunk: NonNull<Metadata>) {
        #[allow(unsafe_code, reason = "a chunk names its owner")]
        // SAFETY: the chunk was a packet's, so its metadata is initialised, and its owner lives until this
        // very return is counted below.
        let shared = unsafe { chunk.as_ref().owner };
        #[allow(unsafe_code, reason = "the owner is shared")]
        // SAFETY: as above.
        let balance = unsafe {
            shared.as_ref().returned.push(chunk);
            shared.as_ref().balance.fetch_add(1, Ordering::AcqRel) + 1
        };
        // While the pool lives the balance counts up from zero and is positive here; after it closed the
        // balance is negative until the last return.
        if balance == 0 {
            Self::destroy(shared);
        }
    }

    fn destroy(shared: NonNull<Self>) {
        #[allow(unsafe_code, reason = "the last user frees the memory")]
        // SAFETY: made by `Box::leak` in `Pool::new`; the balance reached zero, so pool and packets are gone.
        let shared = unsafe { Box::from_raw(shared.as_ptr()) };
        drop(shared.region);
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(frames: usize) -> Pool {
        Pool::new(PoolOptions { frames, data_bytes: 512 }).unwrap()
    }

    #[test]
    fn frames_come_back_and_are_used_again() {
        let mut pool = small(4);
        let mut batch = Batch::new();
        assert_eq!(pool.allocate_batch(&mut batch, 10), 4);
        assert_eq!(pool.stats().exhausted, 6);
        assert!(pool.allocate().is_none());
        pool.free(&mut batch);
        assert_eq!(pool.stats().free, 4);
        assert_eq!(pool.allocate_batch(&mut batch, 2), 2);
    }

    #[test]
    fn a_frame_freed_by_another_thread_comes_home() {
        let mut pool = small(2);
        let (first, second) = (pool.allocate().unwrap(), pool.allocate().unwrap());
        std::thread::spawn(move || drop((first, second))).join().unwrap();
        let stats = pool.stats();
        assert_eq!((stats.free, stats.returned), (0, 0));
        assert!(pool.allocate().is_some());
        assert_eq!(pool.stats().returned, 2);
    }

    #[test]
    fn a_frame_of_another_pool_goes_to_that_pool() {
        let (mut mine, mut other) = (small(1), small(1));
        let mut batch = Batch::new();
        mine.allocate_batch(&mut batch, 1);
        other.free(&mut batch);
        assert_eq!(other.stats().free, 1);
        assert!(mine.allocate().is_some());
        let stranger = other.allocate().unwrap();
        mine.free_packet(stranger);
        assert!(other.allocate().is_some());
    }

    #[test]
    fn packets_may_outlive_their_pool() {
        let mut pool = small(3);
        let returned_early = pool.allocate().unwrap();
        let mut kept = pool.allocate().unwrap();
        drop(returned_early);
        drop(pool);
        assert!(kept.set_data(b"still here"));
        assert_eq!(kept.data(), b"still here");
        let another = std::thread::spawn(move || drop(kept));
        another.join().unwrap();
    }

    #[test]
    fn data_grows_and_shrinks_within_the_chunk() {
        let mut pool = small(1);
        let mut packet = pool.allocate().unwrap();
        assert!(packet.set_data(b"abcdef"));
        packet.set_link_header(0);
        assert!(packet.strip(2));
        assert_eq!(packet.data(), b"cdef");
        assert_eq!(packet.link(), Some(&b"abcdef"[..]));
        assert_eq!(packet.link_offset(), Some(-2));
        assert!(!packet.strip(5));
        assert_eq!(packet.prepend(2).map(|data| data[..2].to_vec()), Some(b"ab".to_vec()));
        packet.append(2).unwrap().copy_from_slice(b"gh");
        assert_eq!(packet.data(), b"abcdefgh");
        packet.truncate(3);
        assert_eq!(packet.data(), b"abc");
        packet.truncate(30);
        assert_eq!(packet.len(), 3);
        assert!(packet.prepend(packet.headroom() + 1).is_none());
        assert!(packet.append(packet.tailroom() + 1).is_none());
        assert!(packet.reset(packet.capacity()).is_none());
    }

    #[test]
    fn a_pool_larger_than_memory_is_an_error() {
        for frames in [usize::MAX, usize::MAX / 2112, 1 << 45] {
            assert!(Pool::new(PoolOptions { frames, data_bytes: 1856 }).is_err());
        }
    }

    #[test]
    fn shift_takes_stripped_headers_along() {
        let mut pool = small(1);
        let mut packet = pool.allocate().unwrap();
        packet.set_data(b"LINKdata");
        packet.set_link_header(0);
        packet.strip(4);
        assert!(packet.shift(-3));
        assert_eq!(packet.link(), Some(&b"LINKdata"[..]));
        assert!(packet.shift(20));
        assert_eq!(packet.link(), Some(&b"LINKdata"[..]));
        assert!(!packet.shift(-(packet.headroom() as isize - 3)));
    }

    #[test]
    fn shift_moves_headers_with_the_data() {
        let mut pool = small(1);
        let mut packet = pool.allocate().unwrap();
        packet.set_data(b"0123456789");
        packet.set_network_and_transport_header(2, 4);
        assert!(packet.shift(-3));
        assert_eq!(packet.data(), b"0123456789");
        assert_eq!(packet.network(), Some(&b"23456789"[..]));
        assert_eq!(packet.transport(), Some(&b"6789"[..]));
        assert!(!packet.shift(10_000));
        assert!(packet.shift(7));
        assert_eq!(packet.transport(), Some(&b"6789"[..]));
    }

    #[test]
    fn a_header_behind_the_end_is_not_there() {
        let mut pool = small(1);
        let mut packet = pool.allocate().unwrap();
        packet.set_data(&[7; 40]);
        packet.set_network_and_transport_header(14, 20);
        packet.truncate(20);
        assert_eq!(packet.network().map(<[u8]>::len), Some(6));
        assert_eq!(packet.transport(), None);
        assert_eq!(packet.transport_mut(), None);
    }

    #[test]
    fn a_copy_has_what_was_stripped_too() {
        let mut pool = small(2);
        let mut packet = pool.allocate().unwrap();
        packet.set_data(b"linknetwork");
        packet.set_link_header(0);
        packet.strip(4);
        packet.set_network_header(0);
        packet.annotations_mut().set_paint(5);
        let mut copy = pool.copy(&packet).unwrap();
        assert_eq!(copy.data(), b"network");
        assert_eq!(copy.link(), Some(&b"linknetwork"[..]));
        assert_eq!(copy.annotations().paint(), 5);
        copy.data_mut()[0] = b'N';
        assert_eq!(packet.data(), b"network");
    }
}
