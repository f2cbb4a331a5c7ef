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

/// Leaves packets as they are.
struct Pass;

static PASS: Class = Class {
    name: "Pass",
    processing: Class::PUSH,
    manual: "Passes.",
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Pass))
    },
    ..Class::DEFAULT
};

impl Element for Pass {
    fn process(&mut self, _cx: &mut Context, _batch: &mut Batch) {}
}

pub(crate) fn bench(config: &str) -> Bench {
    let mut registry = crate::graph::Registry::new();
    registry.add(&[&CUT, &FORK, &PASS]);
    Bench::new(&registry, config)
}

pub(crate) const LONG: &[u8] = b"0123456789abcdefghij";

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
fn a_run_is_found_behind_elements_that_begin_none() {
    let mut bench = bench("in :: TestInput -> p :: Pass -> a :: Cut(2) -> b :: Cut(3) -> out :: TestOutput;");
    assert_eq!(seen(&mut bench, &[LONG, LONG]), [(0, 15), (0, 15)]);
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

/// Odd packets take the way through the elements, behind those that were ordinary, wherever they stand in the batch. Both keep
/// their order, which lengths show here.
#[test]
fn odd_packets_drop_out_and_the_others_go_on() {
    let (odd, odder) = (&b"abcde"[..], &b"abcd"[..]);
    for (packets, expected) in [
        (
            &[LONG, odd, &LONG[1..], &LONG[2..], odder][..],
            &[(0, 15), (0, 14), (0, 13), (100, 0), (100, 2)][..],
        ),
        (&[odder, LONG, odd, &LONG[1..]], &[(0, 15), (0, 14), (100, 2), (100, 0)]),
        (&[odd, odder], &[(100, 0), (100, 2)]),
        (&[LONG, odd], &[(0, 15), (100, 0)]),
    ] {
        let mut bench = bench("in :: TestInput -> a :: Cut(2) -> b :: Cut(3) -> out :: TestOutput;");
        assert_eq!(seen(&mut bench, packets), expected);
        for name in ["a", "b"] {
            assert_eq!(bench.stats(name).packets, packets.len() as u64, "{name}");
        }
    }
}

/// Sends packets that begin with 'a' out by output 0, with 'b' by output 1, and drops the others.
struct Fork;

static FORK: Class = Class {
    name: "Fork",
    ports: "1/2",
    processing: Class::PUSH,
    make: |setup| setup.arguments.finish().map(|()| Box::new(Fork) as Box<dyn Element>),
    ..Class::DEFAULT
};

/// A fork and cuts behind it as one, for packets that begin with this byte: so many bytes are taken off.
struct Begins(u8, usize);

impl Fork {
    fn kind(first: u8, output: usize) -> Option<Ordinary> {
        let shapes: &'static [Shape] = &[|| Box::new(Begins(0, 0))];
        Some(Ordinary { steps: Rc::new(first), shapes, output })
    }
}

impl Element for Fork {
    fn ordinary(&self) -> Option<Ordinary> {
        Self::kind(b'a', 0)
    }

    fn ordinary_else(&self) -> Option<Ordinary> {
        Self::kind(b'b', 1)
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        cx.classify(batch, |packet| match packet.data().first() {
            Some(b'a') => Ok(0),
            Some(b'b') => Ok(1),
            _ => Err("neither"),
        });
    }
}

impl Work for Begins {
    fn with(&self, steps: &dyn Any) -> Option<Box<dyn Work>> {
        if let Some(first) = steps.downcast_ref() {
            return Some(Box::new(Begins(*first, self.1)));
        }
        let (_, bytes) = steps.downcast_ref::<(u8, usize)>()?;
        Some(Box::new(Begins(self.0, self.1 + bytes)))
    }

    fn apply(&mut self, _last: Last<'_>, sieve: &mut Sieve<'_>) {
        sieve.each(|packet| packet.data().first() == Some(&self.0) && packet.strip(self.1));
    }
}

/// Of a batch of both kinds and others each kind takes its run, whichever stands in front.
#[test]
fn each_kind_of_packet_takes_its_run() {
    let (a, b, other) = (&b"a12345"[..], &b"b12345"[..], &b"x12345"[..]);
    for packets in [[a, b, b, other, a], [b, a, other, a, b], [other, a, b, a, b]] {
        let mut bench = bench(
            "in :: TestInput -> f :: Fork -> c :: Cut(2) -> out :: TestOutput; f[1] -> d :: Cut(3) -> more :: TestOutput;",
        );
        bench.push("in", &packets);
        for (output, length) in [("out", 4), ("more", 3)] {
            let taken = bench.taken_packets(output);
            // Cut paints 100 where it works as an element.
            let seen: Vec<_> =
                taken.iter().map(|packet| (packet.annotations().paint(), packet.len())).collect();
            assert_eq!(seen, [(0, length); 2], "{packets:?}");
        }
        assert_eq!(bench.drops("f", "neither"), 1);
        assert_eq!((bench.stats("f").packets, bench.stats("c").packets), (5, 2));
    }
}

/// Sends three packets whenever a millisecond has passed.
static EVERY_MILLISECOND: Class = Class {
    name: "EveryMillisecond",
    ports: "0/1",
    processing: Class::PUSH,
    manual: "Sends.",
    make: |_| Ok(Box::new(EveryMillisecond)),
    ..Class::DEFAULT
};

struct EveryMillisecond;

impl Element for EveryMillisecond {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.set_timer(0, cx.now_ns() + 1_000_000);
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        for _ in 0..3 {
            let mut packet = cx.allocate().unwrap();
            packet.set_data(b"1234567");
            cx.emit(0, packet);
        }
        cx.set_timer(0, cx.now_ns() + 1_000_000);
    }
}

/// The names of each step's elements, its packets and batches, in a copy whose elements are `in`, `a`, `b`, `out`. Each packet
/// was timed and took its time.
fn steps(bench: &mut Bench) -> Option<Vec<(String, u64, u64)>> {
    let cost = bench.graph().end_cost()?;
    let config = bench.graph().config().clone();
    let rows = cost.steps.iter().map(|step| {
        assert!(step.cycles > 0 && step.cycles <= cost.cycles, "{cost:?}");
        assert_eq!(step.timed_packets, step.packets);
        let names: Vec<&str> =
            step.elements.iter().map(|&element| config.elements[element].name.as_str()).collect();
        (names.join(" "), step.packets, step.batches)
    });
    Some(rows.collect())
}

#[test]
fn what_steps_cost_is_counted_by_run_or_by_element_as_asked() {
    let mut registry = crate::graph::Registry::new();
    registry.add(&[&CUT, &EVERY_MILLISECOND]);
    let config = "in :: EveryMillisecond -> a :: Cut(1) -> b :: Cut(1) -> out :: TestOutput";
    let mut bench = Bench::new(&registry, config);
    bench.advance_ns(10_000_000);
    assert_eq!(bench.graph().end_cost(), None);
    let of = |name: &str, batches: u64| (name.to_owned(), 3 * batches, batches);

    bench.graph().begin_cost(false, None);
    bench.advance_ns(20_000_000);
    assert_eq!(steps(&mut bench), Some(vec![of("a b", 20), of("in", 20), of("out", 20)]));

    bench.graph().begin_cost(true, None);
    bench.advance_ns(5_000_000);
    assert_eq!(steps(&mut bench), Some(vec![of("in", 5), of("a", 5), of("b", 5), of("out", 5)]));

    // The run is there again.
    bench.taken_packets("out");
    bench.advance_ns(1_000_000);
    assert!(bench.taken_packets("out").iter().all(|packet| packet.annotations().paint() == 0));
    assert_eq!(bench.graph().end_cost(), None);
}

#[test]
fn what_steps_cost_is_not_known_once_they_are_others() {
    let mut registry = crate::graph::Registry::new();
    registry.add(&[&CUT, &EVERY_MILLISECOND]);
    let config = "in :: EveryMillisecond -> a :: Cut(1) -> b :: Cut(1) -> out :: TestOutput";
    let mut bench = Bench::new(&registry, config);
    for unfused in [false, true] {
        bench.graph().begin_cost(unfused, None);
        bench.advance_ns(1_000_000);
        bench.write("a.colour", if unfused { "1" } else { "2" }).unwrap();
        bench.advance_ns(1_000_000);
        assert_eq!(bench.graph().end_cost(), None);
        bench.graph().begin_cost(false, None);
        bench.advance_ns(1_000_000);
        let names = steps(&mut bench).unwrap().into_iter().map(|(name, ..)| name).collect::<Vec<_>>();
        // The colours differ, but they are part of the steps.
        assert_eq!(names, ["a b", "in", "out"]);
    }
}

#[test]
fn misses_are_counted_by_step() {
    let mut registry = crate::graph::Registry::new();
    registry.add(&[&CUT, &EVERY_MILLISECOND]);
    let config = "in :: EveryMillisecond -> a :: Cut(1) -> b :: Cut(1) -> out :: TestOutput";
    let mut bench = Bench::new(&registry, config);
    // Every look finds one miss more of the cache, and two of branches.
    let mut looks = 0;
    let misses = move || {
        looks += 1;
        [looks, 2 * looks]
    };
    bench.graph().begin_cost(false, Some(Box::new(misses)));
    bench.advance_ns(4_000_000);
    let cost = bench.graph().end_cost().unwrap();
    let misses: Vec<_> = cost.steps.iter().map(|step| step.misses).collect();
    assert_eq!(misses, vec![Some([4, 8]); 3]);
    assert_eq!(cost.steps[0].per_packet(4), Some(1.0 / 3.0));
}
