//! =c
//! RatedUnqueue(RATE, I<keywords> BURST_DURATION, BURST_SIZE)
//!
//! =s shaping
//! pulls packets at a rate and pushes them on
//!
//! =d
//! Pulls up to RATE packets a second and pushes them out. A token bucket allows bursts of BURST_SIZE packets, or of RATE
//! times BURST_DURATION (20 ms by default). It sleeps while the queues upstream are empty and while it must wait.
//! A RATE of 0 sets no limit.
//!
//! Different from Click: the rate is that of the router, shared by all workers.
//!
//! =e
//!   ... -> Queue -> RatedUnqueue(1000) -> ...
//!
//! =a BandwidthRatedUnqueue, Unqueue, Shaper, RatedSplitter
//!
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
//! while it must wait. A RATE of 0 sets no limit.
//!
//! Different from Click: the bandwidth is that of the router, shared by all workers.
//!
//! =e
//!   ... -> Queue -> BandwidthRatedUnqueue(10Mbps) -> ...
//!
//! =a RatedUnqueue, BandwidthShaper, BandwidthRatedSplitter

use std::marker::PhantomData;
use std::sync::Arc;

use elements::token_bucket::TokenBucket;
use graph::{
    Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, TaskStatus,
};

use crate::shaping::unit::{Burst, Bytes, Packets, Unit};

pub(crate) static CLASS: Class = Class {
    name: "RatedUnqueue",
    manual: graph::manual!("rated_unqueue.rs", "RatedUnqueue"),
    ..RatedUnqueue::<Packets>::CLASS
};

pub(crate) static BANDWIDTH: Class = Class {
    name: "BandwidthRatedUnqueue",
    manual: graph::manual!("rated_unqueue.rs", "BandwidthRatedUnqueue"),
    ..RatedUnqueue::<Bytes>::CLASS
};

struct RatedUnqueue<U> {
    bucket: Arc<TokenBucket>,
    burst: Burst,
    active: bool,
    count: u64,
    unit: PhantomData<U>,
}

impl<U: Unit> RatedUnqueue<U> {
    const CLASS: Class = Class {
        processing: "l/h",
        handlers: &[
            Handler::read_write(
                "rate",
                Combine::First,
                U::RATE_DOC,
                &Get(|e: &mut Self| e.bucket.rate().to_string()),
                &Put(|e: &mut Self, cx, value| {
                    let rate = U::tokens(U::Rate::from_value(value)?);
                    e.bucket.set(cx.now_ns(), rate, e.burst.tokens(rate) + U::SPARE_TOKENS);
                    cx.wake();
                    Ok(())
                }),
            ),
            Handler::read_write(
                "active",
                Combine::First,
                "Whether it works.",
                &Get(|e: &mut Self| e.active.to_string()),
                &Put(|e: &mut Self, cx, value| {
                    e.active = bool::from_value(value)?;
                    cx.wake();
                    Ok(())
                }),
            ),
            Handler::read(
                "count",
                Combine::Sum,
                "Packets moved so far.",
                &Get(|e: &mut Self| e.count.to_string()),
            ),
        ],
        make: Self::make,
        ..Class::DEFAULT
    };

    fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
        let rate = U::tokens(setup.arguments.required("RATE")?);
        let burst = Burst::from_arguments(&mut setup.arguments, U::BURST_KEYWORD)?;
        setup.arguments.finish()?;
        let capacity = burst.tokens(rate) + U::SPARE_TOKENS;
        let bucket =
            setup.shared_by_copies(|| Ok::<_, ConfigError>(TokenBucket::new(rate, capacity, capacity)))?;
        Ok(Box::new(Self { bucket, burst, active: true, count: 0, unit: PhantomData }))
    }
}

impl<U: Unit> Element for RatedUnqueue<U> {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if !self.active {
            return TaskStatus::Asleep;
        }
        let now = cx.now_ns();
        let mut batch = cx.spare_batch();
        let burst = cx.burst();
        let is_allowed = U::pull_some(cx, &self.bucket, now, &mut batch, burst);
        let moved = batch.len() as u64;
        self.count += moved;
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        if !is_allowed {
            let wait = self.bucket.ns_until(now, 1);
            cx.set_timer(0, now.saturating_add(wait));
            TaskStatus::Asleep
        } else if moved > 0 {
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
    use super::*;
    use graph::testing::{Bench, configure};

    fn moved_in_ten_seconds(unqueue: &str) -> usize {
        let config = format!("InfiniteSource -> Queue(10) -> e :: {unqueue} -> c :: Counter -> Discard");
        let mut bench = Bench::with_burst(&crate::registry(), &config, 1);
        bench.run(1000);
        bench.advance_ns(9_999_999_999);
        bench.read("c.count").parse().unwrap()
    }

    // The figures of Click's own test of this element, but for the third-last millisecond of simulated time.
    #[test]
    fn the_rate_and_the_burst() {
        assert_eq!(moved_in_ten_seconds("RatedUnqueue(RATE 2)"), 20);
        assert_eq!(moved_in_ten_seconds("RatedUnqueue(RATE 2, BURST_SIZE 50)"), 69);
        assert_eq!(moved_in_ten_seconds("RatedUnqueue(RATE 2, BURST_DURATION 25)"), 69);
        assert_eq!(moved_in_ten_seconds("RatedUnqueue(RATE 100, BURST_SIZE 1)"), 1000);
    }

    #[test]
    fn it_sleeps_and_is_woken() {
        let config = "in :: TestInput -> Queue -> e :: RatedUnqueue(10) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(10);
        assert!(!bench.graph().context().has_awake_tasks());
        bench.push("in", &[b"1", b"2", b"3"]);
        bench.run(10);
        assert_eq!(bench.taken("out"), [b"1"]);
        assert!(!bench.graph().context().has_awake_tasks());
        bench.advance_ns(100_000_000);
        assert_eq!(bench.taken("out"), [b"2"]);
        bench.write("e.active", "false").unwrap();
        bench.advance_ns(100_000_000);
        assert_eq!(bench.taken("out").len(), 0);
        bench.write("e.active", "true").unwrap();
        bench.run(10);
        assert_eq!(bench.taken("out"), [b"3"]);
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "").is_err());
        assert!(configure(&CLASS, "10Mbps").is_err());
    }

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
