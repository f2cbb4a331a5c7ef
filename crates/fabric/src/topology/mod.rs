//! Who is wired to whom, and the next node on the way to another.
//!
//! A [`Shape`] is what people write (`mesh(4)`); a [`Topology`] is what it means: nodes, cables, and for every node the
//! links it has, in an order that all nodes know, and the one next node towards every other. There is one next node, never
//! several, so that the way from one node to another is known to all; where nodes are joined by parallel cables, any of them
//! will do. A broken link changes no next node: input nodes then take another intermediate node ([`Paths`](crate::Paths)). That is why no
//! packet can circle while nodes know different things.
//!
//! | shape | nodes | links | next node |
//! | --- | --- | --- | --- |
//! | `mesh(N)`, `mesh(N, P)` | N | P between any two | the node itself |
//! | `star(N)`, `star(N, S)` | N | one to each of S switches | the node itself |
//! | `torus(A, B, ...)` | A x B x ... | one to both neighbours in each dimension | dimension by dimension, the shorter way round |
//! | `fly(K, n)` | K^n with ports, n K^(n-1) that only relay | one in and one out; K and K at relays | digit by digit of the node's number |
//! | `compact(K)` | K^2, a grid | K - 1 in the row, K - 1 in the column | first in the row, then in the column |
//! | `groups(K)` | K + 1 groups of K | K - 1 in the group, 1 to another group | out of the group, over, to the node |
//! | `cube(n)` | 2^n | n | bit by bit of the node's number |
//! | `debruijn(K, n)` | K^n | K out, K in | shifts in the digits of the target that the node's number does not end with |
//!
//! Source of mesh, torus, fly and cube: Dally and Towles, "Principles and Practices of Interconnection Networks", chapters 3 to 5.
//! `compact(K)`, `groups(K)` (compact(3)), `cube(n)` (embedded butterfly) and `debruijn(2, n)` are among those that Argyraki and
//! others compare (PRESTO 2008, table 1).

mod de_bruijn;
mod fly;
mod groups;
mod hypercube;
mod shape;
mod torus;

use crate::NodeId;
pub use shape::{Shape, TopologyError};

/// A cable between two nodes, or between a node and a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// One end, always a node.
    pub node: NodeId,
    /// The other.
    pub far: Far,
}

/// What a node's link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Far {
    /// One node.
    Node(NodeId),
    /// A switch, and behind it all nodes.
    Switch(u16),
}

/// A link, as the node at one end of it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The other end.
    pub far: Far,
    /// The cable's place in [`Topology::cables`].
    pub cable: u32,
}

/// A shape, expanded.
#[derive(Clone, Debug)]
pub struct Topology {
    shape: Shape,
    cables: Vec<Cable>,
    links: Vec<Vec<Link>>,
}

/// The node with this number.
fn node_at(index: usize) -> NodeId {
    NodeId::new(index as u16).expect("a shape has no more nodes than there are numbers")
}

impl Topology {
    /// Expands `shape`.
    pub fn new(shape: Shape) -> Topology {
        let mut topology = Topology { cables: Vec::new(), links: vec![Vec::new(); shape.nodes()], shape };
        match topology.shape.clone() {
            Shape::Mesh { nodes, parallel } => {
                for a in NodeId::first(nodes) {
                    for b in NodeId::first(nodes).skip(a.index() + 1) {
                        (0..parallel).for_each(|_| topology.join(a, b));
                    }
                }
            }
            Shape::Star { nodes, switches } => {
                for node in NodeId::first(nodes) {
                    for switch in 0..switches {
                        topology.plug(Cable { node, far: Far::Switch(switch) });
                    }
                }
            }
            Shape::Torus { sides } => torus::cables(&sides).for_each(|(a, b)| topology.join(a, b)),
            Shape::Fly { arity, stages } => fly::cables(arity, stages).for_each(|(a, b)| topology.join(a, b)),
            Shape::Compact { side } => hypercube::cables(side, 2).for_each(|(a, b)| topology.join(a, b)),
            Shape::Groups { size } => groups::cables(size).for_each(|(a, b)| topology.join(a, b)),
            Shape::Cube { dimensions } => {
                hypercube::cables(2, dimensions).for_each(|(a, b)| topology.join(a, b));
            }
            Shape::DeBruijn { arity, digits } => {
                de_bruijn::cables(arity, digits).for_each(|(a, b)| topology.join(a, b));
            }
        }
        topology
    }

    fn join(&mut self, a: NodeId, b: NodeId) {
        self.plug(Cable { node: a, far: Far::Node(b) });
    }

    fn plug(&mut self, cable: Cable) {
        let number = self.cables.len() as u32;
        self.links[cable.node.index()].push(Link { far: cable.far, cable: number });
        if let Far::Node(other) = cable.far {
            self.links[other.index()].push(Link { far: Far::Node(cable.node), cable: number });
        }
        self.cables.push(cable);
    }

    /// What it was made from.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How many nodes there are; their numbers are those below.
    pub fn nodes(&self) -> usize {
        self.links.len()
    }

    /// All cables.
    pub fn cables(&self) -> &[Cable] {
        &self.cables
    }

    /// The links of a node; a link's number is its place here.
    pub fn links(&self, node: NodeId) -> &[Link] {
        self.links.get(node.index()).map_or(&[], Vec::as_slice)
    }

    /// Whether a packet may be sent over this node on purpose: those with ports in a fly, all others elsewhere.
    pub fn may_be_via(&self, node: NodeId) -> bool {
        match self.shape {
            Shape::Fly { arity, stages } => node.index() < fly::terminals(arity, stages),
            _ => node.index() < self.nodes(),
        }
    }

    /// Whether the node can have ports of the cluster: packets find their way to it.
    pub fn may_have_ports(&self, node: NodeId) -> bool {
        self.may_be_via(node)
    }

    /// The next node on the way from `here` to `target`. `None` at the target itself, and towards nodes that packets cannot
    /// be sent to ([`Topology::may_be_via`]).
    pub fn next(&self, here: NodeId, target: NodeId) -> Option<NodeId> {
        if here == target || !self.may_be_via(target) || here.index() >= self.nodes() {
            return None;
        }
        match &self.shape {
            Shape::Mesh { .. } | Shape::Star { .. } => Some(target),
            Shape::Torus { sides } => torus::next(sides, here, target),
            Shape::Fly { arity, stages } => fly::next(*arity, *stages, here, target),
            Shape::Compact { side } => hypercube::next(*side, 2, here, target),
            Shape::Groups { size } => Some(groups::next(*size, here, target)),
            Shape::Cube { dimensions } => hypercube::next(2, *dimensions, here, target),
            Shape::DeBruijn { arity, digits } => de_bruijn::next(*arity, *digits, here, target),
        }
    }

    /// The numbers of the links of `here` that lead to `next`, its neighbour.
    pub fn links_to(&self, here: NodeId, next: NodeId) -> impl Iterator<Item = u16> + '_ {
        (0..)
            .zip(self.links(here))
            .filter(move |(_, link)| match link.far {
                Far::Node(node) => node == next,
                Far::Switch(_) => next.index() < self.nodes() && next != here,
            })
            .map(|(number, _)| number)
    }

    /// The nodes at the other ends of a node's links, each once.
    pub fn neighbours(&self, node: NodeId) -> Vec<NodeId> {
        let mut neighbours: Vec<NodeId> = match self.shape {
            Shape::Star { .. } => NodeId::first(self.nodes()).filter(|&other| other != node).collect(),
            _ => self
                .links(node)
                .iter()
                .filter_map(|link| if let Far::Node(far) = link.far { Some(far) } else { None })
                .collect(),
        };
        neighbours.sort_unstable();
        neighbours.dedup();
        neighbours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn topology(text: &str) -> Topology {
        Topology::new(text.parse().unwrap())
    }

    /// Nodes behind `from` on the way to `to`.
    fn way(topology: &Topology, from: NodeId, to: NodeId) -> Vec<u16> {
        let mut way = Vec::new();
        let mut here = from;
        while let Some(next) = topology.next(here, to) {
            assert!(topology.links_to(here, next).next().is_some(), "{here} to {next} has no cable");
            assert!(way.len() < 64, "{from} to {to} circles: {way:?}");
            way.push(next.number());
            here = next;
        }
        way
    }

    #[test]
    fn every_node_reaches_every_other_that_may_have_ports() {
        for (text, nodes, cables, longest) in [
            ("mesh(4)", 4, 6, 1),
            ("mesh(3, 2)", 3, 6, 1),
            ("mesh(1)", 1, 0, 0),
            ("star(5, 2)", 5, 10, 1),
            ("torus(4, 4)", 16, 32, 4),
            ("torus(5)", 5, 5, 2),
            ("torus(2, 3)", 6, 9, 2),
            ("torus(3, 3, 3)", 27, 81, 3),
            ("fly(2, 3)", 8 + 12, 32, 4),
            ("fly(4, 2)", 16 + 8, 48, 3),
            ("fly(2, 1)", 2 + 1, 4, 2),
            ("compact(1)", 1, 0, 0),
            ("compact(2)", 4, 4, 2),
            ("compact(4)", 16, 16 * 2 * 3 / 2, 2),
            ("groups(1)", 2, 1, 1),
            ("groups(2)", 6, 6 * 2 / 2, 3),
            ("groups(4)", 20, 20 * 4 / 2, 3),
            ("cube(1)", 2, 1, 1),
            ("cube(4)", 16, 16 * 4 / 2, 4),
            // Of K^(n+1) arcs, K lead to where they come from, and one of each of K (K-1) / 2 pairs is the other back.
            ("debruijn(2, 1)", 2, 1, 1),
            ("debruijn(2, 4)", 16, 32 - 2 - 1, 4),
            ("debruijn(3, 2)", 9, 27 - 3 - 3, 2),
        ] {
            let topology = topology(text);
            assert_eq!((topology.nodes(), topology.cables().len()), (nodes, cables), "{text}");
            let mut most = 0;
            for to in NodeId::first(nodes).filter(|&to| topology.may_have_ports(to)) {
                for from in NodeId::first(nodes).filter(|&from| topology.may_have_ports(from) && from != to) {
                    let way = way(&topology, from, to);
                    assert_eq!(way.last(), Some(&to.number()), "{text}: {from} to {to}: {way:?}");
                    most = most.max(way.len());
                }
            }
            assert_eq!(most, longest, "{text}");
        }
    }

    #[test]
    fn a_fly_goes_through_one_relay_of_every_stage() {
        // Terminals 0 to 7; stages 8 to 11, 12 to 15, 16 to 19. Wire 5 = 101 enters relay x01 = 1 of stage one.
        assert_eq!(way(&topology("fly(2, 3)"), node(5), node(2)), [9, 13, 17, 2]);
        let fly = topology("fly(2, 3)");
        assert!(!fly.may_be_via(node(8)) && fly.may_be_via(node(7)));
        assert_eq!(fly.next(node(0), node(9)), None);
        assert_eq!(fly.links(node(0)).len(), 2);
        assert_eq!(fly.links(node(12)).len(), 4);
    }

    #[test]
    fn a_torus_goes_the_shorter_way_round() {
        assert_eq!(way(&topology("torus(5)"), node(0), node(4)), [4]);
        assert_eq!(way(&topology("torus(5)"), node(0), node(3)), [4, 3]);
        // Node 7 of 4 x 4 is row 1, column 3: first the column, then the row.
        assert_eq!(way(&topology("torus(4, 4)"), node(0), node(7)), [3, 7]);
    }

    #[test]
    fn a_torus_splits_what_is_as_far_both_ways_round() {
        // Every node of a ring of eight to the opposite one: upwards from even places, downwards from odd ones.
        let ring = topology("torus(8)");
        let first = |from: u16| way(&ring, node(from), node((from + 4) % 8))[0];
        assert_eq!([0, 1, 2, 7].map(first), [1, 0, 3, 6]);
        let sent_up = (0..8).filter(|&from| first(from) == (from + 1) % 8).count();
        assert_eq!(sent_up, 4);
    }

    #[test]
    fn a_grid_goes_along_the_row_and_a_cube_from_the_last_bit() {
        // Row 1, column 3 of 4 x 4 to row 2, column 0, over row 1, column 0.
        assert_eq!(way(&topology("compact(4)"), node(7), node(8)), [4, 8]);
        assert_eq!(topology("compact(4)").neighbours(node(5)).len(), 6);
        assert_eq!(way(&topology("cube(4)"), node(0b0000), node(0b1101)), [0b0001, 0b0101, 0b1101]);
    }

    #[test]
    fn any_two_groups_have_one_cable() {
        let groups = topology("groups(4)");
        let mut between = std::collections::HashMap::new();
        for cable in groups.cables() {
            let Far::Node(far) = cable.far else { panic!("a switch") };
            *between.entry((cable.node.index() / 4, far.index() / 4)).or_insert(0) += 1;
        }
        for (&(one, other), &cables) in &between {
            assert_eq!(cables, if one == other { 6 } else { 1 }, "{one} to {other}");
        }
        assert_eq!(between.len(), 5 + 5 * 4 / 2);
        assert!(NodeId::first(20).all(|node| groups.links(node).len() == 4));
    }

    #[test]
    fn a_de_bruijn_graph_shifts_in_the_digits_that_are_missing() {
        let graph = topology("debruijn(2, 4)");
        // 0110 ends with the 10 that 1011 begins with: 11 is missing.
        assert_eq!(way(&graph, node(0b0110), node(0b1011)), [0b1101, 0b1011]);
        assert_eq!(way(&graph, node(0b0000), node(0b1111)), [0b0001, 0b0011, 0b0111, 0b1111]);
        // No longer than the shortest way over arcs; most nodes have two out and two in.
        for from in NodeId::first(16) {
            let mut far = [usize::MAX; 16];
            far[from.index()] = 0;
            for step in 0..4 {
                for at in (0..16).filter(|&at| far[at] == step).collect::<Vec<_>>() {
                    for to in [at * 2 % 16, at * 2 % 16 + 1] {
                        far[to] = far[to].min(step + 1);
                    }
                }
            }
            for to in NodeId::first(16) {
                assert_eq!(way(&graph, from, to).len(), far[to.index()], "{from} to {to}");
            }
        }
        let links = |number| graph.links(node(number)).len();
        assert_eq!([0, 15, 5, 10, 1, 6].map(links), [2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn both_ends_of_a_cable_know_it() {
        let mesh = topology("mesh(3, 2)");
        assert_eq!(mesh.links_to(node(1), node(2)).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(mesh.links_to(node(2), node(1)).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(mesh.links(node(1))[2].cable, mesh.links(node(2))[2].cable);
        assert_eq!(mesh.neighbours(node(1)), [node(0), node(2)]);
        let star = topology("star(3, 2)");
        assert_eq!(star.links_to(node(0), node(2)).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(star.links_to(node(0), node(0)).count(), 0);
        assert_eq!(star.neighbours(node(1)), [node(0), node(2)]);
    }
}
