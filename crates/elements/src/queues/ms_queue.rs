//! =c
//! MSQueue([CAPACITY])
//!
//! =s queues
//! stores packets of several threads for one
//!
//! =d
//! The same as C<Queue>. In Click several threads may push into it and one pulls; here every worker has a queue of its own of
//! that CAPACITY. Click has renamed it to ThreadSafeQueue.
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
//! =a Queue, ThreadSafeQueue

use graph::Class;

use super::storage::{Overflow, Storage};

pub(crate) static CLASS: Class = Class {
    name: "MSQueue",
    ports: "1/1-2",
    processing: "h/lh",
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("ms_queue.rs"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropNew, true)?)),
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn red_finds_it() {
        let config = "in :: TestInput -> e :: RED(1, 2, 0.5) -> MSQueue -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"1"]);
        bench.pull("out", 1);
        assert_eq!(bench.taken("out"), [b"1"]);
    }
}
