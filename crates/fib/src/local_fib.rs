//! Routes and one table compiled from them, in step, for a single thread.

use crate::{Change, NextHopIndex, Rib, RibError, Table, TableError};
use packet::Family;

/// Why a change was refused. Routes and table are then as before.
#[derive(Debug, thiserror::Error)]
pub enum FibError {
    /// The change makes no sense for the routes that are there.
    #[error(transparent)]
    Rib(#[from] RibError),
    /// The table has no room.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// A [`Rib`] and a [`Table`] that always answers as it would. For many threads there is [`crate::Fib`].
pub struct LocalFib<A: Family, T: Table<A>> {
    rib: Rib<A>,
    table: T,
    compiler: T::Compiler,
}

impl<A: Family, T: Table<A>> LocalFib<A, T> {
    /// No routes.
    ///
    /// # Errors
    ///
    /// [`TableError::Memory`].
    pub fn new() -> Result<Self, TableError> {
        Ok(LocalFib { rib: Rib::new(), table: T::new()?, compiler: T::Compiler::default() })
    }

    /// Compiles `rib`: much faster than adding the routes one by one.
    ///
    /// # Errors
    ///
    /// [`TableError`].
    pub fn build(rib: Rib<A>) -> Result<Self, TableError> {
        let mut fib = Self::new()?;
        fib.rib = rib;
        fib.table.rebuild(&mut fib.compiler, &fib.rib)?;
        Ok(fib)
    }

    /// The routes.
    pub fn rib(&self) -> &Rib<A> {
        &self.rib
    }

    /// The compiled table.
    pub fn table(&self) -> &T {
        &self.table
    }

    #[cfg(test)]
    pub(crate) fn compiler(&self) -> &T::Compiler {
        &self.compiler
    }

    #[cfg(test)]
    pub(crate) fn table_mut(&mut self) -> &mut T {
        &mut self.table
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// As [`Rib::insert`], and if the table is full.
    pub fn insert(&mut self, prefix: A::Net, next_hop: NextHopIndex) -> Result<Change, FibError> {
        let change = self.rib.insert(prefix, next_hop)?;
        self.compile(prefix, change)
    }

    /// Adds a route, in the place of the one that the prefix has, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Rib::replace`], and if the table is full.
    pub fn replace(&mut self, prefix: A::Net, next_hop: NextHopIndex) -> Result<Change, FibError> {
        let change = self.rib.replace(prefix, next_hop)?;
        self.compile(prefix, change)
    }

    /// Removes the route to this prefix.
    ///
    /// # Errors
    ///
    /// As [`Rib::remove`], and if the table is full (flattened, fewer routes can take more room).
    pub fn remove(&mut self, prefix: A::Net) -> Result<Change, FibError> {
        let change = self.rib.remove(prefix)?;
        self.compile(prefix, change)
    }

    /// Brings the table in line at `prefix`, or takes the change back.
    fn compile(&mut self, prefix: A::Net, change: Change) -> Result<Change, FibError> {
        if !change.is_visible() {
            return Ok(change);
        }
        let Err(full) = self.table.update(&mut self.compiler, &self.rib, prefix) else { return Ok(change) };
        self.rib.undo(prefix, change);
        let rebuilt = self.table.rebuild(&mut self.compiler, &self.rib);
        rebuilt.expect("a table that held these routes holds them again");
        Err(full.into())
    }

    /// The next hop of an address; see [`Table::lookup`].
    pub fn lookup(&self, address: A) -> NextHopIndex {
        self.table.lookup(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dir24_8;
    use ipnet::Ipv4Net;

    #[test]
    fn a_full_table_refuses_the_route_and_keeps_the_others() {
        let to = |number| NextHopIndex::new(number).unwrap();
        let mut rib = Rib::<u32>::new();
        let half_of = |network: u32| Ipv4Net::new((network << 8).into(), 25).unwrap();
        for network in 0..32_768 {
            rib.insert(half_of(network), to(1)).unwrap();
        }
        rib.insert("0.0.0.0/0".parse().unwrap(), to(2)).unwrap();
        let mut fib = LocalFib::<u32, Dir24_8>::build(rib).unwrap();
        let error = fib.insert(half_of(32_768), to(3)).unwrap_err();
        assert!(error.to_string().starts_with("dir24_8 is full at 0.128.0.0/25: 32,768"), "{error}");
        assert_eq!(fib.rib().len(), 32_769);
        assert_eq!(fib.lookup(32_768 << 8).get(), 2);
        assert_eq!(fib.lookup(32_767 << 8).get(), 1);
        assert_eq!(fib.lookup(32_767 << 8 | 128).get(), 2);
        // Room that a removed route leaves is used again.
        fib.remove(half_of(7)).unwrap();
        fib.insert(half_of(32_768), to(3)).unwrap();
        assert_eq!(fib.lookup(32_768 << 8).get(), 3);
        assert_eq!(fib.lookup(7 << 8).get(), 2);
    }

    #[test]
    fn a_refused_change_leaves_the_table_alone() {
        let mut fib = LocalFib::<u32, Dir24_8>::new().unwrap();
        let (prefix, hop) = ("10.0.0.0/8".parse().unwrap(), NextHopIndex::new(1).unwrap());
        fib.insert(prefix, hop).unwrap();
        let refused = fib.insert(prefix, NextHopIndex::MAX);
        assert!(matches!(refused, Err(FibError::Rib(RibError::Exists { .. }))));
        assert_eq!(fib.lookup(0x0a00_0001), hop);
    }
}
