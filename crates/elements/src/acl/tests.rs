//! Lists in a graph: rules as text, packets that meet them, changes while packets flow; and a plain reading
//! of rules and headers (`naive`) against which random lists are compared, those
//! of the program in the kernel too (`kernel`).

mod kernel;
mod naive;
mod random;
mod router;
mod text;

use graph::testing::Bench;

use crate::registry;
use testbed::ipv4::ipv4;

/// A list with both outputs; packets go in by `in0`.
fn bench(arguments: &str) -> Bench {
    Bench::element(&registry(), &format!("ACL({arguments})"), 1, 2)
}

/// Pushes packets, marked as a header check leaves them, with a paint; how many were permitted and denied.
fn push(bench: &mut Bench, packets: &[(&[u8], u8)]) -> (usize, usize) {
    let packets = packets.iter().map(|(bytes, paint)| {
        let mut packet = bench.packet(bytes);
        packet.set_network_header(0);
        packet.annotations_mut().set_paint(*paint);
        packet
    });
    let packets = packets.collect();
    bench.push_packets("in0", packets);
    (bench.taken_packets("out0").len(), bench.taken_packets("out1").len())
}

fn permits(bench: &mut Bench, packet: &[u8]) -> bool {
    push(bench, &[(packet, 0)]) == (1, 0)
}

fn ports(source: u16, destination: u16) -> Vec<u8> {
    let mut header = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    header.resize(20, 0);
    header
}

fn tcp(source: [u8; 4], destination: [u8; 4], port: u16) -> Vec<u8> {
    ipv4(source, destination, 6, &ports(40_000, port))
}

/// An IPv6 packet from 2001:db8::1 to 2001:db8::2.
fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    for last in [1, 2] {
        packet.extend((0x2001_0db8_u128 << 96 | last).to_be_bytes());
    }
    packet.extend(payload);
    packet
}

/// As a fragment: its offset in octets, and whether more follow.
fn fragment(mut packet: Vec<u8>, offset: u16, more: bool) -> Vec<u8> {
    packet[6..8].copy_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
    packet
}

const A: [u8; 4] = [192, 0, 2, 1];
const B: [u8; 4] = [198, 51, 100, 1];

#[test]
fn the_first_rule_that_matches_decides() {
    let mut bench = bench(
        "30 permit tcp any 198.51.100.0/24 port 80-443, 10 deny tcp 192.0.2.7 any, 20 deny any any any in 9,
         40 permit 47 192.0.2.0/24 any, DEFAULT deny",
    );
    assert!(permits(&mut bench, &tcp(A, B, 80)));
    assert!(permits(&mut bench, &tcp(A, B, 443)));
    assert!(!permits(&mut bench, &tcp(A, B, 444)));
    assert!(!permits(&mut bench, &tcp(A, A, 80)));
    assert!(!permits(&mut bench, &tcp([192, 0, 2, 7], B, 80)));
    assert!(permits(&mut bench, &ipv4(A, A, 47, b"")));
    assert!(!permits(&mut bench, &ipv4(B, A, 47, b"")));
    assert_eq!(push(&mut bench, &[(&tcp(A, B, 80), 9), (&tcp(A, B, 80), 8)]), (1, 1));
    assert!(!permits(&mut bench, &ipv6(6, &ports(1, 80))));
    assert_eq!(
        bench.read("e.rules"),
        "10 deny tcp 192.0.2.7/32 any # 1 packets, 40 bytes\n\
         20 deny any any any in 9 # 1 packets, 40 bytes\n\
         30 permit tcp any 198.51.100.0/24 port 80-443 # 3 packets, 120 bytes\n\
         40 permit gre 192.0.2.0/24 any # 1 packets, 20 bytes\n"
    );
    assert_eq!(bench.read("e.default"), "deny # 4 packets, 160 bytes");
    assert_eq!(bench.read("e.count"), "4");
    bench.write("e.reset_counts", "").unwrap();
    assert!(bench.read("e.rules").lines().all(|line| line.ends_with("# 0 packets, 0 bytes")));
    assert!(permits(&mut bench, &tcp(A, B, 80)));
    assert!(bench.read("e.rules").contains("# 1 packets, 40 bytes"));
}

#[test]
fn denied_packets_have_a_reason() {
    let config = "ACL(permit udp any any port 53, deny tcp any any, DEFAULT deny)";
    let mut bench = Bench::element(&registry(), config, 1, 1);
    let syn = tcp(A, B, 80);
    let other = ipv4(A, B, 47, b"");
    let tiny = fragment(ipv4(A, B, 17, &[0, 1]), 0, true);
    let truncated = ipv4(A, B, 17, &[0, 1]);
    for bytes in [&syn[..], &other, &tiny, &truncated, b"hello", b"\x45", b""] {
        let mut packet = bench.packet(bytes);
        packet.set_network_header(0);
        bench.push_packets("in0", vec![packet]);
    }
    // Without a network header.
    bench.push("in0", &[&syn]);
    for (reason, count) in [
        ("denied by rule", 1),
        ("denied by default", 1),
        ("tiny fragment", 1),
        ("truncated transport header", 1),
        ("no IP header", 4),
    ] {
        assert_eq!(bench.drops("e", reason), count, "{reason}");
    }
}

#[test]
fn fragments_without_ports_match_rules_without_ports_only() {
    let mut bench =
        bench("10 permit udp any any port 53, 20 deny udp any any fragment, 30 permit any any any");
    let dns = ipv4(A, B, 17, &ports(1, 53));
    assert!(permits(&mut bench, &dns));
    assert!(permits(&mut bench, &fragment(dns.clone(), 0, true)));
    assert!(!permits(&mut bench, &fragment(dns.clone(), 24, false)));
    bench.write("e.remove", "20").unwrap();
    assert!(permits(&mut bench, &fragment(dns.clone(), 24, false)));
    bench.write("e.remove", "30").unwrap();
    assert!(!permits(&mut bench, &fragment(dns, 24, false)));
}

/// RFC 1858, sections 3.1 and 3.2; RFC 3128.
#[test]
fn tiny_fragments_are_denied_where_rules_look_at_ports() {
    let segment = ipv4(A, B, 6, &ports(1, 80));
    let short = ipv4(A, B, 6, &ports(1, 80)[..8]);
    for (rules, answers) in [
        ("permit tcp any any port 80, permit any any any", [true, false, false, true, true, false]),
        ("permit tcp any any, permit any any any", [true; 6]),
    ] {
        let mut bench = bench(rules);
        let seen = [
            permits(&mut bench, &fragment(segment.clone(), 0, true)),
            permits(&mut bench, &fragment(short.clone(), 0, true)),
            permits(&mut bench, &fragment(segment.clone(), 8, true)),
            permits(&mut bench, &fragment(segment.clone(), 16, true)),
            // A datagram ends at 65,535; 20 octets behind 65,512 fit.
            permits(&mut bench, &fragment(segment.clone(), 65_512, false)),
            permits(&mut bench, &fragment(segment.clone(), 65_520, true)),
        ];
        assert_eq!(seen, answers, "{rules}");
    }
}

#[test]
fn established_is_the_ack_or_the_rst_bit() {
    let mut bench = bench("permit tcp any any port 22 established, DEFAULT deny");
    for (flags, expected) in [(0x02, false), (0x12, true), (0x10, true), (0x04, true), (0x01, false)] {
        let mut segment = tcp(A, B, 22);
        segment[20 + 13] = flags;
        assert_eq!(permits(&mut bench, &segment), expected, "{flags:#x}");
        segment[20 + 3] = 23;
        assert!(!permits(&mut bench, &segment));
    }
}

#[test]
fn icmp_by_type_and_code() {
    let mut bench = bench(
        "permit icmp any any icmp-type 8, permit icmp any any icmp-type 3/4, permit icmp6 any any icmp-type 2",
    );
    for (kind, code, expected) in [(8, 0, true), (8, 9, true), (3, 4, true), (3, 3, false), (0, 0, false)] {
        assert_eq!(permits(&mut bench, &ipv4(A, B, 1, &[kind, code, 0, 0])), expected, "{kind}/{code}");
    }
    assert!(permits(&mut bench, &ipv6(58, &[2, 0, 0, 0])));
    assert!(!permits(&mut bench, &ipv6(58, &[8, 0, 0, 0])));
    assert!(!permits(&mut bench, &ipv6(1, &[8, 0, 0, 0])));
}

#[test]
fn ipv6_ports_behind_extension_headers() {
    let mut bench = bench("permit tcp 2001:db8::/64 any port 80, permit 59 any any, DEFAULT deny");
    let segment = ports(1, 80);
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    assert!(permits(&mut bench, &ipv6(6, &segment)));
    assert!(permits(&mut bench, &ipv6(0, &[&options(60)[..], &options(6), &segment].concat())));
    let first = [6, 0, 0, 1, 0, 0, 0, 7];
    assert!(permits(&mut bench, &ipv6(44, &[&first[..], &segment].concat())));
    let later = [6, 0, 0, 32, 0, 0, 0, 7];
    assert!(!permits(&mut bench, &ipv6(44, &[&later[..], &segment].concat())));
    assert!(permits(&mut bench, &ipv6(59, b"")));
    // No way to the transport header: too many, cut off, in the wrong order.
    for chain in [[&options(60).repeat(9)[..], &segment].concat(), vec![60, 9], options(0).to_vec()] {
        assert!(!permits(&mut bench, &ipv6(60, &chain)));
    }
    // A list that asks for addresses only does not care.
    bench.write("e.set", "permit any 2001:db8::/64 any").unwrap();
    assert!(permits(&mut bench, &ipv6(60, &[60, 9])));
}
