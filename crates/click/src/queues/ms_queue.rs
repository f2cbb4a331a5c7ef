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
//! =a Queue, ThreadSafeQueue

use graph::Class;

use super::queue;

pub(crate) static CLASS: Class =
    Class { name: "MSQueue", manual: graph::manual!("ms_queue.rs"), ..queue::CLASS };

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
