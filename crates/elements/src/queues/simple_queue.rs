//! =c
//! SimpleQueue([CAPACITY])
//!
//! =s queues
//! stores packets; tells nobody
//!
//! =d
//! A C<Queue> that does not wake tasks downstream: whoever pulls from it has to come and look. Use Queue.
//!
//! =h length read-only
//! Packets that wait now, in all workers.
//!
//! =h highwater_length read-only
//! Most packets that ever waited at one worker.
//!
//! =h capacity read/write
//! The CAPACITY argument.
//!
//! =h drops read-only
//! Packets that found no room; without an output 1 they are dropped as "queue full".
//!
//! =h reset_counts write-only
//! Sets drops and highwater_length to zero.
//!
//! =h reset write-only
//! Drops all packets that wait.
//!
//! =a Queue, FrontDropQueue

use graph::Class;

use super::storage::{Overflow, Storage};

pub(crate) static CLASS: Class = Class {
    name: "SimpleQueue",
    ports: "1/1-2",
    processing: "h/lh",
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("simple_queue.rs"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropNew, false)?)),
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
