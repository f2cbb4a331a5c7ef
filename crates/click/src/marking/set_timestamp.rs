//! =c
//! SetTimestamp([TIMESTAMP, I<keyword> FIRST])
//!
//! =s timestamps
//! sets the time of packets
//!
//! =d
//! Sets the time of each packet to TIMESTAMP, in seconds since 1970, or to the current time. With FIRST true it sets the
//! first timestamp annotation instead: 8 bytes, the nanoseconds in the byte order of the machine.
//!
//! =a SetTimestampDelta, CoDel, Print

use graph::arguments::Interval;
use graph::{Class, Context, Element};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "SetTimestamp",
    capabilities: &[graph::KEEPS_ALL],
    manual: graph::manual!("set_timestamp.rs"),
    make: |setup| {
        let fixed: Option<Interval> = setup.arguments.optional("TIMESTAMP")?;
        let first = setup.arguments.keyword_or("FIRST", false)?;
        setup.arguments.finish()?;
        Ok(Box::new(SetTimestamp { fixed_ns: fixed.map(|time| time.ns), first }))
    },
    ..Class::DEFAULT
};

/// Where the annotations hold the first timestamp, at Click's place.
pub(crate) const FIRST_TIMESTAMP: std::ops::Range<usize> = 32..40;

struct SetTimestamp {
    fixed_ns: Option<u64>,
    first: bool,
}

impl Element for SetTimestamp {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let time_ns = self.fixed_ns.unwrap_or_else(|| cx.now_ns());
        for packet in batch.packets_mut() {
            if self.first {
                packet.annotations_mut().bytes_mut()[FIRST_TIMESTAMP].copy_from_slice(&time_ns.to_ne_bytes());
            } else {
                packet.set_timestamp_ns(time_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::clock::SIMULATED_START_NS;
    use graph::testing::{Bench, configure};

    #[test]
    fn now_or_then() {
        for (element, expected) in [
            ("SetTimestamp", SIMULATED_START_NS + 5),
            ("SetTimestamp(1234567890.5)", 1_234_567_890_500_000_000),
        ] {
            let mut bench = Bench::element(&crate::registry(), element, 1, 1);
            bench.advance_ns(5);
            bench.push("in0", &[b"x"]);
            assert_eq!(bench.taken_packets("out0")[0].timestamp_ns(), expected);
        }
    }

    #[test]
    fn the_annotation() {
        let mut bench = Bench::element(&crate::registry(), "SetTimestamp(2, FIRST true)", 1, 1);
        bench.push("in0", &[b"x"]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets[0].timestamp_ns(), 0);
        assert_eq!(packets[0].annotations().bytes()[FIRST_TIMESTAMP], 2_000_000_000u64.to_ne_bytes());
        assert!(configure(&CLASS, "yesterday").is_err());
    }
}
