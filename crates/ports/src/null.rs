//! The null port: gives nothing, takes everything.

use packet::wire::ethernet::MacAddr;
use packet::{Batch, Pool};

use crate::{Handout, OpenOptions, Port, PortError, PortInfo, QueueStats, RxQueue, Spec, TxQueue};
use crate::DriverDoc;

/// The driver, as specs name it.
pub(crate) static DRIVER: DriverDoc = DriverDoc {
    name: "null",
    what: "",
    help: "gives nothing, takes everything",
    options: &[],
    open: |spec, options| Ok(Box::new(NullPort::open(spec, options)?)),
    ..DriverDoc::DEFAULT
};

/// A port without a line.
pub(crate) struct NullPort {
    name: String,
    rx: Handout<Silence>,
    tx: Handout<Sink>,
}

impl NullPort {
    pub(crate) fn open(spec: &mut Spec, options: &OpenOptions) -> Result<Self, PortError> {
        let name = if spec.name().is_empty() { "null".to_owned() } else { spec.name().to_owned() };
        Ok(Self {
            rx: Handout::new(&name, "receive", (0..options.rx_queues).map(|_| Silence)),
            tx: Handout::new(&name, "transmit", (0..options.tx_queues).map(|_| Sink::default())),
            name,
        })
    }
}

impl Port for NullPort {
    fn info(&self) -> PortInfo {
        PortInfo {
            name: self.name.clone(),
            driver: "null",
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

/// A receive queue that never has a packet.
struct Silence;

impl RxQueue for Silence {
    fn receive(&mut self, _pool: &mut Pool, _batch: &mut Batch, _max: usize) -> usize {
        0
    }

    fn stats(&self) -> QueueStats {
        QueueStats::default()
    }
}

/// A transmit queue that frees all it gets.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    stats: QueueStats,
}

impl TxQueue for Sink {
    #[inline]
    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let count = batch.len();
        let mut bytes = 0;
        for packet in batch.iter() {
            bytes += packet.len() as u64;
        }
        self.stats.packets += count as u64;
        self.stats.bytes += bytes;
        pool.free(batch);
        count
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}
