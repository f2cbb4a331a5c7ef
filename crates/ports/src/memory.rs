//! A cable inside the process: two ports, joined by lock-free rings through which the packets themselves move.
//!
//! Both ends are opened by the same name. A transmit queue makes its ring when it is taken and leaves the far side of
//! it in the mailbox of a receive queue at the other end (queue `i` goes to receive queue `i` modulo their number), so
//! that each ring has one writer and one reader whatever the numbers of queues, and an end may be opened before,
//! after and again while the other stays. The mailbox has a lock, but a receive queue takes it only when its flag
//! says that there is something inside.

use packet::sync::lock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};

use packet::wire::ethernet::MacAddr;
use packet::{Batch, Packet, Pool};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::{Handout, OpenOptions, Port, PortError, PortInfo, QueueStats, RxQueue, Spec, TxQueue};
use crate::spec::option;
use crate::DriverDoc;

/// The driver, as specs name it.
pub(crate) static DRIVER: DriverDoc = DriverDoc {
    name: "memory",
    what: "CABLE",
    help: "a cable inside this process",
    options: &[
        option("end", "0|1", "which end of the cable (default 0)"),
        option("ring", "SLOTS", "packets that a queue holds (default 1024)"),
    ],
    open: |spec, options| Ok(Box::new(MemoryPort::open(spec, options)?)),
    ..DriverDoc::DEFAULT
};

const DEFAULT_RING: u64 = 1_024;

/// Rings on their way to a receive queue.
#[derive(Debug, Default)]
struct Mailbox {
    has_mail: AtomicBool,
    rings: Mutex<Vec<Consumer<Packet>>>,
}

impl Mailbox {
    fn put(&self, ring: Consumer<Packet>) {
        lock(&self.rings).push(ring);
        self.has_mail.store(true, Ordering::Release);
    }
}

/// One end of a cable, as the other end sees it.
#[derive(Debug, Default)]
struct End {
    open: bool,
    mailboxes: Vec<Arc<Mailbox>>,
    /// Rings made before this end was opened, with the number of their transmit queue.
    early: Vec<(usize, Consumer<Packet>)>,
}

/// Both ends of a cable.
#[derive(Debug, Default)]
struct Cable([Mutex<End>; 2]);

static CABLES: LazyLock<Mutex<HashMap<String, Weak<Cable>>>> = LazyLock::new(Mutex::default);

/// One end of a cable in memory.
pub(crate) struct MemoryPort {
    name: String,
    end: usize,
    ring: usize,
    plug: Arc<Plug>,
    rx: Handout<Arc<Mailbox>>,
    tx: Handout<()>,
}

/// Keeps an end taken while the port or one of its queues is there.
#[derive(Debug)]
struct Plug {
    cable: Arc<Cable>,
    end: usize,
}

impl Drop for Plug {
    fn drop(&mut self) {
        let mut end = lock(&self.cable.0[self.end]);
        *end = End::default();
    }
}

impl MemoryPort {
    pub(crate) fn open(spec: &mut Spec, options: &OpenOptions) -> Result<Self, PortError> {
        let end = spec.take_number("end", (0, 1))?.unwrap_or(0) as usize;
        let ring = spec.take_number("ring", (1, 1 << 20))?.unwrap_or(DEFAULT_RING) as usize;
        let name = spec.name().to_owned();
        let cable = {
            let mut cables = lock(&CABLES);
            cables.retain(|_, cable| cable.strong_count() > 0);
            let known = cables.get(&name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let cable = Arc::new(Cable::default());
                cables.insert(name.clone(), Arc::downgrade(&cable));
                cable
            })
        };
        let mailboxes: Vec<Arc<Mailbox>> = (0..options.rx_queues).map(|_| Arc::default()).collect();
        {
            let mut here = lock(&cable.0[end]);
            if here.open {
                let user = format!("another port of this process (end {end} of the cable)");
                return Err(PortError::InUse { port: spec.text().to_owned(), user });
            }
            here.open = true;
            here.mailboxes = mailboxes.clone();
            if !mailboxes.is_empty() {
                for (queue, ring) in std::mem::take(&mut here.early) {
                    mailboxes[queue % mailboxes.len()].put(ring);
                }
            }
        }
        Ok(Self {
            rx: Handout::new(&name, "receive", mailboxes),
            tx: Handout::new(&name, "transmit", (0..options.tx_queues).map(|_| ())),
            plug: Arc::new(Plug { cable, end }),
            name,
            end,
            ring,
        })
    }
}

impl Port for MemoryPort {
    fn info(&self) -> PortInfo {
        // Locally administered, the same at every start: a hash (FNV-1a) of the name, and the end.
        let hash = self
            .name
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let [a, b, c, d] = hash.to_be_bytes();
        PortInfo {
            name: self.name.clone(),
            driver: "memory",
            mac: MacAddr([2, a, b, c, d, self.end as u8]),
            mtu: 1_500,
            rx_queues: self.rx.count(),
            tx_queues: self.tx.count(),
        }
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        let mailbox = self.rx.take(queue)?;
        let plug = Arc::clone(&self.plug);
        Ok(Box::new(MemoryRx {
            mailbox,
            rings: Vec::new(),
            next: 0,
            stats: QueueStats::default(),
            _plug: plug,
        }))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        self.tx.take(queue)?;
        let plug = Arc::clone(&self.plug);
        let stats = QueueStats::default();
        Ok(Box::new(MemoryTx { queue, ring: self.ring, producer: None, waiting: Batch::new(), stats, plug }))
    }
}

struct MemoryRx {
    mailbox: Arc<Mailbox>,
    rings: Vec<Consumer<Packet>>,
    /// The ring to look at first, so that no sender starves another.
    next: usize,
    stats: QueueStats,
    _plug: Arc<Plug>,
}

impl MemoryRx {
    #[cold]
    fn open_mail(&mut self) {
        self.mailbox.has_mail.store(false, Ordering::Relaxed);
        let mut mail = lock(&self.mailbox.rings);
        self.rings.retain(|ring| !(ring.is_abandoned() && ring.is_empty()));
        self.rings.append(&mut mail);
    }
}

impl RxQueue for MemoryRx {
    #[inline]
    fn receive(&mut self, _pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        if self.mailbox.has_mail.load(Ordering::Acquire) {
            self.open_mail();
        }
        let wanted = max.min(batch.room());
        let mut received = 0;
        for _ in 0..self.rings.len() {
            self.next = if self.next + 1 < self.rings.len() { self.next + 1 } else { 0 };
            let ring = &mut self.rings[self.next];
            let count = ring.slots().min(wanted - received);
            let Ok(chunk) = ring.read_chunk(count) else { continue };
            for mut packet in chunk {
                // The sender's header positions and annotations end here, as on a real line.
                packet.clear_network_header();
                packet.annotations_mut().bytes_mut().fill(0);
                packet.set_link_header(0);
                let packet_type = crate::packet_type_on_a_cable(packet.data());
                packet.set_packet_type(packet_type);
                self.stats.packet(packet.len());
                batch.push(packet);
            }
            received += count;
        }
        received
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

struct MemoryTx {
    queue: usize,
    ring: usize,
    producer: Option<Producer<Packet>>,
    /// Packets between batch and ring within one call; empty between calls.
    waiting: Batch,
    stats: QueueStats,
    plug: Arc<Plug>,
}

impl MemoryTx {
    /// Makes a ring and leaves its far side at the other end: before the first packet, and after the other end went.
    #[cold]
    fn connect(&mut self) {
        let (producer, consumer) = RingBuffer::new(self.ring);
        let mut far = lock(&self.plug.cable.0[1 - self.plug.end]);
        if far.open && !far.mailboxes.is_empty() {
            far.mailboxes[self.queue % far.mailboxes.len()].put(consumer);
        } else {
            far.early.retain(|(queue, ring)| *queue != self.queue || !ring.is_abandoned());
            far.early.push((self.queue, consumer));
        }
        self.producer = Some(producer);
    }
}

impl TxQueue for MemoryTx {
    #[inline]
    fn send(&mut self, _pool: &mut Pool, batch: &mut Batch) -> usize {
        if self.producer.as_ref().is_none_or(Producer::is_abandoned) {
            self.connect();
        }
        let Some(producer) = &mut self.producer else { return 0 };
        let count = producer.slots().min(batch.len());
        batch.move_front(&mut self.waiting, count);
        for packet in self.waiting.iter() {
            self.stats.packet(packet.len());
        }
        let Ok(chunk) = producer.write_chunk_uninit(count) else { return 0 };
        chunk.fill_from_iter(self.waiting.drain())
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open;
    use crate::testing::{batch_of, contents, numbered_frame, pool};

    fn frames(range: std::ops::Range<u32>) -> Vec<Vec<u8>> {
        range.map(|number| numbered_frame(number, 60)).collect()
    }

    #[test]
    fn packets_cross_the_cable_in_order_and_frames_come_home() {
        let options = OpenOptions::default();
        let mut left = open("memory:cross", &options).unwrap();
        let (mut pool, mut other_pool, mut received) = (pool(64), pool(1), Batch::new());
        let mut tx = left.take_tx(0).unwrap();
        // Sent before the other end is there.
        let mut batch = batch_of(&mut pool, &frames(0..3));
        batch.packets_mut()[0].annotations_mut().set_paint(4);
        assert_eq!(tx.send(&mut pool, &mut batch), 3);
        let mut right = open("memory:cross?end=1", &options).unwrap();
        assert_ne!(left.info().mac, right.info().mac);
        let mut rx = right.take_rx(0).unwrap();
        let mut batch = batch_of(&mut pool, &frames(3..8));
        assert_eq!(tx.send(&mut pool, &mut batch), 5);
        assert_eq!(rx.receive(&mut other_pool, &mut received, 6), 6);
        assert_eq!(rx.receive(&mut other_pool, &mut received, 6), 2);
        assert_eq!(contents(&received), frames(0..8));
        assert_eq!(received.packets()[0].annotations().paint(), 0);
        assert_eq!(received.packets()[0].link_offset(), Some(0));
        drop(received);
        pool.refill();
        assert_eq!(pool.stats().free, 64);
        assert_eq!(rx.stats(), tx.stats());
    }

    #[test]
    fn a_full_ring_leaves_packets_in_the_batch() {
        let options = OpenOptions::default();
        let mut left = open("memory:full?ring=4", &options).unwrap();
        let mut right = open("memory:full?end=1", &options).unwrap();
        let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        let mut pool = pool(64);
        let mut batch = batch_of(&mut pool, &frames(0..6));
        assert_eq!(tx.send(&mut pool, &mut batch), 4);
        assert_eq!(contents(&batch), frames(4..6));
        assert_eq!(tx.send(&mut pool, &mut batch), 0);
        let mut received = Batch::new();
        assert_eq!(rx.receive(&mut pool, &mut received, 3), 3);
        assert_eq!(tx.send(&mut pool, &mut batch), 2);
        assert_eq!(rx.receive(&mut pool, &mut received, 32), 3);
        assert_eq!(contents(&received), frames(0..6));
    }

    #[test]
    fn any_numbers_of_queues_meet() {
        let mut left =
            open("memory:many", &OpenOptions { rx_queues: 1, tx_queues: 3, ..OpenOptions::default() })
                .unwrap();
        let mut right =
            open("memory:many?end=1", &OpenOptions { rx_queues: 2, ..OpenOptions::default() }).unwrap();
        let mut pool = pool(64);
        for queue in 0..3 {
            let mut batch = batch_of(&mut pool, &frames(queue..queue + 1));
            left.take_tx(queue as usize).unwrap().send(&mut pool, &mut batch);
        }
        for (queue, expected) in [(0, 2), (1, 1)] {
            let mut received = Batch::new();
            right.take_rx(queue).unwrap().receive(&mut pool, &mut received, 32);
            assert_eq!(received.len(), expected);
        }
    }

    #[test]
    fn an_end_is_one_ports_until_it_is_gone() {
        let options = OpenOptions::default();
        let mut first = open("memory:once", &options).unwrap();
        let error = open("memory:once", &options).err().unwrap();
        assert!(error.to_string().contains("already in use by another port of this process"), "{error}");
        let queue = first.take_rx(0).unwrap();
        assert!(matches!(first.take_rx(0), Err(PortError::QueueTaken { queue: 0, .. })));
        assert!(matches!(first.take_tx(1), Err(PortError::NoSuchQueue { queue: 1, count: 1, .. })));
        drop(first);
        assert!(open("memory:once", &options).is_err());
        drop(queue);
        open("memory:once", &options).unwrap();
    }

    #[test]
    fn an_end_can_be_opened_again_while_the_other_stays() {
        let options = OpenOptions::default();
        let mut left = open("memory:again", &options).unwrap();
        let mut tx = left.take_tx(0).unwrap();
        let mut pool = pool(16);
        for round in 0..3 {
            let mut right = open("memory:again?end=1", &options).unwrap();
            let mut rx = right.take_rx(0).unwrap();
            let mut batch = batch_of(&mut pool, &frames(round..round + 2));
            assert_eq!(tx.send(&mut pool, &mut batch), 2);
            let mut received = Batch::new();
            assert_eq!(rx.receive(&mut pool, &mut received, 32), 2);
            assert_eq!(contents(&received), frames(round..round + 2));
        }
    }
}
