//! =c
//! RandomSample([P, I<keywords> SAMPLE, DROP, ACTIVE])
//!
//! =s classification
//! takes a random sample of packets
//!
//! =d
//! Each packet leaves by output 0 with probability P (0 to 1). The others leave by output 1 if that is connected, and are dropped
//! and counted as "not sampled" otherwise. SAMPLE is another way to say P, DROP one to say 1 - P; one of the three is
//! required. With ACTIVE false all packets leave by output 0.
//!
//! =e
//!   RandomSample(0.01)
//!
//! =a RandomSwitch, RandomBitErrors, RED

use graph::{
    Class, Combine, ConfigError, Context, Element, Field, FromArgument, Get, Handler, Put, Setup, Verdict,
};
use packet::{Batch, MAX_BATCH};

pub(crate) static CLASS: Class = Class {
    name: "RandomSample",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read_write(
            "sampling_prob",
            Combine::First,
            "The probability of leaving by output 0.",
            &Get(|e: &mut RandomSample| e.share.to_string()),
            &Put(|e: &mut RandomSample, _, value| {
                e.share = Probability::from_value(value)?.0;
                Ok(())
            }),
        ),
        Handler::read_write(
            "drop_prob",
            Combine::First,
            "The probability of not leaving by output 0.",
            &Get(|e: &mut RandomSample| (1.0 - e.share).to_string()),
            &Put(|e: &mut RandomSample, _, value| {
                e.share = 1.0 - Probability::from_value(value)?.0;
                Ok(())
            }),
        ),
        Handler::field("active", "The ACTIVE argument.", &Field(|e: &mut RandomSample| &mut e.active)),
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets that were not sampled.",
            &Get(|e: &mut RandomSample| e.drops.to_string()),
        ),
    ],
    manual: graph::manual!("random_sample.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let plain = setup.arguments.optional("P")?;
    let sample = setup.arguments.keyword("SAMPLE")?;
    let drop = setup.arguments.keyword("DROP")?;
    let active = setup.arguments.keyword_or("ACTIVE", true)?;
    setup.arguments.finish()?;
    let share = match (plain, sample, drop) {
        (Some(Probability(share)), None, None) | (None, Some(Probability(share)), None) => share,
        (None, None, Some(Probability(drop))) => 1.0 - drop,
        _ => return Err(ConfigError::new("set one of P, SAMPLE and DROP")),
    };
    Ok(Box::new(RandomSample { share, active, drops: 0 }))
}

struct Probability(f64);

impl FromArgument for Probability {
    const EXPECTED: &'static str = "number from 0 to 1";
    fn from_argument(text: &str) -> Option<Self> {
        f64::from_argument(text).filter(|value| (0.0..=1.0).contains(value)).map(Self)
    }
}

struct RandomSample {
    share: f64,
    active: bool,
    drops: u64,
}

impl Element for RandomSample {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if !self.active {
            return;
        }
        // Out of the 2^32 numbers that may be drawn.
        let sampled_below = (self.share * (1_u64 << 32) as f64) as u64;
        let mut sampled = [false; MAX_BATCH];
        for fate in sampled.iter_mut().take(batch.len()) {
            *fate = u64::from(cx.random()) < sampled_below;
            self.drops += u64::from(!*fate);
        }
        let mut fates = sampled.iter();
        cx.filter(batch, |_| match fates.next() {
            Some(false) => Verdict::Divert(1, "not sampled"),
            _ => Verdict::Keep,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn the_share_is_the_probability() {
        let mut bench = Bench::element(&crate::registry(), "RandomSample(0.25)", 1, 2);
        bench.push("in0", &[&b"x"[..]; 4000]);
        let (taken, rest) = (bench.taken("out0").len(), bench.taken("out1").len());
        assert_eq!(taken + rest, 4000);
        assert!((880..1120).contains(&taken), "{taken}");
        assert_eq!(bench.read("e.drops"), rest.to_string());
        for (share, count) in [("0", 0), ("1", 500)] {
            bench.write("e.sampling_prob", share).unwrap();
            bench.push("in0", &[&b"x"[..]; 500]);
            assert_eq!(bench.taken("out0").len(), count);
        }
        bench.write("e.drop_prob", "1").unwrap();
        bench.write("e.active", "false").unwrap();
        bench.push("in0", &[b"x"]);
        assert_eq!((bench.taken("out0").len(), bench.read("e.sampling_prob")), (1, "0".into()));
        assert!(bench.write("e.drop_prob", "2").is_err());
    }

    #[test]
    fn without_output_1_they_are_dropped() {
        let mut bench = Bench::element(&crate::registry(), "RandomSample(DROP 1)", 1, 1);
        bench.push("in0", &[b"x", b"y"]);
        assert_eq!(bench.drops("e", "not sampled"), 2);
    }

    #[test]
    fn mistakes() {
        assert_eq!(configure(&CLASS, "").unwrap_err(), ["set one of P, SAMPLE and DROP"]);
        assert!(configure(&CLASS, "0.5, DROP 0.5").is_err());
        assert_eq!(configure(&CLASS, "1.5").unwrap_err(), ["P: expected number from 0 to 1, got '1.5'"]);
    }
}
