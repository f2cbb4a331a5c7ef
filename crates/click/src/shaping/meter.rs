//! =c
//! Meter(RATE1, RATE2, ..., RATEn)
//!
//! =s shaping
//! sorts packets by the recent packet rate
//!
//! =d
//! Measures the rate of packets (an average over some 16 ms). Packets leave by output 0 while the
//! rate is below RATE1, by output 1 while it is below RATE2, and so on. From RATEn on they leave by
//! output n. Rates are packets a second and grow. It has one output more than rates.
//!
//! Different from Click: the rate is that of the router, all workers together.
//!
//! =e
//!   m :: Meter(20000);
//!   ... -> m -> ...; m[1] -> Discard;
//!
//! =a BandwidthMeter, Shaper, RatedSplitter
//!
//! =c
//! BandwidthMeter(RATE1, RATE2, ..., RATEn)
//!
//! =s shaping
//! sorts packets by the recent bandwidth
//!
//! =d
//! As C<Meter>, with bytes. Measures the bandwidth (an average over some 16 ms). Packets leave by
//! output 0 while it is below RATE1, by output 1 while it is below RATE2, and so on. Rates are
//! bytes a second, or have a unit: C<10Mbps>. It has one output more than rates.
//!
//! Different from Click: the bandwidth is that of the router, all workers together.
//!
//! =e
//!   m :: BandwidthMeter(10Mbps);
//!   ... -> m -> ...; m[1] -> Discard;
//!
//! =a Meter, BandwidthShaper, BandwidthRatedSplitter

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use graph::{Ask, Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Setup};
use packet::Batch;

use super::rate_ewma::{EPOCHS_PER_SECOND, RateEwma, SCALE};
use super::unit::{Bytes, Packets, Unit};

pub(crate) static CLASS: Class =
    Class { name: "Meter", manual: graph::manual!("meter.rs", "Meter"), ..Meter::<Packets>::CLASS };

pub(crate) static BANDWIDTH: Class = Class {
    name: "BandwidthMeter",
    manual: graph::manual!("meter.rs", "BandwidthMeter"),
    ..Meter::<Bytes>::CLASS
};

/// Rates, and where the measured rate stands among them.
struct Meter<U> {
    rates: Vec<u64>,
    /// The rates as the average counts: per epoch, scaled.
    scaled: Vec<u64>,
    measured: RateEwma,
    /// What all copies counted.
    total: Arc<AtomicU64>,
    /// How much of it entered `measured`.
    seen: u64,
    unit: PhantomData<U>,
}

impl<U: Unit> Meter<U> {
    const CLASS: Class = Class {
        ports: "1/2-",
        processing: Class::PUSH,
        handlers: &[
            Handler::read(
                "rate",
                Combine::Max,
                U::MEASURED_DOC,
                &Ask(|e: &mut Self, cx, _| Ok(e.measured.at(cx.now_ns()).text())),
            ),
            Handler::read(
                "meters",
                Combine::First,
                U::METERS_DOC,
                &Get(|e: &mut Self| e.rates.iter().map(|rate| format!("{rate}\n")).collect()),
            ),
        ],
        make: Self::make,
        ..Class::DEFAULT
    };

    fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
        let texts = setup.arguments.rest();
        setup.arguments.finish()?;
        if texts.is_empty() {
            return Err("at least one rate is required".to_owned().into());
        }
        let mut rates = Vec::new();
        let mut messages = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            match U::Rate::from_value(text).map(U::tokens) {
                Ok(rate) if rates.last().is_some_and(|&last| rate <= last) => {
                    messages.push(format!("rate {} must be greater than rate {number}", number + 1));
                }
                // So that it can be scaled.
                Ok(rate) if rate > u64::MAX >> (SCALE + 1) => {
                    messages.push(format!("rate {} is too large", number + 1));
                }
                Ok(rate) => rates.push(rate),
                Err(error) => messages.push(format!("rate {}: {error}", number + 1)),
            }
        }
        if messages.is_empty() && setup.outputs() != rates.len() + 1 {
            messages.push(format!(
                "{} rates need {} outputs, not {}",
                rates.len(),
                rates.len() + 1,
                setup.outputs()
            ));
        }
        if !messages.is_empty() {
            return Err(messages.into());
        }
        let total = setup.shared_by_copies(|| Ok::<_, ConfigError>(AtomicU64::new(0)))?;
        let scaled = rates.iter().map(|rate| (rate << SCALE) / EPOCHS_PER_SECOND).collect();
        Ok(Box::new(Self { rates, scaled, measured: RateEwma::default(), total, seen: 0, unit: PhantomData }))
    }

    /// Counts `count` and says by which output what was counted goes. A batch has one time, and the average
    /// only moves with time, so all of it goes the same way.
    fn output(&mut self, now_ns: u64, count: u64) -> usize {
        // Let finished epochs enter the average before this batch is counted.
        self.measured.update(now_ns, 0);
        let total = self.total.fetch_add(count, Ordering::Relaxed) + count;
        self.measured.update(now_ns, total.wrapping_sub(self.seen));
        self.seen = total;
        let average = self.measured.scaled_average();
        self.scaled.iter().position(|&rate| average < rate).unwrap_or(self.scaled.len())
    }
}

impl<U: Unit> Element for Meter<U> {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        match self.output(cx.now_ns(), U::cost(batch)) {
            0 => {}
            output => cx.emit_batch(output, batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn the_output_follows_the_rate() {
        let mut bench = Bench::element(&crate::registry(), "Meter(2000, 6000)", 1, 3);
        let run = |bench: &mut Bench, per_millisecond: usize| {
            for _ in 0..200 {
                bench.advance_ns(1_000_000);
                bench.push("in0", &vec![&b"x"[..]; per_millisecond]);
            }
            [bench.taken("out0").len(), bench.taken("out1").len(), bench.taken("out2").len()]
        };
        assert_eq!(run(&mut bench, 1), [200, 0, 0]);
        let [low, middle, high] = run(&mut bench, 4);
        assert!(low < 4 * 20 && high == 0 && middle == 800 - low);
        let [_, middle, high] = run(&mut bench, 10);
        assert!(middle < 10 * 20 && high > 1700);
        let rate: f64 = bench.read("e.rate").parse().unwrap();
        assert!((rate - 10_000.0).abs() < 100.0);
        assert_eq!(bench.read("e.meters"), "2000\n6000\n");
    }

    #[test]
    fn mistakes() {
        for (config, message) in [
            ("Meter()", "at least one rate"),
            ("Meter(5, 5)", "must be greater than rate 1"),
            ("Meter(5, x)", "rate 2: expected"),
            ("Meter(5, 6, 7)", "3 rates need 4 outputs, not 3"),
        ] {
            let config =
                format!("in :: TestInput -> e :: {config} -> Discard; e[1] -> Discard; e[2] -> Discard;");
            let error = Bench::try_new(&crate::registry(), &config, 1, &Default::default()).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn bytes_count() {
        // 800 kbit/s are 100 bytes a millisecond.
        let mut bench = Bench::element(&crate::registry(), "BandwidthMeter(800kbps)", 1, 2);
        for _ in 0..200 {
            bench.advance_ns(1_000_000);
            bench.push("in0", &[&[0; 90]]);
        }
        assert_eq!((bench.taken("out0").len(), bench.taken("out1").len()), (200, 0));
        for _ in 0..200 {
            bench.advance_ns(1_000_000);
            bench.push("in0", &[&[0; 300]]);
        }
        assert!(bench.taken("out1").len() > 190);
        assert_eq!(bench.read("e.meters"), "100000\n");
    }
}
