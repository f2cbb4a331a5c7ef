//! `brickway-lab bench fib`: lookups in our tables and in DPDK's, side by side in one run.
//!
//! A figure of a lookup table means little without its neighbour's: the machine, its caches and what else runs decide
//! as much as the design. So every engine gets the same routes and the same addresses, and takes its turn run by run:
//! ours, rte_fib, rte_lpm, ours, ... What is printed are medians. And every engine must give the next hops that the
//! routes say, or the bench fails: wrong tables have no speed.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `tables.rs` | routes, address lists, and what is right |
//! | `engine.rs` | what an engine does, and the rules that make figures comparable |
//! | `ours.rs` | our tables as engines |
//! | `published.rs` | our tables as routers hold them: two copies, next hops |
//! | `under_load.rs` | changes of routes while a worker looks up |
//! | `traffic.rs` | what that worker looks up, and which answers are possible |
//! | `failover.rs` | next hops that fail while a worker looks up |
//! | `dpdk.rs`, `dpdk_tables.c` | DPDK's tables as engines: the parent's side, and the process |
//! | `report.rs` | figures on standard output |

mod dpdk;
mod engine;
mod failover;
mod ours;
mod published;
mod report;
mod tables;
mod traffic;
mod under_load;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use fib::{Dir24_8, Kind, Rank};
use packet::Family;
use rustix::process::geteuid;
use serde_json::json;
use tempfile::TempDir;

use super::folder::folder;
use super::huge_pages::HugePages;
use super::runs::medians_of;
use super::{children, median, print_setting};
use crate::progress;
use dpdk::{DpdkTable, Program};
use engine::{Engine, Loop, WithWorker};
use ours::Ours;
use report::Report;
use router::output::say_line;
use tables::{AddressesName, Checksum, Routes, TableName, Truth, name_of};
use traffic::Traffic;

/// Measures lookups in the forwarding tables, beside DPDK's tables if libdpdk is installed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench fib                                      everything; rte_lpm needs minutes to load
  brickway-lab bench fib --engines brickway,rte_fib           without it
  brickway-lab bench fib --tables v6-real --addresses inside --json

Tables: v4-real and v6-real are the files in the data folder, v4-1m is v4-real grown to a million routes that nest.
There are a million addresses of each kind. 'random' is over the address space, 'inside' in a prefix chosen at random, 'hot' of
1,000 such addresses. For tables of IPv6 rte_fib and rte_lpm mean rte_fib6 and rte_lpm6.

DPDK's tables take huge pages. Root reserves them for the time of the bench; otherwise, without.")]
pub(crate) struct FibArguments {
    /// Tables of routes
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "v4-1m,v4-real,v6-real"
    )]
    tables: Vec<TableName>,
    /// Lists of addresses
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", default_value = "random,inside,hot")]
    addresses: Vec<AddressesName>,
    /// Lookup tables, in the order in which they take turns
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "brickway,brickway-xdp,rank,dir24_8,rte_fib,rte_lpm"
    )]
    engines: Vec<EngineName>,
    /// Runs of each case; the median is printed
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Changes of routes that ours publish together
    #[arg(long, default_value_t = 50_000, value_name = "CHANGES")]
    batch: usize,
    /// The folder of the tables' files
    #[arg(long, default_value_os_t = crate::tables::folder(), value_name = "FOLDER")]
    data: PathBuf,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// The lookup tables that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineName {
    /// What routers use
    Brickway,
    /// The same where packets are forwarded in the kernel, which reads the tables too (needs root)
    BrickwayXdp,
    /// Our small IPv4 table
    Rank,
    /// Our plain IPv4 table, the design of rte_fib and rte_lpm
    #[value(name = "dir24_8")]
    Dir24_8,
    /// DPDK's DIR-24-8, and its trie for IPv6
    #[value(name = "rte_fib")]
    RteFib,
    /// DPDK's older tables
    #[value(name = "rte_lpm")]
    RteLpm,
}

impl EngineName {
    fn is_dpdk(self) -> bool {
        matches!(self, EngineName::RteFib | EngineName::RteLpm)
    }
}

pub(crate) fn fib(arguments: &FibArguments) -> Result<ExitCode> {
    if !(1..=1000).contains(&arguments.runs) {
        bail!("--runs {} is out of range: 1 to 1000", arguments.runs);
    }
    if !(1..=1_000_000).contains(&arguments.batch) {
        bail!("--batch {} is out of range: 1 to 1000000", arguments.batch);
    }
    children::end_on_signals()?;
    let result = measure_all(arguments);
    progress::clear();
    result
}

fn measure_all(arguments: &FibArguments) -> Result<ExitCode> {
    if arguments.engines.contains(&EngineName::BrickwayXdp) && !geteuid().is_root() {
        graph::note!("brickway-lab: brickway-xdp is left out: loading a BPF program needs root");
    }
    // Dropped last, and after them the pages and the folder: processes use both.
    let folder = folder()?;
    let (program, _pages) = prepare_dpdk(arguments, &folder)?;
    let traffic = format!(
        "{} addresses a pass, batches of {}, {} next hops",
        router::table::thousands(tables::ADDRESSES as u64),
        fib::BURST,
        tables::NEXT_HOPS
    );
    if arguments.json {
        print_setting("fib", json!({"traffic": traffic, "place": "one core", "runs": arguments.runs}));
    } else {
        say_line!("{traffic}, one core; {}\n", medians_of(arguments.runs));
    }
    for &table in &arguments.tables {
        progress::tell(&name_of(&table), "reading");
        let report = match table {
            TableName::V4Million | TableName::V4Real => {
                let routes = tables::ipv4(table, &arguments.data)?;
                measure(arguments, &routes, engines4(arguments, program.as_ref()))?
            }
            TableName::V6Real => {
                let routes = tables::ipv6(table, &arguments.data)?;
                measure(arguments, &routes, engines6(arguments, program.as_ref()))?
            }
        };
        progress::clear();
        if arguments.json {
            report.print_json();
        } else {
            report.print();
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Compiles the C side and finds huge pages for it, as far as that is wanted and possible.
fn prepare_dpdk(arguments: &FibArguments, folder: &TempDir) -> Result<(Option<Program>, Option<HugePages>)> {
    let wanted = arguments.engines.iter().filter(|engine| engine.is_dpdk()).count();
    if wanted == 0 {
        return Ok((None, None));
    }
    progress::tell("compiling the C side of DPDK's tables", "");
    let program = match Program::compile(folder.path())? {
        Ok(program) => program,
        Err(missing) => {
            progress::clear();
            graph::note!("brickway-lab: {missing}");
            return Ok((None, None));
        }
    };
    match HugePages::reserve(wanted as u64 * dpdk::MEGABYTES_PER_TABLE) {
        Ok(pages) => Ok((Some(program.on_huge_pages()), Some(pages))),
        Err(problem) => {
            progress::clear();
            graph::note!(
                "brickway-lab: DPDK's tables are measured without huge pages, which slows them down: {problem}"
            );
            Ok((Some(program), None))
        }
    }
}

type Engines<A> = Vec<Box<dyn Engine<A>>>;

fn engines4(arguments: &FibArguments, program: Option<&Program>) -> Engines<u32> {
    let mut engines: Engines<u32> = Vec::new();
    for engine in &arguments.engines {
        match (engine, program) {
            (EngineName::Brickway, _) => {
                engines.push(Box::new(Ours::new("brickway", Kind::default(), arguments.batch)))
            }
            (EngineName::BrickwayXdp, _) if !geteuid().is_root() => {}
            (EngineName::BrickwayXdp, _) => {
                engines.push(Box::new(Ours::in_kernel("brickway-xdp", arguments.batch)))
            }
            (EngineName::Rank, _) => {
                engines.push(Box::new(Ours::new("rank", Kind::of::<Rank>(), arguments.batch)))
            }
            (EngineName::Dir24_8, _) => {
                engines.push(Box::new(Ours::new("dir24_8", Kind::of::<Dir24_8>(), arguments.batch)))
            }
            (EngineName::RteFib, Some(program)) => {
                engines.push(Box::new(DpdkTable::new("rte_fib", program.clone())));
            }
            (EngineName::RteLpm, Some(program)) => {
                engines.push(Box::new(DpdkTable::new("rte_lpm", program.clone())));
            }
            (EngineName::RteFib | EngineName::RteLpm, None) => {}
        }
    }
    engines
}

fn engines6(arguments: &FibArguments, program: Option<&Program>) -> Engines<u128> {
    let mut engines: Engines<u128> = Vec::new();
    for engine in &arguments.engines {
        match (engine, program) {
            (EngineName::Brickway, _) => {
                engines.push(Box::new(Ours::new("brickway", Kind::default(), arguments.batch)))
            }
            (EngineName::RteFib, Some(program)) => {
                engines.push(Box::new(DpdkTable::new("rte_fib6", program.clone())));
            }
            (EngineName::RteLpm, Some(program)) => {
                engines.push(Box::new(DpdkTable::new("rte_lpm6", program.clone())));
            }
            (EngineName::BrickwayXdp, _) if !geteuid().is_root() => {}
            (EngineName::BrickwayXdp, _) => {
                engines.push(Box::new(Ours::in_kernel("brickway-xdp", arguments.batch)))
            }
            // There is one table of ours for IPv6.
            (EngineName::Rank | EngineName::Dir24_8, _) => {}
            (EngineName::RteFib | EngineName::RteLpm, None) => {}
        }
    }
    engines
}

fn measure<A: Family>(
    arguments: &FibArguments,
    routes: &Routes<A>,
    mut engines: Engines<A>,
) -> Result<Report> {
    let table = &routes.name;
    let mut report = Report::new(table, routes.routes.len());
    for engine in &mut engines {
        children::stop_if_interrupted()?;
        progress::tell(table, &format!("loading {}", engine.name()));
        let loaded = engine.load(routes).with_context(|| format!("{table}/{}", engine.name()))?;
        report.add_engine(engine.name(), engine.is_ours(), &loaded);
    }
    let truth = Truth::new(routes);
    let mut last = None;
    for &name in &arguments.addresses {
        let case = name_of(&name);
        let addresses = routes.addresses(name);
        let right = truth.checksum(&addresses);
        last = Some((case.clone(), right));
        for engine in &mut engines {
            progress::tell(&format!("{table}/{case}"), &format!("checking {}", engine.name()));
            engine.set_addresses(&addresses)?;
            check(engine.as_mut(), table, &case, right)?;
        }
        for (way, metric) in [(Loop::Batch, report::MLPS), (Loop::Single, report::SINGLE_MLPS)] {
            in_turns(arguments, &mut engines, &format!("{table}/{case} {}", metric.name), |engine| {
                engine.lookup_rate(way)
            })?
            .into_iter()
            .for_each(|(engine, rate)| report.add(Some(&case), metric, engine, rate / 1e6));
        }
    }
    let order = routes.update_order();
    for (engine, rate) in
        in_turns(arguments, &mut engines, &format!("{table} updates"), |engine| engine.update_rate(&order))?
    {
        report.add(None, report::IDLE_UPDATES, engine, rate);
    }
    let traffic = Traffic::new(routes);
    for engine in &mut engines {
        progress::tell(table, &format!("updates and failures under load: {}", engine.name()));
        let what = WithWorker { routes, traffic: &traffic, runs: arguments.runs };
        let figures = engine.with_worker(&what).with_context(|| format!("{table}/{}", engine.name()))?;
        figures.into_iter().for_each(|(metric, value)| report.add(None, metric, engine.name(), value));
        // Every changed route has its own next hop again.
        if let Some((case, right)) = &last {
            check(engine.as_mut(), table, case, *right)?;
        }
    }
    Ok(report)
}

/// The median of some runs for each engine. They take turns, so that what disturbs the machine disturbs all.
fn in_turns<A: Family>(
    arguments: &FibArguments,
    engines: &mut Engines<A>,
    what: &str,
    mut run: impl FnMut(&mut dyn Engine<A>) -> Result<f64>,
) -> Result<Vec<(&'static str, f64)>> {
    let mut values = vec![Vec::new(); engines.len()];
    for turn in 0..arguments.runs {
        progress::tell(what, &format!("run {} of {}", turn + 1, arguments.runs));
        for (engine, values) in engines.iter_mut().zip(&mut values) {
            children::stop_if_interrupted()?;
            values.push(run(engine.as_mut()).with_context(|| engine.name())?);
        }
    }
    Ok(engines.iter().zip(values).map(|(engine, values)| (engine.name(), median(values))).collect())
}

/// An engine whose next hops are not those of the routes ends the bench.
fn check<A: Family>(engine: &mut dyn Engine<A>, table: &str, case: &str, right: Checksum) -> Result<()> {
    for way in Loop::ALL {
        let found = engine.checksum(way).with_context(|| engine.name())?;
        if found != right {
            bail!(
                "{table}/{case}/{}: its next hops are not those of the routes ({way:?} lookups: checksum {:016x}, \
                 right is {:016x}); no speed is worth that",
                engine.name(),
                found.0,
                right.0
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use engine::Loaded;

    /// An engine that answers with one next hop for everything.
    struct OneAnswer(u16, usize);

    impl Engine<u32> for OneAnswer {
        fn name(&self) -> &'static str {
            "one-answer"
        }

        fn is_ours(&self) -> bool {
            true
        }

        fn load(&mut self, _: &Routes<u32>) -> Result<Loaded> {
            let description = String::new();
            Ok(Loaded { seconds: 1.0, table_bytes: 1, both_bytes: None, heap_bytes: 1, description })
        }

        fn set_addresses(&mut self, addresses: &[u32]) -> Result<()> {
            self.1 = addresses.len();
            Ok(())
        }

        fn checksum(&mut self, _: Loop) -> Result<Checksum> {
            let mut checksum = Checksum::default();
            (0..self.1).for_each(|_| checksum.add(self.0));
            Ok(checksum)
        }

        fn lookup_rate(&mut self, _: Loop) -> Result<f64> {
            Ok(1e6)
        }

        fn update_rate(&mut self, _: &[u32]) -> Result<f64> {
            Ok(1.0)
        }
    }

    #[test]
    fn an_engine_that_is_wrong_has_no_speed() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: FibArguments,
        }
        let line = <Line as clap::Parser>::parse_from(["fib", "--addresses=inside", "--runs=1"]);
        let row = fib::read::Row::<u32> { prefix: "10.0.0.0/8".parse().unwrap(), origin: 1 };
        let routes = Routes::new("test", vec![row]);
        let right = routes.routes[0].next_hop;
        measure(&line.arguments, &routes, vec![Box::new(OneAnswer(right, 0))]).unwrap();
        let error = measure(&line.arguments, &routes, vec![Box::new(OneAnswer(right + 1, 0))]).err().unwrap();
        assert!(
            error.to_string().starts_with("test/inside/one-answer: its next hops are not those"),
            "{error}"
        );
    }
}
