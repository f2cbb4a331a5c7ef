//! `brickway-lab bench forward`: the whole fast path, in memory, on one core: that of the example router, and that of the graph
//! that `brickway run PORT...` makes, IPv4 and IPv6.
//!
//! Frames of one size, their destinations drawn inside the prefixes of a routing table, come in by port 0 out of
//! memory (copied into fresh frames, as a card would write them) and leave by ports 1 to 3, where they are
//! freed. In between is examples/ip-router.click as it stands, or (cases `drop-in/...` and `drop-in-6/...`) the drop-in graph
//! with tables that the bench fills as the mirror of Linux would. Cases `drop-in-mixed/...` have IPv4 and IPv6 at random, 1 % with
//! options and 0.1 % whose TTL ends here. The same frames through `FromDevice -> ToDevice`
//! alone give the cost of this input and output, in the same run; what is left is the work of the graph.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use fib::read::Row;
use packet::cycles;
use ports::{MemoryLoop, Port};

use super::folder::folder;
use super::proof::{Model, prove};
use super::runs::{DestinationArguments, FrameArguments, RunArguments, check_destinations};
use super::single_core::{ROUTER_PORTS, SingleCore};
use super::{drop_in, frames, median, print_figure, routes};
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Measures forwarding in memory: million packets a second and TSC cycles a packet, in all and by element.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench forward                          the real table, 256K and 1M routes; 1, 4096, 65536 destinations
  brickway-lab bench forward --routes 1 --dests 1     one route
  brickway-lab bench forward --burst 256 --json
  brickway-lab bench forward --graph drop-in          what `brickway run eth1 eth2` does with a packet
  brickway-lab bench forward --capture                the same while somebody captures and sees nothing
  brickway-lab bench forward --sample 1000            the same while one packet of 1,000 is sampled
  BRICKWAY_CPU=avx2 brickway-lab bench forward        as on a CPU without AVX-512 (scalar: without any vectors)

graph is what the elements cost; io is what it costs to bring the same frames in and out of memory without them.")]
pub(crate) struct ForwardArguments {
    /// A table (PREFIX ORIGIN lines, gzip or not), or a number of routes grown from the real one; 1 is a default route
    #[arg(long, value_name = "FILE|N")]
    routes: Option<String>,
    /// The real IPv6 table
    #[arg(long, default_value_os_t = crate::tables::ipv6(), value_name = "FILE")]
    table6: PathBuf,
    /// Whose graph: the example router's, that of `brickway run PORT...`, or both in turns
    #[arg(long, value_enum, default_value_t)]
    graph: Graphs,
    /// With a capture of all ports whose filter selects nothing
    #[arg(long)]
    capture: bool,
    /// With one packet of so many sampled where it comes in, as for sFlow
    #[arg(long, value_name = "N", conflicts_with = "capture")]
    sample: Option<u32>,
    #[command(flatten)]
    destinations: DestinationArguments,
    #[command(flatten)]
    frames: FrameArguments,
    #[command(flatten)]
    run: RunArguments,
}

/// Which graphs are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Graphs {
    Example,
    DropIn,
    #[default]
    Both,
}

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
    arguments.run.check()?;
    arguments.frames.check()?;
    check_destinations(&arguments.destinations.dests)?;
    let real = routes::real(&arguments.frames.table)?;
    let folder = folder()?;
    let mut tables: Vec<(String, PathBuf, Vec<Row>)> = Vec::new();
    match &arguments.routes {
        Some(text) => match text.parse::<usize>() {
            Ok(0) => bail!("--routes 0: a router needs a route"),
            Ok(count) => {
                let rows = if count == 1 { routes::default_route() } else { routes::grown(&real, count) };
                tables.push((String::new(), routes::write_table(&folder, text, &rows)?, rows));
            }
            Err(_) => {
                let path = PathBuf::from(text);
                let rows = fib::read::load(&path).with_context(|| format!("cannot read '{text}'"))?.rows;
                tables.push((String::new(), path, rows));
            }
        },
        None => {
            for (name, count) in [("256k/", 256 << 10), ("1m/", 1_000_000)] {
                let rows = routes::grown(&real, count);
                tables.push((
                    name.into(),
                    routes::write_table(&folder, name.trim_end_matches('/'), &rows)?,
                    rows,
                ));
            }
            tables.insert(0, (String::new(), arguments.frames.table.clone(), real));
        }
    }
    arguments.run.say_heading("forward", &format!("{}-byte frames", arguments.frames.size), "one core");
    let mut table = Table::new(&[
        ("routes", Align::Right),
        ("case", Align::Left),
        ("Mpps", Align::Right),
        ("cycles/packet", Align::Right),
        ("graph", Align::Right),
        ("io", Align::Right),
    ]);
    let mut details = Vec::new();
    let mut report = |routes: usize, case: String, figures: Figures| {
        if arguments.run.json {
            print_figure("forward", &case, "mpps", figures.mpps, "Mpps");
            print_figure("forward", &case, "cycles_per_packet", figures.in_all, "TSC cycles");
            let graph = figures.in_all - figures.io;
            print_figure("forward", &case, "graph_cycles_per_packet", graph, "TSC cycles");
            print_figure("forward", &case, "io_cycles_per_packet", figures.io, "TSC cycles");
            for (class, _, each) in &figures.by_class {
                print_figure(
                    "forward",
                    &format!("{case}/{class}"),
                    "element_cycles_per_packet",
                    *each,
                    "TSC cycles",
                );
            }
            return;
        }
        table.row([
            router::table::thousands(routes as u64),
            case.clone(),
            format!("{:.1}", figures.mpps),
            format!("{:.1}", figures.in_all),
            format!("{:.1}", figures.in_all - figures.io),
            format!("{:.1}", figures.io),
        ]);
        details.push((case, figures.by_class));
    };
    for (name, path, rows) in &tables {
        for &dests in &arguments.destinations.dests {
            let case = format!("{name}dests={dests}");
            let templates = frames::templates(rows, dests, arguments.frames.size);
            let (mut routers, model) = (Vec::new(), Model::new(rows, &[]));
            if arguments.graph != Graphs::DropIn {
                let router = |ports| SingleCore::router(ports, path, arguments.run.burst);
                routers.push((case.clone(), proven(&templates, &model, router)?));
            }
            if arguments.graph != Graphs::Example {
                let fib = drop_in::fib(rows)?;
                let router = |ports| drop_in::router(ports, &fib, arguments.run.burst);
                routers.push((format!("drop-in/{case}"), proven(&templates, &model, router)?));
            }
            let figures =
                measure(arguments, &templates, routers, false).with_context(|| format!("case {case}"))?;
            // The default route is two halves.
            let asked = arguments.routes.as_ref().and_then(|text| text.parse().ok());
            for (case, figures) in figures {
                report(asked.unwrap_or(rows.len()), case, figures);
            }
        }
    }
    if arguments.graph != Graphs::Example && arguments.routes.is_none() {
        let rows = routes::real::<u128>(&arguments.table6)?;
        let mut fib = drop_in::fib(&rows)?;
        for &dests in &arguments.destinations.dests {
            let templates = frames::templates_6(&rows, dests, arguments.frames.size);
            let case = format!("drop-in-6/dests={dests}");
            let router = |ports| drop_in::router(ports, &fib, arguments.run.burst);
            let router = proven(&templates, &Model::new(&[], &rows), router)?;
            let figures = measure(arguments, &templates, vec![(case, router)], false)?;
            for (case, figures) in figures {
                report(rows.len(), case, figures);
            }
        }
        let (_, _, rows4) = &tables[0];
        drop_in::fill(&mut fib, rows4)?;
        for &dests in &arguments.destinations.dests {
            let ipv4 = frames::templates(rows4, dests, arguments.frames.size);
            let ipv6 = frames::templates_6(&rows, dests, arguments.frames.size);
            let templates = frames::mixed(&ipv4, &ipv6);
            let case = format!("drop-in-mixed/dests={dests}");
            let router = |ports| drop_in::router(ports, &fib, arguments.run.burst);
            let router = proven(&templates, &Model::of_drop_in(rows4, &rows), router)?;
            for (case, figures) in measure(arguments, &templates, vec![(case, router)], true)? {
                report(rows4.len() + rows.len(), case, figures);
            }
        }
    }
    if !arguments.run.json {
        say!("{}", table.render());
        print_details(&details);
    }
    Ok(ExitCode::SUCCESS)
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

/// A router that has been found to do to these frames what it should, and is to be measured with them.
fn proven(
    templates: &[Vec<u8>],
    model: &Model,
    build: impl Fn([Box<dyn Port>; ROUTER_PORTS]) -> Result<SingleCore>,
) -> Result<SingleCore> {
    prove(templates, model, false, &build)?;
    build(router_ports(templates)?)
}

/// Frames come in by the first port, over and over, and are freed behind the others.
fn router_ports(templates: &[Vec<u8>]) -> Result<[Box<dyn Port>; ROUTER_PORTS]> {
    let null = || ports::open("null:", &ports::OpenOptions::default());
    Ok([Box::new(MemoryLoop::new(templates.to_vec())), null()?, null()?, null()?])
}

/// Measures routers in turns, with the cost of input and output alone in the same runs. Whether some frames go to Linux.
fn measure(
    arguments: &ForwardArguments,
    templates: &[Vec<u8>],
    mut routers: Vec<(String, SingleCore)>,
    some_to_linux: bool,
) -> Result<Vec<(String, Figures)>> {
    let null = ports::open("null:", &ports::OpenOptions::default())?;
    let looped = Box::new(MemoryLoop::new(templates.to_vec()));
    let mut plain = SingleCore::minimal(looped, Some(null), arguments.run.burst, arguments.run.burst)?;
    plain.run(arguments.run.seconds.min(0.2));
    for (_, router) in &mut routers {
        if arguments.capture {
            let graph = router.graph();
            let (watched, observer) =
                router::capture::idle_capture(graph.config()).map_err(anyhow::Error::msg)?;
            graph.watch(1, watched, observer);
        }
        if let Some(rate) = arguments.sample {
            let graph = router.graph();
            let samples = router::capture::idle_samples(graph.config(), rate);
            let (watched, observer) = samples.map_err(anyhow::Error::msg)?;
            graph.watch(1, watched, observer);
        }
        router.run(arguments.run.seconds.min(0.2));
        router.reset_stats();
    }
    let mut io = Vec::new();
    let mut in_all = vec![Vec::new(); routers.len()];
    for _ in 0..arguments.run.runs {
        io.push(plain.run(arguments.run.seconds).cycles_per_packet());
        for ((_, router), in_all) in routers.iter_mut().zip(&mut in_all) {
            in_all.push(router.run(arguments.run.seconds).cycles_per_packet());
        }
    }
    let io = median(io);
    let mut figures = Vec::new();
    for ((case, mut router), in_all) in routers.into_iter().zip(in_all) {
        let by_class = by_class(&mut router, some_to_linux).with_context(|| format!("case {case}"))?;
        let in_all = median(in_all);
        let mpps = cycles::per_second() / in_all / 1e6;
        figures.push((case, Figures { in_all, io, mpps, by_class }));
    }
    Ok(figures)
}

/// The cycles of each class of elements.
fn by_class(router: &mut SingleCore, some_to_linux: bool) -> Result<Vec<ClassCycles>> {
    let received = router.packets();
    let mut by_class: Vec<ClassCycles> = Vec::new();
    for (class, stats) in router.checked_stats(some_to_linux)? {
        // The few packets of ARP and the like say nothing about the fast path.
        if stats.packets * 1000 < received {
            continue;
        }
        match by_class.iter_mut().find(|(known, ..)| known == class) {
            Some((_, packets, total)) => {
                *packets += stats.packets as f64;
                *total += stats.cycles;
            }
            None => by_class.push((class.to_owned(), stats.packets as f64, stats.cycles)),
        }
    }
    for (_, packets, total) in &mut by_class {
        *total /= *packets;
    }
    Ok(by_class)
}
