//! Frames of a driver that has an allocator of its own: packets without a pool of ours.

use std::ptr::NonNull;

use crate::frame::{FreshLine, Packet, PacketType};
use crate::pool::Shared;

/// Frames in memory of a driver that has its own allocator (DPDK's mbufs): packets without a [`Pool`] of ours.
///
/// A packet that is dropped goes back to the driver by the function given here, one at a time; drivers take back
/// what they send themselves, in bulk.
#[derive(Clone, Copy, Debug)]
pub struct DriverFrames {
    shared: NonNull<Shared>,
}

#[allow(unsafe_code, reason = "a pointer to something that never goes away")]
// SAFETY: `Shared` of a driver is made once, never changed, never freed.
unsafe impl Send for DriverFrames {}
#[allow(unsafe_code, reason = "a pointer to something that never goes away")]
// SAFETY: as above.
unsafe impl Sync for DriverFrames {}

#[allow(unsafe_code, reason = "a driver's chunk becomes a packet and back")]
impl DriverFrames {
    /// Frames that `free` takes back; it gets the start of a chunk. Lives as long as the program: packets may be
    /// anywhere.
    ///
    /// # Safety
    /// `free` must be safe to call from any thread, with any chunk made a packet by [`DriverFrames::received`].
    pub unsafe fn new(free: unsafe fn(NonNull<u8>)) -> Self {
        Self { shared: Shared::of_driver(free) }
    }

    /// A packet in a chunk of the driver: `length` bytes of data from `data_offset` bytes behind the chunk's start.
    /// Metadata are written anew, all annotations zero.
    ///
    /// # Safety
    /// `chunk` must be `chunk_bytes` of initialised memory, aligned to 64 bytes, that nobody else uses until the
    /// packet is gone; `METADATA_BYTES <= data_offset` and `data_offset + length <= chunk_bytes`.
    #[inline(always)]
    pub unsafe fn received(
        self,
        chunk: NonNull<u8>,
        chunk_bytes: u16,
        data_offset: u16,
        length: u16,
    ) -> Packet {
        // SAFETY: the caller hands us the chunk.
        unsafe { Packet::initialise_with(chunk.cast(), chunk_bytes, self.shared, data_offset, length) }
    }

    /// As [`DriverFrames::received`], with the link header at the start of the data and this type.
    ///
    /// # Safety
    /// As [`DriverFrames::received`].
    #[inline(always)]
    pub unsafe fn received_frame(
        self,
        chunk: NonNull<u8>,
        chunk_bytes: u16,
        place: (u16, u16),
        packet_type: PacketType,
    ) -> Packet {
        let line = self.fresh_line(chunk_bytes, place, packet_type);
        // SAFETY: the caller hands us the chunk.
        unsafe { Packet::initialise_line(chunk.cast(), line) }
    }

    /// The first line of a chunk's metadata as [`DriverFrames::received_frame`] writes it (`place`: where the data starts
    /// and how long it is), for drivers that write it themselves. A fresh packet has zeros behind it, up to
    /// [`FRESH_BYTES`](crate::frame::FRESH_BYTES).
    #[inline(always)]
    pub fn fresh_line(self, chunk_bytes: u16, place: (u16, u16), packet_type: PacketType) -> FreshLine {
        Packet::fresh_line(chunk_bytes, self.shared, place, packet_type)
    }

    /// The packet of a chunk whose metadata the driver wrote itself.
    ///
    /// # Safety
    /// As [`DriverFrames::received_frame`]; the chunk starts with [`DriverFrames::fresh_line`] for it and zeros up to
    /// [`FRESH_BYTES`](crate::frame::FRESH_BYTES).
    #[inline(always)]
    pub unsafe fn written(self, chunk: NonNull<u8>) -> Packet {
        // SAFETY: the metadata are as `received_frame` would have written them.
        unsafe { Packet::from_raw(chunk) }
    }

    /// Whether the packet lies in one of the driver's chunks.
    #[inline(always)]
    pub fn own(self, packet: &Packet) -> bool {
        packet.owner() == self.shared
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::batch::Batch;
    use crate::pool::{Pool, PoolOptions};

    #[test]
    #[allow(unsafe_code, reason = "as a driver would")]
    fn frames_of_a_driver_go_back_to_it() {
        use std::sync::{LazyLock, atomic::AtomicUsize};
        static FREED: AtomicUsize = AtomicUsize::new(0);
        #[repr(align(64))]
        struct Chunk([u8; 1024]);
        fn free(chunk: NonNull<u8>) {
            FREED.fetch_add(chunk.as_ptr() as usize, Ordering::Relaxed);
        }
        // SAFETY: the function touches no memory.
        static FRAMES: LazyLock<DriverFrames> = LazyLock::new(|| unsafe { DriverFrames::new(free) });
        let frames = *FRAMES;
        let mut chunk = Chunk([7; 1024]);
        let start = NonNull::from(&mut chunk.0).cast::<u8>();
        let mut pool = Pool::new(PoolOptions { frames: 1, data_bytes: 512 }).unwrap();
        // SAFETY: the chunk lives to the end of the test, and its two packets follow each other.
        let packet = unsafe { frames.received(start, 1024, 256, 64) };
        assert!(frames.own(&packet) && packet.data() == [7; 64]);
        let mut batch = Batch::new();
        batch.push(packet);
        pool.free(&mut batch);
        assert_eq!(FREED.load(Ordering::Relaxed), start.as_ptr() as usize);
        // SAFETY: as above.
        let mut packet = unsafe { frames.received(start, 1024, 256, 64) };
        packet.annotations_mut().bytes_mut().fill(9);
        packet.set_timestamp_ns(9);
        packet.set_input_port(9);
        packet.set_network_and_transport_header(14, 20);
        drop(packet);
        // SAFETY: as above.
        let packet = unsafe { frames.received_frame(start, 1024, (200, 60), PacketType::Multicast) };
        assert!(frames.own(&packet) && packet.packet_type() == PacketType::Multicast);
        assert_eq!((packet.data_offset(), packet.len(), packet.tailroom()), (200, 60, 764));
        assert_eq!((packet.link_offset(), packet.network(), packet.transport()), (Some(0), None, None));
        assert_eq!((packet.annotations().bytes(), packet.timestamp_ns()), (&[0; 48], 0));
        assert_eq!(packet.input_port(), 0);
        drop(packet);
        assert_eq!(FREED.load(Ordering::Relaxed), 3 * start.as_ptr() as usize);
        assert_eq!(pool.stats().free, 1);
    }
}
