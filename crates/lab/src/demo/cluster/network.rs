//! The network of the cluster's demo: a namespace for each server and each host, one for the management network, one for the
//! neighbour router and one for the host behind it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fabric::{Far, NodeId};
use ipnet::IpNet;

use crate::demo::hosts::{Host, Stop, ip, run};
use router::cluster::config::{ClusterConfig, NodeConfig, PortConfig, SecurityConfig, StoreConfig};

/// The cluster's file, of which the demo changes little.
const EXAMPLE: &str = include_str!("../../../../../examples/cluster.toml");

/// Where the store is, in the management network.
pub(super) const STORE: &str = "10.255.0.1";

/// What the host behind the neighbour router has, with the prefixes that the neighbour announces.
pub(super) const FAR: [&str; 2] = ["203.0.113.2/24", "2001:db8:113::2/64"];

/// What the ports of a node bring in together: a machine that stands in for four servers can fill that, and so see how flows are balanced.
pub(super) const PORT_RATE: &str = "400Mbps";
const LINK_RATE: &str = "200Mbps";

/// Time between hellos: one machine stands in for four servers and all their hosts, and may be busy besides.
const HELLO: &str = "50ms";

/// The cluster of the example, with one port more: the last node's to the neighbour router. `hook` is the command that starts and stops
/// the routing daemon. The store has no guard: nobody else reaches the demo's management network.
pub(super) fn cluster(hook: &str, key_file: PathBuf, workers: usize) -> Result<ClusterConfig> {
    let mut config = ClusterConfig::parse(EXAMPLE).context("examples/cluster.toml")?;
    config.store = StoreConfig { etcd: vec![format!("http://{STORE}:2379")], ..StoreConfig::default() };
    config.security = SecurityConfig { key_file: Some(key_file), insecure: true };
    config.leader.start = Some(format!("{hook} start"));
    config.leader.stop = Some(format!("{hook} stop"));
    config.port_rate = PORT_RATE.into();
    config.link_rate = Some(LINK_RATE.into());
    config.hello = HELLO.into();
    let last = config.nodes.last_mut().context("the example has no nodes")?;
    last.ports.push(PortConfig {
        name: format!("{}2", last.name),
        interface: "eth2".into(),
        number: 5,
        addresses: vec!["10.0.5.1/24".parse()?, "2001:db8:5::1/64".parse()?],
    });
    config.nodes.iter_mut().for_each(|node| node.workers = workers);
    ClusterConfig::parse(&config.to_toml()?)
}

/// The address after this one, in its network.
fn next(address: &IpNet) -> Result<IpNet> {
    let next = match address.addr() {
        IpAddr::V4(own) => IpAddr::from((u32::from(own) + 1).to_be_bytes()),
        IpAddr::V6(own) => IpAddr::from((u128::from(own) + 1).to_be_bytes()),
    };
    Ok(IpNet::new(next, address.prefix_len())?)
}

/// A machine that is no server of the cluster.
#[derive(Clone, Debug)]
pub(super) struct Station {
    pub(super) name: String,
    pub(super) host: Host,
    /// Of IPv4 and IPv6.
    pub(super) addresses: [String; 2],
    /// The router's address on its link.
    pub(super) gateways: [String; 2],
}

/// The namespaces; removed when dropped.
#[derive(Debug)]
pub(super) struct Network {
    namespaces: Vec<Host>,
    pub(super) management: Host,
    /// The servers, as the cluster's file has them.
    pub(super) nodes: Vec<Host>,
    /// One on each node's first port.
    pub(super) hosts: Vec<Station>,
    pub(super) neighbour: Station,
    /// The host behind the neighbour.
    pub(super) far: Station,
    pub(super) links: usize,
}

impl Network {
    /// Makes namespaces, links and addresses. What was made is removed again when a step fails.
    pub(super) fn create(config: &ClusterConfig, stop: &Stop) -> Result<Self> {
        let tag = format!("brickway-{}", std::process::id());
        let host = |label: &str| Host::new(format!("{tag}-{label}"));
        let station = |name: &str, port: &PortConfig| -> Result<Station> {
            let [v4, v6] = &port.addresses[..] else { bail!("port '{}' has no two addresses", port.name) };
            let addresses = [next(v4)?.addr().to_string(), next(v6)?.addr().to_string()];
            let gateways = [v4.addr().to_string(), v6.addr().to_string()];
            Ok(Station { name: name.to_owned(), host: host(name), addresses, gateways })
        };
        let port = |node: &NodeConfig, place: usize| {
            node.ports.get(place).cloned().with_context(|| format!("node '{}' lacks a port", node.name))
        };
        let last = config.nodes.last().context("the cluster has no nodes")?;
        let far = Station {
            name: "hn".into(),
            host: host("hn"),
            addresses: FAR.map(|address| address.split('/').next().unwrap_or_default().to_owned()),
            gateways: ["203.0.113.1".into(), "2001:db8:113::1".into()],
        };
        let hosts = config.nodes.iter().map(|node| station(&format!("h{}", node.name), &port(node, 0)?));
        let mut network = Self {
            namespaces: Vec::new(),
            management: host("m"),
            nodes: config.nodes.iter().map(|node| host(&node.name)).collect(),
            hosts: hosts.collect::<Result<_>>()?,
            neighbour: station("n", &port(last, 1)?)?,
            far,
            links: 0,
        };
        network.make(config, stop)?;
        Ok(network)
    }

    /// How many namespaces there are.
    pub(super) fn size(&self) -> usize {
        self.namespaces.len()
    }

    /// The hosts on the nodes, and that behind the neighbour.
    pub(super) fn stations(&self) -> impl Iterator<Item = &Station> {
        self.hosts.iter().chain([&self.far])
    }

    fn make(&mut self, config: &ClusterConfig, stop: &Stop) -> Result<()> {
        let servers = [&self.management].into_iter().chain(&self.nodes);
        let servers: Vec<(Host, bool)> = servers.map(|server| (server.clone(), true)).collect();
        let others = [&self.neighbour].into_iter().chain(self.stations());
        let others: Vec<(Host, bool)> = others.map(|station| (station.host.clone(), false)).collect();
        for (host, is_server) in servers.into_iter().chain(others) {
            stop.check()?;
            self.namespaces.push(host.clone());
            ip(&format!("netns add {}", host.namespace()))?;
            // Router advertisements and duplicate address detection would only be noise. Servers' own interfaces have no addresses but
            // those of the management network.
            let silent = u8::from(is_server);
            script(
                &host,
                &format!(
                    "sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6={silent} \
                     net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.accept_ra=0\n\
                     ip link set lo up"
                ),
            )?;
        }
        let topology = config.topology()?;
        for (index, node) in config.nodes.iter().enumerate() {
            stop.check()?;
            let id = NodeId::new(node.number).context("the node's number is too high")?;
            for (link, name) in topology.links(id).iter().zip(&node.links) {
                let Far::Node(far) = link.far else { bail!("the demo's nodes are wired to each other") };
                let Some(other) = config.nodes.iter().position(|other| other.number == far.number()) else {
                    continue;
                };
                let back = topology.links(far).iter().position(|link| link.far == Far::Node(id));
                if let (true, Some(back)) = (index < other, back) {
                    let (this, that) = (self.nodes[index].clone(), self.nodes[other].clone());
                    self.link((&this, name), (&that, &config.nodes[other].links[back]))?;
                }
            }
            let (server, host) = (self.nodes[index].clone(), self.hosts[index].clone());
            self.link((&server, &node.ports[0].interface), (&host.host, "eth0"))?;
            let management = self.management.clone();
            self.link((&server, "mgmt"), (&management, &format!("node-{}", node.name)))?;
            script(&server, &format!("ip addr add 10.255.0.{}/24 dev mgmt", 10 + node.number))?;
        }
        let last = config.nodes.last().map(|node| node.ports[1].interface.clone()).unwrap_or_default();
        let server = self.nodes.last().context("the cluster has no nodes")?.clone();
        let (neighbour, far) = (self.neighbour.host.clone(), self.far.host.clone());
        self.link((&server, &last), (&neighbour, "eth0"))?;
        self.link((&neighbour, "eth1"), (&far, "eth0"))?;
        for server in &self.nodes {
            // Interfaces that come from now on are the cluster's ports at the leader.
            script(server, "sysctl -qw net.ipv6.conf.default.disable_ipv6=0")?;
        }
        let bridged = config.nodes.iter().map(|node| format!("ip link set node-{} master br0\n", node.name));
        script(
            &self.management,
            &format!(
                "ip link add br0 type bridge\n{}ip addr add {STORE}/24 dev br0\nip link set br0 up",
                bridged.collect::<String>()
            ),
        )?;
        for station in self.stations().chain([&self.neighbour]) {
            let ([v4, v6], [via4, via6]) = (&station.addresses, &station.gateways);
            let mut text = format!("ip addr add {v4}/24 dev eth0\nip -6 addr add {v6}/64 dev eth0 nodad\n");
            text += &if station.name == self.neighbour.name {
                format!(
                    "ip addr add {}/24 dev eth1\nip -6 addr add {}/64 dev eth1 nodad\n\
                     sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
                    self.far.gateways[0], self.far.gateways[1]
                )
            } else {
                format!("ip route add default via {via4}\nip -6 route add default via {via6}")
            };
            script(&station.host, &text)?;
        }
        Ok(())
    }

    /// A link between two namespaces, as a wire is: no segments of 64 KiB, no checksums that nobody computed.
    fn link(&mut self, left: (&Host, &str), right: (&Host, &str)) -> Result<()> {
        let ((host, device), (peer, peer_device)) = (left, right);
        let (host, peer) = (host.namespace(), peer.namespace());
        ip(&format!("-n {host} link add {device} type veth peer name {peer_device} netns {peer}"))?;
        for (host, device) in [left, right] {
            let text =
                format!("ip link set {device} up\nethtool -K {device} tx off rx off tso off gso off gro off");
            script(host, &text)?;
        }
        self.links += 1;
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.namespaces {
            // One that was never made cannot be removed; nothing else to do about a failure.
            let _ = ip(&format!("netns del {}", host.namespace()));
        }
    }
}

/// Runs lines of shell on a host; all must succeed.
fn script(host: &Host, lines: &str) -> Result<()> {
    let (ok, text) =
        run(&mut host.command("sh", &["-ec", lines]), Duration::from_secs(20), None, &mut || {})?;
    if !ok {
        bail!("in {}: {lines}\nfailed: {}", host.namespace(), text.trim());
    }
    Ok(())
}
