//! The kinds of tables there are, by name: ours, and those of the program around this library.
//!
//! ```
//! use fib::{Fib, Kind, Kinds};
//!
//! let kinds = Kinds { ipv4: Kind::named("rank")?, ..Kinds::default() };
//! let mut fib = Fib::<&str>::of_kinds(kinds)?;
//! assert_eq!(fib.check().tables[0].name, "rank");
//! assert_eq!(
//!     Kind::<u128>::named("rank").unwrap_err().to_string(),
//!     "'rank' is not an IPv6 table; expected range_tree or linear"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{AnyTable, FibFamily, Linear, Table, TableError};
use packet::IpVersion;
use std::fmt;
use std::sync::OnceLock;

/// A kind of table, by its name ([`Table::NAME`]).
#[derive(Clone, Copy)]
pub struct Kind<A: FibFamily> {
    name: &'static str,
    is_shared: bool,
    new: fn() -> Result<AnyTable<A>, TableError>,
}

impl<A: FibFamily> Kind<A> {
    /// The kind of tables of this type.
    pub const fn of<T: Table<A>>() -> Self {
        Self { name: T::NAME, is_shared: T::IS_SHARED, new: || T::new().map(AnyTable::new) }
    }

    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether readers outside the process can read its tables ([`Table::IS_SHARED`]).
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Makes an empty table.
    pub(crate) fn make(&self) -> Result<AnyTable<A>, TableError> {
        (self.new)()
    }

    /// Returns all of the family: ours, the usual one first, then those of [`add_tables`].
    pub fn all() -> impl Iterator<Item = Self> {
        let more = MORE.get().copied().unwrap_or_default();
        OURS.iter().chain(more).filter_map(|kind| A::kind_of(kind)).copied()
    }

    /// Returns the kind of this name.
    ///
    /// # Errors
    ///
    /// [`UnknownTable`]
    pub fn named(name: &str) -> Result<Self, UnknownTable> {
        Self::all().find(|kind| kind.name == name).ok_or_else(|| UnknownTable {
            name: name.to_owned(),
            family: A::VERSION,
            known: Self::all().map(|kind| kind.name).collect(),
        })
    }
}

/// The family's usual table.
impl<A: FibFamily> Default for Kind<A> {
    fn default() -> Self {
        Self::of::<A::Table>()
    }
}

/// A name is that of one kind.
impl<A: FibFamily> PartialEq for Kind<A> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<A: FibFamily> fmt::Debug for Kind<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The name of a table that the program does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTable {
    /// The name.
    pub name: String,
    /// The family for which a table was wanted.
    pub family: IpVersion,
    /// The names of those there are.
    pub known: Vec<&'static str>,
}

impl fmt::Display for UnknownTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, family, known } = self;
        let (last, others) = known.split_last().unwrap_or((&"", &[]));
        write!(f, "'{name}' is not an {family} table; expected {} or {last}", others.join(", "))
    }
}

impl std::error::Error for UnknownTable {}

/// A [`Kind`] of one family or the other, as lists have them.
#[derive(Clone, Copy, Debug)]
pub enum TableKind {
    /// For IPv4.
    Ipv4(Kind<u32>),
    /// For IPv6.
    Ipv6(Kind<u128>),
}

impl TableKind {
    /// The kind of IPv4 tables of this type.
    pub const fn ipv4<T: Table<u32>>() -> Self {
        Self::Ipv4(Kind::of::<T>())
    }

    /// The kind of IPv6 tables of this type.
    pub const fn ipv6<T: Table<u128>>() -> Self {
        Self::Ipv6(Kind::of::<T>())
    }
}

/// The kinds of tables that a [`Fib`](crate::Fib) compiles its routes to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kinds {
    /// That of the IPv4 routes of all VRFs.
    pub ipv4: Kind<u32>,
    /// That of the IPv6 routes.
    pub ipv6: Kind<u128>,
}

impl Kinds {
    /// Returns the name of a kind that readers outside the process cannot read, if one of them is such.
    pub fn not_shared(&self) -> Option<&'static str> {
        let kinds = [(self.ipv4.name, self.ipv4.is_shared), (self.ipv6.name, self.ipv6.is_shared)];
        kinds.into_iter().find(|(_, is_shared)| !is_shared).map(|(name, _)| name)
    }
}

macro_rules! kind {
    (u32, $table:ty) => {
        TableKind::ipv4::<$table>()
    };
    (u128, $table:ty) => {
        TableKind::ipv6::<$table>()
    };
}

macro_rules! ours {
    ($($name:ident: $family:tt, $table:ty;)*) => {
        &[$(kind!($family, $table),)* TableKind::ipv4::<Linear<u32>>(), TableKind::ipv6::<Linear<u128>>()]
    };
}

static OURS: &[TableKind] = crate::for_each_table!(ours);

static MORE: OnceLock<&'static [TableKind]> = OnceLock::new();

/// Adds kinds of tables that the program around this library has. Names of ours stay ours. Only the first call counts.
pub fn add_tables(tables: &'static [TableKind]) {
    let _ = MORE.set(tables);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<A: FibFamily>() -> Vec<&'static str> {
        Kind::<A>::all().map(|kind| kind.name()).collect()
    }

    #[test]
    fn kinds_are_found_by_the_names_in_the_list_of_tables() {
        assert_eq!(names::<u32>(), ["byte24", "rank", "dir24_8", "linear"]);
        assert_eq!(names::<u128>(), ["range_tree", "linear"]);
        assert_eq!(Kinds::default().ipv4, Kind::named("byte24").unwrap());
        assert_eq!(Kinds::default().ipv6, Kind::named("range_tree").unwrap());
        macro_rules! named {
            ($($name:ident: $family:ty, $table:ty;)*) => { $(
                assert_eq!(Kind::<$family>::named(stringify!($name)).unwrap().name(), <$table as Table<$family>>::NAME);
            )* };
        }
        crate::for_each_table!(named);
    }

    #[test]
    fn the_usual_table_lies_inside_and_others_behind_a_pointer() {
        let is_inside =
            |name| matches!(Kind::<u32>::named(name).unwrap().make().unwrap(), AnyTable::Usual(_));
        assert_eq!(["byte24", "rank", "dir24_8", "linear"].map(is_inside), [true, false, false, false]);
    }
}
