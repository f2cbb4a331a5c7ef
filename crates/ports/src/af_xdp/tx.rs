//! The transmit half: transmit and completion rings of one hardware queue.
//!
//! A packet counts as sent when it is in the ring; what the kernel then refuses is taken off the count again. Its frame
//! comes back over the completion ring, which every call looks at first. A merged packet goes by a packet socket of its own, when what
//! came before it has left the ring.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use packet::{Batch, Packet, Pool};
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use crate::af_packet::{self, ETHERNET_BYTES, LOOK_EVERY};
use crate::af_xdp::chunks::{Chunks, LINE, Orphans};
use crate::af_xdp::socket::{MOST_CHUNK_BYTES, address, chunk_of};
use crate::af_xdp::{Shared, TransmitHalf, in_one_piece};
use crate::interface::Interface;
use crate::merged::{self, TAG_BYTES};
use crate::{Event, PortError, QueueStats, TxQueue};
use packet::wire::ethernet::{EtherType, Ethernet};

/// How soon to try again when the kernel did not take all packets.
const RETRY_NS: u64 = 20_000;

/// A transmit queue.
pub(super) struct AfXdpTx {
    shared: Arc<Shared>,
    worker: usize,
    /// Of which generation the socket is.
    generation: u64,
    /// `None` while the interface is gone.
    sender: Option<Sender>,
    next_look: Instant,
    /// What sends merged packets, where they are taken.
    of_merged: Option<OwnedFd>,
    /// Packets between batch and ring within one call; empty between calls.
    passing: Batch,
    stats: QueueStats,
}

/// The socket, while there is one.
struct Sender {
    half: TransmitHalf,
    /// Chunks that the kernel has.
    in_flight: Chunks,
    /// Descriptors of the longest packet: more than one where a frame is longer than a chunk of the kernel.
    most_parts: usize,
    /// Of packets with further descriptors: a line of the chunk behind the first one for each of these.
    further: Chunks,
    mtu: usize,
    /// Whether the kernel found the link down the last time.
    link_down: bool,
    /// Whether the kernel left packets in the ring the last time.
    stalled: bool,
}

impl AfXdpTx {
    pub(super) fn new(shared: Arc<Shared>, worker: usize) -> Self {
        Self {
            shared,
            worker,
            generation: 0,
            sender: None,
            next_look: Instant::now(),
            of_merged: None,
            passing: Batch::new(),
            stats: QueueStats::default(),
        }
    }

    fn open(&mut self, pool: &Pool) -> Result<(), PortError> {
        // What may fail first: who has taken the half, and lost it, gets none again.
        let mtu = self.shared.claim.interface.mtu()?;
        self.of_merged = af_packet::sender_of_merged(&self.shared.claim)?;
        let (generation, half) = self.shared.take_transmit(self.worker, pool)?;
        let in_flight = Chunks::new(pool.memory().clone());
        let most_parts = pool.chunk_bytes().div_ceil(MOST_CHUNK_BYTES);
        let further = if most_parts > 1 { Chunks::new(pool.memory().clone()) } else { Chunks::none(&in_flight) };
        self.generation = generation;
        self.sender = half.map(|half| Sender {
            half,
            in_flight,
            most_parts,
            further,
            mtu,
            link_down: false,
            stalled: false,
        });
        Ok(())
    }

    /// Lets go of a socket whose interface is gone; all frames come home.
    #[cold]
    fn close(&mut self, pool: &mut Pool) {
        let Some(mut sender) = self.sender.take() else { return };
        sender.complete(pool, &mut self.stats);
        for descriptor in sender.half.transmit.unread_entries() {
            take_off(&mut self.stats, Event::PortGone, descriptor);
        }
        #[allow(unsafe_code, reason = "frames come home")]
        // SAFETY: the socket is off its interface and nobody wakes it any more, so nobody uses the chunks; each was
        // given away by `Packet::into_raw`.
        unsafe {
            sender.in_flight.free_all(Some(pool));
        }
    }

    /// Opens the socket anew when the interface is there again.
    #[cold]
    fn look(&mut self, pool: &mut Pool) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        if self.shared.revive(self.generation)
            && let Err(error) = self.open(pool)
        {
            self.shared.claim.tell(error.to_string());
        }
    }

    /// Frees packets, so many at most, that cannot be sent.
    #[cold]
    fn drop_first(&mut self, pool: &mut Pool, batch: &mut Batch, most: usize, reason: Event) -> usize {
        let count = batch.move_front(&mut self.passing, most);
        let lost: u64 = self.passing.iter().map(Packet::pieces).sum();
        self.stats.add(reason, lost);
        pool.free(&mut self.passing);
        count
    }

    /// Has a socket that can send. Returns why there is none.
    #[inline]
    fn find_sender(&mut self, pool: &mut Pool) -> Result<(), Event> {
        // The interface is another one now, or was away.
        if self.generation != self.shared.generation() {
            self.close(pool);
        }
        if self.sender.is_none() {
            self.look(pool);
        }
        let Some(sender) = &mut self.sender else { return Err(Event::PortGone) };
        let interface = &self.shared.claim.interface;
        if sender.link_down {
            if !interface.is_running() {
                if interface.exists() {
                    return Err(Event::LinkDown);
                }
                self.close(pool);
                return Err(Event::PortGone);
            }
            sender.link_down = false;
        }
        sender.complete(pool, &mut self.stats);
        Ok(())
    }

    /// Sends packets, so many at most, none of which is merged.
    #[inline(always)]
    fn send_single(&mut self, pool: &mut Pool, batch: &mut Batch, most: usize) -> usize {
        if let Err(reason) = self.find_sender(pool) {
            return self.drop_first(pool, batch, most, reason);
        }
        let Some(sender) = &mut self.sender else { return 0 };
        let interface = &self.shared.claim.interface;
        let room = sender.half.transmit.room() / sender.most_parts;
        let taken = batch.move_front(&mut self.passing, room.min(most));
        sender.put(pool, &mut self.passing, interface, &mut self.stats);
        if !sender.kick(interface, &mut self.stats) {
            self.close(pool);
        }
        taken
    }

    /// Sends packets, some of which may be merged, in their order.
    #[inline(never)]
    fn send_all_kinds(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let mut taken = 0;
        while !batch.is_empty() {
            let single = batch.iter().take_while(|packet| !packet.is_merged()).count();
            let (wanted, done) = match single {
                0 => (1, self.send_merged(pool, batch)),
                _ => (single, self.send_single(pool, batch, single)),
            };
            taken += done;
            if done < wanted {
                break;
            }
        }
        taken
    }

    /// Sends the first packet, which is merged. Returns 0 while what came before it waits, or the socket is full.
    fn send_merged(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        if let Err(reason) = self.find_sender(pool) {
            return self.drop_first(pool, batch, 1, reason);
        }
        let (interface, Some(sender)) = (&self.shared.claim.interface, &mut self.sender) else { return 0 };
        if sender.half.transmit.unread() > 0 {
            if !sender.kick(interface, &mut self.stats) {
                self.close(pool);
                return self.drop_first(pool, batch, 1, Event::PortGone);
            }
            if sender.half.transmit.unread() > 0 {
                return 0;
            }
        }
        let (Some(packet), Some(socket)) = (batch.iter_mut().next(), &self.of_merged) else {
            return self.drop_first(pool, batch, 1, Event::Offload);
        };
        let start = packet.piece_len().min(packet.len());
        if sender.problem(&packet.data()[..start]).is_some() {
            // The MTU may have grown.
            sender.mtu = interface.mtu().unwrap_or(sender.mtu);
            if let Some(reason) = sender.problem(&packet.data()[..start]) {
                return self.drop_first(pool, batch, 1, reason);
            }
        }
        match merged::send(socket, packet) {
            Some(Ok(())) => {
                self.stats.packets += packet.pieces();
                self.stats.bytes += packet.bytes_in_pieces();
                batch.move_front(&mut self.passing, 1);
                pool.free(&mut self.passing);
                1
            }
            Some(Err(reason)) => self.drop_first(pool, batch, 1, reason),
            None => {
                sender.stalled = true;
                0
            }
        }
    }
}

impl Sender {
    /// Frees the frames that the kernel is done with.
    #[inline]
    fn complete(&mut self, pool: &mut Pool, stats: &mut QueueStats) {
        let completion = &mut self.half.completion;
        let count = completion.available();
        if count == 0 {
            return;
        }
        for number in 0..count {
            let offset = chunk_of(completion.peek(number));
            // The kernel is done with a packet when it is with all its descriptors, which it returns one by one.
            if self.most_parts > 1 && take_further(&mut self.further, offset, self.most_parts) {
                continue;
            }
            let Some(chunk) = self.in_flight.remove(offset) else {
                stats.add(Event::BadDescriptor, 1);
                continue;
            };
            #[allow(unsafe_code, reason = "a chunk becomes a packet")]
            // SAFETY: the chunk was in the set, so it was given away by `Packet::into_raw` and has not come back
            // since; the kernel only read its data.
            let packet = unsafe { Packet::from_raw(chunk) };
            pool.free_packet(packet);
        }
        completion.release(count);
    }

    /// Puts packets, for which there is room, into the ring.
    #[inline]
    fn put(&mut self, pool: &mut Pool, packets: &mut Batch, interface: &Interface, stats: &mut QueueStats) {
        let mut has_looked = false;
        for packet in packets.drain() {
            let mut problem = self.problem(packet.data());
            if problem == Some(Event::TooLong) && !has_looked {
                has_looked = true;
                // The MTU may have grown.
                self.mtu = interface.mtu().unwrap_or(self.mtu);
                problem = self.problem(packet.data());
            }
            if let Some(reason) = problem {
                stats.add(reason, 1);
                pool.free_packet(packet);
                continue;
            }
            let Some((packet, chunk)) = self.in_memory(pool, packet, stats) else { continue };
            let (length, data_offset) = (packet.len(), packet.data_offset());
            stats.packet(length);
            self.in_flight.insert(chunk);
            let _given_to_the_kernel = packet.into_raw();
            if length > MOST_CHUNK_BYTES {
                self.put_parts(chunk, data_offset, length);
                continue;
            }
            self.half.transmit.write(XdpDesc {
                addr: address(chunk, data_offset),
                len: length as u32,
                options: XdpDescOptions::empty(),
            });
        }
        self.half.transmit.submit();
    }

    /// Puts a packet into the ring that is longer than a chunk of the kernel.
    #[cold]
    fn put_parts(&mut self, chunk: u64, data_offset: usize, length: usize) {
        for (number, start) in (0..length).step_by(MOST_CHUNK_BYTES).enumerate() {
            let is_last = start + MOST_CHUNK_BYTES >= length;
            if number > 0 {
                self.further.insert(chunk + (number * LINE) as u64);
            }
            self.half.transmit.write(XdpDesc {
                addr: address(chunk, data_offset + start),
                len: (length - start).min(MOST_CHUNK_BYTES) as u32,
                options: if is_last { XdpDescOptions::empty() } else { XdpDescOptions::XDP_PKT_CONTD },
            });
        }
    }

    /// Why the packet cannot be sent.
    #[inline(always)]
    fn problem(&self, data: &[u8]) -> Option<Event> {
        if data.len() < ETHERNET_BYTES {
            return Some(Event::TooShort);
        }
        let is_tagged = Ethernet::new_unchecked(data).ethertype() == EtherType::VLAN;
        let limit = self.mtu + ETHERNET_BYTES + if is_tagged { TAG_BYTES } else { 0 };
        (data.len() > limit).then_some(Event::TooLong)
    }

    /// The packet, or a copy of it, in the memory that the kernel knows, with the place of its chunk there.
    #[inline(always)]
    fn in_memory(&self, pool: &mut Pool, packet: Packet, stats: &mut QueueStats) -> Option<(Packet, u64)> {
        if let Some(chunk) = self.place_of(&packet) {
            return Some((packet, chunk));
        }
        // Another driver's frame, or one that lies badly for a card.
        let copy = pool.copy(&packet);
        pool.free_packet(packet);
        let Some(copy) = copy else {
            stats.add(Event::NoFrame, 1);
            return None;
        };
        match self.place_of(&copy) {
            Some(chunk) => {
                stats.add(Event::Copied, 1);
                Some((copy, chunk))
            }
            None => {
                stats.add(Event::NoFrame, 1);
                pool.free_packet(copy);
                None
            }
        }
    }

    /// Where the packet's chunk lies in the memory that the kernel knows, if the card can read it there.
    #[inline(always)]
    fn place_of(&self, packet: &Packet) -> Option<u64> {
        let chunk = self.in_flight.offset(packet.chunk())?;
        let readable =
            !self.half.socket.zerocopy || in_one_piece(chunk + packet.data_offset() as u64, packet.len());
        readable.then_some(chunk)
    }

    /// Has the kernel send what is in the ring. False: the interface is gone.
    #[inline]
    fn kick(&mut self, interface: &Interface, stats: &mut QueueStats) -> bool {
        let ring = &mut self.half.transmit;
        self.stalled = false;
        if !ring.needs_wakeup() {
            return true;
        }
        let mut unread = ring.unread();
        while unread > 0 {
            let result = self.half.socket.wake_transmit();
            let before = std::mem::replace(&mut unread, ring.unread());
            match result {
                // A card goes on by itself; a copying kernel has sent all.
                Ok(()) => return true,
                // The device did not take the last one, or the cable is out.
                Err(Errno::BUSY) => {
                    self.link_down = !interface.is_running();
                    let reason = if self.link_down { Event::LinkDown } else { Event::Refused };
                    take_off(stats, reason, ring.last_read());
                }
                Err(Errno::NETDOWN) => {
                    self.link_down = true;
                    self.stalled = true;
                    return true;
                }
                Err(Errno::NXIO | Errno::NODEV) => return false,
                // One call sends so many; there are more.
                Err(_) if unread < before => {}
                // No room in the device, or in the completion ring.
                Err(_) => {
                    self.stalled = true;
                    return true;
                }
            }
        }
        true
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The receive half may hold the socket open, and a card may still read the chunks.
        let empty = Chunks::none(&self.in_flight);
        let in_flight = std::mem::replace(&mut self.in_flight, empty);
        self.half.socket.keep(&Arc::new(Orphans(in_flight)));
    }
}

/// Takes a packet that was not sent after all off the count, by its last descriptor; of the others the bytes alone.
#[cold]
fn take_off(stats: &mut QueueStats, reason: Event, descriptor: XdpDesc) {
    stats.bytes = stats.bytes.saturating_sub(u64::from(descriptor.len));
    if !descriptor.options.contains(XdpDescOptions::XDP_PKT_CONTD) {
        stats.packets = stats.packets.saturating_sub(1);
        stats.add(reason, 1);
    }
}

/// Takes out one of the further descriptors of the packet in the chunk at `offset`; false if it has none.
#[cold]
fn take_further(further: &mut Chunks, offset: u64, most_parts: usize) -> bool {
    (1..most_parts).rev().any(|number| further.remove(offset + (number * LINE) as u64).is_some())
}

impl TxQueue for AfXdpTx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        if self.shared.has_begun() { self.open(pool) } else { Ok(()) }
    }

    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        if self.shared.claim.takes_merged {
            return self.send_all_kinds(pool, batch);
        }
        self.send_single(pool, batch, usize::MAX)
    }

    fn flush(&mut self, pool: &mut Pool) {
        let Some(sender) = &mut self.sender else { return };
        sender.complete(pool, &mut self.stats);
        if sender.stalled && !sender.kick(&self.shared.claim.interface, &mut self.stats) {
            self.close(pool);
        }
    }

    fn due_in_ns(&self) -> Option<u64> {
        let sender = self.sender.as_ref().filter(|sender| sender.stalled)?;
        Some(if sender.link_down { LOOK_EVERY.as_nanos() as u64 } else { RETRY_NS })
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}
