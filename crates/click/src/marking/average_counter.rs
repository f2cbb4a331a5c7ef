//! =c
//! AverageCounter([IGNORE])
//!
//! =s counters
//! counts packets and bytes, and their mean rates
//!
//! =d
//! Packets pass unchanged. Rates are means over the time from the first packet to the last. Packets
//! of the first IGNORE seconds (0 by default) are not counted, nor is that time.
//!
//! Different from Click: every worker counts from its own first packet, and rates are the sums of
//! the workers' means.
//!
//! =a Counter, AverageCounterMP

use graph::arguments::Interval;
use graph::{Alias, Class, Combine, ConfigError, Context, Element, Get, Handler, Put, Setup};
use packet::Batch;

use crate::shaping::rate_ewma::decimal;

pub(crate) static CLASS: Class = Class {
    name: "AverageCounter",
    capabilities: &[graph::KEEPS_ALL],
    aliases: &[Alias {
        name: "AverageCounterMP",
        difference: "In Click it is the one for several threads; here the workers of every AverageCounter \
                count each for itself.",
    }],
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets so far.",
            &Get(|e: &mut AverageCounter| e.count.to_string()),
        ),
        Handler::read(
            "byte_count",
            Combine::Sum,
            "Bytes so far.",
            &Get(|e: &mut AverageCounter| e.byte_count.to_string()),
        ),
        Handler::read(
            "rate",
            Combine::Sum,
            "Packets a second.",
            &Get(|e: &mut AverageCounter| e.per_second(e.count)),
        ),
        Handler::read(
            "byte_rate",
            Combine::Sum,
            "Bytes a second.",
            &Get(|e: &mut AverageCounter| e.per_second(e.byte_count)),
        ),
        Handler::write(
            "reset",
            "Sets counts to zero. The next packet is the first.",
            &Put(|e: &mut AverageCounter, _, _| {
                *e = AverageCounter { ignored_ns: e.ignored_ns, ..AverageCounter::default() };
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("average_counter.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let ignored = setup.arguments.optional("IGNORE")?.unwrap_or(Interval { ns: 0 });
    setup.arguments.finish()?;
    Ok(Box::new(AverageCounter { ignored_ns: ignored.ns, ..AverageCounter::default() }))
}

/// Packets that come at once count as if over this time.
const LEAST_NS: u64 = 1_000_000;

#[derive(Default)]
struct AverageCounter {
    ignored_ns: u64,
    count: u64,
    byte_count: u64,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl AverageCounter {
    fn per_second(&self, count: u64) -> String {
        let first = self.first_ns.unwrap_or(self.last_ns);
        let counted = self.last_ns.saturating_sub(first).saturating_sub(self.ignored_ns);
        decimal(count as f64 * 1e9 / counted.max(LEAST_NS) as f64)
    }
}

impl Element for AverageCounter {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let now = cx.now_ns();
        let first = *self.first_ns.get_or_insert(now);
        if now.saturating_sub(first) >= self.ignored_ns {
            self.count += batch.len() as u64;
            self.byte_count += batch.iter().map(|packet| packet.len() as u64).sum::<u64>();
        }
        self.last_ns = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn the_mean_from_first_to_last() {
        let mut bench = Bench::element(&crate::registry(), "AverageCounter", 1, 1);
        assert_eq!(bench.read("e.rate"), "0");
        bench.advance_ns(1_000_000_000);
        bench.push("in0", &[b"abc"]);
        bench.advance_ns(2_000_000_000);
        bench.push("in0", &[b"abc", b"", b"abc"]);
        bench.advance_ns(2_000_000_000);
        let read = ["e.count", "e.byte_count", "e.rate", "e.byte_rate"].map(|name| bench.read(name));
        assert_eq!(read, ["4", "9", "2", "4.5"]);
        bench.write("e.reset", "").unwrap();
        bench.push("in0", &[b"a"]);
        assert_eq!((bench.read("e.count"), bench.read("e.rate")), ("1".into(), "1000".into()));
    }

    #[test]
    fn the_beginning_can_be_ignored() {
        let mut bench = Bench::element(&crate::registry(), "AverageCounter(1)", 1, 1);
        bench.push("in0", &[b"a", b"b"]);
        for _ in 0..4 {
            bench.advance_ns(500_000_000);
            bench.push("in0", &[b"a", b"b"]);
        }
        assert_eq!((bench.read("e.count"), bench.read("e.rate")), ("6".into(), "6".into()));
        assert!(configure(&CLASS, "-1").is_err());
    }
}
