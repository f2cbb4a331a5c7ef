//! Our tables as a router holds them: [`Fib`], that is routes, two copies of the compiled table and next hops, changed by
//! one thread and read by workers.
//!
//! A bench of a bare table would leave out what a router pays: the second copy, the publication, the step from a
//! number to a next hop. So all of ours are measured in this form.

use anyhow::{Context, Result, ensure};
use fib::{Adjacency, AnyTable, Fib, FibFamily, Kind, Kinds, MAIN, NextHop, NextHopIndex, Rib, State};

use super::tables::NEXT_HOPS;

/// Next hops of the routes and one more, which routes change to and fro: 1 to this number.
const FORWARDING: u16 = NEXT_HOPS + 1;
/// The number of the next hop that is the backup of all others.
pub(super) const BACKUP: u16 = FORWARDING + 1;
/// The index of the VRF with table [`MAIN`], which always exists.
const MAIN_INDEX: usize = 0;

/// The table that is measured in what a worker sees.
#[inline(always)]
pub(super) fn table<A: FibFamily>(state: &State<Adjacency>) -> &AnyTable<A> {
    A::table(state, MAIN_INDEX).expect("the main VRF always exists")
}

/// The next hop with this number; numbers of the bench are far below the largest.
pub(super) fn number(next_hop: u16) -> NextHopIndex {
    NextHopIndex::new(next_hop).expect("next hops of the bench are small")
}

/// A FIB with neighbours: next hop N is an Ethernet neighbour behind port N, which tells them apart. All of 1 to
/// `FORWARDING` have [`BACKUP`] as backup.
pub(super) struct Router<A: FibFamily> {
    pub(super) fib: Fib<Adjacency>,
    /// The kind of the table that is measured; that of the other family is the usual one.
    pub(super) kind: Kind<A>,
}

impl<A: FibFamily> Router<A> {
    /// No routes.
    pub(super) fn new(kind: Kind<A>) -> Result<Self> {
        let mut fib = Fib::of_kinds(A::with_kind(Kinds::default(), kind))?;
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
        Ok(Self { fib, kind })
    }

    /// Takes these routes in the place of those it has, up to their publication: both copies hold them then.
    pub(super) fn load(&mut self, routes: impl Iterator<Item = (A::Net, NextHopIndex)>) -> Result<()> {
        let mut rib = Rib::new();
        for (prefix, next_hop) in routes {
            rib.insert(prefix, next_hop)?;
        }
        A::load(&mut self.fib, MAIN, rib).context(self.kind.name())?;
        self.fib.publish();
        Ok(())
    }

    /// The table that workers see now.
    #[inline(always)]
    pub(super) fn table(&self) -> &AnyTable<A> {
        table::<A>(self.fib.state())
    }

    /// The routes.
    pub(super) fn rib(&self) -> &Rib<A> {
        A::rib(&self.fib, MAIN).expect("the main VRF always exists")
    }
}
