//! Taps: who wants to see the packets on some connections, or those that are dropped, for as long as it wants to.
//!
//! A tap is an element in a slot of its own behind those of the configuration. The connection leads into it, and out of it to
//! where it led before, so the machine has no test for taps and a graph without any is as it was. Fused runs are found anew, and
//! end where a tap is. All this happens between batches, when no packet is on its way.
//!
//! Several may watch one connection: taps are always taken out together and made again for those who are left.

use packet::{Batch, Packet};

use super::{Context, End, Slot};
use crate::element::Element;

/// A connection, by the numbers of its elements in the configuration and of their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The element and its output.
    pub from: (usize, usize),
    /// The element and its input.
    pub to: (usize, usize),
}

/// Where packets were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the connection of this number among those that were asked for. The packets go on.
    Edge(usize),
    /// In this element, which drops them.
    Drop {
        /// The number of the element in the configuration.
        element: usize,
        /// The reason, as statistics count it.
        reason: &'static str,
    },
}

/// Sees packets. It runs on the thread that moves them, so it is quick and never waits.
pub trait Observer: Send {
    /// Sees packets at a place. The time is that of the turn, in nanoseconds since 1970.
    fn see(&mut self, place: Place, now_ns: u64, packets: &[Packet]);
}

/// What somebody wants to see.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// These connections. Those that a copy of the graph does not have are passed over.
    pub edges: Vec<Edge>,
    /// Packets that elements drop.
    pub drops: bool,
}

/// One who watches.
struct Watch {
    number: u64,
    watched: Watched,
    observer: Box<dyn Observer>,
}

/// A connection as the configuration has it.
struct Original {
    slot: u32,
    port: u32,
    is_output: bool,
    end: End,
}

/// All who watch, and what it takes to undo their taps.
#[derive(Default)]
pub(super) struct Taps {
    watches: Vec<Watch>,
    originals: Vec<Original>,
}

impl Taps {
    /// Shows packets to those who watch a connection: the numbers of the watch, and of the connection in it.
    fn show(&mut self, listeners: &[(usize, usize)], now_ns: u64, packets: &[Packet]) {
        for &(watch, edge) in listeners {
            if let Some(watch) = self.watches.get_mut(watch) {
                watch.observer.see(Place::Edge(edge), now_ns, packets);
            }
        }
    }
}

/// An element that shows packets and leaves them as they are.
struct Tap {
    listeners: Vec<(usize, usize)>,
    /// Whether the element behind it does so.
    takes_data_alone: bool,
}

impl Element for Tap {
    fn takes_data_alone(&self) -> bool {
        self.takes_data_alone
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let now_ns = cx.now_ns();
        if let Some(taps) = &mut cx.taps {
            taps.show(&self.listeners, now_ns, batch.packets());
        }
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        cx.pull_into(0, batch, max);
        if !batch.is_empty() {
            self.process(cx, batch);
        }
    }
}

impl Context {
    /// Has `observer` see packets from now on, until [`Context::unwatch`] with this number.
    pub(crate) fn watch(&mut self, number: u64, watched: Watched, observer: Box<dyn Observer>) {
        self.take_taps_out();
        self.taps.get_or_insert_default().watches.push(Watch { number, watched, observer });
        self.put_taps_in();
    }

    /// Ends what began with this number, if it has not ended.
    pub(crate) fn unwatch(&mut self, number: u64) {
        self.keep_watches(|watch| watch.number != number);
    }

    /// Ends all: another configuration takes the place of this one.
    pub(crate) fn unwatch_all(&mut self) {
        self.keep_watches(|_| false);
    }

    fn keep_watches(&mut self, keep: impl Fn(&Watch) -> bool) {
        if self.taps.as_ref().is_none_or(|taps| taps.watches.iter().all(&keep)) {
            return;
        }
        self.take_taps_out();
        if let Some(taps) = &mut self.taps {
            taps.watches.retain(keep);
        }
        self.put_taps_in();
    }

    /// Has all connections lead where the configuration has them.
    fn take_taps_out(&mut self) {
        let Some(taps) = &mut self.taps else { return };
        for original in taps.originals.drain(..) {
            let slot = &mut self.slots[original.slot as usize];
            let ends = if original.is_output { &mut slot.outputs } else { &mut slot.inputs };
            ends[original.port as usize] = Some(original.end);
        }
        self.slots.truncate(self.config().elements.len());
    }

    /// Puts a tap into each connection that somebody watches, and finds runs anew.
    fn put_taps_in(&mut self) {
        if let Some(mut taps) = self.taps.take() {
            let mut edges: Vec<Edge> = Vec::new();
            let mut listeners: Vec<Vec<(usize, usize)>> = Vec::new();
            for (number, watch) in taps.watches.iter().enumerate() {
                for (place, edge) in watch.watched.edges.iter().enumerate() {
                    match edges.iter().position(|known| known == edge) {
                        Some(known) => listeners[known].push((number, place)),
                        None => {
                            edges.push(*edge);
                            listeners.push(vec![(number, place)]);
                        }
                    }
                }
            }
            for (edge, listeners) in edges.into_iter().zip(listeners) {
                taps.originals.extend(self.put_tap_in(edge, listeners));
            }
            self.taps = (!taps.watches.is_empty()).then_some(taps);
        }
        self.find_runs(self.is_fused());
    }

    /// Puts a tap into a connection, and returns what that was before. `None` where this copy does not have it.
    fn put_tap_in(&mut self, edge: Edge, listeners: Vec<(usize, usize)>) -> Option<Original> {
        let end = |(element, port): (usize, usize)| End { element: element as u32, port: port as u32 };
        let tap = End { element: self.slots.len() as u32, port: 0 };
        let to = self.slots.get(edge.to.0)?;
        let takes_data_alone = to.element.as_ref().is_some_and(|element| element.takes_data_alone());
        let pushed = self.slots.get(edge.from.0)?.outputs.get(edge.from.1)?.filter(|&to| to == end(edge.to));
        let pulled = to.inputs.get(edge.to.1).copied().flatten();
        let (at, is_output, before) = match (pushed, pulled) {
            (Some(to), _) => (end(edge.from), true, to),
            (None, Some(from)) => (end(edge.to), false, from),
            (None, None) => return None,
        };
        let slot = &mut self.slots[at.element as usize];
        let ends = if is_output { &mut slot.outputs } else { &mut slot.inputs };
        ends[at.port as usize] = Some(tap);
        let element: Box<dyn Element> = Box::new(Tap { listeners, takes_data_alone });
        let mut slot = Slot::new(Some(element), &[], 1, 1);
        let ends = if is_output { &mut slot.outputs } else { &mut slot.inputs };
        ends[0] = Some(before);
        self.slots.push(slot);
        Some(Original { slot: at.element, port: at.port, is_output, end: before })
    }

    /// Shows packets that the element at work drops.
    #[cold]
    #[inline(never)]
    pub(super) fn show_dropped(&mut self, reason: &'static str, packets: &[Packet]) {
        let (place, now_ns) = (Place::Drop { element: self.current as usize, reason }, self.now_ns());
        let watches = self.taps.iter_mut().flat_map(|taps| &mut taps.watches);
        for watch in watches.filter(|watch| watch.watched.drops) {
            watch.observer.see(place, now_ns, packets);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use packet::sync::lock;

    use super::*;
    use crate::element::Class;
    use crate::runs::tests::{LONG, bench};
    use crate::testing::Bench;

    /// What was seen: the place, the length of each packet, its paint.
    type Seen = Arc<Mutex<Vec<(Place, Vec<usize>, u8)>>>;

    /// An element and a port of it.
    type At = (&'static str, usize);

    struct Keeps(Seen);

    impl Observer for Keeps {
        fn see(&mut self, place: Place, _now_ns: u64, packets: &[Packet]) {
            let paint = packets.first().map_or(0, |packet| packet.annotations().paint());
            lock(&self.0).push((place, packets.iter().map(Packet::len).collect(), paint));
        }
    }

    fn edge(bench: &mut Bench, from: At, to: At) -> Edge {
        let mut find = |name: &str| bench.graph().config().find(name).unwrap();
        Edge { from: (find(from.0), from.1), to: (find(to.0), to.1) }
    }

    fn watch(bench: &mut Bench, number: u64, edges: &[(At, At)], drops: bool) -> Seen {
        let seen = Seen::default();
        let edges = edges.iter().map(|&(from, to)| edge(bench, from, to)).collect();
        bench.graph().watch(number, Watched { edges, drops }, Box::new(Keeps(seen.clone())));
        seen
    }

    /// Pushes a packet into `in`. Cuts paint 100 where they are not part of a run, and 0 where they are.
    fn paint_at_the_end(bench: &mut Bench) -> u8 {
        bench.push("in", &[LONG]);
        let packets = bench.taken_packets("out");
        assert_eq!(packets.len(), 1);
        packets[0].annotations().paint()
    }

    const ROW: &str =
        "in :: TestInput -> a :: Cut(2) -> b :: Cut(3) -> c :: Cut(1) -> d :: Cut(1) -> out :: TestOutput;";

    #[test]
    fn a_run_breaks_where_a_tap_is_and_is_whole_again_behind_it() {
        let mut bench = bench(ROW);
        let seen = watch(&mut bench, 1, &[(("b", 0), ("c", 0))], false);
        // Both halves are runs still.
        assert_eq!(paint_at_the_end(&mut bench), 0);
        assert_eq!(*lock(&seen), [(Place::Edge(0), vec![15], 0)]);
        // An element alone is not a run: a is one, and the other three are a run.
        let other = watch(&mut bench, 2, &[(("a", 0), ("b", 0))], false);
        bench.push("in", &[LONG]);
        assert_eq!(*lock(&other), [(Place::Edge(0), vec![18], 100)]);
        assert_eq!(lock(&seen).len(), 2);
        bench.graph().unwatch(1);
        bench.graph().unwatch(2);
        bench.taken_packets("out");
        assert_eq!(paint_at_the_end(&mut bench), 0);
        assert_eq!((lock(&seen).len(), lock(&other).len()), (2, 1));
        assert_eq!((Arc::strong_count(&seen), Arc::strong_count(&other)), (1, 1), "observers are gone");
        for name in ["a", "b", "c", "d", "out"] {
            assert_eq!(bench.stats(name).packets, 3, "{name}");
        }
    }

    #[test]
    fn several_see_the_same_connection_and_one_may_end() {
        let mut bench = bench(ROW);
        let between: &[_] = &[(("b", 0), ("c", 0)), (("in", 0), ("a", 0))];
        let first = watch(&mut bench, 1, between, false);
        let second = watch(&mut bench, 2, &between[..1], false);
        paint_at_the_end(&mut bench);
        bench.graph().unwatch(1);
        // One that is not there.
        bench.graph().unwatch(7);
        paint_at_the_end(&mut bench);
        assert_eq!(*lock(&first), [(Place::Edge(1), vec![20], 0), (Place::Edge(0), vec![15], 0)]);
        assert_eq!(*lock(&second), [(Place::Edge(0), vec![15], 0), (Place::Edge(0), vec![15], 0)]);
    }

    #[test]
    fn dropped_packets_are_seen_with_their_reason() {
        let mut bench = bench(
            "in :: TestInput -> f :: Fork; f[0] -> out :: TestOutput; f[1] -> Idle :: Pass -> two :: TestOutput;",
        );
        let seen = watch(&mut bench, 1, &[], true);
        bench.push("in", &[b"abc", b"xy", b"b"]);
        let element = bench.graph().config().find("f").unwrap();
        let drops = bench.stats("f").drops;
        let reason = drops[0].0;
        assert_eq!(drops, [(reason, 1)]);
        assert_eq!(*lock(&seen), [(Place::Drop { element, reason }, vec![2], 0)]);
    }

    /// Gives a packet of three bytes whenever it is asked.
    struct Gives;

    static GIVES: Class = Class {
        name: "Gives",
        ports: "0/1",
        processing: Class::PULL,
        make: |setup| setup.arguments.finish().map(|()| Box::new(Gives) as Box<dyn Element>),
        ..Class::DEFAULT
    };

    impl Element for Gives {
        fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, _max: usize) {
            let mut packet = cx.allocate().unwrap();
            assert!(packet.set_data(b"abc"));
            batch.push(packet);
        }
    }

    /// Is asked by the test to pull.
    struct Takes;

    static TAKES: Class = Class {
        name: "Takes",
        ports: "1/0",
        processing: Class::PULL,
        make: |setup| setup.arguments.finish().map(|()| Box::new(Takes) as Box<dyn Element>),
        ..Class::DEFAULT
    };

    impl Element for Takes {}

    #[test]
    fn pulled_packets_are_seen_and_counted_as_before() {
        let mut registry = crate::graph::Registry::new();
        registry.add(&[&GIVES, &TAKES]);
        let mut bench = Bench::new(&registry, "g :: Gives -> t :: Takes;");
        let pull = |bench: &mut Bench| {
            let index = bench.graph().config().find("t").unwrap();
            bench.graph().enter(index, |_, cx| {
                let mut batch = cx.spare_batch();
                cx.pull(0, &mut batch, 8);
                let count = batch.len();
                cx.recycle(batch);
                count
            })
        };
        assert_eq!(pull(&mut bench), Some(1));
        let seen = watch(&mut bench, 1, &[(("g", 0), ("t", 0))], false);
        assert_eq!(pull(&mut bench), Some(1));
        bench.graph().unwatch(1);
        assert_eq!(pull(&mut bench), Some(1));
        assert_eq!(*lock(&seen), [(Place::Edge(0), vec![3], 0)]);
        assert_eq!((bench.stats("g").packets, bench.stats("t").packets), (3, 3));
    }

    #[test]
    fn connections_that_are_not_there_are_passed_over() {
        let mut bench = bench("in :: TestInput -> out :: TestOutput; i :: TestInput -> o :: TestOutput;");
        let none = [(("i", 0), ("out", 0)), (("i", 3), ("o", 9)), (("o", 0), ("in", 0))];
        let seen = watch(&mut bench, 1, &none, false);
        paint_at_the_end(&mut bench);
        assert!(lock(&seen).is_empty());
    }

    #[test]
    fn what_steps_cost_is_measured_beside_taps() {
        let mut bench = bench(ROW);
        watch(&mut bench, 1, &[(("b", 0), ("c", 0))], false);
        bench.graph().begin_cost(false, None);
        paint_at_the_end(&mut bench);
        let cost = bench.graph().end_cost().unwrap();
        let count = bench.graph().config().elements.len();
        assert!(cost.steps.iter().flat_map(|step| &step.elements).all(|&element| element < count));
        assert_eq!(bench.graph().stats().len(), count);
    }
}
