//! =c
//! Counter([I<keywords> COUNT_CALL, BYTE_COUNT_CALL])
//!
//! =s counters
//! counts packets and bytes, and measures their rates
//!
//! =d
//! Packets pass unchanged. Rates are averages over some 16 ms.
//!
//! COUNT_CALL: a number and a write handler with its value, as in C<COUNT_CALL 100 stop>. When so many packets have been
//! counted, and before the last of them goes on, the handler is written, once. Packets that come in one batch with it go
//! on after that too; C<brickway click> has them come one by one.
//!
//! BYTE_COUNT_CALL: the same for bytes.
//!
//! With several workers each counts and calls for itself.
//!
//! =a AverageCounter, Meter

use std::any::Any;

use graph::arguments::HandlerCall;
use graph::lang::next_word;
use graph::{
    Alias, Ask, Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup,
};
use packet::Batch;

use crate::shaping::rate_ewma::{RateEwma, decimal};

pub(crate) static CLASS: Class = Class {
    name: "Counter",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    aliases: &[Alias {
        name: "CounterMP",
        difference: "In Click it is the one for several threads; here the workers of every Counter count \
                each for itself.",
    }],
    handlers: &[
        Handler::read("count", Combine::Sum, "Packets so far.", &Get(|e: &mut Counter| e.count.to_string())),
        Handler::read(
            "byte_count",
            Combine::Sum,
            "Bytes so far.",
            &Get(|e: &mut Counter| e.byte_count.to_string()),
        ),
        Handler::read(
            "rate",
            Combine::Sum,
            "Packets a second.",
            &Ask(|e: &mut Counter, cx, _| Ok(e.rate.at(cx.now_ns()).text())),
        ),
        Handler::read(
            "byte_rate",
            Combine::Sum,
            "Bytes a second.",
            &Ask(|e: &mut Counter, cx, _| Ok(e.byte_rate.at(cx.now_ns()).text())),
        ),
        Handler::read(
            "bit_rate",
            Combine::Sum,
            "Bits a second.",
            &Ask(|e: &mut Counter, cx, _| Ok(decimal(e.byte_rate.at(cx.now_ns()).per_second() * 8.0))),
        ),
        Handler::read_write(
            "count_call",
            Combine::First,
            "The COUNT_CALL argument, of calls that are still to come.",
            &Get(|e: &mut Counter| Trigger::text(&e.count_call)),
            &Put(|e: &mut Counter, _, value| Trigger::set(&mut e.count_call, "count_call", value)),
        ),
        Handler::read_write(
            "byte_count_call",
            Combine::First,
            "The BYTE_COUNT_CALL argument.",
            &Get(|e: &mut Counter| Trigger::text(&e.byte_count_call)),
            &Put(|e: &mut Counter, _, value| Trigger::set(&mut e.byte_count_call, "byte_count_call", value)),
        ),
        Handler::write("reset", "Sets the counts and rates to zero.", &RESET),
        Handler::write("reset_counts", "As reset.", &RESET),
    ],
    manual: graph::manual!("counter.rs"),
    make,
    ..Class::DEFAULT
};

const RESET: Put<Counter> = Put(|e, _, _| {
    e.reset();
    Ok(())
});

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let count_call = setup.arguments.keyword("COUNT_CALL")?;
    let byte_count_call = setup.arguments.keyword("BYTE_COUNT_CALL")?;
    setup.arguments.finish()?;
    Ok(Box::new(Counter { count_call, byte_count_call, ..Counter::default() }))
}

/// What is called when a count is reached.
#[derive(Clone, Debug)]
struct Trigger {
    at: u64,
    call: HandlerCall,
    is_called: bool,
}

impl FromArgument for Trigger {
    const EXPECTED: &'static str = "number and handler to write, as in '100 stop'";
    fn from_argument(text: &str) -> Option<Self> {
        let (number, call) = next_word(text);
        let at = u64::from_argument(number)?;
        Some(Self { at, call: HandlerCall::from_argument(call)?, is_called: false })
    }
}

impl Trigger {
    /// The call, the first time that `count` is enough.
    fn due(trigger: &mut Option<Self>, count: u64) -> Option<HandlerCall> {
        let trigger = trigger.as_mut().filter(|trigger| !trigger.is_called && count >= trigger.at)?;
        trigger.is_called = true;
        Some(trigger.call.clone())
    }

    /// Takes another trigger for the handler `name`; an empty text is none.
    fn set(trigger: &mut Option<Self>, name: &str, value: &str) -> Result<(), String> {
        *trigger = match value.trim() {
            "" => None,
            text => Some(
                Self::from_argument(text)
                    .ok_or_else(|| format!("{name}: expected {}, got '{text}'", Self::EXPECTED))?,
            ),
        };
        Ok(())
    }

    fn text(trigger: &Option<Self>) -> String {
        trigger.as_ref().map_or_else(String::new, |trigger| format!("{} {}", trigger.at, trigger.call))
    }
}

#[derive(Default)]
struct Counter {
    count: u64,
    byte_count: u64,
    rate: RateEwma,
    byte_rate: RateEwma,
    count_call: Option<Trigger>,
    byte_count_call: Option<Trigger>,
}

impl Counter {
    /// Starts anew; what is called is called once more.
    fn reset(&mut self) {
        let again = |trigger: &Option<Trigger>| {
            trigger.clone().map(|trigger| Trigger { is_called: false, ..trigger })
        };
        let (count_call, byte_count_call) = (again(&self.count_call), again(&self.byte_count_call));
        *self = Self { count_call, byte_count_call, ..Self::default() };
    }
}

impl Element for Counter {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let (mut count, mut bytes) = (0, 0);
        for packet in batch.packets() {
            count += packet.pieces();
            bytes += packet.bytes_in_pieces();
        }
        self.count += count;
        self.byte_count += bytes;
        let now = cx.now_ns();
        self.rate.update(now, count);
        self.byte_rate.update(now, bytes);
        if self.count_call.is_some() || self.byte_count_call.is_some() {
            let due = [
                Trigger::due(&mut self.count_call, self.count),
                Trigger::due(&mut self.byte_count_call, self.byte_count),
            ];
            due.into_iter().flatten().for_each(|call| call.call(cx));
        }
    }

    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(std::mem::take(self)))
    }

    fn inherit(&mut self, _cx: &mut Context, left: Box<dyn Any + Send>) {
        if let Ok(left) = left.downcast::<Self>() {
            let (count_call, byte_count_call) = (self.count_call.take(), self.byte_count_call.take());
            *self = Self { count_call, byte_count_call, ..*left };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn it_counts_pushed_and_pulled() {
        let mut bench = Bench::element(&crate::registry(), "Counter", 1, 1);
        bench.push("in0", &[b"abc", b"de"]);
        assert_eq!(bench.taken("out0").len(), 2);
        assert_eq!((bench.read("e.count"), bench.read("e.byte_count")), ("2".into(), "5".into()));
        bench.write("e.reset", "").unwrap();
        assert_eq!((bench.read("e.count"), bench.read("e.byte_count")), ("0".into(), "0".into()));
        let mut bench = Bench::new(
            &crate::registry(),
            "InfiniteSource(abcd) -> e :: Counter -> PullNull -> out :: TestOutput",
        );
        bench.pull("out", 7);
        assert_eq!((bench.read("e.count"), bench.read("e.byte_count")), ("7".into(), "28".into()));
    }

    #[test]
    fn it_measures_rates() {
        let mut bench =
            Bench::new(&crate::registry(), "RatedSource(LENGTH 100, RATE 5000) -> e :: Counter -> Discard");
        bench.run(10);
        bench.advance_ns(1_000_000_000);
        for (rate, expected) in [("e.rate", 5e3), ("e.byte_rate", 5e5), ("e.bit_rate", 4e6)] {
            let measured: f64 = bench.read(rate).parse().unwrap();
            assert!((measured / expected - 1.0).abs() < 0.01, "{rate} {measured}");
        }
        bench.write("RatedSource@1.active", "false").unwrap();
        bench.advance_ns(200_000_000);
        for rate in ["e.rate", "e.byte_rate", "e.bit_rate"] {
            assert_eq!(bench.read(rate), "0", "{rate}: nothing comes any more");
        }
    }

    #[test]
    fn a_count_calls_a_handler_once() {
        let config = "in0 :: TestInput -> e :: Counter(COUNT_CALL 3 s.switch 1, BYTE_COUNT_CALL 5 s.nothing)
                      -> s :: Switch -> a :: TestOutput; s[1] -> b :: TestOutput";
        let mut bench = Bench::with_burst(&crate::registry(), config, 1);
        bench.push("in0", &[b"a", b"b", b"c", b"d"]);
        assert_eq!((bench.taken("a").len(), bench.taken("b").len()), (2, 2));
        bench.write("s.switch", "0").unwrap();
        bench.push("in0", &[b"e"]);
        assert_eq!((bench.taken("a").len(), bench.taken("b").len()), (1, 0));
        assert!(
            bench.messages()[0].starts_with("While calling 's.nothing':\n  no 's.nothing' write handler")
        );
        bench.write("e.reset", "").unwrap();
        bench.write("e.count_call", "1 s.switch 1").unwrap();
        bench.push("in0", &[b"f"]);
        assert_eq!((bench.taken("a").len(), bench.taken("b").len()), (0, 1));
        assert_eq!(bench.read("e.count_call"), "1 s.switch 1");
    }

    #[test]
    fn mistakes() {
        let error = configure(&CLASS, "COUNT_CALL stop").unwrap_err();
        assert!(error[0].starts_with("COUNT_CALL: expected number and handler"), "{error:?}");
    }
}
