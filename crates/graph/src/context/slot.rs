//! An element in its place: its wiring, its counters, its timers.

use super::{Counts, End};
use crate::element::{Element, QueueCounts};
use crate::handler::Handler;

/// What an element did so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ElementStats {
    /// Packets that were pushed into it; without a push input, those that it sent.
    pub packets: u64,
    /// Batches in which they came.
    pub batches: u64,
    /// TSC cycles spent in it, tasks and timers included; estimated from a sample (see the module's essay).
    pub cycles: f64,
    /// Packets it dropped, by reason.
    pub drops: Vec<(&'static str, u64)>,
    /// Packets that it sent another way than the usual one, by reason.
    pub diverted: Vec<(&'static str, u64)>,
    /// What it moved over queues of ports.
    pub queues: Vec<QueueCounts>,
}

impl ElementStats {
    /// Packets it dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|(_, count)| count).sum()
    }

    /// Packets it got and did not drop: of an element that sends, those that were sent.
    pub fn passed(&self) -> u64 {
        self.packets.saturating_sub(self.dropped())
    }
}

/// A timer of an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    pub(super) key: u32,
    pub(super) at_ns: u64,
    /// When the heap will next look at it: at or before `at_ns`.
    pub(super) queued_ns: u64,
}

/// An element in its place.
pub(crate) struct Slot {
    pub(crate) element: Option<Box<dyn Element>>,
    /// The handlers of its class.
    pub(crate) handlers: &'static [Handler],
    pub(crate) outputs: Box<[Option<End>]>,
    pub(crate) inputs: Box<[Option<End>]>,
    /// Tasks downstream that want to know when this element has packets.
    pub(crate) listeners: Box<[u32]>,
    /// Elements upstream that tell when they have packets; `None` when a source upstream never tells.
    pub(crate) notifiers: Option<Box<[u32]>>,
    /// The number of the run that begins here.
    pub(crate) run: Option<u32>,
    pub(super) signal: bool,
    pub(super) scheduled: bool,
    /// How often in a row the task found nothing, up to [`MOST_IDLE_LOOKS`](super::machine::MOST_IDLE_LOOKS).
    pub(super) idle_looks: u8,
    pub(super) timers: Vec<Timer>,
    pub(super) packets: u64,
    pub(super) batches: u64,
    pub(super) timed_packets: u64,
    pub(super) timed_cycles: u64,
    pub(super) drops: Vec<(&'static str, u64)>,
    pub(super) diverted: Vec<(&'static str, u64)>,
}

impl Slot {
    pub(crate) fn new(
        element: Option<Box<dyn Element>>,
        handlers: &'static [Handler],
        inputs: usize,
        outputs: usize,
    ) -> Self {
        Self {
            element,
            handlers,
            outputs: vec![None; outputs].into(),
            inputs: vec![None; inputs].into(),
            listeners: Box::new([]),
            notifiers: None,
            run: None,
            signal: false,
            scheduled: false,
            idle_looks: 0,
            timers: Vec::new(),
            packets: 0,
            batches: 0,
            timed_packets: 0,
            timed_cycles: 0,
            drops: Vec::new(),
            diverted: Vec::new(),
        }
    }

    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled
    }

    pub(super) fn counts(&self) -> Counts {
        let &Self { packets, batches, timed_packets, timed_cycles, .. } = self;
        Counts { packets, batches, timed_packets, timed_cycles }
    }

    /// Sets what was timed.
    pub(super) fn set_timed(&mut self, counts: Counts) {
        (self.timed_packets, self.timed_cycles) = (counts.timed_packets, counts.timed_cycles);
    }

    pub(super) fn count_drop(&mut self, reason: &'static str, count: u64) {
        add(&mut self.drops, reason, count);
    }

    pub(super) fn count_diverted(&mut self, reason: &'static str, count: u64) {
        add(&mut self.diverted, reason, count);
    }
}

/// Adds to the count of a reason.
fn add(counts: &mut Vec<(&'static str, u64)>, reason: &'static str, count: u64) {
    // A handful of reasons, nearly always the same pointer: a scan beats a map.
    match counts.iter_mut().find(|(known, _)| std::ptr::eq(*known, reason) || *known == reason) {
        Some((_, total)) => *total += count,
        None => counts.push((reason, count)),
    }
}
