//! `brickway-lab bench cluster`: what N servers that act as one router forward, beside one server.
//!
//! Every node is whole: its graph takes frames from its own port, routes them by the real table, and sends them out by its own port or
//! into the fabric; and it relays for others. Each node has a thread on a CPU of its own, links are rings in memory.
//!
//! A packet passes one node's graph when it leaves where it came in, two when it goes to its output node directly, three over
//! an intermediate node: the work c that one server alone does once. RouteBricks (SOSP 2009, section 3.2) builds on c being 2 to 3.

mod nodes;

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clap::Args;
use fabric::Mode;
use fib::read::Row;
use fib::{Adjacency, Fib};
use packet::cycles;

use self::nodes::{Nodes, Run};
use super::example::null;
use super::mesh::{self, Joint, LABELS};
use super::runs::{FrameArguments, RunArguments, check_destinations};
use super::single_core::SingleCore;
use super::{cpus, drop_in, frames, median, print_figure, routes};
use crate::progress;
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Measures a cluster of whole nodes in memory, one CPU each: rate in all, beside one router's, and work for each packet.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench cluster                          1 to as many nodes as there are CPUs
  brickway-lab bench cluster --nodes 4 --modes direct-vlb
  brickway-lab bench cluster --nodes 4 --cpus 1       on a busy machine: nodes never wait for each other's CPU
  brickway-lab bench cluster --nodes 1..8 --seconds 1 --json

Traffic:
  apart      routers that are not joined, the ideal of these CPUs
  uniform    each node's packets go to all nodes alike, itself included
  neighbour  all packets of a node go to the next one, the worst case for direct ways

Column 'x one' is the rate over one router's in the same run. c is the number of nodes that a packet passes: 1 if it is local, 2 if it goes
directly, 3 if it is relayed. 1/c, in percent, is each node's share of one router's rate, if all passes cost the same.
Short runs before find R, up to which traffic goes directly: a tenth more than the input of a node in these runs.
Nodes beyond the CPUs take turns on them. Rates are packets in the CPU time of one node, as if each had a CPU. The cost of
bringing packets from one CPU's cache to another's is not in them.")]
pub(crate) struct ClusterArguments {
    /// Number of nodes, or the first and the last one as in 1..4 (default: 1 to the number of CPUs)
    #[arg(long, value_name = "N|A..B")]
    nodes: Option<Span>,
    /// CPUs to use (default: all). With fewer CPUs nodes take turns
    #[arg(long)]
    cpus: Option<usize>,
    /// How nodes choose paths
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = mode,
          default_value = "direct-vlb,classic-vlb,single-path")]
    modes: Vec<Mode>,
    /// Number of different destination addresses
    #[arg(long, default_value_t = 4096)]
    dests: usize,
    #[command(flatten)]
    frames: FrameArguments,
    #[command(flatten)]
    run: RunArguments,
}

/// Most nodes: a link between any two is a ring that has room for the frames of all.
const MOST: usize = 32;

/// First and last number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span(usize, usize);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.parse().ok().filter(|number| (1..=MOST).contains(number));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first, last)),
            _ => Err(format!("expected a number of nodes from 1 to {MOST}, or two as in 1..4")),
        }
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    let known = Mode::NAMES.iter().find(|(name, _)| *name == text);
    known
        .map(|&(_, mode)| mode)
        .ok_or_else(|| "expected direct-vlb, direct-vlb-others, classic-vlb or single-path".to_owned())
}

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    Uniform,
    Neighbour,
}

impl Traffic {
    const ALL: [(&'static str, Traffic); 2] =
        [("uniform", Traffic::Uniform), ("neighbour", Traffic::Neighbour)];

    /// The neighbours that packets of the node `here` go to.
    fn neighbours(self, here: usize, nodes: usize) -> Vec<(usize, u32)> {
        let outputs = match self {
            Traffic::Uniform => (0..nodes).collect(),
            Traffic::Neighbour => vec![(here + 1) % nodes],
        };
        outputs.into_iter().flat_map(|output| (0..LABELS).map(move |label| (output, label))).collect()
    }
}

/// What the benches of one number of nodes share.
struct Bench<'a> {
    arguments: &'a ClusterArguments,
    templates: Vec<Vec<u8>>,
    alone: Fib<Adjacency>,
    cpus: Vec<usize>,
}

/// A case: its names, and its runs.
struct Case {
    traffic: &'static str,
    mode: &'static str,
    /// Tables by node, and how the nodes are joined; `None`: apart.
    joint: Option<(usize, Joint)>,
    runs: Vec<Run>,
}

/// R is so many times what a node brings in, so that even traffic always finds room on its direct ways.
const HEADROOM: f64 = 1.1;

pub(crate) fn cluster(arguments: &ClusterArguments) -> Result<ExitCode> {
    arguments.run.check()?;
    arguments.frames.check()?;
    check_destinations(&[arguments.dests])?;
    let mut cpus = cpus::allowed();
    if let Some(wanted) = arguments.cpus {
        if !(1..=cpus.len()).contains(&wanted) {
            bail!("--cpus {wanted} is out of range: this program may use {}", cpus.len());
        }
        cpus.truncate(wanted);
    }
    let Span(first, last) = arguments.nodes.unwrap_or(Span(1, cpus.len().min(MOST)));
    let rows = routes::real(&arguments.frames.table)?;
    let templates = frames::templates(&rows, arguments.dests, arguments.frames.size);
    let bench = Bench { arguments, templates, alone: drop_in::fib(&rows)?, cpus };

    let what = format!("{}-byte frames, {} destinations", arguments.frames.size, arguments.dests);
    arguments.run.say_heading("cluster", &what, &format!("{} CPUs", bench.cpus.len()));
    let mut table = Table::new(&[
        ("nodes", Align::Right),
        ("traffic", Align::Left),
        ("mode", Align::Left),
        ("Mpps", Align::Right),
        ("a node", Align::Right),
        ("x one", Align::Right),
        ("% a node", Align::Right),
        ("1/c %", Align::Right),
        ("c", Align::Right),
        ("local %", Align::Right),
        ("direct %", Align::Right),
        ("relayed %", Align::Right),
        ("lost", Align::Right),
    ]);
    for nodes in first..=last {
        let (one, cases) = bench.measure(&rows, nodes)?;
        for case in &cases {
            report(arguments, &mut table, nodes, one, case);
        }
    }
    let link = bench.link()?;
    progress::clear();
    if arguments.run.json {
        for (metric, value, unit) in link {
            print_figure("cluster", "link", metric, value, unit);
        }
        return Ok(ExitCode::SUCCESS);
    }
    say!("{}", table.render());
    let [(_, mpps, _), (_, cycles, _), (_, memory, _)] = link;
    say_line!(
        "\nA link carries {mpps:.1} Mpps: {cycles:.1} cycles a packet at its slower end, where in and out of memory alone takes {memory:.1}."
    );
    if last > bench.cpus.len() {
        say_line!("{last} nodes take turns on {} CPUs: rates are for a CPU each.", bench.cpus.len());
    }
    Ok(ExitCode::SUCCESS)
}

impl Bench<'_> {
    /// The rate of one router alone, and the cases of so many nodes, all in turns.
    fn measure(&self, rows: &[Row], nodes: usize) -> Result<(f64, Vec<Case>)> {
        let run = &self.arguments.run;
        let mut cases = vec![Case { traffic: "apart", mode: "-", joint: None, runs: Vec::new() }];
        let mut tables = Vec::new();
        for (name, traffic) in Traffic::ALL.into_iter().filter(|_| nodes > 1) {
            progress::tell("bench cluster", &format!("tables of {nodes} nodes, traffic {name}"));
            let fib = |here| mesh::fib(rows, here, &traffic.neighbours(here, nodes));
            tables.push((0..nodes).map(fib).collect::<Result<Vec<_>>>()?);
            for &(mode, _) in Mode::NAMES.iter().filter(|(_, mode)| self.arguments.modes.contains(mode)) {
                cases.push(Case { traffic: name, mode, joint: None, runs: Vec::new() });
            }
        }
        let one = self.nodes(&tables, 1, None)?.run(&self.cpus[..1], run.seconds.min(0.1))?.clock_rate;
        for case in &mut cases {
            self.find_rate(&tables, nodes, case, one).with_context(|| case.name(nodes))?;
        }
        let mut ones = Vec::new();
        for number in 1..=run.runs {
            ones.push(self.nodes(&tables, 1, None)?.run(&self.cpus[..1], run.seconds)?.rate);
            for case in &mut cases {
                let name = case.name(nodes);
                progress::tell("bench cluster", &format!("run {number} of {}, {name}", run.runs));
                let mut cluster = self.nodes(&tables, nodes, case.joint).with_context(|| name.clone())?;
                case.runs.push(cluster.run(&self.cpus, run.seconds).with_context(|| name)?);
            }
        }
        Ok((median(ones), cases))
    }

    /// Joins the nodes of a case at the rate that they then bring in, if it is one of nodes that are joined.
    fn find_rate(
        &self,
        tables: &[Vec<Fib<Adjacency>>],
        nodes: usize,
        case: &mut Case,
        one: f64,
    ) -> Result<()> {
        let Some(traffic) = Traffic::ALL.iter().position(|(name, _)| *name == case.traffic) else {
            return Ok(());
        };
        let mode = self::mode(case.mode).map_err(anyhow::Error::msg)?;
        let bytes = self.arguments.frames.size as f64 * HEADROOM;
        let mut rate = one / 2.0 * bytes;
        for _ in 0..2 {
            let mut cluster = self.nodes(tables, nodes, Some((traffic, Joint { mode, rate })))?;
            let found = cluster.run(&self.cpus, self.arguments.run.seconds.min(0.1))?;
            rate = found.clock_rate / nodes as f64 * bytes;
        }
        if rate < 1.0 {
            bail!("nothing goes through");
        }
        case.joint = Some((traffic, Joint { mode, rate }));
        Ok(())
    }

    fn nodes(
        &self,
        tables: &[Vec<Fib<Adjacency>>],
        nodes: usize,
        joint: Option<(usize, Joint)>,
    ) -> Result<Nodes> {
        let burst = self.arguments.run.burst;
        if let Some((traffic, joint)) = joint {
            return Nodes::mesh(&self.templates, &tables[traffic], burst, joint);
        }
        Nodes::apart(&self.templates, nodes, |own| {
            drop_in::router([own, null()?, null()?, null()?], &self.alone, burst)
        })
    }

    /// What a link carries and costs: metric, value, unit.
    fn link(&self) -> Result<[(&'static str, f64, &'static str); 3]> {
        let run = &self.arguments.run;
        let (mut rates, mut memory) = (Vec::new(), Vec::new());
        for number in 1..=run.runs {
            progress::tell("bench cluster", &format!("run {number} of {}, link", run.runs));
            rates.push(Nodes::link(&self.templates, run.burst)?.run(&self.cpus, run.seconds)?.rate);
            let mut alone = Nodes::apart(&self.templates, 1, |own| {
                SingleCore::minimal(own, Some(null()?), run.burst, run.burst)
            })?;
            memory.push(alone.run(&self.cpus[..1], run.seconds)?.rate);
        }
        let (rate, memory) = (median(rates), median(memory));
        Ok([
            ("mpps", rate / 1e6, "Mpps"),
            ("cycles_per_packet", cycles::per_second() / rate, "TSC cycles"),
            ("without_link_cycles_per_packet", cycles::per_second() / memory, "TSC cycles"),
        ])
    }
}

impl Case {
    fn name(&self, nodes: usize) -> String {
        let mode =
            if self.joint.is_some() || self.mode != "-" { format!("/{}", self.mode) } else { String::new() };
        format!("nodes={nodes}/{}{mode}", self.traffic)
    }
}

fn report(arguments: &ClusterArguments, table: &mut Table, nodes: usize, one: f64, case: &Case) {
    let rate = median(case.runs.iter().map(|run| run.rate).collect());
    let sum = |part: fn(&Run) -> u64| case.runs.iter().map(part).sum::<u64>();
    let entered = sum(|run| run.counts.entered).max(1) as f64;
    let percent = |packets: u64| packets as f64 / entered * 100.0;
    let (direct, relayed) = (percent(sum(|run| run.counts.direct)), percent(sum(|run| run.counts.relayed)));
    let local = 100.0 - direct - relayed;
    let passes = (entered + sum(|run| run.counts.carried) as f64) / sum(|run| run.counts.left).max(1) as f64;
    let lost = sum(|run| run.lost);
    let each = rate / nodes as f64;
    if arguments.run.json {
        let print = |metric, value, unit| print_figure("cluster", &case.name(nodes), metric, value, unit);
        print("mpps", rate / 1e6, "Mpps");
        print("mpps_per_node", each / 1e6, "Mpps");
        print("one_router_mpps", one / 1e6, "Mpps");
        print("speedup", rate / one, "ratio");
        print("passes_per_packet", passes, "nodes");
        print("local", local, "percent");
        print("direct", direct, "percent");
        print("relayed", relayed, "percent");
        print("lost", lost as f64, "packets");
        return;
    }
    table.row([
        nodes.to_string(),
        case.traffic.to_owned(),
        case.mode.to_owned(),
        format!("{:.1}", rate / 1e6),
        format!("{:.1}", each / 1e6),
        format!("{:.2}", rate / one),
        format!("{:.0}", each / one * 100.0),
        format!("{:.0}", 100.0 / passes),
        format!("{passes:.2}"),
        format!("{local:.0}"),
        format!("{direct:.0}"),
        format!("{relayed:.0}"),
        router::table::thousands(lost),
    ]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn spans() {
        assert_eq!("1..4".parse(), Ok(Span(1, 4)));
        assert_eq!("3".parse(), Ok(Span(3, 3)));
        for wrong in ["0", "4..1", "1..33", "1..", "many"] {
            assert!(wrong.parse::<Span>().unwrap_err().contains("1 to 32"), "{wrong}");
        }
    }

    /// One route for each node's neighbours, and a cluster of them on two threads at most.
    fn run(nodes: usize, mode: Mode, traffic: Traffic) -> Run {
        let rows: Vec<Row> = (0..12_u32)
            .map(|number| {
                let network = std::net::Ipv4Addr::from(0x1400_0000 + (number << 24));
                Row { prefix: ipnet::Ipv4Net::new_assert(network, 8), origin: number }
            })
            .collect();
        let templates = frames::templates(&rows, 240, 64);
        let fib = |here| mesh::fib(&rows, here, &traffic.neighbours(here, nodes)).unwrap();
        let fibs: Vec<_> = (0..nodes).map(fib).collect();
        let mut cluster = Nodes::mesh(&templates, &fibs, 32, Joint { mode, rate: 1e12 }).unwrap();
        cluster.run(&cpus::allowed()[..1], 0.05).unwrap()
    }

    #[test]
    fn all_that_enters_leaves_and_is_counted_where_it_passes() {
        for nodes in [2, 4] {
            for (_, mode) in Mode::NAMES {
                for (name, traffic) in Traffic::ALL {
                    let Run { counts, lost, .. } = run(nodes, mode, traffic);
                    let case = format!("{nodes} nodes, {mode:?}, {name}: {counts:?}");
                    assert_eq!(lost, 0, "{case}");
                    assert!(counts.left > 0, "{case}");
                    let fabric = counts.direct + counts.relayed;
                    // What is on its way when the time begins and ends.
                    let most = (2 * nodes * nodes * 1024) as u64;
                    assert!(counts.entered.abs_diff(counts.left) <= most, "{case}");
                    assert!(counts.carried.abs_diff(fabric + counts.relayed) <= most, "{case}");
                    match (traffic, mode) {
                        (Traffic::Neighbour, _) => assert!(counts.entered.abs_diff(fabric) <= most, "{case}"),
                        (Traffic::Uniform, _) => assert!(fabric < counts.entered, "{case}"),
                    }
                    if mode == Mode::ClassicVlb && nodes > 2 {
                        assert_eq!(counts.direct, 0, "{case}");
                    } else if mode == Mode::SinglePath || nodes == 2 {
                        assert_eq!(counts.relayed, 0, "{case}");
                    }
                }
            }
        }
    }
}
