//! The machine: order, scattering, loops, pulls, tasks, timers, drops. Uses tiny elements of its own.

#![allow(clippy::unwrap_used, reason = "a test")]

use graph::graph::Registry;
use graph::testing::Bench;
use graph::{Alias, Class, Combine, Context, Element, Get, Handler, Put, TaskStatus, Verdict};
use packet::Batch;

/// Sends every packet out by every output, first to last.
static COPY: Class = Class {
    name: "Copy",
    ports: "1/1-",
    processing: Class::PUSH,
    make: |_| Ok(Box::new(Copy)),
    ..Class::DEFAULT
};

struct Copy;

impl Element for Copy {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        for packet in batch.drain() {
            for output in 1..cx.outputs() {
                let copy = cx.copy(&packet).unwrap();
                cx.emit(output - 1, copy);
            }
            cx.emit(cx.outputs() - 1, packet);
        }
    }
}

/// Appends its letter to each packet; drops packets that begin with 'x', diverts those with 'y'.
static LETTER: Class = Class {
    name: "Letter",
    aliases: &[Alias { name: "Character", difference: "" }],
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    make: |setup| {
        let letter: String = setup.arguments.required("LETTER")?;
        setup.arguments.finish()?;
        Ok(Box::new(Letter(letter.bytes().next().unwrap())))
    },
    ..Class::DEFAULT
};

struct Letter(u8);

impl Element for Letter {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            packet.append(1).unwrap()[0] = self.0;
            match packet.data()[0] {
                b'x' => Verdict::Drop("begins with x"),
                b'y' => Verdict::Divert(1, "begins with y"),
                _ => Verdict::Keep,
            }
        });
    }
}

/// A queue without a limit.
static STORE: Class =
    Class { name: "Store", processing: "h/l", make: |_| Ok(Box::new(Store(Vec::new()))), ..Class::DEFAULT };

struct Store(Vec<packet::Packet>);

impl Element for Store {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        self.0.extend(batch.drain());
        cx.set_signal(true);
    }
    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let count = max.min(self.0.len());
        self.0.drain(..count).for_each(|packet| batch.push(packet));
        cx.set_signal(!self.0.is_empty());
    }
    fn notifies(&self) -> bool {
        true
    }
}

/// Moves two packets a turn from its input to its output.
static MOVER: Class =
    Class { name: "Mover", processing: "l/h", make: |_| Ok(Box::new(Mover)), ..Class::DEFAULT };

struct Mover;

impl Element for Mover {
    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let mut batch = cx.spare_batch();
        cx.pull(0, &mut batch, 1);
        cx.pull(0, &mut batch, 1);
        let moved = !batch.is_empty();
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        match (moved, cx.upstream_active()) {
            (true, _) => TaskStatus::Busy,
            (false, true) => TaskStatus::Idle,
            (false, false) => TaskStatus::Asleep,
        }
    }
}

/// Sends one packet every millisecond.
static TICKER: Class = Class {
    name: "Ticker",
    ports: "0/1",
    processing: Class::PUSH,
    make: |_| Ok(Box::new(Ticker)),
    ..Class::DEFAULT
};

struct Ticker;

impl Element for Ticker {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.set_timer(1, cx.now_ns() + 1_000_000);
        cx.set_timer(2, cx.now_ns() + 500_000);
        cx.clear_timer(2);
        Ok(())
    }
    fn timer(&mut self, cx: &mut Context, key: u32) {
        assert_eq!(key, 1, "the other timer was cleared");
        let mut packet = cx.allocate().unwrap();
        packet.set_data(b"t");
        cx.emit(0, packet);
        cx.set_timer(1, cx.now_ns() + 1_000_000);
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.add(&[&COPY, &LETTER, &STORE, &MOVER, &TICKER]);
    registry
}

fn texts(packets: Vec<Vec<u8>>) -> Vec<String> {
    packets.into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect()
}

#[test]
fn with_a_burst_of_one_the_order_is_that_of_nested_calls() {
    let config = "in :: TestInput -> a :: Copy; a[0] -> b :: Copy -> Letter(1) -> o :: TestOutput;
        b[1] -> Letter(2) -> o; a[1] -> Letter(3) -> o;";
    let mut bench = Bench::with_burst(&registry(), config, 1);
    bench.push("in", &[b"p", b"q"]);
    assert_eq!(texts(bench.taken("o")), ["p1", "p2", "p3", "q1", "q2", "q3"]);
    // Larger bursts keep the order on each way.
    let mut bench = Bench::with_burst(&registry(), config, 32);
    bench.push("in", &[b"p", b"q"]);
    assert_eq!(texts(bench.taken("o")), ["p1", "q1", "p2", "q2", "p3", "q3"]);
}

#[test]
fn drops_are_counted_by_reason_and_diverted_ones_go_their_way() {
    let mut bench = Bench::element(&registry(), "Letter(a)", 1, 2);
    bench.push("in0", &[b"1", b"x", b"y", b"2", b"x"]);
    assert_eq!(texts(bench.taken("out0")), ["1a", "2a"]);
    assert_eq!(texts(bench.taken("out1")), ["ya"]);
    assert_eq!(bench.drops("e", "begins with x"), 2);
    assert_eq!(bench.drops("e", "begins with y"), 0);
    let mut bench = Bench::element(&registry(), "Letter(a)", 1, 1);
    bench.push("in0", &[b"1", b"y"]);
    assert_eq!(bench.drops("e", "begins with y"), 1);
    assert_eq!(bench.read("e.drops"), "1");
    assert_eq!(bench.read("e.packets"), "2");
    assert_eq!(bench.read("e.class"), "Letter");
}

#[test]
fn an_element_bears_the_name_that_the_configuration_used() {
    let mut bench = Bench::new(&registry(), "in :: TestInput -> Character(a) -> out :: TestOutput;");
    bench.push("in", &[b"1"]);
    assert_eq!(texts(bench.taken("out")), ["1a"]);
    assert_eq!(bench.read("Character@2.class"), "Character");
    assert_eq!(bench.graph().config().elements[1].class, "Character");
    let config = "in :: TestInput -> Character -> out :: TestOutput;";
    let error = Bench::try_new(&registry(), config, 1, &Default::default()).unwrap_err();
    assert!(error.contains("While configuring 'Character@2 :: Character'"), "{error}");
}

#[test]
fn packets_that_circle_are_dropped_in_the_end() {
    let mut bench = Bench::new(&registry(), "in :: TestInput -> a :: Punt -> b :: Punt -> a;");
    let free = bench.graph().pool_stats().free;
    bench.push("in", &[b"p", b"q"]);
    let lost: u64 = ["a", "b"].iter().map(|name| bench.drops(name, "circles in the graph")).sum();
    assert_eq!(lost, 2);
    assert_eq!(bench.graph().pool_stats().free, free);
}

#[test]
fn a_queue_wakes_the_task_downstream_through_agnostic_elements() {
    let mut bench = Bench::new(
        &registry(),
        "in :: TestInput -> s :: Store -> l :: Letter(a) -> m :: Mover -> out :: TestOutput;",
    );
    bench.run(10);
    assert!(!bench.graph().context().has_awake_tasks());
    bench.push("in", &[b"1", b"x", b"3", b"4", b"5"]);
    assert!(bench.graph().context().has_awake_tasks());
    bench.run(10);
    assert_eq!(texts(bench.taken("out")), ["1a", "3a", "4a", "5a"]);
    assert!(!bench.graph().context().has_awake_tasks());
    assert_eq!(bench.drops("l", "begins with x"), 1);
}

#[test]
fn what_a_pull_path_diverts_is_pushed() {
    let mut bench = Bench::new(
        &registry(),
        "in :: TestInput -> s :: Store -> l :: Letter(a) -> m :: Mover -> out :: TestOutput;
         l[1] -> err :: TestOutput;",
    );
    bench.push("in", &[b"y1", b"2", b"y3", b"4"]);
    bench.run(10);
    assert_eq!(texts(bench.taken("out")), ["2a", "4a"]);
    assert_eq!(texts(bench.taken("err")), ["y1a", "y3a"]);
}

#[test]
fn timers_fire_in_order_and_not_when_cleared() {
    let mut bench = Bench::new(&registry(), "t :: Ticker -> out :: TestOutput;");
    bench.advance_ns(999_999);
    assert_eq!(bench.taken("out").len(), 0);
    bench.advance_ns(1);
    assert_eq!(bench.taken("out").len(), 1);
    bench.advance_ns(10_000_000);
    assert_eq!(bench.taken("out").len(), 10);
}

#[test]
fn no_frame_is_lost() {
    let mut bench = Bench::new(
        &registry(),
        "in :: TestInput -> c :: Copy -> l :: Letter(a) -> s :: Store -> m :: Mover -> o :: TestOutput;
         c[1] -> l; l[1] -> o;",
    );
    let free = bench.graph().pool_stats().free;
    for _ in 0..100 {
        bench.push("in", &[b"1", b"x", b"y", b"2"]);
        bench.run(100);
        bench.taken("o");
    }
    bench.graph().context().pool().refill();
    assert_eq!(bench.graph().pool_stats().free, free);
}

/// Pulls BURST packets a turn, where its neighbours look at one.
static GREEDY: Class =
    Class { name: "Greedy", processing: "l/h", make: |_| Ok(Box::new(Greedy)), ..Class::DEFAULT };

struct Greedy;

impl Element for Greedy {
    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let mut batch = cx.spare_batch();
        for _ in 0..4 {
            let mut one = cx.spare_batch();
            cx.pull(0, &mut one, 4);
            one.move_front(&mut batch, 4);
            cx.recycle(one);
        }
        let moved = !batch.is_empty();
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        if moved || cx.upstream_active() { TaskStatus::Idle } else { TaskStatus::Asleep }
    }
}

/// A source that sends a packet each time it is looked at, or says that it found nothing.
static TAP: Class = Class {
    name: "Tap",
    ports: "0/1",
    processing: Class::PUSH,
    handlers: &[
        Handler::read("looks", Combine::Sum, "Looks.", &Get(|e: &mut Tap| e.looks.to_string())),
        Handler::write(
            "open",
            "Whether it sends.",
            &Put(|e: &mut Tap, _, value| {
                e.is_open = value == "true";
                Ok(())
            }),
        ),
    ],
    make: |_| Ok(Box::new(Tap { is_open: false, looks: 0 })),
    ..Class::DEFAULT
};

struct Tap {
    is_open: bool,
    looks: usize,
}

impl Element for Tap {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }
    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        self.looks += 1;
        if self.is_open {
            let packet = cx.allocate().unwrap();
            cx.emit(0, packet);
        }
        if self.is_open { TaskStatus::Busy } else { TaskStatus::Idle }
    }
}

#[test]
fn a_source_that_finds_nothing_is_passed_over_while_others_are_busy() {
    let mut registry = registry();
    registry.add(&[&TAP]);
    let config = "busy :: Tap -> out :: TestOutput; idle :: Tap -> out;";
    let mut bench = Bench::new(&registry, config);
    bench.write("busy.open", "true").unwrap();
    // Looks of the idle source after each turn: in turn 0, then after one, three, and always seven turns without.
    let looks: Vec<usize> = (0..23)
        .map(|_| {
            bench.run(1);
            bench.read("idle.looks").parse().unwrap()
        })
        .collect();
    let turns: Vec<usize> = (0..23).filter(|&turn| turn == 0 || looks[turn] > looks[turn - 1]).collect();
    assert_eq!(turns, [0, 2, 6, 14, 22]);
    assert_eq!(bench.read("busy.looks"), "23");
    // Once nobody is busy it has its look in each turn.
    bench.write("busy.open", "false").unwrap();
    bench.run(1);
    assert!(bench.graph().context().has_awake_tasks());
    for look in 1..4 {
        bench.run(1);
        assert_eq!(bench.read("idle.looks"), (5 + look).to_string());
    }
}

#[test]
fn a_turn_in_which_all_left_by_side_outputs_was_work() {
    let mut registry = registry();
    registry.add(&[&GREEDY]);
    let config = "in :: TestInput -> s :: Store -> l :: Letter(a) -> Greedy -> out :: TestOutput;
        l[1] -> err :: TestOutput;";
    let mut bench = Bench::with_burst(&registry, config, 1);
    bench.push("in", &[b"y0", b"y1", b"y2", b"y3", b"y4", b"y5", b"y6", b"y7", b"8"]);
    bench.run(100);
    assert_eq!(texts(bench.taken("err")).len(), 8);
    assert_eq!(texts(bench.taken("out")), ["8a"]);
}

#[test]
fn with_a_burst_of_one_a_pull_brings_one_packet() {
    let mut registry = registry();
    registry.add(&[&GREEDY]);
    let config = "in :: TestInput -> s :: Store -> Greedy -> out :: TestOutput;";
    let mut bench = Bench::with_burst(&registry, config, 1);
    bench.push("in", &[b"1", b"2", b"3", b"4", b"5", b"6"]);
    bench.graph().context().turn();
    // It pulls four times a turn and asks for up to four packets each time.
    assert_eq!(texts(bench.taken("out")), ["1", "2", "3", "4"]);
}

/// Puts off its timer again and again.
static LATER: Class =
    Class { name: "Later", processing: Class::PUSH, make: |_| Ok(Box::new(Later)), ..Class::DEFAULT };

struct Later;

impl Element for Later {
    fn push(&mut self, cx: &mut Context, _input: usize, _batch: &mut Batch) {
        cx.set_timer(0, cx.now_ns() + 1_000_000_000);
    }
    fn timer(&mut self, cx: &mut Context, _key: u32) {
        let mut packet = cx.allocate().unwrap();
        packet.set_data(b"late");
        cx.emit(0, packet);
    }
}

#[test]
fn a_timer_that_is_put_off_fires_once_at_its_last_time() {
    let mut registry = registry();
    registry.add(&[&LATER]);
    let mut bench = Bench::new(&registry, "in :: TestInput -> Later -> out :: TestOutput;");
    for _ in 0..10 {
        bench.push("in", &[b"p"]);
        bench.advance_ns(500_000_000);
        bench.taken("out").iter().for_each(|bytes| assert_ne!(bytes, b"late"));
    }
    bench.advance_ns(499_999_999);
    assert!(bench.taken("out").iter().all(|bytes| bytes != b"late"));
    bench.advance_ns(1);
    assert_eq!(texts(bench.taken("out")), ["late"]);
    bench.advance_ns(10_000_000_000);
    assert!(bench.taken("out").is_empty());
}
