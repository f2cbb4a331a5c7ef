//! =c
//! RatedSource([DATA, RATE, LIMIT, ACTIVE, I<keywords> LENGTH, BANDWIDTH, STOP, END_CALL])
//!
//! =s basicsources
//! makes packets at a rate
//!
//! =d
//! Makes RATE packets of DATA a second (10 by default), at most LIMIT of them (negative, the
//! default: no limit). With LENGTH the data are cut or repeated to that many bytes. BANDWIDTH, in
//! bytes a second or with a unit, is another way to give the rate. When it comes too late it
//! catches up by a hundredth of a second's worth of packets. With ACTIVE false it does nothing
//! until the C<active> handler makes it true. With STOP true it stops the router after the last
//! packet. A RATE of 0 sets no limit.
//!
//! Different from Click: on a router of several workers only the first one makes packets.
//!
//! =e
//!   RatedSource(\<0800>, 10, 1000) -> Queue -> ...
//!
//! =a InfiniteSource, TimedSource

use elements::token_bucket::TokenBucket;
use graph::arguments::Bandwidth;
use graph::{
    Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, TaskStatus,
};
use packet::Batch;

use super::end::End;
use super::payload::Payload;

pub(crate) static CLASS: Class = Class {
    name: "RatedSource",
    ports: "0/1",
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets made since the start or the last reset.",
            &Get(|e: &mut RatedSource| e.count.to_string()),
        ),
        Handler::read_write(
            "active",
            Combine::First,
            "Whether it works.",
            &Get(|e: &mut RatedSource| e.active.to_string()),
            &Put(|e: &mut RatedSource, cx, value| e.set_active(cx, value)),
        ),
        Handler::write(
            "reset",
            "Sets the count to zero, so that LIMIT more packets are made.",
            &Put(|e: &mut RatedSource, cx, _| {
                e.count = 0;
                e.bucket.restart(cx.now_ns(), 1);
                e.go_on(cx);
                Ok(())
            }),
        ),
        Handler::read_write(
            "data",
            Combine::First,
            "The DATA argument.",
            &Get(|e: &mut RatedSource| e.payload.data_text()),
            &Put(|e: &mut RatedSource, cx, value| {
                e.payload.set_data(cx, value)?;
                e.go_on(cx);
                Ok(())
            }),
        ),
        Handler::read_write(
            "rate",
            Combine::First,
            "The RATE argument.",
            &Get(|e: &mut RatedSource| e.bucket.rate().to_string()),
            &Put(|e: &mut RatedSource, cx, value| {
                let rate = u64::from_value(value)?;
                e.bucket.set(cx.now_ns(), rate, burst(rate));
                e.go_on(cx);
                Ok(())
            }),
        ),
        Handler::read_write(
            "limit",
            Combine::First,
            "The LIMIT argument.",
            &Get(|e: &mut RatedSource| e.limit.map_or_else(|| "-1".to_owned(), |limit| limit.to_string())),
            &Put(|e: &mut RatedSource, cx, value| {
                e.limit = u64::try_from(i64::from_value(value)?).ok();
                e.go_on(cx);
                Ok(())
            }),
        ),
        Handler::read_write(
            "length",
            Combine::First,
            "The LENGTH argument.",
            &Get(|e: &mut RatedSource| e.payload.length_text()),
            &Put(|e: &mut RatedSource, cx, value| {
                e.payload.set_length(cx, value)?;
                e.go_on(cx);
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("rated_source.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let data = Payload::data_argument(&mut setup.arguments)?;
    let rate: u64 = setup.arguments.optional("RATE")?.unwrap_or(10);
    let limit: i64 = setup.arguments.optional("LIMIT")?.unwrap_or(-1);
    let active = setup.arguments.optional("ACTIVE")?.unwrap_or(true);
    let length = Payload::length_argument(&mut setup.arguments)?;
    let bandwidth = setup.arguments.keyword::<Bandwidth>("BANDWIDTH")?;
    let end = End::read(&mut setup.arguments)?;
    setup.arguments.finish()?;
    let payload = Payload::new(data, length);
    let rate = match bandwidth {
        Some(bandwidth) => (bandwidth.bytes_per_second / payload.bytes().len().max(1) as u64).max(1),
        None => rate,
    };
    Ok(Box::new(RatedSource {
        payload,
        bucket: TokenBucket::new(rate, burst(rate), 1),
        limit: u64::try_from(limit).ok(),
        active,
        end,
        works_here: setup.works_here(),
        pushes: !setup.output_is_pull(0),
        count: 0,
        finished: false,
    }))
}

/// Packets that it may be behind its rate.
fn burst(rate: u64) -> u64 {
    (rate / 100).max(2)
}

struct RatedSource {
    payload: Payload,
    bucket: TokenBucket,
    limit: Option<u64>,
    active: bool,
    end: End,
    /// Whether this is the copy that makes packets.
    works_here: bool,
    pushes: bool,
    count: u64,
    finished: bool,
}

impl RatedSource {
    fn left(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.count))
    }

    /// Adds the packets that are due, up to `wanted`, to `batch`.
    fn fill(&mut self, cx: &mut Context, batch: &mut Batch, wanted: usize) {
        let wanted = (wanted as u64).min(self.left()).min(batch.room() as u64);
        let now = cx.now_ns();
        let granted = self.bucket.take_up_to(now, wanted);
        let start = batch.len();
        let made = cx.pool().allocate_batch(batch, granted as usize) as u64;
        self.bucket.give_back(granted - made);
        for packet in &mut batch.packets_mut()[start..] {
            self.payload.fill(packet);
            packet.set_timestamp_ns(now);
        }
        self.count += made;
    }

    fn finish(&mut self, cx: &mut Context) {
        if !std::mem::replace(&mut self.finished, true) {
            self.end.reached(cx);
        }
    }

    /// Works or pauses. After a pause it does not catch up.
    fn set_active(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        let active = bool::from_value(value)?;
        if active && !self.active {
            self.bucket.restart(cx.now_ns(), 1);
        }
        self.active = active;
        self.go_on(cx);
        Ok(())
    }

    /// Goes to work again after a handler changed something.
    fn go_on(&mut self, cx: &mut Context) {
        if self.left() > 0 {
            self.finished = false;
        }
        if self.works_here && self.pushes && self.active {
            cx.wake();
        }
    }
}

impl Element for RatedSource {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.payload.check(cx)?;
        if self.works_here && self.pushes {
            cx.wake();
        }
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if !self.active || !self.works_here {
            return TaskStatus::Asleep;
        }
        if self.left() == 0 {
            self.finish(cx);
            return TaskStatus::Asleep;
        }
        let mut batch = cx.spare_batch();
        let burst = cx.burst();
        self.fill(cx, &mut batch, burst);
        let made = batch.len();
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        if made > 0 {
            return TaskStatus::Busy;
        }
        match self.bucket.ns_until(cx.now_ns(), 1) {
            // No free frames: they come back when those who hold them have run.
            0 => TaskStatus::Idle,
            wait => {
                cx.set_timer(0, cx.now_ns().saturating_add(wait));
                TaskStatus::Asleep
            }
        }
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        cx.wake();
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        if !self.active || !self.works_here {
            return;
        }
        if self.left() == 0 {
            self.finish(cx);
            return;
        }
        self.fill(cx, batch, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn packets_come_at_the_rate() {
        let mut bench = Bench::new(&crate::registry(), "e :: RatedSource(x, 100, 25) -> out :: TestOutput");
        bench.run(5);
        assert_eq!(bench.taken("out").len(), 1);
        bench.advance_ns(9_999_999);
        assert_eq!(bench.taken("out").len(), 0);
        bench.advance_ns(1);
        assert_eq!(bench.taken("out").len(), 1);
        bench.advance_ns(100_000_000);
        let packets = bench.taken_packets("out");
        assert_eq!(packets.len(), 10);
        assert_eq!(packets[9].timestamp_ns() - packets[0].timestamp_ns(), 90_000_000);
        bench.advance_ns(1_000_000_000);
        assert_eq!(bench.taken("out").len(), 13);
        assert_eq!(bench.read("e.count"), "25");
        assert!(!bench.graph().context().has_awake_tasks());
        bench.write("e.reset", "").unwrap();
        bench.run(10);
        bench.advance_ns(1_000_000_000);
        assert_eq!(bench.taken("out").len(), 25);
    }

    #[test]
    fn it_can_be_pulled() {
        let mut bench =
            Bench::new(&crate::registry(), "e :: RatedSource(x, 1000) -> PullNull -> out :: TestOutput");
        assert_eq!(bench.pull("out", 100), 1);
        bench.advance_ns(2_000_000);
        assert_eq!(bench.pull("out", 100), 2);
        bench.write("e.active", "false").unwrap();
        bench.advance_ns(2_000_000);
        assert_eq!(bench.pull("out", 100), 0);
    }

    #[test]
    fn rate_and_bandwidth() {
        let mut bench = Bench::new(
            &crate::registry(),
            "e :: RatedSource(LENGTH 125, BANDWIDTH 1Mbps) -> out :: TestOutput",
        );
        assert_eq!(bench.read("e.rate"), "1000");
        bench.write("e.rate", "10").unwrap();
        bench.run(10);
        bench.advance_ns(1_000_000_000);
        assert_eq!(bench.taken("out").len(), 11);
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "x, fast").is_err());
        assert!(configure(&CLASS, "x, 1, 2, true, 5").is_err());
    }
}
