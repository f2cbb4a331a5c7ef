//! The driver `clockwork:COUNT`: a port that gives so many packets, of 60 bytes with a number each, and takes everything.

use packet::wire::ethernet::MacAddr;
use packet::{Batch, Pool};
use ports::{DriverDoc, Port, PortError, PortInfo, QueueStats, RxQueue, TxQueue};

/// The driver, as the specs of ports name it.
pub static DRIVER: DriverDoc = DriverDoc {
    name: "clockwork",
    what: "COUNT",
    help: "gives COUNT packets with a number each, and takes everything",
    options: &[],
    open: |spec, _| {
        let name = spec.name().to_owned();
        let expected =
            || PortError::Unsupported { port: name.clone(), problem: "expected clockwork:COUNT".into() };
        Ok(Box::new(Clockwork { left: Some(name.parse().map_err(|_| expected())?), name }))
    },
    ..DriverDoc::DEFAULT
};

const FRAME_BYTES: usize = 60;

struct Clockwork {
    name: String,
    left: Option<u64>,
}

impl Port for Clockwork {
    fn info(&self) -> PortInfo {
        let (driver, mac) = ("clockwork", MacAddr([2, 0, 0, 0, 0, 1]));
        PortInfo { name: self.name.clone(), driver, mac, mtu: 1500, rx_queues: 1, tx_queues: 1 }
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        match self.left.take() {
            Some(left) if queue == 0 => Ok(Box::new(Ticks { left, stats: QueueStats::default() })),
            _ => Err(PortError::Unsupported {
                port: self.name.clone(),
                problem: "it has one receive queue".into(),
            }),
        }
    }

    fn take_tx(&mut self, _queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        Ok(Box::new(Sink(QueueStats::default())))
    }
}

struct Ticks {
    left: u64,
    stats: QueueStats,
}

impl RxQueue for Ticks {
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let count = pool.allocate_batch(batch, max.min(usize::try_from(self.left).unwrap_or(max)));
        let first = batch.len() - count;
        for packet in &mut batch.packets_mut()[first..] {
            if let Some(data) = packet.reset(FRAME_BYTES) {
                data.fill(0);
                data[FRAME_BYTES - 8..].copy_from_slice(&self.left.to_be_bytes());
            }
            self.left -= 1;
        }
        self.stats.packets += count as u64;
        self.stats.bytes += (count * FRAME_BYTES) as u64;
        count
    }

    fn stats(&self) -> QueueStats {
        self.stats.clone()
    }
}

struct Sink(QueueStats);

impl TxQueue for Sink {
    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let count = batch.len();
        self.0.packets += count as u64;
        pool.free(batch);
        count
    }

    fn stats(&self) -> QueueStats {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::PoolOptions;
    use ports::OpenOptions;

    #[test]
    fn it_gives_its_packets_and_no_more() {
        static DRIVERS: &[&DriverDoc] = &[&DRIVER];
        ports::add_drivers(DRIVERS);
        let mut port = ports::open("clockwork:5", &OpenOptions::default()).unwrap();
        let (mut rx, mut pool, mut batch) =
            (port.take_rx(0).unwrap(), Pool::new(PoolOptions::default()).unwrap(), Batch::new());
        assert_eq!((rx.receive(&mut pool, &mut batch, 3), rx.receive(&mut pool, &mut batch, 3)), (3, 2));
        assert_eq!(rx.receive(&mut pool, &mut batch, 3), 0);
        let numbers: Vec<u8> = batch.iter().map(|packet| packet.data()[FRAME_BYTES - 1]).collect();
        assert_eq!((numbers, rx.stats().packets), (vec![5, 4, 3, 2, 1], 5));
        assert!(ports::open("clockwork:many", &OpenOptions::default()).is_err());
    }
}
