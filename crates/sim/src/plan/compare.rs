//! The seven interconnects of Argyraki and others, "Can Software Routers Scale?" (PRESTO 2008), table 1: what the paper publishes,
//! what the ways through the wired topologies carry, and what a simulation shows.
//!
//! All carry Valiant load balancing for ports of rate R: two phases, each spread evenly over all nodes with ports. Each network is the
//! smallest of its kind that has at least as many ports as are wanted, and all its nodes have one. The paper's formulas:
//!
//! | network | here | nodes | links of a node | load of a link, in R | work of a node, in R |
//! | --- | --- | --- | --- | --- | --- |
//! | mesh | `mesh(N)` | N | N | 2/N | 2 |
//! | compact(2) | `compact(k)` | N = k² | 2(k - 1) | 4/(2k - 1) | 4 |
//! | compact(3) | `groups(k)` | N = k(k + 1) | k | 6/k | 6 |
//! | embedded butterfly | `cube(n)` | N = 2^n | n | 1 | 2n |
//! | d-torus | `torus(s, ...)` | N = s^d | 2d | s/4 | ds/2 |
//! | de Bruijn | `debruijn(2, n)` | N = 2^n | 2 | n | 2n |
//! | butterfly | a graph, in this file only | 2nN, N = 2^n | 2 | 1/2 | 1 |
//!
//! # What is derived
//!
//! The way of every pair of nodes is followed by [`Topology::next`], in both phases, and what it carries is added up: nothing of the formulas
//! enters. A node's *links* are those that it sends on: of a de Bruijn graph's cables half lead to it only. A *link's* load is that of the
//! busiest; the mean over all is given as well.
//!
//! The *work* of a node is counted as the paper's column comes out: every stage of a phase handles every packet, and a stage that leaves a packet
//! where it is counts too; the way out by a port does not. A network has as many stages as its longest way has links. Tori and de Bruijn graphs
//! have none, as ways end where they reach their node: there each link on the way counts. What a node *sends* on links is less where packets stay,
//! and that is what a simulation can be compared with.
//!
//! # Where the paper's figures are not those of its networks
//!
//! * A node of a mesh has N - 1 links: the paper counts one to itself.
//! * The links of compact(2) carry 2/k each; the paper divides the work 4R by 2k - 1, all links and one that a node would have to itself.
//! * The one link between two groups of compact(3) carries 2k/(k + 1), whatever the ways: all that leaves a group in a phase goes over k links. The
//!   paper's 6/k is the work divided by k links, as if all carried the same.
//! * The mean way round a torus of odd sides is (s - 1/s)/4, not s/4. Where a side is even and 4 does not divide it, ways to opposite nodes cannot be
//!   split evenly, and the busiest link carries 1/s more.
//! * In a de Bruijn graph most ways are shorter than n, and not all links carry the same. They do, and as much as the paper says, if each packet
//!   takes n links, some of which lead back to the node itself.
//!
//! The butterfly of the paper is not a topology of a cluster: each of its nodes is one switch of one stage, of which only the first and the last have
//! ports. `fly(2, n)` has nN/2 relays of two wires each instead.

use std::collections::HashMap;

use fabric::{Mode, NodeId, Shape, Topology};

use crate::{Flows, Matrix, Scenario, Sizes, simulate};

/// The size of a network, and what Valiant load balancing asks of its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// All nodes.
    pub nodes: u32,
    /// Links that a node sends on.
    pub links: u32,
    /// The load of a link each way, in R: the busiest.
    pub link: f64,
    /// The work of a node, in R, by the paper's count: the busiest.
    pub node: f64,
}

/// One way to join nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// What the paper calls it.
    pub name: &'static str,
    /// Nodes with a port of rate R each.
    pub ports: u32,
    /// The topology of a cluster that is wired so. None: a butterfly, or a cluster has not that many nodes.
    pub shape: Option<Shape>,
    /// What the paper's formulas say of this size.
    pub published: Figures,
}

/// What the ways through a network carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Derived {
    /// To be held against the published ones.
    pub figures: Figures,
    /// The mean load of a link, in R.
    pub mean_link: f64,
    /// What the busiest node sends on its links, in R.
    pub sends: f64,
}

/// What a simulation shows, when all traffic of each node goes to one other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulated {
    /// The load of the busiest link, in R.
    pub link: f64,
    /// What the busiest node sends on its links, in R.
    pub sends: f64,
}

/// The paper's networks, in its order, with at least so many ports. Tori are those of two and of three dimensions.
pub fn networks(ports: u32) -> Vec<Network> {
    let least = |from: u32, size: &dyn Fn(u64) -> u64| {
        (from..).find(|&k| size(k.into()) >= u64::from(ports)).unwrap_or(from)
    };
    let network = |name, shape: Option<String>, ports: u32, links: u32, link: f64, node: f64| {
        let shape = shape.and_then(|text| text.parse().ok());
        Network { name, ports, shape, published: Figures { nodes: ports, links, link, node } }
    };
    let mesh = {
        let n = ports.max(2);
        network("mesh", Some(format!("mesh({n})")), n, n, 2.0 / f64::from(n), 2.0)
    };
    let compact_2 = {
        let k = least(2, &|k| k * k);
        let link = 4.0 / f64::from(2 * k - 1);
        network("compact(2)", Some(format!("compact({k})")), k * k, 2 * (k - 1), link, 4.0)
    };
    let compact_3 = {
        let k = least(2, &|k| k * (k + 1));
        network("compact(3)", Some(format!("groups({k})")), k * (k + 1), k, 6.0 / f64::from(k), 6.0)
    };
    let n = least(1, &|n| 1 << n);
    let of_n = f64::from(n);
    let embedded = network("embedded butterfly", Some(format!("cube({n})")), 1 << n, n, 1.0, 2.0 * of_n);
    let torus = |name, d: u32| {
        let side = least(3, &|side| side.pow(d));
        let text = format!("torus({})", vec![side.to_string(); d as usize].join(", "));
        let of_side = f64::from(side);
        let node = f64::from(d) * of_side / 2.0;
        network(name, Some(text), side.pow(d), 2 * d, of_side / 4.0, node)
    };
    let de_bruijn = network("de Bruijn", Some(format!("debruijn(2, {n})")), 1 << n, 2, of_n, 2.0 * of_n);
    let mut butterfly = network(BUTTERFLY, None, 1 << n, 2, 0.5, 1.0);
    butterfly.published.nodes = 2 * n * (1 << n);
    vec![mesh, compact_2, compact_3, embedded, torus("2-torus", 2), torus("3-torus", 3), de_bruijn, butterfly]
}

/// The network that no cluster has.
const BUTTERFLY: &str = "butterfly";

/// R in the simulation, in bytes a second; results are in R.
const RATE: u64 = 1_250_000_000;
/// More nodes than this take too long to wait for.
const MOST_SIMULATED: usize = 128;

impl Network {
    /// What the ways of all pairs of nodes carry. None where a cluster has not that many nodes.
    pub fn derived(&self) -> Option<Derived> {
        let ports = self.ports as usize;
        let mut load = Load::default();
        match &self.shape {
            Some(shape) => {
                let topology = Topology::new(shape.clone());
                for (from, to) in pairs(ports) {
                    // One phase like the other.
                    let (from, to) = (NodeId::new(from)?, NodeId::new(to)?);
                    let way = std::iter::successors(Some(from), |&at| topology.next(at, to));
                    load.carry(&way.map(NodeId::index).collect::<Vec<_>>(), 2);
                }
            }
            // Only the butterfly is not a shape of any size.
            None if self.name == BUTTERFLY && ports <= NodeId::COUNT => {
                for (from, to) in pairs(ports) {
                    for phase in 0..2 {
                        load.carry(&butterfly(ports, phase, from.into(), to.into()), 1);
                    }
                }
            }
            None => return None,
        }
        let has_stages = !matches!(self.shape, Some(Shape::Torus { .. } | Shape::DeBruijn { .. }));
        Some(load.derived(ports, has_stages))
    }

    /// The busiest link and the busiest node of a simulation in which all nodes send all they can to one other, drawn at random, and
    /// each packet takes both phases. The intermediate node is never an end of the way, as in a cluster, so N - 2 nodes share what derived
    /// figures spread over N. None where there is no such topology, or it is too large.
    pub fn simulated(&self) -> Option<Simulated> {
        let shape = self.shape.clone()?;
        if shape.nodes() > MOST_SIMULATED {
            return None;
        }
        let scenario = Scenario {
            mode: Mode::ClassicVlb,
            matrix: Matrix::Permutation,
            // Each packet for itself, so that few flows are spread as evenly as many.
            delta_ns: 0,
            flows: Flows::Poisson { per_pair: 8, sizes: Sizes::Fixed(1000) },
            // More than a link of any of them carries.
            link_rate: RATE * 16,
            warm_ns: 2_000_000,
            end_ns: 12_000_000,
            ..Scenario::new(shape, RATE)
        };
        scenario.check().ok()?;
        let report = simulate(&scenario, |_| ());
        let rate = RATE as f64;
        // All that a node handles it sends on, but for what leaves by its port.
        let sent =
            report.processing.iter().zip(&report.outputs).map(|(work, out)| work - out.delivered / rate);
        let link = report.links.max * scenario.link_rate as f64 / rate;
        Some(Simulated { link, sends: sent.fold(0.0, f64::max) })
    }
}

fn pairs(ports: usize) -> impl Iterator<Item = (u16, u16)> {
    let ports = ports as u16;
    (0..ports).flat_map(move |from| (0..ports).map(move |to| (from, to)))
}

/// The nodes from the row `from` to the row `to` in a phase of the paper's butterfly: a column of nodes for each bit and phase, and behind the
/// last the first. Each node leads straight on and to the row that differs in the column's bit.
fn butterfly(rows: usize, phase: usize, from: usize, to: usize) -> Vec<usize> {
    let bits = rows.trailing_zeros() as usize;
    (0..=bits)
        .map(|stage| {
            let column = (phase * bits + stage) % (2 * bits);
            let done = (1 << stage) - 1;
            column * rows + (from & !done | to & done)
        })
        .collect()
}

/// What ways carry, counted in ways.
#[derive(Default)]
struct Load {
    links: HashMap<(usize, usize), u32>,
    nodes: HashMap<usize, OfNode>,
    /// Links of the longest way.
    longest: u32,
}

#[derive(Clone, Copy, Default)]
struct OfNode {
    /// Links that it sends on.
    links: u32,
    /// How often it sends a packet on a link.
    sent: u32,
    /// Ways that end here, and their links.
    ended: u32,
    links_of_ended: u32,
}

impl Load {
    /// Adds a way, first and last node included, so many times.
    fn carry(&mut self, way: &[usize], times: u32) {
        for pair in way.windows(2) {
            let link = self.links.entry((pair[0], pair[1])).or_default();
            let node = self.nodes.entry(pair[0]).or_default();
            node.links += u32::from(*link == 0);
            node.sent += times;
            *link += times;
        }
        let links = way.len() as u32 - 1;
        if let Some(&last) = way.last() {
            let node = self.nodes.entry(last).or_default();
            node.ended += times;
            node.links_of_ended += times * links;
        }
        self.longest = self.longest.max(links);
    }

    /// Each way carries R by the number of ports.
    fn derived(&self, ports: usize, has_stages: bool) -> Derived {
        let of_r = |ways: u32| f64::from(ways) / ports as f64;
        let most = |of: &dyn Fn(&OfNode) -> u32| self.nodes.values().map(of).max().unwrap_or(0);
        let sends = most(&|node| node.sent);
        // Stages that a way does not need leave its packets at its end.
        let stayed = |node: &OfNode| self.longest * node.ended - node.links_of_ended;
        let work = if has_stages { most(&|node| node.sent + stayed(node)) } else { sends };
        let all: u64 = self.links.values().copied().map(u64::from).sum();
        Derived {
            figures: Figures {
                nodes: self.nodes.len() as u32,
                links: most(&|node| node.links),
                link: of_r(self.links.values().copied().max().unwrap_or(0)),
                node: of_r(work),
            },
            mean_link: all as f64 / ports as f64 / self.links.len() as f64,
            sends: of_r(sends),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_same(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn nodes_links_and_work_are_the_papers_in_all_networks_of_stages() {
        for ports in [16, 64, 256] {
            for network in networks(ports) {
                let (ours, published) = (network.derived().unwrap().figures, network.published);
                // A node needs no link to itself.
                let links = if network.name == "mesh" { published.links - 1 } else { published.links };
                assert_eq!((ours.nodes, ours.links), (published.nodes, links), "{network:?}");
                let off = ours.node / published.node - 1.0;
                match &network.shape {
                    // Odd sides: the mean way is (s - 1/s) / 4.
                    Some(Shape::Torus { sides }) if !sides[0].is_multiple_of(2) => {
                        assert!(is_same(off, -1.0 / f64::from(sides[0]).powi(2)), "{network:?}: {ours:?}");
                    }
                    // Most ways are shorter than n, but not all nodes are on as many.
                    Some(Shape::DeBruijn { .. }) => assert!((-0.15..0.15).contains(&off), "{ours:?}"),
                    _ => assert!(is_same(off, 0.0), "{network:?}: {ours:?}"),
                }
            }
        }
    }

    #[test]
    fn links_carry_what_the_paper_says_but_where_it_divides_work_by_links() {
        for ports in [16, 64, 256] {
            for network in networks(ports) {
                let derived = network.derived().unwrap();
                let (link, published) = (derived.figures.link, network.published.link);
                let right = match &network.shape {
                    Some(Shape::Compact { side }) => 2.0 / f64::from(*side),
                    // A group's k nodes send R each, of which k/(k + 1) leaves it over k links, in both phases.
                    Some(Shape::Groups { size }) => 2.0 * f64::from(*size) / f64::from(size + 1),
                    Some(Shape::Torus { sides }) if !sides[0].is_multiple_of(2) => {
                        published * (1.0 - 1.0 / f64::from(sides[0]).powi(2))
                    }
                    Some(Shape::DeBruijn { .. }) => {
                        assert!(derived.mean_link < published && (link / published - 1.0).abs() < 0.15);
                        link
                    }
                    _ => published,
                };
                assert!(is_same(link, right), "{network:?}: {derived:?}");
                assert!(derived.mean_link <= published + 1e-9, "{network:?}: {derived:?}");
            }
        }
    }

    #[test]
    fn a_de_bruijn_graph_carries_what_the_paper_says_if_every_way_has_all_its_shifts() {
        for bits in [4, 6] {
            let nodes = 1_usize << bits;
            let mut load = Load::default();
            for (from, to) in pairs(nodes) {
                let (from, to) = (usize::from(from), usize::from(to));
                let way: Vec<usize> =
                    (0..=bits).map(|shift| (from << shift | to >> (bits - shift)) % nodes).collect();
                load.carry(&way, 2);
            }
            let Figures { links, link, node, .. } = load.derived(nodes, true).figures;
            assert_eq!((links, link, node), (2, bits as f64, 2.0 * bits as f64));
        }
    }

    #[test]
    fn what_the_ways_carry_is_what_a_simulation_shows() {
        let mut simulated = 0;
        for network in networks(16) {
            let Some(shown) = network.simulated() else { continue };
            simulated += 1;
            let derived = network.derived().unwrap();
            // A way's ends are never its intermediate node, so 14 of 16 nodes share what is derived for 16; and the busiest of many links
            // counts, in packets that come at random (the last digits of which differ between processors).
            let (link, sends) = (shown.link / derived.figures.link, shown.sends / derived.sends);
            assert!(
                (0.98..1.25).contains(&link) && (0.98..1.1).contains(&sends),
                "{network:?}: {link} {sends}"
            );
        }
        assert_eq!(simulated, 7);
    }

    #[test]
    fn networks_have_as_many_ports_as_are_wanted_or_the_next_size() {
        let sizes = |ports| networks(ports).iter().map(|network| network.ports).collect::<Vec<_>>();
        assert_eq!(sizes(16), [16, 16, 20, 16, 16, 27, 16, 16]);
        assert_eq!(sizes(1), [2, 4, 6, 2, 9, 27, 2, 2]);
        // No cluster is that large, but the formulas hold.
        for network in networks(1 << 20) {
            assert!(network.ports >= 1 << 20 && network.derived().is_none(), "{network:?}");
        }
    }
}
