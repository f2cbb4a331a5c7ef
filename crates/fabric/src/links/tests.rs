//! Whole clusters of [`Links`], joined by cables of the test that can be cut, one way or both.

use super::*;

const MS: u64 = 1_000_000;

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

struct Cluster {
    topology: Arc<Topology>,
    nodes: Vec<Links>,
    dead: Vec<bool>,
    /// From and to.
    cut: Vec<(u16, u16)>,
    now_ns: u64,
}

impl Cluster {
    fn new(text: &str) -> Cluster {
        let topology = Arc::new(Topology::new(text.parse().unwrap()));
        let links = |here: NodeId| {
            Links::new(Arc::clone(&topology), here, 1, u64::from(here.number()) + 100, Timing::default())
        };
        Cluster {
            nodes: NodeId::first(topology.nodes()).map(links).collect(),
            dead: vec![false; topology.nodes()],
            cut: Vec::new(),
            now_ns: 0,
            topology,
        }
    }

    /// So many rounds of hellos; nodes speak one after the other, 10 ms apart each.
    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.now_ns += 10 * MS;
            for from in NodeId::first(self.nodes.len()).filter(|from| !self.dead[from.index()]) {
                self.nodes[from.index()].tick(self.now_ns);
                for (number, link) in (0..).zip(self.topology.links(from).to_vec()) {
                    let hello = self.nodes[from.index()].hello(number);
                    let hello = Hello::parse(&hello.write()).unwrap();
                    for (to, at) in self.ends(from, link) {
                        if !self.dead[to.index()] && !self.cut.contains(&(from.number(), to.number())) {
                            self.nodes[to.index()].receive(at, &hello, self.now_ns);
                        }
                    }
                }
            }
        }
    }

    /// Who hears what is said on a link, and as which of its links.
    fn ends(&self, from: NodeId, link: crate::topology::Link) -> Vec<(NodeId, u16)> {
        let others = NodeId::first(self.nodes.len()).filter(|&to| to != from);
        let same = |to: NodeId| {
            (0..).zip(self.topology.links(to)).find(|(_, other)| match link.far {
                Far::Node(_) => other.cable == link.cable,
                Far::Switch(_) => other.far == link.far,
            })
        };
        others.filter_map(|to| same(to).map(|(number, _)| (to, number))).collect()
    }

    fn vias(&self, from: u16, to: u16) -> Vec<u16> {
        self.nodes[usize::from(from)].paths().vias(node(to)).map(NodeId::number).collect()
    }

    fn is_direct(&self, from: u16, to: u16) -> bool {
        self.nodes[usize::from(from)].paths().is_direct(node(to))
    }
}

#[test]
fn three_rounds_bring_everything_up() {
    for text in ["mesh(4)", "mesh(3, 2)", "star(4)", "star(3, 2)", "torus(3, 3)", "fly(2, 2)"] {
        let mut cluster = Cluster::new(text);
        cluster.run(4 + cluster.topology.nodes() / 3);
        for (here, links) in NodeId::first(cluster.nodes.len()).zip(&cluster.nodes) {
            let whole = Paths::new(Arc::clone(&cluster.topology), here);
            let paths = links.paths();
            for output in NodeId::first(cluster.nodes.len()) {
                assert_eq!(paths.is_direct(output), whole.is_direct(output), "{text}: {here} to {output}");
                assert!(paths.vias(output).eq(whole.vias(output)), "{text}: {here} to {output}");
            }
        }
    }
}

#[test]
fn who_wakes_up_late_does_not_take_others_for_dead() {
    let mut cluster = Cluster::new("mesh(4)");
    cluster.run(5);
    cluster.nodes.iter_mut().for_each(|links| drop(links.events()));
    // All of them wait for their CPUs, as nodes in a virtual machine do that does not run.
    for _ in 0..3 {
        cluster.now_ns += 500 * MS;
        cluster.run(1);
    }
    // Only node 0 does, and reads first what has come by one of its links.
    cluster.dead[0] = true;
    cluster.run(2);
    cluster.dead[0] = false;
    let hello = cluster.nodes[2].hello(0);
    cluster.now_ns += 10 * MS;
    cluster.nodes[0].receive(1, &hello, cluster.now_ns);
    cluster.run(2);
    for links in &mut cluster.nodes {
        assert_eq!(links.events(), []);
    }
    // A node that died meanwhile is found as soon as ever.
    cluster.dead[3] = true;
    cluster.now_ns += 500 * MS;
    cluster.run(4);
    assert!((0..3).all(|from| !cluster.is_direct(from, 3)));
}

#[test]
fn a_dead_node_is_left_out_by_all_after_three_hellos() {
    let mut cluster = Cluster::new("mesh(4)");
    cluster.run(5);
    cluster.nodes.iter_mut().for_each(|links| drop(links.events()));
    cluster.dead[3] = true;
    cluster.run(4);
    for from in 0..3 {
        assert!(!cluster.is_direct(from, 3), "node {from}");
        assert!(cluster.vias(from, 3).is_empty(), "node {from}: {:?}", cluster.vias(from, 3));
    }
    assert_eq!(cluster.vias(0, 1), [2]);
    let down = Event::LinkDown { link: 2, node: node(3), one_way: false };
    assert_eq!(cluster.nodes[0].events(), [down]);
    // It comes back, with its counts begun anew.
    cluster.dead[3] = false;
    cluster.nodes[3] = Links::new(Arc::clone(&cluster.topology), node(3), 1, 999, Timing::default());
    cluster.run(4);
    assert!(cluster.is_direct(0, 3));
    assert_eq!(cluster.vias(0, 1), [2, 3]);
}

#[test]
fn a_link_cut_one_way_is_down_for_both_and_known_to_all() {
    let mut cluster = Cluster::new("mesh(4)");
    cluster.run(5);
    cluster.cut.push((1, 2));
    cluster.run(5);
    assert!(!cluster.is_direct(1, 2) && !cluster.is_direct(2, 1));
    assert_eq!(cluster.vias(0, 2), [3], "not over node 1");
    assert_eq!(cluster.vias(1, 2), [0, 3]);
    let one_way =
        |event: &Event| matches!(event, Event::LinkDown { node, one_way: true, .. } if *node == node2());
    assert!(cluster.nodes[1].events().iter().any(one_way));
    cluster.cut.clear();
    cluster.run(5);
    assert!(cluster.is_direct(1, 2));
    assert_eq!(cluster.vias(0, 2), [1, 3]);
}

fn node2() -> NodeId {
    node(2)
}

#[test]
fn one_of_two_parallel_links_is_enough() {
    let mut cluster = Cluster::new("mesh(2, 2)");
    cluster.run(5);
    // Nothing more comes by link 0.
    for _ in 0..5 {
        cluster.now_ns += 10 * MS;
        let hellos = [cluster.nodes[0].hello(1), cluster.nodes[1].hello(1)];
        let now_ns = cluster.now_ns;
        cluster.nodes[1].receive(1, &hellos[0], now_ns);
        cluster.nodes[0].receive(1, &hellos[1], now_ns);
    }
    assert_eq!(cluster.nodes[0].paths().link_towards(node(1), 0), Some(1));
    assert!(cluster.is_direct(0, 1));
}

#[test]
fn who_rests_relays_nothing_but_is_reached() {
    let mut cluster = Cluster::new("mesh(4)");
    cluster.run(5);
    cluster.nodes[2].rest(true);
    cluster.run(2);
    assert_eq!(cluster.vias(0, 1), [3]);
    assert!(cluster.is_direct(0, 2));
    cluster.nodes[2].rest(false);
    cluster.run(2);
    assert_eq!(cluster.vias(0, 1), [2, 3]);
}

#[test]
fn wrong_wires_and_doubles_are_told_once_and_not_used() {
    let mut cluster = Cluster::new("mesh(3)");
    cluster.run(5);
    cluster.nodes[0].events();
    let mut say = |change: &dyn Fn(&mut Hello)| {
        let mut hello = cluster.nodes[1].hello(0);
        change(&mut hello);
        let now_ns = cluster.now_ns;
        cluster.nodes[0].receive(0, &hello, now_ns);
        cluster.nodes[0].receive(0, &hello, now_ns);
        cluster.nodes[0].events().iter().map(Event::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        say(&|hello| hello.cluster = 7),
        "fabric link 0: a node of cluster 7 is there; this is cluster 1"
    );
    assert_eq!(
        say(&|hello| hello.wiring ^= 1),
        "fabric link 0: node 1 has another topology than this node's mesh(3)"
    );
    assert_eq!(
        say(&|hello| (hello.node, hello.link) = (node(2), 0)),
        "fabric link 0: link 0 of node 2 is there; it should be link 0 of node 1"
    );
    assert_eq!(
        say(&|hello| hello.link = 1),
        "fabric link 0: link 1 of node 1 is there; it should be link 0 of node 1"
    );
    assert_eq!(
        say(&|hello| hello.node = node(0)),
        "fabric link 0: another node with number 0, this node's, is there"
    );
    assert_eq!(
        say(&|hello| (hello.node, hello.incarnation) = (node(0), 100)),
        "fabric link 0: it leads back to this node's link 0"
    );
    assert_eq!(
        say(&|hello| hello.incarnation = 5),
        "fabric link 0: two nodes with number 1 are there, or it has just been started again"
    );
    // Right hellos between wrong ones are no news, until the wrong ones have ended.
    assert_eq!(say(&|_| ()), "");
    assert_eq!(say(&|hello| hello.incarnation = 5), "");
    cluster.run(120);
    assert_eq!(cluster.nodes[0].events(), [Event::Right { link: 0 }]);
    // What nobody rightly said was not believed.
    assert!(cluster.is_direct(0, 1) && cluster.is_direct(0, 2));
}

#[test]
fn in_a_fly_a_dead_relay_is_known_to_the_terminals() {
    let mut cluster = Cluster::new("fly(2, 3)");
    cluster.run(12);
    assert!(cluster.is_direct(5, 2));
    cluster.dead[13] = true;
    cluster.run(12);
    assert!(!cluster.is_direct(5, 2) && !cluster.vias(5, 2).is_empty());
    assert_eq!(cluster.nodes[5].paths().vias(node(2)).collect::<Vec<_>>(), {
        let dead = |a: NodeId, b: NodeId| a.number() != 13 && b.number() != 13;
        Paths::with(Arc::clone(&cluster.topology), node(5), |_| true, dead).vias(node(2)).collect::<Vec<_>>()
    });
}
