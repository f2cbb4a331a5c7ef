//! `brickway-lab bench acl`: what an access control list costs a packet, by the number of its rules.
//!
//! Flows of one family go around in memory over `CheckIPHeader` or `CheckIP6Header`, once with an `ACL` behind
//! it and once without; the difference is what the list costs. Nine of ten flows are drawn inside a rule, each
//! rule as often as any other, so that the whole list is in use; one rule in ten denies.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use graph::lang::Source;
use graph::setup::Shared;
use ports::{MemoryLoop, Port};

use super::folder::folder;
use super::rules::{Rule, frame};
use super::runs::RunArguments;
use super::single_core::SingleCore;
use super::{median, print_figure};
use crate::progress;
use packet::random::SplitMix64;
use router::output::say;
use router::table::{Align, Table, thousands};

/// Measures access control lists in memory: TSC cycles a packet with and without one, time to compile,
/// memory.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench acl                              0 to 10,000 rules, IPv4 and IPv6
  brickway-lab bench acl --rules 1000 --flows 1000 --json

added is what the graph costs more with the list than without; ACL is what the element itself takes of that.")]
pub(crate) struct AclArguments {
    /// Numbers of rules
    #[arg(long, value_delimiter = ',', default_values_t = [0usize, 10, 100, 1_000, 10_000])]
    rules: Vec<usize>,
    /// Number of different flows
    #[arg(long, default_value_t = 65_536)]
    flows: usize,
    #[command(flatten)]
    run: RunArguments,
}

/// What a case gave; cycles are TSC cycles a packet.
struct Figures {
    without: f64,
    with: f64,
    element: f64,
    compile_ms: f64,
    memory_bytes: f64,
}

pub(crate) fn acl(arguments: &AclArguments) -> Result<ExitCode> {
    check_arguments(arguments)?;
    let flows = format!("{} flows of 64 or 84 bytes", thousands(arguments.flows as u64));
    arguments.run.say_heading("acl", &flows, "one core");
    let mut table = Table::new(&[
        ("family", Align::Left),
        ("rules", Align::Right),
        ("cycles/packet", Align::Right),
        ("without", Align::Right),
        ("added", Align::Right),
        ("ACL", Align::Right),
        ("compile ms", Align::Right),
        ("memory KB", Align::Right),
    ]);
    for is_ipv6 in [false, true] {
        let family = if is_ipv6 { "v6" } else { "v4" };
        for &rules in &arguments.rules {
            let case = format!("acl-{rules}-{family}");
            progress::tell("bench acl", &case);
            let figures = measure(arguments, rules, is_ipv6).with_context(|| format!("case {case}"))?;
            let added = figures.with - figures.without;
            if arguments.run.json {
                let cycles = "TSC cycles";
                print_figure("acl", &case, "cycles_per_packet", figures.with, cycles);
                print_figure("acl", &case, "without_cycles_per_packet", figures.without, cycles);
                print_figure("acl", &case, "added_cycles_per_packet", added, cycles);
                print_figure("acl", &case, "element_cycles_per_packet", figures.element, cycles);
                print_figure("acl", &case, "compile_ms", figures.compile_ms, "ms");
                print_figure("acl", &case, "memory", figures.memory_bytes, "bytes");
            } else {
                table.row([
                    family.to_owned(),
                    thousands(rules as u64),
                    format!("{:.1}", figures.with),
                    format!("{:.1}", figures.without),
                    format!("{added:.1}"),
                    format!("{:.1}", figures.element),
                    format!("{:.1}", figures.compile_ms),
                    thousands((figures.memory_bytes / 1024.0) as u64),
                ]);
            }
        }
    }
    progress::clear();
    if !arguments.run.json {
        say!("{}", table.render());
    }
    Ok(ExitCode::SUCCESS)
}

fn check_arguments(arguments: &AclArguments) -> Result<()> {
    arguments.run.check()?;
    if !(1..=1 << 20).contains(&arguments.flows) {
        bail!("--flows takes a number from 1 to 1048576");
    }
    Ok(())
}

fn measure(arguments: &AclArguments, rules: usize, is_ipv6: bool) -> Result<Figures> {
    let mut random = SplitMix64::new(0x5eed ^ rules as u64);
    let list: Vec<Rule> = (0..rules).map(|_| Rule::draw(&mut random, is_ipv6)).collect();
    let mut text = String::new();
    for (number, rule) in list.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} {}", (number + 1) * 10, rule.text(is_ipv6));
    }
    let folder = folder()?;
    let path = folder.path().join("rules.txt");
    std::fs::write(&path, &text).with_context(|| format!("cannot write '{}'", path.display()))?;
    let templates: Vec<Vec<u8>> = (0..arguments.flows)
        .map(|_| {
            let inside = if random.one_in(10) { None } else { random.choice(&list) };
            frame(&mut random, inside, is_ipv6)
        })
        .collect();

    let check = if is_ipv6 { "CheckIP6Header" } else { "CheckIPHeader" };
    let graph = |middle: &str| -> Result<SingleCore> {
        let text = format!(
            "FromDevice(bench0, BURST {burst}) -> Strip(14) -> {check} -> {middle} Unstrip(14)
             -> ToDevice(bench1, BURST {burst});",
            burst = arguments.run.burst
        );
        let source = Source { name: "acl.click".into(), text };
        let ports: [Box<dyn Port>; 2] = [
            Box::new(MemoryLoop::new(templates.clone())),
            ports::open("null:", &ports::OpenOptions::default())?,
        ];
        SingleCore::build(&source, Vec::new(), arguments.run.burst, ports.into_iter(), &Shared::default())
    };
    let mut without = graph("")?;
    let mut with = graph(&format!("acl :: ACL(FILE \"{}\", DEFAULT permit) ->", path.display()))?;
    without.run(arguments.run.seconds.min(0.1));
    with.run(arguments.run.seconds.min(0.1));
    with.reset_stats();
    let (mut cycles_without, mut cycles_with) = (Vec::new(), Vec::new());
    for _ in 0..arguments.run.runs {
        cycles_without.push(without.run(arguments.run.seconds).cycles_per_packet());
        cycles_with.push(with.run(arguments.run.seconds).cycles_per_packet());
    }
    let list = with.graph().find("acl").context("the graph has a list")?;
    let element = with.graph().element_stats(list);
    let mut compile_ms = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        handled(with.graph().write(list, "set", &text))?;
        compile_ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let memory = handled(with.graph().read(list, "memory", ""))?;
    Ok(Figures {
        without: median(cycles_without),
        with: median(cycles_with),
        element: element.cycles / element.packets.max(1) as f64,
        compile_ms: median(compile_ms),
        memory_bytes: memory.parse().context("the memory is a number")?,
    })
}

/// What a handler of an element answered that is in the graph.
fn handled<T>(answer: Option<Result<T, String>>) -> Result<T> {
    answer.context("the list is in this copy")?.map_err(|error| anyhow!(error))
}
