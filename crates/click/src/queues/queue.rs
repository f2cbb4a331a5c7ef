//! =c
//! Queue([CAPACITY])
//!
//! =s queues
//! stores packets between a push and a pull path
//!
//! =d
//! Packets pushed into it wait, in order, until they are pulled. It holds up to CAPACITY packets
//! (1,000 by default). A packet that finds no room goes out by output 1 if that is connected.
//! Otherwise it is counted as "queue full" and dropped. It reports the first time.
//!
//! It wakes tasks downstream when it gets packets, so these can sleep while it is empty. It lets
//! sources upstream (C<InfiniteSource>) wait while it is full.
//!
//! Different from Click: every worker has a queue of its own of that CAPACITY.
//!
//! =e
//!   FromDevice(eth0) -> Queue(256) -> ToDevice(eth1);
//!
//! =a SimpleQueue, FrontDropQueue, MixedQueue, Unqueue, RED
//!
//! =c
//! SimpleQueue([CAPACITY])
//!
//! =s queues
//! stores packets; wakes no task
//!
//! =d
//! A C<Queue> that does not wake tasks downstream: an element that pulls from it has to poll. Use Queue.
//!
//! =a Queue, FrontDropQueue
//!
//! =c
//! NotifierQueue([CAPACITY])
//!
//! =s queues
//! stores packets; wakes tasks downstream when it has some
//!
//! =d
//! A C<Queue> that does not hold back sources upstream (C<InfiniteSource>) when it is full.
//!
//! =a Queue, QuickNoteQueue, SimpleQueue
//!
//! =c
//! FrontDropQueue([CAPACITY])
//!
//! =s queues
//! stores packets; drops the oldest when full
//!
//! =d
//! A C<Queue> in which the packet that waits longest makes room for the new packet. The old packet
//! goes out by output 1 if that is connected, and is counted as "queue full" and dropped otherwise.
//!
//! =a Queue, SimpleQueue
//!
//! =c
//! MixedQueue([CAPACITY])
//!
//! =s queues
//! stores packets; those of its second input leave first
//!
//! =d
//! A C<NotifierQueue> with two inputs. A packet of input 0 waits behind all others, as in any
//! queue. A packet of input 1 goes before all others, so that the last of these leaves first. When
//! the queue is full, a packet of input 0 finds no room. For a packet of input 1, the packet that
//! would leave last makes room. A packet without room goes out by output 1 if that is connected,
//! and is counted as "queue full" and dropped otherwise.
//!
//! =e
//!   data -> [0]q :: MixedQueue(200) -> Unqueue -> ...;  urgent -> [1]q;
//!
//! =a Queue, FrontDropQueue, PrioSched

use graph::{Alias, Class};

use super::length::{QUEUE, TELLS_WHEN_FULL};
use super::storage::{HANDLERS, Overflow, Storage, handlers};

pub(crate) static CLASS: Class = Class {
    name: "Queue",
    aliases: &[
        Alias {
            name: "FullNoteQueue",
            difference: "In Click it is the queue behind Queue; both tell sources upstream when they are full.",
        },
        Alias {
            name: "MSQueue",
            difference: "In Click several threads may push into it and one pulls, and it has been renamed to \
                ThreadSafeQueue; here every worker has a queue of its own.",
        },
        Alias {
            name: "QuickNoteQueue",
            difference: "In Click a Queue lets tasks downstream come back in vain a few times before it tells \
                them that it is empty, and this one does not; here every queue tells at once.",
        },
        Alias {
            name: "ThreadSafeQueue",
            difference: "In Click several threads may push into it and pull from it; here every worker has a \
                queue of its own, so every queue is safe.",
        },
    ],
    ports: "1/1-2",
    processing: "h/lh",
    capabilities: &[graph::TAKES_MERGED, QUEUE, TELLS_WHEN_FULL, graph::KEEPS_ALL],
    handlers: &HANDLERS,
    manual: graph::manual!("queue.rs", "Queue"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropNew, true)?)),
    ..Class::DEFAULT
};

pub(crate) static NOTIFIER: Class = Class {
    name: "NotifierQueue",
    aliases: &[],
    capabilities: &[graph::TAKES_MERGED, QUEUE],
    manual: graph::manual!("queue.rs", "NotifierQueue"),
    ..CLASS
};

pub(crate) static SIMPLE: Class = Class {
    name: "SimpleQueue",
    manual: graph::manual!("queue.rs", "SimpleQueue"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropNew, false)?)),
    ..NOTIFIER
};

pub(crate) static FRONT_DROP: Class = Class {
    name: "FrontDropQueue",
    handlers: &handlers(
        "The CAPACITY argument. What does not fit a smaller one is dropped, oldest first.",
        "Packets that had to make room.",
    ),
    manual: graph::manual!("queue.rs", "FrontDropQueue"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropOld, true)?)),
    ..NOTIFIER
};

pub(crate) static MIXED: Class = Class {
    name: "MixedQueue",
    ports: "1-2/1-2",
    handlers: &handlers(
        "The CAPACITY argument. What does not fit a smaller one is dropped, newest first.",
        "Packets that found no room or made it.",
    ),
    manual: graph::manual!("queue.rs", "MixedQueue"),
    ..NOTIFIER
};

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn packets_wait_in_order_and_late_ones_are_dropped() {
        let mut bench = Bench::element(&crate::registry(), "Queue(3)", 1, 1);
        bench.push("in0", &[b"1", b"2", b"3", b"4", b"5"]);
        assert_eq!(bench.read("e.length"), "3");
        assert_eq!(bench.read("e.drops"), "2");
        assert_eq!(bench.drops("e", "queue full"), 2);
        assert_eq!(bench.messages(), ["e: overflow"]);
        assert_eq!(bench.pull("out0", 2), 2);
        assert_eq!(bench.taken("out0"), [b"1", b"2"]);
        bench.push("in0", &[b"6"]);
        assert_eq!(bench.pull("out0", 9), 2);
        assert_eq!(bench.taken("out0"), [b"3", b"6"]);
        assert_eq!(bench.read("e.highwater_length"), "3");
        bench.write("e.reset_counts", "").unwrap();
        assert_eq!((bench.read("e.highwater_length"), bench.read("e.drops")), ("0".into(), "0".into()));
    }

    #[test]
    fn packets_are_counted_once_when_they_come() {
        let mut bench = Bench::element(&crate::registry(), "Queue(3)", 1, 1);
        bench.push("in0", &[b"1", b"2", b"3", b"4"]);
        let counts = |bench: &mut Bench| (bench.stats("e").packets, bench.stats("e").batches);
        assert_eq!(counts(&mut bench), (4, 1));
        assert_eq!((bench.pull("out0", 2), bench.pull("out0", 9)), (2, 1));
        assert_eq!(counts(&mut bench), (4, 1));
        assert_eq!(bench.stats("e").passed(), 3);
    }

    #[test]
    fn the_second_output_has_what_found_no_room() {
        let mut bench = Bench::element(&crate::registry(), "Queue(1)", 1, 2);
        bench.push("in0", &[b"1", b"2"]);
        assert_eq!(bench.taken("out1"), [b"2"]);
        assert_eq!(bench.stats("e").drops, []);
        assert_eq!(bench.read("e.drops"), "1");
    }

    #[test]
    fn capacity_and_reset() {
        let mut bench = Bench::element(&crate::registry(), "Queue", 1, 1);
        assert_eq!(bench.read("e.capacity"), "1000");
        bench.push("in0", &[b"1", b"2", b"3", b"4"]);
        bench.write("e.capacity", "2").unwrap();
        assert_eq!(bench.read("e.length"), "2");
        bench.write("e.capacity", "3").unwrap();
        bench.push("in0", &[b"5", b"6"]);
        bench.pull("out0", 9);
        assert_eq!(bench.taken("out0"), [b"1", b"2", b"5"]);
        bench.push("in0", &[b"7"]);
        bench.write("e.reset", "").unwrap();
        assert_eq!(bench.pull("out0", 9), 0);
        assert!(bench.write("e.capacity", "many").is_err());
    }

    #[test]
    fn a_source_waits_while_it_is_full() {
        for (queue, drops) in [("Queue", "0"), ("FullNoteQueue", "0"), ("NotifierQueue", "36")] {
            let config = format!("InfiniteSource(LIMIT 100) -> q :: {queue}(64) -> out :: TestOutput");
            let mut bench = Bench::new(&crate::registry(), &config);
            bench.run(100);
            assert_eq!(
                (bench.read("q.length"), bench.read("q.drops")),
                ("64".into(), drops.into()),
                "{queue}"
            );
        }
    }

    #[test]
    fn a_task_downstream_sleeps_once_it_is_empty() {
        let config = "in :: TestInput -> e :: QuickNoteQueue -> Unqueue -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"1", b"2"]);
        bench.run(2);
        assert_eq!(bench.taken("out"), [b"1", b"2"]);
        assert!(!bench.graph().context().has_awake_tasks());
    }

    #[test]
    fn mistakes() {
        assert_eq!(
            configure(&CLASS, "16777217").unwrap_err(),
            ["CAPACITY: expected 0 to 16777216 packets, got 16777217"]
        );
        assert!(configure(&CLASS, "-1").is_err());
        assert!(configure(&CLASS, "0").is_ok());
    }

    proptest! {
        #[test]
        fn as_a_list(capacity in 0usize..20, steps in prop::collection::vec((any::<bool>(), 0usize..40), 1..30)) {
            let mut bench = Bench::element(&crate::registry(), &format!("Queue({capacity})"), 1, 1);
            let mut list = VecDeque::new();
            let mut number = 0u8;
            for (push, count) in steps {
                if push {
                    let packets: Vec<[u8; 1]> = (0..count).map(|i| [number.wrapping_add(i as u8)]).collect();
                    number = number.wrapping_add(count as u8);
                    bench.push("in0", &packets.iter().map(|p| &p[..]).collect::<Vec<_>>());
                    for packet in packets {
                        if list.len() < capacity {
                            list.push_back(packet.to_vec());
                        }
                    }
                } else {
                    bench.pull("out0", count);
                    let expected: Vec<_> = list.drain(..count.min(list.len())).collect();
                    prop_assert_eq!(bench.taken("out0"), expected);
                }
            }
        }
    }

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
