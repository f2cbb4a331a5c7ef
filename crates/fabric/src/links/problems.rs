//! What is wrong on the links of a node, and how often that is reported: anybody who reaches a link can say anything there, as often
//! as he likes.
//!
//! A problem is reported when it begins, once for each cause, and when nothing was wrong for a second. While it lasts, the same cause
//! in other words (another cluster each time, say) is reported every ten seconds. Where one follows the other within an hour, each
//! has to be over for twice as long as the one before until that is reported, and the next one is: a few wrong frames now and then
//! do not fill a disk.

use super::Event;

/// How long nothing must be wrong on a link until that is reported, where nothing was wrong before.
const PROBLEM_LASTS_NS: u64 = 1_000_000_000;
/// The most that it must, and how long after a problem the next one counts as the first.
const LONGEST_LASTS_NS: u64 = 3_600_000_000_000;
/// Between two reports of one cause on a link.
const SAME_CAUSE_NS: u64 = 10_000_000_000;

/// Why a hello is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot be read.
    Malformed,
    /// It is of another version.
    Version,
    /// Nobody with the cluster's key said it.
    Key,
    /// It is another cluster's.
    Cluster,
    /// It is this node's own.
    Loop,
    /// It has this node's number.
    Number,
    /// Who says it believes in another topology.
    Topology,
    /// It should have come by another link, or by none.
    Wire,
    /// Another node with the same number is there.
    Twice,
    /// It was said before, or before its node started again.
    Replay,
}

impl Refusal {
    /// As how it is counted.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed hello",
            Refusal::Version => "hello of another version",
            Refusal::Key => "hello without the cluster's key",
            Refusal::Cluster => "hello of another cluster",
            Refusal::Loop => "this node's own hello",
            Refusal::Number => "hello with this node's number",
            Refusal::Topology => "hello of another topology",
            Refusal::Wire => "hello by a wrong link",
            Refusal::Twice => "hello of a second node with one number",
            Refusal::Replay => "replayed hello",
        }
    }
}

/// What is wrong on a link.
#[derive(Clone, Debug, Default)]
pub(super) struct Problem {
    /// What it is now, in words. `None`: nothing.
    text: Option<String>,
    seen_ns: u64,
    /// The causes that were reported since it began, when each was last, and in which words.
    reported: Vec<(Refusal, u64, String)>,
    /// Hellos that were refused since it began.
    refused: u64,
    /// How often it followed another one, and when that ended.
    follows: u32,
    ended_ns: u64,
}

impl Problem {
    /// What is wrong, in words.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// A hello was refused. Returns what is to be reported of it.
    pub(super) fn refused(
        &mut self,
        link: u16,
        cause: Refusal,
        problem: String,
        now_ns: u64,
    ) -> Option<Event> {
        if self.text.is_none() && now_ns.saturating_sub(self.ended_ns) >= LONGEST_LASTS_NS {
            self.follows = 0;
        }
        (self.seen_ns, self.refused) = (now_ns, self.refused + 1);
        let before = self.reported.iter_mut().find(|(known, ..)| *known == cause);
        let is_news = match &before {
            None => true,
            Some((_, at_ns, words)) => *words != problem && now_ns.saturating_sub(*at_ns) >= SAME_CAUSE_NS,
        };
        self.text = Some(problem.clone());
        if !is_news {
            return None;
        }
        match before {
            Some(before) => (before.1, before.2) = (now_ns, problem.clone()),
            None => self.reported.push((cause, now_ns, problem.clone())),
        }
        Some(Event::Wrong { link, problem })
    }

    /// A hello was believed. Returns what is to be reported of it. Where two nodes take turns (both with the same number on a switch,
    /// say), the problem has not ended because one of them is right.
    pub(super) fn believed(&mut self, link: u16, now_ns: u64) -> Option<Event> {
        let lasts_ns = (PROBLEM_LASTS_NS << self.follows).min(LONGEST_LASTS_NS);
        if self.text.is_none() || now_ns.saturating_sub(self.seen_ns) < lasts_ns {
            return None;
        }
        let next = Self { follows: (self.follows + 1).min(12), ended_ns: now_ns, ..Self::default() };
        Some(Event::Right { link, refused: std::mem::replace(self, next).refused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_wrong_frames_now_and_then_fill_no_log() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut problem = Problem::default();
        let mut reports = |now_ns: u64| {
            let wrong = problem.refused(0, Refusal::Key, "no key".to_owned(), now_ns);
            let right = problem.believed(0, now_ns + SECOND_NS);
            usize::from(wrong.is_some()) + usize::from(right.is_some())
        };
        // Every 1.1 s of a day, then every minute of ten.
        let day = 86_400 * SECOND_NS;
        assert_eq!((0..day).step_by(1_100_000_000).map(&mut reports).sum::<usize>(), 3);
        assert!((day..11 * day).step_by(60_000_000_000).map(&mut reports).sum::<usize>() <= 16);
    }
}
