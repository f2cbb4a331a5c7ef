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
//! =a Queue, MSQueue

use graph::Class;

use super::queue;

pub(crate) static CLASS: Class =
    Class { name: "ThreadSafeQueue", manual: graph::manual!("thread_safe_queue.rs"), ..queue::CLASS };

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
