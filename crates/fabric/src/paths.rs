//! Which ways are alive, as one node knows it: compiled from the topology and the pairs of neighbours that cannot hear each
//! other, whenever one of these changes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{NodeId, NodeSet, Topology};

/// The ways from one node.
#[derive(Clone, Debug)]
pub struct Paths {
    topology: Arc<Topology>,
    here: NodeId,
    /// By output node: which of `sets` has those over which it can be reached.
    vias: Vec<u16>,
    /// Nodes without this one. Where an output can be reached directly its set has itself too, which nobody goes over: so
    /// in a whole mesh all outputs have the same set, and a thousand nodes need no million bits each.
    sets: Vec<NodeSet>,
    /// Whom packets can be sent to without an intermediate node.
    direct: NodeSet,
    /// By node: the live link towards it, [`NO_LINK`], or [`PARALLEL`] and a place in `parallel`. Of fixed length, so
    /// that any ten bits of a header are a place in it.
    first: Box<[u16; PLACES]>,
    parallel: Vec<Vec<u16>>,
}

/// Every pattern of a node's ten bits.
const PLACES: usize = NodeId::COUNT + 1;
const NO_LINK: u16 = 0xffff;
const PARALLEL: u16 = 0x8000;

impl Paths {
    /// The ways from `here` when all is well.
    pub fn new(topology: Arc<Topology>, here: NodeId) -> Paths {
        Paths::with(topology, here, |_| true, |_, _| true)
    }

    /// The ways from `here` over those of its own links for which `is_up` holds, and elsewhere between neighbours that are
    /// `joined`: both hear each other on a link at least.
    pub fn with(
        topology: Arc<Topology>,
        here: NodeId,
        is_up: impl Fn(u16) -> bool,
        joined: impl Fn(NodeId, NodeId) -> bool,
    ) -> Paths {
        Paths::over(topology, here, |_, link| is_up(link), joined, |_| true)
    }

    /// The same where a link may lead to several neighbours, and `is_up` says whether this one is heard there; and where only
    /// nodes for which `relays` holds are taken as intermediate ones.
    pub fn over(
        topology: Arc<Topology>,
        here: NodeId,
        is_up: impl Fn(NodeId, u16) -> bool,
        joined: impl Fn(NodeId, NodeId) -> bool,
        relays: impl Fn(NodeId) -> bool,
    ) -> Paths {
        let nodes = topology.nodes();
        let mut paths = Paths {
            here,
            vias: Vec::new(),
            sets: Vec::new(),
            direct: NodeSet::none(nodes),
            first: Box::new([NO_LINK; PLACES]),
            parallel: Vec::new(),
            topology,
        };
        for target in NodeId::first(nodes) {
            let Some(next) = paths.topology.next(here, target) else { continue };
            let live: Vec<u16> =
                paths.topology.links_to(here, next).filter(|&link| is_up(next, link)).collect();
            paths.first[target.index()] = match live[..] {
                [] => NO_LINK,
                [link] => link,
                _ => {
                    // Targets behind the same neighbour share its links.
                    let known = paths.parallel.iter().position(|other| *other == live);
                    let place = known.unwrap_or(paths.parallel.len());
                    if known.is_none() {
                        paths.parallel.push(live);
                    }
                    PARALLEL | place as u16
                }
            };
        }
        let is_way = |from: NodeId, to: NodeId| {
            let mut at = from;
            while let Some(next) = paths.topology.next(at, to) {
                let is_joined = if at == here { paths.has_link_to(to) } else { joined(at, next) };
                if !is_joined {
                    return false;
                }
                at = next;
            }
            at == to
        };
        let mut direct = NodeSet::none(nodes);
        NodeId::first(nodes)
            .filter(|&node| node != here && is_way(here, node))
            .for_each(|node| direct.insert(node));
        let mut places = HashMap::new();
        let mut vias = Vec::with_capacity(nodes);
        for output in NodeId::first(nodes) {
            let mut set = NodeSet::none(nodes);
            let is_via = |via: NodeId| via == output || (relays(via) && is_way(via, output));
            direct.iter().filter(|&via| output != here && is_via(via)).for_each(|via| set.insert(via));
            // No more sets than outputs, which are less than 2^10.
            let next = places.len() as u16;
            vias.push(*places.entry(set).or_insert(next));
        }
        let mut sets = vec![NodeSet::default(); places.len()];
        places.into_iter().for_each(|(set, place)| sets[usize::from(place)] = set);
        (paths.direct, paths.vias, paths.sets) = (direct, vias, sets);
        paths
    }

    /// The nodes over which `output` can be reached, and perhaps itself.
    fn set(&self, output: NodeId) -> Option<&NodeSet> {
        self.sets.get(usize::from(*self.vias.get(output.index())?))
    }

    /// Whether one of this node's links towards `target` is alive.
    fn has_link_to(&self, target: NodeId) -> bool {
        self.first[target.index()] != NO_LINK
    }

    /// The node whose ways these are.
    pub fn here(&self) -> NodeId {
        self.here
    }

    /// The wiring that they go over.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Whether all is well as far as this node can get: a node that can be reached directly can also be an intermediate node, to all
    /// others that can be reached at all.
    pub fn are_whole(&self) -> bool {
        let nodes = self.direct.len();
        self.sets.iter().all(|vias| vias.is_empty() || vias.len() == nodes)
    }

    /// Whether `output` can be reached without an intermediate node.
    #[inline]
    pub fn is_direct(&self, output: NodeId) -> bool {
        self.direct.contains(output)
    }

    /// Whether `output` can be reached over `via`.
    #[inline]
    pub fn leads_over(&self, via: NodeId, output: NodeId) -> bool {
        via != output && self.set(output).is_some_and(|vias| vias.contains(via))
    }

    /// Whether `output` can be reached at all.
    pub fn is_reachable(&self, output: NodeId) -> bool {
        self.is_direct(output) || self.vias(output).next().is_some()
    }

    /// The nodes over which `output` can be reached.
    pub fn vias(&self, output: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.set(output).into_iter().flat_map(NodeSet::iter).filter(move |&via| via != output)
    }

    /// The link of this node towards `target`; `entropy` chooses among parallel ones. A relay asks nothing else.
    #[inline]
    pub fn link_towards(&self, target: NodeId, entropy: u8) -> Option<u16> {
        self.link_towards_bits(target.number(), entropy)
    }

    /// The link towards the node that these ten bits stand for, if there is one alone.
    pub fn only_link_towards(&self, target: u16) -> Option<u16> {
        Some(self.first[usize::from(target) % PLACES]).filter(|&link| link < PARALLEL)
    }

    /// All live links towards the node that these ten bits stand for. A relay takes that at entropy * count / 256.
    pub fn links_towards(&self, target: u16) -> &[u16] {
        match &self.first[usize::from(target) % PLACES] {
            link if *link < PARALLEL => std::slice::from_ref(link),
            &NO_LINK => &[],
            parallel => self.parallel.get(usize::from(parallel & !PARALLEL)).map_or(&[], Vec::as_slice),
        }
    }

    /// The same as [`Paths::link_towards`] for the ten bits that stand for a node in a header, whatever they are.
    #[inline]
    pub fn link_towards_bits(&self, target: u16, entropy: u8) -> Option<u16> {
        match self.first[usize::from(target) % PLACES] {
            link if link < PARALLEL => Some(link),
            NO_LINK => None,
            parallel => {
                let links = self.parallel.get(usize::from(parallel & !PARALLEL))?;
                links.get((usize::from(entropy) * links.len()) >> 8).copied()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn topology(text: &str) -> Arc<Topology> {
        Arc::new(Topology::new(text.parse().unwrap()))
    }

    fn numbers(nodes: impl Iterator<Item = NodeId>) -> Vec<u16> {
        nodes.map(NodeId::number).collect()
    }

    #[test]
    fn in_a_whole_mesh_everybody_else_may_be_in_between() {
        let paths = Paths::new(topology("mesh(4)"), node(1));
        assert_eq!(numbers(paths.vias(node(3))), [0, 2]);
        assert!(paths.is_direct(node(3)) && !paths.is_direct(node(1)) && !paths.is_direct(node(4)));
        assert_eq!(paths.link_towards(node(3), 0), Some(2));
        assert_eq!(paths.link_towards(node(1), 0), None);
    }

    #[test]
    fn a_whole_mesh_of_all_nodes_has_two_sets() {
        let paths = Paths::new(topology("mesh(1023)"), node(7));
        // That of this node, which is not an output of its own, and that of all others.
        assert_eq!(paths.sets.len(), 2);
        assert!(paths.are_whole() && !paths.is_reachable(node(7)));
        assert_eq!(paths.vias(node(1022)).count(), 1021);
        assert!(!paths.leads_over(node(1022), node(1022)) && paths.leads_over(node(0), node(1022)));
        assert!(!paths.leads_over(node(7), node(1022)) && !paths.leads_over(node(0), node(7)));
    }

    #[test]
    fn a_cut_link_of_ours_leaves_the_ways_over_others() {
        let paths = Paths::with(topology("mesh(4)"), node(1), |link| link != 2, |_, _| true);
        assert!(!paths.is_direct(node(3)) && paths.is_reachable(node(3)));
        assert_eq!(numbers(paths.vias(node(3))), [0, 2]);
        assert_eq!(numbers(paths.vias(node(0))), [2], "not over the node behind the cut link");
    }

    #[test]
    fn a_cut_link_of_others_is_not_used_by_us() {
        let cut = |a: NodeId, b: NodeId| (a.number().min(b.number()), a.number().max(b.number())) != (2, 3);
        let paths = Paths::with(topology("mesh(4)"), node(1), |_| true, cut);
        assert_eq!(numbers(paths.vias(node(3))), [0]);
        assert_eq!(numbers(paths.vias(node(2))), [0]);
        assert_eq!(numbers(paths.vias(node(0))), [2, 3]);
    }

    #[test]
    fn parallel_links_share_by_entropy_and_stand_in_for_each_other() {
        let paths = Paths::new(topology("mesh(2, 2)"), node(0));
        assert_eq!((paths.link_towards(node(1), 0), paths.link_towards(node(1), 255)), (Some(0), Some(1)));
        let paths = Paths::with(topology("mesh(2, 2)"), node(0), |link| link == 1, |_, _| true);
        assert_eq!(paths.link_towards(node(1), 0), Some(1));
        assert!(paths.is_direct(node(1)));
    }

    #[test]
    fn a_dead_relay_of_a_fly_is_gone_round_by_an_intermediate_node() {
        // Node 5 to 2 goes over 9, 13, 17.
        let dead = |a: NodeId, b: NodeId| a.number() != 13 && b.number() != 13;
        let paths = Paths::with(topology("fly(2, 3)"), node(5), |_| true, dead);
        assert!(!paths.is_direct(node(2)));
        let vias = numbers(paths.vias(node(2)));
        assert!(!vias.is_empty());
        for via in vias {
            let fly = topology("fly(2, 3)");
            for (from, to) in [(5, via), (via, 2)] {
                let mut at = node(from);
                while let Some(next) = fly.next(at, node(to)) {
                    assert_ne!(next.number(), 13, "5 over {via} to 2");
                    at = next;
                }
            }
        }
        assert!(Paths::new(topology("fly(2, 3)"), node(5)).is_direct(node(2)));
    }

    #[test]
    fn ways_are_not_whole_while_one_leads_to_some_outputs_only() {
        // Node 7 reaches 4 to 6 directly, and they each other. But 5 leads to none of those behind 13, which 4 and 6 do.
        let dead = |a: NodeId, b: NodeId| a.number() != 13 && b.number() != 13;
        let paths = Paths::with(topology("fly(2, 3)"), node(7), |_| true, dead);
        assert_eq!(numbers(paths.vias(node(3))), [4, 6]);
        assert!(paths.is_direct(node(5)) && !paths.are_whole());
        // Where only this node's own link is cut, who is left leads everywhere.
        assert!(Paths::with(topology("mesh(4)"), node(1), |link| link != 2, |_, _| true).are_whole());
        // So it is where a node is dead for all.
        let dead = |a: NodeId, b: NodeId| a.number() != 3 && b.number() != 3;
        assert!(Paths::with(topology("mesh(4)"), node(1), |link| link != 2, dead).are_whole());
    }

    #[test]
    fn a_relay_knows_its_links_towards_all_nodes() {
        let fly = topology("fly(2, 3)");
        let paths = Paths::new(Arc::clone(&fly), node(13));
        for target in NodeId::first(8) {
            let link = paths.link_towards(target, 0).expect("a link");
            assert!(fly.links_to(node(13), fly.next(node(13), target).unwrap()).any(|other| other == link));
        }
    }
}
