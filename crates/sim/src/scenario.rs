//! What is simulated: everything that the outcome depends on.

use fabric::{Mode, NodeId, Settings, Shape, Timing, Topology};

use crate::Matrix;
use crate::matrix::Rows;

/// A cluster, its traffic and what breaks.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Who is wired to whom.
    pub shape: Shape,
    /// R: the rate of each node's port, in and out, in bytes a second.
    pub ports_rate: u64,
    /// The rate of a link, each way, in bytes a second.
    pub link_rate: u64,
    /// How long a bit takes from one end of a link to the other.
    pub link_delay_ns: u64,
    /// What may wait for a link.
    pub link_queue_bytes: u64,
    /// What may wait for a port.
    pub port_queue_bytes: u64,
    /// What a node can do.
    pub costs: Costs,
    /// How paths are chosen.
    pub mode: Mode,
    /// How long a flow keeps its path without a packet; 0: every packet for itself.
    pub delta_ns: u64,
    /// How many flows each node remembers.
    pub flowlets: usize,
    /// Which traffic, as shares of R.
    pub matrix: Matrix,
    /// How much of what the matrix says is brought: above 0, at most 1.
    pub load: f64,
    /// Of which flows it is made.
    pub flows: Flows,
    /// What breaks when. Without any no hellos are said, and all know from the start that all is well.
    pub failures: Vec<Failure>,
    /// How often hellos are said, and how many must be missed.
    pub timing: Timing,
    /// Nothing before this time is measured.
    pub warm_ns: u64,
    /// When it ends.
    pub end_ns: u64,
    /// Another number, another run.
    pub seed: u64,
}

/// What a packet costs a node, which is one server: of several workers, a packet's time divided by their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// To take it from a port, look it up and choose its path, in nanoseconds.
    pub input_ns: f64,
    /// To pass it on between two links.
    pub relay_ns: f64,
    /// To take it from a link and send it out by a port.
    pub output_ns: f64,
    /// How much work may wait.
    pub queue_ns: u64,
}

impl Costs {
    /// Those of a node that handles so many bytes a second, whatever the role, if packets have `mean_bytes` on average.
    pub fn of_capacity(bytes_per_second: f64, mean_bytes: f64) -> Costs {
        let each = mean_bytes * 1e9 / bytes_per_second;
        Costs { input_ns: each, relay_ns: each, output_ns: each, queue_ns: 1_000_000 }
    }
}

/// Of which flows the traffic is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Flows {
    /// As a link of the Internet carries it: thousands of flows at once, most short, much of the traffic in long ones, in
    /// bursts. Their packets have 66 or 1,514 bytes, the outputs are drawn by the matrix for each flow. (What is drawn how:
    /// `heavy.rs`.)
    HeavyTailed,
    /// Equally busy flows without end, packets at random times (a Poisson process).
    Poisson {
        /// How many flows from each input to each output.
        per_pair: u32,
        /// Their packets.
        sizes: Sizes,
    },
}

/// The simple Internet mix: lengths in bytes, and how many packets of so many in all have them.
pub const IMIX: [(u16, u32); 3] = [(64, 7), (594, 4), (1_518, 1)];

/// The mix in the place of "Abilene-I", the trace by which RouteBricks (SOSP 2009, section 5.1) measured; the trace is not public.
///
/// The paper gives no length of its packets. Its rates bound the mean: a server that routes 6.35 Gb/s of 64-byte packets routes 24.6 Gb/s of the
/// trace (section 5.2), so packets have 64 x 24.6 / 6.35 = 248 bytes on average or more, as a long one takes at least the time of a short one. The
/// common mix has 362 bytes on average, and that is all there is to say for it.
pub const ABILENE: [(u16, u32); 3] = IMIX;

/// Lengths of packets, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All alike.
    Fixed(u16),
    /// Those of [`IMIX`].
    Imix,
    /// Those of [`ABILENE`].
    Abilene,
    /// Each as often as its weight says.
    Weighted(Vec<(u16, f64)>),
}

impl Sizes {
    /// Lengths and weights.
    pub(crate) fn weights(&self) -> Vec<(u16, f64)> {
        let of = |mix: &[(u16, u32)]| mix.iter().map(|&(bytes, weight)| (bytes, f64::from(weight))).collect();
        match self {
            Sizes::Fixed(bytes) => vec![(*bytes, 1.0)],
            Sizes::Imix => of(&IMIX),
            Sizes::Abilene => of(&ABILENE),
            Sizes::Weighted(weights) => weights.clone(),
        }
    }

    /// The mean length.
    pub fn mean(&self) -> f64 {
        let weights = self.weights();
        let all: f64 = weights.iter().map(|(_, weight)| weight).sum();
        weights.iter().map(|&(bytes, weight)| f64::from(bytes) * weight).sum::<f64>() / all
    }
}

/// Something that is broken for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What.
    pub broken: Broken,
    /// Since when.
    pub from_ns: u64,
    /// When it works again; a node then starts anew. May lie behind the end.
    pub until_ns: u64,
}

/// What may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A node, and with it its port.
    Node(NodeId),
    /// A link.
    Link {
        /// The node at one end.
        node: NodeId,
        /// The link's number there.
        link: u16,
        /// Which ways nothing comes through.
        ways: Ways,
    },
}

/// Which ways of a link are cut, seen from the node that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Both.
    Both,
    /// What the node sends is lost.
    Out,
    /// What is sent to the node is lost.
    In,
}

impl Broken {
    /// The first cable between two neighbours, cut both ways. `None`: there is none, or a switch in between.
    pub fn between(topology: &Topology, one: NodeId, other: NodeId) -> Option<Broken> {
        let is_there = |link: &fabric::Link| link.far == fabric::Far::Node(other);
        let link = topology.links(one).iter().position(is_there)? as u16;
        Some(Broken::Link { node: one, link, ways: Ways::Both })
    }
}

/// Why a scenario cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// Something that must not be 0.
    #[error("{0} is 0")]
    Zero(&'static str),
    /// Load.
    #[error("load is {0}; it is above 0 and at most 1")]
    Load(f64),
    /// Time.
    #[error("warm-up takes {warm_ns} ns of {end_ns}; something must be left to measure")]
    Time {
        /// Warm-up.
        warm_ns: u64,
        /// End.
        end_ns: u64,
    },
    /// Simulated time is counted in picoseconds.
    #[error("the end is at {0} ns; the clock goes to 10^15")]
    End(u64),
    /// More nodes than numbers.
    #[error("{0} nodes; at most {max}", max = NodeId::COUNT)]
    Nodes(usize),
    /// Costs of packets.
    #[error("a packet's cost is {0} ns; it is at least 0 and at most a second")]
    Cost(f64),
    /// Packets.
    #[error("packets of {bytes} bytes with weight {weight}; both are above 0")]
    Size {
        /// Length.
        bytes: u16,
        /// Weight.
        weight: f64,
    },
    /// More flows than can be numbered.
    #[error("{0} flows; at most 2^31")]
    ManyFlows(u64),
    /// The matrix has another size.
    #[error("the matrix has {rows} rows; {ports} nodes have ports")]
    Rows {
        /// Its rows.
        rows: usize,
        /// Nodes with ports.
        ports: usize,
    },
    /// One of its rows has.
    #[error("row {row} of the matrix has {columns} columns; {ports} nodes have ports")]
    Width {
        /// Which row, from 0.
        row: usize,
        /// Its columns.
        columns: usize,
        /// Nodes with ports.
        ports: usize,
    },
    /// No share.
    #[error("row {row}, column {column} of the matrix is {share}; a share is not below 0")]
    Share {
        /// From 0.
        row: usize,
        /// From 0.
        column: usize,
        /// What stands there.
        share: f64,
    },
    /// More than a port brings.
    #[error("the matrix asks input node {input} for {sum:.3} of R; a row's sum is at most 1")]
    Input {
        /// The row.
        input: NodeId,
        /// Its sum.
        sum: f64,
    },
    /// More than a port takes.
    #[error("the matrix asks output node {output} for {sum:.3} of R; a column's sum is at most 1")]
    Output {
        /// The column.
        output: NodeId,
        /// Its sum.
        sum: f64,
    },
    /// All shares are 0.
    #[error("the matrix asks for no traffic")]
    NoTraffic,
    /// A failure of something that is not there, or at no time.
    #[error("failure {number}: {reason}")]
    Failure {
        /// Its place in the list, from 0.
        number: usize,
        /// What is wrong.
        reason: String,
    },
}

impl Scenario {
    /// One with what is usual: links of 2R/N (in other shapes than mesh and star: R) and a twentieth more, nodes that can do more than
    /// they are asked for, uniform traffic, a tenth of a second behind 20 ms to warm up.
    pub fn new(shape: Shape, ports_rate: u64) -> Scenario {
        let of_links = match shape {
            Shape::Mesh { nodes, .. } | Shape::Star { nodes, switches: 1.. } => 2.0 / nodes.max(2) as f64,
            _ => 1.0,
        };
        // A star's one link carries what a mesh's links carry together.
        let of_links = if let Shape::Star { nodes, switches } = shape {
            of_links * nodes as f64 / f64::from(switches)
        } else {
            of_links
        };
        Scenario {
            shape,
            ports_rate,
            link_rate: (ports_rate as f64 * of_links * 1.05).ceil() as u64,
            link_delay_ns: 1000,
            link_queue_bytes: 4 << 20,
            port_queue_bytes: 4 << 20,
            costs: Costs { input_ns: 0.0, relay_ns: 0.0, output_ns: 0.0, queue_ns: 1_000_000 },
            mode: Mode::DirectVlb,
            delta_ns: Settings::DELTA_NS,
            flowlets: Settings::FLOWLETS,
            matrix: Matrix::Uniform,
            load: 1.0,
            flows: Flows::Poisson { per_pair: 8, sizes: Sizes::Imix },
            failures: Vec::new(),
            timing: Timing::default(),
            warm_ns: 20_000_000,
            end_ns: 120_000_000,
            seed: 1,
        }
    }

    /// Nodes with ports: the first ones.
    pub fn ports(&self) -> usize {
        match self.shape {
            Shape::Fly { arity, stages } => usize::from(arity).saturating_pow(stages.into()),
            _ => self.shape.nodes(),
        }
    }

    /// Whether it can be simulated.
    ///
    /// # Errors
    /// [`ScenarioError`] names what cannot be, and what was expected.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.checked().map(|_| ())
    }

    /// The matrix, if all is well.
    pub(crate) fn checked(&self) -> Result<Rows, ScenarioError> {
        let nodes = self.shape.nodes();
        if nodes > NodeId::COUNT {
            return Err(ScenarioError::Nodes(nodes));
        }
        let not_zero = [
            ("the number of nodes", nodes as u64),
            ("the ports' rate", self.ports_rate),
            ("the links' rate", self.link_rate),
            ("the time between hellos", self.timing.hello_ns),
            ("the number of hellos to miss", self.timing.dead_after.into()),
        ];
        if let Some((name, _)) = not_zero.into_iter().find(|&(_, value)| value == 0) {
            return Err(ScenarioError::Zero(name));
        }
        if !(self.load > 0.0 && self.load <= 1.0) {
            return Err(ScenarioError::Load(self.load));
        }
        if self.warm_ns >= self.end_ns {
            return Err(ScenarioError::Time { warm_ns: self.warm_ns, end_ns: self.end_ns });
        }
        if self.end_ns > 1_000_000_000_000_000 {
            return Err(ScenarioError::End(self.end_ns));
        }
        let Costs { input_ns, relay_ns, output_ns, .. } = self.costs;
        if let Some(cost) =
            [input_ns, relay_ns, output_ns].into_iter().find(|cost| !(0.0..=1e9).contains(cost))
        {
            return Err(ScenarioError::Cost(cost));
        }
        let rows = self.matrix.rows(&self.shape, self.ports(), self.seed)?;
        self.check_flows(&rows)?;
        self.check_failures()?;
        Ok(rows)
    }

    fn check_flows(&self, rows: &Rows) -> Result<(), ScenarioError> {
        let Flows::Poisson { per_pair, sizes } = &self.flows else { return Ok(()) };
        let weights = sizes.weights();
        if weights.is_empty() {
            return Err(ScenarioError::Zero("the number of packet sizes"));
        }
        let is_wrong = |&(bytes, weight): &(u16, f64)| bytes == 0 || !(weight > 0.0 && weight < 1e12);
        if let Some((bytes, weight)) = weights.into_iter().find(is_wrong) {
            return Err(ScenarioError::Size { bytes, weight });
        }
        let pairs: usize = rows.rows.iter().map(Vec::len).sum();
        match pairs as u64 * u64::from(*per_pair) {
            0 => Err(ScenarioError::Zero("the number of flows")),
            flows if flows > 1 << 31 => Err(ScenarioError::ManyFlows(flows)),
            _ => Ok(()),
        }
    }

    fn check_failures(&self) -> Result<(), ScenarioError> {
        if self.failures.is_empty() {
            return Ok(());
        }
        let most = usize::from(u16::MAX);
        if self.failures.len() > most {
            let reason = format!("at most {most} can be told apart");
            return Err(ScenarioError::Failure { number: most, reason });
        }
        let topology = Topology::new(self.shape.clone());
        for (number, failure) in self.failures.iter().enumerate() {
            let wrong = |reason| Err(ScenarioError::Failure { number, reason });
            if failure.from_ns >= failure.until_ns {
                return wrong(format!(
                    "it ends at {} ns and begins at {}",
                    failure.until_ns, failure.from_ns
                ));
            }
            let (Broken::Node(node) | Broken::Link { node, .. }) = failure.broken;
            if node.index() >= topology.nodes() {
                return wrong(format!("{} has no node {node}", self.shape));
            }
            if let Broken::Link { link, .. } = failure.broken
                && usize::from(link) >= topology.links(node).len()
            {
                return wrong(format!(
                    "node {node} has {} links, none with number {link}",
                    topology.links(node).len()
                ));
            }
        }
        Ok(())
    }
}
