//! =c
//! Burster(INTERVAL [, BURST])
//!
//! =s shaping
//! pulls packets in bursts and pushes them on
//!
//! =d
//! A C<TimedUnqueue> whose BURST is 8 unless given.
//!
//! =a TimedUnqueue

use graph::Class;

use super::timed_unqueue::make;

pub(crate) static CLASS: Class = Class {
    name: "Burster",
    processing: "l/h",
    manual: graph::manual!("burster.rs"),
    make: |setup| make(setup, 8),
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn eight_at_a_time() {
        let config = "in :: TestInput -> Queue -> Burster(10ms) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&b"x"[..]; 20]);
        bench.run(10);
        assert_eq!(bench.taken("out").len(), 8);
        bench.advance_ns(10_000_000);
        assert_eq!(bench.taken("out").len(), 8);
    }
}
