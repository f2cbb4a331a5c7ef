//! De Bruijn graphs: a node's number has `n` digits, and the node leads to those whose numbers are its own without the first digit
//! and with any other behind. The way shifts in the target's digits that the node's number does not end with yet, so it has `n` links
//! at most, and never circles: with each link, the number ends with one digit more of those that the target's begins with.
//!
//! Packets go one way through a cable, so half of a node's cables lead on; hellos go both ways. A node of equal digits has no
//! cable to itself, and two nodes that lead to each other share one. (De Bruijn, 1946; as a network: Samatham and Pradhan, 1989.)

use super::node_at;
use crate::NodeId;

/// The nodes at the ends of all cables.
pub(super) fn cables(values: u16, digits: u8) -> impl Iterator<Item = (NodeId, NodeId)> {
    let values = usize::from(values);
    let nodes = values.pow(u32::from(digits));
    let leads_to = move |from: usize, to: usize| from * values % nodes == to / values * values;
    NodeId::first(nodes).flat_map(move |node| {
        let targets = (0..values).map(move |digit| node_at(node.index() * values % nodes + digit));
        targets
            .filter(move |&to| to != node && !(to < node && leads_to(to.index(), node.index())))
            .map(move |to| (node, to))
    })
}

/// The next node: with the digit of the target that follows those that `here` ends with.
pub(super) fn next(values: u16, digits: u8, here: NodeId, target: NodeId) -> Option<NodeId> {
    let values = usize::from(values);
    let power = |exponent: u8| values.pow(u32::from(exponent));
    // The target's first digits, one fewer each time, until the number of this node ends with them.
    let missing = (1..=digits)
        .find(|&missing| here.index() % power(digits - missing) == target.index() / power(missing))?;
    let digit = target.index() / power(missing - 1) % values;
    Some(node_at(here.index() * values % power(digits) + digit))
}
