//! The network of the demo of one router: namespaces for it and four hosts.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::hosts::{Host, Stop, ip, run};

/// Number of hosts, and of the router's ports.
pub(super) const HOSTS: usize = 4;

/// The namespaces; removed when dropped.
#[derive(Debug)]
pub(super) struct Network {
    router: String,
    hosts: Vec<Host>,
}

impl Network {
    /// Makes namespaces, links and addresses. What was made is removed again when a step fails.
    pub(super) fn create(stop: &Stop) -> Result<Self> {
        let tag = std::process::id();
        let network = Self {
            router: format!("brickway-{tag}-r"),
            hosts: (0..HOSTS).map(|host| Host::new(format!("brickway-{tag}-h{host}"))).collect(),
        };
        let router = &network.router;
        ip(&format!("netns add {router}"))?;
        for (number, host) in network.hosts.iter().enumerate() {
            stop.check()?;
            let host = host.namespace();
            ip(&format!("netns add {host}"))?;
            for namespace in [router.as_str(), host] {
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
            for (namespace, device) in [(router.as_str(), format!("eth{number}")), (host, "eth0".to_owned())]
            {
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

    /// A host.
    pub(super) fn host(&self, host: usize) -> &Host {
        &self.hosts[host]
    }

    /// Gives a host one more address.
    pub(super) fn give_address(&self, host: usize, address: &str) -> Result<()> {
        ip(&format!("-n {} addr add {address}/32 dev lo", self.hosts[host].namespace()))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in self.hosts.iter().map(Host::namespace).chain([self.router.as_str()]) {
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
