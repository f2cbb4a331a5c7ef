//! =c
//! DelayShaper(DELAY)
//!
//! =s shaping
//! lets packets be pulled when they are old enough
//!
//! =d
//! A pull element that gives each packet as soon as it is DELAY old (a time such as C<10ms>; a number alone is seconds). A
//! packet's age counts from its timestamp, or from when it is pulled if it has none; it leaves with the current time as its
//! timestamp. At most one packet waits here, the others stay in the queue upstream.
//!
//! While the packet here must wait tasks downstream sleep. Other than in Click, they do not while the queue upstream is empty,
//! but look for packets again and again.
//!
//! =e
//!   ... -> SetTimestamp -> Queue -> DelayShaper(50ms) -> ToDevice(eth0);
//!
//! =a DelayUnqueue, LinkUnqueue, Shaper, SetTimestamp

use graph::{Class, Combine, Context, Element, Get, Handler, Put};
use packet::Batch;

use super::delay::Delay;

pub(crate) static CLASS: Class = Class {
    name: "DelayShaper",
    processing: Class::PULL,
    handlers: &[Handler::read_write(
        "delay",
        Combine::First,
        "The DELAY argument. A new one holds for packets that are yet to be pulled.",
        &Get(|e: &mut DelayShaper| e.delay.text()),
        &Put(|e: &mut DelayShaper, _, value| e.delay.set(value)),
    )],
    manual: graph::manual!("delay_shaper.rs"),
    make: |setup| Ok(Box::new(DelayShaper { delay: Delay::from_setup(setup)? })),
    ..Class::DEFAULT
};

struct DelayShaper {
    delay: Delay,
}

impl Element for DelayShaper {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.set_signal(true);
        Ok(())
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let wait_until = self.delay.pull(cx, batch, max);
        if let Some(due_ns) = wait_until {
            cx.set_timer(0, due_ns);
        }
        cx.set_signal(wait_until.is_none());
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        cx.set_signal(true);
    }

    /// Tasks downstream ask this element alone, because the queue upstream is empty while its last packet waits here.
    fn notifies(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn packets_come_when_they_are_old_enough() {
        let config =
            "in :: TestInput -> SetTimestamp -> Queue -> e :: DelayShaper(10ms) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"1", b"2"]);
        bench.advance_ns(1_000_000);
        bench.push("in", &[b"3"]);
        assert_eq!(bench.pull("out", 9), 0);
        bench.advance_ns(9_000_000);
        assert_eq!(bench.pull("out", 1), 1);
        assert_eq!(bench.pull("out", 9), 1);
        bench.advance_ns(1_000_000);
        assert_eq!(bench.pull("out", 9), 1);
        assert_eq!(bench.taken("out"), [b"1", b"2", b"3"]);
        assert_eq!(bench.read("e.delay"), "10ms");
        bench.write("e.delay", "1ms").unwrap();
        assert!(configure(&CLASS, "-1").is_err());
    }

    #[test]
    fn a_task_sleeps_until_the_packet_is_due() {
        let config = "in :: TestInput -> Queue -> DelayShaper(10ms) -> Unqueue -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"1"]);
        bench.run(10);
        assert!(!bench.graph().context().has_awake_tasks());
        bench.advance_ns(10_000_000);
        assert_eq!(bench.taken("out"), [b"1"]);
    }
}
