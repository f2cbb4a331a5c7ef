//! =c
//! SimpleRoundRobinSched
//!
//! =s scheduling
//! pulls from its inputs in turn
//!
//! =d
//! The same as C<RoundRobinSched>. In Click this one asks every input without looking first whether that says it has packets;
//! here both do.
//!
//! =a RoundRobinSched

use graph::Class;

use super::round_robin_sched::make;

pub(crate) static CLASS: Class = Class {
    name: "SimpleRoundRobinSched",
    ports: "-/1",
    processing: Class::PULL,
    manual: graph::manual!("simple_round_robin_sched.rs"),
    make,
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn inputs_take_turns() {
        let config = "e :: SimpleRoundRobinSched -> out :: TestOutput;
            a :: TestInput -> Queue -> [0]e; b :: TestInput -> Queue -> [1]e";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("b", &[b"b1", b"b2"]);
        bench.push("a", &[b"a1", b"a2"]);
        bench.pull("out", 9);
        assert_eq!(bench.taken("out"), [b"a1", b"b1", b"a2", b"b2"]);
    }
}
