//! =c
//! Shaper(RATE)
//!
//! =s shaping
//! lets packets be pulled at a limited rate
//!
//! =d
//! A pull element that lets at most RATE packets a second pass. It does not store packets: they
//! stay in the queue upstream. When it was pulled too seldom it catches up, but at most by one
//! second. A RATE of 0 lets nothing pass.
//!
//! With a second output, an element that pulls it gets packets while output 0 would not give any:
//! the traffic beyond the rate.
//!
//! Different from Click: the rate is that of the router, shared by all workers.
//!
//! =e
//!   q :: Queue(1000) -> Shaper(10000) -> Unqueue -> ...
//!
//! =a BandwidthShaper, RatedUnqueue, RatedSplitter, Meter
//!
//! =c
//! BandwidthShaper(RATE)
//!
//! =s shaping
//! lets packets be pulled at a limited bandwidth
//!
//! =d
//! A pull element that lets at most RATE bytes a second pass (with a unit: C<10Mbps>, C<1MBps>). It does not store
//! packets. A packet passes when anything is left of the allowance, so the longest packet may run ahead of it;
//! that is made up for before the next one passes.
//!
//! With a second output, an element that pulls it gets packets while output 0 would not give any.
//!
//! Different from Click: the bandwidth is that of the router, shared by all workers.
//!
//! =e
//!   q :: Queue(1000) -> BandwidthShaper(10Mbps) -> Unqueue -> ...
//!
//! =a Shaper, BandwidthRatedSplitter, BandwidthMeter

use std::marker::PhantomData;
use std::sync::Arc;

use elements::token_bucket::TokenBucket;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::Batch;

use super::unit::{Bytes, Packets, Unit};

pub(crate) static CLASS: Class =
    Class { name: "Shaper", manual: graph::manual!("shaper.rs", "Shaper"), ..Shaper::<Packets>::CLASS };

pub(crate) static BANDWIDTH: Class = Class {
    name: "BandwidthShaper",
    manual: graph::manual!("shaper.rs", "BandwidthShaper"),
    ..Shaper::<Bytes>::CLASS
};

struct Shaper<U> {
    bucket: Arc<TokenBucket>,
    rate: u64,
    unit: PhantomData<U>,
}

impl<U: Unit> Shaper<U> {
    const CLASS: Class = Class {
        ports: "1/1-2",
        processing: Class::PULL,
        handlers: &[
            Handler::read_write(
                "rate",
                Combine::First,
                U::RATE_DOC,
                &Get(|e: &mut Self| e.rate.to_string()),
                &Put(|e: &mut Self, cx, value| {
                    e.rate = U::tokens(U::Rate::from_value(value)?);
                    e.bucket.set(cx.now_ns(), e.rate.max(1), e.rate);
                    Ok(())
                }),
            ),
            Handler::write(
                "reset",
                "Forgets how far behind the shaper is.",
                &Put(|e: &mut Self, cx, _| {
                    e.bucket.restart(cx.now_ns(), e.rate.min(1));
                    Ok(())
                }),
            ),
        ],
        make: Self::make,
        ..Class::DEFAULT
    };

    fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
        let rate = U::tokens(setup.arguments.required("RATE")?);
        setup.arguments.finish()?;
        // A bucket's own rate 0 sets no limit, but a shaper's is none at all: a bucket that holds nothing. It starts with one
        // token and holds a second's worth.
        let bucket =
            setup.shared_by_copies(|| Ok::<_, ConfigError>(TokenBucket::new(rate.max(1), rate, 1)))?;
        Ok(Box::new(Self { bucket, rate, unit: PhantomData }))
    }
}

impl<U: Unit> Element for Shaper<U> {
    fn pull(&mut self, cx: &mut Context, output: usize, batch: &mut Batch, max: usize) {
        let now = cx.now_ns();
        if output == 1 {
            if self.bucket.available(now) == 0 {
                cx.pull(0, batch, max);
            }
            return;
        }
        // Simulated time goes on no further than to when a token comes.
        if !U::pull(cx, &self.bucket, now, batch, max) && self.rate > 0 && cx.has_simulated_time() {
            cx.set_timer(0, now.saturating_add(self.bucket.ns_until(now, 1)));
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

    #[test]
    fn the_mean_is_the_bandwidth() {
        // 100 packets of 100 bytes a second.
        let config = "InfiniteSource(LENGTH 100) -> BandwidthShaper(80kbps) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let mut count = bench.pull("out", 10);
        assert_eq!(count, 1);
        for _ in 0..1000 {
            bench.advance_ns(1_000_000);
            let now = bench.pull("out", 10);
            assert!(now <= 1);
            count += now;
        }
        assert!((100..=101).contains(&count), "{count}");
    }

    #[test]
    fn what_fits_passes_at_once() {
        let config = "InfiniteSource(LENGTH 100) -> e :: BandwidthShaper(1MBps) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.pull("out", 256);
        bench.advance_ns(2_000_000);
        assert_eq!(bench.pull("out", 256), 20);
        assert_eq!(bench.read("e.rate"), "1000000");
        bench.write("e.rate", "8kbps").unwrap();
        assert_eq!(bench.read("e.rate"), "1000");
    }

    #[test]
    fn mistakes_in_bandwidths() {
        assert!(configure(&BANDWIDTH, "").is_err());
        assert!(configure(&BANDWIDTH, "10 parsecs").is_err());
    }
}
