//! Whole nodes, joined by links in memory and turned by threads on CPUs of their own.
//!
//! **Nothing can be lost.** What is in the cluster are the nodes' frames, and every ring has room for all of them. A node whose
//! frames are all on their way takes nothing from its port until some come home: so the cluster takes in what it can carry, as
//! senders with windows would have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use fabric::{Far, Topology};
use fib::{Adjacency, Fib};
use graph::graph::GraphOptions;
use graph::lang::Source;
use graph::setup::Shared;
use packet::{Batch, Pool, PoolOptions, cycles};
use ports::{MemoryLoop, OpenOptions, Port, PortError, PortInfo, QueueStats, RxQueue, TxQueue};

use crate::bench::cpus;
use crate::bench::mesh::{self, Cables, Joint, node_id, node_text};
use crate::bench::single_core::{SingleCore, cpu_cycles};

/// Frames of a node: enough for bursts on all of its links, and few enough to stay in its cache.
const FRAMES: usize = 1024;

/// A node, and where its packets are counted.
struct Node {
    core: SingleCore,
    /// Whether its own port receives.
    open: Arc<AtomicBool>,
    /// Elements that receive: from its own port, and from links.
    entrance: Option<usize>,
    links: Vec<usize>,
    /// Elements that send out of the cluster.
    exits: Vec<usize>,
}

/// Nodes that run together.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    joined: bool,
}

/// Packets, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Came in by a node's own port.
    pub(super) entered: u64,
    /// Came by a link.
    pub(super) carried: u64,
    /// Left by a node's own port.
    pub(super) left: u64,
    /// Were sent to their output node, directly and over an intermediate node.
    pub(super) direct: u64,
    pub(super) relayed: u64,
}

impl Counts {
    fn plus(self, other: Counts, sign: i64) -> Counts {
        let sum = |a: u64, b: u64| a.wrapping_add_signed(sign * b as i64);
        Counts {
            entered: sum(self.entered, other.entered),
            carried: sum(self.carried, other.carried),
            left: sum(self.left, other.left),
            direct: sum(self.direct, other.direct),
            relayed: sum(self.relayed, other.relayed),
        }
    }
}

/// What a run gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Within the time that was measured.
    pub(super) counts: Counts,
    /// Packets that left in a second in which each node has a CPU.
    pub(super) rate: f64,
    /// The same by the clock, which the balancers go by: less where nodes take turns or wait for other programs.
    pub(super) clock_rate: f64,
    /// Packets that came in and never left, from the start to when all was still.
    pub(super) lost: u64,
}

impl Nodes {
    /// A mesh of nodes with these tables. Frames come in by the port of each.
    pub(super) fn mesh(
        templates: &[Vec<u8>],
        fibs: &[Fib<Adjacency>],
        burst: usize,
        joint: Joint,
    ) -> Result<Self> {
        let count = fibs.len();
        let shape = format!("mesh({count})").parse().context("a mesh has two nodes or more")?;
        let topology = Topology::new(shape);
        let cables = Cables::new(count * FRAMES);
        let pool = PoolOptions { frames: FRAMES, ..PoolOptions::default() };
        let options = GraphOptions { burst, pool, simulated_time: None };
        let mut nodes = Vec::new();
        for (here, fib) in fibs.iter().enumerate() {
            let (own, open) = own_port(templates);
            let mut ports = vec![own];
            for link in topology.links(node_id(here)) {
                let Far::Node(far) = link.far else { bail!("a mesh has no switches") };
                ports.push(cables.end(link.cable, usize::from(far.index() < here))?);
            }
            let links = ports.len() - 1;
            let text = node_text(here, count, links, joint)?;
            let mut core = mesh::node(ports.into_iter(), fib, &options, text)?;
            let entrance = core.graph().find("entrance");
            let exits = core.graph().find("exit").into_iter().collect();
            let from = core.of_class("FromDevice").into_iter().filter(|&index| Some(index) != entrance);
            nodes.push(Node { links: from.collect(), core, open, entrance, exits });
        }
        Ok(Self { nodes, joined: true })
    }

    /// Routers that know nothing of each other: what the same CPUs do without a cluster.
    pub(super) fn apart(
        templates: &[Vec<u8>],
        count: usize,
        router: impl Fn(Box<dyn Port>) -> Result<SingleCore>,
    ) -> Result<Self> {
        let nodes = (0..count).map(|_| {
            let (own, open) = own_port(templates);
            Ok(Node::alone(router(own)?, open))
        });
        Ok(Self { nodes: nodes.collect::<Result<_>>()?, joined: false })
    }

    /// Two nodes that do nothing but pass packets over the link between them.
    pub(super) fn link(templates: &[Vec<u8>], burst: usize) -> Result<Self> {
        let cables = Cables::new(FRAMES);
        let pool = PoolOptions { frames: FRAMES, ..PoolOptions::default() };
        let options = GraphOptions { burst, pool, simulated_time: None };
        let node = |text: &str, ports: [Box<dyn Port>; 2]| {
            let source = Source { name: "link.click".into(), text: text.into() };
            SingleCore::build_with(&source, Vec::new(), &options, ports.into_iter(), &Shared::default())
        };
        let pass = "FromDevice(bench0) -> ToDevice(bench1);";
        let (own, open) = own_port(templates);
        let mut sender = Node::alone(node(pass, [own, cables.end(0, 0)?])?, open);
        sender.exits.clear();
        let null = ports::open("null:", &OpenOptions::default())?;
        let mut receiver = Node::alone(node(pass, [cables.end(0, 1)?, null])?, Arc::default());
        receiver.links.extend(receiver.entrance.take());
        Ok(Self { nodes: vec![sender, receiver], joined: false })
    }

    /// Turns all nodes with a thread on each of `cpus`, for so many seconds after a while to warm up.
    pub(super) fn run(&mut self, cpus: &[usize], seconds: f64) -> Result<Run> {
        let count = self.nodes.len();
        // Threads have the same number of nodes each, so that none waits for another.
        let threads = (1..=cpus.len().clamp(1, count)).rev().find(|threads| count.is_multiple_of(*threads));
        let each = count / threads.unwrap_or(1);
        let phase = AtomicU8::new(WARMING);
        // Threads that have made a round in a phase, of both phases.
        let begun = AtomicUsize::new(0);
        let (phase, begun, joined) = (&phase, &begun, self.joined);
        let (turned, elapsed) = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .nodes
                .chunks_mut(each)
                .zip(cpus)
                .map(|(nodes, &cpu)| {
                    scope.spawn(move || {
                        cpus::place_thread(cpus::this_thread(), cpu);
                        turn(nodes, phase, WARMING, begun);
                        let (before, begin) = (sum(nodes, joined)?, cpu_cycles());
                        turn(nodes, phase, MEASURING, begun);
                        let cycles = cpu_cycles() - begin;
                        Ok::<_, anyhow::Error>((sum(nodes, joined)?.plus(before, -1), cycles))
                    })
                })
                .collect();
            // Every thread must have had its CPU, however busy the machine is; one that ended has something to say.
            let wait = |seconds, rounds| {
                std::thread::sleep(Duration::from_secs_f64(seconds));
                while begun.load(Ordering::Acquire) < rounds
                    && threads.iter().all(|thread| !thread.is_finished())
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            wait(seconds.min(0.1), threads.len());
            phase.store(MEASURING, Ordering::Release);
            let start = Instant::now();
            wait(seconds, 2 * threads.len());
            phase.store(ENDED, Ordering::Release);
            let elapsed = start.elapsed();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow!("a node's thread panicked, see above"))?);
            Ok::<_, anyhow::Error>((ended.collect::<Result<Vec<_>>>()?, elapsed))
        })?;
        let mut counts = Counts::default();
        let mut spent = 0.0;
        for (part, cycles) in turned {
            counts = counts.plus(part, 1);
            spent += cycles;
        }
        let each_node = spent / count as f64 / cycles::per_second();
        let left = counts.left as f64;
        let (rate, clock_rate) = (left / each_node, left / elapsed.as_secs_f64());
        Ok(Run { counts, rate, clock_rate, lost: self.settle()? })
    }

    /// Lets what is in the cluster leave it; packets that do not.
    fn settle(&mut self) -> Result<u64> {
        self.nodes.iter().for_each(|node| node.open.store(false, Ordering::Relaxed));
        let mut still = 0;
        // A source that found nothing is looked at again within eight turns.
        while still < 1000 {
            let worked = self.nodes.iter_mut().fold(false, |worked, node| node.core.turn() | worked);
            still = if worked { 0 } else { still + 1 };
        }
        self.nodes.iter().for_each(|node| node.open.store(true, Ordering::Relaxed));
        let Counts { entered, left, .. } = sum(&mut self.nodes, self.joined)?;
        Ok(entered.saturating_sub(left))
    }
}

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const ENDED: u8 = 2;

/// Turns nodes by turns, as long as this phase lasts and once at least.
fn turn(nodes: &mut [Node], phase: &AtomicU8, during: u8, begun: &AtomicUsize) {
    let mut is_first = true;
    while is_first || phase.load(Ordering::Acquire) <= during {
        for _ in 0..64 {
            nodes.iter_mut().for_each(|node| {
                node.core.turn();
            });
        }
        if std::mem::take(&mut is_first) {
            begun.fetch_add(1, Ordering::AcqRel);
        }
    }
}

fn sum(nodes: &mut [Node], joined: bool) -> Result<Counts> {
    nodes.iter_mut().try_fold(Counts::default(), |sum, node| Ok(sum.plus(node.counts(joined)?, 1)))
}

impl Node {
    /// One whose ports all lead out.
    fn alone(core: SingleCore, open: Arc<AtomicBool>) -> Self {
        let entrance = core.of_class("FromDevice").first().copied();
        Self { open, entrance, links: Vec::new(), exits: core.of_class("ToDevice"), core }
    }

    fn counts(&mut self, joined: bool) -> Result<Counts> {
        let graph = self.core.graph();
        let chooser = joined.then(|| graph.find("to")).flatten();
        let mut all = |elements: &[usize], handler: &str| {
            elements.iter().try_fold(0, |sum, &element| {
                let count = graph.read(element, handler, "").context("the element counts")?;
                Ok::<u64, anyhow::Error>(sum + count.map_err(anyhow::Error::msg)?.parse::<u64>()?)
            })
        };
        Ok(Counts {
            entered: all(self.entrance.as_slice(), "count")?,
            carried: all(&self.links, "count")?,
            left: all(&self.exits, "count")?,
            direct: all(chooser.as_slice(), "direct")?,
            relayed: all(chooser.as_slice(), "balanced")?,
        })
    }
}

/// A node's own port: frames out of memory, over and over, while it is open.
fn own_port(templates: &[Vec<u8>]) -> (Box<dyn Port>, Arc<AtomicBool>) {
    let open = Arc::new(AtomicBool::new(true));
    let inner = MemoryLoop::new(templates.to_vec());
    (Box::new(OwnPort { inner, open: Arc::clone(&open) }), open)
}

struct OwnPort {
    inner: MemoryLoop,
    open: Arc<AtomicBool>,
}

impl Port for OwnPort {
    fn info(&self) -> PortInfo {
        self.inner.info()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        Ok(Box::new(OwnRx { inner: self.inner.take_rx(queue)?, open: Arc::clone(&self.open) }))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        self.inner.take_tx(queue)
    }
}

struct OwnRx {
    inner: Box<dyn RxQueue>,
    open: Arc<AtomicBool>,
}

impl RxQueue for OwnRx {
    #[inline]
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        if self.open.load(Ordering::Relaxed) { self.inner.receive(pool, batch, max) } else { 0 }
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }
}
