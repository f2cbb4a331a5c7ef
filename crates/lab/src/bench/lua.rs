//! `brickway-lab bench lua`: what a script costs a packet, beside elements that do the same.
//!
//! A step is measured by itself: the cycles of a graph with it, less those of the same graph without. The three ways in which a
//! script can split a batch are those of MoonRoute (section 4.3).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use graph::lang::Source;
use graph::setup::Shared;
use ports::{MemoryLoop, OpenOptions, Port};

use super::folder::folder;
use super::runs::RunArguments;
use super::single_core::{ROUTER_PORTS, SingleCore};
use super::{drop_in, frames, median, print_figure, routes};
use router::output::say;
use router::table::{Align, Table};

/// Measures scripts on one core, in memory, beside elements that do the same.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench lua
  brickway-lab bench lua --burst 256 --json
  brickway-lab bench lua --only ttl,router/real

Cases:
  identity         a script that does nothing
  ttl              takes a hop off each packet
  read             reads two fields of each packet
  router           the script beside the graph of `brickway run PORT...`: one route, and the real table
  split/WAY/SHARE  diverts that share of the packets to another output

WAY gathers the numbers of packets in tables (arrays) or in bit masks (masks), or sends each at once (drop-out).")]
pub(crate) struct LuaArguments {
    /// The script of a router
    #[arg(long, default_value = "examples/lua/router.lua", value_name = "FILE")]
    script: PathBuf,
    /// The real table
    #[arg(long, default_value_os_t = crate::tables::ipv4(), value_name = "FILE")]
    table: PathBuf,
    /// Only the cases whose names begin so
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    #[command(flatten)]
    run: RunArguments,
}

const IDENTITY: &str = "function process(batch) end";
const READ: &str = "local seen = 0
    function process(batch)
      for _, p in batch:each() do
        local ip = p.ip
        if ip then seen = seen + ip.ttl + ip.total_length end
      end
    end";
const TTL: &str = "function process(batch)
      for _, p in batch:each() do
        local ip = p.ip
        local ttl = ip.ttl
        if ttl <= 1 then p:send(1) else ip.ttl = ttl - 1 end
      end
    end";

/// The ways to split a batch; `SHARE` of a hundred destinations are diverted.
const SPLITS: [(&str, &str); 3] = [
    (
        "arrays",
        "local new_table = {}
        function process(batch)
          local there, count, here, rest = {}, 0, {}, 0
          for number, p in batch:each() do
            if p:u8(33) % 100 < SHARE then count = count + 1 there[count] = number else rest = rest + 1 here[rest] = number end
          end
          for i = 1, rest do batch[here[i]]:send(0) end
          for i = 1, count do batch[there[i]]:send(1) end
        end",
    ),
    (
        "masks",
        "function process(batch)
          local there = batch:none()
          for number, p in batch:each() do
            if p:u8(33) % 100 < SHARE then there:set(number) end
          end
          batch:all():minus(there):send(0)
          there:send(1)
        end",
    ),
    (
        "drop-out",
        "function process(batch)
          for number, p in batch:each() do
            if p:u8(33) % 100 < SHARE then p:send(1) end
          end
        end",
    ),
];
const SHARES: [u32; 5] = [0, 1, 10, 25, 50];

fn null() -> Result<Box<dyn Port>> {
    Ok(ports::open("null:", &OpenOptions::default())?)
}

/// A case: the graph with the step, that without it, and what else does the same.
struct Case {
    name: String,
    unit: &'static str,
    with: SingleCore,
    without: Option<SingleCore>,
    cycles: Vec<f64>,
}

/// `FromDevice`, the elements, `ToDevice`; the second output, if there is one, leaves by another port.
fn graph(elements: &str, frames: &[Vec<u8>], burst: usize) -> Result<SingleCore> {
    let text = format!("FromDevice(bench0) -> MarkIPHeader(14) -> {elements}");
    let source = Source { name: "lua.click".into(), text };
    let input: Box<dyn Port> = Box::new(MemoryLoop::new(frames.to_vec()));
    let ports = [input, null()?, null()?].into_iter();
    SingleCore::build(&source, Vec::new(), burst, ports, &Shared::default())
}

fn script(text: &str) -> String {
    format!("s :: Lua(\"{}\")", text.replace('\\', "\\\\").replace('"', "\\\""))
}

pub(crate) fn lua(arguments: &LuaArguments) -> Result<ExitCode> {
    arguments.run.check()?;
    let burst = arguments.run.burst;
    let real = routes::real(&arguments.table)?;
    let plain = frames::templates(&real, 4096, 64);
    let out = "-> ToDevice(bench1);";
    let mut cases = Vec::new();
    let is_asked = |name: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|start| name.starts_with(start.as_str()))
    };
    let mut step = |name: &str, with: &str| -> Result<()> {
        if !is_asked(name) {
            return Ok(());
        }
        cases.push(Case {
            name: name.to_owned(),
            unit: "cycles/packet of the step",
            with: graph(with, &plain, burst).with_context(|| name.to_owned())?,
            without: Some(graph("ToDevice(bench1);", &plain, burst)?),
            cycles: Vec::new(),
        });
        Ok(())
    };
    step("identity/lua", &format!("{} {out}", script(IDENTITY)))?;
    step("read/lua", &format!("{} {out}", script(READ)))?;
    step("ttl/elements", &format!("DecIPTTL {out}"))?;
    step("ttl/lua", &format!("{} {out} s[1] -> Discard;", script(TTL)))?;
    for (way, text) in SPLITS {
        for share in SHARES {
            let text = script(&text.replace("SHARE", &share.to_string()));
            step(&format!("split/{way}/{share}%"), &format!("{text} {out} s[1] -> ToDevice(bench2);"))?;
        }
    }
    for (table, rows, dests) in [("1", routes::default_route(), 1), ("real", real, 4096)] {
        let fib = drop_in::fib(&rows)?;
        let templates = frames::templates(&rows, dests, 64);
        for engine in ["elements", "lua"] {
            let name = format!("router/{table}-{dests}/{engine}");
            if !is_asked(&name) {
                continue;
            }
            let input: Box<dyn Port> = Box::new(MemoryLoop::new(templates.clone()));
            let ports: [Box<dyn Port>; ROUTER_PORTS] = [input, null()?, null()?, null()?];
            let with = match engine {
                "lua" => drop_in::lua_router(ports, &fib, burst, &arguments.script)?,
                _ => drop_in::router(ports, &fib, burst)?,
            };
            cases.push(Case { name, unit: "cycles/packet", with, without: None, cycles: Vec::new() });
        }
    }
    if cases.is_empty() {
        let names = "identity, read, ttl, split/arrays, split/masks, split/drop-out, router/1, router/real";
        bail!("--only {}: no such case; expected the beginning of one: {names}", arguments.only.join(","));
    }
    measure(arguments, &mut cases)?;
    report(arguments, &cases);
    Ok(ExitCode::SUCCESS)
}

/// The script of a router.
pub(crate) const ROUTER: &str = include_str!("../../../../examples/lua/router.lua");

/// Returns the median cycles a packet of the graph of `brickway run PORT...` and of the script in its place.
///
/// # Errors
/// One of them cannot be made, or lost packets.
pub(crate) fn routers(seconds: f64, runs: usize) -> Result<[f64; 2]> {
    let folder = folder()?;
    let script = folder.path().join("router.lua");
    std::fs::write(&script, ROUTER).with_context(|| format!("cannot write '{}'", script.display()))?;
    let rows = routes::default_route();
    let fib = drop_in::fib(&rows)?;
    let ports = || -> Result<[Box<dyn Port>; ROUTER_PORTS]> {
        let input = Box::new(MemoryLoop::new(frames::templates(&rows, 4096, 60)));
        Ok([input, null()?, null()?, null()?])
    };
    let mut both = [drop_in::router(ports()?, &fib, 64)?, drop_in::lua_router(ports()?, &fib, 64, &script)?];
    let mut cycles = [const { Vec::new() }; 2];
    both.iter_mut().for_each(|core| {
        core.run(seconds.min(0.1));
    });
    for _ in 0..runs {
        for (core, cycles) in both.iter_mut().zip(&mut cycles) {
            cycles.push(core.run(seconds).cycles_per_packet());
        }
    }
    for core in &mut both {
        core.checked_stats(false)?;
    }
    Ok(cycles.map(median))
}

/// Returns the names of the ways to split a batch in a script, each with the median cycles a packet that it adds at each share, of a hundred, that is
/// diverted.
///
/// # Errors
/// A graph cannot be made.
pub(crate) fn splits(shares: &[u32], seconds: f64, runs: usize) -> Result<Vec<(&'static str, Vec<f64>)>> {
    let frames = frames::templates(&routes::default_route(), 4096, 60);
    let mut plain = graph("ToDevice(bench1);", &frames, 64)?;
    let mut cases = Vec::new();
    for (way, text) in SPLITS {
        for share in shares {
            let text = script(&text.replace("SHARE", &share.to_string()));
            let text = format!("{text} -> ToDevice(bench1); s[1] -> ToDevice(bench2);");
            cases.push((way, graph(&text, &frames, 64)?, Vec::new()));
        }
    }
    cases.iter_mut().for_each(|(_, core, _)| {
        core.run(seconds.min(0.1));
    });
    for _ in 0..runs {
        for (_, core, cycles) in &mut cases {
            let without = plain.run(seconds / 4.0).cycles_per_packet();
            cycles.push(core.run(seconds / 4.0).cycles_per_packet() - without);
        }
    }
    let of_way = |cases: &[(&'static str, SingleCore, Vec<f64>)]| {
        (cases[0].0, cases.iter().map(|(.., cycles)| median(cycles.clone())).collect())
    };
    Ok(cases.chunks(shares.len()).map(of_way).collect())
}

/// Runs the cases in turns.
fn measure(arguments: &LuaArguments, cases: &mut [Case]) -> Result<()> {
    let seconds = arguments.run.seconds;
    for case in &mut *cases {
        case.with.run(seconds.min(0.1));
        case.with.reset_stats();
    }
    for _ in 0..arguments.run.runs {
        for case in &mut *cases {
            let with = case.with.run(seconds).cycles_per_packet();
            let without = case.without.as_mut().map_or(0.0, |core| core.run(seconds).cycles_per_packet());
            case.cycles.push(with - without);
        }
    }
    for case in cases {
        case.with.checked_stats(false).with_context(|| format!("case {}", case.name))?;
    }
    Ok(())
}

fn report(arguments: &LuaArguments, cases: &[Case]) {
    arguments.run.say_heading("lua", "64-byte frames, 4,096 destinations", "one core");
    let mut table = Table::new(&[("case", Align::Left), ("", Align::Left), ("cycles/packet", Align::Right)]);
    for case in cases {
        let cycles = median(case.cycles.clone());
        if arguments.run.json {
            print_figure("lua", &case.name, "cycles_per_packet", cycles, "cycles");
            continue;
        }
        table.row([case.name.clone(), case.unit.to_owned(), format!("{cycles:.1}")]);
    }
    if !arguments.run.json {
        say!("{}", table.render());
    }
}
