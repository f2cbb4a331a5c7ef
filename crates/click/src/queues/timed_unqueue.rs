//! =c
//! TimedUnqueue(INTERVAL [, BURST])
//!
//! =s shaping
//! pulls packets at regular times and pushes them on
//!
//! =d
//! Pulls up to BURST packets (1 by default) and pushes them out. Waits for INTERVAL (a time such as
//! C<10ms>; a number alone is seconds) before it does so again. It sleeps while the queues upstream
//! are empty; the first packet after that does not wait.
//!
//! Different from Click: the INTERVAL is exact, not in milliseconds, and each worker moves BURST
//! packets.
//!
//! =e
//!   ... -> Queue -> TimedUnqueue(100ms, 10) -> ...
//!
//! =a Burster, RatedUnqueue, Unqueue, DelayUnqueue
//!
//! =c
//! Burster(INTERVAL [, BURST])
//!
//! =s shaping
//! pulls packets in bursts and pushes them on
//!
//! =d
//! A C<TimedUnqueue> whose BURST is 8 unless given.
//!
//! =a TimedUnqueue

use graph::arguments::Interval;
use graph::{Class, ConfigError, Context, Element, Setup, TaskStatus};
use packet::MAX_BATCH;

pub(crate) static CLASS: Class = Class {
    name: "TimedUnqueue",
    processing: "l/h",
    manual: graph::manual!("timed_unqueue.rs", "TimedUnqueue"),
    make: |setup| make(setup, 1),
    ..Class::DEFAULT
};

pub(crate) static BURSTER: Class = Class {
    name: "Burster",
    manual: graph::manual!("timed_unqueue.rs", "Burster"),
    make: |setup| make(setup, 8),
    ..CLASS
};

/// Makes the element; `burst` is the default of BURST.
fn make(setup: &mut Setup<'_>, burst: usize) -> Result<Box<dyn Element>, ConfigError> {
    let interval: Interval = setup.arguments.required("INTERVAL")?;
    let burst = setup.arguments.optional("BURST")?.unwrap_or(burst);
    setup.arguments.finish()?;
    if burst == 0 {
        return Err("BURST: expected at least 1 packet, got 0".to_owned().into());
    }
    Ok(Box::new(TimedUnqueue { interval_ns: interval.ns, burst, waits: false, due_ns: None }))
}

struct TimedUnqueue {
    interval_ns: u64,
    burst: usize,
    /// Whether the timer is set.
    waits: bool,
    /// When the timer was last due; none after a sleep.
    due_ns: Option<u64>,
}

impl Element for TimedUnqueue {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        // A queue upstream got packets; their time will come.
        if self.waits {
            return TaskStatus::Asleep;
        }
        let mut batch = cx.spare_batch();
        let mut moved = 0;
        while moved < self.burst {
            cx.pull(0, &mut batch, (self.burst - moved).min(MAX_BATCH));
            if batch.is_empty() {
                break;
            }
            moved += batch.len();
            cx.emit_batch(0, &mut batch);
        }
        cx.recycle(batch);
        if moved == 0 && !cx.upstream_active() {
            self.due_ns = None;
            return TaskStatus::Asleep;
        }
        // From when it was due, not from now: so a late turn does not lower the rate.
        let now = cx.now_ns();
        let due_ns = self.due_ns.unwrap_or(now).saturating_add(self.interval_ns).max(now);
        self.due_ns = Some(due_ns);
        self.waits = true;
        cx.set_timer(0, due_ns);
        TaskStatus::Asleep
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        self.waits = false;
        cx.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn a_burst_each_interval() {
        let config = "in :: TestInput -> Queue -> e :: TimedUnqueue(10ms, 2) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"1", b"2", b"3", b"4", b"5"]);
        bench.run(10);
        assert_eq!(bench.taken("out"), [b"1", b"2"]);
        bench.advance_ns(9_999_999);
        assert!(bench.taken("out").is_empty());
        bench.advance_ns(1);
        assert_eq!(bench.taken("out"), [b"3", b"4"]);
        bench.advance_ns(10_000_000);
        assert_eq!(bench.taken("out"), [b"5"]);
        // It looks once more, and sleeps.
        bench.advance_ns(50_000_000);
        assert!(!bench.graph().context().has_awake_tasks());
        bench.push("in", &[b"6"]);
        bench.run(10);
        assert_eq!(bench.taken("out"), [b"6"]);
    }

    #[test]
    fn bursts_larger_than_a_batch() {
        let config = "in :: TestInput -> Queue -> TimedUnqueue(1s, 600) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&b"x"[..]; 1000]);
        bench.run(10);
        assert_eq!(bench.taken("out").len(), 600);
        bench.advance_ns(1_000_000_000);
        assert_eq!(bench.taken("out").len(), 400);
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "").is_err());
        assert_eq!(configure(&CLASS, "1, 0").unwrap_err(), ["BURST: expected at least 1 packet, got 0"]);
    }

    #[test]
    fn eight_at_a_time() {
        let config = "in :: TestInput -> Queue -> Burster(10ms) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&b"x"[..]; 20]);
        bench.run(10);
        assert_eq!(bench.taken("out").len(), 8);
        bench.advance_ns(10_000_000);
        assert_eq!(bench.taken("out").len(), 8);
    }
}
