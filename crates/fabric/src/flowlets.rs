//! The path that a flow's last packet took, and when: packets that follow within delta take the same, so they cannot
//! overtake each other. (RouteBricks, SOSP 2009, section 6.1; "flowlets" by Kandula and others, CCR 2007.)
//!
//! A table of slots without chains, found by the flow's hash: two flows in a slot share a path, which harms neither. A slot
//! is eight bytes, so that a lookup touches one cache line.

use crate::NodeId;

/// Slots are stamped in units of 2^14 nanoseconds (16 microseconds): 19 hours to the next same stamp.
const STAMP_SHIFT: u32 = 14;

/// Paths of flows, remembered for delta.
#[derive(Clone, Debug)]
pub struct Flowlets {
    slots: Box<[Slot]>,
    delta: u32,
    /// Of the paths: those of an older one may be dead.
    generation: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    stamp: u32,
    /// Generation 11, by right 1, first node 10, output 10.
    path: u32,
}

const NODE_BITS: u32 = 10;
const NODE_MASK: u32 = (1 << NODE_BITS) - 1;
const BY_RIGHT: u32 = 1 << (2 * NODE_BITS);
const GENERATION_SHIFT: u32 = 2 * NODE_BITS + 1;

/// The node that a path begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The intermediate node; the output itself: directly.
    pub first: NodeId,
    /// Whether it is the direct path because the flow is among the R/N that go directly, and not because that was drawn
    /// among the paths for the rest.
    pub by_right: bool,
}

/// A slot that was looked up, to be written when the path is known.
#[derive(Clone, Copy, Debug)]
pub struct Place(usize);

impl Flowlets {
    /// Room for `slots` flows, rounded up to a power of two; packets at most `delta_ns` apart belong together.
    pub fn new(slots: usize, delta_ns: u64) -> Flowlets {
        // No node has all ten bits set.
        let empty = Slot { stamp: 0, path: NODE_MASK };
        let delta = u32::try_from(delta_ns >> STAMP_SHIFT).unwrap_or(u32::MAX / 2).min(u32::MAX / 2);
        let slots = if delta_ns == 0 { 0 } else { slots.max(1).next_power_of_two() };
        Flowlets { slots: vec![empty; slots].into(), delta, generation: 0 }
    }

    /// Says that paths have changed: those remembered so far may be dead.
    pub fn doubt(&mut self) {
        self.generation = (self.generation + 1) << GENERATION_SHIFT >> GENERATION_SHIFT;
    }

    /// The slot of a flow.
    #[inline]
    pub fn place(&self, flow: u32, output: NodeId) -> Place {
        // The hash also chooses queues and workers by its low bits, so these are mixed.
        let mixed =
            u64::from(flow ^ u32::from(output.number()) << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Place(mixed as usize & self.slots.len().wrapping_sub(1))
    }

    /// The way that the flow's last packet to `output` went, within delta, and whether that is known to be alive.
    #[inline]
    pub fn last(&self, place: Place, output: NodeId, now_ns: u64) -> Option<(Way, bool)> {
        let slot = self.slots.get(place.0)?;
        let age = stamp(now_ns).wrapping_sub(slot.stamp);
        if age > self.delta || slot.path & NODE_MASK != u32::from(output.number()) {
            return None;
        }
        let first = NodeId::new((slot.path >> NODE_BITS & NODE_MASK) as u16)?;
        let is_sure = slot.path >> GENERATION_SHIFT == self.generation;
        Some((Way { first, by_right: slot.path & BY_RIGHT != 0 }, is_sure))
    }

    /// Writes down that a packet to `output` goes this way now.
    #[inline]
    pub fn remember(&mut self, place: Place, output: NodeId, way: Way, now_ns: u64) {
        if let Some(slot) = self.slots.get_mut(place.0) {
            let path = u32::from(output.number())
                | u32::from(way.first.number()) << NODE_BITS
                | if way.by_right { BY_RIGHT } else { 0 }
                | self.generation << GENERATION_SHIFT;
            *slot = Slot { stamp: stamp(now_ns), path };
        }
    }
}

#[inline]
fn stamp(now_ns: u64) -> u32 {
    (now_ns >> STAMP_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const WAY: Way = Way { first: NodeId::new(3).unwrap(), by_right: true };

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn last(flowlets: &Flowlets, flow: u32, output: u16, now_ns: u64) -> Option<(Way, bool)> {
        flowlets.last(flowlets.place(flow, node(output)), node(output), now_ns)
    }

    #[test]
    fn a_flow_keeps_its_path_for_delta_after_every_packet() {
        let mut flowlets = Flowlets::new(1000, 100 * MS);
        let place = flowlets.place(7, node(1));
        assert_eq!(last(&flowlets, 7, 1, 0), None);
        flowlets.remember(place, node(1), WAY, 0);
        assert_eq!(last(&flowlets, 7, 1, 99 * MS), Some((WAY, true)));
        assert_eq!(last(&flowlets, 7, 2, 99 * MS), None, "another output");
        flowlets.remember(place, node(1), WAY, 99 * MS);
        assert_eq!(last(&flowlets, 7, 1, 198 * MS), Some((WAY, true)));
        assert_eq!(last(&flowlets, 7, 1, 201 * MS), None);
    }

    #[test]
    fn old_paths_are_doubted() {
        let mut flowlets = Flowlets::new(1, 100 * MS);
        let place = flowlets.place(7, node(1));
        flowlets.remember(place, node(1), WAY, 0);
        flowlets.doubt();
        assert_eq!(last(&flowlets, 7, 1, MS), Some((WAY, false)));
        flowlets.remember(place, node(1), WAY, MS);
        assert_eq!(last(&flowlets, 7, 1, MS), Some((WAY, true)));
        (0..5000).for_each(|_| flowlets.doubt());
        assert_eq!(last(&flowlets, 7, 1, MS), Some((WAY, false)));
    }

    #[test]
    fn delta_of_zero_remembers_nothing() {
        let mut flowlets = Flowlets::new(1, 0);
        let place = flowlets.place(7, node(1));
        flowlets.remember(place, node(1), WAY, 5 * MS);
        assert_eq!(last(&flowlets, 7, 1, 5 * MS), None);
    }
}
