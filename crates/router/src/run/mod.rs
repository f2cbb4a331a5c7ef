//! `brickway run`: a configuration, or a list of ports, becomes a router.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | the command line; from its words to a router that runs, and to its end |
//! | `live` | what runs, shared with those who ask and change it over the control socket |
//! | `answers` | the rows of `brickway show` |
//! | `changes` | what routes were and became |
//! | `capture` | packets for `brickway capture` and `trace` |
//! | `linux_frames` | packets for captures that no worker sees |
//! | `export` | samples for collectors |
//! | `sampled` | samples of what the kernel forwards, and the way of each |
//! | `cost` | what each step costs |
//! | `drift` | whether the forwarding tables have Linux's routes, every so often |
//! | `privileges` | what the process gives up |
//! | `doors` | what clients connect to, opened before |
//! | `subject` | what is to run: a file, or ports |
//! | `watch` | while it runs: rates, balancing, what follows Linux |
//! | `summary` | what it did |

mod answers;
mod capture;
mod changes;
mod cost;
mod deaf;
mod doors;
mod drift;
mod edges;
mod export;
mod history;
mod linux_frames;
mod live;
pub(crate) mod meter;
mod privileges;
mod sampled;
mod subject;
mod summary;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use control::supervisor::{Fault, Problem};
use elements::devices::PortNames;
use elements::devices::balance::queue_shares;
use graph::context::Globals;
use graph::graph::{GraphOptions, Registry};
use graph::lang::Diagnostics;
use graph::messages;
use graph::roles::{Mode, Roles};
use graph::router::{Control, Router, RouterOptions};
use graph::setup::{Shared, TakenSignals};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::beside_linux;
use crate::doctor;
use crate::drop_in::{self, Script};
use crate::features::FeatureSettings;
use crate::load;
use crate::log;
use crate::open_files;
use crate::output::print;
use crate::settings::{self, Bypass, Driver, Fail, Flags, Host, PortSettings, Settings, WorkerSettings};
use crate::whole_frames;
pub(crate) use doors::Doors;
use live::Live;
use meter::DeviceMeter;
pub(crate) use privileges::{Plan, choose as choose_user};
pub(crate) use subject::Subject;
use subject::subject;
pub use summary::summary;
use summary::{print_json, workers_table};
use watch::watch;

/// How long messages may take to be written before the summary.
const LONGEST_FLUSH: Duration = Duration::from_secs(2);
/// How long a router may take to end in good order after a fault.
const LONGEST_END: Duration = Duration::from_secs(2);
/// How long one whose thread hangs may take to send others round it. Its end waits for no thread.
const LONGEST_LEAVE: Duration = Duration::from_millis(500);

/// Makes a router of ports, or of a configuration, until Ctrl-C, until it stops by itself, or for a given time.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  brickway run eth1 eth2                          forward in Linux's place; its routes and tools stay
  brickway run eth1 eth2 --print-config           the configuration of that, to read and change
  brickway run eth1 eth1.100 eth2                 VLAN 100 (802.1Q) of eth1 as a port of its own
  brickway run wan=dpdk:0000:03:00.0 eth1         a device of DPDK; Linux sees the interface 'wan'
  brickway run examples/ip-router.click PORT0=eth1 PORT1=eth2 PORT2=eth3 PORT3=eth4
  brickway run router.click --port eth0=tap:brick0 --for 10
  brickway run router.click --port 'eth0=pcap:in.pcap?out=out.pcap'
  brickway run router.click --port 'eth0=af_packet:eth0?drop=0.01&delay=10ms'
  brickway run router.click --read rt.table --for 1
  brickway run router.click --port eth0=af_xdp:eth0 --port eth1=af_xdp:eth1 --workers 4 --balance

A port is [DRIVER:]NAME[?OPTION=VALUE&...]. Options drop, corrupt, duplicate, reorder, delay, trace and capture work with each driver.

Drivers:
  auto       in the kernel or af_xdp, whichever is faster; the default for a list of ports
  xdp        forwarding in the kernel
  af_xdp     AF_XDP sockets
  af_packet  packet sockets; the default in configurations
  host       into Linux's stack
  dpdk       a device of DPDK, in a build with it
  tap, pcap, memory, null

In a list of ports PORT.NUMBER is a VLAN of another port, as Linux has it, or with a TAP interface of this name.")]
pub(crate) struct RunArguments {
    /// Ports of a router that stands in for Linux's forwarding; or a configuration (FILE.click, `-` is standard input)
    /// and values of its variables
    #[arg(value_name = "PORT... | FILE.click [NAME=VALUE...]", required_unless_present = "config", add = ArgValueCompleter::new(crate::completion::interfaces_and_files))]
    what: Vec<String>,
    /// Ports and everything else from a settings file (examples/brickway.toml); flags go above it
    #[arg(long, value_name = "FILE.toml", conflicts_with = "what")]
    config: Option<PathBuf>,
    /// The driver of ports that name none: auto, xdp, af_xdp, af_packet, dpdk, tap (default auto)
    #[arg(long)]
    driver: Option<Driver>,
    /// Print the configuration that the ports get, and end
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    options: Flags,
    /// The port behind a name in the configuration
    #[arg(long = "port", value_name = "NAME=PORT", value_parser = load::parameter)]
    ports: Vec<(String, String)>,
    /// Who receives, processes and sends: parallel (each worker all of it), pipeline or serial, to measure hand-over
    #[arg(long, default_value_t = Mode::Parallel)]
    mode: Mode,
    /// Stop after this many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = duration, allow_negative_numbers = true)]
    duration: Option<f64>,
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
    /// A script that forwards in the place of our graph.
    #[arg(skip)]
    script: Option<Script>,
}

/// Runs a Lua script that forwards between ports, by Linux's routes and neighbours; Linux gets the packets that it leaves.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  brickway lua examples/lua/router.lua eth1 eth2      the example: forwards as `brickway run eth1 eth2` does
  brickway lua mine.lua eth1 eth2 --args '100 20'     brickway.args is the text
  brickway lua mine.lua eth1 eth2 --print-config      the configuration around it, to read and change
  brickway reload                                     has it read its file again; what save() returned, restore() gets

The script's main loop is `for batch in brickway.batches() do ... end`; brickway help LuaRouter has what it can do there,
brickway help Lua what packets have. Everything that the script leaves goes to Linux, which may have to forward it. Linux
forwards nothing else that came in by the ports: frames with several tags, what a card has merged in a tunnel, multicast.
rp_filter of the ports is honoured before the script. An error drops the batch, counted as \"script error\".
`brickway show handlers main.exports` lists the script's own handlers. main.state is its state, main.errors the number of failed
calls, main.last_error the last error.")]
pub(crate) struct LuaArguments {
    /// The script
    #[arg(value_name = "FILE.lua")]
    file: PathBuf,
    /// The ports, as for `brickway run`
    #[arg(value_name = "PORT", required = true, add = ArgValueCandidates::new(crate::completion::interfaces))]
    ports: Vec<String>,
    /// A text for the script: brickway.args
    #[arg(long, default_value = "", value_name = "TEXT", allow_hyphen_values = true)]
    args: String,
    /// Leave to Linux the packets on which the script fails, instead of dropping them: not for scripts that filter
    #[arg(long)]
    errors_to_linux: bool,
    /// The driver of ports that name none: auto, xdp, af_xdp, af_packet, dpdk, tap (default auto)
    #[arg(long)]
    driver: Option<Driver>,
    /// Print the configuration around the script, and end
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    options: Flags,
    /// Stop after this many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = duration, allow_negative_numbers = true)]
    duration: Option<f64>,
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

pub(crate) fn lua(arguments: &LuaArguments) -> Result<ExitCode> {
    let arguments = arguments.clone();
    if let Some((flag, _)) = arguments.options.given().find(|(_, option)| FeatureSettings::has(option)) {
        bail!("--{flag} is for `brickway run PORT...`; a script says itself what it does to packets");
    }
    run(&RunArguments {
        what: arguments.ports,
        config: None,
        driver: arguments.driver,
        print_config: arguments.print_config,
        options: arguments.options,
        ports: Vec::new(),
        mode: Mode::Parallel,
        duration: arguments.duration,
        writes: Vec::new(),
        reads: arguments.reads,
        quiet: arguments.quiet,
        json: arguments.json,
        script: Some(Script {
            file: arguments.file.display().to_string(),
            args: arguments.args,
            errors_to_linux: arguments.errors_to_linux,
        }),
    })
}

/// How to run a node of a cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeArguments {
    #[command(flatten)]
    options: Flags<true>,
    /// Stop after this many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = duration, allow_negative_numbers = true)]
    duration: Option<f64>,
    /// No summary at the end
    #[arg(long, short)]
    quiet: bool,
}

impl RunArguments {
    /// Those of a node of a cluster; its file says the rest.
    pub(crate) fn of_node(how: &NodeArguments) -> RunArguments {
        RunArguments {
            what: Vec::new(),
            config: None,
            driver: None,
            print_config: false,
            options: how.options.of_router(),
            ports: Vec::new(),
            mode: Mode::Parallel,
            duration: how.duration,
            writes: Vec::new(),
            reads: Vec::new(),
            quiet: how.quiet,
            json: false,
            script: None,
        }
    }

    /// What the command line says of options.
    pub(crate) fn options(&self) -> &Flags {
        &self.options
    }
}

/// Returns the settings, of the file or of the ports on the command line, with the flags above them; or the mistakes of the file.
pub(super) fn settings_of(arguments: &RunArguments) -> Result<Result<Settings, Diagnostics>> {
    let mut settings = match &arguments.config {
        Some(file) => match settings::load(file)? {
            Ok(settings) => settings,
            Err(mistakes) => return Ok(Err(mistakes)),
        },
        None if subject::is_file(arguments) => {
            if let Some((flag, _)) =
                arguments.options.given().find(|(_, option)| FeatureSettings::has(option))
            {
                bail!(
                    "--{flag} is for a list of ports; a configuration in a file says itself what its elements do"
                );
            }
            if arguments.options.given().any(|(flag, _)| flag == "user") {
                bail!(
                    "--user is for a list of ports and for scripts; elements of a configuration may write files of other users"
                );
            }
            let workers = WorkerSettings { balance: false, ..WorkerSettings::default() };
            Settings { workers, ..Settings::default() }
        }
        None => {
            let driver = arguments.driver.unwrap_or_default();
            Settings::of_ports(arguments.what.iter().map(String::as_str), driver)
                .map_err(anyhow::Error::msg)?
        }
    };
    settings.apply(&arguments.options).map_err(anyhow::Error::msg)?;
    let workers = settings.workers.count;
    Roles::new(arguments.mode, workers).map_err(|error| anyhow!("--mode {}: {error}", arguments.mode))?;
    if arguments.mode != Mode::Parallel {
        if arguments.options.given().any(|(flag, _)| flag == "balance") {
            bail!(
                "--balance moves work between workers that all do the same: leave out --mode {}",
                arguments.mode
            );
        }
        settings.workers.balance = false;
    }
    Ok(Ok(settings))
}

/// How long to run.
fn duration(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|&seconds| seconds >= 0.0);
    seconds.ok_or_else(|| "expected a number of seconds, such as 10 or 0.5".to_owned())
}

/// The flags that a configuration for these ports needs when it is run as a file, as a comment to stand before it.
fn how_to_run(ports: &[PortSettings]) -> String {
    let is_unusual = |port: &&PortSettings| port.spec() != PortSettings::new(&port.name).spec();
    let flags: Vec<String> = ports
        .iter()
        .filter(is_unusual)
        .map(|port| format!(" --port '{}={}'", port.name, port.spec()))
        .collect();
    if flags.is_empty() {
        return String::new();
    }
    format!("// Run it with: brickway run FILE.click{}\n", flags.concat())
}

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    packet::Vectors::chosen().map_err(anyhow::Error::msg)?;
    let mut settings = match settings_of(arguments) {
        Ok(Ok(settings)) => settings,
        mistake => {
            let file = arguments.config.as_deref().filter(|_| !arguments.print_config);
            let mut closed = file.map(settings::ports_to_close).unwrap_or_default();
            // Those that another router has are that one's to close.
            closed.retain(|port| ports::user_of(&port.name).is_none());
            if !closed.is_empty() {
                drop_in::Guard::raise(&closed, Fail::Closed, None)?;
                say_closed("the file has a `fail` that is not \"open\"");
            }
            return mistake
                .map(|read| read.err().map_or(ExitCode::FAILURE, |found| settings::print_mistakes(&found)));
        }
    };
    if let Some(file) = arguments.what.first().filter(|file| settings::is_settings_file(Path::new(file))) {
        bail!("{file} is a file of settings: brickway run --config {file}");
    }
    if let Some((name, spec)) = arguments.ports.first().filter(|_| !subject::is_file(arguments)) {
        bail!("--port {name}={spec} is for a configuration in a file; in a list of ports write {spec}");
    }
    let ignores_ipsec = settings.beside_linux.ignore.contains(&Bypass::Ipsec);
    settings.follows_ipsec = !subject::is_file(arguments) && arguments.script.is_none() && !ignores_ipsec;
    if !arguments.print_config {
        log::begin(settings.log.level);
    }
    let is_list = !subject::is_file(arguments) && !arguments.print_config;
    if is_list {
        refuse_doubles(&settings.ports)?;
        refuse_taken(&settings)?;
    }
    // First of all: whatever goes wrong from here on, nothing is forwarded past the filters.
    let closes = is_list && settings.general.fail == Fail::Closed;
    let guard = closes.then(|| drop_in::Guard::of_settings(&settings)).transpose()?;
    let ended = run_settings(arguments, settings, guard);
    if closes {
        say_closed("fail = \"closed\"");
    }
    ended
}

/// Refuses ports that are the same interface: by its name and an alternative one, or by two of these.
fn refuse_doubles(ports: &[PortSettings]) -> Result<()> {
    let links = ports::Links::ask().unwrap_or_default();
    let mut known: Vec<(u32, &str)> = Vec::new();
    for port in ports.iter().filter(|port| port.host == Host::Interface) {
        let Some(index) = links.named(&port.name).map(|link| link.index) else { continue };
        if let Some((_, other)) = known.iter().find(|(of, _)| *of == index) {
            bail!("ports '{other}' and '{}' are the same interface; expected it once", port.name);
        }
        known.push((index, &port.name));
    }
    Ok(())
}

/// Refuses to start on ports that another router has.
fn refuse_taken(settings: &Settings) -> Result<()> {
    let taken = settings.ports.iter().find_map(|port| ports::user_of(&port.name));
    let Some(process) = taken else { return Ok(()) };
    let its = settings.ports.iter().filter(|port| ports::user_of(&port.name) == Some(process));
    let names: Vec<&str> = its.map(|port| port.name.as_str()).collect();
    let names = names.join(", ");
    bail!("process {process} of Brickway routes on {names} already; stop it first: kill {process}")
}

/// Runs what these settings say, or prints its configuration.
fn run_settings(
    arguments: &RunArguments,
    mut settings: Settings,
    guard: Option<drop_in::Guard>,
) -> Result<ExitCode> {
    let is_file = subject::is_file(arguments);
    if !is_file && !arguments.print_config {
        doctor::begin(&settings)?;
        if let [port] = &settings.ports[..]
            && arguments.script.is_none()
        {
            tracing::warn!(
                "{0} is the only port: packets between it and other interfaces are left to Linux; name these too: \
                 brickway run {0} eth2",
                port.name
            );
        }
        open_files::refuse_too_few(&settings.ports, settings.workers.count)?;
        beside_linux::refuse(&settings)?;
    }
    let mut plan = (!arguments.print_config).then(|| Plan::of(arguments, &settings)).transpose()?;
    // While it is root's, and before its first thread.
    let opens = !is_file && !arguments.print_config;
    let doors = opens.then(|| Doors::open(&settings, arguments.config.is_some())).transpose()?;
    if let Some(plan) = &mut plan {
        let waits = doors.iter().flat_map(|doors| doors.http.taken());
        waits.for_each(|address| plan.keep_listening(address));
        plan.give_up()?;
    }
    let registry = crate::classes();
    let shared = Shared::default();
    let Some(mut subject) = subject(arguments, &settings, &registry, &shared)? else {
        return Ok(ExitCode::FAILURE);
    };
    (subject.guard, subject.plan, subject.doors) = (guard, plan, doors);
    if arguments.print_config {
        let ports = if is_file { &subject.ports } else { &settings.ports };
        print(&(how_to_run(ports) + &subject.source.text));
        return Ok(ExitCode::SUCCESS);
    }
    if is_file && subject.mirror.is_some() {
        settings.follows_ipsec = subject::follows_ipsec(&subject.flat);
        beside_linux::refuse(&Settings { ports: subject.ports.clone(), ..settings.clone() })?;
    }
    if let Some(listen) = settings.fpm.listen.filter(|_| settings.fpm.insecure) {
        tracing::warn!("everybody who reaches {listen} makes routes ([fpm] insecure = true)");
    }
    operate(arguments, settings, subject, &registry, shared)
}

/// Reports why nothing passes any more.
fn say_closed(why: &str) {
    graph::note!(
        "brickway: nothing is forwarded from the ports until a router runs ({why}); `brickway doctor --fix` ends that"
    );
}

/// Signals that came.
#[derive(Default)]
struct Signals {
    /// The router is to end.
    interrupted: Arc<AtomicBool>,
    /// It is to read its settings again.
    hung_up: Arc<AtomicBool>,
}

impl Signals {
    /// Catches them. SIGHUP is left to a script that takes it.
    fn catch(shared: &Shared) -> std::io::Result<Self> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, signals.interrupted.clone())?;
        }
        let taken = shared.get::<TakenSignals>(TakenSignals::KEY);
        if !taken.is_some_and(|taken| taken.has(SIGHUP)) {
            signal_hook::flag::register(SIGHUP, signals.hung_up.clone())?;
        }
        Ok(signals)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// Whether SIGHUP came since the last call.
    fn take_hang_up(&self) -> bool {
        self.hung_up.swap(false, Ordering::SeqCst)
    }
}

/// Runs a router to its end.
pub(crate) fn operate(
    arguments: &RunArguments,
    mut settings: Settings,
    subject: Subject,
    registry: &Registry,
    shared: Shared,
) -> Result<ExitCode> {
    let Subject { source, flat, mirror, specs, ports, filtered, supervisor, guard, plan, doors, devices } =
        subject;
    // Threads that end with the process keep ports open until then.
    let _cards = AtEnd(::ports::restore_cards);
    settings.ports = ports;
    shared.get_or_make(Globals::KEY, || Ok::<_, anyhow::Error>(load::globals(registry, &source.text)))?;
    shared.get_or_make(PortNames::KEY, || Ok::<_, anyhow::Error>(PortNames::new(specs)))?;
    // Whoever reads them keeps no worker waiting.
    let messages = messages::queue().context("cannot start the thread that writes messages")?;
    let control = Control::new(messages::print);
    let data_bytes = settings.memory.frame_bytes(&settings.ports);
    let [pool, slow_pool] = settings.memory.pools(data_bytes);
    let workers = settings.workers.count;
    let router_options = RouterOptions {
        workers,
        graph: GraphOptions { burst: settings.workers.burst, pool, simulated_time: None },
        slow_pool,
        large_frames: whole_frames::frames(&shared),
        pin: workers > 1 && settings.workers.pin,
        mode: arguments.mode,
    };
    let started = Instant::now();
    let mut router = match Router::build(flat.clone(), registry, &shared, &router_options, control.clone()) {
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
    for path in &arguments.reads {
        let element = path.rsplit_once('.').map(|(element, _)| element).filter(|element| !element.is_empty());
        if let Some(element) = element.filter(|element| router.config().find(element).is_none()) {
            bail!("--read {path}: no element named '{element}'");
        }
    }
    if let Some(filtered) = &filtered {
        filtered.check()?;
    }
    let filtered = filtered.filter(|_| guard.is_none());
    if guard.is_none() && filtered.is_none() && mirror.is_some() {
        drop_in::lift(&settings.ports);
    }
    let signals = Signals::catch(&shared).context("cannot catch signals")?;
    let name = source.name.clone();
    let live = Live::new(
        router,
        mirror,
        guard,
        settings,
        arguments.clone(),
        shared,
        source,
        supervisor,
        signals,
        data_bytes,
        DeviceMeter::since(devices),
    );
    live.on_link_change(&control);
    let doors = doors.map_or_else(|| live.open_doors(), Ok)?;
    let server = live.serve(doors.sockets)?;
    // Ports and elements know the host's addresses before the first packet.
    live.follow();
    // What the devices counted before is not the router's.
    let _ = live.count();
    // Until then Linux forwards what the ports do not take yet.
    if let Some(filtered) = &filtered {
        live.raise_guard(filtered)?;
    }
    live.with_router(Router::start)
        .map_err(anyhow::Error::msg)?
        .context("cannot start the worker threads")?;
    live.begin_guard();
    drop_in::report_closed();
    supervise(&live)?;
    live.begin_exports()?;
    let (web, addresses) = live.serve_http(doors.http)?.unzip();
    let plural = if workers == 1 { "" } else { "s" };
    if !arguments.quiet {
        tracing::info!(
            event = "start",
            "{name} runs with {workers} worker{plural} ({} elements, ready in {:.2} s); Ctrl-C stops it",
            flat.elements.len(),
            started.elapsed().as_secs_f64()
        );
    }
    for address in addresses.unwrap_or_default() {
        tracing::info!("{address}");
    }
    let twice = live.service.is_none().then(|| beside_linux::twice::warning(&flat, &live.shared));
    for problem in live.feature_problems().into_iter().chain(twice.flatten()) {
        tracing::warn!("{problem}");
    }
    if let Some(plan) = &plan {
        plan.refuse_unneeded_calls()?;
    }
    live.notify.ready(&live.status);
    let fault = watch(arguments, &live, &control);
    let interrupted = live.signals.is_interrupted();
    let reason = if interrupted { "a signal" } else { "its time is over, or it has stopped by itself" };
    match fault {
        None if !arguments.quiet => tracing::info!(event = "end", reason, "the router ends: {reason}"),
        _ => {}
    }
    log::end();
    live.notify.stopping();
    let is_of_ports = arguments.script.is_none() && !subject::is_file(arguments);
    let ports = is_of_ports.then(|| live.ports().ok()).flatten();
    let mut router = live.take_router();
    drop((server, web));
    messages.flush(LONGEST_FLUSH);
    let flat = router.config().clone();
    for path in &arguments.reads {
        match router.read_own(path) {
            Ok(value) => print(&format!("{path}:\n{}\n", value.trim_end())),
            Err(error) => graph::note!("brickway: --read {path}: {error}"),
        }
    }
    let stats = router.stats();
    let shares = queue_shares(&mut router).unwrap_or_default();
    let lost = messages::lost();
    if arguments.json {
        print_json(&flat, &stats, &shares);
        if lost > 0 {
            print(&format!("{{\"lost_messages\":{lost}}}\n"));
        }
    } else if !arguments.quiet {
        let paths = live.paths();
        print(&match &ports {
            Some(ports) => summary::of_ports(ports, &flat, &stats, &paths),
            None => summary(&flat, &stats, &paths),
        });
        if workers > 1 {
            print(&format!("\n{}", workers_table(&stats, &shares, workers).render()));
        }
        if lost > 0 {
            print(&format!("\n{lost} messages were lost: they came faster than they were read\n"));
        }
    }
    live.hand_over(&mut router);
    let panicked = router.stop().into_iter().next();
    let panicked = panicked.map(|thread| Fault { thread, problem: Problem::Ended });
    if let Some(fault) = fault.or(panicked) {
        bail!("{fault}, which is a bug of ours; its packets were lost. Please report the messages above");
    }
    Ok(ExitCode::SUCCESS)
}

/// What is done at the end, whatever it is.
struct AtEnd(fn());

impl Drop for AtEnd {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Has all threads watched from now on. A fault ends the router: in good order if the main thread is quick, else by force, for a
/// thread that hangs may keep the end waiting. The kernel then takes back what belonged to the process, and Linux forwards.
fn supervise(live: &Live) -> Result<()> {
    let beats = live.with_router(|router| router.beats()).map_err(anyhow::Error::msg)?;
    for (name, beats) in beats {
        live.supervisor.watch_beats(name, beats);
    }
    let on_fault = |fault: &Fault| {
        let reason = match fault.problem {
            Problem::Ended => "it has ended",
            Problem::Silent => "it does not answer",
        };
        tracing::error!(event = "fault", thread = fault.thread, reason, "{fault}; the router ends");
        let longest = if fault.problem == Problem::Silent { LONGEST_LEAVE } else { LONGEST_END };
        let begin = Instant::now();
        messages::flush(longest);
        std::thread::sleep(longest.saturating_sub(begin.elapsed()));
        std::process::exit(1);
    };
    live.supervisor.begin(on_fault).context("cannot start the supervisor")
}
