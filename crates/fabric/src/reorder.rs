//! How much packets of the same flow overtake each other, measured as RouteBricks does (SOSP 2009, section 6.2): the share
//! of same-flow *sequences* that came out of order. A packet that comes later than one sent after it ends an orderly sequence; if packets 1 to 5 come as
//! 1, 4, 2, 3, 5, one sequence (2, 3) was overtaken.

use std::collections::HashMap;

/// Watches packets as they come out.
#[derive(Clone, Debug, Default)]
pub struct Reordering {
    flows: HashMap<u64, Flow>,
    packets: u64,
    sequences: u64,
    late_packets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    highest: u64,
    is_late: bool,
}

impl Reordering {
    /// A packet of `flow` came out that was the `sequence`-th of the flow to go in.
    pub fn came(&mut self, flow: u64, sequence: u64) {
        self.packets += 1;
        let known = self.flows.entry(flow).or_insert(Flow { highest: sequence, is_late: false });
        let is_late = sequence < known.highest;
        self.late_packets += u64::from(is_late);
        // Late packets in a row were overtaken together.
        self.sequences += u64::from(is_late && !known.is_late);
        known.is_late = is_late;
        known.highest = known.highest.max(sequence);
    }

    /// Packets that came.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Sequences that were overtaken.
    pub fn sequences(&self) -> u64 {
        self.sequences
    }

    /// Packets that were overtaken.
    pub fn late_packets(&self) -> u64 {
        self.late_packets
    }

    /// Overtaken sequences for each packet; 0 without packets.
    pub fn share(&self) -> f64 {
        self.sequences as f64 / self.packets.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(order: &[u64]) -> Reordering {
        let mut reordering = Reordering::default();
        order.iter().for_each(|&sequence| reordering.came(7, sequence));
        reordering
    }

    #[test]
    fn the_papers_example_is_one_sequence() {
        let example = watch(&[1, 4, 2, 3, 5]);
        assert_eq!((example.sequences(), example.late_packets(), example.packets()), (1, 2, 5));
        assert_eq!(watch(&[1, 2, 3]).sequences(), 0);
        assert_eq!(watch(&[2, 1, 4, 3]).sequences(), 2);
        assert_eq!(watch(&[]).share(), 0.0);
    }

    #[test]
    fn flows_do_not_mix() {
        let mut reordering = watch(&[5]);
        reordering.came(8, 1);
        assert_eq!(reordering.sequences(), 0);
    }
}
