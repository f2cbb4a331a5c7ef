//! `brickway bench forward`: the whole fast path of the example router, in memory, on one core.
//!
//! Frames of one size, their destinations drawn inside the prefixes of a routing table, come in by port 0 out of
//! memory (copied into fresh frames, as a card would write them) and leave by ports 1 to 3, where they are
//! freed. In between is examples/ip-router.click as it stands. The same frames through `FromDevice -> ToDevice`
//! alone give the cost of this input and output, in the same run; what is left is the work of the graph.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use elements::devices::OpenPort;
use fib::read::Row;
use graph::graph::{Graph, GraphOptions};
use graph::lang::{FlatConfig, Options, Source};
use graph::router::Control;
use graph::setup::{Copy, Shared};
use packet::wire::ethernet::MacAddr;
use packet::{PoolOptions, checksum, cycles};
use ports::MemoryLoop;

use super::folder::Folder;
use super::{median, print_figure};
use crate::load;
use crate::output::{say, say_line};
use crate::table::{Align, Table};

/// Measures forwarding in memory: million packets a second and TSC cycles a packet, in all and by element.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway bench forward                          the real table, 256K and 1M routes; 1, 4096, 65536 destinations
  brickway bench forward --routes 1 --dests 1     one route
  brickway bench forward --burst 256 --json

graph is what the elements cost; io is what it costs to bring the same frames in and out of memory without them.")]
pub(crate) struct ForwardArguments {
    /// A table (PREFIX ORIGIN lines, gzip or not), or a number of routes grown from the real one
    #[arg(long, value_name = "FILE|N")]
    routes: Option<String>,
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

const ROUTER: &str = include_str!("../../../../examples/ip-router.click");

/// Of a case: what one run of it gave, all in TSC cycles a packet.
struct Figures {
    in_all: f64,
    io: f64,
    mpps: f64,
    by_class: Vec<ClassCycles>,
}

/// A class of elements, the packets that passed it, and the cycles of each.
type ClassCycles = (String, f64, f64);

pub(crate) fn forward(arguments: &ForwardArguments) -> Result<ExitCode> {
    check_arguments(arguments)?;
    let real = fib::read::load(&arguments.table).with_context(|| {
        format!("cannot read the table '{}' (run in the project's folder)", arguments.table.display())
    })?;
    let folder = Folder::new()?;
    let mut tables: Vec<(String, PathBuf, Vec<Row>)> = Vec::new();
    let grown = |count: usize| fib::synthesize::table(&real.rows, count, 1);
    match &arguments.routes {
        Some(text) => match text.parse::<usize>() {
            Ok(0) => bail!("--routes 0: a router needs a route"),
            Ok(count) => {
                let rows = if count == 1 { default_route() } else { grown(count) };
                tables.push((String::new(), write_table(&folder, text, &rows)?, rows));
            }
            Err(_) => {
                let path = PathBuf::from(text);
                let rows = fib::read::load(&path).with_context(|| format!("cannot read '{text}'"))?.rows;
                tables.push((String::new(), path, rows));
            }
        },
        None => {
            for (name, count) in [("256k/", 256 << 10), ("1m/", 1_000_000)] {
                let rows = grown(count);
                tables.push((name.into(), write_table(&folder, name.trim_end_matches('/'), &rows)?, rows));
            }
            tables.insert(0, (String::new(), arguments.table.clone(), real.rows));
        }
    }
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
        ("routes", Align::Right),
        ("case", Align::Left),
        ("Mpps", Align::Right),
        ("cycles/packet", Align::Right),
        ("graph", Align::Right),
        ("io", Align::Right),
    ]);
    let mut details = Vec::new();
    for (name, path, rows) in &tables {
        for &dests in &arguments.dests {
            let case = format!("{name}dests={dests}");
            let figures = measure(arguments, path, rows, dests).with_context(|| format!("case {case}"))?;
            if arguments.json {
                print_figure("forward", &case, "mpps", figures.mpps, "Mpps");
                print_figure("forward", &case, "cycles_per_packet", figures.in_all, "TSC cycles");
                let graph = figures.in_all - figures.io;
                print_figure("forward", &case, "graph_cycles_per_packet", graph, "TSC cycles");
                print_figure("forward", &case, "io_cycles_per_packet", figures.io, "TSC cycles");
                for (class, _, each) in &figures.by_class {
                    print_figure(
                        "forward",
                        &format!("{case}/{class}"),
                        "cycles_per_packet",
                        *each,
                        "TSC cycles",
                    );
                }
            } else {
                table.row([
                    crate::table::thousands(rows.len() as u64),
                    case.clone(),
                    format!("{:.1}", figures.mpps),
                    format!("{:.1}", figures.in_all),
                    format!("{:.1}", figures.in_all - figures.io),
                    format!("{:.1}", figures.io),
                ]);
                details.push((case, figures.by_class));
            }
        }
    }
    if !arguments.json {
        say!("{}", table.render());
        print_details(&details);
    }
    Ok(ExitCode::SUCCESS)
}

fn check_arguments(arguments: &ForwardArguments) -> Result<()> {
    if !(1..=packet::MAX_BATCH).contains(&arguments.burst) {
        bail!("--burst {} is out of range: 1 to {}", arguments.burst, packet::MAX_BATCH);
    }
    if !(60..=1514).contains(&arguments.size) {
        bail!("--size {} is out of range: 60 to 1514 bytes", arguments.size);
    }
    if arguments.dests.iter().any(|&dests| dests == 0 || dests > 1 << 20) {
        bail!("--dests takes numbers from 1 to 1048576");
    }
    if arguments.runs == 0 || !(0.01..=60.0).contains(&arguments.seconds) {
        bail!("--runs takes 1 or more, --seconds 0.01 to 60");
    }
    Ok(())
}

/// Cycles by class of element, a column a case.
fn print_details(details: &[(String, Vec<ClassCycles>)]) {
    say_line!("\ncycles a packet that passes, by class of element:");
    let mut classes: Vec<&str> = Vec::new();
    for (_, by_class) in details {
        for (class, ..) in by_class {
            if !classes.contains(&class.as_str()) {
                classes.push(class);
            }
        }
    }
    let titles: Vec<&'static str> =
        details.iter().map(|(case, _)| &*Box::leak(case.replace("dests=", "").into_boxed_str())).collect();
    let mut columns = vec![("class", Align::Left)];
    columns.extend(titles.into_iter().map(|title| (title, Align::Right)));
    let mut table = Table::new(&columns);
    for class in classes {
        let cell = |by_class: &Vec<ClassCycles>| {
            by_class
                .iter()
                .find(|(known, ..)| known == class)
                .map_or(String::new(), |(.., each)| format!("{each:.1}"))
        };
        table
            .row(std::iter::once(class.to_owned()).chain(details.iter().map(|(_, by_class)| cell(by_class))));
    }
    say!("{}", table.render());
}

/// Writes a grown table into the folder.
fn write_table(folder: &Folder, name: &str, rows: &[Row]) -> Result<PathBuf> {
    let path = folder.path().join(format!("{name}.txt"));
    let mut text = String::with_capacity(rows.len() * 24);
    for row in rows {
        text.push_str(&format!("{} {}\n", row.prefix, row.origin));
    }
    std::fs::write(&path, text).with_context(|| format!("cannot write '{}'", path.display()))?;
    Ok(path)
}

/// One next hop for everything. In two halves, because the example router has its own route for 0.0.0.0/0.
fn default_route() -> Vec<Row> {
    let half = |first: u8| ipnet::Ipv4Net::new_assert(Ipv4Addr::new(first, 0, 0, 0), 1);
    vec![Row { prefix: half(0), origin: 1 }, Row { prefix: half(128), origin: 1 }]
}

/// The link address of port `port`, as in the example's definitions.
fn port_mac(port: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, port, 1])
}

/// UDP frames to destinations inside the table's prefixes.
fn templates(rows: &[Row], dests: usize, size: usize) -> Vec<Vec<u8>> {
    let local = |address: &Ipv4Addr| address.octets()[0] == 10;
    let mut addresses = Vec::new();
    let mut seed = 7;
    // Addresses of the router's own networks would not be looked up in the table.
    while addresses.len() < dests {
        let more = fib::synthesize::destinations_inside(rows, dests, seed);
        let more = more.into_iter().map(Ipv4Addr::from);
        addresses.extend(more.filter(|address| !local(address) && is_forwarded(*address)));
        seed += 1;
    }
    addresses.truncate(dests);
    addresses.into_iter().map(|address| frame(address, size)).collect()
}

/// Whether a router may forward to the address at all.
fn is_forwarded(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

fn frame(destination: Ipv4Addr, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    bytes[..6].copy_from_slice(&port_mac(0).0);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    bytes[12..14].copy_from_slice(&[8, 0]);
    let ip_bytes = (size - 14) as u16;
    let header = &mut bytes[14..34];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
    header[8] = 64;
    header[9] = 17;
    header[12..16].copy_from_slice(&[10, 0, 0, 2]);
    header[16..20].copy_from_slice(&destination.octets());
    let sum = checksum::ipv4_header_compute(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes[34..38].copy_from_slice(&[0x10, 0, 0x20, 0]);
    bytes[38..40].copy_from_slice(&(ip_bytes - 20).to_be_bytes());
    bytes
}

/// A graph on this thread with real time, and its input port looping `templates`.
fn build(
    source: &Source,
    parameters: Vec<(String, String)>,
    burst: usize,
    templates: &[Vec<u8>],
) -> Result<(Graph, Arc<FlatConfig>)> {
    let registry = elements::registry();
    let options = Options { parameters };
    let flat = load::compile(source, &options, &registry).ok_or_else(|| anyhow!("see above"))?;
    let flat = Arc::new(flat);
    let shared = Shared::default();
    for port in 0..4u8 {
        let opened: Box<dyn ports::Port> = if port == 0 {
            Box::new(MemoryLoop::new(templates.to_vec()))
        } else {
            ports::open("null:", &ports::OpenOptions::default())?
        };
        shared.get_or_make(&OpenPort::key(&format!("bench{port}")), || {
            Ok::<_, anyhow::Error>(OpenPort::new(opened))
        })?;
    }
    let control = Control::new(|line| eprintln!("{line}"));
    let copy = Copy { index: 0, workers: 1, slow_thread: false };
    let graph_options = GraphOptions {
        burst,
        pool: PoolOptions { frames: 8192, ..PoolOptions::default() },
        simulated_time: false,
    };
    let graph =
        Graph::build(&flat, &registry, &shared, copy, &graph_options, &control).map_err(|problems| {
            load::report(problems);
            anyhow!("see above")
        })?;
    Ok((graph, flat))
}

/// CPU time of this thread in TSC cycles: unlike the counter itself it leaves out what other programs took.
fn cpu_cycles() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (time.tv_sec as f64 + time.tv_nsec as f64 / 1e9) * cycles::per_second()
}

/// Runs the graph for about `seconds`; TSC cycles of CPU time for each packet received.
fn run(graph: &mut Graph, from: usize, seconds: f64) -> f64 {
    let before = graph.stats()[from].packets;
    let (begin, start) = (cpu_cycles(), Instant::now());
    let length = Duration::from_secs_f64(seconds);
    while start.elapsed() < length {
        for _ in 0..256 {
            graph.context().turn();
        }
    }
    (cpu_cycles() - begin) / (graph.stats()[from].packets - before).max(1) as f64
}

fn measure(arguments: &ForwardArguments, table: &Path, rows: &[Row], dests: usize) -> Result<Figures> {
    let templates = templates(rows, dests, arguments.size);
    let mut parameters: Vec<(String, String)> =
        (0..4).map(|port| (format!("PORT{port}"), format!("bench{port}"))).collect();
    parameters.push(("TABLE".into(), format!("\"{}\"", table.display())));
    parameters.push(("VIA".into(), "\"10.0.1.2 2, 10.0.2.2 3, 10.0.3.2 4\"".into()));
    let router = Source { name: "ip-router.click".into(), text: ROUTER.into() };
    let (mut graph, flat) = build(&router, parameters, arguments.burst, &templates)?;
    for port in 1..4 {
        let querier = graph
            .find(&format!("out{port}/arp"))
            .context("the example router has a querier for each port")?;
        let entry = format!("10.0.{port}.2 02:00:00:00:0{port}:02");
        graph
            .write(querier, "insert", &entry)
            .context("the querier is in this copy")?
            .map_err(anyhow::Error::msg)?;
    }
    let plain =
        Source { name: "io.click".into(), text: "from :: FromDevice(bench0) -> ToDevice(bench1);".into() };
    let (mut io_graph, io_flat) = build(&plain, Vec::new(), arguments.burst, &templates)?;

    let source_of = |flat: &FlatConfig| {
        flat.elements.iter().position(|element| element.class == "FromDevice").context("there is a source")
    };
    let (from, io_from) = (source_of(&flat)?, source_of(&io_flat)?);
    run(&mut graph, from, arguments.seconds.min(0.2));
    run(&mut io_graph, io_from, arguments.seconds.min(0.2));
    graph.reset_stats();
    let (mut in_all, mut io) = (Vec::new(), Vec::new());
    for _ in 0..arguments.runs {
        in_all.push(run(&mut graph, from, arguments.seconds));
        io.push(run(&mut io_graph, io_from, arguments.seconds));
    }
    let stats = graph.stats();
    let received = stats[from].packets;
    let sent: u64 = flat
        .elements
        .iter()
        .zip(&stats)
        .filter(|(element, _)| element.class == "ToDevice")
        .map(|(_, stats)| stats.packets)
        .sum();
    // What was received in the last turn may still be on its way.
    if sent + 1024 < received {
        let summary = crate::run::summary(
            &flat,
            &[graph::router::CopyStats { copy: 0, elements: stats, pool: graph.pool_stats(), busy: 1.0 }],
        );
        bail!("{received} packets came in and only {sent} left:\n{summary}");
    }
    let mut by_class: Vec<ClassCycles> = Vec::new();
    for (element, stats) in flat.elements.iter().zip(&stats) {
        // The few packets of ARP and the like say nothing about the fast path.
        if stats.packets * 1000 < received {
            continue;
        }
        match by_class.iter_mut().find(|(class, ..)| *class == element.class) {
            Some((_, packets, total)) => {
                *packets += stats.packets as f64;
                *total += stats.cycles;
            }
            None => by_class.push((element.class.clone(), stats.packets as f64, stats.cycles)),
        }
    }
    for (_, packets, total) in &mut by_class {
        *total /= *packets;
    }
    let in_all = median(in_all);
    Ok(Figures { in_all, io: median(io), mpps: cycles::per_second() / in_all / 1e6, by_class })
}
