//! The receive side of a packet socket.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packet::division::{divide, divide_frame};
use packet::pool::{LARGE_BYTES, LARGE_HEADROOM};
use packet::{Batch, Packet, PacketType, Pool};

use crate::af_packet::ring::{Received, Ring};
use crate::af_packet::screen::Screen;
use crate::af_packet::{Builder, Claim, ETHERNET_BYTES, LOOK_EVERY, Plan, socket};
use crate::merged::{self, MOST_BYTES, MOST_WHOLE, TAG_BYTES, VIRTIO_BYTES, Virtio};
use crate::{Event, PortError, QueueStats, RxQueue};

/// Where the kernel writes the link address: behind the header, aligned to 16.
pub(super) const ADDRESS_OFFSET: usize = size_of::<libc::tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
/// Bytes of both link addresses, behind which a VLAN tag stands.
const ADDRESSES: usize = 12;
/// TPID of a customer VLAN tag (IEEE 802.1Q), for kernels that do not say.
const TPID_CUSTOMER: u16 = 0x8100;

/// How often Linux is kept from merging where frames say that it does.
pub(super) const KEPT_APART_EVERY: Duration = Duration::from_secs(1);

/// A receive queue.
pub(super) struct AfPacketRx {
    // The screen first: from then on the kernel forwards, and what still comes here nobody reads.
    screen: Option<Arc<Screen>>,
    // The ring before the socket: unmapped first.
    ring: Ring,
    socket: OwnedFd,
    claim: Arc<Claim>,
    /// The slot that the kernel fills next.
    head: usize,
    /// Bytes that a frame of the pool holds.
    frame_bytes: usize,
    /// Merged frames from this length on are not taken for one packet.
    whole_from: usize,
    /// Pieces of a merged frame that were not taken yet, and room to divide one.
    pending: VecDeque<Packet>,
    scratch: Vec<u8>,
    /// Number of the interface that the socket is on.
    index: i32,
    plan: Plan,
    next_look: Instant,
    gone: bool,
    /// Whether the interface was away, so that the socket is on none: it may come back under the same number from another
    /// namespace.
    lost: bool,
    /// How often the screen was off an interface that was away.
    times_off: u64,
    warned: AtomicBool,
    /// When Linux was last kept from merging.
    kept_apart: Instant,
    stats: QueueStats,
    /// What the kernel counted and forgot when asked, and links lost, noticed in `wait_fd`.
    kernel_drops: Cell<u64>,
    links_lost: Cell<u64>,
}

impl AfPacketRx {
    /// A queue; with a screen it gets only what is ours. On an interface that is down it begins as on one that is gone: no
    /// group of sockets has members there (before Linux 6.14).
    pub(super) fn new(
        claim: Arc<Claim>,
        plan: Plan,
        screen: Option<Arc<Screen>>,
        is_up: bool,
    ) -> Result<Self, PortError> {
        let first = Plan { fanout: plan.fanout && is_up, ..plan };
        let (socket, ring, index, mtu) = Self::open(&claim, first, screen.as_deref())?;
        Ok(Self {
            screen,
            ring,
            socket,
            head: 0,
            whole_from: whole_from(&claim, mtu),
            claim,
            pending: VecDeque::new(),
            scratch: Vec::new(),
            frame_bytes: usize::MAX,
            index,
            plan,
            next_look: Instant::now(),
            gone: !is_up,
            lost: !is_up,
            times_off: 0,
            warned: AtomicBool::new(false),
            kept_apart: Instant::now(),
            stats: QueueStats::default(),
            kernel_drops: Cell::new(0),
            links_lost: Cell::new(0),
        })
    }

    fn open(
        claim: &Claim,
        plan: Plan,
        screen: Option<&Screen>,
    ) -> Result<(OwnedFd, Ring, i32, usize), PortError> {
        let builder = Builder::new(claim, plan.slots)?;
        let (socket, ring) = builder.receiver(screen)?;
        if plan.fanout {
            builder.join_fanout(&socket, claim)?;
        }
        Ok((socket, ring, builder.index, builder.mtu))
    }

    /// Nothing came: is the interface another one now?
    #[cold]
    fn look(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        self.claim.look_at_link();
        let index = self.claim.interface.index();
        let is_lost = index.is_err() || !socket::is_on(&self.socket, self.index);
        if is_lost && !self.lost && let Some(screen) = &self.screen {
            // It may be in another namespace, with our program still on it, or be back from there without it.
            screen.detach(&mut self.times_off);
        }
        self.lost |= is_lost;
        self.gone = self.lost || index.as_ref().is_ok_and(|index| *index != self.index);
        let old = (!self.lost).then_some(self.index);
        if !self.gone || !self.claim.is_anew(old) {
            return;
        }
        match self.reopen() {
            Ok((socket, ring, index, mtu)) => {
                self.kernel_drops.set(self.all_kernel_drops());
                (self.ring, self.socket, self.index) = (ring, socket, index);
                self.whole_from = whole_from(&self.claim, mtu);
                (self.head, self.gone, self.lost) = (0, false, false);
                if let Err(error) = self.tell_longest() {
                    self.claim.tell(error.to_string());
                }
                if self.plan.fanout || self.screen.is_some() {
                    // What came before the socket was in the group the others have too, and what came before the
                    // screen the kernel.
                    self.discard_all();
                }
                self.claim.tell_back();
            }
            Err(error) => self.claim.tell(error.to_string()),
        }
    }

    /// A socket on the interface that came back.
    fn reopen(&self) -> Result<(OwnedFd, Ring, i32, usize), PortError> {
        let opened = Self::open(&self.claim, self.plan, self.screen.as_deref())?;
        self.claim.keep_promiscuous()?;
        self.claim.stay_from_linux()?;
        match &self.screen {
            Some(screen) => screen.attach(opened.2)?,
            None if self.claim.takes_merged => {}
            None => self.claim.keep_apart(),
        }
        Ok(opened)
    }

    /// Leaves to the kernel what is longer than a slot, or than a frame of the pool.
    fn tell_longest(&self) -> Result<(), PortError> {
        let Some(screen) = &self.screen else { return Ok(()) };
        let told = screen.hold(self.ring.holds().min(self.frame_bytes).saturating_sub(TAG_BYTES));
        told.map_err(|error| PortError::system(&self.claim.name, "setting the longest frame", error))
    }

    /// What the kernel dropped for want of a free slot, since the queue was opened.
    fn all_kernel_drops(&self) -> u64 {
        if let Ok(new) = socket::statistics(&self.socket) {
            self.kernel_drops.set(self.kernel_drops.get() + u64::from(new.tp_drops));
        }
        self.kernel_drops.get()
    }

    /// Gives all slots back unread.
    pub(super) fn discard_all(&mut self) {
        for _ in 0..self.ring.slots() {
            let status = self.ring.status(self.head);
            if status & libc::TP_STATUS_USER == 0 {
                break;
            }
            self.discard_aside(status);
            self.release();
        }
    }

    /// Lets go of a frame that the kernel has kept whole beside its slot, if it has.
    fn discard_aside(&self, status: u32) {
        if status & libc::TP_STATUS_COPY != 0 {
            merged::discard(&self.socket);
        }
    }

    #[inline(always)]
    fn release(&mut self) {
        self.ring.set_status(self.head, libc::TP_STATUS_KERNEL);
        self.head = self.ring.next(self.head);
    }

    /// Takes the merged frame of a slot that is ours, or that the kernel has kept beside it. Returns it whole. If no frame holds it, or it
    /// has more than [`MOST_WHOLE`] pieces, the pieces are put into `pending`.
    #[inline(never)]
    fn take_merged(&mut self, pool: &mut Pool, status: u32) -> Result<Option<Packet>, Event> {
        let Self { socket, ring, head, scratch, pending, frame_bytes, stats, .. } = self;
        #[allow(unsafe_code, reason = "reading a slot of the ring")]
        // SAFETY: the slot is ours: its status says so. The caller releases it.
        let slot = unsafe { ring.received(*head) };
        let header = slot.header();
        let length = header.tp_len as usize;
        let source = MergedFrame { socket, slot, status, length };
        let whole = if length + TAG_BYTES <= *frame_bytes && status & libc::TP_STATUS_COPY == 0 {
            pool.allocate().filter(|packet| packet.tailroom() >= length + TAG_BYTES)
        } else if length + TAG_BYTES <= LARGE_BYTES {
            pool.allocate_large()
        } else {
            None
        };
        let Some(mut packet) = whole else {
            scratch.resize(MOST_BYTES, 0);
            let (frame, virtio, tag_bytes) = source.read_into(scratch)?;
            let (headers, piece_bytes) = virtio.headers(frame, tag_bytes)?;
            let mut divided = 0;
            let rest = divide_frame(pool, frame, &headers, piece_bytes.into(), |mut piece| {
                classify(slot, &header, &mut piece);
                divided += 1;
                pending.push_back(piece);
            });
            stats.add(Event::NoFrame, rest.map_err(|_| Event::TooLong)?);
            return Ok(None);
        };
        let filled = source.fill(&mut packet).and_then(|()| {
            if packet.piece_len() > *frame_bytes { Err(Event::TooLong) } else { Ok(()) }
        });
        if let Err(reason) = filled {
            pool.free_packet(packet);
            return Err(reason);
        }
        classify(slot, &header, &mut packet);
        if packet.pieces() <= MOST_WHOLE {
            return Ok(Some(packet));
        }
        let rest = divide(pool, &packet, |piece| pending.push_back(piece));
        pool.free_packet(packet);
        stats.add(Event::NoFrame, rest.map_err(|_| Event::TooLong)?);
        Ok(None)
    }

    /// Takes pieces of a merged frame that wait, up to `max`.
    fn take_pending(&mut self, batch: &mut Batch, max: usize) {
        let count = max.min(batch.room()).min(self.pending.len());
        for piece in self.pending.drain(..count) {
            self.stats.packet(piece.len());
            batch.push(piece);
        }
    }

    #[cold]
    fn offload_frame(&mut self) {
        self.stats.add(Event::Offload, 1);
        // Somebody may have Linux merge packets again.
        if self.screen.is_none() && self.kept_apart.elapsed() >= KEPT_APART_EVERY {
            self.claim.keep_apart();
            self.kept_apart = Instant::now();
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            let (name, interface) = (&self.claim.name, self.claim.interface.kernel_name());
            (self.claim.warn)(&format!(
                "port {name}: frames longer than the MTU come in, made by a segmentation offload; they are dropped. \
                 Turn it off with `ethtool -K {interface} tso off gso off gro off`, for a veth at both of its ends"
            ));
        }
    }

    #[cold]
    fn link_lost(&self) {
        self.links_lost.set(self.links_lost.get() + 1);
    }
}

impl RxQueue for AfPacketRx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        self.frame_bytes = pool.data_bytes();
        self.tell_longest()
    }

    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let first = batch.len();
        let wanted = max.min(batch.room());
        if !self.pending.is_empty() {
            self.take_pending(batch, wanted);
            return batch.len() - first;
        }
        if self.gone {
            self.look();
            return 0;
        }
        let mut spare: Option<Packet> = None;
        while batch.len() - first < wanted {
            let status = self.ring.status(self.head);
            if status & libc::TP_STATUS_USER == 0 {
                break;
            }
            // Without a frame the packet stays in the ring; when that is full the kernel drops and counts.
            let Some(mut packet) = spare.take().or_else(|| pool.allocate()) else { break };
            #[allow(unsafe_code, reason = "reading a slot of the ring")]
            // SAFETY: the slot is ours: its status says so. It is released below.
            let received = unsafe { self.ring.received(self.head) };
            match fill(received, status, self.whole_from, &mut packet) {
                Err(Event::Offload) if self.claim.takes_merged => {
                    spare = Some(packet);
                    match self.take_merged(pool, status) {
                        Ok(Some(packet)) => {
                            self.stats.packets += packet.pieces();
                            self.stats.bytes += packet.bytes_in_pieces();
                            batch.push(packet);
                        }
                        Ok(None) => {
                            self.take_pending(batch, wanted - (batch.len() - first));
                            self.release();
                            // Nothing overtakes them.
                            break;
                        }
                        Err(Event::Offload) => self.offload_frame(),
                        Err(reason) => self.stats.add(reason, 1),
                    }
                }
                Ok(()) => {
                    self.stats.packet(packet.len());
                    batch.push(packet);
                }
                Err(reason) => {
                    spare = Some(packet);
                    self.discard_aside(status);
                    if reason == Event::Offload { self.offload_frame() } else { self.stats.add(reason, 1) }
                }
            }
            self.release();
        }
        if let Some(packet) = spare {
            pool.free_packet(packet);
        }
        if batch.len() == first {
            self.look();
        }
        batch.len() - first
    }

    fn due_in_ns(&self) -> Option<u64> {
        // The kernel does not tell when an interface comes back.
        self.gone.then(|| self.next_look.saturating_duration_since(Instant::now()).as_nanos() as u64)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // A link that went down leaves an error, with which every wait would end at once. Asking takes it away.
        if let Ok(Err(_)) = rustix::net::sockopt::socket_error(&self.socket) {
            self.link_lost();
        }
        Some(self.socket.as_fd())
    }

    fn stats(&self) -> QueueStats {
        let mut stats = self.stats;
        stats.add(Event::RingFull, self.all_kernel_drops());
        stats.add(Event::LinkLost, self.links_lost.get());
        if let Some(screen) = self.screen.as_ref().filter(|_| self.plan.number == 0) {
            // The filters count for the interface.
            screen.steered().add_to(&mut stats);
        }
        stats
    }
}

/// From which length on a merged frame is none that an interface of this MTU could have brought as one packet; where they are taken as
/// what they are, from 0 on.
fn whole_from(claim: &Claim, mtu: usize) -> usize {
    if claim.takes_merged { 0 } else { mtu + ETHERNET_BYTES + 1 }
}

/// Copies the packet of a slot into a frame and completes it: VLAN tag, checksum, metadata.
#[inline]
fn fill(slot: Received<'_>, status: u32, whole_from: usize, packet: &mut Packet) -> Result<(), Event> {
    let header = slot.header();
    let (start, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
    if length < ETHERNET_BYTES {
        return Err(Event::TooShort);
    }
    let virtio_at = start.checked_sub(VIRTIO_BYTES).ok_or(Event::TooShort)?;
    let virtio = slot.bytes(virtio_at, VIRTIO_BYTES).ok_or(Event::TooLong)?;
    let virtio = Virtio::of(virtio).ok_or(Event::TooLong)?;
    if virtio.is_merged() && header.tp_len as usize >= whole_from {
        return Err(Event::Offload);
    }
    if length < header.tp_len as usize {
        return Err(Event::TooLong);
    }
    let data = slot.bytes(start, length).ok_or(Event::TooLong)?;
    let tag_bytes = if status & libc::TP_STATUS_VLAN_VALID != 0 { TAG_BYTES } else { 0 };
    let copy = packet.reset(length + tag_bytes).ok_or(Event::TooLong)?;
    if tag_bytes == 0 {
        copy.copy_from_slice(data);
    } else {
        insert_tag(copy, data, status, header.tp_vlan_tpid, header.tp_vlan_tci);
    }
    if status & libc::TP_STATUS_CSUMNOTREADY != 0 {
        let number = |at: usize| usize::from(virtio.number(at));
        crate::unfinished::complete(copy, number(6) + tag_bytes, number(8));
    }
    classify(slot, &header, packet);
    Ok(())
}

/// A merged frame that came: of a slot, or kept aside by the kernel.
#[derive(Clone, Copy)]
struct MergedFrame<'r> {
    socket: &'r OwnedFd,
    slot: Received<'r>,
    status: u32,
    length: usize,
}

impl MergedFrame<'_> {
    /// Its bytes, of which the tag is not one.
    fn read(&self, data: &mut [u8]) -> Result<Virtio, Event> {
        if self.status & libc::TP_STATUS_COPY != 0 {
            return merged::read(self.socket, self.length, data);
        }
        let header = self.slot.header();
        if (header.tp_snaplen as usize) < self.length {
            // There was no room beside the ring.
            return Err(Event::RingFull);
        }
        let start = usize::from(header.tp_mac);
        let virtio_at = start.checked_sub(VIRTIO_BYTES).ok_or(Event::TooShort)?;
        let virtio = self.slot.bytes(virtio_at, VIRTIO_BYTES).and_then(Virtio::of).ok_or(Event::TooLong)?;
        data.copy_from_slice(self.slot.bytes(start, self.length).ok_or(Event::TooLong)?);
        Ok(virtio)
    }

    fn has_tag(&self) -> bool {
        self.status & libc::TP_STATUS_VLAN_VALID != 0
    }

    /// Writes its tag, if it has one, into a frame that begins with room for it.
    fn tag(&self, frame: &mut [u8]) -> Result<(), Event> {
        let header = self.slot.header();
        frame.copy_within(TAG_BYTES..TAG_BYTES + ADDRESSES, 0);
        let place = frame.get_mut(..ADDRESSES + TAG_BYTES).ok_or(Event::TooShort)?;
        write_tag(place, self.status, header.tp_vlan_tpid, header.tp_vlan_tci);
        Ok(())
    }

    /// Fills a frame, with the tag, and marks it.
    fn fill(&self, packet: &mut Packet) -> Result<(), Event> {
        let data = packet.reset_with_headroom(LARGE_HEADROOM, self.length).ok_or(Event::TooLong)?;
        if data.len() < ADDRESSES {
            return Err(Event::TooShort);
        }
        let virtio = self.read(data)?;
        let mut tag_bytes = 0;
        if self.has_tag() {
            tag_bytes = TAG_BYTES;
            self.tag(packet.prepend(TAG_BYTES).ok_or(Event::TooLong)?)?;
        }
        virtio.mark(packet, tag_bytes)
    }

    /// The same into memory; the frame, and the bytes of its tag.
    fn read_into<'m>(&self, memory: &'m mut [u8]) -> Result<(&'m [u8], Virtio, usize), Event> {
        let data = memory.get_mut(TAG_BYTES..TAG_BYTES + self.length).ok_or(Event::TooLong)?;
        if data.len() < ADDRESSES {
            return Err(Event::TooShort);
        }
        let virtio = self.read(data)?;
        let frame = &mut memory[..TAG_BYTES + self.length];
        if self.has_tag() {
            self.tag(frame)?;
            Ok((frame, virtio, TAG_BYTES))
        } else {
            Ok((&frame[TAG_BYTES..], virtio, 0))
        }
    }
}

/// Writes what the kernel says of a frame beside its bytes.
#[inline]
fn classify(slot: Received<'_>, header: &libc::tpacket2_hdr, packet: &mut Packet) {
    packet.set_link_header(0);
    let address = slot.bytes(ADDRESS_OFFSET, size_of::<libc::sockaddr_ll>());
    let kernel_type =
        address.map_or(0, |address| address[std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype)]);
    packet.set_packet_type(match kernel_type {
        libc::PACKET_HOST => PacketType::Host,
        libc::PACKET_BROADCAST => PacketType::Broadcast,
        libc::PACKET_MULTICAST => PacketType::Multicast,
        libc::PACKET_OUTGOING => PacketType::Outgoing,
        _ => PacketType::OtherHost,
    });
    packet.set_timestamp_ns(u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec));
}

/// Puts back the VLAN tag that the card or the kernel took out of the frame.
#[cold]
pub(super) fn insert_tag(copy: &mut [u8], data: &[u8], status: u32, tpid: u16, tci: u16) {
    copy[..ADDRESSES].copy_from_slice(&data[..ADDRESSES]);
    write_tag(copy, status, tpid, tci);
    copy[ADDRESSES + TAG_BYTES..].copy_from_slice(&data[ADDRESSES..]);
}

/// Writes a tag behind the link addresses.
fn write_tag(copy: &mut [u8], status: u32, tpid: u16, tci: u16) {
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { tpid } else { TPID_CUSTOMER };
    copy[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tpid.to_be_bytes());
    copy[ADDRESSES + 2..ADDRESSES + TAG_BYTES].copy_from_slice(&tci.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_between_addresses_and_type() {
        let data: Vec<u8> = (0..20).collect();
        let mut copy = [0; 24];
        insert_tag(&mut copy, &data, libc::TP_STATUS_VLAN_TPID_VALID, 0x88a8, 0x2005);
        assert_eq!(copy[..12], data[..12]);
        assert_eq!(copy[12..16], [0x88, 0xa8, 0x20, 0x05]);
        assert_eq!(copy[16..], data[12..]);
        insert_tag(&mut copy, &data, 0, 0x88a8, 5);
        assert_eq!(copy[12..16], [0x81, 0x00, 0x00, 0x05]);
    }
}
