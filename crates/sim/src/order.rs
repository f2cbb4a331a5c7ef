//! How much packets of the same flow overtake each other, in two measures, for flows that have a place in a table, so that nothing is
//! looked up for a packet.
//!
//! RouteBricks' (SOSP 2009, section 6.2) counts same-flow *sequences* that came out of order: if packets 1 to 5 come as 1, 4, 2, 3, 5, one
//! sequence (2, 3) was overtaken. RFC 4737 (section 3) counts packets: one is reordered if one sent after it came before it, here 2
//! and 3. Both are given as a share of all packets.

/// All flows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    flows: Vec<Flow>,
    /// Places of flows that have ended, and of which no packet is on its way.
    free: Vec<u32>,
    pub(crate) packets: u64,
    pub(crate) sequences: u64,
    pub(crate) late_packets: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// The last packet's number that went in.
    last: u32,
    /// The highest that came out; 0: none has.
    highest: u32,
    /// How many are on their way, and two signs.
    flying: u32,
}

/// The last one that came was overtaken.
const LATE: u32 = 1 << 31;
/// No more will go in.
const ENDED: u32 = 1 << 30;

impl Order {
    /// Places for so many flows without end; the number of the first.
    pub(crate) fn begin_all(&mut self, flows: usize) -> u32 {
        let first = self.flows.len() as u32;
        self.flows.resize(self.flows.len() + flows, Flow::default());
        first
    }

    /// A place for a flow.
    pub(crate) fn begin(&mut self) -> u32 {
        let Some(flow) = self.free.pop() else { return self.begin_all(1) };
        self.flows[flow as usize] = Flow::default();
        flow
    }

    /// No more packets of a flow go in.
    pub(crate) fn end(&mut self, flow: u32) {
        self.change(flow, |known| known.flying |= ENDED);
    }

    /// A packet goes in; its number in the flow, from 1.
    pub(crate) fn went(&mut self, flow: u32) -> u32 {
        let known = &mut self.flows[flow as usize];
        known.flying += 1;
        known.last += 1;
        known.last
    }

    /// A packet is gone that is not measured.
    pub(crate) fn lost(&mut self, flow: u32) {
        self.change(flow, |known| known.flying -= 1);
    }

    /// A packet came out.
    pub(crate) fn came(&mut self, flow: u32, sequence: u32) {
        let known = &mut self.flows[flow as usize];
        let is_late = sequence < known.highest;
        self.packets += 1;
        self.late_packets += u64::from(is_late);
        self.sequences += u64::from(is_late && known.flying & LATE == 0);
        known.flying = if is_late { known.flying | LATE } else { known.flying & !LATE };
        known.highest = known.highest.max(sequence);
        self.lost(flow);
    }

    fn change(&mut self, flow: u32, change: impl FnOnce(&mut Flow)) {
        let known = &mut self.flows[flow as usize];
        change(known);
        if known.flying & !LATE == ENDED {
            self.free.push(flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::random::Random;

    #[test]
    fn the_papers_example_is_one_sequence_of_two_packets() {
        let mut order = Order::default();
        let flow = order.begin();
        assert_eq!([(); 5].map(|()| order.went(flow)), [1, 2, 3, 4, 5]);
        [1, 4, 2, 3, 5].into_iter().for_each(|sequence| order.came(flow, sequence));
        assert_eq!((order.sequences, order.late_packets, order.packets), (1, 2, 5));
    }

    /// Late packets, and rows of them, by RFC 4737's definition, which looks at all that came before.
    fn by_definition(came: &[u32]) -> (u64, u64) {
        let is_late = |place: usize| came[..place].iter().any(|&before| before > came[place]);
        let begins = |place: &usize| is_late(*place) && (*place == 0 || !is_late(*place - 1));
        let late = (0..came.len()).filter(|&place| is_late(place)).count();
        (late as u64, (0..came.len()).filter(begins).count() as u64)
    }

    /// Packets of flows that begin and end, lost and late at random.
    #[test]
    fn it_counts_by_the_definition() {
        let mut random = Random::new(1, 1);
        let (mut order, mut came) = (Order::default(), HashMap::<u64, Vec<u32>>::new());
        // By flow: its place, a number that no other has, packets that it has left.
        let mut flows: Vec<(u32, u64, u32)> = Vec::new();
        let (mut begun, mut most) = (0, 0);
        let mut flying: Vec<(u32, u64, u32)> = Vec::new();
        for _ in 0..100_000 {
            if flows.len() < 20 {
                let flow = order.begin();
                assert!(flying.iter().all(|&(other, ..)| other != flow), "still in use");
                flows.push((flow, begun, 1 + random.below(30)));
                begun += 1;
                most = most.max(flow);
            }
            let at = random.below(flows.len() as u32) as usize;
            let (flow, number, left) = &mut flows[at];
            flying.push((*flow, *number, order.went(*flow)));
            *left -= 1;
            if *left == 0 {
                order.end(*flow);
                flows.swap_remove(at);
            }
            if flying.len() > 40 {
                let (flow, number, sequence) = flying.remove(random.below(8) as usize);
                if random.below(10) == 0 {
                    order.lost(flow);
                } else {
                    order.came(flow, sequence);
                    came.entry(number).or_default().push(sequence);
                }
            }
        }
        let counts = came.values().map(|flow| by_definition(flow));
        let (late, sequences) = counts.fold((0, 0), |sum, flow| (sum.0 + flow.0, sum.1 + flow.1));
        assert_eq!((order.late_packets, order.sequences), (late, sequences));
        assert_eq!(order.packets, came.values().map(|flow| flow.len() as u64).sum());
        assert!(order.late_packets > order.sequences && order.sequences > 1000);
        assert!(begun > 5000 && most < 100, "{begun} {most}");
    }
}
