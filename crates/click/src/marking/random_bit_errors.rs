//! =c
//! RandomBitErrors(P [, KIND, ACTIVE])
//!
//! =s basicmod
//! changes bits of packets at random
//!
//! =d
//! Changes each bit of each packet with probability P (0 to 1). KIND is the error: C<flip> (the default) inverts
//! bits, C<set> makes them one and C<clear> zero. With ACTIVE false it changes nothing.
//!
//! =a RandomSample, CheckCRC32

use graph::{Class, Combine, Context, Element, Field, FromArgument, Get, Handler, Put};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "RandomBitErrors",
    handlers: &[
        Handler::read_write(
            "p_bit_error",
            Combine::First,
            "The P argument.",
            &Get(|e: &mut RandomBitErrors| e.probability.to_string()),
            &Put(|e: &mut RandomBitErrors, _, value| {
                e.probability = Probability::from_value(value)?.0;
                Ok(())
            }),
        ),
        Handler::read_write(
            "error_kind",
            Combine::First,
            "The KIND argument.",
            &Get(|e: &mut RandomBitErrors| e.kind.name().to_owned()),
            &Put(|e: &mut RandomBitErrors, _, value| {
                e.kind = Kind::from_value(value)?;
                Ok(())
            }),
        ),
        Handler::field("active", "The ACTIVE argument.", &Field(|e: &mut RandomBitErrors| &mut e.active)),
    ],
    manual: graph::manual!("random_bit_errors.rs"),
    make: |setup| {
        let probability: Probability = setup.arguments.required("P")?;
        let kind = setup.arguments.optional("KIND")?.unwrap_or(Kind::Flip);
        let active = setup.arguments.optional("ACTIVE")?.unwrap_or(true);
        setup.arguments.finish()?;
        Ok(Box::new(RandomBitErrors { probability: probability.0, kind, active }))
    },
    ..Class::DEFAULT
};

struct Probability(f64);

impl FromArgument for Probability {
    const EXPECTED: &'static str = "number from 0 to 1";
    fn from_argument(text: &str) -> Option<Self> {
        f64::from_argument(text).filter(|value| (0.0..=1.0).contains(value)).map(Self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Flip,
    Set,
    Clear,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Flip => "flip",
            Self::Set => "set",
            Self::Clear => "clear",
        }
    }
}

impl FromArgument for Kind {
    const EXPECTED: &'static str = "flip, set or clear";
    fn from_argument(text: &str) -> Option<Self> {
        match String::from_argument(text)?.as_str() {
            "flip" => Some(Self::Flip),
            "set" => Some(Self::Set),
            "clear" => Some(Self::Clear),
            _ => None,
        }
    }
}

struct RandomBitErrors {
    probability: f64,
    kind: Kind,
    active: bool,
}

impl RandomBitErrors {
    /// Bits up to the next error: geometrically distributed, so that one number is drawn for each error and not for each bit.
    fn gap(&self, cx: &mut Context) -> usize {
        // Above 0 and below 1.
        let uniform = (f64::from(cx.random()) + 0.5) / (1_u64 << 32) as f64;
        // The logarithm of 1 - P, also where P is too small to make a difference to 1; for P 1 minus infinity, so that the
        // gap is 0. A number that is too large becomes the largest integer.
        (uniform.ln() / (-self.probability).ln_1p()) as usize
    }

    fn spoil(&self, cx: &mut Context, data: &mut [u8]) {
        let bits = data.len() * 8;
        let mut bit = self.gap(cx);
        while bit < bits {
            let mask = 0x80 >> (bit % 8);
            match self.kind {
                Kind::Flip => data[bit / 8] ^= mask,
                Kind::Set => data[bit / 8] |= mask,
                Kind::Clear => data[bit / 8] &= !mask,
            }
            bit = bit.saturating_add(self.gap(cx)).saturating_add(1);
        }
    }
}

impl Element for RandomBitErrors {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if self.active && self.probability > 0.0 {
            for packet in batch.packets_mut() {
                self.spoil(cx, packet.data_mut());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn ones(packets: &[Vec<u8>]) -> u32 {
        packets.iter().flatten().map(|byte| byte.count_ones()).sum()
    }

    #[test]
    fn the_share_of_errors_is_the_probability() {
        for (p, low, high) in [
            ("0", 0, 0),
            ("1e-300", 0, 0),
            ("1", 800_000, 800_000),
            ("0.1", 78_000, 82_000),
            ("0.001", 650, 950),
        ] {
            let mut bench = Bench::element(&crate::registry(), &format!("RandomBitErrors({p})"), 1, 1);
            bench.push("in0", &[&[0; 1000][..]; 100]);
            let errors = ones(&bench.taken("out0"));
            assert!((low..=high).contains(&errors), "{p}: {errors}");
        }
    }

    #[test]
    fn kinds() {
        let mut bench = Bench::element(&crate::registry(), "RandomBitErrors(1, set)", 1, 1);
        bench.push("in0", &[&[0x0f]]);
        bench.write("e.error_kind", "clear").unwrap();
        bench.push("in0", &[&[0x0f]]);
        bench.write("e.error_kind", "flip").unwrap();
        bench.push("in0", &[&[0x0f]]);
        bench.write("e.active", "false").unwrap();
        bench.push("in0", &[&[0x0f]]);
        assert_eq!(bench.taken("out0").concat(), [0xff, 0, 0xf0, 0x0f]);
        assert_eq!((bench.read("e.error_kind"), bench.read("e.p_bit_error")), ("flip".into(), "1".into()));
        assert!(bench.write("e.p_bit_error", "-0.1").is_err());
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "2").is_err());
        assert!(configure(&CLASS, "0.5, twist").is_err());
        assert!(configure(&CLASS, "0.5, clear, false").is_ok());
    }
}
