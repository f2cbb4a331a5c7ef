//! Forwarding between two veth links: our drivers for Linux interfaces in a `brickway run` of their own, the kernel's IP
//! forwarding, `bpf_fib_lookup` by xdp-forward of xdp-tools, and an XDP program that redirects.
//!
//! For the workload `forward` Linux has the routes and a permanent entry of each neighbour; our router mirrors them. So that its
//! figures are not Linux's, it gets frames when it says that it runs, and a run fails in which Linux forwarded for it.
//!
//! What arrives at the sink is counted. The source can send several times what a router forwards, and one that drowns in
//! frames spends its time on losing them; so the rate at which most arrives is looked for first. All that the router does is on one CPU:
//! its process, the kernel's receiving for it, and the dropping at the sink, which is the same for all. A packet's CPU
//! time is that of the threads that do this: those of our process, the receiving interface's, and the one for interrupts
//! that are too many. What the kernel does in interrupts on top of a thread it charges to that thread, unless it was built
//! with CONFIG_IRQ_TIME_ACCOUNTING; how much that was of all that the CPU did is a figure of its own, in ticks.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use packet::random::SplitMix64;
use packet::{IpVersion, cycles};

use super::cases::{Case, Driver, Engine, Load, RULES, Work};
use super::ends::{End, Program};
use super::network::{FAR, IN_MAC, Line, Network, SOURCE_MAC, address};
use super::traffic::Traffic;
use super::{
    Available, CPU_NS, CYCLES, Contestant, ENGINE_NS, Figures, LOSS, MPPS, Missing, SOFTIRQ, Setting,
};
use crate::bench::children::{Reachable, stop_if_interrupted};
use crate::bench::cpus::{self, Apart, place_control, place_worker};
use crate::bench::example::ROUTER;
use crate::bench::rules::Rule;
use crate::bench::single_core::ROUTER_PORTS;

/// What sends and receives, for people.
pub(super) const SOURCE: &str = "frames from a BPF program (live frames of BPF_PROG_RUN) on another core, \
     at the rate at\nwhich most arrive; an XDP program drops and counts them at the sink";

/// Nothing arrives for so long only where nothing is forwarded any more.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// Rates of the source among which the best one is looked for, in million frames a second; then as fast as it can.
const RATES: [f64; 12] = [0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.75, 1.0, 1.4, 2.0, 2.8, 4.0];
/// Time for each of them.
const TRIAL: Duration = Duration::from_millis(150);

/// Time for a router to start, with all of Linux's routes, and to forward its first packets.
const PATIENCE: Duration = Duration::from_secs(60);
/// A router rests that works for less than a tenth of this. It pauses for a second before it reads Linux's routes once more.
const REST: Duration = Duration::from_secs(2);
/// Traffic before the first reading: caches, and the first neighbours.
const WARM_UP: Duration = Duration::from_millis(300);

/// The links with their ends; routers come and go between them.
pub(super) struct Veth {
    // In this order: programs leave before the links do.
    program: Program,
    network: Network,
    /// Of each line.
    traffic: Vec<Traffic>,
    load: Load,
    apart: Apart,
    folder: PathBuf,
    burst: usize,
    /// Bytes of a frame.
    size: usize,
}

impl Veth {
    /// Makes so many lines, of which the first has this load and the others one destination.
    pub(super) fn new(setting: &Setting<'_>, load: Load, lines: usize) -> Result<Available<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Err(Missing("making network namespaces needs root".into())));
        }
        let Some(apart) = setting.apart else {
            return Ok(Err(Missing("source and router need a CPU each, and there is one".into())));
        };
        for (program, package) in [("ip", "iproute2"), ("ethtool", "ethtool"), ("sysctl", "procps")] {
            if !crate::program::is_installed(program) {
                return Ok(Err(Missing(format!(
                    "{program} is not installed; 'apt-get install {package}' brings it"
                ))));
            }
        }
        let program = match Program::compile(setting.folder.path())? {
            Ok(program) => program,
            Err(missing) => return Ok(Err(missing)),
        };
        let network = Network::create(load.family, lines)?;
        let traffic = (0..).zip(&network.lines);
        let traffic = traffic.map(|(number, line)| Traffic::new(setting, load, number, &line.sending));
        let traffic = traffic.collect::<Result<_>>()?;
        let (folder, burst) = (setting.folder.path().to_owned(), setting.arguments.run.burst);
        let size = setting.arguments.frames.size;
        Ok(Ok(Self { program, network, traffic, load, apart, folder, burst, size }))
    }

    /// A router of this case, started for each run: only one at a time can have the interfaces.
    pub(super) fn contestant<'a>(&'a self, case: &Case) -> Result<Available<Box<dyn Contestant + 'a>>> {
        Ok(self.on_veth(case)?.map(|on_veth| Box::new(on_veth) as Box<dyn Contestant + 'a>))
    }

    /// The same, for loads in steps.
    pub(super) fn on_veth<'a>(&'a self, case: &Case) -> Result<Available<OnVeth<'a>>> {
        let (driver, options) = match case.driver {
            Driver::AfPacket => ("af_packet", ""),
            Driver::AfXdp => ("af_xdp", ""),
            Driver::Xdp => ("xdp", ""),
            Driver::XdpGeneric => ("xdp", "?mode=generic"),
            _ => ("", ""),
        };
        if !driver.is_empty() && !has_driver(driver)? {
            return Ok(Err(Missing(format!("this program has no driver {driver}"))));
        }
        if (case.engine, case.work) == (Engine::Kernel, Work::Listed) && !crate::program::is_installed("nft")
        {
            return Ok(Err(Missing("nft is not installed; 'apt-get install nftables' brings it".into())));
        }
        if case.work == Work::Esp
            && let Err(problem) = self.network.encrypts(true).and_then(|()| self.network.encrypts(false))
        {
            return Ok(Err(Missing(format!("this kernel does not do ESP with AES-GCM: {problem:#}"))));
        }
        if case.engine == Engine::XdpForward && !crate::program::is_installed(XDP_FORWARD) {
            return Ok(Err(Missing(format!(
                "{XDP_FORWARD} is not installed; 'apt-get install xdp-tools' brings it from Debian 13 on"
            ))));
        }
        Ok(Ok(OnVeth { veth: self, driver, options, case: *case, rate: None }))
    }

    /// Starts the sources of all lines.
    fn start_sources(&self) -> Result<Vec<End>> {
        let lines = (0..).zip(self.network.lines.iter().zip(&self.traffic));
        lines.map(|(number, (line, traffic))| self.start_source(number, line, traffic)).collect()
    }

    fn start_source(&self, number: u8, line: &Line, traffic: &Traffic) -> Result<End> {
        let cpu = self.apart.control().to_string();
        let from = address(self.load.family, 2 * number, 2);
        let to = traffic.destinations.display().to_string();
        let size = self.size.to_string();
        let words = ["source", line.source.name(), FAR, &cpu, SOURCE_MAC, IN_MAC, &from, &to, &size];
        self.program.start(&words)
    }
}

/// `bpf_fib_lookup` between interfaces, of the package xdp-tools.
const XDP_FORWARD: &str = "xdp-forward";

/// Where a router that is watched listens.
const METRICS: &str = "127.0.0.1:9779";
const WEB: &str = "127.0.0.1:8779";

/// The table of nftables that Linux has as an access list.
const FILTER: &str = "bench";

/// Returns whether `brickway run` knows a driver.
fn has_driver(name: &str) -> Result<bool> {
    let mut command = Command::new(crate::program::router()?);
    let output = command.args(["run", "--driver", name, "--help"]).output();
    Ok(output.context("cannot start the router")?.status.success())
}

/// One way to forward between the links.
pub(super) struct OnVeth<'a> {
    veth: &'a Veth,
    driver: &'static str,
    /// What follows an interface's name in a port of ours.
    options: &'static str,
    case: Case,
    /// Frames a second at which most arrive; `Some(None)` is as fast as the source can.
    rate: Option<Option<f64>>,
}

/// A router with what sends to it and what receives from it. They end in this order: encryption after the router, which reports to it.
struct Running<'a> {
    sources: Vec<End>,
    router: Router<'a>,
    _encrypting: Option<Encrypting<'a>>,
    sinks: Vec<End>,
}

/// A router between the links; what it was made of goes with it.
enum Router<'a> {
    Ours { process: Option<Reachable>, log: PathBuf, _clients: Vec<Reachable> },
    Kernel,
    Filtering(&'a Network),
    Redirect { _end: End },
    XdpForward(&'a Network),
}

impl Router<'_> {
    /// The threads of our process, as folders in /proc; none where the kernel forwards.
    fn threads(&self) -> Vec<PathBuf> {
        let Router::Ours { process: Some(process), .. } = self else { return Vec::new() };
        let tasks = fs::read_dir(format!("/proc/{}/task", process.id()));
        tasks.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Waits until our process says that it runs.
    fn wait_until_it_runs(&self) -> Result<()> {
        let Router::Ours { log, .. } = self else { return Ok(()) };
        let begin = Instant::now();
        while !fs::read_to_string(log).unwrap_or_default().contains(" runs with ") {
            self.still_runs()?;
            if begin.elapsed() > PATIENCE {
                bail!("the router does not start within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until our process rests: after its start its control thread reads Linux's routes once more.
    fn wait_until_it_rests(&self) -> Result<()> {
        if !matches!(self, Router::Ours { .. }) {
            return Ok(());
        }
        let ran = || self.threads().iter().map(|thread| cpus::ran(thread)).sum::<Duration>();
        let begin = Instant::now();
        loop {
            let before = ran();
            std::thread::sleep(REST);
            self.still_runs()?;
            if ran().saturating_sub(before) < REST / 10 {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!("the router does not rest within {} s", PATIENCE.as_secs());
            }
        }
    }

    /// An error with its last words if it has ended by itself.
    fn still_runs(&self) -> Result<()> {
        if let Router::Ours { process: Some(process), log, .. } = self
            && process.has_ended()
        {
            stop_if_interrupted()?;
            let said = fs::read_to_string(log).unwrap_or_default();
            bail!("the router ended. It said:\n{}", said.trim());
        }
        Ok(())
    }
}

impl Drop for Router<'_> {
    fn drop(&mut self) {
        match self {
            Router::Ours { process, .. } => {
                if let Some(process) = process.take() {
                    process.interrupt(PATIENCE);
                }
            }
            Router::XdpForward(network) => {
                if let Err(problem) = xdp_forward(network, "unload") {
                    graph::note!("brickway-lab: {problem:#}");
                }
            }
            Router::Filtering(network) => {
                if let Err(problem) = network.router.run(&format!("nft delete table inet {FILTER}")) {
                    graph::note!("brickway-lab: {problem:#}");
                }
            }
            Router::Kernel | Router::Redirect { .. } => {}
        }
    }
}

/// Linux's policies and associations; they go when it is dropped.
struct Encrypting<'a>(&'a Network);

impl Drop for Encrypting<'_> {
    fn drop(&mut self) {
        if let Err(problem) = self.0.encrypts(false) {
            graph::note!("brickway-lab: {problem:#}");
        }
    }
}

/// Attaches xdp-forward to the router's interfaces ("load"), or takes it away ("unload").
fn xdp_forward(network: &Network, command: &str) -> Result<()> {
    let interfaces: Vec<&str> = network.interfaces().map(String::as_str).collect();
    // Its programs alone; a dispatcher for several of them would need /sys/fs/bpf.
    let words = format!("{XDP_FORWARD} {command} {}", interfaces.join(" "));
    network.router.run(&format!("env LIBXDP_SKIP_DISPATCHER=1 {words}")).map(drop)
}

impl<'a> OnVeth<'a> {
    fn start(&self) -> Result<Router<'a>> {
        let Veth { network, program, traffic, .. } = self.veth;
        let is_click = matches!(self.case.work, Work::Minimal | Work::Route);
        network.kernel_forwards(!is_click, traffic)?;
        Ok(match self.case.engine {
            Engine::Kernel if self.case.work == Work::Listed => {
                let file = self.write(
                    "rules.nft",
                    &format!(
                        "table inet {FILTER} {{ chain forward {{ type filter hook forward priority 0;\n{}}}\n}}\n",
                        self.list(Rule::nftables)
                    ),
                )?;
                network.router.run(&format!("nft -f {}", file.display()))?;
                Router::Filtering(network)
            }
            Engine::Kernel => Router::Kernel,
            Engine::KernelXdp => {
                let Line { receiving, sending, .. } = &network.lines[0];
                let words = ["redirect", network.router.name(), receiving, sending];
                Router::Redirect { _end: program.start(&words)? }
            }
            Engine::XdpForward => {
                xdp_forward(network, "load")?;
                Router::XdpForward(network)
            }
            Engine::Brickway | Engine::Watched | Engine::Testpmd | Engine::L3fwdFib | Engine::L3fwdLpm => {
                self.start_ours()?
            }
        })
    }

    fn start_ours(&self) -> Result<Router<'a>> {
        let Veth { network, folder, burst, apart, .. } = self.veth;
        let port = |interface: &String| format!("{}:{interface}{}", self.driver, self.options);
        let ports: Vec<String> = network.interfaces().map(port).collect();
        let program = crate::program::router()?;
        let mut command = network.router.command(&program.display().to_string());
        command.args(["run", "--stats", "0", "--burst", &burst.to_string()]);
        if matches!(self.case.work, Work::Forward | Work::Listed | Work::Esp) {
            command.args(["--workers", "1"]).args(ports);
            if self.case.work == Work::Listed {
                // Frames that no rule matches pass, as by the policy of nftables.
                let rules = self.list(Rule::text) + "permit any any any\n";
                command.arg("--acl").arg(self.write("rules.txt", &rules)?);
            }
        } else {
            self.add_configuration(&mut command, &ports)?;
        }
        let is_watched = self.case.engine == Engine::Watched;
        if is_watched {
            command.args(["--metrics", METRICS, "--web", WEB]);
        }
        let log = folder.join("router.log");
        let out = File::create(&log).with_context(|| format!("cannot make '{}'", log.display()))?;
        let err = out.try_clone().context("cannot use a file twice")?;
        command.stdout(out).stderr(err);
        // It stays on the CPU of the thread that starts it.
        place_worker(Some(*apart));
        let child = command.spawn().context("cannot start the router");
        let place = place_control(Some(*apart));
        let process = Some(Reachable::new(child?));
        let clients = if is_watched { self.start_clients()? } else { Vec::new() };
        drop(place);
        Ok(Router::Ours { process, log, _clients: clients })
    }

    /// Starts those who look at a router: one reads its metrics every second, one its events, which come as often.
    fn start_clients(&self) -> Result<Vec<Reachable>> {
        let clients = [(METRICS, "/metrics"), (WEB, "/api/v1/events")];
        let start = |(address, path): (&str, &str)| {
            let (host, port) = address.split_once(':').unwrap_or((address, ""));
            let request =
                format!("GET {path} HTTP/1.1\\r\\nHost: {address}\\r\\nConnection: close\\r\\n\\r\\n");
            let script = format!(
                "while sleep 1; do {{ printf '{request}' >&3; cat <&3; }} 3<>/dev/tcp/{host}/{port} >/dev/null; done 2>/dev/null"
            );
            let mut command = self.veth.network.router.command("bash");
            let child = command.args(["-c", &script]).spawn();
            Ok(Reachable::new(child.context("cannot start bash, which reads what the router shows")?))
        };
        clients.into_iter().map(start).collect()
    }

    /// The rules of an access list in the words of `text`. They permit, so that frames that one of them matches pass too.
    fn list(&self, text: fn(&Rule, bool) -> String) -> String {
        let (mut random, is_ipv6) = (SplitMix64::new(1), self.case.load.family == IpVersion::V6);
        let rules = std::iter::from_fn(|| Some(Rule::draw(&mut random, is_ipv6))).filter(|rule| rule.permits);
        rules.take(RULES).map(|rule| text(&rule, is_ipv6) + "\n").collect()
    }

    fn write(&self, file: &str, text: &str) -> Result<PathBuf> {
        let file = self.veth.folder.join(file);
        fs::write(&file, text).with_context(|| format!("cannot write '{}'", file.display()))?;
        Ok(file)
    }

    /// Has the router run a configuration over these ports.
    fn add_configuration(&self, command: &mut Command, ports: &[String]) -> Result<()> {
        let (file, text) = match self.case.work {
            Work::Route => ("ip-router.click", ROUTER),
            _ => ("io.click", "FromDevice(bench0) -> ToDevice(bench1);"),
        };
        command.arg(self.write(file, text)?);
        for (number, port) in ports.iter().enumerate() {
            command.args(["--port", &format!("bench{number}={port}")]);
        }
        if self.case.work == Work::Route {
            command.args((0..ROUTER_PORTS).map(|port| {
                if port < 2 { format!("PORT{port}=bench{port}") } else { format!("PORT{port}=null:{port}") }
            }));
        }
        Ok(())
    }
}

impl<'a> OnVeth<'a> {
    /// Starts all, and waits until packets arrive.
    fn begin(&self) -> Result<Running<'a>> {
        let Veth { network, apart, .. } = self.veth;
        let sink = |line: &Line| self.veth.program.start(&["sink", line.sink.name(), FAR]);
        let mut sinks = network.lines.iter().map(sink).collect::<Result<Vec<_>>>()?;
        let encrypting = match self.case.work {
            Work::Esp => {
                network.kernel_forwards(true, &self.veth.traffic)?;
                network.encrypts(true)?;
                Some(Encrypting(network))
            }
            _ => None,
        };
        let router = self.start()?;
        router.wait_until_it_runs()?;
        router.wait_until_it_rests()?;
        let sources = self.veth.start_sources()?;
        let begin = Instant::now();
        for sink in &mut sinks {
            while sink.count()? == 0 {
                stop_if_interrupted()?;
                router.still_runs()?;
                if begin.elapsed() > PATIENCE {
                    bail!("nothing arrives at a sink");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        network.move_receiving_to(apart.worker());
        std::thread::sleep(WARM_UP);
        Ok(Running { sources, router, _encrypting: encrypting, sinks })
    }

    /// Fails if Linux forwarded in the place of another router; `before` is what it had forwarded.
    fn check_linux(&self, before: u64, arrived: u64) -> Result<()> {
        let by_linux = self.veth.network.forwarded_by_linux()?.saturating_sub(before);
        if self.case.engine != Engine::Kernel && by_linux > arrived / 100 {
            bail!("of {arrived} packets Linux forwarded {by_linux} in the router's place");
        }
        Ok(())
    }

    /// Sends at each of these rates, in million frames a second of all lines together, for so many seconds, and all that so many times.
    pub(super) fn sweep(&self, rates: &[f64], seconds: f64, runs: usize) -> Result<Vec<Step>> {
        let _place = place_control(Some(self.veth.apart));
        let mut running = self.begin()?;
        let Running { sources, router, sinks, .. } = &mut running;
        let linux_before = self.veth.network.forwarded_by_linux()?;
        let mut steps = vec![Vec::new(); rates.len()];
        for _ in 0..runs {
            for (rate, steps) in rates.iter().zip(&mut steps) {
                stop_if_interrupted()?;
                for source in &mut *sources {
                    source.set_rate(Some(rate * 1e6 / self.veth.network.lines.len() as f64))?;
                }
                std::thread::sleep(TRIAL / 3);
                let mut counts = || -> Result<(Vec<u64>, Vec<u64>)> {
                    let of = |ends: &mut [End]| ends.iter_mut().map(End::count).collect::<Result<_>>();
                    Ok((of(sources)?, of(sinks)?))
                };
                let (before, begin) = (counts()?, Instant::now());
                std::thread::sleep(Duration::from_secs_f64(seconds));
                let (after, took) = (counts()?, begin.elapsed().as_secs_f64());
                let mpps = |before: &[u64], after: &[u64]| -> Vec<f64> {
                    let each = after.iter().zip(before);
                    each.map(|(after, before)| (after - before) as f64 / took / 1e6).collect()
                };
                let arrived = mpps(&before.1, &after.1);
                steps.push(Step { sent: mpps(&before.0, &after.0), arrived });
            }
        }
        router.still_runs()?;
        let steps: Vec<Step> = steps.iter().map(|runs| Step::mean(runs)).collect();
        let all = steps.iter().map(Step::all).sum::<f64>() * seconds * runs as f64 * 1e6;
        self.check_linux(linux_before, all as u64)?;
        Ok(steps)
    }
}

/// What was sent and what arrived at one rate, in million frames a second: the mean of several runs.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// By the source of each line.
    pub(crate) sent: Vec<f64>,
    /// At its sink.
    pub(crate) arrived: Vec<f64>,
}

impl Step {
    fn mean(runs: &[Step]) -> Step {
        let mean = |of: fn(&Step) -> &Vec<f64>| -> Vec<f64> {
            let lines = 0..runs.first().map_or(0, |run| of(run).len());
            lines.map(|line| runs.iter().map(|run| of(run)[line]).sum::<f64>() / runs.len() as f64).collect()
        };
        Step { sent: mean(|step| &step.sent), arrived: mean(|step| &step.arrived) }
    }

    /// Returns what arrived in all.
    pub(crate) fn all(&self) -> f64 {
        self.arrived.iter().sum()
    }
}

impl Contestant for OnVeth<'_> {
    fn run(&mut self, seconds: f64) -> Result<Figures> {
        let Veth { network, apart, .. } = self.veth;
        // What measures does not stand in the router's way.
        let _place = place_control(Some(*apart));
        let mut running = self.begin()?;
        let Running { sources, router, sinks, .. } = &mut running;
        // There is one line.
        let (source, sink) = (&mut sources[0], &mut sinks[0]);
        let rate = match self.rate {
            Some(rate) => rate,
            None => *self.rate.insert(best_rate(source, sink)?),
        };
        source.set_rate(rate)?;
        std::thread::sleep(TRIAL);
        let threads = Threads {
            engine: router.threads(),
            // Drivers may have made the interface's threads anew.
            kernel: network.kernel_threads(apart.worker()),
        };
        let linux_before = network.forwarded_by_linux()?;
        let before = Reading::take(source, sink, apart.worker(), &threads)?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let mut after = Reading::take(source, sink, apart.worker(), &threads)?;
        // Other programs may have had both CPUs for as long.
        while after.arrived == before.arrived && before.at.elapsed() < LONGEST_SILENCE {
            std::thread::sleep(Duration::from_secs_f64(seconds));
            after = Reading::take(source, sink, apart.worker(), &threads)?;
        }
        router.still_runs()?;
        self.check_linux(linux_before, after.arrived.saturating_sub(before.arrived))?;
        after.since(&before)
    }
}

/// The rate of the source at which most frames arrive.
fn best_rate(source: &mut End, sink: &mut End) -> Result<Option<f64>> {
    let (mut best, mut most) = (None, 0.0);
    for rate in RATES.into_iter().map(|million| Some(million * 1e6)).chain([None]) {
        stop_if_interrupted()?;
        source.set_rate(rate)?;
        std::thread::sleep(TRIAL / 3);
        let (before, begin) = (sink.count()?, Instant::now());
        std::thread::sleep(TRIAL);
        let arrived = sink.count()?.saturating_sub(before) as f64 / begin.elapsed().as_secs_f64();
        if arrived > most {
            (best, most) = (rate, arrived);
        }
    }
    Ok(best)
}

/// All counters at one moment.
struct Reading {
    at: Instant,
    sent: u64,
    arrived: u64,
    cpu: CpuTicks,
    engine: Duration,
    kernel: Duration,
}

/// What works for the router, as folders in /proc.
struct Threads {
    engine: Vec<PathBuf>,
    kernel: Vec<PathBuf>,
}

impl Reading {
    fn take(source: &mut End, sink: &mut End, cpu: usize, threads: &Threads) -> Result<Self> {
        let ran = |threads: &[PathBuf]| threads.iter().map(|thread| cpus::ran(thread)).sum();
        Ok(Self {
            sent: source.count()?,
            arrived: sink.count()?,
            cpu: CpuTicks::of(cpu)?,
            engine: ran(&threads.engine),
            kernel: ran(&threads.kernel),
            at: Instant::now(),
        })
    }

    fn since(&self, before: &Self) -> Result<Figures> {
        let arrived = self.arrived.saturating_sub(before.arrived);
        if arrived == 0 {
            bail!("nothing arrives at the sink any more");
        }
        let (packets, sent) = (arrived as f64, self.sent.saturating_sub(before.sent) as f64);
        let engine_ns = self.engine.saturating_sub(before.engine).as_nanos() as f64 / packets;
        let kernel_ns = self.kernel.saturating_sub(before.kernel).as_nanos() as f64 / packets;
        let cpu_ns = engine_ns + kernel_ns;
        let softirq = self.cpu.softirq.saturating_sub(before.cpu.softirq) as f64;
        let busy = self.cpu.busy.saturating_sub(before.cpu.busy).max(1) as f64;
        let mut figures = vec![
            (MPPS, packets / (self.at - before.at).as_secs_f64() / 1e6),
            (CYCLES, cpu_ns * cycles::per_second() / 1e9),
            (CPU_NS, cpu_ns),
            (SOFTIRQ, 100.0 * softirq / busy),
            (LOSS, 100.0 * (1.0 - packets / sent).max(0.0)),
        ];
        if engine_ns > 0.0 {
            figures.push((ENGINE_NS, engine_ns));
        }
        Ok(figures)
    }
}

/// What a CPU did, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTicks {
    busy: u64,
    softirq: u64,
}

impl CpuTicks {
    fn of(cpu: usize) -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::parse(&text, cpu).with_context(|| format!("/proc/stat does not say what CPU {cpu} did"))
    }

    fn parse(text: &str, cpu: usize) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // proc(5): user, nice, system, idle, iowait, irq, softirq, steal, guest (part of user).
        let &[user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks.as_slice() else { return None };
        Some(Self { busy: user + nice + system + irq + softirq, softirq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_cpu() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n\
            cpu1 889338 355989 170002 903057 7075 2 3451 1473 0 0\nintr 5\n";
        let busy = 889_338 + 355_989 + 170_002 + 2 + 3_451;
        assert_eq!(CpuTicks::parse(text, 1), Some(CpuTicks { busy, softirq: 3_451 }));
        assert_eq!(CpuTicks::parse(text, 2), None);
    }
}
