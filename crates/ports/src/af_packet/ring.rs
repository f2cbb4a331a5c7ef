//! A memory-mapped ring of TPACKET_V2 slots, shared with the kernel.
//!
//! **Who may touch a slot.** Each slot starts with a status word. Of a receive ring, a slot is ours from the moment the
//! word has TP_STATUS_USER until we write TP_STATUS_KERNEL; of a transmit ring, it is ours while the word is
//! TP_STATUS_AVAILABLE, until we write TP_STATUS_SEND_REQUEST. The word is read with acquire and written with release
//! ordering, so all bytes of a slot are seen as the other side left them. The kernel never touches a slot that is
//! ours; that, and the bounds checks here, is what makes the references below sound. That a slot is ours is for the caller to
//! know: the functions that need it are unsafe. What lengths and offsets the
//! kernel wrote is not trusted: every range is checked against the slot.
//!
//! Slots are a power of two in size and fill their blocks, so slot `n` starts at `n * slot_bytes`.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::af_packet::socket;

/// Where the data of a packet to send starts in its slot: behind the header. (The kernel counts a link address to the
/// header's length, which belongs to received packets only.)
const SEND_OFFSET: usize = size_of::<libc::tpacket2_hdr>();
/// Bytes before the payload of a received packet: the header, the link address, room for the link header and the
/// virtio header.
const RECEIVE_OVERHEAD: usize = 128;
/// The kernel allocates rings in blocks of this size (or of one slot, when that is larger).
const BLOCK_BYTES: usize = 1 << 16;
/// A link header with two VLAN tags.
const LINK_BYTES: usize = 22;

/// Which way packets go through a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingKind {
    Receive,
    Transmit,
}

/// A ring of slots; see the module's essay.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    slot_bytes: usize,
    slots: usize,
}

#[allow(unsafe_code, reason = "the ring owns its mapping")]
// SAFETY: the mapping belongs to this value alone, and memory may be used from any thread.
unsafe impl Send for Ring {}

impl Ring {
    /// The size of a slot for packets of an interface with this MTU.
    pub(super) fn slot_bytes(mtu: usize) -> usize {
        (mtu + LINK_BYTES + RECEIVE_OVERHEAD).next_power_of_two().max(2_048)
    }

    /// Makes a ring of at least `slots` slots, for packets of an interface with this MTU, on a socket set to TPACKET_V2.
    pub(super) fn new(socket: &OwnedFd, kind: RingKind, slots: usize, mtu: usize) -> io::Result<Self> {
        let slot_bytes = Self::slot_bytes(mtu);
        let block_bytes = slot_bytes.max(BLOCK_BYTES);
        let slots = slots.next_multiple_of(block_bytes / slot_bytes);
        let request = libc::tpacket_req {
            tp_block_size: block_bytes as u32,
            tp_block_nr: (slots * slot_bytes / block_bytes) as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        let option = match kind {
            RingKind::Receive => libc::PACKET_RX_RING,
            RingKind::Transmit => libc::PACKET_TX_RING,
        };
        socket::set(socket, option, &request)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        #[allow(unsafe_code, reason = "mapping the ring")]
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let memory = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                slots * slot_bytes,
                protection,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket,
                0,
            )
        }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, slot_bytes, slots })
    }

    /// The longest frame that a slot of a receive ring holds, in bytes.
    pub(super) fn holds(&self) -> usize {
        self.slot_bytes - RECEIVE_OVERHEAD
    }

    /// Whether a slot of a transmit ring holds a frame of so many bytes.
    #[inline(always)]
    pub(super) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.slot_bytes - SEND_OFFSET
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// The slot after `slot`.
    #[inline(always)]
    pub(super) fn next(&self, slot: usize) -> usize {
        if slot + 1 < self.slots { slot + 1 } else { 0 }
    }

    /// The slot before `slot`.
    pub(super) fn previous(&self, slot: usize) -> usize {
        if slot > 0 { slot - 1 } else { self.slots - 1 }
    }

    #[inline(always)]
    fn start(&self, slot: usize) -> NonNull<u8> {
        assert!(slot < self.slots, "slot numbers come from `next`");
        #[allow(unsafe_code, reason = "pointer to a slot")]
        // SAFETY: the mapping is slots * slot_bytes long, and the slot was checked.
        unsafe {
            self.memory.add(slot * self.slot_bytes)
        }
    }

    #[inline(always)]
    fn status_word(&self, slot: usize) -> &AtomicU32 {
        #[allow(unsafe_code, reason = "the word is shared with the kernel")]
        // SAFETY: the header's first member (asserted below), 16-byte aligned, and only ever used atomically.
        unsafe {
            self.start(slot).cast::<AtomicU32>().as_ref()
        }
    }

    /// Who has the slot, and what the kernel says about its packet.
    #[inline(always)]
    pub(super) fn status(&self, slot: usize) -> u32 {
        self.status_word(slot).load(Ordering::Acquire)
    }

    /// Hands the slot over.
    #[inline(always)]
    pub(super) fn set_status(&mut self, slot: usize, status: u32) {
        self.status_word(slot).store(status, Ordering::Release);
    }

    /// The packet in a slot of a receive ring.
    ///
    /// # Safety
    /// The slot is ours: its status has TP_STATUS_USER, and it is not handed over while the result is used.
    #[inline(always)]
    #[allow(unsafe_code, reason = "the kernel must stay away from the slot")]
    pub(super) unsafe fn received(&self, slot: usize) -> Received<'_> {
        Received { ring: self, slot }
    }

    /// Writes a packet and its length into a slot of a transmit ring; false when it does not fit.
    ///
    /// # Safety
    /// The slot is ours: its status is TP_STATUS_AVAILABLE.
    #[inline(always)]
    #[allow(unsafe_code, reason = "the kernel must stay away from the slot")]
    pub(super) unsafe fn write_packet(&mut self, slot: usize, data: &[u8]) -> bool {
        if !self.fits(data.len()) {
            return false;
        }
        let start = self.start(slot);
        // SAFETY: header and data lie in the slot (the length was looked at), which is ours (the caller's); the status word,
        // which the kernel may look at, is not touched.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), start.add(SEND_OFFSET).as_ptr(), data.len());
            let header = start.cast::<libc::tpacket2_hdr>().as_ptr();
            (&raw mut (*header).tp_len).write(data.len() as u32);
        }
        true
    }
}

/// A received packet's slot while it is ours; see [`Ring::received`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'r> {
    ring: &'r Ring,
    slot: usize,
}

impl<'r> Received<'r> {
    /// What the kernel says of the packet.
    #[inline(always)]
    pub(super) fn header(self) -> libc::tpacket2_hdr {
        #[allow(unsafe_code, reason = "reading what the kernel wrote")]
        // SAFETY: a slot is larger than a header, aligned for it, ours, and any bits are numbers. The copy of the status
        // word is not used: the atomic one is.
        unsafe {
            self.ring.start(self.slot).cast::<libc::tpacket2_hdr>().read()
        }
    }

    /// Bytes of the slot; `None` when they are not all inside it.
    #[inline(always)]
    pub(super) fn bytes(self, offset: usize, length: usize) -> Option<&'r [u8]> {
        if offset.checked_add(length)? > self.ring.slot_bytes {
            return None;
        }
        #[allow(unsafe_code, reason = "a packet in a slot")]
        // SAFETY: inside the slot (checked), initialised (the mapping is zeroed), and the slot is ours.
        Some(unsafe { std::slice::from_raw_parts(self.ring.start(self.slot).add(offset).as_ptr(), length) })
    }
}

const _: () = assert!(std::mem::offset_of!(libc::tpacket2_hdr, tp_status) == 0);

impl Drop for Ring {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "unmapping the ring")]
        // SAFETY: exactly the mapping of `new`; references into it borrow the ring, which ends here.
        let result = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.slots * self.slot_bytes) };
        debug_assert!(result.is_ok(), "the mapping was there");
    }
}
