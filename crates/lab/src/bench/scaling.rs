//! `brickway-lab bench scaling`: what more workers bring, and what it costs to hand packets over between them.
//!
//! The example router, or minimal forwarding, runs as `brickway run` would have it: workers on CPUs of their own, each
//! with a receive queue that loops frames in memory. One worker in mode `parallel` is the measure: the ideal of N
//! workers is N times that.

use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use graph::graph::GraphOptions;
use graph::roles::{Mode, Roles};
use graph::router::RouterOptions;
use packet::PoolOptions;
use ports::MemoryLoop;
use serde_json::json;

use super::example;
use super::folder::folder;
use super::runs::medians_of;
use super::single_core::ROUTER_PORTS;
use super::{frames, median, print_figure, print_setting, routes};
use crate::progress;
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Measures forwarding with several workers: in all, a worker, and beside the ideal, in each hand-over mode.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench scaling                               1 to all CPUs
  brickway-lab bench scaling --workers 1,2,4,8 --workload minimal
  brickway-lab bench scaling --workers 3,6 --modes serial,pipeline --json

parallel: every worker receives, processes and sends. pipeline: chains of three workers, one for each of the three (with
2 workers the second does two). serial: one receives, one sends, the others process. ideal: so many times what one
worker in parallel does.")]
pub(crate) struct ScalingArguments {
    /// Numbers of workers (default: 1 to the number of CPUs)
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    workers: Vec<usize>,
    /// Modes to measure
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "parallel,pipeline,serial")]
    modes: Vec<Mode>,
    /// What the workers do
    #[arg(long, value_enum, default_value_t = Workload::Router)]
    workload: Workload,
    /// Routes of the router, grown from the real table
    #[arg(long, default_value_t = 256 << 10)]
    routes: usize,
    /// The real table
    #[arg(long, default_value = "data/rib-v4.txt.gz", value_name = "FILE")]
    table: PathBuf,
    /// Number of different destination addresses
    #[arg(long, default_value_t = 4096)]
    dests: usize,
    /// Seconds for each run
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Runs of each case; the median is printed
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// The example router
    Router,
    /// FromDevice -> ToDevice
    Minimal,
}

/// A number of workers in a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    mode: Mode,
    workers: usize,
}

impl Case {
    fn name(self) -> String {
        format!("{}/workers={}", self.mode, self.workers)
    }
}

pub(crate) fn scaling(arguments: &ScalingArguments) -> Result<ExitCode> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let (cases, left_out) = cases(arguments, cpus)?;
    let folder = folder()?;
    let rows = match arguments.workload {
        Workload::Router => routes::grown(&routes::real(&arguments.table)?, arguments.routes),
        Workload::Minimal => routes::default_route(),
    };
    let table = routes::write_table(&folder, "routes", &rows)?;
    let templates = frames::templates(&rows, arguments.dests, 64);

    let mut rates = vec![Vec::new(); cases.len()];
    for run in 0..arguments.runs {
        for (case, rates) in cases.iter().zip(&mut rates) {
            progress::tell("scaling", &format!("run {} of {}, {}", run + 1, arguments.runs, case.name()));
            rates.push(measure(arguments, *case, &table, &templates).with_context(|| case.name())?);
        }
    }
    progress::clear();
    let rates: Vec<f64> = rates.into_iter().map(median).collect();
    let one = cases
        .iter()
        .zip(&rates)
        .find(|(case, _)| **case == Case { mode: Mode::Parallel, workers: 1 })
        .map_or(f64::NAN, |(_, rate)| *rate);
    let what = match arguments.workload {
        Workload::Router => {
            format!("example router, {} routes, {} destinations", rows.len(), templates.len())
        }
        Workload::Minimal => "minimal forwarding".to_owned(),
    };
    let (traffic, place) = (format!("{what}, 64-byte frames out of memory"), format!("{cpus} CPUs"));
    if arguments.json {
        let (runs, seconds) = (arguments.runs, arguments.seconds);
        print_setting(
            "scaling",
            json!({"traffic": traffic, "place": place, "runs": runs, "seconds": seconds}),
        );
        for (case, rate) in cases.iter().zip(&rates) {
            let ideal = one * case.workers as f64;
            print_figure("scaling", &case.name(), "mpps", *rate, "Mpps");
            print_figure("scaling", &case.name(), "mpps_per_worker", rate / case.workers as f64, "Mpps");
            print_figure("scaling", &case.name(), "ideal_mpps", ideal, "Mpps");
            print_figure("scaling", &case.name(), "share_of_ideal", rate / ideal, "ratio");
        }
        return Ok(ExitCode::SUCCESS);
    }
    say_line!("{traffic}, {place}; {} of {} s\n", medians_of(arguments.runs), arguments.seconds);
    let mut table = Table::new(&[
        ("mode", Align::Left),
        ("workers", Align::Right),
        ("Mpps", Align::Right),
        ("a worker", Align::Right),
        ("ideal", Align::Right),
        ("share of ideal", Align::Right),
    ]);
    for (case, rate) in cases.iter().zip(&rates) {
        let ideal = one * case.workers as f64;
        table.row([
            case.mode.to_string(),
            case.workers.to_string(),
            format!("{rate:.1}"),
            format!("{:.1}", rate / case.workers as f64),
            format!("{ideal:.1}"),
            format!("{:.0}%", rate / ideal * 100.0),
        ]);
    }
    say!("{}", table.render());
    for line in left_out {
        say_line!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// What to measure, one worker in parallel always among it, and what is left out and why.
fn cases(arguments: &ScalingArguments, cpus: usize) -> Result<(Vec<Case>, Vec<String>)> {
    if arguments.runs == 0 || !(0.01..=60.0).contains(&arguments.seconds) {
        bail!("--runs takes 1 or more, --seconds 0.01 to 60");
    }
    if arguments.dests == 0 || arguments.dests > 1 << 20 {
        bail!("--dests takes a number from 1 to 1048576");
    }
    if arguments.routes == 0 {
        bail!("--routes 0: a router needs a route");
    }
    let asked = !arguments.workers.is_empty();
    let workers = if asked { arguments.workers.clone() } else { (1..=cpus).collect() };
    if let Some(workers) = workers.iter().find(|&&workers| workers == 0 || workers > 256) {
        bail!("--workers {workers} is out of range: 1 to 256");
    }
    let mut cases = vec![Case { mode: Mode::Parallel, workers: 1 }];
    let mut left_out = Vec::new();
    for &mode in &arguments.modes {
        let before = cases.len();
        for &workers in &workers {
            let case = Case { mode, workers };
            if Roles::new(mode, workers).is_ok() && !cases.contains(&case) {
                cases.push(case);
            }
        }
        if cases.len() == before && mode != Mode::Parallel {
            let reason = Roles::new(mode, workers[0]).err().unwrap_or_default();
            left_out.push(format!("{mode} left out: {reason}"));
        }
    }
    if let Some(case) = cases.iter().find(|case| case.workers > cpus) {
        left_out.push(format!(
            "{} workers share {cpus} CPUs, so their rate says little about a machine that has as many",
            case.workers
        ));
    }
    Ok((cases, left_out))
}

/// Million packets a second that left by the ports, in one run.
fn measure(arguments: &ScalingArguments, case: Case, table: &Path, templates: &[Vec<u8>]) -> Result<f64> {
    let roles = Roles::new(case.mode, case.workers).map_err(anyhow::Error::msg)?;
    let registry = click::registry();
    let (config, ports) = match arguments.workload {
        Workload::Minimal => {
            let text = "from :: FromDevice(bench0) -> ToDevice(bench1);";
            (example::compile(text, Vec::new(), &registry)?, 2)
        }
        Workload::Router => {
            (example::compile(example::ROUTER, example::parameters(table), &registry)?, ROUTER_PORTS)
        }
    };
    // One more for the slow thread.
    let tx_queues = roles.send.len() + 1;
    let input = MemoryLoop::with_queues("loop", templates.to_vec(), roles.receive.len(), tx_queues);
    let pool = PoolOptions { frames: 8192, ..PoolOptions::default() };
    let options = RouterOptions {
        workers: case.workers,
        graph: GraphOptions { pool, ..GraphOptions::default() },
        pin: true,
        mode: case.mode,
        ..RouterOptions::default()
    };
    let mut router = example::build(config, &registry, Box::new(input), ports, &options, tx_queues)?;
    if arguments.workload == Workload::Router {
        example::tell_gateways(&mut router)?;
    }
    router.start().context("cannot start the worker threads")?;
    std::thread::sleep(Duration::from_secs_f64(arguments.seconds.min(0.1)));
    let (begin, start) = (example::count(&mut router, "ToDevice")?, Instant::now());
    std::thread::sleep(Duration::from_secs_f64(arguments.seconds));
    let (end, elapsed) = (example::count(&mut router, "ToDevice")?, start.elapsed());
    router.stop();
    Ok((end - begin) as f64 / elapsed.as_secs_f64() / 1e6)
}
