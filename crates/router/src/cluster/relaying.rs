//! Relaying in the kernel: which links of a node take part, and what goes by them.
//!
//! A BPF program does with frames for other nodes what FromFabric does; hellos and frames that have arrived go the way of all
//! frames, to the link's sockets and the graph. Where the sockets need no copy the graph relays, unless `driver = "xdp"` says
//! otherwise; which of the two is faster there nobody has measured.

use std::sync::{Arc, Mutex};

use elements::devices::OpenPort;
use elements::fabric::FabricRelay;
use graph::setup::Shared;
use packet::sync::lock;
use ports::{
    KernelLosses, KernelRelay, KernelTraffic, Link, Links, LossCounter, RelayLink, RelayTables, XdpFeatures,
    XdpWay,
};

use super::config::NodeConfig;
use super::run::link_port;
use crate::doctor::lacks_queues;
use crate::drop_in::{Path, by_kernel};

/// Why a link does not take part at the start, and while its interface is gone.
const NOT_OPEN: &str = "workers: it is not open";

/// A link's part.
#[derive(Debug)]
struct Member {
    number: u16,
    interface: String,
    /// What the program knows of it.
    known: Option<RelayLink>,
    /// What it was like at the last look, and whether it could carry frames.
    seen: Option<(RelayLink, bool)>,
    /// Whether its card would lose what some processors redirect to it.
    lacks_queues: bool,
    /// Frames that its driver had refused at the last look.
    refused: u64,
    /// Whether its driver has refused frames since something changed last.
    refuses: bool,
    /// How its frames travel, in words.
    path: String,
    /// What went wrong at the last look.
    problem: Option<String>,
}

/// See the top of the file.
#[derive(Debug)]
pub(crate) struct Relaying {
    shared: Shared,
    relay: Arc<FabricRelay>,
    tables: Arc<RelayTables>,
    losses: Option<LossCounter>,
    /// The interfaces and links of which losses are counted.
    counted: Vec<(u32, u16)>,
    members: Vec<Member>,
    /// Whether the kernel relays even where sockets need no copy.
    prefers_kernel: bool,
}

impl Relaying {
    const KEY: &str = "relaying in the kernel";

    /// Loads the program for a node of this cluster, unless its frames go by another driver or it has nobody to relay for. It takes
    /// part from the first [`Relaying::look`] on that finds its links open.
    pub(super) fn start(node: &NodeConfig, cluster: u16, shared: &Shared) -> Option<Arc<Mutex<Relaying>>> {
        let links = (0..).zip(&node.links).filter(|(_, interface)| !interface.is_empty());
        let members: Vec<Member> = links
            .map(|(number, interface)| Member {
                number,
                interface: interface.clone(),
                known: None,
                seen: None,
                lacks_queues: lacks_queues(interface),
                refused: 0,
                refuses: false,
                path: NOT_OPEN.to_owned(),
                problem: None,
            })
            .collect();
        if !node.relays_in_kernel() || members.len() < 2 {
            return None;
        }
        let made = shared.get_or_make(FabricRelay::KEY, || {
            KernelRelay::load(node.number, cluster).map(|relay| FabricRelay(Mutex::new(relay)))
        });
        let relay = match made {
            Ok(relay) => relay,
            Err(error) => {
                tracing::warn!("cluster: frames are not relayed in the kernel: {error}");
                return None;
            }
        };
        let losses = LossCounter::load();
        if let Err(error) = &losses {
            tracing::warn!("cluster: redirected frames that drivers lose are not counted: {error}");
        }
        let tables = lock(&relay.0).tables().clone();
        let prefers_kernel = node.driver == "xdp";
        let relaying = Relaying {
            shared: shared.clone(),
            relay,
            tables,
            losses: losses.ok(),
            counted: Vec::new(),
            members,
            prefers_kernel,
        };
        shared.get_or_make(Self::KEY, || Ok::<_, std::convert::Infallible>(Mutex::new(relaying))).ok()
    }

    /// Returns that of the node whose elements share this, if it has one.
    pub(crate) fn of(shared: &Shared) -> Option<Arc<Mutex<Relaying>>> {
        shared.get::<Mutex<Relaying>>(Self::KEY)
    }

    /// Returns how the frames of the link of this number travel.
    pub(super) fn path_of_link(&self, link: u16) -> Option<Path> {
        self.members.iter().find(|member| member.number == link).map(|member| self.path_of(member))
    }

    /// Returns what was relayed from and to a link.
    fn traffic(&self, link: u16) -> KernelTraffic {
        let mut traffic = self.tables.traffic(link);
        // Frames may be on their way through between the two looks.
        traffic.tx_packets = traffic.tx_packets.saturating_sub(self.losses(link).total());
        traffic
    }

    /// Returns what was lost on the way to a link.
    fn losses(&self, link: u16) -> KernelLosses {
        let counter = self.losses.as_ref();
        counter.and_then(|counter| counter.losses(link).ok()).unwrap_or_default()
    }

    /// Returns how the frames of all links travel, with the names of the links' ports.
    pub(crate) fn paths(&self) -> Vec<(String, Path)> {
        self.members.iter().map(|member| (link_port(&member.interface), self.path_of(member))).collect()
    }

    /// Returns how the frames of the link with this port travel.
    pub(crate) fn path(&self, port: &str) -> Option<Path> {
        let member = self.members.iter().find(|member| link_port(&member.interface) == port)?;
        Some(self.path_of(member))
    }

    fn path_of(&self, member: &Member) -> Path {
        Path {
            text: member.path.clone(),
            traffic: self.traffic(member.number),
            losses: self.losses(member.number),
        }
    }

    /// Brings the program in line with what the links are like now. Returns what went wrong.
    pub(super) fn look(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        let links = Links::ask().unwrap_or_default();
        let mut relay = lock(&self.relay.0);
        for at in 0..self.members.len() {
            let refused = self.losses(self.members[at].number).refused;
            let member = &mut self.members[at];
            member.refuses |= refused > member.refused;
            member.refused = refused;
            let port = self.shared.get::<OpenPort>(&OpenPort::key(&link_port(&member.interface)));
            let way = port.as_ref().and_then(|port| port.with(|port| port.xdp()));
            let name = ports::kernel_name(&member.interface);
            let (Some(port), Some(way), Some(link)) = (port, way, links.named(&name)) else {
                (member.known, member.path) = (None, NOT_OPEN.to_owned());
                continue;
            };
            let settled = member.settle(&mut relay, &port, way, link, self.prefers_kernel);
            let problem = settled.err().map(|error| format!("link '{}': {error}", member.interface));
            if let Some(problem) = &problem {
                member.path = format!("workers: {problem}");
            }
            if problem != member.problem {
                problems.extend(problem.clone());
                member.problem = problem;
            }
        }
        drop(relay);
        let known = self.members.iter().filter_map(|member| Some((member.known?.interface, member.number)));
        let counted: Vec<(u32, u16)> = known.collect();
        if counted != self.counted
            && let Some(counter) = &mut self.losses
        {
            match counter.set_ports(counted.iter().copied()) {
                Ok(()) => self.counted = counted,
                Err(error) => problems.push(format!("counting lost frames: {error}")),
            }
        }
        problems
    }
}

impl Member {
    /// Brings a link in line: what the program knows of it, and whether it gets its frames.
    fn settle(
        &mut self,
        relay: &mut KernelRelay,
        port: &OpenPort,
        way: XdpWay,
        link: &Link,
        prefers_kernel: bool,
    ) -> Result<(), String> {
        let features = XdpFeatures::ask(link.index).unwrap_or_default();
        let relays = prefers_kernel || !way.is_zero_copy;
        let like = RelayLink {
            interface: link.index,
            mtu: link.mtu as u32,
            receives: relays.then_some(way.mode),
            sends: !self.lacks_queues,
            sends_native: features.sends_redirected(),
            sends_native_fragments: features.has_fragments(),
        };
        let seen = Some((like, link.has_carrier));
        if self.seen != seen {
            // Its driver may take frames now.
            self.refuses = false;
            self.seen = seen;
        }
        let wanted = RelayLink { sends: like.sends && !self.refuses, ..like };
        let set = relay.set_link(self.number, wanted);
        let joins = set.is_ok() && relays;
        let joined = if joins == way.moves_in_kernel {
            Ok(())
        } else {
            port.with(|port| port.relay_in_kernel(joins.then_some((relay, self.number))))
        };
        self.known = Some(wanted);
        self.path = describe(way, &wanted, self);
        set.map_err(|error| error.to_string()).and(joined.map_err(|error| error.to_string()))
    }
}

/// Says how the frames of a link travel.
fn describe(way: XdpWay, link: &RelayLink, member: &Member) -> String {
    if link.receives.is_none() {
        return "workers: zero-copy".to_owned();
    }
    by_kernel(Some(way), member.lacks_queues, member.refuses, !link.sends_native)
}
