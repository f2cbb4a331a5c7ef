//! The trait that every compiled table implements, and the errors of compiling.

use crate::memory::available_memory;
use crate::region::Region;
use crate::{NextHopIndex, Rib};
use ipnet::IpNet;
use packet::Family;
use std::sync::Arc;

/// How many addresses a batched lookup works on at once: enough that memory latencies overlap (a core has 20 to 60
/// outstanding loads), few enough that the addresses and their first-level results stay in the first-level cache.
pub const BURST: usize = 32;

/// Why a table cannot hold the routes.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The table's own structure is exhausted; its contents after this are those of no RIB until
    /// [`Table::rebuild`] succeeds ([`crate::LocalFib`] and [`crate::Fib`] see to that).
    #[error("{table} is full at {prefix}: {limit}; use fewer routes or another table")]
    Full {
        /// The table's name.
        table: &'static str,
        /// The route for which there was no room.
        prefix: IpNet,
        /// What ran out, in words with its number.
        limit: &'static str,
    },
    /// There is less memory than the routes are likely to need.
    #[error(
        "{table} with {routes} routes needs about {} MB in two copies, and {} MB are free; it goes on with the routes it \
         has", needed.div_ceil(1_000_000), available / 1_000_000
    )]
    OutOfMemory {
        /// The table's name.
        table: &'static str,
        /// How many routes it was to get.
        routes: usize,
        /// Bytes needed for both copies.
        needed: usize,
        /// Bytes available.
        available: usize,
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

/// A table compiled for longest-prefix match on addresses of one family.
///
/// It holds no routes, only answers, and only what lookups read; what it takes to change it is in its
/// [`Table::Compiler`]. So a router can keep two copies of the table and one compiler: the compiler changes the copy
/// that nobody reads, the two are exchanged, and [`Table::catch_up`] repeats the changes by copying memory.
pub trait Table<A: Family>: Send + Sync + Sized + 'static {
    /// The table's name, in configurations and for people.
    const NAME: &'static str;

    /// Whether [`Table::relocate`] moves all that lookups read, and programs in the kernel know its form.
    const IS_SHARED: bool = false;

    /// What changes the table: the book of free room and of what has changed. It belongs to one table (or to one and
    /// its mirror image); [`Default`] is right for a new one.
    type Compiler: Default + Send + 'static;

    /// An empty table: all addresses have [`NextHopIndex::NONE`].
    ///
    /// # Errors
    ///
    /// [`TableError::Memory`].
    fn new() -> Result<Self, TableError>;

    /// The next hop of the longest prefix that contains `address` (host order), or [`NextHopIndex::NONE`].
    fn lookup(&self, address: A) -> NextHopIndex;

    /// Looks up each of `addresses` (host order) and writes its next hop to the same place of `next_hops`. The
    /// answers are those of [`Table::lookup`]; the memory accesses of up to [`BURST`] addresses overlap.
    ///
    /// # Panics
    ///
    /// If the two slices differ in length.
    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [NextHopIndex]) {
        assert_eq!(addresses.len(), next_hops.len(), "one place for each answer");
        for (&address, next_hop) in addresses.iter().zip(next_hops) {
            *next_hop = self.lookup(address);
        }
    }

    /// Brings the table in line after exactly the route at `prefix` was added to, changed in or removed from `rib`.
    /// The prefix has no host bits.
    ///
    /// # Errors
    ///
    /// [`TableError::Full`]; the table must then be rebuilt.
    fn update(
        &mut self,
        compiler: &mut Self::Compiler,
        rib: &Rib<A>,
        prefix: A::Net,
    ) -> Result<(), TableError>;

    /// The same after the routes at several prefixes were changed, in any order and each any number of times. `prefixes` has them
    /// in ascending order. Only for tables that [`Table::surely_fits`] says yes of.
    ///
    /// # Errors
    ///
    /// As [`Table::update`].
    fn update_all(
        &mut self,
        compiler: &mut Self::Compiler,
        rib: &Rib<A>,
        prefixes: &[A::Net],
    ) -> Result<(), TableError> {
        prefixes.iter().try_for_each(|&prefix| {
            packet::pulse::beat();
            self.update(compiler, rib, prefix)
        })
    }

    /// Whether a table for these routes is never full, so that it can be compiled later. `false`, if that is not known.
    fn surely_fits(_rib: &Rib<A>) -> bool {
        false
    }

    /// Compiles the whole of `rib`, whatever the table held before.
    ///
    /// # Errors
    ///
    /// [`TableError::Full`].
    fn rebuild(&mut self, compiler: &mut Self::Compiler, rib: &Rib<A>) -> Result<(), TableError>;

    /// Makes this table equal to `ahead`, given that it was equal to it when this was last called (or both were new),
    /// and that `compiler` has changed `ahead` since.
    fn catch_up(&mut self, compiler: &mut Self::Compiler, ahead: &Self);

    /// Moves what lookups read into a region, or out of all of them. What a region has no room for lies on huge pages. The
    /// tables that only this process reads stay where they are.
    ///
    /// # Errors
    ///
    /// [`TableError::Memory`]; the table is as before.
    fn relocate(&mut self, _region: Option<&Arc<Region>>) -> Result<(), TableError> {
        Ok(())
    }

    /// Returns where its arrays begin in a region, in bytes, in an order of its own; `None` if not all are there.
    fn places_in(&self, _region: &Arc<Region>) -> Option<[u32; 3]> {
        None
    }

    /// Calls `visit` with the first address and the next hop of each range that the table has in its memory, in
    /// ascending order from the lowest address on. Neighbours may have the same next hop.
    fn for_each_range(&self, visit: &mut dyn FnMut(A, NextHopIndex));

    /// Bytes of memory that lookups may read, free room between included.
    fn memory_bytes(&self) -> usize;

    /// Bytes that a table with this many routes is likely to occupy, if they are spread like those of the Internet.
    /// Tables of host routes can take some times as much.
    fn expected_bytes(routes: usize) -> usize;

    /// Whether the system has memory for two copies of a table with this many routes: better to know before than
    /// to be killed half-way.
    ///
    /// # Errors
    ///
    /// [`TableError::OutOfMemory`].
    fn check_memory(routes: usize) -> Result<(), TableError> {
        let needed = 2 * Self::expected_bytes(routes);
        match available_memory() {
            Some(available) if available < needed => {
                Err(TableError::OutOfMemory { table: Self::NAME, routes, needed, available })
            }
            _ => Ok(()),
        }
    }
}
