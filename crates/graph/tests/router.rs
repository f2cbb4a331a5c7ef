//! The router's threads: several copies, the slow thread behind a Punt, handlers, statistics, the end.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graph::graph::{Graph, Registry};
use graph::lang::{Options, Source, compile};
use graph::router::{Control, Router, RouterOptions};
use graph::setup::Shared;
use graph::{Class, Combine, Context, Element, Get, Handler, Put, TaskStatus};
use packet::{Batch, PoolOptions};

/// Sends LIMIT numbered packets, a burst a turn.
static NUMBERS: Class = Class {
    name: "Numbers",
    ports: "0/1",
    processing: Class::PUSH,
    make: |setup| {
        let limit = setup.arguments.required("LIMIT")?;
        setup.arguments.finish()?;
        Ok(Box::new(Numbers { next: 0, limit }))
    },
    ..Class::DEFAULT
};

struct Numbers {
    next: u32,
    limit: u32,
}

impl Element for Numbers {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }
    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        for _ in 0..cx.burst() {
            if self.next == self.limit {
                return TaskStatus::Asleep;
            }
            let Some(mut packet) = cx.allocate() else { break };
            packet.set_data(&self.next.to_be_bytes());
            self.next += 1;
            cx.emit(0, packet);
        }
        TaskStatus::Busy
    }
}

/// Counts packets and the thread they came on; stops the router at STOP packets, if it says so.
static TALLY: Class = Class {
    name: "Tally",
    ports: "1/0",
    processing: Class::PUSH,
    handlers: &[Handler::read_write(
        "count",
        Combine::Sum,
        "Packets so far.",
        &Get(|e: &mut Tally| e.count.to_string()),
        &Put(|e: &mut Tally, _, value| {
            e.count = value.parse().map_err(|_| format!("count: expected a number, got '{value}'"))?;
            Ok(())
        }),
    )],
    make: |setup| {
        let stop = setup.arguments.keyword_or("STOP", 0u64)?;
        setup.arguments.finish()?;
        let seen = setup.shared_by_copies(|| Ok::<_, graph::ConfigError>(Mutex::new(Vec::new())))?;
        Ok(Box::new(Tally { count: 0, stop, seen }))
    },
    ..Class::DEFAULT
};

struct Tally {
    count: u64,
    stop: u64,
    seen: Arc<Mutex<Vec<(String, u32)>>>,
}

impl Element for Tally {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let thread = std::thread::current().name().unwrap_or("").to_owned();
        let mut seen = self.seen.lock().unwrap();
        for packet in batch.iter() {
            let number = u32::from_be_bytes(packet.data().try_into().unwrap());
            seen.push((thread.clone(), number));
        }
        self.count += batch.len() as u64;
        cx.free(batch);
        if self.stop > 0 && self.count == self.stop {
            cx.stop();
        }
    }
}

fn router(config: &str, workers: usize) -> (Router, Shared) {
    let mut registry = Registry::new();
    registry.add(&[&NUMBERS, &TALLY]);
    let source = Source { name: "test.click".into(), text: config.into() };
    let (flat, diagnostics) = compile(&source, &Options::default(), &registry);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let mut options = RouterOptions { workers, ..RouterOptions::default() };
    options.graph.pool = PoolOptions { frames: 512, data_bytes: 64 };
    let shared = Shared::default();
    let control = Control::new(|_| {});
    let router = Router::build(Arc::new(flat.unwrap()), &registry, &shared, &options, control).unwrap();
    (router, shared)
}

fn wait_for(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it never happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn seen(shared: &Shared, element: &str) -> Vec<(String, u32)> {
    let seen = shared.get::<Mutex<Vec<(String, u32)>>>(&format!("element:{element}")).unwrap();
    seen.lock().unwrap().clone()
}

#[test]
fn each_worker_has_its_copy_and_handlers_reach_all() {
    let (mut router, _) = router("Numbers(1000) -> t :: Tally", 3);
    router.start().unwrap();
    wait_for(|| router.read("t.count").unwrap() == "3000");
    assert_eq!(router.workers(), 3);
    let stats = router.stats();
    assert_eq!(stats.len(), 3);
    assert!(stats.iter().all(|copy| copy.elements[1].packets == 1000));
    router.write("t.count", "5").unwrap();
    assert_eq!(router.read("t.count").unwrap(), "15");
    assert!(router.write("t.count", "x").unwrap_err().contains("expected a number"));
    assert!(router.read("t.nothing").unwrap_err().contains("no 't.nothing' read handler"));
    assert!(router.read("u.count").unwrap_err().contains("no element named 'u'"));
    assert!(router.write("t.class", "x").unwrap_err().contains("can only be read"));
    assert!(router.stop().is_empty());
}

#[test]
fn the_slow_thread_comes_before_what_polls() {
    let (mut router, _) = router("Numbers(1) -> Punt(CAPACITY 4) -> t :: Tally", 1);
    router.start().unwrap();
    // Who may not raise a priority does not.
    let own = rustix::process::getpriority_process(None).unwrap();
    let may = rustix::process::setpriority_process(None, own.min(-10)).is_ok();
    let of_slow = || {
        std::fs::read_dir("/proc/self/task").unwrap().find_map(|task| {
            let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
            // Field 19, counted from 1; the name is the second, in parentheses (proc(5)).
            let (_, rest) = stat.split_once(" (slow) ")?;
            rest.split(' ').nth(16)?.parse::<i32>().ok()
        })
    };
    let expected = if may { own.min(-10) } else { own };
    wait_for(|| of_slow() == Some(expected));
    router.stop();
}

#[test]
fn what_is_punted_runs_on_the_slow_thread_and_nothing_is_lost_while_it_keeps_up() {
    let (mut router, shared) = router("Numbers(500) -> Punt(CAPACITY 500) -> t :: Tally", 2);
    router.start().unwrap();
    wait_for(|| seen(&shared, "t").len() == 1000);
    let all = seen(&shared, "t");
    assert!(all.iter().all(|(thread, _)| thread == "slow"));
    let mut numbers: Vec<u32> = all.into_iter().map(|(_, number)| number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..500).flat_map(|number| [number, number]).collect::<Vec<_>>());
    router.stop();
}

#[test]
fn a_full_punt_ring_drops_and_counts() {
    let (mut router, shared) = router("n :: Numbers(20000) -> p :: Punt(CAPACITY 4) -> t :: Tally", 1);
    let tally = shared.get::<Mutex<Vec<(String, u32)>>>("element:t").unwrap();
    // Until this is let go, the slow thread gets no further than its first packets.
    let gate = tally.lock().unwrap();
    router.start().unwrap();
    let [source, punt] = ["n", "p"].map(|name| router.config().find(name).unwrap());
    let mut drops = Vec::new();
    wait_for(|| {
        let ask = move |graph: &mut Graph| [graph.element_stats(source), graph.element_stats(punt)];
        let [of_source, of_punt] = router.on_copy(0, ask).unwrap();
        drops = of_punt.drops;
        of_source.packets == 20_000
    });
    drop(gate);
    assert_eq!(drops.len(), 1);
    let (reason, dropped) = drops[0];
    assert_eq!(reason, "punt ring full");
    // What went: the burst that the slow thread had taken, and four in the ring.
    let went = 20_000 - dropped as usize;
    assert!((4..=4 + 32).contains(&went), "{went} went through");
    wait_for(|| seen(&shared, "t").len() == went);
    assert_eq!(router.read("p.drops").unwrap(), dropped.to_string());
    router.stop();
}

#[test]
fn an_element_can_stop_the_router() {
    let (mut router, _) = router("Numbers(1000) -> t :: Tally(STOP 1000)", 1);
    router.start().unwrap();
    assert!(router.control().wait(Duration::from_secs(60)));
    assert!(router.control().is_stopped());
    assert_eq!(router.read("t.count").unwrap(), "1000");
}

#[test]
fn an_idle_router_answers() {
    let (mut router, _) = router("Numbers(1) -> t :: Tally", 2);
    router.start().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..50 {
        assert_eq!(router.read("t.count").unwrap(), "2");
        std::thread::sleep(Duration::from_millis(1));
    }
}
