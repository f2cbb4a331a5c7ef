//! What the ports moved in each second of the last five minutes, so that charts begin before anybody looks.
//!
//! [`Meter`](super::meter::Meter) adds to it what it measures anyway, so packets pay nothing for it. Moments are kept by the clock that
//! never jumps, and get the time of day when they are shown: those of one answer fit together, whatever was done to the clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use control::api::HistoryRow;

use crate::moment::{microseconds, rfc3339};

/// Periods that are kept: five minutes.
const KEPT: usize = 300;

/// The last periods, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Arc<Moment>>);

/// What each port moved in a period.
#[derive(Debug)]
pub(super) struct Moment {
    /// The period's end.
    at: Instant,
    /// Without their time.
    rows: Vec<HistoryRow>,
}

impl History {
    /// Adds a period that ended at `at`; the oldest one makes room.
    pub(super) fn add(&mut self, at: Instant, rows: Vec<HistoryRow>) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Arc::new(Moment { at, rows }));
    }

    /// Returns all of them, to be sent with no lock held.
    pub(super) fn moments(&self) -> Vec<Arc<Moment>> {
        self.0.iter().cloned().collect()
    }
}

impl Moment {
    /// Returns its rows with their time.
    pub(super) fn rows(&self) -> impl Iterator<Item = HistoryRow> {
        let ago = self.at.elapsed().as_micros() as u64;
        let time = rfc3339(microseconds(SystemTime::now()).saturating_sub(ago));
        self.rows.iter().map(move |row| HistoryRow { time: time.clone(), ..row.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn five_minutes_are_kept_and_have_the_time_of_day() {
        let mut history = History::default();
        let begin = Instant::now();
        for number in 0..2 * KEPT {
            let row = HistoryRow { port: number.to_string(), ..HistoryRow::default() };
            history.add(begin + Duration::from_secs(number as u64), vec![row]);
        }
        let moments = history.moments();
        let ports: Vec<String> =
            moments.iter().flat_map(|moment| moment.rows()).map(|row| row.port).collect();
        assert_eq!(ports, (KEPT..2 * KEPT).map(|number| number.to_string()).collect::<Vec<_>>());
        let mut history = History::default();
        let before = rfc3339(microseconds(SystemTime::now()));
        history.add(Instant::now(), vec![HistoryRow::default()]);
        let times: Vec<String> = history.moments()[0].rows().map(|row| row.time).collect();
        assert!(times[0] >= before && times[0] <= rfc3339(microseconds(SystemTime::now())), "{times:?}");
    }
}
