//! A bad line: the fault injector loses, damages, doubles, reorders and delays packets.
//!
//! What happens to the n-th packet of a queue depends on the seed, the queue and the options alone (but for `rate` and
//! `delay`, which follow the clock), so a run can be repeated. Delayed packets wait in a bounded queue; when it is full
//! the injector takes no more, and the port behind it sees a slow line, not a lossy one.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use packet::random::SplitMix64;
use packet::{Batch, Packet, Pool};

use crate::{Event, HostSteering, Port, PortError, PortInfo, QueueStats, RxQueue, Steering, TxQueue};

/// Packets that may wait in an injector.
const WAITING: usize = 4_096;

/// What a bad line does. Probabilities are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultOptions {
    /// Probability that a packet is lost.
    pub drop: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Probability that a packet comes twice.
    pub duplicate: f64,
    /// Probability that a packet is overtaken by the next.
    pub reorder: f64,
    /// How much later every packet comes.
    pub delay: Duration,
    /// Packets a second that pass; what comes faster is lost. A hundredth of a second's worth may come at once.
    pub rate: Option<u64>,
    /// Another seed, other packets.
    pub seed: u64,
}

impl Default for FaultOptions {
    fn default() -> Self {
        let delay = Duration::ZERO;
        Self { drop: 0.0, corrupt: 0.0, duplicate: 0.0, reorder: 0.0, delay, rate: None, seed: 1 }
    }
}

impl FaultOptions {
    /// Whether nothing would happen.
    pub fn is_harmless(&self) -> bool {
        *self == Self { seed: self.seed, ..Self::default() }
    }
}

/// In which directions a line is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultDirections {
    /// For received packets.
    pub rx: bool,
    /// For sent packets.
    pub tx: bool,
}

/// Puts a bad line before `port`.
pub fn with_faults(port: Box<dyn Port>, options: FaultOptions, directions: FaultDirections) -> Box<dyn Port> {
    Box::new(FaultPort { inner: port, options, directions })
}

struct FaultPort {
    inner: Box<dyn Port>,
    options: FaultOptions,
    directions: FaultDirections,
}

impl Port for FaultPort {
    fn info(&self) -> PortInfo {
        self.inner.info()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        let inner = self.inner.take_rx(queue)?;
        if !self.directions.rx {
            return Ok(inner);
        }
        let faults = Faults::new(self.options, 2 * queue as u64);
        Ok(Box::new(FaultRx { inner, faults, incoming: Batch::new(), stats: QueueStats::default() }))
    }

    fn set_carrier(&mut self, is_plugged: bool) -> Result<(), PortError> {
        self.inner.set_carrier(is_plugged)
    }

    fn has_link(&self) -> Option<bool> {
        self.inner.has_link()
    }

    fn steering(&mut self) -> Option<&mut dyn Steering> {
        self.inner.steering()
    }

    fn host(&mut self) -> Option<&mut dyn HostSteering> {
        self.inner.host()
    }

    fn open_anew(&mut self, tries: usize) -> Result<&'static str, PortError> {
        self.inner.open_anew(tries)
    }

    fn mode(&self) -> &'static str {
        self.inner.mode()
    }

    fn details(&self) -> String {
        self.inner.details()
    }

    fn set_promiscuous(&mut self) -> Result<(), PortError> {
        self.inner.set_promiscuous()
    }

    fn keep_from_linux(&mut self) -> Result<(), PortError> {
        self.inner.keep_from_linux()
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        let inner = self.inner.take_tx(queue)?;
        if !self.directions.tx {
            return Ok(inner);
        }
        let faults = Faults::new(self.options, 2 * queue as u64 + 1);
        Ok(Box::new(FaultTx { inner, faults, incoming: Batch::new(), outgoing: Batch::new() }))
    }
}

/// One queue's faults.
#[derive(Debug)]
struct Faults {
    options: FaultOptions,
    random: SplitMix64,
    started: Instant,
    /// Packets that may pass now, and when that was computed.
    credit: f64,
    credited_ns: u64,
    /// A packet that waits to be overtaken.
    held: Option<Packet>,
    /// Packets on the line, with the time at which they come out.
    waiting: VecDeque<(u64, Packet)>,
    stats: QueueStats,
}

impl Faults {
    fn new(options: FaultOptions, stream: u64) -> Self {
        let mut seed = SplitMix64::new(options.seed);
        let seed = seed.next_u64() ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Self {
            options,
            random: SplitMix64::new(seed),
            started: Instant::now(),
            credit: options.rate.map_or(0.0, burst),
            credited_ns: 0,
            held: None,
            waiting: VecDeque::with_capacity(WAITING),
            stats: QueueStats::default(),
        }
    }

    /// Nanoseconds since the start; the clock is read only when an option needs it.
    fn now_ns(&self) -> u64 {
        if self.options.rate.is_none() && self.options.delay.is_zero() {
            return 0;
        }
        self.started.elapsed().as_nanos() as u64
    }

    /// How many packets can go in: each may become two, and one may be held.
    fn room(&self) -> usize {
        (WAITING - self.waiting.len()).saturating_sub(2) / 2
    }

    /// Whether the line's rate lets one more packet through.
    fn within_rate(&mut self, now_ns: u64) -> bool {
        let Some(rate) = self.options.rate else { return true };
        let elapsed_ns = now_ns.saturating_sub(self.credited_ns);
        self.credit = (self.credit + elapsed_ns as f64 * 1e-9 * rate as f64).min(burst(rate));
        self.credited_ns = now_ns;
        if self.credit < 1.0 {
            return false;
        }
        self.credit -= 1.0;
        true
    }

    /// Puts one packet on the line.
    fn pass(&mut self, pool: &mut Pool, mut packet: Packet, now_ns: u64) {
        if !self.within_rate(now_ns) {
            self.stats.add(Event::FaultRate, 1);
            pool.free_packet(packet);
            return;
        }
        if self.random.fraction() < self.options.drop {
            self.stats.add(Event::FaultDrop, 1);
            pool.free_packet(packet);
            return;
        }
        let corrupt = self.random.fraction() < self.options.corrupt;
        let duplicate = self.random.fraction() < self.options.duplicate;
        let reorder = self.random.fraction() < self.options.reorder;
        let place = self.random.next_u64() as usize;
        if corrupt && packet.len() > 0 {
            let bit = place % (packet.len() * 8);
            packet.data_mut()[bit / 8] ^= 1 << (bit % 8);
            self.stats.add(Event::FaultCorrupt, 1);
        }
        let due_ns = now_ns.saturating_add(self.options.delay.as_nanos() as u64);
        let copy = if duplicate { pool.copy(&packet) } else { None };
        let overtaken = self.held.take();
        if reorder && overtaken.is_none() {
            self.stats.add(Event::FaultReorder, 1);
            self.held = Some(packet);
        } else {
            self.waiting.push_back((due_ns, packet));
        }
        if let Some(copy) = copy {
            self.stats.add(Event::FaultDuplicate, 1);
            self.waiting.push_back((due_ns, copy));
        }
        if let Some(packet) = overtaken {
            self.waiting.push_back((due_ns, packet));
        }
    }

    /// Lets a held packet go when nothing comes to overtake it.
    fn let_go(&mut self, now_ns: u64) {
        if let Some(packet) = self.held.take() {
            let due_ns = now_ns.saturating_add(self.options.delay.as_nanos() as u64);
            self.waiting.push_back((due_ns, packet));
        }
    }

    /// Takes up to `max` packets that are due off the line.
    fn arrive(&mut self, batch: &mut Batch, max: usize, now_ns: u64) -> usize {
        let max = max.min(batch.room());
        let mut count = 0;
        while count < max {
            match self.waiting.front() {
                Some((due_ns, _)) if *due_ns <= now_ns => {}
                _ => break,
            }
            let Some((_, packet)) = self.waiting.pop_front() else { break };
            batch.push(packet);
            count += 1;
        }
        count
    }

    /// Nanoseconds until a packet comes off the line.
    fn due_in_ns(&self) -> Option<u64> {
        if self.held.is_some() {
            return Some(0);
        }
        let (due_ns, _) = self.waiting.front()?;
        Some(due_ns.saturating_sub(self.now_ns()))
    }
}

fn burst(rate: u64) -> f64 {
    (rate as f64 / 100.0).max(1.0)
}

fn sooner(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

struct FaultRx {
    inner: Box<dyn RxQueue>,
    faults: Faults,
    /// Packets between the port and the line within one call; empty between calls.
    incoming: Batch,
    stats: QueueStats,
}

impl RxQueue for FaultRx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        self.inner.prepare(pool)
    }

    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let now_ns = self.faults.now_ns();
        let came = self.inner.receive(pool, &mut self.incoming, max.min(self.faults.room()));
        for packet in self.incoming.drain() {
            self.faults.pass(pool, packet, now_ns);
        }
        if came == 0 {
            self.faults.let_go(now_ns);
        }
        let first = batch.len();
        let count = self.faults.arrive(batch, max, now_ns);
        for packet in &batch.packets()[first..] {
            self.stats.packet(packet.len());
        }
        count
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn due_in_ns(&self) -> Option<u64> {
        sooner(self.faults.due_in_ns(), self.inner.due_in_ns())
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished() && self.faults.held.is_none() && self.faults.waiting.is_empty()
    }

    fn stats(&self) -> QueueStats {
        self.stats.with_events_of(&self.inner.stats()).with_events_of(&self.faults.stats)
    }
}

struct FaultTx {
    inner: Box<dyn TxQueue>,
    faults: Faults,
    /// Packets between batch and line within one call; empty between calls.
    incoming: Batch,
    /// Packets that came off the line and that the port did not take yet.
    outgoing: Batch,
}

impl FaultTx {
    fn pump(&mut self, pool: &mut Pool, now_ns: u64) {
        loop {
            self.faults.arrive(&mut self.outgoing, usize::MAX, now_ns);
            if self.outgoing.is_empty() || self.inner.send(pool, &mut self.outgoing) == 0 {
                return;
            }
        }
    }
}

impl TxQueue for FaultTx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        self.inner.prepare(pool)
    }

    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let now_ns = self.faults.now_ns();
        let count = self.faults.room().min(batch.len());
        batch.move_front(&mut self.incoming, count);
        for packet in self.incoming.drain() {
            self.faults.pass(pool, packet, now_ns);
        }
        self.pump(pool, now_ns);
        count
    }

    fn flush(&mut self, pool: &mut Pool) {
        let now_ns = self.faults.now_ns();
        self.faults.let_go(now_ns);
        self.pump(pool, now_ns);
        self.inner.flush(pool);
    }

    fn due_in_ns(&self) -> Option<u64> {
        let unsent = (!self.outgoing.is_empty()).then_some(0);
        sooner(sooner(self.faults.due_in_ns(), unsent), self.inner.due_in_ns())
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats().with_events_of(&self.faults.stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryLoop;
    use crate::testing::{batch_of, contents, numbered_frame, pool};
    use proptest::prelude::*;

    const RX: FaultDirections = FaultDirections { rx: true, tx: false };

    /// Receives `rounds` batches of 32 numbered frames through a bad line: the numbers, and the counts.
    fn received(options: FaultOptions, rounds: usize) -> (Vec<u32>, QueueStats) {
        let total = rounds as u32 * 32;
        let templates = (0..total).map(|number| numbered_frame(number, 60)).collect();
        let mut port = with_faults(Box::new(MemoryLoop::new(templates)), options, RX);
        let mut rx = port.take_rx(0).unwrap();
        let (mut pool, mut batch, mut numbers) = (pool(1_024), Batch::new(), Vec::new());
        for _ in 0..rounds {
            rx.receive(&mut pool, &mut batch, 32);
            for frame in contents(&batch) {
                numbers.push(u32::from_be_bytes([frame[14], frame[15], frame[16], frame[17]]));
            }
            pool.free(&mut batch);
        }
        (numbers, rx.stats())
    }

    #[test]
    fn the_same_seed_gives_the_same_line() {
        let options = FaultOptions { drop: 0.1, duplicate: 0.1, reorder: 0.1, ..FaultOptions::default() };
        let first = received(options, 20);
        assert_eq!(first, received(options, 20));
        assert_ne!(first.0, received(FaultOptions { seed: 2, ..options }, 20).0);
    }

    #[test]
    fn probabilities_are_kept() {
        let (numbers, stats) = received(FaultOptions { drop: 0.25, ..FaultOptions::default() }, 300);
        let dropped = stats.count(Event::FaultDrop);
        // 9,600 packets: the standard deviation is 42; six of them either way.
        assert!((2_400 - 255..2_400 + 255).contains(&dropped), "{dropped}");
        assert_eq!(numbers.len() as u64 + dropped, 9_600);
        assert_eq!(stats.dropped(), dropped);
        let (numbers, stats) = received(FaultOptions { drop: 1.0, ..FaultOptions::default() }, 2);
        assert_eq!((numbers.len(), stats.count(Event::FaultDrop)), (0, 64));
    }

    #[test]
    fn reordering_swaps_neighbours() {
        let (numbers, stats) = received(FaultOptions { reorder: 1.0, ..FaultOptions::default() }, 2);
        let expected: Vec<u32> = (0..64).map(|number| number ^ 1).collect();
        assert_eq!((numbers, stats.count(Event::FaultReorder)), (expected, 32));
    }

    #[test]
    fn corruption_changes_one_bit() {
        let options = FaultOptions { corrupt: 1.0, ..FaultOptions::default() };
        let mut faults = Faults::new(options, 0);
        let mut pool = pool(16);
        let frame = numbered_frame(1, 60);
        let mut batch = batch_of(&mut pool, &vec![frame.clone(); 10]);
        for packet in batch.drain() {
            faults.pass(&mut pool, packet, 0);
        }
        let mut out = Batch::new();
        assert_eq!(faults.arrive(&mut out, 32, 0), 10);
        for damaged in contents(&out) {
            let bits: u32 = damaged.iter().zip(&frame).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(bits, 1);
        }
    }

    #[test]
    fn delay_and_rate_follow_the_clock() {
        let options =
            FaultOptions { delay: Duration::from_millis(10), rate: Some(1_000), ..FaultOptions::default() };
        let mut faults = Faults::new(options, 0);
        let (mut pool, mut out) = (pool(64), Batch::new());
        let send = |faults: &mut Faults, pool: &mut Pool, now_ns| {
            let packet = batch_of(pool, &[numbered_frame(1, 60)]).pop().unwrap();
            faults.pass(pool, packet, now_ns);
        };
        // A burst of 10, then one a millisecond.
        for _ in 0..12 {
            send(&mut faults, &mut pool, 0);
        }
        assert_eq!(faults.stats.count(Event::FaultRate), 2);
        send(&mut faults, &mut pool, 1_000_000);
        assert_eq!(faults.stats.count(Event::FaultRate), 2);
        assert_eq!(faults.arrive(&mut out, 32, 9_999_999), 0);
        assert_eq!(faults.arrive(&mut out, 32, 10_000_000), 10);
        assert_eq!(faults.arrive(&mut out, 32, 11_000_000), 1);
    }

    #[test]
    fn a_sent_packet_is_let_go_by_a_flush() {
        let port = crate::open("memory:faulty?reorder=1&fault=tx", &crate::OpenOptions::default());
        let mut port = port.unwrap();
        let mut far = crate::open("memory:faulty?end=1", &crate::OpenOptions::default()).unwrap();
        let (mut tx, mut rx) = (port.take_tx(0).unwrap(), far.take_rx(0).unwrap());
        let (mut pool, mut out) = (pool(16), Batch::new());
        let mut batch = batch_of(&mut pool, &[numbered_frame(1, 60)]);
        assert_eq!(tx.send(&mut pool, &mut batch), 1);
        assert_eq!(rx.receive(&mut pool, &mut out, 32), 0);
        assert_eq!(tx.due_in_ns(), Some(0));
        tx.flush(&mut pool);
        assert_eq!(rx.receive(&mut pool, &mut out, 32), 1);
        assert_eq!(tx.due_in_ns(), None);
    }

    #[test]
    fn a_slow_port_pushes_back_through_the_line() {
        let mut port =
            crate::open("memory:slow?ring=4&duplicate=1&fault=tx", &crate::OpenOptions::default()).unwrap();
        let mut tx = port.take_tx(0).unwrap();
        let mut pool = pool(16_384);
        let mut taken = 0;
        loop {
            let mut batch = batch_of(&mut pool, &vec![numbered_frame(1, 60); 32]);
            let count = tx.send(&mut pool, &mut batch);
            taken += count as u64;
            let left = batch.len();
            pool.free(&mut batch);
            assert_eq!(count + left, 32);
            if count == 0 {
                break;
            }
        }
        assert!(taken > 1_000);
        assert_eq!((tx.stats().packets, tx.stats().dropped()), (4, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_packet_is_accounted_for(
            drop in 0.0..1.0, duplicate in 0.0..1.0, reorder in 0.0..1.0, corrupt in 0.0..1.0, seed in any::<u64>(),
        ) {
            let options = FaultOptions { drop, duplicate, reorder, corrupt, seed, ..FaultOptions::default() };
            let mut faults = Faults::new(options, 0);
            let (mut pool, mut out) = (pool(512), Batch::new());
            let frames: Vec<Vec<u8>> = (0..100).map(|number| numbered_frame(number, 60)).collect();
            let mut batch = batch_of(&mut pool, &frames);
            for packet in batch.drain() {
                faults.pass(&mut pool, packet, 0);
            }
            faults.let_go(0);
            let arrived = faults.arrive(&mut out, 256, 0) as u64;
            let stats = faults.stats;
            let expected = 100 - stats.count(Event::FaultDrop) + stats.count(Event::FaultDuplicate);
            prop_assert_eq!(arrived, expected);
            pool.free(&mut out);
            prop_assert_eq!(pool.stats().free, 512);
        }
    }
}
