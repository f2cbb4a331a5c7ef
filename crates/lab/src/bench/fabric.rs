//! `brickway-lab bench fabric`: what a packet costs each node of a cluster, by its role, beside routing alone.
//!
//! The cluster is a full mesh of four. Frames come out of memory and are freed behind the last port, as in `bench forward`:
//!
//! - *routing* is the graph of `brickway run PORT...`, which does all there is to do in one server;
//! - the *input* node does the same for packets that leave by other nodes' ports, and chooses their paths;
//! - a *front* leaves routing to the three others; *with classes* rules by port and by prefix say which flows node 3 gets;
//! - a *relay* is the intermediate node of packets between two others;
//! - the *output* node gives packets their next hop's header; *with shares* FabricShare stands before its port.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use fabric::{Header, Kind};
use fib::read::Row;
use fib::{Adjacency, Fib};
use packet::flow::{FlowFields, FlowHash, FlowKey};
use ports::{MemoryLoop, Port};

use super::mesh::{CLUSTER, LABELS, ROUTING, label, node_id};
use super::runs::{DestinationArguments, FrameArguments, RunArguments, check_destinations};
use super::single_core::{ROUTER_PORTS, SingleCore};
use super::{drop_in, frames, median, mesh, print_figure, routes};
use router::output::say;
use router::table::{Align, Table};

/// Measures the roles of a cluster's nodes in memory: TSC cycles a packet, in all and as a share of routing's.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench fabric                      the real table; 1, 4096 and 65536 destinations
  brickway-lab bench fabric --dests 4096 --json

share is in percent of what routing costs in the same run: input, output and memory included, and without these two.")]
pub(crate) struct FabricArguments {
    #[command(flatten)]
    destinations: DestinationArguments,
    #[command(flatten)]
    frames: FrameArguments,
    #[command(flatten)]
    run: RunArguments,
}

/// The node that is measured, of a mesh of four.
const HERE: usize = 0;
/// The neighbours that it sends to.
const NEIGHBOURS: [(usize, u32); LABELS as usize] = [(1, 0), (2, 1), (3, 2)];

pub(crate) fn fabric(arguments: &FabricArguments) -> Result<ExitCode> {
    arguments.run.check()?;
    arguments.frames.check()?;
    check_destinations(&arguments.destinations.dests)?;
    let rows = routes::real(&arguments.frames.table)?;
    arguments.run.say_heading("fabric", &format!("{}-byte frames", arguments.frames.size), "one core");
    let mut table = Table::new(&[
        ("destinations", Align::Right),
        ("role", Align::Left),
        ("cycles/packet", Align::Right),
        ("share %", Align::Right),
        ("graph", Align::Right),
        ("share %", Align::Right),
    ]);
    let alone = drop_in::fib(&rows)?;
    let spread = mesh::fib(&rows, HERE, &NEIGHBOURS)?;
    for &dests in &arguments.destinations.dests {
        let figures = case(arguments, &rows, &alone, &spread, dests)
            .with_context(|| format!("{dests} destinations"))?;
        let routing = figures[1].1;
        let io = figures[0].1;
        for (role, in_all) in figures {
            let (share, graph) = (in_all / routing * 100.0, in_all - io);
            let graph_share = graph / (routing - io) * 100.0;
            if arguments.run.json {
                let case = format!("{role}/dests={dests}");
                print_figure("fabric", &case, "cycles_per_packet", in_all, "TSC cycles");
                print_figure("fabric", &case, "share_of_routing", share, "percent");
                print_figure("fabric", &case, "graph_share_of_routing", graph_share, "percent");
                continue;
            }
            table.row([
                router::table::thousands(dests as u64),
                role.to_owned(),
                format!("{in_all:.1}"),
                format!("{share:.0}"),
                format!("{graph:.1}"),
                format!("{graph_share:.0}"),
            ]);
        }
    }
    if !arguments.run.json {
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
    let templates = frames::templates(rows, dests, arguments.frames.size);
    let burst = arguments.run.burst;
    let looped = Box::new(MemoryLoop::new(templates.clone()));
    let mut roles = vec![
        ("input and output", SingleCore::minimal(looped, Some(null()?), burst, burst)?),
        ("routing", drop_in::router(ports(templates.clone())?, alone, burst)?),
        ("input node", node(ports(templates.clone())?, spread, burst, &format!("{ROUTING}{INPUT}"))?),
        ("front", node(ports(templates.clone())?, spread, burst, &front("1, 2, 3"))?),
        ("front with classes", node(ports(templates.clone())?, spread, burst, &front(CLASSES))?),
        ("relay", node(ports(on_their_way(&templates, Some(HERE)))?, spread, burst, LINK)?),
        ("output node", node(ports(on_their_way(&templates, None))?, spread, burst, LINK)?),
        ("output with shares", node(ports(on_their_way(&templates, None))?, spread, burst, SHARED_LINK)?),
    ];
    for (_, role) in &mut roles {
        role.run(arguments.run.seconds.min(0.2));
        role.reset_stats();
    }
    let mut figures = vec![Vec::new(); roles.len()];
    for _ in 0..arguments.run.runs {
        for ((_, role), figures) in roles.iter_mut().zip(&mut figures) {
            figures.push(role.run(arguments.run.seconds).cycles_per_packet());
        }
    }
    for (name, role) in &mut roles {
        role.checked_stats(false).with_context(|| format!("role {name}"))?;
    }
    Ok(roles.into_iter().zip(figures).map(|((role, _), figures)| (role, median(figures))).collect())
}

fn null() -> Result<Box<dyn Port>> {
    Ok(ports::open("null:", &ports::OpenOptions::default())?)
}

fn ports(templates: Vec<Vec<u8>>) -> Result<[Box<dyn Port>; ROUTER_PORTS]> {
    Ok([Box::new(MemoryLoop::new(templates)), null()?, null()?, null()?])
}

/// The packets of `templates` as they come by a link: over `via` to the two other nodes, or to this node.
fn on_their_way(templates: &[Vec<u8>], via: Option<usize>) -> Vec<Vec<u8>> {
    let frames = templates.iter().zip(0_u32..).map(|(template, number)| {
        let output = if via.is_some() { 2 + number as usize % 2 } else { HERE };
        // As scattered as the neighbours of a table's routes.
        let label = label(number.wrapping_mul(0x9e37_79b1) % LABELS);
        let mut header = Header::new(Kind::Routed, node_id(output), label, node_id(1), CLUSTER);
        header.via = via.map(node_id);
        let hash = FlowHash { fields: FlowFields::Flow, key: FlowKey::from_seed(0) };
        header.entropy = (hash.of(template) >> 24) as u8;
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
    mesh::node(ports.into_iter(), fib, &SingleCore::options(burst), format!("{COMMON}{role}"))
}

/// No limits: what is measured is the work.
const COMMON: &str = "\
fabric :: Fabric(\"mesh(4)\", 0, CLUSTER 1, RATE 1000Gbps, LINK_RATE 1000Gbps, HELLO 0);
";

/// What follows the common part of routing in an input node that has nothing for its own port.
const INPUT: &str = "\
to[0] -> ToDevice(bench1);  to[1] -> ToDevice(bench2);  to[2] -> ToDevice(bench3);
rt4[0], rt6[0] => Discard, Discard;
";

/// A front that divides what comes in among nodes.
fn front(nodes: &str) -> String {
    format!(
        "FromDevice(bench0) -> Paint(1) -> FabricEncap(fabric, to-route, NODE \"{nodes}\") -> to :: ToFabric(fabric);
         to[0] -> ToDevice(bench1);  to[1] -> ToDevice(bench2);  to[2] -> ToDevice(bench3);"
    )
}

/// Nodes of a front with classes.
const CLASSES: &str =
    "1, 2, 3 serves udp any any port 53; udp any port 53 any; tcp any any port 80; any any 32.0.0.0/4";

/// Frames come by the link to node 1; the outer port is never used by a relay.
const LINK: &str = "\
FromDevice(bench0) -> from :: FromFabric(fabric, 0, bench0);
from[0] -> ToDevice(bench1);  from[1] -> ToDevice(bench2);  from[2] -> ToDevice(bench3);
from[3], from[4], from[5] => Discard, Discard, Discard;  from[6] -> ToDevice(bench0);
";

/// The same with FabricShare before the outer port.
const SHARED_LINK: &str = "\
FromDevice(bench0) -> from :: FromFabric(fabric, 0, bench0);
from[0] -> ToDevice(bench1);  from[1] -> ToDevice(bench2);  from[2] -> ToDevice(bench3);
from[3], from[4], from[5] => Discard, Discard, Discard;  from[6] -> FabricShare(fabric) -> ToDevice(bench0);
";
