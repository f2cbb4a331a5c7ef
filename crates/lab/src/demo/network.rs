//! The network of the demo of one router: namespaces for it and four hosts.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use testbed::Namespace;

use super::hosts::{Host, Stop, Tcp};
use super::report::Report;

/// Number of hosts, and of the router's ports.
pub(super) const HOSTS: usize = 4;

/// The namespaces; removed when dropped.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) router: Namespace,
    pub(super) hosts: Vec<Host>,
}

impl Network {
    /// Makes namespaces, links and addresses. What was made is removed again when a step fails.
    pub(super) fn create(stop: &Stop) -> Result<Self> {
        let tag = std::process::id();
        let router = Namespace::without_ipv6(format!("brickway-{tag}-r"))?;
        let make = |number| {
            stop.check()?;
            let host = Namespace::without_ipv6(format!("brickway-{tag}-h{number}"))?;
            router.wire(&format!("eth{number} address 02:00:00:00:0{number}:01"), (&host, "eth0"))?;
            host.ip(&format!("addr add 10.0.{number}.2/24 dev eth0"))?;
            host.ip(&format!("route add default via 10.0.{number}.1"))?;
            Ok(Host { namespace: host })
        };
        let hosts = (0..HOSTS).map(make).collect::<Result<_>>()?;
        Ok(Self { router, hosts })
    }
}

impl Network {
    /// Makes the router's namespace what a router of Linux is: addresses, routes of the table, forwarding. The link to the third
    /// host has the MTU `mtu` at both ends.
    pub(super) fn route_by_linux(&self, table: &Path, mtu: u32, stop: &Stop) -> Result<()> {
        self.give_addresses()?;
        self.router.ip(&format!("link set eth2 mtu {mtu}"))?;
        self.hosts[2].namespace.ip(&format!("link set eth0 mtu {mtu}"))?;
        let mut ip = self.router.command("ip");
        let mut ip = ip.args(["-batch", "-"]).stdin(Stdio::piped()).spawn().context("cannot start ip")?;
        let mut lines = BufWriter::new(ip.stdin.take().context("ip has no standard input")?);
        for row in &load(table)?.rows {
            stop.check()?;
            writeln!(lines, "route replace {} via 10.0.{}.2", row.prefix, gateway(row))
                .context("ip does not read the routes")?;
        }
        drop(lines);
        match ip.wait()?.success() {
            true => Ok(()),
            false => bail!("ip did not add the table's routes to Linux"),
        }
    }
}

impl Network {
    /// Linux routes between the hosts.
    fn give_addresses(&self) -> Result<()> {
        for number in 0..HOSTS {
            self.router.ip(&format!("addr add 10.0.{number}.1/24 dev eth{number}"))?;
        }
        self.router.script("echo 1 > /proc/sys/net/ipv4/ip_forward")
    }

    /// Nobody does.
    fn take_addresses(&self) -> Result<()> {
        for number in 0..HOSTS {
            self.router.ip(&format!("addr flush dev eth{number}"))?;
        }
        self.router.script("echo 0 > /proc/sys/net/ipv4/ip_forward")
    }

    /// TCP from the second host to the last one.
    pub(super) fn tcp(
        &self,
        seconds: u32,
        stop: &Stop,
        idle: &mut dyn FnMut(),
    ) -> Result<Result<Tcp, String>> {
        let [_, from, .., to] = &self.hosts[..] else { bail!("the demo has at least three hosts") };
        let target = format!("10.0.{}.2", HOSTS - 1);
        from.iperf((to, &target), seconds, &[], stop, idle)
    }

    /// The same through Linux alone, on the same links: what the router is compared with.
    pub(super) fn linux_alone(
        &self,
        routes_already: bool,
        seconds: u32,
        stop: &Stop,
        report: &Report,
    ) -> Result<Result<Tcp, String>> {
        report.live("Linux alone  TCP h1 -> h3");
        if !routes_already {
            self.give_addresses()?;
        }
        let tcp = self.tcp(seconds, stop, &mut || {});
        if !routes_already {
            self.take_addresses()?;
        }
        tcp
    }

    /// Packets that the hosts have sent and received.
    pub(super) fn hosts_counters(&self) -> Result<(u64, u64)> {
        let (mut sent, mut received) = (0, 0);
        for host in &self.hosts {
            let text = host.namespace.run("ip -json -stats link show dev eth0")?;
            let links: serde_json::Value = serde_json::from_str(&text).context("what ip says of a link")?;
            let packets =
                |way: &str| links[0]["stats64"][way]["packets"].as_u64().context("a host's counters");
            (sent, received) = (sent + packets("tx")?, received + packets("rx")?);
        }
        Ok((sent, received))
    }
}

fn load(table: &Path) -> Result<fib::read::Table<u32>> {
    fib::read::load::<u32>(table).with_context(|| format!("cannot read '{}'", table.display()))
}

/// The host that stands in for what announced a route.
fn gateway(row: &fib::read::Row<u32>) -> usize {
    // Next hops count from 1.
    usize::from(fib::synthesize::next_hop_of_origin(row.origin, HOSTS as u16).get()) - 1
}

/// Which host is the gateway of the table's route to `address`, and how many routes there are.
pub(super) fn gateway_and_routes(table: &Path, address: &str) -> Result<(usize, u64)> {
    let address: std::net::Ipv4Addr = address.parse().context("the demo's own address")?;
    let loaded = load(table)?;
    let best = loaded
        .rows
        .iter()
        .filter(|row| row.prefix.contains(&address))
        .max_by_key(|row| row.prefix.prefix_len());
    match best {
        Some(row) => Ok((gateway(row), loaded.rows.len() as u64)),
        None => bail!("the table '{}' has no route to {address}", table.display()),
    }
}
