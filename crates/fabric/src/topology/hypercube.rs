//! Generalised hypercubes: a node's number has digits, and a cable joins any two nodes that differ in one digit. Two digits make
//! `compact(K)`, a grid whose rows and columns are meshes; digits of two values make `cube(n)`. The way corrects digit after
//! digit, the last one first. (Bhuyan and Agrawal, "Generalized Hypercube and Hyperbus Structures", 1984.)

use super::node_at;
use crate::NodeId;

/// What a digit is worth, for each digit of a number, the last first.
fn strides(values: usize, digits: u8) -> impl Iterator<Item = usize> {
    (0..digits).map(move |digit| values.pow(u32::from(digit)))
}

/// The nodes at the ends of all cables.
pub(super) fn cables(values: u16, digits: u8) -> impl Iterator<Item = (NodeId, NodeId)> {
    let values = usize::from(values);
    strides(values, digits).flat_map(move |stride| {
        NodeId::first(values.pow(u32::from(digits))).flat_map(move |node| {
            let digit = node.index() / stride % values;
            (1..values - digit).map(move |more| (node, node_at(node.index() + more * stride)))
        })
    })
}

/// The next node: with the target's digit in the last place in which both differ.
pub(super) fn next(values: u16, digits: u8, here: NodeId, target: NodeId) -> Option<NodeId> {
    let values = usize::from(values);
    strides(values, digits).find_map(|stride| {
        let [from, to] = [here, target].map(|node| node.index() / stride % values);
        (from != to).then(|| node_at(here.index() - from * stride + to * stride))
    })
}
