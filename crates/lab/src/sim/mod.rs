//! `brickway-lab sim`: what a cluster would deliver, lose and reorder, in simulated time.

mod plots;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use fabric::{Mode, NodeId, Shape, Topology};
use graph::FromArgument;
use graph::arguments::Interval;
use pcap_file::pcap::PcapReader;
use serde_json::json;
use sim::plan::Rate;
use sim::{Broken, Costs, Failure, Flows, Matrix, Report, Scenario, Sizes, Ways, simulate};

use crate::progress;
use router::output::{say, say_line};
use router::table::{Align, Table, thousands};

/// Simulates clusters packet by packet, with the decisions of their nodes: every combination of the lists given, several at a time.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab sim                                             four nodes, even traffic and the worst one
  brickway-lab sim --topology 'mesh(64)' --mode direct-vlb,single-path --matrix permutation
  brickway-lab sim --flows heavy --delta 0,1,10,100,1000 --ms 1000
  brickway-lab sim --matrix uniform --fail 'node 2, 30ms, 60ms' --fail 'link 0-1, 80ms'
  brickway-lab sim --topology 'mesh(4)' --topology 'mesh(64)' --matrix uniform,permutation,next --plot nodes.svg
  brickway-lab sim --matrix traffic.txt --json                 a row for each input: shares of R for each output

Without --link links carry 2R/N (in other shapes than mesh and star: R) and a twentieth more. --capacity is the load that a node
can handle in all its roles, in R. Theory asks for 3 in a mesh, and for 2 if traffic is even.

Columns:
  delivered  share of the offered traffic
  late       sequences of a flow's packets that a later packet overtook, as a share of packets
  c          load of a node in all its roles: of the busiest, and the mean
  direct     share of bytes that went directly
  link       use of the busiest link
  p50, p99   time in the cluster of 50 % and 99 % of the packets")]
pub(crate) struct SimArguments {
    /// The topology: mesh(4), star(4), torus(4, 4), fly(2, 3), compact(4), groups(4), cube(4), debruijn(2, 4). May be given several times
    #[arg(long, value_name = "SHAPE", default_value = "mesh(4)")]
    topology: Vec<Shape>,
    /// R, the rate of each node's port
    #[arg(long, default_value = "10G")]
    rate: Rate,
    /// The rate of a link
    #[arg(long)]
    link: Option<Rate>,
    /// Microseconds that a link adds to a packet's way: cable, and a server's time besides handling it (24 for RouteBricks)
    #[arg(long, default_value_t = 1.0)]
    delay: f64,
    /// The load that a node can handle, in R; 0 for any
    #[arg(long, default_value_t = 3.0)]
    capacity: f64,
    /// Who sends how much to whom: uniform, others, permutation, hot-spot, next, adversarial, or a file
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values = ["uniform", "next"])]
    matrix: Vec<String>,
    /// How much of that comes in, in percent
    #[arg(long, default_value_t = 100.0)]
    load: f64,
    /// How paths are chosen: direct-vlb, direct-vlb-others, classic-vlb, single-path
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "direct-vlb")]
    mode: Vec<String>,
    /// How long a flow may pause and keep its path, in ms; 0 for every packet by itself
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "100")]
    delta: Vec<f64>,
    /// Flows from each input to each output: a number, or heavy (many short and few long flows, as on the Internet)
    #[arg(long, default_value = "8")]
    flows: String,
    /// Lengths of packets: imix, bytes, or those of the packets in a pcap file
    #[arg(long, default_value = "imix")]
    size: String,
    /// What breaks, since when, until when: 'node 2, 30ms, 60ms', 'link 0-1, 30ms' both ways, 'link 0>1, 30ms' from 0 to 1 only
    #[arg(long, value_name = "FAILURE")]
    fail: Vec<String>,
    /// Milliseconds that are measured
    #[arg(long, default_value_t = 100.0)]
    ms: f64,
    /// Milliseconds before, that are not
    #[arg(long, default_value_t = 20.0)]
    warm: f64,
    /// Another number, another run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the rows into this SVG file: over topologies, else deltas, matrices or modes
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// A scenario, and what its row says of it.
struct Case {
    matrix: String,
    mode: &'static str,
    delta_ms: f64,
    scenario: Scenario,
}

pub(crate) fn sim(arguments: &SimArguments) -> Result<ExitCode> {
    let cases = cases(arguments)?;
    let scenarios: Vec<Scenario> = cases.iter().map(|case| case.scenario.clone()).collect();
    let reports = run_all(&scenarios)?;
    if arguments.json {
        cases.iter().zip(&reports).for_each(|(case, report)| say_line!("{}", as_json(case, report)));
    } else {
        for table in tables(&cases, &reports) {
            say!("{}\n", table.render());
        }
        say!("{}", remarks(&cases, &reports));
    }
    if let Some(path) = &arguments.plot {
        plots::write(path, &cases, &reports)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Simulates all, as many at a time as there are CPUs, and tells how far it has come.
pub(crate) fn run_all(scenarios: &[Scenario]) -> Result<Vec<Report>> {
    let reports: Vec<Mutex<Option<Report>>> = scenarios.iter().map(|_| Mutex::new(None)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(scenarios.len());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (reports, next, done) = (&reports, &next, &done);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let Some(scenario) = scenarios.get(number) else { break };
                    let report = simulate(scenario, |share| {
                        // One of them speaks for all.
                        if thread == 0 {
                            let (done, all) = (done.load(Ordering::SeqCst), scenarios.len());
                            let text =
                                format!("{done} of {all} done; {}: {:.0} %", scenario.shape, share * 100.0);
                            progress::tell("sim", &text);
                        }
                    });
                    if let Ok(mut place) = reports[number].lock() {
                        *place = Some(report);
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    progress::clear();
    let reports: Vec<Report> =
        reports.into_iter().filter_map(|report| report.into_inner().ok().flatten()).collect();
    if reports.len() != scenarios.len() {
        bail!("a simulation ended early");
    }
    Ok(reports)
}

fn cases(arguments: &SimArguments) -> Result<Vec<Case>> {
    let is_time = |ms: f64| ms.is_finite() && (0.0..=1e6).contains(&ms);
    if !is_time(arguments.ms) || arguments.ms == 0.0 || !is_time(arguments.warm) {
        bail!("--ms takes more than 0, and --warm 0 or more, up to 1000000");
    }
    if !(0.0..=1000.0).contains(&arguments.capacity) {
        bail!("--capacity takes 0 to 1000, in R");
    }
    if !is_time(arguments.delay / 1e3) {
        bail!("--delay takes microseconds from 0 on");
    }
    if !arguments.delta.iter().all(|&delta| is_time(delta)) {
        bail!("--delta takes milliseconds from 0 on");
    }
    let bytes = |rate: Rate| (rate.0 / 8.0) as u64;
    let sizes = sizes(&arguments.size)?;
    // Half of the flows have packets of 1,514 bytes, the others of 66.
    let (flows, mean_bytes) = match arguments.flows.as_str() {
        "heavy" => (Flows::HeavyTailed, 790.0),
        text => {
            let per_pair =
                text.parse().map_err(|_| anyhow!("--flows {text}: heavy, or how many for each pair"))?;
            (Flows::Poisson { per_pair, sizes: sizes.clone() }, sizes.mean())
        }
    };
    let mut cases = Vec::new();
    for shape in &arguments.topology {
        let failures = arguments.fail.iter().map(|text| failure(text, shape)).collect::<Result<Vec<_>>>()?;
        for name in &arguments.matrix {
            let matrix = matrix(name)?;
            for mode in &arguments.mode {
                let known = Mode::NAMES.iter().find(|(known, _)| known == mode);
                let &(mode, mode_itself) = known.ok_or_else(|| {
                    let names = Mode::NAMES.map(|(name, _)| name).join(", ");
                    anyhow!("--mode {mode}: it would be one of {names}")
                })?;
                for &delta_ms in &arguments.delta {
                    let ports_rate = bytes(arguments.rate);
                    let mut scenario = Scenario::new(shape.clone(), ports_rate);
                    if arguments.capacity > 0.0 {
                        scenario.costs =
                            Costs::of_capacity(arguments.capacity * ports_rate as f64, mean_bytes);
                    }
                    if let Some(link) = arguments.link {
                        scenario.link_rate = bytes(link);
                    }
                    scenario.link_delay_ns = (arguments.delay * 1e3) as u64;
                    scenario.mode = mode_itself;
                    scenario.delta_ns = (delta_ms * 1e6) as u64;
                    scenario.matrix = matrix.clone();
                    scenario.load = arguments.load / 100.0;
                    scenario.flows = flows.clone();
                    scenario.failures.clone_from(&failures);
                    scenario.warm_ns = (arguments.warm * 1e6) as u64;
                    scenario.end_ns = scenario.warm_ns + (arguments.ms * 1e6) as u64;
                    scenario.seed = arguments.seed;
                    scenario.check().with_context(|| format!("{shape}, {name}"))?;
                    cases.push(Case { matrix: short(name), mode, delta_ms, scenario });
                }
            }
        }
    }
    Ok(cases)
}

/// Lengths by name, number or file.
fn sizes(text: &str) -> Result<Sizes> {
    if text == "imix" {
        return Ok(Sizes::Imix);
    }
    if let Ok(bytes) = text.parse() {
        return Ok(Sizes::Fixed(bytes));
    }
    let file =
        File::open(text).with_context(|| format!("--size {text}: imix, 1 to 65535 bytes, or a pcap file"))?;
    let explain = || format!("'{text}' is not a pcap file, or is broken");
    let mut reader = PcapReader::new(BufReader::new(file)).with_context(explain)?;
    let mut counts: BTreeMap<u16, f64> = BTreeMap::new();
    while let Some(packet) = reader.next_packet() {
        let bytes = u16::try_from(packet.with_context(explain)?.orig_len).unwrap_or(u16::MAX);
        *counts.entry(bytes.max(1)).or_default() += 1.0;
    }
    if counts.is_empty() {
        bail!("'{text}' has no packets");
    }
    Ok(Sizes::Weighted(counts.into_iter().collect()))
}

/// What rows call a matrix: a file's name without folder and ending.
fn short(name: &str) -> String {
    Path::new(name).file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// A matrix by its name, or out of a file.
fn matrix(name: &str) -> Result<Matrix> {
    if !Path::new(name).exists() {
        return name.parse().map_err(|error| anyhow!("--matrix {name}: {error}"));
    }
    let text = std::fs::read_to_string(name).with_context(|| format!("cannot read the matrix '{name}'"))?;
    text.parse().map_err(|error| anyhow!("{name}: {error}"))
}

/// What breaks, as people write it.
fn failure(text: &str, shape: &Shape) -> Result<Failure> {
    let explain = || {
        anyhow!(
            "--fail '{text}': it would be what, since when and until when, as in 'node 2, 30ms, 60ms', 'link 0-1, 30ms' or 'link 0>1, 30ms'"
        )
    };
    let mut parts = text.split(',').map(str::trim);
    let what = parts.next().ok_or_else(explain)?;
    let time = |part: &str| Interval::from_argument(part).map(|time| time.ns).ok_or_else(explain);
    let from_ns = parts.next().map(time).ok_or_else(explain)??;
    let until_ns = parts.next().map(time).transpose()?.unwrap_or(u64::MAX);
    let node = |number: &str| number.trim().parse().ok().and_then(NodeId::new).ok_or_else(explain);
    let broken = match what.split_once(' ') {
        Some(("node", number)) => Broken::Node(node(number)?),
        Some(("link", ends)) => {
            let one_way = ends.split_once('>');
            let (one, other) = one_way.or_else(|| ends.split_once('-')).ok_or_else(explain)?;
            let (one, other) = (node(one)?, node(other)?);
            let topology = Topology::new(shape.clone());
            let cut = Broken::between(&topology, one, other).ok_or_else(|| {
                anyhow!("--fail '{text}': in {shape} nodes {one} and {other} have no link of their own")
            })?;
            match cut {
                Broken::Link { node, link, .. } if one_way.is_some() => {
                    Broken::Link { node, link, ways: Ways::Out }
                }
                cut => cut,
            }
        }
        _ => return Err(explain()),
    };
    Ok(Failure { broken, from_ns, until_ns })
}

fn percent(share: f64) -> f64 {
    share * 100.0
}

/// Overtaken sequences, as a share of packets.
pub(crate) fn late(report: &Report) -> f64 {
    report.reordering.sequences as f64 / report.reordering.packets.max(1) as f64
}

/// Returns a table of what got through, and one of the work that it took and the time.
fn tables(cases: &[Case], reports: &[Report]) -> [Table; 2] {
    let [left, right] = [Align::Left, Align::Right];
    let case = [("topology", left), ("matrix", left), ("mode", left), ("delta, ms", right)];
    let with = |columns: &[(&'static str, Align)]| Table::new(&[&case, columns].concat());
    let mut through = with(&[
        ("delivered, %", right),
        ("fairness", right),
        ("dropped, packets", right),
        ("late, %", right),
    ]);
    let mut work = with(&[
        ("c, R", right),
        ("c mean, R", right),
        ("direct, %", right),
        ("link, %", right),
        ("p50, us", right),
        ("p99, us", right),
    ]);
    for (case, report) in cases.iter().zip(reports) {
        let with = |cells: &[String]| {
            let Case { scenario, matrix, mode, delta_ms } = case;
            let of = [scenario.shape.to_string(), matrix.clone(), (*mode).to_owned(), delta_ms.to_string()];
            [&of, cells].concat()
        };
        through.row(with(&[
            format!("{:.1}", percent(report.throughput().share())),
            format!("{:.3}", report.fairness),
            thousands(report.losses.total()),
            format!("{:.3}", percent(late(report))),
        ]));
        work.row(with(&[
            format!("{:.2}", report.c().max),
            format!("{:.2}", report.c().mean),
            format!("{:.1}", percent(report.direct_share)),
            format!("{:.1}", percent(report.links.max)),
            format!("{:.0}", report.latency.p50 / 1e3),
            format!("{:.0}", report.latency.p99 / 1e3),
        ]));
    }
    [through, work]
}

/// What was dropped why, and how long failures took.
fn remarks(cases: &[Case], reports: &[Report]) -> String {
    let mut text = String::new();
    for (case, report) in cases.iter().zip(reports) {
        let of = format!("{}, {}, {}", case.scenario.shape, case.matrix, case.mode);
        for (reason, packets) in report.losses.named().into_iter().filter(|(_, packets)| *packets > 0) {
            text += &format!("{of}: {} packets dropped: {reason}\n", thousands(packets));
        }
        for recovery in &report.recoveries {
            text += &format!(
                "{of}: what broke at {} ms cost {} packets of others within {:.1} ms, and {} of the dead node\n",
                recovery.from_ns as f64 / 1e6,
                thousands(recovery.lost),
                recovery.took_ns() as f64 / 1e6,
                thousands(recovery.own)
            );
        }
    }
    text
}

fn as_json(case: &Case, report: &Report) -> serde_json::Value {
    let bits = |bytes: f64| bytes * 8.0;
    let rates = |all: &[sim::Throughput]| {
        let rate = |one: &sim::Throughput| json!({"asked": bits(one.asked), "offered": bits(one.offered), "delivered": bits(one.delivered)});
        all.iter().map(rate).collect::<Vec<_>>()
    };
    let losses: serde_json::Map<String, serde_json::Value> = report
        .losses
        .named()
        .into_iter()
        .map(|(reason, packets)| (reason.to_owned(), packets.into()))
        .collect();
    let recoveries: Vec<_> = report
        .recoveries
        .iter()
        .map(|recovery| {
            json!({"from_ms": recovery.from_ns as f64 / 1e6, "took_ms": recovery.took_ns() as f64 / 1e6, "dropped": recovery.lost,
                   "dropped_on_return": recovery.lost_on_return,
                   "dropped_by_dead_node": recovery.own})
        })
        .collect();
    json!({
        "topology": case.scenario.shape.to_string(),
        "matrix": case.matrix,
        "mode": case.mode,
        "delta_ms": case.delta_ms,
        "load_percent": percent(case.scenario.load),
        "seed": case.scenario.seed,
        "delivered_percent": percent(report.throughput().share()),
        "fairness": report.fairness,
        "c": report.processing,
        "c_max": report.c().max,
        "c_mean": report.c().mean,
        "direct_percent": percent(report.direct_share),
        "moved_packets": report.moved,
        "packets_link_full": report.link_full,
        "link_use_max_percent": percent(report.links.max),
        "link_use_mean_percent": percent(report.links.mean),
        "dropped_packets": losses,
        "late_sequences_percent": percent(late(report)),
        "late_packets": report.reordering.late_packets,
        "latency_us": {
            "50": report.latency.p50 / 1e3, "90": report.latency.p90 / 1e3, "99": report.latency.p99 / 1e3,
            "99.9": report.latency.p999 / 1e3, "max": report.latency.max / 1e3,
        },
        "inputs_bits_per_second": rates(&report.inputs),
        "outputs_bits_per_second": rates(&report.outputs),
        "recoveries": recoveries,
        "packets": {"entered": report.packets.entered, "delivered": report.packets.delivered,
                    "dropped": report.packets.dropped, "in_flight": report.packets.in_flight},
        "packet_hops": report.hops,
    })
}
