//! Frames to and from an interface of a namespace.

use packet::{Batch, Pool, PoolOptions};
use ports::{OpenOptions, Port, RxQueue, TxQueue};
use testbed::Namespace;

/// An interface of which a test sends and receives the frames.
pub(crate) struct Wire {
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
    pool: Pool,
    // After its queues.
    _port: Box<dyn Port>,
}

impl Wire {
    /// Opens a port in a namespace, such as `af_packet:eth0`.
    pub(crate) fn open(namespace: &Namespace, port: &str) -> Wire {
        let open = || ports::open(port, &OpenOptions::default()).unwrap();
        let mut port = namespace.enter(open);
        let mut pool = Pool::new(PoolOptions::default()).unwrap();
        let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
        rx.prepare(&mut pool).unwrap();
        tx.prepare(&mut pool).unwrap();
        Wire { rx, tx, pool, _port: port }
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        let mut packet = self.pool.allocate().unwrap();
        assert!(packet.set_data(frame));
        let mut batch = Batch::new();
        batch.push(packet);
        while !batch.is_empty() {
            self.tx.send(&mut self.pool, &mut batch);
        }
    }

    /// What has come in since the last time.
    pub(crate) fn received(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut batch = Batch::new();
        loop {
            self.rx.receive(&mut self.pool, &mut batch, 32);
            if batch.is_empty() {
                return frames;
            }
            frames.extend(batch.iter().map(|packet| packet.data().to_vec()));
            self.pool.free(&mut batch);
        }
    }
}
