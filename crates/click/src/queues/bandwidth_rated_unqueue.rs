//! =c
//! BandwidthRatedUnqueue(RATE, I<keywords> BURST_DURATION, BURST_BYTES)
//!
//! =s shaping
//! pulls packets at a bandwidth and pushes them on
//!
//! =d
//! Pulls up to RATE bytes a second (with a unit: C<10Mbps>) and pushes them out. A token bucket allows bursts of
//! BURST_BYTES, or of RATE times BURST_DURATION (20 ms by default). A packet passes unless the allowance is overdrawn;
//! what is overdrawn is made up for before the next one. It sleeps while the queues upstream are empty and
//! while it must wait. A RATE of 0 is no limit.
//!
//! Different from Click: the bandwidth is that of the router, shared by all workers.
//!
//! =e
//!   ... -> Queue -> BandwidthRatedUnqueue(10Mbps) -> ...
//!
//! =a RatedUnqueue, BandwidthShaper, BandwidthRatedSplitter

use std::sync::Arc;

use elements::token_bucket::TokenBucket;
use graph::arguments::Bandwidth;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, TaskStatus};

use crate::shaping::rated_splitter::Burst;

pub(crate) static CLASS: Class = Class {
    name: "BandwidthRatedUnqueue",
    processing: "l/h",
    handlers: &[
        Handler::read_write(
            "rate",
            Combine::First,
            "The RATE argument, in bytes a second.",
            &Get(|e: &mut BandwidthRatedUnqueue| e.bucket.rate().to_string()),
            &Put(|e: &mut BandwidthRatedUnqueue, cx, value| {
                let rate = Bandwidth::from_value(value)?.bytes_per_second;
                e.bucket.set(cx.now_ns(), rate, capacity(e.burst, rate));
                cx.wake();
                Ok(())
            }),
        ),
        Handler::read_write(
            "active",
            Combine::First,
            "Whether it works.",
            &Get(|e: &mut BandwidthRatedUnqueue| e.active.to_string()),
            &Put(|e: &mut BandwidthRatedUnqueue, cx, value| {
                e.active = bool::from_value(value)?;
                cx.wake();
                Ok(())
            }),
        ),
        Handler::read(
            "count",
            Combine::Sum,
            "Packets moved so far.",
            &Get(|e: &mut BandwidthRatedUnqueue| e.count.to_string()),
        ),
    ],
    manual: graph::manual!("bandwidth_rated_unqueue.rs"),
    make: |setup| {
        let rate = setup.arguments.required::<Bandwidth>("RATE")?.bytes_per_second;
        let burst = Burst::from_arguments(&mut setup.arguments, "BURST_BYTES")?;
        setup.arguments.finish()?;
        let capacity = capacity(burst, rate);
        let bucket =
            setup.shared_by_copies(|| Ok::<_, ConfigError>(TokenBucket::new(rate, capacity, capacity)))?;
        Ok(Box::new(BandwidthRatedUnqueue { bucket, burst, active: true, count: 0 }))
    },
    ..Class::DEFAULT
};

/// The longest Ethernet packet, without its checksum. So many packets as fit the allowance at this length
/// are pulled at once.
const LONG_PACKET: u64 = 1514;

/// Tokens of a full bucket. As in Click a packet passes unless something is owed, so that one that uses up the allowance
/// to the byte is followed by another: one token more says so.
fn capacity(burst: Burst, rate: u64) -> u64 {
    burst.tokens(rate) + 1
}

struct BandwidthRatedUnqueue {
    bucket: Arc<TokenBucket>,
    burst: Burst,
    active: bool,
    count: u64,
}

impl Element for BandwidthRatedUnqueue {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if !self.active {
            return TaskStatus::Asleep;
        }
        let now = cx.now_ns();
        let available = self.bucket.available(now);
        if available == 0 {
            let wait = self.bucket.ns_until(now, 1);
            cx.set_timer(0, now.saturating_add(wait));
            return TaskStatus::Asleep;
        }
        let most = (available / LONG_PACKET).clamp(1, cx.burst() as u64);
        let mut batch = cx.spare_batch();
        cx.pull(0, &mut batch, most as usize);
        let moved = batch.len() as u64;
        let bytes: usize = batch.iter().map(|packet| packet.len()).sum();
        self.bucket.take_anyway(bytes as u64);
        self.count += moved;
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        if moved > 0 {
            TaskStatus::Busy
        } else if cx.upstream_active() {
            TaskStatus::Idle
        } else {
            TaskStatus::Asleep
        }
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        cx.wake();
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn a_burst_may_be_overdrawn_by_one_packet() {
        let config = "InfiniteSource(LENGTH 100) -> Queue(10) -> BandwidthRatedUnqueue(100Bps, BURST_BYTES 500) -> c :: Counter -> Discard";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(100);
        assert_eq!(bench.read("c.count"), "6");
        bench.advance_ns(10_000_000_000);
        assert_eq!(bench.read("c.count"), "16");
    }

    #[test]
    fn the_mean_is_the_bandwidth() {
        let config = "InfiniteSource(LENGTH 125) -> Queue -> e :: BandwidthRatedUnqueue(100kbps) -> c :: Counter -> Discard";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(1000);
        bench.advance_ns(10_000_000_000);
        let count: i64 = bench.read("c.count").parse().unwrap();
        assert!((1000..=1004).contains(&count), "{count}");
        assert_eq!(bench.read("e.rate"), "12500");
    }
}
