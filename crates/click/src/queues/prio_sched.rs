//! =c
//! PrioSched
//!
//! =s scheduling
//! pulls from its first input that has packets
//!
//! =d
//! Input 0 comes first; input 1 gives packets only while input 0 has none, and so on.
//!
//! =e
//!   urgent :: Queue -> [0]p :: PrioSched -> Unqueue -> ...;  rest :: Queue -> [1]p;
//!
//! =a RoundRobinSched, StrideSched, DRRSched, SimplePrioSched

use graph::{Alias, Class, Context, Element};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "PrioSched",
    aliases: &[Alias {
        name: "SimplePrioSched",
        difference: "In Click this one asks every input without looking first whether that says it has \
                packets; here both do.",
    }],
    ports: "-/1",
    processing: Class::PULL,
    manual: graph::manual!("prio_sched.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(PrioSched))
    },
    ..Class::DEFAULT
};

struct PrioSched;

impl Element for PrioSched {
    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let max = max.min(batch.room());
        for input in 0..cx.inputs() {
            // Again while it gives any: an element in between may have dropped some of what was asked for.
            while batch.len() < max {
                let before = batch.len();
                cx.pull(input, batch, max - before);
                if batch.len() == before {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn the_first_input_comes_first() {
        let config = "e :: PrioSched -> out :: TestOutput;
            a :: TestInput -> Queue -> CheckPaint(0) -> [0]e; b :: TestInput -> Queue -> [1]e";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("b", &[b"b1", b"b2"]);
        bench.pull("out", 1);
        bench.push("a", &[b"a1", b"a2"]);
        let mut painted = bench.packet(b"gone");
        painted.annotations_mut().set_paint(1);
        let last = bench.packet(b"a3");
        bench.push_packets("a", vec![painted, last]);
        bench.pull("out", 4);
        assert_eq!(bench.taken("out"), [b"b1", b"a1", b"a2", b"a3", b"b2"]);
    }
}
