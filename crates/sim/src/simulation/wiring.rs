//! Links as servers: each way of each cable, its rate, its queue, and where it ends.

use fabric::{Far, NodeId, Topology};

use crate::Scenario;

/// All links of a cluster.
pub(super) struct Wiring {
    /// One way each: those of all nodes, node by node in the order of their numbers; then those from switches to nodes, likewise.
    pub(super) wires: Vec<Wire>,
    /// By node: its first.
    first: Vec<u32>,
    /// Where those from switches begin.
    from_switches: u32,
    pub(super) rates: Rates,
}

/// What all links have alike.
pub(super) struct Rates {
    ps_per_byte: f64,
    queue_ps: u64,
    pub(super) delay_ps: u64,
}

/// A link, one way.
pub(super) struct Wire {
    /// When what waits for it has gone.
    free_ps: u64,
    /// What was sent, as far as it is measured.
    pub(super) bytes: u64,
    pub(super) to: To,
}

/// Where a link ends.
#[derive(Clone, Copy)]
pub(super) enum To {
    Node {
        node: u16,
        /// Its number there.
        link: u16,
    },
    Switch(u16),
}

impl Wire {
    /// When a packet has gone that is put into the queue now; `None`: that is full.
    pub(super) fn carry(&mut self, now_ps: u64, bytes: u32, rates: &Rates) -> Option<u64> {
        if self.free_ps.saturating_sub(now_ps) > rates.queue_ps {
            return None;
        }
        Some(self.carry_always(now_ps, bytes, rates))
    }

    /// The same, however much waits.
    pub(super) fn carry_always(&mut self, now_ps: u64, bytes: u32, rates: &Rates) -> u64 {
        self.free_ps = self.free_ps.max(now_ps) + (f64::from(bytes) * rates.ps_per_byte) as u64;
        self.free_ps
    }
}

impl Wiring {
    pub(super) fn new(topology: &Topology, scenario: &Scenario) -> Wiring {
        let nodes = || NodeId::first(topology.nodes());
        let numbered = |node| (0_u16..).zip(topology.links(node));
        // By cable: the numbers of its link at both ends, that of the node with the lower number first.
        let mut ends = vec![[0; 2]; topology.cables().len()];
        for (node, (number, link)) in nodes().flat_map(|node| numbered(node).map(move |link| (node, link))) {
            ends[link.cable as usize][usize::from(is_upper(node, link.far))] = number;
        }
        let mut first = Vec::with_capacity(topology.nodes());
        let mut wires = Vec::new();
        for node in nodes() {
            first.push(wires.len() as u32);
            wires.extend(topology.links(node).iter().map(|link| match link.far {
                Far::Node(far) => {
                    let link = ends[link.cable as usize][usize::from(!is_upper(node, link.far))];
                    Wire { free_ps: 0, bytes: 0, to: To::Node { node: far.number(), link } }
                }
                Far::Switch(switch) => Wire { free_ps: 0, bytes: 0, to: To::Switch(switch) },
            }));
        }
        let from_switches = wires.len() as u32;
        for (node, (link, _)) in nodes().flat_map(|node| numbered(node).map(move |link| (node, link))) {
            if let Far::Switch(_) = topology.links(node)[usize::from(link)].far {
                wires.push(Wire { free_ps: 0, bytes: 0, to: To::Node { node: node.number(), link } });
            }
        }
        let ps_per_byte = 1e12 / scenario.link_rate as f64;
        let rates = Rates {
            ps_per_byte,
            queue_ps: (scenario.link_queue_bytes as f64 * ps_per_byte) as u64,
            delay_ps: scenario.link_delay_ns.saturating_mul(1000),
        };
        Wiring { wires, first, from_switches, rates }
    }

    /// The wire that a node sends on by a link.
    pub(super) fn number(&self, node: u16, link: u16) -> usize {
        self.first[usize::from(node)] as usize + usize::from(link)
    }

    /// The wire by which a switch sends to a node's link; all links of a star lead to switches.
    pub(super) fn number_from_switch(&self, node: u16, link: u16) -> usize {
        self.number(node, link) + self.from_switches as usize
    }

    /// The wire by which something comes to a node's link.
    pub(super) fn number_into(&self, node: u16, link: u16) -> usize {
        match self.wires[self.number(node, link)].to {
            To::Node { node, link } => self.number(node, link),
            To::Switch(_) => self.number_from_switch(node, link),
        }
    }

    /// How far most events are from the one before: over a link behind some packets.
    pub(super) fn reach_ps(&self) -> u64 {
        self.rates.delay_ps.saturating_add((self.rates.ps_per_byte * 8192.0) as u64)
    }
}

/// Whether a node has the higher number of two.
fn is_upper(node: NodeId, far: Far) -> bool {
    matches!(far, Far::Node(far) if far < node)
}
