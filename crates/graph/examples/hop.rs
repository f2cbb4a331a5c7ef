//! What a hop costs: packets through chains of empty elements, in TSC cycles a packet and element.

use graph::graph::Registry;
use graph::testing::Bench;
use graph::{Class, Context, Element, TaskStatus};
use packet::{Batch, cycles};

static EMPTY: Class = Class { name: "Empty", make: |_| Ok(Box::new(Empty)), ..Class::DEFAULT };
struct Empty;
impl Element for Empty {}

static SOURCE: Class = Class {
    name: "Source",
    ports: "0/1",
    processing: Class::PUSH,
    make: |_| Ok(Box::new(Source)),
    ..Class::DEFAULT
};
struct Source;
impl Element for Source {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }
    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let mut batch = cx.spare_batch();
        let burst = cx.burst();
        cx.pool().allocate_batch(&mut batch, burst);
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        TaskStatus::Busy
    }
}

static SINK: Class = Class {
    name: "Sink",
    ports: "1/0",
    processing: Class::PUSH,
    make: |_| Ok(Box::new(Sink)),
    ..Class::DEFAULT
};
struct Sink;
impl Element for Sink {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        cx.free(batch);
    }
}

fn main() {
    let mut registry = Registry::new();
    registry.add(&[&EMPTY, &SOURCE, &SINK]);
    let measure = |burst: usize, length: usize| {
        let config = format!("Source {} -> Sink;", "-> Empty ".repeat(length));
        let mut bench = Bench::with_burst(&registry, &config, burst);
        let context = bench.graph().context();
        let turns = 3_000_000 / burst;
        let mut best = f64::MAX;
        for _ in 0..7 {
            let begin = cycles::now();
            for _ in 0..turns {
                context.turn();
            }
            best = best.min((cycles::now() - begin) as f64 / (turns * burst) as f64);
        }
        best
    };
    for burst in [1, 8, 32, 256] {
        let (none, many) = (measure(burst, 0), measure(burst, 20));
        println!(
            "burst {burst:3}: source and sink {none:6.2}, each empty element {:5.2} cycles a packet",
            (many - none) / 20.0
        );
    }
}
