//! Fused runs: elements in a row that work as one on the packets that are ordinary for all of them.
//!
//! What an element does to most packets is little: "the first six bytes must be these", "strip 14". An element declares that
//! by [`Element::ordinary`](crate::Element::ordinary), as steps that some kinds of [`Work`] know. Elements in a row whose
//! steps fit into one loop become a run when a copy of the graph is made, and again when a handler was written that changed
//! what an element declares. The machine knows neither steps nor loops: `brickway-elements` has those of routers, and a crate
//! can bring its own.
//!
//! **When it runs.** A batch comes to the first element of a run. The run does the work of all its elements to each packet
//! that is ordinary for all of them, and these packets go on behind the last element. The odd packets stay as they were and
//! take the way through the elements themselves, behind the others. So each packet meets the same fate with runs and without,
//! and packets that take the same way keep their order; `crates/click/tests/runs` compares both.
//!
//! **Which run.** Every element of a chain begins a run of its own, with all those behind it, so that packets which are odd for
//! an element in front can still go the rest at once. Where an element knows two kinds of ordinary packets, two runs begin at
//! it, and the first packet of a batch decides which is tried first. A batch of which all packets were odd is looked at again
//! only when it has become smaller.
//!
//! **Over a fork.** A run may end at an element that sends packets out by several outputs, at each of which another run begins
//! that ends at an element which looks at data alone, as a port does. Where a run knows how ([`Work::crossing`]), packets that
//! are ordinary for all of them go the whole way at once.
//!
//! **Counters.** A run counts packets and batches once; they are added to those of its elements when these
//! are read. The elements of a run share its cycles evenly.

#[cfg(test)]
pub(crate) mod tests;

use std::any::Any;
use std::fmt;
use std::rc::Rc;

use packet::{Batch, Packet};

use crate::context::{Counts, End, LANES, Meter, Slot, lap};
use crate::element::Element;

/// Most elements in one run: enough for what people write, and an end for chains that circle.
const MOST_MEMBERS: usize = 16;

/// The merged work of elements in a row.
pub trait Work: Any + Send {
    /// Returns the same work and, after it, what another element declares; `None` where that does not fit.
    fn with(&self, steps: &dyn Any) -> Option<Box<dyn Work>>;

    /// Does the work to each packet, by [`Sieve::each`], or has `last` do it.
    fn apply(&mut self, last: Last<'_>, sieve: &mut Sieve<'_>);

    /// The way over `element`, behind this work, to the ends of the runs behind it; `None` where there is none.
    fn crossing(&self, _element: usize) -> Option<Box<dyn Crossing>> {
        None
    }
}

/// The work of a run, of the element behind it, and of the runs behind that.
pub trait Crossing: Send {
    /// Takes in the work behind an output of the element, which ends with the element `last`; false where that does not fit.
    fn add_exit(&mut self, output: usize, work: &dyn Work, last: usize, asked: &mut Asked<'_>) -> bool;

    /// Does the work to each packet that is ordinary for all, and writes down the output of the element in the middle for each
    /// of them. The others are unchanged.
    fn apply(
        &mut self,
        asked: &mut Asked<'_>,
        sieve: &mut Sieve<'_>,
        outputs: &mut Vec<u16>,
        laps: &mut Laps<'_>,
    );
}

/// The elements, to be asked.
pub struct Asked<'a>(&'a mut [Slot]);

impl Asked<'_> {
    /// Asks an element; false if it does not know.
    #[inline(always)]
    pub fn ask(&mut self, element: usize, question: &mut dyn Any) -> bool {
        let element = self.0.get_mut(element).and_then(|slot| slot.element.as_mut());
        element.is_some_and(|element| element.answer(question))
    }
}

/// The cycles of the parts of a crossing: the run, the element in the middle, the runs behind it.
pub struct Laps<'a> {
    mark: Option<u64>,
    laps: [u64; 3],
    count: usize,
    meter: Option<&'a mut Meter>,
}

impl<'a> Laps<'a> {
    /// Begins at `mark`; without one nothing is timed.
    pub(crate) fn begin(mark: Option<u64>, meter: Option<&'a mut Meter>) -> Self {
        Self { mark, laps: [0; 3], count: 0, meter }
    }

    /// Ends a part.
    #[inline(always)]
    pub fn lap(&mut self) {
        if let Some(mark) = &mut self.mark {
            self.laps[self.count % 3] = lap(mark);
            if let Some(meter) = &mut self.meter {
                *mark = meter.end_part(self.count);
            }
            self.count += 1;
        }
    }

    /// When the last part ended, and the cycles of all; `None` if nothing is timed.
    pub(crate) fn done(&self) -> Option<(u64, [u64; 3])> {
        self.mark.map(|mark| (mark, self.laps))
    }
}

/// The last element of a run, for work that it finishes itself.
pub struct Last<'a>(&'a mut Option<Box<dyn Element>>);

impl Last<'_> {
    /// Has the element do `work` and its own, by [`Element::finish`](crate::Element::finish).
    pub fn finish(self, work: &mut dyn Any, sieve: &mut Sieve<'_>) {
        match self.0 {
            Some(element) => element.finish(work, sieve),
            None => sieve.refuse(),
        }
    }
}

/// A kind of work, with nothing to do yet.
pub type Shape = fn() -> Box<dyn Work>;

/// What an element declares, in a form that some kinds of work know.
pub trait Steps: Any {
    /// Returns whether the other steps are the same.
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<T: Any + PartialEq> Steps for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }
}

/// What an element does to an ordinary packet.
#[derive(Clone)]
pub struct Ordinary {
    /// Its steps.
    pub steps: Rc<dyn Steps>,
    /// What the steps may be merged into, the first that fits.
    pub shapes: &'static [Shape],
    /// The output that the packet takes.
    pub output: usize,
}

impl PartialEq for Ordinary {
    fn eq(&self, other: &Self) -> bool {
        let (steps, others): (&dyn Steps, &dyn Any) = (&*self.steps, &*other.steps);
        self.output == other.output && steps.equals(others)
    }
}

impl fmt::Debug for Last<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Last(..)")
    }
}

impl fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asked(..)")
    }
}

impl fmt::Debug for Laps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Laps").field("laps", &self.laps).finish_non_exhaustive()
    }
}

impl fmt::Debug for Ordinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ordinary").field("output", &self.output).finish_non_exhaustive()
    }
}

/// A batch in a run: ordinary packets stay in it, odd ones are put aside.
#[derive(Debug)]
pub struct Sieve<'a> {
    batch: &'a mut Batch,
    odd: &'a mut Batch,
    now_ns: u64,
    /// The run is not for this batch where its first packet is odd.
    by_first: bool,
    is_refused: bool,
}

impl Sieve<'_> {
    /// The machine's time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns whether all packets are left to the elements themselves: none was ordinary.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The packets.
    #[inline(always)]
    pub fn packets(&self) -> &[Packet] {
        self.batch.packets()
    }

    /// The packets, to change.
    #[inline(always)]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        self.batch.packets_mut()
    }

    /// Whether the run is for this batch only where its first packet is ordinary.
    #[inline(always)]
    pub fn by_first(&self) -> bool {
        self.by_first
    }

    /// Puts packets aside by their number in the batch, which must all be unchanged.
    pub fn put_aside(&mut self, is_odd: impl Fn(usize) -> bool) {
        let Self { batch, odd, .. } = self;
        let mut number = 0;
        let is_ordinary = |_: &mut Packet| {
            number += 1;
            !is_odd(number - 1)
        };
        batch.extract(is_ordinary, |packet| odd.push(packet));
        self.is_refused = self.batch.is_empty();
    }

    /// Leaves all packets to the elements themselves.
    pub fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Does `work` to each packet. `work` returns whether the packet was ordinary; one that is not must be unchanged.
    #[inline(always)]
    pub fn each(&mut self, work: impl FnMut(&mut Packet) -> bool) {
        let Self { batch, odd, by_first, .. } = self;
        let goes_on = batch.extract_unless_first(*by_first, work, |packet| odd.push(packet));
        self.is_refused = !goes_on || self.batch.is_empty();
    }
}

impl Sieve<'_> {
    /// Looks at packets that were found ordinary once more; those that are not after all come before the other odd ones.
    /// `is_ordinary` must not change them.
    pub fn each_again(&mut self, is_ordinary: impl FnMut(&mut Packet) -> bool) {
        let before = self.odd.len();
        self.batch.extract(is_ordinary, |packet| self.odd.push(packet));
        self.odd.packets_mut().rotate_left(before);
        self.is_refused = self.batch.is_empty();
    }
}

/// From the first element of a run over the element behind it to the ends of the runs there.
pub(crate) struct Fork {
    crossing: Box<dyn Crossing>,
    /// The element behind the run.
    pub(crate) at: u32,
    /// The run behind each of its outputs.
    pub(crate) exits: Vec<Option<u32>>,
}

impl Fork {
    /// Has the ordinary packets of a batch cross, and writes down an output for each. The others move to `odd`, which is empty
    /// before. Returns false, with all packets in `batch` and unchanged, if none was ordinary; with `by_first` if the first was
    /// not.
    #[inline(always)]
    pub(crate) fn apply(
        &mut self,
        slots: &mut [Slot],
        now_ns: u64,
        (batch, odd): (&mut Batch, &mut Batch),
        by_first: bool,
        outputs: &mut Vec<u16>,
        laps: &mut Laps<'_>,
    ) -> bool {
        let mut sieve = Sieve { batch, odd, now_ns, by_first, is_refused: false };
        self.crossing.apply(&mut Asked(slots), &mut sieve, outputs, laps);
        let is_refused = sieve.is_refused;
        if is_refused && batch.is_empty() {
            std::mem::swap(batch, odd);
        }
        !is_refused
    }
}

/// A run, and its counters.
pub(crate) struct Run {
    members: Vec<u32>,
    last: u32,
    work: Box<dyn Work>,
    /// The run to try where this one refuses a batch.
    pub(crate) otherwise: Option<u32>,
    pub(crate) exit: End,
    packets: u64,
    batches: u64,
    timed_packets: u64,
    timed_cycles: u64,
    /// The way on from its end, where that is a fork.
    pub(crate) fork: Option<Fork>,
}

impl Run {
    /// Does the run's work to the ordinary packets of a batch and moves the others to `odd`, which is empty before. With
    /// `by_first` it does so only where the first packet is ordinary. Returns whether any packet was ordinary; if not, all
    /// packets are in `batch`, unchanged.
    #[inline(always)]
    pub(crate) fn apply(
        &mut self,
        slots: &mut [Slot],
        now_ns: u64,
        batch: &mut Batch,
        odd: &mut Batch,
        by_first: bool,
    ) -> bool {
        let mut sieve = Sieve { batch, odd, now_ns, by_first, is_refused: false };
        self.work.apply(Last(&mut slots[self.last as usize].element), &mut sieve);
        if sieve.is_refused {
            if batch.is_empty() {
                std::mem::swap(batch, odd);
            }
            return false;
        }
        self.packets += batch.len() as u64;
        self.batches += 1;
        true
    }

    /// Counts packets that took this run as part of a crossing.
    #[inline]
    pub(crate) fn count(&mut self, packets: usize, cycles: Option<u64>) {
        self.packets += packets as u64;
        self.batches += 1;
        if let Some(cycles) = cycles {
            self.charge(packets, cycles);
        }
    }

    /// Adds the cycles that so many packets took.
    pub(crate) fn charge(&mut self, packets: usize, cycles: u64) {
        self.timed_packets += packets as u64;
        self.timed_cycles += cycles;
    }

    /// What each of its elements did in it: packets, batches, cycles.
    pub(crate) fn counts(&self) -> (u64, u64, f64) {
        let timed = self.timed_packets.max(1) as f64;
        let cycles = self.timed_cycles as f64 * self.packets as f64 / timed / self.members.len() as f64;
        (self.packets, self.batches, cycles)
    }

    /// Its counters.
    pub(crate) fn counts_so_far(&self) -> Counts {
        let &Self { packets, batches, timed_packets, timed_cycles, .. } = self;
        Counts { packets, batches, timed_packets, timed_cycles }
    }

    /// Sets what was timed.
    pub(crate) fn set_timed(&mut self, counts: Counts) {
        (self.timed_packets, self.timed_cycles) = (counts.timed_packets, counts.timed_cycles);
    }

    /// Its elements, the first first.
    pub(crate) fn members(&self) -> impl Iterator<Item = usize> {
        self.members.iter().map(|&member| member as usize)
    }

    /// Sets its counters back to zero.
    pub(crate) fn reset(&mut self) {
        (self.packets, self.batches, self.timed_packets, self.timed_cycles) = (0, 0, 0, 0);
    }

    /// Whether `element` is in it.
    pub(crate) fn has(&self, element: usize) -> bool {
        self.members.contains(&(element as u32))
    }
}

/// All runs of a copy of the graph; each element in a slot learns which one it begins.
pub(crate) fn find(slots: &mut [Slot]) -> Vec<Run> {
    let ordinary: Vec<Option<Ordinary>> =
        slots.iter().map(|slot| slot.element.as_ref().and_then(|element| element.ordinary())).collect();
    // The same for elements that know a second kind of packet.
    let mut has_second = false;
    let second: Vec<Option<Ordinary>> = (slots.iter().zip(&ordinary))
        .map(|(slot, first)| {
            let second = slot.element.as_ref().and_then(|element| element.ordinary_else());
            has_second |= second.is_some();
            second.or_else(|| first.clone())
        })
        .collect();
    let mut runs: Vec<Run> = Vec::new();
    for first in 0..slots.len() {
        let usual = longest(slots, &ordinary, first);
        let other = if has_second { longest(slots, &second, first) } else { None };
        let other = other.filter(|other| {
            usual.as_ref().is_none_or(|usual| (&other.members, other.exit) != (&usual.members, usual.exit))
        });
        slots[first].run = None;
        // The usual one is found first, so the other is its second choice.
        for mut run in [other, usual].into_iter().flatten() {
            run.otherwise = slots[first].run;
            slots[first].run = Some(runs.len() as u32);
            runs.push(run);
        }
    }
    for number in 0..runs.len() {
        runs[number].fork = fork(slots, &runs, number);
    }
    runs
}

/// The way on from a run over the element behind it.
fn fork(slots: &mut [Slot], runs: &[Run], number: usize) -> Option<Fork> {
    let End { element: at, port: 0 } = runs[number].exit else { return None };
    let mut crossing = runs[number].work.crossing(at as usize)?;
    let outputs: Vec<Option<End>> = slots[at as usize].outputs.iter().take(LANES).copied().collect();
    let mut exits = Vec::new();
    for (output, end) in outputs.into_iter().enumerate() {
        let mut next = end.filter(|end| end.port == 0).and_then(|end| slots[end.element as usize].run);
        let mut exit = None;
        while let Some(behind) = next.filter(|_| exit.is_none()) {
            let run = &runs[behind as usize];
            let sink = slots[run.exit.element as usize].element.as_ref();
            let fits = sink.is_some_and(|sink| sink.takes_data_alone())
                && crossing.add_exit(output, &*run.work, run.last as usize, &mut Asked(slots));
            exit = fits.then_some(behind);
            next = run.otherwise;
        }
        exits.push(exit);
    }
    exits.iter().any(Option::is_some).then_some(Fork { crossing, at, exits })
}

/// The longest run of the first shape that fits which begins with the element `first`; one element alone is none.
fn longest(slots: &[Slot], ordinary: &[Option<Ordinary>], first: usize) -> Option<Run> {
    let shapes = ordinary[first].as_ref()?.shapes;
    shapes.iter().find_map(|shape| {
        let mut work = shape();
        let mut members = Vec::new();
        let mut exit = End { element: first as u32, port: 0 };
        while exit.port == 0 && members.len() < MOST_MEMBERS && !members.contains(&exit.element) {
            let at = exit.element as usize;
            let Some(Ordinary { steps, output, .. }) = &ordinary[at] else { break };
            let Some(&Some(next)) = slots[at].outputs.get(*output) else { break };
            let Some(more) = work.with(&**steps) else { break };
            work = more;
            members.push(exit.element);
            exit = next;
        }
        (members.len() > 1).then(|| Run {
            last: members[members.len() - 1],
            members,
            work,
            otherwise: None,
            exit,
            fork: None,
            packets: 0,
            batches: 0,
            timed_packets: 0,
            timed_cycles: 0,
        })
    })
}
