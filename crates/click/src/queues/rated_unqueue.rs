//! =c
//! RatedUnqueue(RATE, I<keywords> BURST_DURATION, BURST_SIZE)
//!
//! =s shaping
//! pulls packets at a rate and pushes them on
//!
//! =d
//! Pulls up to RATE packets a second and pushes them out. A token bucket allows bursts of BURST_SIZE packets, or of RATE
//! times BURST_DURATION (20 ms by default). It sleeps while the queues upstream are empty and while it must wait.
//! A RATE of 0 is no limit.
//!
//! Different from Click: the rate is that of the router, shared by all workers.
//!
//! =e
//!   ... -> Queue -> RatedUnqueue(1000) -> ...
//!
//! =a BandwidthRatedUnqueue, Unqueue, Shaper, RatedSplitter

use std::sync::Arc;

use elements::token_bucket::TokenBucket;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, TaskStatus};

use crate::shaping::rated_splitter::Burst;

pub(crate) static CLASS: Class = Class {
    name: "RatedUnqueue",
    processing: "l/h",
    handlers: &[
        Handler::read_write(
            "rate",
            Combine::First,
            "The RATE argument.",
            &Get(|e: &mut RatedUnqueue| e.bucket.rate().to_string()),
            &Put(|e: &mut RatedUnqueue, cx, value| {
                let rate = u64::from_value(value)?;
                e.bucket.set(cx.now_ns(), rate, e.burst.tokens(rate));
                cx.wake();
                Ok(())
            }),
        ),
        Handler::read_write(
            "active",
            Combine::First,
            "Whether it works.",
            &Get(|e: &mut RatedUnqueue| e.active.to_string()),
            &Put(|e: &mut RatedUnqueue, cx, value| {
                e.active = bool::from_value(value)?;
                cx.wake();
                Ok(())
            }),
        ),
        Handler::read(
            "count",
            Combine::Sum,
            "Packets moved so far.",
            &Get(|e: &mut RatedUnqueue| e.count.to_string()),
        ),
    ],
    manual: graph::manual!("rated_unqueue.rs"),
    make: |setup| {
        let rate: u64 = setup.arguments.required("RATE")?;
        let burst = Burst::from_arguments(&mut setup.arguments, "BURST_SIZE")?;
        setup.arguments.finish()?;
        let capacity = burst.tokens(rate);
        let bucket =
            setup.shared_by_copies(|| Ok::<_, ConfigError>(TokenBucket::new(rate, capacity, capacity)))?;
        Ok(Box::new(RatedUnqueue { bucket, burst, active: true, count: 0 }))
    },
    ..Class::DEFAULT
};

struct RatedUnqueue {
    bucket: Arc<TokenBucket>,
    burst: Burst,
    active: bool,
    count: u64,
}

impl Element for RatedUnqueue {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if !self.active {
            return TaskStatus::Asleep;
        }
        let now = cx.now_ns();
        let granted = self.bucket.take_up_to(now, cx.burst() as u64);
        if granted == 0 {
            let wait = self.bucket.ns_until(now, 1);
            cx.set_timer(0, now.saturating_add(wait));
            return TaskStatus::Asleep;
        }
        let mut batch = cx.spare_batch();
        cx.pull(0, &mut batch, granted as usize);
        let moved = batch.len() as u64;
        self.bucket.give_back(granted.saturating_sub(moved));
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
}
