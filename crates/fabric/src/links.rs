//! Who is alive: what a node makes of the [`Hello`]s that it hears, and what it says in its own.
//!
//! **A link is up** with a neighbour that was heard there within the dead time, and that says it hears this node too: so a link
//! that is cut one way only is down for both. Between two nodes any link that is up will do.
//!
//! **All nodes know of every loss.** A node's [`Report`] names the neighbours that it has lost; it goes out with every hello, and others
//! carry it on. Two neighbours are joined when neither report says otherwise, so a dead node, whose last report says that all is well,
//! is dead by the reports of those around it. A higher version replaces a lower; a node that starts again and
//! hears its own old report takes a version above it. Nobody's clock is compared with another's.
//!
//! **Wrong wires and doubles** are told, and their links stay down: another cluster or topology, another node or another of its links than the
//! topology says, a node with our number. While one node with a number is heard, another with the same is not listened to.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::topology::Far;
use crate::{Hello, NodeId, NodeSet, Paths, Report, Topology};

/// Reports of others in one hello, at most.
const CARRIED: usize = 8;
/// How long nothing must be wrong on a link until that is told.
const PROBLEM_LASTS_NS: u64 = 1_000_000_000;

/// How often, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between two hellos.
    pub hello_ns: u64,
    /// Hellos that must be missed for a link to be down.
    pub dead_after: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { hello_ns: 10_000_000, dead_after: 3 }
    }
}

/// What an operator wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link works, both ways.
    LinkUp {
        /// The link's number.
        link: u16,
        /// Who is there.
        node: NodeId,
    },
    /// It does no more.
    LinkDown {
        /// The link's number.
        link: u16,
        /// Who was there.
        node: NodeId,
        /// Whether the neighbour is still heard, but does not hear this node.
        one_way: bool,
    },
    /// Something on a link is wrong, and it stays down.
    Wrong {
        /// The link's number.
        link: u16,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// What was wrong on a link is so no more.
    Right {
        /// The link's number.
        link: u16,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::LinkUp { link, node } => write!(f, "fabric link {link}: node {node} is up"),
            Event::LinkDown { link, node, one_way: false } => {
                write!(f, "fabric link {link}: node {node} is not heard any more")
            }
            Event::LinkDown { link, node, one_way: true } => {
                write!(f, "fabric link {link}: node {node} is heard, but does not hear this node")
            }
            Event::Wrong { link, problem } => write!(f, "fabric link {link}: {problem}"),
            Event::Right { link } => write!(f, "fabric link {link}: wired rightly again"),
        }
    }
}

/// A neighbour on a link.
#[derive(Clone, Debug)]
struct Peer {
    link: u16,
    node: NodeId,
    heard_ns: Option<u64>,
    incarnation: u64,
    hears_us: bool,
    is_up: bool,
}

/// The links of one node.
#[derive(Clone, Debug)]
pub struct Links {
    topology: Arc<Topology>,
    here: NodeId,
    cluster: u16,
    incarnation: u64,
    wiring: u32,
    timing: Timing,
    peers: Vec<Peer>,
    /// By node; that of this node is there from the start.
    reports: Vec<Option<Report>>,
    /// Nodes whose reports are to be carried on, the most urgent first.
    carried: VecDeque<NodeId>,
    /// By link: what is wrong, and when that was last seen.
    problems: Vec<Option<(String, u64)>>,
    events: Vec<Event>,
    has_changed: bool,
    /// When it was last told of anything.
    awake_ns: u64,
}

impl Links {
    /// The links of node `here`. `incarnation` is drawn at random at every start.
    pub fn new(
        topology: Arc<Topology>,
        here: NodeId,
        cluster: u16,
        incarnation: u64,
        timing: Timing,
    ) -> Links {
        let peers = |number: u16, far: Far| {
            let nodes = match far {
                Far::Node(node) => vec![node],
                Far::Switch(_) => topology.neighbours(here),
            };
            nodes.into_iter().map(move |node| Peer {
                link: number,
                node,
                heard_ns: None,
                incarnation: 0,
                hears_us: false,
                is_up: false,
            })
        };
        let peers =
            (0..).zip(topology.links(here)).flat_map(|(number, link)| peers(number, link.far)).collect();
        let mut reports = vec![None; topology.nodes()];
        if let Some(own) = reports.get_mut(here.index()) {
            *own =
                Some(Report { node: here, version: 0, rests: false, lost: Some(topology.neighbours(here)) });
        }
        Links {
            here,
            cluster,
            incarnation,
            wiring: digest(&topology),
            timing,
            peers,
            reports,
            carried: VecDeque::new(),
            problems: vec![None; topology.links(here).len()],
            events: Vec::new(),
            has_changed: true,
            awake_ns: 0,
            topology,
        }
    }

    /// How often to say hello.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// What to say on `link` now.
    pub fn hello(&mut self, link: u16) -> Hello {
        let heard = self.peers.iter().filter(|peer| peer.link == link && peer.heard_ns.is_some());
        let mut reports: Vec<Report> = self.reports[self.here.index()].clone().into_iter().collect();
        let turns = self.carried.len().min(CARRIED);
        reports.extend(self.carried.iter().take(turns).filter_map(|node| self.reports[node.index()].clone()));
        Hello {
            cluster: self.cluster,
            node: self.here,
            link,
            incarnation: self.incarnation,
            wiring: self.wiring,
            heard: heard.map(|peer| peer.node).collect(),
            reports,
        }
    }

    /// A hello came by `link`.
    pub fn receive(&mut self, link: u16, hello: &Hello, now_ns: u64) {
        if usize::from(link) >= self.problems.len() {
            return;
        }
        self.wake(now_ns);
        let problem = self.problem(link, hello, now_ns);
        let is_fine = problem.is_none();
        self.tell(link, problem, now_ns);
        if !is_fine {
            return;
        }
        let here = self.here;
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.link == link && peer.node == hello.node)
        else {
            return;
        };
        peer.heard_ns = Some(now_ns);
        peer.incarnation = hello.incarnation;
        peer.hears_us = hello.heard.contains(here);
        hello.reports.iter().for_each(|report| self.learn(report));
        self.look(now_ns);
    }

    /// Time has passed: says who was not heard for too long. To be called as often as hellos are said.
    pub fn tick(&mut self, now_ns: u64) {
        self.wake(now_ns);
        self.look(now_ns);
        // Other reports have their turn next.
        let turns = self.carried.len().min(CARRIED);
        self.carried.rotate_left(turns);
    }

    /// Ticks come as often as hellos are said. Where they did not, this node waited for its CPU (or its virtual machine did), and has yet to
    /// read what its neighbours said meanwhile: that time does not count against them.
    fn wake(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.awake_ns);
        self.awake_ns = self.awake_ns.max(now_ns);
        if passed_ns > 2 * self.timing.hello_ns {
            let slept_ns = passed_ns - self.timing.hello_ns;
            for heard_ns in self.peers.iter_mut().filter_map(|peer| peer.heard_ns.as_mut()) {
                *heard_ns = heard_ns.saturating_add(slept_ns).min(now_ns);
            }
        }
    }

    /// Whether this node asks others to relay nothing over it, because it is about to leave.
    pub fn rest(&mut self, rests: bool) {
        if let Some(own) = &mut self.reports[self.here.index()]
            && own.rests != rests
        {
            (own.rests, own.version) = (rests, own.version + 1);
            self.has_changed = true;
        }
    }

    /// The ways that are alive, if that may have changed since this was last asked.
    pub fn changed_paths(&mut self) -> Option<Paths> {
        std::mem::take(&mut self.has_changed).then(|| self.paths())
    }

    /// The ways that are alive.
    pub fn paths(&self) -> Paths {
        let is_up = |node: NodeId, link: u16| {
            self.peers.iter().any(|peer| peer.is_up && peer.link == link && peer.node == node)
        };
        let lost: Vec<Option<NodeSet>> =
            self.reports.iter().map(|report| self.lost(report.as_ref())).collect();
        let has = |a: NodeId, b: NodeId| lost[a.index()].as_ref().is_some_and(|lost| !lost.contains(b));
        let relays = |node: NodeId| self.reports[node.index()].as_ref().is_some_and(|report| !report.rests);
        Paths::over(Arc::clone(&self.topology), self.here, is_up, |a, b| has(a, b) && has(b, a), relays)
    }

    /// The neighbours that a report says are lost; of a node that nobody heard of, it is not known that it has any.
    fn lost(&self, report: Option<&Report>) -> Option<NodeSet> {
        report?.lost.as_ref().map(|lost| lost.iter().copied().collect())
    }

    /// What happened since this was last asked.
    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What is wrong on a link now.
    pub fn problem_of(&self, link: u16) -> Option<&str> {
        self.problems.get(usize::from(link))?.as_ref().map(|(problem, _)| problem.as_str())
    }

    /// The neighbours on all links, and whether each link is up.
    pub fn neighbours(&self) -> impl Iterator<Item = (u16, NodeId, bool)> + '_ {
        self.peers.iter().map(|peer| (peer.link, peer.node, peer.is_up))
    }

    fn dead_ns(&self) -> u64 {
        self.timing.hello_ns * u64::from(self.timing.dead_after)
    }

    /// Why a hello is not believed.
    fn problem(&self, link: u16, hello: &Hello, now_ns: u64) -> Option<String> {
        let Hello { node, .. } = *hello;
        if hello.cluster != self.cluster {
            return Some(format!(
                "a node of cluster {} is there; this is cluster {}",
                hello.cluster, self.cluster
            ));
        }
        if node == self.here {
            return Some(if hello.incarnation == self.incarnation {
                format!("it leads back to this node's link {}", hello.link)
            } else {
                format!("another node with number {node}, this node's, is there")
            });
        }
        if hello.wiring != self.wiring {
            return Some(format!(
                "node {node} has another topology than this node's {}",
                self.topology.shape()
            ));
        }
        let ours = self.topology.links(self.here)[usize::from(link)];
        let theirs = self.topology.links(node).get(usize::from(hello.link));
        let is_right = theirs.is_some_and(|theirs| match ours.far {
            Far::Node(_) => theirs.cable == ours.cable,
            Far::Switch(_) => theirs.far == ours.far,
        });
        if !is_right {
            let there = format!("link {} of node {node} is there", hello.link);
            return Some(match ours.far {
                Far::Node(far) => {
                    let number =
                        (0..).zip(self.topology.links(far)).find(|(_, link)| link.cable == ours.cable);
                    format!(
                        "{there}; it should be link {} of node {far}",
                        number.map_or(0, |(number, _)| number)
                    )
                }
                Far::Switch(switch) => format!("{there}; it should be one to switch {switch}"),
            });
        }
        let peer = self.peers.iter().find(|peer| peer.link == link && peer.node == node)?;
        let is_fresh =
            peer.heard_ns.is_some_and(|heard_ns| now_ns.saturating_sub(heard_ns) <= self.dead_ns());
        (is_fresh && peer.incarnation != hello.incarnation)
            .then(|| format!("two nodes with number {node} are there, or it has just been started again"))
    }

    /// Tells what is wrong on a link when it begins and when it has ended. Where two nodes take turns (both with the same number on a
    /// switch, say), it has not ended because one of them is right.
    fn tell(&mut self, link: u16, problem: Option<String>, now_ns: u64) {
        let known = &mut self.problems[usize::from(link)];
        let lasts =
            known.as_ref().is_some_and(|(_, seen_ns)| now_ns.saturating_sub(*seen_ns) < PROBLEM_LASTS_NS);
        match problem {
            None if known.is_none() || lasts => {}
            None => {
                *known = None;
                self.events.push(Event::Right { link });
            }
            Some(problem) => {
                if known.as_ref().is_none_or(|(known, _)| *known != problem) {
                    self.events.push(Event::Wrong { link, problem: problem.clone() });
                }
                *known = Some((problem, now_ns));
            }
        }
    }

    /// Takes a report that is newer than the one known.
    fn learn(&mut self, report: &Report) {
        let Some(known) = self.reports.get_mut(report.node.index()) else { return };
        let version = known.as_ref().map(|known| known.version);
        if report.node == self.here {
            // From before this node was started.
            if let Some(own) = known
                && report.version >= own.version
                && report != own
            {
                own.version = report.version.saturating_add(1);
            }
            return;
        }
        if version.is_none_or(|version| report.version > version) {
            *known = Some(report.clone());
            self.carried.retain(|&node| node != report.node);
            self.carried.push_front(report.node);
            self.has_changed = true;
        }
    }

    /// Brings links and this node's report up to date.
    fn look(&mut self, now_ns: u64) {
        let dead_ns = self.dead_ns();
        for peer in &mut self.peers {
            if peer.heard_ns.is_some_and(|heard_ns| now_ns.saturating_sub(heard_ns) > dead_ns) {
                (peer.heard_ns, peer.hears_us) = (None, false);
            }
            let is_up = peer.heard_ns.is_some() && peer.hears_us;
            if is_up != peer.is_up {
                peer.is_up = is_up;
                self.has_changed = true;
                let (link, node) = (peer.link, peer.node);
                self.events.push(if is_up {
                    Event::LinkUp { link, node }
                } else {
                    Event::LinkDown { link, node, one_way: peer.heard_ns.is_some() }
                });
            }
        }
        if self.has_changed {
            let mut lost = self.topology.neighbours(self.here);
            lost.retain(|&node| !self.peers.iter().any(|peer| peer.is_up && peer.node == node));
            if let Some(own) = &mut self.reports[self.here.index()]
                && own.lost.as_ref() != Some(&lost)
            {
                (own.lost, own.version) = (Some(lost), own.version.saturating_add(1));
            }
        }
    }
}

/// A number that differs for different topologies (FNV-1a of the shape's text).
fn digest(topology: &Topology) -> u32 {
    let text = topology.shape().to_string();
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
