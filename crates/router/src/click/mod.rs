//! `brickway click`: Click's own command line.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | the words of the command line, and what they do in their order |
//! | `exchange` | `-R`: another configuration in the running one's place |
//! | `handlers` | `-h` and `-x`: which handlers are meant, and what is printed of them |
//!
//! The program's name `click` selects this command.

mod exchange;
mod handlers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{ArgAction, Args, Parser};
use elements::devices::{MergedPorts, PortNames};
use graph::clock::SIMULATED_START_NS;
use graph::context::Globals;
use graph::graph::{GraphOptions, Registry};
use graph::lang::{FlatConfig, Options, Source, quote};
use graph::roles::Mode;
use graph::router::{Control, LONGEST_WAIT, Router, RouterOptions};
use graph::setup::{Shared, TakenSignals};
use packet::PoolOptions;

use crate::load::{self, Messages};
use crate::output::print;
use crate::run::Plan;
use crate::whole_frames;
use exchange::{DRIVER_PREFIX, Exchange};

/// Frames in each worker's pool.
const FRAMES: usize = 16_384;
/// Largest packet that a frame holds, in bytes.
const FRAME_SIZE: usize = 1_856;

/// Runs a Click configuration as the program `click` does: its command line, its messages, its exit codes.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  brickway click router.click PORT0=eth1
  brickway click -e 'InfiniteSource(LIMIT 5, STOP true) -> c :: Counter -> Discard' -h c.count
  brickway click -qo- router.click           check it, and print it with its compounds expanded
  brickway click -p 7777 -R router.click     with a control socket, and configurations that can be exchanged

Packets go through the graph one at a time, in Click's order. --burst 64 has them go in batches, as in `brickway run`, which
is faster and keeps the order of each path. A link named `click` to this program needs no `click` on the command line."
)]
pub(crate) struct ClickArguments {
    /// Read the configuration from FILE (`-` is standard input)
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Use EXPR as the configuration
    #[arg(short, long, value_name = "EXPR", allow_hyphen_values = true, conflicts_with = "file")]
    expression: Option<String>,
    /// The configuration's file, and values of its variables
    #[arg(value_name = "ROUTERFILE | NAME=VALUE")]
    words: Vec<String>,
    /// Print the value of a read handler in the end: ELEMENT.H, PATTERN.H or CLASS.H, or one of the router
    #[arg(short = 'h', long = "handler", value_name = "ELEMENT.H")]
    handlers: Vec<String>,
    /// Use the value of a read handler as the exit code
    #[arg(short = 'x', long, value_name = "ELEMENT.H")]
    exit_handler: Option<String>,
    /// Write the configuration, with its compounds expanded, to FILE (`-` is standard output)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Do not run it
    #[arg(short, long)]
    quit: bool,
    /// Print how long it ran
    #[arg(short, long)]
    time: bool,
    /// Print no warnings
    #[arg(short = 'w', long)]
    no_warnings: bool,
    #[arg(long, hide = true, overrides_with = "no_warnings")]
    warnings: bool,
    /// Listen for control connections on a TCP port. At 127.0.0.1 root and the user of this process may write handlers, and
    /// others only read. With ADDRESS other hosts may control the router
    #[arg(short, long = "port", value_name = "[ADDRESS:]PORT")]
    ports: Vec<String>,
    /// Listen for control connections on a Unix socket. All users whom its file's permissions let in may write handlers
    #[arg(short, long = "unix-socket", value_name = "FILE")]
    unix_sockets: Vec<String>,
    /// Allow that another configuration is written to the handler `hotconfig`, which gives its writer the rights of this
    /// process. Root and the user of this process may, and all users who may connect to a Unix socket
    #[arg(short = 'R', long)]
    allow_reconfigure: bool,
    /// Threads
    #[arg(short = 'j', long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Bind threads to CPUs, a single one to CPU N
    #[arg(short, long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "0",
        overrides_with = "no_affinity")]
    affinity: Option<usize>,
    /// Let threads run on any CPU
    #[arg(long, overrides_with = "affinity")]
    no_affinity: bool,
    /// Run in simulated time: it starts at T (seconds since 1970, 1000000000 if left out) and goes on to the next timer when
    /// nothing else is left to do
    #[arg(long, visible_alias = "simulation-time", value_name = "T", num_args = 0..=1, require_equals = true,
        default_missing_value = "1000000000")]
    simtime: Option<f64>,
    /// Where `require(library ...)` looks for files: directories with colons between them
    #[arg(short = 'C', long, value_name = "PATH")]
    clickpath: Option<String>,
    /// Packets that go through the graph at a time, 1 to 256
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    burst: u16,
    /// Print the version
    #[arg(short, long)]
    version: bool,
    /// Print this
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// The same, for a program that is called `click`.
#[derive(Parser, Debug)]
#[command(name = "click", disable_help_flag = true)]
struct Alone {
    #[command(flatten)]
    arguments: ClickArguments,
}

/// Reads Click's command line, `words[0]` being what the program is called. Mistakes have Click's exit code.
pub(crate) fn from_words(words: &[std::ffi::OsString]) -> ExitCode {
    let arguments = match Alone::try_parse_from(words) {
        Ok(Alone { arguments }) => arguments,
        Err(error) => {
            // To a closed output there is nothing to say.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    click(&arguments).unwrap_or_else(|error| {
        graph::note!("{error:#}");
        ExitCode::FAILURE
    })
}

/// The configuration, and values of its variables.
fn configuration(arguments: &ClickArguments) -> Result<(Source, Vec<(String, String)>)> {
    let mut file = arguments.file.clone();
    let mut parameters = Vec::new();
    for word in &arguments.words {
        let name_end = word
            .find('=')
            .filter(|&at| word[..at].chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && at > 0);
        match name_end {
            Some(at) => parameters.push((word[..at].to_owned(), word[at + 1..].to_owned())),
            None if file.is_some() || arguments.expression.is_some() => {
                anyhow::bail!("router configuration specified twice")
            }
            None => file = Some(PathBuf::from(word)),
        }
    }
    let source = match &arguments.expression {
        Some(text) => Source { name: "config".into(), text: text.clone() },
        None => load::read(file.as_deref().unwrap_or(Path::new("-")))?,
    };
    Ok((source, parameters))
}

/// The configuration with a ControlSocket for each of those that the command line asks for.
fn with_control_sockets(mut flat: FlatConfig, arguments: &ClickArguments, source: &Source) -> FlatConfig {
    let tcp = arguments.ports.iter().map(|port| match port.rsplit_once(':') {
        Some((address, port)) => {
            let address = address.trim_start_matches('[').trim_end_matches(']');
            format!("TCP, {port}, ADDRESS {}", quote(address))
        }
        None => format!("TCP, {port}"),
    });
    let unix = arguments.unix_sockets.iter().map(|file| format!("UNIX, {}", quote(file)));
    for (number, config) in tcp.chain(unix).enumerate() {
        let suffix = if number > 0 { format!("@{number}") } else { String::new() };
        flat.add_alone(
            &format!("{DRIVER_PREFIX}ControlSocket{suffix}"),
            "ControlSocket",
            &config,
            &source.name,
        );
    }
    flat
}

fn click(arguments: &ClickArguments) -> Result<ExitCode> {
    if arguments.version {
        print(&format!("brickway {} (as click)\n", env!("CARGO_PKG_VERSION")));
        return Ok(ExitCode::SUCCESS);
    }
    // Before the first thread. Other users have nothing to give up.
    let plan = rustix::process::geteuid().is_root().then(Plan::with_programs);
    if let Some(plan) = &plan {
        plan.give_up()?;
    }
    if let Some(cpu) = arguments.affinity.filter(|_| arguments.threads <= 1) {
        bind_to(cpu);
    }
    let messages = Messages { plain: true, warnings: !arguments.no_warnings };
    let (source, parameters) = configuration(arguments)?;
    let registry = crate::classes();
    let libraries = load::Libraries::new(arguments.clickpath.as_deref());
    let options = Options { parameters, ports_last: true };
    let compiled = load::compile_with(&source, &options, &registry, &libraries, messages);
    let Some(flat) = compiled else {
        return Ok(ExitCode::FAILURE);
    };
    let flat = with_control_sockets(flat, arguments, &source);
    let control = Control::new(graph::messages::print);
    let exchange = Exchange::new(arguments, registry.clone(), options, control.clone());
    let shared = Shared::default();
    shared.get_or_make(Globals::KEY, || Ok::<_, anyhow::Error>(exchange.globals(&source.text)))?;
    let Some(mut router) = router(arguments, flat, &registry, messages, shared, control)? else {
        graph::note!("{}", load::NOT_INITIALIZED);
        return Ok(ExitCode::FAILURE);
    };
    exchange.begin(router.running());
    let mut is_right = true;
    if let Some(file) = &arguments.output {
        let text = router.config().flat_text();
        if file.as_os_str() == "-" {
            print(&text);
        } else if let Err(error) = std::fs::write(file, text) {
            graph::note!("{}: {error}", file.display());
            is_right = false;
        }
    }
    let begin = (Instant::now(), cpu_seconds());
    if !arguments.quit {
        if router.config().elements.is_empty() {
            if messages.warnings {
                graph::note!("warning: {}: configuration has no elements, exiting", source.name);
            }
        } else {
            if let Some(plan) = &plan {
                plan.refuse_unneeded_calls()?;
            }
            drive(&mut router)?;
        }
    }
    if arguments.time {
        let (user, system) = cpu_seconds();
        let wall = begin.0.elapsed().as_secs_f64();
        print(&format!(
            "{:.3}u {:.3}s {}:{:05.2}\n",
            user - begin.1.0,
            system - begin.1.1,
            (wall / 60.0) as u64,
            wall % 60.0
        ));
    }
    is_right &= handlers::print_all(&mut router, &arguments.handlers);
    Ok(match &arguments.exit_handler {
        Some(handler) => handlers::exit_code(&mut router, handler),
        None if is_right => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

/// Seconds that this process has worked, for itself and in the kernel.
fn cpu_seconds() -> (f64, f64) {
    // Fields 14 and 15 of proc(5)'s stat, counted behind the name's parenthesis, in hundredths of a second.
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let seconds = |field: usize| fields.get(field).and_then(|text| text.parse().ok()).unwrap_or(0.0) / 100.0;
    (seconds(11), seconds(12))
}

/// Makes the router; `None`, with messages, when its configuration has mistakes.
fn router(
    arguments: &ClickArguments,
    mut flat: FlatConfig,
    registry: &Registry,
    messages: Messages,
    shared: Shared,
    control: Arc<Control>,
) -> Result<Option<Router>> {
    let merged = whole_frames::allow(&mut flat, &[]);
    shared.get_or_make(MergedPorts::KEY, || Ok::<_, anyhow::Error>(merged))?;
    shared.get_or_make(PortNames::KEY, || Ok::<_, anyhow::Error>(PortNames::new(Vec::new())))?;
    if arguments.simtime.is_some() && arguments.threads > 1 {
        anyhow::bail!("--simtime needs one thread: time has to stand still for all of them");
    }
    let pool = PoolOptions { frames: FRAMES, data_bytes: FRAME_SIZE };
    let simulated_time = arguments.simtime.map(|seconds| match seconds {
        1e9 => SIMULATED_START_NS,
        seconds => (seconds.max(0.0) * 1e9) as u64,
    });
    let options = RouterOptions {
        workers: arguments.threads.max(1),
        graph: GraphOptions { burst: usize::from(arguments.burst), pool, simulated_time },
        slow_pool: PoolOptions { frames: 4_096, data_bytes: FRAME_SIZE },
        large_frames: whole_frames::frames(&shared),
        pin: arguments.affinity.is_some(),
        mode: Mode::Parallel,
    };
    let router = match Router::build(Arc::new(flat), registry, &shared, &options, control.clone()) {
        Ok(router) => router,
        Err(problems) => {
            messages.report(problems);
            return Ok(None);
        }
    };
    let taken = shared.get::<TakenSignals>(TakenSignals::KEY);
    let is_taken =
        |signal: rustix::process::Signal| taken.as_ref().is_some_and(|taken| taken.has(signal.as_raw()));
    if !is_taken(rustix::process::Signal::INT) && !is_taken(rustix::process::Signal::TERM) {
        crate::interrupt::on_interrupt(move || control.halt()).context("cannot catch Ctrl-C")?;
    }
    Ok(Some(router))
}

/// Binds this thread to a CPU. A container may forbid it; the thread then runs where the kernel puts it.
fn bind_to(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    if cpu < rustix::thread::CpuSet::MAX_CPU {
        set.set(cpu);
        if rustix::thread::sched_setaffinity(None, &set).is_err() {
            graph::note!("warning: this machine has no CPU {cpu} to bind a thread to");
        }
    }
}

/// Runs the router until it stops.
fn drive(router: &mut Router) -> Result<()> {
    if router.workers() == 1 && !router.has_slow_thread() {
        router.run_here();
        return Ok(());
    }
    router.start().context("cannot start the worker threads")?;
    let control = router.control().clone();
    loop {
        if control.wait(LONGEST_WAIT) && !router.goes_on() {
            return Ok(());
        }
        router.apply_waiting();
        if let Some(thread) = router.failed() {
            anyhow::bail!("the thread '{thread}' ended by a bug of ours; please report the message above");
        }
    }
}
