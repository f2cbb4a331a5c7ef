//! The one element behind Queue, SimpleQueue, FrontDropQueue, MixedQueue and Click's other names for them: a ring of packets,
//! its counts and its handlers.
//! The classes differ in which packet goes when there is no room, and in whether tasks downstream are woken.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use graph::{Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::{Batch, Packet};

use super::length::QueueLength;

/// Packets that a queue holds unless the configuration says otherwise.
const DEFAULT_CAPACITY: usize = 1000;
/// Most packets that a queue may be asked to hold.
const MOST_CAPACITY: usize = 1 << 24;

/// Which packet goes when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// The one that comes.
    DropNew,
    /// The one that waits longest.
    DropOld,
}

/// Packets waiting, in order of arrival.
#[derive(Debug)]
pub(super) struct Storage {
    packets: VecDeque<Packet>,
    capacity: usize,
    overflow: Overflow,
    /// Whether tasks downstream are woken by packets, and sleep without.
    notifies: bool,
    highwater: usize,
    drops: u64,
    name: String,
    length: Arc<QueueLength>,
}

/// The handlers of queues in which the packet that comes finds no room.
pub(super) const HANDLERS: [Handler; 6] = handlers(
    "The CAPACITY argument. What does not fit a smaller one is dropped, newest first.",
    "Packets that found no room. Without an output 1 they are dropped as \"queue full\".",
);

/// The handlers of queues. The texts say what `capacity` and `drops` are in the class.
pub(super) const fn handlers(capacity: &'static str, drops: &'static str) -> [Handler; 6] {
    [
        Handler::read(
            "length",
            Combine::Sum,
            "Packets that wait now, in all workers.",
            &Get(|e: &mut Storage| e.packets.len().to_string()),
        ),
        Handler::read(
            "highwater_length",
            Combine::Max,
            "Most packets that ever waited at one worker.",
            &Get(|e: &mut Storage| e.highwater.to_string()),
        ),
        Handler::read_write(
            "capacity",
            Combine::First,
            capacity,
            &Get(|e: &mut Storage| e.capacity.to_string()),
            &Put(|e: &mut Storage, cx, value| e.set_capacity(cx, value)),
        ),
        Handler::read("drops", Combine::Sum, drops, &Get(|e: &mut Storage| e.drops.to_string())),
        Handler::write(
            "reset_counts",
            "Sets drops and highwater_length to zero.",
            &Put(|e: &mut Storage, _, _| {
                e.drops = 0;
                e.highwater = 0;
                Ok(())
            }),
        ),
        Handler::write(
            "reset",
            "Drops all packets that wait.",
            &Put(|e: &mut Storage, cx, _| {
                e.shrink(cx, 0, "queue reset");
                Ok(())
            }),
        ),
    ]
}

fn checked_capacity(capacity: usize) -> Result<usize, String> {
    if capacity > MOST_CAPACITY {
        return Err(format!("CAPACITY: expected 0 to {MOST_CAPACITY} packets, got {capacity}"));
    }
    Ok(capacity)
}

impl Storage {
    /// Reads the arguments of a queue.
    pub(super) fn from_setup(
        setup: &mut Setup<'_>,
        overflow: Overflow,
        notifies: bool,
    ) -> Result<Self, ConfigError> {
        let capacity = setup.arguments.optional("CAPACITY")?.unwrap_or(DEFAULT_CAPACITY);
        setup.arguments.finish()?;
        let capacity = checked_capacity(capacity)?;
        let length = QueueLength::of(setup.shared(), setup.name(), setup.copy().index);
        length.set_capacity(capacity);
        Ok(Self {
            packets: VecDeque::with_capacity(capacity),
            capacity,
            overflow,
            notifies,
            highwater: 0,
            drops: 0,
            name: setup.name().to_owned(),
            length,
        })
    }

    fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Takes in all of `batch`; what finds no room leaves by output 1 if there is one.
    #[inline]
    fn put(&mut self, cx: &mut Context, batch: &mut Batch) {
        if batch.len() <= self.capacity - self.packets.len() {
            self.packets.extend(batch.drain());
        } else {
            self.put_with_overflow(cx, batch);
        }
        self.highwater = self.highwater.max(self.packets.len());
        self.length.set_packets(self.packets.len());
    }

    #[inline(never)]
    fn put_with_overflow(&mut self, cx: &mut Context, batch: &mut Batch) {
        for packet in batch.drain() {
            if self.packets.len() < self.capacity {
                self.packets.push_back(packet);
                continue;
            }
            let victim = match self.overflow {
                Overflow::DropOld => match self.packets.pop_front() {
                    Some(oldest) => {
                        self.packets.push_back(packet);
                        oldest
                    }
                    None => packet,
                },
                Overflow::DropNew => packet,
            };
            self.overflow(cx, victim);
        }
    }

    /// Puts the packets of `batch` one by one before those that wait. Without room the packet that would be the last to
    /// leave goes.
    #[inline(never)]
    fn put_in_front(&mut self, cx: &mut Context, batch: &mut Batch) {
        for packet in batch.drain() {
            if self.packets.len() >= self.capacity {
                match self.packets.pop_back() {
                    Some(last) => self.overflow(cx, last),
                    None => {
                        self.overflow(cx, packet);
                        continue;
                    }
                }
            }
            self.packets.push_front(packet);
        }
        self.highwater = self.highwater.max(self.packets.len());
        self.length.set_packets(self.packets.len());
    }

    /// Sends on the packet that found, or made, no room.
    fn overflow(&mut self, cx: &mut Context, victim: Packet) {
        if self.drops == 0 && self.capacity > 0 {
            cx.message(&format!("{}: overflow", self.name));
        }
        self.drops += 1;
        cx.divert(1, victim, "queue full");
    }

    /// Gives up to `max` packets, oldest first.
    #[inline]
    fn take(&mut self, batch: &mut Batch, max: usize) {
        let count = max.min(self.packets.len()).min(batch.room());
        for packet in self.packets.drain(..count) {
            batch.push(packet);
        }
        self.length.set_packets(self.packets.len());
    }

    /// Takes another capacity. What does not fit a smaller one is dropped.
    fn set_capacity(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        self.capacity = checked_capacity(usize::from_value(value)?)?;
        self.length.set_capacity(self.capacity);
        self.shrink(cx, self.capacity, "queue made smaller");
        self.packets.reserve(self.capacity - self.packets.len());
        Ok(())
    }

    fn shrink(&mut self, cx: &mut Context, room: usize, reason: &'static str) {
        while self.packets.len() > room {
            let victim = match self.overflow {
                Overflow::DropNew => self.packets.pop_back(),
                Overflow::DropOld => self.packets.pop_front(),
            };
            if let Some(victim) = victim {
                cx.drop(victim, reason);
            }
        }
        self.length.set_packets(self.packets.len());
    }
}

impl Element for Storage {
    /// Of these classes only MixedQueue has a second input.
    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        if input == 0 {
            self.put(cx, batch);
        } else {
            self.put_in_front(cx, batch);
        }
        cx.set_signal(!self.is_empty());
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        self.take(batch, max);
        if self.is_empty() {
            cx.set_signal(false);
        }
    }

    fn notifies(&self) -> bool {
        self.notifies
    }

    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(std::mem::take(&mut self.packets)))
    }

    fn inherit(&mut self, cx: &mut Context, left: Box<dyn Any + Send>) {
        let Ok(mut packets) = left.downcast::<VecDeque<Packet>>() else { return };
        let mut batch = cx.spare_batch();
        while !packets.is_empty() {
            let count = packets.len().min(batch.room());
            packets.drain(..count).for_each(|packet| batch.push(packet));
            self.put(cx, &mut batch);
        }
        cx.recycle(batch);
        cx.set_signal(!self.is_empty());
    }
}
