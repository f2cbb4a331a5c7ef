//! A k-ary n-fly: k^n terminals, and n stages of k^(n-1) nodes that only relay. Between stages run k^n wires. The relay of
//! stage `i` joins the wires whose numbers differ in digit `n-1-i` only, and sends a packet out on the one that has the target's
//! digit there; behind the last stage the wire has the target's number.
//!
//! Terminals come first in the numbering, then the relays, stage by stage. Packets go one way through a cable; hellos go
//! both.

use super::node_at;
use crate::NodeId;

pub(super) fn terminals(arity: u16, stages: u8) -> usize {
    usize::from(arity).pow(u32::from(stages))
}

/// Relays of a stage.
fn rows(arity: u16, stages: u8) -> usize {
    usize::from(arity).pow(u32::from(stages) - 1)
}

/// How far wires of the same relay of a stage are apart.
fn stride(arity: u16, stages: u8, stage: u8) -> usize {
    usize::from(arity).pow(u32::from(stages - 1 - stage))
}

/// The relay of `stage` where `wire` comes in.
fn relay(arity: u16, stages: u8, stage: u8, wire: usize) -> NodeId {
    let stride = stride(arity, stages, stage);
    // The wire's number without the digit of this stage.
    let row = wire / (stride * usize::from(arity)) * stride + wire % stride;
    let index = terminals(arity, stages) + usize::from(stage) * rows(arity, stages) + row;
    node_at(index)
}

pub(super) fn cables(arity: u16, stages: u8) -> impl Iterator<Item = (NodeId, NodeId)> {
    (0..=stages).flat_map(move |column| {
        (0..terminals(arity, stages)).map(move |wire| {
            let left = if column == 0 { node_at(wire) } else { relay(arity, stages, column - 1, wire) };
            let right = if column == stages { node_at(wire) } else { relay(arity, stages, column, wire) };
            (left, right)
        })
    })
}

pub(super) fn next(arity: u16, stages: u8, here: NodeId, target: NodeId) -> Option<NodeId> {
    let terminals = terminals(arity, stages);
    let Some(relays_before) = here.index().checked_sub(terminals) else {
        return Some(relay(arity, stages, 0, here.index()));
    };
    let rows = rows(arity, stages);
    let (stage, row) = ((relays_before / rows) as u8, relays_before % rows);
    let stride = stride(arity, stages, stage);
    let digit = target.index() / stride % usize::from(arity);
    let wire = (row / stride * usize::from(arity) + digit) * stride + row % stride;
    Some(if stage + 1 == stages { node_at(wire) } else { relay(arity, stages, stage + 1, wire) })
}
