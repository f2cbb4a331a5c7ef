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
    /// A power of two of them.
    slots: Box<[Slot]>,
    /// A slot of this age is too old.
    too_old: u16,
    /// The stamp of now.
    stamp: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    stamp: u16,
    /// Output 5, the bits of a [`PathChoice`] 11.
    path: u16,
}

const NODE_BITS: u32 = 10;
const NODE_MASK: u16 = (1 << NODE_BITS) - 1;
const BY_RIGHT: u16 = 1 << NODE_BITS;
const OUTPUT_SHIFT: u32 = NODE_BITS + 1;
const WAY_MASK: u16 = (1 << OUTPUT_SHIFT) - 1;

/// The bits of an output that a slot knows.
#[inline(always)]
fn output_bits(output: NodeId) -> u16 {
    output.number() << OUTPUT_SHIFT
}

/// The node that a path begins with, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChoice(u16);

impl PathChoice {
    /// No path. No node has all ten bits set.
    pub const NONE: PathChoice = PathChoice(NODE_MASK);

    /// The path over the intermediate node `first`; the output itself: directly. `by_right` says whether it is the direct path
    /// because the flow is among the R/N that go directly, and not because that was drawn among the paths for the rest.
    #[inline]
    pub const fn new(first: NodeId, by_right: bool) -> PathChoice {
        PathChoice(first.number() | if by_right { BY_RIGHT } else { 0 })
    }

    /// The node that it begins with.
    #[inline]
    pub const fn first(self) -> Option<NodeId> {
        NodeId::new(self.0 & NODE_MASK)
    }

    /// The ten bits of that node; all ones for none.
    #[inline(always)]
    pub const fn first_bits(self) -> u16 {
        self.0 & NODE_MASK
    }

    /// Whether it is the direct path by right.
    #[inline(always)]
    pub const fn is_by_right(self) -> bool {
        self.0 & BY_RIGHT != 0
    }
}

/// A slot that was looked up, to be written when the path is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place(u32);

impl Flowlets {
    /// Room for `slots` flows, rounded up to a power of two; packets at most `delta_ns` apart, and at most half a minute, belong
    /// together.
    pub fn new(slots: usize, delta_ns: u64) -> Flowlets {
        let empty = Slot { stamp: 0, path: PathChoice::NONE.0 };
        let delta = u16::try_from(delta_ns >> STAMP_SHIFT).unwrap_or(LONGEST).min(LONGEST);
        let slots = slots.clamp(1, 1 << 31).next_power_of_two();
        Flowlets {
            slots: vec![empty; slots].into(),
            // Without delta nothing is young enough.
            too_old: if delta_ns == 0 { 0 } else { delta + 1 },
            stamp: 0,
        }
    }

    /// Says what time it is.
    #[inline]
    pub fn set_now(&mut self, now_ns: u64) {
        self.stamp = (now_ns >> STAMP_SHIFT) as u16;
    }

    /// Forgets the flows whose path is not alive any more.
    pub fn keep_alive(&mut self, paths: &Paths) {
        for slot in &mut self.slots {
            // Over which outputs this path leads is not known; it is a path to nowhere if its first node cannot be reached.
            let first = PathChoice(slot.path).first();
            if !first.is_some_and(|first| paths.is_direct(first)) {
                slot.path |= PathChoice::NONE.0;
            }
        }
    }

    /// The slot of a flow; asks for its memory.
    #[inline(always)]
    pub fn place(&self, flow: u32, output: NodeId) -> Place {
        // The hash also chooses queues and workers, by its lowest bits: those come last here.
        let mixed = flow.rotate_right(8) ^ u32::from(output.number());
        let place = mixed as usize & (self.slots.len() - 1);
        if let Some(slot) = self.slots.get(place) {
            prefetch(slot);
        }
        Place(place as u32)
    }

    /// The way that the flow's last packet to `output` went, within delta.
    #[inline(always)]
    pub fn last(&self, place: Place, output: NodeId) -> PathChoice {
        let Some(slot) = self.slots.get(place.0 as usize) else { return PathChoice::NONE };
        let age = self.stamp.wrapping_sub(slot.stamp);
        // What is left above the way's bits tells another output.
        let way = slot.path ^ output_bits(output);
        if (age < self.too_old) & (way <= WAY_MASK) { PathChoice(way) } else { PathChoice::NONE }
    }

    /// Writes down that one more packet went the way that [`Flowlets::last`] said.
    #[inline(always)]
    pub fn keep(&mut self, place: Place) {
        // Mostly there is nothing to write: then the next packet of the flow need not wait for it.
        if let Some(slot) = self.slots.get_mut(place.0 as usize)
            && slot.stamp != self.stamp
        {
            slot.stamp = self.stamp;
        }
    }

    /// Writes down that a packet to `output` goes this way now.
    #[inline]
    pub fn remember(&mut self, place: Place, output: NodeId, way: PathChoice) {
        if let Some(slot) = self.slots.get_mut(place.0 as usize) {
            *slot = Slot { stamp: self.stamp, path: output_bits(output) | way.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Topology;
    use std::sync::Arc;

    const MS: u64 = 1_000_000;
    const CHOICE: PathChoice = PathChoice::new(NodeId::new(3).unwrap(), true);

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn last(flowlets: &mut Flowlets, flow: u32, output: u16, now_ns: u64) -> PathChoice {
        flowlets.set_now(now_ns);
        flowlets.last(flowlets.place(flow, node(output)), node(output))
    }

    #[test]
    fn a_flow_keeps_its_path_for_delta_after_every_packet() {
        let mut flowlets = Flowlets::new(1000, 100 * MS);
        let place = flowlets.place(7, node(1));
        assert_eq!(last(&mut flowlets, 7, 1, 0), PathChoice::NONE);
        flowlets.remember(place, node(1), CHOICE);
        assert_eq!(last(&mut flowlets, 7, 1, 99 * MS), CHOICE);
        assert_eq!(last(&mut flowlets, 7, 2, 99 * MS), PathChoice::NONE, "another output");
        flowlets.keep(place);
        assert_eq!(last(&mut flowlets, 7, 1, 198 * MS), CHOICE);
        assert_eq!(last(&mut flowlets, 7, 1, 210 * MS), PathChoice::NONE);
    }

    #[test]
    fn a_way_is_its_node_and_its_right() {
        for (first, by_right) in [(0, false), (0, true), (NodeId::MAX, false), (NodeId::MAX, true)] {
            let mut flowlets = Flowlets::new(1, 100 * MS);
            let place = flowlets.place(1, node(31));
            flowlets.remember(place, node(31), PathChoice::new(node(first), by_right));
            let way = flowlets.last(place, node(31));
            assert_eq!((way.first(), way.is_by_right()), (Some(node(first)), by_right));
        }
        assert_eq!((PathChoice::NONE.first(), PathChoice::NONE.is_by_right()), (None, false));
    }

    #[test]
    fn dead_paths_are_forgotten_and_others_kept() {
        let mut flowlets = Flowlets::new(1 << 10, 100 * MS);
        for first in 0..4 {
            let place = flowlets.place(u32::from(first) << 8, node(1));
            flowlets.remember(place, node(1), PathChoice::new(node(first), false));
        }
        let mesh = Arc::new(Topology::new("mesh(4)".parse().unwrap()));
        // From node 0, whose link to node 3 is down.
        flowlets.keep_alive(&Paths::with(mesh, node(0), |link| link != 2, |_, _| true));
        let kept: Vec<bool> =
            (0..4).map(|flow| last(&mut flowlets, flow << 8, 1, MS).first().is_some()).collect();
        assert_eq!(kept, [false, true, true, false]);
    }

    #[test]
    fn delta_of_zero_remembers_nothing() {
        let mut flowlets = Flowlets::new(1, 0);
        let place = flowlets.place(7, node(1));
        flowlets.set_now(5 * MS);
        flowlets.remember(place, node(1), CHOICE);
        assert_eq!(last(&mut flowlets, 7, 1, 5 * MS), PathChoice::NONE);
    }
}
