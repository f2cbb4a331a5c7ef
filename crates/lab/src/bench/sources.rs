//! Ports for experiments: frames whose destinations are drawn anew, frames at a rate, several ports as one, and a transmit queue that workers share.
//!
//! All are wrappers around a port in memory. What a card would do they do with the core that is measured, which their cost says: the same source with
//! forwarding alone behind it.

use std::sync::{Arc, Mutex};

use packet::random::SplitMix64;
use packet::sync::lock;
use packet::{Batch, MAX_BATCH, Packet, Pool, cycles};
use ports::{Port, PortError, PortInfo, QueueStats, RxQueue, TxQueue};

/// Bytes of a frame before the destination address of its IPv4 header.
const DESTINATION: usize = 30;
/// Before its checksum.
const CHECKSUM: usize = 24;

/// Frames whose destinations are drawn among 2^`bits` networks of 256 addresses that lie side by side, anew for each frame: so no list of frames
/// has to be as long as a table, and none is in a cache because it was sent before.
pub(super) struct Drawn {
    pub(super) port: Box<dyn Port>,
    pub(super) bits: u32,
}

impl Port for Drawn {
    fn info(&self) -> PortInfo {
        self.port.info()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        let random = SplitMix64::new(queue as u64 + 1);
        Ok(Box::new(DrawnRx { queue: self.port.take_rx(queue)?, mask: (1 << self.bits) - 1, random }))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        self.port.take_tx(queue)
    }
}

struct DrawnRx {
    queue: Box<dyn RxQueue>,
    mask: u32,
    random: SplitMix64,
}

impl RxQueue for DrawnRx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        self.queue.prepare(pool)
    }

    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let before = batch.len();
        let count = self.queue.receive(pool, batch, max);
        for packet in &mut batch.packets_mut()[before..] {
            let network = (self.random.next_u64() >> 32) as u32 & self.mask;
            let Some(frame) = packet.data_mut().first_chunk_mut::<{ DESTINATION + 4 }>() else { continue };
            let [a, b, c, d] = (network << 8 | 1).to_be_bytes();
            let old =
                [frame[DESTINATION], frame[DESTINATION + 1], frame[DESTINATION + 2], frame[DESTINATION + 3]];
            frame[DESTINATION..].copy_from_slice(&[a, b, c, d]);
            let sum = u16::from_be_bytes([frame[CHECKSUM], frame[CHECKSUM + 1]]);
            let sum = changed(sum, old, [a, b, c, d]);
            frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
        }
        count
    }

    fn stats(&self) -> QueueStats {
        self.queue.stats()
    }
}

/// Returns the checksum after a change of four bytes (RFC 1624).
fn changed(sum: u16, old: [u8; 4], new: [u8; 4]) -> u16 {
    let words = |bytes: [u8; 4]| {
        [[bytes[0], bytes[1]], [bytes[2], bytes[3]]].map(|bytes| u32::from(u16::from_be_bytes(bytes)))
    };
    let mut total = u32::from(!sum);
    for (old, new) in words(old).into_iter().zip(words(new)) {
        total += (!old & 0xffff) + new;
    }
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    !(total as u16)
}

/// What a paced port's packets did.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    /// Packets that arrived, and those of them that found the queue full.
    pub(super) arrived: u64,
    pub(super) lost: u64,
    pub(super) received: u64,
    /// TSC cycles between a receive that brought packets and the next one, that receive included.
    pub(super) busy: u64,
    /// Of marked packets: TSC cycles from arrival to the end of the send that took them.
    pub(super) latencies: Vec<u64>,
}

/// Frames at a rate: they arrive in the same steps and wait in a queue of limited length, as in a card's.
pub(super) struct Paced {
    pub(super) port: Box<dyn Port>,
    /// TSC cycles between two packets, by queue.
    every: Vec<f64>,
    /// Packets that a card hands over at a time.
    together: u64,
    /// Of each queue, which different threads may have.
    pub(super) meters: Vec<Arc<Mutex<Meter>>>,
    marked: Arc<Mutex<Option<(usize, u64)>>>,
}

/// Packets that wait before the next is lost: the usual ring of a card.
const RING: u64 = 1024;
/// Packets between two that are marked.
const BETWEEN_MARKS: u64 = 97;

impl Paced {
    /// Paces the queues of a port, each at its number of packets a second, of which `together` come at a time.
    pub(super) fn new(port: Box<dyn Port>, packets_per_second: &[f64], together: u64) -> Paced {
        let every = packets_per_second.iter().map(|rate| cycles::per_second() / rate).collect();
        let meters = packets_per_second.iter().map(|_| Arc::default()).collect();
        Paced { port, every, together, meters, marked: Arc::default() }
    }

    /// Returns a port around another one, by which the packets of this one's first queue leave.
    pub(super) fn output(&self, port: Box<dyn Port>) -> Box<dyn Port> {
        let (meter, marked) = (Arc::clone(&self.meters[0]), Arc::clone(&self.marked));
        Box::new(PacedOutput { port, meter, marked })
    }
}

/// A port by which paced packets leave.
struct PacedOutput {
    port: Box<dyn Port>,
    meter: Arc<Mutex<Meter>>,
    marked: Arc<Mutex<Option<(usize, u64)>>>,
}

impl Port for PacedOutput {
    fn info(&self) -> PortInfo {
        self.port.info()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        self.port.take_rx(queue)
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        let (meter, marked) = (Arc::clone(&self.meter), Arc::clone(&self.marked));
        Ok(Box::new(PacedTx { queue: self.port.take_tx(queue)?, meter, marked }))
    }
}

impl Port for Paced {
    fn info(&self) -> PortInfo {
        self.port.info()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        Ok(Box::new(PacedRx {
            queue: self.port.take_rx(queue)?,
            every: self.every[queue % self.every.len()],
            together: self.together,
            meter: Arc::clone(&self.meters[queue % self.meters.len()]),
            marked: Arc::clone(&self.marked),
            begin: None,
            taken: 0,
            next_mark: 0,
            last: None,
        }))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        self.port.take_tx(queue)
    }
}

struct PacedRx {
    queue: Box<dyn RxQueue>,
    every: f64,
    together: u64,
    meter: Arc<Mutex<Meter>>,
    marked: Arc<Mutex<Option<(usize, u64)>>>,
    /// When the first packet arrived, in TSC cycles.
    begin: Option<u64>,
    /// Packets received or lost.
    taken: u64,
    next_mark: u64,
    /// When the last receive that brought packets began.
    last: Option<u64>,
}

impl RxQueue for PacedRx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        self.queue.prepare(pool)
    }

    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let now = cycles::now();
        let begin = *self.begin.get_or_insert(now);
        let mut meter = lock(&self.meter);
        meter.busy += self.last.take().map_or(0, |last| now.saturating_sub(last));
        let arrived = (now.saturating_sub(begin) as f64 / self.every) as u64;
        let arrived = arrived / self.together * self.together;
        let lost = (arrived - self.taken).saturating_sub(RING);
        self.taken += lost;
        meter.lost += lost;
        let waiting = arrived - self.taken;
        if waiting == 0 {
            meter.arrived = arrived;
            return 0;
        }
        let before = batch.len();
        let count = self.queue.receive(pool, batch, max.min(waiting as usize));
        if count > 0 && self.taken + count as u64 > self.next_mark {
            let mut marked = lock(&self.marked);
            if marked.is_none() {
                let place = self.next_mark.saturating_sub(self.taken).min(count as u64 - 1);
                // The first one has arrived when one interval is over.
                let at = begin + ((self.taken + place + 1) as f64 * self.every) as u64;
                *marked = Some((batch.packets()[before + place as usize].chunk().addr().get(), at));
            }
            self.next_mark = self.taken + BETWEEN_MARKS;
        }
        self.taken += count as u64;
        meter.received += count as u64;
        meter.arrived = arrived;
        self.last = Some(now);
        count
    }

    fn stats(&self) -> QueueStats {
        self.queue.stats()
    }
}

struct PacedTx {
    queue: Box<dyn TxQueue>,
    meter: Arc<Mutex<Meter>>,
    marked: Arc<Mutex<Option<(usize, u64)>>>,
}

impl TxQueue for PacedTx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        self.queue.prepare(pool)
    }

    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let mark = *lock(&self.marked);
        let place = mark.and_then(|(address, at)| {
            Some((batch.iter().position(|packet| packet.chunk().addr().get() == address)?, at))
        });
        let sent = self.queue.send(pool, batch);
        if let Some((_, at)) = place.filter(|(place, _)| *place < sent) {
            lock(&self.meter).latencies.push(cycles::now().saturating_sub(at));
            *lock(&self.marked) = None;
        }
        sent
    }

    fn flush(&mut self, pool: &mut Pool) {
        self.queue.flush(pool);
    }

    fn stats(&self) -> QueueStats {
        self.queue.stats()
    }
}

/// Several ports as one, over which its queues are spread evenly.
pub(super) struct Joined(pub(super) Vec<Box<dyn Port>>);

impl Joined {
    /// Returns the port that has a queue of all, and its number there.
    fn place(&mut self, queue: usize) -> (&mut dyn Port, usize) {
        let ports = self.0.len();
        (&mut *self.0[queue % ports], queue / ports)
    }
}

impl Port for Joined {
    fn info(&self) -> PortInfo {
        let of_each: Vec<PortInfo> = self.0.iter().map(|port| port.info()).collect();
        PortInfo {
            rx_queues: of_each.iter().map(|info| info.rx_queues).sum(),
            tx_queues: of_each.iter().map(|info| info.tx_queues).sum(),
            ..of_each[0].clone()
        }
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        let (port, queue) = self.place(queue);
        port.take_rx(queue)
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        let (port, queue) = self.place(queue);
        port.take_tx(queue)
    }
}

/// A port whose transmit queues are all one, behind a lock: what workers do for whom a card has no queues of their own.
pub(super) struct Locked {
    port: Box<dyn Port>,
    tx_queues: usize,
    at_once: usize,
    queue: Option<Arc<Mutex<Box<dyn TxQueue>>>>,
}

impl Locked {
    /// Returns a port with so many handles of the first transmit queue of `port`. The lock is taken for at most `at_once` packets.
    pub(super) fn new(port: Box<dyn Port>, tx_queues: usize, at_once: usize) -> Locked {
        Locked { port, tx_queues, at_once, queue: None }
    }
}

impl Port for Locked {
    fn info(&self) -> PortInfo {
        PortInfo { tx_queues: self.tx_queues, ..self.port.info() }
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        self.port.take_rx(queue)
    }

    fn take_tx(&mut self, _queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        let queue = match &self.queue {
            Some(queue) => Arc::clone(queue),
            None => Arc::clone(self.queue.insert(Arc::new(Mutex::new(self.port.take_tx(0)?)))),
        };
        Ok(Box::new(LockedTx {
            queue,
            at_once: self.at_once,
            next: Batch::new(),
            stats: QueueStats::default(),
        }))
    }
}

struct LockedTx {
    queue: Arc<Mutex<Box<dyn TxQueue>>>,
    at_once: usize,
    /// What is sent under one lock.
    next: Batch,
    stats: QueueStats,
}

impl TxQueue for LockedTx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        lock(&self.queue).prepare(pool)
    }

    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let mut sent = 0;
        while !batch.is_empty() {
            let asked = batch.move_front(&mut self.next, self.at_once);
            let bytes: usize = self.next.iter().map(Packet::len).sum();
            let count = lock(&self.queue).send(pool, &mut self.next);
            self.stats.packets += count as u64;
            self.stats.bytes += (bytes - self.next.iter().map(Packet::len).sum::<usize>()) as u64;
            sent += count;
            if count < asked {
                // What is left goes back, before what follows it.
                batch.move_front(&mut self.next, MAX_BATCH);
                std::mem::swap(&mut self.next, batch);
                break;
            }
        }
        sent
    }

    fn flush(&mut self, pool: &mut Pool) {
        lock(&self.queue).flush(pool);
    }

    fn due_in_ns(&self) -> Option<u64> {
        lock(&self.queue).due_in_ns()
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::bench::{frames, routes};
    use packet::{PoolOptions, checksum};
    use ports::MemoryLoop;

    fn looped() -> Box<dyn Port> {
        Box::new(MemoryLoop::new(frames::templates(&routes::default_route(), 1, 64)))
    }

    fn pool() -> Pool {
        Pool::new(PoolOptions { frames: 512, ..PoolOptions::default() }).unwrap()
    }

    #[test]
    fn drawn_frames_have_right_checksums_and_all_their_networks() {
        let mut port = Drawn { port: looped(), bits: 3 };
        let (mut queue, mut pool) = (port.take_rx(0).unwrap(), pool());
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..10 {
            let mut batch = Batch::new();
            assert_eq!(queue.receive(&mut pool, &mut batch, 32), 32);
            for packet in batch.packets() {
                assert!(checksum::ipv4_header_valid(&packet.data()[14..34]));
                seen.insert(packet.data()[DESTINATION..DESTINATION + 4].to_vec());
            }
        }
        let expected: Vec<Vec<u8>> = (0..8).map(|network| vec![0, 0, network, 1]).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_packet_is_no_older_than_the_last_look_that_found_none() {
        let mut port = Paced::new(looped(), &[1e4], 1);
        let meter = Arc::clone(&port.meters[0]);
        let mut output = port.output(looped());
        let (mut queue, mut send, mut pool) = (port.take_rx(0).unwrap(), output.take_tx(0).unwrap(), pool());
        let mut batch = Batch::new();
        let mut last = cycles::now();
        let mut marked = 0;
        while marked < 5 {
            let now = cycles::now();
            if queue.receive(&mut pool, &mut batch, 32) == 0 {
                last = now;
                continue;
            }
            send.send(&mut pool, &mut batch);
            let age = lock(&meter).latencies.get(marked).copied();
            marked += usize::from(age.is_some());
            assert!(age.is_none_or(|age| age <= cycles::now() - last), "{age:?}");
            drop(std::mem::take(&mut batch));
        }
    }

    #[test]
    fn paced_frames_arrive_by_their_rate_or_are_lost() {
        let mut port = Paced::new(looped(), &[1e6], 4);
        let meter = Arc::clone(&port.meters[0]);
        let mut output = port.output(looped());
        let (mut queue, mut send, mut pool) = (port.take_rx(0).unwrap(), output.take_tx(0).unwrap(), pool());
        let begin = std::time::Instant::now();
        let mut batch = Batch::new();
        assert_eq!(queue.receive(&mut pool, &mut batch, 32), 0, "none has arrived at once");
        while lock(&meter).latencies.len() < 20 {
            queue.receive(&mut pool, &mut batch, 32);
            send.send(&mut pool, &mut batch);
            drop(std::mem::take(&mut batch));
        }
        let most = begin.elapsed().as_secs_f64() * 1e6 + 1.0;
        let Meter { arrived, lost, received, .. } = lock(&meter).clone();
        assert!(received as f64 <= most && received + lost <= arrived, "{received} + {lost} of {arrived}");
        assert!(arrived - received - lost <= RING, "no more wait than fit");
        assert!(arrived.is_multiple_of(4), "{arrived} do not come by fours");
        // Three rings at once: two are lost.
        std::thread::sleep(std::time::Duration::from_secs_f64(3.0 * RING as f64 / 1e6));
        queue.receive(&mut pool, &mut batch, 1);
        let after = lock(&meter).clone();
        assert!(after.lost - lost >= RING, "{after:?}");
    }

    #[test]
    fn queues_of_joined_ports_are_all_queues_of_the_ports() {
        let port = || Box::new(MemoryLoop::with_queues("loop", vec![vec![0; 64]], 2, 2)) as Box<dyn Port>;
        let mut joined = Joined(vec![port(), port()]);
        assert_eq!((joined.info().rx_queues, joined.info().tx_queues), (4, 4));
        for queue in 0..4 {
            assert!(joined.take_rx(queue).is_ok() && joined.take_tx(queue).is_ok(), "{queue}");
            assert!(joined.take_rx(queue).is_err(), "{queue} is taken");
        }
    }

    /// A transmit queue of one user, which has room for three packets at a time and then for none.
    struct Narrow {
        is_used: Arc<AtomicBool>,
        seen: Arc<Mutex<Vec<u8>>>,
        is_full: bool,
    }

    impl TxQueue for Narrow {
        fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
            assert!(!self.is_used.swap(true, Ordering::SeqCst), "two at once");
            let mut taken = Batch::new();
            self.is_full = !self.is_full;
            let count = if self.is_full { batch.move_front(&mut taken, 3) } else { 0 };
            lock(&self.seen).extend(taken.iter().map(|packet| packet.data()[0]));
            pool.free(&mut taken);
            self.is_used.store(false, Ordering::SeqCst);
            count
        }

        fn stats(&self) -> QueueStats {
            QueueStats::default()
        }
    }

    struct NarrowPort(Arc<Mutex<Vec<u8>>>);

    impl Port for NarrowPort {
        fn info(&self) -> PortInfo {
            looped().info()
        }

        fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
            looped().take_rx(queue)
        }

        fn take_tx(&mut self, _queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
            Ok(Box::new(Narrow { is_used: Arc::default(), seen: Arc::clone(&self.0), is_full: false }))
        }
    }

    #[test]
    fn a_locked_queue_sends_everything_once_in_order_and_for_one_worker_at_a_time() {
        const PACKETS: u8 = 200;
        for at_once in [1, 4, MAX_BATCH] {
            let seen = Arc::default();
            let mut port = Locked::new(Box::new(NarrowPort(Arc::clone(&seen))), 2, at_once);
            assert_eq!(port.info().tx_queues, 2);
            let queues = [port.take_tx(0).unwrap(), port.take_tx(1).unwrap()];
            std::thread::scope(|scope| {
                for (worker, mut queue) in (0..).zip(queues) {
                    scope.spawn(move || {
                        let (mut pool, mut batch) = (pool(), Batch::new());
                        let mut sent = 0;
                        for number in 0..PACKETS {
                            let mut packet = pool.allocate().unwrap();
                            packet.append(60).unwrap()[0] = number & 0x7f | worker << 7;
                            batch.push(packet);
                            sent += queue.send(&mut pool, &mut batch);
                        }
                        while !batch.is_empty() {
                            sent += queue.send(&mut pool, &mut batch);
                        }
                        assert_eq!((sent, queue.stats().packets), (PACKETS.into(), PACKETS.into()));
                        assert_eq!(queue.stats().bytes, u64::from(PACKETS) * 60);
                    });
                }
            });
            for worker in [0, 1] {
                let of_one = lock(&seen).clone().into_iter().filter(|mark| mark >> 7 == worker);
                let marks: Vec<u8> = of_one.map(|mark| mark & 0x7f).collect();
                assert_eq!(marks, (0..PACKETS).map(|number| number & 0x7f).collect::<Vec<_>>());
            }
        }
    }
}
