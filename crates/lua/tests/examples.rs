//! The scripts of `examples/lua`, each with the traffic that it is for.

#![allow(clippy::unwrap_used, reason = "tests")]

use graph::testing::Bench;
use testbed::ipv4::ipv4;

const INSIDE: [u8; 4] = [10, 0, 0, 1];
const OUTSIDE: [u8; 4] = [198, 51, 100, 9];
const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;

/// A bench around an example; as many inputs as outputs.
fn bench(name: &str, args: &str, inputs: usize, outputs: usize) -> Bench {
    let mut registry = elements::registry();
    registry.add(lua::CLASSES);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lua");
    Bench::element(&registry, &format!("Lua(FILE {folder}/{name}.lua, ARGS \"{args}\")"), inputs, outputs)
}

fn frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], packet].concat()
}

/// A frame of UDP from and to an address and port.
fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let ports = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    let length = (8 + payload.len() as u16).to_be_bytes();
    frame(&ipv4(from.0, to.0, 17, &[&ports[..], &length, &[0, 0], payload].concat()))
}

/// A frame of TCP with flags.
fn tcp(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u8) -> Vec<u8> {
    let ports = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    let rest = [0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0];
    frame(&ipv4(from.0, to.0, 6, &[&ports[..], &rest].concat()))
}

/// A frame of which the IP header says that it is a later fragment.
fn fragment(mut frame: Vec<u8>) -> Vec<u8> {
    frame[14 + 7] = 10;
    frame
}

/// Pushes a frame into an input; returns the output that it left by.
fn way(bench: &mut Bench, input: usize, frame: &[u8]) -> Option<usize> {
    bench.push(&format!("in{input}"), &[frame]);
    assert_eq!(bench.read("e.errors"), "0", "{:?}", bench.messages());
    let outputs = bench.graph().config().find("e").map_or(0, |e| bench.graph().config().elements[e].outputs);
    (0..outputs).find(|output| bench.taken(&format!("out{output}")) == [frame])
}

/// No SYN to a port passes, however it is wrapped; ARP does.
fn assert_ways_round(bench: &mut Bench, input: usize, from: ([u8; 4], u16), port: u16) {
    let syn = tcp(from, (INSIDE, port), SYN);
    let tagged = |tags: &[u8]| [&syn[..12], tags, &syn[12..]].concat();
    let mut short = syn[..14 + 20 + 19].to_vec();
    short[14 + 3] = 39;
    let ipv6 = {
        let (from, to) = (testbed::ipv6::HOST, testbed::ipv6::FAR);
        [&syn[..12], &[0x86, 0xdd], &testbed::ipv6::ipv6(from, to, 6, &syn[34..])].concat()
    };
    for frame in [
        syn.clone(),
        fragment(syn.clone()),
        short,
        ipv6,
        tagged(&[0x81, 0, 0, 5]),
        tagged(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 5]),
        tagged(&[0x88, 0xa8, 0, 5, 0x88, 0xa8, 0, 5]),
        tagged(&[0x91, 0, 0, 5]),
        tagged(&[0x81, 0, 0, 5, 0x81, 0, 0, 5, 0x81, 0, 0, 5]),
        tagged(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 42, 0, 33]),
    ] {
        assert_eq!(way(bench, input, &frame), None, "{frame:02x?}");
    }
    let arp = [&syn[..12], &[8, 6], &[0; 28]].concat();
    assert!(way(bench, input, &arp).is_some());
}

#[test]
fn the_policer_lets_each_source_have_its_rate() {
    let mut bench = bench("policer", "100 5", 1, 1);
    let packet = |source: u8| udp(([10, 0, 0, source], 1), (OUTSIDE, 2), b"");
    for _ in 0..20 {
        bench.push("in0", &[&packet(1)]);
    }
    bench.push("in0", &[&packet(2)]);
    assert_eq!((bench.taken("out0").len(), bench.drops("e", "over the rate")), (6, 15));
    assert_eq!(bench.read("e.sources"), "2");
    // Ten tokens in a tenth of a second, of which five find room.
    bench.advance_ns(100_000_000);
    for _ in 0..20 {
        bench.push("in0", &[&packet(1)]);
    }
    assert_eq!(bench.taken("out0").len(), 5);
    bench.write("e.rate", "1000000").unwrap();
    bench.advance_ns(1_000_000);
    bench.push("in0", &[&packet(1)]);
    assert_eq!(bench.taken("out0").len(), 1);
    // The buckets outlive a reload.
    bench.write("e.reload", "").unwrap();
    assert_eq!((bench.read("e.sources"), bench.read("e.rate")), ("2".into(), "1000000".into()));
    // Silent sources are forgotten.
    bench.advance_ns(130_000_000_000);
    assert_eq!(bench.read("e.sources"), "0");
}

#[test]
fn the_syn_filter_lets_only_the_inside_open_connections() {
    let mut bench = bench("syn_filter", "", 2, 2);
    let (client, server) = ((INSIDE, 4000), (OUTSIDE, 80));
    assert_eq!(way(&mut bench, 1, &tcp(server, client, SYN)), None);
    assert_eq!(way(&mut bench, 1, &tcp(server, client, SYN | ACK)), None);
    assert_eq!(way(&mut bench, 0, &tcp(client, server, SYN)), Some(0));
    assert_eq!(way(&mut bench, 1, &tcp(server, client, SYN | ACK)), Some(1));
    assert_eq!(way(&mut bench, 0, &tcp(client, server, ACK)), Some(0));
    // Another port, another server, another client, a packet inside without a connection.
    assert_eq!(way(&mut bench, 1, &tcp((OUTSIDE, 81), client, ACK)), None);
    assert_eq!(way(&mut bench, 1, &tcp(([198, 51, 100, 10], 80), client, ACK)), None);
    assert_eq!(way(&mut bench, 1, &tcp(server, (INSIDE, 4001), ACK)), None);
    assert_eq!(way(&mut bench, 0, &tcp((INSIDE, 4001), server, ACK)), None);
    assert_eq!(way(&mut bench, 1, &fragment(tcp(server, client, ACK))), None);
    assert_eq!(way(&mut bench, 1, &udp(server, client, b"")), Some(1));
    assert_ways_round(&mut bench, 1, server, 22);
    assert_eq!(bench.read("e.connections"), "1");
    // The state outlives a reload, and the connection its end by half a minute.
    bench.write("e.reload", "").unwrap();
    assert_eq!(way(&mut bench, 1, &tcp(server, client, FIN | ACK)), Some(1));
    bench.advance_ns(29_000_000_000);
    assert_eq!(way(&mut bench, 0, &tcp(client, server, ACK)), Some(0));
    bench.advance_ns(2_000_000_000);
    assert_eq!(way(&mut bench, 1, &tcp(server, client, ACK)), None);
    bench.advance_ns(20_000_000_000);
    assert_eq!(bench.read("e.connections"), "0");
}

#[test]
fn ecmp_gives_a_flow_one_way_in_both_directions_and_uses_all() {
    let mut bench = bench("ecmp", "4", 1, 4);
    for number in 0..400_u16 {
        let (client, server) = (([10, 0, (number >> 8) as u8, number as u8], 1000 + number), (OUTSIDE, 80));
        let there = way(&mut bench, 0, &tcp(client, server, ACK));
        assert!(there.is_some());
        assert_eq!(way(&mut bench, 0, &tcp(server, client, ACK)), there);
        assert_eq!(way(&mut bench, 0, &tcp(client, server, SYN)), there);
    }
    let counts: Vec<u32> = bench.read("e.packets").split(' ').map(|count| count.parse().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u32>(), 1200);
    assert!(counts.iter().all(|count| (180..420).contains(count)), "{counts:?}");
}

#[test]
fn the_prefix_counter_names_the_largest() {
    let mut bench = bench("prefix_counter", "", 1, 1);
    for (last, count, payload) in [(1, 3, 0), (2, 2, 1000), (3, 1, 10)] {
        for number in 0..count {
            let packet = udp((INSIDE, 1), ([203, 0, last, number], 2), &vec![0; payload]);
            bench.push("in0", &[&packet]);
        }
    }
    bench.push("in0", &[&[1, 2, 3]]);
    assert_eq!((bench.read("e.prefixes"), bench.taken("out0").len()), ("3".into(), 7));
    let top = "203.0.2.0/24                2 packets           2084 bytes\n\
               203.0.1.0/24                3 packets            126 bytes";
    assert_eq!(bench.read("e.top 2"), top);
    bench.write("e.reload", "").unwrap();
    assert_eq!(bench.read("e.top 2"), top);
}

#[test]
fn the_dns_filter_lets_in_one_answer_to_each_question() {
    let mut bench = bench("dns_filter", "", 2, 2);
    let message = |number: u16| [&number.to_be_bytes()[..], &[1; 30]].concat();
    let (client, server) = ((INSIDE, 5353), (OUTSIDE, 53));
    let answer = udp(server, client, &message(7));
    assert_eq!(way(&mut bench, 1, &answer), None);
    assert_eq!(way(&mut bench, 0, &udp(client, server, &message(7))), Some(0));
    assert_eq!(way(&mut bench, 1, &udp(server, client, &message(8))), None);
    assert_eq!(way(&mut bench, 1, &udp(server, (INSIDE, 5354), &message(7))), None);
    assert_eq!(way(&mut bench, 1, &answer), Some(1));
    assert_eq!(way(&mut bench, 1, &answer), None);
    assert_eq!(way(&mut bench, 1, &fragment(answer.clone())), None);
    assert_eq!(way(&mut bench, 1, &udp((OUTSIDE, 123), client, b"")), Some(1));
    assert_eq!(bench.drops("e", "unasked DNS answer"), 4);
    // Behind a VLAN tag.
    let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    assert_eq!(way(&mut bench, 0, &tagged(&udp(client, server, &message(10)))), Some(0));
    assert_eq!(way(&mut bench, 1, &tagged(&udp(server, client, &message(10)))), Some(1));
    // An answer that takes too long.
    assert_eq!(way(&mut bench, 0, &udp(client, server, &message(9))), Some(0));
    bench.advance_ns(11_000_000_000);
    assert_eq!(way(&mut bench, 1, &udp(server, client, &message(9))), None);
}

#[test]
fn the_knocker_opens_the_port_for_those_who_know() {
    let mut bench = bench("knock", "22 7000 9000 8000", 1, 1);
    let host = |last: u8| ([192, 0, 2, last], 999);
    let knocks = |bench: &mut Bench, last: u8, ports: &[u16]| {
        for port in ports {
            assert_eq!(way(bench, 0, &udp(host(last), (INSIDE, *port), b"")), None);
        }
        way(bench, 0, &tcp(host(last), (INSIDE, 22), SYN)).is_some()
    };
    assert!(!knocks(&mut bench, 1, &[]));
    assert!(!knocks(&mut bench, 1, &[7000, 8000, 9000]));
    assert!(!knocks(&mut bench, 1, &[9000, 8000]));
    assert!(knocks(&mut bench, 1, &[7000, 9000, 8000]));
    assert!(!knocks(&mut bench, 2, &[]));
    assert_eq!(bench.read("e.open"), "192.0.2.1");
    assert_eq!(way(&mut bench, 0, &tcp(host(2), (INSIDE, 80), SYN)), Some(0));
    // Too slow.
    assert!(!knocks(&mut bench, 3, &[7000, 9000]));
    bench.advance_ns(11_000_000_000);
    assert!(!knocks(&mut bench, 3, &[8000]));
    // A scan of ports in any one order.
    for port in (6990..9010_u16).chain((6990..9010).rev()) {
        way(&mut bench, 0, &udp(host(4), (INSIDE, port), b""));
    }
    assert!(!knocks(&mut bench, 4, &[]));
    assert_ways_round(&mut bench, 0, host(5), 22);
    bench.write("e.reload", "").unwrap();
    assert!(knocks(&mut bench, 1, &[]));
    bench.advance_ns(3_700_000_000_000);
    assert!(!knocks(&mut bench, 1, &[]));
}
