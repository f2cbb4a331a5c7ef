//! =c
//! AdaptiveRED(TARGET_Q, MAX_P, I<keywords> QUEUES, STABILITY, GENTLE)
//!
//! =s aqm
//! drops packets early and at random, and adapts how many by itself
//!
//! =d
//! A C<RED> that keeps the average length of its queues near TARGET_Q. Its MIN_THRESH is half of
//! that and its MAX_THRESH one and a half times that. Every half second it looks at the average.
//! Below TARGET_Q, max_p is made smaller by a tenth, but not below 0.01. Above, max_p grows by
//! 0.01, or by a quarter of itself if that is less, up to 0.5. MAX_P is the value that it begins
//! with. The keywords are RED's.
//!
//! =e
//!   ... -> AdaptiveRED(30, 0.02) -> Queue(200) -> ...
//!
//! =a RED, PI, CoDel
//! Floyd, Gummadi and Shenker, Adaptive RED: An Algorithm for Increasing the Robustness of RED's Active Queue Management,
//! August 2001.

use graph::arguments::Raw;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::Batch;

use super::rate_ewma::decimal;
use super::red::{Curve, Red};

pub(crate) static CLASS: Class = Class {
    name: "AdaptiveRED",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read_write(
            "min_thresh",
            Combine::First,
            "RED's MIN_THRESH.",
            &Get(|e: &mut AdaptiveRed| e.red.curve.min_threshold.to_string()),
            &Put(|e: &mut AdaptiveRed, _, value| {
                e.red.set_curve(Curve { min_threshold: u16::from_value(value)?, ..e.red.curve })
            }),
        ),
        Handler::read_write(
            "max_thresh",
            Combine::First,
            "RED's MAX_THRESH.",
            &Get(|e: &mut AdaptiveRed| e.red.curve.max_threshold.to_string()),
            &Put(|e: &mut AdaptiveRed, _, value| {
                e.red.set_curve(Curve { max_threshold: u16::from_value(value)?, ..e.red.curve })
            }),
        ),
        Handler::read_write(
            "max_p",
            Combine::First,
            "The present max_p.",
            &Get(|e: &mut AdaptiveRed| e.red.curve.max_probability.to_string()),
            &Put(|e: &mut AdaptiveRed, _, value| {
                e.red.set_curve(Curve { max_probability: f64::from_value(value)?, ..e.red.curve })
            }),
        ),
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets dropped or sent to output 1 so far.",
            &Get(|e: &mut AdaptiveRed| e.red.drops.to_string()),
        ),
        Handler::read(
            "queues",
            Combine::First,
            "The names of the queues, one a line.",
            &Get(|e: &mut AdaptiveRed| e.red.queues.names()),
        ),
        Handler::read(
            "avg_queue_size",
            Combine::Sum,
            "The average length.",
            &Get(|e: &mut AdaptiveRed| decimal(e.red.average)),
        ),
        Handler::read(
            "stats",
            Combine::Join,
            "Lengths and drops for a reader.",
            &Get(|e: &mut AdaptiveRed| e.red.stats_text()),
        ),
    ],
    manual: graph::manual!("adaptive_red.rs"),
    make,
    ..Class::DEFAULT
};

/// Time between two looks at the average.
const INTERVAL_NS: u64 = 500_000_000;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let target: u16 = setup.arguments.required("TARGET_Q")?;
    let max_probability: f64 = setup.arguments.required("MAX_P")?;
    let queues = setup.arguments.keyword::<Raw>("QUEUES")?;
    let stability: u32 = setup.arguments.keyword_or("STABILITY", 4)?;
    let gentle = setup.arguments.keyword_or("GENTLE", true)?;
    setup.arguments.finish()?;
    let min_threshold = target / 2;
    let max_threshold = target
        .checked_add(min_threshold)
        .ok_or_else(|| format!("TARGET_Q: expected at most 43690 packets, got {target}"))?;
    let curve = Curve { min_threshold, max_threshold, max_probability, gentle };
    Ok(Box::new(AdaptiveRed { red: Red::new(setup, curve, stability, queues)? }))
}

struct AdaptiveRed {
    red: Red,
}

impl Element for AdaptiveRed {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.set_timer(0, cx.now_ns() + INTERVAL_NS);
        Ok(())
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        self.red.process(cx, batch);
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        let average = self.red.average;
        let curve = &mut self.red.curve;
        let target = (f64::from(curve.min_threshold) + f64::from(curve.max_threshold)) / 2.0;
        if average < target && curve.max_probability > 0.01 {
            curve.max_probability = (curve.max_probability * 0.9).max(0.01);
        } else if average > target && curve.max_probability < 0.5 {
            curve.max_probability =
                (curve.max_probability + f64::min(0.01, curve.max_probability / 4.0)).min(0.5);
        }
        cx.set_timer(0, cx.now_ns() + INTERVAL_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn max_p_follows_the_average() {
        let config = "in :: TestInput -> e :: AdaptiveRED(100, 0.04, STABILITY 0) -> q :: Queue(1000) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        assert_eq!((bench.read("e.min_thresh"), bench.read("e.max_thresh")), ("50".into(), "150".into()));
        bench.advance_ns(500_000_000);
        assert_eq!(bench.read("e.max_p"), "0.036000000000000004");
        bench.advance_ns(60_000_000_000);
        assert_eq!(bench.read("e.max_p"), "0.01");
        // Certain drops begin at 300, so the average can stay above 100.
        bench.push("in", &[&b"x"[..]; 250]);
        let average: f64 = bench.read("e.avg_queue_size").parse().unwrap();
        assert!(average > 100.0, "{average}");
        bench.advance_ns(500_000_000);
        assert_eq!(bench.read("e.max_p"), "0.0125");
        bench.advance_ns(60_000_000_000);
        assert_eq!(bench.read("e.max_p"), "0.5");
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "43691, 0.1").unwrap_err()[0].contains("at most 43690"));
        assert!(configure(&CLASS, "10").is_err());
        let config = "in :: TestInput -> AdaptiveRED(10, 2) -> Queue -> out :: TestOutput";
        let error = Bench::try_new(&crate::registry(), config, 1, &Default::default()).unwrap_err();
        assert!(error.contains("MAX_P: expected a number from 0 to 1"), "{error}");
    }
}
