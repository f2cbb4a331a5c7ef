//! Who is alive: what a node makes of the [`Hello`]s that it hears, and what it says in its own.
//!
//! **A neighbour is confirmed** when a hello of its echoes this node's incarnation: it was said after this node started. From
//! then on only hellos with a higher sequence are believed, so whatever was recorded is worthless, also after both have started again. A
//! neighbour that starts again has a newer incarnation, and is confirmed anew when its former one has not been heard for the dead
//! time. A node whose clock was put back finds in the echoes which incarnation its neighbours remember, and takes a newer one.
//!
//! **A link is up** with a confirmed neighbour that was heard there within the dead time, and that has confirmed and hears this
//! node too: so a link that is cut one way only is down for both. Between two nodes any link that is up will do.
//!
//! **Frames are believed** of a neighbour that is confirmed. That lasts longer than the dead time: a node that heard no
//! hellos for a moment still takes what others sent to it meanwhile.
//!
//! **All nodes know of every loss.** A node's [`Report`] names the neighbours that it has lost; it goes out with every hello, and others
//! carry it on. Two neighbours are joined when neither report says otherwise, so a dead node, whose last report says that all is well,
//! is dead by the reports of those around it. A newer version replaces an older one; a node that hears a report of itself with a
//! version that it did not issue takes a newer one. There always is one, since versions go round. Nobody's clock is compared with
//! another's.
//!
//! **Wrong wires and doubles** are reported, and not used: another cluster or topology, another node or another of its links than
//! the topology says, a node with our number. While one node with a number is heard, another with the same is not listened to.
//! Two nodes with one number echo each other's incarnations too: so each knows that the other is there now, and was not recorded.
//! Nothing of all this is believed of a hello whose tag is wrong ([`Hello::from_frame`]).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::hello::is_newer;
use crate::topology::Far;
use crate::{Echo, Hello, HelloError, NodeId, NodeSet, Paths, Report, Topology, Version};
use problems::Problem;

pub use problems::Refusal;

mod problems;

/// Reports of others in one hello, at most.
const CARRIED: usize = 8;
/// Dead times after which frames of a confirmed neighbour that says nothing are believed no more.
const BELIEVED_DEAD_TIMES: u64 = 10;
/// How long a node that heard another one with its own number echoes that, and does not take a newer incarnation once the other has
/// echoed its own.
const DOUBLE_LASTS_NS: u64 = 1_000_000_000;

const OTHER_KEY: &str =
    "a hello with another key than this cluster's came in; expected the same key file on all nodes";

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
    /// Hellos on a link are wrong, and not believed.
    Wrong {
        /// The link's number.
        link: u16,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// What was wrong on a link is so no more.
    Right {
        /// The link's number.
        link: u16,
        /// Hellos that were refused meanwhile.
        refused: u64,
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
            Event::Right { link, refused } => {
                write!(f, "fabric link {link}: wired rightly again, after {refused} hellos that were refused")
            }
        }
    }
}

/// A neighbour on a link.
#[derive(Clone, Debug)]
struct Peer {
    link: u16,
    node: NodeId,
    /// Its newest incarnation, and the last hello of that.
    said: Option<(u64, u64)>,
    /// Whether that incarnation has echoed one of this node's.
    is_confirmed: bool,
    /// When a hello of a confirmed incarnation came.
    last_ns: Option<u64>,
    /// Within the dead time.
    is_heard: bool,
    /// Whether its frames are believed.
    is_believed: bool,
    hears_us: bool,
    is_up: bool,
}

impl Peer {
    fn new(link: u16, node: NodeId) -> Peer {
        Peer {
            link,
            node,
            said: None,
            is_confirmed: false,
            last_ns: None,
            is_heard: false,
            is_believed: false,
            hears_us: false,
            is_up: false,
        }
    }

    /// Returns whether a confirmed incarnation was heard within the last `ns`.
    fn was_heard(&self, within_ns: u64, now_ns: u64) -> bool {
        self.is_confirmed && self.last_ns.is_some_and(|last_ns| now_ns.saturating_sub(last_ns) <= within_ns)
    }
}

/// The links of one node.
#[derive(Clone, Debug)]
pub struct Links {
    topology: Arc<Topology>,
    here: NodeId,
    cluster: u16,
    incarnation: u64,
    /// Hellos that were said.
    sequence: u64,
    wiring: u32,
    timing: Timing,
    peers: Vec<Peer>,
    /// Of the echoes: grows with every tick.
    turn: usize,
    /// The link by which a hello with this node's number came last, its incarnation, and when.
    double: Option<(u16, u64, u64)>,
    /// When another node with this one's number was heard, and not a hello that was recorded.
    double_ns: Option<u64>,
    /// By node; that of this node is there from the start.
    reports: Vec<Option<Report>>,
    /// Nodes whose reports are to be carried on, the most urgent first.
    carried: VecDeque<NodeId>,
    /// By link.
    problems: Vec<Problem>,
    events: Vec<Event>,
    has_changed: bool,
    /// When it was last told of anything.
    awake_ns: u64,
}

impl Links {
    /// The links of node `here`. `incarnation` is another one at every start, and higher than before as far as the caller can know:
    /// the nanoseconds since 1970, say.
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
            nodes.into_iter().map(move |node| Peer::new(number, node))
        };
        let peers =
            (0..).zip(topology.links(here)).flat_map(|(number, link)| peers(number, link.far)).collect();
        let mut reports = vec![None; topology.nodes()];
        if let Some(own) = reports.get_mut(here.index()) {
            let version = Version { incarnation, counter: 0 };
            *own = Some(Report {
                node: here,
                version,
                is_draining: false,
                lost: Some(topology.neighbours(here)),
            });
        }
        Links {
            here,
            cluster,
            incarnation,
            sequence: 0,
            wiring: digest(&topology),
            timing,
            peers,
            turn: 0,
            double: None,
            double_ns: None,
            reports,
            carried: VecDeque::new(),
            problems: vec![Problem::default(); topology.links(here).len()],
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
        self.sequence += 1;
        let heard = self.peers.iter().filter(|peer| peer.link == link && peer.is_heard);
        let mut reports: Vec<Report> = self.reports[self.here.index()].clone().into_iter().collect();
        let turns = self.carried.len().min(CARRIED);
        reports.extend(self.carried.iter().take(turns).filter_map(|node| self.reports[node.index()].clone()));
        Hello {
            cluster: self.cluster,
            node: self.here,
            link,
            incarnation: self.incarnation,
            sequence: self.sequence,
            wiring: self.wiring,
            heard: heard.map(|peer| peer.node).collect(),
            echoes: self.echoes(link),
            reports,
        }
    }

    /// The incarnations of neighbours on `link`: first of those that have yet to confirm this node, then of others in turn.
    fn echoes(&self, link: u16) -> Vec<Echo> {
        let mut known: Vec<&Peer> =
            self.peers.iter().filter(|peer| peer.link == link && peer.said.is_some()).collect();
        if !known.is_empty() {
            let first = self.turn.wrapping_mul(Hello::MOST_ECHOES) % known.len();
            known.rotate_left(first);
        }
        // Those of each kind stay in their order.
        known.sort_by_key(|peer| peer.hears_us);
        let is_there = |at_ns: u64| self.awake_ns.saturating_sub(at_ns) < DOUBLE_LASTS_NS;
        let double = self.double.filter(|&(its_link, _, at_ns)| its_link == link && is_there(at_ns));
        let double = double.map(|(_, incarnation, _)| Echo { node: self.here, incarnation });
        let echo = |peer: &Peer| Some(Echo { node: peer.node, incarnation: peer.said?.0 });
        let peers = known.into_iter().filter_map(echo);
        double.into_iter().chain(peers).take(Hello::MOST_ECHOES).collect()
    }

    /// A hello came by `link`, whose tag is right.
    ///
    /// # Errors
    /// [`Refusal`]: nothing of it is believed.
    pub fn receive(&mut self, link: u16, hello: &Hello, now_ns: u64) -> Result<(), Refusal> {
        if usize::from(link) >= self.problems.len() {
            return Err(Refusal::Wire);
        }
        self.wake(now_ns);
        if let Some((cause, problem)) = self.problem(link, hello, now_ns) {
            if cause == Refusal::Number {
                self.double = Some((link, hello.incarnation, now_ns));
                if hello.echo_of(self.here) == Some(self.incarnation) {
                    self.double_ns = Some(now_ns);
                }
            }
            return Err(self.refused(link, cause, problem, now_ns));
        }
        let event = self.problems[usize::from(link)].believed(link, now_ns);
        self.events.extend(event);
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.link == link && peer.node == hello.node)
        else {
            return Err(Refusal::Wire);
        };
        match peer.said {
            Some((incarnation, sequence)) if incarnation == hello.incarnation => {
                if hello.sequence <= sequence {
                    return Err(Refusal::Replay);
                }
            }
            Some((incarnation, _)) if !is_newer(hello.incarnation, incarnation) => {
                return Err(Refusal::Replay);
            }
            _ => peer.is_confirmed = false,
        }
        peer.said = Some((hello.incarnation, hello.sequence));
        let echo = hello.echo_of(self.here);
        peer.is_confirmed |= echo == Some(self.incarnation);
        if peer.is_confirmed {
            peer.last_ns = Some(now_ns);
            peer.hears_us = hello.heard.contains(self.here);
            hello.reports.iter().for_each(|report| self.learn(report));
        }
        self.look(now_ns);
        let has_double = self.double_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < DOUBLE_LASTS_NS);
        if let Some(echo) = echo
            && is_newer(echo, self.incarnation)
            && !has_double
        {
            self.incarnation = echo.wrapping_add(1);
        }
        Ok(())
    }

    /// A frame came by `link` that is not a hello of this cluster. Returns as what it is to be counted.
    pub fn refuse(&mut self, link: u16, error: HelloError, now_ns: u64) -> Refusal {
        let cause = match error {
            HelloError::Version(_) => Refusal::Version,
            HelloError::Key { cluster } if cluster != self.cluster => Refusal::Cluster,
            HelloError::Key { .. } => Refusal::Key,
            HelloError::Length | HelloError::Node(_) | HelloError::Source => Refusal::Malformed,
        };
        let problem = match error {
            HelloError::Key { cluster } if cluster != self.cluster => self.other_cluster(cluster),
            HelloError::Key { .. } => OTHER_KEY.to_owned(),
            other => other.to_string(),
        };
        self.refused(link, cause, problem, now_ns)
    }

    fn refused(&mut self, link: u16, cause: Refusal, problem: String, now_ns: u64) -> Refusal {
        if let Some(known) = self.problems.get_mut(usize::from(link)) {
            self.events.extend(known.refused(link, cause, problem, now_ns));
        }
        cause
    }

    fn other_cluster(&self, cluster: u16) -> String {
        format!("a node of cluster {cluster} is there; this is cluster {}", self.cluster)
    }

    /// Time has passed: says who was not heard for too long. To be called as often as hellos are said.
    pub fn tick(&mut self, now_ns: u64) {
        self.wake(now_ns);
        self.look(now_ns);
        // Other reports have their turn next.
        let turns = self.carried.len().min(CARRIED);
        self.carried.rotate_left(turns);
        self.turn = self.turn.wrapping_add(1);
    }

    /// Ticks come as often as hellos are said. Where they did not, this node waited for its CPU (or its virtual machine did), and has yet to
    /// read what its neighbours said meanwhile: that time does not count against them.
    fn wake(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.awake_ns);
        self.awake_ns = self.awake_ns.max(now_ns);
        if passed_ns > 2 * self.timing.hello_ns {
            let slept_ns = passed_ns - self.timing.hello_ns;
            for last_ns in self.peers.iter_mut().filter_map(|peer| peer.last_ns.as_mut()) {
                *last_ns = last_ns.saturating_add(slept_ns).min(now_ns);
            }
        }
    }

    /// Whether this node asks others to relay nothing over it, because it is about to leave.
    pub fn drain(&mut self, is_draining: bool) {
        if let Some(own) = &mut self.reports[self.here.index()]
            && own.is_draining != is_draining
        {
            (own.is_draining, own.version) = (is_draining, own.version.next());
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
        let relays =
            |node: NodeId| self.reports[node.index()].as_ref().is_some_and(|report| !report.is_draining);
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
        self.problems.get(usize::from(link))?.text()
    }

    /// The neighbours on `link` whose frames are believed. Changes only when [`Links::changed_paths`] returns new ones.
    pub fn believed(&self, link: u16) -> NodeSet {
        let believed = self.peers.iter().filter(|peer| peer.link == link && peer.is_believed);
        believed.map(|peer| peer.node).collect()
    }

    /// The neighbours on all links, and whether each link is up.
    pub fn neighbours(&self) -> impl Iterator<Item = (u16, NodeId, bool)> + '_ {
        self.peers.iter().map(|peer| (peer.link, peer.node, peer.is_up))
    }

    fn dead_ns(&self) -> u64 {
        self.timing.hello_ns * u64::from(self.timing.dead_after)
    }

    /// Why a hello is not believed.
    fn problem(&self, link: u16, hello: &Hello, now_ns: u64) -> Option<(Refusal, String)> {
        let Hello { node, .. } = *hello;
        if hello.cluster != self.cluster {
            return Some((Refusal::Cluster, self.other_cluster(hello.cluster)));
        }
        if node == self.here {
            return Some(if hello.incarnation == self.incarnation {
                (Refusal::Loop, format!("it leads back to this node's link {}", hello.link))
            } else {
                (Refusal::Number, format!("another node with number {node}, this node's, is there"))
            });
        }
        if hello.wiring != self.wiring {
            let shape = self.topology.shape();
            let problem = format!("node {node} has another topology than this node's {shape}");
            return Some((Refusal::Topology, problem));
        }
        let ours = self.topology.links(self.here)[usize::from(link)];
        let theirs = self.topology.links(node).get(usize::from(hello.link));
        let is_right = theirs.is_some_and(|theirs| match ours.far {
            Far::Node(_) => theirs.cable == ours.cable,
            Far::Switch(_) => theirs.far == ours.far,
        });
        if !is_right {
            let there = format!("link {} of node {node} is there", hello.link);
            let problem = match ours.far {
                Far::Node(far) => {
                    let number =
                        (0..).zip(self.topology.links(far)).find(|(_, link)| link.cable == ours.cable);
                    let number = number.map_or(0, |(number, _)| number);
                    format!("{there}; expected link {number} of node {far}")
                }
                Far::Switch(switch) => format!("{there}; expected one to switch {switch}"),
            };
            return Some((Refusal::Wire, problem));
        }
        let peer = self.peers.iter().find(|peer| peer.link == link && peer.node == node)?;
        let (incarnation, _) = peer.said?;
        (is_newer(hello.incarnation, incarnation) && peer.was_heard(self.dead_ns(), now_ns)).then(|| {
            let problem =
                format!("two nodes with number {node} are there, or it has just been started again");
            (Refusal::Twice, problem)
        })
    }

    /// Takes a report that is newer than the one known.
    fn learn(&mut self, report: &Report) {
        let Some(known) = self.reports.get_mut(report.node.index()) else { return };
        if report.node == self.here {
            // From before this node was started, or nothing that it ever said.
            if let Some(own) = known
                && (report.version.is_newer_than(own.version)
                    || (report.version == own.version && report != own))
            {
                own.version = report.version.next();
            }
            return;
        }
        if known.as_ref().is_none_or(|known| report.version.is_newer_than(known.version)) {
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
            peer.is_heard = peer.was_heard(dead_ns, now_ns);
            peer.hears_us &= peer.is_heard;
            let is_believed = peer.was_heard(dead_ns.saturating_mul(BELIEVED_DEAD_TIMES), now_ns);
            self.has_changed |= is_believed != peer.is_believed;
            peer.is_believed = is_believed;
            let is_up = peer.is_heard && peer.hears_us;
            if is_up != peer.is_up {
                peer.is_up = is_up;
                self.has_changed = true;
                let (link, node) = (peer.link, peer.node);
                self.events.push(if is_up {
                    Event::LinkUp { link, node }
                } else {
                    Event::LinkDown { link, node, one_way: peer.is_heard }
                });
            }
        }
        if self.has_changed {
            let mut lost = self.topology.neighbours(self.here);
            lost.retain(|&node| !self.peers.iter().any(|peer| peer.is_up && peer.node == node));
            if let Some(own) = &mut self.reports[self.here.index()]
                && own.lost.as_ref() != Some(&lost)
            {
                (own.lost, own.version) = (Some(lost), own.version.next());
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
