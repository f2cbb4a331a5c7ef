//! =c
//! StaticSwitch(OUTPUT)
//!
//! =s classification
//! sends packets to one of its outputs, for good
//!
//! =d
//! All packets go to OUTPUT. A negative one, or one that it does not have, drops them, counted as "switched off".
//!
//! =a Switch

use graph::{Class, Context, Element};
use packet::Batch;

use super::switch::switch_batch;

pub(crate) static CLASS: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "StaticSwitch",
    ports: "1/-",
    processing: Class::PUSH,
    manual: graph::manual!("static_switch.rs"),
    make: |setup| {
        let output: i32 = setup.arguments.required("OUTPUT")?;
        setup.arguments.finish()?;
        let outputs = setup.outputs();
        Ok(Box::new(StaticSwitch { output: usize::try_from(output).ok().filter(|&output| output < outputs) }))
    },
    ..Class::DEFAULT
};

struct StaticSwitch {
    output: Option<usize>,
}

impl Element for StaticSwitch {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        switch_batch(cx, self.output, batch);
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    #[test]
    fn one_output() {
        let mut bench = Bench::element(&crate::registry(), "StaticSwitch(1)", 1, 2);
        bench.push("in0", &[b"a", b"b"]);
        assert_eq!(bench.taken("out1"), [b"a", b"b"]);
        assert_eq!(bench.taken("out0").len(), 0);
    }

    #[test]
    fn none() {
        for output in ["-1", "2"] {
            let mut bench = Bench::element(&crate::registry(), &format!("StaticSwitch({output})"), 1, 2);
            bench.push("in0", &[b"a"]);
            assert_eq!(bench.drops("e", "switched off"), 1);
        }
        assert!(configure(&super::CLASS, "").is_err());
    }
}
