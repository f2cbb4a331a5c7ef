//! Our tables as a router holds them: [`Fib`], that is routes, two copies of the compiled table and next hops, changed by
//! one thread and read by workers.
//!
//! A bench of a bare table would leave out what a router pays: the second copy, the publication, the step from a
//! number to a next hop. So all of ours are measured in this form. A [`Side`] says which of the two families and which
//! table; all else is written once.

use std::marker::PhantomData;

use anyhow::{Context, Result, ensure};
use fib::{
    Address, Adjacency, Byte24, EditError, Fib, MAIN, NextHop, NextHopIndex, RangeTree, Rib, State, Table,
};

use super::tables::NEXT_HOPS;

/// Next hops of the routes and one more, which routes change to and fro: 1 to this number.
const FORWARDING: u16 = NEXT_HOPS + 1;
/// The number of the next hop that is the backup of all others.
pub(super) const BACKUP: u16 = FORWARDING + 1;
/// The index of the VRF with table [`MAIN`], which always exists.
const MAIN_INDEX: usize = 0;

/// The table under measurement within a [`Fib`].
pub(super) trait Side<A: Address>: 'static {
    /// The IPv4 table; of a FIB that is measured for its IPv6 table the usual one.
    type Ipv4: Table<u32> + 'static;
    /// The table that is measured.
    type Table: Table<A>;

    /// The table in what a worker sees.
    fn table(state: &State<Adjacency, Self::Ipv4>) -> &Self::Table;

    /// Takes all routes from `rib`.
    fn load(fib: &mut Fib<Adjacency, Self::Ipv4>, rib: Rib<A>) -> Result<(), EditError>;

    /// The routes.
    fn rib(fib: &Fib<Adjacency, Self::Ipv4>) -> &Rib<A>;
}

/// The IPv4 side, with one of our tables.
pub(super) struct Ipv4<T>(PhantomData<T>);

impl<T: Table<u32> + 'static> Side<u32> for Ipv4<T> {
    type Ipv4 = T;
    type Table = T;

    #[inline(always)]
    fn table(state: &State<Adjacency, T>) -> &T {
        state.ipv4(MAIN_INDEX).expect("the main VRF always exists")
    }

    fn load(fib: &mut Fib<Adjacency, T>, rib: Rib<u32>) -> Result<(), EditError> {
        fib.load4(MAIN, rib)
    }

    fn rib(fib: &Fib<Adjacency, T>) -> &Rib<u32> {
        fib.rib4(MAIN).expect("the main VRF always exists")
    }
}

/// The IPv6 side.
pub(super) struct Ipv6;

impl Side<u128> for Ipv6 {
    type Ipv4 = Byte24;
    type Table = RangeTree;

    #[inline(always)]
    fn table(state: &State<Adjacency>) -> &RangeTree {
        state.ipv6(MAIN_INDEX).expect("the main VRF always exists")
    }

    fn load(fib: &mut Fib<Adjacency>, rib: Rib<u128>) -> Result<(), EditError> {
        fib.load6(MAIN, rib)
    }

    fn rib(fib: &Fib<Adjacency>) -> &Rib<u128> {
        fib.rib6(MAIN).expect("the main VRF always exists")
    }
}

/// The next hop with this number; numbers of the bench are far below the largest.
pub(super) fn number(next_hop: u16) -> NextHopIndex {
    NextHopIndex::new(next_hop).expect("next hops of the bench are small")
}

/// A FIB with neighbours: next hop N is an Ethernet neighbour behind port N, which tells them apart. All of 1 to
/// `FORWARDING` have [`BACKUP`] as backup.
pub(super) struct Router<A: Address, S: Side<A>> {
    pub(super) fib: Fib<Adjacency, S::Ipv4>,
}

impl<A: Address, S: Side<A>> Router<A, S> {
    /// No routes.
    pub(super) fn new() -> Result<Self> {
        let mut fib = Fib::new()?;
        for port in 1..=BACKUP {
            let [high, low] = port.to_be_bytes();
            // Locally administered addresses.
            let (neighbour, own) = ([2, 0, 0, 1, high, low], [2, 0, 0, 0, high, low]);
            let hop = NextHop::Forward(Adjacency::ethernet(port, neighbour, own, [0x08, 0x00]));
            let given = fib.next_hops_mut().add(hop)?;
            ensure!(given == number(port), "next hop {port} has number {}", given.get());
        }
        for protected in 1..=FORWARDING {
            fib.next_hops_mut().set_backup(number(protected), Some(number(BACKUP)))?;
        }
        fib.publish();
        Ok(Self { fib })
    }

    /// Takes these routes in the place of those it has, up to their publication: both copies hold them then.
    pub(super) fn load(&mut self, routes: impl Iterator<Item = (A::Net, NextHopIndex)>) -> Result<()> {
        let mut rib = Rib::new();
        for (prefix, next_hop) in routes {
            rib.insert(prefix, next_hop)?;
        }
        S::load(&mut self.fib, rib).with_context(|| S::Table::NAME)?;
        self.fib.publish();
        Ok(())
    }

    /// The table that workers see now.
    #[inline(always)]
    pub(super) fn table(&self) -> &S::Table {
        S::table(self.fib.state())
    }

    /// The routes.
    pub(super) fn rib(&self) -> &Rib<A> {
        S::rib(&self.fib)
    }
}
