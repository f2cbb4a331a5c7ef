//! =c
//! Suppressor
//!
//! =s classification
//! passes packets from inputs to outputs, each of which can be switched off
//!
//! =d
//! Has as many outputs as inputs. Packets of an input leave by the output of the same number. When
//! that output is switched off, packets pushed into it are dropped and counted as "switched off".
//! Packets that would be pulled stay where they are. All outputs are on at first.
//!
//! =a Switch, InputSwitch, EtherSwitch

use graph::{Ask, Class, Combine, Context, Element, FromArgument, Handler, Put};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "Suppressor",
    ports: "-/=",
    flow: "#/#",
    handlers: HANDLERS,
    manual: graph::manual!("suppressor.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Suppressor { active: vec![true; setup.inputs()] }))
    },
    ..Class::DEFAULT
};

struct Suppressor {
    active: Vec<bool>,
}

/// The handlers: one for all inputs, and one for each input of these numbers.
macro_rules! handlers {
    ($($number:literal)*) => {
        &[
            Handler::write(
                "reset",
                "Switches all on.",
                &Put(|e: &mut Suppressor, _, _| {
                    e.active.fill(true);
                    Ok(())
                }),
            ),
            $(Handler::read_write(
                concat!("active", $number),
                Combine::First,
                concat!("Whether packets of input ", $number, " pass."),
                &Ask(|e: &mut Suppressor, _, _| Ok(e.input($number)?.to_string())),
                &Put(|e: &mut Suppressor, _, value| {
                    *e.input($number)? = bool::from_value(value)?;
                    Ok(())
                }),
            ),)*
        ]
    };
}

/// Inputs beyond these have no handler.
const HANDLERS: &[Handler] = handlers! { 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 };

impl Suppressor {
    fn input(&mut self, number: usize) -> Result<&mut bool, String> {
        self.active.get_mut(number).ok_or_else(|| format!("no input for 'active{number}'"))
    }
}

impl Element for Suppressor {
    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        if !self.active.get(input).copied().unwrap_or(false) {
            cx.drop_batch(batch, "switched off");
        } else if input > 0 {
            cx.emit_batch(input, batch);
        }
    }

    fn pull(&mut self, cx: &mut Context, output: usize, batch: &mut Batch, max: usize) {
        if self.active.get(output).copied().unwrap_or(false) {
            cx.pull(output, batch, max);
        }
    }

    fn has_handler(&self, name: &str) -> bool {
        let number: Option<usize> = name.strip_prefix("active").and_then(|number| number.parse().ok());
        number.is_none_or(|number| number < self.active.len())
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn each_port_by_itself() {
        let mut bench = Bench::element(&crate::registry(), "Suppressor", 2, 2);
        bench.write("e.active0", "false").unwrap();
        bench.push("in0", &[b"a"]);
        bench.push("in1", &[b"b"]);
        assert_eq!(bench.taken("out1"), [b"b"]);
        assert_eq!(bench.drops("e", "switched off"), 1);
        bench.write("e.active1", "0").unwrap();
        assert_eq!((bench.read("e.active0"), bench.read("e.active1")), ("false".into(), "false".into()));
        bench.write("e.reset", "").unwrap();
        bench.push("in0", &[b"c"]);
        assert_eq!(bench.taken("out0"), [b"c"]);
        assert!(bench.write("e.active2", "true").is_err());
        assert!(bench.write("e.active1", "maybe").is_err());
    }

    #[test]
    fn what_is_pulled_stays() {
        let config = "a :: TestInput -> Queue -> e :: Suppressor -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("a", &[b"a"]);
        bench.write("e.active0", "false").unwrap();
        assert_eq!(bench.pull("out", 9), 0);
        bench.write("e.active0", "true").unwrap();
        assert_eq!(bench.pull("out", 9), 1);
    }
}
