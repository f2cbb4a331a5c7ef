//! =c
//! ListenEtherSwitch([I<keyword> TIMEOUT])
//!
//! =s ethernet
//! a learning Ethernet switch with a port to listen at
//!
//! =d
//! An C<EtherSwitch> with one output more than inputs. The last output gets a copy of each packet, also of those that go back to
//! where they came from, which leave by no other.
//!
//! =a EtherSwitch, Hub

use graph::Class;

use super::ether_switch;

pub(crate) static CLASS: Class = Class {
    name: "ListenEtherSwitch",
    ports: "-/=+",
    manual: graph::manual!("listen_ether_switch.rs"),
    make: |setup| ether_switch::make(setup, true),
    ..ether_switch::CLASS
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn the_last_output_has_everything() {
        let mut bench = Bench::element(&crate::registry(), "ListenEtherSwitch", 2, 3);
        let frame = |destination: u8, source: u8| [2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 8, 0];
        bench.push("in0", &[&frame(2, 1)]);
        bench.push("in1", &[&frame(1, 2)]);
        bench.push("in1", &[&frame(2, 2)]);
        let counts = ["out0", "out1", "out2"].map(|output| bench.taken(output).len());
        assert_eq!(counts, [1, 1, 3]);
    }
}
