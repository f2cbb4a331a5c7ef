//! The receive half: fill and receive rings of the hardware queues that one worker serves.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use packet::wire::ethernet::MacAddr;
use packet::{Batch, Packet, PacketType, Pool};
use rustix::event::epoll;
use rustix::net::xdp::{XdpDescOptions, XdpStatistics};

use crate::af_packet::{ETHERNET_BYTES, LOOK_EVERY};
use crate::af_xdp::chunks::{Chunks, Orphans};
use crate::af_xdp::rest::Rest;
use crate::af_xdp::socket::{Socket, chunk_of, data_offset_of};
use crate::af_xdp::{ReceiveHalf, Shared, in_one_piece};
use crate::merged_reader::MergedReader;
use crate::tap::Reader;
use crate::unfinished::complete_if_unfinished;
use crate::{Event, PortError, QueueStats, RxQueue, packet_type_on_a_cable};

/// What fails where a program does not take a socket.
const GIVING: &str = "giving the queue's packets to the socket";

/// The device of what tc leaves to us is asked in each so many calls while nothing comes by it. A power of two.
const ASK_REST_EVERY: u16 = 8;

/// So many looks have passed before a worker takes the rest that nobody has claimed.
const LOOKS_BEFORE_REST: u32 = 2;

/// Between two tries to open a socket on a hardware queue that came later.
const BETWEEN_TRIES: Duration = Duration::from_secs(10);

/// A receive queue.
pub(super) struct AfXdpRx {
    shared: Arc<Shared>,
    worker: usize,
    /// Of which generation the sockets are.
    generation: u64,
    /// Empty while the interface is gone.
    sockets: Vec<Receiver>,
    /// When a hardware queue that came later may be tried again.
    next_try: Instant,
    /// The socket that is asked first next time.
    first: usize,
    /// Chunks that the kernel has.
    lent: Option<Chunks>,
    /// Chunks that a fill ring should have.
    wanted: usize,
    /// Readable when one of the sockets is, or the device of what tc leaves to us.
    wait: Option<OwnedFd>,
    /// That device, of which generation it is, and what reads it.
    rest: Option<Arc<Rest>>,
    rest_generation: u64,
    reader: RestReader,
    /// Whether `wait` knows the device, and whether something came by it the last time.
    rest_is_waited_for: bool,
    rest_is_busy: bool,
    /// Looks at which nobody had said yet whose the rest is.
    looks_unassigned: u32,
    /// What the device has lost, and when it was asked last.
    rest_lost: Cell<(u64, Option<Instant>)>,
    next_look: Instant,
    /// Counts calls, so that the kernel is woken now and then also while only some of the sockets receive.
    rounds: u16,
    /// Whether the program gives packets to the sockets.
    takes: bool,
    dead: bool,
    /// Whether the link was up when we looked last, and how often it was lost.
    running: Cell<bool>,
    links_lost: Cell<u64>,
    stats: QueueStats,
}

/// What reads the device of the rest.
enum RestReader {
    Plain(Reader),
    /// Of one that has merged frames whole.
    Merged(MergedReader),
}

impl RestReader {
    fn of(shared: &Shared) -> Self {
        if shared.claim.takes_merged {
            Self::Merged(MergedReader::default())
        } else {
            Self::Plain(Reader::default())
        }
    }
}

/// One socket.
struct Receiver {
    half: ReceiveHalf,
    /// Chunks in its rings, ours to refill.
    outstanding: usize,
    /// The beginning of a packet whose rest comes in the next chunk.
    joining: Joining,
}

/// A packet of several chunks.
enum Joining {
    /// The next chunk begins one.
    None,
    Beginning(Packet),
    /// It is lost; its rest has to be skipped.
    Lost,
}

impl AfXdpRx {
    pub(super) fn new(shared: Arc<Shared>, worker: usize) -> Self {
        let reader = RestReader::of(&shared);
        Self {
            shared,
            worker,
            generation: 0,
            sockets: Vec::new(),
            next_try: Instant::now(),
            first: 0,
            lent: None,
            wanted: 0,
            wait: None,
            rest: None,
            rest_generation: 0,
            reader,
            rest_is_waited_for: false,
            rest_is_busy: false,
            looks_unassigned: 0,
            rest_lost: Cell::new((0, None)),
            next_look: Instant::now(),
            rounds: 0,
            takes: false,
            dead: false,
            running: Cell::new(true),
            links_lost: Cell::new(0),
            stats: QueueStats::default(),
        }
    }

    /// Opens the sockets and fills their rings.
    fn open(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        let name = self.shared.name();
        let failed = |action| move |error: std::io::Error| PortError::system(name, action, error);
        let wait = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| failed("making an epoll")(error.into()))?;
        let (generation, halves) = self.shared.take_receive(self.worker, pool)?;
        for (number, half) in halves.iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&wait, &half.socket.fd, data, epoll::EventFlags::IN)
                .map_err(|error| failed("waiting for a socket")(error.into()))?;
        }
        if self.wanted == 0 {
            self.wanted = share_of(pool.stats().free, halves.len(), &self.shared);
        }
        self.sockets = halves.into_iter().map(|half| Receiver { half, outstanding: 0, joining: Joining::None }).collect();
        self.generation = generation;
        self.wait_by(Some(wait));
        self.dead = false;
        self.takes = false;
        let lent = self.lent.get_or_insert_with(|| Chunks::new(pool.memory().clone()));
        self.sockets.iter_mut().for_each(|socket| socket.fill(pool, lent, self.wanted));
        Ok(())
    }

    /// Opens a socket for a hardware queue that came later; the next look opens the next one. All sockets share what they have.
    fn open_later(&mut self, queue: usize, pool: &mut Pool) -> Result<(), PortError> {
        let (Some(wait), Some(lent)) = (&self.wait, &mut self.lent) else { return Ok(()) };
        let shared = &self.shared;
        let failed = |action| move |error: io::Error| PortError::system(shared.name(), action, error);
        let half = shared.open_later(queue, pool)?;
        let data = epoll::EventData::new_u64(self.sockets.len() as u64);
        epoll::add(wait, &half.socket.fd, data, epoll::EventFlags::IN)
            .map_err(|error| failed("waiting for a socket")(error.into()))?;
        let outstanding: usize = self.sockets.iter().map(|socket| socket.outstanding).sum();
        let free = pool.stats().free + outstanding;
        self.wanted = share_of(free, self.sockets.len() + 1, shared);
        let mut socket = Receiver { half, outstanding: 0, joining: Joining::None };
        socket.fill(pool, lent, self.wanted);
        let half = &socket.half;
        let added = super::lock(&shared.attached).program.add_socket(half.queue, &half.socket.fd);
        self.sockets.push(socket);
        added.map_err(failed(GIVING))
    }

    /// A hardware queue of ours that has no socket, once it may be tried.
    fn missing(&self, now: Instant) -> Option<usize> {
        let (all, of_each) = (self.shared.queues(), self.shared.halves.len());
        // Of a port without such queues nothing is missing.
        let mut queues = (self.worker..all).step_by(of_each.max(1)).filter(|_| now >= self.next_try);
        queues.find(|&queue| !self.sockets.iter().any(|socket| socket.half.queue as usize == queue))
    }

    /// Has the program give packets to the sockets.
    fn take_packets(&mut self) -> Result<(), PortError> {
        self.takes = true;
        let failed = |error| PortError::system(self.shared.name(), GIVING, error);
        let mut attached = super::lock(&self.shared.attached);
        for Receiver { half, .. } in &self.sockets {
            attached.program.add_socket(half.queue, &half.socket.fd).map_err(failed)?;
        }
        Ok(())
    }

    fn wait_by(&mut self, wait: Option<OwnedFd>) {
        self.wait = wait;
        self.rest_is_waited_for = false;
    }

    /// Takes up to `max` packets that tc leaves to us.
    fn receive_rest(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize, mac: MacAddr) {
        let generation = self.shared.rest_generation.load(Ordering::Acquire);
        if generation != self.rest_generation {
            self.rest = super::lock(&self.shared.rest).clone();
            (self.rest_generation, self.rest_is_waited_for) = (generation, false);
        }
        let Some(file) = self.rest.as_ref().and_then(|rest| rest.files.get(self.worker)) else {
            if let RestReader::Merged(reader) = &mut self.reader {
                reader.give_pending(batch, max, &mut self.stats, &mut |packet| classify(packet, mac));
            }
            return;
        };
        if let (false, Some(wait)) = (self.rest_is_waited_for, &self.wait) {
            let data = epoll::EventData::new_u64(u64::MAX);
            // A worker that sleeps too long looks at it in any case.
            let _ = epoll::add(wait, file, data, epoll::EventFlags::IN);
            self.rest_is_waited_for = true;
        }
        if self.rest_is_busy || self.rounds.is_multiple_of(ASK_REST_EVERY) {
            let accept = |packet: &mut Packet| classify(packet, mac);
            let (count, is_gone) = match &mut self.reader {
                RestReader::Plain(reader) => {
                    (reader.receive(file, pool, batch, max, &mut self.stats, accept), reader.is_gone)
                }
                RestReader::Merged(reader) => {
                    (reader.receive(file, pool, batch, max, &mut self.stats, accept), reader.is_gone)
                }
            };
            self.rest_is_busy = count > 0;
            if is_gone {
                // Nobody waits for it any more.
                let _ = self.wait.as_ref().map(|wait| epoll::delete(wait, file));
                self.shared.lose_rest();
            }
        }
    }

    /// What the device of the rest has lost. Linux is not asked each time: it lists all interfaces.
    fn rest_lost(&self) -> u64 {
        let (known, asked) = self.rest_lost.get();
        let is_due = asked.is_none_or(|asked| asked.elapsed() >= Duration::from_secs(1));
        let Some(rest) = self.rest.as_ref().filter(|_| is_due) else { return known };
        let lost = known.max(rest.lost());
        self.rest_lost.set((lost, Some(Instant::now())));
        lost
    }

    /// Lets go of sockets whose interface is gone; all frames come home.
    fn close(&mut self, pool: &mut Pool) {
        for socket in self.sockets.drain(..) {
            self.stats = with_losses(self.stats, &socket.half.socket);
            // What came in and nobody took.
            self.stats.add(Event::PortGone, socket.half.receive.available() as u64);
        }
        // Nothing to wait for, but a worker that sleeps shall not poll either.
        self.wait_by(epoll::create(epoll::CreateFlags::CLOEXEC).ok());
        if let Some(lent) = &mut self.lent {
            #[allow(unsafe_code, reason = "frames come home")]
            // SAFETY: the kernel took the sockets off the interface that is gone, or never got them bound: it does
            // not use the chunks any more, and nobody else does. All were lent.
            unsafe {
                lent.free_all(Some(pool));
            }
        }
    }

    /// Lets go of sockets that may still be bound; their frames come home when the last of them is closed.
    fn abandon(&mut self) {
        let Some(lent) = self.lent.take() else { return };
        // The transmit half may hold the sockets open, and so the kernel may write to the chunks.
        let orphans = Arc::new(Orphans(lent));
        let mut attached = super::lock(&self.shared.attached);
        for socket in self.sockets.drain(..) {
            attached.program.remove_socket(socket.half.queue);
            socket.half.socket.keep(&orphans);
        }
    }

    /// Nothing came: is the interface still there, or again?
    #[cold]
    fn look(&mut self, pool: &mut Pool) {
        // The first look is that of a worker that receives: until then packets are the kernel's, and none waits.
        if !self.takes
            && let Err(error) = self.take_packets()
        {
            self.give_up(&error);
        }
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        self.look_at_link();
        // The router's control thread says it; of a port alone nobody does.
        if self.worker == 0 {
            self.looks_unassigned = self.looks_unassigned.saturating_add(1);
            if self.looks_unassigned > LOOKS_BEFORE_REST
                && let Err(error) = self.shared.take_unassigned_rest()
            {
                self.shared.claim.tell(error.to_string());
            }
        }
        if !self.dead {
            let died = self.sockets.iter().any(|socket| socket.half.socket.take_error());
            if !died && self.generation == self.shared.generation() {
                if let Some(queue) = self.missing(now)
                    && let Err(error) = self.open_later(queue, pool)
                {
                    self.next_try = now + BETWEEN_TRIES;
                    let told = format!("queue {queue}, which came later, is not received by: {error}");
                    self.shared.claim.tell(told);
                }
                return;
            }
            self.dead = true;
            self.close(pool);
        }
        if self.shared.revive(self.generation)
            && let Err(error) = self.open(pool).and_then(|()| self.take_packets())
        {
            self.give_up(&error);
        }
    }

    /// Has the kernel go on where it waits for that. It may have begun to wait just after it was lent chunks.
    fn wake_receivers(&self) {
        for socket in self.sockets.iter().filter(|socket| socket.half.fill.needs_wakeup()) {
            socket.half.socket.wake_receive();
        }
    }

    /// Tries again later. Some of the sockets may be bound, and their rings full of our chunks.
    fn give_up(&mut self, error: &PortError) {
        self.abandon();
        self.wait_by(epoll::create(epoll::CreateFlags::CLOEXEC).ok());
        self.dead = true;
        self.shared.claim.tell(error.to_string());
    }

    fn look_at_link(&self) {
        let running = self.shared.claim.look_at_link();
        if self.running.replace(running) && !running {
            self.links_lost.set(self.links_lost.get() + 1);
        }
    }
}

impl Receiver {
    /// Lends chunks to the kernel until it has `wanted`, or the pool is empty.
    #[inline]
    fn fill(&mut self, pool: &mut Pool, lent: &mut Chunks, wanted: usize) {
        let count = wanted.saturating_sub(self.outstanding).min(self.half.fill.room());
        if count == 0 {
            return;
        }
        let chunk_bytes = pool.chunk_bytes();
        let (fill, zerocopy) = (&mut self.half.fill, self.half.socket.zerocopy);
        self.outstanding += pool.lend(count, |chunk| {
            let offset = lent.offset(chunk).expect("the worker has one pool");
            lent.insert(offset);
            // A chunk on two huge pages may be in two pieces for a card: it stays aside.
            if !zerocopy || in_one_piece(offset, chunk_bytes) {
                fill.write(offset);
            }
        });
        fill.submit();
        if fill.needs_wakeup() {
            self.half.socket.wake_receive();
        }
    }

    /// Takes up to `max` packets out of the receive ring.
    #[inline]
    fn receive(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        max: usize,
        lent: &mut Chunks,
        mac: MacAddr,
        stats: &mut QueueStats,
    ) -> usize {
        let ring = &mut self.half.receive;
        let count = ring.available().min(max);
        for number in 0..count {
            let descriptor = ring.peek(number);
            let Some(chunk) = lent.remove(chunk_of(descriptor.addr)) else {
                stats.add(Event::BadDescriptor, 1);
                continue;
            };
            self.outstanding -= 1;
            let length = descriptor.len as usize;
            #[allow(unsafe_code, reason = "a chunk becomes a packet")]
            // SAFETY: the chunk was in the set, so this pool lent it (the only one that `fill` is called with) and it
            // has not come back since; the kernel gave it back through the ring.
            let packet = unsafe { pool.received(chunk, data_offset_of(descriptor.addr), length) };
            let is_part = descriptor.options.contains(XdpDescOptions::XDP_PKT_CONTD);
            let packet = if is_part | !matches!(self.joining, Joining::None) {
                self.joining.take(packet, is_part, pool, stats)
            } else if packet.is_none() {
                stats.add(Event::TooLong, 1);
                None
            } else {
                packet
            };
            let Some(mut packet) = packet else { continue };
            let length = packet.len();
            if length < ETHERNET_BYTES {
                stats.add(Event::TooShort, 1);
                pool.free_packet(packet);
                continue;
            }
            // A card has computed it; of packets that a kernel copies nobody knows.
            if !self.half.socket.zerocopy {
                complete_if_unfinished(packet.data_mut());
            }
            classify(&mut packet, mac);
            stats.packet(length);
            batch.push(packet);
        }
        if count > 0 {
            ring.release(count);
        }
        count
    }
}

/// Says where a frame's link header is, and to whom it is on the link of an interface of this address.
fn classify(packet: &mut Packet, mac: MacAddr) {
    packet.set_link_header(0);
    let kind = match packet_type_on_a_cable(packet.data()) {
        PacketType::Host if packet.data()[..6] != mac.0 => PacketType::OtherHost,
        kind => kind,
    };
    packet.set_packet_type(kind);
}

impl Joining {
    /// Takes the next chunk of a packet. Returns the packet with the last one (`is_part` is false), if it fits a frame.
    #[cold]
    fn take(
        &mut self,
        part: Option<Packet>,
        is_part: bool,
        pool: &mut Pool,
        stats: &mut QueueStats,
    ) -> Option<Packet> {
        let before = std::mem::replace(self, Joining::Lost);
        let joined = match (before, part) {
            (Joining::None, Some(part)) => Some(part),
            (Joining::Beginning(mut packet), Some(part)) => {
                let room = packet.append(part.len());
                let fits = room.is_some();
                room.into_iter().for_each(|room| room.copy_from_slice(part.data()));
                pool.free_packet(part);
                if fits {
                    Some(packet)
                } else {
                    pool.free_packet(packet);
                    None
                }
            }
            (before, part) => {
                let beginning = match before {
                    Joining::Beginning(packet) => Some(packet),
                    Joining::None | Joining::Lost => None,
                };
                beginning.into_iter().chain(part).for_each(|packet| pool.free_packet(packet));
                None
            }
        };
        if is_part {
            if let Some(packet) = joined {
                *self = Joining::Beginning(packet);
            }
            return None;
        }
        *self = Joining::None;
        if joined.is_none() {
            stats.add(Event::TooLong, 1);
        }
        joined
    }
}

impl RxQueue for AfXdpRx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        if self.shared.has_begun() {
            return self.open(pool);
        }
        self.shared.check_frames(pool)?;
        self.dead = true;
        self.close(pool);
        Ok(())
    }

    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let before = batch.len();
        let mut left = max.min(batch.room());
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds == 0 {
            self.wake_receivers();
        }
        let (sockets, mac) = (self.sockets.len(), self.shared.mac());
        for step in 0..sockets {
            let number =
                if self.first + step < sockets { self.first + step } else { self.first + step - sockets };
            let (socket, Some(lent)) = (&mut self.sockets[number], &mut self.lent) else { break };
            left -= socket.receive(pool, batch, left, lent, mac, &mut self.stats);
            // Also when nothing came: the pool may have been empty the last time.
            socket.fill(pool, lent, self.wanted);
            if left == 0 {
                break;
            }
        }
        self.first = if self.first + 1 < sockets { self.first + 1 } else { 0 };
        if left > 0 {
            self.receive_rest(pool, batch, left, mac);
        }
        let count = batch.len() - before;
        if count == 0 {
            if self.shared.options.busy_poll.is_some() {
                self.sockets.iter().for_each(|socket| socket.half.socket.wake_receive());
            }
            self.look(pool);
        }
        count
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wake_receivers();
        self.wait.as_ref().map(OwnedFd::as_fd)
    }

    fn due_in_ns(&self) -> Option<u64> {
        // The kernel does not tell when an interface comes back.
        self.dead.then(|| self.next_look.saturating_duration_since(Instant::now()).as_nanos() as u64)
    }

    fn stats(&self) -> QueueStats {
        let mut stats =
            self.sockets.iter().fold(self.stats, |sum, socket| with_losses(sum, &socket.half.socket));
        stats.add(Event::LinkLost, self.links_lost.get());
        if self.worker == 0 {
            // The program counts for the interface.
            self.shared.steered().add_to(&mut stats);
            stats.add(Event::KernelDropped, self.rest_lost());
        }
        stats
    }
}

/// The chunks of each of so many sockets. Together they take a quarter of what is free, so that many ports leave something for
/// packets that the router makes.
fn share_of(free: usize, sockets: usize, shared: &Shared) -> usize {
    (free / 4 / sockets.max(1)).clamp(1, shared.options.slots as usize)
}

/// Adds what the kernel counted for a socket.
fn with_losses(mut stats: QueueStats, socket: &Socket) -> QueueStats {
    if let Some(XdpStatistics {
        rx_dropped, rx_invalid_descs, rx_ring_full, rx_fill_ring_empty_descs, ..
    }) = socket.statistics()
    {
        stats.add(Event::KernelDropped, rx_dropped);
        stats.add(Event::BadDescriptor, rx_invalid_descs);
        stats.add(Event::RingFull, rx_ring_full.unwrap_or(0));
        stats.add(Event::FillEmpty, rx_fill_ring_empty_descs.unwrap_or(0));
    }
    stats
}

impl Drop for AfXdpRx {
    fn drop(&mut self) {
        self.abandon();
    }
}
