//! =c
//! DelayUnqueue(DELAY)
//!
//! =s shaping
//! pulls packets and pushes them on when they are old enough
//!
//! =d
//! Pulls packets and pushes each out as soon as it is DELAY old (a time such as C<10ms>; a number alone is seconds). A packet's
//! age counts from its timestamp, or from when it is pulled if it has none; it leaves with the current time as its timestamp.
//! At most one packet waits here, the others stay in the queue upstream. It sleeps while that is empty, and while the packet
//! here must wait.
//!
//! =e
//!   ... -> SetTimestamp -> Queue -> DelayUnqueue(50ms) -> ...
//!
//! =a DelayShaper, LinkUnqueue, Unqueue, SetTimestamp

use graph::{Class, Combine, Context, Element, Get, Handler, Put, TaskStatus};

use super::delay::Delay;

pub(crate) static CLASS: Class = Class {
    name: "DelayUnqueue",
    processing: "l/h",
    handlers: &[Handler::read_write(
        "delay",
        Combine::First,
        "The DELAY argument. A new one holds for packets that are yet to be pulled.",
        &Get(|e: &mut DelayUnqueue| e.delay.text()),
        &Put(|e: &mut DelayUnqueue, _, value| e.delay.set(value)),
    )],
    manual: graph::manual!("delay_unqueue.rs"),
    make: |setup| Ok(Box::new(DelayUnqueue { delay: Delay::from_setup(setup)? })),
    ..Class::DEFAULT
};

struct DelayUnqueue {
    delay: Delay,
}

impl Element for DelayUnqueue {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let mut batch = cx.spare_batch();
        let burst = cx.burst();
        let wait_until = self.delay.pull(cx, &mut batch, burst);
        let moved = !batch.is_empty();
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        match wait_until {
            Some(due_ns) => {
                cx.set_timer(0, due_ns);
                TaskStatus::Asleep
            }
            None if moved => TaskStatus::Busy,
            None if cx.upstream_active() => TaskStatus::Idle,
            None => TaskStatus::Asleep,
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

    #[test]
    fn packets_leave_when_they_are_old_enough() {
        let config =
            "in :: TestInput -> SetTimestamp -> Queue -> e :: DelayUnqueue(10ms) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"1", b"2"]);
        bench.advance_ns(4_000_000);
        bench.push("in", &[b"3"]);
        bench.advance_ns(5_999_999);
        assert!(bench.taken("out").is_empty());
        assert!(!bench.graph().context().has_awake_tasks());
        bench.advance_ns(1);
        let now = bench.graph().context().now_ns();
        let packets = bench.taken_packets("out");
        assert_eq!(packets.len(), 2);
        assert!(packets.iter().all(|packet| packet.timestamp_ns() == now));
        bench.advance_ns(3_999_999);
        assert!(bench.taken("out").is_empty());
        bench.advance_ns(1);
        assert_eq!(bench.taken("out"), [b"3"]);
        bench.run(10);
        assert!(!bench.graph().context().has_awake_tasks());
    }

    #[test]
    fn without_a_timestamp_age_counts_from_the_pull() {
        let config = "in :: TestInput -> Queue -> e :: DelayUnqueue(1) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        assert_eq!(bench.read("e.delay"), "1s");
        bench.write("e.delay", "2ms").unwrap();
        bench.push("in", &[b"1"]);
        bench.run(10);
        bench.advance_ns(1_999_999);
        assert!(bench.taken("out").is_empty());
        bench.advance_ns(1);
        assert_eq!(bench.taken("out"), [b"1"]);
        assert!(bench.write("e.delay", "soon").is_err());
        assert!(configure(&CLASS, "").is_err());
    }
}
