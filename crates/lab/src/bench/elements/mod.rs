//! `brickway-lab bench elements`: what each element costs a packet, at several bursts.
//!
//! Frames of 64 bytes go around in memory, over a chain of elements with and without the one in question, in turns; the
//! difference is what it costs (`added`). What the element itself takes by the graph's own count stands beside it: the graph
//! fuses neighbours and shares their cycles out, so that figure is for elements at an end, which no chain can be without.
//! Beside the elements as they come there are some with many rules, routes or flows.

mod cases;
mod large;
#[cfg(test)]
mod tests;
mod traffic;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use graph::lang::Source;
use graph::setup::Shared;
use packet::cycles;
use ports::{MemoryLoop, Port};
use serde_json::json;

use self::cases::{CASES, Case, Form};
use super::runs::medians_of;
use super::single_core::SingleCore;
use super::{median, print_figure, print_setting};
use crate::progress;
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Measures elements one by one in memory: TSC cycles a packet.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench elements                          every element at bursts of 1, 32 and 256
  brickway-lab bench elements IPFilter IPRewriter      these, and what they cost with many rules and flows
  brickway-lab bench elements --burst 32 --json

added is what a chain of elements costs more with the element than without. For elements at which a chain begins or ends, and
those that pull and push by themselves, the graph's own count is printed, in brackets.")]
pub(crate) struct ElementsArguments {
    /// Classes to measure; all, if none is named
    #[arg(value_name = "CLASS")]
    classes: Vec<String>,
    /// Packets that are taken from the port at a time
    #[arg(long, value_delimiter = ',', default_values_t = [1usize, 32, 256])]
    burst: Vec<usize>,
    /// Number of different flows
    #[arg(long, default_value_t = 256)]
    flows: usize,
    /// Seconds for each run
    #[arg(long, default_value_t = 0.02)]
    seconds: f64,
    /// Runs of each case; the median is printed
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Cycles a packet.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// What the element adds to a chain, where there is a chain without it.
    added: Option<f64>,
    /// What the graph counts for it.
    own: f64,
}

pub(crate) fn elements(arguments: &ElementsArguments) -> Result<ExitCode> {
    check(arguments)?;
    let wanted =
        |class: &str| arguments.classes.is_empty() || arguments.classes.iter().any(|known| known == class);
    let traffic = format!("64-byte frames, {} flows", arguments.flows);
    if arguments.json {
        let (runs, seconds) = (arguments.runs, arguments.seconds);
        print_setting(
            "elements",
            json!({"traffic": traffic, "place": "one core", "runs": runs, "seconds": seconds}),
        );
    } else {
        say_line!(
            "{traffic}, one core, TSC at {:.2} GHz, cycles a packet; {} of {} s\n",
            cycles::per_second() / 1e9,
            medians_of(arguments.runs),
            arguments.seconds
        );
    }
    let titles: Vec<&'static str> =
        arguments.burst.iter().map(|burst| &*Box::leak(format!("burst {burst}").into_boxed_str())).collect();
    let mut columns = vec![("element", Align::Left)];
    columns.extend(titles.into_iter().map(|title| (title, Align::Right)));
    let mut table = Table::new(&columns);
    let mut report = |name: &str, figures: &[Figures]| {
        if arguments.json {
            for (burst, figures) in arguments.burst.iter().zip(figures) {
                let case = format!("{name}/burst={burst}");
                if let Some(added) = figures.added {
                    print_figure("elements", &case, "added_cycles_per_packet", added, "TSC cycles");
                }
                print_figure("elements", &case, "element_cycles_per_packet", figures.own, "TSC cycles");
            }
            return;
        }
        let cell = |figures: &Figures| match figures.added {
            Some(added) => format!("{added:.1}"),
            None => format!("({:.1})", figures.own),
        };
        table.row(std::iter::once(name.to_owned()).chain(figures.iter().map(cell)));
    };
    let measure_at = |graphs: &dyn Fn(usize) -> Result<Graphs>, name: &str| -> Result<Vec<Figures>> {
        progress::tell("bench elements", name);
        let bursts = arguments.burst.iter();
        bursts
            .map(|&burst| measure(arguments, graphs(burst)?))
            .collect::<Result<_>>()
            .with_context(|| name.to_owned())
    };
    for case in CASES.iter().filter(|case| wanted(case.class)) {
        let figures = measure_at(&|burst| graphs(case, burst, arguments.flows), case.class)?;
        report(case.class, &figures);
    }
    for large in large::CASES.iter().filter(|large| wanted(large.class)) {
        let figures = measure_at(&|burst| (large.graphs)(burst), large.name)?;
        report(large.name, &figures);
    }
    progress::clear();
    if !arguments.json {
        say!("{}", table.render());
    }
    Ok(ExitCode::SUCCESS)
}

fn check(arguments: &ElementsArguments) -> Result<()> {
    for class in &arguments.classes {
        if CASES.iter().any(|case| case.class == *class) {
            continue;
        }
        let reason = cases::LEFT_OUT.iter().find(|(_, classes)| classes.contains(&class.as_str()));
        match (reason, ::click::registry().class(class)) {
            (Some((reason, _)), _) => bail!("{class} is not measured alone: {reason}"),
            (None, Some(known)) if known.ports == "0/0" => {
                bail!("{class} is not measured: no packets pass it")
            }
            (None, Some(_)) => {
                bail!("{class} is not measured: it has no case in crates/lab/src/bench/elements/cases.rs")
            }
            (None, None) => bail!("there is no element class '{class}'; 'brickway elements' lists them"),
        }
    }
    let in_range = |burst: &usize| (1..=packet::MAX_BATCH).contains(burst);
    if let Some(burst) = arguments.burst.iter().find(|burst| !in_range(burst)) {
        bail!("--burst {burst} is out of range: 1 to {}", packet::MAX_BATCH);
    }
    if !(1..=1 << 20).contains(&arguments.flows) {
        bail!("--flows takes a number from 1 to 1048576");
    }
    if arguments.runs == 0 || !(0.001..=60.0).contains(&arguments.seconds) {
        bail!("--runs takes 1 or more, --seconds 0.001 to 60");
    }
    Ok(())
}

/// A graph with the element, and the same without it.
struct Graphs {
    with: SingleCore,
    without: Option<SingleCore>,
}

fn measure(arguments: &ElementsArguments, graphs: Graphs) -> Result<Figures> {
    let Graphs { mut with, mut without } = graphs;
    with.run(arguments.seconds);
    without.iter_mut().for_each(|without| _ = without.run(arguments.seconds));
    with.reset_stats();
    let mut added = Vec::new();
    for _ in 0..arguments.runs {
        let cycles = with.run(arguments.seconds).cycles_per_packet();
        if let Some(without) = &mut without {
            added.push(cycles - without.run(arguments.seconds).cycles_per_packet());
        }
    }
    let element = with.graph().find("e").context("the graph has the element")?;
    let stats = with.graph().element_stats(element);
    if stats.packets == 0 {
        bail!("no packet passed the element");
    }
    Ok(Figures {
        added: (!added.is_empty()).then(|| median(added)),
        own: stats.cycles / stats.packets as f64,
    })
}

/// The graphs of a case.
fn graphs(case: &Case, burst: usize, flows: usize) -> Result<Graphs> {
    let frames = || traffic::frames(case.traffic, flows);
    let build = |text: String| {
        let receives = text.contains("FromDevice");
        single(text, burst, if receives { frames() } else { Vec::new() })
    };
    let (with, without) = texts(case, burst);
    Ok(Graphs { with: build(with)?, without: without.map(build).transpose()? })
}

/// A graph in which frames go around.
fn single(text: String, burst: usize, frames: Vec<Vec<u8>>) -> Result<SingleCore> {
    let mut ports: Vec<Box<dyn Port>> = Vec::new();
    if !frames.is_empty() {
        ports.push(Box::new(MemoryLoop::new(frames)));
    }
    let source = Source { name: "element.click".into(), text };
    SingleCore::build(&source, Vec::new(), burst, ports.into_iter(), &Shared::default())
}

/// The configurations with the element and without it.
fn texts(case: &Case, burst: usize) -> (String, Option<String>) {
    let Case { class, form, before, arguments, .. } = case;
    let from = format!("FromDevice(bench0, BURST {burst}) -> {before}");
    let e = format!("e :: {class}({arguments})");
    let sink = "sink :: Discard;";
    let unqueue = format!("Unqueue(BURST {burst})");
    match form {
        Form::Push(outputs) => {
            let mut with = format!("{from} {e}; {sink} ");
            (0..*outputs).for_each(|output| with.push_str(&format!("e[{output}] -> sink; ")));
            (with, Some(format!("{from} {sink}")))
        }
        Form::BeforeQueue => (
            format!("{from} {e} -> q :: Queue -> {unqueue} -> {sink}"),
            Some(format!("{from} q :: Queue -> {unqueue} -> {sink}")),
        ),
        Form::Queue => (format!("{from} {e} -> {unqueue} -> {sink}"), Some(format!("{from} {sink}"))),
        Form::Pull => (
            format!("{from} Queue -> {e} -> {unqueue} -> {sink}"),
            Some(format!("{from} Queue -> {unqueue} -> {sink}")),
        ),
        Form::Unqueue => (format!("{from} Queue -> {e} -> {sink}"), None),
        Form::Source => (format!("{e} -> {sink}"), None),
        Form::Sink => (format!("{from} {e};"), None),
    }
}
