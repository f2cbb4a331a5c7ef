//! What an element sees while it runs. The machine that carries batches from element to element is in `machine`, an
//! element in its place in `slot`, what elements and the router can be asked and told in `handlers`, what steps cost in `cost`, who
//! sees packets in `taps`.
//!
//! A [`Context`] belongs to one copy of the graph and lives on one thread. It holds the elements (each in a
//! slot, with its wiring and counters), the frames, the clock, the tasks and the timers.
//!
//! **How a batch travels.** `Context::run` takes the element out of its slot, calls it, and puts it back.
//! Packets that the element [`emit`](Context::emit)s are gathered in one batch per output; what it leaves
//! in the batch it was given goes on by output 0, without being moved. When nothing was emitted (the common
//! way) the machine just goes on to the next element. Otherwise the emitted batches are worked off first, in
//! the order in which each was begun, each to its end (depth first), and the rest after them. With a batch
//! limit of one packet (`--burst 1`) this is exactly the order of Click's nested calls.
//!
//! Where elements in a row make a run ([`runs`](crate::runs)), the ordinary packets of a batch go over all of them in one hop.
//!
//! **Pulling** nests: the element that pulls stays out of its slot while the ones before it run. A pull that
//! comes back to an element that is out of its slot finds nothing, so a loop of pulls ends.
//!
//! **What it costs.** A hop is a call through a pointer, two 16-byte moves and a few counters per batch.
//! Cycles are read from the time stamp counter at every hop of one turn in sixteen, drawn at random; the
//! counts are scaled by the share of packets that were timed, so the cycles in statistics are estimates whose
//! error shrinks with the root of the time, and the other fifteen turns pay nothing for them. While somebody asks what steps
//! cost (`cost`), every turn is timed.

mod cost;
mod handlers;
mod machine;
mod moving;
mod slot;
mod taps;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use packet::random::SplitMix64;
use packet::{Batch, MAX_BATCH, Packet, Pool};

use crate::clock::Clock;
use crate::router::Control;
use crate::runs::Run;

pub use cost::{CopyCost, ReadMisses, StepCost};
pub(crate) use cost::{Counts, Meter};
pub use handlers::{GLOBAL_HANDLERS, Globals, HotConfig, Missing, Reconfigure, Remote};
pub(crate) use handlers::{Known, combined};
pub(crate) use machine::lap;
pub use slot::ElementStats;
pub(crate) use slot::Slot;
use slot::Timer;
use taps::Taps;
pub use taps::{Edge, Observer, Place, Watched};

/// Outputs of elements that scatter fast; those with more emit packet by packet.
pub(crate) const LANES: usize = 16;

/// Marks an output without an open batch.
const CLOSED: u32 = u32::MAX;

/// A timer that is moved to an earlier time fires at most this much later.
const TIMER_TOLERANCE_NS: u64 = 1_000;

/// What a filter says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays in the batch and leaves by output 0.
    Keep,
    /// It leaves by this output.
    Output(usize),
    /// It leaves by this output if that is connected, else it is dropped for the reason.
    Divert(usize, &'static str),
    /// It is dropped for the reason.
    Drop(&'static str),
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) element: u32,
    pub(crate) port: u32,
}

/// A batch on its way, and the output it left by.
#[derive(Debug)]
struct Pending {
    to: End,
    /// A whole word, since it is moved as one soon after it was written: half of one would be waited for.
    output: usize,
    batch: Batch,
}

/// Limits and places of a copy of the graph.
#[derive(Clone, Copy, Debug)]
pub struct ContextOptions {
    /// Packets that a source takes at a time, 1 to 256.
    pub burst: usize,
    /// Number of this copy of the graph.
    pub copy: usize,
}

/// The machine, seen by an element.
pub struct Context {
    pub(crate) slots: Vec<Slot>,
    runs: Vec<Run>,
    current: u32,
    emitted: Vec<Pending>,
    open: Vec<u32>,
    stack: Vec<Pending>,
    /// A batch an output, empty but while an element scatters.
    lanes: [Batch; LANES],
    /// Room for the outputs of a batch's packets.
    outputs: Vec<u16>,
    spare: Vec<Batch>,
    /// The odd packets of a run; empty but while it is applied.
    odd: Batch,
    pool: Pool,
    burst: usize,
    batch_limit: usize,
    copy: usize,
    pub(crate) clock: Clock,
    /// Tasks that run in the next turn.
    run_queue: VecDeque<u32>,
    /// Sources that found nothing, and the number of the busy turn in which each is looked at again.
    resting: Vec<(u32, u64)>,
    /// The earliest of these numbers.
    look_at: u64,
    /// Turns that did anything.
    busy_turns: u64,
    /// Whether the last turn passed over a source, which may have work.
    passed_over: bool,
    /// Whether the last turn did anything.
    busy: bool,
    timers: BinaryHeap<Reverse<(u64, u64, u32, u32)>>,
    timer_number: u64,
    random: SplitMix64,
    timed: bool,
    /// Turns whose random number has one of these bits are not timed.
    untimed: u32,
    mark: u64,
    /// What somebody wants to know of the steps' cost, and what counts their misses.
    measuring: Option<Box<cost::Measuring>>,
    meter: Option<Box<Meter>>,
    /// Who sees packets on their way; usually nobody.
    taps: Option<Box<Taps>>,
    hops: u32,
    control: Arc<Control>,
    known: Known,
    /// Whether elements in a row work as one.
    fused: bool,
    /// An element that gets values written to it while it is at work, and those values.
    hearing: Option<(u32, Vec<(String, String)>)>,
    /// Whether a turn ends as soon as the router is to stop.
    stops_at_once: bool,
    /// How often elements asked for the router's end before this machine began to run; `None` from then on.
    early_stops: Cell<Option<u32>>,
}

impl Context {
    pub(crate) fn new(
        slots: Vec<Slot>,
        pool: Pool,
        clock: Clock,
        options: ContextOptions,
        control: Arc<Control>,
        known: Known,
    ) -> Self {
        let most_outputs = slots.iter().map(|slot| slot.outputs.len()).max().unwrap_or(0);
        let burst = options.burst.clamp(1, MAX_BATCH);
        let (run_queue, resting) = (VecDeque::with_capacity(slots.len()), Vec::with_capacity(slots.len()));
        Self {
            slots,
            runs: Vec::new(),
            current: 0,
            emitted: Vec::with_capacity(64),
            open: vec![CLOSED; most_outputs.max(1)],
            stack: Vec::with_capacity(256),
            lanes: std::array::from_fn(|_| Batch::new()),
            outputs: Vec::with_capacity(MAX_BATCH),
            spare: (0..64).map(|_| Batch::new()).collect(),
            odd: Batch::new(),
            pool,
            burst,
            batch_limit: if burst == 1 { 1 } else { MAX_BATCH },
            copy: options.copy,
            clock,
            run_queue,
            resting,
            look_at: 0,
            busy_turns: 0,
            passed_over: false,
            busy: false,
            timers: BinaryHeap::new(),
            timer_number: 0,
            random: SplitMix64::new(options.copy as u64 + 1),
            timed: false,
            untimed: machine::TIMED_SHARE - 1,
            mark: 0,
            measuring: None,
            meter: None,
            taps: None,
            hops: 0,
            control,
            known,
            fused: true,
            hearing: None,
            stops_at_once: false,
            early_stops: Cell::new(Some(0)),
        }
    }

    // ---- packets out ------------------------------------------------------------------------------------

    /// Number of outputs of the running element that are in use.
    #[inline(always)]
    pub fn outputs(&self) -> usize {
        self.slots[self.current as usize].outputs.len()
    }

    /// Number of inputs of the running element that are in use.
    #[inline(always)]
    pub fn inputs(&self) -> usize {
        self.slots[self.current as usize].inputs.len()
    }

    /// Sends `packet` out by `output`.
    #[inline(always)]
    pub fn emit(&mut self, output: usize, packet: Packet) {
        if let Some(&open) = self.open.get(output)
            && let Some(pending) = self.emitted.get_mut(open as usize)
            && pending.batch.len() < self.batch_limit
        {
            pending.batch.push(packet);
            return;
        }
        self.emit_first(output, packet);
    }

    /// Sends the packets of `batch` out by `output`, behind those emitted there before.
    #[inline]
    pub fn emit_batch(&mut self, output: usize, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let is_open = self.open.get(output).is_some_and(|&open| open != CLOSED);
        if !is_open && batch.len() <= self.batch_limit && output < self.outputs() {
            let empty = self.spare_batch();
            let full = std::mem::replace(batch, empty);
            self.open_output(output, full);
        } else {
            let mut packets = std::mem::replace(batch, self.spare_batch());
            for packet in packets.drain() {
                self.emit(output, packet);
            }
            self.spare.push(packets);
        }
    }

    #[inline(never)]
    fn emit_first(&mut self, output: usize, packet: Packet) {
        let mut batch = self.spare_batch();
        batch.push(packet);
        self.open_output(output, batch);
    }

    fn open_output(&mut self, output: usize, mut batch: Batch) {
        match self.slots[self.current as usize].outputs.get(output) {
            Some(&Some(to)) => {
                self.open[output] = self.emitted.len() as u32;
                self.emitted.push(Pending { to, output, batch });
            }
            _ => {
                self.drop_batch(&mut batch, "sent to an output that is not connected");
                self.spare.push(batch);
            }
        }
    }

    /// Sends `packet` out by `output` if that is in use, and counts it as diverted for `reason`; drops it for that reason
    /// otherwise.
    #[inline]
    pub fn divert(&mut self, output: usize, packet: Packet, reason: &'static str) {
        if output < self.outputs() {
            self.count_diverted(reason, packet.pieces());
            self.emit(output, packet);
        } else {
            self.drop(packet, reason);
        }
    }

    /// Counts `count` packets that leave the usual way under `reason`: a few words in lower case ("no route").
    pub fn count_diverted(&mut self, reason: &'static str, count: u64) {
        self.slots[self.current as usize].count_diverted(reason, count);
    }

    /// Drops `packet` and counts it under `reason`: a few words in lower case ("bad IP checksum").
    #[inline]
    pub fn drop(&mut self, packet: Packet, reason: &'static str) {
        self.slots[self.current as usize].count_drop(reason, packet.pieces());
        if self.taps.is_some() {
            self.show_dropped(reason, std::slice::from_ref(&packet));
        }
        self.pool.free_packet(packet);
    }

    /// Drops all packets of `batch` and counts them under `reason`.
    #[inline]
    pub fn drop_batch(&mut self, batch: &mut Batch, reason: &'static str) {
        if !batch.is_empty() {
            let count = match self.pool.has_large() {
                true => batch.iter().map(Packet::pieces).sum(),
                false => batch.len() as u64,
            };
            self.slots[self.current as usize].count_drop(reason, count);
            if self.taps.is_some() {
                self.show_dropped(reason, batch.packets());
            }
            self.pool.free(batch);
        }
    }

    /// Counts the packets of a batch that are merged as those that they are on a link; the batch itself is counted as ever. For elements
    /// whose count is that of a port.
    pub fn count_merged(&mut self, batch: &Batch) {
        let more: u64 = batch.iter().map(|packet| packet.pieces() - 1).sum();
        self.slots[self.current as usize].packets += more;
    }

    /// Counts `count` packets under `reason` that were lost without ever being one of ours (a full ring of a
    /// driver, say).
    pub fn count_drop(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            self.slots[self.current as usize].count_drop(reason, count);
        }
    }

    /// Sorts the packets of `batch` by what `judge` says of each.
    #[inline(always)]
    pub fn filter(&mut self, batch: &mut Batch, mut judge: impl FnMut(&mut Packet) -> Verdict) {
        let verdict = std::cell::Cell::new(Verdict::Keep);
        batch.extract(
            |packet| {
                verdict.set(judge(packet));
                verdict.get() == Verdict::Keep
            },
            |packet| self.follow_verdict(verdict.get(), packet),
        );
    }

    #[inline(never)]
    fn follow_verdict(&mut self, verdict: Verdict, packet: Packet) {
        match verdict {
            Verdict::Output(output) => self.emit(output, packet),
            Verdict::Divert(output, reason) => self.divert(output, packet, reason),
            Verdict::Drop(reason) => self.drop(packet, reason),
            // `extract` gives out only what was not kept.
            Verdict::Keep => self.emit(0, packet),
        }
    }

    /// Sends each packet of `batch` out by the output that `classify` names; `Err` drops it for a reason. Each packet is
    /// asked about once, in order.
    ///
    /// As long as all packets name the same output the batch is not taken apart.
    #[inline(always)]
    pub fn classify(
        &mut self,
        batch: &mut Batch,
        mut classify: impl FnMut(&mut Packet) -> Result<usize, &'static str>,
    ) {
        let count = batch.len();
        let mut first = None;
        let mut same = 0;
        let mut odd = None;
        for packet in batch.packets_mut() {
            let output = classify(packet);
            match (first, output) {
                (None, Ok(output)) => first = Some(output),
                (Some(known), Ok(output)) if known == output => {}
                _ => {
                    odd = Some(output);
                    break;
                }
            }
            same += 1;
        }
        if same == count {
            return self.emit_uniform(first, batch);
        }
        let mut outputs = std::mem::take(&mut self.outputs);
        outputs.clear();
        let mut several = false;
        let mut index = 0;
        let reason = std::cell::Cell::new("");
        batch.extract(
            |packet| {
                let output = match first {
                    Some(output) if index < same => Ok(output),
                    _ => odd.take().unwrap_or_else(|| classify(packet)),
                };
                index += 1;
                match output {
                    Ok(output) => {
                        several |= *first.get_or_insert(output) != output;
                        // There are no outputs beyond.
                        outputs.push(u16::try_from(output).unwrap_or(u16::MAX));
                    }
                    Err(why) => reason.set(why),
                }
                output.is_ok()
            },
            |packet| self.drop(packet, reason.get()),
        );
        match several {
            true => self.scatter(batch, &outputs),
            false => self.emit_uniform(first, batch),
        }
        self.outputs = outputs;
    }

    /// Sends a batch out by one output; what goes on by the first one stays in it.
    #[inline(always)]
    fn emit_uniform(&mut self, output: Option<usize>, batch: &mut Batch) {
        match output {
            Some(0) if !self.slots[self.current as usize].outputs.is_empty() => {}
            Some(output) => self.emit_batch(output, batch),
            None => {}
        }
    }

    /// Sends each packet of `batch` out by its output in `outputs`, of which there must be as many; what has no
    /// connected output is dropped.
    pub fn scatter(&mut self, batch: &mut Batch, outputs: &[u16]) {
        let ends = &self.slots[self.current as usize].outputs;
        let connected = ends
            .iter()
            .take(LANES)
            .enumerate()
            .fold(0_u16, |connected, (output, end)| connected | u16::from(end.is_some()) << output);
        let in_lanes = |&output: &u16| (output < LANES as u16) & (connected >> (output & 15) & 1 != 0);
        let simple =
            self.emitted.is_empty() && outputs.len() == batch.len() && batch.len() <= self.batch_limit;
        if !simple || !outputs.iter().fold(true, |all, output| all & in_lanes(output)) {
            return self.scatter_slowly(batch, outputs);
        }
        let mut begun = [0; LANES];
        let mut count = 0;
        batch.scatter(outputs, &mut self.lanes, |lane| {
            begun[count % LANES] = lane;
            count += 1;
        });
        for &lane in begun.iter().take(count) {
            let empty = self.spare_batch();
            let full = std::mem::replace(&mut self.lanes[lane], empty);
            self.open_output(lane, full);
        }
    }

    #[cold]
    fn scatter_slowly(&mut self, batch: &mut Batch, outputs: &[u16]) {
        let mut packets = std::mem::replace(batch, self.spare_batch());
        let mut outputs = outputs.iter();
        for packet in packets.drain() {
            self.emit(outputs.next().map_or(usize::MAX, |&output| usize::from(output)), packet);
        }
        self.spare.push(packets);
    }

    // ---- packets in -------------------------------------------------------------------------------------

    /// Pulls up to `max` packets from `input` and adds them to `batch`.
    #[inline]
    pub fn pull(&mut self, input: usize, batch: &mut Batch, max: usize) {
        let max = max.min(batch.room()).min(self.batch_limit);
        if batch.is_empty() {
            self.pull_into(input, batch, max);
        } else {
            let mut more = self.spare_batch();
            self.pull_into(input, &mut more, max);
            more.move_front(batch, max);
            // An element that gave more than it was asked for loses the surplus, counted.
            self.drop_batch(&mut more, "pulled beyond the limit");
            self.spare.push(more);
        }
    }

    fn pull_into(&mut self, input: usize, batch: &mut Batch, max: usize) {
        let caller = self.current;
        let Some(&Some(from)) = self.slots[caller as usize].inputs.get(input) else { return };
        let Some(mut element) = self.slots[from.element as usize].element.take() else { return };
        self.close_outputs();
        self.charge(caller);
        self.current = from.element;
        element.pull(self, from.port as usize, batch, max);
        self.close_outputs();
        let count = batch.len() as u64;
        let timed = self.timed;
        let slot = &mut self.slots[from.element as usize];
        slot.element = Some(element);
        // What was pushed into it was counted then.
        let is_store = slot.inputs.first().is_some_and(Option::is_none);
        if !is_store {
            slot.packets += count;
            slot.batches += 1;
        }
        if timed && count > 0 {
            slot.timed_packets += if is_store { 0 } else { count };
            self.charge(from.element);
        } else if timed {
            // The cost of a look that finds nothing counts for no packet.
            self.begin_lap();
        }
        // What a sink pulls is not counted on its way out.
        let slot = &mut self.slots[caller as usize];
        if slot.outputs.is_empty() && count > 0 {
            slot.packets += count;
            slot.batches += 1;
            slot.timed_packets += if timed { count } else { 0 };
        }
        self.current = caller;
    }

    // ---- frames, batches --------------------------------------------------------------------------------

    /// A fresh packet without data; `None` (counted by the pool) when all frames are in use.
    #[inline]
    pub fn allocate(&mut self) -> Option<Packet> {
        self.pool.allocate()
    }

    /// A copy of `packet`, annotations included; `None` when all frames are in use.
    #[inline]
    pub fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        self.pool.copy(packet)
    }

    /// Frees the packets of `batch` that reached their end in good order (sent, or discarded on purpose).
    #[inline]
    pub fn free(&mut self, batch: &mut Batch) {
        self.pool.free(batch);
    }

    /// This worker's frames.
    #[inline(always)]
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// An empty batch to fill; give it back with [`Context::recycle`].
    #[inline(always)]
    pub fn spare_batch(&mut self) -> Batch {
        match self.spare.pop() {
            Some(batch) => batch,
            None => Self::another_batch(),
        }
    }

    #[cold]
    fn another_batch() -> Batch {
        Batch::new()
    }

    /// Takes back a batch from [`Context::spare_batch`]; packets in it are freed.
    #[inline]
    pub fn recycle(&mut self, mut batch: Batch) {
        if !batch.is_empty() {
            self.pool.free(&mut batch);
        }
        self.spare.push(batch);
    }

    // ---- time, tasks, signals ---------------------------------------------------------------------------

    /// Nanoseconds since 1970, as of the start of this turn of the worker.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Reads the clock afresh and returns it; for elements that loop within one turn.
    pub fn update_now_ns(&mut self) -> u64 {
        self.clock.update();
        self.clock.now_ns()
    }

    /// Packets that a source should take at a time: 1 to 256.
    #[inline(always)]
    pub fn burst(&self) -> usize {
        self.burst
    }

    /// Number of this copy of the graph: the worker, or the number of workers for the slow thread.
    pub fn copy_index(&self) -> usize {
        self.copy
    }

    /// Wakes the running element's task.
    pub fn wake(&mut self) {
        self.wake_element(self.current);
    }

    fn wake_element(&mut self, element: u32) {
        let slot = &mut self.slots[element as usize];
        if !slot.scheduled {
            slot.scheduled = true;
            self.run_queue.push_back(element);
        }
    }

    /// Says whether the running element has packets to pull; waking downstream tasks when it newly has.
    #[inline]
    pub fn set_signal(&mut self, active: bool) {
        let slot = &mut self.slots[self.current as usize];
        if slot.signal != active {
            slot.signal = active;
            if active {
                self.wake_listeners();
            }
        }
    }

    #[inline(never)]
    fn wake_listeners(&mut self) {
        let current = self.current as usize;
        for index in 0..self.slots[current].listeners.len() {
            let listener = self.slots[current].listeners[index];
            self.wake_element(listener);
        }
    }

    /// Whether a pull by the running element may find packets: a queue upstream has some, or a source
    /// upstream does not tell. A task that pulled nothing sleeps when this is false.
    pub fn upstream_active(&self) -> bool {
        match &self.slots[self.current as usize].notifiers {
            None => true,
            Some(notifiers) => notifiers.iter().any(|&index| self.slots[index as usize].signal),
        }
    }

    /// Has [`Element::timer`](crate::Element::timer) called with `key` when the clock reaches `at_ns`. A timer of the same key that
    /// was set before is replaced.
    pub fn set_timer(&mut self, key: u32, at_ns: u64) {
        let timers = &mut self.slots[self.current as usize].timers;
        match timers.iter_mut().find(|timer| timer.key == key) {
            Some(timer) => {
                timer.at_ns = at_ns;
                // Found early, it is queued again for its time. So a timer that is put off again and again, or
                // moved by the jitter of a clock, takes one place in the heap.
                if timer.queued_ns <= at_ns.saturating_add(TIMER_TOLERANCE_NS) {
                    return;
                }
                timer.queued_ns = at_ns;
            }
            None => timers.push(Timer { key, at_ns, queued_ns: at_ns }),
        }
        self.timer_number += 1;
        self.timers.push(Reverse((at_ns, self.timer_number, self.current, key)));
    }

    /// Forgets the timer `key` of the running element.
    pub fn clear_timer(&mut self, key: u32) {
        self.slots[self.current as usize].timers.retain(|timer| timer.key != key);
    }

    /// When the next timer is due, in nanoseconds since 1970.
    pub fn next_timer_ns(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at, ..))| *at)
    }

    /// Whether time stands still while there is something to do, and goes on to the next timer when nothing is left. An element
    /// that answers pulls by the clock, without a timer of its own, then sets one for when it has an answer.
    pub fn has_simulated_time(&self) -> bool {
        self.clock.is_simulated()
    }

    /// Moves simulated time on to the next timer; false if time is real, or no timer is left. As long as a source was passed
    /// over in the last turn, time stands still: it is looked at in the next one.
    pub(crate) fn skip_to_next_timer(&mut self) -> bool {
        if self.passed_over && self.clock.is_simulated() {
            return true;
        }
        let due = self.next_timer_ns().filter(|_| self.clock.is_simulated());
        due.inspect(|&due| self.clock.set(due)).is_some()
    }

    // ---- the rest ---------------------------------------------------------------------------------------

    /// Whether another configuration is about to take the running one's place.
    pub fn change_is_due(&self) -> bool {
        self.control.has_swap()
    }

    /// A pseudo-random number: fast, of good quality, for sampling and spreading; not for secrets.
    #[inline]
    pub fn random(&mut self) -> u32 {
        (self.random.next_u64() >> 32) as u32
    }

    /// Starts the pseudo-random numbers anew from `seed`.
    pub fn seed_random(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
    }

    /// Prints a line for the user (standard error, unless the program says otherwise). Not for the fast path:
    /// only elements whose purpose it is call it per packet.
    pub fn message(&self, line: &str) {
        self.control.message(line);
    }

    /// Gives one back to the router's run count: for the script that manages its end.
    pub fn resume(&self) {
        self.control.resume();
    }

    /// Takes one from the router's run count, as Click's `STOP` does; at zero the router stops.
    pub fn stop(&self) {
        match self.early_stops.get() {
            Some(count) => self.early_stops.set(Some(count + 1)),
            None => self.control.stop(),
        }
    }

    /// Says that this machine runs from now on. Those that asked for the end while it was made, such as a driver script that
    /// begins at once, meant this machine and not the one whose place it takes.
    pub(crate) fn begin(&mut self) {
        let count = self.early_stops.take().unwrap_or(0);
        if count > 0 {
            self.control.stop_times(count);
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("elements", &self.slots.len()).finish_non_exhaustive()
    }
}
