//! `brickway-lab demo`: a router and four Linux hosts in network namespaces, and everything a newcomer would try:
//! ping, traceroute, a packet too big, TCP. It cleans up after itself, whatever happens.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | the command line; the demo of one router |
//! | `network`, `steps`, `summary` | its namespaces; what hosts try; what its router says at the end |
//! | `cluster` | the demo of four servers that are one router |
//! | `page` | the router's web page, for `--keep` |
//! | `hosts` | what a person types on hosts |
//! | `report` | what a demo says |

mod cluster;
pub(crate) mod hosts;
mod network;
mod page;
mod report;
mod steps;
mod summary;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use hosts::Stop;
use network::{HOSTS, Network};
use report::Report;
use router::output::say_line;
use summary::{READ_SCRIPT, READ_TABLE, Totals, parse_summary, summarise};

/// Shows the router at work: four Linux hosts on four networks, in network namespaces of this machine, with a
/// router between them that runs examples/ip-router.click and a real routing table. With --lua the router is a script, and the routes
/// are Linux's. With --cluster four servers that are one router, and two of them die. Each step names what it expects, and fails
/// where that is missed.
#[derive(Args, Debug)]
#[command(
    after_help = "It needs root, and the programs ip, ping, traceroute, iperf3 and ethtool ('make demo' \
installs them),\nwith --cluster also etcd, FRR and BIRD ('make demo-cluster').\nExit codes: 0 all went well, 1 it could not start, 3 a step failed."
)]
pub(crate) struct DemoArguments {
    /// Four servers that are one router, of which two die
    #[arg(long)]
    cluster: bool,
    /// With --cluster: print nothing but one JSON object at the end
    #[arg(long, requires = "cluster", conflicts_with = "keep")]
    json: bool,
    /// The router is this script, as `brickway lua FILE` runs it
    #[arg(long, value_name = "FILE", conflicts_with = "cluster")]
    lua: Option<PathBuf>,
    /// The router's configuration, in the place of examples/ip-router.click: a copy that you changed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cluster", "lua"])]
    config: Option<PathBuf>,
    /// The routing table: PREFIX ORIGIN lines, gzip or not
    #[arg(long, default_value_os_t = crate::tables::ipv4(), value_name = "FILE", conflicts_with = "cluster")]
    table: PathBuf,
    /// How long iperf3 sends, in seconds
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// With --cluster: how long a step waits for what it wants to see, in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS", requires = "cluster", value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
    /// Number of worker threads of the router, or of each server
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Leave the router running until Ctrl-C, to play with it; its web page has the address that is printed
    #[arg(long)]
    keep: bool,
}

/// The configuration that the router runs; the file itself stands in examples/.
const CONFIGURATION: &str = include_str!("../../../../examples/ip-router.click");

/// The router's MTU: below that of the links, so that there is something to fragment.
const MTU: u32 = 1400;

/// An address of the routing table that a host stands in for.
const FAR_ADDRESS: &str = "1.1.1.1";

pub(crate) fn demo(arguments: &DemoArguments) -> Result<ExitCode> {
    if arguments.cluster {
        return cluster::demo(arguments);
    }
    check_programs(&[])?;
    if !arguments.table.is_file() {
        bail!(
            "no routing table at '{}': run the demo from the project's folder, install the package brickway-lab, or give one with --table",
            arguments.table.display()
        );
    }
    if let Some(script) = arguments.lua.as_ref().filter(|script| !script.is_file()) {
        bail!("no script at '{}'; expected one like examples/lua/router.lua", script.display());
    }
    let configuration = match &arguments.config {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the configuration '{}'", file.display()))?,
        None => CONFIGURATION.to_owned(),
    };
    // Before anything is made: it must have a route to the address that is tried.
    network::gateway_and_routes(&arguments.table, FAR_ADDRESS)?;
    let stop = Stop::on_ctrl_c()?;
    let mut report = Report::new(false, &stop);

    report.line("A router and four Linux hosts, each in its network namespace:\n");
    report.line("  h0 10.0.0.2 --- eth0 10.0.0.1 \\                    / eth2 10.0.2.1 --- h2 10.0.2.2");
    let command = if arguments.lua.is_some() { "lua ..." } else { "run ..." };
    report.line(format_args!("                                 > brickway {command} <"));
    report.line("  h1 10.0.1.2 --- eth1 10.0.1.1 /                    \\ eth3 10.0.3.1 --- h3 10.0.3.2\n");
    let network = Network::create(&stop).context("cannot make the test network")?;
    report.step("network", Ok(format!("{} namespaces, {HOSTS} links of 1,500 bytes", HOSTS + 1)));
    let result = (|| {
        if arguments.lua.is_some() {
            report.live("routes       the table's routes become Linux's");
            network.route_by_linux(&arguments.table, MTU, &stop)?;
        }
        let linux = network.linux_alone(arguments.lua.is_some(), arguments.seconds, &stop, &report)?;
        report.step("Linux alone", linux.clone().map(|tcp| format!("TCP h1 -> h3: {}", tcp.text())));
        let before = network.hosts_counters()?;
        let mut router = Running::start(arguments, &configuration, &network, &stop)?;
        report.step("router", Ok(router.banner.clone()));
        let linux = linux.map(|tcp| tcp.bits_per_second).unwrap_or_default();
        steps::exercise(arguments, &network, &stop, (&router, linux), &mut report)?;
        if arguments.keep && !stop.is_set() {
            report.line("\n  The router runs on. In another terminal, for instance:");
            report
                .line(format_args!("    ip netns exec {} ping 10.0.3.2", network.hosts[0].namespace.name()));
            let page = page::open(&network.router).context("cannot open the router's web page")?;
            report.line(format_args!("  Its web page: {page}"));
            report.line("  Ctrl-C ends it.");
            while !stop.is_set() && router.is_alive() {
                std::thread::sleep(Duration::from_millis(100));
                if let Some(line) = router.latest() {
                    report.live(&line);
                }
            }
        }
        report.clear_live();
        let totals = router.finish()?;
        // Who plays with the router does so until it ends, and its counters with it.
        if arguments.lua.is_none() && !arguments.keep && !stop.is_set() {
            let after = network.hosts_counters()?;
            report.step("counters", totals.agree_with(after.0 - before.0, after.1 - before.1));
        }
        anyhow::Ok(totals)
    })();
    drop(network);
    let totals = result?;
    report.failed |= totals.verdict().is_err();
    summarise(&totals);
    if stop.is_set() && !arguments.keep {
        say_line!("\nInterrupted; everything is cleaned up.");
        return Ok(ExitCode::from(130));
    }
    if report.failed {
        say_line!("\nA step failed; everything is cleaned up.");
        return Ok(ExitCode::from(3));
    }
    let what = match (&arguments.lua, &arguments.config) {
        (Some(script), _) => format!("script is {}: read it, change it, run it again.", script.display()),
        (_, Some(file)) => format!("configuration is {}.", file.display()),
        _ => "configuration is examples/ip-router.click: read it, change a copy, give that with --config."
            .to_owned(),
    };
    say_line!("\nAll hosts were reached. The {what}");
    if !arguments.keep {
        say_line!("With --keep (make demo KEEP=1) the router stays, with a web page that shows it at work.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a demo may run here: as root, with the programs that it runs, and these more, each with its package.
fn check_programs(more: &[(&str, &str)]) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "the demo makes network namespaces and opens raw sockets, which needs root: run 'sudo brickway-lab demo' or 'make demo'"
        );
    }
    let usual = [
        ("ip", "iproute2"),
        ("ping", "iputils-ping"),
        ("traceroute", "traceroute"),
        ("iperf3", "iperf3"),
        ("ethtool", "ethtool"),
    ];
    for (program, package) in usual.iter().chain(more) {
        if !crate::program::is_installed(program) {
            let target = if more.is_empty() { "demo" } else { "demo-cluster" };
            bail!("the program '{program}' is missing: apt-get install {package} ('make {target}' does it)");
        }
    }
    Ok(())
}

/// The router, as a child process in its namespace.
struct Running {
    child: Child,
    lines: Receiver<String>,
    banner: String,
    begin: Instant,
    /// From the start of the program to packets, the table read and compiled, in seconds.
    ready: f64,
}

impl Running {
    fn start(arguments: &DemoArguments, configuration: &str, network: &Network, stop: &Stop) -> Result<Self> {
        let program = crate::program::router()?.display().to_string();
        let table = arguments.table.canonicalize().context("cannot find the routing table")?;
        let mut command = network.router.command(&program);
        let table_name = table.file_name().unwrap_or_default().to_string_lossy();
        let (name, reads) = match &arguments.lua {
            Some(script) => {
                command.arg("lua").arg(script).args((0..HOSTS).map(|number| format!("eth{number}")));
                (script.file_name().unwrap_or_default().to_string_lossy(), &READ_SCRIPT[..])
            }
            None => {
                let file = arguments.config.as_deref().and_then(std::path::Path::file_name);
                let name = file.map_or("ip-router.click".into(), |name| name.to_string_lossy());
                command.args(["run", "-", &format!("TABLE={}", table.display()), &format!("MTU={MTU}")]);
                (name, &READ_TABLE[..])
            }
        };
        if arguments.keep {
            command.args(["--web", page::ADDRESS]);
        }
        command.args(["--json", "--stats", "0.5", "--workers", &arguments.workers.to_string()]);
        command.args(reads.iter().flat_map(|handler| ["--read", *handler]));
        // Its own process group: Ctrl-C at the terminal ends the demo, and the demo ends the router.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begin = Instant::now();
        let mut child = command.spawn().context("cannot start the router")?;
        let mut stdin = child.stdin.take().context("the router has no standard input")?;
        stdin.write_all(configuration.as_bytes()).context("the router does not read its configuration")?;
        drop(stdin);
        let stderr = child.stderr.take().context("the router has no standard error")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut running = Self { child, lines, banner: String::new(), begin, ready: 0.0 };
        let mut said = Vec::new();
        while begin.elapsed() < Duration::from_secs(60) {
            stop.check()?;
            match running.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) if line.contains(" runs with ") => {
                    running.ready = begin.elapsed().as_secs_f64();
                    running.banner =
                        format!("{name} with {table_name} runs, ready in {:.2} s", running.ready);
                    return Ok(running);
                }
                Ok(line) => said.push(line),
                Err(_) if !running.is_alive() => break,
                Err(_) => {}
            }
        }
        said.extend(running.lines.try_iter());
        bail!("the router did not start:\n{}", said.join("\n"))
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The newest line of rates.
    fn latest(&self) -> Option<String> {
        self.lines.try_iter().last()
    }

    /// Ends the router and returns what it says of its table and its element counters.
    fn finish(&mut self) -> Result<Totals> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let pid = rustix::process::Pid::from_child(&self.child);
        // It may have ended by itself; then there is nobody to tell.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let stdout = self.child.stdout.take().context("the router's summary was read already")?;
        let text = std::io::read_to_string(stdout).context("cannot read the router's summary")?;
        let (answers, elements) = parse_summary(&text);
        let status = self.child.wait().context("the router did not end")?;
        if !status.success() {
            bail!(
                "the router ended with {status}:\n{}",
                self.lines.try_iter().collect::<Vec<_>>().join("\n")
            );
        }
        Ok(Totals { elements, answers, seconds, ready: self.ready })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_alive() {
            // Reached only when something else failed; the namespace must not stay busy.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
