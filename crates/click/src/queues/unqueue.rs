//! =c
//! Unqueue([BURST, I<keywords> ACTIVE, LIMIT])
//!
//! =s shaping
//! pulls packets as fast as possible and pushes them on
//!
//! =d
//! Its task pulls up to BURST packets at a time from upstream and pushes them out. It sleeps while
//! the queues upstream are empty. BURST is the router's burst size unless given; a negative one is
//! not a limit. With ACTIVE false it does nothing until the C<active> handler makes it true. After
//! LIMIT packets (negative, the default: no limit) it ends.
//!
//! Different from Click: the default BURST is not 1, and each worker has a LIMIT of its own.
//!
//! =e
//!   ... -> Queue -> Unqueue -> ...
//!
//! =a RatedUnqueue, TimedUnqueue, DelayUnqueue, LinkUnqueue, Queue

use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put, TaskStatus};
use packet::MAX_BATCH;

pub(crate) static CLASS: Class = Class {
    name: "Unqueue",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    processing: "l/h",
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets moved so far.",
            &Get(|e: &mut Unqueue| e.count.to_string()),
        ),
        Handler::read_write(
            "active",
            Combine::First,
            "Whether it works.",
            &Get(|e: &mut Unqueue| e.active.to_string()),
            &Put(|e: &mut Unqueue, cx, value| {
                e.active = bool::from_value(value)?;
                e.go_on(cx);
                Ok(())
            }),
        ),
        Handler::read_write(
            "burst",
            Combine::First,
            "The BURST argument.",
            &Get(|e: &mut Unqueue| e.burst.map_or_else(|| "default".to_owned(), |burst| burst.to_string())),
            &Put(|e: &mut Unqueue, cx, value| {
                e.burst = Some(i64::from_value(value)?);
                e.go_on(cx);
                Ok(())
            }),
        ),
        Handler::read_write(
            "limit",
            Combine::First,
            "The LIMIT argument.",
            &Get(|e: &mut Unqueue| e.limit.to_string()),
            &Put(|e: &mut Unqueue, cx, value| {
                e.limit = i64::from_value(value)?;
                e.go_on(cx);
                Ok(())
            }),
        ),
        Handler::write("reset", "Sets the count to zero.", &RESET),
        Handler::write("reset_counts", "As reset.", &RESET),
    ],
    manual: graph::manual!("unqueue.rs"),
    make: |setup| {
        let burst = setup.arguments.optional("BURST")?;
        let active = setup.arguments.keyword_or("ACTIVE", true)?;
        let limit = setup.arguments.keyword_or("LIMIT", -1)?;
        setup.arguments.finish()?;
        Ok(Box::new(Unqueue { burst, limit, active, count: 0 }))
    },
    ..Class::DEFAULT
};

const RESET: Put<Unqueue> = Put(|e, cx, _| {
    e.count = 0;
    e.go_on(cx);
    Ok(())
});

struct Unqueue {
    /// `None` is the router's burst size.
    burst: Option<i64>,
    limit: i64,
    active: bool,
    count: u64,
}

impl Unqueue {
    /// Packets that may still be moved.
    fn left(&self) -> usize {
        u64::try_from(self.limit).map_or(usize::MAX, |limit| limit.saturating_sub(self.count) as usize)
    }

    /// Goes to work again after a handler changed something.
    fn go_on(&self, cx: &mut Context) {
        if self.active && self.left() > 0 {
            cx.wake();
        }
    }
}

impl Element for Unqueue {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if self.active {
            cx.wake();
        }
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if !self.active || self.left() == 0 {
            return TaskStatus::Asleep;
        }
        let burst = match self.burst {
            None => cx.burst(),
            Some(burst) => usize::try_from(burst).unwrap_or(usize::MAX),
        };
        let mut wanted = burst.min(self.left());
        let mut batch = cx.spare_batch();
        let mut moved = 0;
        while wanted > 0 {
            cx.pull(0, &mut batch, wanted.min(MAX_BATCH));
            if batch.is_empty() {
                break;
            }
            moved += batch.len();
            wanted -= batch.len();
            cx.emit_batch(0, &mut batch);
        }
        cx.recycle(batch);
        self.count += moved as u64;
        if moved > 0 {
            TaskStatus::Busy
        } else if cx.upstream_active() {
            TaskStatus::Idle
        } else {
            TaskStatus::Asleep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn it_moves_what_is_there_and_sleeps() {
        let config = "in :: TestInput -> Queue -> e :: Unqueue -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(10);
        assert!(!bench.graph().context().has_awake_tasks());
        bench.push("in", &[&b"x"[..]; 70]);
        assert!(bench.graph().context().has_awake_tasks());
        bench.run(1);
        assert_eq!(bench.taken("out").len(), 32);
        bench.run(10);
        assert_eq!(bench.taken("out").len(), 38);
        assert_eq!(bench.read("e.count"), "70");
        assert!(!bench.graph().context().has_awake_tasks());
    }

    #[test]
    fn burst_limit_and_active() {
        let config =
            "in :: TestInput -> Queue -> e :: Unqueue(3, LIMIT 7, ACTIVE false) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&b"x"[..]; 20]);
        bench.run(5);
        assert_eq!(bench.taken("out").len(), 0);
        bench.write("e.active", "true").unwrap();
        bench.run(1);
        assert_eq!(bench.taken("out").len(), 3);
        bench.run(9);
        assert_eq!(bench.taken("out").len(), 4);
        bench.write("e.burst", "-1").unwrap();
        bench.write("e.reset", "").unwrap();
        bench.run(1);
        assert_eq!(bench.taken("out").len(), 7);
        assert_eq!(bench.read("e.burst"), "-1");
        assert!(bench.write("e.active", "perhaps").is_err());
    }

    #[test]
    fn with_bursts_of_one_packets_go_one_by_one() {
        let config = "in :: TestInput -> Queue -> e :: Unqueue -> out :: TestOutput";
        let mut bench = Bench::with_burst(&crate::registry(), config, 1);
        bench.push("in", &[b"1", b"2"]);
        bench.run(1);
        assert_eq!(bench.taken("out"), [b"1"]);
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "x").is_err());
        assert!(configure(&CLASS, "1, 2").is_err());
    }
}
