//! `brickway run`: a configuration becomes a router.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use elements::devices::balance::{Balancer, QueueShare, queue_shares};
use elements::devices::{PortNames, RECEIVERS, SENDERS};
use graph::graph::GraphOptions;
use graph::lang::{FlatConfig, Options};
use graph::roles::{Mode, Roles};
use graph::router::{Control, CopyStats, Router, RouterOptions};
use graph::setup::Shared;
use packet::PoolOptions;

use crate::load;
use crate::output::print;
use crate::table::{Align, Table, scaled, thousands};

/// Runs a configuration until Ctrl-C, until it stops by itself, or for a given time.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway run examples/ip-router.click PORT0=eth1 PORT1=eth2
  brickway run router.click --port eth0=tap:brick0 --for 10
  brickway run router.click --port 'eth0=pcap:in.pcap?out=out.pcap'
  brickway run router.click --port 'eth0=af_packet:eth0?drop=0.01&delay=10ms'
  brickway run router.click --read rt.table --for 1
  brickway run router.click --port eth0=af_xdp:eth0 --port eth1=af_xdp:eth1 --workers 4 --balance

A port is [DRIVER:]NAME[?OPTION=VALUE&...]; drivers are af_packet (the default), af_xdp, dpdk (in a build with it), tap,
pcap, memory and null; options drop, corrupt, duplicate, reorder, delay, trace and capture work with each of them.")]
pub(crate) struct RunArguments {
    /// The configuration; `-` is standard input
    file: PathBuf,
    /// Values of the configuration's variables
    #[arg(value_name = "NAME=VALUE", value_parser = load::parameter)]
    parameters: Vec<(String, String)>,
    /// What a port's name in the configuration stands for
    #[arg(long = "port", value_name = "NAME=PORT", value_parser = load::parameter)]
    ports: Vec<(String, String)>,
    /// Number of worker threads, each with its own queue of every port
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Packets taken from a port at a time, 1 to 256; 1 gives Click's packet order
    #[arg(long, default_value_t = 32)]
    burst: usize,
    /// Frames in each worker's pool
    #[arg(long, default_value_t = 16_384)]
    frames: usize,
    /// Largest packet that a frame holds, in bytes
    #[arg(long, default_value_t = 1_856)]
    frame_size: usize,
    /// Let the kernel place workers (several are bound to a CPU each; `taskset` says to which)
    #[arg(long)]
    no_pin: bool,
    /// Who receives, processes and sends: parallel (each worker all of it), pipeline or serial, to measure hand-over
    #[arg(long, default_value_t = Mode::Parallel)]
    mode: Mode,
    /// Every second, move receive queues, or flows, from the busiest worker to the idlest
    #[arg(long)]
    balance: bool,
    /// With --balance: workers that stay at work when there is little to do (default: all)
    #[arg(long, value_name = "N", requires = "balance")]
    min_workers: Option<usize>,
    /// Stop after this many seconds
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<f64>,
    /// Print a line of rates every so many seconds (on a terminal: 1; 0 for none)
    #[arg(long, value_name = "SECONDS")]
    stats: Option<f64>,
    /// Write a handler before the start: ELEMENT.HANDLER=VALUE
    #[arg(long = "write", value_name = "HANDLER=VALUE", value_parser = load::parameter)]
    writes: Vec<(String, String)>,
    /// Print a handler at the end
    #[arg(long = "read", value_name = "HANDLER")]
    reads: Vec<String>,
    /// No summary at the end
    #[arg(long, short)]
    quiet: bool,
    /// Print the summary as one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    if arguments.workers == 0 || arguments.workers > 256 {
        bail!("--workers {} is out of range: 1 to 256", arguments.workers);
    }
    if arguments.burst == 0 || arguments.burst > packet::MAX_BATCH {
        bail!("--burst {} is out of range: 1 to {}", arguments.burst, packet::MAX_BATCH);
    }
    if let Some(least) = arguments.min_workers.filter(|least| !(1..=arguments.workers).contains(least)) {
        bail!("--min-workers {least} is out of range: 1 to {}", arguments.workers);
    }
    if arguments.balance && arguments.mode != Mode::Parallel {
        bail!(
            "--balance moves work between workers that all do the same: leave out --mode {}",
            arguments.mode
        );
    }
    Roles::new(arguments.mode, arguments.workers)
        .map_err(|error| anyhow!("--mode {}: {error}", arguments.mode))?;
    let source = load::read(&arguments.file)?;
    let options = Options { parameters: arguments.parameters.clone() };
    let registry = elements::registry();
    let Some(flat) = load::compile(&source, &options, &registry) else { return Ok(ExitCode::FAILURE) };
    let flat = Arc::new(flat);

    let shared = Shared::default();
    shared.get_or_make(PortNames::KEY, || Ok::<_, anyhow::Error>(PortNames::new(arguments.ports.clone())))?;
    let control = Control::new(|line| eprintln!("{line}"));
    let pool = PoolOptions { frames: arguments.frames, data_bytes: arguments.frame_size };
    let router_options = RouterOptions {
        workers: arguments.workers,
        graph: GraphOptions { burst: arguments.burst, pool, simulated_time: false },
        slow_pool: PoolOptions { frames: arguments.frames.min(4096), data_bytes: arguments.frame_size },
        pin: arguments.workers > 1 && !arguments.no_pin,
        mode: arguments.mode,
    };
    let started = Instant::now();
    let mut router = match Router::build(flat.clone(), &registry, &shared, &router_options, control.clone()) {
        Ok(router) => router,
        Err(problems) => {
            load::report(problems.into_iter().map(|problem| load::with_excerpt(problem, &source)).collect());
            return Ok(ExitCode::FAILURE);
        }
    };
    for (target, value) in &arguments.writes {
        router
            .write(target, value)
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("--write {target}"))?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst)).context("cannot catch Ctrl-C")?;
    router.start().context("cannot start the worker threads")?;
    if !arguments.quiet {
        eprintln!(
            "brickway: {} runs with {} worker{} ({} elements, ready in {:.2} s); Ctrl-C stops it",
            source.name,
            arguments.workers,
            if arguments.workers == 1 { "" } else { "s" },
            flat.elements.len(),
            started.elapsed().as_secs_f64()
        );
    }
    let failed = watch(arguments, &mut router, &control, &interrupted);
    for path in &arguments.reads {
        match router.read(path) {
            Ok(value) => print(&format!("{path}:\n{}\n", value.trim_end())),
            Err(error) => eprintln!("brickway: --read {path}: {error}"),
        }
    }
    let stats = router.stats();
    let shares = queue_shares(&mut router).unwrap_or_default();
    if arguments.json {
        print_json(&flat, &stats, &shares);
    } else if !arguments.quiet {
        print(&summary(&flat, &stats));
        if arguments.workers > 1 {
            print(&format!("\n{}", workers_table(&stats, &shares).render()));
        }
    }
    let panicked = router.stop();
    if let Some(thread) = failed.or(panicked.into_iter().next()) {
        bail!(
            "the thread '{thread}' ended by a bug of ours; its packets were lost. Please report the message above"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Time between two looks at the load of the workers.
const BALANCE_PERIOD: Duration = Duration::from_secs(1);

/// Waits for the end, showing rates; the name of a thread that failed, if one did.
fn watch(
    arguments: &RunArguments,
    router: &mut Router,
    control: &Control,
    interrupted: &AtomicBool,
) -> Option<String> {
    let on_terminal = std::io::stderr().is_terminal();
    let period = arguments.stats.unwrap_or(if on_terminal && !arguments.quiet { 1.0 } else { 0.0 });
    let begin = Instant::now();
    let end = arguments.duration.map(|seconds| begin + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    let mut last = (Instant::now(), Totals::default());
    let mut balancer = arguments
        .balance
        .then(|| Balancer::new(arguments.workers, arguments.min_workers.unwrap_or(arguments.workers)));
    let mut balanced = Instant::now();
    loop {
        let now = Instant::now();
        if interrupted.load(Ordering::SeqCst) || end.is_some_and(|end| now >= end) {
            break;
        }
        let step = end.map_or(Duration::from_millis(50), |end| (end - now).min(Duration::from_millis(50)));
        if control.wait(step) {
            break;
        }
        if let Some(thread) = router.failed() {
            return Some(thread);
        }
        if let Some(balancer) = &mut balancer
            && balanced.elapsed() >= BALANCE_PERIOD
        {
            balanced = Instant::now();
            match balancer.step(router) {
                Ok(lines) if !arguments.quiet => lines.iter().for_each(|line| eprintln!("balance: {line}")),
                Ok(_) => {}
                Err(error) => eprintln!("balance: {error}"),
            }
        }
        if period > 0.0 && last.0.elapsed().as_secs_f64() >= period {
            let stats = router.stats();
            let totals = Totals::of(router.config(), &stats);
            let seconds = last.0.elapsed().as_secs_f64();
            let line = format!(
                "{:6.1} s  in {}pps  out {}pps  dropped {}  busy {}",
                begin.elapsed().as_secs_f64(),
                scaled((totals.received - last.1.received) as f64 / seconds),
                scaled((totals.sent - last.1.sent) as f64 / seconds),
                thousands(totals.dropped),
                stats.iter().map(|copy| format!("{:.0}%", copy.busy * 100.0)).collect::<Vec<_>>().join(" ")
            );
            if on_terminal {
                eprint!("\r\x1b[K{line}");
                let _ = std::io::stderr().flush();
            } else {
                eprintln!("{line}");
            }
            last = (Instant::now(), totals);
        }
    }
    if on_terminal && period > 0.0 {
        eprintln!();
    }
    None
}

/// Packets through all ports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
}

impl Totals {
    pub(crate) fn of(config: &FlatConfig, stats: &[CopyStats]) -> Self {
        let mut totals = Self::default();
        for copy in stats {
            for (flat, element) in config.elements.iter().zip(&copy.elements) {
                if RECEIVERS.contains(&flat.class.as_str()) {
                    totals.received += element.packets;
                } else if SENDERS.contains(&flat.class.as_str()) {
                    totals.sent += element.packets;
                }
                totals.dropped += element.drops.iter().map(|(_, count)| count).sum::<u64>();
            }
        }
        totals
    }
}

/// What each element did, all copies together: packets, cycles a packet, drops by reason.
pub(crate) fn summary(config: &FlatConfig, stats: &[CopyStats]) -> String {
    let mut table = Table::new(&[
        ("element", Align::Left),
        ("class", Align::Left),
        ("packets", Align::Right),
        ("a batch", Align::Right),
        ("cycles/packet", Align::Right),
        ("share", Align::Right),
    ]);
    let cycles_in_all: f64 =
        stats.iter().flat_map(|copy| &copy.elements).map(|element| element.cycles).sum::<f64>().max(1.0);
    let mut drops = Table::new(&[("dropped", Align::Right), ("by", Align::Left), ("reason", Align::Left)]);
    let mut dropped = false;
    for (index, flat) in config.elements.iter().enumerate() {
        let of_copies = || stats.iter().filter_map(|copy| copy.elements.get(index));
        let packets: u64 = of_copies().map(|element| element.packets).sum();
        let batches: u64 = of_copies().map(|element| element.batches).sum();
        let cycles: f64 = of_copies().map(|element| element.cycles).sum();
        if packets > 0 {
            table.row([
                flat.name.clone(),
                flat.class.clone(),
                thousands(packets),
                format!("{:.1}", packets as f64 / batches.max(1) as f64),
                format!("{:.1}", cycles / packets as f64),
                format!("{:.1}%", cycles / cycles_in_all * 100.0),
            ]);
        }
        let mut reasons: Vec<(&str, u64)> = Vec::new();
        for (reason, count) in of_copies().flat_map(|element| &element.drops) {
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, total)) => *total += count,
                None => reasons.push((reason, *count)),
            }
        }
        for (reason, count) in reasons {
            dropped = true;
            drops.row([thousands(count), flat.name.clone(), reason.to_owned()]);
        }
    }
    let mut text = table.render();
    if dropped {
        text.push('\n');
        text.push_str(&drops.render());
    }
    text
}

/// The share of each worker and queue: busy, packets received by its queues, and how many buckets it processes.
fn workers_table(stats: &[CopyStats], shares: &[QueueShare]) -> Table {
    let mut table = Table::new(&[
        ("worker", Align::Right),
        ("busy", Align::Right),
        ("port's queue", Align::Left),
        ("packets", Align::Right),
        ("share", Align::Right),
        ("processed by", Align::Left),
    ]);
    let in_all: u64 = shares.iter().map(|share| share.packets).sum();
    for copy in stats {
        let mut first = true;
        let held: Vec<&QueueShare> = shares.iter().filter(|share| share.worker == copy.copy).collect();
        let busy = format!("{:.0}%", copy.busy * 100.0);
        for share in &held {
            let name = if std::mem::take(&mut first) {
                (copy.copy.to_string(), busy.clone())
            } else {
                Default::default()
            };
            table.row([
                name.0,
                name.1,
                format!("{} {}", share.element, share.queue),
                thousands(share.packets),
                format!("{:.0}%", share.packets as f64 / in_all.max(1) as f64 * 100.0),
                owners_text(&share.owners),
            ]);
        }
        if held.is_empty() {
            let number = copy.copy.to_string();
            table.row([number, busy, String::new(), String::new(), String::new(), String::new()]);
        }
    }
    table
}

/// The workers that process a queue's packets, with their share of its buckets when there are several.
fn owners_text(owners: &[usize]) -> String {
    let mut counts = std::collections::BTreeMap::new();
    owners.iter().for_each(|owner| *counts.entry(owner).or_insert(0usize) += 1);
    let one = counts.len() == 1;
    let part = |(owner, count): (&&usize, &usize)| match one {
        true => owner.to_string(),
        false => format!("{owner} ({:.0}%)", *count as f64 / owners.len() as f64 * 100.0),
    };
    counts.iter().map(part).collect::<Vec<_>>().join(", ")
}

fn print_json(config: &FlatConfig, stats: &[CopyStats], shares: &[QueueShare]) {
    for share in shares {
        let object = serde_json::json!({
            "element": share.element, "queue": share.queue, "worker": share.worker, "packets": share.packets,
            "bucket_workers": share.owners,
        });
        print(&format!("{object}\n"));
    }
    for copy in stats {
        for (flat, element) in config.elements.iter().zip(&copy.elements) {
            if element.packets == 0 && element.drops.is_empty() {
                continue;
            }
            let drops: serde_json::Map<String, serde_json::Value> =
                element.drops.iter().map(|(reason, count)| ((*reason).to_owned(), (*count).into())).collect();
            let object = serde_json::json!({
                "copy": copy.copy, "element": flat.name, "class": flat.class, "packets": element.packets,
                "batches": element.batches, "cycles": element.cycles, "drops": drops,
            });
            print(&format!("{object}\n"));
        }
    }
}
