//! Packets for the host: what is sent to `host:eth1` Linux receives as if it had come in by eth1. Linux 6.6 or newer.
//!
//! It is the way of a router beside Linux to hand over what it does not finish: a TTL that has run out, a neighbour that
//! is not resolved, a packet to be cut into fragments. The kernel answers, resolves and cuts; it sees the interface the
//! packet really came in by, so its answers, filters, routing rules and reverse-path checks are right.
//!
//! ```text
//!   ToDevice(host:eth1)  --write-->  brickway0, a TAP device  --BPF program: off with the tag-->  enters by eth1
//! ```
//!
//! [`device`] is the TAP device and its program, [`passage`] what keeps such a frame from coming back to our own port on
//! eth1. The frame must be as it was received, with its Ethernet header: one to another link address is another host's,
//! for the kernel too.
//!
//! **Filters.** With `permitted=true` the packets carry a mark in the kernel ([`PERMITTED_MARK`]), by which a rule of the
//! packet filter knows those that the router's own filters have permitted. `checked=true` puts the same mark on packets where
//! nothing filters: Linux then opens their ESP without asking the router, and waits for no other fragments of theirs.
//!
//! **Limits.** A system call a packet; for what is rare that is enough. A frame that the kernel took may still be lost in
//! its backlog (`netdev_max_backlog`), without our knowing. A packet capture on eth1 sees the frame once more.

mod device;
pub(crate) mod passage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use packet::{Batch, Pool};
use rustix::io::Errno;

use crate::af_packet::ETHERNET_BYTES;
use crate::host::device::Device;
use crate::spec::option;
use crate::DriverDoc;

/// The driver, as specs name it.
pub(crate) static DRIVER: DriverDoc = DriverDoc {
    name: "host",
    what: "INTERFACE",
    help: "Linux receives what is sent as if it had come in by the interface (Linux 6.6 or newer)",
    options: &[
    option(
        "permitted",
        "yes|no",
        "mark packets as permitted by filters, so that Linux may forward them (default no)",
    ),
    option(
        "checked",
        "yes|no",
        "mark packets as checked by the router, so that Linux opens their ESP without asking it (default no)",
    )],
    open: |spec, options| Ok(Box::new(HostPort::open(spec, options)?)),
    ..DriverDoc::DEFAULT
};
pub(crate) use crate::host::device::drop_all;
#[cfg(test)]
pub(crate) use crate::host::device::dropping;
use crate::host::passage::Passage;
use crate::interface::Interface;
use crate::{Event, Handout, OpenOptions, Port, PortError, PortInfo, QueueStats, RxQueue, Spec, TxQueue};

/// The bit of a packet's mark that stands for `permitted=true` or `checked=true` (PERMITTED of `bpf/passage.h`).
pub const PERMITTED_MARK: u32 = 0x1000_0000;

/// The way into the host by an interface.
pub(crate) struct HostPort {
    info: PortInfo,
    target: Arc<Target>,
    tx: Handout<HostTx>,
}

impl HostPort {
    pub(crate) fn open(spec: &mut Spec, options: &OpenOptions) -> Result<Self, PortError> {
        let name = spec.name().to_owned();
        let permitted = spec.take_switch("permitted", false)? | spec.take_switch("checked", false)?;
        let interface = Interface::existing(&name)?;
        let (mac, mtu) = (interface.mac()?, interface.mtu()?);
        let target = Arc::new(Target::new(interface, &name, permitted)?);
        let senders = (0..options.tx_queues).map(|_| HostTx::new(Arc::clone(&target)));
        Ok(Self {
            tx: Handout::new(&name, "transmit", senders),
            info: PortInfo { name, driver: "host", mac, mtu, rx_queues: 0, tx_queues: options.tx_queues },
            target,
        })
    }
}

impl Port for HostPort {
    fn info(&self) -> PortInfo {
        let interface = &self.target.interface;
        let (mac, mtu) = (interface.mac().unwrap_or(self.info.mac), interface.mtu().unwrap_or(self.info.mtu));
        PortInfo { mac, mtu, ..self.info.clone() }
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        let port = self.info.name.clone();
        Err(PortError::NoSuchQueue { port, direction: "receive", queue, count: 0 })
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        Ok(Box::new(self.tx.take(queue)?))
    }

    fn details(&self) -> String {
        format!("packets for the host, by way of {}", self.target.device.name())
    }
}

/// The interface by which frames enter; shared by the port and its queues.
struct Target {
    device: Arc<Device>,
    interface: Interface,
    /// Our entry in the program's table.
    number: u16,
    /// Whether filters have permitted its packets.
    permitted: bool,
    /// The interface that the entry means; 0: none yet.
    index: AtomicU32,
}

impl Target {
    fn new(interface: Interface, name: &str, permitted: bool) -> Result<Self, PortError> {
        let device = Device::of_namespace(name)?;
        let number = device.take_target().ok_or_else(|| PortError::Unsupported {
            port: name.to_owned(),
            problem: "a process has at most 4095 `host:` ports in a network namespace".to_owned(),
        })?;
        Ok(Self { device, interface, number, permitted, index: AtomicU32::new(0) })
    }

    /// What frames need to enter by the interface now.
    fn look(&self) -> Result<Passage, Event> {
        let index = self.interface.index().map_err(|_| Event::PortGone)? as u32;
        if !self.interface.is_up().unwrap_or(false) {
            return Err(Event::LinkDown);
        }
        if self.index.load(Ordering::Relaxed) != index {
            // It is there for the first time, or again with another number.
            self.device.set_target(self.number, index).map_err(|_| Event::Refused)?;
            self.index.store(index, Ordering::Relaxed);
        }
        Ok(self.device.passage(index))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.device.free_target(self.number);
    }
}

struct HostTx {
    target: Arc<Target>,
    /// Packets between batch and pool within one call; empty between calls.
    sent: Batch,
    stats: QueueStats,
}

impl HostTx {
    fn new(target: Arc<Target>) -> Self {
        Self { target, sent: Batch::new(), stats: QueueStats::default() }
    }

    fn write(&self, passage: Passage, frame: &[u8]) -> Result<(), Event> {
        if frame.len() < ETHERNET_BYTES {
            return Err(Event::TooShort);
        }
        let Target { device, number, permitted, .. } = &*self.target;
        match device.write(*number, passage, *permitted, frame) {
            Ok(_) => Ok(()),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Err(Event::HostFull),
            Err(_) => Err(Event::Refused),
        }
    }
}

impl TxQueue for HostTx {
    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let count = batch.len();
        if count == 0 {
            return 0;
        }
        let passage = self.target.look();
        for packet in batch.iter() {
            match passage.and_then(|passage| self.write(passage, packet.data())) {
                Ok(()) => self.stats.packet(packet.len()),
                Err(event) => self.stats.add(event, 1),
            }
        }
        batch.move_front(&mut self.sent, count);
        pool.free(&mut self.sent);
        count
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

#[cfg(test)]
mod tests;
