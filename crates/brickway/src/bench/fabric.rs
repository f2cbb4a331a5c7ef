//! `brickway bench fabric`: what a packet costs each node of a cluster, by its role, beside routing alone.
//!
//! The cluster is a full mesh of four. Frames come out of memory and are freed behind the last port, as in `bench forward`:
//!
//! - *routing* is the graph of `brickway run PORT...`, which does all there is to do in one server;
//! - the *input* node does the same for packets that leave by other nodes' ports, and chooses their paths;
//! - a *relay* is the intermediate node of packets between two others;
//! - the *output* node gives packets their next hop's header.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use elements::fabric::FabricAdjacencies;
use elements::lookup::ForwardingTables;
use fabric::{Header, Kind, Label, NodeId};
use fib::publish::pair;
use fib::read::Row;
use fib::{Adjacency, Fib, MAIN, NextHop, Policy, Route};
use graph::lang::Source;
use graph::setup::Shared;
use packet::cycles;
use packet::flow::FlowHash;
use ports::{MemoryLoop, Port};

use super::frames::port_mac;
use super::single_core::{ROUTER_PORTS, SingleCore};
use super::{drop_in, frames, median, print_figure, routes};
use crate::output::{say, say_line};
use crate::table::{Align, Table};

/// Measures the roles of a cluster's nodes in memory: TSC cycles a packet, in all and as a share of routing's.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway bench fabric                      the real table; 1, 4096 and 65536 destinations
  brickway bench fabric --dests 4096 --json

share is in percent of what routing costs in the same run: input, output and memory included, and without these two.")]
pub(crate) struct FabricArguments {
    /// The real table
    #[arg(long, default_value = "data/rib-v4.txt.gz", value_name = "FILE")]
    table: PathBuf,
    /// Numbers of different destination addresses
    #[arg(long, value_delimiter = ',', default_values_t = [1usize, 4096, 65536])]
    dests: Vec<usize>,
    /// Packets taken from the port at a time, 1 to 256
    #[arg(long, default_value_t = 32)]
    burst: usize,
    /// Frame size in bytes, without frame check sequence
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Seconds for each run
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Runs of each case; the median is printed
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

const CLUSTER: u16 = 1;
/// Nodes of the mesh, and the node that is measured.
const NODES: u16 = 4;
const HERE: u16 = 0;
/// Neighbours, each with a label of its own: as many as routing has in the same bench.
const LABELS: u32 = ROUTER_PORTS as u32 - 1;

pub(crate) fn fabric(arguments: &FabricArguments) -> Result<ExitCode> {
    if !(1..=packet::MAX_BATCH).contains(&arguments.burst) || !(60..=1514).contains(&arguments.size) {
        bail!("--burst takes 1 to {}, --size 60 to 1514", packet::MAX_BATCH);
    }
    if arguments.dests.contains(&0) || arguments.runs == 0 || !(0.01..=60.0).contains(&arguments.seconds) {
        bail!("--dests and --runs take 1 or more, --seconds 0.01 to 60");
    }
    let rows = routes::real(&arguments.table)?;
    if !arguments.json {
        say_line!(
            "{}-byte frames, bursts of {}, one core, TSC at {:.2} GHz; medians of {} runs of {} s\n",
            arguments.size,
            arguments.burst,
            cycles::per_second() / 1e9,
            arguments.runs,
            arguments.seconds
        );
    }
    let mut table = Table::new(&[
        ("destinations", Align::Right),
        ("role", Align::Left),
        ("cycles/packet", Align::Right),
        ("share %", Align::Right),
        ("graph", Align::Right),
        ("share %", Align::Right),
    ]);
    let alone = drop_in::fib(&rows)?;
    let spread = cluster_fib(&rows)?;
    for &dests in &arguments.dests {
        let figures = case(arguments, &rows, &alone, &spread, dests)
            .with_context(|| format!("{dests} destinations"))?;
        let routing = figures[1].1;
        let io = figures[0].1;
        for (role, in_all) in figures {
            let (share, graph) = (in_all / routing * 100.0, in_all - io);
            let graph_share = graph / (routing - io) * 100.0;
            if arguments.json {
                let case = format!("{role}/dests={dests}");
                print_figure("fabric", &case, "cycles_per_packet", in_all, "TSC cycles");
                print_figure("fabric", &case, "share_of_routing", share, "percent");
                print_figure("fabric", &case, "graph_share_of_routing", graph_share, "percent");
                continue;
            }
            table.row([
                crate::table::thousands(dests as u64),
                role.to_owned(),
                format!("{in_all:.1}"),
                format!("{share:.0}"),
                format!("{graph:.1}"),
                format!("{graph_share:.0}"),
            ]);
        }
    }
    if !arguments.json {
        say!("{}", table.render());
    }
    Ok(ExitCode::SUCCESS)
}

/// Each role's cycles a packet, with those of input and output alone first and of routing second, all in one run.
fn case(
    arguments: &FabricArguments,
    rows: &[Row],
    alone: &Fib<Adjacency>,
    spread: &Fib<Adjacency>,
    dests: usize,
) -> Result<Vec<(&'static str, f64)>> {
    let templates = frames::templates(rows, dests, arguments.size);
    let burst = arguments.burst;
    let looped = Box::new(MemoryLoop::new(templates.clone()));
    let mut roles = vec![
        ("input and output", SingleCore::minimal(looped, Some(null()?), burst, burst)?),
        ("routing", drop_in::router(ports(templates.clone())?, alone, burst)?),
        ("input node", node(ports(templates.clone())?, spread, burst, INPUT)?),
        ("relay", node(ports(on_their_way(&templates, Some(HERE)))?, spread, burst, LINK)?),
        ("output node", node(ports(on_their_way(&templates, None))?, spread, burst, LINK)?),
    ];
    for (_, role) in &mut roles {
        role.run(arguments.seconds.min(0.2));
        role.reset_stats();
    }
    let mut figures = vec![Vec::new(); roles.len()];
    for _ in 0..arguments.runs {
        for ((_, role), figures) in roles.iter_mut().zip(&mut figures) {
            figures.push(role.run(arguments.seconds).cycles_per_packet());
        }
    }
    for (name, role) in &mut roles {
        role.checked_stats().with_context(|| format!("role {name}"))?;
    }
    Ok(roles.into_iter().zip(figures).map(|((role, _), figures)| (role, median(figures))).collect())
}

fn null() -> Result<Box<dyn Port>> {
    Ok(ports::open("null:", &ports::OpenOptions::default())?)
}

fn ports(templates: Vec<Vec<u8>>) -> Result<[Box<dyn Port>; ROUTER_PORTS]> {
    Ok([Box::new(MemoryLoop::new(templates)), null()?, null()?, null()?])
}

fn node_id(number: u16) -> NodeId {
    NodeId::new(number).expect("a mesh of four has these")
}

/// Routes of the table over neighbours behind the other nodes' ports, chosen by the route's origin.
fn cluster_fib(rows: &[Row]) -> Result<Fib<Adjacency>> {
    let mut fib = Fib::new()?;
    let mut edit = fib.edit();
    let mut next_hops = Vec::new();
    for label in 0..LABELS {
        let output = node_id(1 + (label % u32::from(NODES - 1)) as u16);
        let label = Label::new(label).context("labels have 20 bits")?;
        let header = Header::new(Kind::Routed, output, label, node_id(HERE), CLUSTER).bytes();
        let rewrite = [&header[..], &[8, 0]].concat();
        // The port behind this node's own.
        let adjacency = Adjacency::new(1, &rewrite).context("an adjacency holds a fabric header")?;
        next_hops.push(edit.next_hops().add(NextHop::Forward(adjacency))?);
    }
    for row in rows {
        let next_hop = next_hops[row.origin as usize % next_hops.len()];
        edit.replace(MAIN, row.prefix.into(), Route::to(next_hop))?;
    }
    edit.publish();
    Ok(fib)
}

/// The packets of `templates` as they come by a link: over `via` to the two other nodes, or to this node.
fn on_their_way(templates: &[Vec<u8>], via: Option<u16>) -> Vec<Vec<u8>> {
    let frames = templates.iter().zip(0_u32..).map(|(template, number)| {
        let output = if via.is_some() { 2 + (number % 2) as u16 } else { HERE };
        // As scattered as the neighbours of a table's routes.
        let label = number.wrapping_mul(0x9e37_79b1) % LABELS;
        let label = Label::new(label).expect("labels have 20 bits");
        let mut header = Header::new(Kind::Routed, node_id(output), label, node_id(1), CLUSTER);
        header.via = via.map(node_id);
        header.entropy = (FlowHash::default().of(template) >> 24) as u8;
        [&header.bytes()[..], &template[Header::LEN..]].concat()
    });
    frames.collect()
}

/// A node of the mesh with a part of its graph. Frames come by the first port.
fn node(
    ports: [Box<dyn Port>; ROUTER_PORTS],
    fib: &Fib<Adjacency>,
    burst: usize,
    role: &str,
) -> Result<SingleCore> {
    let shared = Shared::default();
    let (_, policies) = pair(Policy::default(), Policy::default());
    let names = vec!["bench0".into(), "fabric".into()];
    let tables = ForwardingTables { ports: names, readers: fib.readers().clone(), policies };
    shared.get_or_make(ForwardingTables::KEY, || Ok::<_, anyhow::Error>(tables))?;
    let neighbour = |label: u32| {
        let [.., high, low] = label.to_be_bytes();
        Some(Adjacency::ethernet(0, [2, 0, 0, 1, high, low], port_mac(0).0, [8, 0]))
    };
    let known: Vec<Option<Adjacency>> = (0..LABELS).map(neighbour).collect();
    let (_, readers) = pair(known.clone(), known);
    let adjacencies = FabricAdjacencies { ports: vec!["bench0".into()], readers };
    shared.get_or_make(FabricAdjacencies::KEY, || Ok::<_, anyhow::Error>(adjacencies))?;
    let text = format!("{COMMON}{role}");
    let source = Source { name: "node.click".into(), text };
    SingleCore::build(&source, Vec::new(), burst, ports.into_iter(), &shared)
}

/// No limits: what is measured is the work.
const COMMON: &str = "\
fabric :: Fabric(\"mesh(4)\", 0, CLUSTER 1, RATE 1000Gbps, LINK_RATE 1000Gbps, HELLO 0);
";

/// As in the graph of `brickway run PORT...`, with the fabric in place of other ports.
const INPUT: &str = "\
FromDevice(bench0) -> HostEtherFilter(02:00:00:00:00:01) -> kind :: Classifier(12/0800, 12/86dd, -);
kind[0] -> Paint(1) -> Strip(14) -> CheckIPHeader -> rt4 :: FIBLookup(bench0, fabric);
kind[1] -> Paint(1) -> Strip(14) -> CheckIP6Header -> rt6 :: FIBLookup6(bench0, fabric);
kind[2] -> Discard;
to :: ToFabric(fabric);
to[0] -> ToDevice(bench1);  to[1] -> ToDevice(bench2);  to[2] -> ToDevice(bench3);
rt4[1] -> DropBroadcasts -> CheckLength(1500) -> DecIPTTL -> UnstripToMACHeader -> to;
rt6[1] -> DropBroadcasts -> CheckLength(1500) -> DecIP6HLIM -> UnstripToMACHeader -> to;
rt4[0], rt6[0] => Discard, Discard;
";

/// Frames come by the link to node 1; the outer port is never used by a relay.
const LINK: &str = "\
FromDevice(bench0) -> from :: FromFabric(fabric, 0, bench0);
from[0] -> ToDevice(bench1);  from[1] -> ToDevice(bench2);  from[2] -> ToDevice(bench3);
from[3], from[4], from[5] => Discard, Discard, Discard;  from[6] -> ToDevice(bench0);
";
