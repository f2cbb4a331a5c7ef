//! The forwarding information base of a router: routes of both families in any number of VRFs, the tables compiled
//! from them and the next hops behind them, changed by one thread and read by many.
//!
//! ```
//! use fib::{Fib, NextHop, MAIN};
//!
//! let mut fib = Fib::<&str>::new()?;
//! let mut worker = fib.readers().register();
//!
//! let core = fib.next_hops_mut().add(NextHop::Forward("core"))?;
//! fib.insert(MAIN, "10.0.0.0/8".parse()?, core)?;
//! fib.insert(MAIN, "2001:db8::/32".parse()?, core)?;
//! fib.publish();
//!
//! let state = worker.enter(); // once for a batch of packets
//! let flow_hash = 7;
//! assert_eq!(state.lookup4(0, 0x0a00_0001, flow_hash), &NextHop::Forward("core"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who holds what
//!
//! ```text
//!  control thread: Fib                                        workers: Reader
//!  +--------------------------------------------------+      +---------------------------+
//!  | NextHops   Vrf: Rib IPv4, compiler               |change|  State, passive           |
//!  |                 Rib IPv6, compiler     (one each)|----->|    tables of each VRF     |
//!  +--------------------------------------------------+      |    resolver of next hops  |
//!                                                            +---------------------------+
//!                                                  publish   |  State, active            | <--- lookups
//!                                                            +---------------------------+
//! ```
//!
//! Changes gather until [`Fib::publish`]. Each goes to the RIB at once and is accepted or refused on its own. The table in the
//! passive state gets it with the others at the publication, so that what many of them change is compiled once; if it might
//! have no room, at once. [`Fib::publish`] makes the passive state the active one, for routes of both families, all VRFs and
//! next hops in one step: no worker ever sees half of the changes, or a route before its next hop. Then the other state
//! catches up by copying what has changed. How workers are kept from waiting, and why the other state is free to be
//! written when `publish` returns, stands in `publish.rs`.
//!
//! Nothing but [`Fib::publish`] makes a change visible, and nothing takes one back: tables are edited in place. To discard a
//! change, make the opposite one. Until the publication [`Fib::check`] finds that workers' tables are behind the routes.
//!
//! Routes hold their next hops: one that is in use cannot be removed, and a route to a number that is nobody's is
//! refused.

mod check;
mod edit;
mod put_off;
mod shared;

pub use check::{CheckReport, Mismatch, TableReport};

use crate::publish::{self, Readers, Writer};
use crate::{
    AnyCompiler, AnyTable, FibFamily, Kinds, NextHop, NextHopIndex, NextHops, Resolver, Rib, TableError,
};
use ipnet::IpNet;
use put_off::PutOff;
pub use shared::MOST_SHARED_RULES;
use shared::{Shared, SharedRules, SharedState};
use std::collections::BTreeMap;
use std::hash::Hash;

/// The number of the main table, as in Linux (`RT_TABLE_MAIN`). It always exists and has index 0.
pub const MAIN: u32 = 254;

/// The tables of one VRF.
struct Tables {
    ipv4: AnyTable<u32>,
    ipv6: AnyTable<u128>,
}

impl Tables {
    /// Tables without routes.
    fn new(kinds: Kinds) -> Result<Self, TableError> {
        Ok(Tables { ipv4: kinds.ipv4.make()?, ipv6: kinds.ipv6.make()? })
    }
}

/// What workers read; see [`crate::publish::Reader::enter`].
pub struct State<P> {
    /// By index of the VRF.
    vrfs: Vec<Option<Tables>>,
    resolver: Resolver<P>,
    /// What readers outside the process read beside the tables.
    shared: Option<SharedState>,
}

impl<P: Copy> State<P> {
    /// The IPv4 table of a VRF, by the index that [`Fib::vrf_index`] gave; `None` if there is no such VRF any more.
    #[inline]
    pub fn ipv4(&self, vrf: usize) -> Option<&AnyTable<u32>> {
        Some(&self.vrfs.get(vrf)?.as_ref()?.ipv4)
    }

    /// The IPv6 table of a VRF.
    #[inline]
    pub fn ipv6(&self, vrf: usize) -> Option<&AnyTable<u128>> {
        Some(&self.vrfs.get(vrf)?.as_ref()?.ipv6)
    }

    /// The next hops, for the numbers that the tables yield.
    #[inline]
    pub fn next_hops(&self) -> &Resolver<P> {
        &self.resolver
    }

    /// What happens to a packet to an IPv4 address (host order) in a VRF. For whole batches look up in
    /// [`State::ipv4`] first and resolve afterwards.
    #[inline]
    pub fn lookup4(&self, vrf: usize, address: u32, flow_hash: u32) -> &NextHop<P> {
        let index = self.ipv4(vrf).map_or(NextHopIndex::NONE, |table| table.lookup(address));
        self.resolver.resolve(index, flow_hash)
    }

    /// The same for IPv6.
    #[inline]
    pub fn lookup6(&self, vrf: usize, address: u128, flow_hash: u32) -> &NextHop<P> {
        let index = self.ipv6(vrf).map_or(NextHopIndex::NONE, |table| table.lookup(address));
        self.resolver.resolve(index, flow_hash)
    }
}

/// The routes of one family in one VRF, and what changes the tables compiled from them.
struct Half<A: FibFamily> {
    rib: Rib<A>,
    compiler: AnyCompiler,
    /// What the passive table does not have yet.
    put_off: PutOff<A>,
    /// Changed since the states were last equal.
    is_ahead: bool,
}

impl<A: FibFamily> Half<A> {
    /// No routes, for a table of this kind.
    fn new(table: &AnyTable<A>) -> Self {
        Half { rib: Rib::new(), compiler: table.new_compiler(), put_off: PutOff::default(), is_ahead: false }
    }
}

struct Vrf {
    index: usize,
    ipv4: Half<u32>,
    ipv6: Half<u128>,
}

impl Vrf {
    /// One without routes, for tables of these kinds.
    fn new(index: usize, tables: &Tables) -> Self {
        Vrf { index, ipv4: Half::new(&tables.ipv4), ipv6: Half::new(&tables.ipv6) }
    }
}

/// Why a change of the FIB was refused. Everything is then as before.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The change makes no sense for the routes that are there.
    #[error(transparent)]
    Rib(#[from] crate::RibError),
    /// The table has no room.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The route leads to a number that no next hop has.
    #[error("{prefix} is to go to next hop {}, which does not exist; add the next hop first", next_hop.get())]
    UnknownNextHop {
        /// The prefix of the route.
        prefix: IpNet,
        /// The number that nothing has.
        next_hop: NextHopIndex,
    },
    /// There is no such VRF.
    #[error("there is no VRF with table {table}; add it first")]
    UnknownVrf {
        /// The number of its table.
        table: u32,
    },
    /// There is such a VRF already.
    #[error("VRF with table {table} exists already")]
    VrfExists {
        /// The number of its table.
        table: u32,
    },
    /// The main table was to be removed.
    #[error("table {MAIN} is the main table and stays")]
    MainStays,
}

/// Routes, tables and next hops: the control side. See the top of its file.
///
/// `P` is what it takes to forward to a next hop, such as [`crate::Adjacency`].
pub struct Fib<P> {
    writer: Writer<State<P>>,
    readers: Readers<State<P>>,
    kinds: Kinds,
    vrfs: BTreeMap<u32, Vrf>,
    next_hops: NextHops<P>,
    /// What the older state is still to get or lose, by index of the VRF.
    vrfs_behind: Vec<(usize, Option<Tables>)>,
    has_unpublished: bool,
    /// The readers outside the process, if there are any.
    shared: Option<Shared<P>>,
    /// What these are to know of policy rules.
    shared_rules: SharedRules,
}

impl<P: Copy + Eq + Hash + Send + Sync> Fib<P> {
    /// A FIB with an empty main VRF and the usual tables.
    ///
    /// # Errors
    ///
    /// [`TableError`] if there is no memory for it.
    pub fn new() -> Result<Self, TableError> {
        Self::of_kinds(Kinds::default())
    }

    /// The same with tables of these kinds.
    ///
    /// # Errors
    ///
    /// As [`Fib::new`].
    pub fn of_kinds(kinds: Kinds) -> Result<Self, TableError> {
        let next_hops = NextHops::new();
        let tables = Tables::new(kinds)?;
        let main = Vrf::new(0, &tables);
        let state =
            |tables| State { vrfs: vec![Some(tables)], resolver: next_hops.resolver().clone(), shared: None };
        let (writer, readers) = publish::pair(state(tables), state(Tables::new(kinds)?));
        Ok(Fib {
            writer,
            readers,
            kinds,
            vrfs: BTreeMap::from([(MAIN, main)]),
            next_hops,
            vrfs_behind: Vec::new(),
            has_unpublished: false,
            shared: None,
            shared_rules: SharedRules::default(),
        })
    }

    /// Where workers get their readers.
    pub fn readers(&self) -> &Readers<State<P>> {
        &self.readers
    }

    /// What workers see now, for the thread that owns the FIB.
    pub fn state(&self) -> &State<P> {
        self.writer.active()
    }

    /// The kinds of all its tables.
    pub fn kinds(&self) -> Kinds {
        self.kinds
    }

    /// The next hops; change them through [`Fib::next_hops_mut`].
    pub fn next_hops(&self) -> &NextHops<P> {
        &self.next_hops
    }

    /// The numbers of the tables of all VRFs, ascending.
    pub fn tables(&self) -> impl Iterator<Item = u32> + '_ {
        self.vrfs.keys().copied()
    }

    /// The index by which workers find the VRF with this table. It stays while the VRF exists.
    pub fn vrf_index(&self, table: u32) -> Option<usize> {
        self.vrfs.get(&table).map(|vrf| vrf.index)
    }

    /// The IPv4 routes of a VRF.
    pub fn rib4(&self, table: u32) -> Option<&Rib<u32>> {
        self.vrfs.get(&table).map(|vrf| &vrf.ipv4.rib)
    }

    /// The IPv6 routes of a VRF.
    pub fn rib6(&self, table: u32) -> Option<&Rib<u128>> {
        self.vrfs.get(&table).map(|vrf| &vrf.ipv6.rib)
    }

    /// Publications so far.
    pub fn generation(&self) -> u64 {
        self.writer.generation()
    }
}
