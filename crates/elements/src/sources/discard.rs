//! =c
//! Discard([I<keywords> ACTIVE, BURST])
//!
//! =s basicsources
//! frees all packets
//!
//! =d
//! Frees the packets that are pushed into it. In a pull path its task pulls packets and frees them,
//! up to BURST at a time. BURST is the router's burst size by default; 0 sets no limit. With ACTIVE
//! false the task does not pull. Discarded packets do not count as dropped.
//!
//! =a Idle, TimedSink

use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put, TaskStatus};
use packet::{Batch, MAX_BATCH};

pub(crate) static CLASS: Class = Class {
    name: "Discard",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/0",
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets discarded so far.",
            &Get(|e: &mut Discard| e.count.to_string()),
        ),
        Handler::write(
            "reset_counts",
            "Sets the count to zero.",
            &Put(|e: &mut Discard, _, _| {
                e.count = 0;
                Ok(())
            }),
        ),
        Handler::read_write(
            "active",
            Combine::First,
            "Whether it pulls; in a pull path only.",
            &Get(|e: &mut Discard| e.active.to_string()),
            &Put(|e: &mut Discard, cx, value| e.set_active(cx, value)),
        ),
    ],
    manual: graph::manual!("discard.rs"),
    make: |setup| {
        let active = setup.arguments.keyword_or("ACTIVE", true)?;
        let burst = setup.arguments.keyword("BURST")?;
        setup.arguments.finish()?;
        let pulls = setup.input_is_pull(0);
        if !active && !pulls {
            return Err("ACTIVE is meaningless in push context".to_owned().into());
        }
        let burst = burst.map(|burst| if burst == 0 { usize::MAX } else { burst });
        Ok(Box::new(Discard { pulls, active, burst, count: 0 }))
    },
    ..Class::DEFAULT
};

struct Discard {
    pulls: bool,
    active: bool,
    /// `None` is the router's burst size.
    burst: Option<usize>,
    count: u64,
}

impl Discard {
    /// Writes the handler `active`.
    fn set_active(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        self.active = bool::from_value(value)?;
        if self.active {
            cx.wake();
        }
        Ok(())
    }
}

impl Element for Discard {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if self.pulls && self.active {
            cx.wake();
        }
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        self.count += batch.len() as u64;
        cx.free(batch);
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if !self.active {
            return TaskStatus::Asleep;
        }
        let mut wanted = self.burst.unwrap_or_else(|| cx.burst());
        let mut worked = false;
        let mut batch = cx.spare_batch();
        while wanted > 0 {
            cx.pull(0, &mut batch, wanted.min(MAX_BATCH));
            if batch.is_empty() {
                break;
            }
            worked = true;
            wanted -= batch.len();
            self.count += batch.len() as u64;
            cx.free(&mut batch);
        }
        cx.recycle(batch);
        if worked {
            TaskStatus::Busy
        } else if cx.upstream_active() {
            TaskStatus::Idle
        } else {
            TaskStatus::Asleep
        }
    }

    fn has_handler(&self, name: &str) -> bool {
        name != "active" || self.pulls
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn pushed_packets_are_freed() {
        let mut bench = Bench::element(&crate::registry(), "Discard", 1, 0);
        bench.push("in0", &[&b"x"[..]; 40]);
        assert_eq!(bench.read("e.count"), "40");
        assert_eq!(bench.graph().pool_stats().free, 4096);
        assert_eq!(bench.stats("e").drops, []);
        bench.write("e.reset_counts", "").unwrap();
        assert_eq!(bench.read("e.count"), "0");
        assert!(bench.write("e.active", "true").is_err());
    }
}
