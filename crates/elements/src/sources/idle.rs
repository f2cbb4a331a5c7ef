//! =c
//! Idle
//!
//! =s basicsources
//! takes packets and gives none
//!
//! =d
//! Frees packets that are pushed into it and gives none when pulled. It has any number of inputs
//! and outputs. Connect ports to it that must be connected but are not used.
//!
//! =e
//!   Idle -> [1]some_element;
//!
//! =a Discard

use graph::{Class, Context, Element, TaskStatus};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "Idle",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "-/-",
    flow: "x/y",
    manual: graph::manual!("idle.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Idle))
    },
    ..Class::DEFAULT
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
