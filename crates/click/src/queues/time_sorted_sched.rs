//! =c
//! TimeSortedSched([I<keywords> STOP])
//!
//! =s scheduling
//! merges its inputs by timestamp
//!
//! =d
//! Gives the packet with the earliest timestamp among the first packets of its inputs; of equals, that of the first input. So
//! inputs that are each in order of time become one stream in order of time. The first packet of each input is stored here.
//!
//! With STOP true it stops the router once it has given packets and no input has any more.
//!
//! Different from Click: tasks downstream do not sleep while the inputs have no packets, but look again and again.
//!
//! =e
//!   t :: TimeSortedSched(STOP true) -> ...;
//!   FromDump(a.pcap) -> [0]t; FromDump(b.pcap) -> [1]t;
//!
//! =a FromDump, RoundRobinSched, SetTimestamp

use graph::{Class, Context, Element};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "TimeSortedSched",
    ports: "-/1",
    processing: Class::PULL,
    manual: graph::manual!("time_sorted_sched.rs"),
    make: |setup| {
        let stop = setup.arguments.keyword_or("STOP", false)?;
        setup.arguments.finish()?;
        let heads = std::iter::repeat_with(|| None).take(setup.inputs()).collect();
        Ok(Box::new(TimeSortedSched { heads, stop, gave: false }))
    },
    ..Class::DEFAULT
};

struct TimeSortedSched {
    /// The first packet of each input.
    heads: Vec<Option<Packet>>,
    stop: bool,
    /// Whether a packet was given since the router was last asked to stop.
    gave: bool,
}

impl TimeSortedSched {
    /// Takes the earliest packet; `one` is empty.
    fn earliest(&mut self, cx: &mut Context, one: &mut Batch) -> Option<Packet> {
        for (input, head) in self.heads.iter_mut().enumerate() {
            if head.is_none() {
                cx.pull(input, one, 1);
                *head = one.pop();
            }
        }
        let earliest = self.heads.iter_mut().filter(|head| head.is_some());
        earliest.min_by_key(|head| head.as_ref().map(Packet::timestamp_ns))?.take()
    }
}

impl Element for TimeSortedSched {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.set_signal(true);
        Ok(())
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let max = max.min(batch.room());
        let mut one = cx.spare_batch();
        while batch.len() < max {
            let Some(packet) = self.earliest(cx, &mut one) else { break };
            batch.push(packet);
        }
        cx.recycle(one);
        if !batch.is_empty() {
            self.gave = true;
        } else if max > 0 && self.stop && std::mem::take(&mut self.gave) {
            cx.stop();
        }
    }

    /// Tasks downstream ask this element alone, because the queues upstream may be empty while packets wait here.
    fn notifies(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn stamped(bench: &mut Bench, input: &str, times: &[u8]) {
        let packets = times.iter().map(|&time| {
            let mut packet = bench.packet(&[time]);
            packet.set_timestamp_ns(time.into());
            packet
        });
        let packets = packets.collect();
        bench.push_packets(input, packets);
    }

    #[test]
    fn the_earliest_comes_first() {
        for burst in [1, 32] {
            let config = "e :: TimeSortedSched(STOP true) -> out :: TestOutput;
                a :: TestInput -> Queue -> [0]e; b :: TestInput -> Queue -> [1]e; c :: TestInput -> Queue -> [2]e";
            let mut bench = Bench::with_burst(&crate::registry(), config, burst);
            stamped(&mut bench, "a", &[1, 5, 6, 20]);
            stamped(&mut bench, "b", &[2, 3, 9]);
            stamped(&mut bench, "c", &[4, 10]);
            while bench.pull("out", 4) > 0 {}
            assert_eq!(bench.taken("out").concat(), [1, 2, 3, 4, 5, 6, 9, 10, 20]);
        }
    }

    #[test]
    fn of_equals_the_first_input_comes_first() {
        let config = "e :: TimeSortedSched -> out :: TestOutput;
            a :: TestInput -> Queue -> [0]e; b :: TestInput -> Queue -> [1]e";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("b", &[b"b"]);
        bench.push("a", &[b"a"]);
        bench.pull("out", 9);
        assert_eq!(bench.taken("out").concat(), b"ab");
        assert!(configure(&CLASS, "STOP perhaps").is_err());
    }
}
