//! =c
//! MixedQueue([CAPACITY])
//!
//! =s queues
//! stores packets; those of its second input leave first
//!
//! =d
//! A C<NotifierQueue> with two inputs. A packet of input 0 waits behind all others, as in any queue; one of input 1 goes before all
//! others, so that the last of these leaves first. When the queue is full, a packet of input 0 finds no room, and for one of
//! input 1 the packet that would leave last makes room. What has no room goes out by output 1 if that is connected, and is
//! counted as "queue full" and dropped otherwise.
//!
//! =e
//!   data -> [0]q :: MixedQueue(200) -> Unqueue -> ...;  urgent -> [1]q;
//!
//! =a Queue, FrontDropQueue, PrioSched

use graph::Class;

use super::length::QUEUE;
use super::storage::{Overflow, Storage, handlers};

pub(crate) static CLASS: Class = Class {
    name: "MixedQueue",
    ports: "1-2/1-2",
    processing: "h/lh",
    capabilities: &[QUEUE],
    handlers: &handlers(
        "The CAPACITY argument. What does not fit a smaller one is dropped, newest first.",
        "Packets that found no room or made it.",
    ),
    manual: graph::manual!("mixed_queue.rs"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropNew, true)?)),
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn the_second_input_goes_first() {
        let mut bench = Bench::element(&crate::registry(), "MixedQueue", 2, 1);
        bench.push("in0", &[b"a", b"b"]);
        bench.push("in1", &[b"c"]);
        bench.push("in0", &[b"d"]);
        bench.push("in1", &[b"e", b"f"]);
        bench.pull("out0", 9);
        assert_eq!(bench.taken("out0").concat(), b"fecabd");
    }

    #[test]
    fn a_full_queue_makes_room_for_the_second_input_only() {
        let mut bench = Bench::element(&crate::registry(), "MixedQueue(2)", 2, 2);
        bench.push("in0", &[b"a", b"b", b"c"]);
        bench.push("in1", &[b"d"]);
        assert_eq!(bench.taken("out1"), [b"c", b"b"]);
        bench.pull("out0", 9);
        assert_eq!(bench.taken("out0"), [b"d", b"a"]);
        assert_eq!((bench.read("e.drops"), bench.read("e.highwater_length")), ("2".into(), "2".into()));
        bench.write("e.capacity", "0").unwrap();
        bench.push("in1", &[b"x"]);
        assert_eq!(bench.taken("out1"), [b"x"]);
    }
}
