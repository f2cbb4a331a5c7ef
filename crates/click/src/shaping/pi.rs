//! =c
//! PI(W, A, B, TARGET [, QUEUES, I<keywords> QREF, STABILITY])
//!
//! =s aqm
//! drops packets at random so that queues have a wanted length
//!
//! =d
//! The proportional integral controller. Every W seconds it changes the probability with which it
//! drops packets. It adds A times the excess of its queues over TARGET packets, and subtracts B
//! times their excess at the last look. So the probability settles where the queues have that
//! length, whatever the load. With a second output, packets go there instead of being dropped.
//! Otherwise they count as "early random drop". QREF is another name for TARGET.
//!
//! It watches the queues that C<RED> would, or those named by QUEUES. STABILITY is -log2 of the
//! weight that one new length has in the average of its handlers, 1 to 16, 4 by default.
//!
//! The paper's example, for a link of 3,750 packets a second: W 1/160, A 0.00001822, B 0.00001816,
//! TARGET 200.
//!
//! Different from Click: it follows the paper. (Click's element forgets the length at the last look
//! and drops with one minus the probability.) Every worker has queues of its own, and its PI
//! watches those.
//!
//! =e
//!   ... -> PI(0.00625, 0.00001822, 0.00001816, 200) -> Queue(1000) -> ...
//!
//! =a RED, AdaptiveRED, CoDel
//! Hollot, Misra, Towsley and Gong, On Designing Improved Controllers for AQM Routers Supporting TCP Flows, INFOCOM 2001.

use graph::arguments::Raw;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::{Batch, MAX_BATCH};

use super::rate_ewma::decimal;
use super::watched_queues::WatchedQueues;

pub(crate) static CLASS: Class = Class {
    name: "PI",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read_write(
            "w",
            Combine::First,
            "The W argument.",
            &Get(|e: &mut Pi| e.gains.seconds.to_string()),
            &Put(|e: &mut Pi, cx, value| {
                e.set_gains(cx, Gains { seconds: f64::from_value(value)?, ..e.gains })
            }),
        ),
        Handler::read_write(
            "a",
            Combine::First,
            "The A argument.",
            &Get(|e: &mut Pi| e.gains.new.to_string()),
            &Put(|e: &mut Pi, cx, value| e.set_gains(cx, Gains { new: f64::from_value(value)?, ..e.gains })),
        ),
        Handler::read_write(
            "b",
            Combine::First,
            "The B argument.",
            &Get(|e: &mut Pi| e.gains.old.to_string()),
            &Put(|e: &mut Pi, cx, value| e.set_gains(cx, Gains { old: f64::from_value(value)?, ..e.gains })),
        ),
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets dropped or sent to output 1 so far.",
            &Get(|e: &mut Pi| e.drops.to_string()),
        ),
        Handler::read(
            "queues",
            Combine::First,
            "The names of the queues, one a line.",
            &Get(|e: &mut Pi| e.queues.names()),
        ),
        Handler::read(
            "avg_queue_size",
            Combine::Sum,
            "The average length.",
            &Get(|e: &mut Pi| decimal(e.average)),
        ),
        Handler::read(
            "stats",
            Combine::Join,
            "Lengths and drops for a reader.",
            &Get(|e: &mut Pi| e.stats_text()),
        ),
    ],
    manual: graph::manual!("pi.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let gains = Gains {
        seconds: setup.arguments.required("W")?,
        new: setup.arguments.required("A")?,
        old: setup.arguments.required("B")?,
    };
    let target: u16 = setup.arguments.required("TARGET")?;
    let queues = setup.arguments.optional::<Raw>("QUEUES")?;
    let target = setup.arguments.keyword_or("QREF", target)?;
    let stability: u32 = setup.arguments.keyword_or("STABILITY", 4)?;
    setup.arguments.finish()?;
    gains.check()?;
    if !(1..=16).contains(&stability) {
        return Err(format!("STABILITY: expected 1 to 16, got {stability}").into());
    }
    Ok(Box::new(Pi {
        gains,
        target: f64::from(target),
        stability,
        queues: WatchedQueues::find(setup, queues)?,
        last_length: 0.0,
        average: 0.0,
        probability: 0.0,
        drops: 0,
    }))
}

#[derive(Clone, Copy, Debug)]
struct Gains {
    /// Time between two looks.
    seconds: f64,
    new: f64,
    old: f64,
}

impl Gains {
    fn check(&self) -> Result<(), String> {
        // More than the clock can tell apart, and no longer than a day.
        if !(1e-6..=86_400.0).contains(&self.seconds) {
            return Err(format!("W: expected 0.000001 to 86400 seconds, got {}", self.seconds));
        }
        for (name, gain) in [("A", self.new), ("B", self.old)] {
            if gain < 0.0 {
                return Err(format!("{name}: expected a number that is not negative, got {gain}"));
            }
        }
        Ok(())
    }
}

struct Pi {
    gains: Gains,
    target: f64,
    stability: u32,
    queues: WatchedQueues,
    last_length: f64,
    average: f64,
    probability: f64,
    drops: u64,
}

impl Pi {
    fn wait(&self, cx: &mut Context) {
        let ns = (self.gains.seconds * 1e9) as u64;
        cx.set_timer(0, cx.now_ns().saturating_add(ns));
    }

    /// Takes other gains, if they can be, and waits anew.
    fn set_gains(&mut self, cx: &mut Context, gains: Gains) -> Result<(), String> {
        gains.check()?;
        self.gains = gains;
        self.wait(cx);
        Ok(())
    }

    /// Lengths and drops for a reader.
    fn stats_text(&self) -> String {
        format!(
            "{} current queue\n{} avg queue\n{} drops\n",
            self.queues.packets(),
            decimal(self.average),
            self.drops
        )
    }
}

impl Element for Pi {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.wait(cx);
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        let length = self.queues.packets() as f64;
        let change =
            self.gains.new * (length - self.target) - self.gains.old * (self.last_length - self.target);
        self.probability = (self.probability + change).clamp(0.0, 1.0);
        self.last_length = length;
        self.average += (length - self.average) / f64::from(1u32 << self.stability);
        self.wait(cx);
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if self.probability <= 0.0 {
            return;
        }
        // Out of the 2^32 numbers that may be drawn.
        let doomed_below = (self.probability * f64::from(u32::MAX)) as u64 + 1;
        let mut doomed = [false; MAX_BATCH];
        for fate in doomed.iter_mut().take(batch.len()) {
            *fate = u64::from(cx.random()) < doomed_below;
            self.drops += u64::from(*fate);
        }
        let mut fates = doomed.iter();
        cx.filter(batch, |_| match fates.next() {
            Some(true) => Verdict::Divert(1, "early random drop"),
            _ => Verdict::Keep,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn the_queue_settles_at_the_target() {
        let config =
            "in :: TestInput -> e :: PI(0.01, 0.0005, 0.00049, 100) -> q :: Queue(1000) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let mut lengths = 0;
        for millisecond in 0..60_000 {
            bench.advance_ns(1_000_000);
            bench.push("in", &[b"x", b"x", b"x", b"x"]);
            bench.pull("out", 3);
            bench.taken("out");
            if millisecond >= 30_000 {
                lengths += bench.read("q.length").parse::<usize>().unwrap();
            }
        }
        let mean = lengths / 30_000;
        assert!((80..120).contains(&mean), "{mean}");
        // A quarter of what comes is too much.
        let drops: usize = bench.read("e.drops").parse().unwrap();
        assert!((57_000..62_000).contains(&drops), "{drops}");
        assert_eq!(bench.drops("e", "early random drop"), drops as u64);
        assert_eq!(bench.read("e.queues"), "q\n");
    }

    #[test]
    fn a_short_queue_loses_nothing() {
        let config = "in :: TestInput -> e :: PI(0.01, 0.1, 0, 10) -> Queue -> out :: TestOutput; e[1] -> late :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&b"x"[..]; 5]);
        bench.advance_ns(1_000_000_000);
        bench.push("in", &[&b"x"[..]; 95]);
        assert_eq!(bench.taken("late").len(), 0);
        bench.advance_ns(1_000_000_000);
        bench.push("in", &[&b"x"[..]; 100]);
        assert_eq!(bench.taken("late").len(), 100);
        assert!(bench.read("e.stats").starts_with("100 current queue\n"));
    }

    #[test]
    fn mistakes() {
        for (config, message) in [
            ("0, 1, 1, 1", "W: expected 0.000001 to 86400 seconds, got 0"),
            ("1, -1, 1, 1", "A: expected a number that is not negative, got -1"),
            ("1, 1, 1, 1, STABILITY 0", "STABILITY: expected 1 to 16, got 0"),
        ] {
            assert_eq!(configure(&CLASS, config).unwrap_err(), [message]);
        }
        let config = "in :: TestInput -> e :: PI(1, 0, 0, 5) -> Queue -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.write("e.a", "0.5").unwrap();
        assert!(bench.write("e.w", "-1").is_err());
        assert_eq!((bench.read("e.a"), bench.read("e.w")), ("0.5".into(), "1".into()));
    }
}
