//! =c
//! CounterMP
//!
//! =s counters
//! counts packets and bytes of all threads, and measures their rates
//!
//! =d
//! The same as C<Counter>, whose workers count each for itself.
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
//! =h bit_rate read-only
//! Bits a second.
//!
//! =h reset write-only
//! Sets the counts and rates to zero.
//!
//! =h reset_counts write-only
//! As reset.
//!
//! =a Counter, AverageCounterMP

use graph::Class;

use super::counter::make;

pub(crate) static CLASS: Class = Class {
    name: "CounterMP",
    ports: "1/1",
    processing: Class::AGNOSTIC,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("counter_mp.rs"),
    make,
};

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
