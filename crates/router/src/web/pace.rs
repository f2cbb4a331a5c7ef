//! Answers that ask much of the router: of each table one a second, for all clients together.

use packet::sync::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The least time between two answers of a table.
const PERIOD: Duration = Duration::from_secs(1);

/// When each table was answered last. Names are those of tables that there are, so they are few.
#[derive(Default)]
pub(super) struct Pace(Mutex<HashMap<String, Instant>>);

impl Pace {
    /// Returns whether a table may be answered now. It may not again for a second.
    pub(super) fn admits(&self, table: &str) -> bool {
        let mut last = lock(&self.0);
        let is_due = last.get(table).is_none_or(|at| at.elapsed() >= PERIOD);
        if is_due {
            last.insert(table.to_owned(), Instant::now());
        }
        is_due
    }
}
