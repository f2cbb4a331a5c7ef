//! =c
//! NotifierQueue([CAPACITY])
//!
//! =s queues
//! stores packets; tells tasks downstream when it has some
//!
//! =d
//! A C<Queue> that does not tell sources upstream (C<InfiniteSource>) when it is full.
//!
//! =a Queue, QuickNoteQueue, SimpleQueue

use graph::Class;

use super::length::QUEUE;
use super::storage::{HANDLERS, Overflow, Storage};

pub(crate) static CLASS: Class = Class {
    name: "NotifierQueue",
    ports: "1/1-2",
    processing: "h/lh",
    capabilities: &[QUEUE],
    handlers: &HANDLERS,
    manual: graph::manual!("notifier_queue.rs"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropNew, true)?)),
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn a_task_downstream_is_woken() {
        let config = "in :: TestInput -> e :: NotifierQueue(2) -> Unqueue -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(10);
        assert!(!bench.graph().context().has_awake_tasks());
        bench.push("in", &[b"1", b"2", b"3"]);
        bench.run(10);
        assert_eq!(bench.taken("out"), [b"1", b"2"]);
        assert_eq!(bench.drops("e", "queue full"), 1);
    }
}
