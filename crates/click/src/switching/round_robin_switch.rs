//! =c
//! RoundRobinSwitch
//!
//! =s classification
//! sends packets to its outputs in turn
//!
//! =d
//! Each packet goes to the output after that of the one before, packet by packet whatever the burst size.
//!
//! =a Switch, HashSwitch, RandomSwitch, RoundRobinSched

use graph::{Class, Context, Element};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "RoundRobinSwitch",
    ports: "1/1-",
    processing: Class::PUSH,
    manual: graph::manual!("round_robin_switch.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(RoundRobinSwitch { next: 0 }))
    },
    ..Class::DEFAULT
};

struct RoundRobinSwitch {
    next: usize,
}

impl Element for RoundRobinSwitch {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let outputs = cx.outputs();
        cx.classify(batch, |_| {
            let output = self.next;
            self.next = if output + 1 < outputs { output + 1 } else { 0 };
            Ok(output)
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn outputs_take_turns() {
        for burst in [1, 3, 32] {
            let config = "in :: TestInput -> e :: RoundRobinSwitch; e[0] -> a :: TestOutput; e[1] -> b :: TestOutput; e[2] -> c :: TestOutput";
            let mut bench = Bench::with_burst(&crate::registry(), config, burst);
            bench.push("in", &[b"1", b"2", b"3", b"4"]);
            bench.push("in", &[b"5"]);
            assert_eq!(bench.taken("a"), [b"1", b"4"]);
            assert_eq!(bench.taken("b"), [b"2", b"5"]);
            assert_eq!(bench.taken("c"), [b"3"]);
        }
    }
}
