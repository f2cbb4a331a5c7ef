//! =c
//! Bypass([ACTIVE, I<keyword> INLINE])
//!
//! =s classification
//! sends packets another way while it is switched on
//!
//! =d
//! Packets pass from input 0 to output 0, as if it were not there. With ACTIVE true they leave by
//! output 1 instead, if that is connected. In a pull path they come from input 1 instead, if that
//! is connected. Packets of input 1 always leave by output 0, so that the other path can lead back
//! here.
//!
//! A pull from output 1 is a pull from input 0.
//!
//! Different from Click: INLINE has no effect. Packets always go through the element, which costs
//! some ten cycles a batch.
//!
//! =e
//!   ... -> b :: Bypass -> sink ...;
//!   b[1] -> Print(Debug) -> [1]b;
//!
//! =a Switch, PullSwitch, Null

use graph::{Class, Context, Element, Field, Handler};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "Bypass",
    ports: "1-2/1-2",
    flow: "xy/[xy]x",
    handlers: &[Handler::field("active", "The ACTIVE argument.", &Field(|e: &mut Bypass| &mut e.active))],
    manual: graph::manual!("bypass.rs"),
    make: |setup| {
        let active = setup.arguments.optional("ACTIVE")?.unwrap_or(false);
        setup.arguments.keyword::<bool>("INLINE")?;
        setup.arguments.finish()?;
        Ok(Box::new(Bypass { active }))
    },
    ..Class::DEFAULT
};

struct Bypass {
    active: bool,
}

impl Element for Bypass {
    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        if self.active && input == 0 && cx.outputs() > 1 {
            cx.emit_batch(1, batch);
        }
    }

    /// So the other way back to input 1 does not meet this element at work.
    fn pulled_through(&self, output: usize) -> Option<usize> {
        (output == 1).then_some(0)
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let input = usize::from(self.active && cx.inputs() > 1);
        cx.pull(input, batch, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn there_and_back_in_a_push_path() {
        for burst in [1, 32] {
            let config = "in :: TestInput -> e :: Bypass -> out :: TestOutput; e[1] -> Strip(1) -> [1]e";
            let mut bench = Bench::with_burst(&crate::registry(), config, burst);
            bench.push("in", &[b"ab", b"cd"]);
            bench.write("e.active", "true").unwrap();
            bench.push("in", &[b"ef", b"gh"]);
            assert_eq!(bench.taken("out"), [&b"ab"[..], b"cd", b"f", b"h"]);
            assert_eq!(bench.read("e.active"), "true");
        }
    }

    #[test]
    fn a_pull_path_has_two_beginnings() {
        let config = "a :: TestInput -> Queue -> e :: Bypass(true) -> out :: TestOutput;
            b :: TestInput -> Queue -> [1]e";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("a", &[b"a"]);
        bench.push("b", &[b"b"]);
        bench.pull("out", 9);
        bench.write("e.active", "false").unwrap();
        bench.pull("out", 9);
        assert_eq!(bench.taken("out"), [b"b", b"a"]);
    }

    #[test]
    fn there_and_back_in_a_pull_path() {
        let config = "in :: TestInput -> Queue -> e :: Bypass -> out :: TestOutput; e[1] -> Strip(1) -> [1]e";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"ab", b"cd"]);
        bench.pull("out", 1);
        bench.write("e.active", "true").unwrap();
        bench.pull("out", 9);
        assert_eq!(bench.taken("out"), [&b"ab"[..], b"d"]);
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "INLINE maybe").is_err());
        assert!(configure(&CLASS, "INLINE true").is_ok());
    }
}
