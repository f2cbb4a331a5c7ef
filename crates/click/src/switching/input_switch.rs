//! =c
//! InputSwitch([INPUT])
//!
//! =s classification
//! takes packets of one of its inputs
//!
//! =d
//! Packets of input INPUT (0 by default) pass; those of the others are dropped and counted as "switched off". The C<switch>
//! handler changes it. At -1, or a number that it has no input for, no packet passes.
//!
//! =a Switch, PullSwitch

use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "InputSwitch",
    ports: "-/1",
    processing: Class::PUSH,
    handlers: &[Handler::read_write(
        "switch",
        Combine::First,
        "The input in use, or -1.",
        &Get(|e: &mut InputSwitch| e.open.map_or_else(|| "-1".to_owned(), |input| input.to_string())),
        &Put(|e: &mut InputSwitch, _, value| {
            let input = usize::try_from(i32::from_value(value)?).ok();
            e.open = input.filter(|&input| input < e.inputs);
            Ok(())
        }),
    )],
    manual: graph::manual!("input_switch.rs"),
    make: |setup| {
        let input: i32 = setup.arguments.optional("INPUT")?.unwrap_or(0);
        setup.arguments.finish()?;
        let inputs = setup.inputs();
        let open = usize::try_from(input).ok().filter(|&input| input < inputs);
        Ok(Box::new(InputSwitch { open, inputs }))
    },
    ..Class::DEFAULT
};

struct InputSwitch {
    open: Option<usize>,
    inputs: usize,
}

impl Element for InputSwitch {
    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        if self.open != Some(input) {
            cx.drop_batch(batch, "switched off");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn one_input_at_a_time() {
        let mut bench = Bench::element(&crate::registry(), "InputSwitch", 2, 1);
        bench.push("in0", &[b"a"]);
        bench.push("in1", &[b"b", b"c"]);
        bench.write("e.switch", "1").unwrap();
        bench.push("in1", &[b"d"]);
        assert_eq!(bench.taken("out0"), [b"a", b"d"]);
        assert_eq!(bench.drops("e", "switched off"), 2);
        bench.write("e.switch", "2").unwrap();
        bench.push("in0", &[b"e"]);
        assert_eq!((bench.read("e.switch"), bench.taken("out0").len()), ("-1".into(), 0));
        assert!(bench.write("e.switch", "x").is_err());
        assert!(configure(&CLASS, "-1").is_ok());
    }
}
