//! Steering: which receive queue of a port a packet goes to, asked and changed while traffic flows.
//!
//! A card hashes the addresses of a packet, takes the lowest bits of the hash as the number of a bucket, and sends the
//! packet to the queue that its indirection table (RETA) names for this bucket. Flows move from queue to queue with
//! their buckets, so no flow is reordered but those of the buckets that move.

use std::net::Ipv4Addr;

use crate::PortError;

/// What a hash is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashFields {
    /// Source and destination address: fragments stay with their packet.
    Addresses,
    /// Addresses and the ports of TCP and UDP: spreads the connections between two hosts too.
    AddressesAndPorts,
}

/// The steering of a port that can be changed at run time.
pub trait Steering {
    /// The receive queue of each bucket.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] when the device has no such table.
    fn reta(&self) -> Result<Vec<u16>, PortError>;

    /// Gives each bucket a receive queue. `queues` has one for each bucket, as many as [`Steering::reta`] gave.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] when the device has no such table, the length is not its length, or it has not so
    /// many queues.
    fn set_reta(&mut self, queues: &[u16]) -> Result<(), PortError>;

    /// Changes the key of the hash (`None`: stays) and what is hashed.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] when the device cannot hash so, or its keys have another length.
    fn set_hash(&mut self, key: Option<&[u8]>, fields: HashFields) -> Result<(), PortError>;

    /// Sends the IPv4 packets to `prefix/length` to one queue, whatever their hash.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] when the device has no such rules, or not this one.
    fn steer_prefix(&mut self, prefix: Ipv4Addr, length: u8, queue: u16) -> Result<(), PortError>;
}
