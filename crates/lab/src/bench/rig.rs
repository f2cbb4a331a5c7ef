//! A core under load, for experiments: an application, a source, bursts. Cycles a packet at full speed, and at a rate what is lost, how busy the core is and
//! how late packets are.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use elements::devices::balance::Balancer;
use graph::graph::GraphOptions;
use graph::lang::Source;
use graph::router::RouterOptions;
use graph::setup::Shared;
use packet::sync::lock;
use packet::{PoolOptions, cycles};
use ports::{MemoryLoop, OpenOptions, Port};

use super::single_core::SingleCore;
use super::sources::{Drawn, Meter, Paced};
use super::{example, frames, median, routes};

/// What is done with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Application {
    /// FromDevice -> ToDevice.
    Forwarding,
    /// Header check, lookup in a table with a default route, TTL, Ethernet header.
    Routing {
        /// As lookups name it.
        table: &'static str,
    },
}

/// What comes in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Traffic {
    /// Bytes of a frame, without the frame check sequence.
    pub(crate) size: usize,
    /// Destinations are drawn anew in 2^`bits` networks of 256 addresses; without, all go to one.
    pub(crate) bits: Option<u32>,
    /// Packets a second; without, as fast as they are taken.
    pub(crate) rate: Option<f64>,
    /// At a rate: packets that come at a time, as a card hands them over.
    pub(crate) together: u64,
}

impl Traffic {
    /// Frames of 64 bytes at full speed to one destination.
    pub(crate) const SMALL: Traffic = Traffic { size: 60, bits: None, rate: None, together: 1 };
}

/// What one run at a rate gave.
#[derive(Clone, Debug)]
pub(crate) struct AtRate {
    /// Millions that arrived and that were forwarded, a second.
    pub(crate) offered_mpps: f64,
    pub(crate) mpps: f64,
    /// Cycles a packet without polls that brought nothing.
    pub(crate) cycles: f64,
    /// Nanoseconds from arrival to the end of the send, of the middle packet.
    pub(crate) median_ns: f64,
}

/// An application on one core with its source.
pub(crate) struct Rig {
    core: SingleCore,
    meter: Option<Arc<Mutex<Meter>>>,
}

/// Text of [`Application::Routing`].
pub(super) const ROUTING: &str =
    "from :: FromDevice(bench0, BURST $RX) -> Strip(14) -> CheckIPHeader(VERBOSE false)
    -> rt :: RadixIPLookup(0.0.0.0/0 10.0.1.2 0, TABLE $TABLE)
    -> DecIPTTL -> EtherEncap(0x0800, 02:00:00:00:01:01, 02:00:00:00:01:02) -> ToDevice(bench1, BURST $TX);";

impl Rig {
    /// Makes a rig that takes `rx` packets at a time and sends `tx`.
    pub(crate) fn new(application: Application, traffic: Traffic, rx: usize, tx: usize) -> Result<Rig> {
        let templates = frames::templates(&routes::default_route(), 1, traffic.size);
        let mut port: Box<dyn Port> = Box::new(MemoryLoop::new(templates));
        if let Some(bits) = traffic.bits {
            port = Box::new(Drawn { port, bits });
        }
        let mut meter = None;
        let mut output: Box<dyn Port> = ports::open("null:", &OpenOptions::default())?;
        if let Some(rate) = traffic.rate {
            let paced = Paced::new(port, &[rate], traffic.together);
            meter = paced.meters.first().cloned();
            output = paced.output(output);
            port = Box::new(paced);
        }
        let text = match application {
            Application::Forwarding => {
                "from :: FromDevice(bench0, BURST $RX) -> ToDevice(bench1, BURST $TX);"
            }
            Application::Routing { .. } => ROUTING,
        };
        let mut parameters = vec![("RX".to_owned(), rx.to_string()), ("TX".to_owned(), tx.to_string())];
        if let Application::Routing { table } = application {
            parameters.push(("TABLE".to_owned(), table.to_owned()));
        }
        let source = Source { name: "rig.click".into(), text: text.into() };
        let ports = [port, output].into_iter();
        let core = SingleCore::build(&source, parameters, rx.max(tx), ports, &Shared::default())?;
        Ok(Rig { core, meter })
    }

    /// Makes a rig of a graph that is there, whose packets this meter counts if they come at a rate.
    pub(super) fn of(core: SingleCore, meter: Option<Arc<Mutex<Meter>>>) -> Rig {
        Rig { core, meter }
    }

    /// Runs with elements in a row working one by one; returns the cycles of a packet in each class of elements.
    ///
    /// # Errors
    /// The rig lost packets.
    pub(crate) fn profile(&mut self, seconds: f64) -> Result<Vec<(String, f64)>> {
        self.core.graph().set_fused(false);
        self.core.run(seconds.min(0.05));
        self.core.reset_stats();
        self.core.run(seconds);
        let packets = self.core.packets() as f64;
        let stats = self.core.checked_stats(false)?;
        Ok(stats.into_iter().map(|(class, stats)| (class.to_owned(), stats.cycles / packets)).collect())
    }

    /// Runs for so many seconds; returns cycles a packet.
    pub(crate) fn run(&mut self, seconds: f64) -> f64 {
        self.core.run(seconds).cycles_per_packet()
    }

    /// Runs at the traffic's rate.
    ///
    /// # Errors
    /// The traffic has no rate, or nothing arrived.
    pub(crate) fn run_at_rate(&mut self, seconds: f64) -> Result<AtRate> {
        let meter = Arc::clone(self.meter.as_ref().context("traffic without a rate")?);
        lock(&meter).latencies.clear();
        let begin = lock(&meter).clone();
        let start = cycles::now();
        self.core.run(seconds);
        let took = (cycles::now() - start) as f64 / cycles::per_second();
        let mut end = lock(&meter).clone();
        let received = end.received - begin.received;
        if received == 0 || end.latencies.is_empty() {
            bail!("no packet arrived in {seconds} s");
        }
        end.latencies.sort_unstable();
        let middle = end.latencies[end.latencies.len() / 2] as f64;
        Ok(AtRate {
            offered_mpps: (end.arrived - begin.arrived) as f64 / took / 1e6,
            mpps: received as f64 / took / 1e6,
            cycles: (end.busy - begin.busy) as f64 / received as f64,
            median_ns: middle * 1e9 / cycles::per_second(),
        })
    }

    /// Fails unless all that was received has left.
    ///
    /// # Errors
    /// What was lost where.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.core.checked_stats(false).map(drop)
    }
}

/// Returns the median of cycles a packet, of several rigs whose runs take turns.
///
/// # Errors
/// A rig lost packets.
pub(crate) fn medians(rigs: &mut [Rig], seconds: f64, runs: usize) -> Result<Vec<f64>> {
    let mut cycles = vec![Vec::new(); rigs.len()];
    rigs.iter_mut().for_each(|rig| {
        rig.run(seconds.min(0.05));
    });
    for _ in 0..runs {
        for (rig, cycles) in rigs.iter_mut().zip(&mut cycles) {
            cycles.push(rig.run(seconds));
        }
    }
    rigs.iter_mut().try_for_each(Rig::check)?;
    Ok(cycles.into_iter().map(median).collect())
}

/// Runs a router whose receive queues get packets at unlike rates, one queue a worker, while the balancer of `brickway run` looks at it once a period. Returns
/// the share of its time that each worker was busy in each period, and the packets that found their queue full.
///
/// # Errors
/// The router cannot be built, or a worker ended.
pub(crate) fn balanced(rates: &[f64], periods: usize, period: Duration) -> Result<(Vec<Vec<f64>>, u64)> {
    let workers = rates.len();
    let registry = click::registry();
    let parameters = [("RX", "64"), ("TX", "64"), ("TABLE", "byte24")];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = example::compile(ROUTING, parameters.to_vec(), &registry)?;
    // As many flows as buckets of a queue have, so that each bucket has some.
    let templates = frames::templates(&routes::default_route(), 4096, Traffic::SMALL.size);
    let queues = MemoryLoop::with_queues("loop", templates, workers, workers + 1);
    // As a card hands them over: a worker whose packets come one by one is busy with polls.
    let paced = Paced::new(Box::new(queues), rates, 32);
    let meters = paced.meters.clone();
    let pool = PoolOptions { frames: 8192, ..PoolOptions::default() };
    let options = RouterOptions {
        workers,
        graph: GraphOptions { pool, ..GraphOptions::default() },
        pin: true,
        ..RouterOptions::default()
    };
    let ports = example::ports(Box::new(paced), 1, workers + 1)?;
    let mut router = example::build(config, &registry, ports, &options)?;
    router.start().context("cannot start the worker threads")?;
    let mut balancer = Balancer::new(workers, workers);
    let mut busy = Vec::new();
    balancer.step(&mut router).map_err(anyhow::Error::msg)?;
    for _ in 0..periods {
        let before: Vec<u64> = router.stats().iter().map(|copy| copy.busy_ns).collect();
        let begin = Instant::now();
        std::thread::sleep(period);
        let took = begin.elapsed().as_nanos() as f64;
        let stats = router.stats();
        let shares = stats.iter().zip(&before).take(workers);
        busy.push(shares.map(|(copy, before)| copy.busy_ns.saturating_sub(*before) as f64 / took).collect());
        balancer.step(&mut router).map_err(anyhow::Error::msg)?;
    }
    router.stop();
    Ok((busy, meters.iter().map(|meter| lock(meter).lost).sum()))
}
