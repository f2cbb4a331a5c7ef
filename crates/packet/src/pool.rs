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
//! number of returns that must happen in all, and the thread that brings the balance to zero frees the memory. Each
//! return touches the stack first and the balance last, so the last one knows that nobody else is inside.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::batch::Batch;
use crate::frame::{DATA_OFFSET, METADATA_BYTES, Metadata, Packet};
use crate::memory::Memory;
use crate::return_stack::{Chain, ReturnStack};

/// Most memory of a pool: 16 TiB, what a process of x86-64 can map with room to spare.
const MOST_BYTES: usize = 16 << 40;

/// Pools of a group begin on huge pages of their own, so that each can lie on another memory node.
const PAGE_BYTES: usize = 2 << 20;

/// How large a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Number of frames; at least 1.
    pub frames: usize,
    /// Largest packet, in bytes, that a frame must hold beside its usual head room; 64 to 32,000.
    pub data_bytes: usize,
}

/// Bytes that a large frame holds behind a head room of [`LARGE_HEADROOM`]: the longest that Linux merges of TCP, with link headers.
pub const LARGE_BYTES: usize = LARGE_CHUNK_BYTES - METADATA_BYTES - LARGE_HEADROOM;

/// Bytes before the data of a large frame.
pub const LARGE_HEADROOM: usize = 64;

/// Bytes of a large chunk: the most that positions of 16 bits reach, in whole cache lines of an odd number.
const LARGE_CHUNK_BYTES: usize = 1_023 * 64;

impl PoolOptions {
    /// Bytes of a chunk, or what is wrong with the options.
    fn chunk_bytes(&self) -> io::Result<usize> {
        let Self { frames, data_bytes } = *self;
        if frames == 0 || !(64..=32_000).contains(&data_bytes) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a pool of {frames} frames of {data_bytes} bytes is not possible; expected 1 frame or more, of 64 to 32000 bytes"
                ),
            ));
        }
        Ok(DATA_OFFSET + Self::held_bytes(data_bytes))
    }

    /// Returns how many bytes the pool takes: whole huge pages.
    pub const fn memory_bytes(&self) -> usize {
        (self.frames * (DATA_OFFSET + Self::held_bytes(self.data_bytes))).next_multiple_of(PAGE_BYTES)
    }

    /// Returns how many bytes a frame holds that was asked to hold so many: whole cache lines, of an odd number.
    pub const fn held_bytes(data_bytes: usize) -> usize {
        ((DATA_OFFSET + data_bytes).div_ceil(64) | 1) * 64 - DATA_OFFSET
    }
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
    home: Home,
}

/// Where frames live, and so where freed ones go.
enum Home {
    /// In our memory: home over the return stack.
    Pool { _memory: Memory },
    /// In a driver's memory: it takes them back itself.
    Driver(unsafe fn(NonNull<u8>)),
}

/// A worker's pool of frames.
pub struct Pool {
    shared: NonNull<Shared>,
    memory: Memory,
    free: Vec<NonNull<Metadata>>,
    chunk_bytes: u16,
    frames: usize,
    drained: u64,
    exhausted: u64,
    /// That of the large frames. They come home as those of another pool do.
    large: Option<Box<Pool>>,
}

#[allow(unsafe_code, reason = "a pool owns raw chunks")]
// SAFETY: the free chunks belong to the pool alone, and `Shared` is made for use from many threads.
unsafe impl Send for Pool {}

impl Pool {
    /// Maps the memory for a pool. Fails when the options are out of range or the memory is not to be had.
    pub fn new(options: PoolOptions) -> io::Result<Self> {
        let mut pools = Self::group(&[options])?;
        Ok(pools.pop().expect("a pool for each options"))
    }

    /// Several pools in one memory, one for each of `options`. Fails as [`Pool::new`] does.
    pub fn group(options: &[PoolOptions]) -> io::Result<Vec<Self>> {
        let too_much = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the frames of {} pools are more than an address space holds", options.len()),
            )
        };
        let mut sizes = Vec::with_capacity(options.len());
        let mut bytes = 0usize;
        for options in options {
            let chunk_bytes = options.chunk_bytes()?;
            sizes.push((bytes, chunk_bytes));
            let of_pool = options.frames.checked_mul(chunk_bytes).filter(|&bytes| bytes <= MOST_BYTES);
            bytes =
                of_pool.map(|of_pool| bytes + of_pool.next_multiple_of(PAGE_BYTES)).ok_or_else(too_much)?;
            if bytes > MOST_BYTES {
                return Err(too_much());
            }
        }
        let memory = Memory::new(bytes)?;
        assert!(memory.bytes() >= bytes, "the memory holds all chunks");
        let pools = options.iter().zip(sizes).map(|(options, (offset, chunk_bytes))| {
            #[allow(unsafe_code, reason = "cutting the memory into chunks")]
            // SAFETY: the memory is at least the sum of all pools long (asserted above), `offset` is the sum of those
            // before this one.
            let start = unsafe { memory.start().add(offset) };
            Self::at(start, options.frames, chunk_bytes, memory.clone())
        });
        Ok(pools.collect())
    }

    /// Adds so many large frames, of [`LARGE_BYTES`], for packets in which several are merged. They lie in memory of their own, which
    /// no device gets.
    ///
    /// # Errors
    ///
    /// The memory is not to be had.
    pub fn add_large(&mut self, frames: usize) -> io::Result<()> {
        let memory = Memory::new(frames * LARGE_CHUNK_BYTES)?;
        self.large = Some(Box::new(Self::at(memory.start(), frames, LARGE_CHUNK_BYTES, memory.clone())));
        Ok(())
    }

    /// A pool of `frames` chunks from `start`, which must lie in `memory` and be this pool's alone.
    fn at(start: NonNull<u8>, frames: usize, chunk_bytes: usize, memory: Memory) -> Self {
        let chunk = |index: usize| {
            #[allow(unsafe_code, reason = "cutting the memory into chunks")]
            // SAFETY: `group` gives each pool frames * chunk_bytes from its start.
            unsafe {
                start.add(index * chunk_bytes).cast::<Metadata>()
            }
        };
        let free = (0..frames).rev().map(chunk).collect();
        let home = Home::Pool { _memory: memory.clone() };
        let shared = Box::new(Shared { returned: ReturnStack::new(), balance: AtomicI64::new(0), home });
        Self {
            shared: NonNull::from(Box::leak(shared)),
            memory,
            free,
            chunk_bytes: chunk_bytes as u16,
            frames,
            drained: 0,
            exhausted: 0,
            large: None,
        }
    }

    /// Touches every frame, so that the kernel gives the pool its memory now, on the memory node of the CPU that this
    /// thread runs on. Later the first user of a frame decides, or the one that registers the memory.
    pub fn touch(&mut self) {
        for chunk in &self.free {
            #[allow(unsafe_code, reason = "a byte of a free chunk")]
            // SAFETY: free chunks are ours alone; their bytes mean nothing. Volatile, or it could be left out.
            unsafe {
                chunk.as_ptr().cast::<u8>().write_volatile(0);
            }
        }
    }

    /// The memory that this pool's frames lie in, and those of the pools made with it.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Bytes of a chunk: metadata, head room and data.
    pub fn chunk_bytes(&self) -> usize {
        usize::from(self.chunk_bytes)
    }

    /// Takes up to `count` free chunks for a driver to receive into and gives the start of each to `take`; returns
    /// how many. The driver owns them, until each comes back as a packet ([`Pool::received`]).
    #[inline]
    pub fn lend(&mut self, count: usize, mut take: impl FnMut(NonNull<u8>)) -> usize {
        if self.free.len() < count {
            self.refill();
        }
        let count = count.min(self.free.len());
        let first = self.free.len() - count;
        for index in (first..self.free.len()).rev() {
            let chunk = self.free[index];
            #[allow(unsafe_code, reason = "a free chunk is lent")]
            // SAFETY: the chunk came off the free list: ours alone, `chunk_bytes` long, 64-byte aligned.
            unsafe {
                Packet::lend(chunk, self.chunk_bytes, self.shared);
            }
            take(chunk.cast());
        }
        self.free.truncate(first);
        count
    }

    /// A chunk that a pool lent comes back as a packet of that pool: `length` bytes of data from `data_offset` bytes
    /// behind the chunk's start. `None`, and the chunk is free again, when the data does not lie within the chunk
    /// behind its metadata.
    ///
    /// # Safety
    /// `chunk` must have been lent by a pool that is still there and not have come back since, with its metadata as
    /// they were, and nobody else may use it.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a driver's chunk becomes a packet")]
    pub unsafe fn received(
        &mut self,
        chunk: NonNull<u8>,
        data_offset: usize,
        length: usize,
    ) -> Option<Packet> {
        // SAFETY: a lent chunk is marked with its size and owner; the caller gives it back.
        let mut packet = unsafe { Packet::returned(chunk.cast()) };
        if packet.set_range(data_offset, length) {
            Some(packet)
        } else {
            self.free_packet(packet);
            None
        }
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

    /// A fresh packet of a large frame; `None` when all of them are in use, or there are none.
    pub fn allocate_large(&mut self) -> Option<Packet> {
        self.large.as_mut()?.allocate()
    }

    /// Whether there are large frames, in use or not.
    pub fn has_large(&self) -> bool {
        self.large.is_some()
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
        let mut strangers: Option<Chain<Metadata>> = None;
        for packet in batch.drain() {
            if packet.owner() == shared {
                // Never grows: the vector was made with room for every frame.
                self.free.push(packet.into_chunk());
                continue;
            }
            // Frames of one other pool come in a row: they go home together.
            let owner = packet.owner();
            let chunk = packet.into_chunk();
            #[allow(unsafe_code, reason = "packets' chunks go home")]
            // SAFETY: the chunk was a packet's, which is gone, and so were all in the chain, of one owner each.
            unsafe {
                match &mut strangers {
                    Some(chain) if Shared::of(chain.first()) == owner => chain.add(chunk),
                    _ => {
                        if let Some(chain) = strangers.replace(Chain::new(chunk)) {
                            Shared::give_back(chain);
                        }
                    }
                }
            }
        }
        if let Some(chain) = strangers {
            #[allow(unsafe_code, reason = "packets' chunks go home")]
            // SAFETY: as above.
            unsafe {
                Shared::give_back(chain);
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
        let mut copy = if packet.is_merged() { self.allocate_large()? } else { self.allocate()? };
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
            #[allow(unsafe_code, reason = "the last user frees the memory")]
            // SAFETY: the balance says that all packets are gone, and the pool goes now.
            unsafe {
                Shared::destroy(self.shared);
            }
        }
    }
}

impl Shared {
    /// The owner of a driver's chunks; lives as long as the program.
    pub(crate) fn of_driver(free: unsafe fn(NonNull<u8>)) -> NonNull<Self> {
        let home = Home::Driver(free);
        let shared = Self { returned: ReturnStack::new(), balance: AtomicI64::new(0), home };
        NonNull::from(Box::leak(Box::new(shared)))
    }

    /// The owner of a chunk.
    ///
    /// # Safety
    /// The chunk was a packet's, so its metadata is initialised.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a chunk names its owner")]
    unsafe fn of(chunk: NonNull<Metadata>) -> NonNull<Self> {
        // SAFETY: the caller's.
        unsafe { chunk.as_ref().owner }
    }

    /// Returns chunks to the pool that all of them came from; any thread.
    ///
    /// # Safety
    /// All chunks were packets' of one owner, and nobody uses them.
    #[allow(unsafe_code, reason = "chunks go home")]
    pub(crate) unsafe fn give_back(chunks: Chain<Metadata>) {
        // SAFETY: the caller's.
        let shared = unsafe { Self::of(chunks.first()) };
        let count = chunks.len() as i64;
        // SAFETY: the owner lives until these very returns are counted below.
        if let Home::Driver(free) = unsafe { &shared.as_ref().home } {
            chunks.each(|chunk| {
                // SAFETY: the chunk came from this driver (its owner says so), and nobody uses it any more.
                unsafe {
                    free(chunk.cast());
                }
            });
            return;
        }
        // SAFETY: as above.
        let balance = unsafe {
            shared.as_ref().returned.push_chain(chunks);
            shared.as_ref().balance.fetch_add(count, Ordering::AcqRel) + count
        };
        // While the pool lives the balance counts up from zero and is positive here; after it closed the
        // balance is negative until the last return.
        if balance == 0 {
            // SAFETY: the balance says that the pool is gone, and this was its last packet.
            unsafe { Self::destroy(shared) };
        }
    }

    /// Frees the shared part of a pool.
    ///
    /// # Safety
    /// The pool and all its packets are gone.
    #[allow(unsafe_code, reason = "the last user frees the memory")]
    unsafe fn destroy(shared: NonNull<Self>) {
        // SAFETY: made by `Box::leak` in `Pool::new`; the caller says that nobody uses it.
        drop(unsafe { Box::from_raw(shared.as_ptr()) });
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
    fn another_thread_writes_and_frees_what_the_owner_uses_again() {
        let mut pool = small(8);
        let (away, packets) = std::sync::mpsc::channel::<Packet>();
        let other = std::thread::spawn(move || {
            for mut packet in packets {
                assert_eq!(packet.data(), b"there");
                assert!(packet.set_data(b"and back"));
            }
        });
        let mut sent = 0;
        while sent < 1_000 {
            let Some(mut packet) = pool.allocate() else { continue };
            assert!(packet.set_data(b"there"));
            away.send(packet).unwrap();
            sent += 1;
        }
        drop(away);
        other.join().unwrap();
        pool.refill();
        assert_eq!((pool.stats().free, pool.stats().returned), (8, 1_000));
    }

    #[test]
    fn pools_of_a_group_share_memory_and_keep_their_frames() {
        let options = PoolOptions { frames: 3, data_bytes: 512 };
        let mut pools = Pool::group(&[options, PoolOptions { frames: 5, data_bytes: 100 }, options]).unwrap();
        let (start, bytes) = (pools[0].memory().start().as_ptr() as usize, pools[0].memory().bytes());
        assert!(pools.iter().all(|pool| pool.memory().start().as_ptr() as usize == start));
        let mut ranges = Vec::new();
        for pool in &mut pools {
            let (frames, chunk) = (pool.stats().frames, pool.chunk_bytes());
            let mut lent = Vec::new();
            assert_eq!(pool.lend(10, |chunk| lent.push(chunk)), frames);
            let addresses = lent.iter().map(|chunk| chunk.as_ptr() as usize);
            ranges.extend(addresses.map(|address| (address, address + chunk)));
            for chunk in lent {
                #[allow(unsafe_code, reason = "as a driver would")]
                // SAFETY: lent above, and back once.
                let packet = unsafe { pool.received(chunk, 384, 60) }.unwrap();
                pool.free_packet(packet);
            }
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ranges:x?}");
        assert!(ranges[0].0 >= start && ranges.last().unwrap().1 <= start + bytes);
    }

    #[test]
    fn a_lent_chunk_comes_back_as_a_packet() {
        let mut pool = small(1);
        let mut lent = Vec::new();
        assert_eq!((pool.lend(4, |chunk| lent.push(chunk)), pool.lend(1, |_| panic!())), (1, 0));
        #[allow(unsafe_code, reason = "as a driver would")]
        // SAFETY: lent above, and back once.
        let none = unsafe { pool.received(lent[0], 384, 10_000) };
        assert!(none.is_none());
        assert_eq!(pool.lend(4, |chunk| assert_eq!(chunk, lent[0])), 1);
        #[allow(unsafe_code, reason = "as a driver would")]
        // SAFETY: lent again above, and back once.
        let packet = unsafe { pool.received(lent[0], 384, 60) }.unwrap();
        assert_eq!((packet.len(), packet.headroom()), (60, 256));
        pool.free_packet(packet);
        assert_eq!(pool.stats().free, 1);
    }

    #[test]
    fn a_sent_packet_comes_back_by_its_address() {
        let mut pool = small(1);
        let packet = pool.allocate().unwrap();
        let chunk = packet.into_raw();
        #[allow(unsafe_code, reason = "as a driver would")]
        // SAFETY: a packet's chunk from `into_raw`, used once.
        pool.free_packet(unsafe { Packet::from_raw(chunk) });
        assert_eq!(pool.stats().free, 1);
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
