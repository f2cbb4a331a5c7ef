//! `rte_ring`s as ports: packets go from one graph to another, in this process or, with DPDK's shared memory
//! (`BRICKWAY_EAL="--file-prefix=NAME"` in the first, `"--proc-type=secondary --file-prefix=NAME"` in the others), in
//! another. They stay in their mbufs.
//!
//! A ring is made for the first port that names it and stays as long as DPDK's memory: other processes may be in it.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

use packet::wire::ethernet::MacAddr;
use packet::{Batch, MAX_BATCH, Pool};

use crate::dpdk::eal::{self, Huge};
use crate::dpdk::mbufs::{self, Intake, Line, Outlet, Reservation};
use crate::dpdk::queues::register;
use crate::dpdk::shim::{self, Ring};
use crate::{Handout, OpenOptions, Port, PortError, PortInfo, QueueStats, RxQueue, Spec, TxQueue};

/// Packets that a ring holds.
const DEFAULT_SLOTS: u64 = 1_024;
/// Mbufs that a ring's port may hold beside those in the ring.
const MORE_MBUFS: u32 = 4_096;
/// Longest frame: what an mbuf of the usual size holds.
const FRAME_BYTES: usize = 2_048;

/// What the queues of a ring share.
struct Shared {
    name: String,
    ring: NonNull<Ring>,
    mbufs: Reservation,
    warn: fn(&str),
}

#[allow(unsafe_code, reason = "a pointer to something that never goes away")]
// SAFETY: a ring is made for many producers and consumers, and is never freed.
unsafe impl Send for Shared {}
#[allow(unsafe_code, reason = "a pointer to something that never goes away")]
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A ring: what is sent to it can be received from it.
pub(crate) struct RingPort {
    name: String,
    rx: Handout<RingRx>,
    tx: Handout<RingTx>,
}

impl RingPort {
    pub(crate) fn open(spec: &mut Spec, options: &OpenOptions) -> Result<Self, PortError> {
        let name = spec.name().to_owned();
        if name.is_empty() {
            let problem = "the name of the ring is missing, as in `dpdk_ring:a`".to_owned();
            return Err(PortError::BadSpec { spec: spec.text().to_owned(), problem });
        }
        let slots = spec.take_number("slots", (2, 1 << 20))?.unwrap_or(DEFAULT_SLOTS) as u32;
        let node = spec.take_number("node", (0, 1_023))?.map_or(-1, |node| node as i32);
        let mbufs = slots + MORE_MBUFS;
        eal::start(&name, mbufs::pool_bytes(mbufs, FRAME_BYTES), Huge::Auto, options.warn)?;
        let c_name = CString::new(name.as_str()).expect("a spec has no NUL");
        let mut ring = std::ptr::null_mut();
        let _devices = eal::devices();
        eal::forget_log();
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: the name and the place for the result live for the call; node -1 is any.
        let result = unsafe { shim::brickway_dpdk_ring(c_name.as_ptr(), slots, node, &raw mut ring) };
        let Some(ring) = NonNull::new(ring) else {
            let reason = eal::because(result);
            return Err(eal::unsupported(&name, format!("a ring of {slots} slots cannot be made: {reason}")));
        };
        let mbufs = Reservation::make(&name, node, mbufs, FRAME_BYTES)?;
        let shared = Arc::new(Shared { name: name.clone(), ring, mbufs, warn: options.warn });
        // One consumer, so that packets stay in order.
        let receivers = (0..1).map(|_| RingRx::new(Arc::clone(&shared)));
        let senders = (0..options.tx_queues).map(|_| RingTx::new(Arc::clone(&shared)));
        Ok(Self {
            rx: Handout::new(&name, "receive", receivers),
            tx: Handout::new(&name, "transmit", senders),
            name,
        })
    }
}

impl Port for RingPort {
    fn info(&self) -> PortInfo {
        PortInfo {
            name: self.name.clone(),
            driver: "dpdk_ring",
            mac: MacAddr::ZERO,
            mtu: 1_500,
            rx_queues: self.rx.count(),
            tx_queues: self.tx.count(),
        }
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        Ok(Box::new(self.rx.take(queue)?))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        Ok(Box::new(self.tx.take(queue)?))
    }
}

struct RingRx {
    intake: Intake,
    stats: QueueStats,
    shared: Arc<Shared>,
}

impl RingRx {
    fn new(shared: Arc<Shared>) -> Self {
        let intake = Intake::new(&shared.mbufs, Line::cable());
        Self { intake, stats: QueueStats::default(), shared }
    }
}

impl RxQueue for RingRx {
    #[inline]
    fn receive(&mut self, _pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        register(&self.shared.name, self.shared.warn);
        let wanted = max.min(batch.room()).min(MAX_BATCH);
        #[allow(unsafe_code, reason = "the shim; mbufs become packets")]
        // SAFETY: the ring is there; the array has room for `wanted`; what comes out of a ring of mbufs is ours then.
        unsafe {
            let mbufs = self.intake.mbufs.as_mut_ptr();
            let count = shim::brickway_dpdk_ring_receive(self.shared.ring.as_ptr(), mbufs, wanted as u32);
            self.intake.add_to(count as usize, batch, &mut self.stats)
        }
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

struct RingTx {
    outlet: Outlet,
    stats: QueueStats,
    shared: Arc<Shared>,
}

impl RingTx {
    fn new(shared: Arc<Shared>) -> Self {
        Self { outlet: Outlet::new(FRAME_BYTES), stats: QueueStats::default(), shared }
    }
}

impl TxQueue for RingTx {
    #[inline]
    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        register(&self.shared.name, self.shared.warn);
        let ring = self.shared.ring.as_ptr();
        self.outlet.send(&self.shared.mbufs, pool, batch, &mut self.stats, |mbufs, count| {
            #[allow(unsafe_code, reason = "the shim")]
            // SAFETY: the ring is there; the first `count` mbufs are those of packets that the caller owns, and it
            // forgets those that were taken.
            unsafe {
                shim::brickway_dpdk_ring_send(ring, mbufs, count as u32) as usize
            }
        })
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}
