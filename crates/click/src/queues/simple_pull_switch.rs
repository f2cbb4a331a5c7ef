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
//! =a PullSwitch

use graph::Class;

use super::pull_switch;

pub(crate) static CLASS: Class =
    Class { name: "SimplePullSwitch", manual: graph::manual!("simple_pull_switch.rs"), ..pull_switch::CLASS };

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
