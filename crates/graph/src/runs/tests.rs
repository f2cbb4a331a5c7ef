use std::any::Any;
use std::rc::Rc;

use packet::Batch;

use super::{Last, Ordinary, Shape, Sieve, Work};
use crate::testing::Bench;
use crate::{Class, Combine, Context, Element, Get, Handler, Put};

/// Sets the paint and takes bytes off. As an element it sets 100 more than as part of a run, so that a test sees which it
/// was.
struct Cut {
    colour: u8,
    bytes: usize,
}

static CUT: Class = Class {
    name: "Cut",
    processing: Class::PUSH,
    manual: "Cuts.",
    handlers: &[Handler::read_write(
        "colour",
        Combine::First,
        "The paint.",
        &Get(|e: &mut Cut| e.colour.to_string()),
        &Put(|e: &mut Cut, _, value| {
            e.colour = value.parse().map_err(|_| "no colour".to_owned())?;
            Ok(())
        }),
    )],
    make: |setup| {
        let bytes: u32 = setup.arguments.required("BYTES")?;
        setup.arguments.finish()?;
        Ok(Box::new(Cut { colour: 0, bytes: bytes as usize }))
    },
    ..Class::DEFAULT
};

impl Element for Cut {
    fn ordinary(&self) -> Option<Ordinary> {
        let shapes: &'static [Shape] = &[|| Box::new(Cuts { colour: 0, bytes: 0 })];
        Some(Ordinary { steps: Rc::new((self.colour, self.bytes)), shapes, output: 0 })
    }

    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            packet.annotations_mut().set_paint(self.colour + 100);
            packet.strip(self.bytes);
        }
    }
}

/// Several of them as one. A packet of which nothing would be left is odd.
struct Cuts {
    colour: u8,
    bytes: usize,
}

impl Work for Cuts {
    fn with(&self, steps: &dyn Any) -> Option<Box<dyn Work>> {
        let (colour, bytes) = steps.downcast_ref::<(u8, usize)>()?;
        Some(Box::new(Cuts { colour: *colour, bytes: self.bytes + bytes }))
    }

    fn apply(&mut self, _last: Last<'_>, sieve: &mut Sieve<'_>) {
        sieve.each(|packet| {
            let is_ordinary = packet.len() > self.bytes && packet.strip(self.bytes);
            if is_ordinary {
                packet.annotations_mut().set_paint(self.colour);
            }
            is_ordinary
        });
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
    for name in ["a", "b"] {
        let stats = bench.stats(name);
        assert_eq!((stats.packets, stats.batches), (2, 1), "{name}");
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

/// Odd packets take the way through the elements, behind those that were ordinary, wherever they stand in the batch.
#[test]
fn odd_packets_drop_out_and_the_others_go_on() {
    const SHORT: &[u8] = b"abcde";
    for (packets, expected) in [
        (&[LONG, SHORT, LONG, LONG, SHORT][..], &[(0, 15), (0, 15), (0, 15), (100, 0), (100, 0)][..]),
        (&[SHORT, LONG, SHORT], &[(0, 15), (100, 0), (100, 0)]),
        (&[SHORT, SHORT], &[(100, 0), (100, 0)]),
        (&[LONG, SHORT], &[(0, 15), (100, 0)]),
    ] {
        let mut bench = bench("in :: TestInput -> a :: Cut(2) -> b :: Cut(3) -> out :: TestOutput;");
        assert_eq!(seen(&mut bench, packets), expected);
        for name in ["a", "b"] {
            assert_eq!(bench.stats(name).packets, packets.len() as u64, "{name}");
        }
    }
}
