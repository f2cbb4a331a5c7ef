//! =c
//! NotifierQueue([CAPACITY])
//!
//! =s queues
//! stores packets; tells tasks downstream when it has some
//!
//! =d
//! A C<Queue> that does not tell sources upstream (C<InfiniteSource>) when it is full.
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
//! Packets that found no room.
//!
//! =h reset_counts write-only
//! Sets drops and highwater_length to zero.
//!
//! =h reset write-only
//! Drops all packets that wait.
//!
//! =a Queue, QuickNoteQueue, SimpleQueue

use graph::Class;

use super::storage::{Overflow, Storage};

pub(crate) static CLASS: Class = Class {
    name: "NotifierQueue",
    ports: "1/1-2",
    processing: "h/lh",
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("notifier_queue.rs"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropNew, true)?)),
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
