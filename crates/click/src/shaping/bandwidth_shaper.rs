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
//! With a second output, whoever pulls that gets packets while output 0 would not give any.
//!
//! Different from Click: the bandwidth is that of the router, shared by all workers.
//!
//! =e
//!   q :: Queue(1000) -> BandwidthShaper(10Mbps) -> Unqueue -> ...
//!
//! =a Shaper, BandwidthRatedSplitter, BandwidthMeter

use std::sync::Arc;

use elements::token_bucket::TokenBucket;
use graph::arguments::Bandwidth;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::Batch;

use super::shaper::{shaping_bucket, stop_the_clock};

pub(crate) static CLASS: Class = Class {
    name: "BandwidthShaper",
    ports: "1/1-2",
    processing: Class::PULL,
    handlers: &[
        Handler::read_write(
            "rate",
            Combine::First,
            "The RATE argument, in bytes a second.",
            &Get(|e: &mut BandwidthShaper| e.rate.to_string()),
            &Put(|e: &mut BandwidthShaper, cx, value| {
                e.rate = Bandwidth::from_value(value)?.bytes_per_second;
                e.bucket.set(cx.now_ns(), e.rate.max(1), e.rate);
                Ok(())
            }),
        ),
        Handler::write(
            "reset",
            "Forgets how far behind the shaper is.",
            &Put(|e: &mut BandwidthShaper, cx, _| {
                e.bucket.restart(cx.now_ns(), e.rate.min(1));
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("bandwidth_shaper.rs"),
    make,
    ..Class::DEFAULT
};

/// The longest Ethernet packet, without its checksum. So many packets as fit the allowance at this length
/// are pulled at once.
const LONG_PACKET: u64 = 1514;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let rate = setup.arguments.required::<Bandwidth>("RATE")?.bytes_per_second;
    setup.arguments.finish()?;
    let bucket = setup.shared_by_copies(|| Ok::<_, ConfigError>(shaping_bucket(rate)))?;
    Ok(Box::new(BandwidthShaper { bucket, rate }))
}

struct BandwidthShaper {
    bucket: Arc<TokenBucket>,
    rate: u64,
}

impl Element for BandwidthShaper {
    fn pull(&mut self, cx: &mut Context, output: usize, batch: &mut Batch, max: usize) {
        let now = cx.now_ns();
        if output == 1 {
            if self.bucket.available(now) == 0 {
                cx.pull(0, batch, max);
            }
            return;
        }
        while batch.len() < max {
            let available = self.bucket.available(now);
            if available == 0 {
                if self.rate > 0 && batch.is_empty() {
                    stop_the_clock(cx, &self.bucket);
                }
                return;
            }
            let chunk = (available / LONG_PACKET).clamp(1, (max - batch.len()) as u64);
            let before = batch.len();
            cx.pull(0, batch, chunk as usize);
            if batch.len() == before {
                return;
            }
            let bytes: usize = batch.packets()[before..].iter().map(|packet| packet.len()).sum();
            self.bucket.take_anyway(bytes as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

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
    fn mistakes() {
        assert!(configure(&CLASS, "").is_err());
        assert!(configure(&CLASS, "10 parsecs").is_err());
    }
}
