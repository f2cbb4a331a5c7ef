//! =c
//! RatedSplitter(RATE, I<keywords> BURST_DURATION, BURST_SIZE)
//!
//! =s shaping
//! splits off what is beyond a packet rate
//!
//! =d
//! Sends up to RATE packets a second out by output 0 and the rest by output 1. A token bucket allows bursts of
//! BURST_SIZE packets, or of RATE times BURST_DURATION (20 ms by default). Without output 1 the rest is dropped and
//! counted as "over the rate". A RATE of 0 is no limit.
//!
//! Different from Click: the rate is that of the router, shared by all workers.
//!
//! =e
//!   r :: RatedSplitter(2000);
//!   ... -> r -> ...; r[1] -> Discard;
//!
//! =a BandwidthRatedSplitter, Meter, Shaper, RatedUnqueue

use std::sync::Arc;

use elements::token_bucket::TokenBucket;
use graph::arguments::{Arguments, Interval};
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Verdict};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "RatedSplitter",
    ports: "1/1-2",
    processing: Class::PUSH,
    handlers: &[Handler::read_write(
        "rate",
        Combine::First,
        "The RATE argument.",
        &Get(|e: &mut RatedSplitter| e.bucket.rate().to_string()),
        &Put(|e: &mut RatedSplitter, cx, value| {
            let rate = u64::from_value(value)?;
            e.bucket.set(cx.now_ns(), rate, e.burst.tokens(rate));
            Ok(())
        }),
    )],
    manual: graph::manual!("rated_splitter.rs"),
    make: |setup| {
        let rate: u64 = setup.arguments.required("RATE")?;
        let burst = Burst::from_arguments(&mut setup.arguments, "BURST_SIZE")?;
        setup.arguments.finish()?;
        let capacity = burst.tokens(rate);
        let bucket =
            setup.shared_by_copies(|| Ok::<_, ConfigError>(TokenBucket::new(rate, capacity, capacity)))?;
        Ok(Box::new(RatedSplitter { bucket, burst }))
    },
    ..Class::DEFAULT
};

/// How much may pass at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Burst {
    /// What the rate gives in so many nanoseconds.
    Duration(u64),
    /// So many tokens.
    Tokens(u64),
}

impl Burst {
    /// 20 ms, as in Click.
    const DEFAULT: Self = Self::Duration(20_000_000);

    /// Reads `BURST_DURATION` and the keyword for tokens.
    pub(crate) fn from_arguments(
        arguments: &mut Arguments,
        tokens: &'static str,
    ) -> Result<Self, ConfigError> {
        let duration = arguments.keyword::<Interval>("BURST_DURATION")?;
        let size = arguments.keyword::<u64>(tokens)?;
        match (duration, size) {
            (Some(_), Some(_)) => Err(format!("cannot specify both BURST_DURATION and {tokens}").into()),
            (Some(duration), None) => Ok(Self::Duration(duration.ns)),
            (None, Some(size)) => Ok(Self::Tokens(size)),
            (None, None) => Ok(Self::DEFAULT),
        }
    }

    /// Tokens at `rate` a second, 1 or more.
    pub(crate) fn tokens(self, rate: u64) -> u64 {
        let tokens = match self {
            Self::Tokens(tokens) => tokens,
            Self::Duration(ns) => {
                let product = u128::from(rate) * u128::from(ns) / 1_000_000_000;
                u64::try_from(product).unwrap_or(u64::MAX)
            }
        };
        tokens.clamp(1, u64::MAX >> 2)
    }
}

struct RatedSplitter {
    bucket: Arc<TokenBucket>,
    burst: Burst,
}

impl Element for RatedSplitter {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let mut granted = self.bucket.take_up_to(cx.now_ns(), batch.len() as u64);
        if granted == batch.len() as u64 {
            return;
        }
        cx.filter(batch, |_| {
            if granted > 0 {
                granted -= 1;
                Verdict::Keep
            } else {
                Verdict::Divert(1, "over the rate")
            }
        });
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
    fn bursts() {
        assert_eq!(Burst::DEFAULT.tokens(2_000), 40);
        assert_eq!(Burst::DEFAULT.tokens(2), 1);
        assert_eq!(Burst::Duration(25_000_000_000).tokens(2), 50);
        assert_eq!(Burst::Tokens(0).tokens(2), 1);
        let error = configure(&CLASS, "5, BURST_SIZE 2, BURST_DURATION 1").unwrap_err();
        assert_eq!(error, ["cannot specify both BURST_DURATION and BURST_SIZE"]);
    }
}
