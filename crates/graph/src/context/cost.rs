//! What each step costs, while somebody asks.
//!
//! The counters of [`Slot`](super::Slot)s and runs grow all the time, and a sixteenth of the turns is timed all the time. A
//! [`Context::begin_cost`] writes down where the counters stand and has every turn timed; [`Context::end_cost`] returns what
//! was added. So nobody who does not ask pays for the answer, and the answer is a count and not an estimate.

use packet::cycles;

use super::Context;
use super::machine::TIMED_SHARE;

/// Reads counters of the CPU that only grow: misses of the last-level cache, mispredicted branches.
pub type ReadMisses = Box<dyn FnMut() -> [u64; 2] + Send>;

/// What one step did while it was looked at: an element alone, or a fused run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepCost {
    /// The numbers of its elements in the configuration; several of a run.
    pub elements: Vec<usize>,
    /// Packets that came to it.
    pub packets: u64,
    /// Batches in which they came.
    pub batches: u64,
    /// TSC cycles that it took itself, without the steps that it sends packets to.
    pub cycles: u64,
    /// Those of its packets whose cycles were counted: nearly all. Handlers work on the others, between turns.
    pub timed_packets: u64,
    /// Misses of the last-level cache and mispredicted branches, where the CPU counts them.
    pub misses: Option<[u64; 2]>,
}

impl StepCost {
    /// Returns the packets in a batch; 0 without any.
    pub fn packets_per_batch(&self) -> f64 {
        if self.batches == 0 { 0.0 } else { self.packets as f64 / self.batches as f64 }
    }

    /// Returns so much of a packet, of a `count` of all; `None` without packets.
    pub fn per_packet(&self, count: u64) -> Option<f64> {
        (self.timed_packets > 0).then(|| count as f64 / self.timed_packets as f64)
    }
}

/// What the steps of one copy did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyCost {
    /// Number of the copy.
    pub copy: usize,
    /// The steps that did something.
    pub steps: Vec<StepCost>,
    /// TSC cycles that went by.
    pub cycles: u64,
}

impl CopyCost {
    /// Returns the share of the time that `cycles` took, 0 to 1.
    pub fn share(&self, cycles: u64) -> f64 {
        if self.cycles == 0 { 0.0 } else { (cycles as f64 / self.cycles as f64).min(1.0) }
    }

    /// Returns the share of the time that no step took: looks at idle ports, mail, sleep, time that Linux gave to other programs.
    pub fn rest(&self) -> f64 {
        1.0 - self.share(self.steps.iter().map(|step| step.cycles).sum())
    }
}

/// Counters of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) packets: u64,
    pub(crate) batches: u64,
    pub(crate) timed_packets: u64,
    pub(crate) timed_cycles: u64,
}

/// The measurement that goes on.
pub(super) struct Measuring {
    /// When it began, by the TSC.
    since: u64,
    /// Where the counters of slots and runs stood then; `None` once runs were made anew, for the counters are others then.
    before: Option<(Vec<Counts>, Vec<Counts>)>,
    /// Whether elements worked as one before.
    was_fused: bool,
}

/// Charges what a [`ReadMisses`] counts to steps.
pub(crate) struct Meter {
    read: ReadMisses,
    last: [u64; 2],
    /// What it read at the ends of a crossing's parts.
    parts: [[u64; 2]; 3],
    /// Of the slots, and behind them of the runs: made at the beginning, so that nothing is allocated among packets.
    sums: Vec<[u64; 2]>,
    slots: usize,
}

/// A step, by its number among its like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Slot(usize),
    Run(usize),
}

impl Meter {
    fn new(mut read: ReadMisses, slots: usize, runs: usize) -> Self {
        Self { last: read(), read, parts: [[0; 2]; 3], sums: vec![[0; 2]; slots + runs], slots }
    }

    fn index(&self, step: Step) -> usize {
        match step {
            Step::Slot(number) => number,
            Step::Run(number) => self.slots + number,
        }
    }

    /// Leaves what was counted since the last call to nobody. Returns the time then.
    pub(super) fn skip(&mut self) -> u64 {
        self.last = (self.read)();
        cycles::now()
    }

    /// Charges it to a step. Returns the time then, so that reading costs the next step nothing.
    pub(super) fn charge(&mut self, step: Step) -> u64 {
        let before = self.last;
        let now = self.skip();
        self.add(step, difference(self.last, before));
        now
    }

    /// Ends a part of a crossing.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_part(&mut self, part: usize) -> u64 {
        self.parts[part % 3] = (self.read)();
        cycles::now()
    }

    /// Returns what the three parts of a crossing counted, once it has not been refused.
    pub(super) fn crossed(&mut self) -> [[u64; 2]; 3] {
        let [first, middle, last] = self.parts;
        let before = std::mem::replace(&mut self.last, last);
        [difference(first, before), difference(middle, first), difference(last, middle)]
    }

    pub(super) fn add(&mut self, step: Step, misses: [u64; 2]) {
        let index = self.index(step);
        // Runs that were made since are not measured.
        if let Some(sum) = self.sums.get_mut(index) {
            *sum = [sum[0] + misses[0], sum[1] + misses[1]];
        }
    }
}

fn difference(now: [u64; 2], before: [u64; 2]) -> [u64; 2] {
    [now[0].saturating_sub(before[0]), now[1].saturating_sub(before[1])]
}

impl Context {
    /// Begins to count what each step costs. With `unfused`, elements in a row do not work as one meanwhile, so that each
    /// element is a step.
    pub(crate) fn begin_cost(&mut self, unfused: bool, misses: Option<ReadMisses>) {
        let was_fused = self.is_fused();
        if unfused {
            self.set_fused(false);
        }
        let slots = self.slots.iter().map(|slot| slot.counts()).collect();
        let runs = self.runs.iter().map(|run| run.counts_so_far()).collect();
        self.untimed = 0;
        self.meter = misses.map(|read| Box::new(Meter::new(read, self.slots.len(), self.runs.len())));
        let before = Some((slots, runs));
        self.measuring = Some(Box::new(Measuring { since: cycles::now(), before, was_fused }));
    }

    /// Ends it. Returns `None` where the steps are not those that there were at the beginning.
    pub(crate) fn end_cost(&mut self) -> Option<CopyCost> {
        let cycles = cycles::now();
        let measuring = self.measuring.take()?;
        let meter = self.meter.take();
        self.untimed = TIMED_SHARE - 1;
        // Behind the configuration's elements there are taps, whose cycles are left to nobody.
        let count = self.config().elements.len();
        let steps = measuring.before.map(|(slots, runs)| {
            let mut steps = Vec::new();
            let mut add = |step: Step, elements: Vec<usize>, now: Counts, before: Counts| {
                let misses = meter.as_ref().and_then(|meter| meter.sums.get(meter.index(step)).copied());
                let cost = StepCost {
                    elements,
                    packets: now.packets.saturating_sub(before.packets),
                    batches: now.batches.saturating_sub(before.batches),
                    cycles: now.timed_cycles.saturating_sub(before.timed_cycles),
                    timed_packets: now.timed_packets.saturating_sub(before.timed_packets),
                    misses,
                };
                if cost.packets > 0 || cost.cycles > 0 {
                    steps.push(cost);
                }
            };
            for (number, (run, before)) in self.runs.iter_mut().zip(runs).enumerate() {
                add(Step::Run(number), run.members().collect(), run.counts_so_far(), before);
                run.set_timed(as_a_sample(run.counts_so_far(), before));
            }
            for (number, (slot, before)) in self.slots.iter_mut().zip(slots).enumerate().take(count) {
                add(Step::Slot(number), vec![number], slot.counts(), before);
                slot.set_timed(as_a_sample(slot.counts(), before));
            }
            steps
        });
        if measuring.was_fused != self.is_fused() {
            self.set_fused(measuring.was_fused);
        }
        let cycles = cycles.wrapping_sub(measuring.since);
        steps.map(|steps| CopyCost { copy: self.copy_index(), steps, cycles })
    }

    /// Has the measurement that goes on fail: its steps are no more.
    pub(super) fn disturb_cost(&mut self) {
        if let Some(measuring) = &mut self.measuring {
            measuring.before = None;
        }
    }
}

/// The counters as if one turn in [`TIMED_SHARE`] had been timed all the time, so that estimates since the start do not lean to
/// the time in which somebody asked.
fn as_a_sample(now: Counts, before: Counts) -> Counts {
    let share = |now: u64, before: u64| before + now.saturating_sub(before) / u64::from(TIMED_SHARE);
    Counts {
        timed_packets: share(now.timed_packets, before.timed_packets),
        timed_cycles: share(now.timed_cycles, before.timed_cycles),
        ..now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_costs_of_a_packet() {
        let step = |cycles, packets, batches| StepCost {
            elements: vec![0],
            packets,
            batches,
            cycles,
            timed_packets: packets,
            misses: None,
        };
        let cost = CopyCost { copy: 0, steps: vec![step(300, 10, 4), step(100, 0, 0)], cycles: 1_000 };
        assert_eq!(cost.steps[0].packets_per_batch(), 2.5);
        assert_eq!(cost.steps[0].per_packet(cost.steps[0].cycles), Some(30.0));
        assert_eq!((cost.steps[1].packets_per_batch(), cost.steps[1].per_packet(100)), (0.0, None));
        assert_eq!((cost.share(300), cost.share(2_000)), (0.3, 1.0));
        assert!((cost.rest() - 0.6).abs() < 1e-9);
        assert_eq!((CopyCost::default().share(7), CopyCost::default().rest()), (0.0, 1.0));
    }

    #[test]
    fn misses_belong_to_the_step_that_ends_and_those_of_a_refused_crossing_to_the_next() {
        let mut values = [0, 5, 7, 100, 200, 300, 400, 500, 600].into_iter();
        let mut meter = Meter::new(Box::new(move || [values.next().unwrap_or(600); 2]), 4, 1);
        meter.charge(Step::Slot(3));
        meter.skip();
        // Refused after its first part.
        meter.end_part(0);
        meter.charge(Step::Slot(3));
        (0..3).for_each(|part| {
            meter.end_part(part);
        });
        assert_eq!(meter.crossed(), [[100; 2]; 3]);
        meter.charge(Step::Run(0));
        assert_eq!(meter.sums, [[0; 2], [0; 2], [0; 2], [5 + 193; 2], [100; 2]]);
    }

    #[test]
    fn what_was_timed_while_somebody_asked_weighs_as_what_is_timed_always() {
        let before = Counts { packets: 16, batches: 1, timed_packets: 1, timed_cycles: 50 };
        let now = Counts { packets: 48, batches: 3, timed_packets: 33, timed_cycles: 1_650 };
        let after = as_a_sample(now, before);
        assert_eq!((after.packets, after.timed_packets, after.timed_cycles), (48, 3, 150));
    }
}
