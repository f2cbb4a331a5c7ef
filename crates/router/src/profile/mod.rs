//! `brickway profile`: where the threads of a running router spend their time, as a flame graph.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the command line, the time it takes, what is written |
//! | `sampler` | stacks of each thread, from the kernel's perf events |
//! | `unwinder` | the callers in a copy of a stack, by the program's unwinding tables |
//! | `names` | functions of addresses, elements at the base of a stack |
//!
//! The router has no part in it: the kernel interrupts a thread some thousand times a second of its CPU time and copies
//! registers and the top of its stack into a ring that this command reads. Callers are found by the tables that every Rust
//! program has for panics, so nothing is compiled with frame pointers and nobody pays for them.

mod names;
mod sampler;
mod unwinder;

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use inferno::flamegraph::{self, Options, Palette, color::MultiPalette};
use serde::Serialize;

use crate::interrupt::on_interrupt;
use crate::output::print;
use crate::show::{Socket, find};
use sampler::{Sampler, Stack};

/// How often samples are taken out of the rings.
const PERIOD: Duration = Duration::from_millis(50);

/// Draws where the threads of a running router spend their time: a flame graph of threads, elements, functions of the program and
/// of the kernel. The router's own work goes on; a sample takes it a few microseconds, a thousand times a second.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway profile 10                           ten seconds, into flame.svg
  brickway profile 5 -o worker.svg
  brickway profile 5 --folded | grep '^worker 0;'
  brickway profile 5 --json | jq -s 'map(.samples) | add'

Open the file in a browser: a click on a frame enlarges it, Ctrl-F searches. A frame is as wide as its share of the samples; below
lies who calls. Elements stand by their type ('element CheckIpHeader'), several that work as one as 'fused run'; functions of the
kernel end with _[k]. Needs root, or CAP_PERFMON and CAP_SYS_PTRACE. docs/cost.md has more.

Exit codes: 0 done, 1 not permitted, or nothing was sampled, 2 wrong usage, 4 no router answers at the socket.")]
pub(crate) struct ProfileArguments {
    /// How long, 1 to 3600; Ctrl-C ends it earlier
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// The file to write, - for standard output (default: flame.svg, with --json or --folded standard output)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// One JSON object a stack: thread, frames from the outermost on, samples
    #[arg(long, conflicts_with = "folded")]
    json: bool,
    /// One line a stack, as flame graph programs read it: thread;frame;frame COUNT
    #[arg(long)]
    folded: bool,
    #[command(flatten)]
    socket: Socket,
}

/// A stack with names, and how often it was met.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row<'a> {
    thread: &'a str,
    stack: &'a [String],
    samples: u64,
}

pub(crate) fn profile(arguments: &ProfileArguments) -> Result<ExitCode> {
    let client = match find(&arguments.socket, false)? {
        Ok(client) => client,
        Err(code) => return Ok(code),
    };
    let process = client.process().context("the router's process is not visible from here")?;
    drop(client);
    let is_text = arguments.json || arguments.folded;
    let path = arguments.output.clone().or_else(|| (!is_text).then(|| PathBuf::from("flame.svg")));
    let mut file = match path.filter(|path| path.as_os_str() != "-") {
        // Before the time is spent.
        Some(path) => {
            let explain = || format!("'{}' cannot be written", path.display());
            let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            Some((file.with_context(explain)?, path))
        }
        None => None,
    };
    let mut sampler = Sampler::open(process)?;
    let begin = Instant::now();
    let stacks = sample(&mut sampler, Duration::from_secs(arguments.seconds.into()))?;
    let seconds = begin.elapsed().as_secs_f64();
    if stacks.is_empty() {
        bail!("nothing was sampled: no thread of the router ran; send packets through it meanwhile");
    }
    let named = named(&sampler, stacks, process)?;
    let text = match (arguments.json, arguments.folded) {
        (true, _) => json(&named)?,
        (_, true) => folded(&named),
        _ => svg(&named, process, seconds)?,
    };
    match &mut file {
        Some((file, path)) => {
            let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
            written.with_context(|| format!("'{}' cannot be written", path.display()))?;
            graph::note!("brickway: {} written", path.display());
        }
        None => print(&text),
    }
    Ok(ExitCode::SUCCESS)
}

/// Samples for so long, or until Ctrl-C.
fn sample(sampler: &mut Sampler, time: Duration) -> Result<HashMap<Stack, u64>> {
    let is_over = Arc::new(AtomicBool::new(false));
    let ended = is_over.clone();
    on_interrupt(move || ended.store(true, Ordering::Relaxed)).context("no handler for Ctrl-C")?;
    let on_terminal = std::io::stderr().is_terminal();
    let (threads, begin) = (sampler.threads().len(), Instant::now());
    let mut stacks = HashMap::new();
    if !on_terminal {
        graph::note!("brickway: sampling {threads} threads for {} s", time.as_secs());
    }
    while begin.elapsed() < time && !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(PERIOD.min(time.saturating_sub(begin.elapsed())));
        sampler.read(&mut stacks);
        if on_terminal {
            // The line is written anew each time; who looks at it loses nothing where that fails.
            let (now, all) = (begin.elapsed().as_secs(), time.as_secs());
            let _ = write!(
                std::io::stderr(),
                "\rbrickway: sampling {threads} threads, {now} of {all} s, {} samples ",
                sampler.samples
            );
        }
    }
    if on_terminal {
        let _ = writeln!(std::io::stderr());
    }
    if sampler.lost > 0 {
        graph::note!("brickway: {} samples of {} were lost", sampler.lost, sampler.lost + sampler.samples);
    }
    Ok(stacks)
}

/// Threads and frames by name, and their samples: sorted, so that the same stacks give the same text.
type Named = Vec<((String, Vec<String>), u64)>;

fn named(sampler: &Sampler, stacks: HashMap<Stack, u64>, process: i32) -> Result<Named> {
    let names = names::Names::of(process, stacks.keys())?;
    let mut all: HashMap<(String, Vec<String>), u64> = HashMap::new();
    for (stack, samples) in stacks {
        let thread = sampler.threads()[stack.thread].clone();
        *all.entry((thread, names.frames(&stack))).or_default() += samples;
    }
    let mut all: Named = all.into_iter().collect();
    all.sort();
    Ok(all)
}

fn json(named: &Named) -> Result<String> {
    let mut text = String::new();
    for ((thread, stack), samples) in named {
        text += &serde_json::to_string(&Row { thread, stack, samples: *samples })?;
        text.push('\n');
    }
    Ok(text)
}

/// A line a stack. A semicolon in a name, as in the type `[u8; 4]`, would part a frame in two.
fn folded(named: &Named) -> String {
    let line = |((thread, stack), samples): &((String, Vec<String>), u64)| {
        let frames = [thread].into_iter().chain(stack);
        let frames: Vec<String> = frames.map(|frame| frame.replace(';', ":")).collect();
        format!("{} {samples}\n", frames.join(";"))
    };
    named.iter().map(line).collect()
}

fn svg(named: &Named, process: i32, seconds: f64) -> Result<String> {
    let mut options = Options::default();
    options.title = format!("brickway, process {process}, {seconds:.0} s");
    options.subtitle = Some("thread, element, functions; a click enlarges, Ctrl-F searches".to_owned());
    options.colors = Palette::Multi(MultiPalette::Rust);
    options.deterministic = true;
    let (lines, mut picture) = (folded(named), Vec::new());
    flamegraph::from_lines(&mut options, lines.lines(), &mut picture)
        .context("the flame graph cannot be drawn")?;
    Ok(String::from_utf8(picture)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Named {
        let of = |thread: &str, frames: &[&str], samples| {
            ((thread.to_owned(), frames.iter().map(|&frame| frame.to_owned()).collect()), samples)
        };
        vec![of("worker 0", &["element Strip", "f::<[u8; 4]>"], 3), of("worker 1", &["g", "send_[k]"], 1)]
    }

    #[test]
    fn the_same_stacks_as_lines_as_objects_and_as_a_picture() {
        let named = some();
        assert_eq!(folded(&named), "worker 0;element Strip;f::<[u8: 4]> 3\nworker 1;g;send_[k] 1\n");
        let first = json(&named).unwrap().lines().next().unwrap().to_owned();
        assert_eq!(first, r#"{"thread":"worker 0","stack":["element Strip","f::<[u8; 4]>"],"samples":3}"#);
        let picture = svg(&named, 7, 1.0).unwrap();
        assert!(picture.contains("<svg") && picture.trim_end().ends_with("</svg>"));
        assert!(picture.contains("element Strip (3 samples, 75.00%)"), "{picture}");
    }
}
