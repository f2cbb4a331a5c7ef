//! The programs of the cluster's demo, and their files: etcd, the nodes, FRR on the leader, BIRD on the neighbour router.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use tempfile::TempDir;
use testbed::Running;

use super::network::{Network, STORE, Station};
use crate::demo::hosts::{Stop, run};
use router::cluster::config::ClusterConfig;

/// Where Debian and FRR's own packages have its daemons.
pub(super) const FRR: &str = "/usr/lib/frr";

/// How long a program may take to end when it is asked to.
const LONGEST_END: Duration = Duration::from_secs(5);

/// What a leader does with its routing daemon.
const HOOK: &str = "#!/bin/sh
# Starts or stops the cluster's routing daemon on the node that leads: FRR. On a server of its own that would be
# `systemctl start frr`; here all nodes are on one machine, and each has a folder for its daemons.
run() { PROGRAM=$1; shift
    FRR/$PROGRAM -f FOLDER/$PROGRAM.conf -i $NODE/$PROGRAM.pid -z $NODE/zserv --vty_socket $NODE -A 127.0.0.1 -P 0 \\
        --log file:$NODE/$PROGRAM.log >$NODE/$PROGRAM.out 2>&1 &
}
end() { read -r PROCESS <$NODE/$1.pid && kill $PROCESS && while [ -e /proc/$PROCESS ]; do sleep 0.1; done; }
case $1 in
start)
    rm -rf $NODE && mkdir -p $NODE && chown frr:frr $NODE
    run zebra
    for _ in $(seq 200); do [ -S $NODE/zserv ] && break; sleep 0.05; done
    run bgpd ;;
stop) end bgpd; end zebra ;;
esac
";

/// Starts a program that logs to `log`, in a process group of its own with all that it starts: Ctrl-C at the terminal is the demo's.
fn start(command: &mut Command, log: PathBuf) -> Result<Running> {
    Running::start(command.process_group(0), log)
}

/// Presses Ctrl-C for programs, and waits until they have ended, or should have.
fn end<'a>(programs: impl Iterator<Item = &'a Running> + Clone) {
    programs.clone().for_each(|program| program.signal(Signal::INT));
    programs.for_each(|program| _ = program.wait(LONGEST_END));
}

/// Writes a file of the programs' folder.
fn write(folder: &TempDir, name: &str, text: &str) -> Result<()> {
    let path = folder.path().join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write '{}'", path.display()))
}

/// The programs that make the cluster; all end when this is dropped.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    folder: &'a TempDir,
    network: &'a Network,
    etcd: Running,
    bird: Option<Running>,
    nodes: Vec<(String, Running)>,
}

impl<'a> Programs<'a> {
    /// The command by which a leader starts or stops its routing daemon.
    pub(super) fn hook(folder: &TempDir) -> String {
        format!("sh {}", folder.path().join("routing-daemon").display())
    }

    /// Writes the files, and starts the store.
    pub(super) fn start(folder: &'a TempDir, network: &'a Network, config: &ClusterConfig) -> Result<Self> {
        write(folder, "cluster.toml", &config.to_toml()?)?;
        let hook = HOOK.replace("FOLDER", &folder.path().display().to_string()).replace("FRR", FRR);
        write(folder, "routing-daemon", &hook)?;
        write(folder, "zebra.conf", "hostname cluster\n")?;
        let ports: Vec<_> = config.nodes.iter().filter_map(|node| node.ports.first()).collect();
        let addresses = ports.iter().flat_map(|port| &port.addresses);
        write(folder, "bgpd.conf", &bgpd(&network.neighbour, addresses.map(ipnet::IpNet::trunc)))?;
        write(folder, "bird.conf", &bird(&network.neighbour))?;
        let url = format!("http://{STORE}:2379");
        let data = folder.path().join("etcd").display().to_string();
        let arguments = ["--data-dir", &data, "--listen-client-urls", &url, "--advertise-client-urls", &url];
        let mut etcd = network.management.command("etcd");
        // It keeps nothing for longer than the demo, so its disk need not be waited for.
        etcd.args(arguments).args(["--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync"]);
        let etcd = start(&mut etcd, folder.path().join("etcd.log"))?;
        Ok(Self { folder, network, etcd, bird: None, nodes: Vec::new() })
    }

    /// Starts a node.
    pub(super) fn start_node(&mut self, place: usize, name: &str) -> Result<()> {
        let program = crate::program::router()?;
        let (program, file) = (program.display().to_string(), self.file());
        let socket = self.socket(name).display().to_string();
        let mut command = self.network.nodes[place].command(&program);
        command.args(["cluster", "run", &file, name, "--socket", &socket, "--quiet"]);
        command.env("NODE", self.folder.path().join(name));
        let node = start(&mut command, self.folder.path().join(format!("{name}.log")))?;
        self.nodes.push((name.to_owned(), node));
        Ok(())
    }

    /// Starts the neighbour router.
    pub(super) fn start_neighbour(&mut self) -> Result<()> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let (config, control, pid) = (path("bird.conf"), path("bird.ctl"), path("bird.pid"));
        let mut command = self.network.neighbour.host.namespace.command("bird");
        command.args(["-f", "-c", &config, "-s", &control, "-P", &pid]);
        self.bird = Some(start(&mut command, self.folder.path().join("bird.log"))?);
        Ok(())
    }

    /// The cluster's file.
    pub(super) fn file(&self) -> String {
        self.folder.path().join("cluster.toml").display().to_string()
    }

    /// Where a node answers `brickway show`.
    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.sock"))
    }

    /// A server dies, with all that runs on it.
    pub(super) fn kill_node(&mut self, name: &str) {
        self.nodes.retain(|(known, _)| known != name);
    }

    /// The nodes that run.
    pub(super) fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The first program that has ended, and what it printed.
    pub(super) fn ended(&self) -> Option<(&str, String)> {
        let named = self.nodes.iter().map(|(name, program)| (name.as_str(), program));
        let all = named.chain([("etcd", &self.etcd)]).chain(self.bird.iter().map(|bird| ("bird", bird)));
        let mut ended = all.filter(|(_, program)| program.ended().is_some());
        ended.next().map(|(name, program)| (name, last_lines(&program.printed())))
    }

    /// `brickway cluster show`, with these options.
    pub(super) fn show(&self, options: &[&str], stop: &Stop) -> Result<String> {
        let program = crate::program::router()?;
        let (program, file) = (program.display().to_string(), self.file());
        let mut command = self.network.management.command(&program);
        let (_, text) = run(
            command.args(["cluster", "show", &file]).args(options),
            Duration::from_secs(20),
            Some(stop),
            &mut || {},
        )?;
        Ok(text)
    }

    /// How many of the leader's BGP sessions are up, as FRR says; none while it does not answer.
    pub(super) fn bgp_sessions(&self, leader: &str, stop: &Stop) -> Result<usize> {
        let folder = self.folder.path().join(leader);
        let mut command = Command::new("vtysh");
        command.arg("--vty_socket").arg(folder).args(["-d", "bgpd", "-c", "show bgp summary json"]);
        let (_, text) = run(&mut command, Duration::from_secs(20), Some(stop), &mut || {})?;
        let json = text.find('{').zip(text.rfind('}')).and_then(|(begin, end)| text.get(begin..=end));
        let summary: serde_json::Value =
            json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        let families = ["ipv4Unicast", "ipv6Unicast"].into_iter();
        let peers = families.filter_map(|family| summary[family]["peers"].as_object());
        Ok(peers.flat_map(|peers| peers.values()).filter(|peer| peer["state"] == "Established").count())
    }

    /// Ends all, the nodes first, as an operator would end them.
    pub(super) fn end(self) {
        end(self.nodes.iter().map(|(_, node)| node));
    }
}

/// The end of what a program printed.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// What FRR's bgpd does on whichever node leads: AS 65001, to the neighbour. It waits for a neighbour that restarts (RFC 4724), and packets go on
/// meanwhile, because they do with the cluster's tables.
fn bgpd(neighbour: &Station, networks: impl Iterator<Item = ipnet::IpNet>) -> String {
    let networks: Vec<_> = networks.collect();
    let mut text = format!(
        "hostname cluster\nrouter bgp 65001\n bgp router-id {}\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n \
         bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n timers bgp 3 15\n",
        neighbour.gateways[0]
    );
    for address in &neighbour.addresses {
        text += &format!(" neighbor {address} remote-as 65002\n neighbor {address} timers connect 1\n");
    }
    for (family, address) in [(4, &neighbour.addresses[0]), (6, &neighbour.addresses[1])] {
        text += &format!(" address-family ipv{family} unicast\n  neighbor {address} activate\n");
        for network in networks.iter().filter(|network| network.addr().is_ipv6() == (family == 6)) {
            text += &format!("  network {network}\n");
        }
        text += " exit-address-family\n";
    }
    text
}

/// What the neighbour's BIRD does: AS 65002, one session for each family, to the one router that it sees.
fn bird(neighbour: &Station) -> String {
    let mut text = format!(
        "log stderr all;\nrouter id {};\nprotocol device {{ scan time 1; }}\n\
         protocol direct {{ ipv4; ipv6; interface \"eth1\"; }}\n",
        neighbour.addresses[0]
    );
    for (family, gateway) in [("ipv4", &neighbour.gateways[0]), ("ipv6", &neighbour.gateways[1])] {
        text += &format!(
            "protocol kernel {{ {family} {{ export where source = RTS_BGP; }}; }}\n\
             protocol bgp {{\n  local as 65002;\n  neighbor {gateway} as 65001;\n  connect delay time 1;\n  \
             connect retry time 1;\n  error wait time 1, 2;\n  graceful restart aware;\n  \
             {family} {{ import all; export where source = RTS_DEVICE; }};\n}}\n"
        );
    }
    text
}

/// How many pings [`Pings`] sends.
pub(super) const PINGS_A_SECOND: f64 = 100.0;

/// Pings without end, a hundred a second.
#[derive(Debug)]
pub(super) struct Pings(Running);

impl Pings {
    pub(super) fn start(folder: &TempDir, from: &Station, to: &str) -> Result<Self> {
        let log = folder.path().join(format!("ping-{}-{to}.log", from.name));
        let mut command = from.host.namespace.command("ping");
        start(command.args(["-n", "-i", "0.01", "-W", "1", to]), log).map(Self)
    }

    /// How many were lost before the last that was answered, and how many were sent until then.
    pub(super) fn end(self) -> (u64, u64) {
        end(std::iter::once(&self.0));
        lost_and_sent(&self.0.printed())
    }
}

fn lost_and_sent(text: &str) -> (u64, u64) {
    let (mut answered, mut last) = (0, 0);
    for line in text.lines().filter(|line| line.contains(" bytes from ")) {
        let number = line.split_once("icmp_seq=").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        // An answer that comes twice, or late, is none.
        if let Some(number) = number.filter(|&number: &u64| number > last) {
            (answered, last) = (answered + 1, number);
        }
    }
    (last - answered, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_that_were_lost() {
        let line = |number: u64| format!("64 bytes from 10.0.1.2: icmp_seq={number} ttl=63 time=0.1 ms\n");
        let text =
            [1, 2, 5, 5, 6].map(line).concat() + "From 10.0.1.1 icmp_seq=7 Destination Host Unreachable\n";
        assert_eq!(lost_and_sent(&text), (2, 6));
        assert_eq!(lost_and_sent("PING 10.0.1.2\n"), (0, 0));
    }
}
