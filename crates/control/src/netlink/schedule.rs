//! When each part is dumped: plain data and a clock given from outside.
//!
//! What makes a dump necessary often comes in bursts (a link that flaps), so a part is dumped [`GATHER`]
//! after the first reason, for all reasons that came till then; and then it rests for four times as long as
//! the dump took, at least for [`REST`]. So however often reasons come, dumps of a part take at most a fifth
//! of the time.

use std::time::{Duration, Instant};

use crate::change::Part;

/// In this order: what others refer to comes first.
pub(super) const PARTS: [Part; 7] = [
    Part::Links,
    Part::Addresses,
    Part::Neighbours,
    Part::Rules,
    Part::Objects,
    Part::Routes4,
    Part::Routes6,
];

/// How long reasons are gathered before a dump.
pub(super) const GATHER: Duration = Duration::from_millis(20);

/// The shortest time between two dumps of a part.
pub(super) const REST: Duration = Duration::from_millis(200);

/// When each part is due.
#[derive(Default)]
pub(super) struct Schedule {
    entries: [Entry; PARTS.len()],
}

#[derive(Clone, Copy, Default)]
struct Entry {
    due: Option<Instant>,
    began: Option<Instant>,
    quiet_until: Option<Instant>,
    /// Whether all of it has to be read before we know the kernel's state.
    is_missing: bool,
}

impl Schedule {
    fn entry(&mut self, part: Part) -> &mut Entry {
        let position = PARTS.iter().position(|&other| other == part).expect("PARTS has every part");
        &mut self.entries[position]
    }

    /// Everything is dumped, at once.
    pub(super) fn everything(&mut self, now: Instant) {
        for entry in &mut self.entries {
            *entry = Entry { due: Some(now), is_missing: true, ..Entry::default() };
        }
    }

    /// The part is dumped soon.
    pub(super) fn soon(&mut self, part: Part, now: Instant) {
        let entry = self.entry(part);
        let wanted = (now + GATHER).max(entry.quiet_until.unwrap_or(now));
        entry.due = Some(entry.due.map_or(wanted, |due| due.min(wanted)));
    }

    /// The next part whose time has come.
    pub(super) fn next(&self, now: Instant) -> Option<Part> {
        let is_due = |entry: &Entry| entry.due.is_some_and(|due| due <= now);
        self.entries.iter().position(is_due).map(|position| PARTS[position])
    }

    /// When the next part is due.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.entries.iter().filter_map(|entry| entry.due).min()
    }

    /// A dump of it begins; reasons that come from now on need another one.
    pub(super) fn began(&mut self, part: Part, now: Instant) {
        let entry = self.entry(part);
        (entry.due, entry.began) = (None, Some(now));
    }

    /// The dump ended.
    pub(super) fn ended(&mut self, part: Part, now: Instant) {
        let entry = self.entry(part);
        entry.is_missing = false;
        let took = entry.began.take().map_or(Duration::ZERO, |began| now.duration_since(began));
        let until = now + REST.max(4 * took);
        entry.quiet_until = Some(until);
        entry.due = entry.due.map(|due| due.max(until));
    }

    /// The dump failed: another try after the rest.
    pub(super) fn failed(&mut self, part: Part, now: Instant) {
        let entry = self.entry(part);
        (entry.due, entry.began) = (Some(now + REST), None);
    }

    /// Whether all parts were dumped since [`Schedule::everything`].
    pub(super) fn has_everything(&self) -> bool {
        self.entries.iter().all(|entry| !entry.is_missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_in_order() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.everything(now);
        for part in PARTS {
            assert!(!schedule.has_everything());
            assert_eq!(schedule.next(now), Some(part));
            schedule.began(part, now);
            schedule.ended(part, now);
        }
        assert!(schedule.has_everything());
        assert_eq!((schedule.next(now), schedule.next_time()), (None, None));
    }

    #[test]
    fn a_link_that_flaps_a_hundred_times_a_second_costs_a_fifth_of_the_time() {
        let (mut schedule, begin) = (Schedule::default(), Instant::now());
        let took = Duration::from_millis(500);
        let (mut now, mut dumps) = (begin, 0);
        while now < begin + Duration::from_secs(60) {
            schedule.soon(Part::Routes4, now);
            if schedule.next(now).is_some() {
                schedule.began(Part::Routes4, now);
                schedule.soon(Part::Routes4, now + took / 2);
                now += took;
                schedule.ended(Part::Routes4, now);
                dumps += 1;
            }
            now += Duration::from_millis(10);
        }
        assert!((20..=24).contains(&dumps), "{dumps} dumps of half a second in a minute");
    }

    #[test]
    fn a_failed_dump_is_tried_again_and_is_missing_till_then() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.everything(now);
        schedule.began(Part::Links, now);
        schedule.failed(Part::Links, now);
        assert_eq!(schedule.next(now), Some(Part::Addresses));
        assert_eq!(schedule.next(now + REST), Some(Part::Links));
    }
}
