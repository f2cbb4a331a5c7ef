//! The transmit side of a packet socket.
//!
//! `send` fills slots and tells the kernel once a batch. The kernel works through them in order and may stop in the
//! middle (the card is busy); the rest waits for the next call. The `unsent` newest slots before `head` are those
//! that we handed over and have not seen the kernel pass. A packet counts as sent when the kernel took it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use packet::{Batch, Packet, Pool};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::af_packet::ring::Ring;
use crate::af_packet::socket;
use crate::af_packet::{Builder, Claim, ETHERNET_BYTES, LOOK_EVERY};
use crate::merged::{self, TAG_BYTES};
use crate::{Event, PortError, QueueStats, TxQueue};
use packet::wire::ethernet::{EtherType, Ethernet};

/// A transmit queue.
pub(super) struct AfPacketTx {
    // The ring before the socket: unmapped first.
    ring: Ring,
    socket: OwnedFd,
    /// What sends merged frames.
    of_merged: Option<OwnedFd>,
    claim: Arc<Claim>,
    /// The slot that we fill next.
    head: usize,
    /// How long the packet in each slot is: the header of a slot that was handed over is the kernel's.
    lengths: Box<[u32]>,
    /// Slots before `head` handed over that the kernel may not have looked at yet, and their bytes.
    unsent: usize,
    unsent_bytes: usize,
    mtu: usize,
    /// Number of the interface that the socket is on.
    index: i32,
    slots: usize,
    gone: bool,
    /// Whether the socket is on no interface any more: it may come back under the same number from another namespace.
    lost: bool,
    next_look: Instant,
    /// Those of the claim that are known here.
    returns: u32,
    /// Packets between batch and pool within one call; empty between calls.
    sent: Batch,
    stats: QueueStats,
}

impl AfPacketTx {
    /// A queue with a ring of `slots` slots.
    pub(super) fn new(claim: Arc<Claim>, slots: usize) -> Result<Self, PortError> {
        let returns = claim.returns.load(Ordering::Relaxed);
        let builder = Builder::new(&claim, slots)?;
        let ((socket, ring), index, mtu) = (builder.sender()?, builder.index, builder.mtu);
        let of_merged = builder.sender_of_merged()?;
        Ok(Self {
            lengths: vec![0; ring.slots()].into(),
            ring,
            socket,
            of_merged,
            claim,
            head: 0,
            unsent: 0,
            unsent_bytes: 0,
            mtu,
            index,
            slots,
            gone: false,
            lost: false,
            next_look: Instant::now(),
            returns,
            sent: Batch::new(),
            stats: QueueStats::default(),
        })
    }

    /// The port has gone on: does this queue send into nothing?
    #[cold]
    fn follow(&mut self, returns: u32) {
        self.returns = returns;
        self.lost |= !socket::is_on(&self.socket, self.index);
        if self.lost || self.claim.interface.index().is_ok_and(|index| index != self.index) {
            self.gone = true;
            self.next_look = Instant::now();
        }
    }

    /// The interface is gone: is there another one now?
    #[cold]
    fn look(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        if !self.claim.is_anew((!self.lost).then_some(self.index)) {
            return;
        }
        match self.reopen() {
            Ok(()) => self.claim.tell_back(),
            Err(error) => self.claim.tell(error.to_string()),
        }
    }

    /// Begins anew on the interface as it is now, with nothing in the ring.
    fn reopen(&mut self) -> Result<(), PortError> {
        let claim = Arc::clone(&self.claim);
        let builder = Builder::new(&claim, self.slots)?;
        (self.socket, self.ring) = builder.sender()?;
        self.of_merged = builder.sender_of_merged()?;
        (self.index, self.mtu) = (builder.index, builder.mtu);
        self.lengths = vec![0; self.ring.slots()].into();
        (self.head, self.gone, self.lost) = (0, false, false);
        Ok(())
    }

    /// A packet was too long: has the MTU grown, and are there slots for it now?
    #[cold]
    fn grow(&mut self) -> bool {
        let before = self.mtu;
        self.mtu = self.claim.interface.mtu().unwrap_or(before);
        if self.ring.fits(self.mtu + ETHERNET_BYTES + TAG_BYTES) {
            return self.mtu > before;
        }
        self.kick();
        // What is in the old ring goes first.
        self.unsent == 0 && self.reopen().is_ok()
    }

    /// Tells the kernel to send what is in the ring, and finds out how far it came.
    fn kick(&mut self) {
        let result = rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT);
        let settled = self.settle();
        match result {
            Ok(bytes) if bytes < settled.bytes => self.count_skipped(settled, bytes),
            Ok(_) | Err(Errno::INTR) => {}
            // Busy, or the cable is out; the kernel does not say which.
            Err(Errno::AGAIN | Errno::NOBUFS) => {
                if settled.packets == 0 && !self.claim.interface.is_running() {
                    self.take_back(Event::LinkDown);
                }
            }
            Err(error @ (Errno::NETDOWN | Errno::NXIO | Errno::NODEV)) => {
                self.lost = error != Errno::NETDOWN;
                self.gone = self.lost || self.claim.interface.index().ok() != Some(self.index);
                self.take_back(if self.gone { Event::PortGone } else { Event::LinkDown });
            }
            Err(_) => self.take_back(Event::Refused),
        }
    }

    /// Counts what the kernel took: all but the newest slots that are still to be sent.
    #[inline]
    fn settle(&mut self) -> Settled {
        let before = Settled { packets: self.unsent, bytes: self.unsent_bytes };
        let (mut slot, mut left, mut left_bytes) = (self.ring.previous(self.head), 0, 0);
        while left < before.packets && self.ring.status(slot) == libc::TP_STATUS_SEND_REQUEST {
            left += 1;
            left_bytes += self.lengths[slot] as usize;
            slot = self.ring.previous(slot);
        }
        self.unsent = left;
        self.unsent_bytes = left_bytes;
        let settled = Settled { packets: before.packets - left, bytes: before.bytes - left_bytes };
        self.stats.packets += settled.packets as u64;
        self.stats.bytes += settled.bytes as u64;
        settled
    }

    /// The kernel passed packets without sending them: the MTU became smaller since we looked.
    #[cold]
    fn count_skipped(&mut self, settled: Settled, sent_bytes: usize) {
        self.mtu = self.claim.interface.mtu().unwrap_or(self.mtu);
        let skipped_bytes = settled.bytes - sent_bytes;
        let (mut long, mut long_bytes) = (0, 0);
        let mut slot = self.head;
        for _ in 0..self.unsent {
            slot = self.ring.previous(slot);
        }
        for _ in 0..settled.packets {
            slot = self.ring.previous(slot);
            let length = self.lengths[slot] as usize;
            if length > self.mtu + ETHERNET_BYTES && long_bytes + length <= skipped_bytes {
                long += 1;
                long_bytes += length;
            }
        }
        let refused = u64::from(long_bytes < skipped_bytes);
        self.stats.add(Event::TooLong, long);
        self.stats.add(Event::Refused, refused);
        self.stats.packets -= long + refused;
        self.stats.bytes -= skipped_bytes as u64;
    }

    /// Takes what the kernel did not look at out of the ring, so that it is not sent when it is stale.
    #[cold]
    fn take_back(&mut self, reason: Event) {
        for _ in 0..std::mem::take(&mut self.unsent) {
            self.head = self.ring.previous(self.head);
            self.ring.set_status(self.head, libc::TP_STATUS_AVAILABLE);
            self.stats.add(reason, 1);
        }
        self.unsent_bytes = 0;
    }

    /// The longest frame that goes out, if it begins as this one does.
    #[inline]
    fn limit(&self, frame: &[u8]) -> usize {
        let is_tagged =
            frame.len() >= ETHERNET_BYTES && Ethernet::new_unchecked(frame).ethertype() == EtherType::VLAN;
        self.mtu + ETHERNET_BYTES + if is_tagged { TAG_BYTES } else { 0 }
    }

    /// Puts one packet into the ring. `None`: the ring is full.
    #[inline]
    fn put(&mut self, data: &[u8]) -> Option<Result<(), Event>> {
        if data.len() < ETHERNET_BYTES {
            return Some(Err(Event::TooShort));
        }
        if data.len() > self.limit(data) {
            return Some(Err(Event::TooLong));
        }
        if self.ring.status(self.head) != libc::TP_STATUS_AVAILABLE {
            return None;
        }
        #[allow(unsafe_code, reason = "writing a slot of the ring")]
        // SAFETY: the slot is ours: its status says so.
        let is_written = unsafe { self.ring.write_packet(self.head, data) };
        if !is_written {
            // The MTU grew since the ring was made.
            return Some(Err(Event::TooLong));
        }
        self.lengths[self.head] = data.len() as u32;
        self.ring.set_status(self.head, libc::TP_STATUS_SEND_REQUEST);
        self.head = self.ring.next(self.head);
        self.unsent += 1;
        self.unsent_bytes += data.len();
        Some(Ok(()))
    }
}

impl AfPacketTx {
    #[inline]
    fn put_any(&mut self, packet: &mut Packet) -> Option<Result<(), Event>> {
        if packet.is_merged() { self.send_merged(packet) } else { self.put(packet.data()) }
    }

    /// Sends a merged frame, once the ring is empty. Returns `None` while the ring or the socket is full.
    #[cold]
    fn send_merged(&mut self, packet: &mut Packet) -> Option<Result<(), Event>> {
        if self.unsent > 0 {
            self.kick();
            if self.unsent > 0 {
                return None;
            }
        }
        if self.gone {
            return Some(Err(Event::PortGone));
        }
        let Some(socket) = &self.of_merged else { return Some(Err(Event::Offload)) };
        if packet.piece_len() > self.limit(packet.data()) {
            return Some(Err(Event::TooLong));
        }
        // A queueing discipline reports no loss when the link is down. IFF_RUNNING follows the link up to a second later.
        let sent = merged::send(socket, packet);
        if sent == Some(Ok(())) {
            self.stats.packets += packet.pieces();
            self.stats.bytes += packet.bytes_in_pieces();
        }
        sent
    }
}

/// Packets that the kernel is done with.
#[derive(Clone, Copy, Debug)]
struct Settled {
    packets: usize,
    bytes: usize,
}

impl TxQueue for AfPacketTx {
    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let returns = self.claim.returns.load(Ordering::Relaxed);
        if returns != self.returns {
            self.follow(returns);
        }
        if self.gone {
            self.look();
        }
        let (mut taken, mut has_grown) = (0, None);
        for packet in batch.iter_mut() {
            let mut put = self.put_any(packet);
            if put == Some(Err(Event::TooLong)) && *has_grown.get_or_insert_with(|| self.grow()) {
                put = self.put_any(packet);
            }
            match put {
                Some(Ok(())) => {}
                Some(Err(reason)) => self.stats.add(reason, packet.pieces()),
                None => break,
            }
            taken += 1;
        }
        if self.unsent > 0 {
            self.kick();
        }
        batch.move_front(&mut self.sent, taken);
        pool.free(&mut self.sent);
        taken
    }

    fn flush(&mut self, _pool: &mut Pool) {
        if self.unsent > 0 {
            self.kick();
        }
    }

    fn due_in_ns(&self) -> Option<u64> {
        // What the kernel refused for the moment: try again soon.
        (self.unsent > 0).then_some(20_000)
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}
