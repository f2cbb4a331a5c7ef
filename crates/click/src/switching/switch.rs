//! =c
//! Switch([OUTPUT])
//!
//! =s classification
//! sends packets to one of its outputs
//!
//! =d
//! All packets go to OUTPUT, 0 by default; the C<switch> handler changes it. A negative one drops them, counted as
//! "switched off".
//!
//! =a StaticSwitch, InputSwitch, PullSwitch, PaintSwitch, RoundRobinSwitch

use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "Switch",
    ports: "1/-",
    processing: Class::PUSH,
    handlers: &[
        Handler::read_write(
            "switch",
            Combine::First,
            "The output in use, or -1.",
            &OUTPUT,
            &Put(|e: &mut Switch, _, value| {
                let output = usize::try_from(i32::from_value(value)?).ok();
                e.output = output.filter(|&output| output < e.outputs);
                Ok(())
            }),
        ),
        Handler::read("config", Combine::First, "As switch.", &OUTPUT),
    ],
    manual: graph::manual!("switch.rs"),
    make: |setup| {
        let output: i32 = setup.arguments.optional("OUTPUT")?.unwrap_or(0);
        setup.arguments.finish()?;
        let outputs = setup.outputs();
        let output = usize::try_from(output).ok();
        if output.is_some_and(|output| output >= outputs) {
            return Err(format!("OUTPUT: must be < {outputs}, the number of outputs").into());
        }
        Ok(Box::new(Switch { output, outputs }))
    },
    ..Class::DEFAULT
};

/// Sends the batch the way of a switch that stands at `output`.
#[inline]
pub(super) fn switch_batch(cx: &mut Context, output: Option<usize>, batch: &mut Batch) {
    match output {
        Some(0) => {}
        Some(output) => cx.emit_batch(output, batch),
        None => cx.drop_batch(batch, "switched off"),
    }
}

const OUTPUT: Get<Switch> = Get(|e| e.output.map_or_else(|| "-1".to_owned(), |output| output.to_string()));

struct Switch {
    output: Option<usize>,
    outputs: usize,
}

impl Element for Switch {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        switch_batch(cx, self.output, batch);
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn one_output_at_a_time() {
        let mut bench = Bench::element(&crate::registry(), "Switch(1)", 1, 3);
        bench.push("in0", &[b"a"]);
        bench.write("e.switch", "0").unwrap();
        bench.push("in0", &[b"b"]);
        bench.write("e.switch", "2").unwrap();
        bench.push("in0", &[b"c"]);
        assert_eq!(bench.taken("out0"), [b"b"]);
        assert_eq!(bench.taken("out1"), [b"a"]);
        assert_eq!(bench.taken("out2"), [b"c"]);
        for off in ["-1", "3"] {
            bench.write("e.switch", off).unwrap();
            bench.push("in0", &[b"d"]);
            assert_eq!(bench.read("e.config"), "-1");
        }
        assert_eq!(bench.drops("e", "switched off"), 2);
        assert!(bench.write("e.switch", "left").is_err());
    }

    #[test]
    fn mistakes() {
        let config = "in :: TestInput -> t :: Switch(2) -> Discard; t[1] -> Discard";
        let error = Bench::try_new(&crate::registry(), config, 1, &Default::default()).unwrap_err();
        assert!(error.contains("OUTPUT: must be < 2"), "{error}");
    }
}
