//! A table whose kind is chosen while the program runs ([`Kind`](crate::Kind)).
//!
//! The usual table of a family lies in [`AnyTable`] itself. The choice costs a batch of lookups one predictable branch, and
//! the loop behind it is compiled into its caller. Any other table lies behind a pointer, and a batch costs one call through
//! its table of functions. Changes of tables go that way for all kinds: they are not on the packets' way.

use crate::region::Region;
use crate::{FibFamily, NextHopIndex, Rib, Table, TableError};
use packet::Family;
use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A [`Table`] of any kind. Its lookups are those of the table; all else is [`DynTable`]'s.
pub enum AnyTable<A: FibFamily> {
    /// The family's usual table.
    Usual(A::Table),
    /// Another one.
    Other(Box<dyn DynTable<A>>),
}

impl<A: FibFamily> AnyTable<A> {
    /// Takes a table of any kind.
    pub(crate) fn new<T: Table<A>>(table: T) -> Self {
        let mut table = Some(table);
        let usual = (&mut table as &mut dyn Any).downcast_mut::<Option<A::Table>>();
        match usual.and_then(Option::take) {
            Some(usual) => Self::Usual(usual),
            None => Self::Other(Box::new(table.expect("only the usual table was taken out"))),
        }
    }

    /// As [`Table::lookup`].
    #[inline]
    pub fn lookup(&self, address: A) -> NextHopIndex {
        match self {
            Self::Usual(table) => Table::lookup(table, address),
            Self::Other(table) => table.lookup(address),
        }
    }

    /// As [`Table::lookup_batch`].
    ///
    /// # Panics
    ///
    /// If the two slices differ in length.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[A], next_hops: &mut [NextHopIndex]) {
        match self {
            Self::Usual(table) => Table::lookup_batch(table, addresses, next_hops),
            Self::Other(table) => table.lookup_batch(addresses, next_hops),
        }
    }
}

impl<A: FibFamily> Deref for AnyTable<A> {
    type Target = dyn DynTable<A>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Usual(table) => table,
            Self::Other(table) => &**table,
        }
    }
}

impl<A: FibFamily> DerefMut for AnyTable<A> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Usual(table) => table,
            Self::Other(table) => &mut **table,
        }
    }
}

/// The compiler of a table of any kind ([`Table::Compiler`]).
pub struct AnyCompiler(Box<dyn Any + Send>);

/// [`Table`] without the types that differ between tables; every table has it. Compilers are those that
/// [`DynTable::new_compiler`] made.
#[allow(missing_docs, reason = "each function is that of `Table`")]
pub trait DynTable<A: Family>: Any + Send + Sync {
    fn name(&self) -> &'static str;
    fn new_compiler(&self) -> AnyCompiler;
    fn lookup(&self, address: A) -> NextHopIndex;
    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [NextHopIndex]);
    fn update(&mut self, compiler: &mut AnyCompiler, rib: &Rib<A>, prefix: A::Net) -> Result<(), TableError>;
    fn update_all(
        &mut self,
        compiler: &mut AnyCompiler,
        rib: &Rib<A>,
        prefixes: &[A::Net],
    ) -> Result<(), TableError>;
    fn surely_fits(&self, rib: &Rib<A>) -> bool;
    fn rebuild(&mut self, compiler: &mut AnyCompiler, rib: &Rib<A>) -> Result<(), TableError>;
    fn catch_up(&mut self, compiler: &mut AnyCompiler, ahead: &dyn DynTable<A>);
    fn relocate(&mut self, region: Option<&Arc<Region>>) -> Result<(), TableError>;
    fn places_in(&self, region: &Arc<Region>) -> Option<[u32; 3]>;
    fn for_each_range(&self, visit: &mut dyn FnMut(A, NextHopIndex));
    fn memory_bytes(&self) -> usize;
    fn check_memory(&self, routes: usize) -> Result<(), TableError>;
}

impl<A: Family, T: Table<A>> DynTable<A> for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn new_compiler(&self) -> AnyCompiler {
        AnyCompiler(Box::new(T::Compiler::default()))
    }

    fn lookup(&self, address: A) -> NextHopIndex {
        Table::lookup(self, address)
    }

    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [NextHopIndex]) {
        Table::lookup_batch(self, addresses, next_hops);
    }

    fn update(&mut self, compiler: &mut AnyCompiler, rib: &Rib<A>, prefix: A::Net) -> Result<(), TableError> {
        Table::update(self, compiler_of::<A, T>(compiler), rib, prefix)
    }

    fn update_all(
        &mut self,
        compiler: &mut AnyCompiler,
        rib: &Rib<A>,
        prefixes: &[A::Net],
    ) -> Result<(), TableError> {
        Table::update_all(self, compiler_of::<A, T>(compiler), rib, prefixes)
    }

    fn surely_fits(&self, rib: &Rib<A>) -> bool {
        T::surely_fits(rib)
    }

    fn rebuild(&mut self, compiler: &mut AnyCompiler, rib: &Rib<A>) -> Result<(), TableError> {
        Table::rebuild(self, compiler_of::<A, T>(compiler), rib)
    }

    fn catch_up(&mut self, compiler: &mut AnyCompiler, ahead: &dyn DynTable<A>) {
        let ahead = (ahead as &dyn Any).downcast_ref().expect("the two copies are of one kind");
        Table::catch_up(self, compiler_of::<A, T>(compiler), ahead);
    }

    fn relocate(&mut self, region: Option<&Arc<Region>>) -> Result<(), TableError> {
        Table::relocate(self, region)
    }

    fn places_in(&self, region: &Arc<Region>) -> Option<[u32; 3]> {
        Table::places_in(self, region)
    }

    fn for_each_range(&self, visit: &mut dyn FnMut(A, NextHopIndex)) {
        Table::for_each_range(self, visit);
    }

    fn memory_bytes(&self) -> usize {
        Table::memory_bytes(self)
    }

    fn check_memory(&self, routes: usize) -> Result<(), TableError> {
        T::check_memory(routes)
    }
}

fn compiler_of<A: Family, T: Table<A>>(compiler: &mut AnyCompiler) -> &mut T::Compiler {
    compiler.0.downcast_mut().expect("a table gets the compiler that it made")
}
