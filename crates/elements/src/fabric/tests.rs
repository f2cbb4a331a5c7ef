//! Clusters in memory: a graph for each node, and cables of the test between them that can be cut.

mod classes;

use std::collections::BTreeSet;
use std::sync::Arc;

use fabric::{Far, Header, Hello, Keys, Kind, Label, Mode, NodeId, Shim, Topology};
use fib::Adjacency;
use fib::publish::pair;
use graph::graph::{Graph, GraphOptions};
use graph::lang::{Options, Source, compile};
use graph::router::Control;
use graph::setup::{CopyId, Shared};
use graph::testing::Bench;
use packet::Batch;
use packet::random::SplitMix64;
use ports::{KernelRelay, RelayLink, XdpMode};

use super::{FabricAdjacencies, FabricKeys, FabricRelay, fabric_share};
use crate::registry;

const MS: u64 = 1_000_000;
const CLUSTER: u16 = 7;
/// Of the adjacency that every node has under label 5.
const REWRITE: [u8; 14] = [2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 1, 0, 8, 0];
const TAGGED: [u8; 18] = [2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 1, 0, 0x81, 0, 0, 9, 8, 0];

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

/// An IPv4 packet of a flow.
fn packet(flow: u16) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes[0] = 0x45;
    bytes[8..10].copy_from_slice(&[63, 17]);
    bytes[16..20].copy_from_slice(&[10, 2, 0, 1]);
    bytes[20..22].copy_from_slice(&flow.to_be_bytes());
    bytes
}

/// What the control plane gives to the elements of every node.
pub(super) fn shared() -> Shared {
    let shared = Shared::default();
    let mut known = vec![None; 10];
    known[5] = Some(Adjacency::new(0, &REWRITE).unwrap());
    known[6] = Some(Adjacency::new(1, &TAGGED).unwrap());
    known[7] = Some(Adjacency::new(2, &REWRITE).unwrap());
    let (_, readers) = pair(known.clone(), known);
    let adjacencies = FabricAdjacencies { ports: vec!["eth1".into(), "eth2".into()], readers };
    shared.get_or_make(FabricAdjacencies::KEY, || Ok::<_, String>(adjacencies)).unwrap();
    shared.get_or_make(FabricKeys::KEY, || Ok::<_, String>(FabricKeys::new(&[OLD]))).unwrap();
    shared
}

/// Keys of clusters.
const OLD: [u8; 32] = [1; 32];
const NEW: [u8; 32] = [2; 32];

struct Cluster {
    topology: Topology,
    nodes: Vec<Bench>,
    /// By node.
    keys: Vec<Arc<FabricKeys>>,
    dead: Vec<bool>,
    /// Links that carry nothing: from and to.
    cut: Vec<(u16, u16)>,
}

impl Cluster {
    fn new(shape: &str, keywords: &str) -> Cluster {
        let topology = Topology::new(shape.parse().unwrap());
        let bench = |here: NodeId| {
            let config = config(&topology, here, keywords);
            let shared = shared();
            let bench = Bench::try_new(&registry(), &config, 32, &shared).unwrap();
            (bench, shared.get(FabricKeys::KEY).unwrap())
        };
        let (nodes, keys): (Vec<Bench>, _) = NodeId::first(topology.nodes()).map(bench).unzip();
        Cluster { dead: vec![false; nodes.len()], nodes, keys, cut: Vec::new(), topology }
    }

    /// The header that an input node's lookup writes.
    fn header(&self, kind: Kind, from: u16, to: u16, label: u32) -> Vec<u8> {
        let header = Header::new(kind, node(to), Label::new(label).unwrap(), node(from), CLUSTER);
        let Header { output, label, input, hops, cluster, .. } = header;
        match self.topology.links(node(0))[0].far {
            Far::Node(_) => [&header.bytes()[..], &[8, 0]].concat(),
            Far::Switch(_) => {
                let shim = Shim { next: output, sender: input, kind, output, label, input, hops, cluster };
                shim.bytes(self.nodes.len()).unwrap().to_vec()
            }
        }
    }

    fn enter(&mut self, from: u16, to: u16, packet: &[u8]) {
        let frame = [&self.header(Kind::Routed, from, to, 5), packet].concat();
        self.nodes[usize::from(from)].push("enter", &[&frame]);
    }

    /// Carries frames until nothing moves any more; returns how many went over each link's far end.
    fn carry(&mut self) -> usize {
        let mut moved = 0;
        loop {
            let before = moved;
            for from in NodeId::first(self.nodes.len()) {
                for (number, link) in (0_u16..).zip(self.topology.links(from).to_vec()) {
                    let frames = self.nodes[from.index()].taken(&format!("link{number}"));
                    if self.dead[from.index()] {
                        continue;
                    }
                    moved += frames.len();
                    for (to, at) in self.ends(from, link) {
                        if self.cut.contains(&(from.number(), to.number())) || self.dead[to.index()] {
                            continue;
                        }
                        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
                        if !frames.is_empty() {
                            self.nodes[to.index()].push(&format!("in{at}"), &frames);
                        }
                    }
                }
            }
            if moved == before {
                return moved;
            }
        }
    }

    /// Who is at the other end of a link, and as which of its links.
    fn ends(&self, from: NodeId, link: fabric::Link) -> Vec<(NodeId, u16)> {
        let others = NodeId::first(self.nodes.len()).filter(|&to| to != from);
        let same = |to: NodeId| {
            (0..).zip(self.topology.links(to)).find(|(_, other)| match link.far {
                Far::Node(_) => other.cable == link.cable,
                Far::Switch(_) => other.far == link.far,
            })
        };
        others.filter_map(|to| same(to).map(|(number, _)| (to, number))).collect()
    }

    fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            for bench in self.nodes.iter_mut() {
                bench.advance_ns(10 * MS);
            }
            self.carry();
        }
    }

    fn out(&mut self, at: u16, output: &str) -> Vec<Vec<u8>> {
        self.nodes[usize::from(at)].taken(output)
    }

    fn drops(&mut self, at: u16, element: &str, reason: &str) -> u64 {
        self.nodes[usize::from(at)].drops(element, reason)
    }

    fn count(&mut self, at: u16, handler: &str) -> u64 {
        self.nodes[usize::from(at)].read(handler).parse().unwrap()
    }
}

fn config(topology: &Topology, here: NodeId, keywords: &str) -> String {
    let shape = topology.shape();
    let mut text = format!(
        "fabric :: Fabric(\"{shape}\", {here}, CLUSTER {CLUSTER}, {keywords});
         enter :: TestInput -> to :: ToFabric(fabric); hellos :: FabricHello(fabric);
         judged :: TestInput -> carry :: FabricEncap(fabric, to-leader, NODE 0) -> to; carry[1] -> mine2 :: TestOutput;
         frames :: TestInput -> encap :: FabricEncap(fabric, to-host, NODE 0) -> to; encap[1] -> mine :: TestOutput;
         host :: TestOutput; route :: TestOutput; port :: TestOutput; port2 :: TestOutput;\n"
    );
    let links = topology.links(here).len();
    (0..links).for_each(|link| text += &format!("link{link} :: TestOutput; "));
    for link in 0..links {
        text += &format!(
            "in{link} :: TestInput -> from{link} :: FromFabric(fabric, {link}, eth1, eth2);
             from{link}[{links}] -> hellos; from{link}[{}] -> host; from{link}[{}] -> route;
             from{link}[{}] -> port; from{link}[{}] -> port2; to[{link}] -> link{link};
             hellos[{link}] -> link{link};\n",
            links + 1,
            links + 2,
            links + 3,
            links + 4
        );
        (0..links).for_each(|next| text += &format!("from{link}[{next}] -> link{next}; "));
    }
    text
}

const ALIVE: &str = "HELLO 0";

#[test]
fn any_node_reaches_any_other_in_every_topology_and_mode() {
    for shape in [
        "mesh(4)",
        "mesh(3, 2)",
        "star(4)",
        "star(3, 2)",
        "torus(3, 3)",
        "fly(2, 3)",
        "compact(2)",
        "groups(2)",
        "cube(2)",
        "debruijn(2, 3)",
    ] {
        for (mode, _) in Mode::NAMES {
            let mut cluster = Cluster::new(shape, &format!("{ALIVE}, MODE {mode}"));
            let ports =
                NodeId::first(cluster.nodes.len()).filter(|&node| cluster.topology.may_have_ports(node));
            let ports: Vec<u16> = ports.map(NodeId::number).collect();
            for &from in &ports {
                for &to in ports.iter().filter(|&&to| to != from) {
                    for flow in 0..4 {
                        cluster.enter(from, to, &packet(flow));
                    }
                    let moved = cluster.carry();
                    let expected: Vec<Vec<u8>> =
                        (0..4).map(|flow| [&REWRITE[..], &packet(flow)].concat()).collect();
                    let mut out = cluster.out(to, "port");
                    out.sort();
                    assert_eq!(out, expected, "{shape} {mode}: {from} to {to}");
                    // Over one other node at most.
                    assert!(moved <= 4 * 2 * 4, "{shape} {mode}: {moved}");
                }
            }
        }
    }
}

#[test]
fn classic_goes_over_others_and_single_path_does_not() {
    for (mode, direct, balanced) in [("classic-vlb", 0, 20), ("single-path", 20, 0)] {
        let mut cluster = Cluster::new("mesh(4)", &format!("{ALIVE}, MODE {mode}"));
        (0..20).for_each(|flow| cluster.enter(1, 2, &packet(flow)));
        assert_eq!(cluster.carry(), 20 + balanced as usize);
        assert_eq!((cluster.count(1, "to.direct"), cluster.count(1, "to.balanced")), (direct, balanced));
        assert_eq!(cluster.out(2, "port").len(), 20);
    }
}

#[test]
fn more_than_its_part_is_spread() {
    // Buckets hold 64 KiB at first; 4,000 packets are more than twice as much, at no time at all.
    let mut cluster = Cluster::new("mesh(4)", &format!("{ALIVE}, RATE 1Mbps, LINK_RATE 100Gbps"));
    (0..4000).for_each(|flow| cluster.enter(1, 2, &packet(flow)));
    cluster.carry();
    assert_eq!(cluster.out(2, "port").len(), 4000);
    let (direct, balanced) = (cluster.count(1, "to.direct"), cluster.count(1, "to.balanced"));
    assert_eq!(direct + balanced, 4000);
    assert!(balanced > 1000, "{balanced}");
    assert_eq!(cluster.count(1, "to.direct_bytes"), direct * 54);
}

#[test]
fn a_tagged_neighbour_gets_its_longer_header() {
    for shape in ["mesh(2)", "star(2)"] {
        let mut cluster = Cluster::new(shape, ALIVE);
        let frame = [&cluster.header(Kind::Routed, 0, 1, 6), &packet(1)[..]].concat();
        cluster.nodes[0].push("enter", &[&frame]);
        cluster.carry();
        assert_eq!(cluster.out(1, "port2"), [[&TAGGED[..], &packet(1)].concat()], "{shape}");
    }
}

#[test]
fn whole_frames_reach_the_host_and_leave_by_ports() {
    for shape in ["mesh(3)", "star(3)"] {
        let mut cluster = Cluster::new(shape, ALIVE);
        let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6], &[7; 28]].concat();
        let push = |bench: &mut Bench, input: &str| {
            let mut packet = bench.packet(&frame);
            packet.annotations_mut().set_paint(3);
            bench.push_packets(input, vec![packet]);
        };
        push(&mut cluster.nodes[2], "frames");
        push(&mut cluster.nodes[0], "frames");
        cluster.carry();
        let host = cluster.nodes[0].taken_packets("host");
        assert_eq!((host[0].data(), host[0].annotations().paint()), (&frame[..], 3), "{shape}");
        assert_eq!(cluster.out(0, "mine"), [&frame[..]], "the leader's own need no fabric");
        // The leader changes, and is lost.
        cluster.nodes[2].write("encap.node", "1").unwrap();
        push(&mut cluster.nodes[2], "frames");
        cluster.carry();
        assert_eq!(cluster.out(1, "host"), [&frame[..]]);
        cluster.nodes[2].write("encap.node", "").unwrap();
        push(&mut cluster.nodes[2], "frames");
        assert_eq!(cluster.drops(2, "encap", "no node"), 1);
        assert!(cluster.nodes[2].write("encap.node", "9").unwrap_err().contains("the nodes of"));
        // What the host sends, and what a front leaves to others.
        for (kind, output) in [(Kind::FromHost, "port2"), (Kind::ToRoute, "route")] {
            let whole = [&cluster.header(kind, 0, 1, 1), &frame[..]].concat();
            cluster.nodes[0].push("enter", &[&whole]);
            cluster.carry();
            assert_eq!(cluster.out(1, output), [&frame[..]], "{shape} {kind:?}");
        }
    }
}

#[test]
fn what_the_leader_has_to_judge_is_carried_to_it_once() {
    for shape in ["mesh(3)", "star(3)"] {
        let mut cluster = Cluster::new(shape, ALIVE);
        let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 8, 0], &[7; 28]].concat();
        let push = |bench: &mut Bench| {
            let mut packet = bench.packet(&frame);
            packet.annotations_mut().set_paint(200);
            bench.push_packets("judged", vec![packet]);
        };
        push(&mut cluster.nodes[2]);
        push(&mut cluster.nodes[0]);
        cluster.carry();
        assert_eq!(cluster.out(0, "mine2"), [&frame[..]], "the leader's own need no fabric");
        let carried = cluster.nodes[0].taken_packets("route");
        assert_eq!((carried[0].data(), carried[0].annotations().paint()), (&frame[..], 200), "{shape}");
        assert_eq!(fabric_share::input_node(&carried[0]), NodeId::new(2));
        // Two nodes that take each other for the leader.
        cluster.nodes[0].write("carry.node", "1").unwrap();
        cluster.nodes[0].push_packets("judged", carried);
        assert_eq!(cluster.carry(), 0);
        assert_eq!(cluster.drops(0, "carry", "carried to the leader already"), 1, "{shape}");
        // What a front leaves to a routing node may have to go on to the leader.
        let whole = [&cluster.header(Kind::ToRoute, 0, 1, 200), &frame[..]].concat();
        cluster.nodes[0].push("enter", &[&whole]);
        cluster.carry();
        let front = cluster.nodes[1].taken_packets("route");
        cluster.nodes[1].push_packets("judged", front);
        cluster.carry();
        assert_eq!(cluster.drops(1, "carry", "carried to the leader already"), 0);
        assert_eq!(cluster.out(0, "route"), [&frame[..]], "{shape}");
    }
}

#[test]
fn only_the_leaders_linux_sends_by_the_ports_of_others() {
    for shape in ["mesh(3)", "star(3)"] {
        let mut cluster = Cluster::new(shape, ALIVE);
        let frame = [&[0xff; 12][..], &[8, 6], &[7; 28]].concat();
        for (leader, sent) in [("", 1), ("0", 1), ("2", 0), ("0", 1)] {
            cluster.nodes[1].write("fabric.leader", leader).unwrap();
            assert_eq!(cluster.nodes[1].read("fabric.leader"), leader);
            let whole = [&cluster.header(Kind::FromHost, 0, 1, 1), &frame[..]].concat();
            cluster.nodes[0].push("enter", &[&whole]);
            cluster.carry();
            assert_eq!(cluster.out(1, "port2").len(), sent, "{shape} {leader}");
        }
        let links = cluster.topology.links(node(1)).len();
        let dropped: u64 =
            (0..links).map(|link| cluster.drops(1, &format!("from{link}"), "not from the leader")).sum();
        assert_eq!(dropped, 1);
        assert!(cluster.nodes[1].write("fabric.leader", "3").unwrap_err().contains("0 to 2"));
    }
}

#[test]
fn fronts_divide_flows_among_routing_nodes_and_keep_them_there() {
    let mut cluster = Cluster::new("mesh(4)", ALIVE);
    let frames: Vec<Vec<u8>> = (0..400).map(|flow| [&[2; 12][..], &[8, 0], &packet(flow)].concat()).collect();
    let mut divided = |nodes: &str| {
        cluster.nodes[3].write("encap.node", nodes).unwrap();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        cluster.nodes[3].push("frames", &frames);
        cluster.carry();
        [0, 1, 2].map(|node| cluster.out(node, "host").into_iter().collect::<BTreeSet<_>>())
    };
    let all = divided("0 1, 1 2, 2 1");
    let shares = all.each_ref().map(|flows| flows.len());
    assert_eq!(shares.iter().sum::<usize>(), 400);
    assert!((60..140).contains(&shares[0]) && (150..250).contains(&shares[1]), "{shares:?}");
    // Node 2 leaves: the others keep what they had.
    let left = divided("0 1, 1 2");
    assert!(left[0].is_superset(&all[0]) && left[1].is_superset(&all[1]) && left[2].is_empty());
    assert_eq!(left[0].len() + left[1].len(), 400);
}

#[test]
fn nodes_divide_flows_alike_as_long_as_they_have_the_same_key() {
    let mut cluster = Cluster::new("mesh(4)", ALIVE);
    let frames: Vec<Vec<u8>> = (0..64).map(|flow| [&[2; 12][..], &[8, 0], &packet(flow)].concat()).collect();
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let divided = |cluster: &mut Cluster, by: u16| {
        cluster.nodes[usize::from(by)].write("encap.node", "0, 1").unwrap();
        cluster.nodes[usize::from(by)].push("frames", &frames);
        cluster.carry();
        let of_first: BTreeSet<_> = cluster.out(0, "host").into_iter().collect();
        assert_eq!(of_first.len() + cluster.out(1, "host").len(), 64);
        of_first
    };
    let before = divided(&mut cluster, 2);
    assert_eq!(divided(&mut cluster, 3), before);
    cluster.keys[2].set(&[NEW, OLD]);
    let after = divided(&mut cluster, 2);
    assert_ne!(after, before, "the key has no part in it");
    cluster.keys[3].set(&[NEW, OLD]);
    assert_eq!(divided(&mut cluster, 3), after);
}

#[test]
fn the_flows_of_a_dead_routing_node_move_and_no_others() {
    let mut cluster = Cluster::new("mesh(4)", "");
    cluster.nodes[3].write("encap.node", "0, 1, 2 2").unwrap();
    let frames: Vec<Vec<u8>> = (0..400).map(|flow| [&[2; 12][..], &[8, 0], &packet(flow)].concat()).collect();
    let divided = |cluster: &mut Cluster| {
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        cluster.nodes[3].push("frames", &frames);
        cluster.carry();
        [0, 1, 2].map(|node| cluster.out(node, "host").into_iter().collect::<BTreeSet<_>>())
    };
    divided(&mut cluster);
    assert_eq!(cluster.drops(3, "encap", "no node"), 400, "nobody was heard yet");
    cluster.pass_ms(60);
    let all = divided(&mut cluster);
    assert!(all.iter().all(|flows| flows.len() > 60), "{all:?}");
    cluster.dead[2] = true;
    cluster.pass_ms(50);
    let left = divided(&mut cluster);
    assert!(left[0].is_superset(&all[0]) && left[1].is_superset(&all[1]));
    assert_eq!(left[0].len() + left[1].len(), 400);
    assert_eq!(cluster.nodes[3].read("encap.node"), "0, 1, 2 2");
    cluster.dead[2] = false;
    cluster.pass_ms(50);
    let back = divided(&mut cluster);
    assert!(left[0].is_superset(&back[0]) && left[1].is_superset(&back[1]) && back[2].len() > 100);
    // Whom this very node is among can always be reached.
    cluster.nodes[3].write("encap.node", "3").unwrap();
    cluster.dead[..3].fill(true);
    cluster.pass_ms(50);
    cluster.nodes[3].push("frames", &[&frames[0]]);
    assert_eq!(cluster.out(3, "mine"), [&frames[0][..]]);
    assert_eq!(cluster.drops(3, "encap", "no node"), 400);
}

#[test]
fn the_slow_threads_copy_sends_and_counts_what_it_relays() {
    // Its number is that of the workers: there are as many workers before it.
    let copy = CopyId { index: 2, workers: 2, slow_thread: true };
    let text = format!(
        "fabric :: Fabric(mesh(3), 0, CLUSTER {CLUSTER}, {ALIVE});
         Idle -> Punt -> to :: ToFabric(fabric); to[0], to[1] -> Discard;
         Idle -> Punt -> from :: FromFabric(fabric, 0, eth1, eth2); from[0], from[1] -> Discard;"
    );
    let source = Source { name: "slow.click".into(), text };
    let (flat, problems) = compile(&source, &Options::default(), &registry());
    assert!(!problems.has_errors(), "{}", problems.render(false));
    let (shared, control) = (shared(), Control::new(|_| {}));
    let options = GraphOptions::default();
    let mut graph =
        Graph::build(&Arc::new(flat.unwrap()), &registry(), &shared, copy, &options, &control).unwrap();
    for (element, from, to) in [("to", 0, 1), ("from", 1, 2)] {
        let header = Header::new(Kind::FromHost, node(to), Label::new(1).unwrap(), node(from), CLUSTER);
        let mut frame = graph.context().allocate().unwrap();
        frame.set_data(&[&header.bytes()[..], &[0x65, 0x58], &[1; 60]].concat());
        let mut batch = Batch::new();
        batch.push(frame);
        let element = graph.find(element).unwrap();
        graph.push(element, 0, batch);
    }
    let to = graph.find("to").unwrap();
    assert_eq!(graph.read(to, "direct", "").unwrap().unwrap(), "1");
    let node = shared.get::<super::node::Node>("fabric:fabric").unwrap();
    assert_eq!([0, 1, 2].map(|copy| node.relayed(copy, 1)), [0, 0, 74]);
}

#[test]
fn what_means_nothing_is_dropped_and_counted() {
    let mut cluster = Cluster::new("mesh(3)", ALIVE);
    let good = [&cluster.header(Kind::Routed, 1, 0, 5), &packet(1)[..]].concat();
    let label = |label: u32| {
        [
            &Header::new(Kind::Routed, node(0), Label::new(label).unwrap(), node(1), CLUSTER).bytes()[..],
            &[8, 0, 0],
        ]
        .concat()
    };
    let other_cluster = Header::new(Kind::Routed, node(0), Label::new(5).unwrap(), node(1), 8).bytes();
    let mut circles = Header::new(Kind::Routed, node(2), Label::new(5).unwrap(), node(1), CLUSTER);
    circles.hops = 0;
    let mut kind = good.clone();
    kind[0] = 0xf2;
    let mut nowhere = good.clone();
    nowhere[1..3].fill(0xff);
    let far_port = Header::new(Kind::FromHost, node(0), Label::new(2).unwrap(), node(1), CLUSTER).bytes();
    let cases: [(&[u8], &str); 10] = [
        (&[0; 60], "no fabric header"),
        (&[2, 0], "no fabric header"),
        (&other_cluster, "of another cluster"),
        (&circles.bytes(), "circles"),
        (&kind, "unknown kind of fabric frame"),
        (&nowhere, "link is down"),
        (&label(4), "unknown adjacency"),
        (&label(0xf_ffff), "unknown adjacency"),
        (&label(7), "no such port"),
        (&far_port, "no such port"),
    ];
    for (bytes, reason) in cases {
        let before = cluster.drops(0, "from0", reason);
        cluster.nodes[0].push("in0", &[bytes]);
        assert_eq!(cluster.drops(0, "from0", reason), before + 1, "{reason}");
    }
    cluster.nodes[0].push("in0", &[&good]);
    assert_eq!(cluster.out(0, "port").len(), 1);
    // Numbers that no node has, and nodes that the cluster has not.
    let beyond = Header::new(Kind::Routed, node(9), Label::new(5).unwrap(), node(1), CLUSTER).bytes();
    cluster.nodes[0].push("in0", &[&beyond]);
    assert_eq!(cluster.drops(0, "from0", "link is down"), 2);
    // To itself no node sends over the fabric.
    cluster.enter(0, 0, &packet(1));
    assert_eq!(cluster.drops(0, "to", "for this node"), 1);
    cluster.nodes[0].push("enter", &[&[0; 60]]);
    assert_eq!(cluster.drops(0, "to", "no fabric header"), 1);
}

#[test]
fn what_a_switch_floods_is_not_taken() {
    let mut cluster = Cluster::new("star(3)", ALIVE);
    (0..8).for_each(|flow| cluster.enter(0, 1, &packet(flow)));
    cluster.carry();
    assert_eq!(cluster.out(1, "port").len(), 8);
    assert_eq!(cluster.out(2, "port").len(), 0);
    assert_eq!(cluster.drops(2, "from0", "for another node"), 8);
}

#[test]
fn a_frame_that_circles_ends() {
    // A label of a node that two broken nodes send to each other for ever: here the test is the broken one.
    let mut cluster = Cluster::new("mesh(3)", ALIVE);
    let header = Header::new(Kind::Routed, node(2), Label::new(5).unwrap(), node(1), CLUSTER);
    let mut frame = [&header.bytes()[..], &[8, 0], &packet(1)].concat();
    for _ in 0..fabric::LONGEST_WAY {
        cluster.nodes[0].push("in0", &[&frame]);
        frame = cluster.out(0, "link1").pop().expect("relayed");
    }
    cluster.nodes[0].push("in0", &[&frame]);
    assert_eq!(cluster.drops(0, "from0", "circles"), 1);
}

/// A node with this shape that relays in the kernel too, as if frames came in by link 0, which is Linux's loopback interface there; all
/// links send frames of up to 100 bytes.
fn relaying(shape: &str, here: u16, keywords: &str) -> (Bench, Arc<FabricRelay>) {
    let topology = Topology::new(shape.parse().unwrap());
    let mut relay = KernelRelay::load(here, CLUSTER).unwrap();
    for link in 0..topology.links(node(here)).len() as u16 {
        let receives = (link == 0).then_some(XdpMode::Native);
        let like = RelayLink {
            interface: 1,
            mtu: 86,
            receives,
            sends: true,
            sends_native: true,
            sends_native_fragments: true,
        };
        relay.set_link(link, like).unwrap();
    }
    let shared = shared();
    let relay = shared.get_or_make(FabricRelay::KEY, || Ok::<_, String>(FabricRelay(relay.into()))).unwrap();
    (Bench::try_new(&registry(), &config(&topology, node(here), keywords), 32, &shared).unwrap(), relay)
}

/// What the program says of a frame that it redirects, and of one that it leaves.
const REDIRECTED: u32 = 4;
const LEFT: u32 = 2;

#[test]
fn the_kernel_relays_as_the_graph_does() {
    if !testbed::is_root() {
        return;
    }
    let mut random = SplitMix64::new(17);
    let mut below = |limit: u64| random.below(limit);
    let (mut relayed, mut left) = (0, 0);
    for (shape, here) in [
        ("mesh(4, 3)", 2),
        ("mesh(3, 9)", 0),
        ("torus(3, 3)", 4),
        ("fly(2, 3)", 5),
        ("debruijn(2, 3)", 3),
        ("mesh(3)", 1),
    ] {
        let (mut bench, relay) = relaying(shape, here, ALIVE);
        let topology = Topology::new(shape.parse().unwrap());
        let (nodes, links) = (topology.nodes() as u64, topology.links(node(here)).len() as u16);
        for _ in 0..400 {
            let any = |number: u64| NodeId::new(number as u16);
            let header = Header {
                kind: Kind::ALL[below(4) as usize],
                output: any(below(nodes + 2)).unwrap(),
                via: if below(2) == 0 { None } else { any(below(nodes + 2)) },
                label: Label::new(below(8) as u32).unwrap(),
                input: any(below(nodes)).unwrap(),
                hops: below(3) as u8 * 20,
                entropy: below(256) as u8,
                cluster: if below(20) == 0 { 8 } else { CLUSTER },
            };
            let mut frame = [&header.bytes()[..], &[8, 0]].concat();
            frame.extend((0..below(90)).map(|at| at as u8));
            if below(10) == 0 {
                let at = below(12) as usize;
                frame[at] ^= 1 << below(8);
            }
            let before: Vec<u64> = (0..links).map(|link| sent(&relay, link)).collect();
            let (action, out) = relay.0.lock().unwrap().test_run(&frame).unwrap();
            let by = (0..links).find(|&link| sent(&relay, link) != before[usize::from(link)]);
            bench.push("in0", &[&frame]);
            let from_graph: Vec<(u16, Vec<u8>)> = (0..links)
                .flat_map(|link| {
                    bench.taken(&format!("link{link}")).into_iter().map(move |frame| (link, frame))
                })
                .collect();
            match (action, by) {
                (REDIRECTED, Some(link)) => {
                    assert_eq!(from_graph, [(link, out)], "{shape} {header:?} {frame:02x?}");
                    relayed += 1;
                }
                (LEFT, None) => {
                    assert_eq!(out, frame, "{shape} {header:?}");
                    // More parallel links than the program has room for, and frames too long for the link.
                    let is_relayed = !from_graph.is_empty() && shape != "mesh(3, 9)" && frame.len() <= 100;
                    assert!(!is_relayed, "{shape} {header:?} {frame:02x?}: {from_graph:?}");
                    left += 1;
                }
                other => panic!("{shape} {header:?}: {other:?}"),
            }
        }
    }
    assert!(relayed > 200 && left > 200, "{relayed} relayed, {left} left");
}

/// Frames that the kernel has sent by a link.
fn sent(relay: &FabricRelay, link: u16) -> u64 {
    relay.0.lock().unwrap().tables().traffic(link).tx_packets
}

#[test]
fn the_kernel_relays_neither_for_strangers_nor_by_dead_links() {
    if !testbed::is_root() {
        return;
    }
    let (_bench, relay) = relaying("mesh(3)", 0, "");
    let header = Header::new(Kind::Routed, node(2), Label::new(5).unwrap(), node(1), CLUSTER);
    let frame = [&header.bytes()[..], &[8, 0], &packet(1)].concat();
    let mut relay = relay.0.lock().unwrap();
    assert_eq!(relay.test_run(&frame).unwrap().0, LEFT, "nobody was heard");
    relay.tables().set_towards(2, &[1]);
    assert_eq!(relay.test_run(&frame).unwrap().0, LEFT, "from a stranger");
    relay.tables().set_believed(0, true);
    assert_eq!(relay.test_run(&frame).unwrap().0, REDIRECTED);
    relay.tables().set_towards(2, &[]);
    assert_eq!(relay.test_run(&frame).unwrap().0, LEFT, "link is down");
    relay.tables().set_towards(2, &[9]);
    assert_eq!(relay.test_run(&frame).unwrap(), (LEFT, frame.clone()), "no interface to send by");
    assert_eq!(relay.tables().traffic(9).tx_packets, 0);
}

#[test]
fn two_links_never_share_a_place_in_the_kernel() {
    if !testbed::is_root() {
        return;
    }
    let (_bench, relay) = relaying("mesh(3)", 0, ALIVE);
    let header = Header::new(Kind::Routed, node(2), Label::new(5).unwrap(), node(1), CLUSTER);
    let frame = [&header.bytes()[..], &[8, 0], &packet(1)].concat();
    let mut relay = relay.0.lock().unwrap();
    let like = RelayLink {
        interface: 1,
        mtu: 1500,
        receives: Some(XdpMode::Native),
        sends: true,
        sends_native: true,
        sends_native_fragments: true,
    };
    assert!(relay.set_link(1, like).is_err(), "link 0 has the interface");
    assert_eq!(relay.test_run(&frame).unwrap().0, REDIRECTED);
    assert_eq!(relay.tables().traffic(0).rx_packets, 1);
    relay.set_link(0, RelayLink { receives: None, ..like }).unwrap();
    assert_eq!(relay.test_run(&frame).unwrap().0, LEFT, "nothing is relayed from link 0");
    relay.set_link(1, like).unwrap();
    assert_eq!(relay.test_run(&frame).unwrap().0, REDIRECTED);
    assert_eq!(relay.tables().traffic(1).rx_packets, 1);
}

#[test]
fn hellos_bring_links_up_and_a_dead_node_down() {
    for shape in ["mesh(4)", "star(4)"] {
        let mut cluster = Cluster::new(shape, "RATE 8bps");
        cluster.enter(0, 3, &packet(1));
        assert_eq!(cluster.drops(0, "to", "node is not reachable"), 1, "nobody was heard yet");
        cluster.pass_ms(60);
        cluster.enter(0, 3, &packet(1));
        cluster.carry();
        assert_eq!(cluster.out(3, "port").len(), 1, "{shape}");
        cluster.dead[3] = true;
        cluster.pass_ms(50);
        cluster.enter(0, 3, &packet(1));
        assert_eq!(cluster.drops(0, "to", "node is not reachable"), 2);
        // Traffic between the others never goes over it.
        (0..200).for_each(|flow| cluster.enter(0, 1, &packet(flow)));
        cluster.carry();
        assert_eq!(cluster.out(1, "port").len(), 200);
        assert!(
            cluster.nodes[0].read("hellos.links").contains(" 3 down"),
            "{}",
            cluster.nodes[0].read("hellos.links")
        );
        assert!(cluster.nodes[0].messages().iter().any(|line| line.contains("node 3 is not heard any more")));
        cluster.dead[3] = false;
        cluster.pass_ms(50);
        cluster.enter(0, 3, &packet(1));
        cluster.carry();
        assert_eq!(cluster.out(3, "port").len(), 1);
    }
}

#[test]
fn a_cut_link_is_gone_round() {
    let mut cluster = Cluster::new("mesh(3)", "");
    cluster.pass_ms(60);
    cluster.cut.extend([(0, 1), (1, 0)]);
    cluster.pass_ms(50);
    (0..20).for_each(|flow| cluster.enter(0, 1, &packet(flow)));
    cluster.carry();
    assert_eq!(cluster.out(1, "port").len(), 20);
    assert_eq!(cluster.count(0, "to.direct"), 0);
    assert_eq!(cluster.nodes[0].read("fabric.paths"), "1 not directly, over 2\n2 directly, over nobody\n");
}

#[test]
fn who_drains_is_not_relayed_over() {
    let mut cluster = Cluster::new("mesh(3)", "MODE classic-vlb");
    cluster.pass_ms(60);
    cluster.nodes[2].write("hellos.drain", "true").unwrap();
    cluster.pass_ms(20);
    (0..20).for_each(|flow| cluster.enter(0, 1, &packet(flow)));
    cluster.carry();
    assert_eq!(cluster.count(0, "to.balanced"), 0);
    assert_eq!(cluster.out(1, "port").len(), 20);
}

#[test]
fn packets_of_strangers_are_dropped_and_counted() {
    for (shape, from, stranger) in [("mesh(3)", "from0", "in0"), ("star(3)", "from0", "in0")] {
        let mut cluster = Cluster::new(shape, "");
        let is_switch = shape.starts_with("star");
        let whole = [&cluster.header(Kind::Routed, 1, 0, 5), &packet(1)[..]].concat();
        cluster.nodes[0].push(stranger, &[&whole]);
        assert_eq!(cluster.drops(0, from, "from a stranger"), 1, "{shape}: nobody was heard yet");
        // The neighbour that the frame comes from is not there; all others are.
        cluster.dead[1] = true;
        cluster.pass_ms(60);
        cluster.nodes[0].push(stranger, &[&whole]);
        assert_eq!(cluster.drops(0, from, "from a stranger"), 2, "{shape}");
        assert_eq!(cluster.out(0, "port").len(), 0);
        if is_switch {
            let known = [&cluster.header(Kind::Routed, 2, 0, 5), &packet(1)[..]].concat();
            cluster.nodes[0].push(stranger, &[&known]);
            assert_eq!(cluster.out(0, "port").len(), 1);
            let own = [&cluster.header(Kind::Routed, 0, 0, 5), &packet(1)[..]].concat();
            cluster.nodes[0].push(stranger, &[&own]);
            assert_eq!(cluster.drops(0, from, "from a stranger"), 3, "its own address is not a neighbour's");
        }
        cluster.dead[1] = false;
        cluster.pass_ms(60);
        cluster.nodes[0].push(stranger, &[&whole]);
        assert_eq!(cluster.out(0, "port").len(), 1, "{shape}");
        // Long after it was heard last, it is a stranger again.
        cluster.dead[1] = true;
        cluster.pass_ms(50);
        cluster.nodes[0].push(stranger, &[&whole]);
        assert_eq!(cluster.out(0, "port").len(), 1, "{shape}: it was there just now");
        cluster.pass_ms(400);
        cluster.nodes[0].push(stranger, &[&whole]);
        assert_eq!(cluster.out(0, "port").len(), 0, "{shape}");
    }
}

#[test]
fn hellos_of_other_stations_leave_the_places_of_neighbours() {
    let mut cluster = Cluster::new("star(3)", "");
    cluster.pass_ms(60);
    cluster.nodes[1].advance_ns(10 * MS);
    let frame = cluster.nodes[1].taken("link0").pop().unwrap();
    let too_many = |cluster: &mut Cluster| cluster.drops(0, "from0", "too many hellos");
    // The numbers of nodes are in these addresses, as in others.
    let mut junk = frame.clone();
    junk[6..12].copy_from_slice(&[2, frame[7], frame[8], 0, 0, 0x77]);
    (0..1000).for_each(|_| cluster.nodes[0].push("in0", &[&junk]));
    let dropped = too_many(&mut cluster);
    assert!((1..1000).contains(&dropped), "{dropped}");
    cluster.nodes[0].push("in0", &[&frame]);
    assert_eq!(too_many(&mut cluster), dropped);
}

#[test]
fn a_hello_without_the_key_is_dropped_and_counted() {
    let mut cluster = Cluster::new("mesh(2)", "");
    cluster.pass_ms(60);
    cluster.nodes[1].advance_ns(10 * MS);
    let frame = cluster.nodes[1].taken("link0").pop().unwrap();
    let mut hello = Hello::from_frame(&frame, &Keys::new(&[OLD])).unwrap().unwrap();
    hello.sequence += 1;
    for (keys, reason) in [
        (&Keys::public(), "hello without the cluster's key"),
        (&Keys::new(&[NEW]), "hello without the cluster's key"),
    ] {
        let before = cluster.drops(0, "hellos", reason);
        cluster.nodes[0].push("in0", &[&hello.frame(keys)]);
        assert_eq!(cluster.drops(0, "hellos", reason), before + 1);
    }
    cluster.nodes[0].push("in0", &[&frame, &frame, &hello.frame(&Keys::new(&[OLD]))]);
    assert_eq!(cluster.drops(0, "hellos", "replayed hello"), 1);
    hello.cluster = 9;
    (0..1000).for_each(|_| cluster.nodes[0].push("in0", &[&hello.frame(&Keys::new(&[NEW]))]));
    assert_eq!(cluster.drops(0, "hellos", "hello of another cluster"), 1000);
    let messages = cluster.nodes[0].messages();
    assert_eq!(messages.iter().filter(|line| line.contains("a node of cluster 9 is there")).count(), 1);
    assert_eq!(messages.iter().filter(|line| line.contains("another key")).count(), 1, "{messages:?}");
}

#[test]
fn a_key_changes_without_a_flap() {
    let mut cluster = Cluster::new("mesh(3)", "");
    cluster.pass_ms(60);
    cluster.nodes.iter_mut().for_each(|node| drop(node.messages()));
    // Each node accepts the new key, then each uses it, then each forgets the old one.
    for keys in [&[OLD, NEW][..], &[NEW, OLD], &[NEW]] {
        for node in 0..3 {
            cluster.keys[node].set(keys);
            cluster.pass_ms(50);
        }
    }
    for node in 0..3 {
        assert_eq!(cluster.nodes[usize::from(node)].messages(), [""; 0]);
        assert_eq!(cluster.drops(node, "hellos", "hello without the cluster's key"), 0);
    }
    // The old one is worth nothing now.
    cluster.keys[2].set(&[OLD]);
    cluster.pass_ms(50);
    assert!(cluster.nodes[0].read("hellos.links").contains(" 2 down a hello with another key"));
}

#[test]
fn a_cluster_without_a_key_says_so_when_it_starts() {
    let said = |shared: &Shared| {
        let text = "f :: Fabric(mesh(2), 0); Idle -> hellos :: FabricHello(f) -> Discard;";
        Bench::try_new(&registry(), text, 32, shared).unwrap().messages().join("; ")
    };
    assert_eq!(
        said(&Shared::default()),
        "fabric: this cluster has no key, so everybody who reaches a link can be any node of it"
    );
    assert_eq!(said(&shared()), "");
}

#[test]
fn malformed_hellos_are_counted() {
    let mut cluster = Cluster::new("mesh(2)", "");
    for (said, reason) in [
        (&[9][..], "hello of another version"),
        (&[2, 0xff, 0xff], "malformed hello"),
        (&[], "malformed hello"),
    ] {
        let before = cluster.drops(0, "hellos", reason);
        let frame = [&Hello::DESTINATION[..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], said].concat();
        cluster.nodes[0].push("in0", &[&frame]);
        assert_eq!(cluster.drops(0, "hellos", reason), before + 1);
    }
}

#[test]
fn mistakes_say_what_would_be_right() {
    let error = |config: &str| Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap_err();
    let fabric = "f :: Fabric(\"mesh(3)\", 1); ";
    for (config, message) in [
        ("f :: Fabric(ring(3), 1);", "'ring(3)' is not a topology; expected mesh(NODES)"),
        ("f :: Fabric(mesh(3), 3);", "NODE: 3; the nodes of mesh(3) are 0 to 2"),
        ("f :: Fabric(mesh(300), 3);", "mesh(300): node 3 has more than 255 links"),
        (
            "f :: Fabric(mesh(3), 1, MODE best);",
            "MODE: expected direct-vlb, direct-vlb-others, classic-vlb or single-path, got 'best'",
        ),
        ("Idle -> ToFabric(g);", "FABRIC: expected the name of a Fabric element, got 'g'"),
        (
            &format!("{fabric} Idle -> ToFabric(f) -> Discard;"),
            "1 outputs; this node has 2 links, an output for each",
        ),
        (
            &format!("{fabric} Idle -> FromFabric(f, 2, eth1) -> Discard;"),
            "LINK: 2; the links of node 1 are 0 to 1",
        ),
        (&format!("{fabric} Idle -> FromFabric(f, 0, eth1) -> Discard;"), "there is no cluster here"),
        (
            &format!("{fabric} Idle -> FabricEncap(f, to-host, NODE 1 x) -> Discard;"),
            "NODE: expected a node, or nodes with weights",
        ),
        (
            &format!(
                "{fabric} Idle -> FabricEncap(f, to-route, NODE \"1 1 serves tcp any port\") -> Discard;"
            ),
            "NODE: 1: 'tcp any port': the line ends before word 4; expected a port from 0",
        ),
        (
            &format!(
                "{fabric} Idle -> FabricEncap(f, to-route, NODE \"1 1 serves permit tcp any any\") -> Discard;"
            ),
            "NODE: 1: 'permit tcp any any': word 1 is 'permit'; expected any, a protocol's name",
        ),
        (&format!("{fabric} Idle -> FabricHost(f) -> Discard;"), "there is no cluster here"),
        (
            &format!("{fabric} Idle -> FabricHost(f, eth1) -> Discard;"),
            "1 outputs; there is one for each of 1 ports, and one for ToFabric",
        ),
        (
            &format!("{fabric} Idle -> FabricEncap(f, to-moon) -> Discard;"),
            "KIND: expected to-host, from-host, to-route or to-leader, got 'to-moon'",
        ),
    ] {
        assert!(error(config).contains(message), "{config}: {}", error(config));
    }
}
