//! Frames to and from the interface of a host.

use packet::{Batch, Pool, PoolOptions};
use ports::{OpenOptions, Port, RxQueue, TxQueue};

use crate::netns::Network;

/// The router's address on the link of host a, and that of the host.
pub(crate) const ROUTER: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub(crate) const HOST_A: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// The router's address on the link of host b.
pub(crate) const ROUTER_TO_B: [u8; 6] = [2, 0, 0, 0, 2, 1];

/// The interface of a host.
pub(crate) struct Wire {
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
    pool: Pool,
    // After its queues.
    _port: Box<dyn Port>,
}

impl Wire {
    /// That of the namespace of this label, `eth0`.
    pub(crate) fn open(network: &Network, label: &str) -> Wire {
        Self::open_with(network, label, "af_packet:eth0")
    }

    /// The same with options.
    pub(crate) fn open_with(network: &Network, label: &str, port: &str) -> Wire {
        let open = || ports::open(port, &OpenOptions::default()).unwrap();
        let mut port = network.namespace(label).enter(open);
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

/// A frame from host a to the router.
pub(crate) fn frame(kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&ROUTER[..], &HOST_A, &kind, packet].concat()
}
