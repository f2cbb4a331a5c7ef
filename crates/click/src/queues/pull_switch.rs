//! =c
//! PullSwitch([INPUT])
//!
//! =s scheduling
//! pulls from one of its inputs
//!
//! =d
//! Packets come from input INPUT (0 by default) only; the C<switch> handler changes it. At -1, or a number that it has
//! no input for, nothing comes.
//!
//! =a Switch, InputSwitch, SimplePullSwitch, RoundRobinSched, PrioSched

use graph::{Alias, Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "PullSwitch",
    aliases: &[Alias {
        name: "SimplePullSwitch",
        difference: "In Click this one does not tell tasks downstream whether the input in use has \
                packets; here both leave that to the queues upstream.",
    }],
    ports: "-/1",
    processing: Class::PULL,
    handlers: &[Handler::read_write(
        "switch",
        Combine::First,
        "The input in use, or -1.",
        &Get(|e: &mut PullSwitch| e.input.map_or_else(|| "-1".to_owned(), |input| input.to_string())),
        &Put(|e: &mut PullSwitch, _, value| {
            e.input = input(i32::from_value(value)?, e.inputs);
            Ok(())
        }),
    )],
    manual: graph::manual!("pull_switch.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let number: i32 = setup.arguments.optional("INPUT")?.unwrap_or(0);
    setup.arguments.finish()?;
    let inputs = setup.inputs();
    Ok(Box::new(PullSwitch { input: input(number, inputs), inputs }))
}

/// The input of a number, if there is one.
fn input(number: i32, inputs: usize) -> Option<usize> {
    usize::try_from(number).ok().filter(|&input| input < inputs)
}

struct PullSwitch {
    input: Option<usize>,
    inputs: usize,
}

impl Element for PullSwitch {
    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        if let Some(input) = self.input {
            cx.pull(input, batch, max);
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn one_input_at_a_time() {
        let config = "e :: PullSwitch(1) -> out :: TestOutput;
            a :: TestInput -> Queue -> [0]e; b :: TestInput -> Queue -> [1]e";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("a", &[b"a1"]);
        bench.push("b", &[b"b1", b"b2"]);
        bench.pull("out", 1);
        bench.write("e.switch", "0").unwrap();
        bench.pull("out", 9);
        assert_eq!(bench.taken("out"), [b"b1", b"a1"]);
        for off in ["-1", "2"] {
            bench.write("e.switch", off).unwrap();
            assert_eq!(bench.read("e.switch"), "-1");
            assert_eq!(bench.pull("out", 9), 0);
        }
        assert!(bench.write("e.switch", "on").is_err());
    }
}
