//! How a change of routes reaches the copies of the element on all workers.
//!
//! Every copy holds a snapshot: an `Arc` of a table that does not change while anybody else holds it. Packets cost one
//! atomic load a batch, of the generation; when that has moved the copy takes the new snapshot.
//!
//! A write handler runs on every copy in turn. The last one makes the change (that is the slow thread, where there is
//! one), the others only look whether their snapshot is the newest. So by the time of the next change nobody holds the
//! table before the present one, and it can be brought up to date and used again: two tables, taken in turns. The
//! second is made with the first change (it costs a compilation, see [`RouteTable::copy`]), and not at all if nobody
//! but the writer holds the present one, as with a single worker: it is then changed in place.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::table::{Change, Command, RouteTable};

/// The table that all copies of an element share.
pub(super) struct Published {
    state: Mutex<State>,
    /// Number of changes so far.
    generation: AtomicU64,
    /// Number of the last copy of the graph that has the element; not every thread has every element.
    last_copy: AtomicUsize,
    /// What to tell the user about the routes of the configuration.
    notes: Mutex<Vec<String>>,
}

struct State {
    current: Arc<RouteTable>,
    passive: Option<Passive>,
}

/// The table before the present one.
struct Passive {
    table: Arc<RouteTable>,
    /// How the present one differs from it; `None` when it has nothing in common with it.
    missing: Option<Vec<Change>>,
}

impl Passive {
    /// The table with all that is missing, if nobody reads it any more.
    fn caught_up(self) -> Option<RouteTable> {
        let missing = self.missing?;
        let mut table = Arc::try_unwrap(self.table).ok()?;
        table.repeat(&missing).ok()?;
        Some(table)
    }
}

impl Published {
    pub(super) fn new(table: RouteTable, notes: Vec<String>) -> Self {
        let state = Mutex::new(State { current: Arc::new(table), passive: None });
        Self {
            state,
            generation: AtomicU64::new(0),
            last_copy: AtomicUsize::new(0),
            notes: Mutex::new(notes),
        }
    }

    /// Says that the copy `index` has the element. Before any thread starts.
    pub(super) fn join(&self, index: usize) {
        self.last_copy.fetch_max(index, Ordering::Relaxed);
    }

    /// Whether `index` is the copy that makes changes and prints the table: handlers reach it after all others.
    pub(super) fn is_last(&self, index: usize) -> bool {
        self.last_copy.load(Ordering::Relaxed) == index
    }

    /// What to tell the user, for the first who asks.
    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of changes so far.
    #[inline(always)]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The present table and its generation.
    pub(super) fn snapshot(&self) -> (u64, Arc<RouteTable>) {
        let state = self.state();
        (self.generation(), state.current.clone())
    }

    /// Carries out all commands, or none. The caller has let go of its own snapshot.
    pub(super) fn change(&self, commands: &[Command]) -> Result<(), String> {
        let mut state = self.state();
        let State { current, passive } = &mut *state;
        if let Some(table) = Arc::get_mut(current) {
            table.transact(commands)?;
            *passive = None;
        } else {
            let mut next = match passive.take().and_then(Passive::caught_up) {
                Some(table) => table,
                None => current.copy().map_err(|error| error.to_string())?,
            };
            match next.transact(commands) {
                Ok(changes) => {
                    let table = std::mem::replace(current, Arc::new(next));
                    *passive = Some(Passive { table, missing: Some(changes) });
                }
                Err(error) => {
                    *passive = Some(Passive { table: Arc::new(next), missing: Some(Vec::new()) });
                    return Err(error);
                }
            }
        }
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Removes all routes.
    pub(super) fn flush(&self) -> Result<(), String> {
        let mut state = self.state();
        let empty = state.current.emptied().map_err(|error| error.to_string())?;
        let table = std::mem::replace(&mut state.current, Arc::new(empty));
        // Kept until the next change, so that no worker has to give back the memory.
        state.passive = Some(Passive { table, missing: None });
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fib::Rib4;

    use super::super::route::Route;
    use super::super::table::{Design, NextHops};
    use super::*;

    fn published() -> Published {
        let table = RouteTable::build(Rib4::new(), NextHops::default(), Design::BySize).unwrap();
        Published::new(table, Vec::new())
    }

    fn add(text: &str) -> Command {
        Command::Add(Route::parse(text, 10).unwrap())
    }

    #[test]
    fn a_snapshot_does_not_change_and_the_two_tables_take_turns() {
        let published = published();
        let mut held: Vec<Arc<RouteTable>> = Vec::new();
        for number in 0..8u16 {
            let (generation, before) = published.snapshot();
            assert_eq!(generation, u64::from(number));
            let text = before.text();
            held.push(before.clone());
            published.change(&[add(&format!("10.{number}.0.0/16 {number}"))]).unwrap();
            assert_eq!(before.text(), text);
            let (_, after) = published.snapshot();
            assert_eq!(after.text().lines().count(), usize::from(number) + 1);
            assert!(!Arc::ptr_eq(&before, &after));
            // A refused change between the others harms neither table.
            assert!(published.change(&[add("10.200.0.0/16 1"), add("10.0.0.0/16 1")]).is_err());
            assert_eq!(published.snapshot().1.text(), after.text());
            // Workers take the new snapshot; every third time one is late.
            if number % 3 != 0 {
                held.clear();
            }
        }
    }

    #[test]
    fn a_table_that_nobody_else_holds_changes_in_place() {
        let published = published();
        let address = Arc::as_ptr(&published.snapshot().1);
        published.change(&[add("10.0.0.0/8 1")]).unwrap();
        assert_eq!(Arc::as_ptr(&published.snapshot().1), address);
        assert!(published.change(&[add("10.0.0.0/8 1")]).is_err());
        assert_eq!(published.generation(), 1);
    }

    #[test]
    fn after_a_flush_nothing_of_before_comes_back() {
        let published = published();
        let (_, held) = published.snapshot();
        published.change(&[add("10.0.0.0/8 1")]).unwrap();
        let (_, held_too) = published.snapshot();
        published.flush().unwrap();
        assert_eq!(published.snapshot().1.text(), "");
        drop((held, held_too));
        let (_, held) = published.snapshot();
        published.change(&[add("11.0.0.0/8 1")]).unwrap();
        assert_eq!(held.text(), "");
        assert_eq!(published.snapshot().1.text(), "11.0.0.0/8\t\t-\t\t1\n");
    }
}
