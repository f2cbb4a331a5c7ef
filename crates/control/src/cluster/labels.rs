//! The labels of neighbours: numbers by which the node of a port knows what to do with a packet that comes over the fabric.
//!
//! Every node's labels are dense. One that was given up is not given to another neighbour before all nodes have acknowledged that:
//! a node that is behind would send to a wrong neighbour.

use std::collections::{HashMap, VecDeque};

use super::record::Record;
use fabric::Label;

/// Labels of a neighbour: one a family.
const FAMILIES: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Labels {
    /// By port: its node.
    nodes: HashMap<u8, u16>,
    used: HashMap<(u8, [u8; 6]), Used>,
    spaces: HashMap<u16, Space>,
    /// Labels below this one may mean something to somebody who knows another log.
    lowest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    /// Whose label it is: that node had the port when it was given.
    node: u16,
    label: u32,
    /// Neighbours with this link address.
    users: u32,
}

/// The labels of one node.
#[derive(Debug, Default)]
struct Space {
    /// The lowest that was never used.
    next: u32,
    free: Vec<u32>,
    /// Given up, with its place in the log, if it stands there already.
    resting: VecDeque<(Option<u64>, u32)>,
}

impl Labels {
    /// Says which node has a port.
    pub(super) fn set_node(&mut self, port: u8, node: u16) {
        self.nodes.insert(port, node);
    }

    /// Gives no label below this one.
    pub(super) fn begin_at(&mut self, lowest: u32) {
        self.lowest = self.lowest.max(lowest);
        for &node in self.nodes.values().collect::<std::collections::HashSet<_>>() {
            let space = self.spaces.entry(node).or_default();
            space.next = space.next.max(lowest);
        }
    }

    /// Whether a neighbour's label is that of a node which does not have the port any more.
    pub(super) fn has_moved(&self, port: u8, mac: [u8; 6]) -> bool {
        self.used
            .get(&(port, mac))
            .is_some_and(|used| self.nodes.get(&port).is_some_and(|&node| node != used.node))
    }

    /// One user more of a neighbour's label; its record if it is new.
    pub(super) fn acquire(&mut self, port: u8, mac: [u8; 6]) -> Option<Record> {
        let node = *self.nodes.get(&port)?;
        if let Some(used) = self.used.get_mut(&(port, mac)).filter(|used| used.node == node) {
            used.users += 1;
            return None;
        }
        let space = self.spaces.entry(node).or_default();
        space.next = space.next.max(self.lowest);
        let label = space.free.pop().unwrap_or(space.next);
        let next = label.saturating_add(FAMILIES);
        if next > Label::MAX {
            return None;
        }
        space.next = space.next.max(next);
        self.used.insert((port, mac), Used { node, label, users: 1 });
        Some(Record::Label { port, node, mac, label })
    }

    /// One user less; whether the label is given up.
    pub(super) fn release(&mut self, port: u8, mac: [u8; 6]) -> bool {
        let Some(used) = self.used.get_mut(&(port, mac)) else { return false };
        used.users = used.users.saturating_sub(1);
        if used.users > 0 {
            return false;
        }
        let Used { node, label, .. } = *used;
        self.used.remove(&(port, mac));
        self.spaces.entry(node).or_default().resting.push_back((None, label));
        true
    }

    /// The last leader gave this label; its users follow in the log.
    pub(super) fn replay(&mut self, port: u8, node: u16, mac: [u8; 6], label: u32) {
        self.replay_given(node, label.saturating_add(FAMILIES));
        self.used.insert((port, mac), Used { node, label, users: 0 });
    }

    /// Leaders have given a node's labels below this one. Those that nobody has now may rest, so this leader does not use them again.
    pub(super) fn replay_given(&mut self, node: u16, below: u32) {
        let space = self.spaces.entry(node).or_default();
        space.next = space.next.max(below);
    }

    /// What was given up so far stands in the log here.
    pub(super) fn logged(&mut self, sequence: u64) {
        for (at, _) in self.spaces.values_mut().flat_map(|space| &mut space.resting) {
            at.get_or_insert(sequence);
        }
    }

    /// All nodes have read the log up to here.
    pub(super) fn acknowledged(&mut self, sequence: u64) {
        for space in self.spaces.values_mut() {
            while let Some(&(Some(at), label)) = space.resting.front()
                && at < sequence
            {
                space.resting.pop_front();
                space.free.push(label);
            }
        }
    }

    /// All labels, and up to where they were given: the highest may rest.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let given = self.spaces.iter().map(|(&node, space)| Record::LabelsGiven { node, below: space.next });
        given.chain(self.used.iter().map(|(&(port, mac), &Used { node, label, .. })| Record::Label {
            port,
            node,
            mac,
            label,
        }))
    }
}
