//! The network of the demo of one router: namespaces for it and four hosts.

use std::path::Path;

use anyhow::{Context, Result, bail};
use testbed::Namespace;

use super::hosts::{Host, Stop};

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
