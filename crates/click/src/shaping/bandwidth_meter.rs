//! =c
//! BandwidthMeter(RATE1, RATE2, ..., RATEn)
//!
//! =s shaping
//! sorts packets by the recent bandwidth
//!
//! =d
//! As C<Meter>, with bytes: measures the bandwidth (an average over some 16 ms) and sends packets out by output 0 while
//! it is below RATE1, by output 1 while it is below RATE2, and so on. Rates are bytes a second, or have a unit:
//! C<10Mbps>. It has one output more than rates.
//!
//! Different from Click: the bandwidth is that of the router, all workers together.
//!
//! =e
//!   m :: BandwidthMeter(10Mbps);
//!   ... -> m -> ...; m[1] -> Discard;
//!
//! =a Meter, BandwidthShaper, BandwidthRatedSplitter

use graph::arguments::Bandwidth;
use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler};
use packet::Batch;

use super::meter::Thresholds;

pub(crate) static CLASS: Class = Class {
    name: "BandwidthMeter",
    ports: "1/2-",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "rate",
            Combine::Max,
            "The measured bandwidth in bytes a second.",
            &Get(|e: &mut BandwidthMeter| e.thresholds.measured_text()),
        ),
        Handler::read(
            "meters",
            Combine::First,
            "The rates in bytes a second, one a line.",
            &Get(|e: &mut BandwidthMeter| e.thresholds.rates_text()),
        ),
    ],
    manual: graph::manual!("bandwidth_meter.rs"),
    make: |setup| {
        let rates = setup.arguments.rest();
        let parse = |text: &String| Bandwidth::from_value(text).map(|rate| rate.bytes_per_second);
        Ok(Box::new(BandwidthMeter { thresholds: Thresholds::new(setup, &rates, parse)? }))
    },
    ..Class::DEFAULT
};

struct BandwidthMeter {
    thresholds: Thresholds,
}

impl Element for BandwidthMeter {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let bytes: usize = batch.iter().map(|packet| packet.len()).sum();
        match self.thresholds.output(cx.now_ns(), bytes as u64) {
            0 => {}
            output => cx.emit_batch(output, batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

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
