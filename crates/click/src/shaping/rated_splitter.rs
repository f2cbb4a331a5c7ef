//! =c
//! RatedSplitter(RATE, I<keywords> BURST_DURATION, BURST_SIZE)
//!
//! =s shaping
//! splits off what is beyond a packet rate
//!
//! =d
//! Sends up to RATE packets a second out by output 0 and the rest by output 1. A token bucket allows bursts of
//! BURST_SIZE packets, or of RATE times BURST_DURATION (20 ms by default). Without output 1 the rest is dropped and
//! counted as "over the rate". A RATE of 0 sets no limit.
//!
//! Different from Click: the rate is that of the router, shared by all workers.
//!
//! =e
//!   r :: RatedSplitter(2000);
//!   ... -> r -> ...; r[1] -> Discard;
//!
//! =a BandwidthRatedSplitter, Meter, Shaper, RatedUnqueue
//!
//! =c
//! BandwidthRatedSplitter(RATE, I<keywords> BURST_DURATION, BURST_BYTES)
//!
//! =s shaping
//! splits off what is beyond a bandwidth
//!
//! =d
//! Sends up to RATE bytes a second (with a unit: C<10Mbps>) out by output 0 and the rest by output 1. A token bucket
//! allows bursts of BURST_BYTES, or of RATE times BURST_DURATION (20 ms by default). Without output 1 the rest is
//! dropped and counted as "over the rate". A RATE of 0 sets no limit. A packet passes when anything is left of the
//! allowance; what it is longer is made up for before the next one.
//!
//! Different from Click: the bandwidth is that of the router, shared by all workers.
//!
//! =e
//!   r :: BandwidthRatedSplitter(8Mbps);
//!   ... -> r -> ...; r[1] -> Discard;
//!
//! =a RatedSplitter, BandwidthMeter, BandwidthShaper

use std::marker::PhantomData;
use std::sync::Arc;

use elements::token_bucket::TokenBucket;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::Batch;

use super::unit::{Burst, Bytes, Packets, Unit};

pub(crate) static CLASS: Class = Class {
    name: "RatedSplitter",
    manual: graph::manual!("rated_splitter.rs", "RatedSplitter"),
    ..RatedSplitter::<Packets>::CLASS
};

pub(crate) static BANDWIDTH: Class = Class {
    name: "BandwidthRatedSplitter",
    manual: graph::manual!("rated_splitter.rs", "BandwidthRatedSplitter"),
    ..RatedSplitter::<Bytes>::CLASS
};

struct RatedSplitter<U> {
    bucket: Arc<TokenBucket>,
    burst: Burst,
    unit: PhantomData<U>,
}

impl<U: Unit> RatedSplitter<U> {
    const CLASS: Class = Class {
        ports: "1/1-2",
        processing: Class::PUSH,
        handlers: &[Handler::read_write(
            "rate",
            Combine::First,
            U::RATE_DOC,
            &Get(|e: &mut Self| e.bucket.rate().to_string()),
            &Put(|e: &mut Self, cx, value| {
                let rate = U::tokens(U::Rate::from_value(value)?);
                e.bucket.set(cx.now_ns(), rate, e.burst.tokens(rate));
                Ok(())
            }),
        )],
        make: Self::make,
        ..Class::DEFAULT
    };

    fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
        let rate = U::tokens(setup.arguments.required("RATE")?);
        let burst = Burst::from_arguments(&mut setup.arguments, U::BURST_KEYWORD)?;
        setup.arguments.finish()?;
        let capacity = burst.tokens(rate);
        let bucket =
            setup.shared_by_copies(|| Ok::<_, ConfigError>(TokenBucket::new(rate, capacity, capacity)))?;
        Ok(Box::new(Self { bucket, burst, unit: PhantomData }))
    }
}

impl<U: Unit> Element for RatedSplitter<U> {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        U::split(cx, &self.bucket, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn the_burst_passes_then_the_rate() {
        let mut bench = Bench::element(&crate::registry(), "RatedSplitter(1000, BURST_SIZE 3)", 1, 2);
        bench.push("in0", &[b"1", b"2", b"3", b"4", b"5"]);
        assert_eq!(bench.taken("out0"), [b"1", b"2", b"3"]);
        assert_eq!(bench.taken("out1"), [b"4", b"5"]);
        bench.advance_ns(2_000_000);
        bench.push("in0", &[b"6", b"7", b"8"]);
        assert_eq!(bench.taken("out0"), [b"6", b"7"]);
        assert_eq!(bench.taken("out1"), [b"8"]);
        bench.write("e.rate", "0").unwrap();
        bench.push("in0", &[&b"x"[..]; 100]);
        assert_eq!(bench.taken("out0").len(), 100);
    }

    #[test]
    fn without_a_second_output_the_rest_is_dropped() {
        let mut bench = Bench::element(&crate::registry(), "RatedSplitter(10)", 1, 1);
        bench.push("in0", &[b"1", b"2", b"3"]);
        assert_eq!(bench.taken("out0"), [b"1"]);
        assert_eq!(bench.drops("e", "over the rate"), 2);
    }

    #[test]
    fn mistakes() {
        let error = configure(&CLASS, "5, BURST_SIZE 2, BURST_DURATION 1").unwrap_err();
        assert_eq!(error, ["cannot specify both BURST_DURATION and BURST_SIZE"]);
    }

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
