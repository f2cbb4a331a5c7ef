//! The path that a flow's last packet took, and when: packets that follow within delta take the same, so they cannot
//! overtake each other. (RouteBricks, SOSP 2009, section 6.1; "flowlets" by Kandula and others, CCR 2007.)
//!
//! A table of slots without chains, found by the flow's hash: two flows in a slot share a path, which harms neither. A slot
//! is eight bytes, so that a lookup touches one cache line.

use crate::NodeId;

/// Slots are stamped in units of 2^14 nanoseconds (16 microseconds): 19 hours to the next same stamp.
const STAMP_SHIFT: u32 = 14;
const NOBODY: u16 = 0x3ff;
const BY_RIGHT: u16 = 0x8000;

/// Paths of flows, remembered for delta.
#[derive(Clone, Debug)]
pub struct Flowlets {
    slots: Box<[Slot]>,
    delta: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    stamp: u32,
    output: u16,
    /// The output itself: directly. [`BY_RIGHT`] beside it.
    first: u16,
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
    /// Room for `slots` flows, rounded up to a power of two; packets at most `delta_ns` apart belong together.
    pub fn new(slots: usize, delta_ns: u64) -> Flowlets {
        let empty = Slot { stamp: 0, output: NOBODY, first: NOBODY };
        let delta = u32::try_from(delta_ns >> STAMP_SHIFT).unwrap_or(u32::MAX / 2).min(u32::MAX / 2);
        // Delta of zero remembers nothing.
        let delta = if delta_ns == 0 { u32::MAX } else { delta };
        Flowlets { slots: vec![empty; slots.max(1).next_power_of_two()].into(), delta }
    }

    /// The way that the flow's last packet to `output` went, within delta.
    #[inline]
    pub fn last(&self, flow: u32, output: NodeId, now_ns: u64) -> (Place, Option<Way>) {
        // The hash also chooses queues and workers by its low bits, so these are mixed.
        let mixed =
            u64::from(flow ^ u32::from(output.number()) << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place = mixed as usize & (self.slots.len() - 1);
        let slot = &self.slots[place];
        let age = stamp(now_ns).wrapping_sub(slot.stamp);
        let is_fresh = age <= self.delta && self.delta != u32::MAX && slot.output == output.number();
        let first = if is_fresh { NodeId::new(slot.first & !BY_RIGHT) } else { None };
        (Place(place), first.map(|first| Way { first, by_right: slot.first & BY_RIGHT != 0 }))
    }

    /// Writes down that a packet to `output` goes this way now.
    #[inline]
    pub fn remember(&mut self, place: Place, output: NodeId, way: Way, now_ns: u64) {
        let first = way.first.number() | if way.by_right { BY_RIGHT } else { 0 };
        self.slots[place.0] = Slot { stamp: stamp(now_ns), output: output.number(), first };
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

    #[test]
    fn a_flow_keeps_its_path_for_delta_after_every_packet() {
        let mut flowlets = Flowlets::new(1000, 100 * MS);
        let (place, last) = flowlets.last(7, node(1), 0);
        assert_eq!(last, None);
        flowlets.remember(place, node(1), WAY, 0);
        assert_eq!(flowlets.last(7, node(1), 99 * MS).1, Some(WAY));
        assert_eq!(flowlets.last(7, node(2), 99 * MS).1, None, "another output");
        flowlets.remember(place, node(1), WAY, 99 * MS);
        assert_eq!(flowlets.last(7, node(1), 198 * MS).1, Some(WAY));
        assert_eq!(flowlets.last(7, node(1), 201 * MS).1, None);
    }

    #[test]
    fn delta_of_zero_remembers_nothing() {
        let mut flowlets = Flowlets::new(1, 0);
        let (place, _) = flowlets.last(7, node(1), 5 * MS);
        flowlets.remember(place, node(1), WAY, 5 * MS);
        assert_eq!(flowlets.last(7, node(1), 5 * MS).1, None);
    }
}
