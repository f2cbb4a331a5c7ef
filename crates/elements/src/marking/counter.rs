//! =c
//! Counter
//!
//! =s counters
//! counts packets and bytes, and measures their rates
//!
//! =d
//! Packets pass unchanged. Rates are averages over some 16 ms.
//!
//! Different from Click: COUNT_CALL and BYTE_COUNT_CALL are not supported.
//!
//! =h count read-only
//! Packets so far.
//!
//! =h byte_count read-only
//! Bytes so far.
//!
//! =h rate read-only
//! Packets a second.
//!
//! =h byte_rate read-only
//! Bytes a second.
//!
//! =h bit_rate read-only
//! Bits a second.
//!
//! =h reset write-only
//! Sets the counts and rates to zero.
//!
//! =h reset_counts write-only
//! As reset.
//!
//! =a AverageCounter, Meter

use graph::{Class, Combine, ConfigError, Context, Element, Handler, Setup};
use packet::Batch;

use crate::shaping::rate_ewma::{RateEwma, decimal};

pub(crate) static CLASS: Class = Class {
    name: "Counter",
    ports: "1/1",
    processing: Class::AGNOSTIC,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("counter.rs"),
    make,
};

pub(super) fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.finish()?;
    Ok(Box::new(Counter::default()))
}

#[derive(Default)]
struct Counter {
    count: u64,
    byte_count: u64,
    rate: RateEwma,
    byte_rate: RateEwma,
}

impl Element for Counter {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let mut bytes = 0;
        for packet in batch.packets() {
            bytes += packet.len() as u64;
        }
        let count = batch.len() as u64;
        self.count += count;
        self.byte_count += bytes;
        let now = cx.now_ns();
        self.rate.update(now, count);
        self.byte_rate.update(now, bytes);
    }

    fn handlers(&self) -> &'static [Handler] {
        const {
            &[
                Handler::read("count", Combine::Sum),
                Handler::read("byte_count", Combine::Sum),
                Handler::read("rate", Combine::Sum),
                Handler::read("byte_rate", Combine::Sum),
                Handler::read("bit_rate", Combine::Sum),
                Handler::write("reset"),
                Handler::write("reset_counts"),
            ]
        }
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        Ok(match name {
            "count" => self.count.to_string(),
            "byte_count" => self.byte_count.to_string(),
            "rate" => self.rate.text(),
            "byte_rate" => self.byte_rate.text(),
            _ => decimal(self.byte_rate.per_second() * 8.0),
        })
    }

    fn write(&mut self, _cx: &mut Context, _name: &str, _value: &str) -> Result<(), String> {
        *self = Self::default();
        Ok(())
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
    }

    #[test]
    fn mistakes() {
        let error = configure(&CLASS, "COUNT_CALL 5 stop").unwrap_err();
        assert_eq!(error, ["unsupported argument 'COUNT_CALL'; it takes no arguments"]);
    }
}
