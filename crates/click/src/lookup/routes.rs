//! The routes that all copies of an element share, and how they change.
//!
//! There is one [`fib::Fib`] for all copies, behind a lock that only handlers take. Packets go by what the `Fib` has
//! published: each copy of the element has a [`Reader`] of its own, and no change of routes makes it wait.
//!
//! A write handler runs on every copy in turn. The last one makes the change (that is the slow thread's, where there
//! is one), and by then it is every other copy's, too. It runs between two batches, so the thread that publishes is
//! never inside the tables that it waits for.
//!
//! A transaction is one published change. If a command is refused those before it are undone first, so packets see
//! all of it or nothing.
//!
//! # Numbers of next hops
//!
//! Equal pairs of gateway and output have one number, which each route holds. Between transactions every number in
//! use is held: what a transaction has released, or interned in vain, it gives back at its end.

use packet::sync::lock;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use fib::publish::{Reader, Readers};
use fib::{Kind, Kinds, MAIN, NextHop, NextHopError, NextHopIndex, Rib};

use super::family::{MAIN_INDEX, RouteFamily, RouteFib, RouteState};
use super::route::{Route, Via};

/// What a handler asks of the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command<A: RouteFamily> {
    /// A route for a prefix that has none.
    Add(Route<A>),
    /// A route, whether the prefix has one or not.
    Set(Route<A>),
    /// No route for the prefix any more; it must be this one if gateway and output are given.
    Remove(Route<A>),
}

/// The routes of an element, for all its copies.
pub(crate) struct Routes<A: RouteFamily> {
    fib: Mutex<RouteFib<A>>,
    readers: Readers<RouteState<A>>,
    /// Number of the last copy of the graph that has the element; not every thread has every element.
    last_copy: AtomicUsize,
    /// What to tell the user about the routes of the configuration.
    notes: Mutex<Vec<String>>,
}

impl<A: RouteFamily> Routes<A> {
    /// No routes, for a table of this kind.
    pub(super) fn new(kind: Kind<A>) -> Result<Self, String> {
        let kinds = A::with_kind(Kinds::default(), kind);
        let fib = RouteFib::of_kinds(kinds).map_err(|error| error.to_string())?;
        let readers = fib.readers().clone();
        Ok(Self { fib: Mutex::new(fib), readers, last_copy: AtomicUsize::new(0), notes: Mutex::default() })
    }

    /// Takes the routes that `fill` puts into the RIB, in the place of all there are. Their numbers are those that the
    /// transaction gives. Returns what `fill` returns.
    pub(super) fn load<R, E: From<String>>(
        &self,
        fill: impl FnOnce(&mut Rib<A>, &mut Transaction<'_, A>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut fib = self.fib();
        let mut transaction = Transaction { holds_at_once: false, ..Transaction::new(&mut fib) };
        let mut rib = Rib::new();
        let result = fill(&mut rib, &mut transaction).and_then(|filled| {
            A::load(transaction.fib, MAIN, rib).map_err(|error| error.to_string())?;
            Ok(filled)
        });
        transaction.remove_all_unused();
        transaction.fib.publish();
        result
    }

    /// Removes all routes.
    pub(super) fn flush(&self) -> Result<(), String> {
        self.load(|_, _| Ok(()))
    }

    /// Carries out all commands, or none: the error is that of the first that is refused.
    pub(super) fn transact(&self, commands: &[Command<A>]) -> Result<(), String> {
        let mut fib = self.fib();
        let mut transaction = Transaction::new(&mut fib);
        let mut undo: Vec<(A::Net, Option<Via<A>>)> = Vec::with_capacity(commands.len());
        let mut result = Ok(());
        for (index, command) in commands.iter().enumerate() {
            match transaction.carry_out(command) {
                Ok(before) => undo.push(before),
                Err(error) => {
                    for &(prefix, before) in undo.iter().rev() {
                        transaction
                            .assign(prefix, before)
                            .expect("tables and next hops that held these routes hold them again");
                    }
                    let place =
                        if commands.len() > 1 { format!("command {}: ", index + 1) } else { String::new() };
                    result = Err(place + &error);
                    break;
                }
            }
        }
        transaction.remove_unused();
        transaction.fib.publish();
        result
    }

    /// A copy's access to the tables.
    pub(super) fn reader(&self) -> Reader<RouteState<A>> {
        self.readers.register()
    }

    /// Says that the copy `index` has the element. Before any thread starts.
    pub(super) fn join(&self, index: usize) {
        self.last_copy.fetch_max(index, Ordering::Relaxed);
    }

    /// Whether `index` is the copy that makes changes and prints the table: handlers reach it after all others.
    pub(super) fn is_last(&self, index: usize) -> bool {
        self.last_copy.load(Ordering::Relaxed) == index
    }

    /// Keeps what to tell the user.
    pub(super) fn set_notes(&self, notes: Vec<String>) {
        *lock(&self.notes) = notes;
    }

    /// What to tell the user, for the first who asks.
    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.notes))
    }

    /// All routes, one a line, in the order of their addresses, in Click's columns.
    pub(super) fn text(&self) -> String {
        let fib = self.fib();
        let mut text = String::new();
        for found in rib(&fib).iter() {
            let Some(via) = via(&fib, found.next_hop) else { continue };
            let gateway = via.gateway().map_or_else(|| "-".to_owned(), |gateway| gateway.to_string());
            column(&mut text, &found.prefix.to_string(), 17);
            column(&mut text, &gateway, 9);
            // Writing to a string does not fail.
            let _ = write!(text, "{}", via.output);
            if via.spi != 0 {
                let _ = write!(text, "\tSPI {}", via.spi);
            }
            text.push('\n');
        }
        text
    }

    /// Compares the two tables, the one in use and the one that takes changes, with the routes: a line for each.
    pub(super) fn check(&self) -> String {
        let mut text = String::new();
        let report = self.fib().check();
        for table in report.tables.iter().filter(|table| table.family == A::VERSION) {
            let place = if table.is_active { "active" } else { "passive" };
            let verdict =
                table.mismatch.map_or_else(|| "ok".to_owned(), |mismatch| format!("wrong: {mismatch}"));
            let _ = writeln!(
                text,
                "{place} {}: routes {}, ranges {}, digest {:016x}, bytes {}, {verdict}",
                table.name, table.routes, table.ranges, table.digest, table.memory_bytes
            );
        }
        text
    }

    /// Bytes of memory that routes, tables and next hops take.
    pub(super) fn memory_bytes(&self) -> usize {
        let fib = self.fib();
        let state = fib.state();
        let table = A::table(state, MAIN_INDEX).map_or(0, |table| table.memory_bytes());
        // Two states, and a third copy of the next hops beside the routes.
        2 * table + 3 * state.next_hops().memory_bytes() + rib(&fib).memory_bytes()
    }

    /// The security parameters indices of all tunnels.
    pub(super) fn spis(&self) -> BTreeSet<u32> {
        let fib = self.fib();
        let numbers = (1..=NextHopIndex::MAX.get()).filter_map(NextHopIndex::new);
        numbers.filter_map(|number| via(&fib, number)).map(|via| via.spi).filter(|spi| *spi != 0).collect()
    }

    /// Numbers of next hops in use.
    #[cfg(test)]
    pub(super) fn next_hops(&self) -> usize {
        self.fib().next_hops().len()
    }

    fn fib(&self) -> MutexGuard<'_, RouteFib<A>> {
        lock(&self.fib)
    }
}

fn rib<A: RouteFamily>(fib: &RouteFib<A>) -> &Rib<A> {
    A::rib(fib, MAIN).expect("the main VRF is always there")
}

fn via<A: RouteFamily>(fib: &RouteFib<A>, number: NextHopIndex) -> Option<Via<A>> {
    fib.next_hops().resolver().resolve(number, 0).forward().copied()
}

/// Appends `word` and one tab, or two where it does not reach the next but one column.
fn column(text: &mut String, word: &str, width: usize) {
    text.push_str(word);
    text.push_str(if word.len() + 1 < width { "\t\t" } else { "\t" });
}

/// Changes that are published together.
pub(super) struct Transaction<'a, A: RouteFamily> {
    fib: &'a mut RouteFib<A>,
    /// Numbers that may be nobody's at the end.
    unused: Vec<NextHopIndex>,
    /// Whether routes hold the numbers given to them at once. Those of a RIB that is being filled do not yet.
    holds_at_once: bool,
}

impl<'a, A: RouteFamily> Transaction<'a, A> {
    fn new(fib: &'a mut RouteFib<A>) -> Self {
        Self { fib, unused: Vec::new(), holds_at_once: true }
    }

    /// The number of a next hop, a new one if it has none.
    pub(super) fn number(&mut self, via: Via<A>) -> Result<NextHopIndex, String> {
        let mut number = self.fib.next_hops_mut().intern(NextHop::Forward(via));
        if matches!(number, Err(NextHopError::Exhausted)) && self.holds_at_once {
            self.remove_unused();
            number = self.fib.next_hops_mut().intern(NextHop::Forward(via));
        }
        number.inspect(|&number| self.unused.push(number)).map_err(|error| match error {
            NextHopError::Exhausted => {
                let most = NextHopIndex::MAX.get();
                format!("{most} pairs of gateway and output are in use, and there can be no more")
            }
            error => error.to_string(),
        })
    }

    /// Makes one change. Returns what the prefix had before.
    fn carry_out(&mut self, command: &Command<A>) -> Result<(A::Net, Option<Via<A>>), String> {
        let (Command::Add(route) | Command::Set(route) | Command::Remove(route)) = *command;
        let prefix = route.prefix;
        let fib = &*self.fib;
        let before = rib(fib).get(prefix).and_then(|number| via(fib, number));
        let after = match (command, before) {
            (Command::Add(_), Some(_)) => {
                let existing = Route::<A> { prefix, via: before };
                return Err(format!("conflict with existing route '{existing}'"));
            }
            (Command::Add(_) | Command::Set(_), _) => route.via,
            (Command::Remove(_), Some(before)) if route.via.is_none_or(|via| via.leads_like(before)) => None,
            (Command::Remove(_), _) => return Err(format!("route '{route}' not found")),
        };
        self.assign(prefix, after)?;
        Ok((prefix, before))
    }

    /// Gives a prefix this next hop, or takes its route away.
    fn assign(&mut self, prefix: A::Net, via: Option<Via<A>>) -> Result<(), String> {
        let change = match via {
            Some(via) => {
                let number = self.number(via)?;
                self.fib.replace(MAIN, prefix.into(), number)
            }
            None => self.fib.remove(MAIN, prefix.into()),
        };
        let change = change.map_err(|error| error.to_string())?;
        self.unused.extend(change.before);
        Ok(())
    }

    /// Gives back the numbers that no route uses any more.
    fn remove_unused(&mut self) {
        for number in self.unused.drain(..) {
            // Refused while it is in use.
            let _ = self.fib.next_hops_mut().remove(number);
        }
    }

    /// The same, whatever changed.
    fn remove_all_unused(&mut self) {
        self.unused = (1..=NextHopIndex::MAX.get()).filter_map(NextHopIndex::new).collect();
        self.remove_unused();
    }
}
