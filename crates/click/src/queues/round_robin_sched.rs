//! =c
//! RoundRobinSched
//!
//! =s scheduling
//! pulls from its inputs in turn
//!
//! =d
//! Each packet comes from the next input that has one, packet by packet whatever the burst size.
//!
//! =e
//!   a :: Queue -> [0]rr :: RoundRobinSched -> Unqueue -> ...;  b :: Queue -> [1]rr;
//!
//! =a PrioSched, StrideSched, DRRSched, PullSwitch, RoundRobinSwitch

use graph::{Alias, Class, Context, Element};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "RoundRobinSched",
    aliases: &[Alias {
        name: "SimpleRoundRobinSched",
        difference: "In Click this one asks every input without looking first whether that says it has \
                packets; here both do.",
    }],
    ports: "-/1",
    processing: Class::PULL,
    manual: graph::manual!("round_robin_sched.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(RoundRobinSched { next: 0 }))
    },
    ..Class::DEFAULT
};

struct RoundRobinSched {
    next: usize,
}

impl Element for RoundRobinSched {
    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let inputs = cx.inputs();
        let max = max.min(batch.room());
        if inputs <= 1 {
            cx.pull(0, batch, max);
            return;
        }
        let mut empty_in_a_row = 0;
        // Pulling into an empty batch is cheaper than adding to a full one.
        let mut one = cx.spare_batch();
        while batch.len() < max && empty_in_a_row < inputs {
            cx.pull(self.next, &mut one, 1);
            match one.pop() {
                Some(packet) => {
                    batch.push(packet);
                    empty_in_a_row = 0;
                }
                None => empty_in_a_row += 1,
            }
            self.next = if self.next + 1 < inputs { self.next + 1 } else { 0 };
        }
        cx.recycle(one);
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    fn bench(burst: usize) -> Bench {
        let config = "e :: RoundRobinSched -> out :: TestOutput;
            a :: TestInput -> Queue -> [0]e; b :: TestInput -> Queue -> [1]e; c :: TestInput -> Queue -> [2]e";
        let mut bench = Bench::with_burst(&crate::registry(), config, burst);
        bench.push("a", &[b"a1", b"a2", b"a3"]);
        bench.push("b", &[b"b1"]);
        bench.push("c", &[b"c1", b"c2"]);
        bench
    }

    #[test]
    fn packets_alternate_at_any_burst() {
        let expected = [b"a1", b"b1", b"c1", b"a2", b"c2", b"a3"];
        let mut bench_32 = bench(32);
        bench_32.pull("out", 32);
        assert_eq!(bench_32.taken("out"), expected);
        let mut bench_1 = bench(1);
        while bench_1.pull("out", 1) > 0 {}
        assert_eq!(bench_1.taken("out"), expected);
    }

    #[test]
    fn the_turn_is_kept_between_pulls() {
        let mut bench = bench(32);
        bench.pull("out", 2);
        bench.push("b", &[b"b2"]);
        bench.pull("out", 32);
        assert_eq!(bench.taken("out"), [b"a1", b"b1", b"c1", b"a2", b"b2", b"c2", b"a3"]);
        assert_eq!(bench.pull("out", 32), 0);
    }
}
