//! The machine: carries batches from element to element, runs tasks and timers, keeps the accounts. The essay is in
//! `context`.

use std::cmp::Reverse;

use packet::{Batch, cycles};

use super::cost::Step;
use super::{CLOSED, Context, ElementStats, End, LANES, Pending};
use crate::element::{Element, TaskStatus};
use crate::runs::{self, Laps, Run};

/// Most hops that the packets of one task run may make: beyond, they circle.
const MOST_HOPS: u32 = 1 << 20;

/// After so many looks in a row that found nothing, a source is passed over for 2^3 - 1 busy turns.
pub(super) const MOST_IDLE_LOOKS: u8 = 3;

/// One turn in this many is timed, while nobody asks what steps cost.
pub(super) const TIMED_SHARE: u32 = 16;
const _: () = assert!(TIMED_SHARE.is_power_of_two());

/// A stay in an element that took longer was interrupted: the kernel gave the CPU to somebody else.
const INTERRUPTED_CYCLES: u64 = 1_000_000;

/// The cycles since `mark`, which is now; none when the thread was interrupted meanwhile.
#[inline(always)]
pub(crate) fn lap(mark: &mut u64) -> u64 {
    let now = cycles::now();
    let spent = now.wrapping_sub(std::mem::replace(mark, now));
    if spent < INTERRUPTED_CYCLES { spent } else { 0 }
}

/// Where packets go on.
enum Exit {
    To(End),
    /// They are on the stack.
    Several,
}

impl Context {
    pub(crate) fn enter<R>(
        &mut self,
        element: usize,
        call: impl FnOnce(&mut dyn Element, &mut Self) -> R,
    ) -> Option<R> {
        let result = self.visit(element, call)?;
        self.finish();
        Some(result)
    }

    /// Works off what was emitted outside of a turn.
    pub(crate) fn finish(&mut self) {
        let before = self.current;
        self.finish_emission();
        self.work_off();
        self.current = before;
    }

    /// Pushes `batch` into an input and works off all that follows.
    pub(crate) fn run(&mut self, to: End, batch: Batch) {
        self.stack.push(Pending { to, output: 0, batch });
        self.work_off();
    }

    fn work_off(&mut self) {
        self.hops = 0;
        while let Some(pending) = self.stack.pop() {
            self.follow(pending.to, pending.batch);
        }
    }

    /// Carries one batch on until it ends or falls apart.
    fn follow(&mut self, mut to: End, mut batch: Batch) {
        // Length of the batch when the runs last refused it: it is the same batch until it is shorter.
        let mut refused = 0;
        loop {
            self.hops += 1;
            if self.hops > MOST_HOPS {
                self.current = to.element;
                self.drop_batch(&mut batch, "circles in the graph");
                self.spare.push(batch);
                return;
            }
            // Where no run begins, none has refused it. Odd packets would be overtaken, which merged ones of a flow with others must not.
            let has_merged = || self.pool.has_large() && batch.iter().any(packet::Packet::is_merged);
            let run = self.slots[to.element as usize].run;
            let run = run.filter(|_| to.port == 0 && batch.len() != refused && !has_merged());
            if let Some(usual) = run {
                match self.run_through(usual, to, &mut batch) {
                    Some(Exit::To(exit)) => {
                        to = exit;
                        continue;
                    }
                    Some(Exit::Several) => return self.spare.push(batch),
                    None => refused = batch.len(),
                }
            }
            let count = batch.len() as u64;
            let slot = &mut self.slots[to.element as usize];
            slot.packets += count;
            slot.batches += 1;
            let Some(mut element) = slot.element.take() else {
                self.current = to.element;
                self.drop_batch(&mut batch, "pushed into an element that is pulling");
                self.spare.push(batch);
                return;
            };
            self.current = to.element;
            element.push(self, to.port as usize, &mut batch);
            let slot = &mut self.slots[to.element as usize];
            slot.element = Some(element);
            let next = slot.outputs.first().copied().flatten();
            if self.timed {
                slot.timed_packets += count;
                self.charge(to.element);
            }
            if !self.emitted.is_empty() {
                if !batch.is_empty() {
                    match next {
                        Some(next) => self.stack.push(Pending { to: next, output: 0, batch }),
                        None => self.end_without_output(batch),
                    }
                } else {
                    self.spare.push(batch);
                }
                self.finish_emission();
                return;
            }
            if batch.is_empty() {
                self.spare.push(batch);
                return;
            }
            match next {
                Some(next) => to = next,
                None => return self.end_without_output(batch),
            }
        }
    }

    /// Carries the ordinary packets of a batch through a run that begins at `to`, and returns where they go on. The odd ones come
    /// back to `to` behind them. Returns `None` where all packets are odd.
    #[inline(always)]
    fn run_through(&mut self, usual: u32, to: End, batch: &mut Batch) -> Option<Exit> {
        // The first packet says which run the batch is for.
        self.try_runs(usual, to, batch, true).or_else(|| self.run_through_any(usual, to, batch))
    }

    /// The same where the first packet is odd for all runs: the others may not be.
    #[cold]
    #[inline(never)]
    fn run_through_any(&mut self, usual: u32, to: End, batch: &mut Batch) -> Option<Exit> {
        if batch.len() == 1 { None } else { self.try_runs(usual, to, batch, false) }
    }

    #[inline(always)]
    fn try_runs(&mut self, usual: u32, to: End, batch: &mut Batch, by_first: bool) -> Option<Exit> {
        let count = batch.len();
        let mut next = Some(usual);
        while let Some(number) = next {
            if let Some(exit) = self.cross(number, to, batch, by_first) {
                return Some(exit);
            }
            let run = &mut self.runs[number as usize];
            if run.apply(&mut self.slots, self.clock.now_ns(), batch, &mut self.odd, by_first) {
                let exit = run.exit;
                if self.timed {
                    run.charge(batch.len(), lap(&mut self.mark));
                    if self.meter.is_some() {
                        self.charge_misses(Step::Run(number as usize));
                    }
                }
                if batch.len() != count {
                    self.put_odd_aside(to);
                }
                return Some(Exit::To(exit));
            }
            next = run.otherwise;
        }
        None
    }

    /// Carries the ordinary packets of a batch through a run, over the fork behind it and through the runs behind that.
    #[inline(always)]
    fn cross(&mut self, number: u32, to: End, batch: &mut Batch, by_first: bool) -> Option<Exit> {
        let fork = self.runs[number as usize].fork.as_mut()?;
        let count = batch.len();
        let mut laps = Laps::begin(self.timed.then_some(self.mark), self.meter.as_deref_mut());
        let (now_ns, odd) = (self.clock.now_ns(), &mut self.odd);
        if !fork.apply(&mut self.slots, now_ns, (batch, odd), by_first, &mut self.outputs, &mut laps) {
            return None;
        }
        let timed = laps.done();
        if batch.len() != count {
            self.put_odd_aside(to);
        }
        Some(self.leave(number, batch, timed))
    }

    /// Counts packets that have crossed, and sends them on.
    #[inline(always)]
    fn leave(&mut self, number: u32, batch: &mut Batch, timed: Option<(u64, [u64; 3])>) -> Exit {
        let count = batch.len();
        let [first, middle, last] = timed.map_or([None; 3], |(_, laps)| laps.map(Some));
        let run = &mut self.runs[number as usize];
        run.count(count, first);
        let at = run.fork.as_ref().map_or(0, |fork| fork.at);
        let slot = &mut self.slots[at as usize];
        slot.packets += count as u64;
        slot.batches += 1;
        let mut metered = None;
        if let Some((mark, _)) = timed {
            slot.timed_packets += count as u64;
            slot.timed_cycles += middle.unwrap_or(0);
            self.mark = mark;
            if self.meter.is_some() {
                metered = self.charge_crossing(number, at);
            }
        }
        // A crossing gives only outputs that it was given.
        let exit_of = |runs: &[Run], output: usize| {
            let fork = runs[number as usize].fork.as_ref();
            fork.and_then(|fork| fork.exits.get(output).copied().flatten()).unwrap_or(number) as usize
        };
        let same = self.outputs[0];
        if self.outputs.iter().fold(true, |is_same, output| is_same & (*output == same)) {
            let exit = exit_of(&self.runs, usize::from(same));
            if let Some(misses) = metered {
                self.charge_part(exit, misses, (1, 1));
            }
            let run = &mut self.runs[exit];
            run.count(count, last);
            return Exit::To(run.exit);
        }
        let (mut begun, mut lanes) = ([0; LANES], 0);
        batch.scatter(&self.outputs, &mut self.lanes, |lane| {
            begun[lanes % LANES] = lane;
            lanes += 1;
        });
        // The first comes to lie on top.
        for &lane in begun[..lanes.min(LANES)].iter().rev() {
            let empty = self.spare_batch();
            let batch = std::mem::replace(&mut self.lanes[lane], empty);
            let exit = exit_of(&self.runs, lane);
            if let Some(misses) = metered {
                self.charge_part(exit, misses, (batch.len(), count));
            }
            let run = &mut self.runs[exit];
            run.count(batch.len(), last.map(|cycles| cycles * batch.len() as u64 / count as u64));
            self.stack.push(Pending { to: run.exit, output: 0, batch });
        }
        Exit::Several
    }

    /// Charges the misses of a crossing's first two parts, and returns those of the last one.
    #[cold]
    #[inline(never)]
    fn charge_crossing(&mut self, run: u32, middle: u32) -> Option<[u64; 2]> {
        let meter = self.meter.as_mut()?;
        let [first, second, last] = meter.crossed();
        meter.add(Step::Run(run as usize), first);
        meter.add(Step::Slot(middle as usize), second);
        Some(last)
    }

    /// Charges a run a part of the misses of a crossing's last part.
    #[cold]
    #[inline(never)]
    fn charge_part(&mut self, run: usize, misses: [u64; 2], (part, all): (usize, usize)) {
        if let Some(meter) = &mut self.meter {
            meter.add(Step::Run(run), misses.map(|count| count * part as u64 / all as u64));
        }
    }

    /// Has the odd packets of a run go on at `to` when the others have gone their way.
    #[cold]
    fn put_odd_aside(&mut self, to: End) {
        let spare = self.spare_batch();
        let odd = std::mem::replace(&mut self.odd, spare);
        self.stack.push(Pending { to, output: 0, batch: odd });
    }

    #[cold]
    fn end_without_output(&mut self, mut batch: Batch) {
        self.drop_batch(&mut batch, "left in an element without outputs");
        self.spare.push(batch);
    }

    /// Closes the open batches, so that what is emitted from now on comes behind them.
    #[inline]
    pub(super) fn close_outputs(&mut self) {
        if !self.emitted.is_empty() {
            for pending in &self.emitted {
                self.open[pending.output] = CLOSED;
            }
        }
    }

    /// Puts the emitted batches on the stack, the first on top.
    #[inline]
    fn finish_emission(&mut self) {
        while let Some(pending) = self.emitted.pop() {
            self.open[pending.output] = CLOSED;
            self.stack.push(pending);
        }
    }

    /// Charges the cycles since the last mark to `element`.
    #[inline(always)]
    pub(super) fn charge(&mut self, element: u32) {
        if self.timed {
            self.charge_timed(element);
        }
    }

    /// Out of line, so that the fifteen turns that are not timed keep their registers.
    #[cold]
    #[inline(never)]
    fn charge_timed(&mut self, element: u32) {
        let spent = lap(&mut self.mark);
        self.slots[element as usize].timed_cycles += spent;
        if self.meter.is_some() {
            self.charge_misses(Step::Slot(element as usize));
        }
    }

    /// Begins to time a step anew: what went before is nobody's.
    #[inline(always)]
    pub(super) fn begin_lap(&mut self) {
        self.mark = cycles::now();
        if self.meter.is_some() {
            self.skip_misses();
        }
    }

    /// Charges a step the misses since the last time, and begins to time the next one.
    #[cold]
    #[inline(never)]
    fn charge_misses(&mut self, step: Step) {
        if let Some(meter) = &mut self.meter {
            self.mark = meter.charge(step);
        }
    }

    #[cold]
    #[inline(never)]
    fn skip_misses(&mut self) {
        if let Some(meter) = &mut self.meter {
            self.mark = meter.skip();
        }
    }

    /// One turn: due timers, then every task that is awake once. Returns whether anything was done.
    ///
    /// While others are busy, a source that found nothing is looked at more and more rarely, down to every eighth turn:
    /// a look at an idle port costs as much as work on a packet or two.
    pub fn turn(&mut self) -> bool {
        self.clock.update();
        self.timed = self.random() & self.untimed == 0;
        let mut worked = self.run_timers();
        if !self.resting.is_empty() && (!self.busy || self.look_at <= self.busy_turns) {
            self.end_rest();
        }
        self.passed_over = !self.resting.is_empty();
        for _ in 0..self.run_queue.len() {
            if self.stops_at_once && self.control.is_stopped() {
                break;
            }
            let Some(element) = self.run_queue.pop_front() else { break };
            worked |= self.run_task(element);
        }
        self.busy = worked;
        self.busy_turns += u64::from(worked);
        // What handlers set in motion between turns is not timed.
        self.timed = false;
        worked
    }

    /// Has a turn end as soon as the router is to stop, as Click's does, and not only when each task had its turn.
    pub(crate) fn stop_at_once(&mut self) {
        self.stops_at_once = true;
    }

    /// Whether any task is awake.
    pub fn has_awake_tasks(&self) -> bool {
        !self.run_queue.is_empty() || !self.resting.is_empty()
    }

    /// Queues the sources that have rested long enough; all of them, unless others are busy.
    #[inline(never)]
    fn end_rest(&mut self) {
        let now = if self.busy { self.busy_turns } else { u64::MAX };
        for (element, _) in self.resting.extract_if(.., |(_, until)| *until <= now) {
            self.run_queue.push_back(element);
        }
        self.look_at = self.resting.iter().map(|(_, until)| *until).min().unwrap_or(0);
    }

    fn run_task(&mut self, index: u32) -> bool {
        self.slots[index as usize].scheduled = false;
        let Some(mut element) = self.slots[index as usize].element.take() else { return false };
        self.current = index;
        if self.timed {
            self.begin_lap();
        }
        let status = element.task(self);
        self.slots[index as usize].element = Some(element);
        let emitted = !self.emitted.is_empty();
        let worked = status == TaskStatus::Busy || emitted;
        if worked {
            self.slots[index as usize].idle_looks = 0;
            self.count_source(index);
        } else if self.timed {
            // The cost of a look that finds nothing counts for no packet.
            self.begin_lap();
        }
        if emitted {
            self.finish_emission();
            self.work_off();
            self.current = index;
        }
        match status {
            TaskStatus::Asleep => {}
            TaskStatus::Idle if self.slots[index as usize].inputs.is_empty() => self.look_again_later(index),
            _ => self.wake_element(index),
        }
        worked
    }

    /// Queues the task of a source that found nothing.
    fn look_again_later(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.idle_looks = (slot.idle_looks + 1).min(MOST_IDLE_LOOKS);
        if !slot.scheduled {
            slot.scheduled = true;
            // This turn counts, if it does anything.
            let until = self.busy_turns + (1 << slot.idle_looks);
            self.look_at = if self.resting.is_empty() { until } else { self.look_at.min(until) };
            self.resting.push((index, until));
        }
    }

    /// Counts what a task emitted as its packets: sources have no input to be counted at.
    #[inline]
    fn count_source(&mut self, index: u32) {
        let count: u64 = self.emitted.iter().map(|pending| pending.batch.len() as u64).sum();
        let timed = self.timed;
        let slot = &mut self.slots[index as usize];
        slot.packets += count;
        slot.batches += u64::from(count > 0);
        if timed {
            slot.timed_packets += count;
            self.charge(index);
        }
    }

    fn run_timers(&mut self) -> bool {
        let now = self.clock.now_ns();
        let mut worked = false;
        while let Some(&Reverse((at, _, index, key))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let timers = &mut self.slots[index as usize].timers;
            // Replaced and cleared timers stay in the heap until their time comes.
            let Some(position) = timers.iter().position(|timer| (timer.key, timer.queued_ns) == (key, at))
            else {
                continue;
            };
            let later = timers[position].at_ns;
            if later > at {
                timers[position].queued_ns = later;
                self.timer_number += 1;
                self.timers.push(Reverse((later, self.timer_number, index, key)));
                continue;
            }
            timers.swap_remove(position);
            worked = true;
            let Some(mut element) = self.slots[index as usize].element.take() else { continue };
            self.current = index;
            if self.timed {
                self.begin_lap();
            }
            element.timer(self, key);
            self.slots[index as usize].element = Some(element);
            self.count_source(index);
            self.finish_emission();
            self.work_off();
        }
        worked
    }

    /// Returns whether they do.
    pub(super) fn is_fused(&self) -> bool {
        self.fused
    }

    /// Whether elements in a row work as one for batches of ordinary packets.
    pub(crate) fn set_fused(&mut self, fused: bool) {
        self.fused = fused;
        self.find_runs(fused);
    }

    /// Makes runs of the elements as they are now; with `fused` false there are none.
    pub(crate) fn find_runs(&mut self, fused: bool) {
        self.disturb_cost();
        for index in 0..self.slots.len() {
            let ElementStats { packets, batches, cycles, .. } = self.in_runs(index);
            let slot = &mut self.slots[index];
            slot.packets += packets;
            slot.batches += batches;
            // As if all of them had been timed.
            slot.timed_packets += packets;
            slot.timed_cycles += cycles as u64;
        }
        self.runs = if fused { runs::find(&mut self.slots) } else { Vec::new() };
        if !fused {
            self.slots.iter_mut().for_each(|slot| slot.run = None);
        }
    }

    /// What the element in `slot` did as part of runs.
    fn in_runs(&self, slot: usize) -> ElementStats {
        let mut stats = ElementStats::default();
        for run in self.runs.iter().filter(|run| run.has(slot)) {
            let (packets, batches, cycles) = run.counts();
            stats.packets += packets;
            stats.batches += batches;
            stats.cycles += cycles;
        }
        stats
    }

    /// What the element in `slot` did so far.
    pub(crate) fn stats(&self, slot: usize) -> ElementStats {
        let in_runs = self.in_runs(slot);
        let slot = &self.slots[slot];
        // Packets were timed as they came, so their share among all is the share of the time that was measured.
        let scale = if slot.timed_packets > 0 {
            slot.packets as f64 / slot.timed_packets as f64
        } else {
            f64::from(TIMED_SHARE)
        };
        ElementStats {
            packets: slot.packets + in_runs.packets,
            batches: slot.batches + in_runs.batches,
            cycles: slot.timed_cycles as f64 * scale + in_runs.cycles,
            drops: slot.drops.clone(),
            diverted: slot.diverted.clone(),
            queues: slot.element.as_ref().map_or_else(Vec::new, |element| element.queues()),
        }
    }

    /// Sets all counters of all elements back to zero.
    pub(crate) fn reset_stats(&mut self) {
        self.disturb_cost();
        for slot in &mut self.slots {
            slot.packets = 0;
            slot.batches = 0;
            slot.timed_packets = 0;
            slot.timed_cycles = 0;
            slot.drops.clear();
            slot.diverted.clear();
        }
        self.runs.iter_mut().for_each(Run::reset);
    }
}
