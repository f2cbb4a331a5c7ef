//! =c
//! SimpleQueue([CAPACITY])
//!
//! =s queues
//! stores packets; tells nobody
//!
//! =d
//! A C<Queue> that does not wake tasks downstream: whoever pulls from it has to come and look. Use Queue.
//!
//! =a Queue, FrontDropQueue

use graph::Class;

use super::length::QUEUE;
use super::storage::{HANDLERS, Overflow, Storage};

pub(crate) static CLASS: Class = Class {
    name: "SimpleQueue",
    ports: "1/1-2",
    processing: "h/lh",
    capabilities: &[QUEUE],
    handlers: &HANDLERS,
    manual: graph::manual!("simple_queue.rs"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropNew, false)?)),
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn a_task_downstream_finds_the_packets_without_being_woken() {
        let config = "in :: TestInput -> e :: SimpleQueue(2) -> Unqueue -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(100);
        bench.push("in", &[b"1", b"2", b"3"]);
        bench.run(1);
        assert_eq!(bench.taken("out"), [b"1", b"2"]);
        assert_eq!(bench.drops("e", "queue full"), 1);
    }
}
