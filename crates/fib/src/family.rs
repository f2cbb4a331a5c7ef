//! What a FIB and a policy have of each address family, for code that is written once for both.

use crate::{EditError, Fib, Policy, RangeTree, Rib, Rules, State, Table};
use packet::Family;
use std::hash::Hash;

/// A family's part of a [`Fib`] and of a [`Policy`]. `P` and `T4` are those of the FIB.
pub trait FibFamily: Family {
    /// The compiled table.
    type Table<T4: Table<u32>>: Table<Self>;

    /// The table of a VRF, by the index that [`Fib::vrf_index`] gave; `None` if there is no such VRF any more.
    fn table<P: Copy, T4: Table<u32>>(state: &State<P, T4>, vrf: usize) -> Option<&Self::Table<T4>>;

    /// The routes of the VRF with this table number.
    fn rib<P, T4>(fib: &Fib<P, T4>, table: u32) -> Option<&Rib<Self>>
    where
        P: Copy + Eq + Hash + Send + Sync,
        T4: Table<u32>;

    /// Takes all routes of the family from `rib`, in the place of those that the VRF has.
    ///
    /// # Errors
    ///
    /// As [`Fib::load4`].
    fn load<P, T4>(fib: &mut Fib<P, T4>, table: u32, rib: Rib<Self>) -> Result<(), EditError>
    where
        P: Copy + Eq + Hash + Send + Sync,
        T4: Table<u32>;

    /// The rules that choose among VRFs.
    fn rules(policy: &Policy) -> &Rules<Self>;
}

macro_rules! fib_family {
    ($address:ty, $table:ty, $tables:ident, $rib:ident, $load:ident) => {
        impl FibFamily for $address {
            type Table<T4: Table<u32>> = $table;

            #[inline(always)]
            fn table<P: Copy, T4: Table<u32>>(state: &State<P, T4>, vrf: usize) -> Option<&$table> {
                state.$tables(vrf)
            }

            fn rib<P, T4>(fib: &Fib<P, T4>, table: u32) -> Option<&Rib<Self>>
            where
                P: Copy + Eq + Hash + Send + Sync,
                T4: Table<u32>,
            {
                fib.$rib(table)
            }

            fn load<P, T4>(fib: &mut Fib<P, T4>, table: u32, rib: Rib<Self>) -> Result<(), EditError>
            where
                P: Copy + Eq + Hash + Send + Sync,
                T4: Table<u32>,
            {
                fib.$load(table, rib)
            }

            #[inline(always)]
            fn rules(policy: &Policy) -> &Rules<Self> {
                &policy.$tables
            }
        }
    };
}

fib_family!(u32, T4, ipv4, rib4, load4);
fib_family!(u128, RangeTree, ipv6, rib6, load6);
