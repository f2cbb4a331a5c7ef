//! Two workers on the kernel's own devices: veth pairs with two queues in a network namespace. Every packet is counted,
//! flows keep their order, and moving queues and flows under traffic loses and reorders nothing.

#![allow(clippy::unwrap_used, reason = "a test")]

mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use elements::devices::PortNames;
use graph::graph::GraphOptions;
use graph::router::{Control, Router, RouterOptions};
use graph::setup::Shared;
use packet::{Batch, Packet, Pool, PoolOptions};
use ports::OpenOptions;
use testbed::{in_namespace, veth_pair};

use line::{FLOWS, Line, compiled, finish, frame, pass};

/// The CPUs that this process may use.
fn cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Both ends of the line around the router: frames go into `source`, and come out of `sink`. A sender that bypasses
/// queueing disciplines takes the transmit queue of its CPU, so there are two senders, each bound to one, with flows of
/// their own: so both receive queues of the router's port have packets.
fn ends(line: &Arc<Line>) -> (Arc<AtomicBool>, Vec<JoinHandle<()>>) {
    let end = Arc::new(AtomicBool::new(false));
    let cpus = cpus();
    let mut source = ports::open("source", &OpenOptions { tx_queues: 2, ..OpenOptions::default() }).unwrap();
    let mut threads = Vec::new();
    for number in 0..2usize {
        let (line, end, cpu) = (line.clone(), end.clone(), cpus[number % cpus.len()]);
        let mut tx = source.take_tx(number).unwrap();
        threads.push(std::thread::spawn(move || {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            rustix::thread::sched_setaffinity(None, &set).unwrap();
            let mut pool = Pool::new(PoolOptions { frames: 256, data_bytes: 256 }).unwrap();
            let mut batch = Batch::new();
            let flows: Vec<u32> = (0..FLOWS).filter(|flow| *flow as usize % 2 == number).collect();
            let mut next = vec![0; FLOWS as usize];
            let mut turn = 0;
            while !end.load(Ordering::Relaxed) {
                while batch.len() < 16 && line.may_send() {
                    let flow = flows[turn % flows.len()];
                    turn += 1;
                    let mut packet = pool.allocate().unwrap();
                    packet.set_data(&frame(flow, next[flow as usize]));
                    next[flow as usize] += 1;
                    batch.push(packet);
                }
                if batch.is_empty() {
                    std::thread::sleep(std::time::Duration::from_micros(50));
                }
                while !batch.is_empty() {
                    tx.send(&mut pool, &mut batch);
                    tx.flush(&mut pool);
                }
            }
        }));
    }
    let (line, ending) = (line.clone(), end.clone());
    let mut sink = ports::open("sink", &OpenOptions::default()).unwrap();
    let mut rx = sink.take_rx(0).unwrap();
    threads.push(std::thread::spawn(move || {
        let mut pool = Pool::new(PoolOptions { frames: 1024, data_bytes: 1856 }).unwrap();
        let mut batch = Batch::new();
        while !ending.load(Ordering::Relaxed) {
            if rx.receive(&mut pool, &mut batch, 64) == 0 {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
            line.arrive(0, batch.iter().map(Packet::data));
            pool.free(&mut batch);
        }
        drop((source, sink));
    }));
    (end, threads)
}

fn router(driver: &str) -> Router {
    let names = ["in", "out"].map(|name| (name.to_owned(), format!("{driver}:r-{name}")));
    let shared = Shared::default();
    shared.get_or_make::<_, ()>(PortNames::KEY, || Ok(PortNames::new(names.to_vec()))).unwrap();
    let pool = PoolOptions { frames: 16_384, data_bytes: 1_856 };
    let graph = GraphOptions { pool, ..GraphOptions::default() };
    let options = RouterOptions { workers: 2, pin: true, graph, ..RouterOptions::default() };
    let control = Control::new(|line| eprintln!("{line}"));
    let config = compiled("from :: FromDevice(in, PROMISC true) -> to :: ToDevice(out);");
    let mut router = Router::build(config, &click::registry(), &shared, &options, control)
        .unwrap_or_else(|problems| panic!("{problems:?}"));
    router.start().unwrap();
    router
}

fn pairs() {
    veth_pair("source", "r-in", 2);
    veth_pair("r-out", "sink", 2);
}

/// Passes packets through a router with this driver while `change` changes it.
fn under_traffic(driver: &'static str, packets: u64, change: fn(&mut Router, u64)) {
    in_namespace(move || {
        pairs();
        let line = Arc::new(Line::default());
        let mut router = router(driver);
        let (end, threads) = ends(&line);
        pass(&line, &mut router, packets, change);
        let queues = router.read("from.queues").unwrap();
        let busy = queues.lines().filter(|line| line.split(' ').nth(2).is_some_and(|count| count != "0"));
        assert!(busy.count() >= 1, "{queues}");
        finish(&line, router);
        end.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

fn nothing(_: &mut Router, _: u64) {}

fn queues_and_buckets(router: &mut Router, step: u64) {
    let worker = step / 2 % 2;
    match step % 2 {
        0 => router.write("from.move_queue", &format!("{} {worker}", step / 4 % 2)).unwrap(),
        _ => router.write("from.move_buckets", &format!("{} 64-191 {worker}", step / 4 % 2)).unwrap(),
    }
}

#[test]
fn af_packet_with_two_workers() {
    under_traffic("af_packet", 60_000, nothing);
}

#[test]
fn af_packet_rebalanced_under_traffic() {
    under_traffic("af_packet", 60_000, queues_and_buckets);
}

#[test]
fn af_xdp_with_two_workers() {
    under_traffic("af_xdp", 60_000, nothing);
}

#[test]
fn af_xdp_rebalanced_under_traffic() {
    under_traffic("af_xdp", 60_000, queues_and_buckets);
}
