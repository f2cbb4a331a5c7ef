//! Frames looped from memory at full speed: the line of the benchmarks, and of `pcap:FILE?timing=loop`.
//!
//! Each queue has its own contiguous copy of its share of the templates, each at a multiple of 64 bytes, as is the
//! data of a fresh packet: a template is copied as whole cache lines, without a byte loop or a call. What is sent is
//! freed.

use std::sync::Arc;

use packet::wire::ethernet::MacAddr;
use packet::{Batch, PacketType, Pool, prefetch};

use crate::null::Sink;
use crate::{Event, Handout, Port, PortError, PortInfo, QueueStats, RxQueue, TxQueue};

const LINE: usize = 64;

/// A port that receives the same frames again and again, as fast as it is polled, and frees what it sends.
#[derive(Debug)]
pub struct MemoryLoop {
    name: String,
    driver: &'static str,
    mac: MacAddr,
    templates: Arc<[Vec<u8>]>,
    rx: Handout<()>,
    tx: Handout<Sink>,
}

impl MemoryLoop {
    /// A loop over `templates` (Ethernet frames of 1 to 32,000 bytes) with one queue in each direction.
    ///
    /// # Panics
    /// Without a template, or with one of another length: the caller made them.
    pub fn new(templates: Vec<Vec<u8>>) -> Self {
        Self::with_queues("memory_loop", templates, 1, 1)
    }

    /// A loop with several queues. Receive queue `q` of `n` has the templates whose number is `q` modulo `n`.
    ///
    /// # Panics
    /// As [`MemoryLoop::new`].
    pub fn with_queues(name: &str, templates: Vec<Vec<u8>>, rx_queues: usize, tx_queues: usize) -> Self {
        Self::looped(name, "memory_loop", templates, rx_queues, tx_queues)
    }

    pub(crate) fn looped(
        name: &str,
        driver: &'static str,
        templates: Vec<Vec<u8>>,
        rx_queues: usize,
        tx_queues: usize,
    ) -> Self {
        assert!(!templates.is_empty(), "a loop needs a frame");
        let fits = |template: &Vec<u8>| (1..=32_000).contains(&template.len());
        assert!(templates.iter().all(fits), "a frame has bytes and fits into a pool's frame");
        Self {
            name: name.to_owned(),
            driver,
            mac: MacAddr([2, 0, 0, 0, 0, 0xb0]),
            templates: templates.into(),
            rx: Handout::new(name, "receive", (0..rx_queues).map(|_| ())),
            tx: Handout::new(name, "transmit", (0..tx_queues).map(|_| Sink::default())),
        }
    }
}

impl Port for MemoryLoop {
    fn info(&self) -> PortInfo {
        let longest = self.templates.iter().map(Vec::len).max().unwrap_or(0);
        PortInfo {
            name: self.name.clone(),
            driver: self.driver,
            mac: self.mac,
            mtu: longest.max(1_514) - 14,
            rx_queues: self.rx.count(),
            tx_queues: self.tx.count(),
        }
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        self.rx.take(queue)?;
        Ok(Box::new(LoopRx::new(&self.templates, queue, self.rx.count())))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        Ok(Box::new(self.tx.take(queue)?))
    }
}

/// One template: where its lines are, how long it is.
#[derive(Clone, Copy, Debug)]
struct Template {
    first_line: u32,
    length: u16,
    packet_type: PacketType,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u8; LINE]);

#[derive(Debug)]
struct LoopRx {
    templates: Vec<Template>,
    lines: Vec<Line>,
    next: usize,
    stats: QueueStats,
}

impl LoopRx {
    fn new(all: &[Vec<u8>], queue: usize, queues: usize) -> Self {
        let (mut templates, mut lines) = (Vec::new(), Vec::new());
        // A queue without a share of its own loops over all.
        let (skip, step) = if queue < all.len() { (queue, queues) } else { (0, 1) };
        for bytes in all.iter().skip(skip).step_by(step) {
            templates.push(Template {
                first_line: lines.len() as u32,
                length: bytes.len() as u16,
                packet_type: crate::packet_type_on_a_cable(bytes),
            });
            for chunk in bytes.chunks(LINE) {
                let mut line = Line([0; LINE]);
                line.0[..chunk.len()].copy_from_slice(chunk);
                lines.push(line);
            }
        }
        Self { templates, lines, next: 0, stats: QueueStats::default() }
    }
}

impl RxQueue for LoopRx {
    #[inline]
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let before = batch.len();
        let count = pool.allocate_batch(batch, max);
        let mut next = self.next;
        let mut bytes = 0;
        let mut too_long = 0;
        for packet in &mut batch.packets_mut()[before..] {
            let template = self.templates[next];
            next += 1;
            if next == self.templates.len() {
                next = 0;
            }
            let length = usize::from(template.length);
            let line_count = length.div_ceil(LINE);
            let first = template.first_line as usize;
            let lines = &self.lines[first..first + line_count];
            let Some(data) = packet.reset(line_count * LINE) else {
                too_long += 1;
                continue;
            };
            let (chunks, _) = data.as_chunks_mut::<LINE>();
            for (chunk, line) in chunks.iter_mut().zip(lines) {
                *chunk = line.0;
            }
            packet.truncate(length);
            packet.set_link_header(0);
            packet.set_packet_type(template.packet_type);
            bytes += length as u64;
        }
        self.next = next;
        // A card writes what comes next into the cache while this burst is worked on; so does this.
        let coming = self.templates.iter().cycle().skip(next).take(count.min(self.templates.len()));
        for template in coming {
            prefetch(&self.lines[template.first_line as usize]);
        }
        let mut received = count;
        if too_long > 0 {
            received -= remove_empty(pool, batch, before);
            self.stats.add(Event::TooLong, too_long);
        }
        self.stats.packets += received as u64;
        self.stats.bytes += bytes;
        received
    }

    fn due_in_ns(&self) -> Option<u64> {
        Some(0)
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// Takes the packets behind the first `before` out that stayed without data: their template is longer than a frame
/// of this pool.
#[cold]
fn remove_empty(pool: &mut Pool, batch: &mut Batch, before: usize) -> usize {
    let (mut removed, mut index) = (0, 0);
    batch.extract(
        |packet| {
            index += 1;
            index <= before || packet.len() > 0
        },
        |packet| {
            removed += 1;
            pool.free_packet(packet);
        },
    );
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{contents, pool};

    fn templates(lengths: &[usize]) -> Vec<Vec<u8>> {
        lengths
            .iter()
            .enumerate()
            .map(|(number, &length)| (0..length).map(|byte| (number * 50 + byte) as u8).collect())
            .collect()
    }

    #[test]
    fn frames_come_round_to_the_byte() {
        let all = templates(&[60, 64, 65, 1514, 14]);
        let mut port = MemoryLoop::new(all.clone());
        let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
        let (mut pool, mut batch) = (pool(64), Batch::new());
        assert_eq!(rx.receive(&mut pool, &mut batch, 12), 12);
        let expected: Vec<Vec<u8>> = (0..12).map(|number| all[number % 5].clone()).collect();
        assert_eq!(contents(&batch), expected);
        assert!(batch.iter().all(|packet| packet.link_offset() == Some(0)));
        assert_eq!(tx.send(&mut pool, &mut batch), 12);
        assert_eq!((batch.len(), pool.stats().free), (0, 64));
        assert_eq!(tx.stats(), rx.stats());
        assert_eq!(rx.stats().bytes, expected.iter().map(|frame| frame.len() as u64).sum::<u64>());
    }

    #[test]
    fn queues_share_the_templates() {
        let all = templates(&[20, 21, 22, 23, 24]);
        let mut port = MemoryLoop::with_queues("loop", all.clone(), 2, 1);
        let (mut pool, mut batch) = (pool(64), Batch::new());
        port.take_rx(1).unwrap().receive(&mut pool, &mut batch, 3);
        assert_eq!(contents(&batch), [all[1].clone(), all[3].clone(), all[1].clone()]);
    }

    #[test]
    fn a_frame_too_long_for_the_pool_is_counted() {
        let mut port = MemoryLoop::new(templates(&[60, 3000]));
        let mut rx = port.take_rx(0).unwrap();
        let (mut pool, mut batch) = (pool(16), Batch::new());
        assert_eq!(rx.receive(&mut pool, &mut batch, 4), 2);
        assert_eq!((batch.len(), rx.stats().count(Event::TooLong), pool.stats().free), (2, 2, 14));
    }
}
