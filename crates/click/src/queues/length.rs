//! How long a queue is, for other elements to see: RED watches it, and a source stops pushing when it is full.
//!
//! Elements cannot see each other, so each copy of a queue leaves its length where the elements of the same
//! copy find it by the queue's name. One relaxed store a batch.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use graph::Capability;
use graph::setup::Shared;

/// The published length of one copy of a queue.
#[derive(Debug, Default)]
pub(crate) struct QueueLength {
    packets: AtomicUsize,
    capacity: AtomicUsize,
}

impl QueueLength {
    /// That of the queue `name` in the graph's copy `copy`; the first caller makes it.
    pub(crate) fn of(shared: &Shared, name: &str, copy: usize) -> Arc<Self> {
        match shared.get_or_make(&format!("queue:{name}:{copy}"), || Ok::<_, Infallible>(Self::default())) {
            Ok(length) => length,
        }
    }

    /// Packets in the queue.
    #[inline]
    pub(crate) fn packets(&self) -> usize {
        self.packets.load(Ordering::Relaxed)
    }

    /// Whether the queue is full.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.packets() >= self.capacity.load(Ordering::Relaxed)
    }

    pub(super) fn set_packets(&self, packets: usize) {
        self.packets.store(packets, Ordering::Relaxed);
    }

    pub(super) fn set_capacity(&self, capacity: usize) {
        self.capacity.store(capacity, Ordering::Relaxed);
    }
}

/// The element stores packets: its length can be watched.
pub(crate) const QUEUE: Capability = Capability("stores packets");

/// The element is a queue that sources wait for while it is full.
pub(crate) const TELLS_WHEN_FULL: Capability = Capability("tells when it is full");
