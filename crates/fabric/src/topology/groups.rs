//! Groups of nodes, each a mesh, one more than a group has nodes. Each node has one cable to another group, and any two groups are
//! joined by one: node `i` of group `g` leads to group `g + 1 + i`. The way goes to the node of the own group that leads to the
//! target's, over, and to the target. (A dragonfly with one global link a node: Kim, Dally, Scott and Abts, ISCA 2008.)

use super::node_at;
use crate::NodeId;

/// The node of `group` that leads to `other`.
fn gateway(size: usize, group: usize, other: usize) -> NodeId {
    let groups = size + 1;
    node_at(group * size + (other + groups - group - 1) % groups)
}

/// The nodes at the ends of all cables: first those within groups.
pub(super) fn cables(size: u16) -> impl Iterator<Item = (NodeId, NodeId)> {
    let size = usize::from(size);
    let pairs =
        |count: usize| (0..count).flat_map(move |one| (one + 1..count).map(move |other| (one, other)));
    let within = (0..=size).flat_map(move |group| {
        pairs(size).map(move |(one, other)| (node_at(group * size + one), node_at(group * size + other)))
    });
    let between =
        pairs(size + 1).map(move |(one, other)| (gateway(size, one, other), gateway(size, other, one)));
    within.chain(between)
}

pub(super) fn next(size: u16, here: NodeId, target: NodeId) -> NodeId {
    let size = usize::from(size);
    let [group, other] = [here, target].map(|node| node.index() / size);
    if group == other {
        return target;
    }
    let gateway_here = gateway(size, group, other);
    if gateway_here == here { gateway(size, other, group) } else { gateway_here }
}
