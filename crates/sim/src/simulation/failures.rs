//! What is broken when, and what that costs.

use fabric::Topology;

use super::PS;
use super::wiring::Wiring;
use crate::event::Event;
use crate::report::Recovery;
use crate::{Broken, Scenario, Ways};

/// All failures of a scenario.
pub(super) struct Failures {
    /// By node and by wire; empty where a scenario has no failures.
    nodes: Vec<Vec<Outage>>,
    wires: Vec<Vec<Outage>>,
    known: Vec<Known>,
}

/// A failure.
struct Known {
    from_ps: u64,
    until_ps: u64,
    /// The node that is dead.
    dead: Option<u16>,
    /// What it cost.
    recovery: Recovery,
}

#[derive(Clone, Copy)]
struct Outage {
    from_ps: u64,
    until_ps: u64,
    failure: u16,
}

/// The failure that holds at a time.
#[inline]
fn at(outages: Option<&Vec<Outage>>, at_ps: u64) -> Option<u16> {
    let holds = |outage: &&Outage| (outage.from_ps..outage.until_ps).contains(&at_ps);
    outages?.iter().find(holds).map(|outage| outage.failure)
}

impl Failures {
    pub(super) fn new(scenario: &Scenario, topology: &Topology) -> Failures {
        let mut failures = Failures { nodes: Vec::new(), wires: Vec::new(), known: Vec::new() };
        if scenario.failures.is_empty() {
            return failures;
        }
        let wiring = Wiring::new(topology, scenario);
        failures.nodes.resize(topology.nodes(), Vec::new());
        failures.wires.resize(wiring.wires.len(), Vec::new());
        for (number, failure) in (0..).zip(&scenario.failures) {
            let (from_ps, until_ps) =
                (failure.from_ns.saturating_mul(PS), failure.until_ns.saturating_mul(PS));
            let outage = Outage { from_ps, until_ps, failure: number };
            let dead = match failure.broken {
                Broken::Node(node) => {
                    failures.nodes[node.index()].push(outage);
                    Some(node.number())
                }
                Broken::Link { node, link, ways } => {
                    let (out, into) =
                        (wiring.number(node.number(), link), wiring.number_into(node.number(), link));
                    if ways != Ways::In {
                        failures.wires[out].push(outage);
                    }
                    if ways != Ways::Out {
                        failures.wires[into].push(outage);
                    }
                    None
                }
            };
            let recovery = Recovery { from_ns: failure.from_ns, ..Recovery::default() };
            failures.known.push(Known { from_ps, until_ps, dead, recovery });
        }
        failures
    }

    /// Why a node is dead at a time, if it is.
    #[inline]
    pub(super) fn of_node(&self, node: u16, at_ps: u64) -> Option<u16> {
        at(self.nodes.get(usize::from(node)), at_ps)
    }

    /// Why a wire is cut at a time, if it is.
    #[inline]
    pub(super) fn of_wire(&self, wire: usize, at_ps: u64) -> Option<u16> {
        at(self.wires.get(wire), at_ps)
    }

    /// The failure that began last: the one to blame where nobody knows a way.
    pub(super) fn last_begun(&self, at_ps: u64) -> Option<u16> {
        let begun = (0..).zip(&self.known).filter(|(_, known)| known.from_ps <= at_ps);
        begun.max_by_key(|(_, known)| known.from_ps).map(|(failure, _)| failure)
    }

    /// A packet was lost because of a failure.
    pub(super) fn cost(&mut self, failure: u16, packet: &Event, at_ps: u64) {
        let ends = [packet.input, packet.output];
        let is_dead = |end: u16| self.of_node(end, at_ps).is_some();
        let dead = self.known[usize::from(failure)].dead;
        let is_own = ends.into_iter().any(|end| dead == Some(end) || is_dead(end));
        let Known { until_ps, recovery, .. } = &mut self.known[usize::from(failure)];
        if is_own {
            recovery.own += 1;
        } else if at_ps >= *until_ps {
            recovery.lost_on_return += 1;
        } else {
            recovery.lost += 1;
            recovery.last_lost_ns = recovery.last_lost_ns.max(Some(at_ps / PS));
        }
    }

    /// What all of them cost.
    pub(super) fn recoveries(&self) -> Vec<Recovery> {
        self.known.iter().map(|known| known.recovery).collect()
    }
}
