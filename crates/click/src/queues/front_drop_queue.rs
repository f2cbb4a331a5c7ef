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
//! =a Queue, SimpleQueue

use graph::Class;

use super::length::QUEUE;
use super::storage::{Overflow, Storage, handlers};

pub(crate) static CLASS: Class = Class {
    name: "FrontDropQueue",
    ports: "1/1-2",
    processing: "h/lh",
    capabilities: &[QUEUE],
    handlers: &handlers(
        "The CAPACITY argument. What does not fit a smaller one is dropped, oldest first.",
        "Packets that had to make room.",
    ),
    manual: graph::manual!("front_drop_queue.rs"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropOld, true)?)),
    ..Class::DEFAULT
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
