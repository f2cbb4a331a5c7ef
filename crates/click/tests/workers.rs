//! Several workers: every packet is counted and no flow overtakes itself, whoever receives, processes and sends, and
//! while queues and buckets move from worker to worker.

#![allow(clippy::unwrap_used, reason = "a test")]

mod line;

use std::sync::Arc;

use elements::devices::OpenPort;
use graph::graph::GraphOptions;
use graph::roles::Mode;
use graph::router::{Control, Router, RouterOptions};
use graph::setup::Shared;
use packet::wire::ethernet::MacAddr;
use packet::{Batch, Packet, Pool, PoolOptions};
use ports::{Port, PortError, PortInfo, QueueStats, RxQueue, TxQueue};

use line::{Expected, FLOWS, Line, compiled, finish, frame, pass};

/// A port that makes the packets of 64 flows, numbered, and looks at the numbers of those it sends.
struct NumberedPort {
    line: Arc<Line>,
    rx_queues: usize,
    tx_queues: usize,
    /// The first transmit queue takes packets at every so many calls only.
    slowness: u64,
}

impl Port for NumberedPort {
    fn info(&self) -> PortInfo {
        PortInfo {
            name: "line".into(),
            driver: "test",
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            rx_queues: self.rx_queues,
            tx_queues: self.tx_queues,
        }
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        let flows = (0..FLOWS).filter(|flow| *flow as usize % self.rx_queues == queue).collect();
        let (line, next) = (self.line.clone(), vec![0; FLOWS as usize]);
        Ok(Box::new(NumberedRx { line, flows, next, turn: 0, stats: QueueStats::default() }))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        let slowness = if queue == 0 { self.slowness } else { 1 };
        let (line, stats) = (self.line.clone(), QueueStats::default());
        Ok(Box::new(NumberedTx { line, queue, slowness, calls: 0, stats }))
    }
}

struct NumberedRx {
    line: Arc<Line>,
    flows: Vec<u32>,
    next: Vec<u32>,
    turn: usize,
    stats: QueueStats,
}

impl RxQueue for NumberedRx {
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let mut count = 0;
        while count < max && batch.room() > 0 {
            if !self.line.may_send() {
                break;
            }
            let flow = self.flows[self.turn % self.flows.len()];
            self.turn += 1;
            let mut packet = pool.allocate().unwrap();
            packet.set_data(&frame(flow, self.next[flow as usize]));
            self.next[flow as usize] += 1;
            packet.set_link_header(0);
            batch.push(packet);
            count += 1;
        }
        self.stats.packets += count as u64;
        count
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

struct NumberedTx {
    line: Arc<Line>,
    queue: usize,
    slowness: u64,
    calls: u64,
    stats: QueueStats,
}

impl TxQueue for NumberedTx {
    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        self.calls += 1;
        if !self.calls.is_multiple_of(self.slowness) {
            return 0;
        }
        let count = batch.len();
        self.line.arrive(self.queue, batch.iter().map(Packet::data));
        self.stats.packets += count as u64;
        pool.free(batch);
        count
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// A running router between the two ends of a line.
struct Bench {
    router: Router,
    line: Arc<Line>,
}

impl Bench {
    fn new(config: &str, mode: Mode, workers: usize, queues: usize) -> Self {
        Self::slow(config, mode, workers, queues, 1)
    }

    /// With a port whose first transmit queue takes packets at every `slowness`-th call only.
    fn slow(config: &str, mode: Mode, workers: usize, queues: usize, slowness: u64) -> Self {
        let line = Arc::new(Line::default());
        let shared = Shared::default();
        for name in ["in", "out"] {
            let port = NumberedPort { line: line.clone(), rx_queues: queues, tx_queues: workers, slowness };
            shared.get_or_make::<_, ()>(&OpenPort::key(name), || Ok(OpenPort::new(Box::new(port)))).unwrap();
        }
        let pool = PoolOptions { frames: 8192, data_bytes: 256 };
        let graph = GraphOptions { pool, ..GraphOptions::default() };
        let options = RouterOptions { workers, mode, graph, ..RouterOptions::default() };
        let control = Control::new(|line| eprintln!("{line}"));
        let mut router =
            Router::build(compiled(config), &click::registry(), &shared, &options, control).unwrap();
        router.start().unwrap();
        Self { router, line }
    }

    /// Lets `count` more packets through, meanwhile calling `meanwhile` again and again.
    fn pass(&mut self, count: u64, meanwhile: impl FnMut(&mut Router, u64)) {
        pass(&self.line, &mut self.router, count, meanwhile);
    }

    /// Everything arrived, nothing twice, nothing late.
    fn finish(self) -> Expected {
        finish(&self.line, self.router)
    }
}

const WAY: &str = "from :: FromDevice(in) -> to :: ToDevice(out);";

#[test]
fn a_queue_for_each_worker() {
    let mut bench = Bench::new(WAY, Mode::Parallel, 2, 2);
    bench.pass(50_000, |_, _| {});
    assert!(bench.router.read("from.buckets").unwrap().contains("1 0-255 1 0"));
    let expected = bench.finish();
    assert!(expected.by_queue.iter().all(|&count| count > 0), "{:?}", expected.by_queue);
}

#[test]
fn one_queue_is_shared_out_among_workers() {
    let mut bench = Bench::new(WAY, Mode::Parallel, 3, 1);
    bench.pass(50_000, |_, _| {});
    let buckets = bench.router.read("from.buckets").unwrap();
    assert_eq!(buckets.lines().count(), 3, "{buckets}");
    let expected = bench.finish();
    assert!(expected.by_queue.iter().all(|&count| count > 5_000), "{:?}", expected.by_queue);
}

#[test]
fn hand_over_modes_keep_order() {
    let cases =
        [(Mode::Pipeline, 2, 1), (Mode::Pipeline, 3, 1), (Mode::Serial, 4, 1), (Mode::Pipeline, 6, 2)];
    for (mode, workers, senders) in cases {
        let mut bench = Bench::new(WAY, mode, workers, senders);
        bench.pass(30_000, |_, _| {});
        let expected = bench.finish();
        let sending = expected.by_queue.iter().filter(|&&count| count > 0).count();
        assert_eq!(sending, senders, "{mode} {workers}");
    }
}

#[test]
fn queues_move_under_traffic() {
    let mut bench = Bench::new(WAY, Mode::Parallel, 2, 3);
    bench.pass(100_000, |router, step| {
        let (queue, worker) = (step % 3, step / 3 % 2);
        router.write("from.move_queue", &format!("{queue} {worker}")).unwrap();
    });
    let queues = bench.router.read("from.queues").unwrap();
    assert_eq!(queues.lines().count(), 3, "{queues}");
    bench.finish();
}

#[test]
fn buckets_move_under_traffic() {
    let mut bench = Bench::new(WAY, Mode::Parallel, 2, 2);
    bench.pass(100_000, |router, step| {
        let (queue, first, worker) = (step % 2, step * 37 % 200, step / 2 % 2);
        router.write("from.move_buckets", &format!("{queue} {first}-{} {worker}", first + 50)).unwrap();
    });
    bench.finish();
}

#[test]
fn buckets_move_while_another_worker_sends() {
    for slowness in [1, 20] {
        let mut bench = Bench::slow(WAY, Mode::Serial, 4, 1, slowness);
        bench.pass(60_000, |router, step| {
            let (first, worker) = (step * 37 % 200, 1 + step % 2);
            router.write("from.move_buckets", &format!("0 {first}-{} {worker}", first + 50)).unwrap();
        });
        bench.finish();
    }
}

#[test]
fn buckets_move_while_a_full_port_holds_packets_back() {
    let way = "from :: FromDevice(in) -> to :: ToDevice(out, BLOCKING true);";
    let mut bench = Bench::slow(way, Mode::Parallel, 2, 2, 40);
    bench.pass(60_000, |router, step| {
        let (queue, first, worker) = (step % 2, step * 37 % 200, step / 2 % 2);
        router.write("from.move_buckets", &format!("{queue} {first}-{} {worker}", first + 50)).unwrap();
    });
    bench.finish();
}

#[test]
fn everything_changes_under_traffic() {
    let mut bench = Bench::new(WAY, Mode::Parallel, 3, 2);
    bench.pass(150_000, |router, step| {
        let worker = step % 3;
        match step % 5 {
            0 => router.write("from.hash", &format!("flow {step}")).unwrap(),
            1 => router.write("from.move_queue", &format!("{} {worker}", step % 2)).unwrap(),
            2 => router.write("from.move_buckets", &format!("{} 0-127 {worker}", step % 2)).unwrap(),
            3 => router.write("from.prefixes", &format!("10.{}.0.0/16 {worker}", step % 64)).unwrap(),
            _ => router.write("from.hash", "destination").unwrap(),
        }
    });
    bench.finish();
}

#[test]
fn a_prefix_belongs_to_a_worker() {
    let mut bench = Bench::new(WAY, Mode::Parallel, 2, 2);
    bench.router.write("from.prefixes", "10.0.0.0/8 1").unwrap();
    bench.pass(20_000, |_, _| {});
    assert_eq!(bench.router.read("from.prefixes").unwrap().trim(), "10.0.0.0/8 1");
    assert_eq!(bench.finish().by_queue, [0, 20_000]);
}

#[test]
fn bound_elements_run_on_one_worker() {
    let config = format!("{WAY} StaticThreadSched(from 1, to 0);");
    let mut bench = Bench::new(&config, Mode::Parallel, 2, 2);
    bench.pass(20_000, |_, _| {});
    let queues = bench.router.read("from.queues").unwrap();
    assert!(queues.lines().all(|line| line.split(' ').nth(1) == Some("1")), "{queues}");
    assert_eq!(bench.finish().by_queue, [20_000]);
}

#[test]
fn what_cannot_be_moved_is_said() {
    let mut bench = Bench::new(WAY, Mode::Parallel, 2, 2);
    let mut error = |handler: &str, value: &str| bench.router.write(handler, value).unwrap_err();
    assert!(error("from.move_queue", "2 0").contains("a queue from 0 to 1, got '2'"));
    assert!(error("from.move_queue", "0 2").contains("one of the workers 0, 1, got '2'"));
    assert!(error("from.move_queue", "0").contains("expected QUEUE WORKER"));
    assert!(error("from.move_buckets", "0 9-3 1").contains("buckets from 0 to 255"));
    assert!(error("from.hash", "colour").contains("flow, addresses"));
    assert!(error("from.prefixes", "10.0.0.0/33 1").contains("an IPv4 prefix"));
    assert!(error("from.prefixes", "10.0.0.0/8 -").contains("no worker has the prefix"));
    assert!(error("from.reta", "0-3 1").contains("does not let its device be steered"));
    assert!(error("from.rss", "colour").contains("addresses or flow"));
    bench.finish();
}
