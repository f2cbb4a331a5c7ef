//! =c
//! Divide()
//!
//! =s basicmod
//! divides packets in which several are merged
//!
//! =d
//! Hosts on the other end of a veth and virtual machines send frames in which many packets of TCP or
//! UDP are merged. Linux's GRO makes such frames too. FromDevice takes them whole (driver
//! C<af_packet>), and many elements work on them as on one packet. This element divides each into
//! the packets that it would be on a link. Others pass as they are.
//!
//! C<brickway run> and C<brickway click> put a Divide before each input that needs single packets.
//! Its name is that of the element behind it with C<@divide>. So a configuration seldom has to name
//! one.
//!
//! A packet whose pieces find no free frame is dropped in part, as "no frame for a piece".
//!
//! =a FromDevice, IPFragmenter

use std::any::Any;
use std::collections::VecDeque;

use graph::runs::Ordinary;
use graph::{Class, Combine, Context, Element, Get, Handler};
use packet::division::divide;
use packet::{Batch, Packet};

use crate::runs;

pub(crate) static CLASS: Class = Class {
    name: "Divide",
    capabilities: &[graph::KEEPS_ALL, graph::TAKES_MERGED, graph::DIVIDES],
    handlers: &[Handler::read(
        "divided",
        Combine::Sum,
        "Packets that were divided.",
        &Get(|e: &mut Divide| e.divided.to_string()),
    )],
    manual: graph::manual!("divide.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Divide::default()))
    },
    ..Class::DEFAULT
};

/// Divides packets. Pieces on their way out wait here: those that a pull had no room for stay.
#[derive(Default)]
pub struct Divide {
    divided: u64,
    pieces: VecDeque<Packet>,
}

impl Divide {
    /// Whether no pieces wait.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Moves all packets of a batch behind the pieces that wait, those that are merged in pieces.
    pub fn take(&mut self, cx: &mut Context, batch: &mut Batch) {
        for packet in batch.drain() {
            if !packet.is_merged() {
                self.pieces.push_back(packet);
                continue;
            }
            self.divided += 1;
            match divide(cx.pool(), &packet, |piece| self.pieces.push_back(piece)) {
                Ok(0) => {}
                Ok(missing) => cx.count_drop("no frame for a piece", missing),
                Err(_) => cx.count_drop("bad merged packet", packet.pieces()),
            }
            cx.pool().free_packet(packet);
        }
    }

    /// Moves pieces into a batch, up to `max`.
    pub fn give(&mut self, batch: &mut Batch, max: usize) {
        let count = max.min(batch.room()).min(self.pieces.len());
        self.pieces.drain(..count).for_each(|piece| batch.push(piece));
    }
}

impl Element for Divide {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.set_signal(true);
        Ok(())
    }

    // Batches with merged packets do not take runs.
    fn ordinary(&self) -> Option<Ordinary> {
        if self.pieces.is_empty() { runs::ordinary([]) } else { None }
    }

    /// Elements that pull ask this one alone, because the queues upstream may be empty while pieces wait here.
    fn notifies(&self) -> bool {
        true
    }

    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(std::mem::take(self)))
    }

    fn inherit(&mut self, _cx: &mut Context, left: Box<dyn Any + Send>) {
        if let Ok(left) = left.downcast::<Self>() {
            *self = *left;
        }
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if !batch.iter().any(Packet::is_merged) {
            return;
        }
        self.take(cx, batch);
        loop {
            self.give(batch, usize::MAX);
            if self.pieces.is_empty() {
                return;
            }
            cx.emit_batch(0, batch);
        }
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        if self.pieces.is_empty() {
            cx.pull(0, batch, max);
            if !batch.iter().any(Packet::is_merged) {
                return;
            }
            self.take(cx, batch);
        }
        self.give(batch, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::Bench;

    /// A merged datagram of UDP over IPv4, from its IP header on, of so many bytes in pieces of 100.
    fn merged(pool: &mut packet::Pool, bytes: usize) -> Packet {
        let mut packet = pool.allocate_large().unwrap();
        let length = 28 + bytes;
        let data = packet.reset_with_headroom(packet::pool::LARGE_HEADROOM, length).unwrap();
        data.fill(7);
        data[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        data[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        let first = packet.data_offset() as u16;
        packet.set_merged(packet::Merged {
            piece_bytes: 100,
            network: first,
            transport: first + 20,
            payload: first + 28,
        });
        packet
    }

    fn bench(config: &str) -> Bench {
        let mut bench = Bench::new(&crate::registry(), config);
        bench.pool().add_large(4).unwrap();
        bench
    }

    #[test]
    fn merged_packets_come_out_in_pieces_and_others_as_they_are() {
        let mut bench = bench("in :: TestInput -> d :: Divide -> out :: TestOutput");
        bench.push("in", &[b"abc"]);
        // More pieces than a batch holds.
        for (bytes, pieces) in [(250, 3), (60_000, 600)] {
            bench.taken("out");
            let packet = merged(bench.pool(), bytes);
            bench.push_packets("in", vec![packet]);
            let out = bench.taken("out");
            assert_eq!(out.len(), pieces);
            assert_eq!(out.iter().map(|piece| piece.len() - 28).sum::<usize>(), bytes);
        }
        assert_eq!(bench.read("d.divided"), "2");
    }

    #[test]
    fn pieces_without_frames_are_counted() {
        let mut bench = bench("in :: TestInput -> d :: Divide -> out :: TestOutput");
        let held: Vec<Packet> = std::iter::from_fn(|| bench.pool().allocate()).collect();
        let packet = merged(bench.pool(), 250);
        bench.push_packets("in", vec![packet]);
        assert_eq!(bench.drops("d", "no frame for a piece"), 3);
        drop(held);
    }
}
