//! `brickway-lab bench reload`: another configuration in the place of the running one, while packets flow as fast as they go.
//!
//! The example router runs on its threads with frames out of memory. Each reload changes either an argument of a few
//! elements, while the routing table moves over as it is, or a route of the configuration, so that the whole table is made
//! anew. Counted are the time to make what is new, during which the old configuration
//! forwards, the time to change over, and packets that came in and did not leave.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use graph::context::Globals;
use graph::graph::{Graph, GraphOptions, Registry};
use graph::hotswap::Swap;
use graph::lang::FlatConfig;
use graph::router::{Router, RouterOptions};
use packet::PoolOptions;
use ports::MemoryLoop;
use serde_json::json;

use super::folder::folder;
use super::single_core::ROUTER_PORTS;
use super::{example, frames, median, print_figure, print_setting, routes};
use crate::progress;
use router::load;
use router::output::{say, say_line};
use router::table::{Align, Table, thousands};

/// Measures live changes of the example router's configuration under traffic.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench reload
  brickway-lab bench reload --routes 1000 --workers 2 --json

make is how long the new configuration takes to be ready while the old one forwards; switch is how long all workers take to
change over, one after the other.")]
pub(crate) struct ReloadArguments {
    /// Number of routes; grown from the real table, or, without this, the real table
    #[arg(long)]
    routes: Option<usize>,
    /// The real table
    #[arg(long, default_value_os_t = crate::tables::ipv4(), value_name = "FILE")]
    table: std::path::PathBuf,
    /// Workers
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Reloads of each kind; the medians and the longest are printed
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// What changes.
#[derive(Clone, Copy, Debug)]
struct Change {
    name: &'static str,
    /// What stands in the configuration, and what stands there every other time.
    from: &'static str,
    to: &'static str,
}

const CHANGES: [Change; 2] = [
    Change { name: "an argument of the outputs", from: "define($MTU 1500)", to: "define($MTU 1400)" },
    Change { name: "a route, so the whole table", from: "0.0.0.0/0 5,", to: "192.0.2.0/24 1, 0.0.0.0/0 5," },
];

/// Different destinations.
const DESTINATIONS: usize = 4096;

pub(crate) fn reload(arguments: &ReloadArguments) -> Result<ExitCode> {
    if arguments.runs == 0 || arguments.routes == Some(0) || !(1..=256).contains(&arguments.workers) {
        bail!("--runs and --routes take 1 or more, --workers 1 to 256");
    }
    let folder = folder()?;
    let real = routes::real(&arguments.table)?;
    let rows = arguments.routes.map_or_else(|| real.clone(), |count| routes::grown(&real, count));
    let path = routes::write_table(&folder, "routes", &rows)?;
    let templates = frames::templates(&rows, DESTINATIONS, 64);
    let registry = click::registry();
    let compile = |text: &str| example::compile(text, example::parameters(&path), &registry);

    let pool = PoolOptions { frames: 8192, ..PoolOptions::default() };
    let options = RouterOptions {
        workers: arguments.workers,
        graph: GraphOptions { pool, ..GraphOptions::default() },
        pin: arguments.workers > 1,
        ..RouterOptions::default()
    };
    let tx_queues = arguments.workers + 1;
    let input = MemoryLoop::with_queues("loop", templates, arguments.workers, tx_queues);
    let first = compile(example::ROUTER)?;
    let ports = example::ports(Box::new(input), ROUTER_PORTS - 1, tx_queues)?;
    let mut router = example::build(first.clone(), &registry, ports, &options)?;
    example::tell_gateways(&mut router)?;
    router.start().context("cannot start the worker threads")?;

    if arguments.json {
        let (workers, runs) = (arguments.workers, arguments.runs);
        print_setting("reload", json!({"routes": rows.len(), "workers": workers, "runs": runs}));
    }
    let mut table = Table::new(&[
        ("what changes", Align::Left),
        ("elements that move", Align::Right),
        ("make s", Align::Right),
        ("switch ms", Align::Right),
        ("longest", Align::Right),
    ]);
    for change in CHANGES {
        let other = example::ROUTER.replacen(change.from, change.to, 1);
        if other == example::ROUTER {
            bail!("the example router has no '{}'", change.from);
        }
        let other = compile(&other)?;
        let (mut make_s, mut switch_ms, mut moving) = (Vec::new(), Vec::new(), 0);
        for run in 0..arguments.runs {
            progress::tell("bench reload", &format!("{}, {} of {}", change.name, run + 1, arguments.runs));
            let next = if run % 2 == 0 { &other } else { &first };
            let start = Instant::now();
            let swap = prepare(&router, next, &registry)?;
            make_s.push(start.elapsed().as_secs_f64());
            moving = swap.moving();
            let start = Instant::now();
            router.apply(swap);
            switch_ms.push(start.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(Duration::from_millis(20));
        }
        // Back to the first, whichever runs.
        router.apply(prepare(&router, &first, &registry)?);
        let longest = switch_ms.iter().copied().fold(0.0, f64::max);
        if arguments.json {
            print_figure("reload", change.name, "make_s", median(make_s), "s");
            print_figure("reload", change.name, "switch_ms", median(switch_ms), "ms");
            print_figure("reload", change.name, "longest_switch_ms", longest, "ms");
            continue;
        }
        table.row([
            change.name.to_owned(),
            format!("{moving} of {}", other.elements.len()),
            format!("{:.2}", median(make_s)),
            format!("{:.2}", median(switch_ms)),
            format!("{longest:.2}"),
        ]);
    }
    progress::clear();
    let begin = example::count(&mut router, "FromDevice")?;
    let second = Instant::now();
    std::thread::sleep(Duration::from_millis(200));
    let mpps =
        (example::count(&mut router, "FromDevice")? - begin) as f64 / second.elapsed().as_secs_f64() / 1e6;
    // At a batch boundary of a worker nothing of it is on its way.
    let counts = router.on_each(|graph| (counted(graph, "FromDevice"), counted(graph, "ToDevice")));
    let (received, sent) = counts.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let lost = received.saturating_sub(sent);
    router.stop();
    if arguments.json {
        print_figure("reload", "all", "received", received as f64, "packets");
        print_figure("reload", "all", "lost", lost as f64, "packets");
    } else {
        say!("{}", table.render());
        say_line!(
            "\n{} routes, {} worker{}, {mpps:.1} Mpps: {} packets came in and {} left, {} lost",
            thousands(rows.len() as u64),
            arguments.workers,
            if arguments.workers == 1 { "" } else { "s" },
            thousands(received),
            thousands(sent),
            thousands(lost)
        );
    }
    Ok(if lost > 0 { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

/// Packets that the elements of a class counted.
fn counted(graph: &mut Graph, class: &str) -> u64 {
    let config = graph.config().clone();
    let of_class = config.elements.iter().enumerate().filter(|(_, element)| element.class == class);
    of_class.filter_map(|(number, _)| graph.read(number, "count", "")?.ok()?.parse::<u64>().ok()).sum()
}

/// What takes the running configuration's place.
fn prepare(router: &Router, config: &Arc<FlatConfig>, registry: &Registry) -> Result<Swap> {
    Swap::prepare(&router.running(), config, registry, Globals::default(), 0).map_err(|problems| {
        load::report(problems);
        anyhow!("see above")
    })
}
