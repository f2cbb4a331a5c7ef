//! `brickway-lab bench io`: what it costs to bring frames in and out, and to route them, over every driver.
//!
//! A case is DRIVER/WORKLOAD/ENGINE. Cases with the same frames take turns run by run on the same core, so that what
//! disturbs the machine disturbs all of them; what is printed are medians. Beside ours stand dpdk-testpmd, which hands
//! frames from queue to queue and nothing else, DPDK's l3fwd, which routes, and on veth links the kernel: its IP forwarding, its XDP redirect, and
//! `bpf_fib_lookup` as xdp-forward of xdp-tools uses it. There all forward by the routes that Linux has.
//! Rates of `memory`, `net_pcap` and `net_null` are packets by CPU time of the forwarding thread, for ours as for
//! testpmd; on veth they are what arrived at the sink by wall-clock time, and the CPU time of a packet is all that the
//! forwarding core spent on it (`veth.rs` says what that is).
//!
//! What a machine lacks (testpmd, root, a C compiler, a build with DPDK) is said, and its cases are left out.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `cases.rs` | which cases there are |
//! | `ours.rs` | our fast path on this thread, over memory and DPDK's vdevs |
//! | `dpdk_program.rs` | a program of DPDK's in a process of its own |
//! | `testpmd.rs` | dpdk-testpmd |
//! | `l3fwd.rs` | DPDK's example l3fwd |
//! | `veth.rs` | a router between two veth links: ours as a process, and the kernel |
//! | `network.rs` | the namespaces and links of those |
//! | `steps.rs` | what is forwarded between veth links of what is sent |
//! | `traffic.rs` | the destinations of their frames, and Linux's routes for them |
//! | `veth_ends.c`, `ends.rs` | source, sink and XDP redirect as programs in the kernel |

mod cases;
mod dpdk_program;
mod ends;
mod l3fwd;
mod network;
mod ours;
pub(crate) mod steps;
mod testpmd;
mod traffic;
mod veth;

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use packet::cycles;
use tempfile::TempDir;

use super::cpus::Apart;
use super::folder::folder;
use super::huge_pages::HugePages;
use super::runs::{FrameArguments, RunArguments};
use super::{children, median, print_figure};
use crate::progress;
use cases::{Case, Engine, Work};
pub(super) use ours::looped_file;
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Measures forwarding over every driver: million packets a second, and cycles of a packet.
#[derive(Args, Debug)]
#[command(mut_arg("seconds", |seconds| seconds.default_value("0.5")), after_help = "Examples:
  brickway-lab bench io                                    everything that this machine can
  brickway-lab bench io --only net_pcap/minimal            ours and testpmd over DPDK's net_pcap
  brickway-lab bench io --only forward,redirect            Linux's routes: the kernel, bpf_fib_lookup, and our router
  brickway-lab bench io --only forward-full,redirect-full  the same with the real IPv4 table alone
  brickway-lab bench io --only memory/route --json
  BRICKWAY_CPU=avx2 brickway-lab bench io --only net_pcap  as on a CPU without AVX-512 (scalar: without any vectors)

A case is DRIVER/WORKLOAD/ENGINE, for instance net_pcap/route-1m-65536/brickway. Drivers: memory, net_pcap, net_null,
af_packet, af_xdp, xdp, xdp-generic (the same in generic mode), veth (the kernel itself).

Workloads:
  minimal    receives and sends
  route      the example router, checksums verified (l3fwd verifies none)
  drop-in    the graph of `brickway run PORT...`
  forward    the routes that Linux has, over 64 neighbours
  listed     the same behind an access list of 100 rules, which Linux has as nftables
  redirect   no lookup
  esp        encrypts each frame by Linux's IPsec policies and associations
  forward6, listed6, redirect6   the same in IPv6

The engine 'watched' is ours with --metrics and --web, which clients read every second on the other core. Behind a workload stand the routes of the table (full is the real one) and the
destinations of the frames, 1-1 for one of each. On veth links CPU time is that of the forwarding
core, the kernel's part and the dropping at the sink included.

Needed programs and packages (cases without theirs are left out):
  net_pcap, net_null   a build with DPDK (cargo build --release --features dpdk)
  testpmd              the package dpdk-dev
  l3fwd                make bench-peers
  veth links           root, and the packages gcc, iproute2, ethtool
  xdp-forward          xdp-tools 1.5 (Debian 13)

As root it reserves huge pages for DPDK, as far as too few are free, and gives them back at its end:
some 8 GB for all cases. 2 GB of them are for ours, 1 GB for testpmd's, 5 GB for l3fwd's.")]
pub(crate) struct IoArguments {
    /// Only cases whose name contains one of these
    #[arg(long, value_delimiter = ',', value_name = "TEXT")]
    only: Vec<String>,
    #[command(flatten)]
    frames: FrameArguments,
    /// The real IPv6 table
    #[arg(long, default_value_os_t = crate::tables::ipv6(), value_name = "FILE")]
    table6: PathBuf,
    #[command(flatten)]
    run: RunArguments,
}

/// Something that a case needs and the machine or the build does not have, with what brings it.
struct Missing(String);

/// Either what was wanted, or what is missing for it.
type Available<T> = std::result::Result<T, Missing>;

/// What is measured: name and unit in JSON, title of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Metric {
    name: &'static str,
    unit: &'static str,
    title: &'static str,
}

const MPPS: Metric = Metric { name: "mpps", unit: "Mpps", title: "Mpps" };
const CYCLES: Metric = Metric { name: "cycles_per_packet", unit: "TSC cycles", title: "cycles/packet" };
/// All that worked for the router, the kernel's part included.
const CPU_NS: Metric = Metric { name: "cpu_ns_per_packet", unit: "ns", title: "CPU ns/packet" };
/// What the threads of our process took of that.
const ENGINE_NS: Metric = Metric { name: "engine_ns_per_packet", unit: "ns", title: "our threads'" };
/// The part of the router's CPU's work that was done in interrupts.
const SOFTIRQ: Metric = Metric { name: "softirq_percent", unit: "%", title: "softirq %" };
/// What was sent to the router and did not arrive.
const LOSS: Metric = Metric { name: "loss_percent", unit: "%", title: "loss %" };

const COLUMNS: [Metric; 6] = [MPPS, CYCLES, CPU_NS, ENGINE_NS, SOFTIRQ, LOSS];

/// What one run gave.
type Figures = Vec<(Metric, f64)>;

/// Rate and cost of packets by the CPU time that one thread took for them.
fn by_cpu_time(packets: u64, cycles: f64) -> Figures {
    let each = cycles / packets.max(1) as f64;
    vec![(MPPS, cycles::per_second() / each / 1e6), (CYCLES, each)]
}

/// A case, ready to be measured; dropping it gives back what it holds.
trait Contestant {
    /// One run of about `seconds`.
    fn run(&mut self, seconds: f64) -> Result<Figures>;

    /// Whether the packets went where they should; asked at the end.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What all cases share.
struct Setting<'a> {
    arguments: &'a IoArguments,
    folder: &'a TempDir,
    apart: Option<Apart>,
    has_huge_pages: bool,
    /// Pages that were reserved in the place of those that others took.
    more_pages: RefCell<Vec<HugePages>>,
}

pub(crate) fn io(arguments: &IoArguments) -> Result<ExitCode> {
    arguments.run.check()?;
    arguments.frames.check()?;
    let cases = cases::select(&arguments.only)?;
    children::end_on_signals()?;
    arguments.run.say_heading("io", &format!("{}-byte frames", arguments.frames.size), "one core");
    let result = measure_all(arguments, &cases);
    progress::clear();
    let Outcome { is_empty, has_failed } = result?;
    if is_empty && !has_failed {
        bail!("none of the cases can be measured here");
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Measures Linux's ESP, and that of our router in its place, between veth links. Returns whether a case failed; what the machine lacks is
/// printed.
pub(super) fn esp(run: RunArguments) -> Result<bool> {
    children::end_on_signals()?;
    // Frames to one destination need no table.
    let frames = FrameArguments { table: PathBuf::new(), size: 64 };
    let arguments = IoArguments { only: Vec::new(), frames, table6: PathBuf::new(), run };
    let result = measure_all(&arguments, &cases::of_esp());
    progress::clear();
    Ok(result?.has_failed)
}

/// What came of the cases.
struct Outcome {
    /// None was measured.
    is_empty: bool,
    has_failed: bool,
}

fn measure_all(arguments: &IoArguments, cases: &[Case]) -> Result<Outcome> {
    // Dropped last: processes use the folder and the pages.
    let folder = folder()?;
    let pages = reserve_pages(cases);
    let setting = Setting {
        arguments,
        folder: &folder,
        apart: Apart::find(),
        has_huge_pages: pages.is_some(),
        more_pages: RefCell::default(),
    };
    let mut left_out: Vec<(Case, Missing)> = Vec::new();
    let mut measured: Vec<(Case, Figures)> = Vec::new();
    let mut failed = false;
    for group in cases.chunk_by(Case::is_in_group_of) {
        let figures = measure_group(&setting, group, &mut left_out, &mut failed)?;
        progress::clear();
        if arguments.run.json {
            figures.iter().for_each(print_json);
        }
        measured.extend(figures);
    }
    say_missing(&left_out);
    if !arguments.run.json && !measured.is_empty() {
        print_table(&measured);
    }
    Ok(Outcome { is_empty: measured.is_empty(), has_failed: failed })
}

/// Huge pages for all that DPDK will hold at a time, if DPDK is used at all.
fn reserve_pages(cases: &[Case]) -> Option<HugePages> {
    let ours: u64 = cases.iter().filter(|case| case.engine == Engine::Brickway).map(ours::megabytes).sum();
    let most_of = |engine: Engine, megabytes: u64| {
        let of_group = |group: &[Case]| group.iter().filter(|case| case.engine == engine).count() as u64;
        cases.chunk_by(Case::is_in_group_of).map(of_group).max().unwrap_or(0) * (megabytes + OF_DPDK_ITSELF)
    };
    let testpmds = if testpmd::find().is_ok() { most_of(Engine::Testpmd, testpmd::MEGABYTES) } else { 0 };
    let with_tables = [Engine::L3fwdFib, Engine::L3fwdLpm].map(|engine| most_of(engine, l3fwd::MEGABYTES));
    let l3fwds = if l3fwd::find().is_ok() { with_tables.iter().sum() } else { 0 };
    if ours + testpmds + l3fwds == 0 {
        return None;
    }
    match HugePages::reserve(ours + testpmds + l3fwds + OF_DPDK_ITSELF) {
        Ok(pages) => Some(pages),
        Err(problem) => {
            graph::note!("brickway-lab: DPDK's frames are not on huge pages, which slows it down: {problem}");
            None
        }
    }
}

/// What DPDK says if others took the free pages, and how often pages are reserved again then.
const NO_PAGES: &str = "Cannot init memory";
const MOST_TRIES: usize = 5;

/// Huge pages for DPDK's own tables in each process, in megabytes.
const OF_DPDK_ITSELF: u64 = 128;

/// Cases with the same frames, in turns. One that fails is reported, and the others go on.
fn measure_group(
    setting: &Setting<'_>,
    group: &[Case],
    left_out: &mut Vec<(Case, Missing)>,
    failed: &mut bool,
) -> Result<Vec<(Case, Figures)>> {
    let mut succeeds = |case: &Case, result: Result<()>| -> Result<bool> {
        let Err(problem) = result else { return Ok(true) };
        children::stop_if_interrupted()?;
        progress::clear();
        graph::note!("brickway-lab: {}: {problem:#}", case.name());
        *failed = true;
        Ok(false)
    };
    let arguments = setting.arguments;
    let on_veth = group.iter().any(|case| case.driver.is_on_veth());
    let veth = match on_veth.then(|| veth::Veth::new(setting, group[0].load, 1)).transpose() {
        Ok(veth) => veth,
        Err(problem) => {
            succeeds(&group[0], Err(problem))?;
            return Ok(Vec::new());
        }
    };
    let mut frames = ours::Frames::new(group[0].load);
    let mut contestants: Vec<(Case, Box<dyn Contestant + '_>, Vec<Figures>)> = Vec::new();
    for case in group {
        children::stop_if_interrupted()?;
        progress::tell("preparing", &case.name());
        let mut make = || -> Result<Available<Box<dyn Contestant + '_>>> {
            match (&veth, case.engine) {
                (Some(Ok(veth)), _) => veth.contestant(case),
                (Some(Err(missing)), _) => Ok(Err(Missing(missing.0.clone()))),
                (None, Engine::Testpmd) => testpmd::contestant(setting, case, &mut frames),
                (None, Engine::L3fwdFib | Engine::L3fwdLpm) => l3fwd::contestant(setting, case, &mut frames),
                (None, _) => ours::contestant(setting, case, &mut frames),
            }
        };
        let mut made = make();
        for _ in 0..MOST_TRIES {
            let lacks_pages = made.as_ref().is_err_and(|problem| format!("{problem:#}").contains(NO_PAGES));
            if !(setting.has_huge_pages && lacks_pages) {
                break;
            }
            // Others that run here, such as routers, take free pages for their frames.
            let of_frames =
                if case.engine == Engine::Testpmd { testpmd::MEGABYTES } else { l3fwd::MEGABYTES };
            let pages = HugePages::reserve(of_frames + OF_DPDK_ITSELF).map_err(anyhow::Error::msg)?;
            setting.more_pages.borrow_mut().push(pages);
            made = make();
        }
        match made {
            Ok(Ok(contestant)) => contestants.push((*case, contestant, Vec::new())),
            Ok(Err(missing)) => left_out.push((*case, missing)),
            Err(problem) => {
                succeeds(case, Err(problem))?;
            }
        }
    }
    for turn in 1..=arguments.run.runs {
        let mut index = 0;
        while let Some((case, contestant, runs)) = contestants.get_mut(index) {
            children::stop_if_interrupted()?;
            progress::tell("measuring", &format!("{}, run {turn} of {}", case.name(), arguments.run.runs));
            let result = contestant.run(arguments.run.seconds).map(|figures| runs.push(figures));
            if succeeds(case, result)? {
                index += 1;
            } else {
                contestants.remove(index);
            }
        }
    }
    let mut measured = Vec::new();
    for (case, contestant, runs) in &mut contestants {
        if succeeds(case, contestant.check())? {
            measured.push((*case, medians(runs)));
        }
    }
    Ok(measured)
}

/// The median of each metric.
fn medians(runs: &[Figures]) -> Figures {
    let of = |wanted: Metric| {
        let values: Vec<f64> =
            runs.iter().flatten().filter(|(metric, _)| *metric == wanted).map(|(_, value)| *value).collect();
        (!values.is_empty()).then(|| (wanted, median(values)))
    };
    COLUMNS.into_iter().filter_map(of).collect()
}

fn print_json((case, figures): &(Case, Figures)) {
    for (metric, value) in figures {
        print_figure("io", &case.name(), metric.name, *value, metric.unit);
    }
}

fn print_table(measured: &[(Case, Figures)]) {
    let has = |metric: &Metric| measured.iter().any(|(_, figures)| value_of(figures, *metric).is_some());
    let shown: Vec<Metric> = COLUMNS.into_iter().filter(has).collect();
    let mut columns = vec![("case", Align::Left)];
    columns.extend(shown.iter().map(|metric| (metric.title, Align::Right)));
    // The best of a peer with the same frames, for what it is to be compared with.
    let peers: [(&str, &[Engine], &[Work]); 2] = [
        ("of testpmd's", &[Engine::Testpmd], &[Work::Minimal, Work::Route, Work::DropIn]),
        ("of l3fwd's", &[Engine::L3fwdFib, Engine::L3fwdLpm], &[Work::Route, Work::DropIn]),
    ];
    let best = |case: &Case, engines: &[Engine]| {
        let is_peer = |other: &Case| {
            engines.contains(&other.engine) && other.load == case.load && other.driver == case.driver
        };
        let rates = measured.iter().filter(|(other, _)| is_peer(other));
        rates.filter_map(|(_, figures)| value_of(figures, MPPS)).max_by(f64::total_cmp)
    };
    let peers = peers
        .into_iter()
        .filter(|(_, engines, _)| measured.iter().any(|(case, _)| best(case, engines).is_some()));
    let peers: Vec<_> = peers.collect();
    columns.extend(peers.iter().map(|(title, ..)| (*title, Align::Right)));
    let mut table = Table::new(&columns);
    for (case, figures) in measured {
        let cell = |metric: &Metric| value_of(figures, *metric).map_or(String::new(), number);
        let mut cells = vec![case.name()];
        cells.extend(shown.iter().map(cell));
        for (_, engines, works) in &peers {
            let best = best(case, engines).filter(|_| works.contains(&case.work));
            let ratio = best.zip(value_of(figures, MPPS)).map(|(best, rate)| rate / best);
            cells.push(ratio.map_or(String::new(), |ratio| format!("{:.0}%", ratio * 100.0)));
        }
        table.row(cells);
    }
    say!("{}", table.render());
    if measured.iter().any(|(case, _)| case.driver.is_on_veth()) {
        say_line!("\non veth links: {}", veth::SOURCE);
    }
}

fn value_of(figures: &Figures, wanted: Metric) -> Option<f64> {
    figures.iter().find(|(metric, _)| *metric == wanted).map(|(_, value)| *value)
}

fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// Says each reason once.
fn say_missing(left_out: &[(Case, Missing)]) {
    let mut told: Vec<&str> = Vec::new();
    for (_, Missing(reason)) in left_out {
        if told.contains(&reason.as_str()) {
            continue;
        }
        told.push(reason);
        let same = left_out.iter().filter(|(_, other)| other.0 == *reason);
        let names: Vec<String> = same.map(|(case, _)| case.name()).collect();
        graph::note!("brickway-lab: left out: {}\n  {reason}", names.join(", "));
    }
}
