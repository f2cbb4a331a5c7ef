//! A graph in memory for tests: packets in, packets out, time that stands still.
//!
//! [`Bench`] compiles a configuration in which `TestInput` elements stand for what comes from outside and
//! `TestOutput` elements keep what arrives (`TestOutput(DATA true)` says that only the data count). It runs on the calling thread with simulated time.
//!
//! ```no_run
//! # use graph::testing::Bench;
//! # let registry = graph::graph::Registry::new();
//! let mut bench = Bench::new(&registry, "in :: TestInput -> Strip(2) -> out :: TestOutput;");
//! bench.push("in", &[b"abcd"]);
//! assert_eq!(bench.taken("out"), [b"cd"]);
//! ```

use packet::sync::lock;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use packet::flow::FlowKey;
use packet::{Batch, MAX_BATCH, Packet, Pool, PoolOptions};

use crate::context::{Context, ElementStats};
use crate::element::{Class, ConfigError, Element, TaskStatus};
use crate::graph::{Graph, GraphOptions, Registry};
use crate::lang::{self, Options, Source};
use crate::router::Control;
use crate::setup::{CopyId, Setup, Shared};

static INPUT: Class = Class {
    name: "TestInput",
    ports: "0/1",
    manual: "Packets given by a test.",
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Input { waiting: Vec::new() }))
    },
    ..Class::DEFAULT
};

static OUTPUT: Class = Class {
    name: "TestOutput",
    ports: "1/0",
    manual: "Packets kept for a test.",
    make: |setup| {
        let data_alone = setup.arguments.keyword_or("DATA", false)?;
        setup.arguments.finish()?;
        let kept = setup.shared_by_copies(|| Ok::<_, ConfigError>(Kept::default()))?;
        Ok(Box::new(Output { kept, data_alone }))
    },
    ..Class::DEFAULT
};

/// Pushed by [`Bench::push`]; pulled from what the bench left.
struct Input {
    waiting: Vec<Packet>,
}

impl Element for Input {
    fn pull(&mut self, _cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let count = max.min(self.waiting.len());
        for packet in self.waiting.drain(..count) {
            batch.push(packet);
        }
    }
    fn task(&mut self, _cx: &mut Context) -> TaskStatus {
        TaskStatus::Asleep
    }
}

#[derive(Default)]
struct Kept(Mutex<Vec<Packet>>);

struct Output {
    kept: Arc<Kept>,
    data_alone: bool,
}

impl Element for Output {
    fn takes_data_alone(&self) -> bool {
        self.data_alone
    }

    fn push(&mut self, _cx: &mut Context, _input: usize, batch: &mut Batch) {
        lock(&self.kept.0).extend(batch.drain());
    }
}

/// A graph on a test bench.
#[derive(Debug)]
pub struct Bench {
    graph: Graph,
    shared: Shared,
    messages: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    /// Compiles and starts a configuration; panics with all diagnostics when it has mistakes.
    pub fn new(registry: &Registry, config: &str) -> Self {
        Self::with_burst(registry, config, 32)
    }

    /// As [`Bench::new`], with a burst size (1 gives the packet order of Click).
    pub fn with_burst(registry: &Registry, config: &str, burst: usize) -> Self {
        match Self::try_new(registry, config, burst, &Shared::default()) {
            Ok(bench) => bench,
            Err(text) => panic!("the configuration has mistakes:\n{text}"),
        }
    }

    /// Compiles and starts a configuration, or returns the rendered diagnostics.
    pub fn try_new(registry: &Registry, config: &str, burst: usize, shared: &Shared) -> Result<Self, String> {
        let mut registry = registry.clone();
        registry.add(&[&INPUT, &OUTPUT]);
        let source = Source { name: "test.click".into(), text: config.into() };
        let (flat, mut diagnostics) = lang::compile(&source, &Options::default(), &registry);
        let Some(flat) = flat.filter(|_| !diagnostics.has_errors()) else {
            return Err(diagnostics.render(false));
        };
        let messages = Arc::new(Mutex::new(Vec::new()));
        let sink = messages.clone();
        let control = Control::new(move |line: &str| {
            lock(&sink).push(line.to_owned());
        });
        let options = GraphOptions {
            burst,
            pool: PoolOptions { frames: 4096, ..PoolOptions::default() },
            simulated_time: Some(crate::clock::SIMULATED_START_NS),
        };
        let copy = CopyId { index: 0, workers: 1, slow_thread: false };
        // The same flows take the same ways in every run.
        let Ok(_) = shared.get_or_make(Shared::FLOW_KEY, || Ok::<_, Infallible>(FlowKey::from_seed(0)));
        match Graph::build(&Arc::new(flat), &registry, shared, copy, &options, &control) {
            Ok(graph) => Ok(Self { graph, shared: shared.clone(), messages }),
            Err(problems) => {
                for problem in problems {
                    diagnostics.push(problem);
                }
                Err(diagnostics.render(false))
            }
        }
    }

    /// A bench around one element, `TEXT` being its class and configuration: inputs `in0`, `in1` ..., outputs
    /// `out0`, `out1` ..., the element itself is called `e`.
    pub fn element(registry: &Registry, text: &str, inputs: usize, outputs: usize) -> Self {
        let mut config = format!("e :: {text};\n");
        for port in 0..inputs {
            config.push_str(&format!("in{port} :: TestInput -> [{port}]e;\n"));
        }
        for port in 0..outputs {
            config.push_str(&format!("e[{port}] -> out{port} :: TestOutput;\n"));
        }
        Self::new(registry, &config)
    }

    fn index(&self, name: &str) -> usize {
        self.graph.find(name).unwrap_or_else(|| panic!("the test's configuration has no element '{name}'"))
    }

    /// The pool of frames.
    pub fn pool(&mut self) -> &mut Pool {
        self.graph.pool()
    }

    /// The graph.
    pub fn graph(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// Makes a packet of these bytes from the bench's pool.
    pub fn packet(&mut self, bytes: &[u8]) -> Packet {
        let mut packet = self.graph.context().allocate().expect("the bench has enough frames");
        assert!(packet.set_data(bytes), "the bytes fit a frame");
        packet
    }

    /// Pushes packets of these bytes out of the `TestInput` called `input`, in batches of the burst size.
    pub fn push(&mut self, input: &str, packets: &[&[u8]]) {
        let packets = packets.iter().map(|bytes| self.packet(bytes)).collect();
        self.push_packets(input, packets);
    }

    /// Pushes packets out of the `TestInput` called `input`, in batches of the burst size. Into a pull
    /// path they wait until they are pulled.
    pub fn push_packets(&mut self, input: &str, packets: Vec<Packet>) {
        let index = self.index(input);
        let flat = &self.graph.config().elements[index];
        if flat.output_kinds[0] == lang::PortKind::Pull {
            panic!("'{input}' stands in a pull path; put a Queue behind it");
        }
        let mut packets = packets.into_iter().peekable();
        while packets.peek().is_some() {
            let burst = self.graph.context().burst();
            self.graph.enter(index, |_, cx| {
                let mut batch = cx.spare_batch();
                for packet in packets.by_ref().take(burst) {
                    batch.push(packet);
                }
                cx.emit_batch(0, &mut batch);
                cx.recycle(batch);
            });
        }
    }

    /// Pulls up to `max` packets into the `TestOutput` called `output`; returns how many came.
    pub fn pull(&mut self, output: &str, max: usize) -> usize {
        let index = self.index(output);
        self.graph
            .enter(index, |element, cx| {
                let mut batch = cx.spare_batch();
                cx.pull(0, &mut batch, max.min(MAX_BATCH));
                let count = batch.len();
                element.push(cx, 0, &mut batch);
                cx.recycle(batch);
                count
            })
            .unwrap_or(0)
    }

    /// The packets that arrived at the `TestOutput` called `output` since the last call.
    pub fn taken_packets(&mut self, output: &str) -> Vec<Packet> {
        let kept = self
            .shared
            .get::<Kept>(&format!("element:{output}"))
            .unwrap_or_else(|| panic!("the test's configuration has no TestOutput '{output}'"));
        std::mem::take(&mut *lock(&kept.0))
    }

    /// The data of the packets that arrived at the `TestOutput` called `output` since the last call.
    pub fn taken(&mut self, output: &str) -> Vec<Vec<u8>> {
        self.taken_packets(output).iter().map(|packet| packet.data().to_vec()).collect()
    }

    /// Runs tasks and due timers until a turn finds nothing to do, at most `turns` times.
    pub fn run(&mut self, turns: usize) {
        for _ in 0..turns {
            if !self.graph.context().turn() {
                return;
            }
        }
    }

    /// Moves time forward by `ns`, stopping at every timer on the way, and runs tasks and timers (at most
    /// 1,000 turns at each stop).
    pub fn advance_ns(&mut self, ns: u64) {
        let end = self.graph.context().now_ns() + ns;
        loop {
            let due = self.graph.context().next_timer_ns().filter(|&due| due <= end);
            self.graph.context().clock.set(due.unwrap_or(end));
            self.run(1000);
            if due.is_none() {
                return;
            }
        }
    }

    /// Reads `element.handler argument`; panics when there is no such handler.
    pub fn read(&mut self, path: &str) -> String {
        let (target, argument) = path.split_once(' ').unwrap_or((path, ""));
        let (element, handler) = target.rsplit_once('.').expect("ELEMENT.HANDLER");
        let index = self.index(element);
        match self.graph.read(index, handler, argument) {
            Some(Ok(value)) => value,
            Some(Err(error)) => panic!("reading {path}: {error}"),
            None => panic!("no element {element}"),
        }
    }

    /// Writes a handler.
    pub fn write(&mut self, target: &str, value: &str) -> Result<(), String> {
        let (element, handler) = target.rsplit_once('.').expect("ELEMENT.HANDLER");
        let index = self.index(element);
        self.graph.write(index, handler, value).unwrap_or_else(|| Err(format!("no element {element}")))
    }

    /// What the element called `name` did so far.
    pub fn stats(&mut self, name: &str) -> ElementStats {
        let index = self.index(name);
        self.graph.element_stats(index)
    }

    /// How many packets the element called `name` dropped for `reason`.
    pub fn drops(&mut self, name: &str, reason: &str) -> u64 {
        self.stats(name).drops.iter().filter(|(known, _)| *known == reason).map(|(_, count)| count).sum()
    }

    /// The messages that elements printed since the last call.
    pub fn messages(&mut self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.messages))
    }
}

/// Makes an element for a test of its configuration alone: the messages of what is wrong, if anything is.
pub fn configure(class: &'static Class, config: &str) -> Result<(), Vec<String>> {
    let flat = lang::FlatElement {
        name: "e".into(),
        class: class.name.into(),
        capabilities: class.capabilities,
        config: config.into(),
        location: lang::Location { file: "test.click".into(), line: 1, column: 1, length: 1 },
        inputs: 1,
        outputs: 1,
        input_kinds: vec![lang::PortKind::Push],
        output_kinds: vec![lang::PortKind::Push],
    };
    let copy = CopyId { index: 0, workers: 1, slow_thread: false };
    let made = (class.make)(&mut Setup::new(&flat, &Shared::default(), copy));
    made.map(|_| ()).map_err(|error| error.messages)
}
