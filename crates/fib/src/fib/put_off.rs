//! Changes of routes that the compiled table gets later, with others.

use crate::{AnyCompiler, AnyTable, FibFamily, Rib, TableError};

/// Fewer changes than this are never worth compiling a whole table.
const FEW: usize = 16_384;
/// Beyond that, so many routes take as long to compile with the whole table as one does alone.
const ROUTES_IN_TIME_OF_ONE: usize = 8;

/// The prefixes whose routes have changed, or that all may have.
pub(super) enum PutOff<A: FibFamily> {
    Prefixes(Vec<A::Net>),
    All,
}

impl<A: FibFamily> Default for PutOff<A> {
    fn default() -> Self {
        PutOff::Prefixes(Vec::new())
    }
}

impl<A: FibFamily> PutOff<A> {
    /// The route at a prefix of `rib` has changed.
    pub(super) fn note(&mut self, rib: &Rib<A>, prefix: A::Net) {
        let PutOff::Prefixes(prefixes) = self else { return };
        if prefixes.len() < FEW + rib.len() / ROUTES_IN_TIME_OF_ONE {
            prefixes.push(prefix);
        } else {
            *self = PutOff::All;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, PutOff::Prefixes(prefixes) if prefixes.is_empty())
    }

    /// Brings the table in line. Nothing is put off then.
    pub(super) fn compile(
        &mut self,
        table: &mut AnyTable<A>,
        compiler: &mut AnyCompiler,
        rib: &Rib<A>,
    ) -> Result<(), TableError> {
        match std::mem::take(self) {
            PutOff::Prefixes(prefixes) if prefixes.is_empty() => Ok(()),
            PutOff::Prefixes(mut prefixes) => {
                prefixes.sort_unstable();
                prefixes.dedup();
                table.update_all(compiler, rib, &prefixes)
            }
            PutOff::All => table.rebuild(compiler, rib),
        }
    }
}
