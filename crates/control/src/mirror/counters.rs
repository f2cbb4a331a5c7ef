//! What the mirror has counted, and the last of what it could not do as a source wanted.

use super::Mirror;
use fib::{EditError, MAIN, NextHopError, NextHopIndex};
use ipnet::IpNet;
use std::collections::VecDeque;

/// How many problems are remembered.
pub(super) const MOST_PROBLEMS: usize = 64;

/// So many numbers have to be free before routes that found none are tried again.
const ROOM: usize = 1_024;

/// What has been counted, and what could not be done.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) counts: [u64; COUNTS.len()],
    /// The newest last.
    problems: VecDeque<Problem>,
    /// Whether a next hop found no number, since [`Mirror::has_room_again`] was true last.
    lacks_numbers: bool,
    /// When one was logged last, in microseconds since 1970.
    pub(super) reported_us: u64,
}

/// Something that could not be done as a source wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The table and prefix of the route, if it is about one.
    pub route: Option<(u32, IpNet)>,
    /// What is wrong, and what was expected.
    pub reason: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((table, prefix)) = self.route {
            match table {
                MAIN => write!(f, "{prefix}: ")?,
                _ => write!(f, "{prefix} in table {table}: ")?,
            }
        }
        f.write_str(&self.reason)
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Count {
    Changes,
    Publications,
    NextHopChanges,
    Swept,
    GoneUnknown,
    HostBits,
    NotForSource,
    RoutesWithoutPath,
    NextHopsRefused,
    Refused,
    TablesRefused,
}

/// By [`Count`]: what people read.
const COUNTS: [&str; 11] = [
    "changes",
    "publications",
    "changes of next hops",
    "removed because a dump did not name them",
    "gone that were not there",
    "prefixes with host bits",
    "ignored: links, addresses, neighbours and rules by FPM",
    "routes without a path",
    "next hops that there was no number for",
    "routes that the forwarding table refused",
    "tables that there was no room for",
];

impl Mirror {
    /// What has been counted, and what is there now.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let targets = self.targets.all.iter().map(|(_, target)| target);
        let waiting =
            targets.filter(|of| of.key.object().is_some_and(|object| !self.objects.is_there(object)));
        let waiting = waiting.map(|target| u64::from(target.users)).sum();
        let counted = COUNTS.iter().copied().zip(self.counters.counts);
        counted.chain([("routes that wait for a next-hop object", waiting)]).collect()
    }

    /// The last problems, the newest last.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.counters.problems.iter()
    }

    pub(super) fn count(&mut self, what: Count) {
        self.count_more(what, 1);
    }

    pub(super) fn count_more(&mut self, what: Count, number: usize) {
        self.counters.counts[what as usize] += number as u64;
    }

    pub(super) fn note(&mut self, route: Option<(u32, IpNet)>, reason: String) {
        let problem = Problem { route, reason };
        self.report_problem(&problem);
        if self.counters.problems.contains(&problem) {
            return;
        }
        if self.counters.problems.len() == MOST_PROBLEMS {
            self.counters.problems.pop_front();
        }
        self.counters.problems.push_back(problem);
    }

    pub(super) fn note_edit_error(&mut self, fib_table: u32, prefix: IpNet, error: &EditError) {
        self.count(Count::Refused);
        self.note(Some((fib_table, prefix)), error.to_string());
    }

    pub(super) fn note_next_hop_error(&mut self, error: NextHopError) {
        self.count(Count::NextHopsRefused);
        self.counters.lacks_numbers |= error == NextHopError::Exhausted;
        self.note(None, error.to_string());
    }

    /// Whether routes found no number for their next hop, and there is room now. The kernel's
    /// routes are to be dumped again then.
    pub(crate) fn has_room_again(&mut self) -> bool {
        let room = NextHopIndex::MAX.get() as usize - self.fib.next_hops().len();
        if !self.counters.lacks_numbers || room < ROOM {
            return false;
        }
        self.counters.lacks_numbers = false;
        let exhausted = NextHopError::Exhausted.to_string();
        self.counters.problems.retain(|problem| problem.reason != exhausted);
        self.refresh_faces();
        true
    }
}
