//! The queues of a device.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packet::{Batch, MAX_BATCH, Pool};

use crate::dpdk::mbufs::{Intake, Line, Outlet};
use crate::dpdk::shim;
use crate::dpdk::eal;
use crate::dpdk::port::OpenDevice;
use crate::{Event, QueueStats, RxQueue, TxQueue};

/// A receive queue.
pub(super) struct DpdkRx {
    intake: Intake,
    port: u16,
    queue: u16,
    stats: QueueStats,
    device: Arc<OpenDevice>,
}

impl DpdkRx {
    pub(super) fn new(device: Arc<OpenDevice>, queue: u16, line: Line) -> Self {
        let intake = Intake::new(&device.mbufs, line);
        Self { intake, port: device.port, queue, stats: QueueStats::default(), device }
    }
}

/// Has the calling thread be one of DPDK's from its first look at a queue on, so that it has a cache of mbufs; queues may
/// go from thread to thread.
#[inline]
pub(super) fn register(name: &str, warn: fn(&str)) {
    thread_local! {
        static TRIED: Cell<bool> = const { Cell::new(false) };
    }
    if !TRIED.replace(true) {
        register_now(name, warn);
    }
}

#[cold]
fn register_now(name: &str, warn: fn(&str)) {
    if !eal::register_thread() {
        warn(&format!(
            "port {name}: DPDK does not take this worker in (it knows 128 threads, and none while processes share its \
             memory); it goes without a cache of mbufs, which is slower"
        ));
    }
}

impl RxQueue for DpdkRx {
    #[inline]
    fn receive(&mut self, _pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        register(&self.device.name, self.device.warn);
        let wanted = max.min(batch.room()).min(MAX_BATCH) as u16;
        #[allow(unsafe_code, reason = "the shim; mbufs become packets")]
        // SAFETY: the port is open as long as `device`, the queue is ours alone, the array has room for `wanted`; the
        // mbufs that came are ours then.
        unsafe {
            let mbufs = self.intake.mbufs.as_mut_ptr();
            let count = shim::brickway_dpdk_receive(self.port, self.queue, mbufs, wanted);
            self.intake.add_to(usize::from(count), batch, &mut self.stats)
        }
    }

    fn stats(&self) -> QueueStats {
        let mut stats = self.stats;
        if self.queue == 0 {
            let counts = self.device.counts();
            stats.add(Event::Missed, counts.missed);
            stats.add(Event::ReceiveError, counts.receive_errors);
            stats.add(Event::NoFrame, counts.no_mbuf);
        }
        stats
    }
}

/// A transmit queue.
pub(super) struct DpdkTx {
    outlet: Outlet,
    port: u16,
    queue: u16,
    /// The number among the queues that were asked for.
    number: usize,
    /// Set while somebody sends, when the device has fewer queues than were asked for and this one is shared.
    busy: Option<Arc<AtomicBool>>,
    stats: QueueStats,
    device: Arc<OpenDevice>,
}

impl DpdkTx {
    pub(super) fn new(
        device: Arc<OpenDevice>,
        number: usize,
        queue: u16,
        busy: Option<Arc<AtomicBool>>,
        longest: usize,
    ) -> Self {
        let (outlet, stats) = (Outlet::new(longest), QueueStats::default());
        Self { outlet, port: device.port, queue, number, busy, stats, device }
    }
}

impl TxQueue for DpdkTx {
    #[inline]
    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        register(&self.device.name, self.device.warn);
        let (port, queue, busy) = (self.port, self.queue, self.busy.as_deref());
        self.outlet.send(&self.device.mbufs, pool, batch, &mut self.stats, |mbufs, count| {
            if busy.is_some_and(|busy| busy.swap(true, Ordering::Acquire)) {
                return 0;
            }
            #[allow(unsafe_code, reason = "the shim")]
            // SAFETY: the port is open as long as `device`; the queue is ours alone, for now at least; the first
            // `count` mbufs are those of packets that the caller owns, and it forgets those that were taken.
            let sent = unsafe { shim::brickway_dpdk_send(port, queue, mbufs, count as u16) };
            if let Some(busy) = busy {
                busy.store(false, Ordering::Release);
            }
            usize::from(sent)
        })
    }

    fn stats(&self) -> QueueStats {
        let mut stats = self.stats;
        if self.number == 0 {
            stats.add(Event::SendError, self.device.counts().send_errors);
        }
        stats
    }
}
