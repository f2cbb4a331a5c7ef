//! =c
//! SimplePullSwitch([INPUT])
//!
//! =s scheduling
//! pulls from one of its inputs
//!
//! =d
//! The same as C<PullSwitch>. In Click this one does not tell tasks downstream whether the input in use has packets; here
//! both leave that to the queues upstream.
//!
//! =h switch read/write
//! The input in use, or -1.
//!
//! =a PullSwitch

use graph::Class;

use super::pull_switch::make;

pub(crate) static CLASS: Class = Class {
    name: "SimplePullSwitch",
    ports: "-/1",
    processing: Class::PULL,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("simple_pull_switch.rs"),
    make,
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn one_input_at_a_time() {
        let config = "e :: SimplePullSwitch(1) -> out :: TestOutput;
            a :: TestInput -> Queue -> [0]e; b :: TestInput -> Queue -> [1]e";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("a", &[b"a1"]);
        bench.push("b", &[b"b1"]);
        bench.pull("out", 9);
        bench.write("e.switch", "0").unwrap();
        bench.pull("out", 9);
        assert_eq!(bench.taken("out"), [b"b1", b"a1"]);
    }
}
