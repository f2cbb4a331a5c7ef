//! The network of the cluster's demo: a namespace for each server and each host, one for the management network, one for the
//! neighbour router and one for the host behind it.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use fabric::{Far, NodeId};
use ipnet::IpNet;
use testbed::Namespace;

use crate::demo::hosts::{Host, Stop};
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

/// A machine that is not a server of the cluster.
#[derive(Debug)]
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
    pub(super) management: Namespace,
    /// The servers, as the cluster's file has them.
    pub(super) nodes: Vec<Namespace>,
    pub(super) neighbour: Station,
    /// One on each node's first port.
    pub(super) hosts: Vec<Station>,
    /// The host behind the neighbour.
    pub(super) far: Station,
    pub(super) links: usize,
}

impl Network {
    /// Makes namespaces, links and addresses. What was made is removed again when a step fails.
    pub(super) fn create(config: &ClusterConfig, stop: &Stop) -> Result<Self> {
        let namespace = |label: &str, is_server: bool| -> Result<Namespace> {
            stop.check()?;
            let namespace = Namespace::new(format!("brickway-{}-{label}", std::process::id()))?;
            // Router advertisements and duplicate address detection would only be noise. Servers' own interfaces have no addresses but
            // those of the management network.
            let silent = u8::from(is_server);
            namespace.run(&format!(
                "sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6={silent} \
                 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.accept_ra=0"
            ))?;
            Ok(namespace)
        };
        let station = |name: &str, addresses, gateways| -> Result<Station> {
            let host = Host { namespace: namespace(name, false)? };
            Ok(Station { name: name.to_owned(), host, addresses, gateways })
        };
        let at_port = |name: &str, node: &NodeConfig, place: usize| -> Result<Station> {
            let port = node.ports.get(place).with_context(|| format!("node '{}' lacks a port", node.name))?;
            let [v4, v6] = &port.addresses[..] else { bail!("port '{}' has no two addresses", port.name) };
            let addresses = [next(v4)?.addr().to_string(), next(v6)?.addr().to_string()];
            station(name, addresses, [v4.addr().to_string(), v6.addr().to_string()])
        };
        let last = config.nodes.last().context("the cluster has no nodes")?;
        let far = FAR.map(|address| address.split('/').next().unwrap_or_default().to_owned());
        let host = |node: &NodeConfig| at_port(&format!("h{}", node.name), node, 0);
        let mut network = Self {
            management: namespace("m", true)?,
            nodes: config.nodes.iter().map(|node| namespace(&node.name, true)).collect::<Result<_>>()?,
            neighbour: at_port("n", last, 1)?,
            hosts: config.nodes.iter().map(host).collect::<Result<_>>()?,
            far: station("hn", far, ["203.0.113.1".into(), "2001:db8:113::1".into()])?,
            links: 0,
        };
        network.links = network.wire(config, stop)?;
        network.give_addresses(config)?;
        Ok(network)
    }

    /// How many namespaces there are.
    pub(super) fn size(&self) -> usize {
        2 + self.nodes.len() + self.stations().count()
    }

    /// The hosts on the nodes, and that behind the neighbour.
    pub(super) fn stations(&self) -> impl Iterator<Item = &Station> {
        self.hosts.iter().chain([&self.far])
    }

    /// Makes all links. Returns how many.
    fn wire(&self, config: &ClusterConfig, stop: &Stop) -> Result<usize> {
        let topology = config.topology()?;
        let mut links = 2;
        for (index, (node, server)) in config.nodes.iter().zip(&self.nodes).enumerate() {
            stop.check()?;
            let id = NodeId::new(node.number).context("the node's number is too high")?;
            for (link, name) in topology.links(id).iter().zip(&node.links) {
                let Far::Node(far) = link.far else { bail!("the demo's nodes are wired to each other") };
                let Some(other) = config.nodes.iter().position(|other| other.number == far.number()) else {
                    continue;
                };
                let back = topology.links(far).iter().position(|link| link.far == Far::Node(id));
                if let (true, Some(back)) = (index < other, back) {
                    server.wire(name, (&self.nodes[other], &config.nodes[other].links[back]))?;
                    links += 1;
                }
            }
            server.wire(&node.ports[0].interface, (&self.hosts[index].host.namespace, "eth0"))?;
            server.wire("mgmt", (&self.management, &format!("node-{}", node.name)))?;
            links += 2;
        }
        let (neighbour, far) = (&self.neighbour.host.namespace, &self.far.host.namespace);
        if let (Some(server), Some(last)) = (self.nodes.last(), config.nodes.last()) {
            server.wire(&last.ports[1].interface, (neighbour, "eth0"))?;
        }
        neighbour.wire("eth1", (far, "eth0"))?;
        Ok(links)
    }

    fn give_addresses(&self, config: &ClusterConfig) -> Result<()> {
        let mut bridge = "ip link add br0 type bridge\n".to_owned();
        for (server, node) in self.nodes.iter().zip(&config.nodes) {
            bridge += &format!("ip link set node-{} master br0\n", node.name);
            server.ip(&format!("addr add 10.255.0.{}/24 dev mgmt", 10 + node.number))?;
            // Interfaces that come from now on are the cluster's ports at the leader.
            server.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=0")?;
        }
        self.management.script(&format!("{bridge}ip addr add {STORE}/24 dev br0\nip link set br0 up"))?;
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
            station.host.namespace.script(&text)?;
        }
        Ok(())
    }
}
