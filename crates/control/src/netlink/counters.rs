//! What was counted while following the kernel.

use std::collections::BTreeMap;

use crate::netlink::message::DecodeError;

/// Counts by reason; reasons are few and fixed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons(BTreeMap<&'static str, u64>);

impl Reasons {
    pub(crate) fn count(&mut self, reason: &'static str) {
        *self.0.entry(reason).or_default() += 1;
    }

    /// Reasons and counts, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(&reason, &count)| (reason, count))
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// What [`Kernel`](crate::netlink::Kernel) did since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that told of a change when it happened.
    pub notifications: u64,
    /// Messages of dumps.
    pub dumped: u64,
    /// Dumps that were begun.
    pub dumps: u64,
    /// Dumps that were read once more, because something changed meanwhile that could hide a thing from us.
    pub dumps_repeated: u64,
    /// Dumps that failed; each is tried again.
    pub dumps_failed: u64,
    /// Times that messages were lost because we did not read fast enough; each time everything is dumped
    /// again.
    pub overruns: u64,
    /// Requests to look for a neighbour.
    pub asked: u64,
    /// Requests that the kernel refused: the link is gone, its table of neighbours is full.
    pub refused: u64,
    /// Messages that do not concern us, by reason.
    pub ignored: Reasons,
    /// Messages that were not understood, by reason.
    pub errors: Reasons,
}

impl Counters {
    pub(super) fn error(&mut self, error: DecodeError) {
        self.errors.count(error.reason());
    }

    /// Name and count of each, to be shown.
    pub fn rows(&self) -> Vec<(String, u64)> {
        let mut rows: Vec<(String, u64)> = [
            ("notifications", self.notifications),
            ("messages of dumps", self.dumped),
            ("dumps", self.dumps),
            ("dumps repeated", self.dumps_repeated),
            ("dumps failed", self.dumps_failed),
            ("overruns", self.overruns),
            ("neighbours asked for", self.asked),
            ("requests refused", self.refused),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into();
        rows.extend(self.ignored.iter().map(|(reason, count)| (format!("ignored: {reason}"), count)));
        rows.extend(self.errors.iter().map(|(reason, count)| (format!("not understood: {reason}"), count)));
        rows
    }
}
