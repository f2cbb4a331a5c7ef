//! =c
//! StrideSwitch(TICKETS0, ..., TICKETSn)
//!
//! =s classification
//! sends packets to its outputs in proportion to their tickets
//!
//! =d
//! Stride scheduling: each output gets a share of the packets that is its share of the tickets, spread as evenly as can be. One
//! argument for each output, 0 to 32768 (more are reduced to that, with a warning); an output with 0 tickets gets nothing. When no output has tickets packets are dropped and
//! counted as "no output has tickets".
//!
//! =e
//!   s :: StrideSwitch(3, 1);
//!   ... -> s -> ...; s[1] -> ...
//!
//! =a StrideSched, RoundRobinSwitch, RandomSwitch, HashSwitch

use graph::{Class, Context, Element};
use packet::Batch;

use crate::queues::stride::{Strides, ticket_handlers};

pub(crate) static CLASS: Class = Class {
    name: "StrideSwitch",
    ports: "1/1-",
    processing: Class::PUSH,
    handlers: ticket_handlers!(StrideSwitch, outputs, "output"),
    manual: graph::manual!("stride_switch.rs"),
    make: |setup| {
        let outputs = setup.outputs();
        Ok(Box::new(StrideSwitch { outputs: Strides::from_setup(setup, outputs, "output")? }))
    },
    ..Class::DEFAULT
};

struct StrideSwitch {
    outputs: Strides,
}

impl Element for StrideSwitch {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        cx.classify(batch, |_| {
            let Some(&output) = self.outputs.order().first() else { return Err("no output has tickets") };
            self.outputs.pass_first(1);
            Ok(output)
        });
    }

    fn has_handler(&self, name: &str) -> bool {
        self.outputs.has_handler(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn shares_follow_tickets() {
        let mut bench = Bench::element(&crate::registry(), "StrideSwitch(4, 2, 1)", 1, 3);
        bench.push("in0", &[&b"x"[..]; 700]);
        let counts = ["out0", "out1", "out2"].map(|output| bench.taken(output).len());
        assert_eq!(counts, [400, 200, 100]);
        bench.write("e.tickets0", "0").unwrap();
        bench.write("e.tickets1", "0").unwrap();
        bench.push("in0", &[b"a", b"b"]);
        assert_eq!(bench.taken("out2"), [b"a", b"b"]);
        bench.write("e.tickets2", "0").unwrap();
        bench.push("in0", &[b"c"]);
        assert_eq!(bench.drops("e", "no output has tickets"), 1);
        assert_eq!(bench.read("e.tickets1"), "0");
    }

    #[test]
    fn mistakes() {
        assert_eq!(configure(&CLASS, "1, 2").unwrap_err(), ["1 outputs need 1 numbers of tickets, not 2"]);
        assert!(configure(&CLASS, "many").unwrap_err()[0].starts_with("tickets of output 0: "));
    }
}
