//! A graph on one thread, turned as fast as it goes: how benches measure our own fast path.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use elements::devices::OpenPort;
use graph::context::ElementStats;
use graph::graph::{Graph, GraphOptions};
use graph::lang::{FlatConfig, Options, Source};
use graph::router::{Control, CopyStats};
use graph::setup::{CopyId, Shared};
use packet::flow::FlowKey;
use packet::{PoolOptions, cycles};
use ports::Port;

use super::example;
use router::load;

/// Number of the example router's ports.
pub(super) const ROUTER_PORTS: usize = 4;

/// Frames of the pool.
const FRAMES: usize = 8192;

/// A graph that receives, or one with sources and one `Discard`.
pub(super) struct SingleCore {
    graph: Graph,
    flat: Arc<FlatConfig>,
    /// The elements whose packets count.
    from: Vec<usize>,
    burst: usize,
}

/// What a run gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Packets received.
    pub(super) packets: u64,
    /// CPU time of the thread, in TSC cycles: unlike the counter itself it leaves out what other programs took.
    pub(super) cycles: f64,
}

impl Run {
    /// TSC cycles a packet.
    pub(super) fn cycles_per_packet(self) -> f64 {
        self.cycles / self.packets.max(1) as f64
    }
}

impl SingleCore {
    /// `FromDevice -> ToDevice`, with bursts of these numbers of packets.
    pub(super) fn minimal(
        input: Box<dyn Port>,
        output: Option<Box<dyn Port>>,
        rx_burst: usize,
        tx_burst: usize,
    ) -> Result<Self> {
        let to = if output.is_some() { "bench1" } else { "bench0" };
        let text =
            format!("from :: FromDevice(bench0, BURST {rx_burst}) -> ToDevice({to}, BURST {tx_burst});");
        let source = Source { name: "io.click".into(), text };
        let ports = std::iter::once(input).chain(output);
        Self::build(&source, Vec::new(), rx_burst.max(tx_burst), ports, &Shared::default())
    }

    /// The example router with the routes in the file `table`. Frames come in by its first port; the gateways that the
    /// routes lead to are behind the others, and their link addresses are known.
    pub(super) fn router(ports: [Box<dyn Port>; ROUTER_PORTS], table: &Path, burst: usize) -> Result<Self> {
        let source = Source { name: "ip-router.click".into(), text: example::ROUTER.into() };
        let shared = Shared::default();
        let parameters = example::parameters(table);
        let mut router = Self::build(&source, parameters, burst, ports.into_iter(), &shared)?;
        for port in 1..ROUTER_PORTS {
            let querier = router
                .graph
                .find(&format!("out{port}/arp"))
                .context("the example router has a querier for each port")?;
            let entry = format!("10.0.{port}.2 02:00:00:00:0{port}:02");
            router
                .graph
                .write(querier, "insert", &entry)
                .context("the querier is in this copy")?
                .map_err(anyhow::Error::msg)?;
        }
        Ok(router)
    }

    /// A graph on this thread with real time; the configuration calls its ports bench0, bench1, ... `shared` holds what else
    /// its elements need.
    pub(super) fn build(
        source: &Source,
        parameters: Vec<(String, String)>,
        burst: usize,
        ports: impl Iterator<Item = Box<dyn Port>>,
        shared: &Shared,
    ) -> Result<Self> {
        Self::build_with(source, parameters, &Self::options(burst), ports, shared)
    }

    /// Bursts of so many packets and the usual pool.
    pub(super) fn options(burst: usize) -> GraphOptions {
        let pool = PoolOptions { frames: FRAMES, ..PoolOptions::default() };
        GraphOptions { burst, pool, simulated_time: None }
    }

    /// The same with other options.
    pub(super) fn build_with(
        source: &Source,
        parameters: Vec<(String, String)>,
        options: &GraphOptions,
        ports: impl Iterator<Item = Box<dyn Port>>,
        shared: &Shared,
    ) -> Result<Self> {
        let registry = router::classes();
        let flat = load::compile(source, &Options { parameters, ..Options::default() }, &registry)
            .ok_or_else(|| anyhow!("see above"))?;
        let flat = Arc::new(flat);
        for (number, port) in ports.enumerate() {
            shared.get_or_make(&OpenPort::key(&format!("bench{number}")), || {
                Ok::<_, anyhow::Error>(OpenPort::new(port))
            })?;
        }
        // Every run of a bench sends the same flows the same ways.
        shared.get_or_make(Shared::FLOW_KEY, || Ok::<_, anyhow::Error>(FlowKey::from_seed(0)))?;
        let control = Control::new(graph::messages::print);
        let copy = CopyId { index: 0, workers: 1, slow_thread: false };
        let graph = Graph::build(&flat, &registry, shared, copy, options, &control).map_err(|problems| {
            load::report(problems);
            anyhow!("see above")
        })?;
        // Where nothing is received, what arrives at the sink counts.
        let mut core = Self { graph, from: Vec::new(), flat, burst: options.burst };
        core.from = core.of_class("FromDevice");
        if core.from.is_empty() {
            core.from = core.of_class("Discard");
            core.from.truncate(1);
        }
        if core.from.is_empty() {
            bail!("nothing receives packets");
        }
        Ok(core)
    }

    /// Turns the graph for about `seconds`.
    pub(super) fn run(&mut self, seconds: f64) -> Run {
        let before = self.received();
        let (begin, start) = (cpu_cycles(), Instant::now());
        let length = Duration::from_secs_f64(seconds);
        while start.elapsed() < length {
            for _ in 0..256 {
                self.graph.context().turn();
            }
        }
        Run { cycles: cpu_cycles() - begin, packets: self.received() - before }
    }

    fn received(&mut self) -> u64 {
        self.from.iter().map(|&from| self.graph.element_stats(from).packets).sum()
    }

    /// The graph itself, for its handlers.
    pub(super) fn graph(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// Counts from zero again.
    pub(super) fn reset_stats(&mut self) {
        self.graph.reset_stats();
    }

    /// The `ToDevice`s that send by ports, or those that stand for Linux.
    fn senders(&self, to_linux: bool) -> Vec<usize> {
        let is_one = |&index: &usize| self.flat.elements[index].config.starts_with("host:") == to_linux;
        self.of_class("ToDevice").into_iter().filter(is_one).collect()
    }

    /// Packets that reached what stands for Linux since the last reset.
    pub(super) fn given_to_linux(&mut self) -> u64 {
        self.senders(true).into_iter().map(|sender| self.graph.element_stats(sender).passed()).sum()
    }

    /// Packets that were received and that left by ports since the last reset.
    pub(super) fn passed(&mut self) -> (u64, u64) {
        let ports = self.senders(false);
        let sent = ports.into_iter().map(|sender| self.graph.element_stats(sender).passed()).sum();
        (self.received(), sent)
    }

    /// What each element did since the last reset. All that was received must have left by a port or, if `some_to_linux`,
    /// have reached what stands for Linux.
    pub(super) fn checked_stats(&mut self, some_to_linux: bool) -> Result<Vec<(&str, ElementStats)>> {
        let stats = self.graph.stats();
        let received: u64 = self.from.iter().map(|&from| stats[from].packets).sum();
        let ports = self.senders(false);
        let mut sent: u64 = ports.iter().map(|&port| stats[port].passed()).sum();
        if some_to_linux {
            sent += self.given_to_linux();
        }
        // On their way may be a burst of each that receives, and less than one before each port.
        let on_their_way = self.burst * (ports.len() + self.from.len());
        if sent + (on_their_way as u64) < received {
            let pool = self.graph.pool_stats();
            let copy = CopyStats { copy: 0, elements: stats, pool, busy: 1.0, busy_ns: 0 };
            let summary = router::run::summary(&self.flat, &[copy], &[]);
            bail!("{received} packets came in and only {sent} left:\n{summary}");
        }
        Ok(self.flat.elements.iter().map(|element| element.class.as_str()).zip(stats).collect())
    }

    /// Numbers of the elements of a class.
    pub(super) fn of_class(&self, class: &str) -> Vec<usize> {
        let is_one = |&index: &usize| self.flat.elements[index].class == class;
        (0..self.flat.elements.len()).filter(is_one).collect()
    }

    /// One turn.
    pub(super) fn turn(&mut self) -> bool {
        self.graph.context().turn()
    }

    /// Packets received since the last reset.
    pub(super) fn packets(&mut self) -> u64 {
        self.received()
    }
}

/// CPU time of this thread in TSC cycles.
pub(super) fn cpu_cycles() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (time.tv_sec as f64 + time.tv_nsec as f64 / 1e9) * cycles::per_second()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::bench::{drop_in, frames, routes};
    use packet::{Batch, Pool};
    use ports::{MemoryLoop, OpenOptions, PortError, PortInfo, QueueStats, RxQueue, TxQueue};

    fn null() -> Box<dyn Port> {
        ports::open("null:", &OpenOptions::default()).unwrap()
    }

    /// A port that never has room.
    struct Full(Box<dyn Port>);

    impl Port for Full {
        fn info(&self) -> PortInfo {
            self.0.info()
        }

        fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
            self.0.take_rx(queue)
        }

        fn take_tx(&mut self, _queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
            Ok(Box::new(FullTx))
        }
    }

    struct FullTx;

    impl TxQueue for FullTx {
        fn send(&mut self, _pool: &mut Pool, _batch: &mut Batch) -> usize {
            0
        }

        fn stats(&self) -> QueueStats {
            QueueStats::default()
        }
    }

    #[test]
    fn what_a_port_drops_has_not_left() {
        let looped = || Box::new(MemoryLoop::new(vec![vec![0; 64]]));
        let mut core = SingleCore::minimal(looped(), Some(Box::new(Full(null()))), 32, 32).unwrap();
        core.run(0.01);
        let error = core.checked_stats(false).unwrap_err().to_string();
        assert!(error.contains("only") && error.contains("transmit queue full"), "{error}");
        let mut core = SingleCore::minimal(looped(), Some(null()), 32, 32).unwrap();
        core.run(0.01);
        core.checked_stats(false).unwrap();
    }

    #[test]
    fn packets_count_by_whichever_port_they_come() {
        let frames = || frames::templates(&routes::default_route(), 1, 60);
        let second = || -> Box<dyn Port> {
            let to_second = |mut frame: Vec<u8>| {
                frame[..6].copy_from_slice(&frames::port_mac(1).0);
                frame
            };
            Box::new(MemoryLoop::new(frames().into_iter().map(to_second).collect()))
        };
        let first = || -> Box<dyn Port> { Box::new(MemoryLoop::new(frames())) };
        let fib = drop_in::fib(&routes::default_route()).unwrap();
        for ports in [[null(), second(), null(), null()], [first(), second(), null(), null()]] {
            let mut core = drop_in::router(ports, &fib, 32).unwrap();
            let packets = core.run(0.01).packets;
            let stats = core.checked_stats(false).unwrap();
            let sent: u64 =
                stats.iter().filter(|(class, _)| *class == "ToDevice").map(|(_, stats)| stats.passed()).sum();
            // On their way may be a burst before each port.
            assert!(packets > 0 && packets.abs_diff(sent) <= 32 * 4, "{packets} {sent}");
        }
    }

    #[test]
    fn what_goes_to_linux_has_not_left_by_a_port() {
        let mut sent = frames::templates(&routes::default_route(), 64, 64);
        sent.iter_mut().for_each(|frame| frames::add_options(frame));
        let ports: [Box<dyn Port>; ROUTER_PORTS] = [Box::new(MemoryLoop::new(sent)), null(), null(), null()];
        let fib = drop_in::fib(&routes::default_route()).unwrap();
        let mut core = drop_in::router(ports, &fib, 32).unwrap();
        core.run(0.01);
        assert!(core.checked_stats(false).unwrap_err().to_string().contains("only 0 left"));
        core.checked_stats(true).unwrap();
    }
}
