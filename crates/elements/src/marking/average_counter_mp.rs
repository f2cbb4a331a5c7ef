//! =c
//! AverageCounterMP([IGNORE])
//!
//! =s counters
//! counts packets and bytes of all threads, and their mean rates
//!
//! =d
//! The same as C<AverageCounter>, whose workers count each for itself.
//!
//! =h count read-only
//! Packets so far.
//!
//! =h byte_count read-only
//! Bytes so far.
//!
//! =h rate read-only
//! Packets a second.
//!
//! =h byte_rate read-only
//! Bytes a second.
//!
//! =h reset write-only
//! Sets counts to zero.
//!
//! =a AverageCounter, CounterMP

use graph::Class;

use super::average_counter::make;

pub(crate) static CLASS: Class = Class {
    name: "AverageCounterMP",
    ports: "1/1",
    processing: Class::AGNOSTIC,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("average_counter_mp.rs"),
    make,
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
