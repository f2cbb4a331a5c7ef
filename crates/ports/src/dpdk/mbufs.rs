//! Mempools of mbufs whose private area is our metadata, and the way from an mbuf to a packet and back.
//!
//! Pools are never given back, since a packet may be anywhere; a port reserves what it needs, and another port takes
//! it over when that one is closed.

use packet::sync::lock;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use packet::frame::{HEADROOM_BYTES, METADATA_BYTES};
use packet::wire::ethernet::MacAddr;
use packet::{Batch, DriverFrames, MAX_BATCH, Packet, PacketType, Vectors};

use crate::dpdk::eal;
use crate::dpdk::shim::{self, MBUF_BYTES, Mbuf, Mempool};
use crate::dpdk::wide::Wide;
use crate::{Event, PortError, QueueStats};

/// Mbufs in the cache of each thread: the most that DPDK allows. A cache gives some back at one and a half of this.
const CACHE: u32 = 512;
/// Mbufs that a thread may hold in its cache.
pub(super) const CACHE_HOLDS: u32 = CACHE + CACHE / 2;
/// Mbufs of a pool, at least.
const LEAST_MBUFS: u32 = 16_384;
/// Bytes of data that an mbuf holds behind its head room, at least: what cards expect that write in 2 KiB pieces.
const LEAST_DATA: usize = 2_048;
/// Flags of an mbuf whose data lies elsewhere (RTE_MBUF_F_EXTERNAL, RTE_MBUF_F_INDIRECT; rte_mbuf_core.h).
const ELSEWHERE: u64 = 1 << 61 | 1 << 62;

/// Packets that lie in mbufs, of all pools.
pub(super) fn frames() -> DriverFrames {
    static FRAMES: OnceLock<DriverFrames> = OnceLock::new();
    *FRAMES.get_or_init(|| {
        #[allow(unsafe_code, reason = "who takes the frames back")]
        // SAFETY: `free` may be called by any thread: mempools are made for many producers.
        unsafe {
            DriverFrames::new(free)
        }
    })
}

/// Takes a dropped packet's mbuf back.
///
/// # Safety
/// `chunk` was made a packet by these frames, and the packet is gone.
#[allow(unsafe_code, reason = "a packet's mbuf goes back to DPDK")]
unsafe fn free(chunk: NonNull<u8>) {
    // SAFETY: the caller's; the chunk is the private area of an mbuf that one packet owned.
    unsafe { shim::brickway_dpdk_free(mbuf_of(chunk)) }
}

/// The mbuf that has its private area here.
#[inline(always)]
pub(super) fn mbuf_of(chunk: NonNull<u8>) -> *mut Mbuf {
    chunk.as_ptr().wrapping_sub(MBUF_BYTES).cast()
}

/// Where the data area of an mbuf starts that has one of its own, behind our metadata.
#[inline(always)]
fn data_area(mbuf: *mut Mbuf) -> *const u8 {
    mbuf.cast::<u8>().wrapping_add(MBUF_BYTES + METADATA_BYTES)
}

/// In `rearm_data`: one owner (refcnt) and one segment (nb_segs).
pub(super) const ALONE: u64 = 0x0001_0001_0000;

#[inline(always)]
fn is_alone(rearm_data: u64) -> bool {
    rearm_data & 0xffff_ffff_0000 == ALONE
}

/// A pool, and how much of it is promised to ports.
struct Entry {
    pool: *mut Mempool,
    socket: i32,
    data_room: u16,
    mbufs: u32,
    reserved: u32,
}

#[allow(unsafe_code, reason = "a pointer to something that never goes away")]
// SAFETY: mempools are made for use from many threads, and ours are never freed.
unsafe impl Send for Entry {}

/// Our pools and the bytes of a chunk of theirs; behind the last one are null pointers.
static POOLS: [(AtomicPtr<Mempool>, AtomicU16); MOST_POOLS] =
    [const { (AtomicPtr::new(ptr::null_mut()), AtomicU16::new(0)) }; MOST_POOLS];
/// Most pools of a process.
const MOST_POOLS: usize = 64;

/// Bytes of a chunk of this pool. `None`: it is none of ours.
fn chunk_bytes_of(pool: *mut Mempool) -> Option<u16> {
    // A pool's place is written last.
    let ours = POOLS.iter().map(|(ours, bytes)| (ours.load(Ordering::Acquire), bytes));
    let mut ours = ours.take_while(|(ours, _)| !ours.is_null());
    ours.find(|(ours, _)| *ours == pool).map(|(_, bytes)| bytes.load(Ordering::Relaxed))
}

fn entries() -> MutexGuard<'static, Vec<Entry>> {
    static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
    lock(&ENTRIES)
}

/// Some mbufs of a pool, promised to one port.
#[derive(Debug)]
pub(super) struct Reservation {
    pool: *mut Mempool,
    data_room: u16,
    mbufs: u32,
}

#[allow(unsafe_code, reason = "a pointer to something that never goes away")]
// SAFETY: as for `Entry`.
unsafe impl Send for Reservation {}
#[allow(unsafe_code, reason = "a pointer to something that never goes away")]
// SAFETY: as for `Entry`.
unsafe impl Sync for Reservation {}

/// Bytes of an mbuf's data area, for frames of `frame_bytes`.
fn data_room(frame_bytes: usize) -> u16 {
    let room = HEADROOM_BYTES + frame_bytes.next_multiple_of(64).max(LEAST_DATA);
    // A chunk's size is 16 bits, and a port's MTU too.
    room.min(65_535 - METADATA_BYTES) as u16
}

/// Bytes of memory that a pool for `mbufs` takes.
pub(super) fn pool_bytes(mbufs: u32, frame_bytes: usize) -> u64 {
    // An mbuf stands behind a header of a line.
    let each = 64 + MBUF_BYTES + METADATA_BYTES + usize::from(data_room(frame_bytes));
    u64::from(mbufs.max(LEAST_MBUFS)) * each as u64
}

impl Reservation {
    /// Promises `mbufs` for frames of up to `frame_bytes` to a port, out of a pool that has so many, or a new one.
    pub(super) fn make(port: &str, socket: i32, mbufs: u32, frame_bytes: usize) -> Result<Self, PortError> {
        let data_room = data_room(frame_bytes);
        let mut entries = entries();
        let fits = |entry: &&mut Entry| {
            entry.socket == socket && entry.data_room == data_room && entry.mbufs - entry.reserved >= mbufs
        };
        if let Some(entry) = entries.iter_mut().find(fits) {
            entry.reserved += mbufs;
            return Ok(Self { pool: entry.pool, data_room, mbufs });
        }
        let number = entries.len();
        let Some((place, chunk_bytes)) = POOLS.get(number) else {
            return Err(eal::unsupported(port, format!("more than {MOST_POOLS} pools of mbufs")));
        };
        let size = mbufs.max(LEAST_MBUFS);
        let pool = make_pool(number, size, data_room, socket).map_err(|reason| {
            let mib = pool_bytes(mbufs, frame_bytes).div_ceil(1 << 20);
            let problem = format!(
                "no memory for {size} mbufs ({mib} MiB): {reason}; reserve more huge pages (`sysctl \
                 vm.nr_hugepages=...`), or without them give DPDK more by `BRICKWAY_EAL=\"-m MEGABYTES\"`, or ask for \
                 fewer with `mbufs=`"
            );
            eal::unsupported(port, problem)
        })?;
        chunk_bytes.store(METADATA_BYTES as u16 + data_room, Ordering::Relaxed);
        place.store(pool, Ordering::Release);
        entries.push(Entry { pool, socket, data_room, mbufs: size, reserved: mbufs });
        Ok(Self { pool, data_room, mbufs })
    }

    pub(super) fn pool(&self) -> *mut Mempool {
        self.pool
    }

    /// Bytes of data that an mbuf holds behind the usual head room.
    pub(super) fn data_bytes(&self) -> usize {
        usize::from(self.data_room) - HEADROOM_BYTES
    }

    /// Mbufs of the pool that are not free.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> u32 {
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: a pool that lives as long as the process.
        unsafe {
            shim::brickway_dpdk_in_use(self.pool)
        }
    }

    /// Empty packets, as many as `mbufs` is long or as there are free ones; `mbufs` is their place meanwhile.
    fn allocate<'a>(&self, mbufs: &'a mut [*mut Mbuf]) -> impl Iterator<Item = Packet> + use<'a> {
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: a pool that lives as long as the process; the slice has room for so many.
        let count =
            unsafe { shim::brickway_dpdk_allocate(self.pool, mbufs.as_mut_ptr(), mbufs.len() as u16) };
        let chunk_bytes = METADATA_BYTES as u16 + self.data_room;
        mbufs[..usize::from(count)].iter().map(move |&mbuf| {
            #[allow(unsafe_code, reason = "a fresh mbuf becomes a packet")]
            // SAFETY: the mbuf is fresh, of one of our pools, so its private area and data area are one chunk of this
            // size.
            unsafe {
                let chunk = NonNull::new_unchecked(mbuf.cast::<u8>().add(MBUF_BYTES));
                frames().received(chunk, chunk_bytes, (METADATA_BYTES + HEADROOM_BYTES) as u16, 0)
            }
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut entries = entries();
        let entry = entries.iter_mut().find(|entry| entry.pool == self.pool);
        entry.expect("pools are never given back").reserved -= self.mbufs;
    }
}

pub(super) fn make_pool(
    number: usize,
    mbufs: u32,
    data_room: u16,
    socket: i32,
) -> Result<*mut Mempool, String> {
    eal::forget_log();
    // Processes that share memory by files must not make the same name.
    let name = CString::new(format!("brickway-{}-{number}", std::process::id())).expect("no NUL in it");
    let mut pool = ptr::null_mut();
    #[allow(unsafe_code, reason = "the shim")]
    // SAFETY: the name and the place for the result live for the call.
    let result = unsafe {
        let metadata = METADATA_BYTES as u16;
        shim::brickway_dpdk_make_pool(name.as_ptr(), mbufs, CACHE, metadata, data_room, socket, &raw mut pool)
    };
    if result < 0 { Err(eal::because(result)) } else { Ok(pool) }
}

/// How the other end of a line addresses us: frames to us are those whose first bytes, under the mask, are `own`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    mask: u64,
    own: u64,
}

/// The bytes of a destination address in a frame's first eight.
const ADDRESS: u64 = (1 << 48) - 1;
/// Its bit that says that it is a group's (IEEE 802, clause 8.2).
const GROUP: u64 = 1;

impl Line {
    /// A cable without other hosts: all that is not to a group is to us.
    pub(super) fn cable() -> Self {
        Self { mask: GROUP, own: 0 }
    }

    /// A network, in which we have this address.
    pub(super) fn network(mac: MacAddr) -> Self {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&mac.0);
        Self { mask: ADDRESS, own: u64::from_le_bytes(bytes) }
    }

    /// Whether a frame with these first eight bytes is to us.
    #[inline(always)]
    pub(super) fn is_to_us(self, first: u64) -> bool {
        first & self.mask == self.own
    }

    /// The packet type of a frame with these first eight bytes that is not to us.
    #[inline(always)]
    pub(super) fn other_type(first: u64) -> PacketType {
        match first & ADDRESS {
            ADDRESS => PacketType::Broadcast,
            address if address & GROUP != 0 => PacketType::Multicast,
            _ => PacketType::OtherHost,
        }
    }
}

/// What comes from a device or a ring: mbufs become packets.
pub(super) struct Intake {
    pub(super) mbufs: Box<[*mut Mbuf; MAX_BATCH]>,
    pub(super) frames: DriverFrames,
    pub(super) pool: *mut Mempool,
    pub(super) chunk_bytes: u16,
    pub(super) line: Line,
    wide: Option<Wide>,
}

#[allow(unsafe_code, reason = "pointers to mbufs are only there during a call")]
// SAFETY: between calls the array holds nothing that anybody reads; pools are for many threads.
unsafe impl Send for Intake {}

impl Intake {
    pub(super) fn new(reservation: &Reservation, line: Line) -> Self {
        let (frames, pool) = (frames(), reservation.pool);
        let chunk_bytes = METADATA_BYTES as u16 + reservation.data_room;
        let wide = Wide::new(frames, pool, chunk_bytes, Vectors::best());
        Self { mbufs: Box::new([ptr::null_mut(); MAX_BATCH]), frames, pool, chunk_bytes, line, wide }
    }

    /// Works as on a CPU with these.
    #[cfg(test)]
    pub(super) fn use_vectors(&mut self, vectors: Vectors) {
        self.wide = Wide::new(self.frames, self.pool, self.chunk_bytes, vectors);
    }

    /// Makes the first `count` mbufs packets at the end of `batch`, which has room for them.
    ///
    /// # Safety
    /// The caller owns these mbufs, and DPDK filled them.
    #[inline(always)]
    #[allow(unsafe_code, reason = "mbufs become packets")]
    pub(super) unsafe fn add_to(&mut self, count: usize, batch: &mut Batch, stats: &mut QueueStats) -> usize {
        let (mbufs, slots) = (&self.mbufs[..count], batch.free_slots());
        // SAFETY: the mbufs are the caller's, which gives them; a `Wide` is only there on a CPU that has what it takes.
        // As many slots are written as are counted.
        let (received, bytes) = unsafe {
            let taken = match &self.wide {
                Some(wide) => wide.take(self, mbufs, slots),
                None => self.take(mbufs, slots),
            };
            batch.add_written(taken.0);
            taken
        };
        stats.packets += received as u64;
        stats.bytes += bytes;
        if received < count {
            stats.add(Event::Segments, (count - received) as u64);
        }
        received
    }

    /// Writes packets to the slots, and says how many and how many bytes.
    ///
    /// # Safety
    /// The caller owns these mbufs.
    #[inline]
    #[allow(unsafe_code, reason = "mbufs become packets")]
    pub(super) unsafe fn take(&self, mbufs: &[*mut Mbuf], slots: &mut [MaybeUninit<Packet>]) -> (usize, u64) {
        let (mut count, mut bytes) = (0, 0);
        for &mbuf in mbufs {
            // SAFETY: DPDK gave us this mbuf.
            let fields = unsafe { &*mbuf };
            // Of the port's own pool with its own buffer: private area and buffer are one chunk of known size.
            let is_usual =
                fields.pool == self.pool && is_alone(fields.rearm_data) && fields.ol_flags & ELSEWHERE == 0;
            let packet = if is_usual {
                // SAFETY: looked at above.
                unsafe { self.packet(mbuf, self.chunk_bytes) }
            } else {
                // SAFETY: the mbuf is ours.
                match unsafe { self.unusual(mbuf) } {
                    Some(packet) => packet,
                    None => continue,
                }
            };
            bytes += packet.len() as u64;
            slots[count].write(packet);
            count += 1;
        }
        (count, bytes)
    }

    /// # Safety
    /// The mbuf is ours alone, in one segment, direct, its chunk `chunk_bytes` long.
    #[inline(always)]
    #[allow(unsafe_code, reason = "an mbuf becomes a packet")]
    unsafe fn packet(&self, mbuf: *mut Mbuf, chunk_bytes: u16) -> Packet {
        // SAFETY: the caller's; DPDK promises data_off + data_len <= buf_len. The first eight bytes can be read wherever
        // the data starts: a frame is at least that long, or stands in a room that is.
        unsafe {
            let place = (METADATA_BYTES as u16 + (*mbuf).rearm_data as u16, (*mbuf).data_len);
            let chunk = NonNull::new_unchecked(mbuf.cast::<u8>().add(MBUF_BYTES));
            let first = chunk.add(usize::from(place.0)).cast::<u64>().read_unaligned();
            let to_us = self.line.is_to_us(first);
            let packet_type = if to_us { PacketType::Host } else { Line::other_type(first) };
            self.frames.received_frame(chunk, chunk_bytes, place, packet_type)
        }
    }

    /// An mbuf of another port's pool as it is. One of a pool that is not ours (of a process on the other end of a ring) may say
    /// anything of its buffer, so it is copied, and so is one with an unusual buffer. `None`: it does not fit into one of ours.
    ///
    /// # Safety
    /// The mbuf is ours.
    #[cold]
    #[allow(unsafe_code, reason = "an mbuf becomes a packet")]
    pub(super) unsafe fn unusual(&self, mbuf: *mut Mbuf) -> Option<Packet> {
        // SAFETY: the caller's; where the data area follows the private area, both are a chunk of the size that the pool was made with.
        unsafe {
            let own_buffer = ptr::eq((*mbuf).buf_addr, data_area(mbuf)) && (*mbuf).ol_flags & ELSEWHERE == 0;
            let end = METADATA_BYTES + usize::from((*mbuf).rearm_data as u16) + usize::from((*mbuf).data_len);
            if let Some(chunk_bytes) = chunk_bytes_of((*mbuf).pool)
                && end <= usize::from(chunk_bytes)
                && own_buffer
                && is_alone((*mbuf).rearm_data)
            {
                return Some(self.packet(mbuf, chunk_bytes));
            }
            let copy = shim::brickway_dpdk_copy(mbuf, self.pool);
            shim::brickway_dpdk_free(mbuf);
            let copy = NonNull::new(copy)?.as_ptr();
            if ((*copy).rearm_data >> 32) as u16 != 1 {
                shim::brickway_dpdk_free(copy);
                return None;
            }
            Some(self.packet(copy, self.chunk_bytes))
        }
    }
}

/// What goes to a device or a ring: packets become mbufs.
pub(super) struct Outlet {
    mbufs: Box<[*mut Mbuf; MAX_BATCH]>,
    frames: DriverFrames,
    /// Longest frame that may go.
    longest: usize,
}

#[allow(unsafe_code, reason = "pointers to mbufs are only there during a call")]
// SAFETY: between calls the array holds nothing that anybody reads.
unsafe impl Send for Outlet {}

impl Outlet {
    pub(super) fn new(longest: usize) -> Self {
        Self { mbufs: Box::new([ptr::null_mut(); MAX_BATCH]), frames: frames(), longest }
    }

    /// Sends a batch by `transmit`, which takes mbufs and says how many it took. What it took leaves the batch; how many
    /// that are, with those that were dropped.
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        from: &Reservation,
        pool: &mut packet::Pool,
        batch: &mut Batch,
        stats: &mut QueueStats,
        transmit: impl FnOnce(*mut *mut Mbuf, usize) -> usize,
    ) -> usize {
        let mut dropped = 0;
        let mut bytes = match self.fill(batch) {
            Some(bytes) => bytes,
            None => {
                dropped = self.sort_out(from, pool, batch, stats);
                self.fill(batch).expect("all packets are in mbufs now, and short enough")
            }
        };
        if batch.is_empty() {
            return dropped;
        }
        let sent = transmit(self.mbufs.as_mut_ptr(), batch.len());
        forget_front(batch, sent);
        for packet in batch.iter() {
            bytes -= packet.len() as u64;
        }
        stats.packets += sent as u64;
        stats.bytes += bytes;
        sent + dropped
    }

    /// Writes the mbufs of all packets; their bytes. `None`: a packet is too long or lies elsewhere, see
    /// [`Outlet::sort_out`].
    #[inline(always)]
    fn fill(&mut self, batch: &Batch) -> Option<u64> {
        let mut bytes = 0;
        let longest = self.longest.min(usize::from(u16::MAX)) as u16;
        for (slot, packet) in self.mbufs.iter_mut().zip(batch.packets()) {
            let place = packet.place();
            let length = (place >> 16) as u16;
            if !self.frames.own(packet) || length > longest {
                return None;
            }
            let mbuf = mbuf_of(packet.chunk());
            #[allow(unsafe_code, reason = "a packet's mbuf")]
            // SAFETY: packets of our frames lie in mbufs, one packet in one; nobody else has it.
            let fields = unsafe { &mut *mbuf };
            // Most frames leave as long as they came and from the same place: nothing to write then. What receiving left
            // in `ol_flags` asks for no offload.
            let data_off = (place as u16).wrapping_sub(METADATA_BYTES as u16);
            if fields.rearm_data as u16 != data_off || fields.data_len != length {
                fields.rearm_data = fields.rearm_data & !0xffff | u64::from(data_off);
                fields.pkt_len = u32::from(length);
                fields.data_len = length;
            }
            *slot = mbuf;
            bytes += u64::from(length);
        }
        Some(bytes)
    }

    /// Copies packets that lie elsewhere into mbufs; drops and counts those that cannot go. How many were dropped.
    #[cold]
    fn sort_out(
        &mut self,
        from: &Reservation,
        pool: &mut packet::Pool,
        batch: &mut Batch,
        stats: &mut QueueStats,
    ) -> usize {
        let (longest, frames) = (self.longest, self.frames);
        let to_copy = |packet: &Packet| packet.len() <= longest && !frames.own(packet);
        let count = batch.iter().filter(|packet| to_copy(packet)).count();
        let mut copies = from.allocate(&mut self.mbufs[..count]);
        for packet in batch.iter_mut().filter(|packet| to_copy(packet)) {
            let Some(mut copy) = copies.next() else { break };
            let fits = copy.set_data(packet.data());
            debug_assert!(fits, "mbufs are made for the longest frame");
            pool.free_packet(std::mem::replace(packet, copy));
            stats.add(Event::Copied, 1);
        }
        let before = batch.len();
        batch.extract(
            |packet| packet.len() <= longest && frames.own(packet),
            |packet| {
                stats.add(if packet.len() > longest { Event::TooLong } else { Event::NoFrame }, 1);
                pool.free_packet(packet);
            },
        );
        before - batch.len()
    }
}

/// Takes the first `sent` packets out of a batch, whose mbufs the device has.
#[inline(always)]
fn forget_front(batch: &mut Batch, sent: usize) {
    if sent == batch.len() {
        for packet in batch.drain() {
            packet.into_raw();
        }
    } else {
        let mut index = 0;
        batch.extract(
            |_| {
                index += 1;
                index > sent
            },
            |packet| {
                packet.into_raw();
            },
        );
    }
}
