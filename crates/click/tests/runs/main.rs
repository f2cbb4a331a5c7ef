//! Fused runs change nothing: the example routers, once with runs and once without, get the same packets,
//! ordinary and odd in any mix, and everything that can be seen of them is the same: what leaves, to the byte, and all that
//! elements count and print. With a burst of one packet the order is the same too; else odd packets leave behind the ordinary
//! ones of their batch. Nor does it change anything that somebody watches packets on some connections.

#![allow(clippy::unwrap_used, reason = "a test")]

mod ipv4;
mod ipv6;

use std::fmt::Debug;

use graph::context::{Edge, Observer, Place, Watched};
use graph::testing::Bench;
use packet::Packet;
use proptest::prelude::*;
use proptest::sample::select;

use ipv4::Ipv4;
use ipv6::Ipv6;

/// A class, one of its handlers, and what is written to it.
type Write = (&'static str, &'static str, &'static str);

/// An example router and what comes to it.
trait Traffic {
    /// What is odd about a packet.
    type Kind: Copy + Debug + 'static;
    /// The configuration.
    const EXAMPLE: &'static str;
    const PORTS: u8;
    const ORDINARY: Self::Kind;
    const ODD: &'static [Self::Kind];
    /// What may be written while it runs.
    const WRITES: &'static [Write];

    /// The frame of a packet that comes in by `port`; `salt` makes it one of many.
    fn frame(kind: Self::Kind, port: u8, salt: u16) -> Vec<u8>;

    /// Tells a new router its neighbours.
    fn prepare(bench: &mut Bench);
}

/// How packets take their way.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Each element by itself.
    Plain,
    /// Over runs.
    Fused,
    /// Over runs, and over lookups at once where that is possible, since the ports look at data alone.
    Crossing,
}

/// The example router between test inputs and outputs instead of ports.
fn router<T: Traffic>(way: Way) -> String {
    let data_alone = way == Way::Crossing;
    let replaced = T::EXAMPLE
        .replace("FromDevice($port)", "from :: TestInput")
        .replace("to :: ToDevice($port)", &format!("to :: TestOutput(DATA {data_alone})"));
    assert_eq!(replaced.matches(":: Test").count(), 2, "the example is as this test knows it");
    replaced
}

/// Something that happens to the router.
#[derive(Clone, Debug)]
enum Event<K> {
    /// Packets come in by a port, in one batch.
    Burst(u8, Vec<(K, u16)>),
    /// A handler is written on each element of a class.
    Write(&'static str, &'static str, &'static str),
    /// So many milliseconds pass.
    Wait(u16),
    /// The packets on connections drawn with this number are watched, where runs are; on all connections with 0.
    Watch(u64),
    /// They are watched no longer.
    Unwatch,
}

/// Looks at packets.
struct Looks(u64);

impl Observer for Looks {
    fn see(&mut self, _place: Place, _now_ns: u64, packets: &[Packet]) {
        self.0 += packets.iter().map(|packet| packet.data().len() as u64).sum::<u64>();
    }
}

/// Watches about a quarter of the connections, or all.
fn watch(bench: &mut Bench, drawn: u64) {
    let config = bench.graph().config().clone();
    let mut random = packet::random::SplitMix64::new(drawn);
    let is_drawn = |_: &Edge| drawn == 0 || random.next_u64().is_multiple_of(4);
    let all = config.connections.iter().map(|connection| Edge { from: connection.from, to: connection.to });
    let edges = all.filter(is_drawn).collect();
    bench.graph().watch(drawn, Watched { edges, drops: true }, Box::new(Looks(0)));
}

fn event<T: Traffic>() -> impl Strategy<Value = Event<T::Kind>> {
    let ordinary =
        |count| proptest::collection::vec(any::<u16>().prop_map(|salt| (T::ORDINARY, salt)), count);
    let mixed = proptest::collection::vec((select(T::ODD), any::<u16>()), 1..32);
    let one_odd = (ordinary(0..12), (select(T::ODD), any::<u16>()), ordinary(0..12));
    let burst = prop_oneof![
        4 => ordinary(1..32),
        4 => one_odd.prop_map(|(before, odd, after)| [before, vec![odd], after].concat()),
        1 => mixed,
    ];
    prop_oneof![
        12 => (0..T::PORTS, burst).prop_map(|(port, packets)| Event::Burst(port, packets)),
        1 => select(T::WRITES).prop_map(|(class, handler, value)| Event::Write(class, handler, value)),
        1 => (1u16..5000).prop_map(Event::Wait),
        2 => (0u64..8).prop_map(Event::Watch),
        1 => Just(Event::Unwatch),
    ]
}

fn bench<T: Traffic>(burst: usize, way: Way) -> Bench {
    let mut bench = Bench::with_burst(&click::registry(), &router::<T>(way), burst);
    bench.graph().set_fused(way != Way::Plain);
    T::prepare(&mut bench);
    bench
}

fn happen<T: Traffic>(bench: &mut Bench, event: &Event<T::Kind>, way: Way) {
    match event {
        Event::Burst(port, packets) => {
            let frames: Vec<_> = packets.iter().map(|&(kind, salt)| T::frame(kind, *port, salt)).collect();
            let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
            bench.push(&format!("in{port}/from"), &frames);
        }
        Event::Write(class, handler, value) => {
            let config = bench.graph().config().clone();
            for element in config.elements.iter().filter(|element| element.class == *class) {
                bench.write(&format!("{}.{handler}", element.name), value).unwrap();
            }
        }
        Event::Wait(milliseconds) => bench.advance_ns(u64::from(*milliseconds) * 1_000_000),
        Event::Watch(drawn) if way != Way::Plain => watch(bench, *drawn),
        Event::Unwatch => (0..8).for_each(|drawn| bench.graph().unwatch(drawn)),
        Event::Watch(_) => {}
    }
}

/// A frame without what says in which order IPv4 ICMP errors were made: their identification, and with it the checksum.
fn without_order(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if frame.len() > 34
        && frame[12..15] == [8, 0, 0x45]
        && frame[23] == 1
        && [3, 5, 11, 12].contains(&frame[34])
    {
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    frame
}

/// All packets that came out, and all that elements tell, but for cycles. Without `in_order` nothing depends on the order. Of
/// packets that have crossed a lookup only the data count.
fn seen<T: Traffic>(bench: &mut Bench, in_order: bool, data_alone: bool) -> Vec<String> {
    let mut seen = Vec::new();
    for port in 0..T::PORTS {
        for packet in bench.taken_packets(&format!("out{port}/to")) {
            let positions = (packet.link_offset(), packet.network_offset(), packet.transport_offset());
            let (kind, annotations) = (packet.packet_type(), packet.annotations().bytes());
            let bytes = if in_order { packet.data().to_vec() } else { without_order(packet.data()) };
            if data_alone {
                seen.push(format!("out{port}: {bytes:02x?}"));
                continue;
            }
            seen.push(format!("out{port}: {positions:?} {kind:?} {annotations:02x?} {bytes:02x?}"));
        }
    }
    let graph = bench.graph();
    for element in 0..graph.config().elements.len() {
        let name = graph.config().elements[element].name.clone();
        for (handler, _) in graph.handlers(element).into_iter().filter(|(_, handler)| handler.is_readable()) {
            if !["batches", "cycles", "config", "ports", "memory", "check"].contains(&handler.as_str()) {
                seen.push(format!("{name}.{handler}: {:?}", graph.read(element, &handler, "10.0.1.2")));
            }
        }
        // They stand in the order of their first packets, which may be another within a burst.
        let mut drops = graph.element_stats(element).drops;
        drops.sort();
        seen.push(format!("{name}: {drops:?}"));
    }
    seen.extend(bench.messages());
    seen
}

/// The same events for all ways, with bursts of some size; panics where a difference is seen.
fn compare<T: Traffic>(events: &[Event<T::Kind>], burst: usize) {
    for way in [Way::Fused, Way::Crossing] {
        let (mut fused, mut plain) = (bench::<T>(burst, way), bench::<T>(burst, Way::Plain));
        for event in events {
            happen::<T>(&mut fused, event, way);
            happen::<T>(&mut plain, event, Way::Plain);
            // Queries for several silent neighbours are repeated in no certain order.
            let in_order = burst == 1 && !matches!(event, Event::Wait(_));
            let data_alone = way == Way::Crossing;
            let seen = |bench: &mut Bench| {
                let mut seen = seen::<T>(bench, in_order, data_alone);
                if !in_order {
                    seen.sort();
                }
                seen
            };
            let (fused, plain) = (seen(&mut fused), seen(&mut plain));
            let differences: Vec<_> =
                fused.iter().zip(&plain).filter(|(fused, plain)| fused != plain).take(3).collect();
            assert!(fused == plain, "{event:?}: {} and {} lines; {differences:#?}", fused.len(), plain.len());
        }
    }
}

/// Each kind by itself, in the middle of ordinary packets, so that none is left to chance.
fn compare_each_alone<T: Traffic>() {
    for &odd in [T::ORDINARY].iter().chain(T::ODD) {
        for salt in [0x0102, 0x0807, 0x7f21] {
            let packets = (0..9).map(|at| if at == 5 { (odd, salt) } else { (T::ORDINARY, at) }).collect();
            compare::<T>(&[Event::Burst(1, packets)], 32);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn runs_change_nothing(
        events in proptest::collection::vec(event::<Ipv4>(), 1..16),
        burst in select(&[1usize, 3, 32][..]),
    ) {
        compare::<Ipv4>(&events, burst);
    }

    #[test]
    fn ipv6_runs_change_nothing(
        events in proptest::collection::vec(event::<Ipv6>(), 1..16),
        burst in select(&[1usize, 3, 32][..]),
    ) {
        compare::<Ipv6>(&events, burst);
    }
}

#[test]
fn every_oddity_alone() {
    compare_each_alone::<Ipv4>();
}

#[test]
fn every_ipv6_oddity_alone() {
    compare_each_alone::<Ipv6>();
}
