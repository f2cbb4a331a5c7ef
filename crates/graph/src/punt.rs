//! =c
//! Punt([I<keyword> CAPACITY])
//!
//! =s threads
//! hands packets to the slow thread
//!
//! =d
//! Everything behind a Punt exists once, on the slow thread, with a transmit queue of its own on every port.
//! Use it in front of what is rare and slow: ICMP errors, fragmentation, address resolution.
//!
//! Packets cross over a bounded ring per worker, CAPACITY packets long (1,024 by default). When a ring is full
//! the packet is dropped and counted as "punt ring full"; the worker never waits. A graph that runs on one
//! thread alone passes packets straight on.
//!
//! =e
//!   ttl :: DecIPTTL
//!   ttl[1] -> Punt -> ICMPError(10.0.0.1, timeexceeded) -> [0]rt

#![allow(
    rustdoc::invalid_html_tags,
    rustdoc::broken_intra_doc_links,
    reason = "the manual is in Click's markup, for `brickway help`"
)]

use packet::sync::lock;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use packet::{Batch, Packet};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::context::Context;
use crate::element::{Class, ConfigError, Element, TaskStatus};
use crate::handler::{Combine, Get, Handler};
use crate::router::Waker;
use crate::setup::Setup;

/// The class `Punt`.
pub static CLASS: Class = Class {
    name: "Punt",
    capabilities: &[crate::KEEPS_ALL, crate::TAKES_MERGED],
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "length",
            Combine::Max,
            "Packets on their way.",
            &Get(|e: &mut End| e.length().to_string()),
        ),
        Handler::read(
            "capacity",
            Combine::First,
            "Packets that one ring holds.",
            &Get(|e: &mut End| e.capacity().to_string()),
        ),
    ],
    manual: crate::manual!("punt.rs"),
    make,
    ..Class::DEFAULT
};

/// Packets that a ring holds unless the configuration says otherwise.
const DEFAULT_CAPACITY: usize = 1024;

/// Both ends of all rings of one `Punt`, until the copies took them.
struct Rings {
    ends: Mutex<Vec<Ends>>,
}

/// Both ends of the ring of one worker.
type Ends = (Option<Producer<Packet>>, Option<Consumer<Packet>>);

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let capacity = setup.arguments.keyword_or("CAPACITY", DEFAULT_CAPACITY)?;
    setup.arguments.finish()?;
    if !(1..=1 << 20).contains(&capacity) {
        return Err(format!("CAPACITY: expected 1 to 1048576 packets, got {capacity}").into());
    }
    let copy = setup.copy();
    if !copy.slow_thread {
        return Ok(Box::new(End::Passage));
    }
    let rings = setup.shared_by_copies(|| {
        let ends = (0..copy.workers)
            .map(|_| {
                let (producer, consumer) = RingBuffer::new(capacity);
                (Some(producer), Some(consumer))
            })
            .collect();
        Ok::<_, ConfigError>(Rings { ends: Mutex::new(ends) })
    })?;
    let mut ends = lock(&rings.ends);
    if copy.is_slow() {
        let rings = ends.iter_mut().filter_map(|(_, consumer)| consumer.take()).collect();
        return Ok(Box::new(End::Far(Far { rings, capacity, next: 0 })));
    }
    let ring = ends
        .get_mut(copy.index)
        .and_then(|(producer, _)| producer.take())
        .ok_or_else(|| ConfigError::new("the ring of this worker is taken already"))?;
    let waker = setup.shared().get::<Waker>(&Waker::key(copy.workers));
    Ok(Box::new(End::Near(Near { ring, capacity, waker })))
}

/// What a copy of the graph has of a `Punt`.
enum End {
    /// There is one thread only.
    Passage,
    Near(Near),
    Far(Far),
}

/// The worker's end.
struct Near {
    ring: Producer<Packet>,
    capacity: usize,
    waker: Option<Arc<Waker>>,
}

/// The slow thread's end.
struct Far {
    rings: Vec<Consumer<Packet>>,
    capacity: usize,
    next: usize,
}

impl End {
    fn length(&self) -> usize {
        match self {
            Self::Passage => 0,
            Self::Near(near) => near.capacity - near.ring.slots(),
            Self::Far(far) => far.rings.iter().map(Consumer::slots).sum(),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Self::Passage => 0,
            Self::Near(Near { capacity, .. }) | Self::Far(Far { capacity, .. }) => *capacity,
        }
    }
}

impl Element for End {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if matches!(self, Self::Far(_)) {
            cx.wake();
        }
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let Self::Near(near) = self else { return };
        for packet in batch.drain() {
            if let Err(rtrb::PushError::Full(packet)) = near.ring.push(packet) {
                cx.drop(packet, "punt ring full");
            }
        }
        if let Some(waker) = &near.waker {
            waker.wake_if_asleep();
        }
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let Self::Far(far) = self else { return TaskStatus::Asleep };
        let mut left = cx.burst();
        // Start at another ring each time, so that a flooded worker does not starve the others.
        far.next = (far.next + 1) % far.rings.len().max(1);
        for offset in 0..far.rings.len() {
            let ring = (far.next + offset) % far.rings.len();
            while left > 0
                && let Ok(packet) = far.rings[ring].pop()
            {
                cx.emit(0, packet);
                left -= 1;
            }
        }
        if left < cx.burst() { TaskStatus::Busy } else { TaskStatus::Idle }
    }

    fn wait_fds<'a>(&'a self, _fds: &mut Vec<BorrowedFd<'a>>) -> bool {
        matches!(self, Self::Far(_))
    }

    fn has_handler(&self, _name: &str) -> bool {
        !matches!(self, Self::Passage)
    }
}
