//! =c
//! TimedSink([INTERVAL])
//!
//! =s basicsources
//! pulls and discards a packet every so often
//!
//! =d
//! Pulls one packet every INTERVAL (a time such as C<10ms>; half a second by default) and frees it.
//!
//! =a TimedSource, Discard

use graph::arguments::Interval;
use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put};

use super::timed_source::{check_interval, interval_text};

pub(crate) static CLASS: Class = Class {
    name: "TimedSink",
    ports: "1/0",
    processing: Class::PULL,
    handlers: &[
        Handler::read_write(
            "interval",
            Combine::First,
            "The INTERVAL argument.",
            &Get(|e: &mut TimedSink| interval_text(e.interval)),
            &Put(|e: &mut TimedSink, _, value| {
                e.interval = check_interval(Interval::from_value(value)?)?;
                Ok(())
            }),
        ),
        Handler::read("count", Combine::Sum, "Packets freed.", &Get(|e: &mut TimedSink| e.count.to_string())),
    ],
    manual: graph::manual!("timed_sink.rs"),
    make: |setup| {
        let interval = setup.arguments.optional("INTERVAL")?.unwrap_or(Interval { ns: 500_000_000 });
        setup.arguments.finish()?;
        check_interval(interval).map_err(|error| format!("INTERVAL: {error}"))?;
        Ok(Box::new(TimedSink { interval, count: 0 }))
    },
    ..Class::DEFAULT
};

struct TimedSink {
    interval: Interval,
    count: u64,
}

impl Element for TimedSink {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.set_timer(0, cx.now_ns().saturating_add(self.interval.ns));
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        let mut batch = cx.spare_batch();
        cx.pull(0, &mut batch, 1);
        self.count += batch.len() as u64;
        cx.recycle(batch);
        cx.set_timer(0, cx.now_ns().saturating_add(self.interval.ns));
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn one_packet_an_interval() {
        let config = "InfiniteSource -> s :: Shaper(500) -> c :: Counter -> e :: TimedSink(1ms)";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.advance_ns(100_000_000);
        // It looks 100 times, and every other time the shaper has one.
        assert_eq!(bench.read("e.count"), "50");
        bench.write("e.interval", "10ms").unwrap();
        bench.advance_ns(101_000_000);
        assert_eq!(bench.read("c.count"), "61");
        assert!(bench.write("e.interval", "0").is_err());
    }
}
