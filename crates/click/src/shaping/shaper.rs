//! =c
//! Shaper(RATE)
//!
//! =s shaping
//! lets packets be pulled at a limited rate
//!
//! =d
//! A pull element that lets at most RATE packets a second pass. It does not store packets: they stay in the queue
//! upstream. When it was pulled too seldom it catches up, but what is more than a second behind is forgotten.
//! A RATE of 0 lets nothing pass.
//!
//! With a second output, whoever pulls that gets packets while output 0 would not give any: the traffic beyond
//! the rate.
//!
//! Different from Click: the rate is that of the router, shared by all workers.
//!
//! =e
//!   q :: Queue(1000) -> Shaper(10000) -> Unqueue -> ...
//!
//! =a BandwidthShaper, RatedUnqueue, RatedSplitter, Meter

use std::sync::Arc;

use elements::token_bucket::TokenBucket;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "Shaper",
    ports: "1/1-2",
    processing: Class::PULL,
    handlers: &[
        Handler::read_write(
            "rate",
            Combine::First,
            "The RATE argument.",
            &Get(|e: &mut Shaper| e.rate.to_string()),
            &Put(|e: &mut Shaper, cx, value| {
                e.rate = u64::from_value(value)?;
                e.bucket.set(cx.now_ns(), e.rate.max(1), e.rate);
                Ok(())
            }),
        ),
        Handler::write(
            "reset",
            "Forgets how far behind the shaper is.",
            &Put(|e: &mut Shaper, cx, _| {
                e.bucket.restart(cx.now_ns(), e.rate.min(1));
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("shaper.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let rate: u64 = setup.arguments.required("RATE")?;
    setup.arguments.finish()?;
    let bucket = setup.shared_by_copies(|| Ok::<_, ConfigError>(shaping_bucket(rate)))?;
    Ok(Box::new(Shaper { bucket, rate }))
}

/// A bucket that holds a second's worth of tokens and starts with one.
pub(super) fn shaping_bucket(rate: u64) -> TokenBucket {
    // A bucket's own rate 0 is no limit, but a shaper's is none at all: a bucket that holds nothing.
    TokenBucket::new(rate.max(1), rate, 1)
}

/// Simulated time goes on no further than to when a token comes.
pub(super) fn stop_the_clock(cx: &mut Context, bucket: &TokenBucket) {
    if cx.has_simulated_time() {
        let now = cx.now_ns();
        cx.set_timer(0, now.saturating_add(bucket.ns_until(now, 1)));
    }
}

struct Shaper {
    bucket: Arc<TokenBucket>,
    rate: u64,
}

impl Element for Shaper {
    fn pull(&mut self, cx: &mut Context, output: usize, batch: &mut Batch, max: usize) {
        let now = cx.now_ns();
        if output == 1 {
            if self.bucket.available(now) == 0 {
                cx.pull(0, batch, max);
            }
            return;
        }
        let granted = self.bucket.take_up_to(now, max as u64);
        if granted == 0 && self.rate > 0 {
            stop_the_clock(cx, &self.bucket);
        } else if granted > 0 {
            cx.pull(0, batch, granted as usize);
            self.bucket.give_back(granted.saturating_sub(batch.len() as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    const CONFIG: &str = "InfiniteSource(DATA x) -> e :: Shaper(1000) -> out :: TestOutput";

    #[test]
    fn at_most_the_rate_passes() {
        let mut bench = Bench::new(&crate::registry(), CONFIG);
        assert_eq!(bench.pull("out", 256), 1);
        assert_eq!(bench.pull("out", 256), 0);
        bench.advance_ns(10_000_000);
        assert_eq!(bench.pull("out", 3), 3);
        assert_eq!(bench.pull("out", 256), 7);
        assert_eq!(bench.pull("out", 256), 0);
    }

    #[test]
    fn the_rate_can_be_changed() {
        let mut bench = Bench::new(&crate::registry(), CONFIG);
        bench.pull("out", 256);
        bench.write("e.rate", "20").unwrap();
        assert_eq!(bench.read("e.rate"), "20");
        bench.advance_ns(100_000_000);
        assert_eq!(bench.pull("out", 256), 2);
        bench.advance_ns(60_000_000_000);
        bench.write("e.reset", "").unwrap();
        assert_eq!(bench.pull("out", 256), 1);
        bench.write("e.rate", "0").unwrap();
        bench.advance_ns(5_000_000_000);
        assert_eq!(bench.pull("out", 256), 0);
        assert!(bench.write("e.rate", "fast").is_err());
    }

    #[test]
    fn the_second_output_has_the_rest() {
        let config = "InfiniteSource(DATA x) -> e :: Shaper(1000);
            e[0] -> out :: TestOutput; e[1] -> rest :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        assert_eq!(bench.pull("rest", 10), 0);
        assert_eq!(bench.pull("out", 10), 1);
        assert_eq!(bench.pull("rest", 10), 10);
    }

    #[test]
    fn what_is_not_there_is_not_counted() {
        let mut bench = Bench::new(
            &crate::registry(),
            "q :: Queue; in :: TestInput -> q -> Shaper(1000) -> out :: TestOutput",
        );
        bench.advance_ns(5_000_000);
        assert_eq!(bench.pull("out", 256), 0);
        bench.push("in", &[&b"a"[..]; 10]);
        assert_eq!(bench.pull("out", 256), 1);
        bench.advance_ns(5_000_000);
        assert_eq!(bench.pull("out", 256), 5);
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "").is_err());
        assert!(configure(&CLASS, "-1").is_err());
        assert!(configure(&CLASS, "5, 6").is_err());
    }
}
