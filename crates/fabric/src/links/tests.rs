//! Whole clusters of [`Links`], joined by cables of the test that can be cut, one way or both.

use proptest::prelude::*;

use super::*;
use crate::Keys;

const MS: u64 = 1_000_000;

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

fn keys() -> Keys {
    Keys::new(&[[9; 32]])
}

struct Cluster {
    topology: Arc<Topology>,
    nodes: Vec<Links>,
    dead: Vec<bool>,
    /// From and to.
    cut: Vec<(u16, u16)>,
    now_ns: u64,
    /// All frames that were ever sent: by whom, to whom, by which link there.
    recorded: Vec<(NodeId, NodeId, u16, Vec<u8>)>,
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
            recorded: Vec::new(),
            topology,
        }
    }

    /// Starts a node again, with an incarnation of its own.
    fn start(&mut self, number: u16, incarnation: u64) {
        let topology = Arc::clone(&self.topology);
        self.nodes[usize::from(number)] =
            Links::new(topology, node(number), 1, incarnation, Timing::default());
        self.dead[usize::from(number)] = false;
    }

    /// A node hears a frame.
    fn hear(&mut self, to: NodeId, at: u16, frame: &[u8]) -> Result<(), Refusal> {
        let links = &mut self.nodes[to.index()];
        match Hello::from_frame(frame, &keys()).expect("a frame with the type of hellos") {
            Ok(hello) => links.receive(at, &hello, self.now_ns),
            Err(error) => Err(links.refuse(at, error, self.now_ns)),
        }
    }

    fn events(&mut self, number: u16) -> Vec<String> {
        self.nodes[usize::from(number)].events().iter().map(Event::to_string).collect()
    }

    /// So many rounds of hellos; nodes speak one after the other, 10 ms apart each.
    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.now_ns += 10 * MS;
            let speaks = |from: &NodeId| !self.dead[from.index()];
            for from in NodeId::first(self.nodes.len()).filter(speaks).collect::<Vec<_>>() {
                self.nodes[from.index()].tick(self.now_ns);
                for (number, link) in (0..).zip(self.topology.links(from).to_vec()) {
                    let frame = self.nodes[from.index()].hello(number).frame(&keys());
                    for (to, at) in self.ends(from, link) {
                        self.recorded.push((from, to, at, frame.clone()));
                        if !self.dead[to.index()] && !self.cut.contains(&(from.number(), to.number())) {
                            // Some tests have doubles.
                            let _ = self.hear(to, at, &frame);
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
    for text in [
        "mesh(4)",
        "mesh(3, 2)",
        "star(4)",
        "star(3, 2)",
        "torus(3, 3)",
        "fly(2, 2)",
        "compact(3)",
        "groups(2)",
        "cube(3)",
        "debruijn(2, 3)",
    ] {
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
    cluster.nodes[0].receive(1, &hello, cluster.now_ns).unwrap();
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
    cluster.start(3, 999);
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
        cluster.nodes[1].receive(1, &hellos[0], now_ns).unwrap();
        cluster.nodes[0].receive(1, &hellos[1], now_ns).unwrap();
    }
    assert_eq!(cluster.nodes[0].paths().link_towards(node(1), 0), Some(1));
    assert!(cluster.is_direct(0, 1));
}

#[test]
fn who_drains_relays_nothing_but_is_reached() {
    let mut cluster = Cluster::new("mesh(4)");
    cluster.run(5);
    cluster.nodes[2].drain(true);
    cluster.run(2);
    assert_eq!(cluster.vias(0, 1), [3]);
    assert!(cluster.is_direct(0, 2));
    cluster.nodes[2].drain(false);
    cluster.run(2);
    assert_eq!(cluster.vias(0, 1), [2, 3]);
}

#[test]
fn wrong_wires_and_doubles_are_told_once_and_not_used() {
    let mut cluster = Cluster::new("mesh(3)");
    cluster.run(5);
    cluster.nodes[0].events();
    let mut say = |refusal: Option<Refusal>, change: &dyn Fn(&mut Hello)| {
        for _ in 0..2 {
            let mut hello = cluster.nodes[1].hello(0);
            change(&mut hello);
            let now_ns = cluster.now_ns;
            assert_eq!(cluster.nodes[0].receive(0, &hello, now_ns).err(), refusal);
        }
        cluster.nodes[0].events().iter().map(Event::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        say(Some(Refusal::Cluster), &|hello| hello.cluster = 7),
        "fabric link 0: a node of cluster 7 is there; this is cluster 1"
    );
    assert_eq!(
        say(Some(Refusal::Topology), &|hello| hello.wiring ^= 1),
        "fabric link 0: node 1 has another topology than this node's mesh(3)"
    );
    assert_eq!(
        say(Some(Refusal::Wire), &|hello| (hello.node, hello.link) = (node(2), 0)),
        "fabric link 0: link 0 of node 2 is there; expected link 0 of node 1"
    );
    assert_eq!(
        say(Some(Refusal::Number), &|hello| hello.node = node(0)),
        "fabric link 0: another node with number 0, this node's, is there"
    );
    assert_eq!(
        say(Some(Refusal::Loop), &|hello| (hello.node, hello.incarnation) = (node(0), 100)),
        "fabric link 0: it leads back to this node's link 0"
    );
    assert_eq!(
        say(Some(Refusal::Twice), &|hello| hello.incarnation = 999),
        "fabric link 0: two nodes with number 1 are there, or it has just been started again"
    );
    // One with an older incarnation is refused like any recorded hello.
    assert_eq!(say(Some(Refusal::Replay), &|hello| hello.incarnation = 5), "");
    // Right hellos between wrong ones are not news, until the wrong ones have ended.
    assert_eq!(say(None, &|_| ()), "");
    assert_eq!(say(Some(Refusal::Twice), &|hello| hello.incarnation = 999), "");
    // Nor are other words for the same cause at once.
    assert_eq!(say(Some(Refusal::Wire), &|hello| hello.link = 1), "");
    cluster.run(120);
    assert_eq!(cluster.nodes[0].events(), [Event::Right { link: 0, refused: 16 }]);
    // What nobody rightly said was not believed.
    assert!(cluster.is_direct(0, 1) && cluster.is_direct(0, 2));
}

#[test]
fn foreign_hellos_in_turn_are_reported_once_for_each_cause() {
    let mut cluster = Cluster::new("star(3)");
    cluster.run(5);
    let _ = cluster.events(0);
    let mut lines = Vec::new();
    for number in 0..30_000_u16 {
        cluster.now_ns += MS / 10;
        let mut hello = cluster.nodes[1].hello(0);
        hello.cluster = number % 1000;
        hello.node = node(number % 900);
        hello.incarnation = number.into();
        let frame = hello.frame(&Keys::new(&[[number as u8; 32]]));
        let mut other = frame.clone();
        other[14] = number as u8;
        let _ = (cluster.hear(node(0), 0, &frame), cluster.hear(node(0), 0, &other));
        lines.extend(cluster.events(0).into_iter().filter(|line| !line.contains("is not heard any more")));
    }
    assert!(lines.len() <= 4, "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("another key than this cluster's")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("a node of cluster")), "{lines:#?}");
}

#[test]
fn who_has_no_key_is_nobodys_neighbour() {
    for (key, is_neighbour) in [(keys(), true), (Keys::public(), false)] {
        let mut cluster = Cluster::new("star(3)");
        cluster.dead[2] = true;
        cluster.run(5);
        // A stranger hears what the others say, and does all that the absent node would do.
        let mut stranger = Links::new(Arc::clone(&cluster.topology), node(2), 1, 500, Timing::default());
        for _ in 0..10 {
            cluster.run(1);
            let frames: Vec<Vec<u8>> =
                cluster.recorded.iter().rev().take(4).map(|(.., frame)| frame.clone()).collect();
            for frame in frames {
                let hello = Hello::from_frame(&frame, &keys()).unwrap().unwrap();
                let _ = stranger.receive(0, &hello, cluster.now_ns);
            }
            let frame = stranger.hello(0).frame(&key);
            for to in [0, 1] {
                let refusal = (!is_neighbour).then_some(Refusal::Key);
                assert_eq!(cluster.hear(node(to), 0, &frame).err(), refusal);
            }
        }
        assert!(cluster.is_direct(0, 1));
        assert_eq!(cluster.is_direct(0, 2), is_neighbour);
        assert_eq!(cluster.nodes[0].believed(0).contains(node(2)), is_neighbour);
    }
}

#[test]
fn ones_own_hellos_are_never_believed() {
    for text in ["mesh(3)", "mesh(2, 2)", "star(3)"] {
        let mut cluster = Cluster::new(text);
        cluster.run(5);
        cluster.start(0, 1000);
        cluster.run(5);
        for (from, _, _, frame) in cluster.recorded.clone() {
            let links = cluster.topology.links(from).len() as u16;
            for link in 0..links {
                let heard = cluster.hear(from, link, &frame);
                assert!(matches!(heard, Err(Refusal::Loop | Refusal::Number)), "{text}: {heard:?}");
            }
        }
    }
}

#[test]
fn a_report_with_a_version_that_its_node_never_issued_does_not_stay() {
    for text in ["mesh(4)", "fly(2, 2)"] {
        for ahead in [1, 1 << 40, (1 << 62) + 5, (1 << 63) - 2, u64::MAX] {
            for counter in [0, u32::MAX] {
                let mut cluster = Cluster::new(text);
                cluster.run(12);
                // A broken node says it once, so that nobody would take an intermediate one any more.
                let version = Version { incarnation: ahead.wrapping_add(101), counter };
                let wrong = Report { node: node(1), version, is_draining: true, lost: None };
                let mut hello = cluster.nodes[2].hello(0);
                hello.reports.push(wrong);
                let link = cluster.topology.links(node(2))[0];
                for (to, at) in cluster.ends(node(2), link) {
                    cluster.nodes[to.index()].receive(at, &hello, cluster.now_ns).unwrap();
                }
                cluster.run(12);
                for (here, links) in NodeId::first(cluster.nodes.len()).zip(&cluster.nodes) {
                    let whole = Paths::new(Arc::clone(&cluster.topology), here);
                    for output in NodeId::first(cluster.nodes.len()) {
                        assert!(
                            links.paths().vias(output).eq(whole.vias(output)),
                            "{text}: {here} to {output}, {ahead} ahead"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_node_whose_clock_was_put_back_comes_back() {
    for text in ["mesh(3)", "star(3)", "fly(2, 2)"] {
        let mut cluster = Cluster::new(text);
        cluster.run(12);
        cluster.dead[0] = true;
        cluster.run(10);
        cluster.start(0, 7);
        cluster.run(20);
        for from in 1..3 {
            let whole = Paths::new(Arc::clone(&cluster.topology), node(from));
            assert_eq!(cluster.is_direct(from, 0), whole.is_direct(node(0)), "{text}: {from}");
            assert!(cluster.nodes[usize::from(from)].paths().vias(node(0)).eq(whole.vias(node(0))), "{text}");
        }
    }
}

#[test]
fn recorded_hellos_of_its_own_do_not_keep_out_a_node_whose_clock_was_put_back() {
    let mut cluster = Cluster::new("star(3)");
    cluster.run(12);
    cluster.dead[0] = true;
    cluster.run(10);
    let own: Vec<_> = cluster.recorded.iter().filter(|(from, ..)| *from == node(0)).cloned().collect();
    cluster.start(0, 7);
    for (_, _, _, frame) in own.iter().cycle().take(40) {
        let _ = cluster.hear(node(0), 0, frame);
        cluster.run(1);
        let _ = cluster.hear(node(0), 0, frame);
    }
    assert!(cluster.is_direct(1, 0) && cluster.is_direct(2, 0) && cluster.is_direct(0, 1));
}

#[test]
fn two_nodes_with_one_number_echo_each_other_and_leave_their_incarnations_alone() {
    let mut cluster = Cluster::new("star(3)");
    cluster.run(5);
    let (topology, timing) = (Arc::clone(&cluster.topology), Timing::default());
    let mut double = Links::new(topology, node(0), 1, 50, timing);
    let mut incarnations = std::collections::BTreeSet::new();
    for _ in 0..200 {
        cluster.run(1);
        double.tick(cluster.now_ns);
        let hellos: Vec<Hello> = cluster.nodes.iter_mut().map(|links| links.hello(0)).collect();
        for hello in &hellos {
            let _ = double.receive(0, hello, cluster.now_ns);
        }
        let hello = double.hello(0);
        incarnations.insert(hello.incarnation);
        for links in &mut cluster.nodes {
            let _ = links.receive(0, &hello, cluster.now_ns);
        }
    }
    assert!(incarnations.len() <= 3, "{incarnations:?}");
    assert!(cluster.is_direct(1, 0) && cluster.is_direct(0, 1));
}

#[test]
fn frames_are_believed_of_confirmed_neighbours_only() {
    let mut cluster = Cluster::new("star(3)");
    cluster.dead[2] = true;
    let believed = |cluster: &Cluster| cluster.nodes[0].believed(0).iter().collect::<Vec<_>>();
    assert_eq!(believed(&cluster), []);
    cluster.run(5);
    assert_eq!(believed(&cluster), [node(1)]);
    // It is silent for a moment: its link is down, but what it sent meanwhile is not lost.
    cluster.cut.push((1, 0));
    cluster.run(5);
    assert!(!cluster.is_direct(0, 1));
    assert_eq!(believed(&cluster), [node(1)]);
    cluster.run(40);
    assert_eq!(believed(&cluster), []);
    assert!(cluster.nodes[0].changed_paths().is_some(), "whoever asks learns of it");
    cluster.cut.clear();
    cluster.run(1);
    assert_eq!(believed(&cluster), [node(1)]);
    // Another incarnation has to be confirmed first.
    cluster.dead[1] = true;
    cluster.run(5);
    cluster.start(1, 500);
    cluster.cut.push((0, 1));
    cluster.run(3);
    assert_eq!(believed(&cluster), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn recorded_hellos_bring_no_link_up_and_change_no_report(
        shape in prop::sample::select(vec!["mesh(3)", "star(3)", "mesh(2, 2)"]),
        starts in prop::collection::vec((0..2u16, 1..60u64), 1..5),
        replays in prop::collection::vec((any::<prop::sample::Index>(), 1..40_u64), 1..200),
    ) {
        let mut cluster = Cluster::new(shape);
        cluster.run(6);
        // Nodes rest, die and start again, also with clocks that were put back.
        for (number, incarnation) in starts {
            cluster.nodes[usize::from(number)].drain(true);
            cluster.run(3);
            cluster.dead[usize::from(number)] = true;
            cluster.run(5);
            cluster.start(number, 80 + incarnation);
            cluster.run(6);
        }
        // Then all are down, and two start again; whatever was said before is said again, in any order, to whom it was said to.
        let recorded = std::mem::take(&mut cluster.recorded);
        cluster.start(0, 10_000);
        cluster.start(1, 10_001);
        let before: Vec<_> = cluster.nodes[..2].iter().map(|links| links.reports.clone()).collect();
        for (index, passed_ms) in replays {
            cluster.now_ns += passed_ms * MS;
            let (_, to, at, frame) = &recorded[index.index(recorded.len())];
            let _ = cluster.hear(*to, *at, frame);
            for links in &mut cluster.nodes[..2] {
                links.tick(cluster.now_ns);
                // They are deaf to each other, but what they say is heard.
                (0..links.problems.len() as u16).for_each(|link| drop(links.hello(link)));
                prop_assert!(links.neighbours().all(|(.., is_up)| !is_up));
                prop_assert!((0..links.problems.len() as u16).all(|link| links.believed(link).is_empty()));
                prop_assert!(links.peers.iter().all(|peer| !peer.is_confirmed));
            }
        }
        let after: Vec<_> = cluster.nodes[..2].iter().map(|links| links.reports.clone()).collect();
        prop_assert_eq!(after, before);
        // Once they hear each other, they believe each other whatever was said before.
        cluster.dead.fill(true);
        cluster.dead[..2].fill(false);
        cluster.run(8);
        prop_assert!(cluster.is_direct(0, 1) && cluster.is_direct(1, 0));
    }

    #[test]
    fn recorded_hellos_of_nodes_that_run_change_nothing(
        shape in prop::sample::select(vec!["mesh(3)", "star(3)"]),
        replays in prop::collection::vec(any::<prop::sample::Index>(), 1..100),
    ) {
        let mut cluster = Cluster::new(shape);
        cluster.run(6);
        cluster.nodes[1].drain(true);
        cluster.run(6);
        cluster.nodes[1].drain(false);
        cluster.run(6);
        let whole = |cluster: &Cluster| cluster.nodes.iter().map(|links| links.reports.clone()).collect::<Vec<_>>();
        let before = whole(&cluster);
        for index in replays {
            let (_, to, at, frame) = cluster.recorded[index.index(cluster.recorded.len())].clone();
            prop_assert_eq!(cluster.hear(to, at, &frame), Err(Refusal::Replay));
        }
        prop_assert_eq!(whole(&cluster), before);
        cluster.nodes.iter_mut().for_each(|links| drop(links.events()));
        cluster.run(3);
        prop_assert!(cluster.nodes.iter_mut().all(|links| links.events().is_empty()));
    }
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
