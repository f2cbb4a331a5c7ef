//! A d-dimensional torus: a node's number is its place in every dimension, the last dimension the fastest.

use crate::NodeId;

/// Place of `node` in a dimension of `side` nodes whose neighbours are `stride` apart.
fn place(node: NodeId, stride: usize, side: usize) -> usize {
    node.index() / stride % side
}

/// The node that differs from `node` in one dimension only.
fn moved(node: NodeId, stride: usize, side: usize, place_there: usize) -> Option<NodeId> {
    let index = node.index() - place(node, stride, side) * stride + place_there * stride;
    NodeId::new(u16::try_from(index).ok()?)
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
            let other = moved(node, stride, side, (here + 1) % side)?;
            (other != node && !is_doubled).then_some((node, other))
        })
    })
}

/// The next node: in the last dimension in which the places differ, the shorter way round, upwards where both are as short.
pub(super) fn next(sides: &[u16], here: NodeId, target: NodeId) -> Option<NodeId> {
    dimensions(sides).find_map(|(stride, side)| {
        let (from, to) = (place(here, stride, side), place(target, stride, side));
        let upwards = (to + side - from) % side;
        let step = if upwards * 2 <= side { 1 } else { side - 1 };
        (from != to).then(|| moved(here, stride, side, (from + step) % side))?
    })
}
