//! AF_XDP sockets: made, given the frames' memory and four rings, bound to a queue of an interface.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use packet::Memory;
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpOptionsFlags, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::af_xdp::chunks::Orphans;
use crate::af_xdp::lock;
use crate::af_xdp::ring::{Consumer, Producer};

/// Bytes of a chunk's start that the kernel never touches: the metadata.
pub(super) const UMEM_HEADROOM: usize = packet::frame::METADATA_BYTES;
/// Smallest chunk that the kernel takes (XDP_UMEM_MIN_CHUNK_SIZE).
pub(super) const LEAST_CHUNK_BYTES: usize = 2_048;
/// Largest one: a page. A longer packet is several descriptors (Linux 6.6).
pub(super) const MOST_CHUNK_BYTES: usize = 4_096;
/// In the address of a descriptor, the distance of the data from the chunk's start stands above this many bits.
const OFFSET_SHIFT: u32 = 48;
/// Entries of a completion ring that is never used, which a socket must have.
const LEAST_SLOTS: u32 = 64;

/// The address of a descriptor: a chunk (bytes from the memory's start) and where its data starts.
#[inline(always)]
pub(super) fn address(chunk: u64, data_offset: usize) -> u64 {
    chunk | (data_offset as u64) << OFFSET_SHIFT
}

/// The chunk of a descriptor's address.
#[inline(always)]
pub(super) fn chunk_of(address: u64) -> u64 {
    address & ((1 << OFFSET_SHIFT) - 1)
}

/// Where the data of a descriptor's address starts in its chunk.
#[inline(always)]
pub(super) fn data_offset_of(address: u64) -> usize {
    (address >> OFFSET_SHIFT) as usize
}

/// What a socket should be.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketOptions {
    /// Entries of each ring, a power of two.
    pub(super) slots: u32,
    pub(super) zerocopy: bool,
    /// Packets that one busy poll may take; `None`: the kernel polls the card itself.
    pub(super) busy_poll: Option<u16>,
    /// Whether this socket sends.
    pub(super) transmit: bool,
}

/// A bound socket.
#[derive(Debug)]
pub(super) struct Socket {
    // Closed before the orphans go home.
    pub(super) fd: OwnedFd,
    orphans: Mutex<Vec<Arc<Orphans>>>,
    pub(super) zerocopy: bool,
    // The kernel writes into it as long as the socket is there.
    _memory: Memory,
}

/// A bound socket with its rings.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) socket: Arc<Socket>,
    pub(super) fill: Producer<u64>,
    pub(super) receive: Consumer<XdpDesc>,
    /// Of a socket that sends.
    pub(super) transmit: Option<(Producer<XdpDesc>, Consumer<u64>)>,
}

/// A step that failed, and why.
pub(super) type Failed = (&'static str, io::Error);

fn failed<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> Failed {
    move |error| (action, error.into())
}

impl Socket {
    /// Opens a socket on queue `queue` of interface `index`, with `chunk_bytes` long chunks anywhere in `memory`
    /// (unaligned chunks: Linux 5.4). Of longer chunks than the kernel takes it fills the beginning, and the rest of a packet
    /// comes in further chunks (XDP_USE_SG: Linux 6.6).
    pub(super) fn open(
        memory: &Memory,
        chunk_bytes: usize,
        (index, queue): (u32, u32),
        options: &SocketOptions,
    ) -> Result<Opened, Failed> {
        let fd = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .map_err(failed("opening an AF_XDP socket"))?;
        let umem = XdpUmemReg {
            addr: memory.start().as_ptr() as u64,
            len: memory.bytes() as u64,
            chunk_size: chunk_bytes.min(MOST_CHUNK_BYTES) as u32,
            headroom: UMEM_HEADROOM as u32,
            flags: XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&fd, umem).map_err(failed("registering the frames' memory"))?;
        let slots = options.slots;
        let completion_slots = if options.transmit { slots } else { LEAST_SLOTS };
        let rings = failed("making the rings");
        sockopt::set_xdp_umem_fill_ring_size(&fd, slots).map_err(&rings)?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, completion_slots).map_err(&rings)?;
        sockopt::set_xdp_rx_ring_size(&fd, slots).map_err(&rings)?;
        if options.transmit {
            sockopt::set_xdp_tx_ring_size(&fd, slots).map_err(&rings)?;
        }
        let offsets = sockopt::xdp_mmap_offsets(&fd).map_err(&rings)?;
        let rings = failed("mapping the rings");
        let fill = Producer::map(&fd, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, slots).map_err(&rings)?;
        let receive = Consumer::map(&fd, XDP_PGOFF_RX_RING, &offsets.rx, slots).map_err(&rings)?;
        let transmit = if options.transmit {
            let transmit = Producer::map(&fd, XDP_PGOFF_TX_RING, &offsets.tx, slots).map_err(&rings)?;
            let page = XDP_UMEM_PGOFF_COMPLETION_RING;
            let completion = Consumer::map(&fd, page, &offsets.cr, slots).map_err(&rings)?;
            Some((transmit, completion))
        } else {
            None
        };
        if let Some(budget) = options.busy_poll {
            set_busy_poll(&fd, budget).map_err(failed("setting SO_PREFER_BUSY_POLL"))?;
        }
        let copy =
            if options.zerocopy { SocketAddrXdpFlags::XDP_ZEROCOPY } else { SocketAddrXdpFlags::XDP_COPY };
        let mut flags = copy | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        flags.set(SocketAddrXdpFlags::XDP_USE_SG, chunk_bytes > MOST_CHUNK_BYTES);
        let address = SocketAddrXdp::new(flags, index, queue);
        rustix::net::bind(&fd, &address).map_err(failed("binding to the queue"))?;
        if options.transmit {
            // More packets a system call in copy mode, where the kernel has 32 otherwise. Linux 6.17; without it
            // there are more calls.
            let _ = set(&fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, slots.min(MOST_PER_CALL));
        }
        let zerocopy = sockopt::xdp_options(&fd)
            .is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY));
        let socket = Arc::new(Self { fd, orphans: Mutex::default(), zerocopy, _memory: memory.clone() });
        Ok(Opened { socket, fill, receive, transmit })
    }

    /// Keeps chunks that the kernel may still use from going home before the socket is closed.
    pub(super) fn keep(&self, orphans: &Arc<Orphans>) {
        lock(&self.orphans).push(Arc::clone(orphans));
    }

    /// Has the kernel go on with the fill ring, and busy poll where that was asked for.
    pub(super) fn wake_receive(&self) {
        // Says nothing that the rings do not say; what is wrong with the link shows in `take_error`.
        let _ = rustix::net::recv(&self.fd, &mut [0_u8; 0], RecvFlags::DONTWAIT);
    }

    /// Has the kernel send what is in the transmit ring.
    pub(super) fn wake_transmit(&self) -> Result<(), Errno> {
        rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT).map(drop)
    }

    /// Whether the interface vanished under the socket since the last question.
    pub(super) fn take_error(&self) -> bool {
        !matches!(sockopt::socket_error(&self.fd), Ok(Ok(())))
    }

    /// The kernel's counters.
    pub(super) fn statistics(&self) -> Option<XdpStatistics> {
        sockopt::xdp_statistics(&self.fd).ok()
    }
}

const SOL_XDP: libc::c_int = libc::SOL_XDP;
/// include/uapi/linux/if_xdp.h, Linux 6.17.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// A batch at most.
const MOST_PER_CALL: u32 = packet::MAX_BATCH as u32;

// include/uapi/asm-generic/socket.h: Linux 3.11 and, for the other two, 5.11.
const SO_BUSY_POLL: libc::c_int = 46;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// Microseconds that a blocked call may poll; ours never block, any number turns polling on.
const BUSY_POLL_US: u32 = 20;

fn set_busy_poll(socket: &OwnedFd, budget: u16) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)?;
    set(socket, libc::SOL_SOCKET, SO_BUSY_POLL, BUSY_POLL_US)?;
    set(socket, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, u32::from(budget))
}

fn set(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: u32) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    #[allow(unsafe_code, reason = "options that rustix does not have")]
    // SAFETY: the value lives for the call, and the length is its own.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
