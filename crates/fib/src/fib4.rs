//! Routes and the table compiled from them, in step.

use crate::{NextHopIndex, Rib4, RibError, Table4, TableError};
use ipnet::Ipv4Net;

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

/// A [`Rib4`] and a [`Table4`] that always answers as it would.
pub struct Fib4<T: Table4> {
    rib: Rib4,
    table: T,
}

impl<T: Table4> Fib4<T> {
    /// No routes; `table` must be empty, as it is when new.
    pub fn new(table: T) -> Fib4<T> {
        Fib4 { rib: Rib4::new(), table }
    }

    /// Compiles `rib` into `table`, whatever that held: much faster than adding the routes one by one.
    ///
    /// # Errors
    ///
    /// [`TableError::Full`].
    pub fn build(rib: Rib4, mut table: T) -> Result<Fib4<T>, TableError> {
        table.rebuild(&rib)?;
        Ok(Fib4 { rib, table })
    }

    /// The routes.
    pub fn rib(&self) -> &Rib4 {
        &self.rib
    }

    /// The compiled table.
    pub fn table(&self) -> &T {
        &self.table
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// As [`Rib4::insert`], and if the table is full.
    pub fn insert(&mut self, prefix: Ipv4Net, next_hop: NextHopIndex) -> Result<(), FibError> {
        self.rib.insert(prefix, next_hop)?;
        self.compile(prefix, None)
    }

    /// Sets the next hop of a prefix and returns the one it had, if any.
    ///
    /// # Errors
    ///
    /// As [`Rib4::replace`], and if the table is full.
    pub fn replace(
        &mut self,
        prefix: Ipv4Net,
        next_hop: NextHopIndex,
    ) -> Result<Option<NextHopIndex>, FibError> {
        let before = self.rib.replace(prefix, next_hop)?;
        self.compile(prefix, before)?;
        Ok(before)
    }

    /// Removes the route at exactly this prefix and returns its next hop.
    ///
    /// # Errors
    ///
    /// As [`Rib4::remove`], and if the table is full (flattened, fewer routes can take more room).
    pub fn remove(&mut self, prefix: Ipv4Net) -> Result<NextHopIndex, FibError> {
        let before = self.rib.remove(prefix)?;
        self.compile(prefix, Some(before))?;
        Ok(before)
    }

    /// Brings the table in line at `prefix`, or takes the change back: `before` is what the RIB had there.
    fn compile(&mut self, prefix: Ipv4Net, before: Option<NextHopIndex>) -> Result<(), FibError> {
        let Err(full) = self.table.update(&self.rib, prefix) else { return Ok(()) };
        match before {
            Some(next_hop) => self.rib.replace(prefix, next_hop).map(|_| ()),
            None => self.rib.remove(prefix).map(|_| ()),
        }
        .expect("a change that the RIB took can be taken back");
        self.table.rebuild(&self.rib).expect("a table that held these routes holds them again");
        Err(full.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dir24_8;

    #[test]
    fn a_full_table_refuses_the_route_and_keeps_the_others() {
        let hop = |number| NextHopIndex::new(number).unwrap();
        let mut rib = Rib4::new();
        let half_of = |network: u32| Ipv4Net::new((network << 8).into(), 25).unwrap();
        for network in 0..32_768 {
            rib.insert(half_of(network), hop(1)).unwrap();
        }
        rib.insert("0.0.0.0/0".parse().unwrap(), hop(2)).unwrap();
        let mut fib = Fib4::build(rib, Dir24_8::new().unwrap()).unwrap();
        let error = fib.insert(half_of(32_768), hop(3)).unwrap_err();
        assert!(error.to_string().starts_with("DIR-24-8 is full at 0.128.0.0/25: 32,768"), "{error}");
        assert_eq!(fib.rib().len(), 32_769);
        assert_eq!(fib.table().lookup(32_768 << 8), hop(2));
        assert_eq!(fib.table().lookup(32_767 << 8), hop(1));
        assert_eq!(fib.table().lookup(32_767 << 8 | 128), hop(2));
        // Room that a removed route leaves is used again.
        fib.remove(half_of(7)).unwrap();
        fib.insert(half_of(32_768), hop(3)).unwrap();
        assert_eq!(fib.table().lookup(32_768 << 8), hop(3));
        assert_eq!(fib.table().lookup(7 << 8), hop(2));
    }

    #[test]
    fn a_refused_change_leaves_the_table_alone() {
        let mut fib = Fib4::new(Dir24_8::new().unwrap());
        let (prefix, hop) = ("10.0.0.0/8".parse().unwrap(), NextHopIndex::new(1).unwrap());
        fib.insert(prefix, hop).unwrap();
        assert!(matches!(fib.insert(prefix, NextHopIndex::MAX), Err(FibError::Rib(RibError::Exists { .. }))));
        assert_eq!(fib.table().lookup(0x0a00_0001), hop);
    }
}
