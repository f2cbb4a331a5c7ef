//! =c
//! UnstripToMACHeader()
//!
//! =s basicmod
//! makes packets begin with their MAC header again
//!
//! =d
//! Moves the start of each packet back to its MAC (link) header. That header lies before the packet
//! after a Strip, and FIBLookup puts it there for the next hop. A packet that begins there already
//! stays as it is. One without a MAC header before it is dropped and counted as "no MAC header".
//!
//! =e
//!   rt :: FIBLookup(eth1, eth2);
//!   rt[0] -> DecIPTTL -> UnstripToMACHeader -> ToDevice(eth1);
//!
//! =a FIBLookup, MarkMACHeader, StripToNetworkHeader, Unstrip

use std::any::Any;

use graph::runs::{Ordinary, Sieve};
use graph::{Class, Context, Element, Verdict};
use packet::{Batch, Packet};

use crate::runs::{self, Departure, Header, Step, Watch};

pub(crate) static CLASS: Class = Class {
    name: "UnstripToMACHeader",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    manual: graph::manual!("unstrip_to_mac_header.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(UnstripToMacHeader))
    },
    ..Class::DEFAULT
};

struct UnstripToMacHeader;

/// False, and no change, where there is no header.
#[inline(always)]
pub(crate) fn unstrip(packet: &mut Packet) -> bool {
    let before = packet.link_offset().and_then(|offset| usize::try_from(-offset).ok());
    before.is_some_and(|before| packet.prepend(before).is_some())
}

impl Element for UnstripToMacHeader {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(
            batch,
            |packet| if unstrip(packet) { Verdict::Keep } else { Verdict::Drop("no MAC header") },
        );
    }

    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::Finish])
    }

    fn finish(&mut self, work: &mut dyn Any, sieve: &mut Sieve<'_>) {
        Departure::finish(work, sieve, unstrip);
    }

    /// The header is the one that lies before the packet.
    fn answer(&mut self, question: &mut dyn Any) -> bool {
        if let Some(watch) = question.downcast_mut::<Watch>() {
            watch.is_constant = true;
            return true;
        }
        question.downcast_ref::<Header<u32>>().is_some_and(|asked| asked.header.is_some())
            || question.downcast_ref::<Header<u128>>().is_some_and(|asked| asked.header.is_some())
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    fn bench(config: &str) -> Bench {
        Bench::new(&crate::registry(), config)
    }

    #[test]
    fn a_stripped_header_comes_back() {
        let config =
            "in :: TestInput -> MarkMACHeader -> Strip(3) -> UnstripToMACHeader -> out :: TestOutput";
        let mut bench = bench(config);
        bench.push("in", &[b"abcdef"]);
        assert_eq!(bench.taken("out"), [b"abcdef"]);
    }

    #[test]
    fn without_a_header_before_it_a_packet_is_dropped() {
        for way in ["", "-> MarkMACHeader(2)"] {
            let mut bench = bench(&format!("in :: TestInput {way} -> e :: UnstripToMACHeader -> Discard"));
            bench.push("in", &[b"abcdef"]);
            assert_eq!(bench.drops("e", "no MAC header"), 1, "{way}");
        }
    }

    #[test]
    fn in_a_fused_run_it_does_the_same() {
        // The second packet is a broadcast, so that the run takes back what it did to the first.
        let config = "in :: TestInput -> HostEtherFilter(1:1:1:1:1:1, DROP_OTHER false) -> MarkMACHeader -> Strip(14)
            -> CheckIPHeader -> drop :: DropBroadcasts -> DecIPTTL -> UnstripToMACHeader -> out :: TestOutput";
        let mut frame = vec![1; 6];
        frame.extend([
            2, 2, 2, 2, 2, 2, 8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        let checksum = packet::checksum::compute(&frame[14..]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        let group = [&[0xff; 6], &frame[6..]].concat();
        let mut bench = bench(config);
        bench.push("in", &[&frame, &group]);
        bench.push("in", &[&frame]);
        let packets = bench.taken("out");
        assert_eq!(packets.len(), 2);
        for packet in &packets {
            assert_eq!((&packet[..14], packet[22]), (&frame[..14], 63));
        }
        assert_eq!(packets[0], packets[1]);
    }
}
