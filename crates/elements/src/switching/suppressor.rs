//! =c
//! Suppressor
//!
//! =s classification
//! passes packets from inputs to outputs, each of which can be switched off
//!
//! =d
//! Has as many outputs as inputs. Packets of an input leave by the output of the same number. When that is switched off, packets
//! pushed into it are dropped and counted as "switched off", and those that would be pulled stay where they are. All
//! are on at first.
//!
//! =h active0...active15 read/write
//! Whether packets of that input pass.
//!
//! =h reset write-only
//! Switches all on.
//!
//! =a Switch, InputSwitch, EtherSwitch

use graph::{Class, Combine, Context, Element, FromArgument, Handler};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "Suppressor",
    ports: "-/=",
    processing: Class::AGNOSTIC,
    flow: "#/#",
    manual: include_str!("suppressor.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Suppressor { active: vec![true; setup.inputs()] }))
    },
};

struct Suppressor {
    active: Vec<bool>,
}

const HANDLERS: [Handler; 17] = [
    Handler::write("reset"),
    Handler::read_write("active0", Combine::First),
    Handler::read_write("active1", Combine::First),
    Handler::read_write("active2", Combine::First),
    Handler::read_write("active3", Combine::First),
    Handler::read_write("active4", Combine::First),
    Handler::read_write("active5", Combine::First),
    Handler::read_write("active6", Combine::First),
    Handler::read_write("active7", Combine::First),
    Handler::read_write("active8", Combine::First),
    Handler::read_write("active9", Combine::First),
    Handler::read_write("active10", Combine::First),
    Handler::read_write("active11", Combine::First),
    Handler::read_write("active12", Combine::First),
    Handler::read_write("active13", Combine::First),
    Handler::read_write("active14", Combine::First),
    Handler::read_write("active15", Combine::First),
];

impl Suppressor {
    fn port(&mut self, name: &str) -> Result<&mut bool, String> {
        let number: Option<usize> = name.strip_prefix("active").and_then(|number| number.parse().ok());
        let port = number.and_then(|number| self.active.get_mut(number));
        port.ok_or_else(|| format!("no input for '{name}'"))
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

    fn handlers(&self) -> &'static [Handler] {
        static ALL: [Handler; 17] = HANDLERS;
        &ALL[..(self.active.len() + 1).min(ALL.len())]
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        Ok(self.port(name)?.to_string())
    }

    fn write(&mut self, _cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        if name == "reset" {
            self.active.fill(true);
        } else {
            *self.port(name)? = bool::from_value(value)?;
        }
        Ok(())
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
