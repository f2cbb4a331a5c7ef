//! What an attacker tries: to fill tables, to guess ports, to get in.

use std::collections::HashMap;

use super::*;

fn syn(host: u8, port: u16) -> Vec<u8> {
    tcp(([10, 0, 0, host], port), SERVER, SYN, b"")
}

#[test]
fn one_host_cannot_take_the_table() {
    for (arguments, most) in [("HOST_FLOWS 100", 100), ("CAPACITY 3000", 1500), ("CAPACITY 1000", 1000)] {
        let mut bench =
            bench(&format!("IPRewriter(pattern 192.0.2.1 1024-65535 - - 0 1, drop, {arguments})"));
        for port in 1000..3000 {
            bench.push("in0", &[&syn(1, port)]);
        }
        assert_eq!(bench.taken("out0").len(), most, "{arguments}");
        let refused = if most == 1000 { "mapping table full" } else { "too many flows of one host" };
        assert_eq!(bench.drops("e", refused), 2000 - most as u64);
        assert_eq!(bench.read("e.mapping_failures"), (2000 - most).to_string());
        if most < 1000 {
            // Neither other hosts are concerned, nor the flows that the host has.
            through(&mut bench, "in0", &syn(2, 5), "out0");
            through(&mut bench, "in0", &syn(1, 1000), "out0");
            // Its flows expire, and others may follow.
            bench.advance_ns(301_000_000_000);
            through(&mut bench, "in0", &syn(1, 1), "out0");
        }
    }
}

#[test]
fn a_flood_of_new_flows_pushes_out_its_own_and_no_established_connection() {
    let mut bench = bench("IPRewriter(pattern 192.0.2.1 1024-65535# - - 0 1, drop, CAPACITY 8)");
    through(&mut bench, "in0", &tcp(INNER, SERVER, ACK, b"question"), "out0");
    through(&mut bench, "in1", &tcp(SERVER, (OUTER, 1024), ACK, b"answer"), "out1");
    // It is idle for longer than its guarantee, and the flood's flows are all younger than theirs.
    bench.advance_ns(10_000_000_000);
    for port in 0..100 {
        bench.push("in0", &[&syn(9, port)]);
    }
    assert_eq!((bench.taken("out0").len(), bench.drops("e", "mapping table full")), (7, 93));
    bench.advance_ns(6_000_000_000);
    for port in 100..200 {
        bench.push("in0", &[&syn(9, port)]);
    }
    assert_eq!(bench.taken("out0").len(), 7, "the first of the flood make room for others");
    let late = tcp(SERVER, (OUTER, 1024), ACK, b"more");
    assert_eq!(through(&mut bench, "in1", &late, "out1"), tcp(SERVER, INNER, ACK, b"more"));
}

#[test]
fn ports_at_random_are_others_in_each_router() {
    let ports = || {
        let mut bench = bench("IPRewriter(pattern 192.0.2.1 1024-65535? - - 0 1, drop)");
        let ports: Vec<_> = (0..8)
            .map(|port| {
                through(&mut bench, "in0", &udp((INNER.0, port), SERVER, b""), "out0")[20..22].to_vec()
            })
            .collect();
        ports
    };
    assert_ne!(ports(), ports());
}

#[test]
fn port_commands_open_no_way_to_another_host_or_a_service() {
    let mut bench = ftp_bench("TCPRewriter(pattern 192.0.2.1 1024-65535# - - 0 1, drop)", "0");
    bench.push("in0", &[&line(1, "x\r\n")]);
    bench.taken("out0");
    let mut sequence = 4;
    // Another host inside, the server itself, SSH, and the last port of services.
    for text in [
        "PORT 10,0,0,2,19,137\r\n",
        "PORT 8,8,8,8,19,137\r\n",
        "PORT 10,0,0,1,0,22\r\n",
        "PORT 10,0,0,1,3,255\r\n",
    ] {
        assert_eq!(through(&mut bench, "in0", &line(sequence, text), "out0"), outer_line(sequence, text));
        sequence += text.len() as u32;
    }
    assert_eq!(bench.read("e.nmappings"), "1");
    let first = line(sequence, "PORT 10,0,0,1,4,0\r\n");
    assert_eq!(through(&mut bench, "in0", &first, "out0"), outer_line(sequence, "PORT 192,0,2,1,4,1\r\n"));
}

/// A packet, or time that passes.
#[derive(Clone, Debug)]
enum Event {
    FromInside { is_tcp: bool, inner: End, server: End, flags: u8 },
    FromOutside { is_tcp: bool, from: End, to: End, flags: u8 },
    Wait { seconds: u64 },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let inner = || (1..4_u8, 1..5_u16).prop_map(|(host, port)| ([10, 0, 0, host], 1023 + port));
    let server = || (1..3_u8, 80..82_u16).prop_map(|(host, port)| ([8, 8, 8, host], port));
    let flags = || proptest::sample::select(vec![SYN, SYN | ACK, ACK, FIN, RST | ACK]);
    let outer = (1023..1029_u16).prop_map(|port| (OUTER, port));
    let ends = prop_oneof![
        6 => (server(), outer),
        // A host inside as where it goes, or as where it seems to come from.
        1 => (server(), inner()),
        1 => (inner(), server()),
    ];
    let event = prop_oneof![
        5 => (any::<bool>(), inner(), server(), flags())
            .prop_map(|(is_tcp, inner, server, flags)| Event::FromInside { is_tcp, inner, server, flags }),
        4 => (any::<bool>(), ends, flags())
            .prop_map(|(is_tcp, (from, to), flags)| Event::FromOutside { is_tcp, from, to, flags }),
        1 => prop_oneof![1..8_u64, 200..400_u64].prop_map(|seconds| Event::Wait { seconds }),
    ];
    proptest::collection::vec(event, 1..150)
}

fn ends(packet: &[u8]) -> (End, End) {
    let end = |at: usize, port: usize| {
        let address = [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]];
        (address, u16::from_be_bytes([packet[port], packet[port + 1]]))
    };
    (end(12, 20), end(16, 22))
}

fn lookup(bench: &mut Bench, is_tcp: bool, from: End, to: End) -> String {
    let address = |end: End| format!("{} {}", std::net::Ipv4Addr::from(end.0), end.1);
    let protocol = if is_tcp { "tcp" } else { "udp" };
    bench.read(&format!("e.{protocol}_lookup {} {}", address(from), address(to)))
}

proptest! {
    /// No two live flows have one outside tuple; what reaches the inside is the answer to a flow, and goes
    /// to its host; and every packet that does not leave is counted.
    #[test]
    fn nobody_gets_in_without_a_flow(events in events(), order in proptest::sample::select(vec!["", "?", "#"])) {
        let mut bench = bench(&format!(
            "IPRewriter(pattern 192.0.2.1 1024-1027{order} - - 0 1, drop, CAPACITY 12, HOST_FLOWS 6)"
        ));
        // By protocol and the answers' ends: who the flow is of.
        let mut owners: HashMap<(bool, End, End), End> = HashMap::new();
        for event in events {
            let make = |is_tcp, from, to, flags| if is_tcp { tcp(from, to, flags, b"d") } else { udp(from, to, b"d") };
            match event {
                Event::FromInside { is_tcp, inner, server, flags } => {
                    bench.push("in0", &[&make(is_tcp, inner, server, flags)]);
                    for packet in bench.taken("out0") {
                        let (outer, to) = ends(&packet);
                        prop_assert_eq!((outer.0, to), (OUTER, server));
                        prop_assert!((1024..1028).contains(&outer.1));
                        if let Some(before) = owners.insert((is_tcp, server, outer), inner)
                            && before != inner
                        {
                            let other = lookup(&mut bench, is_tcp, before, server);
                            prop_assert_ne!(other, format!("192.0.2.1 {} 8.8.8.{} {}", outer.1, server.0[3], server.1));
                        }
                    }
                    prop_assert!(bench.taken("out1").is_empty());
                }
                Event::FromOutside { is_tcp, from, to, flags } => {
                    bench.push("in1", &[&make(is_tcp, from, to, flags)]);
                    for packet in bench.taken("out1") {
                        let (answering, inner) = ends(&packet);
                        prop_assert_eq!(answering, from);
                        prop_assert_eq!(owners.get(&(is_tcp, from, to)), Some(&inner));
                    }
                    bench.taken("out0");
                }
                Event::Wait { seconds } => bench.advance_ns(seconds * 1_000_000_000),
            }
            for host in 1..4 {
                let flows = ["e.tcp_table", "e.udp_table"].map(|table| bench.read(table)).concat();
                let began = flows.lines().filter(|line| line.starts_with(&format!("(10.0.0.{host},"))).count();
                prop_assert!(began <= 6);
            }
        }
        let stats = bench.stats("e");
        let dropped: u64 = stats.dropped();
        let left = bench.stats("out0").packets + bench.stats("out1").packets;
        prop_assert_eq!(left + dropped, stats.packets);
    }
}
