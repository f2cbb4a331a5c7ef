//! =c
//! Idle
//!
//! =s basicsources
//! takes packets and gives none
//!
//! =d
//! Frees what is pushed into it and gives nothing when pulled. Any number of inputs and outputs: connect to it what must
//! be connected but not used.
//!
//! =e
//!   Idle -> [1]some_element;
//!
//! =a Discard

use graph::{Class, Context, Element, TaskStatus};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "Idle",
    ports: "-/-",
    processing: Class::AGNOSTIC,
    flow: "x/y",
    manual: include_str!("idle.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Idle))
    },
};

struct Idle;

impl Element for Idle {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        cx.free(batch);
    }

    fn pull(&mut self, _cx: &mut Context, _output: usize, _batch: &mut Batch, _max: usize) {}

    fn task(&mut self, _cx: &mut Context) -> TaskStatus {
        TaskStatus::Asleep
    }

    // It never has packets and says so, so that tasks downstream sleep.
    fn notifies(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn nothing_comes_out() {
        let config =
            "in :: TestInput -> e :: Idle -> out :: TestOutput; e[1] -> Unqueue -> pulled :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"x", b"y"]);
        bench.run(10);
        assert!(!bench.graph().context().has_awake_tasks());
        assert_eq!(bench.taken("out").len() + bench.taken("pulled").len(), 0);
        assert_eq!(bench.graph().pool_stats().free, 4096);
    }
}
