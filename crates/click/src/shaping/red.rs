//! =c
//! RED(MIN_THRESH, MAX_THRESH, MAX_P, I<keywords> QUEUES, STABILITY, GENTLE)
//!
//! =s aqm
//! drops packets early and at random, by the length of queues
//!
//! =d
//! Random Early Detection. It keeps a moving average of the length of its queues and drops no
//! packet while that is at most MIN_THRESH. From there to MAX_THRESH the probability grows evenly
//! up to MAX_P (0 to 1). In the gentle variant (GENTLE true, the default) it grows from MAX_P to 1
//! between MAX_THRESH and twice that. Beyond, every packet is dropped. Drops are spread evenly
//! rather than in bunches. With a second output, packets go there instead of being dropped.
//! Otherwise they count as "early random drop".
//!
//! In a push path it watches the nearest queues downstream, in a pull path the nearest ones
//! upstream. QUEUES, a list of names with spaces, names others. STABILITY is -log2 of the weight
//! that one new value has in the average, 0 to 16, 4 by default. The usual weight of 0.002 is about
//! 9.
//!
//! Different from Click: every worker has queues of its own, and its RED watches those.
//!
//! =e
//!   ... -> RED(5, 50, 0.02) -> Queue(200) -> ...
//!
//! =a AdaptiveRED, PI, CoDel, Queue
//! Floyd and Jacobson, Random Early Detection Gateways for Congestion Avoidance, ACM Transactions on Networking 1(4),
//! August 1993. Floyd, Recommendation on using the "gentle_" variant of RED, March 2000.

use graph::arguments::Raw;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::{Batch, MAX_BATCH};

use super::rate_ewma::decimal;
use super::watched_queues::WatchedQueues;

pub(crate) static CLASS: Class = Class {
    name: "RED",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read_write(
            "min_thresh",
            Combine::First,
            "The MIN_THRESH argument.",
            &Get(|e: &mut Red| e.curve.min_threshold.to_string()),
            &Put(|e: &mut Red, _, value| {
                e.set_curve(Curve { min_threshold: u16::from_value(value)?, ..e.curve })
            }),
        ),
        Handler::read_write(
            "max_thresh",
            Combine::First,
            "The MAX_THRESH argument.",
            &Get(|e: &mut Red| e.curve.max_threshold.to_string()),
            &Put(|e: &mut Red, _, value| {
                e.set_curve(Curve { max_threshold: u16::from_value(value)?, ..e.curve })
            }),
        ),
        Handler::read_write(
            "max_p",
            Combine::First,
            "The MAX_P argument.",
            &Get(|e: &mut Red| e.curve.max_probability.to_string()),
            &Put(|e: &mut Red, _, value| {
                e.set_curve(Curve { max_probability: f64::from_value(value)?, ..e.curve })
            }),
        ),
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets dropped or sent to output 1 so far.",
            &Get(|e: &mut Red| e.drops.to_string()),
        ),
        Handler::read(
            "queues",
            Combine::First,
            "The names of the queues, one a line.",
            &Get(|e: &mut Red| e.queues.names()),
        ),
        Handler::read(
            "avg_queue_size",
            Combine::Sum,
            "The average length.",
            &Get(|e: &mut Red| decimal(e.average)),
        ),
        Handler::read(
            "stats",
            Combine::Join,
            "Lengths and drops for a reader.",
            &Get(|e: &mut Red| e.stats_text()),
        ),
    ],
    manual: graph::manual!("red.rs"),
    make,
    ..Class::DEFAULT
};

/// Time in which an empty queue counts as one more length of zero.
const EMPTY_PERIOD_NS: u64 = 20_000_000;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let min_threshold: u16 = setup.arguments.required("MIN_THRESH")?;
    let max_threshold: u16 = setup.arguments.required("MAX_THRESH")?;
    let max_probability: f64 = setup.arguments.required("MAX_P")?;
    let queues = setup.arguments.keyword::<Raw>("QUEUES")?;
    let stability: u32 = setup.arguments.keyword_or("STABILITY", 4)?;
    let gentle = setup.arguments.keyword_or("GENTLE", true)?;
    setup.arguments.finish()?;
    let curve = Curve { min_threshold, max_threshold, max_probability, gentle };
    Ok(Box::new(Red::new(setup, curve, stability, queues)?))
}

/// The probability of a drop over the average length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Curve {
    pub(super) min_threshold: u16,
    pub(super) max_threshold: u16,
    pub(super) max_probability: f64,
    pub(super) gentle: bool,
}

impl Curve {
    fn check(&self) -> Result<(), String> {
        if self.min_threshold > self.max_threshold {
            return Err(format!(
                "MIN_THRESH {} must not be greater than MAX_THRESH {}",
                self.min_threshold, self.max_threshold
            ));
        }
        if !(0.0..=1.0).contains(&self.max_probability) {
            return Err(format!("MAX_P: expected a number from 0 to 1, got {}", self.max_probability));
        }
        Ok(())
    }

    fn probability(&self, average: f64) -> f64 {
        let (low, high) = (f64::from(self.min_threshold), f64::from(self.max_threshold));
        if average <= low {
            0.0
        } else if average <= high {
            self.max_probability * (average - low) / (high - low)
        } else if self.gentle && average <= 2.0 * high {
            self.max_probability + (1.0 - self.max_probability) * (average - high) / high
        } else {
            1.0
        }
    }
}

pub(super) struct Red {
    pub(super) curve: Curve,
    stability: u32,
    pub(super) queues: WatchedQueues,
    /// Whether packets come out of the queues through here, rather than going into them.
    pulls: bool,
    pub(super) average: f64,
    last_empty_period: Option<u64>,
    /// Packets since the last drop, while drops are possible.
    since_drop: Option<u32>,
    /// A number from 0 to 1, drawn anew after each drop.
    random: f64,
    pub(super) drops: u64,
}

impl Red {
    pub(super) fn new(
        setup: &Setup<'_>,
        curve: Curve,
        stability: u32,
        queues: Option<Raw>,
    ) -> Result<Self, ConfigError> {
        curve.check()?;
        if stability > 16 {
            return Err(format!("STABILITY: expected 0 to 16, got {stability}").into());
        }
        Ok(Self {
            curve,
            stability,
            queues: WatchedQueues::find(setup, queues)?,
            pulls: setup.output_is_pull(0),
            average: 0.0,
            last_empty_period: None,
            since_drop: None,
            random: 0.0,
            drops: 0,
        })
    }

    fn average_in(&mut self, length: usize, now_ns: u64) {
        let weight = 1.0 / f64::from(1u32 << self.stability);
        if length > 0 || self.stability == 0 {
            self.average += (length as f64 - self.average) * weight;
            self.last_empty_period = None;
            return;
        }
        // The average ages while nothing comes: one zero for each period.
        let period = now_ns / EMPTY_PERIOD_NS;
        let zeroes = self.last_empty_period.map_or(1, |last| period.saturating_sub(last));
        self.average *= (1.0 - weight).powi(zeroes.min(1 << 20) as i32);
        self.last_empty_period = Some(period);
    }

    /// Whether the next packet is to go, when the queues hold `length`.
    fn should_drop(&mut self, cx: &mut Context, length: usize) -> bool {
        self.average_in(length, cx.now_ns());
        let probability = self.curve.probability(self.average);
        if probability <= 0.0 || probability >= 1.0 {
            self.since_drop = None;
            return probability >= 1.0;
        }
        let since = self.since_drop.map_or(0, |count| count.saturating_add(1));
        // Uniform gaps between drops (section 7 of the paper): drop once count * p exceeds the number drawn.
        if since > 0 && f64::from(since) * probability > self.random {
            self.since_drop = Some(0);
            self.random = unit(cx.random());
            return true;
        }
        if since == 0 {
            self.random = unit(cx.random());
        }
        self.since_drop = Some(since);
        false
    }

    /// Takes another curve, if it can be one.
    pub(super) fn set_curve(&mut self, curve: Curve) -> Result<(), String> {
        curve.check()?;
        self.curve = curve;
        Ok(())
    }

    /// Lengths and drops for a reader.
    pub(super) fn stats_text(&self) -> String {
        format!(
            "{} current queue\n{} avg queue\n{} drops\n",
            self.queues.packets(),
            decimal(self.average),
            self.drops
        )
    }
}

/// A random word as a number from 0 to 1.
fn unit(word: u32) -> f64 {
    f64::from(word) / f64::from(u32::MAX)
}

impl Element for Red {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let outside = self.queues.packets();
        let mut doomed = [false; MAX_BATCH];
        let mut dropped = 0;
        for (number, fate) in doomed.iter_mut().enumerate().take(batch.len()) {
            // The queues do not hold, or no longer hold, the packets of this batch; count those that one by
            // one would be in them now.
            let inside = if self.pulls { batch.len() - 1 - number } else { number - dropped };
            *fate = self.should_drop(cx, outside + inside);
            dropped += usize::from(*fate);
        }
        if dropped == 0 {
            return;
        }
        self.drops += dropped as u64;
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
    use graph::testing::Bench;
    use proptest::prelude::*;

    fn bench(red: &str) -> Bench {
        let config = format!("in :: TestInput -> e :: {red} -> q :: Queue(1000) -> out :: TestOutput");
        Bench::new(&crate::registry(), &config)
    }

    #[test]
    fn short_queues_lose_nothing() {
        let mut bench = bench("RED(50, 100, 1)");
        for _ in 0..20 {
            bench.push("in", &[&b"x"[..]; 50]);
            assert_eq!(bench.pull("out", 50), 50);
        }
        assert_eq!(bench.read("e.drops"), "0");
    }

    #[test]
    fn beyond_all_thresholds_everything_goes() {
        let mut bench = bench("RED(5, 10, 0.1, STABILITY 0)");
        bench.push("in", &[&b"x"[..]; 200]);
        let length: usize = bench.read("q.length").parse().unwrap();
        // Certain at twice MAX_THRESH; nothing is dropped up to MIN_THRESH.
        assert!((6..=21).contains(&length), "{length}");
        let drops: usize = bench.read("e.drops").parse().unwrap();
        assert_eq!(drops + length, 200);
        assert_eq!(bench.drops("e", "early random drop"), drops as u64);
        assert!(bench.read("e.stats").starts_with(&format!("{length} current queue\n")));
    }

    #[test]
    fn in_between_the_share_is_the_probability() {
        // The queue stays at 60, half way from 20 to 100: p_b is 0.05. Gaps between drops are even from 1 to 1/p_b,
        // so that the share of drops is about twice that (section 7 of the paper).
        let mut bench = bench("RED(20, 100, 0.1, STABILITY 0)");
        bench.write("e.min_thresh", "100").unwrap();
        bench.push("in", &[&b"x"[..]; 60]);
        bench.write("e.min_thresh", "20").unwrap();
        let before: usize = bench.read("e.drops").parse().unwrap();
        for _ in 0..20_000 {
            bench.push("in", &[b"x"]);
            let kept: usize = bench.read("q.length").parse().unwrap();
            bench.pull("out", kept - 60);
            bench.taken("out");
        }
        let share = (bench.read("e.drops").parse::<usize>().unwrap() - before) as f64 / 20_000.0;
        assert!((0.08..0.12).contains(&share), "{share}");
    }

    #[test]
    fn it_works_in_a_pull_path_and_diverts() {
        let config =
            "in :: TestInput -> q :: Queue(1000) -> e :: RED(1, 2, 1, STABILITY 0) -> out :: TestOutput;
            e[1] -> late :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&b"x"[..]; 100]);
        assert_eq!(bench.read("e.queues"), "q\n");
        let mut kept = 0;
        for _ in 0..10 {
            kept += bench.pull("out", 10);
        }
        let diverted = bench.taken("late").len();
        assert_eq!(kept + diverted, 100);
        // The last two find at most one packet behind them.
        assert!((2..=4).contains(&kept), "{kept}");
    }

    #[test]
    fn the_average_ages_while_the_queue_is_empty() {
        let mut bench = bench("RED(500, 500, 1)");
        bench.push("in", &[&b"x"[..]; 100]);
        bench.pull("out", 100);
        bench.push("in", &[b"x"]);
        bench.pull("out", 1);
        let before: f64 = bench.read("e.avg_queue_size").parse().unwrap();
        bench.advance_ns(10_000_000_000);
        bench.push("in", &[b"x"]);
        let after: f64 = bench.read("e.avg_queue_size").parse().unwrap();
        assert!(before > 50.0 && after < 0.01, "{before} {after}");
    }

    #[test]
    fn queues_by_name_and_mistakes() {
        let registry = crate::registry();
        let named = |queues: &str| {
            let config = format!(
                "in :: TestInput -> e :: RED(1, 2, 1, QUEUES {queues}) -> Discard; Idle -> q :: Queue -> Discard"
            );
            Bench::try_new(&registry, &config, 1, &Default::default())
        };
        assert!(named("q").is_ok());
        assert!(named("r").unwrap_err().contains("no element named 'r'"));
        assert!(named("e").unwrap_err().contains("'e' is a RED, not a queue"));
        for (red, message) in [
            ("RED(1, 2, 0.5)", "no queue near it"),
            ("RED(3, 2, 0.5)", "MIN_THRESH 3 must not be greater than MAX_THRESH 2"),
            ("RED(1, 2, 1.5)", "expected a number from 0 to 1, got 1.5"),
            ("RED(1, 2, 1, STABILITY 17)", "expected 0 to 16, got 17"),
        ] {
            let config = format!("in :: TestInput -> {red} -> Discard");
            let error = Bench::try_new(&registry, &config, 1, &Default::default()).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        let mut bench = bench("RED(5, 50, 0.02)");
        assert!(bench.write("e.min_thresh", "51").is_err());
        bench.write("e.max_p", "0.5").unwrap();
        assert_eq!((bench.read("e.max_p"), bench.read("e.min_thresh")), ("0.5".into(), "5".into()));
    }

    proptest! {
        #[test]
        fn the_curve_grows_without_steps(low in 0u16..200, more in 1u16..200, p in 0.0f64..1.0, at in 0.0f64..1000.0) {
            let curve = Curve { min_threshold: low, max_threshold: low + more, max_probability: p, gentle: true };
            let (here, next) = (curve.probability(at), curve.probability(at + 0.001));
            prop_assert!((0.0..=1.0).contains(&here));
            prop_assert!(here <= next + 1e-9 && next - here < 0.0011);
        }
    }
}
