//! A cluster: a namespace for each node and for each host behind a port, `mgmt` for the network that all nodes manage each
//! other over, with etcd if that is not on the nodes.
//!
//! Nodes are `a`, `b`, ... with links `fab0`, `fab1`, ... in the order of the topology. Port 1 is that of the first node that has one: `a1`,
//! with host `h1`, 10.0.1.2 and 2001:db8:1::2; the router there is `.1`. The topology's first cable leads through `mgmt`, where it can be
//! cut in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

use fabric::{Far, NodeId, Shape, Topology};
use rustix::process::Signal;
use serde_json::Value;

use super::router::{PROGRAM, answered};
use super::{Network, Running, eventually};

/// Where etcd is.
const ETCD: &str = "192.168.9.100";

/// Links carry whole frames to the leader, its own header before them, also of packets that are longer than they may be.
const LINK_MTU: u32 = 1600;

/// Where the store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorePlan {
    /// In an etcd of one member, in `mgmt`.
    Etcd,
    /// In an etcd with a member on each node, which asks that one only.
    EtcdOnEach,
    /// In the memory of the first node.
    Hosted,
}

/// What is to be built.
pub(crate) struct Plan {
    pub(crate) topology: &'static str,
    /// The role of a node, by its number.
    pub(crate) role: fn(usize) -> &'static str,
    /// Further lines of the cluster's file.
    pub(crate) settings: &'static str,
    /// Further lines of a node's section, by its number.
    pub(crate) node: fn(usize) -> &'static str,
    pub(crate) driver: &'static str,
    pub(crate) store: StorePlan,
}

/// All nodes of a test share two CPUs with other tests: a link is not dead because a node waited for its turn.
pub(crate) const PATIENT: &str = "hello = \"50ms\"\n";

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            topology: "mesh(4)",
            role: |_| "edge+route",
            settings: PATIENT,
            node: |_| "",
            driver: "auto",
            store: StorePlan::Etcd,
        }
    }
}

/// A cluster.
pub(crate) struct Cluster {
    /// Those that run; before the network, so that they go first.
    nodes: BTreeMap<String, Running>,
    /// The members of etcd that run, in the order of [`Cluster::etcd_places`].
    etcd: Vec<Running>,
    /// The number of the node as which the test asks what the store says.
    asks: usize,
    /// The names of all nodes, by number.
    pub(crate) names: Vec<String>,
    /// For each host the node whose port it is behind.
    pub(crate) behind: Vec<String>,
    plan: Plan,
    links: Vec<usize>,
    pub(crate) network: Network,
}

/// What pings lost.
#[derive(Debug)]
pub(crate) struct Loss {
    /// From whom to whom.
    pub(crate) stream: String,
    /// Packets without an answer.
    pub(crate) lost: usize,
    /// Packets sent.
    pub(crate) sent: usize,
    /// Most packets in a row without an answer.
    pub(crate) longest: usize,
}

/// Both addresses of the host behind a port.
pub(crate) fn host_addresses(port: usize) -> [String; 2] {
    [format!("10.0.{port}.2"), format!("2001:db8:{port}::2")]
}

/// Both addresses of the router at a port.
pub(crate) fn port_addresses(port: usize) -> [String; 2] {
    [format!("10.0.{port}.1"), format!("2001:db8:{port}::1")]
}

impl Cluster {
    /// Builds all namespaces and links, and starts etcd; no node runs yet.
    pub(crate) fn new(plan: Plan) -> Cluster {
        let shape: Shape = plan.topology.parse().unwrap();
        let topology = Topology::new(shape);
        let names: Vec<String> =
            (b'a'..).take(topology.nodes()).map(|letter| char::from(letter).to_string()).collect();
        let with_ports = |number: usize| (plan.role)(number).starts_with("edge");
        let behind: Vec<String> = names
            .iter()
            .enumerate()
            .filter(|(number, _)| with_ports(*number))
            .map(|(_, name)| name.clone())
            .collect();
        let hosts: Vec<String> = (1..=behind.len()).map(|port| format!("h{port}")).collect();
        let labels: Vec<&str> = ["mgmt"]
            .into_iter()
            .chain(names.iter().map(String::as_str))
            .chain(hosts.iter().map(String::as_str))
            .collect();
        let network = Network::new(&labels);
        let links = NodeId::first(topology.nodes()).map(|node| topology.links(node).len()).collect();
        let mut cluster = Cluster {
            nodes: BTreeMap::new(),
            etcd: Vec::new(),
            asks: 0,
            names,
            behind,
            plan,
            links,
            network,
        };
        cluster.manage();
        cluster.wire(&topology);
        cluster.plug_in_hosts();
        let key = cluster.key_file();
        cluster.must("mgmt", &format!("umask 077; {PROGRAM} cluster key > {key}"));
        cluster.write_file(&cluster.names.clone());
        cluster.start_etcd();
        cluster
    }

    fn must(&self, label: &str, script: &str) {
        let (done, text) = self.network.script(label, script);
        assert!(done, "{label}: {script}: {text}");
    }

    /// The network between the nodes and etcd.
    fn manage(&self) {
        let mut script = format!(
            "ip link add br0 type bridge; ip link set br0 up; ip addr add {ETCD}/24 dev br0
             ip link add sw0 mtu {LINK_MTU} type bridge mcast_snooping 0; ip link set sw0 up\n"
        );
        for (number, name) in self.names.iter().enumerate() {
            let peer = self.network.name(name);
            let _ = writeln!(
                script,
                "ip link add mgmt-{name} type veth peer name mgmt netns {peer}
                 ip link set mgmt-{name} master br0 up
                 ip -n {peer} addr add {}/24 dev mgmt; ip -n {peer} link set mgmt up",
                self.address_of(number)
            );
        }
        self.must("mgmt", &script);
        for name in &self.names {
            // The leader's Linux has IPv6 addresses on interfaces that come later.
            self.network.set(name, "net.ipv6.conf.all.disable_ipv6=0");
        }
    }

    /// The address of a node in the management network.
    pub(crate) fn address_of(&self, number: usize) -> String {
        format!("192.168.9.{}", number + 1)
    }

    fn wire(&self, topology: &Topology) {
        for (number, cable) in (0..).zip(topology.cables()) {
            let end = |node: NodeId| {
                let link = topology.links(node).iter().position(|link| link.cable == number).unwrap();
                (self.names[node.index()].as_str(), format!("fab{link}"))
            };
            let (name, device) = end(cable.node);
            match cable.far {
                Far::Switch(_) => {
                    self.plug(name, &device, "mgmt", &format!("sw0-{name}"), LINK_MTU);
                    self.network.ip("mgmt", &format!("link set sw0-{name} master sw0"));
                }
                Far::Node(far) if number == 0 => {
                    self.plug(name, &device, "mgmt", "left", LINK_MTU);
                    let (name, device) = end(far);
                    self.plug(name, &device, "mgmt", "right", LINK_MTU);
                    for side in ["left", "right"] {
                        self.must("mgmt", &format!("tc qdisc add dev {side} clsact"));
                        self.connect(side);
                    }
                }
                Far::Node(far) => {
                    let (far, far_device) = end(far);
                    self.plug(name, &device, far, &far_device, LINK_MTU);
                }
            }
        }
    }

    /// A link without a word of Linux's on it.
    fn plug(&self, left: &str, left_device: &str, right: &str, right_device: &str, mtu: u32) {
        let [near, far] = [left_device, right_device].map(|device| format!("{device} mtu {mtu}"));
        self.network.namespace(left).wire(&near, (self.network.namespace(right), &far)).unwrap();
        for (label, device) in [(left, left_device), (right, right_device)] {
            self.network.set(label, &format!("net.ipv6.conf.{device}.disable_ipv6=1"));
        }
    }

    fn plug_in_hosts(&self) {
        for (port, name) in (1..).zip(&self.behind) {
            let host = format!("h{port}");
            self.plug(name, "eth1", &host, "eth0", 1500);
            let ([address, address6], [router, router6]) = (host_addresses(port), port_addresses(port));
            self.network.allow_ipv6(&host, "eth0");
            self.must(
                &host,
                &format!(
                    "ip addr add {address}/24 dev eth0; ip addr add {address6}/64 dev eth0 nodad
                     ip route add default via {router}; ip -6 route add default via {router6}"
                ),
            );
        }
    }

    /// What comes in on this side of the cable in `mgmt` goes out on the other.
    pub(crate) fn connect(&self, side: &str) {
        let other = if side == "left" { "right" } else { "left" };
        self.must(
            "mgmt",
            &format!(
                "tc filter add dev {side} ingress protocol all prio 1 u32 match u32 0 0 \
                 action mirred egress redirect dev {other}"
            ),
        );
    }

    /// Records so many hellos that a node sends on the switch. Returns the file.
    pub(crate) fn record(&self, name: &str, count: u64) -> String {
        let file = self.network.folder.file("recorded.pcap");
        let command = format!("tcpdump -Z root -Q in -i sw0-{name} -w {file} -c {count} ether proto 0x88b5");
        let (done, text) = self.network.run("mgmt", &command);
        assert!(done, "{text}");
        file
    }

    /// Sends recorded frames on an interface.
    pub(crate) fn replay(&self, label: &str, interface: &str, file: &str) {
        let graph = format!("FromDump({file}, STOP true) -> Queue -> ToDevice(af_packet:{interface})");
        self.must(label, &format!("{PROGRAM} click -e '{graph}'"));
    }

    /// How many frames a node dropped for this reason.
    pub(crate) fn dropped(&self, name: &str, reason: &str) -> u64 {
        let (_, text) =
            self.network.run(name, &format!("{PROGRAM} show drops --json --socket {}", self.socket(name)));
        let rows = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        rows.filter(|row| row["reason"] == reason).filter_map(|row| row["packets"].as_u64()).sum()
    }

    /// What `brickway show` prints on a node.
    pub(crate) fn shown(&self, name: &str, what: &str) -> String {
        self.network.run(name, &format!("{PROGRAM} show {what} --socket {}", self.socket(name))).1
    }

    /// The number that a handler of a node's graph has.
    pub(crate) fn handler(&self, name: &str, handler: &str) -> u64 {
        let text = self.shown(name, &format!("handlers {handler}"));
        text.trim().parse().unwrap_or_else(|_| panic!("{name}: {handler}: {text}"))
    }

    /// Frames that a node says it has received by all its links.
    pub(crate) fn received(&self, name: &str) -> u64 {
        let nodes = self.show();
        let node = nodes.iter().find(|node| node["node"] == name).expect("the node is in the store");
        let links = node["links"].as_array().unwrap();
        links.iter().filter_map(|link| link["received"].as_u64()).sum()
    }

    /// Frames that its graph has received by them.
    pub(crate) fn seen_by_graph(&self, name: &str) -> u64 {
        let packets = |link: usize| self.handler(name, &format!("from{link}.packets"));
        let number = self.names.iter().position(|known| known == name).unwrap();
        (0..self.links[number]).map(packets).sum()
    }

    /// Undoes that.
    pub(crate) fn cut(&self, side: &str) {
        self.must("mgmt", &format!("tc filter del dev {side} ingress"));
    }

    /// The cluster's file, for whoever asks from `mgmt`.
    pub(crate) fn file(&self) -> String {
        self.file_of(&self.names[self.asks])
    }

    /// The cluster's file of a node: the same for all, unless each has a store to ask.
    fn file_of(&self, name: &str) -> String {
        let file = if self.plan.store == StorePlan::EtcdOnEach { name } else { "cluster" };
        self.network.folder.file(&format!("{file}.toml"))
    }

    fn socket(&self, name: &str) -> String {
        self.network.folder.file(&format!("{name}.sock"))
    }

    /// The cluster's key.
    pub(crate) fn key_file(&self) -> String {
        self.network.folder.file("cluster.key")
    }

    /// Writes it, with sections of these nodes.
    pub(crate) fn write_file(&self, nodes: &[String]) {
        let sections = self.sections(nodes);
        let Plan { topology, settings, store, .. } = &self.plan;
        for (number, name) in self.names.iter().enumerate() {
            let store = match store {
                StorePlan::Etcd => format!("etcd = [\"http://{ETCD}:2379\"]"),
                StorePlan::EtcdOnEach => format!("etcd = [\"http://{}:2379\"]", self.address_of(number)),
                StorePlan::Hosted => format!("hosted = \"{}:2650\"", self.address_of(0)),
            };
            // etcd asks nobody who he is; a hosted store asks for the key.
            let security = format!(
                "key_file = \"{}\"\ninsecure = {}\n",
                self.key_file(),
                self.plan.store != StorePlan::Hosted
            );
            let head = format!(
                "name = \"test\"\ntopology = \"{topology}\"\n{settings}\n[store]\n{store}\n[security]\n{security}"
            );
            std::fs::write(self.file_of(name), head + &sections).unwrap();
        }
    }

    fn sections(&self, nodes: &[String]) -> String {
        let Plan { role, driver, node, .. } = &self.plan;
        let mut text = String::new();
        for (number, name) in self.names.iter().enumerate().filter(|(_, name)| nodes.contains(name)) {
            let links: Vec<String> = (0..self.links[number]).map(|link| format!("\"fab{link}\"")).collect();
            let _ = writeln!(
                text,
                "[[node]]\nname = \"{name}\"\nnumber = {number}\nrole = \"{}\"\nlinks = [{}]\ndriver = \"{driver}\"\n{}",
                role(number),
                links.join(", "),
                node(number)
            );
            if let Some(port) = self.behind.iter().position(|with| with == name).map(|place| place + 1) {
                let [address, address6] = port_addresses(port);
                let _ = writeln!(
                    text,
                    "[[node.port]]\nname = \"{name}1\"\ninterface = \"eth1\"\nnumber = {port}\n\
                     addresses = [\"{address}/24\", \"{address6}/64\"]"
                );
            }
        }
        text
    }

    /// For each member of etcd the namespace where it is, and its address there.
    fn etcd_places(&self) -> Vec<(String, String)> {
        match self.plan.store {
            StorePlan::Etcd => vec![("mgmt".to_owned(), ETCD.to_owned())],
            StorePlan::EtcdOnEach => (self.names.iter().cloned())
                .enumerate()
                .map(|(number, name)| (name, self.address_of(number)))
                .collect(),
            StorePlan::Hosted => Vec::new(),
        }
    }

    /// Starts etcd, on the data that it had if it ran before. With `--pre-vote`, which is not the default of etcd 3.4, a
    /// member that was cut off does not make the others choose their leader anew when it is back.
    pub(crate) fn start_etcd(&mut self) {
        let places = self.etcd_places();
        let peer = |(name, address): &(String, String)| format!("{name}=http://{address}:2380");
        let peers = places.iter().map(peer).collect::<Vec<_>>().join(",");
        for (name, address) in &places {
            let data = self.network.folder.file(&format!("etcd-{name}"));
            let etcd = self.network.start(
                name,
                &format!(
                    "etcd --name {name} --data-dir {data} --listen-client-urls http://{address}:2379 \
                     --advertise-client-urls http://{address}:2379 --listen-peer-urls http://{address}:2380 \
                     --initial-advertise-peer-urls http://{address}:2380 --initial-cluster {peers} \
                     --pre-vote"
                ),
            );
            self.etcd.push(etcd);
        }
        for etcd in &self.etcd {
            let is_ready = || etcd.printed().contains("ready to serve client requests");
            assert!(eventually(is_ready), "{}", etcd.printed());
        }
    }

    /// Kills it with SIGKILL; its data stay.
    pub(crate) fn kill_etcd(&mut self) {
        self.etcd.clear();
    }

    /// Stops all members of etcd but one, as if they hung.
    pub(crate) fn hang_etcd(&self) {
        self.etcd[1..].iter().for_each(|etcd| etcd.signal(Signal::STOP));
    }

    /// Ends that.
    pub(crate) fn go_on_etcd(&self) {
        self.etcd[1..].iter().for_each(|etcd| etcd.signal(Signal::CONT));
    }

    /// Takes a node off the management network; the fabric does not notice.
    pub(crate) fn cut_off(&mut self, name: &str) {
        self.network.ip(name, "link set mgmt down");
        self.asks = self.names.iter().position(|other| other != name).unwrap();
    }

    /// Ends that.
    pub(crate) fn heal(&self, name: &str) {
        self.network.ip(name, "link set mgmt up");
    }

    /// Runs `brickway cluster run` as a node.
    pub(crate) fn start(&mut self, name: &str) {
        self.begin(name, "run");
        self.is_ready(name);
    }

    /// The same for all, which takes less time than one after another.
    pub(crate) fn start_all(&mut self, names: &[String]) {
        names.iter().for_each(|name| self.begin(name, "run"));
        names.iter().for_each(|name| self.is_ready(name));
    }

    /// Runs `brickway cluster join`.
    pub(crate) fn join(&mut self, name: &str) {
        self.begin(name, "join");
        self.is_ready(name);
    }

    fn begin(&mut self, name: &str, how: &str) {
        let node = self.network.start(name, &self.program(how, name));
        self.nodes.insert(name.to_owned(), node);
    }

    /// The command line that makes a server a node.
    pub(crate) fn program(&self, how: &str, name: &str) -> String {
        format!("{PROGRAM} cluster {how} {} {name} --socket {}", self.file_of(name), self.socket(name))
    }

    fn is_ready(&self, name: &str) {
        let node = &self.nodes[name];
        node.wait_until(&format!("node '{name}'"), || node.printed().contains(" runs with "));
    }

    /// What a node printed.
    pub(crate) fn said(&self, name: &str) -> String {
        self.nodes[name].printed()
    }

    /// Whether a node that was started has ended, and how.
    pub(crate) fn ended(&self, name: &str) -> Option<i32> {
        self.nodes.get(name).and_then(Running::ended)
    }

    /// Kills a node with SIGKILL.
    pub(crate) fn kill(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Stops a node as if it hung.
    pub(crate) fn hang(&self, name: &str) {
        self.nodes[name].signal(Signal::STOP);
    }

    /// Ends that.
    pub(crate) fn go_on(&self, name: &str) {
        self.nodes[name].signal(Signal::CONT);
    }

    /// What `brickway cluster show --json` says of each node; nothing while the store does not answer.
    pub(crate) fn show(&self) -> Vec<Value> {
        let command = format!("{PROGRAM} cluster show {} --json", self.file());
        let output = self.network.on("mgmt", &command).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Runs `brickway cluster set` with these arguments. Returns whether it succeeded, and what it printed.
    pub(crate) fn set(&self, arguments: &str) -> (bool, String) {
        self.network.script("mgmt", &format!("{PROGRAM} cluster set {} {arguments}", self.file()))
    }

    /// Who leads.
    pub(crate) fn leader(&self) -> Option<String> {
        let nodes = self.show();
        let leader = nodes.iter().find(|node| node["state"] == "leads")?;
        Some(leader["node"].as_str()?.to_owned())
    }

    /// Waits until a node leads that is not this one; its name.
    pub(crate) fn next_leader(&self, before: &str) -> String {
        let mut leader = None;
        assert!(
            eventually(|| {
                leader = self.leader().filter(|name| name != before);
                leader.is_some()
            }),
            "nobody leads: {:?}",
            self.show()
        );
        leader.unwrap()
    }

    /// Waits until all of these nodes are members whose links are up, but those to nodes that are not among them.
    pub(crate) fn is_whole(&self, names: &[String]) {
        let mut nodes = Vec::new();
        let is_among = |node: &Value| names.iter().any(|name| node["node"] == name.as_str());
        let whole = eventually(|| {
            nodes = self.show();
            let there: Vec<&Value> = nodes.iter().filter(|node| is_among(node)).collect();
            let numbers: BTreeSet<u64> = there.iter().filter_map(|node| node["number"].as_u64()).collect();
            there.len() == names.len()
                && there.iter().all(|node| {
                    let links = node["links"].as_array();
                    let is_up = |link: &Value| {
                        link["is_up"] == true && link["problem"] == ""
                            || !link["node"].as_u64().is_some_and(|far| numbers.contains(&far))
                    };
                    node["state"] != "away" && links.is_some_and(|links| links.iter().all(is_up))
                })
        });
        assert!(whole, "{nodes:#?}");
    }

    /// Whether the tables of all nodes were compared at the same place of the log, and are the same.
    pub(crate) fn agrees(&self, names: &[String]) -> bool {
        let nodes = self.show();
        let of: BTreeSet<String> = nodes
            .iter()
            .filter(|node| names.iter().any(|name| node["node"] == name.as_str()))
            .map(|node| format!("{} {} {}", node["compared_at"], node["digest"], node["lag"]))
            .collect();
        of.len() == 1 && of.iter().all(|known| known.ends_with(" 0") && !known.starts_with("0 "))
    }

    /// Whether the tables of all of these nodes know the host behind a port: its packets need no Linux.
    pub(crate) fn knows(&self, names: &[&str], port: usize) -> bool {
        names.iter().all(|name| {
            let command = format!("{PROGRAM} show neighbours --socket {}", self.socket(name));
            let (_, text) = self.network.run(name, &command);
            host_addresses(port).iter().all(|address| text.contains(address.as_str()))
        })
    }

    /// Who does not hear an answer from whom, asked at once from all of these hosts.
    pub(crate) fn silent(&self, hosts: &[usize], targets: &[String]) -> Vec<String> {
        let ask = |host: usize| {
            let mut silent = Vec::new();
            let script = format!(
                "for to in {}; do ping -n -q -c 2 -i 0.02 -W 1 $to >/dev/null || echo $to; done",
                targets.join(" ")
            );
            let (_, text) = self.network.script(&format!("h{host}"), &script);
            silent.extend(text.lines().map(|to| format!("h{host} -> {to}")));
            silent
        };
        std::thread::scope(|scope| {
            let asked: Vec<_> = hosts.iter().map(|&host| scope.spawn(move || ask(host))).collect();
            asked.into_iter().flat_map(|asked| asked.join().unwrap()).collect()
        })
    }

    /// Waits until each of these hosts reaches each other of them, and the router at every port of these, by both families.
    pub(crate) fn all_reach_all(&self, hosts: &[usize]) {
        let addresses = |of: fn(usize) -> [String; 2]| hosts.iter().flat_map(move |&port| of(port));
        let targets: Vec<String> = addresses(host_addresses).chain(addresses(port_addresses)).collect();
        let begin = Instant::now();
        let mut silent = Vec::new();
        while begin.elapsed() < Duration::from_secs(60) {
            silent = self.silent(hosts, &targets);
            if silent.is_empty() {
                return;
            }
        }
        panic!("no answer: {silent:?}");
    }

    /// Sees on the way between two hosts one hop of both families: the cluster is one router.
    pub(crate) fn is_one_hop(&self, from: usize, to: usize) {
        let ([address, address6], [router, router6]) = (host_addresses(to), port_addresses(from));
        for (family, router, address) in [("", router, address), ("-6 ", router6, address6)] {
            let mut text = String::new();
            let is_one = eventually(|| {
                let trace = format!("traceroute {family}-n -w 2 -q 1 -m 4 {address}");
                text = self.network.run(&format!("h{from}"), &trace).1;
                text.contains(&format!(" 1  {router} ")) && text.contains(&format!(" 2  {address} "))
            });
            assert!(is_one, "h{from}: {text}");
        }
    }

    /// Pings on each of these ways, a hundred times a second, while `act` runs and half a second before and after; what was lost.
    pub(crate) fn lost_during(
        &mut self,
        ways: &[(usize, String)],
        act: impl FnOnce(&mut Cluster),
    ) -> Vec<Loss> {
        let start = |(host, to): &(usize, String)| {
            (
                format!("h{host} -> {to}"),
                self.network.start(&format!("h{host}"), &format!("ping -n -i 0.01 {to}")),
            )
        };
        let pings: Vec<_> = ways.iter().map(start).collect();
        std::thread::sleep(Duration::from_millis(500));
        act(self);
        std::thread::sleep(Duration::from_millis(500));
        pings.into_iter().map(|(stream, ping)| loss(stream, ping)).collect()
    }
}

fn loss(stream: String, ping: Running) -> Loss {
    ping.interrupt();
    let (sent, answered) = answered(&ping.printed());
    let (mut longest, mut before) = (0, 0);
    for &number in answered.iter().chain([&(sent + 1)]) {
        longest = longest.max(number - before - 1);
        before = number;
    }
    Loss { stream, lost: sent - answered.len(), sent, longest }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (name, node) in &self.nodes {
                eprintln!("--- node '{name}':\n{}", node.printed());
            }
        }
        // Who was stopped is killed too.
        self.nodes.clear();
        self.etcd.clear();
    }
}
