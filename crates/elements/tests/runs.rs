//! Fused runs change nothing: the example router, once with runs and once without, gets the same packets, ordinary and
//! odd in any mix, and everything that can be seen of it is the same: what leaves, to the byte and in order, and all that
//! elements count and tell.

#![allow(clippy::unwrap_used, reason = "a test")]

use graph::testing::Bench;
use packet::checksum;
use proptest::prelude::*;
use proptest::sample::select;

/// The example router between test inputs and outputs instead of ports.
fn router() -> String {
    let text = include_str!("../../../examples/ip-router.click");
    let replaced = text
        .replace("FromDevice($port)", "from :: TestInput")
        .replace("to :: ToDevice($port)", "to :: TestOutput");
    assert_eq!(replaced.matches(":: Test").count(), 2, "the example is as this test knows it");
    replaced
}

/// What is odd about a packet.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Ordinary,
    Padded,
    ToLastNeighbour,
    Redirected,
    ToSilentNeighbour,
    ToOtherHost,
    LinkBroadcast,
    LinkMulticast,
    ArpRequest,
    ArpReply,
    Unsolicited,
    OtherEthertype,
    ShortFrame,
    Version6,
    ShortHeaderLength,
    TotalTooLong,
    TotalTooShort,
    BadChecksum,
    NoOptions,
    RecordRoute,
    BadOption,
    BadSource,
    SuspectSource,
    LastHop,
    NoTimeLeft,
    TooLong,
    TooLongNotToBeSplit,
    NoRoute,
    EchoToRouter,
    DatagramToRouter,
}

use Kind::*;

const ODD: &[Kind] = &[
    Padded,
    ToLastNeighbour,
    Redirected,
    ToSilentNeighbour,
    ToOtherHost,
    LinkBroadcast,
    LinkMulticast,
    ArpRequest,
    ArpReply,
    Unsolicited,
    OtherEthertype,
    ShortFrame,
    Version6,
    ShortHeaderLength,
    TotalTooLong,
    TotalTooShort,
    BadChecksum,
    NoOptions,
    RecordRoute,
    BadOption,
    BadSource,
    SuspectSource,
    LastHop,
    NoTimeLeft,
    TooLong,
    TooLongNotToBeSplit,
    NoRoute,
    EchoToRouter,
    DatagramToRouter,
];

fn mac(port: u8) -> [u8; 6] {
    [2, 0, 0, 0, port, 1]
}

/// The frame of a packet that comes in by `port`; `salt` makes it one of many.
fn frame(kind: Kind, port: u8, salt: u16) -> Vec<u8> {
    let [high, low] = salt.to_be_bytes();
    let other = (port + 1 + low % 3) % 4;
    let mut to = mac(port);
    let mut ethertype = [8, 0];
    let (mut source, mut destination) = ([10, 0, port, 2], [10, 0, other, 2]);
    let (mut options, mut payload, mut ttl, mut flags): (&[u8], _, _, _) =
        (&[], vec![high, low, 1, 2], 64, 0);
    let mut protocol = 17;
    match kind {
        ToLastNeighbour => destination[3] = 3,
        Redirected => destination = [10, 0, port, 2],
        ToSilentNeighbour => destination[3] = 100,
        ToOtherHost => to[5] = 7,
        LinkBroadcast => to = [0xff; 6],
        LinkMulticast => to[0] = 3,
        ArpRequest | ArpReply | Unsolicited => ethertype = [8, 6],
        OtherEthertype => ethertype = [0x86, 0xdd],
        NoOptions => options = &[1, 1, 1, 0],
        RecordRoute => options = &[7, 7, 4, 0, 0, 0, 0, 0],
        BadOption => options = &[7, 200, 4, 0],
        BadSource => source = [10, 0, port, 255],
        SuspectSource => source = [192, 0, 2, 255],
        LastHop => ttl = 1,
        NoTimeLeft => ttl = 0,
        TooLong => payload.resize(1600, high),
        TooLongNotToBeSplit => {
            payload.resize(1600, high);
            flags = 0x40;
        }
        NoRoute => destination = [198, 51, 100, low],
        EchoToRouter => {
            (protocol, destination) = (1, [10, 0, port, 1]);
            payload = vec![8, 0, 0, 0, high, low, 0, 1];
            let check = checksum::compute(&payload);
            payload[2..4].copy_from_slice(&check.to_be_bytes());
        }
        DatagramToRouter => destination = [10, 0, other, 1],
        _ => {}
    }
    let mut bytes = [&to[..], &[2, 0, 0, 0, port, 2], &ethertype].concat();
    if matches!(kind, ArpRequest | ArpReply | Unsolicited) {
        let operation = if matches!(kind, ArpRequest) { 1 } else { 2 };
        let host = if matches!(kind, ArpReply) { 100 } else { 200 + low % 8 };
        bytes.extend([0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, port, host, 10, 0, port, host]);
        bytes.extend(mac(port));
        bytes.extend([10, 0, port, 1]);
        bytes.resize(60, 0);
        return bytes;
    }
    let header_len = 20 + options.len();
    let total = (header_len + payload.len()) as u16;
    let mut header = vec![0x40 | (header_len / 4) as u8, 0];
    header.extend(total.to_be_bytes());
    header.extend([high, low, flags, 0, ttl, protocol, 0, 0]);
    header.extend(source);
    header.extend(destination);
    header.extend(options);
    match kind {
        Version6 => header[0] = 0x65,
        ShortHeaderLength => header[0] = 0x44,
        TotalTooLong => header[3] += 1,
        TotalTooShort => header[2..4].copy_from_slice(&[0, 19]),
        _ => {}
    }
    let check = checksum::ipv4_header_compute(&header);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    if matches!(kind, BadChecksum) {
        header[10 + usize::from(low % 2)] ^= 1 << (high % 8);
    }
    bytes.extend(header);
    bytes.extend(payload);
    match kind {
        Padded => bytes.resize(bytes.len() + 1 + usize::from(low % 30), high),
        ShortFrame => bytes.truncate(usize::from(low % 34)),
        _ => {}
    }
    bytes
}

/// Something that happens to the router.
#[derive(Clone, Debug)]
enum Event {
    /// Packets come in by a port, in one batch.
    Burst(u8, Vec<(Kind, u16)>),
    /// A handler is written on each element of a class.
    Write(&'static str, &'static str, &'static str),
    /// So many milliseconds pass.
    Wait(u16),
}

const WRITES: &[(&str, &str, &str)] = &[
    ("Paint", "color", "1"),
    ("Paint", "color", "9"),
    ("PaintTee", "color", "9"),
    ("PaintTee", "color", "2"),
    ("DecIPTTL", "active", "false"),
    ("DecIPTTL", "active", "true"),
    ("HostEtherFilter", "ether", "02:00:00:00:01:01"),
    ("HostEtherFilter", "ether", "02:00:00:00:00:01"),
    ("Classifier", "pattern0", "12/86dd"),
    ("Classifier", "pattern0", "12/0800"),
    ("ARPQuerier", "delete", "10.0.1.2"),
    ("ARPQuerier", "insert", "10.0.1.2 02:00:00:00:01:0a"),
    ("ARPQuerier", "clear", ""),
];

fn event() -> impl Strategy<Value = Event> {
    let ordinary = |count| proptest::collection::vec(any::<u16>().prop_map(|salt| (Ordinary, salt)), count);
    let mixed = proptest::collection::vec((select(ODD), any::<u16>()), 1..32);
    let one_odd = (ordinary(0..12), (select(ODD), any::<u16>()), ordinary(0..12));
    let burst = prop_oneof![
        4 => ordinary(1..32),
        4 => one_odd.prop_map(|(before, odd, after)| [before, vec![odd], after].concat()),
        1 => mixed,
    ];
    prop_oneof![
        12 => (0u8..4, burst).prop_map(|(port, packets)| Event::Burst(port, packets)),
        1 => select(WRITES).prop_map(|(class, handler, value)| Event::Write(class, handler, value)),
        1 => (1u16..5000).prop_map(Event::Wait),
    ]
}

fn bench(burst: usize, fused: bool) -> Bench {
    let mut bench = Bench::with_burst(&elements::registry(), &router(), burst);
    bench.graph().set_fused(fused);
    for port in 0..4 {
        for host in 2..4 {
            let entry = format!("10.0.{port}.{host} 02:00:00:00:0{port}:0{host}");
            bench.write(&format!("out{port}/arp.insert"), &entry).unwrap();
        }
    }
    bench
}

fn happen(bench: &mut Bench, event: &Event) {
    match event {
        Event::Burst(port, packets) => {
            let frames: Vec<_> = packets.iter().map(|&(kind, salt)| frame(kind, *port, salt)).collect();
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
    }
}

/// All packets that came out, and all that elements tell, but for cycles.
fn seen(bench: &mut Bench) -> Vec<String> {
    let mut seen = Vec::new();
    for port in 0..4 {
        for packet in bench.taken_packets(&format!("out{port}/to")) {
            let positions = (packet.link_offset(), packet.network_offset(), packet.transport_offset());
            let (kind, annotations) = (packet.packet_type(), packet.annotations().bytes());
            let bytes = packet.data();
            seen.push(format!("out{port}: {positions:?} {kind:?} {annotations:02x?} {bytes:02x?}"));
        }
    }
    let graph = bench.graph();
    for element in 0..graph.config().elements.len() {
        let name = graph.config().elements[element].name.clone();
        for handler in graph.handlers(element) {
            if handler.readable && !["cycles", "config", "ports", "memory", "check"].contains(&handler.name) {
                seen.push(format!(
                    "{name}.{}: {:?}",
                    handler.name,
                    graph.read(element, handler.name, "10.0.1.2")
                ));
            }
        }
        seen.push(format!("{name}: {:?}", graph.element_stats(element).drops));
    }
    seen.extend(bench.messages());
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn runs_change_nothing(
        events in proptest::collection::vec(event(), 1..16),
        burst in select(&[1usize, 3, 32][..]),
    ) {
        let (mut fused, mut plain) = (bench(burst, true), bench(burst, false));
        for event in &events {
            happen(&mut fused, event);
            happen(&mut plain, event);
            let (mut fused, mut plain) = (seen(&mut fused), seen(&mut plain));
            if matches!(event, Event::Wait(_)) {
                // Queries for several silent neighbours are repeated in no certain order.
                fused.sort();
                plain.sort();
            }
            let differences: Vec<_> =
                fused.iter().zip(&plain).filter(|(fused, plain)| fused != plain).take(3).collect();
            prop_assert!(fused == plain, "{event:?}: {} and {} lines; {differences:#?}", fused.len(), plain.len());
        }
    }
}

/// Each kind by itself, in the middle of ordinary packets, so that none is left to chance.
#[test]
fn every_oddity_alone() {
    for &odd in [Ordinary].iter().chain(ODD) {
        for salt in [0x0102, 0x0807, 0x7f21] {
            let packets = (0..9).map(|at| if at == 5 { (odd, salt) } else { (Ordinary, at) }).collect();
            let event = Event::Burst(1, packets);
            let (mut fused, mut plain) = (bench(32, true), bench(32, false));
            happen(&mut fused, &event);
            happen(&mut plain, &event);
            assert_eq!(seen(&mut fused), seen(&mut plain), "{odd:?} {salt:x}");
        }
    }
}
