//! The node around its member's threads: Linux's interfaces while it leads, what its graph gets, what the graph reports.

use packet::sync::lock;
use std::collections::{HashSet, VecDeque};
use std::net::Ipv6Addr;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use control::api::MovedRow;
use control::cluster::member::{Host, LeaderPort, LinkStatus, MemberShared, Membership, Traffic};
use control::cluster::protection::Told;
use control::service::Service;
use control::supervisor::{LONGEST_WAIT, Pulse, Supervisor};
use elements::devices::follow_linux::{Followed, Follows};
use elements::fabric::{FabricHostPorts, HostPort};
use fabric::NodeId;
use graph::router::Router;
use graph::setup::Shared;
use packet::wire::ethernet::MacAddr;

use super::agreed::{Ignored, merged};
use super::click::ROUTERS;
use super::config::{ClusterConfig, NodeConfig, Role};
use super::fronts;
use super::keys::HelloKeys;
use super::relaying::Relaying;
use crate::drop_in::{Follow, Path, refused_sources};
use crate::features::Protector;
use crate::run::meter;

/// Time between two looks at what the graph counts.
const TRAFFIC_PERIOD: Duration = Duration::from_millis(500);

/// How long a node that leaves goes on forwarding: until others go round it, and another one leads.
const REST: Duration = Duration::from_secs(1);

/// No node, where a number is wanted.
const NOBODY: u32 = u32::MAX;

/// What happened last that is kept, and the most letters of it.
const MOST_EVENTS: usize = 64;
const LONGEST_EVENT: usize = 200;

/// The elements that look up routes.
const LOOKUPS: [&str; 2] = ["rt4", "rt6"];

/// The element that carries packets to the leader.
const CARRY: &str = "toleader";

/// See the top of the file.
pub(crate) struct NodeHost {
    /// The node's name.
    pub(super) name: String,
    pub(super) config: Mutex<ClusterConfig>,
    /// Counts the changes of `config`.
    version: AtomicU64,
    interfaces: Arc<FabricHostPorts>,
    leader: AtomicU32,
    pub(super) traffic: Mutex<Traffic>,
    /// The nodes that the fabric has a way to.
    pub(super) reached: Mutex<HashSet<u16>>,
    /// The ports that Linux has here.
    open: Mutex<Vec<LeaderPort>>,
    /// Why some of them are not there.
    told: Mutex<Vec<String>>,
    /// Options of the store's record that were reported as ignored.
    ignored: Mutex<Ignored>,
    /// Set when the node is to leave.
    leaves: AtomicBool,
    /// What IPsec protects.
    protector: Arc<dyn Protector>,
    hooks: Hooks,
    began: Instant,
    /// What happened last, the newest behind.
    pub(super) events: Mutex<VecDeque<(SystemTime, String)>>,
}

/// Runs commands of the operator's, one after the other. Routing daemons take their time, in which the node's membership goes on.
struct Hooks {
    commands: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Hooks {
    fn start(supervisor: &Supervisor) -> std::io::Result<Hooks> {
        let (commands, queue) = channel::<String>();
        let run = move |pulse: &Pulse| {
            loop {
                pulse.beat();
                let command = match queue.recv_timeout(LONGEST_WAIT) {
                    Ok(command) => command,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                tracing::info!(event = "hook", "cluster: running '{command}'");
                match status_of(&command, pulse) {
                    Ok(status) if status.success() => {}
                    Ok(status) => tracing::warn!(event = "hook", "cluster: '{command}' ended with {status}"),
                    Err(error) => tracing::warn!(event = "hook", "cluster: cannot run '{command}': {error}"),
                }
            }
        };
        let thread = supervisor.spawn("hooks", run)?;
        Ok(Hooks { commands: Some(commands), thread: Some(thread) })
    }

    fn run(&self, command: Option<String>) {
        if let (Some(commands), Some(command)) = (&self.commands, command) {
            // The thread ends after us.
            let _ = commands.send(command);
        }
    }
}

/// Runs a command, which may take its time.
fn status_of(command: &str, pulse: &Pulse) -> std::io::Result<ExitStatus> {
    let mut child = Command::new("sh").args(["-c", command]).spawn()?;
    loop {
        pulse.beat();
        match child.try_wait()? {
            Some(status) => return Ok(status),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

impl Drop for Hooks {
    /// The last command is to be done.
    fn drop(&mut self) {
        self.commands = None;
        // A panic has been printed; there is nobody left to tell.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl NodeHost {
    /// # Errors
    /// There is no thread.
    pub(super) fn new(
        name: &str,
        config: ClusterConfig,
        interfaces: Arc<FabricHostPorts>,
        protector: Arc<dyn Protector>,
        supervisor: &Supervisor,
    ) -> std::io::Result<NodeHost> {
        Ok(NodeHost {
            name: name.to_owned(),
            config: Mutex::new(config),
            version: AtomicU64::new(0),
            interfaces,
            leader: AtomicU32::new(NOBODY),
            traffic: Mutex::default(),
            reached: Mutex::default(),
            open: Mutex::default(),
            told: Mutex::default(),
            ignored: Mutex::default(),
            leaves: AtomicBool::new(false),
            protector,
            hooks: Hooks::start(supervisor)?,
            began: Instant::now(),
            events: Mutex::default(),
        })
    }

    /// Where a router that is a node has it among its shared things, as a weak reference.
    pub(super) const KEY: &str = "cluster:node";

    /// Returns that of a router that is a node.
    pub(crate) fn of(shared: &Shared) -> Option<Arc<NodeHost>> {
        shared.get::<Weak<NodeHost>>(Self::KEY)?.upgrade()
    }

    /// Keeps something that happened, for who asks.
    fn note_event(&self, text: &str) {
        let mut events = lock(&self.events);
        if events.len() == MOST_EVENTS {
            events.pop_front();
        }
        events.push_back((SystemTime::now(), text.chars().take(LONGEST_EVENT).collect()));
    }

    /// Takes in which nodes the fabric has a way to.
    fn set_reached(&self, new: HashSet<u16>) {
        let before = std::mem::replace(&mut *lock(&self.reached), new.clone());
        let nodes: Vec<(u16, String)> =
            lock(&self.config).nodes.iter().map(|node| (node.number, node.name.clone())).collect();
        for (number, name) in nodes {
            match (before.contains(&number), new.contains(&number)) {
                (true, false) => self.note_event(&format!("node '{name}' is not reached any more")),
                (false, true) => self.note_event(&format!("node '{name}' is reached")),
                _ => {}
            }
        }
    }

    /// Ends the routing daemon of a node that leads and that a fault ends: the member's thread may be dead.
    fn stop_daemon(&self) {
        if !std::mem::take(&mut *lock(&self.open)).is_empty() {
            self.hooks.run(lock(&self.config).leader.stop.clone());
        }
    }

    /// Does what an administrator would do with a new interface of the leader.
    fn set_up(&self, port: &LeaderPort) {
        let name = &port.port.name;
        let config = lock(&self.config).clone();
        let known = config.nodes.iter().flat_map(|node| &node.ports).find(|known| known.name == *name);
        let addresses = known.map_or(&[][..], |known| known.addresses.as_slice());
        for address in addresses {
            // Nobody else has it: it was the last leader's, so nobody need be asked (RFC 4862, 5.4).
            let nodad = if address.addr().is_ipv6() { " nodad" } else { "" };
            self.command(&format!("ip address replace {address} dev {name}{nodad}"));
        }
        if addresses.iter().any(|address| address.addr().is_ipv6()) {
            self.settle_link_local(name, port.link.mac);
        }
        // What the fast path leaves to Linux it is to forward; for IPv6 by interface since Linux 6.17.
        for setting in [format!("ipv4/conf/{name}/forwarding"), format!("ipv6/conf/{name}/force_forwarding")]
        {
            if let Err(error) = std::fs::write(format!("/proc/sys/net/{setting}"), "1") {
                let right = "`sysctl -w net.ipv6.conf.all.forwarding=1` does it for all interfaces";
                self.message(&format!(
                    "Linux may not forward what the fast path leaves to it: {setting}: {error}; {right}"
                ));
            }
        }
    }

    /// Gives an interface its link-local address (RFC 4291, appendix A) without asking others for it: until they had not answered,
    /// a second or two, Linux could ask for no neighbour.
    fn settle_link_local(&self, name: &str, mac: [u8; 6]) {
        let [a, b, c, d, e, f] = mac.map(u16::from);
        let address = Ipv6Addr::new(0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f);
        // Linux may have begun to ask for it, or not yet.
        let _ = Command::new("ip").args(["address", "del", &format!("{address}/64"), "dev", name]).output();
        self.command(&format!("ip address replace {address}/64 dev {name} nodad"));
    }

    /// Runs a command of our own. Its output is reported when it fails.
    fn command(&self, words: &str) {
        let mut parts = words.split(' ');
        let output = Command::new(parts.next().unwrap_or_default()).args(parts).output();
        match output {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                self.message(&format!("'{words}' failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
            }
            Err(error) => self.message(&format!("cannot run '{words}': {error}")),
        }
    }
}

impl Host for NodeHost {
    fn set_leader_ports(&self, ports: &[LeaderPort]) -> bool {
        let mut open = lock(&self.open);
        let (had, has) = (!open.is_empty(), !ports.is_empty());
        if had && !has {
            self.hooks.run(lock(&self.config).leader.stop.clone());
        }
        let wanted = ports.iter().map(|LeaderPort { port, link, .. }| HostPort {
            number: port.number,
            name: port.name.clone(),
            mac: MacAddr(link.mac),
            mtu: link.mtu.min(65_521) as u16,
            node: port.node,
            place: port.place,
        });
        let errors = self.interfaces.set(wanted.collect()).err().unwrap_or_default();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let mut told = lock(&self.told);
        if *told != texts {
            texts.iter().for_each(|text| self.message(text));
        }
        // Which of them were not there is not known; setting up one that was does nothing.
        let (were_all_there, are_all_there) = (told.is_empty(), texts.is_empty());
        *told = texts;
        drop(told);
        if !were_all_there {
            open.clear();
        }
        for port in ports {
            let before = open.iter().find(|known| known.port == port.port);
            if before.is_none() {
                self.set_up(port);
            }
            if before.is_none_or(|before| before.is_up != port.is_up)
                && let Err(error) = self.interfaces.set_carrier(port.port.number, port.is_up)
                && are_all_there
            {
                self.message(&error.to_string());
            }
        }
        *open = ports.to_vec();
        if has && !had {
            self.hooks.run(lock(&self.config).leader.start.clone());
        }
        are_all_there
    }

    fn leader_is(&self, leader: Option<NodeId>) {
        self.leader.store(leader.map_or(NOBODY, |node| node.number().into()), Ordering::SeqCst);
    }

    fn configured(&self, text: &[u8]) -> Option<Membership> {
        let mut config = lock(&self.config);
        match merged(text, &config, Some(&self.name)) {
            Ok((new, ignored)) => {
                let mut reported = lock(&self.ignored);
                if *reported != ignored {
                    ignored.report().iter().for_each(|report| self.message(report));
                    *reported = ignored;
                }
                drop(reported);
                *config = new;
                self.version.fetch_add(1, Ordering::SeqCst);
                Some(config.membership())
            }
            Err(error) => {
                self.message(&format!("the cluster stays as it is: {error:#}"));
                None
            }
        }
    }

    fn leave(&self) {
        self.leaves.store(true, Ordering::SeqCst);
    }

    fn protect(&self, told: Option<&Told>) {
        self.protector.set_logged(told);
    }

    fn protects(&self) -> bool {
        self.protector.is_in_force()
    }

    fn begins_to_lead(&self, told: Option<&Told>, shared: &Arc<MemberShared>) {
        self.protector.begin_to_lead(told, shared);
    }

    fn ends_to_lead(&self) {
        self.protector.lead_is_over();
    }

    fn reaches(&self, node: NodeId) -> bool {
        lock(&self.reached).contains(&node.number())
    }

    fn traffic(&self) -> Traffic {
        lock(&self.traffic).clone()
    }

    fn message(&self, text: &str) {
        // Some of it is what others have written into the store.
        let is_printable = |char: &char| !char.is_control() || *char == '\n';
        let text: String = text.chars().filter(is_printable).collect();
        tracing::warn!(event = "cluster", "cluster: {text}");
        self.note_event(&text);
    }

    fn note(&self, text: &str) {
        self.note_event(text);
    }
}

/// Brings to the graph what the member's threads know, and back.
pub(super) struct Between {
    host: Arc<NodeHost>,
    node: NodeConfig,
    keys: Option<HelloKeys>,
    told: Option<u32>,
    /// To which node packets are carried that the leader has to judge.
    carries_to: Option<u32>,
    /// Of the host's addresses that were passed on last.
    addresses: Option<u64>,
    looked: Option<Instant>,
    /// Since when nobody should relay over this node any more.
    draining_since: Option<Instant>,
    /// What the kernel relays, if it does.
    relaying: Option<Arc<Mutex<Relaying>>>,
    /// Of the configuration that the graph has the routing nodes of.
    version: u64,
}

impl Between {
    pub(super) fn new(
        host: Arc<NodeHost>,
        node: NodeConfig,
        keys: Option<HelloKeys>,
        relaying: Option<Arc<Mutex<Relaying>>>,
    ) -> Between {
        let (told, carries_to, addresses, looked, draining_since) = (None, None, None, None, None);
        let version = 0;
        Between { host, node, keys, told, carries_to, addresses, looked, draining_since, relaying, version }
    }

    /// Keeps IPsec in step with what is known. Returns what went wrong.
    fn protect(&mut self, leader: u32, service: &Service, router: &mut Router) -> Vec<String> {
        let protector = self.host.protector.clone();
        let mut problems = Vec::new();
        let state = service.lock();
        let generation = state.mirror.local_address_generation();
        let addresses = (self.addresses != Some(generation))
            .then(|| state.mirror.local_addresses().map(|known| known.address).collect::<Vec<_>>());
        let refused = addresses.as_ref().map(|_| refused_sources(state.mirror.local_addresses()));
        drop(state);
        if let Some(refused) = refused {
            problems.extend(tell_followers(router, Followed::Own4, &refused));
        }
        if self.addresses.is_none() {
            problems.extend(protector.wait());
        }
        protector.prepare(&mut |what| problems.extend(tell_followers(router, what, "")));
        if let Some(addresses) = addresses {
            self.addresses = Some(generation);
            protector.set_own_addresses(&addresses);
        }
        protector.publish();
        // This node's Linux gets what others may not judge only once its policies count: it would let pass what it does not know.
        let is_here = leader == u32::from(self.node.number);
        let is_ready = !is_here || protector.leads() && !protector.is_to_stop();
        let carries_to = if is_ready { leader } else { NOBODY };
        if self.carries_to != Some(carries_to) && router.config().find(CARRY).is_some() {
            problems.extend(router.write(&format!("{CARRY}.node"), &node_text(carries_to)).err());
        }
        self.carries_to = Some(carries_to);
        if protector.is_to_stop() {
            protector.stop_leading();
        }
        problems
    }

    fn traffic(&self, router: &mut Router) -> Traffic {
        let config = router.config().clone();
        let stats = router.stats();
        let counts = meter::counts(&config, &stats, &[]);
        let (mut input, mut output) = (MovedRow::default(), MovedRow::default());
        for port in self.node.ports.iter().filter_map(|port| counts.get(&port.name)) {
            for (sum, way) in [(&mut input, port.rx), (&mut output, port.tx)] {
                sum.packets += way.packets;
                sum.bytes += way.bytes;
            }
        }
        let lookups: Vec<usize> = LOOKUPS.iter().filter_map(|name| config.find(name)).collect();
        let packets = |index: &usize| {
            stats.iter().filter_map(|copy| copy.elements.get(*index)).map(|of| of.packets).sum::<u64>()
        };
        let mut number =
            |handler: &str| router.read(handler).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let mut traffic = Traffic {
            at: self.host.began.elapsed().as_secs_f64(),
            input,
            routed: lookups.iter().map(packets).sum(),
            output,
            direct_bytes: number("to.direct_bytes"),
            balanced_bytes: number("to.balanced_bytes"),
            direct: number("to.direct"),
            balanced: number("to.balanced"),
            moved: number("to.moved"),
            link_full: number("to.link_full"),
            links: Vec::new(),
            classes: Vec::new(),
        };
        if self.node.role == Role::Edge {
            traffic.classes =
                fronts::traffic(&router.read(&format!("{ROUTERS}.classes")).unwrap_or_default());
        }
        let by_link = router.read("to.by_link").unwrap_or_default();
        let relayed_by = router.read("fabric.relayed").unwrap_or_default();
        let links = router.read("hellos.links").unwrap_or_default();
        for line in links.lines() {
            let mut words = line.splitn(4, ' ');
            let (Some(link), Some(node), Some(state)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let (Ok(link), Ok(node)) = (link.parse::<u16>(), node.parse()) else { continue };
            let mut count = |handler: String| {
                router.read(&handler).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
            };
            let relayed = self.relaying.as_ref().and_then(|relaying| lock(relaying).path_of_link(link));
            let Path { text: path, traffic: relayed, .. } =
                relayed.unwrap_or_else(|| Path { text: "workers".to_owned(), ..Path::default() });
            traffic.links.push(LinkStatus {
                link,
                interface: self.node.links.get(usize::from(link)).cloned().unwrap_or_default(),
                node,
                is_up: state == "up",
                problem: words.next().unwrap_or_default().to_owned(),
                path,
                received: count(format!("from{link}.packets")) + relayed.rx_packets,
                sent: count(format!("link{link}.packets")) + relayed.tx_packets,
                direct_bytes: sum_of(&by_link, link, 1),
                balanced_bytes: sum_of(&by_link, link, 2),
                relayed_bytes: relayed_by
                    .lines()
                    .nth(link.into())
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0),
            });
        }
        traffic
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.host.protector.end();
    }
}

impl Follow for Between {
    fn on_change(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.host.protector.on_change(wake);
    }

    fn leave(&mut self, router: &mut Router) {
        // A worker may hang.
        router.post("hellos.drain", "true");
        self.host.stop_daemon();
        std::thread::sleep(REST);
    }

    fn look(&mut self, service: &Service, router: &mut Router) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(report) = self.keys.as_mut().and_then(HelloKeys::look) {
            self.host.message(&report);
        }
        let leader = self.host.leader.load(Ordering::SeqCst);
        problems.extend(self.protect(leader, service, router));
        if self.told != Some(leader) {
            let text = node_text(leader);
            for handler in ["fabric.leader", "leader.node"] {
                problems.extend(router.write(handler, &text).err());
            }
            self.told = Some(leader);
        }
        // Read first, so that a change meanwhile is found at the next look.
        let version = self.host.version.load(Ordering::SeqCst);
        if self.version != version && self.node.role == Role::Edge {
            let nodes = fronts::argument(&lock(&self.host.config));
            problems.extend(router.write(&format!("{ROUTERS}.node"), &nodes).err());
        }
        self.version = version;
        if self.host.leaves.load(Ordering::SeqCst) {
            match self.draining_since {
                None => {
                    problems.extend(router.write("hellos.drain", "true").err());
                    self.draining_since = Some(Instant::now());
                }
                Some(since) if since.elapsed() >= REST => {
                    let this = rustix::process::getpid();
                    // As Ctrl-C does.
                    problems.extend(
                        rustix::process::kill_process(this, rustix::process::Signal::INT)
                            .err()
                            .map(|error| error.to_string()),
                    );
                }
                Some(_) => {}
            }
        }
        if self.looked.is_none_or(|at| at.elapsed() >= TRAFFIC_PERIOD) {
            self.looked = Some(Instant::now());
            if let Some(relaying) = &self.relaying {
                problems.extend(lock(relaying).look());
            }
            *lock(&self.host.traffic) = self.traffic(router);
            self.host.set_reached(reached(router));
        }
        problems
    }
}

/// Adds up a column of the lines that begin with the number of a link: each worker has one.
fn sum_of(text: &str, link: u16, column: usize) -> u64 {
    let lines = text.lines().map(|line| line.split(' ').map(|word| word.parse::<u64>().unwrap_or(0)));
    let of_link = lines.filter(|words| words.clone().next() == Some(link.into()));
    of_link.filter_map(|mut words| words.nth(column)).sum()
}

/// Returns what a handler that wants a node gets.
fn node_text(node: u32) -> String {
    if node == NOBODY { String::new() } else { node.to_string() }
}

/// Writes to the elements that follow something of Linux. Returns what went wrong.
fn tell_followers(router: &mut Router, what: Followed, value: &str) -> Vec<String> {
    let all = Follows::of(router.config()).into_iter().filter(|follows| follows.what == what);
    let targets: Vec<String> = all.flat_map(|follows| follows.targets).collect();
    targets.iter().filter_map(|target| router.write(target, value).err()).collect()
}

/// The nodes that the fabric has a way to.
fn reached(router: &mut Router) -> HashSet<u16> {
    let text = router.read("fabric.paths").unwrap_or_default();
    let lines = text.lines().filter(|line| !line.ends_with(" not directly, over nobody"));
    lines.filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
}
