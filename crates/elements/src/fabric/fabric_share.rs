//! =c
//! FabricShare(FABRIC, I<keywords> CAPACITY)
//!
//! =s fabric
//! gives each input node of the cluster its share of an overloaded output
//!
//! =d
//! Stands before a ToDevice, which pulls from it. FABRIC names a Fabric element. While the port
//! takes all packets, they pass in order of arrival. When more packets come than it takes, packets
//! of each input node wait in a queue of their own. The queues take turns, byte for byte (deficit
//! round robin). When CAPACITY packets wait, the longest queue loses its newest packet, as "output
//! is overloaded". So a node that sends less than its share loses nothing, and the other nodes get
//! the rest of its share.
//!
//! FromFabric leaves the number of the input node with each packet. Packets that FromFabric has not
//! touched came in by this node.
//!
//! CAPACITY is 1 to 1048576 packets; default is 1000. Each worker has queues of that CAPACITY for
//! the packets that it sends itself, and shares out its own part of the port. Nodes get equal
//! shares of the port as far as workers do.
//!
//! Give the ToDevice a BURST that is as large as the bursts of all links together. It sends as many
//! packets in a turn of its worker.
//!
//! =e
//!   fabric :: Fabric(mesh(3), 0);
//!   from0 :: FromFabric(fabric, 0, eth1);  from1 :: FromFabric(fabric, 1, eth1);
//!   from0[5] -> share :: FabricShare(fabric) -> ToDevice(eth1, BURST 256);  from1[5] -> share;
//!
//! =a Fabric, FromFabric, ToDevice, Queue

use std::fmt::Write;

use fabric::{FairQueue, NodeId, Share};
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Put, Setup};
use packet::{Batch, MAX_BATCH, Packet};

use super::node::Node;

pub(super) static CLASS: Class = Class {
    name: "FabricShare",
    processing: "h/l",
    handlers: &[
        Handler::read(
            "inputs",
            Combine::Join,
            "For each input node of which packets had to wait, one line for each worker: node, packets and \
             bytes sent after that, packets dropped.",
            &Get(|e: &mut FabricShare| e.inputs_text()),
        ),
        Handler::read(
            "length",
            Combine::Sum,
            "Packets that wait now, in all workers.",
            &Get(|e: &mut FabricShare| (e.passing.len() + e.waiting.len()).to_string()),
        ),
        Handler::write(
            "reset_counts",
            "Forgets what `inputs` has counted.",
            &Put(|e: &mut FabricShare, _, _| {
                e.waiting.reset_shares();
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("fabric_share.rs"),
    make,
    ..Class::DEFAULT
};

/// Packets that wait unless the configuration says otherwise, and the most that it may say.
const DEFAULT_CAPACITY: usize = 1000;
const MOST_CAPACITY: usize = 1 << 20;
/// Bytes of a turn: the usual longest frame.
const QUANTUM: u32 = 1514;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let node = Node::of_argument(setup)?;
    let capacity = setup.arguments.keyword_or("CAPACITY", DEFAULT_CAPACITY)?;
    setup.arguments.finish()?;
    if !(1..=MOST_CAPACITY).contains(&capacity) {
        let message = format!("CAPACITY: expected 1 to {MOST_CAPACITY} packets, got {capacity}");
        return Err(ConfigError::new(message));
    }
    Ok(Box::new(FabricShare {
        here: node.here,
        passing: Batch::new(),
        most_passing: capacity.min(MAX_BATCH),
        waiting: FairQueue::new(node.topology.nodes(), capacity, QUANTUM),
    }))
}

/// Leaves with a packet by which node it came into the cluster. A fresh packet has none: it is this node's.
#[inline(always)]
pub(super) fn set_input_node(packet: &mut Packet, number: u16) {
    packet.set_input_port(number + 1);
}

/// In the place of the input node too: the packet was carried to the leader once.
const CARRIED: u16 = 1 << 15;

/// Leaves with a packet that has its input node that it was carried to the leader, and is not to be carried again.
pub(super) fn set_carried(packet: &mut Packet) {
    packet.set_input_port(packet.input_port() | CARRIED);
}

/// Whether a packet was carried to the leader.
pub(super) fn is_carried(packet: &Packet) -> bool {
    packet.input_port() & CARRIED != 0
}

/// By which node it came into the cluster, if it came over the fabric.
#[inline(always)]
pub(super) fn input_node(packet: &Packet) -> Option<NodeId> {
    NodeId::new((packet.input_port() & !CARRIED).wrapping_sub(1))
}

struct FabricShare {
    here: NodeId,
    /// What came since the port last took something; empty while others are `waiting`.
    passing: Batch,
    most_passing: usize,
    waiting: FairQueue<Packet>,
}

impl FabricShare {
    /// More than passes: whose is what matters from now on, until all have left.
    #[inline(never)]
    fn share(&mut self, cx: &mut Context, batch: &mut Batch) {
        let Self { here, passing, waiting, .. } = self;
        for packet in passing.drain().chain(batch.drain()) {
            let known = input_node(&packet).filter(|input| input.index() < waiting.nodes());
            let bytes = packet.len() as u32;
            if let Some((_, dropped)) = waiting.push(known.unwrap_or(*here), packet, bytes) {
                cx.drop(dropped, "output is overloaded");
            }
        }
    }

    /// The handler `inputs`.
    fn inputs_text(&self) -> String {
        let mut text = String::new();
        for (node, Share { packets, bytes, drops }) in self.waiting.shares() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{node} {packets} {bytes} {drops}");
        }
        text
    }
}

impl Element for FabricShare {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        if self.waiting.is_empty() && batch.len() + self.passing.len() <= self.most_passing {
            batch.move_front(&mut self.passing, MAX_BATCH);
        } else {
            self.share(cx, batch);
        }
        cx.set_signal(true);
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        if self.waiting.is_empty() {
            self.passing.move_front(batch, max);
        } else {
            for _ in 0..max.min(batch.room()) {
                let Some(packet) = self.waiting.pop() else { break };
                batch.push(packet);
            }
        }
        // Not when the last one has left: more may come before the port looks again.
        if batch.is_empty() {
            cx.set_signal(false);
        }
    }

    fn notifies(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use fabric::{Header, Kind, Label};
    use fib::Adjacency;
    use fib::publish::pair;
    use graph::setup::Shared;
    use graph::testing::Bench;
    use proptest::prelude::*;

    use super::*;
    use crate::fabric::FabricAdjacencies;
    use crate::registry;

    /// Node 2 of a mesh of four: frames of two links and its own packets go to one port.
    fn bench(keywords: &str, sink: &str) -> Bench {
        let config = format!(
            "fabric :: Fabric(\"mesh(4)\", 2, HELLO 0);
             in0 :: TestInput -> from0 :: FromFabric(fabric, 0, eth1);
             in1 :: TestInput -> from1 :: FromFabric(fabric, 1, eth1);
             own :: TestInput -> e :: FabricShare(fabric{keywords}) -> {sink};
             from0[6], from1[6] => e, e;
             from0[0], from0[1], from0[2], from0[3], from0[4], from0[5] => Discard, Discard, Discard, Discard, Discard, Discard;
             from1[0], from1[1], from1[2], from1[3], from1[4], from1[5] => Discard, Discard, Discard, Discard, Discard, Discard;"
        );
        let known = vec![Some(Adjacency::new(0, &[2; 14]).unwrap())];
        let (_, readers) = pair(known.clone(), known);
        let shared = Shared::default();
        let adjacencies = FabricAdjacencies { ports: vec!["eth1".into()], readers };
        shared.get_or_make(FabricAdjacencies::KEY, || Ok::<_, String>(adjacencies)).unwrap();
        Bench::try_new(&registry(), &config, 32, &shared).unwrap()
    }

    const PULLED: &str = "out :: TestOutput";

    /// A frame of a node for this one.
    fn frame(input: u16, bytes: usize, number: u8) -> Vec<u8> {
        let node = |number| NodeId::new(number).unwrap();
        let header = Header::new(Kind::Routed, node(2), Label::new(0).unwrap(), node(input), 0);
        let mut frame = [&header.bytes()[..], &[8, 0]].concat();
        frame.resize(bytes, number);
        frame
    }

    fn push(bench: &mut Bench, link: &str, frames: &[Vec<u8>]) {
        bench.push(link, &frames.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }

    /// Of each node: packets and bytes sent, packets dropped.
    fn inputs(bench: &mut Bench) -> Vec<[u64; 4]> {
        let text = bench.read("e.inputs");
        let line = |line: &str| {
            let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            numbers.try_into().unwrap()
        };
        text.lines().map(line).collect()
    }

    #[test]
    fn all_pass_in_order_while_the_port_takes_them() {
        let mut bench = bench("", PULLED);
        for round in 0..20 {
            push(&mut bench, "in0", &vec![frame(0, 60, round); 32]);
            push(&mut bench, "own", &vec![vec![0; 60]; 5]);
            push(&mut bench, "in1", &vec![frame(3, 60, round); 32]);
            assert_eq!(bench.read("e.length"), "69");
            assert_eq!(bench.pull("out", 256), 69);
            assert_eq!(bench.pull("out", 256), 0);
            let out = bench.taken("out");
            assert_eq!((out[31][14], out[32][14], out[37][14]), (round, 0, round));
        }
        assert_eq!(bench.read("e.inputs"), "", "nothing waited for its turn");
    }

    #[test]
    fn an_overloaded_port_is_shared_evenly_whoever_sends_more() {
        let mut bench = bench(", CAPACITY 300", PULLED);
        for _ in 0..300 {
            // Over one link come packets of nodes 0 and 3, large ones and many; node 1 sends little, this node small ones.
            push(&mut bench, "in0", &vec![frame(0, 1400, 0); 30]);
            push(&mut bench, "in0", &vec![frame(3, 700, 0); 60]);
            push(&mut bench, "in1", &vec![frame(1, 100, 0); 2]);
            push(&mut bench, "own", &vec![vec![0; 100]; 250]);
            bench.pull("out", 50);
            bench.taken("out");
        }
        let inputs = inputs(&mut bench);
        assert_eq!(inputs.iter().map(|[node, ..]| *node).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let [large, little, own, middle] = [0, 1, 2, 3].map(|node| inputs[node][2]);
        assert!(inputs[1][3] == 0 && little >= 59_000, "{inputs:?}");
        for (one, other) in [(large, own), (own, middle), (middle, large)] {
            assert!(one.abs_diff(other) <= u64::from(QUANTUM) + 1400, "{inputs:?}");
        }
        let drops: u64 = inputs.iter().map(|[.., drops]| *drops).sum();
        assert_eq!(bench.drops("e", "output is overloaded"), drops);
        assert_eq!(bench.read("e.length"), "250");
        bench.write("e.reset_counts", "").unwrap();
        assert_eq!(bench.read("e.inputs"), "");
    }

    #[test]
    fn one_input_alone_gets_everything() {
        let mut bench = bench(", CAPACITY 100", PULLED);
        for _ in 0..100 {
            push(&mut bench, "in1", &vec![frame(1, 500, 0); 64]);
            assert_eq!(bench.pull("out", 32), 32);
        }
        let out = bench.taken("out").len() as u64;
        assert_eq!((out, bench.drops("e", "output is overloaded")), (3200, 6400 - 3200 - 68));
        // When the load ends, what waits leaves, and packets pass again.
        assert_eq!(bench.pull("out", 256), 68);
        let counted = inputs(&mut bench);
        push(&mut bench, "in1", &[frame(1, 500, 0)]);
        assert_eq!(bench.pull("out", 256), 1);
        assert_eq!(inputs(&mut bench), counted);
    }

    #[test]
    fn a_node_that_is_none_of_the_cluster_is_counted_as_this_one() {
        let mut bench = bench(", CAPACITY 1", PULLED);
        let mut beyond = frame(9, 60, 0);
        push(&mut bench, "in0", &[beyond.clone(), beyond.clone()]);
        beyond[7..9].fill(0xff);
        push(&mut bench, "in0", &[beyond]);
        assert_eq!(inputs(&mut bench), [[2, 0, 0, 2]]);
    }

    #[test]
    fn the_port_sleeps_while_there_is_nothing_and_wakes() {
        let mut bench = bench("", "to :: ToDevice(null:x, BURST 256)");
        for sent in 1..4 {
            push(&mut bench, "in0", &vec![frame(0, 60, 0); 100]);
            bench.run(10);
            assert_eq!(bench.read("to.count"), (sent * 100).to_string());
            assert!(!bench.graph().context().has_awake_tasks());
        }
    }

    #[test]
    fn mistakes() {
        let error = |arguments: &str| {
            let config = format!(
                "f :: Fabric(\"mesh(3)\", 1); i :: TestInput -> FabricShare({arguments}) -> out :: TestOutput;"
            );
            Bench::try_new(&registry(), &config, 32, &Shared::default()).unwrap_err()
        };
        assert!(error("f, CAPACITY 0").contains("CAPACITY: expected 1 to 1048576 packets, got 0"));
        assert!(error("g").contains("FABRIC: expected the name of a Fabric element, got 'g'"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn nothing_is_lost_and_each_node_keeps_its_order(
            capacity in 1..400_usize,
            steps in prop::collection::vec((0..4_usize, 0..120_usize), 1..20),
        ) {
            let mut bench = bench(&format!(", CAPACITY {capacity}"), PULLED);
            let mut pushed = 0_u16;
            let mut out = Vec::new();
            for (what, count) in steps {
                if what == 3 {
                    bench.pull("out", count);
                    out.extend(bench.taken("out"));
                    continue;
                }
                let numbered = (0..count).map(|_| {
                    let mut frame = frame(what as u16, 60, what as u8);
                    pushed += 1;
                    frame[30..32].copy_from_slice(&pushed.to_be_bytes());
                    frame
                });
                let frames: Vec<Vec<u8>> = numbered.collect();
                push(&mut bench, ["in0", "in1", "own"][what], &frames);
                let waits: usize = bench.read("e.length").parse().unwrap();
                prop_assert!(waits <= capacity);
            }
            while bench.pull("out", 256) > 0 {}
            out.extend(bench.taken("out"));
            let drops = bench.drops("e", "output is overloaded") as usize;
            prop_assert_eq!(out.len() + drops, usize::from(pushed));
            let mut last = [0; 3];
            for frame in out {
                let number = u16::from_be_bytes([frame[30], frame[31]]);
                prop_assert!(std::mem::replace(&mut last[usize::from(frame[20])], number) < number);
            }
        }
    }
}
