//! `brickway-lab bench scaling`: what more workers bring, and what it costs to hand packets over between them.
//!
//! The example router, or minimal forwarding, runs as `brickway run` would have it: workers on CPUs of their own, each
//! with a receive queue that loops frames in memory. One worker in mode `parallel` is the measure: the ideal of N
//! workers is N times that.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use graph::roles::Mode;
use serde_json::json;

use super::folder::folder;
use super::runs::medians_of;
use super::workers::{Work, Workers, medians};
use super::{frames, print_figure, print_setting, routes};
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Measures forwarding with several workers: in all, a worker, and beside the ideal, in each hand-over mode.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench scaling                               1 to all CPUs
  brickway-lab bench scaling --workers 1,2,4,8 --workload minimal
  brickway-lab bench scaling --workers 3,6 --modes serial,pipeline --json

Modes:
  parallel  every worker receives, processes and sends
  pipeline  chains of three workers, one for each of the three tasks (with 2 workers the second has two)
  serial    one receives, one sends, the others process (with 2 workers the second has two tasks)

'ideal' is the rate of one worker in parallel, times the number of workers.")]
pub(crate) struct ScalingArguments {
    /// Numbers of workers (default: 1 to the number of CPUs)
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    workers: Vec<usize>,
    /// Modes to measure
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "parallel,pipeline,serial")]
    modes: Vec<Mode>,
    /// Numbers of input ports, over which the receive queues are spread evenly
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "1")]
    ports: Vec<usize>,
    /// What the workers do
    #[arg(long, value_enum, default_value_t = Workload::Router)]
    workload: Workload,
    /// Routes of the router, grown from the real table
    #[arg(long, default_value_t = 256 << 10)]
    routes: usize,
    /// The real table
    #[arg(long, default_value_os_t = crate::tables::ipv4(), value_name = "FILE")]
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

pub(crate) fn scaling(arguments: &ScalingArguments) -> Result<ExitCode> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    check(arguments)?;
    let folder = folder()?;
    let rows = match arguments.workload {
        Workload::Router => routes::grown(&routes::real(&arguments.table)?, arguments.routes),
        Workload::Minimal => routes::default_route(),
    };
    let table = routes::write_table(&folder, "routes", &rows)?;
    let work = match arguments.workload {
        Workload::Router => Work::Router(&table),
        Workload::Minimal => Work::Minimal,
    };
    let templates = frames::templates(&rows, arguments.dests, 64);
    let (cases, left_out) = cases(arguments, cpus, &|mode, workers, ports| Workers {
        frames: templates.clone(),
        ports,
        ..Workers::new(work, mode, workers)
    });
    let rates = medians(&cases, arguments.seconds, arguments.runs)?;
    // The first is one worker in parallel.
    let one = rates[0];
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
        ("ports", Align::Right),
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
            case.ports.to_string(),
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

fn check(arguments: &ScalingArguments) -> Result<()> {
    if arguments.runs == 0 || !(0.01..=60.0).contains(&arguments.seconds) {
        bail!("--runs takes 1 or more, --seconds 0.01 to 60");
    }
    if arguments.dests == 0 || arguments.dests > 1 << 20 {
        bail!("--dests takes a number from 1 to 1048576");
    }
    if arguments.routes == 0 {
        bail!("--routes 0: a router needs a route");
    }
    for (name, numbers) in [("workers", &arguments.workers), ("ports", &arguments.ports)] {
        if let Some(number) = numbers.iter().find(|&&number| number == 0 || number > 256) {
            bail!("--{name} {number} is out of range: 1 to 256");
        }
    }
    Ok(())
}

/// Returns what to measure, with one worker in parallel as the first, and what is left out and why.
fn cases<'a>(
    arguments: &ScalingArguments,
    cpus: usize,
    workers_of: &dyn Fn(Mode, usize, usize) -> Workers<'a>,
) -> (Vec<Workers<'a>>, Vec<String>) {
    let asked = !arguments.workers.is_empty();
    let numbers = if asked { arguments.workers.clone() } else { (1..=cpus).collect() };
    let mut cases = vec![workers_of(Mode::Parallel, 1, 1)];
    let mut left_out = Vec::new();
    for &mode in &arguments.modes {
        for &ports in &arguments.ports {
            let all: Vec<Workers<'a>> =
                numbers.iter().map(|&workers| workers_of(mode, workers, ports)).collect();
            if let (true, Err(reason)) =
                (all.iter().all(|case| case.roles().is_err()), all[all.len() - 1].roles())
            {
                left_out.push(format!("{mode} left out: {reason}"));
            }
            let is_new = |case: &Workers<'_>| mode != Mode::Parallel || ports != 1 || case.workers != 1;
            cases.extend(all.into_iter().filter(|case| case.roles().is_ok() && is_new(case)));
        }
    }
    if let Some(case) = cases.iter().find(|case| case.workers > cpus) {
        left_out.push(format!(
            "{} workers share {cpus} CPUs, so their rate says little about a machine that has as many",
            case.workers
        ));
    }
    (cases, left_out)
}
