//! =c
//! SimplePrioSched
//!
//! =s scheduling
//! pulls from its first input that has packets
//!
//! =d
//! The same as C<PrioSched>. In Click this one asks every input without looking first whether that says it has packets; here
//! both do.
//!
//! =a PrioSched

use graph::Class;

use super::prio_sched::make;

pub(crate) static CLASS: Class = Class {
    name: "SimplePrioSched",
    ports: "-/1",
    processing: Class::PULL,
    manual: graph::manual!("simple_prio_sched.rs"),
    make,
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn the_first_input_comes_first() {
        let config = "e :: SimplePrioSched -> out :: TestOutput;
            a :: TestInput -> Queue -> [0]e; b :: TestInput -> Queue -> [1]e";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("b", &[b"b1", b"b2"]);
        bench.push("a", &[b"a1", b"a2"]);
        bench.pull("out", 9);
        assert_eq!(bench.taken("out"), [b"a1", b"a2", b"b1", b"b2"]);
    }
}
