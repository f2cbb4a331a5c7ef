//! `brickway-lab bench tcp`: iperf3 between two hosts. The router between them is Linux or Brickway, in turns.
//!
//! ```text
//!   10.0.1.2 ---- eth1  router  eth2 ---- 10.0.2.2        three network namespaces, two veth links
//! ```

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testbed::{Folder, Namespace};

use super::runs::medians_of;
use super::{machine_name, median, print_figure, print_setting};
use crate::demo::hosts::{Host, Stop, TRIES};
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Measures TCP between two hosts, by Linux and by Brickway in several ways, which take turns. Each way's
/// share of Linux is that of the same turn.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sudo brickway-lab bench tcp                           all ways, hosts as they begin
  sudo brickway-lab bench tcp --only default --streams 1
  sudo brickway-lab bench tcp --hosts wire --seconds 4 --runs 7

Ways:
  linux           Linux forwards
  linux/nftables  the same, with an access list of --rules rules
  default         brickway run eth1 eth2
  list            brickway run eth1 eth2 --acl FILE, with the same list
  xdp             brickway run with --driver xdp, where Linux forwards long frames
  click           a Click configuration of two ports
  nat             the same with IPRewriter
  lua             brickway lua examples/lua/router.lua eth1 eth2

'by Linux' is the share of packets that Linux forwarded while Brickway ran.
It needs root, and the programs ip, ping and iperf3; nft for linux/nftables, and ethtool for --hosts gro
and wire.")]
pub(crate) struct TcpArguments {
    /// Only ways whose name contains one of these; linux is always measured
    #[arg(long, value_delimiter = ',', value_name = "TEXT")]
    only: Vec<String>,
    /// How many connections at a time, one number after another
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "1,4", value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: Vec<u32>,
    /// What the hosts' interfaces do
    #[arg(long, value_enum, default_value_t = Hosts::Begin)]
    hosts: Hosts,
    /// Rules of the access list
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    rules: u32,
    /// Seconds for each run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Runs of each way; the median is printed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Hosts {
    /// As a veth begins: long frames, without checksums
    Begin,
    /// The same, and all four ends merge what they receive
    Gro,
    /// As on a wire: single packets with checksums, merged by the receivers
    Wire,
}

/// A way through the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Linux,
    Nftables,
    /// `brickway` with these words; `RULES` and `SCRIPT` are files.
    Brickway(&'static str),
    /// `brickway run` with a configuration that is the router by itself.
    Click(&'static str),
}

const WAYS: &[(&str, Way)] = &[
    ("linux", Way::Linux),
    ("linux/nftables", Way::Nftables),
    ("default", Way::Brickway("run eth1 eth2")),
    ("list", Way::Brickway("run eth1 eth2 --acl RULES")),
    ("xdp", Way::Brickway("run eth1 eth2 --driver xdp")),
    ("click", Way::Click(PLAIN)),
    ("nat", Way::Click(NAT)),
    ("lua", Way::Brickway("lua SCRIPT eth1 eth2")),
];

const SCRIPT: &str = include_str!("../../../../examples/lua/router.lua");

/// The ports of both configurations.
const PORTS: &str = "\
elementclass Port { $port, $ip, $mac |
  FromDevice($port, SNIFFER false) -> HostEtherFilter($mac) -> kind :: Classifier(12/0800, 12/0806 20/0001, 12/0806 20/0002, -);
  kind[0] -> Strip(14) -> CheckIPHeader -> output;
  arp :: ARPQuerier($ip, $mac); to :: ToDevice($port);
  kind[1] -> ARPResponder($ip $mac) -> to;  kind[2] -> [1] arp;  kind[3] -> Discard;
  input -> DropBroadcasts -> ttl :: DecIPTTL -> fragment :: IPFragmenter(1500) -> arp -> to;
  arp[1] -> to;
  ttl[1] -> ICMPError($ip, timeexceeded) -> [1] output;
  fragment[1] -> ICMPError($ip, unreachable, needfrag) -> [1] output;
}
one :: Port(eth1, 10.0.1.1, 02:00:00:00:01:01);
two :: Port(eth2, 10.0.2.1, 02:00:00:00:02:01);
";

const PLAIN: &str = "\
rt :: RadixIPLookup(10.0.1.0/24 0, 10.0.2.0/24 1);
one[0], two[0], one[1], two[1] => rt, rt, rt, rt;
rt[0] -> one;  rt[1] -> two;
";

const NAT: &str = "\
rw :: IPRewriter(pattern 10.0.2.1 20000-60000 - - 0 1, drop);
pings :: ICMPPingRewriter(pattern 10.0.2.1 - - - 0 1, drop);
one[0] -> out :: IPClassifier(icmp, -);  out[0] -> pings;  out[1] -> rw;
two[0] -> in :: IPClassifier(icmp, -);  in[0] -> [1] pings;  in[1] -> [1] rw;
there :: GetIPAddress(16) -> two;  back :: GetIPAddress(16) -> one;
rw[0], pings[0] => there, there;  rw[1], pings[1] => back, back;
one[1], two[1] => Discard, Discard;
";

pub(crate) fn tcp(arguments: &TcpArguments) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!("the bench makes network namespaces, which needs root: run 'sudo brickway-lab bench tcp'");
    }
    let wanted = |name: &str| {
        arguments.only.is_empty() || name == "linux" || arguments.only.iter().any(|text| name.contains(text))
    };
    let ways: Vec<_> = WAYS.iter().filter(|(name, _)| wanted(name)).collect();
    if ways.len() == 1 && arguments.only.iter().all(|text| !"linux".contains(text.as_str())) {
        let names: Vec<&str> = WAYS.iter().map(|(name, _)| *name).collect();
        bail!("--only {}: no way; expected a part of {}", arguments.only.join(","), names.join(", "));
    }
    let needs = [
        ("ip", true),
        ("ping", true),
        ("iperf3", true),
        ("ethtool", arguments.hosts != Hosts::Begin),
        ("nft", ways.iter().any(|(_, way)| *way == Way::Nftables)),
    ];
    for (program, _) in needs.iter().filter(|(_, is_needed)| *is_needed) {
        if !crate::program::is_installed(program) {
            bail!("the program '{program}' is missing ('make packages-bench' installs it)");
        }
    }
    let stop = Stop::on_ctrl_c()?;
    let rig = Rig::new(arguments)?;
    // Of each way and number of connections, a turn after the other: bits a second.
    let mut rates = vec![vec![Vec::new(); arguments.streams.len()]; ways.len()];
    let mut by_linux = vec![0.0_f64; ways.len()];
    for turn in 1..=arguments.runs {
        graph::note!("turn {turn} of {}, of {} ways", arguments.runs, ways.len());
        // Another one begins each turn, and every second turn goes backwards: none is always behind the same.
        for place in 0..ways.len() {
            let place = if turn % 2 == 0 { ways.len() - 1 - place } else { place };
            let row = (place + turn as usize) % ways.len();
            let (name, way) = ways[row];
            let measured = rig.take_turn(*way, &arguments.streams, arguments.seconds, &stop);
            let (of_way, linux) = measured.with_context(|| format!("way '{name}'"))?;
            rates[row].iter_mut().zip(of_way).for_each(|(rates, rate)| rates.push(rate));
            by_linux[row] = by_linux[row].max(linux);
        }
    }
    print_rates(arguments, &ways, &rates, &by_linux);
    Ok(ExitCode::SUCCESS)
}

fn print_rates(arguments: &TcpArguments, ways: &[&(&str, Way)], rates: &[Vec<Vec<f64>>], by_linux: &[f64]) {
    let hosts = match arguments.hosts {
        Hosts::Begin => "hosts as a veth begins",
        Hosts::Gro => "hosts as a veth begins, GRO on",
        Hosts::Wire => "hosts as on a wire",
    };
    if arguments.json {
        let (runs, seconds) = (arguments.runs, arguments.seconds);
        print_setting(
            "tcp",
            json!({"hosts": hosts, "rules": arguments.rules, "runs": runs, "seconds": seconds}),
        );
    } else {
        say_line!(
            "iperf3 over veth links, {hosts}; Gbit/s, {} of {} s, and their share of Linux in the same turn; {}\n",
            medians_of(arguments.runs as usize),
            arguments.seconds,
            machine_name()
        );
    }
    let mut table = Table::new(&[
        ("way", Align::Left),
        ("streams", Align::Right),
        ("Gbit/s", Align::Right),
        ("of Linux", Align::Right),
        ("from to", Align::Left),
        ("by Linux", Align::Right),
    ]);
    for (column, streams) in arguments.streams.iter().enumerate() {
        for (((name, way), of_way), by_linux) in ways.iter().zip(rates).zip(by_linux) {
            let turns = of_way[column].iter().zip(&rates[0][column]);
            let shares: Vec<f64> = turns.map(|(rate, linux)| rate / linux).collect();
            let least = shares.iter().copied().fold(f64::MAX, f64::min);
            let most = shares.iter().copied().fold(0.0, f64::max);
            let (rate, share) = (median(of_way[column].clone()) / 1e9, median(shares));
            if arguments.json {
                let case = format!("{name}/{streams}");
                print_figure("tcp", &case, "gbps", rate, "Gbit/s");
                print_figure("tcp", &case, "of_linux", share, "ratio");
                print_figure("tcp", &case, "of_linux_least", least, "ratio");
                print_figure("tcp", &case, "of_linux_most", most, "ratio");
                if matches!(way, Way::Brickway(_)) {
                    print_figure("tcp", &case, "by_linux", *by_linux, "ratio");
                }
            }
            let by_linux = match way {
                Way::Brickway(_) => format!("{:.0} %", by_linux * 100.0),
                Way::Linux | Way::Nftables => "100 %".to_owned(),
                Way::Click(_) => "0 %".to_owned(),
            };
            let (rate, share) = (format!("{rate:.1}"), format!("{share:.2}"));
            let spread = format!("{least:.2} to {most:.2}");
            table.row([(*name).to_owned(), streams.to_string(), rate, share, spread, by_linux]);
        }
    }
    if !arguments.json {
        say!("{}", table.render());
    }
}

/// How long a router may take to end.
const LONGEST_END: Duration = Duration::from_secs(30);

/// The namespaces and files; removed when dropped.
struct Rig {
    router: Namespace,
    hosts: [Host; 2],
    folder: Folder,
}

/// The router's process.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // What it has in the kernel goes with it, or with its namespace.
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

impl Rig {
    fn new(arguments: &TcpArguments) -> Result<Self> {
        let make = |kind: &str| Namespace::without_ipv6(Namespace::unique_name(kind));
        let router = make("bench-tcp-r")?;
        let host = |number: u8| {
            let host = make("bench-tcp-h")?;
            let near = format!("eth{number} address 02:00:00:00:0{number}:01");
            match arguments.hosts {
                Hosts::Wire => router.wire(&near, (&host, "eth0"))?,
                Hosts::Begin | Hosts::Gro => router.link(&near, (&host, "eth0"))?,
            }
            if arguments.hosts == Hosts::Gro {
                router.run(&format!("ethtool -K eth{number} gro on"))?;
                host.run("ethtool -K eth0 gro on")?;
            }
            host.ip(&format!("addr add 10.0.{number}.2/24 dev eth0"))?;
            host.ip(&format!("route add default via 10.0.{number}.1"))?;
            anyhow::Ok(Host { namespace: host })
        };
        let hosts = [host(1)?, host(2)?];
        let folder = Folder::new();
        let (rules, nftables) = lists(arguments.rules);
        folder.write("rules.txt", rules);
        folder.write("rules.nft", nftables);
        folder.write("router.lua", SCRIPT);
        Ok(Self { router, hosts, folder })
    }

    /// Makes the namespace's Linux a router, or not.
    fn linux_routes(&self, routes: bool) -> Result<()> {
        for number in [1, 2] {
            self.router.ip(&format!("addr flush dev eth{number}"))?;
            if routes {
                self.router.ip(&format!("addr add 10.0.{number}.1/24 dev eth{number}"))?;
            }
        }
        self.router.script(&format!("echo {} > /proc/sys/net/ipv4/ip_forward", u8::from(routes)))
    }

    fn begin(&self, way: Way, stop: &Stop) -> Result<Option<Running>> {
        self.linux_routes(!matches!(way, Way::Click(_)))?;
        let running = match way {
            Way::Linux => None,
            Way::Nftables => {
                self.router.run(&format!("nft -f {}", self.folder.file("rules.nft")))?;
                None
            }
            Way::Brickway(words) => {
                let words = words.split(' ').map(|word| match word {
                    "RULES" => self.folder.file("rules.txt"),
                    "SCRIPT" => self.folder.file("router.lua"),
                    word => word.to_owned(),
                });
                Some(self.start(&words.collect::<Vec<_>>(), stop)?)
            }
            Way::Click(rest) => {
                let file = self.folder.write("router.click", format!("{PORTS}{rest}"));
                Some(self.start(&["run".to_owned(), file], stop)?)
            }
        };
        let [from, _] = &self.hosts;
        if !from.reach("10.0.2.2", 5, stop)?.is_whole() {
            bail!("pings from host to host are lost");
        }
        Ok(running)
    }

    /// Measures one way with each number of connections, and which share of packets Linux forwarded.
    fn take_turn(&self, way: Way, streams: &[u32], seconds: u32, stop: &Stop) -> Result<(Vec<f64>, f64)> {
        let running = self.begin(way, stop)?;
        let rates =
            streams.iter().map(|streams| self.measure(*streams, seconds, stop)).collect::<Result<_>>()?;
        let by_linux = if matches!(way, Way::Brickway(_)) { self.share_of_linux()? } else { 0.0 };
        self.end(way, running, stop)?;
        Ok((rates, by_linux))
    }

    fn share_of_linux(&self) -> Result<f64> {
        let mut command = self.router.command(&crate::program::router()?.display().to_string());
        command.args(["show", "ports", "--json", "--socket", &self.folder.file("socket")]);
        let output = command.output().context("cannot ask the router")?;
        let (mut ours, mut linux) = (0, 0);
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let port: serde_json::Value =
                serde_json::from_str(line).context("what the router says of a port")?;
            let count = |name: &str| port[name].as_u64().context("a port's counters");
            ours += count("in_kernel")? + count("by_workers")?;
            linux += count("to_linux")?;
        }
        Ok(linux as f64 / (ours + linux).max(1) as f64)
    }

    fn end(&self, way: Way, running: Option<Running>, stop: &Stop) -> Result<()> {
        if way == Way::Nftables {
            self.router.run("nft delete table inet forwarded")?;
        }
        let Some(mut running) = running else { return Ok(()) };
        kill_process(Pid::from_child(&running.0), Signal::INT)?;
        let begin = Instant::now();
        while begin.elapsed() < LONGEST_END {
            if let Some(status) = running.0.try_wait()? {
                return if status.success() { Ok(()) } else { bail!("the router ended with {status}") };
            }
            stop.check()?;
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("the router does not end")
    }

    fn start(&self, words: &[String], stop: &Stop) -> Result<Running> {
        let program = crate::program::router()?;
        let mut command = self.router.command(&program.display().to_string());
        command.args(words).args(["--socket", &self.folder.file("socket")]);
        // Its own process group: Ctrl-C at the terminal ends the bench, which ends the router.
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut running = Running(command.spawn().context("cannot start the router")?);
        let stderr = running.0.stderr.take().context("the router has no standard error")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // What nobody wants any more is read all the same, so that the router can write.
            BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| _ = sender.send(line));
        });
        let (begin, mut said) = (Instant::now(), Vec::new());
        while begin.elapsed() < Duration::from_secs(60) {
            stop.check()?;
            match lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) if line.contains(" runs with ") => return Ok(running),
                Ok(line) => said.push(line),
                Err(_) if !matches!(running.0.try_wait(), Ok(None)) => break,
                Err(_) => {}
            }
        }
        bail!("the router did not start:\n{}", said.join("\n"))
    }

    /// Bits a second that reach the other host.
    fn measure(&self, streams: u32, seconds: u32, stop: &Stop) -> Result<f64> {
        let [from, to] = &self.hosts;
        // The first second is that of slow start.
        let options = ["-i", "0", "-O", "1", "-P", &streams.to_string()];
        let mut tries = 0;
        loop {
            tries += 1;
            // A machine that does too much else at a time may refuse a connection.
            match from.iperf((to, "10.0.2.2"), seconds, &options, stop, &mut || {})? {
                Ok(tcp) => return Ok(tcp.bits_per_second),
                Err(problem) if tries == TRIES => bail!(problem),
                Err(_) => {}
            }
        }
    }
}

/// The same access list of so many rules for Brickway and for nftables. What iperf3 sends meets the last one.
fn lists(rules: u32) -> (String, String) {
    let (mut ours, mut theirs) = (String::new(), String::new());
    for number in 1..rules - 1 {
        let port = 3_000 + number;
        ours.push_str(&format!("{number} deny udp any 10.0.2.0/24 port {port}\n"));
        theirs.push_str(&format!("ip daddr 10.0.2.0/24 udp dport {port} drop\n"));
    }
    ours.push_str(&format!("{} permit icmp any any\n{rules} permit tcp any any\n", rules - 1));
    let table = format!(
        "table inet forwarded {{ chain forward {{ type filter hook forward priority 0; policy drop;\n\
         {theirs}meta l4proto icmp accept\nmeta l4proto tcp accept\n}}\n}}\n"
    );
    (ours, table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists_have_the_same_rules() {
        let (ours, theirs) = lists(4);
        assert_eq!(
            ours,
            "1 deny udp any 10.0.2.0/24 port 3001\n2 deny udp any 10.0.2.0/24 port 3002\n3 permit icmp any any\n4 permit tcp any any\n"
        );
        assert_eq!(theirs.matches("udp dport").count(), 2);
    }
}
