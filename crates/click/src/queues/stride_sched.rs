//! =c
//! StrideSched(TICKETS0, ..., TICKETSn)
//!
//! =s scheduling
//! pulls from its inputs in proportion to their tickets
//!
//! =d
//! Stride scheduling: while all inputs have packets, each gives a share of them that is its share of the tickets, spread
//! as evenly as can be. One argument for each input, 0 to 32768 (more are reduced to that, with a warning); an input with 0
//! tickets gives nothing.
//!
//! =e
//!   s :: StrideSched(4, 2, 1) -> Unqueue -> ...
//!
//! =a RoundRobinSched, PrioSched, DRRSched, StrideSwitch
//! Waldspurger and Weihl, Stride Scheduling: Deterministic Proportional-Share Resource Management, MIT/LCS/TM-528, 1995.

use graph::{Class, Context, Element};
use packet::Batch;

use super::stride::{Strides, ticket_handlers};

pub(crate) static CLASS: Class = Class {
    name: "StrideSched",
    ports: "-/1",
    processing: Class::PULL,
    handlers: ticket_handlers!(StrideSched, inputs, "input"),
    manual: graph::manual!("stride_sched.rs"),
    make: |setup| {
        let inputs = setup.inputs();
        Ok(Box::new(StrideSched { inputs: Strides::from_setup(setup, inputs, "input")? }))
    },
    ..Class::DEFAULT
};

struct StrideSched {
    inputs: Strides,
}

impl StrideSched {
    /// Pulls one packet; false when no input has any.
    fn pull_one(&mut self, cx: &mut Context, batch: &mut Batch) -> bool {
        let before = batch.len();
        let mut asked = 0;
        while batch.len() == before
            && let Some(&input) = self.inputs.order().get(asked)
        {
            cx.pull(input, batch, 1);
            asked += 1;
        }
        self.inputs.pass_first(asked);
        batch.len() > before
    }
}

impl Element for StrideSched {
    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let max = max.min(batch.room());
        while batch.len() < max && self.pull_one(cx, batch) {}
    }

    fn has_handler(&self, name: &str) -> bool {
        self.inputs.has_handler(name)
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    fn bench() -> Bench {
        let config = "e :: StrideSched(4, 2, 1) -> out :: TestOutput;
            InfiniteSource(1, LIMIT 10) -> [0]e; InfiniteSource(2, LIMIT 10) -> [1]e; InfiniteSource(3, LIMIT 10) -> [2]e";
        Bench::new(&crate::registry(), config)
    }

    // The order that Click's own test of this element expects.
    #[test]
    fn shares_follow_tickets() {
        let mut bench = bench();
        bench.pull("out", 100);
        let order: Vec<u8> = bench.taken("out").concat();
        assert_eq!(String::from_utf8(order).unwrap(), "112112311211231122322322333333");
    }

    #[test]
    fn tickets_can_be_changed() {
        let mut bench = bench();
        assert_eq!(bench.read("e.tickets0"), "4");
        bench.write("e.tickets0", "0").unwrap();
        bench.write("e.tickets1", "0").unwrap();
        bench.pull("out", 3);
        assert_eq!(bench.taken("out").concat(), b"333");
        bench.write("e.tickets2", "0").unwrap();
        assert_eq!(bench.pull("out", 3), 0);
        bench.write("e.tickets1", "1").unwrap();
        assert_eq!(bench.pull("out", 30), 10);
        assert!(bench.write("e.tickets1", "32769").is_err());
    }

    #[test]
    fn mistakes() {
        let config = "Idle -> [0]e :: StrideSched(1, 2) -> Discard";
        let error = Bench::try_new(&crate::registry(), config, 1, &Default::default()).unwrap_err();
        assert!(error.contains("1 inputs need 1 numbers of tickets, not 2"), "{error}");
    }
}
