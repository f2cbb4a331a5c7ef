//! =c
//! AverageCounterMP([IGNORE])
//!
//! =s counters
//! counts packets and bytes of all threads, and their mean rates
//!
//! =d
//! The same as C<AverageCounter>, whose workers count each for itself.
//!
//! =a AverageCounter, CounterMP

use graph::Class;

use super::average_counter;

pub(crate) static CLASS: Class = Class {
    name: "AverageCounterMP",
    manual: graph::manual!("average_counter_mp.rs"),
    ..average_counter::CLASS
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn it_counts() {
        let mut bench = Bench::element(&crate::registry(), "AverageCounterMP", 1, 1);
        bench.push("in0", &[b"abc", b"de"]);
        assert_eq!((bench.read("e.count"), bench.read("e.byte_count")), ("2".into(), "5".into()));
    }
}
