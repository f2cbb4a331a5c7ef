//! The file that says what a cluster is: its servers, how they are wired, whose ports are whose.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use control::cluster::member::{ClusterPort, Membership};
use control::store::{EtcdPlace, Place, TlsFiles};
use fabric::{Far, Mode, NodeId, Shape, Topology};
use graph::FromArgument;
use graph::arguments::{Bandwidth, Interval};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::fronts;
use crate::settings::options::About;
use crate::settings::{MetricsSettings, WebSettings};

/// A cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Its name: under which it lies in the store.
    pub name: String,
    /// Its number in frames, 0 to 65535, which tells it from others on the same switches.
    #[serde(default)]
    pub number: u16,
    /// How the nodes are wired: mesh(4), star(4), torus(3, 3), compact(2), ...
    pub topology: String,
    /// What the ports of a node bring in: R.
    #[serde(default = "usual_rate")]
    pub port_rate: String,
    /// What a link carries; port_rate if not given.
    pub link_rate: Option<String>,
    /// direct-vlb, direct-vlb-others, classic-vlb or single-path.
    #[serde(default = "usual_mode")]
    pub mode: String,
    /// How long a flow may pause and keep its path.
    #[serde(default = "usual_delta")]
    pub delta: String,
    /// Time between two hellos on each link.
    #[serde(default = "usual_hello")]
    pub hello: String,
    /// Hellos that must be missed for a link to be dead.
    #[serde(default = "usual_dead")]
    pub dead: u32,
    #[serde(default)]
    /// Where the store is.
    pub store: StoreConfig,
    #[serde(default)]
    /// The cluster's key.
    pub security: SecurityConfig,
    #[serde(default)]
    /// Where this node serves metrics.
    pub metrics: DoorConfig,
    #[serde(default)]
    /// Where it serves the web page, the API and metrics.
    pub web: DoorConfig,
    #[serde(default)]
    /// What the leader runs.
    pub leader: LeaderConfig,
    #[serde(rename = "node")]
    /// All nodes.
    pub nodes: Vec<NodeConfig>,
}

fn usual_rate() -> String {
    "10Gbps".into()
}
fn usual_mode() -> String {
    "direct-vlb".into()
}
fn usual_delta() -> String {
    "100ms".into()
}
fn usual_hello() -> String {
    "10ms".into()
}
fn usual_dead() -> u32 {
    3
}

/// Where the cluster keeps what all nodes must know.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// etcd's client URLs.
    #[serde(default)]
    pub etcd: Vec<String>,
    /// The name that etcd knows this cluster's nodes by.
    pub user: Option<String>,
    /// A file with the user's password.
    pub password_file: Option<PathBuf>,
    /// Certificates of etcd's authority, PEM.
    pub ca: Option<PathBuf>,
    /// This server's certificate and key, PEM, if etcd wants them.
    pub certificate: Option<PathBuf>,
    /// The certificate's key.
    pub key: Option<PathBuf>,
    /// Instead of etcd: the first node keeps it in memory and serves it at this address.
    pub hosted: Option<SocketAddr>,
}

/// What keeps strangers out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SecurityConfig {
    /// The file with the cluster's key.
    pub key_file: Option<PathBuf>,
    /// Whether what has no guard is used nevertheless.
    #[serde(default)]
    pub insecure: bool,
}

/// Where HTTP is served, and for whom; see examples/brickway.toml.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DoorConfig {
    /// The address and port.
    pub listen: Option<SocketAddr>,
    /// A file with the word that clients send.
    pub token_file: Option<PathBuf>,
    /// The certificate for TLS, PEM.
    pub certificate: Option<PathBuf>,
    /// The certificate's key.
    pub key: Option<PathBuf>,
}

impl DoorConfig {
    /// Returns it as the settings of metrics.
    pub(crate) fn metrics(&self) -> MetricsSettings {
        let Self { listen, token_file, certificate, key } = self.clone();
        MetricsSettings { listen, token_file, certificate, key }
    }

    /// Returns it as the settings of the web page, which shows no flows on a node.
    pub(crate) fn web(&self) -> WebSettings {
        let Self { listen, token_file, certificate, key } = self.clone();
        WebSettings { listen, token_file, certificate, key, flows: false }
    }
}

/// What the leader does.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LeaderConfig {
    /// A command that starts the routing daemon on a node that begins to lead.
    pub start: Option<String>,
    /// One that ends it when another node leads.
    pub stop: Option<String>,
    /// Seconds for which a new leader keeps routes that its routing daemon has not told yet.
    pub restart_seconds: Option<u64>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Its name.
    pub name: String,
    /// Its number in the topology, from 0 on.
    pub number: u16,
    #[serde(default)]
    /// What it does for the cluster.
    pub role: Role,
    /// Whether it may lead.
    #[serde(default = "yes")]
    pub leads: bool,
    /// Its share of the flows, where fronts divide them among routing nodes.
    #[serde(default = "one")]
    pub weight: u32,
    /// Rules of the flows that it is specialised for, where fronts divide them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves: Vec<String>,
    /// The interfaces of its links, in the order of `brickway cluster check`; "" for one that is not there yet.
    #[serde(default)]
    pub links: Vec<String>,
    /// What carries the packets of ports and links: "auto", "xdp", or a driver of ports; see [`NodeConfig::port_driver`].
    #[serde(default = "usual_driver")]
    pub driver: String,
    #[serde(default = "one_worker")]
    /// Worker threads.
    pub workers: usize,
    #[serde(default, rename = "port")]
    /// Its external ports.
    pub ports: Vec<PortConfig>,
}

impl NodeConfig {
    /// Returns the node without the options that are its own.
    pub fn agreed(&self) -> NodeConfig {
        let mut node = self.clone();
        node.links.iter_mut().for_each(String::clear);
        node.ports.iter_mut().for_each(|port| port.interface.clear());
        (node.driver, node.workers) = (usual_driver(), one_worker());
        node
    }

    /// Returns the driver of ports and links. Where frames are relayed in the kernel first, that of what is left.
    pub fn port_driver(&self) -> &str {
        if self.relays_in_kernel() { "af_xdp" } else { &self.driver }
    }

    /// Returns whether the kernel is to relay frames between links.
    pub fn relays_in_kernel(&self) -> bool {
        matches!(self.driver.as_str(), "auto" | "xdp")
    }
}

fn yes() -> bool {
    true
}
fn one() -> u32 {
    1
}
fn one_worker() -> usize {
    1
}
fn usual_driver() -> String {
    "auto".into()
}

/// What a node does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Role {
    /// Has ports and routes what comes in by them.
    #[default]
    #[serde(rename = "edge+route")]
    EdgeRoute,
    /// Has ports; others route what comes in by them.
    #[serde(rename = "edge")]
    Edge,
    /// Routes for others.
    #[serde(rename = "route")]
    Route,
    /// Relays only.
    #[serde(rename = "relay")]
    Relay,
}

impl Role {
    /// Its name in the file.
    pub fn word(self) -> &'static str {
        match self {
            Role::EdgeRoute => "edge+route",
            Role::Edge => "edge",
            Role::Route => "route",
            Role::Relay => "relay",
        }
    }
}

/// A port.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// The name of its interface at the leader.
    pub name: String,
    /// The server's interface; "" if only another node knows it.
    #[serde(default)]
    pub interface: String,
    /// 1 to 255, the same for ever.
    pub number: u8,
    /// Addresses that the leader gives it.
    #[serde(default, deserialize_with = "networks")]
    pub addresses: Vec<IpNet>,
}

/// Reads addresses with the length of their network.
fn networks<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let network = |text: String| {
        let wrong = |_| {
            serde::de::Error::custom(format!(
                "'{text}' is not an address of a port; expected one with a length, as in 10.0.6.1/24"
            ))
        };
        text.parse().map_err(wrong)
    };
    texts.into_iter().map(network).collect()
}

/// Links are distinguished by a byte.
const MOST_LINKS: usize = 255;

const A_NAME: &str = "letters, digits, '-', '_' and '.'";

/// Names that Linux has for something else than a port: its settings for all interfaces, and the loopback.
const RESERVED: [&str; 3] = ["all", "default", "lo"];

/// Returns whether a rate or a time is nothing else: it becomes a part of the graph's text.
fn is_plain(text: &str) -> bool {
    text.chars().all(|char| char.is_ascii_alphanumeric() || ". /".contains(char)) && !text.contains("//")
}

fn is_https(url: &str) -> bool {
    url.starts_with("https://")
}

/// Returns the problems as an error, if there are any.
fn all_well(problems: Vec<String>) -> Result<()> {
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(())
}

/// Whether it can be part of a key in the store.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char))
}

impl ClusterConfig {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<ClusterConfig> {
        let name = path.display();
        let text = graph::files::read_text(path)
            .with_context(|| format!("cannot read the cluster's file '{name}'"))?;
        let mut config = ClusterConfig::parse(&text).with_context(|| name.to_string())?;
        let folder = path.parent().unwrap_or(Path::new("."));
        for (_, file) in config.files() {
            *file = folder.join(&file);
        }
        Ok(config)
    }

    /// Returns the files that it names, each with the option that names it.
    fn files(&mut self) -> impl Iterator<Item = (&'static str, &mut PathBuf)> {
        let ClusterConfig { store, security, metrics, web, .. } = self;
        let files = [
            ("[store] password_file", &mut store.password_file),
            ("[store] ca", &mut store.ca),
            ("[store] certificate", &mut store.certificate),
            ("[store] key", &mut store.key),
            ("[security] key_file", &mut security.key_file),
            ("[metrics] token_file", &mut metrics.token_file),
            ("[metrics] certificate", &mut metrics.certificate),
            ("[metrics] key", &mut metrics.key),
            ("[web] token_file", &mut web.token_file),
            ("[web] certificate", &mut web.certificate),
            ("[web] key", &mut web.key),
        ];
        files.into_iter().filter_map(|(option, file)| Some((option, file.as_mut()?)))
    }

    /// Returns what may be meant so, but seldom is.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (option, file) in self.clone().files() {
            if let Err(error) = graph::files::open_regular(file) {
                warnings.push(format!(
                    "{option}: '{}': {error}; no node starts on this machine without it",
                    file.display()
                ));
            }
        }
        for node in &self.nodes {
            for port in node.ports.iter().filter(|port| port.addresses.is_empty()) {
                warnings.push(format!(
                    "port '{}' of node '{}': no addresses; expected addresses = [\"ADDRESS/LENGTH\"], unless something else gives the \
                     leader's interface '{}' some",
                    port.name, node.name, port.name
                ));
            }
        }
        warnings.extend(self.too_small_links());
        warnings
    }

    /// Returns a warning if the links of a mesh cannot carry what its ports bring in. In the worst case a link carries 2/N of that,
    /// divided among parallel cables.
    fn too_small_links(&self) -> Option<String> {
        let Ok(Shape::Mesh { nodes: nodes @ 2.., parallel }) = self.topology.parse() else { return None };
        let link_rate = self.link_rate.as_ref().unwrap_or(&self.port_rate);
        let [ports, link] = [&self.port_rate, link_rate].map(|rate| Bandwidth::from_argument(rate));
        let needed = 2 * ports?.bytes_per_second / (nodes as u64 * u64::from(parallel.max(1)));
        (self.mode != "single-path" && link?.bytes_per_second < needed).then(|| {
            format!(
                "link_rate: {link_rate} is less than a link carries when traffic is uneven; expected at least {}Mbps, 2/{} of port_rate",
                (needed * 8).div_ceil(1_000_000),
                nodes * usize::from(parallel)
            )
        })
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<ClusterConfig> {
        let config: ClusterConfig = toml::from_str(text)?;
        all_well(config.problems_of_file().into_iter().chain(config.problems()).collect())?;
        Ok(config)
    }

    /// Checks what all nodes agree on.
    pub fn check(&self) -> Result<()> {
        all_well(self.problems())
    }

    /// As it is written.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// Everything in this node's own part that cannot be right.
    fn problems_of_file(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match (self.store.etcd.is_empty(), self.store.hosted) {
            (true, None) => problems.push(
                "store: neither etcd = [\"https://...\"] nor hosted = \"ADDRESS:PORT\"; the nodes must meet somewhere".into(),
            ),
            (false, Some(_)) => problems.push("store: etcd and hosted; expected one of them".into()),
            _ => {}
        }
        if self.store.etcd.iter().any(|url| is_https(url)) && self.store.ca.is_none() {
            problems.push(
                "store: https without ca; expected ca = \"FILE\" with the certificates of etcd's authority"
                    .into(),
            );
        }
        let doors = [("metrics", self.metrics.metrics().problem()), ("web", self.web.web().problem())];
        for (section, problem) in doors {
            problems
                .extend(problem.map(|(key, message, right)| format!("{section}: {key}: {message}; {right}")));
        }
        if !self.security.insecure {
            let refused = |open| format!("{open}, or [security] insecure = true");
            problems.extend(self.unguarded().into_iter().map(refused));
        }
        let ports = self.nodes.iter().flat_map(|node| &node.ports);
        for port in ports.filter(|port| port.interface.is_empty()) {
            problems.push(format!("port '{}': no interface; expected interface = \"NAME\"", port.name));
        }
        problems
    }

    /// Returns what lets strangers in, and what would keep them out.
    pub fn unguarded(&self) -> Vec<String> {
        let mut open = Vec::new();
        let StoreConfig { etcd, hosted, .. } = &self.store;
        if self.security.key_file.is_none() {
            open.push(
                "fabric: without a key, everybody who reaches a link can be any node; expected [security] key_file = \"FILE\" \
                 as 'brickway cluster key' prints it"
                    .into(),
            );
        }
        if let (Some(address), None) = (hosted, &self.security.key_file) {
            open.push(format!(
                "store: hosted at {address} without a key, everybody who reaches it can change the cluster; expected \
                 [security] key_file = \"FILE\" as 'brickway cluster key' prints it"
            ));
        }
        let plain: Vec<&str> = etcd.iter().map(String::as_str).filter(|url| !is_https(url)).collect();
        if !plain.is_empty() {
            open.push(format!(
                "store: etcd at {} without TLS, everybody who reaches it can change the cluster; expected https:// with ca",
                plain.join(", ")
            ));
        } else if !etcd.is_empty() && self.store.certificate.is_none() && self.store.user.is_none() {
            open.push(
                "store: etcd does not know who this node is; expected certificate and key, or user and password_file".into(),
            );
        }
        open
    }

    /// Everything in what all nodes agree on that cannot be right.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let shape = match self.topology.parse::<Shape>() {
            Ok(shape) => shape,
            Err(error) => return vec![format!("topology: {error}")],
        };
        let topology = Topology::new(shape);
        let mut is_right = |option: &str, text: &str, is: bool, right: &str| {
            if !is {
                problems.push(format!("{option} = \"{text}\"; expected {right}"));
            }
        };
        for (option, rate) in [("port_rate", Some(&self.port_rate)), ("link_rate", self.link_rate.as_ref())] {
            let Some(rate) = rate else { continue };
            let is = Bandwidth::from_argument(rate).is_some_and(|rate| rate.bytes_per_second > 0)
                && is_plain(rate);
            is_right(option, rate, is, "a bandwidth as in \"10Gbps\"");
        }
        for (option, time) in [("delta", &self.delta), ("hello", &self.hello)] {
            is_right(
                option,
                time,
                Interval::from_argument(time).is_some() && is_plain(time),
                "a time as in \"10ms\"",
            );
        }
        // Without hellos no neighbour could prove who it is, and every link would be taken for alive.
        let has_hellos = Interval::from_argument(&self.hello).is_none_or(|hello| hello.ns > 0);
        is_right("hello", &self.hello, has_hellos, "more than 0");
        let modes: Vec<&str> = Mode::NAMES.iter().map(|&(name, _)| name).collect();
        is_right("mode", &self.mode, modes.contains(&self.mode.as_str()), &modes.join(", "));
        is_right("dead", &self.dead.to_string(), self.dead > 0, "1 or more");
        is_right("name", &self.name, is_name(&self.name), A_NAME);
        for node in &self.nodes {
            is_right("node: name", &node.name, is_name(&node.name), A_NAME);
        }
        let mut seen: BTreeSet<(&str, String)> = BTreeSet::new();
        let mut once = |what: &'static str, value: String| seen.insert((what, value));
        for node in &self.nodes {
            let of = format!("node '{}'", node.name);
            if !once("node", node.name.clone()) {
                problems.push(format!("{of} is there twice; each has a name of its own"));
            }
            if !once("number", node.number.to_string()) {
                problems.push(format!("{of}: number {} is another node's too", node.number));
            }
            let Some(id) = NodeId::new(node.number).filter(|id| id.index() < topology.nodes()) else {
                let highest = topology.nodes() - 1;
                problems.push(format!(
                    "{of}: number {}; the nodes of {} are 0 to {highest}",
                    node.number, self.topology
                ));
                continue;
            };
            let links = topology.links(id);
            if links.len() > MOST_LINKS {
                problems.push(format!(
                    "{of}: {} has {} links; a node has at most {MOST_LINKS}",
                    self.topology,
                    links.len()
                ));
            }
            if links.len() != node.links.len() {
                problems.push(format!(
                    "{of}: {} links; in {} it has {}: {}",
                    node.links.len(),
                    self.topology,
                    links.len(),
                    links.iter().map(|link| self.far(link.far)).collect::<Vec<_>>().join(", ")
                ));
            }
            let may_have_ports = matches!(node.role, Role::EdgeRoute | Role::Edge);
            if !node.ports.is_empty() && !may_have_ports {
                problems
                    .push(format!("{of} has ports; its role would have to be \"edge+route\" or \"edge\""));
            }
            if !topology.may_have_ports(id) && node.role != Role::Relay {
                problems.push(format!(
                    "{of}: in {} node {} only relays: role = \"relay\"",
                    self.topology, node.number
                ));
            }
            if node.workers == 0 || node.workers > 255 {
                problems.push(format!("{of}: workers = {}; expected 1 to 255", node.workers));
            }
            let interfaces = node.links.iter().chain(node.ports.iter().map(|port| &port.interface));
            let mut interfaces: Vec<&String> = interfaces.filter(|name| !name.is_empty()).collect();
            interfaces.sort();
            for pair in interfaces.windows(2).filter(|pair| pair[0] == pair[1]) {
                problems.push(format!("{of}: interface '{}' is used twice", pair[0]));
            }
            for port in &node.ports {
                let is_interface = |other: &&NodeConfig| {
                    other.links.contains(&port.name) || other.ports.iter().any(|of| of.interface == port.name)
                };
                if let Some(other) = self.nodes.iter().find(is_interface) {
                    problems.push(format!(
                        "port '{0}': node '{1}' has an interface '{0}' of its own, and the leader could not have another one; \
                         give the port another name",
                        port.name, other.name
                    ));
                }
                for address in &port.addresses {
                    if !once("address", address.addr().to_string()) {
                        problems.push(format!(
                            "port '{}': another port has address {} too",
                            port.name,
                            address.addr()
                        ));
                    }
                }
                if !once("port", port.name.clone()) {
                    problems.push(format!("port '{}' is there twice; each has a name of its own", port.name));
                }
                if port.number == 0 || !once("port number", port.number.to_string()) {
                    problems.push(format!(
                        "port '{}': number {}; expected 1 to 255, each once and the same for ever",
                        port.name, port.number
                    ));
                }
                let is_reserved = RESERVED.contains(&port.name.as_str());
                let right =
                    if is_reserved { format!("p{}", port.number) } else { ports::twin_name(&port.name) };
                if port.name != right {
                    problems.push(format!(
                        "port '{}': the leader's Linux cannot have an interface of that name; expected '{right}'",
                        port.name
                    ));
                }
            }
        }
        let is = |role: &[Role]| self.nodes.iter().any(|node| role.contains(&node.role));
        if is(&[Role::Edge]) && !is(&[Role::Route, Role::EdgeRoute]) {
            problems.push(
                "there are nodes with role \"edge\" and none that routes for them: role = \"route\"".into(),
            );
        }
        problems.extend(fronts::problems(self));
        if !self.nodes.iter().any(|node| node.leads && node.role != Role::Relay) {
            problems.push("no node may lead; leave out leads = false somewhere".into());
        }
        problems
    }

    /// The other end of a link, in words.
    fn far(&self, far: Far) -> String {
        match far {
            Far::Switch(number) => format!("switch {number}"),
            Far::Node(id) => match self.nodes.iter().find(|node| node.number == id.number()) {
                Some(node) => format!("to '{}'", node.name),
                None => format!("to node {id}"),
            },
        }
    }

    /// How its nodes are wired.
    pub fn topology(&self) -> Result<Topology> {
        Ok(Topology::new(self.topology.parse::<Shape>()?))
    }

    /// A node, by name.
    pub fn node(&self, name: &str) -> Result<&NodeConfig> {
        let names = || self.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
        self.nodes.iter().find(|node| node.name == name).with_context(|| {
            format!("the cluster '{}' has no node '{name}'; its nodes are {}", self.name, names())
        })
    }

    /// The cluster after a node has left, which may be its last.
    pub fn without(mut self, name: &str) -> Result<ClusterConfig> {
        self.node(name)?;
        self.nodes.retain(|known| known.name != name);
        if !self.nodes.is_empty() {
            self.check().with_context(|| format!("node '{name}' cannot leave"))?;
        }
        Ok(self)
    }

    /// Its ports.
    pub fn ports(&self) -> Vec<ClusterPort> {
        let of_node = |node: &NodeConfig| {
            let id = NodeId::new(node.number);
            (0..).zip(node.ports.clone()).filter_map(move |(place, port)| {
                Some(ClusterPort { number: port.number, name: port.name, node: id?, place })
            })
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// Its ports and nodes.
    pub fn membership(&self) -> Membership {
        Membership { ports: self.ports(), nodes: self.nodes.iter().map(|node| node.name.clone()).collect() }
    }

    /// Where the store is, for this node.
    pub fn place(&self, node: Option<&str>) -> Result<Place> {
        let store = &self.store;
        if let Some(address) = store.hosted {
            let first = self.nodes.first().map(|node| node.name.as_str());
            let key_file = self.security.key_file.clone();
            return Ok(Place::Hosted { address, hosts: node.is_some() && node == first, key_file });
        }
        let password = store.password_file.as_ref().map(|file| {
            let name = || format!("password_file '{}'", file.display());
            let (text, _) = graph::files::read_secret(file).with_context(name)?;
            let password = text.trim_end_matches(['\r', '\n']);
            if graph::files::is_no_secret(password) {
                bail!("{}: the password of an example; expected another one", name());
            }
            Ok::<_, anyhow::Error>(password.to_owned())
        });
        let user = match (&store.user, password.transpose()?) {
            (Some(user), Some(password)) => Some((user.clone(), password)),
            (None, None) => None,
            _ => bail!("store: user and password_file come together"),
        };
        let identity = match (&store.certificate, &store.key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => bail!("store: certificate and key come together"),
        };
        let tls = store.ca.as_ref().map(|ca| TlsFiles { ca: ca.clone(), identity });
        Ok(Place::Etcd(EtcdPlace { endpoints: store.etcd.clone(), user, tls }))
    }

    /// Under which everything lies in the store.
    pub fn prefix(&self) -> String {
        format!("/brickway/{}/", self.name)
    }

    /// The links of a node: its interfaces, and where they lead.
    pub fn wiring(&self, node: &NodeConfig) -> Result<Vec<(String, String)>> {
        let topology = self.topology()?;
        let id = NodeId::new(node.number).context("the node's number is too high")?;
        let links = topology.links(id).iter().zip(&node.links);
        Ok(links.map(|(link, name)| (name.clone(), self.far(link.far))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::ClusterConfig;

    const EXAMPLE: &str = include_str!("../../../../examples/cluster.toml");

    #[test]
    fn the_example_has_no_mistakes_and_is_read_again_as_it_is_written() {
        let config = ClusterConfig::parse(EXAMPLE).unwrap();
        assert_eq!(ClusterConfig::parse(&config.to_toml().unwrap()).unwrap(), config);
    }

    #[test]
    fn missing_files_addresses_and_small_links_are_warned_of() {
        let warnings = |from: &str, to: &str| {
            assert!(EXAMPLE.contains(from), "{from}");
            ClusterConfig::parse(&EXAMPLE.replace(from, to)).unwrap().warnings()
        };
        let of_example = warnings("", "");
        for (warning, option) in of_example.iter().zip(["ca", "certificate", "key", "key_file"]) {
            let (said, rest) = warning.split_once(": '").unwrap();
            assert!(said.ends_with(option) && rest.contains("No such file"), "{warning}");
        }
        assert_eq!(of_example.len(), 4, "{of_example:?}");
        let slow = warnings("#link_rate = \"10Gbps\"", "link_rate = \"4Gbps\"");
        assert!(slow[4].ends_with("expected at least 5000Mbps, 2/4 of port_rate"), "{slow:?}");
        assert_eq!(warnings("#link_rate = \"10Gbps\"", "link_rate = \"5Gbps\"").len(), 4);
        let without = warnings("addresses = [\"10.0.2.1/24\", \"2001:db8:2::1/64\"]", "");
        assert!(without[4].starts_with("port 'b1' of node 'b': no addresses; expected "), "{without:?}");
    }

    #[test]
    fn what_a_node_could_not_run_with_is_told_by_its_option() {
        let error = |from: &str, to: &str| {
            assert!(EXAMPLE.contains(from), "{from}");
            ClusterConfig::parse(&EXAMPLE.replace(from, to)).unwrap_err().to_string()
        };
        for (from, to, says) in [
            ("#port_rate = \"10Gbps\"", "port_rate = \"fast\"", "port_rate = \"fast\"; expected a bandwidth"),
            ("#link_rate = \"10Gbps\"", "link_rate = \"0\"", "link_rate = \"0\"; expected a bandwidth"),
            ("#mode = \"direct-vlb\"", "mode = \"vlb\"", "mode = \"vlb\"; expected direct-vlb, "),
            ("#delta = \"100ms\"", "delta = \"soon\"", "delta = \"soon\"; expected a time"),
            ("#hello = \"10ms\"", "hello = \"10ms, DEAD 9\"", "expected a time"),
            ("#hello = \"10ms\"", "hello = \"0s\"", "hello = \"0s\"; expected more than 0"),
            (
                "key_file = \"/etc/brickway/cluster.key\"",
                "",
                "fabric: without a key, everybody who reaches a link",
            ),
            ("#dead = 3", "dead = 0", "dead = \"0\"; expected 1 or more"),
            (
                "#[web]\n#listen = \"127.0.0.1:8779\"",
                "[web]\nlisten = \"192.0.2.1:8779\"",
                "web: listen: 192.0.2.1:8779 can be reached from other hosts without a token and TLS",
            ),
            ("name = \"rb4\"", "name = \"rb/4\"", "name = \"rb/4\"; expected letters"),
            ("name = \"a\"", "name = \"\"", "node: name = \"\"; expected letters"),
            ("name = \"a1\"", "name = \"fab2\"", "port 'fab2': node 'a' has an interface 'fab2' of its own"),
            ("\"10.0.2.1/24\"", "\"10.0.1.1/24\"", "port 'b1': another port has address 10.0.1.1 too"),
        ] {
            let said = error(from, to);
            assert!(said.contains(says), "{to}: {said}");
        }
    }
}
