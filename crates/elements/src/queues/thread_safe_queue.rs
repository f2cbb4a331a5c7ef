//! =c
//! ThreadSafeQueue([CAPACITY])
//!
//! =s queues
//! stores packets of any number of threads
//!
//! =d
//! The same as C<Queue>. In Click several threads may push into it and pull from it; here every worker has a queue of its own
//! of that CAPACITY, so every queue is safe.
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
//! =a Queue, MSQueue

use graph::Class;

use super::storage::{Overflow, Storage};

pub(crate) static CLASS: Class = Class {
    name: "ThreadSafeQueue",
    ports: "1/1-2",
    processing: "h/lh",
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("thread_safe_queue.rs"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropNew, true)?)),
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn it_is_a_queue() {
        let mut bench = Bench::element(&crate::registry(), "ThreadSafeQueue(2)", 1, 2);
        bench.push("in0", &[b"1", b"2", b"3"]);
        assert_eq!(bench.taken("out1"), [b"3"]);
        assert_eq!(bench.pull("out0", 9), 2);
        assert_eq!((bench.read("e.capacity"), bench.read("e.drops")), ("2".into(), "1".into()));
    }
}
