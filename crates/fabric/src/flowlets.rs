//! The path that a flow's last packet took, and when: packets that follow within delta take the same, so they cannot
//! overtake each other. (RouteBricks, SOSP 2009, section 6.1; "flowlets" by Kandula and others, CCR 2007.)
//!
//! A table of slots without chains, found by the flow's hash. A slot is four bytes, so that many fit the cache: it knows its
//! output by five bits only. Two flows in a slot share a path where these are the same, which harms neither, and take turns at being new
//! flowlets where not.

use packet::prefetch;

use crate::{NodeId, Paths};

/// Slots are stamped in units of 2^20 nanoseconds (a millisecond): 68 seconds to the next same stamp, which might keep a flow on
/// its path for longer than delta, no more.
const STAMP_SHIFT: u32 = 20;
/// The longest delta, so that a stamp tells before from after.
const LONGEST: u16 = u16::MAX / 2;

/// Paths of flows, remembered for delta.
#[derive(Clone, Debug)]
pub struct Flowlets {
    slots: Box<[Slot]>,
    delta: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    stamp: u16,
    /// Output 5, by right 1, first node 10.
    path: u16,
}

const NODE_BITS: u32 = 10;
const NODE_MASK: u16 = (1 << NODE_BITS) - 1;
const BY_RIGHT: u16 = 1 << NODE_BITS;
const OUTPUT_SHIFT: u32 = NODE_BITS + 1;

/// The bits of an output that a slot knows.
#[inline(always)]
fn output_bits(output: NodeId) -> u16 {
    output.number() << OUTPUT_SHIFT
}

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
    /// Room for `slots` flows, rounded up to a power of two; packets at most `delta_ns` apart, and at most half a minute, belong
    /// together.
    pub fn new(slots: usize, delta_ns: u64) -> Flowlets {
        // No node has all ten bits set.
        let empty = Slot { stamp: 0, path: NODE_MASK };
        let delta = u16::try_from(delta_ns >> STAMP_SHIFT).unwrap_or(LONGEST).min(LONGEST);
        let slots = if delta_ns == 0 { 0 } else { slots.max(1).next_power_of_two() };
        Flowlets { slots: vec![empty; slots].into(), delta }
    }

    /// Forgets the flows whose path is not alive any more.
    pub fn keep_alive(&mut self, paths: &Paths) {
        for slot in &mut self.slots {
            // Over which outputs this path leads is not known; it is a path to nowhere if its first node cannot be reached.
            let first = NodeId::new(slot.path & NODE_MASK);
            if !first.is_some_and(|first| paths.is_direct(first)) {
                slot.path |= NODE_MASK;
            }
        }
    }

    /// The slot of a flow.
    #[inline]
    pub fn place(&self, flow: u32, output: NodeId) -> Place {
        // The hash also chooses queues and workers by its low bits, so these are mixed.
        let mixed =
            u64::from(flow ^ u32::from(output.number()) << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Place(mixed as usize & self.slots.len().wrapping_sub(1))
    }

    /// Asks for the slot's memory.
    #[inline(always)]
    pub fn prefetch(&self, place: Place) {
        if let Some(slot) = self.slots.get(place.0) {
            prefetch(slot);
        }
    }

    /// The way that the flow's last packet to `output` went, within delta.
    #[inline]
    pub fn last(&self, place: Place, output: NodeId, now_ns: u64) -> Option<Way> {
        let slot = self.slots.get(place.0)?;
        let age = stamp(now_ns).wrapping_sub(slot.stamp);
        if age > self.delta || slot.path & !(NODE_MASK | BY_RIGHT) != output_bits(output) {
            return None;
        }
        let first = NodeId::new(slot.path & NODE_MASK)?;
        Some(Way { first, by_right: slot.path & BY_RIGHT != 0 })
    }

    /// Writes down that a packet to `output` goes this way now.
    #[inline]
    pub fn remember(&mut self, place: Place, output: NodeId, way: Way, now_ns: u64) {
        if let Some(slot) = self.slots.get_mut(place.0) {
            let path = output_bits(output) | way.first.number() | if way.by_right { BY_RIGHT } else { 0 };
            let written = Slot { stamp: stamp(now_ns), path };
            // Mostly there is nothing to write: then the next packet of the flow need not wait for it.
            if *slot != written {
                *slot = written;
            }
        }
    }
}

#[inline]
fn stamp(now_ns: u64) -> u16 {
    (now_ns >> STAMP_SHIFT) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Topology;
    use std::sync::Arc;

    const MS: u64 = 1_000_000;
    const WAY: Way = Way { first: NodeId::new(3).unwrap(), by_right: true };

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn last(flowlets: &Flowlets, flow: u32, output: u16, now_ns: u64) -> Option<Way> {
        flowlets.last(flowlets.place(flow, node(output)), node(output), now_ns)
    }

    #[test]
    fn a_flow_keeps_its_path_for_delta_after_every_packet() {
        let mut flowlets = Flowlets::new(1000, 100 * MS);
        let place = flowlets.place(7, node(1));
        assert_eq!(last(&flowlets, 7, 1, 0), None);
        flowlets.remember(place, node(1), WAY, 0);
        assert_eq!(last(&flowlets, 7, 1, 99 * MS), Some(WAY));
        assert_eq!(last(&flowlets, 7, 2, 99 * MS), None, "another output");
        flowlets.remember(place, node(1), WAY, 99 * MS);
        assert_eq!(last(&flowlets, 7, 1, 198 * MS), Some(WAY));
        assert_eq!(last(&flowlets, 7, 1, 210 * MS), None);
    }

    #[test]
    fn dead_paths_are_forgotten_and_others_kept() {
        let mut flowlets = Flowlets::new(1 << 10, 100 * MS);
        for first in 0..4 {
            let place = flowlets.place(first.into(), node(1));
            flowlets.remember(place, node(1), Way { first: node(first), by_right: false }, 0);
        }
        let mesh = Arc::new(Topology::new("mesh(4)".parse().unwrap()));
        // From node 0, whose link to node 3 is down.
        flowlets.keep_alive(&Paths::with(mesh, node(0), |link| link != 2, |_, _| true));
        let kept: Vec<bool> = (0..4).map(|flow| last(&flowlets, flow, 1, MS).is_some()).collect();
        assert_eq!(kept, [false, true, true, false]);
    }

    #[test]
    fn delta_of_zero_remembers_nothing() {
        let mut flowlets = Flowlets::new(1, 0);
        let place = flowlets.place(7, node(1));
        flowlets.remember(place, node(1), WAY, 5 * MS);
        assert_eq!(last(&flowlets, 7, 1, 5 * MS), None);
    }
}
