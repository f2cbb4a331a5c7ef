//! Nodes of a full mesh for benches: their tables, graphs and cables, over ports in memory.

use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use elements::fabric::FabricAdjacencies;
use elements::lookup::{Asker, ForwardingTables};
use fabric::{Header, Kind, Label, Mode, NodeId};
use fib::publish::pair;
use fib::read::Row;
use fib::{Adjacency, Fib, MAIN, NextHop, Policy};
use graph::graph::GraphOptions;
use graph::lang::Source;
use graph::setup::Shared;
use ports::{OpenOptions, Port};

use super::frames::port_mac;
use super::single_core::{ROUTER_PORTS, SingleCore};

pub(super) const CLUSTER: u16 = 1;

/// Neighbours of each node, with a label each: as many as routing has in the same bench.
pub(super) const LABELS: u32 = ROUTER_PORTS as u32 - 1;

/// What a node does with packets from its own port bench0: as the graph of `brickway run PORT...`, with the fabric in place of other
/// ports.
pub(super) const ROUTING: &str = "\
FromDevice(bench0) -> HostEtherFilter(02:00:00:00:00:01) -> kind :: Classifier(12/0800, 12/86dd, -);
kind[0] -> Paint(1) -> Strip(14) -> CheckIPHeader -> rt4 :: FIBLookup(bench0, fabric);
kind[1] -> Paint(1) -> Strip(14) -> CheckIP6Header -> rt6 :: FIBLookup6(bench0, fabric);
kind[2] -> Discard;
to :: ToFabric(fabric);
rt4[1] -> DropBroadcasts -> CheckLength(1500) -> DecIPTTL -> UnstripToMACHeader -> to;
rt6[1] -> DropBroadcasts -> CheckLength(1500) -> DecIP6HLIM -> UnstripToMACHeader -> to;
";

pub(super) fn node_id(number: usize) -> NodeId {
    u16::try_from(number).ok().and_then(NodeId::new).expect("a mesh of a bench has these")
}

pub(super) fn label(number: u32) -> Label {
    Label::new(number).expect("labels have 20 bits")
}

/// The header of the neighbour behind a label, as its node gives it to packets.
fn neighbour(label: u32) -> Adjacency {
    let [.., high, low] = label.to_be_bytes();
    Adjacency::ethernet(0, [2, 0, 0, 1, high, low], port_mac(0).0, [8, 0])
}

/// Routes of the table at `here` over neighbours of other nodes and its own, chosen by the route's origin.
pub(super) fn fib(rows: &[Row], here: usize, neighbours: &[(usize, u32)]) -> Result<Fib<Adjacency>> {
    let mut fib = Fib::new()?;
    let mut next_hops = Vec::new();
    for &(output, number) in neighbours {
        let adjacency = if output == here {
            neighbour(number)
        } else {
            let header = Header::new(Kind::Routed, node_id(output), label(number), node_id(here), CLUSTER);
            // The port behind this node's own.
            Adjacency::new(1, &[&header.bytes()[..], &[8, 0]].concat())
                .context("an adjacency holds a fabric header")?
        };
        next_hops.push(fib.next_hops_mut().add(NextHop::Forward(adjacency))?);
    }
    for row in rows {
        let next_hop = next_hops[row.origin as usize % next_hops.len()];
        fib.replace(MAIN, row.prefix.into(), next_hop)?;
    }
    fib.publish();
    Ok(fib)
}

/// The graph of a node whose own port is bench0.
pub(super) fn node(
    ports: impl Iterator<Item = Box<dyn Port>>,
    fib: &Fib<Adjacency>,
    options: &GraphOptions,
    text: String,
) -> Result<SingleCore> {
    let shared = Shared::default();
    let (_, policies) = pair(Policy::default(), Policy::default());
    let names = vec!["bench0".into(), "fabric".into()];
    let tables = ForwardingTables {
        ports: names,
        readers: fib.readers().clone(),
        policies,
        paths: Default::default(),
        ask: Asker::default(),
    };
    shared.get_or_make(ForwardingTables::KEY, || Ok::<_, anyhow::Error>(tables))?;
    let known: Vec<Option<Adjacency>> = (0..LABELS).map(|label| Some(neighbour(label))).collect();
    let (_, readers) = pair(known.clone(), known);
    let adjacencies = FabricAdjacencies { ports: vec!["bench0".into()], readers };
    shared.get_or_make(FabricAdjacencies::KEY, || Ok::<_, anyhow::Error>(adjacencies))?;
    let source = Source { name: "node.click".into(), text };
    SingleCore::build_with(&source, Vec::new(), options, ports, &shared)
}

/// How nodes are joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joint {
    pub(super) mode: Mode,
    /// R, in bytes a second.
    pub(super) rate: f64,
}

/// The graph of a node with its own port bench0 and links from bench1 on.
pub(super) fn node_text(here: usize, nodes: usize, links: usize, joint: Joint) -> Result<String> {
    let mode = Mode::NAMES.iter().find(|(_, mode)| *mode == joint.mode).map_or("", |(name, _)| name);
    let rate = joint.rate;
    // What the theory asks for and a little more, so that flows spread; what draws among others only needs more.
    let share = if joint.mode == Mode::DirectVlb { 2.1 / nodes as f64 } else { 2.0 };
    let link_rate = rate * share;
    let routing = ROUTING.replacen("FromDevice(bench0)", "entrance :: FromDevice(bench0)", 1);
    let mut text = format!(
        "fabric :: Fabric(\"mesh({nodes})\", {here}, CLUSTER {CLUSTER}, RATE {rate:.0}, LINK_RATE {link_rate:.0}, \
         MODE {mode}, HELLO 0);
{routing}exit :: ToDevice(bench0);
rt4[0] -> DropBroadcasts -> CheckLength(1500) -> DecIPTTL -> UnstripToMACHeader -> exit;
rt6[0] -> DropBroadcasts -> CheckLength(1500) -> DecIP6HLIM -> UnstripToMACHeader -> exit;
"
    );
    for link in 0..links {
        writeln!(text, "link{link} :: ToDevice(bench{});  to[{link}] -> link{link};", link + 1)?;
    }
    for from in 0..links {
        writeln!(text, "FromDevice(bench{}) -> from{from} :: FromFabric(fabric, {from}, bench0);", from + 1)?;
        for link in 0..links {
            writeln!(text, "from{from}[{link}] -> link{link};")?;
        }
        for nobody in links..links + 3 {
            writeln!(text, "from{from}[{nobody}] -> Discard;")?;
        }
        writeln!(text, "from{from}[{}] -> exit;", links + 3)?;
    }
    Ok(text)
}

/// Cables in memory, by number.
pub(super) struct Cables {
    /// Unlike that of all other cables of this process.
    name: u32,
    ring: usize,
}

impl Cables {
    pub(super) fn new(ring: usize) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self { name: NEXT.fetch_add(1, Ordering::Relaxed), ring }
    }

    pub(super) fn end(&self, cable: u32, end: usize) -> Result<Box<dyn Port>> {
        let spec = format!("memory:bench{}-{cable}?end={end}&ring={}", self.name, self.ring);
        Ok(ports::open(&spec, &OpenOptions::default())?)
    }
}
