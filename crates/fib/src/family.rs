//! What a FIB and a policy have of each address family, for code that is written once for both.

use crate::{
    AnyTable, Byte24, EditError, Fib, Kind, Kinds, Policy, RangeTree, Rib, Rules, State, Table, TableKind,
};
use packet::Family;
use std::hash::Hash;

/// A family's part of a [`Fib`] and of a [`Policy`]. `P` is that of the FIB.
pub trait FibFamily: Family {
    /// The usual compiled table.
    type Table: Table<Self>;

    /// The table of a VRF, by the index that [`Fib::vrf_index`] gave; `None` if there is no such VRF any more.
    fn table<P: Copy>(state: &State<P>, vrf: usize) -> Option<&AnyTable<Self>>;

    /// The routes of the VRF with this table number.
    fn rib<P: Copy + Eq + Hash + Send + Sync>(fib: &Fib<P>, table: u32) -> Option<&Rib<Self>>;

    /// Takes all routes of the family from `rib`, in the place of those that the VRF has.
    ///
    /// # Errors
    ///
    /// As [`Fib::load4`].
    fn load<P: Copy + Eq + Hash + Send + Sync>(
        fib: &mut Fib<P>,
        table: u32,
        rib: Rib<Self>,
    ) -> Result<(), EditError>;

    /// The rules that choose among VRFs.
    fn rules(policy: &Policy) -> &Rules<Self>;

    /// The kind, if it is of this family.
    fn kind_of(kind: &TableKind) -> Option<&Kind<Self>>;

    /// These kinds, with another one for this family.
    fn with_kind(kinds: Kinds, kind: Kind<Self>) -> Kinds;
}

macro_rules! fib_family {
    ($address:ty, $table:ty, $tables:ident, $rib:ident, $load:ident, $kind:ident) => {
        impl FibFamily for $address {
            type Table = $table;

            #[inline(always)]
            fn table<P: Copy>(state: &State<P>, vrf: usize) -> Option<&AnyTable<Self>> {
                state.$tables(vrf)
            }

            fn rib<P: Copy + Eq + Hash + Send + Sync>(fib: &Fib<P>, table: u32) -> Option<&Rib<Self>> {
                fib.$rib(table)
            }

            fn load<P: Copy + Eq + Hash + Send + Sync>(
                fib: &mut Fib<P>,
                table: u32,
                rib: Rib<Self>,
            ) -> Result<(), EditError> {
                fib.$load(table, rib)
            }

            #[inline(always)]
            fn rules(policy: &Policy) -> &Rules<Self> {
                &policy.$tables
            }

            fn kind_of(kind: &TableKind) -> Option<&Kind<Self>> {
                if let TableKind::$kind(kind) = kind { Some(kind) } else { None }
            }

            fn with_kind(kinds: Kinds, kind: Kind<Self>) -> Kinds {
                Kinds { $tables: kind, ..kinds }
            }
        }
    };
}

fib_family!(u32, Byte24, ipv4, rib4, load4, Ipv4);
fib_family!(u128, RangeTree, ipv6, rib6, load6, Ipv6);
