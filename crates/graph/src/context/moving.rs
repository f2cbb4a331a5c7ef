//! A machine takes the place of another one, with the elements that move.

use std::cmp::Reverse;

use super::Context;
use crate::hotswap::Plan;

impl Context {
    /// Takes frames, clock and mail box of `old`, and the elements that move, with their counters, tasks and timers.
    pub(crate) fn take_over(&mut self, old: &mut Self, plan: &Plan) {
        // Elements that worked as one have counted together.
        old.find_runs(false);
        std::mem::swap(&mut self.pool, &mut old.pool);
        std::mem::swap(&mut self.clock, &mut old.clock);
        self.random = old.random.clone();
        self.stops_at_once = old.stops_at_once;
        self.known.take_mails(&mut old.known);
        for (index, before) in plan.moves.iter().enumerate() {
            let Some(before) = *before else { continue };
            let (slot, from) = (&mut self.slots[index], &mut old.slots[before]);
            slot.element = from.element.take();
            slot.signal = from.signal;
            slot.idle_looks = from.idle_looks;
            slot.packets = from.packets;
            slot.batches = from.batches;
            slot.timed_packets = from.timed_packets;
            slot.timed_cycles = from.timed_cycles;
            slot.drops = std::mem::take(&mut from.drops);
            slot.timers = std::mem::take(&mut from.timers);
            for timer in &slot.timers {
                self.timer_number += 1;
                self.timers.push(Reverse((timer.queued_ns, self.timer_number, index as u32, timer.key)));
            }
            if from.scheduled {
                slot.scheduled = true;
                self.run_queue.push_back(index as u32);
            }
        }
    }

    /// Has elements that are made anew take what those before them leave.
    pub(crate) fn inherit(&mut self, old: &mut Self, plan: &Plan) {
        for &(index, before) in &plan.inherits {
            let left = old.slots[before].element.as_mut().and_then(|element| element.leave());
            if let Some(left) = left {
                // A copy that does not have the element has nothing to inherit.
                let _ = self.visit(index, |element, cx| element.inherit(cx, left));
            }
        }
    }
}
