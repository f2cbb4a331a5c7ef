//! =c
//! FrontDropQueue([CAPACITY])
//!
//! =s queues
//! stores packets; drops the oldest when full
//!
//! =d
//! A C<Queue> in which the packet that waits longest makes room for the one that comes. It goes out by output 1 if that
//! is connected, and is counted as "queue full" and dropped otherwise.
//!
//! =h length read-only
//! Packets that wait now, in all workers.
//!
//! =h highwater_length read-only
//! Most packets that ever waited at one worker.
//!
//! =h capacity read/write
//! The CAPACITY argument. What does not fit a smaller one is dropped, oldest first.
//!
//! =h drops read-only
//! Packets that had to make room.
//!
//! =h reset_counts write-only
//! Sets drops and highwater_length to zero.
//!
//! =h reset write-only
//! Drops all packets that wait.
//!
//! =a Queue, SimpleQueue

use graph::Class;

use super::storage::{Overflow, Storage};

pub(crate) static CLASS: Class = Class {
    name: "FrontDropQueue",
    ports: "1/1-2",
    processing: "h/lh",
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("front_drop_queue.rs"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropOld, true)?)),
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn the_oldest_make_room() {
        let mut bench = Bench::element(&crate::registry(), "FrontDropQueue(3)", 1, 2);
        bench.push("in0", &[b"1", b"2", b"3", b"4", b"5"]);
        assert_eq!(bench.taken("out1"), [b"1", b"2"]);
        bench.write("e.capacity", "2").unwrap();
        bench.pull("out0", 9);
        assert_eq!(bench.taken("out0"), [b"4", b"5"]);
        assert_eq!(bench.read("e.drops"), "2");
        assert_eq!(bench.drops("e", "queue made smaller"), 1);
    }

    #[test]
    fn without_capacity_nothing_stays() {
        let mut bench = Bench::element(&crate::registry(), "FrontDropQueue(0)", 1, 1);
        bench.push("in0", &[b"1", b"2"]);
        assert_eq!(bench.drops("e", "queue full"), 2);
        assert_eq!(bench.pull("out0", 9), 0);
    }
}
