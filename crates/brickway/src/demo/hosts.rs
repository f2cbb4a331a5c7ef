//! The demo's network: namespaces for a router and four hosts, and what a person types on such hosts.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Number of hosts, and of the router's ports.
pub(super) const HOSTS: usize = 4;

/// Whether the user wants to stop.
#[derive(Clone, Debug)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn new(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Runs a program to its end, at most `limit`, and returns what it printed and whether it succeeded.
fn run(
    command: &mut Command,
    limit: Duration,
    stop: Option<&Stop>,
    idle: &mut dyn FnMut(),
) -> Result<(bool, String)> {
    let name = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    let begin = Instant::now();
    loop {
        if child.try_wait()?.is_some() {
            let output = child.wait_with_output()?;
            let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            return Ok((output.status.success(), text.into_owned()));
        }
        let interrupted = stop.is_some_and(Stop::is_set);
        if interrupted || begin.elapsed() > limit {
            // It may have ended this instant.
            let _ = child.kill();
            child.wait()?;
            bail!(
                "{} {name}",
                if interrupted { "interrupted during" } else { "no end within the time limit:" }
            );
        }
        idle();
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ip(arguments: &str) -> Result<()> {
    let (ok, text) = run(
        Command::new("ip").args(arguments.split_whitespace()),
        Duration::from_secs(10),
        None,
        &mut || {},
    )?;
    if !ok {
        bail!("'ip {arguments}' failed: {}", text.trim());
    }
    Ok(())
}

/// The answers to some pings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ping {
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) average_ms: f64,
}

/// What iperf3 measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tcp {
    pub(super) bits_per_second: f64,
    pub(super) retransmissions: u64,
}

/// The namespaces; removed when dropped.
#[derive(Debug)]
pub(super) struct Network {
    router: String,
    hosts: Vec<String>,
}

impl Network {
    /// Makes namespaces, links and addresses. What was made is removed again when a step fails.
    pub(super) fn create(stop: &Stop) -> Result<Self> {
        let tag = std::process::id();
        let network = Self {
            router: format!("brickway-{tag}-r"),
            hosts: (0..HOSTS).map(|host| format!("brickway-{tag}-h{host}")).collect(),
        };
        let router = &network.router;
        ip(&format!("netns add {router}"))?;
        for (number, host) in network.hosts.iter().enumerate() {
            if stop.is_set() {
                bail!("interrupted");
            }
            ip(&format!("netns add {host}"))?;
            for namespace in [router, host] {
                // Router advertisements and duplicate address detection would only be noise here. A kernel
                // without IPv6 has no such setting.
                let _ = run(
                    Command::new("ip").args([
                        "netns",
                        "exec",
                        namespace,
                        "sysctl",
                        "-qw",
                        "net.ipv6.conf.all.disable_ipv6=1",
                        "net.ipv6.conf.default.disable_ipv6=1",
                    ]),
                    Duration::from_secs(10),
                    None,
                    &mut || {},
                );
            }
            ip(&format!(
                "-n {router} link add eth{number} address 02:00:00:00:0{number}:01 type veth peer name eth0 netns {host}"
            ))?;
            ip(&format!("-n {host} addr add 10.0.{number}.2/24 dev eth0"))?;
            ip(&format!("-n {host} link set lo up"))?;
            for (namespace, device) in [(router, format!("eth{number}")), (host, "eth0".to_owned())] {
                ip(&format!("-n {namespace} link set {device} up"))?;
                // Segments and checksums must be as they are on a wire: a veth link would pass on frames
                // of 64 KiB and checksums that nobody computed.
                let (ok, text) = run(
                    Command::new("ip").args([
                        "netns", "exec", namespace, "ethtool", "-K", &device, "tx", "off", "rx", "off",
                        "tso", "off", "gso", "off", "gro", "off",
                    ]),
                    Duration::from_secs(10),
                    None,
                    &mut || {},
                )?;
                if !ok {
                    bail!("cannot switch off the offloads of {device} in {namespace}: {}", text.trim());
                }
            }
            ip(&format!("-n {host} route add default via 10.0.{number}.1"))?;
        }
        Ok(network)
    }

    /// Namespace of the router.
    pub(super) fn router(&self) -> &str {
        &self.router
    }

    /// Namespace of a host.
    pub(super) fn host(&self, host: usize) -> &str {
        &self.hosts[host]
    }

    /// Gives a host one more address.
    pub(super) fn give_address(&self, host: usize, address: &str) -> Result<()> {
        ip(&format!("-n {} addr add {address}/32 dev lo", self.hosts[host]))
    }

    fn on_host(&self, host: usize, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.hosts[host], program]).args(arguments).env("LC_ALL", "C");
        command
    }

    /// Pings `count` times, 20 ms apart.
    pub(super) fn ping(&self, host: usize, target: &str, count: u32, stop: &Stop) -> Result<Ping> {
        let count = count.to_string();
        let mut command = self.on_host(host, "ping", &["-n", "-c", &count, "-i", "0.02", "-W", "2", target]);
        let (_, text) = run(&mut command, Duration::from_secs(30), Some(stop), &mut || {})?;
        Ok(parse_ping(&text))
    }

    /// Pings with `size` bytes and fragmentation allowed.
    pub(super) fn ping_fragmented(&self, host: usize, target: &str, size: u32, stop: &Stop) -> Result<Ping> {
        let size = size.to_string();
        let mut command = self.on_host(
            host,
            "ping",
            &["-n", "-c", "3", "-i", "0.02", "-W", "2", "-M", "dont", "-s", &size, target],
        );
        let (_, text) = run(&mut command, Duration::from_secs(30), Some(stop), &mut || {})?;
        Ok(parse_ping(&text))
    }

    /// Sends one ping of `size` bytes with DF set; the MTU that an ICMP error reports.
    pub(super) fn too_big(&self, host: usize, target: &str, size: u32, stop: &Stop) -> Result<Option<u32>> {
        let size = size.to_string();
        let mut command =
            self.on_host(host, "ping", &["-n", "-c", "1", "-W", "1", "-M", "do", "-s", &size, target]);
        let (_, text) = run(&mut command, Duration::from_secs(30), Some(stop), &mut || {})?;
        Ok(parse_mtu(&text))
    }

    /// The addresses of the hops to `target`.
    pub(super) fn traceroute(&self, host: usize, target: &str, stop: &Stop) -> Result<Vec<String>> {
        let arguments = ["-n", "-q", "1", "-w", "2", "-m", "5", target];
        let mut command = self.on_host(host, "traceroute", &arguments);
        let (_, text) = run(&mut command, Duration::from_secs(60), Some(stop), &mut || {})?;
        Ok(parse_traceroute(&text))
    }

    /// One TCP connection of iperf3 for `seconds`.
    pub(super) fn iperf(
        &self,
        from: usize,
        to: usize,
        seconds: u32,
        stop: &Stop,
        idle: &mut dyn FnMut(),
    ) -> Result<Result<Tcp, String>> {
        let mut server = self.on_host(to, "iperf3", &["-s", "-1"]);
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = server.spawn().context("cannot start the iperf3 server")?;
        // The server needs a moment to listen; a client that comes too early would be refused.
        std::thread::sleep(Duration::from_millis(300));
        let (duration, target) = (seconds.to_string(), format!("10.0.{to}.2"));
        let mut client = self.on_host(from, "iperf3", &["-J", "-c", &target, "-t", &duration]);
        let result = run(&mut client, Duration::from_secs(u64::from(seconds) + 20), Some(stop), idle);
        // With -1 the server has ended; after a failure it has not.
        let _ = server.kill();
        let _ = server.wait();
        let (_, text) = result?;
        Ok(parse_iperf(&text))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in self.hosts.iter().chain([&self.router]) {
            // One that was never made cannot be removed; nothing else to do about a failure.
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}

/// Which host is the gateway of the table's route to `address`, and how many routes there are.
pub(super) fn gateway_and_routes(table: &Path, address: &str) -> Result<(usize, u64)> {
    let address: std::net::Ipv4Addr = address.parse().context("the demo's own address")?;
    let loaded =
        fib::read::load::<u32>(table).with_context(|| format!("cannot read '{}'", table.display()))?;
    let best = loaded
        .rows
        .iter()
        .filter(|row| row.prefix.contains(&address))
        .max_by_key(|row| row.prefix.prefix_len());
    match best {
        // Next hops count from 1.
        Some(row) => {
            let gateway =
                usize::from(fib::synthesize::next_hop_of_origin(row.origin, HOSTS as u16).get()) - 1;
            Ok((gateway, loaded.rows.len() as u64))
        }
        None => bail!("the table '{}' has no route to {address}", table.display()),
    }
}

fn parse_ping(text: &str) -> Ping {
    let mut ping = Ping::default();
    for line in text.lines() {
        if line.contains("packets transmitted") {
            let numbers: Vec<u64> =
                line.split([' ', ',']).filter_map(|word| word.parse().ok()).take(2).collect();
            if let [sent, answered] = numbers[..] {
                (ping.sent, ping.answered) = (sent, answered);
            }
        } else if let Some(times) = line.strip_prefix("rtt min/avg/max/mdev = ") {
            ping.average_ms = times.split('/').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.0);
        }
    }
    ping
}

fn parse_mtu(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("mtu = ").or_else(|| text.split_once("mtu="))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn parse_traceroute(text: &str) -> Vec<String> {
    let hop = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.parse::<u32>().ok()?;
        Some(words.next()?.to_owned())
    };
    text.lines().skip(1).filter_map(hop).collect()
}

fn parse_iperf(text: &str) -> Result<Tcp, String> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|_| format!("iperf3 printed no result: {}", text.trim()))?;
    if let Some(error) = value["error"].as_str() {
        return Err(format!("iperf3: {error}"));
    }
    let bits_per_second = value["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0);
    let retransmissions = value["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0);
    if bits_per_second <= 0.0 {
        return Err("iperf3 moved nothing".into());
    }
    Ok(Tcp { bits_per_second, retransmissions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ping_prints() {
        let text = "PING 10.0.1.2 (10.0.1.2) 56(84) bytes of data.\n64 bytes from 10.0.1.2\n\n\
            --- 10.0.1.2 ping statistics ---\n5 packets transmitted, 4 received, 20% packet loss, time 80ms\n\
            rtt min/avg/max/mdev = 0.080/0.125/0.200/0.040 ms\n";
        assert_eq!(parse_ping(text), Ping { sent: 5, answered: 4, average_ms: 0.125 });
        assert_eq!(parse_ping("ping: connect: Network is unreachable"), Ping::default());
        let error = "From 10.0.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1400)";
        assert_eq!(parse_mtu(error), Some(1400));
        assert_eq!(parse_mtu("ping: local error: message too long, mtu=1500"), Some(1500));
        assert_eq!(parse_mtu("1 packets transmitted"), None);
    }

    #[test]
    fn what_traceroute_prints() {
        let text = "traceroute to 10.0.3.2 (10.0.3.2), 5 hops max, 60 byte packets\n 1  10.0.0.1  0.080 ms\n \
            2  10.0.3.2  0.100 ms\n";
        assert_eq!(parse_traceroute(text), ["10.0.0.1", "10.0.3.2"]);
    }

    #[test]
    fn what_iperf_prints() {
        assert!(parse_iperf("{\"error\":\"unable to connect\"}").unwrap_err().contains("unable"));
        let text =
            "{\"end\":{\"sum_sent\":{\"retransmits\":3},\"sum_received\":{\"bits_per_second\":1.5e9}}}";
        let tcp = parse_iperf(text).unwrap();
        assert_eq!((tcp.bits_per_second, tcp.retransmissions), (1.5e9, 3));
        assert!(parse_iperf("garbage").is_err());
    }
}
