//! A d-dimensional torus: a node's number is its place in every dimension, the last dimension the fastest.

use super::node_at;
use crate::NodeId;

/// Place of `node` in a dimension of `side` nodes whose neighbours are `stride` apart.
fn place(node: NodeId, stride: usize, side: usize) -> usize {
    node.index() / stride % side
}

/// The node that differs from `node` in one dimension only.
fn moved(node: NodeId, stride: usize, side: usize, place_there: usize) -> NodeId {
    node_at(node.index() - place(node, stride, side) * stride + place_there * stride)
}

/// Every dimension's stride and side, the last first.
fn dimensions(sides: &[u16]) -> impl Iterator<Item = (usize, usize)> + '_ {
    sides.iter().rev().scan(1, |stride, &side| {
        let dimension = (*stride, usize::from(side));
        *stride *= usize::from(side);
        Some(dimension)
    })
}

/// The nodes at the ends of all cables. Two nodes that are both neighbours of each other in a dimension of two have one.
pub(super) fn cables(sides: &[u16]) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
    let nodes = sides.iter().map(|&side| usize::from(side)).product();
    dimensions(sides).flat_map(move |(stride, side)| {
        NodeId::first(nodes).filter_map(move |node| {
            let here = place(node, stride, side);
            let is_doubled = side == 2 && here == 1;
            let other = moved(node, stride, side, (here + 1) % side);
            (other != node && !is_doubled).then_some((node, other))
        })
    })
}

/// The next node: in the last dimension in which the places differ, the shorter way round. Where both are as short, even places
/// go upwards and odd ones downwards, so that both ways carry the same (sides that 4 does not divide: nearly). One step on, one
/// way is the shorter.
pub(super) fn next(sides: &[u16], here: NodeId, target: NodeId) -> Option<NodeId> {
    dimensions(sides).find_map(|(stride, side)| {
        let (from, to) = (place(here, stride, side), place(target, stride, side));
        let upwards = (to + side - from) % side;
        let is_up = upwards * 2 < side || (upwards * 2 == side && from.is_multiple_of(2));
        let step = if is_up { 1 } else { side - 1 };
        (from != to).then(|| moved(here, stride, side, (from + step) % side))
    })
}
