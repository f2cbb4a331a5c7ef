//! =c
//! CounterMP
//!
//! =s counters
//! counts packets and bytes of all threads, and measures their rates
//!
//! =d
//! The same as C<Counter>, whose workers count each for itself.
//!
//! =a Counter, AverageCounterMP

use graph::Class;

use super::counter;

pub(crate) static CLASS: Class =
    Class { name: "CounterMP", manual: graph::manual!("counter_mp.rs"), ..counter::CLASS };

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn it_counts() {
        let mut bench = Bench::element(&crate::registry(), "CounterMP", 1, 1);
        bench.push("in0", &[b"abc", b"de"]);
        assert_eq!((bench.read("e.count"), bench.read("e.byte_count")), ("2".into(), "5".into()));
    }
}
