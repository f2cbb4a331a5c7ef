//! What all fabric elements of a router share: which node this is, and which ways are alive.

use packet::sync::lock;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fabric::{Mode, NodeId, NodeSet, Paths, Settings, Shape, Timing, Topology};
use graph::arguments::{Arguments, Bandwidth, Interval};
use graph::{ConfigError, FromArgument, Setup};
use ports::RelayTables;

use super::FabricRelay;

/// A node, as a Fabric element says it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) here: NodeId,
    pub(super) cluster: u16,
    pub(super) topology: Arc<Topology>,
    /// Rates for the whole node.
    pub(super) settings: Settings,
    /// `None`: no hellos are said.
    pub(super) timing: Option<Timing>,
    ways: Mutex<Ways>,
    /// Grows when `ways` changes, so that workers look at one number a batch and take the lock when a link came or went.
    version: AtomicU64,
    /// The number of the node that leads, or [`NOBODY`].
    leader: AtomicU16,
    /// By copy of the graph and link: bytes that were relayed. Each is written by one thread only.
    relayed: Box<[Box<[AtomicU64]>]>,
    kernel: Option<Kernel>,
}

/// Between two looks at what the kernel has relayed.
const KERNEL_PERIOD_NS: u64 = 1_000_000;

/// What the kernel relays for this node.
#[derive(Debug)]
struct Kernel {
    tables: Arc<RelayTables>,
    /// When a worker looked last, in its clock's nanoseconds.
    looked_ns: AtomicU64,
    /// By link: bytes that had been relayed then, for each worker its part.
    relayed: Box<[AtomicU64]>,
    workers: u64,
}

/// What hellos say.
#[derive(Clone, Debug)]
pub(super) struct Ways {
    /// The ways that are alive.
    pub(super) paths: Arc<Paths>,
    /// By link: the neighbours whose frames are believed.
    pub(super) believed: Arc<[NodeSet]>,
}

impl Node {
    /// The node of the Fabric element that is the first argument of this one.
    pub(super) fn of_argument(setup: &mut Setup<'_>) -> Result<Arc<Node>, ConfigError> {
        let name: String = setup.arguments.required("FABRIC")?;
        match setup.find(&name) {
            Some(element) if element.class == "Fabric" => {
                Node::of_element(setup, &element.name, &element.config)
            }
            _ => {
                Err(ConfigError::new(format!("FABRIC: expected the name of a Fabric element, got '{name}'")))
            }
        }
    }

    /// The same for an element with nothing but that argument, and an output for each link of the node.
    pub(super) fn with_links(setup: &mut Setup<'_>) -> Result<Arc<Node>, ConfigError> {
        let node = Node::of_argument(setup)?;
        setup.arguments.finish()?;
        let (links, outputs) = (node.links(), setup.outputs());
        if outputs != links {
            let message = format!("{outputs} outputs; this node has {links} links, an output for each");
            return Err(ConfigError::new(message));
        }
        Ok(node)
    }

    /// The node that a Fabric element of this name and configuration says.
    pub(super) fn of_element(setup: &Setup<'_>, name: &str, config: &str) -> Result<Arc<Node>, ConfigError> {
        setup.shared().get_or_make(&format!("fabric:{name}"), || {
            let relay = setup.shared().get::<FabricRelay>(FabricRelay::KEY);
            let mut node = Node::read(&mut Arguments::new(config), setup.copy().count())?;
            let workers = setup.copy().workers.max(1) as u64;
            node.kernel = relay.map(|relay| {
                let tables = lock(&relay.0).tables().clone();
                let relayed = |link: usize| tables.traffic(link as u16).tx_bytes / workers;
                let relayed = (0..node.links()).map(|link| AtomicU64::new(relayed(link))).collect();
                Kernel { tables, looked_ns: AtomicU64::new(0), relayed, workers }
            });
            node.tell_kernel(&node.ways());
            Ok(node)
        })
    }

    fn read(arguments: &mut Arguments, copies: usize) -> Result<Node, ConfigError> {
        let shape: ShapeArgument = arguments.required("TOPOLOGY")?;
        let number: u16 = arguments.required("NODE")?;
        let cluster = arguments.keyword_or("CLUSTER", 0)?;
        let rate = arguments.keyword_or("RATE", Bandwidth { bytes_per_second: 1_250_000_000 })?;
        let link_rate = arguments.keyword_or("LINK_RATE", rate)?;
        let ModeArgument(mode) = arguments.keyword_or("MODE", ModeArgument(Mode::default()))?;
        let delta = arguments.keyword_or("DELTA", Interval { ns: Settings::DELTA_NS })?;
        let flowlets = arguments.keyword_or("FLOWLETS", Settings::FLOWLETS as u32)?;
        let default = Timing::default();
        let hello = arguments.keyword_or("HELLO", Interval { ns: default.hello_ns })?;
        let dead_after = arguments.keyword_or("DEAD", default.dead_after)?;
        arguments.finish()?;

        let shape: Shape =
            shape.0.parse().map_err(|error: fabric::TopologyError| ConfigError::new(error.to_string()))?;
        let topology = Arc::new(Topology::new(shape));
        let here = NodeId::new(number).filter(|here| here.index() < topology.nodes()).ok_or_else(|| {
            let highest = topology.nodes() - 1;
            ConfigError::new(format!("NODE: {number}; the nodes of {} are 0 to {highest}", topology.shape()))
        })?;
        if topology.links(here).len() > MOST_LINKS {
            let message = format!("{}: node {number} has more than {MOST_LINKS} links", topology.shape());
            return Err(ConfigError::new(message));
        }
        if dead_after == 0 {
            return Err(ConfigError::new("DEAD: expected at least 1"));
        }
        let timing = (hello.ns > 0).then_some(Timing { hello_ns: hello.ns, dead_after });
        // Nobody is there before he was heard.
        let is_alive = timing.is_none();
        let links = topology.links(here).len();
        let zeros = || (0..links).map(|_| AtomicU64::new(0)).collect();
        let paths = Paths::with(Arc::clone(&topology), here, |_| is_alive, |_, _| is_alive);
        // Without hellos nobody can prove who he is.
        let everybody = NodeId::first(topology.nodes()).filter(|_| is_alive).collect::<NodeSet>();
        let nodes = NodeId::first(topology.nodes()).filter(|&node| topology.may_have_ports(node)).count();
        Ok(Node {
            here,
            cluster,
            settings: Settings {
                mode,
                delta_ns: delta.ns,
                flowlets: flowlets as usize,
                ports_rate: rate.bytes_per_second,
                link_rate: link_rate.bytes_per_second,
                nodes,
                seed: u64::from(number) << 32,
            },
            timing,
            ways: Mutex::new(Ways { paths: Arc::new(paths), believed: vec![everybody; links].into() }),
            version: AtomicU64::new(0),
            leader: AtomicU16::new(NOBODY),
            relayed: (0..copies).map(|_| zeros()).collect(),
            kernel: None,
            topology,
        })
    }

    /// The ways that are alive.
    pub(super) fn paths(&self) -> Arc<Paths> {
        self.ways().paths
    }

    /// The same, and whose frames are believed.
    pub(super) fn ways(&self) -> Ways {
        lock(&self.ways).clone()
    }

    /// Says that other ways are alive now.
    pub(super) fn set_ways(&self, ways: Ways) {
        self.tell_kernel(&ways);
        *lock(&self.ways) = ways;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Has the kernel relay by these ways.
    fn tell_kernel(&self, ways: &Ways) {
        let Some(Kernel { tables, .. }) = &self.kernel else { return };
        for (link, believed) in (0..).zip(&*ways.believed) {
            tables.set_believed(link, !believed.is_empty());
        }
        for node in 0..=NodeId::COUNT as u16 {
            tables.set_towards(node, ways.paths.links_towards(node));
        }
    }

    /// Learns what the kernel has relayed, once in a while.
    #[inline]
    pub(super) fn look_at_kernel(&self, now_ns: u64) {
        let Some(kernel) = &self.kernel else { return };
        let looked_ns = kernel.looked_ns.load(Ordering::Relaxed);
        if now_ns.saturating_sub(looked_ns) < KERNEL_PERIOD_NS {
            return;
        }
        // One of the workers does it for all.
        let claim =
            kernel.looked_ns.compare_exchange(looked_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_ok() {
            for (link, relayed) in (0..).zip(&kernel.relayed) {
                let bytes = kernel.tables.traffic(link).tx_bytes;
                // A worker that was held up in between has an older sum.
                relayed.fetch_max(bytes / kernel.workers, Ordering::Relaxed);
            }
        }
    }

    /// A number that changes when the ways do.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The node whose Linux is the cluster's, if it is known.
    #[inline]
    pub(super) fn leader(&self) -> Option<NodeId> {
        NodeId::new(self.leader.load(Ordering::Relaxed))
    }

    /// Says which node leads.
    pub(super) fn set_leader(&self, leader: Option<NodeId>) {
        self.leader.store(leader.map_or(NOBODY, NodeId::number), Ordering::Relaxed);
    }

    /// Counts bytes that were relayed over a link, by a thread of its own.
    #[inline]
    pub(super) fn count_relayed(&self, copy: usize, link: usize, bytes: u64) {
        if let Some(count) = self.relayed.get(copy).and_then(|links| links.get(link)) {
            // Nobody else writes it.
            count.store(count.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that one copy of the graph has relayed over a link, with its part of those that the kernel has.
    #[inline]
    pub(super) fn relayed(&self, copy: usize, link: usize) -> u64 {
        let count = self.relayed.get(copy).and_then(|links| links.get(link));
        let in_kernel = self.kernel.as_ref().and_then(|kernel| kernel.relayed.get(link));
        let load = |count: Option<&AtomicU64>| count.map_or(0, |count| count.load(Ordering::Relaxed));
        load(count) + load(in_kernel)
    }

    /// Bytes that all copies of the graph and the kernel have relayed over a link.
    pub(super) fn relayed_by_all(&self, link: usize) -> u64 {
        let counts = self.relayed.iter().filter_map(|links| links.get(link));
        let in_kernel = self.kernel.as_ref().map_or(0, |kernel| kernel.tables.traffic(link as u16).tx_bytes);
        counts.map(|count| count.load(Ordering::Relaxed)).sum::<u64>() + in_kernel
    }

    /// How many links this node has.
    pub(super) fn links(&self) -> usize {
        self.topology.links(self.here).len()
    }

    /// Whether the fabric is one of switches, where the decision stands in a [`fabric::Shim`].
    pub(super) fn is_switched(&self) -> bool {
        matches!(self.topology.shape(), Shape::Star { .. })
    }
}

/// Instead of a node's number.
const NOBODY: u16 = u16::MAX;

/// Links are distinguished by a byte of the annotations.
const MOST_LINKS: usize = 255;

struct ShapeArgument(String);

impl FromArgument for ShapeArgument {
    const EXPECTED: &'static str = "topology";

    fn from_argument(text: &str) -> Option<Self> {
        String::from_argument(text).map(Self)
    }
}

struct ModeArgument(Mode);

impl FromArgument for ModeArgument {
    const EXPECTED: &'static str = "direct-vlb, direct-vlb-others, classic-vlb or single-path";

    fn from_argument(text: &str) -> Option<Self> {
        let text = String::from_argument(text)?;
        Mode::NAMES.iter().find(|(name, _)| *name == text).map(|&(_, mode)| Self(mode))
    }
}
