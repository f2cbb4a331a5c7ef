//! =c
//! BandwidthRatedSplitter(RATE, I<keywords> BURST_DURATION, BURST_BYTES)
//!
//! =s shaping
//! splits off what is beyond a bandwidth
//!
//! =d
//! Sends up to RATE bytes a second (with a unit: C<10Mbps>) out by output 0 and the rest by output 1. A token bucket
//! allows bursts of BURST_BYTES, or of RATE times BURST_DURATION (20 ms by default). Without output 1 the rest is
//! dropped and counted as "over the rate". A RATE of 0 is no limit. A packet passes when anything is left of the
//! allowance; what it is longer is made up for before the next one.
//!
//! Different from Click: the bandwidth is that of the router, shared by all workers.
//!
//! =e
//!   r :: BandwidthRatedSplitter(8Mbps);
//!   ... -> r -> ...; r[1] -> Discard;
//!
//! =a RatedSplitter, BandwidthMeter, BandwidthShaper

use std::sync::Arc;

use elements::token_bucket::TokenBucket;
use graph::arguments::Bandwidth;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Verdict};
use packet::Batch;

use super::rated_splitter::Burst;

pub(crate) static CLASS: Class = Class {
    name: "BandwidthRatedSplitter",
    ports: "1/1-2",
    processing: Class::PUSH,
    handlers: &[Handler::read_write(
        "rate",
        Combine::First,
        "The RATE argument, in bytes a second.",
        &Get(|e: &mut BandwidthRatedSplitter| e.bucket.rate().to_string()),
        &Put(|e: &mut BandwidthRatedSplitter, cx, value| {
            let rate = Bandwidth::from_value(value)?.bytes_per_second;
            e.bucket.set(cx.now_ns(), rate, e.burst.tokens(rate));
            Ok(())
        }),
    )],
    manual: graph::manual!("bandwidth_rated_splitter.rs"),
    make: |setup| {
        let rate = setup.arguments.required::<Bandwidth>("RATE")?.bytes_per_second;
        let burst = Burst::from_arguments(&mut setup.arguments, "BURST_BYTES")?;
        setup.arguments.finish()?;
        let capacity = burst.tokens(rate);
        let bucket =
            setup.shared_by_copies(|| Ok::<_, ConfigError>(TokenBucket::new(rate, capacity, capacity)))?;
        Ok(Box::new(BandwidthRatedSplitter { bucket, burst }))
    },
    ..Class::DEFAULT
};

struct BandwidthRatedSplitter {
    bucket: Arc<TokenBucket>,
    burst: Burst,
}

impl Element for BandwidthRatedSplitter {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let available = self.bucket.available(cx.now_ns());
        let mut taken = 0;
        cx.filter(batch, |packet| {
            if taken < available {
                taken += packet.len() as u64;
                Verdict::Keep
            } else {
                Verdict::Divert(1, "over the rate")
            }
        });
        self.bucket.take_anyway(taken);
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn bytes_count() {
        let mut bench =
            Bench::element(&crate::registry(), "BandwidthRatedSplitter(1000Bps, BURST_BYTES 250)", 1, 2);
        bench.push("in0", &[&[0; 100][..]; 5]);
        assert_eq!((bench.taken("out0").len(), bench.taken("out1").len()), (3, 2));
        // The third packet ran 50 bytes ahead: 50 ms for that, and then something must be there.
        bench.advance_ns(50_000_000);
        bench.push("in0", &[&[0; 100]]);
        assert_eq!(bench.taken("out0").len(), 0);
        bench.advance_ns(1_000_000);
        bench.push("in0", &[&[0; 100]]);
        assert_eq!(bench.taken("out0").len(), 1);
        assert_eq!(bench.read("e.rate"), "1000");
    }
}
