//! The trait that every compiled IPv4 table implements, and the errors of compiling.

use crate::{NextHopIndex, Rib4};
use ipnet::Ipv4Net;

/// How many addresses a batched lookup works on at once: enough that memory latencies overlap (a core has 20 to 60
/// outstanding loads), few enough that the addresses and their first-level results stay in the first-level cache.
pub const BURST: usize = 32;

/// Why a table cannot hold the routes.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The table's own structure is exhausted; its contents after this are those of no RIB until
    /// [`Table4::rebuild`] succeeds ([`crate::Fib4`] sees to that).
    #[error("{table} is full at {prefix}: {limit}; use fewer routes or another table")]
    Full {
        /// The table's name.
        table: &'static str,
        /// The route for which there was no room.
        prefix: Ipv4Net,
        /// What ran out, in words with its number.
        limit: &'static str,
    },
    /// The operating system gave no memory for it.
    #[error("{table} needs {bytes} bytes of address space, which the system refused: {source}")]
    Memory {
        /// The table's name.
        table: &'static str,
        /// How much was asked for.
        bytes: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A table compiled for longest-prefix match on IPv4 addresses.
///
/// It holds no routes, only answers. [`Table4::update`] brings it in line with a [`Rib4`] after a change there.
pub trait Table4: Send + Sync {
    /// The next hop of the longest prefix that contains `address` (host order), or [`NextHopIndex::NONE`].
    fn lookup(&self, address: u32) -> NextHopIndex;

    /// Looks up each of `addresses` (host order) and writes its next hop to the same place of `next_hops`. The
    /// answers are those of [`Table4::lookup`]; the memory accesses of up to [`BURST`] addresses overlap.
    ///
    /// # Panics
    ///
    /// If the two slices differ in length.
    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]);

    /// Brings the table in line after exactly the route at `prefix` was added to, changed in or removed from `rib`.
    /// The prefix has no host bits.
    ///
    /// # Errors
    ///
    /// [`TableError::Full`]; the table must then be rebuilt.
    fn update(&mut self, rib: &Rib4, prefix: Ipv4Net) -> Result<(), TableError>;

    /// Compiles the whole of `rib`, whatever the table held before.
    ///
    /// # Errors
    ///
    /// [`TableError::Full`].
    fn rebuild(&mut self, rib: &Rib4) -> Result<(), TableError>;

    /// Bytes of memory that the table occupies now, its free room included.
    fn memory_bytes(&self) -> usize;
}
