//! =c
//! InfiniteSource([DATA, LIMIT, BURST, ACTIVE, I<keywords> LENGTH, TIMESTAMP, STOP, END_CALL])
//!
//! =s basicsources
//! makes packets as fast as possible
//!
//! =d
//! Makes packets of DATA (C<\<00 01>> writes bytes), at most LIMIT of them (negative, the default:
//! no limit). Pushing, it makes BURST packets at a time, the router's burst size unless given.
//! Pulled, it makes as many as are asked for. With LENGTH the data are cut or repeated to that many
//! bytes. Packets carry the time when they were made unless TIMESTAMP is false. With ACTIVE false
//! it does nothing until the C<active> handler makes it true. With STOP true it stops the router
//! after the last packet. END_CALL is a write handler with the value for it, which is called then
//! instead of a stop.
//!
//! Pushing, it waits while every path from it leads to a C<Queue>, QuickNoteQueue, ThreadSafeQueue or MSQueue and all of these
//! are full.
//!
//! Different from Click: every worker makes packets, and LIMIT counts those of all workers. The
//! default BURST is not 1.
//!
//! =e
//!   InfiniteSource(\<00 01 02>, LIMIT 1000000, STOP true) -> Queue -> ...
//!
//! =a RatedSource, TimedSource, Idle

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use graph::setup::Direction;
use graph::{
    Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, TaskStatus,
};
use packet::Batch;

use super::end::End;
use super::payload::Payload;
use crate::queues::length::{QueueLength, TELLS_WHEN_FULL};

pub(crate) static CLASS: Class = Class {
    name: "InfiniteSource",
    ports: "0/1",
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets made since the start or the last reset.",
            &Get(|e: &mut InfiniteSource| e.count.to_string()),
        ),
        Handler::read_write(
            "active",
            Combine::First,
            "Whether it works.",
            &Get(|e: &mut InfiniteSource| e.active.to_string()),
            &Put(|e: &mut InfiniteSource, cx, value| {
                e.active = bool::from_value(value)?;
                e.revive(cx);
                Ok(())
            }),
        ),
        Handler::write(
            "reset",
            "Sets the count to zero, so that LIMIT more packets are made.",
            &Put(|e: &mut InfiniteSource, cx, _| {
                e.reset();
                e.revive(cx);
                Ok(())
            }),
        ),
        Handler::read_write(
            "data",
            Combine::First,
            "The DATA argument.",
            &Get(|e: &mut InfiniteSource| e.payload.data_text()),
            &Put(|e: &mut InfiniteSource, cx, value| {
                e.payload.set_data(cx, value)?;
                e.revive(cx);
                Ok(())
            }),
        ),
        Handler::read_write(
            "limit",
            Combine::First,
            "The LIMIT argument.",
            &Get(|e: &mut InfiniteSource| e.limit.map_or_else(|| "-1".to_owned(), |limit| limit.to_string())),
            &Put(|e: &mut InfiniteSource, cx, value| {
                e.limit = u64::try_from(i64::from_value(value)?).ok();
                e.revive(cx);
                Ok(())
            }),
        ),
        Handler::read_write(
            "burst",
            Combine::First,
            "The BURST argument.",
            &Get(|e: &mut InfiniteSource| {
                e.burst.map_or_else(|| "default".to_owned(), |burst| burst.to_string())
            }),
            &Put(|e: &mut InfiniteSource, cx, value| e.set_burst(cx, value)),
        ),
        Handler::read_write(
            "length",
            Combine::First,
            "The LENGTH argument.",
            &Get(|e: &mut InfiniteSource| e.payload.length_text()),
            &Put(|e: &mut InfiniteSource, cx, value| {
                e.payload.set_length(cx, value)?;
                e.revive(cx);
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("infinite_source.rs"),
    make,
    ..Class::DEFAULT
};

/// What the copies have in common.
struct Progress {
    /// Packets made, or about to be.
    made: AtomicU64,
    /// Copies that have not come to the end yet; the last one stops the router.
    unfinished: AtomicUsize,
}

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let data = Payload::data_argument(&mut setup.arguments)?;
    let limit: i64 = setup.arguments.optional("LIMIT")?.unwrap_or(-1);
    let burst: Option<usize> = setup.arguments.optional("BURST")?;
    let active = setup.arguments.optional("ACTIVE")?.unwrap_or(true);
    let length = Payload::length_argument(&mut setup.arguments)?;
    let timestamp = setup.arguments.keyword_or("TIMESTAMP", true)?;
    let end = End::read(&mut setup.arguments)?;
    setup.arguments.finish()?;
    if burst == Some(0) {
        return Err("BURST: expected 1 or more packets, got 0".to_owned().into());
    }
    let copies = setup.copy().workers;
    let progress = setup.shared_by_copies(|| {
        Ok::<_, ConfigError>(Progress { made: AtomicU64::new(0), unfinished: AtomicUsize::new(copies) })
    })?;
    let pushes = !setup.output_is_pull(0);
    let downstream = setup.nearest(Direction::Downstream(0), TELLS_WHEN_FULL);
    let queues = if pushes && downstream.everywhere { downstream.names } else { Vec::new() };
    let copy = setup.copy().index;
    Ok(Box::new(InfiniteSource {
        payload: Payload::new(data, length),
        limit: u64::try_from(limit).ok(),
        burst,
        active,
        timestamp,
        end,
        pushes,
        queues: queues.iter().map(|name| QueueLength::of(setup.shared(), name, copy)).collect(),
        progress,
        count: 0,
        finished: false,
    }))
}

struct InfiniteSource {
    payload: Payload,
    limit: Option<u64>,
    /// `None` is the router's burst size.
    burst: Option<usize>,
    active: bool,
    timestamp: bool,
    end: End,
    pushes: bool,
    /// The queues that all its packets go to, when there are such.
    queues: Vec<Arc<QueueLength>>,
    progress: Arc<Progress>,
    count: u64,
    finished: bool,
}

impl InfiniteSource {
    /// Takes up to `wanted` packets from what the limit leaves.
    fn claim(&mut self, wanted: usize) -> usize {
        let Some(limit) = self.limit else { return wanted };
        if self.progress.made.load(Ordering::Relaxed) >= limit {
            return 0;
        }
        let before = self.progress.made.fetch_add(wanted as u64, Ordering::Relaxed);
        let claimed = limit.saturating_sub(before).min(wanted as u64);
        self.unclaim(wanted - claimed as usize);
        claimed as usize
    }

    fn unclaim(&self, count: usize) {
        if self.limit.is_some() && count > 0 {
            self.progress.made.fetch_sub(count as u64, Ordering::Relaxed);
        }
    }

    fn limit_reached(&self) -> bool {
        self.limit.is_some_and(|limit| self.progress.made.load(Ordering::Relaxed) >= limit)
    }

    /// Adds up to `wanted` packets to `batch`; returns how many.
    fn fill(&mut self, cx: &mut Context, batch: &mut Batch, wanted: usize) -> usize {
        let claimed = self.claim(wanted.min(batch.room()));
        let start = batch.len();
        let made = cx.pool().allocate_batch(batch, claimed);
        self.unclaim(claimed - made);
        let now = cx.now_ns();
        for packet in &mut batch.packets_mut()[start..] {
            self.payload.fill(packet);
            if self.timestamp {
                packet.set_timestamp_ns(now);
            }
        }
        self.count += made as u64;
        made
    }

    /// Called once the limit is reached and the last packets are on their way.
    fn finish(&mut self, cx: &mut Context) {
        if !std::mem::replace(&mut self.finished, true)
            && self.progress.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.end.reached(cx);
        }
    }

    /// Goes to work again after a handler changed something.
    fn revive(&mut self, cx: &mut Context) {
        let works = self.active && !self.limit_reached();
        if works && std::mem::take(&mut self.finished) {
            self.progress.unfinished.fetch_add(1, Ordering::AcqRel);
        }
        if works && self.pushes {
            cx.wake();
        }
        if !self.pushes {
            cx.set_signal(works);
        }
    }

    /// Sets the count to zero.
    fn reset(&mut self) {
        // Every copy takes its own share out, so that the order of the copies does not matter.
        if self.limit.is_some() {
            self.progress.made.fetch_sub(self.count, Ordering::Relaxed);
        }
        self.count = 0;
    }

    /// Takes another burst size.
    fn set_burst(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        match usize::from_value(value)? {
            0 => return Err("expected 1 or more packets, got 0".to_owned()),
            burst => self.burst = Some(burst),
        }
        self.revive(cx);
        Ok(())
    }
}

impl Element for InfiniteSource {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.payload.check(cx)?;
        if self.pushes {
            cx.wake();
        } else {
            cx.set_signal(self.active);
        }
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if !self.active {
            return TaskStatus::Asleep;
        }
        if !self.queues.is_empty() && self.queues.iter().all(|queue| queue.is_full()) {
            return TaskStatus::Idle;
        }
        let mut wanted = self.burst.unwrap_or_else(|| cx.burst());
        let mut batch = cx.spare_batch();
        let mut worked = false;
        while wanted > 0 {
            let made = self.fill(cx, &mut batch, wanted);
            if made == 0 {
                break;
            }
            worked = true;
            wanted -= made;
            cx.emit_batch(0, &mut batch);
        }
        cx.recycle(batch);
        if worked {
            TaskStatus::Busy
        } else if self.limit_reached() {
            self.finish(cx);
            TaskStatus::Asleep
        } else {
            // No free frames: they come back when those who hold them have run.
            TaskStatus::Idle
        }
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        if self.active && self.fill(cx, batch, max) == 0 && max > 0 && self.limit_reached() {
            self.finish(cx);
            cx.set_signal(false);
        }
    }

    fn notifies(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::lang::{self, Source};
    use graph::router::{Control, Router, RouterOptions};
    use graph::setup::Shared;
    use graph::testing::{Bench, configure};

    #[test]
    fn it_pushes_up_to_its_limit_and_stops() {
        let config = "e :: InfiniteSource(DATA \\<00 ff>, LIMIT 70, STOP true) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(1);
        assert_eq!(bench.taken("out").len(), 32);
        bench.run(10);
        assert_eq!(bench.taken("out"), vec![[0, 0xff]; 38]);
        assert_eq!(bench.read("e.count"), "70");
        bench.write("e.reset", "").unwrap();
        bench.run(10);
        assert_eq!(bench.taken("out").len(), 70);
    }

    #[test]
    fn it_gives_what_is_pulled() {
        let config = "e :: InfiniteSource(x, 5) -> PullNull -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        assert_eq!(bench.pull("out", 3), 3);
        assert_eq!(bench.pull("out", 3), 2);
        assert_eq!(bench.pull("out", 3), 0);
        bench.write("e.limit", "6").unwrap();
        assert_eq!(bench.pull("out", 3), 1);
        bench.write("e.active", "false").unwrap();
        bench.write("e.limit", "-1").unwrap();
        assert_eq!(bench.pull("out", 3), 0);
        bench.write("e.active", "true").unwrap();
        assert_eq!(bench.pull("out", 256), 256);
    }

    #[test]
    fn whoever_pulls_sleeps_at_the_end_and_is_woken() {
        let config = "e :: InfiniteSource(x, 5) -> Unqueue -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(10);
        assert_eq!(bench.taken("out").len(), 5);
        assert!(!bench.graph().context().has_awake_tasks());
        bench.write("e.reset", "").unwrap();
        bench.run(10);
        assert_eq!(bench.taken("out").len(), 5);
    }

    #[test]
    fn it_waits_for_full_queues() {
        let config = "e :: InfiniteSource -> t :: Tee -> q :: Queue(40) -> out :: TestOutput; t[1] -> Null -> r :: Queue(100) -> rest :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(100);
        // It goes on until both are full, and then rests, so that what a burst has too much is all that is lost.
        assert_eq!((bench.read("q.length"), bench.read("r.length")), ("40".into(), "100".into()));
        assert_eq!(bench.read("e.count"), "128");
        bench.pull("out", 40);
        bench.run(100);
        assert_eq!(bench.read("e.count"), "192");
    }

    #[test]
    fn data_burst_length_and_time() {
        let config = "e :: InfiniteSource(ab, -1, 3, false, LENGTH 5) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(3);
        assert_eq!(bench.taken("out").len(), 0);
        bench.write("e.active", "true").unwrap();
        bench.run(1);
        let packets = bench.taken_packets("out");
        assert_eq!(packets.len(), 3);
        assert_eq!(packets[0].data(), b"ababa");
        assert_eq!(packets[0].timestamp_ns(), graph::clock::SIMULATED_START_NS);
        bench.write("e.data", "xyz").unwrap();
        bench.write("e.length", "-1").unwrap();
        bench.write("e.burst", "1").unwrap();
        bench.run(1);
        assert_eq!(bench.taken("out"), [b"xyz"]);
        assert!(bench.write("e.length", "60000").unwrap_err().contains("60000 bytes of data"));
        assert_eq!(bench.read("e.data"), "xyz");
    }

    #[test]
    fn the_limit_is_that_of_all_workers_and_the_last_one_stops_the_router() {
        let source = Source {
            name: "test.click".into(),
            text: "e :: InfiniteSource(LIMIT 70, STOP true) -> d :: Discard".into(),
        };
        let registry = crate::registry();
        let (flat, _) = lang::compile(&source, &lang::Options::default(), &registry);
        let options = RouterOptions { workers: 3, ..RouterOptions::default() };
        let control = Control::new(|_| {});
        let config = Arc::new(flat.unwrap());
        let mut router =
            Router::build(config, &registry, &Shared::default(), &options, control.clone()).unwrap();
        let mut run = |turns: usize| {
            router.on_each(move |graph| {
                for _ in 0..turns {
                    graph.context().turn();
                }
            });
            (router.read("e.count").unwrap(), router.read("d.count").unwrap())
        };
        assert_eq!(run(1), ("70".to_owned(), "70".to_owned()));
        assert!(!control.is_stopped());
        run(1);
        assert!(control.is_stopped());
        router.write("e.reset", "").unwrap();
        router.on_each(|graph| graph.context().turn());
        assert_eq!(router.read("d.count").unwrap(), "140");
    }

    #[test]
    fn it_rests_without_frames() {
        // The output keeps all frames of the pool.
        let mut bench = Bench::new(&crate::registry(), "e :: InfiniteSource -> out :: TestOutput");
        bench.run(1000);
        assert_eq!(bench.read("e.count"), "4096");
        bench.taken("out");
        bench.run(1);
        assert_eq!(bench.read("e.count"), "4128");
    }

    #[test]
    fn at_its_end_it_calls_a_handler() {
        let config = "InfiniteSource(LIMIT 70, END_CALL s.switch 1) -> s :: Switch -> a :: TestOutput;
                      s[1] -> b :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(10);
        assert_eq!(bench.read("s.switch"), "1");
        assert_eq!(bench.taken("a").len() + bench.taken("b").len(), 70);
    }

    #[test]
    fn mistakes() {
        assert_eq!(
            configure(&CLASS, "x, BURST 0").unwrap_err(),
            ["BURST: expected 1 or more packets, got 0"]
        );
        assert!(configure(&CLASS, "END_CALL x.y, STOP true").unwrap_err()[0].contains("at most one of them"));
        let config = "InfiniteSource(LENGTH 9000) -> Discard";
        let error = Bench::try_new(&crate::registry(), config, 1, &Default::default()).unwrap_err();
        assert!(error.contains("9000 bytes of data"), "{error}");
    }
}
