//! =c
//! AdjustTimestamp(SECONDS, I<keyword> ALL)
//!
//! =s timestamps
//! moves timestamps
//!
//! =d
//! Adds SECONDS, which may be negative, to the timestamp of every packet that has one.
//!
//! ALL: boolean. True changes packets without a timestamp too. False by default.
//!
//! Different from Click: there is no time before 1970, so that a timestamp cannot become less than 0.
//!
//! =e
//!   FromDump(f.pcap) -> AdjustTimestamp(-3600) -> ...
//!
//! =a SetTimestamp, SetTimestampDelta, TimeFilter

use graph::arguments::{Interval, Raw};
use graph::lang::unquote;
use graph::{Class, ConfigError, Context, Element, FromArgument, Setup};
use packet::Batch;

pub(crate) static CLASS: Class =
    Class { name: "AdjustTimestamp", manual: graph::manual!("adjust_timestamp.rs"), make, ..Class::DEFAULT };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let Raw(text) = setup.arguments.required("SECONDS")?;
    let all = setup.arguments.keyword_or("ALL", false)?;
    setup.arguments.finish()?;
    let delta_ns = signed(&unquote(&text))
        .ok_or_else(|| format!("SECONDS: expected seconds, as in -1.5 or +2, got '{text}'"))?;
    Ok(Box::new(AdjustTimestamp { delta_ns, all }))
}

/// A time with or without a sign, in nanoseconds.
fn signed(text: &str) -> Option<i64> {
    let size = text.strip_prefix(['-', '+']).unwrap_or(text);
    let ns = i64::try_from(Interval::from_argument(size)?.ns).ok()?;
    Some(if text.starts_with('-') { -ns } else { ns })
}

struct AdjustTimestamp {
    delta_ns: i64,
    all: bool,
}

impl Element for AdjustTimestamp {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            let time_ns = packet.timestamp_ns();
            if time_ns != 0 || self.all {
                packet.set_timestamp_ns(time_ns.saturating_add_signed(self.delta_ns));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn adjusted(arguments: &str, times: &[u64]) -> Vec<u64> {
        let text = format!("AdjustTimestamp({arguments})");
        let mut bench = Bench::element(&crate::registry(), &text, 1, 1);
        let packets = times.iter().map(|&time| {
            let mut packet = bench.packet(b"x");
            packet.set_timestamp_ns(time);
            packet
        });
        let packets: Vec<_> = packets.collect();
        bench.push_packets("in0", packets);
        bench.taken_packets("out0").iter().map(packet::Packet::timestamp_ns).collect()
    }

    #[test]
    fn later_and_earlier() {
        assert_eq!(adjusted("1.5", &[5, 0]), [1_500_000_005, 0]);
        assert_eq!(adjusted("+1us, ALL true", &[5, 0]), [1_005, 1_000]);
        assert_eq!(adjusted("-1us", &[1_005, 5]), [5, 0]);
        assert!(configure(&CLASS, "soon").unwrap_err()[0].starts_with("SECONDS: expected seconds"));
    }
}
