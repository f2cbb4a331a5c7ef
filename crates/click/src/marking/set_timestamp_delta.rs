//! =c
//! SetTimestampDelta
//!
//! =s timestamps
//! makes timestamps count from the first one
//!
//! =d
//! Takes the timestamp of the first packet that has one from the timestamps of all packets, so that they tell the time since
//! then. Packets without a timestamp stay so; one that is older than the first gets none.
//!
//! Different from Click: every worker has a first packet of its own.
//!
//! =a SetTimestamp, Print

use graph::{Class, Combine, Context, Element, Get, Handler, Put};
use packet::Batch;

use super::print::write_timestamp;

pub(crate) static CLASS: Class = Class {
    name: "SetTimestampDelta",
    handlers: &[
        Handler::read(
            "first",
            Combine::First,
            "The first timestamp, in seconds since 1970; 0 while there was none.",
            &Get(|e: &mut SetTimestampDelta| {
                let mut text = String::new();
                write_timestamp(&mut text, e.first_ns);
                text
            }),
        ),
        Handler::write(
            "reset",
            "Forgets the first timestamp: the next one is the first.",
            &Put(|e: &mut SetTimestampDelta, _, _| {
                e.first_ns = 0;
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("set_timestamp_delta.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(SetTimestampDelta { first_ns: 0 }))
    },
    ..Class::DEFAULT
};

struct SetTimestampDelta {
    /// 0 while no packet had a timestamp.
    first_ns: u64,
}

impl Element for SetTimestampDelta {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            let time_ns = packet.timestamp_ns();
            if time_ns > 0 {
                if self.first_ns == 0 {
                    self.first_ns = time_ns;
                }
                packet.set_timestamp_ns(time_ns.saturating_sub(self.first_ns));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    fn times(bench: &mut Bench, times: &[u64]) -> Vec<u64> {
        let packets = times.iter().map(|&time| {
            let mut packet = bench.packet(b"x");
            packet.set_timestamp_ns(time);
            packet
        });
        let packets = packets.collect();
        bench.push_packets("in0", packets);
        bench.taken_packets("out0").iter().map(packet::Packet::timestamp_ns).collect()
    }

    #[test]
    fn times_count_from_the_first() {
        let mut bench = Bench::element(&crate::registry(), "SetTimestampDelta", 1, 1);
        assert_eq!(times(&mut bench, &[0, 5_000_001_000, 5_000_002_000, 4_000_000_000]), [0, 0, 1000, 0]);
        assert_eq!(bench.read("e.first"), "5.000001");
        bench.write("e.reset", "").unwrap();
        assert_eq!(times(&mut bench, &[7, 9]), [0, 2]);
    }
}
