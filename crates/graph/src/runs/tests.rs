use packet::Batch;

use super::{Ordinary, Step};
use crate::testing::Bench;
use crate::{Class, Combine, Context, Element, Handler};

/// Sets the paint and takes bytes off. As an element it sets 100 more than as part of a run, so that a test sees which it
/// was.
struct Cut {
    colour: u8,
    bytes: usize,
}

static CUT: Class = Class {
    name: "Cut",
    ports: "1/1",
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: "//! Cuts.",
    make: |setup| {
        let bytes: u32 = setup.arguments.required("BYTES")?;
        setup.arguments.finish()?;
        Ok(Box::new(Cut { colour: 0, bytes: bytes as usize }))
    },
};

impl Element for Cut {
    fn ordinary(&self) -> Option<Ordinary> {
        let paint = packet::Annotations::PAINT;
        Ordinary::steps([Step::SetAnnotation { place: paint, value: self.colour }, Step::Strip(self.bytes)])
    }

    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            packet.annotations_mut().set_paint(self.colour + 100);
            packet.strip(self.bytes);
        }
    }

    fn handlers(&self) -> &'static [Handler] {
        const { &[Handler::read_write("colour", Combine::First)] }
    }

    fn write(&mut self, _cx: &mut Context, _name: &str, value: &str) -> Result<(), String> {
        self.colour = value.parse().map_err(|_| "no colour".to_owned())?;
        Ok(())
    }
}

fn bench(config: &str) -> Bench {
    let mut registry = crate::graph::Registry::new();
    registry.add(&[&CUT]);
    Bench::new(&registry, config)
}

const LONG: &[u8] = b"0123456789abcdefghij";

fn seen(bench: &mut Bench, packets: &[&[u8]]) -> Vec<(u8, usize)> {
    bench.push("in", packets);
    bench.taken_packets("out").iter().map(|packet| (packet.annotations().paint(), packet.len())).collect()
}

#[test]
fn a_run_works_and_counts_for_its_elements() {
    let mut bench = bench("in :: TestInput -> a :: Cut(2) -> b :: Cut(3) -> out :: TestOutput;");
    assert_eq!(seen(&mut bench, &[LONG, LONG]), [(0, 15), (0, 15)]);
    // A packet so short that the comparison of first bytes does not fit is odd, and takes the other with it.
    assert_eq!(seen(&mut bench, &[LONG, b"abcdef"]), [(100, 15), (100, 1)]);
    for name in ["a", "b"] {
        let stats = bench.stats(name);
        assert_eq!((stats.packets, stats.batches), (4, 2), "{name}");
    }
    bench.graph().reset_stats();
    assert_eq!(bench.stats("a").packets, 0);
}

#[test]
fn handlers_are_seen_by_the_next_batch_and_counters_survive() {
    let mut bench = bench("in :: TestInput -> a :: Cut(2) -> b :: Cut(3) -> out :: TestOutput;");
    assert_eq!(seen(&mut bench, &[LONG]), [(0, 15)]);
    bench.write("b.colour", "7").unwrap();
    assert_eq!(seen(&mut bench, &[LONG]), [(7, 15)]);
    bench.graph().set_fused(false);
    bench.write("b.colour", "8").unwrap();
    assert_eq!(seen(&mut bench, &[LONG]), [(108, 15)]);
    assert_eq!((bench.stats("a").packets, bench.stats("b").batches), (3, 3));
}

#[test]
fn chains_that_circle_or_end_make_no_endless_run() {
    let mut circle = bench(
        "a :: Cut(0) -> b :: Cut(0) -> a; in :: TestInput -> b; Idle :: TestInput -> out :: TestOutput;",
    );
    assert_eq!(seen(&mut circle, &[LONG]), []);
    assert_eq!(circle.stats("a").drops.len() + circle.stats("b").drops.len(), 1, "dropped for circling");
}

mod merging {
    use std::sync::Arc;

    use packet::PacketType;

    use super::super::arrival::Arrival;
    use super::super::departure::Departure;
    use super::super::{Ip6Check, IpCheck, Step};

    fn check() -> Step {
        Step::CheckIp(IpCheck { offset: 0, checksum: true, sources: Arc::default() })
    }

    fn check_6() -> Step {
        Step::CheckIp6(Ip6Check { offset: 0, sources: Arc::default() })
    }

    fn arrives(steps: &[Step]) -> bool {
        Arrival::default().add(steps)
    }

    fn departs(steps: &[Step]) -> bool {
        Departure::default().add(steps)
    }

    fn matches(offset: usize, mask: u32, value: u32) -> Step {
        Step::Match { offset, mask, value }
    }

    #[test]
    fn what_fits_an_arrival() {
        let ethernet = matches(12, 0xffff_0000, 0x0800_0000);
        assert!(arrives(&[ethernet.clone(), Step::SetType(PacketType::Host), Step::Strip(14), check()]));
        // Beyond the bytes that are compared.
        assert!(!arrives(&[matches(13, 0xff00_0000, 0)]));
        assert!(!arrives(&[Step::Strip(14), matches(0, 0xff00_0000, 0)]));
        // No packet is both, or one that the check would refuse.
        assert!(!arrives(&[ethernet, matches(12, 0xffff_0000, 0x0806_0000)]));
        assert!(!arrives(&[matches(14, 0xff00, 0x4600), check()].map(|step| match step {
            Step::Match { .. } => matches(12, 0xff00, 0x4600),
            Step::CheckIp(check) => Step::CheckIp(IpCheck { offset: 14, ..check }),
            other => other,
        })));
        // What is cut off by the check, or set by it.
        assert!(!arrives(&[check(), Step::AtLeast(40)]));
        assert!(!arrives(&[check(), Step::Strip(1)]));
        assert!(!arrives(&[check(), check()]));
        // Of two versions, or with an annotation that only the longer address covers.
        assert!(arrives(&[Step::Strip(14), check_6()]) && !arrives(&[check_6(), check()]));
        assert!(!arrives(&[
            Step::Strip(12),
            matches(0, 0xffff_f000, 0x0800_4000),
            Step::Strip(2),
            check_6()
        ]));
        assert!(!arrives(&[Step::SetAnnotation { place: 15, value: 1 }, check_6()]));
        assert!(!arrives(&[Step::SetAnnotation { place: 3, value: 1 }]));
        // Two bytes of the annotations.
        let paint = |place| Step::SetAnnotation { place, value: 1 };
        assert!(arrives(&[paint(16), paint(16)]) && !arrives(&[paint(16), paint(17)]));
        assert!(!arrives(&[Step::DecrementTtl]));
    }

    #[test]
    fn what_fits_a_departure() {
        let tee = Step::AnnotationIsNot { place: 16, value: 1 };
        assert!(departs(&[
            Step::NotBroadcast,
            tee.clone(),
            Step::NoOptions,
            Step::SourceStays,
            Step::DecrementTtl
        ]));
        assert!(departs(&[Step::AtMost(1500), Step::Finish]));
        assert!(!departs(&[tee.clone(), tee.clone()]));
        assert!(!departs(&[Step::DecrementTtl, Step::DecrementTtl]));
        assert!(departs(&[
            tee,
            Step::MayLeaveLink,
            Step::DecrementHopLimit,
            Step::AtMost(1500),
            Step::Finish
        ]));
        assert!(!departs(&[Step::DecrementHopLimit, Step::DecrementTtl]));
        assert!(!departs(&[Step::NoOptions, Step::MayLeaveLink]));
        assert!(!departs(&[Step::Finish, Step::NotBroadcast]));
        assert!(!departs(&[Step::Strip(1)]));
    }
}
